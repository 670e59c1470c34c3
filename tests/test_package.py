"""The package as a whole: who imports whom, what importing it costs, what is generated, and the newcomer's text."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import noiseproof

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "noiseproof"

MAY_IMPORT = {
    "checks": set(),
    "classes": set(),
    "keyed_random": set(),
    "data": {"checks", "classes", "files", "keyed_random"},
    "primitives": set(),
    "statistics": {"primitives"},
    "losses": {"primitives", "statistics"},
    "models": {"checks"},
    "functional": {"losses"},
    "files": set(),
    "train": {"data", "files", "losses", "models", "noise"},
    "paper": {"losses", "noise", "train"},
    "noise": {"checks", "classes", "files", "keyed_random"},
    "demo": {"files", "losses", "paper", "train"},
    "report": {"files", "losses", "noise", "paper"},
    "cli": {"losses", "demo", "files", "models", "noise", "data", "paper", "report", "train"},
}
"""Which siblings each part of the package may import. Kernels plug into primitives; nothing above statistics knows of them."""


def imported_siblings(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = [node.module] if node.module != "noiseproof" else [f"noiseproof.{alias.name}" for alias in node.names]
        yield from (name.split(".")[1] for name in names if name.startswith("noiseproof."))


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_each_part_imports_only_what_it_may(path):
    part = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if part in {"__init__", "__main__"}:
        return
    assert part in MAY_IMPORT, f"say in MAY_IMPORT which siblings {part} may import"
    assert set(imported_siblings(path)) - {part} <= MAY_IMPORT[part]


def python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_the_package_needs_only_torch_and_numpy():
    code = """
import sys
import torch, numpy
before = set(sys.modules)
import noiseproof
new = {name.split(".")[0] for name in set(sys.modules) - before}
print(sorted(name for name in new if name not in sys.stdlib_module_names and not name.startswith(("torch", "numpy"))))
"""
    assert python(code).strip() == "['noiseproof']"


def test_the_package_imports_where_the_laboratory_is_not_installed():
    code = """
import sys
for name in ("typer", "rich", "sklearn", "matplotlib", "pooch", "PIL", "safetensors"):
    sys.modules[name] = None
import noiseproof
try:
    import noiseproof.__main__
    noiseproof.__main__.main()
except SystemExit as stop:
    print(stop)
"""
    assert python(code).strip().endswith("pip install 'noiseproof[lab]'")


def test_the_generated_files_are_fresh():
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import generate
    finally:
        sys.path.pop(0)
    assert generate.README.read_text(encoding="utf-8") == generate.readme(), "run 'make generate'"
    assert generate.STUB.read_text(encoding="utf-8") == generate.stub(), "run 'make generate'"
    assert generate.RESULTS.read_text(encoding="utf-8") == generate.results(), "run 'make generate'"


def test_the_version_in_the_changelog_is_the_packages():
    assert f"## {noiseproof.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_readme_commands_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"(?:^ {4}|`)make (\w+)", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_readme_code_runs():
    block = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL).group(1)
    setup = "import torch\nlogits = torch.randn(8, 10, requires_grad=True)\nlabels = torch.arange(8)\n"
    python(setup + block + "\nassert logits.grad is not None")


def test_a_loss_is_added_in_one_file_as_contributing_says(tmp_path):
    """CONTRIBUTING.md, followed literally: its block of code, saved under the name it gives, in a copy of the package."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL).group(1)
    place = re.search(r"`(src/noiseproof/losses/\w+\.py)`:", text).group(1)
    for path in SOURCE.rglob("*.py"):
        copy = tmp_path / "src" / "noiseproof" / path.relative_to(SOURCE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / place).write_text(code, encoding="utf-8")
    script = f"""
import sys
sys.path.insert(0, {str(tmp_path / "src")!r})
import json, torch, noiseproof
assert noiseproof.__file__.startswith({str(tmp_path)!r})
logits, target = torch.randn(4, 5), torch.tensor([0, 1, 2, 3])
values = [
    noiseproof.SquareMiss()(logits, target),
    noiseproof.create_loss("square-miss")(logits, target),
    noiseproof.functional.square_miss(logits, target),
]
from typer.testing import CliRunner
from noiseproof.cli import app
page = CliRunner().invoke(app, ["losses", "square-miss"]).output
print(json.dumps({{"values": [v.item() for v in values], "page": page, "names": [e.name for e in noiseproof.list_losses()]}}))
"""
    result = json.loads(python(script))
    assert len(set(result["values"])) == 1
    assert "square-miss" in result["names"]
    assert "scale * (1 - p[y])**2" in result["page"]
    tests = [str(ROOT / "tests" / "losses" / name) for name in ("test_every_loss.py", "test_catalog.py")]
    promises = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", "-k", "square", *tests],
        env={"PYTHONPATH": str(tmp_path / "src"), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert promises.returncode == 0, promises.stdout[-3000:]
    assert int(re.search(r"(\d+) passed", promises.stdout).group(1)) > 50
