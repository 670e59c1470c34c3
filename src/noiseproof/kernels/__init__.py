"""The two passes of :mod:`noiseproof.core` as Triton kernels, which need a GPU.

Every loss that is a function of row statistics runs on them, alone or in a sum: nobody writes a kernel for a loss.

terms        functions that Triton lacks, and one class's term of each sum
registers    what is computed of rows that are in registers
tile         such rows, several to a program
line         rows of some hundred classes, one after the other: the first pass
blocks       what longer rows add up, block by block
stream       the first pass over them
stream_back  their gradient, and that of shorter rows of over 64 classes
scaling      the gradient times a factor on the device
program      what a loss does with the sums, as a kernel whose text is made for it
reductions   what such kernels call, and those that follow them
small        a loss and its gradient in one kernel, of a small batch
launch       a launch with little of Python
slots        what is asked for, as the kernels' constants
long         the two passes over longer rows
held         long rows in shared memory
held_blocks  their blocks, there and in registers
held_row     what is made of the sums of one
once         which rows are held; a loss together with its gradient
rows         which kernel runs, with how many rows or classes to a program
"""

from noiseproof.core import Backend, ProgramRunner
from noiseproof.kernels.once import at_once
from noiseproof.kernels.program import has_kernel, run_program, scaled_slopes
from noiseproof.kernels.rows import backward, forward, suits
from noiseproof.kernels.scaling import scale
from noiseproof.kernels.small import step_for

__all__ = ["BACKEND", "backward", "forward", "suits"]

PROGRAMS = ProgramRunner(
    lambda formula, logits: suits(logits, formula.asked) and has_kernel(formula),
    run_program,
    scaled_slopes,
    small=step_for,
    at_once=at_once,
)
BACKEND = Backend("triton", forward, backward, scale, PROGRAMS)
