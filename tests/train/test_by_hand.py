"""Whole runs against a loop in plain torch: random recipes on random data, the numbers of the record and the weights."""

import math

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import noiseproof
from noiseproof.train import Recipe, prepare, train
from noiseproof.train.batch_loader import generator_for
from noiseproof.train.network import build_network

ORDER = 1  # the random stream of the examples' order
LOSSES = [
    ("ce", {}),
    ("ce", {"label_smoothing": 0.2}),
    ("jal-ce", {}),
    ("agce", {"a": 1.0, "q": 0.5}),
    ("nce+rce", {}),
    ("fl", {"gamma": 0.0}),
    ("sr", {}),
]


def data(chance, place):
    """Features or images, in several types of numbers; a class may have no examples, and there may be no test split."""
    classes, count = int(chance.choice([2, 3, 5])), int(chance.choice([20, 33, 64]))
    y = np.concatenate([np.arange(classes), chance.integers(0, classes, count - classes)])
    if classes > 2 and chance.random() < 0.3:
        y[y == 1] = 0
    kind = chance.choice(["features", "images", "floating images"])
    shape = {"features": (5,), "images": (6, 6, 3), "floating images": (3, 6, 6)}[kind]
    x = chance.normal(2.0, 3.0, (count, *shape)).astype(chance.choice(["<f2", "<f4", ">f8"]))
    if kind == "images":
        x = chance.integers(0, 256, (count, *shape), dtype=np.uint8)
    split = {"x_test": x[:9], "y_test": y[:9][::-1]} if chance.random() < 0.5 else {}
    soft = {"posterior": chance.dirichlet(np.full(classes, 0.3), count), "given": chance.integers(0, classes, count)}
    np.savez(place / "data.npz", x=x, y=y, **split)
    np.savez(place / "soft.npz", **soft)
    return x, y, split, soft


def recipe_of(chance, place, has_test, images):
    loss, options = LOSSES[chance.integers(len(LOSSES))]
    optional = {} if has_test else {"test_size": float(chance.choice([0.0, 0.3]))}
    if not images:
        optional |= {"standardise": bool(chance.random() < 0.6), "global_scaling": bool(chance.random() < 0.3)}
    return Recipe(
        dataset=str(place / "data.npz"),
        loss=loss,
        loss_options=options,
        noise=str(chance.choice(["none", "symmetric:0.5", "pairflip:1.0", "instance:0.3", f"labels:{place / 'soft.npz'}"])),
        noise_rule=str(chance.choice(["exact", "draws", "published"])),
        model_options={"hidden": [4]},
        lr=0.02,
        momentum=float(chance.choice([0.0, 0.5, 0.9])),
        nesterov=bool(chance.random() < 0.5),
        schedule=str(chance.choice(["cosine", "constant", "exponential:0.7", "step:1.5:0.3"])),
        l1=float(chance.choice([0.0, 0.01])),
        l2=float(chance.choice([0.0, 0.1])),
        clip=[None, 0.1, 5.0][chance.integers(3)],
        epochs=3,
        batch=int(chance.choice([1, 7, 16, 100])),
        seed=int(chance.choice([0, 123, 2**32 - 1])),
        **optional,
    )


def prepared(recipe, x, rows):
    """What the network reads: in float64 until the end, by the statistics of the rows that are trained on."""
    values, images = x.astype(np.float64), x.dtype == np.uint8
    if not (images or recipe.standardise):
        return torch.from_numpy(values.astype(np.float32))
    if images:
        values = values.transpose(0, 3, 1, 2)
    axes = (0,) if x.ndim == 2 else (0, 2, 3)
    if recipe.global_scaling and recipe.standardise:
        axes = None
    made = (values - values[rows].mean(axes, keepdims=True)) / values[rows].std(axes, keepdims=True)
    return torch.from_numpy(made.astype(np.float32))


def factor(schedule, epoch, epochs):
    form, *numbers = schedule.split(":")
    if form == "cosine":
        return (1 + math.cos(math.pi * epoch / epochs)) / 2
    if form == "exponential":
        return float(numbers[0]) ** epoch
    return float(numbers[1]) ** math.floor(epoch / float(numbers[0])) if form == "step" else 1.0


