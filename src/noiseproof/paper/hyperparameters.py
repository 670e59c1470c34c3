"""The hyper-parameters of every loss that the paper trains, by data set, in the text and in the code.

The text's are those of the supplement's table of parameter settings. Names are the catalogue's and options are its classes'.
"""

from __future__ import annotations

import math
from typing import Any

from noiseproof.paper.fidelity import Differs, Silent

__all__ = ["PARAMETERS"]

TABLE = "the supplement's table of parameter settings prints {}; the code has {}"
CLIP = Differs(
    math.exp(-4), 1e-4, "the supplement's table prints A = -4 for the logarithm of zero; the code takes ln 1e-4 = -9.2103"
)
DETACHED = Differs(
    False,
    True,
    "the text's loss has a focal factor like any other; the code takes the factor (1 - p)^gamma out of the derivative",
)
MINIMUM = Differs(
    1e-7,
    1e-8,
    "the text takes the settings of ANL, whose code clips probabilities at 1e-7; this paper's code clips them at 1e-8",
)
DELTA = (
    "the text gives neither delta nor formula; the code rescales any norm of the logits above 1/delta to delta, "
    "where the LogitClip paper clips at tau"
)
AGCE_ALONE = "the supplement says 'we use the same a=6, q=1.5' of its AGCE+MAE; the code trains AGCE alone with {} = 0.6"
FOCAL: dict[str, Any] = {"gamma": 0.5, "detach_focal": DETACHED}

PARAMETERS: dict[str, dict[str, dict[str, Any]]] = {
    "cifar10": {
        "ce": {},
        "fl": FOCAL,
        "gce": {"q": Differs(0.9, 0.7, TABLE.format("q = 0.9", "0.7"))},
        "sce": {"alpha": 0.1, "beta": 1.0, "clip": CLIP},
        "nce": {},
        "nce+rce": {"alpha": 1.0, "beta": 1.0, "clip": CLIP},
        "nce+aul": {"alpha": 1.0, "beta": Differs(3.0, 4.0, TABLE.format("beta = 3", "4")), "a": 6.3, "p": 1.5},
        "nce+agce": {"alpha": Differs(10.0, 1.0, TABLE.format("alpha = 10", "1")), "beta": 4.0, "a": 6.0, "q": 1.5},
        "ce+lc": {"delta": Silent(2.5, DELTA)},
        "anl-ce": {"alpha": 5.0, "beta": 5.0, "minimum": MINIMUM},
        "anl-fl": {"alpha": 5.0, "beta": 5.0, "minimum": MINIMUM, **FOCAL},
        "jal-ce": {"alpha": 1.0, "beta": 1.0, "a": 30.0},
        "jal-fl": {"alpha": 1.0, "beta": 1.0, "a": 30.0, **FOCAL},
        # Only in the ablations and their figures.
        "mae": {"scale": 2.0},
        "agce": {"a": Differs(6.0, 0.6, AGCE_ALONE.format("a")), "q": Differs(1.5, 0.6, AGCE_ALONE.format("q"))},
        "agce+mae": {"alpha": 1.0, "beta": 1.0, "a": 6.0, "q": 1.5},
        "amse": {"a": 30.0, "q": 2.0},
        "nnce": {"minimum": MINIMUM},
    },
    "cifar100": {
        "ce": {},
        "fl": FOCAL,
        "gce": {"q": 0.7},
        "sce": {"alpha": 6.0, "beta": Differs(1.0, 0.1, TABLE.format("beta = 1", "0.1")), "clip": CLIP},
        "nce": {},
        "nce+rce": {"alpha": 10.0, "beta": 0.1, "clip": CLIP},
        "nce+aul": {"alpha": 10.0, "beta": 0.015, "a": 6.0, "p": 3.0},
        "nce+agce": {"alpha": 10.0, "beta": 0.1, "a": 1.8, "q": 3.0},
        "ce+lc": {"delta": Silent(0.5, DELTA)},
        "anl-ce": {"alpha": 10.0, "beta": 1.0, "minimum": MINIMUM},
        "anl-fl": {"alpha": 10.0, "beta": 1.0, "minimum": MINIMUM, **FOCAL},
        "jal-ce": {"alpha": 5.0, "beta": 1.0, "a": 20.0},
        "jal-fl": {"alpha": 5.0, "beta": 1.0, "a": 20.0, **FOCAL},
    },
    "webvision": {
        "ce": {},
        "gce": {"q": Differs(0.7, 0.6, TABLE.format("q = 0.7", "0.6"))},
        "sce": {"alpha": 10.0, "beta": 1.0, "clip": CLIP},
        "nce+rce": {"alpha": 50.0, "beta": 0.1, "clip": CLIP},
        "nce+agce": {"alpha": 50.0, "beta": 0.1, "a": 2.5, "q": 3.0},
        "anl-ce": {"alpha": 20.0, "beta": 1.0, "minimum": MINIMUM},
        "anl-fl": {"alpha": 20.0, "beta": 1.0, "minimum": MINIMUM, **FOCAL},
        "jal-ce": {"alpha": 50.0, "beta": 1.0, "a": 30.0},
        "jal-fl": {"alpha": 50.0, "beta": 1.0, "a": 30.0, **FOCAL},
    },
    "clothing1m": {
        "ce": {},
        "gce": {"q": 0.6},
        "sce": {"alpha": 10.0, "beta": 1.0, "clip": CLIP},
        "nce+rce": {"alpha": 10.0, "beta": 1.0, "clip": CLIP},
        "nce+agce": {"alpha": 50.0, "beta": 0.1, "a": 2.5, "q": 3.0},
        "anl-ce": {"alpha": 5.0, "beta": 0.1, "minimum": MINIMUM},
        "anl-fl": {"alpha": 5.0, "beta": 0.1, "minimum": MINIMUM, **FOCAL},
        "jal-ce": {"alpha": 5.0, "beta": 0.1, "a": 5.0},
        "jal-fl": {"alpha": 5.0, "beta": 0.1, "a": 5.0, **FOCAL},
    },
}
"""The losses in the order of the tables; an option that is not named keeps the catalogue's default, which is the code's."""
