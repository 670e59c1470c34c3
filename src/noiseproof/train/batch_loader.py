"""Batches for the network: the augmentations by name, standardising, and loaders of arrays in memory and of image files.

An epoch depends on the seed and its number alone, not on earlier epochs.
"""

from __future__ import annotations

import dataclasses
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from noiseproof.data import (
    IMAGENET,
    Augment,
    ColorJitter,
    DataError,
    Examples,
    Framing,
    ImageFiles,
    ImageLoader,
    Normalize,
    Pipeline,
    RandomResizedCrop,
    ResizeCenterCrop,
    ResizeCrop,
    Split,
    evaluation,
)
from noiseproof.data.augment import AUGMENTATIONS, Output, find_augmentation, register_augmentation
from noiseproof.data.operations import HorizontalFlip, Operation, RandomCrop, Size

BASIC_AUGMENTATIONS: dict[str, tuple[Operation, ...]] = {
    "none": (),
    "flip": (HorizontalFlip(),),
    "crop-flip": (RandomCrop(padding=4), HorizontalFlip()),
}
"""Augmentations that normalise by the mean and deviation of the training images, or by ImageNet's where the images are files.
Others are registered by name, with a normalisation of their own."""


def photograph_augment(*, cropped: bool = False, **output: Unpack[Output]) -> Augment:
    """Random resized crop to 224, flip, colour jitter; ``cropped`` leaves out the first, for images already cropped."""
    first = () if cropped else (RandomResizedCrop(size=224),)
    return Augment((*first, HorizontalFlip(), ColorJitter(0.4, 0.4, 0.4, 0.2)), *IMAGENET, **output)


def _photographs(*, in_files: bool, size: Size | None, output: Output) -> Pipeline:
    if not in_files:
        return Pipeline(photograph_augment(**output), evaluation(*IMAGENET, resize=256, **output))
    if size is not None and size[0] != size[1]:
        raise ValueError(f"augment 'webvision' makes squares, size must be one number, got {size[0]}x{size[1]}")
    part = RandomResizedCrop(224 if size is None else size[0])
    centre: Framing = ResizeCenterCrop(256, 224) if size is None else ResizeCrop(*size)
    return Pipeline(photograph_augment(cropped=True, **output), evaluation(*IMAGENET, **output), part, centre)


register_augmentation("webvision", _photographs)  # the default for image files, named after the data set that it was made for


def check_augmentation(name: str) -> None:
    """A ValueError unless an augmentation has this name."""
    try:
        _ = name in BASIC_AUGMENTATIONS or find_augmentation(name)
    except KeyError:
        names = ", ".join((*BASIC_AUGMENTATIONS, *AUGMENTATIONS))
        raise ValueError(f"augment must be one of {names}, got {name!r}") from None


ROWS_AT_ONCE = 4096
"""Examples that are converted to float64 at a time"""


