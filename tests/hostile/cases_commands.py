"""Hostile files given to whole commands: ``predict``, ``audit`` with predictions, features and decisions, and soft labels."""

import csv
import gzip
import io
import json
import os
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

from noiseproof.data import from_arrays
from noiseproof.train import Recipe, with_noise
from tests.hostile.cases_audit import GIVEN, ROWS, P, npy, packed, sparse
from tests.hostile.cases_own import lying_png
from tests.hostile.cases_predict import arrays, said, written
from tests.hostile.harness import ACCEPTED, Case, RefusedError, command

GOOD = b"1,2,3,4\n"


def run_beside(path: Path, **facts: object) -> Path:
    folder = path.parent / "network"
    folder.mkdir()
    return said(**facts)(folder)


def predicted(path: Path, out: str = "out.csv", **facts: object) -> str:
    place = path.parent / out
    command("predict", run_beside(path, **facts), "--data", path, "--out", place)
    text = place.read_text(encoding="utf-8")
    if not text.replace("\n", "").isprintable():
        raise RefusedError(f"{path.name}: not printable")
    return text


def seen(path: Path) -> str:
    return predicted(path, model="cnn8")


def decided(path: Path) -> str:
    np.savez(path.parent / "mine.npz", x=np.eye(ROWS, dtype=np.float32), y=GIVEN)
    return command("audit", path.parent / "mine.npz", "--decisions", path, "--out", path.parent / "out")


def audited(path: Path, option: str) -> str:
    np.savez(path.parent / "mine.npz", x=np.eye(ROWS, dtype=np.float32), y=GIVEN)
    np.save(path.parent / "good.npy", P)
    rest = () if option == "--probabilities" else ("--probabilities", path.parent / "good.npy")
    return command("audit", path.parent / "mine.npz", option, path, *rest, "--out", path.parent / "out")


def softly(path: Path) -> object:
    dataset = from_arrays(np.eye(ROWS, dtype=np.float32), GIVEN)
    return with_noise(dataset, Recipe(dataset="mine", loss="ce", model="mlp", noise=f"labels:{path}")).soft


def trained(path: Path) -> str:
    return command("train", "jal-ce", "--data", path, "--set", "epochs=1", "--out", path.parent / "runs")


def fifo(name: str):
    def make(folder: Path) -> Path:
        os.mkfifo(folder / name)
        return folder / name

    return make


def link(name: str, to: str):
    def make(folder: Path) -> Path:
        (folder / name).symlink_to(to)
        return folder / name

    return make


def folder(name: str):
    def make(place: Path) -> Path:
        (place / name).mkdir()
        return place / name

    return make


def image(name: str, size: tuple[int, int] = (28, 28), mode: str = "RGB", form: str = "PNG", **options: object):
    def make(place: Path) -> Path:
        Image.new(mode, size).save(place / name, form, **options)
        return place / name

    return make


def frames(place: Path) -> Path:
    many = [Image.new("L", (28, 28), k % 256) for k in range(300)]
    many[0].save(place / "odd.gif", "GIF", save_all=True, append_images=many[1:])
    return place / "odd.gif"


def of_fifos(place: Path) -> Path:
    (place / "odd").mkdir()
    os.mkfifo(place / "odd" / "a.png")
    return place / "odd"


def nested(place: Path) -> Path:
    deep = place.joinpath("odd", *["d"] * 200)
    deep.mkdir(parents=True)
    Image.new("RGB", (28, 28)).save(deep / "a.png")
    return place / "odd"


def with_text(place: Path) -> Path:
    """A PNG with a text that unpacks to half a gigabyte."""
    picture = io.BytesIO()
    Image.new("RGB", (28, 28)).save(picture, "PNG")
    sound = picture.getvalue()
    body = b"zTXtComment\0\0" + zlib.compress(bytes(2**29), 9)
    chunk = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
    (place / "odd.png").write_bytes(sound[:33] + chunk + sound[33:])
    return place / "odd.png"


def soft(p: object = None, given: object = GIVEN, **more: object):
    made = {"posterior": np.asarray(P if p is None else p), "given": np.asarray(given), "classes": np.array(["0", "1"])}
    return arrays(**{name: value for name, value in (made | more).items() if value is not None})


def inert(text: str) -> bool:
    cells = [cell for row in csv.reader(io.StringIO(text)) for cell in row]
    return not [cell for cell in cells if cell.startswith(tuple("=+-@\t\r"))]


