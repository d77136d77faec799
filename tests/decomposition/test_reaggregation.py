"""A round aggregated again is the round that was recorded, bit for bit, for every server; and another one otherwise."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedscope
from fedscope.checkpoints import (
    FedscopeError,
    Layout,
    RoundRecord,
    Run,
    TensorEntry,
    Weights,
    weighted_mean,
    write_round,
)
from fedscope.decomposition.reaggregation.aggregate import EvaluationData, Reaggregated, reaggregate
from fedscope.decomposition.reaggregation.measure import compare, place_by_step
from fedscope.decomposition.reaggregation.requested_servers import LayerPart, reaggregating_config
from fedscope.decomposition.reaggregation.result import ModelRow, Reaggregation
from fedscope.decomposition.reaggregation.server_inputs import recorded_cohort
from fedscope.training import Config, branch, data_of, merge, module_of, preset, train
from fedscope.training.methods.base import Served, ServerMethod
from fedscope.training.settings.registry import find, names

SMALL = {
    "data": {"clients": 6, "partition": "dirichlet:0.5"},
    "model": {"hidden": [8]},
    "client": {"epochs": 1},
    "run": {"rounds": 3, "participation": 0.7, "evaluate_clients": 0, "evaluate_every": 9},
}
# At their defaults some methods would do what FMA does on rounds this small, or another's state.
OWN: dict[str, Any] = {"fedgma": {"server": {"tau": 0.9}}, "fedsa": {"server": {"quantile": 0.9}}}
OWN |= {"fisher": {"server": {"samples": 20}}}  # they cost a gradient each


def config(method: str, **sections: Any) -> Config:
    return Config.read(merge(preset(method), SMALL, OWN.get(method, {}), sections))


def again(run: Run, number: int, server: str, *, from_state: bool = False, **settings: Any) -> Reaggregated:
    (made,) = reaggregate(run, number, [reaggregating_config(run, number, server, settings)], from_state=from_state)
    return made


def same(one: Weights, other: Weights) -> bool:
    return all(one.arrays()[name].tobytes() == other.arrays()[name].tobytes() for name in one.layout.names)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder, made = tmp_path_factory.mktemp("runs"), {}

    def get(method: str) -> Run:
        if method not in made:
            made[method] = train(config(method), folder / method)
        return made[method]

    return get


# --- the run's own server ---


@pytest.mark.parametrize("server", names("servers"))
def test_the_run_s_own_server_makes_its_global_again_bit_for_bit(runs: Any, server: str) -> None:
    run = runs(server)
    for number in run.rounds:
        made = again(run, number, server, from_state=True)
        recorded = run.round(number).read("global")
        assert same(made.weights, recorded), number
        assert compare(made.weights, recorded) == (0.0, True)
        keeps = bool(find("servers", server)().init(recorded.parameters))
        # in its first round a method begins as it always does
        assert made.state == ("none" if not keeps else "fresh" if number == 1 else "recorded")
        table = run.config["server"]
        assert (made.server, made.settings) == (server, {key: table[key] for key in table if key != "method"})


@pytest.mark.parametrize("server", ["adabest", "fedadagrad", "fedadam", "fedavgm", "feddyn", "fedyogi"])
def test_a_server_that_starts_anew_does_not_make_a_later_global_again(runs: Any, server: str) -> None:
    run = runs(server)
    made = again(run, 3, server)
    assert made.state == "fresh"
    assert not same(made.weights, run.round(3).read("global"))
    assert same(again(run, 1, server).weights, run.round(1).read("global"))


def test_momentum_of_the_server_from_the_recorded_models_alone(runs: Any, close: Any) -> None:
    """m_3 = 0.9 (0.9 Δ_1 + Δ_2) + Δ_3 in float64, from the files' clients and starts."""
    run = runs("fedavgm")
    m = 0.0
    for number in (1, 2, 3):
        round_ = run.round(number)
        start = round_.read("start").parameters.astype(np.float64)
        m = 0.9 * m + round_.weights @ (round_.clients().parameters - start)
    close(again(run, 3, "fedavgm", from_state=True).weights.parameters, start + m, 1e-6)


# --- another server ---


def test_another_server_is_its_formula_on_the_recorded_clients(runs: Any, close: Any) -> None:
    run = runs("fma")
    round_ = run.round(2)
    start, clients = round_.read("start").parameters.astype(np.float64), round_.clients().parameters
    p = round_.client_samples / round_.client_samples.sum()
    assert len(set(p)) > 1
    delta = clients - start
    far = again(run, 2, "fedswa", alpha=1.25)
    close(far.weights.parameters, start + 1.25 * (p @ delta), 1e-6)
    assert far.settings == {"weighting": "samples", "alpha": 1.25}
    even = again(run, 2, "fma", weighting="uniform")
    close(even.weights.parameters, clients.mean(axis=0, dtype=np.float64), 1e-6)


