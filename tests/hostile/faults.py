"""What the harness must notice: each case ends as its name says."""

import os
import time
import warnings

from tests.hostile.harness import ACCEPTED, Case


def warned(text):
    warnings.warn(text, stacklevel=1)
    return 1


def refuse(text, kind=ValueError):
    raise kind(text)


ATTEMPTS = {
    "crash": lambda path: os.abort(),
    "hang": lambda path: time.sleep(60),
    "hang at work": lambda path: sum(iter(int, 1)),
    "memory": lambda path: b"1" * (2**30 + 2**27),
    "trace": lambda path: {}[0],
    "not one line": lambda path: refuse(f"{path}: a\nb"),
    "file not named": lambda path: refuse("damaged"),
    "wrong message": lambda path: refuse(f"{path}: whole"),
    "accepted wrongly": lambda path: 1,
    "refused": lambda path: refuse(f"{path}: damaged", OSError),
    "accepted": lambda path: 1,
    "trace with a warning": lambda path: warned("the file is odd"),
    "accepted with the warning of a GPU": lambda path: warned("CUDA initialization: Unexpected error: out of memory"),
    "read wrongly": lambda path: 2,
    "refused wrongly": lambda path: refuse(f"{path}: damaged"),
}
FINE = ("accepted", "accepted with the warning of a GPU", "read wrongly", "refused wrongly")
CASES = [
    Case(
        name,
        lambda folder: folder / "file.bin",
        name,
        ACCEPTED if name in FINE else "damaged",
        lambda result: result == 1,
        seconds=1 if "hang" in name else 10,
    )
    for name in ATTEMPTS
]
