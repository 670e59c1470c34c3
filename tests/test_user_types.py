"""A user's file under mypy --strict: the public names have types that a checker accepts, and their misuse is reported."""

from pathlib import Path

import pytest
from mypy import api

ROOT = Path(__file__).resolve().parent.parent

USE = """
import numpy as np
import torch
from torch import Tensor, nn

import noiseproof
from noiseproof.integrations.transformers import TrainerLoss
from noiseproof.sklearn import NoiseRobustClassifier


def step(model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    criterion = noiseproof.JALCE(alpha=1.0, beta=1.0, a=30.0, ignore_index=255)
    decay = noiseproof.L1(model, 5e-5)
    loss: Tensor = criterion(model(inputs), labels) + decay()
    return loss


pair: noiseproof.RobustLoss = 1.0 * noiseproof.NCE() + 2.0 * noiseproof.AMSE(a=30.0)
named: noiseproof.RobustLoss = noiseproof.create_loss("jal-ce", a=30.0)
names: list[str] = [entry.name for entry in noiseproof.list_losses()]
value: Tensor = noiseproof.functional.jal_ce(torch.zeros(2, 3), torch.zeros(2, dtype=torch.long), a=30.0, reduction="sum")
noisy = noiseproof.noise.symmetric(10, 0.8).apply(np.zeros(5, dtype=np.int64), seed=0)
rate: float = noiseproof.audit_probabilities(np.eye(3), [0, 1, 2]).rate
hugging_face = TrainerLoss(named, noiseproof.L1(nn.Linear(2, 2), 5e-5))
classes = NoiseRobustClassifier("jal-ce", epochs=3).fit(np.eye(3), [0, 1, 2]).predict(np.eye(3))
run = noiseproof.load("runs/NAME")
"""

MISUSE = """
noiseproof.JALCE(a="thirty")
noiseproof.functional.jal_ce(torch.zeros(2, 3), torch.zeros(2), reduction="average")
TrainerLoss(named, 5e-5)
"""


@pytest.mark.slow
def test_what_is_right_passes_and_what_is_wrong_is_reported(tmp_path):
    (tmp_path / "use.py").write_text(USE + MISUSE, encoding="utf-8")
    sections = ["[mypy]", f"mypy_path = {ROOT / 'src'}", "strict = true", "[mypy-sklearn.*]", "ignore_missing_imports = true"]
    (tmp_path / "mypy.ini").write_text("\n".join(sections), encoding="utf-8")
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
    first = 1 + len(USE.splitlines())
    reported = sorted({int(line.split("use.py:")[1].split(":")[0]) for line in found.splitlines() if "error:" in line})
    assert reported == [first + 1, first + 2, first + 3], found
