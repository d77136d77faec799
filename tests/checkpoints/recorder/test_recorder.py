"""Runs that another program trains, recorded as they happen."""

from __future__ import annotations

import copy
import os
import signal
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedscope import Recorder
from fedscope.checkpoints import FedscopeError, FedscopeWarning, Run, load_model
from fedscope.checkpoints.recorder.identify_server import Rule, ServerStep, describe_server
from fedscope.checkpoints.rounds.verify import check_round

Arrays = dict[str, np.ndarray]


def model(seed: int, dtype: str = "float32") -> Arrays:
    """A small model with a BatchNorm's statistics."""
    rng = np.random.default_rng(seed)
    return {
        "a.weight": rng.normal(size=(4, 3)).astype(dtype),
        "a.bias": rng.normal(size=4).astype(dtype),
        "norm.running_mean": rng.normal(size=4).astype(dtype),
        "norm.num_batches_tracked": np.array(seed, np.int64),
    }


def near(start: Arrays, seed: int) -> Arrays:
    """A model beside another."""
    rng = np.random.default_rng(seed)
    return {
        name: np.asarray(value + (rng.normal(size=value.shape) / 10 if value.dtype.kind == "f" else 1), value.dtype)
        for name, value in start.items()
    }


def averaged(clients: Mapping[int, Arrays], p: Mapping[int, float]) -> Arrays:
    """Their mean; whole numbers are the first one's."""
    total = sum(p.values())
    return {
        name: sum(clients[k][name].astype(float) * p[k] / total for k in clients).astype(value.dtype)
        if value.dtype.kind == "f"
        else value
        for name, value in next(iter(clients.values())).items()
    }


