"""The wheel and the source distribution: what is in them, and that the wheel works with torch and NumPy alone."""

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import noiseproof

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A folder with both, built from this checkout."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    for kind in ("wheel", "sdist"):
        command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(built):
    (path,) = built.glob("*.whl")
    return path


def tracked(*patterns):
    done = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        pytest.skip("not a git checkout")
    return set(done.stdout.split("\n")) - {""}


def test_the_wheel_has_the_package_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
    info = f"noiseproof-{noiseproof.__version__}.dist-info/"
    package = {f"src/{name}" for name in names if not name.startswith(info)}
    assert package >= tracked("src/noiseproof")
    assert not [name for name in package if re.search(r"__pycache__|\.pyc$", name) or not name.startswith("src/noiseproof/")]
    assert {f"{info}METADATA", f"{info}entry_points.txt", f"{info}licenses/LICENSE"} <= names


def test_the_wheel_says_what_it_needs(wheel):
    with zipfile.ZipFile(wheel) as file:
        said = Parser().parsestr(file.read(f"noiseproof-{noiseproof.__version__}.dist-info/METADATA").decode())
        scripts = file.read(f"noiseproof-{noiseproof.__version__}.dist-info/entry_points.txt").decode()
    needed = [re.match(r"[\w-]+", one).group() for one in said.get_all("Requires-Dist") if "extra ==" not in one]
    assert sorted(needed) == ["numpy", "torch"]
    assert set(said.get_all("Provides-Extra")) >= {"lab", "cluster", "docs", "dev"}
    assert said["Requires-Python"] == ">=3.11"
    versions = {one.rpartition(" ")[2] for one in said.get_all("Classifier") if "Python :: 3." in one}
    assert versions == {"3.11", "3.12", "3.13", "3.14"}
    assert "noiseproof = noiseproof.__main__:main" in scripts
    assert said.get_payload().startswith("# noiseproof")


def test_the_source_distribution_has_what_it_takes_to_test_it_and_write_its_pages(built):
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    wanted = tracked("src", "tests", "tools", "benchmarks", "docs", "records", "*.md", "CITATION.cff", "LICENSE", "Makefile")
    assert len(wanted) > 300
    assert not wanted - names
    assert not [name for name in names if re.match(r"\.venv|site/|dist/|runs/", name)]


CORE = """
import importlib.metadata as metadata, importlib.machinery, json, re, sys

def needed(name, seen):
    if name not in seen:
        seen.add(name)
        for one in metadata.requires(name) or ():
            other = re.match(r"[\\w.-]+", one).group().lower().replace("_", "-")
            if "extra ==" not in one and other in installed:
                needed(other, seen)
    return seen

installed = {one.name.lower().replace("_", "-") for one in metadata.distributions()}
allowed = needed("numpy", needed("torch", set())) | {"optree"}  # which torch imports where it is
owners = metadata.packages_distributions()

class Only(importlib.machinery.PathFinder):
    # What is installed beside torch, NumPy and what these need is not found.
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        of = {one.lower().replace("_", "-") for one in owners.get(name.partition(".")[0], ())}
        if of and "noiseproof" not in of and not of & allowed:
            return None
        return super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(importlib.machinery.PathFinder)] = Only
import numpy as np, torch, noiseproof
assert noiseproof.__file__.startswith(sys.argv[1]), noiseproof.__file__
logits, labels = torch.randn(40, 4, dtype=torch.float64, requires_grad=True), torch.arange(40) % 4
reads = {entry.name: entry.reads for entry in noiseproof.list_losses()}
for name, read in reads.items():
    options = {"features": 4, "classes": 4} if read == "features" else {}
    noiseproof.create_loss(name, **options)(logits.float() if options else logits, labels).sum().backward()
model = torch.nn.Linear(4, 4)
(noiseproof.functional.jal_ce(model(torch.randn(8, 4)), torch.arange(8) % 4) + noiseproof.L1(model, 5e-5)()).backward()
noisy = noiseproof.noise.symmetric(4, 0.5).apply(labels.numpy(), seed=0)
predicted = np.random.default_rng(0).dirichlet(np.ones(4), 40)
try:
    noiseproof.audit_probabilities(predicted, noisy.labels)
except ImportError as error:
    refused = str(error)
assert noiseproof.theory.check("jal-ce", "symmetric:0.4", classes=4).tolerant
try:
    import sklearn
except ModuleNotFoundError:
    hidden = True
print(json.dumps({"losses": len(reads), "rate": noisy.rate, "refused": refused, "hidden": hidden}))
"""


def test_the_wheel_works_with_torch_and_numpy_alone(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as file:
        file.extractall(tmp_path / "site")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    done = subprocess.run(
        [sys.executable, "-c", CORE, str(tmp_path / "site")],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    refused = "a noise model is fitted by scipy: pip install '.[lab]' in noiseproof's repository"
    assert json.loads(done.stdout) == {"losses": len(noiseproof.list_losses()), "rate": 0.5, "refused": refused, "hidden": True}


def test_the_command_of_the_wheel_says_its_version_and_completes(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as file:
        file.extractall(tmp_path / "site")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}

    def said(*words, **more):
        command = [sys.executable, "-m", "noiseproof", *words]
        return subprocess.run(command, env=environment | more, capture_output=True, text=True, timeout=600, check=True).stdout

    assert said("--version").strip() == f"noiseproof {noiseproof.__version__}"
    offered = said(_NOISEPROOF_COMPLETE="complete_bash", COMP_WORDS="noiseproof losses jal", COMP_CWORD="2")
    assert offered.split() == ["jal-ce", "jal-fl"]
