"""Random calls of losses against the formulas of tensor_formulas.py: ``python loss_fuzz.py CALLS SEED [EVERY]``.

Each call has a loss with random parameters, a dtype, a batch with ties, far classes and masked ones, labels or probabilities,
and random options; it goes one of the ways a loss can be computed. One call in EVERY is of a compiled loss, which is called
several times. It prints a JSON object for each wrong value or gradient, and one in the end.
"""

import json
import math
import random
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import torch

import noiseproof
from noiseproof.core import small
from noiseproof.losses.fused import keep_for_compiler, recorded_call
from tests.helpers import tensor_formulas
from tests.helpers.cases import ENTRIES, NAMES, RANDOM, draws
from tests.losses.test_two_ways import NARROW, NUMBERS

LOSSES = [name for name in NAMES if name in {*tensor_formulas.SINGLE, *tensor_formulas.PAIRS, *tensor_formulas.HEADS}]
EPSILON = {torch.float64: 1e-9, torch.float32: 3e-5, torch.bfloat16: 1.6e-2, torch.float16: 2e-3}
"""What a value or gradient may be off, of the size of the largest of its kind"""
OFF = {"value": 1, "gradient": 2, "gradient of means": 4, "gradient of freedom": 4}
"""How often that: what a head learns is used for every label, and its gradients are added up in its dtype"""
COMPILED_CALLS = 10
MODEST = {"a": [1.5, 2, 6.0, 30], "tau": [2, 5.5, 10], "epsilon": [-1, 0, 1.0, 2.2], "m": [0, 1, 1e3, 1e5]}
MODEST |= {"delta": [0.5, 1, 2.5]}
MODEST |= {"temperature": [0.5, 1, 2], "lam": [0, 0.01, 1.2], "c": [0.1, 1], "r": [-2, -1, 0, 0.3], "pi": [0.1, 0.5, 0.9]}
MODEST |= {"clip": [1e-4, 1e-2, 0.5], "k": [0.1, 0.5], "growth": [1.03], "every": [1], "views": [1, 2, 3], "threshold": [0.5]}


BASES = [None, "gce", "jal-ce", "ece"]
"""What the student loss changes"""
DERIVED = ("base", "generator", "stage", "features", "classes")
"""What a formula does not take as it is"""


def drawn(draw, classes, **contract):
    """A loss of the catalogue with random parameters."""
    name = draw.choice(LOSSES)
    entry = ENTRIES[name]
    fixed = {"features": draw.choice([2, 3, 16]), "classes": classes} if name in tensor_formulas.HEADS else {}
    if name == "lt" and (base := draw.choice(BASES)):
        fixed["base"] = ENTRIES[base].cls()
    while True:
        options = {}
        for key, default in entry.defaults.items():
            if key in fixed:
                options[key] = fixed[key]
            elif isinstance(default, bool):
                options[key] = draw.random() < 0.5
            elif default is not None and not isinstance(default, str) and draw.random() < 0.7:
                options[key] = draw.choice(MODEST.get(key) or NARROW.get(key) or NUMBERS)
        if name == "ldr":
            options["lam"] = draw.choice([0.5, 1, 10.0])
        try:
            return name, options, entry.cls(**options, **contract)
        except (TypeError, ValueError):  # out of a parameter's range
            continue


def batch(draw, generator, classes, dtype):
    rows, scale = draw.choice([1, 3, 8]), draw.choice([0.5, 2.0, 6.0])
    z = scale * torch.randn(rows, classes, generator=generator, dtype=torch.float64)
    y = torch.randint(classes, (rows,), generator=generator)
    if draw.random() < 0.15:
        z = z.round()  # classes that tie
    if draw.random() < 0.2:
        out = torch.rand(rows, classes, generator=generator) < 0.4
        out[torch.arange(rows), y] = False
        z[out] = -math.inf
    return z.to(dtype), y


def of_head(loss, draw, generator, dtype):
    """A student loss with random parameters, in the dtype of the features or in its own; and what its formula is of."""
    with torch.no_grad():
        loss.means.normal_(generator=generator)
        loss.root_freedom.uniform_(0.3, 3, generator=generator)
    if dtype == torch.float64 or draw.random() < 0.5:
        loss.to(dtype)
    loss.train(draw.random() < 0.7)
    base = type(loss.base)
    found = {"base": next(name for name in NAMES if ENTRIES[name].cls is base), "training": loss.training}
    defaults = {key: getattr(loss.base, key) for key in ENTRIES[found["base"]].defaults}
    return {**defaults, **found}


