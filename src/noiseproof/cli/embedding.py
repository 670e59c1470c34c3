"""The features of a run's network in the plane, by t-SNE."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from noiseproof.io.files import is_file
from noiseproof.io.text import excerpt
from noiseproof.models.base import Classifier
from noiseproof.paper.page import Embedding
from noiseproof.report.folders import RECORD, WEIGHTS
from noiseproof.train import Recipe, load, prepare
from noiseproof.train.plan import device_named

__all__ = ["embedding_of"]

SHOWN = 2000
"""Test examples: all of CIFAR's take minutes and hide each other."""


def embedding_of(folder: Path, data: str | Path | None) -> Embedding:
    """The test examples of a run in the plane, from what its network has before the last layer."""
    from sklearn.manifold import TSNE

    if not is_file(folder / RECORD) or not is_file(folder / WEIGHTS):
        raise FileNotFoundError(f"{folder} is not the folder of a finished run: it lacks {RECORD} or {WEIGHTS}")
    trained = load(folder, device_named("auto"))  # which runs no code that the folder names, and checks what it says
    try:
        recipe = Recipe.from_dict({} if trained.record is None else trained.record.recipe)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{folder / RECORD}: its recipe is not one of this version: {excerpt(error, 200)}") from error
    test, network = prepare(recipe, data).test, trained.network
    if test is None or not isinstance(network, Classifier):
        raise ValueError(f"{folder}: t-SNE needs a test split and a network of the catalogue")
    found = []
    with torch.no_grad():
        for batch in trained.preprocessing.batches(test, trained.device):
            found.append((network.penultimate(batch.inputs).float().cpu().numpy(), batch.labels.cpu().numpy()))
    features, labels = (np.concatenate(parts) for parts in zip(*found, strict=True))
    chosen = np.random.default_rng(0).permutation(len(labels))[:SHOWN]
    points = TSNE(random_state=0).fit_transform(features[chosen])
    return Embedding(f"{recipe.dataset}, {recipe.noise}, {recipe.loss}", points, labels[chosen])
