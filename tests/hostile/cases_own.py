"""Hostile data of one's own: lists with headers and names, small image files, and floats that look like images."""

import io
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

from noiseproof.data import open_dataset
from noiseproof.train import own_recipe, with_noise
from tests.hostile.harness import ACCEPTED, Case


def listed(*lines: str | bytes):
    """A list beside the image a.png."""

    def make(folder: Path) -> Path:
        (folder / "a.png").write_bytes(png())
        (folder / "list.csv").write_bytes(b"\n".join(line.encode() if isinstance(line, str) else line for line in lines))
        return folder / "list.csv"

    return make


def png() -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (28, 28), dtype=np.uint8)).save(file, "PNG")
    return file.getvalue()


def lying_png(width: int, height: int) -> bytes:
    """A header that promises other pixels than there are."""
    head = b"IHDR" + width.to_bytes(4, "big") + height.to_bytes(4, "big") + png()[24:29]
    return png()[:12] + head + zlib.crc32(head).to_bytes(4, "big") + png()[33:]


def folder_of(*contents: bytes):
    def make(folder: Path) -> Path:
        for k, content in enumerate(contents):
            (folder / "images" / f"class{k}").mkdir(parents=True)
            (folder / "images" / f"class{k}" / "a.png").write_bytes(content)
        return folder / "images"

    return make


def floats(shape: tuple[int, ...]):
    def make(folder: Path) -> Path:
        np.savez(folder / "x.npz", x=np.zeros(shape, np.float32), y=np.arange(shape[0]) % 2)
        return folder / "x.npz"

    return make


def prepared(path: Path) -> object:
    dataset = open_dataset(path)
    return with_noise(dataset, own_recipe(dataset, str(path), "ce", seed=1, gpu=False))


ATTEMPTS = {"own": prepared}
WHOLE = r"list\.csv:2: should be a path and a whole number"
CASES = [
    Case("a header and names", listed("path,label", "a.png,cat", "a.png,dog"), "own", ACCEPTED),
    Case("a header with a million columns", listed("path,label" + ",x" * 10**6, "a.png,0"), "own", r"columns, at most 100000"),
    Case("a field of megabytes", listed("path,label", "a" * 2**22 + ",0"), "own", r"list\.csv:2: no file .*a{80}"),
    Case("a first field of megabytes", listed("a" * 2**22 + ",0"), "own", r"list\.csv: all examples are of one class"),
    Case("a quote that is not closed", listed("path,label", '"a.png,0'), "own", r"list\.csv:2: unexpected end of data"),
    Case("a zero byte in a header", listed("path,la\0bel", "a.png,0"), "own", r"NUL bytes"),
    Case("a header alone", listed("path,label"), "own", r"list\.csv: no images listed"),
    Case(
        "a header twice", listed("path,label", "path,label", "a.png,0"), "own", r"list\.csv:3: the first line's label is a name"
    ),
    Case("a line end within a line", listed("path,label", "a.png\r,0"), "own", r"list\.csv:2: new-line character"),
    *(
        Case(f"the label {label}", listed("path,label", f"a.png,{label}"), "own", WHOLE)
        for label in ("1.0", "nan", "inf", "1e999", "+1", "1_0", "٣", "9" * 19)
    ),
    Case("a negative label", listed("path,label", "a.png,-1"), "own", r"list\.csv:2: labels must be in \[0, 1048575\], got -1"),
    Case("names, then a number", listed("a.png cat", "a.png 1"), "own", r"list\.csv:2: the first line's label is a name"),
    Case("a number, then a name", listed("a.png 1", "a.png cat"), "own", WHOLE),
    Case("a small image cut short", folder_of(png(), png()[:400]), "own", r"class1/a\.png: "),
    Case("a small image that promises more lines", folder_of(png(), lying_png(28, 64)), "own", ACCEPTED),
    Case("floats that look like images", floats((4, 3, 32, 32)), "own", r"x\.npz: floating inputs .* look like images"),
    Case("features of many dimensions", floats((4, *[1] * 20)), "own", ACCEPTED),
]
