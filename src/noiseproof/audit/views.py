"""The views of a fit and of an audit: learners that are cross-validated, and the noise model of their predictions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noiseproof.audit.noise_model import Metric, NoiseModel, check_model_fits, fit_noise_model
from noiseproof.audit.probabilities import audit_of
from noiseproof.audit.result import Audit
from noiseproof.data import DataError, Dataset
from noiseproof.data.dataset import check_classes
from noiseproof.io.text import and_more, printable
from noiseproof.learners.catalog import QUICK
from noiseproof.learners.crossfit import CrossFit, Stage, crossfit

FOLDS, QUICK_FOLDS = 5, 3
MAX_PROBABILITIES = 2**28
"""Rows times classes; a matrix of so many probabilities takes 1 GiB"""
MAX_VIEW_NUMBERS = 2**28
"""Rows times classes times learners; with more of them the learners of ``QUICK`` or the first of these are used"""
MAX_CLASSES = 4000
MAX_RATE_ALONE = 0.49
MAX_COPIES = 0.1
"""The share of rows that equal one of another fold from which on a note says so"""
IMAGES_NOTE = (
    "the images were learnt from scratch by small networks; features of a pretrained network would be better: --encoder names "
    "one, see Images in docs/how_to/fit.md"
)


class LearntViews(NamedTuple):
    """What the learners predict out of fold, and what follows for the labels."""

    crossed: CrossFit
    names: list[str]
    """The learners that are views of the noise model"""
    noise: NoiseModel

    def decided(self, metric: Metric = "accuracy") -> NDArray[np.int64]:
        """The class of each row by the combined learners, which did not see its label."""
        if self.noise.out_of_fold is None:
            raise ValueError("the noise model knows no rows")
        return self.noise.decide(self.noise.out_of_fold, metric)

    def audit(self, dataset: Dataset, decided: NDArray[np.int64]) -> Audit:
        """The audit of the given labels of a data set."""
        given, fold = dataset.train.labels, self.crossed.fold
        how = (
            f"{int(fold.max()) + 1}-fold cross-validation of {len(self.names)} learners, predictions out of sample; maximum "
            "likelihood of how labels are confused and of how far each learner is to be believed, averaged over hypotheses"
        )
        counts = np.bincount(given, minlength=len(dataset.classes))
        notes = list(dataset.table.notes) if dataset.table is not None else []
        notes += [IMAGES_NOTE] if dataset.train.kind == "images" else []
        notes += copies_note(dataset.train.inputs, fold) if dataset.train.in_memory else []
        if alone := [dataset.classes[k] for k in np.flatnonzero(counts == 1)]:
            said = "classes with one example cannot be held out and learnt, so nothing is known of their label"
            notes.append(f"{said}: {and_more(list(map(printable, alone)))}")
        agreement = float((decided == given).mean())
        facts: dict[str, Any] = {"classes": dataset.classes, "how": how, "fold": fold, "notes": tuple(notes)}
        found = audit_of(self.noise, given, agreement=agreement, **facts)
        return replace(found, posterior=self._left_alone(found.posterior, counts[given] == 1, given))

    def _left_alone(
        self, posterior: NDArray[np.float32], alone: NDArray[np.bool_], given: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """The posterior with labels that no learner can have predicted as likely wrong as any, and not flagged."""
        if not alone.any():
            return posterior
        rate = np.float32(min(self.noise.noise_rate, MAX_RATE_ALONE))
        found = posterior.copy()
        found[alone] *= rate
        found[alone, given[alone]] += 1 - rate
        return found


def learn_views(
    x: NDArray[np.float32],
    given: NDArray[np.int64],
    classes: int,
    fold: NDArray[np.int64],
    names: Sequence[str],
    *,
    also: Sequence[str] = (),
    extra: Sequence[NDArray[np.floating]] = (),
    seed: int = 0,
    progress: Callable[[Stage], object] | None = None,
    **settings: Any,
) -> LearntViews:
    """Cross-validate learners, and fit the noise model to what they predict.

    Args:
        x: Features ``[N, D]``, or images.
        given: The given labels ``[N]``.
        classes: How many classes there are.
        fold: The fold ``[N]`` of each row.
        names: The learners that are views.
        also: Further learners, which are no views.
        extra: Further predictions ``[N, K]`` that are views.
        seed: Of the learners and of the rows that hypotheses are fitted to.
        progress: Called with a :class:`Stage` when a part is finished.
        settings: Further options of :func:`crossfit`.
    """
    check_model_fits(len(given), classes)
    wanted = list(dict.fromkeys([*names, *also]))
    crossed = crossfit(x, given, classes, fold, wanted, seed=seed, progress=progress, **settings)
    kept = [name for name in crossed.predictions if name in names]
    if not kept:
        raise ValueError(f"no learner could be trained: {', '.join(why for _, why in crossed.dropped.items())}")
    if progress is not None:
        progress(Stage("noise model", 1, 1, None))
    titles = [*kept, *(f"extra-{number}" for number in range(len(extra)))]
    views = [*(crossed.predictions[name] for name in kept), *extra]
    return LearntViews(crossed, kept, fit_noise_model(views, given, fold=fold, seed=seed, names=titles))


def copies_note(inputs: NDArray[Any], fold: NDArray[np.int64]) -> list[str]:
    """What to know if many rows have a copy in another fold: learners then predict what they have seen.

    Rows of a few discrete columns are equal by chance. So there must be a column that distinguishes half of the different rows.
    """
    rows = inputs.reshape(len(inputs), -1)
    keys = np.fromiter((hash(row.tobytes()) for row in rows), np.int64, len(rows))
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    apart = np.zeros(len(first), bool)
    apart[group[fold != fold[first][group]]] = True
    share = float(apart[group].mean())
    if share < MAX_COPIES or max(len(np.unique(column)) for column in rows[first].T) < len(first) / 2:
        return []
    follows = "the estimates are too high and the model may be worse; leave the copies out, or keep them together by groups"
    return [f"{100 * share:.0f} % of the rows have an exact copy in another fold, which learners have seen: {follows}"]


def checked_labels(dataset: Dataset) -> NDArray[np.int64]:
    """The given labels of a data set, if a classifier can be learnt from them within a bounded memory."""
    check_classes(dataset, dataset.name)
    given, classes = dataset.train.labels, len(dataset.classes)
    counts = np.bincount(given, minlength=classes)
    if (counts > 1).sum() < 2:
        fault = "every label occurs once" if counts.max() == 1 else "all labels but those of one class occur once"
        raise DataError(f"{dataset.name}: {fault}; two classes must have two examples each; are these the labels?")
    if classes > MAX_CLASSES or len(given) * classes > MAX_PROBABILITIES:
        most = f"up to {MAX_CLASSES:,} classes, and {MAX_PROBABILITIES:,} rows times classes, can be fitted"
        raise DataError(
            f"{dataset.name}: {len(given):,} rows of {classes:,} classes; {most}; merge minority classes, or take fewer rows"
        )
    return given


def affordable(names: list[str], rows: int, classes: int) -> tuple[list[str], dict[str, str]]:
    """The learners whose predictions fit into memory together, those for ``quick`` first; and why others are left out."""
    most = max(1, MAX_VIEW_NUMBERS // (rows * classes))
    ranked = [*(name for name in QUICK if name in names), *(name for name in names if name not in QUICK)]
    kept = [name for name in names if name in ranked[:most]]
    why = "left out, since the predictions of all learners would not fit into memory"
    return kept, {name: why for name in names if name not in kept}


def check_parts(given: NDArray[np.int64], fold: NDArray[np.int64]) -> None:
    """Every learner must see two classes."""
    for number in range(int(fold.max()) + 1):
        if len(np.unique(given[fold != number])) < 2:
            raise DataError("without one of the folds there is one class only; fewer folds, or other groups, are needed")
