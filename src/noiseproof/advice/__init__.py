"""Which loss, hyperparameters and regularisation suit a case, each with its reason."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from noiseproof.audit import Audit
from noiseproof.audit.result import saved_rate
from noiseproof.losses import RobustLoss, create_loss, find_loss
from noiseproof.losses.facts import KINDS_OF_DATA, RecommendedSettings, kind_of_data, recommended_settings
from noiseproof.noise import LabelNoise, from_matrix
from noiseproof.theory.choice import choose_a, chosen_options
from noiseproof.theory.risk import Noise, label_weights

__all__ = ["Advice", "AdvicePart", "Case", "advise"]

Kind = Literal["features", "images", "photographs"]
Basis = Literal["theory", "paper", "records", "none"]
ROBUST_LOSS, LOSS_OF_CLEAN_LABELS = "jal-ce", "ce"
CLEAN_RATE = 0.01
"""A rate of wrong labels below which there is no noise to speak of"""
FEW_IMAGES = 4000


@dataclass(frozen=True)
class Case:
    """What a user has; None where it is not known.

    Attributes:
        kind: ``features``, ``images`` (small ones) or ``photographs``.
        classes: The number of classes.
        examples: The number of training examples.
        rate: The share of wrong labels.

    Raises:
        ValueError: If the kind of data is not one of these.

    Example:
        >>> print(Case("features", classes=10, examples=1000, rate=0.4))
        features, 10 classes, 1,000 examples, 40.0% wrong labels
    """

    kind: Kind | None
    classes: int | None
    examples: int | None
    rate: float | None

    def __post_init__(self) -> None:
        if self.kind is not None and self.kind not in get_args(Kind):
            raise ValueError(f"kind must be one of {', '.join(get_args(Kind))}, got {self.kind!r}")

    def __str__(self) -> str:
        known = [
            self.kind or f"an unknown kind of data ({', '.join(get_args(Kind))}?)",
            "" if self.classes is None else f"{self.classes} classes",
            "" if self.examples is None else f"{self.examples:,} examples",
            "noise not known" if self.rate is None else f"{self.rate:.1%} wrong labels",
        ]
        return ", ".join(filter(None, known))


@dataclass(frozen=True)
class AdvicePart:
    """One part of an advice.

    Attributes:
        what: The loss, a hyperparameter or the regularisation.
        value: What is advised.
        reason: Why.
        basis: What it rests on: theory, the paper's settings, our own records, or nothing that was measured.

    Example:
        >>> advise("symmetric:0.4", classes=10, kind="features").parts[1].what
        'a'
    """

    what: str
    value: str
    reason: str
    basis: Basis


@dataclass(frozen=True)
class Advice:
    """Which loss to train with, and how.

    Attributes:
        case: What it is for.
        loss: The loss's name.
        options: Its hyperparameters.
        l1: Strength of the L1 regularisation; None where the default is to be kept.
        l2: Strength of the L2 regularisation; None where the default is to be kept.
        parts: Each part of the advice with its reason.
        warnings: What to know before training.
        commands: What to run next.

    Example:
        >>> advice = advise("symmetric:0.4", classes=10, kind="images", examples=50000)
        >>> advice.loss, advice.l1
        ('jal-ce', 5e-05)
    """

    case: Case
    loss: str
    options: Mapping[str, Any]
    l1: float | None
    l2: float | None
    parts: tuple[AdvicePart, ...]
    warnings: tuple[str, ...]
    commands: tuple[str, ...]

    def criterion(self) -> RobustLoss:
        """Return the loss with its hyperparameters.

        Returns:
            A module to train with.

        Example:
            >>> advise("symmetric:0.4", classes=10, kind="images").criterion().a
            18.0
        """
        return create_loss(self.loss, **self.options)

    def as_dict(self) -> dict[str, Any]:
        """Return the advice as JSON can hold it.

        Returns:
            The fields by name.

        Example:
            >>> advise("symmetric:0.4", classes=10, kind="images").as_dict()["options"]["a"]
            18.0
        """
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        lines = [f"{part.what}: {part.value}\n    {part.basis}: {part.reason}" for part in self.parts]
        return "\n".join([f"for {self.case}:", *lines, *(f"next: {command}" for command in self.commands)])


def advise(
    noise: Noise | Audit | Path | None = None,
    *,
    classes: int | None = None,
    kind: Kind | None = None,
    examples: int | None = None,
    pretrained: bool = False,
    place: str = "PLACE",
    place_options: Sequence[str] = (),
) -> Advice:
    """Choose a loss, its alpha, beta and a, and the regularisation to train with.

    Args:
        noise: What :func:`noiseproof.theory.label_weights` accepts, an :class:`noiseproof.audit.Audit` or the folder of one;
            None if the noise is not known.
        classes: The number of classes.
        kind: ``features``, ``images`` (small ones) or ``photographs``.
        examples: The number of training examples.
        pretrained: Whether the network for photographs starts from ImageNet's weights.
        place: Where the data are, for the commands to run next.
        place_options: Further words of these commands, such as ``["--label", "churn"]``.

    Returns:
        The advice, each part with its reason.

    Example:
        >>> found = advise("symmetric:0.4", classes=10, kind="images", examples=50000)
        >>> found.options["alpha"], found.options["a"], found.l1
        (1.0, 18.0, 5e-05)
    """
    given: Any = _rate_or_path(noise)
    known = _noise(given, classes)
    case = Case(kind, classes if known is None else known.classes, examples, None if known is None else _rate(given, known))
    hopeless, warnings = (False, []) if known is None else _beyond_every_loss(known)
    if isinstance(given, int | float):
        warnings.append("a rate alone is taken for symmetric noise; an audit says which classes are mistaken for which")
    part = _loss(case)
    row = kind_of_data(case.kind, case.classes, pretrained)
    settings = next(found for found in recommended_settings(part.value) if found.kind == row)
    options, parts = _options(part.value, settings, None if hopeless else known, case, given)
    l1, l2, regularisation = _regularisation(settings, case)
    data = [place, *place_options]
    commands = _to_know(data) if known is None or hopeless else [_train_command(part.value, options, (l1, l2), data)]
    return Advice(case, part.value, options, l1, l2, (part, *parts, regularisation), tuple(warnings), tuple(commands))


def _rate_or_path(noise: Any) -> Any:
    """Text that is a number as a number, a rate; a path as text."""
    try:
        return float(noise) if isinstance(noise, str) else str(noise) if isinstance(noise, Path) else noise
    except ValueError:
        return noise


def _noise(noise: Noise | Audit | None, classes: int | None) -> LabelNoise | None:
    if noise is None:
        return None
    if isinstance(noise, Audit):
        return LabelNoise(noise.transition, "the audit's matrix")
    return from_matrix(label_weights(noise, classes))


def _rate(noise: Any, known: LabelNoise) -> float:
    """The share of wrong labels; without the frequencies of classes, as if all were equally frequent."""
    if isinstance(noise, str) and (found := saved_rate(Path(noise).expanduser(), known.classes)) is not None:
        return found
    return float(noise.rate) if hasattr(noise, "rate") and not callable(noise.rate) else known.noise_rate


def _beyond_every_loss(noise: LabelNoise) -> tuple[bool, list[str]]:
    """Whether no loss can learn any class under a noise, and warnings; of classes of which that is so, if it is some."""
    try:
        return False, list(choose_a(noise).reasons[1:])
    except ValueError as error:
        return True, [str(error)]


def _loss(case: Case) -> AdvicePart:
    if case.rate is not None and case.rate < CLEAN_RATE:
        reason = "fewer than 1 % of the labels are wrong; without noise no robust loss was ahead by more than chance"
        return AdvicePart("loss", LOSS_OF_CLEAN_LABELS, reason, "records")
    reason = "robust for every noise in which the clean label is the likeliest, with a large enough a"
    return AdvicePart("loss", ROBUST_LOSS, reason + ("; the noise is not known" if case.rate is None else ""), "theory")


def _options(
    loss: str, settings: RecommendedSettings, known: LabelNoise | None, case: Case, noise: Any
) -> tuple[dict[str, Any], list[AdvicePart]]:
    """The options of the loss, and a part for each of them."""
    options = dict(settings.options)
    if loss == LOSS_OF_CLEAN_LABELS:
        return options, []
    defaults = find_loss(loss).defaults
    if known is not None:
        options, found = chosen_options(loss, options, known if isinstance(noise, Audit) else noise, classes=case.classes)
        a = AdvicePart("a", f"{found.a:g}", found.reasons[0], "theory")
    else:
        why = "the noise is not known" if case.rate is None else "none is large enough for this noise"
        a = AdvicePart("a", f"{options.get('a', defaults['a']):g}", f"the default; {why}", "paper")
    value = ", ".join(f"{name} {options.get(name, defaults[name]):.4g}" for name in ("alpha", "beta"))
    kept = "" if case.rate is None else "; beta keeps the strength of AMSE at this a"
    reason = f"the paper's for {KINDS_OF_DATA[settings.kind].data_set}"
    if settings.kind == "features":
        reason = "the default; a larger alpha mostly cost points under noise (docs/how_to/own_data.md)"
    return options, [
        a,
        AdvicePart("alpha and beta", value, reason + kept, "records" if settings.kind == "features" else "paper"),
    ]


def _regularisation(settings: RecommendedSettings, case: Case) -> tuple[float | None, float | None, AdvicePart]:
    if case.kind is None:
        reason = "what it should be depends on the data: kind= (--kind) says it; docs/how_to/regularisation.md has the table"
        return None, None, AdvicePart("regularisation", "-", reason, "none")
    if case.kind == "features":
        reason = "on an MLP no difference was seen between L1 5e-5 and none (docs/how_to/regularisation.md)"
        return 0.0, 0.0, AdvicePart("regularisation", "none", reason, "records")
    if case.kind == "images" and case.examples is not None and case.examples < FEW_IMAGES:
        reason = f"the default: of fewer than {FEW_IMAGES:,} images, trained by Adam, regularisations have not been compared"
        return None, None, AdvicePart("regularisation", "none", reason, "none")
    shown = " and ".join(f"L{k} {value:g}" for k, value in ((1, settings.l1), (2, settings.l2)) if value)
    reason = f"the paper's for {KINDS_OF_DATA[settings.kind].data_set}; part of it (docs/how_to/regularisation.md)"
    return settings.l1, settings.l2, AdvicePart("regularisation", shown, reason, "paper")


def _train_command(
    loss: str, options: Mapping[str, Any], penalties: tuple[float | None, float | None], data: Sequence[str]
) -> str:
    sets = {f"loss.{name}": value for name, value in options.items()}
    sets |= {name: value for name, value in zip(("l1", "l2"), penalties, strict=True) if value is not None and any(penalties)}
    texts = {name: f"{value:.6g}" if isinstance(value, float) else json.dumps(value) for name, value in sets.items()}
    changes = [word for name, text in texts.items() for word in ("--set", f"{name}={text}")]
    return shlex.join(["noiseproof", "train", loss, "--data", *data, *changes])


def _to_know(data: Sequence[str]) -> list[str]:
    audit = ["noiseproof", "audit", *data, "--quick", "--out", "audit"]
    return [shlex.join(audit), shlex.join(["noiseproof", "advise", *data, "--noise", "audit"])]
