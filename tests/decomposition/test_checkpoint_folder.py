"""``wima`` of a folder of checkpoint files: which are read, in which order, and that it answers as an import does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import fedscope
from fedscope.checkpoints import FedscopeError
from fedscope.cli.main import run as command
from fedscope.decomposition.windows.checkpoint_files import find_checkpoints

STEPS = (0, 20, 40, 60, 80, 100)
ASKED: dict[str, Any] = {"data": "npz:data.npz", "windows": "2,all", "weights": "uniform,linear"}


def small() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 3))


def states() -> list[dict[str, torch.Tensor]]:
    torch.manual_seed(0)
    net, found = small(), []
    for k in range(len(STEPS)):
        with torch.no_grad():
            for values in net.parameters():
                values += 0.4 * torch.randn_like(values)
            net[1].running_mean += 0.1  # type: ignore[operator, union-attr]
            net[1].num_batches_tracked += k  # type: ignore[operator, union-attr]
        found.append({name: values.clone() for name, values in net.state_dict().items()})
    return found


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    x = random.normal(size=(90, 5)).astype(np.float32)
    y = (x @ random.normal(size=(5, 3))).argmax(axis=1)
    np.savez("data.npz", x_train=x[:50], y_train=y[:50], x_test=x[50:], y_test=y[50:])
    return tmp_path


def saved(folder: str, kind: str = "safetensors") -> Path:
    Path(folder).mkdir()
    for step, state in zip(STEPS, states(), strict=True):
        if kind == "pt":
            torch.save(state, f"{folder}/step-{step}.pt")
        else:
            save_file(state, f"{folder}/step-{step}.safetensors")
    return Path(folder)


def in_parts(folder: Path, state: dict[str, torch.Tensor], *, index: bool = True) -> None:
    folder.mkdir(parents=True)
    names, where = list(state), {}
    for k, own in enumerate((names[:4], names[4:]), start=1):
        part = f"model-{k:05d}-of-00002.safetensors"
        save_file({name: state[name] for name in own}, folder / part)
        where |= dict.fromkeys(own, part)
    if index:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))


@pytest.mark.parametrize("which", [2, len(STEPS) - 1])
def test_a_checkpoint_that_is_not_finite_is_named(here: Path, which: int) -> None:
    folder = saved("ckpt")
    state = states()[which]
    state["0.bias"] = torch.full_like(state["0.bias"], float("nan"))
    save_file(state, folder / f"step-{STEPS[which]}.safetensors")
    found = fedscope.wima(folder, model=small(), **ASKED)
    said = f"step-{STEPS[which]}.safetensors is not finite, so no mean with it exists"
    assert said in found.notes()
    assert [one.gained is None for one in found.means] == [which == 5, which == 5, True, which == 5, True]
    newest = "the newest checkpoint has no loss that means could be compared with"
    assert (newest in found.notes()) == (which == 5)


@pytest.mark.parametrize("kind", ["safetensors", "pt"])
def test_a_folder_answers_as_its_import(here: Path, kind: str) -> None:
    folder = saved("ckpt", kind)
    found = fedscope.wima(folder, model=small(), **ASKED)
    run = fedscope.import_models(folder, "run", model=small(), data="npz:data.npz", standardise=True)
    imported = fedscope.wima(f"{run.path}@1", checkpoints=True, model=small(), **ASKED)
    assert found.means == imported.means
    assert [one.window for one in found.means] == [1, 2, 6, 2, 6]
    assert found.attrs["normalization_policy"] == imported.attrs["normalization_policy"] == "averaged"
    assert found.attrs["names"] == [f"step-{step}.{kind}" for step in STEPS]  # 100 after 20
    assert fedscope.wima("ckpt", checkpoints=True, model=small(), **ASKED) == found


def test_files_are_read_where_they_lie_or_put_aside(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved("st"), saved("pt", "pt")
    aside = fedscope.wima("pt", model=small(), **ASKED)
    monkeypatch.setattr("fedscope.training.inputs.models.read_into_same", None)
    direct = fedscope.wima("st", model=small(), **ASKED)
    assert direct.means == aside.means
    assert list(direct.attrs["xxh3"].values()) == list(aside.attrs["xxh3"].values())
    assert len(set(direct.attrs["xxh3"].values())) == len(STEPS)


def test_folders_of_parts_are_checkpoints(here: Path) -> None:
    for step, state in zip(STEPS, states(), strict=True):
        in_parts(Path(f"out/checkpoint-{step}"), state, index=step != 40)
    save_file(states()[-1], "out/model.safetensors")  # as a trainer writes its last one
    saved("one")
    found = fedscope.wima("out", model=small(), **ASKED)
    assert found.means == fedscope.wima("one", model=small(), **ASKED).means
    assert found.attrs["names"] == [f"checkpoint-{step}" for step in STEPS]
    assert "left out, beside the checkpoints' folders: model.safetensors" in found.notes()
    Path("out/checkpoint-60/model-00002-of-00002.safetensors").unlink()
    with pytest.raises(FedscopeError, match=r"^out/checkpoint-60/model.*index.json: of a model's 2 parts mod.* is not"):
        fedscope.wima("out", model=small(), **ASKED)


def test_the_command_says_the_order_and_draws(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved("ckpt")
    Path("of_folder.py").write_text(
        "import torch\nfrom torch import nn\n\ndef net():\n"
        "    return nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))\n"
    )
    words = ["wima", "ckpt", "--model", "of_folder:net", "--data", "npz:data.npz", "--weights", "uniform"]
    assert command(words) == 0
    said = capsys.readouterr().out
    assert said.startswith("ckpt, test data, 40 samples: the newest of 6 checkpoints has a loss of")
    assert (
        "in the order of their names, numbers as numbers, the newest last: step-0.safetensors, step-20.safetensors, "
        "..., step-100.safetensors\n"
    ) in said
    base = Path("figures/wima-checkpoints-test-ckpt-uniform")
    for suffix in (".checkpoints.csv", ".checkpoints.json", ".pdf", ".png"):
        assert base.with_name(base.name + suffix).exists()
    rows = base.with_name(f"{base.name}.checkpoints.csv").read_text().splitlines()
    assert rows[1].startswith("ckpt,0,1,newest,")
    assert command(words) == 0
    assert "already holds this result" in capsys.readouterr().err
    save_file(states()[0], "ckpt/step-100.safetensors")  # another content
    assert command(words) == 2
    assert "holds another result, of files that have changed since; give another --out" in capsys.readouterr().err
    assert command([*words, "--json", "--force"]) == 0
    again = capsys.readouterr()
    assert json.loads(again.out)["notes"][0].startswith("in the order of their names")


@pytest.mark.parametrize("kind", ["safetensors", "pt"])
def test_files_of_another_network_are_named_with_the_tensor(here: Path, kind: str) -> None:
    folder = saved("ckpt", kind)
    other = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2)).state_dict()
    path = folder / f"step-40.{kind}"
    save_file(other, path) if kind == "safetensors" else torch.save(other, path)
    with pytest.raises(FedscopeError, match=rf"^ckpt/step-40\.{kind}.*2\.weight"):
        fedscope.wima("ckpt", model=small(), **ASKED)


def test_a_tied_tensor_that_is_stored_once_is_read_where_it_lies(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = torch.nn.Linear(5, 5), torch.nn.Linear(5, 5)
            self.two.weight = self.one.weight
            self.head = torch.nn.Linear(5, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.two(self.one(x)))

    Path("st").mkdir(), Path("pt").mkdir()
    for k in range(3):
        state = Tied().state_dict()
        torch.save(state, f"pt/{k}.pt")
        save_file({name: values for name, values in state.items() if name != "two.weight"}, f"st/{k}.safetensors")
    aside = fedscope.wima("pt", model=Tied(), **ASKED)
    monkeypatch.setattr("fedscope.training.inputs.models.read_into_same", None)
    assert fedscope.wima("st", model=Tied(), **ASKED).means == aside.means


@pytest.mark.same_elsewhere
def test_folders_without_several_checkpoints(here: Path) -> None:
    def refused(path: str, said: str) -> None:
        with pytest.raises(FedscopeError, match=said):
            find_checkpoints(Path(path))

    Path("empty").mkdir()
    refused("empty", r"^empty holds no checkpoint: no model's file \(\.pt, .*; it is empty; give another folder")
    Path("notes").mkdir()
    Path("notes/read.me").touch()
    refused("notes", r"^notes holds no checkpoint: .*; it holds read.me; give another folder, or RUN@ROUND$")
    Path("one").mkdir()
    torch.save({}, "one/step-1.pt")
    refused("one", r"^one holds one checkpoint \(step-1\.pt\), so there is nothing to average; give a folder of")
    in_parts(Path("parts"), states()[0])
    refused("parts", r"^parts holds one checkpoint \(model.safetensors.index.json, of 2 parts\), so there is nothing")
    in_parts(Path("few/last"), states()[0], index=False)
    refused("few", r"^few holds one checkpoint \(last\), so there is nothing to average")
    refused("few/last", r"^few/last holds one checkpoint \(2 parts of one model\), so there is nothing to average")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"windows": "7"}, r"^windows=7: ckpt has 6 checkpoints; give numbers up to 6, or all$"),
        ({"rounds": "1"}, r"^rounds='?1'? is of a run, but ckpt is a folder of checkpoints; leave it out$"),
        ({"parts": "features"}, r"^parts='features' is of a run's global models, but a folder of checkpoints was"),
        ({"data": None}, r"^ckpt/step-100\.safetensors is a plain file, which does not say its data; give data="),
        ({"model": None}, r"^ckpt/step-100\.safetensors is a plain file, which does not say its architecture; give"),
    ],
)
def test_what_is_refused(here: Path, given: dict[str, Any], said: str) -> None:
    saved("ckpt")
    with pytest.raises(FedscopeError, match=said):
        fedscope.wima("ckpt", **{**ASKED, "model": small(), **given})


def test_a_command_that_is_refused_ends_with_one_sentence(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty").mkdir()
    assert command(["wima", "empty"]) == 2
    assert "empty is not a run: it has no run.json" in capsys.readouterr().err
    assert command(["wima", "empty", "--model", "nets:small", "--data", "digits"]) == 2
    assert "fedscope: empty holds no checkpoint: " in capsys.readouterr().err
    assert command(["wima", "empty", "--checkpoints"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("fedscope: empty holds no checkpoint: ")
    assert said.count("\n") == 1
