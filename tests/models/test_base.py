"""Models by name."""

import pytest

from noiseproof.models import MLP, ResNet, create_model, list_models
from noiseproof.paper.networks import CNN8


def test_a_name_gives_its_model():
    assert isinstance(create_model("cnn8", 10), CNN8)
    assert isinstance(create_model("mlp", 10, in_features=4), MLP)
    model = create_model("resnet18", 10, stem="imagenet", zero_init_residual=True, init="published")
    assert isinstance(model, ResNet)
    assert model.conv1.kernel_size == (7, 7)
    assert not model.layer1[0].bn2.weight.any()
    assert model.initialisation == "published"


@pytest.mark.parametrize("name", ["ResNet-18", "RESNET_18"])
def test_case_and_hyphens_do_not_matter(name):
    assert len(create_model(name, 10).layer1) == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resnt34", "unknown model 'resnt34'; did you mean 'resnet34'?"),
        ("cnn", "unknown model 'cnn'; did you mean 'cnn5'?"),
        ("vit", "unknown model 'vit'; known are cnn5, cnn8, mlp, resnet18, resnet34, resnet50"),
        ("", "unknown model ''; known are cnn5, cnn8, mlp, resnet18, resnet34, resnet50"),
    ],
)
def test_an_unknown_name_says_which_was_meant(name, message):
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the whole message is compared below
        create_model(name, 10)
    assert str(raised.value) == message


def test_a_name_must_be_text():
    with pytest.raises(TypeError, match=r"^a model is looked up by its name, got 8$"):
        create_model(8, 10)


@pytest.mark.parametrize("name", list_models())
def test_an_unknown_option_says_which_there_are(name):
    options = {"in_features": 4} if name == "mlp" else {}
    with pytest.raises(TypeError, match=rf"^{name} has no option 'stm'; it takes \w+"):
        create_model(name, 10, stm="cifar", **options)


def test_channels_do_not_apply_to_features():
    with pytest.raises(ValueError, match=r"^in_channels does not apply to mlp, which takes in_features, hidden; got 1$"):
        create_model("mlp", 10, in_features=4, in_channels=1)


@pytest.mark.parametrize("name", list_models())
def test_too_few_classes_are_refused_by_name_too(name):
    options = {"in_features": 4} if name == "mlp" else {}
    with pytest.raises(ValueError, match=r"^classes must be at least 2, got 1$"):
        create_model(name, 1, **options)