def same(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    """Bit for bit."""
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert found[name].tobytes() == np.asarray(value).tobytes(), name


def test_a_loop_that_reuses_its_tensors_is_recorded_rightly(tmp_path: Path) -> None:
    samples = {7: 10, 2: 30, 40: 5}
    start, sent = model(0), []
    with Recorder(tmp_path / "run", source="a test") as recorder:
        for t in range(3):
            clients = {k: near(start, 100 * t + k) for k in samples}
            end = {name: value.copy() for name, value in averaged(clients, samples).items()}
            sent.append(({k: {n: v.copy() for n, v in c.items()} for k, c in clients.items()}, dict(start), end))
            recorder.round(start=start, clients=clients, samples=samples, global_=end)
            for client in clients.values():
                for value in client.values():
                    value[...] = 0  # as soon as the call is back
            start = {name: value.copy() for name, value in end.items()}
    run = Run.open(tmp_path / "run")
    assert run.rounds == (1, 2, 3)
    assert run.info["source"] == "a test"
    for t, (clients, begin, end) in enumerate(sent, start=1):
        round_ = run.round(t)
        assert round_.client_ids.tolist() == [2, 7, 40]
        assert round_.client_samples.tolist() == [30, 10, 5]
        np.testing.assert_allclose(round_.weights, np.array([30, 10, 5]) / 45, rtol=1e-15)
        assert not round_.has("client_steps")
        for k, arrays in clients.items():
            same(round_.client(k).arrays(), arrays)
        same(round_.read("start").arrays(), begin)
        same(round_.read("global").arrays(), end)
        assert check_round(round_).faults == ()
        assert ServerStep.of_metrics(round_.metrics) is not None
    kinds = {entry.name: entry.kind for entry in run.layout.entries}
    assert kinds == {
        "a.weight": "parameter",
        "a.bias": "parameter",
        "norm.running_mean": "buffer",
        "norm.num_batches_tracked": "buffer",
    }
    assert describe_server({t: run.round(t).metrics for t in run.rounds}) == (
        "global is the weighted mean of the clients (in all 3 rounds)"
    )


def test_modules_state_dicts_and_arrays_in_order_are_the_same_model(tmp_path: Path) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.norm = nn.Linear(3, 2), nn.BatchNorm1d(2)
            # floating, not trained and not called as statistics are: only the module tells
            self.register_buffer("scale", torch.ones(2))

    net = Net()
    state = net.state_dict()
    given_ways: dict[str, Any] = {
        "module": net,
        "state dict": state,
        "arrays": {name: value.numpy() for name, value in state.items()},
        "in order": [value.numpy() for value in state.values()],
    }
    for name, value in given_ways.items():
        with Recorder(tmp_path / name, model=net) as recorder:
            recorder.round(clients=[value, value])
        run = Run.open(tmp_path / name)
        assert run.layout == type(run.layout).of(net)
        same(run.round(1).client(1).arrays(), {n: v.numpy() for n, v in state.items()})
    with Recorder(tmp_path / "by itself") as recorder:
        recorder.round(clients=[net])
    assert Run.open(tmp_path / "by itself").layout == type(run.layout).of(net)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_precisions_are_kept_as_they_are(dtype: str, tmp_path: Path) -> None:
    import h5py

    torch.manual_seed(0)
    nets = [nn.Linear(5, 3).to(getattr(torch, dtype)) for _ in range(3)]
    mean = {n: sum(net.state_dict()[n].double() for net in nets[1:]) / 2 for n in nets[0].state_dict()}
    with Recorder(tmp_path / "run") as recorder:
        recorder.round(
            start=nets[0], clients=nets[1:], global_={n: v.to(nets[0].weight.dtype) for n, v in mean.items()}
        )
    run = Run.open(tmp_path / "run")
    wanted = "float64" if dtype == "float64" else "float32"
    assert {entry.dtype for entry in run.layout.entries} == {wanted}
    assert {entry["dtype"] for entry in run.info["layout"]} == {dtype}
    assert run.round(1).is_packed == (dtype != "float64")
    for k, net in enumerate(nets[1:]):
        for name, value in net.state_dict().items():
            # every half is a float32
            np.testing.assert_array_equal(run.round(1).client(k).arrays()[name], value.to(torch.float64).numpy())
    with h5py.File(tmp_path / "run/rounds/00001.h5") as file:
        stored = file["clients/weight"]
        assert stored.dtype == {"bfloat16": np.uint16}.get(dtype, np.dtype("float16" if dtype == "float16" else "f8"))
        assert stored.attrs.get("dtype") == ("bfloat16" if dtype == "bfloat16" else None)
        if dtype == "bfloat16":
            bits = nets[1].weight.detach().view(torch.int16).numpy().view(np.uint16)
            np.testing.assert_array_equal(stored[0], bits)
    from fedscope.checkpoints import read_columns

    blocks = [columns.values for columns in read_columns(run.round(1))]
    np.testing.assert_array_equal(np.concatenate(blocks, axis=1), run.round(1).clients().parameters)
    assert check_round(run.round(1)).faults == ()
    assert load_model(f"{tmp_path}/run@1/client-0").weights.parameters.dtype == wanted


Server = Callable[[Arrays, Mapping[int, Arrays], Mapping[int, float], dict[str, Any]], Arrays]


def mean_step(w: np.ndarray, rows: np.ndarray, p: np.ndarray) -> np.ndarray:
    step: np.ndarray = p @ (rows - w)
    return step


def momentum(w: np.ndarray, rows: np.ndarray, p: np.ndarray, kept: dict[str, Any]) -> np.ndarray:
    kept["v"] = 0.9 * kept.get("v", 0) + mean_step(w, rows, p)
    return w + 0.5 * kept["v"]


def nesterov(w: np.ndarray, rows: np.ndarray, p: np.ndarray, kept: dict[str, Any]) -> np.ndarray:
    step = mean_step(w, rows, p)
    kept["v"] = 0.9 * kept.get("v", 0) + step
    return w + 0.7 * (step + 0.9 * kept["v"])


SERVERS: dict[str, tuple[Any, ServerStep]] = {
    "mean": (lambda w, rows, p, kept: p @ rows, ServerStep(Rule.MEAN, rate=1)),
    "plain": (lambda w, rows, p, kept: rows.mean(0), ServerStep(Rule.MEAN, rate=1, plain=True)),
    "sign": (lambda w, rows, p, kept: w - mean_step(w, rows, p), ServerStep(Rule.RATE, rate=-1)),
    "rate": (lambda w, rows, p, kept: w + 0.5 * mean_step(w, rows, p), ServerStep(Rule.RATE, rate=0.5)),
    "plain rate": (
        lambda w, rows, p, kept: w + 0.5 * (rows.mean(0) - w),
        ServerStep(Rule.RATE, rate=0.5, plain=True),
    ),
    "momentum": (momentum, ServerStep(Rule.MOMENTUM, rate=0.5, momentum=0.9)),
    "nesterov": (nesterov, ServerStep(Rule.NESTEROV, rate=0.7, momentum=0.9)),
    "median": (lambda w, rows, p, kept: np.median(rows, axis=0), ServerStep(Rule.MEDIAN)),
    "one": (lambda w, rows, p, kept: rows[1], ServerStep(Rule.ONE_CLIENT)),
    "unchanged": (lambda w, rows, p, kept: w, ServerStep(Rule.UNCHANGED)),
    "adaptive": (lambda w, rows, p, kept: w + 0.01 * np.sign(mean_step(w, rows, p)), ServerStep(Rule.UNKNOWN)),
}


@pytest.mark.parametrize("name", SERVERS)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**16), clients=st.integers(3, 9), scale=st.sampled_from([1e-2, 1e-1, 1.0]))
def test_the_server_is_told_from_its_models(name: str, seed: int, clients: int, scale: float) -> None:
    from fedscope.checkpoints.recorder.coerce_models import coerce_model
    from fedscope.checkpoints.recorder.identify_server import ServerIdentifier

    server, expected = SERVERS[name]
    rng = np.random.default_rng(seed)
    counts = rng.permutation(np.arange(1, clients + 1)) * 10
    p = counts / counts.sum()
    w = rng.normal(size=500).astype(np.float32)
    drift, kept, check = rng.normal(size=500), {}, None
    for _ in range(4):
        rows = (w + scale * (drift + rng.normal(size=(clients, 500)))).astype(np.float32)
        end = np.asarray(server(w.astype(float), rows.astype(float), p, kept)).astype(np.float32)
        start = coerce_model({"w": w})
        check = check or ServerIdentifier(start.layout())
        step, _ = check.look(start, [coerce_model({"w": row}) for row in rows], p, coerce_model({"w": end}))
        w = end
    assert step.rule is expected.rule
    assert step.plain == expected.plain
    if expected.rule is Rule.UNKNOWN:
        assert step.left > 0.05
        return
    # rounding of the weights, 1e-7 of them, over steps of a hundredth of them and more
    np.testing.assert_allclose([step.rate, step.momentum], [expected.rate, expected.momentum], rtol=2e-3)
    assert ServerStep.of_metrics(step.metrics()) is not None
    assert str(ServerStep.of_metrics(step.metrics())) == str(step)


@pytest.mark.parametrize("name", SERVERS)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**16), clients=st.integers(3, 9), scale=st.sampled_from([1e-2, 1e-1, 1.0]))
def test_without_start_what_depends_on_clients_alone_is_told(name: str, seed: int, clients: int, scale: float) -> None:
    from fedscope.checkpoints.recorder.coerce_models import coerce_model
    from fedscope.checkpoints.recorder.identify_server import ServerIdentifier

    server, expected = SERVERS[name]
    rng = np.random.default_rng(seed)
    p = rng.permutation(np.arange(1, clients + 1)) * 10.0
    p /= p.sum()
    w = rng.normal(size=500).astype(np.float32)
    rows = (w + scale * (rng.normal(size=500) + rng.normal(size=(clients, 500)))).astype(np.float32)
    end = {"w": np.asarray(server(w.astype(float), rows.astype(float), p, {})).astype(np.float32)}
    check = ServerIdentifier(coerce_model(end).layout())
    step, _ = check.look(None, [coerce_model({"w": row}) for row in rows], p, coerce_model(end))
    told = (Rule.MEAN, Rule.MEDIAN, Rule.ONE_CLIENT)
    assert step.rule is (expected.rule if expected.rule in told else Rule.UNKNOWN_WITHOUT_START)
    assert step.plain == (expected.plain and expected.rule in told)
    assert str(ServerStep.of_metrics(step.metrics())) == str(step)


