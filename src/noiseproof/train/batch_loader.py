"""Batches, from memory or from image files. An epoch depends on the seed and its number alone, not on earlier epochs."""

from __future__ import annotations

import dataclasses
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from noiseproof.data import Augment, ImageFiles, ImageLoader, Split
from noiseproof.train.transforms import Standardise, Transforms, as_tensor

__all__ = ["SINGLE", "Batch", "BatchLoader", "EpochPlan", "FileLoader", "MemoryLoader", "Rank", "generator_for"]

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
        skip_corrupt: bool = False,
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
        shared: dict[str, Any] = {"seed": seed, "workers": workers, "device": device, "skip_corrupt": skip_corrupt}
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

    @property
    def skipped(self) -> list[str]:
        """Damaged images left out, on request, in the current epoch."""
        return self._train.skipped

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
