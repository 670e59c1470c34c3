"""Two processes that train one network: the result is that of one process with the same global batch, within rounding."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from noiseproof.data.loader import ORDER
from noiseproof.keyed_random import keyed_order
from noiseproof.train import Outcome, Recipe, Run, RunOptions, prepare, train
from noiseproof.train.distributed import LostProcessError, answering, joined
from noiseproof.train.runs import read_checkpoint
from tests.helpers.stopping import StopIn, StoppedError

SCRIPT = """
import json, os, signal, sys
from pathlib import Path
import numpy as np
import torch
from noiseproof.train import Callback, Recipe, Run, RunOptions, prepare, train
from noiseproof.train.distributed import LostProcessError, process_group

work = json.loads(sys.argv[1])
place, jobs = Path(work["place"]), work["jobs"]


class Stop(Callback):
    def on_batch_end(self, epoch, done, total):
        if epoch == 1:
            os.kill(os.getpid(), signal.SIGSTOP)


def done(name, job, options):
    recipe, rank = Recipe.from_dict(job["recipe"]), options.process.rank
    if job["what"] == "probabilities":
        run = Run(recipe, task := prepare(recipe), options)
        run.train_epoch(0)
        np.save(place / f"{name}.rank{rank}.npy", run.probabilities(task.train))
        run.close()
        return None
    folder = place / (name + (job.get("elsewhere", "") if rank else ""))
    callback = Stop() if job["what"] == "stop" and rank else None
    return train(recipe, folder=folder, options=options, checkpoint_seconds=0, callback=callback).record.result


def all_done(timeout, chosen):
    with process_group(torch.device("cpu"), timeout) as (process, device):
        for name, job in chosen.items():
            options = RunOptions(device=device, workers=job.get("workers", 0), process=process)
            try:
                said = done(name, job, options)
            except (ValueError, LostProcessError) as error:
                said = f"{type(error).__name__}: {error}"
            (place / f"{name}.rank{process.rank}.json").write_text(json.dumps(said))


all_done(300, {name: job for name, job in jobs.items() if job["what"] != "stop"})
threads = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
assert not any("gloo" in name for name in threads), threads  # one that is left may abort the process as Python ends
os.environ["MASTER_PORT"] = work["port"]  # the first one's store may not be gone
all_done(5, {name: job for name, job in jobs.items() if job["what"] == "stop"})
"""
MODEL = """
from torch import nn

def small(classes):
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=4, bias=False), nn.GroupNorm(2, 8), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
        nn.Linear(128, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, classes),
    )

