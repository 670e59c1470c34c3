"""Weights from files: what loads, what is refused, and that nothing in a file is ever run."""

import json
import os
import pickle
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from noiseproof.models import MLP, load_weights, resnet50
from noiseproof.paper.networks import CNN8

NAMES = json.loads((Path(__file__).parent / "data" / "torchvision_resnet50.json").read_text(encoding="utf-8"))


def torchvisions_state():
    """A state dict with torchvision's names and shapes, made without any model of ours."""
    generator = torch.Generator().manual_seed(0)
    counters = {name: torch.tensor(7) for name, _ in NAMES if name.endswith("num_batches_tracked")}
    return {name: counters.get(name, torch.rand(shape, generator=generator)) for name, shape in NAMES}


def save(state, path):
    save_file(state, path) if path.suffix == ".safetensors" else torch.save(state, path)
    return path


def small(seed=0):
    torch.manual_seed(seed)
    return MLP(3, 4, hidden=(5,))


def snapshot(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def assert_same(state, other):
    assert list(state) == list(other)
    assert all(torch.equal(state[name], other[name]) for name in state)


class Harmful:
    """Unpickling this makes a folder."""

    def __init__(self, folder):
        self.folder = str(folder)

    def __reduce__(self):
        return os.mkdir, (self.folder,)


@pytest.mark.parametrize("file", ["resnet50.pth", "resnet50.safetensors"])
def test_torchvisions_resnet50_loads_strictly(tmp_path, file):
    state = torchvisions_state()
    model = resnet50(1000, stem="imagenet")
    model.load_state_dict(state, strict=True)
    model = resnet50(1000, stem="imagenet")
    assert load_weights(model, save(state, tmp_path / file)) is model
    assert_same(state, model.state_dict())


def test_imagenet_weights_load_below_a_head_for_clothing1m(tmp_path):
    state = torchvisions_state()
    path = save(state, tmp_path / "resnet50.pth")
    model = resnet50(14, stem="imagenet")
    own = snapshot(model)
    with pytest.raises(ValueError, match=r"'fc.weight' of shape \[1000, 2048\], the model needs \[14, 2048\]; skip_head=True"):
        load_weights(model, path)
    load_weights(model, path, skip_head=True)
    assert_same({**state, "fc.weight": own["fc.weight"], "fc.bias": own["fc.bias"]}, model.state_dict())


def test_skip_head_does_not_need_a_head_in_the_file(tmp_path):
    source, model = small(1), small(2)
    own = snapshot(model)
    body = {name: tensor for name, tensor in source.state_dict().items() if not name.startswith("fc.")}
    load_weights(model, save(body, tmp_path / "body.pt"), skip_head=True)
    assert_same({**source.state_dict(), "fc.weight": own["fc.weight"], "fc.bias": own["fc.bias"]}, model.state_dict())


@pytest.mark.parametrize("suffix", [".pt", ".PTH", ".safetensors"])
def test_a_saved_model_comes_back(tmp_path, suffix):
    source, model = CNN8(10), CNN8(10)
    load_weights(model, str(save(source.state_dict(), tmp_path / f"weights{suffix}")))
    assert_same(source.state_dict(), model.state_dict())


def test_values_take_the_models_dtype(tmp_path):
    source, model = small(1), small(2)
    load_weights(model, save({k: v.half() for k, v in source.state_dict().items()}, tmp_path / "half.pt"))
    assert model.fc.weight.dtype == torch.float32
    torch.testing.assert_close(model.fc.weight, source.fc.weight, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("file", ["old.pth", "old.safetensors"])
def test_files_older_than_batch_norms_counter_load(tmp_path, file):
    source, model = CNN8(10), CNN8(10)
    model(torch.zeros(2, 3, 32, 32))
    old = {name: tensor for name, tensor in source.state_dict().items() if not name.endswith("num_batches_tracked")}
    load_weights(model, save(old, tmp_path / file))
    assert_same(source.state_dict(), model.state_dict())


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.pop("body.0.bias"), "has no 'body.0.bias', which the model needs; it starts with 'body.0.weight'"),
        (lambda s: s.update({"fc.extra": torch.zeros(1)}), "has 'fc.extra', which the model does not"),
        (
            lambda s: s.update({"body.0.weight": torch.zeros(5, 9)}),
            "has 'body.0.weight' of shape [5, 9], the model needs [5, 4]",
        ),
        (lambda s: s.clear(), "has no 'body.0.weight', which the model needs; it starts with None"),
    ],
    ids=["missing", "unexpected", "shape", "empty"],
)
def test_a_mismatch_names_the_key_and_the_file_and_changes_nothing(tmp_path, suffix, change, message):
    state = dict(small(1).state_dict())
    change(state)
    model = small(2)
    before = snapshot(model)
    path = save(state, tmp_path / f"weights{suffix}")
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the whole message is compared below
        load_weights(model, path)
    assert str(raised.value) == f"{path} {message}"
    assert_same(before, model.state_dict())


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_a_harmful_file_is_refused_and_not_run(tmp_path, zipped):
    folder = tmp_path / "made"
    path = tmp_path / "weights.pt"
    state = {**small().state_dict(), "fc.bias": Harmful(folder)}
    torch.save(state, path, _use_new_zipfile_serialization=zipped)
    model = small(2)
    before = snapshot(model)
    with pytest.raises(ValueError, match="objects are refused") as raised:
        load_weights(model, path)
    assert str(path) in str(raised.value)
    assert "weights_only" not in str(raised.value)
    assert not folder.exists()
    assert_same(before, model.state_dict())
    torch.load(path, weights_only=False)
    assert folder.exists(), "the file was harmless, so this test showed nothing"


