"""A finished run's network, to use on new examples: loaded without the training data, and its predictions saved.

They are computed batch by batch and saved as CSV, JSON or npz.
"""

from __future__ import annotations

import json
import math
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TextIO

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from noiseproof.data import DataError, Examples, ImageFiles, Split, Unlabelled, open_unlabelled
from noiseproof.data.dataset import as_split
from noiseproof.data.frames import is_frame
from noiseproof.data.table import frame_for, image_frame, plain_encoder
from noiseproof.data.table_encoder import Table, TableEncoder
from noiseproof.io.files import checksum, file_and_name, save_arrays, write_whole
from noiseproof.io.text import cell, csv_line, excerpt, parse_json
from noiseproof.models import create_model, load_weights
from noiseproof.models.weights import weights_header
from noiseproof.train.engine import autocast, precision_of
from noiseproof.train.network import drawing_from, logits_of, model_code_hash, nothing_drawn, user_model
from noiseproof.train.preprocessing import Preprocessing
from noiseproof.train.recipe import Recipe
from noiseproof.train.record import ENCODER, RECORD, WEIGHTS, Record

Inputs = ArrayLike | Tensor | Examples | str | os.PathLike[str] | Sequence[str] | Sequence[os.PathLike[str]] | Any
"""An array or tensor of what the network was trained on, features ``[N, D]`` or images uint8 ``[N, H, W, C]`` or
``[N, H, W]``; the examples of a data set; the path of an image file, or several; or a table with the columns of training, as
:func:`noiseproof.data.read_frame` reads it."""
MAX_METADATA_CHARACTERS = 2**24
"""Characters of a file's description of its network that are read: as objects they take many times more memory"""


