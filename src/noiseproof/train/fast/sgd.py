"""The optimiser's step as three Triton kernels: all gradients where they lie, all weights in one vector.

Gathering the gradients into one vector first would move more bytes than the step itself (ResNet-34 on an H200: 284 us of
430). Here a table says for each block of the weights where its gradient is; in a CUDA graph these addresses stay.

For each weight w with gradient g, as :class:`noiseproof.train.engine.Optimiser` has it::

    g1 = g + l1 sign(w)             s = min(1, clip / (|g1| + 1e-6))
    g2 = s g1 + l2 w                v = momentum v + g2
    w  = w - lr (v, or g2 + momentum v)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from noiseproof.train.recipe import Recipe

BLOCK = 2048
NO_WEIGHTS, FLOAT32, BFLOAT16 = 0, 1, 2  # what is at a block's address


@triton.jit
def _gradient(table, block, index, inside, blocks):
    """A block of the gradient, in float32; zeros where there is none."""
    address = tl.load(table + block)
    kind = tl.load(table + 2 * blocks + block)
    g = tl.zeros_like(index).to(tl.float32)
    if kind == 1:
        g = tl.load(address.to(tl.pointer_type(tl.float32)) + index, mask=inside, other=0.0)
    elif kind == 2:
        g = tl.load(address.to(tl.pointer_type(tl.bfloat16)) + index, mask=inside, other=0.0).to(tl.float32)
    return g


@triton.jit
def _square_sums(table, weights, copy, sums, l1, blocks, copied, SIZE: tl.constexpr):
    block = tl.program_id(0)
    start, length = tl.load(table + blocks + block), tl.load(table + 3 * blocks + block)
    index = tl.arange(0, SIZE)
    inside = index < length
    g = _gradient(table, block, index, inside, blocks)
    if start < copied:  # half the bytes, and the sign is the same
        w = tl.load(copy + start + index, mask=inside, other=0.0).to(tl.float32)
    else:
        w = tl.load(weights + start + index, mask=inside, other=0.0)
    g += l1 * ((w > 0).to(tl.float32) - (w < 0).to(tl.float32))
    tl.store(sums + block, tl.sum(g * g))


@triton.jit
def _scale(sums, scale, clip, blocks, SIZE: tl.constexpr):
    total = tl.zeros([SIZE], tl.float32)
    for start in range(0, blocks, SIZE):
        index = start + tl.arange(0, SIZE)
        total += tl.load(sums + index, mask=index < blocks, other=0.0)
    norm = tl.sqrt(tl.sum(total))
    tl.store(scale, tl.minimum(1.0, clip / (norm + 1e-6)))


@triton.jit
def _step(
    table, weights, velocity, copy, scale, lr, l1, l2, momentum, blocks, copied, NESTEROV: tl.constexpr, SIZE: tl.constexpr
):
    block = tl.program_id(0)
    start, length = tl.load(table + blocks + block), tl.load(table + 3 * blocks + block)
    index = tl.arange(0, SIZE)
    inside = index < length
    w = tl.load(weights + start + index, mask=inside, other=0.0)
    v = tl.load(velocity + start + index, mask=inside, other=0.0)
    g = _gradient(table, block, index, inside, blocks)
    g += l1 * ((w > 0).to(tl.float32) - (w < 0).to(tl.float32))
    g = tl.load(scale) * g + l2 * w
    v = momentum * v + g
    w -= tl.load(lr) * (g + momentum * v if NESTEROV else v)
    tl.store(weights + start + index, w, mask=inside)
    tl.store(velocity + start + index, v, mask=inside)
    if start < copied:
        tl.store(copy + start + index, w.to(tl.bfloat16), mask=inside)


class FusedSgd:
    """SGD on the vector ``weights`` with momentum in ``velocity``; the first ``len(copy)`` weights are also kept in bfloat16.

    ``places`` are the start and length of each parameter in the vector. The learning rate is a tensor, :attr:`lr`.
    """

    def __init__(
        self, recipe: Recipe, weights: Tensor, velocity: Tensor, copy: Tensor, places: Sequence[tuple[int, int]]
    ) -> None:
        self.recipe, self.weights, self.velocity, self.copy, self.places = recipe, weights, velocity, copy, places
        starts = ((k, offset, length) for k, (_, length) in enumerate(places) for offset in range(0, length, BLOCK))
        self.blocks = [(k, offset, min(BLOCK, length - offset)) for k, offset, length in starts]
        self.sums = torch.empty(len(self.blocks), device=weights.device)
        self.scale = torch.ones(1, device=weights.device)
        self.lr = torch.zeros(1, device=weights.device)

    def table(self, gradients: Sequence[Tensor | None]) -> Tensor:
        """Where the gradients are, in the order of the places; None is zero. Their layout in memory must be the weights'."""
        blocks = []
        for k, offset, length in self.blocks:
            gradient = gradients[k]
            address, kind = 0, NO_WEIGHTS
            if gradient is not None:
                kind = BFLOAT16 if gradient.dtype == torch.bfloat16 else FLOAT32
                address = gradient.data_ptr() + offset * gradient.element_size()
            blocks.append((address, self.places[k][0] + offset, kind, length))
        return torch.tensor(blocks).T.contiguous().to(self.weights.device)

    def step(self, table: Tensor) -> None:
        """One step, for the gradients of the table."""
        recipe, blocks = self.recipe, len(self.blocks)
        grid: Any = (blocks,)
        if recipe.clip is not None:
            _square_sums[grid](table, self.weights, self.copy, self.sums, recipe.l1, blocks, len(self.copy), SIZE=BLOCK)
            _scale[(1,)](self.sums, self.scale, recipe.clip, blocks, SIZE=1024)
        state = (self.weights, self.velocity, self.copy, self.scale, self.lr)
        rule = (recipe.l1, recipe.l2, recipe.momentum, blocks, len(self.copy))
        _step[grid](table, *state, *rule, NESTEROV=recipe.nesterov, SIZE=BLOCK)
