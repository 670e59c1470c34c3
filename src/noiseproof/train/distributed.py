"""Several processes, started by torchrun, that train one network and compute what one process would.

Every global batch is divided among them; DistributedDataParallel averages the gradients, BatchNorm's statistics are those of
the whole batch, and sums over examples are added up. Rank 0 writes. Only random draws of a network or a loss differ: each
process has its own. A process that does not answer ends the others after a while, one that ends does so at once.
"""

from __future__ import annotations

import gc
import importlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from noiseproof.train.batch_loader import SINGLE, Rank

Norm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d
PROCESS_TIMEOUT = 600.0
"""Seconds that a process waits for another; rank 0 may write a large checkpoint meanwhile, on a slow disk"""
TIMED_OUT = re.compile(r"timed out|timeout", re.I)
CONNECTION_LOST = re.compile(
    r"connection (was )?(closed|reset|refused)|broken pipe|peer .*(closed|exited)|remote process exited", re.I
)


class LostProcessError(ConnectionError):
    """Another of the processes does not answer, or has ended."""

    def __init__(self, message: str, timed_out: bool) -> None:
        super().__init__(message)
        self.timed_out = timed_out


@contextmanager
def answering(world: int) -> Iterator[None]:
    """Gloo's and NCCL's errors for a process that is lost, as a LostProcessError."""
    try:
        yield
    except RuntimeError as error:
        text = str(error)
        if world == 1 or not (TIMED_OUT.search(text) or CONNECTION_LOST.search(text)):
            raise
        timed_out = TIMED_OUT.search(text) is not None
        reason = "does not answer: it was stopped, or hangs" if timed_out else "has ended"
        raise LostProcessError(
            f"another of the {world} processes {reason} ({_first_line(text)}); "
            "the same command goes on from the last checkpoint",
            timed_out,
        ) from error


def _first_line(text: str) -> str:
    return re.sub(r"^\[.*?\]\s*", "", text.splitlines()[0])[:160]


@contextmanager
def process_group(device: torch.device, timeout: float = PROCESS_TIMEOUT) -> Iterator[tuple[Rank, torch.device]]:
    """This process's rank among those that torchrun started, if it did, and its device: on CUDA the GPU of its local rank.

    A collective operation that another process does not join for ``timeout`` seconds is an error.
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        yield SINGLE, device
        return
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    # DistributedDataParallel would import it later, with the group in its functions' default arguments. A group that is kept
    # alive keeps its threads, and a thread that frees a tensor while Python exits aborts the process.
    importlib.import_module("torch.distributed.nn.functional")
    with answering(world):
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=timedelta(seconds=timeout))
    try:
        yield Rank(dist.get_rank(), world), device
    finally:
        gc.collect()  # a network in a reference cycle would keep the group alive
        dist.destroy_process_group()


def joined(network: nn.Module, device: torch.device, unused: bool) -> nn.Module:
    """The network with BatchNorm over the whole batch and averaged gradients, of which some parameters may have none."""
    with_norms = shared_norms(network) if device.type == "cpu" else nn.SyncBatchNorm.convert_sync_batchnorm(network)
    devices = [device] if device.type == "cuda" else None
    return DistributedDataParallel(with_norms, device_ids=devices, find_unused_parameters=unused)


def shared_norms(network: nn.Module) -> nn.Module:
    """The network, of which each BatchNorm has become one over all processes, where it is and as what it is."""
    for module in list(network.modules()):
        if isinstance(module, Norm):
            if module.momentum is None or not module.track_running_stats:
                raise ValueError("BatchNorm without running statistics, or with cumulative ones, cannot be shared by processes")
            # No other module in its place: a network may have it under two names, freeze it by its type, or read its fields.
            kind: Any = type(module)
            module.__class__ = type(kind.__name__, (SharedNorm, kind), {})
    return network


class _Total(torch.autograd.Function):
    """A sum over the processes. Every process's sum contains each part, so a part's gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        total = values.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return _Total.forward(ctx, *gradients)


total_of: Callable[[Tensor], Tensor] = _Total.apply


class SharedNorm(nn.Module):
    """BatchNorm over the batches of all processes, in plain torch: torch's own SyncBatchNorm is for GPUs only."""

    eps: float
    momentum: float
    weight: nn.Parameter | None
    bias: nn.Parameter
    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            stored = self.running_mean, self.running_var, self.weight, self.bias
            return nn.functional.batch_norm(x, *stored, eps=self.eps)
        axes = [axis for axis in range(x.dim()) if axis != 1]
        shape = [1, -1] + [1] * (x.dim() - 2)
        values = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        count = torch.full((1,), values.numel() / values.shape[1], dtype=values.dtype)
        sums = total_of(torch.cat([values.sum(axes), count]))
        total = sums[-1].detach()
        mean = sums[:-1] / total
        centred = values - mean.view(shape)
        variance = total_of(centred.square().sum(axes)) / total
        with torch.no_grad():
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
            self.running_var.lerp_((variance * total / (total - 1)).to(self.running_var.dtype), self.momentum)
            self.num_batches_tracked.add_(1)
        normed = centred * torch.rsqrt(variance + self.eps).view(shape)
        if self.weight is not None:
            normed = normed * self.weight.view(shape) + self.bias.view(shape)
        return normed.to(x.dtype)