class TrainedClassifier:
    """A trained network with its classes and its preprocessing; :func:`load` makes one.

    Inputs are prepared and computed as the run evaluates: on the CPU the numbers equal those of the run to the bit. The rows of
    a table are encoded first, with its new categories and gaps; columns are found by their names, and further ones ignored.

    Args:
        network: The network, with its weights.
        classes: The names of the classes.
        preprocessing: How inputs are prepared.
        recipe: Says the model and the precision.
        device: Where the network is.

    >>> trained = load("runs/NAME")  # doctest: +SKIP
    >>> trained.predict_names(x)  # doctest: +SKIP
    """

    def __init__(
        self, network: nn.Module, classes: Sequence[str], preprocessing: Preprocessing, recipe: Recipe, device: torch.device
    ) -> None:
        self.network, self.preprocessing, self.device = network.eval(), preprocessing, device
        self.classes = tuple(classes)
        """The names of the classes"""
        self._recipe = recipe
        self.columns: tuple[str, ...] = ()
        """What the features were called in the file that was trained on, if it said it"""
        self.table: Table | None = None
        """What the columns of the table that was trained on are encoded with, and the column of its labels"""
        self.record: Record | None = None
        """The run's, where it was loaded from its folder"""

    def __repr__(self) -> str:
        shape = self.preprocessing.shape
        inputs = f"{self.preprocessing.kind}{'' if shape is None else f' {list(shape)}'}"
        return f"TrainedClassifier({self._recipe.model}: {inputs} to {len(self.classes)} classes, on {self.device})"

    @property
    def features(self) -> int | None:
        """How many features the network reads, 0 if that is not known; None if it reads images."""
        how = self.preprocessing
        if how.kind == "images":
            return None
        if how.shape is not None:
            return math.prod(how.shape)
        return len(how.statistics[0]) if how.statistics else int(self._recipe.model_options.get("in_features", 0))

    def logits(self, x: Inputs) -> NDArray[np.float32]:
        """The logits of examples.

        Args:
            x: Examples, as ``Inputs`` says: an array or tensor, a data set's examples, or paths of image files.

        Returns:
            ``[N, K]``, in the order of ``classes``.
        """
        return np.concatenate([logits.cpu().numpy() for _, logits in self.batches(x)])

    def probabilities(self, x: Inputs) -> NDArray[np.float32]:
        """The probabilities of the classes.

        Args:
            x: Examples, as ``Inputs`` says: an array or tensor, a data set's examples, or paths of image files.

        Returns:
            ``[N, K]``, the softmax of the logits.
        """
        return np.concatenate([torch.softmax(logits, 1).cpu().numpy() for _, logits in self.batches(x)])

    def predict(self, x: Inputs) -> NDArray[np.int64]:
        """The likeliest class of each example.

        Args:
            x: Examples, as ``Inputs`` says: an array or tensor, a data set's examples, or paths of image files.

        Returns:
            Indices ``[N]`` of ``classes``.
        """
        return np.concatenate([logits.argmax(1).cpu().numpy() for _, logits in self.batches(x)])

    def predict_names(self, x: Inputs) -> list[str]:
        """The name of the likeliest class of each example.

        Args:
            x: Examples, as ``Inputs`` says: an array or tensor, a data set's examples, or paths of image files.

        Returns:
            ``N`` names.
        """
        return [self.classes[k] for k in self.predict(x)]

    def batches(self, x: Inputs, *, workers: int = 0) -> Iterator[tuple[NDArray[np.int64], Tensor]]:
        """The logits of examples in order, batch by batch.

        Args:
            x: Examples, as ``Inputs`` says: an array or tensor, a data set's examples, or paths of image files.
            workers: Processes that decode image files.

        Returns:
            An iterator over the positions of a batch in ``x``, and its logits in float32 on the device.
        """
        examples = self._encoded(x)
        bf16 = autocast(self._recipe, self.device)
        for batch in self.preprocessing.batches(examples, self.device, workers=workers):
            with torch.no_grad(), precision_of(self._recipe, torch.are_deterministic_algorithms_enabled()), bf16:
                logits = logits_of(self.network.eval(), batch.inputs, len(self.classes))
            yield batch.indices.cpu().numpy(), logits.float()

    @property
    def encoder(self) -> TableEncoder | None:
        """Makes features of the columns of a table; None where the network was trained on something else."""
        if self.table is not None:
            return self.table.encoder
        return plain_encoder(self.columns) if self.columns else None

    def _encoded(self, x: Any) -> Examples:
        """The examples; of a table, or of an array of its columns in their order, what the encoder makes of them."""
        encoder = self.encoder
        if isinstance(x, Split | ImageFiles) and encoder is not None and encoder.reads_images and x.kind != "features":
            x = image_frame(x, str(encoder.image_column))
        if encoder is None or isinstance(x, Split | ImageFiles):
            return examples_in(np.asarray(x) if is_frame(x) else x)
        if not encoder.reads_images and not is_frame(x) and not isinstance(x, str | os.PathLike | list | tuple):
            names = [one.name for one in encoder.encoders]
            array = x.detach().cpu().numpy() if isinstance(x, Tensor) else np.asarray(x)
            if array.ndim != 2 or array.shape[1] != len(names):
                raise DataError(f"the network was trained on {len(names)} columns, got an array of shape {array.shape}")
            x = dict(zip(names, array.T, strict=True))
        inputs = encoder.transform(frame_for(encoder, x))
        return Split(inputs, np.zeros(len(inputs), np.int64))


def examples_in(x: Inputs) -> Examples:
    """The examples, checked, with labels of 0 where they have none; a DataError or TypeError if they are none."""
    if isinstance(x, ImageFiles):
        return x
    if isinstance(x, Split):
        return as_split(x.inputs, x.labels, None, "the examples")
    paths = [x] if isinstance(x, str | os.PathLike) else x
    if isinstance(paths, list | tuple) and paths and all(isinstance(path, str | os.PathLike) for path in paths):
        return ImageFiles(tuple(map(os.fsdecode, paths)), np.zeros(len(paths), np.int64))
    array = x.detach().cpu().numpy() if isinstance(x, Tensor) else np.asarray(x)
    return as_split(array, np.zeros(array.shape[:1] or 1, np.int64), None, "x")


