"""Random losses and weights of three labels: what is said of them against every prediction of a grid."""

import numpy as np
import pytest
import torch

from noiseproof import create_loss, theory
from noiseproof.losses.catalog import list_losses

VALUES = {
    "a": (1.0001, 1.5, 2.0, 9.0, 30.0, 0.6, 0.1),
    "q": (0.5, 1.0, 1.5, 2.0, 3.0, 0.1),
    "p": (0.5, 1.0, 1.5, 2.0, 3.0),
    "alpha": (0.0, 1.0, 5.0, 0.1),
    "beta": (0.0, 1.0, 5.0, 0.1),
    "gamma": (0.0, 0.5, 2.0),
    "tau": (1.5, 2.0, 10.0),
    "epsilon": (-1.0, 0.0, 0.1, 1.0),
    "t": (1, 2, 6),
    "clip": (1e-4, 0.1),
    "k": (0.1, 0.5),
    "base": (create_loss("ce"), create_loss("gce", q=0.5), create_loss("mae")),
}
"""Of parameters by their names; special ones among them"""
TIES = {"ece", "efl", "ece+mae", "efl+mae"}  # jump where two classes tie, as they do at points of the grid
NAMES = [entry.name for entry in list_losses() if entry.reads == "statistics" and entry.name not in TIES]
SIDE = np.linspace(0, 1, 41)
GRID = np.array([(a, b, 1 - a - b) for a in SIDE for b in SIDE if a + b <= 1 + 1e-12]).clip(0, 1)
NEAR = np.array([(1 - s, s, 0.0) for s in (1e-6, 1e-4, 1e-2)] + [(1 - s, 0.0, s) for s in (1e-6, 1e-4, 1e-2)])


def drawn(name, chance):
    """A loss with parameters, and at times class weights and smoothing, at random."""
    known = {entry.name: entry for entry in list_losses()}[name].defaults
    contract = {"label_smoothing": 0.1} if chance.random() < 0.2 else {}
    if chance.random() < 0.2:
        contract["weight"] = torch.tensor(chance.choice([0.5, 1.0, 2.0], 3))
    while True:
        options = {key: VALUES[key][chance.integers(len(VALUES[key]))] for key in known if key in VALUES}
        try:
            return create_loss(name, **{key: value for key, value in options.items() if chance.random() < 0.7}, **contract)
        except ValueError:  # out of the range of this loss
            continue


def weights_of(chance):
    """The first is the largest."""
    rate = chance.choice([0.1, 0.3, 0.49])
    kinds = chance.dirichlet(np.ones(3)), [1 - rate, rate, 0.0], [1 - rate, rate / 2, rate / 2], [1.0, 0.0, 0.0]
    return np.sort(kinds[chance.integers(len(kinds))])[::-1]


@pytest.mark.parametrize("seeds", [range(3), pytest.param(range(3, 12), marks=pytest.mark.slow)], ids=["few", "many"])
@pytest.mark.parametrize("name", NAMES)
def test_no_prediction_contradicts_the_verdict_or_the_minimiser(name, seeds):
    for seed in seeds:
        chance = np.random.default_rng(seed)
        loss, weights = drawn(name, chance), weights_of(chance)
        points = np.concatenate([GRID, NEAR])
        values = theory.risk(loss, weights, points)
        certain = theory.risk(loss, weights, [1.0, 0.0, 0.0])
        rounding = 1e-6 * max(1.0, abs(certain))  # a probability of 0 is approached, for normalised losses up to 1e-8
        verdict = theory.check(loss, np.array([weights, [0, 1, 0], [0, 0, 1]])).classes[0]
        if verdict.answer == "yes":
            assert certain <= values.min() + rounding, (loss, weights, points[values.argmin()])
        if verdict.better is not None:
            assert theory.risk(loss, weights, verdict.better) < certain, (loss, weights)
        if name != "negative-ls":  # whose risk has no lower bound
            found = theory.risk(loss, weights, theory.minimiser(loss, weights))
            assert found <= values.min() + rounding, (loss, weights, points[values.argmin()])
