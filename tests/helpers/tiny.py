"""A data set of one archive, on a server on this machine that can be told to misbehave, and a call that fetches it."""

import io
import random
import tarfile

from noiseproof.paper.datasets import DownloadSource, RemoteFile, fetch
from tests.helpers.misbehaving import md5, sha256

PAGE = "http://localhost/about"
MEMBER = random.Random(0).randbytes(700_000)
DONE = ["tiny-bin", "tiny.tar.gz"]


def packed(*members):
    """An archive of members: a TarInfo, or a name and its bytes."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as tar:
        for member in members:
            entry, content = (member, b"") if isinstance(member, tarfile.TarInfo) else (tarfile.TarInfo(member[0]), member[1])
            entry.size = len(content) or entry.size
            tar.addfile(entry, io.BytesIO(content))
    return raw.getvalue()


CONTENT = packed(("tiny-bin/data.bin", MEMBER))


def source(address, content=CONTENT, path="/tiny.tar.gz", **options):
    return DownloadSource(
        (RemoteFile(address + path, sha256(content)),), "tiny-bin", PAGE, {"data.bin": md5(MEMBER)}, **options
    )


def get(server, root, found=None, **options):
    return fetch(found or source(server.address), root, **options)


def names(folder):
    return sorted(path.name for path in folder.iterdir())
