"""What a GPU does otherwise than the interpreter."""

import numpy as np
import pytest
import torch


@pytest.fixture
def maximum_of_a_gpu(monkeypatch):
    """Of a number and a NaN it is the number; the interpreter's, which is NumPy's, is the NaN."""
    if not torch.cuda.is_available():
        builder = pytest.importorskip("triton.runtime.interpreter").InterpreterBuilder
        monkeypatch.setattr(builder, "create_maxnumf", lambda self, a, b: self.binary_op(a, b, np.fmax))
