"""Losses compared with each other on the same seeds, with paired statistics.

paired   ranks, intervals and groups of paired accuracies
result   Comparison: the table in every format, and a picture
"""

from noiseproof.comparison.result import Comparison, CompetitorResult

__all__ = ["Comparison", "CompetitorResult"]
