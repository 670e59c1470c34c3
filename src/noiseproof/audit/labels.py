"""An audit from examples and their given labels: our own networks, cross-validated, make the predictions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from noiseproof.audit.folds import HeldOut, Plan, Progress, State, Store, cross_validated, digest_of, evened, stratified_folds
from noiseproof.audit.mixture import Labels, Mixture, View, fit_mixture, log_view
from noiseproof.audit.neighbours import neighbour_votes
from noiseproof.audit.probabilities import checked_features, concluded, fitted, part_of, posterior_of
from noiseproof.audit.result import Audit
from noiseproof.data import DataError, Dataset, Examples, Split
from noiseproof.data.dataset import as_split
from noiseproof.train import Recipe, RunOptions, override, own_recipe, with_noise

__all__ = ["SMALL_NETWORK", "audit_labels", "learnt_small", "planned"]

ROBUST, PLAIN = "jal-ce", "ce"
FOLDS = 5
EPOCHS = 40
"""Of features; images keep their recipe's"""
MANY = 50
SMALL_IMAGES: dict[bool, dict[str, Any]] = {
    False: {"l1": 5e-5, "l2": 0.0},
    True: {"l1": 5e-6, "l2": 0.0, "lr": 0.1, "loss_options": {"alpha": 5.0, "beta": 1.0, "a": 20.0}},
}
"""What JAL-CE is published with for small images, of few classes and of many (CIFAR-10 and CIFAR-100)"""
SMALL_NETWORK, SMALL_SIDE = "cnn5", (32, 32)
SMALL: dict[str, Any] = {"optimiser": "adam", "lr": 2e-3, "nesterov": False, "l1": 0.0, "l2": 0.0, "clip": None}
SMALL_SEEN, SMALL_EPOCHS = 300_000, (10, 100)
SMALL_NOTE = (
    f"without a GPU the images were learnt by a small network, {SMALL_NETWORK}, at about 32x32 pixels: what it cannot tell "
    "looks wrong; a larger one on a GPU, or features of a pretrained model, would judge better"
)
"""How images are learnt without a GPU: the size of files that are of no small size themselves, how many images a network sees,
which makes their epochs, and the least and most of these"""
NAMED = 10  # classes that a note names


def audit_labels(
    x: ArrayLike | Examples,
    y: ArrayLike | None = None,
    *,
    classes: Sequence[str] | None = None,
    features: ArrayLike | None = None,
    folds: int = FOLDS,
    quick: bool = False,
    model: str | None = None,
    epochs: int | None = None,
    seed: int = 0,
    folder: str | Path | None = None,
    progress: Callable[[Progress], object] | None = None,
    device: str | torch.device = "auto",
    workers: int = 2,
    skip_corrupt: bool = False,
) -> Audit:
    """Which labels look wrong, from examples and the labels ``y`` that they were given.

    ``x`` are features ``[N, D]``, images as uint8 ``[N, H, W]`` or ``[N, H, W, C]``, or a :class:`noiseproof.data.Split` or
    :class:`noiseproof.data.ImageFiles`, whose own labels are taken where ``y`` is left out. Labels count from 0.

    Networks are trained by JAL-CE, each without one of ``folds`` folds, and predict the labels of that fold. Predictions and
    the labels of the nearest examples, by ``features`` if given, say which labels are likely wrong; networks trained by cross
    entropy on these opinions as soft labels say it again, better. ``quick`` trains one network on all labels, which JAL-CE does
    not memorise, and is less exact. docs/audit.md has the way in full, and what it is worth.

    ``model`` and ``epochs`` change the recipe, that of :func:`noiseproof.train.own_recipe` for the kind of the data; without a
    GPU images are learnt by a small network, ``cnn5``, unless ``model`` names another. With a ``folder`` finished folds are
    kept there, and the same call does not train them again. ``progress`` is told after each epoch. The same ``seed`` gives the
    same answer on the same machine.
    """
    examples = _examples(x, y, classes)
    names = tuple(classes) if classes is not None else tuple(map(str, range(int(examples.labels.max()) + 1)))
    asked: dict[str, Any] = {"folds": folds, "quick": quick, "model": model, "epochs": epochs, "seed": seed}
    plan, recipe = planned(examples, names, options=_options(device, workers, skip_corrupt), **asked)
    given = plan.task.train.labels
    own = None if features is None else checked_features(features, len(given))
    tell, store = _Told(progress, plan.folds, recipe.epochs, 0 if quick else _half(recipe.epochs)), Store(folder)
    with store.claimed():
        first = cross_validated(plan, recipe, store, on_epoch=tell.of("given labels"))
        unread = np.asarray(np.isnan(first.probabilities).any(1))
        votes = _votes(plan, first, own)
        views = [log_view(_known(first, unread, given)), *votes]
        part = part_of(views[0], np.random.default_rng(seed))
        found = fitted([view[part] for view in views], given[part])
        posterior = posterior_of(found, views, given)
        mutual: float | None = None
        if not quick:
            second = cross_validated(plan, _soft_recipe(plan, recipe), store, posterior, tell.of("soft labels"))
            views = [log_view(_known(second, unread, given)), *votes]
            found = fit_mixture([view[part] for view in views], given[part], transition=found.transition)
            posterior = posterior_of(found, views, given)
            mutual = float((first.probabilities.argmax(1) == second.probabilities.argmax(1))[~unread].mean())
    notes = [SMALL_NOTE] if learnt_small(examples, model, plan.options.device) else []
    return _answer(plan, found, views, posterior, first, [*notes, *_notes(plan, unread)], own is not None, mutual)


