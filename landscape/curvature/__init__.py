"""How curved the loss is at a model: Hessian, worst and mean case of a ball, filter-normalised."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
