"""The paper's runs as recipes: by name, or of one published number; and what ``human:worst`` and its like stand for."""

from __future__ import annotations

import difflib
import inspect
from pathlib import PurePath
from typing import Any

from noiseproof.io.text import did_you_mean
from noiseproof.losses import find_loss, list_losses
from noiseproof.noise import NoiseSpec
from noiseproof.noise.matrix import MATRIX_FILES, MATRIX_NOISES
from noiseproof.paper.published import Cell, cells
from noiseproof.paper.settings import (
    PARAMETERS,
    SETTINGS,
    Difference,
    Differs,
    Profile,
    check_profile,
    listed,
    regularisation,
    resolved,
)
from noiseproof.train import Recipe, override

BLOCKS = (
    "the text flips labels 'within the same super-class into the next'; "
    "the code takes blocks of five consecutive labels, which are alphabetical and not the super-classes"
)
FIXED = (
    "the text says 'we follow the approach in PDN'; the code reads one fixed file of labels for each rate, "
    "in which a uniformly random subset is changed and only the destination depends on the image"
)
NOISE: dict[str, dict[str, Any]] = {
    "cifar10": {
        "asymmetric:RATE": "asymmetric-cifar10:RATE",
        "instance:RATE": Differs("instance:RATE", "labels:cifar10_dependent_RATE.json", FIXED),
        "human:aggregate": "labels:CIFAR-10_human.pt#aggre_label",
        "human:random1": "labels:CIFAR-10_human.pt#random_label1",
        "human:worst": "labels:CIFAR-10_human.pt#worse_label",
    },
    "cifar100": {
        "asymmetric:RATE": Differs("asymmetric-cifar100:RATE", "asymmetric-cifar100-blocks:RATE", BLOCKS),
        "instance:RATE": Differs("instance:RATE", "labels:cifar100_dependent_RATE.json", FIXED),
        "human:noisy": "labels:CIFAR-100_human.pt#noisy_label",
    },
    # The digits have MNIST's classes, and so its similar pairs.
    "digits": {"asymmetric:RATE": "asymmetric-mnist:RATE", "instance:RATE": "instance:RATE"},
    "webvision": {},
    "clothing1m": {},
}
"""The noise that a name stands for on each data set, where that differs. Label files are looked for in the folder of data sets:
instance noise under the names in the authors' code, human labels under CIFAR-N's names."""
PUBLISHED_RATES = (0.2, 0.4, 0.6)
TRAINED_ON = {"ilsvrc12": "webvision"}
"""ILSVRC12's validation images only test the networks that WebVision trained."""
HISTOGRAMS = {("cifar10", loss, "symmetric:0.4"): (30, 60, 90, 120) for loss in ("ce", "jal-ce")}
"""The runs whose confidences the paper shows, and after which epochs."""
SEEDS = (123, 124, 125)
"""The seeds of the paper's trials."""


class QuotedError(ValueError):
    """The number was copied from another paper, so there is no run to repeat."""


def recipe(name: str, *, noise: str = "none", seed: int = SEEDS[0], profile: str = "paper-code") -> Recipe:
    """The recipe DATASET/LOSS, as the paper writes the names or as the catalogue does.

    Args:
        name: Such as ``cifar10/jal-ce`` or ``CIFAR100/NCE+RCE``; :func:`list_recipes` lists them.
        noise: ``symmetric:0.8``, ``asymmetric:0.4``, ``instance:0.4``, ``human:worst`` or what else a recipe accepts.
        seed: The published means are over ``SEEDS``.
        profile: ``paper-code`` or ``paper-text``, where these differ, see :func:`differences`.

    Returns:
        The recipe of one run.

    Raises:
        ValueError: There is no such recipe, noise or profile; the message names the nearest.

    >>> found = recipe("CIFAR100/NCE+RCE", noise="asymmetric:0.4")
    >>> found.loss_options, found.noise, found.l2
    ({'alpha': 10.0, 'beta': 0.1, 'clip': 0.0001}, 'asymmetric-cifar100-blocks:0.4', 1e-05)
    """
    dataset, loss = _split(name)
    chosen = check_profile(profile)
    spec = resolve_noise(dataset, noise, chosen)
    facts = resolved({**SETTINGS[dataset], **regularisation(dataset, loss)}, chosen)
    if (dataset, loss, spec) in HISTOGRAMS:
        facts["confidence_epochs"] = HISTOGRAMS[dataset, loss, spec]
    options = resolved(_losses(dataset)[loss], chosen)
    return Recipe(dataset=dataset, loss=loss, loss_options=options, noise=spec, seed=seed, **facts)


