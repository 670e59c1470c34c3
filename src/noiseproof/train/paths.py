"""Which way a run is computed: plainly, or on the fast path where that can be taken."""

from __future__ import annotations

import importlib.util

from noiseproof.data import ImageFiles, Split
from noiseproof.train.recipe import Recipe
from noiseproof.train.run import Run, RunOptions
from noiseproof.train.task import Task

__all__ = ["fast_path_suits", "start_run"]


DRAWING = ("nl", "jnpl")
"""Losses that draw classes at random at every step: their draws are the plain path's, set anew for each epoch."""


def start_run(recipe: Recipe, task: Task, options: RunOptions) -> Run:
    """A run ready for its first epoch."""
    if fast_path_suits(recipe, task.train, options):
        from noiseproof.train.fast.graph import GraphRun  # needs Triton, which comes with CUDA builds of torch only

        return GraphRun(recipe, task, options)
    return Run(recipe, task, options)


def fast_path_suits(recipe: Recipe, train: Split | ImageFiles, options: RunOptions) -> bool:
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
        and isinstance(train, Split)
        and len(train) >= recipe.batch
        and importlib.util.find_spec("triton") is not None
    )
