"""ResNets: torchvision's names, and the arithmetic that goes with them."""

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from noiseproof.models import ResNet, resnet18, resnet34, resnet50
from noiseproof.models.resnet import BasicBlock, Bottleneck

EXPECTED = json.loads((Path(__file__).parent / "data" / "torchvision_resnet50.json").read_text(encoding="utf-8"))


def random_state(model, seed=0):
    """Every tensor of the model drawn anew, BatchNorm statistics included, in float64."""
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for name, tensor in model.state_dict().items():
        draw = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
        if tensor.dim() == 4:
            draw /= tensor[0].numel() ** 0.5
        state[name] = draw.abs() + 0.5 if name.endswith("running_var") else draw.to(tensor.dtype)
    return state


def written_out(state, x, depths, stem, widest):
    """The forward pass by the names in the state dict alone; ``widest`` is the number of convolutions in a block."""

    def conv_norm(x, conv, norm, stride=1):
        weight = state[f"{conv}.weight"]
        x = F.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)
        statistics = (state[f"{norm}.{part}"] for part in ("running_mean", "running_var", "weight", "bias"))
        mean, variance, gain, shift = (value.view(1, -1, 1, 1) for value in statistics)
        return (x - mean) / (variance + 1e-5).sqrt() * gain + shift

    x = conv_norm(x, "conv1", "bn1", 2 if stem == "imagenet" else 1).relu()
    if stem == "imagenet":
        x = F.max_pool2d(x, 3, stride=2, padding=1)
    strided = 1 if widest == 2 else 2
    for layer, depth in enumerate(depths, start=1):
        for number in range(depth):
            block = f"layer{layer}.{number}"
            stride = 2 if layer > 1 and number == 0 else 1
            out = x
            for step in range(1, widest + 1):
                out = conv_norm(out, f"{block}.conv{step}", f"{block}.bn{step}", stride if step == strided else 1)
                out = out.relu() if step < widest else out
            if f"{block}.downsample.0.weight" in state:
                x = conv_norm(x, f"{block}.downsample.0", f"{block}.downsample.1", stride)
            x = (out + x).relu()
    return F.linear(F.adaptive_avg_pool2d(x, 1).flatten(1), state["fc.weight"], state["fc.bias"])


def test_resnet50_has_torchvisions_names_and_shapes_in_its_order():
    state = resnet50(1000, stem="imagenet").state_dict()
    assert len(EXPECTED) == 320
    assert [[name, list(tensor.shape)] for name, tensor in state.items()] == EXPECTED


def test_the_cifar_stem_changes_the_first_convolution_only():
    shapes = {name: list(tensor.shape) for name, tensor in resnet50(1000).state_dict().items()}
    differing = {name: shape for name, shape in EXPECTED if shapes[name] != shape}
    assert list(shapes) == [name for name, _ in EXPECTED]
    assert differing == {"conv1.weight": [64, 3, 7, 7]}
    assert shapes["conv1.weight"] == [64, 3, 3, 3]


def test_basic_blocks_of_the_first_stage_have_no_downsample():
    names = [name for name in resnet34(10).state_dict() if name.endswith("downsample.0.weight")]
    assert names == ["layer2.0.downsample.0.weight", "layer3.0.downsample.0.weight", "layer4.0.downsample.0.weight"]


@pytest.mark.parametrize(
    ("build", "depths", "widest", "stem"),
    [
        (resnet18, (2, 2, 2, 2), 2, "imagenet"),
        (resnet34, (3, 4, 6, 3), 2, "cifar"),
        (resnet50, (3, 4, 6, 3), 3, "cifar"),
        (resnet50, (3, 4, 6, 3), 3, "imagenet"),
    ],
)
def test_the_network_computes_what_its_names_say(build, depths, widest, stem):
    """ResNet-50's stride is in the 3x3 convolution, which no name or shape shows."""
    model = build(5, stem=stem).double().eval()
    state = random_state(model)
    model.load_state_dict(state)
    x = torch.randn(1, 3, 17, 17, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(model(x), written_out(state, x, depths, stem, widest))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("build", [resnet18, resnet50])
def test_a_zeroed_residual_makes_each_block_its_shortcut(build, training):
    model = build(10, zero_init_residual=True).train(training)
    x = torch.randn(2, 64, 8, 8, generator=torch.Generator().manual_seed(0))
    identities = 0
    with torch.no_grad():
        for stage in (model.layer1, model.layer2, model.layer3, model.layer4):
            for block in stage:
                expected = x.clone() if block.downsample is None else block.downsample(x)
                identities += block.downsample is None
                x = block(x)
                assert torch.equal(x, expected.relu())
    assert identities == {resnet18: 5, resnet50: 12}[build]


def test_residuals_are_not_zeroed_unless_asked():
    assert all(bool((layer.bn2.weight == 1).all()) for layer in resnet18(10).modules() if isinstance(layer, BasicBlock))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stem": "cifar10"}, "stem must be one of cifar, imagenet, got 'cifar10'"),
        ({"stem": None}, "stem must be one of cifar, imagenet, got None"),
        ({"init": "kaiming"}, "init must be one of published, torchvision or None, got 'kaiming'"),
    ],
)
def test_unknown_choices_are_refused(options, message):
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the whole message is compared below
        resnet18(10, **options)
    assert str(raised.value) == message


def test_depths_are_checked():
    with pytest.raises(ValueError, match=r"^depths must have 4 numbers of blocks, got \[3, 3, 3\]$"):
        ResNet(BasicBlock, (3, 3, 3), 10)
    with pytest.raises(ValueError, match=r"^depths\[1\] must be at least 1, got 0$"):
        ResNet(Bottleneck, (1, 0, 1, 1), 10)
