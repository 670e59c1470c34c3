"""What ``asymmetric:0.4``, ``instance:0.4`` and ``human:worst`` stand for in the experiments on each data set."""

from __future__ import annotations

import difflib
from pathlib import PurePath
from typing import Any

from noiseproof.noise import NoiseSpec
from noiseproof.noise.matrix import MATRIX_FILES, MATRIX_NOISES
from noiseproof.paper.settings import Differs, Profile, resolved

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
"""The noise that a name stands for on each data set, where that differs. Label files are looked for in the folder of data sets:
instance noise under the names in the authors' code, human labels under CIFAR-N's names."""
PUBLISHED_RATES = (0.2, 0.4, 0.6)


def resolve_noise(dataset: str, noise: str, profile: Profile) -> str:
    """The recipe's ``noise`` for this data set and profile; label files, matrices and full names stay as they are.

    >>> resolve_noise("cifar100", "asymmetric:0.4", "paper-code")
    'asymmetric-cifar100-blocks:0.4'
    """
    known = resolved(NOISE[dataset], profile)
    if noise.startswith("human:"):
        if noise not in known:
            raise ValueError(_unknown(dataset, noise, known))
        return str(known[noise])
    spec = NoiseSpec.parse("none" if noise == "clean" else noise)
    if spec.kind in MATRIX_NOISES:
        _check_counts(dataset, spec, profile)
    if spec.kind in ("none", "labels", *MATRIX_NOISES) or PurePath(spec.file).suffix in MATRIX_FILES:
        return str(spec)
    if f"{spec.kind}:RATE" not in known:
        raise ValueError(_unknown(dataset, noise, known))
    target = str(known[f"{spec.kind}:RATE"])
    if target.startswith("labels:") and spec.rate not in PUBLISHED_RATES:
        raise ValueError(
            f"the published labels of instance noise have the rates {', '.join(map(str, PUBLISHED_RATES))}, got {spec.rate}; "
            "profile 'paper-text' makes labels of any rate"
        )
    return target.replace("RATE", str(spec.rate))


def _check_counts(dataset: str, spec: NoiseSpec, profile: Profile) -> None:
    """Refuse noise that the published counts turn into none: a run would say 0.1 and train on clean labels."""
    if (dataset, spec.kind, profile) == ("cifar100", "symmetric", "paper-code") and 0 < spec.rate / 99 * 500 < 1:
        raise ValueError(
            f"the rate of symmetric noise on cifar100 must be at least 0.198 in profile 'paper-code', got {spec.rate}: "
            "the published counts would change no label; profile 'paper-text' has exact counts"
        )


def _unknown(dataset: str, noise: str, known: dict[str, Any]) -> str:
    free = [f"{kind}:RATE" for kind, made in MATRIX_NOISES.items() if made.classes is None]
    names = ["none", *free, *known, "labels:FILE", "labels:FILE#NAME"]
    kind = noise.partition(":")[0]
    near = difflib.get_close_matches(kind, [name.partition(":")[0] for name in names], n=1)
    if near and ":" not in noise and f"{near[0]}:RATE" in names:
        near = [f"{near[0]}:0.4"]
    hint = f"did you mean {near[0]!r}? " if near and near[0] != kind else ""
    return f"{dataset} has no noise {noise!r}; {hint}it has {', '.join(names)}, and a matrix's file"
