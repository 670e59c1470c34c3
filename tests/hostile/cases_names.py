"""Names that are hostile: of files, folders and classes, in what the commands print. None reaches the terminal raw."""

import json
import os
import re
from pathlib import Path

import matplotlib.backends.backend_agg  # noqa: F401 # imported once, for all cases
import numpy as np
import sklearn.datasets  # noqa: F401 # likewise
from PIL import Image

from tests.hostile.harness import ACCEPTED, Case, RefusedError, command

NAMES = {
    "colour": "odd\x1b[31m",
    "title": "odd\x1b]0;mine\x07",
    "eight-bit": "odd\x9b2J",
    "lines": "odd\nerror: fine\r",
    "direction": "odd\u202egnp",
    "bytes": os.fsdecode(b"odd\xff\xfe"),
    "markup": "odd[red]x",
    "link": "odd[link=file:x]",
    "emoji": "odd:cat:",
    "backslash": "odd\\",
}
LONG = "x" * 300
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ud800-\udfff]")


def printed(*arguments: str | Path) -> str:
    """What a command prints, none of it raw; its own error is raised as one."""
    text = ""
    try:
        text = command(*arguments)
    except RefusedError as error:
        text = str(error)
        if "\n" in text:
            raise AssertionError(f"not one line: {text!r}") from error
        raise
    finally:
        if found := RAW.search(text):
            raise AssertionError(f"{found[0]!r} is printed raw: {text!r}")
    return text


def trained(path: Path) -> str:
    quick = ("--set", "epochs=1", "--test-size", "0.5", "--device", "cpu")
    return printed("train", "ce", "--data", path, "--out", path.with_suffix(".runs"), *quick)


def made(path: Path) -> str:
    return printed("noise", "make", "symmetric:0.5", "--labels", path, "--out", path.with_suffix(".made"), "--classes", "3")


def verified(path: Path) -> str:
    made(path)
    return printed("noise", "verify", path.with_suffix(".made")) + str(path)


ATTEMPTS = {
    "show": lambda path: printed("data", "show", path),
    "show-parent": lambda path: printed("data", "show", path.parents[1]),
    "show-labels": lambda path: printed("data", "show", "digits", "--labels", path),
    "matrix-picture": lambda path: printed("noise", "show", "symmetric:0.4", "--png", path),
    "list": lambda path: printed("data", "list", "--data", path),
    "fetch": lambda path: printed("data", "fetch", path.name, "--data", path),
    "make": made,
    "verify": verified,
    "verify-none": lambda path: printed("noise", "verify", path),
    "matrix": lambda path: printed("noise", "show", path),
    "train": trained,
    "train-dry": lambda path: printed("train", "ce", "--data", path, "--dry-run"),
    "train-noise": lambda path: printed("train", "digits/ce", "--noise", path),
    "train-labels": lambda path: printed("train", "digits/ce", "--labels", path),
    "train-model": lambda path: printed("train", "digits/ce", "--model", path.name, "--out", path.parent),
    "train-set": lambda path: printed("train", "digits/ce", "--set", f"{path.name}=1"),
    "compare": lambda path: printed("compare", "ce,gce", "--data", path, "--out", path.parent),
    "report": lambda path: printed("report", path, "--out", path.parent / "out.html"),
    "losses": lambda path: printed("losses", path.name),
    "fetch-into": lambda path: printed("data", "fetch", "cifar10", "--data", path),
    "make-out": lambda path: printed("noise", "make", "symmetric:0.5", "--dataset", "digits", "--out", path),
    "train-out": lambda path: printed("train", "digits/ce", "--out", path, "--set", "epochs=1"),
    "train-dry-out": lambda path: printed("train", "digits/ce", "--out", path, "--dry-run"),
    "compare-out": lambda path: printed("compare", "ce,gce", "--dataset", "digits", "--out", path, "--set", "epochs=1"),
    "reproduce-out": lambda path: printed("reproduce", "human", "--out", path, "--format", "json"),
    "reproduce": lambda path: printed("reproduce", "human", "--records", path, "--out", path.parent, "--format", "json"),
}


def absent(name: str):
    return lambda folder: folder / name


def features(name: str):
    def make(folder: Path) -> Path:
        with open(folder / name, "wb") as file:
            np.savez(file, x=np.eye(12, 4, dtype=np.float32), y=np.arange(12) % 3)
        return folder / name

    return make


