"""``loss.a=auto`` in recipes: resolved before the run starts, the same each time, with the reasons in the record."""

import json

import numpy as np
import pytest

from noiseproof import paper, theory
from noiseproof.audit import Audit
from noiseproof.data import from_arrays
from noiseproof.noise import symmetric
from noiseproof.train import Recipe, Record, RunStore, identity, override, resolve_auto, train, train_concurrently, with_noise
from noiseproof.train.record import task_facts

CLASSES = 5


@pytest.fixture(scope="module")
def dataset():
    generator = np.random.default_rng(0)
    labels = np.arange(200) % CLASSES
    inputs = (np.eye(CLASSES)[labels] + generator.normal(scale=0.3, size=(200, CLASSES))).astype(np.float32)
    return from_arrays(inputs, labels, inputs[:50], labels[:50], name="five")


def recipe(a="auto", noise="symmetric:0.4", **changes):
    return Recipe(dataset="five", loss="jal-ce", loss_options={"a": a}, noise=noise, **changes)


def chosen(dataset, **facts):
    one = recipe(**facts)
    return resolve_auto(one, with_noise(dataset, one))


def test_it_is_chosen_for_the_noise_of_the_recipe_and_the_classes_of_the_data(dataset):
    found = chosen(dataset)
    # Five classes at 0.4: 1 / (0.6 - 0.1) = 2, ten times that is 20, and beta * a stays 30.
    assert found.loss_options == {"a": pytest.approx(20.0), "beta": pytest.approx(1.5)}
    assert found.why[0] == "a = 20, 10 times the 2 that theory requires for symmetric:0.4 on 5 classes."
    assert found.why[1] == "beta = 1.5 keeps beta * a, the strength of AMSE, at 30."
    assert found.criterion().a == pytest.approx(20.0)


@pytest.mark.parametrize("kind", ["rate", "noise", "matrix", "audit", "audit file"])
def test_the_noise_of_labels_as_given_is_said_in_any_way(dataset, tmp_path, kind):
    matrix = symmetric(CLASSES, 0.4).matrix
    np.savetxt(tmp_path / "T.csv", matrix, delimiter=",")
    facts = np.zeros(2, np.int64), np.full((2, CLASSES), 0.2, np.float32), matrix, 0.4, (0.3, 0.5), 1.0, dataset.classes, ""
    Audit(*facts).save(tmp_path / "audit")
    source = {"rate": "0.4", "noise": "symmetric:0.4", "matrix": tmp_path / "T.csv", "audit": tmp_path / "audit"}
    found = chosen(dataset, a=f"auto:{source.get(kind, tmp_path / 'audit' / 'transition.csv')}", noise="none")
    assert found.loss_options["a"] == 20.0
    said = "symmetric:0.4" if kind in ("rate", "noise") else f"the matrix in {tmp_path}"
    assert f"requires for {said}" in found.why[0]


def test_noise_without_a_matrix_counts_as_it_came_out(dataset, tmp_path):
    noisy = symmetric(CLASSES, 0.4).apply(dataset.train.labels, seed=0)
    np.save(tmp_path / "labels.npy", noisy.labels)
    found = chosen(dataset, noise=f"labels:{tmp_path / 'labels.npy'}")
    assert found.loss_options["a"] == pytest.approx(float(theory.choose_a(noisy)))
    assert "the realised noise, 40.0% of the labels" in found.why[0]


@pytest.mark.parametrize(
    ("facts", "fault"),
    [
        ({"noise": "none"}, r"loss\.a=auto: the recipe puts no noise on the labels.*auto:FOLDER for an audit"),
        ({"noise": "none", "a": "auto:2"}, r"loss\.a=auto:2: rate must be in \[0, 1\], got 2"),
        ({"noise": "none", "a": "auto:symetric:0.4"}, "unknown noise 'symetric'; did you mean 'symmetric'"),
        ({"noise": "none", "a": "auto:asymmetric-cifar10:0.4"}, "is of 10 classes, got 5"),
        ({"noise": "symmetric:0.8"}, "no a is large enough for any class"),
    ],
)
def test_a_noise_that_is_not_known_or_too_much_is_an_error_with_the_way_out(dataset, facts, fault):
    with pytest.raises(ValueError, match=fault):
        chosen(dataset, **facts)


@pytest.mark.parametrize(("loss", "fault"), [("ce", "it has no a"), ("agce", "has not been measured")])
def test_a_recipe_of_a_loss_without_a_choice_is_refused_at_once(loss, fault):
    with pytest.raises(ValueError, match=fault):
        Recipe(dataset="five", loss=loss, loss_options={"a": "auto"})


