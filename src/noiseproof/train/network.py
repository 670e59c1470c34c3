"""The network of a recipe, from the catalogue or from the user's own code, initialised from the recipe's seed."""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from noiseproof.data import Examples
from noiseproof.losses import find_loss
from noiseproof.models import create_model, find_model, list_models, load_weights
from noiseproof.models.base import Classifier
from noiseproof.plugins import named_object
from noiseproof.train.recipe import Recipe
from noiseproof.train.training_data import TrainingData, weights_file

_drawing = threading.RLock()


@contextmanager
def drawing_from(seed: int) -> Iterator[None]:
    """Seed torch's CPU generator and restore it afterwards. All threads share it, so one network is initialised at a time."""
    with _drawing, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def nothing_drawn() -> AbstractContextManager[object]:
    """No network is initialised meanwhile: compiling saves and restores torch's generator, whoever is using it."""
    return _drawing


def build_network(recipe: Recipe, task: TrainingData) -> nn.Module:
    """The network on the CPU, initialised from the seed or from the recipe's file; torch's generator is left as it was."""
    with drawing_from(recipe.seed):
        network = user_model(recipe, len(task.classes)) if ":" in recipe.model else _from_catalogue(recipe, task)
        if recipe.weights is not None:
            _start_from(network, recipe.weights, task.root)
    return network


def _from_catalogue(recipe: Recipe, task: TrainingData) -> nn.Module:
    return create_model(recipe.model, len(task.classes), **_catalogue_options(recipe, task.train))


def _catalogue_options(recipe: Recipe, split: Examples) -> dict[str, Any]:
    """The recipe's, and those that follow from the inputs."""
    options: dict[str, Any] = dict(recipe.model_options)
    model = find_model(recipe.model)
    if model == "mlp":
        if not split.in_memory:
            raise ValueError(
                "mlp reads features; these inputs are image files: use resnet18, resnet34 or resnet50, or set a small size=32"
            )
        options.setdefault("in_features", int(split.inputs[0].size))
    elif split.channels is not None:
        options.setdefault("in_channels", split.channels)
        if model == "cnn8":
            options.setdefault("size", _sides(recipe, split))
    elif split.in_memory:
        raise ValueError(f"{model} reads images [N, C, H, W]; these inputs are features {split.inputs.shape[1:]}: use mlp")
    return options


def model_facts(recipe: Recipe, task: TrainingData) -> dict[str, Any]:
    """The model's name and all its options, with which it is built again without the data."""
    options = dict(recipe.model_options) if ":" in recipe.model else _catalogue_options(recipe, task.train)
    return {"model": recipe.model, "model_options": options}


def _sides(recipe: Recipe, split: Examples) -> tuple[int, int]:
    """Height and width of the images that the network gets."""
    if recipe.augment in ("webvision", "clothing1m") or not split.in_memory:
        if recipe.size is None:
            raise ValueError("cnn8 takes images of 28 to 64 pixels, and these are made 224x224: set size=32, or use resnet18")
        return recipe.size
    return split.sides or (0, 0)


def model_code_hash(recipe: Recipe) -> str | None:
    """The hash of the module of a user's own model, not of those it imports, without comments and layout; None if unknown."""
    if ":" not in recipe.model:
        return None
    function = _user_function(recipe)
    # A function may be defined in another module than the one it was named in; other objects do not say where.
    defined = inspect.isfunction(function) or inspect.isclass(function)
    return _module_hash(function.__module__ if defined else recipe.model.partition(":")[0])


def loss_code_hash(recipe: Recipe) -> str | None:
    """The same for a user's own loss."""
    return _module_hash(find_loss(recipe.loss).cls.__module__) if ":" in recipe.loss else None


def _module_hash(name: str) -> str | None:
    try:
        source = inspect.getsource(sys.modules[name])
        return hashlib.sha256(ast.unparse(ast.parse(source)).encode()).hexdigest()
    except (KeyError, OSError, TypeError, SyntaxError):
        return None


def _user_function(recipe: Recipe) -> Callable[..., Any]:
    function: Callable[..., Any] = named_object(recipe.model, "model", "model must be package.module:function")
    if not callable(function):
        raise TypeError(f"model {recipe.model!r} must be a function of the number of classes, got {type(function).__name__}")
    return function


def check_model(recipe: Recipe, task: TrainingData | None = None) -> None:
    """An error if the recipe's model has no such options, or cannot be imported. No memory is taken for its weights.

    Without a task the options are checked for ten classes of small images; a model of one's own is not called.
    """
    if ":" in recipe.model:
        _bound(_user_function(recipe), recipe, 10)
        return
    with torch.device("meta"), nothing_drawn():
        if task is not None:
            _from_catalogue(recipe, task)
            return
        sizes = {"in_features": 64} if find_model(recipe.model) == "mlp" else {}
        create_model(recipe.model, 10, **{**sizes, **recipe.model_options})


def _bound(function: Callable[..., Any], recipe: Recipe, classes: int) -> None:
    try:
        inspect.signature(function).bind(classes, **recipe.model_options)
    except TypeError as error:
        raise TypeError(
            f"model {recipe.model!r} must be a function of the number of classes and of its options: {error}"
        ) from error
    except ValueError:  # a callable that does not say what it takes
        return


def user_model(recipe: Recipe, classes: int) -> nn.Module:
    """The network of a recipe whose model is the user's own function."""
    function = _user_function(recipe)
    _bound(function, recipe, classes)
    network = function(classes, **recipe.model_options)
    if not isinstance(network, nn.Module):
        raise TypeError(
            f"model {recipe.model!r} must return a torch module, got {type(network).__name__}; built in are {list_models()}"
        )
    return network


def _start_from(network: nn.Module, file: str, root: Path | None) -> None:
    if not isinstance(network, Classifier):
        raise ValueError("weights are read for the catalogue's models; a function of your own can load its own")
    path = weights_file(file, root)
    try:
        load_weights(network, path)
    except ValueError as error:
        if "skip_head" not in str(error):
            if getattr(network, "in_channels", 3) == 1 and "of shape" in str(error):
                raise ValueError(f"{error}; for weights of colour images set model.in_channels=3") from error
            raise
        load_weights(network, path, skip_head=True)


def logits_of(network: nn.Module, inputs: Tensor, classes: int) -> Tensor:
    """The network's logits; a TypeError with the shapes if its output is something else."""
    output = network(inputs)
    if not isinstance(output, Tensor) or output.shape != (len(inputs), classes):
        shape = list(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise TypeError(f"the model must return logits [{len(inputs)}, {classes}], got {shape} for inputs {list(inputs.shape)}")
    return output