def recipe_of(cell: Cell, seed: int = SEEDS[0], profile: str = "paper-code") -> Recipe:
    """The recipe behind a published number. One run: the number is the mean over several seeds.

    A cell of ILSVRC12 has the recipe of WebVision's: the same run is tested on both.

    Args:
        cell: The number.
        seed: The seed of the run.
        profile: ``paper-code`` or ``paper-text``.

    Returns:
        The recipe of one run.

    Raises:
        QuotedError: The paper copied the number from another.

    >>> recipe_of(cells(table="human", loss="JAL-CE")[0]).dataset
    'cifar10'
    """
    if cell.quoted_from is not None:
        raise QuotedError(
            f"{cell.loss} on {cell.dataset}, {cell.spec}: the paper quotes {cell.mean} from the {cell.quoted_from}, "
            "which trains differently; there is no recipe behind it"
        )
    dataset = TRAINED_ON.get(cell.dataset, cell.dataset)
    found = recipe(f"{dataset}/{cell.loss}", noise=cell.spec, seed=seed, profile=profile)
    weights = {"loss.alpha": cell.alpha, "loss.beta": cell.beta}
    return override(found, {name: value for name, value in weights.items() if value is not None})


def list_recipes() -> tuple[str, ...]:
    """The names that :func:`recipe` knows.

    Returns:
        The names, DATASET/LOSS.

    >>> list_recipes()[:3], len([name for name in list_recipes() if name.startswith("webvision/")])
    (('cifar10/ce', 'cifar10/fl', 'cifar10/gce'), 9)
    """
    return tuple(f"{dataset}/{loss}" for dataset in SETTINGS for loss in _losses(dataset))


def differences(dataset: str, loss: str) -> list[Difference]:
    """Where the paper's text and its code differ for a data set and a loss.

    Args:
        dataset: Such as ``cifar10``.
        loss: Such as ``jal-ce``.

    Returns:
        The differences, each with its field, the text's value, the code's value and the source.

    Raises:
        ValueError: There is no recipe for them.

    >>> [(d.field, d.text, d.code) for d in differences("cifar10", "gce") if d.field.startswith("loss.")]
    [('loss.q', 0.9, 0.7)]
    """
    dataset, loss = _split(f"{dataset}/{loss}")
    return [
        *listed(_losses(dataset)[loss], "loss."),
        *listed({**SETTINGS[dataset], **regularisation(dataset, loss)}),
        *listed(NOISE[dataset], "noise "),
    ]


def _losses(dataset: str) -> dict[str, dict[str, Any]]:
    """The losses of a data set and their options; on the digits, which are not in the paper, every loss with its defaults."""
    if dataset in PARAMETERS:
        return PARAMETERS[dataset]
    entries = (entry for entry in list_losses() if entry.needs_own_loop is None)
    return {entry.name: {} for entry in entries if inspect.Parameter.empty not in entry.defaults.values()}


