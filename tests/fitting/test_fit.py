"""``noiseproof.fit`` end to end: predictions, audit, verdict; saved and loaded; resumed; faults in a sentence."""

import copy
import gc
import json
import pickle
import re
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import noiseproof
from noiseproof.audit import views
from noiseproof.audit.scores import Estimate
from noiseproof.data import DataError
from noiseproof.data.features import Features
from noiseproof.fitting import FittedModel, Verdict, is_model, run
from noiseproof.learners import crossfit, network
from noiseproof.report.fit_page import fit_page

FEW = ["logistic-0.01", "neighbours-40"]


def table(rows=200, wrong=0.2, seed=0):
    """Numbers, a category and text; the clean labels beside the given ones."""
    g = np.random.default_rng(seed)
    clean = g.integers(2, size=rows)
    frame = pd.DataFrame(
        {
            "age": np.where(g.random(rows) < 0.05, np.nan, 40 + 12 * clean + 4 * g.normal(size=rows)),
            "plan": np.where(g.random(rows) < 0.8, np.array(["basic", "pro"])[clean], "none"),
            "note": [["late again", "all is well"][k] + " with order " + "abcdefgh"[i % 8] * 5 for i, k in enumerate(clean)],
            "house": np.arange(rows) // 4,
        }
    )
    given = np.where(g.random(rows) < wrong, 1 - clean, clean)
    frame["churn"] = np.array(["no", "yes"])[given]
    return frame, clean, given


@pytest.fixture(scope="module")
def frame():
    return table()


@pytest.fixture(scope="module")
def model(frame):
    return noiseproof.fit(frame[0], label="churn", learners=FEW, columns={"house": "drop"})


@pytest.fixture(scope="module")
def digits():
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    g = np.random.default_rng(1)
    order = g.permutation(len(y))
    x, y = x[order].astype(np.float32), y[order]
    given = np.where(g.random(len(y)) < 0.3, g.integers(10, size=len(y)), y)
    return x, y, given


def test_the_model_is_right_where_a_fifth_of_the_labels_is_not(frame, model):
    new, clean, _ = table(seed=5)
    assert (model.predict(new) == np.array(["no", "yes"])[clean]).mean() > 0.95
    assert model.predict_proba(new.drop(columns="churn")).shape == (200, 2)
    wrong = frame[1] != frame[2]
    assert model.audit.flagged[wrong].mean() > 0.8
    assert model.audit.flagged[~wrong].mean() < 0.1
    assert model.verdict.rate.low <= wrong.mean() <= model.verdict.rate.high
    assert model.verdict.noisy


def test_the_estimated_accuracy_is_near_the_true_one(digits):
    x, y, given = digits
    model = noiseproof.fit(x[:900], given[:900], learners=["rbf-0.1", "forest-3"], folds=3)
    predicted = model.predict(x[900:])
    assert predicted.dtype.kind == "i"
    accuracy = (predicted == y[900:]).mean()
    assert accuracy > 0.9
    assert abs(model.verdict.model.accuracy.value - accuracy) < 0.06
    assert model.verdict.plain.name == "plain-boosting"
    assert model.verdict.gain > 0


def test_the_leaderboard_has_every_learner_plain_training_and_the_model(model):
    names = {line.name for line in model.leaderboard}
    assert names == {"model", "plain-boosting", *FEW}
    values = [line.accuracy.value for line in model.leaderboard]
    assert values == sorted(values, reverse=True)
    for line in model.leaderboard:
        assert line.accuracy.low <= line.accuracy.value <= line.accuracy.high
        assert 0 < line.given_accuracy < 1
    assert sum(line.weight or 0 for line in model.leaderboard) == pytest.approx(1)


def test_the_verdict_compares_the_model_with_plain_training_in_a_few_lines(model):
    lines = str(model).splitlines()
    assert 8 <= len(lines) <= 11
    assert lines[1].startswith("About ")
    assert lines[2] == "Errors that the features predict are not counted."
    assert lines[3].startswith("On correct labels")
    assert lines[4].split() == ["accuracy", "balanced", "accuracy", "AUC"]
    assert lines[5].split()[0] == "model"
    assert lines[6].startswith("  gradient boosting")
    assert all(line.count(" to ") == 3 for line in lines[5:7])
    assert "plain training, gradient boosting" in lines[7]


