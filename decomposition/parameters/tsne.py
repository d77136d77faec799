"""Many parameters of a round as points, each the vector of its updates in the clients, and their t-SNE, by scikit-learn
on the processor or by torchdr on a GPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...checkpoints import FedscopeError, Round, read_columns
from ...checkpoints.io.errors import list_few, nearest
from ...evaluation.accelerators import refuse_without_memory
from ...training.methods.shared.client_groups import Criteria
from ...training.methods.shared.micro_classes import is_high, mean_and_cv
from ..dispersion.statistics import column_moments
from .parameter_names import Array, client_values, place_of
from .result import ParameterMap
from .selection import sample_columns

#: by backend: more points take too long on a processor, and too much of a GPU's memory (measured: torchdr 0.5 takes
#: 20.5 n² bytes, so 60,000 points 74 GB)
MOST = {"sklearn": 20_000, "torchdr": 60_000}
#: fewer points have no neighbourhoods
FEWEST = 4
ITERATIONS = 1000


def map_parameters(
    round_: Round,
    run: str,
    *,
    sample: int = 5000,
    perplexity: float = 30.0,
    seed: int = 0,
    backend: str = "sklearn",
    device: str = "cpu",
    attrs: Mapping[str, Any] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ParameterMap:
    """Compute the t-SNE of a sample of a round's parameters, over its C clients.

    The point of a parameter is its vector of **client updates divided by its layer's**, [C]:
    (w_k − start)/s with s = √(mean over the layer's parameters and the clients of (w_k − start)²). Chosen, because of
    the raw values w_k the common part is hundreds of times longer than what clients do, so that their t-SNE is a thread
    ordered by the parameter's value; and because layers train at different scales, which would part the layers
    before anything else does. Parameters that the same clients move in the same way are neighbours.

    The sample is drawn as :func:`~fedscope.decomposition.parameters.selection.sample_columns` says, in proportion to
    the layers with at least 20 of each. ``high`` marks FedSA's entries of high dispersion, (cv − min)/(max − min) > 0.2
    over the whole layer, whatever the sample. One pass over the clients on disk, and one for the sampled columns.

    Args:
        run: its name in the result.
        sample: at most so many parameters, 4 to 20,000, to 60,000 with ``torchdr``.
        perplexity, seed, backend, device: see :func:`~fedscope.decomposition.parameters.tsne.fit_map`; the seed is also
            the sample's.
        progress: told the parameters seen and all of them.

    Raises:
        FedscopeError: ``sample`` out of range; a round without clients, with one, or without its ``start``; what
            ``embed`` refuses.
    """
    refuse_backend(backend)
    if not FEWEST <= sample <= MOST[backend]:
        raise FedscopeError(
            f"a sample of {sample:,} parameters is out of range for {backend}: take {FEWEST} to {MOST[backend]:,}"
        )
    if len(round_.client_ids) < 2:
        raise FedscopeError(
            f"{round_.label} has 1 client, so a parameter is one number and no vector; take a round with more clients"
        )
    start, layout, threshold = start_of(round_), round_.layout, Criteria().cv_threshold
    columns = sample_columns(layout, sample, seed)
    if perplexity >= len(columns):  # before the pass over the clients, not after it
        raise FedscopeError(
            f"perplexity {perplexity:g} does not fit {len(columns)} points: it must be below their number; give a "
            "smaller one, or a larger sample"
        )
    scales = layer_scales(round_, start, progress)
    sampled = _read_sample(round_, columns, start, scales, threshold)
    at = fit_map(sampled.points, perplexity=perplexity, seed=seed, backend=backend, device=device)
    about = {
        "parameters": layout.size,
        "sample": sample,
        "perplexity": perplexity,
        "backend": backend,
        "backend_version": backend_version(backend),
        "seed": seed,
        "cv_threshold": threshold,
    }
    return ParameterMap(
        run,
        round_.number,
        sampled.points.shape[1],
        sampled.layers,
        sampled.index,
        at,
        sampled.cv,
        sampled.skewness,
        sampled.high,
        {**dict(attrs or {}), **about},
    )


@dataclass(frozen=True, eq=False)
class _Sampled:
    """Sampled parameters [n] in C clients.

    Attributes:
        points: updates divided by their layer's, [n, C].
        layers, index: the layer of each, and its place in it.
        high: of high dispersion in their layer.
    """

    points: Array
    layers: tuple[str, ...]
    index: tuple[tuple[int, ...], ...]
    cv: Array
    skewness: Array
    high: np.ndarray


def _read_sample(
    round_: Round, columns: np.ndarray, start: np.ndarray, scales: Mapping[str, LayerScale], threshold: float
) -> _Sampled:
    """Read the sampled columns, in one pass."""
    values, layout = client_values(round_, columns), round_.layout
    moments, (_, cv) = column_moments(values), mean_and_cv(values)
    points = client_updates(values, start[columns])
    high = np.zeros(len(columns), np.bool_)
    layers, index = [], []
    for name, where in layout.slices.items():
        here = np.flatnonzero((where.start <= columns) & (columns < where.stop))
        if len(here):
            points[:, here] /= scales[name].update or 1.0  # a layer that no client moved
            high[here] = is_high(cv[here], scales[name].low, scales[name].top, threshold)
        layers += [name] * len(here)
        index += [place_of(layout, name, int(i) - where.start).index for i in columns[here]]
    turned = np.ascontiguousarray(points.T)
    return _Sampled(turned, tuple(layers), tuple(index), moments.cv, moments.skewness, high)


@dataclass(frozen=True)
class LayerScale:
    """Scale of a layer with M parameters in C clients.

    Attributes:
        low, top: the least and the greatest cv over the layer, with FedSA's |μ| (float32's least normal number where
            it is smaller).
        update: √(mean over the M parameters and C clients of (w_k − start)²), in the parameters' units.
    """

    low: float
    top: float
    update: float


def layer_scales(
    round_: Round, start: np.ndarray, progress: Callable[[int, int], None] | None = None
) -> dict[str, LayerScale]:
    """Measure the scale of every layer, in one pass over the clients on disk with a block in memory at a time.

    Args:
        start: the model that the clients were sent, [P].
        progress: told the parameters seen and all of them.

    Raises:
        FedscopeError: the round has no clients.
    """
    ranges: dict[str, tuple[float, float]] = {}
    squares: dict[str, float] = {}
    with np.errstate(over="ignore", invalid="ignore"):  # of clients that diverged
        for block in read_columns(round_):
            _, cv = mean_and_cv(block.values)
            low, top = ranges.get(block.layer, (math.inf, -math.inf))
            # not Python's min and max, which pass over NaN
            ranges[block.layer] = float(np.minimum(low, cv.min())), float(np.maximum(top, cv.max()))
            squares[block.layer] = squares.get(block.layer, 0.0) + float(
                np.square(client_updates(block.values, start[block.where])).sum()
            )
            if progress is not None:
                progress(block.where.stop, round_.layout.size)
    clients, slices = len(round_.client_ids), round_.layout.slices
    return {
        name: LayerScale(*ranges[name], math.sqrt(squares[name] / clients / (slices[name].stop - slices[name].start)))
        for name in ranges
    }


def client_updates(values: np.ndarray, start: np.ndarray) -> Array:
    """w_k − start, [C, n], subtracted in float64: a client's step may be a millionth of the parameter."""
    return np.asarray(values.astype(np.float64) - start.astype(np.float64))


