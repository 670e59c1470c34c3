"""Comparing on labels that may be wrong: what their accuracy is worth, and its correction for a known noise."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from noiseproof.noise import LabelNoise, clean_accuracy, from_spec
from noiseproof.noise.correction import CleanAccuracy
from noiseproof.train import Recipe, RunOptions, StoredRun, TrainingData, load

__all__ = ["PAGE", "noise_of_test_labels", "on_clean_labels", "said_of_correction", "said_of_labels"]

PAGE = "docs/choosing.md says how often that picks the best loss"


def noise_of_test_labels(text: str | None, recipe: Recipe, task: TrainingData) -> LabelNoise | None:
    """The noise that --test-noise names: a rate, ``kind:rate``, a matrix's file or the folder of an audit."""
    if text is None:
        return None
    if recipe.noise != "none":
        raise ValueError(
            f"--test-noise is for labels as given; with --noise or --labels, here {recipe.noise}, test labels are clean"
        )
    with suppress(ValueError):
        text = f"symmetric:{float(text)}"
    noise = from_spec(text, len(task.classes))
    clean_accuracy(np.zeros(2, np.int64), np.zeros(2, np.int64), noise)  # an error now for a matrix that has no inverse
    return noise


def on_clean_labels(
    run: StoredRun, recipe: Recipe, task: TrainingData, noise: LabelNoise, options: RunOptions
) -> CleanAccuracy:
    """The accuracy on clean labels of a finished run, from its predictions of the test split and the labels there."""
    if run.folder is None or task.test is None:
        raise ValueError("a run without a folder, or data without a test split, has nothing to correct")
    trained = load(run.folder, device=options.device, model=recipe.model if ":" in recipe.model else None)
    seen, predicted = [], []
    for indices, logits in trained.batches(task.test, workers=options.workers, skip_corrupt=options.skip_corrupt):
        seen.append(indices)
        predicted.append(logits.argmax(1).cpu().numpy())
    return clean_accuracy(np.concatenate(predicted), task.test.labels[np.concatenate(seen)], noise)


def said_of_labels(recipe: Recipe, task: TrainingData) -> list[str]:
    """A note where the labels that losses are tested on were held out as they were given."""
    if not recipe.test_size or task.clean is not None or task.test is None:
        return []
    n = len(task.test)
    return [
        f"tested on {n} held-out labels as given, the same for all seeds: wrong ones count against every loss, so the order "
        f"says more than the numbers; the standard error of an accuracy on {n} labels is up to {50 / n**0.5:.1f} points; "
        f"{PAGE}; where the noise is known, --test-noise corrects for it"
    ]


def said_of_correction(text: str, errors: list[float]) -> list[str]:
    typical = f"{100 * float(np.median(errors)):.1f} points" if errors else "not known"
    return [
        f"corrected for {text}: an estimate of the accuracy on clean labels, right on average if the noise depends on the "
        f"class alone; its standard error is {typical} a run, from labels that are the same for all losses; {PAGE}"
    ]
