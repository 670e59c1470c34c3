"""The catalogue: the one list of losses that the factory, the command line, the documentation and the tests all read.

A loss enters it with :func:`register`, above its class. What an entry claims is executable: the tests evaluate the printed
formula, range and conditions and compare them with what the loss does. These are Python text, which :func:`evaluate` evaluates.
"""

import ast
import importlib
import inspect
import math
import pkgutil
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from noiseproof.io.text import lookup, normalise
from noiseproof.losses.base import RobustLoss, Sum, parameters_of
from noiseproof.losses.facts import LIST_HINT
from noiseproof.plugins import named_object

ALLOWED_NODES = (
    *(ast.Expression, ast.Constant, ast.Name, ast.Load, ast.Subscript, ast.Call, ast.IfExp),
    *(ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.UnaryOp, ast.USub, ast.Not),
    *(ast.BoolOp, ast.And, ast.Or, ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE),
)


def _entropy(p: ArrayLike) -> float:
    p = np.asarray(p)
    return float(-np.sum(np.where(p > 0, p * np.log(np.maximum(p, 1e-300)), 0.0)))


def _softmax(z: NDArray[np.float64]) -> NDArray[np.float64]:
    shares: NDArray[np.float64] = np.exp(z - np.max(z))
    shares /= shares.sum()
    return shares


KNOWN_NAMES: dict[str, Any] = {
    **{name: getattr(np, name) for name in ("abs", "arange", "arccos", "exp", "log", "max", "maximum", "mean", "minimum")},
    **{"sqrt": np.sqrt, "sum": np.sum, "norm": np.linalg.norm, "softmax": _softmax, "H": _entropy, "inf": math.inf},
}
"""What every expression may use without being given it."""


def parse(expression: str) -> ast.Expression:
    """The tree of an expression, without the ``if`` of a sufficient condition; a ValueError that says what is not allowed.

    >>> parse("__import__('os').system('true')")
    Traceback (most recent call last):
    ValueError: "__import__('os').system('true')" must be made of numbers, names, ... got Attribute in "__import__('os').system"
    """
    try:
        tree = ast.parse(expression.removeprefix("if ").strip(), mode="eval")
    except SyntaxError as error:
        raise ValueError(f"{expression!r} must be a Python expression: {error.msg}") from None
    nodes = list(ast.walk(tree))
    wrong = [node for node in nodes if not isinstance(node, ALLOWED_NODES)]
    wrong += [node for node in nodes if isinstance(node, ast.Call) and not isinstance(node.func, ast.Name)]
    wrong += [node for node in nodes if isinstance(node, ast.Constant) and not isinstance(node.value, int | float)]
    if wrong:
        found = f"{type(wrong[0]).__name__} in {ast.unparse(wrong[0])!r}"
        raise ValueError(f"{expression!r} must be made of numbers, names, arithmetic, comparisons and calls, got {found}")
    return tree


def names_in(*expressions: str) -> set[str]:
    """The names that expressions use, of functions too.

    >>> sorted(names_in("q == 1 or False", "F(p[y])"))
    ['F', 'p', 'q', 'y']
    """
    return {node.id for text in expressions for node in ast.walk(parse(text)) if isinstance(node, ast.Name)}


def evaluate(expression: str, values: Mapping[str, Any]) -> Any:
    """The value of an expression where its names have ``values``.

    >>> evaluate("if q <= 1 or w1 >= 2 * w2", {"q": 3.0, "w1": 0.6, "w2": 0.1})
    True
    """
    known = {**KNOWN_NAMES, **values}
    unknown = sorted(names_in(expression) - set(known))
    if unknown:
        raise ValueError(f"{expression!r} uses {', '.join(unknown)}, and no value was given")
    return eval(compile(parse(expression), "<catalogue>", "eval"), {"__builtins__": {}}, known)


def values_of(loss: RobustLoss) -> dict[str, Any]:
    """A loss's parameters under the names that expressions give them: a parameter p is ``p_``, and gamma defines ``F``."""
    values = {"p_" if name == "p" else name: getattr(loss, name) for name in parameters_of(type(loss))}
    if "gamma" in values:
        gamma = values["gamma"]
        values["F"] = lambda p: np.where(np.asarray(p) < 1, (1 - p) ** gamma * -np.log(p), 0.0)
    return values


