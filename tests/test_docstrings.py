"""Docstrings of everything public have a summary, ``Args:``, ``Returns:``, ``Raises:`` and an example.

``tools/docstrings.py noiseproof.losses`` prints what those of a package lack.
"""

import importlib

import pytest

from tools import docstrings


@pytest.mark.parametrize("module", docstrings.public_modules())
def test_nothing_is_missing_in_the_docstrings_of_public_names(module):
    if module == "noiseproof.kernels":
        pytest.importorskip("triton")
    assert docstrings.missing(module) == []


@pytest.mark.parametrize("module", docstrings.public_modules())
def test_every_package_says_what_it_is(module):
    if module == "noiseproof.kernels":
        pytest.importorskip("triton")
    assert (importlib.import_module(module).__doc__ or "").strip()


def whole(values, *, power=1.0):
    """Return the sum of powers.

    Args:
        values: Numbers.
        power: Exponent.

    Returns:
        The sum.

    Raises:
        ValueError: If there are no values.

    >>> whole([1, 2], power=2)
    5
    """
    if not values:
        raise ValueError
    return sum(value**power for value in values)


@pytest.mark.parametrize(
    ("removed", "put", "problem"),
    [
        ("Return the sum of powers.", "The sum of powers", "has no summary"),
        ("        power: Exponent.\n", "", "has no Args: for power"),
        ("power: Exponent", "power: Exponent.\n        base: Another", "has Args: for base, which it does not accept"),
        ("Returns:", "Gives:", "has no Returns:"),
        ("ValueError: If", "If", "has no Raises: for ValueError"),
        (">>>", "", "has no example"),
    ],
)
def test_each_rule_finds_what_is_missing(removed, put, problem):
    whole.__annotations__["return"] = float
    text = whole.__doc__
    assert list(docstrings.problems_of("whole", whole)) == []
    assert removed in text
    whole.__doc__ = text.replace(removed, put)
    try:
        assert list(docstrings.problems_of("whole", whole)) == [f"whole {problem}"]
    finally:
        whole.__doc__ = text
