"""What the TAB key offers in a shell: names of losses, recipes, noises, data sets and networks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def losses(incomplete: str) -> list[str]:
    from noiseproof.losses.facts import list_facts

    return _starting(incomplete, (facts.name for facts in list_facts()))


def several_losses(incomplete: str) -> list[str]:
    """Names with commas between: the last one is completed."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in losses(last)]


def recipes(incomplete: str) -> list[str]:
    """DATASET/LOSS, or a loss alone."""
    from noiseproof.paper import list_recipes

    return losses(incomplete) + _starting(incomplete, list_recipes())


def noises(incomplete: str) -> list[str]:
    """A kind with a rate to change; once the kind is typed, the usual rates."""
    from noiseproof.noise.instance import INSTANCE
    from noiseproof.noise.matrix import MATRIX_NOISES

    kinds = [*MATRIX_NOISES, INSTANCE]
    rates = (0.2, 0.4, 0.6, 0.8) if ":" in incomplete else (0.4,)
    return _starting(incomplete, (f"{kind}:{rate}" for kind in kinds for rate in rates))


def datasets(incomplete: str) -> list[str]:
    from noiseproof.data.registry import all_datasets

    return _starting(incomplete, (name for name, known in all_datasets().items() if known.read))


def downloads(incomplete: str) -> list[str]:
    """What 'noiseproof data fetch' downloads."""
    from noiseproof.data.registry import all_datasets

    return _starting(incomplete, (name for name, known in all_datasets().items() if known.fetch))


def models(incomplete: str) -> list[str]:
    from noiseproof.models import list_models

    return _starting(incomplete, list_models())


def runs(incomplete: str) -> list[str]:
    """The folders of runs, in the folder typed so far or in ``runs``."""
    from noiseproof.train.record import RECORD

    folder = Path(incomplete.rpartition("/")[0] or "runs")
    found = sorted(str(record.parent) for record in folder.glob(f"*/{RECORD}"))
    return [name for name in found if name.startswith(incomplete)]


def _starting(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete.lower())]
