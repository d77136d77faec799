"""Imports whose global models a server makes: those that a training has made, and those of ``reaggregate``."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import fedscope
from fedscope.checkpoints import FedscopeError, Run, Weights
from fedscope.checkpoints.models.weights import from_bfloat16, to_bfloat16
from fedscope.cli.main import run as command
from fedscope.decomposition.reaggregation.aggregate import reaggregate
from fedscope.decomposition.reaggregation.requested_servers import reaggregating_config
from fedscope.methods import Cohort, Served, ServerMethod, State, setting
from fedscope.training.settings.registry import find, names

ROUNDS = 3
#: what a server of a run needs besides its name
WITH: dict[str, dict[str, Any]] = {"fedmoswa": {"client.method": "fedmoswa"}, "fedacg": {"client.method": "fedacg"}}


def counting(name: str) -> bool:
    server = find("servers", name)
    return server.counts_steps or server.counts_clients


SERVERS = [name for name in names("servers") if not counting(name) and name not in ("greedy", "fisher", "regmean")]


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with data that networks have learnt from."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    y = np.arange(300) % 3
    x = (draw.normal(size=(300, 6)) + 2 * np.eye(6)[y]).astype(np.float32)
    np.savez("data.npz", x_train=x[:200], y_train=y[:200], x_test=x[200:], y_test=y[200:])
    return tmp_path


@pytest.fixture
def save(folder: Path) -> Callable[..., list[Path]]:
    """Write the files of some networks that were trained a little on the data."""

    def files(count: int, dtype: torch.dtype = torch.float32, ahead: str = "") -> list[Path]:
        data, paths = np.load("data.npz"), []
        x, y = torch.tensor(data["x_train"]), torch.tensor(data["y_train"])
        for k in range(count):
            torch.manual_seed(k)
            net = network()
            steps = torch.optim.SGD(net.parameters(), lr=0.1)
            for _ in range(10):
                rows = torch.randperm(200)[:50]
                steps.zero_grad()
                nn.functional.cross_entropy(net(x[rows]), y[rows]).backward()
                steps.step()
            state = {n: v.to(dtype) if v.is_floating_point() else v for n, v in net.state_dict().items()}
            paths.append(Path(f"{ahead}{k}.safetensors"))
            save_file(state, paths[-1])
        return paths

    return files


HOW: dict[str, Any] = {"model": "tests.landscape.interchange.test_served_imports:network", "data": "npz:data.npz"}


def imported(files: Any, out: str = "run", **how: Any) -> tuple[Run, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = fedscope.import_models(files, out, **how)
    return run, [str(one.message) for one in caught]


@pytest.mark.parametrize("server", SERVERS)
def test_the_models_are_those_of_a_training_whose_clients_were_kept(tmp_path: Path, server: str) -> None:
    """Every server makes, of the files of a training's clients, the models that it made there, bit for bit: the state,
    the counts of samples and what is sent in place of the model go from round to round as in the training."""
    trained = tmp_path / "trained"
    settings: dict[str, Any] = {
        "data.clients": 6,
        "data.partition": "dirichlet:0.5",
        "run.rounds": ROUNDS,
        "run.participation": 0.7,
    }
    settings |= {"client.epochs": 1, "server.method": server, "average.method": "none", **WITH.get(server, {})}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fedscope.train(settings, trained)
    run, counts = Run.open(trained), ["round,client,samples"]
    for t in run.rounds:
        round_ = run.round(t)
        for k, n in zip(round_.client_ids.tolist(), round_.client_samples.tolist(), strict=True):
            np.savez(tmp_path / f"{t}-{k}.npz", **round_.client(k).arrays())
            counts.append(f"{t},{k},{n}")
    np.savez(tmp_path / "start.npz", **run.round(1).read("start").arrays())
    (tmp_path / "samples.csv").write_text("\n".join(counts))
    made, notes = imported(
        f"{tmp_path}/{{round}}-{{client}}.npz",
        f"{tmp_path}/made",
        start=tmp_path / "start.npz",
        samples=tmp_path / "samples.csv",
        server=server,
    )
    for t in run.rounds:
        for which in ("start", "global"):
            want, found = run.round(t).read(which).arrays(), made.round(t).read(which).arrays()
            assert all(np.array_equal(want[name], found[name]) for name in want), (t, which)
    assert server == "fma" or f"global is what the server {server} makes of the clients" in notes
    assert made.info.get("served", {}).get("server") == (None if server == "fma" else server)


@dataclass(frozen=True)
class Doubles(ServerMethod):
    """Doubles in place what it is given, in one of its functions."""

    where: str = setting("step", "the function")

    def init(self, w: np.ndarray) -> State:
        if self.where == "init":
            w *= 2
        return {}

    def step(self, state: State, start: Weights, clients: Weights, cohort: Cohort) -> Served:
        if self.where == "step":
            clients.parameters[0] *= 2
        return Served(clients.parameters[0])


@pytest.mark.parametrize(("where", "what"), [("init", "w"), ("step", "clients.parameters")])
def test_a_server_of_ones_own_does_not_change_what_the_files_hold(
    save: Callable[..., list[Path]], where: str, what: str
) -> None:
    with pytest.raises(
        FedscopeError, match=rf":Doubles\.{where} changes {what} in place \(line \d+ of test_served_imp"
    ):
        imported(save(3), server=Doubles(where=where), start=save(1, ahead="start-")[0])


@pytest.mark.parametrize(
    ("server", "settings"),
    [("greedy", {}), ("fisher", {"samples": 20}), ("regmean", {"samples": 50}), ("ties", {"density": 0.4})],
)
def test_the_model_is_that_of_reaggregate(
    save: Callable[..., list[Path]], server: str, settings: dict[str, Any]
) -> None:
    """Also of servers that look at what models do, on the same samples in the same scale."""
    base, *paths = save(4)
    plain, _ = imported(paths, "plain", start=base, **HOW)
    want = fedscope.reaggregate("plain@1", [server], settings=settings, **HOW).models[server].arrays()
    run, notes = imported(paths, start=base, server=server, server_settings=settings, **HOW)
    found = run.round(1).read("global").arrays()
    assert all(np.array_equal(want[name], found[name]) for name in want)
    mean = plain.round(1).read("global").parameters
    assert not np.array_equal(run.round(1).read("global").parameters, mean)
    assert run.info["served"]["server"] == server
    assert settings.items() <= run.info["served"]["settings"].items()
    chosen = [note for note in notes if "has chosen client" in note]
    assert len(chosen) == (server == "greedy")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_models_keep_their_precision(save: Callable[..., list[Path]], dtype: torch.dtype) -> None:
    """The server computes in the precision that questions read, and its numbers are rounded to the nearest of the
    files'."""
    paths = save(3, dtype)
    run, _ = imported(paths, server="slerp")
    states = [{n: v.to(torch.float64).numpy() for n, v in load_file(path).items()} for path in paths]
    assert {entry.stored or entry.dtype for entry in run.layout.parameters} == {str(dtype).removeprefix("torch.")}
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    for k, state in enumerate(states):
        save_file(
            {n: torch.tensor(v).to(wide) for n, v in state.items() if "num_batches" not in n}, f"wide-{k}.safetensors"
        )
    whole, _ = imported([f"wide-{k}.safetensors" for k in range(3)], "wide", server="slerp")
    want, found = whole.round(1).read("global").arrays(), run.round(1).read("global").arrays()
    for name in (entry.name for entry in run.layout.parameters):
        assert np.array_equal(torch.tensor(want[name]).to(dtype).to(wide).numpy(), found[name])


