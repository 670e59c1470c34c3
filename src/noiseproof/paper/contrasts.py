"""What a difference between two results rests on: the loss or the decay that it is trained with, the text or the code.

Two losses, each trained with two decays on the same seeds. The lead is that of one loss with its decay over the other with its
own, as they are published. The decay's part is what the change of decay gives, averaged over both losses; the loss's part is
what the change of loss gives, averaged over both decays. The two add up to the lead (they are its Shapley values).

Where the paper's text and its code differ, the same cell is measured with the values of each.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from noiseproof.comparison.paired import MIN_SEEDS, PairedMean, paired_mean
from noiseproof.paper import PROFILES, Difference
from noiseproof.paper.answer import PROPOSED_LOSSES
from noiseproof.paper.groups import PaperGroup
from noiseproof.paper.measured import CellResult, join
from noiseproof.paper.plan import cell_differences

TEXT_PROFILE = PROFILES[1]
Accuracies = Mapping[int, float]
"""By seed, in percent"""


@dataclass(frozen=True)
class Lead:
    """Of one loss over another, in points, within the seeds that all four kinds of runs have."""

    lead: PairedMean
    decay: PairedMean
    loss: PairedMean
    first: PairedMean
    """Of the loss over the other where both have the first decay, the one's own"""
    second: PairedMean
    """Where both have the second, the other's own"""


def lead_of(one: tuple[Accuracies, Accuracies], other: tuple[Accuracies, Accuracies]) -> Lead | None:
    """Each loss under the first decay, which is that of ``one``, and under the second; None where they share no seed.

    >>> found = lead_of(({1: 64.0}, {1: 56.0}), ({1: 30.0}, {1: 20.0}))
    >>> found.lead.value, found.decay.value, found.loss.value
    (44.0, 9.0, 35.0)
    """
    seeds = sorted(set.intersection(*(set(runs) for runs in (*one, *other))))
    if not seeds:
        return None
    rows = [tuple(runs[seed] for runs in (*one, *other)) for seed in seeds]
    return Lead(
        lead=paired_mean([a - d for a, _, _, d in rows]),
        decay=paired_mean([(a - b + c - d) / 2 for a, b, c, d in rows]),
        loss=paired_mean([(a - c + b - d) / 2 for a, b, c, d in rows]),
        first=paired_mean([a - c for a, _, c, _ in rows]),
        second=paired_mean([b - d for _, b, _, d in rows]),
    )


def describe_lead(found: Lead, losses: tuple[str, str], decays: tuple[str, str]) -> str:
    """In words, and no more than the seeds show.

    >>> found = lead_of(({1: 64.0}, {1: 56.0}), ({1: 30.0}, {1: 20.0}))
    >>> print(describe_lead(found, ("JAL-CE", "CE"), ("L1", "L2")))  # doctest: +NORMALIZE_WHITESPACE
    JAL-CE with L1 minus CE with L2: +44.00 points. Of these the decay gives +9.00 and the loss +35.00; with the same decay
    JAL-CE minus CE is +34.00 (L1) and +36.00 (L2). Seeds: 1, too few for intervals.
    """
    (one, other), (first, second) = losses, decays
    text = (
        f"{one} with {first} minus {other} with {second}: {found.lead.text} points. Of these the decay gives "
        f"{found.decay.text} and the loss {found.loss.text}; with the same decay {one} minus {other} is "
        f"{found.first.text} ({first}) and {found.second.text} ({second})."
    )
    if found.lead.n < MIN_SEEDS:
        return f"{text} Seeds: {found.lead.n}, too few for intervals."
    if found.lead.may_be_zero:
        return f"{text} The difference is no more than seeds explain."
    shown = [f"the {name}'s" for name, part in (("decay", found.decay), ("loss", found.loss)) if not part.may_be_zero]
    text += f" More than seeds explain: {' and '.join(shown) or 'neither'} part{'s' if len(shown) > 1 else ''}."
    alone = [decay for decay, part in ((first, found.first), (second, found.second)) if part.may_be_zero]
    return f"{text} With {' or '.join(alone)} for both, no difference is shown." if alone else text


def leads_among(groups: Iterable[PaperGroup]) -> list[str]:
    """In words, of the paper's own losses over each other loss at one noise, where both are trained with the decays of both."""
    runs: dict[str, dict[str, PaperGroup]] = {}
    published: dict[str, str] = {}
    for group in groups:
        runs.setdefault(group.loss, {})[group.decay] = group
        if group.has_published_decay:
            published[group.loss] = group.decay
    sentences = []
    for one, other in itertools.product(PROPOSED_LOSSES, published):
        if other in PROPOSED_LOSSES or one not in published or published[one] == published[other]:
            continue
        decays = published[one], published[other]
        if not all(decay in runs[loss] for loss in (one, other) for decay in decays):
            continue
        first, second = ((runs[loss][decays[0]].accuracies, runs[loss][decays[1]].accuracies) for loss in (one, other))
        if (found := lead_of(first, second)) is not None:
            sentences.append(describe_lead(found, (one, other), decays))
    return sentences


