"""``fit``: read the data, cross-fit the learners, fit the noise model, and put the model and its verdict together."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from noiseproof.audit.noise_model import Metric, NoiseModel
from noiseproof.audit.scores import Estimate
from noiseproof.audit.views import FOLDS, QUICK_FOLDS, LearntViews, affordable, check_parts, checked_labels, learn_views
from noiseproof.checks import check_integer, check_range
from noiseproof.data import DataError, Dataset, open_dataset
from noiseproof.data.columns import parse_kinds
from noiseproof.data.features import Features, small_images
from noiseproof.fitting import is_model
from noiseproof.fitting.model import LEARNER_FOLDER, FittedModel, check_metric, fold_mean, load_model, remove_with
from noiseproof.fitting.verdict import MODEL, Verdict, gain_interval, leaderboard, recalls
from noiseproof.io.files import checksum, claimed
from noiseproof.io.processes import Cluster
from noiseproof.io.text import excerpt
from noiseproof.learners.base import ClassWeight
from noiseproof.learners.catalog import LEARNERS, SPECS, default_learners
from noiseproof.learners.crossfit import CrossFit, Stage, assign_folds, limited_threads
from noiseproof.learners.store import PARTIAL, load_learner
from noiseproof.version import __version__

Engine = Literal["local", "ray"]
MAX_SUSPECTS = 20
MIN_BOOSTED_ROWS, MIN_BOOSTED_PER_CLASS = 200, 20
"""Fewer rows are compared with logistic regression instead of boosting: on 30 rows of iris boosting is no better than chance"""


def fit(
    data: Any,
    y: Any = None,
    *,
    label: str | Sequence[Any] | None = None,
    columns: str | Mapping[str, Any] | None = None,
    test: Any = None,
    split_column: str | None = None,
    drop_unlabelled: bool = False,
    encoder: str | None = None,
    metric: Metric = "accuracy",
    class_weight: ClassWeight = None,
    learners: Sequence[str] | None = None,
    quick: bool = False,
    minutes: float | None = None,
    folds: int | None = None,
    groups: str | Sequence[Any] | None = None,
    seed: int = 0,
    threads: int | None = None,
    jobs: int | None = None,
    engine: Engine = "local",
    address: str | None = None,
    folder: str | Path | None = None,
    progress: Callable[[Stage], object] | None = None,
) -> FittedModel:
    """Fit a classifier to labels of which some may be wrong, and find out which and how many.

    Learners of several kinds are trained without each fold and predict it. From their predictions and the given labels the
    noise model estimates how labels are confused, how far each learner is to be believed, and the true class of each row. The
    model is that combination of the learners. docs/how_to/fit.md explains it.

    Args:
        data: A data frame, a path, a dict of columns, a list of texts, an array ``[N, D]`` or a data set: what
            :func:`noiseproof.data.open_dataset` reads.
        y: The labels, where they are not a column of the data.
        label: The column of labels; by default one called ``label`` or the like, or the last.
        columns: Kinds of columns that are given instead of inferred: ``{"zip": "category"}``.
        test: Rows to test on, a table with the same columns. Their labels are taken to be correct.
        split_column: Or the column that says which rows to test on.
        drop_unlabelled: Leave out rows without a label, instead of an error.
        encoder: A pretrained encoder of texts or images, by name, folder or ``module:function``.
        metric: What predictions are decided for: ``accuracy``, ``balanced_accuracy`` or ``f1_macro``.
        class_weight: "balanced" trains the learners with the same weight for every class.
        learners: Names from ``noiseproof.learners.LEARNERS``; all that suit the data by default.
        quick: Fewer learners and folds; about a fifth of the time, less accurate.
        minutes: Leave out the costliest learners, so that it takes about this long at most; the verdict names them.
        folds: How many folds; 5, or 3 if ``quick``.
        groups: A column, or one value for each row: rows of the same group are in one fold.
        seed: Of the folds and the learners. The same seed gives the same model.
        threads: Threads of each task; one by default.
        jobs: Learners that are trained concurrently, at most; one for each core by default.
        engine: "ray" trains the learners on the machines of a Ray cluster, which need noiseproof but not the folder. The model
            is the same.
        address: Of that cluster; by default a new one on this machine.
        folder: Where finished parts and the model are kept. The same call resumes there, and returns a finished model at once.
        progress: Called with a :class:`noiseproof.learners.crossfit.Stage` when a part is finished.

    Returns:
        The model, with its audit, leaderboard and verdict.

    Raises:
        ValueError: If the data cannot be read or there is nothing to learn, or an option is not possible.
        BusyError: Another process is at work in the folder.

    Example:
        >>> import noiseproof
        >>> x = np.random.default_rng(0).normal(size=(60, 2)) + np.repeat([[0, 0], [9, 9]], 30, axis=0)
        >>> model = noiseproof.fit(x, np.repeat([0, 1], 30), learners=["logistic-0.01", "neighbours-40"])
        >>> model.predict([[8.5, 9.0], [0.5, 0.0]]).tolist()
        [1, 0]
    """
    start = time.monotonic()
    options = _Options(check_metric(metric), class_weight, quick, minutes, folds, seed, threads, jobs, engine, address)
    reading: dict[str, Any] = {"label": label if y is None else y, "columns": columns, "test": test, "groups": groups}
    dataset = training_data(data, split_column=split_column, drop_unlabelled=drop_unlabelled, encoder=encoder, **reading)
    given = checked_labels(dataset)
    names = _learners(learners, quick, dataset.train.kind != "features")
    fitting, left_out = affordable(names, len(given), len(dataset.classes))
    fold = assign_folds(given, options.fold_count(len(given)), seed, _groups(dataset, groups))
    check_parts(given, fold)
    dataset = small_images(dataset)
    job = _Job(dataset, Features.of(dataset), fold, fitting, left_out, options, progress, start)
    with limited_threads(threads or 1):
        if folder is None:
            return _fitted_in_temporary_folder(job)
        with claimed(place := Path(folder).expanduser(), PARTIAL):
            return job.fitted(place)


def _fitted_in_temporary_folder(job: _Job) -> FittedModel:
    """The model, whose learners are in a folder that is removed with it."""
    place = tempfile.mkdtemp(prefix="noiseproof-")
    try:
        model = job.fitted(Path(place), kept=False)
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    remove_with(model, place)
    return model


def training_data(data: Any, *, label: Any = None, columns: Any = None, groups: Any = None, **reading: Any) -> Dataset:
    """The data to train on: opened as :func:`noiseproof.data.open_dataset` does, without the column of groups.

    Args:
        data: What to open, or a data set.
        label: The column of labels, or the labels.
        columns: Kinds of columns.
        groups: The column of groups, if it is one.
        reading: Further options of :func:`noiseproof.data.open_dataset`.

    Returns:
        The data set.

    >>> training_data({"age": [31, 58], "ward": [1, 2], "y": ["a", "b"]}, groups="ward").table.lines
    ['age number', 'ward left out: as asked']
    """
    if isinstance(data, Dataset):
        return data
    if isinstance(groups, str):
        columns = {**(parse_kinds(columns) if isinstance(columns, str) else columns or {}), groups: "drop"}
    return open_dataset(data, label=label, columns=columns, **reading)


@dataclass(frozen=True)
class _Options:
    metric: Metric
    class_weight: ClassWeight
    quick: bool
    minutes: float | None
    folds: int | None
    seed: int
    threads: int | None
    jobs: int | None
    engine: Engine = "local"
    address: str | None = None

    def __post_init__(self) -> None:
        if self.engine not in ("local", "ray") or (self.address is not None and self.engine != "ray"):
            raise ValueError(
                f"engine must be 'local' or 'ray', and address is for 'ray'; got {self.engine!r}, {self.address!r}"
            )
        if self.class_weight not in (None, "balanced"):
            raise ValueError(f"class_weight must be 'balanced' or None, got {excerpt(repr(self.class_weight))}")
        if self.minutes is not None:
            check_range("minutes", self.minutes, above=0)
        for name in ("folds", "threads", "jobs"):
            if (value := getattr(self, name)) is not None:
                check_integer(name, value, at_least=2 if name == "folds" else 1)
        check_integer("seed", self.seed, at_least=0)

    @contextlib.contextmanager
    def cluster(self, size: int) -> Iterator[Cluster | None]:
        """The machines to train on; None is this one."""
        if self.engine == "local":
            yield None
            return
        cluster = Cluster(self.address, memory=4 * size)
        try:
            yield cluster
        finally:
            cluster.close()

    def fold_count(self, rows: int) -> int:
        wanted = self.folds or (QUICK_FOLDS if self.quick else FOLDS)
        if self.folds is not None and wanted > rows:
            raise DataError(f"folds must be at most {rows}, the number of rows, got {wanted}")
        return min(wanted, rows)


def _learners(learners: Sequence[str] | None, quick: bool, images: bool) -> list[str]:
    if learners is None:
        return default_learners(images, quick)
    if isinstance(learners, str):
        learners = [name.strip() for name in learners.split(",")]
    if not learners:
        raise ValueError("learners must name at least one")
    for name in learners:
        if name not in LEARNERS:
            raise ValueError(f"unknown learner {excerpt(name)!r}; there are {', '.join(LEARNERS)}")
        if LEARNERS[name].reads == "images" and not images:
            raise ValueError(f"{name} reads images, and these data are features; 'network' reads these")
    return [name for name in LEARNERS if name in learners]


def _groups(dataset: Dataset, groups: str | Sequence[Any] | None) -> NDArray[Any] | None:
    if groups is None:
        return None
    if not isinstance(groups, str):
        return np.asarray(groups)
    frame = None if dataset.table is None else dataset.table.rows["train"]
    if frame is None or groups not in frame.columns:
        there = (
            "the data have no columns" if frame is None else f"the columns are {', '.join(map(str, list(frame.columns)[:20]))}"
        )
        raise DataError(f"no column is called {excerpt(groups)!r}, which groups names; {there}")
    return np.asarray(frame[groups].astype("str"))


@dataclass(frozen=True)
class _Job:
    """What a model is made of."""

    dataset: Dataset
    features: Features
    fold: NDArray[np.int64]
    names: list[str]
    left_out: dict[str, str]
    options: _Options
    progress: Callable[[Stage], object] | None
    start: float

    def fitted(self, place: Path, kept: bool = True) -> FittedModel:
        """The model in a folder, if it is this one, or else fitted and, if it is to be ``kept``, saved there."""
        data = self.dataset
        x = self.features.transform_inputs(data.train.inputs)  # type: ignore[union-attr]  # Features.of has refused files
        key = self._key(x)
        if is_model(place) and (found := _stored(place, key)) is not None:
            return found
        plain = plain_learner(data)
        settings = {name: getattr(self.options, name) for name in ("seed", "class_weight", "threads", "jobs", "minutes")}
        wanted: dict[str, Any] = {"folder": place / LEARNER_FOLDER, "progress": self.progress, **settings}
        with self.options.cluster(x.nbytes) as cluster:
            given = data.train.labels
            learnt = learn_views(x, given, len(data.classes), self.fold, self.names, also=[plain], cluster=cluster, **wanted)
        del x
        model = self._model(learnt, plain, key)
        if kept:
            model.save(place)
        return model

    def _model(self, learnt: LearntViews, plain: str, key: str) -> FittedModel:
        data, given = self.dataset, self.dataset.train.labels
        crossed, views, noise = learnt
        decided = learnt.decided(self.options.metric)
        audit = learnt.audit(data, decided)
        tested = self._tested(crossed, views, noise)
        board = leaderboard(crossed, noise, given, decided, tested)
        lines = {line.name: line for line in board}
        likeliest = np.argsort(-audit.p_wrong, kind="stable")[:MAX_SUSPECTS]
        verdict = Verdict(
            data.name,
            len(given),
            data.classes,
            Estimate(audit.rate, *audit.rate_interval),
            int(audit.flagged.sum()),
            lines[MODEL],
            lines.get(plain),
            recalls(audit.posterior, decided),
            tuple(row for row in likeliest.tolist() if audit.flagged[row]),
            gain_interval(noise, given, decided, crossed.predictions[plain].argmax(1)) if plain in lines else None,
            tuple((self.left_out | crossed.dropped).items()),
            audit.warnings,
            time.monotonic() - self.start,
        )
        files = {name: [(path, checksum(path)) for path in crossed.files[name]] for name in views if noise.weights[name] > 0}
        return FittedModel(data.classes, self.options.metric, audit, verdict, board, self.features, noise, files, key)

    def _tested(self, crossed: CrossFit, views: list[str], noise: NoiseModel) -> dict[str, float]:
        """The accuracy of every learner and of the model on the test split, if there is one."""
        test = self.dataset.test
        if test is None or not len(test) or not test.in_memory:
            return {}
        x, classes = self.features.transform_inputs(test.inputs), len(self.dataset.classes)
        means = {
            name: fold_mean([load_learner(path)[1] for path in paths], SPECS[name].inputs(x), classes)
            for name, paths in crossed.files.items()
        }
        found = {name: float((p.argmax(1) == test.labels).mean()) for name, p in means.items()}
        decided = noise.decide(noise.class_probabilities([means[name] for name in views]), self.options.metric)
        return found | {MODEL: float((decided == test.labels).mean())}

    def _key(self, x: NDArray[np.float32]) -> str:
        """The digest of all that the model depends on."""
        options, data = self.options, self.dataset
        facts = [__version__, data.classes, self.names, options.metric, options.class_weight, options.minutes, options.seed]
        digest = hashlib.sha256(json.dumps(facts).encode())
        arrays = [x, data.train.labels, self.fold]
        if data.test is not None and data.test.in_memory:
            arrays += [data.test.inputs, data.test.labels]
        for array in arrays:
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


def _stored(place: Path, key: str) -> FittedModel | None:
    """The model in a folder if it is that of the key, and whole."""
    try:
        found = load_model(place)
    except (ValueError, OSError):
        return None
    whole = all(path.is_file() for files in found.files.values() for path, _ in files)
    return found if found.key == key and whole else None


def plain_learner(dataset: Dataset) -> str:
    """The learner that a person would have taken: boosting for the columns of a table, logistic regression for embeddings and
    where boosting, whose leaves have twenty rows, has too few of them, a network for images.

    >>> plain_learner(training_data({"text": ["good", "bad", "fine", "poor"], "y": [1, 0, 1, 0]}, columns="text=text"))
    'plain-logistic'
    """
    if dataset.train.kind != "features":
        return "cnn"
    keys = set() if dataset.table is None else {type(one).key for one in dataset.table.encoder.encoders}
    few = len(dataset.train) < max(MIN_BOOSTED_ROWS, MIN_BOOSTED_PER_CLASS * len(dataset.classes))
    return "plain-logistic" if few or keys <= {"embedding", "pretrained", "scaled", "text"} else "plain-boosting"
