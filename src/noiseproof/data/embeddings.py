"""Embeddings of texts and images by a pretrained encoder, in batches, cached by content so that nothing is computed twice.

The cache is one SQLite file, ``$NOISEPROOF_CACHE`` or ``~/.cache/noiseproof/embeddings.sqlite``. A batch is stored whole or not
at all, several processes may use it, and an interrupted command resumes after its last batch.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from noiseproof.io.files import DataError
from noiseproof.io.text import excerpt, read_json
from noiseproof.plugins import named_object

Modality = Literal["text", "image"]
Input: TypeAlias = str | os.PathLike[str] | NDArray[np.uint8]
"""A text, the path of an image, or an image ``[H, W, C]``"""
OnProgress: TypeAlias = Callable[[int, int], object]
"""Called with the number of inputs done and of all"""
BATCH_ROWS = 64
LOOKUP_ROWS = 500
"""Keys of one query; SQLite takes 999 parameters at the least"""
MODEL_FILES = ("*.safetensors", "*.json", "*.txt", "*.model")
"""What is read of a pretrained model: weights that are numbers alone, and descriptions"""
EXTRAS: dict[Modality, str] = {"text": "pip install '.[text]'", "image": "pip install '.[vision]'"}
IMPORTED = {"modules.json": ("type", "sentence_transformers."), "config.json": ("activation_function", "torch.nn.")}
"""What sentence-transformers imports by name from the description of a model, and where that must come from"""
MAX_LENGTH_CHARACTERS = 20_000
"""Of a text: encoders read a few hundred words, and a file must not decide how long a tokeniser works"""


@dataclass(frozen=True)
class PretrainedEncoder:
    """A function from a batch of texts or image paths to vectors, and what its vectors are cached under.

    Args:
        identity: Text that changes with the encoder's weights or code.
        encode: From a list of texts or paths to an array ``[N, D]``.

    >>> PretrainedEncoder("lengths", lambda texts: np.array([[len(text)] for text in texts])).encode(["abc"])
    array([[3]])
    """

    identity: str
    encode: Callable[[list[Any]], Any]


_progress: ContextVar[OnProgress | None] = ContextVar("_progress", default=None)
_asked: dict[tuple[str, Modality], PretrainedEncoder] = {}
"""What was loaded in this process, by name"""


def report_progress(on_progress: OnProgress | None) -> None:
    """Report how far embeddings are that other functions make, :func:`noiseproof.data.open_dataset` say.

    Args:
        on_progress: Called with the number of inputs done and of all; None reports nothing any more.

    >>> report_progress(lambda done, of: print(f"{done} of {of}"))
    >>> report_progress(None)
    """
    _progress.set(on_progress)


def cache_folder() -> Path:
    """Where embeddings and the images of data sets in memory are kept: beside $NOISEPROOF_CACHE, or in ~/.cache/noiseproof."""
    given = os.environ.get("NOISEPROOF_CACHE")
    return Path(given).expanduser().parent if given else Path.home() / ".cache" / "noiseproof"


class EmbeddingCache:
    """Vectors by encoder and content.

    Args:
        path: The SQLite file; by default ``$NOISEPROOF_CACHE`` or one below ``~/.cache``.

    >>> import tempfile
    >>> cache = EmbeddingCache(Path(tempfile.mkdtemp()) / "cache.sqlite")
    >>> cache.put([b"key"], np.ones((1, 2), np.float32))
    >>> cache.get([b"key", b"other"])
    {b'key': array([1., 1.], dtype=float32)}
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = Path(path or os.environ.get("NOISEPROOF_CACHE") or cache_folder() / "embeddings.sqlite").expanduser()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._open() as database:
            database.execute("CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB NOT NULL) WITHOUT ROWID")

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            with contextlib.closing(sqlite3.connect(self.path, timeout=60)) as database, database:
                yield database
        except sqlite3.DatabaseError as error:
            raise DataError(
                f"{self.path}: the cache of embeddings cannot be used ({error}); delete it to begin a new one"
            ) from error

    def get(self, keys: Sequence[bytes]) -> dict[bytes, NDArray[np.float32]]:
        """The vectors that are there.

        Args:
            keys: What to look for.

        Returns:
            Those found, by key.
        """
        found: dict[bytes, NDArray[np.float32]] = {}
        with self._open() as database:
            for start in range(0, len(keys), LOOKUP_ROWS):
                part = keys[start : start + LOOKUP_ROWS]
                marks = ",".join("?" * len(part))
                rows = database.execute(f"SELECT key, vector FROM vectors WHERE key IN ({marks})", part)
                found |= {bytes(key): np.frombuffer(vector, np.float32) for key, vector in rows}
        return found

    def put(self, keys: Sequence[bytes], vectors: NDArray[np.float32]) -> None:
        """Store vectors, all or none.

        Args:
            keys: One for each vector.
            vectors: ``[N, D]``.
        """
        rows = [(key, np.ascontiguousarray(vector, np.float32).tobytes()) for key, vector in zip(keys, vectors, strict=True)]
        with self._open() as database:
            database.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows)


