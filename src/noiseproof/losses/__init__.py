"""The family of noise-robust losses, one file per family.

classic        CE, FL, MAE, MSE, RCE, SCE, NegativeLS        what the others are built from or compared with
generalized    GCE, TaylorCE, PHuberCE, JS, FisherRao, DFT   between cross entropy and mean absolute error
clipped        OGC                                           with a threshold that follows the training
normalized     NCE, NFL, NNCE, NNFL                          symmetric by division
asymmetric     AUL, AGCE, AEL, ANorm, AMSE                   robust where the clean label is the likeliest
joint          JALCE, JALFL, ANLCE, ANLFL                    the paper's losses: active and passive, added
pairs          NCEandRCE, NCEandAGCE, ...                    the other published pairs
epsilon        ECE, EFL, ECEandMAE, EFLandMAE                on epsilon-softmax
transformed    LogitClip, LogitBias, LDR, ...                on changed logits
complementary  NL, JNPL                                      on what an example is not
views          GJS                                           on several predictions of one example
student        Student, StudentAPL                           on features, with parameters of their own

base.py has what all of them share, catalog.py what is known of each. A file added here enters the catalogue by being here.
"""

from noiseproof.losses import catalog
from noiseproof.losses.asymmetric import AEL, AGCE, AMSE, AUL, ANorm
from noiseproof.losses.base import RobustLoss, Sum
from noiseproof.losses.catalog import LossEntry, create_loss, find_loss, list_losses, register, register_pair
from noiseproof.losses.classic import CE, FL, MAE, MSE, RCE, SCE, NegativeLS
from noiseproof.losses.clipped import OGC
from noiseproof.losses.complementary import JNPL, NL
from noiseproof.losses.epsilon import ECE, EFL, ECEandMAE, EFLandMAE
from noiseproof.losses.generalized import DFT, GCE, JS, FisherRao, PHuberCE, TaylorCE, TruncatedGCE
from noiseproof.losses.joint import ANLCE, ANLFL, JALCE, JALFL
from noiseproof.losses.normalized import NCE, NFL, NNCE, NNFL
from noiseproof.losses.pairs import (
    AGCEandMAE,
    NCEandAEL,
    NCEandAGCE,
    NCEandAUL,
    NCEandMAE,
    NCEandRCE,
    NFLandAEL,
    NFLandAGCE,
    NFLandAUL,
    NFLandMAE,
    NFLandRCE,
)
from noiseproof.losses.student import Student, StudentAPL
from noiseproof.losses.transformed import LDR, LogitBias, LogitClip, PublishedLogitClip, SparseRegularization
from noiseproof.losses.views import GJS

catalog.discover(__name__, __path__)

__all__ = [
    "AEL",
    "AGCE",
    "AMSE",
    "ANLCE",
    "ANLFL",
    "AUL",
    "CE",
    "DFT",
    "ECE",
    "EFL",
    "FL",
    "GCE",
    "GJS",
    "JALCE",
    "JALFL",
    "JNPL",
    "JS",
    "LDR",
    "MAE",
    "MSE",
    "NCE",
    "NFL",
    "NL",
    "NNCE",
    "NNFL",
    "OGC",
    "RCE",
    "SCE",
    "AGCEandMAE",
    "ANorm",
    "ECEandMAE",
    "EFLandMAE",
    "FisherRao",
    "LogitBias",
    "LogitClip",
    "LossEntry",
    "NCEandAEL",
    "NCEandAGCE",
    "NCEandAUL",
    "NCEandMAE",
    "NCEandRCE",
    "NFLandAEL",
    "NFLandAGCE",
    "NFLandAUL",
    "NFLandMAE",
    "NFLandRCE",
    "NegativeLS",
    "PHuberCE",
    "PublishedLogitClip",
    "RobustLoss",
    "SparseRegularization",
    "Student",
    "StudentAPL",
    "Sum",
    "TaylorCE",
    "TruncatedGCE",
    "create_loss",
    "find_loss",
    "list_losses",
    "register",
    "register_pair",
]
