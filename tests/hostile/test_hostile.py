"""Every hostile file gets one sentence or is read rightly: no crash, no hang, no trace, no gigabyte. The cases are tables."""

import pytest

from tests.hostile.harness import Bench, cases


@pytest.fixture(scope="module")
def bench():
    with Bench() as ready:
        yield ready


@pytest.mark.parametrize(
    "key", [pytest.param(key, marks=pytest.mark.slow) if case.slow else key for key, case in cases().items()]
)
def test_a_hostile_file_gets_one_sentence_or_is_read_rightly(bench, key):
    outcome = bench.run(key)
    assert outcome.fine, f"{outcome.kind} after {outcome.seconds:.2f} s: {outcome.text}"


@pytest.mark.parametrize("key", cases("faults.py"))
def test_the_harness_notices(bench, key):
    assert bench.run(key).kind == key.removeprefix("faults-").removesuffix(" at work")
