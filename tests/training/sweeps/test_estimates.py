"""How long a sweep takes, from given times: a round costs something by itself, and a step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fedscope.training import Config, Setup
from fedscope.training.sweeps import estimates
from fedscope.training.sweeps.axes import read_axes
from fedscope.training.sweeps.costs import Costs, costs_at, fitted, sizes_to_try
from fedscope.training.sweeps.estimates import estimate
from fedscope.training.sweeps.plan import Plan, plan_sweep
from fedscope.training.sweeps.schedule import commands_of, rounds_before

pytestmark = [pytest.mark.same_elsewhere, pytest.mark.usefixtures("few_digits")]

SMALL: dict[str, dict[str, Any]] = {"data": {"partition": "iid"}, "model": {"hidden": [6]}, "run": {"rounds": 10}}


def plan_of(*texts: str, **more: Any) -> Plan:
    own = {text.partition("=")[0] for text in texts}
    settings = {
        section: {key: value for key, value in table.items() if f"{section}.{key}" not in own}
        for section, table in SMALL.items()
    }
    return plan_sweep(Setup(), read_axes(texts), (), settings, **more)


def cost_of(size: int) -> Costs:
    """Of a machine: a round costs 0.1 s and 0.01 a client, a step 0.001 s."""
    return Costs(begin=1.0, round=0.1 + 0.01 * size, step=0.001, test=0.05)


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Nothing is trained; the sizes of the cohorts that would be."""
    sizes: list[int] = []

    def trial(config: Config, samples: int) -> Costs:
        sizes.append(estimates._cohort(config))
        return cost_of(sizes[-1])

    monkeypatch.setattr(estimates, "_trial", trial)
    return sizes


def test_a_line_is_laid_through_two_rounds() -> None:
    assert fitted((8, 0.5 + 8 * 0.25), (32, 0.5 + 32 * 0.25)) == (0.5, 0.25)
    assert fitted((8, 2.0), (32, 1.0)) == (1.0, 0.0), "the machine was busy"
    assert fitted((8, 2.0), (8, 4.0)) == (0.0, 0.5), "of one number of steps"


def test_costs_of_a_cohort_between_two_are_between_theirs() -> None:
    known = {size: cost_of(size) for size in (1, 10, 100)}
    for size in (1, 4, 10, 55, 100):
        assert vars(costs_at(known, size)) == pytest.approx(vars(cost_of(size)))
    assert costs_at(known, 200) == known[100]
    assert sizes_to_try(range(5, 500, 5)) == [5, 50, 495]


@pytest.mark.parametrize("values", [["2", "60"], ["60", "2"], ["2", "60", "20", "40", "10"]])
def test_seconds_are_those_of_the_machine_in_whichever_order(tried: list[int], values: Sequence[str]) -> None:
    plan = plan_of(f"data.clients={','.join(values)}", "method=fma")
    found = estimate(plan)
    expected = 0.0
    for run in plan.runs:
        clients, cohort = run.config.data.clients, estimates._cohort(run.config)
        batch, epochs = run.config.client.batch, run.config.client.epochs
        data = estimates.data_to_train_on("digits", estimates.resolve_task(run.config, None)[1])
        steps = epochs * cohort * -(-(len(data.y_train) // clients) // batch)
        expected += 1 + 10 * (0.1 + 0.01 * cohort + 0.001 * steps + 0.05)
    assert found.seconds == pytest.approx(expected, rel=0.05), "clients may have a sample more"
    assert (found.runs, found.rounds) == (len(values), 10 * len(values))
    assert len(tried) <= 3


def test_epochs_and_rates_are_tried_once(tried: list[int]) -> None:
    plan = plan_of("client.epochs=1,20", "client.lr=0.1,0.2", "method=fma")
    estimate(plan)
    assert len(tried) == 1
    one, other = (estimate(plan_of(f"client.epochs={epochs}", "method=fma")).seconds for epochs in (1, 20))
    fixed = 1 + 10 * (0.1 + 0.01 * tried[0] + 0.05)
    assert other - fixed == pytest.approx(20 * (one - fixed))


def test_only_what_is_left_is_tried_and_counted(tried: list[int]) -> None:
    plan = plan_of("method=fma,fedprox")
    there: dict[str, int | None] = {"fma": 10, "fedprox": 4}
    found = estimate(plan, there)
    assert (found.runs, found.rounds, len(tried)) == (1, 6, 1)
    whole = estimate(plan, {"fma": 10, "fedprox": None})
    assert found.seconds - 1 == pytest.approx(0.6 * (whole.seconds - 1))
    assert found.bytes < whole.bytes
    tried.clear()
    assert estimate(plan, dict.fromkeys(there, 10)) == estimates.Estimate(0.0, 0, 0, 0)
    assert tried == []


def test_a_branch_whose_trunk_is_past_it_is_trained_from_its_start() -> None:
    plan = plan_of("method=fma,ima")
    branch = next(run for run in plan.runs if run.after)
    assert branch.after is not None
    trunk, start = branch.after
    for of_trunk, before in ((None, start), (start, start), (10, 0)):
        there: dict[str, int | None] = {trunk: of_trunk, branch.name: None}
        assert rounds_before(plan, there) == {trunk: of_trunk or 0, branch.name: before}
        last = [words for words in commands_of(plan, Path("s"), there) if words[-1] == f"s/runs/{branch.name}"]
        assert ("--from" in last[0]) == (before > 0)


@pytest.mark.parametrize("method", ["fma", "scaffold"])
def test_a_trial_times_rounds(method: str) -> None:
    """On the machine: numbers, no more."""
    plan = plan_of(f"method={method}", "data.clients=4", "run.participation=1.0")
    told: list[tuple[int, int]] = []
    found = estimate(plan, None, lambda done, of: told.append((done, of)))
    assert 0 < found.seconds < 600
    assert found.bytes > 0
    assert told == [(1, 1)]
