"""``table``: means and deviations over seeds, differences to a baseline, and the five forms."""

from __future__ import annotations

import csv
import io
import re
import shutil
import statistics
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hostile import TEXTS, steers
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import ttest_rel

from fedscope.checkpoints import FedscopeError, Run
from fedscope.checkpoints.io.visible_text import visible
from fedscope.checkpoints.rounds.run_identity import shared_rounds
from fedscope.plotting.printed import printed_method
from fedscope.results.csv_cells import text_of
from fedscope.training import Comparison, Config, Curves, branch, merge, preset, table, train
from fedscope.training.curves.measures import measure_of
from fedscope.training.curves.run_curve import Curve
from fedscope.training.curves.run_names import method_of_tables
from fedscope.training.tables.asked_model import curve_of_model
from fedscope.training.tables.distinct_draws import Placed, about_rows
from fedscope.training.tables.forms import in_latex, in_typst
from fedscope.training.tables.layout import FROM_ROUNDS, axes_of, varied_settings, words_of
from fedscope.training.tables.notes import notes_on_other_settings
from fedscope.training.tables.statistics import paired_difference
from fedscope.training.tables.table_runs import Gathered, TableRun

pytestmark = [pytest.mark.same_elsewhere, pytest.mark.usefixtures("few_digits")]

METHODS, SHARES, SEEDS = ("fma", "fedavgm"), (0.5, 1.0), (0, 1, 2)
ROUNDS = 4


def settings(method: str, share: float, seed: int, **more: Any) -> Config:
    tables: dict[str, dict[str, Any]] = {
        "data": {"clients": 4, "seed": seed},
        "model": {"hidden": [4]},
        "client": {"epochs": 1},
        "server": {"method": method},
        "run": {"rounds": ROUNDS, "participation": share, "seed": seed, "evaluate_clients": 0},
    }
    for section, keys in more.items():
        tables.setdefault(section, {}).update(keys)
    return Config.read(tables)


@pytest.fixture(scope="module")
def grid(few_digits: None, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, float, int], Run]:
    """Two methods, two participations, three seeds."""
    folder = tmp_path_factory.mktemp("grid")
    return {
        (method, share, seed): train(settings(method, share, seed), folder / f"{method}-{share}-{seed}")
        for method in METHODS
        for share in SHARES
        for seed in SEEDS
    }


def column(run: Run, name: str) -> list[float]:
    """A column of ``metrics.csv``, read by the standard library alone."""
    with (run.path / "metrics.csv").open(encoding="utf-8") as file:
        return [float(row[name]) for row in csv.DictReader(file)]


def tail(run: Run, last: int) -> float:
    return 1 - statistics.fmean(column(run, "test_error")[-last:])


def test_cells_are_means_over_the_last_rounds_then_over_seeds(grid: dict[tuple[str, float, int], Run]) -> None:
    found = table(list(grid.values()), last=2)
    assert found.rows_named == METHODS
    assert found.columns_named == (("participation 0.5", "test_accuracy"), ("participation 1", "test_accuracy"))
    assert found.baseline == "fma"
    for method in METHODS:
        for share in SHARES:
            cell = found.cell(method, f"participation {share:g}", "test_accuracy")
            each = [tail(grid[method, share, seed], 2) for seed in SEEDS]
            assert cell is not None
            assert list(cell.values.values()) == pytest.approx(each, abs=1e-12)
            assert cell.mean == pytest.approx(statistics.fmean(each), abs=1e-12)
            assert cell.deviation == pytest.approx(statistics.stdev(each), abs=1e-12)


def test_the_best_of_a_grid_is_that_of_the_best_mean_over_seeds(grid: dict[tuple[str, float, int], Run]) -> None:
    for measure, better in (("test_accuracy", max), ("test_loss", min)):
        found = table(list(grid.values()), last=2, measures=[measure], best_of=["run.participation"])
        assert found.columns_named == (("", measure),)
        for method in METHODS:
            means = {}
            for share in SHARES:
                each = [column(grid[method, share, seed], "test_error" if better is max else "test_loss")[-2:]
                        for seed in SEEDS]  # fmt: skip
                means[share] = statistics.fmean(1 - x if better is max else x for own in each for x in own)
            best = better(means, key=lambda share: means[share])
            cell = found.cell(method, "", measure)
            assert cell is not None
            assert cell.mean == pytest.approx(means[best], abs=1e-12)
            other = next(share for share in SHARES if share != best)
            note = f"{method}: participation {best:g}, chosen by these numbers before participation {other:g}"
            assert note in found.notes
            assert len(found.commands[method]) == len(SEEDS), "only those of the runs that count"
    with pytest.raises(FedscopeError, match=r"best_of='client\.mu' is not a setting of these runs"):
        table(list(grid.values()), best_of="client.mu")


def entry(**settings: Any) -> TableRun:
    named = {key.replace("__", "."): value for key, value in settings.items()}
    return TableRun("", named, (0, 0), {}, Curve("", np.arange(0), {}), (1, 1), "")


def test_a_setting_of_two_sections_is_named_once_where_it_is_one() -> None:
    alike = [entry(method="fedmoswa", client__gamma=g, server__gamma=g, server__alpha=a) for g, a in ((1, 1), (2, 3))]
    assert varied_settings(alike) == ["client.gamma", "server.alpha"]
    assert words_of(varied_settings(alike), alike[1]) == "gamma 2, alpha 3"
    apart = [entry(method="fedadam", client__lr=0.1, server__lr=lr) for lr in (0.1, 1.0)]
    assert varied_settings(apart) == ["server.lr"]
    assert words_of(("client.lr", "server.lr"), apart[1]) == "client lr 0.1, server lr 1"


def test_what_a_method_takes_from_the_number_of_rounds_is_no_axis() -> None:
    """IMA's start and FedFA's first round, which are three quarters and a quarter of the rounds by default."""
    made = [
        entry(method=method, average__method=average, run__rounds=rounds, **more)
        for rounds, start in ((4, 3), (6, 5))
        for method, average, more in (("fma", "none", {}), ("ima", "ima", {"average__start": start}))
    ]
    assert varied_settings(made) == ["method", "average.method", "run.rounds"]
    chosen = [*made[:-1], entry(method="ima", average__method="ima", run__rounds=6, average__start=2)]
    assert varied_settings(chosen) == ["method", "average.method", "run.rounds", "average.start"]
    made.append(chosen[-1])
    assert varied_settings(made) == ["method", "average.method", "run.rounds", "average.start"]


def test_the_settings_that_are_taken_from_the_number_of_rounds_are_known() -> None:
    from dataclasses import fields

    from fedscope.training.settings.registry import find, names

    taken = {
        f"{section}.{key.name}"
        for shelf, section in (("clients", "client"), ("servers", "server"), ("averages", "average"))
        for name in names(shelf)
        for key in fields(find(shelf, name))
        if "R)" in key.metadata.get("doc", "")
    }
    assert taken == set(FROM_ROUNDS)


def test_a_run_beside_labelled_ones_is_called_by_its_method() -> None:
    mixed = [entry(method="fedmoswa", server__alpha=1.5), entry(label="rho = 1", method="fedmoswa", server__alpha=1.0)]
    assert [words_of(("label",), one) for one in mixed] == ["fedmoswa", "rho = 1"]


