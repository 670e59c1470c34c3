"""Where and how a run is computed, which its result does not depend on, or only by rounding."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from noiseproof.train.batch_loader import SINGLE, Rank
from noiseproof.train.recipe import Recipe

__all__ = ["RunOptions", "precision_of"]


@dataclass(frozen=True)
class RunOptions:
    """The device, the workers, and how to compute."""

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    workers: int = 2
    skip_corrupt: bool = False
    deterministic: bool = False
    fast: bool = True
    """Whether to use the fast engine on CUDA where it can be used"""
    at_once: int = 1
    """Runs that use the device at the same time: with several, the fast engine keeps to one stream, not to slow the others"""
    process: Rank = SINGLE

    def __post_init__(self) -> None:
        if str(self.device) == "cuda" and torch.cuda.is_available():
            # Each thread has its own current device.
            object.__setattr__(self, "device", torch.device("cuda", torch.cuda.current_device()))


@contextlib.contextmanager
def precision_of(recipe: Recipe, deterministic: bool) -> Iterator[None]:
    """Set torch's switches for the recipe's precision, and restore them afterwards."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = (matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark, torch.are_deterministic_algorithms_enabled())
    matmul.allow_tf32 = cudnn.allow_tf32 = recipe.precision != "float32"
    cudnn.benchmark = False  # algorithms chosen by their time would round differently in every process
    if deterministic:  # without it torch refuses matrix products on CUDA; cuBLAS reads it once, so it is not restored
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(deterministic)
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark = before[:3]
        torch.use_deterministic_algorithms(before[3])