def _split(name: str) -> tuple[str, str]:
    """The names of the data set and the loss in the tables."""
    if not isinstance(name, str):
        raise TypeError(f"a recipe is looked up by its name, DATASET/LOSS, got {name!r}")
    first, _, second = (part.strip() for part in name.partition("/"))
    dataset = first.lower().replace("-", "").replace("_", "")
    if dataset in TRAINED_ON:
        raise ValueError(f"nothing is trained on {first}, it only tests: use '{TRAINED_ON[dataset]}/{second or 'LOSS'}'")
    if not second:
        raise ValueError(f"a recipe's name is DATASET/LOSS, such as 'cifar10/jal-ce', got {name!r}")
    if dataset not in SETTINGS:
        hint = did_you_mean(f"{dataset}/{second.lower()}", list_recipes())
        raise ValueError(f"unknown recipe {name!r}; {hint}the data sets are {', '.join(SETTINGS)}")
    loss = find_loss(second).name
    if loss not in _losses(dataset):
        raise _no_recipe(dataset, loss)
    return dataset, loss


def _no_recipe(dataset: str, loss: str) -> ValueError:
    """The error for a loss without a recipe, with the way out."""
    if any(cell.quoted_from and cell.dataset == dataset and find_loss(cell.loss).name == loss for cell in cells()):
        return QuotedError(f"the paper quotes {loss} on {dataset} from another paper; there is no recipe behind its numbers")
    entry = find_loss(loss)
    if entry.needs_own_loop is not None:
        return ValueError(f"{loss} {entry.needs_own_loop}: train it in a loop of your own")
    return ValueError(
        f"the paper does not train {loss} on {dataset}, only {', '.join(_losses(dataset))}; "
        f"to do so, change one of these: {dataset}/ce with --set loss={loss}, in Python override(recipe('{dataset}/ce'), "
        f"{{'loss': '{loss}'}})"
    )


def resolve_noise(dataset: str, noise: str, profile: Profile) -> str:
    """The recipe's ``noise`` for this data set and profile; label files, matrices and full names stay as they are.

    >>> resolve_noise("cifar100", "asymmetric:0.4", "paper-code")
    'asymmetric-cifar100-blocks:0.4'
    """
    known = resolved(NOISE[dataset], profile)
    if noise.startswith("human:"):
        if noise not in known:
            raise ValueError(_unknown(dataset, noise, known))
        return str(known[noise])
    spec = NoiseSpec.parse("none" if noise == "clean" else noise)
    if spec.kind in MATRIX_NOISES:
        _check_counts(dataset, spec, profile)
    if spec.kind in ("none", "labels", *MATRIX_NOISES) or PurePath(spec.file).suffix in MATRIX_FILES:
        return str(spec)
    if f"{spec.kind}:RATE" not in known:
        raise ValueError(_unknown(dataset, noise, known))
    target = str(known[f"{spec.kind}:RATE"])
    if target.startswith("labels:") and spec.rate not in PUBLISHED_RATES:
        raise ValueError(
            f"the published labels of instance noise have the rates {', '.join(map(str, PUBLISHED_RATES))}, got {spec.rate}; "
            "profile 'paper-text' makes labels of any rate"
        )
    return target.replace("RATE", str(spec.rate))


def _check_counts(dataset: str, spec: NoiseSpec, profile: Profile) -> None:
    """Refuse noise that the published counts turn into none: a run would say 0.1 and train on clean labels."""
    if (dataset, spec.kind, profile) == ("cifar100", "symmetric", "paper-code") and 0 < spec.rate / 99 * 500 < 1:
        raise ValueError(
            f"the rate of symmetric noise on cifar100 must be at least 0.198 in profile 'paper-code', got {spec.rate}: "
            "the published counts would change no label; profile 'paper-text' has exact counts"
        )


def _unknown(dataset: str, noise: str, known: dict[str, Any]) -> str:
    free = [f"{kind}:RATE" for kind, made in MATRIX_NOISES.items() if made.classes is None]
    names = ["none", *free, *known, "labels:FILE", "labels:FILE#NAME"]
    kind = noise.partition(":")[0]
    near = difflib.get_close_matches(kind, [name.partition(":")[0] for name in names], n=1)
    if near and ":" not in noise and f"{near[0]}:RATE" in names:
        near = [f"{near[0]}:0.4"]
    hint = f"did you mean {near[0]!r}? " if near and near[0] != kind else ""
    return f"{dataset} has no noise {noise!r}; {hint}it has {', '.join(names)}, and a matrix's file"
