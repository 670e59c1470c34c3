"""docs/benchmarks/paper.md: ours against the paper's numbers, from the records."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NamedTuple

import figures
from figures import Point
from results import FIGURES, RECORDS, REPEATED, folded, is_finished, read_lines, table, where_measured
from scipy import stats

from noiseproof.comparison.paired import ALPHA
from noiseproof.paper import SEEDS, cells
from noiseproof.paper.agreement import CellResult, holm, join
from noiseproof.paper.answer import answer, distinct
from noiseproof.paper.plan import chosen_cells
from noiseproof.paper.published import DATASET_NAMES
from noiseproof.paper.tables import formatted
from noiseproof.report import read_records

TITLES = {
    "sym_asym": "Symmetric and asymmetric noise",
    "agce_mae": "AGCE+MAE",
    "ablation": "Ablation: NCE, AMSE and their sum",
    "agce_mae_all": "AGCE+MAE by its weights",
    "instance": "Instance-dependent noise",
    "human": "Labels that people gave (CIFAR-10N)",
}
"""Of the paper's tables"""
VERDICTS = {"agrees": ("agrees with the paper", 0), "above": ("above it", 2), "below": ("below it", 1)}
PROFILE = "paper-code"


@functools.cache
def joined(folder: Path = RECORDS) -> list[CellResult]:
    """The paper's cells on CIFAR with our runs."""
    return join(chosen_cells(datasets=["cifar10", "cifar100"]), read_records(*(folder / name for name in REPEATED))).results


def paper_answer(folder: Path = RECORDS) -> str:
    """Whether the numbers hold, in words: those of the paper's own losses, and all."""
    told = answer(joined(folder))
    first, *_ = told.sentences
    return f"**{told.headline}. {first}**"


def paper_details(folder: Path = RECORDS) -> str:
    """How many agree, what speaks against the numbers, and how many seeds there are."""
    return "\n\n".join(answer(joined(folder)).sentences[1:])


def counted_cells() -> str:
    """What 439, 425 and 398 are."""
    every = list(cells())
    trained = [cell for cell in every if cell.quoted_from is None]
    cifar = [cell for cell in trained if cell.dataset.startswith("cifar")]
    measured = [result for result in joined() if result.sample is not None]
    return (
        f"The paper's tables print {len(every)} means. Its authors trained {len(trained)} of them and quote the other "
        f"{len(every) - len(trained)}. Of the trained ones, {len(cifar)} are on CIFAR-10 and CIFAR-100. The remaining "
        f"{len(trained) - len(cifar)} are on WebVision, ILSVRC12 and Clothing1M, whose images we do not have. So far "
        f"{len(measured)} of the {len(cifar)} have runs of ours. Several tables print the same mean, which leaves "
        f"{len(distinct(measured))} different results."
    )


def paper_tables(folder: Path = RECORDS) -> str:
    """Every table of which something is measured, behind a fold."""
    results, records = joined(folder), read_records(*(folder / name for name in REPEATED))
    seen = dict.fromkeys((one.cell.table, one.cell.dataset) for one in results if one.sample or one.diverged)
    parts, legend = [], ""
    for name, data in seen:
        shown = [one for one in results if (one.cell.table, one.cell.dataset) == (name, data)]
        text, _, legend = formatted(shown, "markdown").rpartition("\n\n")
        parts.append(folded(f"{TITLES.get(name, name)}, {DATASET_NAMES.get(data, data)}", text.partition("\n\n")[2]))
    made = sorted({f"{run['environment']['machine']}, torch {run['environment']['torch']}" for run in records})
    commits = sorted({str(run["environment"]["commit"]) for run in records})
    return "\n\n".join([legend, *parts, f"{'; '.join(made)}; commits {', '.join(commits)}; profile {PROFILE}, bf16."])


