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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from noiseproof.data.dataset import DataError

Modality = Literal["text", "image"]
BATCH_ROWS = 64
LOOKUP_ROWS = 500
"""Keys of one query; SQLite takes 999 parameters at the least"""
HASHED_SUFFIXES = (".safetensors", ".bin", ".json", ".txt", ".model", ".py")
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
    encode: Callable[[list[str]], NDArray[Any]]


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
        default = os.environ.get("NOISEPROOF_CACHE") or Path.home() / ".cache" / "noiseproof" / "embeddings.sqlite"
        self.path = Path(path or default).expanduser()
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
    inputs: Sequence[str | os.PathLike[str]],
    encoder: PretrainedEncoder,
    modality: Modality,
    *,
    cache: EmbeddingCache | None = None,
    batch: int = BATCH_ROWS,
    on_progress: Callable[[int, int], None] | None = None,
) -> NDArray[np.float32]:
    """Embeddings of texts or image files.

    Args:
        inputs: Texts, or the paths of images.
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
    cache = cache or EmbeddingCache()
    texts = [os.fspath(one) for one in inputs]
    keys = [_key(encoder.identity, text, modality) for text in texts]
    vectors = cache.get(list(dict.fromkeys(keys)))
    todo = [key for key in dict.fromkeys(keys) if key not in vectors]
    first = {key: texts[k] for k, key in reversed(list(enumerate(keys)))}
    done = len(keys) - sum(key not in vectors for key in keys)
    for start in range(0, len(todo), batch):
        part = todo[start : start + batch]
        found = _checked(encoder.encode([first[key][:MAX_LENGTH_CHARACTERS] for key in part]), len(part))
        cache.put(part, found)
        vectors |= dict(zip(part, found, strict=True))
        if on_progress is not None:
            on_progress(min(len(keys), done + start + len(part)), len(keys))
    if len({len(vector) for vector in vectors.values()}) > 1:
        raise DataError("the encoder returned vectors of different lengths")
    return np.stack([vectors[key] for key in keys]) if keys else np.empty((0, 0), np.float32)


def _key(identity: str, text: str, modality: Modality) -> bytes:
    content = Path(text).read_bytes() if modality == "image" else text.encode("utf-8", "surrogatepass")
    return hashlib.sha256(f"{identity}\0{modality}\0".encode() + hashlib.sha256(content).digest()).digest()


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
    module, colon, function = name.partition(":")
    if colon and not os.path.exists(name):
        return _own_encoder(module, function)
    return _text_encoder(name) if modality == "text" else _image_encoder(name)


def _own_encoder(module: str, function: str) -> PretrainedEncoder:
    import inspect

    try:
        found = importlib.import_module(module)
        encode = getattr(found, function)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"--encoder {module}:{function}: {error}") from error
    code = hashlib.sha256(inspect.getsource(found).encode()).hexdigest()
    return PretrainedEncoder(f"{module}:{function} {code}", encode)


def _needed(package: str, way: str) -> Any:
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"this encoder needs {package}: {way} in noiseproof's repository", name=package) from error


def _text_encoder(name: str) -> PretrainedEncoder:
    library = _needed("sentence_transformers", "pip install '.[text]'")
    try:
        model = library.SentenceTransformer(name)
    except (OSError, ValueError) as error:
        raise ValueError(f"--encoder {name}: no such sentence-transformers model here ({str(error)[:200]})") from error

    def encode(texts: list[str]) -> NDArray[Any]:
        return np.asarray(model.encode(texts, show_progress_bar=False, convert_to_numpy=True))

    return PretrainedEncoder(f"sentence-transformers {_weights_of(name, model)}", encode)


def _image_encoder(name: str) -> PretrainedEncoder:
    transformers = _needed("transformers", "pip install '.[vision]'")
    import torch
    from PIL import Image

    try:
        processor = transformers.AutoImageProcessor.from_pretrained(name)
        model = transformers.AutoModel.from_pretrained(name).eval()
    except (OSError, ValueError) as error:
        raise ValueError(f"--encoder {name}: no such transformers vision model here ({str(error)[:200]})") from error
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model.to(device)

    def encode(paths: list[str]) -> NDArray[Any]:
        images = [Image.open(path).convert("RGB") for path in paths]
        with torch.no_grad():
            output = model(**processor(images=images, return_tensors="pt").to(device))
        pooled = output.get("pooler_output") if hasattr(output, "get") else None
        if pooled is None:
            pooled = output.last_hidden_state.mean(1)
        return np.asarray(pooled.flatten(1).float().cpu().numpy())

    return PretrainedEncoder(f"transformers {_weights_of(name, model)}", encode)


def _weights_of(name: str, model: Any) -> str:
    """What tells one version of a model from another: the content of its folder, or the commit that the hub says."""
    folder = Path(name).expanduser()
    if folder.is_dir():
        digest = hashlib.sha256()
        for path in sorted(path for path in folder.rglob("*") if path.suffix in HASHED_SUFFIXES and path.is_file()):
            digest.update(path.relative_to(folder).as_posix().encode())
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        return digest.hexdigest()
    inner = getattr(model, "config", None) or getattr(getattr(model[0], "auto_model", None), "config", None)
    return f"{name} {getattr(inner, '_commit_hash', None)}"