def load(
    run: str | os.PathLike[str], device: str | torch.device | None = None, *, model: str | None = None
) -> TrainedClassifier:
    """The classifier that a finished run has trained, without the training data.

    The weights are checked against the SHA-256 in the record. Nothing that the folder contains is executed.

    Args:
        run: The folder of the run, or its file of weights.
        device: Where to compute; by default on the CPU.
        model: The ``package.module:function`` of a run with a network of the user's own. Its code should be unchanged.

    Returns:
        The network with its classes and its preprocessing.

    Raises:
        ValueError: The run is not finished, or is damaged, or has a network of the user's own and no ``model`` is given.
        FileNotFoundError: There is no run, or its weights are gone.

    >>> trained = load("runs/NAME")  # doctest: +SKIP
    >>> trained.predict_names(x)  # doctest: +SKIP
    """
    path = Path(run).expanduser()
    record, weights = _finished(path) if path.is_dir() else (None, path)
    if not weights.is_file():
        fault = "the weights of this finished run are gone; train it again" if record else "no run, and no file of weights"
        raise FileNotFoundError(f"{weights}: {fault}")
    _check_content(weights, record)
    trained = _built(weights, record, torch.device("cpu" if device is None else device), model)
    trained.record = record
    return trained


def _finished(folder: Path) -> tuple[Record, Path]:
    if (record := Record.read(folder)) is None:
        inside = sorted(place.parent.name for place in folder.glob(f"*/{RECORD}"))
        held = f"; give a run in it, such as {folder / inside[0]}" if inside else "; 'noiseproof train' makes runs"
        raise FileNotFoundError(f"{folder}: not the folder of a run, it has no {RECORD}{held}")
    if record.status != "finished":
        way = (
            f"diverged: {excerpt(record.message, 200)}" if record.status == "diverged" else "the command that began it goes on"
        )
        raise ValueError(f"{folder}: the run is not finished, and has no weights yet; {way}")
    return record, folder / WEIGHTS


def _built(weights: Path, record: Record | None, device: torch.device, model: str | None) -> TrainedClassifier:
    metadata, shapes = weights_header(weights)
    facts = _facts(weights, metadata)
    try:
        names, recipe = _described(facts, record, model, len(shapes))
        layout = torch.channels_last if device.type == "cuda" else torch.contiguous_format
        how = Preprocessing.of(facts.get("preprocessing"), facts.get("input_shape"), layout)
        _check_fit(recipe, len(names), how, shapes)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        raise ValueError(f"{weights}: {excerpt(error, 400)}") from error
    _check_code(weights, recipe, record)
    with drawing_from(0):
        network = load_weights(_network(recipe, len(names)), weights)
    if how.kind == "images":
        network.to(memory_format=layout)  # type: ignore[call-overload] # torch's stubs lack it
    trained = TrainedClassifier(network.to(device), names, how, recipe, device)
    trained.columns = _columns(weights, facts.get("columns", []), trained.features)
    trained.table = _table(weights, record, trained.columns, facts.get("encoder"))
    return trained


def _check_content(path: Path, record: Record | None) -> None:
    """An error if a file is not what its run wrote, as far as the record says that."""
    if record is not None and record.files.get(path.name, digest := checksum(path)) != digest:
        raise ValueError(f"{path}: damaged, it is not what the run wrote; copy it again, or train again")


def _table(weights: Path, record: Record | None, columns: Sequence[str], digest: str | None) -> Table | None:
    """The encoding of the table that was trained on, beside the weights; these have its ``digest`` unless they are old."""
    path = weights.with_name(ENCODER)
    if not path.is_file():
        if digest is not None or (record is not None and ENCODER in record.files):
            raise FileNotFoundError(f"{path}: the encoding of the columns of this run is gone; train it again")
        return None
    _check_content(path, record)
    table = Table.read(path)
    if digest not in (None, checksum(path)):
        raise ValueError(f"{path}: not the encoding of the network beside it, but another run's; copy both from one folder")
    if tuple(table.encoder.feature_names) != tuple(columns):
        raise ValueError(f"{path}: not the encoding of the network beside it, whose features are others")
    return table


def _columns(weights: Path, columns: Any, features: int | None) -> tuple[str, ...]:
    if not isinstance(columns, list) or not all(isinstance(name, str) for name in columns):
        raise ValueError(f"{weights}: the names of the columns must be texts, found {excerpt(repr(columns))}")
    if columns and len(columns) != features:
        raise ValueError(f"{weights}: {len(columns)} names of columns, and the network reads {features} features")
    return tuple(columns)


