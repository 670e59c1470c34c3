"""The fast path on CUDA: the same computation as the plain one, alone and beside others."""

import contextlib
import dataclasses
import functools
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from noiseproof.data import from_arrays
from noiseproof.train import Recipe, Run, RunOptions, with_noise
from noiseproof.train.batch_loader import Batch
from noiseproof.train.engine import PlainEngine, precision_of

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def images_task(recipe, count=336, classes=10, size=(32, 32), soft=False):
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (count, *size, 3), dtype=np.uint8)
    labels = generator.integers(0, classes, count)
    dataset = from_arrays(images, labels, images[:64], labels[:64], name="random", classes=tuple(map(str, range(classes))))
    task = with_noise(dataset, recipe)
    if not soft:
        return task
    return dataclasses.replace(task, soft=generator.dirichlet(np.ones(classes), count).astype(np.float32))


def recipe_of(model="cnn8", **changes):
    settings = {"l1": 5e-5, "clip": 5.0, "augment": "cifar10", "epochs": 3, "lr": 0.01, "precision": "float32"}
    return Recipe(dataset="random", loss="jal-ce", noise="symmetric:0.4", model=model, **{**settings, **changes})


def fast_run(recipe, task, options, kernels="triton"):
    from noiseproof.train.fast.graph import GraphEngine

    return Run(recipe, task, options, functools.partial(GraphEngine, kernels=kernels))


def losses_of(run, epochs):
    """The loss of every step."""
    seen = []
    inner = run.read_metrics

    def read_metrics(epoch, steps):
        seen.extend(steps.losses.tolist())
        return inner(epoch, steps)

    run.read_metrics = read_metrics
    facts = [run.train_epoch(epoch) for epoch in epochs]
    return np.asarray(seen), facts


class Backwards(PlainEngine):
    """The plain engine with every batch in reverse: the same numbers, added in another order."""

    def step(self, batch, lr):
        loss, predicted = super().step(Batch(*(tensor.flip(0) for tensor in batch)), lr)
        return loss, predicted.flip(0)


def away(state, other):
    """How far each tensor of a state is from another's, of its own size."""
    return {
        name: ((other[name] - value).double().norm() / value.double().norm().clamp_min(1e-3)).item()
        for name, value in state.items()
    }


@pytest.mark.parametrize(
    ("shared", "kernels", "changes", "soft"),
    [
        pytest.param(False, "triton", {"model_options": {"widths": [8, 5, 8]}}, False, marks=pytest.mark.slow),
        pytest.param(True, "triton", {"clip": None, "l1": 0.0, "l2": 1e-4, "nesterov": True}, False, marks=pytest.mark.slow),
        (False, "torch", {}, False),
        (True, "torch", {}, True),
    ],
    ids=["alone", "beside others", "torch's kernels", "soft labels"],
)
def test_the_fast_path_computes_what_the_plain_one_does_without_a_device_too(shared, kernels, changes, soft, monkeypatch):
    """An epoch of three parts, the last batch a smaller one; then an evaluation, the state, and another epoch from there.

    Predictions are as near as the plain ones are to themselves with their sums in another order.
    """
    if torch.cuda.is_available():
        pytest.skip("there is a device")
    pytest.importorskip("triton")
    from noiseproof.train.fast import staging
    from tests.helpers import no_device

    no_device.take_away(monkeypatch)
    monkeypatch.setattr(staging, "STAGED", 1)
    recipe = recipe_of(batch=6, **{"model_options": {"widths": [8, 8, 8]}, **changes})
    task, options = images_task(recipe, count=16, soft=soft), RunOptions(at_once=2 if shared else 1)
    plain, fast = Run(recipe, task, options), fast_run(recipe, task, options, kernels)
    backwards = Run(recipe, task, options, Backwards)
    (expected, facts), (ours, our_facts), _ = (losses_of(run, [0]) for run in (plain, fast, backwards))
    np.testing.assert_allclose(ours, expected, rtol=1e-6)
    assert [fact.accuracies() for fact in our_facts] == [fact.accuracies() for fact in facts]
    assert plain.accuracy() == fast.accuracy()
    rounding = np.abs(backwards.probabilities(task.train) - plain.probabilities(task.train)).max()
    near = {"rtol": 0, "atol": 10 * rounding + 1e-6}
    np.testing.assert_allclose(fast.predictions().probability, plain.predictions().probability, **near)
    np.testing.assert_allclose(fast.probabilities(task.train), plain.probabilities(task.train), **near)
    np.testing.assert_allclose(fast.probabilities(task.test), plain.probabilities(task.test), **near)
    distance = away(plain.state(), fast.state())
    folded = {f"update.momentum.{name}" for name in fast.engine.packed.spans if name not in fast.engine.packed.leaves}
    assert max(distance[name] for name in distance.keys() - folded) < 1e-4
    fast.load_state(plain.state())
    assert losses_of(fast, [1])[0] == pytest.approx(losses_of(plain, [1])[0], rel=1e-5)
    fast.close()


