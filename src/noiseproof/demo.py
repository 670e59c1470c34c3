"""The demonstration: handwritten digits of which many have a wrong label, a fitted model beside single networks, in a minute.

The networks are the default recipe for features. Cross entropy is shown at its last epoch and where a person without correct
labels would stop it: at the epoch of the highest accuracy on a fifth of the given labels, which a second run holds out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from noiseproof.data.dataset import Split
from noiseproof.fitting.model import FittedModel
from noiseproof.fitting.run import fit
from noiseproof.io.files import make_folder, write_whole
from noiseproof.learners.crossfit import Stage
from noiseproof.report.charts import line_style
from noiseproof.train import Recipe, TrainingData, prepare, train
from noiseproof.train.plan import FEATURE_DEFAULTS

HELD_OUT = 5
"""Early stopping holds out every so many examples"""
FIGURE_FILE = "demo.png"


class Demonstration(NamedTuple):
    """What the demonstration shows.

    Attributes:
        model: The fitted model, with its verdict.
        wrong: The share of the training labels that are wrong.
        accuracies: The accuracy on correct test labels by method, in percent.
        figure: The picture.
    """

    model: FittedModel
    wrong: float
    accuracies: dict[str, float]
    figure: Path


def demonstrate(
    out: str | Path,
    *,
    noise_rate: float = 0.6,
    epochs: int = 100,
    quick: bool = False,
    seed: int = 0,
    progress: Callable[[Stage], object] | None = None,
) -> Demonstration:
    """Fit a model to digits with wrong labels, train single networks on the same labels, and draw how they compare.

    Args:
        out: The folder of the model and the picture.
        noise_rate: The share of the labels that become any other class.
        epochs: How long the networks are trained.
        quick: Fit fewer learners.
        seed: Of the noise, the folds and the networks.
        progress: Called with a :class:`noiseproof.learners.crossfit.Stage` when a part is finished.

    Returns:
        The model, the accuracies and the picture.

    Example:
        >>> demonstrate("noiseproof-demo").accuracies["fit"] > 90  # doctest: +SKIP
        True
    """
    place = Path(out)
    make_folder(place)
    recipes = {
        loss: Recipe("digits", loss, noise=f"symmetric:{noise_rate}", seed=seed, **{**FEATURE_DEFAULTS, "epochs": epochs})
        for loss in ("ce", "jal-ce")
    }
    data = prepare(recipes["ce"])
    splits = cast(Split, data.train), cast(Split, data.test)
    x, x_test = (split.inputs.reshape(len(split), -1) for split in splits)
    model = fit(x, splits[0].labels, folder=place / "model", quick=quick, seed=seed, progress=progress)
    fitted = 100 * float((model.predict(x_test) == splits[1].labels).mean())
    curves = {}
    for number, (loss, recipe) in enumerate(recipes.items()):
        curves[loss] = _test_accuracies(recipe, data)
        if progress is not None:
            progress(Stage(f"{loss} for {epochs} epochs", number, 3, None))
    stop = int(np.argmax(_test_accuracies(recipes["ce"], _held_out(data))))
    accuracies = {
        "fit": fitted,
        "JAL-CE, last epoch": curves["jal-ce"][-1],
        f"cross entropy, stopped early (epoch {stop + 1})": curves["ce"][stop],
        "cross entropy, last epoch": curves["ce"][-1],
    }
    wrong = float((data.train.labels != data.clean).mean())
    return Demonstration(model, wrong, accuracies, _draw(place / FIGURE_FILE, curves, stop, fitted, wrong))


def _test_accuracies(recipe: Recipe, data: TrainingData) -> list[float]:
    """After each epoch, in percent."""
    return [100 * (epoch.test_accuracy or 0.0) for epoch in train(recipe, data).record.epochs]


def _held_out(data: TrainingData) -> TrainingData:
    """The training data with every fifth example, and its given label, as the test split."""
    held = np.arange(len(data.train)) % HELD_OUT == 0
    x, y = cast(Split, data.train).inputs, data.train.labels
    clean = None if data.clean is None else data.clean[~held]
    return replace(data, train=Split(x[~held], y[~held]), test=Split(x[held], y[held]), clean=clean)


def _draw(path: Path, curves: Mapping[str, Sequence[float]], stop: int, fitted: float, wrong: float) -> Path:
    """Accuracy on correct test labels by epoch; the same numbers give the same bytes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.8), layout="constrained")
    axes = figure.subplots()
    epochs = np.arange(1, len(curves["ce"]) + 1)
    style: dict[str, Any] = {"linewidth": 1.5}
    axes.axhline(fitted, label=f"noiseproof fit: {fitted:.1f} %", **line_style(2) | {"linestyle": "-"}, **style)
    for k, (loss, name) in enumerate((("ce", "cross entropy"), ("jal-ce", "JAL-CE"))):
        axes.plot(epochs, curves[loss], label=f"{name}: {curves[loss][-1]:.1f} % at the end", **line_style(k), **style)
    early = curves["ce"][stop]
    axes.plot(stop + 1, early, "o", color=line_style(0)["color"], label=f"cross entropy, stopped early: {early:.1f} %")
    axes.set(xlabel="epoch", ylabel="accuracy on correct test labels, %")
    axes.set_title(f"Handwritten digits, {wrong:.0%} of the training labels wrong", fontsize=11)
    axes.legend(fontsize=9, loc="center right")
    write_whole(path, lambda place: figure.savefig(place, dpi=150, format="png", metadata={"Software": None}))
    return path
