"""The boxes of the package, which box may import which, their diagram, and the walks of docs/explanation/architecture.md."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "noiseproof"
PACKAGE = "noiseproof"
"""The package itself, that is ``__init__.py``, which imports what is asked of it"""
FOUNDATION = {
    "checks": "checks of numbers with one wording for all errors",
    "io": "files written whole or not at all, files of others read within limits, what commands print to",
    "keyed_random": "random numbers that are a function of their keys",
    "plugins": "modules that register data sets, networks and readers of files by name",
    "version": "the version",
}
"""Folders and files that every box may import, and that import no box"""


@dataclass(frozen=True)
class Box:
    """A box of the diagram: one or more folders and files directly below ``src/noiseproof``.

    Attributes:
        contains: What is in it, for the table of the page.
        look_first: The file in which to begin to read.
        may_import: Other boxes that its files may import.
        modules: Its folders and files, if there are others than the one of its name.
    """

    contains: str
    look_first: str
    may_import: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()


BOXES = {
    "cli": Box(
        "the command line: a verb is a file that parses, calls one function and prints what it returns",
        "cli/__init__.py",
        (
            *(
                "advice",
                "audit",
                "comparison",
                "core",
                "data",
                "fitting",
                "learners",
                "losses",
                "models",
                "noise",
                "paper",
                "report",
                "theory",
                "train",
            ),
            *("integrations",),
        ),
        ("cli", "demo"),
    ),
    "comparison": Box(
        "`noiseproof.compare`: losses on the same seeds, with paired intervals, groups, tables",
        "comparison/__init__.py",
        ("audit", "data", "losses", "models", "noise", "theory", "train"),
    ),
    "audit": Box(
        "which labels look wrong, and how many: cross-validation, mixture model, noise estimate",
        "audit/labels.py",
        ("data", "learners", "losses", "noise", "train"),
    ),
    "fitting": Box(
        "`noiseproof.fit`: a model from cross-fitted learners and the noise model, its verdict, its folder",
        "fitting/run.py",
        ("audit", "data", "learners", "train"),
    ),
    "learners": Box(
        "classifiers that are trained in one call and stored as arrays of numbers: the views of a cross-validation",
        "learners/catalog.py",
        ("losses", "models"),
    ),
    "advice": Box(
        "which loss and hyperparameters suit the data, and why",
        "advice/__init__.py",
        ("audit", "data", "fitting", "losses", "noise", "theory", "train"),
    ),
    "train": Box(
        "recipe, engines, training loop, checkpoints, records, lists of runs (local or on Ray)",
        "train/loop.py",
        ("data", "losses", "models", "noise", "theory"),
    ),
    "report": Box(
        "pages and figures of runs and audits, from their records",
        "report/page.py",
        ("audit", "comparison", "data", "fitting", "losses", "models", "noise", "train"),
    ),
    "integrations": Box(
        "losses in other frameworks' training loops; scikit-learn: `fit` and the trainer as a classifier",
        "sklearn.py",
        ("core", "data", "fitting", "losses", "train"),
        ("integrations", "sklearn"),
    ),
    "data": Box(
        "readers of tables, arrays and images, splits, decoding of image files, augmentation operations",
        "data/opening.py",
        ("noise",),
    ),
    "models": Box("networks by name, pretrained weights", "models/base.py"),
    "theory": Box(
        "which loss tolerates which noise, the hyperparameter `a` that JAL needs", "theory/conditions.py", ("losses", "noise")
    ),
    "noise": Box("transition matrices, sampling of noisy labels, label files, `kind:rate`", "noise/matrix.py"),
    "losses": Box(
        "the contract of `F.cross_entropy`, one file per family of losses, the catalogue, L1 regularisation",
        "losses/base.py",
        ("core",),
        ("losses", "functional", "regularisation"),
    ),
    "core": Box(
        "row statistics, the pass over the logits and its gradient, backends; a loss as a recorded program",
        "core/operation.py",
        (),
        ("core", "program", "statistics"),
    ),
    "kernels": Box("the same passes as Triton kernels for CUDA, registered with core", "kernels/__init__.py", ("core",)),
    "paper": Box(
        "everything that repeats one paper: cells, recipes, official data sets, tables, figures, verdicts",
        "paper/published.py",
        ("comparison", "data", "losses", "models", "noise", "report", "theory", "train"),
    ),
}
"""At most sixteen boxes of the product, and the paper"""


def box_of(part: str) -> str:
    """The box that a folder or file directly below ``src/noiseproof`` belongs to; "foundation" and "" are no boxes."""
    if part in FOUNDATION:
        return "foundation"
    return next((name for name, box in BOXES.items() if part in (box.modules or (name,))), "")


def imported_parts(path: Path) -> Iterator[str]:
    """The parts that a file imports, by whatever statement, at whatever depth; ``PACKAGE`` for the package itself."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from _imported_by(node, path)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _is_dotted_module(node.value):
            yield _part(node.value)  # importlib.import_module("noiseproof.train")


