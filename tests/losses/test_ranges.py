"""Where values and gradients are promised to be finite: logits to near their dtype's end, parameters over twelve decades."""

import math

import pytest
import torch
import torch.nn.functional as F

import noiseproof
from tests.helpers.cases import DISTINCT, ENTRIES, NAMES, RANDOM, build, call, gradient

EACH = pytest.mark.parametrize("name", DISTINCT)
LARGEST = {torch.float16: 65504.0, torch.bfloat16: 1e30, torch.float32: 1e30, torch.float64: 1e300}
"""Logits of this size are in the range, in either direction."""
CASES = [(dtype, size) for dtype, largest in LARGEST.items() for size in (1e4, largest)]
UNBOUNDED = {"ce", "fl", "negative-ls", "ece", "efl", "ece+mae", "sr"}


def extreme(classes, dtype, size):
    """Rows at the ends, ties, rows sure of one class, and ordinary ones."""
    generator = torch.Generator().manual_seed(0)
    ends = torch.randint(-1, 2, (12, classes), generator=generator).double() * size
    between = (2 * torch.rand(4, classes, generator=generator).double() - 1) * size
    sure = torch.full((4, classes), -size, dtype=torch.float64).index_fill_(1, torch.tensor([0]), size)
    plain = 3 * torch.randn(6, classes, generator=generator).double()
    logits = torch.cat([ends, between, torch.zeros(2, classes, dtype=torch.float64), sure, plain]).to(dtype)
    target = torch.randint(classes, (len(logits),), generator=generator)
    target[-10:-8] = 0
    return logits, target


@EACH
@pytest.mark.parametrize(("dtype", "size"), CASES, ids=str)
@pytest.mark.parametrize("classes", [2, 10, 1000])
def test_value_and_gradient_are_finite_to_the_end_of_the_range(name, dtype, size, classes):
    if ENTRIES[name].reads == "features" and classes == 1000:
        classes = 100
    loss = build(name, classes, reduction="none")
    logits, target = extreme(classes, dtype, size)
    value = call(loss, logits, target)
    assert value.dtype == dtype
    if dtype == torch.float16 and size > 1e4 and name in UNBOUNDED:
        assert not bool(torch.isnan(value).any())  # infinite where the value is beyond float16, as torch's is
        assert math.isinf(F.cross_entropy(logits, target, reduction="none").max().item())
    else:
        assert bool(torch.isfinite(value).all())
    assert bool(torch.isfinite(gradient(loss, logits, target)).all())


@pytest.mark.parametrize("name", ["negative-ls", "jal-ce", "jal-fl"])
def test_a_million_classes_fit_the_range(name):
    logits = torch.full((2, 10**6), -1e30)
    logits[:, 0] = 1e30
    loss = build(name, 10**6, reduction="none")
    target = torch.tensor([0, 7])
    assert bool(torch.isfinite(call(loss, logits, target)).all())
    assert bool(torch.isfinite(gradient(loss, logits, target)).all())


@EACH
@pytest.mark.parametrize("soft", [False, True])
def test_at_the_end_of_the_range_float32_gives_what_float64_gives(name, soft):
    if name in RANDOM:
        pytest.skip("the coin of jnpl is drawn in the dtype of the statistics")
    logits, target = extreme(10, torch.float32, LARGEST[torch.float32])
    if soft:
        target = F.one_hot(target, 10).float() * 0.75 + 0.025
    loss, exact = build(name, 10, reduction="none"), build(name, 10, reduction="none").double()
    expected = call(exact, logits.double(), target.double() if soft else target)
    torch.testing.assert_close(call(loss, logits, target).double(), expected, rtol=2e-5, atol=1e-5)
    row_grads = gradient(exact, logits.double(), target.double() if soft else target)
    torch.testing.assert_close(gradient(loss, logits, target).double(), row_grads, rtol=2e-5, atol=2e-5)


EXPONENTS = {"q", "p", "gamma", "t"}
NUMBERS = [
    (name, parameter)
    for name in NAMES
    for parameter, default in ENTRIES[name].defaults.items()
    if isinstance(default, int | float) and not isinstance(default, bool) and parameter not in {"views", "every"}
]


@pytest.mark.parametrize(("name", "parameter"), NUMBERS)
def test_value_and_gradient_are_finite_for_parameters_over_twelve_decades(name, parameter):
    """From 1e-6 to 1e6 where the domain goes so far; exponents to 100."""
    taken = []
    for size in (1e-6, 1 - 1e-6, 1 + 1e-6, -1e6, 100.0 if parameter in EXPONENTS else 1e6):
        try:
            loss = build(name, 5, reduction="none", **{parameter: int(size) if parameter == "t" else size})
        except ValueError:  # outside of the domain, which test_catalog.py has
            continue
        taken.append(size)
        logits, target = extreme(5, torch.float32, 1e4)
        assert bool(torch.isfinite(call(loss, logits, target)).all()), size
        assert bool(torch.isfinite(gradient(loss, logits, target)).all()), size
    assert taken


@pytest.mark.parametrize(
    ("loss", "options"), [(noiseproof.AUL, {"a": 1.5}), (noiseproof.AGCE, {"a": 0.5}), (noiseproof.ANorm, {"a": 1.5})], ids=str
)
@pytest.mark.parametrize("exponent", [1e-6, 1e-3, 0.5, 3.0])
def test_small_exponents_lose_no_digits_in_float32(loss, options, exponent):
    given = {**options, "p" if loss is noiseproof.AUL else "q": exponent}
    logits, target = extreme(5, torch.float32, 20.0)
    exact = loss(**given, reduction="none")(logits.double(), target)
    torch.testing.assert_close(loss(**given, reduction="none")(logits, target).double(), exact, rtol=2e-5, atol=1e-30)


@pytest.mark.parametrize(
    ("name", "options"),
    [("aul", {"p": 100.0}), ("agce", {"q": 200.0}), ("amse", {"q": 1000.0}), ("anorm", {"a": 1e20}), ("jal-ce", {"a": 1e300})],
    ids=str,
)
def test_powers_that_would_overflow_are_refused(name, options):
    with pytest.raises(ValueError, match=r"\^[pq] must be at most 1e30, or the loss overflows: got .* to the power"):
        noiseproof.create_loss(name, **options)


def test_the_largest_power_is_the_one_that_is_named():
    assert noiseproof.AMSE(a=0.999e15).a == 0.999e15
    with pytest.raises(ValueError, match=r"a\^q must be at most 1e30"):
        noiseproof.AMSE(a=1.001e15)