def _answer(
    plan: Plan,
    model: Mixture,
    views: list[View],
    posterior: NDArray[np.float32],
    first: HeldOut,
    notes: list[str],
    own_features: bool,
    mutual: float | None,
) -> Audit:
    given = plan.task.train.labels
    read = np.isfinite(first.probabilities).all(1)
    agreement = float((first.probabilities.argmax(1) == given)[read].mean())
    found = concluded(model, views, posterior, given, np.random.default_rng(plan.seed), mutual)
    if plan.fold is None:
        how = f"one network trained on all labels with {ROBUST}, its predictions in sample"
    else:
        how = f"{plan.folds}-fold cross-validation with {ROBUST}, then with {PLAIN} on soft labels, predictions out of sample"
    opinion = "features that were given" if own_features else "the network's features" if first.features.shape[1] else ""
    how += f"; labels of the nearest examples by {opinion}" if opinion else ""
    how += "; maximum likelihood of a transition matrix and recalibrated predictions"
    return Audit(
        given,
        posterior,
        agreement=agreement,
        classes=plan.task.classes,
        how=how,
        fold=plan.fold,
        out_of_sample=plan.fold is not None,
        notes=tuple(notes),
        **found._asdict(),
    )


def _notes(plan: Plan, unread: NDArray[np.bool_]) -> list[str]:
    """What a reader must know of the training."""
    found = []
    counts = np.bincount(plan.task.train.labels, minlength=len(plan.task.classes))
    if plan.fold is not None:
        for chosen, text in (
            (counts == 1, "with one example cannot be held out and learnt: nothing is known of their label"),
            (
                (counts > 1) & (counts < plan.folds),
                f"with fewer examples than the {plan.folds} folds are in fewer folds",
            ),
        ):
            if chosen.any():
                names = [plan.task.classes[k] for k in np.flatnonzero(chosen)]
                more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
                found.append(f"classes {text}: {', '.join(names[:NAMED])}{more}")
    if unread.any():
        found.append(f"{int(unread.sum())} images could not be read: nothing is known of their labels")
    return found


def _examples(x: ArrayLike | Examples, y: ArrayLike | None, classes: Sequence[str] | None) -> Examples:
    """The examples with their given labels, checked."""
    where, count = "audit_labels", None if classes is None else len(classes)
    if hasattr(x, "with_labels"):
        examples: Examples = x if y is None else x.with_labels(np.asarray(y))  # type: ignore[assignment]  # an Examples
        if examples.in_memory:
            examples = Split(as_split(examples.inputs, examples.labels, count, where).inputs, examples.labels, examples.paths)
    elif y is None:
        raise TypeError("audit_labels needs the given labels y beside the examples x")
    else:
        inputs = np.asarray(x)
        if inputs.ndim == 2 and inputs.dtype.kind in "iub":  # no image has two dimensions less one
            inputs = inputs.astype(np.float32)
        examples = as_split(inputs, y, count, where)
    labels = examples.labels
    if count is not None and len(labels) and labels.max() >= count:
        raise DataError(f"{where}: labels must be in [0, {count - 1}], the classes, got {labels.max()}")
    if (different := len(np.unique(labels))) < 2:
        raise ValueError(f"there must be labels of at least two classes, got {different}; nothing can be mistaken")
    return examples


def planned(
    examples: Examples,
    names: tuple[str, ...],
    *,
    folds: int = FOLDS,
    quick: bool = False,
    model: str | None = None,
    epochs: int | None = None,
    seed: int = 0,
    options: RunOptions,
) -> tuple[Plan, Recipe]:
    """The folds of the examples, and the recipe for their given labels."""
    if not quick and not 2 <= folds <= len(examples):
        raise ValueError(f"folds must be in [2, {len(examples)}], the number of examples, got {folds}")
    dataset = Dataset("audit", examples, None, names)
    recipe = _robust_recipe(dataset, model, seed, options)
    recipe = recipe if epochs is None else override(recipe, {"epochs": epochs})
    task = with_noise(dataset, recipe)
    fold = None if quick else stratified_folds(examples.labels, folds, seed)
    plan = Plan(task, fold, seed, options, digest_of(task))
    return plan, override(recipe, {"batch": _batch(recipe.batch, plan)})


