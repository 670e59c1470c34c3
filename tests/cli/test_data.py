"""``noiseproof data`` as a person uses it."""

import hashlib
import io

import numpy as np
import pytest
from PIL import Image
from rich.console import Console
from typer.testing import CliRunner

from noiseproof.cli import app, data
from noiseproof.data.registry import all_datasets


def run(*arguments, columns=120):
    return CliRunner().invoke(app, ["data", *map(str, arguments)], env={"COLUMNS": str(columns), "TERM": "dumb"})


@pytest.fixture(autouse=True)
def _own_root(tmp_path, monkeypatch):
    monkeypatch.setenv("NOISEPROOF_DATA", str(tmp_path / "root"))


@pytest.fixture
def images(tmp_path):
    """Class k is 10 (k + 1) flat images of brightness 50 k."""
    labels = np.repeat(np.arange(3), [10, 20, 30])
    pixels = np.broadcast_to((50 * labels).astype(np.uint8)[:, None, None, None], (60, 6, 6, 3))
    path = tmp_path / "set.npz"
    np.savez(path, x=pixels, y=labels)
    return path


def test_the_list_has_every_name_and_says_what_is_there(tmp_path):
    (tmp_path / "root" / "cifar10").mkdir(parents=True)
    (tmp_path / "root" / "cifar10" / "test_batch.bin").touch()
    result = run("list")
    assert result.exit_code == 0
    lines = [line.strip() for line in result.output.splitlines()]
    for name in all_datasets():
        assert any(f" {name} " in line for line in lines), name
    assert any(line.startswith("here") and line.endswith("root/cifar10") for line in lines)
    assert any(line.startswith("fetch") and line.endswith("noiseproof data fetch mnist") for line in lines)


def test_the_commands_in_the_list_fetch_into_the_folder_that_was_listed(tmp_path):
    there = tmp_path / "my [sets]"
    lines = [line.strip() for line in run("list", "--data", there).output.splitlines()]
    assert any(line.endswith(f"noiseproof data fetch mnist --data '{there}'") for line in lines)
    assert not any(line.endswith("data fetch mnist") for line in lines)


def test_another_form_of_a_data_set_is_listed_as_here_once_it_is_there(tmp_path):
    folder = tmp_path / "root" / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    assert any(line.endswith("data fetch cifar10-python") for line in run("list").output.splitlines())
    (folder / "test_batch").touch()
    assert any("here" in line and " cifar10-python " in line for line in run("list").output.splitlines())


def test_a_set_of_features_is_described_in_numbers():
    result = run("show")
    assert result.exit_code == 0, result.output
    assert "digits: 10 classes" in result.output
    assert "train    1297 examples, 64 float32 in [0, 1], mean 0.3" in result.output
    assert "test      500 examples" in result.output


def test_class_counts_bars_imbalance_and_checksums_are_shown(images):
    lines = run("show", images).output.splitlines()
    assert "  train      60 examples, 6x6x3 uint8" in [line.rstrip() for line in lines]
    assert any("the largest class of the train split is 3 times the smallest" in line for line in lines)
    bars = [line.count("█") for line in lines if "█" in line]
    assert bars == [8, 16, 24]
    digest = hashlib.sha256(images.read_bytes()).hexdigest()
    assert any(f"sha256 {digest[:12]}  set.npz" in line for line in lines)


def test_everything_fits_eighty_columns(images):
    for name in ("digits", images):
        assert max(len(line.rstrip()) for line in run("show", name, columns=80).output.splitlines()) <= 80


def test_a_class_without_examples_is_said(tmp_path):
    np.savez(tmp_path / "set.npz", x=np.zeros((2, 3), np.float32), y=np.array([0, 2]))
    assert "classes without an example in the train split: 1" in run("show", tmp_path / "set.npz").output


def test_given_labels_are_shown_beside(images, tmp_path):
    labels = np.repeat(np.arange(3), [10, 20, 30])
    labels[10:15] = 0
    np.savez(tmp_path / "given.npz", a=labels, b=labels)
    output = run("show", images, "--labels", tmp_path / "given.npz", "--name", "a").output
    assert "5 of the given labels differ: 0.0833" in output
    row = next(line.split() for line in output.splitlines() if line.strip().startswith("1  1"))
    assert (row[2], row[-2], row[-1]) == ("20", "15", "75.0%")
    assert "choose one: a, b" in run("show", images, "--labels", tmp_path / "given.npz").output
    np.save(tmp_path / "short.npy", labels[:-1])
    assert "59 labels for 60 examples" in run("show", images, "--labels", tmp_path / "short.npy").output


