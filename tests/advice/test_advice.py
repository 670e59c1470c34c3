"""Advice: what it says rests on theory, the paper or the records, and it says which."""

import itertools
import json
import shlex
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import noiseproof
from noiseproof import advice, theory
from noiseproof.advice import Case, Evidence, load_evidence, nearest_evidence, noise_family
from noiseproof.advice import MeasuredLoss as Measured
from noiseproof.audit import Audit
from noiseproof.cli import app
from noiseproof.losses import create_loss
from noiseproof.noise import from_matrix, pairflip, symmetric

RECORDS = Path(__file__).resolve().parents[2] / "records"


def cell(*losses, **facts):
    usual = {"data": "made", "kind": "features", "classes": 10, "examples": 1000, "noise": "symmetric:0.4", "rate": 0.4}
    return Evidence(**{**usual, "family": "symmetric", "record": "here", "losses": losses, **facts})


@pytest.fixture
def measured(monkeypatch):
    def put(*known):
        monkeypatch.setattr(advice, "load_evidence", lambda: known)

    return put


def part(found, what):
    return next(each for each in found.parts if each.what == what)


def test_a_is_theory_s_and_the_loss_has_it():
    found = noiseproof.advise("symmetric:0.4", classes=10, kind="features")
    assert part(found, "a").value == "18"  # ten times 1 / (0.6 - 0.4 / 9)
    assert part(found, "a").basis == "theory"
    if found.loss == "jal-ce":
        assert found.criterion().a == float(theory.choose_a("symmetric:0.4", classes=10))


@pytest.mark.parametrize(
    ("kind", "classes", "pretrained", "alpha", "strength", "l1", "l2"),
    [  # The paper's: alpha, beta times a, and the decay
        ("images", 10, False, 1.0, 30.0, 5e-5, 0.0),
        ("images", 100, False, 5.0, 20.0, 5e-6, 0.0),
        ("photographs", 50, False, 50.0, 30.0, 0.0, 3e-5),
        ("photographs", 14, True, 5.0, 0.5, 0.0, 1e-3),
    ],
)
def test_weights_and_decay_are_the_paper_s_for_the_kind_of_data(measured, kind, classes, pretrained, alpha, strength, l1, l2):
    measured()
    found = noiseproof.advise("symmetric:0.4", classes=classes, kind=kind, pretrained=pretrained)
    assert found.options["alpha"] == alpha
    assert found.options["beta"] * found.options["a"] == pytest.approx(strength)
    assert (found.l1, found.l2) == (l1, l2)
    assert {part(found, "alpha and beta").basis, part(found, "regularisation").basis} == {"paper"}


def test_the_nearest_measurement_is_of_the_same_kind_of_data_and_the_nearest_noise(measured):
    losses = (Measured("jal-ce", "none", 90.0, 1.0, 5),)
    near, far = cell(*losses), cell(*losses, rate=0.6, noise="symmetric:0.6")
    pair, images = cell(*losses, family="pair", noise="pairflip:0.4"), cell(*losses, kind="images")
    measured(far, pair, images, near)
    assert nearest_evidence(Case("features", 10, 1000, "symmetric", 0.41)) == (near, pytest.approx(0.01))
    assert nearest_evidence(Case("features", 10, 1000, "pair", 0.41))[0] == pair
    assert nearest_evidence(Case("photographs", 10, 1000, "symmetric", 0.41))[0] is None
    assert nearest_evidence(Case(None, 10, 1000, "symmetric", 0.41))[0] is None
    assert nearest_evidence(Case("features", 1000, 1000, "symmetric", 0.41))[1] == pytest.approx(0.01 + 0.1 * 2)


@pytest.mark.parametrize(
    ("best", "usual", "chosen"),
    [
        (Measured("gce", "none", 92.0, 0.5, 5), Measured("jal-ce", "none", 90.0, 0.5, 5), "gce"),  # error 0.32
        (Measured("gce", "none", 92.0, 3.0, 5), Measured("jal-ce", "none", 90.0, 3.0, 5), "jal-ce"),  # error 1.90
        (Measured("gce", "none", 92.0, 2.0, 5), Measured("jal-ce", "none", 90.0, 2.0, 5), "jal-ce"),  # error 1.26
        (Measured("gce", "none", 92.0, 0.1, 2), Measured("jal-ce", "none", 90.0, 0.1, 2), "jal-ce"),  # two seeds
        (
            Measured("gce", "none", 90.9, 0.1, 5),
            Measured("jal-ce", "none", 90.0, 0.1, 5),
            "jal-ce",
        ),  # less than a point
        (Measured("gce", "none", 92.0, None, 1), Measured("jal-ce", "none", 90.0, None, 1), "jal-ce"),  # one seed
        (Measured("gce", "none", 93.5, None, 1), Measured("jal-ce", "none", 90.0, None, 1), "gce"),
    ],
)
def test_another_loss_is_advised_where_it_is_ahead_by_more_than_chance(measured, best, usual, chosen):
    measured(cell(best, usual))
    found = noiseproof.advise(0.4, classes=10, kind="features", examples=1000)
    assert found.loss == chosen
    assert (part(found, "loss").basis, found.nearest.data) == ("records", "made")
    assert "gce 9" in part(found, "loss").reason


