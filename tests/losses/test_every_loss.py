"""The promises that every loss of the catalogue keeps. A loss added to the catalogue is tested here without another line."""

import copy
import inspect
import io
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.autograd import gradcheck

import noiseproof
from noiseproof.losses.catalog import FAMILIES
from tests.helpers.cases import (
    DETACHED,
    DISTINCT,
    ENTRIES,
    NAMES,
    PAIRS,
    RANDOM,
    STATISTIC,
    all_options,
    build,
    call,
    draw,
    draws,
    gradient,
    parameters,
)
from tests.helpers.formulas import FORMULAS

EVERY = pytest.mark.parametrize("name", NAMES)
"""For what each class writes anew: its constructor, its formula, its place in the package."""
EACH = pytest.mark.parametrize("name", DISTINCT)
"""For what the rows of a loss promise, and every sum of such losses with them."""


@pytest.mark.parametrize(("name", "options"), [case for case in all_options() if case[0] in FORMULAS], ids=str)
@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("scale", [0.3, 6.0])
def test_it_equals_the_formula_of_its_paper(name, options, classes, scale):
    loss = build(name, classes, reduction="none", **options).double()
    logits, target = draw(8, classes, scale=scale)
    expected = [
        FORMULAS[name](z, y, **parameters(loss), **more)
        for z, y, more in zip(logits.numpy(), target.tolist(), draws(name, logits, target), strict=True)
    ]
    np.testing.assert_allclose(call(loss, logits, target).detach().numpy(), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("shift", [-14.0, -18.0, -34.0, -60.0])
def test_ldr_keeps_its_digits_where_softplus_is_small(shift):
    loss = build("ldr", 5, reduction="none", c=0.1, lam=1.0).double()
    logits, target = draw(8, 5, scale=2.0)
    expected = [FORMULAS["ldr"](z, y, c=0.1, lam=1.0) for z, y in zip((logits + shift).numpy(), target.tolist(), strict=True)]
    np.testing.assert_allclose(loss(logits + shift, target).numpy(), expected, rtol=1e-11)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", [name for name in NAMES if ENTRIES[name].reads == "features"])
def test_a_head_that_has_learned_equals_its_formula(name, training):
    """With degrees of freedom that differ between the classes, and more features than classes."""
    head = ENTRIES[name].cls(features=7, classes=5, reduction="none").double().train(training)
    with torch.no_grad():
        head.root_freedom.copy_(torch.linspace(0.5, 2.0, 5))
    features, _ = draw(8, 7)
    target = torch.arange(8) % 5
    expected = [FORMULAS[name](v, y, **parameters(head)) for v, y in zip(features.numpy(), target.tolist(), strict=True)]
    np.testing.assert_allclose(head(features, target).detach().numpy(), expected, rtol=1e-9)


def test_every_loss_of_the_package_has_an_independent_formula():
    shipped = {name for name, entry in ENTRIES.items() if entry.cls.__module__.rpartition(".")[2] in FAMILIES}
    assert shipped <= set(FORMULAS)


@pytest.mark.parametrize("name", PAIRS)
def test_a_pair_is_the_weighted_sum_of_its_parts(name):
    """And hands its parameters to them: alpha * first + beta * second, in value and gradient, whatever the options."""
    changed = {
        "alpha": 1.25,
        "beta": 0.75,
        "a": 3.5,
        "clip": 0.02,
        "gamma": 1.5,
        "m": 7.0,
        "minimum": 1e-3,
        "p": 2.5,
        "q": 1.75,
    }
    changed |= {"detach_focal": True, "offset": False}
    given = {parameter: changed[parameter] for parameter in ENTRIES[name].defaults}
    contract = {"reduction": "sum", "weight": torch.rand(5), "label_smoothing": 0.1, "ignore_index": 2}
    pair = build(name, 5, **given, **contract).double()
    parts = [part for _, part in pair.terms]
    for parameter in set(given) - {"alpha", "beta"}:
        assert {getattr(part, parameter) for part in parts if hasattr(part, parameter)} == {given[parameter]}
    first, second = (type(part)(**parameters(part), **contract).double() for part in parts)
    logits, target = draw(9, 5, scale=3.0)
    expected = 1.25 * first(logits, target) + 0.75 * second(logits, target)
    torch.testing.assert_close(pair(logits, target), expected)
    expected = 1.25 * gradient(first, logits, target) + 0.75 * gradient(second, logits, target)
    torch.testing.assert_close(gradient(pair, logits, target), expected)


@pytest.mark.parametrize(("name", "options"), all_options(), ids=str)
def test_its_constant_is_what_it_has_more_than_without_its_offset(name, options):
    loss = build(name, 5, **options).double()
    if not getattr(loss, "offset", False):
        assert loss.constant(5) == 0.0
        return
    logits, target = draw(8, 5)
    without = call(build(name, 5, **{**options, "offset": False}).double(), logits, target)
    assert loss.constant(5) == pytest.approx((call(loss, logits, target) - without).item())
    assert loss.constant(5) == (loss.a - 1) ** loss.q / 5 * getattr(loss, "beta", 1.0)


def test_a_loss_around_another_has_its_constant():
    inner = noiseproof.AMSE(a=3.0)  # 4/K
    assert noiseproof.LogitClip(base=inner).constant(8) == 0.5
    assert noiseproof.Student(features=3, classes=8, base=inner).constant(8) == 0.5
    assert (2 * noiseproof.CE() + 3 * inner).constant(8) == 1.5


@pytest.mark.parametrize(("name", "options"), all_options(DISTINCT), ids=str)
def test_its_gradient_is_its_derivative(name, options):
    if name in DETACHED:
        pytest.skip("weights that are constants to the gradient")
    loss = build(name, 4, **options).double()
    logits, target = draw(5, 4, scale=1.0)
    assert gradcheck(lambda z: call(loss, z, target), logits.requires_grad_())


@EACH
def test_its_second_derivative_is_right(name):
    if name in DETACHED:
        pytest.skip("weights that are constants to the gradient")
    loss = build(name, 4).double()
    logits, target = draw(3, 4, scale=1.0)
    assert torch.autograd.gradgradcheck(lambda z: call(loss, z, target), logits.requires_grad_())


@EACH
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_low_precision_costs_only_rounding(name, dtype):
    logits, target = draw(16, 10, scale=3.0, dtype=dtype)
    low = call(build(name, 10, reduction="none"), logits, target)
    exact = call(build(name, 10, reduction="none").double(), logits.double(), target)
    if name in RANDOM:
        return  # the coin of jnpl is drawn in the dtype of the statistics; the labels drawn are compared above
    tolerance = 2 * torch.finfo(dtype).eps
    torch.testing.assert_close(low.double(), exact, rtol=tolerance if dtype != torch.float32 else 2e-5, atol=1e-5)


@EACH
def test_adding_a_constant_to_the_logits_changes_nothing(name):
    loss = build(name, 6, reduction="none").double()
    logits, target = draw(7, 6)
    shifted = call(loss, logits + 37.5, target)
    same = bool(torch.allclose(shifted, call(loss, logits, target), rtol=1e-9))
    assert same == (ENTRIES[name].shift_invariant and ENTRIES[name].reads != "features")


@EACH
def test_the_gradient_of_a_row_sums_to_zero(name):
    if not ENTRIES[name].shift_invariant or ENTRIES[name].reads == "features":
        pytest.skip("adding a constant changes this loss")
    logits, target = draw(9, 7, scale=4.0)
    total = gradient(build(name, 7, reduction="none").double(), logits, target).sum(1)
    torch.testing.assert_close(total, torch.zeros_like(total), atol=1e-12, rtol=0)


@EACH
def test_renaming_the_classes_changes_nothing(name):
    if name in RANDOM or ENTRIES[name].reads == "features":
        pytest.skip("draws classes by index, or owns parameters per class")
    loss = build(name, 6, reduction="none").double()
    logits, target = draw(7, 6)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    renamed = call(loss, logits[:, order], torch.argsort(order)[target])
    torch.testing.assert_close(renamed, call(loss, logits, target))


@EACH
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.2])
def test_reduction_weight_and_smoothing_follow_cross_entropys_laws(name, weighted, label_smoothing):
    """The laws, applied to this loss's own values for every label; F.cross_entropy obeys the same (test_contract.py)."""
    if name in RANDOM:
        pytest.skip("draws anew for each label")
    classes = 5
    logits, target = draw(8, classes)
    target[2] = -100
    weight = torch.rand(classes, dtype=torch.float64) if weighted else None
    loss = build(name, classes).double()
    every = torch.stack(
        [call(build(name, classes, reduction="none").double(), logits, torch.full((8,), k)) for k in range(classes)], 1
    )
    scale = torch.ones(classes, dtype=torch.float64) if weight is None else weight
    kept = target != -100
    label = target.clamp_min(0)
    sharp = (1 - label_smoothing) * scale[label] * every.gather(1, label[:, None])[:, 0]
    rows = torch.where(kept, sharp + label_smoothing / classes * (every * scale).sum(1), 0.0)
    expected = {"none": rows, "sum": rows.sum(), "mean": rows.sum() / scale[label][kept].sum()}
    for reduction, value in expected.items():
        loss = build(name, classes, reduction=reduction, weight=weight, label_smoothing=label_smoothing).double()
        torch.testing.assert_close(call(loss, logits, target), value)


