"""noiseproof: train classifiers on labels that are partly wrong.

>>> import noiseproof, torch
>>> model = torch.nn.Linear(20, 10)
>>> criterion = noiseproof.JALCE(alpha=1.0, beta=1.0, a=30.0)  # a drop-in for torch.nn.CrossEntropyLoss
>>> decay = noiseproof.L1(model, 5e-5)  # which the paper trains it with
>>> (criterion(model(torch.zeros(8, 20)), torch.arange(8)) + decay()).backward()

Importing the package costs nothing: torch and every part is imported when a name of it is first used.
"""

import importlib.util
from typing import TYPE_CHECKING

from noiseproof.version import __version__

if TYPE_CHECKING:  # what type checkers and editors see
    from noiseproof import (
        advice,
        audit,
        data,
        fitting,
        functional,
        learners,
        losses,
        models,
        noise,
        paper,
        report,
        sklearn,
        statistics,
        theory,
        train,
    )
    from noiseproof.advice import advise
    from noiseproof.audit import audit_labels, audit_probabilities
    from noiseproof.comparison import compare
    from noiseproof.fitting import fit, load
    from noiseproof.losses import *  # noqa: F403 - the losses are the package's face, and losses.__all__ lists them
    from noiseproof.regularisation import ELR, L1
    from noiseproof.report import report_runs
    from noiseproof.theory import loss_for

    __all__ = ["__version__", "advice", "audit", "data", "fitting", "functional", "learners", "losses", "models", "noise"]
    __all__ += ["paper", "report", "sklearn", "statistics", "theory", "train"]
    __all__ += ["ELR", "L1", "advise", "audit_labels", "audit_probabilities", "compare", "fit", "load", "loss_for"]
    __all__ += ["report_runs"]
else:
    _MODULES = ["advice", "audit", "data", "fitting", "functional", "learners", "losses", "models", "noise", "paper", "report"]
    _MODULES += ["sklearn", "statistics", "theory", "train"]
    _NAMES = {
        "ELR": "regularisation",
        "L1": "regularisation",
        "advise": "advice",
        "audit_labels": "audit",
        "audit_probabilities": "audit",
        "compare": "comparison",
        "fit": "fitting",
        "load": "fitting",
        "loss_for": "theory",
        "report_runs": "report",
    }
    """Which module has a name of the package"""

    def __getattr__(name):
        """A module, or a name of one, which is then kept here; or a loss that was added to the catalogue."""
        if not name.startswith("_") and importlib.util.find_spec(f"noiseproof.{name}"):
            return importlib.import_module(f"noiseproof.{name}")
        if name in _NAMES:
            return globals().setdefault(name, getattr(importlib.import_module(f"noiseproof.{_NAMES[name]}"), name))
        if name.startswith("_") and name != "__all__":
            raise AttributeError(f"module 'noiseproof' has no attribute {name!r}")
        losses = importlib.import_module("noiseproof.losses")
        if name == "__all__":
            return ["__version__", "functional", "losses", "noise", "statistics", *_NAMES, *losses.__all__]
        if name in losses.__all__:
            return globals().setdefault(name, getattr(losses, name))
        for entry in losses.list_losses():
            if entry.cls.__name__ == name:
                return entry.cls
        raise AttributeError(f"module 'noiseproof' has no attribute {name!r}")

    def __dir__():
        return sorted({*globals(), *_MODULES, *__getattr__("__all__")})
