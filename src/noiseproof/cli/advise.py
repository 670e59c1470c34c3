"""``noiseproof advise``: what to run, and which loss and settings suit a loop of one's own, and why."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from noiseproof.cli.options import (
    Columns,
    DropUnlabelled,
    Encoder,
    Label,
    SplitColumn,
    datasets,
    noises,
    print_columns,
    reading_from,
)
from noiseproof.io.console import Console, console, errors_reported, say, warn
from noiseproof.io.text import command_options

PLACE = "Advise for these data, as 'noiseproof train' reads them; without them, pass --classes and --kind."
Place = Annotated[str | None, typer.Argument(metavar="[DATA]", help=PLACE, autocompletion=datasets)]
Labels = Annotated[str | None, typer.Option(metavar="FILE", help="Use the labels in this file instead of the data's own.")]
Noise = Annotated[
    str | None,
    typer.Option(
        "--noise",  # Typer 0.27 takes a metavar that is the name in capitals for the option
        metavar="NOISE",
        help="Assume this noise: 0.3, symmetric:0.3, the file of a matrix, or the folder of an audit or a fit.",
        autocompletion=noises,
    ),
]
Classes = Annotated[int | None, typer.Option(help="Set the number of classes, without DATA.", min=2)]
Kinds = Annotated[
    str | None, typer.Option("--kind", help="Set the kind of the data, without DATA: features, images or photographs.")
]
Examples = Annotated[int | None, typer.Option(help="Set the number of examples, without DATA.", min=1)]
Pretrained = Annotated[
    bool, typer.Option("--pretrained", help="Assume a network that starts from ImageNet's weights, for photographs.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
KINDS = {"features": "features", "images": "images", "files": "photographs"}
"""What the default recipe takes examples for, by how they are stored"""


def advise(
    data: Place = None,
    labels: Labels = None,
    label: Label = None,
    columns: Columns = None,
    split_column: SplitColumn = None,
    drop_unlabelled: DropUnlabelled = False,
    encoder: Encoder = None,
    noise: Noise = None,
    classes: Classes = None,
    kind: Kinds = None,
    examples: Examples = None,
    pretrained: Pretrained = False,
    as_json: Json = False,
) -> None:
    """Recommend what to run on your data, and a loss and hyperparameters for a training loop of your own.

    Each recommendation names its source: theory, the paper's settings, or our own records. If nothing was measured, it says
    so.

    Examples:

    noiseproof advise my.npz --noise audit

    noiseproof advise --noise symmetric:0.4 --classes 10 --kind images
    """
    import numpy as np

    from noiseproof.advice import advise as advise_on
    from noiseproof.data import open_dataset
    from noiseproof.data.opening import with_given_labels
    from noiseproof.train.plan import prefers_gpu

    with errors_reported():
        facts: dict[str, Any] = {"classes": classes, "kind": kind, "examples": examples}
        if data is not None:
            if unused := [name for name, value in facts.items() if value is not None]:
                raise ValueError(f"the data say how it is with --{unused[0]}; leave it or DATA out")
            reading = reading_from(label, columns, None, split_column, drop_unlabelled, encoder)
            dataset = with_given_labels(open_dataset(data, **reading), labels)
            print_columns(dataset.table, dataset.classes, Console(stderr=True) if as_json else console)
            facts = {"kind": KINDS[dataset.train.kind], "gpu": prefers_gpu("auto")}
            counts = np.bincount(dataset.train.labels, minlength=len(dataset.classes))
            facts["counts"] = dict(zip(dataset.classes, counts.tolist(), strict=True))
            given = [] if labels is None else ["--labels", labels]
            facts |= {"place": data, "place_options": [*given, *command_options(reading)]}
        elif labels is not None:
            raise ValueError("--labels needs DATA that the labels are of")
        found = advise_on(noise, pretrained=pretrained, **facts)
    if as_json:
        typer.echo(json.dumps(found.as_dict()))
        return
    for text in found.warnings:
        warn(text)
    say(str(found))
