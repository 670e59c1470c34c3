"""Where the paper's text and its code differ: the same cell measured with the values of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from noiseproof.paper import PROFILES, Difference
from noiseproof.paper.measured import CellResult, join
from noiseproof.paper.plan import cell_differences

TEXT_PROFILE = PROFILES[1]


@dataclass(frozen=True)
class ProfileComparison:
    """A cell with runs of the code's values and of the text's."""

    code: CellResult
    text: CellResult
    differences: tuple[Difference, ...]

    @property
    def noise(self) -> str:
        return f"{self.code.cell.noise} {self.code.cell.rate or ''}".rstrip()

    @property
    def changes(self) -> str:
        """What differs, from the code's value to the text's."""
        return ", ".join(
            f"{one.field.removeprefix('loss.')} {value_text(one.code)} → {value_text(one.text)}" for one in self.differences
        )


def text_results(
    results: Iterable[CellResult], records: Iterable[dict[str, Any]], *, precision: str = "bf16"
) -> list[CellResult]:
    """Of the cells of ``results``, those that have runs with the text's values, where these differ from the code's."""
    trained = [result.cell for result in results if result.cell.quoted_from is None]
    found = join(trained, records, precision=precision, profile=TEXT_PROFILE).results
    return [result for result in found if result.runs and cell_differences(result.cell)]


def text_or_code(code: Iterable[CellResult], text: Iterable[CellResult]) -> list[ProfileComparison]:
    """The cells that are measured with both, each once also where several tables print it."""
    by_cell = {result.cell: result for result in text if result.sample is not None}
    both = [result for result in distinct(code) if result.cell in by_cell]
    return [ProfileComparison(result, by_cell[result.cell], tuple(cell_differences(result.cell))) for result in both]


def with_text_results(code: Iterable[CellResult], text: Iterable[CellResult]) -> list[CellResult]:
    """Each cell with the code's values, and after it the same with the text's if there is one."""
    by_cell = {result.cell: result for result in text}
    return [one for result in code for one in (result, by_cell.get(result.cell)) if one is not None]


def distinct(results: Iterable[CellResult]) -> list[CellResult]:
    """The measured cells; a number that several tables print, and the same runs repeat, once."""
    measured = (result for result in results if result.sample is not None)
    found: dict[tuple[Any, ...], CellResult] = {}
    for result in measured:
        found.setdefault((*map(id, result.counted), result.cell.dataset, result.cell.mean), result)
    return list(found.values())


def describe_profiles(found: Sequence[ProfileComparison], code: Iterable[CellResult]) -> list[str]:
    """How many agree with the paper by either, and what that leaves open. ``code`` are all cells with the code's values."""
    if not found:
        return []
    with_code = [one for one in found if one.code.agreement.verdict == "agrees"]
    with_text = [one for one in found if one.text.agreement.verdict == "agrees"]
    neither = [one for one in found if one not in with_code and one not in with_text]
    apart = "; ".join(_named(one, _means(one)) for one in neither)
    sentences = [
        f"Cells measured with the values of both: {len(found)}. With the code's, {_counted(with_code, 'code')} with the paper; "
        f"with the text's, {_counted(with_text, 'text')}; with neither, {len(neither)}{apart and f': {apart}'}."
    ]
    losses = list(dict.fromkeys(one.code.cell.loss for one in found))
    measured = [result for result in distinct(code) if result.cell.loss in losses and cell_differences(result.cell)]
    off = [result.cell for result in measured if result.agreement.verdict != "agrees"]
    others = ", all but these" if off == [one.code.cell for one in found] else ""
    sentences.append(
        f"Of all {len(measured)} cells of {', '.join(losses)} measured with the code's values, {len(measured) - len(off)} "
        f"agree{others}."
    )
    if any(len(one.differences) > 1 for one in found):
        sentences.append("The two differ in more than one value, so these runs do not tell which of them matters.")
    return sentences


def _counted(found: Sequence[ProfileComparison], side: Literal["code", "text"]) -> str:
    named = [_named(one, getattr(one, side).classes) for one in found]
    return f"{len(found)} agree{'s' if len(found) == 1 else ''}" + (f": {', '.join(named)}" if named else "")


def _named(one: ProfileComparison, words: str) -> str:
    return f"{one.code.name} at {one.noise}" + (f" ({words})" if words else "")


def _means(one: ProfileComparison) -> str:
    code, text = (0.0 if result.sample is None else result.sample.mean for result in (one.code, one.text))
    return f"{one.code.cell.mean:.2f} printed, {code:.2f} with the code's, {text:.2f} with the text's"


def value_text(value: Any) -> str:
    """A value of a recipe, short."""
    return "none" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
