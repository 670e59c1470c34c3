"""What a run trains on: the data set with the labels of the recipe's noise, and the truth about that noise."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noiseproof import noise
from noiseproof.data import Dataset, ImageFiles, Split, data_root, open_dataset
from noiseproof.noise import NoisyLabels
from noiseproof.train.recipe import Recipe

__all__ = ["Task", "prepare"]

ASYMMETRIC = {"cifar10": "cifar10", "cifar100": "cifar100", "mnist": "mnist", "fashion-mnist": None}


@dataclass(frozen=True)
class Task:
    """Examples to train on, with the labels as given, and to test on; the clean training labels where they are known."""

    name: str
    classes: tuple[str, ...]
    train: Split | ImageFiles
    test: Split | ImageFiles | None
    clean: NDArray[np.int64] | None
    noise: dict[str, Any]
    """What the record says of the labels: their hash, and for noise that was added the rate and the rule"""
    sources: dict[str, str]

    @property
    def wrong(self) -> NDArray[np.bool_] | None:
        """Where the given label is not the clean one."""
        return None if self.clean is None else self.train.labels != self.clean


def prepare(recipe: Recipe, data: str | Path | None = None) -> Task:
    """Open the recipe's data set and put its noise on the training labels.

    ``data`` is the folder that data sets are in (default: ``$NOISEPROOF_DATA``).
    """
    return with_noise(open_dataset(recipe.dataset, data), recipe, data_root(data))


def with_noise(dataset: Dataset, recipe: Recipe, root: Path | None = None) -> Task:
    """The task that the recipe makes of a data set."""
    labels = dataset.train.labels
    if recipe.noise == "none":
        # Labels without added noise are the best there is, but nobody has said that they are clean.
        facts: dict[str, Any] = {"spec": "none", "hash": noise.label_hash(labels)}
        return Task(dataset.name, dataset.classes, dataset.train, dataset.test, None, facts, dataset.sources)
    noisy = noisy_labels(dataset, recipe, root)
    facts = {"spec": recipe.noise, "hash": noisy.hash, "rate": noisy.rate}
    if noisy.rule is not None:
        facts |= {"rule": noisy.rule, "seed": noisy.seed}
    train = dataclasses.replace(dataset.train, labels=noisy.labels)
    return Task(dataset.name, dataset.classes, train, dataset.test, labels, facts, dataset.sources)


def noisy_labels(dataset: Dataset, recipe: Recipe, root: Path | None) -> NoisyLabels:
    """The training labels under the recipe's noise, drawn anew for its seed."""
    classes, labels = len(dataset.classes), dataset.train.labels
    kind, _, rest = recipe.noise.partition(":")
    if kind == "labels":
        file, _, name = rest.partition("#")
        return noise.read_noisy_labels(_label_file(file, root), labels, classes, name or None)
    if kind == "instance":
        if isinstance(dataset.train, ImageFiles):
            raise ValueError("instance noise needs the images in memory; make the labels first and give labels:FILE")
        return noise.instance_dependent(dataset.train.inputs, labels, _rate(recipe.noise, rest), recipe.seed, classes=classes)
    if kind == "asymmetric":
        recipe = dataclasses.replace(recipe, noise=_asymmetric_spec(dataset.name, rest))
    return noise.from_spec(recipe.noise, classes).apply(labels, recipe.seed, recipe.noise_rule)


def _label_file(file: str, root: Path | None) -> Path:
    """A relative path is looked for in the data folder, then here."""
    path = Path(file).expanduser()
    places = [path] if path.is_absolute() or root is None else [root / path, path]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise FileNotFoundError(f"no label file {' or '.join(map(str, places))}")
    return found


def _rate(spec: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"the rate in {spec!r} must be a number, got {text!r}") from None


def _asymmetric_spec(dataset: str, rate: str) -> str:
    kind = ASYMMETRIC.get(dataset)
    if kind is None:
        known = ", ".join(name for name, kind in ASYMMETRIC.items() if kind)
        raise ValueError(f"asymmetric noise is defined for {known}, not for {dataset}; use pairflip or a matrix's file")
    return f"asymmetric-{kind}:{rate}"
