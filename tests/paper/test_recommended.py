"""The product's table of recommended settings is the paper's, as its code has them."""

import subprocess
import sys

import pytest

from noiseproof import paper
from noiseproof.losses import list_losses
from noiseproof.losses.facts import KINDS_OF_DATA, kind_of_data, recommended_settings

PUBLISHED = {known.data_set: kind for kind, known in KINDS_OF_DATA.items()}


@pytest.mark.parametrize("name", [name for name in paper.list_recipes() if not name.startswith("digits/")])
def test_options_and_regularisation_are_those_of_the_papers_recipe(name):
    dataset, loss = name.split("/")
    found = next(one for one in recommended_settings(loss) if one.kind == PUBLISHED[dataset])
    recipe = paper.recipe(name)
    assert (found.options, found.l1, found.l2) == (recipe.loss_options, recipe.l1, recipe.l2)


def test_the_table_has_no_loss_that_the_paper_did_not_train():
    known = {loss.name: recommended_settings(loss.name) for loss in list_losses()}
    names = {f"{KINDS_OF_DATA[one.kind].data_set}/{loss}" for loss, settings in known.items() for one in settings}
    assert {name for name in names if not name.startswith("digits/")} == {
        name for name in paper.list_recipes() if not name.startswith("digits/")
    }


def test_features_use_the_settings_of_the_digits():
    found = recommended_settings("jal-ce")[-1]
    digits = paper.recipe("digits/jal-ce")
    assert (found.kind, found.options, found.l1, found.l2) == ("features", digits.loss_options, digits.l1, digits.l2)


def test_names_are_those_of_the_catalogue_and_a_loss_without_published_settings_has_none():
    assert recommended_settings("JAL-FL") == recommended_settings("jal-fl")
    assert recommended_settings("dft") == ()
    with pytest.raises(ValueError, match="unknown loss 'gec'; did you mean 'gce'"):
        recommended_settings("gec")


def test_the_kind_of_data_depends_on_the_number_of_classes_and_on_pretraining():
    assert [kind_of_data("images", classes) for classes in (None, 49, 50)] == ["images", "images", "images-many-classes"]
    assert [kind_of_data("photographs", 14, pretrained) for pretrained in (False, True)] == [
        "photographs",
        "photographs-pretrained",
    ]
    assert kind_of_data(None) == kind_of_data("features", 1000) == "features"


def test_the_module_itself_imports_no_torch():
    code = "import sys; from noiseproof.losses.facts import recommended_settings; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
