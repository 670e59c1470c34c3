"""A run ends with what it says: results, files, the same numbers again, and the truth about a run that went wrong."""

import dataclasses
import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from noiseproof.data import load_digits
from noiseproof.losses import create_loss
from noiseproof.models import create_model
from noiseproof.train import (
    Callback,
    CheckpointError,
    DivergenceError,
    Predictions,
    Recipe,
    Record,
    Run,
    RunStore,
    loop,
    override,
    prepare,
    train,
)
from noiseproof.train.runs import write_confidence


def test_a_run_writes_its_record_weights_and_confidence_and_nothing_else(digits, tmp_path):
    outcome = train(digits, folder=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["confidence.npz", "record.json", "weights.safetensors"]
    facts = json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))
    assert facts["status"] == "finished"
    assert facts["recipe"] == digits.as_dict()
    assert facts["result"] == outcome.record.result
    assert [epoch["epoch"] for epoch in facts["epochs"]] == [1, 2, 3, 4, 5, 6]
    assert facts["task"]["noise"]["rate"] == pytest.approx(0.4, abs=5e-3)
    assert set(facts["seconds"]) == {"prepare", "train", "evaluate", "save"}
    assert facts["environment"]["torch"] == torch.__version__
    assert facts["loss"] == repr(create_loss(digits.loss, **digits.loss_options))
    assert (facts["environment"]["path"], facts["environment"]["deterministic"]) == ("plain", False)
    arrays = np.load(tmp_path / "confidence.npz")
    assert arrays["epochs"].tolist() == [2, 4, 6]
    assert arrays["probability"].shape == (3, 1297)
    assert np.array_equal(arrays["given"] != arrays["clean"], outcome.task.wrong)


def test_the_result_is_that_of_the_weights_it_saved(digits, tmp_path):
    """Computed anew from the files alone, in plain NumPy."""
    result = train(digits, folder=tmp_path).record.result
    weights = {name: tensor.numpy().astype(np.float64) for name, tensor in load_file(tmp_path / "weights.safetensors").items()}
    data, arrays = load_digits(), np.load(tmp_path / "confidence.npz")

    def logits(x):
        return (
            np.maximum(x @ weights["body.0.weight"].T + weights["body.0.bias"], 0) @ weights["fc.weight"].T + weights["fc.bias"]
        )

    right = logits(data.test.inputs).argmax(1) == data.test.labels
    assert result["test_accuracy"] == right.mean()
    assert result["accuracy_by_class"] == [right[data.test.labels == k].mean() for k in range(10)]
    z = logits(data.train.inputs)
    wrong = arrays["given"] != data.train.labels
    agrees = z.argmax(1) == arrays["given"]
    assert result["wrong_labels_memorised"] == agrees[wrong].mean()
    assert result["right_labels_learned"] == agrees[~wrong].mean()
    p = np.exp(z - z.max(1, keepdims=True))
    given = (p / p.sum(1, keepdims=True))[np.arange(len(z)), arrays["given"]]
    assert np.allclose(arrays["probability"][-1], given, atol=1e-5)


def test_saved_weights_load_into_the_catalogues_model(digits, tmp_path):
    train(digits, folder=tmp_path)
    model = create_model("mlp", 10, in_features=64, hidden=[32])
    model.load_state_dict(load_file(tmp_path / "weights.safetensors"))


def test_the_same_seed_gives_the_same_files_and_another_seed_gives_others(digits, tmp_path, files):
    train(digits, folder=tmp_path / "a")
    train(digits, folder=tmp_path / "b")
    train(dataclasses.replace(digits, seed=6), folder=tmp_path / "c")
    first, again, other = (files(tmp_path / name) for name in "abc")
    assert first == again
    assert first[1]["weights.safetensors"] != other[1]["weights.safetensors"]
    assert first[4]["noise"]["hash"] != other[4]["noise"]["hash"]


def test_training_leaves_torchs_generator_and_switches_alone(digits):
    before = torch.get_rng_state(), torch.backends.cudnn.benchmark, torch.are_deterministic_algorithms_enabled()
    train(digits)
    after = torch.get_rng_state(), torch.backends.cudnn.benchmark, torch.are_deterministic_algorithms_enabled()
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]