def test_steps_are_counted_for_fednova(runs: Any, close: Any) -> None:
    """a_i by the paper's closed form, momentum 0.9; clients with more samples took more steps."""
    run = runs("fma")
    round_ = run.round(3)
    beta, steps = 0.9, round_.client_steps
    assert len(set(steps)) > 1
    a = (steps - beta * (1 - beta**steps) / (1 - beta)) / (1 - beta)
    start = round_.read("start").parameters.astype(np.float64)
    delta, p = round_.clients().parameters - start, round_.weights
    expected = start + (p @ a) * ((p / a) @ delta)
    close(again(run, 3, "fednova").weights.parameters, expected, 1e-6)


def test_what_the_server_sees_is_what_it_saw(runs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cohort of the round loop itself, field by field; IMA's exploration lowers the rate in the last round."""
    from fedscope.training.methods.servers.fma import FMA

    seen = []
    real = FMA.step

    def watching(self: Any, state: Any, start: Any, clients: Any, cohort: Any) -> Any:
        seen.append(cohort)
        return real(self, state, start, clients, cohort)

    monkeypatch.setattr(FMA, "step", watching)
    run = train(config("ima", average={"start": 2, "explore_decay": 0.5}), tmp_path / "ima")
    for cohort in seen:
        found = recorded_cohort(run, run.round(cohort.round), reaggregating_config(run, cohort.round, "fma"))
        for name, value in vars(cohort).items():
            np.testing.assert_array_equal(getattr(found, name), value, err_msg=name)
    assert seen[2].lr < seen[0].lr


def test_averages_over_rounds_are_left_out(tmp_path: Path) -> None:
    run = train(config("ima", average={"start": 1, "window": 2}), tmp_path / "ima")
    round_ = run.round(3)
    made = again(run, 3, "fma")
    assert same(made.weights, round_.read("global"))
    assert not same(made.weights, round_.read("averaged"))
    # not even their refusals: IMA before the server needs an optimiser, which FedSA is not
    first = train(
        config("ima", server={"method": "fedavgm"}, average={"start": 1, "before_server": True}), tmp_path / "first"
    )
    assert again(first, 2, "fedsa").server == "fedsa"
    said = [fedscope.reaggregate(f"{path}@2", "fedsa").summary() for path in (run.path, first.path)]
    assert ["averaged over rounds before its server stepped, which is left out" in one for one in said] == [False, True]


def test_settings_of_the_run_stay_for_its_own_server_only(runs: Any, tmp_path: Path) -> None:
    run = train(config("fedadam", server={"lr": 0.5, "weighting": "uniform"}), tmp_path / "adam")
    assert again(run, 2, "fedadam").settings["lr"] == 0.5
    assert again(run, 2, "fedyogi").settings["lr"] == 0.01
    assert again(run, 2, "fedadam", lr=0.125).settings["lr"] == 0.125
    # how clients are weighted is the federation's, whatever the server
    assert again(run, 2, "fma").settings == {"weighting": "uniform"}


def test_the_history_of_a_branch_was_made_by_another_server(tmp_path: Path) -> None:
    source = train(config("fedavgm", server={"momentum": 0.5}), tmp_path / "fedavgm")
    made = branch(source, 2, {"server": {"method": "fedadam"}, "run": {"rounds": 4}}, tmp_path / "branch")
    for number, server in ((2, "fedavgm"), (3, "fedadam"), (4, "fedadam")):
        assert same(again(made, number, server, from_state=True).weights, made.round(number).read("global")), number
    assert again(made, 3, "fedadam", from_state=True).state == "fresh"
    assert again(made, 4, "fedadam", from_state=True).state == "recorded"
    with pytest.raises(FedscopeError, match=r"round 4 of .*branch was made with --server fedadam, so there is no"):
        again(made, 4, "fedavgm", from_state=True)


def with_buffers(source: Run, path: Path, parameters: np.ndarray, held: dict[str, np.ndarray]) -> tuple[Run, Weights]:
    """A run whose second round has other clients, of a model with buffers [C, ...], and the model that it was sent."""
    shutil.copytree(source.path, path)
    before = source.round(2)
    more = (TensorEntry(name, rows.shape[1:], str(rows.dtype), "buffer") for name, rows in held.items())
    layout = Layout((*source.layout.entries, *more))
    info = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps({**info, "files": {}, "layout": layout.to_json()}))
    start = Weights(layout, before.read("start").parameters, {name: rows[1] for name, rows in held.items()})
    numbers = (before.client_ids, before.client_samples, before.client_steps, before.client_loss, before.weights)
    Run.open(path).round(2).path.unlink()
    record = RoundRecord(2, start, Weights(layout, parameters, held), start, None, *numbers)
    write_round(path / "rounds/00002.h5", record, identity=before.identity)
    return Run.open(path), start


