"""What is changed after a call, or in a class after its first use, changes later calls and nothing that was computed before."""

import pytest
import torch
import torch.nn.functional as F

import noiseproof
from noiseproof import CE, MAE, NCE, linear_loss
from noiseproof.core import small
from noiseproof.losses.asymmetric import AMSE
from tests.helpers.cases import draw

WAYS = pytest.mark.parametrize("recompute", [False, True], ids=["at once", "recomputed"])
AS = pytest.mark.parametrize("kind", [tuple, list])


def sum_of(reduction="mean", kind=tuple):
    loss = noiseproof.Sum([(1.0, CE()), (2.0, MAE()), (0.5, noiseproof.JALCE())], reduction=reduction)
    loss.coefficients = kind(loss.coefficients)
    return loss


def change(loss):
    if isinstance(loss.coefficients, list):
        loss.coefficients[0] = 7.0
    else:
        loss.coefficients = (7.0, 1.0, 3.0)
    loss.losses[1] = NCE()
    loss.reduction, loss.label_smoothing, loss.ignore_index = "sum", 0.5, 2


@AS
@pytest.mark.parametrize("limit", [small.MAX_SMALL_BATCH, 0], ids=["small", "large"])
@pytest.mark.parametrize("again", [{"retain_graph": True}, {"create_graph": True}, {"is_grads_batched": True}], ids=str)
def test_a_second_gradient_is_that_of_the_loss_as_it_was_called(again, limit, kind, monkeypatch):
    monkeypatch.setattr(small, "MAX_SMALL_BATCH", limit)
    logits, target = draw()
    leaf, loss = logits.requires_grad_(), sum_of(kind=kind)
    value = loss(leaf, target)
    (first,) = torch.autograd.grad(value, leaf, retain_graph=True)
    change(loss)
    ups = torch.ones(2, dtype=value.dtype) if "is_grads_batched" in again else None
    (second,) = torch.autograd.grad(value, leaf, ups, **again)
    torch.testing.assert_close(second, first.expand_as(second))


@AS
@WAYS
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_so_it_is_through_a_linear_head(reduction, recompute, kind):
    generator = torch.Generator().manual_seed(0)
    hidden, weight = (torch.randn(n, 4, generator=generator, dtype=torch.float64, requires_grad=True) for n in (6, 5))
    target, loss = torch.tensor([0, 1, 2, 3, 4, -100]), sum_of(reduction, kind)
    value = linear_loss(hidden, weight, target, loss, recompute=recompute).sum()
    first = torch.autograd.grad(value, (hidden, weight), retain_graph=True)
    change(loss)
    torch.testing.assert_close(torch.autograd.grad(value, (hidden, weight)), first)


@WAYS
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("bias", [False, True])
def test_several_gradients_of_one_call_of_a_linear_head(bias, reduction, smoothing, recompute):
    generator = torch.Generator().manual_seed(0)
    shapes = [(6, 4), (5, 4), (5,)][: 2 + bias]
    leaves = [torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True) for shape in shapes]
    target, loss = torch.tensor([0, 1, -100, 3, 4, 2]), noiseproof.JALCE(reduction=reduction, label_smoothing=smoothing)
    hidden, weight, *rest = leaves
    ours = linear_loss(hidden, weight, target, loss, *rest, recompute=recompute, chunk_bytes=80)
    theirs = loss(F.linear(hidden, weight, *rest), target)
    ups = torch.rand(3, *ours.shape, dtype=torch.float64, generator=generator)
    each = [torch.autograd.grad(theirs, leaves, up, retain_graph=True) for up in ups]
    expected = tuple(torch.stack(of) for of in zip(*each, strict=True))
    torch.testing.assert_close(torch.autograd.grad(ours, leaves, ups, is_grads_batched=True, retain_graph=True), expected)
    by_vmap = torch.func.vmap(lambda up: torch.autograd.grad(ours, leaves, up, retain_graph=True))(ups)
    torch.testing.assert_close(by_vmap, expected)


def test_of_a_loss_with_parameters_several_gradients_are_refused_in_words():
    class Scaled(noiseproof.RobustLoss):
        needs = (noiseproof.statistics.Statistic.NLL,)

        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones((), dtype=torch.float64))

        def from_statistics(self, s):
            return self.scale * s.nll

    hidden, weight = (torch.randn(n, 4, dtype=torch.float64, requires_grad=True) for n in (6, 5))
    value = linear_loss(hidden, weight, torch.arange(6) % 5, Scaled())
    with pytest.raises(
        TypeError, match=r"several gradients at once .* use criterion\(F.linear\(hidden, weight, bias\), target\)"
    ):
        torch.autograd.grad(value, hidden, torch.ones(2, dtype=torch.float64), is_grads_batched=True)


@pytest.mark.parametrize(("cls", "name"), [(MAE, "from_statistics"), (AMSE, "_power"), (AMSE, "constant")])
def test_a_class_that_is_patched_after_its_first_use_is_what_it_has_become(cls, name, monkeypatch):
    logits, target = draw()
    loss = cls()
    pair = CE() + loss
    before = [part(logits, target) for part in (loss, pair)]
    owner = next(base for base in cls.__mro__ if name in vars(base))
    original, factor = getattr(owner, name), [3.0]
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, lambda self, *given: factor[0] * original(self, *given))
        for factor[0] in (3.0, 5.0):  # which no program may keep
            expected = [part._by_autograd(logits, target) for part in (loss, pair)]
            for kept, made in zip((loss, pair), (cls(), CE() + cls()), strict=True):
                torch.testing.assert_close(kept(logits, target), made(logits, target))
            torch.testing.assert_close([part(logits, target) for part in (loss, pair)], expected)
            assert not torch.allclose(expected[0], before[0])
    assert [part(logits, target) for part in (loss, pair)] == before
