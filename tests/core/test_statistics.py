"""Row statistics by name, and the names of before."""

import pytest
import torch

import noiseproof
from noiseproof.core.row_sums import parse
from noiseproof.core.statistics import FORMER_ATTRIBUTES
from noiseproof.statistics import Statistic, row_statistics

NEEDS = (Statistic.P_OTHERS, Statistic.MARGIN)


def rows():
    return row_statistics(torch.tensor([[1.0, 0.0, 2.0]]), torch.tensor([0]), NEEDS)


@pytest.mark.parametrize(("former", "name"), FORMER_ATTRIBUTES.items())
def test_former_attributes_work_and_warn(former, name):
    with pytest.warns(DeprecationWarning, match=f"{former} of row statistics is called {name} now"):
        assert torch.equal(getattr(rows(), former), getattr(rows(), name))


def test_an_attribute_that_never_was_is_named():
    with pytest.raises(AttributeError, match="row statistics have no attribute 'mist'"):
        _ = rows().mist


def test_former_names_of_statistics_work():
    assert Statistic.MISS is Statistic.P_OTHERS
    assert Statistic.LEAD is Statistic.MARGIN
    assert Statistic.room_sum(0.0, 1e-4) == Statistic.clipped_focal_sum(0.0, 1e-4)


def test_sums_of_losses_that_were_pickled_under_former_names_are_understood():
    assert parse("room 0.0 1e-08 whole") == parse("clipped_focal 0.0 1e-08 whole")
    assert parse("lead 0.0 0.0 whole") == parse("margin 0.0 0.0 whole")


def test_the_sums_of_a_loss_come_in_the_order_in_which_their_gradients_are_added():
    from noiseproof.core.statistics import needs_key_of

    kinds = [key.split(" ")[0] for key in needs_key_of(noiseproof.ANLCE().needs)[0]]
    assert kinds == ["nll", "clipped_focal"]
