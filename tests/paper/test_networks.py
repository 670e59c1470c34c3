"""The experiments' own network."""

import copy

import pytest
import torch

from noiseproof.paper.networks import CNN8


def images(number=2, channels=3, side=32, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(number, channels, side, side, generator=generator, dtype=torch.float64).to(dtype)


def test_cnn8_compiles_to_one_graph():
    model = CNN8(10)
    twin = copy.deepcopy(model)
    compiled = torch.compile(twin, fullgraph=True, backend="aot_eager")
    expected, found = model(images(4), features=True), compiled(images(4), features=True)
    for theirs, ours in zip(expected, found, strict=True):
        torch.testing.assert_close(ours, theirs)
    expected[0].square().sum().backward()
    found[0].square().sum().backward()
    for ours, theirs in zip(twin.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(model.eval(), fullgraph=True, backend="aot_eager")(images()), model(images()))
    torch._dynamo.reset()


@pytest.mark.parametrize(("size", "pooled"), [(28, 3 * 3), (33, 4 * 4), (48, 6 * 6), ((28, 64), 3 * 8), ([64, 64], 8 * 8)])
def test_cnn8_is_built_for_images_of_28_to_64_pixels(size, pooled):
    model = CNN8(10, in_channels=1, size=size)
    height, width = model.size
    assert model.hidden[0].in_features == 196 * pooled
    x = torch.randn(3, 1, height, width, generator=torch.Generator().manual_seed(0))
    logits, features = model(x, features=True)
    assert (logits.shape, features.shape) == ((3, 10), (3, 256))
    assert model.aligned(8).size == model.size
    with pytest.raises(
        ValueError, match=rf"^CNN8 takes images \[N, 1, {height}, {width}\], got \[3, 1, {height}, {width + 1}\]$"
    ):
        model(torch.zeros(3, 1, height, width + 1))


def test_the_size_of_cnn8_changes_one_layer_alone():
    torch.manual_seed(5)
    usual = CNN8(10).state_dict()
    torch.manual_seed(5)
    same = CNN8(10, size=32).state_dict()
    assert all(torch.equal(usual[key], same[key]) for key in usual)
    assert list(CNN8(10, size=28).state_dict()) == list(usual)
    other = {key for key, value in CNN8(10, size=28).state_dict().items() if value.shape != usual[key].shape}
    assert other == {"hidden.0.weight"}


@pytest.mark.parametrize("size", [27, 65, (32, 16)])
def test_cnn8_refuses_other_sizes(size):
    with pytest.raises(ValueError, match=r"^size must be in \[28, 64\] for cnn8, got \d+; a resnet18 takes any$"):
        CNN8(10, size=size)
    with pytest.raises(ValueError, match="size must be a side, or height and width"):
        CNN8(10, size=(32, 32, 32))
