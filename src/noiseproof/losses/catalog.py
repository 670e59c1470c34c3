"""The catalogue: the one list of losses that the factory, the command line, the README and the tests all read.

A loss enters it with :func:`register`, above its class. What an entry claims is executable: the tests evaluate the printed
formula, range and conditions and compare them with what the loss does.
"""

import difflib
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar, cast

from noiseproof.losses.base import RobustLoss, parameters_of
from noiseproof.losses.composition import Sum
from noiseproof.losses.expressions import both, names_in, plus, times, with_constants

__all__ = ["LossEntry", "create_loss", "find_loss", "list_losses", "register", "register_pair"]

L = TypeVar("L", bound=RobustLoss)
P = TypeVar("P", bound=Sum)
Kind = Literal["active", "passive", "active + passive", "active + active", "passive + passive", "head", "regularised"]
Reads = Literal["statistics", "logits", "features", "predictions"]


@dataclass(frozen=True)
class LossEntry:
    """What is known of one loss. Formulas and conditions are Python expressions in the symbols that ``SYMBOLS`` explains;
    what is said of a pair holds where neither of its weights is 0."""

    name: str
    cls: type[RobustLoss]
    title: str
    aliases: tuple[str, ...]
    formula: str
    """The loss of one example."""
    kind: Kind
    symmetric: str
    """When the losses of all labels sum to a constant: ``True``, ``False`` or a condition on the parameters."""
    asymmetric: str | None
    """When the risk under label weights ``w1 > w2 >= ...`` is least at certainty of the first label. A condition that
    starts with ``if`` is sufficient; any other is necessary too. None: nothing is claimed."""
    range: tuple[str, str] | None
    """Least and greatest value; None where it depends on more than the parameters and K."""
    reference: str
    reads: Reads
    shift_invariant: bool
    """Whether adding a constant to a row of logits changes nothing."""

    @property
    def expressions(self) -> tuple[str, ...]:
        """All it states: formula, conditions and range."""
        return (self.formula, self.symmetric, *([] if self.asymmetric is None else [self.asymmetric]), *(self.range or ()))

    @property
    def needs_own_loop(self) -> str | None:
        """Why a recipe cannot train it; None where one can."""
        if self.reads in ("features", "predictions"):
            return f"is called on {self.reads}, not on logits"
        return "must be told of the training by calls of its method update" if self.cls.follows_training else None

    @property
    def defaults(self) -> dict[str, Any]:
        """The hyper-parameters with their defaults; one without a default must be given."""
        return parameters_of(self.cls)

    @property
    def function_name(self) -> str:
        """Its name in ``noiseproof.functional``."""
        return self.name.replace("-", "_").replace("+", "_")


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
    *("classic", "generalized", "clipped", "normalized", "asymmetric", "joint"),
    *("pairs", "epsilon", "transformed", "complementary", "views", "student"),
)

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
    """Class decorator: enter a loss into the catalogue, and its reference into its docstring."""

    def enter(cls: type[L]) -> type[L]:
        entry = LossEntry(
            name, cls, title, tuple(aliases), formula, kind, symmetric, asymmetric, range, reference, reads, shift_invariant
        )
        for key in (name, *entry.aliases):
            taken = _lookup().get(_normalise(key))
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
    """Class decorator: enter ``alpha * first + beta * second`` with what follows from the entries of its two parts.

    Formulas and ranges add; the pair is symmetric where both parts are, and asymmetric where both are. A parameter of a part
    that the pair does not have is a constant. ``asymmetric`` says more of the pair than that.
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


def list_losses(kind: Kind | None = None) -> tuple[LossEntry, ...]:
    """All entries, in the order of the families; ``kind`` keeps one kind.

    >>> [entry.name for entry in list_losses(kind="passive")][:3]
    ['mae', 'mse', 'rce']
    """
    kept = (entry for entry in _entries.values() if kind is None or entry.kind == kind)
    return tuple(sorted(kept, key=_family))


def find_loss(name: str) -> LossEntry:
    """The entry with this name, alias or class name; case and the characters between words do not matter.

    >>> find_loss("JAL-CE").name, find_loss("NCE+RCE").cls.__name__
    ('jal-ce', 'NCEandRCE')
    >>> find_loss("gec")
    Traceback (most recent call last):
    ValueError: unknown loss 'gec'; did you mean 'gce'? 'noiseproof losses' lists them
    """
    if not isinstance(name, str):
        raise TypeError(f"a loss is looked up by its name, got {name!r}")
    known, wanted = _lookup(), _normalise(name)
    if wanted in known:
        return known[wanted]
    close = difflib.get_close_matches(wanted, known, n=3, cutoff=0.5)
    near = [key for key in known if key.startswith(wanted)] or sorted(close, key=lambda key: sorted(key) != sorted(wanted))
    hint = f"did you mean {known[near[0]].name!r}? " if near else ""
    raise ValueError(f"unknown loss {name!r}; {hint}'noiseproof losses' lists them")


def create_loss(name: str, **options: Any) -> RobustLoss:
    """The loss with this name, with these hyper-parameters and contract options.

    >>> create_loss("jal-ce", a=20.0, reduction="sum")
    JALCE(alpha=1.0, beta=1.0, a=20.0, q=2.0, offset=True, reduction='sum')
    """
    return find_loss(name).cls(**options)


def discover(package: str, path: Iterable[str]) -> None:
    """Import every module of a package, so that each file of losses enters the catalogue by being there."""
    for module in pkgutil.iter_modules(path):
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
        named = ((entry, (entry.name, entry.cls.__name__, entry.function_name, *entry.aliases)) for entry in list_losses())
        _names.update({_normalise(key): entry for entry, keys in named for key in keys})
    return _names


def _normalise(name: str) -> str:
    return name.lower().replace("_", "-").replace(" ", "")
