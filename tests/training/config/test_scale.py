"""``--scale``: a set-up in small; its minima, what it leaves alone, and the sentence that says what was done."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedscope.checkpoints import FedscopeError
from fedscope.training import Config, Setup, merge, preset
from fedscope.training.config.recipes import recipe, recipe_names, tables_of
from fedscope.training.config.scale import scale_notes, scale_tables
from fedscope.training.rng import cohort_size

pytestmark = pytest.mark.same_elsewhere

SCALES = st.floats(0.0005, 1.0)
#: numbers that a scale makes smaller, by place
NUMBERS = (
    *(("run", "rounds"), ("data", "clients"), ("data", "share"), ("average", "start"), ("average", "window")),
    *(("average", "cycle"), ("average", "explore_period"), ("run", "evaluate_every"), ("client", "calibrate_from")),
)


def small_of(tables: dict[str, Any], scale: float) -> Config:
    return Config.read(scale_tables(tables, scale))


@given(
    scale=SCALES,
    rounds=st.integers(1, 2000),
    clients=st.integers(1, 400),
    participation=st.floats(0.005, 1.0),
    method=st.sampled_from(["fma", "ima", "wima", "fedfa"]),
)
def test_a_cohort_of_two_two_rounds_and_nothing_grows(
    scale: float, rounds: int, clients: int, participation: float, method: str
) -> None:
    sections = {
        "run": {"rounds": rounds, "participation": participation, "evaluate_every": 20},
        "data": {"clients": clients},
    }
    tables = merge(preset(method), sections)
    full, small = Config.read(tables), small_of(tables, scale)
    before, after = full.tables(), small.tables()
    assert small.run.participation == participation
    assert small.run.rounds >= min(2, rounds)
    assert small.run.rounds in (rounds, max(2, round(scale * rounds)))
    cohorts = [cohort_size(config.data.clients, participation) for config in (full, small)]
    assert cohorts[1] >= min(2, cohorts[0])
    assert small.data.clients == clients or small.data.clients >= round(scale * clients)
    for section, key in NUMBERS:
        if before[section].get(key) is not None:
            assert after[section][key] <= before[section][key], f"{section}.{key} grew"
    assert small.data.share == pytest.approx(scale)
    kept = {"client": ("lr", "lr_decay", "momentum", "epochs", "batch"), "data": ("partition", "name", "seed")}
    assert [before[at][key] for at in kept for key in kept[at]] == [after[at][key] for at in kept for key in kept[at]]


@given(scale=SCALES, name=st.sampled_from(recipe_names()))
def test_every_cell_of_every_recipe_has_a_small_set_up(scale: float, name: str) -> None:
    """What is scaled is valid, whatever the scale: windows, starts and rounds stay in step."""
    for cell in recipe(name).cells():
        method, tables = tables_of(cell)
        config = Setup(name, scale=scale).config(method, cell=tables)
        assert config.run.rounds >= 2
        assert cohort_size(config.data.clients, config.run.participation) >= 2


@given(scale=SCALES, partition=st.sampled_from(["pathological:20", "dirichlet-clients:0", "domains:9,pathological:2"]))
def test_clients_that_hold_so_many_classes_each_stay(scale: float, partition: str) -> None:
    """Fewer of them may have no room for all classes, of which a configuration does not know how many there are."""
    tables = merge(preset("fma"), {"data": {"clients": 18, "partition": partition}, "run": {"participation": 1.0}})
    full, small = Config.read(tables), small_of(tables, scale)
    assert (small.data.clients, small.data.partition) == (18, partition)
    assert small.data.share == pytest.approx(scale)
    assert "all 18 clients (or there may be no room for all classes)" in list(scale_notes(full, small, scale))


@given(scale=SCALES, rounds=st.integers(12, 1000), start=st.integers(2, 1000), cycle=st.integers(2, 20))
def test_a_cycle_of_swa_still_ends_within_the_run(scale: float, rounds: int, start: int, cycle: int) -> None:
    cycle = min(cycle, rounds - 1)
    start = min(start, rounds - cycle + 1)
    for average in ({"start": start, "cycle": cycle}, {"cycle": min(cycle, rounds // 4)}):
        tables = merge(preset("swa"), {"average": average, "run": {"rounds": rounds}})
        small = small_of(tables, scale)
        assert small.average.start + small.average.cycle - 1 <= small.run.rounds
        assert small.average.start >= 2


def test_the_scale_of_one_changes_nothing() -> None:
    for name in ("ima/table2", "wima/fig2", "fedsa/fig1", "ima/table1-digit5-cnn-shards2"):
        tables = recipe(name).configured("ima")
        assert small_of(tables, 1.0) == Config.read(tables)


def test_starts_windows_and_recorded_rounds_go_with_the_rounds() -> None:
    tables = merge(
        preset("ima"),
        {
            "data": {"clients": 100, "client_test": 0.2},
            "average": {"start": 300, "window": 40, "explore": "cyclic"},
            "run": {"rounds": 400, "participation": 0.1, "evaluate_every": 20, "evaluate_all": "1,200,last"},
            "record": {"clients": [20, 200, 400], "globals": "every:40"},
        },
    )
    small = small_of(tables, 0.25)
    assert (small.run.rounds, small.average.start, small.average.window, small.average.explore_period) == (
        100,
        75,
        10,
        5,
    )
    assert small.run.evaluate_every == 5
    assert small.run.evaluate_all == "1,50,last"
    assert small.record.clients == (5, 50, 100)
    assert small.record.globals == "every:10"


def test_a_start_that_was_not_given_stays_at_three_quarters() -> None:
    tables = merge(preset("ima"), {"run": {"rounds": 400}})
    assert small_of(tables, 0.01).average.start == 3
    assert small_of(tables, 0.1).average.start == 30


def test_users_and_counted_shards_bring_their_samples_and_domains_keep_all() -> None:
    assert small_of({"data": {"partition": "natural", "clients": 3400}}, 0.1).data.share == 1
    silo = small_of({"data": {"partition": "shards:2,250", "clients": 10}, "run": {"participation": 1.0}}, 0.3)
    assert (silo.data.clients, silo.data.share, silo.data.partition) == (3, 1, "shards:2,250")
    domains = {"data": {"partition": "domains:20,shards:2", "clients": 100}, "run": {"participation": 0.1}}
    for scale, each in ((0.5, 10), (0.33, 7), (0.01, 4)):
        small = small_of(domains, scale)
        assert (small.data.partition, small.data.clients) == (f"domains:{each},shards:2", 5 * each)
    assert small_of({"data": {"partition": "domains:20", "clients": 10}}, 0.5).data.clients == 10, "for train to refuse"


def test_a_set_counts_more_than_the_scale_and_decides_about_minima() -> None:
    setup = Setup("ima/table1-cifar10-cnn-dir0.1", scale=0.1)
    small = setup.config("ima", {"run": {"rounds": 50}, "data": {"clients": 30}})
    assert (small.run.rounds, small.average.start, small.data.clients, small.data.share) == (50, 38, 30, 0.1)
    assert setup.config("ima", {"run": {"participation": 0.05}}).data.clients == 40, "for a cohort of two"
    assert setup.config("ima", {"run": {"participation": 1.0}}).data.clients == 10
    assert setup.config("ima", {"data": {"partition": "natural"}}).data.share == 1


def notes(name: str, scale: float, method: str | None, *above: Any, **more: Any) -> str:
    setup = Setup(name, scale=scale)
    return setup.note(setup.notes(setup.config(method, *above, **more), method, *above, **more))


@pytest.mark.parametrize(
    ("name", "scale", "method", "above", "sentence"),
    [
        (
            "ima/table1-fmnist-cnn-dir0.1",
            0.1,
            "ima",
            {},
            "scale 0.1: 30 of 300 rounds, 20 of 100 clients (two a round at least), 10 % of the samples, "
            "average.start 23 of 225, average.window 2 of 5 (two at least), record.globals last:1 of last:5",
        ),
        (
            "ima/table1-fmnist-cnn-dir0.1",
            0.5,
            "fma",
            {},
            "scale 0.5: 150 of 300 rounds, 50 of 100 clients, 50 % of the samples, record.globals last:2 of last:5",
        ),
        ("ima/fig1", 0.002, None, {"run": {"rounds": 9}}, "scale 0.002: 9 of 400 rounds, 20 of 100 clients"),
        ("ima/fig1", 0.002, None, {}, "scale 0.002: 2 of 400 rounds (two at least), 20 of 100 clients"),
        (
            "wima/table2-femnist",
            0.1,
            "fma",
            {},
            "scale 0.1: 150 of 1500 rounds, 680 of 3400 clients (two a round at least), their samples alone, "
            "average.window 10 of 100",
        ),
        ("ima/table1-digit5-cnn-dir0.1", 0.33, "fma", {}, "scale 0.33: 66 of 200 rounds, 35 of 100 clients, 33 %"),
        ("ima/fig1", 0.3, None, {"data": {"clients": 60}}, "scale 0.3: 120 of 400 rounds, 60 of 100 clients, 30 %"),
    ],
)
def test_what_was_done_is_said_with_the_minima_that_were_met(
    name: str, scale: float, method: str | None, above: Any, sentence: str
) -> None:
    assert notes(name, scale, method, above).startswith(sentence)


def test_without_a_scale_nothing_is_said() -> None:
    setup = Setup("ima/fig1")
    assert setup.note(setup.notes(setup.config(None), None)) == ""
    config = Config.read({})
    assert list(scale_notes(config, config, 1.0)) == ["60 of 60 rounds", "50 of 50 clients"]


@pytest.mark.parametrize("scale", [0, -0.1, 1.01, float("nan"), float("inf")])
def test_what_is_no_share_of_a_set_up_is_refused(scale: float) -> None:
    with pytest.raises(
        FedscopeError, match=r"--scale \S+ is not a share of a set-up; give a number above 0 and at most 1"
    ):
        Setup("ima/fig1", scale=scale).config(None)


def test_a_scale_of_nothing_and_two_set_ups_are_refused() -> None:
    with pytest.raises(FedscopeError, match=r"--scale 0\.1 makes a set-up smaller; give it with --recipe or a config"):
        Setup(scale=0.1)
    with pytest.raises(FedscopeError, match="a configuration and --recipe ima/fig1 are both whole set-ups; give one"):
        Setup("ima/fig1", {"run": {"rounds": 3}})
