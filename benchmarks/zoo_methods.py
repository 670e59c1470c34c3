"""What a person would do with noisy labels: the methods that benchmarks/zoo.py compares.

A predictor is a function of training columns, given labels and new columns; a judge also says which labels are wrong. Columns
are on one scale or standardised before, and are passed on as they are; networks are the package's, by ``own_recipe`` without a
second standardisation (MLP 256-256, Adam 2e-3, cosine, 100 epochs, batch 128).
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

import noiseproof
from noiseproof import audit_labels, paper
from noiseproof.data import Dataset, Split, from_arrays, held_out
from noiseproof.train import Recipe, RunOptions, own_recipe, with_noise
from noiseproof.train.engine import precision_of
from noiseproof.train.run import start_run

__all__ = ["JUDGES", "METHODS", "PREDICTORS", "Answer", "Problem", "cross_validated"]

FOLDS = 5
C_GRID = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
VALIDATION, PATIENCE = 0.2, 20
"""Of early stopping: the share of the given labels that is held out, and epochs without a smaller loss"""
Floats = NDArray[np.floating[Any]]
Labels = NDArray[np.int64]


class Problem(NamedTuple):
    """One cell's data: what a person has, and what only the benchmark knows."""

    x: NDArray[np.float32]
    given: Labels
    clean: Labels
    x_test: NDArray[np.float32]
    y_test: Labels
    classes: int
    seed: int


class Estimate(NamedTuple):
    """A number that a method says of itself, with its 95 % interval if there is one."""

    value: float
    low: float | None = None
    high: float | None = None


class Answer(NamedTuple):
    """What a method makes of a problem. A rule is named by the metric that its predictions are for."""

    p: Floats
    """Probabilities on the test rows"""
    predicted: dict[str, Labels] | None = None
    """By rule; argmax p and argmax p / frequency of the given labels if there is none"""
    p_wrong: Floats | None = None
    flagged: NDArray[np.bool_] | None = None
    rate: Estimate | None = None
    estimates: dict[str, Estimate] = {}  # noqa: RUF012 - not changed
    """Of the first rule on correct labels, by metric"""


class Classifier(Protocol):
    """What scikit-learn's classifiers are."""

    classes_: NDArray[Any]

    def fit(self, x: Any, y: Any) -> Any: ...
    def predict_proba(self, x: Any) -> Any: ...


Predictor = Callable[[Floats, Labels, Floats, int, int], Floats]
Judge = Callable[[Problem], Answer]


def logistic_model(seed: int, c: float = 1.0) -> Classifier:
    model: Classifier = LogisticRegression(C=c, max_iter=500, random_state=seed)
    return model


class EarlyStoppedBoosting(HistGradientBoostingClassifier):  # type: ignore[misc]  # scikit-learn has no annotations
    """Stopped early on a tenth of the given labels; a class with one example, which scikit-learn refuses, has it twice."""

    def fit(self, X: Floats, y: NDArray[Any]) -> EarlyStoppedBoosting:  # noqa: N803 - scikit-learn's
        there, counts = np.unique(y, return_counts=True)
        rows = np.concatenate([np.arange(len(y)), np.flatnonzero(np.isin(y, there[counts == 1]))])
        super().fit(X[rows], y[rows])
        return self


def boosting_model(seed: int) -> Classifier:
    model: Classifier = EarlyStoppedBoosting(early_stopping=True, random_state=seed)
    return model


def by_model(make: Callable[[int], Classifier]) -> Predictor:
    """The predictor of one of scikit-learn's classifiers."""

    def predict(x: Floats, y: Labels, new: Floats, classes: int, seed: int) -> Floats:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = make(seed).fit(x, y)
        return widened(model.predict_proba(new), model.classes_, classes)

    return predict


def by_forest(leaf: int) -> Predictor:
    return by_model(lambda seed: RandomForestClassifier(100, min_samples_leaf=leaf, random_state=seed))


