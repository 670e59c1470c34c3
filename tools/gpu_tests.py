"""The tests that need a GPU, in several processes at once, and what came of them as a line of a record.

    python tools/gpu_tests.py [--processes 12] [--minutes 5] [--journal FILE] [--record records/tests_h200.jsonl] [TESTS ...]

Most of their time is Triton's compiler, which has a core of its own in each process. An outcome is in the journal as soon as it
is known: when the time is up what is not finished is stopped, and a start with the same journal goes on with what is left, if
code and machine are the same. A process that a test has ended, and one whose device has failed, after which no test can pass in
it, leaves the others to new processes. The record has one line for the same tests, the latest. Without a GPU, or
where no test has passed, the status is that of a failure.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

ROOT = Path(__file__).parents[1]
TESTS = [
    *("tests/losses/test_cuda.py", "tests/kernels", "tests/losses/test_linear_cuda.py"),
    *("tests/train/test_graph.py", "tests/train/test_kernels.py"),
]
COUNTED = ("passed", "skipped", "failed")
LOST = 77  # what a process ends with whose device has failed
STOPPED = (-signal.SIGTERM, -signal.SIGHUP, -signal.SIGINT)  # by what ends all processes of a machine, not by a test
Outcomes = dict[str, dict[str, Any]]
"""By the test's name: its outcome, and what it said where it failed"""


