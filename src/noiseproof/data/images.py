"""Images: folders of files with one folder per class, and image files of others, decoded within limits.

Of formats that are known, of pixels that fit, and never slowly. Pillow is imported by the first call that decodes.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
from numpy.typing import NDArray

from noiseproof.data.columns import IMAGE_EXTENSIONS
from noiseproof.data.dataset import Dataset, Examples, ImageFiles
from noiseproof.io import limits
from noiseproof.io.files import DataError, ReadError, open_regular

if TYPE_CHECKING:
    import PIL.Image

IGNORED_NAMES = frozenset({"thumbs.db", "ehthumbs.db", "desktop.ini", "__macosx", "@eadir", "icon\r"})
"""Files and folders of desktops and file servers, in lower case; they are ignored, as are names that start with a dot."""
MAX_NAMED_FAULTS = 3
"""Damaged files that an error names; it counts all"""
TEST_FOLDERS = ("test", "val", "validation")


def load_image_folder(folder: str | Path, *, name: str | None = None, test: str | None = None) -> Dataset:
    """Read a folder with one sub-folder of images per class, or with ``train`` and a test folder that have these.

    A folder called ``train`` counts as a split where it holds folders, and as a class where it holds images. Classes and
    images are in the order of their names; the test split may lack classes but not add any.

    Images are those with a name in ``IMAGE_EXTENSIONS``, directly in the class's folder. Links are followed. Hidden files,
    ``IGNORED_NAMES``, and files next to the class folders are ignored; any other file or folder inside a class is an error,
    and so is a class without images. ``sources`` has one SHA-256, of every image's relative path, size and label, but not of
    the pixels.

    Args:
        folder: The folder.
        name: Of the data set; that of the folder by default.
        test: The test folder; ``test``, ``val`` or ``validation`` by default.

    Returns:
        The data set.

    Raises:
        FileNotFoundError: If there is no such folder.
        DataError: If it is not laid out so.

    >>> load_image_folder("no/such/folder")
    Traceback (most recent call last):
    FileNotFoundError: no/such/folder: no such folder
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder")
    train_folder, test_folder = _split_folders(folder, test)
    labels = {kind: k for k, kind in enumerate(_class_names(train_folder))}
    digest = hashlib.sha256()
    train = class_files(train_folder, labels, digest.update, root=folder)
    held_out = None
    if test_folder is not None:
        kinds = _class_names(test_folder)
        if added := [kind for kind in kinds if kind not in labels]:
            raise DataError(f"{test_folder}: classes that {train_folder} has not: {', '.join(map(repr, added[:10]))}")
        held_out = class_files(test_folder, {kind: labels[kind] for kind in kinds}, digest.update, root=folder)
    called = folder.resolve().name
    return Dataset(name or called, train, held_out, tuple(labels), {called: digest.hexdigest()})


def read_image(path: str | Path) -> NDArray[np.uint8]:
    """Decode one image file.

    Grey, palette and CMYK images are converted, transparency is dropped and an EXIF orientation is ignored, as torchvision's
    loader does. Of 16-bit grey the upper eight bits are kept, where Pillow's conversion would turn all but the darkest 1/256
    white. Of several frames the first is read. The format is that of the content, whatever the suffix, and only
    ``IMAGE_FORMATS`` are tried: Pillow knows others, one of which runs a program.

    Args:
        path: The file.

    Returns:
        uint8 ``[H, W, 3]``, red, green, blue.

    Raises:
        DataError: If the file is damaged, in another format, or larger than ``MAX_PIXELS`` or
            ``PIL.Image.MAX_IMAGE_PIXELS``.
        OSError: If it is not a regular file, or cannot be opened or read.

    >>> import tempfile, PIL.Image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     PIL.Image.new("L", (4, 2), 255).save(f"{folder}/white.png")
    ...     read_image(f"{folder}/white.png").shape
    (2, 4, 3)
    """
    return np.asarray(decode(os.fspath(path))).copy()  # Pillow's own pixels cannot be written to


def as_pixels(image: str | NDArray[np.uint8]) -> NDArray[np.uint8]:
    """An image file, or pixels ``[H, W]`` or ``[H, W, C]``, as uint8 ``[H, W, 3]``."""
    if isinstance(image, str):
        return read_image(image)
    pixels = image[..., None] if image.ndim == 2 else image
    return np.repeat(pixels, 3, -1) if pixels.shape[-1] == 1 else pixels


