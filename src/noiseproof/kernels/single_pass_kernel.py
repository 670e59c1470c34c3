"""Long rows, each held by a multiprocessor from its first reading until its gradient is written: read once, written once.

Some 130,000 classes in 16 bits fit into the shared memory of one multiprocessor and a few registers of each thread. One program
to a multiprocessor takes row after row. While it writes the gradient of one, the place of each block it is done with is filled
with the next row's, which is added up as it arrives: so memory is read and written all the time.

What :mod:`noiseproof.kernels.stream` reads a row again for, masked classes and classes that nearly tie at the top, and focals,
which need log D, is one more time over what is kept.

This is Gluon, Triton's language with layouts, which its interpreter does not know; nearly all arithmetic is in
:mod:`noiseproof.kernels.blocks` and :mod:`noiseproof.kernels.stream`. Names of the arguments are those of
:mod:`noiseproof.kernels.tile`; ``kept`` is the shared memory.

Two bfloat16 are moved as a word. Of such a pair the second is a float as soon as the first is masked, which the compiler does
not see; and it would have a register for each of the two.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy

from noiseproof.kernels.blocks import add_block, changes, focal_block, unmasked
from noiseproof.kernels.single_pass_row import (
    add_two,
    factors_of_row,
    keep_statistics,
    lanes_to_row,
    row_numbers,
    share_of,
    shares_of_one,
)
from noiseproof.kernels.stream import gradient_of
from noiseproof.kernels.terms import MIN_DIVISOR, MIN_FLOAT, safe_label

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


@gluon.jit
def _origin_of(opening, z_y, SUM: gl.constexpr):
    """What logits are summed from: the largest of the first of them, or if they are masked the label's."""
    origin = 0.0
    if SUM:
        largest = gl.max(opening.to(gl.float32), 0)
        origin = gl.where(largest > float("-inf"), largest, gl.where(z_y > float("-inf"), z_y, 0.0))
    return origin


@gluon.jit
def _add(
    z, start, place, label, classes, state, origin, EACH: gl.constexpr, BLOCK: gl.constexpr,
    SUM: gl.constexpr, POWERS: gl.constexpr,
):  # fmt: skip
    """What the lanes have added up after a block."""
    return add_block(
        z, start, place, label, classes, *state, origin, EACH, BLOCK, SUM, False,
        POWERS[0], POWERS[1], POWERS[2], POWERS[3],
    )  # fmt: skip


@gluon.jit
def _add_focal(z, start, place, label, classes, masked, of_class, focals, BLOCK: gl.constexpr, FOCALS: gl.constexpr):
    """The lanes' focals and sums of h after a block."""
    top, log_sum, inverse, top_rest = of_class
    return focal_block(
        z, start, place, label, classes, masked, top, log_sum, inverse, top_rest, *focals, BLOCK,
        FOCALS[0], FOCALS[1], FOCALS[2], FOCALS[3], FOCALS[4], FOCALS[5],
        FOCALS[6], FOCALS[7], FOCALS[8], FOCALS[9], FOCALS[10], FOCALS[11],
    )  # fmt: skip


@gluon.jit
def _write(z, column, to, there, of_class, factors, MASKED: gl.constexpr, POWERS: gl.constexpr, FOCALS: gl.constexpr):
    """The gradient of a block, which may have MASKED classes; the label's own is written later."""
    top, log_sum, inverse, top_rest = of_class
    out = gradient_of(
        z, top, *factors, inverse, log_sum, top_rest, POWERS[0], POWERS[1], POWERS[2], POWERS[3],
        FOCALS[0], FOCALS[1], FOCALS[2], FOCALS[3], FOCALS[4], FOCALS[5],
        FOCALS[6], FOCALS[7], FOCALS[8], FOCALS[9], FOCALS[10], FOCALS[11],
    )  # fmt: skip
    if MASKED:
        out = gl.where(z > float("-inf"), out, 0.0)
    gl.store(to + column, out.to(to.dtype.element_ty), mask=there, eviction_policy="evict_first")


