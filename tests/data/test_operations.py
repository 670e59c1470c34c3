"""Crop, flip and rotation against loops over pixels, bit for bit."""

import math

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

from noiseproof.data import Augment, HorizontalFlip, RandomCrop
from noiseproof.data.operations import Crop, Flip
from noiseproof.paper.rotation import Rotated, Rotation

SHAPES = pytest.mark.parametrize("shape", [(6, 3, 8, 8), (6, 1, 7, 12), (6, 3, 13, 5)], ids=str)
ALPHA = 1e-9
"""The false-alarm rate of every statistical test here, were the seeds not fixed."""


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def batch(*shape, seed=1):
    return torch.randint(1, 256, shape, dtype=torch.uint8, generator=seeded(seed))


def crop(image, top, left, padding, height, width):
    channels, rows, columns = image.shape
    padded = np.zeros((channels, rows + 2 * padding, columns + 2 * padding), np.uint8)
    padded[:, padding : padding + rows, padding : padding + columns] = image
    return padded[:, top : top + height, left : left + width]


def mirror(image, flip):
    return image[:, :, ::-1] if flip else image


def rotate(image, degrees):
    """Pillow's rule, in Python's own integers: the centre of each result pixel turned back, in 1/65536 of a pixel."""

    def fixed(value):
        return math.floor(value * 65536 + 0.5)

    channels, height, width = image.shape
    angle = -math.radians(degrees)
    a, b, d, e = math.cos(angle), math.sin(angle), -math.sin(angle), math.cos(angle)
    c = width / 2 - a * width / 2 - b * height / 2
    f = height / 2 - d * width / 2 - e * height / 2
    start_x, start_y = fixed(c + a / 2 + b / 2), fixed(f + d / 2 + e / 2)
    result = np.zeros_like(image)
    for row in range(height):
        for column in range(width):
            x = (start_x + fixed(a) * column + fixed(b) * row) // 65536
            y = (start_y + fixed(d) * column + fixed(e) * row) // 65536
            if 0 <= x < width and 0 <= y < height:
                for channel in range(channels):
                    result[channel, row, column] = image[channel, y, x]
    return result


@SHAPES
@pytest.mark.parametrize(("padding", "size"), [(4, None), (0, 5), (1, 4), (0, None), (20, None)])
def test_a_crop_is_padding_then_slicing(shape, padding, size):
    images = batch(*shape)
    operation = RandomCrop(padding=padding, size=size)
    drawn = operation.draw(6, shape[2:], seeded())
    out = operation.apply(images, drawn)
    for image, top, left, result in zip(images.numpy(), drawn.top.tolist(), drawn.left.tolist(), out.numpy(), strict=True):
        height, width = shape[2:] if size is None else (size, size)
        np.testing.assert_array_equal(result, crop(image, top, left, padding, height, width))


@SHAPES
def test_a_flip_mirrors_the_images_it_drew_and_no_other(shape):
    images = batch(*shape)
    drawn = Flip(torch.tensor([True, False, False, True, True, False]))
    out = HorizontalFlip().apply(images, drawn)
    for image, flip, result in zip(images.numpy(), drawn.flip.tolist(), out.numpy(), strict=True):
        np.testing.assert_array_equal(result, mirror(image, flip))


@SHAPES
def test_a_rotation_is_the_loop_over_pixels(shape):
    images = batch(*shape)
    drawn = Rotated(torch.tensor([0.0, 20.0, -13.7, 90.0, 171.3, -45.0], dtype=torch.float64))
    out = Rotation(180).apply(images, drawn)
    for image, angle, result in zip(images.numpy(), drawn.angle.tolist(), out.numpy(), strict=True):
        np.testing.assert_array_equal(result, rotate(image, angle))


@pytest.mark.parametrize("size", [(32, 32), (31, 20), (5, 64)], ids=str)
def test_a_rotation_is_pillows_pixel_for_pixel(size):
    pillow = pytest.importorskip("PIL.Image")
    images = batch(200, 1, *size)
    operation = Rotation(180)
    drawn = operation.draw(200, size, seeded())
    out = operation.apply(images, drawn)
    for image, angle, result in zip(images[:, 0].numpy(), drawn.angle.tolist(), out[:, 0].numpy(), strict=True):
        np.testing.assert_array_equal(result, np.asarray(pillow.fromarray(image).rotate(angle)))


def test_a_quarter_turn_is_counter_clockwise():
    image = torch.tensor([[1, 2], [3, 4]], dtype=torch.uint8).view(1, 1, 2, 2)
    assert Rotation(180).apply(image, Rotated(torch.tensor([90.0]))).flatten().tolist() == [2, 4, 1, 3]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0), (2, 1, 0), (0, 2, 0)], ids=str)
