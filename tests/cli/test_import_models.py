"""Model files as a run: what is recorded of them, what the commands make of it, and what is refused."""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from fedscope import Line, import_models
from fedscope.checkpoints import FedscopeError, FedscopeWarning, Run, load_model
from fedscope.cli.main import run

State = dict[str, Tensor]
GIVEN = ["--model", "mlp", "--data", "digits"]
ROUNDS = "ckpt/round-{round}/client-{client}.pt"


@pytest.fixture(scope="session")
def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The training and the test split."""
    from fedscope.training import load_data

    data = load_data("digits")
    parts = [data.samples("train"), data.samples("test")]
    x, y, x_test, y_test = (torch.as_tensor(values) for part in parts for values in (part.x, part.y))
    return x.float().flatten(1), y, x_test.float().flatten(1), y_test


@pytest.fixture(scope="session")
def trained(digits: tuple[Tensor, ...]) -> list[State]:
    """A short trained network, then four that go on from it with batches of their own."""
    x, y, *_ = digits
    torch.manual_seed(0)
    layers = {"fc1": nn.Linear(64, 128), "a": nn.ReLU(), "fc2": nn.Linear(128, 64), "b": nn.ReLU()}
    net = nn.Sequential()
    for name, layer in {**layers, "head": nn.Linear(64, 10)}.items():
        net.add_module(name, layer)

    def fitted(module: nn.Module, seed: int) -> nn.Module:
        module, draw = copy.deepcopy(module), torch.Generator().manual_seed(seed)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)
        for rows in torch.randperm(len(y), generator=draw).split(32):
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(x[rows]), y[rows]).backward()
            optimizer.step()
        return module

    base = fitted(net, 0)
    return [module.state_dict() for module in (base, *(fitted(base, seed) for seed in (1, 2, 3, 4)))]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def files(here: Path, trained: list[State]) -> list[str]:
    """``base.safetensors`` and four files in ``checkpoints``."""
    save_file(trained[0], "base.safetensors")
    Path("checkpoints").mkdir()
    paths = [f"checkpoints/{name}.safetensors" for name in ("a", "b", "c", "d")]
    for path, state in zip(paths, trained[1:], strict=True):
        save_file(state, path)
    return paths


def small(seed: int, size: int = 3, **more: Tensor) -> State:
    """A tiny model."""
    draw = torch.Generator().manual_seed(seed)
    return {
        "fc.weight": torch.randn(size, 2, generator=draw),
        "fc.bias": torch.randn(size, generator=draw),
        "norm.running_mean": torch.randn(size, generator=draw),
        "norm.num_batches_tracked": torch.tensor(seed),
        **more,
    }


def put(path: str, state: Any) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    torch.save(state, path)


def told(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert run(list(words)) == 0, capsys.readouterr()
    return capsys.readouterr().out


def answered(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    return json.loads(told(capsys, *words, "--json"))


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert run(list(words)) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def quietly(*arguments: Any, **settings: Any) -> Run:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return import_models(*arguments, **settings)


def same(found: Mapping[str, np.ndarray], expected: Mapping[str, Tensor]) -> None:
    """Bit for bit, whatever the order."""
    assert set(found) == set(expected)
    for name, value in expected.items():
        assert found[name].tobytes() == value.numpy().tobytes(), name


def mean(states: list[State], p: list[float] | None = None) -> State:
    """In double precision, rounded once."""
    p = p or [1 / len(states)] * len(states)
    return {
        name: sum(w * s[name].double() for w, s in zip(p, states, strict=True)).to(value.dtype)  # type: ignore[union-attr]
        for name, value in states[0].items()
    }


# --- a folder of files ---


def test_files_are_the_clients_of_one_round(
    files: list[str], trained: list[State], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["import", *files[::-1], "--start", "base.safetensors", "--out", "runs/soup"]) == 0
    printed = capsys.readouterr()
    assert printed.out == (
        "runs/soup: 1 round of 4 clients, 17,226 parameters in float32\n"
        "  fedscope subsets runs/soup --model NAME --data NAME\n"
        "  fedscope plane runs/soup@1 --clients --model NAME --data NAME\n"
    )
    assert printed.err.splitlines() == ["fedscope: global is the mean of the clients, which all weigh the same"]
    recorded = Run.open("runs/soup")
    assert recorded.rounds == (1,)
    round_ = recorded.round(1)
    assert round_.client_ids.tolist() == [0, 1, 2, 3]
    assert round_.weights.tolist() == [0.25] * 4
    assert not round_.has("client_samples")
    for k, state in enumerate(trained[:0:-1]):  # in the order in which they were given
        same(round_.client(k).arrays(), state)
    same(round_.read("start").arrays(), trained[0])
    same(round_.read("global").arrays(), mean(trained[:0:-1]))
    assert recorded.info["source"] == "fedscope import"
    assert recorded.info["imported"] == {
        "1/start": "base.safetensors",
        **{f"1/client-{k}": f"checkpoints/{name}.safetensors" for k, name in enumerate("dcba")},
    }
    assert not {"model", "data"} & recorded.info.keys()


def test_a_folder_is_taken_in_natural_order_and_its_start_is_no_client(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for k in (10, 2, 1):
        put(f"soup/m{k}.pt", small(k))
    put("soup/base.pt", small(0))
    Path("soup/notes.txt").write_text("none of these")
    Path("soup/.hidden.pt").write_text("nor this")
    for name, words in (
        ("a", ["soup"]),
        ("b", ["soup/*.pt"]),
        ("c", ["soup/m1.pt", "soup/m2.pt", "soup/m10.pt", "soup/base.pt"]),
    ):
        assert run(["import", *words, "--start", "soup/base.pt", "--out", name]) == 0
        assert "soup/base.pt is the start, and so no client" in capsys.readouterr().err
        round_ = Run.open(name).round(1)
        for i, k in enumerate((1, 2, 10)):
            same(round_.client(i).arrays(), small(k))
        assert round_.client_ids.tolist() == [0, 1, 2]
    assert Run.open("a").info["imported"]["clients"] == "soup"


@pytest.fixture(scope="session")
def soup(tmp_path_factory: pytest.TempPathFactory, trained: list[State]) -> Path:
    """A run of one round, whose clients weigh 1 : 2 : 3 : 4, and one of two rounds; to be read only."""
    folder = tmp_path_factory.mktemp("soup")
    save_file(trained[0], folder / "base.safetensors")
    for k, state in enumerate(trained[1:]):
        save_file(state, folder / f"{k}.safetensors")
        for t, j in ((1, k), (2, (k + 1) % 4)):
            (folder / f"{t}").mkdir(exist_ok=True)
            torch.save(trained[1:][j], folder / f"{t}/{k}.pt")
    paths = [folder / f"{k}.safetensors" for k in range(4)]
    quietly(paths, folder / "plain", start=folder / "base.safetensors")
    quietly(paths, folder / "soup", start=folder / "base.safetensors", samples=[10, 20, 30, 40])
    start = folder / "base.safetensors"
    quietly(str(folder / "{round}/{client}.pt"), folder / "two", start=start, model="mlp", data="digits")
    return folder


@pytest.fixture
def runs(soup: Path, here: Path) -> Path:
    for name in ("plain", "soup", "two"):
        shutil.copytree(soup / name, name)
    return here


def logits(state: Mapping[str, Any], x: Tensor) -> Tensor:
    layers = {name: torch.as_tensor(value).double() for name, value in state.items()}
    for name in ("fc1", "fc2", "head"):
        x = x.double() @ layers[f"{name}.weight"].T + layers[f"{name}.bias"]
        x = x.relu() if name != "head" else x
    return x


def loss(state: State, digits: tuple[Tensor, ...]) -> float:
    return float(nn.functional.cross_entropy(logits(state, digits[2]), digits[3]))


#: a forward pass in single precision against one in double precision
CLOSE = {"rel": 1e-5}


def test_subsets_of_files(
    runs: Path, trained: list[State], digits: tuple[Tensor, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    clients = trained[1:]
    for name, weights in (("plain", [1.0] * 4), ("soup", [1.0, 2.0, 3.0, 4.0])):
        (found,) = answered(capsys, "subsets", name, *GIVEN)["rounds"]
        for row in found["sizes"]:
            losses = []
            for members in combinations(range(4), row["m"]):
                total = sum(weights[k] for k in members)
                p = [weights[k] / total for k in members]
                losses.append(loss(mean([clients[k] for k in members], p), digits))
            assert row["loss_mean"] == pytest.approx(np.mean(losses), **CLOSE)
            assert row["subsets"] == len(losses)


def test_lines_and_planes_of_files(
    runs: Path, trained: list[State], digits: tuple[Tensor, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    told(capsys, "line", "soup@1", "--clients", *GIVEN, "--points", "3", "--out", "line")
    line = Line.load("line")
    for pair, (one, other) in enumerate(combinations(trained[1:], 2)):
        expected = [loss(other, digits), loss(mean([one, other]), digits), loss(one, digits)]
        np.testing.assert_allclose(sorted(line.loss[pair][[0, -1]]), sorted(expected[::2]), rtol=1e-5)
        assert line.loss[pair][1] == pytest.approx(expected[1], **CLOSE)
    basin = answered(capsys, "plane", "soup@1", "--clients", *GIVEN, "--grid", "3")["basin"]
    expected = [*(loss(state, digits) for state in trained[1:]), loss(mean(trained[1:]), digits)]
    assert [model["loss"] for model in basin["models"]] == pytest.approx(expected, **CLOSE)


def test_likeness_of_files(
    runs: Path, trained: list[State], digits: tuple[Tensor, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    def kernel(state: State) -> Tensor:
        outputs = logits(state, digits[2])
        return (outputs @ outputs.T).fill_diagonal_(0)

    def hsic(one: Tensor, other: Tensor) -> float:
        """Song et al. 2012, eq. 4."""
        n = len(one)
        sums = one.sum() * other.sum() / (n - 1) / (n - 2) - 2 * (one.sum(0) @ other.sum(0)) / (n - 2)
        return float(((one * other).sum() + sums) / (n * (n - 3)))

    (found,) = answered(capsys, "cka", "soup", *GIVEN, "--batch", "360")["rounds"]
    kernels = [kernel(state) for state in trained[1:]]
    pairs = [hsic(k, m) / np.sqrt(hsic(k, k) * hsic(m, m)) for k, m in combinations(kernels, 2)]
    assert found["mean"] == pytest.approx(np.mean(pairs), rel=1e-4)


def flat(state: State) -> np.ndarray:
    return np.concatenate([value.double().numpy().ravel() for value in state.values()])


def test_distances_of_files(runs: Path, trained: list[State], capsys: pytest.CaptureFixture[str]) -> None:
    rows = np.stack([flat(state) for state in trained[1:]])
    moves, p = rows - flat(trained[0]), np.array([0.1, 0.2, 0.3, 0.4])
    (found,) = answered(capsys, "updates", "soup")["rounds"]
    norms = np.linalg.norm(moves, axis=1)
    cosines = [moves[i] @ moves[j] / norms[i] / norms[j] for i, j in combinations(range(4), 2)]
    assert found["cosine_mean"] == pytest.approx(np.mean(cosines), rel=1e-9)
    assert found["norm_of_mean"] == pytest.approx(np.linalg.norm(p @ moves), rel=1e-9)

    (found,) = answered(capsys, "disperse", "soup")["rounds"]
    layer = np.stack([state["fc1.bias"].double().numpy() for state in trained[1:]])
    assert found["layers"][1]["layer"] == "fc1.bias"
    assert found["layers"][1]["mean_cv"] == pytest.approx(np.mean(layer.std(0) / np.abs(layer.mean(0))), rel=1e-9)

    found = answered(capsys, "synergy", "soup@1")
    assert [row["entries"] for row in found["layers"]] == [8192, 128, 8192, 64, 640, 10]
    assert found["labels"] is None


def squared(outputs: Tensor, y: Tensor) -> float:
    return float((nn.functional.one_hot(y, 10) - outputs).square().sum(1).mean())


def test_factors_of_two_rounds_of_files(
    runs: Path, trained: list[State], digits: tuple[Tensor, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    _, _, x, y = digits
    words = ["--draws", "rounds:2", "--split", "test"]
    (found,) = answered(capsys, "decompose", "two", *words)["rounds"]
    # the draws are the clients of both rounds, of which round 2 has another's model each
    draws = [[trained[1:][(k + t) % 4] for k in range(4)] for t in (1, 0)]
    outputs = [[logits(state, x).softmax(1) for state in draw] for draw in draws]
    ensembles = [torch.stack(draw).mean(0) for draw in outputs]
    expected = torch.stack([torch.stack(client).mean(0) for client in zip(*outputs, strict=True)])
    bias = squared(expected.mean(0), y)
    spread = np.mean([(torch.stack(draw) - expected).square().sum(2).mean(1).sum().item() / 16 for draw in outputs])
    both = np.mean([(ensemble - expected.mean(0)).square().sum(1).mean().item() for ensemble in ensembles])
    averaged = np.mean([squared(logits(mean(draw), x).softmax(1), y) for draw in draws])
    assert found["bias"] == pytest.approx(bias, **CLOSE)
    assert found["variance"] == pytest.approx(spread, rel=1e-4)
    assert found["covariance"] == pytest.approx(both - spread, rel=1e-3, abs=1e-7)
    assert found["fma_loss"] == pytest.approx(averaged, **CLOSE)
    assert found["global_loss"] == pytest.approx(squared(logits(mean(draws[0]), x).softmax(1), y), **CLOSE)
    assert found["server_step"] == 0
    page = told(capsys, "explain", "two", *words)
    assert "two: the global model is the clients' average in every round; the server adds no step of its own." in page
    assert f"bias ({bias:.3g})" in page


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("curves soup", "soup has no numbers of test_loss or test_error, only of participants"),
        ("decompose two --draws local:4", "two was recorded by fedscope import, whose training cannot be replayed"),
        ("explain two --draws local:4", "two was recorded by fedscope import, whose training cannot be replayed"),
        ("forgetting two", "two does not say which client holds which samples (no partition.h5), so no data are a cl"),
        ("subsets soup", "soup was recorded by fedscope import and names neither architecture nor data; give --model"),
        ("subsets two --split train", "two does not say which client holds which samples (no partition.h5), and --sp"),
        ("train --resume soup", "soup has no config.toml, which this needs: the run was recorded by fedscope import"),
    ],
)
def test_what_files_do_not_say_is_said(
    runs: Path, capsys: pytest.CaptureFixture[str], words: str, message: str
) -> None:
    assert message in refused(capsys, *words.split())


def test_updates_of_files_need_a_start(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for k in (0, 1):
        put(f"{k}.pt", small(k))
    quietly(["0.pt", "1.pt"], "run")
    said = refused(capsys, "updates", "run")
    assert said.endswith(
        "so there are no updates; give another round, or record the run with its start (import --start)\n"
    )


def test_what_made_the_models_is_kept(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for k in (0, 1):
        put(f"{k}.pt", small(k))
    assert run(["import", "0.pt", "1.pt", "--method", "soup of two", "--seed", "7", "--out", "told"]) == 0
    capsys.readouterr()
    row = answered(capsys, "ls", "told")
    assert (row["method"], row["seed"]) == ("soup of two", 7)
    quietly(["0.pt", "1.pt"], "settings", method="soup", settings={"lr": 0.1})
    assert Run.open("settings").info["settings"] == {"lr": 0.1}
    assert refused(capsys, "import", "0.pt", "1.pt", "--method", "", "--out", "none").startswith("fedscope: method=''")


def test_ls_lists_and_verifies_such_runs(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = {row["run"]: row for row in answered(capsys, "ls")}
    assert [rows[name]["method"] for name in ("plain", "soup", "two")] == ["fedscope import"] * 3
    assert [(rows[name]["rounds"], rows[name]["data"]) for name in ("soup", "two")] == [("1", "-"), ("2", "digits")]
    assert answered(capsys, "ls", "two")["model"] == "mlp, 17,226 parameters"
    assert "server" not in answered(capsys, "ls", "two")  # import made the mean itself
    assert told(capsys, "ls", "--check", "plain", "soup", "two").count(" sound: ") == 3


# --- rounds by a pattern ---


def test_no_start_is_made_up_across_a_gap(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for t in (1, 2, 4, 5):
        for k in range(2):
            put(f"ckpt/round-{t}/client-{k}.pt", small(10 * t + k))
    assert run(["import", ROUNDS, "--out", "gap"]) == 0
    said = capsys.readouterr().err.splitlines()
    made = "fedscope: start of rounds 2, 4 is global of the round before, the mean of its clients"
    assert f"{made}; if another model was sent, give --start" in said  # once for all of them
    assert sum("--start" in line for line in said) == 1
    assert "fedscope: round 3 of the run without a start, because the round before it is not among the files" in said
    recorded = Run.open("gap")
    assert ["start" in recorded.round(t).models for t in recorded.rounds] == [False, True, False, True]
    start, before = recorded.round(4).read("start"), recorded.round(3).read("global")
    np.testing.assert_array_equal(start.parameters, before.parameters)


def test_rounds_and_clients_keep_their_models_and_say_their_numbers(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Round 9 is before round 10, zeros in front count for nothing, and cohorts may differ."""
    cohorts = {9: (3, 20), 10: (0, 3), 30: (3, 4, 5)}
    for t, cohort in cohorts.items():
        for k in cohort:
            put(f"ckpt/round-{t:03d}/client-{k:02d}.pt", small(100 * t + k))
    put("ckpt/round-009/start.pt", small(1))
    put("ckpt/round-030/start.pt", small(2))
    put("ckpt/round-031/start.pt", small(3))  # what the last round has led to
    put("ckpt/round-010/global.pt", small(4))
    put("ckpt/round-010/client-5.pt.bak", small(5))
    settings = ["--start", "ckpt/round-{round}/start.pt", "--global", "ckpt/round-{round}/global.pt"]
    assert run(["import", ROUNDS, *settings, "--out", "mine"]) == 0
    printed = capsys.readouterr()
    first, *others = printed.err.splitlines()
    assert first.endswith("/mine@2: statistics were not averaged: norm.running_mean in global is not the clients' mean")
    assert others == [
        "fedscope: ckpt/round-031/start.pt is left out: no client's file is of round 31",
        "fedscope: rounds 9-10, 30 of the files are rounds 1 to 3 of mine",
        "fedscope: start of round 2 is global of the round before, the mean of its clients; if another model was sent, "
        "give --start",
        "fedscope: global of rounds 1, 3 is the mean of the clients, which all weigh the same",
    ]
    assert printed.out.startswith("mine: 3 rounds of 2 to 3 clients, 9 parameters in float32; ")
    recorded = Run.open("mine")
    for t, (number, cohort) in enumerate(cohorts.items(), start=1):
        round_ = recorded.round(t)
        assert round_.client_ids.tolist() == list(cohort)
        for k in cohort:
            same(round_.client(k).arrays(), small(100 * number + k))
    starts = [small(1), None, small(2)]
    for t, state in enumerate(starts, start=1):
        before = load_model(f"mine@{t - 1}/global").weights.arrays() if state is None else {}
        expected = {name: torch.as_tensor(value) for name, value in (state or before).items()}
        same(recorded.round(t).read("start").arrays(), expected)
    same(recorded.round(2).read("global").arrays(), small(4))
    assert recorded.info["imported"]["clients"] == ROUNDS
    assert recorded.info["imported"]["3/client-4"] == "ckpt/round-030/client-04.pt"
    assert recorded.info["imported"]["2/global"] == "ckpt/round-010/global.pt"