def test_buffers_are_averaged_as_in_training(runs: Any, tmp_path: Path) -> None:
    """Running statistics with p, counters of the client with the most samples."""
    before = runs("fma").round(2)
    count = len(before.client_ids)
    held = {
        "mean": np.random.default_rng(0).normal(size=(count, 3)).astype(np.float32),
        "seen": 7 + np.arange(count),
    }
    run, _ = with_buffers(runs("fma"), tmp_path / "buffers", before.clients().parameters, held)
    made = again(run, 2, "fedswa").weights
    total = np.zeros(3)
    for k in range(count):
        total += before.weights[k] * held["mean"][k].astype(np.float64)
    np.testing.assert_array_equal(made.buffers["mean"], total.astype(np.float32))
    assert made.buffers["seen"] == held["seen"][before.client_samples.argmax()]
    # a model that differs in a buffer alone is another one
    assert compare(made, made) == (0.0, True)
    assert compare(made, replace(made, buffers={**made.buffers, "seen": np.array(0)})) == (0.0, False)


@pytest.mark.filterwarnings("error")
def test_distances_are_measured_in_float64() -> None:
    """Of weights far apart: their differences are no numbers of float32."""
    rng = np.random.default_rng(0)
    layout = Layout((TensorEntry("w", (9,), "float32", "parameter"),))
    near, far = 1 + rng.random(9), 1e-3 * rng.random(9)
    one, other = (Weights(layout, values.astype(np.float32), {}) for values in (near, far))
    exact = [float(a) - float(b) for a, b in zip(one.parameters, other.parameters, strict=True)]
    assert compare(one, other)[0] == pytest.approx(math.hypot(*exact), rel=1e-14, abs=0)
    lost = Weights(layout, np.full(9, np.inf, np.float32), {})
    distance, same_ = compare(lost, lost)
    assert distance is not None
    assert math.isnan(distance)
    assert same_ is True


@pytest.mark.filterwarnings("error")
def test_clients_that_diverged_are_told_by_parameters_and_by_buffers(runs: Any, tmp_path: Path) -> None:
    before = runs("fma").round(2)
    parameters, mean = before.clients().parameters, np.zeros((len(before.client_ids), 3), np.float32)
    parameters[0, 5], mean[2, 1] = np.inf, np.nan
    run, start = with_buffers(runs("fma"), tmp_path / "lost", parameters, {"mean": mean})
    made = again(run, 2, "fedadam")
    assert made.diverged == (before.client_ids[0], before.client_ids[2])
    assert compare(made.weights, start)[1] is False
    assert again(runs("fma"), 2, "fedadam").diverged == ()


