"""What the package offers of training: imported when it is first used, with annotations that resolve."""

import inspect
import subprocess
import sys
import typing

import pytest

import noiseproof.train


def test_training_and_the_paper_are_imported_when_they_are_first_used():
    code = """
import sys
import noiseproof
print([name for name in ("data", "models", "paper", "train") if f"noiseproof.{name}" in sys.modules])
print(noiseproof.train.Recipe.__name__, noiseproof.paper.recipe.__name__)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines() == ["[]", "Recipe recipe"]


@pytest.mark.parametrize("name", noiseproof.train.__all__)
def test_annotations_resolve(name):
    public = getattr(noiseproof.train, name)
    typing.get_type_hints(public)
    if inspect.isclass(public):
        for method in vars(public).values():
            if inspect.isfunction(method):
                typing.get_type_hints(method)