def test_a_chain_is_its_steps_one_after_another(order):
    operations = [(RandomCrop(padding=3), HorizontalFlip(), Rotation(60))[k] for k in order]
    images = batch(20, 1, 9, 14)
    chain = Augment(operations, (0.0,), (1 / 255,))
    drawn = chain.draw(20, (9, 14), seeded())
    out = chain.apply(images, drawn)
    for k, (image, result) in enumerate(zip(images.numpy(), out.numpy(), strict=True)):
        for parameters in drawn:
            if isinstance(parameters, Crop):
                image = crop(image, parameters.top[k].item(), parameters.left[k].item(), 3, 9, 14)
            elif isinstance(parameters, Flip):
                image = mirror(image, parameters.flip[k].item())
            else:
                image = rotate(image, parameters.angle[k].item())
        np.testing.assert_array_equal(result, image)


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 6), st.integers(0, 2**32))
def test_flipping_twice_and_cropping_at_the_padding_change_nothing(height, width, padding, seed):
    images = batch(3, 2, height, width, seed=seed)
    drawn = HorizontalFlip().draw(3, (height, width), seeded(seed))
    assert torch.equal(HorizontalFlip().apply(HorizontalFlip().apply(images, drawn), drawn), images)
    middle = Crop(torch.full((3,), padding), torch.full((3,), padding))
    assert torch.equal(RandomCrop(padding=padding).apply(images, middle), images)


def far_from(sample, distribution):
    """Whether the distribution function of a sample leaves the band of Dvoretzky, Kiefer, Wolfowitz and Massart, which it
    does with probability at most ALPHA if the sample is from ``distribution``."""
    sample = np.sort(np.asarray(sample, dtype=float))
    n = len(sample)
    expected = np.array([distribution(value) for value in sample])
    below = np.searchsorted(sample, sample, side="right") / n
    return np.abs(below - expected).max() > math.sqrt(math.log(2 / ALPHA) / (2 * n))


def test_crop_corners_are_uniform_on_every_place_and_independent():
    drawn = RandomCrop(padding=4, size=16).draw(20000, (16, 20), seeded())
    top, left = drawn.top.numpy(), drawn.left.numpy()
    assert (top.min(), top.max(), left.min(), left.max()) == (0, 8, 0, 12)
    assert not far_from(top, lambda value: (value + 1) / 9)
    assert not far_from(left, lambda value: (value + 1) / 13)
    assert far_from(left, lambda value: (value + 1) / 14)
    assert not far_from(top * 13 + left, lambda value: (value + 1) / 117)


@pytest.mark.parametrize("p", [0.0, 0.3, 0.5, 1.0])
def test_flips_come_with_probability_p(p):
    flips = HorizontalFlip(p).draw(20000, (4, 4), seeded()).flip
    band = math.sqrt(math.log(2 / ALPHA) / 40000) if 0 < p < 1 else 0  # Hoeffding, false alarms ALPHA
    assert abs(flips.double().mean().item() - p) <= band


def test_angles_are_uniform():
    angles = Rotation(20).draw(20000, (4, 4), seeded()).angle.numpy()
    assert not far_from(angles, lambda value: min(max((value + 20) / 40, 0), 1))
    assert far_from(angles, lambda value: (value + 21) / 42)
    assert len(np.unique(angles)) == 20000


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: RandomCrop(padding=-1), ValueError, r"padding must be at least 0, got -1"),
        (lambda: RandomCrop(padding=1.5), TypeError, "padding must be an integer, got 1.5"),
        (lambda: RandomCrop(size=0), ValueError, r"size must be at least 1, got 0"),
        (lambda: HorizontalFlip(1.5), ValueError, r"p must be in \[0, 1\], got 1.5"),
        (lambda: HorizontalFlip(float("nan")), ValueError, r"p must be in \[0, 1\], got nan"),
        (lambda: HorizontalFlip("half"), TypeError, "p must be a number, got 'half'"),
        (lambda: Rotation(181), ValueError, r"degrees must be in \[0, 180\], got 181"),
        (
            lambda: RandomCrop(padding=1, size=9).draw(1, (6, 20), seeded()),
            ValueError,
            "images with padding 1 must hold a crop of 9, got 6 x 20",
        ),
    ],
)
def test_bad_options_are_refused_with_the_range(build, error, message):
    with pytest.raises(error, match=message):
        build()
