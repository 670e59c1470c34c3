"""What the package knows of the classes of well-known data sets: names, super-classes."""

import json
from importlib import resources
from typing import Any

__all__ = ["class_facts", "class_names"]


def class_facts(dataset: str) -> dict[str, Any]:
    """The entry of a data set in classes.json."""
    text = resources.files("noiseproof").joinpath("classes.json").read_text(encoding="utf-8")
    facts: dict[str, Any] = json.loads(text)[dataset]
    return facts


def class_names(dataset: str) -> tuple[str, ...]:
    """The names of the classes, in the order of the labels."""
    return tuple(class_facts(dataset)["classes"])
