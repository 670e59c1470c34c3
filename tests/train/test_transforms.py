"""The augmentations by name: each normalises by the statistics of its own data set."""

import numpy as np
import pytest
import torch

from noiseproof.data import ImageFiles, Split
from noiseproof.train.transforms import Transforms

STATISTICS = {
    "cifar10": ((0.49139968, 0.48215827, 0.44653124), (0.24703233, 0.24348505, 0.26158768)),
    "cifar100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    "webvision": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "clothing1m": ((0.6959, 0.6537, 0.6371), (0.3113, 0.3192, 0.3214)),
}
"""Mean and standard deviation of the training images in [0, 1]: CIFAR's, ImageNet's, and those that are used for Clothing1M"""
PLAIN = np.full((4, 256, 256, 3), (10, 100, 200), np.uint8)


@pytest.mark.parametrize(
    ("name", "files", "part"),
    [
        ("cifar10", False, "train"),
        ("cifar10", False, "test"),
        ("cifar100", False, "train"),
        ("cifar100", False, "test"),
        ("webvision", False, "test"),
        ("webvision", True, "test"),
        ("clothing1m", False, "train"),
        ("clothing1m", True, "train"),
        ("clothing1m", True, "test"),
    ],
)
def test_a_plain_image_is_normalised_by_the_data_sets_mean_and_deviation(name, files, part):
    """Its middle keeps its colour under every crop, flip and turn; only WebVision's training images have theirs jittered."""
    split = ImageFiles(("a.png",) * 4, np.arange(4)) if files else Split(PLAIN[:, :32, :32], np.arange(4))
    images = torch.from_numpy(PLAIN if name in ("clothing1m", "webvision") else PLAIN[:, :32, :32]).permute(0, 3, 1, 2)
    made = getattr(Transforms.named(name, split), part)(images.contiguous(), torch.Generator().manual_seed(0))
    middle = made[:, :, made.shape[2] // 2, made.shape[3] // 2]
    mean, std = map(torch.tensor, STATISTICS[name])
    expected = (torch.tensor([10, 100, 200]) / 255 - mean) / std
    torch.testing.assert_close(middle, expected.expand(4, 3), rtol=1e-5, atol=1e-5)


def test_other_names_normalise_by_the_training_images_themselves():
    images = np.random.default_rng(0).integers(0, 256, (50, 8, 8, 3), dtype=np.uint8)
    made = Transforms.named("none", Split(images, np.arange(50))).test(
        torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()
    )
    torch.testing.assert_close(made.mean((0, 2, 3)), torch.zeros(3), rtol=0, atol=1e-5)
    torch.testing.assert_close(made.std((0, 2, 3), unbiased=False), torch.ones(3), rtol=0, atol=1e-5)
