"""Image files as pixels: batches decoded in worker processes, deterministic; or all of them in memory, if they are small."""

from __future__ import annotations

import multiprocessing
import os
import threading
import warnings
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from noiseproof.checks import check_integer
from noiseproof.data.dataset import Dataset, ImageFiles, Split
from noiseproof.data.images import IMAGE_FORMATS, damaged, decode, open_file
from noiseproof.data.operations import Framing, ResizeCrop, Size
from noiseproof.io.files import DataError
from noiseproof.keyed_random import Word, keyed_order

ORDER, FRAMING = 0, 1  # the streams of random numbers, each a word of its keys


class ImageBatch(NamedTuple):
    """Images uint8 ``[B, 3, H, W]`` (channels last in memory), labels ``[B]``, and their positions ``[B]`` in the files."""

    images: Tensor
    labels: Tensor
    indices: Tensor


class ImageLoader:
    """Batches of image files, decoded in worker processes, epoch by epoch.

    The same ``seed``, ``epoch(n)`` and files give the same batches, for any number of ``workers`` and any order of epochs;
    torch's global generators are not used. (Versions of Pillow and its libraries may differ by a grey level.)

    A short last batch is divided among the processes as evenly as possible; with fewer images than processes some would have no
    step, which ``shuffle`` refuses without ``drop_last``.

    Damaged images raise a :class:`DataError` here, whichever process decoded them: the rest of the epoch is decoded, and the
    error names three and counts all. A file that cannot be opened is never skipped: it is an OSError with its path.

    Workers live from the first epoch to :meth:`close`. They start by ``forkserver``, else by ``spawn``: a plain fork would copy
    this process's threads, locks and CUDA state. A script with workers needs ``if __name__ == "__main__":``. Each worker
    imports torch, which takes seconds; ``multiprocessing.set_forkserver_preload(["noiseproof.data.loader"])`` at the start of a
    program does it once. Batches for CUDA are pinned and copied asynchronously.

    Args:
        files: The image files.
        framing: How each is resized.
        batch_size: Images of all ``world`` processes, a multiple of their number: each gets a contiguous slice of every
            batch.
        seed: Of the order and of random crops.
        shuffle: Whether each epoch has an order of its own.
        workers: Processes that decode; 0 decodes here.
        device: Where batches are put.
        rank: Number of this process.
        world: Number of processes.
        drop_last: Leave out a short last batch.

    Raises:
        TypeError: If ``files`` or ``framing`` are of another type.

    >>> import tempfile, PIL.Image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     PIL.Image.new("RGB", (40, 20)).save(f"{folder}/a.png")
    ...     files = ImageFiles((f"{folder}/a.png",), np.array([1]))
    ...     framing = ResizeCrop(32, 32)
    ...     loader = ImageLoader(files, framing, batch_size=1, seed=0, shuffle=False, workers=0, device="cpu")
    ...     [tuple(batch.images.shape) for batch in loader.epoch(0)]
    [(1, 3, 32, 32)]
    """

    def __init__(
        self,
        files: ImageFiles,
        framing: Framing,
        *,
        batch_size: int,
        seed: int,
        shuffle: bool,
        workers: int,
        device: str | torch.device,
        rank: int = 0,
        world: int = 1,
        drop_last: bool = False,
    ) -> None:
        if not isinstance(files, ImageFiles):
            raise TypeError(f"files must be ImageFiles, got {type(files).__name__}")
        if not isinstance(framing, Framing):
            raise TypeError(f"framing must be a Framing (Resize, ResizeCenterCrop, RandomResizedCrop), got {framing!r}")
        self.files, self.framing = files, framing
        self.shuffle, self.drop_last = shuffle, drop_last
        self.batch_size = check_integer("batch_size", batch_size, at_least=1)
        self.seed, self.device = _check_word("seed", seed), torch.device(device)
        self.workers = check_integer("workers", workers, at_least=0)
        self.rank, self.world = check_integer("rank", rank, at_least=0), check_integer("world", world, at_least=1)
        self._check_shares()
        self._sampler = _Sampler()
        self._engine: DataLoader[_Decoded] | None = None
        self._iterator: Iterator[_Decoded] | None = None
        """The engine's. Nothing else may hold it: its workers live as long as it does."""
        self._begun: object = None

    def __len__(self) -> int:
        """The steps of an epoch, in this process."""
        full, rest = divmod(len(self.files), self.batch_size)
        low, high = self._share(0 if self.drop_last else rest)
        return full + (high > low)

    def epoch(self, n: int) -> Iterator[ImageBatch]:
        """Iterate over the batches of an epoch. Beginning an epoch ends the one before it.

        Args:
            n: The epoch, counted from 0.

        Returns:
            The batches.
        """
        _check_word("epoch", n)
        self._begun = begun = object()
        return self._batches(n, begun)

    def close(self) -> None:
        """Stop the workers and end the epoch begun last; another epoch would start new ones."""
        self._begun = None
        iterator, self._engine, self._iterator = self._iterator, None, None
        # Dropping the reference would do, unless a traceback still holds it.
        getattr(iterator, "_shutdown_workers", lambda: None)()

    def _batches(self, n: int, begun: object) -> Iterator[ImageBatch]:
        self._check_begun(n, begun)
        if self._engine is None:
            self._engine = self._start()
        self._sampler.requests = self._requests(n)
        self._iterator = iter(self._engine)
        faults: list[Exception] = []
        looked_at = 0
        while (decoded := next(self._iterator, None)) is not None:
            faults += decoded.faults
            looked_at += len(decoded.labels)
            if faults and isinstance(faults[-1], OSError):
                raise faults[-1]
            if faults:  # the rest of the epoch is decoded to count them
                continue
            images, labels, indices = (tensor.to(self.device, non_blocking=True) for tensor in decoded[:3])
            yield ImageBatch(images.permute(0, 3, 1, 2), labels, indices)
            self._check_begun(n, begun)  # the next batch would be of the other epoch
        if faults:
            raise damaged(faults, looked_at)

    def _check_begun(self, n: int, begun: object) -> None:
        if self._begun is None:
            raise RuntimeError(f"epoch {n} is over: the loader was closed; ask for an epoch anew")
        if self._begun is not begun:
            raise RuntimeError(f"epoch {n} is over: another epoch of this loader has begun; two at a time need two loaders")

    def _start(self) -> DataLoader[_Decoded]:
        method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
        return DataLoader(
            _Decoder(self.framing, self.seed),
            batch_size=None,  # a request is a whole batch
            sampler=self._sampler,
            collate_fn=_as_it_is,
            worker_init_fn=_end_with_parent,
            num_workers=self.workers,
            persistent_workers=self.workers > 0,
            multiprocessing_context=method if self.workers else None,
            pin_memory=self.device.type == "cuda",
            generator=torch.Generator(),  # else each epoch would draw from the global one
        )

    def _requests(self, n: int) -> Iterator[_Request]:
        count = len(self.files)
        order = keyed_order(count, self.seed, n, ORDER) if self.shuffle else np.arange(count)
        for start in range(0, count - (count % self.batch_size if self.drop_last else 0), self.batch_size):
            batch = order[start : start + self.batch_size]
            low, high = self._share(len(batch))
            if high > low:
                indices = batch[low:high]
                yield _Request(n, indices, self.files.labels[indices], [self.files.paths[k] for k in indices])

    def _share(self, count: int) -> tuple[int, int]:
        return self.rank * count // self.world, (self.rank + 1) * count // self.world

    def _check_shares(self) -> None:
        count, rest = len(self.files), len(self.files) % self.batch_size
        if self.rank >= self.world:
            raise ValueError(f"rank must be in [0, {self.world - 1}], got {self.rank}")
        if self.batch_size % self.world:
            raise ValueError(f"batch_size must be a multiple of world, {self.world}, got {self.batch_size}")
        if not count or (self.drop_last and count < self.batch_size):
            raise ValueError(f"files must fill a batch, got {count}; without drop_last one is enough")
        if self.shuffle and not self.drop_last and 0 < rest < self.world:
            raise ValueError(
                f"the last batch has {rest} images for {self.world} processes, which would train unequal numbers of steps; "
                "pass drop_last=True"
            )


