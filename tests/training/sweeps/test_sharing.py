"""Which runs of a sweep share rounds, and that a run with shared rounds is the run trained alone, bit for bit."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from in_memory import contents

from fedscope.checkpoints import Run
from fedscope.cli.main import run as fedscope
from fedscope.training import Config, Setup, merge, preset
from fedscope.training.sweeps.plan import Plan, plan_sweep
from fedscope.training.sweeps.schedule import SharedHistory, arguments_of, commands_of, shared_histories, steps_of

pytestmark = pytest.mark.programs

SMALL = {
    "data": {"clients": 5},
    "model": {"hidden": [8]},
    "client": {"epochs": 1},
    "run": {"rounds": 8, "participation": 0.6, "evaluate_clients": 0},
}
THIN = {"record": {"clients": "none", "globals": "last:2"}}


def config(average: str = "none", method: str = "fma", rounds: int = 20, **settings: Any) -> Config:
    own = {"average": {"method": average, **settings}, "run": {"rounds": rounds}}
    return Config.read(merge(preset(method), own))


# --- which ---


def shared(*configs: Config) -> list[tuple[int, int] | None]:
    found = shared_histories(configs)
    assert all(one is None or isinstance(one, SharedHistory) for one in found)
    return [None if one is None else (one.trunk, one.round) for one in found]


def test_runs_share_the_rounds_before_their_averages_begin() -> None:
    """IMA begins at t_s; SWA's mean with the round before its start; the last to begin is trained from its start."""
    assert shared(config(), config("ima")) == [(1, 14), None]
    assert shared(config("ima", start=8), config("ima", start=12)) == [(1, 7), None]
    assert shared(config("swa", start=9, cycle=4), config("ima")) == [(1, 7), None]
    without = {"start": 9, "cycle": 4, "include_start": False}
    assert shared(config("swa", **without), config("ima")) == [(1, 8), None]
    assert shared(config("ima"), config(), config("ima", start=3)) == [None, (0, 14), (0, 2)]


def test_of_equal_starts_the_one_that_looks_back_farthest_is_trained_from_its_start() -> None:
    windows = [config("ima", start=10, window=window) for window in (3, 9, 5)]
    assert shared(*windows) == [(1, 9), None, (1, 9)]
    # one that begins last and keeps fewer rounds than another needs
    assert shared(config("ima", start=5, window=9), config("ima", start=10, window=3)) == [None, None]


@pytest.mark.parametrize(
    "alone",
    [
        [config("wima"), config()],
        [config("ima", "fedadam", before_server=True), config(method="fedadam")],
        [config("ima", start=1), config("ima", start=12)],
        [config(), config(method="fedprox")],
        [config("ima"), config(rounds=30)],
        [config()],
        [],
    ],
    ids=["from the first round", "before the server", "no round before", "other client", "other length", "one", "none"],
)
def test_others_share_nothing(alone: list[Config]) -> None:
    assert shared(*alone) == [None] * len(alone)


def test_a_setting_that_only_the_other_one_has_would_stay() -> None:
    """A branch has all of its history's settings but those that it changes, and cannot leave one out."""
    plain, high = config("ima", start=12), config("ima", start=12, window=9, explore_high=0.02)
    assert shared(plain, high) == [None, None]
    assert shared(config("ima", start=12, explore_high=0.01), high) == [(1, 11), None]
    assert shared(config("swa", start=9, cycle=4), high) == [(1, 7), None], "another method has none of its settings"


def test_groups_share_among_themselves() -> None:
    configs = [config(average, method) for method in ("fma", "fedprox") for average in ("none", "ima")]
    assert shared(*configs) == [(1, 14), None, (3, 14), None]


# --- the order of the work ---


def plan_of(axes: Sequence[Sequence[Mapping[str, Any]]], *settings: Any, share: bool = True) -> Plan:
    return plan_sweep(Setup(), axes, (), merge(SMALL, *settings), share=share)


STARTS: list[list[dict[str, Any]]] = [
    [
        *({"label": f"from {start}", "average.method": "ima", "average.start": start} for start in (7, 3, 5)),
        {"label": "fma", "average.method": "none"},
    ]
]


def test_a_run_waits_where_others_branch_from_it() -> None:
    plan = plan_of(STARTS)
    assert [(step.run.name, step.until) for step in steps_of(plan)] == [
        ("from-7", 2),
        ("from-3", None),
        ("from-7", 4),
        ("from-5", None),
        ("from-7", 6),
        ("fma", None),
        ("from-7", None),
    ]
    assert plan.rounds == 8 + (8 - 2) + (8 - 4) + (8 - 6)


