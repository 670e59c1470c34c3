"""What a loss makes of label noise, before any training: conditions, the required ``a``, the minimisers of the risk.

At one example whose labels are k with probability ``w[k]``, training on given labels minimises the risk
``R(u) = sum_k w[k] L(u, k)`` over the predictions u, points of the simplex. A loss tolerates the noise at this example if the
risk is least where the clean class has probability 1, as it would be without noise.

choice       the least ``a`` of AMSE and the JAL losses, the ``a`` to train with, and the loss that has it
conditions   whether a loss tolerates a noise, class by class, with proof or counterexample
risk         label weights, the risk, and what minimises it
"""

from noiseproof.theory.choice import ChosenA, choose_a, loss_for, required_a, required_a_per_class
from noiseproof.theory.conditions import Check, ClassVerdict, check
from noiseproof.theory.risk import label_weights, minimiser, risk, sparsemax

__all__ = ["Check", "ChosenA", "ClassVerdict", "check", "choose_a", "label_weights", "loss_for", "minimiser"]
__all__ += ["required_a", "required_a_per_class", "risk", "sparsemax"]