class _Request(NamedTuple):
    """Sent to a worker: one batch of one process."""

    epoch: int
    indices: NDArray[np.int64]
    labels: NDArray[np.int64]
    paths: list[str]


class _Decoded(NamedTuple):
    """Sent back: images uint8 ``[B, H, W, 3]``, and the errors of some, which if raised would arrive as mere text."""

    images: Tensor
    labels: Tensor
    indices: Tensor
    faults: list[Exception]


class _Sampler:
    """The requests of the next epoch, for torch's DataLoader."""

    def __init__(self) -> None:
        self.requests: Iterator[_Request] = iter(())

    def __iter__(self) -> Iterator[_Request]:
        return self.requests


class _Decoder(TorchDataset[_Decoded]):
    def __init__(self, framing: Framing, seed: int) -> None:
        self.framing, self.seed = framing, seed

    def __getitem__(self, request: _Request) -> _Decoded:
        images = np.empty((len(request.paths), *self.framing.frame_size, 3), np.uint8)
        labels, indices = torch.from_numpy(request.labels), torch.from_numpy(request.indices)
        batch = _Decoded(torch.from_numpy(images), labels, indices, [])
        for k, path in enumerate(request.paths):
            try:
                key = (self.seed, request.epoch, FRAMING, int(request.indices[k]))
                images[k] = framed(path, self.framing, key)
            except DataError as error:
                batch.faults.append(error)
            except OSError as error:
                return batch._replace(faults=[error])
        return batch


