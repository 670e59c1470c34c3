"""A data set of one archive, on a server on this machine that can be told to misbehave, and a call that fetches it."""

import io
import random
import tarfile

from noiseproof.data import download as downloads
from noiseproof.data.fetch import fetch
from noiseproof.data.known import RemoteFile, Source
from tests.helpers.misbehaving import md5, sha256

PAGE = "http://localhost/about"
MEMBER = random.Random(0).randbytes(700_000)  # more than four times what gzip reads ahead


def _archive():
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as tar:
        entry = tarfile.TarInfo("tiny-bin/data.bin")
        entry.size = len(MEMBER)
        tar.addfile(entry, io.BytesIO(MEMBER))
    return raw.getvalue()


CONTENT = _archive()
CUT = 6 * downloads.CHUNK
DONE = ["tiny-bin", "tiny.tar.gz"]


def sources(address, content=CONTENT, path="/tiny.tar.gz", **options):
    file = RemoteFile(address + path, md5(content), sha256(content))
    return {"tiny": Source((file,), "tiny-bin", PAGE, {"data.bin": md5(MEMBER)}, **options)}


def get(server, root, **options):
    options = {"sources": sources(server.address), "pause": 0.0, "timeout": (2.0, 2.0)} | options
    return fetch("tiny", root, **options)


def names(folder):
    return sorted(path.name for path in folder.iterdir())
