"""Settings that must be in place before torch is imported, and what every test folder shares."""

import gc
import os
import shutil
from pathlib import Path

# Subprocesses import this checkout, not an installed copy, and the helpers of its tests.
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(Path(__file__).parents[1] / "src"), str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")])
)

# oneDNN picks bf16 matrix kernels that some virtual CPUs announce but cannot run; this caps what it may pick.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import pytest
import torch
from hypothesis import settings

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when a kernel is defined; it then runs as NumPy on the CPU

os.fsync = lambda handle: None  # no test pulls the plug, and waiting for the disk takes longer than most of them

settings.register_profile("noiseproof", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("noiseproof")


def pytest_collection_finish():
    """Thousands of tests are objects that stay: the garbage collector need not look at them again, each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _same_numbers_every_time():
    """Tests draw from explicit generators; this is for what has none to give (module initialisation)."""
    torch.manual_seed(0)


@pytest.fixture(scope="module")
def browser():
    """A real one, for the pages that are written."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as started:
        places = [shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome")]
        chromium = next(
            (place for place in [*places, started.chromium.executable_path] if place and Path(place).exists()), None
        )
        if chromium is None:
            pytest.skip("there is no chromium on this machine; CONTRIBUTING.md says how to get one")
        opened = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened
        opened.close()