def start_of(round_: Round) -> np.ndarray:
    """Return the model [P] that the clients of a round were sent.

    Raises:
        FedscopeError: it was not recorded.
    """
    if round_.own_starts:
        raise FedscopeError(
            f"{round_.label}: parameters --tsne needs the one model that all clients start from, and in round "
            f"{round_.number} each starts from a model of its own (starts=); leave --tsne out"
        )
    if "start" not in round_.models:
        raise FedscopeError(
            f"{round_.label} did not record the model that its clients were sent (start), so there are no updates to "
            "embed; take a round that has it"
        )
    return round_.read("start").parameters


def fit_map(
    points: Array, *, perplexity: float = 30.0, seed: int = 0, backend: str = "sklearn", device: str = "cpu"
) -> Array:
    """Compute the t-SNE of n points [n, C] in the plane, [n, 2]: 1000 steps from their first two principal components.

    The axes have no unit; near points are neighbours, but distances between groups and their sizes mean little.

    Args:
        perplexity: about how many neighbours a point has.
        seed: of what the backend draws.
        backend: ``sklearn`` (Barnes-Hut, the same numbers every time) or ``torchdr``, the optional package of
            ``fedscope[gpu]``: exact repulsion in torch, O(n²) a step, which a GPU does fast; near neighbours agree,
            numbers do not.
        device: of torchdr, ``cpu`` or ``cuda``.

    Raises:
        FedscopeError: an unknown backend, or one that is not installed; fewer than four points, or than two
            dimensions; a perplexity that is not above 0 and below n; values that are not finite; points that are all
            the same.

    >>> fit_map(np.eye(6), perplexity=2.0).shape
    (6, 2)
    """
    refuse_backend(backend)
    n, dimensions = points.shape
    if n < FEWEST:
        raise FedscopeError(f"{n} points are too few for a t-SNE; take {FEWEST} or more")
    if dimensions < 2:
        raise FedscopeError(
            f"the points have {dimensions} dimension, and there is nothing to embed; they need 2 or more"
        )
    if not 0 < perplexity < n:
        raise FedscopeError(
            f"perplexity {perplexity:g} does not fit {n} points: it must be above 0 and below their number; give a "
            "smaller one, or more points"
        )
    broken = int((~np.isfinite(points)).any(axis=1).sum())
    if broken:
        raise FedscopeError(
            f"{broken} of {n} points are not finite, and have no distance to others; take a round before the training "
            "diverged"
        )
    if (points == points[0]).all():
        raise FedscopeError(
            f"the {n} points are all the same, so there are no neighbours: clients moved no parameter of the sample; "
            "take another round"
        )
    return np.asarray(BACKENDS[backend](points, perplexity, seed, device), dtype=np.float64)


