"""A run ends with what it says: results, files, the same numbers again, and the truth about a run that went wrong."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from noiseproof.data import load_digits
from noiseproof.losses import create_loss
from noiseproof.models import create_model
from noiseproof.train import DivergenceError, Observer, Recipe, Record, Run, RunOptions, override, prepare, train


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

    assert result["test_accuracy"] == (logits(data.test.inputs).argmax(1) == data.test.labels).mean()
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


def test_a_finished_run_is_shown_and_not_run_again(digits, tmp_path, files):
    first = train(digits, folder=tmp_path)
    before = files(tmp_path)

    class Never(Observer):
        def started(self, record, epochs_done):
            raise AssertionError("it started again")

    again = train(digits, folder=tmp_path, observer=Never())
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


def test_the_last_write_is_timed_as_well(digits, tmp_path):
    train(override(digits, {"epochs": 1}), folder=tmp_path)
    assert Record.read(tmp_path).seconds["save"] > 0


def test_a_record_that_is_none_is_refused(digits, tmp_path):
    (tmp_path / "record.json").write_text('{"format": 1}', encoding="utf-8")
    with pytest.raises(ValueError, match=r"record\.json: not the record of a run"):
        train(digits, folder=tmp_path)


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
    class Count(Observer):
        steps = 0

        def batch(self, epoch, done, total):
            self.steps += 1

    observer = Count()
    with pytest.raises(DivergenceError, match=r"in epoch 1, step [2-9] of 325, at"):
        train(override(digits, {"lr": 1e30, "batch": 4}), observer=observer)
    assert observer.steps == 100


def test_weights_that_break_in_the_very_last_step_are_noticed(digits, tmp_path):
    """One step: its loss is computed before the weights are ruined, so every loss is finite."""
    wild = override(digits, {"lr": 1e30, "epochs": 1, "batch": 2000})
    with pytest.raises(DivergenceError, match="output is not finite after epoch 1, though every loss was"):
        train(wild, folder=tmp_path)
    assert Record.read(tmp_path).status == "diverged"


def test_two_processes_do_not_work_in_one_folder(digits, tmp_path):
    class Second(Observer):
        def started(self, record, epochs_done):
            with pytest.raises(ValueError, match="another process is at work in"):
                train(digits, folder=tmp_path)

    train(digits, folder=tmp_path, observer=Second())


def test_without_noise_nothing_is_said_about_clean_labels(digits, tmp_path):
    outcome = train(override(digits, {"noise": "none"}), folder=tmp_path)
    assert outcome.task.clean is None
    assert all(epoch.clean_accuracy is None for epoch in outcome.record.epochs)
    assert set(outcome.record.result) == {"epoch", "test_accuracy", "given_labels_predicted"}
    assert "clean" not in np.load(tmp_path / "confidence.npz")


def test_without_a_test_split_no_test_accuracy_is_known(digits):
    task = dataclasses.replace(prepare(digits), test=None)
    outcome = train(digits, task)
    assert outcome.record.result["test_accuracy"] is None
    assert outcome.record.epochs[-1].test_accuracy is None
    assert outcome.record.task["test_examples"] == 0


def test_the_observer_hears_every_batch_and_epoch_in_order(digits):
    heard = []

    class Ear(Observer):
        def started(self, record, epochs_done):
            heard.append(("started", epochs_done))

        def batch(self, epoch, done, total):
            heard.append(("batch", epoch, done, total))

        def epoch(self, facts):
            heard.append(("epoch", facts.epoch))

        def ended(self, record):
            heard.append(("ended", record.status))

    train(override(digits, {"epochs": "2", "batch": "700"}), observer=Ear())
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
        np.testing.assert_allclose(run.logits(split), z, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(run.probabilities(split), p / p.sum(1, keepdims=True), atol=1e-5)
    given = np.take_along_axis(run.probabilities(task.train), task.train.labels[:, None], 1)[:, 0]
    np.testing.assert_array_equal(given, run.predictions().probability)


def test_an_image_that_is_left_out_has_no_probabilities(image_folder):
    (image_folder / "train" / "bright" / "3.png").write_bytes(b"not an image")
    recipe = Recipe(dataset=str(image_folder), loss="ce", model="resnet18", model_options={"stem": "imagenet"}, batch=4)
    task = prepare(recipe)
    run = Run(recipe, task, RunOptions(workers=0, skip_corrupt=True))
    found = run.probabilities(task.train)
    run.close()
    damaged = [path.endswith("bright/3.png") for path in task.train.paths]
    assert found.shape == (20, 2)
    assert np.isnan(found).all(1).tolist() == damaged
    np.testing.assert_allclose(np.nansum(found, 1), 1 - np.asarray(damaged), rtol=1e-6)


def test_a_loss_that_changes_with_the_epochs_is_told_which_it_is(digits):
    """Sparse regularisation doubles its strength every second epoch, also after a resumption."""
    recipe = dataclasses.replace(digits, loss="sr", loss_options={"lam": 1.0, "growth": 2.0, "every": 2})
    run = Run(recipe, prepare(recipe))
    strengths = []
    for epoch in (0, 1, 2, 5):
        run.train_epoch(epoch)
        strengths.append(run.criterion.strength.item())
    assert strengths == [1.0, 1.0, 2.0, 4.0]
