"""Annotations that others resolve: frameworks look at the hints of a class from modules that never imported its names."""

import functools
import inspect
import typing

import pytest

import noiseproof
from noiseproof import noise, statistics

PUBLIC = [
    value
    for module in (noiseproof, noise, statistics)
    for value in (getattr(module, name) for name in module.__all__)
    if inspect.isclass(value)
]
LOSSES = [cls for cls in PUBLIC if issubclass(cls, noiseproof.RobustLoss)]


@pytest.mark.parametrize("cls", PUBLIC, ids=lambda cls: cls.__name__)
def test_the_hints_of_every_public_class_resolve(cls):
    typing.get_type_hints(cls)
    typing.get_type_hints(cls.__init__)
    if hasattr(cls, "forward"):
        assert typing.get_type_hints(cls.forward)["return"].__name__ == "Tensor"


@pytest.mark.parametrize("cls", [*LOSSES, statistics.Statistic, statistics.RowStatistics], ids=lambda cls: cls.__name__)
def test_they_resolve_where_none_of_our_names_is_known(cls):
    """A wrapper made by functools.update_wrapper, such as fastai's, has a loss's annotations and none of its globals."""
    for base in cls.__mro__:
        if base.__module__.startswith("noiseproof."):
            wrapper = functools.update_wrapper(lambda: None, base)
            assert isinstance(typing.get_type_hints(wrapper, globalns={}, localns={}), dict)
