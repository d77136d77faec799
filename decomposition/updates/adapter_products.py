"""Products of the updates of clients whose models are adapters: updates of what the adapters do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np
import numpy.typing as npt

from ...checkpoints import Round
from ...checkpoints.models.products import Adapters
from ...checkpoints.models.weights import taking_part
from ..adapters.inner_products import differences, inner_products
from ..adapters.recorded_adapters import factors_of, read_parameter

Array = npt.NDArray[np.float64]


def adapter_products(
    round_: Round,
    adapters: Adapters,
    selections: Sequence[Collection[str]],
    progress: Callable[[int, int], None] | None = None,
) -> list[Array]:
    """⟨Δ_i, Δ_j⟩ of a round of adapters, [C+1, C+1] float64, a matrix a selection and last that of all.

    Δ_i is what client i changed in the weights that its adapters add to: of each pair s (B_i A_i − B_0 A_0), with the
    factors A_0, B_0 of ``start``, and of parameters beside them their difference. Δ_C = Σ_i p_i Δ_i is the **mean of
    products**, which the mean of factors is not. Nothing depends on the choice of factors: B G⁻¹ and G A give the same.

    Each parameter is read once, and of all clients one pair of factors is held at a time.

    Args:
        selections: names of parameters; a pair is in one if a factor of it is.
        progress: called with how many of the P parameters are done.

    Raises:
        FedscopeError: the round has no clients, or no start.
    """
    clients = len(round_.weights)
    total = np.zeros((clients, clients))
    parts = [np.zeros_like(total) for _ in selections]
    done, size = 0, round_.layout.size

    def take(names: Sequence[str], products: Array, read: int) -> None:
        nonlocal done
        sums = [part for part, chosen in zip(parts, selections, strict=True) if any(name in chosen for name in names)]
        for part in (total, *sums):
            part += products
        done += read
        if progress is not None:
            progress(done, size)

    for product in adapters.products:
        own, sent = factors_of(round_, product), factors_of(round_, product, "start")
        changes = differences(own.a, own.b, sent.a[0], sent.b[0])
        del own  # as large as half of what they are compared by
        take((product.a, product.b), inner_products(*changes), sent.a.size + sent.b.size)
    for name in adapters.dense:
        moved = read_parameter(round_, name).astype(np.float64) - read_parameter(round_, name, "start")
        take((name,), moved @ moved.T, moved.shape[1])
    return [with_mean(part, round_.weights) for part in (*parts, total)]


def with_mean(products: Array, p: Array) -> Array:
    """Append the products of Σ_i p_i Δ_i, [C+1, C+1].

    >>> with_mean(np.diag([1.0, 4.0]), np.array([0.5, 0.5])).tolist()
    [[1.0, 0.0, 0.5], [0.0, 4.0, 2.0], [0.5, 2.0, 1.25]]
    """
    part = taking_part(p)
    mean = products[:, part] @ p[part]
    square = np.maximum(0.0, p[part] @ mean[part]).reshape(1, 1)
    return np.block([[products, mean[:, None]], [mean[None, :], square]])
