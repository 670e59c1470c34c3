"""``noiseproof`` on the command line; also ``python -m noiseproof``."""

import sys


def main() -> None:
    """Run the command line, or say what to install for it."""
    try:
        from noiseproof.cli import app
    except ModuleNotFoundError as missing:
        if missing.name in {"typer", "rich"}:
            sys.exit(f"the command line needs {missing.name}: pip install 'noiseproof[lab]'")
        raise
    app(prog_name="noiseproof")


if __name__ == "__main__":
    main()
