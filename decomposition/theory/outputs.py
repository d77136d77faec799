"""Outputs of clients: how far their average is from the output of averaged weights (Lemma 1), and how they vary over
replays of local training (compared with Theorem 2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Event

import numpy as np
import torch
from torch import Tensor, nn

from ...checkpoints import FedscopeError, Layout, Weights, stack
from ...evaluation.accelerators import refuse_without_memory
from ...evaluation.device import CPU, Compute, run_in_workers, torch_threads
from ...evaluation.evaluator import default_batch
from ...evaluation.float64 import require_float64
from ...evaluation.memory import halve_without_memory
from ...evaluation.model_replica import Replica
from ...evaluation.module_copy import copy_module
from ...evaluation.samples import Samples
from ...evaluation.tasks import require_classes
from ...evaluation.uint8_images import in_batches
from ...evaluation.unlike_buffers import warn_of_averaged
from ...evaluation.validation import refuse_shapeless, try_out
from ..draws.cohort_draws import P_TOLERANCE, CohortDraws
from ..factors.model_outputs import CHUNK, stream_outputs
from ..factors.rows import Outputs
from .lemma1 import Gap


def locality_gaps(
    module: nn.Module,
    samples: Samples,
    clients: Weights,
    p: np.ndarray,
    *,
    round: int,
    shrink: Sequence[float] = (1.0,),
    outputs: Outputs = "probabilities",
    compute: Compute = CPU,
    progress: Callable[[int, int], None] | None = None,
    calibration: Samples | None = None,
) -> tuple[Gap, ...]:
    """One gap for every ε of `shrink`, of the clients w_k(ε) = w_FMA + ε (w_k − w_FMA).

    With WENS(x) = Σ_k p_k f(x; w_k), w_FMA = Σ_k p_k w_k and Δ = max_k ‖w_k − w_FMA‖, Lemma 1 says that
    WENS(x) = f(x; w_FMA) + O(Δ²) as Δ → 0, because the first-order terms Σ_k p_k ⟨∇f, w_k − w_FMA⟩ add up to 0. Shrunk
    clients keep w_FMA and their directions, so they are that limit itself: Δ(ε) = ε Δ.

    A network with ReLU is smooth in w only where no activation is 0. Moving by ε takes a share O(ε) of the samples
    across such a kink, each by O(ε), so that over a density of samples the mean square has a term O(ε³), and the gap
    may fall as Δ^1.5, a slope of 3/4 against Δ², until ε is below the nearest kink of the samples there are.

    Everything is in float64, the weights too: outputs in single precision are known to 1e-7, which is more than the
    gap of clients close together. Statistics of normalization layers (float buffers) are averaged and shrunk as
    weights are, integer ones are the first client's; with ``calibration`` every model's are measured on it instead, so
    that f depends on the weights alone. NaN and infinite outputs stay: the gap is then nan. Clients of weight 0 have no
    part: neither in the means nor in Δ, even where they diverged.

    Args:
        module: the architecture; its own parameters are not used and not changed.
        clients: [K, P].
        p: [K] float64, sum 1.
        round: its number, for the result.
        outputs: f, "probabilities" or "logits".
        progress: called with (samples done, samples in all) over all ε.
        calibration: samples on which running statistics are measured; None: clients have their own.

    Raises:
        FedscopeError: weights that are negative or do not sum to 1, clients that do not fit the module, a module that
            does not fit the samples, an ε that is not above 0, a device without float64.

    Source: Zhou et al., Lemma 1. Shrinking the clients is ours.

    >>> from fedscope.checkpoints import Layout
    >>> module = nn.Linear(1, 2, bias=False)
    >>> samples = Samples(torch.ones(4, 1), torch.tensor([0, 1, 1, 1]), 2, "toy", "test", np.arange(4))
    >>> two = Weights(Layout.of(module), np.array([[1.0, 0.0], [3.0, 0.0]], np.float32), {})
    >>> (gap,) = locality_gaps(module, samples, two, np.array([0.5, 0.5]), round=1, outputs="logits")
    >>> gap.gap, gap.distance, gap.scale  # a linear model has none
    (0.0, 1.0, 2.0)
    """
    require_classes(samples, "theory (Lemma 1)")
    _refuse_unfit(module, clients, p, round)
    for epsilon in shrink:
        if not 0 < epsilon < np.inf:
            raise FedscopeError(f"clients cannot be shrunk by {epsilon:g}; give numbers above 0, as in 0.5")
    require_float64(compute.device, "the gap of Lemma 1")
    if not np.all(p):
        there = np.flatnonzero(p)
        clients, p = stack([clients.row(int(k)) for k in there]), p[there]
    centre, n = _mean(clients, p), len(samples)
    measure = _squares_on_device if compute.is_gpu else _squares
    squared, scale = measure(
        _Measured(module, samples, clients, p, centre, shrink, outputs, compute, progress, calibration)
    )
    with np.errstate(invalid="ignore", over="ignore"):
        distances = np.array([np.linalg.norm(row - centre.parameters) for row in clients.parameters])
    return tuple(
        Gap(
            round=round,
            shrink=float(epsilon),
            gap=float(np.sqrt(squared[e] / n)),
            distance=float(epsilon * distances.max()),
            mean_distance=float(epsilon * distances.mean()),
            scale=float(np.sqrt(scale[e] / n)),
        )
        for e, epsilon in enumerate(shrink)
    )


@dataclass(frozen=True)
class _Measured:
    """What gaps are measured of: see :func:`locality_gaps`; ``centre`` is w_FMA in float64."""

    module: nn.Module
    samples: Samples
    clients: Weights
    p: np.ndarray
    centre: Weights
    shrink: Sequence[float]
    outputs: Outputs
    compute: Compute
    progress: Callable[[int, int], None] | None
    calibration: Samples | None

    def f(self, logits: Tensor) -> Tensor:
        """Return what f is, of logits."""
        return torch.softmax(logits, dim=-1) if self.outputs == "probabilities" else logits

    def tell(self, done: int) -> None:
        """Say how many samples are done, over all ε."""
        if self.progress is not None:
            self.progress(done, len(self.shrink) * len(self.samples))


def _squares(given: _Measured) -> tuple[np.ndarray, np.ndarray]:
    """Σ_x ‖WENS(x) − f_FMA(x)‖² and Σ_x ‖f_FMA(x)‖² of every ε."""
    samples, clients, centre, shrink = given.samples, given.clients, given.centre, given.shrink
    make = partial(Replica, copy_module(given.module).double(), given.compute)
    first = make()
    x = first.prepare(samples.x)
    try_out(first, [(samples, x, samples.y.to(first.device))])
    inputs = None if given.calibration is None else first.prepare(given.calibration.x)[:]
    kept: dict[tuple[int, int], dict[str, np.ndarray]] = {}  # statistics, measured once for all chunks
    batch = default_batch(given.module, samples, given.compute.device)
    count, n = len(clients), len(samples)
    starts = range(0, n, CHUNK)
    # The clients one after the other and their mean last, so that a chunk's outputs are added up as they come.
    items = [(e, start, k) for e in range(len(shrink)) for start in starts for k in range(count + 1)]

    def task(item: tuple[int, int, int], own: Replica, stop: Event) -> Tensor:
        e, start, k = item
        model = centre if k == count else _towards(centre, clients.row(k), shrink[e])
        own.load(model.parameters, kept.get((e, k), model.buffers))
        if inputs is not None and (e, k) not in kept:
            own.re_estimate(inputs)
            kept[e, k] = own.buffers()
        return given.f(torch.cat([own.logits(part) for part in torch.split(x[start : start + CHUNK], batch)]))

    squared, scale = np.zeros(len(shrink)), np.zeros(len(shrink))
    ensemble: Tensor | float = 0.0
    for (e, start, k), f in zip(
        items, run_in_workers(task, items, make=make, workers=given.compute.workers), strict=True
    ):
        if k < count:
            ensemble = ensemble + float(given.p[k]) * f
            continue
        of_gap, of_scale = _square_sums(ensemble, f)
        squared[e] += float(of_gap)
        scale[e] += float(of_scale)
        ensemble = 0.0
        given.tell(e * n + min(start + CHUNK, n))
    return squared, scale


def _squares_on_device(given: _Measured) -> tuple[np.ndarray, np.ndarray]:
    """Do as :func:`_squares`, each client sent to the device once and shrunk there."""
    samples, clients, shrink, compute = given.samples, given.clients, given.shrink, given.compute
    label = f"samples of {samples.label}"
    with refuse_without_memory(compute.device, f"hold two models in float64 and the {label}"):
        own = _Shrunk(copy_module(given.module).double(), compute, given.centre)
        x = own.prepare(samples.x)
        try_out(own, [(samples, x, samples.y.to(own.device))])
        inputs = None if given.calibration is None else own.prepare(given.calibration.x)[:]
    count, n = len(clients), len(samples)
    batch = min(default_batch(given.module, samples, compute.device), n)

    def answers() -> Tensor:
        nonlocal batch
        if inputs is not None:
            own.re_estimate(inputs)
        f, batch = halve_without_memory(
            lambda size: torch.cat([own.logits(part) for part in in_batches(x, size)]), batch, compute.device, of=label
        )
        return given.f(f)

    with refuse_without_memory(compute.device, f"hold {len(shrink)} outputs of each of the {label}"), torch_threads(1):
        ensembles: list[Tensor | float] = [0.0] * len(shrink)
        for k in range(count):
            client = own.sent(clients.row(k))
            for e, epsilon in enumerate(shrink):
                own.shrink(client, epsilon)
                ensembles[e] = ensembles[e] + float(given.p[k]) * answers()
            given.tell((k + 1) * len(shrink) * n // (count + 1))
        own.load(given.centre.parameters, given.centre.buffers)
        f = answers()
        sums = torch.stack([torch.stack(_square_sums(one, f)) for one in ensembles], dim=1).cpu().numpy()
    given.tell(len(shrink) * n)
    return sums[0], sums[1]


def _square_sums(ensemble: Tensor | float, f: Tensor) -> tuple[Tensor, Tensor]:
    """Σ ‖WENS − f‖² and Σ ‖f‖²; a logit that is −∞ in both, as of a masked class, is no output and counts in neither.

    >>> masked = torch.tensor([1.0, -torch.inf])
    >>> [float(one) for one in _square_sums(masked + 1, masked)]
    [1.0, 1.0]
    """
    masked = (f == -torch.inf) & (ensemble == f)
    return (ensemble - f).masked_fill(masked, 0.0).square().sum(), f.masked_fill(masked, 0.0).square().sum()


class _Shrunk(Replica):
    """A model on a device that is a client's, drawn towards the middle of all."""

    def __init__(self, module: nn.Module, compute: Compute, centre: Weights) -> None:
        super().__init__(module, compute)
        self._middle = self.sent(centre)

    def sent(self, model: Weights) -> tuple[Tensor, dict[str, Tensor]]:
        """Return a model's parameters and buffers on the device."""
        buffers = {name: torch.as_tensor(np.asarray(values)).to(self.device) for name, values in model.buffers.items()}
        return torch.as_tensor(model.parameters).to(self.device), buffers

    def shrink(self, client: tuple[Tensor, dict[str, Tensor]], epsilon: float) -> None:
        """Become w_FMA + ε (w_k − w_FMA), float buffers alike: what :func:`_towards` does."""
        self._bound.put_back()
        (w, buffers), (middle, of_middle) = client, self._middle
        self.w.copy_(middle + epsilon * (w - middle))
        for name, own in buffers.items():
            centre = of_middle[name]
            moved = centre + epsilon * (own - centre) if own.is_floating_point() else centre
            self._buffers[name].copy_(moved)