def record_rounds(path: Path, given: Callable[[np.ndarray, np.random.Generator], tuple[Any, Any, np.ndarray]]) -> str:
    """Record three rounds of three clients; say what was told of them at once, and of the run afterwards.

    Args:
        given: of the model that is sent, start, clients and the next one.
    """
    rng = np.random.default_rng(0)
    w = rng.normal(size=200).astype(np.float32)
    with warnings.catch_warnings(record=True) as caught, Recorder(path) as recorder:
        warnings.simplefilter("always")
        for _ in range(3):
            start, clients, end = given(w, rng)
            rows: Any = [{"w": row.astype(np.float32)} for row in clients]
            recorder.round(start={"w": start}, clients=rows, global_={"w": end}, samples=[10, 20, 70])
            w = end
    run = Run.open(path)
    told = [str(one.message).partition("@1: ")[2] for one in caught]
    return "; ".join([*told, describe_server({t: run.round(t).metrics for t in run.rounds})])


P = np.array([0.1, 0.2, 0.7])


@pytest.mark.parametrize("rate", [1.0, -1.0, 0.5])
@pytest.mark.parametrize("plain", [False, True])
def test_updates_that_are_given_as_models_are_told(tmp_path: Path, rate: float, plain: bool) -> None:
    p = np.full(3, 1 / 3) if plain else P

    def given(w: np.ndarray, rng: np.random.Generator) -> tuple[Any, Any, np.ndarray]:
        updates = (0.1 * rng.normal(size=(3, 200))).astype(np.float32)
        return w, updates, (w + rate * (p @ updates)).astype(np.float32)

    times = f"{'-' if rate < 0 else '+'} {abs(rate):g} times the {'plain' if plain else 'weighted'} mean of the clients"
    said = f"global = start {times} as they were given: these are updates, not models"
    remedy = "; give each client's model, start and its update together; "
    assert record_rounds(tmp_path / "run", given) == f"{said}{remedy}{said} (in all 3 rounds)"


def test_a_start_of_after_the_aggregation_is_told(tmp_path: Path) -> None:
    def late(w: np.ndarray, rng: np.random.Generator) -> tuple[Any, Any, np.ndarray]:
        models = (w + 0.1 * rng.normal(size=(3, 200))).astype(np.float32)
        end = (P @ models.astype(float)).astype(np.float32)
        return end.copy(), models, end

    def swapped(w: np.ndarray, rng: np.random.Generator) -> tuple[Any, Any, np.ndarray]:
        end, models, _ = late(w, rng)
        return end, models, w

    said = "start is the clients' mean: it was copied after the aggregation, or start and global are swapped"
    remedy = "; give as start a copy of the model that the clients were sent; "
    for case in (late, swapped):
        assert record_rounds(tmp_path / case.__name__, case) == f"{said}{remedy}{said} (in all 3 rounds)"


def test_clients_that_stay_and_a_start_of_zeros_are_no_mistakes(tmp_path: Path) -> None:
    """Updates and models are the same where start is 0; a round in which nothing is learnt has no way to cancel."""

    def zeros(w: np.ndarray, rng: np.random.Generator) -> tuple[Any, Any, np.ndarray]:
        models = rng.normal(size=(3, 200)).astype(np.float32)
        return 0 * w, models, (P @ models.astype(float)).astype(np.float32)

    def still(w: np.ndarray, rng: np.random.Generator) -> tuple[Any, Any, np.ndarray]:
        return w, np.array([w, w, w]), w.copy()

    for case in (zeros, still):
        assert record_rounds(tmp_path / case.__name__, case) == (
            "global is the weighted mean of the clients (in all 3 rounds)"
        )


def test_without_start_alike_clients_and_single_ones_say_no_more_than_they_can(tmp_path: Path) -> None:
    ones = {"w": np.ones(50, np.float32)}
    near = {"w": ones["w"] + np.float32(2e-7)}
    other = {"w": -ones["w"]}
    found = []
    for name, clients, end in (("alike", [ones, near], ones), ("one", [ones], ones), ("apart", [ones], other)):
        with Recorder(tmp_path / name) as recorder:
            found.append(recorder.round(clients=clients, global_=end))
    assert [step and step.rule for step in found] == [Rule.COARSE, Rule.MEAN, Rule.UNKNOWN_WITHOUT_START]


@pytest.mark.parametrize(("dtype", "size"), [(torch.bfloat16, 0.11), (torch.float16, 0.013)])
@pytest.mark.parametrize(
    ("rate", "plain", "said"),
    [
        (1.0, False, "global is the weighted mean of the clients"),
        (1.0, True, "global is the plain mean of the clients, though they have different weights"),
        (0.85, False, "global = start + 0.85 Σ p Δ: a server rate of 0.85"),
        (1.15, False, "global = start + 1.15 Σ p Δ: a server rate of 1.15"),
    ],
)
def test_a_servers_rule_is_not_hidden_by_the_bound_on_rounding(
    tmp_path: Path, dtype: torch.dtype, size: float, rate: float, plain: bool, said: str
) -> None:
    """All of them were the weighted mean: steps of a tenth, or a hundredth, of the weights are near to the bound."""
    draw, n = torch.Generator().manual_seed(0), torch.arange(1, 11).double()
    p = torch.full((10,), 0.1).double() if plain else n / n.sum()
    start = torch.randn(5000, generator=draw).to(dtype)
    drift = torch.randn(5000, generator=draw)
    moves = [size * (drift + 0.7 * torch.randn(5000, generator=draw)) for _ in n]
    clients = [(start.float() + move).to(dtype) for move in moves]
    end = start.double() + rate * sum(w * (one.double() - start.double()) for w, one in zip(p, clients, strict=True))
    with Recorder(tmp_path / "run") as recorder:
        found = recorder.round(
            start={"w": start},
            clients=[{"w": one} for one in clients],
            samples=n.int().tolist(),
            global_={"w": end.to(dtype)},
        )
    assert str(found) == said


