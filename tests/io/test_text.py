"""JSON that nests: how deep it may be, whatever limit Python itself has."""

import json
import tracemalloc

import pytest

from noiseproof.io.arrays import read_table
from noiseproof.io.files import ReadError
from noiseproof.io.text import check_nesting, read_json
from noiseproof.train.record_files import read_records


@pytest.mark.parametrize(("opens", "closes"), [("[", "]"), ('{"a": ', "}"), ('[{"a": ', "}]")])
def test_a_hundred_lists_and_objects_inside_each_other_are_the_most(opens, closes):
    levels = 100 // len(opens.replace('"a": ', ""))
    check_nesting(opens * levels + "1" + closes * levels)
    with pytest.raises(ValueError, match="nested too deeply, more than 100"):
        check_nesting(opens * (levels + 1) + "1" + closes * (levels + 1))


@pytest.mark.parametrize("text", ["[" * 2000, "{[" * 2000, '"' * 2001 + "[" * 2000, '\\"' * 2000 + "[" * 2000])
def test_brackets_inside_strings_and_beside_each_other_do_not_count(tmp_path, text):
    value = {"[": [text, [], {}, *([[1], {"a": [2]}] * 2000)], text: text}
    (tmp_path / "x.json").write_text(json.dumps(value), encoding="utf-8")
    assert read_json(tmp_path / "x.json") == value


def test_a_string_without_an_end_is_looked_at_once():
    check_nesting('["' + '\\"[' * 300_000)  # again at each quote, it would take minutes


def test_deep_json_is_refused_in_a_file_and_in_a_line_of_records(tmp_path):
    deep = '{"recipe": ' * 110 + "1" + "}" * 110
    (tmp_path / "x.json").write_text(deep, encoding="utf-8")
    with pytest.raises(ReadError, match=r"x\.json: not read as JSON: it is nested too deeply"):
        read_json(tmp_path / "x.json")
    (tmp_path / "x.jsonl").write_text(f"\n{deep}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"x\.jsonl, line 2: not JSON \(it is nested too deeply"):
        read_records(tmp_path / "x.jsonl")


def test_the_lines_of_a_table_are_never_in_memory_all_at_once(tmp_path):
    """As a list, lines of four bytes took twenty times as much."""
    path, count = tmp_path / "labels.csv", 100_000
    path.write_text("300\n" * count, encoding="utf-8")
    tracemalloc.start()
    try:
        table = read_table(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert table.shape == (count, 1)
    assert peak < 10 * path.stat().st_size


def test_json_that_would_fill_the_memory_as_objects_is_refused_by_its_size(tmp_path):
    with (tmp_path / "x.json").open("wb") as file:
        file.truncate(2**27 + 1)
    with pytest.raises(ReadError, match=r"x\.json: 134217729 bytes of text, and at most 134217728 are read"):
        read_json(tmp_path / "x.json")


def test_a_cell_is_no_formula_whatever_a_spreadsheet_takes_for_a_separator():
    from noiseproof.io.text import cell, csv_line

    for text in ("=1+1", "x;=1+1", "x;  =1+1", 'x"=1', "x,@SUM(1)", "x\t=1", "x;-2+3", "x;＝1"):
        for separator in ';,\t"':
            parts = csv_line([cell(text)]).strip("\n").split(separator)
            assert not [part for part in parts if part.strip(' "').startswith(("=", "+", "-", "@", "＝"))], text


def test_no_two_names_become_one_cell():
    from noiseproof.io.text import cell

    names = ["a\nb", "a\\nb", "a\\\\nb", "'a", "a", "=a", "'=a", "x;=1", "x;'=1", "x\u202ey", "x\\u202ey", "C:\\data"]
    assert len({cell(name) for name in names}) == len(names)
