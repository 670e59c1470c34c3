"""Several runs in one process."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from noiseproof.data import from_arrays
from noiseproof.train import Observer, Outcome, Recipe, train, train_together, with_noise
from noiseproof.train.network import build_network


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
    folders = [tmp_path / str(one.seed) for one in recipes]
    outcomes = train_together(recipes, folders=folders, at_once=3)
    for one, outcome in zip(recipes, outcomes, strict=True):
        alone = train(one)
        assert outcome.record.result == alone.record.result
        assert [epoch.loss for epoch in outcome.record.epochs] == [epoch.loss for epoch in alone.record.epochs]
        assert (tmp_path / str(one.seed) / "weights.safetensors").is_file()


def test_a_run_that_fails_does_not_stop_the_others():
    wrong = [recipe(lr=1e30), recipe(noise="labels:/nowhere.npy")]
    heard = [Heard() for _ in range(3)]
    outcomes = train_together([wrong[0], recipe(), wrong[1]], observers=heard)
    assert "the loss is nan" in str(outcomes[0])
    assert isinstance(outcomes[1], Outcome)
    assert isinstance(outcomes[2], FileNotFoundError)
    assert [observer.epochs for observer in heard] == [[], [1, 2], []]


class Heard(Observer):
    def __init__(self):
        self.epochs = []

    def epoch(self, facts):
        self.epochs.append(facts.epoch)


def test_what_cannot_go_together_is_said():
    assert train_together([]) == []
    with pytest.raises(ValueError, match="one precision"):
        train_together([recipe(), recipe(precision="bf16")])
    with pytest.raises(ValueError, match="one folder for each recipe: 1 recipes, 0 folders"):
        train_together([recipe()], folders=[])
