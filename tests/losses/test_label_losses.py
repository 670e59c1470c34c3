"""Losses of the label's probability that bend, bias or weight it: hand values, 60 digits, and what their papers say."""

import math

import mpmath
import pytest
import torch
from mpmath import mp, mpf

from noiseproof import CE, DFT, FL, GCE, JS, MAE, NCE, OGC, FisherRao, LogitBias, LogitClip, PHuberCE
from noiseproof.losses.generalized import clipping_threshold, two_gaussians
from tests.helpers.cases import draw, gradient

LOGITS, TARGET = draw(64, 10, scale=3.0)
MARGINS = [-60.0, -30.0, -17.0, -8.0, -2.0, -0.1, 0.0, 0.3, 3.0, 9.0, 17.0, 30.0, 60.0]
"""log((1 - p) / p): from sure of the label to sure of another class."""


def at_margins(dtype):
    """Rows of three classes at these margins, label 0."""
    others = torch.tensor([0.25, -0.5])
    label = torch.logsumexp(others, 0) - torch.tensor(MARGINS)
    return torch.cat([label[:, None], others.expand(len(MARGINS), 2)], 1).to(dtype)


def exact(logits, of_p):
    """The loss and its gradient at the label's logit, of each row with label 0, from 60 digits of L(p) and its slope L'(p)."""
    values, row_grads = [], []
    with mp.workdps(60):
        for z in logits.tolist():
            weights = [mpmath.exp(mpf(value)) for value in z]
            p = weights[0] / mpmath.fsum(weights)
            value, slope = of_p(p)
            values.append(float(value))
            row_grads.append(float(slope * p * (1 - p)))
    return torch.tensor(values, dtype=torch.float64), torch.tensor(row_grads, dtype=torch.float64)


def fisher_rao(p):
    angle = mpmath.asin(mpmath.sqrt(1 - p))
    return angle**2, -angle / mpmath.sqrt(p * (1 - p))


def dft(p):
    return p * -mpmath.log(p), mpf(-1)  # the weight is a constant: p times -1/p


def jensen_shannon(pi):
    """(H(m) - (1-pi) H(p)) / Z with two classes, which loses the digits of pi squared twice over: 700 of them are enough."""

    def loss(p):
        with mp.workdps(700):
            weight, rest = mpf(pi), 1 - mpf(pi)
            mixed = weight + rest * p
            entropy = -mixed * mpmath.log(mixed) - rest * (1 - p) * mpmath.log(rest * (1 - p))
            own = -p * mpmath.log(p) - (1 - p) * mpmath.log(1 - p)
            scale = -rest * mpmath.log(rest)
            slope = rest * (mpmath.log(rest * (1 - p) / mixed) - mpmath.log((1 - p) / p))
            return (entropy - rest * own) / scale, slope / scale

    return loss


def biased(epsilon, of_p):
    """A loss of p' = p e^epsilon / (1 - p + p e^epsilon), whose slope in p is e^epsilon / (1 - p + p e^epsilon)^2."""

    def loss(p):
        factor = mpmath.exp(mpf(epsilon))
        whole = 1 - p + p * factor
        value, slope = of_p(p * factor / whole)
        return value, slope * factor / whole**2

    return loss


def power(q):
    return lambda p: ((1 - p ** mpf(q)) / mpf(q), -(p ** (mpf(q) - 1)))