def test_differences_are_paired_over_seeds(grid: dict[tuple[str, float, int], Run]) -> None:
    found = table(list(grid.values()), last=2)
    for share in SHARES:
        cell = found.cell("fedavgm", f"participation {share:g}", "test_accuracy")
        assert cell is not None
        difference = found.difference(cell)
        mine, other = ([tail(grid[method, share, seed], 2) for seed in SEEDS] for method in ("fedavgm", "fma"))
        theirs = ttest_rel(mine, other)
        low, high = theirs.confidence_interval()
        assert difference is not None
        assert (difference.low, difference.high, difference.p) == pytest.approx((low, high, theirs.pvalue), rel=1e-6)


@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1)), min_size=2, max_size=12))
def test_the_paired_test_is_scipys(pairs: list[tuple[float, float]]) -> None:
    one, other = ({i: pair[k] for i, pair in enumerate(pairs)} for k in (0, 1))
    found = paired_difference(one, other)
    assert found is not None
    differences = np.array([a - b for a, b in pairs])
    assert found.mean == pytest.approx(differences.mean(), abs=1e-12)
    if differences.std() < 1e-9:  # p is 0/0, or noise of the last bits
        return
    theirs = ttest_rel(list(one.values()), list(other.values()))
    assert found.p == pytest.approx(theirs.pvalue, rel=1e-6, abs=1e-12)
    assert found.low == pytest.approx(theirs.confidence_interval().low, rel=1e-6, abs=1e-9)


def test_what_few_seeds_can_show() -> None:
    one = paired_difference({0: 2.0}, {0: 1.0})
    assert one is not None
    assert (one.mean, one.seeds) == (1.0, 1)
    assert np.isnan(one.p)
    assert paired_difference({0: 1.0}, {1: 1.0}) is None
    same = paired_difference({0: 2.0, 1: 3.0}, {0: 1.0, 1: 2.0})
    assert same is not None
    assert (same.low, same.high) == (1.0, 1.0)
    assert np.isnan(same.p), "all differences alike: the test cannot say how likely that is"


@pytest.mark.parametrize(
    ("values", "baseline", "mean"),
    [((np.inf, 0.2), (0.5, 0.6), np.inf), ((0.5, 0.6), (np.inf, 0.2), -np.inf), ((np.inf, 0.2), (0.5, np.inf), np.nan)],
)
def test_infinite_losses_have_no_interval(values: tuple[float, ...], baseline: tuple[float, ...], mean: float) -> None:
    found = paired_difference(dict(enumerate(values)), dict(enumerate(baseline)))
    assert found is not None
    np.testing.assert_equal([found.mean, found.low, found.high, found.p], [mean, np.nan, np.nan, np.nan])


@pytest.mark.parametrize("others", [(73, 84), (73, 45), (3, 177), (101, 102)])
def test_equal_differences_of_shares_are_alike_in_spite_of_their_last_bits(others: tuple[int, int]) -> None:
    found = paired_difference(*({i: 1 - (k - more) / 360 for i, k in enumerate(others)} for more in (3, 0)))
    assert found is not None
    assert found.low == found.mean == found.high == pytest.approx(3 / 360)
    assert np.isnan(found.p)
    apart = paired_difference({0: 0.5, 1: 0.5 + 1e-9}, {0: 0.4, 1: 0.4})
    assert apart is not None
    assert apart.p < 1e-6, "a difference of 1e-9 is one"


def test_branches_of_one_run_are_no_seeds(grid: dict[tuple[str, float, int], Run], tmp_path: Path) -> None:
    """Their first rounds are one draw: a deviation over them is none over seeds, and a band has the width 0 there."""
    trunk, apart = grid["fma", 1.0, 0], grid["fma", 1.0, 1]
    five, six = (branch(trunk, 2, {"run": {"seed": seed}}, tmp_path / f"of-{seed}") for seed in (5, 6))
    assert column(five, "test_loss")[:2] == column(six, "test_loss")[:2] == column(trunk, "test_loss")[:2]
    for pair in ([five, six], [trunk, five]):
        found = table(pair, last=1)
        names = [run.name for run in pair]
        assert found.rows_named == tuple(f"fma ({name})" for name in names)
        assert all(np.isnan(cell.deviation) for cell in found.cells)
        assert found.notes[0].startswith(f"{', '.join(names)} have their rounds up to 2 from one training, so they are")
        beside = table([apart, *pair], last=1)
        assert beside.rows_named == ("fma", *found.rows_named)
    with pytest.raises(FedscopeError, match=r"of-5 and .*of-6 have their rounds up to 2 from one training, so"):
        Curves.of([five, six], bands=True)
    # branches of two runs are two draws
    seven = branch(apart, 2, {"run": {"seed": 7}}, tmp_path / "of-7")
    found = table([five, seven], last=1)
    assert [len(cell.values) for cell in found.cells] == [2]
    assert not any("one training" in note for note in found.notes)
    # a method that goes on from each seed's run is compared with it as its own seed
    others = [branch(grid["fma", 1.0, seed], 2, preset("fedprox"), tmp_path / f"prox-{seed}") for seed in (0, 1)]
    found = table([trunk, apart, *others], last=1)
    assert [len(cell.values) for cell in found.cells] == [2, 2]
    assert not any("one training" in note for note in found.notes)


def test_rounds_of_other_settings_are_said(grid: dict[tuple[str, float, int], Run], tmp_path: Path) -> None:
    """A branch is called by what made its last rounds."""
    trunk = grid["fma", 1.0, 1]
    mixed = branch(trunk, 2, merge(preset("fedprox"), {"client": {"lr": 0.01}}), tmp_path / "mixed")
    plain = train(settings("fma", 1.0, 0, client={"method": "fedprox", "lr": 0.01}), tmp_path / "plain")
    found = table([plain, mixed])
    assert [len(cell.values) for cell in found.cells] == [2]
    assert "mixed: rounds up to 2 were made with other settings (client.method, client.lr, client.mu)" in found.notes
    # neither another seed nor another length, nor an average that has not begun, has made a round
    same = branch(trunk, 2, {"run": {"seed": 9, "rounds": 5}, "average": {"method": "ima"}}, tmp_path / "same")
    late = branch(same, 3, {"average": {"method": "none"}}, tmp_path / "late")
    assert same.config is not None
    assert same.config["average"]["start"] == 4
    assert not [note for note in table([same, late]).notes if "other settings" in note]
    after = branch(same, 4, {"average": {"method": "none"}}, tmp_path / "after")
    (note,) = (note for note in table([after]).notes if "other settings" in note)
    assert note.startswith("after: rounds up to 4 were made with other settings (average.method, average.")


