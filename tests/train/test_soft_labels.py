"""Training on class probabilities in place of labels, as an audit writes them."""

import dataclasses
import hashlib

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from typer.testing import CliRunner

from noiseproof import noise
from noiseproof.cli import app
from noiseproof.data import load_digits
from noiseproof.noise.files import SoftLabels
from noiseproof.train import Recipe, Record, Run, RunStore, prepare, train, with_noise
from noiseproof.train.batch_loader import EpochPlan
from noiseproof.train.record import task_facts

TRUE = load_digits().train.labels
GIVEN = noise.symmetric(10, 0.3).apply(TRUE, seed=0).labels


def posterior(seed=0):
    """Half of it on the true label."""
    spread = np.random.default_rng(seed).dirichlet(np.ones(10), len(TRUE))
    return (0.5 * spread + 0.5 * np.eye(10)[TRUE]).astype(np.float32)


@pytest.fixture
def soft(tmp_path):
    """A file of soft labels and a short recipe that trains on it."""
    path = tmp_path / "posterior.npz"
    np.savez_compressed(path, posterior=posterior(), given=GIVEN, classes=np.array(list("0123456789")))
    return Recipe(dataset="digits", loss="ce", noise=f"labels:{path}", model_options={"hidden": [16]}, epochs=2, seed=3), path


def test_a_step_is_that_of_cross_entropy_with_probabilities(soft):
    """One step on all examples, by torch's own cross entropy."""
    recipe = dataclasses.replace(soft[0], batch=len(TRUE), epochs=1, momentum=0.0, lr=0.5)
    run, twin = (Run(recipe, prepare(recipe)) for _ in range(2))
    order = EpochPlan.draw(len(TRUE), None, None, recipe.seed, 0).order
    logits = twin.network(torch.from_numpy(load_digits().train.inputs)[order])
    loss = F.cross_entropy(logits, torch.from_numpy(posterior())[order])
    loss.backward()
    assert run.train_epoch(0).loss == pytest.approx(loss.item(), rel=1e-6)
    for after, before in zip(run.network.parameters(), twin.network.parameters(), strict=True):
        torch.testing.assert_close(after, before - 0.5 * before.grad, rtol=1e-5, atol=1e-6)


def test_certain_soft_labels_are_labels(soft, tmp_path):
    """In three losses of different families."""
    recipe, path = soft
    np.savez(path, posterior=np.eye(10, dtype=np.float32)[GIVEN], given=GIVEN)
    np.save(tmp_path / "labels.npy", GIVEN)
    for loss in ("ce", "jal-ce", "gce"):
        ours = train(dataclasses.replace(recipe, loss=loss)).record.epochs
        theirs = train(dataclasses.replace(recipe, loss=loss, noise=f"labels:{tmp_path / 'labels.npy'}")).record.epochs
        assert [epoch.loss for epoch in ours] == pytest.approx([epoch.loss for epoch in theirs], rel=1e-4)


def test_the_task_and_the_record_say_what_was_trained_on(soft, tmp_path):
    recipe, path = soft
    task = prepare(recipe)
    np.testing.assert_array_equal(task.soft, posterior())
    np.testing.assert_array_equal(task.train.labels, GIVEN)
    np.testing.assert_array_equal(task.clean, TRUE)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert task.noise == {"spec": recipe.noise, "hash": digest, "soft": True, "rate": (GIVEN != TRUE).mean()}
    train(recipe, task, folder=tmp_path / "run")
    assert Record.read(tmp_path / "run").task["noise"] == task.noise


def test_labels_that_are_the_datas_own_claim_no_clean_ones(soft):
    recipe, path = soft
    np.savez(path, posterior=posterior(), given=TRUE)
    task = prepare(recipe)
    assert task.clean is None
    assert "rate" not in task.noise


def test_a_named_array_is_taken_as_labels(soft):
    recipe, path = soft
    task = prepare(dataclasses.replace(recipe, noise=f"labels:{path}#given"))
    assert task.soft is None
    np.testing.assert_array_equal(task.train.labels, GIVEN)


def test_a_share_that_is_held_out_takes_its_soft_labels_along(soft):
    recipe, _ = soft
    digits = dataclasses.replace(load_digits(), test=None)
    task = with_noise(digits, dataclasses.replace(recipe, test_size=0.25))
    np.testing.assert_array_equal(task.soft, posterior()[task.rows])
    assert task.noise["hash"] == prepare(recipe).noise["hash"]
    assert task.noise["rate"] == (GIVEN != TRUE)[task.rows].mean()


def test_resumed_it_is_the_same_to_the_bit(soft, tmp_path, interrupted, files):
    recipe = dataclasses.replace(soft[0], epochs=4, loss="jal-ce")
    train(recipe, folder=tmp_path / "whole")
    interrupted(recipe, tmp_path / "parts", 3)
    train(recipe, folder=tmp_path / "parts")
    assert files(tmp_path / "parts") == files(tmp_path / "whole")


def test_another_file_is_another_run_and_a_copy_is_not(soft, tmp_path):
    recipe, path = soft
    train(recipe, folder=tmp_path / "runs" / "one")
    store = RunStore(tmp_path / "runs")

    def found(file):
        changed = dataclasses.replace(recipe, noise=f"labels:{file}")
        return store.folder_for(changed, task_facts(changed, prepare(changed))).name

    copy = tmp_path / "copy.npz"
    copy.write_bytes(path.read_bytes())
    assert found(copy) == "one"
    np.savez(copy, posterior=posterior(1), given=GIVEN)
    assert found(copy) != "one"


