"""The models by name, for recipes and the command line. A file of this folder enters its model with :func:`register_model`."""

import difflib
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, get_args, get_type_hints

from noiseproof.models.base import Classifier

__all__ = ["create_model", "find_model", "list_models", "register_model"]

BUILDERS: dict[str, Callable[..., Classifier]] = {}
Builder = TypeVar("Builder", bound=Callable[..., Classifier])


def register_model(name: str) -> Callable[[Builder], Builder]:
    """Decorator of a model's class, or of a function that builds one: ``builder(classes, **options)``."""

    def enter(builder: Builder) -> Builder:
        BUILDERS[name] = builder
        return builder

    return enter


def list_models() -> tuple[str, ...]:
    """The names that :func:`create_model` knows.

    >>> list_models()
    ('cnn5', 'cnn8', 'mlp', 'resnet18', 'resnet34', 'resnet50')
    """
    return tuple(BUILDERS)


def create_model(name: str, classes: int, *, in_channels: int = 3, **options: Any) -> Classifier:
    """The model with this name; case, hyphens and underscores do not matter. ``options`` are the model's own.

    ``mlp`` reads features instead of channels and needs ``in_features``.

    >>> create_model("mlp", classes=3, in_features=4, hidden=()).classifier
    Linear(in_features=4, out_features=3, bias=True)
    >>> create_model("resnt34", classes=10)
    Traceback (most recent call last):
    ValueError: unknown model 'resnt34'; did you mean 'resnet34'?
    """
    found = find_model(name)
    allowed = _options_of(found)
    if "in_channels" in allowed:
        options["in_channels"] = in_channels
    elif in_channels != 3:
        raise ValueError(f"in_channels does not apply to {found}, which takes {', '.join(allowed)}; got {in_channels}")
    unknown = [option for option in options if option not in allowed]
    if unknown:
        raise TypeError(f"{found} has no option {unknown[0]!r}; it takes {', '.join(allowed)}")
    return BUILDERS[found](classes, **options)


def find_model(name: str) -> str:
    """The name as the catalogue spells it; a ValueError with a suggestion if it is unknown.

    >>> find_model("ResNet-34")
    'resnet34'
    """
    if not isinstance(name, str):
        raise TypeError(f"a model is looked up by its name, got {name!r}")
    plain = name.lower().replace("-", "").replace("_", "").replace(" ", "")
    if plain in BUILDERS:
        return plain
    near = [key for key in BUILDERS if plain and key.startswith(plain)] or difflib.get_close_matches(plain, BUILDERS, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(BUILDERS)}"
    raise ValueError(f"unknown model {name!r}; {hint}")


def _options_of(name: str) -> list[str]:
    """The model's own options: its parameters, with those that ``**options: Unpack[...]`` stands for."""
    builder, options = BUILDERS[name], list[str]()
    for parameter in inspect.signature(builder).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            options += get_type_hints(get_args(get_type_hints(builder)[parameter.name])[0])
        elif parameter.name != "classes":
            options.append(parameter.name)
    return options
