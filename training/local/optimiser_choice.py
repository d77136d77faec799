"""Which local optimisers a client method takes, and what their state takes of a run's room."""

from __future__ import annotations

from dataclasses import fields
from math import isclose
from typing import TYPE_CHECKING

from ...checkpoints import FedscopeError, nearest
from ...checkpoints.io.warn_user import warn_user
from ..import_string import is_call
from ..settings.missing_code import is_given
from ..settings.own_code import OwnCode
from ..settings.registry import method_name

if TYPE_CHECKING:
    from torch import nn

    from ..methods.base import ClientMethod

#: fedscope's own
OPTIMISERS = ("sgd", "adamw", "muon")
#: classes of torch's whose steps are about as long as the rate, whatever the gradient
LIKE_ADAM = frozenset({"Adam", "AdamW", "Adamax", "Muon", "NAdam", "RAdam", "RMSprop", "SparseAdam"})


def refuse_optimiser(client: ClientMethod) -> None:
    """Refuse an optimiser that there is not, or that does not go with a client method or its other settings.

    Raises:
        FedscopeError: see above.
    """
    if not is_given(client):  # which can be read, and is refused where it is to train
        return
    name, place = client.local_optimiser, f"client.optimiser = {str(client.optimiser)!r}"
    if name == "sgd":
        if client.optimiser_state == "kept":
            raise FedscopeError(
                f"client.optimiser_state = 'kept' is for adamw, muon or code of your own, and {place}: SGD's momentum "
                "is fresh each round; leave it out"
            )
        return
    if name not in OPTIMISERS and not isinstance(name, OwnCode) and not is_call(name):
        raise FedscopeError(
            f"{place} is not an optimiser{nearest(name, OPTIMISERS)}; it takes {', '.join(OPTIMISERS)}, or "
            "module:Factory, code of your own"
        )
    if not client.any_optimiser:
        why = client.why_sgd or (
            "does not say that it goes with others; if its formula does, and it steps with local_sgd, write "
            "any_optimiser: ClassVar[bool] = True in its class"
        )
        raise FedscopeError(
            f"{place} does not go with client.method = {method_name(client)!r}, which {why}; give --set "
            "client.optimiser=sgd, or --client sgd"
        )
    default = next(key.default for key in fields(client) if key.name == "momentum")
    if client.momentum not in (0, default):
        raise FedscopeError(
            f"client.momentum = {client.momentum:g} is SGD's, and {place} has none of it; leave it out, or give --set "
            "client.momentum=0"
        )


def vectors_kept(client: ClientMethod) -> int:
    """Count the vectors [P] that a client keeps between participations, of its method and of its optimiser."""
    if client.optimiser_state != "kept" or client.local_optimiser == "sgd":
        return client.vectors_kept
    if client.local_optimiser in OPTIMISERS:
        return client.vectors_kept + 2  # m and v
    from .own_optimiser import vectors_of  # loads torch

    return client.vectors_kept + vectors_of(client.local_optimiser)


def warn_of_rate(client: ClientMethod, module: nn.Module) -> None:
    """Warn where an optimiser's own rate is not used, and where AdamW, Muon or one of torch's like these is left at the
    rate that is SGD's default: nearly every parameter would move as far at each step.

    Args:
        module: that is to be trained, for whose parameters an optimiser of the user's own is made once.
    """
    default = next(key.default for key in fields(client) if key.name == "lr")
    like_adam = client.local_optimiser in ("adamw", "muon")
    if isinstance(client.local_optimiser, OwnCode):
        from .own_optimiser import own_rate  # loads torch

        rate, kind, several = own_rate(client.local_optimiser, module)
        if rate is not None and not isclose(rate, client.lr, rel_tol=1e-6):
            ratio = ", but for the ratios of its groups' rates" if several else ""
            warn_user(
                f"client.optimiser = {str(client.optimiser)!r} has lr = {rate:g} of its own, which is not used{ratio}: "
                f"client.lr = {client.lr:g} is; give --lr {rate:g}"
            )
            return
        like_adam = kind in LIKE_ADAM and rate is None
    if like_adam and client.lr == default:
        warn_user(
            f"client.lr = {client.lr:g} is the default rate of SGD, and {client.local_optimiser} moves every parameter "
            "by about the rate at each step; give --lr 0.001 or so"
        )
