"""A recipe says a run completely, and refuses what makes no sense."""

import dataclasses
import json
import re

import pytest

from noiseproof import paper
from noiseproof.train import Recipe, folder_name, identity, override

DIGITS = Recipe(
    dataset="digits",
    loss="jal-ce",
    loss_options={"a": 20},
    model_options={"hidden": (8, 8)},
    epochs=9,
    confidence_epochs=(3, 9),
)


def test_the_loss_of_a_recipe_is_a_plain_mean():
    with pytest.raises(ValueError, match=r"weights of classes are the recipe's class_weight, got loss\.weight"):
        override(DIGITS, {"loss.weight": "[1, 2, 3]"})
    for reduction in ("none", "sum"):
        with pytest.raises(ValueError, match=f"trains on the mean of the loss, got loss.reduction={reduction}"):
            override(DIGITS, {"loss.reduction": reduction})


def test_json_and_back_is_the_same_recipe():
    again = Recipe.from_dict(json.loads(json.dumps(DIGITS.as_dict())))
    assert again.as_dict() == DIGITS.as_dict()
    assert DIGITS.differences(again) == []


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("lr=1", "lr", 1.0),
        ("lr=2e-3", "lr", 0.002),
        ("epochs=3", "epochs", 3),
        ("nesterov=true", "nesterov", True),
        ("clip=none", "clip", None),
        ("clip=5", "clip", 5.0),
        ("weights=none", "weights", None),
        ("weights=a.pth", "weights", "a.pth"),
        ("precision=bf16", "precision", "bf16"),
        ("noise=none", "noise", "none"),
        ("dataset=7", "dataset", "7"),
        ("confidence_epochs=9,1", "confidence_epochs", (1, 9)),
        ("confidence_epochs=", "confidence_epochs", ()),
        ("loss.alpha=2", "loss_options", {"a": 20, "alpha": 2}),
        ("model.hidden=[4]", "model_options", {"hidden": [4]}),
        ("standardise=true", "standardise", True),
        ("size=none", "size", None),
        ("size=32", "size", (32, 32)),
        ("size=28x20", "size", (28, 20)),
        ("size=[28, 20]", "size", (28, 20)),
    ],
)
def test_text_becomes_what_the_field_holds(text, field, value):
    key, _, given = text.partition("=")
    found = getattr(override(DIGITS, {key: given}), field)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"leraning_rate": "1"}, r"a recipe has no 'leraning_rate'; it has dataset, loss"),
        ({"epoch": "1"}, r"a recipe has no 'epoch'; did you mean 'epochs'\?"),
        ({"noise.rate": "1"}, "a recipe has no 'noise.rate'"),
        ({"loss.aa": "1"}, "aa"),
        ({"loss": "jal"}, "unknown loss 'jal'"),
        ({"loss": "lt"}, "called on features, not on logits"),
        ({"lr": "fast"}, "lr must be a number, got 'fast'"),
        ({"lr": "-1"}, "lr must be finite and not negative, got -1"),
        ({"lr": "NaN"}, "lr must be finite and not negative, got nan"),
        ({"epochs": "0"}, "epochs must be at least 1, got 0"),
        ({"epochs": f"1{20 * '0'}"}, "epochs must be at most 10000000, got 100000000000000000000"),
        ({"epochs": "10**20"}, r"epochs must be a whole number, got '10\*\*20'"),
        ({"epochs": 10**5 * "9"}, "epochs must be a whole number, got '9{79}...$"),
        ({"lr": 10**5 * "9"}, "lr must be a number, got '9{79}...$"),
        ({"lr": 400 * "9"}, "lr must be finite and not negative, got inf"),
        ({"epochs": "1.5"}, "epochs must be a whole number, got 1.5"),
        ({"epochs": "true"}, "epochs must be a whole number, got True"),
        ({"batch": "0"}, "batch must be at least 1"),
        ({"clip": "0"}, "clip must be above 0, or none, got 0"),
        ({"nesterov": "1"}, "nesterov must be true or false, got 1"),
        ({"optimiser": "lion"}, "optimiser must be one of sgd, adam, got 'lion'"),
        ({"precision": "fp8"}, "precision must be one of"),
        ({"schedule": "linear"}, "schedule must be one of"),
        ({"confidence_epochs": "10"}, r"confidence_epochs must be in \[1, 9\], got 10"),
        ({"confidence_epochs": "a"}, "confidence_epochs must be whole numbers"),
        ({"size": "large"}, "size must be a side of squares such as 32, height and width such as 28x20, or none"),
        ({"size": "1x2x3"}, r"size must be a side of squares .* got \[1, 2, 3\]"),
        ({"size": "0"}, "size must be at least 1 pixel, got 0x0"),
        ({"standardise": "1"}, "standardise must be true or false, got 1"),
        ({"seed": "-1"}, r"seed must be in \[0, 2\^32\), got -1"),
        ({"seed": str(2**32)}, r"seed must be in \[0, 2\^32\), got 4294967296"),
        ({"seed": str(2**64 + 123)}, r"seed must be in \[0, 2\^32\), got 18446744073709551739"),
        ({"test_size": "1"}, r"test_size must be in \[0, 1\), got 1"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused_with_what_was_given(changes, message):
    with pytest.raises((ValueError, TypeError), match=message):
        override(DIGITS, changes)


def test_another_loss_or_model_does_not_inherit_options():
    assert override(DIGITS, {"loss": "gce"}).loss_options == {}
    assert override(DIGITS, {"loss": "gce", "loss.q": "0.5"}).loss_options == {"q": 0.5}
    assert override(DIGITS, {"loss": "jal-ce"}).loss_options == {"a": 20}
    assert override(DIGITS, {"model": "resnet18"}).model_options == {}
    assert override(DIGITS, {"model": "resnet18", "model.stem": "imagenet"}).model_options == {"stem": "imagenet"}


def test_residual_networks_share_their_stem():
    """Images of 224x224 through the stem for 32x32 would take sixteen times as long."""
    web = paper.recipe("webvision/jal-ce", seed=1)
    assert web.model_options["stem"] == "imagenet"
    assert len(web.model_options) > 1
    assert override(web, {"model": "resnet18"}).model_options == {"stem": "imagenet"}
    assert override(web, {"model": "resnet18", "model.stem": "cifar"}).model_options == {"stem": "cifar"}
    assert override(web, {"model": "cnn8"}).model_options == {}


def test_a_shorter_run_keeps_the_epochs_it_reaches():
    assert override(DIGITS, {"epochs": "5"}).confidence_epochs == (3,)


def test_a_record_from_before_a_field_existed_has_its_default():
    before = {name: value for name, value in DIGITS.as_dict().items() if name not in ("standardise", "global_scaling", "size")}
    assert DIGITS.differences(before) == []
    now = dataclasses.replace(DIGITS, standardise=True, size=(28, 28))
    assert now.differences(before) == ["standardise is False, not True", "size is None, not [28, 28]"]
    assert Recipe.from_dict(before).as_dict() == DIGITS.as_dict()
    assert Recipe.from_dict(now.as_dict()).size == (28, 28)
    task = {"name": "digits", "noise": {"hash": "aa"}}
    assert identity(before, task) == identity(DIGITS.as_dict(), task) != identity(now.as_dict(), task)


def test_differences_are_said_in_words():
    other = dataclasses.replace(DIGITS, lr=0.5, seed=7)
    assert DIGITS.differences(other) == DIGITS.differences(other.as_dict()) == ["lr is 0.5, not 0.01", "seed is 7, not 0"]


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, "digits_jal-ce_none_seed0"),
        ({"noise": "symmetric:0.8"}, "digits_jal-ce_symmetric-0.8_seed0"),
        ({"noise": "labels:/some/where/human.pt#worse_label"}, "digits_jal-ce_labels-human-worse_label_seed0"),
        ({"noise": "some/matrix.npy"}, "digits_jal-ce_matrix_seed0"),
        ({"dataset": "/my data/scans.v2.npz"}, "scans.v2_jal-ce_none_seed0"),
        ({"dataset": "/my/images v1.0/"}, "images-v1.0_jal-ce_none_seed0"),
    ],
    ids=str,
)
def test_a_folder_is_called_by_what_is_trained(changes, name):
    assert re.fullmatch(re.escape(name) + "_[0-9a-f]{8}", folder_name(dataclasses.replace(DIGITS, **changes)))


def test_a_loss_that_must_be_told_of_the_training_is_refused():
    with pytest.raises(ValueError, match="ogc must be told of the training by calls of its method update: train it in a loop"):
        Recipe(dataset="digits", loss="ogc")


def test_fields_of_earlier_versions_are_read_under_their_new_names():
    former = {"dataset": "digits", "loss": "ce", "test_share": 0.25, "standardise": True, "one_scale": True}
    recipe = Recipe.from_dict(former)
    assert (recipe.test_size, recipe.global_scaling) == (0.25, True)
    assert recipe.differences(former) == []
    assert override(recipe, {"test_share": "0.5"}).test_size == 0.5
