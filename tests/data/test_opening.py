"""Opening a data set by its name or its place, on small files in the real layouts."""

import dataclasses
import gzip
import hashlib
import pickle
import struct
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from noiseproof.data import NamedDataset, from_arrays, register_dataset
from noiseproof.data.opening import data_root, find_dataset, open_dataset, open_unlabelled
from noiseproof.data.registry import all_datasets, named_in_memory
from noiseproof.paper import datasets
from noiseproof.paper.plugin import SOURCES


def make_cifar10(folder, python=False):
    folder.mkdir(parents=True)
    for k in range(6):
        name = "test_batch" if k == 5 else f"data_batch_{k + 1}"
        labels, pixels = np.arange(2, dtype=np.uint8) + k, np.full((2, 3072), k, np.uint8)
        if python:
            (folder / name).write_bytes(pickle.dumps({b"data": pixels, b"labels": labels.tolist()}))
        else:
            (folder / f"{name}.bin").write_bytes(np.concatenate([labels[:, None], pixels], 1).tobytes())


def make_cifar100(folder):
    folder.mkdir(parents=True)
    for name in ("train.bin", "test.bin"):
        (folder / name).write_bytes(bytes([0, 7]) + bytes(3072))


def make_idx(folder, suffix=""):
    folder.mkdir(parents=True, exist_ok=True)
    for split in ("train", "t10k"):
        images = struct.pack(">BBBB3I", 0, 0, 8, 3, 2, 28, 28) + bytes(2 * 28 * 28)
        labels = struct.pack(">BBBB1I", 0, 0, 8, 1, 2) + bytes([3, 4])
        for stem, raw in ((f"{split}-images-idx3-ubyte", images), (f"{split}-labels-idx1-ubyte", labels)):
            (folder / f"{stem}{suffix}").write_bytes(gzip.compress(raw) if suffix else raw)


