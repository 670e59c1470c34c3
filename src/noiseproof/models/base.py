"""The base of every model, its initialisation, the models by name, and the smallest: CNN5 for images, MLP for features.

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


CNN5_WIDTHS = (32, 64, 128, 128)
CNN5_SIDE = 32


@register_model("cnn5")
class CNN5(Classifier):
    """Five layers for images of any size: a 4x4 convolution, stride 2, 32 wide, then 3x3 ones 64-pool-128-pool-128, the mean
    over positions, and a linear layer.

    BatchNorm and ReLU follow every convolution, pooling takes the maximum of 2x2. Images are first averaged over squares, so
    that their longer side is about 32 pixels: a photograph costs what a thumbnail does. An image of 32x32 takes a fortieth
    of a ResNet-18's multiplications. The features are the 128 means. Initialised by
    :func:`noiseproof.models.base.initialise_published`.

    Args:
        classes: Number of classes.
        in_channels: Of the images.
        widths: Channels of the convolutions.

    >>> sum(parameter.numel() for parameter in CNN5(classes=10).parameters())
    243146
    """

    def __init__(self, classes: int, *, in_channels: int = 3, widths: Sequence[int] = CNN5_WIDTHS) -> None:
        super().__init__()
        self.in_channels = check_integer("in_channels", in_channels, at_least=1)
        self.widths = checked_widths("widths", widths, CNN5_WIDTHS, at_least=1)
        layers: list[nn.Module] = []
        before = self.in_channels
        for place, width in enumerate(self.widths):
            size, stride = (4, 2) if place == 0 else (3, 1)
            layers += [nn.Conv2d(before, width, size, stride=stride, padding=1, bias=False), nn.BatchNorm2d(width)]
            before = width
        self.body = nn.Sequential(*layers)
        self.fc = nn.Linear(before, check_integer("classes", classes, at_least=2))
        initialise_published(self)

    def aligned(self, multiple: int) -> CNN5:
        widths = [round_up(width, multiple) for width in self.widths]
        return CNN5(self.classes, in_channels=round_up(self.in_channels, multiple), widths=widths)

    def penultimate(self, x: Tensor) -> Tensor:
        if x.dim() != 4 or x.shape[1] != self.in_channels or min(x.shape[2:]) < 2:
            raise ValueError(f"CNN5 takes images [N, {self.in_channels}, H, W] of 2x2 or more, got {shape_text(x)}")
        if (factor := min(round(max(x.shape[2:]) / CNN5_SIDE), min(x.shape[2:]) // 2)) > 1:
            x = F.avg_pool2d(x, factor, ceil_mode=True)
        layers = list(self.body)
        for place in range(0, len(layers), 2):
            pool = 0 < place < len(layers) - 2 and min(x.shape[2:]) > 1
            x = activated(layers[place + 1], layers[place](x), pool=pool)
        return x.mean((2, 3))


MLP_HIDDEN = (256, 256)


@register_model("mlp")
class MLP(Classifier):
    """Linear layers with ReLU between them; inputs ``[N, ...]`` are flattened to ``[N, in_features]``.

    ``hidden`` lists the widths; with none it is multinomial logistic regression, and the features are the inputs. Weights
    are xavier-uniform.

    Args:
        classes: Number of classes.
        in_features: Features of an example.
        hidden: Widths of the hidden layers.

    >>> MLP(classes=10, in_features=64, hidden=(32,))
    MLP(
      (body): Sequential(
        (0): Linear(in_features=64, out_features=32, bias=True)
        (1): ReLU(inplace=True)
      )
      (fc): Linear(in_features=32, out_features=10, bias=True)
    )
    """

    def __init__(self, classes: int, in_features: int, hidden: Sequence[int] = MLP_HIDDEN) -> None:
        super().__init__()
        classes = check_integer("classes", classes, at_least=2)
        self.in_features = before = check_integer("in_features", in_features, at_least=1)
        layers: list[nn.Module] = []
        for width in checked_widths("hidden", hidden, MLP_HIDDEN):
            layers += [nn.Linear(before, width), nn.ReLU(inplace=True)]
            before = width
        self.body = nn.Sequential(*layers)
        self.fc = nn.Linear(before, classes)
        initialise_published(self)

    def penultimate(self, x: Tensor) -> Tensor:
        flat = x.flatten(1) if x.dim() > 1 else x
        if flat.dim() != 2 or flat.shape[1] != self.in_features:
            raise ValueError(f"MLP takes {self.in_features} features per example, got an input {shape_text(x)}")
        hidden: Tensor = self.body(flat)
        return hidden
