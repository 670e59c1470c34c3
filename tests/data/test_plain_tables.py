"""CSV files of numbers with a column of labels: headers, names of rows, what is wrong and where, copies with other labels."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from noiseproof.audit.decisions import write_cleaned
from noiseproof.data import DataError, open_dataset, open_unlabelled
from noiseproof.data.opening import is_list


def written(folder, *lines, name="t.csv"):
    path = Path(folder) / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def rows_of(dataset):
    return (
        dataset.table.rows["train"]
        .drop(columns=[] if dataset.table.names is None else dataset.table.names)
        .astype(float)
        .values.tolist()
    )


@pytest.mark.parametrize(
    "lines",
    [
        ("a,b,species", "1,2.5,cat", "3e1,-4,dog"),  # no word for a label: the last column
        ("a,target,b", "1,cat,2.5", "3e1,dog,-4"),
        ('"a";"b";"Class"', '1;2.5;"cat"', "3e1;-4;dog"),
        ("a\tb\tlabel", "1\t2.5\tcat", "3e1\t-4\tdog"),
        ("1,2.5,cat", "", "3e1,-4,dog"),  # no header
        (",0,1,label", "0,1,2.5,cat", "1,3e1,-4,dog"),  # as pandas writes a frame
        (",0,1,2", "0,1,2.5,cat", "1,3e1,-4,dog"),  # whose columns have no names
        ("id,a,b,label", "x7,1,2.5,cat", "x8,3e1,-4,dog"),
        ("year,2019,kind", "1,2.5,cat", "3e1,-4,dog"),  # a number as a column's name
        ("\ufeffa,b,label\r", "1,2.5,cat\r", "3e1,-4,dog\r"),
    ],
)
def test_a_table_is_features_and_labels(tmp_path, lines):
    found = open_dataset(written(tmp_path, *lines))
    assert rows_of(found) == [[1, 2.5], [30, -4]]
    assert found.train.labels.tolist() == [0, 1]
    assert found.classes == ("cat", "dog")
    assert found.train.paths == (("x7", "x8") if "id" in lines[0] else ("0", "1") if lines[0][0] == "," else None)


def test_labels_may_be_numbers_and_the_column_may_be_said(tmp_path):
    path = written(tmp_path, "a,label,b", "1,2,0", "3,4,1")
    assert open_dataset(path).classes == ("2", "4")
    for said in (open_dataset(f"{path}#b"), open_dataset(path, label="b")):
        assert said.train.labels.tolist() == [0, 1]
        assert [one.name for one in said.table.encoder.columns] == ["a", "label"]
    with pytest.raises(DataError, match=r"t\.csv: no column is called 'lable'; did you mean 'label'\? the columns are 'a', '"):
        open_dataset(f"{path}#lable")
    with pytest.raises(FileNotFoundError):
        open_dataset(tmp_path / "other.csv#b")


@pytest.mark.parametrize("gap", ["", "nan", "NA", "?", "inf", "1e999"])
def test_a_first_example_with_a_gap_is_not_lost_as_a_header(tmp_path, gap):
    for first in (f"1,{gap},cat", f"{gap},2,cat"):
        assert len(open_dataset(written(tmp_path, first, *["3,4,dog", "5,6,dog"] * 15)).train) == 31


@pytest.mark.parametrize("slip", ["1_0", "2nd"])
def test_a_first_example_with_a_slip_is_an_error_with_its_row(tmp_path, slip):
    for column, first in (("1", f"1,{slip},cat"), ("0", f"{slip},2,cat")):
        with pytest.raises(
            DataError, match=f"column '{column}' is a column of numbers, except '{slip}' in row 1; correct these to be like"
        ):
            open_dataset(written(tmp_path, first, *["3,4,dog", "5,6,dog"] * 15))


def test_a_first_example_of_gaps_alone_is_not_lost_as_a_header(tmp_path):
    with pytest.raises(DataError, match=r"1 of 3 rows have no label in column '2', the first is row 1"):
        open_dataset(written(tmp_path, "NA,nan,?", "3,4,dog", "5,6,dog"))


@pytest.mark.parametrize("first", ["#1,7,cat", '"#1",7,cat', "# a comment, with commas, cat"])
def test_a_row_that_begins_with_a_number_sign_is_a_row(tmp_path, first):
    dataset = open_dataset(written(tmp_path, "code,size,label", first, "b,8,dog", "c,9,cat"), columns="code=category")
    assert len(dataset.train) == 3
    assert dataset.table.rows["train"]["code"].tolist()[0].startswith("#")


def test_mostly_numbers_are_a_table_also_beside_the_name_of_an_image(tmp_path):
    assert not is_list(written(tmp_path, "1,2,3,0.png,cat", "4,5,6,1.png,dog"))
    assert is_list(written(tmp_path, "1,a,b,0.png,cat", "4,c,d,1.png,dog"))
    assert not is_list(written(tmp_path, "path,label,width", "x7,0,28", "x8,1,28"))
    assert not is_list(written(tmp_path, "path,label,who", "x7,0,Ann", "x8,1,Bob"))


def test_lists_of_images_stay_lists(tmp_path):
    for k in range(2):
        (tmp_path / f"{k}.png").write_bytes(b"")
    for lines in (("0.png,0", "1.png,1"), ("path,label,width", "0.png,0,28", "1.png,1,28"), ("0.png\tcat", "1.png\tdog")):
        assert not open_dataset(written(tmp_path, *lines)).train.in_memory


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (("a,b,label", "1,2,cat", "2,3"), r"t\.csv:3: 2 cells, and there are 3 columns: there is none for column 'label'"),
        (("a,b,label", "1,2,1.5", "2,3,1"), r"labels in column 'label' must be classes, got the number 1.5: is this a reg"),
        (
            ("a,b,label", "1,2,", "2,3,1"),
            r"1 of 2 rows have no label in column 'label', the first is row 1; fill",
        ),
        (("label,class,a", "1,2,3"), r"which column has the labels\? 'label', 'class' could; --label says which"),
        (("a,label",), r"t\.csv: the table has no rows"),
        (("id,label", *(f"{k},{k % 2}" for k in range(20))), r"no column is left to learn from: id left out: all different"),
        (("label", "cat", "dog"), r"t\.csv"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path, lines, message):
    with pytest.raises((DataError, FileNotFoundError), match=message):
        open_dataset(written(tmp_path, *lines))


def test_columns_of_one_kind_are_as_they_are_and_others_are_scaled(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (60, 12))
    pixels[:, 3], pixels[:, 5] = 0, pixels[:, 4]  # constant, and a copy: a pixel is a pixel
    frame = pd.DataFrame(pixels).assign(label=np.arange(60) % 3)
    frame.to_csv(tmp_path / "pixels.csv", index=False)
    dataset = open_dataset(tmp_path / "pixels.csv")
    assert np.array_equal(dataset.train.inputs, pixels.astype(np.float32))
    assert not dataset.train.scaled
    assert dataset.table.lines == ["12 columns of numbers of one kind"]
    frame.assign(size=np.arange(60) * 1000.0).to_csv(tmp_path / "mixed.csv", index=False)
    assert open_dataset(tmp_path / "mixed.csv", label="label").train.scaled


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet", "t.jsonl"])
def test_a_table_is_copied_with_other_labels_and_without_rows(tmp_path, name):
    frame = pd.DataFrame({"id": list("xywvu"), "a": [1.5, 2, 3, 4, 5], "label": ["cat", "dog", None, "dog", "cat"]})
    if name.endswith(".parquet"):
        frame.to_parquet(tmp_path / name)
    elif name.endswith(".jsonl"):
        frame.to_json(tmp_path / name, orient="records", lines=True)
    else:
        frame.to_csv(tmp_path / name, index=False)
    dataset = open_dataset(tmp_path / name, drop_unlabelled=True)
    (tmp_path / "out").mkdir()
    labels, kept = np.array([1, 1, 0, 0]), np.array([True, True, True, False])
    to = write_cleaned(dataset, str(tmp_path / name), labels, kept, tmp_path / "out")
    again = open_dataset(to, drop_unlabelled=True)
    assert again.train.paths == ("x", "y", "v")
    assert [again.classes[k] for k in again.train.labels] == ["dog", "dog", "cat"]


def test_a_copy_leaves_the_text_of_other_cells_and_rows_to_test_on_as_they_were(tmp_path):
    path = written(tmp_path, "id;a;label;split", "x;1.50;cat;train", '"y; z";2;dog;test', "w;3;dog;train")
    dataset = open_dataset(path, split_column="split", label="label")
    (tmp_path / "out").mkdir()
    to = write_cleaned(dataset, f"{path}", np.array([1, 0]), np.array([True, True]), tmp_path / "out")
    assert to.read_text() == 'id;a;label;split\nx;1.50;dog;train\n"y; z";2;dog;test\nw;3;cat;train\n'


@pytest.mark.parametrize("header", ["0,1,2", "2,0,1", "2,0,1,kind"])
def test_columns_that_were_called_by_numbers_in_training_are_no_example(tmp_path, header):
    """As pandas writes an array: to predict it, its header of numbers must not be taken for its first row."""
    values = np.random.default_rng(0).normal(size=(40, 3))
    encoder = open_dataset(values, label=np.arange(40) % 2).table.encoder
    new = {"0": "5", "1": "6", "2": "7", "kind": "a"}
    file = tmp_path / "new.csv"
    file.write_text(f"{header}\n{','.join(new[name] for name in header.split(','))}\n", encoding="utf-8")
    wanted = encoder.transform(pd.DataFrame({"0": [5], "1": [6], "2": [7]}))
    found = open_unlabelled(file, ("a", "b"), 3, encoder, label="kind")
    assert np.array_equal(found.examples.inputs, wanted)
    assert (found.labels is None) == ("kind" not in header)
    file.write_text("5,6,7\n", encoding="utf-8")
    assert np.array_equal(open_unlabelled(file, ("a", "b"), 3, encoder).examples.inputs, wanted)
