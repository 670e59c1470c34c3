"""What is to be run: the default recipe for data of your own, a recipe with changes, its data and the folder of its files."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import torch

from noiseproof.data import Dataset, Split, common_size, open_dataset
from noiseproof.data.opening import DataOptions
from noiseproof.data.table_encoder import of_one_embedding, of_one_kind
from noiseproof.losses import find_loss
from noiseproof.theory.choice import AUTO
from noiseproof.train.network import check_model
from noiseproof.train.recipe import Recipe, override
from noiseproof.train.record import task_facts
from noiseproof.train.runs import RunStore
from noiseproof.train.training_data import TrainingData, prepare, resolve_auto, with_noise

SHARED_DEFAULTS: dict[str, Any] = {"schedule": "cosine", "epochs": 100}
SGD_DEFAULTS: dict[str, Any] = {**SHARED_DEFAULTS, "optimiser": "sgd", "lr": 0.1, "momentum": 0.9, "clip": 5.0}
ADAM_DEFAULTS: dict[str, Any] = {"optimiser": "adam", "lr": 2e-3}
FEATURE_DEFAULTS: dict[str, Any] = {
    **SHARED_DEFAULTS,
    **ADAM_DEFAULTS,
    "model": "mlp",
    "model_options": {"hidden": [256, 256]},
    "batch": 128,
}
"""For features; also those of the digits."""
IMAGE_DEFAULTS: dict[str, Any] = {
    **SGD_DEFAULTS,
    "model": "resnet18",
    "lr": 0.01,  # the paper's for CIFAR-10; at 0.1 JAL never predicts some classes of small data sets: docs/how_to/own_data.md
    "l2": 5e-4,
    "augment": "crop-flip",
    "batch": 128,
    "precision": "tf32",
}
"""For images in memory."""
IMAGE_FILE_DEFAULTS: dict[str, Any] = {
    **SGD_DEFAULTS,  # not WebVision's schedule of 0.97 per epoch, which needs 250 epochs
    "model": "resnet50",
    "model_options": {"stem": "imagenet", "zero_init_residual": True},
    "batch": 64,  # WebVision's ratio of learning rate and batch, 0.4 to 256
    "nesterov": True,
    "l2": 3e-5,
    "augment": "webvision",
    "precision": "bf16",
}
"""For image files: WebVision's setting, with a schedule for any number of epochs."""
MIN_IMAGES_FOR_SGD = 4000
"""Fewer images are trained by Adam: in the few steps of 100 epochs SGD leaves JAL with classes that it never predicts"""
MIN_IMAGE_SIDE = 8
"""Pixels of a side from which a floating array is asked about"""
MAX_SMALL_SIDE = 64
"""Image files of one size and no longer side than this keep it. Longer ones get the stem for 224x224, which computes a quarter
of the positions"""
SMALL_NETWORK, THUMBNAIL_SIZE = "cnn5", (32, 32)
SMALL_NETWORK_SETTINGS: dict[str, Any] = {**ADAM_DEFAULTS, "nesterov": False, "l1": 0.0, "l2": 0.0, "clip": None}
SMALL_NETWORK_IMAGES, SMALL_NETWORK_EPOCHS = 300_000, (10, 100)
"""How images are learnt without a GPU: how many images a network sees in all its epochs, and the fewest and most of these"""
NO_GPU = f"no GPU: the images are learnt by a small network, {SMALL_NETWORK}; --model names another"
SizeOption = str | int | Sequence[int] | None


