"""The catalogue of losses as plain data, without torch: what ``noiseproof losses`` prints.

``catalogue.json`` is written from the classes by ``make generate``, and a test keeps it current. Where this folder has a file
of losses that the JSON does not know, or no JSON, the facts are collected from the classes instead, which imports torch.

Hyperparameters and regularisation that suit a loss, by the kind of data, are a table of published settings: the values in the
code behind Wang et al., *Joint Asymmetric Loss for Learning with Noisy Labels*, ICCV 2025.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noiseproof.io.text import lookup, normalise

if TYPE_CHECKING:
    from noiseproof.losses.catalog import LossEntry
from typing import Literal, NamedTuple

DataKind = Literal["images", "images-many-classes", "photographs", "photographs-pretrained", "features"]
MANY_CLASSES = 50
"""Classes from which on small images count as ``images-many-classes``."""


class KindOfData(NamedTuple):
    """A kind of data: what it is, the data set whose published settings stand for it, and its regularisation."""

    description: str
    data_set: str
    joint_l1: float
    """L1 regularisation of JAL and AMSE"""
    negative_l1: float
    """L1 regularisation of ANL and NNCE"""
    l2: float
    """L2 regularisation of all other losses; of all losses where there is no L1"""


KINDS_OF_DATA: dict[DataKind, KindOfData] = {
    "images": KindOfData("small images, 10 classes (CIFAR-10, 8-layer CNN)", "cifar10", 5e-5, 5e-5, 1e-4),
    "images-many-classes": KindOfData("small images, 100 classes (CIFAR-100, ResNet-34)", "cifar100", 5e-6, 5e-7, 1e-5),
    "photographs": KindOfData("photographs, a network from scratch (WebVision, ResNet-50)", "webvision", 0.0, 0.0, 3e-5),
    "photographs-pretrained": KindOfData(
        "photographs, a pre-trained network (Clothing1M, ResNet-50)", "clothing1m", 0.0, 0.0, 1e-3
    ),
    "features": KindOfData("features (an MLP; not in the paper)", "digits", 0.0, 0.0, 0.0),
}
JOINT_LOSSES = ("jal-ce", "jal-fl", "amse")
NEGATIVE_LOSSES = ("anl-ce", "anl-fl", "nnce")
FOCAL: dict[str, Any] = {"gamma": 0.5, "detach_focal": True}
CLIP, MINIMUM = {"clip": 1e-4}, {"minimum": 1e-8}
OPTIONS: dict[DataKind, dict[str, dict[str, Any]]] = {
    "images": {
        "ce": {},
        "fl": FOCAL,
        "gce": {"q": 0.7},
        "sce": {"alpha": 0.1, "beta": 1.0, **CLIP},
        "nce": {},
        "nce+rce": {"alpha": 1.0, "beta": 1.0, **CLIP},
        "nce+aul": {"alpha": 1.0, "beta": 4.0, "a": 6.3, "p": 1.5},
        "nce+agce": {"alpha": 1.0, "beta": 4.0, "a": 6.0, "q": 1.5},
        "ce+lc": {"delta": 2.5},
        "anl-ce": {"alpha": 5.0, "beta": 5.0, **MINIMUM},
        "anl-fl": {"alpha": 5.0, "beta": 5.0, **MINIMUM, **FOCAL},
        "jal-ce": {"alpha": 1.0, "beta": 1.0, "a": 30.0},
        "jal-fl": {"alpha": 1.0, "beta": 1.0, "a": 30.0, **FOCAL},
        "mae": {"scale": 2.0},
        "agce": {"a": 0.6, "q": 0.6},
        "agce+mae": {"alpha": 1.0, "beta": 1.0, "a": 6.0, "q": 1.5},
        "amse": {"a": 30.0, "q": 2.0},
        "nnce": MINIMUM,
    },
    "images-many-classes": {
        "ce": {},
        "fl": FOCAL,
        "gce": {"q": 0.7},
        "sce": {"alpha": 6.0, "beta": 0.1, **CLIP},
        "nce": {},
        "nce+rce": {"alpha": 10.0, "beta": 0.1, **CLIP},
        "nce+aul": {"alpha": 10.0, "beta": 0.015, "a": 6.0, "p": 3.0},
        "nce+agce": {"alpha": 10.0, "beta": 0.1, "a": 1.8, "q": 3.0},
        "ce+lc": {"delta": 0.5},
        "anl-ce": {"alpha": 10.0, "beta": 1.0, **MINIMUM},
        "anl-fl": {"alpha": 10.0, "beta": 1.0, **MINIMUM, **FOCAL},
        "jal-ce": {"alpha": 5.0, "beta": 1.0, "a": 20.0},
        "jal-fl": {"alpha": 5.0, "beta": 1.0, "a": 20.0, **FOCAL},
    },
    "photographs": {
        "ce": {},
        "gce": {"q": 0.6},
        "sce": {"alpha": 10.0, "beta": 1.0, **CLIP},
        "nce+rce": {"alpha": 50.0, "beta": 0.1, **CLIP},
        "nce+agce": {"alpha": 50.0, "beta": 0.1, "a": 2.5, "q": 3.0},
        "anl-ce": {"alpha": 20.0, "beta": 1.0, **MINIMUM},
        "anl-fl": {"alpha": 20.0, "beta": 1.0, **MINIMUM, **FOCAL},
        "jal-ce": {"alpha": 50.0, "beta": 1.0, "a": 30.0},
        "jal-fl": {"alpha": 50.0, "beta": 1.0, "a": 30.0, **FOCAL},
    },
    "photographs-pretrained": {
        "ce": {},
        "gce": {"q": 0.6},
        "sce": {"alpha": 10.0, "beta": 1.0, **CLIP},
        "nce+rce": {"alpha": 10.0, "beta": 1.0, **CLIP},
        "nce+agce": {"alpha": 50.0, "beta": 0.1, "a": 2.5, "q": 3.0},
        "anl-ce": {"alpha": 5.0, "beta": 0.1, **MINIMUM},
        "anl-fl": {"alpha": 5.0, "beta": 0.1, **MINIMUM, **FOCAL},
        "jal-ce": {"alpha": 5.0, "beta": 0.1, "a": 5.0},
        "jal-fl": {"alpha": 5.0, "beta": 0.1, "a": 5.0, **FOCAL},
    },
}
"""The hyperparameters of each loss by kind of data; features use the defaults of the losses."""


class RecommendedSettings(NamedTuple):
    """The settings of one loss for one kind of data."""

    kind: DataKind
    data: str
    """The kind of data in words"""
    options: Mapping[str, Any]
    """Hyperparameters that differ from, or repeat, the defaults of the loss"""
    l1: float
    """Strength of :class:`noiseproof.L1`"""
    l2: float
    """The optimiser's ``weight_decay``"""

    def __str__(self) -> str:
        terms = [f"{name} {value:g}" for name, value in (("L1", self.l1), ("L2", self.l2)) if value]
        return f"{' and '.join(terms) or 'none'}: {self.data}"