def _facts(weights: Path, metadata: dict[str, str]) -> dict[str, Any]:
    text = metadata.get("noiseproof")
    if text is None:
        raise ValueError(
            f"{weights}: not the weights of a run: it does not say its network; noiseproof.models.load_weights reads plain ones"
        )
    if len(text) > MAX_METADATA_CHARACTERS:
        raise ValueError(f"{weights}: describes its network in {len(text)} characters, at most {MAX_METADATA_CHARACTERS}")
    try:
        facts = parse_json(text)
    except ValueError as error:
        raise ValueError(f"{weights}: its description of the network is not JSON: {excerpt(error, 200)}") from error
    if not isinstance(facts, dict):
        raise ValueError(f"{weights}: its description of the network must be an object, found {excerpt(repr(facts))}")
    return facts


def _described(facts: dict[str, Any], record: Record | None, model: str | None, tensors: int) -> tuple[list[str], Recipe]:
    """The names of the classes, and a recipe that says the network and its precision."""
    names, own, options = (facts.get(key) for key in ("class_names", "model", "model_options"))
    if not isinstance(names, list) or len(names) < 2 or not all(isinstance(name, str) for name in names):
        raise ValueError(f"the names of the classes must be at least two texts, found {excerpt(repr(names))}")
    if not isinstance(own, str) or not isinstance(options, dict):
        raise ValueError(f"the network must be a name and options, found {excerpt(repr(own))} and {excerpt(repr(options))}")
    if any(isinstance(value, list) and len(value) > tensors for value in options.values()):
        raise ValueError(f"the network's options list more layers than the file's {tensors} tensors")
    if ":" in own and model is None:
        raise ValueError(
            f"trained with a network of your own, {excerpt(own)}, whose code is not in the file and is not run unasked; "
            f"name it to allow it: model={own!r}, or --model {excerpt(own)}"
        )
    if ":" not in own and model is not None:
        raise ValueError(f"the network is {excerpt(own)}; model is for runs of a network of your own")
    precision = facts.get("precision", record.recipe.get("precision", "float32") if record else "float32")
    return names, Recipe(dataset="", loss="ce", model=model or own, model_options=options, precision=precision)


def _network(recipe: Recipe, classes: int) -> nn.Module:
    if ":" in recipe.model:
        return user_model(recipe, classes)
    return create_model(recipe.model, classes, **recipe.model_options)


def _check_fit(recipe: Recipe, classes: int, how: Preprocessing, shapes: dict[str, list[int]]) -> None:
    """An error if the network is another than the file's tensors make. Nothing is allocated: the metadata may say anything."""
    own = ":" in recipe.model
    with torch.device("meta"), nothing_drawn(), torch.no_grad():
        try:
            planned = _network(recipe, classes).eval()
        except Exception as error:  # the options are a file's: they may make a network fail in any way
            if own:  # a user's code need not work on the meta device
                return
            # A number beyond 64 bits is a TypeError of torch's, and only its text tells it from ours.
            if isinstance(error, RuntimeError | OverflowError) or "Overflow when unpacking" in str(error):
                raise ValueError(f"the options of {recipe.model} ask for tensors beyond any memory") from error
            raise
        for name, tensor in planned.state_dict().items():
            if shapes.get(name) != list(tensor.shape) and not name.endswith(".num_batches_tracked"):
                found = f"is {shapes[name]}" if name in shapes else "is not"
                raise ValueError(f"{recipe.model} as described needs {name!r} {list(tensor.shape)}, which {found} in the file")
        if how.network_shape is not None and not own:
            logits_of(planned, torch.empty(1, *how.network_shape), classes)


def _check_code(weights: Path, recipe: Recipe, record: Record | None) -> None:
    """Warn if the code of a user's network is not that of the run. Another function of its module may have changed."""
    before = None if record is None else record.task.get("model")
    if before is not None and model_code_hash(recipe) != before:
        warnings.warn(f"{weights}: the code of {recipe.model} is not that of the run; check the results", stacklevel=4)


