"""Tables from files and objects of every kind are one frame; what cannot be read is named with its place."""

import gzip

import numpy as np
import pandas as pd
import pytest

from noiseproof.data.columns import infer_columns
from noiseproof.data.dataset import DataError
from noiseproof.data.frames import read_frame, tidied
from noiseproof.data.table import read_labels
from noiseproof.data.table_encoder import TableEncoder
from tests.helpers.messy_table import messy_table


def sources(frame, folder):
    """The table as every file and object that is read."""
    import pyarrow as pa

    frame.to_csv(folder / "t.csv", index=False)
    with gzip.open(folder / "t.tsv.gz", "wt", encoding="utf-8") as file:
        frame.to_csv(file, index=False, sep="\t")
    frame.to_csv(folder / "semicolon.csv", index=False, sep=";")
    frame.to_parquet(folder / "t.parquet")
    frame.to_feather(folder / "t.feather")
    frame.to_json(folder / "t.jsonl", orient="records", lines=True)
    found = {path.name: path for path in sorted(folder.iterdir())}
    found |= {"pandas": frame, "arrow": pa.table(frame), "dict": {name: list(frame[name]) for name in frame}}
    found["objects"] = frame.astype(object).where(frame.notna(), None)
    try:
        import polars

        found["polars"] = polars.from_pandas(frame)
    except ModuleNotFoundError:
        pass
    return found


def test_every_source_gives_the_same_features_and_labels_to_the_bit(tmp_path):
    frame, _ = messy_table(700)
    expected = None
    for name, source in sources(frame, tmp_path).items():
        read = read_frame(source)
        labels = read_labels(read["churn"], "churn")
        inputs = read.drop(columns="churn")
        features = TableEncoder(infer_columns(inputs)).fit(inputs).transform(inputs)
        expected = expected or (features, labels.codes)
        assert np.array_equal(features, expected[0]), name
        assert np.array_equal(labels.codes, expected[1]), name
        assert labels.classes == ("no", "yes"), name


def written(folder, text, encoding="utf-8"):
    path = folder / "t.csv"
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("a,b\n1,x\n2,y\n", [1, "x"]),
        ("a;b\n1,5;x\n2,5;y\n", ["1,5", "x"]),
        ("\ufeffa,b\n1,x\n2,y\n", [1, "x"]),
        ("a,b\n#1,x\n2,y\n", ["#1", "x"]),
        ('a,b\n"#1",x\n2,y\n', ["#1", "x"]),
        ('a,b\n"1\n2",x\n3,y\n', ["1\n2", "x"]),
        ('a,b\n"say ""no""",x\n3,y\n', ['say "no"', "x"]),
        ("1,x\n2,y\n", [1, "x"]),
        ("a|b\n1|x\n2|y\n", [1, "x"]),
        ("a,b\r\n1,x\r\n2,y\r\n", [1, "x"]),
    ],
)
def test_csv_as_people_write_it(text, first, tmp_path):
    frame = read_frame(written(tmp_path, text))
    assert list(frame.iloc[0]) == first
    assert len(frame) == 2


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "utf-16"])
def test_names_in_other_encodings(encoding, tmp_path):
    assert read_frame(written(tmp_path, "name,y\nMüller,1\nÅngström,2\n", encoding))["name"].tolist() == ["Müller", "Ångström"]


