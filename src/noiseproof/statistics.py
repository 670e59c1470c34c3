"""What a loss of your own reads: ``from noiseproof.statistics import RowStatistics, Statistic``.

The public names of :mod:`noiseproof.core.statistics`, which computes them.
"""

from noiseproof.core.statistics import Logits, RowStatistics, Statistic, every_label_statistics, row_statistics

__all__ = ["Logits", "RowStatistics", "Statistic", "every_label_statistics", "row_statistics"]
