"""The package as a whole: what importing it costs, what is generated, what is packed, and the newcomer's text."""

import ast
import fnmatch
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from mypy import api
from typer.testing import CliRunner

import noiseproof
from noiseproof.cli import app

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "noiseproof"
PROMISES = ("test_every_loss.py", "test_catalog.py", "test_masked_classes.py", "test_ranges.py", "test_soft_targets.py")


def python(code):
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
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


def test_training_and_the_paper_are_imported_when_they_are_first_used():
    code = """
import sys
import noiseproof
print([name for name in ("audit", "data", "models", "paper", "theory", "train") if f"noiseproof.{name}" in sys.modules])
print(noiseproof.train.Recipe.__name__, noiseproof.paper.recipe.__name__)
"""
    assert python(code).splitlines() == ["[]", "Recipe recipe"]


def test_the_package_imports_where_the_laboratory_is_not_installed():
    code = """
import sys
for name in ("typer", "rich", "sklearn", "matplotlib", "requests", "PIL", "safetensors"):
    sys.modules[name] = None
import noiseproof
import noiseproof.__main__
for word in ("--version", "losses"):
    sys.argv[1:] = [word]
    try:
        noiseproof.__main__.main()
    except SystemExit as stop:
        print(stop.code or "fine")
"""
    version, fine, hint = python(code).splitlines()
    assert fine == "fine"
    assert version == f"noiseproof {noiseproof.__version__}"
    assert hint.endswith("pip install '.[lab]' in noiseproof's repository")


def test_the_tests_are_collected_where_there_is_no_triton():
    """As on macOS and on arm64: all modules that speak of kernels or of the fast path, and so may import it."""
    modules = (ROOT / "tests").rglob("test_*.py")
    asked = [str(path) for path in modules if re.search(r"triton|kernels|train.fast", path.read_text("utf-8"))]
    code = f"""
import sys
sys.modules["triton"] = None
import pytest
sys.exit(pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", *{asked}]))
"""
    assert len(asked) >= 5
    assert " tests collected" in python(code)


def test_what_is_imported_is_declared():
    """Not left to come through another package, which may stop needing it.

    Exception: Triton, which is torch's own.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = [*project["dependencies"], *(name for extra in project["optional-dependencies"].values() for name in extra)]
    names = {re.match(r"[\w-]+", text).group() for text in declared} | {"triton"}
    imported = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {one.name.partition(".")[0] for one in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                imported.add(node.module.partition(".")[0])
    distributions = {"sklearn": "scikit-learn", "PIL": "pillow"}
    others = {distributions.get(name, name) for name in imported - set(sys.stdlib_module_names) - {"noiseproof"}}
    assert len(others) > 8
    assert others <= names


def test_only_the_fast_path_and_the_kernels_import_triton():
    imports = re.compile(r"^(import|from) triton", re.MULTILINE)
    assert {path.parent.name for path in SOURCE.rglob("*.py") if imports.search(path.read_text("utf-8"))} == {"fast", "kernels"}


def test_a_type_checker_reports_a_name_that_is_not_there(tmp_path):
    """The attributes that are imported when first used must not hide a slip: noiseproof.JALCEE."""
    parts = ["audit", "data", "models", "paper", "theory", "train"]
    right = ["JALCE(a=30.0)", "L1", "create_loss", "functional.jal_ce", "__version__", *parts]
    wrong = ["JALCEE(a=30.0)", "functional.jal_cee", "losses.JALCEE", "training"]
    lines = ["import noiseproof", *(f"noiseproof.{name}" for name in right + wrong)]
    (tmp_path / "use.py").write_text("\n".join(lines), encoding="utf-8")
    skipped = ["torch", "numpy", *(f"noiseproof.{part}" for part in parts)]  # for time's sake
    sections = [f"[mypy-{name}.*]\nfollow_imports = skip" for name in skipped]
    (tmp_path / "mypy.ini").write_text("\n".join(["[mypy]", f"mypy_path = {ROOT / 'src'}", *sections]), encoding="utf-8")
    options = [
        "--config-file",
        str(tmp_path / "mypy.ini"),
        "--follow-imports",
        "silent",
        "--cache-dir",
        str(tmp_path / "cache"),
    ]
    found, problems, _ = api.run([*options, str(tmp_path / "use.py")])
    assert not problems
    first = 2 + len(right)
    reported = [int(number) for number in re.findall(r"use\.py:(\d+): error: Module has no attribute", found)]
    assert reported == list(range(first, first + len(wrong))), found


def test_a_hint_for_a_missing_extra_names_what_exists(tmp_path, monkeypatch):
    """The package is on no index: the repository has the extras."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    texts = {
        path: path.read_text(encoding="utf-8")
        for path in [*SOURCE.rglob("*.py"), ROOT / "README.md", ROOT / "docs" / "tutorials" / "get_started.md"]
    }
    assert not [path for path, text in texts.items() if re.search(r"pip install '?noiseproof", text)]
    named = {
        name for text in texts.values() for found in re.findall(r"pip install '\.\[(.+?)\]'", text) for name in found.split(",")
    }
    assert {"lab", "cluster", "text", "vision"} == named
    assert named <= set(extras)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    shown = CliRunner().invoke(app, ["noise", "show", "symmetric:0.3", "--png", str(tmp_path / "T.png")])
    assert shown.exit_code == 2
    assert "matplotlib" in shown.stderr
    assert "pip install '.[lab]' in noiseproof's repository" in shown.stderr


