"""Colour jitter against a loop over pixels, with the standard library's HSV."""

import colorsys
import itertools
import math

import numpy as np
import pytest
import torch

from noiseproof.data import ColorJitter
from noiseproof.data.augment import Jitter, shift_hue

ALPHA = 1e-9
"""The false-alarm rate of every statistical test here, were the seeds not fixed."""
ORDERS = list(itertools.permutations(range(4)))


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def grey(pixel):
    return 0.299 * pixel[0] + 0.587 * pixel[1] + 0.114 * pixel[2]


def jittered(image, factors, hue, order):
    """One image [3, H, W] in [0, 1], float64, pixel by pixel."""
    channels, height, width = image.shape
    image = image.astype(np.float64)
    for step in order:
        mean = np.mean([grey(image[:, i, j]) for i in range(height) for j in range(width)])
        for i in range(height):
            for j in range(width):
                pixel = image[:, i, j]
                if step == 3:
                    h, s, v = colorsys.rgb_to_hsv(*pixel)
                    image[:, i, j] = colorsys.hsv_to_rgb((h + hue) % 1, s, v)
                    continue
                base = (0.0, mean, grey(pixel))[step]
                for channel in range(channels):
                    value = factors[step] * pixel[channel] + (1 - factors[step]) * base
                    image[channel, i, j] = min(max(value, 0.0), 1.0)
    return image


def test_every_order_is_the_loop_over_pixels():
    images = torch.randint(0, 256, (24, 3, 4, 6), dtype=torch.uint8, generator=seeded(1))
    images[0, :, 0, 0], images[1, :, 1, 1], images[2, :2, 0, 0] = 0, 255, 200
    drawn = ColorJitter(0.8, 0.8, 0.8, 0.5).draw(24, (4, 6), seeded())
    drawn = Jitter(drawn.factor, drawn.hue, torch.tensor(ORDERS))
    out = ColorJitter(0.8, 0.8, 0.8, 0.5).apply(images, drawn)
    for k, order in enumerate(ORDERS):
        expected = jittered(images[k].numpy() / 255, drawn.factor[k].tolist(), drawn.hue[k].item(), order)
        np.testing.assert_allclose(out[k].numpy(), expected, atol=5e-6)


@pytest.mark.parametrize("name", ["brightness", "contrast", "saturation", "hue"])
def test_each_step_alone_is_the_loop_over_pixels(name):
    images = torch.rand(5, 3, 5, 3, generator=seeded(1))
    operation = ColorJitter(**{**dict.fromkeys(("brightness", "contrast", "saturation", "hue"), 0), name: 0.4})
    drawn = operation.draw(5, (5, 3), seeded())
    out = operation.apply(images, drawn)
    assert not torch.equal(out, images)
    for k in range(5):
        expected = jittered(images[k].numpy(), drawn.factor[k].tolist(), drawn.hue[k].item(), drawn.order[k].tolist())
        np.testing.assert_allclose(out[k].numpy(), expected, atol=2e-6)


def test_no_strength_changes_nothing():
    images = torch.rand(5, 3, 5, 3, generator=seeded(1))
    operation = ColorJitter(0, 0, 0, 0)
    assert torch.equal(operation.apply(images, operation.draw(5, (5, 3), seeded())), images)


def test_one_channel_has_neither_saturation_nor_hue():
    images = torch.rand(5, 1, 5, 3, generator=seeded(1))
    operation = ColorJitter(0, 0, 0.4, 0.2)
    torch.testing.assert_close(operation.apply(images, operation.draw(5, (5, 3), seeded())), images)


def test_three_thirds_of_a_turn_are_none():
    images = torch.rand(5, 3, 5, 3, generator=seeded(1))
    turned = images
    for _ in range(3):
        turned = shift_hue(turned, torch.full((5, 1, 1), 1 / 3))
    torch.testing.assert_close(turned, images, rtol=0, atol=1e-5)


def test_factors_and_shifts_are_uniform_and_orders_equally_likely():
    """Dvoretzky, Kiefer, Wolfowitz and Massart for the values, Hoeffding over the 24 orders: ALPHA false alarms each."""
    n = 20000
    drawn = ColorJitter(0.4, 0.3, 1.5, 0.2).draw(n, (4, 4), seeded())
    band = math.sqrt(math.log(2 / ALPHA) / (2 * n))
    ranges = [(0.6, 1.4), (0.7, 1.3), (0.0, 2.5), (-0.2, 0.2)]
    for values, (low, high) in zip([*drawn.factor.double().unbind(1), drawn.hue.double()], ranges, strict=True):
        share = (values.sort().values - low) / (high - low)
        assert (share - torch.arange(1, n + 1) / n).abs().max() < band
        assert len(values.unique()) > n / 2
    codes = (drawn.order * torch.tensor([64, 16, 4, 1])).sum(dim=1)
    counts = torch.bincount(codes, minlength=256)
    expected = [64 * a + 16 * b + 4 * c + d for a, b, c, d in ORDERS]
    assert counts[expected].sum() == n
    assert (counts[expected] / n - 1 / 24).abs().max() < math.sqrt(math.log(48 / ALPHA) / (2 * n))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"brightness": -0.1}, r"brightness must be in \[0, inf\), got -0.1"),
        ({"contrast": math.inf}, r"contrast must be in \[0, inf\), got inf"),
        ({"hue": 0.6}, r"hue must be in \[0, 0.5\], got 0.6"),
    ],
)
def test_bad_options_are_refused_with_the_range(options, message):
    with pytest.raises(ValueError, match=message):
        ColorJitter(**options)


def test_other_numbers_of_channels_are_refused():
    operation = ColorJitter()
    with pytest.raises(ValueError, match="images must have 1 or 3 channels for a change of colour, got 4"):
        operation.apply(torch.rand(1, 4, 2, 2), operation.draw(1, (2, 2), seeded()))
