"""Write the files that are made from data: README.md's table and noiseproof.functional's stub from the catalogue of losses,
parts of docs/architecture.md from the imports, docs/results.md and the table of docs/own_data.md from the records, and the
lists of docs/differences.md from the paper as data."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from architecture import picture, rooms_table
from differences import difference_lists
from own_data import own_defaults
from results import RESULTS, results

from noiseproof import functional, list_losses
from noiseproof.losses.base import Contract, Reduction

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
ARCHITECTURE = ROOT / "docs" / "architecture.md"
OWN_DATA = ROOT / "docs" / "own_data.md"
DIFFERENCES = ROOT / "docs" / "differences.md"
STUB = ROOT / "src" / "noiseproof" / "functional.pyi"


def architecture_page() -> str:
    """docs/architecture.md with the rooms and the imports as they are."""
    text = ARCHITECTURE.read_text(encoding="utf-8")
    return _filled(_filled(text, "rooms", rooms_table()), "imports", picture())


def own_data_page() -> str:
    """docs/own_data.md with the table of its study."""
    return _filled(OWN_DATA.read_text(encoding="utf-8"), "defaults", own_defaults())


def differences_page() -> str:
    """docs/differences.md with its lists."""
    return _filled(DIFFERENCES.read_text(encoding="utf-8"), "differences", difference_lists())


def _filled(text: str, name: str, content: str) -> str:
    """The text with other content between the marks of this name."""
    start, end = f"<!-- {name}: written by `make generate` -->\n", f"<!-- end of {name} -->"
    before, rest = text.split(start)
    return f"{before}{start}{content}\n{end}{rest.split(end)[1]}"


def readme() -> str:
    """README.md with a fresh table."""
    lines = ["| name | loss | of one example | kind | symmetric |", "|---|---|---|---|---|"]
    for entry in list_losses():
        symmetric = {"True": "yes", "False": ""}.get(entry.symmetric, f"`{entry.symmetric}`")
        lines.append(f"| {entry.name} | {entry.title} | `{entry.formula}` | {entry.kind} | {symmetric} |")
    return _filled(README.read_text(encoding="utf-8"), "losses", "\n".join(lines))


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
        head, *rest = inspect.cleandoc(getattr(functional, entry.function_name).__doc__ or "").splitlines()
        lines += [") -> Tensor:", f'    """{head}', *(f"    {line}".rstrip() for line in rest), '    """', ""]
    return "\n".join(lines)


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
    ARCHITECTURE.write_text(architecture_page(), encoding="utf-8")
    STUB.write_text(stub(), encoding="utf-8")
    RESULTS.write_text(results(), encoding="utf-8")
    OWN_DATA.write_text(own_data_page(), encoding="utf-8")
    DIFFERENCES.write_text(differences_page(), encoding="utf-8")
