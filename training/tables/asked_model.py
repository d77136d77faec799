"""Whose numbers a table has: those of the model that a user would deploy, of ``global`` or of ``averaged``."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..curves.measures import CurveMeasure
from ..curves.run_curve import Curve

#: whose test: that of the model that a user would deploy, of ``global`` or of ``averaged``, or of both side by side
OF = ("deployed", "global", "averaged", "both")
#: columns that are measured on the deployed model alone, averaged where there is an average
OF_DEPLOYED = ("client_test_error_", "all_client_test_error_", "all_client_deployed_error_")


def curve_of_model(curve: Curve, kind: str, measure: CurveMeasure) -> Curve:
    """A curve whose deployed model is the one that was asked for; without numbers where that was not measured."""
    if kind == "deployed":
        return curve
    values = dict(curve.values)
    averaged = values.pop(f"averaged_{measure.column}", None)
    unmeasured = np.full(len(curve.round), np.nan)
    if kind == "averaged" and measure.is_deployed:
        values[measure.column] = unmeasured if averaged is None else averaged
    elif measure.column.startswith(OF_DEPLOYED) and has_average(curve) != (kind == "averaged"):
        values[measure.column] = unmeasured
    return replace(curve, values=values)


def stands_below(kind: str, measure: CurveMeasure) -> bool:
    """Whether a measure has its place below this model where both stand side by side. What is of neither, as clients'
    errors and seconds, stands below ``global`` alone, so that no number is told of an average that a run has not."""
    if measure.is_deployed or measure.column.startswith(OF_DEPLOYED):
        return True
    return measure.column.startswith("averaged_") == (kind == "averaged")


def has_average(curve: Curve) -> bool:
    columns = (curve.values.get(f"averaged_{name}") for name in ("test_error", "test_loss"))
    return any(values is not None and not np.isnan(values).all() for values in columns)