def test_the_rest_of_an_open_recipe_is_checked_too():
    with pytest.raises(ValueError, match="trains on the mean of the loss"):
        Recipe(dataset="five", loss="jal-ce", loss_options={"a": "auto", "reduction": "sum"})


def test_the_tuned_strength_of_a_published_recipe_is_kept():
    published = paper.recipe("cifar100/jal-ce", noise="symmetric:0.4")
    assert (published.loss_options["beta"], published.loss_options["a"]) == (1.0, 20.0)
    labels = np.arange(100)
    task = with_noise(from_arrays(np.zeros((100, 32, 32, 3), np.uint8), labels, name="cifar100"), published)
    found = resolve_auto(override(published, {"loss.a": "auto"}), task)
    bound = 1 / (0.6 - 0.4 / 99)
    assert found.loss_options["a"] == pytest.approx(10 * bound, rel=1e-3)
    assert found.loss_options["beta"] * found.loss_options["a"] == pytest.approx(20.0)
    assert found.loss_options["alpha"] == 5.0


def test_the_record_has_the_number_and_the_reasons_and_the_run_is_that_of_the_number(dataset, tmp_path):
    one = recipe(epochs=2)
    task = with_noise(dataset, one)
    first = train(one, task, folder=tmp_path / "run")
    facts = json.loads((tmp_path / "run" / "record.json").read_text())
    assert facts["recipe"]["loss_options"] == {"a": 20.0, "beta": 1.5}
    assert facts["notes"] == list(resolve_auto(one, task).why)
    assert "why" not in facts["recipe"]
    assert Record.read(tmp_path / "run").notes == facts["notes"]
    by_hand = override(one, {"loss.a": 20.0, "loss.beta": 1.5})
    assert identity(facts["recipe"], facts["task"]) == identity(by_hand.as_dict(), task_facts(by_hand, task))
    again = train(by_hand, task, folder=tmp_path / "run")  # finished: nothing is trained
    assert again.record.epochs == first.record.epochs


class StopError(Exception):
    pass


def test_a_run_that_was_stopped_goes_on_to_the_same_result(dataset, tmp_path):
    from noiseproof.train import Callback

    class Stopping(Callback):
        def on_epoch_end(self, facts):
            if facts.epoch == 2:
                raise StopError

    one = recipe(epochs=4)
    task = with_noise(dataset, one)
    with pytest.raises(StopError):
        train(one, task, folder=tmp_path, callback=Stopping(), checkpoint_seconds=0)
    resumed, whole = train(one, task, folder=tmp_path), train(one, task)
    assert [epoch.loss for epoch in resumed.record.epochs] == [epoch.loss for epoch in whole.record.epochs]
    assert resumed.record.notes == whole.record.notes


def test_runs_side_by_side_are_those_of_the_number(tmp_path):
    one = Recipe(dataset="digits", loss="jal-ce", loss_options={"a": "auto"}, noise="symmetric:0.4", epochs=1)
    store = RunStore(tmp_path)
    (outcome,) = train_concurrently([one])
    assert outcome.record.notes[0].startswith("a = 18, 10 times the 1.8")
    for each in (override(one, {"loss_options": {"a": 18.0, "beta": 30 / 18}}), one):
        train_concurrently([each], store=store)
    (run,) = store.runs()  # the second found the first
    assert run.facts["recipe"]["loss_options"]["a"] == 18.0


def test_reasons_do_not_outlive_what_they_are_of(dataset):
    found = chosen(dataset)
    assert override(found, {"seed": 5}).why == found.why
    assert override(found, {"loss.a": 9.0}).why == ()
    assert override(found, {"noise": "symmetric:0.2"}).why == ()
    with pytest.raises(ValueError, match="a recipe has no 'why'"):
        override(found, {"why": "I say so"})


def test_a_classifier_of_scikit_learn_takes_it_too(dataset):
    pytest.importorskip("sklearn")
    from noiseproof.sklearn import NoiseRobustClassifier

    def fitted(**options):
        model = NoiseRobustClassifier("jal-ce", loss_options=options, epochs=2, random_state=0)
        return model.fit(dataset.train.inputs, dataset.train.labels).loss_curve_

    assert fitted(a="auto:0.4") == fitted(a=20.0, beta=1.5) != fitted(a=20.0)
