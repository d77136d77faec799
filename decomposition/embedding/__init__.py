"""Models on a map: t-SNE and PCA of clients of any rounds and runs, from exact distances."""

from .divergence import divergence
from .grams import Gram, distances, gram, spreads
from .maps import principal, settled_perplexity, t_sne, trustworthiness
from .points import Point
from .result import Embedding, embed
from .words import sentence

__all__ = [
    "Embedding",
    "Gram",
    "Point",
    "distances",
    "divergence",
    "embed",
    "gram",
    "principal",
    "sentence",
    "settled_perplexity",
    "spreads",
    "t_sne",
    "trustworthiness",
]
