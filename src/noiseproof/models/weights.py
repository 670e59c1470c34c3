"""Load weights from a file: tensors by name, all checked against the model before any is copied. No code in a file is run."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from noiseproof.io.limits import check_file
from noiseproof.io.text import excerpt
from noiseproof.models.base import HEAD
from noiseproof.plugins import load_plugins

M = TypeVar("M", bound=nn.Module)


def load_weights(model: M, path: str | os.PathLike[str], *, skip_head: bool = False) -> M:
    """Copy the weights in a file into a model.

    Every tensor of the model must be in the file with the same shape, and the file must hold no others; if not, the error
    names the first that differs and the model is left as it was. Floating-point values are cast to the model's dtype, counters
    must be integers. BatchNorm's ``num_batches_tracked`` may be absent, as it is in files from before that counter existed; it
    is then 0.

    Pickled objects are refused, since loading one can run code, and so are tensors that are not dense ones in the file: sparse,
    quantised, on the meta device. The file does not say how much memory to take.

    Args:
        model: The model, which is changed.
        path: A ``.safetensors``, ``.pt`` or ``.pth`` file with a state dict.
        skip_head: Keep the model's own last layer, whatever the file has there: weights for 1000 classes load into a
            model for 14.

    Returns:
        The same model.

    Raises:
        ValueError: If the file does not fit the model, or is damaged.
        FileNotFoundError: If there is no such file.

    >>> import tempfile
    >>> from noiseproof.models import MLP
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     torch.save(MLP(3, in_features=4).state_dict(), f"{folder}/weights.pt")
    ...     load_weights(MLP(2, in_features=4), f"{folder}/weights.pt", skip_head=True).classes
    2
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
            first = next(iter(given), None)
            starts = f"it starts with {first if first is None else repr(excerpt(first))}"
            raise ValueError(f"{file} has no {key!r}, which the model needs; {starts}")
        if given[key].shape != value.shape:
            raise ValueError(
                f"{file} has {key!r} of shape {list(given[key].shape)}, the model needs {list(value.shape)}"
                + ("; skip_head=True keeps the model's own" if key.startswith(f"{HEAD}.") else "")
            )
        _check_dtype(file, key, value, given[key])
    for key in given:
        if key not in wanted:
            raise ValueError(f"{file} has {excerpt(key)!r}, which the model does not")


def _check_dtype(file: Path, key: str, wanted: Tensor, given: Tensor) -> None:
    dtype, found = str(wanted.dtype).removeprefix("torch."), str(given.dtype).removeprefix("torch.")
    whole = given.dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
    if given.dtype != wanted.dtype and not (given.is_floating_point() if wanted.is_floating_point() else whole):
        raise ValueError(f"{file} has {key!r} in {found}, the model needs {dtype}; quantised weights are not read")
    if given.dtype != wanted.dtype and wanted.is_floating_point():
        finite = given.to(torch.float64).isfinite()
        if not given.to(wanted.dtype).isfinite()[finite].all():
            raise ValueError(f"{file} has {key!r} with values in {found} that overflow {dtype}, which the model needs")


def _read(file: Path) -> dict[str, Tensor]:
    suffix = file.suffix.lower()
    if suffix not in WEIGHTS_READERS:
        load_plugins()
    if suffix not in WEIGHTS_READERS:
        raise ValueError(f"weights must be a {' or '.join(WEIGHTS_READERS)} file, got {file}")
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {file}")
    return WEIGHTS_READERS[suffix](file)


def weights_header(path: str | os.PathLike[str]) -> tuple[dict[str, str], dict[str, list[int]]]:
    """The metadata of a ``.safetensors`` file and the shapes of its tensors by name; no tensor is read."""
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {file}")
    with _safetensors(file) as safetensors, safetensors.safe_open(file, "pt") as opened:
        names = opened.keys()
        return dict(opened.metadata() or {}), {name: list(opened.get_slice(name).get_shape()) for name in names}


def _read_safetensors(file: Path) -> dict[str, Tensor]:
    check_file(file)
    with _safetensors(file) as safetensors:
        return dict(safetensors.torch.load_file(file))


WEIGHTS_READERS: dict[str, Callable[[Path], dict[str, Tensor]]] = {".safetensors": _read_safetensors}
"""What reads a state dict, by a file's suffix; plug-ins add further kinds of files"""


@contextmanager
def _safetensors(file: Path) -> Iterator[Any]:
    """The library; its errors become one that names the file."""
    try:
        import safetensors.torch
    except ImportError as error:
        raise ImportError(f"safetensors is needed to read {file}: pip install '.[lab]' in noiseproof's repository") from error
    try:
        yield safetensors
    except (OSError, MemoryError):
        raise
    except Exception as error:  # its own kind for a damaged file, others for dtypes that this torch has not
        raise ValueError(f"{file} is damaged or no safetensors file: {excerpt(error, 200)}") from error
