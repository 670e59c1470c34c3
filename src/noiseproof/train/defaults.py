"""The default recipe for a user's own data, by the kind of its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from noiseproof.data import Dataset, Split, common_size
from noiseproof.train.recipe import Recipe, override

__all__ = ["own_recipe"]

ALL: dict[str, Any] = {"schedule": "cosine", "epochs": 100}
SGD: dict[str, Any] = {**ALL, "optimiser": "sgd", "lr": 0.1, "momentum": 0.9, "clip": 5.0}
ADAM: dict[str, Any] = {"optimiser": "adam", "lr": 2e-3}
FEATURES: dict[str, Any] = {**ALL, "model": "mlp", "model_options": {"hidden": [256, 256]}, **ADAM, "batch": 128}
"""For features; also those of the digits."""
IMAGES: dict[str, Any] = {
    **SGD,
    "model": "resnet18",
    "lr": 0.01,  # the paper's for CIFAR-10; at 0.1 JAL never predicts some classes of small data sets, see docs/own_data.md
    "l2": 5e-4,
    "augment": "crop-flip",
    "batch": 128,
    "precision": "tf32",
}
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
FEW = 4000
"""Fewer images are trained by Adam: in the few steps of 100 epochs SGD leaves JAL with classes that it never predicts"""
SIDE = 8
"""Pixels of a side from which a floating array is asked about"""
LARGE = 64
"""Image files of one size and no longer side than this keep it. Longer ones get the stem for 224x224, which computes a quarter
of the positions"""
VALUES, ROWS = 256, 256
"""Different values that columns of one kind have at most, as pixels of eight bits do; and examples to count at a time"""
Given = str | int | Sequence[int] | None


def own_recipe(
    dataset: Dataset,
    place: str,
    loss: str,
    *,
    model: str | None = None,
    size: Given = None,
    noise: str = "none",
    seed: int,
    gpu: bool = True,
) -> Recipe:
    """The default recipe for a user's own data set; ``place`` is what it is opened by.

    features           standardised, MLP 256-256, Adam 2e-3, 100 epochs, batch 128
    images in memory,  ResNet-18, SGD 0.01, momentum 0.9, L2 5e-4, clip 5, crop and flip, 100 epochs, batch 128;
    small image files  fewer than 4,000 with Adam 2e-3 instead of SGD, L2 and clip
    other image files  ResNet-50 for 224x224, SGD 0.1, Nesterov 0.9, L2 3e-5, clip 5, WebVision's augmentation, bf16,
                       100 epochs, batch 64

    all with a cosine schedule and the loss's defaults. Small image files are of one size, of at most 64 pixels; ``size`` says
    another (``"none"`` for 224x224). Floating inputs that look like images are an error without a ``model``, which says what
    they are. Without ``gpu`` float32 replaces bf16: a CPU is faster in it.
    """
    if dataset.train.kind == "files":
        facts = _for_files(dataset, size)
    elif dataset.train.kind == "features":
        _ask_if_images(place, dataset.train.inputs.shape, model)
        facts = {**FEATURES, "standardise": True, "global_scaling": _of_one_kind(dataset.train)}
    else:
        facts = _for_images(dataset.train.inputs.shape[1:3], len(dataset.train))
    if not gpu and facts.get("precision") == "bf16":
        facts["precision"] = "float32"
    recipe = Recipe(dataset=place, loss=loss, noise=noise, seed=seed, **facts)
    return recipe if model is None else override(recipe, {"model": model})


def _of_one_kind(split: Split) -> bool:
    """Whether all columns are of one kind, as pixels are: they share few values, and three quarters span half of the range.

    Then a column that is rarely other than 0 is not to count as much as the others.
    """
    low, high = (edge.astype(np.float64) for edge in (split.inputs.min(0), split.inputs.max(0)))
    spans = (high - low)[high > low]
    if split.channels is not None or spans.size < 2 or np.quantile(spans, 0.25) < (high.max() - low.min()) / 2:
        return False
    values: set[float] = set()
    for start in range(0, len(split), ROWS):
        values.update(np.unique(split.inputs[start : start + ROWS]).tolist())
        if len(values) > VALUES:
            return False
    return True


def _for_files(dataset: Dataset, size: Given) -> dict[str, Any]:
    if size is None:
        chosen = common_size(dataset, at_most=LARGE)
    else:
        chosen = override(Recipe(dataset="", loss="ce"), {"size": size}).size
    return dict(FILES) if chosen is None else _for_images(chosen, len(dataset.train)) | {"size": chosen}


def _for_images(sides: Sequence[int], count: int) -> dict[str, Any]:
    large = {"model_options": {"stem": "imagenet"}} if max(sides) > LARGE else {}
    return IMAGES | large | (ADAM | {"l2": 0.0, "clip": None} if count < FEW else {})


def _ask_if_images(place: str, shape: tuple[int, ...], model: str | None) -> None:
    """An error for floating arrays that look like images, unless the model says what they are."""
    square = len(shape) == 3 and shape[1] == shape[2] >= SIDE
    first = len(shape) == 4 and shape[1] <= 4 and min(shape[2:]) >= SIDE
    last = len(shape) == 4 and shape[3] <= 4 and min(shape[1:3]) >= SIDE and not first
    what = f"{place}: floating inputs {list(shape)}"
    if model is None and (square or first or last):
        raise ValueError(
            f"{what} look like images. If they are, save them as uint8 [N, H, W] or [N, H, W, C], from 0 to 255; or say how "
            "to take them: --model mlp as features, --model resnet18 as images [N, C, H, W] without augmentation"
        )
    if last and model is not None and model != "mlp" and ":" not in model:
        raise ValueError(f"{what}, and {model} reads [N, C, H, W]: transpose(0, 3, 1, 2) puts the channels first")