@pytest.mark.parametrize(
    ("dtype", "counts", "spread", "size"),
    [
        ("f2", [8572] * 3 + [8571] * 4, 0.05, 5000),
        ("f2", [288, 288, 288, 287, 287], 0.05, 200),
        ("f4", [8572] * 3 + [8571] * 4, 1e-4, 2000),
    ],
)
def test_weights_that_are_nearly_equal_do_not_make_a_plain_mean(
    tmp_path: Path, dtype: str, counts: list[int], spread: float, size: int
) -> None:
    """Where the two means differ by less than rounding, rounding chose between them."""
    draw, p = np.random.default_rng(0), np.array(counts) / sum(counts)
    w, found = (0.1 * draw.normal(size=size)).astype(dtype), set()
    with Recorder(tmp_path / "run") as recorder:
        for _ in range(10):
            clients = [(w.astype("f4") + 0.1 * spread * draw.normal(size=size)).astype(dtype) for _ in counts]
            end = sum(q * one.astype("f8") for q, one in zip(p, clients, strict=True)).astype(dtype)
            step = recorder.round(
                start={"w": w}, clients=[{"w": one} for one in clients], samples=counts, global_={"w": end}
            )
            found.add((step and step.rule, step and step.plain))
            w = end
    assert found <= {(Rule.MEAN, False), (Rule.COARSE, False)}


def test_a_server_that_averages_in_float32_for_models_in_float64_is_known(tmp_path: Path) -> None:
    """It was "no known server": 6.5e-05 % of its step was left."""
    draw = np.random.default_rng(0)
    clients = [{"w": draw.normal(size=200)} for _ in range(3)]
    end = np.mean([one["w"].astype(np.float32) for one in clients], axis=0).astype(float)
    with Recorder(tmp_path / "run") as recorder:
        step = recorder.round(start={"w": draw.normal(size=200)}, clients=clients, global_={"w": end})
    assert str(step) == "global is the weighted mean of the clients"


def test_many_clients_in_half_precision_have_no_late_start(tmp_path: Path) -> None:
    """Their mean move is below the bound on rounding, and still the share that chance leaves of independent ones."""
    draw = torch.Generator().manual_seed(0)
    start = torch.randn(5000, generator=draw).half()
    clients = [(start.float() + 0.025 * torch.randn(5000, generator=draw)).half() for _ in range(50)]
    mean = (sum(one.double() for one in clients) / 50).half()
    with Recorder(tmp_path / "run") as recorder:
        right = recorder.round(start={"w": start}, clients=[{"w": one} for one in clients], global_={"w": mean})
    assert right is not None
    assert right.rule in (Rule.COARSE, Rule.MEAN)
    with Recorder(tmp_path / "late") as recorder, pytest.warns(FedscopeWarning, match="was copied after the aggreg"):
        late = recorder.round(start={"w": mean.clone()}, clients=[{"w": one} for one in clients], global_={"w": mean})
    assert late is not None
    assert late.rule is Rule.LATE_START


def test_a_wrong_sign_and_statistics_that_are_not_averaged_are_said_at_once(tmp_path: Path) -> None:
    start = model(0)
    clients = {k: near(start, k + 1) for k in range(3)}
    end = averaged(clients, dict.fromkeys(clients, 1.0))
    turned = {n: (2 * start[n] - end[n] if end[n].dtype.kind == "f" else end[n]) for n in end}
    turned["norm.running_mean"] = start["norm.running_mean"]
    with Recorder(tmp_path / "run") as recorder:
        with pytest.warns(FedscopeWarning) as told:
            step = recorder.round(start=start, clients=clients, global_=turned)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # once is enough
            recorder.round(start=start, clients=clients, global_=turned)
    assert [str(warning.message).replace(str(tmp_path), "") for warning in told] == [
        "/run@1: global = start - 1 Σ p Δ: the sign of the server is wrong; 1 buffer is not the clients' mean "
        "(statistics of BatchNorm)",
        "/run@1: statistics were not averaged: norm.running_mean in global is kept from start",
    ]
    assert step is not None
    assert step.statistics == 1


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_statistics_that_are_averaged_and_rounded_are_averaged(tmp_path: Path, dtype: str) -> None:
    """The exact weighted mean in a type of few digits; a client without a weight may have diverged."""
    torch = pytest.importorskip("torch")
    kind, draw = getattr(torch, dtype), torch.Generator().manual_seed(0)

    def one(**changes: Any) -> dict[str, Any]:
        weight = torch.randn(64, generator=draw)
        return {"w": weight.to(kind), "norm.running_var": (1 + torch.rand(8, generator=draw)).to(kind)} | changes

    net = torch.nn.Module()
    net.w = torch.nn.Parameter(torch.zeros(64))
    net.norm = torch.nn.Module()
    net.norm.register_buffer("running_var", torch.ones(8))
    start, clients, p = one(), {k: one() for k in range(4)}, np.array([0.1, 0.2, 0.3, 0.4])
    clients[4] = {name: torch.full_like(value, torch.nan) for name, value in start.items()}
    mean = {name: sum(float(p[k]) * clients[k][name].double() for k in range(4)).to(kind) for name in start}
    weights = {**dict(enumerate(p.tolist())), 4: 0.0}
    for name, end, lacking in (
        ("averaged", mean, 0),
        ("kept", mean | {"norm.running_var": start["norm.running_var"]}, 1),
    ):
        with Recorder(tmp_path / name, model=net.to(kind)) as recorder, warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            step = recorder.round(start=start, clients=clients, weights=weights, global_=end)
        assert step is not None
        assert (step.rule, step.statistics) == (Rule.MEAN, lacking)
        assert any("statistics were not averaged" in str(one.message) for one in told) == bool(lacking)