def test_pairs_over_crossed_seeds_are_said() -> None:
    """The branch of seed 0 has the seed 1 and the other way round: both differences have both runs' first rounds."""

    def placed(row: str, seed: int, **info: Any) -> Placed:
        run: Any = SimpleNamespace(info=info)
        one = replace(entry(method=row), name=f"{row}-{seed}", seed=(seed, seed), run=run)
        return Placed(one, row, "", str(seed))

    def of(row: str, seed: int, trunk: int) -> Placed:
        return placed(row, seed, identity=f"{row}{seed}", branch={"identities": [[3, f"a{trunk}"]]})

    first = [placed("a", seed, identity=f"a{seed}") for seed in (0, 1)]
    assert about_rows([*first, of("b", 0, 0), of("b", 1, 1)], lambda one: str(one.settings["method"])) == []
    crossed = about_rows([*first, of("b", 0, 1), of("b", 1, 0)], lambda one: str(one.settings["method"]))
    assert len(crossed) == 1
    assert crossed[0].startswith("a-0 and b-1 have their rounds up to 3 from one training and other seeds, so differ")
    # without a second pair there is no test
    assert about_rows([first[0], of("b", 0, 1), of("b", 1, 0)], lambda one: str(one.settings["method"])) == []


def test_rounds_of_one_training_are_known_without_identities() -> None:
    """As an earlier fedscope left them: when the run was made from which others go on."""
    trunk = {"created": "monday"}
    four, two = ({"created": "later", "branch": {"created": "monday", "round": last}} for last in (4, 2))
    assert shared_rounds(four, two) == shared_rounds(trunk, two) == 2
    assert shared_rounds(trunk, four) == 4
    assert shared_rounds({"created": "tuesday"}, four) == shared_rounds(trunk, trunk) == shared_rounds({}, {}) == 0


def test_a_target_is_reached_in_a_round_and_compared_with_the_baseline(grid: dict[tuple[str, float, int], Run]) -> None:
    runs = [grid[method, 1.0, 0] for method in METHODS]
    best = {run.name: 1 - np.minimum.accumulate(column(run, "test_error")) for run in runs}
    target = float(min(own[-1] for own in best.values()))
    found = table(runs, target=target)
    rounds = [int(np.argmax(best[run.name] >= target - 1e-12)) + 1 for run in runs]
    assert [cell.round for cell in found.cells] == rounds
    assert found.ratio(found.cells[1]) == pytest.approx(rounds[0] / rounds[1])
    never = table(runs, target=1.0)
    assert all(np.isnan(cell.round) for cell in never.cells)
    assert never.text().count("never") == 2


@pytest.mark.parametrize("form", ["text", "markdown", "csv", "latex", "typst"])
def test_only_accuracies_have_a_round_with_the_target(
    grid: dict[tuple[str, float, int], Run], tmp_path: Path, form: str
) -> None:
    runs = [grid[method, 1.0, 0] for method in METHODS]
    with pytest.raises(
        FedscopeError, match=r"^target=0\.2 is an accuracy, and test_loss leaves none; ask for an error"
    ):
        table(runs, target=0.2, measures="test_loss")
    both = table(runs, target=0.2, measures=["test_loss", "test_accuracy"])
    assert "nan" not in both.text(form)
    assert both.text(form).count("rounds to 20") == (0 if form == "csv" else 1)
    assert [set(one) & {"rounds", "ratio"} for one in both.findings()["cells"]] == [set(), {"rounds", "ratio"}] * 2
    both.save(tmp_path / "both")
    again = Comparison.load(tmp_path / "both")
    assert again.text(form) == both.text(form)
    assert again.cells == both.cells


def test_what_was_not_measured_has_no_round(grid: dict[tuple[str, float, int], Run]) -> None:
    """FMA has no averaged model, which is another thing than one that never gets there."""
    (line,) = (
        line for line in table([grid["fma", 1.0, 0]], of="both", target=1.0).text().splitlines() if "FMA" in line
    )
    assert line.split()[-3:] == ["never", "-", "-"]


def test_differences_of_several_measures_say_what_they_differ_in(grid: dict[tuple[str, float, int], Run]) -> None:
    runs = [grid[method, 1.0, seed] for method in METHODS for seed in SEEDS]
    shown = table(runs, measures=["test_accuracy", "test_loss"]).text().splitlines()
    lines = [line.split(":")[0].strip() for line in shown if line.startswith("  ")]
    assert lines == ["FedAvgM, test accuracy (%)", "FedAvgM, test loss (nats)"]
    head = next(line for line in shown if line.startswith("method"))
    assert all(line.partition(", ")[2] in head for line in lines)
    (one,) = (line for line in table(runs).text().splitlines() if line.startswith("  "))
    assert one.strip().startswith("FedAvgM: "), "the caption says of one measure which it is"


def test_what_is_of_neither_model_stands_below_one_of_them(grid: dict[tuple[str, float, int], Run]) -> None:
    names = ["test_error", "seconds", "averaged_test_error"]
    found = table([grid["fma", 1.0, 0]], of="both", measures=names)
    below = {(column, name): found.cell("fma", column, name) for column in ("global", "averaged") for name in names}
    there = {place for place, cell in below.items() if cell is not None and np.isfinite(cell.mean)}
    assert there == {("global", "test_error"), ("global", "seconds")}
    assert "seconds is of neither model; see below global" in found.notes
    alone = table([grid["fma", 1.0, 0]], of="averaged", measures=["seconds"]).cells[0]
    assert np.isfinite(alone.mean), "of one model alone it is the run's"


def test_rows_are_compared_with_fma_where_it_stands_beside_others(grid: dict[tuple[str, float, int], Run]) -> None:
    fma, other = (grid[method, 1.0, 0] for method in METHODS)
    assert [table(runs).baseline for runs in ([fma, other], [other, fma], [fma], [other])] == ["fma", "fma", "", ""]
    assert table([fma, other], baseline="FedAvgM").baseline == "fedavgm"
    assert table([grid["fma", share, 0] for share in SHARES], rows="run.participation").baseline == "", "no such row"


def test_rows_and_columns_can_be_chosen(grid: dict[tuple[str, float, int], Run]) -> None:
    runs = [grid[method, share, 0] for method in METHODS for share in SHARES]
    turned = table(runs, rows=["run.participation"], columns=["method"])
    assert turned.rows_named == ("participation 0.5", "participation 1")
    assert [column for column, _ in turned.columns_named] == list(METHODS)
    with pytest.raises(FedscopeError, match=r"runs differ in run.participation, too, .* add them to columns="):
        table(runs, rows=["server.weighting"], columns=["method"])
    with pytest.raises(FedscopeError, match=r"'run.particpation' is not a setting of these runs; did you mean"):
        table(runs, rows=["run.particpation"])
    assert table(runs, rows="run.participation", columns="method").cells == turned.cells, "one key is a word, too"
    for keys, sentence in (
        ({"rows": "participation"}, "rows='participation' .* of these runs; did you mean \"run.participation\"\\?$"),
        ({"columns": "xyz"}, "columns='xyz' .* of these runs; write section.key, as run.rounds, or method$"),
        (
            {"columns": "method,run.participation"},
            "are several settings; write columns=.'method', 'run.participation'.$",
        ),
    ):
        with pytest.raises(FedscopeError, match=sentence):
            table(runs, **keys)


