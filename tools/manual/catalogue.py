"""A section for each loss, from the catalogue and the docstrings; the examples are run, and one that fails stops the build."""

from __future__ import annotations

import doctest
import functools
import importlib
import inspect
from collections.abc import Iterable

from manual.curves import CLASSES, drawn
from manual.formulas import tex
from noiseproof.losses import LossEntry, list_losses
from noiseproof.losses.catalog import FAMILIES, describe_parameters
from noiseproof.losses.facts import facts_of, recommended_settings
from noiseproof.theory import check

__all__ = ["catalogue", "section"]

TITLES = {
    "classic": "Classic losses",
    "generalized": "Between cross entropy and mean absolute error",
    "normalized": "Normalised losses",
    "asymmetric": "Asymmetric losses",
    "joint": "The paper's losses: JAL and ANL",
    "pairs": "Other published pairs",
    "epsilon": "On epsilon-softmax",
    "transformed": "On changed logits",
    "complementary": "On what an example is not",
    "views": "On several predictions of one example",
    "student": "On features",
}
LONGEST = 110
"""Of TeX in a line"""
NOISES = ("symmetric:0.4", "symmetric:0.8", "pairflip:0.4")
ANSWERS = {"yes": "yes", "no": "no", "not found": "no counterexample"}
DECIDED = {"True": "yes", "False": "no"}


def catalogue() -> str:
    """Markdown: the families in their order, each loss a section with an anchor of its name."""
    parts = [_overview()]
    for family, entries in _families().items():
        parts.append(f"## {TITLES.get(family, family.capitalize())}\n\n{_words_of(family)}\n")
        parts += [section(entry) for entry in entries]
    return "\n".join(parts)


def anchor(entry: LossEntry) -> str:
    return f"loss-{entry.function_name.replace('_', '-')}"


def _families() -> dict[str, list[LossEntry]]:
    found: dict[str, list[LossEntry]] = {family: [] for family in FAMILIES}
    for entry in list_losses():
        found.setdefault(entry.cls.__module__.rpartition(".")[2], []).append(entry)
    return {family: entries for family, entries in found.items() if entries}


def _words_of(family: str) -> str:
    """The first paragraph of the family's file."""
    module = importlib.import_module(f"noiseproof.losses.{family}")
    return " ".join((module.__doc__ or "").strip().split("\n\n")[0].split())


def _overview() -> str:
    lines = ["| name | loss | kind | symmetric | tolerates 80 % symmetric noise |", "|---|---|---|---|---|"]
    for entry in list_losses():
        cells = (f"[{entry.name}](#{anchor(entry)})", entry.title, entry.kind, _condition(entry.symmetric, entry))
        lines.append(f"| {' | '.join(cells)} | {_tolerates(entry, NOISES[1]) or '-'} |")
    return "\n".join(lines) + "\n"


def section(entry: LossEntry) -> str:
    """Formula, curves, what the docstring says, what is known, and the code to copy."""
    _run_examples(entry)
    lines = [f"({anchor(entry)})=", f"### {entry.name}: {entry.title}\n"]
    if ".. math::" not in (inspect.getdoc(entry.cls) or ""):
        lines += ["```{math}", f"L = {tex(entry.formula, _flags(entry))}", "```", ""]
    lines += [drawn(entry), "", "```{eval-rst}", ".. currentmodule:: noiseproof", f".. autoclass:: {entry.cls.__name__}"]
    lines += ["   :no-index-entry:", "```", ""]
    lines += [*_facts(entry), "", "```python", *facts_of(entry).usage, "```", ""]
    return "\n".join(lines)


def _flags(entry: LossEntry) -> dict[str, bool]:
    """Its options that are on or off, as they are by default."""
    return {name: value for name, value in entry.defaults.items() if isinstance(value, bool)}


def _facts(entry: LossEntry) -> Iterable[str]:
    """What the catalogue knows, as a list of terms that is narrow enough for a phone."""
    tolerated = {noise: answer for noise in NOISES if (answer := _tolerates(entry, noise))}
    facts = {
        "As code": f"`{entry.formula}`",
        "Kind": entry.kind,
        "Symmetric": _condition(entry.symmetric, entry),
        "Asymmetric": _asymmetric(entry),
        "Range": " to ".join(_math(end, entry) for end in entry.range) if entry.range else "not stated",
        f"Tolerates, {CLASSES} classes": "; ".join(f"`{noise}` {answer}" for noise, answer in tolerated.items()),
        "Decay": "; ".join(str(one) for one in recommended_settings(entry.name)) or "the paper has none for it",
        "Parameters": "; ".join(f"`{name}` {meaning}" for name, meaning in describe_parameters(entry).items()),
        "Here": "; ".join(f"`{symbol}` {meaning}" for symbol, meaning in entry.symbols.items()),
        "Also called": ", ".join(entry.aliases),
        "Reads": {"statistics": "", "logits": "the logits, not row statistics alone"}.get(entry.reads, entry.reads),
    }
    return (f"- **{name}**: {text}" for name, text in facts.items() if text)


def _math(expression: str, entry: LossEntry) -> str:
    """In the line, or as code, which breaks where a phone's screen ends."""
    text = tex(expression, _flags(entry))
    return f"{{math}}`{text}`" if len(text) < LONGEST else f"`{expression.removeprefix('if ')}`"


def _condition(text: str, entry: LossEntry) -> str:
    return DECIDED.get(text) or f"if {_math(text, entry)}"


def _asymmetric(entry: LossEntry) -> str:
    condition = entry.asymmetric
    if condition is None:
        return "not stated"
    if condition == "if True":
        return "yes, by symmetry"
    sufficient = condition.startswith("if ")
    return DECIDED.get(condition) or f"if {'' if sufficient else 'and only if '}{_math(condition, entry)}"


@functools.cache
def _tolerates(entry: LossEntry, noise: str) -> str:
    """Whether, with the default options, the risk under the noise is least at certainty of the clean label; "" if not asked."""
    if entry.reads in ("features", "predictions") or "generator" in entry.defaults:
        return ""
    answers = {verdict.answer for verdict in check(entry.cls(), noise, classes=CLASSES).classes}
    return ANSWERS.get(next(iter(answers)), "") if len(answers) == 1 else "for some classes"


def _run_examples(entry: LossEntry) -> None:
    module = importlib.import_module(entry.cls.__module__)
    runner = doctest.DocTestRunner(verbose=False)
    for test in doctest.DocTestFinder(recurse=False).find(entry.cls, entry.name, globs=dict(vars(module))):
        said: list[str] = []
        if runner.run(test, out=said.append).failed:
            raise ValueError(f"an example of {entry.name} fails:\n{''.join(said)}")
