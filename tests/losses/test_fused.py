"""Losses run as programs where they can: the same values and gradients, and never those of a loss that has changed since."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F

import noiseproof
from noiseproof.core import small
from noiseproof.core.statistics import RowStatistics, needs_key_of, statistics_of
from noiseproof.losses import fused
from noiseproof.losses.fused import programs_of, signature
from noiseproof.program import Node, Program, traced
from noiseproof.program.code import OPERATIONS, Builder, compiled, decoded, encoded
from tests.helpers.cases import ENTRIES, STATISTIC, all_options, build, draw

WITHOUT = {"ogc", "logit-bias"}
"""One has a threshold that follows the training, the other an operation that programs do not have."""


def program_of(loss, classes=7, dtype=torch.float64):
    keys, _ = needs_key_of(loss.needs)
    return traced(lambda rows: loss.from_statistics(statistics_of(rows, keys, classes)), 2 + len(keys), dtype)


def has_program(loss):
    return any(programs_of(loss).made.values())


def both(loss, logits, target):
    """Value and gradient in one step, and by autograd."""
    leaf = logits.clone().requires_grad_()
    value, expected = loss(leaf, target), loss._by_autograd(leaf, target)
    up = torch.rand(value.shape, dtype=value.dtype, generator=torch.Generator().manual_seed(1))
    return [(v, torch.autograd.grad(v, leaf, up)[0]) for v in (value, expected)]


@pytest.mark.parametrize("name", STATISTIC)
def test_every_loss_of_statistics_runs_as_a_program(name):
    loss = build(name)
    loss(*draw(dtype=torch.float32))
    assert has_program(loss) == (name not in WITHOUT)


def check_program(loss):
    """Values and row_grads, against the loss's own formula and autograd."""
    keys, _ = needs_key_of(loss.needs)
    generator = torch.Generator().manual_seed(0)
    rows = [torch.rand(64, dtype=torch.float64, generator=generator) * 4 + 1e-3 for _ in range(2 + len(keys))]
    rows[1] = torch.log(-torch.expm1(-rows[0]))
    leaves = [row.requires_grad_() for row in rows]
    expected = loss.from_statistics(statistics_of(leaves, keys, 7))
    row_grads = torch.autograd.grad(expected.sum(), leaves, allow_unused=True)
    value, ours = compiled(program_of(loss), torch.float64)(*[leaf.detach() for leaf in leaves])
    torch.testing.assert_close(value, expected.detach(), rtol=1e-12, atol=1e-14, msg=lambda text: f"{loss}: {text}")
    for mine, slope in zip(ours, row_grads, strict=True):
        wanted = torch.zeros_like(value) if slope is None else slope
        found = torch.as_tensor(mine, dtype=value.dtype).expand_as(wanted)
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-14, msg=lambda text: f"{loss}: {text}")


@pytest.mark.parametrize(("name", "options"), [case for case in all_options(STATISTIC) if case[0] not in WITHOUT], ids=str)
def test_a_program_gives_the_values_and_slopes_of_its_loss(name, options):
    check_program(build(name, **options))


@pytest.mark.parametrize("name", [name for name in STATISTIC if name not in WITHOUT])
def test_a_program_is_that_of_its_loss_with_any_whole_number_for_a_parameter(name):
    """Which is what people write, and what the numbers of registers are."""
    for parameter in (key for key, value in ENTRIES[name].defaults.items() if type(value) in (int, float)):
        for number in range(-3, 25):
            try:
                loss = build(name, **{parameter: type(ENTRIES[name].defaults[parameter])(number)})
            except ValueError:  # out of the parameter's range
                continue
            check_program(loss)


@pytest.mark.parametrize("first", ["nce", "nfl", "nnce", "ce", "agce"])
def test_a_coefficient_is_never_taken_for_the_register_of_its_number(first):
    """Of a whole number Python says that both are equal; in some expression or other each of the small ones meets its own."""
    logits, target = draw(8, 7)

    def gradient(loss):
        leaf = logits.clone().requires_grad_()
        return torch.autograd.grad(loss(leaf, target), leaf)[0]

    second = noiseproof.AMSE(a=3.0)
    one, other = gradient(build(first)), gradient(second)
    for c in range(-30, 31):
        for loss, expected in ((c * build(first) + second, c * one + other), (build(first) + c * second, one + c * other)):
            torch.testing.assert_close(gradient(loss), expected, rtol=1e-9, atol=1e-12)