PredictionFormat = Literal["csv", "json", "npz"]
FORMATS: dict[str, PredictionFormat] = {
    ".csv": "csv", ".txt": "csv", "": "csv", ".npz": "npz", ".json": "json", ".jsonl": "json",
}  # fmt: skip
"""By the suffix of a file"""
MAX_CLASS_COLUMNS, LIKELIEST = 100, 5
"""From more classes than these, the probabilities of the likeliest few are saved"""
FILES_PER_WORKER = 256
"""Starting a worker takes as long as decoding some hundred image files"""
DIGITS = 6


class Predictor(Protocol):
    """What predicts: a trained network, or another model with logits."""

    @property
    def classes(self) -> Sequence[str]:
        """Their names."""
        ...

    def batches(self, x: Any, *, workers: int = 0) -> Iterator[tuple[NDArray[np.int64], torch.Tensor]]:
        """The positions of a batch, and its logits."""
        ...


@dataclass
class PredictionTable:
    """Predictions that are computed while they are saved, once; :func:`predict_data` makes one.

    Args:
        trained: What predicts.
        data: The examples.
        place: Where they are, for messages.
        workers: Processes that decode image files.
        done: Examples that are predicted.
        right: Examples of which the label is predicted.
        on_batch: Is called with how many examples are done.
        decide: Chooses the classes by the probabilities; by default the likeliest.

    >>> predict_data(noiseproof.load("runs/NAME"), "new.csv").save("predictions.npz")  # doctest: +SKIP
    """

    trained: Predictor
    data: Unlabelled
    place: str
    workers: int = 0
    done: int = 0
    right: int = 0
    on_batch: Callable[[int], object] | None = None
    decide: Callable[[NDArray[np.float32]], NDArray[np.int64]] | None = None

    @property
    def class_names(self) -> list[str]:
        """The names of the classes, each once: two classes of one name are followed by their numbers."""
        counts = Counter(self.trained.classes)
        return [name if counts[name] == 1 else f"{name} ({k})" for k, name in enumerate(self.trained.classes)]

    @property
    def accuracy(self) -> float | None:
        """The share of the labels that was predicted so far; None if the data have no labels."""
        return None if self.data.labels is None or not self.done else self.right / self.done

    def batches(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]]:
        """Compute the predictions.

        Returns:
            An iterator over batches of examples, in order: their positions ``[n]`` in the data, the classes predicted, and the
            probabilities ``[n, K]``.

        Raises:
            ValueError: The data are not what the network was trained on.
        """
        try:
            for positions, logits in self.trained.batches(self.data.examples, workers=self.workers):
                probabilities = torch.softmax(logits, 1).cpu().numpy()
                predicted = logits.argmax(1).cpu().numpy() if self.decide is None else self.decide(probabilities)
                self.done += len(positions)
                if self.data.labels is not None:
                    self.right += int((predicted == self.data.labels[positions]).sum())
                yield positions, predicted, probabilities
                if self.on_batch is not None:
                    self.on_batch(self.done)
        except (ValueError, TypeError) as error:  # an error of a file has its name
            named = str(file_and_name(self.place)[0]) in str(error)
            raise error if named else ValueError(f"{self.place}: {error}") from error

    def save(self, file: str | Path | TextIO, form: PredictionFormat | None = None) -> None:
        """Write the predictions; a file is replaced whole or not at all.

        Args:
            file: Where to; csv and json can be written to an open text file too.
            form: ``csv``, with a column for each class, or for more than 100 classes the five likeliest; ``json``, a line for
                each example; ``npz``, with the arrays ``probabilities [N, K]``, ``predicted [N]``, ``classes [K]``,
                ``index [N]`` and for files ``path [N]``. By default what the name of the file ends in.

        Raises:
            ValueError: The format is not known, or the data are not what the network was trained on.
        """
        write_text = {"csv": self._write_csv, "json": self._write_json}
        if not isinstance(file, str | Path):
            write_text[form or "csv"](file)
            return
        chosen = form or format_of(file)

        def write(place: Path) -> None:
            if chosen == "npz":
                self._write_npz(place)
                return
            with place.open("w", encoding="utf-8", newline="") as text:
                write_text[chosen](text)

        write_whole(Path(file).expanduser(), write)

    def _rows(self) -> Iterator[tuple[int, int, NDArray[np.float32], list[int]]]:
        """Of each example the position, the predicted class, the probabilities, and the classes of which they are saved."""
        classes = len(self.trained.classes)
        for positions, classes_predicted, probabilities in self.batches():
            for index, predicted, shares in zip(positions.tolist(), classes_predicted.tolist(), probabilities, strict=True):
                likeliest = np.argsort(-shares, kind="stable")[:LIKELIEST].tolist() if classes > MAX_CLASS_COLUMNS else None
                yield index, predicted, shares, list(range(classes)) if likeliest is None else likeliest

    def _path(self, index: int) -> str:
        return "" if self.data.names is None else self.data.names[index]

    def _write_csv(self, file: TextIO) -> None:
        names = [cell(name) for name in self.class_names]
        many = len(names) > MAX_CLASS_COLUMNS
        columns = [f"{what}_{k}" for k in range(1, LIKELIEST + 1) for what in ("class", "p")] if many else []
        file.write(csv_line(["index", "path", "predicted", "probability", *(columns or (f"p_{name}" for name in names))]))
        for index, predicted, shares, classes in self._rows():
            texts = {k: f"{shares[k]:.{DIGITS}f}" for k in (*classes, predicted)}
            rest = [text for k in classes for text in ((names[k], texts[k]) if many else (texts[k],))]
            file.write(csv_line([index, cell(self._path(index)), names[predicted], texts[predicted], *rest]))

    def _write_json(self, file: TextIO) -> None:
        names = self.class_names
        for index, predicted, shares, classes in self._rows():
            facts = {
                "index": index,
                "path": self._path(index) or None,
                "predicted": names[predicted],
                "probability": round(float(shares[predicted]), DIGITS),
                "probabilities": {names[k]: round(float(shares[k]), DIGITS) for k in classes},
            }
            file.write(json.dumps(facts) + "\n")

    def _write_npz(self, place: Path) -> None:
        index, predicted, probabilities = (np.concatenate(arrays) for arrays in zip(*self.batches(), strict=True))
        arrays = {"probabilities": probabilities, "predicted": predicted, "index": index, "classes": np.array(self.class_names)}
        if self.data.names is not None:
            arrays["path"] = np.array([self._path(k) for k in index])
        save_arrays(place, arrays)


