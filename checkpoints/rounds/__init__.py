"""A stored round: its metadata, models, columns, metrics and sketches; reading, writing, verifying."""

from ...moved import attributes_of

__getattr__ = attributes_of(__name__, "round")
