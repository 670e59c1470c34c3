"""A compiled loss on kernels: two operations in the graph, by Triton's interpreter where there is no GPU."""

import pytest
import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd

pytest.importorskip("triton", minversion="3.3", reason="needs Triton 3.3")

import noiseproof
from noiseproof.core import backends
from noiseproof.kernels import BACKEND
from tests.helpers.kernel_cases import drawn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SHAPES = {"<built-in function getitem>", "aten.view.default"}
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.fixture(autouse=True)
def _on_kernels(monkeypatch):
    monkeypatch.setattr(backends, "_registered", {DEVICE: BACKEND})
    monkeypatch.delenv(backends.BACKEND_VARIABLE, raising=False)


def compiled(loss, **options):
    """The loss, compiled but for the code, and a list of all operations in its graphs."""
    names = []

    def look(graph, inputs):
        names.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return make_boxed_func(graph.forward)

    torch.compiler.reset()
    return torch.compile(loss, fullgraph=True, backend=aot_autograd(fw_compiler=look), **options), names


def same(function, loss, logits, target):
    leaves = [logits.clone().requires_grad_() for _ in range(2)]
    values = [f(leaf, target) for f, leaf in zip((function, loss), leaves, strict=True)]
    up = torch.rand(values[0].shape, generator=torch.Generator().manual_seed(0)).to(values[0])
    torch.testing.assert_close(*values)
    torch.testing.assert_close(*[torch.autograd.grad(value, leaf, up)[0] for value, leaf in zip(values, leaves, strict=True)])


@pytest.mark.parametrize(
    "options", [{}, {"reduction": "none"}, {"weight": torch.arange(1.0, 11.0), "ignore_index": 3}], ids=str
)
def test_a_compiled_loss_is_two_operations(options):
    logits, target = drawn("random", 20, 10, torch.float32, DEVICE)
    target[3] = options.get("ignore_index", -100)
    loss = noiseproof.JALFL(**options).to(DEVICE)
    function, names = compiled(loss)
    same(function, loss, logits, target)
    assert {*names} - SHAPES == {"noiseproof.step_forward_1.default", "noiseproof.step_backward_1.default"}


def test_without_a_gradient_and_for_any_number_of_rows():
    loss = noiseproof.JALCE().to(DEVICE)
    function, _ = compiled(loss, dynamic=True)
    for rows in (20, 30):
        logits, target = drawn("random", rows, 10, torch.bfloat16, DEVICE)
        same(function, loss, logits, target)
        with torch.no_grad():
            torch.testing.assert_close(function(logits, target), loss(logits, target))


@pytest.mark.parametrize("loss", [noiseproof.JALCE(label_smoothing=0.1), noiseproof.FisherRao() + noiseproof.AMSE()], ids=str)
def test_both_passes_are_the_kernels_where_a_graph_is_run_as_it_is_recorded(loss):
    """As torch's backend "eager" does: a pass of the reference and one of the kernels do not fit together."""
    logits, target = drawn("random", 20, 70, torch.float32, DEVICE)
    torch.compiler.reset()
    same(torch.compile(loss.to(DEVICE), backend="eager"), loss, logits, target)


@pytest.mark.parametrize("backend", ["reference", "triton"])
@pytest.mark.parametrize("count", [4, 700])
def test_a_row_that_is_ignored_has_no_gradient_in_a_graph_either(count, backend, monkeypatch):
    """Whatever is made of its loss."""
    monkeypatch.setenv(backends.BACKEND_VARIABLE, backend)
    logits, target = drawn("random", count, 30, torch.float32, DEVICE)
    leaf, target[1], up = logits.requires_grad_(), -100, torch.ones(count, device=DEVICE)
    up[1] = torch.nan
    function, _ = compiled(noiseproof.JALCE(reduction="none").to(DEVICE))
    (gradient,) = torch.autograd.grad(function(leaf, target), leaf, up)
    assert gradient.isfinite().all()
    assert not gradient[1].any()
    assert gradient[0].any()


def test_what_kernels_do_not_serve_is_compiled_as_it_is_defined():
    logits, target = drawn("random", 20, 10, torch.float32, DEVICE)
    for loss, given in (
        (noiseproof.JALCE(label_smoothing=0.1), target),
        (noiseproof.JALCE(), torch.softmax(logits, 1)),
        (noiseproof.create_loss("fisher-rao"), target),
    ):
        function, names = compiled(loss.to(DEVICE))
        same(function, loss, logits, given)
        assert "noiseproof.step_forward_1.default" not in names
