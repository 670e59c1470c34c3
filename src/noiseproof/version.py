"""The version, in the one place that the package, its build and its records read."""

__version__ = "0.1.0"
