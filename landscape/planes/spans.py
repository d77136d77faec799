"""Planes in weight space: through three models, near many (principal components), or in random directions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...checkpoints import FedscopeError, Model, Weights, mean, stack
from ..evaluation.geometry import Basis, dot, norm, same_layout
from .components import Components, principal_components
from .directions import filter_normalised, gaussian_direction

#: (a, b, distance from the plane)
Place = tuple[float, float, float]


@dataclass(frozen=True, eq=False)
class Span:
    """A plane, and the models it was made from.

    Attributes:
        kind: ``models``, ``clients``, ``trajectory`` or ``random``.
        members: the models to be measured exactly, each with its role: ``anchor``, ``mean``, ``path`` or ``origin``.
        bases: what a point is a combination of, [P] each.
        coefficients: of the point (a, b).
        places: coordinates of models and their distances from the plane.
        cos_uv: of the two axes as computed, 0 up to rounding.
        reach: half the default range; None where the models' places say it.
        about: further provenance.
    """

    kind: str
    members: tuple[tuple[Model, str], ...]
    bases: tuple[Weights, ...]
    coefficients: Callable[[float, float], tuple[float, ...]]
    places: Callable[[Sequence[Model]], list[Place]]
    cos_uv: float
    reach: float | None
    about: dict[str, Any]


def through_models(models: Sequence[Model]) -> Span:
    """The plane through three models, the first at the origin, the second on the a axis; see :class:`Basis`.

    Raises:
        FedscopeError: not three, different layouts, values that are not finite, identical or collinear models.
    """
    if len(models) != 3:
        raise FedscopeError(f"a plane goes through three models, but {len(models)} were given")
    labels = [model.label for model in models]
    corners = [model.weights for model in models]
    basis = Basis.of(corners, labels)
    frame, cos_uv, angle = basis.frame, basis.cos_uv, basis.angle

    def places(shown: Sequence[Model]) -> list[Place]:
        # made anew, because its float64 vectors are not needed between
        again = Basis.of(corners, labels)
        return [again.project(model.weights.parameters) for model in shown]

    return Span(
        kind="models",
        members=(*((model, "anchor") for model in models), (mean_of(models), "mean")),
        bases=tuple(corners),
        coefficients=frame.coefficients,
        places=places,
        cos_uv=cos_uv,
        reach=None,
        about={"u_length": frame.u_length, "v_length": frame.v_length, "angle": angle},
    )


def near_clients(models: Sequence[Model]) -> Span:
    """The plane through the mean of C models along their first two principal components.

    Of all planes it leaves the least of their squared distances from their mean unseen; the shares that the two axes
    show are in ``about["explained"]``.

    Raises:
        FedscopeError: fewer than three models, different layouts, values that are not finite, models on one line.
    """
    middle = mean_of(models)
    components = _components(models, middle, "clients")
    members = (*((model, "anchor") for model in models), (middle, "mean"))
    return _along(components, middle, "clients", members)


def along_trajectory(models: Sequence[Model]) -> Span:
    """The plane through the last of several models of a run along the first two principal components of them all.

    Source: Li et al., NeurIPS 2018, section 7; here the coordinates are distances, and every model has its distance
    from the plane and its own loss.

    Raises:
        FedscopeError: as for :func:`near_clients`.
    """
    components = _components(models, models[-1], "models of the trajectory")
    return _along(components, models[-1], "trajectory", tuple((model, "path") for model in models))


def random_directions(model: Model, seed: int = 0) -> Span:
    """The plane through one model in two random Gaussian directions, filter-normalised, then made orthogonal.

    The default range is once the length of the first direction to either side, the unit of Li et al., NeurIPS 2018.

    Raises:
        FedscopeError: values that are not finite; a model without filters.
    """
    w = model.weights
    _finite(model, "no direction starts there")
    u, v = (filter_normalised(gaussian_direction(w.layout, seed, i), w) for i in (0, 1))
    u_length, v_length = norm(u), norm(v)
    if not min(u_length, v_length) > 0:
        raise FedscopeError(
            f"{model.label} has no filter that is not zero, so directions cannot be normalised by its filters; "
            "take a trained model"
        )
    cosine = dot(u, v) / (u_length * v_length)
    u /= u_length
    for _ in range(2):
        v -= dot(v, u) * u
    v /= norm(v)
    components = Components(w.parameters, u, v, (float("nan"), float("nan")))
    about = {"direction_lengths": [u_length, v_length], "directions_cosine": cosine, "directions_seed": seed}
    return _along(components, model, "random", ((model, "origin"),), reach=u_length, about=about)


def span_of(kind: str, models: Sequence[Model], seed: int = 0) -> Span:
    """The plane of a kind: ``models``, ``clients``, ``trajectory``, or ``random`` from one model.

    Raises:
        FedscopeError: models that span none.
    """
    if kind == "random":
        return random_directions(models[0], seed)
    return {"models": through_models, "clients": near_clients, "trajectory": along_trajectory}[kind](models)


def mean_of(models: Sequence[Model]) -> Model:
    """The unweighted mean of models, labelled so."""
    label = ", ".join(model.label for model in models)
    return Model("mean", f"mean({label})", mean(stack([model.weights for model in models])))


def _components(models: Sequence[Model], origin: Model, what: str) -> Components:
    if len(models) < 3:
        raise FedscopeError(f"a plane near {what} needs at least three models, but {len(models)} were given")
    same_layout([model.weights for model in models], [model.label for model in models])
    for model in models:
        _finite(model, f"it says nothing about a plane near the {what}; leave it out")
    return principal_components([model.weights.parameters for model in models], origin.weights.parameters, what)


def _finite(model: Model, consequence: str) -> None:
    broken = int(np.count_nonzero(~np.isfinite(model.weights.parameters)))
    if broken:
        raise FedscopeError(
            f"{model.label} has {broken} of {model.weights.layout.size} parameters that are not finite, so "
            f"{consequence}"
        )


def _along(
    components: Components,
    origin: Model,
    kind: str,
    members: tuple[tuple[Model, str], ...],
    *,
    reach: float | None = None,
    about: dict[str, Any] | None = None,
) -> Span:
    axes = [Weights(origin.weights.layout, axis, {}) for axis in (components.u_hat, components.v_hat)]
    explained = [] if np.isnan(components.explained).any() else [("explained", list(components.explained))]
    return Span(
        kind=kind,
        members=members,
        bases=(origin.weights, *axes),
        coefficients=lambda a, b: (1.0, a, b),
        places=lambda models: [components.project(model.weights.parameters) for model in models],
        cos_uv=dot(components.u_hat, components.v_hat),
        reach=reach,
        about={**(about or {}), **dict(explained), "origin": origin.label},
    )
