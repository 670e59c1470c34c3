"""The command line. Each verb calls one function that returns data and one that prints it."""

from __future__ import annotations

import importlib.util
from typing import Annotated

import typer

from noiseproof.cli import data, noise, theory
from noiseproof.cli.advise import advise
from noiseproof.cli.audit import audit
from noiseproof.cli.compare import compare
from noiseproof.cli.demo import demo
from noiseproof.cli.embed import embed
from noiseproof.cli.fit import fit
from noiseproof.cli.losses import losses
from noiseproof.cli.predict import predict
from noiseproof.cli.report import report
from noiseproof.cli.train import train
from noiseproof.io.console import Commands, console
from noiseproof.version import __version__

__all__ = ["app"]

app = typer.Typer(
    cls=Commands,
    help="Train classifiers on noisy labels, and find label errors.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # which joins the lines of a paragraph
)


def _version(wanted: bool) -> None:
    if wanted:
        console.print(f"noiseproof {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and stop.")
    ] = False,
) -> None:
    pass


DATA, TRAINING, PAPER = "For your data", "For training", "For the paper"
"""The headings of ``noiseproof --help``"""

for _panel, _verbs in (
    (DATA, (demo, fit, audit, advise, embed)),
    (TRAINING, (train, predict, compare, losses, report)),
):
    for _verb in _verbs:
        app.command(rich_help_panel=_panel)(_verb)


def _add_paper() -> None:
    """The paper's verb, where its folder is there."""
    if importlib.util.find_spec("noiseproof.paper") is not None:
        from noiseproof.paper.verb import reproduce

        app.command(rich_help_panel=PAPER)(reproduce)


_add_paper()
app.add_typer(data.app, name="data", rich_help_panel=DATA)
app.add_typer(noise.app, name="noise", rich_help_panel=DATA)
app.add_typer(theory.app, name="theory", rich_help_panel=TRAINING)
