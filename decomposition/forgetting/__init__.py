"""What local training gains on a client's own data and loses on the others', by client and class."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