@EACH
def test_probability_targets_give_the_expected_loss(name):
    if name in RANDOM:
        pytest.skip("draws anew for each label")
    classes = 4
    logits, _ = draw(5, classes)
    probabilities = torch.softmax(torch.randn(5, classes, dtype=torch.float64), 1)
    loss = build(name, classes, reduction="none").double()
    every = torch.stack([call(loss, logits, torch.full((5,), k)) for k in range(classes)], 1)
    torch.testing.assert_close(call(loss, logits, probabilities), (every * probabilities).sum(1))
    weighted = build(name, classes, weight=torch.tensor([0.5, 2.0, 0.0, 1.0]), label_smoothing=0.1).double()
    smooth = 0.9 * probabilities + 0.1 / classes
    expected = (every * smooth * torch.tensor([0.5, 2.0, 0.0, 1.0])).sum() / 5
    torch.testing.assert_close(call(weighted, logits, probabilities), expected)


@EACH
def test_one_hot_probabilities_equal_labels(name):
    logits, target = draw(6, 5, scale=8.0)
    loss = build(name, 5, reduction="none").double()
    if name in RANDOM:
        pytest.skip("draws anew for each label")
    one_hot = F.one_hot(target, 5).double()
    torch.testing.assert_close(call(loss, logits, one_hot), call(loss, logits, target), rtol=1e-9, atol=1e-13)
    torch.testing.assert_close(gradient(loss, logits, one_hot), gradient(loss, logits, target), rtol=1e-7, atol=1e-12)


