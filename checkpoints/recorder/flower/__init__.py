"""Recording of Flower's simulations and deployments."""

from ....moved import attributes_of

__getattr__ = attributes_of(__name__, "recording")
