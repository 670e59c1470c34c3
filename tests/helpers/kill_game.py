"""Kills every verb and starts it again: ``python kill_game.py FOLDER KILLS SEED [VERB ...]``.

A kill is at a random moment, before a file-system event (an open, a rename, a removal, a flush, half of a write), or of one of
two that were started at once in one folder. It prints a JSON object for each, and one in the end. After each the verb is run to
its end, and what it leaves must be what a run that was never interrupted leaves: ``different`` and ``lost`` say where it is
not. ``left`` is what was still running two seconds after the kill. A process that has imported everything forks those that are
killed: each of them would need seconds to import it.
"""

import contextlib
import importlib
import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import torch

from tests.helpers import killer, verbs
from tests.helpers.ctrl_c import left_after

IMPORTED = ("sklearn.ensemble", "sklearn.linear_model", "torch._dynamo", "noiseproof.cli", "noiseproof.comparison")
IMPORTED += ("noiseproof.audit.labels", "noiseproof.fitting.run", "noiseproof.paper.reproduction", "noiseproof.report")
"""Once, for all that are forked"""
MODES = ("moment", "event", "two")
BUSY = "another process is at work"


def begun(words, place, said, on_start=lambda: None):
    """The number of a process of its own session that runs a verb; what it says goes to a file."""
    if child := os.fork():
        return child
    status = 3
    try:
        os.setsid()
        handle = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        on_start()
        status = verbs.call(words, place)
        sys.stdout.flush()
    finally:
        os._exit(status)


def waited(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Game:
    """One verb: its words, what it leaves, how long it takes and its file-system events."""

    def __init__(self, name, words, place):
        self.name, self.words, self.place, self.said = name, words, place, place / f"said-{name}.txt"
        self.number = 0
        start = time.monotonic()
        self.whole = self.run(self.folder())
        self.seconds = time.monotonic() - start
        events = self.folder()

        def listed():
            found = []
            killer.watched(events, lambda *event: found.append(event))
            keep = os._exit
            os._exit = lambda status: ((place / "events.json").write_text(json.dumps(found)), keep(status))

        waited(begun(verbs.prepare(words, events), place, self.said, listed))
        found = [tuple(event) for event in json.loads((place / "events.json").read_text())]
        self.events = {event: found.count(event) for event in dict.fromkeys(found)}

    def folder(self):
        """A new one; those of before are removed."""
        self.number += 1
        shutil.rmtree(self.place / f"{self.name}-{self.number - 2}", ignore_errors=True)
        return self.place / f"{self.name}-{self.number}"

    def run(self, folder):
        """Run to the end; what is left then. A RuntimeError if it fails."""
        status = waited(begun(verbs.prepare(self.words, folder), self.place, self.said))
        if status:
            raise RuntimeError(f"status {status}: {self.said.read_text()[-500:]}")
        partial = [str(path) for path in folder.rglob(".*")]
        if partial:
            raise RuntimeError(f"left behind: {partial}")
        return verbs.content(folder)

    def killed(self, mode, chance, folder):
        """Whether one was killed, before its end."""
        words = verbs.prepare(self.words, folder)
        if mode == "event":
            event = chance.choice(list(self.events)) if self.events else ("open", "")
            left = [chance.randint(1, self.events.get(event, 1))]

            def on_event(*found):
                left[0] -= found == event
                if not left[0]:
                    os.kill(os.getpid(), signal.SIGKILL)

            child = begun(words, self.place, self.said, lambda: killer.watched(folder, on_event))
        else:
            child = begun(words, self.place, self.said)
            if mode == "two":
                time.sleep(chance.uniform(0, 0.2))
                other = begun(words, self.place, self.place / f"other-{self.name}.txt")
            time.sleep(self.seconds * chance.random() ** 2)  # most of them early: what is done is not computed again
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        status = waited(child)
        self.left = left_after(child)
        if mode == "two":
            self.other = waited(other)
            self.left += left_after(other)
        return status == -signal.SIGKILL

    def play(self, mode, chance):
        """Kill until one is killed, and then run to the end."""
        folder, self.other, tries = self.folder(), 0, 0
        while not self.killed(mode, chance, folder) and tries < 20:
            tries += 1
        found = {"verb": self.name, "mode": mode, "left": self.left, "lost": "", "different": []}
        if self.other not in (0, 2) or (self.other == 2 and BUSY not in (self.place / f"other-{self.name}.txt").read_text()):
            found["lost"] = f"the other one: {self.other} {(self.place / f'other-{self.name}.txt').read_text()[-500:]}"
        try:
            content = self.run(folder)
            found["different"] = [key for key in {**content, **self.whole} if content.get(key) != self.whole.get(key)]
        except (RuntimeError, ValueError, OSError, AssertionError) as error:
            found["lost"] = f"{type(error).__name__}: {error}"
        return found


def main():
    place, kills, chance = Path(sys.argv[1]).resolve(), int(sys.argv[2]), random.Random(int(sys.argv[3]))
    torch.set_num_threads(1)
    for module in IMPORTED:
        importlib.import_module(module)
    words = verbs.make_data(place)
    if "predict" in (sys.argv[4:] or words):
        runs = ["train", "ce", "--data", str(place / "points.npz"), "--set", "epochs=1", "--out", str(place / "runs")]
        assert not waited(begun(runs, place, place / "said.txt")), (place / "said.txt").read_text()
        with contextlib.suppress(FileExistsError):
            (place / "run").symlink_to(next((place / "runs").iterdir()))
    games = [Game(name, words[name], place) for name in sys.argv[4:] or words]
    total = {"kills": 0, "lost": 0, "different": 0, "left": 0}
    for number in range(kills):
        found = games[number % len(games)].play(MODES[number // len(games) % len(MODES)], chance)
        print(json.dumps(found), flush=True)
        total["kills"] += 1
        for key in ("lost", "different", "left"):
            total[key] += bool(found[key])
    print(json.dumps(total), flush=True)


if __name__ == "__main__":
    main()