@EACH
def test_extra_dimensions_are_rows(name):
    logits, target = draw(2 * 3 * 4, 5)
    flat = build(name, 5, reduction="none").double()
    expected = call(flat, logits, target).reshape(2, 3, 4)
    shaped = logits.reshape(2, 3, 4, 5).movedim(-1, 1)
    torch.testing.assert_close(call(flat, shaped, target.reshape(2, 3, 4)), expected)
    single = call(flat, logits[0], target[0])
    assert single.shape == ()
    if name not in RANDOM:
        torch.testing.assert_close(single, expected[0, 0, 0])


@EACH
def test_ignored_rows_count_for_nothing(name):
    logits, target = draw(6, 5)
    target[[1, 4]] = -100
    loss = build(name, 5, reduction="none").double()
    rows = call(loss, logits, target)
    assert rows[[1, 4]].tolist() == [0.0, 0.0]
    assert bool((gradient(loss, logits, target)[[1, 4]] == 0).all())
    mean = call(build(name, 5).double(), logits, target)
    torch.testing.assert_close(mean, rows.sum() / 4)


@EACH
def test_nothing_to_average_is_nan_and_nothing_to_sum_is_zero(name):
    for logits, target in ((torch.zeros(3, 5), torch.full((3,), -100)), (torch.zeros(0, 5), torch.zeros(0, dtype=torch.long))):
        assert math.isnan(call(build(name, 5), logits, target).item())
        assert call(build(name, 5, reduction="sum"), logits, target).item() == 0.0
        assert call(build(name, 5, reduction="none"), logits, target).tolist() == [0.0] * len(logits)
        leaf = logits.clone().requires_grad_()
        call(build(name, 5, reduction="sum"), leaf, target).backward()
        assert bool((leaf.grad == 0).all())


@EACH
def test_nan_logits_propagate_and_spoil_no_other_row(name):
    logits, target = draw(4, 5, dtype=torch.float32)
    logits[1, 3] = math.nan
    rows = call(build(name, 5, reduction="none"), logits, target)
    assert torch.isnan(rows).tolist() == [False, True, False, False]


