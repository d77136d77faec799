"""What the commands about factors share: D, the measured errors, and a decomposition in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..checkpoints import Run
    from ..decomposition import ErrorCurve, RoundFactors, RunFactors


def error_curves(run: Run) -> tuple[ErrorCurve, ...]:
    """The test errors that were measured while training, for the figure's lower panel."""
    import numpy as np

    from ..decomposition import ErrorCurve
    from ..training import metrics_of

    metrics = metrics_of(run)
    curves = []
    for label, column in (("global", "test_error"), ("averaged", "averaged_test_error")):
        there = ~np.isnan(metrics[column])
        if there.any():
            rounds, error = metrics["round"][there].astype(int), metrics[column][there]
            curves.append(ErrorCurve(label, tuple(rounds.tolist()), tuple(error.tolist())))
    return tuple(curves)


def sentence(run: RunFactors) -> str:
    """The last decomposed round in words, with its numbers."""
    last = run.rounds[-1]

    def shown(factor: str) -> str:
        row = last.row(factor)
        if row.value is None:
            return "not defined"
        error = "" if row.stderr_draws is None else f" ± {row.stderr_draws:.1g}"
        return f"{row.value:.3g}{error}"

    split = (
        f"training bias {shown('train_bias')}, heterogeneous bias {shown('heter_bias')}, cross {shown('bias_cross')}"
        if last.split
        else f"bias {shown('bias')}"
    )
    if last.loss == "squared":
        parts = f"{split}, variance {shown('variance')}, covariance {shown('covariance')}, locality {shown('locality')}"
    else:
        parts = f"bias {shown('bias')}, variance {shown('variance')}, remainder {shown('remainder')}"
    closure = last.row("closure_error").value or 0.0
    which = "" if run.model == "global" else f", {run.model}"
    return (
        f"{run.run}{which}, round {last.round}: {parts} = loss {shown('fma_loss')} (closes to {closure:.0e})"
        + _steps(run.model, last)
        + _without_samples(last)
    )


def _steps(model: str, one: RoundFactors) -> str:
    """What the servers' steps in the window of an average over rounds add to the average of its clients; rounding is
    not worth a word."""
    step, loss = one.row("server_step").value, one.row("averaged_loss").value
    if model == "global" or step is None or loss is None or abs(step) <= 1e-4 * abs(loss):
        return ""
    return f"; the servers' steps add {step:.3g} to it: the recorded averaged model has loss {loss:.3g}"


def _without_samples(one: RoundFactors) -> str:
    """Which clients a limited set of samples leaves without any of their own."""
    empty = sorted({row.client for row in one.clients if one.loss == "squared" and row.train_bias is None})
    if not one.split or not empty:
        return ""
    named = ", ".join(map(str, empty[:10])) + (", ..." if len(empty) > 10 else "")
    return f"; no sample among the {one.samples:,} is of client {named}, so their own bias is empty"


def as_numbers(run: RunFactors) -> list[dict[str, Any]]:
    """Every round's factors, for --json: of each what is measured, or its unbiased estimate where there is one, else
    the plug-in one."""

    def best(one: RoundFactors, factor: str) -> float | None:
        known = {row.estimate: row.value for row in one.rows if row.factor == factor}
        return next((v for kind in ("measured", "unbiased", "plugin") if (v := known.get(kind)) is not None), None)

    return [
        {"run": run.run, "model": run.model, "round": one.round}
        | {factor: best(one, factor) for factor in dict.fromkeys(row.factor for row in one.rows)}
        for one in run.rounds
    ]
