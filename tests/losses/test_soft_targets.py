"""Probability targets and label smoothing: the loss of every label at once, its cost and its digits."""

import pytest
import torch
import torch.nn.functional as F

import noiseproof
from noiseproof.losses.complementary import every_complementary_label
from tests.helpers.cases import ENTRIES, NAMES, RANDOM, build, call, draw, gradient

FLAT = [name for name in NAMES if ENTRIES[name].reads != "features"]


@pytest.mark.parametrize("name", FLAT)
def test_no_loss_goes_label_by_label(name, monkeypatch):
    loss = build(name, 5)
    for part in [part for part in loss.modules() if isinstance(part, noiseproof.RobustLoss)]:
        monkeypatch.setattr(type(part), "rows", lambda *_: pytest.fail("rows was called for one label"))
    logits, _ = draw(6, 5, dtype=torch.float32)
    call(loss, logits, torch.softmax(logits, 1))


@pytest.mark.parametrize("name", ["gjs", "nl", "jnpl"])
def test_thousands_of_classes_cost_a_few_tensors_of_that_size(name):
    """One [N, K] tensor takes 128 kB here; K of them would be half a gigabyte."""
    logits = torch.randn(8, 4000, generator=torch.Generator().manual_seed(0)).requires_grad_()
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        value = build(name, 4000, label_smoothing=0.1)(logits, torch.arange(8))
    assert sum(kept) < 100 * logits.numel()
    value.backward()
    assert bool(torch.isfinite(logits.grad).all())


@pytest.mark.parametrize("name", [name for name in FLAT if name not in RANDOM])
def test_the_gradient_of_a_probability_target_is_the_loss_of_each_label_also_where_it_is_0(name):
    logits, target = draw(4, 5)
    loss = build(name, 5, reduction="none").double()
    labels = torch.arange(5).expand(4, 5)
    expected = torch.stack([call(loss, logits, labels[:, k]) for k in range(5)], 1).detach()
    soft = F.one_hot(target, 5).double().requires_grad_()
    call(loss, logits, soft).sum().backward()
    torch.testing.assert_close(soft.grad, expected)


def test_targets_and_class_weights_are_learned_as_with_cross_entropy():
    logits, target = draw(6, 5)
    options = {"label_smoothing": 0.1, "reduction": "sum"}
    soft, weight = (
        F.one_hot(target, 5).double().requires_grad_(),
        torch.tensor([1.0, 0.0, 2.0, 0.5, 1.0]).double().requires_grad_(),
    )
    ours = torch.autograd.grad(noiseproof.CE(weight=weight, **options)(logits, soft), (soft, weight))
    theirs = torch.autograd.grad(F.cross_entropy(logits, soft, weight, **options), (soft, weight))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-13, atol=1e-13)


def test_smoothed_probability_targets_have_all_the_digits_of_float64():
    logits, _ = draw(6, 7)
    soft = torch.softmax(draw(6, 7, seed=5)[0], 1)
    ours, theirs = (loss(logits, soft, label_smoothing=0.1) for loss in (noiseproof.functional.ce, F.cross_entropy))
    torch.testing.assert_close(ours, theirs, rtol=1e-14, atol=0)


@pytest.mark.parametrize("stage", ["nl", "selnl", "selpl"])
def test_negative_learning_draws_for_each_label(stage):
    logits, _ = draw(40, 5)
    p = torch.softmax(logits, 1)
    loss = noiseproof.NL(stage=stage, generator=torch.Generator().manual_seed(3), reduction="none")
    other = every_complementary_label(logits, torch.Generator().manual_seed(3))
    assert bool((other != torch.arange(5)).all())
    assert {int(c) for c in other[:, 0]} == {1, 2, 3, 4}
    negative = -torch.log1p(-p.gather(1, other))
    every = {
        "nl": negative,
        "selnl": torch.where(p > 1 / 5, negative, 0.0),
        "selpl": torch.where(p > 0.5, -p.log(), 0.0),
    }[stage]
    soft = torch.softmax(torch.randn(40, 5, dtype=torch.float64), 1)
    torch.testing.assert_close(loss(logits, soft), (every * soft).sum(1))


def test_joint_negative_and_positive_learning_draws_for_each_label():
    logits, _ = draw(40, 5, scale=4.0)
    p = torch.softmax(logits, 1)
    generator = torch.Generator().manual_seed(3)
    other = every_complementary_label(logits, generator)
    coin = torch.rand(40, 5, dtype=torch.float64, generator=generator)
    largest_other = torch.stack([p.index_fill(1, torch.tensor([k]), 0.0).amax(1) for k in range(5)], 1)
    kept = (largest_other < 1 / 5) & (coin < p)
    assert bool(kept.any())
    miss = 1 - p.gather(1, other)
    every = -miss * miss.log() - 0.5 * kept * (1 + p) * (1 + p**2) * (1 + p**4) * (1 + p**8) * p.log()
    soft = torch.softmax(torch.randn(40, 5, dtype=torch.float64), 1)
    loss = noiseproof.JNPL(lam=0.5, generator=torch.Generator().manual_seed(3), reduction="none")
    torch.testing.assert_close(loss(logits, soft), (every * soft).sum(1))


@pytest.mark.parametrize("name", ["lt", "lt-apl"])
def test_a_head_without_a_margin_takes_all_labels_at_once(name):
    features, _ = draw(6, 7)
    soft = torch.softmax(torch.randn(6, 5, dtype=torch.float64), 1)
    head = ENTRIES[name].cls(features=7, classes=5, reduction="none").double().eval()
    every = torch.stack([head(features, torch.full((6,), k)) for k in range(5)], 1)
    torch.testing.assert_close(head(features, soft), (every * soft).sum(1))
    plain = ENTRIES[name].cls(features=7, classes=5, reduction="none", margin=0.0).double().train()
    plain.load_state_dict(head.state_dict())
    torch.testing.assert_close(gradient(plain, features, soft), gradient(head, features, soft))


def test_a_head_with_a_margin_refuses_what_would_not_fit_and_says_why():
    head = noiseproof.Student(features=2, classes=4000, label_smoothing=0.1)
    with pytest.raises(ValueError, match=r"forms N K\^2 scores, because its margin .*; use labels, or margin=0"):
        head(torch.randn(8, 2), torch.arange(8))
    assert bool(torch.isfinite(head.eval()(torch.randn(8, 2), torch.arange(8))))