def test_the_interval_of_the_gain_contains_it_and_is_narrower_than_those_of_the_accuracies(model):
    verdict = model.verdict
    low, high = verdict.gain_interval
    assert low < verdict.gain < high
    assert high - low < verdict.model.accuracy.high - verdict.model.accuracy.low


def test_clean_labels_get_a_verdict_that_says_so():
    frame, clean, _ = table(wrong=0.0)
    model = noiseproof.fit(frame, label="churn", learners=FEW, columns="house=drop", quick=True)
    assert not model.verdict.noisy
    assert "Nothing speaks for wrong labels" in str(model)
    few = replace(model.audit, given=model.audit.given[:60], posterior=model.audit.posterior[:60])
    assert not any("the rate is likely too high" in text for text in few.warnings)
    assert (model.predict(frame) == np.array(["no", "yes"])[clean]).mean() > 0.95


def test_a_saved_model_predicts_the_same_and_has_the_same_verdict(frame, model, tmp_path):
    model.save(tmp_path / "model")
    loaded = noiseproof.load(tmp_path / "model")
    assert isinstance(loaded, FittedModel)
    new = table(seed=6)[0]
    assert (loaded.predict_proba(new) == model.predict_proba(new)).all()
    assert loaded.verdict == model.verdict
    assert loaded.leaderboard == model.leaderboard
    assert (loaded.audit.p_wrong == model.audit.p_wrong).all()
    assert loaded.audit.warnings == model.audit.warnings
    loaded.save(tmp_path / "copy")
    shutil.rmtree(tmp_path / "model")
    assert (noiseproof.load(tmp_path / "copy").predict_proba(new) == model.predict_proba(new)).all()


def test_copies_and_pickles_of_a_model_predict_when_the_model_is_gone(frame):
    new = table(seed=6)[0]
    model = noiseproof.fit(frame[0], label="churn", learners=["logistic-0.01"], columns="house=drop", folds=2)
    expected, content = model.predict_proba(new), pickle.dumps(model)
    places = [path.parent for path, _ in model.files["logistic-0.01"]]
    copies = [replace(model, metric="balanced_accuracy"), copy.copy(model)]
    del model
    gc.collect()
    assert all((each.predict_proba(new) == expected).all() for each in copies)
    del copies
    gc.collect()
    assert not any(place.exists() for place in places)
    again = pickle.loads(content)
    assert (again.predict_proba(new) == expected).all()
    assert again.verdict.rows == 200


def test_the_metric_decides_without_training_again():
    g = np.random.default_rng(0)
    y = (g.random(400) < 0.12).astype(int)
    x = g.normal(size=(400, 3)) + 1.2 * y[:, None]
    model = noiseproof.fit(x, y, learners=["logistic-0.01"])
    p = model.predict_proba(x)
    by = {metric: model.predict(x, metric=metric) for metric in ("accuracy", "balanced_accuracy", "f1_macro")}
    assert by["accuracy"].sum() < by["balanced_accuracy"].sum()
    assert (by["accuracy"] == model.decide(p)).all()
    recall = [(by["balanced_accuracy"][y == k] == k).mean() for k in (0, 1)]
    assert np.mean(recall) > np.mean([(by["accuracy"][y == k] == k).mean() for k in (0, 1)])
    with pytest.raises(ValueError, match="metric must be accuracy, balanced_accuracy or f1_macro, got 'auc'"):
        model.predict(x, metric="auc")


def test_labels_come_back_as_they_were_given():
    g = np.random.default_rng(0)
    y = np.repeat([0, 1], 30)
    x = g.normal(size=(60, 2)) + 5 * y[:, None]
    for labels in (np.array([-3, 7])[y], np.array([False, True])[y], np.array(["b", "a"])[y]):
        predicted = noiseproof.fit(x, labels, learners=["logistic-0.01"], folds=2).predict(x)
        assert predicted.dtype.kind == labels.dtype.kind
        assert (predicted == labels).mean() > 0.95