def test_the_source_distribution_has_what_its_tests_read():
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    included = [*build["targets"]["sdist"]["include"], "pyproject.toml"]
    read = {
        name for path in (ROOT / "tests").rglob("*.py") for name in re.findall(r'ROOT / "([\w.]+)"', path.read_text("utf-8"))
    }
    assert {"docs", "records", "tools"} <= read
    assert not [name for name in read if not any(fnmatch.fnmatch(name, pattern) for pattern in included)]


def test_the_generated_files_are_fresh():
    """But for the counts of functions and changes in a walk, which depend on the order in which threads and processes end."""
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import generate
    finally:
        sys.path.pop(0)
    files = (*generate.WRITTEN, *generate.FILLED)

    def settled(text):
        return re.sub(r"\d+ functions, \d+ changes of module", "", text)

    stale = [path.name for path in files if settled(path.read_text(encoding="utf-8")) != settled(generate.fresh(path))]
    assert not stale, "run 'make generate'"


def test_the_version_in_the_changelog_and_the_citation_is_the_packages():
    assert f"## {noiseproof.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\nversion: {noiseproof.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_the_workflows_call_what_exists_and_only_the_release_may_publish():
    yaml = pytest.importorskip("yaml")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    files = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    assert {"check.yml", "release.yml"} <= {path.name for path in files}
    for path in files:
        jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
        steps = [step for job in jobs.values() for step in job["steps"]]
        for target in re.findall(r"make (\w+)", " ".join(step.get("run", "") for step in steps)):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{path.name}: make {target}"
        assert all(re.search(r"@(release/)?v\d+$", step["uses"]) for step in steps if "uses" in step)
        allowed = {name for name, job in jobs.items() if "id-token" in job.get("permissions", {})}
        assert allowed == ({"publish"} if path.name == "release.yml" else set())
        assert all("environment" in jobs[name] for name in allowed)


def test_readme_commands_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"(?:^ {4}|`)make (\w+)", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_a_loss_is_added_in_one_file_as_contributing_says(tmp_path):
    """CONTRIBUTING.md, followed literally: its block of code, saved under the name it gives, in a copy of the package."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL).group(1)
    place = re.search(r"`(src/noiseproof/losses/\w+\.py)`:", text).group(1)
    for path in (*SOURCE.rglob("*.py"), *SOURCE.rglob("*.json")):
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
    noiseproof.SquaredError()(logits, target),
    noiseproof.create_loss("squared-error")(logits, target),
    noiseproof.functional.squared_error(logits, target),
]
from typer.testing import CliRunner
from noiseproof.cli import app
page = CliRunner().invoke(app, ["losses", "squared-error"]).output
print(json.dumps({{"values": [v.item() for v in values], "page": page, "names": [e.name for e in noiseproof.list_losses()]}}))
"""
    result = json.loads(python(script))
    assert len(set(result["values"])) == 1
    assert "squared-error" in result["names"]
    assert "scale * (1 - p[y])**2" in result["page"]
    tests = [str(ROOT / "tests" / "losses" / name) for name in PROMISES]
    paths = f"pythonpath={tmp_path / 'src'} ."
    promises = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", "-k", "square", "-o", paths, *tests],
        env={"PYTHONPATH": str(tmp_path / "src"), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert promises.returncode == 0, promises.stdout[-3000:]
    assert int(re.search(r"(\d+) passed", promises.stdout).group(1)) > 50