def test_channels_that_come_first_are_said_with_the_way_out(tmp_path, images):
    np.savez(tmp_path / "first.npz", x=np.zeros((4, 3, 8, 8), np.uint8), y=np.arange(4) % 2)
    hint = "the channels come first; transpose(0, 2, 3, 1) makes images [N, H, W, C]"
    assert f"  {hint}" in run("show", tmp_path / "first.npz", columns=80).output
    assert "channels" not in run("show", images).output


def test_images_in_files_are_said_to_be(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / "set" / name).mkdir(parents=True)
        Image.new("RGB", (20, 10), "red").save(tmp_path / "set" / name / "1.png")
    result = run("show", tmp_path / "set")
    assert result.exit_code == 0, result.output
    assert "images in files" in result.output


@pytest.mark.parametrize("mark", ["[/]", "[red]", "[bold]x[/bold]"])
def test_brackets_in_names_are_printed_as_they_are(tmp_path, monkeypatch, mark):
    folder = tmp_path / f"a{mark}"
    folder.mkdir(parents=True)
    path = folder / f"set{mark.replace('/', '')}.npz"  # a file's name has no slash
    np.savez(path, x=np.full((2, 4, 4, 1), 9, np.uint8), y=np.arange(2))
    result = run("show", path, columns=300)
    assert result.exit_code == 0, result.output
    assert f"{path.stem}: 2 classes" in result.output
    assert f"  {path.name}" in result.output
    (folder / "cifar10").mkdir()
    (folder / "cifar10" / "test_batch").touch()
    listed = run("list", "--data", folder).output
    assert f"data sets in {folder}" in listed
    assert f" {folder / 'cifar10'}" in listed
    fake_fetch(monkeypatch)
    assert f"cifar10 is in {folder}, and" in run("fetch", "cifar10", "--data", folder).output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "cifar10"], "'noiseproof data fetch cifar10' downloads it; --data DIR or $NOISEPROOF_DATA says where"),
        (["show", "cifar1"], "did you mean 'cifar10'?"),
        (["show", "digits", "--name", "foo"], "labels in the file of --labels, got 'foo' without --labels"),
        (["show", "gone.npz"], "gone.npz: no such file or folder"),
        (["fetch", "cifar"], "unknown data set 'cifar'; did you mean 'cifar10'?"),
        (["fetch", "cifar10n"], "https://github.com/UCSC-REAL/cifar-10-100n"),
    ],
)
def test_mistakes_end_with_one_line(arguments, message):
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output


def test_a_repacked_copy_is_shown_when_told_not_to_check(tmp_path):
    (tmp_path / "root" / "cifar-100-binary").mkdir(parents=True)
    for name in ("train.bin", "test.bin"):
        (tmp_path / "root" / "cifar-100-binary" / name).write_bytes(bytes([0, 7]) + bytes(3072))
    assert "checksum" in run("show", "cifar100").output
    result = run("show", "cifar100", "--no-check")
    assert result.exit_code == 0, result.output
    assert "and 80 more" in result.output


def test_a_split_that_is_not_there_is_said(images):
    assert "set has no test split; it has train" in run("show", images, "--split", "test").output


def fake_fetch(monkeypatch, then=None):
    def fetch(name, into, *, progress):
        for have in (0, 5_000_000, 10_000_000):
            progress("set.tar.gz", have, 10_000_000)
        if then is not None:
            raise then
        return into or "somewhere"

    monkeypatch.setattr("noiseproof.data.fetch", fetch)


def test_fetching_tells_its_progress_in_lines_where_there_is_no_terminal(monkeypatch):
    fake_fetch(monkeypatch)
    result = run("fetch", "cifar10", "--data", "here")
    assert result.exit_code == 0
    assert result.output.splitlines() == [
        "set.tar.gz: 0.0 of 10.0 MB",
        "set.tar.gz: 5.0 of 10.0 MB",
        "set.tar.gz: 10.0 of 10.0 MB",
        "cifar10 is in here, and its checksums are the published ones",
    ]


def test_fetching_draws_a_bar_on_a_terminal(monkeypatch):
    fake_fetch(monkeypatch)
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    monkeypatch.setattr(data, "console", console)
    assert CliRunner().invoke(app, ["data", "fetch", "cifar10"], env={"TERM": "xterm"}).exit_code == 0
    assert "10.0 of 10.0 MB" in console.file.getvalue()


def test_stopping_a_fetch_says_that_nothing_is_left(monkeypatch):
    fake_fetch(monkeypatch, KeyboardInterrupt())
    result = run("fetch", "cifar10")
    assert result.exit_code == 130
    assert "stopped; nothing was left behind" in result.output