def times(factor: str, expression: str) -> str:
    """The product as text: parentheses only where they are needed, and nothing times 0, 1 or infinity.

    >>> times("beta", "1 - p[y]"), times("beta", "-log(p[y]) / K"), times("beta", "1")
    ('beta * (1 - p[y])', 'beta * -log(p[y]) / K', 'beta')
    """
    if expression in {"0", "inf"}:
        return expression
    if expression == "1":
        return factor
    tree = parse(expression).body
    loose = isinstance(tree, ast.IfExp | ast.Compare | ast.BoolOp)
    loose |= isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.Add | ast.Sub)
    return f"{factor} * ({expression})" if loose else f"{factor} * {expression}"


def plus(first: str, second: str) -> str:
    """The sum of two products as text, without zeros; infinity if one of them is."""
    if "inf" in {first, second}:
        return "inf"
    return " + ".join(text for text in (first, second) if text != "0") or "0"


def both(first: str, second: str) -> str:
    """The condition that two conditions hold.

    >>> both("if True", "q <= 1 or a > 2"), both("q == 1", "p_ < 1 or a > 2"), both("q == 1", "False")
    ('q <= 1 or a > 2', 'q == 1 and (p_ < 1 or a > 2)', 'False')
    """
    texts = [text.removeprefix("if ") for text in (first, second)]
    if "False" in texts:
        return "False"
    texts = [text for text in dict.fromkeys(texts) if text != "True"]
    if len(texts) == 2:
        texts = [f"({text})" if isinstance(parse(text).body, ast.BoolOp | ast.IfExp) else text for text in texts]
    return " and ".join(texts) or "True"


def with_constants(expression: str, constants: Mapping[str, float]) -> str:
    """The text with numbers in place of names.

    >>> with_constants("scale * (1 - p[y])", {"scale": 2.0}), with_constants("scale * (1 - p[y])", {"scale": 1.0})
    ('2 * (1 - p[y])', '1 - p[y]')
    """
    if not names_in(expression) & set(constants):
        return expression
    prefix = "if " if expression.startswith("if ") else ""
    return prefix + ast.unparse(_Constants(constants).visit(parse(expression))).replace(" ** ", "**")


class _Constants(ast.NodeTransformer):
    def __init__(self, constants: Mapping[str, float]) -> None:
        self.constants = constants

    def visit_Name(self, node: ast.Name) -> ast.expr:
        value = self.constants.get(node.id)
        return node if value is None else ast.Constant(int(value) if value == int(value) else value)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        node = ast.BinOp(self.visit(node.left), node.op, self.visit(node.right))
        one = isinstance(node.op, ast.Mult) and isinstance(node.left, ast.Constant) and node.left.value == 1
        return node.right if one else node


__all__ = ["LossEntry", "create_loss", "find_loss", "list_losses", "register", "register_pair"]

L = TypeVar("L", bound=RobustLoss)
P = TypeVar("P", bound=Sum)
Kind = Literal["active", "passive", "active + passive", "active + active", "passive + passive", "head", "regularised", "own"]
Reads = Literal["statistics", "logits", "features", "predictions"]


@dataclass(frozen=True)
class LossEntry:
    """What is known of one loss.

    Formulas and conditions are Python expressions in the symbols that ``SYMBOLS`` explains. What is claimed of a pair holds
    where neither of its weights is 0.

    Attributes:
        name: The name that :func:`create_loss` accepts.
        cls: The class.
        title: The name in words.
        aliases: Other names.
        formula: The loss of one example.
        kind: ``active``, ``passive`` or another kind.
        symmetric: When the losses of all labels sum to a constant: ``True``, ``False`` or a condition on the parameters.
        asymmetric: When the risk under label weights ``w1 > w2 >= ...`` is least at certainty of the first label. A condition
            that starts with ``if`` is sufficient; any other is necessary too. None: nothing is claimed.
        range: Least and greatest value; None where it depends on more than the parameters and K.
        reference: The publication.
        reads: What the loss is computed from: statistics, logits, features or predictions.
        shift_invariant: Whether adding a constant to a row of logits changes nothing.

    Example:
        >>> entry = find_loss("gce")
        >>> entry.formula, entry.defaults
        ('(1 - p[y]**q) / q', {'q': 0.7})
    """

    name: str
    cls: type[RobustLoss]
    title: str
    aliases: tuple[str, ...]
    formula: str
    kind: Kind
    symmetric: str
    asymmetric: str | None
    range: tuple[str, str] | None
    reference: str
    reads: Reads
    shift_invariant: bool

    @property
    def expressions(self) -> tuple[str, ...]:
        """All it states: formula, conditions and range."""
        stated = (self.formula, self.symmetric, self.asymmetric, *(self.range or ()))
        return tuple(text for text in stated if text)

    @property
    def needs_own_loop(self) -> str | None:
        """Why a recipe cannot train it; None where one can."""
        if self.reads in ("features", "predictions"):
            return f"is called on {self.reads}, not on logits"
        return "must be told of the training by calls of its method update" if self.cls.follows_training else None

    @property
    def arguments(self) -> tuple[str, ...]:
        """The tensors that it is called with; the parameters of a head are arguments of its function."""
        if self.reads == "features":
            return ("features", "target", "means", "root_freedom")
        return ("logits", "target")

    @property
    def defaults(self) -> dict[str, Any]:
        """The hyperparameters with their defaults; one without a default must be given."""
        return parameters_of(self.cls)

    @property
    def function_name(self) -> str:
        """Its name in ``noiseproof.functional``."""
        return self.name.replace("-", "_").replace("+", "_")

    @property
    def names(self) -> tuple[str, ...]:
        """All that it is found by."""
        return (self.name, self.cls.__name__, self.function_name, *self.aliases)

    @property
    def symbols(self) -> dict[str, str]:
        """The symbols of what it states, with their meaning; "F(p)" explains F, "w1, w2" both."""
        used = names_in(*self.expressions)
        return {text: meaning for text, meaning in SYMBOLS.items() if used & {part.split("(")[0] for part in text.split(", ")}}


