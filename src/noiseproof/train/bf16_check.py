"""Whether this CPU computes in bf16. On some, torch's kernels kill the process, so it is tried in another process."""

from __future__ import annotations

import functools
import subprocess
import sys

__all__ = ["check_bf16"]

TRIAL = """
import torch
x = torch.ones(2, 64, 8, 8, dtype=torch.bfloat16, requires_grad=True)
w = torch.ones(64, 64, 3, 3, dtype=torch.bfloat16, requires_grad=True)
y = torch.nn.functional.conv2d(x, w, padding=1).mean((2, 3))
(y @ torch.ones(64, 64, dtype=torch.bfloat16)).sum().backward()
"""


@functools.cache
def check_bf16() -> None:
    """A ValueError if a small network in bf16 fails on the CPU, but not if it cannot be tried or fails for another reason."""
    if not sys.executable or getattr(sys, "frozen", False):
        return
    tried = subprocess.run([sys.executable, "-P", "-c", TRIAL], capture_output=True, text=True, check=False)
    last = tried.stderr.strip().rpartition("\n")[2]
    reason = f"signal {-tried.returncode}" if tried.returncode < 0 else last
    if tried.returncode < 0 or last.startswith("RuntimeError"):
        raise ValueError(f"bf16 does not work with torch on this CPU ({reason}); set precision=float32")
