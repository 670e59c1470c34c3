"""The base of every model, its initialisation, and the models by name.

A file of this folder enters its model with :func:`register_model`.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar, get_args, get_type_hints

import torch.nn.functional as F  # noqa: N812 - the name every PyTorch reader expects
from torch import Tensor, nn

from noiseproof.checks import check_integer
from noiseproof.io.text import did_you_mean
from noiseproof.plugins import load_plugins

Initialisation = Literal["published", "torchvision"]
HEAD = "fc"
"""The name of the last layer in every model's state dict."""

M = TypeVar("M", bound="Classifier")


class Classifier(nn.Module):
    """A network that ends in one linear layer, ``fc``.

    A subclass sets ``fc`` and writes :meth:`penultimate`. ``initialisation`` is that of a new last layer.

    >>> from noiseproof.models import create_model
    >>> model = create_model("cnn5", classes=10)
    >>> model.classes, model.classifier.in_features
    (10, 128)
    """

    fc: nn.Linear
    initialisation: Initialisation = "published"

    @property
    def classifier(self) -> nn.Linear:
        """The last layer: the logits are this layer of the features."""
        return self.fc

    @property
    def classes(self) -> int:
        """The number of classes."""
        return self.fc.out_features

    def aligned(self, multiple: int) -> Classifier:
        """Return a newly initialised network like this one, with its numbers of channels rounded up to a multiple.

        Its tensors have the same names and are at least as large. With this network's values first and zeros after them it
        computes the same, on inputs padded with zero channels, and training keeps the zeros: an added channel is 0 before
        and after BatchNorm (whose weight there is 0), so it contributes nothing and gets no gradient.

        Args:
            multiple: Of which the numbers of channels become multiples.

        Returns:
            The new network.
        """
        return copy.deepcopy(self)

    def penultimate(self, x: Tensor) -> Tensor:
        """Return the activations before the last layer.

        Args:
            x: Inputs ``[N, ...]``.

        Returns:
            Activations ``[N, D]``.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement `penultimate`")

    def forward(self, x: Tensor, features: bool = False) -> Tensor | tuple[Tensor, Tensor]:
        """Return logits, and on request the activations before the last layer.

        Args:
            x: Inputs ``[N, ...]``.
            features: Whether to return the activations too.

        Returns:
            Logits ``[N, K]``; with ``features``, the pair of logits and activations ``[N, D]``.
        """
        hidden = self.penultimate(x)
        logits: Tensor = self.fc(hidden)
        return (logits, hidden) if features else logits


def replace_head(model: M, classes: int) -> M:
    """Give a model a new last layer, initialised as the model initialises its own.

    Changes the model and returns it. The new layer has the device and dtype of the old one. Create optimisers afterwards.

    Args:
        model: The model, which is changed.
        classes: Number of classes.

    Returns:
        The same model.

    >>> from noiseproof.models import CNN5
    >>> replace_head(CNN5(10), 14).classifier
    Linear(in_features=128, out_features=14, bias=True)
    """
    old = model.classifier
    new = nn.Linear(
        old.in_features,
        check_integer("classes", classes, at_least=2),
        bias=old.bias is not None,
        device=old.weight.device,
        dtype=old.weight.dtype,
    )
    INITIALISE[model.initialisation](new)
    model.fc = new.train(old.training)
    return model


def activated(norm: nn.Module, x: Tensor, shortcut: Tensor | None = None, *, pool: bool = False) -> Tensor:
    """``relu(norm(x) + shortcut)``, and with ``pool`` the maximum of each 2x2 of it.

    A norm layer with a method ``activated``, such as a fused kernel, does all of this at once.
    """
    fused: Callable[..., Tensor] | None = getattr(norm, "activated", None)
    if fused is not None:
        return fused(x, shortcut, pool=pool)
    out = norm(x) if shortcut is None else norm(x) + shortcut
    out = F.relu(out, inplace=True)
    return F.max_pool2d(out, 2) if pool else out


def initialise_published(module: nn.Module) -> None:
    """The initialisation behind the paper's CIFAR results.

    Convolutions: U(-b, b) with b = sqrt(6 / fan_in), kaiming-uniform for ReLU. Linear layers: b = sqrt(6 / (in + out)),
    xavier-uniform. Biases and BatchNorm keep torch's defaults: U(-1/sqrt(fan_in), 1/sqrt(fan_in)), and 1 and 0.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_uniform_(layer.weight, mode="fan_in", nonlinearity="relu")
        elif isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)


