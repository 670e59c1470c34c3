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
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from noiseproof.train.batch_loader import SINGLE, Rank

PROCESS_TIMEOUT = 600.0
"""Seconds that a process waits for another; rank 0 may write a large checkpoint meanwhile, on a slow disk"""
LOST = re.compile(
    r"timed out|timeout|connection (was )?(closed|reset|refused)|broken pipe|peer .*(closed|exited)|remote process exited", re.I
)
"""In what Gloo and NCCL say of a process that has ended, was stopped or hangs"""


ANSWER_SECONDS = 3.0
"""How long the processes that are left wait to learn which others are"""


class LostProcessError(ConnectionError):
    """Another of the processes does not answer, or has ended."""


@contextmanager
def answering(world: int) -> Iterator[None]:
    """Gloo's and NCCL's errors for a process that is lost, as a LostProcessError."""
    try:
        yield
    except RuntimeError as error:
        if world == 1 or not LOST.search(str(error)):
            raise
        lost = _lost_processes(world)
        who = f"another of the {world} processes" if len(lost) != 1 else f"process {lost[0]} of {world}, counted from 0,"
        if len(lost) > 1:
            who = f"one of the processes {', '.join(map(str, lost))} of {world}, counted from 0,"
        first_line = re.sub(r"^\[.*?\]\s*", "", str(error).splitlines()[0])[:160]
        raise LostProcessError(
            f"{who} has ended or does not answer ({first_line}); the same command goes on from the last checkpoint"
        ) from error


def _lost_processes(world: int) -> list[int]:
    """Which processes do not say that they have lost one too, in the store that all of them see; none if it cannot be asked."""
    try:
        rank, store = dist.get_rank(), dist.distributed_c10d._get_default_store()
        store.set_timeout(timedelta(seconds=ANSWER_SECONDS))
        store.set(f"noiseproof/answers/{rank}", "yes")
        end = time.monotonic() + ANSWER_SECONDS
        while True:
            lost = [other for other in range(world) if not store.check([f"noiseproof/answers/{other}"])]
            if not lost or time.monotonic() > end:
                return lost
            time.sleep(0.1)
    except (RuntimeError, ValueError, AttributeError):  # it is the process with the store that was lost, say
        return []


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
    if device.type == "cpu" and any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in network.modules()):
        raise ValueError("torch shares BatchNorm among processes on GPUs alone: on a CPU, train this network in one process")
    shared = nn.SyncBatchNorm.convert_sync_batchnorm(network)
    devices = [device] if device.type == "cuda" else None
    return DistributedDataParallel(shared, device_ids=devices, find_unused_parameters=unused)
