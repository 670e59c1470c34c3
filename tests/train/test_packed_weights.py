"""The packed pass computes what the network does, and the network's tensors are views of its own."""

import pytest
import torch
from torch.func import functional_call

import noiseproof
from noiseproof.models import create_model
from noiseproof.train.fast.packed_weights import PackedWeights


@pytest.mark.parametrize("model", ["cnn8", pytest.param("resnet18", marks=pytest.mark.slow)])
def test_the_lean_pass_is_the_networks_own(model):
    """In float64: values, gradients and running statistics; what was added stays zero."""
    generator = torch.Generator().manual_seed(0)
    plain, network = (create_model(model, 10) for _ in range(2))
    for buffer in plain.buffers():  # statistics of a network that has trained before
        if buffer.is_floating_point():
            buffer.uniform_(0.5, 1.5, generator=generator)
    network.load_state_dict(plain.state_dict())
    packed = PackedWeights(network, multiple=8, half=False)
    flat = packed.flat.double()
    leaves = {name: packed.spans[name].whole(flat).detach().requires_grad_() for name in packed.leaves}
    buffers = {name: buffer.double() for name, buffer in packed.buffers.items()}
    plain.double().train()
    inputs = torch.randn(8, 3, 32, 32, generator=generator, dtype=torch.float64)
    target = torch.randint(10, (8,), generator=generator)
    padded = torch.zeros(8, 8, 32, 32, dtype=torch.float64)
    padded[:, :3] = inputs
    logits = functional_call(packed.template, {**leaves, **buffers}, (padded,))
    expected = plain(inputs)
    torch.testing.assert_close(logits, expected, rtol=1e-9, atol=1e-9)
    criterion = noiseproof.JALCE()
    gradients = dict(zip(leaves, torch.autograd.grad(criterion(logits, target), list(leaves.values())), strict=True))
    criterion(expected, target).backward()
    largest = max(parameter.grad.abs().max() for parameter in plain.parameters())
    for name, parameter in plain.named_parameters():
        if name not in gradients:  # a bias that BatchNorm takes away
            assert parameter.grad.abs().max() < 1e-12 * largest
            continue
        own = gradients[name][tuple(slice(size) for size in parameter.shape)]
        torch.testing.assert_close(own, parameter.grad, rtol=1e-7, atol=1e-12 * largest.item())
        assert gradients[name].abs().sum() - own.abs().sum() < 1e-9
    # The means after a folded bias lie in one vector, to which a step adds the biases.
    starts = {name: place.start for name, place in packed.spans.items() if name not in leaves}
    first = min(starts.values(), default=0)
    for name, statistic in plain.named_buffers():
        if not statistic.is_floating_point():
            continue
        ours = buffers[name][: len(statistic)]
        sequence, _, number = name.rpartition(".")[0].rpartition(".")
        folded = f"{sequence}.{int(number) - 1}.bias" if number.isdigit() else ""
        if name.endswith("running_mean") and folded in starts:
            place = slice(starts[folded] - first, starts[folded] - first + len(statistic))
            assert packed.bias_means[place].data_ptr() == packed.buffers[name].data_ptr()
            ours = ours + 0.1 * packed.bias.double()[place]
        torch.testing.assert_close(ours, statistic, rtol=1e-6, atol=1e-6)


def test_the_network_stays_a_view_of_the_lean_weights():
    network = create_model("cnn8", 10)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    packed = PackedWeights(network, multiple=8, half=True)
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    packed.flat.mul_(2)
    packed.refresh()
    for name, parameter in network.named_parameters():
        assert torch.equal(parameter, 2 * before[name]), name
    assert torch.equal(packed.copy, packed.flat[: len(packed.copy)].bfloat16())
    views = packed.views(packed.flat)
    assert {name: view.shape for name, view in views.items()} == {n: p.shape for n, p in network.named_parameters()}
