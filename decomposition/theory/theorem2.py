"""Theorem 2: the variance of a client, equation 3 that gives it, the discrepancy between data sets to which the paper
reads that down, and whether these order the clients as their variances do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import permutations

import numpy as np
import numpy.typing as npt

from ...checkpoints import FedscopeError
from ...results import Serializable
from ...training.data.membership import Members

#: of the mean of K(x, x) over D: added to the diagonal of K_kk, the same for every client
RIDGE = 1e-6
#: the variances that a prediction is compared with
VARIANCES = ("gp_variance", "replay_variance")
#: what a variance is compared with: the theorem, the paper's reading of it, and the theorem's first term, which is
#: neither
PREDICTIONS = ("equation_3", "mmd2", "predicted")
# Up to so many clients every order of them is counted (9! = 362,880); the t approximation is far off for fewer.
COUNTED = 9


@dataclass(frozen=True)
class ClientBound(Serializable):
    """One client of a round in Theorem 2; K is the kernel, D the samples it was taken on.

    `samples` n_k, those of D that are the client's; `diagonal` λ_k of the paper, the mean of K(x, x) over D_k;
    `eigenvalue` the greatest of K_kk; `mmd2` MMD²(D, D_k) under K²; `predicted` n_k/(2 λ_k) · MMD² with the diagonal,
    the first term of equation 3; `gp_variance` E_D V_k and `bound` its upper bound, which has the eigenvalue; the last
    three in units of K. `replay_variance` is E_D of the variance of the client's outputs over replays of its local
    training, in squared units of the outputs, None where there are none. `lambda_d` and `beta_d` are λ_D and β_D, the
    same for all clients of a round, and `equation_3` is all three terms, in units of K; None in files of version 2,
    which had the first term alone.
    """

    round: int
    client: int
    samples: int
    diagonal: float
    eigenvalue: float
    mmd2: float
    predicted: float
    gp_variance: float
    bound: float
    replay_variance: float | None = None
    lambda_d: float | None = None
    beta_d: float | None = None
    equation_3: float | None = None


@dataclass(frozen=True)
class Bounds(Serializable):
    """The clients of one round."""

    clients: tuple[ClientBound, ...]

    def with_replays(self, spread: Spread | None) -> tuple[ClientBound, ...]:
        """Add the variances over replays, where there are any."""
        if spread is None:
            return self.clients
        pairs = zip(self.clients, spread.variances.tolist(), strict=True)
        return tuple(replace(one, replay_variance=variance) for one, variance in pairs)


@dataclass(frozen=True, eq=False)
class Spread(Serializable):
    """The variances of one round's clients over replays, [K]."""

    variances: npt.NDArray[np.float64]