class Spare(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.used, self.unused = small(classes), nn.Linear(3, 3)

    def forward(self, x):
        return self.used(x)

def spare(classes):
    return Spare(classes)
"""


def filled(folder):
    """A folder with a model of one's own, 21 images and a list of them."""
    image = pytest.importorskip("PIL.Image")
    generator = np.random.default_rng(0)
    (folder / "own_model.py").write_text(MODEL)
    lines = []
    for k in range(21):
        pixels = generator.integers(0, 256, (40, 50, 3), dtype=np.uint8)
        pixels[..., k % 3] //= 4
        image.fromarray(pixels).save(folder / f"{k}.png")
        lines.append(f"{k}.png {k % 3}")
    (folder / "list.txt").write_text("\n".join(lines))
    return folder


@pytest.fixture
def place(tmp_path):
    return filled(tmp_path)


def environment(place, **more):
    """This checkout's package, and the modules in a folder."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(place), os.environ["PYTHONPATH"]]), "OMP_NUM_THREADS": "1", **more}


def started(place, jobs):
    """The outputs of two processes that do all the jobs; once more if another process took the port before they did."""
    for _ in range(3):
        outputs = started_once(place, jobs)
        if not any("EADDRINUSE" in output or "ddress already in use" in output for output in outputs):
            break
    return outputs


def started_once(place, jobs):
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        second.bind(("127.0.0.1", 0))
        port, later = (str(probe.getsockname()[1]) for probe in (first, second))
    facts = json.dumps({"place": str(place), "jobs": jobs, "port": later})
    shared = environment(place, MASTER_ADDR="127.0.0.1", MASTER_PORT=port, WORLD_SIZE="2")
    outputs = [place / f"output{rank}.txt" for rank in range(2)]
    running = []
    for rank, output in enumerate(outputs):
        with output.open("w") as told:
            words, its = [sys.executable, "-c", SCRIPT, facts], {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            running.append(subprocess.Popen(words, env=its, cwd=place, stdout=told, stderr=subprocess.STDOUT))
    try:
        assert running[0].wait(timeout=300) == 0, outputs[0].read_text() + outputs[1].read_text()
    finally:
        for process in running:  # the second has stopped itself, as its last job wants
            process.kill()
            process.wait()
    return [output.read_text() for output in outputs]


def settings(place, **changes):
    facts = {"dataset": str(place / "list.txt"), "loss": "jal-ce", "loss_options": {"a": 3.0}, "model": "own_model:small"}
    return {**facts, "augment": "flip", "epochs": 2, "batch": 8, "lr": 0.05, "l1": 1e-4, "clip": 1.0, "seed": 3, **changes}


class Two(NamedTuple):
    """What two processes left in a folder, and what one process left there before."""

    place: Path
    alone: dict[str, Outcome]
    probabilities: np.ndarray

    def record(self, name):
        return json.loads((self.place / name / "record.json").read_text())

    def said(self, name):
        return [json.loads((self.place / f"{name}.rank{rank}.json").read_text()) for rank in range(2)]


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """All that two processes are to show, in one start of them: importing torch takes longer than any of it."""
    place = filled(tmp_path_factory.mktemp("two"))
    noisy, longer = settings(place, test_size=0.3, noise="symmetric:0.3"), settings(place, epochs=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(place)
        options = RunOptions(workers=0)
        alone = {
            "train": train(Recipe.from_dict(noisy), folder=place / "one", options=options),
            "resume": train(Recipe.from_dict(longer), options=options),
        }
        run = Run(Recipe.from_dict(settings(place)), task := prepare(Recipe.from_dict(settings(place))), options)
        run.train_epoch(0)
        probabilities = run.probabilities(task.train)
        run.close()
        for name in ("resume", "elsewhere"):
            with pytest.raises(StoppedError):
                train(Recipe.from_dict(longer), folder=place / name, options=options, checkpoint_seconds=0, callback=StopIn(2))
    (place / "before").write_bytes((place / "elsewhere" / "checkpoint.safetensors").read_bytes())
    jobs = {
        "train": {"what": "train", "recipe": noisy},
        "probabilities": {"what": "probabilities", "recipe": settings(place)},
        "result": {"what": "train", "recipe": settings(place, epochs=1), "workers": 1},
        "resume": {"what": "train", "recipe": longer},
        "elsewhere": {"what": "train", "recipe": longer, "elsewhere": "-elsewhere"},
        "spare": {"what": "train", "recipe": settings(place, epochs=1, model="own_model:spare")},
        "stopped": {"what": "stop", "recipe": longer},
    }
    started(place, jobs)
    return Two(place, alone, probabilities)


def test_two_processes_train_what_one_does(two):
    one, record = two.alone["train"].record.as_dict(), two.record("train")
    assert record["task"] == one["task"]
    assert [facts["environment"]["processes"] for facts in (one, record)] == [1, 2]
    for ours, expected in zip(record["epochs"], one["epochs"], strict=True):
        assert ours["loss"] == pytest.approx(expected["loss"], rel=1e-5)
        for key in ("given_accuracy", "clean_accuracy", "test_accuracy", "lr"):
            assert ours[key] == expected[key], key
    assert record["result"]["accuracy_by_class"] == one["result"]["accuracy_by_class"]
    weights = [load_file(two.place / name / "weights.safetensors") for name in ("one", "train")]
    assert weights[0].keys() == weights[1].keys()
    for name, tensor in weights[0].items():
        torch.testing.assert_close(
            weights[1][name], tensor, rtol=1e-4, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}"
        )
    confidence = [np.load(two.place / name / "confidence.npz") for name in ("one", "train")]
    np.testing.assert_allclose(confidence[1]["probability"], confidence[0]["probability"], rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(confidence[1]["predicted"], confidence[0]["predicted"])


def test_every_process_gets_the_probabilities_of_all_examples(two):
    """21 files, of which a batch of evaluation has 64 from each process."""
    found = [np.load(two.place / f"probabilities.rank{rank}.npy") for rank in range(2)]
    assert found[0].shape == (21, 3)
    np.testing.assert_array_equal(*found)
    np.testing.assert_allclose(found[0], two.probabilities, rtol=1e-3, atol=1e-4)


def test_every_process_knows_the_result_and_one_writes_it(two):
    results = two.said("result")
    assert results[0] == results[1] == two.record("result")["result"]
    assert sorted(path.name for path in (two.place / "result").iterdir()) == [
        "confidence.npz",
        "record.json",
        "weights.safetensors",
    ]


def test_two_processes_go_on_where_one_was_stopped(two):
    record, whole = two.record("resume"), two.alone["resume"].record
    assert record["environment"]["earlier"][0]["processes"] == 1
    assert [e["loss"] for e in record["epochs"]] == pytest.approx([e.loss for e in whole.epochs], rel=1e-5)


def test_processes_that_see_different_folders_stop_before_the_first_step(two):
    assert all("ValueError: the epochs that are done differ between the processes" in said for said in two.said("elsewhere"))
    assert (two.place / "elsewhere" / "checkpoint.safetensors").read_bytes() == (two.place / "before").read_bytes()


def test_a_parameter_that_is_not_used_does_not_stop_two_processes(two):
    assert two.record("spare")["status"] == "finished"


def test_a_process_that_is_stopped_does_not_hold_the_other_for_ever(two):
    """It stops in its second epoch and never answers; the other says so after five seconds. The first epoch is kept."""
    assert not (two.place / "stopped.rank1.json").exists()
    said = json.loads((two.place / "stopped.rank0.json").read_text())
    assert said.startswith("LostProcessError: process 1 of 2, counted from 0, has ended or does not answer (")
    assert said.endswith("; the same command goes on from the last checkpoint")
    assert len(read_checkpoint(two.place / "stopped")[1]["epochs"]) == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "[../gloo/transport/tcp/pair.cc:537] Connection closed by peer [127.0.0.1]:4242",
            "not answer (Connection closed",
        ),
        ("[..] Timed out waiting 3000ms for recv operation to complete", "has ended or does not answer (Timed out"),
        ("CUDA error: an illegal memory access", None),
    ],
)
def test_what_is_said_of_a_lost_process(text, says):
    with pytest.raises(RuntimeError if says is None else LostProcessError, match=re.escape(says or text)), answering(2):
        raise RuntimeError(text)
    with pytest.raises(RuntimeError, match=re.escape(text)), answering(1):
        raise RuntimeError(text)


def under_torchrun(place, *words):
    """The command in two processes."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    given = ["jal-ce", "--data", "list.txt", "--model", "own_model:small", "--out", "runs", "--workers", "0", "--device", "cpu"]
    chosen = ["--set", "epochs=1", "--set", "augment=none", "--set", "precision=float32"]
    command = [*torchrun, "-m", "noiseproof", "train", *given, *chosen, *words]
    return subprocess.run(command, env=environment(place), cwd=place, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("rank", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_what_stops_one_process_is_said_by_it(place, rank):
    """An image is damaged that only this process reads: of a batch of 20 each has ten."""
    damaged = keyed_order(21, 3, 0, ORDER)[10 * rank + 5]
    (place / f"{damaged}.png").write_bytes(b"not an image")
    done = under_torchrun(place, "--set", "batch=20", "--seed", "3", "--timeout", "60")
    assert done.returncode
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert "warning: the last batch of an epoch, 1, is left out: fewer than the 2 processes" in done.stderr
    assert "2 processes; one that does not answer for 60 s ends the run" in done.stdout
    who = "process 1: " if rank else ""
    assert any(line.startswith(f"error: {who}./{damaged}.png: not an image") for line in errors), done.stderr


def test_what_stops_all_processes_is_said(place):
    done = under_torchrun(place, "--set", "batch=7", "--set", "size=none")
    assert done.returncode
    assert re.search(r"^error: (process 1: )?batch=7 cannot be divided evenly among 2 processes", done.stderr, re.MULTILINE)


def test_the_command_under_torchrun_speaks_once(place):
    done = under_torchrun(place, "--set", "batch=8", "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["status"] == "finished"
    assert (place / facts["folder"] / "weights.safetensors").is_file()


def test_batch_norm_is_refused_on_a_cpu():
    with pytest.raises(ValueError, match="shares BatchNorm among processes on GPUs alone: on a CPU"):
        joined(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), torch.device("cpu"), False)
