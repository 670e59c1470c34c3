"""Audits of predictions, and their estimate of the noise: of labels whose truth is known, also of ambiguous examples."""

import csv
import dataclasses
import errno
import os
import subprocess
import sys
import tempfile
import tracemalloc

import numpy as np
import pytest

import noiseproof
from noiseproof import audit, audit_probabilities
from noiseproof.audit.result import CLEAN_RATE
from noiseproof.io.arrays import large_array
from noiseproof.noise import pairflip, symmetric
from tests.helpers.audits import drawn

ROWS, CLASSES = 4_000, 5


def picked(p, generator):
    return (p.cumsum(1) < generator.random((len(p), 1))).sum(1).clip(max=p.shape[1] - 1)


def ambiguous(share, flips, unsure=1.0, seed=0):
    """Easy and hard examples: predictions ``p``, true labels drawn from them, and given ones that changed in a share ``flips``,
    whatever the example, and in a share ``share`` were drawn from ``p ** (1 / unsure)``, by somebody who cannot tell either."""
    generator = np.random.default_rng(seed)
    scores = generator.standard_normal((ROWS, CLASSES)) * generator.uniform(0.5, 12, (ROWS, 1))
    p, blunt = (np.exp(s - s.max(1, keepdims=True)) for s in (scores, scores / unsure))
    p, blunt = p / p.sum(1, keepdims=True), blunt / blunt.sum(1, keepdims=True)
    true = picked(p, generator)
    kind = generator.random(ROWS)
    flipped = picked(np.full((ROWS, CLASSES), 1 / CLASSES), generator)
    given = np.where(kind < share, picked(blunt, generator), np.where(kind < share + flips, flipped, true))
    return p, true, given


@pytest.mark.parametrize(("share", "flips"), [(0.2, 0.05), (0.5, 0.1), (0.8, 0.0)])
def test_the_interval_covers_labels_of_ambiguous_examples(share, flips):
    """Easy and hard mistaken alike, which is the estimate, is far from the truth."""
    p, true, given = ambiguous(share, flips)
    found, rate = audit_probabilities(p, given), (true != given).mean()
    assert found.rate < rate - 0.02
    assert found.rate_interval[0] <= rate <= found.rate_interval[1]


def test_the_interval_is_narrow_where_predictions_are_sure():
    generator = np.random.default_rng(0)
    true = generator.integers(CLASSES, size=ROWS)
    p = np.full((ROWS, CLASSES), 0.001) + 0.995 * np.eye(CLASSES)[true]
    given = picked(symmetric(CLASSES, 0.2).matrix[true], generator)
    low, high = audit_probabilities(p, given).rate_interval
    assert low <= (true != given).mean() <= high
    assert high - low < 0.1


def test_the_interval_begins_where_errors_of_the_predictions_are_no_wrong_labels():
    """Clean labels, and predictions that are sure and wrong for one in ten examples: the fit takes them for wrong labels."""
    generator = np.random.default_rng(0)
    scores = generator.standard_normal((ROWS, CLASSES)) * 2
    p = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    true = picked(p, generator)
    off = generator.random(ROWS) < 0.1
    p[off] = np.roll(np.eye(CLASSES)[true[off]] * 0.95 + 0.01, 1, axis=1)
    found = audit_probabilities(p, true)
    assert found.rate > 0.05
    assert found.rate_interval[0] == 0


def test_the_interval_covers_the_rate_in_most_trials():
    """At 95 % one expects 19 of 20."""
    noise = symmetric(4, 0.25)
    inside = 0
    for seed in range(20):
        p, true, given = drawn(800, noise.matrix, seed=seed)
        low, high = audit.audit_probabilities(p, given, seed=seed).rate_interval
        inside += low <= (true != given).mean() <= high
    assert inside >= 17


def test_clean_labels_come_out_clean():
    p, true, _ = drawn(4_000, np.eye(5), sharpness=8.0)
    found = audit.audit_probabilities(p, true)
    assert found.rate < 0.02
    assert found.flagged.mean() < 0.01
    assert found.warnings == ()


def test_the_matrix_and_the_rate_say_the_same():
    """Wrong labels by the matrix are as many as by the rate; in the fitted matrix clean labels would look wrong."""
    p, _, given = drawn(600, pairflip(4, 0.2).matrix, seed=3)
    found = audit.audit_probabilities(p, given)
    wrong = found.posterior.mean(0, dtype=np.float64) @ (1 - np.diag(found.transition))
    assert wrong == pytest.approx(found.rate, abs=1e-6)
    np.testing.assert_allclose(found.transition.sum(1), 1)
    true = np.arange(200) % 4
    p = np.where(np.eye(4)[true] > 0, 0.997, 0.001)
    assert np.diag(audit.audit_probabilities(p, true).transition).min() > 0.99


