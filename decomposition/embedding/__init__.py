"""Models on a map: t-SNE and PCA of clients of any rounds and runs, from exact distances."""

from .divergence import divergence
from .grams import Gram, distances, gram, spreads
from .maps import embed, principal, settled_perplexity, t_sne, trustworthiness
from .points import Point
from .result import Embedding

__all__ = [
    "Embedding",
    "Gram",
    "Point",
    "distances",
    "divergence",
    "embed",
    "gram",
    "principal",
    "settled_perplexity",
    "spreads",
    "t_sne",
    "trustworthiness",
]
