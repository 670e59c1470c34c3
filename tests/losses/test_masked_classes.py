"""A class whose logit is -inf is masked: probability 0, no place in any sum, no gradient; K stays the number of columns."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import noiseproof
from noiseproof.core import reference, small
from noiseproof.core.operation import statistics_of_rows
from noiseproof.core.row_sums import plain_statistics
from noiseproof.core.statistics import Statistic, every_label_statistics, row_statistics
from tests.helpers.cases import (
    DETACHED,
    DISTINCT,
    ENTRIES,
    NAMES,
    RANDOM,
    all_options,
    build,
    call,
    draw,
    draws,
    gradient,
    parameters,
)
from tests.helpers.formulas import FORMULAS

ON_LOGITS = [name for name in NAMES if ENTRIES[name].reads != "features"]
EACH = [name for name in ON_LOGITS if name in DISTINCT]
MASKS = {2: [1], 3: [0], 6: [2, 5], 100: list(range(4, 97))}
"""By the number of columns: from one class left to many masked."""
UNBOUNDED = {"ce", "fl", "sce", "negative-ls", "ece", "efl", "ece+mae", "efl+mae", "logitclip", "ce+lc", "sr"}


def masked(classes, dtype=torch.float64, rows=6):
    """Logits with masked classes, labels among the others, and which those are."""
    logits, target = draw(rows, classes, scale=3.0, dtype=dtype)
    left = [k for k in range(classes) if k not in MASKS[classes]]
    logits[:, MASKS[classes]] = -math.inf
    return logits, torch.tensor(left)[target % len(left)], left


@pytest.mark.parametrize(("name", "options"), [case for case in all_options(ON_LOGITS) if case[0] in FORMULAS], ids=str)
@pytest.mark.parametrize("classes", [3, 6, 100])
def test_a_masked_class_is_as_if_it_were_not_there(name, options, classes):
    """Against the papers' formulas on the classes that are left, K being the number of columns."""
    loss = build(name, classes, reduction="none", **options).double()
    logits, target, left = masked(classes)
    expected = []
    for z, y, more in zip(logits.numpy(), target.tolist(), draws(name, logits, target), strict=True):
        if "complement" in more and more["complement"] not in left:  # nothing is learned from it, as 1 - p_c is 1
            positive = more.get("kept", False) and FORMULAS["jnpl"](z[left], left.index(y), complement=0, kept=True, lam=1.0)
            less = positive and FORMULAS["jnpl"](z[left], left.index(y), complement=0, kept=False, lam=1.0)
            expected.append((positive - less) * getattr(loss, "lam", 0.0))
            continue
        if "complement" in more:
            more["complement"] = left.index(more["complement"])
        expected.append(FORMULAS[name](z[left], left.index(y), **parameters(loss), **more, columns=classes))
    np.testing.assert_allclose(call(loss, logits, target).detach().numpy(), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("name", EACH)
def test_the_others_get_their_derivative_and_the_masked_class_none(name, soft):
    classes = 6
    logits, target, left = masked(classes, rows=3)
    loss = build(name, classes).double()
    if soft:
        target = torch.softmax(logits, 1)
    index = torch.tensor(left)

    def of_left(z):
        return call(loss, torch.full_like(logits, -math.inf).index_copy(1, index, z), target)

    kept = logits[:, left].requires_grad_()
    if name not in DETACHED:  # weights that are constants to the gradient
        assert torch.autograd.gradcheck(of_left, kept)
    whole = gradient(loss, logits, target)
    torch.testing.assert_close(whole[:, left], torch.autograd.grad(of_left(kept), kept)[0])
    assert not whole[:, MASKS[classes]].any()


@pytest.mark.parametrize("limit", [small.MAX_SMALL_BATCH, 0], ids=["small", "large"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("name", ON_LOGITS)
def test_the_gradient_of_a_masked_class_is_exactly_0(name, dtype, limit, monkeypatch):
    """Labels, class probabilities and smoothing; one class left, and classes that are far behind."""
    monkeypatch.setattr(small, "MAX_SMALL_BATCH", limit)
    for classes, scale in ((2, 1.0), (3, 30.0), (6, 1.0), (100, 30.0)):
        logits, target = draw(6, classes, scale=scale, dtype=dtype)
        out = torch.rand(logits.shape, generator=torch.Generator().manual_seed(classes)) < 0.4
        out[0] = True
        out[torch.arange(6), target] = False
        logits[out] = -math.inf
        soft = torch.softmax(logits.double(), 1)
        for wanted, options in (
            (target, {}),
            (soft, {}),
            (target, {"label_smoothing": 0.1}),
            (target, {"label_smoothing": 1.0}),
        ):
            loss = build(name, classes, **options)
            assert not gradient(loss, logits, wanted)[out].any(), (classes, options)
            if wanted is target and not options and loss.needs is not None:
                leaf = logits.clone().requires_grad_()
                noiseproof.GradientInForward(loss)(leaf, target).backward()
                assert not leaf.grad[out].any()


@pytest.mark.parametrize("name", EACH)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_values_and_gradients_are_finite_whatever_is_masked(name, dtype):
    for classes in MASKS:
        logits, target, _ = masked(classes, dtype)
        for options in ({}, {"label_smoothing": 0.1}, {"weight": torch.rand(classes)}):
            loss = build(name, classes, reduction="none", **options)
            for wanted in (target, torch.softmax(logits.float(), 1)):
                assert bool(torch.isfinite(call(loss, logits, wanted)).all()), (classes, options)
                assert bool(torch.isfinite(gradient(loss, logits, wanted)).all()), (classes, options)


@pytest.mark.parametrize("name", [name for name in ON_LOGITS if name not in RANDOM])  # which learn from another class
@pytest.mark.parametrize("classes", [3, 6, 100])
def test_a_label_that_is_masked_has_the_loss_at_probability_0_and_gives_no_gradient(name, classes):
    loss = build(name, classes, reduction="none").double()
    logits, *_ = masked(classes)
    target = torch.full((len(logits),), MASKS[classes][0])
    value = call(loss, logits, target)
    if name in UNBOUNDED:
        assert bool((value == math.inf).all())
    else:
        near = logits.index_fill(1, target[:1], -1e9)  # probability 0 to the last digit, and in no sum but the label's
        torch.testing.assert_close(value, call(loss, near, target), rtol=1e-6, atol=1e-9)
    assert float(gradient(loss, logits, target).abs().max()) < 1e-15
    one_hot = F.one_hot(target, classes).double()
    torch.testing.assert_close(call(loss, logits, one_hot), value)


def test_cross_entropy_of_a_masked_label_is_infinite_as_in_torch():
    logits, _, _ = masked(6)
    target = torch.full((6,), 2)
    assert math.isinf(noiseproof.CE()(logits, target).item())
    assert math.isinf(F.cross_entropy(logits, target).item())


@pytest.mark.parametrize("name", EACH)
def test_a_masked_class_does_not_disturb_ignored_rows_and_other_rows(name):
    """An ignored row is computed with label 0, which may be masked there."""
    logits, target = draw(4, 6)
    logits[1, 0], target[1] = -math.inf, -100
    loss = build(name, 6, reduction="none").double()
    plain, _ = draw(4, 6)
    assert bool(torch.isfinite(call(loss, logits, target)).all())
    ours = gradient(loss, logits, target)
    assert ours[1].abs().max() == 0
    torch.testing.assert_close(ours, gradient(loss, plain, target))


def test_smoothing_leaves_masked_classes_out():
    """s/K to each of the K columns that is not masked; torch's would be infinite."""
    logits, target, left = masked(6)
    nll = -torch.log_softmax(logits, 1)
    expected = 0.7 * nll.gather(1, target[:, None])[:, 0] + 0.3 / 6 * nll[:, left].sum(1)
    torch.testing.assert_close(noiseproof.CE(label_smoothing=0.3, reduction="none")(logits, target), expected)
    torch.testing.assert_close(noiseproof.NegativeLS(r=0.3, reduction="none")(logits, target), expected)
    soft = F.one_hot(target, 6).double()
    torch.testing.assert_close(noiseproof.CE(label_smoothing=0.3, reduction="none")(logits, soft), expected)


@pytest.mark.parametrize("weight", [None, torch.tensor([1.0, 2.0, 0.0, 1.0, 1.0, 3.0])])
@pytest.mark.parametrize("name", EACH)
def test_a_smoothing_of_1_leaves_nothing_of_the_label_even_if_it_is_masked(name, weight):
    if name in RANDOM:
        pytest.skip("draws anew for each label")
    logits, _, left = masked(6)
    loss = build(name, 6, label_smoothing=1.0, reduction="none", weight=weight).double()
    each = build(name, 6, reduction="none", weight=weight).double()
    expected = sum(call(each, logits, torch.full((6,), k)) for k in left) / 6
    for label in (2, 0):
        target = torch.full((6,), label)
        torch.testing.assert_close(call(loss, logits, target), expected)
        assert bool(torch.isfinite(gradient(loss, logits, target)).all())


def test_rows_without_any_class_are_nan():
    logits = torch.full((2, 4), -math.inf)
    logits[1] = 0.0
    assert torch.isnan(noiseproof.JALCE(reduction="none")(logits, torch.tensor([0, 0]))).tolist() == [True, False]


@pytest.mark.parametrize("name", EACH)
@pytest.mark.parametrize("classes", [2, 6, 100])
def test_a_device_that_must_not_look_gives_what_the_cpu_gives(name, classes, monkeypatch):
    """There masks are always left out; here that is done on the CPU."""
    cases = [masked(classes, torch.float32)[:2], draw(6, classes, scale=3.0, dtype=torch.float32)]
    expected = []
    for unseen in (False, True):
        if unseen:
            monkeypatch.setattr(reference, "on_cpu", lambda tensor: False)
        loss = build(name, classes, reduction="none")
        found = [(call(loss, *case), gradient(loss, *case)) for case in cases]
        expected = expected or found
        torch.testing.assert_close(found, expected, rtol=2e-6, atol=1e-9)


NEEDS = (
    Statistic.NLL_SUM,
    Statistic.SQ_SUM,
    Statistic.power_sum(0.5),
    Statistic.focal_sum(0.5),
    Statistic.clipped_focal_sum(0.5, 1e-3),
)


@pytest.mark.parametrize("classes", [3, 6, 100])
def test_the_statistics_of_every_label_and_the_plain_definition_leave_it_out_too(classes):
    logits, target, left = masked(classes)
    keys = [need.key for need in NEEDS]
    needs_key = ";".join(keys)
    leaf = logits.clone().requires_grad_()
    ours, plain = torch.stack(statistics_of_rows(leaf, target, needs_key)), plain_statistics(leaf, target, needs_key)
    torch.testing.assert_close(ours, plain)
    torch.testing.assert_close(torch.autograd.grad(ours.sum(), leaf), torch.autograd.grad(plain.sum(), leaf))
    alone = statistics_of_rows(logits[:, left], torch.tensor([left.index(y) for y in target]), needs_key)
    torch.testing.assert_close(ours.detach(), torch.stack(alone))
    every = every_label_statistics(logits, NEEDS)
    for label in (left[0], left[-1], MASKS[classes][0]):
        one = row_statistics(logits, torch.full_like(target, label), NEEDS)
        torch.testing.assert_close(every.nll[:, label], one.nll)
        for key in keys:
            torch.testing.assert_close(every.sums[key][:, label], one.sums[key], rtol=1e-7, atol=1e-9)