def test_the_same_seed_is_the_same_model_and_another_is_not(frame):
    options = {"label": "churn", "learners": ["forest-10"], "columns": "house=drop", "folds": 2}
    first, second, other = (noiseproof.fit(frame[0], **options, seed=seed) for seed in (3, 3, 4))
    new = table(seed=7)[0]
    assert (first.predict_proba(new) == second.predict_proba(new)).all()
    assert (first.predict_proba(new) != other.predict_proba(new)).any()


def test_a_finished_model_is_returned_at_once_and_an_interrupted_one_resumes(frame, model, tmp_path, monkeypatch):
    options = {"label": "churn", "learners": FEW, "columns": {"house": "drop"}, "folder": tmp_path / "model"}
    done = []

    def interrupted(stage):
        done.append(stage)
        if len(done) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        noiseproof.fit(frame[0], progress=interrupted, **options)
    assert not is_model(tmp_path / "model")
    seen = []
    resumed = noiseproof.fit(frame[0], progress=seen.append, **options)
    assert min(stage.done for stage in seen if stage.total > 1) > 4
    new = table(seed=8)[0]
    assert (resumed.predict_proba(new) == model.predict_proba(new)).all()
    monkeypatch.setattr(crossfit, "_run", None)
    again = noiseproof.fit(frame[0], **options)
    assert again.key == resumed.key
    assert (again.predict_proba(new) == model.predict_proba(new)).all()