@pytest.mark.parametrize("client", ["fedprox", "mine:MyClient"])
def test_clients_and_servers_make_a_table_of_two_factors(client: str) -> None:
    """``method`` is only the name of both; with both on the axes nothing is left to tell apart."""
    factors = [(one, server) for one in ("sgd", client) for server in ("fma", "fedavgm")]
    runs = [factorial(*pair) for pair in factors]
    both = (("client.method",), ("server.method",))
    assert axes_of(runs, *both) == both
    assert axes_of(runs, both[0]) == both
    assert axes_of(runs, (), both[1]) == both
    assert axes_of(runs, (), (), both[0]) == (("server.method",), ()), "the best client of each server"
    assert axes_of(runs, ("client.method", "server.method")) == (("client.method", "server.method"), ())
    assert axes_of(runs, (), ("client.method", "server.method"))[0] == ("average.method",), "one row"
    assert axes_of(runs) == (("method", "average.method"), ())
    plain = [factorial(one, "fma") for one in ("sgd", client)]
    assert axes_of(plain, (), (), both[0]) == (both[1], ()), "the best client is no row"
    averaged = [factorial(*pair, average) for pair in factors for average in ("none", "ima")]
    assert axes_of(averaged, both[0]) == (both[0], ("server.method", "average.method"))
    assert axes_of(averaged, both[0], ("server.method", "average.method"))[0] == both[0]
    assert axes_of(averaged[:-1], (), ("server.method", "average.method"))[0] == both[0], "not the whole method"
    assert words_of(("client.method", "average.method"), averaged[-1]) == f"{client}, ima"


@pytest.mark.parametrize(
    ("rows", "columns", "left"),
    [
        ("client.method", "run.rounds", "server.method, average.method"),
        ("client.method", "average.method", "server.method"),
        ("average.method", "server.method", "client.method"),
        ("client.method", "server.method", "average.method"),
        ("run.rounds", "average.method", "method"),
    ],
)
def test_the_section_that_is_no_axis_is_named_and_can_be_added(rows: str, columns: str, left: str) -> None:
    runs = [
        factorial(client, server, average)
        for client in ("sgd", "fedprox")
        for server in ("fma", "fedavgm")
        for average in ("none", "ima")
    ]
    with pytest.raises(FedscopeError) as refused:
        axes_of(runs, (rows,), (columns,))
    assert str(refused.value) == (
        f"runs differ in {left}, too, which are neither rows nor columns; add them to --columns, or leave runs out"
    )
    made = axes_of(runs, (rows,), (columns, *left.split(", ")))
    cells = {(words_of(made[0], run), words_of(made[1], run)) for run in runs}
    assert len(cells) == len(runs)
    assert len({row for row, _ in cells}) * len({column for _, column in cells}) == len(runs), "no cell is empty"


def test_a_method_of_two_names_is_still_told_apart() -> None:
    """A recorded run's method, which may do something else under the name of a trained one's."""
    recorded = replace(factorial("fedprox", "fma"), settings={**factorial("fedprox", "fma").settings, "method": "x"})
    with pytest.raises(FedscopeError, match=r"^runs differ in method, too, which are neither"):
        axes_of([factorial("fedprox", "fma"), recorded], ("client.method",), ("server.method",))


def factorial(client: str, server: str, average: str = "none") -> TableRun:
    method = method_of_tables({"client": {"method": client}, "server": {"method": server}})
    sections = {"client__method": client, "server__method": server, "average__method": average}
    return entry(method=method, **sections, run__rounds=2)


def test_a_method_s_own_settings_are_no_columns(tmp_path: Path) -> None:
    """FedProx has a ``client.mu`` that SGD lacks; two of its runs with other ``client.mu`` are told apart by it."""
    plain = train(settings("fma", 1.0, 0), tmp_path / "fma")
    prox = [
        train(settings("fma", 1.0, 0, client={"method": "fedprox", "mu": mu}), tmp_path / f"{mu}") for mu in (0.1, 1.0)
    ]
    both = table([plain, prox[0]])
    assert both.rows_named == ("fma", "fedprox")
    assert both.columns_named == (("", "test_accuracy"),)
    assert [column for column, _ in table([plain, *prox]).columns_named] == ["no mu", "mu 0.1", "mu 1"]
    assert not [note for note in table([plain, *prox]).notes if note.startswith("rows differ")]
    # but rounds are none of a method's own, and it is said where they differ
    short = train(
        settings("fma", 1.0, 0, client={"method": "fedprox", "mu": 1.0}, run={"rounds": 2}), tmp_path / "short"
    )
    note = "rows differ in run.rounds, too: rounds 4, rounds 2; --columns run.rounds sets them apart"
    assert note in table([plain, short]).notes
    assert note not in table([plain, short], columns="run.rounds").notes


def test_what_methods_have_in_common_is_said_where_it_differs(tmp_path: Path) -> None:
    """Two epochs of FMA beside one of FedProx: the epochs follow from the method, and are no part of it."""
    prox = train(settings("fma", 1.0, 0, client={"method": "fedprox"}), tmp_path / "prox")
    longer = train(settings("fma", 1.0, 0, client={"epochs": 2}), tmp_path / "longer")
    found = table([longer, prox])
    assert found.columns_named == (("", "test_accuracy"),), "a table as before"
    note = "rows differ in client.epochs, too: epochs 2, epochs 1; --columns client.epochs sets them apart"
    assert [one for one in found.notes if one.startswith("rows differ")] == [note]
    asked = table([longer, prox], columns=["client.epochs"])
    assert [column for column, _ in asked.columns_named] == ["epochs 2", "epochs 1"]
    assert not [one for one in asked.notes if one.startswith("rows differ")]


def configured(method: str, **tables: Mapping[str, Any]) -> TableRun:
    """A run that is nothing but its whole configuration."""
    tables = Config.read(merge(preset(method), tables)).tables()
    flat = {f"{section}.{key}": value for section, table in tables.items() for key, value in table.items()}
    return replace(entry(), settings={"method": method_of_tables(tables), **flat})


@pytest.mark.parametrize(
    ("runs", "notes"),
    [
        ([configured("fma"), configured("fedprox"), configured("scaffold")], []),
        # what both have by default is said as such, and what one was given is not
        (
            [configured("fma"), configured("mime")],
            [
                "rows differ in client.momentum by the defaults of their methods: momentum 0.9, momentum 0",
                "rows differ in client.optimiser by the defaults of their methods: optimiser sgd, optimiser momentum",
            ],
        ),
        (
            [configured("fma", client={"clip": 1.0}), configured("fedgen")],
            ["rows differ in client.clip, too: clip 1, clip 10; --columns client.clip sets them apart"],
        ),
        ([configured("fma", client={"clip": 10.0}), configured("fedgen")], []),
        # settings of one name are one setting only where the methods have it from one class
        ([configured("fedcm"), configured("feddyn")], []),
        ([configured("fedcm", client={"alpha": 0.5}), configured("feddyn")], []),
        (
            [configured("fedadam", server={"lr": 0.1}), configured("fedyogi")],
            ["rows differ in server.lr, too: lr 0.1, lr 0.01; --columns server.lr sets them apart"],
        ),
        (
            [configured("fma", server={"weighting": "uniform"}), configured("fedadam")],
            [
                "rows differ in server.weighting, too: weighting uniform, weighting samples; --columns "
                "server.weighting sets them apart"
            ],
        ),
    ],
)
def test_settings_are_shared_where_one_class_gives_them(runs: list[TableRun], notes: list[str]) -> None:
    assert notes_on_other_settings(Gathered(tuple(runs)), ("method", "average.method")) == notes
    assert notes_on_other_settings(Gathered(tuple(runs)), ("label",)) == [], "a label stands for all of them"
    keys = [note.split()[3].rstrip(",") for note in notes]
    assert notes_on_other_settings(Gathered(tuple(runs)), ("method",), keys) == [], "it was chosen, and that is said"


