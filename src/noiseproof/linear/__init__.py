"""Losses of hidden states and a linear head, for so many classes that their logits should not all be there at once.

loss     linear_loss and LinearLoss, the ways in
source   Linear, one more source of row statistics: so every loss that is a function of them has it
chunks   losses a chunk of rows at a time: with gradients in the forward pass, and for targets that need every label's loss
"""

from noiseproof.linear.loss import LinearLoss, linear_loss
from noiseproof.linear.source import Linear

__all__ = ["Linear", "LinearLoss", "linear_loss"]
