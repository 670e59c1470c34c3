"""``noiseproof theory``: which ``a`` a noise needs, and whether a loss tolerates it."""

from __future__ import annotations

import ast
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noiseproof.cli.options import losses as loss_names
from noiseproof.cli.options import noises
from noiseproof.io.console import errors_reported, import_local_modules, say
from noiseproof.io.text import and_more

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from noiseproof import theory
    from noiseproof.losses import RobustLoss

app = typer.Typer(help="Check in theory whether a loss tolerates a label noise.", no_args_is_help=True)

MAX_CLASSES_SHOWN = 20  # classes in a table
Loss = Annotated[
    str,
    typer.Argument(help="Check this loss, with options in parentheses: jal-ce, 'jal-ce(a=9)', gce.", autocompletion=loss_names),
]
Noise = Annotated[
    str | None,
    typer.Option(help="Assume this noise: symmetric:0.8, pairflip:0.2, asymmetric-cifar10:0.4, ...", autocompletion=noises),
]
Matrix = Annotated[Path | None, typer.Option(help="Assume the noise of this transition matrix: a .csv, .npy or .json file.")]
Classes = Annotated[int | None, typer.Option(help="Set the number of classes, where the noise does not determine it.", min=2)]
Format = Annotated[str, typer.Option("--format", help="Print a table or json.")]


@app.command("required-a")
def required_a(
    noise: Noise = None,
    matrix: Matrix = None,
    classes: Classes = None,
    q: Annotated[float, typer.Option(help="Set the exponent q of AMSE.")] = 2.0,
    how: Format = "table",
) -> None:
    """Print the least **a** with which AMSE and the JAL losses tolerate a noise."""
    import numpy as np

    from noiseproof import theory

    with errors_reported():
        weights = weights_of(noise, matrix, classes, how)
        each = theory.required_a_per_class(weights, q)
    none, finite, auto = np.flatnonzero(np.isinf(each)).tolist(), each[np.isfinite(each)], _chosen(weights, q)
    if how == "json":
        per_class = [None if math.isinf(a) else a for a in each.tolist()]
        largest = None if none else float(each.max())
        typer.echo(json.dumps({"q": q, "required_a": largest, "per_class": per_class, "without": none, "auto": auto}))
        return
    if none:
        say(f"no a is enough for {len(none)} of {len(each)} classes: {and_more(none, MAX_CLASSES_SHOWN)}")
        say("There another label is given as often as the clean one, and no loss can tell which is right.")
    if len(finite):
        say(f"a >= {round_up(float(finite.max()))} is enough for {'the others' if none else 'every class'} (q = {q:g})")
        say(ADVICE + ("" if auto is None else f" a=auto takes {auto:g}."))


def round_up(a: float) -> str:
    """To four digits, upwards: what is printed is enough, and a bound of 9 that was computed as 9.000000000000004 is 9.

    >>> round_up(1 / 0.611111), round_up(9.000000000000004)
    ('1.637', '9')
    """
    step = 10.0 ** (math.floor(math.log10(a)) - 3)
    return f"{math.ceil(a / step - 1e-6) * step:.4g}"


def _chosen(weights: NDArray[np.float64], q: float) -> float | None:
    """What ``a=auto`` takes; None where it takes none."""
    from noiseproof import theory

    try:
        return theory.choose_a(weights, q).a
    except ValueError:
        return None


ADVICE = "It is a bound, not the best value: the paper takes a = 30 where 9 is enough. A larger a fits more slowly."


@app.command()
def check(loss: Loss, noise: Noise = None, matrix: Matrix = None, classes: Classes = None, how: Format = "table") -> None:
    """Check whether a loss tolerates a noise, class by class."""
    from noiseproof import theory

    with errors_reported():
        criterion = loss_of(loss)
        found = theory.check(criterion, weights_of(noise, matrix, classes, how))
    if how == "json":
        typer.echo(json.dumps({"loss": found.loss, "tolerant": found.tolerant, "classes": [_plain(v) for v in found.classes]}))
        return
    say(*map(str, found.classes[:MAX_CLASSES_SHOWN]))
    if len(found.classes) > MAX_CLASSES_SHOWN:
        say(f"the first {MAX_CLASSES_SHOWN} of {len(found.classes)} classes; --format json has all")
    say(str(found))


def weights_of(noise: str | None, matrix: Path | None, classes: int | None, how: str) -> NDArray[np.float64]:
    """The label weights that the options ask for."""
    from noiseproof import theory

    if how not in ("table", "json"):
        raise ValueError(f"--format must be table or json, got {how!r}")
    if (noise is None) == (matrix is None):
        raise ValueError("which noise? give --noise, such as symmetric:0.8, or --matrix FILE")
    return theory.label_weights(str(matrix) if noise is None else noise, classes)


def loss_of(text: str) -> RobustLoss:
    """One loss as it is written on the command line."""
    from noiseproof.comparison.runs import parse_losses
    from noiseproof.losses import create_loss

    import_local_modules(text)
    (_, name, options), *more = parse_losses(text)
    if more:
        raise ValueError(f"one loss at a time, got {text!r}")
    return create_loss(name, **{key: _value(value) for key, value in options.items()})


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _plain(verdict: theory.ClassVerdict) -> dict[str, Any]:
    return {**vars(verdict), "better": None if verdict.better is None else verdict.better.tolist()}
