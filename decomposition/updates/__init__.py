"""How clients' updates of a round lie to each other: the same way, across, or against each other."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
