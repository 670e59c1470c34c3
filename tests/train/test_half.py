"""A CPU on which bf16 fails is found out before training, whichever way it fails."""

import pytest

from noiseproof.train import half


@pytest.fixture(autouse=True)
def _anew():
    half.check_half.cache_clear()
    yield
    half.check_half.cache_clear()


def test_where_bf16_works_nothing_is_said(monkeypatch, tmp_path):
    """Nor where the trial cannot be made, or fails for a reason of its own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "queue.py").write_text("raise ImportError")
    half.check_half()
    half.check_half.cache_clear()
    monkeypatch.setattr(half, "TRIAL", "import no_such_module")
    half.check_half()
    half.check_half.cache_clear()
    monkeypatch.setattr("sys.executable", None)
    half.check_half()


@pytest.mark.parametrize(
    ("trial", "reason"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "signal 4"),
        ("raise RuntimeError('no primitive')", "RuntimeError: no primitive"),
    ],
)
def test_where_it_does_not_the_way_out_is_said(trial, reason, monkeypatch):
    monkeypatch.setattr(half, "TRIAL", trial)
    with pytest.raises(ValueError, match=rf"bf16 does not work with torch on this CPU \({reason}\); set precision=float32"):
        half.check_half()
