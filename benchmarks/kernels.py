"""Speed of the losses on a GPU: ours, plain formulas eager and compiled, F.cross_entropy, Liger's, and a copy as the floor.

    python benchmarks/kernels.py [--check] [--launches] [--tune] [--alone] [--host] [--seconds 150] [--json FILE] [--only big]

Forward plus backward, mean reduction. The contestants of a shape take turns within one run; each number is a median with its
quartiles. Inputs rotate where they would fit into the cache. ``GB/s`` counts the passes that the two kernels make over the
logits: a reading, then a reading and a writing (and one more reading for a room of over 1,024 classes, or a focal sum of so
many that moments do not suffice for); of the others it counts the same three. ``copy`` reads and writes the logits once,
``graph`` is a step replayed as a CUDA graph, and of ``in forward`` the gradient is made along with the loss: a reading and a
writing.
``--check`` compares every row sum with float64 first, prints what fails and goes on; ``--tune`` also times the kernels alone
and in other shapes, ``--alone`` nothing but the kernels, as CUDA graphs, ``--host`` nothing but small batches, by the host's
clock. What is worth most comes first, and after ``--seconds`` nothing is started. The lines of ``--json`` may be put behind
those of records/kernels_h200.jsonl: of what is there twice the pages have the last.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 - the name every PyTorch reader expects
from losses import PLAIN
from torch import Tensor

import noiseproof
from noiseproof.core.row_sums import RowSum, parse
from noiseproof.train.record import environment

DEVICE = "cuda"
CACHE = 2**28  # bytes of inputs to rotate among, several times the second-level cache
Loss = Callable[[Tensor, Tensor], Tensor]
Step = Callable[[], Any]
Batches = list[tuple[Tensor, Tensor]]


def _plain_anl_ce(logits: Tensor, target: Tensor) -> Tensor:
    log_p = F.log_softmax(logits, dim=1)
    one_hot = F.one_hot(target, logits.shape[1]).float()
    room = torch.clamp(log_p, min=-18.420681) + 18.420681
    nce = (one_hot * log_p).sum(1) / log_p.sum(1)
    return (5 * nce + 5 * (1 - (one_hot * room).sum(1) / room.sum(1))).mean()


FORMULAS: dict[str, Loss] = {**PLAIN, "ce": F.cross_entropy, "anl-ce": _plain_anl_ce}
OURS = ("tile_", "stream_", "held_", "small_", "program", "scaled", "add_up", "weigh")
"""How the names of our kernels begin"""
LOSSES = ("jal-ce", "ce", "jal-fl", "anl-ce", "gce")


class Case(NamedTuple):
    """What is timed together."""

    group: str
    rows: int
    classes: int
    dtype: torch.dtype
    losses: tuple[str, ...] = ()
    ways: tuple[str, ...] = ()
    share: float = 0.1
    """Seconds of timing for each contestant"""


BF16, FP32 = torch.bfloat16, torch.float32
CASES = (
    Case("big", 8192, 128256, BF16, LOSSES, ("ours", "copy", "cross entropy", "in forward", "liger"), 0.4),
    Case("wide", 32768, 1000, BF16, LOSSES, ("ours", "copy", "cross entropy", "liger")),
    Case("wide", 32768, 4096, BF16, LOSSES, ("ours", "copy", "cross entropy")),
    Case("small", 128, 10, FP32, LOSSES, ("ours", "graph", "cross entropy", "graph cross entropy")),
    Case("compiled", 8192, 128256, BF16, ("jal-ce",), ("compiled", "plain compiled", "ours", "cross entropy compiled"), 0.2),
    Case("compiled", 128, 10, FP32, ("jal-ce",), ("compiled", "graph compiled", "plain", "plain compiled", "cross entropy")),
    Case("compiled", 32768, 1000, BF16, ("jal-ce",), ("compiled", "plain compiled", "ours")),
    Case("compiled", 32768, 4096, BF16, ("jal-ce",), ("compiled", "plain compiled", "ours")),
    Case("plain", 8192, 128256, BF16, ("jal-ce", "jal-fl"), ("plain", "ours"), 0.2),
    Case("more", 16384, 32768, BF16, LOSSES, ("ours", "copy", "cross entropy")),
    Case("small", 128, 100, FP32, LOSSES, ("ours", "graph", "cross entropy", "graph cross entropy"), 0.05),
    Case("float32", 8192, 128256, FP32, ("jal-ce", "ce", "jal-fl"), ("ours", "copy", "cross entropy")),
    Case("float32", 32768, 1000, FP32, ("jal-ce", "ce"), ("ours", "copy", "cross entropy")),
    Case("float32", 32768, 4096, FP32, ("jal-ce", "ce"), ("ours", "copy", "cross entropy")),
    Case("plain", 32768, 1000, BF16, ("jal-ce", "jal-fl", "anl-ce"), ("plain", "ours")),
)


class Clock:
    """The time that is left, and where results go, a line each."""

    def __init__(self, seconds: float, path: Path | None) -> None:
        self.start, self.seconds, self.path = time.perf_counter(), seconds, path

    @property
    def left(self) -> float:
        return self.seconds - (time.perf_counter() - self.start)

    def say(self, **line: Any) -> None:
        line["at"] = round(time.perf_counter() - self.start, 1)
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        print(" ".join(f"{key}={value}" for key, value in line.items()), flush=True)

    def failed(self, what: str, error: Exception) -> None:
        traceback.print_exc(limit=-4)
        self.say(failed=what, error=f"{type(error).__name__}: {error}"[:600])


def drawn(case: Case) -> Batches:
    """Leaves and labels to rotate among."""
    generator = torch.Generator(DEVICE).manual_seed(0)
    size = case.rows * case.classes * case.dtype.itemsize
    batches = []
    for _ in range(max(1, min(8, CACHE // size)) if size > 2**20 else 1):
        logits = torch.empty((case.rows, case.classes), dtype=case.dtype, device=DEVICE).normal_(0, 2, generator=generator)
        batches.append((logits.requires_grad_(), torch.randint(case.classes, (case.rows,), device=DEVICE, generator=generator)))
    return batches


def step_of(loss: Loss, batches: Batches) -> Step:
    turns = itertools.cycle(batches)

    def run() -> None:
        logits, target = next(turns)
        logits.grad = None
        loss(logits, target).backward()

    return run


def captured(run: Step) -> Step:
    """The step as a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def copy_of(batches: Batches) -> Step:
    out, turns = torch.empty_like(batches[0][0]).detach(), itertools.cycle([logits.detach() for logits, _ in batches])
    return lambda: out.copy_(next(turns))


