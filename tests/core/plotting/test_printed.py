"""Printed names of methods and settings, and bands on logarithmic axes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedscope.plotting.printed import printed_method, printed_setting, printed_words
from fedscope.plotting.spread import below
from fedscope.training.settings.registry import find, names

pytestmark = pytest.mark.same_elsewhere


@pytest.mark.parametrize("shelf", ["clients", "servers", "averages"])
def test_every_method_is_printed_as_its_file_calls_it(shelf: str) -> None:
    for name in names(shelf):  # type: ignore[arg-type]
        if name != "none":
            assert printed_method(name) == find(shelf, name).about.name  # type: ignore[arg-type]


def test_only_what_names_a_method_is_printed_otherwise() -> None:
    assert printed_words("scaffold+ima, lr 0.1", ("method", "client.lr")) == "SCAFFOLD + IMA, lr 0.1"
    assert printed_words("no average", ("average.method",)) == "no average"
    assert printed_words("ima", ("label",)) == "ima", "a label is the user's own"
    assert printed_setting("label") == "label"


@given(st.floats(1e-6, 1e6), st.floats(0, 1e6))
def test_a_band_on_a_logarithmic_axis_is_as_wide_below_as_above_and_never_falls_to_zero(mean: float, s: float) -> None:
    low = below(np.array([mean]), np.array([s]), log=True)[0]
    assert 0 < low <= mean
    assert np.log(mean) - np.log(low) == pytest.approx(np.log(mean + s) - np.log(mean), abs=1e-9)
    assert below(np.array([mean]), np.array([s]), log=False)[0] == mean - s


def test_a_small_spread_is_the_usual_one() -> None:
    mean, spread = np.array([2.0, np.nan]), np.array([1e-4, 1.0])
    assert below(mean, spread, log=True)[0] == pytest.approx(2.0 - 1e-4, rel=1e-8)
    assert np.isnan(below(mean, spread, log=True)[1])
