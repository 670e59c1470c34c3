"""A loss as a program: a list of elementary operations that gives the value of a row and its slopes.

A loss is written once, in torch, on vectors of statistics. Under autograd each of its operations costs more than its arithmetic
on a small batch, and a launch on a GPU. So what it does is recorded once, together with its gradient, and simplified; what is
left runs as straight-line code without autograd on a CPU, and as one kernel on a GPU.

code     a program, and how one is built and simplified
trace    a program from a function of primitives
vectors  a program on vectors, in torch
rows     what a step is given beside the logits
on_cpu   a step on the CPU
recorded a step as a compiler records it
step     value and gradient of a loss in one step, and where that is possible
"""

from noiseproof.program.code import Node, Program, Value
from noiseproof.program.recorded import recorded_loss, recorder_of
from noiseproof.program.rows import Formula, Reduction, Rows
from noiseproof.program.step import loss_of_rows, runner_of
from noiseproof.program.trace import traced

__all__ = ["Formula", "Node", "Program", "Reduction", "Rows", "Value", "loss_of_rows", "recorded_loss", "recorder_of"]
__all__ += ["runner_of", "traced"]
