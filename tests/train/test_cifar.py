"""The paper's CIFAR-10 recipe on real images, where they are."""

import dataclasses

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional as F

from noiseproof import paper
from noiseproof.data import Split, open_dataset
from noiseproof.models import create_model
from noiseproof.paper.datasets import CIFAR10
from noiseproof.train import override, train, with_noise


@pytest.fixture(scope="module")
def cifar10():
    try:
        return open_dataset("cifar10")
    except FileNotFoundError:
        pytest.skip("CIFAR-10 is not in $NOISEPROOF_DATA")


@pytest.mark.slow
def test_512_images_for_two_epochs_learn_something_and_the_saved_weights_say_the_same(cifar10, tmp_path):
    """Three seeds together are above one in ten by five standard deviations of a guess: of 1536 images, 13.8 %."""
    few = Split(cifar10.train.inputs[:512], cifar10.train.labels[:512])
    test = Split(cifar10.test.inputs[:512], cifar10.test.labels[:512])
    accuracies = []
    for seed in range(3):
        recipe = override(paper.recipe("cifar10/jal-ce", noise="symmetric:0.2", seed=seed), {"epochs": 2})
        task = with_noise(dataclasses.replace(cifar10, train=few, test=test), recipe)
        outcome = train(recipe, task, folder=tmp_path / str(seed))
        accuracies.append(outcome.record.epochs[-1].clean_accuracy)
    assert np.mean(accuracies) > 0.1 + 5 * (0.1 * 0.9 / (3 * 512)) ** 0.5
    model = create_model("cnn8", 10)
    model.load_state_dict(load_file(tmp_path / "2" / "weights.safetensors"))
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in CIFAR10)
    x = torch.from_numpy(test.inputs).permute(0, 3, 1, 2).float() / 255
    with torch.no_grad():
        predicted = model.eval()((x - mean) / std).argmax(1)
    assert outcome.record.result["test_accuracy"] == pytest.approx((predicted.numpy() == test.labels).mean(), abs=1 / 512)


@pytest.mark.slow
def test_the_first_steps_are_those_of_a_plain_loop(cifar10):
    """Written from the published script: penalty in the loss, clip_grad_norm_, torch.optim.SGD; the same batches."""
    few = Split(cifar10.train.inputs[:256], cifar10.train.labels[:256])
    recipe = override(paper.recipe("cifar10/jal-ce"), {"epochs": 1, "augment": "none"})
    task = with_noise(dataclasses.replace(cifar10, train=few, test=None), recipe)
    ours = train(recipe, task).record.epochs[0].loss

    from noiseproof.train.batch_loader import EpochPlan
    from noiseproof.train.network import build_network

    network = build_network(recipe, task)
    optimiser = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    x = torch.from_numpy(few.inputs).permute(0, 3, 1, 2).double() / 255
    x = ((x - x.mean((0, 2, 3), keepdim=True)) / x.std((0, 2, 3), correction=0, keepdim=True)).float()
    y = torch.from_numpy(few.labels)
    losses = []
    for batch in EpochPlan.draw(256, None, None, recipe.seed, 0).order.split(128):
        p = torch.softmax(network(x[batch]), 1)
        hot = F.one_hot(y[batch], 10).float()
        log = torch.log(p)
        nce = (hot * log).sum(1) / log.sum(1)
        amse = ((30 * hot - p) ** 2).mean(1)
        loss = (nce + amse).mean()
        losses.append(loss.item())
        penalty = 5e-5 * sum(parameter.abs().sum() for parameter in network.parameters())
        optimiser.zero_grad()
        (loss + penalty).backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 5.0)
        optimiser.step()
    assert ours == pytest.approx(np.mean(losses) - 29**2 / 10, rel=1e-5)  # less AMSE's constant, (a - 1)^2 / K
