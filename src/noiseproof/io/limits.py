"""How much memory a command may take, and what files of others may claim: whatever is sized by a file asks here first.

``NOISEPROOF_MEMORY`` is the memory that one array, table, model or image may take, in bytes or as 500M or 8G; without it, three
quarters of what is free. ``LIMITS`` is the table of SECURITY.md.
"""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

from noiseproof.io.files import DataError

MEMORY = "NOISEPROOF_MEMORY"
FREE_SHARE = 0.75
UNKNOWN_BYTES = 2**33
"""Where the system does not say how much is free"""
UNASKED_BYTES = 2**24
"""Less is not worth the question, unless the user has set a limit"""
MAX_COLUMNS = 100_000
MAX_CELLS_UNCHECKED, MAX_CELLS_PER_BYTE = 10**8, 100
"""Of a table file: a constant column of any length takes some bytes"""
MAX_ROW_GROUPS, MIN_GROUP_ROWS = 10_000, 1000
"""Of a Parquet file: so many groups, or larger ones; a group takes as much to read as thousands of rows"""
MAX_CATEGORY_CHARACTERS = 2**30
"""Of the texts of a category, one for each row"""
BLOCK_BYTES = MAX_LINE_BYTES = 2**24
"""Of a table that are read at a time; no row, cell or line may be longer"""
MIN_GZIP_BYTES, MAX_GZIP_RATIO = 2**26, 100
"""Of a .gz file: text becomes up to about thirty times as much"""
MAX_UNPACKED_BYTES, MAX_UNPACK_RATIO = 2**28, 32
"""A zip file may unpack to this many bytes, or to this many times its size if that is more"""
MAX_TEXT_BYTES, MAX_JSON_BYTES = 2**30, 2**27
MAX_JSON_VALUES = 2**22
"""As objects they take up to a hundred bytes each, in the file two"""
MAX_NESTING = 100
"""Lists and objects of JSON inside each other: whatever walks what was read then fits Python's stack"""
MAX_CLASSES = 2**20
"""A label beyond this is a slip: naming so many classes would fill the memory"""
MAX_IMAGE_BYTES = 2**30
MAX_PIXELS, MAX_WEBP_PIXELS = 2**26, 2**25
"""The most pixels that are decoded: a decoder takes up to 12 bytes for each, and WebP's 18"""
MAX_SCANNED_PIXELS = 2**31
"""The most pixels of a JPEG times its scans: each goes over all of them, however few its bytes. Encoders write about ten"""
MAX_COLOR_PROFILES = 16
"""Colour profiles of a PNG, each of which Pillow unpacks, a kilobyte to a megabyte. By chance pixels may look like a few"""
MAX_SLOW_BYTES = 2**21
"""Of images whose decoders are written in Python: a megabyte takes seconds"""


NO_MEMORY = re.compile(r"allocate memory|out of memory|malloc of size|failed to map segment")
"""What allocators, and the loader of libraries, say that have no exception of their own for it"""


class MemoryLimitError(DataError):
    """Something would take more memory than a command may take."""


def in_bytes(size: float) -> str:
    """A number of bytes as people read it.

    >>> in_bytes(999), in_bytes(2**24), in_bytes(5e10)
    ('999 bytes', '16.0 MiB', '46.6 GiB')
    """
    units = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")
    power = min(int(math.log(max(size, 1), 1024)), len(units) - 1)
    return f"{size / 1024**power:.{int(power > 0)}f} {units[power]}"


def allowed_memory() -> int:
    """Bytes that one thing may take: ``NOISEPROOF_MEMORY``, or three quarters of what is free."""
    if not (given := os.environ.get(MEMORY, "").strip()):
        return int(FREE_SHARE * _free_memory())
    found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?)\s*([KMGT]?)(?:i?B)?", given, re.IGNORECASE)
    if found is None or (size := int(float(found[1]) * 1024 ** " KMGT".index(found[2].upper() or " "))) < 1:
        raise ValueError(f"{MEMORY} must be a number of bytes, such as 500M or 8G, got {given[:40]!r}")
    return size


