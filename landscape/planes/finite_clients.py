"""Models of planes, without clients that diverged where a plane takes a round's clients by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...analysis.settings import EvaluationConfig
from ...checkpoints import FedscopeError, FedscopeWarning, Weights, load_model
from ...checkpoints.io.errors import list_few
from ...checkpoints.io.quiet import without_warnings
from ...checkpoints.io.warn_user import warn_user
from ...training.inputs.models import ModelLike, ResolvedModels, names_of, resolve_models
from .inputs import PlaneModels

#: models that span a plane
FEWEST = 3


def resolve_finite(
    planes: Sequence[PlaneModels], source: EvaluationConfig
) -> tuple[ResolvedModels, tuple[PlaneModels, ...]]:
    """Read the models of planes, and return these without clients whose models are not finite.

    Of a plane near a round's clients they are left out. Of one through three clients others of the round,
    :attr:`~.inputs.PlaneModels.spare`, take their places. Other models are what was asked for and stay.

    Raises:
        FedscopeError: fewer than three clients are left.
    """
    resolved = resolve_models(_every(planes), source)
    left, found = list(resolved.models), []
    for plane in planes:
        if plane.kind != "clients" and not plane.spare:  # whose models may be read from the disk each time
            found.append(plane)
        else:
            found.append(_without_broken(plane, [_is_finite(one.weights) for one in left[: len(plane.members)]]))
        del left[: len(plane.members) + len(plane.shown)]
    if all(one is plane for one, plane in zip(found, planes, strict=True)):
        return resolved, tuple(planes)
    with without_warnings(FedscopeWarning):  # of which all has been said
        return resolve_models(_every(found), source), tuple(found)


def without_broken(plane: PlaneModels) -> PlaneModels:
    """Leave the same clients out before anything else is asked of the others, such as on whose data they are measured.

    Raises:
        FedscopeError: as :func:`resolve_finite`.
    """
    if plane.kind != "clients" and not plane.spare:
        return plane
    return _without_broken(plane, [_is_finite(load_model(name).weights) for name in names_of(plane.members)])


def _every(planes: Sequence[PlaneModels]) -> list[ModelLike]:
    return [model for plane in planes for model in (*plane.members, *plane.shown)]


def _without_broken(plane: PlaneModels, finite: Sequence[bool]) -> PlaneModels:
    if all(finite) or (plane.kind != "clients" and not plane.spare):
        return plane
    names = names_of(plane.members)
    kept = [member for member, is_finite in zip(plane.members, finite, strict=True) if is_finite]
    broken = [name for name, is_finite in zip(names, finite, strict=True) if not is_finite]
    for address in plane.spare:
        if len(kept) == FEWEST:
            break
        (kept if _is_finite(load_model(address).weights) else broken).append(address)
    where, ids = names[0].rpartition("/")[0], [name.rpartition("-")[2] for name in broken]
    several = len(ids) > 1
    whose = f"the model{'s' if several else ''} of client{'s' if several else ''} {list_few(ids)}"
    said = f"{whose} {'are' if several else 'is'} not finite"
    if len(kept) < FEWEST:
        raise FedscopeError(
            f"{where}: {said}, so {len(kept)} of {len(names) + len(plane.spare)} clients are left, but a plane needs "
            "three; ask for a round from before they broke"
        )
    said += f", so {'they are' if several else 'it is'} left out"
    warn_user(f"{where}: {said}")
    return replace(plane, members=tuple(kept), left_out=said)


def _is_finite(weights: Weights) -> bool:
    """Buffers do not tell: a causal mask of -inf is one of a model that is in order."""
    return bool(np.isfinite(weights.parameters).all())
