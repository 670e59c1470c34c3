"""Hostile input of audits: tables, predictions, features and decisions, and names that a page or a spreadsheet would run."""

import csv
import io
import os
import zipfile
from pathlib import Path

import numpy as np

from noiseproof.audit.decisions import read_decisions
from noiseproof.data import open_dataset
from noiseproof.noise import from_file
from tests.hostile.harness import ACCEPTED, Case, RefusedError, command

ROWS = 12
GIVEN = np.arange(ROWS) % 2
P = np.where(np.eye(2)[GIVEN] > 0, 0.9, 0.1)


def written(*lines: str | bytes, file: str = "t.csv"):
    def make(folder: Path) -> Path:
        (folder / file).write_bytes(b"\n".join(line.encode() if isinstance(line, str) else line for line in lines))
        return folder / file

    return make


def rows(last: str, head: str = "a,b,label"):
    """Forty rows of numbers, and one more."""
    return written(head, *["1,2,cat", "3,4,dog"] * 20, last)


def finite(data) -> bool:
    return bool(np.isfinite(data.train.inputs).all())


def gap(data) -> bool:
    """Whether the missing number of the last row is marked, and nothing else."""
    names = data.table.encoder.feature_names
    return finite(data) and data.train.inputs[:, names.index("b missing")].nonzero()[0].tolist() == [40]


def sparse(start: bytes, size: int = 10 * 2**30):
    """A file that goes on, without a line end, for gigabytes that are not on the disk."""

    def make(folder: Path) -> Path:
        (folder / "t.csv").write_bytes(start)
        os.truncate(folder / "t.csv", size)
        return folder / "t.csv"

    return make


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def lying(shape: str) -> bytes:
    """The header of another array than the numbers that follow."""
    return npy(P.astype("<f8")).replace(b"(12, 2)", shape.encode().ljust(7), 1) if len(shape) <= 7 else b""


def packed(content: bytes, method: int = zipfile.ZIP_DEFLATED):
    def make(folder: Path) -> Path:
        with zipfile.ZipFile(folder / "p.npz", "w", method) as archive:
            archive.writestr("p.npy", content)
        return folder / "p.npz"

    return make


def bomb(folder: Path) -> Path:
    """Half a gigabyte of zeros in half a megabyte."""
    with zipfile.ZipFile(folder / "p.npz", "w", zipfile.ZIP_DEFLATED) as archive, archive.open("p.npy", "w") as member:
        member.write(
            b"\x93NUMPY\x01\x00v\x00"
            + f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({2**25}, 2), }}".ljust(117).encode()
            + b"\n"
        )
        for _ in range(2**9):
            member.write(bytes(2**20))
    return folder / "p.npz"


def audited(path: Path, option: str = "--probabilities") -> str:
    np.savez(path.parent / "mine.npz", x=np.eye(ROWS, dtype=np.float32), y=GIVEN)
    return command("audit", path.parent / "mine.npz", option, path, "--out", path.parent / "out")


def with_names(path: Path) -> tuple[str, str]:
    """The page and the table of an audit of names that a table has."""
    np.save(path.parent / "p.npy", P)
    printed = command("audit", path, "--probabilities", path.parent / "p.npy", "--out", path.parent / "out")
    if not printed.replace("\n", "").isprintable():
        raise RefusedError(f"{path.name}: not printable")
    return tuple((path.parent / "out" / name).read_text(encoding="utf-8") for name in ("audit.html", "audit.csv"))


def harmless(files: tuple[str, str]) -> bool:
    page, table = files
    cells = [cell for row in csv.reader(io.StringIO(table)) for cell in row]
    text = page.translate(dict.fromkeys(map(ord, "\n\t\u00a0")))  # the last between a number and its percent sign
    inert = page.count("<script") == 1 and "<img src=x" not in page and text.isprintable()
    return inert and not [cell for cell in cells if cell.startswith(tuple("=+-@\t\r")) or not cell.isprintable()]


def named(*names: str):
    rows = (f'"{name}",{k},"{name}{k % 2}"' for k, name in zip(range(ROWS), names * ROWS, strict=False))
    return written("id,a,label", *rows)


