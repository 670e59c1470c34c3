"""The blocks of a held row: in shared memory, or in registers, and as floats.

Two bfloat16 are moved as a word. Of such a pair the second is a float as soon as the first is masked, which the compiler does
not see; and it would have a register for each of the two.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy

__all__ = ["ends_of", "fetch", "floats", "halved", "places", "take"]

NO_PAIR = gl.constexpr(-8323200)  # two -inf in bfloat16


@gluon.jit
def fetch(kept, i, base, place, there, BLOCK: gl.constexpr):
    """Start to copy a block, if there is a row."""
    async_copy.async_copy_global_to_shared(kept.index(i), base + (i * BLOCK + place), there, eviction_policy="evict_first")
    async_copy.commit_group()


@gluon.constexpr_function
def halved(layout):
    """The layout of pairs of what has this one."""
    each = list(layout.size_per_thread)
    return gl.BlockedLayout([*each[:2], each[2] // 2], layout.threads_per_warp, layout.warps_per_cta, layout.order)


@gluon.jit
def floats(block, LAYOUT: gl.constexpr):
    """A block, perhaps of words, as floats."""
    if block.dtype == gl.int32:
        both = gl.join((block << 16).to(gl.float32, bitcast=True), (block & -65536).to(gl.float32, bitcast=True))
        z = gl.convert_layout(both.reshape((block.shape[0], block.shape[1], 2 * block.shape[2])), LAYOUT)
    else:
        z = block.to(gl.float32)
    return z


@gluon.jit
def take(kept, i, LAYOUT: gl.constexpr):
    """A block of what is kept, as floats."""
    block = kept.index(i)
    if block.dtype == gl.bfloat16:
        SHAPE: gl.constexpr = (block.shape[0], block.shape[1], block.shape[2] // 2)
        words = block._reinterpret(gl.int32, SHAPE, gl.SwizzledSharedLayout(SHAPE[2], 1, 1, [2, 0, 1]))
        z = floats(words.load(halved(LAYOUT)), LAYOUT)
    else:
        z = floats(block.load(LAYOUT), LAYOUT)
    return z


@gluon.jit
def places(LANES: gl.constexpr, DEPTH: gl.constexpr, ACROSS: gl.constexpr, LAYOUT: gl.constexpr):
    """Where the elements of a block are in it."""
    lanes = gl.arange(0, LANES, gl.SliceLayout(1, gl.SliceLayout(2, LAYOUT)))
    depth = gl.arange(0, DEPTH, gl.SliceLayout(0, gl.SliceLayout(2, LAYOUT)))
    across = gl.arange(0, ACROSS, gl.SliceLayout(0, gl.SliceLayout(1, LAYOUT)))
    return lanes[:, None, None] * ACROSS + depth[None, :, None] * (LANES * ACROSS) + across[None, None, :]


@gluon.jit
def _end_of(base, start, place, words, classes, pairs, there):
    """A block from memory, as words if it is of bfloat16; past the end of the row -inf."""
    if base.dtype.element_ty == gl.bfloat16:
        column = start // 2 + words
        base = base.to(gl.pointer_type(gl.int32))
        block = gl.load(base + column, mask=(column < pairs) & there, other=NO_PAIR, eviction_policy="evict_first")
    else:
        column = start + place
        block = gl.load(base + column, mask=(column < classes) & there, other=float("-inf"), eviction_policy="evict_first")
    return block


@gluon.jit
def ends_of(base, place, words, classes, pairs, there, BLOCK: gl.constexpr, HELD: gl.constexpr, TAIL: gl.constexpr):
    """The last blocks of a row, one or two, which are in registers."""
    first = _end_of(base, HELD * BLOCK, place, words, classes, pairs, there)
    second = first
    if TAIL == 2:
        second = _end_of(base, (HELD + 1) * BLOCK, place, words, classes, pairs, there)
    return first, second
