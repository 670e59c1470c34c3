"""The data of benchmarks/audit.py: examples whose true labels are known, and labels that are partly wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from noiseproof.data import Split, load_digits, open_dataset
from noiseproof.noise import NoiseSpec, NoisyLabels
from noiseproof.paper.recipes import resolve_noise

__all__ = ["CLEAN", "DATA", "Examined", "opened"]

CLEAN = "none"
MADE = ("symmetric:0.2", "symmetric:0.4", "pairflip:0.2", "pairflip:0.4", "instance:0.3")
PEOPLE = {"cifar10": ("aggregate", "random1", "worst"), "cifar100": ("noisy",)}
ROWS, TEST_ROWS = 10_000, 5_000
"""Images whose features are computed, the first of each split: the official order is random"""
SIDE, FILTERS = 6, 128
CONTRAST, WHITENING, THRESHOLD = 10.0, 0.1, 0.25
AT_ONCE = 100  # images


@dataclass(frozen=True)
class Examined:
    """Examples with their true labels, and the names of the noises to put on them."""

    name: str
    train: Split
    test: Split | None
    classes: tuple[str, ...]
    noises: tuple[str, ...]
    model: str | None
    """The network, None for what an audit takes by itself"""
    noisy: Callable[[str, int], NoisyLabels]
    """The labels by the name of a noise and a seed"""


def opened(name: str, folder: Path | None, rows: int | None) -> Examined:
    """A data set by name, the first ``rows`` examples of it if given; official files and people's labels are in ``folder``."""
    return DATA[name](folder, rows)


def _digits(folder: Path | None, rows: int | None) -> Examined:
    """All of them: both splits."""
    data = load_digits()
    parts = [split for split in (data.train, data.test) if split is not None and split.in_memory]
    inputs, labels = (np.concatenate([getattr(part, name) for part in parts])[:rows] for name in ("inputs", "labels"))

    noisy = _made("digits", inputs, labels)
    return Examined("digits", Split(inputs, labels), None, data.classes, MADE, None, noisy)


def _made(name: str, inputs: NDArray[np.floating | np.uint8], labels: NDArray[np.int64]) -> Callable[[str, int], NoisyLabels]:
    """Noise that is put on true labels of ten classes."""

    def noisy(noise: str, seed: int) -> NoisyLabels:
        if noise == CLEAN:
            return NoisyLabels.compare(labels, labels, 10)
        return NoiseSpec.parse(noise).apply(labels, seed, classes=10, images=inputs, dataset=name)[0]

    return noisy


def _cifar(name: str, title: str, folder: Path | None, rows: int | None) -> Examined:
    """The images, and labels that people gave."""
    if folder is None:
        raise ValueError(f"{title} needs --data DIR, with the official files of {name} and CIFAR-N's of people's labels")
    data = open_dataset(name, folder)
    train, test = data.train, data.test
    if test is None or not train.in_memory or not test.in_memory:
        raise TypeError(f"{name} is in memory, with a test split")
    all_labels = train.labels

    def noisy(noise: str, seed: int) -> NoisyLabels:
        given = all_labels
        if noise != CLEAN:
            spec = NoiseSpec.parse(resolve_noise(name, f"human:{noise}", "paper-code"))
            given = spec.apply(all_labels, seed, classes=len(data.classes), root=folder)[0].labels
        return NoisyLabels.compare(all_labels[:rows], given[:rows], len(data.classes))

    part = slice(rows)
    examples = Split(train.inputs[part], all_labels[part]), Split(test.inputs[part], test.labels[part])
    return Examined(title, *examples, data.classes, PEOPLE[name], "cnn8", noisy)


def _cifar_patches(folder: Path | None, rows: int | None) -> Examined:
    return _patches(_cifar("cifar10", "cifar10n-patches", folder, rows or ROWS))


