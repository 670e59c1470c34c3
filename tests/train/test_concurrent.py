"""Several runs in one process."""

import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from noiseproof.data import from_arrays
from noiseproof.train import (
    Callback,
    Outcome,
    Recipe,
    Run,
    RunOptions,
    RunStore,
    train,
    train_concurrently,
    with_noise,
)  # fmt: skip
from noiseproof.train.executors import run_batches, run_in_threads
from noiseproof.train.loop import Loop, StoppedError
from noiseproof.train.network import build_network, nothing_drawn


def recipe(**changes):
    return Recipe(**{"dataset": "digits", "loss": "jal-ce", "noise": "symmetric:0.4", "epochs": 2, "lr": 0.05, **changes})


def test_networks_drawn_in_threads_are_those_drawn_alone():
    images = np.zeros((4, 32, 32, 3), dtype=np.uint8)
    dataset = from_arrays(images, np.arange(4), classes=tuple("abcdefghij"))
    recipes = [recipe(model="cnn8", noise="none", seed=seed) for seed in range(4)] * 3
    task = with_noise(dataset, recipes[0])
    alone = [build_network(one, task).state_dict() for one in recipes[:4]]
    before = torch.random.get_rng_state()
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda one: build_network(one, task).state_dict(), recipes))
    assert torch.equal(torch.random.get_rng_state(), before)
    for k, state in enumerate(together):
        assert all(torch.equal(value, alone[k % 4][name]) for name, value in state.items())


def test_runs_together_give_what_each_gives_alone(tmp_path):
    recipes = [recipe(seed=seed) for seed in (0, 1, 2)]
    outcomes = train_concurrently(recipes, store=RunStore(tmp_path), at_once=3)
    for one, outcome in zip(recipes, outcomes, strict=True):
        alone = train(one)
        assert outcome.record.result == alone.record.result
        assert [epoch.loss for epoch in outcome.record.epochs] == [epoch.loss for epoch in alone.record.epochs]
        assert (RunStore(tmp_path).folder_for(one) / "weights.safetensors").is_file()


def test_a_run_that_fails_does_not_stop_the_others():
    wrong = [recipe(lr=1e30), recipe(noise="labels:/nowhere.npy")]
    heard = [Heard() for _ in range(3)]
    outcomes = train_concurrently([wrong[0], recipe(), wrong[1]], callbacks=heard)
    assert "the loss is nan" in str(outcomes[0])
    assert isinstance(outcomes[1], Outcome)
    assert isinstance(outcomes[2], FileNotFoundError)
    assert [callback.epochs for callback in heard] == [[], [1, 2], []]


def test_a_run_that_failed_holds_nothing():
    """Its error is kept with the outcomes; the frames it came through had the run, and its memory on the device."""
    outcomes = train_concurrently([recipe(lr=1e30), recipe(lr=1e30, seed=1)])
    assert all(isinstance(outcome, RuntimeError) for outcome in outcomes)
    gc.collect()
    assert not [thing for thing in gc.get_objects() if type(thing) is Run]


def test_no_network_is_drawn_while_another_thread_compiles():
    """A compiler saves the generator when it begins and puts it back when it ends."""
    task = with_noise(from_arrays(np.zeros((4, 3), np.float32), np.arange(4) % 2), recipe(noise="none"))
    with ThreadPoolExecutor(1) as pool:
        with nothing_drawn():
            drawn = pool.submit(build_network, recipe(model="mlp", noise="none"), task)
            with pytest.raises(TimeoutError):
                drawn.result(timeout=0.3)
        assert drawn.result(timeout=600) is not None


class Interrupting(Callback):
    def on_epoch_end(self, facts):
        raise KeyboardInterrupt


def test_an_interruption_stops_the_runs_that_wait():
    heard = Heard()
    with pytest.raises(KeyboardInterrupt):
        train_concurrently([recipe(), recipe(seed=1)], callbacks=[Interrupting(), heard])
    assert heard.epochs == []


def test_a_run_at_work_stops_at_its_next_batch():
    stopping, batches = threading.Event(), []

    class Stop(Callback):
        def on_batch_end(self, epoch, done, total):
            batches.append(done)
            stopping.set()

    with pytest.raises(StoppedError):
        Loop(recipe(), None, None, None, RunOptions(), 60.0, Stop(), stopping).run()
    assert len(batches) == 1


class Heard(Callback):
    def __init__(self):
        self.epochs = []

    def on_epoch_end(self, facts):
        self.epochs.append(facts.epoch)


def test_what_cannot_go_together_is_said():
    assert train_concurrently([]) == []
    with pytest.raises(ValueError, match="one precision"):
        train_concurrently([recipe(), recipe(precision="bf16")])


def test_when_all_are_to_stop_those_that_never_started_are_not_waited_for():
    """Ctrl-C takes the same way as an error. The time is only there to end the test where the promise is broken."""
    stopping = threading.Event()

    def one(place):
        if place == 0:
            raise KeyboardInterrupt
        stopping.wait()

    def call():
        with pytest.raises(KeyboardInterrupt):
            run_in_threads(one, 50, 2, stopping)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()


def test_parts_hold_one_network_and_enough_runs_to_fill_the_device():
    """Of each network three runs a seed: two concurrently, four times over, are eight."""
    wanted = [recipe(seed=seed, model=model) for seed in range(4) for model in ("mlp", "cnn8") * 3]
    kinds = [[(one.model, one.seed) for one in part] for part in run_batches(wanted, "cuda", at_once=2)]
    assert sorted(kind for part in kinds for kind in part) == sorted((one.model, one.seed) for one in wanted)
    assert all(len({model for model, _ in part}) == 1 for part in kinds)
    assert [len(part) for part in kinds] == [8, 8, 4, 4]
    assert [seed for _, seed in kinds[0]] == [0, 0, 0, 1, 1, 1, 2, 2]


def test_a_seed_with_enough_runs_comes_before_the_next():
    wanted = [recipe(seed=seed, batch=batch) for seed in (0, 1) for batch in (16, 32, 64, 128)]
    parts = list(run_batches(wanted, "cpu"))
    assert [{one.seed for one in part} for part in parts] == [{0}, {1}]
