"""Whether a compiler looks on.

It does so in two ways: it reads our code line by line, and then checks at every call that nothing which it has read is
different; or it runs a function of ours on tensors without values and records what is done with them.
"""

import threading

import torch

__all__ = ["Recorded", "is_compiling"]


class _Here(threading.local):
    recorded = False


_here = _Here()


def is_compiling() -> bool:
    """In one way or the other."""
    return torch.compiler.is_compiling() or _here.recorded


class Recorded:
    """In this context operations are recorded, or not: what is to be decided by values is then not."""

    def __init__(self, recorded: bool = True) -> None:
        self.recorded = recorded

    def __enter__(self) -> None:
        self.before, _here.recorded = _here.recorded, self.recorded or _here.recorded

    def __exit__(self, *_: object) -> None:
        _here.recorded = self.before
