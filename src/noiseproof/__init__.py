"""noiseproof: train classifiers on labels that are partly wrong.

>>> import noiseproof, torch
>>> criterion = noiseproof.JALCE(alpha=1.0, beta=1.0, a=30.0)  # a drop-in for torch.nn.CrossEntropyLoss
>>> logits = torch.zeros(8, 10, requires_grad=True)
>>> criterion(logits, torch.arange(8)).backward()
"""

import importlib
from typing import TYPE_CHECKING, Any

from noiseproof import functional, losses, noise, statistics
from noiseproof.losses import *  # noqa: F403 - the losses are the package's face, and losses.__all__ lists them
from noiseproof.version import __version__

__all__ = ["__version__", "functional", "losses", "noise", "statistics"]
if not TYPE_CHECKING:  # type checkers follow the star import
    __all__ += losses.__all__


def __getattr__(name: str) -> Any:
    """A part that is imported when it is first used, or a loss that was added to the catalogue."""
    if name in {"audit", "data", "models", "paper", "theory", "train"}:
        return importlib.import_module(f"noiseproof.{name}")
    for entry in losses.list_losses():
        if entry.cls.__name__ == name:
            return entry.cls
    raise AttributeError(f"module 'noiseproof' has no attribute {name!r}")