@gluon.jit
def _write_apart(
    kept, ends, place, to, classes, masked, of_class, factors, BLOCK: gl.constexpr, HELD: gl.constexpr, TAIL: gl.constexpr,
    LAYOUT: gl.constexpr, SUM: gl.constexpr, POWERS: gl.constexpr, FOCALS: gl.constexpr,
):  # fmt: skip
    """Write the gradient of a row's end, and of all of it if classes are masked: with the next row, as :func:`_change_rows`
    writes the others, that would be a comparison for every class."""
    for k in gl.static_range(TAIL):
        column = (HELD + k) * BLOCK + place
        _write(floats(ends[k], LAYOUT), column, to, column < classes, of_class, factors, True, POWERS, FOCALS)
    if SUM:
        if masked:
            for i in range(HELD):
                z = take(kept, i, LAYOUT)
                _write(z, i * BLOCK + place, to, masked, of_class, factors, True, POWERS, FOCALS)


@gluon.jit
def _focal_of_row(
    kept, ends, place, label, classes, masked, of_class, nothing, BLOCK: gl.constexpr, HELD: gl.constexpr, TAIL: gl.constexpr,
    LAYOUT: gl.constexpr, FOCALS: gl.constexpr,
):  # fmt: skip
    """The focals of a row and their sums of h."""
    f_a, h_a, f_b, h_b = 0.0, 0.0, 0.0, 0.0
    if FOCALS[0]:
        focals = (nothing, nothing, nothing, nothing)
        for k in gl.static_range(TAIL):
            focals = _add_focal(
                floats(ends[k], LAYOUT), (HELD + k) * BLOCK, place, label, classes, masked, of_class, focals, BLOCK, FOCALS
            )
        for i in range(HELD):
            z = take(kept, i, LAYOUT)
            focals = _add_focal(z, i * BLOCK, place, label, classes, masked, of_class, focals, BLOCK, FOCALS)
        f_a, h_a = gl.reduce((focals[0], focals[1]), 0, add_two)
        f_b, h_b = gl.reduce((focals[2], focals[3]), 0, add_two)
        f_a, f_b = gl.maximum(f_a, MIN_DIVISOR), gl.maximum(f_b, MIN_DIVISOR)
    return f_a, h_a, f_b, h_b


@gluon.jit
def _unmasked_of_row(
    kept, ends, place, label, origin, nothing, BLOCK: gl.constexpr, HELD: gl.constexpr, TAIL: gl.constexpr, LAYOUT: gl.constexpr
):
    """How many classes other than the label are not masked, and the sum of their logits less the origin."""
    count, total = nothing, nothing
    for k in gl.static_range(TAIL):
        more, logits = unmasked(floats(ends[k], LAYOUT), (HELD + k) * BLOCK + place, label, origin)
        count, total = count + more, total + logits
    for i in range(HELD):
        more, logits = unmasked(take(kept, i, LAYOUT), i * BLOCK + place, label, origin)
        count, total = count + more, total + logits
    return gl.reduce((count, total), 0, add_two)


@gluon.jit
def _change_of_row(
    kept, ends, place, label, top, nothing, BLOCK: gl.constexpr, HELD: gl.constexpr, TAIL: gl.constexpr,
    LAYOUT: gl.constexpr, Q: gl.constexpr,
):  # fmt: skip
    """The sum of ``e^q - e``, where the difference of both sums has lost it."""
    total = nothing
    for k in gl.static_range(TAIL):
        z = floats(ends[k], LAYOUT)
        total += changes(gl.where((HELD + k) * BLOCK + place == label, float("-inf"), z), top, Q)
    for i in range(HELD):
        z = take(kept, i, LAYOUT)
        total += changes(gl.where(i * BLOCK + place == label, float("-inf"), z), top, Q)
    return gl.sum(total, 0)


