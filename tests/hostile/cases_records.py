"""Run folders that others have written: records, checkpoints, confidence and weights that are damaged, odd or made to harm."""

import hashlib
import io
import json
import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save

from noiseproof.report import read_runs
from noiseproof.train import Recipe, Record, RunStore, prepare, train
from noiseproof.train.runs import write_checkpoint
from tests.hostile.harness import ACCEPTED, Case, command

RECORD, CHECKPOINT = "record.json", "checkpoint.safetensors"
CONFIDENCE, WEIGHTS = "confidence.npz", "weights.safetensors"
ROWS = 12


def recipe_in(folder: Path) -> Recipe:
    return Recipe(dataset=str(folder.parent / "data.npz"), loss="ce", model="mlp", epochs=2, batch=6)


def run_in(path: Path) -> dict:
    """Train in the file's folder, or show that the run there is finished."""
    return train(recipe_in(path.parent), folder=path.parent).record.result


def stored(path: Path) -> str:
    """What a store says of the run."""
    runs = list(RunStore(path.parents[1]).runs())
    if runs and runs[0].status == "unreadable":
        raise ValueError(runs[0].facts["message"])
    return runs[0].status if runs else "no run"


def shown(path: Path) -> str:
    """What the two commands that read files of records say of one; the page is written beside it."""
    told = command("reproduce", "sym_asym", "--dataset", "cifar10", "--records", path, "--out", path.parent / "runs", "--plan")
    return told + command("report", path, "--out", path.parent / "report.html")


ATTEMPTS = {
    "run": run_in,
    "store": stored,
    "report": lambda path: read_runs([path.parent])[0],
    "lines": shown,
}
LINE = {
    "recipe": {"dataset": "cifar10", "loss": "jal-ce", "noise": "symmetric:0.8", "seed": 1, "precision": "bf16"},
    "result": {"test_accuracy": 0.5},
    "task": {"classes": 10, "noise": {"hash": "aa"}},
}


def lines(content: bytes | None = None, **changed):
    """A file of a sound line and one that is this, or is sound but for some of its fields."""

    def make(folder: Path) -> Path:
        path = folder / "runs.jsonl"
        odd = {key: {**LINE.get(key, {}), **value} if isinstance(value, dict) else value for key, value in changed.items()}
        last = json.dumps({**LINE, **odd}).encode() if content is None else content
        path.write_bytes(json.dumps(LINE).encode() + b"\n" + last + b"\n")
        return path

    return make


def finished(folder: Path) -> tuple[Path, dict]:
    """A folder as a finished run leaves it, less its digests; nothing is trained."""
    run = folder / "runs" / "one"
    run.mkdir(parents=True)
    np.savez(folder / "runs" / "data.npz", x=np.random.default_rng(0).normal(size=(ROWS, 3)), y=np.arange(ROWS) % 2)
    recipe = recipe_in(run)
    facts = Record.of(recipe, prepare(recipe), {"machine": "a machine"}).as_dict()
    epoch = {"loss": 0.5, "given_accuracy": 0.5, "clean_accuracy": None, "test_accuracy": None, "lr": 0.1, "seconds": 1.0}
    facts |= {"status": "finished", "seconds": {"train": 1.0}, "result": {"epoch": 2, "test_accuracy": None}}
    facts["epochs"] = [{"epoch": k, **epoch} for k in (1, 2)]
    write(run / RECORD, facts)
    labels = np.arange(ROWS) % 2
    shaped = {"probability": np.full((1, ROWS), 0.5, np.float32), "predicted": labels[None], "given": labels}
    np.savez_compressed(run / CONFIDENCE, epochs=np.array([2]), **shaped)
    (run / WEIGHTS).write_bytes(save({"fc.weight": torch.ones(2, 3)}))
    return run, facts


def write(path: Path, facts) -> None:
    path.write_text(json.dumps(facts), encoding="utf-8")


def record(**change):
    def make(folder: Path) -> Path:
        run, facts = finished(folder)
        write(run / RECORD, {**facts, **change})
        return run / RECORD

    return make


def file(name: str, content: bytes | Callable[[], bytes] | None):
    """A finished run, one of whose files has this content, or is gone. What is large is made when it is needed."""

    def make(folder: Path) -> Path:
        path = finished(folder)[0] / name
        return file_in(path.parent, name, content() if callable(content) else content)

    return make