def test_no_code_of_a_runs_file_is_imported_for_its_defaults() -> None:
    """Of a method that is not fedscope's what all methods have is compared, with the defaults of all."""
    own = configured("fma", client={"epochs": 2})
    own = replace(own, settings={**own.settings, "method": "x", "client.method": "nowhere:Mine", "client.mu": 3.0})
    (note,) = notes_on_other_settings(Gathered((own, configured("fedprox"))), ("method",))
    assert note.startswith("rows differ in client.epochs, too: epochs 2, epochs 5;")


def test_methods_and_averages_are_rows_unless_every_method_has_every_average(tmp_path: Path) -> None:
    """``method=fma,ima,fedavgm`` are three rows; a paper's "+ IMA" beside each method is a column."""
    made = {
        (method, average): train(
            settings(method, 1.0, 0, average={"method": average}, run={"rounds": 2}), tmp_path / f"{method}-{average}"
        )
        for method in METHODS
        for average in ("none", "ima")
    }
    three = [made["fma", "none"], made["fma", "ima"], made["fedavgm", "none"]]
    assert table(three).rows_named == ("fma", "ima", "fedavgm")
    assert table(three).baseline == "fma"
    assert table(three[:2]).rows_named == ("fma", "ima")
    # a method's whole name, wherever it stands
    for runs, names in ((three, ("fma", "ima", "fedavgm")), (three[:2], ("fma", "ima"))):
        assert table(runs, rows="method").rows_named == names
        for turned in (table(runs, rows="run.rounds", columns="method"), table(runs, rows="run.rounds")):
            assert tuple(column for column, _ in turned.columns_named) == names
    assert table(three, baseline="FedAvg").baseline == "fma"
    assert table(three, last=2).text().splitlines()[0].split() == ["method", "test", "accuracy", "(%)"]
    assert table(three, rows="run.rounds", last=2).baseline == ""
    crossed = table(list(made.values()))
    assert crossed.rows_named == METHODS
    assert [column for column, _ in crossed.columns_named] == ["no average", "ima"]


def test_both_models_of_a_run_stand_side_by_side(tmp_path: Path) -> None:
    run = train(settings("fma", 1.0, 0, average={"method": "wima", "window": 2}), tmp_path / "wima")
    found = table(run, of="both", last=2)
    assert [column for column, _ in found.columns_named] == ["global", "averaged"]
    expected = [1 - statistics.fmean(column(run, name)[-2:]) for name in ("test_error", "averaged_test_error")]
    assert [cell.mean for cell in found.cells] == pytest.approx(expected, abs=1e-12)
    assert table(run, last=2).cells[0].mean == pytest.approx(expected[1], abs=1e-12), "the deployed one is the averaged"
    with pytest.raises(FedscopeError, match=r"of='avg' is not a model; give deployed, global, averaged, both"):
        table(run, of="avg")


def test_a_table_is_kept_and_read_back(grid: dict[tuple[str, float, int], Run], tmp_path: Path) -> None:
    found = table(list(grid.values()), target=0.2)
    found.save(tmp_path / "a")
    again = Comparison.load(tmp_path / "a")
    assert again.cells == found.cells
    assert again.text() == found.text()
    assert again.numbers() == found.numbers()


def test_the_figure_is_against_the_columns_setting(grid: dict[tuple[str, float, int], Run]) -> None:
    found = table(list(grid.values()), last=2)
    axes = found.figure().axes[0]
    assert axes.get_xlabel() == "participation"
    lines = {line.get_label(): line for line in axes.get_lines()}
    for method in METHODS:
        line = lines[printed_method(method)]
        means = [100 * statistics.fmean(tail(grid[method, share, s], 2) for s in SEEDS) for share in SHARES]
        assert line.get_xdata().tolist() == list(SHARES)
        assert line.get_ydata().tolist() == pytest.approx(means, abs=1e-9)
    with pytest.raises(FedscopeError, match=r"not numbers of one setting, so there is nothing to draw"):
        table([grid["fma", 1.0, 0], grid["fedavgm", 1.0, 0]]).figure()


def test_methods_of_one_colour_and_values_of_a_second_setting_have_looks_of_their_own() -> None:
    """All colours are taken by seven methods; six blue lines with round markers told nobody apart."""
    from fedscope.plotting.legends import fitting_columns
    from fedscope.training.tables.comparison import Cell

    columns = {f"{share}, {batch}": [share, f"batch {batch}"] for share in (0.2, 0.4) for batch in (10, 20, 40)}
    cells = tuple(
        Cell(row, column, "test_error", {"0": 0.1 * i, "1": 0.2 * i})
        for i, row in enumerate(("fma", "fedadam"))
        for column in columns
    )
    attrs = {"rows": ["method"], "axis": "run.participation", "places": columns}
    figure = Comparison(cells, 10, attrs=attrs).figure()
    lines = [line for line in figure.axes[0].lines if not str(line.get_label()).startswith("_")]
    looks = [(line.get_color(), str(line.get_linestyle()), line.get_marker(), line.get_fillstyle()) for line in lines]
    assert len(lines) == len(set(looks)) == 6
    assert len({look[0] for look in looks}) == 1, "the case is one of methods that share a colour"
    assert len({look[1:3] for look in looks}) == 2, "a method keeps its dashes and its marker"
    words = [text.get_text() for text in figure.legends[0].get_texts()]
    assert words == ["FMA (FedAvg)", "FedAdam", "batch 10", "batch 20", "batch 40", "± s.d. over 2 seeds"]
    figure.draw_without_rendering()
    box = figure.legends[0].get_window_extent()
    assert 0 <= box.x0 < box.x1 <= figure.bbox.x1
    assert fitting_columns(lines[:2], 1.0) == 1


def test_csv_has_all_digits(grid: dict[tuple[str, float, int], Run]) -> None:
    found = table(list(grid.values()))
    rows = list(csv.DictReader(io.StringIO(found.text("csv"))))
    assert [float(row["mean"]) for row in rows] == [cell.mean for cell in found.cells]
    assert [row["difference"] == "" for row in rows] == [row["row"] == "fma" for row in rows]


def paired_rows(**seeds: range) -> Comparison:
    """Rows over seeds of their own, whose differences to fma are 2 + 0.1 s points more a row."""
    from fedscope.training.tables.comparison import Cell

    cells = tuple(
        Cell(row, "", "test_accuracy", {str(s): 0.8 + i * (0.02 + 0.001 * s) for s in own})
        for i, (row, own) in enumerate(seeds.items())
    )
    return Comparison(cells, 10, baseline="fma", attrs={"rows": ["method"]})


