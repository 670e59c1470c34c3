"""What runs cost is learned from finished ones, and a list is divided among machines."""

import dataclasses

import pytest

from noiseproof.paper.plan import RunCosts, shard
from noiseproof.paper.run_list import PlannedRun
from noiseproof.train import Recipe

HERE = "this machine"


@pytest.fixture
def recipes():
    return [Recipe(dataset="digits", loss="jal-ce", epochs=6, seed=seed) for seed in range(4)]


def planned(recipe, done=0):
    return PlannedRun(recipe, recipe.as_dict(), None, done)


def measured(recipe, at_once, **seconds):
    made = {"machine": HERE, "at_once": at_once}
    return {"recipe": recipe.as_dict(), "environment": made, "seconds": seconds, "result": {"test_accuracy": 0.5}}


def test_costs_are_learned_from_finished_runs_and_shared_among_concurrent_ones(recipes):
    costs = RunCosts(HERE)
    costs.add(measured(recipes[0], 2, prepare=4.0, train=20.0))
    longer = dataclasses.replace(recipes[0], epochs=12)
    assert costs.seconds(planned(longer)) == pytest.approx((4 + 20 / 6 * 12) / 2), "twice the epochs begin once"
    elsewhere = RunCosts("another machine")
    elsewhere.add(measured(recipes[0], 2, prepare=4.0, train=20.0))
    assert elsewhere.seconds(planned(recipes[1])) is None


def test_a_few_concurrent_runs_are_not_taken_to_be_faster_than_many_were(recipes):
    """Of six concurrent runs each took 60 seconds: 10 of the device's time. One alone does not end in 10 seconds."""
    costs, run = RunCosts(HERE), planned(recipes[0])
    assert costs.until_end(run, 6) is None
    costs.add(measured(recipes[0], 6, train=60.0))
    assert costs.seconds(run) == pytest.approx(10)
    assert [costs.until_end(run, width) for width in (1, 6, 12)] == pytest.approx([60, 60, 120])


def test_a_device_that_is_slower_than_it_was_is_believed(recipes):
    costs, run = RunCosts(HERE), planned(recipes[0])
    for _ in range(9):
        costs.add(measured(recipes[0], 6, train=60.0))
    costs.add(measured(recipes[0], 6, train=150.0), just_now=True)
    assert costs.until_end(run, 6) == pytest.approx(150)
    costs.add(measured(recipes[0], 6, train=20.0), just_now=True)  # the last of its part, with the device to itself
    assert costs.until_end(run, 6) == pytest.approx(60)


def test_of_a_run_that_was_begun_only_the_rest_counts(recipes):
    """Six epochs of ten seconds, measured elsewhere."""
    costs = RunCosts(HERE, {RunCosts.key(HERE, recipes[0].as_dict()): 10.0})
    assert [costs.seconds(planned(recipes[0], done)) for done in (0, 4)] == [60.0, 20.0]


def test_shards_share_out_all_runs(recipes):
    parts = [shard(recipes, part, 3) for part in (1, 2, 3)]
    assert sorted(recipe.seed for part in parts for recipe in part) == [0, 1, 2, 3]
    assert [len(part) for part in parts] == [2, 1, 1]
    with pytest.raises(ValueError, match=r"the part must be in \[1, 3\], got 4"):
        shard(recipes, 4, 3)
