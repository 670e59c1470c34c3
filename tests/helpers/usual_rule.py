"""The usual rule that draws a part of an image, one image at a time, and how parts that others draw are compared with it."""

import math
import random

import numpy as np

DRAWN = 10_000
ALPHA = 1e-9
"""The false-alarm rate of a comparison, were seeds and keys not fixed."""


def part_by_the_rule(height, width, scale, ratio, source):
    """Top, left, height and width."""
    for _ in range(10):
        area = source.uniform(*scale) * height * width
        shape = math.exp(source.uniform(math.log(ratio[0]), math.log(ratio[1])))
        w, h = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
        if 0 < w <= width and 0 < h <= height:
            return source.randint(0, height - h), source.randint(0, width - w), h, w
    if width / height < ratio[0]:
        w, h = width, round(width / ratio[0])
    elif width / height > ratio[1]:
        w, h = round(height * ratio[1]), height
    else:
        w, h = width, height
    return (height - h) // 2, (width - w) // 2, h, w


def assert_parts_are_usual(ours, size, scale, ratio):
    """Each of the four numbers and the area, by two samples; ALPHA/5 for each, of which ALPHA/10 is each sample's."""
    source = random.Random(0)
    rule = np.array([part_by_the_rule(*size, scale, ratio, source) for _ in range(DRAWN)])
    top, left, height, width = ours.T
    assert ours.shape == rule.shape
    assert min(top.min(), left.min(), height.min() - 1, width.min() - 1) >= 0
    assert (top + height).max() <= size[0]
    assert (left + width).max() <= size[1]
    assert (top + height)[height < size[0]].max() == size[0]
    assert (left + width)[width < size[1]].max() == size[1]
    band = 2 * math.sqrt(math.log(2 / (ALPHA / 10)) / (2 * DRAWN))
    for mine, theirs in zip([*ours.T, height * width], [*rule.T, rule[:, 2] * rule[:, 3]], strict=True):
        values = np.union1d(mine, theirs)
        counts = [np.searchsorted(np.sort(sample), values, side="right") / DRAWN for sample in (mine, theirs)]
        assert np.abs(counts[0] - counts[1]).max() < band
