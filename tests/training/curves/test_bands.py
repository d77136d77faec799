"""Rounds to a target, and runs that differ only in their seed: against numbers worked out by hand and by numpy."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedscope.checkpoints import FedscopeError, FedscopeWarning, RoundRecord, Run, RunWriter
from fedscope.training import Curve, Curves, measure_of
from fedscope.training.curves.bands import Band, seeds_of

pytestmark = pytest.mark.same_elsewhere

ERROR = measure_of("test_error")


def written(path: Path, errors: list[float | None], *, first: int = 1, more: Any = None, **sections: Any) -> Run:
    """A run that is nothing but its configuration and what was measured."""
    config = {"model": {"name": "mlp"}, "average": {"method": "none"}, "run": {"seed": 0}, "data": {"seed": 0}}
    for section, table in sections.items():
        config[section] = {**config.get(section, {}), **table}
    with RunWriter.create(path, {"layout": []}, config, None) as writer:
        writer.last = first - 1
        for t, error in enumerate(errors, start=first):
            empty = np.zeros(0)
            numbers = {"test_error": error, "test_loss": 1.0, "parameters_down": 10, "parameters_up": 20}
            writer.write(RoundRecord(t, None, None, None, None, *[empty] * 5, metrics={**numbers, **(more or {})}))
    return Run.open(path)


@pytest.fixture
def seeds(tmp_path: Path) -> Callable[..., list[Run]]:
    """Runs of one configuration by their errors, ``fma-0``, ``fma-1``, ...; the first has the seed 0."""

    def make(*errors: list[float | None], name: str = "fma", **sections: Any) -> list[Run]:
        return [
            written(tmp_path / f"{name}-{i}", one, **{**sections, "run": {**sections.get("run", {}), "seed": i}})
            for i, one in enumerate(errors)
        ]

    return make


# --- a target ---


@given(
    arrays(np.float64, 9, elements=st.sampled_from([np.nan, 0.1, 0.2, 0.35, 0.9])), st.sampled_from([0.65, 0.8, 0.9])
)
def test_the_first_round_with_a_target_accuracy_is_that_of_a_loop(errors: np.ndarray, target: float) -> None:
    one = Curve("fma", np.arange(1, 10), {"test_error": errors, "parameters_down": np.full(9, 3.0)})
    expected = next((t for t, error in enumerate(errors, start=1) if round(1 - error, 9) >= target), None)
    for name in ("test_error", "test_accuracy"):
        found = one.reach(measure_of(name), target)
        assert found.round == expected
        assert np.isnan(found.parameters_up)
        if expected is not None:
            assert found.parameters_down == 3 * expected
            # it reaches every lower target as early
            assert one.reach(ERROR, target - 0.1).round <= expected


def test_a_target_is_of_the_deployed_model_and_counts_rounds_that_were_not_measured() -> None:
    values = {"test_error": np.array([0.5, np.nan, 0.3, 0.5]), "averaged_test_error": np.array([np.nan] * 3 + [0.1])}
    values["parameters_up"] = np.array([5.0, 5, 5, 7])
    one = Curve("ima", np.arange(1, 5), values)
    assert (one.reach(ERROR, 0.7).round, one.reach(ERROR, 0.7).parameters_up) == (3, 15)
    assert (one.reach(ERROR, 0.85).round, one.reach(ERROR, 0.85).parameters_up) == (4, 22)
    assert one.reach(ERROR, 0.95).round is None
    assert one.reach(ERROR, 0.95).best == pytest.approx(0.9)


def test_what_is_not_reached_is_said_and_is_no_error(seeds: Any) -> None:
    runs = [*seeds([0.5, 0.3]), *seeds([0.5, 0.2], name="swa", average={"method": "swa"})]
    curves = Curves.of(runs, measures=("test_accuracy",), target=0.8)
    assert curves.summary().splitlines()[-1] == (
        "rounds to 80 % test accuracy of the deployed model: fma-0 not reached in 2 rounds (best 70.0 %), swa-0 2 "
        "(20 parameters to clients, 40 from them)"
    )
    target = curves.numbers()["target"]
    assert target["accuracy"] == 0.8
    assert target["reached"]["test_accuracy"]["fma-0"]["round"] is None
    assert target["reached"]["test_accuracy"]["swa-0"]["parameters_up"] == 40
    json.dumps(target, allow_nan=False)
    axes = curves.figure().axes[0]
    (line,) = [line for line in axes.lines if list(line.get_ydata()) == [80.0, 80.0]]
    (ring,) = [line for line in axes.lines if line.get_marker() == "o"]
    assert ring.get_xydata().tolist() == [[2, pytest.approx(80)]]
    assert line.get_linestyle() == "--"
    assert [text.get_text() for text in curves.figure().legends[0].get_texts()][-2:] == ["target accuracy", "reached"]
    # a panel of errors has the same target, one of losses none
    below = replace(curves, measures=("test_error", "test_loss")).figure().axes
    assert [20.0, 20.0] in [pytest.approx(list(line.get_ydata())) for line in below[0].lines]
    assert all(len(line.get_ydata()) > 1 for line in below[1].lines)


def test_sums_over_rounds_are_drawn_and_told(seeds: Any) -> None:
    curves = Curves.of(seeds([0.5, None, 0.3]), measures=("parameters_up_total", "parameters_down_total"))
    drawn = [axes.lines[0].get_ydata().tolist() for axes in curves.figure().axes]
    assert drawn == [[20, 40, 60], [10, 20, 30]]
    assert curves.summary().splitlines()[0] == "parameters from clients, in all, after the last round: fma-0 60"


def test_the_target_of_a_band_is_its_means_beside_each_seeds(seeds: Any) -> None:
    curves = Curves.of(seeds([0.5, 0.2, 0.2], [0.5, 0.5, 0.1], [0.5, 0.5, 0.3]), bands=True, target=0.8)
    assert curves.summary().splitlines()[-1] == (
        "rounds to 80 % test accuracy of the deployed model: fma 3 (30 parameters to clients, 60 from them; each seed "
        "2, 3, not)"
    )
    told = curves.numbers()["target"]["reached"]["test_error"]["fma"]
    assert (told["round"], told["seeds"]) == (3, {"fma-0": 2, "fma-1": 3, "fma-2": None})


# --- seeds ---


def test_a_band_on_a_logarithmic_axis_does_not_fall_to_its_floor(tmp_path: Path) -> None:
    losses = np.array([0.01, 0.02, 10.0])  # the deviation is greater than the mean
    runs = [
        written(tmp_path / f"fma-{i}", [0.5, 0.4], run={"seed": i}, more={"test_loss": loss})
        for i, loss in enumerate(losses)
    ]
    figure = Curves.of(runs, measures=("test_loss", "test_error"), bands=True).figure()
    (band,) = figure.axes[0].collections
    corners = band.get_paths()[0].vertices[:, 1]
    mean, deviation = losses.mean(), losses.std(ddof=1)
    assert (corners.min(), corners.max()) == pytest.approx((mean / (1 + deviation / mean), mean + deviation))
    assert figure.axes[0].get_yscale() == "log"
    assert [text.get_text() for text in figure.legends[0].get_texts()][-1] == "± 1 s.d. over seeds (log: a factor)"


def test_seeds_are_one_line_with_their_mean_and_deviation(seeds: Any, tmp_path: Path) -> None:
    errors = np.array([[0.9, 0.5, 0.4], [0.8, 0.6, 0.2], [0.7, 0.1, 0.3]])
    alone = seeds([0.9, 0.8, 0.7], name="ima", average={"method": "ima"})
    curves = Curves.of([*seeds(*errors.tolist()), *alone], measures=("test_accuracy",), bands=True, last=2)
    figure = curves.figure()
    axes = figure.axes[0]
    assert figure.get_size_inches()[0] == 3.5
    np.testing.assert_allclose(axes.lines[0].get_ydata(), 100 * (1 - errors.mean(axis=0)))
    (band,) = axes.collections
    corners, spread = band.get_paths()[0].vertices, errors.std(axis=0, ddof=1)
    for i in range(3):
        here = corners[corners[:, 0] == i + 1, 1]
        middle = 1 - errors.mean(axis=0)[i]
        assert (here.min(), here.max()) == pytest.approx((100 * (middle - spread[i]), 100 * (middle + spread[i])))
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["FMA (FedAvg), 3 seeds", "ima-0, 1 seed", "± 1 s.d. over seeds"]
    # told: each seed's mean over its last rounds, then over seeds
    tails = 1 - errors[:, 1:].mean(axis=1)
    told = curves.numbers()["test_accuracy"]["fma"]
    assert (told["mean"], told["deviation"], told["seeds"]) == pytest.approx((tails.mean(), tails.std(ddof=1), 3))
    assert curves.summary() == (
        "test accuracy of the deployed model, mean ± deviation over seeds, of each one's last measured rounds, 2 at "
        f"most: fma {100 * tails.mean():.1f} ± {100 * tails.std(ddof=1):.1f} % (3 seeds), ima-0 25.0 % (1 seed)"
    )
    curves = replace(curves, attrs={"versions": {}})
    assert [path.name for path in curves.save(tmp_path / "c")] == ["c.curves.csv", "c.curves.json", "c.bands.csv"]
    with (tmp_path / "c.bands.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["measure"] == "test_error"]
    assert [(row["run"], row["round"], row["seeds"]) for row in rows][2:4] == [("fma", "3", "3"), ("ima-0", "1", "1")]
    np.testing.assert_allclose([float(row["mean"]) for row in rows[:3]], errors.mean(axis=0))
    np.testing.assert_allclose([float(row["std"]) for row in rows[:3]], spread)
    assert {row["std"] for row in rows[3:]} == {""}
    # the runs themselves stay in the table, and without bands there is none of means
    assert len(Curves.load(tmp_path / "c").runs) == 4
    assert Curves.load(tmp_path / "c").bands[0].seeds == 3, "and is read back with them"
    replace(Curves.load(tmp_path / "c"), bands=()).save(tmp_path / "c")
    assert not (tmp_path / "c.bands.csv").exists()


def test_a_band_is_over_the_rounds_that_all_seeds_have(tmp_path: Path) -> None:
    runs = [
        written(tmp_path / "s-0", [0.9, 0.8, 0.7, 0.6]),
        written(tmp_path / "s-1", [0.5, None, 0.3], run={"seed": 1}),
    ]
    with pytest.warns(FedscopeWarning, match=r"bands.*: of 4 rounds s-1 has 3; a mean at the end of s is of runs that"):
        curve = Curves.of(runs, bands=True).lines[0]
    rounds, values = curve.measured(ERROR)
    assert rounds.tolist() == [1, 3]
    np.testing.assert_allclose(values, [0.7, 0.5])


@given(arrays(np.float64, (3, 6), elements=st.floats(0, 1)), st.permutations(range(3)))
def test_a_band_does_not_depend_on_the_order_of_its_seeds(errors: np.ndarray, order: list[int]) -> None:
    one, other = (
        Band("fma", tuple(Curve(str(i), np.arange(1, 7), {"test_error": errors[i]}) for i in own))
        for own in (range(3), order)
    )
    np.testing.assert_allclose(one.curve.values["test_error"], other.curve.values["test_error"], atol=1e-12)
    np.testing.assert_allclose(one.deviation(ERROR), other.deviation(ERROR), atol=1e-12)
    np.testing.assert_allclose(one.deviation(ERROR), one.deviation(measure_of("test_accuracy")), atol=1e-12)


def test_where_a_run_was_computed_and_what_is_kept_of_it_is_no_other_setting(tmp_path: Path) -> None:
    elsewhere = {"run": {"seed": 1, "device": "cuda"}, "record": {"clients": "none"}, "data": {"name": "npz:there"}}
    runs = [written(tmp_path / "a-0", [0.5]), written(tmp_path / "a-1", [0.4], **elsewhere)]
    runs.append(written(tmp_path / "a-2", [0.3], data={"seed": 1}))
    assert [band.seeds for band in seeds_of(runs, Curves.of(runs).runs)] == [3]


def test_runs_that_make_no_band_are_refused(tmp_path: Path, seeds: Any) -> None:
    fma = seeds([0.5])[0]
    with pytest.raises(
        FedscopeError, match=r"^--bands needs .* only in their seed, and fma-0 is one run; train others with another"
    ):
        Curves.of([fma], bands=True)
    ima = written(tmp_path / "ima", [0.5], average={"method": "ima", "window": 5})
    with pytest.raises(
        FedscopeError,
        match=r"each is the only one of its settings: fma-0 and ima differ in average.method; train others with "
        r"another --seed, or leave out --bands$",
    ):
        Curves.of([fma, ima], bands=True)
    copy = written(tmp_path / "copy", [0.5])
    with pytest.raises(FedscopeError, match=r"fma-0 and .*copy have the same settings and one seed, run.seed = 0, so"):
        Curves.of([fma, copy], bands=True)
    later = written(tmp_path / "fma-9", [0.5], first=7, run={"seed": 9})
    with pytest.raises(FedscopeError, match=r"--bands: fma-0, fma-9 have no round in common; go on with the shorter"):
        Curves.of([fma, later], bands=True)
    with RunWriter.create(tmp_path / "foreign", {"layout": [], "source": "flower"}, None, None) as writer:
        writer.write(RoundRecord(1, None, None, None, None, *[np.zeros(0)] * 5, metrics={"test_error": 0.5}))
    with pytest.raises(FedscopeError, match=r"foreign was recorded by flower and says no seed, so it is not known"):
        Curves.of([fma, Run.open(tmp_path / "foreign")], bands=True)


# --- columns that only some runs have ---


def test_domains_are_drawn_of_the_deployed_model_and_come_back(tmp_path: Path, seeds: Any) -> None:
    numbers = {"test_error_photo": 0.4, "averaged_test_error_photo": 0.25, "domain_error_mean": 0.5}
    more = {**numbers, "domain_error_std": 0.1, "averaged_domain_error_mean": 0.4, "averaged_domain_error_std": 0.05}
    run = written(tmp_path / "ima", [0.5, 0.4], more=more)
    curves = Curves.of([run, *seeds([0.5, 0.3])], measures=("test_accuracy_photo", "domain_error_mean"))
    photo, mean = (
        curves.runs[0].series(measure_of("test_accuracy_photo")),
        curves.runs[0].series(measure_of("domain_error_mean")),
    )
    assert (photo.tolist(), mean.tolist()) == ([0.75, 0.75], [0.4, 0.4])
    with pytest.raises(FedscopeError, match=r"^fma-0 has no numbers of test_error_photo or domain_error_mean, only of"):
        curves.figure()
    alone = replace(curves, runs=curves.runs[:1])
    assert [axes.get_ylabel() for axes in alone.figure().axes] == [
        "test accuracy, photo (%)",
        "mean error over\ndomains (%)",
    ]
    corners = alone.figure().axes[1].collections[0].get_paths()[0].vertices
    assert (corners[:, 1].min(), corners[:, 1].max()) == pytest.approx((35, 45))
    assert "test accuracy, photo of the deployed model" in alone.summary()
    saved = replace(curves, attrs={"versions": {}})
    saved.save(tmp_path / "c")
    back = Curves.load(tmp_path / "c")
    assert back.columns == saved.columns
    for one, other in zip(back.runs, saved.runs, strict=True):
        for name in saved.columns:
            np.testing.assert_array_equal(one.column(name), other.column(name))
    table = tmp_path / "c.curves.csv"
    table.write_text(table.read_text().replace("test_error_photo", "a photo", 1))
    with pytest.raises(FedscopeError, match=r"c\.curves\.csv is not a table of `fedscope curves`"):
        Curves.load(tmp_path / "c")


def test_the_command_and_the_function_give_the_same_bands(
    seeds: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import fedscope
    from fedscope.cli.main import run

    names = [one.name for one in seeds([0.5, 0.2], [0.4, 0.1])]
    monkeypatch.chdir(tmp_path)
    for words in ([], ["--redraw"], ["--force"]):  # the table of means is there each time
        assert run(["curves", *names, "--bands", "--target", "0.8", "--out", "m", "--json", *words]) == 0
        said = json.loads(capsys.readouterr().out)
        assert sorted(said.pop("files")) == ["m.bands.csv", "m.curves.csv", "m.curves.json", "m.pdf", "m.png"]
        asked = fedscope.curves(names, bands=True, target=0.8)
        assert asked.numbers() == said
        assert said["test_error"]["fma"]["seeds"] == 2
    asked.save("n")
    assert Path("n.bands.csv").read_bytes() == Path("m.bands.csv").read_bytes()
    assert run(["curves", *names, "--bands"]) == 0
    assert Path("fma-0/figures/curves-fma-0-fma-1-bands.bands.csv").exists()


def test_seeds_that_have_not_all_their_rounds_are_told(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    short = [written(tmp_path / f"t-{k}", [0.9, 0.8], run={"seed": k, "rounds": 6}) for k in range(2)]
    with pytest.warns(FedscopeWarning, match=r"of 6 rounds t-0 has 2, t-1 has 2; a mean at the end of t is of"):
        Curves.of(short, bands=True)
    recwarn.clear()
    whole = [written(tmp_path / f"u-{k}", [0.9, 0.8], run={"seed": k, "rounds": 2}) for k in range(2)]
    Curves.of(whole, bands=True)
    assert [one.message for one in recwarn if isinstance(one.message, FedscopeWarning)] == []


def test_bands_of_other_seeds_are_told(seeds: Callable[..., list[Run]], recwarn: pytest.WarningsRecorder) -> None:
    """Two bands side by side are read as one draw of both."""
    one, other = (
        seeds([0.5], [0.4], [0.3], name="fma"),
        seeds([0.5], [0.4], [0.3], name="ima", average={"method": "ima"}),
    )
    Curves.of([*one, *other], bands=True)
    Curves.of([*one, *other[:2]], bands=True)
    assert [str(said.message) for said in recwarn] == [], "the same seeds, or fewer of them, which the legend says"
    with pytest.warns(FedscopeWarning) as told:
        Curves.of([*one[:2], *other[1:]], bands=True)
    assert [str(said.message) for said in told] == [
        "--bands: fma has seeds 0, 1 (data.seed 0); ima has seeds 1 (data.seed 0), 2 (data.seed 0); 1 in common, so a "
        "difference between these lines is not one of the same seeds"
    ]
