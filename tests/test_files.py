"""Files that are whole or not there, folders that one process has, and arrays that take no more memory than they may."""

import errno
import io
import os
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from noiseproof.files import flush, locked, make_folder, read_arrays, write_whole


@pytest.fixture
def events(monkeypatch):
    """What the system is asked to do, in order: fsync and replace, with the names of the files."""
    seen, replace = [], os.replace

    def name_of(handle):
        return Path(os.readlink(f"/proc/self/fd/{handle}")).name

    def renamed(source, target):
        seen.append(("replace", Path(target).name, Path(source).stat().st_size))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", lambda handle: seen.append(("fsync", name_of(handle), os.fstat(handle).st_size)))
    monkeypatch.setattr(os, "replace", renamed)
    return seen


def test_content_and_then_its_name_are_on_the_disk_before_a_file_is_claimed(tmp_path, events):
    write_whole(tmp_path / "a.txt", lambda path: path.write_text("whole"))
    (first, temporary, size), renamed, (last, folder, _) = events
    assert (first, size) == ("fsync", 5)
    assert temporary.startswith(".a.txt.")
    assert renamed == ("replace", "a.txt", 5)
    assert (last, folder) == ("fsync", tmp_path.name)


def test_a_new_folders_name_is_on_the_disk_too(tmp_path, events):
    made = make_folder(tmp_path / "a" / "b")
    assert made == [tmp_path / "a" / "b", tmp_path / "a"]
    assert [(event, name) for event, name, _ in events] == [("fsync", "a"), ("fsync", tmp_path.name)]
    assert make_folder(tmp_path / "a" / "b") == []


def test_a_disk_that_cannot_keep_the_content_keeps_the_old_file(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("old")

    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*/a\.txt'"):
        write_whole(tmp_path / "a.txt", lambda path: path.write_text("new"))
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a.txt": "old"}


def test_a_file_system_that_has_no_fsync_is_no_error(tmp_path, monkeypatch):
    def unknown(handle):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "fsync", unknown)
    flush(tmp_path)
    write_whole(tmp_path / "a.txt", lambda path: path.write_text("new"))
    assert (tmp_path / "a.txt").read_text() == "new"


def test_a_folder_that_was_removed_before_the_lock_is_an_error(tmp_path, monkeypatch):
    import fcntl

    def replaced(handle, how):
        (tmp_path / "run").rmdir()
        (tmp_path / "run").mkdir()

    (tmp_path / "run").mkdir()
    monkeypatch.setattr(fcntl, "flock", replaced)
    with pytest.raises(FileNotFoundError, match="run"), locked(tmp_path / "run", wait=False):
        pass


def npz(path, **members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return path


def npy(array, shape=None):
    """An .npy file as bytes; its header may claim another shape."""
    held = io.BytesIO()
    np.save(held, array)
    content = held.getvalue()
    if shape is None:
        return content
    start, wanted = content.index(b"'shape': ") + 9, f"{shape}, }}".encode()
    return content[:start] + wanted + b" " * (content.index(b"\n") - start - len(wanted)) + content[content.index(b"\n") :]


def test_arrays_are_read_by_name(tmp_path):
    arrays = {"a": np.arange(6, dtype=np.int64).reshape(2, 3), "b": np.float32([0.5]), "c": np.zeros((0, 2))}
    np.savez_compressed(tmp_path / "x.npz", **arrays, text=np.array(["a"]))
    found = read_arrays(tmp_path / "x.npz", ("a", "b", "c", "absent"))
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].flags.writeable
    with pytest.raises(ValueError, match=r"text must be numbers in rows of at most \d+ bytes, found <U1"):
        read_arrays(tmp_path / "x.npz", ("text",))


@pytest.mark.parametrize("shape", [(2**40,), (2**20, 2**20), (5,), (3,)])
def test_a_header_that_lies_about_the_shape_is_refused(tmp_path, shape):
    with pytest.raises(ValueError, match=r"a must be numbers in rows of at most|a has another size than its shape"):
        read_arrays(npz(tmp_path / "x.npz", a=npy(np.arange(4.0), shape)), ("a",))


def test_no_more_is_unpacked_than_may_be(tmp_path):
    """64 MiB of zeros behind an array of four numbers."""
    zeros = npz(tmp_path / "x.npz", a=npy(np.zeros(4), (4,)) + bytes(2**26))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="a has another size than its shape"):
            read_arrays(zeros, ("a",))
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()
