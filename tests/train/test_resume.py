"""Stopped at any moment and started again, a run ends as if it had never been stopped."""

import dataclasses
import errno
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from noiseproof.train import Callback, CheckpointError, Record, loop, override, train
from noiseproof.train.runs import read_checkpoint, write_checkpoint

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
DROPOUT = """
from torch import nn


def network(classes, width=16):
    return nn.Sequential(nn.Linear(64, width), nn.Dropout(0.5), nn.ReLU(), nn.BatchNorm1d(width), nn.Linear(width, classes))
"""


@pytest.fixture(scope="module")
def whole(digits, files, tmp_path_factory):
    """What the run of ``digits`` writes if nothing stops it."""
    folder = tmp_path_factory.mktemp("whole")
    train(digits, folder=folder)
    return files(folder)


KILLER = """
import json, os, random, signal, sys, time
from pathlib import Path

import sklearn.datasets
import torch._dynamo

from noiseproof.train import Recipe, train

recipe, folder, chance = Recipe.from_dict(json.loads(sys.argv[1])), Path(sys.argv[2]), random.Random(0)
checkpoint = folder / "checkpoint.safetensors"


def written():
    return checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0


for _ in range(6):
    before, child = written(), os.fork()
    if not child:
        train(recipe, folder=folder, checkpoint_seconds=0)
        os._exit(0)
    while written() == before:
        time.sleep(0.0005)
    time.sleep(chance.uniform(0, 0.06))
    os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == -signal.SIGKILL, "it ended before it could be killed: give it more epochs"
"""


def test_a_run_killed_at_random_moments_ends_the_same(digits, tmp_path, files):
    """Real processes and SIGKILL, between epochs, within them and while files are written.

    A process that has imported torch forks those that it kills: each of them would need seconds to import it.
    """
    longer = override(digits, {"epochs": 60})
    train(longer, folder=tmp_path / "whole")
    words = [sys.executable, "-c", KILLER, json.dumps(longer.as_dict()), str(tmp_path / "killed")]
    subprocess.run(words, check=True, timeout=600)
    done = len(read_checkpoint(tmp_path / "killed")[1]["epochs"])
    assert 6 <= done < 60
    train(longer, folder=tmp_path / "killed")
    assert files(tmp_path / "killed") == files(tmp_path / "whole")


