"""The operation on hidden states and a linear head: the same statistics, with a chunk of the logits at a time.

``z = hidden @ weight.T + bias`` is formed for a few thousand rows, its two passes are the row operation's, and the backward
pass forms it again. Chunks are as large as their budget allows: each reads and writes the whole gradient of the weight.

Two things that the algebra offers are left alone. The sum of a row's logits is ``hidden . sum_k weight_k``, but the pass that
reads the logits anyway has it for one addition each, as a sum of terms of one sign. And the part of dz that all classes share
is a rank-one update of both gradients: taken out of dz before that is rounded to bfloat16 it makes the gradients' error 20 %
smaller where all logits are nearly equal and 1 % elsewhere (NCE, K = 32,768), which is not worth passes of its own.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor

from noiseproof.core.backends import backend_of_device
from noiseproof.core.operation import forward_pass
from noiseproof.core.row_sums import accumulation_dtype, decode

CPU_CHUNK_BYTES = 2**27
DEVICE_CHUNK_BYTES = 7 * 2**26
# The largest piece of the weight's gradient that is formed in another dtype than it is added to.
MAX_PIECE_SIZE = 2**24


def chunk_budget(device: torch.device) -> int:
    """Bytes of logits at a time where the caller does not say."""
    return CPU_CHUNK_BYTES if device.type == "cpu" else DEVICE_CHUNK_BYTES


def chunk_rows(rows: int, classes: int, dtype: torch.dtype, chunk_bytes: int) -> int:
    """Rows of a chunk: nearly equal parts, since a small last one would be as many launches for less work.

    >>> chunk_rows(8192, 128256, torch.bfloat16, DEVICE_CHUNK_BYTES)
    1639
    """
    most = max(1, chunk_bytes // (classes * dtype.itemsize))
    return math.ceil(rows / max(1, math.ceil(rows / most)))


class Products:
    """The logits of a linear head, a chunk of rows at a time, in ``dtype``.

    Rows that are not in ``keep`` are left out and cost nothing. To know how many are left takes one look from the host, so
    while a CUDA graph is captured all are computed.
    """

    def __init__(
        self, hidden: Tensor, weight: Tensor, bias: Tensor | None, keep: Tensor | None, dtype: torch.dtype, chunk_bytes: int
    ) -> None:
        self.hidden = hidden.detach()
        self.weight = weight.detach().to(dtype)
        self.bias = None if bias is None else bias.detach().to(dtype)
        self.kept = _kept_rows(keep)
        self.rows = len(hidden) if self.kept is None else len(self.kept)
        self.step = chunk_rows(self.rows, len(weight), dtype, chunk_bytes)
        self.budget = chunk_bytes
        self._logits = self.weight.new_empty((self.step, len(weight)))

    def chunks(self) -> Iterator[tuple[Tensor | slice, Tensor, Tensor]]:
        """Which rows, their hidden states, and their logits, which the next chunk overwrites."""
        for start in range(0, self.rows, max(1, self.step)):
            part = slice(start, start + self.step)
            rows = part if self.kept is None else self.kept[part]
            x = self.hidden[rows].to(self.weight.dtype)
            z = self._logits[: len(x)]
            if self.bias is None:
                torch.mm(x, self.weight.t(), out=z)
            else:
                torch.addmm(self.bias, x, self.weight.t(), out=z)
            yield rows, x, z


def _kept_rows(keep: Tensor | None) -> Tensor | None:
    """The indices of the rows to compute, or None for all."""
    if keep is None or (keep.is_cuda and torch.cuda.is_current_stream_capturing()):
        return None
    rows = keep.nonzero()[:, 0]
    return None if len(rows) == len(keep) else rows


class Gradients:
    """The gradients of hidden states, weight and bias, those that are ``wanted``, from chunks of the logits' gradient.

    The weight's is summed in float32 at least, in itself where that is its dtype. For a weight in half precision that takes a
    buffer, if it is no larger than two chunks may be; beyond, each chunk's product is rounded as it is added. In bfloat16 the
    error is then 1.1 times that of one product with 2 chunks, 1.3 with 4 and 2.7 with 32 (JAL-CE, K = 2,000).
    """

    def __init__(self, products: Products, weight: Tensor, bias: Tensor | None, wanted: Sequence[bool]) -> None:
        self.products = products
        self.dtypes = (products.hidden.dtype, weight.dtype, weight.dtype if bias is None else bias.dtype)
        full = accumulation_dtype(weight.dtype)
        fits = products.step < products.rows and weight.numel() * full.itemsize <= 2 * products.budget
        in_full = fits or weight.dtype != products.weight.dtype
        whole = products.kept is None  # else the rows that were left out have no gradient
        hidden = products.hidden
        self.hidden = (hidden.new_empty if whole else hidden.new_zeros)(hidden.shape if wanted[0] else 0)
        self.weight = weight.new_empty(weight.shape if wanted[1] else 0, dtype=full if in_full else weight.dtype)
        self.bias = weight.new_zeros(len(weight), dtype=full)
        self.wanted = wanted
        self.empty = True

    def add(self, rows: Tensor | slice, x: Tensor, dz: Tensor) -> None:
        """What the rows with hidden states ``x`` and this gradient of their logits contribute."""
        if self.wanted[0]:
            self._set_hidden(rows, dz)
        if self.wanted[1]:
            _add_product(self.weight, dz.t(), x, replace=self.empty)
        if self.wanted[2]:
            self.bias.add_(dz.sum(0, dtype=self.bias.dtype))
        self.empty = False

    def _set_hidden(self, rows: Tensor | slice, dz: Tensor) -> None:
        weight = self.products.weight
        if isinstance(rows, Tensor):
            self.hidden.index_copy_(0, rows, (dz @ weight).to(self.hidden.dtype))
        elif self.hidden.dtype == weight.dtype:
            torch.mm(dz, weight, out=self.hidden[rows])
        else:
            self.hidden[rows] = dz @ weight

    def results(self) -> tuple[Tensor | None, ...]:
        """Each in the dtype of what it is the gradient of, None where it is not wanted."""
        if self.empty:
            self.weight.zero_()
        found = (self.hidden, self.weight, self.bias)
        return tuple([t.to(d) if w else None for t, d, w in zip(found, self.dtypes, self.wanted, strict=True)])


def _add_product(total: Tensor, a: Tensor, b: Tensor, *, replace: bool) -> None:
    """``total += a @ b``, or ``total = a @ b``, where the total may have more digits than the factors."""
    beta = 0.0 if replace else 1.0
    if total.dtype == a.dtype:
        torch.addmm(total, a, b, beta=beta, out=total)
    elif a.is_cuda and torch.version.cuda is not None and hasattr(torch.ops.aten.addmm, "dtype_out"):  # torch 2.8
        torch.ops.aten.addmm.dtype_out(total, a, b, total.dtype, beta=beta, out=total)
    else:
        step = max(1, MAX_PIECE_SIZE // max(1, total.shape[1], a.shape[1]))
        # Elsewhere than on a CPU products in float32 take many times as long, so each is rounded before it is added.
        wide = b.to(total.dtype) if a.device.type == "cpu" else b
        for piece, rows in zip(total.split(step), a.split(step), strict=True):
            product = rows.to(wide.dtype) @ wide
            piece.copy_(product) if replace else piece.add_(product)


@torch.library.custom_op("noiseproof::linear_statistics", mutates_args=())
def linear_statistics(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    keep: Tensor | None,
    needs_key: str,
    dtype: torch.dtype,
    chunk_bytes: int,
) -> tuple[Tensor, Tensor]:
    """``hidden [N, D]``, ``weight [K, D]``, ``bias [K]``, ``target [N]`` -> what ``row_statistics_op`` gives for their logits.

    The matrix products are in ``dtype``. Rows that are not in ``keep [N]`` have the statistics of equal logits.
    """
    with torch.autocast(hidden.device.type, enabled=False):
        products = Products(hidden, weight, bias, keep, dtype, chunk_bytes)
        statistics, saved = _results(hidden, needs_key, dtype)
        if products.kept is not None:
            equal = products.weight.new_zeros((1, len(weight)))
            statistics.copy_(forward_pass(equal, target.new_zeros(1), needs_key)[0])
            saved.zero_()
        for rows, _, z in products.chunks():
            statistics[:, rows], found = forward_pass(z, target[rows], needs_key)
            saved[: len(found), rows] = found
            saved[len(found) :, rows] = len(weight) - 1  # of the reference: all classes are left
        return statistics, saved


def _results(hidden: Tensor, needs_key: str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    full, rows, needs = accumulation_dtype(dtype), hidden.shape[0], len(decode(needs_key))
    return hidden.new_empty((2 + needs, rows), dtype=full), hidden.new_empty((5 + needs, rows), dtype=full)


# The schema, because torch 2.6 makes none for a sequence.
@torch.library.custom_op(
    "noiseproof::linear_statistics_backward",
    mutates_args=(),
    schema="(Tensor grads, Tensor hidden, Tensor weight, Tensor? bias, Tensor target, Tensor? keep, Tensor statistics, "
    "Tensor saved, str needs_key, ScalarType dtype, int chunk_bytes, bool[] wanted) -> (Tensor, Tensor, Tensor)",
)
def linear_statistics_backward(
    grads: Tensor,
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    keep: Tensor | None,
    statistics: Tensor,
    saved: Tensor,
    needs_key: str,
    dtype: torch.dtype,
    chunk_bytes: int,
    wanted: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of hidden states, weight and bias, given that of each row sum; empty where not wanted."""
    with torch.autocast(hidden.device.type, enabled=False):
        products = Products(hidden, weight, bias, keep, dtype, chunk_bytes)
        gradients, backend = Gradients(products, weight, bias, wanted), backend_of_device(hidden.device.type)
        for rows, x, z in products.chunks():
            given = (target[rows], statistics[:, rows].contiguous(), saved[:, rows].contiguous(), decode(needs_key))
            # Over the logits, which are not needed any more.
            gradients.add(rows, x, backend.backward(grads[:, rows].contiguous(), z, *given, out=z))
        first, second, third = (hidden.new_empty(0) if g is None else g for g in gradients.results())
        return first, second, third


