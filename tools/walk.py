#!/usr/bin/env python3
"""Run a command and print the modules and functions of noiseproof that it calls, in order of first call.

    tools/walk.py noiseproof train jal-ce --data table.csv --set epochs=2
    tools/walk.py loss jal-ce
    tools/walk.py python -c "import noiseproof; noiseproof.list_losses()"
    tools/walk.py --files noiseproof audit table.csv
    tools/walk.py --short noiseproof audit table.csv

What is counted: functions that were called, each once, and the files that contain them.
- A verb of the command line is followed from its own function on, without the parsing of its options.
- ``loss NAME`` is followed through one forward and one backward pass on the CPU, after a first call that prepared both.
- ``python`` runs ``-c CODE`` or a script and is followed throughout.
- Module bodies, class bodies and whatever runs while a module is imported are left out.
- A comprehension or a lambda counts as the function that contains it.
- A change of module is a function whose predecessor, in order of first call, is in another file.
- Other threads are followed, other processes are not.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import runpy
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

SOURCE = Path(__file__).resolve().parent.parent / "src" / "noiseproof"
BATCH_SIZE, CLASSES = 64, 10
"""Shape of the logits of ``loss NAME``"""
INDENT_LIMIT = 12
SHORT_INDENT_LIMIT = 6
"""Deeper calls are not indented further."""
SHORT_FUNCTIONS = 3
"""How many functions of a file ``--short`` prints"""


@dataclasses.dataclass(frozen=True)
class Function:
    """A function on the way: its file below ``src/noiseproof``, its name, and how many of ours called each other above it."""

    file: str
    name: str
    depth: int


class Walk:
    """The functions of a source folder that were called while ``recording()``, in order of first call.

    Args:
        source: The folder whose files are followed.
        begins: Says of a frame whether recording begins with it, and lasts until it returns; None records at once.
    """

    def __init__(self, source: Path = SOURCE, begins: Callable[[FrameType], bool] | None = None) -> None:
        self.functions: list[Function] = []
        self._prefix = f"{source}/"
        self._begins = begins
        self._first: FrameType | None = None
        self._done: set[CodeType] = set()
        self._names: set[tuple[str, str]] = set()

    @property
    def files(self) -> list[str]:
        """The files, in order of first call."""
        return list(dict.fromkeys(function.file for function in self.functions))

    @property
    def changes(self) -> int:
        """How many functions are in another file than the one before them."""
        files = [function.file for function in self.functions]
        return sum(before != after for before, after in itertools.pairwise(files))

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Follow what is called meanwhile, in this thread and in those that it starts."""
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def _profile(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "return":
            if frame is self._first:
                self._first = None
                self._begins = _never
            return
        code = frame.f_code
        if event != "call" or code in self._done:
            return
        if not code.co_filename.startswith(self._prefix):
            self._done.add(code)
            return
        if self._begins is not None and self._first is None:
            if not self._begins(frame):
                return
            self._first = frame
        if (callers := self._callers(frame)) is not None:
            self._done.add(code)
            self._add(code, callers)

    def _callers(self, frame: FrameType) -> int | None:
        """How many functions of ours are above this one; None while a module or the body of a class is executed."""
        callers = -1
        above: FrameType | None = frame
        while above is not None:
            code = above.f_code
            if code.co_filename.startswith(self._prefix):
                if not code.co_flags & CODE_OF_A_FUNCTION:
                    return None
                callers += not code.co_name.startswith("<")
            if above is self._first:
                break
            above = above.f_back
        return max(callers, 0)

    def _add(self, code: CodeType, depth: int) -> None:
        file = code.co_filename.removeprefix(self._prefix)
        parts = code.co_qualname.replace(".<locals>", "").split(".")
        name = ".".join(part for part in parts if not part.startswith("<")) or parts[0]
        if (file, name) not in self._names:
            self._names.add((file, name))
            self.functions.append(Function(file, name, depth))


CODE_OF_A_FUNCTION = 2
"""``inspect.CO_NEWLOCALS``: code with local variables of its own, which module and class bodies lack"""


def _never(frame: FrameType) -> bool:
    return False


def _is_verb(frame: FrameType) -> bool:
    """Whether Typer calls a function of the command line's modules, other than the root that all verbs share."""
    above = frame.f_back
    path, caller = Path(frame.f_code.co_filename), Path(above.f_code.co_filename) if above is not None else Path()
    return caller.parts[-2:] == ("typer", "main.py") and path.parent.name == "cli" and path.name != "__init__.py"


def walk_verb(words: list[str], source: Path = SOURCE) -> Walk:
    """Walk through a verb of the command line, from its own function on.

    Args:
        words: The command after ``noiseproof``.
        source: The folder of the package.
    """
    walk = Walk(source, _is_verb)
    before, sys.argv = sys.argv, ["noiseproof", *words]
    try:
        from noiseproof.__main__ import main

        with walk.recording():
            main()
    except SystemExit as end:
        if end.code not in (None, 0):
            print(f"the command ended with {end.code!r}", file=sys.stderr)
    finally:
        sys.argv = before
    return walk


def walk_loss(name: str, source: Path = SOURCE) -> Walk:
    """Walk through a call of a loss and its backward pass, after a first call that prepared both.

    Args:
        name: Of the loss, as ``noiseproof.create_loss`` accepts it.
        source: The folder of the package.
    """
    import torch

    import noiseproof

    loss = noiseproof.create_loss(name)
    logits = torch.randn(BATCH_SIZE, CLASSES, generator=torch.Generator().manual_seed(0)).requires_grad_()
    target = torch.arange(BATCH_SIZE) % CLASSES
    walk = Walk(source)
    loss(logits, target).backward()
    with walk.recording():
        loss(logits, target).backward()
    return walk


def walk_python(words: list[str], source: Path = SOURCE) -> Walk:
    """Walk through a script, or through code after ``-c``.

    Args:
        words: What follows ``python``.
        source: The folder of the package.
    """
    walk = Walk(source)
    before, sys.argv = sys.argv, words[1:] if words[0] == "-c" else words
    try:
        with walk.recording():
            if words[0] == "-c":
                exec(compile(words[1], "<command>", "exec"), {"__name__": "__main__"})
            else:
                runpy.run_path(words[0], run_name="__main__")
    finally:
        sys.argv = before
    return walk


def grouped(walk: Walk) -> Iterator[tuple[str, int, list[str]]]:
    """Neighbours of one file together: the file, the depth of the first, the functions."""
    file = ""
    names: list[str] = []
    depth = 0
    for function in walk.functions:
        if function.file != file:
            if names:
                yield file, depth, names
            file, depth, names = function.file, function.depth, []
        names.append(function.name)
    if names:
        yield file, depth, names


def full_text(walk: Walk, width: int = 128) -> str:
    """A line for each change of module: the file, indented by depth, and the functions that are called there first."""
    lines = []
    for file, depth, names in grouped(walk):
        start = f"{'  ' * min(depth, INDENT_LIMIT)}{file}: "
        lines += textwrap.wrap(start + ", ".join(names), width, subsequent_indent=" " * len(start), drop_whitespace=False)
    return "\n".join([*(line.rstrip() for line in lines), counts(walk)])


def short_text(walk: Walk, width: int = 100) -> str:
    """A line for each file, in order of first call and indented by depth, with the first functions that are called in it."""
    names: dict[str, list[str]] = {}
    depths: dict[str, int] = {}
    for function in walk.functions:
        names.setdefault(function.file, []).append(function.name)
        depths.setdefault(function.file, function.depth)
    lines = []
    for file, called in names.items():
        line = f"{'  ' * min(depths[file], SHORT_INDENT_LIMIT)}{file}: {called[0]}"
        for name in called[1:SHORT_FUNCTIONS]:
            line = f"{line}, {name}" if len(f"{line}, {name}") <= width else line
        lines.append(line)
    return "\n".join([*lines, counts(walk)])


def counts(walk: Walk) -> str:
    """One line: files, functions, changes of module."""
    return f"{len(walk.files)} files, {len(walk.functions)} functions, {walk.changes} changes of module"


def main() -> None:
    """Parse the command line, walk, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--files", action="store_true", help="Print the counts and the list of files only.")
    parser.add_argument("--short", action="store_true", help="Print one line a file, with its first functions.")
    parser.add_argument("--source", type=Path, default=SOURCE, help="The package to follow; it must be the one imported.")
    parser.add_argument("command", choices=("noiseproof", "loss", "python"))
    parser.add_argument("words", nargs=argparse.REMAINDER, help="What follows the command.")
    given = parser.parse_args()
    source = given.source.resolve()
    sys.path.insert(0, str(source.parent))
    if given.command == "noiseproof":
        walk = walk_verb(given.words, source)
    elif not given.words:
        parser.error(f"{given.command} needs what to run")
    elif given.command == "loss":
        walk = walk_loss(given.words[0], source)
    else:
        walk = walk_python(given.words, source)
    if given.files:
        print("\n".join([counts(walk), *(f"  {file}" for file in walk.files)]))
    else:
        print("walk:", short_text(walk) if given.short else full_text(walk), sep="\n")


if __name__ == "__main__":
    main()
