"""Sphinx: `make docs` builds the pages of this folder into site/."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "src")]

from manual import catalogue, diagram, docstrings, mathematics, names, sources  # noqa: E402 - found above
from sphinx.application import Sphinx  # noqa: E402 - after the path
from sphinx.util.docutils import SphinxDirective  # noqa: E402 - after the path

from noiseproof import __version__  # noqa: E402 - after the path

project = "noiseproof"
author = "the authors of noiseproof"
version = release = __version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["_static"]
root_doc = "index"
highlight_language = "text"  # indented blocks are shell commands and their output
nitpicky = False

myst_enable_extensions = ["attrs_inline", "dollarmath", "colon_fence"]
myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid", "math"]

nb_execution_mode = "off"  # notebooks are committed with their outputs, and a test runs them
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

napoleon_numpy_docstring = False
napoleon_use_ivar = True  # fields of a dataclass are described once
napoleon_attr_annotations = False
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
autodoc_type_aliases = {name: name for name in ("ArrayLike", "Labels", "Noise", "Reduction", "Rule", "Weights")}
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
add_module_names = False

html_theme = "furo"
pygments_dark_style = "github-dark"  # the theme's own underlines what is imported, as if it were a link
html_title = f"noiseproof {__version__}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_copy_source = False
html_use_index = False  # there is the search
html_show_sourcelink = False
html_show_sphinx = False
html_show_copyright = False


class Mermaid(SphinxDirective):
    """A graph as GitHub shows it, drawn here instead of by a script from elsewhere."""

    has_content = True

    def run(self):
        from docutils import nodes

        svg = diagram.drawn("\n".join(self.content), "what imports what")
        return [nodes.raw("", svg, format="html")]


def read(app: Sphinx, name: str, content: list[str]) -> None:
    text = sources.with_code(content[0]) if name in sources.CODE_PAGES else content[0]
    text = sources.with_directives(sources.inside(text, name), name)
    if name.startswith("reference/losses/"):
        text = catalogue.with_curves(text)
    if name.startswith("reference/api/noiseproof"):
        text = names.with_docstrings(text, name.rpartition("/")[2])
    content[0] = text


def columns(app: Sphinx, kind: str, name: str, value: object, options: object, lines: list[str]) -> None:
    lines[:] = docstrings.with_definitions(lines)


def inherited(app: Sphinx, kind: str, name: str, value: object, skip: bool, options: object) -> bool | None:
    """scikit-learn gives every estimator methods whose docstrings link into its own pages."""
    return True if re.fullmatch(r"set_\w+_request", name) else None


def setup(app: Sphinx) -> None:
    mathematics.setup(app)
    app.add_directive("mermaid", Mermaid)
    app.connect("source-read", read)
    app.connect("autodoc-process-docstring", columns)
    app.connect("autodoc-skip-member", inherited)
