"""The README: short, every claim with a link, and its code does what the text promises."""

import contextlib
import io
import re
from pathlib import Path

import pytest
import torch

import noiseproof

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(?:python|text)\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
MOST_WORDS, MOST_COLUMNS, MOST_BYTES = 900, 80, 150_000
MAKES_A_CLAIM = re.compile(r"\d %|points|\bmay\b|cannot|\bnever\b|ahead|better|starts near")


def test_it_is_short():
    assert 300 < len(TEXT.split()) <= MOST_WORDS


def test_no_line_of_code_is_wider_than_a_page_shows():
    indented = re.findall(r"^ {4}\S.*", TEXT, re.MULTILINE)
    lines = [*indented, *(line for block in BLOCKS for line in block.splitlines())]
    assert len(lines) > 20
    assert not [line for line in lines if len(line) > MOST_COLUMNS]


def paragraphs():
    """Of prose: without code, headings, pictures, tables and what is generated into comments."""
    text = re.sub(r"^```.*?^```|<!--.*?-->|^ {4}.*?$", "", TEXT, flags=re.DOTALL | re.MULTILINE)
    for part in re.split(r"\n\s*\n|\n(?=- )", text):
        if part.strip() and not re.match(r"\s*(#|!\[|\||<)", part):
            yield part.strip()


def test_every_claim_is_linked_to_its_record_test_or_page():
    claims = [part for part in paragraphs() if MAKES_A_CLAIM.search(part)]
    assert len(claims) > 5
    assert not [part for part in claims if "](" not in part]


def test_links_stay_in_the_repository_and_pictures_are_small():
    targets = re.findall(r"\]\(([^)#\s]+)", TEXT) + re.findall(r'(?:src|srcset)="([^"]+)"', TEXT)
    assert len(targets) > 25
    assert not [target for target in targets if not (ROOT / target).exists()]
    pictures = [ROOT / target for target in targets if target.endswith((".svg", ".png"))]
    assert len(pictures) == 8
    assert all(picture.stat().st_size < MOST_BYTES for picture in pictures)


def code_of(heading):
    """The Python block of a section, or of what is before the first, with what its comments prepare and check."""
    section = (TEXT.partition(f"\n## {heading}\n")[2] if heading else TEXT).partition("\n## ")[0]
    found = re.findall(r"^```python\n(.*?)^```|^<!-- run\n(.*?)^-->", section, re.DOTALL | re.MULTILINE)
    assert found
    return "".join(shown or hidden for shown, hidden in found)


def test_the_loss_is_a_drop_in():
    exec(code_of("Replace the loss in your loop"), {"noiseproof": noiseproof, "torch": torch})


def test_the_loss_starts_and_ends_where_the_readme_says():
    start, end = map(float, re.search(r"starts near\s+([\d.]+)\s+and ends\s+near\s+([\d.]+)", TEXT).groups())
    label, sure = torch.tensor([0]), 100 * torch.eye(10)[:1]
    loss, without = noiseproof.JALCE(a=30.0), noiseproof.JALCE(a=30.0, offset=False)
    assert loss(torch.zeros(1, 10), label).item() == pytest.approx(start, abs=0.05)
    assert loss(sure, label).item() == pytest.approx(end, abs=0.05)
    assert end == pytest.approx((30 - 1) ** 2 / 10, abs=0.05)
    assert without(sure, label).item() == pytest.approx(0.0, abs=1e-6)


@pytest.mark.slow
def test_fit_prints_the_verdict(tmp_path, monkeypatch):
    """The same sentences; the numbers may differ a little on another machine."""
    monkeypatch.chdir(tmp_path)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(code_of(""), {})
    assert noiseproof.load("model").verdict.rows == 569
    printed, shown = (" ".join(text.split()) for text in (said.getvalue(), BLOCKS[1]))
    printed = re.sub(r"\bAUC\b", "", re.sub(r"(\(\S+ to \S+\)) [\d.]+ \(\S+ to \S+\)(?= gradient| The)", r"\1", printed))
    number = r"\d+(?:\.\d+)?"
    assert re.sub(number, "#", " ".join(printed.split())) == re.sub(number, "#", shown)
    before_rows = [text.partition("Look first")[0] for text in (printed, shown)]
    ours, theirs = ([float(one) for one in re.findall(number, text)] for text in before_rows)
    assert ours[:2] == theirs[:2] == [569, 2]
    assert ours[2:] == pytest.approx(theirs[2:], abs=6)
