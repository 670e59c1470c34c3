"""What people hand in as a data set: frames, arrays, texts, files; the labels, the rows to test on, the kinds given."""

import numpy as np
import pandas as pd
import pytest
import torch

from noiseproof.data import DataError, open_dataset, read_frame
from tests.helpers.messy_table import messy_table


def test_a_frame_with_the_name_of_its_label_column_is_a_data_set():
    frame, _ = messy_table(300)
    dataset = open_dataset(frame, label="churn")
    assert dataset.classes == ("no", "yes")
    assert dataset.train.labels.tolist() == [int(one == "yes") for one in frame["churn"]]
    assert dataset.train.paths == tuple(frame["id"])
    gaps = round(100 * frame["age"].isna().mean())
    assert dataset.table.lines[:2] == ["id left out: names the rows", f"age number, {gaps} % missing"]
    new = dataset.table.encoder.transform(read_frame(frame.drop(columns="churn")))
    assert np.array_equal(new, dataset.train.inputs)


@pytest.mark.parametrize(
    "label", [["a", "b"] * 50, np.tile([1, 2], 50), torch.tensor([-1, 1] * 50), pd.Series([True, False] * 50)]
)
@pytest.mark.parametrize("of", [np.asarray, torch.tensor, pd.DataFrame])
def test_arrays_and_tensors_go_with_labels_of_any_type(of, label):
    x = np.random.default_rng(0).normal(size=(100, 5))
    dataset = open_dataset(of(x), label=label)
    assert dataset.train.inputs.shape == (100, 5)
    assert len(dataset.classes) == 2
    assert len(set(dataset.train.labels[::2])) == 1


def test_an_array_with_gaps_is_marked_where_they_are():
    x = np.random.default_rng(0).normal(size=(40, 3))
    x[7, 1] = np.nan
    dataset = open_dataset(x, label=np.arange(40) % 2)
    assert dataset.table.encoder.feature_names == ["0", "1", "1 missing", "2"]
    assert dataset.train.inputs[:, 2].tolist() == [float(k == 7) for k in range(40)]


def test_lists_of_texts_of_image_files_and_arrays_of_images():
    texts = open_dataset(["good", "bad"] * 20, label=["g", "b"] * 20)
    assert texts.table.lines == ["text text"]
    files = open_dataset(["a.png", "b.jpg"], label=["x", "y"])
    assert (files.train.paths, files.classes) == (("a.png", "b.jpg"), ("x", "y"))
    images = open_dataset(np.zeros((4, 8, 8, 3), np.uint8), label=[5, 7, 5, 7])
    assert (images.train.kind, images.classes, images.train.labels.tolist()) == ("images", ("5", "7"), [0, 1, 0, 1])


def test_a_column_says_which_rows_are_tested_on_and_the_encoder_never_sees_them():
    frame = pd.DataFrame({"size": np.arange(40.0), "kind": ["a", "b"] * 20, "y": [0, 1] * 20})
    frame.loc[30:, "kind"] = "new"
    frame["split"] = ["train"] * 30 + ["test"] * 8 + ["dev"] * 2
    dataset = open_dataset(frame, label="y", split_column="split")
    assert {name: len(split) for name, split in dataset.splits.items()} == {"train": 30, "test": 8, "dev": 2}
    assert dataset.table.encoder.feature_names == ["size", "kind = a", "kind = b"]
    assert not dataset.test.inputs[:, 1:].any()
    for flags in (frame["split"] == "test", (frame["split"] == "test").astype(int)):
        assert len(open_dataset(frame.assign(split=flags), label="y", split_column="split").test) == 8


def test_another_table_is_tested_on_with_the_classes_of_training(tmp_path):
    frame, _ = messy_table(200)
    frame[:150].to_csv(tmp_path / "train.csv", index=False)
    frame[150:].to_parquet(tmp_path / "test.parquet")
    dataset = open_dataset(tmp_path / "train.csv", label="churn", test=tmp_path / "test.parquet")
    assert (len(dataset.train), len(dataset.test)) == (150, 50)
    with pytest.raises(DataError, match="no column 'churn' of labels"):
        open_dataset(frame, label="churn", test=frame.drop(columns="churn"))
    with pytest.raises(DataError, match="a label that training does not have, 'no'"):
        open_dataset(frame[frame["churn"] == "yes"], label="churn", test=frame)


def test_held_out_rows_are_encoded_by_the_others_alone():
    frame = pd.DataFrame({"size": np.arange(40.0), "y": [0, 1] * 20})
    mask = np.arange(40) >= 20
    table, train, test = open_dataset(frame, label="y").table.held_out(mask)
    # The median of 0..19 is 9.5 and their interquartile range 9.5; three of these ranges are where squashing sets in.
    scaled = (np.arange(40) - 9.5) / 9.5
    expected = scaled / np.sqrt(1 + (scaled / 3) ** 2)
    assert np.allclose(np.concatenate([train, test])[:, 0], expected, atol=1e-6)
    assert {name: len(rows) for name, rows in table.rows.items()} == {"train": 20, "test": 20}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label": "chrun"}, "no column is called 'chrun'; did you mean 'churn'?"),
        ({"label": [0, 1]}, "2 labels for 60 examples"),
        ({"label": "churn", "split_column": "plan"}, "column 'plan' should contain train and test"),
        ({"label": "churn", "split_column": "nowhere"}, "no column is called 'nowhere'"),
        ({"label": "churn", "columns": "agee=number"}, "no column is called 'agee'"),
        ({"label": "churn", "columns": "age=figure"}, "KIND one of number, category"),
        ({"label": "age"}, r"\d of 60 rows have no label in column 'age', the first is row \d+"),
    ],
)
def test_what_does_not_fit_the_table_is_one_sentence(options, message):
    frame, _ = messy_table(60)
    frame["plan"] = frame["plan"].fillna("basic")
    with pytest.raises(ValueError, match=message):
        open_dataset(frame, **options)


def test_rows_without_a_label_are_left_out_when_asked():
    frame = pd.DataFrame({"x": np.arange(30.0), "y": ["a", None, "b"] * 10})
    with pytest.raises(DataError, match="10 of 30 rows have no label in column 'y', the first is row 2"):
        open_dataset(frame, label="y")
    dataset = open_dataset(frame, label="y", drop_unlabelled=True)
    assert (len(dataset.train), dataset.classes) == (20, ("a", "b"))
    assert dataset.table.rows["train"]["x"].tolist() == [k for k in range(30) if k % 3 != 1]


def test_a_column_that_gives_the_label_away_is_pointed_at():
    frame, _ = messy_table(100)
    dataset = open_dataset(frame.assign(paid=frame["churn"].map({"yes": "no", "no": "yes"})), label="churn")
    assert dataset.table.notes == (
        "column 'paid' nearly determines the label: leave it out if it is made from it, --columns paid=drop",
    )


def test_arrays_and_texts_without_labels_are_an_error_that_says_how_to_give_them():
    for source in (np.arange(40).reshape(10, 4), torch.zeros(4, 2), ["good", "bad"]):
        with pytest.raises(DataError, match="no labels of their own: label=LABELS gives them, one for each"):
            open_dataset(source)
    with pytest.raises(DataError, match="a table was expected, got int"):
        open_dataset(42)
