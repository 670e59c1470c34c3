"""The contract, against the thing itself: torch.nn.functional.cross_entropy."""

import itertools
import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import noiseproof
from tests.helpers.cases import draw

SHAPES = [(5,), (7, 5), (3, 5, 4), (2, 5, 3, 2), (0, 5), (7, 2)]


def case(shape, kind, dtype, ignored):
    """Logits and target of one shape; ``ignored`` is 'none', 'some' or 'all'."""
    generator = torch.Generator().manual_seed(len(shape))
    logits = 3 * torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
    class_dim = 0 if len(shape) == 1 else 1
    if kind == "probabilities":
        return logits, torch.softmax(torch.randn(shape, generator=generator, dtype=torch.float64), class_dim).to(dtype)
    index_shape = shape[:class_dim] + shape[class_dim + 1 :]
    target = torch.randint(shape[class_dim], index_shape, generator=generator)
    if ignored == "all":
        target = torch.full_like(target, -100)
    elif ignored == "some" and target.numel() > 1:
        target.view(-1)[::2] = -100
    return logits, target


def value_and_gradient(loss, logits, target):
    leaf = logits.clone().requires_grad_()
    value = loss(leaf, target)
    (gradient,) = torch.autograd.grad(value.sum(), leaf)
    return value, gradient


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("kind", ["labels", "probabilities"])
def test_ce_is_cross_entropy_at_every_combination_of_arguments(shape, reduction, kind):
    classes = shape[0] if len(shape) == 1 else shape[1]
    weights = (None, torch.arange(classes).double() / 2)
    for weight, smoothing, ignored in itertools.product(weights, (0.0, 0.3, 1.0), ("none", "some", "all")):
        logits, target = case(shape, kind, torch.float64, ignored)
        options = {"reduction": reduction, "weight": weight, "label_smoothing": smoothing}
        ours, our_gradient = value_and_gradient(noiseproof.CE(**options), logits, target)
        theirs, their_gradient = value_and_gradient(lambda z, y, o=options: F.cross_entropy(z, y, **o), logits, target)
        torch.testing.assert_close(ours, theirs, equal_nan=True)
        torch.testing.assert_close(our_gradient, their_gradient, equal_nan=True)


@pytest.mark.parametrize("ignore_index", [-100, 0, 3])
def test_any_label_can_be_the_ignored_one(ignore_index):
    logits, target = draw(20, 5)
    weight = torch.rand(5, dtype=torch.float64)
    for options in ({}, {"weight": weight}, {"label_smoothing": 0.2}, {"weight": weight, "label_smoothing": 0.2}):
        ours = noiseproof.CE(ignore_index=ignore_index, **options)(logits, target)
        torch.testing.assert_close(ours, F.cross_entropy(logits, target, ignore_index=ignore_index, **options))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_the_dtype_of_the_result_is_cross_entropys(dtype, reduction):
    logits, target = draw(6, 5, dtype=dtype)
    ours = noiseproof.CE(reduction=reduction)(logits, target)
    theirs = F.cross_entropy(logits, target, reduction=reduction)
    assert ours.dtype == theirs.dtype
    torch.testing.assert_close(ours, theirs, rtol=2 * torch.finfo(dtype).eps, atol=2 * torch.finfo(dtype).eps)


def test_a_masked_class_has_no_part_in_cross_entropy():
    logits, target = draw(6, 5)
    logits[:, 4] = -torch.inf
    target.clamp_max_(3)
    ours, our_gradient = value_and_gradient(noiseproof.CE(), logits, target)
    theirs, their_gradient = value_and_gradient(F.cross_entropy, logits, target)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(our_gradient, their_gradient)


def test_a_row_with_one_class_left_costs_nothing():
    logits = torch.tensor([[-torch.inf, 2.0, -torch.inf]])
    value, gradient = value_and_gradient(noiseproof.CE(), logits, torch.tensor([1]))
    assert value.item() == pytest.approx(0.0, abs=1e-30)
    assert bool((gradient.abs() < 1e-30).all())


@pytest.mark.parametrize("shape", [(6, 5), (6000, 5), (4, 5, 3), (5,)], ids=str)
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("name", ["ce", "jal-ce", "logitclip", "ogc"])
def test_an_unreduced_loss_may_be_changed_in_place_as_there(name, soft, shape):
    generator = torch.Generator().manual_seed(0)
    leaf = torch.randn(shape, dtype=torch.float64, generator=generator).requires_grad_()
    per_label = shape[:0] if len(shape) == 1 else shape[:1] + shape[2:]
    target = torch.randint(5, per_label, generator=generator)
    if soft:
        target = torch.softmax(torch.randn(shape, dtype=torch.float64, generator=generator), min(1, len(shape) - 1))
    keep = (torch.rand(per_label, generator=generator) < 0.5).double()
    loss = noiseproof.create_loss(name, reduction="none")
    (expected,) = torch.autograd.grad((loss(leaf, target) * keep).sum(), leaf)
    for function in (loss, lambda z, y: F.cross_entropy(z, y, reduction="none")):
        value = function(leaf, target)
        value *= keep
        (gradient,) = torch.autograd.grad(value.sum(), leaf)
        if function is loss:
            assert torch.equal(gradient, expected)


