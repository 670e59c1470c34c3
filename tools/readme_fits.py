"""What the README has of ``noiseproof fit``: the picture of its report, and the verdict that four lines print.

    python tools/readme_fits.py model right.npy

photographs model/report.html in light and dark, runs the README's four lines, and writes records/readme_fits.jsonl, from which
`make generate` fills the README. It needs playwright and a Chromium on the PATH. ``right.npy`` has the correct labels of the
rows that the model was fitted to: 5,000 images of CIFAR-10N, drawn without replacement by ``numpy.random.default_rng(0)``, as
EfficientNet-lite0 features at 160 pixels, reduced to 256 columns, with one person's label for each (``random_label1``)::

    noiseproof fit cifar10n_one_person.parquet --test clean_test.parquet

The test split is the first 2,000 images of the test set with clean labels.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
import sys
import tempfile
import textwrap
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import figures
import numpy as np
import pandas as pd
from PIL import Image
from results import FIGURES, RECORDS, ROOT, read_lines

import noiseproof
from noiseproof.train.record import environment

__all__ = ["BADGES", "picture", "verdict"]

RECORD = "readme_fits.jsonl"
PLACES: dict[Literal["light", "dark"], Path] = {"light": FIGURES / "report.png", "dark": FIGURES / "report_dark.png"}
WIDTH, HEIGHT, SCALE, COLORS = 800, 900, 1.5, 64
COLUMNS = 78


# ---- what the README has of the record


def picture() -> str:
    """The screenshot with its caption."""
    line = next(line for line in read_lines(RECORD) if line["what"] == "report")
    return (
        '<picture>\n  <source media="(prefers-color-scheme: dark)" srcset="docs/figures/report_dark.png">\n'
        '  <img src="docs/figures/report.png" alt="The report of noiseproof fit on images that people labelled">\n'
        "</picture>\n\n"
        f"*The report of `noiseproof fit` on {line['rows']:,} embedded images of CIFAR-10N with one person's label each. "
        f"{100 * line['wrong']:.1f} % of the labels are wrong, which it was not told ([record](records/{RECORD})).*"
    )


def verdict() -> str:
    """What the four lines print, as wide as a block of code may be: the last column of the table, the AUC, is cut."""
    printed = next(line for line in read_lines(RECORD) if line["what"] == "four lines")["verdict"]
    shown: list[str] = []
    for line in printed:
        columns = re.split(r" {2,}(?=\S)", line.rstrip())
        shown += (
            [line[: line.rindex(columns[-1])].rstrip()]
            if len(columns) > 3
            else [one.replace("\u00a0", " ") for one in textwrap.wrap(line.replace(" %", "\u00a0%"), COLUMNS)]
        )
    return "\n".join(["```text", *shown, "```"])


def project() -> dict[str, str]:
    """What the badges say, from pyproject.toml."""
    facts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    torch = next(one for one in facts["project"]["dependencies"] if one.startswith("torch"))
    return {
        "python": facts["project"]["requires-python"].replace(">=", "") + "+",
        "torch": torch.removeprefix("torch>=") + "+",
        "licence": facts["project"]["license"],
        "types": "mypy --strict" if facts["tool"]["mypy"]["strict"] else "mypy",
    }


def badge(name: str) -> Callable[[], str]:
    return lambda: figures.badge(name, project()[name])


BADGES: dict[Path, Callable[[], str]] = {FIGURES / f"badge_{name}.svg": badge(name) for name in project()}


# ---- the record and the picture


def photograph(page: Path) -> dict[Literal["light", "dark"], bytes]:
    """The top of the page, down to its numbers, in both schemes, with as few colours as text needs."""
    from playwright.sync_api import sync_playwright

    found = {}
    with sync_playwright() as driver:
        path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for scheme in PLACES:
            tab = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=scheme, device_scale_factor=SCALE)
            tab.goto(page.resolve().as_uri())
            last = tab.locator(".tiles li").last.bounding_box()
            end = HEIGHT if last is None else last["y"] + last["height"] + 14
            shot = tab.screenshot(clip={"x": 0, "y": 0, "width": WIDTH, "height": end})
            whole = Image.open(io.BytesIO(shot)).convert("RGB")
            small = io.BytesIO()
            whole.quantize(COLORS, dither=Image.Dither.NONE).save(small, "PNG", optimize=True)
            found[scheme] = small.getvalue()
        browser.close()
    return found


def four_lines() -> list[str]:
    """What the first Python block of the README prints, with what stands in comments before it."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    code = re.search(r"^<!-- run\n(.*?)^-->\s*```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    if code is None:
        raise ValueError("README.md must have a block of Python with what it needs in a comment before it")
    printed = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), contextlib.redirect_stdout(printed):
        exec(code[1] + code[2], {})
    return printed.getvalue().rstrip().splitlines()


def record(model: Path, right: Path) -> None:
    """Both lines; the share of wrong labels is of those that the model was fitted to."""
    import torch

    given = pd.read_csv(model / "audit.csv")["given"].to_numpy()
    wrong = round(float(np.mean(given != np.load(right))), 4)
    facts = {"environment": environment(torch.device("cpu"))}
    lines: list[dict[str, Any]] = [
        {"what": "report", "rows": len(given), "wrong": wrong, "verdict": str(noiseproof.load(model)).splitlines()},
        {"what": "four lines", "verdict": four_lines()},
    ]
    (RECORDS / RECORD).write_text("".join(f"{json.dumps(line | facts)}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    for scheme, content in photograph(Path(sys.argv[1]) / "report.html").items():
        PLACES[scheme].write_bytes(content)
    record(*map(Path, sys.argv[1:3]))
