"""What ``noiseproof noise`` does: write noisy labels with a manifest, verify them, show a transition matrix."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noiseproof.io.files import is_dir
from noiseproof.noise.files import MANIFEST, load_labels, verify, write_noisy_labels
from noiseproof.noise.instance import INSTANCE
from noiseproof.noise.matrix import LabelError, LabelNoise, NoisyLabels
from noiseproof.noise.spec import NoiseSpec
from noiseproof.version import __version__

DEFAULT_CLASSES = 10
"""Of noise that is defined for any number of classes, where only its matrix is looked at"""
MAX_CLASSES_LISTED = 20


class CleanLabels(NamedTuple):
    """Clean labels and where they are from; those of a data set with its name, classes, and images if they are in memory."""

    labels: NDArray[np.int64]
    source: str
    classes: int | None = None
    images: NDArray[Any] | None = None
    dataset: str | None = None

    @staticmethod
    def from_file(path: str | Path, name: str | None = None) -> CleanLabels:
        """Read clean labels.

        Args:
            path: A file that :func:`load_labels` reads.
            name: Which labels, if the file holds several.

        Returns:
            The labels, with the file as their source.
        """
        return CleanLabels(load_labels(path, name), str(path))


class MadeNoise(NamedTuple):
    """Noisy labels that were written; ``str`` says how many changed and where they are."""

    clean: CleanLabels
    noisy: NoisyLabels
    noise: LabelNoise
    manifest: Path

    @property
    def warning(self) -> str:
        """What is odd about the clean labels, if anything is."""
        absent, classes = self.noise.classes - len(np.unique(self.clean.labels)), self.noise.classes
        gaps = "labels count from 0; a gap is a class too"
        return f"{absent} of the {classes} classes have no label in {self.clean.source} ({gaps})" if absent else ""

    def __str__(self) -> str:
        changed = f"{int(self.noisy.mask.sum())} of {len(self.noisy.labels)} labels changed: {self.noisy.rate:.4f}"
        written = f"wrote {self.manifest.parent / 'labels.npy'} and {self.manifest}; hash {self.noisy.hash[:12]}"
        return f"{changed} (asked {self.noise.noise_rate:.4f})\n{written}"


def make_noisy_labels(
    spec: str, clean: CleanLabels, out: str | Path, *, classes: int | None = None, seed: int = 0, rule: str | None = None
) -> MadeNoise:
    """Write noisy labels, and a manifest of how they were made.

    Args:
        spec: The noise, such as ``symmetric:0.8``.
        clean: The labels before the noise.
        out: The folder for ``labels.npy`` and ``manifest.json``.
        classes: Their number; by default that of the data set, or read from the labels.
        seed: The same seed gives the same labels on every machine.
        rule: ``exact`` (by default), ``draws`` or ``published``; for noise that a matrix describes.

    Returns:
        The labels, what changed, and the manifest.

    Raises:
        ValueError: The noise, the labels or the rule cannot be used; an error about the labels names their source.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = make_noisy_labels("symmetric:0.5", CleanLabels(np.array([0, 0, 1, 1]), "mine"), folder)
    ...     verify_noisy_labels(folder)
    'labels (give --labels or --dataset to check the noise itself) are as the manifest says; rate 0.5000'
    """
    parsed = NoiseSpec.parse(spec)
    if rule is not None and parsed.kind == INSTANCE:
        raise ValueError(f"--rule is for noise that a matrix describes, got {rule!r} for {spec!r}; leave it out")
    classes = classes or clean.classes
    if classes is None and not clean.labels.any():
        raise ValueError(f"{clean.source}: all its labels are 0; give --classes")
    facts: dict[str, Any] = {"classes": classes, "images": clean.images, "dataset": clean.dataset}
    try:
        noisy, noise = parsed.apply(clean.labels, seed, rule or "exact", **facts)  # type: ignore[arg-type] # others are refused
    except LabelError as error:
        raise ValueError(f"{clean.source}: {error}") from error
    if noise is None:
        raise ValueError(f"{parsed} is a file of labels already; 'noiseproof data show NAME --labels FILE' compares them")
    return MadeNoise(clean, noisy, noise, write_noisy_labels(out, noise, clean.labels, noisy, __version__))


def verify_noisy_labels(manifest: str | Path, clean: CleanLabels | None = None) -> str:
    """Verify noisy labels against their manifest and, given the clean ones, make the noise again and compare.

    Args:
        manifest: A ``manifest.json``, or its folder.
        clean: The labels before the noise.

    Returns:
        A sentence: what is as the manifest says, and how to verify the rest.

    Raises:
        ValueError: Something is not as the manifest says.

    >>> import tempfile
    >>> clean = CleanLabels(np.array([0, 0, 1, 1]), "mine")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = make_noisy_labels("pairflip:0.5", clean, folder)
    ...     verify_noisy_labels(folder, clean)
    'labels, rate, matrix and seed are as the manifest says; rate 0.5000'
    """
    facts = verify(manifest) if clean is None else verify(manifest, clean.labels, clean.images)
    return f"{_verified(facts, compared=clean is not None)} are as the manifest says; rate {facts['rate_realised']:.4f}"


def _verified(facts: dict[str, Any], compared: bool) -> str:
    if facts["made_anew"]:
        return "labels, rate, matrix and seed"
    if facts["noise"] == INSTANCE:
        way = "give --dataset with images in memory to check the noise itself"
    elif facts["rule"] is None:
        way = "not a seed: these are labels from a file" if compared else "give --labels or --dataset to check rate and matrix"
    else:
        way = "give --labels or --dataset to check the noise itself"
    return f"labels, rate and matrix ({way})" if compared else f"labels ({way})"


class NoiseMatrix(NamedTuple):
    """A transition matrix with its name and rate. One that was realised has a row of zeros for a class without examples."""

    name: str
    matrix: NDArray[np.float64]
    rate: float

    def __str__(self) -> str:
        largest = float((self.matrix - np.diag(np.diag(self.matrix))).max())
        return f"{self.name}: {len(self.matrix)} classes, rate {self.rate:.4f}, largest flip {largest:.4f}"

    @property
    def note(self) -> str:
        """Which classes have no examples, if there are some."""
        absent = np.flatnonzero(~self.matrix.any(1))
        some = ", ".join(map(str, absent[:MAX_CLASSES_LISTED])) + (", ..." if len(absent) > MAX_CLASSES_LISTED else "")
        return f"no example has the clean label {some}: nothing to show in these rows" if len(absent) else ""

    def plot(self, path: str | Path) -> None:
        """Write the matrix as a heat map.

        Args:
            path: A PNG file.
        """
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=(5.6, 5), layout="constrained")
        FigureCanvasAgg(figure)
        axis = figure.subplots()
        image = axis.imshow(self.matrix, cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
        axis.set(xlabel="given label", ylabel="clean label", title=self.name)
        figure.colorbar(image, ax=axis, label="probability")
        figure.savefig(path, format="png", dpi=130)


def noise_matrix(spec: str, classes: int | None = None) -> NoiseMatrix:
    """The transition matrix of a noise, or of noisy labels by their manifest: the one that was realised.

    Args:
        spec: The noise, such as ``symmetric:0.8``, a matrix's file, or a ``manifest.json`` or its folder.
        classes: Their number, where the noise is defined for any.

    Returns:
        The matrix, its name and its rate.

    Raises:
        ValueError: The noise is unknown, or of another number of classes.

    >>> print(noise_matrix("symmetric:0.8"))
    symmetric: 10 classes, rate 0.8000, largest flip 0.0889
    """
    if Path(spec).name == MANIFEST or is_dir(Path(spec)):
        facts = verify(spec)
        realised = np.asarray(facts["matrix_realised"], np.float64)
        if classes is not None and len(realised) != classes:
            raise ValueError(f"{spec} is of {len(realised)} classes, got {classes}; leave out --classes")
        try:
            LabelNoise(np.where(realised.any(1, keepdims=True), realised, np.eye(len(realised))))
        except ValueError as error:
            raise ValueError(f"{spec}: 'matrix_realised': {error}") from error
        return NoiseMatrix(f"{facts['noise']}, realised", realised, float(facts["rate_realised"]))
    parsed = NoiseSpec.parse(spec)
    noise = parsed.matrix(DEFAULT_CLASSES if classes is None and parsed.of_any_classes else classes)
    return NoiseMatrix(noise.name, noise.matrix, noise.noise_rate)
