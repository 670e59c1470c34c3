"""What cannot be imported here is not collected: the fast engine needs Triton, which not every build of torch has.

Nor is the module that imports a whole framework, which would take seconds each time; it has no doctests.
"""

import importlib.util

collect_ignore = ["src/noiseproof/integrations/skorch.py"]
if importlib.util.find_spec("triton") is None:
    collect_ignore += ["src/noiseproof/train/fast", "src/noiseproof/kernels", "tests/helpers/compiled_kernels.py"]
    collect_ignore += ["tests/helpers/compiled_ahead.py", "tests/helpers/no_device.py"]
