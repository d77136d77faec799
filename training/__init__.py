"""Models in motion: data, partitions, architectures, methods, and the round loop that plays and records them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