def test_a_bfloat16_is_the_nearest_one() -> None:
    draw = np.random.default_rng(0)
    values = draw.normal(size=1000) * 10.0 ** draw.integers(-30, 30, 1000)
    want = torch.tensor(values).to(torch.bfloat16).to(torch.float32).numpy()
    assert np.allclose(from_bfloat16(to_bfloat16(values)), want, rtol=2**-8)
    exact = from_bfloat16(to_bfloat16(values)).astype(np.float64)
    assert (np.abs(exact - values) <= np.abs(want.astype(np.float64) - values)).all()


def test_code_of_ones_own_makes_the_models(save: Callable[..., list[Path]]) -> None:
    from fedscope.methods import Served, ServerMethod

    class Last(ServerMethod):
        """The model of the last client."""

        forgets_start = True

        def step(self, state: Any, start: Any, clients: Any, cohort: Any) -> Served:
            return Served(np.array(clients.parameters[-1]))

    run, notes = imported(save(3), server=Last)
    assert np.array_equal(run.round(1).read("global").parameters, run.round(1).client(2).parameters)
    assert any("Last makes of the clients" in note for note in notes)


def test_the_command_makes_the_model_and_says_it(
    save: Callable[..., list[Path]], capsys: pytest.CaptureFixture[str]
) -> None:
    base, *paths = save(4)
    words = ["--start", str(base), "--server", "ties", "--set", "server.density=0.5", "--out", "runs/ties"]
    assert command(["import", *map(str, paths), *words]) == 0
    assert "global is what the server ties makes of the clients" in capsys.readouterr().err
    said = json.loads(Path("runs/ties/run.json").read_text())["served"]
    assert said["server"] == "ties"
    assert said["settings"]["density"] == 0.5
    assert command(["reaggregate", "runs/ties@1", "--server", "ties", "--set", "server.density=0.5", *_asked()]) == 0
    assert "bit for bit" in capsys.readouterr().out


