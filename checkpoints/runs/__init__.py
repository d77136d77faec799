"""A stored run: its folder, ``run.json``, partition, identity and addresses."""

from ...moved import attributes_of

__getattr__ = attributes_of(__name__, "run")
