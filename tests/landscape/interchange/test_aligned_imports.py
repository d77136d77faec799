"""Imports whose clients' units are brought into one order first: the models that ``align`` writes, and what is said."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import fedscope
from fedscope.checkpoints import FedscopeError, FedscopeWarning, Run
from fedscope.cli.main import run as command

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def network() -> nn.Module:
    return nn.Sequential(
        nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 3)
    )


def trained(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    net = network()
    for one in net.modules():
        if isinstance(one, nn.BatchNorm1d):
            nn.init.normal_(one.running_mean)  # type: ignore[arg-type]
            nn.init.uniform_(one.weight, 0.5, 1.5)
    return net


def permuted(net: nn.Module, seed: int) -> dict[str, torch.Tensor]:
    """The same function, with its units in another order."""
    draw = torch.Generator().manual_seed(seed)
    one, two = torch.randperm(16, generator=draw), torch.randperm(12, generator=draw)
    state = {name: value.clone() for name, value in net.state_dict().items()}
    state |= {name: state[name][one] for name in ("0.weight", "0.bias")}
    state["2.weight"] = state["2.weight"][two][:, one]
    after = ("2.bias", "3.weight", "3.bias", "3.running_mean", "3.running_var")
    state |= {name: state[name][two] for name in after} | {"5.weight": state["5.weight"][:, two]}
    return state


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Path]]:
    """Files of networks, and beside them their code and data."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    draw = np.random.default_rng(0)
    x = draw.normal(size=(90, 6)).astype(np.float32)
    np.savez("data.npz", x_train=x[:60], y_train=np.arange(60) % 3, x_test=x[60:], y_test=np.arange(30) % 3)

    def save(states: list[dict[str, torch.Tensor]], dtype: torch.dtype = torch.float32) -> list[Path]:
        paths = [Path(f"{k}.safetensors") for k in range(len(states))]
        for path, state in zip(paths, states, strict=True):
            kept = {name: value.to(dtype) if value.is_floating_point() else value for name, value in state.items()}
            save_file({name: value.contiguous() for name, value in kept.items()}, path)
        return paths

    return save


HOW: dict[str, Any] = {"model": "tests.landscape.interchange.test_aligned_imports:network", "data": "npz:data.npz"}


def imported(files: list[Path], out: str = "run", **how: Any) -> tuple[Run, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = fedscope.import_models(files, out, **{**HOW, "align": "weights", **how})
    return run, [str(one.message) for one in caught]


@pytest.mark.parametrize("by", ["weights", "activations"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_clients_are_the_models_that_align_writes(
    files: Callable[..., list[Path]], dtype: torch.dtype, by: str
) -> None:
    paths = files([trained(k).state_dict() for k in range(3)], dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # a run takes samples of one's own file as they are, and files alone take them standardised
        fedscope.align(paths, by=by, standardise=False, **HOW).save("aligned")
    run, notes = imported(paths, align=by)
    for k in range(3):
        written, found = load_file(f"aligned.{k}.safetensors"), run.round(1).client(k).arrays()
        assert set(found) == set(written)
        for name, value in written.items():
            assert np.array_equal(found[name], value.to(torch.float64).numpy() if value.is_floating_point() else value)
    assert any((load_file(paths[1])[name] != load_file("aligned.1.safetensors")[name]).any() for name in ("0.weight",))
    # the global model is the mean of these
    want = np.mean([run.round(1).client(k).arrays()["2.weight"].astype(float) for k in range(3)], axis=0)
    assert np.allclose(run.round(1).read("global").arrays()["2.weight"], want, rtol=1e-2)
    assert {entry.stored or entry.dtype for entry in run.layout.parameters} == {str(dtype).removeprefix("torch.")}
    assert run.info["aligned"] == {"by": by, "to": "the first client"}
    assert f"the clients' units are in the order of the first client, matched by {by}" in notes


def test_a_model_with_its_units_in_another_order_comes_back(files: Callable[..., list[Path]]) -> None:
    net = trained(0)
    paths = files([net.state_dict(), permuted(net, 1), permuted(net, 2)])
    run, _ = imported(paths)
    plain, _ = imported(paths, "plain", align="none")
    assert "aligned" not in plain.info
    for k in (1, 2):
        for name, value in net.state_dict().items():
            assert np.array_equal(run.round(1).client(k).arrays()[name], value.numpy())
        assert not np.array_equal(plain.round(1).client(k).parameters, plain.round(1).client(0).parameters)
    assert np.array_equal(run.round(1).read("global").parameters, run.round(1).client(0).parameters)


def test_with_a_start_its_order_counts(files: Callable[..., list[Path]]) -> None:
    net = trained(0)
    start, *clients = files([net.state_dict(), permuted(net, 1), permuted(net, 2)])
    run, notes = imported(clients, start=start)
    for which in ("start", "client-0", "client-1"):
        found = run.round(1).read("start") if which == "start" else run.round(1).client(int(which[-1]))
        assert np.array_equal(found.arrays()["0.weight"], net.state_dict()["0.weight"].numpy())
    assert run.info["aligned"]["to"] == "the model that they were sent"
    assert "the clients' units are in the order of the model that they were sent, matched by weights" in notes


def test_each_round_is_aligned_to_the_model_that_it_begins_at(files: Callable[..., list[Path]]) -> None:
    net = trained(0)
    for place, path in enumerate(files([permuted(net, k) for k in range(4)])):
        path.rename(f"r{place // 2 + 1}-c{place % 2}.safetensors")
    run, _ = imported(["r{round}-c{client}.safetensors"])  # type: ignore[list-item]
    order = [run.round(t).client(k).arrays()["0.weight"] for t in (1, 2) for k in (0, 1)]
    assert all(np.array_equal(one, order[0]) for one in order)  # round 2 begins at the mean of round 1
    assert run.info["aligned"]["to"] == "the model that they were sent, or without it of the first client"


def test_the_command_says_it_and_help_names_it(
    files: Callable[..., list[Path]], capsys: pytest.CaptureFixture[str]
) -> None:
    paths = files([trained(k).state_dict() for k in range(2)])
    options = ["--model", HOW["model"], "--data", HOW["data"], "--out", "runs/a"]
    assert command(["import", *map(str, paths), "--align", "weights", *options]) == 0
    assert "in the order of the first client, matched by weights" in capsys.readouterr().err
    assert json.loads(Path("runs/a/run.json").read_text())["aligned"]["by"] == "weights"


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"model": None}, r"^align='weights' needs model=, because units are followed through the network; give it"),
        ({"data": None}, r"needs data=, because the network is called on a few samples to follow its units; give it"),
        ({"global_": "1.safetensors"}, r"changes the clients that global_='1.safetensors' was made of; leave one"),
        ({"align": "wieghts"}, r"^align='wieghts' is none of none, weights, activations; did you mean .weights"),
    ],
)
def test_what_cannot_be_aligned_is_refused(
    files: Callable[..., list[Path]], how: dict[str, Any], sentence: str
) -> None:
    paths = files([trained(k).state_dict() for k in range(2)])
    with pytest.raises(FedscopeError, match=sentence):
        imported(paths, **how)
    assert not Path("run").exists()


