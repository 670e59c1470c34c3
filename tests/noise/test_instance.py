"""Instance-dependent noise: the asked rate, and labels that depend on the image."""

import math
from statistics import NormalDist

import numpy as np
import pytest
from scipy import optimize, stats

from noiseproof import noise


def problem(count=6000, classes=5, seed=0):
    random = np.random.default_rng(seed)
    return random.integers(0, 256, (count, 6, 6, 3), dtype=np.uint8), random.integers(0, classes, count)


@pytest.mark.parametrize("rate", [0.05, 0.2, 0.4, 0.6, 0.9])
def test_the_realised_rate_is_within_half_a_percent_of_the_asked_one(rate):
    """The mean of the rates has a standard error of 0.1/sqrt(6000) = 0.0013: 0.005 is 3.9 of them, and the seed is fixed."""
    images, labels = problem()
    assert abs(noise.instance_dependent(images, labels, rate, seed=0).rate - rate) < 0.005


@pytest.mark.parametrize("rate", [0.001, 0.005, 0.01, 0.015, 0.02, 0.024, 0.99, 0.999])
def test_flip_rates_near_0_and_1_are_scipys_truncated_normal(rate):
    """Asked for 1 % it once made 50 %: that far in the tail, differences of the distribution function are rounding."""
    from noiseproof.noise.instance import _flip_rates

    def mean(location):
        return stats.truncnorm.mean(-location / 0.1, (1 - location) / 0.1, loc=location, scale=0.1)

    location = optimize.brentq(lambda at: mean(at) - rate, -15, 15, xtol=1e-12)
    uniform = (np.arange(2000) + 0.5) / 2000
    found = stats.truncnorm.cdf(_flip_rates(rate, uniform), -location / 0.1, (1 - location) / 0.1, loc=location, scale=0.1)
    assert np.abs(found - uniform).max() < 1e-5
    images, labels = problem()
    error = min(rate, 1 - rate) / 6000**0.5  # of the mean: no such distribution spreads wider than the exponential one
    assert abs(noise.instance_dependent(images, labels, rate, seed=0).rate - rate) < 5 * error + 1 / 6000


def test_flip_rates_differ_between_images():
    """Over many seeds an image flips with a rate of its own: the spread of these is 0.1, far above what one rate would give."""
    images, labels = problem(count=400)
    flips = np.mean([noise.instance_dependent(images, labels, 0.4, seed=s).mask for s in range(5)], axis=0)
    assert 0.3 < flips.mean() < 0.5  # every seed draws its rates anew, so only the mean is fixed over seeds
    from noiseproof.noise.instance import _flip_rates

    rates = _flip_rates(0.4, (np.arange(20000) + 0.5) / 20000)
    assert rates.mean() == pytest.approx(0.4, abs=1e-4)
    assert rates.std() == pytest.approx(0.1, abs=1e-3)
    assert rates.min() >= 0
    low = _flip_rates(0.05, (np.arange(20000) + 0.5) / 20000)
    assert low.mean() == pytest.approx(0.05, abs=1e-4)


def test_the_destination_depends_on_the_image():
    """The same image gets the same destination nearly always, another image another one.

    Uniform destinations would agree in 1 of 4 cases (5 classes); here copies of one image agree far more often.
    """
    images, _ = problem(count=40)
    copies = np.repeat(images, 100, axis=0)
    noisy = noise.instance_dependent(copies, np.zeros(4000, dtype=int), 0.5, seed=3, classes=5)
    groups = [noisy.labels[i * 100 : (i + 1) * 100][noisy.mask[i * 100 : (i + 1) * 100]] for i in range(40)]
    agreement = np.mean([np.bincount(group, minlength=5).max() / len(group) for group in groups])
    favourites = {int(np.bincount(group, minlength=5).argmax()) for group in groups}
    assert agreement > 0.7
    assert len(favourites) > 1


def test_the_seed_decides():
    images, labels = problem(count=500)
    first = noise.instance_dependent(images, labels, 0.4, seed=1)
    assert noise.instance_dependent(images.copy(), labels, 0.4, seed=1).hash == first.hash
    assert noise.instance_dependent(images, labels, 0.4, seed=2).hash != first.hash
    assert bool((first.labels[~first.mask] == labels[~first.mask]).all())


def test_what_is_in_memory_at_a_time_changes_nothing(monkeypatch):
    images, labels = problem(count=500)
    whole = noise.instance_dependent(images, labels, 0.6, seed=1)
    monkeypatch.setattr("noiseproof.noise.instance.MAX_CELLS", 200)  # two images of 108 pixels at a time, 40 pixels of them
    assert noise.instance_dependent(images, labels, 0.6, seed=1).hash == whole.hash


