"""What the catalogue prints is true: formulas, ranges, symmetry and asymmetry are evaluated, not believed."""

import inspect
import math
import re

import numpy as np
import pytest
import torch

import noiseproof
from noiseproof.core.statistics import Statistic
from noiseproof.losses import catalog
from noiseproof.losses.catalog import evaluate, values_of
from tests.helpers.cases import ENTRIES, NAMES, RANDOM, all_options, build, call, draw


def value(expression, loss, **symbols):
    """Of a formula or condition of the catalogue, as printed."""
    return evaluate(expression, {**values_of(loss), **symbols})


def at(z, y):
    """What an expression may say of one example: its logits, softmax and label, and the scores of LDR."""
    p, scores = torch.softmax(z, 0).numpy(), np.logaddexp(z.numpy(), 0)
    return {"p": p, "y": int(y), "K": len(p), "e": np.eye(len(p))[int(y)], "z": z.numpy(), "s": scores / scores.mean()}


PRINTED = [(name, options) for name, options in all_options() if ENTRIES[name].kind != "head" and name not in RANDOM]


@pytest.mark.parametrize(("name", "options"), PRINTED, ids=str)
def test_the_printed_formula_is_the_loss(name, options):
    loss = build(name, 6, reduction="none", **options).double()
    logits, target = draw(10, 6, scale=3.0)
    expected = [float(value(ENTRIES[name].formula, loss, **at(z, y))) for z, y in zip(logits, target, strict=True)]
    tolerance = 1e-12 if name == "sr" else 1e-9  # its lambda has the digits of the logits
    np.testing.assert_allclose(loss(logits, target).numpy(), expected, rtol=tolerance, atol=1e-12)


@pytest.mark.parametrize(("name", "options"), [(n, o) for n, o in all_options() if ENTRIES[n].range], ids=str)
@pytest.mark.parametrize("classes", [2, 3, 10])
def test_values_stay_in_the_printed_range_and_reach_its_ends(name, options, classes):
    loss = build(name, classes, reduction="none", **options).double()
    low, high = (float(value(end, loss, K=classes)) for end in ENTRIES[name].range)
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2000, classes, generator=generator, dtype=torch.float64)
    logits *= 10 ** torch.linspace(-2, 3, 2000, dtype=torch.float64)[:, None]
    flat_but_label = torch.zeros(classes, dtype=torch.float64)
    flat_but_label[0] = -1e8
    corners = 300 * torch.eye(classes, dtype=torch.float64)
    surely_wrong = torch.full((classes,), -40.0, dtype=torch.float64)
    surely_wrong[0], surely_wrong[1] = -1e8, 0.0
    logits = torch.cat(
        [logits, torch.zeros(1, classes, dtype=torch.float64), corners, flat_but_label[None], surely_wrong[None]]
    )
    values = call(loss, logits, torch.zeros(len(logits), dtype=torch.long))
    slack = 1e-9 * max(1.0, abs(low))
    assert values.min() >= low - slack
    assert values.max() <= high + 1e-9 * max(1.0, min(high, 1e9))
    assert values.min() <= low + 1e-3 * max(1.0, abs(low))
    if math.isfinite(high):
        assert values.max() >= high - 1e-2 * max(1.0, abs(high))
    else:
        assert values.max() > 1e2 * min(getattr(loss, "alpha", 1.0), 1.0)


@pytest.mark.parametrize(("name", "options"), PRINTED, ids=str)
def test_symmetry_is_as_printed(name, options):
    """Symmetric: summed over all labels the loss is the same whatever the prediction."""
    loss = build(name, 5, reduction="none", **options).double()
    logits, _ = draw(50, 5, scale=3.0)
    sums = torch.stack([loss(logits, torch.full((50,), k)) for k in range(5)], 1).sum(1)
    constant = bool((sums - sums[0]).abs().max() < 1e-9 * sums[0].abs().clamp_min(1))
    assert constant == bool(value(ENTRIES[name].symmetric, loss))


