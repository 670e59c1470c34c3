"""docs/benchmarks/speed.md on training, its tests on a GPU and the losses on a CPU, from the records."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import figures
import torch
from figures import Dot, Mark
from kernel_record import kernels_answer
from results import FIGURES, REPEATED, folded, is_finished, read_lines, table, where_measured
from torch import Tensor, nn
from torch.nn import functional

from noiseproof.models import create_model

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
    about = (
        "`benchmarks/training.py` trains JAL-CE under 80 % symmetric noise with the paper's protocols on "
        "random images, without "
        "evaluation. Numbers are medians of the epochs after the first, with minimum and maximum, divided by the number of "
        f"concurrent runs. The speed-up is relative to the published script, which needs {PUBLISHED_SCRIPT} s for an epoch of "
        "CIFAR-10."
    )
    return folded("Seconds per epoch", about, table(head, rows), where_measured(lines) + ".")


def training_answer() -> str:
    """The fastest way beside plain torch and the published script."""
    ours = [line for line in read_lines("training_h200.jsonl") if (line["protocol"], line["precision"]) == ("cifar10", "bf16")]
    seconds = {way: min(line["seconds_per_epoch"] for line in ours if line["way"] == way) for way in ("eager", "fast path")}
    return (
        f"An epoch of CIFAR-10 takes {seconds['fast path']:.2f} s per run on an H200, {seconds['eager']:.1f} s in plain torch "
        f"and {PUBLISHED_SCRIPT} s by the published script: {PUBLISHED_SCRIPT / seconds['fast path']:.0f} times as fast as "
        "the script."
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
        f"`noiseproof reproduce` trained {len(last)} runs on CIFAR-10 at commit {commit}, {width} of them concurrently. A run "
        f"takes {wall:.0f} s (median), which is {share:.1f} s of the device's time. By the table above, its {epochs} epochs of "
        f"training alone take {train:.1f} s, {100 * (1 - train / share):.0f} % less. A run spends "
        + ", ".join(f"{seconds:.0f} s on {PHASES[name]}" for name, seconds in phases.items())
        + " while the others train. Most of the difference is the evaluation after every epoch, a forward pass over a fifth as "
        "many images."
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
    about = (
        "Seconds per epoch and run at three commits. cuDNN chooses its algorithms anew in each process, so "
        "processes differ by a "
        "few per cent. Since the first of these commits, predictions are counted concurrently with the backward pass. In the "
        "last one, the loss is computed by our kernels."
    )
    head = ["protocol", "precision", "runs at once", *by_commit, "above", "largest over smallest"]
    return folded("The fast path in other processes", about, table(head, rows), where_measured(earlier) + ".")


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
    about = "Kernels were run one after the other, so that each is measured by itself."
    return folded("One step by kernel, in microseconds", about, table(head, rows), _notes(lines), _bound(lines))


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
        "\nConcurrent runs use the time in which a single run leaves the device idle. The table compares them with a bound in "
        "seconds per epoch (bf16): the profiled time of cuDNN's convolutions, plus the time in which the "
        "memory can be read and "
        "written for the norms.\n\n" + table(head, rows)
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
    about = (
        "`python tools/gpu_tests.py` runs tests on a GPU. They include these:\n\n"
        "- Concurrent runs equal the same runs alone bit for bit, in bf16 and in TF32: the losses of each "
        "step, the weights and "
        "the accuracy (`test_concurrent_runs_give_exactly_what_each_gives_alone`).\n"
        "- The fast path gives the losses of the plain path in float32 up to rounding.\n"
        "- A run that is killed and started again in deterministic mode ends with the same files bit for bit "
        "(`test_images_in_deterministic_mode_end_the_same_in_every_process`, cnn8 in TF32 and bf16, resnet18 in bf16; one of "
        "the four runs on the CPU).\n"
        "- Within an epoch the host does not wait for the device.\n\n"
        "*Left* is the number of tests that were not reached within the time limit."
    )
    return folded("Tests on a GPU", about, table(["tests", "commit", *outcomes], rows), where_measured(lines) + ".")


def losses() -> str:
    lines = read_lines("losses_cpu.jsonl")
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
    about = (
        f"{machine['processor']}, {machine['threads']} threads, torch {machine['torch']}, commit {machine['commit']}, "
        f"{machine['date']}, load of the machine {machine['load']}, {lines[0]['clock']} time. `benchmarks/losses.py`: forward "
        "and backward, float32, medians. Compiled, ours is a module and the plain formula a function, which is checked with "
        "less at every call; in the last column both are called in a function."
    )
    return folded("Milliseconds of a step by loss and shape", about, table(head, rows))


def cpu_ratios() -> str:
    """How many times `F.cross_entropy`'s time a step of JAL-CE and of the plain formula takes, by shape."""
    rows = []
    for line in read_lines("losses_cpu.jsonl")[1:]:
        if line["loss"] == "jal-ce":
            times = {name: line["milliseconds"][name] / line["milliseconds"]["cross entropy"] for name in ("ours", "plain")}
            marks = [Mark(value, kind, f"{name}: {value:.1f}") for kind, (name, value) in enumerate(times.items())]
            rows.append((f"{line['rows']:,} x {line['classes']:,}", marks))
    kinds = [("noiseproof.JALCE", 1), ("plain formula", 0)]
    title, across = "Step of JAL-CE on one CPU core, by batch x classes", "times as long as F.cross_entropy"
    return figures.rows_of_marks(title, rows, kinds, across=across, zero=True)


def seconds_per_epoch() -> str:
    """Of CIFAR-10 in bf16, by the way to train."""
    lines = [one for one in read_lines("training_h200.jsonl") if (one["protocol"], one["precision"]) == ("cifar10", "bf16")]
    rows = [Dot("published script", PUBLISHED_SCRIPT, color=0)]
    for line in lines:
        together = f", {line['together']} at once" if line["together"] > 1 else ""
        rows.append(Dot(f"{line['way']}{together}", line["seconds_per_epoch"], color=1))
    return figures.intervals("Seconds per epoch of CIFAR-10, H200", rows, across="seconds per epoch and run, bf16", digits=2)


CHARTS: dict[Path, Callable[[], str]] = {
    FIGURES / "speed_cpu.svg": cpu_ratios,
    FIGURES / "speed_training.svg": seconds_per_epoch,
}


def _notes(lines: list[dict[str, Any]]) -> str:
    return "".join(f"\nNote: {note}.\n" for note in sorted({line["note"] for line in lines if "note" in line}))


def speed_of_training() -> str:
    """The section on the trainer."""
    timed, earlier = (read_lines(f"training_h200{which}.jsonl") for which in ("", "_before"))
    queue = folded("A run among others in the queue", in_the_queue(read_lines(REPEATED[0]), timed))
    return "\n\n".join([training(timed), queue, before(timed, earlier), profile(timed), tests(read_lines("tests_h200.jsonl"))])


def speed_answer() -> str:
    """The first paragraph of the page: large vocabularies, small batches, training."""
    small = next(line for line in read_lines("losses_cpu.jsonl")[1:] if line["loss"] == "jal-ce")
    return (
        f"**{kernels_answer()}** On a small batch the losses are slower: {small['rows']} x {small['classes']} takes "
        f"{small['ours over cross entropy']:.1f} times as long as `F.cross_entropy` on a CPU core. {training_answer()}"
    )