def embed(
    inputs: Sequence[Input],
    encoder: PretrainedEncoder,
    modality: Modality,
    *,
    cache: EmbeddingCache | None = None,
    batch: int = BATCH_ROWS,
    on_progress: OnProgress | None = None,
) -> NDArray[np.float32]:
    """Embeddings of texts or image files.

    Args:
        inputs: Texts, the paths of images, or images ``[H, W, C]`` in uint8.
        encoder: As :func:`load_encoder` returns it.
        modality: ``"text"`` or ``"image"``; an image is cached by the content of its file.
        cache: Where vectors are kept; the default cache if None.
        batch: Inputs that are encoded at a time.
        on_progress: Called with the number of inputs done and of all.

    Returns:
        Vectors ``[N, D]``, in the order of the inputs.

    Raises:
        DataError: If the encoder returns something else than a finite vector for each input.

    >>> import tempfile
    >>> cache = EmbeddingCache(Path(tempfile.mkdtemp()) / "cache.sqlite")
    >>> lengths = PretrainedEncoder("lengths", lambda texts: np.array([[len(text)] for text in texts]))
    >>> embed(["abc", "a"], lengths, "text", cache=cache).tolist()
    [[3.0], [1.0]]
    """
    cache, on_progress = cache or EmbeddingCache(), on_progress or _progress.get()
    keys = [_key(encoder.identity, one, modality) for one in inputs]
    first = {key: k for k, key in reversed(list(enumerate(keys)))}
    vectors = cache.get(list(first))
    todo = [key for key in dict.fromkeys(keys) if key not in vectors]
    done = len(keys) - sum(key not in vectors for key in keys)
    for start in range(0, len(todo), batch):
        part = todo[start : start + batch]
        try:
            found = _checked(encoder.encode([_prepared(inputs[first[key]], modality) for key in part]), len(part))
        except DataError:
            if modality == "image":
                _check_files([inputs[first[key]] for key in todo[start:]], len(keys))
            raise
        cache.put(part, found)
        vectors |= dict(zip(part, found, strict=True))
        if on_progress is not None:
            on_progress(min(len(keys), done + start + len(part)), len(keys))
    if len({len(vector) for vector in vectors.values()}) > 1:
        raise DataError("the encoder returned vectors of different lengths")
    return np.stack([vectors[key] for key in keys]) if keys else np.empty((0, 0), np.float32)


def _check_files(images: Sequence[Input], count: int) -> None:
    """An error that names damaged images and counts all of those that are left."""
    from noiseproof.data.images import damaged, read_image

    faults = []
    for image in images:
        try:
            if not isinstance(image, np.ndarray):
                read_image(os.fspath(image))
        except DataError as error:
            faults.append(error)
    if faults:
        raise damaged(faults, count)


def _key(identity: str, one: Input, modality: Modality) -> bytes:
    if isinstance(one, np.ndarray):
        content = f"{one.shape} {one.dtype}\0".encode() + one.tobytes()
    elif modality == "image":
        content = _bytes_of(Path(one))
    else:
        content = os.fspath(one).encode("utf-8", "surrogatepass")
    return hashlib.sha256(f"{identity}\0{modality}\0".encode() + hashlib.sha256(content).digest()).digest()


def _bytes_of(path: Path) -> bytes:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: {'no regular file' if path.exists() else 'no such file'}")
    return path.read_bytes()


def _prepared(one: Input, modality: Modality) -> Any:
    """A text as long as encoders read it, and an image's path as a text."""
    if isinstance(one, np.ndarray):
        return one
    return os.fspath(one) if modality == "image" else os.fspath(one)[:MAX_LENGTH_CHARACTERS]


def _checked(found: Any, count: int) -> NDArray[np.float32]:
    vectors = np.asarray(found.detach().cpu().numpy() if hasattr(found, "detach") else found, np.float32)
    if vectors.ndim != 2 or len(vectors) != count:
        raise DataError(f"the encoder must return a vector for each of {count} inputs, got shape {vectors.shape}")
    if not np.isfinite(vectors).all():
        raise DataError("the encoder returned numbers that are not finite")
    return vectors


def load_encoder(name: str, modality: Modality) -> PretrainedEncoder:
    """A pretrained encoder by name, path or function.

    Args:
        name: ``package.module:function`` for a function of your own, from a list of texts or paths to vectors; otherwise the
            name or folder of a sentence-transformers model (texts) or a transformers vision model (images).
        modality: ``"text"`` or ``"image"``.

    Returns:
        The encoder, on the GPU if there is one.

    Raises:
        ValueError: If the function or model cannot be found.
        ModuleNotFoundError: If the extra that it needs is not installed; the message names it.

    >>> load_encoder("string:capwords", "text").identity.startswith("string:capwords")
    True
    """
    if is_function(name):
        found = _own_encoder(name)
    else:
        folder = _model_folder(name, modality)
        identity = f"{modality} {_digest(folder)}"
        known = _asked.get((name, modality))
        if known is not None and known.identity == identity:
            return known
        found = PretrainedEncoder(identity, _load(name, folder, modality))
    _asked[name, modality] = found
    return found


