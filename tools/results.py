"""docs/results.md, written from what is measured under records/.

    python tools/results.py FOLDER > page.md

prints the page that other records would give.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from decay_control import control
from scipy import stats
from text_or_code import where_they_differ
from torch import Tensor, nn
from torch.nn import functional

from noiseproof.models import create_model
from noiseproof.paper import SEEDS, cells
from noiseproof.paper.agreement import join
from noiseproof.paper.answer import answer
from noiseproof.paper.plan import chosen_cells
from noiseproof.paper.tables import formatted
from noiseproof.report import read_records

ROOT = Path(__file__).resolve().parent.parent
RECORDS = ROOT / "records"
RESULTS = ROOT / "docs" / "results.md"
REPEATED = ("reproduction.jsonl", "faithfulness_h200.jsonl", "control.jsonl")
"""Runs of the paper's cells; some of the control's have the decay that a cell has"""
NETWORK = ("convolution, linear", "norm, relu, pool")
AROUND = ("loss", "optimiser", "data, counting", "memory set")
BATCH, STEPS = 128, 391
"""Images of a step, and steps of an epoch of 50,000."""
MEMORY = 4.8e12
"""Bytes a second that the memory of an H200 moves, as its data sheet has it."""
NETWORKS = {"cifar10": ("cnn8", 10), "cifar100": ("resnet34", 100)}
PUBLISHED_SCRIPT = 4.05
"""Seconds an epoch of CIFAR-10 takes the published script on the same GPU, with 16 CPU cores and 8 loader workers."""


PHASES = {"prepare": "data and graphs", "train": "training", "evaluate": "tests", "save": "its files"}


def results(folder: Path = RECORDS) -> str:
    """The page, fresh."""
    repeated = [folder / name for name in REPEATED]
    timed, earlier = (_lines(f"training_h200{which}.jsonl", folder) for which in ("", "_before"))
    parts = [
        "# Measured results\n",
        "Written by `make generate` from the JSON lines under `records/`, which have machine, versions, commit and date.\n",
        reproduction(repeated),
        where_they_differ(repeated),
        control(*repeated),
        training(timed),
        in_the_queue(_lines(REPEATED[0], folder), timed),
        before(timed, earlier),
        profile(timed),
        faithfulness(_lines(REPEATED[1], folder)),
        tests(_lines("tests_h200.jsonl", folder)),
        losses(_lines("losses_cpu.jsonl", folder)),
    ]
    return "\n".join(part for part in parts if part)


def reproduction(files: Sequence[Path]) -> str:
    """The answer first, then every table of which something is measured."""
    records = read_records(*files)
    joined = join(chosen_cells(datasets=["cifar10", "cifar100"]), records)
    told = answer(joined.results)
    seen = {(result.cell.table, result.cell.dataset) for result in joined.results if result.sample or result.diverged}
    shown = [result for result in joined.results if (result.cell.table, result.cell.dataset) in seen]
    made = sorted({f"{run['environment']['machine']}, torch {run['environment']['torch']}" for run in records})
    commits = sorted({str(run["environment"]["commit"]) for run in records})
    again = " ".join(f"--records records/{file.name}" for file in files)
    parts = [
        f"## {told.headline}\n",
        "\n\n".join(told.sentences) + "\n",
        f"{'; '.join(made)}; commits {', '.join(commits)}; profile paper-code, bf16. The result is the last epoch's. "
        f"`noiseproof reproduce {again}` prints these tables from the records; with `--data DIR` it runs what is missing, "
        "and `--page FILE` writes a page in which each number leads to its runs and to the command of each.\n",
        formatted(shown, "markdown"),
    ]
    return "\n".join(part for part in parts if part)


def training(lines: list[dict[str, Any]]) -> str:
    rows = []
    for line in lines:
        low, high = line["range"]
        rows.append(
            [
                line["protocol"],
                line["way"],
                line["precision"],
                line["together"],
                f"{line['seconds_per_epoch']:.3f} [{low:.3f}, {high:.3f}]",
                f"{PUBLISHED_SCRIPT / line['seconds_per_epoch']:.2g}x" if line["protocol"] == "cifar10" else "",
                line["memory_gib"],
            ]
        )
    head = ["protocol", "way", "precision", "runs at once", "seconds per epoch and run", "speed-up", "GiB"]
    return (
        "## Speed of training\n\n"
        f"{_where(lines)}. `benchmarks/training.py`: JAL-CE under 80 % symmetric noise, the paper's protocols, images of "
        "random numbers; training without evaluation. Medians of the epochs after the first, with smallest and largest, "
        "divided by the number of concurrent runs. "
        f"The speed-up is over the published script, which takes {PUBLISHED_SCRIPT} s an epoch of CIFAR-10 there.\n\n"
        + _table(head, rows)
    )


def in_the_queue(runs: list[dict[str, Any]], timed: list[dict[str, Any]]) -> str:
    """What a whole run of the tables takes of the device, compared with its epochs alone, at the last commit that made some."""
    whole = [run for run in runs if is_finished(run) and run["recipe"]["dataset"] == "cifar10"]
    made = [run for run in whole if run["environment"].get("at_once", 1) > 1]
    commit = made[-1]["environment"]["commit"]
    width = max(run["environment"]["at_once"] for run in made if run["environment"]["commit"] == commit)
    last = [run for run in made if (run["environment"]["commit"], run["environment"]["at_once"]) == (commit, width)]
    wall = statistics.median(sum(run["seconds"].values()) for run in last)
    phases = {name: statistics.median(run["seconds"].get(name, 0.0) for run in last) for name in last[0]["seconds"]}
    alone = [line for line in timed if (line["protocol"], line["way"], line["precision"]) == ("cifar10", "fast path", "bf16")]
    epoch = min(line["seconds_per_epoch"] for line in alone)
    share, epochs = wall / width, last[0]["recipe"]["epochs"]
    train = epoch * epochs
    return (
        "### A run in the queue\n\n"
        f"`noiseproof reproduce`, {len(last)} runs on CIFAR-10 of commit {commit}, {width} of them concurrent. A run takes "
        f"{wall:.0f} s (median), and so {share:.1f} s of the device's time; its {epochs} epochs of training alone take "
        f"{train:.1f} s by the table above, {100 * (1 - train / share):.0f} % less. By its own clock it has "
        + ", ".join(f"{seconds:.0f} s for {PHASES[name]}" for name, seconds in phases.items())
        + ", while the others train. The test set after every epoch is most of the difference: a forward pass over a fifth as "
        "many images.\n"
    )


def before(now: list[dict[str, Any]], earlier: list[dict[str, Any]]) -> str:
    """The fast path in other processes, each of another commit."""

    def measured(lines: Iterable[dict[str, Any]]) -> dict[tuple[str, str, int], float]:
        ours = (line for line in lines if line["way"] == "fast path")
        return {(line["protocol"], line["precision"], line["together"]): line["seconds_per_epoch"] for line in ours}

    by_commit: dict[str, list[dict[str, Any]]] = {}
    for line in earlier:
        by_commit.setdefault(line["environment"]["commit"], []).append(line)
    columns = [*map(measured, by_commit.values()), measured(now)]  # now: as the table above has them, of whatever commits
    rows = []
    for key in dict.fromkeys(key for column in columns for key in column):
        seconds = [column[key] for column in columns if key in column]
        cells = [f"{column[key]:.3f}" if key in column else "" for column in columns]
        rows.append([*key, *cells, f"{100 * (max(seconds) / min(seconds) - 1):.1f} %"])
    return (
        "### The fast path in other processes\n\n"
        f"{_where(earlier)}. In each process cuDNN chooses its algorithms anew by their time, so that a few per cent are "
        "between one and the next; since the first of these commits, predictions are counted beside the backward pass "
        "instead of with the loss, and in the last one the loss is computed by our kernels. Seconds per epoch and run.\n\n"
        + _table(["protocol", "precision", "runs at once", *by_commit, "above", "largest over smallest"], rows)
    )


def profile(lines: list[dict[str, Any]]) -> str:
    rows = []
    for line in lines:
        if "profile" not in line:
            continue
        micros = line["profile"]["microseconds"]
        total = sum(micros.values())
        network = sum(micros.get(kind, 0.0) for kind in NETWORK)
        kinds = [f"{micros.get(kind, 0.0):.0f}" for kind in (*NETWORK, *AROUND)]
        share = f"{100 * (total - network) / total:.0f} %"
        rows.append([line["protocol"], line["way"], line["precision"], *kinds, line["profile"]["kernels"], share])
    head = ["protocol", "way", "precision", *NETWORK, *AROUND, "kernels", "not the network"]
    return (
        "### One step by kernel, in microseconds\n\n"
        "Kernels one after the other, so that each is counted with its own time.\n\n"
        + _table(head, rows)
        + _notes(lines)
        + _bound(lines)
    )


def _bound(lines: list[dict[str, Any]]) -> str:
    """How near several runs at once come to convolutions and norms without pauses, one after the other."""
    rows = []
    for protocol, (model, classes) in NETWORKS.items():
        ours = [line for line in lines if (line["protocol"], line["way"], line["precision"]) == (protocol, "fast path", "bf16")]
        profiled = next(line["profile"]["microseconds"] for line in ours if "profile" in line)
        convolutions = STEPS * profiled[NETWORK[0]] / 1e6
        moved = 2 * norm_numbers(model, classes)
        norms = STEPS * moved / MEMORY
        best = min(line["seconds_per_epoch"] for line in ours)
        row = (f"{convolutions:.3f}", f"{moved / 1e6:.0f}", f"{norms:.3f}", f"{convolutions + norms:.3f}", f"{best:.3f}")
        rows.append([protocol, *row])
    head = ["protocol", "convolutions", "MB a step", "norms at memory speed", "sum", "measured, best"]
    return (
        "\nSeveral runs at once fill what one leaves idle. Seconds per epoch in bf16, of the convolutions (cuDNN's) as "
        "profiled and of what the norms must read and write, at the speed of the memory. To be faster than the sum, "
        "convolutions and norms would have to be at work at the same time, or the convolutions be others.\n\n"
        + _table(head, rows)
    )


class _Counting(nn.Module):
    """In the place of a BatchNorm: counts what our kernels read and write for it, forward and backward."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def activated(self, x: Tensor, shortcut: Tensor | None = None, *, pool: bool = False) -> Tensor:
        y = functional.max_pool2d(x, 2) if pool else x
        # The input is read for its moments, for the result, and twice for the gradient, which is then written. The result is
        # written, and its gradient read twice. With a shortcut, that and the result are read, and its gradient is written.
        self.numbers += 5 * x.numel() + 3 * y.numel() + (0 if shortcut is None else 3 * x.numel())
        return y

    forward = activated


