"""The README's picture: the top of a report of ``noiseproof fit``, in light and dark, as small PNG files.

    python tools/screenshot.py model/report.html

needs playwright and a Chromium on the PATH. The README's report is of 5,000 images of CIFAR-10N, drawn without replacement by
``numpy.random.default_rng(0)``, as EfficientNet-lite0 features at 160 pixels, reduced to 256 columns, with one person's label
for each (``random_label1``), and of the first 2,000 images of the test set with clean labels::

    noiseproof fit cifar10n_one_person.parquet --test clean_test.parquet
"""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path
from typing import Literal

from PIL import Image

FIGURES = Path(__file__).resolve().parent.parent / "docs" / "figures"
PLACES: dict[Literal["light", "dark"], Path] = {"light": FIGURES / "report.png", "dark": FIGURES / "report_dark.png"}
WIDTH, HEIGHT, SCALE, COLORS = 800, 632, 1.5, 64


def photograph(page: Path) -> dict[Literal["light", "dark"], bytes]:
    """The top of the page in both schemes, with as few colours as text needs."""
    from playwright.sync_api import sync_playwright

    found = {}
    with sync_playwright() as driver:
        path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for scheme in PLACES:
            tab = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=scheme, device_scale_factor=SCALE)
            tab.goto(page.resolve().as_uri())
            whole = Image.open(io.BytesIO(tab.screenshot())).convert("RGB")
            small = io.BytesIO()
            whole.quantize(COLORS, dither=Image.Dither.NONE).save(small, "PNG", optimize=True)
            found[scheme] = small.getvalue()
        browser.close()
    return found


if __name__ == "__main__":
    for scheme, content in photograph(Path(sys.argv[1])).items():
        PLACES[scheme].write_bytes(content)
