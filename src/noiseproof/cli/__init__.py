"""The command line. Each verb calls one function that returns data and one that prints it."""

from __future__ import annotations

from typing import Annotated

import typer

from noiseproof.cli import completion, data, noise, theory
from noiseproof.cli.advise import advise
from noiseproof.cli.audit import audit
from noiseproof.cli.compare import compare
from noiseproof.cli.completion import completed
from noiseproof.cli.demo import demo
from noiseproof.cli.embed import embed
from noiseproof.cli.fit import fit
from noiseproof.cli.losses import losses
from noiseproof.cli.output import Commands, console
from noiseproof.cli.predict import predict
from noiseproof.cli.report import report
from noiseproof.cli.reproduce import reproduce
from noiseproof.cli.train import train
from noiseproof.version import __version__

__all__ = ["app"]

app = typer.Typer(
    cls=Commands,
    help="Train classifiers on labels that are partly wrong.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # which joins the lines of a paragraph
)


def _version(wanted: bool) -> None:
    if wanted:
        console.print(f"noiseproof {__version__}", highlight=False)
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

app.command(rich_help_panel=DATA)(completed(fit, data=completion.datasets))
app.command(rich_help_panel=DATA)(completed(audit, data=completion.datasets, model=completion.models))
app.command(rich_help_panel=DATA)(completed(advise, data=completion.datasets, noise=completion.noises))
app.command(rich_help_panel=DATA)(completed(embed, data=completion.datasets))
app.add_typer(data.app, name="data", rich_help_panel=DATA)
app.add_typer(noise.app, name="noise", rich_help_panel=DATA)
app.command(rich_help_panel=TRAINING)(
    completed(train, name=completion.recipes, noise=completion.noises, model=completion.models)
)
app.command(rich_help_panel=TRAINING)(completed(predict, run=completion.runs))
app.command(rich_help_panel=TRAINING)(
    completed(compare, losses=completion.several_losses, dataset=completion.datasets, noise=completion.noises)
)
app.command(rich_help_panel=TRAINING)(losses)
app.add_typer(theory.app, name="theory", rich_help_panel=TRAINING)
app.command(rich_help_panel=TRAINING)(report)
app.command(rich_help_panel=TRAINING)(demo)
app.command(rich_help_panel=PAPER)(reproduce)
completed(theory.check, loss=completion.losses, noise=completion.noises)
completed(data.show, dataset=completion.datasets)
completed(data.fetch, name=completion.downloads)
