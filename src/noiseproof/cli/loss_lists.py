"""Lists of losses and of decays, as they are written on the command line."""

from __future__ import annotations

from noiseproof.losses import find_loss

__all__ = ["parse_decays", "parse_losses"]


def parse_losses(text: str) -> list[tuple[str, str, dict[str, str]]]:
    """Each loss as it is shown, its name in the catalogue, and its options as text.

    >>> parse_losses("CE,jal-ce(a=20, q=3)")
    [('ce', 'ce', {}), ('jal-ce(a=20, q=3)', 'jal-ce', {'a': '20', 'q': '3'})]
    """
    found = []
    for part in _split(text):
        name, bracket, rest = part.partition("(")
        if bracket and not rest.endswith(")"):
            raise ValueError(f"a loss is NAME or NAME(OPTION=VALUE, ...), got {part!r}")
        loss, options = find_loss(name.strip()).name, {}
        for option in _split(rest[:-1]) if rest[:-1].strip() else ():
            key, equals, value = (piece.strip() for piece in option.partition("="))
            if not (equals and key.isidentifier() and value):
                raise ValueError(f"the options of {loss} are OPTION=VALUE, such as jal-ce(a=20), got {option!r}")
            options[key] = value
        shown = f"({', '.join(f'{key}={value}' for key, value in options.items())})" if options else ""
        found.append((loss + shown, loss, options))
    return found


def parse_decays(text: str | None) -> list[dict[str, float]]:
    """The fields of recipes that each decay sets; one without fields for the recipe's own.

    >>> parse_decays("l1:5e-5,none")
    [{'l1': 5e-05, 'l2': 0.0}, {'l1': 0.0, 'l2': 0.0}]
    """
    if text is None:
        return [{}]
    found = []
    for part in _split(text):
        kind, _, value = part.partition(":")
        try:
            amount = {} if part == "none" else {kind: float(value)}
        except ValueError:
            amount = {"": 0.0}
        if not amount.keys() <= {"l1", "l2"}:
            raise ValueError(f"a decay is l1:5e-5, l2:1e-4 or none, got {part!r}")
        found.append({"l1": 0.0, "l2": 0.0} | amount)
    return found


def _split(text: str) -> list[str]:
    """At the commas outside brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    if depth:
        raise ValueError(f"a bracket is not closed, or not opened, in {text!r}")
    parts = [part.strip() for part in parts]
    if not all(parts):
        raise ValueError(f"a name is missing beside a comma in {text!r}")
    return parts