def stored_encoder(name: str, modality: Modality, identity: str) -> PretrainedEncoder:
    """The encoder that a fitted model names, if it is still the same one.

    A function is called only where it was asked for in this process, by :func:`load_encoder` or ``--encoder``: a file from
    elsewhere chooses no code to run.

    Args:
        name: As in :func:`load_encoder`.
        modality: Likewise.
        identity: That of training.

    Returns:
        The encoder.

    Raises:
        DataError: If it is a function that was not asked for, or a model with other weights.
    """
    if is_function(name):
        if (name, modality) not in _asked:
            allow = f"--encoder {name}, or load_encoder({name!r}, {modality!r}) in Python, allows it"
            raise DataError(f"the model reads {modality}s by the function {name}, which no file may call: {allow}")
        return _asked[name, modality]
    found = load_encoder(name, modality)
    if found.identity != identity:
        raise DataError(f"the encoder {name} has other weights than in training; fit again, or restore it")
    return found


def is_function(name: str) -> bool:
    """Whether an encoder's name is ``module:function`` rather than that of a model or its folder.

    >>> is_function("my_encoders:embed"), is_function("sentence-transformers/all-MiniLM-L6-v2")
    (True, False)
    """
    return ":" in name and not os.path.exists(name)


def _own_encoder(name: str) -> PretrainedEncoder:
    import inspect

    encode = named_object(name, "encoder", "an encoder is the name or folder of a model, or module:function")
    if not callable(encode):
        raise ValueError(f"encoder {name!r} is no function")
    module = inspect.getmodule(encode) or importlib.import_module(name.partition(":")[0])
    try:
        code = inspect.getsource(module)
    except (OSError, TypeError):
        code = repr(encode)
    return PretrainedEncoder(f"{name} {hashlib.sha256(code.encode()).hexdigest()}", encode)


def _needed(package: str, modality: Modality) -> Any:
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        way = f"{EXTRAS[modality]} in noiseproof's repository"
        raise ModuleNotFoundError(f"this encoder needs {package}: {way}", name=package) from error


def _model_folder(name: str, modality: Modality) -> Path:
    """The folder of a model, downloaded if it is not one; of what it describes nothing but the libraries' own is imported."""
    folder = Path(name).expanduser()
    if not folder.is_dir():
        hub = _needed("huggingface_hub", modality)
        owned = name if "/" in name or modality == "image" else f"sentence-transformers/{name}"
        try:
            folder = Path(hub.snapshot_download(owned, allow_patterns=list(MODEL_FILES)))
        except (OSError, ValueError) as error:
            raise ValueError(f"--encoder {name}: no such folder, and no such model here ({str(error)[:200]})") from error
    for path in sorted(path for file in IMPORTED for path in folder.rglob(file)):
        key, start = IMPORTED[path.name]
        found = read_json(path)
        for part in found if isinstance(found, list) else [found]:
            imported = str(part.get(key, "")) if isinstance(part, dict) else ""
            if "." in imported and not imported.startswith(start):
                raise ValueError(f"--encoder {name}: {path} names {excerpt(imported)!r}, and only {start}* is imported")
    return folder


def _load(name: str, folder: Path, modality: Modality) -> Callable[[list[Any]], Any]:
    bars = _needed("transformers", modality).utils.logging
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        return _text_encoder(folder) if modality == "text" else _image_encoder(folder)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        what = "sentence-transformers" if modality == "text" else "transformers vision"
        raise ValueError(f"--encoder {name}: no {what} model ({excerpt(error, 200)})") from error
    finally:
        if shown:
            bars.enable_progress_bar()


def _text_encoder(folder: Path) -> Callable[[list[Any]], Any]:
    library = _needed("sentence_transformers", "text")
    model = library.SentenceTransformer(str(folder), model_kwargs={"use_safetensors": True})
    return lambda texts: model.encode(texts, show_progress_bar=False, convert_to_numpy=True)


def _image_encoder(folder: Path) -> Callable[[list[Any]], Any]:
    transformers = _needed("transformers", "image")
    import torch

    from noiseproof.data.images import as_pixels

    processor = transformers.AutoImageProcessor.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder, use_safetensors=True).eval()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model.to(device)

    def encode(images: list[Any]) -> NDArray[Any]:
        batch = processor(images=[as_pixels(one) for one in images], return_tensors="pt").to(device)
        with torch.no_grad():
            output = model.get_image_features(**batch) if hasattr(model, "get_image_features") else model(**batch)
        pooled = output if isinstance(output, torch.Tensor) else output.get("pooler_output")
        if pooled is None:
            pooled = output.last_hidden_state.mean(1)
        return np.asarray(pooled.flatten(1).float().cpu().numpy())

    return encode


def _digest(folder: Path) -> str:
    """What tells one version of a model from another: the content of the files that are read."""
    digest = hashlib.sha256()
    for path in sorted({path for pattern in MODEL_FILES for path in folder.rglob(pattern) if path.is_file()}):
        digest.update(path.relative_to(folder).as_posix().encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