SYMBOLS = {
    "p": "the softmax of the logits, one probability per class",
    "y": "the label; p[y] is its probability",
    "e": "the label's one-hot vector",
    "z": "the logits",
    "K": "the number of classes",
    "p_": "the loss's parameter p, as opposed to the softmax",
    "F(p)": "(1 - p)**gamma * -log(p), the focal term",
    "H(p)": "sum(-p * log(p)), the entropy",
    "w1, w2": "the two largest label weights at one example, normalised to sum 1",
}

FAMILIES = (
    *("classic", "generalized", "normalized", "asymmetric", "joint"),
    *("pairs", "epsilon", "transformed", "complementary", "views", "student"),
)

CONTRACT_MEANINGS = {
    "weight": "factor of each class's loss, [K]",
    "ignore_index": "the label of rows that count for nothing",
    "reduction": "none, mean (by the weights of the labels) or sum",
    "label_smoothing": "share of the target that goes to all classes alike, in [0, 1]",
}

_entries: dict[str, LossEntry] = {}
_names: dict[str, LossEntry] = {}
"""What :func:`_lookup` gives, until the next loss is registered."""


def register(
    name: str,
    *,
    title: str,
    formula: str,
    kind: Kind,
    reference: str,
    aliases: Iterable[str] = (),
    symmetric: str = "False",
    asymmetric: str | None = None,
    range: tuple[str, str] | None = None,
    reads: Reads = "statistics",
    shift_invariant: bool = True,
) -> Callable[[type[L]], type[L]]:
    """Decorate a class of losses: enter it into the catalogue, and its reference into its docstring.

    Args:
        name: The name that :func:`create_loss` accepts.
        title: The name in words.
        formula: The loss of one example, a Python expression in the symbols of ``SYMBOLS``.
        kind: ``active`` for a loss of the label's probability, ``passive`` for one of the others', or another kind.
        reference: The publication.
        aliases: Other names.
        symmetric: When the losses of all labels sum to a constant: ``True``, ``False`` or a condition on the parameters.
        asymmetric: When the loss is asymmetric; with ``if`` in front the condition is sufficient, else necessary too.
        range: Least and greatest value.
        reads: What the loss is computed from.
        shift_invariant: Whether adding a constant to a row of logits changes nothing.

    Returns:
        The decorator.

    Example:
        >>> from noiseproof.statistics import Statistic
        >>> @register("half-ce", title="Half", formula="-log(p[y]) / 2", kind="active", reference="none")
        ... class HalfCE(RobustLoss):
        ...     needs = (Statistic.NLL,)
        ...
        ...     def from_statistics(self, s):
        ...         return s.nll / 2
        >>> create_loss("half-ce")
        HalfCE()
        >>> _ = _entries.pop("half-ce"), _names.clear()  # leave the catalogue as it was
    """

    def enter(cls: type[L]) -> type[L]:
        entry = LossEntry(
            name, cls, title, tuple(aliases), formula, kind, symmetric, asymmetric, range, reference, reads, shift_invariant
        )
        for key in (name, *entry.aliases):
            taken = _lookup().get(normalise(key))
            if taken is not None and taken.cls.__qualname__ != cls.__qualname__:
                raise ValueError(f"the name {key!r} of {cls.__name__} is taken by {taken.cls.__name__}")
        names_in(*entry.expressions)  # a text that is no expression fails here, where it is written
        _entries[name] = entry
        _names.clear()
        if cls.__doc__:
            cls.__doc__ = f"{inspect.cleandoc(cls.__doc__)}\n\nReference: {reference}."
        return cls

    return enter


