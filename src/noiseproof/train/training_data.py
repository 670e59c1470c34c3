"""What a run trains on: the data set with the recipe's noise on its labels, ``loss.a=auto`` resolved for it, and warnings."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noiseproof.data import Dataset, Examples, Split, check_classes, data_root, held_out, in_memory, in_memory_at, open_dataset
from noiseproof.data.table_encoder import Table
from noiseproof.io.files import checksum, find_file, label_hash
from noiseproof.io.text import and_more, excerpt, printable
from noiseproof.noise import LabelNoise, NoiseSpec, NoisyLabels, SoftLabels
from noiseproof.theory.choice import AUTO, chosen_options
from noiseproof.train.batch_loader import BASIC_AUGMENTATIONS
from noiseproof.train.class_weights import WITHOUT_COLLAPSE, choose_class_weight, class_weights
from noiseproof.train.recipe import Recipe


@dataclass(frozen=True)
class TrainingData:
    """What a run trains and tests on; :func:`prepare` makes it.

    Args:
        name: Of the data set.
        classes: The names of the classes.
        train: Examples to train on, with the labels as given.
        test: Examples to test on.
        clean: The clean training labels, where they are known.
        noise: What the record says of the labels: their hash, or that of the file of soft ones, and the rate and rule of noise.
        sources: Hashes of the files by path.
        other_tests: Further examples to test on after the last epoch, by name.
        root: The folder of data sets, in which files that a recipe names are looked for.
        rows: The positions of the training examples in the data before a share was held out, if one was.
        soft: The class probabilities ``[N, K]`` that are trained on in place of the labels, if any.
        soft_by_order: Whether the columns of ``soft`` are the classes by their order alone: their file has no names.
        columns: The names of the features, where the file has them.
        table: The rows of a table of mixed columns, and the encoder that made features of them.

    >>> data = prepare(Recipe(dataset="digits", loss="ce", noise="symmetric:0.4"))
    >>> len(data.train), int(data.wrong.sum())
    (1297, 521)
    """

    name: str
    classes: tuple[str, ...]
    train: Examples
    test: Examples | None
    clean: NDArray[np.int64] | None
    noise: dict[str, Any]
    sources: dict[str, str]
    other_tests: dict[str, Examples] = field(default_factory=dict)
    root: Path | None = None
    rows: NDArray[np.int64] | None = None
    soft: NDArray[np.float32] | None = None
    soft_by_order: bool = False
    columns: tuple[str, ...] = ()
    table: Table | None = None

    def inputs_in_words(self, recipe: Recipe) -> str:
        """What the network reads, for a line on a terminal.

        Args:
            recipe: Says how inputs are prepared.

        Returns:
            A few words.
        """
        if not self.train.in_memory:
            return f"image files, at {'x'.join(map(str, recipe.size or (224, 224)))} pixels in RGB"
        if self.train.kind == "images":
            colours = {1: "grey", 3: "RGB"}.get(self.train.inputs.shape[-1], f"{self.train.inputs.shape[-1]} channels")
            return f"images of {'x'.join(map(str, self.train.inputs.shape[1:3]))} pixels, {colours}"
        shape = "x".join(map(str, self.train.inputs.shape[1:]))
        how = "standardised by the training examples" + (", all columns by one global scale" if recipe.global_scaling else "")
        plain = (
            f"encoded from {len(self.table.encoder.encoders)} columns" if self.table and self.train.scaled else "as they are"
        )
        return f"{shape} features, {how if recipe.standardise else plain}"

    @property
    def class_counts(self) -> NDArray[np.float64]:
        """How many training labels are of each class, ``[K]``; of soft labels the sums of their probabilities."""
        hard = np.bincount(self.train.labels, minlength=len(self.classes))
        return np.asarray(hard if self.soft is None else self.soft.sum(0, dtype=np.float64), np.float64)

    @property
    def wrong(self) -> NDArray[np.bool_] | None:
        """Where the given label is not the clean one, ``[N]``; None if the clean ones are not known."""
        return None if self.clean is None else self.train.labels != self.clean


def prepare(recipe: Recipe, data: str | Path | None = None) -> TrainingData:
    """Open a recipe's data set, and put its noise on the training labels.

    Args:
        recipe: Says the data set, the noise and the share to hold out.
        data: The folder of data sets; by default ``$NOISEPROOF_DATA``.

    Returns:
        The data to train on.

    >>> round(prepare(Recipe(dataset="digits", loss="ce", noise="symmetric:0.4")).noise["rate"], 4)
    0.4017
    """
    return with_noise(open_dataset(recipe.dataset, data, **recipe.data_options), recipe, data_root(data))


def with_noise(dataset: Dataset, recipe: Recipe, root: Path | None = None) -> TrainingData:
    """Put a recipe's noise on the training labels of a data set, and hold out its share to test on.

    Args:
        dataset: The data, opened.
        recipe: Says the noise, the share to hold out and the size of images.
        root: The folder of data sets, in which files that the recipe names are looked for.

    Returns:
        The data to train on.

    >>> from noiseproof.data import open_dataset
    >>> with_noise(open_dataset("digits"), Recipe(dataset="digits", loss="ce")).noise["spec"]
    'none'
    """
    check_classes(dataset, recipe.dataset)
    dataset = _checked_images(_resized(dataset, recipe))
    train, clean, soft, facts = _labelled(dataset, recipe, root)
    others, sources = dataset.other_tests, dataset.sources
    if recipe.weights is not None:
        sources = sources | {recipe.weights: checksum(weights_file(recipe.weights, root))}
    more: dict[str, Any] = {"columns": dataset.columns, "table": dataset.table}
    if soft is not None:
        more |= {"soft": soft.probabilities, "soft_by_order": soft.fit_by_order_alone(dataset.classes)}
    task = TrainingData(dataset.name, dataset.classes, train, dataset.test, clean, facts, sources, others, root, **more)
    class_weights(recipe.class_weight, task.class_counts, task.classes)  # an error now for a class that is not there
    return _without_test_size(task, recipe.test_size) if recipe.test_size else task


def _labelled(
    dataset: Dataset, recipe: Recipe, root: Path | None
) -> tuple[Examples, NDArray[np.int64] | None, SoftLabels | None, dict[str, Any]]:
    """The training examples with the recipe's labels, the clean ones and the soft ones if there are, what the record says."""
    labels = dataset.train.labels
    if recipe.noise == "none":
        # Nothing is known of errors in the labels as they came.
        return dataset.train, None, None, {"spec": "none", "hash": label_hash(labels)}
    spec = NoiseSpec.parse(recipe.noise)
    if (soft := spec.soft_labels(len(labels), dataset.classes, root)) is not None:
        if soft.own is not None and not np.array_equal(soft.own, labels):
            raise ValueError(
                f"{recipe.noise.removeprefix('labels:')} is of other examples than {dataset.name}: it was computed from data "
                "with other labels, or in another order; 'noiseproof audit' makes one of these"
            )
        facts: dict[str, Any] = {"spec": recipe.noise, "hash": soft.hash, "soft": True}
        if np.array_equal(soft.given, labels):
            return dataset.train, None, soft, facts
        facts["rate"] = float((soft.given != labels).mean())
        return dataset.train.with_labels(soft.given), labels, soft, facts
    noisy, _ = spec.apply(
        labels,
        recipe.seed,
        recipe.noise_rule,
        classes=len(dataset.classes),
        images=dataset.train.inputs if dataset.train.in_memory else None,
        dataset=dataset.name,
        root=root,
    )
    facts = {"spec": recipe.noise, "hash": noisy.hash, "rate": noisy.rate}
    if noisy.rule is not None:
        facts |= {"rule": noisy.rule, "seed": noisy.seed}
    return dataset.train.with_labels(noisy.labels), labels, None, facts


