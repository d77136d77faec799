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
    elif kind == "global" and measure.column.startswith(OF_DEPLOYED) and has_average(curve):
        values[measure.column] = unmeasured
    return replace(curve, values=values)


def has_average(curve: Curve) -> bool:
    columns = (curve.values.get(f"averaged_{name}") for name in ("test_error", "test_loss"))
    return any(values is not None and not np.isnan(values).all() for values in columns)
