"""Image files of others, decoded within limits: of formats that are known, of pixels that fit, and never slowly."""

from __future__ import annotations

import errno
import os
import warnings
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from noiseproof.io import limits
from noiseproof.io.files import DataError, ReadError, open_regular

if TYPE_CHECKING:
    import PIL.Image

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
