"""Load weights from a file: tensors by name, all checked against the model before any is copied. No code in a file is run."""

import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from noiseproof.models.base import HEAD, Classifier

__all__ = ["load_weights"]

M = TypeVar("M", bound=Classifier)


def load_weights(model: M, path: str | os.PathLike[str], *, skip_head: bool = False) -> M:
    """Copy the state dict saved in a ``.safetensors``, ``.pt`` or ``.pth`` file into the model, and return the model.

    Every tensor of the model must be in the file with the same shape, and the file must hold no others; if not, the error
    names the first that differs and the model is left as it was. ``skip_head`` keeps the model's own last layer, whatever
    the file has there: weights for 1000 classes load into a model for 14. Values are cast to the model's dtype.

    BatchNorm's ``num_batches_tracked`` may be absent, as it is in files from before that counter existed; it is then 0.

    Pickled objects are refused, since loading one can run code: ``.pt`` files are read with ``weights_only=True``.
    """
    file = Path(path)
    given = _read(file)
    wanted = model.state_dict()
    if skip_head:
        given = {key: value for key, value in given.items() if not key.startswith(f"{HEAD}.")}
        given.update((key, value) for key, value in wanted.items() if key.startswith(f"{HEAD}."))
    for key, value in wanted.items():
        if key not in given and key.endswith(".num_batches_tracked"):
            given[key] = torch.zeros_like(value)
    _check(file, wanted, given)
    model.load_state_dict(given)
    return model


def _check(file: Path, wanted: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
    for key, value in wanted.items():
        if key not in given:
            raise ValueError(f"{file} has no {key!r}, which the model needs; it starts with {next(iter(given), None)!r}")
        if given[key].shape != value.shape:
            raise ValueError(
                f"{file} has {key!r} of shape {list(given[key].shape)}, the model needs {list(value.shape)}"
                + ("; skip_head=True keeps the model's own" if key.startswith(f"{HEAD}.") else "")
            )
    for key in given:
        if key not in wanted:
            raise ValueError(f"{file} has {key!r}, which the model does not")


def _read(file: Path) -> dict[str, Tensor]:
    suffix = file.suffix.lower()
    if suffix not in {".safetensors", ".pt", ".pth"}:
        raise ValueError(f"weights must be a .safetensors, .pt or .pth file, got {file}")
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {file}")
    return _read_safetensors(file) if suffix == ".safetensors" else _read_torch(file)


def _read_safetensors(file: Path) -> dict[str, Tensor]:
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ImportError as error:
        raise ImportError(f"safetensors is needed to read {file}: pip install '.[lab]' in noiseproof's repository") from error
    try:
        return load_file(file)
    except SafetensorError as error:
        raise ValueError(f"{file} is damaged or no safetensors file: {error}") from error


def _read_torch(file: Path) -> dict[str, Tensor]:
    try:
        content = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        # Not torch's message: it advises weights_only=False, which would run the code in the file.
        raise ValueError(
            f"{file} is damaged or holds more than tensors; objects are refused, loading them can run code"
        ) from error
    except (OSError, MemoryError):
        raise
    except Exception as error:
        # A damaged file makes the unpickler raise whatever its bytes lead to: struct.error, KeyError, AssertionError, ...
        raise ValueError(f"{file} is damaged or no state dict: {str(error).partition(chr(10))[0]}") from error
    if not isinstance(content, Mapping):
        raise ValueError(f"{file} must hold a state dict, a mapping of names to tensors; it holds a {type(content).__name__}")
    for key, value in content.items():
        if not isinstance(key, str) or not isinstance(value, Tensor):
            raise ValueError(f"{file} must hold names and tensors only; its {key!r} is a {type(value).__name__}")
    return dict(content)
