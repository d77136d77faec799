"""How nodes mix their models between rounds: a matrix that was given, or that the next round's starts tell.

Node i's next start is s_i = Σ_j W_ij w_j, with the models w_j [P] after local training and rows of W that sum to 1. So
s_i − w̄ = Σ_j W_ij (w_j − w̄), with w̄ the mean of all C nodes, and W is known as far as the C rows w_j − w̄ tell one
from another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

#: an identified weight that rounding may change by more than this is not said
CERTAIN = 0.01
#: of the clients' differences, what is smaller than this share of the largest is not told from 0 in their products
RANK = 1e-6


@dataclass(frozen=True, eq=False)
class Moments:
    """Inner products of a round's models and its nodes' next starts, about the clients' mean w̄, float64.

    Attributes:
        clients: [C, C], (w_i − w̄)·(w_j − w̄).
        across: [S, C], (s_i − w̄)·(w_j − w̄), with the next starts s.
        starts: [S], ‖s_i − w̄‖².
        size: Σ ‖s_i‖² / S, for the rounding of the starts.
        parameters: P.
        eps: of the starts' type: what rounding changes in a number of size 1.
    """

    clients: np.ndarray
    across: np.ndarray
    starts: np.ndarray
    size: float
    parameters: int
    eps: float = 2.0**-23


@dataclass(frozen=True, eq=False)
class Mixing:
    """A mixing matrix and how well it explains the next starts.

    Attributes:
        source: ``given``, ``identified`` or ``unknown``.
        matrix: [S, C], a row a next start, sum 1; None where it is not known.
        residual: √(Σ_i ‖s_i − Σ_j W_ij w_j‖² / S) / √(Σ_j ‖w_j − w̄‖² / C), what the matrix leaves unexplained as a
            share of the distance before mixing; None where there are no next starts.
        uncertainty: by how much rounding may change an identified weight; None of others.
        why: a clause, where the matrix is not known.
    """

    source: Literal["given", "identified", "unknown"]
    matrix: np.ndarray | None
    residual: float | None
    uncertainty: float | None = None
    why: str = ""

    @property
    def contraction(self) -> float | None:
        """√(C/S) ‖H_S W H_C‖₂ with H_n = I − 1 1ᵀ/n: mixing makes no consensus distance larger than this share of what
        it was. The distances are root mean squares, over C nodes before and over S of next starts after.

        >>> Mixing("given", np.full((4, 4), 0.25), None).contraction
        0.0
        """
        if self.matrix is None:
            return None
        rows = self.matrix - self.matrix.mean(axis=1, keepdims=True)
        after, before = rows.shape
        return float(np.sqrt(before / after) * np.linalg.norm(rows - rows.mean(axis=0), 2))


def identify_mixing(moments: Moments) -> Mixing:
    """Find the mixing matrix that explains the next starts best: W = argmin Σ_i ‖s_i − Σ_j W_ij w_j‖², rows sum to 1.

    The smallest A with A (w − w̄) ≈ s − w̄ is A = B G⁺ with the products G of the clients and B of both; its rows sum to
    0, so W = A + 1/C. Not where there are no more parameters than nodes, as anything would fit; where models do not
    tell one node from another (a singular value of w − w̄ below 10⁻⁶ of the largest); or where the rounding of the
    starts may change a weight by more than 0.01: ε ‖s‖ √((C − 1)/P) / σ_min.

    >>> rng = np.random.default_rng(0)
    >>> w, W = rng.normal(size=(3, 50)), np.array([[0.5, 0.5, 0], [0, 0.5, 0.5], [0.5, 0, 0.5]])
    >>> d, s = w - w.mean(axis=0), W @ w - w.mean(axis=0)
    >>> found = identify_mixing(Moments(d @ d.T, s @ d.T, (s**2).sum(axis=1), 1.0, 50))
    >>> found.source, bool(np.allclose(found.matrix, W)), found.residual < 1e-6
    ('identified', True, True)
    """
    nodes = len(moments.clients)
    if moments.parameters <= nodes:
        why = f"{nodes} nodes with {moments.parameters:,} parameters fit anything: there are no more numbers than nodes"
        return Mixing("unknown", None, None, why=why)
    if not (np.isfinite(moments.clients).all() and np.isfinite(moments.across).all()):
        return Mixing("unknown", None, None, why="a model is not finite")
    if nodes == 1:
        return explain_mixing(np.ones((len(moments.starts), 1)), moments, "identified", 0.0)
    values, vectors = np.linalg.eigh(moments.clients)
    singular = np.sqrt(np.clip(values, 0, None))[1:]  # without the first: the rows sum to 0
    if not singular[-1]:
        return Mixing("unknown", None, None, why="all nodes have the same model, which any weights make")
    if singular[0] < RANK * singular[-1]:
        share = singular[0] / singular[-1]
        why = (
            f"some nodes' models hardly differ from mixtures of the others (ill-conditioned: the smallest singular "
            f"value is {share:.0e} of the largest)"
        )
        return Mixing("unknown", None, None, why=why)
    uncertainty = float(moments.eps * np.sqrt(moments.size * (nodes - 1) / moments.parameters) / singular[0])
    if uncertainty > CERTAIN:
        why = (
            f"the nodes' models are so near each other that rounding may change a weight by {uncertainty:.2g} "
            "(ill-conditioned)"
        )
        return Mixing("unknown", None, None, uncertainty, why)
    inverse = (vectors[:, 1:] / values[1:]) @ vectors[:, 1:].T
    return explain_mixing(moments.across @ inverse + 1 / nodes, moments, "identified", uncertainty)


def explain_mixing(
    matrix: np.ndarray,
    moments: Moments | None,
    source: Literal["given", "identified"] = "given",
    uncertainty: float | None = None,
) -> Mixing:
    """Measure what a matrix leaves of the next starts; None of them where there are none.

    Args:
        matrix: [S, C], rows sum to 1.
    """
    if moments is None:
        return Mixing(source, matrix, None, uncertainty)
    inside = np.einsum("ij,jk,ik->i", matrix, moments.clients, matrix)
    left = moments.starts - 2 * (matrix * moments.across).sum(axis=1) + inside
    before = np.trace(moments.clients) / len(moments.clients)
    with np.errstate(all="ignore"):
        residual = float(np.sqrt(np.clip(left, 0, None).mean() / before)) if before else float("nan")
    return Mixing(source, matrix, residual, uncertainty)
