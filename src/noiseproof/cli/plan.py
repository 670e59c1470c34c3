"""From the arguments of ``noiseproof train`` to a recipe, its data and a folder."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from noiseproof import paper
from noiseproof.data import open_dataset
from noiseproof.io.files import is_file
from noiseproof.losses import find_loss
from noiseproof.train import Recipe, RunStore, TrainingData, override, own_recipe, prepare, resolve_auto, with_noise
from noiseproof.train.network import check_model
from noiseproof.train.record import task_facts

__all__ = ["Plan", "changes_from", "device_named", "means_gpu", "noise_from", "plan_run"]

ELSEWHERE = {"dataset": "RECIPE or --data says it", "noise": "give --noise", "seed": "give --seed"}
"""Fields that have their own option, which does more than set them"""


@dataclass
class Plan:
    """What is to be run and where its files go; the data if they had to be opened for that."""

    recipe: Recipe
    store: RunStore
    data: str | None
    task: TrainingData | None = None

    def __post_init__(self) -> None:
        self.folder = self.store.folder_for(self.recipe)

    def opened(self) -> TrainingData:
        """The data, opened if they are not yet; with them the run is found under whatever name it has."""
        self.task = self.task or prepare(self.recipe, self.data)
        self.folder = self.store.folder_for(self.recipe, task_facts(self.recipe, self.task))
        return self.task


def plan_run(
    name: str, noise: str, seed: int, data: str | None, changes: dict[str, Any], profile: str, out: Path, gpu: bool
) -> Plan:
    """The recipe that the arguments mean; for data of one's own it depends on whether there is a GPU."""
    dataset = None
    if "/" in name:
        recipe = paper.recipe(name, noise=noise, seed=seed, profile=profile)
        if data is not None and is_file(Path(data).expanduser()):
            raise ValueError(
                f"{data}: with DATASET/LOSS, --data is the folder of data sets; for data of your own give the loss alone: "
                f"noiseproof train {recipe.loss} --data {data}"
            )
    elif data is None:
        raise ValueError(
            f"RECIPE must be DATASET/LOSS, such as cifar10/jal-ce, or a loss together with --data PLACE, got {name!r}"
        )
    elif profile != paper.PROFILES[0]:
        raise ValueError(f"--profile is for the paper's recipes, DATASET/LOSS, got {profile!r} with {name!r}")
    elif "," in name:
        raise ValueError(f"one loss is trained, got {name!r}; 'noiseproof compare {name} --data {data}' compares several")
    else:
        loss = find_loss(name).name
        dataset = open_dataset(data)
        chosen = {name: changes.get(name) for name in ("model", "size")}  # other defaults depend on them
        recipe = own_recipe(dataset, data, loss, noise=noise, seed=seed, gpu=gpu, **chosen)
    recipe = override(recipe, changes)
    if ":" in recipe.model:
        sys.path.insert(0, os.getcwd())  # where a user's own module usually is
    task = None if dataset is None else with_noise(dataset, recipe)
    if recipe.has_auto:
        task = task or prepare(recipe, data)
        recipe = resolve_auto(recipe, task)
    plan = Plan(recipe, RunStore(out), data, task)
    check_model(recipe, plan.task)
    return plan


def noise_from(noise: str, labels: str | None) -> str:
    if labels is None:
        return noise
    if noise != "none":
        raise ValueError(f"--labels and --noise both say which labels to train on, got {labels!r} and {noise!r}")
    return f"labels:{os.path.abspath(os.path.expanduser(labels))}"


def changes_from(texts: list[str], model: str | None, test_size: float | None) -> dict[str, Any]:
    """What --set, --model and --test-size change in the recipe."""
    changes: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"--set takes KEY=VALUE, such as lr=0.02, got {text!r}")
        key = key.strip()
        if key in ELSEWHERE:
            raise ValueError(f"--set does not take {key}: {ELSEWHERE[key]}")
        changes[key] = value.strip()
    given = {"model": model, "test_size": test_size}
    return changes | {key: value for key, value in given.items() if value is not None}


def means_gpu(device: str) -> bool:
    """Whether --device asks for a GPU, even if there is none."""
    return device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())


def device_named(text: str) -> torch.device:
    if text == "auto":
        return torch.device("cuda" if means_gpu(text) else "cpu")
    try:
        device = torch.device(text)
    except RuntimeError:
        raise ValueError(f"--device must be auto, cpu, cuda or cuda:NUMBER, got {text!r}") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"--device {text}: torch sees {torch.cuda.device_count()} CUDA devices here; use cpu or auto")
    return device