@EACH
@pytest.mark.parametrize("wrong", [-1, 5, 10**6])
def test_a_label_out_of_range_is_refused(name, wrong):
    logits, target = draw(4, 5)
    target[2] = wrong
    for options in ({}, {"label_smoothing": 0.1}, {"weight": torch.ones(5)}):
        with pytest.raises(IndexError, match=f"target must be in \\[0, 4\\] for 5 classes, got {wrong}"):
            build(name, 5, **options).double()(logits, target)


@EACH
def test_inputs_and_grad_mode_are_left_alone(name):
    logits, target = draw(6, 5, dtype=torch.float32)
    before = logits.clone(), target.clone()
    loss = build(name, 5)
    leaf = logits.requires_grad_()
    call(loss, leaf, target).backward()
    assert torch.equal(leaf, before[0])
    assert torch.equal(target, before[1])
    assert torch.is_grad_enabled()
    with torch.no_grad():
        assert not call(loss, leaf, target).requires_grad
        assert not torch.is_grad_enabled()
    with torch.inference_mode():
        call(loss, logits.detach().clone(), target)


@EACH
def test_views_and_other_strides_make_no_difference(name):
    logits, target = draw(6, 5)
    loss = build(name, 5, reduction="none").double()
    expected = call(loss, logits, target)
    columns_first = logits.T.contiguous().T
    every_second = torch.stack([logits, torch.zeros_like(logits)], 1).reshape(12, 5)[::2]
    for strided in (columns_first, every_second):
        torch.testing.assert_close(call(loss, strided, target), expected)
        torch.testing.assert_close(gradient(loss, strided, target), gradient(loss, logits, target))


@EVERY
def test_it_survives_pickling_and_copying(name):
    loss = build(name, 5, weight=torch.rand(5), reduction="sum", label_smoothing=0.1, ignore_index=3)
    logits, target = draw(6, 5, dtype=torch.float32)
    buffer = io.BytesIO()
    torch.save(loss, buffer)
    buffer.seek(0)
    for other in (copy.deepcopy(loss), torch.load(buffer, weights_only=False)):  # bytes written here
        assert repr(other) == repr(loss)
        torch.testing.assert_close(call(other, logits, target), call(loss, logits, target))


@EVERY
def test_its_repr_builds_it_again(name):
    loss = build(name, 5, reduction="sum", label_smoothing=0.25)
    again = eval(repr(loss), {entry.cls.__name__: entry.cls for entry in ENTRIES.values()})
    assert repr(again) == repr(loss)
    assert type(again) is type(loss)
    assert "reduction='sum'" in repr(loss)


@EVERY
def test_its_parameters_are_fixed_at_construction(name):
    loss = build(name, 5)
    for parameter in ENTRIES[name].defaults:
        if isinstance(getattr(loss, parameter), torch.nn.Module):
            continue
        with pytest.raises(AttributeError, match=f"{parameter} of {type(loss).__name__} is fixed at construction"):
            setattr(loss, parameter, 2.0)
    loss.reduction = "none"
    assert call(loss, *draw(6, 5, dtype=torch.float32)).shape == (6,)


@EACH
def test_under_autocast_the_result_is_what_cross_entropy_would_give(name):
    logits, target = draw(6, 5, dtype=torch.bfloat16)
    loss = build(name, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert call(loss, logits, target).dtype == F.cross_entropy(logits, target).dtype
        assert call(loss, logits.float(), target).dtype == F.cross_entropy(logits.float(), target).dtype


@EACH
def test_a_sum_with_itself_is_twice_the_loss(name):
    if name in RANDOM:
        pytest.skip("the two parts draw separately")
    logits, target = draw(6, 5)
    loss = build(name, 5, reduction="none").double()
    if loss.needs is None:
        with pytest.raises(TypeError, match="cannot be part of a sum"):
            loss + loss
        return
    twice = call(loss + loss, logits, target)
    torch.testing.assert_close(twice, 2 * call(loss, logits, target))
    torch.testing.assert_close(call(0.5 * loss + loss * 1.5, logits, target), twice)


@EACH
def test_every_integer_dtype_holds_labels(name):
    logits, target = draw(6, 5)
    loss = build(name, 5).double()
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32):
        torch.testing.assert_close(call(loss, logits, target.to(dtype)), call(loss, logits, target))


