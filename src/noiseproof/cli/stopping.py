"""SIGTERM, which clusters and service managers send, ends a command as Ctrl-C does, with a status of its own."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

__all__ = ["Stopped", "sigterm_as_ctrl_c"]


class Stopped:
    """How a command that was stopped ends: 130 after Ctrl-C, 143 after SIGTERM."""

    status = 130


@contextmanager
def sigterm_as_ctrl_c() -> Iterator[Stopped]:
    """SIGTERM raises a KeyboardInterrupt here, once: what it leads to, a checkpoint say, is not interrupted by another."""
    stopped = Stopped()

    def terminate(number: int, frame: Any) -> NoReturn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        stopped.status = 143  # kept apart from the exception: Ray turns what is raised here into a plain KeyboardInterrupt
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # Python allows handlers in that one only
        yield stopped
        return
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGTERM, before)