@dataclass(frozen=True)
class ProfileComparison:
    """A cell with runs of the code's values and of the text's."""

    code: CellResult
    text: CellResult
    differences: tuple[Difference, ...]

    @property
    def noise(self) -> str:
        return f"{self.code.cell.noise} {self.code.cell.rate or ''}".rstrip()

    @property
    def changes(self) -> str:
        """What differs, from the code's value to the text's."""
        return ", ".join(
            f"{one.field.removeprefix('loss.')} {value_text(one.code)} → {value_text(one.text)}" for one in self.differences
        )


def text_results(
    results: Iterable[CellResult], records: Iterable[dict[str, Any]], *, precision: str = "bf16"
) -> list[CellResult]:
    """Of the cells of ``results``, those that have runs with the text's values, where these differ from the code's."""
    trained = [result.cell for result in results if result.cell.quoted_from is None]
    found = join(trained, records, precision=precision, profile=TEXT_PROFILE).results
    return [result for result in found if result.runs and cell_differences(result.cell)]


def text_or_code(code: Iterable[CellResult], text: Iterable[CellResult]) -> list[ProfileComparison]:
    """The cells that are measured with both, each once also where several tables print it."""
    by_cell = {result.cell: result for result in text if result.sample is not None}
    both = [result for result in distinct(code) if result.cell in by_cell]
    return [ProfileComparison(result, by_cell[result.cell], tuple(cell_differences(result.cell))) for result in both]


def with_text_results(code: Iterable[CellResult], text: Iterable[CellResult]) -> list[CellResult]:
    """Each cell with the code's values, and after it the same with the text's if there is one."""
    by_cell = {result.cell: result for result in text}
    return [one for result in code for one in (result, by_cell.get(result.cell)) if one is not None]


def distinct(results: Iterable[CellResult]) -> list[CellResult]:
    """The measured cells; a number that several tables print, and the same runs repeat, once."""
    measured = (result for result in results if result.sample is not None)
    found: dict[tuple[Any, ...], CellResult] = {}
    for result in measured:
        found.setdefault((*map(id, result.counted), result.cell.dataset, result.cell.mean), result)
    return list(found.values())


def describe_profiles(found: Sequence[ProfileComparison], code: Iterable[CellResult]) -> list[str]:
    """How many agree with the paper by either, and what that leaves open. ``code`` are all cells with the code's values."""
    if not found:
        return []
    with_code = [one for one in found if one.code.agreement.verdict == "agrees"]
    with_text = [one for one in found if one.text.agreement.verdict == "agrees"]
    neither = [one for one in found if one not in with_code and one not in with_text]
    apart = "; ".join(_named(one, _means(one)) for one in neither)
    sentences = [
        f"Cells measured with the values of both: {len(found)}. With the code's, {_counted(with_code, 'code')} with the paper; "
        f"with the text's, {_counted(with_text, 'text')}; with neither, {len(neither)}{apart and f': {apart}'}."
    ]
    losses = list(dict.fromkeys(one.code.cell.loss for one in found))
    measured = [result for result in distinct(code) if result.cell.loss in losses and cell_differences(result.cell)]
    off = [result.cell for result in measured if result.agreement.verdict != "agrees"]
    others = ", all but these" if off == [one.code.cell for one in found] else ""
    sentences.append(
        f"Of all {len(measured)} cells of {', '.join(losses)} measured with the code's values, {len(measured) - len(off)} "
        f"agree{others}."
    )
    if any(len(one.differences) > 1 for one in found):
        sentences.append("The two differ in more than one value, so these runs do not tell which of them matters.")
    return sentences


def _counted(found: Sequence[ProfileComparison], side: Literal["code", "text"]) -> str:
    named = [_named(one, getattr(one, side).classes) for one in found]
    return f"{len(found)} agree{'s' if len(found) == 1 else ''}" + (f": {', '.join(named)}" if named else "")


def _named(one: ProfileComparison, words: str) -> str:
    return f"{one.code.name} at {one.noise}" + (f" ({words})" if words else "")


def _means(one: ProfileComparison) -> str:
    code, text = (0.0 if result.sample is None else result.sample.mean for result in (one.code, one.text))
    return f"{one.code.cell.mean:.2f} printed, {code:.2f} with the code's, {text:.2f} with the text's"


def value_text(value: Any) -> str:
    """A value of a recipe, short."""
    return "none" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
