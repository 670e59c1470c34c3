"""The L1 penalty: its value, a gradient that is exact to the bit, and the weights that training with it gives."""

import copy
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import noiseproof
from noiseproof.losses.facts import KINDS_OF_DATA, recommended_settings
from noiseproof.train import Recipe, RunOptions, prepare
from noiseproof.train.engine import Optimiser
from noiseproof.train.run import start_run

ROOT = Path(__file__).resolve().parents[2]
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
STEPS, CLIP, STRENGTH = 5, 0.5, 5e-5


def network(dtype=torch.float64):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(36, 5)).to(dtype)
    with torch.no_grad():
        model[4].weight[0] = 0.0  # where the sign is 0, as in BatchNorm's bias
    return model


@pytest.mark.parametrize("strength", [5e-5, 5e-7, 1 / 3, 0.0])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_gradient_is_strength_times_sign_to_the_bit(dtype, strength):
    model = network(dtype)
    value = noiseproof.L1(model, strength)()
    value.backward()
    for name, weight in model.named_parameters():
        assert weight.grad.dtype == dtype
        assert torch.equal(weight.grad, strength * weight.detach().sign()), name
    exact = strength * sum(weight.detach().double().abs().sum() for weight in model.parameters())
    assert value.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    torch.testing.assert_close(value.double(), exact, rtol=1e-6, atol=0)


def test_channels_last_weights_and_other_dtypes_in_one_model():
    model = nn.ModuleList([nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last), nn.Linear(3, 2).bfloat16()])
    value = noiseproof.L1(model, 0.1)()
    value.backward()
    assert all(torch.equal(weight.grad, 0.1 * weight.detach().sign()) for weight in model.parameters())
    exact = 0.1 * sum(weight.detach().double().abs().sum().item() for weight in model.parameters())
    assert value.item() == pytest.approx(exact, rel=1e-6)


