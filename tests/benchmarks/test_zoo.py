"""The zoo's benchmark: its cells and noise, its measures against scikit-learn's, records that processes share and resume."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture
def zoo(monkeypatch):
    pytest.importorskip("sklearn")
    for folder in ("tools", "benchmarks"):
        monkeypatch.syspath_prepend(str(ROOT / folder))
    import zoo

    before = torch.get_num_threads()
    yield zoo
    torch.set_num_threads(before)
    for name in ("zoo", "zoo_methods"):
        sys.modules.pop(name, None)


@pytest.fixture
def sets(tmp_path):
    """Two small sets: three classes with two kinds of given labels and integers for columns, and two classes without."""
    random = np.random.default_rng(0)
    folder = tmp_path / "sets"
    folder.mkdir()
    y = np.arange(240) % 3
    wrong = np.where(np.arange(240) % 5 == 0, (y + 1) % 3, y)
    x = random.integers(-20, 20, (240, 4)) + 60 * np.eye(3, 4)[y]
    parts = {"x": x[:180].astype(np.int8), "x_test": x[180:].astype(np.int8), "scale": np.full(4, 0.1, np.float32)}
    np.savez(
        folder / "three.npz", **parts, y_clean=y[:180], y_test=y[180:], y_people=wrong[:180], y_same=y[:180].astype(np.uint8)
    )
    y = (random.random(100) < 0.2).astype(np.int64)
    x = random.normal(size=(100, 2)) + 3 * y[:, None]
    np.savez(folder / "two.npz", x=x[:70], x_test=x[70:], y=y[:70], y_clean=y[:70], y_test=y[70:])
    return folder


def test_the_cells_are_the_noises_that_suit_a_set(zoo, sets):
    shared = ["none", "sym:0.2", "sym:0.4", "pair:0.3"]
    two = [("two", noise) for noise in (*shared, "two:0.3:0.12")]
    assert zoo.cells_of(sets) == [*two, *(("three", noise) for noise in (*shared, "given:people"))]


def test_patterns_choose_sets_and_noises(zoo):
    assert zoo.matches(("tab_a", "sym:0.4"), "tab_*", "*")
    assert zoo.matches(("tab_a", "sym:0.4"), "x,tab_a/sym:*", "none,sym:0.4")
    assert not zoo.matches(("tab_a", "none"), "tab_a/sym:*", "*")
    assert not zoo.matches(("tab_a", "none"), "tab_a", "sym:*")


def test_the_rows_of_a_cell_stay_together_and_columns_are_scaled(zoo, sets):
    whole = zoo.problem_of(sets / "three.npz", "given:people", 3, None)
    part = zoo.problem_of(sets / "three.npz", "given:people", 3, 50)
    with np.load(sets / "three.npz") as file:
        known = {
            tuple(row): (clean, given) for row, clean, given in zip(file["x"], file["y_clean"], file["y_people"], strict=True)
        }
    assert len(part.x) == 50
    np.testing.assert_array_equal(part.x, whole.x[:50])
    for row, clean, given in zip(np.round(part.x * 10).astype(np.int8), part.clean, part.given, strict=True):
        assert known[tuple(row)] == (clean, given)
    other = zoo.problem_of(sets / "three.npz", "given:people", 4, 50)
    assert not np.array_equal(other.x, part.x)


def test_symmetric_noise_is_of_its_rate_and_even(zoo):
    """Of 30,000 labels; 5 standard deviations, so that one run in a million fails."""
    y = np.arange(30000) % 4
    given = zoo.noisy(y, 4, "sym:0.4", 1)
    wrong = given != y
    assert wrong.mean() == pytest.approx(0.4, abs=5 * (0.24 / 30000) ** 0.5)
    steps = np.bincount((given - y)[wrong] % 4, minlength=4)
    assert steps[0] == 0
    assert np.abs(steps[1:] / wrong.sum() - 1 / 3).max() < 5 * (2 / 9 / wrong.sum()) ** 0.5


def test_pair_noise_goes_to_the_next_class(zoo):
    y = np.arange(3000) % 3
    given = zoo.noisy(y, 3, "pair:0.3", 1)
    assert set(((given - y) % 3).tolist()) == {0, 1}
    np.testing.assert_array_equal(zoo.noisy(y, 3, "pair:0.3", 1), given)
    np.testing.assert_array_equal(zoo.noisy(y, 3, "none", 1), y)


@pytest.mark.parametrize("smaller", [0, 1])
def test_noise_of_two_classes_has_a_rate_for_the_smaller_and_one_for_the_larger(zoo, smaller):
    y = np.where(np.arange(40000) % 10 == 0, smaller, 1 - smaller)
    given = zoo.noisy(y, 2, "two:0.3:0.12", 1)
    wrong = given != y
    assert wrong[y == smaller].mean() == pytest.approx(0.3, abs=5 * (0.21 / 4000) ** 0.5)
    assert wrong[y != smaller].mean() == pytest.approx(0.12, abs=5 * (0.1056 / 36000) ** 0.5)


def test_an_unknown_noise_is_an_error(zoo):
    with pytest.raises(ValueError, match=r"unknown noise 'flip:0\.2'"):
        zoo.noisy(np.zeros(3, np.int64), 2, "flip:0.2", 0)


def test_the_measures_are_those_of_scikit_learn(zoo):
    from sklearn import metrics

    random = np.random.default_rng(0)
    y = random.integers(0, 4, 333)
    p = random.dirichlet(np.ones(4), 333) + 0.4 * np.eye(4)[y]
    p /= p.sum(1, keepdims=True)
    found = zoo.scores(p.argmax(1), y)
    assert found["accuracy"] == pytest.approx(metrics.accuracy_score(y, p.argmax(1)), abs=1e-5)
    assert found["balanced_accuracy"] == pytest.approx(metrics.balanced_accuracy_score(y, p.argmax(1)), abs=1e-5)
    assert found["f1_macro"] == pytest.approx(metrics.f1_score(y, p.argmax(1), average="macro"), abs=1e-5)
    assert zoo.auc(p, y) == pytest.approx(metrics.roc_auc_score(y, p, multi_class="ovr"), abs=1e-5)
    line = {"test_counts": np.bincount(y, minlength=4).tolist(), "accuracy": found}
    np.testing.assert_allclose(zoo.recalls_of(line, "accuracy"), metrics.recall_score(y, p.argmax(1), average=None))
    assert found["lost"] == 0


def test_a_class_that_is_never_predicted_is_lost_and_one_without_test_rows_does_not_count(zoo):
    y = np.array([0, 0, 0, 2, 2])
    found = zoo.scores(np.zeros(5, np.int64), y)
    assert (found["accuracy"], found["balanced_accuracy"], found["lost"]) == (0.6, 0.5, 1)
    line = {"test_counts": [3, 0, 2], "accuracy": found}
    np.testing.assert_array_equal(zoo.recalls_of(line, "accuracy"), [1, np.nan, 0])
    assert zoo.auc(np.array([[1, 0, 0], [1, 0, 0], [1, 0, 0], [0, 0, 1], [0, 0, 1]]), y) == 1.0


def test_the_second_rule_divides_by_the_frequency_of_the_given_labels(zoo):
    given = np.array([0] * 9 + [1])
    problem = zoo.Problem(np.zeros((10, 1)), given, given, np.zeros((2, 1)), np.array([0, 1]), 2, 0)
    rules = zoo.ruled(np.array([[0.95, 0.05], [0.8, 0.2]]), problem)
    assert (rules["accuracy"].tolist(), rules["balanced_accuracy"].tolist()) == ([0, 0], [0, 1])


def test_what_was_said_of_labels_is_measured(zoo):
    wrong = np.array([False, False, True, True])
    found = zoo.judged(np.array([0.1, 0.6, 0.4, 0.9]), np.array([False, True, False, True]), wrong)
    assert found == {"auc": 0.75, "f1": 0.5, "flagged": 0.5}
    assert zoo.judged(np.array([0.1, 0.6]), np.array([False, True]), wrong[:2]) == {"auc": None, "f1": None, "flagged": 0.5}


def words(sets, tmp_path, *more):
    return ["--sets", str(sets), "--records", str(tmp_path / "lines.jsonl"), *more]


def test_a_run_is_repeated_only_for_what_has_no_line(zoo, sets, tmp_path):
    zoo.main(words(sets, tmp_path, "--methods", "logistic", "--seeds", "1", "--only", "two/none"))
    zoo.main(
        words(sets, tmp_path, "--methods", "logistic,forest-10", "--seeds", "1", "--only", "two", "--noise", "none,sym:0.4")
    )
    lines = zoo.lines_of(tmp_path / "lines.jsonl")
    keys = [(line["method"], line["noise"]) for line in lines]
    assert keys == [("logistic", "none"), ("logistic", "sym:0.4"), ("forest-10", "none"), ("forest-10", "sym:0.4")]
    assert lines[0]["cv_accuracy"] > 0.8
    assert "cv_accuracy" not in lines[1]
    assert lines[0]["accuracy"]["accuracy"] > 0.8
    assert lines[0]["cpu_seconds"] >= 0


def test_shards_share_the_cells(zoo, sets, tmp_path):
    for part in ("1/2", "2/2"):
        zoo.main(words(sets, tmp_path, "--methods", "logistic", "--seeds", "1", "--only", "two", "--shard", part))
    lines = zoo.lines_of(tmp_path / "lines.jsonl")
    assert [line["noise"] for line in lines] == ["none", "sym:0.4", "two:0.3:0.12", "sym:0.2", "pair:0.3"]


def test_a_line_that_was_not_written_to_its_end_is_written_anew(zoo, tmp_path):
    path = tmp_path / "lines.jsonl"
    key = zoo.Key("a", "none", 1, None, "ce")
    path.write_text(json.dumps(key._asdict()) + "\n" + '{"set": "b", "noi')
    ledger = zoo.Ledger(path)
    assert ledger.keys() == {key}
    ledger.append(key._replace(set="b")._asdict())
    assert [line["set"] for line in zoo.lines_of(path)] == ["a", "b"]
    assert ledger.keys() == {key, key._replace(set="b")}


CLAIMS = """
import sys, zoo
from pathlib import Path
for method in map(str.strip, sys.stdin):
    with zoo.Ledger(Path(sys.argv[1])).claimed(zoo.Key("a", "none", 1, None, method)) as mine:
        print(mine, flush=True)