def _without_test_size(task: TrainingData, share: float) -> TrainingData:
    """Hold out a share of the examples to test on, with clean labels where known; the noise's rate and hash are of the rest."""
    if task.test is not None:
        raise ValueError(f"test_size is for data without a test split; {task.name} has one of {len(task.test)} examples")
    mask = held_out(task.train.labels if task.clean is None else task.clean, share)
    if not mask.any() or mask.all():
        raise ValueError(f"test_size {share} of {len(mask)} examples leaves none to {'train' if mask.all() else 'test'} on")
    train, test, clean, table = task.train.take(~mask), task.train.take(mask), None, task.table
    if table is not None and train.in_memory and test.in_memory:  # the encoder must not see what is tested on
        table, *inputs = table.held_out(mask)
        train, test = (dataclasses.replace(part, inputs=x) for part, x in zip((train, test), inputs, strict=True))
    if task.clean is not None:
        test, clean = test.with_labels(task.clean[mask]), task.clean[~mask]
    soft = None if task.soft is None else task.soft[~mask]
    columns = task.columns if table is None else tuple(table.encoder.feature_names)
    task = dataclasses.replace(
        task, train=train, test=test, clean=clean, rows=np.flatnonzero(~mask), soft=soft, table=table, columns=columns
    )
    facts = dict(task.noise)
    if soft is None:  # those of a file are known by the file
        facts["hash"] = label_hash(task.train.labels)
    if task.wrong is not None:
        facts["rate"] = float(task.wrong.mean())
    return dataclasses.replace(task, noise=facts)


