"""Losses compared with each other on the same seeds, with paired statistics.

paired   ranks, intervals and groups of paired accuracies
result   Comparison: the table in every format
runs     the runs behind it: planned, found in their folders, trained in processes
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from noiseproof.comparison.result import Comparison, CompetitorResult
from noiseproof.comparison.runs import (
    ComparisonProgress,
    ComparisonRuns,
    Competitor,
    parse_losses,
    parse_regularisation,
)
from noiseproof.data import Dataset, data_root, open_dataset
from noiseproof.data.opening import DataOptions
from noiseproof.data.registry import named_in_memory
from noiseproof.theory.choice import AUTO
from noiseproof.train import Recipe, RunOptions, RunStore, TrainingData, override, own_recipe, resolve_auto, with_noise
from noiseproof.train.class_weights import ClassWeight
from noiseproof.train.network import check_model
from noiseproof.train.plan import defining
from noiseproof.train.runs import recipe_key
from noiseproof.train.training_data import data_warnings

__all__ = ["Comparison", "ComparisonProgress", "CompetitorResult", "compare"]

FIRST_SEED = 123


def compare(
    losses: str | Sequence[str],
    data: Any,
    *,
    noise: str = "none",
    seeds: int | Sequence[int] = 5,
    regularisation: str | Sequence[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    class_weight: ClassWeight = AUTO,
    test_noise: str | None = None,
    out: str | Path = "runs",
    jobs: int | None = None,
    options: RunOptions | None = None,
    recipe_for: Callable[[str, int], Recipe] | None = None,
    data_folder: str | None = None,
    progress: ComparisonProgress | None = None,
    **reading: Unpack[DataOptions],
) -> Comparison:
    """Train losses with the same seeds and the same budget, and compare their test accuracies.

    A seed gives every loss the same label noise, initial weights and order of examples. The runs are kept in folders: what is
    finished is not trained again, so a call that was stopped goes on, and more losses or seeds only train what is missing.

    Further keyword arguments say how a table is read, ``label="churn"`` say: see :func:`noiseproof.data.open_dataset`.

    Args:
        losses: Names, with options in parentheses: ``"ce,gce(q=0.5)"`` or a list of them; ``module:Name`` is one's own loss.
        data: What :func:`noiseproof.data.open_dataset` takes: a name, a place, a data frame.
        noise: Noise to put on the training labels, such as ``symmetric:0.4``.
        seeds: How many seeds, or which; intervals need three, the bootstrap six.
        regularisation: Train each loss with each of these: ``"l1:5e-5,l2:1e-4,none"``. None keeps the recipe's own.
        settings: Changes to all recipes: ``{"epochs": 50, "model": "mlp", "test_size": 0.2}``.
        class_weight: None, ``"balanced"``, ``"logit-adjustment"`` or weights by class for all losses. By default losses that
            collapse onto the majority class are trained with weights, if labels are imbalanced; recipes of
            ``recipe_for`` keep what they say.
        test_noise: How wrong the test labels are, to correct for it: ``0.3``, ``symmetric:0.3``, a matrix's file or an
            audit's folder.
        out: The folder of runs.
        jobs: Concurrent runs; by default on a CPU one for each core for features, on a GPU what fills it.
        options: Device and workers.
        recipe_for: Returns the recipe of a loss and a seed; by default :func:`noiseproof.train.own_recipe`'s for ``ce``.
        data_folder: The folder of data sets with a name.
        progress: Is called while the comparison proceeds.

    Returns:
        The table, the paired intervals and the groups; ``print`` shows them.

    Raises:
        ValueError: If a name is unknown, the data have no test split, or they changed since a run was trained.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     small = {"epochs": 1, "model.hidden": [8]}
        ...     found = compare("ce,mae", "digits", noise="symmetric:0.2", seeds=1, settings=small, out=folder, jobs=1)
        >>> sorted(row["loss"] for row in found.table())
        ['ce', 'mae']
    """
    changes, options = dict(settings or {}), options or RunOptions()
    if recipe_for is None or class_weight != AUTO:
        changes = {"class_weight": class_weight, **changes}
    chosen, strengths = parse_losses(_joined(losses)), parse_regularisation(_joined(regularisation))
    _check_settings(changes, regularisation is not None)
    dataset = open_dataset(data, data_folder, **reading)
    place, held = _place_of(data, dataset)
    changes |= {"data_options": reading} if reading and not held else {}
    if recipe_for is None:
        gpu = options.device.type == "cuda"
        of_ce = own_recipe(dataset, place, "ce", noise=noise, seed=0, gpu=gpu, **defining(changes))
        recipe_for = lambda loss, seed: dataclasses.replace(of_ce, seed=seed)  # noqa: E731 - a default

    def data_of(recipe: Recipe) -> TrainingData:
        return with_noise(dataset, recipe, data_root(data_folder))

    every = range(FIRST_SEED, FIRST_SEED + seeds) if isinstance(seeds, int) else seeds
    recipes: list[tuple[str, dict[int, Recipe]]] = [(shown, {}) for shown, _, _ in chosen for _ in strengths]
    for seed in every:
        task: TrainingData | None = None  # which all losses share
        for (_, of_seed), ((_, loss, given), strength) in zip(recipes, itertools.product(chosen, strengths), strict=True):
            changed = {"loss": loss, **changes, **strength, **{f"loss.{key}": value for key, value in given.items()}}
            recipe = override(recipe_for(loss, seed), changed)
            if recipe.has_auto:
                task = task or data_of(recipe)
                recipe = resolve_auto(recipe, task)
            of_seed[seed] = recipe
    competitors: dict[str, Competitor] = {}
    for one in (Competitor(shown, of_seed) for shown, of_seed in recipes):
        if (key := recipe_key(one.recipe.as_dict())) in competitors:
            raise ValueError(f"{one.loss} with regularisation {one.regularisation} is there twice")
        competitors[key] = one
    runs = ComparisonRuns(list(competitors.values()), data_of, RunStore(out), data_folder, options, test_noise, held)
    with named_in_memory(held):
        return _compared(runs, jobs, progress)


def _place_of(data: Any, dataset: Dataset) -> tuple[str, dict[str, Dataset]]:
    """What runs open the data by; data that are in no file get a name, by which processes find them too."""
    if isinstance(data, str | os.PathLike):
        return os.fspath(data), {}
    digest = hashlib.sha256("".join(dataset.sources.values()).encode()).hexdigest()
    place = f"{dataset.name}-{digest[:8]}"
    return place, {place: dataset}


def _compared(runs: ComparisonRuns, jobs: int | None, progress: ComparisonProgress | None) -> Comparison:
    if runs.data.test is None:
        raise ValueError("the data have no test split to compare on: --test-size 0.1 holds out a tenth")
    recipe, missing = runs.competitors[0].recipe, runs.missing()
    check_model(recipe, runs.data)
    if progress is not None:
        for text in dict.fromkeys(text for one in runs.competitors for text in data_warnings(one.recipe, runs.data)):
            progress.on_warning(text)
        progress.on_begin(runs.describe(len(missing)), len(missing))
    errors = runs.train(missing, jobs, progress)
    results = [runs.result(one) for one in runs.competitors]
    return Comparison(runs.setting(), results, tuple(runs.test_notes()), tuple(errors))


def _joined(texts: str | Sequence[str] | None) -> Any:
    return texts if texts is None or isinstance(texts, str) else ",".join(texts)


def _check_settings(changes: Mapping[str, Any], has_regularisation: bool) -> None:
    for key in changes:
        if key in ("loss", "loss_options") or key.startswith("loss."):
            option = key.partition(".")[2] or "a"
            raise ValueError(f"{key} cannot be set for all losses: write a loss's options with its name: 'jal-ce({option}=20)'")
        if key in ("l1", "l2") and has_regularisation:
            raise ValueError(f"the regularisation is given twice, as a list and as {key}; leave one of them out")