def test_the_command_takes_one_server(save: Callable[..., list[Path]], capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(path) for path in save(3)]
    assert command(["import", *paths, "--server", "slerp", "--server", "fedsa", "--out", "run"]) == 2
    assert "--server slerp and --server fedsa would each make the run's model; give one" in capsys.readouterr().err
    assert command(["import", *paths, "--server", "slerp", "--out", "run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["server"] == "slerp"
    np.savez("plane.npz", grid=np.zeros((2, 2, 2)))
    assert command(["import", "plane.npz", "--set", "server.density=0.5"]) == 2
    assert "--set server.density=0.5 is for models, but plane.npz is not a model" in capsys.readouterr().err


@pytest.mark.parametrize("server", ["ties", "slerp", "fedadam", "model-stock", "fedgma"])
def test_clients_of_a_large_round_are_put_on_the_disk(
    save: Callable[..., list[Path]], monkeypatch: pytest.MonkeyPatch, server: str
) -> None:
    base, *paths = save(4)
    run, _ = imported(paths, "memory", start=base, server=server)
    monkeypatch.setattr("fedscope.training.local.cohort_storage.HELD", 0)
    disk, _ = imported(paths, "runs/disk", start=base, server=server)
    assert np.array_equal(run.round(1).read("global").parameters, disk.round(1).read("global").parameters)


def _asked() -> list[str]:
    return ["--model", HOW["model"], "--data", HOW["data"], "--out", "figures/ties"]


def test_adapters_are_averaged_as_products(folder: Path) -> None:
    """The product of the mean is the matrix of rank 2 nearest to the mean of the products, which the mean of factors is
    not."""
    draw = np.random.default_rng(1)
    pairs = [(draw.normal(size=(2, 5)), draw.normal(size=(4, 2))) for _ in range(3)]
    for k, (a, b) in zip((0, 1, 2, "start"), [*pairs, pairs[0]], strict=True):
        np.savez(f"{k}.npz", **{"q.lora_A.weight": a.astype(np.float32), "q.lora_B.weight": b.astype(np.float32)})
    run, _ = imported([f"{k}.npz" for k in range(3)], start="start.npz", server="lora", lora_alpha=2.0)
    found = run.round(1).read("global").arrays()
    left, sizes, right = np.linalg.svd(sum(b @ a for a, b in pairs) / 3)
    want = (left[:, :2] * sizes[:2]) @ right[:2]
    assert np.allclose(found["q.lora_B.weight"] @ found["q.lora_A.weight"], want, atol=1e-5 * sizes[0])
    factors = np.mean([b for _, b in pairs], 0) @ np.mean([a for a, _ in pairs], 0)
    assert not np.allclose(factors, want, atol=1e-1 * sizes[0])


def test_adapters_are_averaged_as_their_configuration_says(folder: Path) -> None:
    """Of experts it alone says the rank; the model is the one that ``reaggregate`` makes, bit for bit."""
    draw = np.random.default_rng(1)
    about = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_parameters": ["mlp.gate_up_proj"]}
    for k in ("0", "1", "2", "start"):
        Path(k).mkdir()
        factors = {"lora_A": draw.normal(size=(6, 5)), "lora_B": draw.normal(size=(7, 6))}
        tensors = {f"base_model.model.mlp.{n}.weight": torch.tensor(v).float() for n, v in factors.items()}
        save_file(tensors, f"{k}/adapter_model.safetensors")
        Path(f"{k}/adapter_config.json").write_text(json.dumps(about))
    run, _ = imported(["0", "1", "2"], start="start", server="lora")
    (made,) = reaggregate(run, 1, [reaggregating_config(run, 1, "lora")])
    found = run.round(1).read("global")
    assert np.array_equal(found.parameters, made.weights.parameters)
    plain, _ = imported(["0", "1", "2"], "plain", start="start")
    assert not np.allclose(found.parameters, plain.round(1).read("global").parameters)


def test_every_layer_by_a_server_of_its_own_needs_no_other(save: Callable[..., list[Path]]) -> None:
    """Nobody has to name the server of layers that are not left; statistics have the weights of their own server."""
    imported(save(4), "plain")
    whole = fedscope.reaggregate("plain@1", ["checkpoints", "fedsa"], **HOW)
    words = "normalization statistics averaged as the weights are, "
    assert f"{words}with p, and for checkpoints with weights of its own" in whole.notes()
    found = fedscope.reaggregate("plain@1", layers={"*": "checkpoints"}, **HOW)
    assert [row.model for row in found.measured][-1] == "*=checkpoints"
    (model,) = found.models.values()
    aged, other = whole.models["checkpoints"].arrays(), whole.models["fedsa"].arrays()
    assert all(np.array_equal(values, aged[name]) for name, values in model.arrays().items())
    assert not np.array_equal(aged["1.running_mean"], other["1.running_mean"])
    assert fedscope.reaggregate("plain@1", layers={"*": "personal"}, **HOW).measured[-1].clients == 4
    assert f"{words}with p, for every server" in fedscope.reaggregate("plain@1", "fedsa", **HOW).notes()
    with pytest.raises(FedscopeError) as caught:
        fedscope.reaggregate("plain@1", "fma", layers={"*": "checkpoints"}, **HOW)
    assert str(caught.value) == ("layers name every layer, so none is left for servers='fma'; leave servers out")
    with pytest.raises(FedscopeError, match=r"does not say its server, which aggregates the other layers; give server"):
        fedscope.reaggregate("plain@1", layers={"0": "checkpoints"}, **HOW)


def test_a_round_begins_at_the_model_of_the_round_before(save: Callable[..., list[Path]]) -> None:
    base, *paths = save(5)
    for place, path in enumerate(paths):
        path.rename(f"r{place // 2 + 1}-c{place % 2}.safetensors")
    run, notes = imported("r{round}-c{client}.safetensors", start=base, server="fedadam")
    first, second = run.round(1), run.round(2)
    assert np.array_equal(second.read("start").parameters, first.read("global").parameters)
    clause = (
        "start of round 2 is global of the round before, as fedadam makes it; if another model was sent, give start="
    )
    assert clause in notes


def test_clients_of_no_weight_have_no_part(save: Callable[..., list[Path]]) -> None:
    base, *paths = save(4)
    run, _ = imported(paths, start=base, server="task-arithmetic", samples=[10, 0, 20])
    want, _ = imported([paths[0], paths[2]], "two", start=base, server="task-arithmetic", samples=[10, 20])
    assert np.array_equal(run.round(1).read("global").parameters, want.round(1).read("global").parameters)


@dataclass(frozen=True)
class Refused:
    how: dict[str, Any]
    sentence: str


@pytest.mark.parametrize(
    "case",
    [
        Refused({"server": "tise"}, r"tise.*did you mean .ties"),
        Refused({"server": 3}, r"^server= is "),
        Refused(
            {"server": "fedprox"}, r"^server='fedprox': that is what clients do, and only servers can be exchanged"
        ),
        Refused(
            {"server": "fednova"}, r"counts local steps, which files of models do not say; give another server, or"
        ),
        Refused({"server": "feddyn"}, r"counts all clients, which files of models do not say"),
        Refused({"server": "ties"}, r"run@1 has no model that the clients were sent, from which server='ties' steps; "),
        Refused(
            {"server": "greedy"}, r"^server='greedy' needs model=, because it looks at what the models do; give it"
        ),
        Refused(
            {"server": "regmean", "model": HOW["model"]}, r"^server='regmean' needs data=, because it looks at what"
        ),
        Refused(
            {"server": "slerp", "global_": "1.safetensors"}, r"makes the models that global_='1.safetensors' gives"
        ),
        Refused({"server_settings": {"density": 0.1}}, r"server.density=0.1 is for a server, and none is given"),
        Refused({"server": "slerp", "server_settings": {"density": 0.1}}, r"density"),
        Refused(
            {"server": "slerp", "server_settings": ["client.lr=0.1"]}, r"nothing is trained here, so only the serv"
        ),
        Refused(
            {"server": "slerp", "server_settings": ["server.method=ties"]}, r"chooses a server; give server='ties'"
        ),
    ],
)
def test_what_no_server_can_make_is_refused(save: Callable[..., list[Path]], case: Refused) -> None:
    with pytest.raises(FedscopeError, match=case.sentence):
        imported(save(2), **case.how)
    assert not Path("run").exists()


def test_one_client_is_nothing_to_make_a_model_of(save: Callable[..., list[Path]]) -> None:
    with pytest.raises(FedscopeError, match=r"run@1 has one client alone, of which server='slerp' has nothing to make"):
        imported(save(1), server="slerp")


def test_a_round_without_a_start_behind_a_gap_says_what_stays(save: Callable[..., list[Path]]) -> None:
    base, *paths = save(5)
    for place, path in enumerate(paths):
        path.rename(f"r{1 + 3 * (place // 2)}-c{place % 2}.safetensors")
    words = r"run@2 has no model that the clients were sent, from which .* steps; .*; run holds round 1, and force=True"
    with pytest.raises(FedscopeError, match=words):
        imported("r{round}-c{client}.safetensors", start=base, server="fedadam")
    assert Run.open("run").rounds == (1,)


def test_an_interrupted_import_is_not_gone_on_with_by_another_server(save: Callable[..., list[Path]]) -> None:
    for place, path in enumerate(save(4)):
        path.rename(f"r{place // 2 + 1}-c{place % 2}.safetensors")
    whole = Path("r2-c1.safetensors").read_bytes()
    Path("r2-c1.safetensors").write_bytes(b"torn")
    pattern = "r{round}-c{client}.safetensors"
    with pytest.raises(FedscopeError, match=r"r2-c1"):
        imported(pattern, server="slerp")
    Path("r2-c1.safetensors").write_bytes(whole)
    with pytest.raises(FedscopeError, match=r"interrupted, with other server="):
        imported(pattern, server="fedsa")
    run, _ = imported(pattern, server="slerp")
    assert run.rounds == (1, 2)


def test_an_interrupted_import_is_not_gone_on_with_by_edited_code(save: Callable[..., list[Path]]) -> None:
    for place, path in enumerate(save(4)):
        path.rename(f"r{place // 2 + 1}-c{place % 2}.safetensors")
    whole = Path("r2-c1.safetensors").read_bytes()
    Path("r2-c1.safetensors").write_bytes(b"torn")
    code = "from fedscope.training.methods.servers.fma import FMA\n\n\nclass Mine(FMA):\n    pass\n"
    Path("mine_server.py").write_text(code)
    pattern, server = "r{round}-c{client}.safetensors", "mine_server.py:Mine"
    with pytest.raises(FedscopeError, match=r"r2-c1"):
        imported(pattern, server=server)
    Path("r2-c1.safetensors").write_bytes(whole)
    Path("mine_server.py").write_text(f"{code}    # edited\n")
    with pytest.raises(FedscopeError, match=r"interrupted, with other server="):
        imported(pattern, server=server)
    # an earlier fedscope kept no sum
    info = json.loads(Path("run/run.json").read_text())
    del info["files"], info["served"]["sha256"]
    Path("run/run.json").write_text(json.dumps(info))
    run, _ = imported(pattern, server=server)
    assert run.rounds == (1, 2)


# --- tied weights ---


def tied() -> nn.Module:
    made = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6), nn.Linear(6, 3))
    made[2].weight = made[0].weight
    return made