@pytest.mark.parametrize("file", ["weights.pt", "weights.pth", "weights.safetensors"])
def test_a_bare_pickle_is_refused_and_not_run(tmp_path, file):
    folder = tmp_path / "made"
    (tmp_path / file).write_bytes(pickle.dumps(Harmful(folder)))
    with pytest.raises(ValueError, match=file):
        load_weights(small(), tmp_path / file)
    assert not folder.exists()


@pytest.mark.parametrize("file", ["weights.pt", "weights.safetensors"])
@pytest.mark.parametrize("kept", [0.0, 0.01, 0.5, 0.99])
def test_a_truncated_file_is_named(tmp_path, file, kept):
    path = save(small().state_dict(), tmp_path / file)
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    with pytest.raises(ValueError, match=r"is damaged or") as raised:
        load_weights(small(), path)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (torch.zeros(3), "must hold a state dict, a mapping of names to tensors; it holds a Tensor"),
        ({"epoch": 3}, "must hold names and tensors only; its 'epoch' is a int"),
        ({"state_dict": {"fc.weight": torch.zeros(1)}}, "must hold names and tensors only; its 'state_dict' is a dict"),
        ({0: torch.zeros(1)}, "must hold names and tensors only; its 0 is a Tensor"),
    ],
)
def test_what_is_no_state_dict_is_refused(tmp_path, content, message):
    path = tmp_path / "weights.pt"
    torch.save(content, path)
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the whole message is compared below
        load_weights(small(), path)
    assert str(raised.value) == f"{path} {message}"


def test_other_kinds_of_file_and_absent_files_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"^weights must be a .safetensors or .pt or .pth file, got .*weights.pkl$"):
        load_weights(small(), tmp_path / "weights.pkl")
    with pytest.raises(FileNotFoundError, match=r"weights\.pt"):
        load_weights(small(), tmp_path / "weights.pt")
    with pytest.raises(FileNotFoundError, match=r"weights\.safetensors"):
        load_weights(small(), tmp_path / "weights.safetensors")


def test_absent_safetensors_says_how_to_install_it(tmp_path, monkeypatch):
    path = save(small().state_dict(), tmp_path / "weights.safetensors")
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ImportError, match=r"weights.safetensors: pip install '.\[lab\]' in noiseproof's repository"):
        load_weights(small(), path)
    load_weights(small(), save(small().state_dict(), tmp_path / "weights.pt"))