def test_rounds_of_one_server_are_one_sentence_whatever_is_left() -> None:
    def rows(*steps: ServerStep) -> dict[int, Any]:
        return {t: step.metrics() for t, step in enumerate(steps, start=1)}

    unknown = [ServerStep(Rule.UNKNOWN, rate=0.1 * t, left=0.1 + t / 10) for t in range(3)]
    assert describe_server(rows(*unknown)).endswith("(in all 3 rounds)")
    turned = [ServerStep(Rule.RATE, rate=0.5), ServerStep(Rule.RATE, rate=0.501), ServerStep(Rule.RATE, rate=-0.5)]
    assert describe_server(rows(*turned)).endswith("the sign of the server is wrong (in round 3, unlike before)")
    assert describe_server(rows(*turned[:2])).endswith("(in all 2 rounds)")
    momentum = [ServerStep(Rule.MOMENTUM, 1.0, beta) for beta in (0.5, 0.9, 0.9)]
    assert describe_server(rows(*momentum)).endswith("(from round 2 on)")


def test_a_users_numbers_do_not_number_the_round(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run") as recorder:
        recorder.round(clients=[model(0)], metrics={"round": 9, "participants": 7, "test_loss": 0.5})
    metrics = Run.open(tmp_path / "run").round(1).metrics
    assert (metrics["round"], metrics["participants"], metrics["test_loss"]) == (1, 1, 0.5)


def test_numbers_of_a_round_may_be_tensors_and_are_not_texts(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run") as recorder:
        recorder.round(clients=[model(0)], metrics={"train_loss": torch.tensor(0.5), "test_loss": np.array(0.25)})
        with pytest.raises(FedscopeError, match=r"run@2: the metric lr is 'low', not a number; give float"):
            recorder.round(clients=[model(0)], metrics={"lr": "low"})
        with pytest.raises(FedscopeError, match=r"run@2: samples are -5.0; give whole numbers from 0 on"):
            recorder.round(clients=[model(0)], samples=[-5], weights=[1.0])
    run = Run.open(tmp_path / "run")
    assert run.rounds == (1,)
    assert (run.round(1).metrics["train_loss"], run.round(1).metrics["test_loss"]) == (0.5, 0.25)


@pytest.mark.parametrize(
    "wrong",
    [
        {"clients": [model(0)], "start": {"w": np.zeros(3, np.float32)}},
        {"clients": [model(0)], "samples": {}},
        {"clients": [model(0)], "samples": [0.5]},
        {"clients": [model(0)], "metrics": {"lr": "low"}},
        {"clients": [{**model(0), "a.bias/x": np.zeros(2, np.float32)}]},
    ],
)
def test_a_first_round_that_is_refused_leaves_the_run_that_was_there(wrong: dict[str, Any], tmp_path: Path) -> None:
    with Recorder(tmp_path / "run") as recorder:
        recorder.round(clients=[model(3)])
    with Recorder(tmp_path / "run", force=True) as recorder:
        with pytest.raises(FedscopeError):
            recorder.round(**wrong)
        same(Run.open(tmp_path / "run").round(1).client(0).arrays(), model(3))
        recorder.round(clients=[model(4)])  # and no layout is taken from it
    same(Run.open(tmp_path / "run").round(1).client(0).arrays(), model(4))


def test_momentum_is_told_behind_a_resume(tmp_path: Path) -> None:
    rng, kept = np.random.default_rng(0), {"v": np.zeros(200)}
    w = rng.normal(size=200).astype(np.float32)
    found = []
    for _ in range(6):
        with Recorder(tmp_path / "run", resume=True) as recorder:
            rows = (w + rng.normal(size=(3, 200)) + 1).astype(np.float32)
            kept["v"] = 0.9 * kept["v"] + (rows.astype(float) - w).mean(0)
            end = (w + kept["v"]).astype(np.float32)
            arrays = [{"w": row} for row in rows]
            found.append(recorder.round(start={"w": w}, clients=arrays, global_={"w": end}))
            w = end
    assert [step.rule for step in found[1:] if step] == [Rule.MOMENTUM] * 5


def test_a_run_is_gone_on_with_as_what_it_was(tmp_path: Path) -> None:
    y = np.array([0, 1, 0])
    own: dict[str, Any] = {"model": "nets:a", "data": "digits", "partition": {0: [0, 2], 1: [1]}, "labels": y}
    for resume in (False, True):
        with Recorder(tmp_path / "run", **own, resume=resume) as recorder:
            recorder.round(clients=[model(0), model(1)])
    for other, said in (
        ({"model": "nets:b"}, "was recorded with model nets:a, not nets:b; leave model= out to go on with it"),
        ({"data": "npz:x.npz"}, "was recorded with data digits, not npz:x.npz; leave data= out"),
        ({"partition": {0: [0]}, "labels": y}, "was recorded with another partition; leave partition= out"),
    ):
        with pytest.raises(FedscopeError, match=said):
            Recorder(tmp_path / "run", resume=True, **other)
    with Recorder(tmp_path / "run", resume=True) as recorder:  # and the folder is free
        recorder.round(clients={0: model(0)})
    assert Run.open(tmp_path / "run").rounds == (1, 2, 3)
    np.savez(tmp_path / "x.npz", x_test=y)
    for resume in (False, True):
        with Recorder(tmp_path / "filed", data=f"npz:{tmp_path}/x.npz", resume=resume) as recorder:
            recorder.round(clients=[model(0)])
    np.savez(tmp_path / "x.npz", x_test=y + 1)
    with pytest.raises(FedscopeError, match=r"x\.npz has changed since the run was recorded"):
        Recorder(tmp_path / "filed", data=f"npz:{tmp_path}/x.npz", resume=True)
    with pytest.raises(FedscopeError, match=r"data was given as tuple, and has x_test of shape \[3\]; give a row"):
        Recorder(tmp_path / "other", data=(y, y))
    with pytest.raises(FedscopeError, match="partition= names no client"):
        Recorder(tmp_path / "other", partition={}, labels=y)


def test_a_client_of_no_weight_spoils_nothing_and_few_numbers_say_nothing(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    w = {"w": np.zeros(50, np.float32)}
    rows = [{"w": rng.normal(size=50).astype(np.float32)} for _ in range(3)]
    rows[2]["w"][0] = np.nan
    mean = {"w": ((rows[0]["w"].astype(float) + rows[1]["w"]) / 2).astype(np.float32)}
    with Recorder(tmp_path / "run") as recorder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        step = recorder.round(start=w, clients=rows, weights=[1e308, 1e308, 0], global_=mean)
        assert step is not None
        assert step.rule is Rule.MEAN
        lost = recorder.round(start=w, clients=rows, global_=mean)
    assert str(lost) == "models are not finite, so the server was not checked"
    one = {"w": np.zeros(1, np.float32)}
    clients = [{"w": np.float32([k])} for k in (1, 2)]
    with Recorder(tmp_path / "tiny") as recorder, warnings.catch_warnings():
        warnings.simplefilter("error")
        tiny = recorder.round(start=one, clients=clients, global_={"w": np.float32([-7])})
    assert tiny is not None
    assert tiny.rule is Rule.UNKNOWN


def test_what_makes_a_module_is_named_where_it_can_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nets_of_recorder.py").write_text(
        "from torch import nn\n\n\nclass Net(nn.Linear):\n    def __init__(self):\n        super().__init__(3, 2)\n"
        "\n\ndef wide():\n    return nn.Linear(3, 9)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import nets_of_recorder as nets  # type: ignore[import-not-found]

    for made, name in ((nets.Net, "nets_of_recorder:Net"), (nets.wide, "nets_of_recorder:wide"), (nets.Net(), None)):
        with Recorder(tmp_path / str(name), model=made) as recorder:
            state = made.state_dict() if name is None else made().state_dict()
            recorder.round(clients=[[value.numpy() for value in state.values()]])
        run = Run.open(tmp_path / str(name))
        assert run.info.get("model") == name
        assert run.layout.names == ("weight", "bias")
    with Recorder(tmp_path / "local", model=lambda: nets.Net()) as recorder:
        recorder.round(clients=[nets.Net()])
    assert "model" not in Run.open(tmp_path / "local").info
    with pytest.raises(FedscopeError, match=r"model= cannot be made without arguments \(.*in_features"):
        Recorder(tmp_path / "other", model=nn.Linear)


def test_a_client_that_has_diverged_is_named_and_recorded_as_it_is(tmp_path: Path) -> None:
    clients = {k: model(k) for k in (3, 5)}
    clients[5]["a.bias"][2] = np.nan
    with Recorder(tmp_path / "run") as recorder, pytest.warns(FedscopeWarning, match="client 5 has diverged") as told:
        recorder.round(clients=clients)
    assert "(a.bias is not finite)" in str(told[0].message)
    same(Run.open(tmp_path / "run").round(1).client(5).arrays(), clients[5])


def renamed(arrays: Arrays) -> Arrays:
    return {name.replace("bias", "offset"): value for name, value in arrays.items()}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"clients": {}},
            "run@2: no clients were given; leave the round out where nobody has answered, or "
            "give clients={number: model}, or a list",
        ),
        ({"clients": (one for one in [model(1)])}, "run@2: clients as generator were given; give clients={number: mod"),
        (
            {"clients": {"a": model(1)}},
            "run@2: client 'a' is not a whole number from 0 to 2^63 - 1; number all clients once, ",
        ),
        ({"clients": {-1: model(1)}}, "run@2: client -1 is not a whole number from 0 to 2^63 - 1"),
        ({"clients": {0: None}}, "run@2: client 0 has no model; leave it out"),
        ({"clients": {0: {}}}, "run@2: client 0: a model without tensors was given"),
        ({"clients": {0: 3}}, "run@2: client 0: a model was given as int; give a module"),
        ({"clients": [list(model(1).values())]}, "client 0: a model was given as 4 arrays without names; name them"),
        (
            {"clients": {0: model(1), 4: renamed(model(2))}},
            "run@2: client 4 lacks a.bias and has a.offset, which the run's models do not have; give models of one",
        ),
        (
            {"clients": {0: {**model(1), "a.bias": np.zeros(5, np.float32)}}},
            "run@2: client 0 has a.bias of shape [5], the run's models of [4]",
        ),
        (
            {"clients": {0: {**model(1), "a.bias": np.zeros(4)}}},
            "run@2: client 0 has a.bias in float64, the run's models in float32",
        ),
        ({"clients": {0: {**model(1), "a.bias": np.array(["x"])}}}, "client 0: a.bias is <U1, which a run cannot hold"),
        (
            {"clients": [model(1)], "start": {"w": np.zeros(2)}},
            "run@2: start lacks a.weight, a.bias, norm.running_mean",
        ),
        (
            {"clients": {0: model(1), 1: model(2)}, "samples": {0: 3}},
            "run@2: client 1 has a model, but no samples; give samples of all clients",
        ),
        (
            {"clients": {0: model(1)}, "samples": {0: 3, 9: 4}},
            "run@2: client 9 has samples, but no model (clients 0 have); give both or neither",
        ),
        (
            {"clients": [model(1)], "samples": [0]},
            "run@2: the clients' weights are 0.0; give numbers from 0 on, at least one above 0",
        ),
        ({"clients": [model(1)], "samples": ["many"]}, "run@2: samples are many, not numbers"),
        ({"clients": [model(1)], "samples": [10**400]}, "run@2: samples are 1000"),
        ({"clients": [model(1)], "metrics": {"lr": 10**400}}, "run@2: the metric lr is 1000"),
    ],
)
def test_what_cannot_be_recorded_is_named_and_leaves_the_run_as_it_was(
    arguments: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with Recorder(tmp_path / "run") as recorder:
        recorder.round(clients=[model(0)])
        with pytest.raises(FedscopeError) as raised:
            recorder.round(**arguments)
        assert message in str(raised.value)
        recorder.round(clients=[model(0)])
    assert Run.open(tmp_path / "run").rounds == (1, 2)


def test_one_recorder_a_folder_and_nothing_is_overwritten(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run") as recorder:
        with pytest.raises(FedscopeError, match="is being written by this program itself"):
            Recorder(tmp_path / "run")
        recorder.round(clients=[model(0)])
    with pytest.raises(
        FedscopeError, match="exists and holds a run with 1 round; give force=True to replace it, resume="
    ):
        Recorder(tmp_path / "run")
    with Recorder(tmp_path / "run", resume=True) as recorder:
        recorder.round(clients=[model(1)])
        assert recorder.flush() == 2
    same(Run.open(tmp_path / "run").round(2).client(0).arrays(), model(1))
    with pytest.raises(FedscopeError, match="the recorder is closed"):
        recorder.round(clients=[model(1)])
    with Recorder(tmp_path / "run", force=True) as recorder:
        recorder.round(clients=[model(2)])
    assert Run.open(tmp_path / "run").rounds == (1,)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/thesis.txt").write_text("mine")
    with pytest.raises(FedscopeError, match="holds something else than a run"):
        Recorder(tmp_path / "other", force=True)


def test_a_full_disk_ends_the_recording_and_not_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedscope.checkpoints.runs import writer as run_writer

    write = run_writer.RunWriter.write_image

    def full(self: Any, number: int, *rest: Any) -> None:
        if number >= 3:
            raise OSError(28, os.strerror(28))
        write(self, number, *rest)

    monkeypatch.setattr(run_writer.RunWriter, "write_image", full)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with Recorder(tmp_path / "run") as recorder:
            for t in range(8):
                recorder.round(clients=[model(t)])
    assert [str(warning.message) for warning in told] == [
        f"{tmp_path}/run: recording has ended, because {OSError(28, os.strerror(28))}; it is readable up to round 2, "
        "and the training goes on"
    ]
    assert Run.open(tmp_path / "run").rounds == (1, 2)


KILLED = """
    import sys, numpy as np
    from fedscope import Recorder
    recorder = Recorder(sys.argv[1])
    for t in range(10**6):
        recorder.round(clients=[{"w": np.full(50_000, 10 * t + k, np.float32)} for k in range(3)])
        print(t + 1, flush=True)
"""


@pytest.mark.programs
def test_a_kill_loses_the_last_two_rounds_at_most(tmp_path: Path) -> None:
    for attempt in range(3):
        path = tmp_path / f"run{attempt}"
        words = [sys.executable, "-P", "-c", textwrap.dedent(KILLED), str(path)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for _ in range(5 + 7 * attempt):
                process.stdout.readline()
            process.send_signal(signal.SIGKILL)
            given_ = max(map(int, process.stdout.read().split()), default=5 + 7 * attempt)
        run = Run.open(path)
        assert run.rounds == tuple(range(1, len(run.rounds) + 1))
        assert len(run.rounds) >= given_ - 2
        for t in run.rounds:
            assert check_round(run.round(t)).faults == ()
        with Recorder(path, resume=True) as recorder:
            recorder.round(clients=[{"w": np.zeros(50_000, np.float32)}] * 3)
        assert len(Run.open(path).rounds) == len(run.rounds) + 1


def test_what_was_given_is_written_where_a_program_ends_without_closing(tmp_path: Path) -> None:
    code = KILLED.replace("10**6", "4")
    subprocess.run([sys.executable, "-P", "-c", textwrap.dedent(code), str(tmp_path / "run")], check=True)
    assert Run.open(tmp_path / "run").rounds == (1, 2, 3, 4)


def test_recording_loads_little(tmp_path: Path) -> None:
    code = """
        import sys, numpy as np
        from fedscope import Recorder
        with Recorder(sys.argv[1], keep="sample:1", sketch=16) as recorder:
            w = {"w": np.zeros(3, np.float32)}
            recorder.round(start=w, clients=[w, w], samples=[1, 2], global_=w)
        from importlib.metadata import packages_distributions
        known = packages_distributions()
        print(*sorted({known[name][0] for name in {m.partition(".")[0] for m in sys.modules} if name in known}))
    """
    command = [sys.executable, "-P", "-c", textwrap.dedent(code), str(tmp_path / "run")]
    loaded = set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.lower().split())
    # setuptools puts a hook of its own into some environments
    assert loaded - {"setuptools", "pip"} <= {"fedscope", "h5py", "lazy-loader", "lazy_loader", "numpy", "xxhash"}


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (np.arange(6) < 2, r"gives client 1 a mask of true and false; .* np.flatnonzero\(mask\)"),
        ([True, False, False, False, False, True], "gives client 1 a mask of true and false"),
        ([0.0, 2.5], "gives client 1 the sample 2.5; give whole numbers"),
        ([0.0, float("nan")], "gives client 1 the sample nan"),
    ],
)
def test_a_partition_is_of_rows(tmp_path: Path, rows: Any, words: str) -> None:
    # as rows, the truth values of a mask would be the samples 0 and 1
    with pytest.raises(FedscopeError, match=words):
        Recorder(tmp_path / "run", partition={0: [0, 1], 1: rows}, labels=[0, 1, 2, 0, 1, 2])
    with Recorder(tmp_path / "run", partition={0: [], 1: [0.0, 2.0]}, labels=[0, 1, 2]) as recorder:
        recorder.round(clients={0: model(0)})
    held = Run.open(tmp_path / "run").partition
    assert held is not None
    assert [part.tolist() for part in held.clients] == [[], [0, 2]]


