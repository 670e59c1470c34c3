"""What is computed in several ways is the same in all of them: random sums of the catalogue's losses, random batches.

Parameters are drawn as people write them: whole numbers above all, one number for several parameters, zeros and ones.
"""

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

import noiseproof
from noiseproof import GradientInForward, RobustLoss, Sum
from noiseproof.core import small
from noiseproof.losses.catalog import evaluate, values_of
from noiseproof.losses.fused import keep_for_compiler, recorded_call
from tests.helpers.cases import DETACHED, ENTRIES, STATISTIC

NUMBERS = [*range(-3, 31), *map(float, range(-3, 31)), 0.5, 1e-3, 100.0, 0.1, 0.7, 1.5]
NARROW = {
    "gamma": [0, 0.5, 1, 2, 3],
    "q": [0.5, 1, 2, 3, 0.7],
    "t": [1, 2, 3, 6],
    "minimum": [1e-8, 1e-3, 0.01],
    "p": [0.5, 1, 3],
}
"""What is special about a parameter, or all that is of use: a 30th power hides every other term."""
NAMES = [name for name in STATISTIC if name != "ogc"]  # whose threshold follows the training
BY_CLASS = {entry.cls: entry for entry in ENTRIES.values()}


class Case(NamedTuple):
    loss: RobustLoss
    logits: Tensor
    target: Tensor


def drawn_loss(draw: random.Random, **contract: Any) -> RobustLoss:
    """One of the catalogue with random parameters."""
    entry, shared = ENTRIES[draw.choice(NAMES)], draw.choice(NUMBERS)
    while True:
        options = {}
        for name, default in entry.defaults.items():
            if isinstance(default, bool):
                options[name] = draw.random() < 0.5
            elif default is not None and draw.random() < 0.8:
                options[name] = draw.choice(NARROW.get(name) or [shared, *draw.choices(NUMBERS, k=3)])
        try:
            return entry.cls(**options, **contract)
        except (TypeError, ValueError):  # out of a parameter's range
            shared = draw.choice(NUMBERS)


def drawn_sum(draw: random.Random, depth: int = 0, **contract: Any) -> RobustLoss:
    """A loss, a multiple of one, a sum of some, or a sum of sums."""
    if depth == 2 or draw.random() < 0.3:
        return drawn_loss(draw, **contract)
    parts = [drawn_sum(draw, depth + 1, **contract) for _ in range(draw.randint(1, 3))]
    total = draw.choice(NUMBERS) * parts[0]
    for part in parts[1:]:
        total = total + draw.choice([1, 1.0, *draw.choices(NUMBERS, k=2)]) * part
    return total


def drawn_case(seed: int, rows: tuple[int, ...] = (1, 7, 30), classes: tuple[int, ...] = (2, 3, 7, 70)) -> Case:
    draw, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    count, width = draw.choice(rows), draw.choice(classes)
    contract = {"reduction": draw.choice(["mean", "sum"])}
    if draw.random() < 0.3:
        contract["weight"] = torch.rand(width, 2, generator=generator, dtype=torch.float64)[:, 0] + 0.1
    logits = 2 * torch.randn(count, width, generator=generator, dtype=torch.float64)
    if draw.random() < 0.2:
        logits = logits.round()  # classes that tie
    target = torch.randint(width, (count,), generator=generator)
    if draw.random() < 0.3:
        target[1::3] = -100
    return Case(drawn_sum(draw, **contract), logits, target)


def parts_of(loss: RobustLoss) -> list[tuple[float, RobustLoss]]:
    """What it is a sum of; a pair of the catalogue is one."""
    if type(loss) is not Sum:
        return [(1.0, loss)]
    return [(c * inner, part) for c, term in loss.terms for inner, part in parts_of(term)]


def both(function: Callable[[Tensor], Tensor], logits: Tensor) -> tuple[Tensor, Tensor]:
    """Value and gradient."""
    leaf = logits.clone().requires_grad_()
    value = function(leaf)
    return value.detach(), torch.autograd.grad(value, leaf)[0]


def sizes(case: Case) -> tuple[float, float]:
    """How large value and gradient would be if no part cancelled another."""
    found = [
        (abs(c), both(lambda z, part=part: part._by_autograd(z, case.target), case.logits)) for c, part in parts_of(case.loss)
    ]
    return sum(c * value.abs().item() for c, (value, _) in found), sum(c * gradient.norm().item() for c, (_, gradient) in found)


