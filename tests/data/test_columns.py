"""What the columns of a table are, and their encoding: fitted on training rows and kept without code."""

import json
import re

import numpy as np
import pandas as pd
import pytest

from noiseproof.data.columns import Column, as_numbers, find_label_copies, infer_columns, parse_kinds
from noiseproof.data.dataset import DataError
from noiseproof.data.encoders import TEXT_FEATURES
from noiseproof.data.frames import read_frame
from noiseproof.data.table_encoder import TableEncoder
from tests.helpers.messy_table import messy_table


def kinds(**columns):
    return {column.name: str(column) for column in infer_columns(read_frame(columns))}


def test_what_is_understood_is_said_a_line_a_column():
    frame, _ = messy_table(2000)
    said = [str(column) for column in infer_columns(frame.drop(columns="churn"))]
    assert said == [
        "id left out: all different",
        "age number, 3 % missing",
        "income number, 3 % missing",
        "city category, 42 values, 3 % missing",
        "plan category, 3 values, 3 % missing",
        "member boolean, 3 % missing",
        "signed date, 3 % missing",
        "comment text, 3 % missing",
    ]


def test_numbers_are_read_as_people_write_them():
    found = kinds(
        point=["1.5", "2", "-3e2"],
        comma=["1,5", "2", "3,25"],
        thousands=["1,234", "12", "1,234,567.5"],
        word=["1", "2", "three"],
        price=["$1.50", "-$2", "3"],
        euro=["1.234,50 €", "3,00 €", "7 €"],
        share=["12 %", "7%", "100 %"],
        space=["1 234", "12", "1\u00a0234\u202f567,5"],
    )
    assert found == {
        "point": "point number",
        "comma": "comma number",
        "thousands": "thousands number",
        "word": "word category, 3 values",
        "price": "price number",
        "euro": "euro number",
        "share": "share number",
        "space": "space number",
    }


@pytest.mark.parametrize(
    ("cells", "found"),
    [
        (["$1.50", "-$2", "+3", "$1,234.5"], [1.5, -2, 3, 1234.5]),
        (["12 %", "7%", "-100 %"], [12, 7, -100]),
        (["1.234,50 €", "3 €", "7,5€"], [1234.5, 3, 7.5]),
        (["1 234", "1\u00a0234\u202f567,5", "1'000"], [1234, 1234567.5, 1000]),
    ],
)
def test_units_and_separators_of_numbers_are_read(cells, found):
    assert as_numbers(pd.Series(cells)).tolist() == found


@pytest.mark.parametrize(
    ("usual", "other"),
    [("12 %", "0.12"), ("$1.50", "€1.50"), ("1,234.50", "1.234,50"), ("$3", "3 dollars"), ("1,234", "n.a."), ("5", "5$3")],
)
@pytest.mark.parametrize("count", [1, 25])
def test_numbers_in_several_notations_are_named_with_column_and_row_and_not_a_category(usual, other, count):
    if count > 1 and pd.isna(as_numbers(pd.Series([other]))[0]):
        count = 2
    cells = [usual] * (60 - count) + [other] * count
    message = rf"'price' is a column of numbers, except '{re.escape(other)}' in row {61 - count}\b.* like '{re.escape(usual)}'"
    with pytest.raises(DataError, match=message):
        infer_columns(read_frame({"price": cells, "age": range(60)}))


def test_a_few_words_in_a_column_of_numbers_are_an_error_with_their_rows():
    values = [str(k) for k in range(60)]
    values[40] = "fourty"
    with pytest.raises(DataError, match=r"'age' is a column of numbers, except 'fourty' in row 41; .* --columns age=category"):
        infer_columns(read_frame({"age": values}))
    assert infer_columns(read_frame({"age": values}), {"age": "category"})[0].kind == "category"


def test_constant_empty_duplicate_and_identifier_columns_are_left_out_and_named():
    numbers = list(np.arange(30) % 7)
    found = kinds(
        a=numbers,
        same=["x"] * 30,
        none=[None] * 30,
        b=numbers,
        customer_id=list(range(100, 130)),
        code=[f"K{k}" for k in range(30)],
    )
    assert found["same"] == "same left out: constant"
    assert found["none"] == "none left out: empty"
    assert found["b"] == "b left out: the same as a"
    assert found["customer_id"] == "customer_id left out: all different"
    assert found["code"] == "code left out: all different"


