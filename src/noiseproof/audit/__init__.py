"""Which labels look wrong, how many are, and what they are mistaken for.

mixture        the model: recalibrated predictions of the true label, and a matrix from true to given labels
neighbours     what the nearest examples are labelled as
probabilities  audit_probabilities: from predictions of any model on examples it was not trained on
labels         audit_labels: from examples and labels, with networks of our own
folds          the cross-validation of audit_labels, and the store of its finished folds
result         Audit: the answer
tables         its files, and decisions on it that come back
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
