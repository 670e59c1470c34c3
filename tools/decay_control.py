"""The section of docs/results.md on the loss and its decay, from the records."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scipy import stats

from noiseproof.report import read_records
from noiseproof.train import Record, StoredRun
from noiseproof.train.queue import Speeds, plan_queue

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "benchmarks"))

from control import L1, L2, LOSSES, NOISES, STRENGTHS, STRENGTHS_AT, STRENGTHS_OF, control_recipe  # noqa: E402 - found above

SEEDS = (123, 124, 125)
NEAR_ZERO = "0.001"


def control(*files: Path) -> str:
    """Each loss under both decays, the difference within seeds, and what the decay does to the weights."""
    known = [
        StoredRun("", Record.status_in(facts), facts) for facts in read_records(*(file for file in files if file.is_file()))
    ]
    parts = [
        "## The loss or its decay\n",
        "CIFAR-10, bf16, last epoch, each loss with the paper's settings but for the decay; NCE+MAE weighs MAE by 2a/K of "
        "JAL-CE, AMSE's slope. (n): seeds, of 123 to 125. The difference is within seeds, with its 95 % interval by Student's "
        f"t where there are three. Near zero: the share of weights below {NEAR_ZERO} under L1 and L2, and norm: the L2 norm of "
        "all weights, for the first seed. `benchmarks/control.py` runs what is missing.\n",
    ]
    for noise in NOISES:
        rows, open_ = [], []
        for loss in LOSSES:
            both = [_found(known, loss, noise, l1=L1), _found(known, loss, noise, l2=L2)]
            if all(both):
                rows.append([loss, *map(_accuracy, both), _difference(*both), *_weights(both)])
            else:
                open_.append(loss)
        if rows:
            head = ["loss", f"L1 {L1:g}", f"L2 {L2:g}", "L1 - L2", "near zero, L1 / L2", "norm, L1 / L2"]
            parts += [f"### {'clean labels' if noise == 'none' else noise}\n", _table(head, rows)]
        if rows and open_:
            own = ": how much of JAL's gain is its decay, these runs do not tell" if "jal-ce" in open_ else ""
            parts.append(f"Not trained with both decays so far: {', '.join(open_)}{own}.\n")
    strengths = sorted([L1, *STRENGTHS])
    measured = {loss: [_found(known, loss, STRENGTHS_AT, l1=one) for one in strengths] for loss in STRENGTHS_OF}
    if any(sum(map(bool, found)) > 1 for found in measured.values()):
        rows = [[loss, *map(_accuracy, found)] for loss, found in measured.items()]
        parts += [f"### Strengths of L1 at {STRENGTHS_AT}\n", _table(["loss", *(f"{one:g}" for one in strengths)], rows)]
    return "\n".join(["", *parts]) if len(parts) > 2 else ""


def _found(known: list[StoredRun], loss: str, noise: str, **decay: float) -> dict[int, Mapping[str, Any]]:
    """The finished runs by seed."""
    planned = plan_queue((control_recipe(loss, noise, seed, **decay) for seed in SEEDS), known, Speeds(""))
    return {run.facts["seed"]: run.stored.facts for run in planned if run.stored is not None and run.status == "finished"}


def _accuracies(runs: Mapping[int, Mapping[str, Any]]) -> dict[int, float]:
    return {seed: 100 * run["result"]["test_accuracy"] for seed, run in runs.items()}


def _accuracy(runs: Mapping[int, Mapping[str, Any]]) -> str:
    values = list(_accuracies(runs).values())
    if len(values) < 2:
        return f"{values[0]:.2f} (1)" if values else "-"
    return f"{statistics.mean(values):.2f} ± {statistics.stdev(values):.2f} ({len(values)})"


def _difference(one: Mapping[int, Mapping[str, Any]], other: Mapping[int, Mapping[str, Any]]) -> str:
    ours, theirs = _accuracies(one), _accuracies(other)
    values = [ours[seed] - theirs[seed] for seed in ours.keys() & theirs.keys()]
    if not values:
        return ""
    mean = statistics.mean(values)
    if len(values) < 3:
        return f"{mean:+.2f}"
    half = stats.t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
    return f"{mean:+.2f} [{mean - half:+.2f}, {mean + half:+.2f}]"


def _weights(both: list[dict[int, Mapping[str, Any]]]) -> tuple[str, str]:
    first = [next((run["weights"] for _, run in sorted(runs.items()) if "weights" in run), None) for runs in both]
    shares = ["" if one is None else f"{one['below'][NEAR_ZERO]:.0%}" for one in first]
    norms = ["" if one is None else f"{one['l2']:.0f}" for one in first]
    return " / ".join(shares), " / ".join(norms)


def _table(head: list[str], rows: list[list[str]]) -> str:
    return "".join("| " + " | ".join(line) + " |\n" for line in [head, ["---"] * len(head), *rows])
