"""Lists of image files as people have them, and every bad line."""

import hashlib
import os

import numpy as np
import pytest

from noiseproof.data import DataError, load_list
from noiseproof.io.files import checksum
from tests.helpers.image_lists import relative, touch, write


def of_sizes(*sizes):
    """What ``sources`` has of the images."""
    return {"sizes of the images": hashlib.sha256("".join(f"{size}\n" for size in sizes).encode()).hexdigest()}


def test_the_label_is_the_last_field_after_a_space_a_tab_or_a_comma(tmp_path):
    names = ["a.png", "deep/b c.png", "d,e.png", "ü.png", "f.png"]
    touch(tmp_path, names)
    listed = write(
        tmp_path / "all.txt", "# files", "a.png 2", "", "deep/b c.png\t0", "d,e.png,1", "  ü.png , 1  ", f"{tmp_path}/f.png 0"
    )
    data = load_list(listed)
    assert relative(data.train, tmp_path) == names
    assert data.train.labels.tolist() == [2, 0, 1, 1, 0]
    assert (data.name, data.classes, data.test) == ("all", ("0", "1", "2"), None)
    assert data.sources == {"all.txt": checksum(listed)} | of_sizes(0, 0, 0, 0, 0)


def test_a_list_may_have_windows_line_ends_and_a_byte_order_mark(tmp_path):
    touch(tmp_path, ["a.png", "b.png"])
    (tmp_path / "l.txt").write_bytes(b"\xef\xbb\xbfa.png 0\r\nb.png 1\r\n")
    assert relative(load_list(tmp_path / "l.txt").train, tmp_path) == ["a.png", "b.png"]


@pytest.mark.parametrize(
    "lines",
    [
        ("path,label", "a.png,2", "deep/b c.png,0"),
        ("Filename\tClass", "a.png\t2", "deep/b c.png\t0"),
        ("id;label;image;split", "7;2;a.png;train", "8;0;deep/b c.png;train"),
        ("image,target", '"a.png",2', '"deep/b c.png", 0'),
        ("file label", "a.png 2", '"deep/b c.png" 0'),
    ],
    ids=["commas", "tabs", "more columns", "quotes", "spaces"],
)
def test_a_header_says_the_columns(tmp_path, lines):
    touch(tmp_path, ["a.png", "deep/b c.png"])
    data = load_list(write(tmp_path / "l.csv", *lines))
    assert relative(data.train, tmp_path) == ["a.png", "deep/b c.png"]
    assert data.train.labels.tolist() == [2, 0]
    assert data.classes == ("0", "1", "2")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (("path,label", "a.png,0", "a.png"), r"l\.csv:3: should have 2 fields as the header has, .* got 'a\.png'"),
        (("path,label", "a.png,"), r"l\.csv:2: should have 2 fields as the header has, path and label not empty"),
        (("path,label", '"a.png,0'), r"l\.csv:2: unexpected end of data"),
        (("path,label", "a.png,1.0"), r"l\.csv:2: should be a path and a whole number"),
        (("path,label",), r"l\.csv: no images listed"),
        (
            ("cats,dogs", "a.png,0"),
            r"l\.csv:2: the first line's label is a name, .* got '0'; a header that is known is path,label",
        ),
        (("x" * 200_000 + ",1",), r"l\.csv:1: no file"),
    ],
)
def test_a_bad_line_under_a_header_is_reported(tmp_path, lines, message):
    touch(tmp_path, ["a.png"])
    with pytest.raises((DataError, FileNotFoundError), match=message):
        load_list(write(tmp_path / "l.csv", *lines))


@pytest.mark.parametrize(
    "lines",
    [
        ("a.png dog", "b c.png cat", "d.png dog"),
        ("a.png,dog", "b c.png,cat", "d.png,dog"),
        ("image,label", "a.png,dog", "b c.png,cat", "d.png,dog"),
    ],
    ids=["spaces", "commas", "header"],
)
def test_labels_may_be_the_names_of_the_classes(tmp_path, lines):
    touch(tmp_path, ["a.png", "b c.png", "d.png"])
    listed = write(tmp_path / "l.txt", *lines)
    data = load_list(listed)
    assert data.classes == ("cat", "dog")
    assert data.train.labels.tolist() == [1, 0, 1]
    assert relative(data.train, tmp_path) == ["a.png", "b c.png", "d.png"]


def test_a_class_may_have_spaces_where_commas_or_tabs_separate_it(tmp_path):
    touch(tmp_path, ["a b.png", "c.png"])
    for mark in ",\t":
        data = load_list(write(tmp_path / "l.txt", f"a b.png{mark}black cat", f"c.png{mark} dog"))
        assert data.classes == ("black cat", "dog")
        assert relative(data.train, tmp_path) == ["a b.png", "c.png"]


def test_a_number_among_names_is_reported(tmp_path):
    touch(tmp_path, ["a.png"])
    with pytest.raises(DataError, match=r"m\.txt:2: the first line's label is a name, so all must be, got '3'"):
        load_list(write(tmp_path / "m.txt", "a.png dog", "a.png 3"))