def make_images(folder):
    from PIL import Image

    for label in ("cat", "dog"):
        (folder / label).mkdir(parents=True)
        Image.new("RGB", (4, 4)).save(folder / label / "1.png")


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    """No folder of the person who runs the tests is looked into."""
    monkeypatch.delenv("NOISEPROOF_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_the_root_is_what_is_given_then_the_variable_then_the_cache(tmp_path, monkeypatch):
    assert data_root() == tmp_path / "cache" / "noiseproof"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert data_root() == tmp_path / "home" / ".cache" / "noiseproof"
    monkeypatch.setenv("NOISEPROOF_DATA", "~/data")
    assert data_root() == tmp_path / "home" / "data"
    assert data_root("here") == Path("here")
    monkeypatch.setenv("NOISEPROOF_DATA", "")  # as good as unset
    assert data_root() == tmp_path / "home" / ".cache" / "noiseproof"


@pytest.mark.parametrize("inside", ["", "cifar-10-batches-bin", "cifar10", "cifar10/cifar-10-batches-bin"])
def test_a_name_is_found_in_the_root_and_the_usual_folders_below_it(tmp_path, inside):
    make_cifar10(tmp_path / "root" / inside)
    data = open_dataset("cifar10", tmp_path / "root", check=False)
    assert (data.name, len(data.train), len(data.test), data.classes[3]) == ("cifar10", 10, 2, "cat")


def test_the_variable_is_where_names_are_looked_for(tmp_path, monkeypatch):
    make_cifar100(tmp_path / "mine" / "cifar-100-binary")
    monkeypatch.setenv("NOISEPROOF_DATA", str(tmp_path / "mine"))
    assert open_dataset("cifar100", check=False).train.labels.tolist() == [7]


def test_checksums_are_checked_unless_told_otherwise(tmp_path):
    make_cifar10(tmp_path / "cifar10")
    with pytest.raises(ValueError, match="checksum"):
        open_dataset("cifar10", tmp_path)
    with pytest.raises(ValueError, match="checksum"):
        open_dataset(tmp_path / "cifar10")


def test_mnist_and_fashion_mnist_in_one_root_are_told_apart(tmp_path):
    make_idx(tmp_path / "mnist", ".gz")
    make_idx(tmp_path / "FashionMNIST" / "raw")
    for name, folder in (("mnist", "mnist"), ("fashion-mnist", "FashionMNIST/raw")):
        assert find_dataset(name, tmp_path) == tmp_path / folder
        data = open_dataset(name, tmp_path)
        assert (data.name, data.train.labels.tolist()) == (name, [3, 4])


FASHION = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")


def test_idx_files_of_ones_own_in_the_root_are_mnist(tmp_path):
    make_idx(tmp_path)
    data = open_dataset("mnist", tmp_path)
    assert (data.name, data.classes) == ("mnist", tuple("0123456789"))
    with pytest.raises(FileNotFoundError) as caught:
        open_dataset("fashion-mnist", tmp_path)
    assert (
        f"the idx files there are taken for mnist's; move them to {tmp_path}/fashion-mnist if they are fashion-mnist's"
        in str(caught.value)
    )
    make_idx(tmp_path / "fashion-mnist")
    data = open_dataset("fashion-mnist", tmp_path)
    assert (data.name, data.classes) == ("fashion-mnist", FASHION)


@pytest.mark.parametrize(("name", "other"), [("mnist", "fashion-mnist"), ("fashion-mnist", "mnist")])
def test_published_idx_files_in_the_root_are_known_by_their_checksum(tmp_path, monkeypatch, name, other):
    make_idx(tmp_path, ".gz")
    first, *rest = SOURCES[name].files
    made = dataclasses.replace(first, sha256=hashlib.sha256((tmp_path / first.name).read_bytes()).hexdigest())
    monkeypatch.setitem(SOURCES, name, dataclasses.replace(SOURCES[name], files=(made, *rest)))
    assert find_dataset(name, tmp_path) == tmp_path
    with pytest.raises(FileNotFoundError, match=f"{other} is not in .*; the idx files there are taken for {name}'s; move"):
        find_dataset(other, tmp_path)
    for data in (open_dataset(name, tmp_path), open_dataset(tmp_path)):
        assert (data.name, data.classes) == (name, FASHION if name == "fashion-mnist" else tuple("0123456789"))


def test_digits_need_no_files():
    assert open_dataset("digits").name == "digits"


@pytest.mark.parametrize("python", [False, True])
def test_a_folder_of_cifar_is_recognised(tmp_path, python):
    layout = tmp_path / "any" / ("cifar-10-batches-py" if python else "cifar-10-batches-bin")
    make_cifar10(layout, python)
    for place in (layout, layout.parent):
        assert open_dataset(place, check=False).name == "cifar10"
    make_cifar100(tmp_path / "hundred")
    assert open_dataset(str(tmp_path / "hundred"), check=False).name == "cifar100"


def test_a_folder_of_several_sets_asks_which(tmp_path):
    make_cifar10(tmp_path / "cifar10")
    make_cifar100(tmp_path / "cifar-100-binary")
    with pytest.raises(ValueError, match=r"holds cifar10 and cifar100; give the name, and this folder as --data"):
        open_dataset(tmp_path)


def test_a_folder_of_idx_files_has_the_folders_name(tmp_path):
    make_idx(tmp_path / "kuzushiji")
    assert open_dataset(tmp_path / "kuzushiji").name == "kuzushiji"


def test_an_npz_file_is_opened(tmp_path):
    np.savez(tmp_path / "mine.npz", x=np.zeros((3, 2), np.float32), y=np.array([0, 1, 1]))
    assert open_dataset(tmp_path / "mine.npz").train.labels.tolist() == [0, 1, 1]


def test_a_column_of_texts_is_a_list_of_texts():
    texts, labels = ["a fine day for a walk", "rain and wind again today"] * 12, ["good", "bad"] * 12
    expected = open_dataset(texts, label=labels)
    for column in (np.array(texts), pd.Series(texts), pd.Series(texts).array):
        assert np.array_equal(open_dataset(column, label=labels).train.inputs, expected.train.inputs)


def test_a_suffix_may_be_in_capitals(tmp_path):
    np.savez(tmp_path / "mine.npz", x=np.zeros((3, 2), np.float32), y=np.array([0, 1, 1]))
    (tmp_path / "mine.npz").rename(tmp_path / "MINE.NPZ")
    (tmp_path / "TABLE.CSV").write_text("a,b,label\n1,2,0\n3,4,1\n5,6,1\n")
    for place in (tmp_path / "MINE.NPZ", tmp_path / "TABLE.CSV", f"{tmp_path / 'TABLE.CSV'}#label"):
        assert open_dataset(place).train.labels.tolist() == [0, 1, 1]


def test_folders_of_images_are_opened_with_and_without_splits(tmp_path):
    make_images(tmp_path / "flat")
    for split in ("train", "val"):
        make_images(tmp_path / "split" / split)
    assert open_dataset(tmp_path / "flat").classes == ("cat", "dog")
    data = open_dataset(tmp_path / "split")
    assert (data.classes, len(data.train), len(data.test)) == (("cat", "dog"), 2, 2)


@pytest.mark.parametrize("suffix", [".txt", ".csv", ".tsv"])
def test_a_list_of_images_is_opened(tmp_path, suffix):
    make_images(tmp_path)
    separator = {".txt": " ", ".csv": ",", ".tsv": "\t"}[suffix]
    (tmp_path / f"list{suffix}").write_text(f"cat/1.png{separator}0\ndog/1.png{separator}1\n")
    assert open_dataset(tmp_path / f"list{suffix}").train.labels.tolist() == [0, 1]


def test_clothing1m_and_webvision_are_opened_by_name_and_by_place(tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr(datasets, "load_webvision", lambda folder, imagenet: opened.append(("webvision", folder)))
    monkeypatch.setattr(datasets, "load_clothing1m", lambda folder: opened.append(("clothing1m", folder)))
    for witness in ("webvision/info/train_filelist_google.txt", "clothing1m/annotations/noisy_train_key_list.txt"):
        (tmp_path / witness).parent.mkdir(parents=True)
        (tmp_path / witness).touch()
    for name in ("webvision", "clothing1m"):
        open_dataset(name, tmp_path)
        open_dataset(tmp_path / name)
        assert opened[-2:] == [(name, tmp_path / name)] * 2


@pytest.mark.parametrize("inside", ["val/n01440764", "n01440764", "val/0", "0"])
@pytest.mark.parametrize("beside", ["imagenet", "webvision/ILSVRC2012"])
def test_imagenet_beside_webvision_is_taken_in_a_layout_that_is_read(tmp_path, monkeypatch, inside, beside):
    opened = []
    monkeypatch.setattr(datasets, "load_webvision", lambda folder, imagenet: opened.append(imagenet))
    for path in ("webvision/info/train_filelist_google.txt", "ilsvrc12/val/ILSVRC2012_val_00000001.JPEG"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).touch()
    (tmp_path / "webvision" / "imagenet").mkdir()
    open_dataset("webvision", tmp_path)
    assert opened == [None]
    (tmp_path / beside / inside).mkdir(parents=True)
    open_dataset("webvision", tmp_path)
    assert opened == [None, tmp_path / beside]


@pytest.mark.parametrize("name", [name for name, known in all_datasets().items() if known.read and known.folders])
def test_a_missing_set_says_where_it_was_looked_for_and_how_to_get_it(tmp_path, name):
    with pytest.raises(FileNotFoundError) as caught:
        open_dataset(name, tmp_path)
    message = str(caught.value)
    assert message.startswith(f"{name} is not in {tmp_path} (looked there and in {all_datasets()[name].folders[0]}")
    assert "--data DIR or $NOISEPROOF_DATA" in message
    assert (f"; 'noiseproof data fetch {name} --data {tmp_path}' downloads it;" in message) == (name in SOURCES)
    with pytest.raises(FileNotFoundError) as caught:
        open_dataset(name)
    assert (f"; 'noiseproof data fetch {name}' downloads it;" in str(caught.value)) == (name in SOURCES)


def test_an_entry_and_a_reader_are_all_that_a_further_data_set_takes(tmp_path, monkeypatch):
    def read(folder, check):
        return from_arrays(np.load(folder / "x.npy"), np.load(folder / "y.npy"), name="further")

    monkeypatch.setattr("noiseproof.data.registry.DATASETS", dict(all_datasets()))
    register_dataset("further", NamedDataset(read, ("further",), ("x.npy",)))
    with pytest.raises(FileNotFoundError, match="further is not in"):
        open_dataset("further", tmp_path)
    (tmp_path / "further").mkdir()
    np.save(tmp_path / "further" / "x.npy", np.zeros((4, 2)))
    np.save(tmp_path / "further" / "y.npy", np.arange(4))
    for place, root in (("further", tmp_path), (tmp_path, None), (tmp_path / "further", None)):
        assert repr(open_dataset(place, root)) == "Dataset(further: 4 classes, train 4, inputs (2,))"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "cifar-10",
            r"no data set 'cifar-10', and no file or folder of that name; did you mean 'cifar10'\? the names are digits",
        ),
        ("zzz", "no data set 'zzz', and no file or folder of that name; the names are digits, cifar10"),
        ("gone/cifar10", r"gone/cifar10: no such file or folder"),
        ("gone.npz", r"gone\.npz: no such file or folder"),
    ],
)
def test_an_unknown_name_gets_a_hint(name, message):
    with pytest.raises(FileNotFoundError, match=message):
        open_dataset(name)


def test_a_file_that_is_no_data_set_is_refused(tmp_path):
    (tmp_path / "set.xlsx").touch()
    with pytest.raises(ValueError, match=r"set\.xlsx: a data set is a table .*, a list .* or a folder, got '\.xlsx'"):
        open_dataset(tmp_path / "set.xlsx")


def test_a_name_is_the_name_even_where_a_folder_is_called_so(tmp_path, monkeypatch):
    make_images(tmp_path / "cifar10")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match="cifar10 is not in"):
        open_dataset("cifar10")
    assert open_dataset("./cifar10").classes == ("cat", "dog")


def test_images_of_a_named_data_set_are_predicted_under_their_paths(tmp_path):
    make_images(tmp_path)
    pets = open_dataset(tmp_path)
    with named_in_memory({"pets": pets}):
        assert open_unlabelled("pets", pets.classes, None).names == pets.train.paths
