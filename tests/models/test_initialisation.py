"""How weights are drawn, against the published distributions.

For n draws from U(-b, b): the largest is below b (1 - 20/n) with probability under e**-20; the mean has standard error
b / sqrt(3 n) and the mean square, b**2 / 3, the relative standard error sqrt(0.8 / n). Six standard errors each: all false
alarms together stay below 1e-6, and the seed is fixed.
"""

import math

import pytest
import torch
from torch import nn

from noiseproof.models import CNN5, MLP, replace_head, resnet18, resnet34, resnet50
from noiseproof.paper.networks import CNN8


def layers(model, kind):
    return {name: layer for name, layer in model.named_modules() if isinstance(layer, kind)}


def assert_uniform(weight, bound):
    values, n = weight.detach().double().flatten(), weight.numel()
    assert values.abs().max() <= bound * (1 + 1e-6)
    assert values.abs().max() >= bound * (1 - 20 / n)
    assert abs(values.mean()) <= 6 * bound / math.sqrt(3 * n)
    assert values.square().mean() == pytest.approx(bound**2 / 3, rel=6 * math.sqrt(0.8 / n))


def assert_published(model):
    for layer in layers(model, nn.Conv2d).values():
        assert_uniform(layer.weight, math.sqrt(6 / layer.weight[0].numel()))
    for layer in layers(model, nn.Linear).values():
        assert_uniform(layer.weight, math.sqrt(6 / (layer.in_features + layer.out_features)))


def assert_torchvision(model):
    for layer in layers(model, nn.Conv2d).values():
        values, n = layer.weight.detach().double().flatten(), layer.weight.numel()
        variance = 2 / (layer.out_channels * layer.kernel_size[0] * layer.kernel_size[1])
        assert values.square().mean() == pytest.approx(variance, rel=6 * math.sqrt(2 / n))
        # No uniform draw of this variance is longer than sqrt(3) deviations; a normal one of n > 4000 is beyond 3.
        assert values.abs().max() > 3 * math.sqrt(variance)
    fan_in = model.fc.in_features
    assert_uniform(model.fc.weight, 1 / math.sqrt(fan_in))


@pytest.mark.parametrize(
    "build",
    [
        lambda: CNN5(10),
        lambda: CNN8(10),
        lambda: MLP(10, 64),
        lambda: resnet18(10),
        lambda: resnet34(100),
        lambda: resnet50(10),
    ],
    ids=["cnn5", "cnn8", "mlp", "resnet18", "resnet34", "resnet50"],
)
def test_models_for_32x32_and_features_are_drawn_as_published(build):
    torch.manual_seed(123)
    assert_published(build())


@pytest.mark.parametrize("build", [resnet18, resnet50])
def test_models_for_224x224_are_drawn_as_torchvisions(build):
    torch.manual_seed(123)
    assert_torchvision(build(1000, stem="imagenet"))


def test_either_initialisation_goes_with_either_stem():
    torch.manual_seed(123)
    assert_torchvision(resnet18(1000, init="torchvision"))
    assert_published(resnet18(1000, stem="imagenet", init="published"))


def test_biases_are_left_at_torchs_defaults():
    torch.manual_seed(123)
    for layer in layers(CNN8(10), nn.Conv2d | nn.Linear).values():
        bound = 1 / math.sqrt(layer.weight[0].numel())
        assert layer.bias.abs().max() <= bound
        assert layer.bias.abs().max() >= bound * (1 - 20 / layer.bias.numel())
        assert len(layer.bias.unique()) > 1


@pytest.mark.parametrize("build", [lambda: CNN8(10), lambda: resnet18(10), lambda: resnet18(10, stem="imagenet")])
def test_batch_norm_starts_as_the_identity(build):
    for layer in layers(build(), nn.BatchNorm2d | nn.BatchNorm1d).values():
        assert bool((layer.weight == 1).all())
        assert not layer.bias.any()
        assert not layer.running_mean.any()
        assert bool((layer.running_var == 1).all())


@pytest.mark.parametrize(
    ("build", "bound"),
    [
        (lambda: CNN8(10), math.sqrt(6 / (256 + 300))),
        (lambda: resnet18(10), math.sqrt(6 / (512 + 300))),
        (lambda: resnet18(10, stem="imagenet"), 1 / math.sqrt(512)),
    ],
    ids=["cnn8", "cifar", "imagenet"],
)
def test_a_new_head_is_drawn_as_the_models_own(build, bound):
    torch.manual_seed(123)
    assert_uniform(replace_head(build(), 300).classifier.weight, bound)
