"""What cannot be imported here is not collected: the fast engine needs Triton, which not every build of torch has."""

import importlib.util

collect_ignore = []
if importlib.util.find_spec("triton") is None:
    collect_ignore += ["src/noiseproof/train/fast", "src/noiseproof/kernels", "tests/kernels/compiled_kernels.py"]
    collect_ignore += ["tests/train/compiled_ahead.py", "tests/train/no_device.py"]
