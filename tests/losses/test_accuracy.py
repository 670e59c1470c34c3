"""Right at every confidence: float32 gradients against 60-digit arithmetic.

One row has its label (or another class) at a chosen distance from certainty, the others random below it. Exact gradients
come from mpmath's softmax and the derivatives of the papers' formulas, with 60 digits, where cancellation costs nothing.
"""

import mpmath
import pytest
import torch
from mpmath import mp, mpf

import noiseproof
from noiseproof.core import small
from noiseproof.core.dispatch_state import Recording
from noiseproof.losses import fused
from tests.helpers.cases import STATISTIC, build, gradient, tied_rows

LOSSES = {
    "ce": {},
    "gce": {"q": 0.7},
    "nce": {},
    "amse": {"a": 30.0},
    "amse at a = 1": {"a": 1.0},
    "amse with a q of 1.5": {"a": 3.0, "q": 1.5},
    "anorm with a q of 0.5": {"a": 2.0, "q": 0.5},
    "jal-ce": {"a": 30.0},
    "jal-ce with a small a": {"alpha": 5.0, "a": 2.0},
    "jal-fl": {"a": 30.0, "gamma": 0.5},
    "fl": {"gamma": 0.5},
    "nfl": {"gamma": 0.5},
    "agce": {"a": 6.0, "q": 1.5},
    "rce": {},
}
# A small batch, and one whose logits go in chunks: the same derivation, written twice.
EITHER = pytest.mark.parametrize(
    "limit", [small.MAX_SMALL_BATCH, pytest.param(0, marks=pytest.mark.slow)], ids=["small", "large"]
)
GAPS = [1.0, 1e-1, 1e-3, 1e-5, 1e-7, 1e-8, 1e-9, 1e-12, 1e-15, 1e-17]


@pytest.fixture(autouse=True)
def _sixty_digits():
    with mp.workdps(60):
        yield


def exact_gradient(name, options, z, y):
    """dL/dz at 60 digits, from dL/dp_k of the printed formula and dp_k/dz_j = p_k ([k=j] - p_j)."""
    z = [mpf(float(value)) for value in z]
    classes = len(z)
    total = mpmath.fsum(mpmath.exp(value) for value in z)
    p = [mpmath.exp(value) / total for value in z]
    by_p = [mpf(0)] * classes  # dL/dp_k

    def add(k, value):
        by_p[k] += value

    def add_share(term, slope, weight):
        """weight * term(p_y) / sum_k term(p_k)"""
        terms = [term(value) for value in p]
        whole = mpmath.fsum(terms)
        add(y, weight * slope(p[y]) / whole)
        for k in range(classes):
            add(k, -weight * terms[y] * slope(p[k]) / whole**2)

    def add_norm(weight):
        """weight * sum_k |a e_k - p_k|^q"""
        a, q = mpf(options["a"]), mpf(options.get("q", 2))
        for k in range(classes):
            add(k, -weight * q * (a - p[k]) ** (q - 1) if k == y else weight * q * p[k] ** (q - 1))

    gamma = mpf(str(options.get("gamma", 0)))

    def focal(value):
        return (1 - value) ** gamma * -mpmath.log(value)

    def focal_slope(value):
        return gamma * (1 - value) ** (gamma - 1) * mpmath.log(value) - (1 - value) ** gamma / value

    family = name.split(" ")[0]
    alpha = mpf(options.get("alpha", 1))
    if family == "ce":
        add(y, -1 / p[y])
    elif family == "gce":
        add(y, -(p[y] ** (mpf(str(options["q"])) - 1)))
    elif family == "rce":
        add(y, mpmath.log(mpf("1e-4")))
    elif family == "agce":
        add(y, -((mpf(str(options["a"])) + p[y]) ** (mpf(str(options["q"])) - 1)))
    elif family == "fl":
        add(y, focal_slope(p[y]))
    elif family == "amse":
        add_norm(mpf(1) / classes)
    elif family == "anorm":
        add_norm(1 / mpf(options["q"]))
    elif family == "nce":
        add_share(lambda v: -mpmath.log(v), lambda v: -1 / v, 1)
    elif family == "nfl":
        add_share(focal, focal_slope, 1)
    elif family == "jal-ce":
        add_share(lambda v: -mpmath.log(v), lambda v: -1 / v, alpha)
        add_norm(mpf(1) / classes)
    elif family == "jal-fl":
        add_share(focal, focal_slope, alpha)
        add_norm(mpf(1) / classes)
    mean = mpmath.fsum(p[k] * by_p[k] for k in range(classes))
    return [p[k] * (by_p[k] - mean) for k in range(classes)]


