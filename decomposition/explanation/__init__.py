"""What a decomposition says in sentences: which factor dominates in which phase, and where the data do not decide."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