def _imported_by(node: ast.Import | ast.ImportFrom, path: Path) -> list[str]:
    """The parts of the package that one statement imports."""
    if isinstance(node, ast.Import):
        return [_part(alias.name) for alias in node.names if _is_ours(alias.name)]
    package = path.relative_to(SOURCE.parent).parts[:-1]
    base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
    module = ".".join(name for name in (base, node.module) if name)
    if module == PACKAGE:
        return [_part(f"{PACKAGE}.{alias.name}") for alias in node.names]
    return [_part(module)] if _is_ours(module) else []


def _is_ours(module: str) -> bool:
    return module == PACKAGE or module.startswith(f"{PACKAGE}.")


def _is_dotted_module(text: str) -> bool:
    """Whether text is the full name of a module of ours, as importlib and patches take it."""
    place = SOURCE.joinpath(*text.split(".")[1:])
    return text.startswith(f"{PACKAGE}.") and text.isascii() and (place.is_dir() or place.with_suffix(".py").is_file())


def _part(module: str) -> str:
    name = module.split(".")[1] if "." in module else PACKAGE
    return name if (SOURCE / name).is_dir() or (SOURCE / f"{name}.py").is_file() else PACKAGE


def part_of(path: Path) -> str:
    """The part that a file of the package belongs to."""
    name = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    return PACKAGE if name in {"__init__", "__main__"} else name


