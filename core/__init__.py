"""fedscope: look inside a federated run, at its models, their losses and why averaging helps.

The public names are listed in `__init__.pyi`; each loads its part of the package, and torch, when first used.
"""

import lazy_loader

from . import old_paths

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ += ["__version__"]
__getattr__ = old_paths.names_of(__name__, __getattr__)
old_paths.install()
