"""The learning rate by epoch."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Schedule"]

FORMS = {"constant": 0, "cosine": 0, "exponential": 1, "step": 2}
"""The schedules and how many numbers each takes."""


@dataclass(frozen=True)
class Schedule:
    """How the learning rate goes from epoch to epoch; it is constant within one.

    constant             1
    cosine               (1 + cos(pi e/E)) / 2 in epoch e = 0, 1, ... of E: 1 in the first, nearly 0 in the last
    exponential:FACTOR   FACTOR^e
    step:EPOCH:FACTOR    FACTOR^(e // EPOCH)

    >>> [round(Schedule.parse("cosine").factor(epoch, 4), 4) for epoch in range(4)]
    [1.0, 0.8536, 0.5, 0.1464]
    """

    form: str
    numbers: tuple[float, ...] = ()

    @staticmethod
    def parse(text: str) -> Schedule:
        form, *parts = text.split(":")
        if form not in FORMS:
            raise ValueError(f"schedule must be one of constant, cosine, exponential:FACTOR, step:EPOCH:FACTOR, got {text!r}")
        try:
            numbers = tuple(float(part) for part in parts)
        except ValueError:
            numbers = ()
        if len(numbers) != FORMS[form] or len(parts) != FORMS[form] or any(not (n > 0 and math.isfinite(n)) for n in numbers):
            raise ValueError(f"schedule {form} takes {FORMS[form]} positive numbers after colons, got {text!r}")
        return Schedule(form, numbers)

    def factor(self, epoch: int, epochs: int) -> float:
        """What the learning rate is multiplied with in ``epoch``, counted from 0."""
        if self.form == "cosine":
            return (1 + math.cos(math.pi * epoch / epochs)) / 2
        if self.form == "exponential":
            return math.pow(self.numbers[0], epoch)
        if self.form == "step":
            return math.pow(self.numbers[1], epoch // self.numbers[0])
        return 1.0
