"""The complete description of a run: what is trained on which labels, with which loss, and how."""

from __future__ import annotations

import functools
import json
import math
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_type_hints

from noiseproof.io.text import did_you_mean, excerpt
from noiseproof.losses import RobustLoss, create_loss, find_loss
from noiseproof.models import find_model
from noiseproof.noise.matrix import Rule
from noiseproof.theory.choice import AUTO, check_has_auto, with_a
from noiseproof.train.batch_loader import check_augmentation
from noiseproof.train.class_weights import ClassWeight, check_class_weight

OptimiserName = Literal["sgd", "adam"]
Precision = Literal["float32", "tf32", "bf16"]
DATA_OPTIONS = ("label", "columns", "test", "split_column", "drop_unlabelled", "encoder")
RENAMED_FIELDS = {"test_share": "test_size", "one_scale": "global_scaling"}
"""Fields that records and command lines of earlier versions call otherwise"""


@dataclass(frozen=True)
class Recipe:
    """Everything that a run's result depends on. Two runs with equal recipes on equal data are the same run.

    Args:
        dataset: A name (digits, cifar10, ...) or the path of data of your own.
        loss: A name of the catalogue.
        loss_options: Its hyperparameters. ``a`` may be ``auto``, chosen for the recipe's noise before the run starts, or
            ``auto:SOURCE``, chosen for this noise: a rate, symmetric:0.4, a matrix's file, or the folder of an audit.
        noise: none; symmetric:0.8, asymmetric:0.4, pairflip:0.2, instance:0.4; labels:FILE or labels:FILE#NAME, also of soft
            labels; a matrix's file.
        noise_rule: How wrong labels are drawn.
        model: A name of the catalogue, or package.module:function, called with the number of classes and the options.
        model_options: Options of the model.
        weights: A file of weights to start from; its last layer is left out where the number of classes differs.
        optimiser: sgd or adam.
        lr: The learning rate of the first epoch.
        momentum: Of SGD.
        nesterov: Whether the momentum is Nesterov's.
        schedule: The learning rate by epoch: cosine, constant, exponential:FACTOR or step:EPOCH:FACTOR.
        l1: Strength of the L1 penalty, which is added to the loss before the clip.
        l2: Weight decay as optimisers have it, which is added to the gradient after the clip.
        clip: Largest norm of the gradient.
        augment: A name of an augmentation.
        epochs: Passes over the training examples.
        batch: Examples in a step.
        precision: float32, tf32 or bf16. A CPU computes in float32 with each of them.
        seed: Of the noise, the initial weights and the order of the examples.
        confidence_epochs: After these epochs, and the last, the probability of every training example's given label is kept.
        test_size: Of data without a test split, the share of examples to hold out as one; the same examples for every seed.
        standardise: For features: subtract each column's mean and divide by its standard deviation.
        global_scaling: With standardise: the mean and deviation of all columns together, not of each.
        size: For image files: height and width that they are resized to; None is the augmentation's own, 224x224.
        data_options: How a table is read, as :func:`noiseproof.data.open_dataset` takes it: label, columns, test, split_column,
            drop_unlabelled, encoder.
        class_weight: What is done about class imbalance: balanced, tempered, logit-adjustment, weights by class, or auto,
            which is chosen for the loss and the labels before the run starts; see :mod:`noiseproof.train.class_weights`.
        warm_epochs: So many epochs of cross entropy come first: a robust loss that starts from scratch may lose a class.
        elr: Strength of early-learning regularisation, see :class:`noiseproof.ELR`; 0 is none.
        why: How options that were left open were chosen; no part of what is trained.

    Raises:
        ValueError: A value is outside its range, or no loss, model or schedule has the name.

    >>> Recipe(dataset="digits", loss="jal-ce", noise="symmetric:0.4", epochs=3).criterion()
    JALCE(alpha=1.0, beta=1.0, a=30.0, q=2.0, offset=True)
    """

    dataset: str
    loss: str
    loss_options: Mapping[str, Any] = field(default_factory=dict)
    noise: str = "none"
    noise_rule: Rule = "exact"
    model: str = "mlp"
    model_options: Mapping[str, Any] = field(default_factory=dict)
    weights: str | None = None
    optimiser: OptimiserName = "sgd"
    lr: float = 0.01
    momentum: float = 0.9
    nesterov: bool = False
    schedule: str = "cosine"
    l1: float = 0.0
    l2: float = 0.0
    clip: float | None = None
    augment: str = "none"
    epochs: int = 1
    batch: int = 128
    precision: Precision = "float32"
    seed: int = 0
    confidence_epochs: tuple[int, ...] = ()
    test_size: float = 0.0
    standardise: bool = False
    global_scaling: bool = False
    size: tuple[int, int] | None = None
    data_options: Mapping[str, Any] = field(default_factory=dict)
    class_weight: ClassWeight = None
    elr: float = 0.0
    warm_epochs: int = 0
    why: tuple[str, ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        for name, kind in _kinds().items():
            object.__setattr__(self, name, _checked(name, getattr(self, name), kind))
        for name in ("epochs", "batch"):
            if not 1 <= (value := getattr(self, name)) <= MAX_WHOLE:
                most = "at least 1" if value < 1 else f"at most {MAX_WHOLE}"
                raise ValueError(f"{name} must be {most}, got {excerpt(value)}")
        for name in ("lr", "momentum", "l1", "l2", "clip", "elr"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} must be finite and not negative, got {value}")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed must be in [0, 2^32), got {self.seed}")
        if self.clip == 0:
            raise ValueError("clip must be above 0, or none, got 0")
        if not 0 <= self.warm_epochs <= self.epochs:
            raise ValueError(f"warm_epochs must be in [0, {self.epochs}], got {self.warm_epochs}")
        if not 0 <= self.test_size < 1:
            raise ValueError(f"test_size must be in [0, 1), got {self.test_size}")
        wrong = [epoch for epoch in self.confidence_epochs if not 1 <= epoch <= self.epochs]
        if wrong:
            raise ValueError(f"confidence_epochs must be in [1, {self.epochs}], got {wrong[0]}")
        if strange := [name for name in self.data_options if name not in DATA_OPTIONS]:
            raise ValueError(f"data_options are {', '.join(DATA_OPTIONS)}, got {strange[0]!r}")
        if self.size is not None and min(self.size) < 1:
            raise ValueError(f"size must be at least 1 pixel, got {'x'.join(map(str, self.size))}")
        if (reason := find_loss(self.loss).needs_own_loop) is not None:
            raise ValueError(f"{self.loss} {reason}: train it in a loop of your own")
        if "weight" in self.loss_options:
            raise ValueError("weights of classes are the recipe's class_weight, got loss.weight")
        if self.has_auto_a:
            check_has_auto(self.loss)
        given = {name: value for name, value in self.loss_options.items() if not (name == "a" and _is_auto(value))}
        if (reduction := create_loss(self.loss, **given).reduction) != "mean":
            raise ValueError(f"a recipe trains on the mean of the loss, got loss.reduction={reduction}")
        lr_factor(self.schedule, 0, self.epochs)
        check_augmentation(self.augment)
        if ":" not in self.model:
            find_model(self.model)

    @property
    def has_auto(self) -> bool:
        """Whether ``loss.a`` or ``class_weight`` is still to be chosen; :func:`noiseproof.train.resolve_auto` chooses both."""
        return self.has_auto_a or self.class_weight == AUTO

    @property
    def has_auto_a(self) -> bool:
        """Whether ``loss.a`` is still to be chosen."""
        return _is_auto(self.loss_options.get("a"))

    def criterion(self) -> RobustLoss:
        """The loss with its options."""
        return create_loss(self.loss, **self.loss_options)

    def as_dict(self) -> dict[str, Any]:
        """The fields as JSON has them, without ``why``: all that identifies the run."""
        facts: dict[str, Any] = json.loads(json.dumps({name: getattr(self, name) for name in _kinds()}))
        return facts

    @staticmethod
    def from_dict(facts: Mapping[str, Any]) -> Recipe:
        """The recipe that :meth:`as_dict` was called on.

        Args:
            facts: Fields by name; those of earlier versions are known by the names that they had.

        Returns:
            The recipe.
        """
        return override(None, facts)

    def differences(self, other: Recipe | Mapping[str, Any]) -> list[str]:
        """The fields in which another recipe differs from this one.

        Args:
            other: A recipe, or that of a record.

        Returns:
            A sentence for each field.
        """
        ours, theirs = self.as_dict(), other.as_dict() if isinstance(other, Recipe) else dict(other)
        # A record from before a field existed is that of a run with its default.
        theirs = default_facts() | current_names(theirs)
        names = [name for name in ours | theirs if ours.get(name) != theirs.get(name)]
        return [f"{name} is {theirs.get(name)!r}, not {ours.get(name)!r}" for name in names]


