"""Which part of a loss's lead is the loss, and which the decay that it is trained with?

Two losses, each trained with two decays on the same seeds. The lead is that of one loss with its decay over the other with its
own, as they are published. The decay's part is what the change of decay gives, averaged over both losses; the loss's part is
what the change of loss gives, averaged over both decays. The two add up to the lead (they are its Shapley values).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from noiseproof.comparison.paired import MIN_SEEDS, PairedMean, paired_mean
from noiseproof.paper.answer import PROPOSED_LOSSES
from noiseproof.paper.groups import PaperGroup

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
