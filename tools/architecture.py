"""The rooms of the package, who may import whom, and the picture of who does; docs/architecture.md and the tests read it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "noiseproof"
FACE = "noiseproof"
"""The package itself, that is ``__init__.py``, which imports the losses."""

ROOMS = {
    "version": ("the version", ()),
    "io": ("files written whole or not at all; files of others, read without trust, within limits", ()),
    "classes": ("what classes of known data sets are called", ()),
    "keyed_random": ("random numbers that are a function of their keys", ()),
    "checks": ("checks of numbers, with one wording for all errors", ()),
    "core": ("row statistics, the one operation that reads logits, its backends", ()),
    "kernels": ("passes over the logits and programs as Triton kernels, for CUDA", ("core", "program")),
    "program": ("a loss as a program: elementary operations that give a row's value and slopes", ("core",)),
    "statistics": ("what a loss of your own reads", ("core",)),
    "regularisation": ("L1 regularisation as a penalty to add to a loss", ("checks",)),
    "losses": ("the contract, one file per family, the catalogue, linear heads", ("checks", "core", "program")),
    "functional": ("one function per loss", ("losses",)),
    "integrations": ("losses in the loops of other frameworks", ("core", "io", "losses", "regularisation")),
    "noise": (
        "transition matrices, sampling, label files, `kind:rate`",
        ("checks", "classes", "io", "keyed_random"),
    ),
    "theory": ("which losses tolerate which noise, the required `a`", ("checks", "losses", "noise")),
    "data": ("readers, downloads, loaders, augmentation", ("checks", "classes", "io", "keyed_random")),
    "models": ("networks by name, weights", ("checks", "io")),
    "train": (
        "recipe, engines, loop, records, the store of runs",
        ("data", "io", "losses", "models", "noise", "theory", "version"),
    ),
    "sklearn": ("a scikit-learn classifier on the trainer", ("data", "train")),
    "audit": ("which labels look wrong, and how many", ("data", "io", "losses", "noise", "train")),
    "advice": (
        "which loss and hyper-parameters, and on what evidence",
        ("audit", "io", "losses", "noise", "theory"),
    ),
    "report": (
        "records of runs, and pages and pictures of them",
        ("audit", "data", "io", "version"),
    ),
    "comparison": (
        "losses compared on the same seeds: paired statistics, the table",
        ("data", "io", "losses", "noise", "report", "train"),
    ),
    "paper": (
        "everything that repeats one paper: cells, recipes, order of runs, agreement, tables, figures, page",
        ("comparison", "data", "io", "losses", "noise", "report", "train", "version"),
    ),
    "demo": ("`noiseproof demo`", ("io", "losses", "paper", "train")),
    "cli": (
        "the command line; a verb is a file",
        (
            *("advice", "audit", "comparison", "data", "demo", "functional", "io", "losses", "models", "noise", "paper"),
            *("report", "theory", "train", "version"),
        ),
    ),
}
"""Each part of the package: what it holds, and which other parts it may import. Kernels plug into core."""


def imported_parts(path: Path) -> Iterator[str]:
    """The parts that a file imports, by whatever statement, at whatever depth; ``FACE`` for the package itself."""
    package = path.relative_to(SOURCE.parent).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (_part(alias.name) for alias in node.names if _is_ours(alias.name))
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(name for name in (base, node.module) if name)
            if module == FACE:
                yield from (_part(f"{FACE}.{alias.name}") for alias in node.names)
            elif _is_ours(module):
                yield _part(module)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _is_dotted_module(node.value):
            yield _part(node.value)  # importlib.import_module("noiseproof.train")


def _is_ours(module: str) -> bool:
    return module == FACE or module.startswith(f"{FACE}.")


def _is_dotted_module(text: str) -> bool:
    """Whether text is the full name of a module of ours, as importlib and patches take it."""
    place = SOURCE.joinpath(*text.split(".")[1:])
    return text.startswith(f"{FACE}.") and text.isascii() and (place.is_dir() or place.with_suffix(".py").is_file())


def _part(module: str) -> str:
    name = module.split(".")[1] if "." in module else FACE
    return name if (SOURCE / name).is_dir() or (SOURCE / f"{name}.py").is_file() else FACE


def part_of(path: Path) -> str:
    """The part that a file of the package belongs to."""
    name = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    return FACE if name in {"__init__", "__main__"} else name


def imports() -> dict[str, set[str]]:
    """For each part, the other parts that its files import."""
    found: dict[str, set[str]] = {part: set() for part in ROOMS}
    for path in sorted(SOURCE.rglob("*.py")):
        if (part := part_of(path)) != FACE:
            found.setdefault(part, set()).update(set(imported_parts(path)) - {part})
    return found


def picture() -> str:
    """A Mermaid diagram of the imports, without those that a longer way implies."""
    found = imports()

    def reached(part: str) -> set[str]:
        return found[part].union(*(reached(other) for other in found[part]))

    lines = ["```mermaid", "graph TD"]
    for part, others in found.items():
        direct = others.difference(*(reached(other) for other in others))
        lines += [f"  {part} --> {other}" for other in sorted(direct)] or [f"  {part}"]
    return "\n".join([*lines, "```"])


def rooms_table() -> str:
    """The rooms, and who may import whom, as a Markdown table."""
    rows = (f"| `{part}` | {holds} | {', '.join(f'`{name}`' for name in may)} |" for part, (holds, may) in ROOMS.items())
    return "\n".join(["| room | holds | may import |", "|---|---|---|", *rows])