def own_recipe(
    dataset: Dataset,
    place: str,
    loss: str,
    *,
    model: str | None = None,
    size: SizeOption = None,
    noise: str = "none",
    seed: int,
    gpu: bool = True,
    test_size: float = 0.0,
) -> Recipe:
    """The default recipe for data of your own, with a cosine schedule and the defaults of the loss.

    features           standardised, unless the encoder of a table has scaled them, all columns together where they are
                       pixels or an embedding; MLP 256-256, Adam 2e-3, 100 epochs, batch 128
    images in memory,  ResNet-18, SGD 0.01, momentum 0.9, L2 5e-4, clip 5, crop and flip, 100 epochs, batch 128;
    small image files  fewer than 4,000 with Adam 2e-3 instead of SGD, L2 and clip
    other image files  ResNet-50 for 224x224, SGD 0.1, Nesterov 0.9, L2 3e-5, clip 5, WebVision's augmentation, bf16,
                       100 epochs, batch 64
    without a GPU      images of any kind: CNN5 at about 32x32, Adam 2e-3, 10 to 100 epochs, 300,000 images in all

    Args:
        dataset: The data, as :func:`noiseproof.data.open_dataset` opens them.
        place: What they are opened by.
        loss: A name of the catalogue.
        model: Another network than the default one.
        size: Pixels that image files are resized to; ``"none"`` is 224x224. By default files of one size, of at most 64
            pixels, keep it, and others have 224x224.
        noise: What to put on the labels, such as ``symmetric:0.4``.
        seed: Of the noise, the initial weights and the order of the examples.
        test_size: The share of the examples that will be held out; how many are left decides the optimiser for images.
        gpu: Whether it is for a GPU; without, images are learnt by a small network, unless ``model`` names one, and float32
            replaces bf16, in which a CPU is slower.

    Returns:
        The recipe.

    Raises:
        ValueError: Floating inputs look like images, and no ``model`` says whether they are.

    >>> from noiseproof.data import open_dataset
    >>> recipe = own_recipe(open_dataset("digits"), "digits", "jal-ce", seed=0)
    >>> recipe.model, recipe.optimiser, recipe.standardise
    ('mlp', 'adam', True)
    """
    count = round((1 - test_size) * len(dataset.train))
    if not gpu and model is None and dataset.train.kind != "features":
        if dataset.train.kind == "files" and size is None and common_size(dataset, at_most=MAX_SMALL_SIDE) is None:
            size = THUMBNAIL_SIZE
        named: dict[str, Any] = {"model": SMALL_NETWORK, "size": size, "noise": noise, "seed": seed, "test_size": test_size}
        epochs = min(max(SMALL_NETWORK_IMAGES // max(count, 1), SMALL_NETWORK_EPOCHS[0]), SMALL_NETWORK_EPOCHS[1])
        recipe = override(own_recipe(dataset, place, loss, gpu=gpu, **named), SMALL_NETWORK_SETTINGS | {"epochs": epochs})
        return dataclasses.replace(recipe, why=(NO_GPU,))
    if dataset.train.kind == "files":
        facts = _for_files(dataset, size, count)
    elif dataset.train.kind == "features":
        _ask_if_images(place, dataset.train.inputs.shape, model)
        scaling = {"standardise": not dataset.train.scaled, "global_scaling": _is_of_one_kind(dataset.train)}
        facts = {**FEATURE_DEFAULTS, **scaling}
    else:
        facts = _for_images(dataset.train.inputs.shape[1:3], count)
    if not gpu and facts.get("precision") == "bf16":
        facts["precision"] = "float32"
    recipe = Recipe(dataset=place, loss=loss, noise=noise, seed=seed, **facts)
    return recipe if model is None else override(recipe, {"model": model})


def _is_of_one_kind(split: Split) -> bool:
    if split.channels is not None or split.scaled:
        return False
    columns = split.inputs.reshape(len(split), -1)
    return of_one_kind(columns) or of_one_embedding(columns)


def _for_files(dataset: Dataset, size: SizeOption, count: int) -> dict[str, Any]:
    if size is None:
        chosen = common_size(dataset, at_most=MAX_SMALL_SIDE)
    else:
        chosen = override(Recipe(dataset="", loss="ce"), {"size": size}).size
    return dict(IMAGE_FILE_DEFAULTS) if chosen is None else _for_images(chosen, count) | {"size": chosen}


def _for_images(sides: Sequence[int], count: int) -> dict[str, Any]:
    large = {"model_options": {"stem": "imagenet"}} if max(sides) > MAX_SMALL_SIDE else {}
    return IMAGE_DEFAULTS | large | (ADAM_DEFAULTS | {"l2": 0.0, "clip": None} if count < MIN_IMAGES_FOR_SGD else {})


def _ask_if_images(place: str, shape: tuple[int, ...], model: str | None) -> None:
    """An error for floating arrays that look like images, unless the model says what they are."""
    square = len(shape) == 3 and shape[1] == shape[2] >= MIN_IMAGE_SIDE
    first = len(shape) == 4 and shape[1] <= 4 and min(shape[2:]) >= MIN_IMAGE_SIDE
    last = len(shape) == 4 and shape[3] <= 4 and min(shape[1:3]) >= MIN_IMAGE_SIDE and not first
    what = f"{place}: floating inputs {list(shape)}"
    if model is None and (square or first or last):
        raise ValueError(
            f"{what} look like images. If they are, save them as uint8 [N, H, W] or [N, H, W, C], from 0 to 255; or say how "
            "to take them: --model mlp as features, --model resnet18 as images [N, C, H, W] without augmentation"
        )
    if last and model is not None and model != "mlp" and ":" not in model:
        raise ValueError(f"{what}, and {model} reads [N, C, H, W]: transpose(0, 3, 1, 2) puts the channels first")


@dataclass
class RunPlan:
    """A recipe, its data and where its files go; :func:`plan_run` makes one.

    Args:
        recipe: What is trained.
        store: The runs among which its folder is.
        data: The folder of data sets, or the place of the user's own data.
        opened: The data, once they are opened.

    >>> RunPlan(Recipe(dataset="digits", loss="ce"), RunStore("runs")).training_data().name
    'digits'
    """

    recipe: Recipe
    store: RunStore
    data: str | None = None
    opened: TrainingData | None = None

    def __post_init__(self) -> None:
        self.folder = self.store.folder_for(self.recipe)

    def training_data(self) -> TrainingData:
        """The data, opened if they are not yet; with them the run is found in the store under whatever name it has.

        Returns:
            The data of the recipe; ``folder`` is then where the run is or will be.
        """
        self.opened = self.opened or prepare(self.recipe, self.data)
        self.folder = self.store.folder_for(self.recipe, task_facts(self.recipe, self.opened))
        return self.opened


def plan_run(
    recipe: Recipe | str,
    *,
    data: Any = None,
    changes: Mapping[str, Any] | None = None,
    noise: str = "none",
    seed: int = 123,
    runs: str | Path = "runs",
    gpu: bool = False,
    **reading: Unpack[DataOptions],
) -> RunPlan:
    """A recipe with changes, checked with its data as far as that is possible without training.

    Further keyword arguments say how a table is read, ``label="churn"`` say: see :func:`noiseproof.data.open_dataset`.

    Args:
        recipe: The recipe, or the name of a loss to train on your own data: by :func:`own_recipe`, with the class weights that
            the loss and the labels need.
        data: With a recipe the folder of data sets; with a loss your own data, a place or a data frame.
        changes: Fields of the recipe to change, as :func:`noiseproof.train.override` takes them.
        noise: With a loss, what to put on the labels.
        seed: With a loss, the seed.
        runs: The folder of runs.
        gpu: With a loss, whether the recipe is for a GPU.

    Returns:
        The plan, whose ``recipe`` has no ``auto`` left.

    Raises:
        ValueError: The recipe, its changes, its model or its data do not go together.

    >>> plan = plan_run(Recipe(dataset="digits", loss="ce"), changes={"epochs": "3"})
    >>> plan.recipe.epochs, plan.folder.name
    (3, 'digits_ce_none_seed0_c3a266dd')
    """
    changes, dataset = dict(changes or {}), None
    if isinstance(recipe, str):
        if data is None:
            raise ValueError(f"a loss alone is trained on data of your own: data=PLACE, got {recipe!r} without")
        loss = find_loss(recipe).name
        dataset = open_dataset(data, **reading)
        chosen = defining(changes)
        in_file = isinstance(data, str | os.PathLike)
        place = os.fspath(data) if in_file else dataset.name
        recipe = own_recipe(dataset, place, loss, noise=noise, seed=seed, gpu=gpu, **chosen)
        recipe = override(recipe, {"class_weight": AUTO, **({"data_options": reading} if in_file else {})})
    elif reading:
        raise ValueError(f"{next(iter(reading))} says how a table of your own is read, and {recipe.dataset} has a recipe")
    recipe = override(recipe, changes)
    opened = None if dataset is None else with_noise(dataset, recipe)
    if recipe.has_auto:
        opened = opened or prepare(recipe, data)
        recipe = resolve_auto(recipe, opened)
    plan = RunPlan(recipe, RunStore(runs), data if isinstance(data, str) else None, opened)
    check_model(recipe, opened)
    return plan


def defining(changes: Mapping[str, Any]) -> dict[str, Any]:
    """The changes to a recipe that other defaults of :func:`own_recipe` depend on."""
    held_out = override(Recipe(dataset="", loss="ce"), {"test_size": changes.get("test_size", 0.0)}).test_size
    return {"model": changes.get("model"), "size": changes.get("size"), "test_size": held_out}


def prefers_gpu(device: str) -> bool:
    """Whether a device's name stands for a GPU, even if there is none.

    Args:
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:NUMBER``.

    Returns:
        True for CUDA devices, and for ``auto`` where torch sees one.

    >>> prefers_gpu("cpu"), prefers_gpu("cuda:1")
    (False, True)
    """
    return device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())


def device_named(text: str) -> torch.device:
    """The device of a name, checked.

    Args:
        text: ``auto``, ``cpu``, ``cuda`` or ``cuda:NUMBER``.

    Returns:
        The device; for ``auto`` the GPU if there is one.

    Raises:
        ValueError: It is no device, or torch does not see it.

    >>> device_named("cpu")
    device(type='cpu')
    """
    if text == "auto":
        return torch.device("cuda" if prefers_gpu(text) else "cpu")
    try:
        device = torch.device(text)
    except RuntimeError:
        raise ValueError(f"--device must be auto, cpu, cuda or cuda:NUMBER, got {text!r}") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"--device {text}: torch sees {torch.cuda.device_count()} CUDA devices here; use cpu or auto")
    return device
