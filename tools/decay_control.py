"""docs/benchmarks/loss_or_decay.md: which part of JAL's lead is the loss and which its decay, from the records."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

import figures
from figures import Mark
from results import FIGURES, RECORDS, REPEATED, ROOT, folded, table

from noiseproof.comparison.paired import MIN_SEEDS, PairedMean, paired_mean
from noiseproof.paper import recipe
from noiseproof.paper.answer import Lead, describe_lead, lead_of
from noiseproof.paper.groups import PaperGroup, paper_groups
from noiseproof.report import merge, read_records
from noiseproof.report.page import named_seeds
from noiseproof.train.record_files import setting

sys.path.append(str(ROOT / "benchmarks"))

from control import L1, L2, LOSSES, NOISES, STRENGTHS, STRENGTHS_AT, STRENGTHS_OF, control_recipe

SEEDS = (123, 124, 125)
NEAR_ZERO = "0.001"
PROPOSED_LOSS = LOSSES[0]
DECAYS = (f"L1 {L1:g}", f"L2 {L2:g}")
Pair = tuple[PaperGroup | None, PaperGroup | None]
"""The runs of a loss under L1 and under L2"""
NAMES = {"none": "clean labels", "symmetric:0.4": "symmetric 0.4", "symmetric:0.8": "symmetric 0.8"}
NAMES["asymmetric:0.4"] = "asymmetric 0.4"
FILES = tuple(RECORDS / name for name in REPEATED)


@functools.cache
def measured(*files: Path) -> list[PaperGroup]:
    return paper_groups(merge(read_records(*(file for file in files if file.is_file()))), [], "bf16")


def control(*files: Path) -> str:
    """By noise: each loss under both decays, the difference within seeds, JAL's lead in parts, what decay does to weights."""
    groups = measured(*(files or FILES))
    parts = [folded(NAMES.get(noise, noise).capitalize(), *text) for noise in NOISES if (text := _noise(groups, noise))]
    return "\n\n".join(filter(None, [*parts, _strengths(groups)]))


def decay_answer() -> str:
    """What the runs so far say, first in words and then by noise."""
    found = {noise: _pairs(measured(*FILES), noise) for noise in NOISES}
    found = {noise: pairs for noise, pairs in found.items() if PROPOSED_LOSS in pairs and len(pairs) > 1}
    leads = {noise: lead for noise, pairs in found.items() if "ce" in pairs and (lead := _lead(pairs, "ce")) is not None}
    noisy = [lead for noise, lead in leads.items() if noise != "none"]
    rows, verdicts = [], []
    for noise, pairs in found.items():
        ahead = [_ahead(pairs, place) for place in (0, 1)]
        verdicts += [(by.n >= MIN_SEEDS and not by.may_be_zero) * (1 if by.value > 0 else -1) for by, _ in ahead]
        lead = leads.get(noise)
        parts = ["", "", ""] if lead is None else [lead.lead.text, lead.decay.text, lead.loss.text]
        rows.append([NAMES.get(noise, noise), *parts, *(f"{by.text} over {best.upper()} ({by.n})" for by, best in ahead)])
    whole, decay, loss = (fmean(getattr(lead, part).value for lead in noisy) for part in ("lead", "decay", "loss"))
    head = ["noise", "lead over CE", "the decay's part", "the loss's part", "over the best other, both L1", "both L2"]
    said = (
        f"**JAL-CE leads cross entropy by {whole:.1f} points, of which {decay:.1f} come from the regularisation and {loss:.1f} "
        f"from the loss (means of {len(noisy)} noise settings). With the same regularisation for all losses, JAL-CE is better "
        f"than the best other loss in {verdicts.count(1)} of {len(verdicts)} comparisons and worse in "
        f"{verdicts.count(-1)}.** In the other comparisons, the two are statistically indistinguishable or fewer than "
        f"{MIN_SEEDS} seeds were run."
    )
    about = "Differences in points, with a 95 % interval from three seeds on; (n) is the number of seeds."
    return "\n\n".join([said, table(head, rows).rstrip(), about])