@pytest.mark.parametrize("server", names("servers"))
def test_a_client_of_weight_0_that_diverged_enters_only_where_clients_count_alike(
    runs: Any, tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    number, whole = 2, runs("fma")
    parameters = whole.round(number).clients().parameters.copy()
    parameters[0] = np.nan
    run, _ = with_buffers(whole, tmp_path / "lost", parameters, {})
    counts = np.array([len(own) for own in run.partition.clients])
    lost = int(run.round(number).client_ids[0])
    monkeypatch.setattr(
        ServerMethod, "weights", lambda self, held: np.where(held == counts[lost], 0, held) / held.sum()
    )
    made = again(run, number, server)
    alike = find("servers", server).unweighted
    assert np.isfinite(made.weights.parameters).all() == (not alike)
    assert (made.diverged, made.outside) == ((lost,), () if alike else (lost,))


@dataclass(frozen=True)
class Weighed(ServerMethod):
    """The weighted mean, of somebody's own: 0 times NaN is NaN in it."""

    forgets_start = True

    def step(self, state: Any, start: Weights, clients: Weights, cohort: Any) -> Served:
        return Served((cohort.p @ clients.parameters).astype(start.layout.dtype))


@dataclass(frozen=True)
class Taken(Weighed):
    """The weighted mean of those that have a weight."""

    def step(self, state: Any, start: Weights, clients: Weights, cohort: Any) -> Served:
        has = cohort.p != 0
        return Served((cohort.p[has] @ clients.parameters[has]).astype(start.layout.dtype))


@pytest.mark.parametrize(("kind", "spoilt"), [(Weighed, True), (Taken, False)])
@pytest.mark.parametrize("by_layer", [False, True])
def test_a_client_of_weight_0_has_a_part_in_what_ones_own_server_makes_if_that_is_not_finite(
    runs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[ServerMethod], spoilt: bool, by_layer: bool
) -> None:
    run, lost, config = with_lost(runs("fma"), tmp_path, monkeypatch, np.nan)
    own = replace(config, server=kind())
    layers = [(LayerPart("", frozenset(run.round(2).layout.names), own, False),)] if by_layer else ()
    (made,) = reaggregate(run, 2, [own], layers=layers)
    assert np.isnan(made.weights.parameters).all() == spoilt
    assert (made.diverged, made.outside) == ((lost,), () if spoilt else (lost,))


@pytest.mark.parametrize("server", ["fma", "fedsa", "model-stock"])
@pytest.mark.parametrize("by_layer", [False, True])
def test_a_client_of_weight_0_that_diverged_in_a_buffer_enters_no_model(
    runs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: str, by_layer: bool
) -> None:
    """Buffers are averaged with p also where parameters count alike."""
    run, lost, _ = with_lost(runs("fma"), tmp_path, monkeypatch, None)
    config = reaggregating_config(run, 2, server)
    layers = [(LayerPart("", frozenset(run.round(2).layout.names), config, False),)] if by_layer else ()
    (made,) = reaggregate(run, 2, [config], layers=layers)
    assert all(np.isfinite(values).all() for values in made.weights.arrays().values())
    assert (made.diverged, made.outside) == ((lost,), (lost,))


def with_lost(
    whole: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, value: float | None
) -> tuple[Run, int, Config]:
    """The run, its first client and FMA: it has weight 0, and parameters of this value or, with None, a NaN buffer."""
    before = whole.round(2)
    parameters, mean = before.clients().parameters.copy(), np.zeros((len(before.client_ids), 3), np.float32)
    if value is None:
        mean[0, 1] = np.nan
    else:
        parameters[0] = value
    run, _ = with_buffers(whole, folder / "lost", parameters, {"mean": mean})
    counts, lost = np.array([len(own) for own in run.partition.clients]), int(before.client_ids[0])
    monkeypatch.setattr(
        ServerMethod, "weights", lambda self, held: np.where(held == counts[lost], 0, held) / held.sum()
    )
    return run, lost, reaggregating_config(run, 2, "fma")


@pytest.mark.parametrize(
    ("outside", "sentence"),
    [
        ({}, "clients 2, 4 diverged: recorded with values that are not finite, which enter every mean"),
        (
            {"fma": [2, 4], "ties": [2, 4]},
            "clients 2, 4 diverged: recorded with values that are not finite, which enter no mean, as they have no "
            "part in any",
        ),
        (
            {"fma": [2, 4], "fma, head=personal": [], "fedsa": [], "ties": [2, 4]},
            "clients 2, 4 diverged: recorded with values that are not finite, which enter fma, head=personal and fedsa "
            "alone: in the others they have no part",
        ),
    ],
)
def test_who_diverged_is_said_with_the_models_that_it_enters(outside: dict[str, list[int]], sentence: str) -> None:
    attrs = {"run": {"path": "nowhere"}, "round": 4, "servers": ["ties"], "diverged": [2, 4], "outside": outside}
    assert Reaggregation((), attrs).notes() == [sentence]


def test_clients_that_diverged_in_different_models_are_told_apart() -> None:
    attrs = {"run": {"path": "nowhere"}, "round": 4, "servers": ["ties"], "diverged": [2, 4], "outside": {"ties": [4]}}
    assert Reaggregation((), attrs).notes() == [
        "client 2 diverged: recorded with values that are not finite, which enter every mean",
        "client 4 diverged: recorded with values that are not finite, which enter no mean, as it has no part in any",
    ]


# --- what cannot be ---


def test_clients_that_a_server_does_not_go_with_are_refused(tmp_path: Path) -> None:
    run = train(config("fedprox", run={"rounds": 1}), tmp_path / "fedprox")
    with pytest.raises(FedscopeError, match=r"--server fednova counts steps .* but --client fedprox adds a term"):
        reaggregating_config(run, 1, "fednova")


def test_a_state_that_was_not_recorded_is_refused(tmp_path: Path) -> None:
    run = train(config("fedadam", record={"globals": [1, 3]}), tmp_path / "adam")
    with pytest.raises(
        FedscopeError,
        match=r"--from-state: what fedadam kept after round 2 of .*adam \(m, steps, v\) was not recorded, because "
        r"record\.globals leaves that round out; leave --from-state out, and fedadam starts with an empty state",
    ):
        again(run, 3, "fedadam", from_state=True)
    assert again(run, 2, "fedadam", from_state=True).state == "recorded"
    assert again(run, 3, "fedadam").state == "fresh"
    # what keeps nothing needs nothing
    assert again(run, 3, "fedsa", from_state=True).state == "none"


@pytest.mark.parametrize(
    ("server", "settings", "message"),
    [
        ("fedsaa", {}, r"'fedsaa' is not a server method that fedscope knows; did you mean \"fedsa\"\?"),
        ("ima", {}, r"'ima' is not a server method that fedscope knows; did you mean --average ima\?"),
        ("fedsa", {"quantil": 0.9}, r"server\.quantil is not a setting of FedSA; did you mean \"quantile\"\?"),
        ("fedadam", {"lr": 0.0}, r"server\.lr = 0 is out of range: it must be greater than 0"),
    ],
)
def test_unknown_servers_and_settings_are_refused(runs: Any, server: str, settings: Any, message: str) -> None:
    with pytest.raises(FedscopeError, match=message):
        reaggregating_config(runs("fma"), 1, server, settings)


def test_rounds_that_hold_too_little_are_refused(runs: Any, tmp_path: Path) -> None:
    few = train(config("fma", record={"clients": [2]}), tmp_path / "few")
    with pytest.raises(FedscopeError, match=r"few@1: the clients of round 1 were not recorded; round 2 has them"):
        again(few, 1, "fedsa")
    lonely = train(config("fma", run={"participation": 0.01, "rounds": 1}), tmp_path / "lonely")
    with pytest.raises(FedscopeError, match=r"lonely@1 has a cohort of one, so .*\(--clients, "):
        again(lonely, 1, "fedsa")
    before = few.round(2)
    numbers = (before.client_ids, before.client_samples, before.client_steps, before.client_loss, before.weights)
    record = RoundRecord(2, None, before.clients(), None, None, *numbers)
    before.path.unlink()
    write_round(before.path, record, identity=before.identity)
    said = r"few@2 recorded .* not the model they were sent \(start\), from which fedswa steps; give another round, or "
    with pytest.raises(FedscopeError, match=said + r"train with record\.globals = 'all'"):
        again(Run.open(few.path), 2, "fedswa")
    # what is made of the clients alone needs none
    p = before.client_samples / before.client_samples.sum()
    assert same(again(Run.open(few.path), 2, "fma").weights, weighted_mean(record.clients, p))


def test_a_run_of_another_program_says_all_that_most_servers_need(runs: Any, tmp_path: Path) -> None:
    shutil.copytree(runs("fma").path, tmp_path / "flower")
    (tmp_path / "flower" / "config.toml").unlink()
    info = json.loads((tmp_path / "flower" / "run.json").read_text())
    (tmp_path / "flower" / "run.json").write_text(json.dumps({**info, "files": {}, "source": "Flower 1.9"}))
    foreign = Run.open(tmp_path / "flower")
    for server in names("servers"):
        if server == "fednova":
            said = r"--server fednova counts local steps, and .*flower, which was recorded by Flower 1\.9, does not"
            with pytest.raises(FedscopeError, match=said):
                reaggregating_config(foreign, 1, server)
        elif server not in ("greedy", "fisher", "regmean"):  # which need the data and the architecture
            # the same as from the run that says all
            assert same(again(foreign, 2, server).weights, again(runs("fma"), 2, server).weights), server
    del info["clients"]
    shutil.copytree(tmp_path / "flower", tmp_path / "unsaid")
    said = {**info, "files": {}, "source": "a loop"}
    (tmp_path / "unsaid" / "run.json").write_text(json.dumps({k: v for k, v in said.items() if k != "sha256"}))
    with pytest.raises(
        FedscopeError, match=r"--server feddyn counts all clients, and .*unsaid, which was recorded by a"
    ):
        reaggregating_config(Run.open(tmp_path / "unsaid"), 1, "feddyn")
    with pytest.raises(FedscopeError, match=r"--from-state: .*flower was recorded by Flower 1\.9, which keeps no"):
        again(foreign, 2, "fedadam", from_state=True)
    module, data = module_of(runs("fma")), data_of(runs("fma"))
    (ours,) = reaggregate(runs("fma"), 2, [reaggregating_config(runs("fma"), 2, "greedy")])
    measuring = EvaluationData(module, data)
    (theirs,) = reaggregate(foreign, 2, [reaggregating_config(foreign, 2, "greedy")], measuring=measuring)
    assert ours.members == theirs.members
    assert same(ours.weights, theirs.weights)
    weights = reaggregating_config(foreign, 2, "fma", {"weighting": "uniform"})
    (even,) = reaggregate(foreign, 2, [weights])
    count = len(foreign.round(2).client_ids)
    assert same(even.weights, weighted_mean(foreign.round(2).clients(), np.full(count, 1 / count)))


# --- differences on the same samples ---


def test_settings_of_servers_may_stand_below_their_section(runs: Any) -> None:
    run = runs("fma")
    expected = fedscope.reaggregate(run, "fedadam", rounds=2, settings={"lr": 0.3}).measured
    for given in ({"server.lr": 0.3}, {"server": {"lr": 0.3}}, ["server.lr=0.3"]):
        assert fedscope.reaggregate(run, "fedadam", rounds=2, settings=given).measured == expected
    with pytest.raises(FedscopeError, match=r"^server\.split is not a setting of FedAdam; it is one of fisher,"):
        fedscope.reaggregate(run, "fedadam", rounds=2, settings={"server.split": 0.3})
    with pytest.raises(FedscopeError, match=r"client.*: nothing is trained here, so only the server has settings"):
        fedscope.reaggregate(run, "fedadam", rounds=2, settings={"client.lr": 0.3})
    with pytest.raises(FedscopeError, match=r"^server\.lr = nan is not a finite number$"):
        fedscope.reaggregate(run, "fedadam", rounds=2, settings=["server.lr=nan"])


def test_differences_to_plain_fma_are_paired_over_samples(runs: Any) -> None:
    run = runs("fma")
    found = fedscope.reaggregate(run, ["ties", "model-stock", "fma"], rounds=2, settings={"density": 0.5})
    rows = {row.server: row for row in found.measured if row.server}
    data = data_of(run).samples("test")
    module = module_of(run)

    def alone(weights: Weights) -> tuple[np.ndarray, np.ndarray]:
        """Loss and error of every sample, by torch."""
        arrays = weights.arrays()
        module.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in arrays.items()})
        with torch.inference_mode():
            outputs = module(data.x[:])
        loss = torch.nn.functional.cross_entropy(outputs, data.y, reduction="none")
        return loss.double().numpy(), (outputs.argmax(1) != data.y).double().numpy()

    plain = alone(found.models["fma"])
    for server in ("ties", "model-stock"):
        row = rows[server]
        shown = (
            (row.loss_difference, row.loss_difference_stderr),
            (row.error_difference, row.error_difference_stderr),
        )
        for own, base, (mean, stderr) in zip(alone(found.models[server]), plain, shown, strict=True):
            apart = own - base
            assert mean == pytest.approx(apart.mean(), rel=1e-3, abs=1e-7)
            assert stderr == pytest.approx(apart.std(ddof=1) / math.sqrt(len(apart)), rel=1e-3, abs=1e-7)
        assert f"{row.model} less fma on the same samples: loss {row.loss_difference:+.3g} ± " in found.summary()
    assert (rows["fma"].loss_difference, rows["fma"].loss_difference_stderr) == (0.0, 0.0)
    assert "fma less fma" not in found.summary()


