"""Tasks on the machines of a Ray cluster."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

RETRIES = 5
"""Times that a task is started again after its worker was lost"""
MEMORY = 2**27


class WorkerLostError(RuntimeError):
    """The worker of a task was lost each time that it was started."""


class Cluster:
    """A Ray cluster. The task of a lost worker is started again.

    Args:
        address: Of the cluster; by default the one this process is connected to, or a new one on this machine.
        memory: Bytes that tasks' arguments and results may take together in a new one; what is more goes to disk.

    Raises:
        ImportError: Ray is not installed.
        ConnectionError: There is no cluster at the address.
    """

    def __init__(self, address: str | None = None, memory: int = MEMORY) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # the behaviour to come; saves a warning
        try:
            ray: Any = importlib.import_module("ray")
        except ImportError as error:
            raise ImportError("--engine ray needs Ray: pip install '.[cluster]' in noiseproof's repository") from error
        self.ray = ray
        self.started = not ray.is_initialized()
        if self.started:
            before = signal.getsignal(signal.SIGTERM)
            local: dict[str, Any] = {} if address else {"include_dashboard": False, "object_store_memory": max(memory, MEMORY)}
            ray.init(address=address, log_to_driver=False, logging_level="error", **local)
            signal.signal(signal.SIGTERM, before)  # Ray's own would not stop the tasks

    def resource(self, name: str) -> int:
        """How many of a resource the machines have together, such as CPU or GPU."""
        return int(self.ray.cluster_resources().get(name, 0))

    def put(self, value: Any) -> Any:
        """Send a value to the machines once; as an argument of tasks, what is returned stands for it."""
        return self.ray.put(value)

    def submit(self, function: Callable[..., Any], *arguments: Any, gpu: bool = False) -> Any:
        """Begin a task on one core and, if so asked, one GPU."""
        needs = {"num_gpus": 1, "num_cpus": 1} if gpu else {"num_cpus": 1}
        return self.ray.remote(function).options(max_retries=RETRIES, **needs).remote(*arguments)

    def ended(self, tasks: list[Any]) -> list[Any]:
        """Wait until a task has ended, and return those that have."""
        with contextlib.redirect_stdout(sys.stderr):  # where Ray tells of lost workers
            return list(self.ray.wait(tasks, num_returns=1)[0])

    def result(self, task: Any) -> Any:
        """What a task returned.

        Raises:
            Exception: What it raised; a WorkerLostError if its workers were lost.
        """
        try:
            with contextlib.redirect_stdout(sys.stderr):
                return self.ray.get(task)
        except self.ray.exceptions.TaskCancelledError:
            raise
        except self.ray.exceptions.RayTaskError as error:
            raise (error.cause if isinstance(error.cause, Exception) else error) from None
        except self.ray.exceptions.RayError as error:
            raise WorkerLostError(f"its worker was lost {RETRIES + 1} times: {error}") from error

    def is_cancelled(self, error: Exception) -> bool:
        """Whether a task raised this because it was cancelled before it began."""
        return isinstance(error, self.ray.exceptions.TaskCancelledError)

    def cancel(self, tasks: list[Any]) -> None:
        """Let tasks that have not begun end at once."""
        for task in tasks:
            self.ray.cancel(task)

    def close(self) -> None:
        """End the workers, and the cluster if this process started it."""
        if self.started:
            self.ray.shutdown()