def test_a_class_that_hardly_any_example_has_gets_the_mean_rate_and_is_said_not_to_be_estimated():
    """Pseudo-counts alone would say that its examples are given any label, and no loss could learn it."""
    p, _, given = drawn(300, symmetric(3, 0.2).matrix)
    p = np.hstack([0.999 * p, np.full((300, 1), 0.001)])
    found = audit.audit_probabilities(p, given)
    own = found.posterior[:, 3].sum(dtype=np.float64)
    assert own < 0.5
    counted = found.posterior[:, 3] @ np.eye(4)[given]
    usual = [found.rate / 3] * 3 + [1 - found.rate]
    np.testing.assert_allclose(found.transition[3], counted + (1 - own) * np.array(usual), atol=1e-6)
    np.testing.assert_allclose(found.transition.sum(1), 1)
    assert np.isfinite(noiseproof.theory.required_a(found.transition))
    assert [each.estimated for each in found.per_class] == [True, True, True, False]
    assert sum(each.expected for each in found.per_class) == pytest.approx(300, abs=1e-3)
    said = "hardly any example seems to be of it; its row of the matrix is the mean rate, not an estimate"
    assert f"class 3: no example has this label; {said}" in found.warnings


def test_neighbours_help_where_features_are_good():
    """Digits' own pixels, and predictions that are right in half of the cases only."""
    digits = pytest.importorskip("sklearn.datasets").load_digits()
    true, features = digits.target, digits.data
    given = symmetric(10, 0.3).apply(true, seed=0).labels
    generator = np.random.default_rng(0)
    predicted = np.where(generator.random(len(true)) < 0.5, true, generator.integers(10, size=len(true)))
    p = np.full((len(true), 10), 0.05)
    p[np.arange(len(true)), predicted] = 0.55
    alone, helped = audit.audit_probabilities(p, given), audit.audit_probabilities(p, given, features=features)
    wrong = true != given
    right_of = [(found.flagged == wrong).mean() for found in (alone, helped)]
    assert right_of[1] > right_of[0] + 0.03
    assert right_of[1] > 0.9
    assert (helped.suggested == true).mean() > 0.9


def test_what_a_reader_must_know_is_said():
    """A rare class whose labels are mostly wrong, a pair that is hard to tell apart, a class that nobody has."""
    matrix = np.eye(4)
    matrix[0] = [0.55, 0.45, 0.0, 0.0]
    p, true, given = drawn(6_000, matrix, sharpness=6.0)
    kept = (true != 2) | (np.arange(len(true)) % 60 == 0)
    p, true, given = p[kept], true[kept], given[kept]
    swamped = np.flatnonzero(true == 1)[:120]
    given[swamped] = 2
    p[:, 3] = 0.0
    p /= p.sum(1, keepdims=True)
    rows = given != 3
    found = audit.audit_probabilities(p[rows], given[rows], classes=["ant", "bee", "cat", "dog"])
    warnings = "\n".join(found.warnings)
    assert "class cat: " in warnings
    assert "labels are flagged: look at them before you remove any" in warnings
    assert "class ant: its examples are called bee almost as often" in warnings
    assert "class dog: no example has this label" in warnings


def test_weak_predictions_are_said():
    generator = np.random.default_rng(0)
    p, given = generator.dirichlet(np.ones(6), 600), generator.integers(6, size=600)
    found = audit.audit_probabilities(p, given)
    assert found.weak
    assert "they cannot tell wrong labels from hard examples, and up to" in found.warnings[0]
    assert not found.flagged.any()
    assert str(found).startswith("at most ")


def test_predictions_no_better_than_the_largest_class_are_said():
    """Two equal classes that nothing predicts: whatever the rate is, no label speaks for it."""
    given, even = np.arange(400) % 2, np.full((2, 2), 0.5)
    posterior = np.full((400, 2), 0.5, np.float32)
    found = audit.Audit(given, posterior, even, 0.48, (0.4, 0.5), 0.52, ("a", "b"), "by hand")
    assert not found.weak
    assert found.warnings[0].startswith("predictions agree with 52% of the labels, the largest class alone with 50%: ")
    assert "so the rate is a guess" in found.warnings[0]
    better = dataclasses.replace(found, agreement=0.6)
    assert not any("the rate is a guess" in text for text in better.warnings)


