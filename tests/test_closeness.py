"""The fixture ``close``, which many tests of trained numbers rest on, can fail, and for the right reasons."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

EXPECTED = np.array([3.0, 4.0, 1e-9])


def test_an_entry_near_0_may_be_as_far_off_as_the_others(close: Any) -> None:
    close(EXPECTED + np.array([0, 0, 4.9e-6]), EXPECTED, 1e-6)  # of a norm of 5
    close([2.0, 2.0], 2.0, 0.0)
    close(np.zeros(3), np.zeros(3), 1e-6)


@pytest.mark.parametrize(
    ("actual", "message"),
    [
        (
            EXPECTED + np.array([0, 0, 5.1e-6]),
            r"\|actual - expected\| / \|expected\| = 1\.02e-06, more than 1e-06; the norms",
        ),
        (EXPECTED * np.nan, r"= nan, more than 1e-06"),
        (np.array([3.0, 4.0, np.inf]), r"= inf, more than 1e-06"),
        (EXPECTED[:2], r"shapes \(2,\) and \(3,\) differ"),
        (EXPECTED[None], r"shapes \(1, 3\) and \(3,\) differ"),
    ],
)
def test_more_than_that_is_refused_with_the_quotient(close: Any, actual: np.ndarray, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        close(actual, EXPECTED, 1e-6)


def test_of_an_expected_0_nothing_but_0_is_close(close: Any) -> None:
    with pytest.raises(AssertionError, match=r"= inf, more than 1"):
        close(np.full(3, 1e-9), np.zeros(3), 1.0)
