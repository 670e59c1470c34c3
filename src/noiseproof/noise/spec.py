"""Noise as text: ``symmetric:0.8``, ``instance:0.4``, ``labels:FILE#NAME`` or a matrix's file, parsed once and applied.

With it what ``noiseproof noise`` does: write noisy labels with a manifest, verify them, show a transition matrix.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noiseproof.checks import check_range
from noiseproof.io.files import find_file
from noiseproof.io.text import and_more
from noiseproof.noise.files import (
    MANIFEST,
    SoftLabels,
    load_labels,
    read_noisy_labels,
    read_soft_labels,
    verify,
    write_noisy_labels,
)
from noiseproof.noise.instance import INSTANCE, asked_noise, instance_dependent
from noiseproof.noise.matrix import (
    MATRIX_FILES,
    MATRIX_NOISES,
    LabelError,
    LabelNoise,
    Labels,
    MatrixNoise,
    NoisyLabels,
    Rule,
    from_file,
)
from noiseproof.version import __version__

NO_NOISE_KIND, LABELS, MATRIX, ASYMMETRIC = "none", "labels", "matrix", "asymmetric"
HUMAN = "human"  # human:worst is a name of the paper's recipes alone
NUMBER_TEXT = re.compile(r"\d*\.?\d+", re.ASCII)
NO_NOISE = MatrixNoise(lambda classes, rate: LabelNoise(np.eye(classes), NO_NOISE_KIND, {"classes": classes}))
RATED = (*MATRIX_NOISES, INSTANCE, ASYMMETRIC)
"""Kinds that have a rate"""
MAX_CLASSES = 1024
"""Of noise by name. The classes are often counted from the labels of a file, and the matrix grows with their square."""


@dataclass(frozen=True)
class NoiseSpec:
    """Noise as text, parsed; ``str`` gives the text back.

    Args:
        kind: none; a name in ``MATRIX_NOISES``; asymmetric, that of the data set; instance; labels, in a file; matrix,
            in a file or in the folder of an audit.
        rate: Of the kinds that have one.
        file: Of labels or of a matrix.
        name: Which labels, where a file contains several.

    >>> NoiseSpec.parse("symmetric:0.80")
    NoiseSpec(kind='symmetric', rate=0.8, file='', name=None)
    >>> str(NoiseSpec.parse("labels:people.npz#worst"))
    'labels:people.npz#worst'
    """

    kind: str
    """none; a name in ``MATRIX_NOISES``; asymmetric, that of the data set; instance; labels, in a file; matrix, in a file or
    in the folder of an audit"""
    rate: float = 0.0
    file: str = ""
    name: str | None = None
    """Which labels, where a file holds several"""

    @staticmethod
    def parse(text: str) -> NoiseSpec:
        """Parse text such as ``symmetric:0.8``; :meth:`matrix` and :meth:`apply` refuse unknown kinds.

        Args:
            text: The noise as text.

        Returns:
            The parsed noise.

        Raises:
            ValueError: If the rate is no number or out of range.
        """
        kind, colon, rest = text.partition(":")
        if text == NO_NOISE_KIND:
            return NoiseSpec(NO_NOISE_KIND)
        if not colon:
            return NoiseSpec(MATRIX, file=text)
        if kind == LABELS:
            file, _, name = rest.partition("#")
            return NoiseSpec(LABELS, file=file, name=name or None)
        what = f"the rate in {text!r}"
        try:
            rate = float(rest)
        except ValueError:
            way = "; people's labels are labels:FILE#NAME" if kind == HUMAN else ""
            raise ValueError(f"{what} must be a number, got {rest!r}{way}") from None
        if kind == INSTANCE:
            return NoiseSpec(kind, check_range(what, rate, at_least=0, below=1))
        return NoiseSpec(kind, check_range(what, rate, at_least=0, at_most=1))

    def __str__(self) -> str:
        if self.kind in (NO_NOISE_KIND, MATRIX):
            return self.file or NO_NOISE_KIND
        if self.kind == LABELS:
            return f"{LABELS}:{self.file}" + (f"#{self.name}" if self.name else "")
        return f"{self.kind}:{self.rate}"

    def matrix(self, classes: int | None = None) -> LabelNoise:
        """Return the noise with its transition matrix.

        Args:
            classes: Number of classes; needed where the kind does not state it, and checked where it does.

        Returns:
            The noise.

        Raises:
            ValueError: If the kind is unknown, has no matrix, or is of another number of classes.
        """
        if self.kind == MATRIX:
            if self.file in RATED:
                raise ValueError(f"{self.file} noise needs a rate, such as {self.file}:0.4")
            place = Path(self.file).expanduser()
            if NUMBER_TEXT.fullmatch(self.file) and not place.exists():
                raise ValueError(f"noise has a kind and a rate, such as symmetric:{self.file}, got {self.file!r}")
            if not place.suffix and not place.is_dir() and (hint := _did_you_mean(self.file, ":0.4")):
                raise ValueError(f"unknown noise {self.file!r}; {hint}a kind has a rate, and a matrix's file a suffix")
            noise = from_file(self.file)
        elif self.kind == INSTANCE:
            way = "'noiseproof noise make' makes it, and its manifest shows the realised matrix"
            raise ValueError(f"{self} has no matrix, it depends on the images; {way}")
        elif self.kind == LABELS:
            raise ValueError(f"{self} has no matrix, it is a file of labels; 'noiseproof audit' estimates one")
        elif self.kind == NO_NOISE_KIND or self.kind in MATRIX_NOISES:
            make, fixed = MATRIX_NOISES.get(self.kind, NO_NOISE)
            count = fixed or classes
            if count is None:
                raise ValueError(f"{self.kind} noise needs the number of classes: give --classes (classes=)")
            noise = make(_checked_count(count, self.kind), self.rate)
        else:
            known, files = ", ".join(MATRIX_NOISES), ", ".join(MATRIX_FILES)
            hint = _did_you_mean(self.kind)
            raise ValueError(f"unknown noise {self.kind!r}; {hint}there are {known}, and matrices from {files} files")
        if classes is not None and noise.classes != classes:
            way = f"take a noise of {classes} classes, or leave out --classes (classes=) where it is given"
            raise ValueError(f"{self} is of {noise.classes} classes, got {classes}; {way}")
        return noise

    def apply(
        self,
        clean: Labels,
        seed: int,
        rule: Rule = "exact",
        *,
        classes: int | None = None,
        images: NDArray[Any] | None = None,
        dataset: str | None = None,
        root: Path | None = None,
    ) -> tuple[NoisyLabels, LabelNoise | None]:
        """Apply the noise to clean labels.

        Args:
            clean: Labels ``[N]``.
            seed: Of the noise.
            rule: How labels are drawn, for noise by a matrix.
            classes: Number of classes; read from the labels if left out.
            images: Images ``[N, ...]``, for instance noise.
            dataset: Name of the data set, for ``asymmetric``.
            root: Where a file of labels is looked for first.

        Returns:
            The noisy labels, and the noise as a manifest states it: None for labels that were read from a file.

        Raises:
            ValueError: If instance noise has no images.
        """
        count = int(clean.max(initial=0)) + 1 if classes is None else classes
        if self.kind == LABELS:
            return read_noisy_labels(self._label_file(root), clean, count, self.name), None
        if self.kind == INSTANCE:
            if images is None and dataset is None:
                raise ValueError(f"{self} depends on the images: give --dataset NAME_OR_PATH (images=) instead of --labels")
            if images is None:
                way = "give a data set in arrays, such as an .npz file"
                raise ValueError(f"{self} needs the images in memory, and those of {dataset} are in files; {way}")
            noisy = instance_dependent(images, clean, self.rate, seed, _checked_count(count, self.kind))
            return noisy, asked_noise(images, self.rate, count)
        noise = self.of(dataset).matrix(count if self.of_any_classes else classes)
        return noise.apply(clean, seed, rule), noise

    def soft_labels(self, examples: int, classes: Sequence[str], root: Path | None = None) -> SoftLabels | None:
        """Return the probabilities in the file of labels, if it contains some in place of labels.

        Args:
            examples: Number of examples.
            classes: Names of the classes.
            root: Where the file is looked for first.

        Returns:
            The soft labels, or None.
        """
        if self.kind != LABELS:
            return None
        return read_soft_labels(self._label_file(root), examples, classes, self.name)

    def _label_file(self, root: Path | None) -> Path:
        return find_file(self.file, root, "label file", "'noiseproof data list' says where published ones come from")

    @property
    def has_matrix(self) -> bool:
        """Whether a transition matrix defines it; labels in a file and instance noise have none."""
        return self.kind not in (NO_NOISE_KIND, LABELS, INSTANCE)

    @property
    def of_any_classes(self) -> bool:
        """Whether its matrix is defined for any number of classes, and has to be told how many."""
        return self.kind == NO_NOISE_KIND or (self.kind in MATRIX_NOISES and MATRIX_NOISES[self.kind].classes is None)

    def of(self, dataset: str | None) -> NoiseSpec:
        """Return the noise with ``asymmetric`` replaced by the one that is named after a data set.

        Args:
            dataset: Name of the data set, or None.

        Returns:
            The noise.

        Raises:
            ValueError: If the data set has no asymmetric noise of its own.
        """
        if self.kind != ASYMMETRIC or dataset is None:
            return self
        full = f"{ASYMMETRIC}-{dataset}"
        if full not in MATRIX_NOISES:
            known = ", ".join(kind for kind in MATRIX_NOISES if kind.startswith(f"{ASYMMETRIC}-"))
            raise ValueError(f"{dataset} has no asymmetric noise of its own; there are {known}, pairflip, or a matrix's file")
        return dataclasses.replace(self, kind=full)


def _did_you_mean(kind: str, rest: str = "") -> str:
    near = difflib.get_close_matches(kind, (*RATED, LABELS, NO_NOISE_KIND), n=1)
    if not near or (near[0] == kind and not rest):
        return ""
    return f"did you mean {near[0] + {LABELS: ':FILE', NO_NOISE_KIND: ''}.get(near[0], rest)!r}? "


def _checked_count(classes: int, kind: str) -> int:
    if classes > MAX_CLASSES:
        way = "labels count from 0; a matrix's file may be of any number"
        raise LabelError(f"{kind} noise by name is for at most {MAX_CLASSES} classes, got {classes}; {way}")
    return classes


def from_spec(spec: str, classes: int | None = None) -> LabelNoise:
    """Return noise as written on a command line.

    Args:
        spec: ``symmetric:0.8``, ``asymmetric-cifar10:0.4``, ``pairflip:0.2``, or a matrix's file.
        classes: Number of classes, where the text does not state it.

    Returns:
        The noise.

    >>> from_spec("symmetric:0.8", classes=10).noise_rate
    0.8
    """
    return NoiseSpec.parse(spec).matrix(classes)


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
        some = and_more(absent.tolist(), MAX_CLASSES_LISTED)
        return f"no example has the clean label {some}: nothing to show in these rows" if some else ""

    def plot(self, path: str | Path) -> None:
        """Write the matrix as a heat map.

        Args:
            path: A PNG file.
        """
        from matplotlib.figure import Figure

        figure = Figure(figsize=(5.6, 5), layout="constrained")
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
    if Path(spec).name == MANIFEST or Path(spec).is_dir():
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