def test_losses_that_chance_may_have_put_behind_are_named(measured):
    names = ("jal-ce", "gce", "mae", "ce")
    measured(cell(*[Measured(name, "none", mean, 0.1, 5) for name, mean in zip(names, (90.0, 89.5, 88.0, 60.0), strict=True)]))
    reason = part(noiseproof.advise(0.4, classes=10, kind="features", examples=1000), "loss").reason
    assert reason.endswith(": jal-ce 90.0, gce 89.5, mae 88.0, ce 60.0 %; no more than chance away from it: gce")


def test_where_nothing_near_was_measured_it_says_so(measured):
    measured(cell(Measured("gce", "none", 99.0, 0.1, 5)))
    found = noiseproof.advise("symmetric:0.1", classes=10, kind="features", examples=1000)  # 0.3 away
    assert (found.loss, found.nearest, part(found, "loss").basis) == ("jal-ce", None, "theory")
    assert "nothing near this case has been measured" in part(found, "loss").reason


def test_noise_that_is_not_known_is_to_be_estimated_first():
    found = noiseproof.advise(classes=10, kind="features", place="my data.npz")
    assert found.commands == (
        "noiseproof audit 'my data.npz' --quick --out audit",
        "noiseproof advise 'my data.npz' --noise audit",
    )
    assert "the noise is not known" in part(found, "a").reason


def test_noise_that_no_loss_tolerates_is_a_warning_and_no_training_is_advised():
    found = noiseproof.advise(0.9, classes=10, kind="features")
    assert any("no loss can tell which is right" in text for text in found.warnings)
    assert not any(command.startswith("noiseproof train") for command in found.commands)
    some = noiseproof.advise([[0.5, 0.5, 0], [0, 0.8, 0.2], [0, 0.2, 0.8]], kind="photographs")
    assert any(text.startswith("Not for class 0 of 3") for text in some.warnings)


def test_a_loss_without_hyper_parameters_is_advised_with_its_commands(measured):
    measured(cell(Measured("ce", "none", 99.0, 0.1, 5), Measured("jal-ce", "none", 98.0, 0.1, 5), rate=0.0, family="none"))
    found = noiseproof.advise("symmetric:0.001", classes=10, kind="features", examples=1000, place="here")
    assert (found.loss, dict(found.options)) == ("ce", {})
    assert found.commands == ("noiseproof train ce --data here",)


def test_an_audit_says_matrix_and_rate(tmp_path):
    matrix = pairflip(10, 0.2).matrix
    facts = np.arange(10), np.full((10, 10), 0.1, np.float32), matrix, 0.2, (0.1, 0.3), 0.8, tuple("abcdefghij"), "by hand"
    audit = Audit(*facts)
    audit.save(tmp_path)
    found, read = (noiseproof.advise(one, kind="photographs") for one in (audit, tmp_path))
    assert found.options == read.options
    assert (found.case.family, found.case.rate) == ("pair", 0.2)
    assert "the audit's matrix" in part(found, "a").reason
    assert noiseproof.advise(Audit(*facts[:3], 0.004, *facts[4:]), kind="features").case.family == "none"


def test_the_folder_of_an_audit_has_the_rate_that_the_audit_has(tmp_path):
    """900 labels of a class that is never wrong, 100 of one that is half the time: 5 % are wrong, not the matrix's 25."""
    posterior = np.repeat([[1.0, 0.0], [0.5, 0.5]], [900, 100], axis=0).astype(np.float32)
    matrix, given = np.array([[1.0, 0.0], [0.5, 0.5]]), np.repeat([0, 1], [900, 100])
    audit = Audit(given, posterior, matrix, 0.05, (0.04, 0.06), 0.95, ("a", "b"), "by hand")
    audit.save(tmp_path)
    rates = [noiseproof.advise(one, kind="features").case.rate for one in (audit, tmp_path, str(tmp_path))]
    assert rates == pytest.approx([0.05] * 3)
    (tmp_path / "posterior.npz").unlink()
    assert noiseproof.advise(tmp_path, kind="features").case.rate == pytest.approx(0.25)


