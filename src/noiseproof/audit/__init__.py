"""Which labels look wrong, how many are, and what they are mistaken for.

mixture        the model: recalibrated predictions of the true label, and a matrix from true to given labels
neighbours     what the nearest examples are labelled as
probabilities  audit_probabilities: from predictions of any model on examples it was not trained on
result         Audit: the answer, and its files
"""

from noiseproof.audit.probabilities import audit_probabilities
from noiseproof.audit.result import Audit, ClassAudit

__all__ = ["Audit", "ClassAudit", "audit_probabilities"]
