"""JSON that is hostile to whoever reads it: labels, transition matrices, manifests."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from noiseproof import noise
from tests.hostile.harness import ACCEPTED, Case, command

CLEAN = np.arange(12) % 3


def written(file: str, content: str | bytes) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / file).write_bytes(content if isinstance(content, bytes) else content.encode())
        return folder / file

    return make


ANY: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "not JSON: Expecting value"),
    "cut": ("[[1, 2", "not JSON: Expecting"),
    "with-something-after": ("[1] [2]", "not JSON: Extra data"),
    "of-bytes": (b"\xff\xfe[1]", "not UTF-8 text: invalid start byte at byte 0"),
    "of-utf-16": ("[1]".encode("utf-16"), "not UTF-8 text"),
    "of-zeros": (bytes(1000), "not JSON: Expecting value"),
    "of-deep-lists": ("[" * 30_000 + "]" * 30_000, "nested too deeply"),
    "of-deep-objects": ('{"a":' * 30_000 + "1" + "}" * 30_000, "nested too deeply"),
    "of-deep-lists-that-never-end": ("[" * 5_000_000, "more than 4,194,304 values"),
    "with-a-key-twice": ('{"labels": [0, 1], "labels": [1, 0]}', "'labels' is there twice in one object"),
    "with-a-key-twice-inside": ('{"a": {"b": 1, "b": 2}}', "'b' is there twice in one object"),
    "with-control-characters": ('{"\\u001b[2J": 1, "\\u001b[2J": 2}', r"'\\\\x1b\[2J' is there twice"),
    "with-nan": ("[NaN]", "NaN is not a number that JSON has"),
    "with-infinity": ("[-Infinity]", "-Infinity is not a number that JSON has"),
    "with-a-number-of-400-digits": (f"[{10**400}]", r"not read as JSON: 10{19}\.\.\. is beyond the largest number, 1.8e308"),
    "with-a-number-that-is-infinite": ("[-1e999]", "not read as JSON: -1e999 is beyond the largest number, 1.8e308"),
    "with-a-number-of-5000-digits": ("[" + "9" * 5000 + "]", "not read as JSON: Exceeds the limit"),
}
"""Text, and what the error says of it, whoever reads it."""
LABELS: dict[str, tuple[str | bytes, str]] = {
    "null": ("null", "it should hold numbers, one for each example"),
    "a-number": ("3", "it should hold numbers"),
    "text": ('"0"', "it should hold numbers"),
    "list-of-text": ('["0", "1"]', "it should hold numbers"),
    "list-of-truths": ("[true, false]", "it should hold numbers"),
    "list-of-nulls": ("[null]", "it should hold numbers"),
    "list-of-objects": ("[{}, {}]", "it should hold numbers"),
    "list-of-unequal-lists": ("[[1], [1, 2]]", "it should hold numbers"),
    "list-of-lists-of-lists": ("[[[1]]]", "it should hold numbers"),
    "half-a-million-empty-lists": ("[" + "[]," * 500_000 + "[]]", "it should hold numbers"),
    "no-labels": ("[]", "there are no labels in it"),
    "halves": ("[0, 0.5]", "labels must be a vector of whole numbers"),
    "negative": ("[0, -1]", "labels must not be negative"),
    "large": ("[0, 1e30]", r"labels must be below 2\*\*63"),
    "larger": (f"[0, {10**300}]", "labels must be a vector of whole numbers"),
    "largest": ("[0, 1e308]", r"labels must be below 2\*\*63, got 1e\+308"),
    "object-of-none": ("{}", "choose one: but it has none"),
    "object-of-several": ('{"a": [0], "b": [1]}', "choose one: a, b"),
    "object-of-many": (json.dumps({f"set {k}": [0] for k in range(30_000)}), r"choose one: set 0, set 1, .* and 29980 more$"),
    "object-of-objects": ('{"a": {"b": [0]}}', "it should hold numbers"),
}
MATRICES: dict[str, tuple[str | bytes, str]] = {
    "null": ("null", "it should be a list of lists"),
    "object": ('{"matrix": [[1, 0], [0, 1]]}', "it should be a list of lists"),
    "vector": ("[1, 0]", "it should be a list of lists"),
    "empty": ("[]", "must be square with at least 2 classes"),
    "unequal": ("[[1, 0], [1]]", "it should be a list of lists of one length"),
    "deep": ("[[[1], [0]], [[0], [1]]]", "its entries should be numbers"),
    "text": ('[["0.5", "0.5"], ["0.5", "0.5"]]', "its entries should be numbers"),
    "truths": ("[[true, false], [false, true]]", "its entries should be numbers"),
    "nulls": ("[[null, null], [null, null]]", "its entries should be numbers"),
    "large": (f"[[{10**300}, 0], [0, 1]]", "must sum to 1, row 0 sums to 1e\\+300"),
    "negative": ("[[2, -1], [0, 1]]", "must hold probabilities"),
    "sum": ("[[0.5, 0.4], [0, 1]]", "row 0 sums to 0.9"),
}
READERS = {
    "labels": ("odd.json", "odd.json: no labels could be read: ", ANY),
    "matrix": ("odd.json", "odd.json: no transition matrix: ", ANY),
    "manifest": ("manifest.json", "manifest.json: not a manifest: ", ANY),
    "show": ("manifest.json", "manifest.json: not a manifest: ", ANY),
}
ATTEMPTS = {
    "labels": noise.load_labels,
    "matrix": noise.from_file,
    "manifest": lambda path: noise.verify(path, CLEAN),
    "show": lambda path: command("noise", "show", path),
    "verify": lambda path: command("noise", "verify", path, "--labels", path.parent / "clean.npy"),
}
CASES = [
    Case(f"{reader}-{fault}", written(file, content), reader, f"{named}.*{says}")
    for reader, (file, named, faults) in READERS.items()
    for fault, (content, says) in faults.items()
]
CASES += [
    Case(f"labels-of-{fault}", written("odd.json", text), "labels", f"odd.json: .*{says}")
    for fault, (text, says) in LABELS.items()
]
CASES += [
    Case(f"matrix-of-{fault}", written("odd.json", text), "matrix", f"odd.json: no transition matrix: .*{says}")
    for fault, (text, says) in MATRICES.items()
]
CASES += [
    Case(
        "labels-with-a-mark-at-the-start",
        written("odd.json", b"\xef\xbb\xbf[0, 1]"),
        "labels",
        ACCEPTED,
        lambda y: y.tolist() == [0, 1],
    ),
    Case("labels-in-a-column", written("odd.json", "[[0], [1]]"), "labels", ACCEPTED, lambda y: y.tolist() == [0, 1]),
    Case("labels-in-a-row", written("odd.json", "[[0, 1]]"), "labels", ACCEPTED, lambda y: y.tolist() == [0, 1]),
    Case("labels-as-floats", written("odd.json", "[0.0, 1.0]"), "labels", ACCEPTED, lambda y: y.tolist() == [0, 1]),
    Case("labels-by-the-only-name", written("odd.json", '{"a": [0, 1]}'), "labels", ACCEPTED, lambda y: y.tolist() == [0, 1]),
]


def manifest(**changed: object) -> Callable[[Path], Path]:
    """A sound manifest beside its labels, with some facts changed."""

    def make(folder: Path) -> Path:
        made = noise.symmetric(3, 0.5)
        path = noise.write_noisy_labels(folder, made, CLEAN, made.apply(CLEAN, seed=0), version="test")
        np.save(folder / "clean.npy", CLEAN)
        path.write_text(json.dumps(json.loads(path.read_text()) | changed))
        return path

    return make


WRONG: dict[str, object] = {
    "object": {"a": 1},
    "list": [[1]],
    "text": "symmetric",
    "half": 0.5,
    "null": None,
    "truth": True,
    "number": 1,
}
WRONG |= {"deep-list": json.loads("[" * 90 + "]" * 90)}
SOUND = {
    "format": ("number",),
    "noise": ("text",),
    "seed": ("number", "null"),
    "rule": ("text", "null"),
    "examples": ("number",),
    "classes": ("number",),
    "labels_file": ("text",),
    "labels_hash": ("text",),
    "source_hash": ("text",),
    "matrix_asked": ("list", "deep-list"),
    "matrix_realised": ("list", "deep-list"),
    "rate_realised": ("number", "half"),
}
CASES += [
    Case(
        f"manifest-{field}-of-{kind}",
        manifest(**{field: value}),
        "manifest",
        f"manifest.json: not a manifest: '{field}' must be",
    )
    for field, sound in SOUND.items()
    for kind, value in WRONG.items()
    if kind not in sound
]
MANIFESTS: dict[str, tuple[dict[str, object], str]] = {
    "matrix-of-a-deep-list": ({"matrix_asked": WRONG["deep-list"]}, "'matrix_asked' is no matrix|'matrix_asked' is of shape"),
    "matrix-of-unequal-rows": (
        {"matrix_realised": [[1, 0], [1]]},
        "'matrix_realised' is no matrix: it should be a list of lists",
    ),
    "matrix-of-text": ({"matrix_asked": [["1", "0", "0"]] * 3}, "'matrix_asked' is no matrix: its entries should be numbers"),
    "matrix-of-another-size": ({"matrix_asked": [[1, 0], [0, 1]]}, r"'matrix_asked' is of shape \(2, 2\) for 3 classes"),
    "matrix-of-nothing": ({"matrix_asked": [], "matrix_realised": []}, r"'matrix_asked' is of shape \(0,\) for 3 classes"),
    "matrix-of-a-large-number": ({"matrix_asked": [[10**300, 0, 0]] * 3}, "must sum to 1, row 0 sums to 1e\\+300"),
    "matrix-that-is-none": ({"matrix_asked": [[1, 1, 1]] * 3}, "rows of a transition matrix must sum to 1"),
    "200000-classes": ({"classes": 200_000}, r"'matrix_asked' is of shape \(3, 3\) for 200000 classes"),
    "negative-classes": ({"classes": -3}, r"'matrix_asked' is of shape \(3, 3\) for -3 classes"),
    "classes-beyond-all-numbers": ({"classes": 10**300}, r"'matrix_asked' is of shape \(3, 3\) for 10{79}\.\.\. classes"),
    "examples-beyond-all-numbers": (
        {"examples": 10**300},
        r"the number of labels in labels.npy should be 10{79}\.\.\., found 12",
    ),
    "another-format": ({"format": 2}, "format 2 is not known to this version, which reads 1; noiseproof .* wrote and reads it"),
    "another-rule": ({"rule": "\x1b[2J"}, r"rule must be one of exact, draws, published, got '\\\\x1b\[2J'"),
    "another-hash": ({"labels_hash": "0" * 5_000_000}, r"the hash of the labels in labels.npy should be 0{80}\.\.\., found"),
    "seed-of-65-bits": ({"seed": 2**64}, r"seed must be in \[-2\*\*63, 2\*\*64\), got 18446744073709551616"),
    "seed-beyond-all-numbers": ({"seed": 10**300}, r"seed must be in \[-2\*\*63, 2\*\*64\), got 1"),
    "seed-of-nothing": ({"seed": None}, "seed must be an integer, got None"),
    "rate-beyond-all-numbers": ({"rate_realised": 10**300}, "the realised rate should be 1"),
    "no-rule": ({"rule": None}, "must state its rule, got none"),
    "a-name-with-control-characters": ({"noise": "\x1b[2J", "rule": None}, "must state its rule, got none"),
    "parameters-of-text": ({"parameters": "none"}, "'parameters' must be an object, got str"),
    "file-of-nothing": ({"labels_file": ""}, "'labels_file' must be the name of a file, got ''"),
    "file-of-a-folder": ({"labels_file": ".."}, "'labels_file' must be the name of a file, got '..'"),
    "file-that-is-not-there": ({"labels_file": "1e999labels.npy"}, "its labels are in 1e999labels.npy, which is not there"),
    "file-with-a-zero-byte": (
        {"labels_file": "labels\0.npy"},
        r"'labels_file' must be the name of a file, got 'labels\\\\x00.npy'",
    ),
}
CASES += [
    Case(f"manifest-{fault}", manifest(**changed), "manifest", f"manifest.json: .*{says}")
    for fault, (changed, says) in MANIFESTS.items()
]
CASES += [
    Case("manifest-sound", manifest(), "manifest", ACCEPTED, lambda facts: facts["made_anew"] is True),
    Case(
        "manifest-elsewhere", manifest(labels_file="../../labels.npy"), "manifest", ACCEPTED, lambda facts: facts["made_anew"]
    ),
    Case("verify-sound", manifest(), "verify", ACCEPTED, lambda text: "labels, rate, matrix and seed" in text),
    Case("verify-noise-of-an-object", manifest(noise={"a": 1}), "verify", "manifest.json: not a manifest: 'noise' must be str"),
    Case("verify-a-seed-of-65-bits", manifest(seed=2**64), "verify", r"manifest.json: seed must be in \[-2\*\*63"),
    Case(
        "verify-with-a-name-too-long",
        manifest(labels_file="a" * 300 + ".npy"),
        "verify",
        "manifest.json: .*'labels_file' must be the name",
    ),
    Case("show-200000-classes", manifest(classes=200_000), "show", "manifest.json: 'matrix_asked' is of shape"),
]
