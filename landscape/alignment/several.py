"""Several networks whose units are brought into one order: that of the first, or of the mean of those before."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from ...checkpoints import FedscopeError
from .apply import Mover, Permutation, identity
from .groups import Specification
from .matching import match_activations, match_weights

#: what units are matched by, and to what
BY = ("weights", "activations")
TO = ("first", "mean")


def align_arrays(
    specification: Specification,
    networks: Sequence[Mapping[str, np.ndarray]],
    *,
    by: str = "weights",
    to: str = "first",
    module: nn.Module | None = None,
    batches: Sequence[Tensor] = (),
    option: str = "--by",
) -> tuple[list[dict[str, np.ndarray]], list[tuple[Permutation, ...]]]:
    """Bring the units of networks into the order of the first one's.

    Args:
        networks: tensors by name; the first stays as it is.
        by: ``weights`` or ``activations``, which need ``module`` and ``batches`` of inputs.
        option: what asks for ``by``, in sentences.
        to: ``first``: each is matched to the first; ``mean``: to the mean of those that are aligned already.

    Returns:
        The networks, and how the units of each have moved.
    """
    mover = Mover(specification)
    aligned = [dict(networks[0])]
    moves = [tuple(identity(group) for group in specification.groups)]
    for own in networks[1:]:
        reference = aligned[0] if to == "first" else _finite_mean(aligned, mover)
        if by == "weights":
            found = match_weights(specification, reference, own)
        else:
            assert module is not None
            both = loaded(module, reference), loaded(module, own)
            found = match_activations(specification, *both, batches, option=option)
        aligned.append(mover.arrays(own, found))
        moves.append(found)
    return aligned, moves


def _finite_mean(networks: Sequence[Mapping[str, np.ndarray]], mover: Mover) -> dict[str, np.ndarray]:
    """As :func:`mean_of`.

    Raises:
        FedscopeError: a sum of finite numbers that is none, in a tensor that holds units.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        made = mean_of(networks)
    wrong = (name for name, values in made.items() if mover.moves(name) and not np.isfinite(values).all())
    if name := next(wrong, None):
        raise FedscopeError(
            f"the mean of {len(networks)} models is not finite in {name}, so no units can be matched to it; give --to "
            "first"
        )
    return made


def mean_of(networks: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Return the mean of networks; whole numbers are the first one's."""
    return {
        name: np.mean([one[name] for one in networks], axis=0, dtype=np.float64).astype(values.dtype)
        if np.asarray(values).dtype.kind == "f"
        else values
        for name, values in networks[0].items()
    }


def loaded(module: nn.Module, arrays: Mapping[str, np.ndarray]) -> nn.Module:
    """Return a copy of a module with other numbers, in evaluation mode."""
    made = copy.deepcopy(module).eval()
    named = made.state_dict()  # which a module whose tensors have other names than its layers gives whole
    with torch.no_grad():
        for name, values in arrays.items():
            # numpy makes a counter, which has no dimension, a row
            named[name].copy_(torch.as_tensor(np.ascontiguousarray(values)).reshape(np.shape(values)))
    return made


def arrays_of(module: nn.Module, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the tensors of a module by these names."""
    state = module.state_dict()
    return {name: state[name].detach().cpu().numpy().copy() for name in names}
