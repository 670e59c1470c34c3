"""Files that are whole or not there, and folders that one process has."""

import errno
import io
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from noiseproof.data import frames
from noiseproof.io.arrays import NpzFile
from noiseproof.io.csv_files import sniffed
from noiseproof.io.files import checksum, errors_named, flush, locked, make_folder, remove_partial, write_whole
from noiseproof.io.text import all_lines, whole_text


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


def test_a_pipe_or_a_device_is_not_replaced_by_a_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="a device or a pipe, which no file can take the place of"):
        write_whole(tmp_path / "pipe", lambda path: path.write_text("whole"))
    assert (tmp_path / "pipe").is_fifo()
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


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


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        OSError("4096 requested and 0 written"),  # as NumPy says it
        RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"),  # as safetensors does
    ],
)
def test_a_full_disk_names_the_file_whoever_writes_it(tmp_path, error):
    def write(place):
        raise error

    with pytest.raises(OSError, match="No space left on device") as caught:
        write_whole(tmp_path / "a.npy", write)
    assert caught.value.filename == str(tmp_path / "a.npy")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["x" * 250 + ".csv", "ü" * 127])
def test_a_file_name_as_long_as_file_systems_allow_is_written(tmp_path, name):
    write_whole(tmp_path / name, lambda place: place.write_text("1"))
    assert [path.name for path in tmp_path.iterdir()] == [name]
    beside = []

    def killed(place):
        beside.append(place)
        raise SystemExit

    with pytest.raises(SystemExit):
        write_whole(tmp_path / name, killed)
    beside[0].write_text("a part")
    remove_partial(tmp_path / name)
    assert not beside[0].exists()


def test_what_a_killed_writer_left_is_removed_by_the_next_one_and_that_of_one_at_work_is_not(tmp_path):
    path = tmp_path / "numbers.txt"
    code = "import os, sys, time; from pathlib import Path; from noiseproof.io.files import write_whole\n"
    code += "write_whole(Path(sys.argv[1]), lambda p: (p.write_text('half'), print(p, flush=True), time.sleep(600)))"
    with subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE, text=True) as writer:
        half = Path(writer.stdout.readline().strip())
        time.sleep(0.3)
        write_whole(path, lambda place: place.write_text("one"))
        assert half.read_text() == "half"
        writer.kill()
    write_whole(path, lambda place: place.write_text("two"))
    assert [each.name for each in tmp_path.iterdir()] == ["numbers.txt"]
    assert path.read_text() == "two"


UNREADABLE = Path("/proc/self/mem")
"""What Linux answers with an input/output error"""


@pytest.mark.skipif(not UNREADABLE.exists(), reason="a file of Linux")
@pytest.mark.parametrize("read", [checksum, whole_text, lambda path: list(all_lines(path)), sniffed])
def test_a_file_that_the_disk_cannot_read_is_named(read, tmp_path):
    path = tmp_path / "t.csv"
    path.symlink_to(UNREADABLE)
    with pytest.raises(OSError, match="Input/output error") as error:
        read(path)
    assert (error.value.errno, error.value.filename) == (errno.EIO, str(path))


@pytest.mark.parametrize("error", [OSError("zlib inflate failed"), OSError(errno.EIO, "Input/output error", "other.csv")])
def test_an_error_that_has_its_name_or_is_not_the_systems_stays_as_it_is(error):
    with pytest.raises(OSError) as found, errors_named("t.csv"):  # noqa: PT011 - it is compared
        raise error
    assert found.value is error
    assert found.value.__cause__ is None


def test_a_table_that_arrow_cannot_read_is_named(tmp_path, monkeypatch):
    """Arrow's error has the number of the system's, and no name."""

    def fail(path, names):
        raise OSError(errno.EIO, "Error reading bytes from file. Detail: [errno 5] Input/output error")

    monkeypatch.setitem(frames.READERS, ".parquet", fail)
    path = tmp_path / "t.parquet"
    path.touch()
    with pytest.raises(OSError, match="Input/output error") as error:
        frames.raw_frame(path)
    assert error.value.filename == str(path)


def test_an_archive_that_the_disk_cannot_read_is_not_called_damaged(tmp_path, monkeypatch):
    class Failing(io.BytesIO):
        def seek(self, *where):
            raise OSError(errno.EIO, "Input/output error", "x.npz")

    monkeypatch.setattr("noiseproof.io.arrays.open_regular", lambda path: Failing(b"PK"))
    with pytest.raises(OSError, match="Input/output error") as error:
        NpzFile(tmp_path / "x.npz")
    assert error.value.filename == "x.npz"