def learnt_small(examples: Examples, model: str | None, device: torch.device) -> bool:
    """Whether examples are learnt by the small network: images, where there is no GPU, and no other network is named."""
    return model is None and examples.kind != "features" and device.type == "cpu"


def _robust_recipe(dataset: Dataset, model: str | None, seed: int, options: RunOptions) -> Recipe:
    """For the given labels, by the kind of the examples."""
    examples, gpu = dataset.train, options.device.type == "cuda"
    size = "none" if options.skip_corrupt else None  # damaged files can be left out batch by batch, not of images in memory
    if learnt_small(examples, model, options.device):
        recipe = own_recipe(dataset, "audit", ROBUST, model=SMALL_NETWORK, size=size, seed=seed, gpu=gpu)
        if examples.kind == "files" and recipe.size is None and not options.skip_corrupt:
            recipe = own_recipe(dataset, "audit", ROBUST, model=SMALL_NETWORK, size=SMALL_SIDE, seed=seed, gpu=gpu)
        return override(recipe, SMALL | {"epochs": int(np.clip(SMALL_SEEN // len(examples), *SMALL_EPOCHS))})
    recipe = own_recipe(dataset, "audit", ROBUST, model=model, size=size, seed=seed, gpu=gpu)
    changes: dict[str, Any] = {"epochs": EPOCHS} if examples.kind == "features" else {}
    if recipe.l2 and recipe.augment == "crop-flip":
        changes |= SMALL_IMAGES[len(dataset.classes) >= MANY]
    if gpu and examples.kind != "features" and torch.cuda.is_bf16_supported(including_emulation=False):
        changes["precision"] = "bf16"  # twice as fast as tf32, and what is published for CIFAR comes out the same in it
    return override(recipe, changes)


def _batch(batch: int, plan: Plan) -> int:
    """The recipe's, or one less and so on: no last batch may be one example, on which BatchNorm cannot train."""
    trained = [plan.parts(number)[1] for number in range(plan.folds)]
    sizes = {len(rows) for kept in trained for rows in (kept, evened(kept, plan.task.train.labels))}
    while batch > 2 and any(size % batch == 1 for size in sizes):
        batch -= 1
    return batch


def _soft_recipe(plan: Plan, recipe: Recipe) -> Recipe:
    """Cross entropy with the decay of its own default, if that is of the same optimiser, for half the epochs."""
    dataset = Dataset("audit", plan.task.train, None, plan.task.classes)
    plain = own_recipe(dataset, "audit", PLAIN, model=recipe.model, size=recipe.size or "none", seed=plan.seed)
    decay = {"l1": plain.l1, "l2": plain.l2} if plain.optimiser == recipe.optimiser else {}
    return override(recipe, {"loss": PLAIN, "loss_options": {}, **decay, "epochs": _half(recipe.epochs)})


def _half(epochs: int) -> int:
    return max(1, epochs // 2)


def _options(device: str | torch.device, workers: int, skip_corrupt: bool) -> RunOptions:
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return RunOptions(torch.device(device), workers, skip_corrupt)


def _votes(plan: Plan, first: HeldOut, own: NDArray[np.floating] | None) -> list[View]:
    """The labels of the nearest examples, as a list of one view or none.

    Features that were given compare all examples, those of networks only the examples of one fold: each network has its own.
    """
    given, classes = plan.task.train.labels, len(plan.task.classes)
    device = plan.options.device
    if own is not None:
        return [log_view(neighbour_votes(own, given, classes, device=device))]
    if not first.features.shape[1]:
        return []
    votes = np.empty((len(given), classes), dtype=np.float32)
    for number in range(plan.folds):
        mine = np.arange(len(given)) if plan.fold is None else np.flatnonzero(plan.fold == number)
        votes[mine] = neighbour_votes(np.nan_to_num(first.features[mine]), given[mine], classes, device=device)
    return [log_view(votes)]


def _known(found: HeldOut, unread: NDArray[np.bool_], given: Labels) -> NDArray[np.floating]:
    """The probabilities; as the labels are distributed where an image could not be read."""
    p = found.probabilities.copy()
    p[unread] = np.bincount(given, minlength=p.shape[1]) / len(given)
    return p


class _Told:
    """Counts the epochs of all networks for the caller's progress."""

    def __init__(self, progress: Callable[[Progress], object] | None, folds: int, first: int, second: int) -> None:
        self.progress, self.folds, self.epochs = progress, folds, {"given labels": first, "soft labels": second}
        self.done: dict[tuple[str, int], int] = {}
        self.lock = threading.Lock()

    def of(self, stage: str) -> Callable[[int, int, State], None]:
        total, epochs = self.folds * sum(self.epochs.values()), self.epochs[stage]

        def told(fold: int, epoch: int, state: State) -> None:
            if self.progress is not None:
                with self.lock:  # folds that are trained side by side tell it in turn
                    self.done[stage, fold] = epoch
                    done = sum(self.done.values())
                    self.progress(Progress(stage, fold + 1, self.folds, epoch, epochs, done, total, state))

        return told