def keys(seed, count, stream):
    """SplitMix64 (Steele, Lea and Flood, 2014) in whole numbers."""
    found = []
    for i in range(1, count + 1):
        z = (seed + stream * 0xD1342543DE82EF95 + i * 0x9E3779B97F4A7C15) % 2**64
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        found.append(z ^ z >> 31)
    return found


def uniform(seed, count, stream):
    return [(key >> 11) / 2**53 for key in keys(seed, count, stream)]


def location_of(rate):
    """Of the normal distribution with deviation 0.1 that has this mean once it is truncated to [0, 1]."""
    standard, low, high = NormalDist(), -3.0, 4.0
    for _ in range(60):
        location = (low + high) / 2
        a, b = -location / 0.1, (1 - location) / 0.1
        mass = standard.cdf(b) - standard.cdf(a)
        mean = location + 0.1 * (standard.pdf(a) - standard.pdf(b)) / mass if mass > 1e-12 else float(location > 0.5)
        low, high = (location, high) if mean < rate else (low, location)
    return location


@pytest.mark.parametrize("floating", [False, True], ids=["bytes", "floating"])
@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize("rate", [0.05, 0.4, 0.85])
def test_the_labels_are_those_of_the_rule_written_out(rate, seed, floating):
    """Labels made on one machine are made again on another, and by later versions: streams 10 to 13, one step at a time."""
    images, labels = problem(count=150, classes=4)
    if floating:
        images = (images / 255).astype(np.float32)
    normal = NormalDist(location_of(rate), 0.1)
    below, above = normal.cdf(0), normal.cdf(1)
    rates = [normal.inv_cdf(below + u * (above - below)) for u in uniform(seed, 150, 10)]
    order = sorted(range(150), key=keys(seed, 150, 11).__getitem__)
    total, expected = uniform(seed, 1, 11)[0], labels.tolist()
    flat = images.reshape(150, -1).astype(float)
    centre = flat.mean(0) if floating else np.rint(flat.mean(0))
    scale, destination = flat.std(), uniform(seed, 150, 12)
    for i in order:
        before, total = math.floor(total), total + rates[i]
        if math.floor(total) == before:
            continue
        clean = labels[i]
        signs = np.array([2 * (key >> 63) - 1 for key in keys(seed, flat.shape[1] * 4, 14 + int(clean))]).reshape(-1, 4)
        scores = (flat[i] - centre) @ signs / scale
        weights = np.exp(scores - np.delete(scores, clean).max())
        weights[clean] = 0
        edges = np.cumsum(weights / weights.sum())
        expected[i] = int(np.argmax(edges > destination[i]))
    made = noise.instance_dependent(images, labels, rate, seed=seed, classes=4)
    assert made.labels.tolist() == expected
    assert made.seed == seed


@pytest.mark.parametrize(("unit", "origin"), [(1 / 256, 0.0), (1 / 256, 0.25), (1.0, 0.0), (1.0, 1e6)])
def test_the_unit_and_the_origin_of_floating_features_change_nothing(unit, origin):
    """Those of [0, 1] too are centred: otherwise all images of a class would go to one other."""
    images, labels = problem(count=6000)
    about_0 = images / 256 - 0.5
    expected = noise.instance_dependent(about_0, labels, 0.5, seed=1)
    made = noise.instance_dependent(images * unit + origin, labels, 0.5, seed=1)
    assert made.labels.tolist() == expected.labels.tolist()
    others = made.matrix[~np.eye(5, dtype=bool)].reshape(5, 4)
    # Of 600 flips of a class each other class gets a quarter: 0.06 is 3.4 standard errors, and the seed is fixed.
    assert np.abs(others / others.sum(1, keepdims=True) - 0.25).max() < 0.06


def test_the_scores_of_a_wide_image_overflow_nothing():
    """One bright image of 90,000 pixels among dark ones has scores beyond a thousand, whose exponentials are infinite."""
    images = np.zeros((20, 90_000), np.uint8)
    images[0] = 255
    labels = np.arange(20) % 4
    found = noise.instance_dependent(images, labels, 0.98, seed=0)
    assert found.labels[0] != labels[0]


def test_no_noise_is_no_noise():
    images, labels = problem(count=50)
    assert noise.instance_dependent(images, labels, 0.0, seed=1).rate == 0.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rate": 1.0}, r"rate must be in \[0, 1\), got 1.0"),
        ({"labels": [0, 1]}, "images and labels must be as many: 50 and 2"),
        ({"images": np.where(np.arange(200).reshape(50, 4) == 7, np.nan, 0.5)}, "images must be finite"),
        ({"labels": [0] * 50}, "classes must be at least 2, got 1"),
    ],
)
def test_bad_input_is_refused(change, message):
    images, labels = problem(count=50)
    with pytest.raises(ValueError, match=message):
        noise.instance_dependent(**({"images": images, "labels": labels, "rate": 0.3, "seed": 0} | change))