def features(draw, generator, loss, dtype):
    """Of a student loss, with labels."""
    rows, scale = draw.choice([1, 3, 8]), draw.choice([0.1, 1.0, 10.0])
    v = scale * torch.randn(rows, loss.features, generator=generator, dtype=torch.float64)
    return v.to(dtype), torch.randint(loss.classes, (rows,), generator=generator)


def expected(name, parameters, loss, z, target, more):
    """The loss as the formulas and torch's contract have it."""
    classes, labelled = getattr(loss, "classes", z.shape[1]), not target.is_floating_point()
    weight = torch.ones(classes, dtype=torch.float64) if loss.weight is None else loss.weight.double()
    share = loss.label_smoothing
    there = torch.ones(len(z), classes).double() if name in tensor_formulas.HEADS else (z > -math.inf).double()

    def each(label):
        return tensor_formulas.rows(name, z, label, **parameters, **more)

    ignored = target == loss.ignore_index if labelled else torch.zeros(len(z), dtype=torch.bool)
    if labelled:
        label = target.masked_fill(ignored, 0)
        values = each(label) * weight[label]
    if share or not labelled:
        every = torch.stack([torch.where(there[:, k] > 0, each(torch.full((len(z),), k)), 0.0) for k in range(classes)], 1)
        every = every.nan_to_num(0.0, 0.0, 0.0) * weight * there
        smooth = share / classes * every.sum(1)
        values = (1 - share) * (values if labelled else (every * target.double()).sum(1)) + smooth
    values = values.masked_fill(ignored, 0.0)
    if loss.reduction == "none":
        return values
    if loss.reduction == "sum":
        return values.sum()
    return values.sum() / ((weight[label].masked_fill(ignored, 0.0)).sum() if labelled else len(z))


def part_sizes(name, parameters, classes, z, target, more):
    """How large the losses of single labels are, in each row."""
    labels = [target] if more else [torch.full((len(z),), k) for k in range(classes)]
    for label in labels:
        values = tensor_formulas.rows(name, z, label, **parameters, **more).detach()
        yield values[values.isfinite()].abs().max().item() if bool(values.isfinite().any()) else 0.0


def ways(draw, loss, z, target):
    """One of the ways to compute a loss, by its name."""
    labelled, classes, dtype = not target.is_floating_point(), z.shape[1], z.dtype
    found = {"eager": lambda z: loss(z, target), "large": lambda z: large(lambda: loss(z, target))}
    key = loss._full_cache_key()
    if key is not None and keep_for_compiler(loss, key):
        found["recorded"] = lambda z: recorded_call(z, target, loss.weight, key)
    if loss.needs is not None and dtype in (torch.float64, torch.float32) and bool(z.isfinite().all()):
        head = torch.eye(classes, dtype=dtype)
        recompute = draw.random() < 0.5
        found["linear"] = lambda z: noiseproof.linear_loss(z, head, target, loss, recompute=recompute)
        if labelled and loss.reduction != "none" and not loss.label_smoothing:
            found["in forward"] = lambda z: noiseproof.GradientInForward(loss)(z, target)
    name = draw.choice(list(found))
    return name, found[name]


def large(function):
    """As a large batch is computed."""
    before, small.MAX_SMALL_BATCH = small.MAX_SMALL_BATCH, 0
    try:
        return function()
    finally:
        small.MAX_SMALL_BATCH = before


def with_gradient(function, z, up, learned=()):
    """The value, and its gradient in ``z`` and in what a head learns."""
    leaf = z.clone().requires_grad_()
    value = function(leaf)
    up = up[: value.numel()].reshape(value.shape).to(value.dtype)
    found = torch.autograd.grad(value, (leaf, *learned), up, allow_unused=True, materialize_grads=True)
    return value.detach().double(), *(grad.double() for grad in found)


def check(found, truth, dtype, parts=0.0):
    """What is off: the words for it, or nothing. ``parts`` is the size of what a value is added up of, and may cancel."""
    for what, ours, theirs in zip(OFF, found, truth, strict=False):
        size = max(theirs.abs().max().item(), 3e-2 * max(parts, 0.3 if what == "value" else 3e-2))
        off = (ours - theirs).abs().max().item()
        if not off <= EPSILON[dtype] * size * OFF[what]:
            return f"{what} off by {off:.3g} of {size:.3g}"
    return ""


def is_kink(formula, z, up, learned):
    """Whether the formula's own slope is another one a rounding away: a threshold, a tie, a clip."""
    at = with_gradient(formula, z, up, learned)
    for sign in (-1, 1):
        for step in (3e-6, 1e-4):
            moved = z + sign * step * torch.randn(z.shape, generator=torch.Generator().manual_seed(3), dtype=z.dtype)
            if check(with_gradient(formula, moved, up, learned), at, torch.float16):
                return True
    return False