def test_another_fit_in_the_folder_replaces_the_model_only_when_it_is_whole(frame, tmp_path, monkeypatch):
    options = {"label": "churn", "columns": {"house": "drop"}, "folder": tmp_path, "folds": 2}
    first = noiseproof.fit(frame[0], learners=["logistic-0.01"], **options)
    new = table(seed=8)[0]
    before = first.predict_proba(new)
    monkeypatch.setattr(views, "fit_noise_model", lambda *args, **options: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        noiseproof.fit(frame[0], learners=["neighbours-40"], **options)
    assert (noiseproof.load(tmp_path).predict_proba(new) == before).all()
    monkeypatch.undo()
    second = noiseproof.fit(frame[0], learners=["neighbours-40"], **options)
    assert (second.predict_proba(new) != before).any()
    assert (noiseproof.load(tmp_path).predict_proba(new) == second.predict_proba(new)).all()
    assert all(path.name.startswith("neighbours-40") for path in (tmp_path / "learners").iterdir())


def test_rows_of_a_group_are_held_out_together_and_the_group_is_no_feature(frame):
    found = noiseproof.fit(frame[0], label="churn", learners=["logistic-0.01"], groups="house")
    fold = found.audit.fold
    assert all(len(np.unique(fold[k : k + 4])) == 1 for k in range(0, 200, 4))
    assert "house" not in {one.name for one in found.features.encoder.encoders}
    by_value = noiseproof.fit(
        frame[0].drop(columns="house"), label="churn", learners=["logistic-0.01"], groups=frame[0]["house"].tolist()
    )
    assert (by_value.audit.fold == fold).all()
    with pytest.raises(DataError, match="no column is called 'street'"):
        noiseproof.fit(frame[0], label="churn", groups="street")


def test_rows_with_copies_in_other_folds_are_named_unless_they_are_equal_by_chance():
    x = np.random.default_rng(0).normal(size=(40, 3)) + np.repeat([0, 3], 20)[:, None]
    y = np.repeat([0, 1], 20)

    def notes(x, y, **options):
        return [note for note in noiseproof.fit(x, y, learners=FEW, **options).verdict.notes if "exact copy" in note]

    thrice, labels = np.repeat(x, 3, axis=0), np.repeat(y, 3)
    (note,) = notes(thrice, labels)
    assert re.match(r"\d+ % of the rows have an exact copy in another fold", note)
    assert not notes(x, y)
    assert not notes(thrice, labels, groups=np.repeat(np.arange(40), 3))
    assert not notes((thrice > 1).astype(float), labels)


def test_a_test_split_is_measured(frame):
    other, clean, _ = table(seed=9)
    other["churn"] = np.array(["no", "yes"])[clean]
    found = noiseproof.fit(frame[0], label="churn", test=other, learners=FEW, columns="house=drop")
    predicted = found.predict(other)
    assert found.verdict.model.test_accuracy == pytest.approx((predicted == other["churn"].to_numpy()).mean())
    assert all(line.test_accuracy is not None for line in found.leaderboard)
    assert "Measured on the test split" in str(found)


def test_learners_that_a_budget_leaves_out_are_named(frame, monkeypatch):
    costly = replace(crossfit.SPECS["network"], seconds=lambda *shape: 1e9)
    monkeypatch.setitem(crossfit.SPECS, "network", costly)
    found = noiseproof.fit(frame[0], label="churn", learners=[*FEW, "network"], minutes=60, columns="house=drop", jobs=1)
    assert "within 60 minutes" in dict(found.verdict.dropped)["network"]


FAULTS = {
    "one row": ({"x": [1.0], "y": ["a"]}, "one class"),
    "one class": ({"x": [1.0, 2.0, 3.0], "y": ["a", "a", "a"]}, "one class"),
    "all labels different": ({"x": [1.0, 2.0, 3.0], "y": ["a", "b", "c"]}, "every label occurs once"),
    "one class with several": ({"x": [1.0, 2.0, 3.0, 4.0], "y": ["a", "b", "b", "b"]}, "occur once"),
    "no feature": ({"x": [np.nan] * 6, "y": ["a", "b"] * 3}, "no column is left"),
    "no label": ({"x": [1.0, 2.0], "y": [None, "a"]}, "no label"),
}


SHAPES = {
    "sparse": (sparse.csr_matrix(np.eye(4)), [0, 1, 0, 1], "sparse matrix"),
    "a row": (np.zeros(4), [0, 1, 0, 1], "4 values in one dimension"),
    "indicators": (np.eye(4), np.eye(4), r"labels of shape \[4, 4\]"),
}


@pytest.mark.parametrize("name", SHAPES)
def test_arrays_of_other_shapes_are_answered_with_a_sentence(name):
    x, y, said = SHAPES[name]
    with pytest.raises(DataError, match=said):
        noiseproof.fit(x, y)


@pytest.mark.parametrize("name", FAULTS)
def test_what_cannot_be_learnt_is_answered_with_a_sentence(name):
    data, said = FAULTS[name]
    with pytest.raises(DataError, match=said) as found:
        noiseproof.fit(pd.DataFrame(data), label="y")
    assert "\n" not in str(found.value)


@pytest.fixture
def brief(monkeypatch):
    monkeypatch.setattr(network, "IMAGE_BUDGET", network.Budget(1200, 12, 4))


def pictures(rows, seed=0):
    """Images of 12x12 that are dark or bright."""
    g = np.random.default_rng(seed)
    y = np.arange(rows) % 2
    return (g.integers(0, 120, (rows, 12, 12, 1)) + 120 * y[:, None, None, None]).astype(np.uint8), y


def test_images_in_memory_are_learnt_by_networks(brief, tmp_path):
    x, y = pictures(80)
    given = np.where(np.arange(80) < 8, 1 - y, y)
    model = noiseproof.fit(x, given, folds=2, folder=tmp_path)
    assert {line.name for line in model.leaderboard} == {"model", "cnn", "cnn-jal"}
    assert model.verdict.plain.name == "cnn"
    assert (model.predict(x) == y).mean() > 0.95
    assert any("pretrained network" in note for note in model.verdict.notes)
    np.testing.assert_array_equal(noiseproof.load(tmp_path).predict_proba(x), model.predict_proba(x))
    with pytest.raises(DataError, match=r"shape \[12, 12, 1\]"):
        model.predict(x[:, :5])
    with pytest.raises(ValueError, match="cnn reads images, and these data are features"):
        noiseproof.fit(x.reshape(80, -1).astype(np.float32), given, learners=["cnn"])


def test_a_folder_of_images_is_learnt_and_files_of_other_sizes_are_predicted(brief, tmp_path):
    import PIL.Image

    x, y = pictures(40)
    for k in range(40):
        folder = tmp_path / "data" / ("dark", "bright")[y[k]]
        folder.mkdir(parents=True, exist_ok=True)
        PIL.Image.fromarray(x[k, ..., 0]).resize((90 + k, 100)).save(folder / f"{k:02}.png")
    model = noiseproof.fit(tmp_path / "data", folds=2, quick=True)
    assert model.features.shape == (32, 32, 1)
    right = np.array([path.parent.name for path in sorted((tmp_path / "data").rglob("*.png"))])
    assert (model.predict(tmp_path / "data") == right).mean() > 0.95
    some = sorted((tmp_path / "data" / "dark").iterdir())[:3]
    assert model.predict(some).tolist() == ["dark"] * 3
    (tmp_path / "broken.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"broken\.png"):
        model.predict([tmp_path / "broken.png"])


def test_large_images_are_averaged_over_squares():
    x, _ = pictures(4)
    large = x.repeat(8, 1).repeat(8, 2)
    data = run.training_data(large, label=[0, 1, 0, 1])
    features = Features.of(data)
    assert features.averaged == 3
    assert features.transform_inputs(large).shape == (4, 32, 32, 1)


def test_plain_training_is_boosting_for_columns_and_logistic_regression_for_embeddings_and_few_rows():
    g = np.random.default_rng(0)
    y = np.arange(200) % 2
    embedded = g.normal(size=(200, 20)).astype(np.float32)
    table = pd.DataFrame({"age": g.normal(size=200), "y": y})
    assert run.plain_learner(run.training_data(embedded, label=y)) == "plain-logistic"
    assert run.plain_learner(run.training_data(table, label="y")) == "plain-boosting"
    assert run.plain_learner(run.training_data(table[:199], label="y")) == "plain-logistic"
    assert run.plain_learner(run.training_data(table.assign(y=np.arange(200) % 11), label="y")) == "plain-logistic"


def test_ten_thousand_classes_are_answered_with_a_sentence_before_memory_is_taken():
    labels = np.repeat(np.arange(10_000), 3)
    with pytest.raises(DataError, match="30,000 rows of 10,000 classes; up to 4,000 classes"):
        noiseproof.fit(np.zeros((30_000, 2), np.float32) + labels[:, None], labels)


def test_predictions_that_would_not_fit_into_memory_leave_learners_out(frame, monkeypatch):
    monkeypatch.setattr(views, "MAX_VIEW_NUMBERS", 200 * 2 * 2)
    found = noiseproof.fit(frame[0], label="churn", learners=["network", *FEW], columns="house=drop")
    assert {line.name for line in found.leaderboard} == {"model", "plain-boosting", *FEW}
    assert "would not fit into memory" in dict(found.verdict.dropped)["network"]


def test_a_class_with_one_example_is_noted_and_its_label_is_left_alone(frame):
    data = frame[0].copy()
    data.loc[0, "churn"] = "maybe"
    found = noiseproof.fit(data, label="churn", learners=FEW, columns="house=drop")
    assert found.classes == ("maybe", "no", "yes")
    assert any("maybe" in note for note in found.verdict.notes)
    assert not found.audit.flagged[0]
    np.testing.assert_allclose(found.audit.posterior.sum(1), 1, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"learners": ["magic"]}, "unknown learner 'magic'"),
        ({"learners": []}, "at least one"),
        ({"folds": 1}, "folds must be"),
        ({"folds": 201}, "at most 200"),
        ({"minutes": 0}, "minutes must be"),
        ({"metric": "auc"}, "metric must be"),
        ({"class_weight": "heavy"}, "class_weight must be"),
        ({"threads": 0}, "threads must be"),
    ],
)
def test_an_impossible_option_is_an_error(frame, options, said):
    with pytest.raises(ValueError, match=said):
        noiseproof.fit(frame[0], label="churn", **options)


