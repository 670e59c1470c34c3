"""A page for each family of losses, from the catalogue and the docstrings, whose examples are run when it is written.

A committed page contains formula, prose, code and facts. The site adds the curves in place of ``<!-- curves: NAME -->`` and the
signature in place of ``<!-- signature: NAME -->``.
"""

from __future__ import annotations

import ast
import doctest
import functools
import importlib
import inspect
import re
from collections.abc import Callable, Iterable

from manual.curves import CLASSES, drawn
from manual.docstrings import as_markdown
from manual.formulas import tex
from manual.sources import folded
from noiseproof.losses import LossEntry, find_loss, list_losses
from noiseproof.losses.catalog import FAMILIES, describe_parameters
from noiseproof.losses.facts import facts_of, recommended_settings
from noiseproof.theory import check

__all__ = ["overview", "pages", "section", "with_curves"]

TITLES = {
    "classic": "Classic losses",
    "generalized": "Losses between cross entropy and MAE",
    "normalized": "Normalised losses",
    "asymmetric": "Asymmetric losses",
    "joint": "Joint losses: JAL and ANL",
    "pairs": "Active passive loss pairs",
    "epsilon": "Losses of epsilon-softmax",
    "transformed": "Losses on transformed logits",
    "complementary": "Negative learning (complementary labels)",
    "views": "Consistency losses on several views",
    "student": "Losses on features: Student loss",
}
LONGEST = 110
"""Of TeX in a line"""
NOISES = ("symmetric:0.4", "symmetric:0.8", "pairflip:0.4")
ANSWERS = {"yes": "yes", "no": "no", "not found": "no counterexample"}
DECIDED = {"True": "yes", "False": "no"}


def pages() -> dict[str, Callable[[], str]]:
    """The file of each family's page, in docs/reference/, with what writes it."""
    return {f"losses/{family}.md": functools.partial(_page, family) for family in _families()}


def _page(family: str) -> str:
    return "\n\n".join([f"# {_title(family)}", _words_of(family), *(section(entry) for entry in _families()[family])]) + "\n"


def _title(family: str) -> str:
    return TITLES.get(family, family.capitalize())


def heading(entry: LossEntry) -> str:
    return f"{entry.name}: {entry.title}"


def place(entry: LossEntry) -> str:
    """The link of a loss's section from the other pages of losses: its page, and its anchor as GitHub makes it."""
    anchor = re.sub(r"[^\w\- ]", "", heading(entry).lower()).replace(" ", "-")
    return f"{entry.cls.__module__.rpartition('.')[2]}.md#{anchor}"


def _families() -> dict[str, list[LossEntry]]:
    found: dict[str, list[LossEntry]] = {family: [] for family in FAMILIES}
    for entry in list_losses():
        found.setdefault(entry.cls.__module__.rpartition(".")[2], []).append(entry)
    return {family: entries for family, entries in found.items() if entries}


def _words_of(family: str) -> str:
    """The first paragraph of the family's file."""
    module = importlib.import_module(f"noiseproof.losses.{family}")
    return " ".join((module.__doc__ or "").strip().split("\n\n")[0].split())


def overview() -> str:
    """The table of all losses, each with a link to its section."""
    lines = ["| name | loss | family | kind | symmetric | tolerates 80 % symmetric noise |", "|---|---|---|---|---|---|"]
    for family, entries in _families().items():
        for entry in entries:
            linked = f"[{entry.name}]({place(entry)})", entry.title, f"[{family}]({family}.md)"
            cells = (*linked, entry.kind, _condition(entry.symmetric), _tolerates(entry, NOISES[1]) or "-")
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def section(entry: LossEntry) -> str:
    """Formula, what the docstring says, the code to copy, and what is known."""
    _run_examples(entry)
    words, _, reference = as_markdown(inspect.getdoc(entry.cls) or "").partition("\n\nReference: ")
    lines = [f"## {heading(entry)}", "", f"<!-- curves: {entry.name} -->", ""]
    if "```math" not in words:
        lines += ["```math", f"L = {tex(entry.formula, _flags(entry))}", "```", ""]
    lines += [
        words,
        "",
        "```python",
        _within_80_columns(facts_of(entry).usage[0]).replace("'", '"'),
        "```",
        "",
        *_facts(entry, reference),
        "",
        f"<!-- signature: {entry.name} -->",
    ]
    return "\n".join(lines)