WEIGHTS = [(0.5, 0.3, 0.2), (0.4, 0.35, 0.25), (0.72, 0.18, 0.1), (0.36, 0.34, 0.3), (0.9, 0.06, 0.04)]
CLAIMED = [(name, options) for name, options in all_options() if ENTRIES[name].asymmetric is not None]


@pytest.mark.parametrize("weights", WEIGHTS, ids=str)
@pytest.mark.parametrize(("name", "options"), CLAIMED, ids=str)
def test_asymmetry_is_as_printed(name, options, weights):
    """Asymmetric for these label weights: no prediction has less risk than certainty of the first label.

    Certainty is approached, not reached: the other logits go to minus infinity, the less likely the label the faster, which
    is where normalised losses, undefined at certainty itself, have the least risk.
    """
    claim = ENTRIES[name].asymmetric
    loss = build(name, 3, reduction="none", **options).double()
    w = torch.tensor(weights, dtype=torch.float64)
    grid = [(i / 60, j / 60, (60 - i - j) / 60) for i in range(61) for j in range(61 - i)]
    near_certainty = [(1 - 2 * d, d, d) for d in np.logspace(-9, -1, 60)]
    logits = torch.tensor(grid + near_certainty, dtype=torch.float64).clamp_min(1e-12).log()

    def risk(z):
        return sum(w[k] * loss(z, torch.full((len(z),), k)) for k in range(3))

    certain = risk(torch.tensor([[0.0, -40.0, -4e9]], dtype=torch.float64)).item()
    least = risk(logits).min().item()
    scale = max(1.0, abs(certain))
    holds = certain <= least + 1e-6 * scale
    expected = bool(value(claim, loss, w1=weights[0], w2=weights[1]))
    if claim.startswith("if "):
        assert holds or not expected
    else:
        assert holds == expected


def test_the_papers_example_of_a_bound():
    """Ten classes, 80 % symmetric noise: w = (0.2, 0.8/9, ...) needs a >= 9 at q = 2 and a >= 4.739 at q = 3."""
    condition = ENTRIES["amse"].asymmetric
    w1, w2 = 0.2, 0.8 / 9
    for q, bound in ((2.0, 9.0), (3.0, 4.739)):
        for a, expected in ((bound + 1e-3, True), (bound - 1e-3, False)):
            assert value(condition, noiseproof.AMSE(a=a, q=q), w1=w1, w2=w2) == expected


@pytest.mark.parametrize(
    ("name", "cls"),
    [
        ("jal-ce", noiseproof.JALCE),
        ("JAL-CE", noiseproof.JALCE),
        ("JALCE", noiseproof.JALCE),
        ("jal_ce", noiseproof.JALCE),
        ("NCE+RCE", noiseproof.NCEandRCE),
        ("NCE + AGCE", noiseproof.NCEandAGCE),
        ("CE+LC", noiseproof.PublishedLogitClip),
        ("LT-APL", noiseproof.StudentAPL),
        ("AGCE+MAE", noiseproof.AGCEandMAE),
    ],
)
def test_a_loss_is_found_by_any_of_its_names(name, cls):
    assert noiseproof.find_loss(name).cls is cls


@pytest.mark.parametrize(
    ("wrong", "meant"), [("gec", "gce"), ("jal", "jal-ce"), ("nce+rec", "nce+rce"), ("cross entrop", "ce")]
)
def test_a_wrong_name_gets_a_suggestion(wrong, meant):
    with pytest.raises(ValueError, match=r"unknown loss .*; did you mean") as error:
        noiseproof.create_loss(wrong)
    assert str(error.value) == f"unknown loss {wrong!r}; did you mean {meant!r}? 'noiseproof losses' lists them"


def test_a_hopeless_name_gets_none():
    with pytest.raises(ValueError, match=r"^unknown loss 'xyzzyxyzzy'; 'noiseproof losses' lists them$"):
        noiseproof.create_loss("xyzzyxyzzy")
    with pytest.raises(TypeError, match="a loss is looked up by its name, got 3"):
        noiseproof.create_loss(3)