@linear_statistics.register_fake
def _(hidden: Tensor, weight: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    needs_key, dtype = rest[3:5]
    return _results(hidden, needs_key, dtype)


@linear_statistics_backward.register_fake
def _(grads: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    of = (hidden, weight, weight.new_empty(len(weight)) if bias is None else bias)
    first, second, third = (t.new_empty(t.shape) if w else hidden.new_empty(0) for t, w in zip(of, rest[-1], strict=True))
    return first, second, third


@linear_statistics_backward.register_vmap
def _(info: Any, in_dims: Sequence[Any], grads: Tensor, *rest: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    """Of several gradients at once each takes its own pass."""
    each = [linear_statistics_backward(g, *rest) for g in grads.movedim(in_dims[0], 0).unbind()]
    return tuple([torch.stack(parts) for parts in zip(*each, strict=True)]), (0, 0, 0)


def _set_up(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.needs_key, ctx.dtype, ctx.chunk_bytes = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(*tensors, *output)


def _backward(ctx: Any, grads: Tensor, _: Any) -> tuple[Any, ...]:
    wanted = list(ctx.needs_input_grad[:3])
    found = linear_statistics_backward(grads, *ctx.saved_tensors, ctx.needs_key, ctx.dtype, ctx.chunk_bytes, wanted)
    return (*(g if w else None for g, w in zip(found, wanted, strict=True)), None, None, None, None, None)


def no_second_derivative(*_: Any) -> NoReturn:
    """In place of a derivative of the gradient."""
    raise RuntimeError(
        "linear_loss has no second derivative, since it keeps no logits; criterion(F.linear(hidden, weight, bias), target) has"
    )


linear_statistics.register_autograd(_backward, setup_context=_set_up)
linear_statistics_backward.register_autograd(no_second_derivative)
