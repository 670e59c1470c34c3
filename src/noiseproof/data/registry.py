"""Data sets by name: the package's own, and those of plug-ins (:mod:`noiseproof.plugins`), which call :func:`register_dataset`.

Augmentations by name are in :mod:`noiseproof.data.augment`, which needs torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from noiseproof.data.dataset import Dataset
from noiseproof.plugins import load_plugins

DATASETS: dict[str, NamedDataset] = {}

Progress = Callable[[str, int, int | None], object]
"""Called with what is done (a file's name), the bytes done so far, and the total if it is known."""


class NamedDataset(NamedTuple):
    """How a data set with a name is recognised, read and obtained."""

    read: Callable[[Path, bool], Dataset] | None = None
    """From its folder, and whether to verify published checksums; None for what is downloaded but not opened by this name"""
    folders: tuple[str, ...] = ()
    """Where it may be, below the folder of data sets; it may be in that folder itself too"""
    markers: tuple[str, ...] = ()
    """Files of which at least one is there if the data set is"""
    matches: Callable[[Path], bool] | None = None
    """Whether a folder holds this data set and not another of the same markers"""
    fetch: Callable[[Path, Progress | None], Path] | None = None
    """Download it below a folder of data sets; returns its own folder"""
    by_hand: str = ""
    """Where it comes from, if it cannot be fetched"""

    def is_in(self, folder: Path) -> bool:
        """Whether a folder has one of the markers.

        Args:
            folder: Where to look.

        Returns:
            True if a file of ``markers`` is there.
        """
        return any((folder / marker).is_file() for marker in self.markers)


def register_dataset(name: str, dataset: NamedDataset) -> None:
    """Make a data set known by name to ``open_dataset``, ``fetch`` and the command line.

    Args:
        name: What users write; one that is known already is replaced.
        dataset: How it is recognised, read and obtained.

    >>> from noiseproof.data import from_arrays, open_dataset
    >>> register_dataset("corners", NamedDataset(lambda folder, check: from_arrays([[0.0, 0.0], [1.0, 1.0]], [0, 1])))
    >>> len(open_dataset("corners").train)
    2
    >>> del DATASETS["corners"]
    """
    DATASETS[name] = dataset


def name_in_memory(held: Mapping[str, Dataset]) -> None:
    """Make data sets in memory known by names, as recipes have them."""
    for name, dataset in held.items():
        register_dataset(name, NamedDataset(partial(_as_it_is, dataset)))


@contextmanager
def named_in_memory(held: Mapping[str, Dataset]) -> Iterator[None]:
    """Make data sets in memory known by names for a while."""
    name_in_memory(held)
    try:
        yield
    finally:
        for name in held:
            DATASETS.pop(name, None)


def _as_it_is(dataset: Dataset, folder: Path, check: bool) -> Dataset:
    return dataset


def all_datasets() -> dict[str, NamedDataset]:
    """All data sets that have a name, those of plug-ins included.

    Returns:
        The registered data sets by name.

    >>> "digits" in all_datasets()
    True
    """
    load_plugins()
    return DATASETS


def find_name(name: str) -> NamedDataset | None:
    """The data set of this name.

    Args:
        name: As it was registered.

    Returns:
        The data set, or None if no plug-in has it either.
    """
    return DATASETS[name] if name in DATASETS else all_datasets().get(name)
