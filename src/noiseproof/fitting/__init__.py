"""``noiseproof.fit``: from data as people have them to a model, the labels to look at, and numbers to trust.

run          fit: folds, learners, noise model, model
model        FittedModel: predictions, audit, leaderboard, verdict; saved and loaded without objects
verdict      what was found, as numbers and as text
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

__all__ = ["FittedModel", "Leader", "Verdict", "fit", "is_model", "load"]

MODEL_FILE = "model.json"
if TYPE_CHECKING:
    from noiseproof.fitting.model import FittedModel
    from noiseproof.fitting.run import fit
    from noiseproof.fitting.verdict import Leader, Verdict
else:
    _MODULES = {"FittedModel": "model", "fit": "run", "Leader": "verdict", "Verdict": "verdict"}

    def __getattr__(name):
        """Modules are imported when a name of them is first used."""
        if name not in _MODULES:
            raise AttributeError(f"module 'noiseproof.fitting' has no attribute {name!r}")
        return getattr(importlib.import_module(f"noiseproof.fitting.{_MODULES[name]}"), name)


def is_model(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder contains a model that :func:`noiseproof.fit` made.

    Args:
        folder: The folder.

    Returns:
        True if it has the file that describes such a model.

    Example:
        >>> is_model("nowhere")
        False
    """
    return Path(folder).expanduser().joinpath(MODEL_FILE).is_file()


def load(folder: str | os.PathLike[str], device: Any = None, *, model: str | None = None) -> Any:
    """Load what was trained: a model of :func:`noiseproof.fit`, or the network of a finished run.

    Nothing that the folder contains is executed.

    Args:
        folder: The folder of a model or of a run, or the file of a run's weights.
        device: Where a network computes; by default on the CPU.
        model: The ``package.module:function`` of a run with a network of the user's own.

    Returns:
        A :class:`FittedModel` or a :class:`noiseproof.train.TrainedClassifier`; both have ``predict`` and ``predict_proba``.

    Raises:
        ValueError: It is damaged, or no model.
        FileNotFoundError: There is none.

    Example:
        >>> noiseproof.load("model").predict(new)  # doctest: +SKIP
    """
    if is_model(folder):
        from noiseproof.fitting.model import load_model

        return load_model(Path(folder).expanduser())
    from noiseproof.train import load as load_run

    return load_run(folder, device, model=model)
