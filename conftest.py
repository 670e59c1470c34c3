"""What cannot be imported here is not collected: the fast engine needs Triton, which not every build of torch has.

Nor are the modules that import a whole framework, which would take seconds each time; they have no doctests.
"""

import importlib.util

collect_ignore = [f"src/noiseproof/integrations/{name}.py" for name in ("fastai", "skorch")]
if importlib.util.find_spec("triton") is None:
    collect_ignore += ["src/noiseproof/train/fast", "src/noiseproof/kernels", "tests/helpers/compiled_kernels.py"]
    collect_ignore += ["tests/helpers/compiled_ahead.py", "tests/helpers/no_device.py"]
