"""Runs and weights that lie about their network, and hostile examples to predict."""

import functools
import json
import os
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save

from noiseproof.data import from_arrays, open_unlabelled
from noiseproof.data.table import plain_encoder
from noiseproof.io.files import checksum
from noiseproof.models import MLP
from noiseproof.paper.networks import CNN8
from noiseproof.train import Recipe, Record, load, with_noise
from tests.hostile.harness import ACCEPTED, Case

WEIGHTS = "weights.safetensors"
HUGE, LONG = 10**9, 10**300
MLP_FACTS = {
    "model": "mlp",
    "model_options": {"hidden": [5], "in_features": 4},
    "class_names": ["a", "b", "c"],
    "preprocessing": {"kind": "features", "standardise": {"mean": [0.0] * 4, "std": [1.0] * 4}},
    "input_shape": [4],
    "precision": "float32",
}
IMAGES = {"kind": "images", "channels": 3, "size": [28, 28], "scale": 1 / 255, "mean": [0.5] * 3, "std": [0.2] * 3}
CNN_FACTS = MLP_FACTS | {
    "model": "cnn8",
    "model_options": {"widths": [2, 2, 2], "size": [28, 28], "in_channels": 3},
    "preprocessing": IMAGES,
    "input_shape": [28, 28, 3],
}


@functools.cache
def tensors(model: str) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return (MLP(3, 4, hidden=(5,)) if model == "mlp" else CNN8(3, widths=(2, 2, 2), size=28)).state_dict()


def described(text: str, model: str = "mlp"):
    """Weights whose metadata are this text."""

    def make(folder: Path) -> Path:
        (folder / WEIGHTS).write_bytes(save(tensors(model), {"noiseproof": text}))
        return folder / WEIGHTS

    return make


def said(**changes):
    facts = CNN_FACTS if changes.get("model") == "cnn8" else MLP_FACTS
    return described(json.dumps(facts | changes), "cnn8" if facts is CNN_FACTS else "mlp")


def options(**changes):
    return said(model_options=MLP_FACTS["model_options"] | changes)


def images(**changes):
    return said(model="cnn8", preprocessing=IMAGES | changes)


def recorded(change=lambda record: None, **facts):
    """The folder of a run, whose record is changed."""

    def make(folder: Path) -> Path:
        run = folder / "odd-run"
        run.mkdir()
        said()(run)
        recipe = Recipe(dataset="x", loss="ce", model="mlp")
        record = Record.of(recipe, with_noise(from_arrays(np.zeros((4, 4)), np.arange(4) % 3), recipe), {}).as_dict()
        record |= {"status": "finished", "files": {WEIGHTS: checksum(run / WEIGHTS)}} | facts
        change(record)
        (run / "record.json").write_text(json.dumps(record), encoding="utf-8")
        return run

    return make


def fifo(folder: Path) -> Path:
    (folder / "odd-run").mkdir()
    os.mkfifo(folder / "odd-run" / "record.json")
    return folder / "odd-run"


def fifo_weights(folder: Path) -> Path:
    os.mkfifo(folder / WEIGHTS)
    return folder / WEIGHTS


def written(name: str, content: bytes):
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(content)
        return folder / name

    return make


def arrays(**content):
    def make(folder: Path) -> Path:
        np.savez(folder / "odd.npz", **content)
        return folder / "odd.npz"

    return make


def predicted(path: Path) -> np.ndarray:
    return load(path).predict(np.zeros((2, 4), np.float32))


def opened(path: Path) -> object:
    return open_unlabelled(path, ("a", "b", "c"), None if path.suffix in (".txt", "") else 4)


def opened_by_columns(path: Path) -> object:
    return open_unlabelled(path, ("a", "b", "c"), len(NAMES), plain_encoder(NAMES)).examples.inputs[0, 0]


