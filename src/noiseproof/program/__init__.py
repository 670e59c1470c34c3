"""A loss as a program: a list of elementary operations that gives the value of a row and its gradient by the statistics.

A loss is written once, in torch, on vectors of statistics. Under autograd each of its operations costs more than its arithmetic
on a small batch, and a launch on a GPU. So what it does is recorded once, together with its gradient, and simplified; what is
left runs as straight-line code without autograd on a CPU, and as one kernel on a GPU.

code       a program, how one is built, simplified and recorded; as vectors' code in torch, what a call is computed with
step       value and gradient of a loss in one step, in eager mode and in compiled code
on_cpu     such a step on the CPU
operation  such a step by kernels, as operations that a compiler leaves as they are
"""

from noiseproof.program.code import Formula as Formula
from noiseproof.program.code import LossCall as LossCall
from noiseproof.program.code import Node as Node
from noiseproof.program.code import Program, traced
from noiseproof.program.code import Reduction as Reduction
from noiseproof.program.code import Value as Value
from noiseproof.program.step import eager_backend as eager_backend
from noiseproof.program.step import fused_step as fused_step
from noiseproof.program.step import recorded_step as recorded_step
from noiseproof.program.step import recording_backend as recording_backend

__all__ = ["Program", "traced"]