def one(number, compiled=False):
    """The faults of a call, how many were compared, and how many of them differ where the formula itself has a kink."""
    draw, generator = random.Random(number), torch.Generator().manual_seed(number)
    classes, dtype = draw.choice([2, 3, 5, 12, 70]), draw.choice(list(EPSILON))
    contract = {"reduction": draw.choice(["none", "mean", "sum"])}
    if draw.random() < 0.25:
        contract["weight"] = torch.rand(classes, generator=generator) + 0.1
    if draw.random() < 0.25:
        contract["label_smoothing"] = draw.choice([0.1, 0.4, 1.0])
    name, options, loss = drawn(draw, classes, **contract)
    if name in RANDOM:
        loss.label_smoothing, options = 0.0, {**options, "stage": "nl"}
    if options.get("minimum", 0) * classes >= 1:
        return [], 0, 0
    parameters = {key: getattr(loss, key) for key in ENTRIES[name].defaults if key not in DERIVED}
    is_head, learned, exactly = name in tensor_formulas.HEADS, (), ()
    if is_head:
        parameters = {**of_head(loss, draw, generator, dtype), **parameters}
        learned = (loss.means, loss.root_freedom)
        exactly = tuple(one.detach().double().requires_grad_() for one in learned)
        parameters |= {"means": exactly[0], "root_freedom": exactly[1]}
    function, faults, compared, kinks = loss, [], 0, 0
    if compiled:
        torch._dynamo.reset()
        function = torch.compile(loss, backend="aot_eager")
    for turn in range(COMPILED_CALLS if compiled else 1):
        z, target = features(draw, generator, loss, dtype) if is_head else batch(draw, generator, classes, dtype)
        soft = name not in RANDOM and draw.random() < 0.2
        if soft:
            other = 2 * torch.randn(len(z), classes, generator=generator, dtype=torch.float64)
            target = torch.softmax(other if is_head else other.masked_fill(z == -math.inf, -math.inf), 1)
        elif len(target) > 1 and draw.random() < 0.2:
            target[0] = loss.ignore_index
        way, call = "compiled", lambda z, target=target: function(z, target)
        if not compiled:
            way, call = ways(draw, loss, z, target)
        up = (0.5 + torch.rand(len(z), generator=generator, dtype=torch.float64)).to(dtype).double()
        more = {}
        if name in RANDOM:
            if (target < 0).any():
                continue
            kept = draws(name, z.to(torch.float64 if dtype == torch.float64 else torch.float32), target)
            more = {key: torch.tensor([each[key] for each in kept]) for key in kept[0]}
            call = lambda z, call=call: (torch.manual_seed(2), call(z))[1]  # noqa: E731
        exact = z.double()
        if name == "jnpl":  # what is at the threshold of 1 / K is kept or not by a rounding
            others = torch.softmax(exact, 1).scatter(1, target[:, None], 0.0).amax(1)
            if ((others * classes - 1).abs() < 1e-6).any():
                continue
        formula = lambda z, target=target, more=more: expected(name, parameters, loss, z, target, more)  # noqa: E731
        truth = with_gradient(formula, exact, up, exactly)
        if not all(bool((part.abs() < torch.finfo(dtype).max).all()) for part in truth):
            continue
        compared += 1
        parts = max(part_sizes(name, parameters, classes, exact, target, more), default=0.0)
        try:
            fault = check(with_gradient(call, z, up, learned), truth, dtype, parts)
        except Exception as error:  # of any kind, it is what the fuzzer looks for
            fault = f"{type(error).__name__}: {str(error)[:300]}"
        if not fault:
            continue
        if "off by" in fault and is_kink(formula, exact, up, exactly):
            kinks += 1
            continue
        shown = {key: str(value) for key, value in {**options, **contract}.items()}
        faults.append({"number": number, "turn": turn, "loss": name, "way": way, "dtype": str(dtype), "soft": soft, **shown,
                       "fault": fault, "z": z.tolist(), "y": target.tolist()})  # fmt: skip
    return faults, compared, kinks


def main():
    calls, seed, every = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 400
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    total, number = {"calls": 0, "compiled": 0, "kinks": 0, "wrong": 0}, 0
    while total["calls"] < calls:
        is_compiled = number % every == every - 1
        faults, count, kinks = one(seed * 10**7 + number, is_compiled)
        number += 1
        for key, more in zip(total, (count, count * is_compiled, kinks, len(faults)), strict=True):
            total[key] += more
        for fault in faults:
            print(json.dumps(fault), flush=True)
        if number % 100 == 0:
            print(json.dumps(total), flush=True)
    print(json.dumps(total), flush=True)


if __name__ == "__main__":
    main()
