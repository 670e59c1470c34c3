"""Every verb that writes, on data of a few rows, and what it leaves behind: for those who kill and interrupt it."""

import json
import os
import sys
from pathlib import Path

import numpy as np

ROWS, WORDS = 90, 40
LEARNERS = "logistic-0.01,rbf-0.1,neighbours-40"
SECONDS = ("seconds", "machine", "date", "earlier", "made")
"""Facts of a record that a second run need not repeat"""


def make_data(place, epochs=3, rows=ROWS):
    """Write the data of all verbs, and return the words of each, with OUT for its folder; predict wants a run beside them.

    Args:
        place: A folder.
        epochs: Of each training.

    Returns:
        The words by the name of the verb.
    """
    place.mkdir(parents=True, exist_ok=True)
    g = np.random.default_rng(0)
    true = np.arange(rows) % 3
    x = (g.normal(size=(rows, 4)) + 3 * np.eye(3, 4)[true]).astype(np.float32)
    given = np.where(g.random(rows) < 0.2, (true + 1) % 3, true)
    np.savez(place / "points.npz", x=x, y=given, x_test=x[::2] + 0.1, y_test=true[::2])
    lines = [",".join(f"{value:.4f}" for value in row) + f",{'abc'[label]}" for row, label in zip(x, given, strict=True)]
    (place / "points.csv").write_text("\n".join(["p,q,r,s,label", *lines]) + "\n")
    (place / "texts.csv").write_text("text,label\n" + "".join(f"word {k} of many,{k % 2}\n" for k in range(WORDS)))
    (place / "own_encoder.py").write_text(
        "import numpy as np\n\ndef encode(texts):\n    return np.array([[len(text), sum(map(ord, text))] for text in texts])\n"
    )
    here, short = str(place), ["--set", f"epochs={epochs}", "--device", "cpu"]
    networks = ["--epochs", str(epochs), "--device", "cpu"]
    reproduced = ["--dataset", "digits", "--seeds", "2", "--data", here, "--device", "cpu"]
    return {
        "train": ["train", "jal-ce", "--data", f"{here}/points.npz", *short, "--checkpoint-every", "0", "--out", "OUT"],
        "audit": ["audit", f"{here}/points.csv", "--folds", "2", "--out", "OUT"],
        "audit-networks": ["audit", f"{here}/points.npz", "--folds", "2", *networks, "--out", "OUT"],
        "fit": ["fit", f"{here}/points.csv", "--folds", "2", "--learners", LEARNERS, "--out", "OUT"],
        "compare": ["compare", "ce,mae", "--data", f"{here}/points.npz", "--seeds", "2", *short, "--jobs", "2", "--out", "OUT"],
        "reproduce": ["reproduce", "sym_asym", *reproduced, "--out", "OUT/runs", "--records", "OUT/records.jsonl"],
        "predict": ["predict", f"{here}/run", "--data", f"{here}/points.npz", "--out", "OUT/predictions.csv"],
        "embed": ["embed", f"{here}/texts.csv", "--encoder", "own_encoder:encode", "--out", "OUT/vectors.npy"],
    }


def prepare(words, folder):
    """The words with a folder in place, which those verbs that make none themselves find there."""
    if words[0] in ("predict", "embed", "reproduce"):
        folder.mkdir(parents=True, exist_ok=True)
    return [word.replace("OUT", str(folder)) for word in words]


def call(words, place, epochs=3):
    """Run a verb in this process, as the command line does; returns its exit status."""
    from noiseproof.__main__ import main

    if words[0] == "reproduce":
        few_cells(epochs)
    os.environ["NOISEPROOF_CACHE"] = str(Path(place) / "cache.sqlite")
    os.chdir(place)
    sys.argv = ["noiseproof", *words]
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def few_cells(epochs):
    """A paper with one table of two cells, on the digits."""
    from noiseproof import paper
    from noiseproof.paper.settings import SETTINGS

    SETTINGS["digits"] |= {"epochs": epochs, "confidence_epochs": ()}
    cells = tuple(paper.Cell("sym_asym", "digits", "symmetric", rate, "CE", 90.0, 0.5, 3) for rate in (0.2, 0.4))
    sys.modules["noiseproof.paper.published"]._all = lambda: cells


def content(folder):
    """What is in a folder, by path: bytes, or facts without what no second run repeats. Pages and pictures are left out.

    Raises ValueError if a file is not whole.
    """
    found = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = str(path.relative_to(folder))
        if path.suffix in (".html", ".png"):
            assert path.stat().st_size > 0, path
        elif path.suffix == ".json":
            found[name] = _timeless(json.loads(path.read_text(encoding="utf-8")))
        elif path.suffix == ".jsonl":
            found[name] = sorted(json.dumps(_timeless(json.loads(line)), sort_keys=True) for line in path.open())
        elif path.suffix in (".npz", ".npy"):
            loaded = np.load(path)
            arrays = {key: loaded[key] for key in loaded} if path.suffix == ".npz" else {"": loaded}
            found[name] = {key: (array.dtype.str, array.shape, array.tobytes()) for key, array in arrays.items()}
        elif path.suffix == ".safetensors" and path.parent.name in ("learners", "folds"):
            found[name] = _tensors(path)
        else:
            found[name] = path.read_bytes()
    return found


def _tensors(path):
    """The numbers of a stored learner; its facts have the seconds that it took."""
    from safetensors.numpy import load_file

    return {name: array.tobytes() for name, array in load_file(path).items()}


def _timeless(value):
    if isinstance(value, dict):
        kept = {key: one for key, one in value.items() if key not in SECONDS}
        if "learners" in kept and "arrays" in kept:  # a fitted model's; the learners' numbers are compared
            kept["learners"] = [[one["name"], [name for name, _ in one["files"]]] for one in kept["learners"]]
        return {key: _timeless(one) for key, one in kept.items()}
    return [_timeless(one) for one in value] if isinstance(value, list) else value