def register_pair(
    name: str, *, reference: str, title: str | None = None, asymmetric: str | None = None
) -> Callable[[type[P]], type[P]]:
    """Decorate a sum ``alpha * first + beta * second``: enter it with what follows from the entries of its two parts.

    Formulas and ranges add; the pair is symmetric where both parts are, and asymmetric where both are. A parameter of a part
    that the pair does not have is a constant.

    Args:
        name: The name that :func:`create_loss` accepts.
        reference: The publication.
        title: The name in words; made of the parts' if not given.
        asymmetric: A condition for asymmetry that is weaker than that of both parts.

    Returns:
        The decorator.

    Example:
        >>> from noiseproof import CE, MAE
        >>> @register_pair("ce+half-mae", reference="none")
        ... class CEandMAE(Sum):
        ...     def __init__(self, *, alpha=1.0, beta=0.5, **contract):
        ...         super().__init__([(alpha, CE()), (beta, MAE())], **contract)
        ...         self.alpha, self.beta = alpha, beta
        >>> find_loss("ce+half-mae").formula
        'alpha * -log(p[y]) + beta * 2 * (1 - p[y])'
        >>> _ = _entries.pop("ce+half-mae"), _names.clear()  # leave the catalogue as it was
    """

    def enter(cls: type[P]) -> type[P]:
        (_, first), (_, second) = cast("Callable[[], Sum]", cls)().terms
        one, two = _as_part(first, cls), _as_part(second, cls)
        shared = both(one.asymmetric or "False", two.asymmetric or "False")
        ends = [plus(times("alpha", a), times("beta", b)) for a, b in zip(one.range or (), two.range or (), strict=False)]
        return register(
            name,
            title=title or f"{one.title} and {two.title[0].lower()}{two.title[1:]}",
            formula=plus(times("alpha", one.formula), times("beta", two.formula)),
            kind=cast(Kind, f"{one.kind} + {two.kind}"),
            reference=reference,
            symmetric=both(one.symmetric, two.symmetric),
            asymmetric=asymmetric or (None if shared == "False" else f"if {shared}"),
            range=(ends[0], ends[1]) if ends else None,
        )(cls)

    return enter


def describe_parameters(entry: LossEntry) -> dict[str, str]:
    """The meaning of each hyperparameter, from the ``Args:`` of the class; its name where these do not say it."""
    section = re.search(r"^Args:\n((?: {4}.*\n?)+)", inspect.getdoc(entry.cls) or "", re.MULTILINE)
    found = dict(re.findall(r"^ {4}(\w+): (.+(?:\n {8}.+)*)", section[1] if section else "", re.MULTILINE))
    texts = {name: " ".join(found.get(name, name).split()).removesuffix(".") for name in entry.defaults}
    return {name: f"{text[:1].lower()}{text[1:]}" for name, text in texts.items()}


def list_losses(kind: Kind | None = None) -> tuple[LossEntry, ...]:
    """List the entries of the catalogue in the order of the families.

    Args:
        kind: The kind to keep; None for all.

    Returns:
        The entries.

    Example:
        >>> [entry.name for entry in list_losses(kind="passive")][:3]
        ['mae', 'mse', 'rce']
    """
    _discover()
    kept = (entry for entry in _entries.values() if kind is None or entry.kind == kind)
    return tuple(sorted(kept, key=_family))


def find_loss(name: str) -> LossEntry:
    """Return the catalogue's entry of a loss.

    Args:
        name: A name, alias or class name, where case and the characters between words do not matter, or ``module:Name``
            for a class of one's own, a :class:`RobustLoss` or any ``torch.nn.Module`` that is called on logits and target.

    Returns:
        The entry; one without claims for a class that is not registered.

    Raises:
        ValueError: If no loss has this name, or the module cannot be imported.
        TypeError: If the name is no text, or what it names is no class of losses.

    Example:
        >>> find_loss("JAL-CE").name, find_loss("NCE+RCE").cls.__name__
        ('jal-ce', 'NCEandRCE')
        >>> find_loss("gec")
        Traceback (most recent call last):
        ValueError: unknown loss 'gec'; did you mean 'gce'? 'noiseproof losses' lists them
    """
    _discover()
    return _user_entry(name) if isinstance(name, str) and ":" in name else lookup(name, _lookup(), "loss", LIST_HINT)


