"""Models on a map: a result that saves, loads and draws itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...checkpoints import FedscopeError
from .grams import Gram, distinct, spreads, subset
from .maps import Method, known_method, principal, settled_perplexity, t_sne, trustworthiness
from .points import Point
from .products import Array
from .tables import read_tables, write_tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Embedding:
    """Client models, and the server's of the same rounds, in two dimensions.

    Attributes:
        points: which models they are.
        places: x and y of each [n, 2]; with ``pca`` L2 distances, with ``tsne`` without a unit.
        method: ``tsne`` or ``pca``.
        trustworthiness: of the ``neighbours`` nearest models on the map, 1 where they are so in truth; models that
            equal another one are left out.
        spreads: (run, round, mean L2 distance of the round's clients to their mean), from the distances themselves.
        explained: shares of the variance along x and y; None with ``tsne``.
        perplexity, kl_divergence: of t-SNE, and what is left of what it minimises (nats); None with ``pca``.
        attrs: provenance: runs, rounds, layers, seed, device, versions.
    """

    points: tuple[Point, ...]
    places: Array
    method: Method
    trustworthiness: float
    neighbours: int
    spreads: tuple[tuple[str, int, float], ...]
    explained: tuple[float, float] | None = None
    perplexity: float | None = None
    kl_divergence: float | None = None
    attrs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def runs(self) -> tuple[str, ...]:
        """The runs' names, in the order they were given."""
        return tuple(dict.fromkeys(point.run for point in self.points))

    @property
    def rounds(self) -> tuple[int, ...]:
        """The rounds that are shown, of all runs, ascending."""
        return tuple(sorted({point.round for point in self.points}))

    def of(self, run: str, which: str | None = None) -> tuple[Array, tuple[Point, ...]]:
        """The places [m, 2] of a run's clients, or of its ``global`` or ``averaged`` over rounds, and who they are."""
        at = [
            i
            for i, point in enumerate(self.points)
            if point.run == run and (point.is_client if which is None else point.which == which)
        ]
        return self.places[at], tuple(self.points[i] for i in at)

    def save(self, base: Path | str) -> list[Path]:
        """Write BASE.embedding.csv (``run, round, which, x, y``) and BASE.embedding.json; returns their paths."""
        return write_tables(self, Path(base))

    @classmethod
    def load(cls, base: Path | str) -> Embedding:
        """The inverse of :meth:`save`.

        Raises:
            FedscopeError: a file is missing or is no such result.
        """
        return read_tables(Path(base))

    def figure(self, width: float = 3.5, title: str | None = None) -> Figure:
        """A panel a run on common axes, colours over rounds; ``width`` in inches."""
        from .figure import draw_embedding

        return draw_embedding(self, width, title)

    def page(self, title: str | None = None) -> str:
        """The same as a web page that tells round, client and its classes, and picks rounds out."""
        from .page import draw_page

        return draw_page(self, title)


def embed(
    gram: Gram,
    method: str = "tsne",
    *,
    perplexity: float | None = None,
    seed: int = 0,
    provenance: Mapping[str, Any] | None = None,
) -> Embedding:
    """Models on a map whose distances are, as far as two dimensions allow, those of the Gram matrix.

    ``pca``: the two directions in which the models differ most, in their L2 distance; ``tsne``: near models near each
    other, whatever becomes of far ones. Models that equal each other are one point to t-SNE.

    Args:
        perplexity: of t-SNE; by default the lesser of 30 and a third of the models.
        seed: of t-SNE, see :func:`~fedscope.decomposition.embedding.t_sne`.
        provenance: goes into ``attrs``.

    Raises:
        FedscopeError: fewer than three different models; a perplexity that is not less than their number; an unknown
            method.
    """
    known = known_method(method)
    refuse_few(gram.points)
    first = distinct(gram)
    kept = np.unique(first)
    if len(kept) == 1:
        raise FedscopeError(
            f"all {len(first)} models are the same in what is compared: every distance is 0, so there is nothing to "
            "map; ask for later rounds, or other layers"
        )
    refuse_few(tuple(gram.points[i] for i in kept), different=True)
    apart = subset(gram, kept)
    found: dict[str, Any] = {}
    if known == "pca":
        places, found["explained"] = principal(gram)
    else:
        found["perplexity"] = settled_perplexity(len(kept), perplexity)
        own, found["kl_divergence"] = t_sne(apart, found["perplexity"], seed)
        places = own[np.searchsorted(kept, first)]
    trusted, neighbours = trustworthiness(apart, places[kept])
    said = {"layers": list(gram.layers), "seed": seed, **dict(provenance or {})}
    return Embedding(gram.points, places, known, trusted, neighbours, spreads(gram), **found, attrs=said)


def refuse_few(points: tuple[Point, ...], *, different: bool = False) -> None:
    """Refuse what is no map.

    Raises:
        FedscopeError: fewer than three models.
    """
    if len(points) < 3:
        names = ", ".join(point.label for point in points)
        raise FedscopeError(
            f"a map needs three {'different ' if different else ''}models at least, not {len(points)} ({names}); ask "
            "for more rounds"
        )
