"""CSV files of features with a column of labels."""

from pathlib import Path

import numpy as np
import pytest

from noiseproof.data import DataError, open_dataset
from noiseproof.data.tables import is_table, read_features, relabelled


def written(folder, *lines, name="t.csv"):
    path = Path(folder) / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "lines",
    [
        ("a,b,species", "1,2.5,cat", "3e1,-4,dog"),  # no word for a label: the last column
        ("a,target,b", "1,cat,2.5", "3e1,dog,-4"),
        ('"a";"b";"Class"', '1;2.5;"cat"', "3e1;-4;dog"),
        ("a\tb\tlabel", "1\t2.5\tcat", "3e1\t-4\tdog"),
        ("# made by hand", "1,2.5,cat", "", "3e1,-4,dog"),  # no header
        (",0,1,label", "0,1,2.5,cat", "1,3e1,-4,dog"),  # as pandas writes a frame
        (",0,1,2", "0,1,2.5,cat", "1,3e1,-4,dog"),  # whose columns have no names
        ("id,a,b,label", "x7,1,2.5,cat", "x8,3e1,-4,dog"),
        ("year,2019,kind", "1,2.5,cat", "3e1,-4,dog"),  # a number as a column's name
        ("\ufeffa,b,label\r", "1,2.5,cat\r", "3e1,-4,dog\r"),
    ],
)
def test_a_table_is_features_and_labels(tmp_path, lines):
    found = open_dataset(written(tmp_path, *lines))
    assert found.train.inputs.tolist() == [[1, 2.5], [30, -4]]
    assert found.train.labels.tolist() == [0, 1]
    assert found.classes == ("cat", "dog")
    assert len(found.columns) == (0 if lines[0].startswith("#") else 2)  # a file without a header names none
    assert found.train.paths == (("x7", "x8") if "id" in lines[0] else ("0", "1") if lines[0][0] == "," else None)


def test_labels_may_be_numbers_and_the_column_may_be_said(tmp_path):
    path = written(tmp_path, "a,label,b", "1,2,0", "3,4,1")
    assert open_dataset(path).train.labels.tolist() == [2, 4]
    said = open_dataset(f"{path}#b")
    assert said.train.labels.tolist() == [0, 1]
    assert said.columns == ("a", "label")
    with pytest.raises(DataError, match=r"no columns are called 'lable'; did you mean 'label'\? the columns are 'a', '"):
        open_dataset(f"{path}#lable")
    with pytest.raises(FileNotFoundError):
        open_dataset(tmp_path / "other.csv#b")


@pytest.mark.parametrize("gap", ["", "nan", "NA", "inf", "1e999", "?", "1_0", "2nd"])
def test_a_first_example_with_a_gap_is_not_lost_as_a_header(tmp_path, gap):
    path = written(tmp_path, f"1,{gap},cat", "3,4,dog", "5,6,dog")
    with pytest.raises(DataError, match=r"t\.csv:1: column '1' should be a number, got"):
        open_dataset(path)
    with pytest.raises(DataError, match=r"t\.csv:1: column '0' should be a number, got"):
        open_dataset(written(tmp_path, f"{gap},2,cat", "3,4,dog", "5,6,dog"))


def test_a_first_example_of_gaps_alone_is_not_lost_as_a_header(tmp_path):
    with pytest.raises(DataError, match=r"t\.csv:1: column '0' should be a number, got 'NA'"):
        open_dataset(written(tmp_path, "NA,nan,?", "3,4,dog", "5,6,dog"))


def test_mostly_numbers_are_a_table_also_beside_the_name_of_an_image(tmp_path):
    assert is_table(written(tmp_path, "1,2,3,0.png,cat", "4,5,6,1.png,dog"))
    assert not is_table(written(tmp_path, "1,a,b,0.png,cat", "4,c,d,1.png,dog"))
    assert is_table(written(tmp_path, "path,label,width", "x7,0,28", "x8,1,28"))
    assert not is_table(written(tmp_path, "path,label,who", "x7,0,Ann", "x8,1,Bob"))


