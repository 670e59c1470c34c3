"""A finished run's network, to use on new examples: loaded from the run's folder or weights, without the training data."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from noiseproof.data import DataError, Examples, ImageFiles, Split
from noiseproof.data.dataset import as_split
from noiseproof.data.frames import is_frame
from noiseproof.data.table import frame_for, image_frame, plain_encoder
from noiseproof.data.table_encoder import Table, TableEncoder
from noiseproof.io.files import checksum
from noiseproof.io.text import excerpt, parse_json
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