ATTEMPTS = {
    "table": open_dataset,
    "predictions": audited,
    "features": lambda path: audited(path, "--features"),
    "decisions": lambda path: read_decisions(path, GIVEN, ("0", "1")),
    "names": with_names,
    "matrix": from_file,
}
HEAD, ROW = "a,b,label", "1,2,cat"
NUMBER = r"t\.csv: column 'b' is a column of numbers, except .* in row 41"
SIZE = "bytes expected"
CORNER, MATRIX = "true \\ given,a,b", r"t\.csv: no transition matrix: "
CASES = [
    Case("a sound matrix", written(CORNER, "a,0.9,0.1", "b,0,1"), "matrix", ACCEPTED, lambda noise: noise.matrix[0, 0] == 0.9),
    *(
        Case(f"a matrix with {what}", written(CORNER, *rows), "matrix", MATRIX + says)
        for what, rows, says in (
            ("other names", ("a,0.9,0.1", "c,0,1"), "its rows and its columns must have the same names"),
            ("a row missing", ("a,0.9,0.1",), "its rows and its columns must have the same names"),
            ("text", ("a,0.9,0.1", "b,0,=1+1"), "not numbers after the name 'b'"),
            ("nan", ("a,0.9,0.1", "b,nan,1"), "a transition matrix must hold probabilities"),
            ("rows that sum to 2", ("a,1,1", "b,0,1"), "rows of a transition matrix must sum to 1"),
            ("nothing below", (), "its rows and its columns must have the same names"),
        )
    ),
    Case("a sound table", written(HEAD, ROW, "3,4,dog"), "table", ACCEPTED, lambda data: len(data.train) == 2),
    Case("a line of ten gigabytes", sparse(b"a,b,label\n1,2,cat\n1,"), "table", r"NUL bytes|10\.0 GiB of memory"),
    Case("ten gigabytes of nothing", sparse(b""), "table", r"NUL bytes|10\.0 GiB of memory"),
    Case("a zero byte", written(HEAD, ROW, b"1,\x002,cat"), "table", "NUL bytes"),
    Case("another encoding", written(HEAD, ROW, b"3,4,ch\xe2t"), "table", ACCEPTED, lambda data: "chât" in data.classes),
    Case("a row that is short", written(HEAD, ROW, "1,cat"), "table", r"t\.csv:3: 2 cells, and there are 3 columns"),
    Case(
        "a row that is long",
        written(HEAD, ROW, "1,2,3,cat"),
        "table",
        r"t\.csv:3: 4 cells, and there are 3 columns: 'cat' is beyond the last",
    ),
    Case("a quote that is not closed", written(HEAD, ROW, '3,4,"dog'), "table", ACCEPTED, lambda data: len(data.train) == 2),
    Case(
        "a quote over two lines", written(HEAD, ROW, '3,4,"c', 'at"'), "table", ACCEPTED, lambda data: "c\nat" in data.classes
    ),
    Case("a number beyond float32", written(HEAD, ROW, "1,1e39,dog"), "table", ACCEPTED, finite),
    Case("a number beyond float64", written(HEAD, ROW, "3,1e999,dog"), "table", ACCEPTED, finite),
    Case("numbers whose sum overflows", written(HEAD, ROW, "1e308,1e308,dog"), "table", "beyond 3.4e38"),
    Case("a number of a megabyte", rows(f"1,{'9' * 2**20},dog"), "table", ACCEPTED, finite),
    *(
        Case(f"the number {text or 'that is missing'}", rows(f"1,{text},dog"), "table", ACCEPTED, gap)
        for text in ("nan", "inf", "-Infinity", "", "NA", "?")
    ),
    *(
        Case(f"the number {text}", rows(f"1,{text},dog"), "table", NUMBER)
        for text in ("1_0", "٣", "1e", "--1", "1 2", "=1+1", "True")
    ),
    Case("a label of a megabyte", written(HEAD, ROW, f"3,4,{'x' * 2**20}"), "table", ACCEPTED),
    Case("a label beyond any class", written(HEAD, "1,2,0", f"3,4,{'9' * 18}"), "table", ACCEPTED),
    Case("a label of many digits", written(HEAD, "1,2,0", f"3,4,{'9' * 40}"), "table", "must be classes, got the number 1e"),
    Case("a million columns", written("a," * 10**6 + "label", "1," * 10**6 + "cat"), "table", "columns, at most 100000"),
    Case(
        "a header with control characters",
        rows("1,x,cat", head="a,\x1b[2J,label"),
        "table",
        r"column '\\x1b\[2J' is a column of numbers, except 'x' in row 41",
    ),
    Case("many rows", written(HEAD, *["1,2,0", "3,4,1"] * 10**5), "table", ACCEPTED),
    Case("a header twice", rows(HEAD), "table", r"column 'a' is a column of numbers, except 'a' in row 41"),
    Case(
        "labels that are empty",
        written(HEAD, "1,2,", "1,2,"),
        "table",
        "2 of 2 rows have no label in column 'label', the first is",
    ),
    Case(
        "names of three classes for predictions of two",
        written("id,a,label", *(f"{k},{k * 7 % 5},{k % 3}" for k in range(ROWS))),
        "names",
        "2 columns, and the data have 3 classes",
    ),
    Case("sound predictions", written(npy(P), file="p.npy"), "predictions", ACCEPTED),
    Case("predictions that promise more", written(lying("(99, 2)"), file="p.npy"), "predictions", SIZE),
    Case("predictions that promise a tebibyte", written(lying("(9**99,)"[:7]), file="p.npy"), "predictions", "not a header"),
    Case("packed predictions that lie", packed(lying("(99, 2)")), "predictions", SIZE),
    Case("predictions that unpack to half a gigabyte", bomb, "predictions", r"unpacks to \d+ bytes"),
    Case("predictions of objects", written(npy(np.array([[None]], object)), file="p.npy"), "predictions", "plain numbers"),
    Case("predictions of nan", written(npy(P * np.nan), file="p.npy"), "predictions", "must be finite"),
    Case("predictions below 0", written(npy(np.array([[2.0, -1.0]] * ROWS)), file="p.npy"), "predictions", "at least 0"),
    Case("predictions of a thousand classes", written(npy(np.full((ROWS, 1000), 1e-3)), file="p.npy"), "predictions", ACCEPTED),
    Case("predictions of no class", written(npy(np.zeros((ROWS, 0))), file="p.npy"), "predictions", "at least 2 classes"),
    Case("predictions as a picture", written(npy(np.zeros((ROWS, 2, 2))), file="p.npy"), "predictions", "must be \\[N, K\\]"),
    Case("predictions with a header", written("cat,dog", "1,0", file="p.csv"), "predictions", "remove the header line"),
    Case("predictions in ragged rows", written("1,0", "1", file="p.csv"), "predictions", "not a table of numbers"),
    Case(
        "a pipe of predictions", lambda folder: os.mkfifo(folder / "p.npy") or folder / "p.npy", "predictions", "not a regular"
    ),
    Case("features that promise more", written(lying("(99, 2)"), file="f.npy"), "features", SIZE),
    Case("decisions", written("index,decision,label", "3,relabel,0", "1,drop,"), "decisions", ACCEPTED),
    Case("a decision on what is not there", written("index,decision", f"{10**30},drop"), "decisions", "the index must be"),
    Case("a decision at a unicode digit", written("index,decision", "٣,drop"), "decisions", "the index must be"),
    Case("a decision without an index", written("index,decision", ",drop"), "decisions", "the index must be"),
    Case("decisions without a header", written("3,relabel,0"), "decisions", r"t\.csv: no column 'index'"),
    Case("decisions in a line of gigabytes", sparse(b"index,decision\n1,"), "decisions", r"t\.csv:2: a line of more than"),
    Case("an unknown decision", written("index,decision", "1,\x1b[2J"), "decisions", r"got '\\\\x1b\[2j'"),
    *(
        Case(f"names that {what}", named(name), "names", ACCEPTED, harmless)
        for what, name in {
            "are formulas": "=HYPERLINK(1)",
            "call": "@SUM(1)",
            "subtract": "-2+3",
            "add": "+x",
            "are scripts": "</option></script><script>alert(1)</script><img src=x onerror=alert(1)>",
            "quote": "' onmouseover='x' ",
            "command": "\x1b]0;x\x07\x1b[2J",
            "turn": "\u202egnp.\u2066",
        }.items()
    ),
]
