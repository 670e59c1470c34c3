"""``noiseproof demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from noiseproof.cli.fit import FitProgress
from noiseproof.io.console import console, errors_reported, stoppable


def demo(
    out: Annotated[Path, typer.Option(help="Write the model and the picture into this folder.")] = Path("noiseproof-demo"),
    noise: Annotated[
        float, typer.Option(help="Replace this share of the training labels by any other class.", min=0.0, max=0.89)
    ] = 0.6,
    epochs: Annotated[
        int, typer.Option(help="Train the networks that the model is compared with for this number of epochs.", min=1)
    ] = 100,
    quick: Annotated[bool, typer.Option("--quick", help="Fit fewer learners, in a fifth of the time.")] = False,
    seed: Annotated[
        int, typer.Option(help="Set the random seed of the noise, the folds and the networks.", min=0, max=2**32 - 1)
    ] = 0,
) -> None:
    """Fit a model to handwritten digits with wrong labels and compare it with cross entropy and JAL-CE, in a minute."""
    with errors_reported():
        from noiseproof.demo import demonstrate

        progress = FitProgress(console)
        with stoppable(lambda: f"the same command {progress.resumes} in {out}"), progress:
            shown = demonstrate(out, noise_rate=noise, epochs=epochs, quick=quick, seed=seed, progress=progress)
    for line in shown.model.verdict.lines:
        console.print(escape(line), soft_wrap=True)
    console.print(f"\nMeasured on correct test labels; {100 * shown.wrong:.1f} % of the training labels are wrong:")
    for name, accuracy in shown.accuracies.items():
        console.print(f"  {name:44}{accuracy:5.1f} %", highlight=False)
    console.print(f"{escape(str(shown.figure))} shows it epoch by epoch", soft_wrap=True)
    console.print("next, with your own table: noiseproof fit train.csv --label COLUMN", soft_wrap=True)
