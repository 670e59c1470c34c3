"""Records as lines, tables and folds: what the pages under docs/benchmarks/ share."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RECORDS = ROOT / "records"
PAGES, FIGURES = ROOT / "docs" / "benchmarks", ROOT / "docs" / "figures"
REPEATED = ("reproduction.jsonl", "faithfulness_h200.jsonl", "control.jsonl")
"""Runs of the paper's cells; some of the control's have the decay that a cell has"""


def read_lines(name: str, folder: Path = RECORDS) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / name).read_text(encoding="utf-8").splitlines()]


def table(head: Iterable[Any], rows: Iterable[Iterable[Any]]) -> str:
    lines = [head, ["---"] * len(list(head)), *rows]
    return "".join("| " + " | ".join(str(cell) for cell in line) + " |\n" for line in lines)


def folded(summary: str, *parts: str) -> str:
    """Behind a line to click on, for tables that a plot stands for."""
    return "\n\n".join([f"<details>\n<summary>{summary}</summary>", *(part.strip() for part in parts if part), "</details>"])


def where_measured(lines: list[dict[str, Any]]) -> str:
    machines = dict.fromkeys(f"{line['environment']['machine']}, torch {line['environment']['torch']}" for line in lines)
    dates = sorted({line.get("date") or line["environment"]["date"] for line in lines})
    commits = dict.fromkeys(line["environment"]["commit"] for line in lines)
    return f"{' and '.join(machines)}, commit {', '.join(commits)}, {' and '.join(dates)}"


def is_finished(run: dict[str, Any]) -> bool:
    """One that diverged has no result."""
    return bool(run.get("status", "finished") == "finished")
