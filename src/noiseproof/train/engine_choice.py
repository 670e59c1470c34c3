"""Which engine computes a run."""

from __future__ import annotations

import importlib.util

from noiseproof.data import Examples, Split
from noiseproof.models import find_model
from noiseproof.train.options import RunOptions
from noiseproof.train.recipe import Recipe
from noiseproof.train.run import Run
from noiseproof.train.training_data import TrainingData

__all__ = ["fast_path_suits", "pools_evenly", "start_run"]

DRAWING = ("nl", "jnpl")
"""Losses that draw classes at random in every step: only the plain engine seeds their draws for each epoch."""


def start_run(recipe: Recipe, task: TrainingData, options: RunOptions) -> Run:
    """A run ready for its first epoch, on the fast engine where that can be used."""
    if fast_path_suits(recipe, task.train, options):
        from noiseproof.train.fast.graph import GraphEngine  # needs Triton, which only CUDA builds of torch bring

        return Run(recipe, task, options, GraphEngine)
    return Run(recipe, task, options)


def fast_path_suits(recipe: Recipe, train: Examples, options: RunOptions) -> bool:
    """Whether it is SGD on images in memory with a network of the catalogue, in one process on CUDA, and wanted."""
    return (
        options.fast
        and options.device.type == "cuda"
        and options.process.world == 1
        and not options.deterministic
        and recipe.optimiser == "sgd"
        and recipe.loss not in DRAWING
        and ":" not in recipe.model
        and recipe.model != "mlp"
        and train.in_memory
        and pools_evenly(recipe.model, train)
        and len(train) >= recipe.batch
        and importlib.util.find_spec("triton") is not None
    )


def pools_evenly(model: str, train: Split) -> bool:
    """Whether cnn8's three poolings halve every side, as the kernels need: 32, 40, ... 64 pixels, but not 28."""
    sides = train.sides
    return find_model(model) != "cnn8" or sides is None or not any(side % 8 for side in sides)
