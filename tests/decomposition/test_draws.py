"""Draws from the rounds of one run and from runs of other seeds, and the cohorts of several rounds as one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from fedscope import decompose
from fedscope.analysis.settings import EvaluationConfig
from fedscope.checkpoints import FedscopeError, FedscopeWarning, Layout, Run, Weights, mean, stack, weighted_mean
from fedscope.decomposition import CohortDraws, decompose_round, draws_of_rounds, draws_of_runs, join
from fedscope.decomposition.draws.sources import groups_of, parse_draws
from fedscope.decomposition.factors.notes import notes
from fedscope.evaluation.device import Compute
from fedscope.evaluation.samples import Samples
from fedscope.training import Config, branch, config_of, merge, module_of, preset, train
from fedscope.training.inputs.models import resolve_models

SMALL: dict[str, Any] = {
    "data": {"clients": 4},
    "model": {"hidden": [8]},
    "client": {"epochs": 1},
    "run": {"rounds": 4, "participation": 1.0, "evaluate_clients": 0},
}


def trained(out: Path, method: str = "fma", **changes: dict[str, Any]) -> Run:
    train(Config.read(merge(preset(method), SMALL, changes)), out)
    return Run.open(out)


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Three runs that differ only in their seed."""
    folder = tmp_path_factory.mktemp("seeds")
    return [trained(folder / f"s{seed}", run={"seed": seed}) for seed in range(3)]


def test_rounds_are_draws_newest_first(seeds: list[Run]) -> None:
    run = seeds[0]
    cohort = draws_of_rounds(run, 3, 2)
    assert (cohort.round, cohort.source, cohort.independent, cohort.count) == (3, "rounds:2", False, 2)
    for draw, number in zip(cohort.draws, (3, 2), strict=True):
        np.testing.assert_array_equal(draw.parameters, run.round(number).clients().parameters)
    np.testing.assert_array_equal(cohort.p, run.round(3).weights)


def test_rounds_skip_those_that_were_not_recorded(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", record={"clients": [1, 2, 4]})
    cohort = draws_of_rounds(run, 4, 2)
    np.testing.assert_array_equal(cohort.draws[1].parameters, run.round(2).clients().parameters)
    with pytest.raises(FedscopeError, match=r"clients of round 3 were not recorded; rounds 1, 2, 4 have them"):
        draws_of_rounds(run, 3, 2)
    with pytest.raises(FedscopeError, match=r"--draws rounds:4: up to round 4, .* recorded the clients of 3 only"):
        draws_of_rounds(run, 4, 4)


def test_rounds_of_other_cohorts_are_refused_with_what_to_use(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", run={"participation": 0.5})
    cohorts = [tuple(run.round(t).client_ids) for t in run.rounds]
    other = next(t for t in (2, 3, 4) if cohorts[t - 1] != cohorts[t - 2])
    with pytest.raises(
        FedscopeError, match=rf"rounds {other - 1} and {other} differ \(partial participation\).*local:4"
    ):
        draws_of_rounds(run, other, 2)


def test_runs_are_independent_draws_the_first_runs_first(seeds: list[Run]) -> None:
    cohort = draws_of_runs(seeds, 2)
    assert (cohort.round, cohort.source, cohort.independent, cohort.count) == (2, "runs", True, 3)
    for draw, run in zip(cohort.draws, seeds, strict=True):
        np.testing.assert_array_equal(draw.parameters, run.round(2).clients().parameters)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"data": {"partition": "iid"}},
            r"have different partitions of the data; train them with one data\.partition and data\.seed$",
        ),
        (
            {"data": {"seed": 3}},
            r"have different partitions of the data \(data\.seed 0 and 3\); train them with one data\.partition and "
            r"data\.seed, as sweep run\.seed=0,1,2 does; sweep --seeds varies run\.seed and data\.seed$",
        ),
        ({"model": {"hidden": [9]}}, r"trained different models: .* has shape \(8, 64\), the other's \(9, 64\)"),
        (
            {"client": {"lr": 0.01}},
            r"differ in client\.lr \(0\.05 and 0\.01\), but draws may differ only in run\.seed",
        ),
        ({"run": {"seed": 0}}, r"both have run\.seed = 0, so they are the same draw; train with other --seed"),
    ],
)
def test_runs_that_are_no_draws_of_one_thing_are_refused(
    seeds: list[Run], tmp_path: Path, changes: dict[str, Any], sentence: str
) -> None:
    other = trained(tmp_path / "other", **{"run": {"seed": 7}, **changes})
    with pytest.raises(FedscopeError, match=sentence):
        draws_of_runs([seeds[0], other], 2)


