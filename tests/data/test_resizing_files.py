"""Framings against loops over pixels, the rule that draws parts, and the keyed numbers under it."""

import numpy as np
import pytest
from PIL import Image

from noiseproof.data import RandomResizedCrop, Resize, ResizeCenterCrop
from noiseproof.keyed_random import keyed_bits, keyed_order, keyed_uniform
from tests.helpers.usual_rule import DRAWN, assert_parts_are_usual


def picture(height, width, seed=0):
    """Smooth waves and noise: both kinds of detail."""
    source = np.random.default_rng(seed)
    rows, columns = np.mgrid[:height, :width]
    waves = np.stack([np.sin(rows / 5 + k) + np.cos(columns / 7 - k) for k in range(3)], axis=2) * 50 + 128
    return (waves + source.normal(0, 20, (height, width, 3))).clip(0, 255).astype(np.uint8)


def weights(before, after):
    """A row of weights for each output pixel: a triangle as wide as the step, and at least as one pixel, about its centre."""
    step = before / after
    width = max(step, 1.0)
    table = np.zeros((after, before))
    for i in range(after):
        centre = (i + 0.5) * step
        for j in range(before):
            table[i, j] = max(0.0, 1 - abs(j + 0.5 - centre) / width)
        table[i] /= table[i].sum()
    return table


def resize(pixels, height, width):
    """Antialiased bilinear, along each side with weights in units of 2**-22 and rounded to whole levels.

    Both orders of the two sides: versions of Pillow choose differently, and some pixels differ by one level.
    """

    def across(values):
        whole = np.floor(weights(pixels.shape[1], width) * 2**22 + 0.5).astype(np.int64)
        return np.einsum("jw,hwc->hjc", whole, values) + 2**21 >> 22

    def down(values):
        whole = np.floor(weights(pixels.shape[0], height) * 2**22 + 0.5).astype(np.int64)
        return np.einsum("ih,hjc->ijc", whole, values) + 2**21 >> 22

    values = pixels.astype(np.int64)
    return down(across(values)), across(down(values))


def framed(framing, pixels, key=(0, 0, 1, 0)):
    result = np.asarray(framing.frame(Image.fromarray(pixels), key)).astype(int)
    assert result.shape == (*framing.frame_size, 3)
    return result


@pytest.mark.parametrize("size", [(40, 60), (61, 17), (9, 9), (16, 24)], ids=str)
def test_squash_resizes_to_the_size_whatever_the_shape(size):
    pixels = picture(*size)
    found = framed(Resize(16, 24), pixels)
    assert any(np.array_equal(found, expected) for expected in resize(pixels, 16, 24))


@pytest.mark.parametrize("size", [(20, 31), (31, 20), (16, 16), (8, 8), (16, 29), (16, 27), (64, 50)], ids=str)
def test_centre_resizes_the_shorter_side_and_cuts_the_middle(size):
    pixels = picture(*size)
    height, width = (16, int(16 * size[1] / size[0])) if size[0] <= size[1] else (int(16 * size[0] / size[1]), 16)
    top, left = round((height - 12) / 2), round((width - 12) / 2)
    found = framed(ResizeCenterCrop(16, 12), pixels)
    cut = slice(top, top + 12), slice(left, left + 12)
    assert any(np.array_equal(found, expected[cut]) for expected in resize(pixels, height, width))


def test_centre_copies_pixels_where_nothing_is_resized():
    pixels = picture(256, 300)
    assert np.array_equal(framed(ResizeCenterCrop(), pixels), pixels[16:240, 38:262])


@pytest.mark.parametrize("index", range(6))
def test_a_random_part_is_the_cut_box_resized(index):
    pixels, key = picture(40, 61), (0, 0, 1, index)
    framing = RandomResizedCrop(13)
    top, left, height, width = framing.box((40, 61), key)
    part = pixels[top : top + height, left : left + width]
    found = framed(framing, pixels, key)
    assert any(np.array_equal(found, expected) for expected in resize(part, 13, 13))


