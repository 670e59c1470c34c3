"""docs/how_to/integrations.md, whose every block of code runs."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import noiseproof
from noiseproof.cli import app

PAGE = (Path(__file__).parents[2] / "docs" / "how_to" / "integrations.md").read_text(encoding="utf-8")
SECTIONS = {
    heading: re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    for heading, text in re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
}


def run(section, folder, monkeypatch, names=None):
    """What the blocks of a section leave behind."""
    monkeypatch.chdir(folder)
    names = {"__name__": "page", **(names or {})}
    for block in SECTIONS[section]:
        exec(block, names)
    return names


def check_probabilities(found, shape):
    assert found.shape == shape
    torch.testing.assert_close(torch.as_tensor(found).sum(1), torch.ones(shape[0]), check_dtype=False)


def test_every_block_is_in_a_section_that_is_run():
    assert sum(map(len, SECTIONS.values())) == PAGE.count("```python")
    tests = Path(__file__).read_text(encoding="utf-8")
    assert [heading for heading, blocks in SECTIONS.items() if blocks and f'run("{heading}"' not in tests] == []


@pytest.mark.filterwarnings("ignore:.*pin_memory")
def test_hugging_face(tmp_path, monkeypatch):
    pytest.importorskip("accelerate")
    pytest.importorskip("transformers")
    names = run("Hugging Face's Trainer", tmp_path, monkeypatch)
    assert names["trainer"].state.global_step == 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_lightning(tmp_path, monkeypatch):
    pytest.importorskip("lightning")
    run("Lightning", tmp_path, monkeypatch)
    check_probabilities(np.load("probabilities.npz")["probabilities"], (120, 3))
    (command,) = re.findall(r"^ {4}noiseproof (audit .*)", PAGE, re.MULTILINE)
    done = CliRunner().invoke(app, command.split())
    assert done.exit_code == 0, done.output
    assert len(Path("audit/audit.csv").read_text(encoding="utf-8").splitlines()) == 121


@pytest.mark.slow
def test_skorch(tmp_path, monkeypatch):
    pytest.importorskip("skorch")
    check_probabilities(run("skorch", tmp_path, monkeypatch)["probabilities"], (90, 3))


@pytest.mark.slow
def test_scikit_learn(tmp_path, monkeypatch):
    check_probabilities(run("scikit-learn", tmp_path, monkeypatch)["probabilities"], (178, 3))


class Task(nn.Module):
    """As timm's ClassificationTask calls a criterion."""

    def __init__(self, model, criterion):
        super().__init__()
        self.model, self.criterion = model, criterion

    def forward(self, inputs, target):
        output = self.model(inputs)
        return {"loss": self.criterion(output, target), "output": output}


class Segmentation(nn.Conv2d):
    """Logits [N, 4, H, W]; for timm's and sentence-transformers' blocks the mean of them, and a device."""

    device = torch.device("cpu")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_those_that_need_nothing(tmp_path, monkeypatch):
    pytest.importorskip("sentence_transformers")
    model = Segmentation(3, 4, 1)
    names = {
        "noiseproof": noiseproof,
        "ClassificationTask": Task,
        "model": model,
        "network": model,
        "images": torch.randn(2, 3, 5, 6),
        "masks": torch.randint(4, (2, 5, 6)),
        "labels": torch.randint(4, (2, 5, 6)),
    }
    blocks = SECTIONS["timm, segmentation-models-pytorch, sentence-transformers, MONAI"]
    for block in blocks:
        names["labels"] = torch.randint(4, (2, 1, 5, 6)).float() if "squeeze" in block else torch.randint(4, (2, 5, 6))
        monkeypatch.setitem(SECTIONS, "timm, segmentation-models-pytorch, sentence-transformers, MONAI", [block])
        names = run("timm, segmentation-models-pytorch, sentence-transformers, MONAI", tmp_path, monkeypatch, names)
        assert isinstance(names["loss"], nn.Module) or names["loss"].isfinite()
