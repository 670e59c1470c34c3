"""The section of docs/results.md on the loss and its decay, from the records."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from noiseproof.comparison.paired import paired_mean
from noiseproof.paper import recipe
from noiseproof.paper.answer import describe_lead, lead_of
from noiseproof.paper.groups import PaperGroup, paper_groups
from noiseproof.report import merge, read_records
from noiseproof.report.page import named_seeds
from noiseproof.train.record_files import setting

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "benchmarks"))

from control import L1, L2, LOSSES, NOISES, STRENGTHS, STRENGTHS_AT, STRENGTHS_OF, control_recipe  # noqa: E402 - found above

SEEDS = (123, 124, 125)
NEAR_ZERO = "0.001"
PROPOSED_LOSS = LOSSES[0]
DECAYS = (f"L1 {L1:g}", f"L2 {L2:g}")
Pair = tuple[PaperGroup | None, PaperGroup | None]
"""The runs of a loss under L1 and under L2"""
INTRODUCTION = (
    "The paper trains JAL and ANL with L1 penalty and all else with L2, so its tables do not tell what the loss gives and "
    "what the decay. Here each loss has both: CIFAR-10, bf16, last epoch, the paper's settings but for the decay; NCE+MAE "
    "weighs MAE by 2a/K of JAL-CE, AMSE's slope, and so is JAL-CE without the asymmetric part. (n): seeds, of 123 to 125. "
    "Differences are within seeds, with a 95 % interval by Student's t from three seeds on, each by itself. Of the lead of "
    "JAL-CE over a loss, each with its published decay, the decay's part is what the change of decay gives, averaged over "
    "both losses, and the loss's part what the change of loss gives, averaged over both decays; the two add up to the lead. "
    f"Near zero: the share of weights below {NEAR_ZERO} under L1 and L2, and norm: the L2 norm of all weights, for the first "
    "seed. `benchmarks/control.py` runs what is missing.\n"
)


def control(*files: Path) -> str:
    """Each loss under both decays, the difference within seeds, what is left of JAL's lead, and what decay does to weights."""
    groups = paper_groups(merge(read_records(*(file for file in files if file.is_file()))), [], "bf16")
    parts = [text for noise in NOISES if (text := _noise(groups, noise))] + [_strengths(groups)]
    return "\n".join(["", "## The loss or its decay\n", INTRODUCTION, *filter(None, parts)]) if any(parts) else ""


def _noise(groups: Sequence[PaperGroup], noise: str) -> str:
    found = {loss: (_group(groups, loss, noise, l1=L1), _group(groups, loss, noise, l2=L2)) for loss in LOSSES}
    both = {loss: pair for loss, pair in found.items() if all(map(_accuracies, pair))}
    if not both:
        return ""
    rows = [[loss, *map(_accuracy, pair), _difference(pair), *_weights(pair)] for loss, pair in both.items()]
    head = ["loss", *DECAYS, "L1 - L2", "near zero, L1 / L2", "norm, L1 / L2"]
    parts = [f"### {'clean labels' if noise == 'none' else noise}\n", *_leads(both), _table(head, rows)]
    if missing := [loss for loss in LOSSES if loss not in both]:
        own = ": how much of JAL's gain is its decay, these runs do not tell" if PROPOSED_LOSS in missing else ""
        parts.append(f"Without results under both decays so far: {', '.join(missing)}{own}.\n")
    lost = [
        f"{loss} with {decay} ({named_seeds(group.diverged)})"
        for loss, pair in found.items()
        for decay, group in zip(DECAYS, pair, strict=True)
        if group is not None and group.diverged
    ]
    return "\n".join([*parts, f"Diverged, and so without a result: {', '.join(lost)}.\n"] if lost else parts)


def _leads(both: Mapping[str, Pair]) -> list[str]:
    """How far JAL-CE is ahead of each other loss, in words for cross entropy and for the best that has another decay."""
    rows, said = [], {}
    for loss, pair in both.items():
        if loss == PROPOSED_LOSS or PROPOSED_LOSS not in both:
            continue
        one, other = ((_accuracies(first), _accuracies(second)) for first, second in (both[PROPOSED_LOSS], pair))
        if (lead := lead_of(one, other)) is None:
            continue
        parts, own = ["", "", ""], "L1"
        if loss != "nce+mae" and not recipe(f"cifar10/{loss}").l1:
            parts, own = [lead.lead.text, lead.decay.text, lead.loss.text], "L2"
            said[loss] = describe_lead(lead, (PROPOSED_LOSS.upper(), loss.upper()), ("L1", "L2"))
        rows.append([loss, own, *parts, lead.first.text, lead.second.text, str(lead.lead.n)])
    if not rows:
        return []
    best = max(said, key=lambda loss: paired_mean(list(_accuracies(both[loss][1]).values())).value, default=None)
    head = [
        "JAL-CE minus",
        "its decay",
        "lead as published",
        "the decay's part",
        "the loss's part",
        "both L1",
        "both L2",
    ]
    return [*(f"{said[loss]}\n" for loss in dict.fromkeys(("ce", best)) if loss in said), _table([*head, "seeds"], rows)]


def _strengths(groups: Sequence[PaperGroup]) -> str:
    strengths = sorted([L1, *STRENGTHS])
    measured = {loss: [_group(groups, loss, STRENGTHS_AT, l1=one) for one in strengths] for loss in STRENGTHS_OF}
    if not any(sum(group is not None for group in found) > 1 for found in measured.values()):
        return ""
    rows = [[loss, *map(_accuracy, found)] for loss, found in measured.items()]
    return "\n".join([f"### Strengths of L1 at {STRENGTHS_AT}\n", _table(["loss", *(f"{one:g}" for one in strengths)], rows)])


def _group(groups: Sequence[PaperGroup], loss: str, noise: str, **decay: float) -> PaperGroup | None:
    """The runs of the paper's seeds."""
    left_out = ("seed", "confidence_epochs")
    wanted = setting({"recipe": control_recipe(loss, noise, SEEDS[0], **decay).as_dict()}, left_out)
    found = (group for group in groups if setting(group.records[0], left_out) == wanted)
    runs = [record for group in found for record in group.records if record["recipe"]["seed"] in SEEDS]
    return PaperGroup(runs) if runs else None


def _accuracies(group: PaperGroup | None) -> dict[int, float]:
    return {} if group is None else group.accuracies


def _accuracy(group: PaperGroup | None) -> str:
    """Mean, deviation, number of seeds, and how many diverged."""
    if group is None:
        return "-"
    lost = f"{len(group.diverged)} diverged" if group.diverged else ""
    if (sample := group.sample) is None:
        return lost
    mean = f"{sample.mean:.2f}" + ("" if sample.std is None else f" ± {sample.std:.2f}")
    return ", ".join(filter(None, (f"{mean} ({sample.n})", lost)))


def _difference(pair: Pair) -> str:
    ours, theirs = map(_accuracies, pair)
    values = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
    return paired_mean(values).text if values else ""


def _weights(pair: Pair) -> tuple[str, str]:
    first = [next((run["weights"] for run in group.finished if run.get("weights")), None) if group else None for group in pair]
    shares = ["" if one is None else f"{one['below'][NEAR_ZERO]:.0%}" for one in first]
    norms = ["" if one is None else f"{one['l2']:.0f}" for one in first]
    return " / ".join(shares), " / ".join(norms)


def _table(head: list[str], rows: list[list[str]]) -> str:
    return "".join("| " + " | ".join(line) + " |\n" for line in [head, ["---"] * len(head), *rows])
