"""How a process of a pool begins: ``python -m noiseproof.io.worker``, in the place of loky's own module, which it then runs.

Until its first task such a process imports joblib, NumPy and torch: seconds on a busy machine. Its parent may be killed then.
What ends it then is arranged first of all, before anything is imported that takes long or holds Python's lock.
"""

import os
import signal
import sys
import threading
import time

PARENT = "NOISEPROOF_PARENT"
"""Variable of the environment: the number of the process that a new one works for"""
PARENT_SECONDS = 0.25
"""Between two looks of a process at whether its parent is still there, where the system does not end it"""
PR_SET_PDEATHSIG = 1  # of Linux's prctl


def end_with(parent: int) -> None:
    """Let this process end when its parent has ended, however that ended and whatever this one is in the middle of.

    Linux kills it. Elsewhere a thread looks for the parent, between the instructions of Python.
    """
    if sys.platform == "linux":
        import ctypes

        prctl = getattr(ctypes.CDLL(None), "prctl", None)
        if prctl is not None:
            prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != parent:  # it ended before
        os._exit(1)
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    end_with(int(os.environ.pop(PARENT)))
    import runpy

    runpy.run_module("joblib.externals.loky.backend.popen_loky_posix", run_name="__main__", alter_sys=True)
