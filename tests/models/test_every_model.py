"""What every model promises: its size, its shapes, features that its last layer turns into logits, and how it may be run."""

import copy
import pickle

import pytest
import torch

from noiseproof.models import CNN5, MLP, create_model, list_models, replace_head, resnet18, resnet34, resnet50
from noiseproof.paper.networks import CNN8

SMALL = {
    "cnn5": lambda classes=10, **options: CNN5(classes, **options),
    "cnn8": lambda classes=10, **options: CNN8(classes, **options),
    "mlp": lambda classes=10: MLP(classes, 3 * 32 * 32, hidden=(32, 16)),
    "resnet18": lambda classes=10, **options: resnet18(classes, **options),
    "resnet34": lambda classes=10, **options: resnet34(classes, **options),
    "resnet50": lambda classes=10, **options: resnet50(classes, **options),
}
"""Every model of the catalogue, for images of 32x32."""
FEATURES = {"cnn5": 128, "cnn8": 256, "mlp": 16, "resnet18": 512, "resnet34": 512, "resnet50": 2048}
CHEAP = ["cnn5", "cnn8", "mlp", "resnet18"]


def images(number=2, channels=3, side=32, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(number, channels, side, side, generator=generator, dtype=torch.float64).to(dtype)


def size(model):
    return sum(parameter.numel() for parameter in model.parameters())


def lived_in(model):
    """In evaluation, with BatchNorm statistics and gains that are not the neutral 0 and 1 of a new model."""
    generator = torch.Generator().manual_seed(1)
    for name, tensor in model.state_dict().items():
        if name.endswith(("running_var", "bn1.weight", "bn2.weight", "bn3.weight")):
            tensor.copy_(torch.rand(tensor.shape, generator=generator) + 0.5)
        elif name.endswith(("running_mean", "bias")):
            tensor.copy_(torch.randn(tensor.shape, generator=generator) / 10)
    return model.eval()


def test_every_model_of_the_catalogue_is_tested_here():
    assert set(SMALL) == set(list_models()) == set(FEATURES)


@pytest.mark.parametrize(
    ("build", "parameters"),
    [
        (lambda: CNN5(10), 3 * 32 * 16 + 9 * (32 * 64 + 64 * 128 + 128 * 128) + 2 * (32 + 64 + 128 + 128) + 128 * 10 + 10),
        (lambda: CNN8(10), 1_639_794),
        (lambda: CNN8(10, in_channels=1), 1_639_794 - 2 * 9 * 64),
        (lambda: resnet34(100), 21_328_292),
        (lambda: resnet18(1000, stem="imagenet"), 11_689_512),
        (lambda: resnet34(1000, stem="imagenet"), 21_797_672),
        (lambda: resnet50(1000, stem="imagenet"), 25_557_032),
        (lambda: MLP(3, 4, hidden=(5,)), 4 * 5 + 5 + 5 * 3 + 3),
        (lambda: MLP(3, 4, hidden=()), 4 * 3 + 3),
    ],
    ids=["cnn5", "cnn8", "cnn8-grey", "resnet34-cifar", "resnet18", "resnet34", "resnet50", "mlp", "logistic"],
)
def test_the_number_of_parameters_is_the_published_one(build, parameters):
    assert size(build()) == parameters


@pytest.mark.parametrize("name", SMALL)
def test_logits_and_features_have_their_shapes(name):
    model = SMALL[name](classes=7).eval()
    with torch.no_grad():
        logits, features = model(images(), features=True)
        alone = model(images())
    assert logits.shape == (2, 7)
    assert features.shape == (2, FEATURES[name])
    assert torch.equal(alone, logits)
    assert model.classes == 7


@pytest.mark.parametrize("build", [resnet18, resnet34, resnet50])
def test_the_imagenet_stem_takes_224(build):
    model = build(7, stem="imagenet").eval()
    sides = []
    model.layer1.register_forward_pre_hook(lambda _, inputs: sides.append(inputs[0].shape[-1]))
    model.layer4.register_forward_hook(lambda _, inputs, output: sides.append(output.shape[-1]))
    with torch.no_grad():
        logits, features = model(images(1, side=224), features=True)
    assert logits.shape == (1, 7)
    assert features.shape == (1, model.classifier.in_features)
    assert sides == [56, 7]


@pytest.mark.parametrize("name", SMALL)
def test_the_classifier_turns_features_into_logits(name):
    model = lived_in(SMALL[name]())
    with torch.no_grad():
        logits, features = model(images(), features=True)
        assert torch.equal(model.classifier(features), logits)
        torch.testing.assert_close(features @ model.classifier.weight.T + model.classifier.bias, logits)
    assert model.state_dict()["fc.weight"].data_ptr() == model.classifier.weight.data_ptr()


@pytest.mark.parametrize("name", CHEAP)
def test_every_parameter_receives_a_gradient(name):
    model = SMALL[name]()
    model(images(4)).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())
    assert all(parameter.grad.any() for name, parameter in model.named_parameters() if name.endswith("weight"))


@pytest.mark.parametrize("name", CHEAP)
def test_the_same_seed_draws_the_same_model(name):
    states = []
    for seed in (5, 5, 6):
        torch.manual_seed(seed)
        states.append(SMALL[name]().state_dict())
    first, again, other = states
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not torch.equal(first["fc.weight"], other["fc.weight"])