def liger(batches: Batches) -> Step:
    from liger_kernel.transformers import LigerCrossEntropyLoss  # type: ignore[import-not-found,unused-ignore] # may be absent

    # It writes the gradient over the logits, on which classes tie: the others are given what they were given.
    return step_of(LigerCrossEntropyLoss(), [(logits.detach().clone().requires_grad_(), target) for logits, target in batches])


def made(name: str, way: str, batches: Batches) -> Step:
    """A step of a loss: ours or ``plain``, ``compiled``, as a ``graph``."""
    loss: Loss = FORMULAS[name] if "plain" in way or "cross" in way else noiseproof.create_loss(name).to(DEVICE)
    if way == "in forward":
        loss = noiseproof.GradientInForward(loss)  # type: ignore[arg-type] # a RobustLoss, by its way
    if way.endswith("compiled"):
        loss = torch.compile(loss, fullgraph=True, dynamic=False)
    run = step_of(loss, batches)
    return captured(run) if way.startswith("graph") else run


def contestants(case: Case, batches: Batches) -> Iterator[tuple[str, str, Callable[[], Step]]]:
    """Loss, way, and what makes the step."""
    for way in case.ways:
        if way == "copy":
            yield way, way, partial(copy_of, batches)
        elif way == "liger":
            yield "ce", way, partial(liger, batches)
        else:
            for name in ("ce",) if "cross" in way else case.losses[:1] if way == "in forward" else case.losses:
                yield name, way, partial(made, name, way, batches)


def measured(case: Case, clock: Clock) -> None:
    """All contestants of a case, in turns."""
    batches = drawn(case)
    steps: dict[tuple[str, str], Step] = {}
    peaks: dict[tuple[str, str], float] = {}
    for name, way, make in contestants(case, batches):
        if clock.left < 5:
            break
        for logits, _ in batches:
            logits.grad = None
        try:
            run = make()
            run()
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            run()
            torch.cuda.synchronize()
            peaks[name, way] = (torch.cuda.max_memory_allocated() - before) / 2**20
            steps[name, way] = run
        except Exception as error:  # one that fails or does not fit must not end the others
            if way != "liger":  # which need not be installed
                clock.failed(f"{name} {way} {case.rows} {case.classes}", error)
    times = in_turns(steps, min(case.share * len(steps), max(1.0, clock.left - 3)))
    megabytes = case.rows * case.classes * case.dtype.itemsize / 1e6
    shape = {"rows": case.rows, "classes": case.classes, "dtype": str(case.dtype).removeprefix("torch.")}
    for (name, way), values in times.items():
        again = reads_twice(name, case.classes) and way in ("ours", "compiled", "graph")
        moved = megabytes * (2 if way in ("copy", "in forward") else 4 if again else 3)
        clock.say(loss=name, way=way, **shape, **figures(values, moved), peak_MiB=round(peaks[name, way], 1))