@pytest.mark.slow
def test_a_run_killed_before_every_kind_of_file_system_event_and_at_random_moments_ends_the_same(digits, tmp_path):
    """Sixty kills or more: the first and the last of each kind of event, half of a write, and 30 random moments."""
    words = [sys.executable, "-m", "tests.helpers.killer", json.dumps(digits.as_dict()), str(tmp_path), "60"]
    done = subprocess.run(words, check=True, timeout=600, capture_output=True, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["different"] == []
    assert len(found["killed"]) >= 60
    assert set(found["kinds"]) == set(found["killed"]) - {"a random moment"}
    written = (".checkpoint.safetensors", ".confidence.npz", ".record.json", ".weights.safetensors")
    expected = {f"{kind} {name}" for name in written for kind in ("open", "fsync")}
    expected |= {f"os.rename {name[1:]}" for name in written} | {
        "os.mkdir folder",
        "fsync folder",
        "os.remove checkpoint.safetensors",
    }
    assert expected | {"write .checkpoint.safetensors", "write .weights.safetensors"} <= set(found["kinds"])


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 4])
def test_of_several_processes_on_one_folder_one_trains(tmp_path, count):
    """Started together, again and again while one is killed: no file is ever another process's, and it ends as if alone."""
    words = ["train", "digits/jal-ce", "--noise", "symmetric:0.4", "--set", "epochs=150", "--set", "model.hidden=[16]"]
    words = [sys.executable, "-m", "noiseproof", *words, "--checkpoint-every", "0", "--quiet", "--out"]
    alone = subprocess.run([*words, str(tmp_path / "alone")], check=True, timeout=600, capture_output=True, text=True)
    for attempt in range(3):
        started = [
            subprocess.Popen([*words, str(tmp_path / "shared")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for _ in range(count)
        ]
        if attempt < 2:  # all that are at work then are killed
            while not list((tmp_path / "shared").glob("*/checkpoint.safetensors")):
                time.sleep(0.01)
            time.sleep(0.3 * attempt)
            for process in started:
                process.kill()
        answers = [(*process.communicate(timeout=600), process.returncode) for process in started]
    refused = [errors for _, errors, status in answers if status == 2]
    results = [output for output, _, status in answers if status == 0]
    assert len(refused) + len(results) == count
    assert results
    assert set(results) == {alone.stdout}  # one that came after the end shows the result
    assert all("another process is at work in" in errors for errors in refused)
    (mine,), (theirs,) = (list((tmp_path / name).iterdir()) for name in ("alone", "shared"))
    assert {path.name: path.read_bytes() for path in mine.iterdir() if path.name != "record.json"} == {
        path.name: path.read_bytes() for path in theirs.iterdir() if path.name != "record.json"
    }


@pytest.mark.slow
def test_the_command_line_killed_at_random_moments_ends_the_same(tmp_path, files):
    def command(out):
        words = ["train", "digits/jal-ce", "--noise", "symmetric:0.4", "--set", "epochs=400", "--set", "model.hidden=[16]"]
        return [sys.executable, "-m", "noiseproof", *words, "--checkpoint-every", "0", "--quiet", "--out", str(out)]

    start = time.perf_counter()
    subprocess.run(command(tmp_path / "whole"), check=True, timeout=600)
    seconds = time.perf_counter() - start
    chance, kills, done = random.Random(1), 0, None
    while done is None and kills < 30:
        process = subprocess.Popen(command(tmp_path / "killed"))
        try:  # patience grows, so that a machine that has become slower ends as well
            done = process.wait(chance.uniform(0.2, 1) * seconds * (1 + kills / 10))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills += 1
    assert done == 0
    assert kills
    (whole,), (killed,) = (list((tmp_path / name).iterdir()) for name in ("whole", "killed"))
    assert files(killed) == files(whole)


@pytest.mark.parametrize(
    ("device", "model", "precision"),
    [
        pytest.param("cpu", "cnn8", "float32", marks=pytest.mark.slow),
        pytest.param("cuda", "cnn8", "tf32", marks=CUDA),
        pytest.param("cuda", "cnn8", "bf16", marks=CUDA),
        pytest.param("cuda", "resnet18", "bf16", marks=CUDA),
    ],
)
def test_images_in_deterministic_mode_end_the_same_in_every_process(device, model, precision, tmp_path, files):
    """Two whole runs and one that is killed, each a process of its own: all of their files are the same to the bit."""
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (200, 32, 32, 3), dtype=np.uint8)
    np.savez(tmp_path / "images.npz", x=images, y=np.arange(200) % 4, x_test=images[:40], y_test=np.arange(40) % 4)

    def command(out):
        words = ["train", "jal-ce", "--data", str(tmp_path / "images.npz"), "--model", model, "--noise", "symmetric:0.4"]
        for change in ("epochs=4", "batch=32", "lr=0.01", "augment=cifar10", "l1=5e-5", f"precision={precision}"):
            words += ["--set", change]
        more = ["--deterministic", "--device", device, "--checkpoint-every", "0", "--quiet", "--out", str(out)]
        return [sys.executable, "-m", "noiseproof", *words, *more]

    for name in ("whole", "again"):
        subprocess.run(command(tmp_path / name), check=True, timeout=300)
    with subprocess.Popen(command(tmp_path / "killed")) as process:
        while process.poll() is None and not list((tmp_path / "killed").glob("*/checkpoint.safetensors")):
            time.sleep(0.01)
        process.kill()
    (killed,) = (tmp_path / "killed").iterdir()
    assert Record.read(killed).status == "running"
    subprocess.run(command(tmp_path / "killed"), check=True, timeout=300)
    (whole,), (again,) = (list((tmp_path / name).iterdir()) for name in ("whole", "again"))
    assert files(whole) == files(again) == files(killed)


@pytest.mark.parametrize("epoch", [2, 4, 6])
def test_a_run_stopped_within_an_epoch_ends_the_same(digits, tmp_path, files, whole, interrupted, epoch):
    interrupted(digits, tmp_path / "stopped", epoch)
    assert len(read_checkpoint(tmp_path / "stopped")[1]["epochs"]) == epoch - 1
    train(digits, folder=tmp_path / "stopped")
    assert files(tmp_path / "stopped") == whole


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError])
def test_a_run_that_is_stopped_goes_on_from_its_last_checkpoint(digits, tmp_path, files, whole, monkeypatch, error):
    """It is of the second epoch; the record is of the fourth."""

    class Stop(Callback):
        def on_batch_end(self, epoch, done, total):
            if epoch == 4:
                raise error

    def write_second(folder, tensors, facts):
        if len(facts["epochs"]) == 2:
            write_checkpoint(folder, tensors, facts)

    monkeypatch.setattr(loop, "write_checkpoint", write_second)
    with pytest.raises(error):
        train(digits, folder=tmp_path / "stopped", checkpoint_seconds=0, callback=Stop())
    monkeypatch.undo()
    assert len(read_checkpoint(tmp_path / "stopped")[1]["epochs"]) == 2
    assert len(Record.read(tmp_path / "stopped").epochs) == 4
    train(digits, folder=tmp_path / "stopped")
    assert files(tmp_path / "stopped") == whole


