"""Rows that fit into registers, several to a program: the first pass, and the second for a few classes.

``classes = units * UNIT`` and ``stride = stride_units * UNIT`` where UNIT, a power of two, divides both: so the compiler knows
that 16 bytes can be read at a time. Capitals say what is asked for, as in ``registers``; LEAD is one more.
"""

from __future__ import annotations

import triton
import triton.language as tl

from noiseproof.kernels.registers import row_gradient, row_sums
from noiseproof.kernels.terms import safe_label

__all__ = ["own_logit", "tile_backward", "tile_forward", "tile_of", "write_rows"]


@triton.jit
def tile_of(logits, target, first, rows, classes, stride, target_stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Rows from the first on: their numbers, which there are, their labels, which are valid, where they are, and the logits."""
    row, column = first + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    real = row < rows
    label, valid = safe_label(target, row, real, classes, target_stride)
    place = logits + row.to(tl.int64)[:, None] * stride + column[None, :]
    z = tl.load(place, mask=real[:, None] & (column < classes)[None, :], other=float("-inf")).to(tl.float32)
    return row, real, label, valid, column[None, :] == label[:, None], z


@triton.jit
def own_logit(logits, row, real, label, stride):
    return tl.load(logits + row.to(tl.int64) * stride + label, mask=real, other=0.0).to(tl.float32)


@triton.jit
def _put(rows_of, which, rows, row, real, value, valid):
    """NaN where the label is not valid."""
    tl.store(rows_of + which * rows.to(tl.int64) + row, tl.where(valid, value, float("nan")), mask=real)


@triton.jit
def _put_sum(primitives, saved, which, rows, row, real, valid, value, rest):
    _put(primitives, which, rows, row, real, value, valid)
    _put(saved, 3 + which, rows, row, real, rest, real)


@triton.jit(do_not_specialize=["rows", "units", "stride_units", "target_stride"])
def tile_forward(
    logits, target, primitives, saved, rows, units, stride_units, target_stride,
    UNIT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, NLL: tl.constexpr, LEAD: tl.constexpr,
    POWER_A: tl.constexpr, Q_A: tl.constexpr, POWER_B: tl.constexpr, Q_B: tl.constexpr,
    FOCAL_A: tl.constexpr, GAMMA_A: tl.constexpr, DETACH_A: tl.constexpr,
    MINIMUM_A: tl.constexpr, CEILING_A: tl.constexpr, HIGHEST_A: tl.constexpr,
    FOCAL_B: tl.constexpr, GAMMA_B: tl.constexpr, DETACH_B: tl.constexpr,
    MINIMUM_B: tl.constexpr, CEILING_B: tl.constexpr, HIGHEST_B: tl.constexpr,
):  # fmt: skip
    """The primitives; what :func:`row_sums` begins with; and, three rows after that of each sum's primitive, what the gradient
    needs of it."""
    stride = stride_units.to(tl.int64) * UNIT
    first, classes = tl.program_id(0) * ROWS, units * UNIT
    row, real, label, valid, is_label, z = tile_of(logits, target, first, rows, classes, stride, target_stride, ROWS, COLUMNS)
    z_y = own_logit(logits, row, real, label, stride)
    (
        top, own, d, log_sum, left, nll, log_miss, others, lead,
        power_a, rest_a, power_b, rest_b, focal_a, slopes_a, focal_b, slopes_b,
    ) = row_sums(
        z, z_y, is_label, classes, NLL, POWER_A, Q_A, POWER_B, Q_B,
        FOCAL_A, GAMMA_A, DETACH_A, MINIMUM_A, CEILING_A, HIGHEST_A,
        FOCAL_B, GAMMA_B, DETACH_B, MINIMUM_B, CEILING_B, HIGHEST_B,
    )  # fmt: skip
    _put(primitives, 0, rows, row, real, nll, valid)
    _put(primitives, 1, rows, row, real, log_miss, valid)
    if NLL:
        _put(primitives, NLL, rows, row, real, others, valid)
    if LEAD:
        _put(primitives, LEAD, rows, row, real, lead, valid)
    if POWER_A:
        _put_sum(primitives, saved, POWER_A, rows, row, real, valid, power_a, rest_a)
    if POWER_B:
        _put_sum(primitives, saved, POWER_B, rows, row, real, valid, power_b, rest_b)
    if FOCAL_A:
        _put_sum(primitives, saved, FOCAL_A, rows, row, real, valid, focal_a, slopes_a)
    if FOCAL_B:
        _put_sum(primitives, saved, FOCAL_B, rows, row, real, valid, focal_b, slopes_b)
    _put(saved, 0, rows, row, real, top, real)
    _put(saved, 1, rows, row, real, own, real)
    _put(saved, 2, rows, row, real, d, real)
    _put(saved, 3, rows, row, real, log_sum, real)
    _put(saved, 4, rows, row, real, left, real)


@triton.jit
def write_rows(gradient, row, real, classes, stride, out, COLUMNS: tl.constexpr):
    column = tl.arange(0, COLUMNS)
    place = gradient + row.to(tl.int64)[:, None] * stride + column[None, :]
    tl.store(place, out.to(gradient.dtype.element_ty), mask=real[:, None] & (column < classes)[None, :])


@triton.jit
def _get(rows_of, which, rows, row, real):
    return tl.load(rows_of + which * rows.to(tl.int64) + row, mask=real, other=0.0)


@triton.jit
def _upstream(grads, which, by_row, by_column, row, real):
    """The gradient of a primitive; 0 where the label is masked, since its nll is infinite there and its slopes may be too."""
    return tl.load(grads + which * by_row.to(tl.int64) + row.to(tl.int64) * by_column, mask=real, other=0.0)


@triton.jit(do_not_specialize=["rows", "units", "stride_units", "target_stride", "by_row", "by_column", "out_stride"])
def tile_backward(
    grads, logits, target, primitives, saved, gradient, rows, units, stride_units, target_stride, by_row, by_column, out_stride,
    UNIT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, EXACT: tl.constexpr, NLL: tl.constexpr, LEAD: tl.constexpr,
    POWER_A: tl.constexpr, Q_A: tl.constexpr, POWER_B: tl.constexpr, Q_B: tl.constexpr,
    FOCAL_A: tl.constexpr, GAMMA_A: tl.constexpr, DETACH_A: tl.constexpr,
    MINIMUM_A: tl.constexpr, CEILING_A: tl.constexpr, HIGHEST_A: tl.constexpr,
    FOCAL_B: tl.constexpr, GAMMA_B: tl.constexpr, DETACH_B: tl.constexpr,
    MINIMUM_B: tl.constexpr, CEILING_B: tl.constexpr, HIGHEST_B: tl.constexpr,
):  # fmt: skip
    """The gradient of the logits; that of a primitive that is not asked for is read as another's, and not used."""
    first, classes = tl.program_id(0) * ROWS, units * UNIT
    stride = stride_units.to(tl.int64) * UNIT
    row, real, _, _, is_label, z = tile_of(logits, target, first, rows, classes, stride, target_stride, ROWS, COLUMNS)
    top, own, d = _get(saved, 0, rows, row, real), _get(saved, 1, rows, row, real), _get(saved, 2, rows, row, real)
    log_sum, left = _get(saved, 3, rows, row, real), _get(saved, 4, rows, row, real)
    wanted = real & (left >= 0.0)
    out = row_gradient(
        z, is_label, top, own, d, log_sum, left,
        _upstream(grads, 0, by_row, by_column, row, wanted), _upstream(grads, 1, by_row, by_column, row, wanted),
        _upstream(grads, NLL, by_row, by_column, row, wanted),
        _upstream(grads, POWER_A, by_row, by_column, row, wanted), _upstream(grads, POWER_B, by_row, by_column, row, wanted),
        _upstream(grads, FOCAL_A, by_row, by_column, row, wanted), _upstream(grads, FOCAL_B, by_row, by_column, row, wanted),
        _get(primitives, POWER_A, rows, row, wanted), _get(primitives, POWER_B, rows, row, wanted),
        COLUMNS, EXACT, NLL, POWER_A, Q_A, POWER_B, Q_B,
        FOCAL_A, GAMMA_A, DETACH_A, MINIMUM_A, CEILING_A, HIGHEST_A,
        FOCAL_B, GAMMA_B, DETACH_B, MINIMUM_B, CEILING_B, HIGHEST_B,
    )  # fmt: skip
    write_rows(gradient, row, real, classes, out_stride.to(tl.int64) * UNIT, out, COLUMNS)
