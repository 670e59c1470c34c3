"""The noise of the experiments: what ``asymmetric:0.4``, ``instance:0.4`` and ``human:worst`` are for a data set."""

from __future__ import annotations

import difflib
from pathlib import PurePath
from typing import Any

from noiseproof.paper.fidelity import Differs, Profile, resolved

__all__ = ["NOISE", "resolve_noise"]

BLOCKS = (
    "the text flips labels 'within the same super-class into the next'; "
    "the code takes blocks of five consecutive labels, which are alphabetical and not the super-classes"
)
FIXED = (
    "the text says 'we follow the approach in PDN'; the code reads one fixed file of labels for each rate, "
    "in which a uniformly random subset is changed and only the destination depends on the image"
)
NOISE: dict[str, dict[str, Any]] = {
    "cifar10": {
        "asymmetric:RATE": "asymmetric-cifar10:RATE",
        "instance:RATE": Differs("instance:RATE", "labels:cifar10_dependent_RATE.json", FIXED),
        "human:aggregate": "labels:CIFAR-10_human.pt#aggre_label",
        "human:random1": "labels:CIFAR-10_human.pt#random_label1",
        "human:worst": "labels:CIFAR-10_human.pt#worse_label",
    },
    "cifar100": {
        "asymmetric:RATE": Differs("asymmetric-cifar100:RATE", "asymmetric-cifar100-blocks:RATE", BLOCKS),
        "instance:RATE": Differs("instance:RATE", "labels:cifar100_dependent_RATE.json", FIXED),
        "human:noisy": "labels:CIFAR-100_human.pt#noisy_label",
    },
    # The digits have MNIST's classes, and so its similar pairs.
    "digits": {"asymmetric:RATE": "asymmetric-mnist:RATE", "instance:RATE": "instance:RATE"},
    "webvision": {},
    "clothing1m": {},
}
"""What each data set makes of a noise, where that depends on the data set. Label files are looked for where the data are: those
of instance noise under the names that the authors' code gives them, people's under the names that CIFAR-N gives them."""
PUBLISHED_RATES = (0.2, 0.4, 0.6)
ASYMMETRIC = tuple(f"asymmetric-{name}" for name in ("cifar10", "cifar100", "cifar100-blocks", "mnist"))
SAME_EVERYWHERE = ("symmetric", "pairflip", *ASYMMETRIC)
MATRICES = (".npy", ".csv", ".json")


def resolve_noise(dataset: str, noise: str, profile: Profile) -> str:
    """The recipe's ``noise`` for this data set and profile; label files, matrices and full names stay as they are.

    >>> resolve_noise("cifar100", "asymmetric:0.4", "paper-code")
    'asymmetric-cifar100-blocks:0.4'
    """
    kind, colon, rest = noise.partition(":")
    if noise in ("none", "clean"):
        return "none"
    if kind == "labels" or (not colon and PurePath(noise).suffix in MATRICES):
        return noise
    if kind in SAME_EVERYWHERE and colon:
        rate = _rate(noise, rest)
        _check_counts(dataset, kind, rate, profile)
        return f"{kind}:{rate}"
    known = resolved(NOISE[dataset], profile)
    if kind == "human" and noise in known:
        return str(known[noise])
    if f"{kind}:RATE" not in known or not colon:
        raise ValueError(_unknown(dataset, noise, known))
    rate = _rate(noise, rest)
    target = str(known[f"{kind}:RATE"])
    if target.startswith("labels:") and rate not in PUBLISHED_RATES:
        raise ValueError(
            f"the published labels of instance noise have the rates {', '.join(map(str, PUBLISHED_RATES))}, got {rest}; "
            "profile 'paper-text' makes labels of any rate"
        )
    return target.replace("RATE", str(rate))


def _rate(noise: str, text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        raise ValueError(f"the rate in {noise!r} must be a number, got {text!r}") from None
    if not 0 <= rate <= 1:
        raise ValueError(f"the rate in {noise!r} must be in [0, 1], got {text}")
    return rate


def _check_counts(dataset: str, kind: str, rate: float, profile: Profile) -> None:
    """Refuse noise that the published counts turn into none: a run would say 0.1 and train on clean labels."""
    if (dataset, kind, profile) == ("cifar100", "symmetric", "paper-code") and rate > 0 and int(rate / 99 * 500) == 0:
        raise ValueError(
            f"the rate of symmetric noise on cifar100 must be at least 0.198 in profile 'paper-code', got {rate}: "
            "the published counts would change no label; profile 'paper-text' has exact counts"
        )


def _unknown(dataset: str, noise: str, known: dict[str, Any]) -> str:
    names = ["none", "symmetric:RATE", "pairflip:RATE", *known, "labels:FILE", "labels:FILE#NAME"]
    near = difflib.get_close_matches(noise.split(":")[0], [name.split(":")[0] for name in names], n=1)
    hint = f"did you mean {near[0]!r}? " if near and near[0] != noise.split(":")[0] else ""
    return f"{dataset} has no noise {noise!r}; {hint}it has {', '.join(names)}, and a matrix's file"
