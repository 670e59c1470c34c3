"""Advice for a case: loss, hyper-parameters and decay, each with its reason, and what has been measured nearby."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from noiseproof.advice.evidence import FAR, Case, Cell, Kind, Measured, family_of, nearest
from noiseproof.audit import Audit
from noiseproof.audit.files import saved_rate
from noiseproof.losses import RobustLoss, create_loss, find_loss
from noiseproof.losses.recommended import KINDS_OF_DATA, DataKind, RecommendedSettings, kind_of_data, recommended_settings
from noiseproof.noise import LabelNoise, from_matrix
from noiseproof.theory.choice import CHOOSES, choose_a, chosen_options
from noiseproof.theory.weights import Noise, label_weights

__all__ = ["Advice", "Part", "advise"]

Basis = Literal["theory", "paper", "records", "none"]
USUAL = "jal-ce"
LEAD, LEAD_OF_FEW, ERRORS = 1.0, 3.0, 2.0
"""Points by which another loss must be ahead of JAL-CE to be advised instead, by how many if there are fewer than three seeds,
and of how many standard errors of the difference"""
FEW_IMAGES = 4000
SHOWN = 6
LEAST = 3
"""Seeds from which on a deviation is used"""


@dataclass(frozen=True)
class Part:
    """One part of the advice."""

    what: str
    value: str
    reason: str
    basis: Basis
    """What it rests on: theory; the paper's settings; our own records; or nothing that was measured"""


@dataclass(frozen=True)
class Advice:
    """Which loss to train with, and how."""

    case: Case
    loss: str
    options: Mapping[str, Any]
    l1: float | None
    l2: float | None
    """Decay; both None where the default is to be kept"""
    parts: tuple[Part, ...]
    nearest: Cell | None
    """What was measured nearest to the case, if anything near was"""
    warnings: tuple[str, ...]
    commands: tuple[str, ...]
    """What to run next"""

    def criterion(self) -> RobustLoss:
        return create_loss(self.loss, **self.options)

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "case": vars(self.case),
            **{"loss": self.loss, "options": dict(self.options), "l1": self.l1, "l2": self.l2},
            "parts": [vars(part) for part in self.parts],
            "nearest": None
            if self.nearest is None
            else {**vars(self.nearest), "losses": [one._asdict() for one in self.nearest.losses]},
            "warnings": list(self.warnings),
            "commands": list(self.commands),
        }

    def __str__(self) -> str:
        width = max(len(part.what) for part in self.parts)
        lines = [f"{part.what:{width}}  {part.value}  ({part.basis}) {part.reason}" for part in self.parts]
        lines += [f"warning: {text}" for text in self.warnings]
        return "\n".join([*lines, *(f"next: {command}" for command in self.commands)])


def advise(
    noise: Noise | Audit | Path | None = None,
    *,
    classes: int | None = None,
    kind: Kind | None = None,
    examples: int | None = None,
    pretrained: bool = False,
    place: str | None = None,
    labels: str | None = None,
    tested: bool = False,
) -> Advice:
    """Which loss, alpha, beta, a and decay to train with.

    ``noise`` is what :func:`noiseproof.theory.label_weights` takes, an :class:`noiseproof.audit.Audit` or the folder of one;
    left out, it is not known. ``kind`` is features, images (small ones) or photographs, ``pretrained`` says that their network
    starts from ImageNet's weights. For the commands, ``place`` is where the data are, ``labels`` the file of their labels if
    these are not the data's own, and ``tested`` whether they have a test split.

    >>> found = advise("symmetric:0.4", classes=10, kind="images", examples=50000)
    >>> found.options["alpha"], found.options["a"], found.l1
    (1.0, 18.0, 5e-05)
    """
    known = _noise(noise, classes)
    classes = classes if known is None else known.classes
    rate = None if known is None else _rate(noise, known)
    family = None if known is None or rate is None else family_of(known, rate)
    case = Case(kind, classes, examples, family, rate)
    cell, distance = nearest(case)
    near = cell if distance < FAR else None
    loss, part = _loss(case, near)
    hopeless, warnings = (False, []) if known is None else _beyond_every_loss(known)
    options, parts = _options(loss, None if hopeless else known, case, pretrained, noise)
    l1, l2, decay = _decay(loss, case, pretrained)
    if _is_rate(noise):
        warnings.append("a rate alone is taken for symmetric noise; an audit says which classes are mistaken for which")
    source = str(noise) if _is_rate(noise) or isinstance(noise, str | Path) else None
    unknown = known is None or hopeless
    data = [place or "PLACE", *([] if labels is None else ["--labels", labels])]
    commands = _to_know(data) if unknown else _commands(loss, options, (l1, l2), data, source, tested)
    return Advice(case, loss, options, l1, l2, (part, *parts, decay), near, tuple(warnings), tuple(commands))