def recommended_settings(loss: str) -> tuple[RecommendedSettings, ...]:
    """Return the published hyperparameters and regularisation of a loss, one entry for each kind of data.

    Args:
        loss: A loss's name, as :func:`noiseproof.create_loss` accepts it.

    Returns:
        The settings, features last; nothing for a loss without published settings.

    Raises:
        ValueError: If no loss has this name.

    Example:
        >>> print(*recommended_settings("jal-ce"), sep="\\n")
        L1 5e-05: small images, 10 classes (CIFAR-10, 8-layer CNN)
        L1 5e-06: small images, 100 classes (CIFAR-100, ResNet-34)
        L2 3e-05: photographs, a network from scratch (WebVision, ResNet-50)
        L2 0.001: photographs, a pre-trained network (Clothing1M, ResNet-50)
        none: features (an MLP; not in the paper)
        >>> recommended_settings("jal-ce")[1].options
        {'alpha': 5.0, 'beta': 1.0, 'a': 20.0}
    """
    if loss not in OPTIONS["images"]:
        from noiseproof.losses.facts import find_facts

        loss = find_facts(loss).name
    published = {kind: losses[loss] for kind, losses in OPTIONS.items() if loss in losses}
    if not published:
        return ()
    return tuple(_settings(loss, kind, options) for kind, options in {**published, "features": {}}.items())


def _settings(loss: str, kind: DataKind, options: Mapping[str, Any]) -> RecommendedSettings:
    known = KINDS_OF_DATA[kind]
    l1 = known.joint_l1 if loss in JOINT_LOSSES else known.negative_l1 if loss in NEGATIVE_LOSSES else 0.0
    return RecommendedSettings(kind, known.description, dict(options), l1, 0.0 if l1 else known.l2)