def note(path: Path, line: dict[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:  # a line in one writing, so that processes do not mix theirs
        file.write(json.dumps(line) + "\n")


class Journal:
    """Writes down each test when it has ended, as a plugin of pytest."""

    def __init__(self, path: Path, code: str, on_gpu: bool) -> None:
        self.path, self.code, self.on_gpu, self.parent = path, code, on_gpu, os.getppid()
        self.reports: list[pytest.TestReport] = []

    def pytest_collection_finish(self) -> None:
        """Without the device that there was, tests would be skipped, or pass in Triton's interpreter."""
        if self.on_gpu:
            import torch  # here, as tests' settings must be in place first

            if not torch.cuda.is_available():
                pytest.exit("the device is gone", LOST)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.reports.append(report)
        if report.when != "teardown":
            return
        worst = next((report for report in self.reports if report.failed), None)
        skipped = any(report.skipped for report in self.reports)
        line = {
            "test": report.nodeid,
            "outcome": "failed" if worst else "skipped" if skipped else "passed",
            "seconds": round(sum(report.duration for report in self.reports), 2),
            "code": self.code,
            **({"said": worst.longreprtext[-2000:]} if worst else {}),
        }
        note(self.path, line)
        self.reports = []
        if worst and device_failed():
            pytest.exit(f"the device has failed in {report.nodeid}", LOST)
        if os.getppid() != self.parent:
            pytest.exit("nobody waits for this process", LOST)


def device_failed() -> bool:
    """Whether this process has lost the device: after an access outside of its memory, say, every call fails."""
    import torch

    if torch.cuda.is_initialized():
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            return True
    return False


class Names:
    """The tests that pytest finds."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.found = [item.nodeid for item in session.items]


def collected(tests: list[str]) -> list[str]:
    names, said = Names(), io.StringIO()
    with contextlib.redirect_stdout(said):
        code = pytest.main(["--collect-only", "-qq", "-m", "not slow", *tests], plugins=[names])
    if code != pytest.ExitCode.OK:
        raise SystemExit(f"{said.getvalue()}\npytest finds no tests to run in {' '.join(tests)}")
    return names.found


def digest() -> str:
    """Of the code and its tests, also where they are not committed."""
    found = hashlib.sha256()
    for path in sorted(path for folder in ("src", "tests") for path in (ROOT / folder).rglob("*.py")):
        found.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return found.hexdigest()[:12]


def outcomes(journal: Path, code: str) -> Outcomes:
    """What is known of the tests of this code."""
    lines = [parsed(line) for line in journal.read_text(encoding="utf-8").splitlines()] if journal.exists() else []
    return {line["test"]: line for line in lines if line.get("code") == code}


def parsed(line: str) -> dict[str, Any]:
    """A line of the journal; of one that was cut off, nothing, and its test runs again."""
    try:
        return dict(json.loads(line))
    except ValueError:
        return {}


def run(names: list[str], processes: int, seconds: float, journal: Path, code: str, words: list[str]) -> None:
    """All of them, until the time is up; those that a process has left in another, as long as that gets any further."""
    end, left, before = time.monotonic() + seconds, names, len(names) + 1
    while 0 < len(left) < before and time.monotonic() < end:
        before = len(left)
        run_once(left, processes, end, journal, code, words)
        done = outcomes(journal, code)
        left = [name for name in left if name not in done]


def run_once(names: list[str], processes: int, end: float, journal: Path, code: str, words: list[str]) -> None:
    """Share them out among processes, neighbours to different ones, and stop these when the time is up."""
    shares = [names[i::processes] for i in range(min(processes, len(names)))]
    command = [sys.executable, __file__, "--worker", code, "--journal", str(journal), *words]
    running = [subprocess.Popen([*command, *share], stdout=subprocess.DEVNULL) for share in shares]
    try:
        for process, share in zip(running, shares, strict=True):
            with contextlib.suppress(subprocess.TimeoutExpired):
                ended(process.wait(max(0.0, end - time.monotonic())), share, journal, code)
    finally:
        for process in running:
            process.kill()
            process.wait()


def ended(status: int, share: list[str], journal: Path, code: str) -> None:
    """A process has ended: what it was at when it did is a test that failed, if it was not pytest that ended it."""
    if status in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return
    print(f"a process ended with {status}, and tests of it are left", flush=True)
    done = outcomes(journal, code)
    at = next((name for name in share if name not in done), None)
    if at is not None and status not in (LOST, *STOPPED, *pytest.ExitCode):
        said = f"its process ended with {status}"
        note(journal, {"test": at, "outcome": "failed", "seconds": 0.0, "code": code, "said": said})


def recorded(path: Path, line: dict[str, Any]) -> None:
    """In the place of what the record has of the same tests, or behind the others."""
    from noiseproof.io.files import write_whole  # the workers import it when their tests' settings are in place

    lines = [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    lines = [other for other in lines if other["tests"] != line["tests"]] + [line]
    text = "".join(json.dumps(other) + "\n" for other in lines)
    write_whole(path, lambda place: place.write_text(text, encoding="utf-8"))


@contextlib.contextmanager
def until_stopped() -> Iterator[None]:
    """Ctrl-C and SIGTERM end what is inside, whose processes end with it; what came of it is still told."""

    def stop(number: int, frame: Any) -> NoReturn:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    with contextlib.suppress(KeyboardInterrupt):
        yield


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tests", nargs="*", help="files, folders or names of tests, as pytest takes them")
    parser.add_argument("--processes", type=int, default=12)
    parser.add_argument("--minutes", type=float, default=10.0, help="stop after that")
    parser.add_argument("--journal", type=Path, default=ROOT / ".pytest_cache" / "gpu_tests.jsonl")
    parser.add_argument("--record", type=Path, help="where to write a line with the numbers")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--on-gpu", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker is not None:
        journal = Journal(arguments.journal, arguments.worker, arguments.on_gpu)
        return pytest.main(["-q", "-p", "no:cacheprovider", *arguments.tests], plugins=[journal])

    import torch  # the workers import it when their tests' settings are in place

    from noiseproof.train.record import environment

    on_gpu = torch.cuda.is_available()
    facts = environment(torch.device("cuda" if on_gpu else "cpu"))
    code = f"{digest()}, {facts['machine']}, torch {facts['torch']}"
    tests = arguments.tests or TESTS
    names = collected(tests)
    arguments.journal.parent.mkdir(exist_ok=True, parents=True)
    if arguments.journal.exists() and not arguments.journal.read_bytes().endswith(b"\n"):
        with arguments.journal.open("a") as file:
            file.write("\n")  # a line that was cut off ends there
    before = set(names) & outcomes(arguments.journal, code).keys()
    print(f"{len(names)} tests, {len(before)} of them done; {code}", flush=True)
    start = time.monotonic()
    todo, words = [name for name in names if name not in before], ["--on-gpu"] if on_gpu else []
    with until_stopped():
        run(todo, arguments.processes, 60 * arguments.minutes, arguments.journal, code, words)
    found = {name: line for name, line in outcomes(arguments.journal, code).items() if name in set(names)}
    counts = Counter(line["outcome"] for line in found.values())
    numbers = {outcome: counts[outcome] for outcome in COUNTED} | {"left": len(names) - len(found)}
    for name, line in found.items():
        if line["outcome"] == "failed":
            print(f"\nFAILED {name}\n{line['said']}")
    print(", ".join(f"{count} {outcome}" for outcome, count in numbers.items()), f"in {time.monotonic() - start:.0f} s")
    if arguments.record is not None:
        seconds = round(sum(line["seconds"] for line in found.values()), 1)
        which = " ".join(tests) + ("" if on_gpu else " without a GPU")
        recorded(arguments.record, {"tests": which, **numbers, "seconds": seconds, "environment": facts})
    if not on_gpu:
        print("there is no GPU here: tests that need one were skipped")
    return 1 if numbers["failed"] or numbers["left"] or not numbers["passed"] or not on_gpu else 0


if __name__ == "__main__":
    sys.exit(main())