def test_the_fast_path_comes_after_what_was_launched_on_its_own_device(monkeypatch):
    """On cuda:1, say, while the current device is another: a loaded state is on its way there."""
    pytest.importorskip("triton")
    from noiseproof.train.fast.graph import GraphEngine

    engine, waited, device = GraphEngine.__new__(GraphEngine), [], torch.device("cuda", 1)
    engine.inputs = SimpleNamespace(options=RunOptions(device=device))
    engine.stream = SimpleNamespace(wait_stream=waited.append)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: f"current of {device}")
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    with engine.on_stream():
        assert waited == ["current of cuda:1"]


@cuda
@pytest.mark.parametrize(
    ("changes", "soft"),
    [({}, False), ({"l1": 0.0, "l2": 1e-4, "nesterov": True}, False), ({"clip": None}, False), ({}, True)],
    ids=["l1", "l2", "unclipped", "soft labels"],
)
@pytest.mark.parametrize("kernels", ["triton", "compiled", "torch"])
def test_the_fast_path_is_the_plain_one_in_float32(kernels, changes, soft):
    """As near to it as the plain one is to itself with its sums in another order; rounding grows from step to step."""
    recipe = recipe_of(**changes)
    task, options = images_task(recipe, soft=soft), RunOptions(device=torch.device("cuda"))
    with precision_of(recipe, deterministic=False):
        plain, fast = Run(recipe, task, options), fast_run(recipe, task, options, kernels)
        backwards = Run(recipe, task, options, Backwards)
        (expected, facts), (ours, our_facts), (yardstick, _) = (losses_of(run, range(2)) for run in (plain, fast, backwards))
        noise = np.abs(yardstick - expected) / expected
        np.testing.assert_array_less(np.abs(ours - expected) / expected, 10 * noise.max() + 1e-6)
        for one, other in zip(our_facts, facts, strict=True):
            assert abs(one.given_accuracy - other.given_accuracy) <= 0.02
            assert abs(one.clean_accuracy - other.clean_accuracy) <= 0.02
        state = plain.state()
        distance, noise = away(state, fast.state()), away(state, backwards.state())
    folded = {f"update.momentum.{name}" for name in fast.engine.packed.spans if name not in fast.engine.packed.leaves}
    for name in state.keys() - folded:  # the plain gradient of such a bias is rounding, ours is zero
        assert distance[name] <= 10 * noise[name] + 1e-3, name
    assert abs(plain.accuracy() - fast.accuracy()) <= 2 / 64