def test_a_given_kind_overrules_and_a_strange_one_is_refused():
    assert parse_kinds("age=number, id=drop") == {"age": "number", "id": "drop"}
    with pytest.raises(ValueError, match="NAME=KIND with KIND one of number, category"):
        parse_kinds("age=numeric")
    with pytest.raises(DataError, match="no column is called 'agee'"):
        infer_columns(read_frame({"age": [1, 2]}), {"agee": "drop"})


def test_a_near_copy_of_the_label_is_found_and_an_informative_column_is_not():
    labels = np.arange(1000) % 2
    copy = np.where(labels == 1, "late", "paid").astype(object)
    copy[:5] = "paid"
    useful = labels + 2 * np.random.default_rng(0).integers(0, 2, 1000) * (np.arange(1000) % 3 > 0) - (np.arange(1000) % 5 == 0)
    frame = read_frame({"status": list(copy), "useful": list(useful), "amount": list(range(1000))})
    assert find_label_copies(frame, labels, infer_columns(frame)) == ["status"]


def test_the_encoding_of_numbers_is_robust_scaling_and_squashing():
    """The median and the interquartile range by hand: 0 to 100 has 50 and 50; (x / s) / sqrt(1 + (x / 3s)^2)."""
    frame = read_frame({"a": [*map(float, range(101)), None, 1e9]})
    features = TableEncoder(infer_columns(frame)).fit(frame).transform(frame)
    low, middle, high = np.nanquantile(frame["a"], [0.25, 0.5, 0.75])
    scaled = (100.0 - middle) / (high - low)
    assert features[100, 0] == pytest.approx(scaled / np.sqrt(1 + scaled**2 / 9), rel=1e-6)
    assert features[101].tolist() == [0.0, 1.0]
    assert features[102, 0] == pytest.approx(3.0, rel=1e-6)


def test_an_embedding_keeps_its_geometry():
    draw = np.random.default_rng(0)
    vectors = draw.normal(size=(200, 20)) * np.linspace(1, 5, 20) + 7
    by_column = read_frame({f"e{k}": vectors[:, k] for k in range(20)})
    whole = pd.DataFrame({"e": list(vectors.astype(np.float32))})
    for frame in (by_column, whole):
        features = TableEncoder(infer_columns(frame)).fit(frame).transform(frame)
        ratio = features.std(0) / vectors.std(0)
        assert ratio.max() / ratio.min() == pytest.approx(1, abs=1e-4)
        assert (features**2).mean() == pytest.approx(1, abs=1e-3)


def test_numbered_columns_of_very_different_scales_are_no_embedding():
    draw = np.random.default_rng(0)
    columns = {f"v{k}": draw.normal(size=100) * 10.0 ** (k % 6) for k in range(20)}
    frame = read_frame(columns)
    spreads = TableEncoder(infer_columns(frame)).fit(frame).transform(frame).std(0)
    assert spreads.max() / spreads.min() < 2


def test_new_categories_and_new_gaps_are_encoded_and_columns_are_found_by_name():
    frame, _ = messy_table(600, gaps=0)
    encoder = TableEncoder(infer_columns(frame.drop(columns="churn"))).fit(frame)
    row = frame.iloc[[0]].assign(plan="new", age=None, signed=None, member=None, comment=None)
    shuffled = row[row.columns[::-1]].assign(more=1)
    features = encoder.transform(shuffled)
    assert np.isfinite(features).all()
    plan = [k for k, name in enumerate(encoder.feature_names) if name.startswith("plan =")]
    assert not features[0, plan].any()
    with pytest.raises(DataError, match="column 'age' of training is missing"):
        encoder.transform(frame.drop(columns="age"))


def test_the_state_is_json_and_arrays_and_gives_the_same_features():
    frame, _ = messy_table(800)
    encoder = TableEncoder(infer_columns(frame.drop(columns="churn"))).fit(frame)
    facts, arrays = encoder.state()
    again = TableEncoder.from_state(json.loads(json.dumps(facts)), {name: array.copy() for name, array in arrays.items()})
    assert np.array_equal(again.transform(frame), encoder.transform(frame))
    assert again.columns == list(encoder.columns)
    assert all(array.dtype.kind == "f" for array in arrays.values())