def check_memory(what: str, size: int, way: str = "") -> None:
    """An error that says how much something would take, before it is allocated, where that is more than it may take."""
    if (size > UNASKED_BYTES or MEMORY in os.environ) and size > (most := allowed_memory()):
        limit = f"{in_bytes(most)} may be taken ({MEMORY} sets another limit)"
        raise MemoryLimitError(f"{what} would take {in_bytes(size)} of memory, and {limit}" + (f"; {way}" if way else ""))


def check_file(path: str | Path) -> None:
    """The same for a file that is read whole: by its size, before a byte is read or hashed."""
    check_memory(f"{path}: its content", os.stat(path).st_size)


def out_of_memory(error: BaseException) -> str | None:
    """A sentence for an error of NumPy's, Arrow's, torch's or Python's allocator, or of loading a library; None for others.

    >>> out_of_memory(MemoryError("Unable to allocate 7.45 GiB for an array with shape (1000000000,)")).partition(" in")[0]
    'the memory is not enough for another 7.45 GiB; take fewer rows or columns, a smaller batch or model, or less at once'
    """
    text = str(error)
    if not isinstance(error, MemoryError) and not NO_MEMORY.search(text):
        return None
    found = re.search(r"(?:allocate|size) (\d[\d.]*)(?: ?([KMGTP]i?B))?", text)
    size = "what is needed" if not found else f"{found[1]} {found[2]}" if found[2] else in_bytes(float(found[1].rstrip(".")))
    way = "take fewer rows or columns, a smaller batch or model, or less at once"
    return f"the memory is not enough for {'another ' * bool(found)}{size}; {way}"


def _free_memory() -> int:
    """Of this machine, or of the container that this process runs in, or beside the limit that the process has."""
    found = []
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii")
        found.append(1024 * int(lines.partition("MemAvailable:")[2].split()[0]))
    except (OSError, ValueError, IndexError):
        found.append(UNKNOWN_BYTES)
    for most, used in (("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")):
        try:
            limit, taken = (int(Path("/sys/fs/cgroup", name).read_text(encoding="ascii")) for name in (most, used))
            found.append(limit - taken)
        except (OSError, ValueError):  # of "max", which is none
            continue
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit != resource.RLIM_INFINITY:
            pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
            found.append(limit - pages * resource.getpagesize())
    except (ImportError, OSError):
        pass
    return max(0, min(found))


LIMITS: dict[str, str] = {
    "what one array, table, model or image takes in memory": f"three quarters of what is free, or `{MEMORY}`",
    "columns of a table": f"{MAX_COLUMNS:,}",
    "cells of a table for each byte of its file": f"{MAX_CELLS_PER_BYTE}, beyond {MAX_CELLS_UNCHECKED:,} cells",
    "row groups of a Parquet file": f"{MAX_ROW_GROUPS:,}, or one for every {MIN_GROUP_ROWS:,} rows",
    "characters of all cells of a category": f"{MAX_CATEGORY_CHARACTERS:,}",
    "a row of a table, a cell or a line of text": in_bytes(BLOCK_BYTES),
    "what a .gz file unpacks to": f"{in_bytes(MIN_GZIP_BYTES)}, or {MAX_GZIP_RATIO} times its size",
    "what an .npz file or another zip file unpacks to": f"{in_bytes(MAX_UNPACKED_BYTES)}, or {MAX_UNPACK_RATIO} times its size",
    "a text file that is read at once": in_bytes(MAX_TEXT_BYTES),
    "a JSON file": in_bytes(MAX_JSON_BYTES),
    "values in JSON": f"{MAX_JSON_VALUES:,}",
    "lists and objects of JSON inside each other": f"{MAX_NESTING}",
    "classes": f"{MAX_CLASSES:,}",
    "an image file": in_bytes(MAX_IMAGE_BYTES),
    "pixels of an image": f"{MAX_PIXELS:,}; of WebP {MAX_WEBP_PIXELS:,}",
    "pixels of a JPEG times its scans": f"{MAX_SCANNED_PIXELS:,}",
    "colour profiles of a PNG": f"{MAX_COLOR_PROFILES}",
    "an image as text, runs or odd depths (PPM, BMP)": in_bytes(MAX_SLOW_BYTES),
}
"""What is limited, and to what"""