def override(recipe: Recipe | None, changes: Mapping[str, Any]) -> Recipe:
    """The recipe with some fields changed.

    Args:
        recipe: What to change; None starts from the defaults.
        changes: Values by field, also as text; ``loss.a`` and ``model.hidden`` change one option.

    Returns:
        A new recipe. Options of another loss or model are not taken over.

    Raises:
        ValueError: A recipe has no such field, or the value is outside its range.

    >>> override(Recipe(dataset="digits", loss="jal-ce"), {"lr": "0.02", "loss.a": "20"}).loss_options
    {'a': 20}
    """
    kinds = _kinds()
    facts: dict[str, Any] = {} if recipe is None else {name: getattr(recipe, name) for name in kinds}
    changes = current_names(changes)
    for name, value in changes.items():
        owner, dot, option = name.partition(".")
        if dot and f"{owner}_options" in kinds:
            facts[f"{owner}_options"] = {**facts.get(f"{owner}_options", {}), option: _read(value)}
        elif name in kinds:
            facts[name] = _from_text(name, value, kinds[name]) if isinstance(value, str) else value
        else:
            known = [*kinds, "loss.OPTION", "model.OPTION"]
            hint = did_you_mean(name, known).rstrip() or f"it has {', '.join(known)}"
            raise ValueError(f"a recipe has no {name!r}; {hint}")
    for owner in ("loss", "model"):
        options = f"{owner}_options"
        if recipe is not None and owner in changes and getattr(recipe, owner) != facts[owner] and options not in changes:
            # The options were those of the other loss or model; only the stem applies to every ResNet.
            kept = {name.partition(".")[2] for name in changes if name.startswith(f"{owner}.")}
            if _is_resnet(getattr(recipe, owner)) and _is_resnet(facts[owner]):
                kept.add("stem")
            facts[options] = {name: value for name, value in facts[options].items() if name in kept}
    if recipe is not None and "epochs" in changes and "confidence_epochs" not in changes and type(facts["epochs"]) is int:
        # A shorter run keeps the epochs that it reaches.
        facts["confidence_epochs"] = tuple(epoch for epoch in recipe.confidence_epochs if epoch <= facts["epochs"])
    if (
        recipe is not None
        and recipe.loss == facts["loss"]
        and _is_auto(facts["loss_options"].get("a"))
        and not recipe.has_auto_a
    ):
        facts["loss_options"] = _left_open(recipe, facts["loss_options"])
    if recipe is not None and not any(name.split(".")[0] in ("loss", "loss_options", "noise", "dataset") for name in changes):
        facts["why"] = recipe.why
    return Recipe(**facts)