def initialise_torchvision(module: nn.Module) -> None:
    """torchvision's: convolutions N(0, 2 / fan_out), kaiming-normal for ReLU; the rest keeps torch's defaults."""
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")


INITIALISE = {"published": initialise_published, "torchvision": initialise_torchvision}


def checked_widths(name: str, widths: Sequence[int], default: Sequence[int], *, at_least: int = 0) -> tuple[int, ...]:
    """The widths of that many layers at least; ``default`` is the example in the error."""
    try:
        found = tuple(widths)
    except TypeError as error:
        raise TypeError(f"{name} must be a list of widths, such as {list(default)}, got {widths!r}") from error
    if len(found) < at_least:
        raise ValueError(f"{name} must have at least {at_least} number, such as {list(default)}, got {len(found)}")
    return tuple(check_integer(f"{name}[{place}]", width, at_least=1) for place, width in enumerate(found))


def round_up(value: int, multiple: int) -> int:
    """The next multiple, or the value if it is one.

    >>> round_up(196, 8)
    200
    """
    return -(-value // multiple) * multiple


def shape_text(x: Tensor) -> str:
    """The shape as error messages print it, such as ``[2, 3, 32, 32]``."""
    return str([int(size) for size in x.shape])


BUILDERS: dict[str, Callable[..., Classifier]] = {}
Builder = TypeVar("Builder", bound=Callable[..., Classifier])


def register_model(name: str) -> Callable[[Builder], Builder]:
    """Enter a model into the catalogue: a decorator of its class, or of a function that builds one.

    Args:
        name: By which :func:`create_model` finds it.

    Returns:
        The decorator; it returns the ``builder(classes, **options)`` unchanged.

    >>> from noiseproof.models import MLP, create_model
    >>> @register_model("logistic")
    ... def logistic(classes: int, in_features: int) -> MLP:
    ...     return MLP(classes, in_features, hidden=())
    >>> create_model("logistic", classes=3, in_features=4).classes
    3
    >>> del BUILDERS["logistic"]
    """

    def enter(builder: Builder) -> Builder:
        BUILDERS[name] = builder
        return builder

    return enter


def list_models() -> tuple[str, ...]:
    """Return the names that :func:`create_model` knows.

    >>> list_models()
    ('cnn5', 'cnn8', 'mlp', 'resnet18', 'resnet34', 'resnet50')
    """
    load_plugins()
    return tuple(sorted(BUILDERS))


def create_model(name: str, classes: int, *, in_channels: int = 3, **options: Any) -> Classifier:
    """Return a new model by its name.

    Args:
        name: Case, hyphens and underscores do not matter.
        classes: Number of classes.
        in_channels: Of the images; ``mlp`` reads features instead and needs ``in_features``.
        **options: The model's own.

    Returns:
        The model.

    Raises:
        ValueError: If the name is unknown, or if the model has no channels.
        TypeError: If the model has no such option.

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
    """Return a model's name as the catalogue spells it.

    Args:
        name: Case, hyphens and underscores do not matter.

    Returns:
        The name.

    Raises:
        ValueError: If it is unknown, with a suggestion.
        TypeError: If it is no string.

    >>> find_model("ResNet-34")
    'resnet34'
    """
    if not isinstance(name, str):
        raise TypeError(f"a model is looked up by its name, got {name!r}")
    plain = name.lower().replace("-", "").replace("_", "").replace(" ", "")
    if plain not in BUILDERS:
        load_plugins()
    if plain in BUILDERS:
        return plain
    starts = (key for key in BUILDERS if plain and key.startswith(plain))
    hint = did_you_mean(next(starts, plain), BUILDERS) or f"known are {', '.join(list_models())}"
    raise ValueError(f"unknown model {name!r}; {hint.rstrip()}")


def _options_of(name: str) -> list[str]:
    """The model's own options: its parameters, with those that ``**options: Unpack[...]`` stands for."""
    builder, options = BUILDERS[name], list[str]()
    for parameter in inspect.signature(builder).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            options += get_type_hints(get_args(get_type_hints(builder)[parameter.name])[0])
        elif parameter.name != "classes":
            options.append(parameter.name)
    return options
