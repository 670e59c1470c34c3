"""The optimiser does what torch.optim, clip_grad_norm_ and a penalty in the loss do; threads are as few as a network needs."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from noiseproof.train import Recipe, Run, RunOptions, prepare
from noiseproof.train.engine import Optimiser, limited_threads, torch_threads

STEPS, LR = 6, 0.05


def network(layout=torch.contiguous_format):
    torch.manual_seed(1)
    # No bias before BatchNorm: its gradient would be rounding alone, which Adam divides by itself.
    layers = [nn.Conv2d(2, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 3, 1), nn.Flatten(), nn.Linear(27, 5)]
    return nn.Sequential(*layers).double().to(memory_format=layout)


def batches():
    generator = torch.Generator().manual_seed(2)
    for _ in range(STEPS):
        yield (
            torch.randn(8, 2, 5, 5, generator=generator, dtype=torch.float64),
            torch.randint(5, (8,), generator=generator),
        )


def ours(recipe, layout):
    model = network(layout)
    optimiser = Optimiser(recipe, model)
    for inputs, labels in batches():
        optimiser.zero_grad()
        F.cross_entropy(model(inputs.to(memory_format=layout)), labels).backward()
        optimiser.step(recipe.lr)
    return model


def torchs(recipe):
    model = network()
    parameters = list(model.parameters())
    if recipe.optimiser == "adam":
        optimiser = torch.optim.Adam(parameters, lr=recipe.lr, weight_decay=recipe.l2)
    else:
        options = {"momentum": recipe.momentum, "nesterov": recipe.nesterov, "weight_decay": recipe.l2}
        optimiser = torch.optim.SGD(parameters, lr=recipe.lr, **options)
    for inputs, labels in batches():
        optimiser.zero_grad()
        loss = F.cross_entropy(model(inputs), labels)
        if recipe.l1:
            loss = loss + recipe.l1 * sum(parameter.abs().sum() for parameter in parameters)
        loss.backward()
        if recipe.clip is not None:
            nn.utils.clip_grad_norm_(parameters, recipe.clip)
        optimiser.step()
    return model


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["contiguous", "channels_last"])
@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"nesterov": True},
        {"l1": 0.01},
        {"l2": 0.1},
        {"clip": 0.5},
        {"momentum": 0.0},
        {"nesterov": True, "l1": 0.01, "l2": 0.1, "clip": 0.5},
    ],
    ids=lambda options: "-".join(options) or "plain",
)
def test_the_weights_are_torchs_after_several_steps(options, optimiser, layout):
    if optimiser == "adam" and {"nesterov", "momentum"} & set(options):
        options = {name: value for name, value in options.items() if name not in ("nesterov", "momentum")}
    recipe = Recipe(dataset="digits", loss="ce", optimiser=optimiser, lr=LR, **options)
    left, right = ours(recipe, layout), torchs(recipe)
    for (name, mine), theirs in zip(left.named_parameters(), right.parameters(), strict=True):
        assert torch.allclose(mine, theirs, rtol=0, atol=1e-12), name


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["contiguous", "channels_last"])
def test_weights_keep_their_values_and_their_layout(layout):
    model = network(layout)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = Optimiser(Recipe(dataset="digits", loss="ce"), model).state()
    assert model[0].weight.is_contiguous(memory_format=layout)
    assert state["momentum.0.weight"].is_contiguous(memory_format=layout)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_a_frozen_parameter_is_left_alone_and_an_unused_one_only_decays():
    model = nn.ModuleDict({"used": nn.Linear(3, 2), "unused": nn.Linear(3, 2, bias=False), "frozen": nn.Linear(3, 2)})
    model["frozen"].requires_grad_(False)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    optimiser = Optimiser(Recipe(dataset="digits", loss="ce", l2=0.5), model)
    model["used"](torch.ones(1, 3)).sum().backward()
    optimiser.step(0.1)
    assert torch.equal(model["frozen"].weight, before["frozen.weight"])
    assert torch.allclose(model["unused"].weight, before["unused.weight"] * (1 - 0.1 * 0.5))
    assert not torch.equal(model["used"].weight, before["used.weight"])


def test_adam_on_weights_of_bfloat16_is_torchs_and_counts_beyond_256():
    """There 1 - 0.999 is 0, and 256 + 1 is 256; the second weight has no gradient, and 0 / 0 is nan."""
    mine, theirs = (nn.Parameter(torch.zeros(2, dtype=torch.bfloat16)) for _ in range(2))
    ours = Optimiser(Recipe(dataset="digits", loss="ce", optimiser="adam"), nn.ParameterList([mine]))
    optimiser = torch.optim.Adam([theirs], lr=2.0**-7)
    for _ in range(300):
        mine.grad, theirs.grad = (torch.tensor([1.0, 0.0], dtype=torch.bfloat16) for _ in range(2))
        optimiser.step()
        ours.step(2.0**-7)
        assert torch.equal(mine, theirs)
    assert ours.state()["steps."] == 300


def test_a_model_without_parameters_is_refused():
    with pytest.raises(ValueError, match="no parameters to train"):
        Optimiser(Recipe(dataset="digits", loss="ce"), nn.Flatten())


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_parameters_of_two_kinds_are_trained_together(optimiser):
    mixed = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2).double()])
    before = [parameter.clone() for parameter in mixed.parameters()]
    ours = Optimiser(Recipe(dataset="digits", loss="ce", optimiser=optimiser, l1=0.1, l2=0.1, clip=1.0), mixed)
    ours.step(0.1)
    assert not any(torch.equal(parameter, old) for parameter, old in zip(mixed.parameters(), before, strict=True))
    assert {name: tensor.dtype for name, tensor in mixed.named_parameters()} == {
        name.partition(".")[2]: tensor.dtype for name, tensor in ours.state().items() if name.startswith(("mom", "mean"))
    }


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_a_state_that_was_loaded_gives_the_same_steps(optimiser):
    recipe = Recipe(dataset="digits", loss="ce", optimiser=optimiser, lr=LR, l1=0.01, l2=0.1, clip=0.5)
    models = [network(), network()]
    ours = [Optimiser(recipe, model) for model in models]

    def step(k, inputs, labels):
        ours[k].zero_grad()
        F.cross_entropy(models[k](inputs), labels).backward()
        ours[k].step(LR)

    given = list(batches())
    for batch in given[:3]:
        step(0, *batch)
    models[1].load_state_dict(models[0].state_dict())
    for name, tensor in ours[1].state().items():
        tensor.copy_(ours[0].state()[name])
    ours[1].state_loaded()
    for batch in given[3:]:
        step(0, *batch)
        step(1, *batch)
    for left, right in zip(*(model.state_dict().values() for model in models), strict=True):
        assert torch.equal(left, right)


def threads_seen(changes, **options):
    """The number of torch's threads while a network is trained, with four before and after."""
    seen = []
    recipe = Recipe(**{"dataset": "digits", "loss": "ce", "epochs": 1, **changes})
    with torch_threads(4):
        run = Run(recipe, prepare(recipe), RunOptions(**options))
        run.train_epoch(0, lambda done: seen.append(torch.get_num_threads()))
        run.close()
        assert torch.get_num_threads() == 4
    (count,) = set(seen)
    return count


def test_a_small_network_of_features_computes_with_one_thread_unless_told_otherwise():
    assert threads_seen({}) == 1
    assert threads_seen({}, threads=3) == 3
    wide = {"model_options": {"hidden": [2**10]}, "batch": 1000}
    assert threads_seen(wide) == 4, "a large step is worth several"
    with pytest.raises(ValueError, match="threads must be at least 1, got 0"):
        RunOptions(threads=0)


def test_threads_are_limited_for_all_libraries_and_restored():
    from threadpoolctl import threadpool_info

    before = torch.get_num_threads(), [pool["num_threads"] for pool in threadpool_info()]
    with limited_threads(1):
        assert torch.get_num_threads() == 1
        assert {pool["num_threads"] for pool in threadpool_info()} == {1}
    with limited_threads(None):
        assert torch.get_num_threads() == before[0]
    assert (torch.get_num_threads(), [pool["num_threads"] for pool in threadpool_info()]) == before
