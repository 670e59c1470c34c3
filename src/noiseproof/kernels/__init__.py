"""The two passes of :mod:`noiseproof.core` as Triton kernels, which need a GPU.

Every loss that is a function of row statistics runs on them, alone or in a sum: nobody writes a kernel for a loss.

terms               functions that Triton lacks, and one class's term of each sum
tile                rows in registers, several to a program: both passes
line                rows of some hundred classes, one after the other: the first pass
blocks              what longer rows add up, block by block
stream              both passes over them; the gradient of shorter rows of over 64 classes
reductions          what the kernels of programs call, and those that follow them
program             what a loss does with the sums, as a kernel whose text is made for it
small               a loss and its gradient in one kernel, of a small batch
launch              a launch with little of Python
passes              which kernel runs, with how many rows or classes to a program
single_pass         a loss together with its gradient, of long rows that are read once
single_pass_kernel  its kernel: long rows in shared memory
single_pass_row     what is made of the sums of such a row
"""

from noiseproof.core.backends import Backend, ProgramRunner
from noiseproof.kernels.passes import backward, forward, suits
from noiseproof.kernels.program import has_kernel, run_program, scaled_grads
from noiseproof.kernels.reductions import scale
from noiseproof.kernels.single_pass import run_single_pass
from noiseproof.kernels.small import step_for

__all__ = ["BACKEND"]

PROGRAMS = ProgramRunner(
    lambda formula, logits: suits(logits, formula.needs) and has_kernel(formula),
    run_program,
    scaled_grads,
    small=step_for,
    single_pass=run_single_pass,
)
BACKEND = Backend("triton", forward, backward, scale, PROGRAMS)