@gluon.jit
def _change_rows(
    kept, place, coming, classes, to, wanted, of_class, factors, base, there, opening, z_y, nothing,
    EACH: gl.constexpr, BLOCK: gl.constexpr, HELD: gl.constexpr, LAG: gl.constexpr, LAYOUT: gl.constexpr,
    SUM: gl.constexpr, POWERS: gl.constexpr, FOCALS: gl.constexpr,
):  # fmt: skip
    """Write the gradient of a row, if ``wanted``, while the next one arrives, and add that up: its sums and origin."""
    for i in range(LAG):
        leaving = take(kept, i, LAYOUT)
        fetch(kept, i, base, place, there, BLOCK)
        _write(leaving, i * BLOCK + place, to, wanted, of_class, factors, False, POWERS, FOCALS)
    state, origin = (nothing + MIN_FLOAT, nothing, nothing, nothing, nothing, nothing), _origin_of(opening, z_y, SUM)
    for i in range(LAG, HELD):
        async_copy.wait_group(LAG - 1)
        leaving, arrived = take(kept, i, LAYOUT), take(kept, i - LAG, LAYOUT)
        fetch(kept, i, base, place, there, BLOCK)  # before what takes time
        _write(leaving, i * BLOCK + place, to, wanted, of_class, factors, False, POWERS, FOCALS)
        state = _add(arrived, (i - LAG) * BLOCK, place, coming, classes, state, origin, EACH, BLOCK, SUM, POWERS)
    async_copy.wait_group(0)
    for i in range(HELD - LAG, HELD):
        arrived = take(kept, i, LAYOUT)
        state = _add(arrived, i * BLOCK, place, coming, classes, state, origin, EACH, BLOCK, SUM, POWERS)
    return state, origin


@gluon.jit
def _first_row(
    kept, place, label, classes, base, origin, nothing, EACH: gl.constexpr, BLOCK: gl.constexpr, HELD: gl.constexpr,
    LAYOUT: gl.constexpr, SUM: gl.constexpr, POWERS: gl.constexpr,
):  # fmt: skip
    """The sums of a row that follows none, without its end."""
    for i in range(HELD):
        fetch(kept, i, base, place, classes > 0, BLOCK)
    state = (nothing + MIN_FLOAT, nothing, nothing, nothing, nothing, nothing)
    async_copy.wait_group(0)
    for i in range(HELD):
        arrived = take(kept, i, LAYOUT)
        state = _add(arrived, i * BLOCK, place, label, classes, state, origin, EACH, BLOCK, SUM, POWERS)
    return state


@gluon.jit
def _numbers_of_row(
    kept, ends, state, base, place, lanes, strip, label, classes, z_y, origin, nothing,
    ACROSS: gl.constexpr, BLOCK: gl.constexpr, HELD: gl.constexpr, TAIL: gl.constexpr, LAYOUT: gl.constexpr,
    SUM: gl.constexpr, POWERS: gl.constexpr, FOCALS: gl.constexpr,
):  # fmt: skip
    """Whether classes of a row are masked; what every term of a class is made with, and its other numbers; what the gradient
    needs of its sums of powers; its focals."""
    sums = lanes_to_row(*state, base, lanes, strip, label, classes, ACROSS, SUM, POWERS[0], POWERS[1], POWERS[2], POWERS[3])
    left, total, masked = classes - 1.0, sums[4], classes < 0
    if SUM:
        masked = total == float("-inf")  # which no other sum shows
        if masked:
            left, total = _unmasked_of_row(kept, ends, place, label, origin, nothing, BLOCK, HELD, TAIL, LAYOUT)
    of_class, numbers, powers, lost = row_numbers(sums, left, total, z_y, origin, POWERS[0], POWERS[1], POWERS[2], POWERS[3])
    power_a, power_b = powers
    if POWERS[0]:
        if lost[0]:
            power_a = _change_of_row(kept, ends, place, label, of_class[0], nothing, BLOCK, HELD, TAIL, LAYOUT, POWERS[1])
    if POWERS[2]:
        if lost[1]:
            power_b = _change_of_row(kept, ends, place, label, of_class[0], nothing, BLOCK, HELD, TAIL, LAYOUT, POWERS[3])
    focals = _focal_of_row(kept, ends, place, label, classes, masked, of_class, nothing, BLOCK, HELD, TAIL, LAYOUT, FOCALS)
    return masked, of_class, numbers, (power_a, power_b), focals


