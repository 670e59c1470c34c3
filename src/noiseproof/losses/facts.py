"""The catalogue of losses as plain data, without torch: what ``noiseproof losses`` prints.

``catalogue.json`` is written from the classes by ``make generate``, and a test keeps it current. Where this folder has a file
of losses that the JSON does not know, or no JSON, the facts are collected from the classes instead, which imports torch.

``published.json`` has the hyperparameters and the regularisation that suit a loss, by the kind of data: the values in the code
behind Wang et al., *Joint Asymmetric Loss for Learning with Noisy Labels*, ICCV 2025. It is written from ``paper/settings.py``.
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
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from noiseproof.io.text import lookup, normalise

if TYPE_CHECKING:
    from noiseproof.losses.catalog import LossEntry

FOLDER = Path(__file__).parent
CATALOGUE, PUBLISHED = FOLDER / "catalogue.json", FOLDER / "published.json"
LIST_HINT = "'noiseproof losses' lists them"
DataKind = Literal["images", "images-many-classes", "photographs", "photographs-pretrained", "features"]
MANY_CLASSES = 50
"""Classes from which on small images count as ``images-many-classes``."""


class KindOfData(NamedTuple):
    """A kind of data: what it is, and the data set whose published settings stand for it."""

    description: str
    data_set: str


KINDS_OF_DATA: dict[DataKind, KindOfData] = {
    "images": KindOfData("small images, 10 classes (CIFAR-10, 8-layer CNN)", "cifar10"),
    "images-many-classes": KindOfData("small images, 100 classes (CIFAR-100, ResNet-34)", "cifar100"),
    "photographs": KindOfData("photographs, a network from scratch (WebVision, ResNet-50)", "webvision"),
    "photographs-pretrained": KindOfData("photographs, a pre-trained network (Clothing1M, ResNet-50)", "clothing1m"),
    "features": KindOfData("features (an MLP; not in the paper)", "digits"),
}


class RecommendedSettings(NamedTuple):
    """The settings of one loss for one kind of data."""

    kind: DataKind
    options: Mapping[str, Any]
    """Hyperparameters that differ from, or repeat, the defaults of the loss"""
    l1: float
    """Strength of :class:`noiseproof.L1`"""
    l2: float
    """The optimiser's ``weight_decay``"""

    def __str__(self) -> str:
        terms = [f"{name} {value:g}" for name, value in (("L1", self.l1), ("L2", self.l2)) if value]
        return f"{' and '.join(terms) or 'none'}: {KINDS_OF_DATA[self.kind].description}"


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
    known = _published()
    name = loss if loss in known else find_facts(loss).name
    return tuple(RecommendedSettings(**settings) for settings in known.get(name, ()))


@lru_cache(maxsize=1)
def _published() -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    return found


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


@dataclass(frozen=True)
class LossFacts:
    """What the catalogue states about one loss, as text.

    Attributes:
        name: The name that :func:`noiseproof.create_loss` accepts.
        names: All that it is found by: its name, class, function and aliases.
        aliases: Other names.
        family: The file of ``noiseproof.losses`` that defines it.
        title: The name in words.
        formula: The loss of one example, a Python expression.
        kind: ``active``, ``passive`` or another kind of the catalogue.
        symmetric: ``True``, ``False`` or a condition on the parameters.
        asymmetric: The condition for asymmetry; None if nothing is claimed.
        range: Least and greatest value; None if it is not stated.
        reference: The publication.
        reads: What the loss is computed from: statistics, logits, features or predictions.
        symbols: The symbols of the formula and the conditions, with their meaning.
        description: What the docstring says, as plain text.
        usage: The ways to use the loss as code, with the L1 regularisation that is recommended for it.

    Example:
        >>> facts = find_facts("JAL-CE")
        >>> facts.title
        'Joint asymmetric loss on cross entropy'
        >>> print(*facts.usage, sep="\\n")
        criterion = noiseproof.JALCE(alpha=1.0, beta=1.0, a=30.0, q=2.0, offset=True)
        criterion = noiseproof.create_loss("jal-ce")
        loss = noiseproof.functional.jal_ce(logits, target)
        decay = noiseproof.L1(model, 5e-05)
        loss = criterion(logits, target) + decay()
    """

    name: str
    names: list[str]
    aliases: list[str]
    family: str
    title: str
    formula: str
    kind: str
    symmetric: str
    asymmetric: str | None
    range: list[str] | None
    reference: str
    reads: str
    symbols: dict[str, str]
    description: str
    usage: list[str]


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
    return tuple(LossFacts(**entry) for entry in stored) if {entry["family"] for entry in stored} == files else collect_facts()


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
        >>> find_facts("NCE+RCE").name
        'nce+rce'
    """
    known = {normalise(each): facts for facts in list_facts() for each in facts.names}
    if isinstance(name, str) and normalise(name) not in known and (":" in name or "noiseproof.losses.catalog" in sys.modules):
        from noiseproof.losses.catalog import find_loss

        return facts_of(find_loss(name))  # a user's own, by module:Name or registered in this process
    return lookup(name, known, "loss", LIST_HINT)


def collect_facts() -> tuple[LossFacts, ...]:
    """The facts of all losses, from their classes; imports torch."""
    from noiseproof.losses.catalog import list_losses

    return tuple(facts_of(entry) for entry in list_losses())


def facts_of(entry: LossEntry) -> LossFacts:
    """The facts of one entry of the catalogue."""
    stated = ("name", "title", "formula", "kind", "symmetric", "asymmetric", "reference", "reads")
    return LossFacts(
        **{name: getattr(entry, name) for name in stated},
        names=list(entry.names),
        aliases=list(entry.aliases),
        family=entry.cls.__module__.rpartition(".")[2],
        range=None if entry.range is None else list(entry.range),
        symbols=entry.symbols,
        description=_prose(inspect.getdoc(entry.cls) or ""),
        usage=_usage(entry),
    )


def _usage(entry: LossEntry) -> list[str]:
    """The ways to use a loss as code."""
    given = {"features": "512", "classes": "10"} if entry.reads == "features" else {}
    values = {name: "..." if default is inspect.Parameter.empty else repr(default) for name, default in entry.defaults.items()}
    shown = ", ".join(f"{name}={value}" for name, value in {**values, **given}.items())
    options = "".join(f", {name}={value}" for name, value in given.items())
    created = f'criterion = noiseproof.create_loss("{entry.name}"{options})'
    if ":" in entry.name:  # a loss of one's own
        return [f"criterion = {entry.name.partition(':')[0]}.{entry.cls.__name__}({shown})", created]
    tensors = ", ".join(entry.arguments)
    function = f"loss = noiseproof.functional.{entry.function_name}({tensors})"
    l1 = max((settings["l1"] for settings in _published().get(entry.name, ())), default=0.0)
    decay = [f"decay = noiseproof.L1(model, {l1:g})", f"loss = criterion({tensors}) + decay()"] if l1 else []
    return [f"criterion = noiseproof.{entry.cls.__name__}({shown})", created, function, *decay]


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