def test_a_row_with_other_columns_is_an_error(model):
    with pytest.raises(DataError, match="'plan'"):
        model.predict(table()[0].drop(columns="plan"))


def damaged(folder, change):
    facts = json.loads((folder / "model.json").read_text())
    change(facts)
    (folder / "model.json").write_text(json.dumps(facts))


CRAFTED = {
    "a path outside": lambda facts: facts["learners"][0]["files"][0].__setitem__(0, "../../x.safetensors"),
    "an absolute path": lambda facts: facts["arrays"].__setitem__(0, "/etc/passwd"),
    "a pickle": lambda facts: facts["arrays"].__setitem__(0, "model.pkl"),
    "another digest": lambda facts: facts["arrays"].__setitem__(1, "0" * 64),
    "no learners": lambda facts: facts.update(learners=[]),
    "other views": lambda facts: facts.update(views=["logistic-0.01"]),
    "other classes": lambda facts: facts.update(classes=["a", "b", "c"]),
    "a metric of its own": lambda facts: facts.update(metric="__import__('os')"),
    "no features": lambda facts: facts["features"].update(encoder={"version": 1, "columns": [], "encoders": [{}]}),
    "text for numbers": lambda facts: facts["features"].update(scale="nan"),
    "a verdict of another": lambda facts: facts.update(verdict={}),
    "another format": lambda facts: facts.update(noiseproof=99),
    "a verdict without numbers": lambda facts: facts["verdict"].update(flagged=None),
    "a recall that is a list": lambda facts: facts["verdict"]["recalls"].__setitem__(0, [1]),
    "text for an accuracy": lambda facts: facts["leaderboard"][0].update(given_accuracy="high"),
    "a column twice": lambda facts: facts["features"]["encoder"]["encoders"].append(
        facts["features"]["encoder"]["encoders"][0]
    ),
}


