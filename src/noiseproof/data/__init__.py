"""Data sets in memory or in image files, their official formats, and augmentation of whole batches on the device.

examples         Split (inputs in memory) and ImageFiles (paths), the examples of one split
dataset          Dataset, the value all readers return; arrays, .npz files, scikit-learn's digits
images           folders of classes; decoding one file
lists            lists of "path label" lines (list_lines), WebVision, Clothing1M
tables           CSV files of features with a column of labels
unlabelled       examples to predict, with or without labels
decoded          small image files as images in memory
official         CIFAR-10 and CIFAR-100 (binary and Python), MNIST-style idx files
known            the data sets that have a name: how they are recognised, read and fetched
places           where data sets are kept; open_dataset, by name or by path
fetch            downloads, resumed (download), checked and unpacked safely (archive)
framing          Squash, Centre, Cover, RandomPart       resize a decoded image to a fixed size
loader           ImageLoader, batches of image files     decoded in worker processes, deterministic
image_operation  Operation, the interface of augmentations: draw parameters, then apply them
indexing         RandomCrop, HorizontalFlip, Rotation    only move pixels; a chain of them is one gather
resizing         RandomResizedCrop, ResizeCenterCrop     resample, bilinear
color            ColorJitter                             on values
augment          Augment, which composes and normalises, and the experiments' chains
"""

from noiseproof.data.augment import (
    CIFAR10,
    CIFAR100,
    CLOTHING1M,
    IMAGENET,
    Augment,
    Normalize,
    cifar10_augment,
    cifar100_augment,
    clothing1m_augment,
    evaluation,
    webvision_augment,
)
from noiseproof.data.color import ColorJitter
from noiseproof.data.dataset import Dataset, check_classes, from_arrays, load_digits, load_npz
from noiseproof.data.decoded import common_size, in_memory_at
from noiseproof.data.examples import DataError, Examples, ImageFiles, Split, held_out, in_memory
from noiseproof.data.fetch import fetch
from noiseproof.data.framing import Centre, Cover, Framing, RandomPart, Squash
from noiseproof.data.image_operation import Operation
from noiseproof.data.images import load_image_folder, read_image
from noiseproof.data.indexing import HorizontalFlip, RandomCrop, Rotation
from noiseproof.data.lists import load_clothing1m, load_list, load_webvision
from noiseproof.data.loader import Batch, ImageLoader
from noiseproof.data.official import load_cifar10, load_cifar100, load_idx, read_idx
from noiseproof.data.places import data_root, open_dataset
from noiseproof.data.resizing import RandomResizedCrop, ResizeCenterCrop
from noiseproof.data.tables import load_table
from noiseproof.data.unlabelled import Unlabelled, open_unlabelled

__all__ = [
    "CIFAR10",
    "CIFAR100",
    "CLOTHING1M",
    "IMAGENET",
    "Augment",
    "Batch",
    "Centre",
    "ColorJitter",
    "Cover",
    "DataError",
    "Dataset",
    "Examples",
    "Framing",
    "HorizontalFlip",
    "ImageFiles",
    "ImageLoader",
    "Normalize",
    "Operation",
    "RandomCrop",
    "RandomPart",
    "RandomResizedCrop",
    "ResizeCenterCrop",
    "Rotation",
    "Split",
    "Squash",
    "Unlabelled",
    "check_classes",
    "cifar10_augment",
    "cifar100_augment",
    "clothing1m_augment",
    "common_size",
    "data_root",
    "evaluation",
    "fetch",
    "from_arrays",
    "held_out",
    "in_memory",
    "in_memory_at",
    "load_cifar10",
    "load_cifar100",
    "load_clothing1m",
    "load_digits",
    "load_idx",
    "load_image_folder",
    "load_list",
    "load_npz",
    "load_table",
    "load_webvision",
    "open_dataset",
    "open_unlabelled",
    "read_idx",
    "read_image",
    "webvision_augment",
]  # fmt: skip
