"""How a round's clients differ, parameter by parameter: dispersion, skewness and its test, streamed from disk."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
