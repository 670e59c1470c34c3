"""``noiseproof losses``: the catalogue, and one loss in full. It reads the catalogue as data, without torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from noiseproof.cli.options import losses as loss_names
from noiseproof.io.console import console, errors_reported, import_local_modules

if TYPE_CHECKING:
    from noiseproof.losses.facts import LossFacts

HELP = "Show this loss in full: jal-ce, NCE+RCE, gce, ..., or module:Name for one of yours."
Name = Annotated[str | None, typer.Argument(help=HELP, autocompletion=loss_names)]


def losses(name: Name = None) -> None:
    """List all losses, or show one in full."""
    from noiseproof.losses.facts import find_facts, list_facts

    if name is None:
        console.print(loss_table(list_facts()))
        hint = "'noiseproof losses NAME' shows one in full, with its recommended regularisation."
        console.print(hint, style="dim")
        return
    with errors_reported():
        import_local_modules(name)
        facts = find_facts(name)
    console.print(loss_page(facts))
    for line in facts.usage:
        console.print(line, style="green", markup=False, soft_wrap=True)  # code is copied: never break it


def loss_table(losses: tuple[LossFacts, ...]) -> Table:
    """All losses, one a line."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("name", "loss", "kind", "symmetric"):
        table.add_column(column, no_wrap=column != "loss")
    for facts in losses:
        symmetric = {"True": "yes", "False": ""}.get(facts.symmetric, f"if {facts.symmetric}")
        table.add_row(facts.name, facts.title, facts.kind, escape(symmetric))
    return table


def loss_page(facts: LossFacts) -> Group:
    """What is known of one loss, without the code that uses it."""
    from noiseproof.losses.facts import recommended_settings

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    own = ":" in facts.name
    rows = {
        "loss": facts.formula,
        "kind": facts.kind,
        "symmetric": {"True": "yes", "False": "no"}.get(facts.symmetric, f"if {facts.symmetric}"),
        "asymmetric": _asymmetric(facts.asymmetric),
        "range": f"[{facts.range[0]}, {facts.range[1]}]" if facts.range else "not stated",
        "reads": facts.reads,
        "regularisation": "" if own else "\n".join(map(str, recommended_settings(facts.name))) or "not in the paper",
        "also called": ", ".join(facts.aliases) or "-",
        "reference": facts.reference,
    }
    for label, value in rows.items():
        if value:
            table.add_row(label, escape(value))
    symbols = "\n".join(f"{symbol}: {meaning}" for symbol, meaning in facts.symbols.items())
    return Group(
        Text(f"{facts.name}: {facts.title}", style="bold cyan"),
        Padding(Text(facts.description), (1, 0)),
        table,
        Padding(Text(symbols, style="dim"), (1, 0)),
    )


def _asymmetric(condition: str | None) -> str:
    if condition is None:
        return "not stated"
    if condition.startswith("if "):
        return "yes, by symmetry" if condition == "if True" else condition
    return {"True": "yes", "False": "no"}.get(condition, f"if and only if {condition}")
