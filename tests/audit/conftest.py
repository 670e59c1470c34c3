"""What tests of audits that train share."""

import pytest
import torch

from noiseproof.audit import folds


@pytest.fixture
def trained(monkeypatch):
    """How many networks are trained: a list with the examples of each."""
    found, start = [], folds.start_run
    monkeypatch.setattr(
        folds, "start_run", lambda recipe, task, options: found.append(task.train) or start(recipe, task, options)
    )
    return found


@pytest.fixture
def one_thread():
    """One thread, on which such small networks are faster."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