def example_image(dataset: Dataset, examples: Examples, index: int) -> NDArray[np.uint8] | None:
    """One of a data set's examples as uint8 ``[H, W, 3]``, None if it is no image."""
    if not examples.in_memory:
        return read_image(examples.paths[index])
    value = examples.inputs[index]
    if examples is dataset.train and dataset.table is not None and (column := dataset.table.encoder.image_column) is not None:
        return as_pixels(dataset.table.rows["train"][column].iloc[index])
    if dataset.name == "digits" and value.shape == (64,):  # the one set of features that is known to be a picture
        value = np.rint(255 * value.reshape(8, 8, 1)).astype(np.uint8)
    if value.dtype != np.uint8 or value.ndim not in (2, 3) or value.shape[2:] not in ((), (1,), (3,)):
        return None
    return as_pixels(value)  # grey as in training


def damaged(faults: Sequence[Exception], count: int) -> DataError:
    """The error for damaged images among so many: it names the first and counts all."""
    more = f" ({len(faults)} of {count} images are damaged)" if len(faults) > 1 else ""
    return DataError("; ".join(map(str, faults[:MAX_NAMED_FAULTS])) + more)


def _split_folders(folder: Path, test: str | None) -> tuple[Path, Path | None]:
    train = folder / "train"
    if not (train.is_dir() and any(entry.is_dir() for entry in _entries(train))):
        if test is not None:
            raise DataError(f"{folder}: test={test!r} needs a folder 'train' with class folders beside it")
        return folder, None
    if test is not None:
        if not (folder / test).is_dir():
            raise FileNotFoundError(f"{folder / test}: no such folder")
        return train, folder / test
    found = [name for name in TEST_FOLDERS if (folder / name).is_dir()]
    if len(found) > 1:
        way = f"move one of them elsewhere; in Python, load_image_folder(FOLDER, test={found[0]!r}) chooses"
        raise DataError(f"{folder}: {' and '.join(found)} are both there, and one is tested on: {way}")
    return train, folder / found[0] if found else None


def _class_names(folder: Path) -> tuple[str, ...]:
    names = []
    for entry in _entries(folder):
        if entry.is_dir():
            names.append(entry.name)
        elif _is_image(entry.name):
            raise DataError(f"{entry.path}: an image outside any class; move it into a class's folder")
    if not names:
        raise DataError(f"{folder}: no class folders")
    return tuple(names)


def class_files(folder: Path, labels: dict[str, int], update: Callable[[bytes], object], *, root: Path) -> ImageFiles:
    """The images in the sub-folders that ``labels`` names; ``update`` hashes their paths from ``root``, sizes and labels."""
    paths: list[str] = []
    classes: list[int] = []
    for name, label in labels.items():
        before, relative = len(paths), (folder / name).relative_to(root).as_posix()
        for entry in _entries(folder / name):
            if entry.is_dir():
                way = f"; if its folders are the classes, give {folder / name}" if len(labels) == 1 else ""
                raise DataError(f"{entry.path}: a folder; images are expected directly in {folder / name}{way}")
            if not _is_image(entry.name):
                raise DataError(f"{entry.path}: not an image's name ({' '.join(sorted(IMAGE_EXTENSIONS))}); move it away")
            try:
                found = entry.stat()
            except FileNotFoundError as error:
                raise DataError(f"{entry.path}: a link to nothing; remove it") from error
            if not stat.S_ISREG(found.st_mode):
                raise DataError(f"{entry.path}: not a regular file but a pipe, a socket or a device; move it away")
            paths.append(entry.path)
            classes.append(label)
            update(os.fsencode(f"{relative}/{entry.name}") + f"\0{found.st_size}\0{label}\n".encode())
        if len(paths) == before:
            raise DataError(f"{folder / name}: a class without images; remove the folder, or fill it")
    return ImageFiles(tuple(paths), np.array(classes, np.int64))


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    """The entries of a folder, sorted by name, without hidden ones and junk."""
    with os.scandir(folder) as found:
        yield from sorted(
            (entry for entry in found if not entry.name.startswith(".") and entry.name.lower() not in IGNORED_NAMES),
            key=lambda entry: entry.name,
        )


