"""``audit_labels``: an audit from examples and their given labels, with predictions of cross-validated networks."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Unpack

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from noiseproof.audit.folds import (
    FOLDS,
    PLAIN_LOSS,
    ROBUST_LOSS,
    CrossValidationPlan,
    FoldStore,
    HeldOutPredictions,
    NetworkState,
    Progress,
    cross_validate,
    plan_cross_validation,
    soft_label_recipe,
    uses_small_network,
)
from noiseproof.audit.noise_model import NoiseModel, fit_noise_model
from noiseproof.audit.probabilities import FOLDS as PARTS
from noiseproof.audit.probabilities import audit_of, check_features, neighbour_votes
from noiseproof.audit.result import Audit
from noiseproof.audit.views import QUICK_FOLDS, affordable, check_parts, checked_labels, learn_views
from noiseproof.data import DataError, Dataset, Examples, ImageFiles, Split, Table, in_memory, open_dataset
from noiseproof.data.dataset import as_split
from noiseproof.data.features import Features
from noiseproof.data.frames import is_frame
from noiseproof.data.opening import DataOptions
from noiseproof.data.table import labels_of
from noiseproof.io.text import and_more, printable
from noiseproof.learners.catalog import default_learners
from noiseproof.learners.crossfit import assign_folds, left_out
from noiseproof.train import RunOptions
from noiseproof.train.engine import limited_threads
from noiseproof.train.plan import SMALL_NETWORK

SMALL_NETWORK_NOTE = (
    f"without a GPU the images were learnt by a small network, {SMALL_NETWORK}, at about 32x32 pixels: what it cannot tell "
    "looks wrong; a larger one on a GPU, or features of a pretrained model, would judge better"
)
MAX_CLASSES_NAMED = 10  # in a note


def audit_labels(
    x: Any,
    y: ArrayLike | None = None,
    *,
    classes: Sequence[str] | None = None,
    features: ArrayLike | None = None,
    folds: int | None = None,
    quick: bool = False,
    model: str | None = None,
    epochs: int | None = None,
    seed: int = 0,
    folder: str | Path | None = None,
    progress: Callable[[Any], object] | None = None,
    device: str | torch.device = "auto",
    workers: int = 2,
    threads: int | None = None,
    **reading: Unpack[DataOptions],
) -> Audit:
    """Find label errors in examples and the labels that they were given.

    Features are learnt by the learners of :func:`noiseproof.fit`, each without one of the folds, and they predict the labels of
    that fold. What several of them contradict is probably wrong.

    Images, and features for which a network or its epochs are given, are learnt by networks with JAL-CE. Their predictions and
    the labels of the nearest neighbours determine how likely each label is wrong. Networks trained with cross entropy on these
    probabilities as soft labels repeat that, more accurately. docs/how_to/audit.md explains both methods and how good they are.

    Further keyword arguments say how a table is read, ``label="churn"`` say: see :func:`noiseproof.data.open_dataset`.

    Args:
        x: Features ``[N, D]``, uint8 images ``[N, H, W]`` or ``[N, H, W, C]``, a :class:`noiseproof.data.Split` or
            :class:`noiseproof.data.ImageFiles`; or a data frame, a file or whatever else :func:`noiseproof.data.open_dataset`
            takes, of which the training split is audited.
        y: The given labels ``[N]``; the labels of ``x`` itself by default.
        classes: The names of the classes; their numbers by default.
        features: Features ``[N, D]`` by which the nearest neighbours are found, instead of the networks' own.
        folds: The number of folds of the cross-validation: 5, or 3 if ``quick``.
        quick: Fewer learners; or of networks one on all labels, which JAL-CE does not memorise. It is faster and less accurate.
        model: A network's name; by default that of :func:`noiseproof.train.own_recipe` for the kind of data, and for images
            without a GPU a small one, ``cnn5``.
        epochs: The epochs of each network; by default those of the recipe for the kind of data.
        seed: Seed of the folds, the networks and the bootstrap. The same seed gives the same audit on the same machine.
        folder: Where finished folds are kept; the same call does not train them again.
        progress: Called with a :class:`noiseproof.learners.crossfit.Stage` when a learner is finished, or with a
            :class:`Progress` after each epoch of a network.
        device: ``auto``, or a device of torch.
        workers: Processes that decode image files.
        threads: Threads of each learner or network; one by default for learners and small networks.

    Returns:
        The audit: how likely each label is wrong, the noise rate with an interval, the transition matrix.

    Raises:
        ValueError: If examples, labels, features, classes and folds do not fit together, or an image cannot be read.
        TypeError: If there are no labels.

    Example:
        >>> x = np.random.default_rng(0).normal(size=(60, 2)) + np.repeat([[0, 0], [9, 9]], 30, axis=0)
        >>> y = np.repeat([0, 1], 30)
        >>> y[7] = 1
        >>> audit_labels(x, y, quick=True).flagged.nonzero()[0].tolist()
        [7]
    """
    opened = _opened(x, y, classes, reading)
    examples = _examples(opened.x, opened.y, opened.classes)
    names = opened.classes
    names = tuple(names) if names is not None else tuple(map(str, range(int(examples.labels.max()) + 1)))
    if learnt_by_learners(examples, model, epochs):
        if not hasattr(opened.x, "with_labels"):  # an array, whose columns are scaled as those of a table
            examples = open_dataset(np.asarray(opened.x), label=examples.labels.tolist()).train
        dataset = Dataset(opened.name, examples, None, names, table=opened.table)
        return _audit_by_learners(dataset, features, folds, quick, seed, folder, progress, threads)
    folds = FOLDS if folds is None else folds
    asked: dict[str, Any] = {"folds": folds, "quick": quick, "model": model, "epochs": epochs, "seed": seed}
    plan, recipe = plan_cross_validation(examples, names, options=_options(device, workers, threads), **asked)
    given = plan.task.train.labels
    own = None if features is None else check_features(features, len(given))
    recipes = {"given labels": recipe} if quick else {"given labels": recipe, "soft labels": soft_label_recipe(plan, recipe)}
    counter = _EpochCounter(progress, plan.folds, {stage: each.epochs for stage, each in recipes.items()})
    store = FoldStore(folder)
    with store.claimed():
        first = cross_validate(plan, recipe, store, on_epoch=counter.of("given labels"))
        views = [first.probabilities, *_neighbour_views(plan, first, own)]
        fold = np.arange(len(given)) % PARTS if plan.fold is None else plan.fold
        noise = fit_noise_model(views, given, fold=fold, seed=seed)
        if not quick:
            second = cross_validate(plan, recipes["soft labels"], store, noise.posterior, counter.of("soft labels"))
            views.append(second.probabilities)
            noise = fit_noise_model(views, given, fold=fold, seed=seed)
    notes = [SMALL_NETWORK_NOTE] if uses_small_network(examples, model, plan.options.device) else []
    return _audit(plan, noise, first, [*notes, *_notes(plan)], own is not None)


def _audit(
    plan: CrossValidationPlan, noise: NoiseModel, first: HeldOutPredictions, notes: list[str], own_features: bool
) -> Audit:
    given = plan.task.train.labels
    agreement = float((first.probabilities.argmax(1) == given).mean())
    if plan.fold is None:
        how = f"one network trained on all labels with {ROBUST_LOSS}, its predictions in sample"
    else:
        how = f"{plan.folds}-fold cross-validation with {ROBUST_LOSS}, then with {PLAIN_LOSS} on soft labels"
        how += ", predictions out of sample"
    compared = "features that were given" if own_features else "the network's features" if first.features.shape[1] else ""
    how += f"; labels of the nearest examples by {compared}" if compared else ""
    how += "; a mean over hypotheses on the transition matrix, each with predictions calibrated to it"
    return audit_of(
        noise,
        given,
        agreement=agreement,
        classes=plan.task.classes,
        how=how,
        fold=plan.fold,
        out_of_sample=plan.fold is not None,
        notes=tuple(notes),
    )


def _notes(plan: CrossValidationPlan) -> list[str]:
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
                names = [printable(plan.task.classes[k]) for k in np.flatnonzero(chosen)]
                found.append(f"classes {text}: {and_more(names, MAX_CLASSES_NAMED)}")
    return found


class _Opened(NamedTuple):
    """What was handed in: arrays as they are, or the examples of a table, a place or a data set."""

    x: Any
    y: ArrayLike | None
    classes: Sequence[str] | None
    table: Table | None = None
    name: str = "audit_labels"


def _opened(x: Any, y: ArrayLike | None, classes: Sequence[str] | None, reading: DataOptions) -> _Opened:
    texts = isinstance(x, list | tuple) and bool(x) and isinstance(x[0], str | os.PathLike | Mapping)
    if isinstance(x, str | os.PathLike | Dataset) or texts or is_frame(x) or reading:
        options = reading if y is None else {**reading, "label": y}
        dataset = open_dataset(x, **options)
        return _Opened(dataset.train, None, dataset.classes if classes is None else classes, dataset.table, dataset.name)
    if y is not None and not isinstance(x, Split | ImageFiles) and np.asarray(y).dtype.kind not in "iu":
        labels = labels_of(y, len(x))
        return _Opened(x, labels.codes, labels.classes if classes is None else classes)
    return _Opened(x, y, classes)


def learnt_by_learners(examples: Examples, model: str | None, epochs: int | None) -> bool:
    """Whether examples are learnt by the learners of a fit: features, unless a network or its epochs are given."""
    return examples.kind == "features" and examples.in_memory and examples.inputs.ndim == 2 and model is None and epochs is None


def _audit_by_learners(
    dataset: Dataset,
    features: ArrayLike | None,
    folds: int | None,
    quick: bool,
    seed: int,
    folder: str | Path | None,
    progress: Callable[[Any], object] | None,
    threads: int | None,
) -> Audit:
    """A fit without the model."""
    count = folds or (QUICK_FOLDS if quick else FOLDS)
    if folds is None:
        count = min(count, len(dataset.train))
    if not 2 <= count <= len(dataset.train):
        raise ValueError(f"folds must be in [2, {len(dataset.train)}], the number of examples, got {folds}")
    given, classes = checked_labels(dataset), len(dataset.classes)
    names, dropped = affordable(default_learners(False, quick), len(given), classes)
    fold = assign_folds(given, count, seed)
    check_parts(given, fold)
    extra = []
    if features is not None:
        extra.append(neighbour_votes(check_features(features, len(given)), given, classes))
    x = Features.of(dataset).transform_inputs(in_memory(dataset.train).inputs)
    with ExitStack() as held:
        held.enter_context(limited_threads(threads or 1))
        if folder is None:
            folder = held.enter_context(TemporaryDirectory(prefix="noiseproof-"))
        place = Path(folder).expanduser()
        learnt = learn_views(
            x, given, classes, fold, names, extra=extra, seed=seed, progress=progress, folder=place, threads=threads
        )
    found = learnt.audit(dataset, learnt.decided())
    return replace(found, notes=(*found.notes, *left_out(dropped | learnt.crossed.dropped)))


def _examples(x: ArrayLike | Examples, y: ArrayLike | None, classes: Sequence[str] | None) -> Examples:
    """The examples with their given labels, checked."""
    where, count = "audit_labels", None if classes is None else len(classes)
    if hasattr(x, "with_labels"):
        examples: Examples = x if y is None else x.with_labels(np.asarray(y))  # type: ignore[assignment]  # an Examples
        if examples.in_memory:
            examples = replace(examples, inputs=as_split(examples.inputs, examples.labels, count, where).inputs)
    elif y is None:
        raise TypeError("audit_labels needs the given labels y of the examples x")
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


def _options(device: str | torch.device, workers: int, threads: int | None) -> RunOptions:
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return RunOptions(torch.device(device), workers, threads=threads)


def _neighbour_views(
    plan: CrossValidationPlan, first: HeldOutPredictions, own: NDArray[np.floating] | None
) -> list[NDArray[np.floating]]:
    """The labels of the nearest examples, as a list of one view or none.

    Features that were given compare all examples, those of networks only the examples of one fold: each network has its own.
    """
    given, classes = plan.task.train.labels, len(plan.task.classes)
    device = plan.options.device
    if own is not None:
        return [neighbour_votes(own, given, classes, device=device)]
    if not first.features.shape[1]:
        return []
    votes = np.empty((len(given), classes), dtype=np.float32)
    for number in range(plan.folds):
        mine, _ = plan.parts(number)
        votes[mine] = neighbour_votes(first.features[mine], given[mine], classes, device=device)
    return [votes]


class _EpochCounter:
    """Counts the epochs of all networks for the caller's progress."""

    def __init__(self, progress: Callable[[Progress], object] | None, folds: int, epochs: dict[str, int]) -> None:
        self.progress, self.folds, self.epochs = progress, folds, epochs
        self.done: dict[tuple[str, int], int] = {}
        self.lock = threading.Lock()

    def of(self, stage: str) -> Callable[[int, int, NetworkState], None]:
        total, epochs = self.folds * sum(self.epochs.values()), self.epochs[stage]

        def report(fold: int, epoch: int, state: NetworkState) -> None:
            if self.progress is not None:
                with self.lock:  # folds that are trained concurrently report in turn
                    self.done[stage, fold] = epoch
                    done = sum(self.done.values())
                    self.progress(Progress(stage, fold + 1, self.folds, epoch, epochs, done, total, state))

        return report
