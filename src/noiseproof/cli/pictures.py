"""Some images of each class of a data set: in the terminal as coloured half blocks, and as a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.color import Color
from rich.columns import Columns
from rich.console import Group
from rich.style import Style
from rich.text import Text

from noiseproof.cli.output import printable
from noiseproof.data import Dataset
from noiseproof.data.images import example_image

__all__ = ["ClassImages", "choose_images", "half_blocks", "picture_file"]

Image = NDArray[np.uint8]
CELLS = 12  # columns a picture takes in the terminal; half as many lines
ROWS = 20  # with more classes than this the picture has one image of each instead of a row
SHOWN = 100
RED = "#c1121f"


class ClassImages(NamedTuple):
    """Some images of one class, ``[H, W, 3]``, and for each the label it was given if that is another one."""

    name: str
    images: list[Image]
    given: list[str | None]


def choose_images(
    dataset: Dataset, split: str, per_class: int, *, classes: int = SHOWN, given: NDArray[np.int64] | None = None, seed: int = 0
) -> list[ClassImages]:
    """Random images of the first classes; none if the inputs are not images."""
    examples = dataset.splits[split]
    draw, found = np.random.default_rng(seed), []
    for label, name in enumerate(dataset.classes[:classes]):
        members = np.flatnonzero(examples.labels == label)
        chosen = draw.choice(members, min(per_class, len(members)), replace=False)
        images = [image for index in chosen if (image := example_image(dataset, examples, int(index))) is not None]
        if len(images) < len(chosen):
            return []
        others = [None if given is None or given[k] == label else dataset.classes[given[k]] for k in chosen]
        found.append(ClassImages(name, images, others))
    return found


def half_blocks(found: Sequence[ClassImages]) -> Columns:
    """Images side by side under the name of their class, two pixels to a character."""
    return Columns([_tile(group) for group in found if group.images], padding=(0, 1))


def _tile(group: ClassImages) -> Group:
    small = [shrink(image, CELLS) for image in group.images]
    height, width = max(len(image) for image in small), sum(image.shape[1] + 1 for image in small)
    lines = []
    for y in range(0, height, 2):
        line = Text()
        for image in small:
            for x in range(image.shape[1]):
                upper, lower = (Color.from_rgb(*map(int, image[row, x])) if row < len(image) else None for row in (y, y + 1))
                line.append("▀" if upper else " ", Style(color=upper, bgcolor=lower))
            line.append(" ")
        lines.append(line)
    below = ["" if other is None else f"→ {printable(other)}" for other in group.given]
    captions = [f"{text[:wide]:{wide}}" for text, wide in zip(below, (image.shape[1] for image in small), strict=True)]
    lines += [Text(" ".join(captions), style="red")] if any(below) else []
    return Group(Text(printable(group.name)[:width], style="bold"), *lines)


def shrink(image: Image, size: int) -> Image:
    """The mean of each block of pixels, so that the longer side has ``size``; smaller images stay as they are."""
    factor = max(image.shape[:2]) / size
    if factor <= 1:
        return image
    for axis in (0, 1):
        length = image.shape[axis]
        edges = np.linspace(0, length, max(1, round(length / factor)), endpoint=False).astype(int)
        sums = np.add.reduceat(image.astype(np.float64), edges, axis)
        counts = np.diff([*edges, length])
        image = np.rint(sums / np.expand_dims(counts, tuple(k for k in range(3) if k != axis))).astype(np.uint8)
    return image


def picture_file(found: Sequence[ClassImages], title: str, path: Path) -> None:
    """A row of images for each class, or one image of each where there are many."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = len(found) <= ROWS
    columns = max((len(group.images) for group in found), default=1) if rows else math.ceil(math.sqrt(len(found)))
    lines = len(found) if rows else math.ceil(len(found) / columns)
    changed = any(any(group.given) for group in found)
    height = (0.78 + 0.16 * (changed or not rows)) * lines + 0.5
    names = 0.1 + 0.085 * max(len(group.name) for group in found) if rows else 0.0
    figure = Figure(figsize=(0.78 * columns + names, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(lines, columns, squeeze=False)
    for axis in axes.flat:
        axis.set(xticks=[], yticks=[])
        axis.set_frame_on(False)
    for k, group in enumerate(found):
        cells = axes[k] if rows else axes.flat[k : k + 1]
        for axis, image, other in zip(cells, group.images, group.given, strict=False):
            _draw(axis, image, other, None if rows else group.name)
        if rows:
            cells[0].set_ylabel(group.name, rotation=0, ha="right", va="center", fontsize=9)
    figure.suptitle(title, fontsize=10)
    figure.savefig(path, format="png", dpi=130)


def _draw(axis: Any, image: Image, other: str | None, name: str | None) -> None:
    """An image, with its class above it unless the row has it, and in red the label it was given if that is another one."""
    axis.imshow(image, interpolation="nearest")
    if name is not None:
        axis.set_title(name[:14], fontsize=6, pad=2)
    if other is None:
        return
    if name is None:
        axis.set_title(f"→ {other}"[:14], fontsize=6, color=RED, pad=2)
    else:
        axis.set_xlabel(f"→ {other}"[:14], fontsize=6, color=RED, labelpad=1)
    axis.set_frame_on(True)
    for side in axis.spines.values():
        side.set(color=RED, linewidth=1.5)
