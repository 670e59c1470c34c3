"""The family of noise-robust losses, one file per family.

classic        CE, FL, MAE, MSE, RCE, SCE, NegativeLS        what the others are built from or compared with
generalized    GCE, TaylorCE, PHuberCE, JS, DFT, OGC, ...    between cross entropy and mean absolute error
normalized     NCE, NFL, NNCE, NNFL                          symmetric by division
asymmetric     AUL, AGCE, AEL, ANorm, AMSE                   robust where the clean label is the likeliest
joint          JALCE, JALFL, ANLCE, ANLFL                    the paper's losses: active and passive, added
pairs          NCEandRCE, NCEandAGCE, ...                    the other published pairs
epsilon        ECE, EFL, ECEandMAE, EFLandMAE                on epsilon-softmax
transformed    LogitClip, LogitBias, LDR, ...                on changed logits
complementary  NL, JNPL                                      on what an example is not
views          GJS                                           on several predictions of one example
student        Student, StudentAPL                           on features, with parameters of their own

base.py has what all of them share and their sums: arguments.py checks what they are given, fused.py makes the usual call one
step. catalog.py has what is known of each, facts.py that and recommended settings as plain data without torch. linear.py
computes any of them from hidden states and a linear head, or with its gradient in the forward pass. A file added here enters
the catalogue by being here.
"""

# ruff: noqa: F403 - a family's __all__ lists its losses, and the package exports them all

import importlib
import importlib.util
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from noiseproof.losses.asymmetric import *
    from noiseproof.losses.base import RobustLoss as RobustLoss
    from noiseproof.losses.base import Sum as Sum
    from noiseproof.losses.catalog import *
    from noiseproof.losses.classic import *
    from noiseproof.losses.complementary import *
    from noiseproof.losses.epsilon import *
    from noiseproof.losses.generalized import *
    from noiseproof.losses.joint import *
    from noiseproof.losses.linear import GradientInForward as GradientInForward
    from noiseproof.losses.linear import LinearLoss as LinearLoss
    from noiseproof.losses.linear import linear_loss as linear_loss
    from noiseproof.losses.normalized import *
    from noiseproof.losses.pairs import *
    from noiseproof.losses.student import *
    from noiseproof.losses.transformed import *
    from noiseproof.losses.views import *
else:
    OWN_NAMES = {"RobustLoss": "base", "Sum": "base", "GradientInForward": "linear"}
    OWN_NAMES |= {"LinearLoss": "linear", "linear_loss": "linear"}

    def __getattr__(name):
        """Import the losses with the first name that is read: what needs no torch, as ``facts``, is imported without it."""
        if importlib.util.find_spec(f"{__name__}.{name}") is not None:
            return importlib.import_module(f"{__name__}.{name}")
        if name.startswith("__") and name != "__all__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        catalog = importlib.import_module(f"{__name__}.catalog")
        catalog.list_losses()
        found = {own: getattr(importlib.import_module(f"{__name__}.{module}"), own) for own, module in OWN_NAMES.items()}
        families = [importlib.import_module(f"{__name__}.{family}") for family in catalog.FAMILIES]
        found |= {each: getattr(module, each) for module in (catalog, *families) for each in module.__all__}
        globals().update({**found, "__all__": list(found)})
        if name in globals():
            return globals()[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
