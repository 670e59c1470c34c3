"""The paper's figures as the runs behind them; each shows one run of a loss, not a mean over seeds."""

from __future__ import annotations

from dataclasses import dataclass

from noiseproof.paper.recipes import HISTOGRAMS, SEEDS, recipe
from noiseproof.train import Recipe, override

__all__ = ["FIGURES", "Curve", "curve_recipe"]


@dataclass(frozen=True)
class Curve:
    """What one run adds to a figure: a line of a panel, or a panel of its own."""

    figure: str
    """histogram, tsne, amse_a or, in the supplement, amse_q"""
    panel: str
    name: str
    loss: str
    noise: str
    options: tuple[tuple[str, float], ...] = ()
    """Of the loss, where they are not those of the tables"""
    dataset: str = "cifar10"

    @property
    def label(self) -> str:
        """The loss with its options, as a list of runs has it."""
        return " ".join([self.loss.upper(), *(f"{key}={value:g}" for key, value in self.options)])


def curve_recipe(curve: Curve, seed: int = SEEDS[0], profile: str = "paper-code") -> Recipe:
    """The run behind a curve.

    >>> curve_recipe(FIGURES["amse_q"][0]).loss_options
    {'a': 10.0, 'q': 1.0}
    """
    found = recipe(f"{curve.dataset}/{curve.loss}", noise=curve.noise, seed=seed, profile=profile)
    return override(found, {f"loss.{key}": value for key, value in curve.options})


A = (10.0, 20.0, 30.0, 40.0)
Q = (1.0, 2.0, 3.0)
NOISES = {"Symmetric 0.8": "symmetric:0.8", "Asymmetric 0.4": "asymmetric:0.4"}

FIGURES: dict[str, tuple[Curve, ...]] = {
    "histogram": tuple(Curve("histogram", loss.upper(), loss.upper(), loss, noise) for _, loss, noise in HISTOGRAMS),
    "tsne": tuple(
        Curve("tsne", loss.upper(), loss.upper(), loss, "symmetric:0.4") for loss in ("ce", "jal-ce", "fl", "jal-fl")
    ),
    "amse_a": tuple(
        curve
        for panel, noise in NOISES.items()
        for curve in (
            *(Curve("amse_a", panel, f"AMSE a={a:g}", "amse", noise, (("a", a),)) for a in A),
            Curve("amse_a", panel, "NNCE", "nnce", noise),
        )
    ),
    "amse_q": tuple(
        Curve("amse_q", f"AMSE (q={q:g})", f"a={a:g}", "amse", "symmetric:0.8", (("a", a), ("q", q))) for q in Q for a in A
    ),
}
"""By name: probabilities of right and wrong labels, features in the plane, test accuracy by epoch for values of a, and of q"""
