"""Settings by name: the registry, dataclasses of hyper-parameters, values as text."""

from ...moved import attributes_of

__getattr__ = attributes_of(__name__, "settings")
