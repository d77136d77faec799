"""A recorded round's model, plain FMA and what other servers make of the round, measured on samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ...checkpoints import Run, Weights
from ...checkpoints.models.products import Adapters
from ...evaluation.lazy_models import LazyModels
from ...evaluation.measured_statistics import Measured, MeasuredStatistics
from ...evaluation.samples import Samples
from ...evaluation.tied_parameters import tie_again, tied_names
from ...landscape.alignment.step import Aligning
from ...results import deviation_over
from ...training.loop.state import RunMemory
from ..adapters.recorded_adapters import adapters_of_run, products_apart
from ..matrix.losses import losses_at
from .aggregate import EvaluationData, Reaggregated, reaggregate
from .conflicts import sign_conflict
from .requested_servers import AskedServer, reaggregating_config
from .result import ClientModelRow, ModelRow, Reaggregation


def measure_servers(
    run: Run,
    number: int,
    asked: Sequence[AskedServer],
    samples: Samples,
    *,
    measuring: EvaluationData,
    from_state: bool = False,
    attrs: Mapping[str, Any] | None = None,
    measured: MeasuredStatistics | None = None,
    aligned: Aligning | None = None,
) -> Reaggregation:
    """Measure the recorded model of a round, plain FMA and what other servers make of it, on samples.

    Where clients keep layers of their own there is a model a client, and loss and error are their means with 1/C each.

    Args:
        measuring: the architecture, and the data for servers that compare models.
        attrs: provenance of the result.
        measured: measures the running statistics of every model but the recorded one; None: they are averaged.
        aligned: see :func:`~fedscope.decomposition.reaggregation.aggregate.reaggregate`.

    Raises:
        FedscopeError: as :func:`~fedscope.decomposition.reaggregation.aggregate.reaggregate`.
    """
    plain = reaggregating_config(run, number, "fma")
    there = [k for k, one in enumerate(asked) if one.config.server == plain.server and not one.parts]
    every = [*asked] if there else [AskedServer(plain, "fma"), *asked]
    made = reaggregate(
        run,
        number,
        [one.config for one in every],
        from_state=from_state,
        measuring=measuring,
        layers=[one.parts for one in every],
        aligned=aligned,
    )
    tied = tied_names(measuring.module)
    made = [replace(one, weights=tie_again(one.weights, tied)) for one in made]
    if measured is not None:
        made = [_with_statistics(one, measured) for one in made]
    recorded, adapters = recorded_global(run, number), adapters_of_run(run)
    entries = [_Entry(*_names(*both), both[1]) for both in zip(every, made, strict=True)]
    fma = there[0] if there else 0
    if recorded is not None:
        entries, fma = [_Entry("recorded", "", "", None, recorded), *entries], fma + 1
    models = [model for one in entries for model in one.models()]
    ends = np.cumsum([len(one.models()) for one in entries]).tolist()
    flat = LazyModels(len(models), lambda i: models[i]())
    pairs = [(k, ends[fma] - 1, 0) for k in range(len(flat))]
    _, means, against = losses_at(
        measuring.module, samples, flat, None, pairs, number=number, compute=measuring.compute
    )
    start = run.round(number).read("start") if "start" in run.round(number).models and adapters is None else None
    stepped = flat[ends[fma] - 1]
    rows: list[ModelRow] = []
    own_rows: list[ClientModelRow] = []
    for one, end in zip(entries, ends, strict=True):
        of = slice(end - len(one.models()), end)
        loss, error = means.loss[of, 0], means.error[of, 0]
        if one.made is not None and one.made.versions:
            ids = one.made.client_ids
            own_rows += [
                ClientModelRow(one.model, *own) for own in zip(ids, loss.tolist(), error.tolist(), strict=True)
            ]
            apart: dict[str, Any] = {"distance": None, "identical": None, "clients": len(ids)}
            apart |= {"loss_stderr": _stderr(loss), "error_stderr": _stderr(error)}
            differing: dict[str, Any] = _means_apart(against.loss[of], against.error[of])
        else:
            model = flat[of.start]
            far, same = compare(model, recorded, adapters)
            along, across = place_by_step(model, start, stepped)
            apart = {"distance": far, "identical": same, "along_fma": along, "across_fma": across}
            differing = {
                "loss_difference": _number(against.loss[of.start]),
                "loss_difference_stderr": _number(against.loss_stderr[of.start]),
                "error_difference": _number(against.error[of.start]),
                "error_difference_stderr": _number(against.error_stderr[of.start]),
            }
        rows.append(
            ModelRow(one.model, one.server, one.state, float(loss.mean()), float(error.mean()), **apart, **differing)
        )
    own_models = {one.server: one.weights for one in made[len(made) - len(asked) :]}
    diverged: dict[str, Any] = {"diverged": list(made[0].diverged)}
    if any(one.outside for one in made):
        diverged["outside"] = {asking.label: list(one.outside) for asking, one in zip(every, made, strict=True)}
    known = {**(attrs or {}), **diverged, **_conflict(run, number, adapters), **_choices(made)}
    return Reaggregation(tuple(rows), known, own_models, tuple(own_rows))


@dataclass(frozen=True, eq=False)
class _Entry:
    """A row before it is measured.

    Attributes:
        model, server, state: as of :class:`~fedscope.decomposition.reaggregation.result.ModelRow`.
        made: what a server has made; None of the recorded model, which is ``recorded``.
    """

    model: str
    server: str
    state: str
    made: Reaggregated | None
    recorded: Weights | None = None

    def models(self) -> Sequence[Callable[[], Weights]]:
        """Return the models that are measured: one, or each client's where clients keep layers of their own."""
        if self.made is None:
            assert self.recorded is not None
            return [partial(_given, self.recorded)]
        return self.made.versions or [partial(_given, self.made.weights)]


