"""Two processes that train one network: the result is that of one process with the same global batch, within rounding."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from noiseproof.data.loader import ORDER
from noiseproof.keyed_random import keyed_order
from noiseproof.train.distributed import SharedNorm

SCRIPT = """
import json, sys
from pathlib import Path
import torch
from noiseproof.train import Recipe, RunOptions, train
from noiseproof.train.distributed import process_group

facts = json.loads(sys.argv[1])
with process_group(torch.device("cpu")) as (process, device):
    options = RunOptions(device=device, workers=facts["workers"], process=process)
    folder = Path(facts["folder"] + (facts["elsewhere"] if process.rank else ""))
    outcome = train(Recipe.from_dict(facts["recipe"]), folder=folder, options=options, checkpoint_seconds=0)
    Path(facts["folder"] + f".rank{process.rank}.json").write_text(json.dumps(outcome.record.as_dict()["result"]))
threads = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
assert not any("gloo" in name for name in threads), threads  # one that is left may abort the process as Python ends
"""
PROBABILITIES = """
import json, sys
import numpy as np, torch
from noiseproof.train import Recipe, Run, RunOptions, prepare
from noiseproof.train.distributed import process_group

facts = json.loads(sys.argv[1])
recipe = Recipe.from_dict(facts["recipe"])
task = prepare(recipe)
with process_group(torch.device("cpu")) as (process, device):
    run = Run(recipe, task, RunOptions(device=device, workers=0, process=process))
    run.train_epoch(0)
    np.save(f"{facts['folder']}.rank{process.rank}.npy", run.probabilities(task.train))
    run.close()
    del run
"""
STOP = """
import sys
from noiseproof.train import Observer

class Stop(Observer):
    def epoch(self, facts):
        sys.exit()
"""
MODEL = """
from torch import nn

def small(classes):
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=4, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
        nn.Linear(128, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, classes),
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


@pytest.fixture
def place(tmp_path):
    """A folder with a model of one's own, 21 images and a list of them."""
    image = pytest.importorskip("PIL.Image")
    generator = np.random.default_rng(0)
    (tmp_path / "own_model.py").write_text(MODEL)
    lines = []
    for k in range(21):
        pixels = generator.integers(0, 256, (40, 50, 3), dtype=np.uint8)
        pixels[..., k % 3] //= 4
        image.fromarray(pixels).save(tmp_path / f"{k}.png")
        lines.append(f"{k}.png {k % 3}")
    (tmp_path / "list.txt").write_text("\n".join(lines))
    return tmp_path


def processes(place, world, folder, recipe, workers=0):
    """Run the script in so many processes, as torchrun would start them; returns the record."""
    facts = json.dumps({"recipe": recipe, "folder": str(folder), "workers": workers, "elsewhere": ""})
    codes, outputs = started(place, world, facts)
    assert codes == [0] * world, "\n".join(outputs)
    return json.loads((folder / "record.json").read_text())


