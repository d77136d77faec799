"""Files that became clients, or checkpoints, and are copies of others, or models of the server's."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import fedscope
from fedscope.checkpoints import FedscopeWarning
from fedscope.cli.main import run as command

State = dict[str, Tensor]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def model(seed: int) -> State:
    draw = torch.Generator().manual_seed(seed)
    return {
        "w": torch.randn(8, 4, generator=draw),
        "b": torch.randn(4, generator=draw),
        "norm.num_batches_tracked": torch.tensor(seed),
    }


def put(models: dict[str, State], folder: str = "ck") -> str:
    for name, state in models.items():
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(state, path)
    return folder


def clients(count: int = 4) -> dict[str, State]:
    return {f"client_{k}.pt": model(k) for k in range(count)}


def mean(states: list[State], p: list[float] | None = None) -> State:
    shares = p or [1 / len(states)] * len(states)
    return {
        name: sum(w * one[name] for w, one in zip(shares, states, strict=True)).to(value.dtype)  # type: ignore[union-attr]
        for name, value in states[0].items()
    }


def told(files: Any, **how: Any) -> list[str]:
    """What an import says of its files."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fedscope.import_models(files, "run", force=True, **how)
    said = [str(one.message) for one in caught]
    return [
        one
        for one in said
        if not re.match("global is|start of round|run@", one) and not re.search("so no client|has diverged", one)
    ]


def test_a_copy_of_a_model_is_told(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lightning = {f"epoch={k}.ckpt": model(k) for k in range(4)}
    put({**lightning, "last.ckpt": model(3)}, "lit")
    said = "lit/epoch=3.ckpt, lit/last.ckpt hold the same weights, so one model counts as 2 clients; keep one of them"
    assert told("lit") == [said]
    assert command(["import", "lit", "--out", "typed"]) == 0
    assert capsys.readouterr().err.splitlines()[0] == f"fedscope: {said}"
    Path("lit/last.ckpt").unlink()
    assert told("lit") == []
    # of two files
    assert len(told(["lit/epoch=3.ckpt", put({"best.ckpt": model(3)}, "best") + "/best.ckpt"])) == 1
    # another counter of batches is another model
    put({"last.ckpt": {**model(3), "norm.num_batches_tracked": torch.tensor(9)}}, "lit")
    assert told("lit") == []


def test_copies_that_may_be_of_clients_that_did_not_train_are_not_all_to_be_thrown_away(here: Path) -> None:
    put({**clients(5), "client_1.pt": model(9), "client_3.pt": model(9)})
    said = "ck/client_1.pt, ck/client_3.pt hold the same weights, so one model counts as 2 clients; keep one, or give "
    assert told("ck") == [f"{said}start= if it is the model that was sent"]
    put({"sent.pt": model(9)}, "other")
    assert told("ck", start="other/sent.pt") == []
    put({"sent.pt": model(8)}, "other")
    assert told("ck", start="other/sent.pt")[0].endswith("; keep one of them")


def test_many_copies_are_few_sentences(here: Path) -> None:
    put({f"{name}-{k}.pt": model(k) for k in range(6) for name in "ab"})
    said = told("ck")
    assert len(said) == 4
    assert said[-1] == "3 more models have copies among the clients"


def test_the_servers_model_among_clients_is_told(here: Path) -> None:
    put({**clients(), "global.pt": mean([*clients().values()]), "server_init.pt": model(9)})
    called = (
        "ck/global.pt, ck/server_init.pt are clients 4, 5, called as a server's model is; if it is one, give it as "
        "global_= or start="
    )
    assert told("ck") == [called]
    assert told("ck", global_="ck/global.pt", start="ck/server_init.pt") == []
    put({"sent.pt": model(9)}, "other")
    content = "ck/server_init.pt holds the weights of start='other/sent.pt', and is client 5 besides; leave it out"
    assert content in told("ck", start="other/sent.pt")


@pytest.mark.parametrize("samples", [None, [10, 20, 30, 40, 7]])
def test_the_mean_of_the_others_is_told(here: Path, samples: list[int] | None) -> None:
    p = None if samples is None else [n / 100 for n in samples[:-1]]
    files = [f"ck/{name}" for name in [*clients(), "result.pt"]]
    put({**clients(), "result.pt": mean([*clients().values()], p)})
    said = ["ck/result.pt is client 4, and the mean of the others; if the server made it, give it as global_="]
    assert told(files, samples=samples) == said
    assert told(files[:-1], global_="ck/result.pt") == []
    put({"result.pt": model(4)})
    assert told(files, samples=samples) == []


@pytest.mark.parametrize("kind", ["round 0", "not trained", "interpolated", "globals", "names", "pattern", "diverged"])
def test_what_users_rightly_have_is_silent(here: Path, kind: str) -> None:
    start = model(9)
    how: dict[str, Any] = {}
    match kind:
        case "round 0":  # all clients begin alike
            put(dict.fromkeys(clients(), start))
        case "not trained":  # two dropped out, and sent back what they were sent
            put({**clients(), "client_4.pt": start, "client_5.pt": start, "start.pt": start})
            how = {"start": "ck/start.pt"}
        case "interpolated":
            line = [mean([model(0), model(1)], [1 - a, a]) for a in (0, 0.5, 1)]
            put({f"alpha-{a}.pt": state for a, state in zip((0, 50, 100), line, strict=True)})
        case "globals":  # of several rounds
            put({f"global_{k}.pt": model(k) for k in range(5)})
        case "names":
            put({f"{name}.pt": model(k) for k, name in enumerate(("server", "mobile", "global"))})
        case "pattern":  # whose names say that they are clients
            put({**clients(), "client_4.pt": model(3), "global.pt": model(7)})
            how = {"start": "ck/global.pt"}
        case "diverged":
            put({**clients(), "other.pt": {**model(7), "w": torch.full((8, 4), torch.inf)}})
    assert told("ck/client_{client}.pt" if kind == "pattern" else "ck", **how) == []


def net() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 3))


@pytest.mark.parametrize("kind", ["pt", "safetensors"])
def test_a_folder_of_checkpoints_names_copies(here: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    from safetensors.torch import save_file

    draw = np.random.default_rng(0)
    np.savez("data.npz", x_test=draw.normal(size=(20, 5)).astype(np.float32), y_test=np.arange(20) % 3)
    Path("lit").mkdir()
    states: dict[str, State] = {}
    for k in range(4):
        torch.manual_seed(k)
        states[f"epoch={k}"] = dict(net().state_dict())
    # its statistics were measured anew, as of an average
    states["swa"] = {**states["epoch=0"], "1.running_mean": torch.ones(4)}
    states["last"] = states["epoch=3"]
    for name, state in states.items():
        write = torch.save if kind == "pt" else save_file
        write({key: value.clone() for key, value in state.items()}, f"lit/{name}.{kind}")
    how: dict[str, Any] = {"model": net(), "data": "npz:data.npz", "standardise": False, "windows": "2"}
    copies = f"epoch=3.{kind}, last.{kind} hold the same weights"
    with pytest.warns(
        FedscopeWarning, match=f"^lit: {copies}, so means count one model several times; keep one of its"
    ):
        found = fedscope.wima("lit", **how)
    assert copies in found.notes()
    found.save("kept")
    assert json.loads(Path("kept.checkpoints.json").read_text())["attrs"]["copies"] == [
        [f"epoch=3.{kind}", f"last.{kind}"]
    ]
    Path(f"lit/last.{kind}").unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error", FedscopeWarning)
        assert not any("same weights" in note for note in fedscope.wima("lit", **how).notes())