CASES = {
    "fisher-rao": (FisherRao(reduction="none"), fisher_rao),
    "dft": (DFT(reduction="none"), dft),
    "biased mae": (LogitBias(epsilon=1.5, reduction="none"), biased(1.5, lambda p: (2 * (1 - p), mpf(-2)))),
    "mae biased the other way": (LogitBias(epsilon=-4.0, reduction="none"), biased(-4.0, lambda p: (2 * (1 - p), mpf(-2)))),
    "biased gce": (LogitBias(epsilon=5.0, base=GCE(q=0.5), reduction="none"), biased(5.0, power(0.5))),
    "biased ce": (LogitBias(epsilon=0.25, base=CE(), reduction="none"), biased(0.25, lambda p: (-mpmath.log(p), -1 / p))),
    **{
        f"js at {pi!r}": (JS(pi=pi, reduction="none"), jensen_shannon(pi))
        for pi in (5e-324, 1e-300, 1e-30, 1e-12, 1e-8, 1e-6, 1e-3, 0.1, 0.5, 0.9, 1 - 1e-6, 1 - 1e-12)
    },
    "ogc": (
        OGC(tau=4.0, reduction="none"),
        lambda p: (-4 * p + mpmath.log(4) + 1, mpf(-4)) if p < 0.25 else (-mpmath.log(p), -1 / p),
    ),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", CASES)
def test_value_and_gradient_are_right_at_every_confidence(name, dtype):
    loss, of_p = CASES[name]
    logits = at_margins(dtype)
    target = torch.zeros(len(logits), dtype=torch.long)
    values, row_grads = exact(logits, of_p)
    tolerance = 3e-6 if dtype == torch.float32 else 1e-13
    torch.testing.assert_close(loss(logits, target).double(), values, rtol=tolerance, atol=1e-36)
    torch.testing.assert_close(gradient(loss, logits, target)[:, 0].double(), row_grads, rtol=tolerance, atol=1e-36)


@pytest.mark.parametrize("p", [1e-300, 1e-100, 1e-36])
def test_the_slope_of_js_grows_without_bound_in_float64(p):
    """log(1 + c/p) / log(1 + c) with c = 1, to the last probability that float64 has."""
    logits = torch.tensor([[p, 0.5, 0.5]], dtype=torch.float64).log()
    slope = -gradient(JS(), logits, torch.tensor([0]))[0, 0].item() / p
    assert slope == pytest.approx(math.log1p(1 / p) / math.log(2), rel=1e-12)


def test_fisher_rao_lies_between_mae_and_cross_entropy():
    values = FisherRao(reduction="none")(LOGITS, TARGET)
    assert bool((MAE(scale=1.0, reduction="none")(LOGITS, TARGET) <= values).all())
    assert bool((values <= CE(reduction="none")(LOGITS, TARGET)).all())


def test_fisher_rao_is_the_angle_of_the_square_roots():
    p = torch.tensor([[0.25, 0.75], [0.5, 0.5], [0.75, 0.25]], dtype=torch.float64)
    angles = torch.tensor([math.pi / 3, math.pi / 4, math.pi / 6], dtype=torch.float64)
    torch.testing.assert_close(FisherRao(reduction="none")(p.log(), torch.zeros(3, dtype=torch.long)), angles.square())


def test_dft_has_the_gradient_of_mae_and_the_value_of_weighted_cross_entropy():
    torch.testing.assert_close(gradient(DFT(), LOGITS, TARGET), gradient(MAE(scale=1.0), LOGITS, TARGET))
    hit = torch.softmax(LOGITS, 1).gather(1, TARGET[:, None])[:, 0]
    torch.testing.assert_close(DFT(reduction="none")(LOGITS, TARGET), -hit * hit.log())


@pytest.mark.parametrize("base", [MAE(), CE(), GCE(q=0.4), FL(gamma=2.0), FisherRao(), PHuberCE(tau=3.0)], ids=repr)
@pytest.mark.parametrize("epsilon", [-2.0, 0.0, 0.5, 6.0])
def test_a_logit_bias_is_the_base_on_logits_with_a_constant_at_the_label(base, epsilon):
    loss = LogitBias(epsilon=epsilon, base=base)
    shift = epsilon * torch.nn.functional.one_hot(TARGET, 10)
    torch.testing.assert_close(loss(LOGITS, TARGET), base(LOGITS + shift, TARGET))
    torch.testing.assert_close(gradient(loss, LOGITS, TARGET), gradient(base, LOGITS + shift, TARGET))


def test_a_logit_bias_of_log_k_minus_one_puts_a_uniform_prediction_where_mae_is_steepest():
    for classes in (2, 10, 1000):
        row_grads = {
            epsilon: gradient(LogitBias(epsilon=epsilon), torch.zeros(1, classes).double(), torch.tensor([0]))[0, 0].item()
            for epsilon in (math.log(classes - 1) + shift for shift in (-0.1, 0.0, 0.1))
        }
        assert min(row_grads, key=row_grads.get) == math.log(classes - 1)
        assert min(row_grads.values()) == pytest.approx(-0.5)  # 2 p (1 - p)


@pytest.mark.parametrize("base", [NCE(), LogitClip()], ids=repr)
def test_a_logit_bias_takes_losses_of_the_label_alone(base):
    with pytest.raises(ValueError, match="base must be a loss of the label's probability alone, such as MAE or GCE, got"):
        LogitBias(base=base)


def test_ogc_is_phuber_at_its_threshold_and_starts_as_cross_entropy():
    torch.testing.assert_close(OGC(tau=5.0)(LOGITS, TARGET), PHuberCE(tau=5.0)(LOGITS, TARGET))
    for loss in (OGC(), OGC().half()):
        torch.testing.assert_close(loss(LOGITS, TARGET), CE()(LOGITS, TARGET))
        torch.testing.assert_close(gradient(loss, LOGITS, TARGET), gradient(CE(), LOGITS, TARGET))


def ratio_at(tau, means, deviations):
    """Of the mean clipped gradients, by the sum over a finer grid of the truncated Gaussians' densities."""
    nll = torch.linspace(1e-7, -math.log(1e-7), 200_001, dtype=torch.float64)
    clean, noisy = (torch.exp(-0.5 * ((nll - m) / d) ** 2) for m, d in zip(means, deviations, strict=True))
    clipped = torch.exp(nll).clamp_max(tau)
    return float((noisy * clipped).sum() / noisy.sum() / ((clean * clipped).sum() / clean.sum()))


@pytest.mark.parametrize("ratio", [1.05, 1.5, 3.0, 20.0])
def test_the_clipping_threshold_bounds_the_ratio_of_wrong_to_clean_gradients(ratio):
    means, deviations = [0.4, 4.0], [0.3, 1.0]
    tau = clipping_threshold(torch.tensor(means).double(), torch.tensor(deviations).double().square(), ratio)
    assert ratio_at(tau, means, deviations) == pytest.approx(ratio, rel=5e-3)  # its grid, the published one, has 1,000 points
    assert ratio_at(1.1 * tau, means, deviations) > ratio


def test_nothing_is_clipped_where_the_ratio_is_never_reached():
    means = torch.tensor([1.0, 1.1], dtype=torch.float64)
    assert clipping_threshold(means, torch.ones(2, dtype=torch.float64), 100.0) == pytest.approx(1e7)


def test_the_mixture_finds_two_gaussians():
    """20,000 draws: the means' standard errors are below 0.01, so 0.1 is beyond ten of them."""
    generator = torch.Generator().manual_seed(0)
    clean = 0.5 + 0.2 * torch.randn(12_000, generator=generator)
    noisy = 4.0 + 1.0 * torch.randn(8_000, generator=generator)
    means, variances = two_gaussians(torch.cat([noisy, clean]), steps=100)
    assert means.tolist() == pytest.approx([0.5, 4.0], abs=0.1)
    assert variances.sqrt().tolist() == pytest.approx([0.2, 1.0], abs=0.1)


def test_an_update_clips_more_as_the_learning_rate_falls_and_survives_saving():
    generator = torch.Generator().manual_seed(0)
    nll = torch.cat([0.1 + torch.rand(3000, generator=generator), 3 + torch.rand(1000, generator=generator)])
    loss, taus = OGC(epsilon=20.0), []
    for lr in (0.1, 0.01, 0.001):
        loss.update(nll, lr=lr)
        taus.append(loss.threshold.item())
    assert sorted(taus, reverse=True) == taus
    assert 1 < taus[-1] < taus[0] < 1e3
    again = OGC()
    again.load_state_dict(loss.state_dict())
    torch.testing.assert_close(again(LOGITS, TARGET), PHuberCE(tau=taus[-1])(LOGITS, TARGET))


@pytest.mark.parametrize("lr", [0.0025, 0.05])
def test_an_update_bounds_the_ratio_by_one_plus_the_learning_rate_times_epsilon(lr):
    """Two groups so far apart that each is one Gaussian of the mixture, with a thousandth added to its variance."""
    groups = [torch.linspace(0.1, 1.1, 3001, dtype=torch.float64), torch.linspace(4.0, 5.0, 1001, dtype=torch.float64)]
    loss = OGC(epsilon=20.0)
    loss.update(torch.cat(groups), lr=lr)
    deviations = [math.sqrt(float(group.var(unbiased=False)) + 1e-3) for group in groups]
    ratio = ratio_at(loss.threshold.item(), [0.6, 4.5], deviations)
    assert ratio == pytest.approx(1 + 20 * lr, rel=5e-3)


@pytest.mark.parametrize("nll", [torch.ones(8), torch.tensor([1.0, math.nan]), torch.tensor([])], ids=str)
def test_an_update_from_nothing_to_learn_from_is_refused(nll):
    with pytest.raises(ValueError, match="must be finite and at least two of them different"):
        OGC().update(nll, lr=0.1)
