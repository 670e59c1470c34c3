"""Which loss, hyperparameters and regularisation suit the noise and the data, and on what evidence.

choice     advise: the advice, with the reason of each part; what was measured, and what of it is nearest to a case
"""

from noiseproof.advice.choice import Advice, AdvicePart, Case, Evidence, MeasuredLoss, advise, load_evidence, nearest_evidence

__all__ = ["Advice", "AdvicePart", "Case", "Evidence", "MeasuredLoss", "advise", "load_evidence", "nearest_evidence"]
