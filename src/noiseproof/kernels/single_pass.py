"""A loss together with its gradient, of long rows that are read once: which are, and how they are held."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from noiseproof.core.row_sums import RowSum
from noiseproof.kernels.launch import IS_TESTED_TRITON, launch, power_of_two
from noiseproof.kernels.passes import ACROSS, slots_of
from noiseproof.kernels.program import grads_function, run_program
from noiseproof.kernels.reductions import weigh
from noiseproof.program import Formula, Reduction

if IS_TESTED_TRITON:
    from noiseproof.kernels.single_pass_kernel import single_pass_rows
else:  # whose Gluon may be another: it is no promise of Triton's either
    single_pass_rows = None

WARPS, DEPTH, LAG = 16, 2, 3
"""A block is ACROSS bytes for each thread, DEPTH times; the next row is added up LAG blocks after its copy begins."""
TAILS = (1, 2)  # blocks of a row that may be in registers
SCRATCH_BYTES = 2560  # bytes of shared memory for the exchange among warps
MIN_ROW_BYTES = 65536  # bytes of a row that is worth a whole multiprocessor
WEIGHT_BLOCK = 4096  # whose weights are added up at a time


@lru_cache(maxsize=64)
def _machine(device: int) -> tuple[int, int]:
    """Multiprocessors, and the bytes of shared memory that a program may have: none but on Hopper, where this is faster than
    two passes; on others that was not measured."""
    facts = torch.cuda.get_device_properties(device)
    hopper = torch.version.hip is None and (facts.major, facts.minor) == (9, 0)
    return facts.multi_processor_count, getattr(facts, "shared_memory_per_block_optin", 0) if hopper else 0


@lru_cache(maxsize=256)
def _sizes(classes: int, itemsize: int, shared: int) -> dict[str, int] | None:
    """How a row is held: so many blocks in shared memory, and the rest in registers; None if there is not enough of both."""
    across = ACROSS // itemsize
    block = WARPS * 32 * across * DEPTH
    for tail in TAILS:
        held = -(-classes // block) - tail
        if held >= LAG and held * block <= classes and held * block * itemsize + SCRATCH_BYTES <= shared:
            steps = power_of_two((held + tail) * DEPTH)
            sizes = {"WARPS": WARPS, "ACROSS": across, "DEPTH": DEPTH, "HELD": held, "TAIL": tail, "LAG": LAG, "STEPS": steps}
            return sizes | {"num_warps": WARPS}
    return None


def _cheap(row_sum: RowSum) -> bool:
    """Whether the terms of a class are: what a focal sum with another gamma than 0 takes is longer than a second reading."""
    return row_sum.kind in ("nll", "margin", "power") or row_sum.exponent == 0


def _placement(logits: Tensor, unit: int) -> tuple[int, dict[str, int]] | None:
    """In how many programs, and how, if these rows are held."""
    size = logits.element_size()
    if single_pass_rows is None or not logits.is_cuda or logits.shape[1] * size < MIN_ROW_BYTES:
        return None
    if unit * size < ACROSS or logits.data_ptr() % ACROSS:
        return None
    multiprocessors, shared = _machine(logits.get_device())
    sizes = _sizes(logits.shape[1], size, shared)
    return None if sizes is None else (min(multiprocessors, logits.shape[0]), sizes)


def run_single_pass(
    formula: Formula,
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    reduction: Reduction,
    dtype: torch.dtype,
    in_place: bool,
) -> tuple[Tensor, Tensor] | None:
    """A sum or mean, and its gradient, which may be written over the logits; None if rows like these are not held."""
    (rows, classes), slots = logits.shape, slots_of(formula.needs)
    unit = math.gcd(8, classes, logits.stride(0)) if logits.stride(1) == 1 else 1
    if slots is None or reduction == "none" or rows == 0 or not all(map(_cheap, formula.needs)):
        return None
    placement = _placement(logits, unit)
    if placement is None:
        return None
    programs, sizes = placement
    gradient = logits if in_place else torch.empty_like(logits, memory_format=torch.contiguous_format)
    statistics = logits.new_empty((2 + len(formula.needs), rows), dtype=formula.dtype)
    divisor = statistics.new_empty(1)
    weights = statistics if weight is None else weight
    if reduction == "mean":
        counts = (rows, classes, target.stride(0), ignore_index)
        launch(weigh, 1, (target, weights, divisor), counts, BLOCK=WEIGHT_BLOCK, WEIGHTED=weight is not None, num_warps=16)
    places = (0, 1, *[slots[name] for name in ("NLL", "MARGIN", "POWER_A", "POWER_B", "FOCAL_A", "FOCAL_B")])
    given = {"FORMULA": grads_function(formula, places), "WEIGHTED": weight is not None, "MEAN": reduction == "mean"}
    numbers = (rows, classes // unit, logits.stride(0) // unit, target.stride(0), gradient.stride(0) // unit, ignore_index)
    tensors = (logits, target, weights, statistics, gradient, divisor)
    launch(single_pass_rows, programs, tensors, numbers, UNIT=unit, **sizes, **given, **slots)
    loss, _, _ = run_program(formula, statistics, target, weight, ignore_index, reduction, dtype, False, classes)
    return loss, gradient
