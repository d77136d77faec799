"""Configurations: sections, recipes, where they come from, and a scale."""

from ...moved import attributes_of

__getattr__ = attributes_of(__name__, "config")
