"""What the package knows of the data sets' classes, from classes.json."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

__all__ = ["class_facts"]


def class_facts(name: str) -> dict[str, Any]:
    """Of a data set: ``classes``, names in the order of the labels; of CIFAR-100 ``superclasses`` and ``superclass_of`` too."""
    facts: dict[str, Any] = json.loads(resources.files("noiseproof").joinpath("classes.json").read_text(encoding="utf-8"))[name]
    return facts
