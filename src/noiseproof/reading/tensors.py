"""Files that ``torch.save`` wrote, as zip files or in the format before torch 1.6."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from noiseproof.reading.opening import ReadError, open_regular
from noiseproof.reading.pickles import PickleError, Storage, Unpickler, resolved
from noiseproof.reading.zips import ZipMembers

__all__ = ["read_torch"]

MAGIC, PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
"""The first two pickles of the older format. The description of the machine, the content and the storages' keys follow."""


def read_torch(path: str | Path) -> Any:
    """What ``torch.save`` wrote, its tensors as NumPy arrays: numbers, text, lists, or a dictionary of these and of arrays."""
    with open_regular(path) as file:
        start = file.read(4)
        raw = b"" if start == b"PK\x03\x04" else start + file.read()
    try:
        return _from_zip(path) if not raw and start else _from_pickles(raw)
    except PickleError as error:
        raise ReadError(path, str(error)) from error


def _from_zip(path: str | Path) -> Any:
    with ZipMembers(path) as members:
        found = [name for name in members.sizes if name.endswith("/data.pkl")]
        if len(found) != 1:
            raise ReadError(path, f"not a file of torch's: it has {len(found)} members 'data.pkl', and should have one")
        if members.is_packed(found[0]):  # its text and lists take several times its size in memory
            raise ReadError(path, "not a file of torch's: its pickle is packed")
        folder, kept = found[0].removesuffix("data.pkl"), {}
        if folder + "byteorder" in members.sizes and members.read(folder + "byteorder") != b"little":
            raise ReadError(path, "its numbers are in another byte order than little-endian")

        def memory(storage: Storage) -> memoryview:
            member = f"{folder}data/{storage.key}"
            if member not in members.sizes:
                raise PickleError("a tensor's numbers are not in the file")
            if member not in kept:
                kept[member] = members.read(member)
            return memoryview(kept[member])

        return resolved(Unpickler(members.read(found[0])).load(), memory)


def _from_pickles(raw: bytes) -> Any:
    parts: list[Any] = []
    storages: dict[str, Storage] = {}
    position = 0
    for _ in range(5):
        unpickler = Unpickler(raw, position)
        parts.append(unpickler.load())
        position = unpickler.position
        storages |= unpickler.storages
        if parts[:2] != [MAGIC, PROTOCOL][: len(parts)]:
            raise PickleError("not a file that torch.save wrote")
    content, keys = parts[3:]
    if type(keys) is not list or not all(type(key) is str for key in keys) or set(keys) != set(storages):
        raise PickleError("its list of storages is not that of its tensors")
    begins = {}
    for key in keys:
        count = storages[key].count
        size, left = count * storages[key].dtype.itemsize, len(raw) - position - 8
        if raw[position : position + 8] != count.to_bytes(8, "little") or left < size:
            raise PickleError(f"{size} bytes expected for a storage at byte {position}, found {max(0, left)}")
        begins[key] = position + 8
        position += 8 + size

    def memory(storage: Storage) -> memoryview:
        begin = begins[storage.key]
        return memoryview(raw)[begin : begin + storage.count * storage.dtype.itemsize]

    return resolved(content, memory)
