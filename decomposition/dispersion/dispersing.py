"""The dispersion of a round's clients, in one pass over what was recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Event

import numpy as np

from ...checkpoints import FedscopeError, Piece, Round, read_pieces
from ...landscape.evaluation.compute import CPU, Compute
from ...landscape.evaluation.workers import run_in_workers
from .moments import column_moments
from .records import WHOLE, LayerDispersion, RoundDispersion
from .sums import Layer, Sums

# A layer's sums, and what they say of it.
Finished = tuple[Sums, LayerDispersion]

# Of all clients to read at a time: 8 MiB of float32. Of shorter pieces workers wait for Python's lock more often.
NUMBERS = 2**21


def disperse_round(
    round_: Round,
    *,
    run: str,
    fdr: float = 0.05,
    numbers: int = NUMBERS,
    compute: Compute = CPU,
    progress: Callable[[int, int], None] | None = None,
) -> RoundDispersion:
    """How the clients of a round differ, layer by layer, each number read once.

    For each of the M parameters of a layer (one parameter tensor) over the C clients, unweighted, in float64: μ, σ,
    cv = σ/|μ|, skewness and excess kurtosis (:func:`~fedscope.decomposition.dispersion.column_moments`), and from 8
    clients on D'Agostino's test of skewness with Benjamini and Hochberg's control of the false discovery rate, within
    each layer and once over the whole model. Parameters are dependent, so the share rejected describes the clients and
    is no test of a layer.

    Memory: what each worker reads and computes at a time (some 20 MiB), 9 bytes a parameter of the layers in work, 4 of
    all, and 8 for every p-value of ``fdr`` or less.

    Args:
        round_: with its clients recorded.
        run: what the record calls the run.
        fdr: the false discovery rate, between 0 and 1.
        numbers: of all clients to read at a time.
        compute: where the moments are computed, in float64; their last digits differ between devices.
        progress: called with (parameters done, P).

    Raises:
        FedscopeError: no clients or only one; a rate out of range; a damaged file.
    """
    refuse_rate(fdr)
    layout, clients = round_.layout, count_clients(round_)
    cvs = np.empty(layout.size, np.float32)
    made: dict[str, LayerDispersion] = {}
    whole, done = Sums(), 0

    def tasks() -> Iterator[tuple[Layer, Piece]]:
        layer = Layer("", cvs[:0])
        for piece in read_pieces(round_, max(1, numbers // clients)):
            if piece.layer != layer.name:
                layer = Layer(piece.layer, cvs[layout.slices[piece.layer]])
            yield layer, piece

    def measure(task: tuple[Layer, Piece], buffer: np.ndarray, stop: Event) -> tuple[int, Finished | None]:
        layer, piece = task
        sums = layer.measure(column_moments(piece.read(buffer), compute.device), piece.start, clients, fdr)
        if not layer.add(piece.start, sums):
            return piece.count, None
        sums = layer.finish()
        return piece.count, (sums, sums.record(layer.name, clients, fdr, layer.cv))

    def buffer() -> np.ndarray:
        return np.empty(max(numbers, clients), layout.dtype)

    for count, finished in run_in_workers(measure, tasks(), make=buffer, workers=compute.workers):
        done += count
        if finished is not None:
            whole.add(finished[0])
            made[finished[1].layer] = finished[1]
        if progress is not None:
            progress(done, layout.size)
    empty = (Sums().record(name, clients, fdr, cvs[:0]) for name in layout.slices if name not in made)
    made.update((one.layer, one) for one in empty)
    return RoundDispersion(
        run, round_.number, clients, tuple(made[name] for name in layout.slices), whole.record(WHOLE, clients, fdr, cvs)
    )


def count_clients(round_: Round) -> int:
    """C.

    Raises:
        FedscopeError: only one, so that nothing is dispersed.
    """
    clients = len(round_.client_ids)
    if clients < 2:
        raise FedscopeError(
            f"{round_.label} has {clients} client, so there is no dispersion; ask for rounds with two or more, or "
            "train with more clients a round (--clients, --participation)"
        )
    return clients


def refuse_rate(fdr: float) -> None:
    """Refuse a false discovery rate outside (0, 1).

    Raises:
        FedscopeError: it is.
    """
    if not 0 < fdr < 1:
        raise FedscopeError(f"false discovery rate {fdr:g} is out of range: give one between 0 and 1, such as 0.05")
