"""The kernels against float64 on a GPU, for a machine without pytest: ``benchmarks/kernels.py --check``.

Rows and requests are those of tests/helpers. What fails is printed, and the rest goes on.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import noiseproof
from noiseproof.core.backends import BACKEND_VARIABLE

DEVICE = "cuda"
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
FEW = ("jal-ce", "jal-fl", "all")
PLAN = [("all", 10, FP32), ("all", 128256, FP32), ("jal-ce", 128256, BF16), ("jal-ce", 1000, BF16)]
PLAN += [(name, 128256, FP32) for name in ("ce", "jal-ce", "jal-fl", "anl-ce", "margin")]
PLAN += [(name, classes, FP32) for classes in (10, 1000) for name in (*FEW[:2], "anl-fl", "margin")]
PLAN += [("all", classes, FP32) for classes in (2, 100, 1000, 4097, 32768)]
PLAN += [("jal-ce", 10, BF16), ("jal-ce", 4096, BF16), ("jal-fl", 32768, FP16), ("anl-ce", 32768, BF16)]


def checked(clock: Any, losses: Sequence[str]) -> None:
    """Every row sum, then whole losses."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    cases = importlib.import_module("tests.helpers.kernel_cases")

    def one(job: tuple[str, int, torch.dtype]) -> list[dict[str, Any]]:
        return [errors_of(cases, *job, kind) for kind in cases.KINDS if not (job[1] == 2 and kind == "masked")]

    with ThreadPoolExecutor(12) as pool:  # which compile at once
        results = [result for found in pool.map(one, PLAN) for result in found]
    for result in results:
        if not result["passed"]:
            clock.say(**result)
    worst = max((float(r["gradient"]) for r in results if r["passed"] and r["dtype"] == str(FP32)), default=float("nan"))
    clock.say(checks=len(results), passed=sum(r["passed"] for r in results), worst_float32_gradient=worst)
    for name in losses:
        clock.say(whole=name, **whole(name))
    programs(clock)


def errors_of(cases: Any, name: str, classes: int, dtype: torch.dtype, kind: str) -> dict[str, Any]:
    try:
        logits, target = cases.drawn(kind, 33 if classes < 5000 else 6, classes, dtype, DEVICE)
        errors = cases.errors(logits, target, cases.REQUESTS[name], in_place=kind == "random")
        passed, seen = errors.passes(dtype), {key: f"{value:.1e}" for key, value in errors._asdict().items()}
    except Exception as error:  # a check that cannot run has not passed, and the others go on
        passed, seen = False, {"error": f"{type(error).__name__}: {error}"[:800]}
    return {"check": name, "classes": classes, "dtype": str(dtype), "kind": kind, "passed": passed, **seen}


@contextmanager
def backend(name: str) -> Iterator[None]:
    os.environ[BACKEND_VARIABLE] = name
    try:
        yield
    finally:
        del os.environ[BACKEND_VARIABLE]


def gradient(loss: Any, logits: Tensor, target: Tensor) -> Tensor:
    leaf = logits.detach().clone().requires_grad_()
    return torch.autograd.grad(loss(leaf, target), leaf)[0]


def whole(name: str) -> dict[str, Any]:
    """A loss at several sizes: against float64, with extreme logits and labels out of range; an empty batch; synchronising."""
    said: dict[str, Any] = {}
    loss, each = noiseproof.create_loss(name).to(DEVICE), noiseproof.create_loss(name, reduction="none").to(DEVICE)
    try:
        for rows, classes in ((64, 10), (9, 50257)):
            logits = 3 * torch.randn(rows, classes, device=DEVICE)
            target = torch.randint(classes, (rows,), device=DEVICE)
            target[1] = -100
            with backend("reference"):
                exact = gradient(loss, logits.double(), target)
            with backend("triton"):
                ours = gradient(loss, logits, target)
            said[f"gradient_{classes}"] = f"{((ours - exact).norm() / exact.norm()).item():.1e}"
            extreme = gradient(loss, torch.where(logits > 0, 1e4, -1e4), target)
            outside = target.clone()
            outside[2], outside[3] = classes, -7
            wrong = [] if bool(torch.isfinite(extreme).all()) else ["extreme logits"]
            wrong += [] if each(logits, outside).isnan().nonzero().flatten().tolist() == [2, 3] else ["labels out of range"]
            wrong += [] if bool((ours[1] == 0).all()) else ["an ignored row"]
            said[f"wrong_{classes}"] = wrong
        gradient(noiseproof.create_loss(name, reduction="sum").to(DEVICE), logits[:0], target[:0])
        torch.cuda.set_sync_debug_mode("error")
        gradient(loss, logits, target)
    except Exception as error:  # reported as the result of the check
        traceback.print_exc(limit=-4)
        said["error"] = f"{type(error).__name__}: {error}"[:800]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return said


def programs(clock: Any) -> None:
    """Every loss that has a program, reduced and weighted in every way, against float64."""
    entries = [entry for entry in noiseproof.list_losses() if entry.reads == "statistics"]
    with ThreadPoolExecutor(12) as pool:  # which compile at once
        results = [result for found in pool.map(program_errors, entries) for result in found]
    for result in results:
        if "error" in result:
            clock.say(**result)
    failed = [list(result.values()) for result in results if not result["off"] <= 1e-5]
    without = sorted({result["program"] for result in results if not result["has_program"]})
    clock.say(programs="all", worst=max(result["off"] for result in results), failed=failed, without=without)


def program_errors(entry: Any) -> list[dict[str, Any]]:
    """Small batches in one kernel, alone and shared out, and a larger one; all with ignored rows."""
    results: list[dict[str, Any]] = []
    for rows, reduction in ((128, "mean"), (300, "none"), (20000, "mean"), (30000, "sum")):
        weight = torch.rand(10) if rows == 300 else None
        result: dict[str, Any] = {"program": entry.name, "rows": rows, "reduction": reduction}
        try:
            loss = entry.cls(reduction=reduction, weight=weight).to(DEVICE)
            off = program_error(loss, rows)
            results.append({**result, "off": off, "has_program": any(vars(loss)["_programs"].made.values())})
        except Exception as raised:  # reported as the result of the check
            traceback.print_exc(limit=-4)
            text = f"{type(raised).__name__}: {raised}"[:400]
            results.append({**result, "off": float("nan"), "has_program": True, "error": text})
    return results


def program_error(loss: Any, rows: int) -> float:
    """The larger relative error of value and gradient, with ignored rows."""
    generator = torch.Generator(DEVICE).manual_seed(0)
    logits = 3 * torch.randn(rows, 10, device=DEVICE, generator=generator)
    target = torch.randint(10, (rows,), device=DEVICE, generator=generator)
    target[::7] = -100
    leaf, exact = logits.clone().requires_grad_(), logits.double().requires_grad_()
    value, truth = loss(leaf, target), loss(exact, target)
    up = torch.rand(value.shape, device=DEVICE, generator=generator)
    (ours,), (theirs,) = torch.autograd.grad(value, leaf, up), torch.autograd.grad(truth, exact, up.double())
    off = float((value - truth).norm() / truth.norm())
    return max(off, float((ours - theirs).norm() / theirs.norm()), float(ours[::7].abs().max()))