def client_bounds(
    kernel: np.ndarray, members: Members, client_ids: np.ndarray, *, round: int, ridge: float = RIDGE
) -> tuple[ClientBound, ...]:
    """Both sides of Theorem 2 for every client, and an upper bound that holds.

    A Gaussian process with prior covariance K that has seen D_k has at x the posterior variance

        V_k(x) = K(x,x) − K(x,X_k) (K_kk + σ²I)⁻¹ K(X_k,x).

    The theorem (equation 3 of the paper) says, up to O(ε),

        E_D V_k = n_k/(2 λ_k) MMD²(D, D_k) + λ_D − n_k/(2 λ_k) β_D        (`equation_3`)

    with λ_k the common diagonal K(x, x) of the kernel on D_k, here its mean, λ_D = E_D K(x, x) (`lambda_d`),
    β_D = E_{i≠j} K²(x_i, x_j) over D (`beta_d`), and the discrepancy in the reproducing-kernel space of the *squared*
    kernel,

        MMD²(D, D_k) = E_{D,D} K² + E_{k,k} K² − 2 E_{D,k} K²        (`mmd2`).

    The paper reads it as a statement on MMD² alone, because λ_D and β_D depend on D only. n_k/(2 λ_k) depends on the
    client: where clients differ in n_k the third term is no constant, and the first term (`predicted`) alone is neither
    the theorem nor its reading. Where K_kk is λ_k times the identity (and σ² = 0), equation 3 is above E_D V_k by
    n_k/(2 λ_k) [E_{D,D} K² + E_{k,k} K² − β_D] (ours). In a trained network K_kk is far from that, and `equation_3` may
    lie far from the variance, even below 0. Compare the order of the clients.

    For any kernel, with μ_k the greatest eigenvalue of K_kk, (K_kk + σ²I)⁻¹ ⪰ I/(μ_k + σ²), so that
    V_k(x) ≤ K(x,x) − Σ_i K(x,x_i)²/(μ_k + σ²), and because E_D Σ_i K(x,x_i)² = n_k E_{D,k} K²,

        E_D V_k ≤ E_D K(x,x) − n_k/(2(μ_k + σ²)) [E_{D,D} K² + E_{k,k} K² − MMD²]        (`bound`)

    in which MMD² has the factor n_k/(2 μ_k). μ_k ≥ λ_k, often by far, and equal only where K_kk is a multiple of
    the identity. μ_k and E_{k,k} K² depend on the client too, so that MMD² alone orders clients as V_k does only as far
    as these are alike. The bound holds for every client and any kernel, and is ours.

    Args:
        kernel: K over the samples of D, float64 [n, n], symmetric and positive semi-definite.
        members: whose sample is whose, bool [C, n] (`membership_train`).
        client_ids: [C].
        round: its number, for the result.
        ridge: σ² as a share of E_D K(x,x). Without it K_kk of like samples could not be inverted.

    Raises:
        FedscopeError: members that do not fit the kernel; a client without a sample in D.

    Source: Zhou et al., Theorem 2, equation 3; with MMD² under K², which its algebra needs, where the paper has it
    under K. The bound by the greatest eigenvalue is ours.

    >>> kernel = np.array([[1.0, 0.5], [0.5, 1.0]])
    >>> (one,) = client_bounds(kernel, np.array([[True, False]]), np.array([7]), round=1, ridge=0.0)
    >>> one.diagonal, one.gp_variance, one.mmd2  # V = (0, 1 − 0.5²); MMD² = 0.625 + 1 − 2 · 0.625
    (1.0, 0.375, 0.375)
    >>> one.bound  # equal: a single sample has a single eigenvalue
    0.375
    >>> one.lambda_d, one.beta_d, one.equation_3  # 0.375/2 + 1 − 0.25/2
    (1.0, 0.25, 1.0625)
    """
    if kernel.shape != (members.shape[1],) * 2 or len(members) != len(client_ids):
        raise FedscopeError(
            f"round {round} has a kernel of shape {list(kernel.shape)}, members of shape {list(members.shape)} and "
            f"{len(client_ids)} clients; give the kernel [n, n] and members [C, n] of the same samples"
        )
    prior = float(np.diag(kernel).mean())
    squared = kernel**2
    of_all = float(squared.mean())
    n = len(kernel)
    # the mean over the pairs of different samples; a single sample has none
    between = float((squared.sum() - np.trace(squared)) / (n * (n - 1))) if n > 1 else 0.0
    rows = []
    for client, own in zip(client_ids, members, strict=True):
        n_k = int(own.sum())
        if n_k == 0:
            raise FedscopeError(f"client {client} of round {round} has no sample in D, so K_kk is empty; give more")
        variance = posterior_variance(kernel, own, ridge * prior)  # first: it refuses what has no eigenvalue
        greatest = float(np.linalg.eigvalsh(kernel[np.ix_(own, own)])[-1])
        diagonal = float(np.diag(kernel)[own].mean())
        mmd = mmd2(squared, own)
        within = float(squared[np.ix_(own, own)].mean())
        factor = n_k / (2 * diagonal)
        rows.append(
            ClientBound(
                round=round,
                client=int(client),
                samples=n_k,
                diagonal=diagonal,
                eigenvalue=greatest,
                mmd2=mmd,
                predicted=factor * mmd,
                gp_variance=float(variance.mean()),
                bound=prior - n_k / (2 * (greatest + ridge * prior)) * (of_all + within - mmd),
                lambda_d=prior,
                beta_d=between,
                equation_3=factor * mmd + prior - factor * between,
            )
        )
    return tuple(rows)


def mmd2(kernel: np.ndarray, own: np.ndarray) -> float:
    """MMD²(D, D_k) = E_{D,D} K + E_{k,k} K − 2 E_{D,k} K between two empirical measures, diagonals included (so ≥ 0).

    Theorem 2 takes it under K²: give ``kernel**2``.

    Args:
        kernel: [n, n] over D.
        own: which rows are D_k, bool [n].

    Source: Gretton et al., "A Kernel Two-Sample Test", JMLR 2012, equation (5).

    >>> x = np.array([0.0, 1.0, 3.0])  # a linear kernel: the squared distance of the means
    >>> round(mmd2(np.outer(x, x), np.array([True, True, False])), 6)  # (4/3 − 1/2)²
    0.694444
    """
    return float(kernel.mean() + kernel[np.ix_(own, own)].mean() - 2 * kernel[:, own].mean())


