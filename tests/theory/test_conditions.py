"""Which losses tolerate which noise, and the minimisers of the risk."""

import time

import numpy as np
import pytest
import torch
from torch import Tensor

import noiseproof
from noiseproof import losses, theory
from noiseproof.core.statistics import Statistic

RANDOM = np.random.default_rng(0)


def answers(loss, noise, **options):
    return [verdict.answer for verdict in theory.check(loss, noise, **options).classes]


def lower(loss, weights, verdict):
    """Whether the counterexample has a lower risk than certainty, computed from scratch: the loss of one label at a time."""
    point = torch.from_numpy(verdict.better).clamp_min(1e-12).log()
    certain = torch.full_like(point, np.log(1e-12))
    certain[verdict.label] = 0.0
    risks = [
        sum(w * loss(z[None], torch.tensor([k])).item() for k, w in enumerate(weights))
        for z in (point.double(), certain.double())
    ]
    return risks[0] < risks[1]


@pytest.mark.parametrize(
    ("name", "options", "noise", "expected"),
    [
        ("ce", {}, "symmetric:0.1", "no"),
        ("gce", {"q": 0.7}, "symmetric:0.4", "no"),
        ("gce", {"q": 1.0}, "symmetric:0.8", "yes"),
        ("mae", {}, "pairflip:0.45", "yes"),
        ("nce+rce", {}, "pairflip:0.45", "yes"),
        ("anl-ce", {}, "symmetric:0.8", "yes"),
        ("amse", {"a": 9.01}, "symmetric:0.8", "yes"),
        ("amse", {"a": 8.99}, "symmetric:0.8", "no"),
        ("jal-ce", {"a": 9.01}, "symmetric:0.8", "yes"),
        ("jal-ce", {"a": 5.0}, "symmetric:0.8", "no"),
        ("jal-fl", {"a": 2.0, "alpha": 0.0}, "symmetric:0.8", "no"),
        ("agce", {"a": 0.6, "q": 0.6}, "symmetric:0.4", "yes"),
        ("agce", {"a": 0.1, "q": 0.2}, "symmetric:0.8", "no"),
        ("mse", {}, "symmetric:0.2", "no"),
    ],
)
def test_losses_of_the_catalogue(name, options, noise, expected):
    loss = noiseproof.create_loss(name, **options)
    weights = theory.label_weights(noise, 10)
    found = theory.check(loss, noise, classes=10)
    assert {verdict.answer for verdict in found.classes} == {expected}
    assert found.tolerant == (expected == "yes")
    if expected == "no":
        verdict = found.classes[3]
        assert verdict.gain > 0
        assert lower(loss.double(), weights[3], verdict)


def test_the_conditions_of_the_catalogue_agree_with_the_solver():
    """Losses whose condition is necessary and sufficient, at weights on both sides of it, the condition not told."""
    for name, options in (
        ("amse", {"a": 3.0}),
        ("amse", {"a": 4.0, "q": 3.0}),
        ("agce", {"a": 0.5, "q": 0.5}),
        ("ael", {"a": 2.0}),
    ):
        known = noiseproof.create_loss(name, **options)
        told = type("Unknown", (type(known),), {})(**options)  # not of the catalogue, though the same
        matrix = np.stack([np.roll(np.sort(RANDOM.dirichlet(np.ones(4)))[::-1], k) for k in range(4)])
        for one, other in zip(answers(known, matrix), answers(told, matrix), strict=True):
            assert (one, other) in (("yes", "not found"), ("no", "no")), (name, matrix)


@pytest.mark.parametrize("epsilon", [-1.0, 0.0, 0.1])
@pytest.mark.parametrize("base", [noiseproof.CE(), noiseproof.GCE(q=0.5)], ids=["ce", "gce"])
def test_the_condition_of_biased_mae_is_not_that_of_another_biased_loss(base, epsilon):
    """Cross entropy with a bias of 0 is cross entropy, which tolerates no noise."""
    weights = theory.label_weights("symmetric:0.3", 3)
    loss = noiseproof.LogitBias(epsilon=epsilon, base=base)
    verdict = theory.check(loss, weights).classes[0]
    assert verdict.answer == "no"
    assert lower(loss.double(), weights[0], verdict)
    assert answers(noiseproof.LogitBias(epsilon=epsilon), weights) == ["yes"] * 3


@pytest.mark.parametrize("loss", [noiseproof.AEL(a=1e-3), noiseproof.LogitBias(epsilon=400.0)], ids=["ael", "logit-bias"])
def test_a_condition_beyond_floating_point_fails_without_a_warning(loss):
    assert answers(loss, [[0.9, 0.1], [0.0, 1.0]]) == ["no", "yes"]