"""
"""Of another process: what it may claim, for each method that it is told"""


def test_what_a_process_is_at_work_on_is_not_done_by_another(zoo, tmp_path):
    path, key = tmp_path / "lines.jsonl", zoo.Key("a", "none", 1, None, "ce")
    command = [sys.executable, "-W", "ignore", "-c", CLAIMS, str(path)]
    with subprocess.Popen(command, cwd=BENCHMARKS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:

        def claim(method):
            print(method, file=other.stdin, flush=True)
            return other.stdout.readline().strip()

        ledger = zoo.Ledger(path)
        with ledger.claimed(key) as mine:
            assert mine
            assert claim("ce") == "False"
            assert claim("gce") == "True"
        assert claim("ce") == "True"
        ledger.append(key._asdict())
        assert claim("ce") == "False"


def test_a_method_that_fails_leaves_a_line_with_its_error(zoo, sets, tmp_path, monkeypatch, capsys):
    def fails(*_):
        raise RuntimeError("no convergence")

    monkeypatch.setitem(zoo.PREDICTORS, "logistic", fails)
    for _ in range(2):
        zoo.main(words(sets, tmp_path, "--methods", "logistic", "--seeds", "1", "--only", "two/sym:0.2"))
    (line,) = zoo.lines_of(tmp_path / "lines.jsonl")
    assert line["error"] == "RuntimeError: no convergence"
    assert "no convergence" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "text"),
    [(["--methods", "magic", "--sets", "."], "no such method: magic"), (["--methods", "logistic"], "--sets is needed")],
)
def test_wrong_options_are_usage_errors(zoo, options, text, capsys):
    with pytest.raises(SystemExit) as error:
        zoo.main(["--records", "unused.jsonl", *options])
    assert error.value.code == 2
    assert text in capsys.readouterr().err


@pytest.mark.parametrize("method", ["logistic", "logistic-cv", "forest-10", "boosting", "ce", "ce-early"])
def test_a_predictor_gives_probabilities_of_all_classes(zoo, sets, method):
    """Also of one that is not in the training labels, and one that has a single example."""
    problem = zoo.problem_of(sets / "three.npz", "none", 1, None)
    y = np.where(problem.clean == 2, 4, problem.clean)
    y[np.flatnonzero(y == 1)[0]] = 3
    p = zoo.PREDICTORS[method](problem.x, y, problem.x_test, 5, 0)
    assert p.shape == (60, 5)
    np.testing.assert_allclose(p.sum(1), 1, atol=1e-5)
    assert not p[:, 2].any()
    assert (p.argmax(1) == np.where(problem.y_test == 2, 4, problem.y_test)).mean() > 0.9


def test_c_is_small_where_labels_are_noise(zoo, monkeypatch):
    """What is fitted last is the chosen C: of columns that say nothing, the strongest penalty; of clean ones, a weak one."""
    import zoo_methods

    asked = []
    original = zoo_methods.logistic_model
    monkeypatch.setattr(zoo_methods, "logistic_model", lambda seed, c=1.0: asked.append(c) or original(seed, c))
    random = np.random.default_rng(0)
    x, y = random.normal(size=(200, 20)), random.integers(0, 2, 200)
    zoo_methods.logistic_cv(x, y, x, 2, 0)
    assert asked[-1] == min(zoo_methods.C_GRID)
    zoo_methods.logistic_cv(x, (x[:, 0] > 0).astype(np.int64), x, 2, 0)
    assert asked[-1] >= 1


@pytest.mark.parametrize("method", ["cleanlab-logistic", "audit-drop", "fit-quick"])
def test_a_judge_finds_wrong_labels(zoo, sets, method):
    if method.startswith("cleanlab"):
        pytest.importorskip("cleanlab")
    problem = zoo.problem_of(sets / "three.npz", "given:people", 1, None)
    found = zoo.measures(zoo.JUDGES[method](problem), problem)
    assert found["audit"]["auc"] > 0.9
    assert found["audit"]["rate"][0] == pytest.approx(0.2, abs=0.1)
    assert found["accuracy"]["accuracy"] > 0.9
    if method.startswith("fit"):
        value, low, high = found["estimates"]["accuracy"]
        assert low <= value <= high
        assert set(found["estimates"]) == {"accuracy", "balanced_accuracy", "auc"}


COUNTS = [40, 10]


def made(zoo, method, right, name="a", noise="sym:0.2", seed=1, **more):
    """A line as the benchmark writes it, from which test rows are right by the plain rule and by that for balanced accuracy."""
    y = np.repeat([0, 1], COUNTS)
    plain, balanced = right if isinstance(right, tuple) else (right, right)
    scores = {
        rule: zoo.scores(np.where(np.asarray(rows, bool), y, 1 - y), y)
        for rule, rows in (("accuracy", plain), ("balanced_accuracy", balanced))
    }
    facts = {"set": name, "noise": noise, "seed": seed, "rows": None, "method": method, "test_counts": COUNTS}
    return {**facts, **scores, "true_rate": 0.2, "auc": 0.9, "cpu_seconds": 1.0, "train": 100, **more}


def first(count):
    """Right in so many of the first test rows."""
    return np.arange(sum(COUNTS)) < count


@pytest.fixture
def analysis(zoo):
    import zoo_report

    yield zoo_report
    sys.modules.pop("zoo_report")


def test_a_gain_is_the_mean_over_the_cells_that_both_have(zoo, analysis):
    lines = [made(zoo, "ce", first(30), "a"), made(zoo, "fit", first(40), "a"), made(zoo, "fit", first(10), "b")]
    lines += [made(zoo, "ce", first(35), "c"), made(zoo, "fit", first(36), "c"), made(zoo, "ce", first(0), "a", noise="none")]
    found = analysis.gain(analysis.Zoo(lines), "fit", "ce", analysis.ACCURACY)
    assert (found.cells, found.sets) == (2, 2)
    assert found.mean == pytest.approx((20 + 2) / 2)
    assert (found.low, found.high) == (pytest.approx(2), pytest.approx(20))
    assert (found.ours, found.theirs) == (pytest.approx(76), pytest.approx(65))
    assert analysis.gain(analysis.Zoo(lines), "fit", "gce", analysis.ACCURACY) is None


def test_the_interval_draws_sets_and_not_cells(analysis):
    """Of two sets with a hundred cells each the interval is as wide as of two cells; of two hundred sets it is narrow."""
    values = [0.0] * 100 + [1.0] * 100
    assert analysis.bootstrapped(["a"] * 100 + ["b"] * 100, values) == (0.0, 1.0)
    low, high = analysis.bootstrapped([str(k) for k in range(200)], values)
    assert 0.42 < low < 0.46
    assert 0.54 < high < 0.58


def test_the_best_baseline_is_the_one_least_gained_over(zoo, analysis):
    lines = [made(zoo, "ce", first(30)), made(zoo, "gce", first(44)), made(zoo, "fit", first(40))]
    name, found = analysis.best_baseline(analysis.Zoo(lines), "fit", analysis.ACCURACY)
    assert (name, found.mean) == ("gce", pytest.approx(-8))


def test_balanced_accuracy_is_compared_by_each_rule_of_a_baseline(zoo, analysis):
    """The candidate's own rule: recalls of 1/2 and 1. The baseline's, plain: 1 and 0; by p / frequency: 3/4 and 8/10."""
    half = np.r_[first(20)[:40], np.ones(10)]
    divided = np.r_[first(30)[:40], first(8)[:10]]
    line, theirs = made(zoo, "fit", (first(40), half)), made(zoo, "ce", (first(40), divided))
    _, plain, by_frequency, better = analysis.METRICS
    assert [metric.of(line) for metric in (plain, by_frequency, better)] == [75, 75, 75]
    assert [round(metric.of(theirs), 3) for metric in (plain, by_frequency, better)] == [50, 77.5, 77.5]


def test_regret_is_to_the_best_baseline_and_never_below_zero(zoo, analysis):
    lines = [made(zoo, "ce", first(30)), made(zoo, "gce", first(40)), made(zoo, "fit", first(45))]
    lines += [made(zoo, "ce", first(30), "b"), made(zoo, "gce", first(20), "b"), made(zoo, "fit", first(25), "b")]
    found = analysis.regrets(analysis.Zoo(lines), analysis.ACCURACY)
    assert {method: [round(value, 6) for value in cells.values()] for method, cells in found.items()} == {
        "ce": [20, 0],
        "gce": [0, 20],
        "fit": [0, 10],
    }


def test_a_method_that_was_run_on_few_cells_does_not_take_the_others_out_of_the_regret(zoo, analysis):
    names = ("a", "b", "c")
    lines = [made(zoo, method, first(right), name) for name in names for method, right in (("ce", 30), ("fit", 20))]
    lines.append(made(zoo, "gce", first(40), "a"))
    found = analysis.regrets(analysis.Zoo(lines), analysis.ACCURACY)
    assert {method: len(cells) for method, cells in found.items()} == {"ce": 3, "fit": 3}
    assert "| gce | 1 |" in analysis.methods_table(analysis.Zoo(lines))
    lines += [made(zoo, "ce", first(30), f"without fit {k}") for k in range(9)]
    assert analysis.Zoo(lines).widely_run() == ["ce", "fit"]


def test_worse_is_more_than_a_point_and_two_standard_errors(zoo, analysis):
    """One row of 50 is 2 points and less than two errors; ten rows are more."""
    for count, worse in ((49, 0), (40, 1)):
        cells = analysis.Zoo([made(zoo, "logistic", first(50)), made(zoo, "fit", first(count))])
        found = analysis.worse_cells(cells, "fit", "logistic", balanced=False)
        assert len(found) == worse
    assert found[0].difference == pytest.approx(-20)
    assert found[0].error == pytest.approx(100 * (0.2 * 0.8 / 50) ** 0.5)


def test_the_error_of_balanced_accuracy_is_that_of_the_mean_of_the_classes(zoo, analysis):
    ours, theirs = made(zoo, "fit", np.r_[np.ones(40), first(4)[:10]]), made(zoo, "ce", np.ones(50))
    difference, error = analysis.paired(ours, "balanced_accuracy", theirs, "accuracy", balanced=True)
    assert difference == pytest.approx(-0.3)
    assert error == pytest.approx((0.24 / 10) ** 0.5 / 2)


def test_a_class_that_doing_nothing_finds_and_we_do_not_is_lost(zoo, analysis):
    finds = made(zoo, "ce", np.r_[np.ones(40), first(1)[:10]])
    lost = made(zoo, "fit", (np.ones(50), first(40)))
    assert analysis.lost_classes(analysis.Zoo([finds, lost]), "fit", "ce") == (1, 0)
    assert analysis.lost_classes(analysis.Zoo([made(zoo, "ce", first(40)), lost]), "fit", "ce") == (0, 0)
    found = [{**line, "method": method} for line, method in ((finds, "fit"), (made(zoo, "ce", first(40)), "ce"))]
    assert analysis.lost_classes(analysis.Zoo(found), "fit", "ce") == (0, 1)


def test_clean_cells_are_compared_with_the_choice_by_cross_validation(zoo, analysis):
    rows = {"logistic": (45, 0.8), "boosting": (30, 0.9), "ce": (40, 0.7)}
    lines = {name: made(zoo, name, first(count), cv_accuracy=cv, noise="none") for name, (count, cv) in rows.items()}
    assert analysis.chosen_by_cv(lines)["method"] == "boosting"
    assert analysis.chosen_by_cv({"logistic": lines["logistic"]}) is None
    fit = made(zoo, "fit", first(31), noise="none")
    ((_, text),) = analysis.clean_targets(analysis.Zoo([fit, *lines.values()]), "fit")
    assert text == "+2.00 on average, +2.0 at worst, 1 cells"


def test_estimates_are_compared_with_the_test_rows(zoo, analysis):
    line = made(
        zoo, "fit", (first(40), first(45)), estimates={"accuracy": [0.85, 0.7, 0.9], "balanced_accuracy": [0.5, 0.4, 0.6]}
    )
    np.testing.assert_allclose(analysis.estimate_errors([line], "accuracy"), [[5, 1, 20]])
    np.testing.assert_allclose(analysis.estimate_errors([line], "balanced_accuracy"), [[0, 1, 20]])
    assert analysis.estimate_errors([line], "auc").shape == (0, 3)


def records(zoo):
    """Two sets, a candidate with an audit and estimates, and one method that failed."""
    audit = {"auc": 0.9, "f1": 0.7, "flagged": 0.2}
    more = {"audit": {**audit, "rate": [0.22, 0.1, 0.3]}, "estimates": {"accuracy": [0.8, 0.7, 0.9]}}
    labelled = {"audit": {**audit, "auc": 0.8, "rate": [0.3, None, None]}}
    lines = []
    for name in ("a", "b"):
        for noise in ("sym:0.2", "given"):
            lines += [made(zoo, "logistic", first(30), name, noise), made(zoo, "ce", first(20), name, noise)]
            lines += [made(zoo, "boosting", first(35), name, noise), made(zoo, "fit", first(40), name, noise, **more)]
            lines += [made(zoo, f"cleanlab-{k}", first(31), name, noise, **labelled) for k in ("logistic", "boosting")]
    return [*lines, {**made(zoo, "gce", first(1)), "error": "RuntimeError: no"}]


def test_the_report_has_all_tables(zoo, analysis):
    text = analysis.report(records(zoo))
    assert (
        "| noisy, accuracy: 1.5 above the best single baseline | +10.0 [+10.0, +10.0] over boosting, 4 cells of 2 sets |"
        in text
    )
    assert (
        "| AUC and F1 of finding wrong labels at least those of cleanlab-logistic, 4 cells | 0.900 against 0.800, 0.700" in text
    )
    assert "classes lost (only fit finds) | 0, 0, 0 (0) |" in text
    assert "| in no cell more than .02 AUC below cleanlab-boosting | +0.100 at worst: a given 1 |" in text
    assert "| fit | 4 | 0.900 | 0.700 | 2.0 | 4 of 4 | 20.0 |  |  |" in text
    assert "| accuracy, noisy | 4 | 0.0 | +0.0 | 4 of 4 | 20.0 |" in text
    assert "| gce | a | sym:0.2 | 1 | RuntimeError: no |" in text


def test_the_command_prints_the_report(zoo, analysis, tmp_path, capsys):
    path = tmp_path / "lines.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in records(zoo)))
    zoo.main(["--records", str(path), "--report"])
    assert "## fit: gains" in capsys.readouterr().out


def test_asymmetric_noise_moves_a_class_to_the_one_that_the_paper_names(zoo):
    """Trucks become automobiles and cats dogs; automobiles and dogs: nothing and cats."""
    labels = np.repeat([9, 1, 3, 5], 2000)
    given = zoo.noisy(labels, 10, "asym:0.4", seed=0).reshape(4, -1)
    moved = [(row != own).mean() for row, own in zip(given, [9, 1, 3, 5], strict=True)]
    assert np.allclose(moved, [0.4, 0, 0.4, 0.4], atol=0.04)
    assert [set(row) for row in given] == [{9, 1}, {1}, {3, 5}, {5, 3}]


def test_every_loss_of_the_paper_is_a_method_with_and_without_hidden_layers(zoo):
    assert all(zoo.is_method(name) for name in ("mlp:jal-ce", "linear:nce+rce", "fit", "logistic"))
    assert not any(zoo.is_method(name) for name in ("mlp:nothing", "tree:ce", "mlp:"))
    y = np.arange(2000) % 10
    x = (np.random.default_rng(0).normal(size=(2000, 12)) + 6 * np.eye(10, 12)[y]).astype(np.float32)
    problem = zoo.Problem(x, y, y, x, y, 10, 0)
    for name in ("mlp:ce", "linear:ce"):
        assert (zoo.answered(name, problem).p.argmax(1) == y).mean() > 0.9


def test_features_of_images_become_a_set_with_given_labels(zoo, tmp_path, monkeypatch):
    """By a network in place of the pretrained one: columns are uncorrelated, of mean variance 1, and distances are kept."""
    import frozen_features

    random = np.random.default_rng(0)
    images, y = random.integers(0, 256, (30, 8, 8, 3), dtype=np.uint8), np.arange(30) % 3
    np.savez(tmp_path / "images.npz", x=images[:20], y=y[:20], x_test=images[20:], y_test=y[20:])
    np.savez(tmp_path / "people.npz", worst=(y[:20] + 1) % 3)
    network = type("Network", (), {"extract_features": staticmethod(lambda x: x)})
    monkeypatch.setattr(frozen_features, "pretrained", lambda: network)
    out = tmp_path / "sets" / "images.npz"
    labels = f"{tmp_path / 'people.npz'}#worst:worst"
    frozen_features.main([str(tmp_path / "images.npz"), "--out", str(out), "--labels", labels])
    with np.load(out) as found:
        x = found["x"].astype(np.float64)
    covariance = np.cov(x, rowvar=False, bias=True)
    assert np.trace(covariance) / 3 == pytest.approx(1, rel=1e-4)
    assert np.abs(covariance - np.diag(np.diag(covariance))).max() < 1e-4
    means = frozen_features.features(network, images[:20])
    apart, then = (np.linalg.norm(a[:, None] - a[None], axis=2)[np.triu_indices(20, 1)] for a in (x, means))
    assert np.ptp(apart / then) / (apart / then).mean() < 1e-3
    assert ("images", "given:worst") in zoo.cells_of(out.parent)