def by_hand(recipe, network, inputs, target, given, clean):
    """Trains the network; yields the loss, the share of given and of clean labels predicted, and the learning rate by epoch."""
    criterion, weights = noiseproof.create_loss(recipe.loss, **recipe.loss_options), list(network.parameters())
    options = {"momentum": recipe.momentum, "nesterov": recipe.nesterov and recipe.momentum > 0, "weight_decay": recipe.l2}
    optimiser = torch.optim.SGD(weights, lr=1.0, **options)
    for epoch in range(recipe.epochs):
        lr = optimiser.param_groups[0]["lr"] = recipe.lr * factor(recipe.schedule, epoch, recipe.epochs)
        criterion.set_epoch(epoch)
        losses, right = [], np.zeros(2)
        for batch in torch.randperm(len(inputs), generator=generator_for(recipe.seed, epoch, ORDER)).split(recipe.batch):
            optimiser.zero_grad()
            logits = network(inputs[batch])
            loss = criterion(logits, target[batch])
            (loss + recipe.l1 * sum(weight.abs().sum() for weight in weights)).backward()
            if recipe.clip is not None:
                nn.utils.clip_grad_norm_(weights, recipe.clip)
            optimiser.step()
            losses.append(loss.item())
            right += [(logits.argmax(1) == labels[batch]).sum().item() for labels in (given, clean)]
        yield np.mean(losses) - criterion.constant(logits.shape[1]), *(right / len(inputs)), lr


@pytest.mark.parametrize("seed", range(24))
def test_a_run_is_a_loop_in_plain_torch(seed, tmp_path):
    chance = np.random.default_rng(seed)
    x, y, split, soft = data(chance, tmp_path)
    recipe = recipe_of(chance, tmp_path, bool(split), x.dtype == np.uint8)
    task, record = prepare(recipe), train(recipe, folder=tmp_path / "run").record
    rows = np.arange(len(y)) if task.rows is None else task.rows
    given, clean = torch.from_numpy(task.train.labels), torch.from_numpy(y[rows])
    is_soft = recipe.noise.startswith("labels:")
    if is_soft:
        assert given.tolist() == soft["given"][rows].tolist()
    target = torch.from_numpy(soft["posterior"][rows].astype(np.float32)) if is_soft else given
    network = build_network(recipe, task)
    found = by_hand(recipe, network, prepared(recipe, x, rows)[rows], target, given, clean)
    for epoch, (loss, of_given, of_clean, lr) in zip(record.epochs, found, strict=True):
        assert epoch.loss == pytest.approx(loss, rel=1e-4, abs=1e-4)
        assert epoch.given_accuracy == pytest.approx(of_given, abs=1e-9)
        assert epoch.clean_accuracy == (None if recipe.noise == "none" else pytest.approx(of_clean, abs=1e-9))
        assert epoch.lr == pytest.approx(lr, rel=1e-12)
    weights = load_file(tmp_path / "run" / "weights.safetensors")
    for name, tensor in network.state_dict().items():
        assert torch.allclose(weights[name], tensor, rtol=1e-4, atol=1e-5), name

    trained, arrays = noiseproof.load(tmp_path / "run"), np.load(tmp_path / "run" / "confidence.npz")
    given, clean, predicted = given.numpy(), clean.numpy(), trained.predict(x[rows])
    assert np.array_equal(arrays["index"], rows)
    assert np.array_equal(arrays["predicted"][-1], predicted)
    assert np.array_equal(arrays["probability"][-1], trained.probabilities(x[rows])[np.arange(len(rows)), given])
    held = np.setdiff1d(np.arange(len(y)), rows)
    tested, truth = (split["x_test"], split["y_test"]) if split else (x[held], y[held])
    if len(truth):
        right = trained.predict(tested) == truth
        by_class = [right[truth == k].mean() if (truth == k).any() else None for k in range(len(task.classes))]
        assert record.result["test_accuracy"] == record.epochs[-1].test_accuracy == right.mean()
        assert record.result["accuracy_by_class"] == by_class
    assert record.result["given_labels_predicted"] == pytest.approx((predicted == given).mean(), abs=1e-12)
    wrong = given != clean
    if recipe.noise != "none" and wrong.any():
        assert record.task["noise"]["rate"] == pytest.approx(wrong.mean(), abs=1e-12)
        assert record.result["wrong_labels_memorised"] == pytest.approx((predicted == given)[wrong].mean(), abs=1e-12)
