"""Predictions of new examples by a trained network, computed batch by batch and saved as CSV, JSON or npz."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TextIO

import numpy as np
import torch
from numpy.typing import NDArray

from noiseproof.data import Unlabelled, open_unlabelled
from noiseproof.io.files import file_and_name, save_arrays, write_whole
from noiseproof.io.text import cell, csv_line
from noiseproof.train.trained import TrainedClassifier

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
