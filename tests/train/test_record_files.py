"""Records as JSON lines: read, written, merged."""

import json

import pytest

from noiseproof.paper.groups import paper_groups
from noiseproof.train.record_files import compact, identity, merge, read_records, write_records


def run(accuracy=0.9, *, seed=123, labels="aa", **more):
    recipe = {"dataset": "cifar10", "loss": "jal-ce", "loss_options": {"a": 30.0}, "seed": seed, "precision": "bf16"}
    return {"result": {"test_accuracy": accuracy}, "recipe": recipe, "task": {"noise": {"hash": labels}}, **more}


def test_records_are_read_as_they_were_written(tmp_path):
    records = [run(0.91), run(0.92, seed=124)]
    write_records(tmp_path / "runs.jsonl", records)
    (tmp_path / "more.jsonl").write_text("\n" + json.dumps(run(0.93)) + "\n\n", encoding="utf-8")
    assert read_records(tmp_path / "runs.jsonl", tmp_path / "more.jsonl") == [*records, run(0.93)]
    assert ": " not in (tmp_path / "runs.jsonl").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("line", "why"), [('{"recipe": {', "not JSON"), ("[1]", "not the record"), ('{"recipe": {}}', "'result'")]
)
def test_a_broken_line_is_named(tmp_path, line, why):
    file = tmp_path / "runs.jsonl"
    file.write_text(json.dumps(run()) + "\n" + line + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match=rf"runs\.jsonl, line 2: .*{why}"):
        read_records(file)


def own(path, digest, *, seed=1, **recipe):
    made = run(seed=seed)
    made["recipe"] |= {"dataset": path, **recipe}
    made["task"]["sources"] = {"x.npz": digest}
    return made


def test_data_of_ones_own_are_known_by_their_files():
    """One file by two paths is the same data, two files of one name are not; nor does a field matter that says nothing."""
    assert identity(own("a/x.npz", "aa")) == identity(own("/b/x.npz", "aa")) != identity(own("a/x.npz", "bb"))
    assert identity(own("x", "aa")) == identity(own("x", "aa", size=None, standardise=False, test_size=0.0))
    assert identity(own("x", "aa")) != identity(own("x", "aa", standardise=True))
    binary, python = run(), run()
    binary["task"]["sources"], python["task"]["sources"] = {"test_batch.bin": "aa"}, {"test_batch": "bb"}
    assert identity(binary) == identity(python)  # a data set with a name, in two formats
    warm = [own("x", "aa", weights=path) for path in ("a.pt", "b.pt")]
    for one, path in zip(warm, ("a.pt", "b.pt"), strict=True):
        one["task"]["sources"][path] = "ww"
    assert identity(warm[0]) == identity(warm[1]) != identity(own("x", "aa"))
    assert len(merge([own("a/x.npz", "aa"), own("b/x.npz", "aa"), own("a/x.npz", "bb")])) == 2
    groups = paper_groups([own("a/x.npz", "aa"), own("b/x.npz", "aa", seed=2), own("a/x.npz", "bb", seed=3)], [], "bf16")
    assert sorted(len(group.records) for group in groups) == [1, 2]


def test_the_identity_is_of_the_recipe_and_the_labels():
    whole = run()
    assert identity(whole) == identity(run(0.1, status="finished", curve={}))
    assert len(identity(whole)) == 64
    assert len({identity(whole), identity(run(seed=124)), identity(run(labels="bb"))}) == 3
    written_otherwise = run()
    written_otherwise["recipe"] = {
        "confidence_epochs": [3],
        **dict(reversed(whole["recipe"].items())),
        "loss_options": {"a": 30},
    }
    assert identity(written_otherwise) == identity(whole)
    assert identity({"recipe": whole["recipe"], "result": {}}) != identity(whole)  # not known to be the same labels


def test_the_same_run_with_the_same_result_is_kept_once_as_its_longest_record():
    longer = run(status="finished", curve={"test_accuracy": [0.9]})
    longer["result"]["wrong_labels_memorised"] = 0.1
    assert merge([run(), run(seed=124)], [longer], [run()]) == [longer, run(seed=124)]


def test_two_results_of_one_run_are_both_kept():
    assert merge([run(0.9)], [run(0.91)], [run(0.9)]) == [run(0.9), run(0.91)]
    diverged = run(status="diverged")
    assert merge([run(), diverged]) == [run(), diverged]


def test_more_than_two_hundred_results_of_one_run_are_refused():
    """Each is compared with all: 20,000 of them took minutes."""
    results = [run(k / 1000) for k in range(201)]
    assert merge(results[:200], results[:200]) == results[:200]
    with pytest.raises(ValueError, match="more than 200 different results of one run"):
        merge(results)


def test_a_compact_record_keeps_the_curves_and_drops_the_epochs():
    epochs = [
        {"epoch": i, "loss": 1.0, "given_accuracy": 1 / 3, "clean_accuracy": None, "test_accuracy": 2 / 3} for i in (1, 2)
    ]
    line = compact({"format": 1, **run(), "status": "finished", "epochs": epochs, "at_once": 6})
    assert line == {
        **run(),
        "status": "finished",
        "at_once": 6,
        "curve": {"given_accuracy": [0.3333, 0.3333], "test_accuracy": [0.6667, 0.6667]},
    }
    assert compact(line) == line


def test_a_file_that_is_no_text_is_named(tmp_path):
    (tmp_path / "weights.npz").write_bytes(b"PK\xd7\x28")
    with pytest.raises(ValueError, match=r"weights\.npz: not a file of records, which is text with a JSON object a line"):
        read_records(tmp_path / "weights.npz")
