"""Archives that are hostile: bombs, names, headers and members that are not files."""

import bz2
import gzip
import io
import lzma
import os
import stat
import struct
import tarfile
import zipfile
from pathlib import Path

from noiseproof.data.archive import unpack
from tests.hostile.harness import ACCEPTED, Case


def unpacked(path: Path) -> dict[str, bytes]:
    """The files of an archive; nothing is left of one that is refused."""
    into = path.parent / "into"
    try:
        files = unpack(path, into)
    except Exception:
        if left := [entry.name for entry in path.parent.iterdir() if entry.name != path.name]:
            raise RuntimeError(f"left behind: {left}") from None
        raise
    return {file.relative_to(into).as_posix(): file.read_bytes() for file in files}


ATTEMPTS = {"unpack": unpacked}
FINE = {"set/a": b"1" * 700, "set/b": b""}


def member(name: str = "x", content: bytes = b"", **fields: object) -> bytes:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    for field, value in fields.items():
        setattr(entry, field, value)
    return entry.tobuf(tarfile.PAX_FORMAT) + content + bytes(-len(content) % 512)


END = bytes(1024)


def file(content, name: str = "odd.tar"):
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(content())
        return folder / name

    return make


def tar(*members: bytes, name: str = "odd.tar"):
    """Members one after the other, and the end; gzipped as the name says."""
    return file(lambda: (gzip.compress if name.endswith("gz") else bytes)(b"".join(members) + END), name)


def pax(**fields: object) -> bytes:
    """An extended header, which speaks of the member after it."""
    text = b""
    for key, value in fields.items():
        line = f" {key}={value}\n".encode()
        length = len(line) + 1
        while length != len(str(length)) + len(line):
            length += 1
        text += str(length).encode() + line
    return member("header", text, type=tarfile.XHDTYPE)