class Quantile(losses.RobustLoss):
    """A loss of one's own: the square of the miss, which no noise leaves at the vertex."""

    needs = (Statistic.P_OTHERS,)

    def from_statistics(self, s) -> Tensor:
        return s.p_others**2


def test_a_loss_of_ones_own_is_solved_for():
    found = theory.check(Quantile(), "symmetric:0.3", classes=5).classes[2]
    assert found.answer == "no"
    w = np.full(5, 0.3 / 4)
    w[2] = 0.7
    assert lower(Quantile().double(), w, found)
    # The risk sum w_k (1 - u_k)^2 on the simplex is least where w_k (1 - u_k) is the same for all k with u_k > 0.
    best = theory.minimiser(Quantile(), w)
    assert best.sum() == pytest.approx(1)
    row_grads = w * (1 - best)
    inside = best > 1e-6
    np.testing.assert_allclose(row_grads[inside], row_grads[inside].mean(), rtol=1e-4)
    assert (row_grads[~inside] <= row_grads[inside].mean() + 1e-6).all()


def test_a_class_whose_own_label_does_not_lead_is_said():
    found = theory.check("mae", [[0.4, 0.6], [0.1, 0.9]])
    assert [verdict.answer for verdict in found.classes] == ["not dominant", "yes"]
    assert not found.tolerant
    assert found.classes[0].rival == 1
    assert "not dominant 1" in str(found)


@pytest.mark.parametrize("name", [entry.name for entry in losses.list_losses() if entry.asymmetric is not None])
def test_a_class_whose_label_never_changes_is_tolerated(name):
    clean, noisy = theory.check(name, [[1.0, 0.0, 0.0], [0.3, 0.6, 0.1], [0.0, 0.0, 1.0]]).classes[:2]
    assert clean.answer == "yes"
    assert theory.minimiser(losses.create_loss(name), [1.0, 0.0, 0.0])[0] > 0.999
    assert noisy.answer == ("no" if name in ("ce", "fl", "sce", "gce") else noisy.answer)


def test_smoothing_and_class_weights_change_the_weights():
    """Smoothing by 0.5 makes 0.9, 0.1 of two labels 0.7, 0.3; a weight of 9 on the second label makes 0.9, 0.1 equal."""
    loss = noiseproof.AMSE(a=2.4)
    assert answers(loss, [[0.9, 0.1], [0.1, 0.9]]) == ["yes", "yes"]
    assert answers(noiseproof.AMSE(a=2.4, label_smoothing=0.5), [[0.9, 0.1], [0.1, 0.9]]) == ["no", "no"]
    weighted = noiseproof.AMSE(a=2.4, weight=torch.tensor([1.0, 9.0]))
    assert answers(weighted, [[0.9, 0.1], [0.1, 0.9]]) == ["not dominant", "yes"]


def test_a_sum_needs_all_its_parts():
    noise = theory.label_weights("symmetric:0.8", 10)
    assert answers(noiseproof.NCE() + noiseproof.AMSE(a=10.0), noise) == ["yes"] * 10
    assert answers(noiseproof.NCE() + 0.0 * noiseproof.CE(), noise) == ["yes"] * 10
    assert answers(noiseproof.MAE() + 0.5 * noiseproof.CE(), noise) == ["no"] * 10


def test_a_sum_may_tolerate_what_a_part_of_it_does_not():
    """Of AMSE with an a of 2 and 10 MAE the risk is that of AMSE with a = 2 + 10 K, and a constant."""
    noise = theory.label_weights("symmetric:0.8", 10)
    assert answers(noiseproof.AMSE(a=2.0), noise) == ["no"] * 10
    assert "no" not in answers(noiseproof.AMSE(a=2.0) + 10 * noiseproof.MAE(), noise)


def test_a_thousand_classes_take_less_than_a_second():
    theory.check("jal-ce", "symmetric:0.8", classes=10)
    start = time.process_time()
    found = theory.check("jal-ce", "symmetric:0.8", classes=1000)
    assert time.process_time() - start < 1
    assert found.tolerant


def test_sparsemax_minimises_the_risk_of_amse():
    """Against the nearest point found by bisection on the threshold."""
    for _ in range(200):
        w = RANDOM.dirichlet(np.ones(6))
        a = RANDOM.uniform(1, 6)
        low, high = -10.0, 10.0
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (middle, high) if np.maximum(a * w - middle, 0).sum() > 1 else (low, middle)
        np.testing.assert_allclose(theory.minimiser(noiseproof.AMSE(a=a), w), np.maximum(a * w - low, 0), atol=1e-9)


