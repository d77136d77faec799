"""What a plane says of an adaptive surface: what is off by how much, and whether the aim is met."""

from __future__ import annotations

import numpy as np
import pytest

from fedscope.landscape import Plane, PlaneModel

HELD_OUT = {
    "points_computed": 300, "points_held_out": 60, "points_unknown": 0,
    "held_out_loss_error": 0.004, "held_out_error_rms": 0.01,
    "held_out_loss_low": 0.013, "held_out_loss_bands": 0.2,
}  # fmt: skip
AIM = "(more than the 0.5 %, 0.25 and 2 % aimed at: measure all points without --adaptive)"


@pytest.mark.parametrize(
    ("beyond", "said", "missed"),
    [
        (1.0, "at most 0.4 % of its range, 0.2 bands of the colour scale, over the lowest", False),
        (1.01, "over the lowest tenth 1.3 % of itself", True),
    ],
)
def test_an_aim_that_is_missed_is_said(beyond: float, said: str, missed: bool) -> None:
    axis, loss = np.arange(50.0), np.ones((50, 50))
    model = PlaneModel("m", 0.0, 0.0, 0.0, 1.0, 0.1, np.nan, np.nan, "origin")
    plane = Plane(axis, axis, loss, loss, (model,), 0.0, "none", {**HELD_OUT, "held_out_beyond": beyond}, loss > 0)
    words = plane.summary()
    assert "300 of 2,500 points measured (12 %), the others interpolated: at 60 points held out the loss" in words
    assert said in words
    assert (AIM in words) == missed
