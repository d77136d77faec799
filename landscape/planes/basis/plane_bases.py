"""Planes in weight space: through three models, near many (principal components), or in random directions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ....checkpoints import FedscopeError, Layout, Model, Weights, mean, stack
from ....checkpoints.io.torch_state import ordinary_tensors
from ....evaluation.tied_parameters import tie_again, tied_names
from ....evaluation.validation import same_layout, same_model
from .orthonormal_axes import Axes, Basis, coefficients_of, dot, norm, principal_components, refuse_broken

if TYPE_CHECKING:
    from torch import nn

#: (a, b, distance from the plane)
PlanePoint = tuple[float, float, float]


@dataclass(frozen=True, eq=False)
class PlaneBasis:
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
        reach_b: half that of the second axis, where it is another.
    """

    kind: str
    members: tuple[tuple[Model, str], ...]
    bases: tuple[Weights, ...]
    coefficients: Callable[[float, float], tuple[float, ...]]
    places: Callable[[Sequence[Model]], list[PlanePoint]]
    cos_uv: float
    reach: float | None
    about: dict[str, Any]
    reach_b: float | None = None

    @property
    def reaches(self) -> tuple[float, float] | None:
        """Half the default range of each axis; None where the models' places say it."""
        if self.reach is None:
            return None
        return self.reach, self.reach if self.reach_b is None else self.reach_b


#: its name before, which stays for one version
Span = PlaneBasis


@ordinary_tensors()
def through_models(models: Sequence[Model]) -> PlaneBasis:
    """Build the plane through three models, the first at the origin, the second on the a axis; see :class:`Basis`.

    Raises:
        FedscopeError: not three, different layouts, values that are not finite, identical or collinear models.

    >>> import tempfile, fedscope
    >>> folder = tempfile.TemporaryDirectory()
    >>> run = fedscope.train(clients=4, participation=1, rounds=2, out=f"{folder.name}/run")
    >>> clients = [fedscope.load_model(f"{run.path}@2/client-{k}") for k in range(4)]
    >>> fedscope.through_models(clients[:3]).kind
    'models'
    >>> folder.cleanup()
    """
    models = list(models)
    if len(models) != 3:
        raise FedscopeError(f"a plane goes through three models, but {len(models)} were given")
    same_layout(models)
    corners = [model.weights for model in models]

    def basis() -> Basis:
        w_1, w_2, w_3 = (weights.parameters for weights in corners)
        return Basis.through(w_1, w_2, w_3, [model.label for model in models])

    # its float64 vectors are made anew where they are needed, and not kept between
    try:
        axes = basis()
    except FedscopeError:
        for one, other in combinations(models, 2):
            if (words := same_model(one, other)) is not None:
                raise FedscopeError(f"{words}; a plane needs three whose parameters differ") from None
        raise
    u_length, v_length, slope, angle, cos_uv = axes.u_length, axes.v_length, axes.slope, axes.angle, axes.cos_uv
    del axes

    def places(shown: Sequence[Model]) -> list[PlanePoint]:
        again = basis()
        return [again.project(model.weights.parameters) for model in shown]

    return PlaneBasis(
        kind="models",
        members=(*((model, "anchor") for model in models), (mean_of(models), "mean")),
        bases=tuple(corners),
        coefficients=partial(coefficients_of, u_length, v_length, slope),
        places=places,
        cos_uv=cos_uv,
        reach=None,
        about={"u_length": u_length, "v_length": v_length, "angle": angle},
    )


@ordinary_tensors()
def near_clients(models: Sequence[Model]) -> PlaneBasis:
    """Build the plane through the mean of C models along their first two principal components.

    Of all planes it leaves the least of their squared distances from their mean unseen; the shares that the two axes
    show are in ``about["explained"]``.

    Raises:
        FedscopeError: fewer than three models, different layouts, values that are not finite, models on one line.

    >>> import tempfile, fedscope
    >>> folder = tempfile.TemporaryDirectory()
    >>> run = fedscope.train(clients=4, participation=1, rounds=2, out=f"{folder.name}/run")
    >>> clients = [fedscope.load_model(f"{run.path}@2/client-{k}") for k in range(4)]
    >>> bool(sum(fedscope.near_clients(clients).about["explained"]) < 1)
    True
    >>> folder.cleanup()
    """
    models = list(models)
    middle = mean_of(models)
    members = (*((model, "anchor") for model in models), (middle, "mean"))
    return _along_components(models, middle, "clients", members, "clients")


@ordinary_tensors()
def along_trajectory(models: Sequence[Model]) -> PlaneBasis:
    """Build the plane through the last of several models of a run along the first two principal components of them all.

    >>> import tempfile, fedscope
    >>> folder = tempfile.TemporaryDirectory()
    >>> run = fedscope.train(clients=4, participation=1, rounds=2, out=f"{folder.name}/run")
    >>> path = [fedscope.load_model(f"{run.path}@{one}") for one in ("1/start", "1/global", "2/global")]
    >>> fedscope.along_trajectory(path).kind
    'trajectory'
    >>> folder.cleanup()

    Source: Li et al., NeurIPS 2018, section 7; here the coordinates are distances, and every model has its distance
    from the plane and its own loss.

    Raises:
        FedscopeError: as for :func:`near_clients`.
    """
    models = list(models)
    members = tuple((model, "path") for model in models)
    return _along_components(models, models[-1], "trajectory", members, "models of the trajectory")


