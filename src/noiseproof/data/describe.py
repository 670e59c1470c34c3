"""What a data set holds: sizes, class counts, checksums, and images of each class."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noiseproof.data.dataset import Dataset, Examples
from noiseproof.data.images import example_image
from noiseproof.data.opening import open_dataset
from noiseproof.io.text import printable
from noiseproof.noise.files import read_noisy_labels
from noiseproof.noise.matrix import NoisyLabels

MAX_CLASSES_LISTED, MAX_CLASSES_DRAWN, MAX_SOURCES_LISTED = 20, 100, 8
MAX_PICTURE_ROWS = 20  # with more classes than this a picture has one image of each instead of a row
BAR_WIDTH = 24
RED = "#c1121f"
CHANNELS_FIRST = "the channels come first; transpose(0, 2, 3, 1) makes images [N, H, W, C]"


class ClassImages(NamedTuple):
    """Some images of one class, ``[H, W, 3]``, and for each the label it was given if that is another one."""

    name: str
    images: list[NDArray[np.uint8]]
    given: list[str | None]


@dataclass(frozen=True)
class DataSummary:
    """A data set, described by one of its splits; ``str`` gives the text that ``noiseproof data show`` prints.

    Attributes:
        dataset: The data set.
        split: The split that is described.
        given: Labels of the same examples from elsewhere, compared with the data's own.

    >>> from noiseproof.data import from_arrays
    >>> DataSummary(from_arrays([[0.0], [1.0]], [0, 1])).balance
    'every class of the train split has 1 examples'
    """

    dataset: Dataset
    split: str = "train"
    given: NoisyLabels | None = None
    """Labels of the same examples from elsewhere, compared with the data's own"""

    @property
    def examples(self) -> Examples:
        """The examples of the split."""
        return self.dataset.splits[self.split]

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """The number of examples of each class, in the split."""
        return np.bincount(self.examples.labels, minlength=len(self.dataset.classes))

    @property
    def balance(self) -> str:
        """How unequal the classes are, in words."""
        least, most = int(self.counts.min()), int(self.counts.max())
        if least == most:
            return f"every class of the {self.split} split has {most} examples"
        if least == 0:
            return f"classes without an example in the {self.split} split: {int((self.counts == 0).sum())}"
        return f"the largest class of the {self.split} split is {most / least:.3g} times the smallest"

    def __str__(self) -> str:
        lines = [f"{printable(self.dataset.name)}: {len(self.dataset.classes)} classes"]
        lines += [f"  {name:5} {len(part):>7} examples, {_inputs(part)}" for name, part in self.dataset.splits.items()]
        lines += [f"  {CHANNELS_FIRST}"] * any(map(_channels_first, self.dataset.splits.values()))
        lines.append(f"  {self.balance}")
        if self.given is not None:
            lines.append(f"  {int(self.given.mask.sum())} of the given labels differ: {self.given.rate:.4f}")
        sources = list(self.dataset.sources.items())[:MAX_SOURCES_LISTED]
        return "\n".join([*lines, *self._table(), *(f"  sha256 {digest[:12]}  {printable(name)}" for name, digest in sources)])

    def _table(self) -> list[str]:
        names = [printable(name) for name in self.dataset.classes[:MAX_CLASSES_LISTED]]
        wide, largest = max(5, *map(len, names)), max(1, int(self.counts.max()))
        lines = [
            f"      {'class':{wide}}  examples  {'':{BAR_WIDTH}}  {'' if self.given is None else ' given    kept'}".rstrip()
        ]
        given = None if self.given is None else np.bincount(self.given.labels, minlength=len(self.counts))
        for k, (name, count) in enumerate(zip(names, self.counts.tolist(), strict=False)):
            bar = "█" * max(round(BAR_WIDTH * count / largest), int(count > 0))
            line = f"{k:>4}  {name:{wide}}  {count:>8}  {bar:{BAR_WIDTH}}"
            if self.given is not None and given is not None:
                line += f"  {given[k]:>6}  {f'{self.given.matrix[k, k]:>6.1%}' if count else '-'}"
            lines.append(line.rstrip())
        more = len(self.dataset.classes) - MAX_CLASSES_LISTED
        return [*lines, f"      and {more} more"] if more > 0 else lines

    def images(self, per_class: int, *, classes: int = MAX_CLASSES_DRAWN, seed: int = 0) -> list[ClassImages]:
        """Random images of the first classes.

        Args:
            per_class: How many of each class, if it has so many.
            classes: Of how many classes.
            seed: Chooses the images.

        Returns:
            An entry for each class; none if the inputs are not images.
        """
        draw, found = np.random.default_rng(seed), []
        names, given = self.dataset.classes, None if self.given is None else self.given.labels
        for label, name in enumerate(names[:classes]):
            members = np.flatnonzero(self.examples.labels == label)
            chosen = draw.choice(members, min(per_class, len(members)), replace=False)
            pictures = [example_image(self.dataset, self.examples, int(index)) for index in chosen]
            images = [image for image in pictures if image is not None]
            if len(images) < len(chosen):
                return []
            others = [None if given is None or given[k] == label else names[given[k]] for k in chosen]
            found.append(ClassImages(name, images, others))
        return found

    def plot(self, path: str | Path, seed: int = 0) -> None:
        """Write images of each class as a PNG file; where labels are given, in red what is labelled otherwise.

        Args:
            path: The file.
            seed: Chooses the images.

        Raises:
            ValueError: The inputs are not images.
        """
        name, classes = self.dataset.name, len(self.dataset.classes)
        found = self.images(8 if classes <= MAX_PICTURE_ROWS else 1, seed=seed)
        if not found and _channels_first(self.examples):
            raise ValueError(f"{name}: {CHANNELS_FIRST}")
        if not found:
            raise ValueError(f"{name}: its inputs are not images, so there is nothing to draw; leave out --png")
        more = f", the first {len(found)} of {classes} classes" if len(found) < classes else ""
        note = "" if self.given is None else ", in red what is labelled otherwise"
        _draw_grid(found, f"{name}, {self.split} split{more}{note}", path)


