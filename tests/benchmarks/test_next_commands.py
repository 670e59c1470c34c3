"""benchmarks/next_commands.py follows what is printed, and its record becomes a table."""

import importlib
from pathlib import Path

import numpy as np
import pytest

from noiseproof.audit import Audit
from noiseproof.data import open_dataset
from noiseproof.report.audit_page import write_audit

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def script(monkeypatch):
    """A module of benchmarks/ or tools/ by its name."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module


def test_commands_are_found_in_what_is_printed_and_on_a_page_as_they_stand(script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("my data.npz", x=np.eye(4), y=np.arange(4) % 2)
    posterior = np.array([[0.9, 0.1], [0.1, 0.9], [0.2, 0.8], [0.1, 0.9]], np.float32)
    audit = Audit(np.arange(4) % 2, posterior, np.eye(2), 0.2, (0.1, 0.3), 0.75, ("0", "1"), "by hand")
    after = write_audit(audit, open_dataset("my data.npz"), Path("audit"), place="my data.npz")
    page = script("next_commands").commands_of(Path("audit/audit.html").read_text(encoding="utf-8"))
    assert [command for command in after.values()] == page[: len(after)]
    assert page[0] == "noiseproof fit 'my data.npz' --out model"
    assert "--decisions decisions.csv" in page[-1]
    printed = "fine\nnext, for a model: noiseproof fit a.npz\nnext: noiseproof advise a.npz --noise model\nnext time\n"
    assert script("next_commands").commands_of(printed) == ["noiseproof fit a.npz", "noiseproof advise a.npz --noise model"]


def test_every_command_is_followed_once_and_a_model_is_scored_where_it_is_predicted_with(script, tmp_path, monkeypatch):
    module = script("next_commands")
    said = {
        "noiseproof advise data.npz": "next: noiseproof fit data.npz --out model",
        "noiseproof audit data.npz": "next: noiseproof fit data.npz --out model\nnext: noiseproof audit --decisions d",
        "noiseproof fit data.npz --out model": "next: noiseproof predict model --data NEW --out predictions.csv",
    }
    ran = []

    def printed(command, place):
        ran.append(command)
        if command.startswith("noiseproof predict"):
            (place / "predictions.csv").write_text("index,predicted\n0,1\n1,1\n")
        return said.get(command, "")

    monkeypatch.setattr(module, "output_of", printed)
    data = module.Data(np.zeros((2, 1)), np.array([0, 1]), np.zeros((2, 1)), np.array([1, 0]))
    (model,) = module.followed(data, tmp_path)
    assert (model.accuracy, model.balanced_accuracy) == (0.5, 0.5)
    assert model.commands == ("noiseproof advise data.npz", "noiseproof fit data.npz --out model")
    assert ran.count("noiseproof fit data.npz --out model") == 1
    assert "noiseproof predict model --data new.npz --out predictions.csv" in ran


def test_the_table_has_the_worst_and_the_best_of_all_models(script, monkeypatch):
    record = script("next_record")
    models = [{"commands": ["advise", "fit"], "accuracy": 0.9}, {"commands": ["audit", "train", "x"], "accuracy": 0.78}]
    facts = {"machine": "a machine", "torch": "2", "commit": "c", "date": "2026-01-02"}
    soft = {"commands": ["noiseproof train ce --data data.npz --labels audit/posterior.npz"], "accuracy": 0.85}
    one = {
        "also": [soft],
        "set": "wine",
        "kind": "small",
        "noise": "none",
        "rows": 9,
        "counts": [4, 5],
        "early": {"accuracy": 0.8},
    }
    other = [{**one, "accuracy": one["accuracy"] + gain} for one, gain in zip(models, (0.02, 0.04), strict=True)]
    lines = [{**one, "models": found, "environment": facts} for found in (models, other)]
    monkeypatch.setattr(record, "read_lines", lambda name: lines)
    text = record.next_table()
    assert "| wine | small | none | 9 rows, 2 classes | 2 | 80.0 | +11.0 | +0.0 | +11.0 | +5.0 |" in text
    assert "On 1 of 1 data sets no printed command leads to a model more than 1 point below" in text
    assert "the worst mean is +0.0 points. The worst of 4 models gains -2.0 points, and the mean gain is +5.5 points" in text