def _noise(noise: Noise | Audit | Path | None, classes: int | None) -> LabelNoise | None:
    if noise is None:
        return None
    if isinstance(noise, Audit):
        return LabelNoise(noise.transition, "the audit's matrix")
    return from_matrix(label_weights(str(noise) if isinstance(noise, Path) else noise, classes))


def _rate(noise: Any, known: LabelNoise) -> float:
    """The share of wrong labels; without the frequencies of classes, as if all were equally frequent."""
    if isinstance(noise, str | Path) and (found := saved_rate(Path(noise).expanduser(), known.classes)) is not None:
        return found
    return float(noise.rate) if hasattr(noise, "rate") and not callable(noise.rate) else known.noise_rate


def _is_rate(noise: Any) -> bool:
    return isinstance(noise, int | float)


def _beyond_every_loss(noise: LabelNoise) -> tuple[bool, list[str]]:
    """Whether no loss can learn any class under a noise, and warnings; of classes of which that is so, if it is some."""
    try:
        return False, list(choose_a(noise).reasons[1:])
    except ValueError as error:
        return True, [str(error)]


def _loss(case: Case, near: Cell | None) -> tuple[str, Part]:
    if near is None:
        reason = "robust for every noise in which the clean label is the likeliest, with a large enough a"
        what = "the noise is not known" if case.rate is None else "nothing near this case has been measured"
        return USUAL, Part("loss", USUAL, f"{reason}; {what}", "theory")
    best = near.losses[0]
    usual = next((one for one in near.losses if one.loss == ("ce" if case.family == "none" else USUAL)), None)
    chosen = best if usual is None or best.mean - usual.mean > _enough(best, usual) else usual
    order = ", ".join(f"{one.loss} {one.mean:.1f}" for one in near.losses[:SHOWN])
    last = near.losses[-1]
    more = f", ..., {last.loss} {last.mean:.1f}" if len(near.losses) > SHOWN else ""
    equal = [one.loss for one in near.losses if abs(one.mean - chosen.mean) <= _enough(one, chosen) and one != chosen]
    tie = f"; no more than chance away from it: {', '.join(equal)}" if equal else ""
    return chosen.loss, Part("loss", chosen.loss, f"nearest: {near}: {order}{more} %{tie}", "records")


def _enough(one: Measured, other: Measured) -> float:
    """Points from which on one is ahead of the other. Seeds are paired, so that the error is smaller than it is taken to be."""
    if one.std is None or other.std is None or min(one.n, other.n) < LEAST:
        return LEAD_OF_FEW
    return max(LEAD, ERRORS * math.hypot(one.std / one.n**0.5, other.std / other.n**0.5))


def _recommended(loss: str, kind: DataKind) -> RecommendedSettings | None:
    return next((found for found in recommended_settings(loss) if found.kind == kind), None)