def tied_state(seed: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(seed)
    return dict(tied().state_dict())


@pytest.mark.parametrize("kept", ["one memory", "one name", "equal numbers"])
@pytest.mark.parametrize("server", ["dare", "fedavgm", "ties"])
def test_a_tensor_with_two_names_keeps_one_value(folder: Path, server: str, kept: str) -> None:
    """As in ``reaggregate``, whoever says that it is one: the architecture, or the memory of every file."""
    files = []
    for seed in range(4):
        state, path = tied_state(seed), Path(f"t{seed}.safetensors")
        if kept == "one memory":
            torch.save(state, path := path.with_suffix(".pt"))
        elif kept == "one name":
            save_file({name: value for name, value in state.items() if name != "2.weight"}, path)
        else:
            save_file({name: value.clone() for name, value in state.items()}, path)
        files.append(path)
    how: dict[str, Any] = {} if kept == "one memory" else {"model": tied()}
    run, _ = imported(files[1:], start=files[0], server=server, **how)
    made = run.round(1).read("global").arrays()
    np.testing.assert_array_equal(made["0.weight"], made["2.weight"])
    plain, _ = imported(files[1:], "plain", start=files[0], **how)
    again = fedscope.reaggregate(f"{plain.path}@1", [server], model=tied(), data="npz:data.npz", standardise=False)
    np.testing.assert_array_equal(run.round(1).read("global").parameters, again.models[server].parameters)
    assert fedscope.subsets(run, model=tied(), data="npz:data.npz", standardise=False, split="test").findings()


def test_tensors_that_are_one_in_some_files_alone_are_two(folder: Path) -> None:
    state = [tied_state(seed) for seed in range(3)]
    torch.save(state[0], "0.pt")
    for k in (1, 2):
        torch.save(
            {name: value.clone() for name, value in state[k].items()} | {"2.weight": torch.ones(6, 6)}, f"{k}.pt"
        )
    run, _ = imported(["1.pt", "2.pt"], start="0.pt", server="dare")
    made = run.round(1).read("global").arrays()
    assert not np.array_equal(made["0.weight"], made["2.weight"])