@dataclass(frozen=True)
class Standardise:
    """``(x - mean) / std`` of each column, or of each channel of floating images; 0 where ``std`` is 0, a constant column.

    With one scale, mean and deviation are those of all columns together: their proportions stay, as those of pixels should.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    shape: tuple[int, ...]
    """That the statistics are broadcast in, without the first dimension"""

    @staticmethod
    def of(split: Split, global_scaling: bool = False) -> Standardise:
        """The statistics of a split, in float64: of two passes, exact for columns far from zero as well."""
        inputs = split.inputs
        axes = (0, 2, 3) if split.channels is not None else (0,)
        shape = tuple(1 if axis in axes else size for axis, size in enumerate(inputs.shape))[1:]
        mean = inputs.mean(axes, dtype=np.float64, keepdims=True)
        if global_scaling:
            mean[:] = mean.mean()
        square = sum(((part - mean) ** 2).sum(axes, keepdims=True) for part in _parts(inputs))
        std = np.sqrt(square / (inputs.size / mean.size))
        if global_scaling:
            std[:] = np.sqrt((std**2).mean())
        # Rounding of the mean leaves a constant column a deviation that is not quite 0.
        std[inputs.min(axes, keepdims=True) == inputs.max(axes, keepdims=True)] = 0
        return Standardise(tuple(mean.ravel().tolist()), tuple(std.ravel().tolist()), shape)

    def __call__(self, inputs: NDArray[Any]) -> NDArray[np.float32]:
        """Float32. A column that is constant in training is 0 everywhere: nothing was learned of other values."""
        mean, std = (np.array(values).reshape(self.shape) for values in (self.mean, self.std))
        scale = np.divide(1, std, out=np.zeros_like(std), where=std > 0)
        made = np.empty(inputs.shape, np.float32)
        with np.errstate(over="ignore"):
            for start, part in zip(range(0, len(inputs), ROWS_AT_ONCE), _parts(inputs), strict=True):
                made[start : start + ROWS_AT_ONCE] = (part - mean) * scale
        if len(bad := np.flatnonzero(~np.isfinite(made).reshape(len(made), -1).all(1))):
            raise DataError(
                f"example {bad[0]} is too far from the training examples to be standardised in float32; correct it, or set "
                "standardise=false"
            )
        return made


def _parts(inputs: NDArray[Any]) -> Iterator[NDArray[np.float64]]:
    for start in range(0, len(inputs), ROWS_AT_ONCE):
        yield inputs[start : start + ROWS_AT_ONCE].astype(np.float64)


@dataclass(frozen=True)
class Transforms:
    """How inputs are prepared for training and for evaluation."""

    train: Augment | None
    test: Augment | None
    train_framing: Framing | None = None
    test_framing: Framing | None = None
    standardise: Standardise | None = None
    """Of features, which are otherwise not changed"""

    @staticmethod
    def named(
        name: str,
        split: Examples,
        *,
        standardise: bool = False,
        global_scaling: bool = False,
        size: Size | None = None,
        **output: Unpack[Output],
    ) -> Transforms:
        """What a recipe's ``augment``, ``standardise``, ``global_scaling`` and ``size`` are for its training examples.

        ``output`` is the dtype and memory format of the result.
        """
        check_augmentation(name)
        if standardise and split.kind != "features":
            raise ValueError("standardise is for features; images are normalised by their augmentation: standardise=false")
        if split.kind == "features":
            if name != "none":
                raise ValueError(f"augment {name!r} is for images; these inputs are features: use none")
            return Transforms(None, None, standardise=Standardise.of(split, global_scaling) if standardise else None)
        if name not in BASIC_AUGMENTATIONS:
            return Transforms(*find_augmentation(name)(in_files=split.kind == "files", size=size, output=output))
        if split.kind == "files":
            centre: Framing = ResizeCenterCrop(256, 224) if size is None else ResizeCrop(*size)
            train = Augment(BASIC_AUGMENTATIONS[name], *IMAGENET, **output)
            return Transforms(train, evaluation(*IMAGENET, **output), centre, centre)
        normalize = _statistics(split)
        return Transforms(Augment(BASIC_AUGMENTATIONS[name], *normalize, **output), evaluation(*normalize, **output))

    def facts(self, split: Examples) -> dict[str, Any]:
        """What evaluation does to an input, in words and numbers that a record keeps."""
        if self.standardise is not None:
            facts = self.standardise
            return {"kind": "features", "standardise": {"mean": list(facts.mean), "std": list(facts.std)}}
        if self.test is None:
            return {"kind": "features"}
        found: dict[str, Any] = {"kind": "images", "channels": len(self.test.mean)}
        if self.test_framing is not None:
            found["framing"] = repr(self.test_framing)
            size = self.test_framing.frame_size
        elif split.in_memory:
            size = split.inputs.shape[1], split.inputs.shape[2]
        if operations := self.test.operations:
            found["operations"] = [repr(operation) for operation in operations]
        found["size"] = list(self.test.sizes(size)[-1])
        return {**found, "scale": 1 / 255, "mean": list(self.test.mean), "std": list(self.test.std)}


def _statistics(split: Split) -> Normalize:
    """Mean and deviation of each channel, exact: from the counts of the 256 values."""
    values = np.arange(256) / 255
    mean, std = [], []
    for channel in np.moveaxis(split.inputs, -1, 0):
        share = np.bincount(channel.reshape(-1), minlength=256) / channel.size
        mean.append(float(share @ values))
        std.append(float(np.sqrt(share @ (values - mean[-1]) ** 2)) or 1.0)
    return Normalize(tuple(mean), tuple(std))


def as_tensor(split: Split) -> Tensor:
    """Inputs as a network takes them: images ``[N, C, H, W]`` uint8, features float32."""
    # A copy where torch takes no view: of an array that is mirrored, or BGR turned to RGB by [..., ::-1], or read-only.
    inputs = torch.from_numpy(np.require(split.inputs, requirements=("C", "W")))
    return inputs.permute(0, 3, 1, 2).contiguous() if inputs.dtype == torch.uint8 and inputs.ndim == 4 else inputs


ORDER, AUGMENT = 1, 2  # the random streams of an epoch
EVALUATION_BATCH, EVALUATION_NUMBERS = 1000, 2**24  # limits of an evaluation batch: examples, and numbers in them
FILES_BATCH = 64  # image files that are evaluated at a time, in each process


class Rank(NamedTuple):
    """This process among those that train one network; each batch is divided among them."""

    rank: int = 0
    world: int = 1

    def share(self, count: int) -> slice:
        return slice(self.rank * count // self.world, (self.rank + 1) * count // self.world)


SINGLE = Rank()


class Batch(NamedTuple):
    """Inputs as the network reads them, their labels, and their positions in the split."""

    inputs: Tensor
    labels: Tensor
    indices: Tensor


class BatchLoader(Protocol):
    def steps(self) -> int:
        """Batches in an epoch."""

    def epoch(self, epoch: int) -> Iterator[Batch]:
        """The training batches of an epoch, counted from 0."""

    def eval_batches(self) -> Iterator[Batch]:
        """Every example once, as evaluation sees it."""

    def close(self) -> None:
        """End the worker processes, if there are any."""

    def __len__(self) -> int: ...


def generator_for(*words: int) -> torch.Generator:
    """A generator seeded by the seed, the epoch and the stream; SeedSequence makes neighbouring ones independent."""
    word = np.random.SeedSequence(words).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(word >> np.uint64(1)))


@dataclass(frozen=True)
class EpochPlan:
    """What is random in an epoch over examples in memory: the order, and the augmentation of each example in that order."""

    order: Tensor
    drawn: tuple[Any, ...]

    @staticmethod
    def draw(count: int, size: tuple[int, int] | None, augment: Augment | None, seed: int, epoch: int) -> EpochPlan:
        order = torch.randperm(count, generator=generator_for(seed, epoch, ORDER))
        if augment is None or size is None:
            return EpochPlan(order, ())
        return EpochPlan(order, augment.draw(count, size, generator_for(seed, epoch, AUGMENT)))

    def to(self, device: torch.device) -> EpochPlan:
        return self.each(lambda tensor: tensor.to(device))

    def part(self, start: int, stop: int) -> EpochPlan:
        return self.each(lambda tensor: tensor[start:stop])

    def each(self, change: Callable[[Tensor], Tensor]) -> EpochPlan:
        return EpochPlan(change(self.order), _each_tensor(self.drawn, change))


def _each_tensor(drawn: tuple[Any, ...], change: Callable[[Tensor], Tensor]) -> tuple[Any, ...]:
    """Change every tensor that an augmentation drew; each random operation has a dataclass of them."""
    return tuple(
        d and dataclasses.replace(d, **{f.name: change(getattr(d, f.name)) for f in dataclasses.fields(d)}) for d in drawn
    )


_inputs: weakref.WeakValueDictionary[tuple[int, str, Standardise | None], Tensor] = weakref.WeakValueDictionary()
_inputs_lock = threading.Lock()


def _on_device(split: Split, device: torch.device, standardise: Standardise | None) -> Tensor:
    """The inputs of a split on a device, shared by all loaders of the same array, which they keep: its id stays in use."""
    key = (id(split.inputs), str(device), standardise)
    with _inputs_lock:
        found = _inputs.get(key)
        if found is None:
            inputs = as_tensor(split) if standardise is None else torch.from_numpy(standardise(split.inputs))
            found = _inputs[key] = inputs.to(device)
        return found


class MemoryLoader:
    """Batches of a split in memory; all of it is on the device."""

    def __init__(
        self, split: Split, transforms: Transforms, *, batch: int, seed: int, device: torch.device, process: Rank = SINGLE
    ) -> None:
        self.split = split
        self.inputs = _on_device(split, device, transforms.standardise)
        self.labels = torch.from_numpy(split.labels).to(device)
        self.transforms, self.batch, self.seed, self.device, self.process = transforms, batch, seed, device, process

    def __len__(self) -> int:
        return len(self.labels)

    def steps(self) -> int:
        whole, rest = divmod(len(self), self.batch)
        return whole + (rest >= self.process.world)

    def plan(self, epoch: int) -> EpochPlan:
        """What is random in an epoch, drawn on the CPU: the same for every device."""
        size = (self.inputs.shape[-2], self.inputs.shape[-1]) if self.transforms.train is not None else None
        return EpochPlan.draw(len(self), size, self.transforms.train, self.seed, epoch).to(self.device)

    def examples(self, plan: EpochPlan) -> Tensor:
        inputs = self.inputs[plan.order]
        return inputs if self.transforms.train is None else self.transforms.train.apply(inputs, plan.drawn)

    def epoch(self, epoch: int) -> Iterator[Batch]:
        plan = self.plan(epoch)
        for start in range(0, len(self), self.batch):
            count = min(self.batch, len(self) - start)
            if count < self.process.world:  # too few for every process to have one
                return
            share = self.process.share(count)
            part = plan.part(start + share.start, start + share.stop)
            yield Batch(self.examples(part), self.labels[part.order], part.order)

    def eval_batches(self) -> Iterator[Batch]:
        for start in range(0, len(self), self.evaluation_batch):
            whole = torch.arange(start, min(start + self.evaluation_batch, len(self)), device=self.device)
            indices = whole[self.process.share(len(whole))]
            if len(indices):  # of fewer examples than processes some get none, and not every network takes an empty batch
                yield Batch(self._unchanged(indices), self.labels[indices], indices)

    @cached_property
    def evaluation_batch(self) -> int:
        """Examples that are evaluated at a time; fewer if they are large."""
        one = self._unchanged(torch.zeros(1, dtype=torch.int64, device=self.device))
        return max(1, min(EVALUATION_BATCH, EVALUATION_NUMBERS // one.numel()))

    def _unchanged(self, indices: Tensor) -> Tensor:
        inputs = self.inputs[indices]
        return inputs if self.transforms.test is None else self.transforms.test(inputs)

    def close(self) -> None:
        pass


class FileLoader:
    """Batches of images that stay in files, decoded in worker processes."""

    def __init__(
        self,
        files: ImageFiles,
        transforms: Transforms,
        *,
        batch: int,
        seed: int,
        device: torch.device,
        workers: int,
        process: Rank = SINGLE,
    ) -> None:
        train_framing, test_framing = transforms.train_framing, transforms.test_framing
        if train_framing is None or test_framing is None or transforms.train is None:
            raise ValueError("image files need an augmentation and a framing: those of Transforms.named")
        if batch % process.world:
            raise ValueError(
                f"batch={batch} cannot be divided evenly among {process.world} processes, as image files must be; "
                f"set batch={max(1, batch // process.world) * process.world}, say"
            )
        self.augment = transforms.train
        self.transforms, self.seed, self.device, self.files = transforms, seed, device, files
        shared: dict[str, Any] = {"seed": seed, "workers": workers, "device": device}
        shared |= {"rank": process.rank, "world": process.world}
        drop = 0 < len(files) % batch < process.world
        self._make_train = partial(ImageLoader, files, train_framing, batch_size=batch, shuffle=True, drop_last=drop, **shared)
        self._test = ImageLoader(files, test_framing, batch_size=FILES_BATCH * process.world, shuffle=False, **shared)

    @cached_property
    def _train(self) -> ImageLoader:
        """Made when it is needed: a split that is only evaluated may have fewer images than there are processes."""
        return self._make_train()

    def __len__(self) -> int:
        return len(self.files)

    def steps(self) -> int:
        return len(self._train)

    def epoch(self, epoch: int) -> Iterator[Batch]:
        # Drawn for every file, so that an image's augmentation depends neither on its batch nor on the number of processes.
        size = self._train.framing.frame_size
        drawn = self.augment.draw(len(self), size, generator_for(self.seed, epoch, AUGMENT))
        drawn = _each_tensor(drawn, lambda tensor: tensor.to(self.device))
        for images, labels, indices in self._train.epoch(epoch):
            theirs = _each_tensor(drawn, lambda tensor, taken=indices: tensor[taken])  # type: ignore[misc]
            yield Batch(self.augment.apply(images, theirs), labels, indices)

    def eval_batches(self) -> Iterator[Batch]:
        for images, labels, indices in self._test.epoch(0):
            ready = images if self.transforms.test is None else self.transforms.test(images)
            yield Batch(ready, labels, indices)

    def close(self) -> None:
        if "_train" in self.__dict__:
            self._train.close()
        self._test.close()
