"""Hostile files, read in child processes under limits of memory and time.

A module ``cases_<area>.py`` beside this one has ``CASES``, a list of :class:`Case`, and ``ATTEMPTS``, the readers by name.
``python -m hostile.harness`` (with ``tests`` on the path) runs all cases and prints how many were tried, refused and accepted.
"""

import contextlib
import faulthandler
import importlib
import json
import math
import os
import re
import reprlib
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from io import FileIO
from pathlib import Path
from typing import Any

ACCEPTED = None
"""What is expected of a file that is odd and yet fine."""
SECONDS, BYTES = 10, 2**30
"""What an attempt may take: processor time, and memory beyond what the process had before."""
BATCH = 20
"""Cases that share a fork, which takes longer than most of them."""
PATIENCE = 4
"""On a machine that has other work, an attempt may take so many times longer by the clock."""
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Case:
    """A file that ``make`` writes into an empty folder, and what must come of reading it."""

    name: str
    make: Callable[[Path], Path]
    attempt: Any
    """What reads it: a key of ``ATTEMPTS`` of the same module"""
    expected: Any
    """A regular expression for the error's text, or ``ACCEPTED``"""
    holds: Callable[[Any], bool] | None = None
    """Whether what was read is right, where it is accepted"""
    seconds: int = SECONDS
    table: int = 0
    """Bytes that what is read takes itself, beyond which the limit counts"""
    either: bool = False
    """Whether the file may be read as well: a flipped bit may be one of a number"""
    slow: bool = False


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended: accepted, refused, or one of the faults."""

    kind: str
    text: str = ""
    seconds: float = 0.0
    peak: int = 0
    """Bytes of resident memory, beyond those before"""

    @property
    def fine(self) -> bool:
        return self.kind in {"accepted", "refused"}


class RefusedError(ValueError):
    """A command ended with an error of its own."""


def command(*arguments: str | Path) -> str:
    """What ``noiseproof ARGUMENTS`` prints, run in this process; :class:`RefusedError` with its error if it has one."""
    from typer.testing import CliRunner

    from noiseproof.cli import app

    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    if result.exit_code:
        raise RefusedError(result.stderr.strip().removeprefix("error: "))
    return result.output


def cases(pattern: str = "cases_*.py") -> dict[str, Case]:
    """All cases, by their module and name; the key says all that a test needs."""
    found: dict[str, Case] = {}
    for path in sorted(HERE.glob(pattern)):
        module = importlib.import_module(f"tests.hostile.{path.stem}")
        for case in module.CASES:
            key = f"{path.stem.removeprefix('cases_')}-{case.name}"
            if key in found:
                raise ValueError(f"two cases are called {key}")
            if case.attempt not in module.ATTEMPTS:
                raise ValueError(f"{key}: no attempt {case.attempt!r}; there are {', '.join(module.ATTEMPTS)}")
            found[key] = replace(case, attempt=module.ATTEMPTS[case.attempt])
    return found


def run(some: Sequence[Case]) -> list[Outcome]:
    """The files are made here, and read one after the other in a fork of this process that has the limits.

    One that does not end well is read again in a fork of its own: a fault is never that of the case before.
    """
    folder = Path(tempfile.mkdtemp(prefix="hostile-"))
    try:
        made = []
        for k, case in enumerate(some):
            (folder / str(k)).mkdir()
            made.append((case, case.make(folder / str(k))))
        outcomes = _forked(made)
        if len(some) == 1:
            return outcomes
        return [outcome if outcome.fine else run([case])[0] for case, outcome in zip(some, outcomes, strict=True)]
    except Exception:
        unmade = Outcome("unmade", traceback.format_exc())
        return [unmade] if len(some) == 1 else [run([case])[0] for case in some]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _judged(case: Case, path: Path) -> tuple[str, str]:
    try:
        result = case.attempt(path)
    except Exception as error:
        if _out_of_memory(error):
            return "memory", f"asked for more than the limit: {type(error).__name__}: {error}"
        if not isinstance(error, (ValueError, OSError)) or isinstance(error, UnicodeError):
            return "trace", traceback.format_exc()
        return _judged_message(case, path, str(error), isinstance(error, RefusedError))
    if case.expected is not ACCEPTED and not case.either:
        return "accepted wrongly", reprlib.repr(result)
    if case.holds is not None and not case.holds(result):
        return "read wrongly", reprlib.repr(result)
    return "accepted", ""


def _judged_message(case: Case, path: Path, text: str, printed: bool) -> tuple[str, str]:
    name = path.name.encode("unicode_escape").decode()
    if not printed:  # a reader's error has the name as it is, which a command must not print
        text = text.replace(path.name, name)
    if case.expected is ACCEPTED:
        return "refused wrongly", text
    if not text.isprintable() or len(text) > 1000:
        return "not one line", text[:4000].encode("unicode_escape").decode()
    if name not in text:
        return "file not named", f"{name!r} is not in: {text}"
    if not re.search(case.expected, text):
        return "wrong message", f"{case.expected!r} is not in: {text}"
    return "refused", text


def _out_of_memory(error: BaseException | None) -> bool:
    """Also where a reader turned it into an error of its own, which says nothing on a larger machine."""
    return error is not None and (
        isinstance(error, MemoryError) or "allocate" in str(error) or _out_of_memory(error.__cause__ or error.__context__)
    )


def _forked(made: Sequence[tuple[Case, Path]]) -> list[Outcome]:
    """The outcomes of the cases, and after one that ends the child, that of all that are left."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _work(made, writing)
    os.close(writing)
    outcomes, late = [], False
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        said = b""
        for case, _ in made:
            line, said, late = _line(pipe, said, time.perf_counter() + PATIENCE * case.seconds)
            if not line:
                break
            outcomes.append(Outcome(**json.loads(line)))
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if late or code == -signal.SIGXCPU:
        end = Outcome("hang", "no end in the time it has")
    else:
        end = Outcome("crash", signal.Signals(-code).name if code < 0 else f"status {code}")
    return outcomes + [end] * (len(made) - len(outcomes))


