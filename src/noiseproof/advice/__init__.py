"""Which loss, hyper-parameters and decay for a noise, and on what evidence.

evidence   what was measured, from the records, and what of it is nearest to a case
choice     advise: the advice, with the reason and the evidence of each part
"""

from noiseproof.advice.choice import Advice, Part, advise
from noiseproof.advice.evidence import Case, Cell, cells, nearest

__all__ = ["Advice", "Case", "Cell", "Part", "advise", "cells", "nearest"]