def test_programs_that_differ_in_a_register_or_a_number_are_two():
    """As two losses may, whose programs are found again by what they are."""
    double, square = (Program(2, (Node("mul", (0, second)),), 2, (2.0, 0.0)) for second in (1.0, 1))
    assert double != square
    assert len({double, square, decoded(encoded(double))}) == 2
    row = torch.tensor([3.0]), torch.tensor([5.0])
    assert [compiled(program, torch.float32)(*row)[0].item() for program in (double, square)] == [3.0, 15.0]
    assert not Program(2, (), 0, (1.0, 0.0)).reads(1)  # cross entropy, whose slope is the number 1


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("largest", [small.MAX_SMALL_BATCH, 0], ids=["small", "large"])
@pytest.mark.parametrize("name", ["ce", "gce", "mae", "jal-ce", "anl-fl"])
def test_a_step_is_the_loss_by_autograd(name, largest, reduction, monkeypatch):
    monkeypatch.setattr(small, "MAX_SMALL_BATCH", largest)
    monkeypatch.setattr("noiseproof.core.reference.CPU_CHUNK", 21)  # three rows of seven
    logits, target = draw(8, 7)
    some = target.clone()
    some[[0, 4]] = -100
    for labels, options in ((target, {}), (some, {}), (some, {"weight": torch.rand(7)}), (target, {"ignore_index": 3})):
        loss = build(name, 7, reduction=reduction, **options)
        (value, gradient), (expected, theirs) = both(loss, logits, labels)
        assert has_program(loss)
        torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(gradient, theirs, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("largest", [small.MAX_SMALL_BATCH, 0], ids=["small", "large"])
def test_of_no_row_that_counts_the_mean_is_nan_and_the_gradient_0(largest, monkeypatch):
    monkeypatch.setattr(small, "MAX_SMALL_BATCH", largest)
    for name in ("ce", "jal-ce"):
        logits, target = draw(8, 7)
        leaf = logits.requires_grad_()
        value = build(name, 7)(leaf, torch.full_like(target, -100))
        assert value.isnan()
        assert not torch.autograd.grad(value, leaf)[0].any()
        assert build(name, 7)(logits[:0], target[:0]).isnan()


@pytest.mark.parametrize("largest", [small.MAX_SMALL_BATCH, 0], ids=["small", "large"])
@pytest.mark.parametrize("name", ["ce", "jal-ce"])
def test_a_step_can_be_differentiated_again_and_again(name, largest, monkeypatch):
    monkeypatch.setattr(small, "MAX_SMALL_BATCH", largest)
    logits, target = draw(8, 7)
    loss, leaf = build(name, 7), logits.requires_grad_()
    value = loss(leaf, target)
    first, second = (torch.autograd.grad(value, leaf, torch.tensor(0.5), retain_graph=True)[0] for _ in range(2))
    torch.testing.assert_close(first, second, rtol=1e-12, atol=0.0)
    (graph,) = torch.autograd.grad(value, leaf, torch.tensor(0.5), create_graph=True)
    torch.testing.assert_close(graph, first, rtol=1e-12, atol=1e-15)
    curvature, expected = (
        torch.autograd.grad(gradient.square().sum(), leaf)[0]
        for gradient in (graph, torch.autograd.grad(0.5 * loss._by_autograd(leaf, target), leaf, create_graph=True)[0])
    )
    torch.testing.assert_close(curvature, expected)


def test_what_is_given_to_backward_twice_is_not_changed_by_the_first():
    """A gradient that the caller scales in place is not the one that the next call starts from."""
    logits, target = draw(300, 70, dtype=torch.float32)
    leaf = logits.requires_grad_()
    value = build("ce")(leaf, target)
    (first,) = torch.autograd.grad(value, leaf, retain_graph=True)
    kept = first.clone()
    first.mul_(2)
    torch.testing.assert_close(torch.autograd.grad(value, leaf)[0], kept)


@pytest.mark.parametrize("rows", [6, 6000])
def test_weights_that_are_changed_in_place_before_the_gradient_are_an_error_as_in_torch(rows):
    """A gradient with a graph, or a second one, is computed from them."""
    for function in (noiseproof.functional.gce, F.cross_entropy):
        logits, target = draw(rows, 5, dtype=torch.float32)
        weight, leaf = torch.ones(5), logits.requires_grad_()
        value = function(leaf, target, weight=weight)
        weight[0] = 2.0
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            torch.autograd.grad(value, leaf, create_graph=True)


@pytest.mark.parametrize("name", ["gce", "jal-ce"])
@pytest.mark.parametrize("rows", [6, 6000])
def test_a_gradient_is_of_the_call_as_it_was_whatever_the_loss_is_set_to_since(name, rows):
    logits, target = draw(rows, 5)
    loss, leaf = build(name, weight=torch.rand(5).double() + 0.1), logits.requires_grad_()
    value = loss(leaf, target)
    loss.reduction, loss.ignore_index, loss.label_smoothing, loss.weight = "none", 1, 0.1, None
    (first,) = torch.autograd.grad(value, leaf, retain_graph=True)
    (second,) = torch.autograd.grad(value, leaf, retain_graph=True)
    (with_graph,) = torch.autograd.grad(value, leaf, create_graph=True)
    for gradient in (second, with_graph):
        torch.testing.assert_close(gradient, first, rtol=1e-12, atol=1e-15)


def test_a_label_out_of_range_is_refused_as_ever():
    logits, target = draw(8, 7)
    target[2] = 7
    for shape in (logits, logits.repeat(1, 400)):
        with pytest.raises(IndexError, match=r"target must be in \[0, "):
            build("jal-ce")(shape, torch.where(target == 7, shape.shape[1], target))


def test_a_sum_that_is_changed_runs_its_new_program():
    logits, target = draw()
    loss = 1.0 * noiseproof.NCE() + 1.0 * noiseproof.MAE()
    nce, mae = (part(logits, target) for part in loss.losses)
    torch.testing.assert_close(loss(logits, target), nce + mae)
    loss.coefficients = (1.0, 3.0)
    torch.testing.assert_close(loss(logits, target), nce + 3 * mae)
    loss.losses[0] = noiseproof.MAE()
    torch.testing.assert_close(loss(logits, target), 4 * mae)
    loss.losses[1].from_statistics = lambda s: s.p_others  # half of what it was
    torch.testing.assert_close(loss(logits, target), (1 + 1.5) * mae)


def test_a_sum_whose_coefficients_are_in_a_list_is_what_the_list_says():
    """Also when an item of it is set, which no loss can notice."""
    logits, target = draw()
    loss = 1.0 * noiseproof.NCE() + 1.0 * noiseproof.MAE()
    nce, mae = (part(logits, target) for part in loss.losses)
    for coefficients in ([1.0, 2.0], [1.0, 3.0]):
        loss.coefficients = coefficients
        torch.testing.assert_close(loss(logits, target), nce + coefficients[1] * mae)
    loss.coefficients[0] = 5.0
    torch.testing.assert_close(loss(logits, target), 5 * nce + 3 * mae)


def test_a_loss_that_is_changed_while_its_program_is_made_does_not_keep_that(monkeypatch):
    """By another thread, which has called it by then."""
    logits, target = draw()
    loss = 1.0 * noiseproof.NCE() + 1.0 * noiseproof.MAE()
    nce, mae = (part(logits, target) for part in loss.losses)
    make = fused._formula

    def meanwhile(*given):
        formula = make(*given)
        monkeypatch.undo()
        loss.coefficients = (1.0, 3.0)
        loss(logits, target)
        return formula

    monkeypatch.setattr(fused, "_formula", meanwhile)
    loss(logits, target)
    torch.testing.assert_close(loss(logits, target), nce + 3 * mae)


def test_only_losses_of_the_package_that_stay_as_they_are_have_a_program():
    class Mine(noiseproof.MAE):
        def from_statistics(self, s: RowStatistics):
            return super().from_statistics(s)

    assert signature(noiseproof.MAE()) is not None
    assert signature(Mine()) is None
    assert signature(noiseproof.MAE() + Mine()) is None
    assert signature(noiseproof.OGC()) is None
    changed = noiseproof.MAE()
    changed.from_statistics = lambda s: s.p_others
    assert signature(changed) is None
    logits, target = draw()
    torch.testing.assert_close(2 * changed(logits, target), noiseproof.MAE()(logits, target))


def test_what_looks_at_a_value_or_is_not_elementwise_has_no_program():
    assert traced(lambda rows: rows[0] * rows[0].max().item(), 2, torch.float64) is None
    assert traced(lambda rows: rows[0] / rows[0].sum(), 2, torch.float64) is None
    assert traced(lambda rows: rows[0] * torch.rand(3, dtype=torch.float64), 2, torch.float64) is None
    assert traced(lambda rows: rows[0] + torch.arange(3.0, dtype=torch.float64), 2, torch.float64) is None
    assert isinstance(traced(lambda rows: rows[0] * 2, 2, torch.float64), Program)


def test_of_softplus_there_is_the_usual_one_only():
    softplus = torch.nn.functional.softplus
    assert isinstance(traced(lambda rows: softplus(rows[0]), 2, torch.float64), Program)
    assert traced(lambda rows: softplus(rows[0], beta=2.0), 2, torch.float64) is None
    assert traced(lambda rows: softplus(rows[0], threshold=10.0), 2, torch.float64) is None
    assert traced(lambda rows: rows[0].detach() * 2, 2, torch.float64) is None  # and what has no gradient is no loss


def test_cross_entropy_is_no_operation_at_all():
    assert program_of(build("ce")) == Program(2, (), 0, (1.0, 0.0))


@pytest.mark.parametrize(
    ("made", "nodes"),
    [
        (lambda add: add("add", 0, 0.0), ()),
        (lambda add: add("add", 0.0, 0), ()),
        (lambda add: add("sub", 0, 0.0), ()),
        (lambda add: add("sub", 0, 0), ()),
        (lambda add: add("mul", 1, 1.0), ()),
        (lambda add: add("mul", 1.0, 1), ()),
        (lambda add: add("div", 0, 1.0), ()),
        (lambda add: add("neg", add("neg", 0)), ()),
        (lambda add: add("sub", 0.0, 0), ("neg",)),
        (lambda add: add("mul", 0, -1.0), ("neg",)),
        (lambda add: add("add", 0, add("neg", 1)), ("sub",)),
        (lambda add: add("add", add("neg", 0), 1), ("sub",)),
        (lambda add: add("sub", 0, add("neg", 1)), ("add",)),
        (lambda add: add("mul", add("mul", 0, 2.0), 3.0), ("mul",)),
        (lambda add: add("neg", add("mul", 0, 2.0)), ("mul",)),
        (lambda add: add("mul", add("neg", 0), add("neg", 1)), ("mul",)),
        (lambda add: add("neg", add("div", add("neg", 0), 1)), ("div",)),
        (lambda add: add("add", add("mul", 0, 1), add("mul", 1, 0)), ("mul", "add")),
    ],
)
def test_what_is_simpler_is_as_short_as_it_can_be_and_the_same(made, nodes):
    def plain(name, *inputs):
        """In numbers, registers 0 and 1 being 0.7 and 1.9."""
        return OPERATIONS[name](*[(0.7, 1.9)[value] if type(value) is int else value for value in inputs])

    builder = Builder(2)
    program = builder.finished(made(builder.add), ())
    assert tuple(node.name for node in program.nodes) == nodes
    registers = [0.7, 1.9]
    for name, inputs in program.nodes:
        registers.append(OPERATIONS[name](*[registers[value] if type(value) is int else value for value in inputs]))
    found = registers[program.value] if type(program.value) is int else program.value
    assert found == pytest.approx(made(plain))


def test_a_program_computes_nothing_twice_and_nothing_with_one_or_zero():
    program = traced(lambda rows: (rows[0] * 1.0 + torch.zeros_like(rows[0])).exp() + (2 * rows[0] / 2).exp(), 2, torch.float64)
    assert [node.name for node in program.nodes].count("exp") <= 2
    twice = traced(lambda rows: rows[0].exp() * rows[0].exp(), 2, torch.float64)
    assert [node.name for node in twice.nodes].count("exp") == 1


def test_a_loss_that_has_run_can_be_copied_pickled_and_shared_by_threads():
    logits, target = draw(dtype=torch.float32)
    loss = build("jal-ce")
    expected = loss(logits, target)
    for other in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        assert not programs_of(other).made
        assert torch.equal(other(logits, target), expected)
    with ThreadPoolExecutor(4) as pool:
        fresh = build("jal-fl")
        values = list(pool.map(lambda _: fresh(logits, target).item(), range(16)))
    assert len(set(values)) == 1