def test_a_wrong_option_is_named_with_the_right_ones():
    with pytest.raises(
        TypeError, match="GCE has no option 'gamma'; it takes q, weight, ignore_index, reduction, label_smoothing"
    ):
        noiseproof.create_loss("gce", gamma=1.0)


def test_a_taken_name_is_refused():
    with pytest.raises(ValueError, match="the name 'gce' of Impostor is taken by GCE"):

        @catalog.register("gce", title="", formula="", kind="active", reference="")
        class Impostor(noiseproof.RobustLoss):
            pass


def test_names_are_looked_up_in_a_table_that_a_new_loss_renews(monkeypatch):
    monkeypatch.setattr(catalog, "_entries", dict(catalog._entries))
    monkeypatch.setattr(catalog, "_names", {})
    assert catalog._lookup() is catalog._lookup()
    with pytest.raises(ValueError, match="unknown loss 'newcomer'"):
        noiseproof.find_loss("newcomer")

    @catalog.register("newcomer", title="New", formula="-log(p[y])", kind="active", reference="none")
    class Newcomer(noiseproof.RobustLoss):
        pass

    assert noiseproof.find_loss("Newcomer").cls is Newcomer


def test_options_are_given_by_name():
    """Else ``JALCE(weight)``, as torch.nn.CrossEntropyLoss takes it, would be another loss."""
    with pytest.raises(TypeError, match="takes 1 positional argument but 2 were given"):
        noiseproof.JALCE(torch.ones(3))
    with pytest.raises(TypeError, match="takes 2 positional arguments but 3 were given"):
        noiseproof.functional.gce(torch.zeros(1, 3), torch.tensor([0]), 0.5)


@pytest.mark.parametrize("name", NAMES)
def test_a_function_documents_each_of_its_arguments(name):
    function = getattr(noiseproof.functional, ENTRIES[name].function_name)
    described = dict(re.findall(r"^ +(\w+): (.+)$", function.__doc__, re.MULTILINE))
    assert list(described) == list(inspect.signature(function).parameters)
    assert all(meaning != argument for argument, meaning in described.items())
    for parameter, domain in DOMAINS.get(name, {}).items():
        assert f"in {domain}" in described[parameter]


def test_a_forgotten_comma_in_what_a_loss_needs_is_noticed():
    with pytest.raises(TypeError, match="`needs` of Hasty must be a tuple; one of a single statistic ends in a comma"):

        class Hasty(noiseproof.RobustLoss):
            needs = Statistic.P_OTHERS


@pytest.mark.parametrize("name", NAMES)
def test_every_entry_is_complete(name):
    entry = ENTRIES[name]
    assert entry.reference
    assert entry.title[0].isupper()
    assert re.search("[Uu]se it ", entry.cls.__doc__), "say when to use it"
    assert getattr(noiseproof, entry.cls.__name__) is entry.cls
    assert entry.name in {other.name for other in noiseproof.list_losses(kind=entry.kind)}


def test_every_loss_of_the_paper_is_here():
    """The rows of the paper's tables."""
    rows = ["CE", "FL", "GCE", "SCE", "NCE", "NCE+RCE", "NCE+AUL", "NCE+AGCE", "CE+LC", "ANL-CE", "ANL-FL", "LT-APL", "JAL-CE"]
    rows += ["JAL-FL", "MAE", "AGCE", "AGCE+MAE", "AMSE"]
    assert all(noiseproof.find_loss(row) for row in rows)


def test_every_loss_that_can_be_imported_is_in_the_catalogue():
    """And so in every test that walks through it."""
    values = [getattr(noiseproof, name) for name in noiseproof.__all__]
    public = {value for value in values if isinstance(value, type) and issubclass(value, noiseproof.RobustLoss)}
    assert noiseproof.JALCE in public
    assert public - {noiseproof.RobustLoss, noiseproof.Sum} <= {entry.cls for entry in ENTRIES.values()}


