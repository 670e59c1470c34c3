"""Examples in memory and in files answer to the same names."""

import numpy as np
import pytest

from noiseproof.data import DataError, Examples, ImageFiles, Split, in_memory

LABELS = np.array([0, 1, 1, 2])
BOTH = [Split(np.arange(8, dtype=np.float32).reshape(4, 2), LABELS), ImageFiles(("a.png", "b.png", "c.png", "d.png"), LABELS)]


def identities(examples: Examples) -> list[object]:
    return [tuple(row) for row in examples.inputs.tolist()] if examples.in_memory else list(examples.paths)


@pytest.mark.parametrize("examples", BOTH, ids=lambda examples: type(examples).__name__)
def test_a_part_is_taken_by_indices_or_by_a_mask(examples):
    assert isinstance(examples, Examples)
    whole = identities(examples)
    by_index, by_mask = examples.take([2, 0]), examples.take(LABELS == 1)
    assert type(by_index) is type(by_mask) is type(examples)
    assert identities(by_index) == [whole[2], whole[0]]
    assert by_index.labels.tolist() == [1, 0]
    assert identities(by_mask) == whole[1:3]
    assert by_mask.labels.tolist() == [1, 1]
    assert len(examples.take([])) == 0


@pytest.mark.parametrize("examples", BOTH, ids=lambda examples: type(examples).__name__)
def test_other_labels_leave_the_inputs_and_the_first_labels_alone(examples):
    other = examples.with_labels([3, 3, 3, 3])
    assert other.labels.tolist() == [3] * 4
    assert other.labels.dtype == np.int64
    assert examples.labels.tolist() == LABELS.tolist()
    assert identities(other) == identities(examples)
    for wrong in ([0, 1], [[0, 1, 2, 3]], [0.0, 1.0, 2.0, 3.0]):
        with pytest.raises(DataError, match="labels must be 4 integers, one per"):
            examples.with_labels(wrong)
    with pytest.raises(DataError, match=r"labels must be in \[0, inf\), got -1"):
        examples.with_labels([0, 1, 2, -1])


@pytest.mark.parametrize(
    ("inputs", "kind", "channels"),
    [
        (np.zeros((4, 8, 9, 3), np.uint8), "images", 3),
        (np.zeros((4, 8, 9), np.uint8), "images", 1),
        (np.zeros((4, 5, 8, 9), np.float32), "features", 5),
        (np.zeros((4, 64), np.float32), "features", None),
    ],
)
def test_arrays_know_what_they_hold(inputs, kind, channels):
    split = Split(inputs, LABELS)
    assert (split.in_memory, split.kind, split.channels) == (True, kind, channels)
    assert in_memory(split) is split


def test_files_are_not_in_memory_and_are_read_as_rgb():
    files = BOTH[1]
    assert (files.in_memory, files.kind, files.channels) == (False, "files", 3)
    with pytest.raises(TypeError, match=r"the inputs must be in memory, got ImageFiles\(4 files, the first 'a.png'\)"):
        in_memory(files)
