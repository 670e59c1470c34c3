"""Data sets in memory or in image files, their formats, and augmentation of whole batches on the device.

examples         Split (inputs in memory) and ImageFiles (paths), the examples of one split
dataset          Dataset, the value all readers return; arrays, .npz files, scikit-learn's digits
images           folders of classes; decoding one file
lists            lists of "path label" lines (list_lines)
tables           CSV files of features with a column of labels
unlabelled       examples to predict, with or without labels
decoded          small image files as images in memory
idx              MNIST-style idx files
registry         data sets and augmentations that have a name: the package's own and those of plug-ins
opening          where data sets are kept; open_dataset, by name or by path; fetch
framing          Squash, Centre, Cover, RandomPart       resize a decoded image to a fixed size
loader           ImageLoader, batches of image files     decoded in worker processes, deterministic
image_operation  Operation, the interface of augmentations: draw parameters, then apply them
indexing         RandomCrop, HorizontalFlip, Rotation    only move pixels; a chain of them is one gather
resizing         RandomResizedCrop, ResizeCenterCrop     resample, bilinear
color            ColorJitter                             on values
augment          Augment, which composes and normalises
"""

from noiseproof.data.augment import (
    IMAGENET,
    Augment,
    Normalize,
    evaluation,
)
from noiseproof.data.color import ColorJitter
from noiseproof.data.dataset import Dataset, check_classes, from_arrays, load_digits, load_npz
from noiseproof.data.decoded import common_size, in_memory_at
from noiseproof.data.examples import DataError, Examples, ImageFiles, Split, held_out, in_memory
from noiseproof.data.framing import Centre, Cover, Framing, RandomPart, Squash
from noiseproof.data.idx import load_idx, read_idx
from noiseproof.data.image_operation import Operation
from noiseproof.data.images import load_image_folder, read_image
from noiseproof.data.indexing import HorizontalFlip, RandomCrop, Rotation
from noiseproof.data.lists import load_list
from noiseproof.data.loader import Batch, ImageLoader
from noiseproof.data.opening import data_root, fetch, open_dataset
from noiseproof.data.registry import NamedDataset, Pipeline, register_augmentation, register_dataset
from noiseproof.data.resizing import RandomResizedCrop, ResizeCenterCrop
from noiseproof.data.tables import load_table
from noiseproof.data.unlabelled import Unlabelled, open_unlabelled

__all__ = [
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
    "NamedDataset",
    "Normalize",
    "Operation",
    "Pipeline",
    "RandomCrop",
    "RandomPart",
    "RandomResizedCrop",
    "ResizeCenterCrop",
    "Rotation",
    "Split",
    "Squash",
    "Unlabelled",
    "check_classes",
    "common_size",
    "data_root",
    "evaluation",
    "fetch",
    "from_arrays",
    "held_out",
    "in_memory",
    "in_memory_at",
    "load_digits",
    "load_idx",
    "load_image_folder",
    "load_list",
    "load_npz",
    "load_table",
    "open_dataset",
    "open_unlabelled",
    "read_idx",
    "read_image",
    "register_augmentation",
    "register_dataset",
]  # fmt: skip
