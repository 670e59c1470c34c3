"""What cannot be imported here is not collected for doctests: the fast path needs Triton, which CPU builds of torch lack."""

import importlib.util

collect_ignore = []
if importlib.util.find_spec("triton") is None:
    collect_ignore += ["src/noiseproof/train/fast"]