def _refuse_unfit(module: nn.Module, clients: Weights, p: np.ndarray, round: int) -> None:
    """Refuse a cohort that Lemma 1 does not speak of.

    Raises:
        FedscopeError: see :func:`locality_gaps`.
    """
    refuse_shapeless(module)
    difference = Layout.of(module).difference(clients.layout)
    if difference:
        raise FedscopeError(f"the clients of round {round} do not fit the module: {difference}")
    if clients.parameters.ndim != 2 or len(p) != len(clients):
        raise FedscopeError(
            f"round {round} has {len(p)} weights p for clients of shape {list(clients.parameters.shape)}; give the "
            "matrix [K, P] and one weight a row"
        )
    if not np.all(p >= 0) or abs(float(np.sum(p)) - 1.0) > P_TOLERANCE:
        raise FedscopeError(
            f"the weights p of round {round} sum to {float(np.sum(p))!r} over {len(p)} clients: Lemma 1 needs weights "
            "that are not negative and sum to 1"
        )


def _mean(clients: Weights, p: np.ndarray) -> Weights:
    """w_FMA in float64, not rounded to the layout's dtype: the first-order terms cancel about no other centre."""
    warn_of_averaged(clients.buffers, clients.layout.names, p)
    parameters = np.zeros(clients.parameters.shape[1])
    with np.errstate(invalid="ignore", over="ignore"):  # of clients that diverged; their round is said to be left out
        for weight, row in zip(p, clients.parameters, strict=True):
            parameters += weight * row.astype(np.float64)
        buffers = {
            name: np.tensordot(p, rows.astype(np.float64), axes=1)
            if np.issubdtype(rows.dtype, np.floating)
            else rows[0]
            for name, rows in clients.buffers.items()
        }
    return Weights(clients.layout, parameters, buffers)