def current_names(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a recipe, also of an earlier version's, under the names that they have now."""
    return {RENAMED_FIELDS.get(name, name): value for name, value in facts.items()}


@functools.cache
def default_facts() -> dict[str, Any]:
    """The fields of a recipe that says nothing; not to be changed."""
    return Recipe(dataset="", loss="ce").as_dict()


@functools.cache
def _kinds() -> dict[str, Any]:
    """The type of each field that is set. Cached: resolving the annotations takes longer than all the checks of a recipe."""
    return {name: kind for name, kind in get_type_hints(Recipe).items() if name != "why"}


def _left_open(recipe: Recipe, options: Mapping[str, Any]) -> dict[str, Any]:
    """With ``auto`` in place of the recipe's ``a``: ``beta`` was for that one, and becomes what is as strong at the default."""
    defaults = check_has_auto(recipe.loss)
    before = {**options, "a": recipe.loss_options.get("a", defaults["a"])}
    return {**with_a(recipe.loss, before, defaults["a"]), "a": options["a"]}


def _is_auto(value: Any) -> bool:
    """Whether an option says ``auto`` or ``auto:SOURCE``."""
    return isinstance(value, str) and value.partition(":")[0] == AUTO


def _is_resnet(model: Any) -> bool:
    return isinstance(model, str) and model.lower().startswith("resnet")


def _read(value: Any) -> Any:
    """A number, true or false where the text is one; text otherwise."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:  # also of more digits than Python reads
        return value


def _from_text(name: str, text: str, kind: Any) -> Any:
    """A field's value from text; :func:`_checked` checks it."""
    choices = get_args(kind)
    if type(None) in choices and text.lower() == "none":
        return None
    if name == "class_weight" and ":" in text:
        pairs = [part.rpartition(":") for part in text.split(",")]
        return _read(text) if text.startswith("{") else {key.strip(): _read(weight) for key, _, weight in pairs}
    if name == "confidence_epochs":
        return tuple(_read(part) for part in text.split(",")) if text else ()
    if name == "size":
        return [_read(part) for part in re.split("[x,]", text.strip("[]"))]
    literal = bool(choices) and all(isinstance(choice, str) for choice in choices)
    return text if kind is str or str in choices or literal else _read(text)


def _checked(name: str, value: Any, kind: Any) -> Any:
    """The value with its field's type, or an error that says what is expected."""
    if name == "class_weight":
        return check_class_weight(value)
    choices = get_args(kind)
    if name.endswith("_options"):
        if not isinstance(value, Mapping):
            raise TypeError(f"{name} must be options by name, got {value!r}")
        return dict(value)
    if name == "confidence_epochs":
        if not isinstance(value, list | tuple) or not all(type(epoch) is int for epoch in value):
            raise TypeError(f"{name} must be whole numbers, got {value!r}")
        return tuple(sorted(set(value)))
    if name == "size":
        return _checked_size(value)
    if choices and all(isinstance(choice, str) for choice in choices):
        if value not in choices:
            raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
        return value
    if type(None) in choices:
        if value is None:
            return None
        kind = choices[0]
    if kind is float and type(value) is int:
        return float(value) if abs(value) < sys.float_info.max else math.inf
    if type(value) is not kind:
        raise TypeError(f"{name} must be {IN_WORDS[kind]}, got {excerpt(repr(value))}")
    return value


def _checked_size(value: Any) -> tuple[int, int] | None:
    if value is None:
        return None
    sides = value if isinstance(value, list | tuple) else (value,)
    if len(sides) not in (1, 2) or not all(type(side) is int for side in sides):
        raise TypeError(f"size must be a side of squares such as 32, height and width such as 28x20, or none, got {value!r}")
    return sides[0], sides[-1]


MAX_WHOLE = 10**7
"""Of epochs and batches: more is a slip"""
IN_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


SCHEDULES: dict[str, tuple[int, Callable[..., float]]] = {
    "constant": (0, lambda epoch, epochs: 1.0),
    "cosine": (0, lambda epoch, epochs: (1 + math.cos(math.pi * epoch / epochs)) / 2),
    "exponential": (1, lambda epoch, epochs, factor: math.pow(factor, epoch)),
    "step": (2, lambda epoch, epochs, every, factor: math.pow(factor, epoch // every)),
}
"""The schedules by name: how many numbers follow each, and the factor of an epoch, counted from 0, of so many"""


def lr_factor(schedule: str, epoch: int, epochs: int) -> float:
    """What a schedule multiplies the learning rate with in an epoch, counted from 0; it is constant within one.

    constant             1
    cosine               (1 + cos(pi e/E)) / 2 in epoch e = 0, 1, ... of E: 1 in the first, nearly 0 in the last
    exponential:FACTOR   FACTOR^e
    step:EPOCH:FACTOR    FACTOR^(e // EPOCH)

    >>> [round(lr_factor("cosine", epoch, 4), 4) for epoch in range(4)]
    [1.0, 0.8536, 0.5, 0.1464]
    """
    form, *parts = schedule.split(":")
    if form not in SCHEDULES:
        raise ValueError(f"schedule must be one of constant, cosine, exponential:FACTOR, step:EPOCH:FACTOR, got {schedule!r}")
    count, factor = SCHEDULES[form]
    try:
        numbers = [float(part) for part in parts]
    except ValueError:
        numbers = [math.nan]
    if len(numbers) != count or not all(n > 0 and math.isfinite(n) for n in numbers):
        raise ValueError(f"schedule {form} takes {count} positive numbers after colons, got {schedule!r}")
    return factor(epoch, epochs, *numbers)