def _options(
    loss: str, known: LabelNoise | None, case: Case, pretrained: bool, noise: Any
) -> tuple[dict[str, Any], list[Part]]:
    """The options of the loss, and a part for each of them."""
    kind = kind_of_data(case.kind, case.classes, pretrained)
    settings = _recommended(loss, kind)
    options = {} if settings is None else dict(settings.options)
    defaults = find_loss(loss).defaults
    parts: list[Part] = []
    if loss in CHOOSES and known is not None:
        said = known if isinstance(noise, Audit) else str(noise) if isinstance(noise, Path) else noise
        options, found = chosen_options(loss, options, said, classes=case.classes)
        parts.append(Part("a", f"{found.a:g}", found.reasons[0], "theory"))
    elif loss in CHOOSES:
        why = "the noise is not known" if case.rate is None else "none is large enough for this noise"
        parts.append(Part("a", f"{options.get('a', defaults['a']):g}", f"the default; {why}", "paper"))
    if weights := [name for name in ("alpha", "beta") if name in defaults]:
        value = ", ".join(f"{name} {options.get(name, defaults[name]):.4g}" for name in weights)
        parts.append(Part(" and ".join(weights), value, *_of_weights(loss, kind, case)))
    return options, parts


def _of_weights(loss: str, kind: DataKind, case: Case) -> tuple[str, Basis]:
    kept = "; beta keeps the strength of AMSE at this a" if loss in CHOOSES and case.rate is not None else ""
    if kind != "features":
        return f"the paper's for {KINDS_OF_DATA[kind].data_set}{kept}", "paper"
    if case.kind == "features" and loss == USUAL:
        return f"the default; a larger alpha mostly cost points under noise (docs/own_data.md){kept}", "records"
    return f"the default{kept}", "none"


def _decay(loss: str, case: Case, pretrained: bool) -> tuple[float | None, float | None, Part]:
    if case.kind is None:
        reason = "what it should be depends on the data: kind= (--kind) says it; docs/regularisation.md has the table"
        return None, None, Part("decay", "-", reason, "none")
    if case.kind == "features":
        reason = "on an MLP no difference was seen between L1 5e-5 and none (docs/regularisation.md)"
        return 0.0, 0.0, Part("decay", "none", reason, "records")
    if case.kind == "images" and case.examples is not None and case.examples < FEW_IMAGES:
        reason = f"the default: of fewer than {FEW_IMAGES:,} images, trained by Adam, decays have not been compared"
        return None, None, Part("decay", "none", reason, "none")
    kind = kind_of_data(case.kind, case.classes, pretrained)
    data_set, found = KINDS_OF_DATA[kind].data_set, _recommended(loss, kind)
    if found is None:
        return None, None, Part("decay", "-", f"the paper does not train {loss} on {data_set}", "none")
    shown = " and ".join(f"L{k} {value:g}" for k, value in ((1, found.l1), (2, found.l2)) if value)
    return found.l1, found.l2, Part("decay", shown, f"the paper's for {data_set}; part of it (docs/regularisation.md)", "paper")


def _commands(
    loss: str,
    options: Mapping[str, Any],
    decay: tuple[float | None, float | None],
    data: list[str],
    source: str | None,
    tested: bool,
) -> list[str]:
    sets = {f"loss.{name}": value for name, value in options.items()}
    sets |= {name: value for name, value in zip(("l1", "l2"), decay, strict=True) if value is not None and any(decay)}
    changes = [word for name, value in sets.items() for word in ("--set", f"{name}={_plain(value)}")]
    inside = ",".join(f"{name}={_plain(value)}" for name, value in options.items())
    others = [other for other in ("ce", "gce", USUAL) if other != loss]
    field = ",".join([*others[:2], f"{loss}({inside})" if inside else loss])
    compare = ["noiseproof", "compare", field, "--data", *data]
    if not tested:
        compare += ["--test-size", "0.2", *([] if source is None else ["--test-noise", source])]
    return [shlex.join(["noiseproof", "train", loss, "--data", *data, *changes]), shlex.join(compare)]


def _to_know(data: list[str]) -> list[str]:
    audit = ["noiseproof", "audit", *data, "--quick", "--out", "audit"]
    return [shlex.join(audit), shlex.join(["noiseproof", "advise", *data, "--noise", "audit"])]


def _plain(value: Any) -> str:
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.6g}"
    return json.dumps(value)