def describe(
    dataset: Dataset | str | Path,
    root: str | Path | None = None,
    *,
    split: str = "train",
    labels: str | Path | None = None,
    name: str | None = None,
    check: bool = True,
) -> DataSummary:
    """Describe a data set: sizes, classes, checksums and images.

    Args:
        dataset: A data set, or its name or path, as :func:`open_dataset` takes it.
        root: The folder of data sets that have a name.
        split: Whose classes and images.
        labels: A file of given labels of the same examples, to compare.
        name: Which labels, if the file holds several.
        check: Whether to verify published checksums.

    Returns:
        The summary; ``print`` it, or ``plot`` its images.

    Raises:
        ValueError: There is no such split, or the labels do not fit.

    >>> print(str(describe("digits")).splitlines()[0])
    digits: 10 classes
    """
    if name is not None and labels is None:
        raise ValueError(f"--name picks one of several labels in the file of --labels, got {name!r} without --labels")
    opened = dataset if isinstance(dataset, Dataset) else open_dataset(dataset, root, check=check)
    if split not in opened.splits:
        raise ValueError(f"{opened.name} has no {split} split; it has {', '.join(opened.splits)}")
    clean = opened.splits[split].labels
    given = None if labels is None else read_noisy_labels(labels, clean, len(opened.classes), name)
    return DataSummary(opened, split, given)


def _inputs(split: Examples) -> str:
    if not split.in_memory:
        return "images in files"
    x = split.inputs
    text = f"{'x'.join(map(str, x.shape[1:]))} {x.dtype}"
    if x.dtype == np.uint8 or not x.size:
        return text
    return f"{text} in [{x.min():.4g}, {x.max():.4g}], mean {x.mean():.4g}, std {x.std():.4g}"


def _channels_first(split: Examples) -> bool:
    return split.in_memory and split.channels_first


def _draw_grid(found: list[ClassImages], title: str, path: str | Path) -> None:
    """A row of images for each class, or one image of each where there are many."""
    from matplotlib.figure import Figure

    rows = len(found) <= MAX_PICTURE_ROWS
    columns = max((len(group.images) for group in found), default=1) if rows else math.ceil(math.sqrt(len(found)))
    lines = len(found) if rows else math.ceil(len(found) / columns)
    changed = any(any(group.given) for group in found)
    height = (0.78 + 0.16 * (changed or not rows)) * lines + 0.5
    names = 0.1 + 0.085 * max(len(group.name) for group in found) if rows else 0.0
    figure = Figure(figsize=(0.78 * columns + names, height), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False)
    for axis in axes.flat:
        axis.set(xticks=[], yticks=[])
        axis.set_frame_on(False)
    for k, group in enumerate(found):
        cells = axes[k] if rows else axes.flat[k : k + 1]
        for axis, image, other in zip(cells, group.images, group.given, strict=False):
            _draw_image(axis, image, other, None if rows else group.name)
        if rows:
            cells[0].set_ylabel(group.name, rotation=0, ha="right", va="center", fontsize=9)
    figure.suptitle(title, fontsize=10)
    figure.savefig(path, format="png", dpi=130)


def _draw_image(axis: Any, image: NDArray[np.uint8], other: str | None, name: str | None) -> None:
    """An image, with its class above it unless the row has it, and in red the label it was given if that is another one."""
    axis.imshow(image, interpolation="nearest")
    if name is not None:
        axis.set_title(name[:14], fontsize=6, pad=2)
    if other is None:
        return
    if name is None:
        axis.set_title(f"→ {other}"[:14], fontsize=6, color=RED, pad=2)
    else:
        axis.set_xlabel(f"→ {other}"[:14], fontsize=6, color=RED, labelpad=1)
    axis.set_frame_on(True)
    for side in axis.spines.values():
        side.set(color=RED, linewidth=1.5)