def widened(p: Floats, there: NDArray[Any], classes: int) -> Floats:
    """Columns of 0 for the classes that were not in the training labels."""
    full = np.zeros((len(p), classes))
    full[:, there.astype(np.int64)] = p
    return full


def folds_of(y: Labels, seed: int) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    """Kept and held rows of each fold. Classes with fewer examples than folds are in fewer folds."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The least populated class")
        return list(StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(y, y))


def cross_validated(predict: Predictor, x: Floats, y: Labels, classes: int, seed: int) -> Floats:
    """Probabilities out of fold."""
    p = np.zeros((len(x), classes))
    for kept, held in folds_of(y, seed):
        p[held] = predict(x[kept], y[kept], x[held], classes, seed)
    return p


def logistic_cv(x: Floats, y: Labels, new: Floats, classes: int, seed: int) -> Floats:
    """Logistic regression, C with the greatest likelihood of the given labels out of fold."""
    rows = np.arange(len(y))

    def likelihood(c: float) -> float:
        p = cross_validated(by_model(lambda seed: logistic_model(seed, c)), x, y, classes, seed)
        return float(np.log(np.maximum(p[rows, y], 1e-12)).sum())

    best = max(C_GRID, key=likelihood)
    return by_model(lambda seed: logistic_model(seed, best))(x, y, new, classes, seed)


def by_network(loss: str, stop: bool = False, linear: bool = False, published: bool = False) -> Predictor:
    """The package's MLP with a loss; ``stop``: that of the epoch with the least cross entropy on held-out given labels.

    ``linear`` is a network without hidden layers; ``published`` are the paper's options of the loss for CIFAR-10 or -100.
    """

    def predict(x: Floats, y: Labels, new: Floats, classes: int, seed: int) -> Floats:
        there, y = np.unique(y, return_inverse=True)
        mask = held_out(y, VALIDATION) if stop else np.zeros(len(y), bool)
        dataset = from_arrays(x[~mask], y[~mask], name="features", classes=tuple(map(str, there)))
        recipe = own_recipe(dataset, "features", loss, seed=seed, gpu=False)
        recipe = dataclasses.replace(recipe, standardise=False, global_scaling=False)
        if linear:
            recipe = dataclasses.replace(recipe, model_options={**recipe.model_options, "hidden": []})
        if published:
            recipe = dataclasses.replace(recipe, loss_options=paper.recipe(f"cifar{classes}/{loss}").loss_options)
        wanted = Split(new.astype(np.float32), np.zeros(len(new), np.int64))
        validation = Split(x[mask].astype(np.float32), y[mask]) if stop else None
        return widened(trained_probabilities(recipe, dataset, wanted, validation), there, classes)

    return predict


def trained_probabilities(recipe: Recipe, dataset: Dataset, wanted: Split, validation: Split | None) -> Floats:
    """Of a network after its last epoch, or that of the epoch with the least cross entropy on the validation labels."""
    with precision_of(recipe, False):
        run = start_run(recipe, with_noise(dataset, recipe), RunOptions(torch.device("cpu")))
        least, since = np.inf, 0
        found: Floats = np.zeros((len(wanted), len(dataset.classes)))
        for epoch in range(recipe.epochs):
            run.train_epoch(epoch)
            if validation is not None:
                now, since = held_out_loss(run.probabilities(validation), validation.labels), since + 1
                if now < least:
                    least, since, found = now, 0, run.probabilities(wanted)
                if since >= PATIENCE:
                    break
        if validation is None:
            found = run.probabilities(wanted)
        run.close()
    return found


def held_out_loss(p: Floats, y: Labels) -> float:
    return float(-np.log(np.maximum(p[np.arange(len(y)), y], 1e-12)).mean())


def cleanlab_with(make: Callable[[int], Classifier]) -> Judge:
    """cleanlab's CleanLearning: flagged rows are dropped and the classifier is trained again."""

    def judge(problem: Problem) -> Answer:
        from cleanlab.classification import CleanLearning
        from cleanlab.count import estimate_joint

        there, y = np.unique(problem.given, return_inverse=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            learning = CleanLearning(make(problem.seed), seed=problem.seed, cv_n_folds=FOLDS)
            learning.fit(problem.x, y)
            joint = estimate_joint(y, None, confident_joint=learning.confident_joint)
        issues = learning.get_label_issues()
        p = widened(learning.predict_proba(problem.x_test), there[learning.clf.classes_], problem.classes)
        return Answer(
            p,
            p_wrong=1 - issues["label_quality"].to_numpy(),
            flagged=issues["is_label_issue"].to_numpy(),
            rate=Estimate(float(1 - np.trace(joint))),
        )

    return judge


def audit_then_drop(problem: Problem) -> Answer:
    """The package's audit; rows that it flags are dropped, and the network is trained on the others."""
    there, y = np.unique(problem.given, return_inverse=True)
    found = audit_labels(problem.x, y, seed=problem.seed, device="cpu")
    kept = ~found.flagged
    p = by_network("ce")(problem.x[kept], there[y[kept]], problem.x_test, problem.classes, problem.seed)
    return Answer(p, p_wrong=found.p_wrong, flagged=found.flagged, rate=Estimate(found.rate, *found.rate_interval))


def fitted(quick: bool) -> Judge:
    """``noiseproof.fit`` with its defaults, one task at a time: all of its work is counted."""

    def judge(problem: Problem) -> Answer:
        there, y = np.unique(problem.given, return_inverse=True)
        model = noiseproof.fit(problem.x, y, quick=quick, seed=problem.seed, jobs=1)
        p = model.predict_proba(problem.x_test)
        line = model.verdict.model
        estimates = {"accuracy": line.accuracy, "balanced_accuracy": line.balanced_accuracy, "auc": line.auc}
        return Answer(
            widened(p, there, problem.classes),
            {metric: there[model.decide(p, metric)] for metric in ("accuracy", "balanced_accuracy")},
            p_wrong=model.audit.p_wrong,
            flagged=model.audit.flagged,
            rate=Estimate(model.audit.rate, *model.audit.rate_interval),
            estimates={metric: Estimate(*found) for metric, found in estimates.items() if found is not None},
        )

    return judge


PREDICTORS: dict[str, Predictor] = {
    "logistic": by_model(logistic_model),
    "forest-1": by_forest(1),
    "forest-10": by_forest(10),
    "ce": by_network("ce"),
    "ce-early": by_network("ce", stop=True),
    "boosting": by_model(boosting_model),
    "logistic-cv": logistic_cv,
    "jal-ce": by_network("jal-ce"),
    "gce": by_network("gce"),
}
"""What predicts and says nothing of the labels, the cheap ones first"""
JUDGES: dict[str, Judge] = {
    "cleanlab-logistic": cleanlab_with(logistic_model),
    "cleanlab-boosting": cleanlab_with(boosting_model),
    "audit-drop": audit_then_drop,
    "fit-quick": fitted(quick=True),
    "fit": fitted(quick=False),
}
"""What judges labels too"""
METHODS: Sequence[str] = (*PREDICTORS, *JUDGES)
NETWORKS = ("mlp", "linear")
"""NETWORK:LOSS is a method too: a loss of the paper with its published options, on features of CIFAR"""


def predictor_of(method: str) -> Predictor:
    """By the name of a method that only predicts."""
    network, colon, loss = method.partition(":")
    return by_network(loss, linear=network == "linear", published=True) if colon else PREDICTORS[method]


def is_method(name: str) -> bool:
    network, colon, loss = name.partition(":")
    return network in NETWORKS and loss in paper_losses() if colon else name in METHODS


def paper_losses() -> tuple[str, ...]:
    """Those of the paper's tables on CIFAR."""
    names = (name.partition("/") for name in paper.list_recipes())
    return tuple(loss for dataset, _, loss in names if dataset == "cifar10")
