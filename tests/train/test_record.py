"""What a record says of the code it was made with."""

import subprocess
from pathlib import Path

from noiseproof.io.text import duration
from noiseproof.train.record import Record, _commit

GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")


def test_the_commit_is_that_of_the_repository_the_code_is_part_of(tmp_path):
    own, installed = tmp_path / "own.py", tmp_path / ".venv" / "installed.py"
    installed.parent.mkdir()
    for path in (own, installed):
        path.write_text("")
    (tmp_path / ".gitignore").write_text(".venv\n")
    assert _commit(own) is None
    for words in (("init", "-q"), ("add", "own.py", ".gitignore"), ("commit", "-q", "-m", "own: begin")):
        subprocess.run([*GIT, "-C", str(tmp_path), *words], check=True)
    head = subprocess.run([*GIT, "-C", str(tmp_path), "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    assert head.startswith(_commit(own))
    own.write_text("changed")
    assert _commit(own).endswith("-dirty")
    assert _commit(installed) is None  # in a user's repository, but none of it
    assert _commit(Path("/nowhere/at/all.py")) is None


def test_a_run_that_is_shown_again_took_as_long_as_it_was_said_to_have_taken():
    """A record keeps milliseconds, and 0.0 s and 0.1 s are on two sides of one that is rounded."""
    record = Record(recipe={}, task={}, environment={}, seconds={"train": 0.04996})
    again = Record(recipe={}, task={}, environment={}, seconds=record.as_dict()["seconds"])
    assert [duration(seconds) for seconds in record.phases().values()] == ["0.1 s"]
    assert record.phases() == again.phases()