@pytest.mark.parametrize("name", NAMES)
def test_hyper_parameters_are_given_by_name(name):
    kinds = {parameter.kind for parameter in inspect.signature(ENTRIES[name].cls).parameters.values()}
    assert kinds <= {inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD}


DEFAULTS = {
    "fl": {"gamma": 0.5},
    "mae": {"scale": 2},
    "rce": {"clip": 1e-4},
    "sce": {"alpha": 0.1, "beta": 1, "clip": 1e-4},
    "negative-ls": {"r": -1},
    "gce": {"q": 0.7},
    "truncated-gce": {"q": 0.7, "k": 0.5},
    "taylor-ce": {"t": 2},
    "phuber-ce": {"tau": 10},
    "js": {"pi": 0.5},
    "ogc": {"tau": 1e7, "epsilon": 20},
    "nfl": {"gamma": 0.5},
    "nnce": {"minimum": 1e-8},
    "nnfl": {"gamma": 0.5, "minimum": 1e-8},
    "aul": {"a": 5.5, "p": 3},
    "agce": {"a": 0.6, "q": 0.6},
    "ael": {"a": 2.5},
    "anorm": {"a": 2, "q": 2},
    "amse": {"a": 30, "q": 2},
    "anl-ce": {"alpha": 5, "beta": 5, "minimum": 1e-8},
    "anl-fl": {"alpha": 5, "beta": 5, "gamma": 0.5, "minimum": 1e-8},
    "jal-ce": {"alpha": 1, "beta": 1, "a": 30, "q": 2},
    "jal-fl": {"alpha": 1, "beta": 1, "a": 30, "gamma": 0.5, "q": 2},
    "nce+mae": {"alpha": 1, "beta": 1},
    "nce+rce": {"alpha": 1, "beta": 1, "clip": 1e-4},
    "nce+aul": {"alpha": 1, "beta": 4, "a": 6.3, "p": 1.5},
    "nce+agce": {"alpha": 1, "beta": 4, "a": 6, "q": 1.5},
    "nce+ael": {"alpha": 1, "beta": 4, "a": 5},
    "nfl+mae": {"alpha": 1, "beta": 1, "gamma": 0.5},
    "nfl+rce": {"alpha": 1, "beta": 1, "clip": 1e-4, "gamma": 0.5},
    "nfl+aul": {"alpha": 1, "beta": 4, "a": 6.3, "p": 1.5, "gamma": 0.5},
    "nfl+agce": {"alpha": 1, "beta": 4, "a": 6, "q": 1.5, "gamma": 0.5},
    "nfl+ael": {"alpha": 1, "beta": 4, "a": 5, "gamma": 0.5},
    "agce+mae": {"alpha": 1, "beta": 1, "a": 6, "q": 1.5},
    "ece": {"m": 1e5},
    "efl": {"m": 1e5, "gamma": 0.5},
    "ece+mae": {"alpha": 0.01, "beta": 5, "m": 1e5},
    "efl+mae": {"alpha": 0.01, "beta": 5, "m": 1e5, "gamma": 0.5},
    "logitclip": {"tau": 1},
    "ce+lc": {"delta": 2.5},
    "logit-bias": {"epsilon": 1},
    "sr": {"temperature": 0.5, "lam": 1.2, "q": 0.1, "growth": 1.03, "every": 1, "normalize": False},
    "ldr": {"c": 0.1, "lam": 10},
    "nl": {"stage": "nl", "threshold": 0.5},
    "jnpl": {"lam": 0.01},
    "gjs": {"pi": 0.5, "views": 2},
    "lt": {"margin": 0.1, "lam": 0.01},
    "lt-apl": {"alpha": 1, "beta": 1, "margin": 0.1, "lam": 0.01},
}
"""Pinned, not derived: a default that moves changes every result computed with it, without an error."""


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults_do_not_move(name):
    given = {k: v for k, v in ENTRIES[name].defaults.items() if v is not None and v is not inspect.Parameter.empty}
    switches = {"detach_focal": False, "offset": True}
    assert given == {k: v for k, v in switches.items() if k in given} | DEFAULTS[name]


