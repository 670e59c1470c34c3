"""What the documentation's pages are made of, as functions from data to text; docs/conf.py makes a Sphinx extension of it.

catalogue      a section for each loss, from the catalogue and the docstrings, whose examples are run
command_line   every verb with its arguments, options and defaults
curves         a loss and its gradient by the label's probability, as SVG
diagram        a Mermaid graph as SVG, without a browser
docstrings     lists in two columns as definitions
formulas       the catalogue's expressions as TeX
mathematics    TeX as MathML, without a script
names          the public names by package
sources        links out of the folder of pages, and the tests that a page links to
"""
