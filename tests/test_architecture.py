"""The architecture: who imports whom, how long a function may be, and that adding something costs the files the page says."""

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
try:
    import architecture
finally:
    sys.path.pop(0)

FILES = sorted(architecture.SOURCE.rglob("*.py"))


def relative(path):
    return str(path.relative_to(architecture.SOURCE))


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_each_box_imports_only_what_it_may(path):
    part = architecture.part_of(path)
    if part == architecture.PACKAGE:
        return
    box = architecture.box_of(part)
    assert box, f"enter {part} into a box of tools/architecture.py"
    others = {architecture.box_of(other) or other for other in architecture.imported_parts(path)} - {box, "foundation"}
    assert others <= set(architecture.BOXES[box].may_import if box in architecture.BOXES else ())


def test_there_are_at_most_sixteen_boxes_and_the_paper():
    assert len(set(architecture.BOXES) - {"paper"}) <= 16
    for name, box in architecture.BOXES.items():
        assert (architecture.SOURCE / box.look_first).is_file(), name
        assert set(box.may_import) <= set(architecture.BOXES), name


@pytest.mark.parametrize("path", [path for path in FILES if "paper" not in path.parts], ids=relative)
def test_nothing_imports_the_paper_but_the_command_line_inside_functions(path):
    found = list(architecture.paper_imports(path))
    assert not found or architecture.part_of(path) in ("cli", architecture.PACKAGE)
    assert all(is_lazy for _, is_lazy in found), f"{relative(path)}: import the paper inside the function that needs it"


@pytest.mark.parametrize(
    ("code", "parts"),
    [
        ("import noiseproof", {"noiseproof"}),
        ("from noiseproof import __version__", {"noiseproof"}),
        ("from noiseproof import noise", {"noise"}),
        ("import noiseproof.data.loader as f", {"data"}),
        ("def f():\n    from noiseproof.train import Recipe", {"train"}),
        ("if TYPE_CHECKING:\n    from noiseproof.train import Recipe", {"train"}),
        ("from ..losses import base", {"losses"}),
        ("from .. import models", {"models"}),
        ("import importlib\nimportlib.import_module('noiseproof.paper')", {"paper"}),
        ("import numpy\n'noiseproof.nothing'", set()),
    ],
)
def test_every_way_to_import_is_seen(code, parts, tmp_path, monkeypatch):
    monkeypatch.setattr(architecture, "SOURCE", tmp_path / "noiseproof")
    for part in architecture.BOXES:
        (architecture.SOURCE / part).mkdir(parents=True)
    path = architecture.SOURCE / "data" / "new.py"
    path.write_text(code, encoding="utf-8")
    assert set(architecture.imported_parts(path)) == parts


def test_no_part_imports_itself_by_a_detour():
    found = architecture.imports()

    def visit(part, way):
        assert part not in way, " imports ".join([*way, part])
        for other in found[part]:
            visit(other, [*way, part])

    for part in found:
        visit(part, [])


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_no_function_has_more_than_sixty_lines(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node, clean=False)  # which may be long
            lines = node.end_lineno - node.lineno + 1 - (0 if text is None else text.count("\n") + 1)
            assert lines <= 60, f"{node.name} has {lines} lines"


USED = """
import sys
import numpy as np
from noiseproof.data import open_dataset
from noiseproof.train import Recipe, train

rings = train(Recipe(dataset="rings", loss="ce", noise="to-first:0.2", epochs=2)).record
assert abs(rings.task["noise"]["rate"] - 0.1) < 1e-9, rings.task
images = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)
np.savez(sys.argv[1], x=images, y=np.arange(40) % 2, x_test=images, y_test=np.arange(40) % 2)
colours = train(Recipe(dataset=sys.argv[1], loss="ce", model="linear", augment="crop", batch=8)).record
print(rings.status, colours.status)
"""


def test_what_the_page_adds_works_and_costs_the_files_it_says(tmp_path):
    """Each block of the page, followed literally in a copy of the package, then used in runs."""
    text = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    shutil.copytree(architecture.SOURCE.parent, tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    touched = []
    for words, block in re.findall(r"\n\n([^\n`]*`[^\n]*)\n\n```python\n(.*?)```", text, re.DOTALL):
        name = re.findall(r"`(src/[^`]+)`", words)[-1]
        path = tmp_path / name
        touched.append(path.name)
        if "a line of" in words:
            start = re.search(rf"^{re.findall('`(.+?)`', words)[0]}\b.*{{$", path.read_text(encoding="utf-8"), re.MULTILINE)
            block = path.read_text(encoding="utf-8").replace(start[0], f"{start[0]}\n{block.rstrip()}", 1)
        elif "appended" in words:
            block = f"{path.read_text(encoding='utf-8')}\n\n{block}"
        else:
            assert not path.exists()
        path.write_text(block, encoding="utf-8")
    assert touched == ["matrix.py", "linear.py", "opening.py", "batch_loader.py"]
    done = subprocess.run(
        [sys.executable, "-c", USED, str(tmp_path / "images.npz")],
        env={"PYTHONPATH": str(tmp_path / "src"), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.stdout == "finished finished\n", done.stderr


@pytest.mark.parametrize(("what", "file", "name"), architecture.WHERE, ids=str)
def test_what_the_page_says_is_where_it_says(what, file, name):
    body = ast.parse((architecture.SOURCE / file).read_text(encoding="utf-8")).body
    for part in filter(None, name.split(".")):
        (found,) = (node for node in body if getattr(node, "name", None) == part)
        body = found.body


def test_every_file_that_the_page_names_is_there():
    whole = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    text = whole.partition("## Add a loss, a noise, a network or a data set")[0]
    named = set(re.findall(r"`((?:[a-z_]+/)+[a-z_]*(?:\.py)?)`", text))
    assert len(named) > 40
    roots = (architecture.SOURCE, ROOT)
    assert not [name for name in named if not any((root / name).exists() for root in roots)]


WHOLE_PACKAGE = {"annotations", "architecture", "distribution", "docstrings", "examples", "package", "user_types", "words"}
"""Tests of the package as a whole, which are the only ones directly in tests/"""
NO_PACKAGE = {"benchmarks", "docs", "helpers", "hostile", "tools"}
"""Folders of tests that test something else than a package of src/noiseproof"""


def test_the_tests_mirror_the_source():
    assert {path.stem.removeprefix("test_") for path in (ROOT / "tests").glob("test_*.py")} <= WHOLE_PACKAGE
    folders = {path.name for path in (ROOT / "tests").iterdir() if any(path.glob("*.py"))}
    assert {name for name in folders if not (architecture.SOURCE / name).is_dir()} <= NO_PACKAGE
