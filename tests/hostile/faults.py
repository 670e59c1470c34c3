"""What the harness must notice: each case ends as its name says."""

import os
import time

from tests.hostile.harness import ACCEPTED, Case


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
    "read wrongly": lambda path: 2,
    "refused wrongly": lambda path: refuse(f"{path}: damaged"),
}
FINE = ("accepted", "read wrongly", "refused wrongly")
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
