"""Lemma 1 and Theorem 2 of Zhou et al. on a recorded run: how far averaging weights is from averaging outputs, and
whether the discrepancy between data sets predicts the variance of a client."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
