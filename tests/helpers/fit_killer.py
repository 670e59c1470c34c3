"""Kills fits at random moments and starts them again: ``python fit_killer.py FOLDER KILLS``.

It prints a JSON object: how many were killed, and whether the model is the one that was never interrupted. A process that has
imported everything forks those that are killed: each of them would need seconds to import it.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np
import sklearn.ensemble  # imported once, here, for all that are forked
import sklearn.linear_model  # noqa: F401 # likewise

import noiseproof

LEARNERS = ["logistic-0.01", "rbf-0.1", "neighbours-40", "forest-10"]


def data():
    g = np.random.default_rng(0)
    y = g.integers(3, size=240)
    x = (g.normal(size=(240, 6)) + 2 * np.eye(3, 6)[y]).astype(np.float32)
    given = np.where(g.random(240) < 0.2, (y + 1) % 3, y)
    return x, given


def fitted(folder, jobs=1):
    x, given = data()
    return noiseproof.fit(x, given, folder=folder, learners=LEARNERS, jobs=jobs, seed=5)


def content(folder):
    """What predicts and what is known of the labels, to the bit; not how long it took."""
    model = noiseproof.load(folder)
    names = sorted(path.name for path in (folder / "learners").iterdir())
    return model.predict_proba(data()[0]).tobytes(), model.audit.posterior.tobytes(), names, model.key


def forked(folder):
    if not (child := os.fork()):
        try:
            fitted(folder)
            os._exit(0)
        finally:
            os._exit(3)
    return child


def main():
    place, kills, chance = Path(sys.argv[1]), int(sys.argv[2]), random.Random(1)
    folder, start = place / "killed", time.monotonic()
    fitted(place / "whole")
    seconds, whole = time.monotonic() - start, content(place / "whole")
    died = finished = 0
    while died < kills:
        child = forked(folder)
        time.sleep(seconds * chance.random() ** 2)  # most of them early: what is done is not computed again
        os.kill(child, signal.SIGKILL)
        if os.WIFSIGNALED(os.waitpid(child, 0)[1]):
            died += 1
        if (folder / "model.json").is_file():
            finished += 1
            assert content(folder) == whole, "another model"
            folder = place / f"killed{finished}"
    fitted(folder)
    same = content(folder) == whole
    left = [path.name for path in folder.rglob(".*")]
    print(json.dumps({"killed": died, "finished": finished, "same": same, "left": left}))


if __name__ == "__main__":
    main()