def test_a_difference_over_fewer_seeds_than_its_cells_says_over_how_many() -> None:
    few = "; with so few seeds only differences far greater than their deviation show"
    head = "against FMA (FedAvg), paired over seeds, 95 % interval and Student's t"
    of_two = "FedSAM: +2.05 (+1.41 to +2.69), p = 0.016"
    found = paired_rows(fma=range(2), fedsam=range(6))
    assert found.text().splitlines()[-2:] == [f"{head}{few}:", f"  {of_two}, over 2 seeds"]
    (_, row) = csv.DictReader(io.StringIO(found.text("csv")))
    assert (row["seeds"], row["pairs"]) == ("6", "2")
    assert found.findings()["cells"][1]["difference"]["seeds"] == 2
    assert paired_rows(fma=range(6), fedsam=range(2)).text().splitlines()[-2:] == [
        f"{head}{few}:",
        f"  {of_two}, over 2 seeds",
    ]
    assert paired_rows(fma=range(2), fedsam=range(2)).text().splitlines()[-2:] == [f"{head}{few}:", f"  {of_two}"]
    some = paired_rows(fma=range(6), fedsam=range(6), ima=range(2)).text().splitlines()
    assert some[-3:] == [
        f"{head}; with fewer than 5 seeds only differences far greater than their deviation show:",
        "  FedSAM: +2.25 (+2.05 to +2.45), p = 8.4e-07",
        "  IMA: +4.10 (+2.83 to +5.37), p = 0.016, over 2 seeds",
    ]
    assert paired_rows(fma=range(6), fedsam=range(6)).text().splitlines()[-2] == f"{head}:"


def named(text: str) -> Comparison:
    """A table whose row has a name that every form has to escape."""
    from fedscope.training.tables.comparison import Cell

    cells = (
        Cell(text, "", "test_accuracy", {"0": 0.5, "1": 0.6}),
        Cell("fma", "", "test_accuracy", {"0": 0.4, "1": 0.5}),
    )
    return Comparison(cells, 10, baseline="fma", attrs={"rows": ["method"]})


def test_one_row_alone_is_not_the_best_and_losses_have_like_digits() -> None:
    from fedscope.training.tables.comparison import Cell

    cells = [Cell("fma", "", "test_loss", {"0": 1.0, "1": 1.5}), Cell("ima", "", "test_loss", {"0": 3.9, "1": 4.0})]
    alone = Comparison((cells[0],), 10, attrs={"rows": ["method"]}).text()
    assert "1.250 ± 0.354" in alone
    assert "marked" not in alone
    both = Comparison(
        (*cells, Cell("swa", "", "test_loss", {"0": float("nan")})), 10, attrs={"rows": ["method"]}
    ).text()
    assert "1.250* ± 0.354" in both
    assert "3.950 ± 0.071" in both
    assert both.count("marked") == 1


def test_powers_of_ten_are_written_as_papers_do() -> None:
    from fedscope.training.tables.comparison import Cell

    cells = [
        Cell("fma", "", "test_loss", {"0": 413400.0, "1": 423400.0}),
        Cell("ima", "", "test_loss", {"0": 2e-7}),
        Cell("swa", "", "test_loss", {"0": 1.0, "1": float("inf")}),
    ]
    made = Comparison(tuple(cells), 10, attrs={"rows": ["method"]})
    latex, typst = made.text("latex"), made.text("typst")
    assert r"FMA (FedAvg) & $4.184 \times 10^{5} \pm 7071$ \\" in latex
    assert r"IMA & $\mathbf{2 \times 10^{-7}}$ \\" in latex
    assert r"SWA & $\infty$ \\" in latex
    assert "[FMA (FedAvg)], [$4.184 times 10^5$ ± 7071]," in typst
    assert "[IMA], [$bold(2 times 10^(-7))$]," in typst
    assert "[SWA], [$infinity$]," in typst
    assert "4.184e+05 ± 7071" in made.text(), "as everywhere in text"


def test_signs_are_escaped() -> None:
    text = r"a_b 50% #1 $x$ & y|z \n"
    latex = named(text).text("latex")
    assert r"a\_b 50\% \#1 \$x\$ \& y|z \textbackslash{}n" in latex
    assert r"$\mathbf{55.00} \pm 7.07$" in latex
    assert r"y\|z" in named(text).text("markdown")
    assert r"a\_b 50% \#1 \$x\$" in named(text).text("typst")


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_no_name_adds_a_row_or_a_cell(text: str) -> None:
    """What a recorded run is called ends neither a row nor a cell, begins no comment, and is no formula."""
    plain, made = named("plain"), replace(named(text), notes=(f"of {text}: 1 of 2 seeds",), baseline=text)
    plain = replace(plain, notes=("of plain: 1 of 2 seeds",), baseline="plain")
    seen = visible(text)
    for form in ("text", "markdown", "latex", "typst", "csv"):
        lines, expected = made.text(form).splitlines(), plain.text(form).splitlines()
        assert len(lines) == len(expected)
        assert not any(steers(line, keep="") for line in lines)
        ends = {"markdown": r"\|", "latex": "[&%]", "typst": r"[\[\]]|//"}.get(form, "$^")
        for line, other in zip(lines, expected, strict=True):
            if other.startswith(("% ", "// ")):  # a comment, which ends with its line
                assert line[:2] == other[:2]
                continue
            bare, others = (re.sub(r"\\.", "", one) for one in (line, other))  # signs behind a backslash are signs
            assert len(re.findall(ends, bare)) == len(re.findall(ends, others)), line
    rows = list(csv.DictReader(io.StringIO(made.text("csv"))))
    assert [text_of(row["row"]) for row in rows] == [seen, "fma"]
    assert rows[0]["row"][:1] not in set("=+-@")


@given(st.text(st.characters(), max_size=30))
@example("a\\|b")
@example("// a /* b */ [c] #d")
@example("1. = - x")
@example("/0.")
def test_typst_takes_a_name_as_it_is(text: str) -> None:
    """Typst's markup: a backslash before a sign is the sign, and without one these begin something else."""
    written = in_typst(text)
    bare = re.sub(r"\\.", "x", written)  # a sign that stands for itself, so what follows begins no line
    assert not re.search(r"[#$*_@<>\[\]`~\\]|//|/\*|--|^\s*[-+=/]|^\s*\d+\.", bare)
    assert re.sub(r"\\(.)", r"\1", written) == visible(text)


@given(st.text(st.characters(), max_size=30))
def test_latex_takes_a_name_as_it_is(text: str) -> None:
    written = in_latex(text)
    signs = {r"\textbackslash{}": "\\", r"\textasciitilde{}": "~", r"\textasciicircum{}": "^"}
    signs |= {r"\textless{}": "<", r"\textgreater{}": ">", "{[}": "[", "{]}": "]", "{*}": "*"}
    signs |= {f"\\{sign}": sign for sign in "#$%&_{}"}
    parts = re.split("|".join(map(re.escape, signs)), written)
    assert not set("".join(parts)) & set("#$%&_{}~^\\<>[]*\n")
    back = re.sub("|".join(map(re.escape, signs)), lambda found: signs[found[0]], written)
    assert back == visible(text)


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="there is no TeX here")
def test_latex_compiles(tmp_path: Path) -> None:
    body = named(r"a_b 50% #1 $x$ & \n ~ ^").text("latex")
    page = "\\documentclass{article}\\usepackage{booktabs}\\begin{document}\n" + body + "\n\\end{document}\n"
    (tmp_path / "page.tex").write_text(page, encoding="utf-8")
    words = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "page.tex"]
    assert subprocess.run(words, cwd=tmp_path, capture_output=True, check=False).returncode == 0


