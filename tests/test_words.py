"""The words of the package: retired ones are gone, names of classes are unique, names of constants say what they hold."""

import ast
import collections
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "noiseproof"
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]
TEXTS = {str(path.relative_to(ROOT)): path for path in (*sorted(SOURCE.rglob("*.py*")), *PAGES) if path.suffix != ".pyc"}

RETIRED = {
    # identifiers of the losses and their passes
    r"onlookers?": "dispatch_state",
    r"is_watched": "has_dispatch_mode",
    r"can_look": "is_eager_cpu",
    r"room_sum": "clipped_focal_sum",
    r"log_miss": "log1m_p_target",
    r"hit": "p_target",
    r"miss": "1 - p_target",
    r"slopes": "grads",
    r"Primitives?|primitives?": "Statistic, statistics",
    r"request_of|row_request": "needs",
    r"one_step|in_one_step": "fused",
    r"in_graph": "compile_support",
    r"held_row|held_blocks|held_plain": "single_pass",
    # the trainer
    r"twin|twins": "shared_output",
    r"tally": "metrics",
    r"stem_kernels|lean": "first_conv, packed_weights",
    r"settled|is_open": "resolve_auto, has_auto",
    r"Task": "TrainingData",
    r"class Feed|in_order": "BatchLoader, eval_batches",
    r"class Parts|class Steps": "EngineInputs, EpochMetrics",
    r"Observer|observers?": "Callback",
    r"test_share|test-share": "test_size",
    r"one_scale": "global_scaling",
    r"side[ _]by[ _]side": "concurrent",
    # the audit
    r"evened|repeated_to": "oversample, target_count",
    r"led[ _]by[ _]doubt|slipped": "ambiguous (instance-dependent), class-conditional",
    r"sharpened|mutual": "temperature_scaled, model_agreement",
    r"concluded|Conclusion": "estimate_noise, NoiseEstimate",
    # data, files and messages
    r"Squash|Cover|RandomPart": "Resize, ResizeCrop, RandomResizedCrop",
    r"check_promise": "check_size",
    r"data_doubts|doubts": "data_warnings",
    r"said_of_\w+": "describe_*",
    r"_in_a_sentence|ctrl_c_ends_a_command": "format_usage_error, handle_sigint",
    r"L1 decay|recommended_decay": "L1 regularisation",
    # prose
    r"rooms?": "module, package, memory",
    r"house": "package",
    r"told apart|tells? apart": "distinguished",
    r"is said|are said": "is reported",
    r"goes on after|truly of it|else called|rare beside|stood": "the plain word",
    r"rare class(es)?": "class imbalance, minority class",
}
"""Each as a regular expression that matches whole words, with what replaces it"""
ALLOWED: dict[tuple[str, str], str] = {
    ("src/noiseproof/paper/agreement.py", r"miss"): "the verb",
    ("src/noiseproof/losses/fused.py", r"in_graph"): "torch's own allow_in_graph",
    ("docs/benchmarks/speed.md", r"Primitives?|primitives?"): "records that were written under the old name",
    ("src/noiseproof/train/recipe.py", r"one_scale"): "a field of older records",
    ("src/noiseproof/train/recipe.py", r"test_share|test-share"): "a field of older records",
    ("src/noiseproof/train/preprocessing.py", r"Squash|Cover|RandomPart"): "names in older records",
}
"""Files that may have a word, and why: a reader of records that were written under the old name, or an option's alias"""


def occurrences(word):
    """Each line of the source and the pages with this word, as ``file:line: text``."""
    pattern = re.compile(rf"(?<![A-Za-z])(?:{word})(?![A-Za-z])")
    for name, path in TEXTS.items():
        if (name, word) in ALLOWED:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if pattern.search(line):
                yield f"{name}:{number}: {line.strip()}"


@pytest.mark.parametrize("word", RETIRED)
def test_a_retired_word_is_gone_from_source_and_pages(word):
    found = list(occurrences(word))
    assert not found, f"use {RETIRED[word]}:\n" + "\n".join(found)


def test_what_is_allowed_is_there():
    for name, word in ALLOWED:
        assert re.search(rf"(?<![A-Za-z])(?:{word})(?![A-Za-z])", TEXTS[name].read_text(encoding="utf-8")), (name, word)


def trees():
    """The syntax tree of each file of the package."""
    for path in sorted(SOURCE.rglob("*.py")):
        yield path.relative_to(SOURCE), ast.parse(path.read_text(encoding="utf-8"))


def test_no_two_public_classes_have_the_same_name():
    places = collections.defaultdict(list)
    for path, tree in trees():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path))
    several = {name: files for name, files in places.items() if len(files) > 1}
    assert not several


VAGUE = """
ALL ANY BIG CERTAIN CLOSE EACH EMPTY ENOUGH EVERY EXTRA FACE FEW FEWEST FIRST FOUND GIVEN HERE KEPT KNOWN LARGE LARGEST LAST
LEAST LONG LONGER LONGEST LOWEST MANY MOST NAMED NEAR NONE NOTHING NUMBER ONCE ONE OTHER OWN PIECE ROWS SAID SAME SHORT SHORTER
SHOWN SIMPLE SMALL SOME SURE TAKES THIN TINY TRIES TWICE USUAL WHOLE
"""


def test_constants_of_a_module_say_what_they_hold():
    found = []
    for path, tree in trees():
        for node in tree.body:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
            names = [one for target in targets for one in (target.elts if isinstance(target, ast.Tuple) else [target])]
            found += [f"{path}: {name.id}" for name in names if isinstance(name, ast.Name) and name.id in VAGUE.split()]
    assert not found
