"""Code of others: plug-ins, modules that register something by name, and losses and networks named ``module:Name``.

A plug-in is named by an entry point of the group ``noiseproof.plugins``, or is called ``plugin`` and lies in a folder of this
package. It may register data sets and augmentations (``data/registry.py``), networks (``models/base.py``), and readers of
further kinds of label files (``noise/files.py``) and weights (``models/weights.py``).
"""

from __future__ import annotations

import importlib
import sys
import traceback
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

GROUP = "noiseproof.plugins"


@cache
def load_plugins() -> None:
    """Import all plug-ins, once: called when a name is looked up that is not known otherwise.

    One that is not there adds no names.

    >>> load_plugins()
    """
    package = __name__.partition(".")[0]
    own = sorted(f"{package}.{path.parent.name}.plugin" for path in Path(__file__).parent.glob("*/plugin.py"))
    named = [point.module for point in entry_points(group=GROUP)]
    for module in dict.fromkeys([*own, *named]):
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module}.".startswith(f"{error.name}."):
                raise  # the plug-in is there, and lacks something else


def named_object(text: str, what: str, rule: str) -> Any:
    """Import what ``module:Name`` names.

    Args:
        text: The name.
        what: What it is, for errors: "loss" or "model".
        rule: How it must be written.

    Returns:
        The object.

    Raises:
        ValueError: If it is written otherwise, the module cannot be imported, or has no such name.

    >>> named_object("math:pi", "number", "a number is module:Name")
    3.141592653589793
    """
    module_name, _, name = text.partition(":")
    if not module_name or not name or module_name.startswith("."):
        raise ValueError(f"{rule}, got {text!r}")
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # whatever the module does when it is imported
        kind = "" if isinstance(error, ImportError) else f"{type(error).__name__}: "
        way = "; it must be on the Python path" if isinstance(error, ModuleNotFoundError) else place_in(error, module_name)
        raise ValueError(f"{what} {text!r}: cannot import {module_name}: {kind}{' '.join(str(error).split())}{way}") from error
    if not hasattr(module, name):
        raise ValueError(f"{what} {text!r}: {module_name} has no {name!r}")
    return getattr(module, name)


def place_in(error: BaseException, module_name: str) -> str:
    """Where in a module's own code, the last place of it that an error came through; a SyntaxError says it by itself."""
    file = getattr(sys.modules.get(module_name), "__file__", None)  # one that failed to be imported is known by its name
    ending = module_name.rpartition(".")[2] + ".py"
    frames = traceback.extract_tb(error.__traceback__)
    places = [frame for frame in frames if (frame.filename == file if file else Path(frame.filename).name == ending)]
    return f" ({Path(places[-1].filename).name}, line {places[-1].lineno})" if places else ""