def test_nothing_outside_the_part_shows():
    framing, key = RandomResizedCrop(20), (0, 0, 1, 3)
    top, left, height, width = framing.box((50, 50), key)
    pixels = np.full((50, 50, 3), 255, np.uint8)
    pixels[top : top + height, left : left + width] = 0
    assert framed(framing, pixels, key).max() == 0
    assert (height, width) != (50, 50)


@pytest.mark.parametrize(
    "framing", [RandomResizedCrop(), RandomResizedCrop(scale=(0.02, 0.1), ratio=(0.1, 4.0))], ids=["usual", "wide"]
)
@pytest.mark.parametrize("size", [(64, 64), (40, 90), (90, 40), (16, 200)], ids=str)
def test_parts_are_distributed_as_the_usual_rule_has_them(framing, size):
    ours = np.array([framing.box(size, (5, 2, 1, k)) for k in range(DRAWN)])
    assert_parts_are_usual(ours, size, framing.scale, framing.ratio)


@pytest.mark.parametrize(("size", "expected"), [((10, 100), (0, 43, 10, 13)), ((100, 11), (42, 0, 15, 11))])
def test_the_largest_central_part_is_taken_where_no_try_fits(size, expected):
    assert {RandomResizedCrop(scale=(1, 1)).box(size, (0, 0, 1, k)) for k in range(50)} == {expected}


def test_a_part_as_high_as_the_image_lies_anywhere_along_it():
    boxes = [RandomResizedCrop(scale=(0.5, 0.5), ratio=(1.0, 1.0)).box((10, 20), (0, 0, 1, k)) for k in range(300)]
    assert {(top, height, width) for top, _, height, width in boxes} == {(0, 10, 10)}
    assert {left for _, left, _, _ in boxes} == set(range(11))  # that one of eleven is missing: 1e-11


def test_the_options_are_those_of_the_crop_on_the_device():
    device, file = RandomResizedCrop(), RandomResizedCrop()
    assert (file.size, file.scale, file.ratio) == (device.size, device.scale, device.ratio)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Resize(0, 5), r"height must be at least 1, got 0"),
        (lambda: Resize(5, 0), r"width must be at least 1, got 0"),
        (lambda: ResizeCenterCrop(200, 224), r"resize must be at least 224, got 200"),
        (lambda: RandomResizedCrop(scale=(0.0, 1.0)), r"scale\[0\] must be in \(0, 1\], got 0.0"),
        (lambda: RandomResizedCrop(ratio=(2.0, 1.5)), r"ratio\[0\] must be in \(0, 1.5\], got 2.0"),
    ],
)
def test_bad_options_are_refused_with_the_range(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def bits_in_python(*key):
    """splitmix64's finaliser with Python's integers."""
    state = 0
    for word in key:
        state = ((state ^ word) + 0x9E3779B97F4A7C15) % 2**64
        state = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) % 2**64
        state = ((state ^ state >> 27) * 0x94D049BB133111EB) % 2**64
        state ^= state >> 31
    return state


def test_keyed_bits_are_the_same_everywhere():
    keys = np.array([0, 1, 2**63, 2**64 - 1], np.uint64)
    assert keyed_bits(7, keys, 3).tolist() == [bits_in_python(7, int(k), 3) for k in keys]
    # The finaliser's published first output for seed 0.
    assert keyed_bits(0).tolist() == [0xE220A8397B1DCDAF]


@pytest.mark.parametrize("place", range(3))
def test_keyed_numbers_are_uniform_and_unrelated_along_every_word(place):
    """Counts in 64 cells of pairs of neighbours, along each word of a key of three: chi-squared, 63 degrees, below 180."""
    key = [np.uint64(1)] * 3
    key[place] = np.arange(20001, dtype=np.uint64)
    numbers = keyed_uniform(*key)
    assert 0 <= numbers.min() < numbers.max() < 1
    cells = (8 * numbers).astype(int)
    counts = np.bincount(8 * cells[:-1:2] + cells[1::2], minlength=64)
    assert ((counts - 10000 / 64) ** 2 / (10000 / 64)).sum() < 180


def test_an_order_is_a_permutation():
    order = keyed_order(1000, 3, 4)
    assert sorted(order) == list(range(1000))
    assert order.tolist() != keyed_order(1000, 3, 5).tolist()