def environment(place, **more):
    """This checkout's package, and the modules in a folder."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(place), os.environ["PYTHONPATH"]]), "OMP_NUM_THREADS": "1", **more}


def started(place, world, facts, script=SCRIPT):
    """The exit codes and the outputs of the processes; once more if another process took the port before they did."""
    for _ in range(3):
        codes, outputs = started_once(place, world, facts, script)
        if not any("EADDRINUSE" in output or "ddress already in use" in output for output in outputs):
            break
    return codes, outputs


def started_once(place, world, facts, script):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = environment(place, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    running = [
        subprocess.Popen(
            [sys.executable, "-c", script, facts],
            env={**shared, "WORLD_SIZE": str(world), "RANK": str(rank), "LOCAL_RANK": str(rank)},
            cwd=place,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(world)
    ]
    outputs = [process.communicate(timeout=300)[0] for process in running]
    return [process.returncode for process in running], outputs


def settings(place, **changes):
    facts = {"dataset": str(place / "list.txt"), "loss": "jal-ce", "loss_options": {"a": 3.0}, "model": "own_model:small"}
    return {**facts, "augment": "flip", "epochs": 2, "batch": 8, "lr": 0.05, "l1": 1e-4, "clip": 1.0, "seed": 3, **changes}


def test_two_processes_train_what_one_does(place):
    recipe = settings(place, test_share=0.3, noise="symmetric:0.3")
    one, two = (processes(place, world, place / f"world{world}", recipe) for world in (1, 2))
    assert one["task"] == two["task"]
    assert [record["environment"]["processes"] for record in (one, two)] == [1, 2]
    for ours, expected in zip(two["epochs"], one["epochs"], strict=True):
        assert ours["loss"] == pytest.approx(expected["loss"], rel=1e-5)
        for key in ("given_accuracy", "clean_accuracy", "test_accuracy", "lr"):
            assert ours[key] == expected[key], key
    weights = [load_file(place / f"world{world}" / "weights.safetensors") for world in (1, 2)]
    assert weights[0].keys() == weights[1].keys()
    for name, tensor in weights[0].items():
        torch.testing.assert_close(
            weights[1][name], tensor, rtol=1e-4, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}"
        )
    confidence = [np.load(place / f"world{world}" / "confidence.npz") for world in (1, 2)]
    np.testing.assert_allclose(confidence[1]["probability"], confidence[0]["probability"], rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(confidence[1]["predicted"], confidence[0]["predicted"])


def test_every_process_gets_the_probabilities_of_all_examples(place):
    """21 files, of which a batch of evaluation has 64 from each process."""
    recipe, found = settings(place), {}
    for world in (1, 2):
        facts = json.dumps({"recipe": recipe, "folder": str(place / f"world{world}")})
        codes, outputs = started(place, world, facts, PROBABILITIES)
        assert codes == [0] * world, "\n".join(outputs)
        found[world] = [np.load(place / f"world{world}.rank{rank}.npy") for rank in range(world)]
    assert found[1][0].shape == (21, 3)
    np.testing.assert_array_equal(*found[2])
    np.testing.assert_allclose(found[2][0], found[1][0], rtol=1e-3, atol=1e-4)


def test_every_process_knows_the_result_and_one_writes_it(place):
    recipe = settings(place, epochs=1)
    record = processes(place, 2, place / "run", recipe, workers=1)
    results = [json.loads(Path(f"{place}/run.rank{rank}.json").read_text()) for rank in range(2)]
    assert results[0] == results[1] == record["result"]
    assert sorted(path.name for path in (place / "run").iterdir() if not path.name.startswith(".")) == [
        "confidence.npz",
        "record.json",
        "weights.safetensors",
    ]


PATIENT = """
import noiseproof.cli.train, sys
from noiseproof.__main__ import main

