"""Out of memory ends with what to do."""

import pytest
import torch

from noiseproof.train import OutOfMemoryError, Record, RunOptions, override, train

MODELS = """
import torch
from torch import nn


class Hungry(nn.Sequential):
    # Fails as a GPU does above so many examples in a training step.

    def __init__(self, classes, fits):
        super().__init__(nn.Linear(64, classes))
        self.fits = fits

    def forward(self, x):
        if self.training and len(x) > self.fits:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.\\nMore advice.")
        return super().forward(x)


class Huge(nn.Sequential):
    # Really asks the CPU's allocator for more than any machine has.

    def __init__(self, classes):
        super().__init__(nn.Linear(64, classes))

    def forward(self, x):
        if self.training:
            torch.empty(max(0, len(x) - 8) * 2**44, dtype=torch.uint8)
        return super().forward(x)


class Broken(nn.Sequential):
    def __init__(self, classes):
        super().__init__(nn.Linear(64, classes))

    def forward(self, x):
        raise RuntimeError("something else")
"""


@pytest.fixture
def hungry(digits, tmp_path, monkeypatch):
    (tmp_path / "my_hungry.py").write_text(MODELS, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    return override(digits, {"model": "my_hungry:Hungry", "optimiser": "sgd", "lr": 0.1, "batch": 128})


def test_it_says_to_set_a_smaller_batch_and_what_torch_said(hungry):
    says = r"on cpu with batch 128: set a smaller batch and, with it, a smaller lr, .* Tried to allocate 20\.00 GiB\.\)$"
    with pytest.raises(OutOfMemoryError, match=says):
        train(override(hungry, {"model.fits": 100}))


def test_of_concurrent_runs_fewer_are_to_be_trained_at_once(hungry):
    with pytest.raises(OutOfMemoryError, match="batch 128 in 5 concurrent runs: train fewer at once, or set a smaller batch"):
        train(override(hungry, {"model.fits": 64}), options=RunOptions(at_once=5))


def test_what_the_cpus_allocator_says_is_understood(hungry):
    with pytest.raises(OutOfMemoryError, match="set a smaller batch"):
        train(override(hungry, {"model": "my_hungry:Huge"}))


def test_other_errors_are_left_alone(hungry):
    with pytest.raises(RuntimeError, match="something else") as caught:
        train(override(hungry, {"model": "my_hungry:Broken"}))
    assert not isinstance(caught.value, OutOfMemoryError)


def test_what_was_written_before_stays(hungry, tmp_path, monkeypatch, files):
    """The memory may run out late: a smaller batch is another run, but the checkpoint is still this one's."""
    fine = override(hungry, {"model.fits": 128})
    train(fine, folder=tmp_path / "whole")
    import my_hungry

    def forward(self, x):
        if self.training and torch.is_grad_enabled() and Record.read(tmp_path / "run") is not None:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return super(my_hungry.Hungry, self).forward(x)

    with monkeypatch.context() as patch:
        patch.setattr(my_hungry.Hungry, "forward", forward)
        with pytest.raises(OutOfMemoryError):
            train(fine, folder=tmp_path / "run", checkpoint_seconds=0)
    assert len(Record.read(tmp_path / "run").epochs) == 1
    train(fine, folder=tmp_path / "run")
    assert files(tmp_path / "run") == files(tmp_path / "whole")
