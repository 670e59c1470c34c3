"""Hostile tables: files that are cut, changed or of another kind, odd contents in every format, and bombs."""

import gzip
import io
import json
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as parquet

from noiseproof.data import open_dataset
from tests.hostile.harness import ACCEPTED, Case, command

ROWS = 40
MANY = 10**6
GIB = 2**30


def usual() -> dict[str, list[object]]:
    draw = np.random.default_rng(0)
    return {
        "age": draw.normal(40, 9, ROWS).round(1).tolist(),
        "plan": ["basic", "pro", None, "plus"] * (ROWS // 4),
        "note": [f"the parcel of customer {k} came late" for k in range(ROWS)],
        "y": ["no", "yes"] * (ROWS // 2),
    }


def as_csv(columns: Mapping[str, list[object]], separator: str = ",") -> bytes:
    lines = [separator.join(columns)]
    lines += [separator.join("" if one is None else str(one) for one in row) for row in zip(*columns.values(), strict=True)]
    return ("\n".join(lines) + "\n").encode()


def as_parquet(table: pa.Table, **options: object) -> bytes:
    file = io.BytesIO()
    parquet.write_table(table, file, **options)
    return file.getvalue()


def as_feather(table: pa.Table, **options: object) -> bytes:
    file = io.BytesIO()
    feather.write_feather(table, file, **options)
    return file.getvalue()


def as_lines(columns: Mapping[str, list[object]]) -> bytes:
    rows = zip(*columns.values(), strict=True)
    return "".join(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows).encode()


def written(format_name: str, columns: Mapping[str, list[object]]) -> bytes:
    if format_name in ("csv", "tsv", "csv.gz"):
        text = as_csv(columns, "\t" if format_name == "tsv" else ",")
        return gzip.compress(text, mtime=0) if format_name == "csv.gz" else text
    if format_name == "jsonl":
        return as_lines(columns)
    return (as_parquet if format_name == "parquet" else as_feather)(pa.table(dict(columns)))


FORMATS = ("csv", "csv.gz", "parquet", "feather", "jsonl")
BINARY = ("parquet", "feather")


def file(name: str, content: Callable[[], bytes] | bytes):
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(content if isinstance(content, bytes) else content())
        return folder / name

    return make


def changed(format_name: str, change: Callable[[bytes], bytes]):
    return file(f"t.{format_name}", lambda: change(written(format_name, usual())))


def flipped(position: float) -> Callable[[bytes], bytes]:
    def change(content: bytes) -> bytes:
        at = int(position * (len(content) - 1))
        return content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :]

    return change


def opened(path: Path) -> object:
    return open_dataset(path, label="y")


def trained(path: Path) -> object:
    """Through the command line, whose status is 2 and whose error is one sentence."""
    return command("train", "ce", "--data", path, "--label", "y", "--dry-run")


ATTEMPTS = {"open": opened, "train": trained}

BROKEN: dict[str, Callable[[bytes], bytes]] = {
    "nothing in it": lambda content: b"",
    "its first byte": lambda content: content[:1],
    "a quarter of it": lambda content: content[: len(content) // 4],
    "its half": lambda content: content[: len(content) // 2],
    "all but a byte": lambda content: content[:-1],
    "its end": lambda content: content[len(content) // 2 :],
    "a tail of noise": lambda content: content + bytes(range(256)) * 9,
    "zero bytes": lambda content: bytes(len(content)),
    "noise": lambda content: np.random.default_rng(0).bytes(len(content)),
    "twice": lambda content: content * 2,
}
CHANGED = [
    Case(f"{name} of {form}", changed(form, change), "open", r"", either=True)
    for form in FORMATS
    for name, change in BROKEN.items()
]
FLIPPED = [
    Case(f"a flipped byte at {k} of 24 of {form}", changed(form, flipped(k / 24)), "open", r"", either=True)
    for form in FORMATS[1:]
    for k in range(25)
]


def table_of(values: object, kind: pa.DataType | None = None, name: str = "a") -> pa.Table:
    return pa.table({name: pa.array(values, kind), "age": usual()["age"], "y": usual()["y"]})


def named(*names: str) -> pa.Table:
    """Columns of which some have one name; those called y are labels."""
    return pa.Table.from_arrays(
        [pa.array([0, 1] * 20) if name == "y" else pa.array([1.0, 2.5] * 20) for name in names], list(names)
    )


def dictionary_beyond() -> pa.Table:
    """Categories whose numbers are beyond the categories."""
    codes = pa.array([7, -3] * (ROWS // 2), pa.int32())
    return table_of(pa.DictionaryArray.from_arrays(codes, pa.array(["a", "b"]), safe=False))


TYPES: dict[str, tuple[Callable[[], pa.Table], object]] = {
    "structs": (lambda: table_of([{"b": k} for k in range(ROWS)]), r"column 'a' is nested"),
    "lists of structs": (lambda: table_of([[{"b": k}] for k in range(ROWS)]), r"column 'a' contains lists"),
    "maps": (lambda: table_of([[("k", 1)]] * ROWS, pa.map_(pa.string(), pa.int64())), r"column 'a' is nested"),
    "lists of lists": (lambda: table_of([[[1.0], [2.0]]] * ROWS), r"column 'a'"),
    "lists of texts": (lambda: table_of([["a", "b"]] * ROWS), r"column 'a'"),
    "vectors of several lengths": (lambda: table_of([[1.0] * (1 + k % 3) for k in range(ROWS)]), r"column 'a' has vectors of"),
    "vectors with gaps": (lambda: table_of([[1.0, 2.0 + k] if k % 3 else None for k in range(ROWS)]), ACCEPTED),
    "vectors with gaps inside": (lambda: table_of([[1.0 * k, None if k % 7 else 2.0] for k in range(ROWS)]), ACCEPTED),
    "empty vectors": (lambda: table_of([[]] * ROWS, pa.list_(pa.float32())), r"column 'a'"),
    "decimals": (lambda: table_of(list(range(ROWS)), pa.decimal128(20, 2)), ACCEPTED),
    "times": (lambda: table_of(list(range(ROWS)), pa.time32("s")), ACCEPTED),
    "durations": (lambda: table_of(list(range(ROWS)), pa.duration("s")), ACCEPTED),
    "dates": (lambda: table_of(list(range(ROWS)), pa.date32()), ACCEPTED),
    "dates beyond all calendars": (lambda: table_of([2**62 + k for k in range(ROWS)], pa.timestamp("us")), r""),
    "dates with a zone": (lambda: table_of([k * 10**9 for k in range(ROWS)], pa.timestamp("ns", "Asia/Tokyo")), ACCEPTED),
    "bytes": (lambda: table_of([bytes([k, 255]) for k in range(ROWS)]), r"column 'a'"),
    "half floats": (lambda: table_of(np.arange(ROWS, dtype=np.float16)), ACCEPTED),
    "whole numbers beyond floats": (lambda: table_of([2**64 - 1 - k for k in range(ROWS)], pa.uint64()), ACCEPTED),
    "infinities": (lambda: table_of([float("inf"), -float("inf"), 1.0, 2.0] * (ROWS // 4)), ACCEPTED),
    "numbers near the largest": (lambda: table_of([1e308, -1e308, 0.5, 1.5] * (ROWS // 4)), ACCEPTED),
    "nothing but gaps": (lambda: table_of([None] * ROWS), ACCEPTED),
    "categories": (lambda: table_of(pa.array(["a", "b"] * (ROWS // 2)).dictionary_encode()), ACCEPTED),
    "categories that are numbers": (lambda: table_of(pa.array([3, 4] * (ROWS // 2)).dictionary_encode()), ACCEPTED),
    "categories beyond the categories": (dictionary_beyond, r""),
    "two columns of one name": (lambda: named("a", "a", "y"), ACCEPTED),
    "two columns of labels": (lambda: named("a", "y", "y"), ACCEPTED),
    "a name of nothing": (lambda: table_of([1.5, 2.5] * 20, name=""), ACCEPTED),
    "a name of a megabyte": (lambda: table_of([1.5, 2.5] * 20, name="n" * MANY), ACCEPTED),
    "a name that is a formula": (lambda: table_of([1.5, 2.5] * 20, name="=1+1"), ACCEPTED),
    "a name of two lines": (lambda: table_of([[{"b": 1}]] * ROWS, name="a\nb\x1b[31m"), r"column 'a.*nb.*x1b.*contains lists"),
    "no rows": (lambda: pa.table({"a": [1.5], "y": ["x"]}).slice(0, 0), r"has no rows"),
    "no columns": (lambda: pa.table({}), r""),
    "labels alone": (lambda: pa.table({"y": usual()["y"]}), r"no column beside the labels"),
    "one row": (lambda: pa.table({"a": [1.5], "y": ["x"]}), r"one class"),
    "labels with fractions": (lambda: pa.table({"a": usual()["age"], "y": usual()["age"]}), r"regression target"),
    "labels that are all gaps": (
        lambda: pa.table({"a": usual()["age"], "y": pa.nulls(ROWS, pa.string())}),
        r"no label|have no label",
    ),
    "labels that are vectors": (lambda: pa.table({"a": usual()["age"], "y": [[1, 2]] * ROWS}), r"column 'y'"),
    "labels that are dates": (lambda: pa.table({"a": usual()["age"], "y": pa.array([0, 1] * 20, pa.date32())}), ACCEPTED),
    "labels that are all different": (lambda: pa.table({"a": usual()["age"], "y": [f"c{k}" for k in range(ROWS)]}), ACCEPTED),
    "a label of a megabyte": (lambda: pa.table({"a": usual()["age"], "y": ["n" * MANY, "m"] * 20}), ACCEPTED),
    "control characters in labels": (lambda: pa.table({"a": usual()["age"], "y": ["a\x1b[2J", "b\n"] * 20}), ACCEPTED),
    "texts that are no Unicode": (lambda: table_of(pa.array([b"\xff\xfe\xfa"] * ROWS).view(pa.string())), r""),
}
TYPED = [
    Case(
        f"{name} in {form}",
        file(f"t.{form}", lambda make=make, save=save: save(make())),
        "open",
        expected,
        either=expected == r"",
    )
    for name, (make, expected) in TYPES.items()
    for form, save in (("parquet", as_parquet), ("feather", as_feather))
]

OTHERS = {
    "parquet": b"PAR1",
    "feather": b"ARROW1\0\0",
    "image": b"\x89PNG\r\n\x1a\n" + bytes(99),
    "zip": b"PK\x03\x04" + bytes(99),
}
MISTAKEN = [
    Case(f"{what} called {form}", file(f"t.{form}", content), "open", r"", either=form == "csv")
    for form in ("parquet", "feather", "jsonl", "csv")
    for what, content in {**OTHERS, "a pickle": pickle.dumps({"y": [1]}), "a CSV": as_csv(usual())}.items()
]

LINES: dict[str, tuple[bytes, object]] = {
    "numbers, then texts": (b'{"a": 1, "y": 0}\n' * 9 + b'{"a": "x", "y": 1}\n', r"column|t\.jsonl"),
    "objects, then numbers": (b'{"a": {"b": 1}, "y": 0}\n{"a": 1, "y": 1}\n', r"t\.jsonl"),
    "one array": (b'[{"a": 1, "y": 0}, {"a": 2, "y": 1}]', r"t\.jsonl"),
    "an object over several lines": (b'{"a": 1,\n"y": 0}\n{"a": 2,\n "y": 1}\n', ACCEPTED),
    "several keys of one name": (b'{"a": 1, "a": 2, "y": 0}\n{"a": 1, "a": 3, "y": 1}\n', r"t\.jsonl"),
    "other keys in every row": (b"".join(b'{"k%d": 1.5, "y": %d}\n' % (k, k % 2) for k in range(40)), ACCEPTED),
    "blank lines": (b'{"a": 1.5, "y": 0}\n\n\n{"a": 2, "y": 1}\n\n', ACCEPTED),
    "words that are no JSON": (b'{"a": NaN, "y": 0}\n{"a": Infinity, "y": 1}\n', r"t\.jsonl"),
    "quotes of Python": (b"{'a': 1, 'y': 0}\n", r"t\.jsonl"),
    "a mark at the beginning": (b'\xef\xbb\xbf{"a": 1.5, "y": 0}\n{"a": 2, "y": 1}\n', ACCEPTED),
    "two bytes a character": ('{"a": 1.5, "y": 0}\n{"a": 2, "y": 1}\n'.encode("utf-16"), r"t\.jsonl"),
    "Latin-1": ('{"a": "é", "y": 0}\n{"a": "ü", "y": 1}\n'.encode("latin-1"), r"t\.jsonl"),
    "deep nesting": (b'{"a": ' + b"[" * 10**5 + b"]" * 10**5 + b', "y": 0}\n', r"t\.jsonl"),
    "deep objects": (b'{"a": ' + b'{"a": ' * 10**4 + b"1" + b"}" * 10**4 + b', "y": 0}\n', r"t\.jsonl"),
    "half a surrogate": (b'{"a": "\\ud800", "y": 0}\n{"a": "x", "y": 1}\n', r"t\.jsonl"),
    "a zero character": (b'{"a": "\\u0000x", "y": 0}\n{"a": "x", "y": 1}\n' * 20, ACCEPTED),
    "digits without end": (b'{"a": 1' + b"0" * 10**6 + b', "y": 0}\n{"a": 2, "y": 1}\n', ACCEPTED),
    "a string that is not closed": (b'{"a": "' + b"x" * 10**6, r"t\.jsonl"),
    "values that are no rows": (b"1\n2\n3\n", r"t\.jsonl"),
    "rows of nothing": (b"{}\n{}\n", r"t\.jsonl"),
    "one row cut": (b'{"a": 1.5, "y": 0}\n{"a": 2, "y"', r"t\.jsonl"),
}
JSON_LINES = [
    Case(f"JSON lines: {name}", file("t.jsonl", content), "open", expected) for name, (content, expected) in LINES.items()
]

TEXTS: dict[str, tuple[bytes, object]] = {
    "names alone": (b"a,b,y\n", r"no rows"),
    "one line of words": (b"a,b,c", r"t\.csv"),
    "a zero byte": (b"a,y\n1,\0\n2,1\n", r"NUL bytes"),
    "a zero byte far away": (b"a,y\n" + b"1,0\n2,1\n" * 10**5 + b"\0,1\n", r"NUL bytes|row"),
    "quotes that are not closed": (b'a,y\n"1,0\n' + b"2,1\n" * 999, r"t\.csv"),
    "a quote within a cell": (b'a,b,y\n1,x"y,0\n2,z,1\n' * 1, ACCEPTED),
    "rows of other lengths": (b"a,b,y\n1,2,0\n1,2\n1,2,1\n", r"t\.csv:3: 2 cells, and there are 3 columns"),
    "a longer row far away": (b"a,b,y\n" + b"1,2,0\n3,4,1\n" * 10**4 + b"1,2,3,4\n", r"20002"),
    "several names of one kind": (b"a,a,a,y\n1,2,5,0\n3,4,1,1\n", ACCEPTED),
    "Latin-1 beyond what is sniffed": (b"a,y\n" + b"x,0\nz,1\n" * 10**5 + b"\xe9\xe8,1\n", ACCEPTED),
    "half of UTF-16": ("a,y\n1,0\n2,1\n".encode("utf-16")[:-1], r"t\.csv"),
    "UTF-32": ("a,y\n1.5,0\n2,1\n".encode("utf-32"), ACCEPTED),
    "carriage returns alone": (b"a,y\r1.5,0\r2,1\r", ACCEPTED),
    "separators alone": (b",,,\n" * 99, r"t\.csv"),
    "blanks alone": (b" \n" * 99, r"t\.csv"),
    "names of blanks": (b" , ,y\n1.5,2,0\n2,5,1\n", ACCEPTED),
    "a number of a million digits": (b"a,y\n" + b"9" * 10**6 + b",0\n2,1\n", ACCEPTED),
    "numbers among words": (
        b"a,y\n" + b"1,0\n2,1\n" * 50 + b"x,1\n",
        r"column 'a' is a column of numbers, except 'x' in row 101",
    ),
    "labels beyond whole numbers": (b"a,y\n1,0.5\n2,1\n", r"regression target"),
    "labels that are infinite": (b"a,y\n1,inf\n2,1\n", r"t\.csv"),
    "a gap in the labels": (b"a,y\n1,0\n2,\n3,1\n", r"1 of 3 rows have no label in column 'y', the first is row 2"),
    "escapes of a terminal": (b"a\x1b[31m,y\n1.5,0\n2,1\n", ACCEPTED),
    "a script": (b"#!/bin/sh\nrm -rf /tmp/nothing\n", r"t\.csv"),
    "HTML": (b"<!doctype html><html><body>404</body></html>\n" * 3, r"t\.csv"),
    "a column of 60 dates of other forms": (
        b"a,y\n" + b"".join(b"%d/13/2020,%d\n" % (k % 12 + 1, k % 2) for k in range(60)),
        ACCEPTED,
    ),
}
CSVS = [Case(f"CSV: {name}", file("t.csv", content), "open", expected) for name, (content, expected) in TEXTS.items()]


def packed_twice() -> bytes:
    return gzip.compress(gzip.compress(as_csv(usual())))


def constant_columns(rows: int) -> pa.Table:
    value = pa.array(np.zeros(rows, np.int8))
    return pa.table({"a": value, "b": value, "y": value})


def long_dictionary() -> pa.Table:
    """Ten megabytes of texts, each of which is in a hundred thousand rows."""
    codes = pa.array(np.arange(10**5) % 10, pa.int32())
    texts = pa.DictionaryArray.from_arrays(codes, pa.array([f"{k}" * MANY for k in range(10)]))
    return pa.table({"a": texts, "y": np.arange(10**5) % 2})


def row_groups(count: int) -> bytes:
    sink, schema = io.BytesIO(), pa.schema([("a", pa.float64()), ("y", pa.int64())])
    with parquet.ParquetWriter(sink, schema) as writer:
        part = pa.table({"a": [1.5, 2.5], "y": [0, 1]}, schema)
        for _ in range(count):
            writer.write_table(part)
    return sink.getvalue()


def wide(count: int) -> pa.Table:
    return pa.table({**{f"c{k}": pa.array([1.5, k + 2.0, 0.5]) for k in range(count)}, "y": pa.array([0, 1, 1])})


def wide_csv(count: int) -> bytes:
    names = ",".join(f"c{k}" for k in range(count))
    return f"{names},y\n{'1,' * count}0\n{'2,' * count}1\n".encode()


def sparse(folder: Path, name: str, start: bytes, size: int, end: bytes = b"") -> Path:
    with (folder / name).open("wb") as written:
        written.write(start)
        written.seek(size)
        written.write(end or b"\0")
    return folder / name


def one_cell(folder: Path, size: int) -> Path:
    with (folder / "t.csv").open("wb") as written:
        written.write(b'a,y\n1.5,0\n"')
        for _ in range(size // 2**20):
            written.write(b"x" * 2**20)
        written.write(b'",1\n')
    return folder / "t.csv"


def one_cell_of(folder: Path, form: str, size: int) -> Path:
    table = pa.table({"a": pa.array(["b", "c" * size], pa.large_string()), "y": ["n", "m"]})
    (folder / f"t.{form}").write_bytes((as_parquet if form == "parquet" else as_feather)(table, compression="zstd"))
    return folder / f"t.{form}"


BOMBS = [
    Case("gzip in gzip", file("t.csv.gz", packed_twice), "open", r"t\.csv\.gz"),
    Case(
        "a gigabyte of zeros, packed",
        file("t.csv.gz", lambda: gzip.compress(b"a,y\n1,0\n2,1\n") + gzip.compress(bytes(2**28)) * 4),
        "open",
        r"t\.csv\.gz",
    ),
    Case(
        "rows without end, packed",
        file("t.csv.gz", lambda: gzip.compress(b"a,y\n") + gzip.compress(b"1,0\n2,1\n" * 2**22) * 30),
        "open",
        r"unpacks to more than 100 times",
    ),
    Case("zeros packed as JSON", file("t.jsonl", lambda: as_lines(usual()) + bytes(2**24)), "open", r"t\.jsonl"),
    Case(
        "cells promised by few bytes",
        file("t.parquet", lambda: as_parquet(constant_columns(5 * 10**7))),
        "open",
        r"cells in a file of \d+ bytes",
        seconds=60,
        slow=True,
    ),
    Case(
        "constant columns in Feather",
        file("t.feather", lambda: as_feather(constant_columns(5 * 10**7), compression="zstd")),
        "open",
        r"cells in a file of \d+ bytes",
        seconds=60,
        slow=True,
    ),
    Case(
        "a dictionary of long texts in Parquet",
        file("t.parquet", lambda: as_parquet(long_dictionary())),
        "open",
        r"column 'a' has \d+ characters",
    ),
    Case(
        "a dictionary of long texts in Feather",
        file("t.feather", lambda: as_feather(long_dictionary())),
        "open",
        r"column 'a' has \d+ characters",
    ),
    Case("thousands of row groups", file("t.parquet", lambda: row_groups(3000)), "open", ACCEPTED),
    Case(
        "a hundred thousand row groups",
        file("t.parquet", lambda: row_groups(10**5)),
        "open",
        r"row groups",
        seconds=60,
        slow=True,
    ),
    Case("two thousand columns in Parquet", file("t.parquet", lambda: as_parquet(wide(2000))), "open", ACCEPTED),
    Case(
        "a hundred thousand columns in Parquet",
        file("t.parquet", lambda: as_parquet(wide(10**5 + 1))),
        "open",
        r"columns, at most",
        seconds=60,
        slow=True,
    ),
    Case(
        "a hundred thousand columns in Feather",
        file("t.feather", lambda: as_feather(wide(10**5 + 1))),
        "open",
        r"columns, at most",
        seconds=60,
        slow=True,
    ),
    Case("a million columns in CSV", file("t.csv", lambda: wide_csv(MANY)), "open", r"1000001 columns, at most 100000"),
    Case(
        "a million keys in JSON",
        file("t.jsonl", lambda: (json.dumps({**{f"k{k}": 1 for k in range(MANY)}, "y": 0}) + "\n").encode()),
        "open",
        r"columns, at most",
        seconds=60,
        slow=True,
    ),
    Case(
        "many keys in JSON",
        file("t.jsonl", lambda: b"".join(b'{"k%d": 1, "y": 0}\n' % k for k in range(20000))),
        "open",
        r"400020001 cells|cells in a file",
        seconds=60,
        slow=True,
    ),
    Case("a cell of a megabyte", lambda folder: one_cell(folder, 2**20), "open", ACCEPTED),
    Case(
        "a cell of a gigabyte in CSV", lambda folder: one_cell(folder, GIB), "open", r"t\.csv", seconds=60, table=GIB, slow=True
    ),
    *(
        Case(
            f"a cell of a gigabyte in {form}",
            lambda folder, form=form: one_cell_of(folder, form, GIB),
            "open",
            r"t\." + form,
            seconds=60,
            table=3 * GIB,
            slow=True,
            either=True,
        )
        for form in BINARY
    ),
    *(
        Case(
            f"a sparse gigabyte called {form}",
            lambda folder, form=form: sparse(folder, f"t.{form}", b"a,y\n1,0\n2,1\n", GIB),
            "open",
            rf"t\.{form}",
            seconds=60,
            table=GIB,
            slow=True,
        )
        for form in ("csv", "jsonl", "parquet", "feather")
    ),
    Case(
        "a sparse gigabyte with Parquet's ends",
        lambda folder: sparse(folder, "t.parquet", b"PAR1", GIB, b"\xff\xff\xff\x7fPAR1"),
        "open",
        r"t\.parquet",
    ),
    Case(
        "a sparse gigabyte with Feather's ends",
        lambda folder: sparse(folder, "t.feather", b"ARROW1\0\0", GIB, b"\xff\xff\xff\x7fARROW1"),
        "open",
        r"t\.feather",
    ),
]

COMMANDS = [
    Case("a cut table, by a command", changed("parquet", lambda content: content[:-9]), "train", r"t\.parquet"),
    Case(
        "a nested column, by a command",
        file("t.feather", lambda: as_feather(TYPES["structs"][0]())),
        "train",
        r"column 'a' is nested",
    ),
    Case("mixed types, by a command", file("t.jsonl", LINES["numbers, then texts"][0]), "train", r"t\.jsonl"),
    Case("a zero byte, by a command", file("t.csv", b"a,y\n1,\0\n2,1\n"), "train", r"NUL bytes"),
    Case(
        "a name with control characters, by a command",
        file("t.parquet", lambda: as_parquet(TYPES["a name of two lines"][0]())),
        "train",
        r"contains lists",
    ),
    Case("a packed table that is none, by a command", file("t.csv.gz", b"\x1f\x8b noise"), "train", r"t\.csv\.gz"),
]
CASES = [*CHANGED, *FLIPPED, *TYPED, *MISTAKEN, *JSON_LINES, *CSVS, *BOMBS, *COMMANDS]
