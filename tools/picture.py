"""The first picture of the README, docs/confidence.svg: what cross entropy and JAL-CE make of wrong labels.

The two runs of ``noiseproof demo`` with its defaults, trained anew; half a minute on one core.

    make picture
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from noiseproof.demo import LOSSES_IN_FIGURE, recipes
from noiseproof.io.files import write_whole
from noiseproof.train import Outcome, train

PLACE = Path(__file__).resolve().parent.parent / "docs" / "confidence.svg"
RATE, EPOCHS, SEED = 0.6, 100, 0  # the command's defaults
WIDTH, HEIGHT = 560, 330
LEFT, TOP, PANEL, GAP, HIGH = 44, 84, 230, 36, 180
BINS = 10
NAMES = {"ce": "Cross entropy", "jal-ce": "Joint asymmetric loss"}
KINDS = {"right": ("#2b6cb0", "right labels"), "wrong": ("#dd6b20", "wrong labels")}


def drawn(outcomes: list[Outcome]) -> str:
    """One panel for each loss: how many training examples have their given label with which probability, at the end."""
    shares = [_counts(outcome) for outcome in outcomes]
    most = max(counts.max() for panel in shares for counts in panel.values())
    parts = [_text(LEFT, 24, f"Handwritten digits, {100 * RATE:.0f} % of the labels are wrong", size=18, weight="bold")]
    for index, (outcome, panel) in enumerate(zip(outcomes, shares, strict=True)):
        left = LEFT + index * (PANEL + GAP)
        accuracy = outcome.record.result["test_accuracy"]
        parts.append(_text(left, 56, NAMES[outcome.record.recipe["loss"]], size=16, weight="bold"))
        parts.append(_text(left, 76, f"{100 * accuracy:.0f} % of clean test digits right", size=15))
        parts += _bars(panel, left, float(most))
        parts += [_text(left + at * PANEL, TOP + HIGH + 17, f"{at:g}", size=14, anchor="middle") for at in (0, 0.5, 1)]
    top = int(most // 200) * 200
    parts.append(_text(LEFT - 8, TOP + HIGH - HIGH * top / most + 4, str(top), size=14, anchor="end"))
    parts.append(_text(LEFT - 8, TOP + HIGH + 4, "0", size=14, anchor="end"))
    parts.append(_text(LEFT, HEIGHT - 26, "training examples, by the probability of the given label", size=15))
    at = LEFT
    for color, name in KINDS.values():
        parts.append(f'<rect x="{at}" y="{HEIGHT - 18}" width="12" height="12" fill="{color}"/>')
        parts.append(_text(at + 17, HEIGHT - 7, name, size=15))
        at += 120
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
    head += f'aria-label="{_words(outcomes)}">'
    return f'{head}\n<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>\n' + "\n".join(parts) + "\n</svg>\n"


def _counts(outcome: Outcome) -> dict[str, NDArray[np.int64]]:
    wrong = outcome.task.wrong
    probability = outcome.predictions[max(outcome.predictions)].probability
    parts = {"right": probability[~wrong], "wrong": probability[wrong]} if wrong is not None else {"right": probability}
    return {kind: np.histogram(part, BINS, (0, 1))[0] for kind, part in parts.items()}


def _bars(panel: dict[str, NDArray[np.int64]], left: float, most: float) -> list[str]:
    bottom, wide = TOP + HIGH, PANEL / BINS
    parts = [f'<path d="M{left} {bottom + 0.5}h{PANEL}" stroke="#718096"/>']
    for place, (kind, counts) in enumerate(panel.items()):
        for index, count in enumerate(counts.tolist()):
            high, x = HIGH * count / most, left + wide * (index + 0.08 + 0.42 * place)
            size = f'width="{0.42 * wide:.1f}" height="{high:.1f}"'
            parts.append(f'<rect x="{x:.1f}" y="{bottom - high:.1f}" {size} fill="{KINDS[kind][0]}"/>')
    return parts


def _text(x: float, y: float, text: str, *, size: int, anchor: str = "start", weight: str = "normal") -> str:
    font = f'font-family="system-ui, sans-serif" font-size="{size}" font-weight="{weight}" fill="#1a202c"'
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {font}>{text}</text>'


def _words(outcomes: list[Outcome]) -> str:
    said = (f"{NAMES[one.record.recipe['loss']]} {100 * one.record.result['test_accuracy']:.0f} %" for one in outcomes)
    return f"Handwritten digits with {100 * RATE:.0f} % wrong labels, clean test digits predicted right: {', '.join(said)}"


if __name__ == "__main__":
    chosen = [one for one in recipes(RATE, epochs=EPOCHS, seed=SEED) if one.loss in LOSSES_IN_FIGURE]
    picture = drawn([train(one) for one in chosen])
    write_whole(PLACE, lambda path: path.write_text(picture, encoding="utf-8"))