def test_the_files(tmp_path):
    p, _, given = drawn(300, symmetric(3, 0.2).matrix)
    found = audit.audit_probabilities(p, given, classes=["a", "b,b", "c"])
    found.save(tmp_path / "out", paths=[f"{k}.png" for k in range(300)])
    with (tmp_path / "out" / "audit.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 300
    assert lines[7]["path"] == "7.png"
    assert lines[7]["given"] == found.classes[given[7]]
    assert float(lines[7]["p_wrong"]) == pytest.approx(found.p_wrong[7], abs=1e-6)
    assert sum(int(line["flagged"]) for line in lines) == found.flagged.sum()
    stored = np.load(tmp_path / "out" / "posterior.npz", allow_pickle=False)
    np.testing.assert_array_equal(stored["posterior"], found.posterior)
    with (tmp_path / "out" / "transition.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0][1:] == ["a", "b,b", "c"]
    np.testing.assert_allclose(np.array([row[1:] for row in rows[1:]], float), found.transition, atol=1e-6)
    assert "labels are wrong (95 % interval" in str(found)
    with pytest.raises(ValueError, match="one path for each label"):
        found.save(tmp_path, paths=["one.png"])


def test_many_rows_are_fitted_in_part_and_answered_in_whole(monkeypatch):
    monkeypatch.setattr("noiseproof.audit.noise_model.MAX_JUDGED", 1_500)
    monkeypatch.setattr("noiseproof.audit.stacking.BLOCK_NUMBERS", 4 * 700)
    p, true, given = drawn(4_500, symmetric(4, 0.2).matrix)
    found = audit.audit_probabilities(p, given)
    assert len(found.posterior) == 4_500
    assert found.rate == pytest.approx((true != given).mean(), abs=0.03)


def test_two_classes_and_a_class_that_is_never_predicted():
    p, true, given = drawn(3_000, symmetric(2, 0.2).matrix)
    assert audit.audit_probabilities(p, given).rate == pytest.approx((true != given).mean(), abs=0.05)
    p, true, given = drawn(3_000, symmetric(3, 0.1).matrix)
    p[:, 2] = 0.0
    found = audit.audit_probabilities(p / p.sum(1, keepdims=True), given)
    assert np.isfinite(found.posterior).all()
    np.testing.assert_allclose(found.posterior.sum(1), 1, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda p, y: (p * 2, y), ValueError, r"row 0 sums to 2; take the softmax"),
        (lambda p, y: (np.where(p == p[3], -p, p), y), ValueError, "row 3"),
        (lambda p, y: (p[:, 0], y), ValueError, r"\[N, K\]"),
        (lambda p, y: (p[:, :1], y), ValueError, "at least 2 classes"),
        (lambda p, y: (p[:-1], y), ValueError, "one label for each row"),
        (lambda p, y: (p, y[:, None]), ValueError, "one label for each row"),
        (lambda p, y: (p, y.astype(float)), TypeError, "must be integers, the columns of the probabilities, got float64$"),
        (lambda p, y: (p, y.astype(str).astype(object)), TypeError, "of names in sorted order they are np.unique"),
        (lambda p, y: (p, y + 1), ValueError, r"in \[0, 2\]"),
        (lambda p, y: (p, y - 1), ValueError, "got -1"),
        (lambda p, y: (np.full_like(p, np.nan), y), ValueError, "finite"),
        (lambda p, y: (p, np.zeros_like(y)), ValueError, "at least two classes"),
        (lambda p, y: (p[:0], y[:0]), ValueError, "at least two classes"),
        (lambda p, y: (p.astype(str), y), ValueError, "must be numbers, got <U"),
        (lambda p, y: (np.log(p), y), ValueError, "look like log-probabilities: take np.exp of them first"),
        (lambda p, y: (100 * p, y), ValueError, "look like percent: divide by 100 first"),
        (lambda p, y: (0.998 * p, y), ValueError, r"look rounded: divide each row by its sum first, p / p\.sum"),
        (lambda p, y: (np.log(p) + 9, y), ValueError, "take the softmax of logits first"),
        (
            lambda p, y: (np.where(np.arange(len(p)) > len(p) - 3, np.nan, p.T).T, y),
            ValueError,
            "is the first of 2 that are not",
        ),
    ],
)
def test_what_is_no_prediction_is_refused(change, error, message):
    p, _, given = drawn(60, symmetric(3, 0.2).matrix)
    with pytest.raises(error, match=message):
        audit.audit_probabilities(*change(p, given))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"features": np.ones((59, 2))}, "one row for each label"),
        ({"features": np.full((60, 2), np.inf)}, "finite"),
        ({"features": np.ones((60, 0))}, "must be numbers"),
        ({"features": np.ones((60, 2, 2))}, "must be numbers"),
        ({"classes": ["a", "b"]}, "one class name for each of the 3"),
    ],
)
def test_what_does_not_fit_is_refused(options, message):
    p, _, given = drawn(60, symmetric(3, 0.2).matrix)
    with pytest.raises(ValueError, match=message):
        audit.audit_probabilities(p, given, **options)