def test_both_derivatives_and_the_forms_for_compilers_and_torch_func_agree():
    model = network()
    penalty = noiseproof.L1(model, 0.3)
    weights = [weight.detach() for weight in model.parameters()]
    by_func, value = torch.func.grad_and_value(lambda given: noiseproof.L1(given, 0.3)())(weights)
    assert all(torch.equal(got, 0.3 * weight.sign()) for got, weight in zip(by_func, weights, strict=True))
    torch.testing.assert_close(value, penalty().detach())
    stacked = {name: torch.stack([weight, -2 * weight]) for name, weight in model.named_parameters()}
    both = torch.func.vmap(lambda given: noiseproof.L1(given, 0.3)())(stacked)
    torch.testing.assert_close(both, torch.stack([value, 2 * value]))
    inputs = [torch.randn(3, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    assert torch.autograd.gradcheck(lambda *given: noiseproof.L1(given, 0.3)(), inputs)
    assert torch.autograd.gradgradcheck(lambda *given: noiseproof.L1(given, 0.3)(), inputs)


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_a_compiled_step_has_the_same_gradient_and_follows_freezing(backend):
    torch.compiler.reset()
    model = network(torch.float32)
    penalty = noiseproof.L1([weight for name, weight in model.named_parameters() if not name.endswith("bias")], STRENGTH)
    compiled = torch.compile(lambda: penalty(), fullgraph=True, backend=backend)
    compiled().backward()
    for name, weight in model.named_parameters():
        if name.endswith("bias"):
            assert weight.grad is None
        else:
            assert torch.equal(weight.grad, STRENGTH * weight.detach().sign()), name
    model[4].requires_grad_(False)
    torch.testing.assert_close(compiled(), penalty())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_cuda_graph_captures_the_penalty(dtype):
    model = network(dtype).cuda()
    penalty = noiseproof.L1(model, STRENGTH)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            model.zero_grad()
            penalty().backward()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    model.zero_grad()
    with torch.cuda.graph(graph):
        value = penalty()
        value.backward()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(-2)
    graph.replay()
    torch.cuda.synchronize()
    assert all(torch.equal(weight.grad, STRENGTH * weight.detach().sign()) for weight in model.parameters())
    torch.testing.assert_close(value.detach(), penalty().detach())


def test_what_is_frozen_is_left_out_while_it_is_frozen():
    model = network()
    penalty = noiseproof.L1(model, 1.0)
    whole = penalty().item()
    model[0].requires_grad_(False)
    frozen = sum(weight.abs().sum().item() for weight in model[0].parameters())
    assert penalty().item() == pytest.approx(whole - frozen)
    model.requires_grad_(False)
    assert penalty().item() == 0.0
    assert not penalty().requires_grad
    model.requires_grad_(True)
    assert penalty().item() == pytest.approx(whole)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_adding_to_the_gradients_in_place_gives_the_same_bits(dtype):
    inputs = torch.randn(4, 2, 5, 5, dtype=dtype)
    ours, other = network(dtype), network(dtype)
    for model in (ours, other):
        model.eval()[0].bias.requires_grad_(False)
        model.register_parameter("unused", nn.Parameter(torch.tensor([1.0, 0.0, -1.0], dtype=dtype)))
    (ours(inputs).square().mean() + noiseproof.L1(ours, 5e-5)()).backward()
    other(inputs).square().mean().backward()
    noiseproof.L1(other, 5e-5).add_gradient()
    assert ours[0].bias.grad is other[0].bias.grad is None
    for (name, weight), twin in zip(ours.named_parameters(), other.parameters(), strict=True):
        assert weight.grad is None or torch.equal(weight.grad, twin.grad), name
    other.requires_grad_(False)
    noiseproof.L1(other, 5e-5).add_gradient()


def test_added_to_a_sparse_gradient_it_is_the_same_as_the_penalty():
    models = [nn.Embedding(6, 3, sparse=True) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    first, second = (model(torch.tensor([1, 1, 4])).square().sum() for model in models)
    (first + noiseproof.L1(models[0], 0.5)()).backward()
    second.backward()
    assert models[1].weight.grad.is_sparse
    noiseproof.L1(models[1], 0.5).add_gradient()
    torch.testing.assert_close(models[1].weight.grad, models[0].weight.grad)


def test_a_shared_parameter_counts_once():
    tied = nn.ModuleDict(
        {"encoder": nn.Linear(3, 2, bias=False), "decoder": nn.Linear(3, 2, bias=False), "head": nn.Linear(2, 2)}
    )
    tied["decoder"].weight = tied["encoder"].weight
    once = tied["encoder"].weight.abs().sum().item()
    head = sum(weight.abs().sum().item() for weight in tied["head"].parameters())
    assert noiseproof.L1(tied, 1.0)().item() == pytest.approx(once + head)
    assert noiseproof.L1([*tied.parameters(), tied["decoder"].weight], 1.0)().item() == pytest.approx(once + head)


def test_a_part_of_the_parameters_is_given_with_or_without_their_names():
    model = network()
    kept = {name: weight for name, weight in model.named_parameters() if not name.endswith("bias")}
    wanted = sum(weight.abs().sum().item() for weight in kept.values())
    for given in (kept, kept.items(), kept.values(), list(kept.values())):
        assert noiseproof.L1(given, 1.0)().item() == pytest.approx(wanted)
    assert repr(noiseproof.L1(kept, 1.0)) == "L1(3 parameters, strength=1)"


def test_it_follows_the_model_to_another_dtype_and_is_copied_with_it():
    model = network(torch.float32)
    penalty = noiseproof.L1(model, 1.0)
    model.double()
    assert penalty().dtype == torch.float64
    other, copied = copy.deepcopy((model, penalty))
    other.zero_grad()
    copied().backward()
    assert other[0].weight.grad is not None
    assert model[0].weight.grad is None
    assert pickle.loads(pickle.dumps(penalty))().item() == penalty().item()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((5e-5, nn.Linear(1, 1)), "takes a module, or its parameters or named_parameters"),
        ((torch.ones(2), 1.0), "got 'Tensor': put it in a list"),
        ((torch.optim.SGD([torch.ones(1)]), 1.0), "got 'SGD'"),
        (("model", 1.0), "got 'model'"),
        (([{"params": []}], 1.0), "got dict among them"),
        (([], 1.0), "a generator is empty once it has been used"),
        ((nn.ReLU(), 1.0), "got none"),
        ((nn.Linear(1, 1), -1.0), r"strength must be in \[0, inf\), got -1"),
        ((nn.Linear(1, 1), "5e-5"), "strength must be a number"),
        ((nn.Linear(1, 1), float("nan")), "strength must be in"),
    ],
)
def test_wrong_arguments_get_a_sentence(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        noiseproof.L1(*arguments)


def batches():
    generator = torch.Generator().manual_seed(2)
    for _ in range(STEPS):
        yield torch.randn(8, 2, 5, 5, generator=generator, dtype=torch.float64), torch.randint(5, (8,), generator=generator)


def without_norm():
    """BatchNorm sees the parts of a batch, not the batch, so accumulation would change what it computes."""
    model = network()
    model[1] = nn.Identity()
    return model


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
@pytest.mark.parametrize(
    "heading",
    [
        "Choose the regularisation",
        "Gradient clipping",
        "Gradient scaling (mixed precision)",
        "Gradient accumulation",
        "Faster L1 for small networks",
    ],
)
def test_the_pages_loops_give_the_weights_of_the_trainers_own_l1(heading, optimiser):
    page = (ROOT / "docs" / "how_to" / "regularisation.md").read_text(encoding="utf-8")
    block = re.search(rf"^#+ [^\n]*{re.escape(heading)}$.*?```python\n(.*?)```", page, re.DOTALL | re.MULTILINE).group(1)
    strength = 0.02  # large, so that leaving it out, or counting it twice, would show
    clip = CLIP if "clip_grad_norm_" in block else None
    recipe = Recipe(dataset="digits", loss="jal-ce", l1=strength, clip=clip, optimiser=optimiser, lr=0.05)
    trained = without_norm()
    ours = Optimiser(recipe, trained)
    for inputs, labels in batches():
        ours.zero_grad()
        recipe.criterion()(trained(inputs), labels).backward()
        ours.step(recipe.lr)

    model = without_norm()
    makers = {
        "sgd": lambda given: torch.optim.SGD(given, lr=0.05, momentum=0.9),
        "adam": lambda given: torch.optim.Adam(given, lr=0.05),
    }
    names = {"model": model, "criterion": recipe.criterion(), "optimiser": makers[optimiser](model.parameters())}
    names |= {"batches": batches(), "clip": clip, "parts": 4, "scaler": torch.amp.GradScaler("cpu", init_scale=1024.0)}
    assert "L1(model, 5e-5)" in block
    exec(block.replace("5e-5", str(strength)), {"noiseproof": noiseproof, "torch": torch, **names})
    for (name, ours), theirs in zip(model.named_parameters(), trained.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12, msg=lambda text, name=name: f"{name}: {text}")
    assert not torch.allclose(next(model.parameters()), next(without_norm().parameters()), atol=1e-3)


DDP = """
import os, sys
import torch, noiseproof
from torch import nn
from torch.nn.parallel import DistributedDataParallel

rank = int(sys.argv[1])
store = torch.distributed.FileStore(sys.argv[2], 2)
torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
torch.manual_seed(0)
model = nn.Linear(3, 2)
wrapped = DistributedDataParallel(model)
(0.0 * wrapped(torch.ones(1, 3)).sum() + noiseproof.L1([wrapped.module.weight], 5e-5)()).backward()
assert torch.equal(model.weight.grad, 5e-5 * model.weight.detach().sign()), model.weight.grad
assert not model.bias.grad.any()
torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_ddp_averages_it_to_what_it_is(tmp_path):
    commands = [[sys.executable, "-c", DDP, str(rank), str(tmp_path / "store")] for rank in range(2)]
    running = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for command in commands]
    assert [(process.communicate(timeout=600)[1][-2000:], process.returncode)[1] for process in running] == [0, 0]


def test_the_recommended_strengths_are_the_papers_everywhere_they_are_said():
    """The numbers of the paper's settings (its implementation details, and its code for ANL)."""
    l1 = {name: [one.l1 for one in recommended_settings(name)] for name in ("jal-ce", "JAL-FL", "anl-ce", "ANLFL")}
    assert l1["jal-ce"] == l1["JAL-FL"] == [5e-5, 5e-6, 0.0, 0.0, 0.0]
    assert l1["anl-ce"] == l1["ANLFL"] == [5e-5, 5e-7, 0.0, 0.0, 0.0]
    assert [one.l2 for one in recommended_settings("gce")] == [1e-4, 1e-5, 3e-5, 1e-3, 0.0]
    assert recommended_settings("dft") == ()
    page = (ROOT / "docs" / "how_to" / "regularisation.md").read_text(encoding="utf-8")
    for jal, anl, other in zip(*(recommended_settings(name) for name in ("jal-ce", "anl-ce", "ce")), strict=True):
        cells = [
            re.sub(r"e-0", "e-", str(one).split(":")[0]).replace("0.0001", "1e-4").replace("0.001", "1e-3")
            for one in (jal, anl, other)
        ]
        assert f"| {KINDS_OF_DATA[jal.kind].description} | {' | '.join(cells)} |" in page
    for cls in (noiseproof.JALCE, noiseproof.JALFL):
        assert "L1" in cls.__doc__
        assert "5e-5 on CIFAR-10, 5e-6 on CIFAR-100" in " ".join(cls.__doc__.split())
    for cls in (noiseproof.ANLCE, noiseproof.ANLFL):
        assert "5e-5 on CIFAR-10, 5e-7 on CIFAR-100" in " ".join(cls.__doc__.split())


def test_early_learning_regularisation_is_the_papers_formula_over_three_epochs():
    """In NumPy: t <- 0.9 t + 0.1 p with p clipped and normalised, then 3 log(1 - <p, t>) with p clipped alone."""
    generator = torch.Generator().manual_seed(0)
    penalty, targets = noiseproof.ELR(6, 4, strength=3.0, momentum=0.9), np.zeros((6, 4))
    for _ in range(3):
        order = torch.randperm(6, generator=generator)
        for indices in order.split(4):
            logits = 8 * torch.randn(len(indices), 4, generator=generator)
            p = np.exp(logits.double().numpy())
            p = np.clip(p / p.sum(1, keepdims=True), 1e-4, 1 - 1e-4)
            targets[indices] = 0.9 * targets[indices] + 0.1 * p / p.sum(1, keepdims=True)
            expected = 3 * np.log(1 - (p * targets[indices.numpy()]).sum(1)).mean()
            assert penalty(logits, indices).item() == pytest.approx(expected, rel=1e-4)
    np.testing.assert_allclose(penalty.targets.numpy(), targets, atol=1e-6)


def test_the_gradient_of_early_learning_regularisation_takes_the_targets_as_constants():
    logits = torch.tensor([[1.0, 0.0, -1.0], [0.5, 2.0, 0.0]], dtype=torch.float64, requires_grad=True)
    penalty, indices = noiseproof.ELR(4, 3, strength=2.0).double(), torch.tensor([3, 1])
    penalty(logits, indices).backward()
    p = logits.detach().softmax(1)
    target = penalty.targets[indices]
    inner = (p * target).sum(1, keepdim=True)
    expected = -2.0 * p * (target - inner) / (1 - inner) / 2  # the mean of two examples
    torch.testing.assert_close(logits.grad, expected)
    assert penalty.targets[[0, 2]].sum() == 0


def test_the_targets_of_early_learning_regularisation_are_saved_and_its_values_are_checked():
    penalty = noiseproof.ELR(2, 3)
    penalty(torch.eye(3)[:2], torch.tensor([0, 1]))
    other = noiseproof.ELR(2, 3)
    other.load_state_dict(penalty.state_dict())
    assert torch.equal(other.targets, penalty.targets)
    for wrong in ({"examples": 0}, {"classes": 1}, {"strength": -1.0}, {"momentum": 1.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            noiseproof.ELR(**{"examples": 2, "classes": 3, **wrong})


def test_a_run_with_early_learning_regularisation_is_a_loop_with_the_penalty():
    recipe = Recipe(dataset="digits", loss="ce", noise="symmetric:0.4", epochs=2, elr=5.0, seed=1)
    run = start_run(recipe, prepare(recipe), RunOptions())
    model, criterion = copy.deepcopy(run.network), torch.nn.CrossEntropyLoss()
    penalty = noiseproof.ELR(len(run.loader), 10, strength=5.0)
    optimiser = torch.optim.SGD(model.parameters(), recipe.lr, momentum=recipe.momentum)
    for epoch in range(2):
        losses = []
        for group in optimiser.param_groups:
            group["lr"] = run.lr(epoch)
        for batch in run.loader.epoch(epoch):
            logits = model(batch.inputs)
            loss = criterion(logits, batch.labels) + penalty(logits, batch.indices)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        assert run.train_epoch(epoch).loss == pytest.approx(sum(losses) / len(losses), rel=1e-4)
    torch.testing.assert_close(run.state()["update.elr.targets"], penalty.targets, rtol=1e-3, atol=1e-4)
    run.close()


def test_the_pages_loop_with_early_learning_regularisation_keeps_every_examples_predictions():
    page = (ROOT / "docs" / "how_to" / "regularisation.md").read_text(encoding="utf-8")
    block = re.search(r"## Early-learning regularisation$.*?```python\n(.*?)```", page, re.DOTALL | re.MULTILINE).group(1)
    torch.manual_seed(0)
    model, inputs = nn.Linear(3, 10), torch.randn(300, 3)
    names = {"model": model, "inputs": inputs, "labels": torch.arange(300) % 10, "criterion": nn.CrossEntropyLoss()}
    names |= {"noiseproof": noiseproof, "torch": torch, "optimiser": torch.optim.SGD(model.parameters(), lr=0.0)}
    exec(block, names)
    torch.testing.assert_close(names["penalty"].targets, 0.3 * model(inputs).softmax(1).detach())
