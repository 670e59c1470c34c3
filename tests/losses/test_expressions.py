"""The catalogue's texts are arithmetic, and are evaluated as nothing else; a pair's are those of its parts, combined."""

import math

import pytest

import noiseproof
from noiseproof.losses.catalog import both, evaluate, names_in, plus, register, register_pair, times, values_of, with_constants

REFUSED = {
    "().__class__.__bases__[0]": "Attribute",
    "__import__('os').system('true')": "Attribute",
    "(lambda: 1)()": "Lambda",
    "log(log)(2)": "Call",
    "[k for k in p]": "ListComp",
    "log(x=2)": "keyword",
    "p[0:2]": "Slice",
    "'p' * 3": "Constant",
    "(q := 3)": "NamedExpr",
    "f'{q}'": "JoinedStr",
    "{**p}": "Dict",
}


@pytest.mark.parametrize(("expression", "node"), REFUSED.items(), ids=str)
def test_what_is_not_arithmetic_is_refused_by_name(expression, node):
    with pytest.raises(ValueError, match=f"must be made of numbers, names, arithmetic, comparisons and calls, got {node}"):
        evaluate(expression, {"p": [0.5, 0.5], "q": 1.0, "x": 1.0})


@pytest.mark.parametrize("text", ["", "1 +", "for k in p", "if"])
def test_what_is_no_expression_is_refused(text):
    with pytest.raises(ValueError, match="must be a Python expression"):
        names_in(text)


def test_python_itself_is_out_of_reach():
    for name in ("open", "eval", "print", "__builtins__"):
        with pytest.raises(ValueError, match=f"uses {name}, and no value was given"):
            evaluate(f"{name}(1)", {})


def test_expressions_are_evaluated_as_python_would():
    values = {"a": 3.0, "q": 2.0, "offset": False}
    assert evaluate("(a**q + 1 if q >= 1 else a) - (0 if offset else (a - 1)**q)", values) == 6.0
    assert evaluate("not q == 2 or a > 2 and q < 3", values) is True
    assert evaluate("sum(1 / arange(1, 4))", {}) == pytest.approx(11 / 6)
    assert evaluate("log(sqrt(exp(3)))", {}) == pytest.approx(1.5)
    assert evaluate("-inf", {}) == -math.inf


def test_a_sufficient_condition_is_evaluated_without_its_if():
    assert evaluate("if q <= 1", {"q": 0.5})
    assert names_in("if q <= w1") == {"q", "w1"}


def test_names_are_parsed_and_not_searched_for():
    assert names_in("False", "exp(-1 / a)", "p_ + p[y]") == {"exp", "a", "p_", "p", "y"}


def test_a_parameter_p_is_told_from_the_softmax():
    values = values_of(noiseproof.AUL(a=3.0, p=2.0))
    assert values == {"a": 3.0, "p_": 2.0}
    assert values_of(noiseproof.FL(gamma=1.0))["F"](0.5) == pytest.approx(0.5 * math.log(2))


def test_a_loss_with_a_formula_that_is_none_is_refused_where_it_is_registered():
    entry = {"title": "Example", "kind": "active", "reference": "none"}
    with pytest.raises(ValueError, match=r"got Attribute in 'p\.sum'"):
        register("example-text", formula="p.sum()", **entry)(type("Example", (noiseproof.RobustLoss,), {}))
    assert "example-text" not in {known.name for known in noiseproof.list_losses()}


def test_the_text_of_a_sum_keeps_its_meaning():
    values = {"alpha": 2.0, "beta": 3.0, "x": 5.0, "c": True}
    for first in ("x + 1", "x - 1", "-x", "x * 2 / 3", "x**2", "x if c else 0", "x == 5", "0", "1"):
        for second in ("x - 4", "1 / x", "0", "1", "-log(x)"):
            text = plus(times("alpha", first), times("beta", second))
            assert evaluate(text, values) == pytest.approx(2 * evaluate(first, values) + 3 * evaluate(second, values))
    assert plus(times("alpha", "inf"), times("beta", "1")) == "inf"


@pytest.mark.parametrize("q", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("a", [0.5, 1.0, 2.0])
def test_the_text_of_two_conditions_means_both(q, a):
    conditions = ["True", "False", "if True", "q == 1", "q <= 1 or a > 1", "if a >= 1", "q if a < 1 else 0"]
    for first in conditions:
        for second in conditions:
            values = {"q": q, "a": a}
            expected = bool(evaluate(first, values)) and bool(evaluate(second, values))
            assert bool(evaluate(both(first, second), values)) == expected


def test_constants_replace_names_and_nothing_else():
    assert with_constants("scale * (scale_ + 1)**2", {"scale": 1.0}) == "(scale_ + 1)**2"
    assert with_constants("if w1 >= a * w2", {"a": 2.5}) == "if w1 >= 2.5 * w2"
    assert with_constants("a**q  +  1", {"b": 1.0}) == "a**q  +  1"


def test_a_pair_of_a_loss_that_is_not_in_the_catalogue_is_refused():
    class Unknown(noiseproof.MAE):
        pass

    class Pair(noiseproof.Sum):
        def __init__(self, *, alpha=1.0, beta=1.0):
            super().__init__([(alpha, noiseproof.NCE()), (beta, Unknown())])

    with pytest.raises(ValueError, match="Unknown, a part of Pair, is not in the catalogue; register it first"):
        register_pair("example-pair", reference="none")(Pair)


def test_a_pair_that_no_part_vouches_for_claims_no_asymmetry():
    entries = {entry.name: entry for entry in noiseproof.list_losses()}
    assert entries["ece+mae"].asymmetric is None  # nothing is known of ECE
    assert entries["sce"].asymmetric == "False"  # said of it by its own entry, because CE never is
    assert entries["nce+rce"].asymmetric == "if True"
