"""A run that diverged enters a mean with an error of no answers, and that is said; of sound runs nothing is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedscope import Recorder
from fedscope.training import Curve, Curves, measure_of
from fedscope.training.curves.bands import Band
from fedscope.training.curves.diverged import Lost, describe_diverged, lost_in
from fedscope.training.tables.comparison import table

pytestmark = pytest.mark.same_elsewhere

NAN, ERROR = float("nan"), measure_of("test_error")


def curve(run: str = "a", **columns: list[float]) -> Curve:
    values = {name: np.array(own, float) for name, own in columns.items()}
    return Curve(run, np.arange(1, 1 + len(next(iter(values.values())))), values)


def ending(run: str, first: int, rounds: int = 4) -> Curve:
    """It has diverged in the first of these rounds."""
    lost = [t >= first for t in range(1, rounds + 1)]
    return curve(run, test_loss=[NAN if own else 2.0 for own in lost], test_error=[1.0 if own else 0.9 for own in lost])


def test_the_round_from_which_a_run_has_no_loss_is_said() -> None:
    assert lost_in(ending("a", 2), ERROR) == Lost("a", "from round 2 on", True)
    assert lost_in(ending("a", 1), ERROR) == Lost("a", "from round 1 on", True)
    assert lost_in(ending("a", 4), measure_of("test_accuracy")) == Lost("a", "from round 4 on", True)
    assert lost_in(ending("a", 5), ERROR) is None
    # measured every second round
    rare = curve(test_loss=[NAN, 2, NAN, NAN, NAN, NAN], test_error=[NAN, 0.9, NAN, 1, NAN, 1])
    assert lost_in(rare, ERROR) == Lost("a", "from round 4 on", True)
    # a number again: in the mean over the last rounds alone
    again = curve(test_loss=[2, NAN, NAN, 2], test_error=[0.9, 1, 1, 0.8])
    assert lost_in(again, ERROR) is None
    assert lost_in(again, ERROR, 2) == Lost("a", "in round 3", True)
    # of a model that is finite, and overflows on some samples, not all answers are wrong
    found = lost_in(curve(test_loss=[2, NAN, NAN], test_error=[0.5, 0.9, 0.95]), ERROR)
    assert found == Lost("a", "from round 2 on", False)
    domains = curve(test_loss=[2, NAN], test_error_photo=[0.5, 1], domain_error_mean=[0.5, 1])
    for name in ("test_error_photo", "domain_error_mean"):
        assert lost_in(domains, measure_of(name)) == Lost("a", "from round 2 on", True)


@pytest.mark.parametrize(
    "columns",
    [
        {"test_error": [0.9, 0.5, 0.1]},  # of a loop that measures no loss
        {"test_error": [1.0, 0.5, 1.0]},
        {"test_loss": [2, 1, 0.5], "test_error": [1.0, 1.0, 1.0]},  # all wrong, and finite
        {"test_loss": [NAN, NAN, 2, NAN, NAN, 1, NAN, NAN], "test_error": [0.9] * 7 + [0.1]},  # every third round
        {"test_loss": [NAN, NAN, 2, NAN, NAN, 1, NAN, NAN], "test_error": [90.0] * 7 + [1.0]},  # in per cent
        {"test_loss": [2, np.inf, np.inf], "test_error": [0.9, 0.5, 0.1]},  # a loss of one's own
        {"test_loss": [2, NAN, 1], "test_error": [0.9, 0.5, 0.1]},
        {"test_loss": [2, 1, NAN], "test_error": [0.9, 0.5, NAN]},  # neither was measured
        {"test_loss": [2, 1, NAN, NAN], "test_error": [0.9, 0.5, 0.5, 0.4]},  # its loss is no longer measured
        {"test_loss": [2, NAN, NAN], "test_error": [0.9, 0.95, 0.2]},
        {"client_error_mean": [0.9, 0.5, 1.0], "test_loss": [2, NAN, NAN]},
    ],
)
def test_of_sound_runs_nothing_is_said(columns: dict[str, list[float]]) -> None:
    one = curve(**columns)
    for name in columns:
        if not name.endswith("loss"):
            assert lost_in(one, measure_of(name), len(one.round)) is None


def test_the_loss_beside_an_error_is_that_of_the_same_model() -> None:
    averages = {"averaged_test_loss": [NAN, NAN, 1.0], "averaged_test_error": [NAN, NAN, 0.5]}
    lost = {"averaged_test_loss": [NAN, NAN, NAN], "averaged_test_error": [NAN, NAN, 1.0]}
    sound, broken = {"test_loss": [2, 1, 1], "test_error": [0.9, 0.5, 0.5]}, ending("a", 2, 3).values
    assert lost_in(Curve("a", np.arange(1, 4), {**broken, **curve(**averages).values}), ERROR) is None
    assert lost_in(curve(**sound, **lost), ERROR) == Lost("a", "from round 3 on", True)
    assert lost_in(curve(**sound, **lost), measure_of("averaged_test_error")) is not None
    assert (
        lost_in(Curve("a", np.arange(1, 4), {**broken, **curve(**averages).values}), measure_of("train_loss")) is None
    )


def test_many_runs_are_one_sentence() -> None:
    curves = [ending("a", 2), ending("b", 9), ending("c", 2)]
    assert describe_diverged(curves, ERROR) == [
        "a, c diverged: no finite loss from round 2 on; their answers count as wrong"
    ]
    assert describe_diverged([*curves, ending("d", 4)], ERROR) == [
        "a (from round 2 on), c (from round 2 on), d (from round 4 on) diverged: no finite loss there; their answers "
        "count as wrong"
    ]
    some = curve("e", test_loss=[2, NAN, NAN], test_error=[0.5, 0.9, 0.95])
    assert describe_diverged([*curves, some], ERROR)[1] == (
        "e has no finite loss from round 2 on, as a model that diverged; answers that are no numbers count as wrong"
    )


def test_curves_say_which_seed_diverged() -> None:
    seeds = tuple(ending(f"lr3-{seed}", 2 if seed == 1 else 9) for seed in range(3))
    words = "lr3-1 diverged: no finite loss from round 2 on; its answers count as wrong"
    assert words in Curves(seeds, {}).summary().splitlines()
    assert words in Curves(seeds, {}, bands=(Band("lr3", seeds),), measures=("test_accuracy",)).summary().splitlines()
    assert "diverged" not in Curves((seeds[0], seeds[2])).summary()
    assert "diverged" not in Curves(seeds, {}, measures=("test_loss",)).summary()


def test_a_table_notes_which_seed_diverged(tmp_path: Path) -> None:
    w = {"w": np.zeros(3, np.float32)}
    for seed in range(3):
        with Recorder(tmp_path / f"m-{seed}", method="m", seed=seed) as recorder:
            for t in range(4):
                lost = seed == 1 and t
                numbers = {"test_loss": NAN if lost else 2.0, "test_error": 1.0 if lost else 0.9}
                numbers |= {f"averaged_{name}": value for name, value in numbers.items()}
                recorder.round(start=w, clients=[{"w": w["w"] + 1}, {"w": w["w"] + 2 + seed}], metrics=numbers)
    runs = [tmp_path / f"m-{seed}" for seed in range(3)]
    words = "m-1 diverged: no finite loss from round 2 on; its answers count as wrong"
    for of in ("deployed", "global", "averaged", "both"):
        assert table(runs, of=of).notes.count(words) == 1, of
    assert not any("diverged" in note for note in table([runs[0], runs[2]]).notes)


def crosses_of(figure: object, panel: int = 0) -> list[list[float]]:
    return [list(line.get_xdata()) for line in figure.axes[panel].lines if line.get_marker() == "x"]  # type: ignore[attr-defined]


def test_rounds_without_a_finite_value_are_crosses_and_the_legend_says_so() -> None:
    sound = curve("fma", test_loss=[2, 1, 1, 1], test_error=[0.9, 0.5, 0.4, 0.3])
    figure = Curves((sound, ending("div", 2))).figure()
    assert crosses_of(figure) == [[2, 3, 4]]
    assert not crosses_of(figure, 1)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["fma", "div", "not finite"]
    for name in ("test_loss", "averaged_test_loss"):
        lost = curve(**{name: [2, NAN, NAN], name.replace("loss", "error"): [0.9, 1, 1]})
        assert crosses_of(Curves((lost,), measures=(name,)).figure()) == [[2, 3]]
    assert crosses_of(Curves((curve(reward=[1, np.inf, 2]),), measures=("reward",)).figure()) == [[2]]
    # one of no number, and of a mean over seeds that of one
    assert crosses_of(Curves((sound, ending("div", 1))).figure()) == [[1, 2, 3, 4]]
    seeds = (ending("a-0", 9), ending("a-1", 3))
    assert crosses_of(Curves(seeds, {}, bands=(Band("a", seeds),)).figure()) == [[3, 4]]


def test_crosses_of_runs_that_diverge_together_are_all_seen() -> None:
    panel = Curves((ending("a", 2), curve("sound", test_loss=[2, 1, 1, 1]), ending("b", 2))).figure().axes[0]
    heights = [line.get_ydata()[0] for line in panel.lines if line.get_marker() == "x"]
    assert heights == pytest.approx([0.04, 0.08])


def test_rounds_that_were_not_measured_are_no_crosses() -> None:
    for columns in (
        {"test_loss": [2, NAN, 1], "test_error": [0.9, NAN, 0.1]},
        {"test_loss": [2, NAN, NAN], "test_error": [0.9, 0.5, 0.1]},
        {"test_loss": [2, NAN, NAN]},
        {"test_loss": [2, NAN, 1], "averaged_test_loss": [NAN, 1, 1], "averaged_test_error": [NAN, 0.1, 0.1]},
    ):
        figure = Curves((curve(**columns),)).figure()
        assert not crosses_of(figure)
        assert "not finite" not in [text.get_text() for text in figure.legends[0].get_texts()]
