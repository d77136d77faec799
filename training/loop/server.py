"""A server in the loop: its step from clients that may be on the disk, and the losses by which it chooses clients."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from torch import nn

from ...checkpoints import DiskMatrix, FedscopeError, Layout, Partition, TensorEntry, Weights, as_disk_matrix
from ...checkpoints.io.warn_user import warn_user
from ...checkpoints.rounds.disk_matrix import NUMBERS, ON_DISK, ReadOnlyMatrix
from ...evaluation.device import Compute
from ...old_paths import names_of
from ..data.dataset import Dataset
from ..data.membership import indices_held
from ..guards.own_calls import ask
from ..guards.returned_arrays import is_own_method
from ..methods.base import Cohort, Served, ServerMethod, State, Validator
from ..methods.refused_returns import refuse_served, rounded_ahead
from ..settings.registry import method_name
from .model_probe import ModelProbe


def step_server(
    server: ServerMethod, state: State, start: Weights, clients: Weights, cohort: Cohort, numbers: int | None = None
) -> Served:
    """``server.step(state, start, clients, cohort)``, to the last bit, whatever the clients' rows take.

    Clients in memory are given to the server as they are. Of rows on the disk a server that ``reads`` columns is given
    a block of columns at a time, with these columns of ``start`` and of every vector [P] in its state, as if the block
    were a model of one layer: 16 MiB of clients and their float64 in memory, whatever C and P. Another server is given
    the rows as they are, and reads what it needs.

    Args:
        numbers: of all clients in a block of columns, at most; by default 16 MiB of float32.

    Raises:
        FedscopeError: as the server; a file that cannot be read; a server of the user's own that changes what it is
            given, or returns what the loop cannot go on with
            (:func:`~fedscope.training.methods.refused_returns.refuse_served`), or takes rows on the disk for an array.
    """
    rows, size = as_disk_matrix(clients.parameters), start.layout.size
    if rows is None or server.reads != "columns":
        return _step(server, state, start, clients, cohort)
    parameters = np.empty(size, start.layout.dtype)
    kept: dict[str, np.ndarray] = {}
    p: np.ndarray | None = None
    for where, values in rows.blocks(numbers or NUMBERS):
        width = where.stop - where.start
        layout = Layout((TensorEntry("columns", (width,), start.layout.dtype.name, "parameter"),))
        own = {name: value[where] if np.shape(value) == (size,) else value for name, value in state.items()}
        block = Weights(layout, start.parameters[where], {}), Weights(layout, values, {})
        served = _step(server, own, *block, cohort)
        parameters[where], p = served.parameters, served.p
        for name, value in served.state.items():
            if np.shape(value) != (width,):
                kept[name] = value
                continue
            if name not in kept:
                kept[name] = np.empty(size, value.dtype)
            kept[name][where] = value
    return Served(parameters, kept, p)


def _step(server: ServerMethod, state: State, start: Weights, clients: Weights, cohort: Cohort) -> Served:
    try:
        served = ask(server, server.step, state, start, clients, cohort)
    except (AttributeError, TypeError, IndexError) as error:
        if not is_own_method(server) or not _of_rows_on_disk(error):
            raise
        raise FedscopeError(
            f"{method_name(server)}.step takes clients.parameters for an array ({error}), but clients that are too "
            "large for memory are rows on the disk; go through them row by row, or say reads = 'columns' in the class "
            "if a parameter of the result depends on that parameter of the clients alone"
        ) from error
    if is_own_method(server):
        refuse_served(server, served, (state, start, clients), cohort.round)
    return served


def look_ahead(server: ServerMethod, state: State, model: Weights, round: int) -> Weights:
    """Return what the server sends in place of the model that a round has left, in the model's type: what clients step
    from is what is recorded. The model itself where that is sent.

    Raises:
        FedscopeError: a server of the user's own that changes what it is given, or returns no vector of the parameters
            (:func:`~fedscope.training.methods.refused_returns.rounded_ahead`).
    """
    ahead = ask(server, server.look_ahead, state, model.parameters)
    if ahead is model.parameters:
        return model
    if is_own_method(server):
        ahead = rounded_ahead(server, ahead, model.layout, round)
    return replace(model, parameters=ahead)


def _of_rows_on_disk(error: AttributeError | TypeError | IndexError) -> bool:
    """Check whether an error is about what rows on the disk lack and an array has."""
    words = str(error)
    return isinstance(getattr(error, "obj", None), DiskMatrix) or ReadOnlyMatrix.__name__ in words or ON_DISK in words


def warn_of_test_data(server: ServerMethod) -> None:
    """Warn where a server chooses on the test split, on which a run's models are measured."""
    if server.validates_on is not None and server.validates_on[0] == "test":
        warn_user(
            f"--server {method_name(server)} chooses on the test split, on which the run's models are measured, too: "
            "their test errors look better than they are; --set server.split=train chooses on training data"
        )


def validator_of(
    server: ServerMethod, data: Dataset, module: nn.Module, partition: Partition | None, seed: int, compute: Compute
) -> Validator | None:
    """Make the function that measures models on the samples that a server names, in float32; None where it names none.

    Args:
        partition: of ``train`` the samples that clients train on are taken; all where it is None.
        seed: of the subset, where it asks for one.

    Raises:
        FedscopeError: a split without samples.
    """
    if server.validates_on is None:
        return None
    split, count = server.validates_on
    if not len(data.y_train if split == "train" else data.y_test):
        other = "train" if split == "test" else "test"
        raise FedscopeError(
            f"--server {method_name(server)} compares models on the {split} split, but {data.name} has no {split} "
            f"samples; give --set server.split={other}"
        )
    samples = data.samples(cast(Any, split))
    if split == "train" and partition is not None and len(rows := indices_held(partition)) < len(samples):
        samples = replace(samples, x=samples.x[rows], y=samples.y[rows], indices=rows)
    if count is not None:
        samples = samples.limit(count, seed)
    return ModelProbe(module, samples, compute)


if not TYPE_CHECKING:  # a checker is to see what is really there
    __getattr__ = names_of(__name__)
