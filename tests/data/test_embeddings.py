"""Embeddings are computed once for each content and encoder, whatever interrupts them."""

import sys
from pathlib import Path

import numpy as np
import pytest

from noiseproof.data.dataset import DataError
from noiseproof.data.embeddings import EmbeddingCache, PretrainedEncoder, embed, load_encoder


def counting(identity="a"):
    """An encoder whose vector is the length and the number of a's of a text, and what it was called with."""
    calls = []

    def encode(texts):
        calls.append(list(texts))
        return np.array([[len(text), text.count("a")] for text in texts], np.float32)

    return PretrainedEncoder(identity, encode), calls


@pytest.fixture
def cache(tmp_path):
    return EmbeddingCache(tmp_path / "cache.sqlite")


def test_each_text_is_encoded_once_and_kept_in_order(cache):
    encoder, calls = counting()
    texts = ["bb", "a", "bb", "aaa", "a"]
    assert embed(texts, encoder, "text", cache=cache, batch=2).tolist() == [[2, 0], [1, 1], [2, 0], [3, 3], [1, 1]]
    assert calls == [["bb", "a"], ["aaa"]]
    assert embed([*texts, "new"], encoder, "text", cache=cache)[-1].tolist() == [3, 0]
    assert calls[2:] == [["new"]]


def test_another_encoder_shares_nothing(cache):
    embed(["a"], counting("one")[0], "text", cache=cache)
    encoder, calls = counting("two")
    embed(["a"], encoder, "text", cache=cache)
    assert calls == [["a"]]


def test_an_interrupted_command_goes_on_after_its_last_batch(cache):
    encoder, calls = counting()

    def stopping(texts):
        if len(calls) == 2:
            raise KeyboardInterrupt
        return encoder.encode(texts)

    texts = [f"{k:04d}" for k in range(10)]
    with pytest.raises(KeyboardInterrupt):
        embed(texts, PretrainedEncoder("a", stopping), "text", cache=cache, batch=2)
    embed(texts, encoder, "text", cache=cache, batch=10)
    assert calls[2] == texts[4:]


def test_an_image_is_cached_by_what_its_file_contains(cache, tmp_path):
    path = tmp_path / "x.png"
    encoder = PretrainedEncoder("size", lambda paths: np.array([[Path(one).stat().st_size] for one in paths]))
    path.write_bytes(b"one")
    assert embed([path], encoder, "image", cache=cache).tolist() == [[3]]
    path.write_bytes(b"three")
    assert embed([path], encoder, "image", cache=cache).tolist() == [[5]]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (np.zeros(2), "a vector for each of 2 inputs"),
        (np.zeros((1, 3)), "a vector for each"),
        (np.full((2, 2), np.nan), "not finite"),
    ],
)
def test_what_is_no_embedding_is_refused_and_not_kept(returned, message, cache):
    with pytest.raises(DataError, match=message):
        embed(["a", "b"], PretrainedEncoder("bad", lambda texts: returned), "text", cache=cache)
    encoder, calls = counting("bad")
    embed(["a", "b"], encoder, "text", cache=cache)
    assert calls


def test_a_function_of_ones_own_is_an_encoder_and_changed_code_is_another(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_encoder.py").write_text(
        "def lengths(texts):\n    return [[len(t), 1.0] for t in texts]\n", encoding="utf-8"
    )
    first = load_encoder("my_encoder:lengths", "text")
    assert first.encode(["abc"]) == [[3, 1.0]]
    del sys.modules["my_encoder"]
    (tmp_path / "my_encoder.py").write_text(
        "def lengths(texts):\n    return [[len(t), 2.0000] for t in texts]\n", encoding="utf-8"
    )
    assert load_encoder("my_encoder:lengths", "text").identity != first.identity
    with pytest.raises(ValueError, match="my_encoder:nothing"):
        load_encoder("my_encoder:nothing", "text")


def test_a_cache_that_is_something_else_is_one_sentence(tmp_path):
    path = tmp_path / "cache.sqlite"
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(DataError, match=r"cannot be used .*; delete it to begin a new one"):
        EmbeddingCache(path)


def test_progress_is_reported_with_what_was_there(cache):
    encoder, _ = counting()
    embed(["a", "b"], encoder, "text", cache=cache)
    seen = []
    embed(["a", "b", "c", "d"], encoder, "text", cache=cache, batch=1, on_progress=lambda done, of: seen.append((done, of)))
    assert seen == [(3, 4), (4, 4)]
