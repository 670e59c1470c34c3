"""Random numbers as a function of a key, without a generator's state: the same on every machine, in every process, and with
every version of NumPy.

They are SplitMix64's (Steele, Lea and Flood, OOPSLA 2014), in integer arithmetic.
"""

import numpy as np
from numpy.typing import NDArray

__all__ = ["Word", "keyed_bits", "keyed_order", "keyed_uniform", "random_keys", "random_uniform"]

Word = int | NDArray[np.uint64]
Bits = NDArray[np.uint64]
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def random_keys(seed: int, count: int, stream: int = 0, first: int = 0) -> Bits:
    """Return random 64-bit numbers; the streams of a seed are independent.

    Args:
        seed: 64 bits, signed or not, as ``torch.manual_seed`` accepts it.
        count: How many numbers.
        stream: Which of the seed's streams.
        first: Position of the first number in the stream.

    Returns:
        The numbers.

    Raises:
        ValueError: If the seed has more than 64 bits.

    >>> [hex(key) for key in random_keys(0, 2)]
    ['0xe220a8397b1dcdaf', '0x6e789e6aa1b965f4']
    """
    if not -(2**63) <= seed < 2**64:
        raise ValueError(f"seed must be in [-2**63, 2**64), got {seed}")
    with np.errstate(over="ignore"):
        start = np.uint64(seed % 2**64) + np.uint64(stream) * np.uint64(0xD1342543DE82EF95)
        return _mixed(start + np.arange(first + 1, first + count + 1, dtype=np.uint64) * GOLDEN)


def random_uniform(seed: int, count: int, stream: int = 0) -> NDArray[np.float64]:
    """Return random numbers in [0, 1), multiples of 2**-53.

    Args:
        seed: 64 bits, signed or not.
        count: How many numbers.
        stream: Which of the seed's streams.

    Returns:
        The numbers.

    >>> random_uniform(0, 2).round(4).tolist()
    [0.8833, 0.4315]
    """
    return _in_unit_interval(random_keys(seed, count, stream))


def keyed_bits(*key: Word) -> Bits:
    """Return 64 random bits for each key.

    Args:
        *key: The words of a key, integers in [0, 2**64) or arrays of them, which are broadcast.

    Returns:
        The bits.

    Raises:
        ValueError: If a word is out of range.

    >>> keyed_bits(0, 1), keyed_bits(1, 0)
    (array([627405149472732430], dtype=uint64), array([6791897765849424158], dtype=uint64))
    """
    state = np.zeros(1, np.uint64)
    for word in key:
        if isinstance(word, int) and not 0 <= word < 2**64:
            raise ValueError(f"the words of a key must be in [0, 2**64), got {word}")
        # Mixing is one-to-one, so two keys that differ in one word never share their bits.
        state = _mixed((state ^ np.asarray(word, np.uint64)) + GOLDEN)
    return state


def keyed_uniform(*key: Word) -> NDArray[np.float64]:
    """Return a number uniform in [0, 1) for each key.

    Args:
        *key: The words of a key, see :func:`keyed_bits`.

    Returns:
        The numbers.

    >>> keyed_uniform(0, 1).round(4).tolist()
    [0.034]
    """
    return _in_unit_interval(keyed_bits(*key))


def keyed_order(n: int, *key: Word) -> NDArray[np.int64]:
    """Return a random permutation as a function of a key.

    Args:
        n: How many numbers to permute.
        *key: The words of the key, see :func:`keyed_bits`.

    Returns:
        The numbers 0 to n - 1, sorted by random bits.

    >>> sorted(keyed_order(4, 7).tolist())
    [0, 1, 2, 3]
    """
    return np.argsort(keyed_bits(*key, np.arange(n, dtype=np.uint64)), kind="stable")


def _mixed(z: Bits) -> Bits:
    """SplitMix64's finaliser. Arrays wrap around silently, where NumPy's scalars would warn."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _in_unit_interval(bits: Bits) -> NDArray[np.float64]:
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
