"""TeX as MathML, which browsers show by themselves: no script, no network."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from docutils import nodes
from docutils.utils.math import latex2mathml

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.writers.html5 import HTML5Translator


def mathml(tex: str, *, block: bool = False) -> str:
    """The element for a formula; a ValueError names the formula that cannot be converted."""
    known = re.sub(r"\\[Bb]igg?[lr]?(?![a-z])", "", tex).replace(r"\dots", r"\ldots")  # MathML stretches brackets by itself
    known = re.sub(r"\\([dt]?frac)(\d)([\dA-Za-z])", r"\\\1{\2}{\3}", known)  # docutils reads \frac12 as 12 over what follows
    try:
        return str(latex2mathml.tex2mathml(known, as_block=block))
    except Exception as error:  # docutils' MathError, or whatever its parser stumbles over
        raise ValueError(f"no MathML can be made of {tex!r}: {error}") from error


def _inline(translator: HTML5Translator, node: nodes.math) -> None:
    translator.body.append(mathml(node.astext()))
    raise nodes.SkipNode


def _display(translator: HTML5Translator, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="math">{mathml(node.astext(), block=True)}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    app.add_html_math_renderer("mathml", inline_renderers=(_inline, None), block_renderers=(_display, None))
