"""Archives: what is honest comes out whole, what is hostile or damaged leaves nothing behind."""

import gzip
import io
import random
import stat
import tarfile
import zipfile

import pytest

from noiseproof.data import archive as archives
from noiseproof.data.archive import unpack
from noiseproof.data.examples import DataError

FILES = {"set/a.bin": b"a" * 1000, "set/deep/b.bin": bytes(range(256)) * 4, "set/empty": b""}


def tar_entry(name, content=b"", **fields):
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    for field, value in fields.items():
        setattr(entry, field, value)
    return entry, io.BytesIO(content)


def write_tar(path, *entries):
    with tarfile.open(path, "w:gz" if path.name.lower().endswith("gz") else "w") as tar:
        for entry, content in entries:
            tar.addfile(entry, content if entry.isreg() else None)
    return path


def honest(path):
    """The same three files in each kind of archive."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.mkdir("set")
            for name, content in FILES.items():
                archive.writestr(name, content)
        return path
    return write_tar(path, tar_entry("set", type=tarfile.DIRTYPE), *(tar_entry(*file) for file in FILES.items()))


def content_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(archive, message, into=None, **options):
    """Refusing names the archive and the fault, and leaves the folder as it was."""
    place = archive.parent / "place"
    place.mkdir()
    with pytest.raises(DataError, match=message) as caught:
        unpack(archive, into or place / "into", **options)
    assert str(caught.value).startswith(f"{archive}: ")
    assert list(place.iterdir()) == []
    assert [path for path in archive.parent.iterdir() if path not in (archive, place)] == []


@pytest.mark.parametrize("name", ["set.tar", "set.tar.gz", "set.tgz", "SET.TGZ", "set.zip"])
def test_every_kind_unpacks_to_the_same_files(tmp_path, name):
    archive = honest(tmp_path / name)
    files = unpack(archive, tmp_path / "into")
    assert content_of(tmp_path / "into") == FILES
    assert files == [tmp_path / "into" / name for name in FILES]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["into", name])


@pytest.mark.parametrize("name", ["set.tar.gz", "set.zip"])
def test_the_one_folder_of_an_archive_can_become_the_folder(tmp_path, name):
    archive = honest(tmp_path / name)
    files = unpack(archive, tmp_path / "into", top="set")
    assert content_of(tmp_path / "into") == {name.removeprefix("set/"): content for name, content in FILES.items()}
    assert all(path.is_file() for path in files)


def test_an_archive_without_the_promised_folder_is_refused(tmp_path):
    refused(honest(tmp_path / "set.tar"), "should hold one folder 'other', found 'set'", top="other")


def test_a_gzipped_file_unpacks_to_the_file(tmp_path):
    (tmp_path / "labels-ubyte.gz").write_bytes(gzip.compress(b"labels"))
    assert unpack(tmp_path / "labels-ubyte.gz", tmp_path / "into") == [tmp_path / "into" / "labels-ubyte"]
    assert content_of(tmp_path / "into") == {"labels-ubyte": b"labels"}


def test_modes_in_the_archive_are_ignored(tmp_path):
    archive = write_tar(tmp_path / "x.tar", tar_entry("run", b"#!/bin/sh", mode=0o6777))
    (run,) = unpack(archive, tmp_path / "into")
    assert not run.stat().st_mode & (stat.S_ISUID | stat.S_ISGID | stat.S_IXUSR)
    assert (tmp_path / "into").stat().st_mode & 0o700 == 0o700


@pytest.mark.parametrize("there", ["folder", "file", "dangling link"])
def test_what_is_already_there_is_not_touched(tmp_path, there):
    into = tmp_path / "into"
    {"folder": into.mkdir, "file": into.touch, "dangling link": lambda: into.symlink_to(tmp_path / "gone")}[there]()
    with pytest.raises(DataError, match="into is already there; remove it to unpack again"):
        unpack(honest(tmp_path / "set.tar"), into)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["into", "set.tar"]


@pytest.mark.parametrize("name", ["/tmp/evil", "//evil", "C:/evil", "C:\\evil", "..\\evil"])
def test_absolute_names_are_refused(tmp_path, name):
    refused(write_tar(tmp_path / "x.tar.gz", tar_entry("fine", b"1"), tar_entry(name, b"2")), "must have a relative name")


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "a/..", ".."])
@pytest.mark.parametrize("kind", ["x.tar", "x.zip"])
def test_names_that_climb_are_refused(tmp_path, name, kind):
    path = tmp_path / kind
    if kind == "x.tar":
        write_tar(path, tar_entry("fine", b"1"), tar_entry(name, b"2"))
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("fine", b"1")
            archive.writestr(name, b"2")
    refused(path, r"member '.*' must not have '\.\.' in its name")


def test_a_symbolic_link_is_refused_before_anything_is_written_through_it(tmp_path):
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    link = tar_entry("out", type=tarfile.SYMTYPE, linkname=str(outside))
    refused(write_tar(tmp_path / "x.tar", link, tar_entry("out/evil", b"1")), "member 'out' is a symbolic link; only files")
    assert list(outside.iterdir()) == []


def test_a_hard_link_is_refused_before_anything_is_written_through_it(tmp_path):
    victim = tmp_path.parent / f"{tmp_path.name}-victim"
    victim.write_bytes(b"mine")
    link = tar_entry("out", type=tarfile.LNKTYPE, linkname=str(victim))
    refused(write_tar(tmp_path / "x.tar", link, tar_entry("out", b"evil")), "member 'out' is a hard link; only files")
    assert victim.read_bytes() == b"mine"


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_devices_and_pipes_are_refused(tmp_path, kind):
    refused(write_tar(tmp_path / "x.tar", tar_entry("dev", type=kind)), "member 'dev' is a device; only files")


@pytest.mark.parametrize(
    ("kind", "what"), [(tarfile.CONTTYPE, "of the unknown type b'7'"), (tarfile.GNUTYPE_SPARSE, "a sparse file")]
)
def test_other_kinds_are_refused(tmp_path, kind, what):
    refused(write_tar(tmp_path / "x.tar", tar_entry("x", type=kind)), f"member 'x' is {what}; only files")


@pytest.mark.parametrize("second", ["a", "./a", "a/b", "b//../a"])
def test_a_name_that_is_there_twice_is_refused(tmp_path, second):
    message = "must not have '..'" if ".." in second else "is there twice; the second would overwrite the first"
    refused(write_tar(tmp_path / "x.tar", tar_entry("a", b"1"), tar_entry(second, b"2")), message)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_is_there_twice_in_a_zip_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("a", b"1")
        archive.writestr("a", b"2")
    refused(tmp_path / "x.zip", "member 'a' is there twice")


@pytest.mark.parametrize(
    ("mode", "what"), [(stat.S_IFLNK, "a symbolic link"), (stat.S_IFCHR, "a device or other"), (stat.S_IFIFO, "a device or")]
)
def test_links_and_devices_in_a_zip_are_refused(tmp_path, mode, what):
    entry = zipfile.ZipInfo("out")
    entry.create_system, entry.external_attr = 3, (mode | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr(entry, "/etc/passwd")
    refused(tmp_path / "x.zip", f"member 'out' is {what}")


@pytest.mark.parametrize("kind", ["x.tar.gz", "x.zip", "x.gz"])
def test_a_bomb_is_refused_when_the_bound_is_reached(tmp_path, kind):
    path, zeros = tmp_path / kind, bytes(5_000_000)
    if kind == "x.tar.gz":
        write_tar(path, tar_entry("zeros", zeros))
    elif kind == "x.zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("zeros", zeros)
    else:
        path.write_bytes(gzip.compress(zeros))
    assert path.stat().st_size < 10_000
    refused(path, "unpacks to more than the 1000000 bytes it may", at_most=1_000_000)


def test_a_bomb_in_a_header_is_refused(tmp_path):
    """The standard library reads an extended header into memory, however long it says it is."""
    header = tarfile.TarInfo("header")
    header.type, header.size = tarfile.XHDTYPE, 50_000_000
    (tmp_path / "x.tar.gz").write_bytes(gzip.compress(header.tobuf() + bytes(50_000_000)))
    refused(tmp_path / "x.tar.gz", "headers of more than 262144 bytes")


def test_a_bomb_after_the_end_is_refused_when_the_bound_is_reached(tmp_path):
    (tmp_path / "x.tar.gz").write_bytes(gzip.compress(bytes(5_000_000)))
    refused(tmp_path / "x.tar.gz", "unpacks to more than the 1000000 bytes it may", at_most=1_000_000)


def test_the_number_of_members_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MEMBERS", 10)
    refused(write_tar(tmp_path / "x.tar", *(tar_entry(str(i)) for i in range(11))), "holds more than 10 files and folders")


def test_folders_that_a_name_implies_count_as_members_and_are_not_deep(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MEMBERS", 10)
    folders = [tar_entry(name, type=tarfile.DIRTYPE) for name in ("a", "a/b", "a/b/c", "c")]
    fine = write_tar(tmp_path / "fine.tar", *folders, tar_entry("a/b/c/d/e/f"), tar_entry("c/d/e"))
    assert len(unpack(fine, tmp_path / "fine")) == 2
    (tmp_path / "x").mkdir()
    refused(write_tar(tmp_path / "x" / "x.tar", tar_entry("a/b/c/d/e/f/g/h/i/j/k")), "holds more than 10 files and folders")
    (tmp_path / "y").mkdir()
    monkeypatch.setattr(archives, "DEPTH", 4)
    refused(write_tar(tmp_path / "y" / "y.tar", tar_entry("a/b/c/d/e")), "member 'a/b/c/d/e' is more than 4 folders deep")


@pytest.mark.parametrize("name", ["x.tar", "x.tar.gz", "x.zip"])
def test_progress_is_told_member_by_member_though_they_are_empty(tmp_path, name):
    count, told = 3000, []
    if name == "x.zip":
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            for k in range(count):
                archive.writestr(str(k), b"")
    else:
        text = random.Random(0).randbytes(45 * count).hex()  # which hardly packs: gzip reads up to 128 KiB ahead
        write_tar(tmp_path / name, *(tar_entry(text[90 * k :][:90], mtime=k * 104729) for k in range(count)))
    assert len(unpack(tmp_path / name, tmp_path / "into", progress=lambda *now: told.append(now))) == count
    size = (tmp_path / name).stat().st_size
    assert {(about, total) for about, _, total in told} == {(f"unpacking {name}", size)}
    done = [count for _, count, _ in told]
    assert done == sorted(done)
    assert done[-1] == size
    assert archives.STEPS + 1 >= len(done) > (1 if name == "x.tar.gz" else 50)


def test_an_archive_may_unpack_to_a_multiple_of_its_size(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "SMALL", 1000)
    refused(
        write_tar(tmp_path / "x.tar.gz", tar_entry("zeros", bytes(200_000))), "unpacks to more than the [0-9]+ bytes it may"
    )


@pytest.mark.parametrize("name", ["set.tar", "set.tar.gz", "set.zip"])
def test_a_truncated_archive_is_refused_wherever_it_ends(tmp_path, name):
    whole = honest(tmp_path / name).read_bytes()
    end = whole.rindex(b"b.bin") + 1600 if name == "set.tar" else len(whole)  # beyond is padding
    for length in sorted({0, 1, 100, 512, 1024, 2048, *range(3, end, max(1, end // 40)), end - 1} & set(range(end))):
        folder = tmp_path / str(length)
        folder.mkdir()
        (folder / name).write_bytes(whole[:length])
        refused(folder / name, "damaged or not an archive|cut short")


@pytest.mark.parametrize("name", ["set.tar", "set.tar.gz", "set.zip"])
def test_a_damaged_archive_is_refused_or_gives_files_and_never_anything_else(tmp_path, name):
    whole, draw = honest(tmp_path / name).read_bytes(), random.Random(0)
    for trial in range(150):
        damaged = bytearray(whole)
        for _ in range(draw.randint(1, 4)):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        folder = tmp_path / str(trial)
        folder.mkdir()
        (folder / name).write_bytes(bytes(damaged))
        try:
            unpack(folder / name, folder / "into")
        except DataError:
            assert [path.name for path in folder.iterdir()] == [name]
        else:
            assert not any(path.is_symlink() for path in folder.rglob("*"))


def test_a_damaged_header_in_the_middle_does_not_lose_files_in_silence(tmp_path):
    damaged = bytearray(honest(tmp_path / "set.tar").read_bytes())
    damaged[damaged.index(b"set/deep")] ^= 1
    (tmp_path / "set.tar").write_bytes(bytes(damaged))
    refused(tmp_path / "set.tar", "no end of archive where one should be")


@pytest.mark.parametrize("name", ["x.tar", "x.tar.gz", "x.zip", "x.gz"])
@pytest.mark.parametrize("content", [b"", b"<html>Not found</html>" * 100, b"PK\x03\x04"])
def test_what_is_not_an_archive_is_refused(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    refused(tmp_path / name, "damaged or not an archive")


def test_an_unknown_ending_is_refused(tmp_path):
    (tmp_path / "x.rar").touch()
    refused(tmp_path / "x.rar", r"archives end in \.tar, \.tar\.gz, \.tgz, \.zip or \.gz, got '\.rar'")


def test_an_encrypted_zip_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("a", b"1")
    raw = (tmp_path / "x.zip").read_bytes()
    directory = raw.rindex(b"PK\x01\x02")
    (tmp_path / "x.zip").write_bytes(raw[: directory + 8] + b"\x01" + raw[directory + 9 :])
    refused(tmp_path / "x.zip", "member 'a' is encrypted; unpack the archive by hand")


def test_an_interruption_leaves_nothing(tmp_path, monkeypatch):
    def interrupt(self, *_):
        raise KeyboardInterrupt

    archive = honest(tmp_path / "set.tar")
    monkeypatch.setattr(archives._Members, "_make_folder", interrupt)
    with pytest.raises(KeyboardInterrupt):
        unpack(archive, tmp_path / "into")
    assert list(tmp_path.iterdir()) == [archive]


def test_a_full_disk_is_named(tmp_path, monkeypatch):
    def full(self, *_, **__):
        raise OSError(28, "No space left on device")

    archive = honest(tmp_path / "set.tar")
    monkeypatch.setattr(archives._Members, "_write", full)
    refused(archive, r"member 'set/a\.bin': no space left in ")