@pytest.mark.parametrize("name", CRAFTED)
def test_a_crafted_folder_is_refused_and_runs_no_code(model, tmp_path, name):
    model.save(tmp_path)
    damaged(tmp_path, CRAFTED[name])
    with pytest.raises(ValueError, match=r"model\.json|arrays-|model") as found:
        noiseproof.load(tmp_path)
    assert "\n" not in str(found.value)


def test_a_model_of_a_later_format_is_refused_with_the_version_that_reads_it(model, tmp_path):
    model.save(tmp_path)
    damaged(tmp_path, lambda facts: facts.update(noiseproof=2, version="7.1"))
    with pytest.raises(DataError, match=r"which has format 1; noiseproof 7\.1 wrote and reads it"):
        noiseproof.load(tmp_path)


def test_a_learner_that_was_changed_is_refused_when_it_predicts(frame, model, tmp_path):
    model.save(tmp_path)
    path = next((tmp_path / "learners").glob("neighbours-40-*"))
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(DataError, match="damaged"):
        noiseproof.load(tmp_path).predict(frame[0])
    path.unlink()
    with pytest.raises(FileNotFoundError, match="gone"):
        noiseproof.load(tmp_path).predict(frame[0])


def test_nothing_in_a_saved_folder_is_an_object(model, tmp_path):
    model.save(tmp_path)
    kinds = {path.suffix for path in tmp_path.rglob("*") if path.is_file()}
    assert kinds == {".json", ".safetensors"}


def test_an_interval_that_contains_0_is_no_gain(model):
    other = "plain training, gradient boosting,"
    for gain, interval, said in (
        (0.02, (0.01, 0.03), "The model gains 2.0 points of accuracy (1.0 to 3.0) on plain training"),
        (0.02, (-0.01, 0.05), f"The gain on {other} may be chance: 2.0 points of accuracy (-1.0 to 5.0)"),
        (-0.01, (-0.02, 0.005), f"The gain on {other} may be chance: -1.0 points of accuracy"),
        (-0.03, (-0.04, -0.02), f"The model is worse than {other} by 3.0 points of accuracy (2.0 to 4.0)"),
    ):
        plain = replace(model.verdict.plain, accuracy=Estimate(model.verdict.model.accuracy.value - gain, 0.5, 1.0))
        verdict = replace(model.verdict, plain=plain, gain_interval=interval)
        assert any(line.startswith(said) for line in verdict.lines)
        assert verdict.gains == (said[:15] == "The model gains")