def paper_imports(path: Path) -> Iterator[tuple[int, bool]]:
    """Where a file imports the paper: the line, and whether that happens inside a function, when it is called."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    typing_only = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)]
    inside = {id(node) for block in (*functions, *typing_only) for node in ast.walk(block)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom) and "paper" in _imported_by(node, path):
            yield node.lineno, id(node) in inside


def imports() -> dict[str, set[str]]:
    """For each folder and file, the others that its files import."""
    found: dict[str, set[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        if (part := part_of(path)) != PACKAGE:
            found.setdefault(part, set()).update(set(imported_parts(path)) - {part})
    return found


def box_imports() -> dict[str, set[str]]:
    """For each box, the other boxes that it imports, without the foundation."""
    found: dict[str, set[str]] = {name: set() for name in BOXES}
    for part, others in imports().items():
        if (box := box_of(part)) in found:
            found[box] |= {box_of(other) for other in others} & (set(BOXES) - {box})
    return found


def picture() -> str:
    """A Mermaid diagram of the imports between boxes, without those that a longer way implies."""
    found = box_imports()

    def reached(box: str) -> set[str]:
        return found[box].union(*(reached(other) for other in found[box]))

    lines = ["```mermaid", "graph TD"]
    for box, others in found.items():
        direct = others.difference(*(reached(other) for other in others))
        lines += [f"  {box} --> {other}" for other in sorted(direct)] or [f"  {box}"]
    return "\n".join([*lines, "```"])


def boxes_table() -> str:
    """The boxes as a Markdown table: what each contains, where to look first, what it imports; and the foundation."""
    used = box_imports()
    rows = []
    for name, box in BOXES.items():
        parts = ", ".join(_link(part) for part in box.modules or (name,))
        imported = ", ".join(sorted(used[name]))
        rows.append(f"| **{name}** | {parts} | {box.contains} | {_link(box.look_first)} | {imported} |")
    head = ["| box | where | contains | look first | imports |", "|---|---|---|---|---|"]
    lines = ", ".join(f"{_link(part)} ({contains})" for part, contains in FOUNDATION.items())
    return "\n".join([*head, *rows, "", f"Foundation, which every box may import: {lines}."])


def _link(name: str) -> str:
    """A file or folder of the source as a link that a code host follows."""
    path = SOURCE / name
    shown = path if path.exists() else path.with_suffix(".py")
    return f"[`{shown.relative_to(SOURCE)}`](../../{shown.relative_to(ROOT)})"


WHERE = (
    ("a table is read, of any format", "data/frames.py", "read_frame"),
    ("a CSV file is read", "io/csv_files.py", "read_csv"),
    ("the kind of a file or folder is recognised and its reader chosen", "data/opening.py", "open_dataset"),
    ("a data set gets its name, also from a plug-in", "data/registry.py", "register_dataset"),
    ("a batch is loaded and augmented", "train/batch_loader.py", "MemoryLoader"),
    ("noisy labels are sampled", "noise/matrix.py", "corrupt"),
    ("a loss is defined", "losses/joint.py", "JALCE"),
    ("shapes, weights and reductions of a loss are handled", "losses/base.py", "RobustLoss"),
    ("the row statistics are computed (forward pass)", "core/reference.py", "forward"),
    ("a loss's gradient is formed, by definition", "core/reference.py", "second_pass"),
    ("the same in the usual call on a CPU, up to some thousand logits", "core/small.py", "second_pass"),
    ("the same in a fused call of more logits on a CPU", "program/on_cpu.py", "backward"),
    ("the gradient's formula is derived", "core/__init__.py", ""),
    ("a loss and its gradient become one fused step", "program/step.py", "fused_step"),
    ("the same is done on a GPU", "kernels/__init__.py", ""),
    ("the smallest `a` with which JAL tolerates a noise is computed", "theory/choice.py", "required_a"),
    ("recommended hyperparameters are kept", "losses/facts.py", "recommended_settings"),
    ("class weights of a training run are chosen", "train/class_weights.py", "choose_class_weight"),
    ("a class weight becomes part of the loss that is trained", "train/class_weights.py", "training_loss"),
    ("the device of a command is picked", "train/plan.py", "device_named"),
    ("defaults for one's own data are chosen", "train/plan.py", "own_recipe"),
    ("what a result depends on is written down", "train/recipe.py", "Recipe"),
    ("one epoch is trained", "train/engine.py", "PlainEngine.train_epoch"),
    ("epochs, evaluation and checkpoints are sequenced", "train/loop.py", "Loop.run"),
    ("the folder of a run gets its name", "train/runs.py", "RunStore.folder_for"),
    ("a trained network predicts", "train/trained.py", "TrainedClassifier"),
    ("several runs are trained, on this machine or on Ray", "train/executors.py", "Executor"),
    ("networks of an audit of images are trained by cross-validation", "audit/folds.py", "cross_validate"),
    ("the file of a trained fold is read again, and checked", "audit/folds.py", "FoldStore.read"),
    ("the same for a trained learner", "learners/store.py", "TaskStore.read"),
    ("the audit's posterior of the true classes is computed, given a matrix", "audit/noise_model.py", "_posterior"),
    ("the same, averaged over the matrices", "audit/noise_model.py", "_with_answers"),
    ("a learner's model is trained, and kept as arrays", "learners/trees.py", "ForestLearner"),
    ("learners are cross-validated, in processes, and resume", "learners/crossfit.py", "crossfit"),
    ("the processes that train learners are started and ended", "learners/crossfit.py", "_run_in_processes"),
    ("the learners of a fit are chosen, and the model put together", "fitting/run.py", "fit"),
    ("how far each learner is to be believed is computed", "audit/stacking.py", "fit_stack"),
    ("`fit` decides that nothing speaks for wrong labels", "fitting/verdict.py", "Verdict.headline"),
    ("a fitted model is saved and loaded", "fitting/model.py", "FittedModel"),
    (
        "predictions are combined under label noise, with the rate's interval",
        "audit/noise_model.py",
        "fit_noise_model",
    ),
    ("the transition matrices that a noise model considers are made", "audit/hypotheses.py", "fit_hypotheses"),
    ("losses are compared by paired intervals", "comparison/paired.py", "rank_paired"),
    ("the options of a verb are parsed", "cli/train.py", "train"),
    ("a usage error is worded", "io/console.py", "Commands"),
    ("a published number, a cell, is kept with its setting", "paper/published.py", "Cell"),
    ("a paper's cell is judged: does our result agree", "paper/agreement.py", "compare"),
    ("the page of an audit is written", "report/audit_page.py", "write_audit"),
    ("a file of others is opened", "io/files.py", "open_regular"),
)
"""What people look for, with its file and its function or class"""


def where_table() -> str:
    """A Markdown table of what is done where."""
    rows = []
    for what, file, name in WHERE:
        defined = f"`{name}`" if name else ""
        rows.append(f"| {what} | {_link(file)} | {defined} |")
    return "\n".join(["| where ... | file | function or class |", "|---|---|---|", *rows])


WALKS = (
    "loss jal-ce",
    "noiseproof train jal-ce --data table.csv --quiet --set epochs=2",
    "noiseproof audit table.csv --quiet",
)
"""What the page walks through: the words after ``tools/walk.py --short``"""


@functools.cache
def walks() -> tuple[str, ...]:
    """Each walk as ``tools/walk.py`` prints it, in processes of their own, so that nothing is prepared."""
    with tempfile.TemporaryDirectory() as folder:
        _write_table(Path(folder, "table.csv"))
        started = [_start(words, folder) for words in WALKS]
        return tuple(_finish(words, process) for words, process in zip(WALKS, started, strict=True))


def _finish(words: str, process: subprocess.Popen[str]) -> str:
    printed, errors = process.communicate()
    if process.returncode:
        raise RuntimeError(f"tools/walk.py {words} failed: {errors}")
    walk = printed.split(START_OF_WALK)[1].strip()
    summary = f"<summary><code>tools/walk.py --short {words}</code></summary>"
    return f'<details class="entry">\n{summary}\n\n```text\n{walk}\n```\n\n</details>\n'


START_OF_WALK = "walk:\n"
"""What separates the lines that a command prints from those of its walk"""


def _start(words: str, folder: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(ROOT / "tools" / "walk.py"), "--short", *words.split()]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _write_table(path: Path) -> None:
    """A table of four features and two classes, of which some labels are wrong."""
    lines = ["a,b,c,d,label"]
    for row in range(200):
        right = row % 2
        features = [((37 * row + 11 * column) % 101) / 100 + (right if column < 2 else 0) for column in range(4)]
        label = 1 - right if row % 9 == 0 else right
        lines.append(",".join([*(f"{value:.2f}" for value in features), ("no", "yes")[label]]))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