@gluon.jit
def _take_rows(
    kept, place, words, lanes, few, strip, logits, target, weight, statistics, gradient, divisor,
    rows, classes, pairs, stride, target_stride, out_stride, ignore_index, ACROSS: gl.constexpr, EACH: gl.constexpr,
    BLOCK: gl.constexpr, HELD: gl.constexpr, TAIL: gl.constexpr, LAG: gl.constexpr, LAYOUT: gl.constexpr,
    FORMULA: gl.constexpr, WEIGHTED: gl.constexpr, MEAN: gl.constexpr,
    NLL: gl.constexpr, MARGIN: gl.constexpr, POWERS: gl.constexpr, FOCALS: gl.constexpr,
):  # fmt: skip
    SUM: gl.constexpr = NLL + FOCALS[0]
    first, count, nothing = gl.program_id(0), gl.num_programs(0), lanes.to(gl.float32) * 0.0
    label, valid = safe_label(target, first, first < rows, classes, target_stride)
    coming, coming_valid = safe_label(target, first + count, first + count < rows, classes, target_stride)
    worth = shares_of_one(divisor, MEAN)
    share = share_of(target, weight, first, first < rows, target_stride, label, valid, ignore_index, worth, WEIGHTED)
    base = logits + first.to(gl.int64) * stride
    z_y, ends = gl.load(base + label).to(gl.float32), ends_of(base, place, words, classes, pairs, True, BLOCK, HELD, TAIL)
    origin = _origin_of(gl.load(base + few), z_y, SUM)
    state = _first_row(kept, place, label, classes, base, origin, nothing, EACH, BLOCK, HELD, LAYOUT, SUM, POWERS)
    for row in range(first, rows, count):
        for k in gl.static_range(TAIL):
            state = _add(
                floats(ends[k], LAYOUT), (HELD + k) * BLOCK, place, label, classes, state, origin, EACH, BLOCK, SUM, POWERS
            )
        masked, of_class, numbers, powers, focals = _numbers_of_row(
            kept, ends, state, base, place, lanes, strip, label, classes, z_y, origin, nothing,
            ACROSS, BLOCK, HELD, TAIL, LAYOUT, SUM, POWERS, FOCALS,
        )  # fmt: skip
        spoilt = gl.where(valid, 0.0, float("nan"))
        factors, dz_y = factors_of_row(of_class[1], numbers, powers, focals, share, spoilt, FORMULA, POWERS)
        keep_statistics(statistics, rows, row, of_class[1], numbers, focals, spoilt, NLL, MARGIN, POWERS, FOCALS)
        to = gradient + row.to(gl.int64) * out_stride  # type: ignore[attr-defined] # in a kernel it has
        _write_apart(kept, ends, place, to, classes, masked, of_class, factors, BLOCK, HELD, TAIL, LAYOUT, SUM, POWERS, FOCALS)
        # What the next row needs is read before it is needed.
        there = row + count < rows
        base = logits + gl.where(there, row + count, row).to(gl.int64) * stride
        z_y, opening = gl.load(base + coming).to(gl.float32), gl.load(base + few)
        ends = ends_of(base, place, words, classes, pairs, there, BLOCK, HELD, TAIL)
        share = share_of(target, weight, row + count, there, target_stride, coming, coming_valid, ignore_index, worth, WEIGHTED)
        later, later_valid = safe_label(target, row + 2 * count, row + 2 * count < rows, classes, target_stride)
        state, origin = _change_rows(
            kept, place, coming, classes, to, ~masked, of_class, factors, base, there, opening, z_y, nothing,
            EACH, BLOCK, HELD, LAG, LAYOUT, SUM, POWERS, FOCALS,
        )  # fmt: skip
        gl.store(to + label, dz_y.to(gradient.dtype.element_ty))  # after what the other threads have written
        label, valid, coming, coming_valid = coming, coming_valid, later, later_valid