@cuda
@pytest.mark.parametrize("kernels", ["triton", "torch"])
def test_a_residual_network_takes_the_fast_path_too(kernels):
    """One step: shortcuts, with and without a convolution in them."""
    recipe = recipe_of("resnet18", batch=64, epochs=1)
    task, options = images_task(recipe, count=64), RunOptions(device=torch.device("cuda"))
    with precision_of(recipe, deterministic=False):
        plain, fast = Run(recipe, task, options), fast_run(recipe, task, options, kernels)
        backwards = Run(recipe, task, options, Backwards)
        (expected, _), (ours, _), _ = (losses_of(run, [0]) for run in (plain, fast, backwards))
        np.testing.assert_allclose(ours, expected, rtol=1e-5)
        distance, noise = away(plain.state(), fast.state()), away(plain.state(), backwards.state())
    for name, far in distance.items():
        assert far <= 10 * noise[name] + 1e-3, name


@cuda
def test_the_fast_path_in_bfloat16_is_as_near_as_rounding_is():
    """To the plain path under autocast, as near as that is to itself with its batches in reverse."""
    recipe = recipe_of(precision="bf16", lr=0.001)
    task, options = images_task(recipe), RunOptions(device=torch.device("cuda"))
    with precision_of(recipe, deterministic=False):
        runs = Run(recipe, task, options), fast_run(recipe, task, options), Run(recipe, task, options, Backwards)
        (expected, _), (ours, _), (yardstick, _) = (losses_of(run, range(2)) for run in runs)
    noise = np.abs(yardstick - expected) / expected
    np.testing.assert_array_less(np.abs(ours - expected) / expected, 10 * noise.max() + 1e-4)


@cuda
def test_the_parts_in_which_examples_are_laid_ready_do_not_matter(monkeypatch):
    from noiseproof.train.fast import staging

    recipe = recipe_of(batch=32)
    task, options = images_task(recipe), RunOptions(device=torch.device("cuda"))
    with precision_of(recipe, deterministic=False):
        expected, _ = losses_of(fast_run(recipe, task, options), range(3))
        monkeypatch.setattr(staging, "STAGED", 1)
        ours, _ = losses_of(fast_run(recipe, task, options), range(3))
    np.testing.assert_array_equal(ours, expected)


@cuda
@pytest.mark.parametrize("size", [(40, 48), (64, 64)])
def test_small_images_of_other_sizes_take_the_fast_path(size):
    recipe = recipe_of(augment="none", epochs=1)
    task, options = images_task(recipe, size=size), RunOptions(device=torch.device("cuda"))
    with precision_of(recipe, deterministic=False):
        plain, fast = Run(recipe, task, options), fast_run(recipe, task, options)
        (expected, _), (ours, _) = losses_of(plain, [0]), losses_of(fast, [0])
        np.testing.assert_allclose(ours, expected, rtol=1e-3)
        assert abs(plain.accuracy() - fast.accuracy()) <= 2 / 64


@cuda
def test_images_that_the_augmentation_enlarges_take_the_fast_path():
    recipe = recipe_of("resnet18", augment="webvision", batch=32, epochs=1)
    task, options = images_task(recipe, count=64), RunOptions(device=torch.device("cuda"))
    with precision_of(recipe, deterministic=False):
        plain, fast = Run(recipe, task, options), fast_run(recipe, task, options)
        (expected, _), (ours, _) = losses_of(plain, [0]), losses_of(fast, [0])
        np.testing.assert_allclose(ours, expected, rtol=1e-3)
        assert fast.engine.staging.inputs.shape[1:3] == (224, 224)
        assert abs(plain.accuracy() - fast.accuracy()) <= 2 / 64


@cuda
def test_streams_are_taken_once_and_given_back():
    from noiseproof.train.fast.streams import POOL, RunStreams

    own = RunStreams(torch.device("cuda", 0))
    taken = [own.take() for _ in range(POOL)]
    assert len({stream.cuda_stream for stream in taken}) == POOL
    with pytest.raises(RuntimeError, match="no stream is free"):
        RunStreams(torch.device("cuda", 0)).take()
    own.close()
    assert RunStreams(torch.device("cuda", 0)).take().cuda_stream in {stream.cuda_stream for stream in taken}