def _choices(made: Sequence[Reaggregated]) -> dict[str, Any]:
    """Return the clients that servers have chosen, those with weights of their own, and what those of layers began
    with."""
    chosen = {one.chooser: list(one.members) for one in made if one.members is not None}
    states = {server: kind for one in made for server, kind in one.by_layer.items()}
    weighing = list(dict.fromkeys(server for one in made for server in one.weighing))
    said = {"members": chosen, "own_weights": weighing, "layer_states": states}
    return {name: value for name, value in said.items() if value}


def _conflict(run: Run, number: int, adapters: Adapters | None) -> dict[str, Any]:
    """Return how far the signs of the clients' updates are in conflict, of adapters of their products."""
    conflict = sign_conflict(run.round(number), adapters)
    if conflict is None or not np.isfinite(conflict):
        return {}
    return {"sign_conflict": conflict} | ({} if adapters is None else {"conflict_of": "products"})


def _names(asked: AskedServer, made: Reaggregated) -> tuple[str, str, str]:
    """Return the model, server and state of a row."""
    based = not asked.parts or not asked.parts[-1].pattern
    return asked.label, made.server if based else "", made.state if based else ""


def _with_statistics(made: Reaggregated, measured: Measured) -> Reaggregated:
    """Return models whose running statistics are measured on each."""

    def again(version: Callable[[], Weights]) -> Weights:
        return measured(version())

    return replace(made, weights=measured(made.weights), versions=tuple(partial(again, one) for one in made.versions))


def _given(model: Weights) -> Weights:
    return model


def _means_apart(loss: np.ndarray, error: np.ndarray) -> dict[str, float | None]:
    """Return the means over clients of differences to plain FMA, and their standard errors."""
    return {
        "loss_difference": _number(loss.mean()),
        "loss_difference_stderr": _number(_stderr(loss)),
        "error_difference": _number(error.mean()),
        "error_difference_stderr": _number(_stderr(error)),
    }


def _stderr(values: np.ndarray) -> float:
    """Return the standard error of a mean over clients; NaN where a value is not finite."""
    return float(deviation_over(values) / np.sqrt(len(values)))


def _number(value: float) -> float | None:
    """Return a mean or its error; None where there is none."""
    return None if np.isnan(value) else float(value)


def recorded_global(run: Run, number: int) -> Weights | None:
    """Return the global model of a round, which ``record.globals`` may have left out of its file, or another
    program."""
    if run.is_foreign:
        round_ = run.round(number)
        return round_.read("global") if "global" in round_.models else None
    return RunMemory(run).read(number, "global")


def compare(
    weights: Weights, recorded: Weights | None, adapters: Adapters | None = None
) -> tuple[float | None, bool | None]:
    """Compute the distance to the recorded model, of adapters between their products, and whether it is the same bit
    for bit."""
    if recorded is None:
        return None, None
    with np.errstate(over="ignore", invalid="ignore"):  # of models that diverged
        moved = np.subtract(weights.parameters, recorded.parameters, dtype=np.float64)
    ours, theirs = weights.arrays(), recorded.arrays()
    same = all(ours[name].tobytes() == theirs[name].tobytes() for name in weights.layout.names)
    far = float(np.linalg.norm(moved)) if adapters is None else products_apart(adapters, weights, recorded)
    return far, same


def place_by_step(model: Weights, start: Weights | None, stepped: Weights) -> tuple[float | None, float | None]:
    """Compute how far a model lies along a step from ``start`` and how far across it, in lengths of the step.

    With d = w − start and u = stepped − start, a = ⟨d, u⟩ / ‖u‖² and ‖d − a u‖ / ‖u‖, in float64. (None, None) without
    a start, where the step has no length, and where a value is not finite.

    >>> from fedscope.checkpoints import Layout, TensorEntry
    >>> layout = Layout((TensorEntry("w", (2,), "float32", "parameter"),))
    >>> start, fma, model = (Weights(layout, np.float32(w), {}) for w in ([1, 1], [3, 1], [2, 4]))
    >>> place_by_step(model, start, fma)
    (0.5, 1.5)
    """
    if start is None:
        return None, None
    origin = start.parameters.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # of models that diverged
        step, moved = stepped.parameters - origin, model.parameters - origin
        long = float(step @ step)
        along = float(moved @ step) / long if long else np.nan
        across = float(np.linalg.norm(moved - along * step)) / math.sqrt(long) if long else np.nan
    return (along, across) if math.isfinite(along) and math.isfinite(across) else (None, None)
