"""A CPU on which bf16 fails is found out before training, whichever way it fails."""

import pytest

from noiseproof.train import engine


@pytest.fixture(autouse=True)
def _anew():
    engine.check_bf16.cache_clear()
    yield
    engine.check_bf16.cache_clear()


def test_where_bf16_works_nothing_is_said(monkeypatch, tmp_path):
    """Nor where the trial cannot be made, or fails for a reason of its own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "queue.py").write_text("raise ImportError")
    engine.check_bf16()
    engine.check_bf16.cache_clear()
    monkeypatch.setattr(engine, "BF16_TRIAL", "import no_such_module")
    engine.check_bf16()
    engine.check_bf16.cache_clear()
    monkeypatch.setattr("sys.executable", None)
    engine.check_bf16()


@pytest.mark.parametrize(
    ("trial", "reason"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "signal 4"),
        ("raise RuntimeError('no primitive')", "RuntimeError: no primitive"),
    ],
)
def test_where_it_does_not_the_way_out_is_said(trial, reason, monkeypatch):
    monkeypatch.setattr(engine, "BF16_TRIAL", trial)
    with pytest.raises(ValueError, match=rf"bf16 does not work with torch on this CPU \({reason}\); set precision=float32"):
        engine.check_bf16()
