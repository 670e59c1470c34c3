"""The loss of a linear head in two processes: the gradients are those of one process with both batches."""

import json
import subprocess
import sys

import pytest
import torch

SCRIPT = """
import json, sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
import noiseproof

rank, place, way, recompute = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4] == "True"


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 8)
        self.head = noiseproof.LinearLoss(8, 30, noiseproof.JALCE(), bias=True, chunk_bytes=2 * 30 * 4, recompute=recompute)

    def forward(self, x, y):
        return self.head(self.body(x).tanh(), y)


def batch():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(12, 6, generator=generator), torch.randint(30, (12,), generator=generator)


torch.manual_seed(0)
model = Model()
x, y = batch()
model(x, y).backward()
expected = {name: p.grad.clone() for name, p in model.named_parameters()}
model.zero_grad()

dist.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=2)
if way == "ddp":
    wrapped = DistributedDataParallel(model)
else:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (2,))
    fully_shard(model.body, mesh=mesh)
    if way == "fsdp sharded head":
        fully_shard(model.head, mesh=mesh)
    wrapped = model
wrapped(x[rank::2], y[rank::2]).backward()
errors = {}
for name, p in model.named_parameters():
    grad = p.grad.full_tensor() if hasattr(p.grad, "full_tensor") else p.grad
    if way == "fsdp replicated head" and name.startswith("head"):
        dist.all_reduce(grad)
        grad = grad / 2
    errors[name] = ((grad - expected[name]).norm() / expected[name].norm()).item()
refused = ""
if way == "fsdp sharded head":
    try:
        noiseproof.linear_loss(torch.zeros(2, 8), model.head.linear.weight, y[:2], noiseproof.CE())
    except TypeError as error:
        refused = str(error)
print(json.dumps({"errors": errors, "refused": refused}))
dist.barrier()  # torch may abort one that is still spoken to while it ends
dist.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.parametrize("recompute", [False, True], ids=["at once", "recomputed"])
@pytest.mark.parametrize("way", ["ddp", "fsdp replicated head", "fsdp sharded head"])
def test_two_processes_have_the_gradients_of_one(way, recompute, tmp_path):
    if way != "ddp" and not hasattr(torch.cpu.Stream, "record_event"):
        pytest.skip("fully_shard does not run on the CPU with torch 2.6")
    started = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(rank), str(tmp_path / "meeting"), way, str(recompute)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        for process in started:
            out, problems = process.communicate(timeout=240)
            assert process.returncode == 0, problems
            said = json.loads(out)
            assert len(said["errors"]) == 4
            assert max(said["errors"].values()) < 1e-5, said
            assert ("fully_shard" in said["refused"]) == (way == "fsdp sharded head")
    finally:
        for process in started:  # one that failed leaves the other waiting
            process.kill()
            process.communicate()