def test_between_two_batches_of_an_evaluation_gradients_are_as_the_caller_has_them(digits):
    run = Run(digits, prepare(digits))
    for _, logits in run.engine.evaluated(run.loader):
        assert torch.is_grad_enabled()
        assert not logits.requires_grad


def test_a_finished_run_is_shown_and_not_run_again(digits, tmp_path, files):
    first = train(digits, folder=tmp_path)
    before = files(tmp_path)

    class Never(Callback):
        def on_train_begin(self, record, epochs_done):
            raise AssertionError("it started again")

    again = train(digits, folder=tmp_path, callback=Never())
    assert again.record.result == first.record.result
    assert sorted(again.predictions) == [2, 4, 6]
    assert all(np.array_equal(again.predictions[epoch], first.predictions[epoch]) for epoch in (2, 4, 6))
    assert files(tmp_path) == before


def test_a_finished_run_with_a_damaged_file_says_so(digits, tmp_path):
    train(digits, folder=tmp_path)
    content = (tmp_path / "confidence.npz").read_bytes()
    (tmp_path / "confidence.npz").write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"confidence\.npz: damaged, in a run that is finished"):
        train(digits, folder=tmp_path)
    facts = json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))
    del facts["files"]  # of before
    (tmp_path / "record.json").write_text(json.dumps(facts), encoding="utf-8")
    with pytest.raises(ValueError, match=r"confidence\.npz: damaged, in a run that is finished: a damaged zip file"):
        train(digits, folder=tmp_path)


@pytest.mark.parametrize("name", ["weights.safetensors", "confidence.npz"])
@pytest.mark.parametrize("fault", ["gone", "damaged"])
def test_a_finished_run_whose_files_are_not_what_it_wrote_says_so(digits, tmp_path, name, fault):
    short = override(digits, {"epochs": 1})
    train(short, folder=tmp_path)
    assert set(Record.read(tmp_path).files) == {"weights.safetensors", "confidence.npz"}
    content = bytearray((tmp_path / name).read_bytes())
    content[-5] ^= 1
    if fault == "gone":
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=rf"{name}: {fault}, in a run that is finished; move the folder away"):
        train(short, folder=tmp_path)


def test_a_finished_run_of_before_has_no_digests_and_is_shown(digits, tmp_path):
    short = override(digits, {"epochs": 1})
    result = train(short, folder=tmp_path).record.result
    facts = json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))
    for key in ("files", "loss_constant", "warnings"):
        facts.pop(key, None)
    (tmp_path / "record.json").write_text(json.dumps(facts), encoding="utf-8")
    (tmp_path / "weights.safetensors").unlink()
    assert train(short, folder=tmp_path).record.result == result