def test_a_run_stopped_after_its_last_epoch_but_before_its_end_repeats_that_epoch(digits, tmp_path, files, whole):
    """There is no checkpoint after the last epoch: its results are to be written at once."""

    class Stop(Callback):
        def on_epoch_end(self, facts):
            if facts.epoch == 6:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(digits, folder=tmp_path, checkpoint_seconds=0, callback=Stop())
    tensors, facts = read_checkpoint(tmp_path)
    assert len(facts["epochs"]) == 5
    assert not any(name.startswith("predictions.") and name.endswith(".6") for name in tensors)
    train(digits, folder=tmp_path)
    assert files(tmp_path) == whole


def test_a_stop_after_the_end_leaves_a_finished_run(digits, tmp_path, files, whole):
    class Stop(Callback):
        def on_train_end(self, record):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(digits, folder=tmp_path, checkpoint_seconds=1e9, callback=Stop())
    assert files(tmp_path) == whole


def test_a_run_of_before_that_is_resumed_keeps_its_way_of_telling_the_loss(digits, tmp_path, interrupted):
    """Its first epochs have AMSE's constant in their losses; the others must not be told without it."""
    interrupted(digits, tmp_path, 3)
    tensors, facts = read_checkpoint(tmp_path)
    constant = facts.pop("loss_constant")
    for epoch in facts["epochs"]:
        epoch["loss"] += constant
    write_checkpoint(tmp_path, tensors, facts)
    (tmp_path / "record.json").unlink()
    record = train(digits, folder=tmp_path).record
    assert record.loss_constant == 0
    assert all(constant < epoch.loss < constant + 10 for epoch in record.epochs)


@pytest.mark.parametrize("fault", ["too many epochs", "no predictions", "short predictions", "other numbers"])
def test_a_checkpoint_that_cannot_be_of_this_run_is_refused(digits, tmp_path, interrupted, fault):
    """Whole by its digest, and yet not what a run writes."""
    interrupted(digits, tmp_path, 4)
    tensors, facts = read_checkpoint(tmp_path)
    if fault == "too many epochs":
        facts["epochs"] = [{**facts["epochs"][0], "epoch": k} for k in range(1, 7)]
    elif fault == "no predictions":
        del tensors["predictions.predicted.2"]
    elif fault == "other numbers":
        tensors["network.fc.weight"] = tensors["network.fc.weight"].double()
    else:
        tensors["predictions.probability.2"] = tensors["predictions.probability.2"][:-1]
    write_checkpoint(tmp_path, tensors, facts)
    says = {"too many epochs": "6 epochs of 6 behind it", "other numbers": r"no 'network.fc.weight' of shape \[10, 32\]"}
    says = says.get(fault, "no predictions of 1297 examples after epoch 2")
    with pytest.raises(CheckpointError, match=f"does not fit: it has {says}; move it away"):
        train(digits, folder=tmp_path)


def test_the_record_names_every_machine_that_a_run_was_on(digits, tmp_path, monkeypatch, interrupted):
    for machine, epoch in (("first", 2), ("first", 3), ("second", 4)):
        monkeypatch.setattr(loop, "environment", lambda device, name=machine: {"machine": name, "date": "a day"})
        interrupted(digits, tmp_path, epoch)
    monkeypatch.setattr(loop, "environment", lambda device: {"machine": "third", "date": "another day"})
    found = train(digits, folder=tmp_path).record.environment
    assert found["machine"] == "third"
    assert [place["machine"] for place in found["earlier"]] == ["first", "second"]