def test_a_start_that_files_have_is_not_called_made_up(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for t in (1, 2, 3):
        for k in range(2):
            put(f"ckpt/round-{t}/client-{k}.pt", small(10 * t + k))
        put(f"ckpt/round-{t}/global.pt", small(t))
        put(f"ckpt/round-{t}/start.pt", small(t - 1))
    assert run(["import", ROUNDS, "--global", "ckpt/round-{round}/global.pt", "--out", "a"]) == 0
    said = capsys.readouterr().err
    assert "start of rounds 2-3 is global of the round before\n" in said
    assert "--start" not in said
    assert run(["import", ROUNDS, "--start", "ckpt/round-{round}/start.pt", "--out", "b"]) == 0
    assert "start" not in capsys.readouterr().err


def test_a_round_without_a_start_begins_at_global_of_the_one_before(here: Path) -> None:
    for t in (1, 2, 3):
        for k in (5, 20, 100):
            put(f"ckpt/round-{t}/client-{k}.pt", small(10 * t + k))
    found = quietly(ROUNDS, "run", samples=[1, 2, 3])
    assert "start" not in found.round(1).models
    for t in (2, 3):
        before = found.round(t - 1).read("global").arrays()
        same(found.round(t).read("start").arrays(), {name: torch.as_tensor(value) for name, value in before.items()})
        # 5, 20, 100 is not their order as names
        assert found.round(t).client_samples.tolist() == [1, 2, 3]


def test_a_wrong_server_is_told_from_its_files(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clients = [{"w": torch.randn(50, generator=torch.Generator().manual_seed(k))} for k in (1, 2)]
    put("start.pt", start := {"w": torch.ones(50)})
    put("global.pt", {"w": 2 * start["w"] - mean(clients)["w"]})
    for k, state in enumerate(clients):
        put(f"c{k}.pt", state)
    words = ["import", "c0.pt", "c1.pt", "--start", "start.pt", "--global", "global.pt", "--out", "run"]
    server = "global = start - 1 Σ p Δ: the sign of the server is wrong (in round 1)"
    assert told(capsys, *words).splitlines()[0] == f"run: 1 round of 2 clients, 50 parameters in float32; {server}"
    assert answered(capsys, *words, "--force") == {
        "run": "run",
        "rounds": [1],
        "clients": [[0, 1]],
        "parameters": 50,
        "dtypes": ["float32"],
        "server": server,
    }


def test_counts_of_samples_are_weights(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for t in (1, 2):
        for k in (3, 7):
            put(f"ckpt/round-{t}/client-{k}.pt", small(10 * t + k))
    # other columns, other clients, spaces and an empty line are other programs' business
    Path("a.csv").write_text("\ufeffround, client,samples,note\n1,3,10,x\n1,7,30,\n\n2,3,8,\n2,7,0,\n2,9,5,\n")
    Path("b.csv").write_text("client,samples\n7,30\n3,10\n")
    both = [[10, 30], [10, 30]]
    for i, (samples, expected) in enumerate(
        [("a.csv", [[10, 30], [8, 0]]), ("b.csv", both), ("10,30", both), ([10, 30], both), ({7: 30, 3: 10}, both)]
    ):
        found = quietly(ROUNDS, f"run{i}", samples=samples)
        for t, n in zip((1, 2), expected, strict=True):
            round_ = found.round(t)
            assert round_.client_samples.tolist() == n
            p = [value / sum(n) for value in n]
            assert round_.weights.tolist() == pytest.approx(p)
            expected_mean = mean([small(10 * t + k) for k in (3, 7)], p)
            # a count of batches is the heaviest client's
            expected_mean["norm.num_batches_tracked"] = torch.tensor(10 * t + (3, 7)[n.index(max(n))])
            same(round_.read("global").arrays(), expected_mean)
    told(capsys, "import", ROUNDS, "--samples", "10,30", "--out", "run5")
    for given, words in (
        ({"client-3": 10}, r"samples=: client is 'client-3', which is not a whole number"),
        (5, r"samples is 5; give one number a client, in their order"),
    ):
        with pytest.raises(FedscopeError, match=words):
            import_models(ROUNDS, "run6", samples=given)
    assert Run.open("run5").round(2).client_samples.tolist() == [10, 30]


SAMPLES = {0: 10, 1: 20, 2: 30, 10: 110}


@pytest.mark.parametrize("kind", ["table", "mapping", "series"])
def test_counts_by_number_beside_files_in_another_order_are_refused(
    kind: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A shell gives client-10 before client-2, so client-10 was client 2 and had its samples."""
    for k in SAMPLES:
        put(f"ckpt/client-{k}.pt", small(k))
    Path("samples.csv").write_text("client,samples\n" + "".join(f"{k},{n}\n" for k, n in SAMPLES.items()))
    given: Any = {"table": "samples.csv", "mapping": SAMPLES}.get(kind)
    if kind == "series":
        given = pytest.importorskip("pandas").Series(SAMPLES).loc[::-1]
    pattern = "ckpt/client-{client}.pt"
    of_shell = [f"ckpt/client-{k}.pt" for k in (0, 1, 10, 2)]
    for files, misplaced in ((of_shell, (2, 10)), (of_shell[::-1][:2], (0, 2)), (["ckpt"], (3, 10))):
        with pytest.raises(FedscopeError) as found:
            import_models(files, "refused", samples=given)
        said = (
            f"ckpt/client-{misplaced[1]}.pt was given as client {misplaced[0]}, not {misplaced[1]}; give '{pattern}' in"
        )
        assert said in str(found.value)
        assert not Path("refused").exists()
    by_hand = [of_shell[k] for k in (0, 2, 3, 1)]
    if kind == "table":
        words = refused(capsys, "import", *of_shell, "--samples", "samples.csv", "--out", "refused")
        assert words.endswith("by which clients keep their numbers\n")  # nobody counts samples in the order of text
        words = refused(capsys, "import", *by_hand, "--samples", "samples.csv", "--out", "refused")
        assert words.endswith("by which clients keep their numbers, or --samples in the files' order\n")
    # each remedy
    run_ = quietly(pattern, f"by-{kind}", samples=given)
    assert run_.round(1).client_ids.tolist() == [0, 1, 2, 10]
    assert run_.round(1).client_samples.tolist() == [10, 20, 30, 110]
    listed = quietly(by_hand, f"listed-{kind}", samples=[10, 110, 30, 20])
    assert listed.round(1).client_samples.tolist() == [10, 110, 30, 20]
    assert listed.round(1).client_ids.tolist() == [0, 1, 2, 3]


def test_counts_of_clients_without_a_file_are_told(here: Path) -> None:
    for k in (0, 1, 5):
        for t in (1, 2):
            put(f"r{t}/client-{k}.pt", small(k))
    put("a.pt", small(1))
    put("b.pt", small(2))
    Path("all.csv").write_text("client,samples\n0,1\n1,2\n5,3\n8,4\n")
    Path("rounds.csv").write_text("round,client,samples\n1,0,1\n1,1,2\n1,5,3\n2,0,1\n2,1,2\n2,5,3\n2,8,4\n3,8,9\n")
    for i, (files, samples, said) in enumerate(
        [
            (
                "r{round}/client-{client}.pt",
                "all.csv",
                "samples='all.csv' has client 8, of which there is no file; p is",
            ),
            (
                "r{round}/client-{client}.pt",
                "rounds.csv",
                "samples='rounds.csv' has client 8 of round 2, of which there",
            ),
            (
                ["r1/client-0.pt", "r1/client-1.pt"],
                {0: 1, 1: 2, 5: 3},
                "samples has client 5, of which there is no fi",
            ),
            (["r1/client-0.pt", "r1/client-1.pt"], {0: 1, 1: 2}, ""),
            (["a.pt", "b.pt"], {0: 1, 1: 2}, ""),
            (["r1/client-1.pt", "r1/client-5.pt"], {0: 1, 1: 2}, ""),  # numbers that the names do not say
        ]
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            import_models(files, f"run{i}", samples=samples)
        told = [str(one.message) for one in caught if "no file" in str(one.message)]
        assert [one[: len(said)] for one in told] == ([said] if said else [])
    with pytest.raises(
        FedscopeError, match="samples has client 2, and the files are clients 0 to 1 in their order; gi"
    ):
        import_models(["a.pt", "b.pt"], "refused", samples={0: 1, 1: 2, 2: 3})


def test_counts_in_no_order_are_refused(here: Path) -> None:
    put("0.pt", small(0))
    put("1.pt", small(1))
    for files, kind in (({"0.pt", "1.pt"}, "set"), ({1: "0.pt"}, "dict"), ({1: "0.pt"}.keys(), "dict_keys")):
        with pytest.raises(FedscopeError, match=f"files= is a {kind}, by which clients cannot be numbered; give a li"):
            import_models(files, "refused")  # type: ignore[arg-type]
    with pytest.raises(FedscopeError, match="samples is a set, which does not say which number is whose; give numbers"):
        import_models(["0.pt", "1.pt"], "refused", samples={3, 1})
    pandas = pytest.importorskip("pandas")
    for counts in (pandas.Series([3, 1], index=[1, 0]), pandas.Series([1, 3])):
        made = import_models(["0.pt", "1.pt"], "run", samples=counts, force=True)
        assert made.round(1).client_samples.tolist() == [1, 3]


# --- kinds of files ---


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_models_stay_in_their_precision(dtype: torch.dtype, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    states = [{"w": torch.randn(40, 9, generator=torch.Generator().manual_seed(k)).to(dtype)} for k in range(3)]
    for k, state in enumerate(states):
        save_file(state, f"{k}.safetensors") if k else put("0.pt", state)
    name = str(dtype).removeprefix("torch.")
    printed = told(capsys, "import", "0.pt", "1.safetensors", "2.safetensors", "--out", "run")
    assert printed.startswith(f"run: 1 round of 3 clients, 360 parameters in {name}\n")
    bits = torch.int64 if dtype is torch.float64 else torch.int16
    with h5py.File("run/rounds/00001.h5") as file:
        for k, state in enumerate(states):
            assert file["clients/w"][k].tobytes() == state["w"].view(bits).numpy().tobytes()
        exact = sum(state["w"].double() for state in states) * (1 / 3)  # type: ignore[operator]
        found = torch.from_numpy(file["global/w"][:].view("i8" if bits is torch.int64 else "i2")).view(dtype)
    # half a unit in the last place, of a number below 4
    step = {torch.float16: 2**-10, torch.bfloat16: 2**-7, torch.float64: 2**-50}[dtype]
    assert float((found.double() - exact).abs().max()) <= step


def test_what_other_programs_put_round_a_model_is_taken_off(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put("a.pt", {f"_orig_mod.module.{name}": value for name, value in small(1).items()})
    put("b.ckpt", {"epoch": 3, "state_dict": {f"model.{name}": v for name, v in small(2).items()}, "optimizer": {}})
    put("c.bin", {"model": small(3), "other": {"x": torch.ones(2)}})
    np.savez("d.npz", **{name: value.numpy() for name, value in small(4).items()})
    np.savez("e.npz", *[value.numpy() for value in small(5).values()])  # Flower's, in the order of the first file
    told(capsys, "import", "a.pt", "b.ckpt", "c.bin", "d.npz", "e.npz", "--out", "run")
    for k in range(5):
        same(Run.open("run").round(1).client(k).arrays(), small(k + 1))
    capsys.readouterr()
    assert run(["import", "a.pt", "b.ckpt", "c.bin", "d.npz", "e.npz", "--out", "run", "--force"]) == 0
    assert capsys.readouterr().err.splitlines()[:2] == [
        'fedscope: a.pt: the prefix "_orig_mod.module." is taken off its names',
        'fedscope: b.ckpt: the prefix "model." is taken off its names',
    ]
    kinds = {entry.name: entry.kind for entry in Run.open("run").layout.entries}
    assert [name for name, kind in kinds.items() if kind == "buffer"] == [
        "norm.running_mean",
        "norm.num_batches_tracked",
    ]


def test_float8_is_kept_as_float32(here: Path) -> None:
    state = {name: torch.tensor([0.5, -448.0, 1.125]).to(torch.float8_e4m3fn) for name in ("a", "b")}
    put("0.pt", state)
    with pytest.warns(FedscopeWarning) as warned:
        found = import_models(["0.pt"], "run")
    assert "0.pt: tensors of float8_e4m3fn are kept as float32" in [str(one.message) for one in warned]
    same(found.round(1).client(0).arrays(), {name: value.float() for name, value in state.items()})


def test_a_prefix_that_all_files_have_stays_but_for_wrappers(here: Path) -> None:
    for k in (1, 2):
        put(f"a{k}.pt", {f"model.{name}": value for name, value in small(k).items()})
        put(f"b{k}.pt", {f"module.{name}": value for name, value in small(k).items()})
    assert quietly(["a1.pt", "a2.pt"], "a").layout.names[0] == "model.fc.weight"
    with pytest.warns(FedscopeWarning) as warned:
        assert import_models(["b1.pt", "b2.pt"], "b").layout.names[0] == "fc.weight"
    assert 'b1.pt, b2.pt: the prefix "module." is taken off its names' in [str(one.message) for one in warned]


def test_an_architecture_says_names_order_and_what_is_trained(
    files: list[str], trained: list[State], capsys: pytest.CaptureFixture[str]
) -> None:
    lightning = {f"net.{name}": value for name, value in trained[1].items()}
    put("a.ckpt", {"state_dict": lightning})
    np.savez("b.npz", *[value.numpy() for value in trained[2].values()])  # nothing but the architecture names them
    told(capsys, "import", "a.ckpt", "b.npz", "--out", "run", *GIVEN)
    recorded = Run.open("run")
    assert recorded.layout.names == tuple(trained[0])
    assert (recorded.info["model"], recorded.info["data"]) == ("mlp", {"name": "digits"})
    for k in (0, 1):
        same(recorded.round(1).client(k).arrays(), trained[k + 1])
    printed = told(capsys, "import", *files, "--out", "again", *GIVEN)
    assert "  fedscope subsets again\n  fedscope plane again@1 --clients\n" in printed  # which need no more


CODE = """
import torch
from torch import nn

class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.zoom = nn.Parameter(torch.ones(1))
        self.embed = nn.Embedding(10, 4)
        self.body = nn.Linear(4, 4)
        self.head = nn.Linear(4, 10, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("scale", torch.ones(3))
"""


def test_tied_tensors_and_untrained_ones_are_as_the_users_own_code_has_them(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("nets_tied.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(here))
    from nets_tied import Tied  # type: ignore[import-not-found]

    states = []
    for k in (0, 1):
        torch.manual_seed(k)
        states.append(Tied().state_dict())
        save_file({name: v for name, v in states[k].items() if name != "head.weight"}, f"{k}.safetensors")
        put(f"{k}.pt", states[k])
    assert run(["import", "0.safetensors", "1.safetensors", "--model", "nets_tied:Tied", "--out", "run"]) == 0
    note = "fedscope: 0.safetensors, 1.safetensors: head.weight is taken from embed.weight, which it is tied to\n"
    assert note in capsys.readouterr().err
    recorded = Run.open("run")
    # registered last, by its name trained, by its type too: only the code says that it is none
    assert {entry.name for entry in recorded.layout.buffers} == {"scale"}
    assert recorded.layout.names == tuple(states[0])
    for k in (0, 1):
        same(recorded.round(1).client(k).arrays(), states[k])
    # and where nobody says it, as a torch file beside them has them
    for name, paths in (("a", ["0.pt", "1.safetensors"]), ("b", ["0.safetensors", "1.pt"])):
        assert run(["import", *paths, "--out", name]) == 0
        said = capsys.readouterr().err
        lacking = {"a": "1.safetensors: head.weight is taken from embed.weight, which it is tied to"}
        left = {"b": "1.pt: head.weight is left out, which is tied to embed.weight"}
        assert {**lacking, **left}[name] in said
    assert Run.open("a").layout.names == tuple(states[0])
    assert "head.weight" not in Run.open("b").layout.names


def test_safetensors_get_the_order_of_a_file_that_has_one(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = {name: torch.ones(2, 2) for name in ("z.weight", "a10.bias", "a10.weight", "a9.weight", "a9.bias")}
    for name in ("0", "1"):
        save_file(state, f"{name}.safetensors")
    put("base.pt", state)
    assert run(["import", "0.safetensors", "1.safetensors", "--start", "base.pt", "--out", "a"]) == 0
    assert Run.open("a").layout.names == tuple(state)
    assert run(["import", "0.safetensors", "1.safetensors", "--out", "b"]) == 0
    assert Run.open("b").layout.names == ("a9.weight", "a9.bias", "a10.weight", "a10.bias", "z.weight")


# --- what is refused ---


@pytest.fixture
def wrong(here: Path) -> None:
    """Files of all kinds."""
    for k in (0, 1):
        put(f"{k}.pt", small(k))
        for t in (1, 2):
            put(f"ckpt/round-{t}/client-{k}.pt", small(k))
    put("wide.pt", small(2, size=4))
    put("named.pt", {"other.weight": torch.ones(2)})
    put("half.pt", {name: v.half() if v.is_floating_point() else v for name, v in small(3).items()})
    put("whole.pt", {name: value.long() for name, value in small(3).items()})
    put("bytes.pt", {"weight": torch.ones(3, 2, dtype=torch.int8), "bias": torch.ones(3)})
    put("complex.pt", {"w": torch.ones(2, dtype=torch.complex64)})
    put("list.pt", [1, 2])
    Path("text.pt").write_text("no model")
    put("twice/client-1.pt", small(1))
    put("twice/client-01.pt", small(1))
    put("mid/1-0.pt", small(1))
    put("mid/3-0.pt", small(1))
    put("mid/s2.pt", small(1))
    put("starts/2.pt", small(2))
    put("starts/02.pt", small(2))
    put("late/3.pt", small(3))
    put("late/0.pt", small(3))
    np.savez("flower.npz", np.ones(3))
    np.savez("plane.npz", grid=np.ones((2, 2, 2)), te_nll=np.ones((2, 2)))
    Path("empty").mkdir()
    Path("others").mkdir()
    Path("others/readme.md").write_text("nothing")
    for name, text in (
        ("none", ""),
        ("columns", "id,n\n0,3\n"),
        ("lacking", "client,samples\n0,3\n"),
        ("words", "client,samples\n0,3\n1,many\n"),
        ("again", "round,client,samples\n1,0,3\n1,0,4\n"),
    ):
        Path(f"{name}.csv").write_text(text)


@pytest.mark.parametrize(
    ("names", "pattern"),
    [
        (["round_{r}/client_{c}/model.pt"], "e/round_{round}/client_{client}/model.pt"),
        (["client{c}/epoch{r}.pt", "server/epoch{r}.pt"], "e/client{client}/epoch{round}.pt"),
        (["v2/site-{c}/best.pt"], "e/v2/site-{client}/best.pt"),
        (["seed{c}/run{r}/model.pt"], ""),  # which number is which, nobody says
        (["round{r}/model.pt"], ""),
        (["round{r}/lr0.{c}/client{c}.pt"], ""),
    ],
)
def test_a_folder_of_folders_is_told_its_pattern(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], names: list[str], pattern: str
) -> None:
    """It was told to give another folder."""
    monkeypatch.chdir(tmp_path)
    for r in (1, 2):
        for c in (1, 2, 3):
            for name in names:
                path = Path("e", name.format(r=r, c=c))
                path.parent.mkdir(parents=True, exist_ok=True)
                torch.save({"w": torch.full((2,), float(10 * r + c))}, path)
    assert run(["import", "e", "--out", "made"]) == 2
    said = capsys.readouterr().err.strip()
    if not pattern:
        assert said.endswith("; give another folder")
        return
    assert said.endswith(f"; give the pattern '{pattern}' alone")
    assert run(["import", pattern, "--out", "made"]) == 0
    assert Run.open("made").round(1).client_ids.tolist() == [1, 2, 3]


REFUSED = [
    ("empty", "empty holds no model's file (.pt, .pth, .ckpt, .bin, .safetensors, .npz); give another folder"),
    ("others", "others holds no model's file (.pt, .pth, .ckpt, .bin, .safetensors, .npz); it holds readme.md; give"),
    ("0.pt none.pt", "none.pt does not exist"),
    ("none/*.pt", "none/*.pt matches no file: there is no none; check the path"),
    ("ckpt/*.pt", "ckpt/*.pt matches no file; ckpt holds round-1, round-2"),
    ("0.pt text.pt", "text.pt is truncated or not a checkpoint of torch; copy or save it again"),
    ("0.pt list.pt", "list.pt holds list, not a state_dict; save model.state_dict()"),
    ("0.pt others/readme.md", "others/readme.md is not a file that a model can be read from: .pt, "),
    ("0.pt empty/", "empty/ holds no model's file"),
    (
        "complex.pt",
        "complex.pt: w is complex, and weights are plain numbers; save its real and imaginary parts as two te",
    ),
    ("0.pt wide.pt", "wide.pt has fc.weight of shape [4, 2], 0.pt of [3, 2]; a run holds models of one architecture"),
    ("0.pt named.pt", "named.pt lacks fc.weight, fc.bias, norm.running_mean, ... and has other.weight, unlike 0.pt; a"),
    ("0.pt half.pt", "half.pt has fc.weight in float16, 0.pt in float32; a run holds models of one architecture and p"),
    ("0.pt 1.pt --start wide.pt", "0.pt has fc.weight of shape [3, 2], wide.pt of [4, 2]; a run holds models of one a"),
    ("0.pt 1.pt --global wide.pt", "wide.pt has fc.weight of shape [4, 2], 0.pt of [3, 2]"),
    ("0.pt 1.pt ./0.pt", "0.pt is given twice, so it would be two clients; give each file once"),
    ("0.pt --start 0.pt", "0.pt: no client's model is left; give more files than --start and --global"),
    ("flower.npz", "flower.npz holds arrays without names, so the architecture is needed; give --model"),
    ("0.pt --model mlp --data digits", "0.pt lacks fc1.weight, fc1.bias, fc2.weight, ... and has fc.weight, fc.bias, "),
    ("whole.pt --model torch.nn:Linear(2,3)", 'all of them are there behind the prefix "fc.", beside norm.running_'),
    (
        "bytes.pt --model torch.nn:Linear(2,3)",
        "bytes.pt: weight is int8, so the weights are quantised, and the mean of ",
    ),
    ("0.pt --model nothing", "'nothing' is not a model that fedscope knows; it has alexnet-gn, cnn"),
    ("mid/{round}-{client}.pt --start starts/{round}.pt", "starts/02.pt and starts/2.pt are both --start of round 2"),
    (
        "mid/{round}-{client}.pt --start mid/s{round}.pt",
        "--start mid/s2.pt is of round 2, of which there is no client's",
    ),
    ("ckpt/{round}/c.pt", "ckpt/{round}/c.pt does not say which client a model belongs to; write {client}"),
    ("ckpt/{epoch}/{client}.pt", "ckpt/{epoch}/{client}.pt: {epoch} is not a placeholder; {round} and {client} are"),
    ("no/{client}.pt", "no/{client}.pt matches no file: there is no no; check the path"),
    ("ckpt/round-{round}/{client}.pt", "ckpt/round-{round}/{client}.pt matches no file; ckpt holds round-1, round-2"),
    ("twice/client-{client}.pt", "twice/client-1.pt and twice/client-01.pt are both client 1 of round 1; keep one of"),
    ("ROUNDS 0.pt", "ckpt/round-{round}/client-{client}.pt is a pattern, which stands for all files; give it alone"),
    ("ROUNDS --start starts/{round}.pt", "starts/02.pt and starts/2.pt are both --start of round 2; keep one of them"),
    ("ROUNDS --start no{round}.pt", "no{round}.pt matches no file; . holds 0.pt, 1.pt, "),
    ("ROUNDS --start ckpt/{round}-{client}.pt", "--start ckpt/{round}-{client}.pt has {client}, but all clients of a "),
    ("0.pt 1.pt --start late/{round}.pt", "--start late/{round}.pt has {round}, but 0.pt has not; give a file, or {ro"),
    ("ROUNDS --start late/{round}.pt", "--start late/0.pt is of round 0, of which there is no client's file (ckpt/rou"),
    ("ROUNDS --global late/{round}.pt", "--global late/0.pt is of round 0, of which there is no client's file (ckpt/r"),
    ("ROUNDS --global 0.pt", "--global 0.pt is one file, but ckpt/round-{round}/client-{client}.pt has 2 rounds; writ"),
    ("0.pt 1.pt --samples 3", "--samples gives 1 number, but there are 2 clients (0, 1); give one a client, in their"),
    ("0.pt 1.pt --samples 3,-1", "--samples is '-1', which is not a whole number from 0 on; correct it"),
    ("0.pt 1.pt --samples 3,1.5", "--samples is '1.5', which is not a whole number from 0 on; correct it"),
    ("0.pt 1.pt --samples 0,0", "--samples: no client of round 1 has any; give numbers above 0"),
    ("0.pt 1.pt --samples gone.csv", "--samples gone.csv does not exist; give 10,20,30 or a .csv"),
    ("0.pt 1.pt --samples none.csv", "--samples none.csv has columns of no name, and no client; its first line is cli"),
    ("0.pt 1.pt --samples columns.csv", "--samples columns.csv has columns id, n, and no client; its first line is c"),
    ("0.pt 1.pt --samples lacking.csv", "--samples lacking.csv has none of client 1 of round 1; add them"),
    (
        "0.pt 1.pt --samples words.csv",
        "--samples words.csv, line 3: samples is 'many', which is not a whole number from ",
    ),
    ("0.pt 1.pt --samples again.csv", "--samples again.csv, line 3: client 0 of round 1 is there twice; keep"),
    ("0.pt plane.npz", "plane.npz is a surface, and 0.pt is a model; import surfaces one by one, models with --out "),
    ("plane.npz s.h5", "plane.npz is a surface, and so is s.h5; import surfaces one by one, models with --out runs/NA"),
    ("plane.npz --start 0.pt", "--start 0.pt is for models, but plane.npz is not a model; leave it out"),
    ("plane.npz --global 0.pt", "--global 0.pt is for models, but plane.npz is not a model; leave it out"),
    ("0.pt 1.pt --split test", "--split test is for a surface, but 0.pt is not a surface; leave it out"),
    ("0.pt 1.pt --redraw", "--redraw is for a surface, but 0.pt is not a surface; leave it out"),
]


@pytest.mark.parametrize(("words", "message"), REFUSED, ids=[words for words, _ in REFUSED])
def test_what_no_run_is_made_of_is_named_and_leaves_nothing(
    wrong: None, capsys: pytest.CaptureFixture[str], words: str, message: str
) -> None:
    given = ["import", *words.replace("ROUNDS", ROUNDS).split(), "--out", "new"]
    said = refused(capsys, *given)
    assert message in said
    assert "new holds" not in said
    assert not Path("new").exists()


def test_several_models_need_a_place_and_one_needs_no_import(wrong: None, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, "import", "0.pt", "1.pt")
    assert "a run is made of 0.pt, and its folder is missing; give --out runs/NAME" in said
    assert "0.pt is a model, which needs no import: give it to `fedscope plane`" in refused(capsys, "import", "0.pt")
    assert told(capsys, "import", "0.pt", "--out", "one") == "one: 1 round of 1 client, 9 parameters in float32\n"
    with pytest.raises(FedscopeError, match="no files were given; give model files, a folder of them, or a pattern"):
        import_models([], "new")
    with pytest.raises(FedscopeError, match=r"plane.npz is a surface, not a model; `fedscope import plane.npz` draws"):
        import_models(["plane.npz"], "new")
    with pytest.raises(FedscopeError, match="data was given as dict, but a run keeps their name; give digits, npz:P"):
        import_models(["0.pt"], "new", data={})  # type: ignore[arg-type]


def test_a_run_that_is_there_stays_until_its_successor_is_known_to_be_one(
    wrong: None, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["import", "0.pt", "1.pt", "--out", "run"]
    told(capsys, *words)
    kept = Path("run/rounds/00001.h5").read_bytes()
    there = "run exists and holds a run with 1 round; give --force to replace it, or another --out"
    assert there in refused(capsys, *words)
    assert there in refused(capsys, "import", "0.pt", "text.pt", "--out", "run")  # before any file is read
    assert "text.pt is truncated" in refused(capsys, "import", "0.pt", "text.pt", "--out", "run", "--force")
    assert "others exists and holds something else than a run of fedscope; give another --out" in refused(
        capsys, *words[:-1], "others", "--force"
    )
    assert Path("run/rounds/00001.h5").read_bytes() == kept
    told(capsys, "import", "1.pt", "0.pt", "--out", "run", "--force")
    same(Run.open("run").round(1).client(0).arrays(), small(1))


# --- in the middle of it ---


def test_rounds_before_a_mistake_or_an_interrupt_are_whole(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for t in range(1, 6):
        for k in (0, 1):
            put(f"ckpt/round-{t}/client-{k}.pt", small(k, size=4 if (t, k) == (4, 1) else 3))
    said = refused(capsys, "import", ROUNDS, "--out", "run")
    assert "client-1.pt has fc.weight of shape [4, 2], ckpt/round-1/client-0.pt of [3, 2]; a run" in said
    assert said.endswith("; run holds rounds 1 to 3, and --force replaces it\n")
    assert Run.open("run").rounds == (1, 2, 3)

    from fedscope.checkpoints.recorder.read_files import FileReader

    read, seen = FileReader.read, []

    def stopped(reader: FileReader, path: Path) -> Any:
        seen.append(path)
        if len(seen) == 6:
            raise KeyboardInterrupt
        return read(reader, path)

    monkeypatch.setattr(FileReader, "read", stopped)
    assert run(["import", ROUNDS, "--out", "stopped"]) == 130
    assert Run.open("stopped").rounds == (1, 2)
    assert "stopped; what was complete is kept" in capsys.readouterr().err
    told(capsys, "ls", "--check", "stopped")


def test_a_full_disk_ends_it(here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from fedscope.checkpoints.runs.writer import RunWriter

    for t in (1, 2, 3):
        put(f"ckpt/round-{t}/client-0.pt", small(t))
    write = RunWriter.write_image

    def full(writer: RunWriter, number: int, *rest: Any) -> None:
        if number == 2:
            raise OSError(28, "No space left on device")
        write(writer, number, *rest)

    monkeypatch.setattr(RunWriter, "write_image", full)
    said = refused(capsys, "import", ROUNDS, "--out", "run")
    assert "/run: recording has ended, because " in said
    assert "it is readable up to round 1; give another --out, or --force" in said
    assert "training" not in said
    assert Run.open("run").rounds == (1,)


def test_it_is_told_how_many_files_are_read(here: Path) -> None:
    for k in (0, 1):
        put(f"{k}.pt", small(k))
    put("start.pt", small(2))
    told: list[tuple[int, int]] = []
    quietly(["0.pt", "1.pt"], "run", start="start.pt", progress=lambda done, of: told.append((done, of)))
    assert told == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.programs
def test_memory_is_two_rounds_of_files(tmp_path: Path) -> None:
    size = 2_000_000
    for name, rounds, n in (("small", 1, 1000), ("large", 3, size)):
        (tmp_path / name).mkdir()
        for t in range(rounds):
            for k in range(10):
                np.savez(tmp_path / name / f"{t}-{k}.npz", w=np.full(n, k, np.float32))
    code = """
        import re, sys, time, warnings
        from pathlib import Path
        from fedscope import import_models
        from fedscope.checkpoints.runs.writer import RunWriter
        warnings.simplefilter("ignore")
        write = RunWriter.write_image
        def slowly(*rest):  # a disk that is behind
            time.sleep(0.4)
            write(*rest)
        RunWriter.write_image = slowly
        def most():  # not ru_maxrss, which a child has from its parent
            return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
        folder = sys.argv[1]
        import_models(folder + "/small/{round}-{client}.npz", folder + "/a")
        before = most()
        import_models(folder + "/large/{round}-{client}.npz", folder + "/b")
        print(most() - before)
    """
    command = [sys.executable, "-P", "-c", textwrap.dedent(code), str(tmp_path)]
    # what is freed goes back to the system at once
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "100000"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    # the two, their mean in double precision, the global model before, what is looked at of them to tell the server,
    # and room at the end of a growing buffer; a round that is kept too long makes it 3.4
    assert int(done.stdout) * 1024 / (10 * size * 4) < 3


def test_run_json_names_a_thousand_files_at_most(here: Path) -> None:
    from fedscope.checkpoints.recorder.match_files import CheckpointFiles, RoundFiles
    from fedscope.checkpoints.recorder.record_files import provenance_of_files

    clients = {k: Path(f"{k}.pt") for k in range(700)}
    rounds = tuple(RoundFiles(t, clients, Path("s.pt"), None) for t in (4, 5))
    found = provenance_of_files(CheckpointFiles(rounds, {"clients": "{client}.pt"}, []))
    assert (found["clients"], found["2/client-297"], found["..."]) == ("{client}.pt", "297.pt", "and 402 more")
    assert len(found) == 1002
    assert "2/client-298" not in found
    put("0.pt", small(0))
    assert "..." not in quietly(["0.pt"], "run").info["imported"]
    info = json.loads(Path("run/run.json").read_text())
    Path("run/run.json").write_text(json.dumps({**info, "files": {}, "imported": ["0.pt"]}))
    with pytest.raises(FedscopeError, match=r"run.json says imported = \['0.pt'\], which should be an object of texts"):
        Run.open("run")
