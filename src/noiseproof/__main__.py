"""``noiseproof`` on the command line; also ``python -m noiseproof``."""

import gc
import io
import sys

from noiseproof.starting import ctrl_c_ends_a_command
from noiseproof.version import __version__


def main() -> None:
    """Run the command line, or say what to install for it."""
    gc.disable()  # what is imported stays: collecting garbage meanwhile and at the end costs a fifth of a short command's time
    try:
        with ctrl_c_ends_a_command():
            from noiseproof.cli import app
    except ModuleNotFoundError as missing:
        if missing.name in {"typer", "rich"}:
            if sys.argv[1:] == ["--version"]:
                print(f"noiseproof {__version__}")
                sys.exit()
            sys.exit(f"the command line needs {missing.name}: pip install '.[lab]' in noiseproof's repository")
        raise
    gc.freeze()
    gc.enable()
    for stream in (sys.stdout, sys.stderr):  # a pipe or a terminal may have an encoding without the letters of a name
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    app(prog_name="noiseproof")


if __name__ == "__main__":
    main()