def kind_of_data(kind: str | None, classes: int | None = None, pretrained: bool = False) -> DataKind:
    """Return the row of the table that suits a data set.

    Args:
        kind: ``features``, ``images`` (small ones) or ``photographs``; None counts as features.
        classes: The number of classes, if it is known.
        pretrained: Whether the network for photographs starts from pre-trained weights.

    Returns:
        The kind of data.

    Example:
        >>> kind_of_data("images", classes=10), kind_of_data("images", classes=100)
        ('images', 'images-many-classes')
    """
    if kind == "photographs":
        return "photographs-pretrained" if pretrained else "photographs"
    if kind == "images":
        return "images-many-classes" if (classes or 0) >= MANY_CLASSES else "images"
    return "features"


FOLDER = Path(__file__).parent
CATALOGUE = FOLDER / "catalogue.json"
LIST_HINT = "'noiseproof losses' lists them"


@dataclass(frozen=True)
class ParameterFacts:
    """A hyperparameter of a loss.

    Attributes:
        default: Its default as Python code; None if it must be given.
        meaning: What it means and which values it may have.
    """

    default: str | None
    meaning: str


@dataclass(frozen=True)
class LossFacts:
    """What the catalogue states about one loss, as text.

    Attributes:
        name: The name that :func:`noiseproof.create_loss` accepts.
        class_name: The class in ``noiseproof``.
        function_name: The function in ``noiseproof.functional``.
        family: The file of ``noiseproof.losses`` that defines it.
        title: The name in words.
        aliases: Other names.
        formula: The loss of one example, a Python expression.
        kind: ``active``, ``passive`` or another kind of the catalogue.
        symmetric: ``True``, ``False`` or a condition on the parameters.
        asymmetric: The condition for asymmetry; None if nothing is claimed.
        range: Least and greatest value; None if it is not stated.
        reference: The publication.
        reads: What the loss is computed from: statistics, logits, features or predictions.
        needs_own_loop: Why a recipe cannot train it; None if one can.
        arguments: The tensors that its function takes.
        parameters: The hyperparameters.
        symbols: The symbols of the formula and the conditions, with their meaning.
        description: What the docstring says, as plain text.

    Example:
        >>> facts = find_facts("JAL-CE")
        >>> facts.title, facts.parameters["a"].default
        ('Joint asymmetric loss on cross entropy', '30.0')
        >>> print(*facts.usage, sep="\\n")
        criterion = noiseproof.JALCE(alpha=1.0, beta=1.0, a=30.0, q=2.0, offset=True)
        criterion = noiseproof.create_loss("jal-ce")
        loss = noiseproof.functional.jal_ce(logits, target)
        decay = noiseproof.L1(model, 5e-05)
        loss = criterion(logits, target) + decay()
    """

    name: str
    class_name: str
    function_name: str
    family: str
    title: str
    aliases: tuple[str, ...]
    formula: str
    kind: str
    symmetric: str
    asymmetric: str | None
    range: tuple[str, str] | None
    reference: str
    reads: str
    needs_own_loop: str | None
    arguments: tuple[str, ...]
    parameters: dict[str, ParameterFacts]
    symbols: dict[str, str]
    description: str

    @property
    def usage(self) -> list[str]:
        """The ways to use the loss as code, with the L1 regularisation that is recommended for it."""
        given = {"features": "512", "classes": "10"} if self.reads == "features" else {}
        shown = ", ".join(f"{name}={given.get(name, facts.default)}" for name, facts in self.parameters.items())
        options = "".join(f", {name}={value}" for name, value in given.items())
        tensors = ", ".join(self.arguments)
        if ":" in self.name:  # a loss of one's own
            made = f"{self.name.partition(':')[0]}.{self.class_name}({shown})"
            return [f"criterion = {made}", f'criterion = noiseproof.create_loss("{self.name}"{options})']
        l1 = max((settings.l1 for settings in recommended_settings(self.name)), default=0.0)
        return [
            f"criterion = noiseproof.{self.class_name}({shown})",
            f'criterion = noiseproof.create_loss("{self.name}"{options})',
            f"loss = noiseproof.functional.{self.function_name}({tensors})",
            *([f"decay = noiseproof.L1(model, {l1:g})", f"loss = criterion({tensors}) + decay()"] if l1 else []),
        ]


