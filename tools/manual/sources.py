"""What a page has for a code host, as the site shows it: comments become directives, links out of the folder links in it.

A test that a page names, ``[`test_it`](../tests/theory/test_bounds.py)``, becomes a link to its code on the page of tests.
"""

from __future__ import annotations

import ast
import html
import posixpath
import re
from collections.abc import Iterable
from pathlib import Path

__all__ = ["LINKED_TEST", "PAGES_OUTSIDE", "folded", "inside", "linked_tests", "listing", "missing_tests", "with_code"]

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"
LINKED_TEST = re.compile(r"\[`(test_\w+)`\]\((?:\.\./)+(tests/[\w/]+\.py)\)")
PAGES_OUTSIDE = {"CONTRIBUTING.md": "how_to/contributing.md", "CHANGELOG.md": "reference/changelog.md", "README.md": "index.md"}
"""Files of the repository that have a page"""
TESTS_PAGE = "reference/tests.md"
EXAMPLES_PAGE = "tutorials/examples.md"
CODE_PAGES = ("reference/tests", "tutorials/examples")
"""Pages that list tests or scripts, whose code the site shows"""
RELATIVE_LINK = re.compile(r"\[([^\]]+)\]\((\.\./[^)#\s]+)(#[^)]*)?\)")


TOCTREE = re.compile(r"^<!-- toctree\n(.*?)^-->", re.DOTALL | re.MULTILINE)
PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)]+)\.png\)")
INCLUDED = re.compile(r"^.*<!-- include: (\S+) -->$", re.MULTILINE)
"""A line that a code host shows, and the file that the site has in its place"""


def folded(name: str, words: str, content: Iterable[str], *, is_open: bool = False) -> list[str]:
    """Markdown that opens when it is clicked, under a name in code and some words."""
    summary = f"<summary><code>{html.escape(name)}</code> {words}</summary>"
    return [f'<details class="entry"{" open" * is_open}>', summary, "", *content, "", "</details>", ""]


def with_directives(text: str, page: str) -> str:
    """The comments of a page that stand for a table of contents or for a file of the repository, and pictures for each theme.

    >>> with_directives("<!-- toctree\\n:caption: Use\\n\\nfit\\n-->", "index")
    '```{toctree}\\n:hidden:\\n:caption: Use\\n\\nfit\\n```'
    """
    up = "../" * (1 + page.count("/"))

    def themed(found: re.Match[str]) -> str:
        words, place = found[1], found[2]
        if not (DOCS / posixpath.dirname(page) / f"{place}_dark.png").is_file():
            return found[0]
        return f"![{words}]({place}.png){{.only-light}} ![{words}]({place}_dark.png){{.only-dark}}"

    text = PICTURE.sub(themed, text)
    text = TOCTREE.sub(r"```{toctree}\n:hidden:\n\1```", text)
    return INCLUDED.sub(rf"```{{include}} {up}\1\n:heading-offset: 0\n```", text)


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
        elif place.startswith("examples/"):
            place, at = EXAMPLES_PAGE, f"#{_anchor(Path(place).stem)}"
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
    pages = sorted(page for page in DOCS.rglob("*.md") if page != DOCS / TESTS_PAGE)
    return {found[1]: found[2] for page in pages for found in LINKED_TEST.finditer(page.read_text(encoding="utf-8"))}


def missing_tests() -> list[str]:
    """Links to tests that are not there."""
    return [f"{file}::{name}" for name, file in linked_tests().items() if name not in _functions(file)]


def _functions(file: str) -> set[str]:
    path = ROOT / file
    tree = ast.parse(path.read_text(encoding="utf-8") if path.is_file() else "")
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def listing() -> str:
    """Markdown: these tests by file, each with a link to its file, for a code host."""
    if missing := missing_tests():
        raise ValueError(f"pages link to tests that are not there: {', '.join(missing)}")
    parts = []
    for file, names in _by_file().items():
        parts.append("\n".join([f"## {file}\n", *(f"- [`{name}`](../../{file})" for name in names)]))
    return "\n\n".join(parts)


def _by_file() -> dict[str, list[str]]:
    tests = linked_tests()
    return {file: [name for name, place in tests.items() if place == file] for file in dict.fromkeys(tests.values())}


def with_code(text: str) -> str:
    """The page of tests or of examples with the code of each, which opens when it is clicked."""

    def code(found: re.Match[str]) -> str:
        name, file, words = found[1], found[2], found[3]
        part = [f":pyobject: {name}"] if name.startswith("test_") else []
        anchor = _anchor(name.removeprefix("examples/").removesuffix(".py"))
        shown = [f"({anchor})=", f"```{{literalinclude}} ../../{file}", ":language: python", *part, "```"]
        return "\n".join(folded(name, words, shown))

    return re.sub(r"^- \[`([\w/.]+)`\]\((?:\.\./)+([\w/]+\.py)\):?(.*)$", code, text, flags=re.MULTILINE)
