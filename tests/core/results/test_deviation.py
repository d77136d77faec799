"""Deviations of equal numbers, wherever one is told."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fedscope.decomposition.reaggregation.measure import _stderr as of_clients
from fedscope.decomposition.subsets.averages import _moments
from fedscope.landscape.alignment.measure_alignment import _stderr as of_samples
from fedscope.results import deviation_over
from fedscope.training.curves.bands import Band
from fedscope.training.curves.measures import measure_of
from fedscope.training.curves.run_curve import Curve
from fedscope.training.tables.comparison import Cell

#: their mean is off by an ulp, so that numpy's deviation is 1e-16
EQUAL = np.full(10, 0.88)
PLACES: dict[str, Callable[[], object]] = {
    "rounds of a run": lambda: curve().tail("test_error", 10)[1],
    "seeds in a round": lambda: Band("fma", (curve(),) * 10).deviation(measure_of("test_error")),
    "seeds' tails": lambda: Band("fma", (curve(),) * 10).tail("test_error", 1)[1],
    "seeds in a file": lambda: [row[-1] for row in Band("fma", (curve(),) * 10).rows()],
    "seeds of a cell": lambda: Cell("fma", "", "test_error", dict(enumerate(EQUAL))).deviation,
    "subsets": lambda: _moments(EQUAL, 99)[1:],
    "clients' differences": lambda: of_clients(EQUAL),
    "samples": lambda: of_samples(EQUAL, None),
}


def curve() -> Curve:
    return Curve("fma", np.arange(1, 11), {"test_error": EQUAL})


@pytest.mark.parametrize("place", PLACES)
def test_equal_numbers_have_none(place: str) -> None:
    assert np.std(EQUAL, ddof=1) > 0, "the case is one of rounding"
    assert not np.any(PLACES[place]()), place


def test_other_numbers_have_numpys(recwarn: pytest.WarningsRecorder) -> None:
    draw = np.random.default_rng(0)
    values = draw.normal(size=(5, 3))
    values[:, 1] = 0.88
    expected = np.where([True, False, True], values.std(axis=0, ddof=1), 0)
    np.testing.assert_array_equal(deviation_over(values), expected)
    assert deviation_over(values[:, 0], 0) == values[:, 0].std()
    # of one number, of none, of infinite ones and of those that are not there, it is no number, and 0 is not made up
    assert np.isnan([deviation_over([1.0]), deviation_over([]), *deviation_over(values[:1])]).all()
    assert np.isnan([deviation_over([np.inf, np.inf]), deviation_over([np.nan, np.nan])]).all()
    assert deviation_over([1.0], 0) == 0
    assert not recwarn.list