def test_an_interval_from_0_says_that_all_labels_may_be_right_whether_few_or_many_look_wrong(model):
    for rate, said in (
        (Estimate(0.01, 0.0, 0.05), "Nothing speaks for wrong labels (at most 5.0 %, unless the features predict the errors)"),
        (Estimate(0.08, 0.0, 0.4), "Labels may be wrong, or all of them right: 8.0 % look wrong (95 % interval 0.0"),
        (
            Estimate(0.001, 0.0, 0.4),
            "Labels may be wrong, or all of them right: up to 40.0 % may be wrong (95 % interval); 9 are",
        ),
        (Estimate(0.08, 0.01, 0.4), "About 8.0 % of the labels are wrong (95 % interval 1.0 % to 40.0 %); 9 are flagged."),
    ):
        verdict = replace(model.verdict, rate=rate, flagged=9)
        assert verdict.lines[1].startswith(said)
        assert verdict.lines[2].startswith("Errors that the features predict") == verdict.noisy
        undecided = verdict.lines[2] == "The data cannot tell wrong labels from labels that are hard to predict."
        assert undecided == (rate.low == 0 and rate.high == 0.4)
        assert fit_page(replace(model, verdict=verdict)).count(f"<h1>{verdict.headline}") == 1


def test_a_model_its_leaderboard_and_its_audit_are_shown_briefly(model):
    assert repr(model) == str(model.verdict)
    head, *lines = repr(model.leaderboard).splitlines()
    assert head.split() == ["learner", "given", "labels", "accuracy", "balanced", "accuracy", "AUC", "weight", "seconds"]
    assert [line.split()[0] for line in lines] == [line.name for line in model.leaderboard]
    assert len({len(line) for line in lines}) == 1
    assert len(repr(model.audit)) < 200
    tested = type(model.leaderboard)(replace(line, test_accuracy=0.5) for line in model.leaderboard)
    assert all(line.endswith("  50.0") for line in repr(tested).splitlines()[1:])


def test_a_fit_without_networks_its_page_and_its_predictions_need_no_torch(tmp_path):
    code = f"""
import sys
import numpy as np, noiseproof
from pathlib import Path
from noiseproof.fitting.run import training_data
from noiseproof.report.fit_page import write_fit
x = np.random.default_rng(0).normal(size=(60, 2)) + np.repeat([[0, 0], [9, 9]], 30, axis=0)
data = training_data(x, label=np.repeat([0, 1], 30))
model = noiseproof.fit(data, learners=["logistic-0.01"], folds=2)
write_fit(model, data, Path({str(tmp_path)!r}), place="table.csv")
model.predict(x)
print("torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_class_without_any_probability_gives_finite_logits(model, monkeypatch):
    monkeypatch.setattr(FittedModel, "proba_of", lambda self, x: np.tile(np.float32([1, 0]), (len(x), 1)))
    logits = np.concatenate([found.numpy() for _, found in model.batches(model.read(table()[0]).examples)])
    assert np.isfinite(logits).all()
    assert (logits.argmax(1) == 0).all()


def test_series_and_arrays_of_texts_are_read_as_a_list_of_them():
    texts, labels = ["good and fine", "bad and poor", "good news", "poor show"] * 15, ["p", "n"] * 30
    options = {"columns": "text=text", "learners": ["logistic-0.01"], "folds": 2}
    expected = noiseproof.fit(texts, labels, **options).predict_proba(texts)
    model = noiseproof.fit(pd.Series(texts, index=range(5, 65)), pd.DataFrame({"y": labels}), **options)
    for new in (texts, pd.Series(texts), np.array(texts)):
        assert (model.predict_proba(new) == expected).all()


def test_booleans_may_be_0_and_1_in_new_rows(frame):
    data = frame[0].assign(member=frame[2] > 0).drop(columns="house")
    model = noiseproof.fit(data, label="churn", learners=["logistic-0.01"], folds=2)
    found = model.predict_proba(data.assign(member=data["member"].astype(int)))
    assert (found == model.predict_proba(data)).all()
    with pytest.raises(DataError, match="has other values now, such as '2'"):
        model.predict(data.assign(member=2))


def test_a_verdict_survives_json(model):
    assert Verdict.of(json.loads(json.dumps(model.verdict.as_dict()))) == model.verdict