def figures(values: list[float], megabytes: float) -> dict[str, Any]:
    middle = statistics.median(values)
    quartiles = [round(values[len(values) // 4], 5), round(values[3 * len(values) // 4], 5)]
    return {"ms": round(middle, 5), "quartiles": quartiles, "n": len(values), "GB/s": round(megabytes / middle)}


def in_turns(steps: dict[Any, Step], seconds: float) -> dict[Any, list[float]]:
    """Milliseconds of each, sorted; a turn is several steps, so that the device need not wait for the host's first."""
    counts = {key: max(4, min(50, int(2.0 / max(1e-3, timed(run, 3))))) for key, run in steps.items()}
    times: dict[Any, list[float]] = {key: [] for key in steps}
    end = time.perf_counter() + seconds
    while steps and (time.perf_counter() < end or len(next(iter(times.values()))) < 5):
        for key, run in steps.items():
            times[key].append(timed(run, counts[key]))
    return {key: sorted(values) for key, values in times.items()}


def timed(run: Step, count: int) -> float:
    """Milliseconds of a step."""
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    first.record()
    for _ in range(count):
        run()
    last.record()
    last.synchronize()
    return float(first.elapsed_time(last)) / count


def passes_of(needs: list[RowSum], batches: Batches) -> dict[str, Step]:
    """The two kernels alone, without autograd and the vectors between them."""
    from noiseproof.kernels import passes as kernels

    turns = itertools.cycle([(logits.detach(), target) for logits, target in batches])
    values, saved = kernels.forward(*next(turns), needs, FP32)
    grads, out = torch.rand_like(values), torch.empty_like(batches[0][0]).detach()
    return {
        "forward": lambda: kernels.forward(*next(turns), needs, FP32),
        "backward": lambda: kernels.backward(grads, *next(turns), values, saved, needs, out),
    }


def in_forward(name: str, batches: Batches) -> dict[str, Step]:
    """All kernels that make the gradient along with the loss."""
    criterion = noiseproof.GradientInForward(noiseproof.create_loss(name).to(DEVICE))
    turns = itertools.cycle(batches)
    return {"in-forward": lambda: criterion(*next(turns))}


def warmed(cases: list[Case], clock: Clock) -> None:
    """Compile the kernels of all cases, several at single_pass."""

    def one(job: tuple[str, int, torch.dtype]) -> None:
        name, classes, dtype = job
        batches = drawn(Case("warm", 2, classes, dtype))
        for run in (passes_of(asked_by(name), batches) | in_forward(name, batches)).values():
            run()

    jobs = dict.fromkeys((name, case.classes, case.dtype) for case in cases for name in case.losses if "ours" in case.ways)
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(one, jobs))
    clock.say(warmed=len(jobs))


def asked_by(name: str) -> list[RowSum]:
    """What a loss asks the operation for."""
    needs: Any = noiseproof.create_loss(name).needs
    return [parse(key) for key in sorted({s.key for s in needs if s.key})]


def reads_twice(name: str, classes: int) -> bool:
    """Whether the first pass reads a row again from memory."""
    from noiseproof.kernels.passes import moments_suffice

    needs = asked_by(name) if name in LOSSES else []
    return (
        classes > 1024
        and any(p.kind in ("focal", "clipped_focal") for p in needs)
        and not moments_suffice(tuple(needs), classes)
    )


def kernel_times(case: Case, clock: Clock) -> None:
    """The kernels of each loss alone, replayed as CUDA graphs: at a few thousand classes the host would be slower.

    The two passes, and as ``in-forward`` all that makes the gradient along with the loss.
    """
    batches = drawn(case)
    megabytes = case.rows * case.classes * case.dtype.itemsize / 1e6
    count = max(2, min(48, int(3e3 / megabytes)))
    copied = {"copy": copy_of(batches)}
    for name in case.losses:
        runs = passes_of(asked_by(name), batches) | in_forward(name, batches) | copied
        steps = {key: captured(partial(repeated, run, count)) for key, run in runs.items()}
        for key, values in in_turns(steps, case.share).items():
            moved = megabytes * (1 if key == "forward" else 2)
            shape = {"rows": case.rows, "classes": case.classes}
            clock.say(kernel=key, loss=name, **shape, **figures([value / count for value in values], moved))


def repeated(run: Step, count: int) -> None:
    for _ in range(count):
        run()


def tuned(case: Case, clock: Clock) -> None:
    """Other shapes of the long rows' programs."""
    from noiseproof.kernels import passes as kernels

    batches = drawn(case)
    nll, square, focal = RowSum("nll"), RowSum("power", 2.0), RowSum("focal", 0.5)
    room = RowSum("clipped_focal", 0.0, 1e-8)
    plan: list[tuple[str, str, list[RowSum], tuple[int, ...]]]
    plan = [("LONG_ROWS", "forward", [nll, square], shape) for shape in ((2, 4), (4, 2), (4, 4), (4, 8), (8, 4))]
    plan += [
        ("BACKWARD_ROWS", "backward", [nll, square], shape) for shape in ((4, 2), (4, 2, 4), (4, 2, 16), (4, 4, 4), (8, 2, 4))
    ]
    plan += [("REREAD_ROWS", "forward", [nll, room], shape) for shape in ((4, 2), (4, 4), (8, 2), (16, 2))]
    plan += [("BACKWARD_ROWS", "backward", [focal, square], shape) for shape in ((4, 2), (4, 2, 4), (8, 1, 4))]
    for which, key, needs, shape in plan:
        if clock.left < 5:
            return
        kept = getattr(kernels, which)
        setattr(kernels, which, kernels.StreamShape(*shape))
        try:
            run = passes_of(needs, batches)[key]
            run()
            clock.say(tune=which, needs=needs[-1].kind, shape=list(shape), ms=round(min(timed(run, 4) for _ in range(4)), 4))
        except Exception as error:  # a shape that does not compile or fit is said
            clock.failed(f"{which} {shape}", error)
        setattr(kernels, which, kept)


def launches(clock: Clock) -> None:
    """Kernels of a step at (128, 10), by the profiler."""
    from torch.profiler import ProfilerActivity, profile

    batches = drawn(Case("small", 128, 10, FP32))
    for name, way in [*((name, "ours") for name in LOSSES), ("ce", "plain"), ("jal-ce", "plain"), ("jal-ce", "compiled")]:
        run = made(name, way, batches)
        run(), run()
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as profiler:
            run()
            torch.cuda.synchronize()
        found = [event for event in profiler.events() if str(event.device_type).endswith("CUDA")]
        ours = sorted({event.name for event in found if event.name.startswith(OURS)})
        clock.say(launches=len(found), loss=name, way=way, ours=ours)


def about(arguments: argparse.Namespace) -> dict[str, Any]:
    """What a run begins with in the record: code and machine, and what was asked for."""
    facts = environment(torch.device(DEVICE))
    words = [f"--{name}" for name in ("check", "launches", "host", "tune", "alone") if getattr(arguments, name)]
    words += ["--only", *arguments.only] if arguments.only else []
    same = {name: facts[name] for name in ("torch", "python", "commit", "date")}
    return {"device": facts["machine"], **same, "protocol": " ".join(["benchmarks/kernels.py", *words])}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with float64 first")
    parser.add_argument("--launches", action="store_true", help="also count the kernels of a step at 128 rows of 10 classes")
    parser.add_argument("--host", action="store_true", help="time what small batches cost the host, and nothing else")
    parser.add_argument("--tune", action="store_true", help="also time the kernels alone, and in other shapes")
    parser.add_argument("--alone", action="store_true", help="time the kernels alone, and nothing else")
    parser.add_argument("--seconds", type=float, default=600.0, help="start nothing after that")
    parser.add_argument("--json", type=Path, help="also write the results there, a JSON line each")
    parser.add_argument("--only", nargs="+", help="groups of cases", choices=sorted({case.group for case in CASES}))
    arguments = parser.parse_args()
    clock = Clock(arguments.seconds, arguments.json)
    clock.say(**about(arguments))
    alone = [Case("alone", n, k, BF16, LOSSES, ("ours",), 0.5) for n, k in ((8192, 128256), (32768, 1000), (32768, 4096))]
    cases = [case for case in CASES if (arguments.only is None or case.group in arguments.only) and not arguments.alone]
    jobs: list[tuple[str, Step]] = [
        (f"{case.group} {case.rows} {case.classes}", partial(measured, case, clock)) for case in cases
    ]
    if arguments.host:
        from kernel_host import host_times

        jobs = [("host", partial(host_times, clock, LOSSES))]
    if arguments.launches and not arguments.tune:
        jobs.insert(0, ("launches", partial(launches, clock)))
    if arguments.tune:
        jobs[6:6] = [("tune", partial(tuned, Case("tune", 8192, 128256, BF16), clock))]
        jobs[4:4] = [("launches", partial(launches, clock))]
    if arguments.tune or arguments.alone:
        jobs[4:4] = [("kernels", partial(kernel_times, case, clock)) for case in alone]
    if not arguments.host:
        jobs.insert(0, ("warm", partial(warmed, cases or alone, clock)))
    if arguments.check:
        from kernel_checks import checked

        jobs.insert(0, ("check", partial(checked, clock, LOSSES)))
    for name, job in jobs:
        if clock.left < 5:
            clock.say(left_out=name)
            continue
        try:
            job()
        except Exception as error:  # time on a GPU is short: a job that fails must not cost those after it
            clock.failed(name, error)
        with suppress(Exception):
            torch.cuda.empty_cache()
    clock.say(done=True)


if __name__ == "__main__":
    main()
