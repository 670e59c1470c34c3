"""Compile for a GPU, without one, every kernel that a network's step launches. A script: the interpreter must be off.

The interpreter takes what the compiler does not, a variable say that changes its shape within a loop.
"""

import numbers
import sys

import torch
import triton
from torch.func import functional_call
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from noiseproof.models import create_model
from noiseproof.train import Recipe
from noiseproof.train.fast.graph import _use_triton_layers
from noiseproof.train.fast.metrics import StepMetrics
from noiseproof.train.fast.packed_weights import PackedWeights
from noiseproof.train.fast.sgd import FusedSgd
from noiseproof.train.fast.streams import SideStream

HOPPER = GPUTarget("cuda", 90, 32)
TYPES = {torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.int32: "*i32", torch.int64: "*i64"}
compiled = {}


def compile_only(kernel, *args, grid, warmup, **named):
    """In the place of a launch."""
    given = dict(zip(kernel.arg_names, args, strict=False)) | named
    options = {name: given.pop(name) for name in list(given) if name not in kernel.arg_names}
    fixed = {p.name for p in kernel.params if p.is_constexpr} | {name for name, value in given.items() if value is None}
    signature = {name: "constexpr" if name in fixed else type_of(given[name]) for name in kernel.arg_names}
    constants = {(kernel.arg_names.index(name),): given[name] for name in sorted(fixed)}
    key = kernel.__name__, str(signature), str(constants), str(options)
    if key not in compiled:
        source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
        compiled[key] = triton.compile(source, target=HOPPER, options=options)


def type_of(value):
    if isinstance(value, torch.Tensor):
        return TYPES[value.dtype]
    return "i32" if isinstance(value, numbers.Integral) else "fp32"


def step(model, precision):
    half, device = precision == "bf16", torch.device("cpu")
    network = create_model(model, 10)
    packed = PackedWeights(network, multiple=8 if half else 4, half=half)
    _use_triton_layers(packed.template, SideStream(None), device, precision)
    channels = next(iter(packed.leaves.values())).shape[1]
    images = torch.zeros((2, channels, 32, 32), dtype=torch.bfloat16 if half else torch.float32)
    logits = functional_call(
        packed.template, {**packed.leaves, **packed.buffers}, (images.to(memory_format=torch.channels_last),)
    )
    gradients = dict(zip(packed.leaves, torch.autograd.grad(logits.sum(), list(packed.leaves.values())), strict=True))
    recipe = Recipe(dataset="digits", loss="ce", model=model, clip=5.0)
    places = [(span.start, span.stop - span.start) for span in packed.spans.values()]
    fused = FusedSgd(recipe, packed.flat, torch.zeros_like(packed.flat), packed.copy, places)
    fused.step(fused.table([gradients.get(name) for name in packed.spans]))
    for scores in (logits.detach(), torch.zeros((2, 3000), dtype=logits.dtype)):  # many rows for a program, and a part of one
        StepMetrics(1, device).add(scores, torch.zeros((2, 2), dtype=torch.int64), torch.zeros(()))


def main():
    JITFunction.run = compile_only
    step(*sys.argv[1:])
    for name, *_ in compiled:
        print(name)


if __name__ == "__main__":
    main()
