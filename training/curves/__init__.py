"""Curves of runs over rounds, as measured in training."""

from ...moved import attributes_of

__getattr__ = attributes_of(__name__, "result")