def not_a_file(name: str, put):
    def make(folder: Path) -> Path:
        path = finished(folder)[0] / name
        path.unlink()
        put(path)
        return path

    return make


def with_digests(name: str, content: bytes | None):
    def make(folder: Path) -> Path:
        run, facts = finished(folder)
        write(run / RECORD, {**facts, "files": {name: "0" * 64}})
        return file_in(run, name, content)

    return make


def file_in(run: Path, name: str, content: bytes | None) -> Path:
    if content is None:
        (run / name).unlink()
    else:
        (run / name).write_bytes(content)
    return run / name


def npz(**members: bytes) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return held.getvalue()


def npy(shape: tuple, dtype: str, content: bytes = b"") -> bytes:
    """An .npy file whose header says what it likes."""
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + content


def parts(**changed: bytes) -> bytes:
    whole = {
        "epochs": npy((1,), "<i8", (2).to_bytes(8, "little")),
        "probability": npy((1, ROWS), "<f4", bytes(4 * ROWS)),
        "predicted": npy((1, ROWS), "<i8", bytes(8 * ROWS)),
        "given": npy((ROWS,), "<i8", bytes(8 * ROWS)),
    }
    return npz(**{**whole, **changed})


def later_header() -> bytes:
    """Version 2 lets a header have four gigabytes, here a quarter of one."""
    return b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**28) + b" " * 2**28


def checkpoint(change):
    """A run that was stopped, whose checkpoint is whole by its digest and yet not what a run writes."""

    def make(folder: Path) -> Path:
        run, facts = finished(folder)
        for name in (RECORD, CONFIDENCE, WEIGHTS):
            (run / name).unlink()
        facts |= {"status": "running", "result": {}, "epochs": facts["epochs"][:1]}
        tensors = {"network.fc.weight": torch.ones(2, 3)}
        tensors, facts = change(tensors, facts) or (tensors, facts)
        write_checkpoint(run, tensors, facts)
        return run / CHECKPOINT

    return make


def raw_checkpoint(content: bytes):
    def make(folder: Path) -> Path:
        path = checkpoint(lambda tensors, facts: None)(folder)
        path.write_bytes(content)
        return path

    return make


def tensors_file(header: bytes, content: bytes = b"", length: int | None = None) -> bytes:
    return struct.pack("<Q", len(header) if length is None else length) + header + content


def deep_facts(folder: Path) -> Path:
    """JSON within the metadata, deeper than a parser goes, with the right digest."""
    path = checkpoint(lambda tensors, facts: None)(folder)
    text = "[" * 100_000
    digest = hashlib.sha256(text.encode()).hexdigest()
    path.write_bytes(save({}, {"noiseproof": "1", "facts": text, "sha256": digest}))
    return path


def overlapping() -> bytes:
    one = {"dtype": "F32", "shape": [2**20], "data_offsets": [0, 2**22]}
    return tensors_file(json.dumps({f"t{k}": one for k in range(1000)}).encode(), bytes(2**22))


