"""The barriers of layers over rounds: sentence, figure and table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from fedscope.checkpoints import FedscopeError
from fedscope.landscape import LayerRounds
from fedscope.landscape.lines.layer_rounds import LayerBarrier

pytestmark = pytest.mark.same_elsewhere


def rounds(heights: Sequence[Sequence[float | None]], layers: str = "each", error: float | None = None) -> LayerRounds:
    """Three selections, u, v and all, in so many rounds; with the others at start the half."""
    names = ["to u", "to v", "all layers"] if layers == "cumulative" else ["u", "v", "all layers"]
    cells = [
        LayerBarrier(t, name, others, 5, *((None,) * 3 if h is None else (h * share, 0.5 if h else 0.0, error)))
        for t, own in enumerate(heights, start=1)
        for name, h in zip(names, own, strict=True)
        for others, share in (("global", 1.0), ("start", 0.5))
    ]
    return LayerRounds(tuple(cells), ("global", "start"), {"run": {"path": "runs/fma"}, "layers": layers})


def test_the_sentence_names_the_layer_that_carries_the_barrier_on_average() -> None:
    assert rounds([[0.6, 0.4, 0.1], [0.0, 0.4, 0.3]]).summary() == (
        "fma, rounds 1-2: loss barrier between global and start: greatest in v, 0.4 on average, at most 0.4 at beta = "
        "0.50 in round 1 with the others at global; all layers together 0.2 on average, at most 0.3 at beta = 0.50 in "
        "round 2"
    )
    assert rounds([[0.6, 0.4, 0.0]]).summary() == (
        "fma, round 1: loss barrier between global and start: greatest in u, 0.6 at beta = 0.50 with the others at "
        "global; all layers together none"
    )
    assert (
        rounds([[0.0, 0.0, 0.1]]).summary().endswith(": no layer has one alone, all layers together 0.1 at beta = 0.50")
    )


def test_the_sentence_of_first_layers_names_the_one_with_which_it_grows() -> None:
    said = rounds([[0.1, 0.4, 0.5], [0.1, 0.2, 0.3]], "cumulative").summary()
    assert ": grows most with v, by 0.2 on average; all layers together 0.4 on average, at most 0.5" in said
    said = rounds([[0.1, 0.1, 0.5]], "cumulative").summary()
    assert ": grows most with the last layer, by 0.4; all layers together 0.5 at beta = 0.50" in said
    assert ": no first layers have one, all layers together none" in rounds([[0.0, 0.0, 0.0]], "cumulative").summary()


def test_barriers_that_do_not_exist_are_said_and_hatched(tmp_path: Path) -> None:
    found = rounds([[0.6, None, None], [0.3, 0.1, 0.2]])
    assert "; 4 of 12 barriers are unknown, because losses are not finite" in found.summary()
    figure = found.figure()
    assert "hatched: a loss is not finite" in " ".join(text.get_text() for text in figure.texts).replace("\n", " ")
    found.save(tmp_path / "m")
    assert LayerRounds.load(tmp_path / "m").cells == found.cells
    first = (tmp_path / "m.line-layers.csv").read_text().splitlines()
    assert first[0] == "run,round,layer,others,parameters,barrier,barrier_beta,barrier_stderr"
    assert first[3] == "fma,1,v,global,5,,,"
    assert first[7] == "fma,2,u,global,5,0.3,0.5,"


def test_means_are_over_the_rounds_whose_barriers_are_known() -> None:
    said = rounds([[0.6, None, None], [0.3, 0.5, 0.2]]).summary()
    assert ": greatest in v, 0.5 on average over 1 of 2 rounds, at most 0.5 at beta = 0.50 in round 2 with" in said
    assert "; all layers together 0.2 on average over 1 of 2 rounds, at most 0.2 at beta = 0.50 in round 2;" in said
    said = rounds([[0.0, None, None], [0.0, 0.0, 0.0]]).summary()
    assert ": no layer has one alone where it is known, all layers together none in 1 of 2 rounds; 4 of 12" in said
    said = rounds([[0.1, 0.4, None], [0.1, 0.2, 0.7]], "cumulative").summary()
    assert ": grows most with the last layer, by 0.5 on average over 1 of 2 rounds; all layers together 0.7" in said


def test_barriers_of_which_none_is_known_are_not_said_to_be_none() -> None:
    said = rounds([[None, None, None]] * 2).summary()
    assert said == (
        "fma, rounds 1-2: loss barrier between global and start: unknown; 12 of 12 barriers are unknown, because "
        "losses are not finite"
    )
    said = rounds([[None, None, 0.2]]).summary()
    assert ": unknown of every layer alone, all layers together 0.2 at beta = 0.50; 4 of 6 barriers" in said
    said = rounds([[0.3, 0.1, None]]).summary()
    assert ": greatest in u, 0.3 at beta = 0.50 with the others at global; all layers together unknown; 2 of 6" in said
    said = rounds([[0.3, 0.1, None]], "cumulative").summary()
    assert ": in no round are all barriers known, all layers together unknown; 2 of 6" in said


def test_rounds_without_a_point_between_know_no_barrier() -> None:
    earlier = rounds([[0.0, 0.0, 0.0]] * 2)
    found = LayerRounds(earlier.cells, earlier.ends, {**earlier.attrs, "points": 9, "range": [1.0, 2.0]})
    assert (
        found.summary()
        == "fma, rounds 1-2: loss barrier between global and start: unknown; no point between the ends was measured"
    )
    assert {row["barrier"] for row in found.findings()["rounds"]} == {None}
    remark = " ".join(text.get_text() for text in found.figure().texts).replace("\n", " ")
    assert "hatched: unknown" in remark
    assert "no point between the ends was measured" in remark
    part = LayerRounds(earlier.cells, earlier.ends, {**earlier.attrs, "points": 9, "range": [0.9, 1.5]})
    assert part.summary().endswith("; between the ends only beta = 0.9 to 1 was measured")


def test_the_figure_has_a_row_a_layer_and_a_column_a_round() -> None:
    found = rounds([[0.6, 0.4, 0.2], [0.0, 0.4, 0.3], [0.1, 0.2, 0.3]])
    figure = found.figure()
    assert figure.get_figwidth() == 3.5
    above, below, bar = figure.axes
    for axes, values in zip((above, below), found.values(), strict=True):
        assert np.array_equal(axes.images[0].get_array(), values)
        assert [tick.get_text() for tick in axes.get_yticklabels()] == ["u", "v", "all layers"]
    assert [tick.get_text() for tick in below.get_xticklabels()] == ["1", "2", "3"]
    assert above.images[0].get_clim() == below.images[0].get_clim() == (0.0, 0.6), "one scale from no barrier"
    assert bar.get_ylabel() == "loss barrier (nats)"
    small = rounds([[6e-5, 4e-5, 2e-5]]).figure()
    assert small.axes[-1].get_ylabel() == r"loss barrier ($10^{-5}$ nats)"
    np.testing.assert_allclose(small.axes[0].images[0].get_array()[:, 0], [6, 4, 2])


def test_rounds_of_different_layers_are_refused() -> None:
    found = rounds([[0.6, 0.4, 0.2], [0.0, 0.4, 0.3]])
    with pytest.raises(FedscopeError, match=r"^barriers over rounds need two rows for every round and layer"):
        LayerRounds(found.cells[:-1], found.ends)


def test_barriers_that_are_surely_above_0_have_a_dot_and_errors_are_said() -> None:
    found = rounds([[0.6, 0.4, 0.2], [0.0, 0.3, 0.1]], error=0.12)
    assert "greatest in v, 0.35 on average, at most 0.4 ± 0.12 at beta = 0.50 in round 1" in found.summary()
    figure = found.figure()
    dots = [[tuple(map(int, at)) for at in axes.lines[0].get_xydata()] for axes in figure.axes[:2]]
    assert dots == [[(0, 0), (0, 1), (1, 1)], [(0, 0)]]
    assert "dots: more than two standard errors" in " ".join(text.get_text() for text in figure.texts)
    assert "dots" not in " ".join(text.get_text() for text in rounds([[0.6, 0.4, 0.2]]).figure().texts)


def test_an_error_of_0_makes_no_barrier_sure() -> None:
    """It is that of samples that are all alike."""
    figure = rounds([[0.6, 0.4, 0.2]], error=0.0).figure()
    assert [len(axes.lines[0].get_xydata()) for axes in figure.axes[:2]] == [0, 0]
    assert "dots" not in " ".join(text.get_text() for text in figure.texts)