def test_a_run_whose_settings_nobody_knows_is_no_draw() -> None:
    run: Any = SimpleNamespace(is_foreign=True, config=None, path="runs/flower", info={"source": "flower"})
    with pytest.raises(
        FedscopeError, match=r"^runs/flower was recorded by flower and keeps no config\.toml, so .* none"
    ):
        groups_of([run], parse_draws("runs"))
    assert groups_of([run], parse_draws("none")) == [[run]]


def test_draws_of_other_seeds_are_told(seeds: list[Run], tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    ima = [trained(tmp_path / f"i{seed}", "ima", run={"seed": seed}) for seed in (1, 2)]
    groups_of([*seeds[1:], *ima], parse_draws("runs"))
    groups_of([*seeds[:2], *ima], parse_draws("none"))
    assert [str(one.message) for one in recwarn] == []
    with pytest.warns(FedscopeWarning) as told:
        groups_of([*seeds[:2], *ima], parse_draws("runs"))
    assert [str(one.message) for one in told] == [
        "--draws runs: fma has seeds 0, 1 (data.seed 0); ima has seeds 1 (data.seed 0), 2 (data.seed 0); 1 in common, "
        "so a difference between these is not one of the same seeds"
    ]


def test_one_run_one_run_twice_and_a_branch_are_refused(seeds: list[Run], tmp_path: Path) -> None:
    with pytest.raises(FedscopeError, match=r"only run with its configuration; give two or more"):
        draws_of_runs(seeds[:1], 2)
    with pytest.raises(FedscopeError, match=r"are one run; give each once"):
        draws_of_runs([seeds[0], seeds[0]], 2)
    branch(seeds[0], 2, {"run": {"seed": 1}}, tmp_path / "branch")
    with pytest.raises(FedscopeError, match=r"were branched at other rounds, or from runs with other settings; give"):
        draws_of_runs([seeds[2], Run.open(tmp_path / "branch")], 2)
    branch(seeds[0], 2, {"run": {"seed": 5}}, tmp_path / "sister")
    sisters = [Run.open(tmp_path / "branch"), Run.open(tmp_path / "sister")]
    with pytest.raises(FedscopeError, match=r"have their rounds up to 2 from one training, so they are no draws"):
        draws_of_runs(sisters, 2)


def test_branches_of_several_seeds_are_draws(seeds: list[Run], tmp_path: Path) -> None:
    """As a sweep makes them, which trains rounds that its methods share once."""
    for i, run in enumerate(seeds[:2]):
        branch(run, 1, {"client": {"lr": 0.05}}, tmp_path / f"{i}")
    made = [Run.open(tmp_path / f"{i}") for i in range(2)]
    cohort = draws_of_runs(made, 2)
    for draw, run in zip(cohort.draws, made, strict=True):
        np.testing.assert_array_equal(draw.parameters, run.round(2).clients().parameters)
    branch(seeds[2], 2, {"client": {"lr": 0.05}}, tmp_path / "later")
    with pytest.raises(FedscopeError, match=r"were branched at other rounds"):
        draws_of_runs([made[0], Run.open(tmp_path / "later")], 2)


def test_runs_on_other_data_are_refused(seeds: list[Run], tmp_path: Path) -> None:
    other = trained(tmp_path / "other", run={"seed": 7})
    changed = Run(other.path, {**other.info, "data": {**other.info["data"], "sha256": "0"}})
    with pytest.raises(FedscopeError, match=r"were trained on different data; draws need the same"):
        draws_of_runs([seeds[0], changed], 2)


def test_cohorts_that_differ_between_runs_are_refused(tmp_path: Path) -> None:
    """Only possible where the cohorts were not drawn by data.seed: by another program, here by a swapped file."""
    one, other = (trained(tmp_path / f"{seed}", run={"participation": 0.5, "seed": seed}) for seed in range(2))
    cohorts = [tuple(other.round(t).client_ids) for t in other.rounds]
    t = next(t for t in (2, 3, 4) if cohorts[t - 1] != cohorts[0])
    (other.path / f"rounds/0000{t}.h5").replace(other.path / "rounds/00001.h5")
    with h5py.File(other.path / "rounds/00001.h5", "r+") as file:
        del file["checksums"], file.attrs["checksums"]
        file.attrs["round"] = 1
    with pytest.raises(FedscopeError, match=r"have different cohorts in round 1; train them with one data\.seed"):
        draws_of_runs([one, Run.open(other.path)], 1)


def test_an_average_over_rounds_is_the_average_of_all_their_clients(tmp_path: Path) -> None:
    """Σ_τ a_τ Σ_k p_k w_k, against the recorded model: the joined cohort's average is IMA's, WIMA's and SWA's."""
    methods = {"ima": {"start": 2, "window": 3}, "wima": {"window": 2}, "swa": {"start": 2, "cycle": 2}}
    for method, settings in methods.items():
        run = trained(tmp_path / method, method, average=settings, run={"participation": 0.5})
        average = config_of(run).average
        checked = 0
        for t in run.rounds:
            members = average.members(t)
            assert bool(members) == ("averaged" in run.round(t).models), (method, t)
            if not members:
                continue
            globals_ = stack([run.round(s).read("global") for s in members])
            np.testing.assert_allclose(
                mean(globals_).parameters, run.round(t).read("averaged").parameters, rtol=1e-5, atol=1e-7
            )
            joined = join([_twice(run, s) for s in members], np.full(len(members), 1 / len(members)), t)
            np.testing.assert_allclose(
                weighted_mean(joined.draws[1], joined.p).parameters,
                run.round(t).read("averaged").parameters,
                rtol=1e-5,
                atol=1e-7,
            )
            assert joined.trained is not None
            assert sorted(set(joined.trained.tolist())) == list(members)
            assert joined.round == t
            checked += 1
        assert checked >= 2, method


def test_a_partial_average_has_no_members(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", "wima", average={"window": 2, "parts": "features"})
    assert config_of(run).average.members(3) == ()


def test_joined_cohorts_close_and_meet_in_the_loss(tmp_path: Path) -> None:
    """The factors of a joined cohort add up, and its loss is the recorded model's."""
    run = trained(tmp_path / "run", "ima", average={"start": 2, "window": 2})
    joined = join([_twice(run, 2), _twice(run, 3)], [0.5, 0.5], 3)
    joined = replace(joined, draws=(joined.draws[1],) * 2)
    rng = np.random.default_rng(0)
    x, y = torch.from_numpy(rng.normal(size=(30, 64)).astype(np.float32)), torch.from_numpy(rng.integers(0, 10, 30))
    samples = Samples(x, y, 10, "noise", "train", np.arange(30))
    members = rng.random((len(joined.client_ids), 30)) < 0.3
    made = decompose_round(
        module_of(run),
        samples,
        joined,
        members,
        globals_=None,
        averaged=run.round(3).read("averaged"),
        population=True,
    )
    assert made.row("closure_error").value < 1e-6
    assert made.row("fma_loss").value == pytest.approx(made.row("averaged_loss").value, rel=1e-5)
    assert made.row("server_step").value == pytest.approx(
        made.row("averaged_loss").value - made.row("fma_loss").value, abs=1e-9
    )
    assert made.row("global_loss").value is None
    assert [row.trained for row in made.clients] == [2] * 4 + [3] * 4


def losses_of(run: Run, t: int) -> tuple[float, float]:
    """The squared losses of the clients' ensemble and of their average, in plain torch on all training data."""
    resolved = resolve_models([f"{run.path}@{t}/global"], EvaluationConfig("train", device="cpu"))
    net, samples, round_ = resolved.module, resolved.samples, run.round(t)
    wanted = torch.nn.functional.one_hot(samples.y, 10)

    def outputs(weights: Weights) -> torch.Tensor:
        net.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in weights.arrays().items()})
        with torch.no_grad():
            return torch.softmax(net(samples.x), 1)

    clients = round_.clients()
    ensemble = sum(p * outputs(clients.row(k)) for k, p in enumerate(round_.weights))
    average = outputs(weighted_mean(clients, round_.weights))
    return float((wanted - ensemble).square().sum(1).mean()), float((wanted - average).square().sum(1).mean())


