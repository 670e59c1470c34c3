"""Links out of the folder of pages, which GitHub follows as they are, turned into links within the site.

A test that a page names, ``[`test_it`](../tests/theory/test_bounds.py)``, becomes a link to its code on the page of tests.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterable
from pathlib import Path

__all__ = ["LINKED_TEST", "PAGES_OUTSIDE", "inside", "listing", "missing_tests"]

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"
LINKED_TEST = re.compile(r"\[`(test_\w+)`\]\((?:\.\./)+(tests/[\w/]+\.py)\)")
PAGES_OUTSIDE = {"CONTRIBUTING.md": "how_to/contributing.md", "CHANGELOG.md": "reference/changelog.md", "README.md": "index.md"}
"""Files of the repository that have a page"""
TESTS_PAGE = "reference/tests.md"
RELATIVE_LINK = re.compile(r"\[([^\]]+)\]\((\.\./[^)#\s]+)(#[^)]*)?\)")


def inside(text: str, page: str = "index") -> str:
    """A page's text with links that stay in the site.

    >>> inside("[`test_it`](../tests/x/test_y.py), [here](../CONTRIBUTING.md#rules), [code](../tools/generate.py)")
    '[`test_it`](reference/tests.md#test-it), [here](how_to/contributing.md#rules), code (`tools/generate.py`)'
    >>> inside("[`losses/base.py`](../../src/noiseproof/losses/base.py), [here](../tutorials/get_started.md)", "how_to/fit")
    '`losses/base.py`, [here](../tutorials/get_started.md)'
    """
    folder = posixpath.dirname(page)

    def changed(found: re.Match[str]) -> str:
        words, at = found[1], found[3] or ""
        place = posixpath.normpath(posixpath.join("docs", folder, found[2]))
        if place.startswith("docs/"):
            return found[0]
        if place.startswith("tests/") and words.startswith("`test_"):
            place, at = TESTS_PAGE, f"#{_anchor(words.strip('`'))}"
        elif place in PAGES_OUTSIDE:
            place = PAGES_OUTSIDE[place]
        else:
            return words if words.startswith("`") and place.endswith(words.strip("`")) else f"{words} (`{place}`)"
        return f"[{words}]({posixpath.relpath(place, folder or '.')}{at})"

    return RELATIVE_LINK.sub(changed, text)


def _anchor(test: str) -> str:
    return test.replace("_", "-")


def linked_tests() -> dict[str, str]:
    """Every test that a page links to, with its file."""
    pages = sorted(DOCS.rglob("*.md"))
    return {found[1]: found[2] for page in pages for found in LINKED_TEST.finditer(page.read_text(encoding="utf-8"))}


def missing_tests() -> list[str]:
    """Links to tests that are not there."""
    return [f"{file}::{name}" for name, file in linked_tests().items() if name not in _functions(file)]


def _functions(file: str) -> set[str]:
    path = ROOT / file
    tree = ast.parse(path.read_text(encoding="utf-8") if path.is_file() else "")
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def listing() -> str:
    """Markdown: the code of each of these tests, by file."""
    if missing := missing_tests():
        raise ValueError(f"pages link to tests that are not there: {', '.join(missing)}")
    return "\n".join(_listed())


def _listed() -> Iterable[str]:
    tests = linked_tests()
    for file in dict.fromkeys(tests.values()):
        yield f"## `{file}`\n"
        for name in (name for name, place in tests.items() if place == file):
            yield f"({_anchor(name)})=\n### {' '.join(name.split('_')[1:]).capitalize()}\n"
            yield f"```{{literalinclude}} ../../{file}\n:language: python\n:pyobject: {name}\n```\n"