def test_a_partition_is_kept_and_its_labels_are_counted(tmp_path: Path) -> None:
    y = np.array([0, 1, 2, 1, 0, 2])
    with Recorder(tmp_path / "run", partition={0: [0, 1], 2: [3, 4, 5]}, labels=y) as recorder:
        recorder.round(clients={0: model(0), 2: model(1)})
    partition = Run.open(tmp_path / "run").partition
    assert partition is not None
    assert [part.tolist() for part in partition.clients] == [[0, 1], [], [3, 4, 5]]
    assert partition.label_counts.tolist() == [[1, 1, 0], [0, 0, 0], [1, 1, 1]]
    for given_, message in (
        ({"partition": {0: [0]}}, "partition= needs labels="),
        ({"partition": {0: [6]}, "labels": y}, "gives client 0 samples that are not among the 6 of labels="),
        (
            {"partition": [[0, 1], [1, 0, 1]], "labels": y},
            "gives client 1 the sample 1 more than once; give",
        ),
        ({"partition": {"a": [1]}, "labels": y}, "is not a mapping of client numbers"),
        ({"partition": {0: [0]}, "labels": y / 2}, r"labels= has shape \[6\] of float64"),
    ):
        with pytest.raises(FedscopeError, match=message):
            Recorder(tmp_path / "other", **given_)