def test_places_are_along_and_across_the_step_of_plain_fma(runs: Any) -> None:
    run = runs("fma")
    found = fedscope.reaggregate(run, ["fedswa", "ties"], settings={"alpha": 1.25}, rounds=2)
    rows = {row.server: row for row in found.measured}
    start = run.round(2).read("start").parameters.astype(np.float64)
    step = run.round(2).weights @ (run.round(2).clients().parameters - start)
    places = {"fma": (1.0, 0.0), "fedswa": (1.25, 0.0)}
    moved = found.models["ties"].parameters - start
    cosine = moved @ step / np.linalg.norm(moved) / np.linalg.norm(step)
    far = np.linalg.norm(moved) / np.linalg.norm(step)
    assert 0.1 < cosine < 0.99
    places["ties"] = (far * cosine, far * math.sqrt(1 - cosine**2))
    for server, place in places.items():
        # FMA's model is rounded to float32: 1e-7 of the parameters, whose norm is some ten of the step's
        assert (rows[server].along_fma, rows[server].across_fma) == pytest.approx(place, rel=1e-4, abs=1e-5)


def test_a_place_needs_a_step() -> None:
    layout = Layout((TensorEntry("w", (2,), "float32", "parameter"),))
    start, other = (Weights(layout, np.array(w, np.float32), {}) for w in ([1, 2], [3, np.nan]))
    assert place_by_step(start, None, start) == (None, None)
    assert place_by_step(other, start, start) == (None, None)
    assert place_by_step(other, start, Weights(layout, np.array([3, 2], np.float32), {})) == (None, None)
    assert place_by_step(start, start, Weights(layout, np.array([3, 2], np.float32), {})) == (0.0, 0.0)


