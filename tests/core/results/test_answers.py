"""Answers of a user's own code, which are the same on another machine up to rounding."""

from __future__ import annotations

import pytest

from fedscope.results.answers import same_answers

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("kept", "asked", "same"),
    [
        ([1.0, -2.0], [1.0, -2.0], True),
        ([1.0], [1.0009], True),
        ([1.0], [1.002], False),
        ([0.0], [0.00009], True),
        ([0.0], [0.0002], False),
        ([1.0, 2.0], [1.0], False),
        ([], [], True),
        ([NAN, 1.0], [NAN, 1.0], True),
        ([None], [NAN], True),
        ([NAN], [1.0], False),
        ([1.0], [None], False),
        ([INF], [INF], True),
        ([INF], [-INF], False),
        ([INF], [NAN], False),
    ],
)
def test_answers_are_compared(kept: list[float | None], asked: list[float | None], same: bool) -> None:
    assert same_answers(kept, asked) == same == same_answers(asked, kept)