def predict_data(trained: TrainedClassifier, place: Any, *, label: str | None = None, workers: int = 2) -> PredictionTable:
    """The predictions for the examples in a place, of the kind that the network was trained on.

    Args:
        trained: What :func:`noiseproof.load` returned.
        place: An .npz file with an array ``x``, a table, an image, a folder or a list of images, the name of a data set, or a
            data frame; with labels or without.
        label: The column of a table's labels; by default what it was called in training, if it is there.
        workers: Processes that decode image files, where there are many.

    Returns:
        A table that computes its predictions when it is saved.

    Raises:
        ValueError: There are no such examples in the place.

    >>> table = predict_data(noiseproof.load("runs/NAME"), "new.csv")  # doctest: +SKIP
    >>> table.save("predictions.csv")  # doctest: +SKIP
    """
    known = None if trained.table is None else trained.table.label
    said = place if label is None or not isinstance(place, str | os.PathLike) else f"{os.fspath(place)}#{label}"
    data = open_unlabelled(said, trained.classes, trained.features, trained.encoder, label=label or known)
    place = os.fspath(place) if isinstance(place, str | os.PathLike) else "the table"
    return PredictionTable(trained, data, place, min(workers, len(data.examples) // FILES_PER_WORKER))


def format_of(file: str | Path) -> PredictionFormat:
    """The format of a file of predictions, from the end of its name.

    Args:
        file: Its path.

    Returns:
        ``csv``, ``json`` or ``npz``.

    Raises:
        ValueError: Its name ends otherwise.

    >>> format_of("predictions.jsonl")
    'json'
    """
    if (form := FORMATS.get(suffix := Path(file).suffix.lower())) is None:
        raise ValueError(f"predictions are written as .csv, .npz or .json, got {suffix!r}")
    return form
