"""``model.weights``: what a training starts from, what is said of it, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from fedscope.checkpoints import FedscopeError, FedscopeWarning, Run
from fedscope.cli.main import run as command
from fedscope.training import Config, branch, build_module, load_data, resume, train
from fedscope.training.build import initial_model
from fedscope.training.loop.initial_model import first_model
from fedscope.training.models.model_info import ModelInfo, find_head
from fedscope.training.settings.registry import find

pytestmark = pytest.mark.usefixtures("few_digits")

State = dict[str, Tensor]
HIDDEN = [6]


def tables(weights: Path | str | None = "net.pt", model: str = "mlp", **own: Any) -> dict[str, Any]:
    return {
        "data": {"clients": 4, "partition": "iid"},
        "model": {"name": model, **({"hidden": HIDDEN} if model == "mlp" else {}), **own}
        | ({} if weights is None else {"weights": str(weights)}),
        "client": {"epochs": 1},
        "average": {"method": "none"},
        "run": {"rounds": 3, "participation": 0.5, "evaluate_clients": 0},
    }


def other(model: str = "mlp", classes: int = 10, **own: Any) -> State:
    """A model that run.seed 0 does not draw."""
    own = {"hidden": HIDDEN, **own} if model == "mlp" else own
    state: State = build_module(find("models", model)(**own), (1, 8, 8), classes, seed=9).state_dict()
    return state


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def starts_from(run: Run, state: State, but: tuple[str, ...] = ()) -> None:
    """Whether round 1 began with these tensors, bit for bit."""
    found = run.round(1).read("start").arrays()
    assert set(found) == set(state)
    differ = [name for name, array in found.items() if array.tobytes() != state[name].numpy().tobytes()]
    assert differ == list(but)


def npz(state: State, path: Path) -> None:
    np.savez(path, **{name: value.numpy() for name, value in state.items()})


def flower(state: State, path: Path) -> None:
    np.savez(path, *(value.numpy() for value in state.values()))


@pytest.mark.parametrize(
    ("name", "save"), [("net.pt", torch.save), ("net.safetensors", save_file), ("net.npz", npz), ("flower.npz", flower)]
)
def test_a_training_starts_from_the_model_in_the_file_bit_for_bit(
    name: str, save: Callable[[State, Path], None], here: Path
) -> None:
    save(other(), here / name)
    run = train(Config.read(tables(name)), "run")
    starts_from(run, other())
    assert run.config is not None
    assert run.config["model"]["weights"] == str(here / name), "from the root, whatever was typed"
    assert run.info["weights"]["path"] == str(here / name)
    assert len(run.info["weights"]["sha256"]) == 64
    assert run.info["weights"]["fresh"] == []


def test_without_a_file_the_model_is_drawn_and_nothing_is_said(here: Path) -> None:
    run = train(Config.read(tables(None)), "run")
    starts_from(run, build_module(find("models", "mlp")(hidden=HIDDEN), (1, 8, 8), 10).state_dict())
    assert "weights" not in run.info


def test_what_was_changed_on_the_way_is_said(here: Path) -> None:
    halves = {f"model.{name}": value.bfloat16() for name, value in other().items()}
    torch.save({"state_dict": halves, "epoch": 3}, "net.ckpt")
    with pytest.warns(FedscopeWarning, match=r'net\.ckpt: the prefix "model\." is taken off .*, 4 tensors of bfloat16'):
        run = train(Config.read(tables("net.ckpt")), "run")
    starts_from(run, {name: value.bfloat16().float() for name, value in other().items()})


# --- another head ---


@pytest.mark.parametrize("what", ["classes", "lacking"])
def test_a_head_of_other_classes_or_none_starts_fresh_and_the_rest_is_loaded(what: str, here: Path) -> None:
    state = other(classes=1000) if what == "classes" else {k: v for k, v in other().items() if "head" not in k}
    torch.save(state, "net.pt")
    said = {
        "classes": r"net\.pt: its head\.weight has shape \[1000, 6\], not \[10, 6\], so the head starts fresh$",
        "lacking": r"net\.pt: it has no head head, so the head starts fresh$",
    }
    with pytest.warns(FedscopeWarning, match=said[what]):
        run = train(Config.read(tables()), "run")
    drawn = build_module(find("models", "mlp")(hidden=HIDDEN), (1, 8, 8), 10).state_dict()
    starts_from(run, {**other(), **{name: drawn[name] for name in ("head.weight", "head.bias")}})
    assert run.info["weights"]["fresh"] == ["head.weight", "head.bias"]


def test_the_head_is_the_layer_that_the_configuration_names(here: Path) -> None:
    torch.save({**other(hidden=[6, 5]), "fc2.weight": torch.ones(7, 6)}, "net.pt")
    with pytest.warns(FedscopeWarning, match=r"its fc2\.weight has shape \[7, 6\], not \[5, 6\], so the head starts"):
        run = train(Config.read(tables(hidden=[6, 5], head="fc2")), "run")
    drawn = build_module(find("models", "mlp")(hidden=[6, 5]), (1, 8, 8), 10).state_dict()
    starts_from(run, {**other(hidden=[6, 5]), **{name: drawn[name] for name in ("fc2.weight", "fc2.bias")}})


def facts_for(module: Any, head: str | None = None) -> ModelInfo:
    from fedscope.checkpoints import Layout

    return ModelInfo(Layout.of(module), classes=10, head=find_head(module, head))


# --- files of other times and places ---


def test_counts_that_batch_norm_did_not_keep_once_are_zero(here: Path) -> None:
    state = other("resnet18")
    state = {name: value + 0.5 if name.endswith("running_mean") else value for name, value in state.items()}
    torch.save({name: value for name, value in state.items() if "num_batches" not in name}, "net.pt")
    config = Config.read(tables(model="resnet18"))
    module = build_module(config.model.architecture, (1, 8, 8), 10)
    found = first_model(config, module, facts_for(module)).weights.arrays()
    assert all(found[name].tobytes() == value.numpy().tobytes() for name, value in state.items())
    assert all(not value for name, value in found.items() if "num_batches" in name)
    assert initial_model(module).arrays()["fc.weight"].tobytes() != found["fc.weight"].tobytes()


@pytest.mark.slow
def test_older_names_of_the_vision_transformers_layers_are_known(here: Path) -> None:
    config = Config.read(tables(model="vit-b16"))
    module = build_module(config.model.architecture, (1, 32, 32), 10)
    today = build_module(config.model.architecture, (1, 32, 32), 10, seed=9).state_dict()
    once = {name.replace("mlp.0.", "mlp.linear_1.").replace("mlp.3.", "mlp.linear_2."): v for name, v in today.items()}
    assert set(once) != set(today)
    torch.save(once, "net.pt")
    found = first_model(config, module, facts_for(module)).weights.arrays()
    assert all(found[name].tobytes() == value.numpy().tobytes() for name, value in today.items())
    larger = build_module(config.model.architecture, (1, 48, 48), 10)
    with pytest.raises(
        FedscopeError,
        match=r"does not fit vit-b16 as it is set here: encoder\.pos_embedding has shape \[1, 5, 768\], not "
        r"\[1, 10, 768\]; take the settings and the image size that it was trained with, or another file$",
    ):
        first_model(config, larger, facts_for(larger))


# --- what is refused ---


def spoilt(**changes: Any) -> State:
    return {**other(), **changes}


@pytest.mark.parametrize(
    ("state", "own", "sentence"),
    [
        (
            other(hidden=[7]),
            {},
            r"model\.weights = '/.*net\.pt' does not fit mlp as it is set here: fc1\.weight has shape \[7, 64\], not "
            r"\[6, 64\], and 1 more differ; take the settings",
        ),
        (other(hidden=[6, 5]), {}, r"fc2\.weight, fc2\.bias unexpected$"),
        (other(), {"hidden": [6, 6]}, r"fc2\.weight, fc2\.bias missing$"),
        (other("cnn"), {}, r"fc1\.weight has shape \[384, 128\], not \[6, 64\]"),
        (spoilt(**{"fc1.bias": torch.full((6,), torch.nan)}), {}, r"net\.pt': fc1\.bias is not finite; give another"),
        (spoilt(**{"fc1.bias": torch.ones(6).int()}), {}, r"fc1\.bias is int32, but the model's is float32"),
        (
            spoilt(**{"bn1.running_mean": torch.ones(6), "bn1.num_batches_tracked": torch.tensor(3)}),
            {},
            r"bn1\.running_mean, bn1\.num_batches_tracked unexpected; BatchNorm's statistics have no place in a model",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::fedscope.checkpoints.io.errors.FedscopeWarning")
def test_another_model_is_refused_by_what_differs(state: State, own: dict[str, Any], sentence: str, here: Path) -> None:
    torch.save(state, "net.pt")
    with pytest.raises(FedscopeError, match=sentence) as refusal:
        train(Config.read(tables(**own)), "run")
    assert "\n" not in str(refusal.value)
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("weights", "sentence"),
    [
        ("lost.pt", r"lost\.pt does not exist; .* has net\.pt, text\.pt; give one of them"),
        (
            "runs/ima@last",
            r"model\.weights = '/.*runs/ima@last' is not a file; write a run's model to one: fedscope export",
        ),
        ("folder", r"folder is a folder, not a model's file; give a regular file"),
        ("text.pt", r"text\.pt .*"),
        (3, r"model\.weights = 3 has the wrong type: it takes a string"),
    ],
)
def test_what_is_no_models_file_is_refused(weights: Any, sentence: str, here: Path) -> None:
    torch.save(other(), "net.pt")
    Path("folder").mkdir()
    Path("text.pt").write_text("no model")
    with pytest.raises(FedscopeError, match=sentence):
        train(Config.read({**tables(None), "model": {"name": "mlp", "hidden": HIDDEN, "weights": weights}}), "run")


# --- resumes and branches ---


def test_a_run_that_has_no_round_yet_begins_from_the_same_file_or_not_at_all(
    here: Path, stop_after: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.save(other(), "net.pt")
    whole = train(Config.read(tables()), here / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(Config.read(tables()), "stopped", watcher=stop_after(0))
    stored = Path("net.pt").read_bytes()
    torch.save(spoilt(**{"fc1.bias": torch.ones(6)}), "net.pt")
    with pytest.raises(
        FedscopeError,
        match=r"stopped: the file of model\.weights, /.*net\.pt, has changed since the run was made \(sha",
    ):
        resume("stopped")
    Path("net.pt").write_bytes(stored)
    (here / "elsewhere").mkdir()
    monkeypatch.chdir(here / "elsewhere")
    resumed = resume("../stopped")
    starts_from(resumed, other())
    for t in whole.rounds:
        one, another = (run.round(t).clients().parameters for run in (whole, resumed))
        assert one.tobytes() == another.tobytes()


def test_a_run_with_rounds_needs_the_file_no_more(here: Path, stop_after: Any) -> None:
    torch.save(other(), "net.pt")
    whole = train(Config.read(tables()), "whole")
    with pytest.raises(KeyboardInterrupt):
        train(Config.read(tables()), "stopped", watcher=stop_after(1))
    Path("net.pt").unlink()
    resumed = resume("stopped")
    assert resumed.round("last").read("global").parameters.tobytes() == (
        whole.round("last").read("global").parameters.tobytes()
    )
    other_method = branch(whole, 2, {"client": {"method": "fedprox"}}, "branch")
    assert other_method.info["weights"] == whole.info["weights"]
    starts_from(other_method, other())


def test_a_branch_from_another_file_is_another_run(here: Path) -> None:
    torch.save(other(), "net.pt")
    run = train(Config.read(tables()), "run")
    same = branch(run, 2, {"model": {"weights": "net.pt"}}, "same")
    assert same.rounds == run.rounds
    with pytest.raises(
        FedscopeError, match=r"model\.weights = '/.*more\.pt' differs from '/.*net\.pt' of run: a branch"
    ):
        branch(run, 2, {"model": {"weights": "more.pt"}}, "other")


def test_the_command_says_in_a_line_what_starts_fresh(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save(other(classes=20), "net.pt")
    words = ["--clients", "4", "--rounds", "1", "--epochs", "1", "--set", "model.hidden=[6]"]
    assert command(["train", *words, "--set", "model.weights=net.pt", "--out", "run"]) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if "net.pt" in line]
    assert said == [
        f"fedscope: {here}/net.pt: its head.weight has shape [20, 6], not [10, 6], so the head starts fresh"
    ]
    assert json.loads(Path("run/run.json").read_text())["weights"]["fresh"] == ["head.weight", "head.bias"]
    assert command(["train", "run/config.toml", "--out", "again"]) == 0
    assert load_data("digits").sha256 == Run.open("again").info["data"]["sha256"]