def _grey_patches(name: str, folder: Path | None, rows: int | None) -> Examined:
    """MNIST or Fashion-MNIST from its official files, with noise that is put on the labels."""
    if folder is None:
        raise ValueError(f"{name}-patches needs --data DIR, with the official files of {name}")
    data = open_dataset(name, folder)
    if data.test is None or not data.train.in_memory or not data.test.in_memory:
        raise TypeError(f"{name} is in memory, with a test split")
    train = data.train.take(np.arange(min(rows or ROWS, len(data.train))))
    noisy = _made(name, train.inputs, train.labels)
    return _patches(Examined(f"{name}-patches", train, data.test, data.classes, MADE, None, noisy))


def _patches(whole: Examined) -> Examined:
    """Features of images that nobody has trained: how far random patches of them are found in each quarter."""
    if whole.test is None:
        raise TypeError("the test images are needed")
    filters = _filters(whole.train.inputs)
    test = whole.test.take(np.arange(min(len(whole.test), TEST_ROWS)))
    train, test = (Split(_features(split.inputs, *filters), split.labels) for split in (whole.train, test))
    return replace(whole, train=train, test=test, model=None)


def _filters(images: NDArray[np.uint8]) -> tuple[torch.Tensor, torch.Tensor]:
    """Random patches, whitened, as linear functions of a patch: weights ``[D, F]`` and offsets ``[F]``."""
    generator = torch.Generator().manual_seed(0)
    some = _normalised(torch.from_numpy(images[:2_000])).flatten(0, 1)
    drawn = some[torch.randint(len(some), (50_000,), generator=generator)]
    drawn = drawn[drawn.any(1)]  # a blank patch is no pattern
    mean = drawn.mean(0)
    values, vectors = torch.linalg.eigh(torch.cov((drawn - mean).T))
    whiten = vectors @ torch.diag((values + WHITENING).rsqrt()) @ vectors.T
    chosen = torch.nn.functional.normalize((drawn[:FILTERS] - mean) @ whiten, dim=1)
    weights = whiten @ chosen.T
    return weights, mean @ weights


def _normalised(images: torch.Tensor) -> torch.Tensor:
    """Every patch ``[N, P, D]`` of images, each of mean 0 and of about one contrast."""
    patches = torch.nn.functional.unfold(images.permute(0, 3, 1, 2).float(), SIDE).transpose(1, 2)
    patches = patches - patches.mean(2, keepdim=True)
    return patches / (patches.var(2, keepdim=True) + CONTRAST).sqrt()


def _features(images: NDArray[np.uint8], weights: torch.Tensor, offsets: torch.Tensor) -> NDArray[np.float32]:
    """By Coates, Lee and Ng, AISTATS 2011, with random patches in place of centroids and a soft threshold."""
    side = images.shape[1] - SIDE + 1
    found = []
    for start in range(0, len(images), AT_ONCE):
        patches = _normalised(torch.from_numpy(images[start : start + AT_ONCE]))
        response = (patches @ weights - offsets - THRESHOLD).relu()
        grid = response.transpose(1, 2).unflatten(2, (side, side))
        found.append(torch.nn.functional.adaptive_avg_pool2d(grid, 2).flatten(1))
    return np.asarray(torch.cat(found).numpy())


DATA: dict[str, Callable[[Path | None, int | None], Examined]] = {
    "digits": _digits,
    "cifar10n": lambda folder, rows: _cifar("cifar10", "cifar10n", folder, rows),
    "cifar100n": lambda folder, rows: _cifar("cifar100", "cifar100n", folder, rows),
    "cifar10n-images": lambda folder, rows: replace(
        _cifar("cifar10", "cifar10n-images", folder, rows or ROWS), model=None, noises=("worst",)
    ),
    "cifar10n-patches": _cifar_patches,
    "mnist-patches": lambda folder, rows: _grey_patches("mnist", folder, rows),
    "fashion-mnist-patches": lambda folder, rows: _grey_patches("fashion-mnist", folder, rows),
}