def changed(row, values):
    found = posterior()
    found[row] = values
    return found


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"posterior": changed(5, np.nan)}, "row 5 has nan"),
        ({"posterior": changed(6, [-0.5, 1.5] + [0] * 8)}, "row 6 has -0.5 as its least"),
        ({"posterior": changed(7, 0.2)}, "row 7 .* sums to 2"),
        ({"posterior": posterior()[:-1]}, r"\[1297, 10\].* got float32 of shape \(1296, 10\); is it the same split"),
        ({"posterior": posterior()[:, :9]}, r"one column for each class, got float32 of shape \(1297, 9\)"),
        ({"posterior": np.eye(10, dtype=np.int64)[GIVEN]}, "must be probabilities"),
        ({"given": GIVEN[:-1]}, "1297 labels"),
        ({"given": GIVEN + 1}, r"in \[0, 9\]"),
        ({"given": None}, "no labels named 'given'"),
    ],
)
def test_what_are_no_soft_labels_is_said(soft, arrays, message):
    recipe, path = soft
    whole = {"posterior": posterior(), "given": GIVEN} | arrays
    np.savez(path, **{name: array for name, array in whole.items() if array is not None})
    with pytest.raises(ValueError, match=message):
        prepare(recipe)


def test_a_file_that_unpacks_to_more_than_it_may_is_refused(soft, monkeypatch):
    recipe, path = soft
    np.savez_compressed(path, posterior=np.full((len(TRUE), 10), 0.1, np.float32), given=GIVEN)
    monkeypatch.setattr("noiseproof.io.limits.MAX_UNPACKED_BYTES", 1000)
    monkeypatch.setattr("noiseproof.io.limits.MAX_UNPACK_RATIO", 2)
    with pytest.raises(ValueError, match="unpacks to"):
        prepare(recipe)


def test_the_command_says_that_labels_are_soft(soft, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("noiseproof.report.charts.draw_curves", lambda *_: None)
    digits = load_digits().train
    np.savez("mine.npz", x=digits.inputs, y=GIVEN)
    words = ["train", "ce", "--data", "mine.npz", "--labels", str(soft[1]), "--set", "epochs=1", "--set", "model.hidden=[8]"]
    done = CliRunner().invoke(app, words, env={"COLUMNS": "200", "TERM": "dumb"})
    assert done.exit_code == 0, done.output
    assert "trained on soft labels in place of labels as given" in done.output


NAMED = tuple("abcdefghij")


def of_names(soft, *names):
    """The recipe on digits that have these class names, its soft labels those of the file."""
    return with_noise(dataclasses.replace(load_digits(), classes=names), soft[0])


def test_columns_of_soft_labels_are_found_by_the_names_of_their_classes(soft):
    _, path = soft
    np.savez(path, posterior=posterior(), given=GIVEN, classes=np.array(NAMED))
    order = np.array([3, 0, 1, 2, 4, 5, 9, 8, 7, 6])
    task = of_names(soft, *(NAMED[k] for k in order))
    for k, name in enumerate(task.classes):
        np.testing.assert_array_equal(task.soft[:, k], posterior()[:, NAMED.index(name)])
    np.testing.assert_array_equal(order[task.train.labels], GIVEN)


def test_soft_labels_of_a_class_that_was_renamed_since_are_refused(soft):
    """Renamed to come last, it would move every other column."""
    _, path = soft
    np.savez(path, posterior=posterior(), given=GIVEN, classes=np.array(NAMED))
    with pytest.raises(ValueError, match=r"posterior.npz: .* only the file has 'a', only the data 'z'; 'noiseproof audit'"):
        of_names(soft, *NAMED[1:], "z")


@pytest.mark.parametrize(("in_file", "in_data"), [(NAMED, "0123456789"), ("0123456789", NAMED)])
def test_classes_that_have_no_names_are_the_columns_as_they_stand(soft, in_file, in_data):
    _, path = soft
    np.savez(path, posterior=posterior(), given=GIVEN, classes=np.array(list(in_file)))
    task = of_names(soft, *in_data)
    np.testing.assert_array_equal(task.soft, posterior())
    assert not task.soft_by_order


def test_columns_are_not_doubted_where_nobody_has_names():
    nameless = SoftLabels(posterior(), GIVEN, "")
    assert not nameless.fit_by_order_alone("0123456789")
    assert nameless.fit_by_order_alone(NAMED)


def test_soft_labels_without_names_are_doubted_where_the_data_have_some(soft, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("noiseproof.report.charts.draw_curves", lambda *_: None)
    rows = [f"{k},{k % 7},{'yes' if k % 2 else 'no'}" for k in range(40)]
    (tmp_path / "mine.csv").write_text("\n".join(["a,b,label", *rows]), encoding="utf-8")
    given = np.arange(40) % 2
    np.savez("old.npz", posterior=np.eye(2, dtype=np.float32)[given], given=given)
    words = ["train", "ce", "--data", "mine.csv", "--labels", "old.npz", "--set", "epochs=1"]
    done = CliRunner().invoke(app, words, env={"COLUMNS": "200", "TERM": "dumb"})
    assert done.exit_code == 0, done.output
    assert "old.npz does not name its classes: its columns are taken for no, yes, in this order" in done.stderr