def rows(classes, gap, sure_of):
    """Logits whose class ``sure_of`` has probability 1 - gap (about), float32, three of them."""
    generator = torch.Generator().manual_seed(round(1e3 * classes - 10 * torch.log10(torch.tensor(gap)).item()))
    logits = torch.randn(3, classes, generator=generator)
    others = torch.logsumexp(logits.double().index_fill(1, torch.tensor([sure_of]), -torch.inf), 1)
    lead = torch.log(torch.tensor((1 - gap) / gap, dtype=torch.float64)) if gap < 1 else torch.tensor(-9.0, dtype=torch.float64)
    logits[:, sure_of] = (others + lead).float()
    return logits


def error(ours, exact):
    """Of a gradient, relative to its norm."""
    difference = [mpf(float(value)) - truth for value, truth in zip(ours, exact, strict=True)]
    return float(mpmath.norm(difference) / mpmath.norm(exact))


def worst_error(name, options, logits, y):
    loss = noiseproof.create_loss(name.split(" ")[0], reduction="sum", **options)
    ours = gradient(loss, logits, torch.full((len(logits),), y))
    return max(error(each, exact_gradient(name, options, z, y)) for z, each in zip(logits, ours, strict=True))


@EITHER
@pytest.mark.parametrize("classes", [2, 10, 100])
@pytest.mark.parametrize("name", LOSSES)
def test_the_worst_gradient_of_a_row_sure_of_its_label_is_within_1e5(name, classes, limit, monkeypatch):
    monkeypatch.setattr(small, "MAX_SMALL_BATCH", limit)
    errors = {gap: worst_error(name, LOSSES[name], rows(classes, gap, sure_of=0), 0) for gap in GAPS}
    assert max(errors.values()) <= 1e-5, errors


@EITHER
@pytest.mark.parametrize("classes", [2, 10, 100])
@pytest.mark.parametrize("name", LOSSES)
def test_the_worst_gradient_of_a_row_sure_of_another_class_is_within_1e5(name, classes, limit, monkeypatch):
    monkeypatch.setattr(small, "MAX_SMALL_BATCH", limit)
    errors = {gap: worst_error(name, LOSSES[name], rows(classes, gap, sure_of=1), 0) for gap in GAPS}
    assert max(errors.values()) <= 1e-5, errors


def recorded(loss, logits, target):
    """What a compiler records of a loss."""
    with Recording():
        return fused.recorded(loss, logits, target)


@pytest.mark.parametrize("classes", [3, 10, 100, 1000])  # with two, a gap is where the losses that clip jump
@pytest.mark.parametrize("name", ["ce", "nce", "amse", "jal-ce", "jal-fl", "nfl", "anl-ce", "anl-fl"])
def test_a_large_batch_has_the_gradient_of_a_small_one_and_so_have_both_compiled(name, classes, monkeypatch):
    logits = torch.cat([rows(classes, gap, sure_of) for gap in GAPS for sure_of in (0, 1)])
    loss, target = noiseproof.create_loss(name, reduction="sum"), torch.zeros(len(logits), dtype=torch.long)
    exact = gradient(loss, logits.double(), target)
    for limit in (2**20, 0):
        monkeypatch.setattr(small, "MAX_SMALL_BATCH", limit)
        for call in (loss, lambda z, y: recorded(loss, z, y)):
            difference = gradient(call, logits, target).double() - exact
            assert bool((difference.norm(dim=1) <= 1e-5 * exact.norm(dim=1)).all()), limit