OLD = "confidence.npz: damaged, in a run that is finished: "
CASES = [
    Case("record-whole", record(), "run", ACCEPTED, holds=lambda result: result["epoch"] == 2),
    Case("record-empty", file(RECORD, b""), "run", "record.json: not the record of a run: not JSON: Expecting"),
    Case("record-cut", file(RECORD, b'{"format": 1, "status'), "run", "record.json: not the record of a run: not JSON: Unterm"),
    Case("record-no-text", file(RECORD, b"\xff\xfe\x00"), "run", "record.json: not the record of a run: not UTF-8 text"),
    Case("record-deep", file(RECORD, b'{"a":' * 10**6), "run", "record.json: not the record of a run: not read as JSON"),
    Case("record-deep-in-a-store", file(RECORD, b"[" * 10**6), "store", "record.json: not the record of a run: not read as"),
    Case("record-deep-in-a-report", file(RECORD, b"[" * 10**6), "report", "record.json: not the record of a run"),
    Case("record-of-millions-of-lists", file(RECORD, lambda: b"[" + b"[]," * 33_000_000 + b"[]]"), "run", "4,194,304 values"),
    Case("record-list", file(RECORD, b"[[]]"), "store", "a record must be an object, found "),
    Case("record-huge-number", record(format=10**300), "run", r"format 1 expected, found 10{55} \.\.\."),
    Case("record-long-value", record(status="x" * 10**6), "run", "'status' must be one of .*, found 'xxxx"),
    Case("record-odd-task", record(task={"noise": {"hash": []}}), "store", "'task.noise.hash' must be text, found "),
    Case("record-odd-sources", record(task={"sources": [[1]]}), "store", "its recipe or task is not that of a run"),
    Case("record-odd-epochs", record(epochs=[[]] * 10**5), "run", "'epochs 1' must be an object, found \\[\\]"),
    Case("record-other-run", record(recipe={"dataset": "x", "noise": "none"}), "run", "record.json is of another run: "),
    Case("record-curves-in-a-report", record(epochs=[1, 2]), "report", "record.json: not the record of a run"),
    Case("record-pipe-in-a-store", not_a_file(RECORD, os.mkfifo), "store", ACCEPTED, holds=lambda said: said == "no run"),
    Case("record-pipe", not_a_file(RECORD, os.mkfifo), "run", "a device or a pipe, which no file can take the place of"),
    Case("record-folder", not_a_file(RECORD, Path.mkdir), "run", "Is a directory: .*record.json"),
    Case("record-to-itself", not_a_file(RECORD, lambda path: path.symlink_to(path)), "run", ACCEPTED),
    Case("confidence-gone", file(CONFIDENCE, None), "run", f"{OLD}.*No such file"),
    Case("confidence-no-zip", file(CONFIDENCE, b"PK\x03\x04 and no more"), "run", f"{OLD}a damaged zip file"),
    Case(
        "confidence-lies",
        file(CONFIDENCE, parts(predicted=npy((1, 2**40), "<i8"))),
        "run",
        f"{OLD}array 'predicted': .* bytes expected",
    ),
    Case(
        "confidence-bomb",
        file(CONFIDENCE, lambda: parts(probability=npy((1, ROWS), "<f4", bytes(2**30)))),
        "run",
        f"{OLD}array 'probability': unpacks to",
    ),
    Case(
        "confidence-header-bomb",
        file(CONFIDENCE, lambda: parts(epochs=later_header())),
        "run",
        f"{OLD}array 'epochs': unpacks to",
    ),
    Case(
        "confidence-objects",
        file(CONFIDENCE, parts(epochs=npy((1,), "|O", b"cos\n"))),
        "run",
        f"{OLD}array 'epochs': it must hold plain numbers",
    ),
    Case(
        "confidence-others", file(CONFIDENCE, parts(epochs=npy((1,), "<i8", b"\x05" + bytes(7)))), "run", f"{OLD}it is of the"
    ),
    Case(
        "confidence-bomb-in-a-report",
        file(CONFIDENCE, lambda: parts(probability=npy((1, 2**31), "<f4", bytes(2**28)))),
        "report",
        "confidence.npz: damaged: array 'probability': unpacks to",
    ),
    Case("confidence-not-what-was-written", with_digests(CONFIDENCE, parts()), "run", "confidence.npz: damaged, in a run"),
    Case("weights-gone", with_digests(WEIGHTS, None), "run", "weights.safetensors: gone, in a run that is finished"),
    Case("weights-not-what-was-written", with_digests(WEIGHTS, b"x"), "report", "weights.safetensors: damaged: its content"),
    Case("weights-lie-in-a-report", file(WEIGHTS, tensors_file(b"{}", length=2**62)), "report", "weights.safetensors: damaged"),
    Case("checkpoint-empty", raw_checkpoint(b""), "run", "checkpoint.safetensors: damaged, or no checkpoint"),
    Case("checkpoint-lies", raw_checkpoint(tensors_file(b"{}", length=2**60)), "run", "checkpoint.safetensors: damaged, or no"),
    Case("checkpoint-deep", raw_checkpoint(tensors_file(b'{"a":' * 10**5)), "run", "checkpoint.safetensors: damaged, or no"),
    Case("checkpoint-overlaps", raw_checkpoint(overlapping()), "run", "checkpoint.safetensors: damaged, or no checkpoint"),
    Case("checkpoint-deep-facts", deep_facts, "run", "checkpoint.safetensors: its facts are not JSON"),
    Case("checkpoint-of-a-list", checkpoint(lambda t, f: (t, [1])), "run", "checkpoint.safetensors is of another version"),
    Case("checkpoint-odd-epochs", checkpoint(lambda t, f: (t, {**f, "epochs": 3})), "run", "'epochs' must be a list, found 3"),
    Case(
        "checkpoint-past-the-end",
        checkpoint(lambda t, f: (t, {**f, "epochs": [{**f["epochs"][0], "epoch": k} for k in (1, 2, 3)]})),
        "run",
        "checkpoint.safetensors does not fit: it has 3 epochs of 2 behind it",
    ),
    Case("checkpoint-other-network", checkpoint(lambda t, f: None), "run", "checkpoint.safetensors does not fit: it has no "),
    Case("lines-whole", lines(recipe={"seed": 2}), "lines", ACCEPTED, holds=lambda said: "2 runs" in said),
    Case("lines-with-half-a-character", lines(recipe={"loss": "\ud800"}), "lines", ACCEPTED),
    Case(
        "lines-nested",
        lines(b'{"recipe": {"x": ' + b"[" * 600 + b"]" * 600 + b'}, "result": {}}'),
        "lines",
        r"runs.jsonl, line 2: not JSON \(it is nested too deeply",
    ),
    Case("lines-of-an-epoch-of-5000-digits", lines(confidence={"9" * 5000: {}}), "lines", ACCEPTED),
    Case("lines-cut", lines(b'{"recipe": {'), "lines", r"runs.jsonl, line 2: not JSON \(Expecting"),
    Case("lines-of-bytes", lines(b"\xff\xfe"), "lines", "runs.jsonl: not a file of records"),
    Case("lines-long", lines(b" " * 2**25), "lines", "runs.jsonl: not a file of records.*a line of more than"),
    Case(
        "lines-with-nan", lines(b'{"recipe": {}, "result": {"test_accuracy": NaN}}'), "lines", r"line 2: not JSON \(NaN is not"
    ),
    Case("lines-with-a-key-twice", lines(b'{"recipe": {}, "result": {}, "result": {}}'), "lines", "'result' is there twice"),
    Case(
        "lines-of-huge-accuracy", lines(result={"test_accuracy": 10**400}), "lines", "line 2: not JSON .* is beyond the largest"
    ),
    Case("lines-of-percent", lines(result={"test_accuracy": 50.5}), "lines", r"must be a share in \[0, 1\], found 50.5"),
    Case("lines-of-text-accuracy", lines(result={"test_accuracy": "0.5"}), "lines", "must be a share in .*, found '0.5'"),
    Case("lines-of-odd-loss", lines(recipe={"loss": {"a": 1}}), "lines", "line 2: .* 'recipe.loss' must be text, found {'a'"),
    Case("lines-of-odd-noise", lines(recipe={"noise": [1]}), "lines", "line 2: .* 'recipe.noise' must be text, found "),
    Case("lines-of-odd-seed", lines(recipe={"seed": [1]}), "lines", "line 2: .* 'recipe.seed' must be a number, found "),
    Case("lines-of-odd-status", lines(status=[{}]), "lines", "line 2: .* 'status' must be one of .*, found "),
    Case("lines-of-odd-seconds", lines(seconds="x"), "lines", "line 2: .* 'seconds' must be an object, found 'x'"),
    Case("lines-of-odd-task", lines(task=[1]), "lines", "line 2: .* 'task' must be an object, found "),
    Case("lines-of-odd-labels", lines(task={"noise": [1]}), "lines", "line 2: .* 'task.noise' must be an object, found "),
    Case(
        "lines-of-a-high-curve", lines(curve={"test_accuracy": [0.5, 1e9]}), "lines", "'curve.test_accuracy 2' must be a share"
    ),
    Case("lines-of-an-odd-curve", lines(curve=[1e9]), "lines", "'curve' must be an object, found "),
    Case("lines-of-an-odd-rate", lines(task={"noise": {"rate": -1e300}}), "lines", "'task.noise.rate' must be a share in"),
    Case("record-of-odd-task-in-a-report", record(task=[1]), "report", "record.json: .*'task' must be an object"),
    Case("confidence-pipe", not_a_file(CONFIDENCE, os.mkfifo), "run", f"{OLD}not a regular file"),
]
