"""``noiseproof predict``, as a person types it and sees it."""

import csv
import dataclasses
import json
import re
import shlex
import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import noiseproof
from noiseproof.cli import app
from noiseproof.data import DataError, from_arrays, open_dataset
from noiseproof.train import Recipe, RunOptions, train, with_noise

ROOT = Path(__file__).resolve().parents[2]
MODULE = "from torch import nn\n\n\ndef network(classes):\n    return nn.Linear(4, classes)\n"


def call(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "100", "TERM": "dumb"})


def run(*arguments):
    return call("predict", *arguments)


def trained_run(folder, dataset, **facts):
    recipe = Recipe(dataset="data", loss="ce", batch=16, lr=0.05, **facts)
    train(recipe, with_noise(dataset, recipe), folder=folder, options=RunOptions(workers=0))
    return folder


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A run on four features of three classes, one on grey images of two, and examples for both."""
    folder = tmp_path_factory.mktemp("predict")
    generator = np.random.default_rng(0)
    y = np.arange(60) % 3
    x = (generator.normal(size=(60, 4)) + y[:, None]).astype(np.float32)
    np.savez(folder / "labelled.npz", x=x, y=y)
    np.savez(folder / "plain.npz", x=x)
    classes = ("=cat", "dog", "eel")
    trained_run(folder / "features", from_arrays(x, y, classes=classes), model="mlp", model_options={"hidden": [8]}, epochs=5)
    pixels = generator.integers(0, 256, (20, 8, 8), dtype=np.uint8)
    names = ("bright", "dark")
    trained_run(folder / "images", from_arrays(pixels, np.arange(20) % 2, classes=names), model="mlp")
    for k in range(6):
        place = folder / "folders" / names[k % 2]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels[k]).save(place / f"{k}.png")
    return folder


@pytest.fixture
def here(kept, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("features", "images", "folders", "labelled.npz", "plain.npz"):
        Path(name).symlink_to(kept / name)
    return tmp_path


def rows(name="out.csv"):
    with Path(name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.usefixtures("here")
def test_a_table_has_a_line_for_each_example_with_all_probabilities():
    result = run("features", "--data", "labelled.npz", "--out", "out.csv")
    assert result.exit_code == 0, result.output
    trained, x = noiseproof.load("features"), np.load("plain.npz")["x"]
    probabilities, predicted = trained.probabilities(x), trained.predict(x)
    found = rows()
    assert list(found[0]) == ["index", "path", "predicted", "probability", "p_'=cat", "p_dog", "p_eel"]
    assert [row["index"] for row in found] == [str(k) for k in range(60)]
    assert [row["predicted"] for row in found] == [
        ("'=cat", "dog", "eel")[k] for k in predicted
    ]  # no formula for a spreadsheet
    for row, shares, k in zip(found, probabilities, predicted, strict=True):
        assert np.allclose([float(row[name]) for name in ("p_'=cat", "p_dog", "p_eel")], shares, atol=1e-6)
        assert abs(float(row["probability"]) - shares[k]) < 1e-6
    accuracy = 100 * float((predicted == np.arange(60) % 3).mean())
    assert result.output.splitlines() == [
        "60 examples predicted: out.csv",
        f"{accuracy:.2f} % of the labels in labelled.npz are predicted",
    ]


@pytest.mark.usefixtures("here")
def test_the_three_formats_say_the_same():
    for name in ("out.npz", "out.json", "out.csv"):
        assert run("features", "--data", "plain.npz", "--out", name, "--quiet").output == ""
    with np.load("out.npz") as file:
        arrays = dict(file)
    lines = [json.loads(line) for line in Path("out.json").read_text(encoding="utf-8").splitlines()]
    assert arrays["classes"].tolist() == ["=cat", "dog", "eel"]
    assert np.array_equal(arrays["probabilities"], noiseproof.load("features").probabilities(np.load("plain.npz")["x"]))
    assert "path" not in arrays
    for k, (line, row) in enumerate(zip(lines, rows(), strict=True)):
        assert line["index"] == arrays["index"][k] == int(row["index"])
        assert line["predicted"] == arrays["classes"][arrays["predicted"][k]] == row["predicted"].removeprefix("'")
        assert list(line["probabilities"]) == ["=cat", "dog", "eel"]
        assert np.allclose(list(line["probabilities"].values()), arrays["probabilities"][k], atol=1e-6)
        assert line["path"] is None


@pytest.mark.usefixtures("here")
def test_standard_output_has_the_results_alone():
    for form, first in (("csv", "index,path,predicted"), ("json", '{"index": 0')):
        result = run("features", "--data", "labelled.npz", "--out", "-", "--format", form)
        assert result.exit_code == 0
        assert result.stdout.startswith(first)
        assert len(result.stdout.splitlines()) == 60 + (form == "csv")
        assert "60 examples predicted" in result.stderr
    assert "npz is not text: give --out FILE" in run("features", "--data", "plain.npz", "--out", "-", "--format", "npz").stderr


def image_places():
    Path("flat").mkdir()
    for path in sorted(Path("folders").glob("*/*.png")):
        shutil.copy(path, "flat")
    names = sorted(path.name for path in Path("flat").iterdir())
    Path("paths.txt").write_text("".join(f"flat/{name}\n" for name in names))
    Path("header.csv").write_text("path\n" + "".join(f"flat/{name}\n" for name in names))
    Path("labels.csv").write_text("path,label\n" + "".join(f"flat/{k}.png,{('bright', 'dark')[k % 2]}\n" for k in range(6)))
    Path("numbers.txt").write_text("".join(f"flat/{k}.png {k % 2}\n" for k in range(6)))
    Path("strange.csv").write_text("path,label\n" + "".join(f"flat/{name},odd\n" for name in names))


@pytest.mark.usefixtures("here")
def test_images_come_from_a_folder_a_list_or_a_file():
    image_places()
    wanted = {}
    for place in ("flat", "folders", "paths.txt", "header.csv", "labels.csv", "numbers.txt", "strange.csv", "flat/3.png"):
        result = run("images", "--data", place, "--out", "out.csv")
        assert result.exit_code == 0, result.output
        labelled = place in ("folders", "labels.csv", "numbers.txt")
        assert ("of the labels in" in result.output) == labelled
        found = {Path(row["path"]).name: float(row["p_dark"]) for row in rows()}
        wanted = wanted or found
        assert all(abs(wanted[name] - share) < 2e-6 for name, share in found.items())  # a batch of one may round otherwise
        assert len(found) == (1 if place == "flat/3.png" else 6)
    trained = noiseproof.load("images")
    paths = [f"flat/{k}.png" for k in range(6)]
    right = 100 * float((trained.predict(paths) == np.arange(6) % 2).mean())
    assert f"{right:.2f} % of the labels in folders" in run("images", "--data", "folders", "--out", "out.csv").output
    assert "'odd' is no class of the run" in run("images", "--data", "strange.csv", "--out", "out.csv").stderr


@pytest.mark.usefixtures("here")
def test_features_come_from_a_csv_with_or_without_labels_and_names():
    x = np.load("plain.npz")["x"]
    numbers = [",".join(map(repr, row.tolist())) for row in x]
    names = [("=cat", "dog", "eel")[k % 3] for k in range(60)]
    Path("plain.csv").write_text("\n".join(numbers))
    Path("header.csv").write_text("a,b,c,d\n" + "\n".join(numbers))
    Path("label.csv").write_text(
        "id,a,b,label,c,d\n"
        + "\n".join(
            f"row{k},{','.join(line.split(',')[:2])},{names[k]},{','.join(line.split(',')[2:])}"
            for k, line in enumerate(numbers)
        )
    )
    Path("last.csv").write_text("\n".join(f"{line},{k % 3}" for k, line in enumerate(numbers)))
    run("features", "--data", "labelled.npz", "--out", "npz.csv")
    for place in ("plain.csv", "header.csv", "label.csv", "last.csv"):
        result = run("features", "--data", place, "--out", "out.csv")
        assert result.exit_code == 0, result.output
        assert ("of the labels in" in result.output) == (place in ("label.csv", "last.csv"))
        assert [row["p_dog"] for row in rows()] == [row["p_dog"] for row in rows("npz.csv")]
        assert [row["path"] for row in rows()][:2] == (["row0", "row1"] if place == "label.csv" else ["", ""])


@pytest.mark.usefixtures("here")
def test_labels_are_not_taken_for_a_missing_feature():
    """Without one of its features a labelled table has as many columns as the network reads."""
    values = np.random.default_rng(0).normal(size=(3, 4))
    for header, status in (("a,b,c,label", 2), ("a,b,c,d", 0)):
        text = "\n".join([header, *(",".join(map(str, row)) for row in values)])
        Path("new.csv").write_text(text, encoding="utf-8")
        done = run("features", "--data", "new.csv", "--out", "out.csv")
        assert done.exit_code == status, done.output
        assert ("4 columns, and the network was trained on 4 features, with or without labels" in done.stderr) == bool(status)


@pytest.fixture
def by_name(here):
    """A run on a CSV whose columns have names, one of them as labels often are, and the numbers of its rows."""
    y = np.arange(40) % 2
    values = {"width": 5.0 * y, "y": 0.5 * (np.arange(40) % 5), "height": 7.0 - 3 * y + np.arange(40) % 3}
    Path("train.csv").write_text(table(["width", "y", "height", "kind"], values | {"kind": y}))
    trained_run(Path("named"), open_dataset("train.csv", label="kind"), model="mlp", model_options={"hidden": [8]}, epochs=20)
    return values | {"kind": y}


def table(header, values):
    return "\n".join([",".join(header), *(",".join(map(str, row)) for row in zip(*(values[n] for n in header), strict=True))])


@pytest.mark.parametrize("header", ["width y height", "height width y", "kind height y width", "y height kind width"])
def test_columns_of_a_csv_are_taken_by_the_names_that_they_had_in_training(by_name, header):
    Path("new.csv").write_text(table(header.split(), by_name))
    done = run("named", "--data", "new.csv", "--out", "out.csv")
    assert done.exit_code == 0, done.output
    assert [int(row["predicted"]) for row in rows()] == by_name["kind"].tolist()
    assert ("100.00 % of the labels in new.csv" in done.output) == ("kind" in header)


@pytest.mark.parametrize(
    ("header", "missing"),
    [
        ("width height kind", "column 'y' of training is missing"),
        ("y height kind", "column 'width' of training is missing"),
        ("width y label", "column 'height' of training is missing"),
        ("width y Height kind label", "column 'height' of training is missing"),
        ("width kind", "columns 'y', 'height' of training are missing"),
    ],
)
def test_a_missing_column_is_an_error_with_its_name(by_name, header, missing):
    """Labels of numbers must not be read as the feature that is not there, and what follows it as its neighbour."""
    values = by_name | {"label": by_name["kind"], "Height": by_name["height"]}
    Path("new.csv").write_text(table(header.split(), values))
    done = run("named", "--data", "new.csv", "--out", "out.csv")
    assert done.exit_code == 2
    assert f"error: new.csv: {missing}" in done.stderr
    assert not Path("out.csv").exists()
    with pytest.raises(DataError, match=f"^{missing}"):
        noiseproof.load("named").predict(pd.DataFrame({name: values[name] for name in header.split()}))


@pytest.mark.parametrize(
    ("header", "place", "right"),
    [
        ("when width y height kind", "new.csv#kind", True),
        ("kind wrong width y height", "new.csv#wrong", False),
        ("width y height kind label", "new.csv", True),  # they are called as in training
        ("when width y height", "new.csv", None),
    ],
)
def test_columns_of_training_are_taken_out_of_more_and_the_labels_are_those_that_are_named(by_name, header, place, right):
    more = {"wrong": 1 - by_name["kind"], "label": 1 - by_name["kind"], "when": ["2024-05-01"] * 40}
    Path("new.csv").write_text(table(header.split(), by_name | more))
    done = run("named", "--data", place, "--out", "out.csv")
    assert done.exit_code == 0, done.output
    assert [int(row["predicted"]) for row in rows()] == by_name["kind"].tolist()
    assert ("of the labels in" in done.output) == (right is not None)
    assert right is None or f"{100 * right:.2f} % of the labels in {place} are predicted" in done.output


def test_a_label_column_without_a_header_is_a_number(by_name):
    columns = [by_name[name] for name in ("kind", "width", "y", "height")]
    Path("plain.csv").write_text("\n".join(",".join(map(str, row)) for row in zip(*columns, strict=True)))
    trained_run(Path("plain"), open_dataset("plain.csv", label="0"), model="mlp", model_options={"hidden": [8]}, epochs=20)
    done = run("plain", "--data", "plain.csv", "--out", "out.csv")
    assert "100.00 % of the labels in plain.csv are predicted" in done.output, done.output
    done = run("named", "--data", "plain.csv", "--out", "out.csv")
    assert "columns 'width', 'y', 'height' of training are missing; the columns are '0', '1', '2', '3': a first" in done.stderr


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("new.csv#knid", "no column is called 'knid'; did you mean 'kind'? the columns are 'width', 'y', 'height', 'kind'"),
        ("new.csv#y", "column 'y' is a feature of the network, so it cannot hold labels"),
        ("plain.npz#y", "FILE#COLUMN says which column of a table of features has the labels; leave #y out"),
    ],
)
def test_a_label_column_that_cannot_be_is_said(by_name, place, said):
    Path("new.csv").write_text(table(["width", "y", "height", "kind"], by_name))
    done = run("named", "--data", place, "--out", "out.csv")
    assert done.exit_code == 2
    assert said in done.stderr


@pytest.mark.usefixtures("here")
def test_a_format_that_is_not_written_is_refused_unless_one_is_said():
    done = run("features", "--data", "plain.npz", "--out", "out.parquet")
    assert "error: --out out.parquet: predictions are written as .csv, .npz or .json, got '.parquet'; --format" in done.stderr
    assert not Path("out.parquet").exists()
    assert run("features", "--data", "plain.npz", "--out", "out.table", "--format", "csv").exit_code == 0


def test_the_columns_of_a_data_frame_are_taken_by_name_too(by_name):
    trained = noiseproof.load("named")
    assert trained.columns == ("width", "y", "height")
    for columns in (["width", "y", "height"], ["height", "width", "y"], ["kind", "height", "width", "y"]):
        assert trained.predict(pd.DataFrame(by_name)[columns]).tolist() == by_name["kind"].tolist()
        assert trained.predict({name: by_name[name] for name in columns}).tolist() == by_name["kind"].tolist()
    array = np.stack([by_name[name] for name in trained.columns], 1)
    assert trained.predict(array).tolist() == by_name["kind"].tolist()
    with pytest.raises(DataError, match=r"trained on 3 columns, got an array of shape \(40, 2\)"):
        trained.predict(array[:, :2])


def test_columns_of_a_data_frame_that_are_numbers_are_taken_as_the_texts_of_a_table(by_name):
    frame = pd.DataFrame({2: by_name["width"], 0: by_name["y"], 1: by_name["height"], "kind": by_name["kind"]})
    trained_run(Path("numbered"), open_dataset(frame, label="kind"), model="mlp", model_options={"hidden": [8]}, epochs=20)
    trained = noiseproof.load("numbered")
    assert trained.predict(frame[[1, 0, 2]]).tolist() == trained.predict(frame).tolist() == by_name["kind"].tolist()


def test_a_run_of_before_has_no_encoder_and_reads_its_columns_by_name(by_name):
    """Its features were the numbers of a CSV file, which training standardised; gaps cannot be filled in."""
    x = np.stack([by_name[name] for name in ("width", "y", "height")], 1).astype(np.float32)
    before = dataclasses.replace(from_arrays(x, by_name["kind"]), columns=("width", "y", "height"))
    trained_run(Path("before"), before, model="mlp", model_options={"hidden": [8]}, epochs=20, standardise=True)
    assert not Path("before/encoder.safetensors").exists()
    Path("new.csv").write_text(table(["height", "kind", "width", "y"], by_name))
    done = run("before", "--data", "new.csv#kind", "--out", "out.csv")
    assert "100.00 % of the labels in new.csv#kind are predicted" in done.output, done.output
    trained = noiseproof.load("before")
    assert np.array_equal(trained.logits(pd.DataFrame(by_name)), trained.logits(from_arrays(x, by_name["kind"]).train))
    gap = pd.DataFrame(by_name).astype(float)
    gap.loc[7, "width"] = np.nan
    with pytest.raises(DataError, match="column 'width' has no number in row 8"):
        trained.predict(gap)


def other_examples():
    np.savez("wide.npz", x=np.zeros((3, 5)))
    np.savez("ints.npz", x=np.zeros((3, 4), int))
    np.savez("large.npz", x=np.zeros((3, 9, 8), np.uint8))
    np.savez("labels.npz", x=np.zeros((3, 4)), y=np.arange(3) + 7)
    Path("wide.csv").write_text("1,2,3,4,5,6\n")
    Path("mixed").mkdir()
    Path("mixed/inner").mkdir()
    Path("empty").mkdir()
    Image.new("RGB", (8, 8), (255, 0, 0)).save("mixed/red.png")
    Path("thing.bin").touch()


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("features", "wide.npz", r"the network was trained on floating features \[N, 4\], got float32 of shape \(3, 5\)"),
        ("features", "ints.npz", "ints.npz, x: inputs must be uint8 images or floating features, got int64"),
        ("features", "wide.csv", "wide.csv: 6 columns, and the network was trained on 4 features, with or without labels"),
        ("features", "labels.npz", r"labels.npz, x and y: labels must be in \[0, 2\], got 9"),
        ("features", "folders", r"trained on features \[N, 4\], and folders/bright/0.png is an image file"),
        ("features", "none.npz", "none.npz: no such file or folder"),
        (
            "features",
            "thing.bin",
            "thing.bin: examples to predict are a table .*, an .npz file, a list .*, a folder or an image, got '.bin'",
        ),
        ("images", "large.npz", r"trained on images uint8 \[N, 8, 8, 1\], from 0 to 255, got uint8 of shape \(3, 9, 8\)"),
        ("images", "mixed", "mixed: has images and folders; give one of the folders"),
        ("images", "mixed/red.png", "mixed/red.png: in colour, and the network was trained on grey images"),
        ("images", "empty", "empty: no images"),
        ("folders", "folders", "folders: not the folder of a run, it has no record.json"),
        ("nothing", "folders", "nothing: no run, and no file of weights"),
    ],
)
@pytest.mark.usefixtures("here")
def test_what_does_not_fit_is_said_in_one_sentence_and_nothing_is_written(name, data, message):
    other_examples()
    result = run(name, "--data", data, "--out", "out.csv")
    assert result.exit_code == 2
    assert re.match(rf"error: .*{message}", result.stderr), result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not [path for path in Path().iterdir() if "out.csv" in path.name]


@pytest.mark.usefixtures("here")
def test_a_file_is_replaced_whole_or_not_at_all(monkeypatch):
    Path("out.csv").write_text("before")
    Path("bad").mkdir()
    shutil.copy("folders/bright/0.png", "bad/0.png")
    Path("bad/1.png").write_bytes(b"no image")
    result = run("images", "--data", "bad", "--out", "out.csv")
    assert "bad/1.png: not an image" in result.stderr
    assert Path("out.csv").read_text() == "before"
    assert "no folder none" in run("images", "--data", "flat", "--out", "none/out.csv").stderr


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (KeyboardInterrupt(), 130, "stopped; nothing was written"),
        (torch.OutOfMemoryError(), 2, "--device cpu uses the computer's"),
    ],
)
@pytest.mark.usefixtures("here")
def test_an_early_end_is_said_and_leaves_nothing(monkeypatch, error, status, message):
    def ends(*_, **options):
        raise error

    monkeypatch.setattr("noiseproof.train.preprocessing.Preprocessing.batches", ends)
    result = run("features", "--data", "plain.npz", "--out", "out.csv")
    assert result.exit_code == status
    assert message in result.stderr
    assert not [path for path in Path().iterdir() if "out.csv" in path.name]


@pytest.mark.usefixtures("here")
def test_a_bar_is_shown_on_a_terminal():
    def printed(*more):
        command = ["predict", "features", "--data", "plain.npz", "--out", "out.csv", *more]
        terminal = {"COLUMNS": "100", "TERM": "xterm", "FORCE_COLOR": "1"}  # rich takes it for one
        return CliRunner().invoke(app, command, env=terminal).stderr

    assert re.search("predicting.*60/60", printed())
    assert printed("--quiet") == ""


@pytest.mark.usefixtures("here")
def test_the_data_are_not_written_over():
    shutil.copy("plain.npz", "mine.npz")
    before = Path("mine.npz").read_bytes()
    result = run("features", "--data", "mine.npz", "--out", "./mine.npz")
    assert result.exit_code == 2
    assert "--out ./mine.npz: the data would be written over; choose another file" in result.stderr
    assert Path("mine.npz").read_bytes() == before
    Path("new.csv").write_text("a,b,c,d,kind\n1,2,3,4,dog\n")
    result = run("features", "--data", "new.csv#kind", "--out", "new.csv")
    assert "--out new.csv: the data would be written over" in result.stderr


@pytest.mark.usefixtures("here")
def test_of_many_classes_the_likeliest_are_written(tmp_path):
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(120, 3)), np.arange(120) % 101
    trained_run(tmp_path / "many", from_arrays(x, y), model="mlp", model_options={"hidden": []})
    np.savez("new.npz", x=x[:4])
    run("many", "--data", "new.npz", "--out", "out.csv")
    run("many", "--data", "new.npz", "--out", "out.json")
    probabilities = noiseproof.load("many").probabilities(x[:4])
    lines = [json.loads(line) for line in Path("out.json").read_text(encoding="utf-8").splitlines()]
    for row, line, shares in zip(rows(), lines, probabilities, strict=True):
        top = np.argsort(-shares, kind="stable")[:5]
        assert [row[f"class_{k}"] for k in range(1, 6)] == [str(k) for k in top] == list(line["probabilities"])
        assert np.allclose([float(row[f"p_{k}"]) for k in range(1, 6)], shares[top], atol=1e-6)
        assert len(row) == 14
        assert row["predicted"] == row["class_1"]


@pytest.mark.usefixtures("here")
def test_train_ends_with_the_command_that_predicts_also_for_a_network_of_ones_own(monkeypatch):
    monkeypatch.setattr("noiseproof.report.charts.draw_curves", lambda *_: None)
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("my_module.py").write_text(MODULE, encoding="utf-8")
    trained = call("train", "ce", "--data", "labelled.npz", "--model", "my_module:network", "--set", "epochs=1")
    command = trained.stdout.splitlines()[-1].removeprefix("for new examples: ")
    assert command.endswith("--data PLACE --out predictions.csv --model my_module:network")
    words = shlex.split(command.replace("PLACE", "plain.npz"))
    assert words[:2] == ["noiseproof", "predict"]
    assert call(*words[1:]).exit_code == 0
    assert len(rows("predictions.csv")) == 60
    assert "is not run unasked" in call(*words[1:-2]).stderr
    Path("my_module.py").write_text(MODULE + "\nmore = 1\n", encoding="utf-8")
    assert "warning: " in (changed := call(*words[1:]).stderr)
    assert "the code of my_module:network is not that of the run" in changed
    sys.modules.pop("my_module")


@pytest.mark.usefixtures("here")
def test_the_commands_of_the_documentation_run():
    shutil.copytree("features", "runs/NAME")
    shutil.copy("plain.npz", "new.npz")
    np.savetxt("new.csv", np.load("plain.npz")["x"], delimiter=",")
    lines = re.findall(
        r"^ {4}(noiseproof predict .*)", (ROOT / "docs" / "how_to" / "train.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert len(lines) == 2
    for line in lines:
        result = call(*shlex.split(line, comments=True)[1:])
        assert result.exit_code == 0, result.output
        assert "60 examples predicted" in result.output


@pytest.mark.usefixtures("here")
def test_runs_are_completed():
    Path("runs").mkdir()
    for name in ("one", "other"):
        shutil.copytree("features", f"runs/{name}")

    def tab(line):
        words = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")), "_NOISEPROOF_COMPLETE": "complete_bash"}
        return CliRunner().invoke(app, [], prog_name="noiseproof", env=words).output.split()

    assert tab("noiseproof predict runs/o") == ["runs/one", "runs/other"]
    assert tab("noiseproof predict ru") == ["runs/one", "runs/other"]
    assert tab("noiseproof predict runs/one --format n") == ["npz"]


def test_the_name_of_a_data_set_is_predicted_by_its_test_split(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    digits = open_dataset("digits")
    trained_run(Path("digits-run"), digits, model="mlp", model_options={"hidden": [8]}, standardise=True)
    done = run("digits-run", "--data", "digits", "--out", "out.csv")
    assert done.exit_code == 0, done.output
    accuracy = 100 * float((noiseproof.load("digits-run").predict(digits.test) == digits.test.labels).mean())
    assert f"{accuracy:.2f} % of the labels in digits are predicted" in done.output
    assert len(rows()) == 500