def _ahead(pairs: Mapping[str, Pair], place: int) -> tuple[PairedMean, str]:
    """How far JAL-CE is ahead of the best other loss under one decay, on the seeds of both, and which that is."""
    others = {loss: _accuracies(pair[place]) for loss, pair in pairs.items() if loss != PROPOSED_LOSS}
    best = max(others, key=lambda loss: fmean(others[loss].values()))
    ours = _accuracies(pairs[PROPOSED_LOSS][place])
    return paired_mean([ours[seed] - others[best][seed] for seed in ours if seed in others[best]]), best


def crossed() -> str:
    """Each loss under both decays, by noise."""
    rows: list[tuple[str, list[Mark]]] = []
    for noise in NOISES:
        pairs = _pairs(measured(*FILES), noise)
        rows += [(NAMES.get(noise, noise), [])] if pairs else []
        for loss, pair in pairs.items():
            values = [fmean(_accuracies(group).values()) for group in pair]
            rows.append((loss.upper(), [Mark(v, k, f"{loss}, {DECAYS[k]}: {v:.1f}") for k, v in enumerate(values)]))
    title = "Loss and decay crossed, CIFAR-10"
    return figures.rows_of_marks(title, rows, ((DECAYS[0], 1), (DECAYS[1], 0)), across="test accuracy of the last epoch, %")


CHARTS: dict[Path, Callable[[], str]] = {FIGURES / "loss_or_decay.svg": crossed}


def _pairs(groups: Sequence[PaperGroup], noise: str) -> dict[str, Pair]:
    """The losses that have results under both decays."""
    found = {loss: (_group(groups, loss, noise, l1=L1), _group(groups, loss, noise, l2=L2)) for loss in LOSSES}
    return {loss: pair for loss, pair in found.items() if all(map(_accuracies, pair))}


def _lead(pairs: Mapping[str, Pair], other: str) -> Lead | None:
    one, two = ((_accuracies(first), _accuracies(second)) for first, second in (pairs[PROPOSED_LOSS], pairs[other]))
    return lead_of(one, two)


def _noise(groups: Sequence[PaperGroup], noise: str) -> list[str]:
    both = _pairs(groups, noise)
    if not both:
        return []
    rows = [[loss, *map(_accuracy, pair), _difference(pair), *_weights(pair)] for loss, pair in both.items()]
    head = ["loss", *DECAYS, "L1 - L2", "near zero, L1 / L2", "norm, L1 / L2"]
    parts = [*_leads(both), table(head, rows)]
    if missing := [loss for loss in LOSSES if loss not in both]:
        own = ": how much of JAL's gain is its decay, these runs do not tell" if PROPOSED_LOSS in missing else ""
        parts.append(f"Without results under both decays so far: {', '.join(missing)}{own}.")
    lost = [
        f"{loss} with {decay} ({named_seeds(group.diverged)})"
        for loss in LOSSES
        for decay, strength in zip(DECAYS, ({"l1": L1}, {"l2": L2}), strict=True)
        if (group := _group(groups, loss, noise, **strength)) is not None and group.diverged
    ]
    return [*parts, f"Diverged, and so without a result: {', '.join(lost)}."] if lost else parts


def _leads(both: Mapping[str, Pair]) -> list[str]:
    """How far JAL-CE is ahead of each other loss, in words for cross entropy and for the best that has another decay."""
    rows, said = [], {}
    for loss in both:
        if loss == PROPOSED_LOSS or PROPOSED_LOSS not in both or (lead := _lead(both, loss)) is None:
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
    return [*(said[loss] for loss in dict.fromkeys(("ce", best)) if loss in said), table([*head, "seeds"], rows)]


def _strengths(groups: Sequence[PaperGroup]) -> str:
    strengths = sorted([L1, *STRENGTHS])
    measured = {loss: [_group(groups, loss, STRENGTHS_AT, l1=one) for one in strengths] for loss in STRENGTHS_OF}
    if not any(sum(group is not None for group in found) > 1 for found in measured.values()):
        return ""
    rows = [[loss, *map(_accuracy, found)] for loss, found in measured.items()]
    return folded(f"Strengths of L1 at {STRENGTHS_AT}", table(["loss", *(f"{one:g}" for one in strengths)], rows))


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
