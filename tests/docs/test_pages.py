"""The README and the documentation: all code runs, all commands are commands, all links lead somewhere.

A page needs nothing for that but to be there. The blocks of a page run in order, in one namespace and an empty folder, with
noiseproof, torch and NumPy (np) imported. What else a reader has and the page does not show, a model or a file, goes into a
comment at its place, which readers do not see::

    <!-- run
    model = torch.nn.Linear(20, 10)
    -->
"""

import functools
import re
import shlex
import sys
import textwrap
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
import typer.main
from typer.testing import CliRunner

import noiseproof
from noiseproof.cli import app

ROOT = Path(__file__).resolve().parents[2]
PAGES = {str(path.relative_to(ROOT)): path for path in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]}
CODE = re.compile(r"^([ ]*)```python\n(.*?)^\1```|^<!-- run\n(.*?)^-->", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^ {4,}\$? ?(noiseproof .*?)(?:  +#.*)?$|`(noiseproof [a-z][^`]*)`", re.MULTILINE)
LINK = re.compile(r"(?<!`)\[[^\]\[]*\]\(([^)\s]+)\)")

ELSEWHERE = {
    "README.md": ("tests/docs/test_readme.py", 2),
    "CONTRIBUTING.md": ("tests/test_package.py", 1),
    "docs/explanation/architecture.md": ("tests/test_architecture.py", 4),
    "docs/how_to/regularisation.md": ("tests/losses/test_regularisation.py", 6),
    "docs/how_to/own_data.md": ("tests/train/test_own_data.py", 1),
    "docs/how_to/integrations.md": ("tests/integrations", None),
}
"""Pages whose code other tests run, because they also see whether what it does is right; and how many blocks these know of"""


@functools.cache
def text_of(page):
    return PAGES[page].read_text(encoding="utf-8")


def blocks(page):
    """The code in order, each with the number of its first line."""
    text = text_of(page)
    for found in CODE.finditer(text):
        yield 2 + text[: found.start()].count("\n"), textwrap.dedent(found[2] or found[3])


def shown(page):
    return sum(found[2] is not None for found in CODE.finditer(text_of(page)))


@pytest.mark.parametrize("page", [page for page in PAGES if shown(page) and page not in ELSEWHERE])
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page", "noiseproof": noiseproof, "torch": torch, "np": np}
    for line, code in blocks(page):
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            try:
                exec(compile("\n" * (line - 1) + code, PAGES[page], "exec"), names)
            except NameError as error:
                error.add_note("what a reader has and the page does not show goes into a comment: <!-- run")
                raise


@pytest.mark.parametrize("page", ELSEWHERE)
def test_code_that_another_test_runs_is_known_to_it(page):
    place, known = ELSEWHERE[page]
    files = [ROOT / place] if place.endswith(".py") else sorted((ROOT / place).glob("test_*.py"))
    assert any(Path(page).name in file.read_text(encoding="utf-8") for file in files)
    assert known in (None, shown(page)), f"{place} runs {known} blocks, {page} has {shown(page)}"


def test_every_block_of_code_is_seen():
    """Also one that is indented, as in a list; and other languages are none that could be run."""
    fences = {page: re.findall(r"^ *```(\S+)", text_of(page), re.MULTILINE) for page in PAGES}
    assert all(names.count("python") == shown(page) for page, names in fences.items())
    assert {name for names in fences.values() for name in names if not name.startswith("{")} <= {
        "python",
        "mermaid",
        "text",
        "math",
    }


@pytest.mark.parametrize("page", [page for page in PAGES if page == "README.md" or page.startswith("docs/")])
def test_code_is_at_most_80_columns_wide(page):
    """What a code host shows without scrolling; what readers do not see may be wider."""
    for found in CODE.finditer(text_of(page)):
        assert max(map(len, textwrap.dedent(found[2] or "").splitlines()), default=0) <= 80, found[2]


@functools.cache
def options_of(*verbs):
    """The options of a command, or None if there is no such command."""
    command = typer.main.get_command(app)
    for verb in verbs:
        command = getattr(command, "commands", {}).get(verb)
        if command is None:
            return None
    return {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}


def commands():
    for page in PAGES:
        for found in COMMAND.finditer(re.sub(r"\s*\n\s*(?=--)", " ", text_of(page))):
            yield page, " ".join((found[1] or found[2]).split())


def test_every_command_and_option_in_the_pages_exists():
    seen = []
    for page, command in commands():
        words = shlex.split(command.replace("...", ""), comments=True)[1:]
        verbs = [word for word in words[:2] if re.fullmatch("[a-z][a-z-]*", word)]
        options = next((known for depth in (2, 1, 0) if (known := options_of(*verbs[:depth])) is not None), None)
        assert not verbs or options_of(verbs[0]) is not None, f"{page}: there is no command {command!r}"
        wrong = [word for word in words if word.startswith("--") and word.partition("=")[0] not in options]
        assert not wrong, f"{page}: {command!r} has no {', '.join(wrong)}"
        seen.append(command)
    assert len(seen) > 40


def anchors(path):
    """Of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_the_links_of_a_page_lead_to_files_and_headings(page):
    for target in LINK.findall(re.sub(r"``.+?``", "", text_of(page))):
        if re.match(r"https?:|mailto:", target):
            continue
        place, _, anchor = target.partition("#")
        path = (PAGES[page].parent / place).resolve() if place else PAGES[page]
        assert path.exists(), f"{page} links to {target}"
        assert not anchor or path.suffix != ".md" or anchor in anchors(path), f"{page} links to {target}"


def tool(name):
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        return __import__(f"manual.{name}", fromlist=["manual"])
    finally:
        sys.path.pop(0)


def test_every_test_that_a_page_names_is_there():
    sources = tool("sources")
    assert len(sources.linked_tests()) > 15
    assert not sources.missing_tests()


@pytest.mark.slow
def test_the_commands_for_ones_own_files_run_as_get_started_says(tmp_path, monkeypatch):
    section = text_of("docs/tutorials/get_started.md").partition("## Use your own files")[2]
    lines = re.findall(r"^ {4}(noiseproof .*)", section, re.MULTILINE)
    assert [line.split()[1] for line in lines] == ["fit", "audit", "train", "compare", "predict"]
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    labels = np.arange(120) % 3
    features = draw.normal(size=(120, 4)) + 3 * np.eye(3, 4)[labels]
    rows = [
        ",".join([*(f"{value:.3f}" for value in row), f"class{label}"]) for row, label in zip(features, labels, strict=True)
    ]
    for name, kept in (("my.csv", rows), ("new.csv", rows[:9])):
        Path(name).write_text("\n".join(["a,b,c,d,label", *kept]), encoding="utf-8")
    for line in lines:
        run = next((str(path) for path in sorted(Path("runs").glob("*")) if (path / "record.json").is_file()), "")
        done = CliRunner().invoke(app, shlex.split(line.replace("runs/NAME", run), comments=True)[1:])
        assert done.exit_code == 0, f"{line}\n{done.output}"
    assert len(Path("predictions.csv").read_text(encoding="utf-8").splitlines()) == 10