def test_the_share_of_conflicting_signs_is_counted_parameter_by_parameter(runs: Any) -> None:
    run = runs("fma")
    found = fedscope.reaggregate(run, ["ties"], rounds=2)
    start, clients = run.round(2).read("start").parameters, run.round(2).clients().parameters
    both = moved = 0
    for w, values in zip(start, clients.T, strict=True):
        signs = {bool(value > w) for value in values if value != w}
        both, moved = both + (len(signs) == 2), moved + bool(signs)
    assert found.attrs["sign_conflict"] == both / moved
    assert 0 < both < moved
    said = f"{100 * both / moved:.3g} % of the parameters that moved were raised by some clients, lowered by others"
    assert said in found.summary()


# --- the figure ---


def compared(*rows: ModelRow) -> Reaggregation:
    attrs = {"run": {"path": "runs/fma"}, "round": 4, "servers": ["ties"], "data": "digits", "split": "test"}
    first = ModelRow("recorded", "", "", 0.25, 0.5, 0.0, True, loss_difference=0.0, loss_difference_stderr=0.0)
    plain = replace(first, model="fma", server="fma", state="none")
    return Reaggregation((first, plain, *rows), {**attrs, "samples": 360})


def test_the_figure_has_the_differences_to_plain_fma_with_their_intervals() -> None:
    rows = (
        ModelRow("fedsa (quantile=0.9)", "fedsa", "none", 0.2, 0.4, 1, False, None, None, None, -0.05, 0.01),
        ModelRow("ties", "ties", "none", math.nan, math.nan, 1, False),
        ModelRow("fedadam", "fedadam", "fresh", 0.6, 0.4, 1, False, None, None, None, 0.35, 0.1),
    )
    figure = compared(*rows).figure()
    (axes,) = figure.axes
    values = [tuple(line.get_xydata()[0]) for line in axes.lines if line.get_label() == "_value"]
    assert values == [(0.0, 0), (-0.05, 1), (0.35, 2)]
    ends = [line.get_xdata() for line in axes.lines if line.get_label() == "_interval"]
    np.testing.assert_allclose(ends, [(0, 0), (-0.0696, -0.0304), (0.154, 0.546)], atol=1e-12)
    assert [one.get_text() for one in axes.get_yticklabels()] == [
        "recorded",
        "FedPake (FedSA) (quantile=0.9)",
        "FedAdam",
    ]
    assert axes.get_xlabel() == "loss less plain FMA's (nats)"
    words = " ".join(one.get_text() for one in figure.texts)
    assert "left out, not finite: TIES" in words