def _end_with_parent(worker: int) -> None:
    """End this worker if the main process is killed: torch watches the parent's id, which under forkserver is the server's."""
    parent = multiprocessing.parent_process()
    if parent is None:  # it is the main process
        return

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _as_it_is(decoded: Any) -> Any:
    return decoded


def _check_word(name: str, value: int) -> int:
    if check_integer(name, value, at_least=0) >= 2**64:
        raise ValueError(f"{name} must be in [0, 2**64), got {value}")
    return value


MAX_DECODED_BYTES = 2**30
"""Bytes of decoded images that are kept in memory; more stay in their files"""
_decoded: weakref.WeakKeyDictionary[ImageFiles, tuple[Size, NDArray[np.uint8]]] = weakref.WeakKeyDictionary()
"""All runs on the same files share the images."""


def common_size(dataset: Dataset, *, at_most: int) -> Size | None:
    """Return the size of all image files, if it is the same; only headers are read.

    Args:
        dataset: A data set of image files.
        at_most: The longest side that is accepted.

    Returns:
        Height and width, or None if sizes differ, are too large, or a file cannot be read: the loader names it.

    >>> files = ImageFiles(("no-such-file.png",), np.array([0]))
    >>> common_size(Dataset("none", files, None, ("a", "b")), at_most=64) is None
    True
    """
    found: Size | None = None
    for split in dataset.splits.values():
        for path in split.paths if not split.in_memory else ():
            size = _size_in_header(path)
            if size is None or max(size) > at_most or size != (found or size):
                return None
            found = size
    return found


def in_memory_at(dataset: Dataset, size: Size, *, keep_rgb: bool = False) -> Dataset:
    """Return the data set with its image files decoded and resized, unless they would take too much memory.

    Args:
        dataset: A data set of image files.
        size: Height and width of the result.
        keep_rgb: Keep three channels where every image is grey.

    Returns:
        The data set with arrays, or the same data set.

    >>> import tempfile, PIL.Image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     PIL.Image.new("L", (40, 20)).save(f"{folder}/a.png")
    ...     files = ImageFiles((f"{folder}/a.png",), np.array([1]))
    ...     in_memory_at(Dataset("one", files, None, ("a", "b")), (8, 8)).train.inputs.shape
    (1, 8, 8, 1)
    """
    splits = {name: split for name, split in dataset.splits.items() if not split.in_memory}
    if sum(len(split) for split in splits.values()) * size[0] * size[1] * 3 > MAX_DECODED_BYTES:
        return dataset
    images = {name: _pixels(split, size) for name, split in splits.items()}
    if not keep_rgb and all((pixels[..., :1] == pixels[..., 1:]).all() for pixels in images.values()):
        images = {name: pixels[..., :1].copy() for name, pixels in images.items()}
    ready = {name: Split(images[name], split.labels, split.paths) for name, split in splits.items()}
    return dataset.with_splits({**dataset.splits, **ready})


def _pixels(files: ImageFiles, size: Size) -> NDArray[np.uint8]:
    known = _decoded.get(files)
    if known is not None and known[0] == size:
        return known[1]
    pixels = np.empty((len(files), *size, 3), np.uint8)
    faults = []
    for k, path in enumerate(files.paths):
        try:
            pixels[k] = framed(path, ResizeCrop(*size), ())
        except DataError as error:
            faults.append(error)
    if faults:
        raise damaged(faults, len(files))
    _decoded[files] = size, pixels
    return pixels


def framed(path: str, framing: Framing, key: tuple[Word, ...]) -> NDArray[np.uint8]:
    """The pixels of an image file, resized; a DataError names the file."""
    image = decode(path)
    try:
        return np.asarray(framing.frame(image, key))
    except ValueError as error:
        raise DataError(f"{path}: {error}") from error


def _size_in_header(path: str) -> Size | None:
    import PIL.Image

    try:
        with open_file(path) as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = PIL.Image.open(file, formats=IMAGE_FORMATS)
            return image.height, image.width
    except Exception:  # whatever is wrong, the decoder says it with the file's name
        return None