def _resized(dataset: Dataset, recipe: Recipe) -> Dataset:
    """Image files of the recipe's ``size``, in memory if they are small enough together."""
    if recipe.size is None:
        return dataset
    if dataset.train.in_memory:
        raise ValueError(f"{dataset.name}: size is for image files, not for arrays {dataset.train.inputs.shape}: size=none")
    if recipe.augment not in BASIC_AUGMENTATIONS:
        return dataset  # their crops are made from the files
    # A network of the user's own is not told how many channels there are.
    keep_rgb = ":" in recipe.model or recipe.model_options.get("in_channels") == 3
    return in_memory_at(dataset, recipe.size, keep_rgb=keep_rgb)


def _checked_images(dataset: Dataset) -> Dataset:
    """Grey images ``[N, H, W]`` with their one channel; an error for arrays that cannot be images ``[N, H, W, C]``."""
    train = dataset.train
    if train.kind != "images":
        return dataset
    shape = train.inputs.shape
    if len(shape) == 3:
        test = None if dataset.test is None else _with_channel(in_memory(dataset.test))
        return dataclasses.replace(dataset, train=_with_channel(train), test=test)
    if len(shape) != 4 or shape[3] > 4:
        way = "transpose(0, 2, 3, 1) puts the channels last" if train.channels_first else "features must be floating"
        raise ValueError(
            f"{dataset.name}: uint8 inputs must be images [N, H, W] or [N, H, W, C] of at most 4 channels, got {shape}; {way}"
        )
    return dataset


def _with_channel(split: Split) -> Split:
    return Split(split.inputs[..., None], split.labels, split.paths)


def weights_file(file: str, root: Path | None) -> Path:
    return find_file(file, root, "file of weights", "say where it is, weights=PATH, or start without one, weights=none")


NOISE_SOURCES = (
    "say it, loss.a=auto:0.3 for a share of wrong labels, auto:symmetric:0.3, auto:FILE for a transition matrix, or "
    "auto:FOLDER for an audit, which 'noiseproof audit DATA --quick' makes"
)


def resolve_auto(recipe: Recipe, data: TrainingData) -> Recipe:
    """Choose ``loss.a`` and ``class_weight`` where a recipe leaves them ``auto``.

    Args:
        recipe: Perhaps with ``auto``.
        data: Its data.

    Returns:
        The recipe with what was chosen, and the reasons in its ``why``; the same recipe if it has no ``auto``.

    Raises:
        ValueError: The noise is not known, or not one for which ``a`` can be chosen.

    >>> from noiseproof.train import prepare
    >>> recipe = Recipe(dataset="digits", loss="jal-ce", loss_options={"a": "auto"}, noise="symmetric:0.4")
    >>> resolve_auto(recipe, prepare(recipe)).loss_options
    {'a': 18.0, 'beta': 1.6666666666666667}
    """
    if recipe.class_weight == AUTO:
        weight, warm, reason = choose_class_weight(recipe.loss, data.class_counts, recipe.epochs, recipe.elr)
        why = (*recipe.why, reason) if reason else recipe.why
        recipe = dataclasses.replace(recipe, class_weight=weight, warm_epochs=recipe.warm_epochs or warm, why=why)
    if not recipe.has_auto:
        return recipe
    source = str(recipe.loss_options["a"]).partition(":")[2]
    classes = len(data.classes)
    try:
        noise = _parsed(source) if source else _noise_of_labels(recipe, data)
        options = {name: value for name, value in recipe.loss_options.items() if name != "a"}
        chosen, found = chosen_options(recipe.loss, options, noise, classes=classes)
    except (ValueError, OSError) as error:
        raise ValueError(f"loss.a={AUTO}{':' * bool(source)}{source}: {error}") from error
    return dataclasses.replace(recipe, loss_options=chosen, why=(*found.reasons, *recipe.why))


def _parsed(source: str) -> float | str:
    """A rate, or a noise as text."""
    try:
        return float(source)
    except ValueError:
        return source


