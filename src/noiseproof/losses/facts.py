"""The catalogue of losses as plain data, without torch: what ``noiseproof losses`` prints.

``catalogue.json`` is written from the classes by ``make generate``, and a test keeps it current. Where this folder has a file
of losses that the JSON does not know, or no JSON, the facts are collected from the classes instead, which imports torch.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noiseproof.io.text import lookup, normalise
from noiseproof.losses.recommended import recommended_settings

if TYPE_CHECKING:
    from noiseproof.losses.catalog import LossEntry

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


def list_facts() -> tuple[LossFacts, ...]:
    """Return the facts of all losses, in the order of the families.

    Returns:
        One entry for each loss of :func:`noiseproof.list_losses`.

    Example:
        >>> [facts.name for facts in list_facts()][:3]
        ['ce', 'fl', 'mae']
    """
    return _load()


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
    known = {normalise(key): facts for facts in _load() for key in names_of(facts)}
    if isinstance(name, str) and normalise(name) not in known and (":" in name or "noiseproof.losses.catalog" in sys.modules):
        from noiseproof.losses.catalog import find_loss

        return facts_of(find_loss(name))  # a user's own, by module:Name or registered in this process
    return lookup(name, known, "loss", LIST_HINT)


def names_of(facts: LossFacts) -> tuple[str, ...]:
    """All names that a loss is found by."""
    return (facts.name, facts.class_name, facts.function_name, *facts.aliases)


@lru_cache(maxsize=1)
def _load() -> tuple[LossFacts, ...]:
    stored: list[dict[str, Any]] = json.loads(CATALOGUE.read_text(encoding="utf-8")) if CATALOGUE.is_file() else []
    files = {
        path.stem for path in FOLDER.glob("*.py") if re.search("^@register", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    if {entry["family"] for entry in stored} != files:
        return collect_facts()
    return tuple(_from_json(entry) for entry in stored)


def _from_json(stored: dict[str, Any]) -> LossFacts:
    tuples = {key: tuple(stored[key]) for key in ("aliases", "arguments")}
    ends = None if stored["range"] is None else (stored["range"][0], stored["range"][1])
    parameters = {name: ParameterFacts(**facts) for name, facts in stored["parameters"].items()}
    return LossFacts(**{**stored, **tuples, "range": ends, "parameters": parameters})


def as_json() -> str:
    """The text of ``catalogue.json``, from the classes."""
    return json.dumps([asdict(facts) for facts in collect_facts()], indent=1) + "\n"


def collect_facts() -> tuple[LossFacts, ...]:
    """The facts of all losses, from their classes; imports torch."""
    from noiseproof.losses.catalog import list_losses

    return tuple(facts_of(entry) for entry in list_losses())


def facts_of(entry: LossEntry) -> LossFacts:
    """The facts of one entry of the catalogue."""
    from noiseproof.losses.catalog import SYMBOLS, describe_parameters
    from noiseproof.losses.expressions import names_in

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