POSITIVE, NOT_NEGATIVE, INSIDE = "(0, inf)", "[0, inf)", "(0, 1)"
PAIR = {"alpha": NOT_NEGATIVE, "beta": NOT_NEGATIVE}
FOCAL = {"gamma": NOT_NEGATIVE}
DOMAINS = {
    "fl": FOCAL,
    "mae": {"scale": POSITIVE},
    "rce": {"clip": INSIDE},
    "sce": {**PAIR, "clip": INSIDE},
    "negative-ls": {"r": "(-inf, 1)"},
    "gce": {"q": "(0, 1]"},
    "truncated-gce": {"q": "(0, 1]", "k": INSIDE},
    "phuber-ce": {"tau": "(1, inf)"},
    "js": {"pi": INSIDE},
    "ogc": {"tau": "(1, 1e+07]", "epsilon": NOT_NEGATIVE},
    "nfl": FOCAL,
    "nnce": {"minimum": "(0, 0.5)"},
    "nnfl": {**FOCAL, "minimum": "(0, 0.5)"},
    "aul": {"a": "(1, inf)", "p": POSITIVE},
    "agce": {"a": POSITIVE, "q": POSITIVE},
    "ael": {"a": POSITIVE},
    "anorm": {"a": "[1, inf)", "q": POSITIVE},
    "amse": {"a": "[1, inf)", "q": POSITIVE},
    "anl-ce": {**PAIR, "minimum": "(0, 0.5)"},
    "jal-fl": {**PAIR, **FOCAL, "a": "[1, inf)", "q": POSITIVE},
    "ece": {"m": NOT_NEGATIVE},
    "efl": {**FOCAL, "m": NOT_NEGATIVE},
    "logitclip": {"tau": POSITIVE},
    "ce+lc": {"delta": POSITIVE},
    "sr": {"temperature": POSITIVE, "lam": NOT_NEGATIVE, "q": POSITIVE, "growth": POSITIVE},
    "ldr": {"c": NOT_NEGATIVE, "lam": POSITIVE},
    "nl": {"threshold": "[0, 1)"},
    "jnpl": {"lam": NOT_NEGATIVE},
    "gjs": {"pi": INSIDE},
    "lt": {"margin": NOT_NEGATIVE, "lam": NOT_NEGATIVE},
}
"""Where the package takes each parameter; pinned, like the defaults."""


@pytest.mark.parametrize(
    ("name", "parameter", "domain"), [(name, *pair) for name, domains in DOMAINS.items() for pair in domains.items()]
)
def test_a_parameter_is_taken_in_its_domain_and_refused_outside(name, parameter, domain):
    low, high = (float(end) for end in domain[1:-1].split(", "))
    step = 1e-3
    inside, outside = [], []
    for end, closed, inwards in ((low, domain[0] == "[", step), (high, domain[-1] == "]", -step)):
        if math.isfinite(end):
            inwards *= max(1.0, abs(end))
            (inside if closed else outside).append(end)
            inside.append(end + inwards)
            outside.append(end - inwards)
    for value in inside:
        assert getattr(build(name, **{parameter: value}), parameter) == value
    for value in outside:
        with pytest.raises(ValueError, match=f"{parameter} must be in {re.escape(domain)}, got {re.escape(str(value))}"):
            build(name, **{parameter: value})


@pytest.mark.parametrize(
    ("name", "parameter", "least"), [("taylor-ce", "t", 1), ("sr", "every", 1), ("gjs", "views", 1), ("lt", "features", 1)]
)
def test_a_count_has_a_least_value(name, parameter, least):
    options = {"features": 5, "classes": 5} if name == "lt" else {}
    assert getattr(noiseproof.create_loss(name, **options | {parameter: least}), parameter) == least
    with pytest.raises(ValueError, match=f"{parameter} must be at least {least}, got {least - 1}"):
        noiseproof.create_loss(name, **options | {parameter: least - 1})
