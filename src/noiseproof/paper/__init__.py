"""Everything that repeats one paper: Wang et al., *Joint Asymmetric Loss for Learning with Noisy Labels*, ICCV 2025.

published     the 439 published numbers, or cells
settings      how each loss is trained on each data set, in the paper's text and in its code
recipes       recipe: a run by its name, cifar10/jal-ce; recipe_of: the run behind a published number; what asymmetric,
              instance and human noise are for each data set
plan          the runs behind the numbers and the figures, each once, in the order in which they are worth running
agreement     do a number and a whole table agree with the paper
tables        the comparison as text, Markdown, LaTeX, JSON or CSV
answer        does the paper hold, in a few sentences
groups        runs grouped by recipe, and named as the paper names them
page          all of it as one HTML file; the paper's figures as files
run_list      what is known of each run of a list, and what came of it
reproduction  reproduce: train what is missing, and the results
verb          'noiseproof reproduce'; command: its options as text, and what it prints while it trains
plugin        the paper's data sets, augmentations and network by name: datasets, networks, rotation
pickles       files of pickles, in which CIFAR, the labels of CIFAR-N and torchvision's weights are published

The text leaves things out and sometimes contradicts the code that made its numbers. Both are kept: ``paper-code``, the default,
repeats what was run; ``paper-text`` follows the text. :func:`differences` lists what they differ in, with the source.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from noiseproof.paper.published import Cell, cells
    from noiseproof.paper.recipes import SEEDS, QuotedError, differences, list_recipes, recipe, recipe_of
    from noiseproof.paper.reproduction import Reproduction, reproduce
    from noiseproof.paper.settings import PROFILES, Difference, Profile

_NAMES = {
    "published": ("Cell", "cells"),
    "recipes": ("SEEDS", "QuotedError", "differences", "list_recipes", "recipe", "recipe_of"),
    "reproduction": ("Reproduction", "reproduce"),
    "settings": ("PROFILES", "Difference", "Profile"),
}
"""By their module, which is imported with the first of them that is used: the command line reads its verb without torch."""

__all__ = [
    "PROFILES", "SEEDS", "Cell", "Difference", "Profile", "QuotedError", "Reproduction", "cells", "differences",
    "list_recipes", "recipe", "recipe_of", "reproduce",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    for module, names in _NAMES.items():
        if name in names:
            return getattr(importlib.import_module(f"noiseproof.paper.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
