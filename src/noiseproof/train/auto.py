"""``loss.a=auto`` in a recipe: the number that it stands for, once the data are open."""

from __future__ import annotations

import dataclasses

import numpy as np

from noiseproof.noise import LabelNoise, NoiseSpec, NoisyLabels
from noiseproof.theory.choice import AUTO, chosen_options
from noiseproof.train.recipe import Recipe
from noiseproof.train.training_data import TrainingData

__all__ = ["resolve_auto"]

WAYS = (
    "say it, loss.a=auto:0.3 for a share of wrong labels, auto:symmetric:0.3, auto:FILE for a transition matrix, or "
    "auto:FOLDER for an audit, which 'noiseproof audit DATA --quick' makes"
)


def resolve_auto(recipe: Recipe, task: TrainingData) -> Recipe:
    """The recipe with ``loss.a`` as a number, if it is ``auto``, and the reasons in its ``why``.

    >>> from noiseproof.train import prepare
    >>> recipe = Recipe(dataset="digits", loss="jal-ce", loss_options={"a": "auto"}, noise="symmetric:0.4")
    >>> resolve_auto(recipe, prepare(recipe)).loss_options
    {'a': 18.0, 'beta': 1.6666666666666667}
    """
    if not recipe.has_auto:
        return recipe
    source = str(recipe.loss_options["a"]).partition(":")[2]
    classes = len(task.classes)
    try:
        noise = _said(source) if source else _of_labels(recipe, task)
        options = {name: value for name, value in recipe.loss_options.items() if name != "a"}
        chosen, found = chosen_options(recipe.loss, options, noise, classes=classes)
    except (ValueError, OSError) as error:
        raise ValueError(f"loss.a={AUTO}{':' * bool(source)}{source}: {error}") from error
    return dataclasses.replace(recipe, loss_options=chosen, why=found.reasons)


def _said(source: str) -> float | str:
    """A rate, or a noise as text."""
    try:
        return float(source)
    except ValueError:
        return source


def _of_labels(recipe: Recipe, task: TrainingData) -> LabelNoise | NoisyLabels:
    """The noise that the recipe puts on the labels: as it is asked for, or as it came out where it has no matrix."""
    if task.soft is not None:
        raise ValueError(f"the labels are soft, and what is wrong with them is not known; {WAYS}")
    if recipe.noise == "none":
        raise ValueError(f"the recipe puts no noise on the labels, and that of the labels as given is not known; {WAYS}")
    spec, classes = NoiseSpec.parse(recipe.noise), len(task.classes)
    if spec.has_matrix:
        return spec.of(task.name).matrix(classes)
    clean = np.asarray(task.clean)  # which noise from a file of labels and by instance always leaves
    return NoisyLabels.compare(clean, task.train.labels, classes)
