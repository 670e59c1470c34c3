"""The house: who imports whom, how long a function may be, and that adding something costs the files the page says."""

import ast
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
def test_each_part_imports_only_what_it_may(path):
    part = architecture.part_of(path)
    if part == architecture.FACE:
        return
    assert part in architecture.ROOMS, f"say in tools/architecture.py which parts {part} may import"
    assert set(architecture.imported_parts(path)) - {part} <= set(architecture.ROOMS[part][1])


@pytest.mark.parametrize(
    ("code", "parts"),
    [
        ("import noiseproof", {"noiseproof"}),
        ("from noiseproof import __version__", {"noiseproof"}),
        ("from noiseproof import noise", {"noise"}),
        ("import noiseproof.data.fetch as f", {"data"}),
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
    for part in architecture.ROOMS:
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
            assert node.end_lineno - node.lineno < 60, f"{node.name} has {node.end_lineno - node.lineno + 1} lines"