@pytest.mark.parametrize(
    ("loss", "exact"),
    [
        (noiseproof.CE(), lambda w: w),
        (noiseproof.GCE(q=0.5), lambda w: w**2 / (w**2).sum()),
        (noiseproof.MAE(), lambda w: np.eye(len(w))[w.argmax()]),
        (noiseproof.AMSE(a=1.0, q=3.0), None),
    ],
    ids=["ce", "gce", "mae", "cubes"],
)
def test_minimisers_that_are_known(loss, exact):
    w = np.array([0.5, 0.3, 0.15, 0.05])
    found = theory.minimiser(loss, w)
    if exact is not None:
        np.testing.assert_allclose(found, exact(w), atol=1e-4)
    else:  # w (1 - u)^2 - (1 - w) u^2 is the same wherever u > 0
        slope = w * (1 - found) ** 2 - (1 - w) * found**2
        inside = found > 1e-6
        np.testing.assert_allclose(slope[inside], slope[inside].mean(), atol=1e-4)


@pytest.mark.parametrize(
    ("name", "options", "weights"),
    [
        ("nce+mae", {"beta": 0.1}, [0.499, 0.501, 0.0]),
        ("nce+mae", {"beta": 5.0}, [0.0, 0.50001, 0.49999]),
        ("nfl+mae", {"gamma": 5.0}, [0.30102327, 0.52375382, 0.17522291]),
        ("jal-ce", {}, [0.0001, 0.8, 0.1999]),
        ("nce+rce", {}, [0.3, 0.4, 0.3]),
    ],
)
def test_what_is_proved_to_tolerate_weights_has_its_minimiser_at_the_vertex(name, options, weights):
    """Normalised losses have no limit at a vertex, and a risk that is nearly flat around it."""
    loss = noiseproof.create_loss(name, **options)
    assert theory.check(loss, [[1, 0, 0], weights, [0, 0, 1]]).classes[1].answer == "yes"
    np.testing.assert_allclose(theory.minimiser(loss, weights), [0, 1, 0], atol=1e-9)


def test_the_risk_of_one_prediction_is_computed_on_a_copy():
    torch.set_warn_always(True)
    try:
        found = theory.risk(noiseproof.CE(), [0.7, 0.2, 0.1], [0.5, 0.3, 0.2])
    finally:
        torch.set_warn_always(False)
    assert found == pytest.approx(-(0.7 * np.log(0.5) + 0.2 * np.log(0.3) + 0.1 * np.log(0.2)), abs=1e-12)


def test_weights_are_shares_before_smoothing_is_added():
    """Of 7, 2 and 1 labels; smoothed by 0.3 they are 0.59, 0.24 and 0.17."""
    u = [0.5, 0.3, 0.2]
    found = theory.risk(noiseproof.CE(label_smoothing=0.3), [7, 2, 1], u)
    assert found == pytest.approx(-np.log(u) @ [0.59, 0.24, 0.17], abs=1e-12)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: theory.check(noiseproof.NL(), "symmetric:0.2", classes=3), TypeError, "draws a class"),
        (lambda: theory.check(noiseproof.GJS(), "symmetric:0.2", classes=3), TypeError, "reads predictions"),
        (lambda: theory.check(torch.nn.CrossEntropyLoss(), 0.2, classes=3), TypeError, "derived from RobustLoss"),
        (lambda: theory.check("jal", 0.2, classes=3), ValueError, "jal"),
        (lambda: theory.check(noiseproof.CE(weight=torch.ones(4)), 0.2, classes=3), ValueError, "4 classes, the noise is of 3"),
        (lambda: theory.minimiser(noiseproof.CE(), [0.5, -0.5]), ValueError, "none negative"),
        (lambda: theory.minimiser(noiseproof.CE(), np.eye(3)), ValueError, "must be a vector"),
        (lambda: theory.risk(noiseproof.CE(), [0.5, 0.5], [0.6, 0.6]), ValueError, "with sum 1"),
        (lambda: theory.risk(noiseproof.CE(), [0.5, 0.5], [1.2, -0.2]), ValueError, "at least 0"),
        (
            lambda: theory.risk(noiseproof.CE(weight=torch.tensor([0.0, 1.0])), np.eye(2), [0.5, 0.5]),
            ValueError,
            "no risk is left there",
        ),
    ],
)
def test_what_the_theory_is_not_of_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