@pytest.mark.parametrize(
    ("draws", "groups"),
    [
        ("none", {"s0": [(0, 3)], "s1": [(1, 3)], "s2": [(2, 3)]}),
        ("rounds:2", {"s0": [(0, 3), (0, 2)], "s1": [(1, 3), (1, 2)], "s2": [(2, 3), (2, 2)]}),
        ("runs", {"s0+s1+s2": [(0, 3), (1, 3), (2, 3)]}),
    ],
)
def test_the_question_answers_for_each_run_or_for_all_as_draws_of_one(
    seeds: list[Run], draws: str, groups: dict[str, list[tuple[int, int]]]
) -> None:
    """Losses are means over the draws, which are rounds of a run, or runs that differ in their seed."""
    found = decompose(seeds, rounds=3, draws=draws)
    assert [part.run for part in found.runs] == list(groups)
    for part, drawn in zip(found.runs, groups.values(), strict=True):
        (factors,) = part.rounds
        ensemble, average = np.mean([losses_of(seeds[i], t) for i, t in drawn], axis=0)
        assert (factors.round, factors.row("fma_loss").value) == (3, pytest.approx(average, rel=1e-5))
        assert factors.row("locality").value == pytest.approx(average - ensemble, rel=1e-4, abs=1e-7)
        adds = [factors.row(name).value or 0.0 for name in ("bias", "variance", "covariance", "locality")]
        assert sum(adds) == pytest.approx(average, rel=1e-5)