@pytest.mark.parametrize("sure_of", [0, 1])
@pytest.mark.parametrize("name", STATISTIC)
def test_every_function_of_the_statistics_agrees_with_float64_at_every_confidence(name, sure_of):
    """Not exact arithmetic, but all of them: in float64 the same code passes the derivative checks, so what differs is the
    error of float32. (Losses that clip probabilities jump at the clip, which these gaps miss with 3 and 10 classes.)"""
    target = torch.zeros(3, dtype=torch.long)
    for classes in (3, 10):
        for gap in GAPS:
            logits = rows(classes, gap, sure_of)
            low = gradient(build(name, classes, reduction="none"), logits, target).double()
            exact = gradient(build(name, classes, reduction="none").double(), logits.double(), target)
            counts = exact.norm(dim=1) > 1e-30
            assert bool(((low - exact).norm(dim=1) <= 1e-5 * exact.norm(dim=1))[counts].all()), (classes, gap)


@pytest.mark.parametrize("gap", [200.0, 1e4])
@pytest.mark.parametrize("classes", [3, 4, 10, 64])
@pytest.mark.parametrize("name", ["ce", "nce", "jal-ce", "nfl", "jal-fl"])
@EITHER
def test_far_classes_leave_the_gradient_of_the_others_within_1e5(name, classes, gap, limit, monkeypatch):
    """A label, or another class, far below classes that tie, nearly tie, or do not."""
    monkeypatch.setattr(small, "MAX_SMALL_BATCH", limit)
    generator = torch.Generator().manual_seed(classes)
    for scale in (0.0, 1e-4, 1e-2, 1.0):
        logits = scale * torch.randn(4, classes, generator=generator) + 0.3
        for far, y in ((0, 0), (1, 0)):  # the label wrong, and right
            moved = logits.index_fill(1, torch.tensor([far]), -gap)
            assert worst_error(name, LOSSES[name], moved, y) <= 1e-5, (scale, far)


def of_head(loss, logits, target):
    """By ``linear_loss``, of a head that changes nothing."""
    return noiseproof.linear_loss(logits, torch.eye(logits.shape[1]), target, loss)


# Of squares more than 64 classes in a large batch lose digits here.
TIES = [
    (q, classes)
    for q in (0.5, 0.9, 1.1, 1.5, 2.0, 3.0, 10.0)
    for classes in (3, 10, 64, 100, 1000)
    if (q, classes <= 64) != (2.0, False)
]


@pytest.mark.parametrize(
    ("q", "classes"),
    [pytest.param(*case, marks=[pytest.mark.slow] * (case[1] > 100 or case[0] in (0.9, 10.0))) for case in TIES],
)
def test_where_classes_tie_the_gradient_of_a_power_sum_is_within_1e5(q, classes, monkeypatch):
    """Of what is left there ``e^q - e`` would be the difference of equal numbers: a small batch, a large one, and a head's."""
    name, options = "anorm", {"a": 2.0, "q": q}
    loss, logits = noiseproof.ANorm(reduction="sum", **options), tied_rows(classes)
    target = torch.zeros(len(logits), dtype=torch.long)
    exact = [exact_gradient(name, options, z, 0) for z in logits]
    counts = [mpmath.norm(each) > 1e-30 for each in exact]
    for limit in (2**30, 0):
        monkeypatch.setattr(small, "MAX_SMALL_BATCH", limit)
        for call in (loss, lambda z, y: recorded(loss, z, y), lambda z, y: of_head(loss, z, y)):
            ours = gradient(call, logits, target)
            errors = [error(*each) for each, counted in zip(zip(ours, exact, strict=True), counts, strict=True) if counted]
            assert max(errors) <= 1e-5, (limit, errors)


