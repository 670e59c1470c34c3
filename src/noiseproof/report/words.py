"""Numbers in sentences."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["counted", "named_seeds"]


def counted(count: int, one: str, many: str) -> str:
    """A number with the words that agree with it.

    >>> counted(1, "agrees", "agree"), counted(0, "agrees", "agree")
    ('1 agrees', '0 agree')
    """
    return f"{count} {one if count == 1 else many}"


def named_seeds(seeds: Sequence[int]) -> str:
    """In words.

    >>> named_seeds([123, 125])
    'seeds 123 and 125'
    """
    *first, last = map(str, seeds)
    return f"seeds {', '.join(first)} and {last}" if first else f"seed {last}"