@ordinary_tensors()
def random_directions(model: Model, seed: int = 0, module: nn.Module | None = None) -> PlaneBasis:
    """Build the plane through one model in two random Gaussian directions, both filter-normalised, and orthogonal.

    The second is made orthogonal to the first within each filter, so that both keep ‖d_f‖ = ‖w_f‖ and ⟨u, v⟩ is a sum
    of zeros: a change of scale between layers that leaves the function as it is leaves the surface as it is. A filter
    of a single entry has no second direction and moves along the first axis alone, so the second is shorter then.

    The default range of each axis is once the length of its direction to either side, the unit of Li et al., NeurIPS
    2018.

    Args:
        seed: of the directions.
        module: the architecture, if it holds tensors under several names (tied weights): all names of one have the same
            direction, that of the last.

    Raises:
        FedscopeError: values that are not finite; a model without filters.

    >>> import tempfile, fedscope
    >>> folder = tempfile.TemporaryDirectory()
    >>> run = fedscope.train(clients=4, participation=1, rounds=2, out=f"{folder.name}/run")
    >>> plane = fedscope.random_directions(fedscope.load_model(f"{run.path}@2/global"))
    >>> u, v = plane.about["direction_lengths"]
    >>> abs(u - v) < 1e-6 * u
    True
    >>> folder.cleanup()
    """
    refuse_broken(model.label, model.weights.parameters, "no direction starts there")
    u, v, about = random_axes(model.weights, model.label, seed, {} if module is None else tied_names(module))
    return around(model, u, v, about)