def test_what_is_missing_is_said(grid: dict[tuple[str, float, int], Run], tmp_path: Path) -> None:
    runs = [run for place, run in grid.items() if place != ("fedavgm", 1.0, 2)]
    assert "fedavgm, participation 1: 2 of 3 seeds" in table(runs).notes
    short = train(settings("fma", 1.0, 0), tmp_path / "short", until=2)
    assert table(short, last=2).notes == ("short has 2 of 4 rounds",)
    # a mean over the last ten of two rounds is one over all: it is not what its name says
    few = "2 measured rounds in all, fewer than --last 10: the mean holds the first ones, too"
    assert table(short, last=10).notes == ("short has 2 of 4 rounds", f"all runs have {few}")
    assert f"short have {few}".replace("10", "3") in table([short, grid["fma", 1.0, 1]], last=3).notes
    assert table(short).notes == ("short has 2 of 4 rounds",), "a tenth of them is the last one"


def test_by_default_a_number_is_the_mean_over_a_tenth_of_the_rounds(grid: dict[tuple[str, float, int], Run]) -> None:
    from fedscope.training.tables.comparison import Cell

    run = grid["fma", 1.0, 0]
    found = table(run)
    cell = found.cell("fma", "", "test_accuracy")
    assert cell is not None
    assert list(cell.values.values()) == pytest.approx([tail(run, 1)]), f"of {ROUNDS} rounds the last"
    assert found.text().endswith("test accuracy in %, one seed, each run's last measured round")
    both = Comparison((Cell("a", "", "test_error", {"0": 0.5}),), None, attrs={"rows": ["method"], "windows": [6]})
    assert "the mean over each run's last 6 measured rounds (a tenth of them, 10 at most)" in both.text()
    both = Comparison((Cell("a", "", "test_error", {"0": 0.5}),), None, attrs={"rows": ["method"], "windows": [1, 6]})
    assert "the mean over the last tenth of each run's measured rounds (1 to 6 of them)" in both.text()


def test_refusals(grid: dict[tuple[str, float, int], Run], tmp_path: Path) -> None:
    runs = [grid["fma", 1.0, 0], grid["fma", 1.0, 1]]
    with pytest.raises(FedscopeError, match=r"there is nothing to make a table of: no run was given"):
        table([])
    with pytest.raises(FedscopeError, match=r"fma-1.0-0 and fma-1.0-0 are the same run .* leave one out"):
        table([runs[0], runs[0]])
    with pytest.raises(FedscopeError, match=r"target=80 is not an accuracy; give one above 0 and at most 1"):
        table(runs, target=80)
    with pytest.raises(FedscopeError, match=r"^target='0\.5' is not a number; give one, as target=0\.5$"):
        table(runs, target="0.5")  # type: ignore[arg-type]
    with pytest.raises(FedscopeError, match=r"last=0 is not a number of rounds; give 1 or more"):
        table(runs, last=0)
    for last in (2.5, "3"):
        with pytest.raises(FedscopeError, match=rf"^last={last!r} is not a whole number; give one, as last=10$"):
            table(runs, last=last)  # type: ignore[arg-type]
    with pytest.raises(FedscopeError, match=r'measures=.accurcy. is .* did you mean "test_accuracy"\? there are'):
        table(runs, measures="accurcy")
    with pytest.raises(FedscopeError, match=r"baseline='ima' is not a row.*the rows are fma"):
        table(runs, baseline="ima")
    with pytest.raises(FedscopeError, match=r"^form = 'tex' is not known"):
        table(runs).text("tex")
    assert table(runs).text("LaTeX") == table(runs).text("latex")
    with pytest.raises(FedscopeError, match=r"no run has measured averaged_test_error|has no"):
        table(runs, measures="averaged_test_error")
    draw = np.random.default_rng(0)
    arrays = {f"x_{split}": draw.integers(0, 255, (40, 8, 8), np.uint8) for split in ("train", "test")}
    np.savez(tmp_path / "other.npz", **arrays, **{f"y_{split}": np.arange(40) % 10 for split in ("train", "test")})
    other = train(settings("fma", 1.0, 0, data={"name": f"npz:{tmp_path / 'other.npz'}"}), tmp_path / "other")
    with pytest.raises(FedscopeError, match=r"were trained on different data \(digits and npz:.*columns=.data.name"):
        table([runs[0], other])
    beside = table([runs[0], other], columns=["data.name"])
    assert len(beside.columns_named) == 2


def test_methods_have_the_names_of_their_flag() -> None:
    assert method_of_tables({}) == "fma"
    assert method_of_tables({"client": {"method": "fedmoswa"}, "server": {"method": "fedmoswa"}}) == "fedmoswa"
    assert method_of_tables({"client": {"method": "fedmoswa"}, "server": {"method": "fma"}}) == "fedmoswa+fma"
    assert method_of_tables({"server": {"method": "fedadam"}}) == "fedadam"


def test_commands_make_the_runs_again(grid: dict[tuple[str, float, int], Run]) -> None:
    run = grid["fma", 1.0, 0]
    (command,) = table(run).commands["fma"]
    assert re.fullmatch(rf"fedscope train {run.path}/config.toml --out {run.path}-again", command)


def measured(seed: int | None = None, **columns: list[float]) -> TableRun:
    """A run of these numbers a round."""
    rounds = np.arange(1, 1 + len(next(iter(columns.values()))))
    curve = Curve(f"run-{seed}", rounds, {name: np.array(values) for name, values in columns.items()})
    return TableRun(f"run-{seed}", {}, (seed, 0), {}, curve, (len(rounds), len(rounds)), "")


