"""The fitted model: predictions, the audit, the leaderboard, the verdict; stored as numbers and JSON, without objects."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from noiseproof.audit import Audit
from noiseproof.audit.noise_model import METRICS, Metric, NoiseModel
from noiseproof.data import DataError, Examples, ImageFiles, Unlabelled, open_unlabelled
from noiseproof.data.features import Features
from noiseproof.fitting import MODEL_FILE
from noiseproof.fitting.verdict import Leader, Leaderboard, Verdict
from noiseproof.io.arrays import read_tensors
from noiseproof.io.files import checksum, make_folder, write_whole
from noiseproof.io.text import excerpt, read_by, read_json
from noiseproof.learners.base import Learner
from noiseproof.learners.catalog import SPECS
from noiseproof.learners.store import load_learner
from noiseproof.version import __version__

if TYPE_CHECKING:
    from torch import Tensor


FORMAT = 1
LEARNER_FOLDER = "learners"
FILE_NAME = re.compile(r"[a-z][\w.-]{0,120}\.safetensors")
MAX_CACHED_BYTES = 2**30
"""Learners whose files are smaller than this together stay in memory between two predictions"""
MAX_ROWS, MAX_NUMBERS = 2**17, 2**25
"""Rows that are predicted at once, and the numbers of their features and predictions"""


@dataclass(frozen=True, eq=False)
class FittedModel:
    """What :func:`noiseproof.fit` returns: a classifier, and what is known of the labels that it was trained on.

    Attributes:
        classes: The names of the classes, in the order of the probabilities.
        metric: What :meth:`predict` decides for unless it is told otherwise.
        audit: Which labels are wrong, as :func:`noiseproof.audit_labels` returns it.
        verdict: What was found, in numbers; ``str`` of it, and of the model, is the text.
        leaderboard: Every learner, plain training and the model, the best first; ``print`` shows a table.
        features: How rows become the features that learners read.
        noise: Combines the learners' predictions and decides.
        files: Of each learner that has a weight, the file of each fold and its SHA-256.
        key: The digest of all that the model depends on.
        cache: Learners that were read from their files.

    Example:
        >>> import noiseproof
        >>> x = np.random.default_rng(0).normal(size=(60, 2)) + np.repeat([[0, 0], [9, 9]], 30, axis=0)
        >>> y = np.repeat(["left", "right"], 30)
        >>> y[:6] = "right"
        >>> model = noiseproof.fit(x, y, learners=["logistic-0.01", "neighbours-40"])
        >>> model.predict([[8.5, 9.0], [0.5, 0.0]]).tolist()
        ['right', 'left']
        >>> model.audit.flagged.nonzero()[0].tolist()
        [0, 1, 2, 3, 4, 5]
    """

    classes: tuple[str, ...]
    metric: Metric
    audit: Audit
    verdict: Verdict
    leaderboard: Leaderboard
    features: Features = field(repr=False)
    noise: NoiseModel = field(repr=False)
    files: Mapping[str, Sequence[tuple[Path, str]]] = field(repr=False)
    key: str = field(repr=False)
    cache: dict[Path, Learner] = field(default_factory=dict, repr=False)

    def predict_proba(self, new: Any) -> NDArray[np.float32]:
        """Predict how likely each class is.

        Args:
            new: Rows as :func:`noiseproof.fit` reads them: a data frame or file with the columns of training, which are found
                by name, an array or texts. A column of labels is not needed.

        Returns:
            Probabilities ``[N, K]`` in the order of ``classes``.

        Raises:
            DataError: If the rows are not like those of training.

        Example:
            >>> model.predict_proba(new)  # doctest: +SKIP
        """
        return self.proba_of(self.read(new).examples)

    def predict(self, new: Any, *, metric: Metric | None = None) -> NDArray[Any]:
        """Predict the class.

        Args:
            new: As in :meth:`predict_proba`.
            metric: What the decision is good for: ``accuracy``, ``balanced_accuracy`` or ``f1_macro``; that of the fit by
                default. Nothing is trained again.

        Returns:
            Labels ``[N]`` as training had them: whole numbers, booleans or texts.

        Raises:
            ValueError: If there is no such metric.
            DataError: If the rows are not like those of training.

        Example:
            >>> model.predict(new, metric="balanced_accuracy")  # doctest: +SKIP
        """
        return self.label_values[self.decide(self.predict_proba(new), metric)]

    def decide(self, probabilities: NDArray[np.floating], metric: Metric | None = None) -> NDArray[np.int64]:
        """Decide on classes by their probabilities.

        Args:
            probabilities: ``[N, K]``, of :meth:`predict_proba`.
            metric: As in :meth:`predict`.

        Returns:
            Indices ``[N]`` of ``classes``.

        Raises:
            ValueError: If there is no such metric.

        Example:
            >>> model.decide(model.predict_proba(new), "f1_macro")  # doctest: +SKIP
        """
        return np.asarray(self.noise.decide(probabilities, check_metric(metric or self.metric)), np.int64)

    @property
    def label_values(self) -> NDArray[Any]:
        """The classes as values of the kind that the labels were of."""
        if self.classes == ("False", "True"):
            return np.array([False, True])
        numbers = [int(name) for name in self.classes if re.fullmatch(r"-?\d{1,18}", name) and str(int(name)) == name]
        return np.array(numbers if len(numbers) == len(self.classes) else list(self.classes))

    def read(self, new: Any, label: str | None = None) -> Unlabelled:
        """Read rows to predict.

        Args:
            new: As in :meth:`predict_proba`.
            label: The column of their labels; by default what it was called in training, if it is there.

        Returns:
            Examples, and their labels if they have some.

        Raises:
            DataError: If the rows are not like those of training.
        """
        encoder, classes, path = self.features.encoder, self.classes, isinstance(new, str | os.PathLike)
        if encoder is not None:
            place = f"{os.fspath(new)}#{label}" if path and label is not None else new
            return open_unlabelled(place, classes, len(self.features.centre), encoder, label=label or self.features.label)
        if path:
            return open_unlabelled(new, classes, None if self.features.averaged else len(self.features.centre))
        if self.features.averaged and isinstance(new, list | tuple) and all(isinstance(one, str | os.PathLike) for one in new):
            return Unlabelled(ImageFiles(tuple(map(os.fspath, new)), np.zeros(len(new), np.int64)))
        inputs = np.asarray(new.detach().cpu() if hasattr(new, "detach") else new)
        return Unlabelled(_split(inputs, self.features.shape))

    def proba_of(self, examples: Examples) -> NDArray[np.float32]:
        """Predict examples.

        Args:
            examples: What :meth:`read` returned.

        Returns:
            Probabilities ``[N, K]``.

        Raises:
            DataError: If they are images, or other features.
        """
        found = np.empty((len(examples), len(self.classes)), np.float32)
        for rows in self._blocks(len(examples)):
            x = self.features.transform_inputs(self.features.arrays_of(examples.take(rows)))
            found[rows] = self.noise.class_probabilities([self._view(name, x) for name in self.noise.names])
        return found

    def batches(self, x: Examples, *, workers: int = 0) -> Iterator[tuple[NDArray[np.int64], Tensor]]:
        """Predict examples batch by batch, as a network does.

        Args:
            x: What :meth:`read` returned.
            workers: Without effect.

        Returns:
            An iterator over the positions of a batch, and the logarithms of its probabilities as logits.
        """
        import torch

        for rows in self._blocks(len(x)):
            p = self.proba_of(x.take(rows))
            yield rows, torch.from_numpy(np.log(np.maximum(p, np.finfo(np.float32).tiny)))  # a class may have probability 0

    def _blocks(self, rows: int) -> Iterator[NDArray[np.int64]]:
        """The rows in parts whose features and predictions fit into memory."""
        numbers = int(np.prod(self.features.shape)) + len(self.noise.names) * len(self.classes)
        step = max(1, min(MAX_ROWS, MAX_NUMBERS // numbers))
        return (np.arange(start, min(start + step, rows)) for start in range(0, rows, step))

    def _view(self, name: str, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """The mean prediction of a learner's folds; anything for one without a weight, which changes nothing."""
        if name not in self.files:
            return np.full((len(x), len(self.classes)), 1 / len(self.classes), np.float32)
        learners = (self._learner(name, path, digest) for path, digest in self.files[name])
        return fold_mean(learners, SPECS[name].inputs(x), len(self.classes))

    def _learner(self, name: str, path: Path, digest: str) -> Learner:
        if path not in self.cache:
            if not path.is_file():
                raise FileNotFoundError(f"{path}: a part of the model is gone; fit it again")
            if checksum(path) != digest:
                raise DataError(f"{path}: damaged, it is not what the fit wrote; copy it again, or fit again")
            own, learner = load_learner(path)
            if own != name:
                raise DataError(f"{path}: contains {own}, and the model has {name} there")
            if self._size > MAX_CACHED_BYTES:
                return learner
            self.cache[path] = learner
        return self.cache[path]

    @property
    def _size(self) -> int:
        return sum(path.stat().st_size for files in self.files.values() for path, _ in files if path.is_file())

    def __repr__(self) -> str:
        return str(self.verdict)

    def __getstate__(self) -> dict[str, Any]:
        """What a pickle contains: the learners' files too, since their folder may be gone when it is read."""
        files = {name: [(path.name, digest, path.read_bytes()) for path, digest in own] for name, own in self.files.items()}
        return {**vars(self), "files": files, "cache": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        place = Path(tempfile.mkdtemp(prefix="noiseproof-"))
        files = {name: [(place / file, digest) for file, digest, _ in own] for name, own in state["files"].items()}
        for file, _, content in (one for own in state["files"].values() for one in own):
            (place / file).write_bytes(content)
        vars(self).update({**state, "files": files})
        remove_with(self, place)

    def save(self, folder: str | Path) -> None:
        """Write the model into a folder that :func:`noiseproof.load` reads; it contains numbers and JSON, no objects.

        ``model.json`` is written last: until then the folder contains the model of before, if there was one.

        Args:
            folder: Where; it is created if it is not there.

        Raises:
            OSError: The disk is full, or the folder cannot be written.

        Example:
            >>> model.save("model")  # doctest: +SKIP
        """
        save(self, Path(folder).expanduser())

    @classmethod
    def load(cls, folder: str | Path) -> FittedModel:
        """Read a model from the folder that :meth:`save` wrote. Nothing that the folder contains is executed.

        Args:
            folder: The folder.

        Returns:
            The model.

        Raises:
            DataError: The folder contains no model, or it is damaged.

        Example:
            >>> FittedModel.load("model")  # doctest: +SKIP
        """
        return load_model(Path(folder).expanduser())


def remove_with(model: FittedModel, folder: str | Path) -> None:
    """Remove the folder of a model's learners when the model and its copies, which share its noise model, are gone."""
    weakref.finalize(model.noise, shutil.rmtree, folder, ignore_errors=True)


def fold_mean(learners: Iterable[Learner], x: NDArray[np.float32], classes: int) -> NDArray[np.float32]:
    """The mean prediction of the learners of all folds; a DataError if one of a damaged file does not fit."""
    total, count = np.zeros((len(x), classes), np.float32), 0
    for learner in learners:
        try:
            found = np.asarray(learner.predict_proba(x), np.float32)
        except (ValueError, IndexError) as error:
            raise DataError(f"a trained learner does not fit the model: {excerpt(error, 200)}") from error
        if found.shape != total.shape or not np.isfinite(found).all():
            raise DataError(f"a trained learner does not fit the model: it predicts {list(found.shape)}")
        total += found
        count += 1
    return total / np.float32(count)


def check_metric(metric: str) -> Metric:
    """The metric, if there is one of this name."""
    if metric not in METRICS:
        raise ValueError(f"metric must be {', '.join(METRICS[:-1])} or {METRICS[-1]}, got {excerpt(metric)!r}")
    return metric


def save(model: FittedModel, folder: Path) -> None:
    """Write a model; its learners are copied unless they are in the folder already."""
    from safetensors.numpy import save as to_bytes

    make_folder(folder / LEARNER_FOLDER)
    learners: list[dict[str, Any]] = []
    for name, files in model.files.items():
        for path, _ in files:
            if (to := folder / LEARNER_FOLDER / path.name).resolve() != path.resolve():
                write_whole(to, lambda place, path=path: shutil.copyfile(path, place))  # type: ignore[misc]
        learners.append({"name": name, "files": [[path.name, digest] for path, digest in files]})
    facts, arrays = _state(model)
    content = to_bytes({name: np.asarray(array, order="C") for name, array in arrays.items()})
    digest = hashlib.sha256(content).hexdigest()
    write_whole(folder / (file := f"arrays-{digest[:16]}.safetensors"), lambda place: place.write_bytes(content))
    about = {"noiseproof": FORMAT, "version": __version__}
    text = json.dumps({**about, **facts, "learners": learners, "arrays": [file, digest]}, indent=1)
    write_whole(folder / MODEL_FILE, lambda place: place.write_text(text + "\n", encoding="utf-8"))
    kept = {file} | {path.name for files in model.files.values() for path, _ in files}
    for other in (*folder.glob("arrays-*.safetensors"), *(folder / LEARNER_FOLDER).glob("*.safetensors")):
        if other.name not in kept:
            other.unlink(missing_ok=True)


def _state(model: FittedModel) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    features, own = model.features.state()
    audit = model.audit
    arrays: dict[str, NDArray[Any]] = {f"features.{name}": array for name, array in own.items()}
    arrays |= {f"noise.{name}": array for name, array in model.noise.arrays().items()}
    arrays |= {f"audit.{name}": getattr(audit, name) for name in AUDIT_ARRAYS if getattr(audit, name) is not None}
    facts: dict[str, Any] = {
        "key": model.key,
        "classes": list(model.classes),
        "metric": model.metric,
        "views": list(model.noise.names),
        "features": features,
        "audit": {name: getattr(audit, name) for name in AUDIT_FACTS},
        "verdict": model.verdict.as_dict(),
        "leaderboard": [vars(line) for line in model.leaderboard],
    }
    return facts, arrays


AUDIT_ARRAYS = ("given", "posterior", "transition", "fold")
AUDIT_FACTS = ("rate", "rate_interval", "agreement", "how", "out_of_sample", "notes", "least_rate")


def load_model(folder: Path) -> FittedModel:
    """The model in a folder; a DataError says what is wrong with it."""
    path = folder / MODEL_FILE
    if not path.is_file():
        raise FileNotFoundError(f"{folder}: no fitted model, it has no {MODEL_FILE}")
    facts = read_json(path)
    if not isinstance(facts, dict) or facts.get("noiseproof") != FORMAT:
        found, wrote = (facts.get(key) for key in ("noiseproof", "version")) if isinstance(facts, dict) else (None, None)
        later = read_by(found, FORMAT, wrote)
        raise DataError(f"{path}: not a model of this version of noiseproof, which has format {FORMAT}{later}")
    try:
        file, digest = facts["arrays"]
        arrays = _arrays(_inside(folder, file), digest)
        learners = {
            str(one["name"]): [(_inside(folder / LEARNER_FOLDER, name), sha) for name, sha in one["files"]]
            for one in facts["learners"]
        }
        if not learners or not all(learners.values()):
            raise ValueError("it has no learners")
        classes = tuple(map(str, facts["classes"]))
        model = FittedModel(
            classes,
            check_metric(facts["metric"]),
            _audit(facts["audit"], classes, dict(_named(arrays, "audit."))),
            Verdict.of(facts["verdict"]),
            Leaderboard(Leader.of(line) for line in facts["leaderboard"]),
            Features.from_state(facts["features"], dict(_named(arrays, "features."))),
            _noise(dict(_named(arrays, "noise.")), list(map(str, facts["views"])), set(learners), len(classes)),
            learners,
            str(facts["key"]),
        )
        for shown in (model.verdict, model.leaderboard, model.audit):
            str(shown)  # what cannot be shown is an error here, not later
    except DataError as error:
        raise error if str(path.parent) in str(error) else DataError(f"{path}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise DataError(f"{path}: damaged: {type(error).__name__} {excerpt(error, 200)}") from error
    return model


def _noise(arrays: Mapping[str, NDArray[Any]], views: list[str], there: set[str], classes: int) -> NoiseModel:
    """The noise model, if all learners with a weight are there."""
    found = NoiseModel.from_arrays(arrays, views)
    if found.classes != classes or {name for name, weight in found.weights.items() if weight > 0} != there:
        raise ValueError("its learners or its classes are not those of its noise model")
    return found


def _inside(folder: Path, name: Any) -> Path:
    if not isinstance(name, str) or not FILE_NAME.fullmatch(name):
        raise DataError(f"the name of a part of the model must be a plain file name, got {excerpt(repr(name))}")
    return folder / name


def _arrays(path: Path, digest: str) -> dict[str, NDArray[Any]]:
    if not path.is_file():
        raise DataError(f"{path}: a part of the model is gone; fit it again")
    if checksum(path) != digest or (found := read_tensors(path)) is None:
        raise DataError(f"{path}: damaged, it is not what the fit wrote; copy it again, or fit again")
    return found[0]


def _named(arrays: Mapping[str, NDArray[Any]], start: str) -> Iterator[tuple[str, NDArray[Any]]]:
    return ((name.removeprefix(start), array) for name, array in arrays.items() if name.startswith(start))


def _audit(facts: Mapping[str, Any], classes: tuple[str, ...], arrays: Mapping[str, NDArray[Any]]) -> Audit:
    rows, number = len(arrays["given"]), len(classes)
    shapes = {"given": (rows,), "posterior": (rows, number), "transition": (number, number), "fold": (rows,)}
    for name, array in arrays.items():
        if array.shape != shapes[name] or array.dtype.kind != ("i" if name in ("given", "fold") else "f"):
            raise DataError(f"the audit's {name} must have shape {shapes[name]}, got {array.dtype} {array.shape}")
    if rows and not 0 <= arrays["given"].min() <= arrays["given"].max() < number:
        raise DataError(f"the audit's labels must be in [0, {number - 1}]")
    low, high = map(float, facts["rate_interval"])
    least = facts["least_rate"]
    return Audit(
        arrays["given"],
        arrays["posterior"],
        arrays["transition"],
        float(facts["rate"]),
        (low, high),
        float(facts["agreement"]),
        classes,
        str(facts["how"]),
        arrays.get("fold"),
        bool(facts["out_of_sample"]),
        tuple(map(str, facts["notes"])),
        None if least is None else float(least),
    )


def _split(inputs: NDArray[Any], shape: tuple[int, ...]) -> Any:
    from noiseproof.data.dataset import as_split

    if inputs.dtype.kind in "iub" and inputs.dtype != np.uint8:
        inputs = inputs.astype(np.float32)
    if inputs.shape[1:] != shape:
        raise DataError(f"the model reads inputs of shape {list(shape)}, got {list(inputs.shape[1:])}")
    return as_split(inputs, np.zeros(len(inputs), np.int64), None, "the rows to predict")
