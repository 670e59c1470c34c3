"""Kills training processes before every kind of file-system event, within writes, at random moments; and starts them again.

``python killer.py RECIPE FOLDER KILLS`` prints a JSON object: what they were killed before, and which runs did not end like the
whole one. A process that has imported torch forks those that are killed: each of them would need seconds to import it.
"""

import dataclasses
import json
import os
import random
import re
import signal
import sys
import time
from pathlib import Path

import sklearn.datasets  # noqa: F401 # imported once, here, for all that are forked
import torch._dynamo  # noqa: F401 # likewise

from noiseproof.train import Recipe, Record, train

AUDITED = {"open": 0, "os.rename": 1, "os.remove": 0, "os.mkdir": 0, "os.rmdir": 0}
"""Python's audit events, and which argument is the path"""


def watched(folder, on_event):
    """Call ``on_event(kind, name)`` before each file-system event in a folder, and half-way through each write of a file."""
    fsync, write_bytes = os.fsync, Path.write_bytes

    def name_of(path):
        path = Path(os.fsdecode(path))
        return (
            re.sub(r"\.[0-9a-f]{8}$", "", "folder" if path == folder else path.name) if folder in (path, path.parent) else None
        )

    def audit(event, arguments):
        if event in AUDITED and isinstance(arguments[AUDITED[event]], str | bytes | os.PathLike):
            name = name_of(arguments[AUDITED[event]])
            if name is not None and (event != "open" or arguments[2] & (os.O_WRONLY | os.O_RDWR)):
                on_event(event, name)

    def flushed(handle):
        if (name := name_of(os.readlink(f"/proc/self/fd/{handle}"))) is not None:
            on_event("fsync", name)
        fsync(handle)

    def half_written(path, content):
        write_bytes(path, content[: len(content) // 2])
        on_event("write", name_of(path))
        return write_bytes(path, content)

    os.fsync, Path.write_bytes = flushed, half_written
    sys.addaudithook(audit)


def forked(work):
    """The exit status of a child, negative if it was killed."""
    if not (child := os.fork()):
        try:
            work()
        finally:
            os._exit(3)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def trained(recipe, folder):
    train(recipe, folder=folder, checkpoint_seconds=0)
    os._exit(0)


def content(folder):
    record = Record.read(folder)
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "record.json"}
    epochs = [dataclasses.replace(epoch, seconds=0.0) for epoch in record.epochs]
    return files, epochs, record.result, record.status, record.files, record.warnings


def killed_before(recipe, folder, kind, name, count):
    """Trains until the ``count``-th event of a kind, which does not happen."""
    left = [count]

    def on_event(*found):
        left[0] -= found == (kind, name)
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

    watched(folder, on_event)
    trained(recipe, folder)


def events_of(recipe, folder):
    """The kinds of events of a whole run, with how often each happens."""

    def listed():
        found = []
        watched(folder, lambda *event: found.append(event))
        train(recipe, folder=folder, checkpoint_seconds=0)
        (folder.parent / "events.json").write_text(json.dumps(found))
        os._exit(0)

    if forked(listed):
        raise SystemExit("the whole run failed")
    found = [tuple(event) for event in json.loads((folder.parent / "events.json").read_text())]
    return {event: found.count(event) for event in dict.fromkeys(found)}


def main():
    recipe, place, kills = Recipe.from_dict(json.loads(sys.argv[1])), Path(sys.argv[2]), int(sys.argv[3])
    start = time.monotonic()
    kinds = events_of(recipe, place / "whole")
    seconds, whole = time.monotonic() - start, content(place / "whole")
    chance, killed, different = random.Random(0), [], []

    def ended(folder):
        if forked(lambda: trained(recipe, folder)) or content(folder) != whole:
            different.append(folder.name)

    for number, ((kind, name), count) in enumerate(kinds.items()):
        for times in {1, count}:
            folder = place / f"event{number}-{times}"
            status = forked(lambda: killed_before(recipe, folder, kind, name, times))  # noqa: B023 # called at once
            killed += [f"{kind} {name}"] if status == -signal.SIGKILL else []
            ended(folder)
    at_random = 0
    while len(killed) < kills or at_random < kills // 2:
        folder = place / f"random{len(killed)}"
        while True:  # killed again and again, until it ends before its time
            if not (child := os.fork()):
                try:
                    trained(recipe, folder)
                finally:
                    os._exit(3)
            time.sleep(chance.uniform(0, seconds / 2))
            os.kill(child, signal.SIGKILL)
            if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != -signal.SIGKILL:
                break
            killed.append("a random moment")
            at_random += 1
        ended(folder)
    print(json.dumps({"kinds": [f"{kind} {name}" for kind, name in kinds], "killed": killed, "different": different}))


if __name__ == "__main__":
    main()
