"""Annotations of the public names can be evaluated, as tools for dataclasses and for documentation do."""

import sys
import typing

import pytest
from torch import nn

from noiseproof import data, models, noise

PUBLIC = {
    f"{part.__name__}.{name}": getattr(part, name)
    for part in (data, models, noise)
    for name in part.__all__
    if callable(getattr(part, name)) and name != "Examples"  # a union of two that are tested
}


@pytest.mark.parametrize("name", PUBLIC)
def test_every_annotation_resolves(name):
    found = PUBLIC[name]
    hints = typing.get_type_hints(found)
    if isinstance(found, type) and issubclass(found, nn.Module):
        return  # whose own annotations name what is in torch's modules only
    assert typing.get_type_hints(found, globalns=vars(sys.modules[found.__module__])) == hints