@pytest.fixture
def read_only(tmp_path):
    """Makes a folder, filled by a run, read-only: a file system of its own where one can be mounted."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = not subprocess.run(["mount", "-t", "tmpfs", "none", place], capture_output=True, check=False).returncode
    if not mounted:
        pytest.skip("no file system can be mounted here")

    def protect():
        subprocess.run(["mount", "-o", "remount,ro", place], check=True)
        return place

    yield place, protect
    subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.parametrize("left", [(), ("checkpoint.safetensors", ".record.json.abcd")])
def test_a_finished_run_on_a_read_only_file_system_is_shown(digits, read_only, left):
    place, protect = read_only
    short = override(digits, {"epochs": 1})
    result = train(short, folder=place / "run").record.result
    for name in left:
        (place / "run" / name).touch()
    protect()
    assert train(short, folder=place / "run").record.result == result
    with pytest.raises(OSError, match="Read-only file system"):
        train(digits, folder=place / "another")


@pytest.mark.parametrize("change", [{"batch": 1, "model.batch_norm": True}, {"weights": "gone.pt"}, {"model.hidden": "x"}])
def test_a_run_that_fails_before_it_begins_leaves_no_folder(digits, tmp_path, change):
    with pytest.raises((ValueError, TypeError, OSError)):
        train(override(digits, change), prepare(digits), folder=tmp_path / "runs" / "one")
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_fails_leaves_the_folders_that_were_there(digits, tmp_path):
    (tmp_path / "runs" / "one").mkdir(parents=True)
    with pytest.raises(OSError, match=r"gone\.pt"):
        train(override(digits, {"weights": "gone.pt"}), prepare(digits), folder=tmp_path / "runs" / "one")
    assert (tmp_path / "runs" / "one").is_dir()


def test_the_last_write_is_timed_as_well(digits, tmp_path):
    train(override(digits, {"epochs": 1}), folder=tmp_path)
    assert Record.read(tmp_path).seconds["save"] > 0


def test_a_record_that_is_none_is_refused(digits, tmp_path):
    (tmp_path / "record.json").write_text('{"format": 1}', encoding="utf-8")
    with pytest.raises(ValueError, match=r"record\.json: not the record of a run"):
        train(digits, folder=tmp_path)


ODD = [
    ({"recipe": []}, "'recipe' must be an object, found []"),
    ({"task": None}, "'task' must be an object, found None"),
    ({"result": "good"}, "'result' must be an object, found 'good'"),
    ({"result": {"test_accuracy": "good"}}, "'result.test_accuracy' must be a share in [0, 1], found 'good'"),
    ({"result": {"accuracy_by_class": [0.5, "x"]}}, "'result.accuracy_by_class 2' must be a share in [0, 1], found 'x'"),
    ({"seconds": {"train": [1]}}, "'seconds.train' must be a number, found [1]"),
    ({"status": "done"}, "'status' must be one of running, finished, diverged, found 'done'"),
    ({"status": ["finished"]}, "'status' must be one of running, finished, diverged, found ['finished']"),
    ({"message": 5}, "'message' must be text, found 5"),
    ({"files": ["a"]}, "'files' must be an object, found ['a']"),
    ({"files": {"weights.safetensors": 1}}, "'files.weights.safetensors' must be text, found 1"),
    ({"warnings": [1]}, "'warnings 1' must be text, found 1"),
    ({"loss_constant": True}, "'loss_constant' must be a number, found True"),
    ({"epochs": {"1": 2}}, "'epochs' must be a list, found {'1': 2}"),
    ({"epochs": [3]}, "'epochs 1' must be an object, found 3"),
    ({"epochs": [{"epoch": 1}]}, "epoch 1 has no 'loss'"),
    ({"epochs": None}, "'epochs' must be a list, found None"),
    ({"format": "1"}, "format 1 expected, found '1'"),
    ({"task": {"name": "digits"}}, "its recipe or task is not that of a run: KeyError: 'noise'"),
    ({"recipe": {"noise": 3, "dataset": "digits"}}, "'recipe.noise' must be text, found 3"),
    ({"environment": "a machine"}, "'environment' must be an object"),
]


def test_a_record_with_odd_fields_gets_a_sentence(digits, tmp_path):
    """By a run, and by a store, which counts it as unreadable."""
    short = override(digits, {"epochs": 1})
    task = prepare(short)
    train(short, task, folder=tmp_path / "run")
    path = tmp_path / "run" / "record.json"
    whole = json.loads(path.read_text(encoding="utf-8"))
    high = {"epochs": [{**whole["epochs"][0], "lr": "high"}]}
    for change, says in [*ODD, (high, "'epochs 1.lr' must be a number, found 'high'")]:
        path.write_text(json.dumps({**whole, **change}), encoding="utf-8")
        with pytest.raises(ValueError, match=re.escape(says)) as error:
            train(short, task, folder=tmp_path / "run")
        assert "run" in str(error.value)
        (stored,) = RunStore(tmp_path).runs()
        assert stored.status == "unreadable", change
        assert says in stored.facts["message"]
    for text, says in (
        ('{"recipe":' * 200_000, "not read as JSON: it is nested too deeply"),
        ("[1]", "a record must be an object, found [1]"),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=re.escape(f"{path}: not the record of a run: {says}")):
            train(short, task, folder=tmp_path / "run")


def test_the_record_is_written_after_the_first_epoch_then_now_and_then_and_at_the_end(digits, tmp_path, monkeypatch):
    written, write = [], Record.write
    monkeypatch.setattr(Record, "write", lambda record, folder: (written.append(len(record.epochs)), write(record, folder)))
    train(digits, folder=tmp_path / "short", checkpoint_seconds=1e9)
    assert written == [1, 6]
    monkeypatch.setattr(loop, "RECORD_SECONDS", 0.0)
    train(digits, folder=tmp_path / "long", checkpoint_seconds=1e9)
    assert written[2:] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(("loss", "constant"), [("jal-ce", 84.1), ("amse", 84.1), ("ce", None), ("nce+mae", None)])
def test_the_losses_of_epochs_are_without_amses_constant(digits, tmp_path, loss, constant):
    """(a - 1)^2 / K = 29^2 / 10; with offset=False it is not there in the first place, and the weights are the same."""
    record = train(override(digits, {"epochs": 2, "loss": loss}), folder=tmp_path).record
    facts = json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))
    assert facts.get("loss_constant") == (None if constant is None else pytest.approx(constant, rel=1e-9))
    assert all(0 < epoch.loss < 10 for epoch in record.epochs)
    if constant is not None:
        without = train(override(digits, {"epochs": 2, "loss": loss, "loss.offset": False})).record
        assert without.loss_constant == 0
        assert [e.loss for e in record.epochs] == pytest.approx([e.loss for e in without.epochs], abs=1e-3)


def test_rows_of_the_confidence_lead_back_to_the_data(tmp_path):
    """With a share held out, rows are not those of the file; each has its position, and what is found there is its label."""
    y = np.random.default_rng(0).integers(0, 3, 60)
    np.savez(tmp_path / "mine.npz", x=np.random.default_rng(1).normal(size=(60, 4)), y=y)
    recipe = Recipe(dataset=str(tmp_path / "mine.npz"), loss="ce", noise="symmetric:0.3", test_size=0.25, epochs=1, batch=16)
    train(recipe, folder=tmp_path / "run")
    arrays = np.load(tmp_path / "run" / "confidence.npz")
    assert len(arrays["index"]) == len(set(arrays["index"].tolist())) == 45
    np.testing.assert_array_equal(arrays["clean"], y[arrays["index"]])
    assert (arrays["given"] != y[arrays["index"]]).any()
    train(dataclasses.replace(recipe, test_size=0.0), folder=tmp_path / "whole")
    np.testing.assert_array_equal(np.load(tmp_path / "whole" / "confidence.npz")["index"], np.arange(60))


def test_rows_of_the_confidence_in_image_files_have_their_paths(image_folder, tmp_path):
    task = prepare(Recipe(dataset=str(image_folder), loss="ce"))
    write_confidence(tmp_path, task, {1: Predictions(np.ones(20, np.float32), task.train.labels)})
    arrays = np.load(tmp_path / "confidence.npz")
    assert arrays["path"].tolist() == list(task.train.paths)
    assert [task.classes[k] for k in arrays["given"]] == [Path(path).parent.name for path in arrays["path"].tolist()]


def test_a_loss_that_is_not_finite_stops_the_run_and_leaves_the_record(digits, tmp_path):
    wild = override(digits, {"lr": 1e30})
    with pytest.raises(
        DivergenceError, match=r"the loss is (nan|inf) in epoch 1, step \d+ of 11, at learning rate 1e\+30; try"
    ):
        train(wild, folder=tmp_path)
    record = Record.read(tmp_path)
    assert record.status == "diverged"
    assert "in epoch 1, step" in record.message
    assert record.result == {}
    assert [path.name for path in tmp_path.iterdir()] == ["record.json"]


def test_a_loss_that_is_not_finite_is_noticed_before_the_end_of_a_long_epoch(digits):
    class Count(Callback):
        steps = 0

        def on_batch_end(self, epoch, done, total):
            self.steps += 1

    callback = Count()
    with pytest.raises(DivergenceError, match=r"in epoch 1, step [2-9] of 325, at"):
        train(override(digits, {"lr": 1e30, "batch": 4}), callback=callback)
    assert callback.steps == 100


def test_weights_that_break_in_the_very_last_step_are_noticed(digits, tmp_path):
    """One step: its loss is computed before the weights are ruined, so every loss is finite."""
    wild = override(digits, {"lr": 1e30, "epochs": 1, "batch": 2000})
    with pytest.raises(DivergenceError, match="output is not finite after epoch 1, though every loss was"):
        train(wild, folder=tmp_path)
    assert Record.read(tmp_path).status == "diverged"


def test_two_processes_do_not_work_in_one_folder(digits, tmp_path):
    class Second(Callback):
        def on_train_begin(self, record, epochs_done):
            with pytest.raises(ValueError, match="another process is at work in"):
                train(digits, folder=tmp_path)

    train(digits, folder=tmp_path, callback=Second())


def test_without_noise_nothing_is_said_about_clean_labels(digits, tmp_path):
    outcome = train(override(digits, {"noise": "none"}), folder=tmp_path)
    assert outcome.task.clean is None
    assert all(epoch.clean_accuracy is None for epoch in outcome.record.epochs)
    by_class = {"accuracy_by_class", "balanced_accuracy", "macro_f1"}
    assert set(outcome.record.result) == {"epoch", "test_accuracy", "given_labels_predicted", *by_class}
    assert "clean" not in np.load(tmp_path / "confidence.npz")


def test_without_a_test_split_no_test_accuracy_is_known(digits):
    task = dataclasses.replace(prepare(digits), test=None)
    outcome = train(digits, task)
    assert outcome.record.result["test_accuracy"] is None
    assert outcome.record.epochs[-1].test_accuracy is None
    assert outcome.record.task["test_examples"] == 0


def test_the_callback_is_told_of_every_batch_and_epoch_in_order(digits):
    heard = []

    class Ear(Callback):
        def on_train_begin(self, record, epochs_done):
            heard.append(("started", epochs_done))

        def on_batch_end(self, epoch, done, total):
            heard.append(("batch", epoch, done, total))

        def on_epoch_end(self, facts):
            heard.append(("epoch", facts.epoch))

        def on_train_end(self, record):
            heard.append(("ended", record.status))

    train(override(digits, {"epochs": "2", "batch": "700"}), callback=Ear())
    per_epoch = [[("batch", e, 700, 1297), ("batch", e, 1297, 1297), ("epoch", e + 1)] for e in (0, 1)]
    assert heard == [("started", 0), *per_epoch[0], *per_epoch[1], ("ended", "finished")]


def test_the_probabilities_of_all_classes_are_those_of_the_network(digits):
    """Computed anew from the weights, in plain NumPy; the given label's is the one that a run keeps."""
    task = prepare(digits)
    run = Run(digits, task)
    run.train_epoch(0)
    weights = {name: tensor.numpy().astype(np.float64) for name, tensor in run.network.state_dict().items()}
    for split in (task.train, task.test, task.train.take(np.arange(0, 1297, 7))):
        hidden = np.maximum(split.inputs @ weights["body.0.weight"].T + weights["body.0.bias"], 0)
        z = hidden @ weights["fc.weight"].T + weights["fc.bias"]
        p = np.exp(z - z.max(1, keepdims=True))
        np.testing.assert_allclose(run.probabilities(split), p / p.sum(1, keepdims=True), atol=1e-5)
    given = np.take_along_axis(run.probabilities(task.train), task.train.labels[:, None], 1)[:, 0]
    np.testing.assert_array_equal(given, run.predictions().probability)


def test_a_loss_that_changes_with_the_epochs_is_told_which_it_is(digits):
    """Sparse regularisation doubles its strength every second epoch, also after a resumption."""
    recipe = dataclasses.replace(digits, loss="sr", loss_options={"lam": 1.0, "growth": 2.0, "every": 2})
    run = Run(recipe, prepare(recipe))
    strengths = []
    for epoch in (0, 1, 2, 5):
        run.train_epoch(epoch)
        strengths.append(run.criterion.strength.item())
    assert strengths == [1.0, 1.0, 2.0, 4.0]