def test_what_is_there_is_not_done_again() -> None:
    plan = plan_of(STARTS)
    steps = {(step.run.name, step.until): step for step in steps_of(plan)}
    folder, nothing = Path("s"), {run.name: None for run in plan.runs}

    def words(name: str, until: int | None, **there: int | None) -> str | None:
        rounds = {**nothing, **{key.replace("_", "-"): value for key, value in there.items()}}
        found = arguments_of(steps[name, until], folder, rounds)
        return None if found is None else shlex.join(found)

    assert words("from-7", 2) == (
        "train --set average.method=ima --set average.start=7 --set data.clients=5 --set 'model.hidden=[8]' --set "
        "client.epochs=1 --set run.rounds=8 --set run.participation=0.6 --set run.evaluate_clients=0 "
        "--out s/runs/from-7 --until 2"
    )
    assert words("from-7", 2, from_7=1) == "train --resume s/runs/from-7 --until 2"
    assert words("from-7", 2, from_7=2) is None
    assert words("from-7", 2, from_7=5) is None
    branch = "train --from s/runs/from-7@2 --average ima --set average.window=5 --set average.start=3 "
    assert (words("from-3", None, from_7=2) or "").startswith(branch)
    assert words("from-3", None, from_7=2, from_3=2) == "train --resume s/runs/from-3"
    # the other one has failed before that round, or has gone on without it
    for rounds in (None, 1, 8):
        alone = words("from-3", None, from_7=rounds) or ""
        assert alone.startswith("train --set average.method=ima --set average.start=3 ")
        assert alone.endswith(" --out s/runs/from-3")
    assert words("from-7", None, from_7=8) is None


# --- that it changes nothing ---


def trained(plan: Plan, folder: Path) -> dict[str, Run]:
    """A sweep's commands, executed one by one."""
    for words in commands_of(plan, folder, {run.name: None for run in plan.runs}):
        assert fedscope(words) == 0, words
    return {run.name: Run.open(folder / "runs" / run.name) for run in plan.runs}


def same(one: Run, other: Run, planned_as: Config) -> None:
    assert one.rounds == other.rounds
    for t in one.rounds:
        assert contents(one.path / f"rounds/{t:05d}.h5") == contents(other.path / f"rounds/{t:05d}.h5"), t
    tables = [run.metrics() for run in (one, other)]
    for name in tables[0].keys() | tables[1].keys() - {"seconds"}:
        if name == "seconds":
            continue
        # a history with an average has that average's columns of domains, which are empty
        values = [table.get(name, np.full(len(one.rounds), np.nan)) for table in tables]
        np.testing.assert_array_equal(*values, err_msg=name)
    for run in (one, other):
        found = Config.recorded(run.config or {}).tables()
        for section in ("client", "server", "average"):
            assert found[section] == planned_as.tables()[section]


def averages(*others: tuple[int, int]) -> list[list[dict[str, Any]]]:
    """None, and of IMA and SWA several starts and windows."""
    pairs = ((5, 2), (7, 4), *others)
    ima = [{"average.method": "ima", "average.start": start, "average.window": window} for start, window in pairs]
    swa = [{"average.method": "swa", "average.start": start, "average.cycle": 2} for start in (3, 6)[: len(pairs) - 1]]
    return [[{"average.method": "none"}, *ima, *swa]]


#: what is varied, what all runs have, and how many of them branch
CASES: dict[str, tuple[Sequence[Sequence[Mapping[str, Any]]], Mapping[str, Any], int]] = {
    "fma thin": (averages(), THIN, 3),
    "fma": (averages((5, 4), (4, 4)), {}, 6),
    "scaffold thin": (averages((5, 4)), merge({"client": {"method": "scaffold"}}, THIN), 5),
    "fedadam": (
        [
            [
                {"label": "none", "average.method": "none"},
                {"label": "after", "average.method": "ima", "average.start": 6},
                {"label": "before", "average.method": "ima", "average.start": 6, "average.before_server": True},
                {"label": "swa", "average.method": "swa", "average.start": 5, "average.cycle": 2},
            ]
        ],
        merge({"server": {"method": "fedadam"}}, THIN),
        2,
    ),
    "ditto": (
        [[{"average.method": "none"}, {"average.method": "ima"}]],
        {"client": {"method": "ditto"}, "data": {"client_test": 0.25}, "run": {"evaluate_all": "every:3"}},
        1,
    ),
    "schedules": (
        [[{"average.method": "ima", "average.explore": explore} for explore in ("exp", "cyclic", "none", "epochs")]],
        {},
        3,
    ),
    "domains": (
        [[{"average.method": "none"}, {"average.method": "ima"}]],
        {"data": {"name": "rotated-digits", "partition": "domains:1", "clients": 6}},
        1,
    ),
}


@pytest.mark.usefixtures("few_digits")
@pytest.mark.parametrize(
    "case",
    [name if name in ("fma thin", "fedadam") else pytest.param(name, marks=pytest.mark.slow) for name in CASES],
)
def test_a_run_that_shares_rounds_is_the_run_trained_alone(case: str, tmp_path: Path) -> None:
    axes, settings, branches = CASES[case]
    together, alone = (plan_of(axes, settings, share=share) for share in (True, False))
    assert sum(run.after is not None for run in together.runs) == branches
    assert all(run.after is None for run in alone.runs)
    assert together.rounds < alone.rounds
    branched, straight = trained(together, tmp_path / "together"), trained(alone, tmp_path / "alone")
    for run in alone.runs:
        same(branched[run.name], straight[run.name], run.config)