def shown(figure: Any) -> str:
    from matplotlib.text import Text

    return "\n".join(text.get_text() for text in figure.findobj(Text))


def test_plain_fma_is_known_by_its_place_whatever_it_is_called() -> None:
    soup = ModelRow("greedy", "greedy", "none", 0.2, 0.4, 1, False, None, None, None, -0.05, 0.01)
    plain = compared(soup)
    attrs = {"servers": ["greedy"], "settings": [{"split": "test"}], "members": {"greedy": [1, 2]}}
    plain = replace(plain, attrs=plain.attrs | attrs | {"run": {"path": "runs/a"}})
    named = plain.renamed({"fma": "FedAvg", "greedy": "Soup"})
    assert [row.model for row in named.compared()] == ["recorded", "Soup"]
    assert named.summary().split() == plain.summary().replace("fma", "FedAvg").replace("greedy", "Soup").split()
    assert "Soup is the mean of clients 1, 2" in named.summary()
    (axes,) = (figure := named.figure()).axes
    assert [one.get_text() for one in axes.get_yticklabels()] == ["recorded", "Soup"]
    assert axes.get_xlabel() == "loss less FedAvg's (nats)"
    assert "0: FedAvg;" in shown(figure)


def test_layers_of_their_own_and_weights_of_their_own_make_no_plain_fma() -> None:
    """These rows are of the server fma, too, and are compared with it."""
    for name in ("fma, head=personal", "fma (weighting=uniform)"):
        other = ModelRow(name, "fma", "none", 0.2, 0.4, 1, False, None, None, None, -0.05, 0.01)
        assert [row.model for row in compared(other).compared()] == ["recorded", name]
        assert f"{name} less fma on the same samples" in compared(other).summary()


def test_each_row_says_what_its_interval_is_over() -> None:
    """The recorded model is one, whose interval is over samples, also beside means over clients."""
    one = ModelRow("ties", "ties", "none", 0.2, 0.4, 1, False, None, None, None, -0.05, 0.01)
    mean = replace(one, model="fma, head=personal", server="fma", clients=4, distance=None, identical=None)
    alone = replace(mean, clients=1, loss_difference_stderr=None)
    # 1.96, and t(0.975) on three degrees of freedom
    for rows, halves, caption in (
        ((one,), (0.0196,), "lines: 95 % intervals over samples"),
        (
            (mean,),
            (0.0318245,),
            "lines: 95 % intervals, of recorded over samples, of the other over clients (Student's t)",
        ),
        (
            (one, mean),
            (0.0196, 0.0318245),
            "lines: 95 % intervals, of FMA (FedAvg), head=personal over clients (Student's t), of the others over "
            "samples",
        ),
        ((alone,), (0.0,), "lines: 95 % intervals over samples"),
    ):
        figure = compared(*rows).figure()
        words = " ".join(" ".join(text.get_text() for text in figure.texts).split())
        assert f"plain FMA; {caption}; digits" in words
        for row, half in zip(rows, halves, strict=True):
            place = [shown.model for shown in compared(*rows).compared()].index(row.model)
            (line,) = (
                line
                for line in figure.axes[0].lines
                if line.get_label() == "_interval" and line.get_ydata()[0] == place  # type: ignore[index]
            )
            assert line.get_xdata() == pytest.approx([-0.05 - half, -0.05 + half], rel=1e-5)
    said = compared(one, replace(mean, loss_stderr=0.01))
    said = replace(said, attrs=said.attrs | {"layers": [["head", "personal"]]}).summary()
    assert "ties less fma on the same samples: loss -0.05 ± 0.02 (± 1.96 standard errors over samples)" in said
    assert (
        "personal less fma on the same samples: loss -0.05 ± 0.032 (± half a 95 % interval over clients, by Student's "
        "t on 3 degrees of freedom)\n" in f"{said}\n"
    )


def test_a_loss_without_a_unit_is_not_in_nats() -> None:
    rows = compared(ModelRow("ties", "ties", "none", 0.2, 0.4, 1, False, None, None, None, -0.05, 0.01))
    (axes,) = replace(rows, attrs=rows.attrs | {"task": "squared", "loss_units": "1"}).figure().axes
    assert axes.get_xlabel() == "loss less plain FMA's"


@pytest.mark.parametrize(("away", "wide"), [(2e-8, True), (0.0, True), (1e-4, False)])
def test_an_axis_shows_no_rounding(away: float, wide: bool) -> None:
    """A recorded loop's mean differs from ours in its last bits, with an interval that may leave out 0."""
    row = ModelRow("fedadam", "fedadam", "none", 0.25, 0.5, 1e-7, False, None, None, None, away, away / 10)
    (axes,) = compared(row).figure().axes
    low, high = axes.get_xlim()
    assert max(-low, high) >= 1e-5 * 0.25
    assert bool(max(-low, high) > 30 * abs(away)) is wide