def _line(pipe: FileIO, said: bytes, until: float) -> tuple[bytes, bytes, bool]:
    """The next line that a child says, what follows it, and whether the time was up before."""
    while b"\n" not in said:
        left = until - time.perf_counter()
        if left <= 0 or not select.select([pipe], [], [], left)[0]:
            return b"", said, True
        piece = pipe.read(2**16)
        if not piece:
            return b"", said, False
        said += piece
    line, _, said = said.partition(b"\n")
    return line, said, False


def _work(made: Sequence[tuple[Case, Path]], writing: int) -> None:
    """The life of a child: nothing of it may return to the parent's code."""
    try:
        os.setsid()
        faulthandler.disable()
        quiet = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(quiet, stream)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "CUDA initialization")  # the driver's addresses alone are beyond the limit of them
        with open(writing, "w", encoding="ascii") as pipe:
            for case, path in made:
                print(json.dumps(asdict(_limited(case, path))), file=pipe, flush=True)
    finally:
        os._exit(0)


def _limited(case: Case, path: Path) -> Outcome:
    """What comes of a case in this process, with the limits set anew."""
    size, resident = (int(pages) * resource.getpagesize() for pages in Path("/proc/self/statm").read_text().split()[:2])
    spent = time.process_time()
    for limit, value in (
        (resource.RLIMIT_AS, size + BYTES + case.table),
        (resource.RLIMIT_CPU, math.ceil(spent + case.seconds)),
    ):
        resource.setrlimit(limit, (value, resource.RLIM_INFINITY))
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
    try:
        kind, text = _judged(case, path)
    except BaseException:
        kind, text = "trace", traceback.format_exc()
    peak = max(0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - resident)
    if peak > BYTES + case.table:
        kind, text = "memory", f"a peak of {peak / 2**20:.0f} MiB; {kind}: {text}"
    return Outcome(kind, text, time.process_time() - spent, peak)


class Bench:
    """A process that has torch and the package imported and forks for each case; the test's own process has threads."""

    def __enter__(self) -> "Bench":
        environment = os.environ | {"OMP_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}
        paths = [str(HERE.parents[1]), str(HERE.parents[1] / "src"), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        arguments = [sys.executable, "-m", "tests.hostile.harness", "serve"]
        self.process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        return self

    def __exit__(self, *error: object) -> None:
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        self.process.wait(30)

    def run(self, key: str) -> Outcome:
        if self.process.stdin is None or self.process.stdout is None:
            raise RuntimeError("the bench has no pipes")
        print(key, file=self.process.stdin, flush=True)
        return Outcome(**json.loads(self.process.stdout.readline()))


def import_once() -> None:
    """What all that are forked need."""
    import pandas  # noqa: F401 # as are those of tables
    import pyarrow.csv
    import pyarrow.feather
    import pyarrow.json
    import pyarrow.parquet  # noqa: F401 # likewise
    import torch._dynamo  # noqa: F401 # a run needs it; imported once, here, for all that are forked

    import noiseproof.cli
    import noiseproof.data
    import noiseproof.train  # noqa: F401 # likewise


def _outcomes(keys: Iterator[str]) -> Iterator[tuple[str, Outcome]]:
    import_once()
    real, faults = cases(), cases("faults.py")
    order, found = list(real), {}
    for key in keys:
        if key not in found:
            batch = [key] if key in faults else order[order.index(key) :][:BATCH]
            found.update(zip(batch, run([(real | faults)[one] for one in batch]), strict=True))
        yield key, found[key]


def main() -> None:
    if sys.argv[1:] == ["serve"]:
        for _, outcome in _outcomes(line.strip() for line in sys.stdin):
            print(json.dumps(asdict(outcome)), flush=True)
        return
    kinds: dict[str, Counter[str]] = {}
    slowest = largest = Outcome("accepted")
    for key, outcome in _outcomes(key for key in cases() if all(part in key for part in sys.argv[1:])):
        kinds.setdefault(key.split("-")[0], Counter())[outcome.kind if outcome.fine else "FAULT"] += 1
        slowest, largest = max(slowest, outcome, key=lambda o: o.seconds), max(largest, outcome, key=lambda o: o.peak)
        if not outcome.fine:
            print(f"{key}: {outcome.kind}: {outcome.text}")
        elif sys.argv[1:]:
            print(f"{key}: {outcome.kind} ({outcome.seconds:.2f} s, {outcome.peak / 2**20:.0f} MiB) {outcome.text}")
    print("| area | tried | refused | accepted rightly | faults |\n|---|---|---|---|---|")
    for area, counts in [*kinds.items(), ("all", sum(kinds.values(), Counter()))]:
        print(f"| {area} | {counts.total()} | {counts['refused']} | {counts['accepted']} | {counts['FAULT']} |")
    print(f"slowest {slowest.seconds:.2f} s, largest peak {largest.peak / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