def assert_same(ours: tuple[Tensor, Tensor], theirs: tuple[Tensor, Tensor], case: Case, tolerance: float = 1e-9) -> None:
    for what, mine, other, size in zip(("value", "gradient"), ours, theirs, sizes(case), strict=True):
        off = (mine - other).norm().item()
        assert off <= tolerance * size, f"the {what} of {case.loss!r} is off by {off:.3g} of {size:.3g}"


def ways(case: Case) -> list[Callable[[Tensor], Tensor]]:
    """All but the definition."""
    loss, target = case.loss, case.target
    head = torch.eye(case.logits.shape[1], dtype=torch.float64)
    found = [
        lambda z: loss(z, target),
        lambda z: GradientInForward(loss)(z, target),
        lambda z: noiseproof.linear_loss(z, head, target, loss),
    ]
    if keep_for_compiler(loss, loss._full_cache_key()):
        found.append(lambda z: recorded_call(z, target, loss.weight, loss._full_cache_key()))
    return found


def as_printed(loss: RobustLoss, z: Tensor, y: int) -> Tensor:
    """The catalogue's formula for one example, in torch instead of NumPy."""
    values, p = values_of(loss), torch.softmax(z, 0)

    def number(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda *given: function(*[torch.as_tensor(x, dtype=torch.float64) for x in given])

    if "gamma" in values:
        weight = (
            (lambda p: ((1 - p) ** values["gamma"]).detach())
            if values.get("detach_focal")
            else lambda p: (1 - p) ** values["gamma"]
        )
        values["F"] = number(lambda p: weight(p) * -torch.log(p))
    values |= {name: number(getattr(torch, name)) for name in ("abs", "arccos", "exp", "log", "max", "maximum", "sqrt", "sum")}
    values |= {"H": lambda p: torch.special.entr(p).sum(), "arange": lambda *ends: torch.arange(*ends, dtype=torch.float64)}
    e = torch.nn.functional.one_hot(torch.tensor(y), len(z)).double()
    return evaluate(BY_CLASS[type(loss)].formula, {**values, "p": p, "y": y, "K": len(z), "e": e})


@pytest.mark.parametrize("seed", range(16))
def test_every_way_gives_the_definition(seed, monkeypatch):
    for case in map(drawn_case, range(20 * seed, 20 * seed + 20)):
        expected = both(lambda z, case=case: case.loss._by_autograd(z, case.target), case.logits)
        for way in ways(case):
            for largest in (small.MAX_SMALL_BATCH, 0):
                with monkeypatch.context() as patch:
                    patch.setattr(small, "MAX_SMALL_BATCH", largest)
                    assert_same(both(way, case.logits), expected, case)


@pytest.mark.parametrize("seed", range(6))
def test_the_definition_is_what_is_printed(seed):
    for number in range(40 * seed, 40 * seed + 40):
        case = drawn_case(number, rows=(1, 4), classes=(2, 3, 5))
        parts = parts_of(case.loss)
        if any(BY_CLASS[type(part)].name in DETACHED for _, part in parts):
            continue

        def printed(z, case=case, parts=parts):
            counted = [(row, int(y)) for row, y in zip(z, case.target, strict=True) if y != -100]
            scales = [1.0 if case.loss.weight is None else case.loss.weight[y] for _, y in counted]
            rows = [
                s * sum(c * as_printed(part, row, y) for c, part in parts) for s, (row, y) in zip(scales, counted, strict=True)
            ]
            return sum(rows) / (sum(scales) if case.loss.reduction == "mean" else 1.0)

        expected = both(printed, case.logits)
        assert_same(both(lambda z, case=case: case.loss(z, case.target), case.logits), expected, case, tolerance=1e-7)


@pytest.mark.parametrize("seed", range(3))
def test_every_way_gives_the_loss_as_it_has_become(seed):
    """After coefficients were set, as a tuple and as a list, and items of the list."""
    draw = random.Random(seed)
    for number in range(1000 + 10 * seed, 1010 + 10 * seed):
        case = drawn_case(number)
        if type(case.loss) is not Sum:
            continue
        for kind in (tuple, list, list):
            case.loss.coefficients = kind(float(draw.choice(NUMBERS)) for _ in case.loss.coefficients)
            for index in (None, 0):
                if index is not None and kind is list:
                    case.loss.coefficients[index] += 1.0
                expected = both(lambda z, case=case: case.loss._by_autograd(z, case.target), case.logits)
                for way in ways(case):
                    assert_same(both(way, case.logits), expected, case)
