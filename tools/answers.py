"""docs/benchmarks/index.md: the questions, each with its answer in one sentence and the page that has the rest."""

from __future__ import annotations

import re
from collections.abc import Callable

from audit_record import audit_answer
from choosing import a_answer, selection_answer
from decay_control import decay_answer
from early_record import early_answer
from frozen_record import frozen_answer
from kernel_record import kernels_answer
from options_record import options_answer
from paper_record import paper_answer
from rare_record import imbalance_answer
from results import table
from zoo_record import fit_answer

__all__ = ["answers"]

QUESTIONS: dict[tuple[str, str], Callable[[], str]] = {
    ("Is a robust loss worth it where early stopping is free?", "early_stopping.md"): early_answer,
    ("Is a robust loss worth it on frozen features?", "frozen_features.md"): frozen_answer,
    ("Is it the loss, or the L1 regularisation that comes with it?", "loss_or_decay.md"): decay_answer,
    ("Do the paper's numbers hold?", "paper.md"): paper_answer,
    ("Is `fit` more accurate than what I do now?", "fit.md"): fit_answer,
    ("Does `audit` find more wrong labels than cleanlab?", "audit.md"): audit_answer,
    ("Must `a` be tuned?", "choice_of_a.md"): a_answer,
    ("What happens under class imbalance?", "class_imbalance.md"): imbalance_answer,
    ("Does regularisation, sample selection or weight averaging help?", "options.md"): options_answer,
    ("Can I choose a loss without clean labels?", "selection.md"): selection_answer,
    ("What does it cost?", "speed.md"): lambda: f"**{kernels_answer()}**",
}


def answers() -> str:
    """The sentence in bold of each page, with a link."""
    rows = []
    for (question, page), answer in QUESTIONS.items():
        bold = re.search(r"\*\*(.+?)\*\*", answer(), re.DOTALL)
        rows.append([f"[{question}]({page})", "" if bold is None else bold[1].rstrip(".") + "."])
    return table(["question", "answer"], rows).rstrip()
