"""Lightning with our losses, and the callback that writes predictions for the audit."""

import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

import noiseproof

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # Lightning has advice on workers and loggers
QUIET = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}


@pytest.fixture(scope="module")
def lightning():
    """The package and our module."""
    package = pytest.importorskip("lightning.pytorch")
    from noiseproof.integrations import lightning as module

    return package, module


def data(count=61):
    y = torch.arange(count) % 3
    return TensorDataset(5 * nn.functional.one_hot(y, 4) + torch.randn(count, 4, generator=torch.Generator().manual_seed(0)), y)


def module_of(package, returned=lambda logits: logits):
    class Classifier(package.LightningModule):
        def __init__(self):
            super().__init__()
            self.network = nn.Linear(4, 3)
            self.criterion = noiseproof.JALCE(a=30.0)
            self.decay = noiseproof.L1(self.network, 5e-5)

        def training_step(self, batch, index):
            return self.criterion(self.network(batch[0]), batch[1]) + self.decay()

        def predict_step(self, batch, index):
            return returned(self.network(batch[0]))

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), 0.1)

    torch.manual_seed(0)
    return Classifier()


@pytest.mark.parametrize("shuffled", [False, True])
def test_it_writes_the_probabilities_of_each_example_whatever_the_order(lightning, shuffled, tmp_path):
    package, integration = lightning
    model, rows = module_of(package), np.arange(0, 122, 2)
    writer = integration.HeldOutProbabilities(tmp_path / "fold.npz", rows)
    trainer = package.Trainer(max_epochs=1, callbacks=[writer], accelerator="cpu", **QUIET)
    trainer.fit(model, DataLoader(data(), 16, shuffle=True))
    trainer.predict(model, DataLoader(data(), 16, sampler=torch.randperm(61).tolist() if shuffled else None))
    written = np.load(tmp_path / "fold.npz", allow_pickle=False)
    with torch.no_grad():
        expected = torch.softmax(model.network(data().tensors[0]), 1).numpy()
    np.testing.assert_array_equal(written["rows"], rows)
    np.testing.assert_allclose(written["probabilities"], expected, rtol=1e-5)


def test_folds_are_joined_to_what_the_audit_finds_wrong_labels_with(lightning, tmp_path):
    package, integration = lightning
    examples = data(150)
    y = examples.tensors[1]
    y[::10] = (y[::10] + 1) % 3
    files = []
    for fold in range(3):
        held_out = np.arange(150)[np.arange(150) // 3 % 3 == fold]  # of all classes
        rest = np.setdiff1d(np.arange(150), held_out)
        files.append(tmp_path / f"{fold}.npz")
        model = module_of(package)
        writer = integration.HeldOutProbabilities(files[-1], held_out)
        trainer = package.Trainer(max_epochs=20, callbacks=[writer], accelerator="cpu", **QUIET)
        trainer.fit(model, DataLoader(Subset(examples, rest.tolist()), 16, shuffle=True))
        trainer.predict(model, DataLoader(Subset(examples, held_out.tolist()), 16))
    p = integration.join_folds(files, tmp_path / "all.npz")
    found = noiseproof.audit_probabilities(p, y.numpy())
    wrong = np.arange(150) % 10 == 0
    assert found.flagged[wrong].sum() >= 12  # of 15; the classes are 7 standard deviations apart
    assert found.flagged[~wrong].sum() <= 3


def test_the_decay_counts_once_a_step_however_many_batches_that_has(lightning):
    package, _ = lightning
    trained = []
    for batch, parts in ((16, 1), (4, 4)):
        model = module_of(package)
        model.decay = noiseproof.L1(model.network, 0.1)
        model.configure_optimizers = lambda model=model: torch.optim.SGD(model.parameters(), 0.1)
        options = {"max_steps": 1, "accumulate_grad_batches": parts, "accelerator": "cpu", **QUIET}
        package.Trainer(**options).fit(model, DataLoader(data(16), batch))
        trained.append(model.network.weight.detach())
    torch.testing.assert_close(*trained)


@pytest.mark.parametrize(
    ("returned", "options", "said"),
    [
        (lambda z: torch.softmax(z, 1), {}, "look like probabilities: pass logits=False"),
        (lambda z: z, {"logits": False}, "are no probabilities"),
        (lambda z: z.argmax(1), {}, r"must return a tensor \[16, K\] for a batch of 16 examples, got \[16\]"),
        (lambda z: {"logits": z}, {}, "got dict"),
        (lambda z: z, {"rows": np.arange(60)}, "61 predictions for 60 examples"),
    ],
)
def test_predictions_that_are_something_else_are_refused(lightning, returned, options, said, tmp_path):
    package, integration = lightning
    writer = integration.HeldOutProbabilities(tmp_path / "fold.npz", **options)
    trainer = package.Trainer(callbacks=[writer], accelerator="cpu", **QUIET)
    with pytest.raises(ValueError, match=said):
        trainer.predict(module_of(package, returned), DataLoader(data(), 16))
    assert not list(tmp_path.iterdir())


def test_probabilities_are_written_as_they_are(lightning, tmp_path):
    package, integration = lightning
    model = module_of(package, lambda z: torch.softmax(z, 1))
    trainer = package.Trainer(
        callbacks=[integration.HeldOutProbabilities(tmp_path / "all.npz", logits=False)], accelerator="cpu", **QUIET
    )
    (first, *_) = trainer.predict(model, DataLoader(data(), 16))
    np.testing.assert_array_equal(np.load(tmp_path / "all.npz")["probabilities"][:16], first.numpy())


@pytest.mark.parametrize("name", ["lightning.pytorch", "pytorch_lightning"])
def test_two_processes_write_one_file_under_either_name_of_the_package(name, tmp_path):
    pytest.importorskip(name.split(".")[0])
    package = importlib.import_module("lightning.pytorch")
    script = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import {name} as package
from torch.utils.data import DataLoader
from noiseproof.integrations.lightning import HeldOutProbabilities
from test_lightning import QUIET, data, module_of
writer = HeldOutProbabilities({str(tmp_path / "two.npz")!r})
trainer = package.Trainer(callbacks=[writer], accelerator="cpu", devices=2, strategy="ddp", **QUIET)
trainer.predict(module_of(package), DataLoader(data(), 16), return_predictions=False)
"""
    (tmp_path / "two.py").write_text(script, encoding="utf-8")
    done = subprocess.run([sys.executable, str(tmp_path / "two.py")], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    written = np.load(tmp_path / "two.npz", allow_pickle=False)
    with torch.no_grad():
        expected = torch.softmax(module_of(package).network(data().tensors[0]), 1).numpy()
    np.testing.assert_allclose(written["probabilities"], expected, rtol=1e-5)
