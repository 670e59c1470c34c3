"""The paper's runs as recipes: by name, or of one published number."""

from __future__ import annotations

import difflib
import inspect
from typing import Any

from noiseproof.losses import find_loss, list_losses
from noiseproof.paper.cells import Cell, cells
from noiseproof.paper.noise import NOISE, resolve_noise
from noiseproof.paper.settings import PARAMETERS, SETTINGS, Difference, check_profile, listed, regularisation, resolved
from noiseproof.train import Recipe, override

__all__ = ["SEEDS", "QuotedError", "differences", "list_recipes", "recipe", "recipe_of"]

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
        near = difflib.get_close_matches(f"{dataset}/{second.lower()}", list_recipes(), n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
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
