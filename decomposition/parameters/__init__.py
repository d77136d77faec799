"""Single parameters over the clients of a round: densities, and a map of many of them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
