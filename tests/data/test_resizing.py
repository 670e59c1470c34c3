"""Random resized crop and evaluation's resize against loops over pixels, and the rule that draws the windows."""

import math

import numpy as np
import pytest
import torch

from noiseproof.data import RandomResizedCrop, ResizeCenterCrop
from noiseproof.data.operations import Window
from tests.helpers.usual_rule import DRAWN, assert_parts_are_usual


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def batch(*shape):
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=seeded(1))


def resize(image, height, width):
    """Bilinear, pixel centres at +1/2, coordinates clamped to the image, no antialiasing; values in [0, 1]."""

    def around(i, before, after):
        at = min(max((i + 0.5) * before / after - 0.5, 0.0), before - 1.0)
        low = math.floor(at)
        return low, min(low + 1, before - 1), at - low

    channels, rows, columns = image.shape
    image = image.astype(np.float64) / 255
    result = np.empty((channels, height, width))
    for i in range(height):
        top, bottom, down = around(i, rows, height)
        for j in range(width):
            left, right, across = around(j, columns, width)
            upper = (1 - across) * image[:, top, left] + across * image[:, top, right]
            lower = (1 - across) * image[:, bottom, left] + across * image[:, bottom, right]
            result[:, i, j] = (1 - down) * upper + down * lower
    return result


def windows(drawn):
    return list(zip(*(t.tolist() for t in (drawn.top, drawn.left, drawn.height, drawn.width)), strict=True))


@pytest.mark.parametrize("shape", [(8, 3, 20, 20), (8, 1, 17, 33)], ids=str)
@pytest.mark.parametrize("size", [7, 24])
def test_a_resized_crop_is_the_cut_window_resized(shape, size):
    images = batch(*shape)
    operation = RandomResizedCrop(size=size)
    drawn = operation.draw(8, shape[2:], seeded())
    out = operation.apply(images, drawn)
    assert len(set(windows(drawn))) == 8
    for image, (top, left, height, width), result in zip(images.numpy(), windows(drawn), out.numpy(), strict=True):
        part = image[:, top : top + height, left : left + width]
        np.testing.assert_allclose(result, resize(part, size, size), atol=4e-6)


def test_nothing_outside_the_window_shows():
    images = torch.full((1, 1, 12, 12), 255, dtype=torch.uint8)
    images[:, :, 4:7, 2:7] = 0
    drawn = Window(*(torch.tensor([value]) for value in (4, 2, 3, 5)))
    assert RandomResizedCrop(size=20).apply(images, drawn).abs().max() < 1e-5


@pytest.mark.parametrize("size", [(20, 31), (31, 20), (16, 16), (8, 8), (16, 29)], ids=str)
def test_evaluation_resizes_the_shorter_side_and_cuts_the_centre(size):
    images = batch(2, 3, *size)
    out = ResizeCenterCrop(resize=16, size=12).apply(images)
    height, width = (16, int(16 * size[1] / size[0])) if size[0] <= size[1] else (int(16 * size[0] / size[1]), 16)
    top, left = round((height - 12) / 2), round((width - 12) / 2)
    for image, result in zip(images.numpy(), out.numpy(), strict=True):
        expected = resize(image, height, width)[:, top : top + 12, left : left + 12]
        np.testing.assert_allclose(result, expected, atol=4e-6)


def test_evaluation_copies_pixels_where_nothing_is_resized():
    images = batch(2, 3, 256, 300)
    assert torch.equal(ResizeCenterCrop().apply(images), images[:, :, 16:240, 38:262].float() / 255)


@pytest.mark.parametrize("size", [(64, 64), (40, 90), (90, 40), (16, 200)], ids=str)
def test_windows_are_distributed_as_the_usual_rule_has_them(size):
    operation = RandomResizedCrop()
    assert_parts_are_usual(np.array(windows(operation.draw(DRAWN, size, seeded()))), size, operation.scale, operation.ratio)


@pytest.mark.parametrize(("size", "expected"), [((10, 100), (0, 43, 10, 13)), ((100, 11), (42, 0, 15, 11))])
def test_the_largest_central_part_is_taken_where_no_try_fits(size, expected):
    drawn = RandomResizedCrop(scale=(1, 1)).draw(50, size, seeded())
    assert set(windows(drawn)) == {expected}


def test_the_whole_image_is_taken_where_no_try_fits_and_its_ratio_is_allowed():
    drawn = RandomResizedCrop(scale=(1, 1), ratio=(0.99, 1.01)).draw(1000, (1000, 1001), seeded())
    assert (0, 0, 1000, 1001) in windows(drawn)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: RandomResizedCrop(size=0), r"size must be at least 1, got 0"),
        (lambda: RandomResizedCrop(scale=(0.0, 1.0)), r"scale\[0\] must be in \(0, 1\], got 0.0"),
        (lambda: RandomResizedCrop(scale=(0.5, 1.1)), r"scale\[1\] must be in \(0, 1\], got 1.1"),
        (lambda: RandomResizedCrop(ratio=(2.0, 1.5)), r"ratio\[0\] must be in \(0, 1.5\], got 2.0"),
        (lambda: ResizeCenterCrop(resize=200, size=224), r"resize must be at least 224, got 200"),
    ],
)
def test_bad_options_are_refused_with_the_range(build, message):
    with pytest.raises(ValueError, match=message):
        build()