@pytest.mark.parametrize("kind", ["features", "images", "photographs"])
def test_the_command_is_of_this_command_line_and_the_loss_in_it_is_the_advised_one(kind):
    found = noiseproof.advise("pairflip:0.3", classes=10, kind=kind, examples=10_000, place="here")
    train = shlex.split(found.commands[0])
    changes = dict(text.split("=") for flag, text in itertools.pairwise(train) if flag == "--set")
    options = {name.removeprefix("loss."): json.loads(value) for name, value in changes.items() if name.startswith("loss.")}
    made, wanted = create_loss(train[2], **options), found.criterion()
    assert type(made) is type(wanted)
    assert all(getattr(made, name) == pytest.approx(getattr(wanted, name), rel=1e-5) for name in options)
    result = CliRunner().invoke(app, train[1:])  # it is understood; only the data are not there
    assert result.exit_code == 2
    assert "no data set 'here'" in result.output


def test_every_cell_of_the_evidence_is_ranked_and_has_at_least_two_losses():
    for one in load_evidence():
        means = [each.mean for each in one.losses]
        assert means == sorted(means, reverse=True)
        assert len(means) > 1
        assert len({each.loss for each in one.losses}) == len(means)
        assert 0 <= one.rate < 1
    lines = {str(one) for one in load_evidence() if one.data == "cifar10" and one.noise == "symmetric:0.4"}
    assert any("50,000 examples, 10 classes, symmetric:0.4, 40% wrong; records/reproduction.jsonl" in line for line in lines)


def test_no_run_counts_twice_in_the_evidence():
    """A loss has no more runs than seeds; three of JAL-CE are in two files of records, and were counted as six."""
    seeds = defaultdict(set)
    for name in ("reproduction.jsonl", "control.jsonl", "auto_a.jsonl"):
        for line in (RECORDS / name).read_text(encoding="utf-8").splitlines():
            one = json.loads(line)["recipe"]
            seeds[one["dataset"], one["noise"].removeprefix("labels:"), one["loss"]].add(one["seed"])
    counted = [
        (each.n, len(seeds[one.data, one.noise, each.loss]))
        for one in load_evidence()
        if one.record == "records/reproduction.jsonl"
        for each in one.losses
    ]
    assert len(counted) > 100
    assert all(n <= known for n, known in counted)


@pytest.mark.parametrize(
    ("noise", "family"),
    [
        (symmetric(10, 0.005), "none"),
        (symmetric(100, 0.3), "symmetric"),
        (from_matrix(0.5 * symmetric(10, 0.4).matrix + 0.5 * pairflip(10, 0.4).matrix), "mixed"),
        (pairflip(3, 0.1), "pair"),
    ],
)
def test_the_family_of_a_noise_is_how_it_spreads(noise, family):
    assert noise_family(noise) == family


def test_what_is_not_a_kind_of_data_is_refused():
    with pytest.raises(ValueError, match="kind must be one of features, images, photographs, got 'sound'"):
        noiseproof.advise(kind="sound")


def run(*arguments):
    return CliRunner().invoke(app, ["advise", *map(str, arguments)], env={"COLUMNS": "200", "TERM": "dumb"})


def test_the_command_prints_the_parts_with_their_basis_and_json_has_the_same():
    arguments = ("digits", "--noise", "symmetric:0.4")
    text, facts = run(*arguments).output, json.loads(run(*arguments, "--json").stdout)
    assert "for features, 10 classes, 1,297 examples, 40.0% wrong labels, symmetric noise:" in text
    for each in facts["parts"]:
        assert each["value"] in text
        assert f"{each['basis']}: {each['reason']}" in text
    expected = advice.advise("symmetric:0.4", classes=10, kind="features", examples=1297, place="digits")
    assert facts == json.loads(json.dumps(expected.as_dict()))
    assert f"next: {facts['commands'][0]}" in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("digits", "--classes", 3), "the data say how it is with --classes; leave it or DATA out"),
        (("--labels", "y.npy", "--noise", "symmetric:0.2"), "--labels needs DATA that the labels are of"),
        (("digits", "--noise", "symmetric:2"), "must be in [0, 1], got 2"),
        (("--noise", "0.2"), "a noise rate needs the number of classes"),
        (("nowhere.npz",), "nowhere.npz"),
    ],
)
def test_the_command_says_what_is_wrong(arguments, says):
    result = run(*arguments)
    assert result.exit_code == 2
    assert says in result.output