NAMES = [f"column {k}" for k in range(60_000)]
ATTEMPTS = {"load": load, "predict": predicted, "open": opened, "columns": opened_by_columns}
FIT, SIZE = "as described needs", "a way to resize images cannot be"
OVERFLOW = "the options of (mlp|cnn8) ask for tensors beyond any memory"
CASES = [
    Case("sound", said(), "predict", ACCEPTED, lambda found: found.shape == (2,)),
    Case("a run", recorded(), "predict", ACCEPTED, lambda found: found.shape == (2,)),
    Case("images", said(model="cnn8"), "load", ACCEPTED),
    Case("no JSON", described("{"), "load", "description of the network is not JSON"),
    Case("deep JSON", described("[" * 10**6), "load", "description of the network is not JSON"),
    Case("long JSON", described(" " * 2**25), "load", "in 33554432 characters, at most"),
    Case("a long number", described("[" + "9" * 10**6 + "]"), "load", "description of the network is not JSON"),
    Case("a list", described("[]"), "load", "must be an object, found"),
    Case("nothing in it", described("{}"), "load", "names of the classes must be at least two texts"),
    *(
        Case(f"classes {name}", said(class_names=value), "load", "names of the classes must be at least two texts")
        for name, value in (("number", HUGE), ("numbers", [1, 2, 3]), ("one", ["a"]), ("text", "abc"), ("none", None))
    ),
    Case("classes more", said(class_names=["a"] * 10**5), "load", f"{FIT} 'fc.weight'.*is .3, 5. in the file"),
    Case("units", options(hidden=[HUGE]), "load", f"{FIT} 'body.0.weight' .1000000000, 4."),
    Case("features", options(in_features=HUGE), "load", f"{FIT} 'body.0.weight'"),
    Case("units and features", options(hidden=[HUGE * 10], in_features=HUGE * 10), "load", OVERFLOW),
    Case("units beyond numbers", options(hidden=[LONG]), "load", OVERFLOW),
    Case("layers", options(hidden=[1] * 10**6), "load", "options list more layers than the file's 4 tensors"),
    Case("layers as text", options(hidden="a" * 10**6), "load", r"hidden\[0\] must be an integer"),
    Case("layers as objects", options(hidden={"0": HUGE}), "load", "must be an integer"),
    Case("units negative", options(hidden=[-1]), "load", "must be at least 1"),
    Case("an option of a call", options(classes=HUGE), "load", "odd|classes|multiple values"),
    Case("an option that is not", options(__class__=3), "load", "has no option '__class__'"),
    Case("options a list", said(model_options=[1]), "load", "the network must be a name and options"),
    Case("model a number", said(model=3), "load", "the network must be a name and options"),
    Case("model unknown", said(model="mlpp"), "load", "unknown model 'mlpp'"),
    Case("model escapes", said(model="m\x1b[2J"), "load", "unknown model"),
    Case("model another", said(model="resnet18", model_options={}), "load", FIT),
    Case("model of code", said(model="os:abort"), "load", "is not run unasked; name it to allow it: model='os:abort'"),
    Case("precision", said(precision="int4"), "load", "precision must be one of"),
    Case("columns a text", said(columns="abcd"), "load", "the names of the columns must be texts, found 'abcd'"),
    Case("columns of lists", said(columns=[[]] * 4), "load", "the names of the columns must be texts"),
    Case("columns too many", said(columns=["a"] * 5), "load", "5 names of columns, and the network reads 4 features"),
    Case("precision a list", said(precision=[]), "load", "precision must be one of"),
    Case("widths", said(model="cnn8", model_options={"widths": [HUGE], "size": 28}), "load", OVERFLOW),
    Case("widths none", said(model="cnn8", model_options={"widths": []}), "load", "widths must have at least 1 number"),
    Case("widths a number", said(model="cnn8", model_options={"widths": 3}), "load", "widths must be a list of widths"),
    Case("an option of two lines", options(in_channels="a\nb"), "load", r"in_channels does not apply to mlp.*got a\\nb"),
    Case("channels", said(model="cnn8", model_options={"widths": [2, 2, 2], "size": 28, "in_channels": 7}), "load", FIT),
    *(
        Case(
            f"preprocessing {name}",
            said(preprocessing=value),
            "load",
            "cannot be|must have as many deviations of at least 0|is not JSON",
        )
        for name, value in (
            ("none", None),
            ("a number", 3),
            ("of no kind", {}),
            ("of another kind", {"kind": "sound"}),
            ("of images alone", {"kind": "images"}),
            ("standardised by text", {"kind": "features", "standardise": "mean"}),
            ("without deviations", {"kind": "features", "standardise": {"mean": [0.0]}}),
            ("of other lengths", {"kind": "features", "standardise": {"mean": [0.0], "std": [1.0, 1.0]}}),
            ("negative", {"kind": "features", "standardise": {"mean": [0.0], "std": [-1.0]}}),
            ("not finite", {"kind": "features", "standardise": {"mean": [float("inf")], "std": [1.0]}}),
            ("nan", {"kind": "features", "standardise": {"mean": [0.0], "std": [float("nan")]}}),
            ("beyond numbers", {"kind": "features", "standardise": {"mean": [10**4000], "std": [1]}}),
        )
    ),
    Case(
        "statistics of others",
        said(preprocessing={"kind": "features", "standardise": {"mean": [0], "std": [1]}}),
        "predict",
        "must have 1 features",
    ),
    Case("shape", said(input_shape=[HUGE, HUGE]), "load", "examples must have 4 features, as in training"),
    Case(
        "shape alone",
        said(input_shape=[HUGE, HUGE], preprocessing={"kind": "features"}),
        "load",
        "MLP takes 4 features per example",
    ),
    Case("shape negative", said(input_shape=[-4]), "load", "inputs' shape cannot be"),
    Case("shape text", said(input_shape="4"), "load", "inputs' shape cannot be"),
    Case("image size", images(size=[10**5, 10**5]), "load", "the shape of an image cannot be"),
    Case("image size odd", images(size=[28, 29]), "load", r"CNN8 takes images \[N, 3, 28, 28\]"),
    Case("image size three", images(size=[28, 28, 28]), "load", "the shape of an image cannot be"),
    Case("many channels", images(mean=[0.5] * 10**5, std=[0.2] * 10**5), "load", "the number of channels cannot be 100000"),
    Case("deviation zero", images(std=[0.0] * 3), "load", "std must be in"),
    Case("mean too large", images(mean=[300] * 3), "load", "mean must be in"),
    Case("framing code", images(framing="__import__('os').abort()"), "load", SIZE),
    Case("framing call", images(framing="Cover(height=28, width=os.abort())"), "load", SIZE),
    Case("framing unknown", images(framing="Eval(height=28, width=28)"), "load", SIZE),
    Case("framing huge", images(framing="Cover(height=99999, width=99999)"), "load", "the shape of an image cannot be"),
    Case("framing longer", images(framing="Cover(height=1000000000, width=1)"), "load", SIZE),
    Case("framing zero", images(framing="Cover(height=0, width=28)"), "load", "height must be at least 1"),
    Case("framing a list", images(framing=["Cover"]), "load", SIZE),
    Case(
        "operations many", images(operations=["ResizeCenterCrop(resize=256, size=224)"] * 10**5), "load", "operations cannot be"
    ),
    Case(
        "operation huge", images(operations=["ResizeCenterCrop(resize=99999, size=99999)"]), "load", "an enlargement cannot be"
    ),
    Case(
        "operation enlarging", images(operations=["ResizeCenterCrop(resize=4096, size=28)"]), "load", "an enlargement cannot be"
    ),
    Case("operation code", images(operations=["os.abort()"]), "load", SIZE),
    Case("no metadata", lambda folder: _plain(folder), "load", "it does not say its network"),
    Case("fifo", fifo, "load", "has no record.json"),
    Case("fifo of weights", fifo_weights, "load", "no run, and no file of weights"),
    Case("a record that lies", recorded(lambda r: r["task"].update(classes=HUGE)), "predict", ACCEPTED),
    Case("a record of text", recorded(files="abc"), "load", "'files' must be an object"),
    Case("a digest of numbers", recorded(files={WEIGHTS: 3}), "load", f"'files.{WEIGHTS}' must be text"),
    Case("a digest of others", recorded(files={WEIGHTS: "0" * 64}), "load", "damaged, it is not what the run wrote"),
    Case("a file elsewhere", recorded(lambda r: r["files"].update({"/dev/zero": "0"})), "predict", ACCEPTED),
    Case("unfinished", recorded(status="running"), "load", "the run is not finished"),
    Case("diverged with escapes", recorded(status="diverged", message="\x1b[2J"), "load", "the run is not finished"),
    Case("another status", recorded(status="gone"), "load", "'status' must be one of"),
    Case(
        "a long name in a record",
        recorded(seconds={"s" * 10**5: "x"}),
        "load",
        r"'seconds\.s{80}\.\.\.' must be a number",
    ),
    Case("npz without x", arrays(y=np.arange(3)), "open", "no array named 'x'; it has y"),
    Case("npz of rows of nothing", arrays(x=np.empty((2**40, 0))), "open", r"array 'x': its shape is \(1099511627776, 0\)"),
    Case(
        "60000 columns in another order",
        written("odd.csv", f"{','.join(NAMES[::-1])}\n{','.join(map(str, range(60_000)))}\n".encode()),
        "columns",
        ACCEPTED,
        lambda found: found == 59_999,
    ),
    Case("npz of objects", arrays(x=np.array([{}], object)), "open", "plain numbers"),
    Case("npz of a number", arrays(x=np.float32(3)), "open", "inputs must be"),
    Case("npz with labels beyond", arrays(x=np.zeros((2, 4)), y=np.array([0, HUGE])), "open", r"labels must be in \[0, 2\]"),
    Case("npz with labels of text", arrays(x=np.zeros((2, 4)), y=np.array(["a", "b"])), "open", "plain numbers"),
    Case("table of others", written("odd.csv", b"1,2\n"), "open", "2 columns, and the network was trained on 4 features"),
    Case("table of a million columns", written("odd.csv", b"1," * 10**6 + b"1\n"), "open", "columns, at most 100000"),
    Case("table of text", written("odd.csv", b"a,b,c,d\n1,2,3,four\n"), "open", "column 'd' should be a number, got 'four'"),
    Case("table without rows", written("odd.csv", b"a,b,c,d\n"), "open", "the table has no rows"),
    Case("table empty", written("odd.csv", b""), "open", "the file is empty"),
    Case("table not text", written("odd.csv", b"\xff\xfe1,2,3,4"), "open", "codec|no row|columns"),
    Case("list empty", written("odd.txt", b""), "open", "no images listed"),
    Case("list of nothing", written("odd.txt", b"path\n"), "open", "no images listed"),
    Case("list of what is not there", written("odd.txt", b"path\nnone.png\n"), "open", "odd.txt:2: no file"),
    Case("list of a device", written("odd.txt", b"path\n/dev/zero\n"), "open", "odd.txt:2: no file /dev/zero"),
    Case("list not text", written("odd.txt", b"\x00" * 100), "open", "a zero byte"),
]


def _plain(folder: Path) -> Path:
    (folder / WEIGHTS).write_bytes(save(tensors("mlp")))
    return folder / WEIGHTS