@pytest.mark.parametrize("name", ["cnn8", "resnet18", "resnet50"])
def test_channels_last_changes_nothing(name):
    model = lived_in(SMALL[name]().double())
    x = images(dtype=torch.float64)
    with torch.no_grad():
        expected = model(x, features=True)
        model.to(memory_format=torch.channels_last)
        found = model(x.to(memory_format=torch.channels_last), features=True)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("name", CHEAP)
def test_bfloat16_autocast_stays_finite(name):
    model = SMALL[name]()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits, features = model(images(4), features=True)
    assert logits.dtype == torch.bfloat16
    assert logits.isfinite().all()
    assert features.isfinite().all()
    logits.float().square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize("name", CHEAP)
def test_a_model_is_pickled_and_copied(name):
    model = lived_in(SMALL[name]())
    with torch.no_grad():
        expected = model(images())
        assert torch.equal(copy.deepcopy(model)(images()), expected)
        assert torch.equal(pickle.loads(pickle.dumps(model))(images()), expected)


@pytest.mark.parametrize("name", CHEAP)
def test_a_new_head_leaves_all_else_as_it_was(name):
    model = lived_in(SMALL[name]().double())
    before = {key: value.clone() for key, value in model.state_dict().items()}
    _, features = model(images(dtype=torch.float64), features=True)
    assert replace_head(model, 14) is model
    after = model.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[key], before[key]) for key in before if not key.startswith("fc."))
    logits, same = model(images(dtype=torch.float64), features=True)
    assert logits.shape == (2, 14)
    assert model.classes == 14
    assert torch.equal(same, features)
    assert model.classifier.weight.dtype == torch.float64
    assert not model.classifier.training


def test_a_head_for_one_class_is_refused():
    model = CNN8(10)
    with pytest.raises(ValueError, match=r"^classes must be at least 2, got 1$"):
        replace_head(model, 1)
    assert model.classes == 10


def test_mlp_flattens_what_it_is_given():
    model = MLP(5, 12)
    x = torch.randn(3, 12, generator=torch.Generator().manual_seed(0))
    assert torch.equal(model(x), model(x.view(3, 3, 2, 2)))
    assert model(torch.zeros(0, 3, 4)).shape == (0, 5)


def test_mlp_without_hidden_layers_is_linear():
    model = MLP(5, 12, hidden=())
    x = torch.randn(3, 12, generator=torch.Generator().manual_seed(0))
    logits, features = model(x, features=True)
    assert torch.equal(features, x)
    torch.testing.assert_close(logits, x @ model.fc.weight.T + model.fc.bias)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("classes", [1, 0, -3])
def test_fewer_than_two_classes_are_refused(name, classes):
    with pytest.raises(ValueError, match=rf"^classes must be at least 2, got {classes}$"):
        SMALL[name](classes=classes)


@pytest.mark.parametrize("classes", [2.0, "10", True, None])
def test_classes_must_be_an_integer(classes):
    with pytest.raises(TypeError, match=r"^classes must be an integer, got "):
        CNN8(classes)


@pytest.mark.parametrize(
    ("build", "x", "message"),
    [
        (lambda: CNN8(10), (2, 1, 32, 32), "CNN8 takes images [N, 3, 32, 32], got [2, 1, 32, 32]"),
        (lambda: CNN8(10), (2, 3, 28, 28), "CNN8 takes images [N, 3, 32, 32], got [2, 3, 28, 28]"),
        (lambda: CNN8(10), (3, 32, 32), "CNN8 takes images [N, 3, 32, 32], got [3, 32, 32]"),
        (lambda: resnet18(10), (2, 1, 32, 32), "ResNet takes images [N, 3, H, W], got [2, 1, 32, 32]"),
        (lambda: resnet18(10), (3, 32, 32), "ResNet takes images [N, 3, H, W], got [3, 32, 32]"),
        (lambda: MLP(10, 64), (2, 63), "MLP takes 64 features per example, got an input [2, 63]"),
        (lambda: MLP(10, 64), (64,), "MLP takes 64 features per example, got an input [64]"),
    ],
)
def test_inputs_of_another_shape_are_refused(build, x, message):
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the whole message is compared below
        build()(torch.zeros(x))
    assert str(raised.value) == message


def test_other_channels_are_an_option():
    assert create_model("cnn8", 10, in_channels=1).eval()(images(channels=1)).shape == (2, 10)
    assert create_model("resnet18", 10, in_channels=4).eval()(images(channels=4)).shape == (2, 10)
    with pytest.raises(ValueError, match=r"^in_channels must be at least 1, got 0$"):
        create_model("cnn8", 10, in_channels=0)
    with pytest.raises(ValueError, match=r"^hidden\[1\] must be at least 1, got 0$"):
        MLP(10, 64, hidden=(5, 0))


@pytest.mark.parametrize(("height", "width"), [(2, 2), (8, 8), (28, 20), (47, 47), (64, 48), (224, 224), (300, 2)])
def test_cnn5_takes_images_of_any_size_and_large_ones_as_their_means(height, width):
    model = CNN5(10).eval()
    x = torch.randn(2, 3, height, width, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        features = model.penultimate(x)
        assert features.shape == (2, 128)
        assert bool(features.isfinite().all())
        if height == width == 224:
            means = x.reshape(2, 3, 32, 7, 32, 7).mean((3, 5))
            torch.testing.assert_close(features, model.penultimate(means))
    with pytest.raises(ValueError, match=r"of 2x2 or more, got \[2, 3, 1, 9\]"):
        model(torch.zeros(2, 3, 1, 9))