@pytest.mark.parametrize("word", ["", "NA", "N/A", "?", "null", "None", "nan", "-"])
def test_words_that_mean_missing(word, tmp_path):
    assert read_frame(written(tmp_path, f"a,b\n1,x\n{word},y\n3,z\n"))["a"].isna().tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("a,b\n", "no rows"),
        ("a,b\n1,2\n3\n", r"t\.csv:3: 1 cell, and there are 2 columns: there is none for column 'b'$"),
        ("a,b\n1,2\n\n3,4,5\n", r"t\.csv:4: 3 cells, and there are 2 columns: '5' is beyond the last; quote cells that"),
        ('a,b\n"1\n1",2\n3\n', r"t\.csv:4: 1 cell, and there are 2 columns"),
        ('a,b\n1,2\n"3,4\n5,6\n', r"t\.csv:3: 1 cell, .* for column 'b'; is a quote not closed\?"),
        ("a,b\nkg,m\n1,2\n3,4\n5,6\n", "t.csv:2: a second line of names below the header"),
        ("a,b\n1\0,2\n", "NUL bytes"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_place(text, message, tmp_path):
    with pytest.raises(DataError, match=message):
        read_frame(written(tmp_path, text))


def test_words_far_below_numbers_are_named_as_those_near_the_top_are(tmp_path, monkeypatch):
    monkeypatch.setattr("noiseproof.io.limits.BLOCK_BYTES", 2000)
    lines = [f"{k},{k % 7}.5,{k % 2}" for k in range(2000)]
    lines[1500], lines[1700] = "three,1.5,0", "1700,,x"
    frame = read_frame(written(tmp_path, "\n".join(["a,b,y", *lines])))
    assert frame["a"].iloc[1499:1502].tolist() == ["1499", "three", "1501"]
    assert frame["y"].iloc[1700] == "x"
    with pytest.raises(DataError, match=r"'a' is a column of numbers, except 'three' in row 1501"):
        infer_columns(frame)


@pytest.mark.parametrize("name", ["t.parquet", "t.feather", "t.jsonl"])
def test_a_file_that_is_none_or_is_cut_is_one_sentence(name, tmp_path):
    frame, _ = messy_table(50)
    path = sources(frame, tmp_path)[name]
    for content in (b"nothing of the kind", path.read_bytes()[:-20], b""):
        path.write_bytes(content)
        with pytest.raises(DataError) as error:
            read_frame(path)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        (["b", "a", "b"], ("a", "b")),
        ([1, 2, 10], ("1", "2", "10")),
        ([-1, 1, -1], ("-1", "1")),
        ([True, False, True], ("False", "True")),
        ([1.0, 2.0, 1.0], ("1", "2")),
        (pd.Categorical(["lo", "hi", "lo"]), ("hi", "lo")),
    ],
)
def test_labels_of_any_type(values, classes):
    labels = read_labels(pd.Series(values), "y")
    assert labels.classes == classes
    assert [classes[k] for k in labels.codes] == [str(int(v)) if isinstance(v, float) else str(v) for v in values]


def test_missing_labels_are_counted_and_the_first_is_named_or_left_out():
    values = pd.Series(["a", None, "b", None])
    with pytest.raises(DataError, match="2 of 4 rows have no label in column 'y', the first is row 2"):
        read_labels(values, "y")
    labels = read_labels(values, "y", drop_missing=True)
    assert labels.labelled.tolist() == [True, False, True, False]
    assert labels.codes.tolist() == [0, 1]


def test_fractions_and_many_classes_are_questioned():
    with pytest.raises(DataError, match=r"got the number 1.5: is this a regression target\?"):
        read_labels(pd.Series([1.5, 2.0]), "y")
    assert "30 classes in 60 rows: is column 'y' a regression target?" in read_labels(pd.Series(list(range(30)) * 2), "y").note


def test_labels_of_new_rows_keep_the_classes_of_training():
    assert read_labels(pd.Series(["b", "b"]), "y", classes=("a", "b")).codes.tolist() == [1, 1]
    with pytest.raises(DataError, match="a label that training does not have, 'c'"):
        read_labels(pd.Series(["c"]), "y", classes=("a", "b"))


