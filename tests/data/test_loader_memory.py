"""Small image files in memory: their common size, grey as one channel, and what does not fit."""

import dataclasses

import numpy as np
import pytest
from PIL import Image

from noiseproof.data import DataError, Dataset, ImageFiles, common_size, in_memory_at, load_image_folder, loader


def folder(root, *images, test=()):
    """One class per image, in train and test folders."""
    for split, kept in (("train", images), ("test", test)):
        for k, pixels in enumerate(kept):
            (root / split / f"class{k}").mkdir(parents=True)
            Image.fromarray(np.asarray(pixels, np.uint8)).save(root / split / f"class{k}" / "a.png")
    return load_image_folder(root if test else root / "train")


def grey(height=28, width=28, value=7):
    return np.full((height, width), value)


def colour(height=28, width=28):
    return np.dstack([grey(height, width, value) for value in (1, 2, 3)])


def test_the_size_that_all_files_have_is_found_in_their_headers(tmp_path):
    assert common_size(folder(tmp_path / "same", grey(28, 20), grey(28, 20), test=[grey(28, 20)]), at_most=64) == (28, 20)
    assert common_size(folder(tmp_path / "two", grey(28, 20), grey(20, 28)), at_most=64) is None
    assert common_size(folder(tmp_path / "test", grey(), test=[grey(29, 28)]), at_most=64) is None
    assert common_size(folder(tmp_path / "large", grey(65, 20), grey(65, 20)), at_most=64) is None


def test_files_that_are_no_images_have_no_common_size(tmp_path):
    data = folder(tmp_path, grey(), grey())
    broken = tmp_path / "train" / "class1" / "a.png"
    broken.write_bytes(b"no image")
    assert common_size(data, at_most=64) is None
    with pytest.raises(DataError, match=r"class1/a\.png: not an image"):
        in_memory_at(data, (28, 28))


def test_grey_images_have_one_channel_and_others_three(tmp_path):
    data = folder(tmp_path / "grey", grey(value=5), np.dstack([grey(value=9)] * 3), test=[grey(value=6)])
    kept = in_memory_at(data, (28, 28))
    assert kept.train.inputs.shape == (2, 28, 28, 1)
    assert kept.test.inputs.shape == (1, 28, 28, 1)
    assert kept.train.inputs[:, 0, 0, 0].tolist() == [5, 9]
    assert (kept.train.kind, kept.train.channels, kept.train.sides) == ("images", 1, (28, 28))
    assert in_memory_at(data, (28, 28), keep_rgb=True).train.inputs.shape == (2, 28, 28, 3)
    # A single image in colour, be it one to test on, and all keep three channels.
    mixed = in_memory_at(folder(tmp_path / "mixed", grey(), grey(), test=[colour()]), (28, 28))
    assert mixed.train.inputs.shape == (2, 28, 28, 3)
    assert mixed.test.inputs[0, 0, 0].tolist() == [1, 2, 3]


def test_labels_paths_and_names_stay(tmp_path):
    data = folder(tmp_path, grey(), grey(), grey())
    kept = in_memory_at(data, (28, 28))
    assert (kept.classes, kept.sources, kept.name) == (data.classes, data.sources, data.name)
    assert kept.train.paths == data.train.paths
    assert kept.train.take([2]).with_labels([1]).paths == data.train.paths[2:]


def test_another_size_is_resized_to_cover_it_and_cut(tmp_path):
    """A wide image loses its left and right."""
    wide = np.repeat([[0] * 20 + [200] * 40 + [0] * 20], 40, axis=0)
    made = in_memory_at(folder(tmp_path, wide, wide), (20, 20)).train.inputs
    assert made.shape == (2, 20, 20, 1)
    assert made[:, :, 1:-1].min() == 200


def test_what_takes_too_much_memory_stays_in_files(tmp_path, monkeypatch):
    data = folder(tmp_path, grey(), grey())
    monkeypatch.setattr(loader, "MAX_DECODED_BYTES", 2 * 28 * 28 * 3)
    assert in_memory_at(data, (28, 28)).train.in_memory
    monkeypatch.setattr(loader, "MAX_DECODED_BYTES", 2 * 28 * 28 * 3 - 1)
    assert in_memory_at(data, (28, 28)) is data


def test_the_same_files_are_loader_once(tmp_path, monkeypatch):
    data = folder(tmp_path, grey(), colour())
    first = in_memory_at(data, (28, 28)).train.inputs
    monkeypatch.setattr(loader, "decode", None)
    assert np.array_equal(in_memory_at(data, (28, 28)).train.inputs, first)
    other = dataclasses.replace(data, train=ImageFiles(data.train.paths, data.train.labels))
    with pytest.raises(TypeError):
        in_memory_at(other, (28, 28))


def test_further_examples_to_test_on_are_loader_too(tmp_path):
    data = folder(tmp_path, grey(), grey())
    data = Dataset("more", data.train, None, data.classes, {}, {"other": data.train})
    assert in_memory_at(data, (28, 28)).other_tests["other"].inputs.shape == (2, 28, 28, 1)


def test_all_damaged_files_are_counted_and_three_are_named(tmp_path):
    data = folder(tmp_path, *(grey() for _ in range(9)))
    for path in data.train.paths[:5]:
        with open(path, "wb") as file:
            file.write(b"no image")
    with pytest.raises(
        DataError, match=r"not an image; .*not an image; .*not an image.* \(5 of 9 images are damaged\)$"
    ) as caught:
        in_memory_at(data, (28, 28))
    assert str(caught.value).count(": not an image") == 3
