"""``noiseproof reproduce``: train what is behind the paper's tables and figures, and compare the results with the paper's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from noiseproof.io.console import Console, echo, errors_reported, sigterm_as_ctrl_c

Tables = Annotated[
    str | None,
    typer.Argument(
        metavar="TABLE",
        help="Repeat these tables, or figures, separated by commas: sym_asym, instance, human, ablation, agce_mae, "
        "agce_mae_all, real_world; histogram, tsne, amse_a, amse_q. By default all tables but real_world.",
    ),
]
Dataset = Annotated[str | None, typer.Option(help="Repeat only these data sets, separated by commas: cifar10, cifar100.")]
Loss = Annotated[str | None, typer.Option(help="Repeat only these losses: JAL-CE,CE.")]
Noise = Annotated[str | None, typer.Option(help="Repeat only these noises: symmetric, symmetric:0.8, human:worst, clean.")]
Seeds = Annotated[str, typer.Option(help="Use this number of the paper's seeds 123, 124, ..., or a list of seeds: 123,130.")]
Data = Annotated[
    str | None,
    typer.Option(metavar="DIR", help="Look for data sets in this folder; without it and $NOISEPROOF_DATA nothing is trained."),
]
Out = Annotated[Path, typer.Option(help="Write each run into a folder of its own inside this folder.")]
Records = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE",
        help="Read results of runs from this file of JSON lines; may be repeated. New ones are added to the first.",
    ),
]
Figures = Annotated[Path, typer.Option(metavar="DIR", help="Draw the named figures into this folder, as SVG and PNG.")]
Page = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write all results with the paper's numbers into this HTML file, too."),
]
OnlyPlan = Annotated[bool, typer.Option("--plan", help="Print what would be trained and how long it would take, and stop.")]
Format = Annotated[str, typer.Option("--format", help="Print a table, markdown, latex, json or csv.")]
Minutes = Annotated[float | None, typer.Option(help="Start nothing that would not end within this number of minutes.", min=0.0)]
Retry = Annotated[bool, typer.Option("--retry-diverged", help="Train runs again that diverged.")]
Shard = Annotated[
    str | None, typer.Option("--shard", metavar="PART/PARTS", help="Train one of several machines' share of the runs: 2/8.")
]
AtOnce = Annotated[
    int | None, typer.Option(help="Train this number of runs concurrently on a GPU; by default as many as fill an H200.", min=1)
]
Precision = Annotated[str | None, typer.Option(help="Compute in bf16, tf32 or float32; by default bf16, on a CPU float32.")]
Profile = Annotated[
    str, typer.Option(help="Follow the authors' code (paper-code), or the text where the two differ (paper-text).")
]
Device = Annotated[str, typer.Option(help="Compute on this device: auto, cpu, cuda or cuda:1.")]
Engine = Annotated[str, typer.Option(help="Train here (local), or on the machines of a Ray cluster (ray).")]
Address = Annotated[
    str | None, typer.Option(help="Connect to the Ray cluster at this address, or auto; by default Ray starts on this machine.")
]


def reproduce(
    tables: Tables = None,
    dataset: Dataset = None,
    loss: Loss = None,
    noise: Noise = None,
    seeds: Seeds = "3",
    data: Data = None,
    out: Out = Path("runs"),
    records: Records = None,
    figures: Figures = Path("figures"),
    page: Page = None,
    plan: OnlyPlan = False,
    how: Format = "table",
    minutes: Minutes = None,
    retry: Retry = False,
    share: Shard = None,
    at_once: AtOnce = None,
    precision: Precision = None,
    profile: Profile = "paper-code",
    device: Device = "auto",
    engine: Engine = "local",
    address: Address = None,
) -> None:
    """Repeat the paper's tables and figures, and print our results beside the published ones.

    Runs that have finished or diverged, in --out or in --records, are not trained again. After an interruption, the same
    command resumes. Without --data, it only prints existing results.
    """
    from noiseproof.paper import command

    told = command.Display(Console(stderr=True))
    with errors_reported():
        found = command.planned(
            tables=tables, datasets=dataset, losses=loss, noises=noise, seeds=seeds, shard=share, precision=precision, how=how,
            engine=engine, address=address, device=device, to_train=not plan,
            data=data, out=out, records=records or (), profile=profile, retry_diverged=retry,
        )  # fmt: skip
        if not plan:
            found.record_ended_runs()
        todo = [] if plan else found.with_data()
    told.say(*found.notes)
    if plan:
        echo(found.plan_text())
        return
    well = True
    if todo:
        with sigterm_as_ctrl_c() as stopped:
            well = told.train(todo, found, at_once, minutes, stopped)
    told.say(*command.what_is_missing(found))
    if found.cells:
        echo(found.formatted(how).rstrip("\n"))
    with errors_reported():
        told.say(*command.written(found, figures, page))
    if not well:
        raise typer.Exit(1)