def packed(size: int, start: bytes = b"", pack=gzip.open, name: str = "odd.tar.gz"):
    """Zeros, packed piece by piece."""

    def make(folder: Path) -> Path:
        with pack(folder / name, "wb") as stream:
            stream.write(start)
            for _ in range(size // 2**20):
                stream.write(bytes(2**20))
        return folder / name

    return make


def zipped(*entries: tuple[object, bytes], method: int = zipfile.ZIP_DEFLATED):
    def make(folder: Path) -> Path:
        with zipfile.ZipFile(folder / "odd.zip", "w", method) as archive:
            for entry, content in entries:
                archive.writestr(entry, content)
        return folder / "odd.zip"

    return make


def unix(name: str, mode: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)
    entry.create_system, entry.external_attr = 3, mode << 16
    return entry


def overlapping(folder: Path) -> Path:
    """A thousand names for one member of a megabyte."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("0000", bytes(2**20))
    raw = buffer.getvalue()
    start = raw.index(b"PK\x01\x02")
    entry, end = raw[start : raw.index(b"PK\x05\x06")], raw[raw.index(b"PK\x05\x06") :]
    entries = b"".join(entry.replace(b"0000", b"%04d" % k) for k in range(1000))
    end = end[:8] + struct.pack("<HHII", 1000, 1000, len(entries), start) + end[20:]
    (folder / "odd.zip").write_bytes(raw[:start] + entries + end)
    return folder / "odd.zip"


def special(put, name: str = "odd.tar"):
    def make(folder: Path) -> Path:
        put(folder / name)
        return folder / name

    return make


def flipped(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 255]) + content[place + 1 :]


def sparse_header() -> bytes:
    return member("x", type=tarfile.GNUTYPE_SPARSE)


HONEST = b"".join(member(name, content) for name, content in FINE.items()) + END
LIMIT, DAMAGED = "unpacks to more than the [0-9]+ bytes it may", "damaged or not an archive"
CASES = [
    Case("honest", file(lambda: HONEST), "unpack", ACCEPTED, lambda found: found == FINE),
    Case("honest-gz", file(lambda: gzip.compress(HONEST), "odd.tgz"), "unpack", ACCEPTED, lambda found: found == FINE),
    Case("honest-zip", zipped(*FINE.items()), "unpack", ACCEPTED, lambda found: found == FINE),
    Case("honest-control-name", tar(member("a\x1b[2J", b"1")), "unpack", ACCEPTED, lambda found: found == {"a\x1b[2J": b"1"}),
    Case("honest-compressible", packed(2**25, name="odd.gz"), "unpack", ACCEPTED),
    Case("zeros", file(lambda: bytes(10240)), "unpack", "odd.tar: holds no files"),
    Case("zeros-gz", file(lambda: gzip.compress(bytes(10240)), "odd.tar.gz"), "unpack", "odd.tar.gz: holds no files"),
    Case("zeros-short", file(lambda: bytes(100)), "unpack", DAMAGED),
    Case("folders-only", tar(member("a", type=tarfile.DIRTYPE)), "unpack", "holds no files"),
    Case("zip-empty", zipped(), "unpack", "odd.zip: holds no files"),
    Case("zip-folder-only", zipped(("a/", b"")), "unpack", "odd.zip: holds no files"),
    Case("bomb-after-end", packed(2**27, HONEST), "unpack", LIMIT),
    Case("bomb-member", packed(2**27, member("x", size=2**27)[:512]), "unpack", LIMIT),
    Case("bomb-gz", packed(2**27, name="odd.gz"), "unpack", LIMIT),
    Case("bomb-zip", zipped(("x", bytes(2**27))), "unpack", LIMIT),
    Case("bomb-zip-overlapping", overlapping, "unpack", f"{LIMIT}|{DAMAGED}"),
    Case("bomb-header", packed(2**27, member("x", type=tarfile.XHDTYPE, size=2**27)), "unpack", "headers of more than 262144"),
    Case("bomb-long-name", packed(2**27, member("x", type=tarfile.GNUTYPE_LONGNAME, size=2**27)), "unpack", "headers of more"),
    Case("zip-bz2", zipped(("x", bytes(2**25)), method=zipfile.ZIP_BZIP2), "unpack", "neither stored nor deflated"),
    Case("zip-lzma", zipped(("x", bytes(2**25)), method=zipfile.ZIP_LZMA), "unpack", "neither stored nor deflated"),
    Case("tar-bz2", file(lambda: bz2.compress(HONEST)), "unpack", DAMAGED),
    Case("tar-xz", file(lambda: lzma.compress(HONEST), "odd.tar.gz"), "unpack", DAMAGED),
    Case("headers-chained", tar(*[pax(comment="x")] * 200, member()), "unpack", ACCEPTED, lambda found: found == {"x": b""}),
    Case("headers-endless", tar(*[pax(comment="x")] * 2000, member()), "unpack", "headers of more|recursion"),
    Case("header-size", tar(pax(size=2**60), member("x", b"1")), "unpack", "unexpected end|cut short|damaged"),
    Case("header-size-negative", tar(pax(size=-512), member("x", b"1")), "unpack", "damaged|cut short|no end"),
    Case("header-size-negative-first", tar(pax(size=-512), member("x"), member("y", b"1")), "unpack", "damaged|cut short"),
    Case("header-size-text", tar(pax(size="many"), member("x", b"1")), "unpack", "no end of archive"),
    Case("header-path", tar(pax(path="../../evil"), member("x", b"1")), "unpack", r"must not have '\.\.'"),
    Case("header-link", tar(pax(linkpath="/etc/passwd"), member("x", type=tarfile.SYMTYPE)), "unpack", "is a symbolic link"),
    Case("name-long", tar(member("x" * 300, b"1")), "unpack", r"'x+\.\.\.x+': its name is too long for this file system"),
    Case("name-long-zip", zipped(("x" * 5000, b"1")), "unpack", "its name is too long for this file system"),
    Case(
        "name-long-folder", tar(member("x" * 300, type=tarfile.DIRTYPE)), "unpack", "its name is too long for this file system"
    ),
    Case("name-huge", tar(member("x" * 100_000, b"1")), "unpack", "its name is too long for this file system"),
    Case("name-deep", tar(member("x/" * 1500 + "y", b"1")), "unpack", "is more than 64 folders deep"),
    Case("name-deep-zip", zipped(("x/" * 30_000 + "y", b"1")), "unpack", "is more than 64 folders deep"),
    Case("name-absolute", tar(member("/tmp/evil", b"1")), "unpack", "must have a relative name"),
    Case("name-null-zip", zipped(("a\\b", b"1")), "unpack", "must have a relative name"),
    Case("name-escapes", tar(member("\x1b]0;x\x07/..", b"1")), "unpack", r"'\\x1b\]0;x\\x07/\.\.' must not have"),
    Case("name-lines", tar(member("a\nb/../c", b"1")), "unpack", r"'a\\nb/\.\./c' must not have"),
    Case("name-bytes", tar(member("x", b"1").replace(b"x\0", b"\xff\0", 1)), "unpack", DAMAGED),
    Case("name-none", tar(member("", b"1")), "unpack", "is a file without a name"),
    Case("twice", tar(member("x", b"1"), member("./x", b"2")), "unpack", "is there twice"),
    Case("file-then-folder", tar(member("x", b"1"), member("x/y", b"2")), "unpack", "is there twice"),
    Case(
        "symlink", tar(member("x", type=tarfile.SYMTYPE, linkname="/"), member("x/evil", b"1")), "unpack", "is a symbolic link"
    ),
    Case("hard-link", tar(member("x", type=tarfile.LNKTYPE, linkname="/etc/passwd")), "unpack", "is a hard link"),
    Case("device", tar(member("x", type=tarfile.CHRTYPE)), "unpack", "is a device"),
    Case("fifo-inside", tar(member("x", type=tarfile.FIFOTYPE)), "unpack", "is a device"),
    Case("sparse", tar(sparse_header()), "unpack", "is a sparse file"),
    Case("unknown", tar(member("x", b"1", type=b"Z")), "unpack", "of the unknown type"),
    Case("zip-symlink", zipped((unix("x", stat.S_IFLNK | 0o777), b"/etc/passwd")), "unpack", "is a symbolic link"),
    Case("zip-fifo", zipped((unix("x", stat.S_IFIFO | 0o777), b"")), "unpack", "is a device or other special file"),
    Case("cut", file(lambda: HONEST[:700]), "unpack", f"{DAMAGED}|cut short"),
    Case("cut-gz", file(lambda: gzip.compress(HONEST)[:-9], "odd.tar.gz"), "unpack", DAMAGED),
    Case("checksum-gz", file(lambda: flipped(gzip.compress(HONEST), -6), "odd.tar.gz"), "unpack", DAMAGED),
    Case("header-flipped", file(lambda: flipped(HONEST, 1600)), "unpack", "no end of archive where one should be"),
    Case("fifo", special(os.mkfifo), "unpack", "not a regular file"),
    Case("device-file", special(lambda path: path.symlink_to("/dev/zero")), "unpack", "not a regular file"),
    Case("folder", special(Path.mkdir), "unpack", "not a regular file but a folder"),
    Case("dangling", special(lambda path: path.symlink_to("gone")), "unpack", "No such file"),
    Case("empty", file(bytes, "odd.gz"), "unpack", "it is empty"),
]