def test_rounds_that_do_not_fit_are_not_joined(seeds: list[Run]) -> None:
    with pytest.raises(FedscopeError, match=r"round 2 has 2 draws \(local:2\), round 3 has 3 \(runs\)"):
        join([_twice(seeds[0], 2), draws_of_runs(seeds, 3)], [0.5, 0.5], 3)


def test_the_corollaries_of_equal_sizes() -> None:
    """Corollary 1 against a loop over all pairs; Corollary 2 is the ensemble's loss where p is uniform."""

    class Table(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Parameter(torch.zeros(9, 3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.table[x[:, 0].long()]

    rng, module, clients, draws = np.random.default_rng(1), Table(), 4, 3
    outputs = rng.normal(size=(draws, clients, 9, 3)).astype(np.float32)
    cohort = CohortDraws(
        round=1,
        client_ids=np.arange(clients),
        p=np.full(clients, 1 / clients),
        draws=[Weights(Layout.of(module), each.reshape(clients, -1), {}) for each in outputs],
        client_samples=np.full(clients, 5),
        source="runs",
        independent=True,
    )
    y = rng.integers(0, 3, 9)
    samples = Samples(torch.arange(9.0)[:, None], torch.from_numpy(y), 3, "toy", "train", np.arange(9))
    options: dict[str, Any] = {
        "globals_": None,
        "averaged": None,
        "population": True,
        "outputs": "logits",
        "compute": Compute(workers=1),
    }
    made = decompose_round(module, samples, cohort, None, corollaries=True, chunk=16, **options)
    f = outputs.astype(np.float64)
    d = f - f.mean(0)
    least = np.mean(
        [
            min(np.mean([d[r, k, j] @ d[r, i, j] for r in range(draws)]) for k in range(4) for i in range(4) if k != i)
            for j in range(9)
        ]
    )
    assert made.row("corollary_1", "plugin").value == pytest.approx(3 / 4 * least, rel=1e-9)
    assert made.row("corollary_1", "plugin").value <= made.row("covariance", "plugin").value
    assert made.row("corollary_2", "measured").value == pytest.approx(made.row("ensemble_loss").value, rel=1e-12)

    uneven = replace(cohort, p=np.array([0.7, 0.1, 0.1, 0.1]))
    other = decompose_round(module, samples, uneven, None, corollaries=True, **options)
    loss = np.mean([np.square(np.eye(3)[y] - f[r].mean(0)).sum(1).mean() for r in range(draws)])
    assert other.row("corollary_2", "measured").value == pytest.approx(loss, rel=1e-9)
    assert other.row("ensemble_loss").value != pytest.approx(loss, rel=1e-3)

    alone = CohortDraws(
        1, np.arange(1), np.ones(1), [each.row(0) for each in _rows(cohort)], np.array([5]), "runs", True
    )
    single = decompose_round(module, samples, alone, None, corollaries=True, **options)
    assert single.row("corollary_1", "plugin").value is None
    plain = decompose_round(module, samples, cohort, None, **options)
    assert "corollary_1" not in {row.factor for row in plain.rows}


def _rows(cohort: CohortDraws) -> list[Any]:
    class First:
        def __init__(self, draw: Weights) -> None:
            self.draw = draw

        def row(self, k: int) -> Weights:
            return Weights(self.draw.layout, self.draw.parameters[k : k + 1], {})

    return [First(draw) for draw in cohort.draws]


def _twice(run: Run, number: int) -> CohortDraws:
    """A round's clients as two draws: noise, then what was recorded."""
    round_ = run.round(number)
    clients = round_.clients()
    noise = replace(clients, parameters=clients.parameters + np.float32(0.01))
    return CohortDraws(
        number, round_.client_ids, round_.weights, (noise, clients), round_.client_samples, "local:2", True
    )


@pytest.fixture(scope="module")
def stepping(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Three runs with a server that steps, and an average over rounds."""
    folder = tmp_path_factory.mktemp("stepping")
    settings: dict[str, Any] = {"server": {"method": "fedadam"}, "average": {"start": 2, "window": 2}}
    return [trained(folder / f"s{seed}", "ima", run={"seed": seed}, **settings) for seed in range(3)]


@pytest.mark.parametrize("loss", ["squared", "cross-entropy", "zero-one"])
def test_numbers_of_recorded_models_are_means_over_runs_that_are_draws(stepping: list[Run], loss: str) -> None:
    """Under the name of all runs no number is of the first alone: each run decomposed by itself says its own."""
    together = decompose(stepping, draws="runs", rounds=3, loss=loss, of="both")
    alone = [decompose(run, draws="none", rounds=3, loss=loss, of="both") for run in stepping]
    for place, model in enumerate(("global", "averaged")):
        one = together.runs[place]
        assert (one.run, one.model) == ("s0+s1+s2", model)
        each = [own.runs[place].rounds[0] for own in alone]
        for factor in ("fma_loss", "global_loss", "averaged_loss", "server_step"):
            row, values = one.rounds[0].row(factor), [own.row(factor).value for own in each]
            if values[0] is None:  # an average over rounds says nothing of the global model
                assert (factor, model, row.value) == ("global_loss", "averaged", None)
                continue
            assert row.value == pytest.approx(np.mean(values), rel=1e-9, abs=1e-12)
            assert row.stderr_draws == pytest.approx(np.std(values, ddof=1) / np.sqrt(3), rel=1e-6, abs=1e-12)
        rows = {factor: one.rounds[0].row(factor).value for factor in ("fma_loss", "server_step", f"{model}_loss")}
        assert rows["fma_loss"] + rows["server_step"] == pytest.approx(rows[f"{model}_loss"])


def test_errors_over_samples_are_those_of_the_mean_over_runs(stepping: list[Run]) -> None:
    """On a sample: of each sample's mean difference over runs, by plain torch."""
    limited = {"split": "test", "limit": 40}
    row = decompose(stepping, draws="runs", rounds=3, **limited).runs[0].rounds[0].row("server_step")
    resolved = resolve_models([f"{stepping[0].path}@3/global"], EvaluationConfig("test", limit=40, device="cpu"))
    net, samples = resolved.module, resolved.samples
    wanted = torch.nn.functional.one_hot(samples.y, 10)

    def losses(weights: Weights) -> torch.Tensor:
        net.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in weights.arrays().items()})
        with torch.no_grad():
            return (wanted - torch.softmax(net(samples.x).double(), 1)).square().sum(1)

    steps = []
    for run in stepping:
        round_ = run.round(3)
        steps.append(losses(round_.read("global")) - losses(weighted_mean(round_.clients(), round_.weights)))
    mean_step = torch.stack(steps).mean(0)
    assert row.value == pytest.approx(float(mean_step.mean()), rel=1e-5)
    assert row.stderr_samples == pytest.approx(float(mean_step.std(correction=0)) / np.sqrt(40), rel=1e-5)


def test_the_error_curve_of_runs_that_are_draws_is_their_mean(stepping: list[Run]) -> None:
    result = decompose(stepping, draws="runs", rounds=3)
    curves = {curve.label: curve for curve in result.runs[0].curves}
    for label, column in (("global", "test_error"), ("averaged", "averaged_test_error")):
        values = np.array([run.all_metrics()[column] for run in stepping])
        there = ~np.isnan(values).any(axis=0)
        assert curves[label].rounds == tuple(np.array(stepping[0].rounds)[there].tolist())
        np.testing.assert_allclose(curves[label].error, values[:, there].mean(axis=0), rtol=1e-12)
    assert len({run.all_metrics()["test_error"][-1] for run in stepping}) > 1
    said = "Test errors: means over the runs, where all were measured."
    for panels in ((), ("error",), ("distance", "error")):
        assert said in notes(result, panels)
    assert said not in notes(result, ("distance",))
    assert said not in notes(decompose(stepping, draws="none", rounds=3))


def test_a_model_that_one_of_the_runs_did_not_keep_has_no_mean(seeds: list[Run], tmp_path: Path) -> None:
    other = trained(tmp_path / "other", run={"seed": 7}, record={"globals": "none"})
    row = decompose([*seeds, other], draws="runs", rounds=2).runs[0].rounds[0].row
    assert (row("global_loss").value, row("server_step").value) == (None, None)
    assert row("fma_loss").value is not None


def test_models_of_another_number_than_the_draws_are_refused(seeds: list[Run]) -> None:
    cohort = draws_of_runs(seeds, 2)
    samples = Samples(torch.zeros(2, 64), torch.zeros(2, dtype=torch.int64), 10, "zeros", "train", np.arange(2))
    two = stack([run.round(2).read("global") for run in seeds[:2]])
    with pytest.raises(
        FedscopeError, match=r"2 global models are given for the 3 draws of round 2: give one, or one a"
    ):
        decompose_round(module_of(seeds[0]), samples, cohort, None, globals_=two, averaged=None, population=True)
