"""The names of recipes: any spelling, and names that there are not."""

import pytest

from noiseproof.losses import find_loss
from noiseproof.paper import QuotedError, cells, list_recipes, recipe
from noiseproof.train import override


@pytest.mark.parametrize("name", ["CIFAR10/JAL-CE", "CIFAR-10/JAL-CE", "cifar10/jalce", " cifar_10 / Jal-CE "])
def test_a_name_may_be_written_as_in_the_paper(name):
    assert recipe(name) == recipe("cifar10/jal-ce")


def test_names_are_all_known_and_none_twice():
    assert len(set(list_recipes())) == len(list_recipes())
    for cell in cells():
        if not cell.quoted_from and cell.dataset != "ilsvrc12":
            assert f"{cell.dataset}/{find_loss(cell.loss).name}" in list_recipes()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("cifr10/jal-ce", "unknown recipe 'cifr10/jal-ce'; did you mean 'cifar10/jal-ce'"),
        ("cifar10/gec", "unknown loss 'gec'; did you mean 'gce'"),
        ("cifar10", "DATASET/LOSS, such as 'cifar10/jal-ce', got 'cifar10'"),
        ("/ce", "the data sets are cifar10, cifar100, webvision, clothing1m, digits"),
        ("ilsvrc12/jal-ce", "it only tests: use 'webvision/jal-ce'"),
        (
            "webvision/nce",
            r"does not train nce on webvision, only ce, gce.*override\(recipe\('webvision/ce'\), \{'loss': 'nce'\}\)",
        ),
        ("digits/lt", "lt is called on features"),
    ],
)
def test_an_unknown_name_is_refused_with_a_way_out(name, said):
    with pytest.raises(ValueError, match=said):
        recipe(name)


def test_the_way_out_for_a_loss_that_the_paper_does_not_train_works():
    found = override(recipe("webvision/ce"), {"loss": "nce"})
    assert (found.loss, found.loss_options, found.lr) == ("nce", {}, 0.4)


def test_a_quoted_loss_is_refused_as_quoted():
    with pytest.raises(QuotedError, match="quotes lt-apl on cifar100 from another paper"):
        recipe("cifar100/LT-APL")


def test_a_name_that_is_no_text_is_refused():
    with pytest.raises(TypeError, match="DATASET/LOSS, got 3"):
        recipe(3)


def test_an_unknown_profile_is_refused():
    with pytest.raises(
        ValueError, match="profile must be one of paper-code, paper-text, got 'paper-cod'; did you mean 'paper-code'"
    ):
        recipe("cifar10/ce", profile="paper-cod")
