"""Batches are a function of the seed and the epoch, every example is in an epoch once, and processes share a batch."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch

from noiseproof.data import Augment, ImageFiles, Operation, RandomCrop, Split, load_image_folder
from noiseproof.train import Recipe, Run, RunOptions, TrainingData
from noiseproof.train.batch_loader import EpochPlan, FileLoader, MemoryLoader, Rank, Transforms

CPU = torch.device("cpu")


@pytest.fixture
def split():
    x = np.random.default_rng(0).integers(0, 256, (50, 6, 6, 3), dtype=np.uint8)
    return Split(x, np.arange(50) % 5)


def loader(split, **changes):
    options = {"batch": 16, "seed": 3, "device": CPU} | changes
    if isinstance(split, ImageFiles):
        # Its framing is not random, so that all that differs between two epochs' pictures is the augmentation.
        return FileLoader(split, Transforms.named("clothing1m", split), workers=0, **options)
    return MemoryLoader(split, Transforms.named("crop-flip", split), **options)


@pytest.fixture(params=["memory", "files"])
def examples(request, split, image_folder):
    return split if request.param == "memory" else load_image_folder(image_folder).train


def gathered(batches):
    return tuple(torch.cat(parts) for parts in zip(*batches, strict=True))


def test_an_epoch_has_every_example_once_with_its_label(examples):
    made = loader(examples)
    sizes = [len(batch.labels) for batch in made.epoch(0)]
    assert len(sizes) == made.steps()
    assert set(sizes[:-1]) == {16}
    _, labels, indices = gathered(made.epoch(0))
    assert sorted(indices.tolist()) == list(range(len(examples)))
    assert labels.tolist() == examples.labels[indices].tolist()


def test_an_epoch_can_be_made_again_without_those_before_it(examples):
    made, other = loader(examples), loader(examples)
    list(made.epoch(0))
    list(made.epoch(1))
    for left, right in zip(gathered(made.epoch(2)), gathered(other.epoch(2)), strict=True):
        assert torch.equal(left, right)


def test_epochs_and_seeds_have_other_orders_and_other_augmentations(examples):
    made = [gathered(loader(examples, seed=seed).epoch(epoch)) for seed, epoch in ((3, 0), (3, 1), (4, 0))]
    for (left, _, first), (right, _, second) in itertools.combinations(made, 2):
        assert not torch.equal(first, second)
        same = torch.equal(left[first.argsort()], right[second.argsort()])
        assert not same, "the same pictures of every example"


def test_evaluation_sees_every_example_in_order_and_the_same_each_time(examples):
    inputs, _, indices = gathered(loader(examples).eval_batches())
    assert indices.tolist() == list(range(len(examples)))
    assert torch.equal(inputs, gathered(loader(examples, seed=9).eval_batches())[0])


def test_large_examples_are_evaluated_fewer_at_a_time(split, monkeypatch):
    monkeypatch.setattr("noiseproof.train.batch_loader.EVALUATION_NUMBERS", 7 * 6 * 6 * 3)
    assert [len(batch.labels) for batch in loader(split).eval_batches()] == [7] * 7 + [1]


@pytest.mark.parametrize("world", [2, 3])
def test_processes_share_each_batch_and_together_are_one(split, world):
    alone = list(loader(split, batch=18).epoch(1))
    together = [list(loader(split, batch=18, process=Rank(rank, world)).epoch(1)) for rank in range(world)]
    for step, batch in enumerate(alone):
        parts = [batches[step] for batches in together]
        for k in range(3):
            assert torch.equal(torch.cat([part[k] for part in parts]), batch[k])


def test_a_process_evaluates_no_batch_without_examples(examples):
    """Of one example two processes have nothing to divide, and ``x.view(len(x), -1)`` of nothing is an error."""
    loaders = [loader(examples.take([7]), process=Rank(rank, 2)) for rank in range(2)]
    assert [batch.labels.tolist() for made in loaders for batch in made.eval_batches()] == [[examples.labels[7]]]
    for made in loaders:
        made.close()


def test_an_augmentation_is_drawn_by_position_and_so_is_the_same_for_any_batch(split):
    small, large = gathered(loader(split, batch=7).epoch(0)), gathered(loader(split, batch=50).epoch(0))
    assert all(torch.equal(left, right) for left, right in zip(small, large, strict=True))


def test_a_plan_is_a_permutation_and_draws_for_each_seed_and_epoch():
    augment = Augment((RandomCrop(padding=4),), (0.0,), (1.0,))
    plans = [EpochPlan.draw(100, (6, 6), augment, seed, epoch) for seed, epoch in ((0, 0), (0, 1), (1, 0))]
    assert all(sorted(plan.order.tolist()) == list(range(100)) for plan in plans)
    tops = [next(iter(dataclasses.asdict(plan.drawn[0]).values())) for plan in plans]
    assert all(not torch.equal(left, right) for left, right in itertools.combinations(tops, 2))


@dataclasses.dataclass(frozen=True)
class Spy(Operation):
    """Keeps the seed of the generator that it is handed."""

    seeds: list[int]

    def draw(self, n, size, generator):
        self.seeds.append(generator.initial_seed())
        return


def test_order_and_augmentation_are_independent_streams():
    """From one stream, which pictures come first would say how they are cut."""
    seeds = []
    augment = Augment((Spy(seeds),), (0.0,), (1.0,))
    plans = [EpochPlan.draw(50, (6, 6), augment, 3, epoch) for epoch in range(4)]
    assert len(set(seeds)) == 4
    for plan, seed in itertools.product(plans, seeds):
        assert not torch.equal(plan.order, torch.randperm(50, generator=torch.Generator().manual_seed(seed)))


@pytest.mark.parametrize(
    ("count", "batch", "world", "steps"),
    [
        (48, 16, 1, 3),  # whole batches alone
        (50, 16, 1, 4),  # and a rest
        (49, 16, 1, 4),  # of one example
        (10, 16, 1, 1),
        (48, 16, 2, 3),
        (50, 16, 2, 4),  # a rest of one for each process
        (49, 16, 2, 3),  # too few for both
        (50, 16, 4, 3),
        (50, 16, 3, 3),
    ],
)
def test_an_epoch_has_the_steps_it_says_in_every_process(split, count, batch, world, steps):
    for rank in range(world):
        made = loader(split.take(np.arange(count)), batch=batch, process=Rank(rank, world))
        assert made.steps() == steps
        assert len(list(made.epoch(0))) == steps


@pytest.mark.parametrize(
    ("count", "batch", "way"), [(50, 2, "at most 2 processes, or set batch=3"), (2, 16, "at most 2 processes$")]
)
def test_a_batch_with_fewer_examples_than_processes_is_refused(split, count, batch, way):
    recipe = Recipe(dataset="x", loss="ce", model="mlp", batch=batch)
    task = TrainingData("x", tuple("abcde"), split.take(np.arange(count)), None, None, {}, {})
    with pytest.raises(ValueError, match=f"each of the 3 processes, got batch={batch} of {count} examples; start {way}"):
        Run(recipe, task, RunOptions(process=Rank(0, 3)))


def test_a_networks_own_random_numbers_depend_on_seed_and_epoch_alone(split):
    def numbers(seed, epoch):
        recipe = Recipe(dataset="x", loss="ce", model="mlp", seed=seed)
        run = Run(recipe, TrainingData("x", tuple("abcde"), split, None, None, {}, {}), RunOptions())
        with run.engine.randomness(epoch):
            return torch.rand(4)

    first = numbers(0, 0)
    torch.manual_seed(99)
    assert torch.equal(first, numbers(0, 0))
    assert not torch.equal(first, numbers(0, 1))
    assert not torch.equal(first, numbers(1, 0))
