"""``noiseproof`` on the command line; also ``python -m noiseproof``."""

from __future__ import annotations

import io
import os
import signal
import sys
import warnings
from types import FrameType

from noiseproof.version import __version__

IMPORTING = "<frozen importlib._bootstrap>"
COMMAND = os.path.join("noiseproof", "io", "console.py"), "invoke"
"""The function in which a command runs, and a KeyboardInterrupt is seen to"""
INTERRUPTED = 130


def main() -> None:
    """Run the command line, or say what to install for it."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell's background jobs ignore it
        signal.signal(signal.SIGINT, handle_sigint)
    try:
        from noiseproof.cli import app
    except ModuleNotFoundError as missing:
        if missing.name not in {"typer", "rich"}:
            raise
        if sys.argv[1:] != ["--version"]:
            sys.exit(f"the command line needs {missing.name}: pip install '.[lab]' in noiseproof's repository")
        print(f"noiseproof {__version__}")
        sys.exit()
    for stream in (sys.stdout, sys.stderr):  # a pipe or a terminal may have an encoding without the letters of a name
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    warnings.showwarning = show_warning
    app(prog_name="noiseproof")


def show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """A warning of Python in one line, such as torch's where it cannot start the GPU, without the line of code that gave it."""
    from noiseproof.io.console import warn

    warn(" ".join(str(message).split()))


def handle_sigint(number: int, frame: FrameType | None) -> None:
    """Ctrl-C is a KeyboardInterrupt in a command. Before and after it, and within an import, the process ends.

    An extension module that is interrupted while it is imported, as torch is for a second, reports some other error, or none;
    and nobody would catch what is raised while commands are built or Python is about to end.
    """
    in_command = False
    while frame is not None:
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        if file == IMPORTING:
            in_command = False
            break
        in_command = in_command or (file.endswith(COMMAND[0]) and name == COMMAND[1])
        frame = frame.f_back
    if in_command:
        raise KeyboardInterrupt
    os.write(2, b"stopped\n")
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
