"""Rows of other seeds: what a table, its forms and its figure say of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from fedscope.training import Comparison
from fedscope.training.tables.comparison import Cell
from fedscope.training.tables.seed_notes import notes_on_seeds, words_over_seeds

pytestmark = pytest.mark.same_elsewhere


def cells(**seeds: Sequence[Any]) -> list[Cell]:
    """Rows by the seeds of each."""
    return [Cell(row, "", "test_accuracy", {str(seed): 0.5 for seed in own}) for row, own in seeds.items()]


@pytest.mark.parametrize(
    ("rows", "baseline", "over", "notes"),
    [
        ({"fma": [0], "ima": [0]}, "fma", "one seed,", []),
        ({"fma": [0, 1], "ima": [1, 0]}, "fma", "mean ± deviation over 2 seeds of", []),
        ({"fma": [0, 1], "ima": [0]}, "fma", "mean ± deviation over 2 seeds of", ["ima: 1 of 2 seeds"]),
        (
            {"fma": [0], "ima": [1]},
            "fma",
            "one seed each, not the same one,",
            ["fma has seed 0; ima has seed 1; none in common, so there is no paired difference"],
        ),
        (
            {"fma": [0, 1], "ima": [1, 2]},
            "fma",
            "mean ± deviation over 2 seeds each, not the same ones, of",
            ["fma has seeds 0, 1; ima has seeds 1, 2; 1 in common, so there is no paired difference"],
        ),
        (
            {"fma": [0, 1], "ima": [2]},
            "fma",
            "mean ± deviation over 1 to 2 seeds each, not the same ones, of",
            ["fma has seeds 0, 1; ima has seed 2; none in common, so there is no paired difference"],
        ),
        (
            {"fma": [0, 1, 2], "ima": [1, 2, 3]},
            "fma",
            "mean ± deviation over 3 seeds each, not the same ones, of",
            ["fma has seeds 0, 1, 2; ima has seeds 1, 2, 3; 2 in common, over which differences are paired"],
        ),
        (
            {"fma": [0, 1], "ima": [1, 2], "swa": [1, 2], "wima": [0, 1]},
            "fma",
            "mean ± deviation over 2 seeds each, not the same ones, of",
            [
                "fma, wima have seeds 0, 1; ima, swa have seeds 1, 2; 1 in common with fma, so there is no paired "
                "difference"
            ],
        ),
        (
            {"fma": [0, 1], "ima": [1, 2], "swa": [3, 4]},
            "fma",
            "mean ± deviation over 2 seeds each, not the same ones, of",
            [
                "fma has seeds 0, 1; ima has seeds 1, 2; swa has seeds 3, 4; in common with fma: ima 1, swa none; "
                "there is a paired difference from 2 on"
            ],
        ),
        (
            {"swa": [0], "ima": [1]},
            "",
            "one seed each, not the same one,",
            ["swa has seed 0; ima has seed 1; none in common"],
        ),
        (
            {"fma": [0], "mine": ["run a"]},
            "fma",
            "one seed each, not known to be the same one,",
            ["fma has seed 0; mine says no seed; none in common, so there is no paired difference"],
        ),
        ({"mine": ["run a"], "yours": ["run b"]}, "", "one seed each, not known to be the same one,", []),
        (
            {"fma": range(10), "ima": range(1, 11)},
            "fma",
            "mean ± deviation over 10 seeds each, not the same ones, of",
            ["fma has seeds 0-9; ima has seeds 1-10; 9 in common, over which differences are paired"],
        ),
    ],
)
def test_rows_of_other_seeds_are_told(
    rows: Mapping[str, Sequence[Any]], baseline: str, over: str, notes: list[str]
) -> None:
    found = cells(**rows)
    assert words_over_seeds(found) == over
    assert notes_on_seeds(found, baseline) == notes


def placed(places: Mapping[tuple[str, str], Sequence[int]]) -> list[Cell]:
    return [
        Cell(row, column, "test_accuracy", {str(seed): 0.5 for seed in own}) for (row, column), own in places.items()
    ]


def test_what_decides_the_seeds_is_named_alone() -> None:
    """Columns of other seeds leave the rows of each comparable; else it takes both to name a cell."""
    columns = {("fma", "lr 1"): [0], ("fma", "lr 2"): [1], ("ima", "lr 1"): [0], ("ima", "lr 2"): [1]}
    assert notes_on_seeds(placed(columns), "fma") == ["lr 1 has seed 0; lr 2 has seed 1; none in common"]
    both = {**columns, ("ima", "lr 2"): [0]}
    assert notes_on_seeds(placed(both), "fma") == [
        "fma, lr 1, ima, lr 1, ima, lr 2 have seed 0; fma, lr 2 has seed 1; none in common, so there is no paired "
        "difference"
    ]


@pytest.mark.parametrize("form", ["text", "markdown", "latex", "typst"])
def test_no_form_says_one_seed_of_other_seeds(form: str) -> None:
    table = Comparison(tuple(cells(fma=[0], ima=[1])), 1, baseline="fma", attrs={"rows": ["method"]})
    said = "test accuracy in %, one seed each, not the same one, each run's last measured round"
    assert said in table.text(form)


def test_the_legend_says_that_each_has_its_seeds() -> None:
    def legend(other: Sequence[int]) -> str:
        columns = {("fma", "lr 1"): [0, 1], ("fma", "lr 2"): [0, 1], ("ima", "lr 1"): other, ("ima", "lr 2"): other}
        attrs = {"rows": ["method"], "axis": "client.lr", "places": {"lr 1": [1, ""], "lr 2": [2, ""]}}
        figure = Comparison(tuple(placed(columns)), 1, attrs=attrs).figure()
        return [text.get_text() for text in figure.legends[0].get_texts()][-1]

    assert legend([1, 0]) == "± s.d. over 2 seeds"
    assert legend([1, 2]) == "± s.d. over 2 seeds each"