def test_an_interrupted_import_is_not_gone_on_with_otherwise(files: Callable[..., list[Path]]) -> None:
    for place, path in enumerate(files([trained(k).state_dict() for k in range(4)])):
        path.rename(f"r{place // 2 + 1}-c{place % 2}.safetensors")
    whole = Path("r2-c1.safetensors").read_bytes()
    Path("r2-c1.safetensors").write_bytes(b"torn")
    pattern: Any = ["r{round}-c{client}.safetensors"]
    with pytest.raises(FedscopeError, match=r"r2-c1"):
        imported(pattern)
    Path("r2-c1.safetensors").write_bytes(whole)
    with pytest.raises(FedscopeError, match=r"interrupted, with other align="):
        imported(pattern, align="activations")
    with pytest.warns(FedscopeWarning, match=r"held rounds 1 to 1"):
        fedscope.import_models(pattern, "run", align="weights", **HOW)


def test_an_interrupted_import_goes_on_with_the_orders_of_its_rounds(files: Callable[..., list[Path]]) -> None:
    """Clients of a round are in the order of the mean of the round before, which depends on that of all before it."""
    for place, path in enumerate(files([trained(k).state_dict() for k in range(8)])):
        path.rename(f"r{place // 2 + 1}-c{place % 2}.safetensors")
    whole = Path("r4-c1.safetensors").read_bytes()
    Path("r4-c1.safetensors").write_bytes(b"torn")
    pattern: Any = ["r{round}-c{client}.safetensors"]
    with pytest.raises(FedscopeError, match=r"r4-c1"):
        imported(pattern)
    Path("r4-c1.safetensors").write_bytes(whole)
    run, notes = imported(pattern)
    assert any("held rounds 1 to 3 of this import" in note for note in notes)
    at_once, _ = imported(pattern, "at-once")
    for t in range(1, 5):
        for k in range(2):
            assert np.array_equal(run.round(t).client(k).parameters, at_once.round(t).client(k).parameters)


def test_units_are_matched_on_samples_in_the_scale_that_the_run_will_have(
    files: Callable[..., list[Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run that is made takes samples of a user's own file as they are, so the import does, too."""
    from fedscope.landscape.alignment import measure_alignment

    paths, seen = files([trained(k).state_dict() for k in range(2)]), []
    aligner = measure_alignment.Aligner

    def looking(module: Any, samples: Any, *rest: Any) -> Any:
        seen.append(samples.x.numpy())
        return aligner(module, samples, *rest)

    monkeypatch.setattr(measure_alignment, "Aligner", looking)
    x = np.load("data.npz")["x_train"]
    imported(paths, "as-given", align="activations")
    imported(paths, "standardised", align="activations", standardise=True)
    assert np.array_equal(np.sort(seen[0], 0), np.sort(x, 0))
    assert np.allclose(seen[1].mean(0), 0, atol=1e-5)
    assert not np.allclose(seen[0].mean(0), 0, atol=1e-3)


def test_numbers_are_moved_in_the_precision_of_their_files(files: Callable[..., list[Path]]) -> None:
    """A permutation changes no bit: of each layer the same numbers are there, and the reference is as it was."""
    states = [{name: value.double() for name, value in trained(k).state_dict().items()} for k in range(2)]
    for state in states:
        state["0.weight"] += 1e-12  # float32 does not hold it
        state["3.num_batches_tracked"] = torch.tensor(0)
    run, _ = imported(files(states, torch.float64))
    for k, state in enumerate(states):
        recorded = run.round(1).client(k).arrays()
        for name, values in state.items():
            if values.dtype == torch.float64:
                assert recorded[name].dtype == np.float64
                assert sorted(recorded[name].ravel()) == sorted(values.numpy().ravel())
                assert k > 0 or np.array_equal(recorded[name], values.numpy())
