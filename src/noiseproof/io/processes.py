"""Processes that compute for this one: they end with it, however it ends, and say nothing of that."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

PARENT_SECONDS = 0.25
"""Between two looks of a process at whether its parent is still there, where the system does not end it"""
PR_SET_PDEATHSIG = 1  # of Linux's prctl
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

    work = bytes(dumps((begin, arguments)))  # to unpickle it may import torch, for seconds in which the parent may end
    with _quiet_trackers():
        return ProcessPoolExecutor(count, initializer=_begin, initargs=(os.getpid(), work), env=dict(env))


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


def _begin(parent: int, work: bytes) -> None:
    """In a new process, before its first task."""
    from joblib.externals.loky import process_executor

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    process_executor._USE_PSUTIL = False  # it takes the import of torch for a leak, and replaces the process with a warning
    process_executor.print = lambda *_: None  # the error of a queue whose other end is gone
    if sys.platform == "linux":  # at once, whatever this process is in the middle of
        import ctypes

        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    begin, arguments = pickle.loads(work)  # of the process that started this one, through its pipe
    begin(*arguments)


def _end_with(parent: int) -> None:
    """End this process when its parent has been killed, which could not do it."""
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)
    os._exit(1)