def test_a_file_must_not_become_vastly_more_than_it_is(tmp_path, monkeypatch):
    import pyarrow as pa
    import pyarrow.parquet as parquet

    zeros = np.zeros(60_000_000, np.int8)
    parquet.write_table(pa.table({"a": zeros, "y": zeros}), tmp_path / "bomb.parquet")
    with pytest.raises(DataError, match=r"bomb\.parquet: 120000000 cells in a file of \d+ bytes"):
        read_frame(tmp_path / "bomb.parquet")
    monkeypatch.setattr("noiseproof.io.limits.MIN_GZIP_BYTES", 2**20)
    with gzip.open(tmp_path / "bomb.csv.gz", "wb") as file:
        file.write(b"a,y\n" + b"1,2\n" * 2**20)
    with pytest.raises(DataError, match=r"bomb\.csv\.gz: unpacks to more than 100 times its size"):
        read_frame(tmp_path / "bomb.csv.gz")


def test_a_dictionary_of_long_texts_is_not_written_out_and_nested_columns_are_named(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as parquet

    long = pa.DictionaryArray.from_arrays(pa.array(np.arange(20_000, dtype=np.int32) % 2), pa.array(["x" * 10**6, "y"]))
    parquet.write_table(pa.table({"a": long, "y": np.arange(20_000) % 2}), tmp_path / "dictionary.parquet")
    with pytest.raises(DataError, match="column 'a' has 10000010000 characters in its 20000 rows, at most"):
        read_frame(tmp_path / "dictionary.parquet")
    parquet.write_table(pa.table({"a": [{"b": [1]}] * 3}), tmp_path / "nested.parquet")
    with pytest.raises(DataError, match="column 'a' is nested"):
        read_frame(tmp_path / "nested.parquet")


@pytest.mark.parametrize("blank", ["\n", "\r\n\r\n", "\n\n\n"])
def test_blank_lines_above_the_header_are_no_rows(blank, tmp_path):
    (tmp_path / "t.csv").write_text(f"{blank}a,y\n1,no\n2,yes\n\n", newline="")
    assert read_frame(tmp_path / "t.csv").to_dict("list") == {"a": [1, 2], "y": ["no", "yes"]}


def test_a_header_may_have_a_line_end_in_quotes(tmp_path):
    (tmp_path / "t.csv").write_text('"a\nb",y\n1,no\n2,yes\n')
    assert read_frame(tmp_path / "t.csv").to_dict("list") == {"a\nb": [1, 2], "y": ["no", "yes"]}


@pytest.mark.parametrize("end", [("", ","), (",", ",")], ids=["rows", "all"])
def test_a_separator_at_the_end_of_each_row_is_an_empty_column(end, tmp_path):
    (tmp_path / "t.csv").write_text(f"a,y{end[0]}\n" + "".join(f"{k},{'no' if k % 2 else 'yes'}{end[1]}\n" for k in range(5)))
    frame = read_frame(tmp_path / "t.csv")
    assert list(frame.columns) == ["a", "y", ""]
    assert frame["a"].tolist() == [0, 1, 2, 3, 4]
    assert frame[""].isna().all()


def test_a_parquet_file_is_the_same_however_many_columns_are_decoded_at_a_time(tmp_path, monkeypatch):
    frame, _ = messy_table(50)
    frame.assign(vector=[[1.0, 2.0]] * 50, **{"a.b": range(50)}).to_parquet(tmp_path / "t.parquet")
    first = read_frame(tmp_path / "t.parquet")
    for parts in (1, 3, 100):
        monkeypatch.setattr("noiseproof.data.frames.READ_PARTS", parts)
        pd.testing.assert_frame_equal(read_frame(tmp_path / "t.parquet"), first)


@pytest.mark.parametrize("label", ["self", "other"])
def test_a_column_may_be_called_self(label):
    frame = pd.DataFrame({"self": ["yes", "no", "", "yes"], "other": ["a", "b", "a", "b"], "inf": [1.0, np.inf, 2.0, 3.0]})
    found = tidied(frame, label)
    assert found["self"].isna().tolist() == [False, False, True, False]
    assert found["inf"].isna().tolist() == [False, True, False, False]
    assert frame["self"][2] == ""  # a person's own table is not changed