def test_paths_may_start_in_another_folder(tmp_path):
    touch(tmp_path / "images", ["a.png", "b.png"])
    data = load_list(write(tmp_path / "train.txt", "a.png 0", "../images/b.png 1"), tmp_path / "images", name="pets")
    assert (data.name, data.classes) == ("pets", ("0", "1"))
    assert data.train.paths[0] == str(tmp_path / "images" / "a.png")
    assert data.sources == {"train.txt": checksum(tmp_path / "train.txt")} | of_sizes(0, 0)


def test_a_folder_is_listed_once_however_it_is_written(tmp_path, monkeypatch):
    """Or a list of a megabyte takes as many gigabytes of names as it likes."""
    touch(tmp_path, ["a/1.png"])
    scanned, scandir = [], os.scandir
    monkeypatch.setattr(os, "scandir", lambda folder: scanned.append(folder) or scandir(folder))
    listed = write(tmp_path / "all.txt", *(f"{'./' * k}a/1.png {k}" for k in range(9)))
    assert len(load_list(listed).train) == 9
    assert len(scanned) == 1


@pytest.mark.parametrize("lines", [["x/" * 10**5 + "1.png 0"], ["1.png a", f"1.png {'7' * 10**5}"]], ids=["path", "label"])
def test_an_error_does_not_repeat_what_is_long(tmp_path, lines):
    touch(tmp_path, ["1.png"])
    with pytest.raises((DataError, OSError), match=r"all\.txt:[12]: ") as caught:
        load_list(write(tmp_path / "all.txt", *lines))
    assert len(str(caught.value)) < 1500


def test_one_list_beside_other_images_is_other_data(tmp_path):
    """Else a run on the one would be taken for a run on the other."""
    for folder, content in (("small", b"12"), ("large", b"1234"), ("moved", b"12")):
        listed = write(tmp_path / folder / "list.txt", "a.png 0", "b.png 1")
        for name in ("a.png", "b.png"):
            (listed.parent / name).write_bytes(content)
    small, large, moved = (load_list(tmp_path / folder / "list.txt").sources for folder in ("small", "large", "moved"))
    assert small == moved == {"list.txt": checksum(listed)} | of_sizes(2, 2)
    assert large == {"list.txt": checksum(listed)} | of_sizes(4, 4)
    assert load_list(listed, check_files=False).sources == {"list.txt": checksum(listed)}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a.png", r"l\.txt:3: should be a path and a whole number, got 'a\.png'"),
        ("7", r"l\.txt:3: should be a path and a whole number, got '7'"),
        ("a.png 1.5", r"l\.txt:3: should be a path and a whole number"),
        ("a.png cat", r"l\.txt:3: should be a path and a whole number"),
        ("a.png,", r"l\.txt:3: should be a path and a whole number"),
        (", 3", r"l\.txt:3: should be a path and a whole number"),
        ("a.png 1_0", r"l\.txt:3: should be a path and a whole number"),
        ("a.png ٣", r"l\.txt:3: should be a path and a whole number"),
        ("a.png 99999999999999999999", r"l\.txt:3: should be a path and a whole number"),
        ("a.png -1", r"l\.txt:3: labels must be in \[0, 1048575\], got -1"),
        ("a.png 1048576", r"l\.txt:3: labels must be in \[0, 1048575\], got 1048576"),
        ("a.p\0ng 1", r"l\.txt:3: a zero byte"),
    ],
)
def test_a_bad_line_is_reported_with_its_number(tmp_path, line, message):
    touch(tmp_path, ["a.png"])
    with pytest.raises(DataError, match=message):
        load_list(write(tmp_path / "l.txt", "# one", "a.png 0", line))


def test_text_in_another_encoding_is_reported(tmp_path):
    (tmp_path / "l.txt").write_bytes(b"a.png 0\n\xfc.png 1\n")
    with pytest.raises(DataError, match=r"l\.txt:2: not UTF-8 text: .*; save it as UTF-8"):
        load_list(tmp_path / "l.txt")


def test_an_empty_list_is_refused(tmp_path):
    with pytest.raises(DataError, match="nothing in it: no images listed, no table of features"):
        load_list(write(tmp_path / "l.txt", "# nothing"))


def test_a_header_that_is_not_known_is_taken_for_one(tmp_path):
    touch(tmp_path, ["a.png"])
    with pytest.raises(FileNotFoundError, match=r"l\.csv:1: no file .*filename; a header names the columns path and label$"):
        load_list(write(tmp_path / "l.csv", "filename,animal", "a.png,cat"))


def test_missing_images_are_found_at_once_or_on_request_later(tmp_path):
    touch(tmp_path, ["a.png"])
    (tmp_path / "folder.png").mkdir()
    listed = write(tmp_path / "l.txt", "a.png 0", "gone.png 0", "no/such/folder/b.png 1", "a.png/c.png 0", "folder.png 0")
    with pytest.raises(FileNotFoundError, match=r"l\.txt:2: no file .*gone\.png \(4 of 5 are missing\); correct the list"):
        load_list(listed)
    assert len(load_list(listed, check_files=False).train) == 5


def test_labels_are_int64(tmp_path):
    touch(tmp_path, ["a.png"])
    assert load_list(write(tmp_path / "l.txt", "a.png 3")).train.labels.dtype == np.int64
