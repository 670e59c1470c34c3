"""Small image files as images in memory: their common size, and all of them decoded."""

from __future__ import annotations

import warnings
import weakref

import numpy as np
from numpy.typing import NDArray

from noiseproof.data.dataset import Dataset
from noiseproof.data.examples import DataError, Examples, ImageFiles, Split
from noiseproof.data.framing import Cover
from noiseproof.data.image_operation import Size
from noiseproof.data.images import FORMATS, decode, open_file

__all__ = ["AT_MOST", "common_size", "in_memory_at"]

AT_MOST = 2**30
"""Bytes of decoded images that are kept in memory; more stay in their files"""
_decoded: weakref.WeakKeyDictionary[ImageFiles, tuple[Size, NDArray[np.uint8]]] = weakref.WeakKeyDictionary()
"""All runs on the same files share the images."""


def common_size(dataset: Dataset, *, at_most: int) -> Size | None:
    """Height and width of all image files, if they are the same and no side is longer than ``at_most``; only headers are read.

    None also where a file cannot be read: the loader names it.
    """
    found: Size | None = None
    for split in dataset.splits.values():
        for path in split.paths if not split.in_memory else ():
            size = _size_in_header(path)
            if size is None or max(size) > at_most or size != (found or size):
                return None
            found = size
    return found


def in_memory_at(dataset: Dataset, size: Size, *, keep_rgb: bool = False) -> Dataset:
    """The data set with its image files decoded and resized to ``size``; unchanged if they would take over ``AT_MOST`` bytes.

    Where every image of the data set is grey they get one channel, unless ``keep_rgb``. A damaged file is a DataError.
    """
    splits = {name: split for name, split in dataset.splits.items() if not split.in_memory}
    if sum(len(split) for split in splits.values()) * size[0] * size[1] * 3 > AT_MOST:
        return dataset
    images = {name: _pixels(split, size) for name, split in splits.items()}
    if not keep_rgb and all(_is_grey(pixels) for pixels in images.values()):
        images = {name: pixels[..., :1].copy() for name, pixels in images.items()}
    ready: dict[str, Examples] = {
        name: Split(images[name], split.labels, split.paths) if not split.in_memory else split
        for name, split in dataset.splits.items()
    }
    train, test = ready.pop("train"), ready.pop("test", None)
    return Dataset(dataset.name, train, test, dataset.classes, dataset.sources, ready)


def _pixels(files: ImageFiles, size: Size) -> NDArray[np.uint8]:
    known = _decoded.get(files)
    if known is not None and known[0] == size:
        return known[1]
    framing, pixels = Cover(*size), np.empty((len(files), *size, 3), np.uint8)
    for k, path in enumerate(files.paths):
        try:
            pixels[k] = np.asarray(framing.frame(decode(path, open_file), ()))
        except DataError as error:
            way = "--skip-corrupt leaves out damaged files (train and compare: together with --set size=none)"
            raise DataError(f"{error}; {way}") from error
        except ValueError as error:
            raise DataError(f"{path}: {error}") from error
    _decoded[files] = size, pixels
    return pixels


def _is_grey(pixels: NDArray[np.uint8]) -> bool:
    return bool((pixels[..., :1] == pixels[..., 1:]).all())


def _size_in_header(path: str) -> Size | None:
    import PIL.Image

    try:
        with open_file(path) as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = PIL.Image.open(file, formats=FORMATS)
            return image.height, image.width
    except Exception:  # whatever is wrong, the decoder says it with the file's name
        return None
