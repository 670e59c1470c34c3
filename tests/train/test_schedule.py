"""The learning rate by epoch is torch's."""

import math

import pytest
import torch
from torch.optim import lr_scheduler

from noiseproof.train.recipe import lr_factor

EPOCHS = 17


@pytest.mark.parametrize(
    ("text", "theirs"),
    [
        ("constant", lambda optimiser: lr_scheduler.ConstantLR(optimiser, factor=1.0)),
        ("cosine", lambda optimiser: lr_scheduler.CosineAnnealingLR(optimiser, EPOCHS)),
        ("exponential:0.97", lambda optimiser: lr_scheduler.ExponentialLR(optimiser, 0.97)),
        ("step:5:0.1", lambda optimiser: lr_scheduler.StepLR(optimiser, 5, 0.1)),
    ],
)
def test_it_is_torchs(text, theirs):
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.4)
    scheduler = theirs(optimiser)
    for epoch in range(EPOCHS):
        expected = optimiser.param_groups[0]["lr"]
        assert math.isclose(0.4 * lr_factor(text, epoch, EPOCHS), expected, rel_tol=1e-12), epoch
        optimiser.step()
        scheduler.step()


@pytest.mark.parametrize(
    "text", ["linear", "cosine:3", "exponential", "exponential:x", "exponential:-1", "step:5", "step:nan:1", ""]
)
def test_what_is_no_schedule_is_refused_with_what_was_given(text):
    with pytest.raises(ValueError, match=rf"schedule .* got '{text}'"):
        lr_factor(text, 0, 1)