def test_where_nothing_differs_from_plain_fma_there_is_no_figure(tmp_path: Path) -> None:
    """Of a table of an earlier version, say: the command says its numbers all the same."""
    found = compared(ModelRow("ties", "ties", "none", 0.5, 0.5, 1, False))
    none = replace(found, measured=tuple(replace(row, loss_difference=None) for row in found.measured))
    assert none.figures() == {}
    with pytest.raises(FedscopeError, match=r"no model of the result has a finite difference to plain FMA to draw; "):
        none.figure()


# --- the result at rest ---


def test_what_is_saved_is_loaded(tmp_path: Path, runs: Any) -> None:
    model = runs("fma").round(1).read("global")
    rows = (
        ModelRow("recorded", "", "", 0.25, 0.5, 0.0, True),
        ModelRow("fedsa (classes=5)", "fedsa", "none", math.nan, 0.125, None, None),
        ModelRow("fedadam", "fedadam", "fresh", 1 / 3, 1.0, math.inf, False),
    )
    attrs = {"run": {"path": "runs/fma"}, "round": 4, "servers": ["fedsa"], "split": "test", "samples": 360}
    files = Reaggregation(rows, attrs, {"fedsa": model}).save(tmp_path / "new" / "r.v2")
    assert [file.name for file in files] == ["r.v2.safetensors", "r.v2.reaggregate.csv", "r.v2.reaggregate.json"]
    back = Reaggregation.load(tmp_path / "new" / "r.v2")
    assert repr(back.measured) == repr(rows)  # NaN is not equal to itself
    assert back.attrs == attrs
    lines = files[1].read_text().splitlines()
    assert lines[0] == (
        "run,round,model,server,state,split,samples,loss,error,distance,identical,clients,loss_stderr,error_stderr,"
        "loss_difference,loss_difference_stderr,error_difference,error_difference_stderr,along_fma,across_fma"
    )
    assert lines[1] == "fma,4,recorded,,,test,360,0.25,0.5,0.0,True,,,,,,,,,"
    # a file of version 1 has none of the last seven columns, an early one of version 2 none of the last four
    files[2].write_text(json.dumps({**json.loads(files[2].read_text()), "table_xxh3": {}}))
    files[1].write_text("".join(f"{line.rsplit(',', 4)[0]}\n" for line in lines))
    assert repr(Reaggregation.load(tmp_path / "new" / "r.v2").measured) == repr(rows)
    files[1].write_text("".join(f"{line.rsplit(',', 7)[0]}\n" for line in lines))
    files[2].write_text(files[2].read_text().replace('"version": 2', '"version": 1'))
    assert repr(Reaggregation.load(tmp_path / "new" / "r.v2").measured) == repr(rows)
    files[0].unlink()
    with pytest.raises(FedscopeError, match=r"r\.v2\.safetensors does not exist, but .*json does; compute it again"):
        Reaggregation.load(tmp_path / "new" / "r.v2")


class Tied(nn.Module):
    """Two layers of one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.out = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)
        self.two.weight = self.one.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.out(torch.tanh(self.two(torch.tanh(self.one(x)))))
        return made


def test_tied_weights_stay_one_tensor(tmp_path: Path) -> None:
    nets = []
    for seed in range(4):
        torch.manual_seed(seed)
        nets.append(Tied())
    x, y = torch.randn(40, 4), torch.arange(40) % 3
    with fedscope.Recorder(tmp_path / "run", data=((x, y), (x, y))) as recorder:
        recorder.round(start=nets[0], clients=nets[1:])
    how: dict[str, Any] = {"model": Tied, "split": "test"}
    servers = ["dare", "regmean", "fisher", "ties", "slerp"]
    found = fedscope.reaggregate(f"{tmp_path / 'run'}@1", servers, **how)
    for server, made in found.models.items():
        arrays = made.arrays()
        assert np.array_equal(arrays["one.weight"], arrays["two.weight"]), server
    # what is measured is what the file holds
    for path in found.save(tmp_path / "out"):
        if path.name.endswith(".dare.safetensors"):
            line = fedscope.line([path, nets[0]], model=Tied, data=(x, y), points=3, range=(0, 1))
            (row,) = (one for one in found.measured if one.server == "dare")
            assert np.ravel(line.loss)[-1] == pytest.approx(row.loss, rel=1e-6)
    with pytest.raises(FedscopeError, match=r"layers='one' names one.weight, which is the same tensor as two.weight"):
        fedscope.reaggregate(f"{tmp_path / 'run'}@1", "fma", layers=["one=personal"], **how)
    both = fedscope.reaggregate(f"{tmp_path / 'run'}@1", "fma", layers=["one,two=personal"], **how)
    assert len(both.by_client) == 3
