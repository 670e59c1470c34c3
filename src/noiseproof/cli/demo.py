"""``noiseproof demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from noiseproof.io.console import console, fail


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the figure and the numbers.")] = Path("noiseproof-demo"),
    noise: Annotated[float, typer.Option(help="Share of training labels made wrong, symmetric.", min=0.0, max=0.89)] = 0.6,
    epochs: Annotated[int, typer.Option(help="Passes over the training set.", min=1)] = 100,
    seed: Annotated[int, typer.Option(help="Seed of the noise, the network and the order.", min=0, max=2**32 - 1)] = 0,
) -> None:
    """Train on handwritten digits with wrong labels: cross entropy against the robust losses, in a minute."""
    from noiseproof import demo as demonstration
    from noiseproof.train import prepare

    try:
        out.mkdir(parents=True, exist_ok=True)  # before the training, not after it
        recipes = demonstration.recipes(noise, epochs=epochs, seed=seed)
        outcomes = demonstration.run(recipes, prepare(recipes[0]), console)
        demonstration.show(outcomes, out, console)
    except OSError as error:
        fail(error)