def test_lists_of_images_stay_lists(tmp_path):
    for k in range(2):
        (tmp_path / f"{k}.png").write_bytes(b"")
    for lines in (("0.png,0", "1.png,1"), ("path,label,width", "0.png,0,28", "1.png,1,28"), ("0.png\tcat", "1.png\tdog")):
        assert not open_dataset(written(tmp_path, *lines)).train.in_memory


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (("kind,a,b", "cat,1,2", "dog,3,4"), r"'kind' should .*; the labels are taken from the last column, 'b': FILE#"),
        (("kind,b,label", "cat,1,2", "dog,3,4"), r"'kind' should be a number, got 'cat'; fill .* columns path,label$"),
        (("a,b,label", "1,,cat", "2,3,dog"), r"t\.csv:2: column 'b' should be a number, got ''; fill in what is missing"),
        (
            ("when;city;amount;status", "23.12.2016;Bonn;1300,23;paid"),
            r"column 'when' should be a number, got '23.12.2016' \(on this line also 'city', 'amount'\); write",
        ),
        (("a;b;status", "1300,23;2,5;paid"), r"column 'a' .* got '1300,23' \(.* also 'b'\); write decimal points, fill in"),
        (("a,b,label", "1,2,cat", "2,nan,dog"), r"t\.csv:3: column 'b' should be a number, got 'nan'"),
        (("a,b,label", "1,2,cat", "2,1_0,dog"), r"t\.csv:3: column 'b' should be a number, got '1_0'"),
        (("a,b,label", "1,2,cat", "2,3"), r"t\.csv:3: 2 fields, and the first line has 3"),
        (("a,b,label", "1,2,cat", "2,3,1"), r"t\.csv:3: the label should be a name, as on the first row, got '1' in"),
        (("a,b,label", "1,2,1.5", "2,3,1"), r"t\.csv:2: the label should be a whole number, or a name on every row, got '1.5'"),
        (("a,b,price", "1,2,1.5", "2,3,1"), r"got '1.5' in column 'price'; FILE#COLUMN takes the labels from another$"),
        (("a,b,label", "1,2,1", "2,3,2.0"), r"t\.csv:3: .* got '2.0' in column 'label'; write 2$"),
        (("a,b,label", "1,2,1", "2,3,cat"), r"t\.csv:3: .* got 'cat' in column 'label'$"),
        (("a,b,label", "1,2,-1", "2,3,1"), r"t\.csv:2: labels must be in \[0, 1048575\], got -1"),
        (("a,b,label", "1,2,", "2,3,1"), r"t\.csv:2: no label in column 'label'; fill it in, or leave the row out"),
        (("label,class,a", "1,2,3"), r"which column has the labels\? 'label', 'class' could; FILE#COLUMN says which"),
        (("a,b,label", "1,1e300,0"), r"inputs must be within float32"),
        (("a,label",), r"a header and no rows"),
        (("id,label", "1,cat"), r"no column of features beside the labels, 'label'"),
    ],
)
def test_what_is_wrong_is_said_with_the_line(tmp_path, lines, message):
    with pytest.raises(DataError, match=message):
        open_dataset(written(tmp_path, *lines))


def test_a_table_is_copied_with_other_labels_and_without_rows(tmp_path):
    path = written(tmp_path, "id,a,label", "x,1.50,cat", '"y, z",2,dog', "w,3,dog")
    to = tmp_path / "new.csv"
    relabelled(path, None, np.array([1, 0, 1]), np.array([True, True, False]), to)
    assert to.read_text() == 'id,a,label\nx,1.50,dog\n"y, z",2,cat\n'


@pytest.mark.parametrize(("header", "moved"), [("0,1,2", False), ("2,0,1", True), ("2,0,1,kind", True)])
def test_columns_that_were_called_by_numbers_in_training_are_no_example(tmp_path, header, moved):
    """As pandas writes an array: to predict it, its header of numbers must not be taken for its first row."""
    values = {"0": "5", "1": "6", "2": "7", "kind": "a"}
    file = tmp_path / "new.csv"
    file.write_text(f"{header}\n{','.join(values[name] for name in header.split(','))}\n", encoding="utf-8")
    features, labels, _, note = read_features(file, 3, ("0", "1", "2"))
    assert features.tolist() == [[5.0, 6.0, 7.0]]
    assert labels == (["a"] if "kind" in header else None)
    assert ("in another order" in note) == moved
    file.write_text("5,6,7\n", encoding="utf-8")
    assert read_features(file, 3, ("0", "1", "2"))[0].tolist() == [[5.0, 6.0, 7.0]]
