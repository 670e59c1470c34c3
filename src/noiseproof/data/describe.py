"""What a data set holds: sizes, class counts and checksums."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from noiseproof.data.dataset import Dataset, Examples
from noiseproof.data.opening import open_dataset
from noiseproof.io.text import printable
from noiseproof.noise.files import read_noisy_labels
from noiseproof.noise.matrix import NoisyLabels

MAX_CLASSES_LISTED, MAX_SOURCES_LISTED = 20, 8
BAR_WIDTH = 24
CHANNELS_FIRST = "the channels come first; transpose(0, 2, 3, 1) makes images [N, H, W, C]"


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
        lines += [f"  {CHANNELS_FIRST}"] * any(part.in_memory and part.channels_first for part in self.dataset.splits.values())
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


def describe(
    dataset: Dataset | str | Path,
    root: str | Path | None = None,
    *,
    split: str = "train",
    labels: str | Path | None = None,
    name: str | None = None,
    check: bool = True,
) -> DataSummary:
    """Describe a data set: sizes, classes and checksums.

    Args:
        dataset: A data set, or its name or path, as :func:`open_dataset` takes it.
        root: The folder of data sets that have a name.
        split: Whose classes.
        labels: A file of given labels of the same examples, to compare.
        name: Which labels, if the file holds several.
        check: Whether to verify published checksums.

    Returns:
        The summary; ``print`` it.

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