def _is_image(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in IMAGE_EXTENSIONS


IMAGE_FORMATS = ("JPEG", "PNG", "BMP", "WEBP", "GIF", "PPM", "TIFF")
NO_PIXELS = {"cannot load this image": "it has no pixels"}
"""What Pillow says, and what is meant"""
DECODED_BYTES = 8
"""What a pixel takes at least: four bytes in Pillow, and in a copy"""
SLOW_DECODERS = frozenset({"ppm", "ppm_plain", "bmp_rle"})
"""Pillow's decoders that are written in Python"""


def open_file(path: str) -> BinaryIO:
    """Open a regular file, or a link to one; an OSError for others: a fifo would wait for its writer."""
    try:
        return open_regular(path)
    except ReadError as error:
        raise OSError(errno.EISDIR if os.path.isdir(path) else errno.EINVAL, error.fault, path) from error


def decode(path: str) -> PIL.Image.Image:
    """The RGB image in a file, as :func:`read_image` says, still as a Pillow image."""
    try:
        import PIL.Image
    except ImportError as error:
        raise ImportError("images are read with pillow: pip install '.[lab]' in noiseproof's repository") from error
    with open_file(path) as file, warnings.catch_warnings():
        # Pillow's warnings of odd metadata are ignored, those of decompression bombs become errors.
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", PIL.Image.DecompressionBombWarning)
        try:
            if (size := _size(file)) > limits.MAX_IMAGE_BYTES:
                raise ValueError(f"{size} bytes, and an image may be of {limits.MAX_IMAGE_BYTES}; leave it out")
            if (profiles := _count(file, b"iCCP")) > limits.MAX_COLOR_PROFILES:
                raise ValueError(f"{profiles} colour profiles, and an image has one; save it anew, or leave it out")
            image = PIL.Image.open(file, formats=IMAGE_FORMATS)
            _check_cost(image, file)
            image.load()
            return _as_rgb(image)
        except MemoryError:
            raise
        except (PIL.Image.DecompressionBombWarning, PIL.Image.DecompressionBombError) as error:
            raise DataError(f"{path}: {error}; make it smaller, or leave it out") from error
        except PIL.UnidentifiedImageError as error:
            file.seek(0)
            if (start := file.read(24)).startswith(b"\x89PNG") and bytes(4) in (start[16:20], start[20:]):
                raise DataError(f"{path}: an image without pixels; leave it out") from error
            raise DataError(f"{path}: not an image; {', '.join(IMAGE_FORMATS)} are read") from error
        except Exception as error:  # decoders raise many kinds for damaged data
            if isinstance(error, OSError) and error.errno is not None:
                raise OSError(error.errno, error.strerror, path) from error  # of the disk or the network, without the path
            fault = NO_PIXELS.get(str(error), str(error) or type(error).__name__)
            raise DataError(f"{path}: not a readable image: {fault}") from error


def _check_cost(image: PIL.Image.Image, file: BinaryIO) -> None:
    """Refuse what a few bytes could make expensive; called before the pixels are decoded."""
    pixels = f"{image.width} x {image.height} pixels"
    most = limits.MAX_WEBP_PIXELS if image.format == "WEBP" else limits.MAX_PIXELS
    if not 0 < image.width * image.height <= most:
        raise ValueError(f"{pixels} must be in [1, {most}]; resize it, or leave it out")
    limits.check_memory(
        f"{image.width} x {image.height} pixels", DECODED_BYTES * image.width * image.height, "resize it, or leave it out"
    )
    if image.format == "TIFF" and (tile := _tile(image)) > most:
        raise ValueError(f"tiles of {tile} pixels must be in [1, {most}]; save it anew, or leave it out")
    if any(tile[0] in SLOW_DECODERS for tile in getattr(image, "tile", ())) and (size := _size(file)) > limits.MAX_SLOW_BYTES:
        raise ValueError(
            f"{size} bytes of {image.format} as text, runs or odd depths, at most {limits.MAX_SLOW_BYTES}; save it as PNG"
        )
    if (
        image.format in ("JPEG", "MPO")
        and (scans := _count(file, b"\xff\xda")) * image.width * image.height > limits.MAX_SCANNED_PIXELS
    ):
        raise ValueError(f"{scans} scans of {image.width} x {image.height} pixels are too many; save it anew, or leave it out")


def _size(file: BinaryIO) -> int:
    place = file.tell()
    size = file.seek(0, os.SEEK_END)
    file.seek(place)
    return size


def _tile(image: PIL.Image.Image) -> int:
    """The pixels of one tile of a TIFF, which has memory of its own, however small the image; 0 if it has none."""
    width, length = (getattr(image, "tag_v2", {}).get(tag, 0) for tag in (322, 323))
    return width * length if isinstance(width, int) and isinstance(length, int) else 0


def _count(file: BinaryIO, mark: bytes) -> int:
    """How often the bytes occur in a file: the marker of a JPEG's scans (elsewhere the byte after 0xff is 0), say."""
    place, found, last = file.tell(), 0, b""
    file.seek(0)
    while piece := file.read(2**20):
        last += piece
        found += last.count(mark)
        last = last[-(len(mark) - 1) :]
    file.seek(place)
    return found


def _as_rgb(image: PIL.Image.Image) -> PIL.Image.Image:
    import PIL.Image

    if image.mode == "RGB":
        return image
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):
        grey = np.array(image)
        grey >>= 8
        return PIL.Image.fromarray(grey.clip(0, 255, out=grey).astype(np.uint8)).convert("RGB")
    if image.mode in ("I", "F"):
        raise ValueError("32 bits per pixel have no agreed white; save it with 8 or 16")
    return image.convert("RGB")