def agreement_plot() -> str:
    """Ours minus the paper's with its interval; results that differ after Holm's correction are named, alike ones once."""
    results = [one for one in distinct(joined()) if one.sample is not None and one.agreement.p is not None]
    corrected = holm([one.agreement.p or 0.0 for one in results])
    points, named = [], {""}
    for one, p in zip(results, corrected, strict=True):
        low, high = one.agreement.interval or (None, None)
        difference = one.agreement.difference or 0.0
        where = f"{one.cell.loss}, {one.cell.noise} {one.cell.rate or ''}".strip()
        label = where if p < ALPHA and where not in named else ""
        named.add(label)
        kind = [*VERDICTS].index(one.agreement.verdict)
        title = f"{where}: ours {one.cell.mean + difference:.1f}, the paper's {one.cell.mean:.1f}"
        points.append(Point(one.cell.mean, difference, title, kind, low, high, label))
    return figures.scatter(
        f"{len(points)} results on CIFAR-10, ours minus the paper's",
        sorted(points, key=lambda point: point.kind),
        list(VERDICTS.values()),
        across="test accuracy in the paper, %",
        up="difference in points, with its 95 % interval",
        reference="zero",
    )


CHARTS: dict[Path, Callable[[], str]] = {FIGURES / "paper.svg": agreement_plot}


def faithfulness() -> str:
    runs = [line for line in read_lines(REPEATED[1]) if "recipe" in line and is_finished(line)]
    groups: dict[tuple[str, str], dict[str, dict[int, float]]] = {}
    for run in runs:
        recipe = run["recipe"]
        accuracies = groups.setdefault((recipe["loss"], recipe["noise"]), {}).setdefault(recipe["precision"], {})
        accuracies[recipe["seed"]] = 100 * run["result"]["test_accuracy"]
    rows, apart = [], []
    for (loss, noise), found in groups.items():
        kind, _, rate = noise.partition(":")
        (cell,) = cells(
            table="sym_asym",
            dataset="cifar10",
            noise="clean" if kind == "none" else kind,
            rate=float(rate or 0),
            loss=loss.upper(),
        )
        paper = Sample(cell.mean, cell.std or math.nan, cell.trials or 1)
        for precision, values in found.items():
            theirs = {seed: value for seed, value in values.items() if seed in SEEDS}
            for some in (theirs, values) if len(values) > len(theirs) else (theirs,):
                own = Sample.of(some.values())
                seeds = f"{min(some)} to {max(some)}"
                rows.append([loss, noise, precision, seeds, own.text(), paper.text(), own.less(paper)])
        apart.append([loss, noise, Sample.of(found["bf16"].values()).less(Sample.of(found["tf32"].values()))])
    head = ["loss", "noise", "precision", "seeds", "test accuracy, last epoch", "paper", "difference"]
    return "\n\n".join(
        [
            table(["loss", "noise", "bf16 - TF32"], apart).rstrip(),
            folded("Test accuracy in either precision beside the paper's", table(head, rows) + _notes(runs)),
            f"{where_measured(runs)}, `benchmarks/faithfulness.py`.",
        ]
    )


class Sample(NamedTuple):
    """Some numbers by their mean, their deviation and how many they are, which is all that the paper gives of its own."""

    mean: float
    deviation: float
    size: int

    @staticmethod
    def of(values: Collection[float]) -> Sample:
        return Sample(statistics.mean(values), statistics.stdev(values), len(values))

    def text(self) -> str:
        return f"{self.mean:.2f} ± {self.deviation:.2f}"

    def less(self, other: Sample) -> str:
        """The difference of the means, and its interval."""
        shares = [sample.deviation**2 / sample.size for sample in (self, other)]
        freedom = sum(shares) ** 2 / (shares[0] ** 2 / (self.size - 1) + shares[1] ** 2 / (other.size - 1))
        half = stats.t.ppf(0.975, freedom) * math.sqrt(sum(shares))
        mean = self.mean - other.mean
        return f"{mean:+.2f} [{mean - half:+.2f}, {mean + half:+.2f}]"


def _notes(lines: list[dict[str, Any]]) -> str:
    return "".join(f"\nNote: {note}.\n" for note in sorted({line["note"] for line in lines if "note" in line}))