def soft_targets(classes):
    """Labels as probabilities, smoothed a lot and a little, anything, and no preference."""
    one_hot = torch.nn.functional.one_hot(torch.tensor(0), classes).float()
    anything = torch.softmax(torch.randn(classes, generator=torch.Generator().manual_seed(1)), 0)
    return [one_hot, 0.9 * one_hot + 0.1 / classes, (1 - 1e-4) * one_hot + 1e-4 / classes, anything, anything * 0 + 1 / classes]


@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("name", LOSSES)
def test_with_probability_targets_the_error_is_within_1e5_of_the_labels_gradients(name, classes):
    """Of their norms, weighted by the target and added: where the gradients themselves cancel, as those of a symmetric loss
    do, nothing can be said of the rest."""
    loss = noiseproof.create_loss(name.split(" ")[0], reduction="sum", **LOSSES[name])
    drawn = [rows(classes, gap, sure_of)[0] for gap in (1e-1, 1e-5, 1e-12) for sure_of in (0, 1)]
    if classes > 2:
        drawn.append(torch.full((classes,), 0.3).index_fill_(0, torch.tensor([1]), -200.0))  # ties, and one far class
    for logits in drawn:
        exact = [exact_gradient(name, LOSSES[name], logits, label) for label in range(classes)]
        norms = [mpmath.norm(each) for each in exact]
        for target in soft_targets(classes):
            share = [mpf(float(value)) for value in target]
            truth = [mpmath.fsum(w * each[j] for w, each in zip(share, exact, strict=True)) for j in range(classes)]
            ours = gradient(loss, logits[None], target[None])[0]
            difference = mpmath.norm([mpf(float(value)) - true for value, true in zip(ours, truth, strict=True)])
            assert float(difference / mpmath.fdot(share, norms)) <= 1e-5, (logits, target)


@pytest.mark.parametrize("name", STATISTIC)
def test_with_smoothing_every_function_of_the_statistics_agrees_with_float64(name):
    """By the same measure, with labels and ``label_smoothing``."""
    for classes in (2, 3, 10):
        logits = torch.cat([rows(classes, gap, sure_of) for gap in (1e-1, 1e-5, 1e-12) for sure_of in (0, 1)])
        whole = build(name, classes, reduction="none").double()
        labels = torch.arange(classes).repeat(len(logits))
        each = gradient(whole, logits.double().repeat_interleave(classes, 0), labels).norm(dim=1).view(len(logits), classes)
        scale = 0.9 * each[:, 0] + 0.1 * each.mean(1)
        smoothed, target = {"reduction": "none", "label_smoothing": 0.1}, torch.zeros(len(logits), dtype=torch.long)
        exact = gradient(build(name, classes, **smoothed).double(), logits.double(), target)
        low = gradient(build(name, classes, **smoothed), logits, target).double()
        assert bool(((low - exact).norm(dim=1) <= 1e-5 * scale).all()), classes


def test_the_plain_formula_would_not_pass():
    """What these tests are for: the printed formula in float32 loses most of the gradient where the network is sure."""
    logits = rows(10, 1e-8, sure_of=0)
    leaf = logits.clone().requires_grad_()
    log_p = torch.log_softmax(leaf, 1)
    one_hot = torch.nn.functional.one_hot(torch.zeros(3, dtype=torch.long), 10)
    nce = (one_hot * log_p).sum(1) / log_p.sum(1)
    amse = ((30 * one_hot - log_p.exp()) ** 2).mean(1)
    (nce + amse).sum().backward()
    assert error(leaf.grad[0], exact_gradient("jal-ce", LOSSES["jal-ce"], logits[0], 0)) > 0.05