def test_an_ignored_index_with_probability_targets_is_refused_as_there():
    logits, _ = draw(4, 5)
    probabilities = torch.full((4, 5), 0.2, dtype=torch.float64)
    for index in (0, 2):
        with pytest.raises(RuntimeError):
            F.cross_entropy(logits, probabilities, ignore_index=index)
        with pytest.raises(ValueError, match="ignore_index does not apply to probability targets"):
            noiseproof.CE(ignore_index=index)(logits, probabilities)
    expected = F.cross_entropy(logits, probabilities, ignore_index=-1)  # names no class
    torch.testing.assert_close(noiseproof.CE(ignore_index=-1)(logits, probabilities), expected)


def test_one_class_is_refused():
    with pytest.raises(ValueError, match="at least 2 classes"):
        noiseproof.CE()(torch.zeros(4, 1), torch.zeros(4, dtype=torch.long))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("way", ["eager", "compiled"])
def test_class_weights_can_be_learned(way, frozen, reduction):
    """F.cross_entropy refuses weights with gradients and labels."""
    logits, target = draw(6, 5)
    target[2] = -100
    logits.requires_grad_(not frozen)
    weight = torch.rand(5, dtype=torch.float64, requires_grad=True)
    loss = noiseproof.CE(weight=weight, reduction=reduction)
    function = loss if way == "eager" else torch.compile(loss, fullgraph=True, backend="aot_eager")
    counts = target != -100
    scale = weight[target[counts]]
    rows = scale * -torch.log_softmax(logits, 1)[counts, target[counts]]
    expected = rows.sum() / (scale.sum() if reduction == "mean" else 1)
    leaves = [weight] if frozen else [weight, logits]
    ours, theirs = (torch.autograd.grad(value.sum(), leaves) for value in (function(logits, target), expected))
    torch.testing.assert_close(ours, theirs)


def test_a_weight_that_is_assigned_is_a_tensor_and_no_parameter():
    loss = noiseproof.JALCE()
    with pytest.raises(TypeError, match="weight is a buffer, not a parameter"):
        loss.weight = torch.nn.Parameter(torch.ones(3))
    loss.weight = torch.ones(3, requires_grad=True)
    loss(torch.zeros(2, 3), torch.tensor([0, 1])).backward()
    assert loss.weight.grad is not None


def test_weight_moves_with_the_module():
    loss = noiseproof.JALCE(weight=torch.ones(5))
    assert "weight" in loss.state_dict()
    assert loss.to(torch.float64).weight.dtype == torch.float64
    assert noiseproof.JALCE().state_dict() == {}


def test_repr_shows_a_weight():
    assert repr(noiseproof.CE(weight=torch.tensor([1.0, 0.5]))) == "CE(weight=[1.0, 0.5])"


def test_the_way_out_that_an_error_of_tensors_names_works():
    """Run as it is written there: the loss is then what the same numbers give in the shapes of F.cross_entropy."""
    loss = noiseproof.CE()
    z, target = torch.randn(4, 1, dtype=torch.float64), torch.tensor([0, 1, 1, 0])
    with pytest.raises(ValueError, match=r"2 classes, got shape \(4, 1\); of one logit z, .* two are (.*)$") as error:
        loss(z, target)
    two = eval(str(error.value).partition("the two are ")[2], {"torch": torch, "z": z})
    binary = F.binary_cross_entropy_with_logits(z[:, 0], target.double())
    torch.testing.assert_close(loss(two, target), binary)

    logits, target = torch.randn(4, 3, 7, dtype=torch.float64), torch.arange(28).reshape(4, 7) % 3
    wanted = F.cross_entropy(logits, target)
    for bad, wrong, way in (
        (logits.movedim(1, -1), target, "the classes come second: logits.movedim(-1, 1)"),
        (logits, target[:, None], "target.squeeze(1) has it"),
        (logits, target.double(), "of whole numbers, target.long()"),
        (logits, F.one_hot(target, 3).movedim(-1, 1), "of one-hot rows target.argmax(1) are the class indices"),
    ):
        with pytest.raises((TypeError, ValueError), match=f"; {re.escape(way)}$"):
            loss(bad, wrong)
        names = {"logits": bad, "target": wrong}
        for name in names:
            if call := re.search(rf"{name}\.\w+\([^)]*\)", way):
                names[name] = eval(call[0], {}, dict(names))
        torch.testing.assert_close(loss(names["logits"], names["target"]), wanted)
    with pytest.raises(TypeError, match=r"got torch.int64; logits \[K\] are those of one example$"):
        loss(torch.randn(4), torch.tensor([0, 1, 1, 0]))
    with pytest.raises(TypeError, match="weight must be a floating tensor, got ndarray"):
        noiseproof.CE(weight=np.ones(3))
