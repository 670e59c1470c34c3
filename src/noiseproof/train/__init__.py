"""Training: one loop, its recipe, its record, and a fast path on CUDA that is the same computation."""

from noiseproof.train.recipe import Recipe, override

__all__ = ["Recipe", "override"]
