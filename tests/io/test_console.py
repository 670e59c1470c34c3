"""What commands print: text as it is, and nothing that commands the terminal."""

import errno
import io
import os
import sys

import numpy as np
import pytest
import typer
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from noiseproof.__main__ import main
from noiseproof.audit.result import short_name
from noiseproof.io.console import Console, console, echo, errors_reported, fail, printable
from noiseproof.io.text import excerpt, without_controls

HOSTILE = "a\x1b[31m\x9b2J\x07\u202eb\udcff"
SHOWN = r"a\x1b[31m\x9b2J\x07\u202eb\udcff"


def printed(show, **options):
    file = io.StringIO()
    show(Console(file=file, width=100, **options))
    return file.getvalue()


def test_names_are_escaped_as_python_does_and_all_else_stays():
    assert printable(HOSTILE) == SHOWN
    assert printable("two\nlines\t\r\u2028") == r"two\nlines\t\r\u2028"
    assert without_controls("two\nlines\t\r\u2028", lines=True) == "two\nlines\t\\r\\u2028"
    fine = "ü ber [red]:cat:\\ 猫 a\u200db \U0001f408 é"
    assert printable(fine) == fine


ALIKE = (
    "a\nb",
    "a\\nb",
    "a\\\nb",
    "a\\\\nb",
    "a\x1bb",
    "a\\x1bb",
    "a\u202eb",
    "a\\u202eb",
    "a\\",
    "a\\\\",
    "C:\\data",
    "C:\\new",
)


def test_no_two_names_are_shown_alike():
    for show in (printable, excerpt, short_name):
        assert len(set(map(show, ALIKE))) == len(ALIKE)
    assert [without_controls(printable(name)) for name in ALIKE] == list(map(printable, ALIKE))  # as the console prints it


@pytest.mark.parametrize(
    "show",
    [
        lambda console: console.print(HOSTILE),
        lambda console: console.print(HOSTILE, markup=False, soft_wrap=True),
        lambda console: console.print(Text(HOSTILE, style="red")),
        lambda console: console.print(Table(HOSTILE, Text(HOSTILE).plain)),
        lambda console: console.print(f"[bold]{HOSTILE}[/]"),
        lambda console: console.rule(HOSTILE),
    ],
)
def test_no_control_code_is_printed_however_it_comes(show):
    text = printed(show)
    assert not {"\x1b", "\x9b", "\x07", "\u202e", "\udcff"} & set(text)
    assert "\\x1b" in text


def test_what_rich_itself_writes_to_a_terminal_stays():
    def show(console):
        console.print(Text("plain", style="red"))
        with Progress(console=console) as bars:
            bars.add_task(HOSTILE, total=2)

    text = printed(show, force_terminal=True, color_system="standard")
    assert "\x1b[31mplain\x1b[0m" in text
    assert "\x1b[?25l" in text  # a bar hides the cursor
    assert "\x9b" not in text
    assert r"a\x1b" in text


def test_codes_for_emojis_are_text():
    assert printed(lambda console: console.print("runs/:cat:.png", markup=False)) == "runs/:cat:.png\n"


def test_an_error_is_one_line_without_codes_or_markup(capsys):
    with pytest.raises(typer.Exit), errors_reported():
        raise ValueError(f"{HOSTILE}\n[red]x[/] :cat:\\")
    assert capsys.readouterr().err == f"error: {SHOWN}\\n[red]x[/] :cat:\\\n"
    with pytest.raises(typer.Exit):
        fail(ValueError())
    assert capsys.readouterr().err == "error: ValueError\n"


def test_an_error_of_the_file_system_begins_with_the_file(tmp_path, capsys):
    with pytest.raises(typer.Exit), errors_reported():
        (tmp_path / "none").read_bytes()
    assert capsys.readouterr().err == f"error: {tmp_path / 'none'}: No such file or directory\n"


def test_a_reader_that_has_enough_is_no_error(capsys):
    with pytest.raises(typer.Exit) as ended, errors_reported():
        raise BrokenPipeError(32, "Broken pipe")
    assert ended.value.exit_code == 141
    assert capsys.readouterr().err == ""


def test_results_keep_their_lines(capsys):
    echo(f"a\t1\n{HOSTILE}")
    assert capsys.readouterr().out == f"a\t1\n{SHOWN}\n"


class Stream(io.TextIOWrapper):
    """Standard output, into memory, or onto a disk that is full."""

    def __init__(self, *, full=False):
        super().__init__(io.BytesIO(), encoding="ascii")
        self.full = full

    def write(self, text):
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(text)


def ends(monkeypatch, stream, *arguments):
    monkeypatch.setattr(sys, "argv", ["noiseproof", *map(str, arguments)])
    monkeypatch.setattr(sys, "stdout", stream)
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code


def test_letters_that_a_stream_cannot_have_are_escaped(monkeypatch, tmp_path):
    np.savez(tmp_path / "dàta.npz", x=np.zeros((4, 2)), y=[0, 1, 0, 1])
    stream = Stream()
    assert ends(monkeypatch, stream, "data", "show", tmp_path / "dàta.npz") == 0
    stream.flush()
    assert stream.buffer.getvalue().startswith(rb"d\xe0ta: 2 classes")


def test_a_full_disk_that_is_printed_to_is_one_sentence(monkeypatch, capsys):
    with monkeypatch.context() as patch:
        assert ends(patch, Stream(full=True), "losses") == 2
    assert capsys.readouterr().err == "error: what is printed cannot be written: No space left on device\n"
    console.print("more")
    assert capsys.readouterr().out == "more\n"
