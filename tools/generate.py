"""Write the files that are made from data: README.md's table and noiseproof.functional's stub from the catalogue of losses, and
docs/results.md from the records."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from results import RESULTS, results

from noiseproof import functional, list_losses
from noiseproof.losses.base import Contract, Reduction

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
STUB = ROOT / "src" / "noiseproof" / "functional.pyi"
START, END = "<!-- losses: written by `make generate` -->\n", "<!-- end of losses -->"


def readme() -> str:
    """README.md with a fresh table."""
    before, rest = README.read_text(encoding="utf-8").split(START)
    _, after = rest.split(END)
    lines = ["| name | loss | of one example | kind | symmetric |", "|---|---|---|---|---|"]
    for entry in list_losses():
        symmetric = {"True": "yes", "False": ""}.get(entry.symmetric, f"`{entry.symmetric}`")
        lines.append(f"| {entry.name} | {entry.title} | `{entry.formula}` | {entry.kind} | {symmetric} |")
    return before + START + "\n".join(lines) + "\n" + END + after


def stub() -> str:
    """functional.pyi, for editors and type checkers."""
    lines = [
        '"""One function per loss. Written from the catalogue by `make generate`; do not edit."""',
        "",
        "from typing import Literal",
        "",
        "import torch",
        "from torch import Tensor",
        "",
        "from noiseproof.losses.base import Reduction, RobustLoss",
        "",
    ]
    for entry in list_losses():
        signature = inspect.signature(getattr(functional, entry.function_name))
        lines.append(f"def {entry.function_name}(")
        starred = False
        for parameter in signature.parameters.values():
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not starred:
                lines.append("    *,")
                starred = True
            default = "" if parameter.default is inspect.Parameter.empty else f" = {_literal(parameter.default)}"
            lines.append(f"    {parameter.name}: {_annotation(parameter)}{default},")
        lines.append(") -> Tensor: ...")
    return "\n".join(lines) + "\n"


def _annotation(parameter: inspect.Parameter) -> str:
    """As source, whether the annotation is a string, a reference to come or the type itself."""
    annotation = Contract.__annotations__.get(parameter.name, parameter.annotation)
    annotation = getattr(annotation, "__forward_arg__", annotation)
    if annotation == Reduction:
        return "Reduction"
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b(noiseproof\.([a-z_]+\.)+|typing\.|torch\.(?=Tensor))", "", text).replace("'", '"')


def _literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


if __name__ == "__main__":
    README.write_text(readme(), encoding="utf-8")
    STUB.write_text(stub(), encoding="utf-8")
    RESULTS.write_text(results(), encoding="utf-8")