def test_it_is_part_of_the_package():
    assert noiseproof.audit_probabilities is audit.audit_probabilities


LARGE = """
import resource
import numpy as np
from noiseproof import audit_probabilities

generator, rows, classes = np.random.default_rng(0), 100_000, 1_000
true = generator.integers(classes, size=rows)
p = generator.random((rows, classes), dtype=np.float32) * 1e-3
p[np.arange(rows), np.where(generator.random(rows) < 0.75, true, generator.integers(classes, size=rows))] += 3
p /= p.sum(1, keepdims=True)
given = np.where(generator.random(rows) < 0.2, generator.integers(classes, size=rows), true)
found = audit_probabilities(p, given)
low, high = found.rate_interval
assert low <= found.rate <= high < 1 and low <= (given != true).mean() <= high and len(found.per_class) == classes
assert (found.flagged == (given != true)).mean() > 0.75
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
"""


@pytest.mark.slow
def test_many_rows_of_a_thousand_classes_fit_in_memory():
    """Those of 400 MB, their logarithms, the posterior and what the fit needs: 3.5 GiB in all."""
    done = subprocess.run([sys.executable, "-c", LARGE], capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 3.5


def test_few_labels_to_a_class_are_warned_about_and_clean_ones_come_out_clean():
    """Clean labels of ten classes, and calibrated predictions that are right in two of three."""
    for few in (10, 50):
        found = [audit.audit_probabilities(*clean_and_unsure(10 * few, seed)) for seed in range(5)]
        assert all(each.rate_interval[0] == 0 for each in found)
        assert np.mean([each.flagged.mean() for each in found]) < 0.1
        warned = [any("fewer than 50 to a class" in text for text in each.warnings) for each in found]
        assert warned == [few == 10 and each.rate >= CLEAN_RATE for each in found]


def test_the_interval_begins_at_0_where_a_rare_class_is_hard_to_tell_and_no_label_is_wrong():
    """Two clouds one deviation apart, one of them 20 times as large, and what they predict of a point.

    At 95 % fewer than 13 of 15 draws begin at 0 with a chance of 0.04; the seeds are fixed. From a bootstrap of the fit alone 8
    did: right labels are as likely as the fit.
    """
    begins = 0
    for seed in range(15):
        generator = np.random.default_rng(seed)
        true = (generator.random(400) < 1 / 21).astype(np.int64)
        points = generator.standard_normal((400, 2)) + np.eye(2)[true]
        scores = points + np.log([20, 1])
        found = audit.audit_probabilities(np.exp(scores) / np.exp(scores).sum(1, keepdims=True), true)
        begins += found.rate_interval[0] == 0
        said = any("every label may be right" in text for text in found.warnings)
        assert said == (found.rate_interval[0] == 0 and found.rate >= 0.02 and not found.weak)
    assert begins >= 13


def clean_and_unsure(rows, seed):
    """Ten normal clouds around the unit vectors, two deviations away: what they predict of a point, and its class."""
    generator = np.random.default_rng(seed)
    true = generator.integers(10, size=rows)
    points = generator.standard_normal((rows, 10)) + 2 * np.eye(10)[true]
    p = np.exp(2 * points)
    return p / p.sum(1, keepdims=True), true


def test_columns_in_another_order_than_the_labels_are_doubted():
    """All four moved, two of four exchanged, none: with a tenth of the labels wrong."""
    given = np.arange(400) % 4
    given[::10] = (given[::10] + 1) % 4
    p = 0.9 * np.eye(4)[np.arange(400) % 4] + 0.025
    for order, said in (([1, 2, 3, 0], "a as d, b as a, c as b, d as c: "), ([0, 1, 3, 2], "c as d, d as c: "), (range(4), "")):
        warnings = audit.audit_probabilities(p[:, list(order)], given, classes="abcd").warnings
        found = [text for text in warnings if "are the columns in another order?" in text]
        assert [said in text for text in found] == [True] * bool(said)
    # Five of each of two more classes, called by the other's name, are too few to say it.
    p = 0.9 * np.eye(6)[[*(np.arange(400) % 4), *[4] * 5, *[5] * 5]] + 0.1 / 6
    warnings = audit.audit_probabilities(p, np.array([*given, *[5] * 5, *[4] * 5])).warnings
    assert not any("are the columns in another order?" in text for text in warnings)


def test_predictions_of_several_models_are_views_of_one_audit():
    """Each of two models is right where the other is not; together they know more than either, in any form of the argument."""
    p, true, given = drawn(1_500, symmetric(3, 0.2).matrix, sharpness=6.0)
    blurred = [np.where(np.arange(1_500)[:, None] % 2 == part, 1 / 3, p) for part in (0, 1)]
    both, alone = audit_probabilities(blurred, given), audit_probabilities(blurred[0], given)
    assert (both.suggested == true).mean() > (alone.suggested == true).mean() + 0.05
    np.testing.assert_array_equal(audit_probabilities(np.stack(blurred), given).posterior, both.posterior)
    assert both.rate_interval[0] <= (true != given).mean() <= both.rate_interval[1]
    with pytest.raises(ValueError, match=r"one shape, got \(1500, 3\), \(1500, 4\)"):
        audit_probabilities([p, np.hstack([p, np.zeros((1_500, 1))])], given)
    with pytest.raises(ValueError, match="one label for each row"):
        audit_probabilities([p, p[:-1]], given)
    with pytest.raises(ValueError, match=r"must be \[N, K\] for at least 2 classes, got shape \(2, 12, 3\)"):
        audit_probabilities(np.ones((2, 12, 3)), given)


def test_more_classes_than_fit_into_memory_are_an_error_before_memory_is_taken(monkeypatch):
    monkeypatch.setenv("NOISEPROOF_MEMORY", "8G")
    p = np.broadcast_to(np.float32(1 / 20_000), (40_000, 20_000))  # 3.2 GB, if it were written out
    with pytest.raises(
        ValueError, match=r"how 20,000 classes of 40,000 rows .* would take 8\.9 GiB .*; merge minority classes"
    ):
        audit_probabilities(p, np.arange(40_000) % 20_000)


def test_what_does_not_fit_into_memory_is_on_the_disk_and_the_same(monkeypatch):
    p, _, given = drawn(2_000, symmetric(4, 0.2).matrix)
    whole = audit.audit_probabilities([p, p], given)
    monkeypatch.setattr("noiseproof.io.limits.UNASKED_BYTES", 0)
    monkeypatch.setenv("NOISEPROOF_MEMORY", "100K")
    found = audit.audit_probabilities([p, p], given)
    assert isinstance(found.posterior, np.memmap)
    assert not isinstance(whole.posterior, np.memmap)
    np.testing.assert_array_equal(found.posterior, whole.posterior)
    assert (found.rate, found.rate_interval, found.confusions) == (whole.rate, whole.rate_interval, whole.confusions)


def test_a_full_disk_is_an_error_with_the_size_and_the_folder(monkeypatch):
    def full(*of):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("noiseproof.io.limits.UNASKED_BYTES", 0)
    monkeypatch.setenv("NOISEPROOF_MEMORY", "1K")
    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(OSError, match=r"No space left on device: 7\.8 KiB for 500 rows of 4 classes") as error:
        large_array((500, 4))
    assert error.value.filename == tempfile.gettempdir()


def test_an_audit_takes_three_times_the_memory_of_its_predictions(monkeypatch):
    """Of which two are what it returns and what it predicts; blocks and the rows of the hypotheses are made small here."""
    for name, number in (("MAX_JUDGED_NUMBERS", 20_000), ("MIN_JUDGED", 100), ("MAX_KEPT_POSTERIORS", 20_000)):
        monkeypatch.setattr(f"noiseproof.audit.noise_model.{name}", number)
    monkeypatch.setattr("noiseproof.audit.stacking.BLOCK_NUMBERS", 2**14)
    given = np.arange(12_000) % 200
    p = np.random.default_rng(0).random((12_000, 200), np.float32)
    p[np.arange(12_000), given] += 99
    p /= p.sum(1, keepdims=True)
    audit.audit_probabilities(p[:400], given[:400])  # what is imported
    tracemalloc.start()
    try:
        audit.audit_probabilities(p, given)
        taken = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert taken < 3 * p.nbytes
