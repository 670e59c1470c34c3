"""Out of memory: an error that says which batch would have fitted, found by trying, or that fewer runs at once would."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import torch

from noiseproof.train.batch_loader import Batch
from noiseproof.train.engine import PlainEngine
from noiseproof.train.options import RunOptions
from noiseproof.train.recipe import Recipe
from noiseproof.train.run import Run
from noiseproof.train.training_data import TrainingData

__all__ = ["OutOfMemoryError", "advice_on_memory"]


class OutOfMemoryError(RuntimeError):
    """A step did not fit into the memory; the message says which batch would."""


@contextmanager
def advice_on_memory(recipe: Recipe, task: TrainingData, options: RunOptions, run: Run | None = None) -> Iterator[None]:
    """Turn torch's error into one that says what to do. The ``run`` is over then: its memory on the device is released."""
    try:
        yield
    except RuntimeError as error:  # torch.OutOfMemoryError is one too
        if not _is_out_of_memory(error):
            raise
        # The frames of the failed step hold its activations, which are most of the memory.
        traceback.clear_frames(error.__traceback__)
        reason = str(error).splitlines()[0]
    else:
        return
    if run is not None:
        run.release()
    raise OutOfMemoryError(f"{_advice(recipe, task, options)} ({reason})")


def _is_out_of_memory(error: RuntimeError) -> bool:
    # The CPU's allocator raises a plain RuntimeError.
    return isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)


def _advice(recipe: Recipe, task: TrainingData, options: RunOptions) -> str:
    where = f"out of memory on {options.device} with batch {recipe.batch}"
    if options.process.world > 1:
        return f"{where} divided among {options.process.world} processes: set a smaller one"
    if options.at_once > 1:  # the others take and give back memory meanwhile: nothing is tried, and the run stays what it is
        fewer = options.at_once // 2
        way = f"at_once={fewer}, in a terminal --at-once {fewer} of reproduce, --jobs {fewer} of compare"
        return f"{where} in {options.at_once} runs side by side: train {fewer} at once ({way}), or set a smaller batch"
    fits = largest_batch(recipe, task, options)
    if fits is None:
        return f"{where}, and no smaller one fits: take a smaller model or smaller inputs, or another device"
    lr = f", and lr={recipe.lr * fits / recipe.batch:.3g} with it" if recipe.optimiser == "sgd" else ""
    return f"{where}; a plain step with batch {fits} was tried and fits: set batch={fits}{lr}"


def largest_batch(recipe: Recipe, task: TrainingData, options: RunOptions) -> int | None:
    """The largest half, quarter, eighth, ... of the recipe's batch with which a step fits; None if two examples do not."""
    size = recipe.batch // 2
    while size > 1:  # BatchNorm cannot train on one example
        try:
            _step(Run(recipe, task, options), size)
            return size
        except RuntimeError as error:
            if not _is_out_of_memory(error):
                raise
            traceback.clear_frames(error.__traceback__)
        size //= 2
    return None


def _step(run: Run, size: int) -> None:
    """One whole step on ``size`` examples, at learning rate 0."""
    gc.collect()
    if run.options.device.type == "cuda":
        torch.cuda.empty_cache()
    run.network.train()
    # Examples as in evaluation: they have the same shape, and come a few at a time.
    some = next(iter(run.loader.eval_batches()))
    again = torch.arange(size, device=some.labels.device) % len(some.labels)
    cast(PlainEngine, run.engine).step(Batch(*(tensor[again] for tensor in some)), 0.0)
