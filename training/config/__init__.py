"""Configurations: sections, recipes, where they come from, and a scale."""

from typing import TYPE_CHECKING

from ...old_paths import attributes_of

if not TYPE_CHECKING:  # a checker is to see what is really there
    __getattr__ = attributes_of(__name__, "config")
