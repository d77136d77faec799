"""What a plane says in words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from drawable import surface

from fedscope.landscape.planes.drawing.fill import remarks

pytestmark = pytest.mark.same_elsewhere


def test_the_error_beside_the_lowest_loss_is_that_of_one_model_and_not_called_the_best() -> None:
    """Another of the three may have fewer errors at a greater loss."""
    plane = surface()
    first, *others = plane.models
    models = (replace(first, loss=0.1, error=0.4), *(replace(one, loss=0.2, error=0.3) for one in others))
    said = replace(plane, models=models).summary()
    assert "the mean has loss 0.2 and error 30.0 %, the one of the three with the lowest loss 0.1 and 40.0 %" in said
    assert "best" not in said


def test_a_model_whose_loss_is_no_number_is_not_the_one_with_the_lowest() -> None:
    """Wherever it stands among them; with the models' own statistics, too."""
    plane = surface()
    *anchors, mean, _ = plane.models
    for place in range(3):
        models = [replace(one, loss=0.3 - k / 10, own_loss=0.4 - k / 10) for k, one in enumerate(anchors)]
        models[place] = replace(models[place], loss=np.nan, own_loss=np.nan)
        least = f"{0.1 if place != 2 else 0.2:.3g}"
        made = replace(plane, models=(*models, replace(mean, own_loss=0.5)), normalization_policy="re-estimate")
        said = made.summary()
        assert f"the one of the three with the lowest loss {least}" in said
        own = said.partition("with the models' own statistics")[2]
        assert f"with the lowest loss {0.2 if place != 2 else 0.3:.3g}" in own
    lost = replace(plane, models=(*(replace(one, loss=np.nan) for one in anchors), mean))
    assert "with the lowest loss nan" in lost.summary()


def test_panels_without_a_number_of_what_was_held_out_hide_none() -> None:
    """Of panels all of whose points were measured there is none."""
    whole = surface()
    computed = np.ones(whole.loss.shape, dtype=bool)
    computed[1::2] = False
    about = {**whole.attrs, "held_out_loss_error": 0.002, "held_out_loss_low": 0.01}
    some = replace(whole, computed=computed, attrs=about)
    for planes in ([whole, some], [some, whole]):
        assert "checked to 0.2 % of its range, near its minimum to 1 % of itself" in remarks(planes)
