"""Which part of a lead is the loss, and which the decay."""

import numpy as np
import pytest
from scipy import stats

from noiseproof import paper
from noiseproof.paper.answer import describe_lead, lead_of, leads_among
from noiseproof.paper.groups import paper_groups

LOSSES, DECAYS = ("JAL-CE", "CE"), ("L1", "L2")


def seeds(*values):
    return dict(enumerate(values))


def test_the_parts_add_up_and_each_is_one_change_averaged_over_the_other():
    generator = np.random.default_rng(0)
    one_l1, one_l2, other_l1, other_l2 = generator.normal(60, 5, (4, 5))
    found = lead_of((seeds(*one_l1), seeds(*one_l2)), (seeds(*other_l1), seeds(*other_l2)))
    assert found.lead.value == pytest.approx(found.decay.value + found.loss.value)
    assert found.lead.value == pytest.approx((one_l1 - other_l2).mean())
    assert found.decay.value == pytest.approx(((one_l1 + other_l1) / 2 - (one_l2 + other_l2) / 2).mean())
    assert (found.first.value, found.second.value) == pytest.approx([(one_l1 - other_l1).mean(), (one_l2 - other_l2).mean()])
    expected = stats.ttest_1samp((one_l1 - one_l2 + other_l1 - other_l2) / 2, 0).confidence_interval(0.95)
    assert found.decay.interval == pytest.approx([expected.low, expected.high])


def test_only_seeds_count_that_all_four_have():
    found = lead_of(({1: 60.0, 2: 99.0}, {1: 60.0}), ({1: 50.0, 3: 1.0}, {1: 50.0, 2: 1.0}))
    assert (found.lead.value, found.lead.n) == (10.0, 1)
    assert lead_of(({1: 1.0}, {1: 1.0}), ({1: 1.0}, {2: 1.0})) is None


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (((70, 71, 72), (60, 61, 62.1)), ((40, 41, 42), (30, 31, 32.1)), "the decay's and the loss's parts."),
        (((70, 71, 72), (70, 71, 72.1)), ((40, 41, 42), (40, 41, 42.1)), "More than seeds explain: the loss's part."),
        (((70, 71, 72), (60, 61, 62.1)), ((70, 71, 72), (60, 61, 62.1)), "the decay's part. With L1 or L2 for both, no diff"),
        (((70, 71, 72), (60, 61, 62.1)), ((40, 41, 42), (60, 61, 62)), "the loss's parts. With L2 for both, no difference"),
        (((70, 75, 80), (70, 75, 80)), ((80, 75, 69), (80, 75, 69)), "The difference is no more than seeds explain."),
        (((70, 71), (60, 61)), ((40, 41), (30, 31)), "Seeds: 2, too few for intervals."),
    ],
)
def test_the_words_say_no_more_than_the_seeds_show(one, other, said):
    text = describe_lead(lead_of(*(tuple(seeds(*values) for values in pair) for pair in (one, other))), LOSSES, DECAYS)
    assert said in text
    assert ("[" in text) == (len(one[0]) > 2)


def test_the_losses_of_a_page_are_compared_where_each_has_the_decay_of_the_other():
    def run(loss, accuracy, **decay):
        recipe = {**paper.recipe(f"cifar10/{loss}", noise="symmetric:0.8").as_dict(), "precision": "bf16", **decay}
        return {"recipe": recipe, "result": {"test_accuracy": accuracy}}

    l1, l2 = {"l1": 5e-5, "l2": 0.0}, {"l1": 0.0, "l2": 1e-4}
    jal = [run("jal-ce", 0.64, **l1), run("jal-ce", 0.56, **l2)]
    ce = [run("ce", 0.3, **l1), run("ce", 0.2, **l2)]
    assert leads_among(paper_groups([*jal, *ce], [], "bf16"))[0].startswith(
        "JAL-CE with L1 5e-05 minus CE with L2 0.0001: +44.00 points. Of these the decay gives +9.00 and the loss +35.00;"
    )
    for some in ([*jal, ce[0]], [*jal, ce[1]], [jal[0], *ce], [jal[1], *ce], ce, jal):
        assert leads_among(paper_groups(some, [], "bf16")) == []
