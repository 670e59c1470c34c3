"""A loss in a compiled function: one call that is recorded, noticed to be different when it is, and what it records."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F

import noiseproof
from noiseproof.core import small
from noiseproof.core.dispatch_state import Recording
from noiseproof.core.statistics import RowStatistics
from noiseproof.losses.fused import keep_for_compiler, programs_of, recorded_call
from noiseproof.program.code import compiled as as_function
from noiseproof.program.code import decoded, encoded, evaluated
from tests.helpers.cases import RANDOM, STATISTIC, all_options, build, call, draw


def compiled(loss, backend="aot_eager"):
    return torch.compile(loss, fullgraph=True, backend=backend)


def both(function, loss, logits, target):
    """Value and gradient of each."""
    results = []
    for f in (function, loss):
        leaf = logits.clone().requires_grad_()
        value = f(leaf, target)
        up = torch.rand(value.shape, generator=torch.Generator().manual_seed(1)).to(value)
        results.append((value.detach(), *torch.autograd.grad(value, leaf, up)))
    return results


def recorded(loss):
    """What a compiler records, run as it is."""
    if not keep_for_compiler(loss, loss._full_cache_key()):
        return loss
    return lambda logits, target: recorded_call(logits, target, loss.weight, loss._full_cache_key())


@pytest.mark.parametrize("name", sorted(RANDOM))
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_loss_that_draws_is_compiled_for_batches_of_any_size(name, smoothing):
    loss = build(name, 5, label_smoothing=smoothing)
    torch.compiler.reset()
    function = compiled(loss)
    for rows in (6, 4, 9, 1):
        logits, target = draw(rows, 5, dtype=torch.float32)
        torch.testing.assert_close(call(function, logits, target), call(loss, logits, target))


def test_what_is_changed_after_compiling_is_noticed():
    logits, target = draw(6, 5, dtype=torch.float32)
    target[1] = -100
    loss = 1.0 * noiseproof.NCE() + 1.0 * noiseproof.AMSE(a=3.0)
    torch.compiler.reset()
    function = compiled(loss, backend="eager")
    changes = (
        lambda: None,
        lambda: setattr(loss, "reduction", "none"),
        lambda: setattr(loss, "ignore_index", int(target[0])),
        lambda: setattr(loss, "label_smoothing", 0.1),
        lambda: setattr(loss, "coefficients", (1.0, 3.0)),
        lambda: loss.losses.__setitem__(1, noiseproof.AMSE(a=7.0)),
        lambda: setattr(loss, "weight", torch.rand(5)),
        lambda: loss.weight.mul_(2.0),
    )
    seen = []
    for change in changes:
        change()
        labels = target if loss.ignore_index == -100 else target.clamp_min(0)
        ours, theirs = both(function, loss, logits, labels)
        torch.testing.assert_close(ours, theirs)
        assert all(ours[0].shape != value.shape or not torch.equal(ours[0], value) for value in seen)
        seen.append(ours[0])


def test_what_is_set_in_a_compiled_function_counts_there_and_afterwards():
    """A coefficient that follows the training, say."""
    logits, target = draw(6, 5, dtype=torch.float32)
    loss = 1.0 * noiseproof.NCE() + 1.0 * noiseproof.MAE()
    nce, mae = (part(logits, target) for part in loss.losses)

    def step(coefficient):
        loss.coefficients = (1.0, coefficient)
        return loss(logits, target)

    torch.compiler.reset()
    function = torch.compile(step, fullgraph=True, backend="eager")
    for coefficient in (2.0, 3.0, 4.0):
        torch.testing.assert_close(function(coefficient), nce + coefficient * mae)
        torch.testing.assert_close(loss(logits, target), nce + coefficient * mae)
        torch.testing.assert_close(compiled(loss, backend="eager")(logits, target), nce + coefficient * mae)


def test_a_loss_whose_coefficients_are_in_a_list_is_not_taken_for_another():
    logits, target = draw(6, 5, dtype=torch.float32)
    torch.compiler.reset()
    for coefficient in (2.0, 3.0):
        loss = 1.0 * noiseproof.NCE() + 1.0 * noiseproof.MAE()
        nce, mae = (part(logits, target) for part in loss.losses)
        loss.coefficients = [1.0, coefficient]
        torch.testing.assert_close(compiled(loss, backend="eager")(logits, target), nce + coefficient * mae)


def test_a_part_that_is_no_longer_the_packages_own_is_read_again():
    logits, target = draw(6, 5, dtype=torch.float32)
    loss = 1.0 * noiseproof.NCE() + 1.0 * noiseproof.MAE()
    torch.compiler.reset()
    function = compiled(loss)
    before = function(logits, target)
    loss.losses[1].from_statistics = lambda s: s.p_others
    torch.testing.assert_close(function(logits, target), loss(logits, target))
    assert not torch.equal(before, loss(logits, target))


def test_equal_losses_share_what_is_compiled_and_others_do_not():
    logits, target = draw(6, 5, dtype=torch.float32)
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    loss = noiseproof.JALCE(a=9.0)
    changed = noiseproof.JALCE(a=9.0, reduction="sum")
    changed.reduction = "mean"
    for equal in (loss, noiseproof.JALCE(a=9.0), copy.deepcopy(loss), pickle.loads(pickle.dumps(loss)), changed):
        compiled(equal)(logits, target)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    other = noiseproof.JALCE(a=8.0)
    torch.testing.assert_close(compiled(other)(logits, target), other(logits, target))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2


def test_a_call_checks_the_loss_and_nothing_that_it_is_made_of():
    logits, target = draw(6, 5, dtype=torch.float32)
    torch.compiler.reset()
    compiled(noiseproof.JALCE())(logits, target)
    code = noiseproof.RobustLoss.forward.__code__
    (entry,) = torch._dynamo.eval_frame._debug_get_cache_entry_list(code)
    text = str(entry.guard_manager)
    assert "_cache_key" in text
    assert not [module for module in ("core", "program") if f"noiseproof_dot_{module}" in text]


@pytest.mark.parametrize("name", ["jal-fl", "mae"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_in_every_dtype_it_records_what_the_loss_is(name, dtype):
    logits, target = draw(6, 5, dtype=dtype)
    target[1] = -100
    for loss in (build(name), build(name, weight=torch.rand(5), reduction="none")):
        (value, gradient), (expected, theirs) = both(recorded(loss), loss, logits, target)
        torch.testing.assert_close(value, expected)
        torch.testing.assert_close(gradient, theirs)


@pytest.mark.parametrize("rows", [7, 7000])
def test_a_mean_in_float64_has_a_gradient_with_all_its_digits(rows):
    logits, target = draw(rows, 3, dtype=torch.float64)
    (value, gradient), (expected, theirs) = both(recorded(noiseproof.CE()), F.cross_entropy, logits, target)
    torch.testing.assert_close(value, expected, rtol=1e-13, atol=0)
    torch.testing.assert_close(gradient, theirs, rtol=1e-13, atol=1e-18)


def test_a_gradient_too_small_for_float16_is_scaled_before_it_is_rounded():
    logits, target = torch.tensor([[14.0, 0.0, 0.0]], dtype=torch.float16, requires_grad=True), torch.tensor([0])
    scale = torch.tensor(2.0**15, dtype=torch.float16)
    (gradient,) = torch.autograd.grad(recorded(build("ce"))(logits, target), logits, scale)
    exact = torch.softmax(logits.detach().double(), 1) - torch.tensor([1.0, 0.0, 0.0])
    torch.testing.assert_close(gradient.double(), exact * 2.0**15, rtol=1e-3, atol=0.0)


@pytest.mark.parametrize("largest", [small.MAX_SMALL_BATCH, 0], ids=["small", "large"])
def test_ignored_rows_and_masked_classes_are_recorded_too(largest, monkeypatch):
    monkeypatch.setattr(small, "MAX_SMALL_BATCH", largest)
    logits, target = draw(8, 5)
    for name in ("jal-fl", "anl-ce", "gce"):
        loss = build(name)
        nothing = torch.full_like(target, -100)
        leaf = logits.clone().requires_grad_()
        value = recorded(loss)(leaf, nothing)
        assert value.isnan()
        assert not torch.autograd.grad(value, leaf)[0].any()
        masked = logits.clone()
        masked[:, 4] = -torch.inf
        torch.testing.assert_close(*both(recorded(loss), loss, masked, target.clamp_max(3)), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("name", "options"), all_options(STATISTIC), ids=str)
@pytest.mark.parametrize("largest", [small.MAX_SMALL_BATCH, 0], ids=["small", "large"])
def test_what_is_recorded_is_the_loss(name, options, largest, monkeypatch):
    monkeypatch.setattr(small, "MAX_SMALL_BATCH", largest)
    logits, target = draw(8, 7)
    loss = build(name, 7, **options)
    ours, theirs = both(recorded(loss) if loss._full_cache_key() else loss, loss._by_autograd, logits, target)
    torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("name", STATISTIC)
def test_a_program_is_the_same_as_text_and_step_by_step(name):
    loss = build(name)
    loss(*draw())
    for formula in filter(None, programs_of(loss).made.values()):
        program = formula.program
        assert decoded(encoded(program)) == program
        rows = [torch.rand(16, dtype=torch.float64) + 0.1 for _ in range(program.arity)]
        (value, row_grads), (expected, theirs) = evaluated(program, rows), as_function(program, torch.float64)(*rows)
        torch.testing.assert_close(value, expected, equal_nan=True)
        for mine, their in zip(row_grads, theirs, strict=True):
            torch.testing.assert_close(torch.as_tensor(mine), torch.as_tensor(their), equal_nan=True, check_dtype=False)


def test_torch_func_transforms_compile():
    logits, target = draw(4, 5, dtype=torch.float32)
    loss = noiseproof.JALCE()
    torch.compiler.reset()
    each = torch.func.vmap(torch.func.grad(lambda z, y: loss(z, y)))
    torch.testing.assert_close(torch.compile(each, backend="aot_eager")(logits, target), each(logits, target))


def test_a_loss_of_ones_own_is_compiled_by_being_read():
    class Mine(noiseproof.MAE):
        def from_statistics(self, s: RowStatistics):
            return 3 * s.p_others

    logits, target = draw(6, 5, dtype=torch.float32)
    torch.compiler.reset()
    for loss in (Mine(), Mine() + noiseproof.CE()):
        assert loss._full_cache_key() is None
        torch.testing.assert_close(*both(compiled(loss), loss, logits, target))


def test_recording_ends_where_it_ends():
    logits, target = draw(6, 5)
    with pytest.raises(ValueError, match="the target must have shape"), Recording():
        noiseproof.CE()(logits, target[:2])
    with pytest.raises(IndexError):  # a look at the values again
        noiseproof.CE()(logits, target.fill_(9))
