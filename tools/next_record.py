"""docs/how_to/choosing.md: where the printed commands lead, from records/next_commands.jsonl."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from results import read_lines, table, where_measured

__all__ = ["next_table"]

RECORD = "next_commands.jsonl"


def next_table() -> str:
    """Each data set: cross entropy with early stopping, what advise ends with, and the worst and best of all models."""
    lines = read_lines(RECORD)
    rows, gains = [], []
    for one in lines:
        early = one["early"]["accuracy"]
        found = [100 * (model["accuracy"] - early) for model in one["models"]]
        gains += found
        counts = f"{one['rows']:,} rows, {len(one['counts'])} classes"
        first = _advised(one) - early
        rows.append([one["set"], one["kind"], one["noise"], counts, f"{100 * early:.1f}", f"{100 * first:+.1f}", *_ends(found)])
    head = ["data", "an example of", "noise", "size", "early stopping", "advise", "worst", "best"]
    said = (
        f"On {len(lines)} data sets, the worst of {len(gains)} models gains {min(gains):+.1f} points over "
        "cross entropy with early "
        f"stopping, and the mean gain is {fmean(gains):+.1f} points. The table contains the accuracy of cross "
        "entropy with early "
        "stopping in %. The other columns contain the points gained over it: by the model that `advise` recommends, and by the "
        "worst and the best of all models that the printed commands lead to."
    )
    return f"{said}\n\n{table(head, rows)}\n{where_measured(lines)}"


def _advised(one: dict[str, Any]) -> float:
    """The accuracy of the model that the first command of advise fits."""
    return float(next(model["accuracy"] for model in one["models"] if len(model["commands"]) == 2))


def _ends(found: list[float]) -> tuple[str, str]:
    return f"{min(found):+.1f}", f"{max(found):+.1f}"
