"""Plug-ins: modules that register something by name when they are imported.

A plug-in is named by an entry point of the group ``noiseproof.plugins``, or is called ``plugin`` and lies in a folder of this
package. It may register data sets and augmentations (``data/registry.py``), networks (``models/base.py``), and readers of
further kinds of label files (``noise/files.py``) and weights (``models/weights.py``).
"""

from __future__ import annotations

import importlib
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

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
