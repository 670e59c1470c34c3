"""Rows in chunks, and the memory that a chunk is worked on in."""

import threading
from typing import NamedTuple

import torch
from torch import Tensor

from noiseproof.core.dispatch_state import on_cpu

# Logits in a chunk. On the CPU all passes over it stay in the cache, and temporaries are of its size; elsewhere it is so large
# that the number of launches does not count.
CPU_CHUNK = 2**18
DEVICE_CHUNK = 2**27


class Space(NamedTuple):
    """Where the temporaries of a chunk ``[rows, K]`` go; None: into new memory."""

    shifted: Tensor | None = None
    e: Tensor | None = None
    e_less_1: Tensor | None = None
    first: Tensor | None = None
    """The first term of a gradient, to which the others are added"""
    term: Tensor | None = None
    spare: Tensor | None = None


class _Kept(threading.local):
    """What each thread keeps to work in."""

    def __init__(self) -> None:
        self.buffers: dict[torch.dtype, Tensor] = {}
        self.spaces: dict[tuple[torch.dtype, int, int], Space] = {}
        """The latest views of the buffers"""


_kept = _Kept()


def in_chunks(dtype: torch.dtype, *tensors: Tensor) -> list[tuple[Space, tuple[Tensor, ...]]]:
    """As :func:`split_rows`, each chunk with space for what is computed of it in ``dtype``."""
    chunks = split_rows(*tensors)
    space = _scratch(chunks[0][0], dtype)
    return [(_part_of(space, chunk[0].shape[0]), chunk) for chunk in chunks]


def split_rows(*tensors: Tensor) -> list[tuple[Tensor, ...]]:
    """The rows of all tensors, a chunk at a time; the first is ``[N, K]``."""
    rows, classes = tensors[0].shape
    chunk = CPU_CHUNK if on_cpu(tensors[0]) else DEVICE_CHUNK
    step = max(1, chunk // max(1, classes))
    return [tensors] if rows <= step else list(zip(*(t.split(step) for t in tensors), strict=True))


def _scratch(chunk: Tensor, dtype: torch.dtype) -> Space:
    """Space to work in for chunks like this one. On the CPU it is kept for the next call, up to 6 MiB for each thread in
    float32: memory fresh from the system costs more at its first touch (0.2 ms a megabyte) than all the arithmetic."""
    rows, classes = chunk.shape
    if not on_cpu(chunk) or not 2**12 < rows * classes <= CPU_CHUNK:
        return Space()
    space = _kept.spaces.get((dtype, rows, classes))
    if space is None:
        with torch.inference_mode(False):  # or it could not be written to outside of inference mode
            buffer = _kept.buffers.get(dtype)
            if buffer is None or buffer.shape[1] < rows * classes:
                buffer = _kept.buffers[dtype] = torch.empty((len(Space._fields), CPU_CHUNK), dtype=dtype)
            space = Space(*buffer[:, : rows * classes].view(-1, rows, classes).unbind())
        _kept.spaces = {(dtype, rows, classes): space}
    return space


def _part_of(space: Space, rows: int) -> Space:
    """The space for a last chunk, which may have fewer rows."""
    if space.first is None or len(space.first) == rows:
        return space
    return Space(*[None if place is None else place[:rows] for place in space])
