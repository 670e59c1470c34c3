"""The paper as data: Wang et al., *Joint Asymmetric Loss for Learning with Noisy Labels*, ICCV 2025.

cells            the 439 published numbers
recipes          recipe: a run by its name, cifar10/jal-ce; recipe_of: the run behind a published number
hyperparameters  the options of every loss on every data set
figures          the runs behind the figures
plan             the runs behind both, each once, in the order in which they are worth running
settings         how each data set is trained
noise            what asymmetric, instance and human noise are for each data set
fidelity         the two profiles, and how a value is written on which the paper's text and its code differ

The text leaves things out and sometimes contradicts the code that made its numbers. Both are kept: ``paper-code``, the default,
repeats what was run; ``paper-text`` follows the text. :func:`differences` lists what they differ in, with the source.
"""

from noiseproof.paper.cells import Cell, cells
from noiseproof.paper.fidelity import PROFILES, Difference, Profile
from noiseproof.paper.recipes import SEEDS, QuotedError, differences, list_recipes, recipe, recipe_of

__all__ = [
    "PROFILES", "SEEDS", "Cell", "Difference", "Profile", "QuotedError", "cells", "differences",
    "list_recipes", "recipe", "recipe_of",
]  # fmt: skip