def random_axes(
    w: Weights, name: str, seed: int, tied: Mapping[str, Collection[str]]
) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Draw two directions that are normalised by the filters of ``w``, as unit vectors, and what is said of them.

    Args:
        tied: of each name of a tensor that has several all of them; they have one direction.

    Raises:
        FedscopeError: no filters that span two; ``name`` is whose they are.
    """
    first, second = (_tie(gaussian_direction(w.layout, seed, i), w.layout, tied) for i in (0, 1))
    u, drawn = filter_normalised(first, w), filter_normalised(second, w)
    v = filter_normalised(_orthogonal_in_filters(second, first, w), w)
    u_length, v_length = norm(u), norm(v)
    if not u_length > 0:
        raise FedscopeError(
            f"{name} has no filter that is not zero, so directions cannot be normalised by its filters; "
            "take a trained model"
        )
    if not v_length > 0:
        raise FedscopeError(
            f"{name} has no filter of two entries that is not zero, so there is no second direction in its "
            "filters; draw `fedscope line` through it and another model"
        )
    cosine = dot(u, drawn) / (u_length * norm(drawn))
    u /= u_length
    v /= v_length
    about = {
        "direction_lengths": [u_length, v_length],
        "directions_cosine": cosine,
        "directions_seed": seed,
    }
    return u, v, about


def around(model: Model, u_hat: np.ndarray, v_hat: np.ndarray, about: dict[str, Any]) -> PlaneBasis:
    """Build the plane through one model along two random directions, of which ``about`` tells."""
    axes = Axes(model.weights.parameters, u_hat, v_hat)
    u_length, v_length = about["direction_lengths"]
    plane = along(axes, model, "random", ((model, "origin"),), about, reach=u_length)
    # else both lengths are one, up to rounding
    return replace(plane, reach_b=v_length) if has_single_entries(model.weights.layout) else plane


def has_single_entries(layout: Layout) -> bool:
    """Check whether filters have a single entry, which the second of two random directions leaves as it is: these have
    two lengths then, whose ratio changes with the scale between layers.

    >>> import torch
    >>> [has_single_entries(Layout.of(torch.nn.Linear(inputs, 3))) for inputs in (1, 2)]
    [True, False]
    """
    return any(entries == 1 for (_, entries), _ in _filters(layout))


def span_of(kind: str, models: Sequence[Model], seed: int = 0, module: nn.Module | None = None) -> PlaneBasis:
    """Build the plane of a kind: ``models``, ``clients``, ``trajectory``, or ``random`` from one model.

    Raises:
        FedscopeError: models that span none.
    """
    if kind == "random":
        return random_directions(models[0], seed, module)
    return {"models": through_models, "clients": near_clients, "trajectory": along_trajectory}[kind](models)


def mean_of(models: Sequence[Model]) -> Model:
    """Compute the unweighted mean of models, labelled so."""
    label = ", ".join(model.label for model in models)
    return Model("mean", f"mean({label})", mean(stack([model.weights for model in models])))


def _along_components(
    models: Sequence[Model], origin: Model, kind: str, members: tuple[tuple[Model, str], ...], what: str
) -> PlaneBasis:
    if len(models) < 3:
        raise FedscopeError(f"a plane near {what} needs at least three models, but {len(models)} were given")
    same_layout(models)
    rows = [model.weights.parameters for model in models]
    for model, row in zip(models, rows, strict=True):
        refuse_broken(model.label, row, f"it says nothing about a plane near the {what}; leave it out")
    axes = principal_components(rows, origin.weights.parameters, what)
    return along(axes, origin, kind, members, {"explained": list(axes.explained)})


def along(
    axes: Axes,
    origin: Model,
    kind: str,
    members: tuple[tuple[Model, str], ...],
    about: dict[str, Any],
    reach: float | None = None,
) -> PlaneBasis:
    """Build the plane through a model along two axes at its parameters."""
    directions = [Weights(origin.weights.layout, axis, {}) for axis in (axes.u_hat, axes.v_hat)]
    return PlaneBasis(
        kind=kind,
        members=members,
        bases=(origin.weights, *directions),
        coefficients=lambda a, b: (1.0, a, b),
        places=lambda models: [axes.project(model.weights.parameters) for model in models],
        cos_uv=axes.cos_uv,
        reach=reach,
        about={**about, "origin": origin.label},
    )


def gaussian_direction(layout: Layout, seed: int, number: int = 0) -> np.ndarray:
    """A standard normal direction d, float64 [P]; direction ``number`` of ``seed`` is the same in every program.

    >>> import torch
    >>> layout = Layout.of(torch.nn.Linear(2, 1))
    >>> gaussian_direction(layout, 0).shape, gaussian_direction(layout, 0)[0] == gaussian_direction(layout, 1)[0]
    ((3,), np.False_)
    """
    return np.random.default_rng([seed, number]).standard_normal(layout.size)


def _tie(direction: np.ndarray, layout: Layout, tied: Mapping[str, Collection[str]]) -> np.ndarray:
    """Give all names of a tensor the direction of its last name, float64 [P]: a point has the numbers of that one, and
    a model on the plane has the same numbers under all."""
    return tie_again(Weights(layout, direction, {}), tied).parameters


def filter_normalised(direction: np.ndarray, model: Weights) -> np.ndarray:
    """Compute the direction with every filter as long as the model's own: d_f <- d_f ‖w_f‖ / ‖d_f‖, float64 [P].

    A filter is a row of a parameter's first dimension: an output channel's kernel, an output's incoming weights.
    Parameters of one dimension (biases, scales and shifts of normalization layers) get 0: a change of scale between
    layers, which leaves the function as it is, then leaves the surface as it is too. A filter of zeros stays zero.

    Source: Li et al., "Visualizing the Loss Landscape of Neural Nets", NeurIPS 2018, section 4.

    >>> import torch
    >>> layout = Layout.of(torch.nn.Linear(2, 2))
    >>> w = Weights(layout, np.array([3.0, 4.0, 0.0, 2.0, 7.0, 7.0], np.float32), {})
    >>> filter_normalised(np.array([1.0, 0.0, 0.0, -5.0, 1.0, 1.0]), w).tolist()
    [5.0, 0.0, 0.0, -2.0, 0.0, 0.0]
    """
    scaled = np.zeros(model.layout.size)
    for shape, where in _filters(model.layout):
        own = model.parameters[where].reshape(shape).astype(np.float64)
        rows = direction[where].reshape(shape)
        length = np.linalg.norm(rows, axis=1, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            factor = np.where(length > 0, np.linalg.norm(own, axis=1, keepdims=True) / length, 0.0)
        scaled[where] = (rows * factor).ravel()
    return scaled


def _orthogonal_in_filters(direction: np.ndarray, first: np.ndarray, model: Weights) -> np.ndarray:
    """Compute the direction less, in each filter, what lies along the first one there, float64 [P]; 0 in a filter of
    one entry.

    >>> import torch
    >>> layout = Layout.of(torch.nn.Linear(2, 1, bias=False))
    >>> _orthogonal_in_filters(np.array([3.0, 4.0]), np.array([0.0, 2.0]), Weights(layout, np.ones(2), {})).tolist()
    [3.0, 0.0]
    """
    rest = np.zeros(model.layout.size)
    for shape, where in _filters(model.layout):
        if shape[1] < 2:
            continue
        rows, along = direction[where].reshape(shape), first[where].reshape(shape)
        unit = along / np.linalg.norm(along, axis=1, keepdims=True)
        for _ in range(2):  # once more removes what rounding left
            rows = rows - (rows * unit).sum(axis=1, keepdims=True) * unit
        rest[where] = rows.ravel()
    return rest


def _filters(layout: Layout) -> Iterator[tuple[tuple[int, int], slice]]:
    """(filters, entries of one) and place of every parameter that has filters."""
    for entry in layout.parameters:
        if len(entry.shape) > 1:
            yield (entry.shape[0], prod(entry.shape[1:])), layout.slices[entry.name]
