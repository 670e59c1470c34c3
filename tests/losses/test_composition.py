"""Sums of losses: `alpha * NCE() + beta * AMSE(a=30)` is the paper's framework, literally."""

import pickle

import pytest
import torch

import noiseproof
from noiseproof import AMSE, CE, FL, GCE, JALCE, JALFL, MAE, MSE, NCE, NFL, RCE, SCE, LogitClip, Sum
from noiseproof.core import operation, small
from tests.helpers.cases import draw, gradient


def test_the_papers_loss_is_the_sum_of_its_parts():
    logits, target = draw(8, 10)
    for named, parts in (
        (JALCE(alpha=2.0, beta=0.5, a=7.0), 2.0 * NCE() + 0.5 * AMSE(a=7.0)),
        (JALFL(alpha=2.0, gamma=1.5), 2.0 * NFL(gamma=1.5) + 1.0 * AMSE(a=30.0)),
        (SCE(alpha=0.1, beta=1.0), 0.1 * CE() + RCE()),
    ):
        torch.testing.assert_close(parts(logits, target), named(logits, target), rtol=0, atol=0)
        torch.testing.assert_close(gradient(parts, logits, target), gradient(named, logits, target), rtol=0, atol=0)


def test_a_sum_makes_one_pass_over_the_logits(monkeypatch):
    calls = []
    original = noiseproof.core.statistics.statistics_of_rows
    monkeypatch.setattr(noiseproof.core.statistics, "statistics_of_rows", lambda *args: calls.append(1) or original(*args))
    logits, target = draw(8, 10)
    loss = NCE() + 3.0 * AMSE() + 0.5 * (GCE() + FL(gamma=2.0))
    loss._by_autograd(logits, target)
    assert len(calls) == 1
    assert operation.statistics_of_rows is original
    passes = []
    first_pass = small.first_pass
    monkeypatch.setattr(small, "first_pass", lambda *args: passes.append(1) or first_pass(*args))
    loss(logits, target)  # as a program
    assert (len(passes), len(calls)) == (1, 1)


def test_terms_are_flattened_and_scaled():
    total = 2 * (NCE() + 3 * MAE())
    assert repr(total) == "2.0 * NCE() + 6.0 * MAE(scale=2.0)"
    assert isinstance(total, Sum)
    assert [c for c, _ in total.terms] == [2.0, 6.0]


def test_a_pickled_sum_loads_from_base_where_its_class_always_was():
    logits, target = draw(8, 10)
    total = NCE() + 3.0 * AMSE()
    pickled = pickle.dumps(total, protocol=0)  # in which names are plain text
    # Bytes that were made the line before; the package itself never unpickles.
    older = pickle.loads(pickled)
    assert pickled.count(b"noiseproof.losses.base") > 0
    assert repr(older) == repr(total)
    torch.testing.assert_close(older(logits, target), total(logits, target), rtol=0, atol=0)


def test_what_is_no_function_of_row_statistics_is_no_part_of_a_sum():
    for loss in (LogitClip(tau=2.0), noiseproof.Student(features=6, classes=3), noiseproof.GJS()):
        with pytest.raises(
            TypeError, match=f"{type(loss).__name__} is no function of row statistics and cannot be part of a sum"
        ):
            NCE() + loss


def test_the_parts_share_their_options():
    logits, target = draw(8, 4)
    weight = torch.rand(4, dtype=torch.float64)
    total = NCE(weight=weight, reduction="sum") + MSE(weight=weight, reduction="sum")
    assert total.reduction == "sum"
    expected = NCE(weight=weight, reduction="sum")(logits, target) + MSE(weight=weight, reduction="sum")(logits, target)
    torch.testing.assert_close(total(logits, target), expected)


@pytest.mark.parametrize(
    "difference",
    [{"weight": None}, {"weight": torch.zeros(4)}, {"reduction": "mean"}, {"label_smoothing": 0.2}, {"ignore_index": 3}],
    ids=str,
)
def test_parts_that_differ_in_one_option_are_refused(difference):
    options = {"weight": torch.ones(4), "reduction": "sum", "label_smoothing": 0.1, "ignore_index": 2}
    with pytest.raises(ValueError, match="the parts of a sum must share"):
        NCE(**options) + MSE(**{**options, **difference})


@pytest.mark.parametrize("bad", ["2", None, [1.0], torch.ones(2)])
def test_only_numbers_scale_a_loss(bad):
    with pytest.raises(TypeError):
        bad * NCE()
    with pytest.raises(TypeError):
        NCE() + bad


def test_a_coefficient_must_be_finite():
    with pytest.raises(ValueError, match="a coefficient of a sum must be in"):
        float("nan") * NCE()


def test_the_parts_of_a_loss_hear_of_the_epoch():
    alone, base, inner = (noiseproof.SparseRegularization(growth=2.0) for _ in range(3))
    around = noiseproof.SparseRegularization(growth=2.0, base=inner)
    for loss in (alone, LogitClip(base=base), around):
        loss.set_epoch(3)
    assert [loss.strength.item() for loss in (alone, base, around, inner)] == pytest.approx([1.2 * 2**3] * 4)


def test_a_base_loss_leaves_its_options_to_the_outer_one():
    with pytest.raises(ValueError, match="give reduction to the outer loss, not to its part"):
        LogitClip(base=CE(reduction="sum"))
    with pytest.raises(TypeError, match="a part of a loss must be a loss of this package, got CrossEntropyLoss"):
        LogitClip(base=torch.nn.CrossEntropyLoss())


def test_a_sum_with_options_of_its_own_takes_plain_parts():
    with pytest.raises(ValueError, match="give weight to the outer loss, not to its part"):
        Sum([(1.0, CE(weight=torch.ones(3)))], reduction="sum")
    with pytest.raises(ValueError, match="a sum needs at least one loss"):
        Sum([])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_part_that_counts_for_nothing_counts_for_nothing_where_it_is_infinite(smoothing):
    """Cross entropy is, of a label that is masked, and 0 times infinity is not 0."""
    logits, target = torch.tensor([[-torch.inf, 1.0, 2.0], [0.5, 1.0, 2.0]], requires_grad=True), torch.tensor([0, 1])
    contract = {"reduction": "none", "label_smoothing": smoothing}
    both = 0.0 * CE(**contract) + 1.0 * MAE(**contract)
    expected = MAE(**contract)(logits, target)
    torch.testing.assert_close(both(logits, target), expected)
    (found,), (alone,) = (torch.autograd.grad(value.sum(), logits) for value in (both(logits, target), expected))
    torch.testing.assert_close(found, alone)