@gluon.jit(do_not_specialize=["rows", "units", "stride_units", "target_stride", "out_stride", "ignore_index"])
def single_pass_rows(
    logits, target, weight, statistics, gradient, divisor,
    rows, units, stride_units, target_stride, out_stride, ignore_index,
    UNIT: gl.constexpr, WARPS: gl.constexpr, ACROSS: gl.constexpr, DEPTH: gl.constexpr, HELD: gl.constexpr, TAIL: gl.constexpr,
    LAG: gl.constexpr, STEPS: gl.constexpr, FORMULA: gl.constexpr, WEIGHTED: gl.constexpr, MEAN: gl.constexpr,
    NLL: gl.constexpr, MARGIN: gl.constexpr,
    POWER_A: gl.constexpr, Q_A: gl.constexpr, POWER_B: gl.constexpr, Q_B: gl.constexpr,
    FOCAL_A: gl.constexpr, GAMMA_A: gl.constexpr, DETACH_A: gl.constexpr,
    MINIMUM_A: gl.constexpr, CEILING_A: gl.constexpr, HIGHEST_A: gl.constexpr,
    FOCAL_B: gl.constexpr, GAMMA_B: gl.constexpr, DETACH_B: gl.constexpr,
    MINIMUM_B: gl.constexpr, CEILING_B: gl.constexpr, HIGHEST_B: gl.constexpr,
):  # fmt: skip
    """The statistics of all rows and the gradient, which may be written over the logits. FORMULA makes gradients of statistics.

    A row is HELD blocks in shared memory, and TAIL in registers.
    """
    LANES: gl.constexpr = WARPS * 32
    # A thread has a lane of its own, in registers and in shared memory, where lanes are adjacent.
    LAYOUT: gl.constexpr = gl.BlockedLayout([1, DEPTH, ACROSS], [32, 1, 1], [WARPS, 1, 1], [2, 1, 0])
    STRIP_OF: gl.constexpr = gl.BlockedLayout([1, ACROSS], [32, 1], [WARPS, 1], [1, 0])
    POWERS: gl.constexpr = (POWER_A, Q_A, POWER_B, Q_B)
    FOCALS: gl.constexpr = (
        FOCAL_A, GAMMA_A, DETACH_A, MINIMUM_A, CEILING_A, HIGHEST_A, FOCAL_B, GAMMA_B, DETACH_B, MINIMUM_B, CEILING_B, HIGHEST_B
    )  # fmt: skip
    kept = gl.allocate_shared_memory(
        logits.dtype.element_ty, [HELD, LANES, DEPTH, ACROSS], gl.SwizzledSharedLayout(ACROSS, 1, 1, [2, 0, 1])
    )
    lanes = gl.arange(0, LANES, gl.SliceLayout(1, gl.SliceLayout(2, LAYOUT)))
    place, words = places(LANES, DEPTH, ACROSS, LAYOUT), places(LANES, DEPTH, ACROSS // 2, halved(LAYOUT))
    few = gl.arange(0, 32, gl.BlockedLayout([1], [32], [WARPS], [0]))  # which every warp has
    steps = gl.arange(0, STEPS, gl.SliceLayout(1, STRIP_OF))[:, None]
    strip = steps * (LANES * ACROSS) + gl.arange(0, ACROSS, gl.SliceLayout(0, STRIP_OF))[None, :]
    _take_rows(
        kept, place, words, lanes, few, strip, logits, target, weight, statistics, gradient, divisor,
        rows, units * UNIT, units * (UNIT // 2), stride_units.to(gl.int64) * UNIT, target_stride,
        out_stride.to(gl.int64) * UNIT, ignore_index,
        ACROSS, DEPTH * ACROSS, LANES * ACROSS * DEPTH, HELD, TAIL, LAG, LAYOUT,
        FORMULA, WEIGHTED, MEAN, NLL, MARGIN, POWERS, FOCALS,
    )  # fmt: skip