def test_clients_may_draw_their_rows_with_replacement(tmp_path: Path) -> None:
    """A bootstrap has rows twice; it is told, and counted as it stands there."""
    y = np.array([0, 1, 2, 1, 0, 2])
    with pytest.warns(
        FedscopeWarning, match=r"gives client 1 the sample 4 more than once; counts take it as often as it"
    ):
        recorder = Recorder(tmp_path / "run", partition=[[0, 1], [4, 1, 4], [5, 5]], labels=y)
    with recorder:
        recorder.round(clients={0: model(0), 1: model(1), 2: model(2)})
    partition = Run.open(tmp_path / "run").partition
    assert partition is not None
    assert [part.tolist() for part in partition.clients] == [[0, 1], [4, 1, 4], [5, 5]]
    assert partition.label_counts.tolist() == [[1, 1, 0], [2, 1, 0], [0, 0, 2]]


@pytest.mark.programs
@pytest.mark.parametrize("server", ["none", "mean", "adaptive"])
def test_memory_is_two_rounds_of_clients(server: str, tmp_path: Path) -> None:
    """Also where the server's rule is looked for, and found or not."""
    code = """
        import re, sys, numpy as np
        from pathlib import Path
        from fedscope import Recorder

        def peak():
            # not ru_maxrss, which begins at the peak of the process that started this one
            return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

        size = 2_000_000
        clients = [{"w": np.full(size, k, np.float32)} for k in range(10)]
        also = {}
        if sys.argv[2] != "none":
            steps = [4.5] if sys.argv[2] == "mean" else [1, 2, 5]
            also = {"start": {"w": np.zeros(size, np.float32)}, "global_": {"w": np.resize(np.float32(steps), size)}}
        with Recorder(sys.argv[1]) as recorder:
            recorder.round(clients=[{"w": np.ones(size, np.float32)}])
            recorder.flush()
            before = peak()
            for _ in range(6):
                recorder.round(clients=clients, **also)
        print((peak() - before) * 1024 / (10 * size * 4))
    """
    command = [sys.executable, "-P", "-c", textwrap.dedent(code), str(tmp_path / "run"), server]
    rounds = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    # one that is written and one that is made, of twelve models where the server's two are given; where each is written
    # before the next is made it is one, less the small round that was in memory before
    assert 0.7 < rounds <= (2.1 if server == "none" else 2.5)


