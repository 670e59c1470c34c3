"""Values on which the paper's text and its code differ: each kept once, resolved for a profile, and listed."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, get_args

__all__ = ["PROFILES", "Difference", "Differs", "Profile", "Silent", "check_profile", "listed", "resolved"]

Profile = Literal["paper-code", "paper-text"]
PROFILES: tuple[Profile, ...] = get_args(Profile)
"""``paper-code`` is what made the published numbers; ``paper-text`` is what the paper alone says."""


class Differs(NamedTuple):
    """The text says one thing, the code does another. Where the text leaves a step out, so does ``text``."""

    text: Any
    code: Any
    source: str


class Silent(NamedTuple):
    """The text gives no value where one is needed; both profiles take the code's."""

    code: Any
    source: str


class Difference(NamedTuple):
    """One difference between the paper's text and its code."""

    field: str
    """A field of the recipe, ``loss.OPTION``, or ``noise KIND:RATE``"""
    text: Any
    """None where the text gives no value; its profile then takes the code's, or leaves the step out"""
    code: Any
    source: str


def resolved(values: Mapping[str, Any], profile: Profile) -> dict[str, Any]:
    """The values as the profile has them.

    >>> resolved({"q": Differs(0.9, 0.7, "Table 8"), "a": 6.0}, "paper-text")
    {'q': 0.9, 'a': 6.0}
    """
    chosen = {}
    for name, value in values.items():
        if isinstance(value, Differs):
            value = value.text if profile == "paper-text" else value.code
        chosen[name] = copy.deepcopy(value.code if isinstance(value, Silent) else value)
    return chosen


def listed(values: Mapping[str, Any], prefix: str = "") -> Iterator[Difference]:
    """The values on which the two do not agree, as differences."""
    for name, value in values.items():
        if isinstance(value, Differs) and value.text != value.code:
            yield Difference(prefix + name, value.text, value.code, value.source)
        elif isinstance(value, Silent):
            yield Difference(prefix + name, None, value.code, value.source)


def check_profile(profile: str) -> Profile:
    """The profile, or an error that names the two."""
    for known in PROFILES:
        if profile == known:
            return known
    near = difflib.get_close_matches(str(profile), PROFILES, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"profile must be one of {', '.join(PROFILES)}, got {profile!r}{hint}")