def _towards(centre: Weights, client: Weights, epsilon: float) -> Weights:
    """w_FMA + ε (w_k − w_FMA) in float64, float buffers alike."""

    def shrunk(middle: np.ndarray, own: np.ndarray) -> np.ndarray:
        if not np.issubdtype(own.dtype, np.floating):
            return middle
        with np.errstate(invalid="ignore", over="ignore"):
            moved: np.ndarray = middle + epsilon * (own - middle)
        return moved

    buffers = {name: shrunk(middle, client.buffers[name]) for name, middle in centre.buffers.items()}
    return Weights(client.layout, shrunk(centre.parameters, client.parameters), buffers)


def replay_variances(
    module: nn.Module,
    samples: Samples,
    cohort: CohortDraws,
    *,
    outputs: Outputs = "probabilities",
    compute: Compute = CPU,
) -> np.ndarray:
    """E_D Σ_r ‖f_k^r(x) − f̄_k(x)‖² / (R − 1) of every client, [K], in squared units of the outputs.

    The variance over mini-batch orders from one start, unbiased for independent draws: of a client, what the variance
    of a decomposition adds up with p_k². The models run in single precision, the sums are in double.

    Args:
        cohort: R >= 2 independent draws of the K clients.
        outputs: f, "probabilities" or "logits".

    Raises:
        FedscopeError: dependent draws, which have no such variance; models that do not fit the module.
    """
    if not cohort.independent:
        raise FedscopeError(
            f"the draws {cohort.source} of round {cohort.round} depend on each other, so their spread is not a "
            "variance over replays; use --draws local:4"
        )
    require_classes(samples, "the variance of clients' outputs")
    total = torch.zeros(len(cohort.client_ids), dtype=torch.float64)
    for part in stream_outputs(module, samples, cohort, (), {}, compute=compute):
        f = part.clients.double()  # [K, R, B, C]
        if outputs == "probabilities":
            f = torch.softmax(f, dim=-1)
        f = f.masked_fill(
            (f == -torch.inf).all(dim=1, keepdim=True), 0.0
        )  # logits of masked classes, which do not vary
        total += f.var(dim=1, correction=1).sum(dim=(1, 2)).cpu()
    variances: np.ndarray = (total / len(samples)).numpy()
    return variances