def refuse_backend(backend: str) -> None:
    """Make sure that there is such a backend.

    Raises:
        FedscopeError: there is none; says which there are.
    """
    if backend not in BACKENDS:
        raise FedscopeError(
            f"there is no t-SNE backend {backend!r}{nearest(backend, BACKENDS) or '; there are ' + list_few(BACKENDS)}"
        )


def backend_version(backend: str) -> str:
    """Return the version of the package that a backend is: its numbers may change with it."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version({"sklearn": "scikit-learn"}.get(backend, backend))
    except PackageNotFoundError:
        return "not installed"


def _sklearn(points: Array, perplexity: float, seed: int, device: str) -> Any:
    from ..embedding.pca_and_tsne import fit_t_sne

    return fit_t_sne(points, perplexity, seed, init="pca")


def _torchdr(points: Array, perplexity: float, seed: int, device: str) -> Any:
    try:
        from torchdr import TSNE
    except ImportError:
        raise FedscopeError(
            "the t-SNE backend torchdr is not installed; pip install 'fedscope[gpu]' (which takes torchdr), or use "
            "backend sklearn"
        ) from None
    map_ = TSNE(perplexity=perplexity, init="pca", random_state=seed, max_iter=ITERATIONS, device=device)
    with refuse_without_memory(device, f"embed {len(points):,} points", "take fewer of them, or --backend sklearn"):
        return map_.fit_transform(points.astype(np.float32))


BACKENDS: dict[str, Callable[[Array, float, int, str], Any]] = {"sklearn": _sklearn, "torchdr": _torchdr}