def norm_numbers(model: str, classes: int) -> int:
    """Numbers that the norms of a network read and write in a step."""
    with torch.device("meta"):
        network = create_model(model, classes)
        for parent in list(network.modules()):
            for name, child in parent.named_children():
                if isinstance(child, nn.BatchNorm1d | nn.BatchNorm2d):
                    setattr(parent, name, _Counting())
        network(torch.empty(BATCH, 3, 32, 32))
    return sum(module.numbers for module in network.modules() if isinstance(module, _Counting))


def faithfulness(lines: list[dict[str, Any]]) -> str:
    runs = [line for line in lines if "recipe" in line and is_finished(line)]
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
    return (
        "## Whether it trains what the paper trained\n\n"
        f"{_where(runs)}. `benchmarks/faithfulness.py`: CIFAR-10, the profile `paper-code`, 120 epochs, several concurrent "
        "runs. Means and deviations over seeds; differences in points, with 95 % intervals by Welch's t. With zero in the "
        f"interval, it is no more than seeds make. The paper's are three trials, of the seeds {min(SEEDS)} to "
        f"{max(SEEDS)}: most of an interval's width is theirs where ours are more.\n\n"
        + _table(head, rows)
        + "\nWhat bf16 changes against TF32, over all seeds:\n\n"
        + _table(["loss", "noise", "bf16 - TF32"], apart)
        + _notes(runs)
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


def tests(lines: list[dict[str, Any]]) -> str:
    outcomes = ("passed", "skipped", "failed", "left")
    rows = [
        [
            f"`{line['tests']}`",
            line["environment"]["commit"],
            *(line.get(key, "") for key in ("passed", "skipped", "failed", "left")),
        ]
        for line in lines
    ]
    return (
        "## Tests on a GPU\n\n"
        f"{_where(lines)}. Among them: concurrent runs give exactly, bit for bit, the losses of each step, the weights and "
        "the accuracy of the same runs alone, in bf16 and in TF32 "
        "(`test_concurrent_runs_give_exactly_what_each_gives_alone`); the fast path gives the plain one's losses in float32 "
        "up to rounding; a run that is killed and started again in deterministic mode ends with the same files to the bit "
        "(`test_images_in_deterministic_mode_end_the_same_in_every_process`, cnn8 in TF32 and bf16, resnet18 in bf16; one of "
        "the four runs on the CPU); within an epoch the host does not wait for the device. `python tools/gpu_tests.py` runs "
        "tests on a GPU; *left* are those that it did not reach in its time.\n\n" + _table(["tests", "commit", *outcomes], rows)
    )


def losses(lines: list[dict[str, Any]]) -> str:
    machine, measured = lines[0]["machine"], lines[1:]
    rows = [
        [
            line["loss"],
            line["rows"],
            line["classes"],
            *(line["milliseconds"].get(key, "") for key in ("ours", "plain", "ours compiled", "compiled", "cross entropy")),
            *(line.get(key, "") for key in ("ours over cross entropy", "ours over plain")),
            *(line.get(key, "") for key in ("ours over plain, compiled", "in functions, compiled")),
        ]
        for line in measured
    ]
    head = ["loss", "N", "K", "ours, ms", "plain", "ours, compiled", "plain, compiled", "F.cross_entropy"]
    head += ["ours / F.ce", "ours / plain", "both compiled", "the same, in functions"]
    return (
        "## Speed of the losses on a CPU\n\n"
        f"{machine['processor']}, {machine['threads']} threads, torch {machine['torch']}, commit {machine['commit']}, "
        f"{machine['date']}, load of the machine {machine['load']}, {lines[0]['clock']} time. `benchmarks/losses.py`: forward "
        "and backward, float32, medians. Compiled, ours is a module and the plain formula a function, which is checked with "
        "less at every call; in the last column both are called in a function.\n\n" + _table(head, rows)
    )


def is_finished(run: dict[str, Any]) -> bool:
    """One that diverged has no result."""
    return bool(run.get("status", "finished") == "finished")


def _notes(lines: list[dict[str, Any]]) -> str:
    return "".join(f"\nNote: {note}.\n" for note in sorted({line["note"] for line in lines if "note" in line}))


def _where(lines: list[dict[str, Any]]) -> str:
    facts = lines[0]["environment"]
    dates = sorted({line.get("date") or line["environment"]["date"] for line in lines})
    commits = dict.fromkeys(line["environment"]["commit"] for line in lines)
    return f"{facts['machine']}, torch {facts['torch']}, commit {', '.join(commits)}, {' and '.join(dates)}"


def _table(head: Iterable[Any], rows: Iterable[Iterable[Any]]) -> str:
    lines = [head, ["---"] * len(list(head)), *rows]
    return "".join("| " + " | ".join(str(cell) for cell in line) + " |\n" for line in lines)


def _lines(name: str, folder: Path = RECORDS) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / name).read_text(encoding="utf-8").splitlines()]


if __name__ == "__main__":
    print(results(Path(sys.argv[1])) if len(sys.argv) > 1 else results(), end="")