ATTEMPTS = {
    "predict": predicted,
    "predict as json": lambda path: predicted(path, "out.json"),
    "see": seen,
    "decide": decided,
    "probabilities": lambda path: audited(path, "--probabilities"),
    "features": lambda path: audited(path, "--features"),
    "labels": lambda path: audited(path, "--labels"),
    "soft": softly,
    "train": trained,
    "audit": lambda path: command("audit", path, "--quick", "--epochs", "1", "--out", path.parent / "out"),
}
HEAD = "index,decision,label\n"
IDS = '"=1+1",1,2,3,4\n"@x",1,2,3,4\n"-2",1,2,3,4\n"+3",1,2,3,4\n'
NO_FILE, NUMBER = "no regular file or folder", r"odd.csv: column '2' (should be a number, got|has no number|has 1e\+39, beyond)"
CASES = [
    Case("predict a sound table", written("odd.csv", GOOD), "predict", ACCEPTED, lambda text: text.count("\n") == 2),
    Case("predict a pipe", fifo("odd.csv"), "predict", NO_FILE),
    Case("predict a folder called table", folder("odd.csv"), "predict", "no images"),
    Case("predict a device", link("odd.csv", "/dev/zero"), "predict", NO_FILE),
    Case("predict a link to itself", link("odd.csv", "odd.csv"), "predict", "no such file or folder"),
    Case("predict a pipe of arrays", fifo("odd.npz"), "predict", NO_FILE),
    *(
        Case(
            f"predict the cell {cell[:8] or 'that is empty'}",
            written("odd.csv", f"1,2,{cell},4\n".encode() + GOOD),
            "predict",
            NUMBER,
        )
        for cell in ("nan", "inf", "1e39", "1e999", "", "1_0", "٣", "0x1g", "=1+1", "\x1b[2J", "9" * 10**6)
    ),
    Case("predict a mark alone", written("odd.csv", b"\xef\xbb\xbf"), "predict", "no row of cells"),
    Case("predict two bytes a letter", written("odd.csv", "1,2,3,4\n".encode("utf-16")), "predict", ACCEPTED),
    Case(
        "predict returns alone",
        written("odd.csv", b"1,2,3,4\r5,6,7,8\r"),
        "predict",
        ACCEPTED,
        lambda text: text.count("\n") == 3,  # a header and two rows
    ),
    Case("predict decimal commas", written("odd.csv", b"1,5;2,5;3,5;4,5\n"), "predict", "should be a number, got '5;2'"),
    Case("predict blanks between", written("odd.csv", b"1 2 3 4\n"), "predict", "no rows|1 columns"),
    Case("predict ten gigabytes", sparse(b"1,2,3,4\n1,"), "predict", r"NUL bytes|10\.0 GiB of memory"),
    Case("predict packed text", written("odd.csv", gzip.compress(GOOD)), "predict", "NUL bytes"),
    Case("predict ids that are formulas", written("odd.csv", f"id,a,b,c,d\n{IDS}".encode()), "predict", ACCEPTED, inert),
    Case("predict ids that command", written("odd.csv", b"id,a,b,c,d\n\x1b[2J\x07,1,2,3,4\n"), "predict", ACCEPTED),
    Case(
        "predict ids that command, as JSON",
        written("odd.csv", b"id,a,b,c,d\n\x1b[2J\xe2\x80\xae,1,2,3,4\n"),
        "predict as json",
        ACCEPTED,
    ),
    Case("predict an id of megabytes", written("odd.csv", b"id,a,b,c,d\n" + b"x" * 2**22 + b",1,2,3,4\n"), "predict", ACCEPTED),
    Case("predict labels of others", written("odd.csv", b"a,b,c,d,label\n1,2,3,4,\x1b[2J\n"), "predict", ACCEPTED),
    Case("predict a header twice", written("odd.csv", b"a,b,c,d\na,b,c,d\n"), "predict", "should be a number, got 'a'"),
    Case(
        "predict two labels",
        written("odd.csv", b"label,label,a,b,c\na,b,1,2,3\n"),
        "predict",
        "column 'label.1' should be a number",
    ),
    *(
        Case(f"predict {name}", arrays(x=value), "predict", says)
        for name, (value, says) in {
            "complex numbers": (np.zeros((2, 4), complex), "plain numbers"),
            "numbers that are not": (np.full((2, 4), np.nan), "must be finite"),
            "infinite halves": (np.full((2, 4), np.inf, np.float16), "must be finite"),
            "no examples": (np.zeros((0, 4)), "no examples"),
            "a row": (np.zeros(4), "must be \\[N, ...\\]"),
            "many columns": (np.zeros((2, 10**6), np.float32), "trained on floating features \\[N, 4\\]"),
            "no columns": (np.zeros((2, 0)), "have nothing in them"),
            "numbers beyond": (np.full((2, 4), 1e300), "within float32"),
            "dates": (np.zeros((2, 4), "M8[s]"), "not a header"),
            "many dimensions": (np.zeros((1,) * 30), "trained on floating features"),
        }.items()
    ),
    Case("predict truths", arrays(x=np.ones((2, 4), bool)), "predict", "plain numbers"),
    Case("predict an image with an MLP", image("odd.png"), "predict", "trained on features"),
    Case("see a sound image", image("odd.png"), "see", ACCEPTED),
    Case("see a grey image", image("odd.png", mode="L"), "see", ACCEPTED),
    Case("see an image of one pixel", image("odd.png", (1, 1)), "see", ACCEPTED),
    Case("see a strip", image("odd.png", (30000, 1)), "see", ACCEPTED),
    Case("see the first of many frames", frames, "see", ACCEPTED),
    Case("see a pipe among images", of_fifos, "see", "not a regular file but a pipe"),
    Case("see a pipe", fifo("odd.png"), "see", NO_FILE),
    Case("see a header that lies", written("odd.png", lying_png(60000, 60000)), "see", "exceeds limit"),
    Case("see a text that unpacks", with_text, "see", "not a readable image"),
    Case("see no image", written("odd.png", b"<svg xmlns='x'/>"), "see", "not an image"),
    Case("see a deep folder", nested, "see", "images are expected directly in"),
    Case("see four colours", image("odd.png", mode="CMYK", form="TIFF"), "see", ACCEPTED),
    Case("see a table", written("odd.csv", GOOD), "see", "odd.csv:1: no file"),
    Case("decide by a pipe", fifo("odd.csv"), "decide", "not a regular file but a pipe"),
    Case("decide by a folder", folder("odd.csv"), "decide", "not a regular file but a folder"),
    *(
        Case(f"decide {name}", written("odd.csv", text.encode()), "decide", says)
        for name, (text, says) in {
            "nothing at all": ("", "no column 'index'"),
            "by a page": ("<html>\n", "no column 'index'"),
            "by JSON": (json.dumps([{"index": 0, "decision": "drop"}]), "no column 'index'"),
            "at two indices": ("index,index,decision\n0,1,drop\n", "two columns are called 'index'"),
            "before the first": (HEAD + "-1,drop,\n", "the index must be a number in \\[0, 11\\]"),
            "at a fraction": (HEAD + "1.0,drop,\n", "the index must be a number in \\[0, 11\\]"),
            "for no label": (HEAD + "1,relabel,\n", "no class is called ''"),
            "for a class that is not": (HEAD + "1,relabel,9\n", "no class is called '9'"),
            "twice": (HEAD + "1,drop,\n1,keep,\n", "a second decision on example 1"),
            "to drop all": (HEAD + "".join(f"{k},drop,\n" for k in range(ROWS)), "every example is dropped"),
            "on other data": ("index,decision,given\n1,drop,7\n", "other data"),
            "nothing, without the column": ("index,path,given,suggested\n0,,0,1\n", "no column 'decision'"),
            "in a million columns": (HEAD.strip() + "," * 10**6 + "\n1,drop\n", "2 fields, and the first line has 1000003"),
            "by a formula": (HEAD + "=1,drop,\n", "the index must be a number in \\[0, 11\\]"),
            "to relabel without a column": ("index,decision\n1,relabel\n", "no column 'label'"),
        }.items()
    ),
    Case("decide nothing", written("odd.csv", HEAD.encode()), "decide", ACCEPTED),
    *(
        Case(f"probabilities {name}", written("odd.csv", text), "probabilities", says)
        for name, (text, says) in {
            "of nothing": (b"", "at least 2 classes"),
            "of comments": (b"# 1,0\n" * 5, "at least 2 classes"),
            "that are not numbers": (b"nan,nan\n" * ROWS, "must be finite"),
            "beyond numbers": (b"1e400,0\n" * ROWS, "must be finite"),
            "of one row": (b"1,0\n", "one label for each row"),
            "of quotes": (b'"1","0"\n' * ROWS, "remove the header line"),
            "of two bytes a letter": ("1,0\n".encode("utf-16"), "not UTF-8"),
            "with a zero byte": (b"1,0\0\n" * ROWS, "not a number"),
            "of many digits": ((b"9" * 10**6 + b",0\n") * 2, "one label for each row"),
            "of a million columns": ((b"0," * 10**6 + b"1\n") * 2, "how 1,000,001 classes of 2 rows are confused"),
        }.items()
    ),
    Case("probabilities of ten gigabytes", sparse(b"1,0\n"), "probabilities", "10737418240 bytes of text, and at most"),
    Case("probabilities of a pipe", fifo("odd.csv"), "probabilities", "not a regular file but a pipe"),
    *(
        Case(f"features {name}", written("odd.npy", npy(value)), "features", says)
        for name, (value, says) in {
            "that are not numbers": (np.full((ROWS, 2), np.nan), "must be finite"),
            "without columns": (np.zeros((ROWS, 0)), "must be numbers \\[12, D\\]"),
            "beyond numbers": (np.full((ROWS, 2), 1e300) * np.array([1, -1]), "within float32"),
            "of others": (np.zeros((ROWS + 1, 2)), "must be numbers \\[12, D\\]"),
            "of one": (np.float64(3), "must be numbers \\[12, D\\]"),
            "complex": (np.zeros((ROWS, 2), complex), "plain numbers"),
        }.items()
    ),
    Case("features that are all one", written("odd.npy", npy(np.zeros((ROWS, 2)))), "features", ACCEPTED),
    Case("features infinite", written("odd.npy", npy(np.full((ROWS, 2), np.inf))), "features", "must be finite"),
    Case("features of text", written("odd.csv", b"1,2\n"), "features", "features are read from .npy, .npz"),
    Case("labels beyond", written("odd.npy", npy(np.full(ROWS, 9))), "labels", r"labels must be in \[0, 1\]"),
    Case("labels below", written("odd.npy", npy(np.full(ROWS, -1))), "labels", "must not be negative"),
    Case("labels of none", written("odd.npy", npy(np.zeros(0, int))), "labels", "no labels in it"),
    *(
        Case(f"{attempt} {name}", make, attempt, says)
        for attempt in ("train", "audit")
        for name, (make, says) in {
            "one example": (written("odd.csv", b"a,label\n1,cat\n"), "all examples are of one class, 'cat'"),
            "one class": (written("odd.csv", b"a,label\n" + b"1,cat\n" * 9), "all examples are of one class, 'cat'"),
            "a class for each example": (
                written("odd.csv", b"a,label\n" + b"".join(b"%d.5,x%d\n" % (k % 99, k) for k in range(20_000))),
                "20000 classes for 20000 examples: are these the labels",
            ),
            "an array of one class": (arrays(x=np.ones((9, 2)), y=np.zeros(9, int)), "all examples are of one class, '0'"),
            "an array of a class beyond many": (
                arrays(x=np.ones((9, 2)), y=np.arange(9) * 99_999),
                "799993 classes for 9 examples",
            ),
        }.items()
    ),
    Case("soft", soft(), "soft", ACCEPTED, lambda p: p.shape == P.shape),
    Case("soft of classes that command", soft(classes=np.array(["\x1b[2J", "\ud800"])), "soft", ACCEPTED),
    Case("soft of classes of megabytes", soft(classes=np.array(["x" * 900_000, ""])), "soft", ACCEPTED),
    *(
        Case(f"soft {name}", make, "soft", says)
        for name, (make, says) in {
            "that do not sum to 1": (soft(P * 2), "sum to 1 in each row"),
            "that are not numbers": (soft(P * np.nan), "sum to 1 in each row"),
            "below 0": (soft(P - 1), "sum to 1 in each row"),
            "of objects": (soft(np.array([[None, 1.0]] * ROWS, object)), "plain numbers"),
            "of more classes": (soft(np.full((ROWS, 3), 1 / 3)), "must be probabilities \\[12, 2\\]"),
            "of others": (soft(P[1:]), "must be probabilities \\[12, 2\\]"),
            "of a row": (soft(P[:, 0]), "must be probabilities \\[12, 2\\]"),
            "that overflow": (soft(P * 1e300), "sum to 1 in each row"),
            "complex": (soft(P.astype(complex)), "plain numbers"),
            "given others": (soft(given=GIVEN[1:]), "'given' must be 12 labels"),
            "given beyond": (soft(given=GIVEN + 9), "'given' must be 12 labels"),
            "given fractions": (soft(given=GIVEN + 0.5), "whole numbers"),
            "given as text": (soft(given=GIVEN.astype(str)), "plain numbers"),
            "of classes that are objects": (
                soft(classes=np.array(["0", "1"], object)),
                "text of a fixed width, .* got dtype '.O'",
            ),
            "of classes that are numbers": (soft(classes=np.arange(2)), "text of a fixed width"),
            "of classes that are bytes": (soft(classes=np.array([b"0", b"1"])), "text of a fixed width"),
            "of a class too many": (soft(classes=np.array(["0", "1", "2"])), "it must hold 2 words, got shape .3,."),
            "of a million classes": (soft(classes=np.full(10**6, "x")), "it must hold 2 words, got shape"),
            "of a table of classes": (soft(classes=np.array([["0", "1"]])), "it must hold 2 words, got shape .1, 2."),
            "of classes beyond all letters": (
                soft(classes=np.array([0x110000, 1], np.uint32).view("<U1")),
                "no text: a code point is beyond 1114111",
            ),
            "that promise more": (
                packed(
                    b"\x93NUMPY\x01\x00v\x00"
                    + b"{'descr': '<f8', 'fortran_order': False, 'shape': (9999, 2), }".ljust(117)
                    + b"\n"
                ),
                "bytes expected",
            ),
            "in a pipe": (fifo("odd.npz"), "no label file"),
        }.items()
    ),
]