def test_ls_says_why_nothing_was_looked_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from fedscope.cli.main import run

    with Recorder(tmp_path / "run") as recorder:
        recorder.round(clients=[model(0)], start=model(1))
    assert run(["ls", str(tmp_path / "run")]) == 0
    assert "not checked, because no round has its global" in capsys.readouterr().out


@pytest.mark.parametrize("broken", [0, 3])
def test_one_client_is_told_beside_a_diverged_one_without_weight(tmp_path: Path, broken: int) -> None:
    clients = {k: {"w": np.random.default_rng(k).normal(size=600).astype(np.float32)} for k in range(4)}
    clients[broken]["w"][0] = np.nan
    weights = {k: float(k != broken) for k in clients}
    start = {"w": np.zeros(600, np.float32)}
    with Recorder(tmp_path / "run") as recorder, pytest.warns(FedscopeWarning, match=f"client {broken} has diverged"):
        step = recorder.round(start=start, clients=clients, weights=weights, global_=copy.deepcopy(clients[2]))
    assert step is not None
    assert step.rule is Rule.ONE_CLIENT


def test_a_partition_of_numbers_far_from_0_is_refused(tmp_path: Path) -> None:
    data = np.zeros((4, 2), np.float32), np.array([0, 1, 0, 1])
    rows = {3: [0, 1], 2**40: [2, 3]}
    with pytest.raises(FedscopeError, match=r"partition= has client 1099511627776, .* number the clients from 0 on"):
        Recorder(tmp_path / "run", data=(data, data), partition=rows)
    labels = [0, 2**40]
    with pytest.raises(FedscopeError, match=r"labels= go up to 1099511627776 and .*; number the classes from 0 on"):
        Recorder(tmp_path / "run", partition={0: [0], 1: [1]}, labels=labels)
    assert not (tmp_path / "run").exists()
