"""What a plane says in words."""

from __future__ import annotations

from dataclasses import replace

import pytest
from drawable import surface

pytestmark = pytest.mark.same_elsewhere


def test_the_error_beside_the_lowest_loss_is_that_of_one_model_and_not_called_the_best() -> None:
    """Another of the three may have fewer errors at a greater loss."""
    plane = surface()
    first, *others = plane.models
    models = (replace(first, loss=0.1, error=0.4), *(replace(one, loss=0.2, error=0.3) for one in others))
    said = replace(plane, models=models).summary()
    assert "the mean has loss 0.2 and error 30.0 %, the one of the three with the lowest loss 0.1 and 40.0 %" in said
    assert "best" not in said
