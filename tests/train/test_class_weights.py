"""Class imbalance in training: weights of classes, logit adjustment, and what ``auto`` chooses."""

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight
from torch.nn import functional

from noiseproof import JALCE
from noiseproof.data import from_arrays
from noiseproof.train import Callback, Recipe, Run, identity, override, plan_run, resolve_auto, train, with_noise
from noiseproof.train.class_weights import WarmStart, class_weights, training_loss
from noiseproof.train.record import task_facts
from noiseproof.train.training_data import data_warnings

NAMES = ("cat", "dog", "eel")


def dataset(counts=(200, 60, 20), seed=0):
    generator = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(counts)), counts)
    inputs = (2 * np.eye(len(counts))[labels] + generator.normal(size=(len(labels), len(counts)))).astype(np.float32)
    return from_arrays(inputs, labels, inputs, labels, name="pets", classes=NAMES[: len(counts)])


def run_of(**changes):
    recipe = override(Recipe(dataset="pets", loss="ce", model_options={"hidden": [8]}), changes)
    return Run(recipe, with_noise(dataset(), recipe))


@pytest.mark.parametrize("labels", [[0] * 90 + [1] * 10, [2, 1, 0, 0], [0, 0, 2, 2, 2]])
def test_balanced_weights_are_those_of_scikit_learn(labels):
    present = np.unique(labels)
    found = class_weights("balanced", np.bincount(labels, minlength=3))
    np.testing.assert_allclose(found[present], compute_class_weight("balanced", classes=present, y=labels))


@pytest.mark.parametrize(("counts", "ratio"), [([900, 100], 3.0), ([800, 0, 100], 8 ** (2 / 3)), ([1, 4, 16, 64], 64**0.75)])
def test_tempered_weights_are_balanced_ones_to_the_power_of_one_less_a_share_of_the_classes(counts, ratio):
    found = class_weights("tempered", counts)
    assert found[np.array(counts) > 0].max() / found[np.array(counts) > 0].min() == pytest.approx(ratio)
    assert counts @ found == pytest.approx(sum(counts))


def test_weights_by_name_leave_the_other_classes_at_1():
    np.testing.assert_array_equal(class_weights({"dog": 3.0}, [1, 1, 1], NAMES), [1, 3, 1])
    with pytest.raises(ValueError, match="the data have no class 'dgo'; did you mean 'dog'"):
        class_weights({"dgo": 3.0}, [1, 1, 1], NAMES)


@pytest.mark.parametrize("choice", ["balanced", {"eel": 7.5, "dog": 0.5}])
def test_a_run_with_weights_minimises_weighted_cross_entropy(choice):
    run = run_of(class_weight=choice)
    labels = run.task.train.labels
    weights = compute_class_weight("balanced", classes=np.arange(3), y=labels) if choice == "balanced" else [1, 0.5, 7.5]
    logits, target = torch.randn(len(labels), 3), torch.from_numpy(labels)
    expected = functional.cross_entropy(logits, target, weight=torch.tensor(np.float32(weights)))
    torch.testing.assert_close(run.criterion(logits, target), expected)
    run.close()


def test_logit_adjustment_adds_the_log_frequencies_in_training_alone():
    run = run_of(class_weight="logit-adjustment", epochs=2)
    labels = run.task.train.labels
    logits, target = torch.randn(len(labels), 3), torch.from_numpy(labels)
    prior = torch.log(torch.tensor([200, 60, 20]) / 280)
    torch.testing.assert_close(run.criterion(logits, target), functional.cross_entropy(logits + prior, target))
    run.train_epoch(0)
    expected = torch.softmax(run.network.eval()(torch.from_numpy(run.task.train.inputs[:5])), 1)
    np.testing.assert_allclose(run.probabilities(run.task.train)[:5], expected.detach().numpy(), rtol=1e-5)
    run.close()


def test_of_soft_labels_the_sums_of_the_probabilities_count():
    recipe = Recipe(dataset="pets", loss="ce", class_weight="balanced")
    task = with_noise(dataset(), recipe)
    soft = np.full((len(task.train), 3), [0.5, 0.3, 0.2], np.float32)
    object.__setattr__(task, "soft", soft)
    np.testing.assert_allclose(task.class_counts, [140, 84, 56], rtol=1e-6)
    run = Run(recipe, task)
    np.testing.assert_allclose(run.criterion.weight, 280 / (3 * np.array([140, 84, 56])), rtol=1e-6)
    run.close()


