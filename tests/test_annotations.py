"""Annotations that others resolve: frameworks look at the hints of a class from modules that never imported its names."""

import functools
import inspect
import sys
import typing

import pytest
from torch import nn

import noiseproof
from noiseproof import data, models, noise, paper, statistics, train
from noiseproof.losses.base import Contract

PACKAGES = (noiseproof, data, models, noise, paper, statistics, train)
PUBLIC = {
    f"{package.__name__}.{name}": getattr(package, name)
    for package in PACKAGES
    for name in package.__all__
    if inspect.isclass(getattr(package, name)) or inspect.isfunction(getattr(package, name))
}
LOSSES = [found for found in PUBLIC.values() if inspect.isclass(found) and issubclass(found, noiseproof.RobustLoss)]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_annotation_resolves(name):
    found = PUBLIC[name]
    hints = typing.get_type_hints(found)
    if inspect.isclass(found):
        for method in ("__init__", "forward"):
            if inspect.isfunction(getattr(found, method, None)):
                typing.get_type_hints(getattr(found, method))
    if not (inspect.isclass(found) and issubclass(found, nn.Module)):  # whose annotations name what only torch's modules have
        assert typing.get_type_hints(found, globalns=vars(sys.modules[found.__module__])) == hints


@pytest.mark.parametrize(
    "cls", [*LOSSES, statistics.Statistic, statistics.RowStatistics, Contract], ids=lambda cls: cls.__name__
)
def test_those_of_losses_resolve_where_none_of_our_names_is_known(cls):
    """A wrapper made by functools.update_wrapper, such as fastai's, has a loss's annotations and none of its globals."""
    for base in cls.__mro__:
        if base.__module__.startswith("noiseproof."):
            wrapper = functools.update_wrapper(lambda: None, base)
            assert isinstance(typing.get_type_hints(wrapper, globalns={}, localns={}), dict)
