"""Models on a map: t-SNE and PCA of clients of any rounds and runs, from exact distances."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
