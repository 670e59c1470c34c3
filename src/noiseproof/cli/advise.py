"""``noiseproof advise``: which loss, hyper-parameters and decay, and on what evidence."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from rich.markup import escape

from noiseproof.cli.output import Console, console, errors_reported, warn

if TYPE_CHECKING:
    from noiseproof.advice import Advice
    from noiseproof.advice.evidence import Kind
    from noiseproof.audit import Audit
    from noiseproof.data import Dataset

__all__ = ["advise"]

PLACE = "Your data, as for 'noiseproof train'; left out, say --classes and --kind."
Place = Annotated[str | None, typer.Argument(metavar="[DATA]", help=PLACE)]
Labels = Annotated[str | None, typer.Option(metavar="FILE", help="Their labels, instead of the data's own.")]
NOISES = "How wrong the labels are: 0.3, symmetric:0.3, a matrix's file, or the folder of an audit."
Noise = Annotated[str | None, typer.Option(metavar="NOISE", help=NOISES)]
Estimate = Annotated[bool, typer.Option("--audit", help="Estimate the noise first, by a quick audit of DATA.")]
Classes = Annotated[int | None, typer.Option(help="Number of classes, without DATA.", min=2)]
Kinds = Annotated[str | None, typer.Option("--kind", help="Of the data, without DATA: features, images or photographs.")]
Examples = Annotated[int | None, typer.Option(help="How many there are, without DATA.", min=1)]
Pretrained = Annotated[bool, typer.Option("--pretrained", help="Photographs: the network starts from ImageNet's weights.")]
Device = Annotated[str, typer.Option(help="Of the audit: auto, cpu, cuda or cuda:1.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def advise(
    data: Place = None,
    labels: Labels = None,
    noise: Noise = None,
    estimate: Estimate = False,
    classes: Classes = None,
    kind: Kinds = None,
    examples: Examples = None,
    pretrained: Pretrained = False,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Which loss, alpha, beta, a and decay to train with, on what evidence, and the command to run next.

    Every part says what it rests on: theory, the paper's settings, our own records, or nothing that was measured.

    Examples:

    noiseproof advise my.npz --audit

    noiseproof advise my.npz --noise audit

    noiseproof advise --noise symmetric:0.4 --classes 10 --kind images
    """
    from noiseproof.advice import advise as advise_on
    from noiseproof.cli.doubts import rare_doubts
    from noiseproof.cli.given_labels import with_given
    from noiseproof.data import open_dataset

    with errors_reported():
        facts: dict[str, Any] = {"classes": classes, "kind": kind, "examples": examples}
        if data is not None:
            if said := [name for name, value in facts.items() if value is not None]:
                raise ValueError(f"the data say how it is with --{said[0]}; leave it or DATA out")
            dataset = with_given(open_dataset(data), labels)
            facts = {"classes": len(dataset.classes), "kind": kind_of(dataset), "examples": len(dataset.train)}
            facts |= {"place": data, "labels": labels, "tested": dataset.test is not None}
        elif estimate or labels is not None:
            raise ValueError("--audit needs DATA to audit" if estimate else "--labels needs DATA that the labels are of")
        if estimate and noise is not None:
            raise ValueError("--audit and --noise both say how wrong the labels are; give one of them")
        found = _audited(dataset, device, as_json) if estimate else _given(noise)
        given = advise_on(found, pretrained=pretrained, **facts)
        if data is not None and given.loss != "ce":
            rare = rare_doubts(dataset.train.labels, dataset.classes)
            given = dataclasses.replace(given, warnings=(*given.warnings, *rare))
    if as_json:
        typer.echo(json.dumps(given.as_dict()))
        return
    show(given)


def _given(noise: str | None) -> str | float | None:
    try:
        return None if noise is None else float(noise)
    except ValueError:
        return noise


def _audited(dataset: Dataset, device: str, as_json: bool) -> Audit:
    from noiseproof.audit import audit_labels
    from noiseproof.cli.audit_view import Followed
    from noiseproof.cli.plan import device_named

    shown = Console(stderr=True) if as_json else console
    with Followed(shown) as followed:
        found = audit_labels(dataset.train, classes=dataset.classes, quick=True, device=device_named(device), progress=followed)
    shown.print(f"quick audit: {found}", markup=False, highlight=False, soft_wrap=True)
    return found


def kind_of(dataset: Dataset) -> Kind:
    """What the default recipe takes the data for; image files are photographs."""
    kinds: dict[str, Kind] = {"features": "features", "images": "images", "files": "photographs"}
    return kinds[dataset.train.kind]


def show(advice: Advice) -> None:
    """The parts, what they rest on, warnings and commands."""
    from noiseproof.advice.evidence import Kind

    case = advice.case
    known = [
        case.kind or f"an unknown kind of data ({', '.join(get_args(Kind))}?)",
        "" if case.classes is None else f"{case.classes} classes",
        "" if case.examples is None else f"{case.examples:,} examples",
        "noise not known" if case.rate is None else f"{case.rate:.1%} wrong labels, {case.family} noise",
    ]
    console.print(f"for {', '.join(filter(None, known))}:", markup=False, highlight=False, soft_wrap=True)
    width = max(len(part.what) for part in advice.parts)
    for part in advice.parts:
        line = f"[bold]{part.what:{width}}  {escape(part.value)}[/]\n{' ' * width}  [dim]{part.basis}:[/] {escape(part.reason)}"
        console.print(line, highlight=False, soft_wrap=True)
    for text in advice.warnings:
        warn(text)
    for command in advice.commands:
        console.print(f"next: {escape(command)}", highlight=False, soft_wrap=True)
