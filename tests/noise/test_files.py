"""Label files: others' formats as they are, our own with a manifest, and nothing executed."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from noiseproof import noise
from noiseproof.audit import Audit

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
CLEAN = np.arange(60) % 3
NOISY = noise.symmetric(3, 0.5).apply(CLEAN, seed=0)


def write(path, labels):
    if path.suffix == ".npy":
        np.save(path, labels)
    elif path.suffix == ".npz":
        np.savez(path, labels=labels)
    elif path.suffix == ".json":
        path.write_text(json.dumps(labels.tolist()))
    elif path.suffix == ".csv":
        np.savetxt(path, labels, fmt="%d")
    else:
        torch.save({"labels": torch.tensor(labels)}, path)
    return path


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".json", ".pt", ".csv"])
def test_every_format_gives_the_labels(tmp_path, suffix):
    assert np.array_equal(noise.load_labels(write(tmp_path / f"labels{suffix}", NOISY.labels)), NOISY.labels)


@pytest.mark.parametrize("shape", [(60, 1), (1, 60)], ids=str)
def test_a_column_or_a_row_of_labels_is_a_vector(tmp_path, shape):
    assert np.array_equal(noise.load_labels(write(tmp_path / "labels.npy", NOISY.labels.reshape(shape))), NOISY.labels)


def test_a_cifar_n_file_loads_as_it_is(tmp_path):
    """The official files are dictionaries of NumPy arrays saved by torch."""
    path = tmp_path / "CIFAR-10_human.pt"
    torch.save({"clean_label": CLEAN, "worse_label": NOISY.labels, "aggre_label": CLEAN.astype(np.uint8)}, path)
    worst = noise.read_noisy_labels(path, CLEAN, 3, name="worse_label")
    assert worst.rate == NOISY.rate
    assert np.array_equal(worst.mask, NOISY.mask)
    with pytest.raises(ValueError, match="holds several sets of labels, choose one: aggre_label, clean_label, worse_label"):
        noise.load_labels(path)
    with pytest.raises(ValueError, match="no labels named 'worst'; it has aggre_label"):
        noise.load_labels(path, "worst")


class Bomb:
    def __reduce__(self):
        return os.system, (f"touch {os.environ['NOISEPROOF_TEST_BOMB']}",)


@pytest.mark.parametrize("suffix", [".pt", ".npy", ".npz"])
def test_a_file_that_would_run_code_is_refused_and_does_not(tmp_path, monkeypatch, suffix):
    marker = tmp_path / "ran"
    monkeypatch.setenv("NOISEPROOF_TEST_BOMB", str(marker))
    path = tmp_path / f"labels{suffix}"
    if suffix == ".pt":
        torch.save({"labels": Bomb()}, path)
    elif suffix == ".npy":
        np.save(path, np.array([Bomb()], dtype=object), allow_pickle=True)
    else:
        np.savez(path, labels=np.array([Bomb()], dtype=object))
    with pytest.raises(ValueError, match=path.name):
        noise.load_labels(path)
    assert not marker.exists()


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".json", ".pt"])
def test_a_truncated_file_is_named(tmp_path, suffix):
    path = write(tmp_path / f"labels{suffix}", NOISY.labels)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ValueError, match=f"labels{suffix}: no labels could be read"):
        noise.load_labels(path)


@pytest.mark.parametrize("suffix", [".npy", ".npz", "-packed.npz", ".json", ".pt", ".csv"])
def test_a_damaged_file_gives_labels_or_an_error_that_names_it(tmp_path, suffix):
    path = tmp_path / f"labels{suffix}"
    if suffix == "-packed.npz":
        np.savez_compressed(path, labels=NOISY.labels)
    else:
        write(path, NOISY.labels)
    whole, draw, refused = path.read_bytes(), np.random.default_rng(0), []
    for _ in range(200):
        damaged = bytearray(whole)
        damaged[draw.integers(len(whole))] ^= 1 << draw.integers(8)
        path.write_bytes(damaged)
        try:
            labels = noise.load_labels(path)
        except ValueError as error:
            refused.append(str(error))
        else:
            assert labels.dtype == np.int64
            assert labels.min() >= 0
    assert refused
    assert all(path.name in message for message in refused)


def test_labels_of_unequal_length_are_refused_with_the_name_of_their_file(tmp_path):
    (tmp_path / "labels.json").write_text("[[1], [1, 2]]")
    with pytest.raises(ValueError, match=r"labels\.json: no labels could be read"):
        noise.load_labels(tmp_path / "labels.json")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.array([0.5, 1.0]), "must be a vector of whole numbers"),
        (np.array([[0, 1], [1, 2]]), "must be a vector of whole numbers"),
        (np.array([-1, 0]), "must not be negative, got -1"),
        (np.array([0, np.inf]), r"labels\.npy: labels must be below 2\*\*63, got inf"),
        (np.array([0, 1e30], np.float32), "must be below"),
        (np.array([0, 65504, np.inf], np.float16), "must be below"),
        (np.array([0, 2**64 - 1], np.uint64), "must be below 2.*63, got 18446744073709551615"),
        (np.array([0, np.nan]), "must be a vector of whole numbers"),
        (np.array(["a"]), r"labels\.npy: no labels could be read: it must hold plain numbers, got dtype '<U1'"),
        (np.array([True]), r"it must hold plain numbers, got dtype '\|b1'"),
    ],
)
def test_what_is_not_labels_is_refused(tmp_path, labels, message):
    np.save(tmp_path / "labels.npy", labels)
    with pytest.raises(ValueError, match=message):
        noise.load_labels(tmp_path / "labels.npy")


@pytest.mark.parametrize(("suffix", "text"), [(".csv", ""), (".csv", "\n# nothing\n"), (".json", "[]")])
def test_a_file_without_labels_is_named(tmp_path, suffix, text):
    (tmp_path / f"labels{suffix}").write_text(text)
    with pytest.raises(ValueError, match=rf"labels\{suffix}: there are no labels in it"):
        noise.load_labels(tmp_path / f"labels{suffix}")


@pytest.mark.parametrize("text", ["label\n0\n1\n", "path,label\na.png,0\nb.png,1\n"])
def test_a_header_line_is_said_to_be_removed(tmp_path, text):
    (tmp_path / "labels.csv").write_text(text)
    with pytest.raises(ValueError, match=r"labels\.csv: .*its first line is '.*label', not a number: remove the header line"):
        noise.load_labels(tmp_path / "labels.csv")


def test_comments_and_a_byte_order_mark_in_a_csv_are_no_labels(tmp_path):
    (tmp_path / "labels.csv").write_bytes(b"\xef\xbb\xbf# ours\n0\n\n2 # two\n")
    assert noise.load_labels(tmp_path / "labels.csv").tolist() == [0, 2]


def test_the_largest_label_is_read_as_it_is(tmp_path):
    np.save(tmp_path / "labels.npy", np.array([0, 2**63 - 1], np.uint64))
    assert noise.load_labels(tmp_path / "labels.npy").tolist() == [0, 2**63 - 1]


def test_labels_of_another_set_are_noticed(tmp_path):
    path = write(tmp_path / "labels.npy", NOISY.labels[:-1])
    with pytest.raises(ValueError, match=r"labels.npy: 59 labels for 60 examples; is it the same split and order\?"):
        noise.read_noisy_labels(path, CLEAN, 3)
    path = write(tmp_path / "labels.npy", NOISY.labels + 1)
    with pytest.raises(ValueError, match=r"labels.npy: noisy labels must be in \[0, 2\] for 3 classes, got 3"):
        noise.read_noisy_labels(path, CLEAN, 3)


def test_missing_and_unknown_files_say_so(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"gone\.npy"):
        noise.load_labels(tmp_path / "gone.npy")
    with pytest.raises(FileNotFoundError, match="gone: no such file or folder"):
        noise.load_labels(tmp_path / "gone")
    (tmp_path / "labels.xls").touch()
    with pytest.raises(ValueError, match=r"labels are read from \.npy, \.npz, \.json, \.csv, \.pt, got '\.xls'"):
        noise.load_labels(tmp_path / "labels.xls")


@pytest.mark.parametrize("suffix", [".npy", ".csv", ".json"])
def test_a_matrix_is_read_from_a_file(tmp_path, suffix):
    matrix = noise.symmetric(3, 0.25).matrix
    path = tmp_path / f"T{suffix}"
    if suffix == ".npy":
        np.save(path, matrix)
    elif suffix == ".csv":
        np.savetxt(path, matrix, delimiter=",")
    else:
        path.write_text(json.dumps(matrix.tolist()))
    np.testing.assert_allclose(noise.from_file(path).matrix, matrix)
    path.write_bytes(b"\x93nonsense")
    with pytest.raises(ValueError, match=f"T{suffix}: no transition matrix"):
        noise.from_file(path)


def test_the_matrix_of_an_audit_is_read_from_its_file_and_from_its_folder(tmp_path):
    matrix = np.full((7, 7), 1 / 7)  # rows of 0.142857 sum to 0.999999
    names = ["a, b", *"bcdefg"]
    audit = Audit(np.arange(7), np.eye(7, dtype=np.float32), matrix, 0.0, (0.0, 0.1), 1.0, tuple(names), "by hand")
    audit.save(tmp_path)
    for place in (tmp_path, tmp_path / "transition.csv"):
        np.testing.assert_allclose(noise.from_file(place).matrix, matrix, atol=1e-6)
        np.testing.assert_allclose(noise.from_spec(str(place), classes=7).matrix, matrix, atol=1e-6)
    (tmp_path / "transition.csv").unlink()
    with pytest.raises(ValueError, match="not the folder of an audit, it has no transition"):
        noise.from_file(tmp_path)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["cat,0.8,0.2", "dog,0.4,0.6"], None),
        (["dog,0.4,0.6", "cat,0.8,0.2"], "its rows and its columns must have the same names in the same order"),
        (["cat,0.8,0.2", "cow,0.4,0.6"], "its rows and its columns must have the same names in the same order"),
        (["cat,0.8,0.2", "dog,0.4,most"], "not numbers after the name 'dog'"),
        (["cat,0.8,0.2", "dog,0.4"], "2 fields, and the first line has 3"),
    ],
)
def test_a_matrix_with_names_has_them_in_rows_and_columns_alike(tmp_path, lines, message):
    path = tmp_path / "T.csv"
    path.write_text("\n".join(["true \\ given,cat,dog", *lines]))
    if message is None:
        assert noise.from_file(path).matrix.tolist() == [[0.8, 0.2], [0.4, 0.6]]
    else:
        with pytest.raises(ValueError, match=f"no transition matrix: {message}"):
            noise.from_file(path)


@pytest.fixture
def manifest(tmp_path):
    return noise.write_noisy_labels(tmp_path / "noisy", noise.symmetric(3, 0.5), CLEAN, NOISY, version="test")


def test_a_manifest_tells_how_the_labels_came_about_and_can_be_checked(manifest):
    facts = noise.verify(manifest, CLEAN)
    assert facts == noise.verify(manifest.parent, CLEAN)
    assert facts["rate_realised"] == NOISY.rate
    assert facts["seed"] == 0
    assert facts["rule"] == "exact"
    assert np.array_equal(noise.load_labels(manifest.parent / "labels.npy"), NOISY.labels)
    assert sorted(path.name for path in manifest.parent.iterdir()) == ["labels.npy", "manifest.json"]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("labels_hash", "0" * 64, "hash of the labels in labels.npy should be 0000"),
        ("examples", 61, "number of labels in labels.npy should be 61, found 60"),
        ("rate_realised", 0.4, "realised rate should be 0.4"),
        ("seed", 1, "hash of the labels made anew"),
        ("rule", None, "symmetric noise with seed 0 must state its rule, got none"),
        ("source_hash", "0" * 64, "hash of the clean labels"),
        ("format", 99, "format 99 is not known"),
    ],
)
def test_a_manifest_that_lies_is_found_out(manifest, key, value, message):
    facts = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(facts | {key: value}))
    with pytest.raises(ValueError, match=message):
        noise.verify(manifest, CLEAN)


def test_a_realised_matrix_that_lies_is_found_out_where_all_else_fits(manifest):
    facts = json.loads(manifest.read_text())
    facts["matrix_realised"][0][1] += 0.05
    facts["matrix_realised"][0][2] -= 0.05  # the row still sums to one, and as many labels have changed
    manifest.write_text(json.dumps(facts))
    with pytest.raises(ValueError, match="the realised matrix is not the one the labels have"):
        noise.verify(manifest, CLEAN)


@pytest.mark.parametrize("claim", [{}, {"seed": None}, {"noise": "people"}])
def test_changed_labels_do_not_pass_by_leaving_out_the_rule(manifest, claim):
    changed = (NOISY.labels + 1) % 3
    np.save(manifest.parent / "labels.npy", changed)
    found = noise.NoisyLabels.compare(CLEAN, changed, 3)
    forged = {"labels_hash": found.hash, "rate_realised": found.rate, "matrix_realised": found.matrix.tolist(), "rule": None}
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | forged | claim))
    with pytest.raises(ValueError, match="must state its rule, got none"):
        noise.verify(manifest, CLEAN)


def test_labels_from_a_file_are_checked_without_a_claim_that_they_were_made_anew(tmp_path, manifest):
    assert noise.verify(manifest, CLEAN)["made_anew"]
    assert not noise.verify(manifest)["made_anew"]
    read = noise.read_noisy_labels(manifest.parent / "labels.npy", CLEAN, 3)
    people = noise.LabelNoise(read.matrix, "people")
    written = noise.write_noisy_labels(tmp_path / "people", people, CLEAN, read, version="test")
    assert not noise.verify(written, CLEAN)["made_anew"]
    with pytest.raises(ValueError, match="symmetric noise with seed None must state its rule"):
        noise.write_noisy_labels(tmp_path / "other", noise.symmetric(3, 0.5), CLEAN, read, version="test")
    assert not (tmp_path / "other").exists()


def test_changed_labels_are_found_out(manifest):
    changed = NOISY.labels.copy()
    changed[0] = (changed[0] + 1) % 3
    np.save(manifest.parent / "labels.npy", changed)
    with pytest.raises(ValueError, match=r"manifest\.json: the hash of the labels in labels\.npy should be"):
        noise.verify(manifest)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"format": 1}'])
def test_what_is_no_manifest_is_refused(manifest, text):
    manifest.write_text(text)
    with pytest.raises(ValueError, match="not a manifest"):
        noise.verify(manifest)


def test_a_manifest_cannot_point_outside_its_folder(manifest):
    facts = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(facts | {"labels_file": "../../etc/labels.npy"}))
    assert noise.verify(manifest)["examples"] == 60  # it reads labels.npy beside itself


@pytest.mark.skipif(not (SHARED / "cifar10n_labels.npz").exists(), reason="the CIFAR-N label files are not here")
@pytest.mark.parametrize(
    ("file", "name", "clean", "classes", "rate"),
    [
        ("cifar10n_labels.npz", "aggre_label", "cifar10_train", 10, 0.0901),
        ("cifar10n_labels.npz", "worse_label", "cifar10_train", 10, 0.4021),
        ("cifar10n_labels.npz", "random_label1", "cifar10_train", 10, 0.1723),
        ("cifar100n_labels.npz", "noisy_label", "cifar100_train", 100, 0.4020),
        ("cifar_idn_labels.npz", "cifar10_0.2", "cifar10_train", 10, 0.2),
        ("cifar_idn_labels.npz", "cifar100_0.6", "cifar100_train", 100, 0.6),
    ],
)
def test_the_published_noise_rates_are_found_in_the_published_files(file, name, clean, classes, rate):
    truth = np.load(SHARED / "cifar_clean_labels.npz")[clean]
    noisy = noise.read_noisy_labels(SHARED / file, truth, classes, name=name)
    assert round(noisy.rate, 4) == pytest.approx(rate, abs=5e-4)