def posterior_variance(kernel: np.ndarray, own: np.ndarray, ridge: float) -> np.ndarray:
    """V(x) = K(x,x) − K(x,X) (K_XX + σ²I)⁻¹ K(X,x) for every x of D, [n].

    Args:
        kernel: [n, n] over D.
        own: which rows are X, bool [n].
        ridge: σ², in units of K.

    Raises:
        FedscopeError: a kernel that is not positive semi-definite, or not finite.

    Source: Rasmussen and Williams, "Gaussian Processes for Machine Learning", equation (2.26).
    """
    from scipy.linalg import LinAlgError, cholesky, solve_triangular

    inner = kernel[np.ix_(own, own)] + ridge * np.eye(int(own.sum()))
    try:
        lower = cholesky(inner, lower=True)
    except (LinAlgError, ValueError) as error:
        raise FedscopeError(
            f"the kernel of {int(own.sum())} samples cannot be inverted ({error}); the model's gradients are not "
            "finite, or vanish there, or need a greater ridge"
        ) from None
    explained = solve_triangular(lower, kernel[own], lower=True)
    variance: np.ndarray = np.diag(kernel) - np.square(explained).sum(axis=0)
    return variance


@dataclass(frozen=True)
class VarianceCorrelation:
    """Correlation of the `variance` of that name with the `prediction` of that name, over the `clients` of a round.

    `pearson` r with its 95 % interval `low`, `high` (Fisher's z), and Spearman's rank correlation with its two-sided
    p-value `spearman_p`: the share of all orders of the clients, counted up to nine clients, from ten on by the t
    approximation, but not below 2/n!.

    Fisher's z takes the clients for independent and both quantities for normal. The clients of a round share D, and one
    with few samples may be far out, so the interval is a guide and no test: of ten clients r = 0.5 has −0.19 to 0.86.
    """

    round: int
    variance: str
    clients: int
    pearson: float
    low: float
    high: float
    spearman: float
    spearman_p: float
    prediction: str = "predicted"


def correlate(
    bounds: Sequence[ClientBound], variance: str, prediction: str = "predicted"
) -> VarianceCorrelation | None:
    """Compute the correlation over the clients of one round; None where it does not exist.

    That is for fewer than four clients (Fisher's z has the standard error 1/√(n − 3), so there is no interval), for
    clients without that variance or prediction, for values that are not finite, or all the same.

    >>> bounds = [ClientBound(1, k, 9, 1.0, 2.0, 1.0, float(k), k**2 + 1.0, 99.0) for k in range(5)]
    >>> both = correlate(bounds, "gp_variance")
    >>> round(both.pearson, 3), round(both.spearman, 3), correlate(bounds, "replay_variance")
    (0.959, 1.0, None)
    >>> round(both.spearman_p * 120, 6)  # this order of five clients, and the reverse
    2.0
    """
    from scipy.stats import pearsonr

    predicted, measured = ([getattr(one, name) for one in bounds] for name in (prediction, variance))
    if len(measured) < 4 or None in measured or None in predicted:
        return None
    x, y = np.array(predicted, dtype=np.float64), np.array(measured, dtype=np.float64)
    if not (np.isfinite(x).all() and np.isfinite(y).all()) or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    linear = pearsonr(x, y)
    interval = linear.confidence_interval(0.95)
    spearman, spearman_p = _of_ranks(x, y)
    r, low, high = float(linear.statistic), float(interval.low), float(interval.high)
    return VarianceCorrelation(bounds[0].round, variance, len(x), r, low, high, spearman, spearman_p, prediction)


def _of_ranks(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Spearman's correlation and its p-value."""
    from scipy.stats import rankdata, spearmanr

    ranked, n = spearmanr(x, y), len(x)
    if n > COUNTED:
        return float(ranked.statistic), max(float(ranked.pvalue), 2 / math.factorial(n))
    of_x, of_y = rankdata(x), rankdata(y)
    # The correlation up to constants; sums of products of ranks are exact, so equal ones are equal.
    alike, every = float(of_x @ of_y), of_x[_orders(n)] @ of_y
    one_sided = min(int((every <= alike).sum()), int((every >= alike).sum()))
    return float(ranked.statistic), min(1.0, 2 * one_sided / len(every))


@cache
def _orders(n: int) -> npt.NDArray[np.int8]:
    """All orders of n clients, [n!, n]."""
    return np.array(list(permutations(range(n))), dtype=np.int8)
