"""The two passes of :mod:`noiseproof.primitives` as Triton kernels, which need a GPU.

Every loss that is a function of row statistics runs on them, alone or in a sum: there is no kernel for a loss.

terms        functions that Triton lacks, and one class's term of each sum
tile         rows that fit into registers, several to a program
line         rows of some hundred classes, one after the other: the first pass
stream       longer rows, block by block: the first pass
stream_back  their gradient, and that of shorter rows of over 64 classes
scaling      the gradient times a factor on the device
rows         which kernel runs, with how many rows or classes to a program
"""

from noiseproof.kernels.rows import backward, forward, suits
from noiseproof.kernels.scaling import scale
from noiseproof.primitives import Backend

__all__ = ["BACKEND", "backward", "forward", "suits"]

BACKEND = Backend("triton", forward, backward, scale)