def _noise_of_labels(recipe: Recipe, data: TrainingData) -> LabelNoise | NoisyLabels:
    """The noise that the recipe puts on the labels: as it is asked for, or as it came out where it has no matrix."""
    if data.soft is not None:
        raise ValueError(f"the labels are soft, and what is wrong with them is not known; {NOISE_SOURCES}")
    if recipe.noise == "none":
        raise ValueError(
            f"the recipe puts no noise on the labels, and that of the labels as given is not known; {NOISE_SOURCES}"
        )
    spec, classes = NoiseSpec.parse(recipe.noise), len(data.classes)
    if spec.has_matrix:
        return spec.of(data.name).matrix(classes)
    clean = np.asarray(data.clean)  # which noise from a file of labels and by instance always leaves
    return NoisyLabels.compare(clean, data.train.labels, classes)


RARE_SHARE, MAJORITY_SHARE = 0.1, 0.7
"""A class is rare if it has less than this share of the labels of the most frequent class, or if one class has more than this
share of all labels: docs/how_to/choosing.md contains the measurements"""
CLASS_WEIGHT_HINT = "--class-weight auto weights its classes, and starts with cross entropy"


def data_warnings(recipe: Recipe, task: TrainingData) -> Iterator[str]:
    """Labels that count from 1, or are of other examples or perhaps other classes; classes that are not tested; what
    :func:`table_warnings` finds."""
    given = task.train.labels
    own = given if task.clean is None else task.clean  # noise gives labels to a class that has no example
    if len(absent := np.setdiff1d(np.arange(len(task.classes)), own)):
        numbers = task.classes == tuple(map(str, range(len(task.classes))))
        why = " (labels count from 0; a gap is a class too)" if numbers else ""
        yield f"no example to train on is of class {and_more([printable(task.classes[k]) for k in absent])}{why}"
    if task.test is not None and len(untested := np.setdiff1d(own, task.test.labels)):
        names = and_more([printable(task.classes[k]) for k in untested])
        yield f"no example to test on is of class {names}: the test accuracy says nothing of it"
    if task.clean is not None and recipe.noise.startswith("labels:"):
        shares = [np.bincount(labels, minlength=len(task.classes)) / len(labels) for labels in (own, given)]
        chance, agree = float(shares[0] @ shares[1]), float((own == given).mean())
        if agree <= chance + 2 * (chance * (1 - chance) / len(own)) ** 0.5:
            yield (
                f"only {agree:.0%} of the labels in {recipe.noise.removeprefix('labels:')} are the data's own, as many as by "
                "chance: are they of the same examples, in the same order?"
            )
    if task.soft_by_order:
        yield (
            f"{recipe.noise.removeprefix('labels:')} does not name its classes: its columns are taken for "
            f"{and_more(list(map(printable, task.classes)))}, in this order; an array 'classes' beside 'posterior' names them"
        )
    if recipe.elr and recipe.loss not in WITHOUT_COLLAPSE:
        yield "early-learning regularisation is for cross entropy: it outweighs a loss whose gradients are bounded"
    if recipe.class_weight is None and (recipe.elr or recipe.loss not in WITHOUT_COLLAPSE):
        yield from rare_class_warnings(given, task.classes)
    yield from table_warnings(task.classes, task.table)


def rare_class_warnings(labels: NDArray[np.int64], classes: Sequence[str]) -> Iterator[str]:
    """Classes so much rarer than another that a robust loss may never predict them."""
    counts = np.bincount(labels, minlength=len(classes))
    largest = int(counts.argmax())
    beside = counts[largest] > MAJORITY_SHARE * len(labels)
    rare = [k for k in np.argsort(counts, kind="stable") if 0 < counts[k] < (1 if beside else RARE_SHARE) * counts[largest]]
    if rare:
        shares = [f"{excerpt(classes[k], 40)} ({counts[k] / len(labels):.1%})" for k in (*rare, largest)]
        which, them = ("classes", "them") if rare[1:] else ("class", "it")
        may = f"a robust loss may never predict {them}; --class-weight auto weights the classes"
        yield f"class imbalance: {which} {and_more(shares[:-1])} beside {shares[-1]}; {may}"


def table_warnings(classes: Sequence[str], table: Table | None) -> Iterator[str]:
    """Classes that differ in capitals or blanks alone, and columns of a table that give the label away."""
    spellings = defaultdict(list)
    for name in classes:
        spellings[" ".join(name.casefold().split())].append(name)
    if alike := [names for names in spellings.values() if len(set(names)) > 1]:
        more = f" ({len(alike)} such)" if len(alike) > 1 else ""
        yield f"classes {' and '.join(map(repr, alike[0][:4]))} differ in capitals or blanks only: are they one?{more}"
    yield from () if table is None else table.notes
