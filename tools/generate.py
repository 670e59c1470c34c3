"""Write the files that are made from data: the catalogue of losses, the imports, the records, and the paper.

``FILLED`` are pages with parts between marks, ``WRITTEN`` whole files."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import audit_record
import choosing
import decay_control
import early_record
import frozen_record
import kernel_record
import next_record
import options_record
import paper_record
import rare_record
import readme_fits
import training_record
import zoo_record
from answers import answers
from architecture import boxes_table, picture, walks, where_table
from differences import difference_lists
from manual import catalogue as loss_pages
from manual import command_line, names, sources
from own_data import own_defaults
from results import PAGES
from text_or_code import where_they_differ

from noiseproof import functional, list_losses, paper
from noiseproof.io.limits import LIMITS
from noiseproof.losses.base import Contract
from noiseproof.losses.facts import CATALOGUE, KINDS_OF_DATA, PUBLISHED, collect_facts
from noiseproof.paper.settings import PARAMETERS
from noiseproof.program import Reduction

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"


def catalogue() -> str:
    """The text of ``catalogue.json``, from the classes."""
    return json.dumps([asdict(facts) for facts in collect_facts()], indent=1) + "\n"


def published() -> str:
    """The text of ``published.json``: the paper's settings of each loss by kind of data, and those of features after them."""
    settings: dict[str, list[dict[str, object]]] = {}
    for kind, known in KINDS_OF_DATA.items():
        for loss in settings if kind == "features" else PARAMETERS[known.data_set]:
            recipe = paper.recipe(f"{known.data_set}/{loss}")
            found: dict[str, object] = {"kind": kind, "options": dict(recipe.loss_options), "l1": recipe.l1, "l2": recipe.l2}
            settings.setdefault(loss, []).append(found)
    return json.dumps(settings, indent=1) + "\n"


def limits_table() -> str:
    """The table of SECURITY.md, from the module that all readers ask."""
    return "\n".join(["| what | at most |", "|---|---|", *(f"| {what} | {most} |" for what, most in LIMITS.items())])


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
        "from noiseproof.losses.base import RobustLoss",
        "from noiseproof.program import Reduction",
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


FILLED: dict[Path, dict[str, Callable[[], str]]] = {
    ROOT / "SECURITY.md": {"limits": limits_table},
    ROOT / "README.md": {
        "report": readme_fits.picture,
        "verdict": readme_fits.verdict,
        "zoo": zoo_record.readme_zoo,
        "epochs": early_record.epochs_sentence,
    },
    DOCS / "reference" / "api" / "index.md": {"names": names.overview},
    DOCS / "explanation" / "architecture.md": {
        "boxes": boxes_table,
        "imports": picture,
        "where": where_table,
        "loss": lambda: walks()[0],
        "train": lambda: walks()[1],
        "audit": lambda: walks()[2],
    },
    DOCS / "reference" / "command_line" / "index.md": {"commands": command_line.overview},
    DOCS / "explanation" / "differences.md": {"differences": difference_lists},
    DOCS / "how_to" / "choosing.md": {"next": next_record.next_table},
    DOCS / "how_to" / "fit.md": {"cost": zoo_record.fit_cost},
    DOCS / "reference" / "tests.md": {"tests": sources.listing},
    DOCS / "reference" / "losses" / "index.md": {"losses": loss_pages.overview},
    PAGES / "index.md": {"answers": answers},
    PAGES / "audit.md": {"answer": audit_record.audit_answer, "tables": audit_record.audit_tables},
    PAGES / "choice_of_a.md": {
        "answer": choosing.a_answer,
        "digits": choosing.choice_of_a,
        "cifar": choosing.a_on_cifar,
    },
    PAGES / "class_imbalance.md": {
        "answer": rare_record.imbalance_answer,
        "defaults": rare_record.imbalance_defaults,
        "early": rare_record.imbalance_early,
        "tables": rare_record.imbalance_tables,
    },
    PAGES / "defaults.md": {"tables": own_defaults},
    PAGES / "early_stopping.md": {
        "answer": early_record.early_answer,
        "table": early_record.early_table,
        "limits": zoo_record.early_stopping_limits,
    },
    PAGES / "frozen_features.md": {"answer": frozen_record.frozen_answer, "tables": frozen_record.frozen_tables},
    PAGES / "fit.md": {"answer": zoo_record.fit_answer, "tables": zoo_record.fit_tables},
    PAGES / "loss_or_decay.md": {"answer": decay_control.decay_answer, "control": decay_control.control},
    PAGES / "options.md": {
        "answer": options_record.options_answer,
        "kept": options_record.options_kept,
        "tables": options_record.options_tables,
    },
    PAGES / "paper.md": {
        "answer": paper_record.paper_answer,
        "details": paper_record.paper_details,
        "counted": paper_record.counted_cells,
        "tables": paper_record.paper_tables,
        "text": where_they_differ,
        "precision": paper_record.faithfulness,
    },
    PAGES / "selection.md": {"answer": choosing.selection_answer, "tables": choosing.selection},
    PAGES / "speed.md": {
        "answer": training_record.speed_answer,
        "kernels": kernel_record.kernels,
        "cpu": training_record.losses,
        "linear": kernel_record.linear,
        "training": training_record.speed_of_training,
    },
}
"""What stands between the marks of a name"""
WRITTEN: dict[Path, Callable[[], str]] = {
    PUBLISHED: published,
    CATALOGUE: catalogue,
    **{DOCS / "reference" / name: page for part in (loss_pages, names, command_line) for name, page in part.pages().items()},
    **readme_fits.BADGES,
    **zoo_record.CHARTS,
    **early_record.CHARTS,
    **frozen_record.CHARTS,
    **decay_control.CHARTS,
    **paper_record.CHARTS,
    **audit_record.CHARTS,
    **choosing.CHARTS,
    **rare_record.CHARTS,
    **kernel_record.CHARTS,
    **training_record.CHARTS,
    ROOT / "src" / "noiseproof" / "functional.pyi": stub,
}


def fresh(path: Path) -> str:
    """The text of a file as it should be."""
    if path in WRITTEN:
        return WRITTEN[path]()
    text = path.read_text(encoding="utf-8")
    for name, content in FILLED[path].items():
        text = _filled(text, name, content())
    return text


def _filled(text: str, name: str, content: str) -> str:
    """The text with other content between the marks of this name."""
    start, end = f"<!-- {name}: written by `make generate` -->\n", f"<!-- end of {name} -->"
    before, rest = text.split(start)
    return f"{before}{start}{content}\n{end}{rest.split(end)[1]}"


if __name__ == "__main__":
    for file in (*WRITTEN, *FILLED):
        file.write_text(fresh(file), encoding="utf-8")