@lru_cache(maxsize=1)
def list_facts() -> tuple[LossFacts, ...]:
    """Return the facts of all losses, in the order of the families.

    Returns:
        One entry for each loss of :func:`noiseproof.list_losses`.

    Example:
        >>> [facts.name for facts in list_facts()][:3]
        ['ce', 'fl', 'mae']
    """
    stored: list[dict[str, Any]] = json.loads(CATALOGUE.read_text(encoding="utf-8")) if CATALOGUE.is_file() else []
    files = {
        path.stem for path in FOLDER.glob("*.py") if re.search("^@register", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    if {entry["family"] for entry in stored} != files:
        return collect_facts()
    return tuple(_from_json(entry) for entry in stored)


def find_facts(name: str) -> LossFacts:
    """Return the facts of one loss.

    Args:
        name: A name, alias or class name, where case and the characters between words do not matter, or ``module:Name``
            for a loss of one's own, which is imported.

    Returns:
        The facts.

    Raises:
        ValueError: If no loss has this name; the message suggests a similar one.

    Example:
        >>> find_facts("NCE+RCE").class_name
        'NCEandRCE'
    """
    named = ((facts, (facts.name, facts.class_name, facts.function_name, *facts.aliases)) for facts in list_facts())
    known = {normalise(name): facts for facts, names in named for name in names}
    if isinstance(name, str) and normalise(name) not in known and (":" in name or "noiseproof.losses.catalog" in sys.modules):
        from noiseproof.losses.catalog import find_loss

        return facts_of(find_loss(name))  # a user's own, by module:Name or registered in this process
    return lookup(name, known, "loss", LIST_HINT)


def _from_json(stored: dict[str, Any]) -> LossFacts:
    tuples = {key: tuple(stored[key]) for key in ("aliases", "arguments")}
    ends = None if stored["range"] is None else (stored["range"][0], stored["range"][1])
    parameters = {name: ParameterFacts(**facts) for name, facts in stored["parameters"].items()}
    return LossFacts(**{**stored, **tuples, "range": ends, "parameters": parameters})


def collect_facts() -> tuple[LossFacts, ...]:
    """The facts of all losses, from their classes; imports torch."""
    from noiseproof.losses.catalog import list_losses

    return tuple(facts_of(entry) for entry in list_losses())


def facts_of(entry: LossEntry) -> LossFacts:
    """The facts of one entry of the catalogue."""
    from noiseproof.losses.catalog import SYMBOLS, describe_parameters, names_in

    used = names_in(*entry.expressions)
    meanings = describe_parameters(entry)
    stated = ("name", "function_name", "title", "aliases", "formula", "kind", "symmetric", "asymmetric", "range", "reference")
    return LossFacts(
        **{name: getattr(entry, name) for name in (*stated, "reads", "needs_own_loop", "arguments")},
        class_name=entry.cls.__name__,
        family=entry.cls.__module__.rpartition(".")[2],
        parameters={
            name: ParameterFacts(None if default is inspect.Parameter.empty else repr(default), meanings[name])
            for name, default in entry.defaults.items()
        },
        # "F(p)" explains F, "w1, w2" both.
        symbols={
            symbol: meaning for symbol, meaning in SYMBOLS.items() if used & {part.split("(")[0] for part in symbol.split(", ")}
        },
        description=_prose(inspect.getdoc(entry.cls) or ""),
    )


def _prose(docstring: str) -> str:
    """What a docstring says in words, as plain text."""
    skipped = (".. math::", ">>>", "Reference:", "Args:", "Raises:", "Example:", "    ")
    words = [" ".join(paragraph.split()) for paragraph in docstring.split("\n\n") if not paragraph.startswith(skipped)]
    return re.sub(r":\w+:`(.*?)`|``(.*?)``", _plain, "\n".join(words)).replace("::", ":")


def _plain(match: re.Match[str]) -> str:
    """Inline mathematics and code without their markup."""
    text = next(group for group in match.groups() if group is not None)
    text = re.sub(r"\\text\{(.*?)\}", r"\1", text)
    for tex, plain in ((r"\ge", ">="), (r"\le", "<="), (r"\dots", "..."), (r"\,", ""), (r"\sqrt", "sqrt "), ("\\", "")):
        text = text.replace(tex, plain)
    return " ".join(text.replace("{", "").replace("}", "").split())
