"""Compile for GPUs, without one, the kernels that losses launch; print what each takes. A script: the interpreter must be off.

    python compiled_kernels.py 90 [--all]

A line for each: kernel, registers of a thread, bytes of a thread's stack (registers that were spilled are there), what for.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

import noiseproof
from noiseproof.core.backends import register_backend
from noiseproof.core.row_sums import RowSum
from noiseproof.kernels import BACKEND, passes, single_pass, small

TYPES = {torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.float16: "*fp16", torch.int64: "*i64", torch.int32: "*i32"}
REQUESTS = {
    "jal-ce": [RowSum("nll"), RowSum("power", 2.0)],
    "jal-fl": [RowSum("focal", 0.5), RowSum("power", 2.0)],
    "anl-ce": [RowSum("nll"), RowSum("clipped_focal", 0.0, 1e-8)],
    "all": [
        *(RowSum("nll"), RowSum("margin"), RowSum("power", 0.7), RowSum("power", 3.0)),
        *(RowSum("focal", 1.3), RowSum("clipped_focal", 0.5, 1e-3, True)),
    ],
}
FEW = [("jal-ce", 10), ("jal-fl", 128256)]
HELD = ("jal-ce", "ce", "gce", "anl-ce", "js")
SHARED = 232448  # bytes of shared memory for a program on Hopper
PROGRAMS = ("ce", "jal-ce", "jal-fl", "anl-fl", "js", "nfl+agce", "efl+mae")
launches = {}
label = ""


def note(kernel, *args, grid, warmup, **named):
    """In the place of a launch."""
    given = dict(zip(kernel.arg_names, args, strict=False)) | named
    options = {name: given.pop(name) for name in list(given) if name not in kernel.arg_names}
    fixed = {p.name for p in kernel.params if p.is_constexpr}
    signature = {name: "constexpr" if name in fixed else type_of(given[name]) for name in kernel.arg_names}
    constants = {(kernel.arg_names.index(name),): given[name] for name in sorted(fixed)}
    attrs = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(kernel.arg_names) if signature[name].startswith("*")}
    launches[label, kernel.__name__] = kernel, signature, constants, attrs, options


def type_of(value):
    return TYPES[value.dtype] if isinstance(value, torch.Tensor) else "i32"


def source_of_held():
    """Of Gluon, which older Tritons lack."""
    from triton.experimental.gluon._runtime import GluonASTSource

    return GluonASTSource


def usage(binary):
    """Registers and bytes of stack of a thread."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        text = subprocess.run([tool, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", text)
    return int(found[1]), int(found[2])


def main():
    global label
    JITFunction.run = note
    wanted = [(name, k) for name in REQUESTS for k in (10, 1000, 128256)] if "--all" in sys.argv else FEW
    for name, classes in wanted:
        label = f"{name} {classes}"
        logits, target = torch.zeros((2, classes), dtype=torch.bfloat16), torch.zeros(2, dtype=torch.int64)
        values, saved = passes.forward(logits, target, REQUESTS[name], torch.float32)
        passes.backward(torch.zeros_like(values), logits, target, values, saved, REQUESTS[name])
    register_backend("cpu", BACKEND)
    more = [(9, 64), (9, 100)] if "--all" in sys.argv else []
    for name in PROGRAMS if more else PROGRAMS[:2]:  # the first with so many rows that they are shared out
        for largest in (0, small.MAX_LOGITS):
            small.MAX_LOGITS = largest
            for count, classes in [(9000 if name == "ce" else 4, 10)] + more * (largest > 0):
                label = f"{name} {count} {classes}"
                logits = torch.zeros((count, classes), requires_grad=True)
                noiseproof.create_loss(name)(logits, torch.zeros(count, dtype=torch.int64)).backward()
    single_pass._placement = lambda logits, unit: (4, single_pass._sizes(logits.shape[1], logits.element_size(), SHARED))
    for name in () if single_pass.single_pass_rows is None else HELD if more else HELD[:1]:
        label = f"{name} held"
        logits = torch.zeros((4, 128256), dtype=torch.bfloat16, requires_grad=True)
        noiseproof.GradientInForward(noiseproof.create_loss(name))(logits, torch.zeros(4, dtype=torch.int64))
    for capability in sys.argv[1].split(","):
        for (what, kernel_name), (kernel, signature, constants, attrs, options) in launches.items():
            if kernel is single_pass.single_pass_rows and capability != "90":
                continue
            source = (source_of_held() if kernel is single_pass.single_pass_rows else ASTSource)(
                kernel, signature, constants, attrs
            )
            compiled = triton.compile(source, target=GPUTarget("cuda", int(capability), 32), options=options)
            print(kernel_name, *usage(compiled.asm["cubin"]), capability, what, flush=True)


if __name__ == "__main__":
    main()
