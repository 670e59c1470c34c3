"""Ctrl-C in the first second of a command, while torch is imported: the end, without a trace of where it struck."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["ctrl_c_ends_a_command"]

FACE = "noiseproof"
INTERRUPTED = 130


@contextmanager
def ctrl_c_ends_a_command() -> Iterator[None]:
    """Ctrl-C meanwhile ends the process with status 130, if it is the command line's; in a program of others it is as it was.

    A handler, not an exception: an extension that is interrupted while it is imported reports some other error, or none.
    """
    if not _is_command() or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, lambda number, frame: os._exit(INTERRUPTED))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _is_command() -> bool:
    """Whether Python was started as ``python -m noiseproof`` or by the script of that name, in this thread."""
    words = sys.orig_argv
    if threading.current_thread() is not threading.main_thread():  # Python allows handlers in that one only
        return False
    module = words[words.index("-m") + 1 :][:1] == [FACE] if "-m" in words else False
    script = os.path.basename(sys.argv[0]) if getattr(sys, "argv", None) else ""
    return module or script.partition(".")[0] == FACE
