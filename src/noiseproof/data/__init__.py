"""Data sets in memory or in image files, their formats, and augmentation of whole batches on the device.

dataset      Split (inputs in memory), ImageFiles (paths) and Dataset, the value all readers return; arrays, .npz, digits
frames       read_frame: tables of mixed columns from files, data frames and Arrow
table        read_table: which column has the labels, which rows are tested on; read_labels: labels as class indices
columns      infer_columns: what each column is: number, category, boolean, date, text, image, embedding; its values
table_encoder  TableEncoder: columns as features; Table, rows and the encoder fitted to them (encoders: one column each)
features     Features: of tables, arrays and small images on one common scale, as learners read them
embeddings   embed: texts and images by a pretrained encoder, cached
lists        lists of "path label" lines
images       folders with one folder per class; image files, decoded within limits
opening      open_dataset, by name or path; open_unlabelled, examples to predict; write_cleaned, with other labels
registry     data sets that have a name: the package's own and those of plug-ins
describe     describe: sizes, classes and images of a data set, as 'noiseproof data show' prints them
loader       ImageLoader, batches of image files decoded in worker processes; small files decoded into memory
operations   Operation, the interface of augmentations; RandomCrop, HorizontalFlip; Resize, ResizeCrop and others
augment      Augment, which composes and normalises; ColorJitter; augmentations that have a name

The last three need torch, and are imported when a name of them is first used: tables are read without it.
"""

import importlib
from typing import TYPE_CHECKING

from noiseproof.data.columns import Column, find_label_copies, infer_columns, parse_kinds
from noiseproof.data.dataset import (
    Dataset,
    Examples,
    ImageFiles,
    Split,
    check_classes,
    from_arrays,
    held_out,
    in_memory,
    load_digits,
    load_npz,
)
from noiseproof.data.describe import DataSummary, describe
from noiseproof.data.embeddings import EmbeddingCache, PretrainedEncoder, embed, load_encoder, report_progress
from noiseproof.data.frames import read_frame
from noiseproof.data.images import load_image_folder, read_image
from noiseproof.data.lists import load_list
from noiseproof.data.opening import Unlabelled, data_root, embed_data, fetch, open_dataset, open_unlabelled
from noiseproof.data.registry import NamedDataset, register_dataset
from noiseproof.data.table import Labels, read_labels
from noiseproof.data.table_encoder import Table, TableEncoder
from noiseproof.io.files import DataError

__all__ = ["IMAGENET", "Augment", "ColorJitter", "DataError", "DataSummary", "Dataset", "Examples", "Framing"]
__all__ += ["HorizontalFlip", "ImageBatch", "ImageFiles", "ImageLoader", "NamedDataset", "Normalize", "Operation"]
__all__ += ["Pipeline", "RandomCrop", "RandomResizedCrop", "Resize", "ResizeCenterCrop", "ResizeCrop"]
__all__ += ["Split", "Unlabelled", "check_classes", "common_size", "data_root", "describe", "evaluation", "fetch"]
__all__ += ["from_arrays", "held_out", "in_memory", "in_memory_at", "load_digits", "load_image_folder"]
__all__ += ["load_list", "load_npz", "open_dataset", "open_unlabelled", "read_image"]
__all__ += ["Column", "EmbeddingCache", "Labels", "PretrainedEncoder", "register_augmentation", "register_dataset"]
__all__ += ["TableEncoder", "embed", "find_label_copies", "infer_columns", "load_encoder", "parse_kinds", "read_frame"]
__all__ += ["Table", "embed_data", "read_labels", "report_progress"]

if TYPE_CHECKING:
    from noiseproof.data.augment import IMAGENET, Augment, ColorJitter, Normalize, Pipeline, evaluation, register_augmentation
    from noiseproof.data.loader import ImageBatch, ImageLoader, common_size, in_memory_at
    from noiseproof.data.operations import (
        Framing,
        HorizontalFlip,
        Operation,
        RandomCrop,
        RandomResizedCrop,
        Resize,
        ResizeCenterCrop,
        ResizeCrop,
    )
else:
    _CROPS = ("ResizeCenterCrop", "ResizeCrop")
    _NAMES = {
        "augment": ("IMAGENET", "Augment", "ColorJitter", "Normalize", "Pipeline", "evaluation", "register_augmentation"),
        "loader": ("ImageBatch", "ImageLoader", "common_size", "in_memory_at"),
        "operations": ("Framing", "HorizontalFlip", "Operation", "RandomCrop", "RandomResizedCrop", "Resize", *_CROPS),
    }

    def __getattr__(name):
        """What needs torch is imported when it is first used."""
        for module, names in _NAMES.items():
            if name in names:
                return globals().setdefault(name, getattr(importlib.import_module(f"noiseproof.data.{module}"), name))
        raise AttributeError(f"module 'noiseproof.data' has no attribute {name!r}")
