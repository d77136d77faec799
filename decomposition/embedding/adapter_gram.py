"""The Gram matrix of models that are adapters: of what they add, which does not depend on the choice of factors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np

from ...checkpoints import FedscopeError, Run
from ...checkpoints.models.products import Adapters, Product
from ..adapters.inner_products import differences, inner_products
from ..adapters.recorded_adapters import Factors, adapters_of_run, factors_of, read_parameter
from .gram import Gram
from .shown_models import Models, known_layers, models_of


def adapter_gram(
    asked: Sequence[tuple[Run, int]],
    *,
    layers: Collection[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Gram:
    """Compute the Gram matrix of :func:`~fedscope.decomposition.embedding.gram.gram` for adapters.

        g_ij = ⟨s (B_i A_i − B_r A_r), s (B_j A_j − B_r A_r)⟩, summed over the pairs of factors

    with the scale s of each run, and of parameters beside the pairs their own products. Of all models one pair is held
    at a time.

    Args:
        asked, layers, progress: as there; a pair is compared if a factor of it is among the layers.

    Raises:
        FedscopeError: as there; a run whose models are no adapters.
    """
    models = models_of(asked)
    chosen = known_layers(models, layers)
    of_rounds = [_adapters(run) for run, _ in asked]
    products = of_rounds[0].chosen(chosen)
    dense = [name for name in of_rounds[0].dense if name in chosen]
    matrix, done = np.zeros((len(models.points),) * 2), 0
    for product in products:
        rows, reference = _factors(models, of_rounds, product)
        changes = differences(rows.a, rows.b, reference.a[0], reference.b[0])
        del rows  # as large as half of what they are compared by
        matrix += inner_products(*changes)
        done += 1
        if progress is not None:
            progress(done, len(products) + len(dense))
    for name in dense:
        values = [read_parameter(round_, name) for round_ in models.rounds]
        values += [read_parameter(models.rounds[at], name, which) for at, which in models.servers]
        start = read_parameter(models.rounds[0], name, "start") if _has_start(models) else values[0][:1]
        moved = np.concatenate(values).astype(np.float64) - start
        matrix += moved @ moved.T
        done += 1
        if progress is not None:
            progress(done, len(products) + len(dense))
    broken = ~np.isfinite(np.diagonal(matrix))
    if broken.any():
        raise FedscopeError(
            f"{models.address(int(broken.argmax()))} has parameters that are not finite, so it has no distance to "
            "other models; ask for other rounds"
        )
    names = (*(name for product in products for name in (product.a, product.b)), *dense)
    return Gram(models.points, matrix, tuple(name for name in models.layout.slices if name in names))


def _adapters(run: Run) -> Adapters:
    found = adapters_of_run(run)
    if found is None:
        raise FedscopeError(f"the models of {run.path} are no adapters, so they have no products; ask for another run")
    return found


def _has_start(models: Models) -> bool:
    return "start" in models.rounds[0].models


def _factors(models: Models, of_rounds: Sequence[Adapters], product: Product) -> tuple[Factors, Factors]:
    """Factors of a product in all models, a row a point, and in what they are compared with; each with its run's
    scale."""
    place = of_rounds[0].products.index(product)
    own = [one.products[place] for one in of_rounds]
    rows = [factors_of(round_, one) for round_, one in zip(models.rounds, own, strict=True)]
    rows += [factors_of(models.rounds[at], own[at], which) for at, which in models.servers]
    joined = Factors(np.concatenate([one.a for one in rows]), np.concatenate([one.b for one in rows]))
    reference = factors_of(models.rounds[0], own[0], "start") if _has_start(models) else joined[:1]
    return joined, reference