def create_loss(name: str, **options: Any) -> RobustLoss:
    """Create a loss by its name.

    Args:
        name: What :func:`find_loss` accepts: a name of the catalogue, or ``module:Name``.
        **options: Hyperparameters, and the options of :class:`RobustLoss`.

    Returns:
        The loss.

    Example:
        >>> create_loss("jal-ce", a=20.0, reduction="sum")
        JALCE(alpha=1.0, beta=1.0, a=20.0, q=2.0, offset=True, reduction='sum')
        >>> import torch
        >>> loss = create_loss("torch.nn:CrossEntropyLoss", label_smoothing=0.1)
        >>> round(loss(torch.zeros(1, 4), torch.tensor([2])).item(), 4)  # log 4
        1.3863
    """
    return find_loss(name).cls(**options)


_discovered = False


def _discover() -> None:
    """Import every module of this package, so that each file of losses enters the catalogue by being there."""
    global _discovered
    if not _discovered:
        _discovered = True
        package = __name__.rpartition(".")[0]
        for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
            importlib.import_module(f"{package}.{module.name}")


def _as_part(loss: RobustLoss, pair: type[Sum]) -> LossEntry:
    """The entry of a pair's part, with the parameters that the pair fixes as numbers."""
    entry = next((known for known in _entries.values() if known.cls is type(loss)), None)
    if entry is None:
        raise ValueError(f"{type(loss).__name__}, a part of {pair.__name__}, is not in the catalogue; register it first")
    fixed = {name: getattr(loss, name) for name in entry.defaults if name not in parameters_of(pair)}
    return replace(
        entry,
        formula=with_constants(entry.formula, fixed),
        symmetric=with_constants(entry.symmetric, fixed),
        asymmetric=None if entry.asymmetric is None else with_constants(entry.asymmetric, fixed),
        range=None if entry.range is None else (with_constants(entry.range[0], fixed), with_constants(entry.range[1], fixed)),
    )


def _family(entry: LossEntry) -> int:
    """Families in the order of their map in ``losses/__init__.py``; files that are not on it come last."""
    module = entry.cls.__module__.rpartition(".")[2]
    return FAMILIES.index(module) if module in FAMILIES else len(FAMILIES)


def _lookup() -> dict[str, LossEntry]:
    """Every entry by each of its names."""
    if not _names:
        _names.update({normalise(key): entry for entry in sorted(_entries.values(), key=_family) for key in entry.names})
    return _names


def _user_entry(name: str) -> LossEntry:
    """The entry of ``module:Name``, a loss of the user's own; one that is not registered makes no claims."""
    cls = _user_class(name)
    for entry in _entries.values():
        if entry.cls is cls:
            return replace(entry, name=name, aliases=())
    title = next(iter((inspect.getdoc(cls) or "").splitlines()), "").rstrip(".") or cls.__name__
    reads: Reads = "logits" if cls.needs is None else "statistics"
    return LossEntry(name, cls, title, (), "", "own", "False", None, None, "none", reads, shift_invariant=False)


def _user_class(name: str) -> type[RobustLoss]:
    """The class behind ``module:Name``: a loss of the contract, or any module that is called on logits and target."""
    found = named_object(name, "loss", "a loss of your own is named package.module:Class")
    if not isinstance(found, type) or not issubclass(found, nn.Module):
        given = found.__name__ if isinstance(found, type) else type(found).__name__
        raise TypeError(f"loss {name!r} must be a subclass of noiseproof.RobustLoss or torch.nn.Module, got {given}")
    return found if issubclass(found, RobustLoss) else _wrapped(found)


def _wrapped(module: type[nn.Module]) -> type[RobustLoss]:
    """A module that is called on logits and target as a loss: with its own options, reduction and state."""

    class ModuleLoss(RobustLoss):
        def __init__(self, **options: Any) -> None:
            made = module(**options)
            super().__init__(reduction=getattr(made, "reduction", "mean"))
            self.module = made

        def forward(self, logits: Tensor, target: Tensor, **unknown: Any) -> Tensor:
            result: Tensor = self.module(logits, target, **unknown)
            return result

        def __repr__(self) -> str:
            return repr(self.module)

    ModuleLoss.__init__.__signature__ = inspect.signature(module.__init__)  # type: ignore[attr-defined]
    ModuleLoss.__name__ = ModuleLoss.__qualname__ = module.__name__
    ModuleLoss.__doc__, ModuleLoss.__module__ = module.__doc__, module.__module__
    return ModuleLoss