def test_a_run_stopped_before_its_first_checkpoint_starts_anew(digits, tmp_path, files, whole, interrupted):
    interrupted(digits, tmp_path / "stopped", 1)
    train(digits, folder=tmp_path / "stopped")
    assert files(tmp_path / "stopped") == whole


@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
def test_a_model_of_ones_own_with_dropout_and_buffers_goes_on_the_same(
    digits, tmp_path, files, interrupted, monkeypatch, optimiser
):
    (tmp_path / "my_dropout.py").write_text(DROPOUT, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    own = override(digits, {"model": "my_dropout:network", "model.width": 8, "optimiser": optimiser, "nesterov": True})
    train(own, folder=tmp_path / "whole")
    torch.manual_seed(99)
    interrupted(own, tmp_path / "stopped", 3)
    train(own, folder=tmp_path / "stopped")
    assert files(tmp_path / "stopped") == files(tmp_path / "whole")


@pytest.mark.parametrize("changes", [{"loss": "nl"}, {"loss": "sr"}, {"loss": "nce+rce"}, {"elr": 3.0}], ids=str)
def test_losses_that_draw_or_compose_and_early_learning_regularisation_go_on_the_same(
    digits, tmp_path, files, interrupted, changes
):
    other = override(digits, changes)
    train(other, folder=tmp_path / "whole")
    interrupted(other, tmp_path / "stopped", 3)
    train(other, folder=tmp_path / "stopped")
    assert files(tmp_path / "stopped") == files(tmp_path / "whole")


def test_a_kill_between_the_record_and_the_end_leaves_a_finished_run(digits, tmp_path, interrupted, files):
    interrupted(digits, tmp_path, 4)
    left = (tmp_path / "checkpoint.safetensors").read_bytes()
    train(digits, folder=tmp_path)
    before = files(tmp_path)
    (tmp_path / "checkpoint.safetensors").write_bytes(left)
    (tmp_path / ".record.json.0a1b2c3d").touch()  # as a killed write_whole leaves it
    train(digits, folder=tmp_path)
    assert files(tmp_path) == before


def test_any_flipped_byte_in_a_checkpoint_is_noticed(digits, tmp_path, interrupted):
    interrupted(digits, tmp_path, 3)
    path = tmp_path / "checkpoint.safetensors"
    whole = path.read_bytes()
    header = int.from_bytes(whole[:8], "little")
    places = [*range(0, 8 + header, 61), *range(8 + header, len(whole), len(whole) // 40), len(whole) - 1]
    for place in places:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match="move it away to start anew"):
            read_checkpoint(tmp_path)
    path.write_bytes(whole)
    assert read_checkpoint(tmp_path) is not None


def test_a_tensor_of_another_shape_with_the_same_bytes_is_noticed(digits, tmp_path, interrupted):
    interrupted(digits, tmp_path, 3)
    path = tmp_path / "checkpoint.safetensors"
    path.write_bytes(path.read_bytes().replace(b'"shape":[32,64]', b'"shape":[64,32]', 1))
    with pytest.raises(CheckpointError, match="damaged, its content is not what was written"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize("kept", [0, 7, 100, 0.5, -1])
def test_a_truncated_checkpoint_is_refused(digits, tmp_path, interrupted, kept):
    interrupted(digits, tmp_path, 3)
    path = tmp_path / "checkpoint.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[: int(kept * len(whole)) if isinstance(kept, float) else kept])
    with pytest.raises(CheckpointError, match="damaged, or no checkpoint"):
        train(digits, folder=tmp_path)


def test_a_file_of_tensors_that_is_no_checkpoint_is_refused(digits, tmp_path):
    train(digits, folder=tmp_path / "other")
    (tmp_path / "run").mkdir()
    (tmp_path / "other" / "weights.safetensors").rename(tmp_path / "run" / "checkpoint.safetensors")
    with pytest.raises(CheckpointError, match="not a checkpoint of this version"):
        train(digits, folder=tmp_path / "run")


def test_a_checkpoint_of_another_recipe_is_refused_with_the_difference(digits, tmp_path, interrupted):
    interrupted(digits, tmp_path, 3)
    (tmp_path / "record.json").unlink()
    with pytest.raises(CheckpointError, match=r"is of another run: lr is 0\.002, not 0\.5; seed is 5, not 6\. Choose"):
        train(dataclasses.replace(digits, lr=0.5, seed=6), folder=tmp_path)


def test_a_checkpoint_of_other_labels_is_refused(digits, tmp_path, interrupted):
    labels = np.random.default_rng(0).integers(0, 10, 1297)
    np.save(tmp_path / "labels.npy", labels)
    other = override(digits, {"noise": f"labels:{tmp_path / 'labels.npy'}"})
    interrupted(other, tmp_path / "run", 3)
    np.save(tmp_path / "labels.npy", labels[::-1].copy())
    with pytest.raises(CheckpointError, match=r"is of another run: its labels were \{.*'hash'"):
        train(other, folder=tmp_path / "run")


def test_a_checkpoint_of_another_network_is_refused(digits, tmp_path, interrupted, monkeypatch):
    """The same words for the model, but its code has changed."""
    (tmp_path / "my_changing.py").write_text(DROPOUT, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    own = override(digits, {"model": "my_changing:network"})
    interrupted(own, tmp_path / "run", 3)
    monkeypatch.setattr("my_changing.network.__defaults__", (9,))
    with pytest.raises(CheckpointError, match=r"does not fit: it has no 'network\.0\.weight' of shape \[9, 64\]"):
        train(own, folder=tmp_path / "run")


def test_a_record_of_an_earlier_version_is_still_the_same_runs(digits, tmp_path):
    """One that did not yet have the loss in full."""
    train(digits, folder=tmp_path)
    path = tmp_path / "record.json"
    facts = json.loads(path.read_text(encoding="utf-8"))
    del facts["loss"]
    path.write_text(json.dumps(facts), encoding="utf-8")
    assert train(digits, folder=tmp_path).record.result == facts["result"]


def fill_the_disk_at(monkeypatch, name):
    """Make writing this file fail half-way, as on a full disk."""

    def write_bytes(path, content):
        full = path.name.startswith(f".{name}.")
        with path.open("wb") as file:
            written = file.write(content[: len(content) // 2] if full else content)
        if full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return written

    monkeypatch.setattr(Path, "write_bytes", write_bytes)


@pytest.mark.parametrize("name", ["checkpoint.safetensors", "weights.safetensors"])
def test_a_disk_that_fills_up_within_a_write_loses_nothing(digits, tmp_path, files, whole, interrupted, monkeypatch, name):
    interrupted(digits, tmp_path / "full", 4)
    before = {path.name: path.read_bytes() for path in (tmp_path / "full").iterdir()}
    with monkeypatch.context() as patch:
        fill_the_disk_at(patch, name)
        with pytest.raises(OSError, match=f"No space left on device: '.*full/{name}'"):
            train(digits, folder=tmp_path / "full", checkpoint_seconds=0)
    after = {path.name: path.read_bytes() for path in (tmp_path / "full").iterdir()}
    assert set(after) == set(before)
    if name == "checkpoint.safetensors":
        assert after[name] == before[name]
    assert read_checkpoint(tmp_path / "full") is not None
    train(digits, folder=tmp_path / "full")
    assert files(tmp_path / "full") == whole


@pytest.fixture
def tiny_disk(tmp_path):
    place = tmp_path / "disk"
    place.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "none", place], capture_output=True, check=False)
    if mount.returncode:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_disk_that_is_really_full_loses_nothing(digits, tmp_path, tiny_disk, files, whole, interrupted):
    interrupted(digits, tiny_disk / "run", 3)
    before = (tiny_disk / "run" / "checkpoint.safetensors").read_bytes()
    (tiny_disk / "filler").write_bytes(bytes(os.statvfs(tiny_disk).f_bavail * os.statvfs(tiny_disk).f_frsize - 8192))
    with pytest.raises(OSError, match="No space left on device"):
        train(digits, folder=tiny_disk / "run", checkpoint_seconds=0)
    assert (tiny_disk / "run" / "checkpoint.safetensors").read_bytes() == before
    assert sorted(path.name for path in (tiny_disk / "run").iterdir()) == ["checkpoint.safetensors", "record.json"]
    (tiny_disk / "filler").unlink()
    train(digits, folder=tiny_disk / "run")
    assert files(tiny_disk / "run") == whole