sys.modules["noiseproof.cli.train"].FIRST_SPEAKS = 250.0
main()
"""


def under_torchrun(place, *words, patient=False):
    """The command in two processes. A patient second one does not speak before the first has ended, and it with it."""
    (place / "patient.py").write_text(PATIENT)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    given = ["jal-ce", "--data", "list.txt", "--model", "own_model:small", "--out", "runs", "--workers", "0", "--device", "cpu"]
    chosen = ["--set", "epochs=1", "--set", "augment=none", "--set", "precision=float32"]
    program = ["patient.py"] if patient else ["-m", "noiseproof"]
    command = [*torchrun, *program, "train", *given, *chosen, *words]
    return subprocess.run(command, env=environment(place), cwd=place, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("rank", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_what_stops_one_process_is_said_once(place, rank):
    """An image is damaged that only this process reads: of a batch of 20 each has ten."""
    damaged = keyed_order(21, 3, 0, ORDER)[10 * rank + 5]
    (place / f"{damaged}.png").write_bytes(b"not an image")
    done = under_torchrun(place, "--set", "batch=20", "--seed", "3")
    assert done.returncode
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    who = "process 1: " if rank else ""
    assert "the last batch of an epoch, 1, is left out: fewer than the 2 processes" in done.stdout
    assert len(errors) == 1, done.stderr
    assert errors[0].startswith(f"error: {who}./{damaged}.png: not an image")


def test_what_stops_all_processes_is_said_once(place):
    done = under_torchrun(place, "--set", "batch=7", patient=True)
    assert done.returncode
    assert done.stderr.count("batch=7 cannot be divided evenly among 2 processes") == 1
    assert "error: batch=7" in done.stderr


def test_the_command_under_torchrun_speaks_once(place):
    done = under_torchrun(place, "--set", "batch=8", "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["status"] == "finished"
    assert (place / facts["folder"] / "weights.safetensors").is_file()


def stopped_after_one_epoch(place, recipe, folder):
    facts = json.dumps({"recipe": recipe, "folder": str(folder), "workers": 0, "elsewhere": ""})
    code = SCRIPT.replace("checkpoint_seconds=0", "checkpoint_seconds=0, observer=Stop()")
    subprocess.run([sys.executable, "-c", STOP + code, facts], env=environment(place), cwd=place, check=True)
    assert len(json.loads((folder / "record.json").read_text())["epochs"]) == 1


def test_two_processes_go_on_where_one_was_stopped(place):
    recipe = settings(place, epochs=3)
    whole = processes(place, 1, place / "whole", recipe)
    stopped_after_one_epoch(place, recipe, place / "parts")
    record = processes(place, 2, place / "parts", recipe)
    assert [e["loss"] for e in record["epochs"]] == pytest.approx([e["loss"] for e in whole["epochs"]], rel=1e-5)


def test_processes_that_see_different_folders_stop_before_the_first_step(place):
    recipe = settings(place, epochs=3)
    stopped_after_one_epoch(place, recipe, place / "parts")
    before = (place / "parts" / "checkpoint.safetensors").read_bytes()
    facts = {"recipe": recipe, "folder": str(place / "parts"), "workers": 0, "elsewhere": "-elsewhere"}
    codes, outputs = started(place, 2, json.dumps(facts))
    assert all(codes)
    assert "the epochs that are done differ between the processes" in "".join(outputs)
    assert (place / "parts" / "checkpoint.safetensors").read_bytes() == before


def test_a_parameter_that_is_not_used_does_not_stop_two_processes(place):
    record = processes(place, 2, place / "run", settings(place, epochs=1, model="own_model:spare"))
    assert record["status"] == "finished"


def test_the_shared_norm_alone_is_batch_norm(tmp_path):
    """In a group of one process: values, gradients and running statistics, in float64."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    try:
        generator = torch.Generator().manual_seed(0)
        for norm, shape in ((nn.BatchNorm2d(5), (4, 5, 3, 2)), (nn.BatchNorm1d(5), (7, 5))):
            norm = norm.double()
            with torch.no_grad():
                norm.weight.uniform_(0.5, 2, generator=generator)
            plain = type(norm)(5).double()
            plain.load_state_dict(norm.state_dict())
            shared = SharedNorm(norm)
            assert shared.state_dict().keys() == plain.state_dict().keys()
            x = torch.randn(shape, generator=generator, dtype=torch.float64)
            upstream = torch.randn(shape, generator=generator, dtype=torch.float64)
            ours, theirs = (x.clone().requires_grad_() for _ in range(2))
            (shared(ours) * upstream).sum().backward()
            (plain(theirs) * upstream).sum().backward()
            torch.testing.assert_close(ours.grad, theirs.grad)
            torch.testing.assert_close(shared.weight.grad, plain.weight.grad)
            for name, value in plain.state_dict().items():
                torch.testing.assert_close(shared.state_dict()[name], value)
            torch.testing.assert_close(shared.eval()(x), plain.eval()(x))
    finally:
        torch.distributed.destroy_process_group()