@pytest.mark.parametrize(
    "damage",
    [
        lambda facts: facts.update(version=3),
        lambda facts: facts["encoders"][0].update(encoder="os.system"),
        lambda facts: facts["encoders"][0].update(scale="inf"),
        lambda facts: facts["encoders"][-1].pop("words"),
        lambda facts: facts.update(columns=[{"name": "x", "kind": "number", "run": "rm"}]),
        lambda facts: facts.pop("encoders"),
    ],
)
def test_a_damaged_or_crafted_state_is_one_sentence(damage):
    frame, _ = messy_table(300)
    facts, arrays = TableEncoder(infer_columns(frame.drop(columns="churn"))).fit(frame).state()
    facts = json.loads(json.dumps(facts))
    damage(facts)
    with pytest.raises(DataError):
        TableEncoder.from_state(facts, arrays)


def test_what_an_earlier_version_fitted_is_read_and_that_of_a_later_one_is_not():
    frame, _ = messy_table(300)
    facts, arrays = TableEncoder(infer_columns(frame.drop(columns="churn"))).fit(frame).state()
    assert len(TableEncoder.from_state({**facts, "version": 1}, arrays).encoders) == len(facts["encoders"])
    with pytest.raises(DataError, match="by a later version of noiseproof, format 3"):
        TableEncoder.from_state({**facts, "version": 3}, arrays)


def test_arrays_of_another_shape_than_the_encoder_needs_are_refused():
    frame, _ = messy_table(300)
    facts, arrays = TableEncoder(infer_columns(frame.drop(columns="churn"))).fit(frame).state()
    with pytest.raises(DataError, match="arrays of wrong shapes"):
        TableEncoder.from_state(facts, {name: array[:, :5] if array.ndim == 2 else array for name, array in arrays.items()})


def test_only_training_rows_are_fitted():
    frame, _ = messy_table(600)
    train, new = frame.iloc[:300], frame.iloc[300:].assign(income=1e12, city="elsewhere")
    alone = TableEncoder(infer_columns(train)).fit(train)
    assert alone.transform(train).tolist() == TableEncoder(infer_columns(train)).fit(train).transform(train).tolist()
    assert np.isfinite(alone.transform(new)).all()


def test_nothing_to_learn_from_is_an_error_that_says_why():
    frame = read_frame({"id": [f"K{k}" for k in range(30)], "same": ["x"] * 30})
    with pytest.raises(DataError, match="id left out: all different; same left out: constant"):
        TableEncoder(infer_columns(frame)).fit(frame)


def test_a_column_is_a_line():
    assert str(Column("city", "category", 0.004, 42)) == "city category, 42 values, 1 % missing"


def test_the_characters_of_texts_are_counted_word_by_word_as_scikit_learn_counts_them():
    from sklearn.feature_extraction.text import HashingVectorizer

    from noiseproof.data.encoders import COUNTS, HASHED_CHARACTERS, _character_counts

    texts = ["The parcel  came\tlate, the PARCEL!", "", "a", "ΟΔΟΣ Straße\u00a0x", " \n ", "late late late"]
    reader = HashingVectorizer(analyzer="char_wb", ngram_range=(3, 5), n_features=HASHED_CHARACTERS, **COUNTS)
    expected, found = reader.transform(texts), _character_counts(texts)
    assert np.array_equal(found.indptr, expected.indptr)
    assert np.array_equal(found.indices, expected.indices)
    assert np.array_equal(found.data, expected.data)
    assert _character_counts(["", " "]).nnz == 0


def test_texts_of_few_phrases_get_few_features_and_texts_of_many_words_keep_all():
    draw = np.random.default_rng(0)
    phrases = [f"{verb} {noun}" for verb in ("late", "broken", "fine") for noun in ("parcel", "screen")]
    words = ["".join(draw.choice(list("abcdefghij"), 6)) for _ in range(300)]
    frame = read_frame({"few": draw.choice(phrases, 500), "many": [" ".join(draw.choice(words, 9)) for _ in range(500)]})
    encoder = TableEncoder(infer_columns(frame, {"few": "text"})).fit(frame)
    few, many = ([name for name in encoder.feature_names if name.startswith(column)] for column in ("few", "many"))
    assert len(few) < 10
    assert len(many) == TEXT_FEATURES
    found = encoder.transform(frame)
    assert len(np.unique(found[:, : len(few)].round(4), axis=0)) == len(phrases)  # which are still told apart
    halves = [encoder.transform(frame.iloc[rows]) for rows in (slice(0, 123), slice(123, None))]
    assert np.array_equal(found, np.concatenate(halves))
