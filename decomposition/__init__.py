"""Analyses of why a global model is good: the factors of its loss, which add up, and others."""

import lazy_loader

from ..old_paths import names_of

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__getattr__ = names_of(__name__, __getattr__)
