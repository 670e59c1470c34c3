"""A model and data of a user's own: what they are, and a recipe for them."""

import numpy as np

from noiseproof.train import Recipe

TINY = """
import torch
from torch import nn


def network(classes, channels=3):
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


def wrong_shape(classes):
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(3, classes, 1))


def too_few(classes):
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, classes - 1))


def pair(classes):
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(1))

        def forward(self, x):
            return x, x

    return Pair()


def nothing(classes):
    return None


def no_classes():
    return nn.Linear(2, 2)


thing = 3
"""
"""The module ``my_tiny`` of the fixture ``own``."""


def recipe(dataset, **changes):
    facts = {"loss": "ce", "model": "my_tiny:network", "lr": 0.5, "schedule": "constant", "epochs": 6, "batch": 16}
    return Recipe(dataset=dataset, **(facts | changes))


def grey_folder(root, count=12, size=(28, 28)):
    """Two classes of grey images, dark and bright."""
    from PIL import Image

    generator = np.random.default_rng(0)
    for name, low in (("bright", 150), ("dark", 0)):
        (root / name).mkdir(parents=True)
        for k in range(count):
            Image.fromarray(generator.integers(low, low + 100, size, dtype=np.uint8)).save(root / name / f"{k:02}.png")
    return str(root)
