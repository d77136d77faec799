"""Planes through several models along one pair of directions: the same two unit vectors, from an origin each."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ....checkpoints import FedscopeError, Model, Weights
from ....checkpoints.io.torch_state import ordinary_tensors
from ....evaluation.resumable import digest
from ....evaluation.tied_parameters import tied_names
from ....evaluation.validation import same_layout
from .orthonormal_axes import Axes, norm, refuse_broken, shared_components
from .plane_bases import PlaneBasis, along, around, mean_of, random_axes

if TYPE_CHECKING:
    from torch import nn

#: of planes that have the same directions
KINDS = ("clients", "random")


@ordinary_tensors()
def on_same_axes(
    kind: str, groups: Sequence[Sequence[Model]], seed: int = 0, module: nn.Module | None = None
) -> list[PlaneBasis]:
    """Build a plane for each group of models, all along the same two directions û and v̂: w_g + a û + b v̂.

    No group is the first among them: their order changes neither direction. Of one group the plane is
    :func:`~.plane_bases.near_clients` or :func:`~.plane_bases.random_directions`, bit for bit.

    - ``clients``: a group is a round's clients, and w_g their mean. The directions are the principal components of the
      clients of all groups, each about its own mean and weighted so that every group counts alike: those along which
      the clients differ most that are averaged.
    - ``random``: a group is one model w_g. The directions are random and orthogonal in every filter, with filters as
      long as those of the models are in the root mean square.

    Args:
        kind: ``clients`` or ``random``.
        groups: of models, for each plane.
        seed: of random directions.
        module: the architecture, as of :func:`~.plane_bases.random_directions`.

    Raises:
        FedscopeError: another kind; models of different layouts, or with values that are not finite; fewer than three
            clients.

    >>> import tempfile, fedscope
    >>> folder = tempfile.TemporaryDirectory()
    >>> run = fedscope.train(clients=4, participation=1, rounds=2, out=f"{folder.name}/run")
    >>> groups = [[fedscope.load_model(f"{run.path}@{t}/client-{k}") for k in range(4)] for t in (1, 2)]
    >>> len(fedscope.on_same_axes("clients", groups))
    2
    >>> folder.cleanup()
    """
    if kind not in KINDS:
        raise FedscopeError(f"planes on the same axes are of {' or '.join(KINDS)}, not of {kind!r}")
    models = [model for group in groups for model in group]
    same_layout(models)
    if kind == "random":
        spans = _random([group[0] for group in groups], seed, {} if module is None else tied_names(module))
    else:
        spans = _near_clients(groups)
    # all that the axes depend on, which the points that an interrupted plane has kept depend on, too
    made_from = [digest(model.weights) for model in models]
    return [
        replace(
            span,
            about={**span.about, "same_axes": made_from, "origin_norm": norm(span.bases[0].parameters)},
        )
        for span in spans
    ]


def _near_clients(groups: Sequence[Sequence[Model]]) -> list[PlaneBasis]:
    for group in groups:
        if len(group) < 3:
            raise FedscopeError(
                f"a plane near clients needs at least three models, but {_round_of(group)} has {len(group)}"
            )
        for model in group:
            refuse_broken(
                model.label, model.weights.parameters, "it says nothing about a plane near the clients; leave it out"
            )
    rows = [[model.weights.parameters for model in group] for group in groups]
    names = ["clients"] if len(groups) == 1 else [f"clients of {_round_of(group)}" for group in groups]
    u_hat, v_hat, shares = shared_components(rows, names)
    spans = []
    for group, shown in zip(groups, shares, strict=True):
        middle = mean_of(group)
        members = (*((model, "anchor") for model in group), (middle, "mean"))
        axes = Axes(middle.weights.parameters, u_hat, v_hat)
        spans.append(along(axes, middle, "clients", members, {"explained": list(shown)}))
    return spans


def _random(models: Sequence[Model], seed: int, tied: Mapping[str, Collection[str]]) -> list[PlaneBasis]:
    for model in models:
        refuse_broken(model.label, model.weights.parameters, "no direction starts there")
    layout = models[0].weights.layout
    squares = np.zeros(layout.size)
    for model in models:
        squares += np.square(model.weights.parameters, dtype=np.float64)
    typical = Weights(layout, np.sqrt(squares / len(models)), {})
    names = " and ".join(model.label for model in models)
    u_hat, v_hat, about = random_axes(typical, names, seed, tied)
    return [around(model, u_hat, v_hat, dict[str, Any](about)) for model in models]


def _round_of(group: Sequence[Model]) -> str:
    """``ima@60`` of its clients."""
    return group[0].label.rpartition("/")[0] or group[0].label
