"""``noiseproof losses``: the catalogue, and one loss in full."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from noiseproof.cli.completion import losses as loss_names
from noiseproof.cli.output import console, errors_reported

if TYPE_CHECKING:
    from noiseproof.losses.catalog import LossEntry

Name = Annotated[str | None, typer.Argument(help="One loss in full: jal-ce, NCE+RCE, gce, ...", autocompletion=loss_names)]


def losses(name: Name = None) -> None:
    """List the losses, or show one in full."""
    from noiseproof.losses.catalog import find_loss, list_losses

    if name is None:
        console.print(loss_table(list_losses()))
        console.print(
            "'noiseproof losses NAME' shows one in full, with the decay that belongs to it.", style="dim", highlight=False
        )
        return
    with errors_reported():
        entry = find_loss(name)
    console.print(loss_page(entry))
    for line in usage(entry):
        console.print(line, style="green", highlight=False, markup=False, soft_wrap=True)  # code is copied: never break it


def loss_table(entries: tuple[LossEntry, ...]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("name", "loss", "kind", "symmetric"):
        table.add_column(column, no_wrap=column != "loss")
    for entry in entries:
        symmetric = {"True": "yes", "False": ""}.get(entry.symmetric, f"if {entry.symmetric}")
        table.add_row(entry.name, entry.title, entry.kind, escape(symmetric))
    return table


def loss_page(entry: LossEntry) -> Group:
    from noiseproof.losses.catalog import SYMBOLS
    from noiseproof.losses.expressions import names_in
    from noiseproof.losses.recommended import recommended_settings

    facts = Table(box=None, show_header=False, pad_edge=False)
    facts.add_column(style="bold")
    facts.add_column(overflow="fold")
    rows = {
        "loss": entry.formula,
        "kind": entry.kind,
        "symmetric": {"True": "yes", "False": "no"}.get(entry.symmetric, f"if {entry.symmetric}"),
        "asymmetric": _asymmetric(entry.asymmetric),
        "range": f"[{entry.range[0]}, {entry.range[1]}]" if entry.range else "not stated",
        "reads": entry.reads,
        "decay": "\n".join(str(one) for one in recommended_settings(entry.name)) or "not in the paper",
        "also called": ", ".join(entry.aliases) or "-",
        "reference": entry.reference,
    }
    for label, value in rows.items():
        facts.add_row(label, escape(value))
    names = names_in(*entry.expressions)
    # "F(p)" explains F, "w1, w2" both.
    used = [
        f"{symbol}: {meaning}"
        for symbol, meaning in SYMBOLS.items()
        if names & {part.split("(")[0] for part in symbol.split(", ")}
    ]
    return Group(
        Text(f"{entry.name}: {entry.title}", style="bold cyan"),
        Padding(Text(_prose(entry)), (1, 0)),
        facts,
        Padding(Text("\n".join(used), style="dim"), (1, 0)),
    )


def usage(entry: LossEntry) -> list[str]:
    """Three ways to use the loss, and the L1 regularisation where the paper has it, as code that runs."""
    from noiseproof import functional
    from noiseproof.losses.recommended import recommended_settings

    given = {"features": "512", "classes": "10"} if entry.reads == "features" else {}
    shown = ", ".join(f"{name}={given.get(name, repr(default))}" for name, default in entry.defaults.items())
    options = "".join(f", {name}={value}" for name, value in given.items())
    tensors = ", ".join(list(inspect.signature(getattr(functional, entry.function_name)).parameters)[: 4 if given else 2])
    strength = max((found.l1 for found in recommended_settings(entry.name)), default=0.0)
    return [
        f"criterion = noiseproof.{entry.cls.__name__}({shown})",
        f'criterion = noiseproof.create_loss("{entry.name}"{options})',
        f"loss = noiseproof.functional.{entry.function_name}({tensors})",
        *([f"decay = noiseproof.L1(model, {strength:g})", f"loss = criterion({tensors}) + decay()"] if strength else []),
    ]


def _prose(entry: LossEntry) -> str:
    """What the docstring says in words, as plain text."""
    paragraphs = (inspect.getdoc(entry.cls) or "").split("\n\n")
    skipped = (".. math::", ">>>", "Reference:", "    ")
    words = [" ".join(paragraph.split()) for paragraph in paragraphs if not paragraph.startswith(skipped)]
    return re.sub(r":\w+:`(.*?)`|``(.*?)``", _plain, "\n".join(words)).replace("::", ":")


def _plain(match: re.Match[str]) -> str:
    """Inline mathematics and code without their markup."""
    text = next(group for group in match.groups() if group is not None)
    text = re.sub(r"\\text\{(.*?)\}", r"\1", text)
    for tex, plain in ((r"\ge", ">="), (r"\le", "<="), (r"\dots", "..."), (r"\,", ""), (r"\sqrt", "sqrt "), ("\\", "")):
        text = text.replace(tex, plain)
    return " ".join(text.replace("{", "").replace("}", "").split())


def _asymmetric(condition: str | None) -> str:
    if condition is None:
        return "not stated"
    if condition.startswith("if "):
        return "yes, by symmetry" if condition == "if True" else condition
    return {"True": "yes", "False": "no"}.get(condition, f"if and only if {condition}")
