"""Processes that compute for this one, on this machine or on a Ray cluster: they end with it, however it ends."""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import re
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from noiseproof.io import worker
from noiseproof.io.text import excerpt
from noiseproof.io.worker import PARENT

QUIET = "ignore:resource_tracker:UserWarning"
"""What loky's tracker of semaphores and folders would say of a process that was killed, while it removes them"""


def process_pool(count: int, begin: Callable[..., None], arguments: tuple[Any, ...], env: Mapping[str, str]) -> Any:
    """Start a pool of processes on this machine.

    Args:
        count: How many.
        begin: Called in each with these arguments before its first task.
        arguments: What it is called with.
        env: Variables of the environment that they have besides this process's.

    Returns:
        loky's ``ProcessPoolExecutor``, which unlike the standard library's does not run the caller's script.

    Example:
        >>> pool = process_pool(1, print, (), {})
        >>> pool.submit(abs, -3).result()
        3
        >>> pool.shutdown()
    """
    from joblib.externals.loky import ProcessPoolExecutor
    from joblib.externals.loky.backend.reduction import dumps

    work = bytes(dumps((begin, arguments)))  # in the new process, what may raise is unpickled in its initializer
    variables = {**env, PARENT: str(os.getpid())}
    with _quiet_trackers():
        return ProcessPoolExecutor(count, context=_context(), initializer=_begin, initargs=(work,), env=variables)


def _context() -> Any:
    """loky's, except that a new process begins as :mod:`noiseproof.io.worker`, and so ends with its parent from the start."""
    if sys.platform == "win32":
        return None
    from joblib.externals.loky.backend.context import LokyContext
    from joblib.externals.loky.backend.popen_loky_posix import Popen
    from joblib.externals.loky.backend.process import LokyProcess

    class WorkerPopen(Popen):  # type: ignore[misc]
        __module__ = worker.__name__  # which loky lets the new process run

    class WorkerProcess(LokyProcess):  # type: ignore[misc]
        _Popen = staticmethod(WorkerPopen)

        def __reduce__(self) -> tuple[Any, ...]:  # there it is one of loky's, which unlike this class can be imported
            return object.__new__, (LokyProcess,), self.__dict__

    class WorkerContext(LokyContext):  # type: ignore[misc]
        Process = WorkerProcess

    return WorkerContext()


@contextmanager
def removed_with_this_process(folder: str) -> Iterator[None]:
    """Have a folder removed when this process and those that it started have ended, also if they were killed."""
    from joblib.externals.loky.backend import resource_tracker

    with _quiet_trackers():
        resource_tracker.register(folder, "folder")
    try:
        yield
    finally:
        resource_tracker.unregister(folder, "folder")


@contextmanager
def _quiet_trackers() -> Iterator[None]:
    """Start the processes that track semaphores and folders now, with nothing to say later."""
    from multiprocessing import resource_tracker as of_python

    from joblib.externals.loky.backend import resource_tracker as of_loky

    before = os.environ.get("PYTHONWARNINGS")
    os.environ["PYTHONWARNINGS"] = QUIET if before is None else f"{before},{QUIET}"
    try:
        for tracker in (of_loky, of_python):
            with suppress(AttributeError):  # Windows has none
                tracker.ensure_running()
        yield
    finally:
        if before is None:
            del os.environ["PYTHONWARNINGS"]
        else:
            os.environ["PYTHONWARNINGS"] = before


def _begin(work: bytes) -> None:
    """In a new process, before its first task."""
    from joblib.externals.loky import process_executor

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    process_executor._USE_PSUTIL = False  # it takes the import of torch for a leak, and replaces the process with a warning
    process_executor.print = lambda *_: None  # the error of a queue whose other end is gone
    begin, arguments = pickle.loads(work)  # of the process that started this one, through its pipe
    begin(*arguments)


def _check_answers(address: str | None) -> None:
    """An OSError if nothing listens at HOST:PORT, where Ray would wait for minutes and log what it tries."""
    if found := re.fullmatch(r"(?:ray://)?([^/:]+):(\d{1,5})", address or ""):
        socket.create_connection((found[1], int(found[2])), ANSWER_SECONDS).close()


ANSWER_SECONDS = 10.0
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
            try:
                _check_answers(address)
                ray.init(address=address, log_to_driver=False, logging_level="error", **local)
            except (RuntimeError, ValueError, AssertionError, OverflowError, OSError) as error:
                if address is None:
                    raise
                raise ConnectionError(f"no Ray cluster at {excerpt(address)!r}: {excerpt(error, 200)}") from error
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