@EACH
def test_bad_tensors_are_refused_with_the_reason(name):
    loss = build(name, 5)
    logits, target = draw(4, 5, dtype=torch.float32)
    cases = [
        (TypeError, "logits must have a floating dtype, got torch.int64", logits.long(), target),
        (TypeError, "class-index targets must have an integer dtype, got torch.float32", logits, target.float()),
        (TypeError, "target must hold class indices or class probabilities, got torch.bool", logits, target > 2),
        (TypeError, "target must be a tensor, got list", logits, [0, 1, 2, 3]),
        (ValueError, "the target must have shape \\(4,\\)", logits, target[:3]),
        (ValueError, "the target must have shape \\(4,\\)", logits, torch.zeros(4, 6)),
        (TypeError, "class-probability targets must have a floating dtype", logits, torch.zeros(4, 5, dtype=torch.long)),
        (ValueError, "got a scalar", torch.tensor(1.0), torch.tensor(0)),
    ]
    for error, message, bad_logits, bad_target in cases:
        with pytest.raises(error, match=message):
            loss(bad_logits, bad_target)


@EACH
def test_bad_options_are_refused_at_construction(name):
    cases = [
        (ValueError, "reduction must be one of none, mean, sum, got 'average'", {"reduction": "average"}),
        (ValueError, "label_smoothing must be in \\[0, 1\\], got 1.5", {"label_smoothing": 1.5}),
        (TypeError, "ignore_index must be an integer, got 1.0", {"ignore_index": 1.0}),
        (ValueError, "weight must have shape \\[K\\]", {"weight": torch.ones(2, 3)}),
        (ValueError, "weight must be finite and not negative", {"weight": torch.tensor([1.0, -1.0])}),
        (TypeError, "weight must be a floating tensor", {"weight": torch.tensor([1, 2])}),
        (TypeError, "has no option 'gama'; it takes ", {"gama": 1.0}),
    ]
    for error, message, options in cases:
        with pytest.raises(error, match=message):
            build(name, 5, **options)
    with pytest.raises(ValueError, match="weight must have one entry per class: 5 classes, got 3"):
        build(name, 5, weight=torch.ones(3))(*draw(4, 5, dtype=torch.float32))


@EVERY
def test_every_number_is_checked(name):
    """No hyper-parameter accepts a string, a boolean in place of a number, NaN or infinity."""
    entry = ENTRIES[name]
    for parameter, default in entry.defaults.items():
        if isinstance(default, bool) or not isinstance(default, int | float):
            continue
        for bad in ("1", math.nan, math.inf, True):
            with pytest.raises((TypeError, ValueError), match=parameter):
                build(name, 5, **{parameter: bad})


@EVERY
def test_its_function_gives_the_same(name):
    entry = ENTRIES[name]
    function = getattr(noiseproof.functional, entry.function_name)
    loss = build(name, 5, reduction="none", label_smoothing=0.1)
    logits, target = draw(6, 5, dtype=torch.float32)
    learned = {"means": loss.means, "root_freedom": loss.root_freedom} if entry.reads == "features" else {}
    torch.manual_seed(2)
    value = function(logits, target, reduction="none", label_smoothing=0.1, **learned)
    torch.testing.assert_close(value, call(loss, logits, target))
    assert list(inspect.signature(function).parameters)[1] == "target"


@pytest.mark.parametrize("name", STATISTIC)
def test_it_declares_exactly_what_it_reads(name):
    loss = build(name, 5)
    assert loss.needs is not None
    statistics = noiseproof.core.statistics.row_statistics(*draw(4, 5), loss.needs)
    loss.from_statistics(statistics)
    for key in {need.key for need in loss.needs if need.key is not None}:
        missing = tuple(need for need in loss.needs if need.key != key)
        with pytest.raises(KeyError, match="is read but not declared"):
            loss.from_statistics(noiseproof.core.statistics.row_statistics(*draw(4, 5), missing))


@EVERY
def test_what_is_no_function_of_statistics_says_so(name):
    loss = build(name, 5)
    assert (loss.needs is None) == (ENTRIES[name].reads != "statistics")
    if loss.needs is None:
        with pytest.raises(TypeError, match="is not a function of row statistics"):
            loss.from_statistics(noiseproof.core.statistics.row_statistics(*draw(4, 5), ()))
