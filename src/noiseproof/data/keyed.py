"""Random numbers that are a function of a key: of a seed, an epoch, an image, and nothing else.

A generator's numbers depend on who drew before; these do not, so that any process on any machine finds the same ones for the
same image. They are whole-number arithmetic written out here, and do not change with the version of a library.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["keyed_bits", "keyed_order", "keyed_uniform"]

Word = int | NDArray[np.uint64]


def keyed_bits(*key: Word) -> NDArray[np.uint64]:
    """64 random bits for each key; the words of a key are in [0, 2**64) and broadcast.

    >>> keyed_bits(0, 1), keyed_bits(1, 0)
    (array([627405149472732430], dtype=uint64), array([6791897765849424158], dtype=uint64))
    """
    state = np.zeros(1, np.uint64)
    for word in key:
        # The finaliser of splitmix64 (Steele, Lea and Flood, OOPSLA 2014): one-to-one, so two keys that differ in one word
        # never share their bits. Arrays wrap around silently; NumPy's scalars would warn.
        state = (state ^ np.asarray(word, np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state = state ^ (state >> np.uint64(31))
    return state


def keyed_uniform(*key: Word) -> NDArray[np.float64]:
    """A number uniform in [0, 1) for each key."""
    return (keyed_bits(*key) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def keyed_order(n: int, *key: Word) -> NDArray[np.int64]:
    """A permutation of n: each number gets random bits, and they are sorted by these."""
    return np.argsort(keyed_bits(*key, np.arange(n, dtype=np.uint64)), kind="stable")
