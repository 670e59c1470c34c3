"""Which labels look wrong, how many are, and what they are mistaken for.

labels         audit_labels: from examples and labels, with cross-validated learners, or networks for images
views          the learners' predictions of the labels, as audit_labels and fit use them
folds          the cross-validation: folds, recipes, oversampling, the store of finished folds
probabilities  audit_probabilities: from predictions of any models, and from the labels of the nearest examples
noise_model    the model of wrong labels over several predictions: posterior, noise rate, decision rules, estimated scores
scores         accuracy, balanced accuracy and AUC on correct labels, estimated without them
hypotheses     the transition matrices that it considers, and how far each is believed
stacking       calibration, unmixing and stacking of predictions under one of them
result         Audit: the result, its warnings, its summary and its files
decisions      a person's decisions on its labels, and the data with them
"""

import importlib
from typing import TYPE_CHECKING

from noiseproof.audit.probabilities import audit_probabilities
from noiseproof.audit.result import Audit, ClassAudit

__all__ = ["Audit", "ClassAudit", "Progress", "audit_labels", "audit_probabilities"]

if TYPE_CHECKING:
    from noiseproof.audit.folds import Progress
    from noiseproof.audit.labels import audit_labels
else:

    def __getattr__(name):
        """What trains is imported when it is first used: it needs more packages than an audit of probabilities."""
        modules = {"Progress": "noiseproof.audit.folds", "audit_labels": "noiseproof.audit.labels"}
        if name in modules:
            return getattr(importlib.import_module(modules[name]), name)
        raise AttributeError(f"module 'noiseproof.audit' has no attribute {name!r}")
