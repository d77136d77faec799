"""Methods: clients, servers, averages over rounds, and what they share."""

from ...moved import attributes_of

__getattr__ = attributes_of(__name__, "base")