def _within_80_columns(code: str) -> str:
    """A call that is assigned; where it is too long, without flags, which are as by default, and then with an option a line.

    >>> _within_80_columns("criterion = noiseproof.Loss(first=0.123456789, second=0.123456789, third=True)")
    'criterion = noiseproof.Loss(first=0.123456789, second=0.123456789, third=True)'
    >>> _within_80_columns("criterion = noiseproof.Loss(first=0.123456789, second=0.123456789, flag=False, base=None)")
    'criterion = noiseproof.Loss(first=0.123456789, second=0.123456789)'
    >>> print(_within_80_columns("criterion = noiseproof.Loss(first=0.123456789, second=0.123456789, third=0.12345)"))
    criterion = noiseproof.Loss(
        first=0.123456789,
        second=0.123456789,
        third=0.12345,
    )
    """
    if len(code) <= 80:
        return code
    call = ast.parse(code).body[0].value  # type: ignore[attr-defined]
    kept = [each for each in call.keywords if ast.unparse(each.value) not in ("True", "False", "None")]
    head, options = code.partition("(")[0], [ast.unparse(each) for each in (*call.args, *kept)]
    if len(short := f"{head}({', '.join(options)})") <= 80:
        return short
    return "\n".join([f"{head}(", *(f"    {option}," for option in options), ")"])


def with_curves(text: str) -> str:
    """A page with the curves of each loss and its signature, folded, which includes what the page says of its parameters."""
    text = re.sub(r"^- \*\*(Parameters|As code)\*\*.*\n?", "", text, flags=re.MULTILINE)
    text = re.sub("<!-- curves: (.+?) -->", lambda found: drawn(find_loss(found[1])), text)
    return re.sub("<!-- signature: (.+?) -->", lambda found: _signature(find_loss(found[1])), text)


def _signature(entry: LossEntry) -> str:
    directive = [".. currentmodule:: noiseproof", f".. autoclass:: {entry.cls.__name__}", "   :no-index-entry:"]
    described = [f"As code: {_as_code(entry)}.", "", "```{eval-rst}", *directive, "```"]
    return "\n".join(folded(entry.cls.__name__, "signature, parameters, example", described))


def _flags(entry: LossEntry) -> dict[str, bool]:
    """Its options that are on or off, as they are by default."""
    return {name: value for name, value in entry.defaults.items() if isinstance(value, bool)}


def _facts(entry: LossEntry, reference: str) -> Iterable[str]:
    """What the catalogue knows, as a list of terms that is narrow enough for a phone."""
    tolerated = {noise: answer for noise in NOISES if (answer := _tolerates(entry, noise))}
    facts = {
        "Kind": entry.kind,
        "Symmetric": _condition(entry.symmetric),
        "Asymmetric": _asymmetric(entry),
        "Range": " to ".join(_math(end, entry) for end in entry.range) if entry.range else "not stated",
        f"Tolerates, {CLASSES} classes": "; ".join(f"`{noise}` {answer}" for noise, answer in tolerated.items()),
        "Regularisation": _regularisation(entry),
        "Parameters": "; ".join(f"`{name}` {meaning}" for name, meaning in describe_parameters(entry).items()),
        "As code": _as_code(entry),
        "Reference": reference.removesuffix("."),
        "Also called": ", ".join(entry.aliases),
        "Reads": {"statistics": "", "logits": "the logits, not row statistics alone"}.get(entry.reads, entry.reads),
    }
    return (f"- **{name}**: {text}" for name, text in facts.items() if text)


def _regularisation(entry: LossEntry) -> str:
    found = (f"{str(one).split(':')[0]} ({one.kind})" for one in recommended_settings(entry.name))
    return "; ".join(found) or "none published"


def _as_code(entry: LossEntry) -> str:
    symbols = (f"`{symbol}` is {meaning}" for symbol, meaning in entry.symbols.items())
    return f"`{entry.formula}`, where {'; '.join(symbols)}"


def _math(expression: str, entry: LossEntry) -> str:
    """In the line, or as code, which breaks where a phone's screen ends."""
    text = tex(expression, _flags(entry))
    return f"${text}$" if len(text) < LONGEST else f"`{expression.removeprefix('if ')}`"


def _condition(text: str) -> str:
    return DECIDED.get(text) or f"if `{text.removeprefix('if ')}`"


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