def test_a_warm_start_is_cross_entropy_and_then_the_loss_with_the_same_weights():
    run = run_of(loss="jal-ce", class_weight="balanced", warm_epochs=2, epochs=4)
    assert isinstance(run.criterion, WarmStart)
    labels = run.task.train.labels
    logits, target = torch.randn(len(labels), 3), torch.from_numpy(labels)
    weights = torch.tensor(np.float32(compute_class_weight("balanced", classes=np.arange(3), y=labels)))
    for epoch, expected in enumerate([functional.cross_entropy] * 2 + [JALCE(weight=weights)] * 2):
        run.criterion.set_epoch(epoch)
        options = {"weight": weights} if epoch < 2 else {}
        torch.testing.assert_close(run.criterion(logits, target), expected(logits, target, **options))
    run.close()


def test_the_losses_of_a_warm_start_are_written_without_a_constant_that_they_do_not_have():
    """JAL contains (a - 1)^2 / K at a weight of beta: 280 here, of which cross entropy has nothing."""
    recipe = Recipe(dataset="pets", loss="jal-ce", warm_epochs=1, epochs=2, class_weight="balanced")
    record = train(recipe, with_noise(dataset(), recipe)).record
    assert record.loss_constant == pytest.approx(29**2 / 3)
    assert all(-1 < epoch.loss < 60 for epoch in record.epochs)


class StopAfter(Callback):
    def __init__(self, epoch):
        self.epoch = epoch

    def on_epoch_end(self, facts):
        if facts.epoch == self.epoch:
            raise KeyboardInterrupt


@pytest.mark.parametrize("stop", [1, 3])
def test_a_run_resumes_in_its_warm_start_and_after_it_to_the_same_numbers(stop, tmp_path):
    recipe = Recipe(dataset="pets", loss="jal-ce", warm_epochs=2, epochs=4, class_weight="tempered")
    whole = train(recipe, with_noise(dataset(), recipe)).record
    every = {"folder": tmp_path, "checkpoint_seconds": 0.0}
    with pytest.raises(KeyboardInterrupt):
        train(recipe, with_noise(dataset(), recipe), **every, callback=StopAfter(stop))
    resumed = train(recipe, with_noise(dataset(), recipe), **every).record
    assert [epoch.loss for epoch in resumed.epochs] == [epoch.loss for epoch in whole.epochs]
    assert resumed.result == whole.result


def test_auto_weights_a_minority_class_for_a_loss_that_collapses_and_changes_nothing_else():
    recipe = Recipe(dataset="pets", loss="jal-ce", class_weight="auto", epochs=30, optimiser="adam", lr=2e-3)
    found = resolve_auto(recipe, with_noise(dataset((400, 30)), recipe))
    assert (found.class_weight, found.warm_epochs) == ("tempered", 9)
    chosen = "tempered class weights, and 9 of 30 epochs of cross entropy first."
    assert found.why == (f"class imbalance of 1:13.3, in which this loss may collapse: {chosen}",)
    for same in (override(recipe, {"loss": "ce"}), override(recipe, {"loss": "noiseproof:JALCE"})):
        assert resolve_auto(same, with_noise(dataset((400, 30)), same)) == override(same, {"class_weight": None})
    even = with_noise(dataset((60, 60, 50)), recipe)
    assert resolve_auto(recipe, even) == override(recipe, {"class_weight": None})
    recalls = {
        weight: train(changed, with_noise(dataset((400, 30)), changed)).record.result["accuracy_by_class"]
        for weight in (None, "auto")
        for changed in [override(recipe, {"class_weight": weight})]
    }
    assert recalls[None] == [1, 0]
    assert min(recalls["auto"]) > 0.7


@pytest.mark.parametrize(
    ("loss", "warm"), [("truncated-gce", 21), ("nnce", 15), ("negative-ls", 21), ("ece", 27), ("fl", 27), ("mae", 9)]
)
def test_auto_starts_a_loss_that_cannot_learn_from_scratch_longer(loss, warm):
    recipe = Recipe(dataset="pets", loss=loss, class_weight="auto", epochs=30)
    found = resolve_auto(recipe, with_noise(dataset((400, 30)), recipe))
    assert (found.class_weight, found.warm_epochs) == ("tempered", warm)
    fault = "memorises wrong labels" if warm == 27 else "may collapse"
    assert found.why[0].endswith(f"{fault}: tempered class weights, and {warm} of 30 epochs of cross entropy first.")


