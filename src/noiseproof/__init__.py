"""noiseproof: train classifiers on labels that are partly wrong.

>>> import noiseproof, torch
>>> model = torch.nn.Linear(20, 10)
>>> criterion = noiseproof.JALCE(alpha=1.0, beta=1.0, a=30.0)  # a drop-in for torch.nn.CrossEntropyLoss
>>> decay = noiseproof.L1(model, 5e-5)  # which the paper trains it with
>>> (criterion(model(torch.zeros(8, 20)), torch.arange(8)) + decay()).backward()
"""

import importlib
from typing import TYPE_CHECKING

from noiseproof.starting import ctrl_c_ends_a_command as _ctrl_c_ends_a_command
from noiseproof.version import __version__

with _ctrl_c_ends_a_command():  # torch, which takes a second
    from noiseproof import functional, losses, noise, statistics
    from noiseproof.decay import L1
    from noiseproof.losses import *  # noqa: F403 - the losses are the package's face, and losses.__all__ lists them

__all__ = ["L1", "__version__", "functional", "losses", "noise", "statistics"]

if TYPE_CHECKING:  # type checkers follow the star import, and report a name that is not there
    from noiseproof import advice, audit, data, models, paper, sklearn, theory, train
    from noiseproof.advice import advise
    from noiseproof.audit import audit_labels, audit_probabilities
    from noiseproof.theory import loss_for
    from noiseproof.train import load

    __all__ += [
        "advice",
        "advise",
        "audit",
        "audit_labels",
        "audit_probabilities",
        "data",
        "load",
        "loss_for",
        "models",
        "paper",
        "sklearn",
    ]
    __all__ += ["theory", "train"]
else:
    __all__ += losses.__all__
    ELSEWHERE = {
        "advise": "advice",
        "audit_labels": "audit",
        "audit_probabilities": "audit",
        "load": "train",
        "loss_for": "theory",
    }

    def __getattr__(name):
        """A part that is imported when it is first used, or a loss that was added to the catalogue."""
        if name in {"advice", "audit", "data", "models", "paper", "sklearn", "theory", "train"}:
            return importlib.import_module(f"noiseproof.{name}")
        if name in ELSEWHERE:
            return getattr(importlib.import_module(f"noiseproof.{ELSEWHERE[name]}"), name)
        for entry in losses.list_losses():
            if entry.cls.__name__ == name:
                return entry.cls
        raise AttributeError(f"module 'noiseproof' has no attribute {name!r}")
