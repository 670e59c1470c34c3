"""Sends Ctrl-C to commands at random moments: ``python ctrl_c.py FOLDER COUNT SEED``.

It prints a JSON object for each: the verb, after how many seconds, the exit status, what was said and what was left running.
A command that ended before is tried again, sooner.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.helpers import verbs

VERBS = ("train", "audit", "audit-networks", "fit", "compare", "reproduce")
LAST = 5.0
"""Seconds after the first import"""
START = """
import signal, sys
from noiseproof.__main__ import handle_sigint
signal.signal(signal.SIGINT, handle_sigint)
print("begun", flush=True)
from tests.helpers import verbs
sys.exit(verbs.call(sys.argv[2:], sys.argv[1], 10**6))
"""


def processes_of(session):
    """The numbers and command lines of the processes of a session that are running."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, own = (place / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(own) == session and state != "Z":
                found[int(place.name)] = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[-200:]
        except OSError:
            continue
    return found


def left_after(session, seconds=2.0):
    """What is still running of a session after so many seconds at most."""
    end = time.monotonic() + seconds
    while (found := processes_of(session)) and time.monotonic() < end:
        time.sleep(0.02)
    return list(found.values())


def interrupted(name, words, place, folder, seconds):
    """The outcome of a command that gets Ctrl-C, as a terminal sends it, to all its processes; None if it had ended."""
    source = Path(__file__).resolve().parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", START, str(place), *verbs.prepare(words, folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=place,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(source / "src"), str(source)]), "OMP_NUM_THREADS": "1"},
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout.readline() == "begun\n"
    time.sleep(seconds)
    if process.poll() is not None:
        process.communicate()
        return None
    os.killpg(process.pid, signal.SIGINT)
    try:
        stdout, stderr = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return {"verb": name, "after": seconds, "status": None, "said": "hangs", "left": []}
    return {
        "verb": name, "after": round(seconds, 3), "status": process.returncode, "said": stderr, "printed": stdout[-300:],
        "left": left_after(process.pid),
    }  # fmt: skip


def is_right(found):
    """Whether a command said one line, and ended with the status of Ctrl-C and without leaving anything behind."""
    lines = found["said"].splitlines()
    return found["status"] == 130 and len(lines) == 1 and lines[0].startswith("stopped") and not found["left"]


def main():
    place, count, chance = Path(sys.argv[1]), int(sys.argv[2]), random.Random(int(sys.argv[3]))
    words = verbs.make_data(place, 10**6, rows=4000)
    for number in range(count):
        name, found, last = VERBS[number % len(VERBS)], None, LAST
        while found is None:
            seconds = chance.uniform(0, last)
            found = interrupted(name, words[name], place, place / f"out{number}", seconds)
            last *= 0.8
        print(json.dumps({**found, "right": is_right(found)}), flush=True)


if __name__ == "__main__":
    main()
