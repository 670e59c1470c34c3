"""The data sets of the experiments, on small files in their layouts, and on the real ones where they are."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from noiseproof.data import DataError
from noiseproof.paper.datasets import load_cifar10, load_cifar100, load_clothing1m, load_webvision
from tests.helpers.image_lists import relative, touch, write

SYNSETS = ["n01440764 tench, Tinca tinca", "n02012849 crane", "n03126707 crane", "n03127747 crash helmet"]
SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


def pixels(count, seed):
    return np.random.default_rng(seed).integers(0, 256, (count, 3072), dtype=np.uint8)


def make_cifar10(folder, python):
    """Six files of four images each, in the official layout; returns images [24, 32, 32, 3] and labels."""
    place = folder / ("cifar-10-batches-py" if python else "cifar-10-batches-bin")
    place.mkdir(parents=True, exist_ok=True)
    images, labels = [], []
    for i in range(6):
        x, y = pixels(4, i), np.arange(4) * 2 % 10
        name = "test_batch" if i == 5 else f"data_batch_{i + 1}"
        if python:
            (place / name).write_bytes(pickle.dumps({b"data": x, b"labels": y.tolist(), b"batch_label": b"x"}, protocol=2))
        else:
            (place / f"{name}.bin").write_bytes(np.concatenate([y[:, None].astype(np.uint8), x], 1).tobytes())
        images.append(x.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
        labels.append(y)
    return np.concatenate(images), np.concatenate(labels)


def make_cifar100(folder, python):
    place = folder / ("cifar-100-python" if python else "cifar-100-binary")
    place.mkdir(parents=True, exist_ok=True)
    for name, seed in (("train", 0), ("test", 1)):
        x, fine = pixels(6, seed), np.array([99, 0, 5, 5, 42, 7])
        if python:
            (place / name).write_bytes(pickle.dumps({"data": x, "fine_labels": fine.tolist(), "coarse_labels": [0] * 6}))
        else:
            rows = [np.zeros((6, 1), np.uint8), fine[:, None].astype(np.uint8), x]
            (place / f"{name}.bin").write_bytes(np.concatenate(rows, 1).tobytes())


@pytest.mark.parametrize("python", [False, True])
def test_cifar10_is_read_from_its_folder_or_the_one_above(tmp_path, python):
    images, labels = make_cifar10(tmp_path, python)
    inside = tmp_path / ("cifar-10-batches-py" if python else "cifar-10-batches-bin")
    for place in (tmp_path, inside):
        data = load_cifar10(place, check=False)
        assert np.array_equal(data.train.inputs, images[:20])
        assert np.array_equal(data.test.inputs, images[20:])
        assert np.array_equal(data.train.labels, labels[:20])
        assert data.classes[0] == "airplane"
        assert len(data.sources) == 6


@pytest.mark.parametrize("python", [False, True])
def test_cifar100_is_read_with_its_fine_labels(tmp_path, python):
    make_cifar100(tmp_path, python)
    data = load_cifar100(tmp_path, check=False)
    assert data.train.labels.tolist() == [99, 0, 5, 5, 42, 7]
    assert data.train.inputs.shape == (6, 32, 32, 3)
    assert len(data.classes) == 100


def test_a_wrong_checksum_names_the_file_and_both_sums(tmp_path):
    make_cifar10(tmp_path, python=False)
    with pytest.raises(
        DataError, match=r"data_batch_1\.bin: checksum 5dd7e06a14cb22eb9f671a540d1b7c25 expected, found [0-9a-f]{32}"
    ):
        load_cifar10(tmp_path)


def test_truncated_and_missing_files_are_named(tmp_path):
    make_cifar10(tmp_path, python=False)
    broken = tmp_path / "cifar-10-batches-bin" / "data_batch_3.bin"
    broken.write_bytes(broken.read_bytes()[:-5])
    with pytest.raises(DataError, match=r"data_batch_3\.bin: 12287 bytes are not a whole number of records of 3073"):
        load_cifar10(tmp_path, check=False)
    broken.unlink()
    with pytest.raises(FileNotFoundError, match=r"data_batch_3\.bin: missing; the folder is incomplete"):
        load_cifar10(tmp_path, check=False)
    with pytest.raises(FileNotFoundError, match="no cifar-10-batches-bin or cifar-10-batches-py there"):
        load_cifar10(tmp_path / "nowhere")


def test_a_label_out_of_range_is_named(tmp_path):
    make_cifar10(tmp_path, python=False)
    broken = tmp_path / "cifar-10-batches-bin" / "data_batch_2.bin"
    broken.write_bytes(b"\x0b" + broken.read_bytes()[1:])
    with pytest.raises(DataError, match=r"data_batch_2\.bin: labels must be in \[0, 9\], got 11"):
        load_cifar10(tmp_path, check=False)


class Bomb:
    def __reduce__(self):
        return os.system, (f"touch {os.environ['NOISEPROOF_TEST_BOMB']}",)


@pytest.mark.parametrize("payload", ["bomb", "nested", "builtin"])
def test_a_malicious_pickle_is_refused_and_runs_nothing(tmp_path, monkeypatch, payload):
    marker = tmp_path / "ran"
    monkeypatch.setenv("NOISEPROOF_TEST_BOMB", str(marker))
    make_cifar10(tmp_path, python=True)
    content = {
        "bomb": Bomb(),
        "nested": {b"data": [Bomb()], b"labels": []},
        "builtin": {b"data": eval, b"labels": []},
    }[payload]
    (tmp_path / "cifar-10-batches-py" / "data_batch_1").write_bytes(pickle.dumps(content))
    with pytest.raises(DataError, match=r"data_batch_1: refused: it asks for"):
        load_cifar10(tmp_path, check=False)
    assert not marker.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({b"data": np.zeros((2, 3072), np.uint8)}, "should hold 'data' and 'labels', found data"),
        ({b"data": np.zeros((2, 10), np.uint8), b"labels": [0, 1]}, r"images should be bytes of shape \[N, 3072\]"),
        ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [0]}, "2 images but labels of shape"),
        ([1, 2], "found list"),
    ],
)
def test_a_pickle_that_holds_something_else_is_refused(tmp_path, content, message):
    make_cifar10(tmp_path, python=True)
    (tmp_path / "cifar-10-batches-py" / "data_batch_1").write_bytes(pickle.dumps(content))
    with pytest.raises(DataError, match=message):
        load_cifar10(tmp_path, check=False)


def test_a_damaged_pickle_is_refused(tmp_path):
    make_cifar10(tmp_path, python=True)
    path = tmp_path / "cifar-10-batches-py" / "data_batch_1"
    for damaged in (path.read_bytes()[:100], b"", b"\x80\x02junk"):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match="data_batch_1"):
            load_cifar10(tmp_path, check=False)


def webvision(root, *, info="info", train="", val="val_images_256"):
    write(root / info / "train_filelist_google.txt", "google/q0001/a.jpg 0", "google/q0002/b.jpg 1", "google/q0009/z.jpg 3")
    write(root / info / "val_filelist.txt", "val000001.jpg 3", "val000002.jpg 1", "val000003.jpg 0")
    write(root / info / "synsets.txt", *SYNSETS)
    touch(root / train, ["google/q0001/a.jpg", "google/q0002/b.jpg", "google/q0009/z.jpg"])
    touch(root / val, ["val000001.jpg", "val000002.jpg", "val000003.jpg"])
    return root


@pytest.mark.parametrize(
    "layout",
    [{}, {"info": ""}, {"train": "train", "val": "val"}, {"train": "google_resized_256", "val": "val_images"}],
    ids=str,
)
def test_webvision_in_the_layouts_people_have(tmp_path, layout):
    data = load_webvision(webvision(tmp_path, **layout), classes=3)
    train = tmp_path / layout.get("train", "")
    assert relative(data.train, train) == ["google/q0001/a.jpg", "google/q0002/b.jpg"]
    assert data.train.labels.tolist() == [0, 1]
    assert relative(data.test, tmp_path / layout.get("val", "val_images_256")) == ["val000002.jpg", "val000003.jpg"]
    assert data.test.labels.tolist() == [1, 0]
    assert data.classes == ("tench", "crane (n02012849)", "crane (n03126707)")
    assert sorted(data.sources) == ["synsets.txt", "train_filelist_google.txt", "val_filelist.txt"]


@pytest.mark.parametrize("place", ["", "val/"])
@pytest.mark.parametrize("names", [["n01440764", "n02012849"], ["0", "1"]], ids=["synsets", "numbers"])
def test_webvision_is_also_tested_on_folders_of_imagenet(tmp_path, place, names):
    webvision(tmp_path / "web")
    touch(tmp_path / "net", [f"{place}{names[0]}/v2.JPEG", f"{place}{names[0]}/v1.JPEG", f"{place}{names[1]}/v3.JPEG"])
    touch(tmp_path / "net", [f"{place}n03127747/v9.JPEG"])
    data = load_webvision(tmp_path / "web", classes=2, imagenet=tmp_path / "net")
    other = data.other_tests["ilsvrc12"]
    assert [os.path.basename(path) for path in other.paths] == ["v1.JPEG", "v2.JPEG", "v3.JPEG"]
    assert other.labels.tolist() == [0, 0, 1]
    assert sorted(data.sources) == ["net", "synsets.txt", "train_filelist_google.txt", "val_filelist.txt"]
    assert list(data.splits) == ["train", "test", "ilsvrc12"]


@pytest.mark.parametrize("place", ["", "val"])
def test_webvision_is_also_tested_on_a_list_of_imagenet(tmp_path, place):
    webvision(tmp_path / "web")
    touch(tmp_path / "net" / place, ["v1.JPEG", "v2.JPEG"])
    listed = write(tmp_path / "net" / "val.txt", "v1.JPEG 1", "v2.JPEG 999", "v2.JPEG 0")
    data = load_webvision(tmp_path / "web", classes=2, imagenet=listed)
    assert relative(data.other_tests["ilsvrc12"], tmp_path / "net" / place) == ["v1.JPEG", "v2.JPEG"]
    assert data.other_tests["ilsvrc12"].labels.tolist() == [1, 0]


def test_what_webvision_lacks_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no train_filelist_google\.txt there"):
        load_webvision(tmp_path)
    webvision(tmp_path)
    with pytest.raises(DataError, match=r"synsets\.txt: 50 classes wanted, 4 listed"):
        load_webvision(tmp_path)
    with pytest.raises(ValueError, match=r"classes must be in \[1, 1000\], got 0"):
        load_webvision(tmp_path, classes=0)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="no folder n01440764 or 0 there or in its 'val'"):
        load_webvision(tmp_path, classes=2, imagenet=tmp_path / "empty")
    touch(tmp_path / "part", ["val/n01440764/1.JPEG"])
    with pytest.raises(FileNotFoundError, match="n02012849"):
        load_webvision(tmp_path, classes=2, imagenet=tmp_path / "part")
    write(tmp_path / "info" / "val_filelist.txt", "val000001.jpg 3")
    with pytest.raises(DataError, match=r"val_filelist\.txt: no images of the first 2 classes"):
        load_webvision(tmp_path, classes=2)
    (tmp_path / "google").rename(tmp_path / "bing")
    with pytest.raises(FileNotFoundError, match="no google there"):
        load_webvision(tmp_path, classes=2)


def clothing(root, *, notes="", images="images/"):
    touch(root, [f"{images}{name}" for name in ("0/01/a.jpg", "1/02/b.jpg", "2/03/c.jpg", "3/04/d.jpg")])
    write(root / notes / "noisy_train_key_list.txt", "images/1/02/b.jpg", "images/0/01/a.jpg")
    write(root / notes / "clean_train_key_list.txt", "images/0/01/a.jpg")
    write(root / notes / "clean_val_key_list.txt", "images/2/03/c.jpg")
    write(root / notes / "clean_test_key_list.txt", "images/3/04/d.jpg")
    write(root / notes / "noisy_label_kv.txt", "images/0/01/a.jpg 4", "images/1/02/b.jpg 13", "images/9/99/unused.jpg 1")
    write(root / notes / "clean_label_kv.txt", "images/0/01/a.jpg 5", "images/2/03/c.jpg 6", "images/3/04/d.jpg 7")
    return root


@pytest.mark.parametrize("notes", ["", "annotations"])
@pytest.mark.parametrize("images", ["images/", ""])
def test_clothing1m_in_the_layouts_people_have(tmp_path, notes, images):
    data = load_clothing1m(clothing(tmp_path, notes=notes, images=images))
    assert relative(data.train, tmp_path) == [f"{images}1/02/b.jpg", f"{images}0/01/a.jpg"]
    assert data.train.labels.tolist() == [13, 4]
    assert relative(data.test, tmp_path) == [f"{images}3/04/d.jpg"]
    assert data.test.labels.tolist() == [7]
    assert (len(data.classes), data.classes[0], data.classes[13]) == (14, "T-Shirt", "Underwear")
    assert len(data.sources) == 4


def test_clothing1ms_clean_images_are_had_by_name(tmp_path):
    data = load_clothing1m(clothing(tmp_path), train="clean_train", test="clean_val")
    assert data.train.labels.tolist() == [5]
    assert data.test.labels.tolist() == [6]


def test_clothing1ms_own_names_are_used_where_they_are(tmp_path):
    names = write(clothing(tmp_path) / "category_names_eng.txt", *(f"Class {k}" for k in range(14)))
    assert load_clothing1m(tmp_path).classes[3] == "Class 3"
    write(names, "only", "two")
    with pytest.raises(DataError, match=r"category_names_eng\.txt: 14 names expected, found 2"):
        load_clothing1m(tmp_path)


def test_what_clothing1m_lacks_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no noisy_train_key_list\.txt there"):
        load_clothing1m(tmp_path)
    clothing(tmp_path)
    write(tmp_path / "clean_test_key_list.txt", "images/3/04/d.jpg", "images/0/00/odd.jpg")
    with pytest.raises(DataError, match=r"clean_test_key_list\.txt:2: 'images/0/00/odd\.jpg' has no label in clean_label_kv"):
        load_clothing1m(tmp_path)
    write(tmp_path / "clean_label_kv.txt", "images/3/04/d.jpg 14")
    with pytest.raises(DataError, match=r"clean_label_kv\.txt:1: labels must be in \[0, 13\], got 14"):
        load_clothing1m(tmp_path)
    (tmp_path / "images/0/01/a.jpg").unlink()
    with pytest.raises(FileNotFoundError, match=r"noisy_train_key_list\.txt:2: no file .*a\.jpg; correct"):
        load_clothing1m(tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(not (SHARED / "unpack.py").exists(), reason="the real CIFAR files are not here")
@pytest.mark.parametrize(("name", "load"), [("cifar10", load_cifar10), ("cifar100", load_cifar100)])
def test_the_real_sets_are_the_same_from_binary_and_python_files(tmp_path, name, load):
    subprocess.run([sys.executable, SHARED / "unpack.py", tmp_path, name, "--pickle"], check=True, timeout=600)
    folders = sorted(path for path in tmp_path.iterdir() if path.is_dir())
    assert len(folders) == 2
    binary, python = sorted(
        (load(folder, check="bin" in folder.name) for folder in folders), key=lambda d: "data_batch_1" in d.sources
    )
    for split in ("train", "test"):
        assert np.array_equal(binary.splits[split].inputs, python.splits[split].inputs)
        assert np.array_equal(binary.splits[split].labels, python.splits[split].labels)
    truth = np.load(SHARED / "cifar_clean_labels.npz")
    assert np.array_equal(binary.train.labels, truth[f"{name}_train"])
    assert (len(binary.train), len(binary.test)) == (50000, 10000)