def test_truncated_gce_finds_all_of_ten_classes_of_which_one_is_a_minority():
    """Its rows whose label is not likely yet have no gradient: after a tenth of the epochs of cross entropy it lost classes."""
    generator = np.random.default_rng(0)
    labels, centres = np.repeat(np.arange(10), [60] * 9 + [6]), generator.normal(size=(10, 10))
    centres *= 3 / np.linalg.norm(centres, axis=1, keepdims=True)
    inputs = (centres[labels] + generator.normal(size=(len(labels), 10))).astype(np.float32)
    data = from_arrays(inputs, labels, inputs, labels, name="ten")
    adam = {"epochs": 100, "optimiser": "adam", "lr": 2e-3, "model_options": {"hidden": [64]}, "standardise": True}
    recipe = Recipe(dataset="ten", loss="truncated-gce", class_weight="auto", **adam)
    assert min(train(recipe, with_noise(data, recipe)).record.result["accuracy_by_class"]) > 0.5


def test_auto_weights_cross_entropy_with_early_learning_regularisation_and_warns_of_it_with_another_loss():
    recipe = Recipe(dataset="pets", loss="ce", class_weight="auto", epochs=30, elr=7.0)
    task = with_noise(dataset((400, 30)), recipe)
    found = resolve_auto(recipe, task)
    assert (found.class_weight, found.warm_epochs) == ("tempered", 0)
    assert found.why == (
        "class imbalance of 1:13.3, in which early-learning regularisation may collapse: tempered class weights.",
    )
    even = with_noise(dataset((60, 60, 50)), recipe)
    assert resolve_auto(recipe, even) == override(recipe, {"class_weight": None})
    assert not any("early-learning" in text for text in data_warnings(found, task))
    assert any("class imbalance" in text for text in data_warnings(override(found, {"class_weight": "none"}), task))
    assert any("is for cross entropy" in text for text in data_warnings(override(found, {"loss": "jal-ce"}), task))


def test_both_autos_are_chosen_together():
    recipe = Recipe(dataset="pets", loss="jal-ce", class_weight="auto", loss_options={"a": "auto:0.2"})
    found = resolve_auto(recipe, with_noise(dataset(), recipe))
    assert not found.has_auto
    assert len(found.why) == 3


def test_an_unknown_auto_is_not_trained_on():
    with pytest.raises(ValueError, match="resolve_auto chooses it"):
        training_loss(Recipe(dataset="pets", loss="ce").criterion(), "auto", [1, 2])


@pytest.mark.parametrize(
    ("text", "value"),
    [("none", None), ("balanced", "balanced"), ("yes:5,no:1", {"yes": 5.0, "no": 1.0}), ('{"a:b": 2}', {"a:b": 2.0})],
)
def test_it_is_read_from_text_and_from_records(text, value):
    recipe = override(Recipe(dataset="pets", loss="ce"), {"class_weight": text})
    assert recipe.class_weight == value
    assert Recipe.from_dict(recipe.as_dict()) == recipe


@pytest.mark.parametrize("value", ["even", 3, {"cat": -1}, {"cat": "much"}, {"cat": float("nan")}, {"cat": True}])
def test_what_is_no_weight_is_refused(value):
    with pytest.raises(ValueError, match="class_weight"):
        Recipe(dataset="pets", loss="ce", class_weight=value)


def test_a_record_from_before_class_weights_is_that_of_a_run_without():
    recipe = Recipe(dataset="pets", loss="jal-ce")
    facts = task_facts(recipe, with_noise(dataset(), recipe))
    before = {name: value for name, value in recipe.as_dict().items() if name not in ("class_weight", "warm_epochs")}
    assert identity(before, facts) == identity(recipe.as_dict(), facts)
    assert identity(before, facts) != identity({**before, "class_weight": "balanced"}, facts)


def test_a_plan_for_data_of_ones_own_weights_where_that_is_needed(tmp_path):
    data = dataset((400, 30))
    place = tmp_path / "pets.npz"
    np.savez(place, x=data.train.inputs, y=data.train.labels)
    assert plan_run("jal-ce", data=str(place)).recipe.class_weight == "tempered"
    assert plan_run("jal-ce", data=str(place), changes={"class_weight": "none"}).recipe.class_weight is None
    assert plan_run("ce", data=str(place)).recipe.class_weight is None
    assert plan_run(Recipe(dataset="digits", loss="jal-ce")).recipe.class_weight is None
