"""The default recipe for a user's own data, by the kind of its inputs."""

from __future__ import annotations

from typing import Any

from noiseproof.data import Dataset, Examples
from noiseproof.train.recipe import Recipe, override

__all__ = ["own_recipe"]

ALL: dict[str, Any] = {"schedule": "cosine", "epochs": 100}
SGD: dict[str, Any] = {**ALL, "optimiser": "sgd", "lr": 0.1, "momentum": 0.9, "clip": 5.0}
FEATURES: dict[str, Any] = {
    **ALL,
    "model": "mlp",
    "model_options": {"hidden": [256, 256]},
    "optimiser": "adam",
    "lr": 2e-3,
    "batch": 128,
}
"""For features; also those of the digits."""
IMAGES: dict[str, Any] = {**SGD, "model": "resnet18", "l2": 5e-4, "augment": "crop-flip", "batch": 128, "precision": "tf32"}
"""For images in memory."""
FILES: dict[str, Any] = {
    **SGD,  # not WebVision's schedule of 0.97 per epoch, which needs 250 epochs
    "model": "resnet50",
    "model_options": {"stem": "imagenet", "zero_init_residual": True},
    "batch": 64,  # WebVision's ratio of learning rate and batch, 0.4 to 256
    "nesterov": True,
    "l2": 3e-5,
    "augment": "webvision",
    "precision": "bf16",
}
"""For image files: WebVision's setting, with a schedule for any number of epochs."""
LARGE = 64
"""Images in memory with a longer side than this get the stem for 224x224, which computes a quarter of the positions."""


def own_recipe(
    dataset: Dataset, place: str, loss: str, *, model: str | None = None, noise: str = "none", seed: int, gpu: bool = True
) -> Recipe:
    """The default recipe for a user's own data set; ``place`` is what it is opened by.

    features          MLP 256-256, Adam 2e-3, 100 epochs, batch 128
    images in memory  ResNet-18, SGD 0.1, momentum 0.9, L2 5e-4, clip 5, crop and flip, 100 epochs, batch 128
    image files       ResNet-50 for 224x224, SGD 0.1, Nesterov 0.9, L2 3e-5, clip 5, WebVision's augmentation, bf16,
                      100 epochs, batch 64

    all with a cosine schedule and the loss's defaults. Without ``gpu`` float32 replaces bf16: a CPU is faster in it.
    """
    facts = dict(_defaults(dataset.train))
    if not gpu and facts.get("precision") == "bf16":
        facts["precision"] = "float32"
    recipe = Recipe(dataset=place, loss=loss, noise=noise, seed=seed, **facts)
    return recipe if model is None else override(recipe, {"model": model})


def _defaults(train: Examples) -> dict[str, Any]:
    if train.kind == "files":
        return FILES
    if train.kind == "features":
        return FEATURES
    large = max(train.inputs.shape[1:3]) > LARGE
    return IMAGES | {"model_options": {"stem": "imagenet"}} if large else IMAGES