@pytest.mark.parametrize(
    ("name", "plain", "averaging"),
    [
        ("test_error", {"deployed": 0.4, "global": 0.4, "averaged": None}, {"global": 0.4, "averaged": 0.3}),
        ("domain_error_mean", {"deployed": 0.5, "averaged": None}, {"global": 0.5, "averaged": 0.2}),
        ("test_error_photo", {"global": 0.6, "averaged": None}, {"global": 0.6, "averaged": 0.1}),
        # measured on what is deployed: of a run with an average nothing is known of the global model
        ("client_test_error_mean", {"global": 0.7, "averaged": None}, {"global": None, "averaged": 0.7}),
        ("all_client_deployed_error_mean", {"global": 0.8}, {"global": None, "deployed": 0.8}),
        # of no model of the server's
        ("client_error_mean", {"global": 0.9, "averaged": 0.9}, {"global": 0.9, "averaged": 0.9}),
        ("train_loss", {"global": 1.5, "averaged": 1.5}, {"global": 1.5, "averaged": 1.5}),
    ],
)
def test_whose_numbers_stand_under_global_and_averaged(
    name: str, plain: dict[str, float | None], averaging: dict[str, float | None]
) -> None:
    nan = float("nan")
    own = {"test_error": [0.4], "domain_error_mean": [0.5], "test_error_photo": [0.6], "client_error_mean": [0.9]}
    own |= {"client_test_error_mean": [0.7], "all_client_deployed_error_mean": [0.8], "train_loss": [1.5]}
    means = {"averaged_domain_error_mean": [0.2], "averaged_test_error_photo": [0.1]}
    without = measured(**own, averaged_test_error=[nan], averaged_test_loss=[nan])
    having = measured(**own, **means, averaged_test_error=[0.3])
    for run, expected in ((without, plain), (having, averaging)):
        for kind, value in expected.items():
            found = curve_of_model(run.curve, kind, measure_of(name)).tail(name, 1)[0]
            assert np.isnan(found) if value is None else found == value, (kind, value)


def test_the_values_of_a_grid_are_compared_over_the_seeds_that_all_have() -> None:
    from fedscope.training.tables.statistics import best_of

    def runs(mu: float, **errors: float) -> list[TableRun]:
        made = [measured(int(seed[1:]), test_error=[value]) for seed, value in errors.items()]
        return [replace(one, settings={"client.mu": mu}) for one in made]

    def chosen(*grid: TableRun) -> tuple[set[float], str]:
        kept, (note,) = best_of(
            grid, ["client.mu"], lambda _: "fedprox", lambda one: one.curve.tail("test_error", 1)[0]
        )
        return {one.settings["client.mu"] for one in kept}, note

    better, worse = runs(0.1, s0=0.6, s1=0.4), runs(0.01, s1=0.45)
    values, note = chosen(*better, *worse)
    assert values == {0.1}, "over all seeds of each it would be the other one"
    assert note == "fedprox: mu 0.1, chosen by these numbers before mu 0.01; by the 1 of 2 seeds that all of them have"
    values, note = chosen(*runs(0.1, s0=0.6), *runs(0.01, s1=0.45))
    assert values == {0.01}
    assert note.endswith("; they have no seed in common, so that each was judged by seeds of its own")
    values, note = chosen(*better, *runs(0.01, s0=0.2, s1=0.45))
    assert (values, note) == ({0.01}, "fedprox: mu 0.01, chosen by these numbers before mu 0.1")


@pytest.mark.parametrize(
    ("measure", "means", "best"),
    [
        ("test_accuracy", {"fma": 0.8, "wima": 0.8 + 1e-16, "swa": 0.7}, {"fma", "wima"}),
        ("test_accuracy", {"fma": 0.8, "wima": 0.8}, set()),
        ("test_error", {"fma": 0.8, "wima": 0.7}, {"wima"}),
        ("test_loss", {"fma": 1.8, "wima": 1.7}, {"wima"}),
        ("parameters_up_total", {"fma": 100.0, "wima": 200.0}, {"fma"}),
        ("drift_cosine", {"fma": 0.1, "wima": 0.2}, set()),
        ("lr", {"fma": 0.1, "wima": 0.2}, set()),
        ("client_error_std", {"fma": 0.1, "wima": 0.2}, set()),
    ],
)
def test_all_that_are_best_are_marked_where_more_or_less_is_better(
    measure: str, means: dict[str, float], best: set[str]
) -> None:
    from fedscope.training.tables.comparison import Cell

    cells = tuple(Cell(row, "", measure, {"0": mean}) for row, mean in means.items())
    found = Comparison(cells, 10, attrs={"rows": ["method"]})
    assert set(found.best("", measure)) == best
    assert found.text().splitlines()[1].endswith("*") is ("fma" in best)
    assert ("marked" in found.text()) is bool(best)


def test_a_grid_is_chosen_from_by_what_has_a_better_end(grid: dict[tuple[str, float, int], Run]) -> None:
    runs = [grid["fma", share, 0] for share in SHARES]
    with pytest.raises(
        FedscopeError, match=r"chooses by lr, of which it is not known whether more or less is better; give an"
    ):
        table(runs, best_of=["run.participation"], measures=["lr"])


def test_a_loss_that_is_no_number_at_the_end_is_said(tmp_path: Path) -> None:
    """Of a diverged run the last numbers are of rounds before it."""
    from fedscope import Recorder

    w = {"w": np.zeros(3, np.float32)}
    for name, until in (("lost", 3), ("fine", 6)):
        with Recorder(tmp_path / name, method="m", seed=until) as recorder:
            for t in range(6):
                numbers = {"test_loss": 1.0 / (t + 1) if t < until else float("nan")}
                recorder.round(start=w, clients=[{"w": w["w"] + 1}, {"w": w["w"] + 2}], metrics=numbers)
    made = table([tmp_path / "lost", tmp_path / "fine"], measures="test_loss", last=2)
    assert "test_loss of lost was last a number in round 3 of 6; later ones are missing or not finite" in made.notes
    assert not any("last a number" in note for note in table(tmp_path / "fine", measures="test_loss").notes)


def test_a_table_of_nothing_that_was_measured_names_what_was(tmp_path: Path) -> None:
    from fedscope import Recorder

    w = {"w": np.zeros(3, np.float32)}
    with Recorder(tmp_path / "slip", method="m") as recorder:
        recorder.round(start=w, clients=[{"w": w["w"] + 1}, {"w": w["w"] + 2}], metrics={"test_eror": 0.3})
    with pytest.raises(
        FedscopeError, match=r"^no run has measured test_loss; give another measures=, of participants, test_eror$"
    ):
        table(tmp_path / "slip")


def test_one_average_of_all_runs_is_said(tmp_path: Path) -> None:
    """Runs that IMA deploys were rows of FMA and FedProx, without a word."""
    runs = []
    for client in ("sgd", "fedprox"):
        asked = settings("fma", 1.0, 0, client={"method": client}, average={"method": "ima", "start": 2})
        runs.append(train(asked, tmp_path / client))
    assert table(runs).rows_named == ("ima", "fedprox+ima")
    found = table(runs, rows=["client.method"], columns=["server.method"])
    assert "all runs average over rounds with ima" in found.notes
    assert not any("average over rounds" in note for note in table(runs).notes)


def test_bars_over_other_numbers_of_seeds_say_so() -> None:
    from fedscope.training.tables.comparison import Cell

    columns = {"0.1": [0.1, ""], "0.5": [0.5, ""]}
    attrs = {"rows": ["method"], "axis": "run.participation", "places": columns}
    for counts, words in (((3, 3), "3"), ((3, 2), "2 to 3"), ((3, 1), "3")):
        cells = tuple(
            Cell("fma", column, "test_error", {str(i): 0.1 + 0.01 * i for i in range(count)})
            for column, count in zip(columns, counts, strict=True)
        )
        said = [text.get_text() for text in Comparison(cells, 10, attrs=attrs).figure().legends[0].get_texts()]
        assert f"± s.d. over {words} seeds" in [one.removesuffix(" each") for one in said]