def classes(name: str):
    """A folder of images whose name and classes are hostile, with a list of records beside it."""

    def make(folder: Path) -> Path:
        for kind in (name, "fine"):
            (folder / name / kind).mkdir(parents=True)
            Image.new("RGB", (9, 6)).save(folder / name / kind / "1.png")
        return folder / name

    return make


def spoilt_class(name: str):
    def make(folder: Path) -> Path:
        path = classes(name)(folder) / name / f"{name}.txt"
        path.write_bytes(b"no image")
        return path

    return make


def labels(name: str):
    def make(folder: Path) -> Path:
        np.save(folder / f"{name}.npy", np.arange(12) % 3)
        return folder / f"{name}.npy"

    return make


def damaged(name: str):
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(b"\x80\x02no file of ours\x1b[2J")
        return folder / name

    return make


def record(name: str):
    def make(folder: Path) -> Path:
        (folder / name).mkdir()
        (folder / name / "record.json").write_text(json.dumps({"recipe": name, "status": name}))
        return folder / name

    return make


def folder_of(name: str):
    def make(folder: Path) -> Path:
        (folder / name).mkdir()
        return folder / name

    return make


def escaped(name: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


FEW = ("colour", "lines", "bytes")
CASES = [
    *(Case(f"{key}-absent", absent(f"{name}.npz"), "show", "no such file") for key, name in NAMES.items()),
    *(
        Case(f"{key}-classes", classes(name), "show", ACCEPTED, lambda text, name=name: text.count(escaped(name)) == 3)
        for key, name in NAMES.items()
    ),
    *(Case(f"{key}-class-spoilt", spoilt_class(NAMES[key]), "show-parent", "not an image's name") for key in FEW),
    *(Case(f"{key}-make", labels(NAMES[key]), "make", ACCEPTED) for key in FEW),
    *(
        Case(f"{reader}-{make.__name__}", make(f"{NAMES['colour']}{suffix}"), reader, expected)
        for reader, make, suffix, expected in (
            ("show", features, ".npz", ACCEPTED),
            ("show", damaged, ".npz", "odd"),
            ("show-labels", damaged, ".pt", "no labels could be read|odd"),
            ("matrix-picture", absent, ".png", ACCEPTED),
            ("list", folder_of, "", ACCEPTED),
            ("fetch", absent, "", "unknown data set"),
            ("verify", labels, "", ACCEPTED),
            ("verify-none", absent, "", "odd"),
            ("verify-none", folder_of, "", "odd"),
            ("matrix", absent, ".json", "odd"),
            ("matrix", damaged, ".json", "odd"),
            ("train-dry", absent, ".npz", "odd"),
            ("train-noise", absent, ".json", "odd"),
            ("train-labels", absent, ".npy", "odd"),
            ("train-model", absent, "", "odd"),
            ("train-set", absent, "", "odd"),
            ("compare", absent, ".npz", "odd"),
            ("report", absent, "", "odd"),
            ("report", record, "", "odd"),
            ("losses", absent, "", "unknown loss"),
        )
    ),
    Case("colour-train", features(f"{NAMES['colour']}.npz"), "train", ACCEPTED),
    Case("markup-train", features(f"{NAMES['markup']}.npz"), "train", ACCEPTED),
    *(
        Case(f"long-{reader}", absent(LONG + suffix), reader, expected)
        for reader, suffix, expected in (
            ("show", ".npz", "too long"),
            ("show-labels", ".npy", "too long"),
            ("matrix-picture", ".png", "too long"),
            ("make", ".npy", "too long"),
            ("verify-none", "", "too long"),
            ("matrix", ".json", "too long"),
            ("train-dry", ".npz", "too long"),
            ("train-noise", ".json", "too long"),
            ("train-labels", ".npy", "too long"),
            ("compare", ".npz", "too long"),
            ("report", "", "too long"),
            ("reproduce", ".jsonl", "too long"),
            ("fetch", "", "unknown data set"),
            ("list", "", "too long"),
            ("fetch-into", "", "too long"),
            ("make-out", "", "too long"),
            ("train-out", "", "too long"),
            ("train-dry-out", "", "too long"),
            ("compare-out", "", "too long"),
            ("reproduce-out", "", "too long"),
        )
    ),
]