@cuda
def test_a_step_that_fails_while_captured_says_so_and_leaves_the_device_usable(monkeypatch):
    from noiseproof.train.fast import streams

    recipe = recipe_of()
    task, options = images_task(recipe), RunOptions(device=torch.device("cuda"))
    backward, calls = streams._Conv.backward, []

    def failing(ctx, *gradients):
        calls.append(torch.cuda.is_current_stream_capturing())
        if calls[-1] and calls.count(True) == 2:
            raise torch.OutOfMemoryError("none left")
        return backward(ctx, *gradients)

    with precision_of(recipe, deterministic=False):
        monkeypatch.setattr(streams._Conv, "backward", staticmethod(failing))
        with pytest.raises(torch.OutOfMemoryError, match="none left"):
            fast_run(recipe, task, options)
        monkeypatch.undo()
        torch.cuda.empty_cache()
        assert fast_run(recipe, task, options).train_epoch(0).loss > 0


@cuda
def test_an_evaluation_in_a_graph_is_the_plain_one():
    """The last part of the examples is smaller than the graph's batch."""
    recipe = recipe_of()
    task, options = images_task(recipe, count=1100), RunOptions(device=torch.device("cuda"))
    with precision_of(recipe, deterministic=False):
        plain, fast = Run(recipe, task, options), fast_run(recipe, task, options)
        plain.train_epoch(0)
        fast.load_state(plain.state())
        assert plain.accuracy() == fast.accuracy()
        expected, ours = plain.predictions(), fast.predictions()
        np.testing.assert_allclose(fast.probabilities(task.test), plain.probabilities(task.test), rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(ours.probability, expected.probability, rtol=1e-3, atol=1e-6)
    assert (ours.predicted == expected.predicted).mean() > 0.998


@cuda
def test_a_state_goes_from_one_path_to_the_other():
    recipe = recipe_of()
    task, options = images_task(recipe), RunOptions(device=torch.device("cuda"))
    with precision_of(recipe, deterministic=False):
        plain, fast = Run(recipe, task, options), fast_run(recipe, task, options)
        plain.train_epoch(0)
        fast.load_state(plain.state())
        (expected, _), (ours, _) = losses_of(plain, [1]), losses_of(fast, [1])
    np.testing.assert_allclose(ours, expected, rtol=1e-4)


@cuda
@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_concurrent_runs_give_exactly_what_each_gives_alone(precision):
    recipes = [recipe_of(precision=precision, seed=seed, loss_options={"a": a}) for seed in (0, 1) for a in (10.0, 30.0)]
    options = RunOptions(device=torch.device("cuda"))
    crowded = dataclasses.replace(options, at_once=2)
    with precision_of(recipes[0], deterministic=False):
        alone, accuracies = [], []
        for recipe in recipes:
            run = fast_run(recipe, images_task(recipe), options)
            alone.append(losses_of(run, range(3))[0])
            accuracies.append(run.accuracy())
        with ThreadPoolExecutor(len(recipes)) as pool:  # built concurrently too
            runs = list(pool.map(lambda recipe: fast_run(recipe, images_task(recipe), crowded), recipes))
            together = [losses for losses, _ in pool.map(lambda run: losses_of(run, range(3)), runs)]
            assert list(pool.map(lambda run: run.accuracy(), runs)) == accuracies
            states = list(pool.map(lambda run: run.state(), runs))
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, other)
    for name, tensor in run.state().items():
        assert torch.equal(tensor, states[-1][name]), name


@cuda
def test_the_fast_path_does_not_wait_for_the_device_within_an_epoch():
    recipe = recipe_of(precision="bf16")
    with precision_of(recipe, deterministic=False):
        run = fast_run(recipe, images_task(recipe), RunOptions(device=torch.device("cuda")))
        run.read_metrics = lambda *numbers: (0.0, 0.0, None)
        run.train_epoch(0)
        run.engine.staging.plan_ahead(1)
        run.engine.staging.plan_ahead = lambda epoch: None  # the copy from the host, which may wait
        torch.cuda.set_sync_debug_mode("error")
        try:
            run.train_epoch(1)
        finally:
            torch.cuda.set_sync_debug_mode("default")
