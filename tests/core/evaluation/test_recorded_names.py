"""A run whose tensors have other names than the architecture's: a prefix, as Lightning puts it, or PEFT's.

Every question is asked of a run recorded under a prefix, and the numbers are those of the same run without it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import asked
import h5py
import numpy as np
import pytest
import torch
from torch import nn

import fedscope
from fedscope.checkpoints import Layout, TensorEntry
from fedscope.evaluation.module_copy import copy_module
from fedscope.evaluation.recorded_names import (
    ByNames,
    call_with,
    name_in_layer,
    place_of_tensor,
)
from fedscope.evaluation.rename_module import rename_as_recorded

pytestmark = [
    pytest.mark.same_elsewhere,
    pytest.mark.filterwarnings("ignore::fedscope.checkpoints.FedscopeWarning"),
]

PREFIX = "model."
#: replays need a training that fedscope knows; these ask of what was recorded
WITHOUT_REPLAYS = {
    "decompose": lambda: fedscope.decompose(asked.RUN, rounds=2, draws="none", split="test"),
    "decompose-layers": lambda: fedscope.decompose(asked.RUN, rounds=2, draws="none", split="test", layers="each"),
    "explain": lambda: fedscope.explain(asked.RUN, rounds=2, draws="none", split="test"),
}
#: what a network's layers are called stays the same, and each way in which a server looks at them
MORE = {
    "cka-layer": lambda: fedscope.cka(asked.RUN, rounds=2, layer="relu1"),
    "sharpness": lambda: fedscope.sharpness(asked.last(), hessian=False, split="test", draws=1),
    "sharpness-layers": lambda: fedscope.sharpness(asked.last(), layers="each", hessian=False, split="test", draws=1),
    "line-aligned": lambda: fedscope.line(asked.two(), points=3, align="activations"),
    "align-activations": lambda: fedscope.align(asked.two(), by="activations"),
    "reaggregate-aligned": lambda: fedscope.reaggregate(asked.last(), ["fma"], align="weights"),
    **{
        f"reaggregate-{server}": partial(lambda name: fedscope.reaggregate(asked.last(), [name]), server)
        for server in ("regmean", "fisher", "greedy", "dare")
    },
}
#: of no models, or of adapters
OTHER = {"curves", "curves-target", "data", "adapters"}
QUESTIONS = {name: ask for name, ask in asked.FROM_PYTHON.items() if name not in OTHER} | WITHOUT_REPLAYS | MORE


def states(seed: int) -> dict[str, torch.Tensor]:
    module = fedscope.training.model_settings("mlp").build((1, 8, 8), 10)
    draw = torch.Generator().manual_seed(seed)
    return {name: 0.2 * torch.randn(value.shape, generator=draw) for name, value in module.state_dict().items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run in ``plain/runs/fma`` and, under a prefix, in ``prefixed/runs/fma``."""
    place = tmp_path_factory.mktemp("names")
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(44, 1, 8, 8)).astype("f"), draw.integers(0, 10, 44)
    for kind, prefix in (("plain", ""), ("prefixed", PREFIX)):

        def named(seed: int, prefix: str = prefix) -> dict[str, torch.Tensor]:
            return {f"{prefix}{name}": value for name, value in states(seed).items()}

        parts = {k: np.arange(8 * k, 8 * k + 8) for k in range(3)}
        path = place / kind / "runs" / "fma"
        data = ((x[:24], y[:24]), (x[24:], y[24:]))
        with fedscope.Recorder(path, model="mlp", data=data, partition=parts) as recorder:
            for t in range(2):
                clients = {k: named(10 * t + k + 1) for k in range(3)}
                recorder.round(
                    start=named(10 * t), clients=clients, global_=named(10 * t + 10), samples={0: 2, 1: 1, 2: 1}
                )
    assert fedscope.Run.open(place / "prefixed/runs/fma").layout.names[0].startswith(PREFIX)
    return place


@pytest.mark.parametrize("name", sorted(QUESTIONS))
def test_every_question_gives_the_same_numbers(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for kind in ("plain", "prefixed"):
        monkeypatch.chdir(folder / kind)
        QUESTIONS[name]().save(folder / kind / name)
        found.append(dict(saved(folder / kind, name)))
    plain, prefixed = found
    assert plain, "the answer has numbers"
    assert plain.keys() == prefixed.keys()
    for key, values in plain.items():
        np.testing.assert_array_equal(values, prefixed[key], err_msg=key)


def test_no_question_is_forgotten() -> None:
    assert set(asked.FROM_PYTHON) <= set(QUESTIONS) | OTHER


def saved(place: Path, name: str) -> Iterator[tuple[str, Any]]:
    """What a result's files hold, less the prefix."""
    for path in sorted(place.glob(f"{name}.*")):
        if path.suffix == ".csv":
            yield path.name, path.read_text().replace(PREFIX, "")
        elif path.suffix == ".nc":
            with h5py.File(path) as file:
                arrays: dict[str, Any] = {}
                file.visititems(lambda key, one, arrays=arrays: arrays.update(_read(key, one)))
            yield from ((f"{path.name} {key}", values) for key, values in arrays.items())
        elif path.suffix == ".safetensors":
            from safetensors.numpy import load_file

            for key, values in load_file(path).items():
                yield f"{path.name} {key.removeprefix(PREFIX)}", values


def _read(key: str, one: Any) -> dict[str, Any]:
    if not isinstance(one, h5py.Dataset):
        return {}
    if one.dtype.kind in "fiub":
        return {key: one[()]}
    return {key: re.sub(re.escape(PREFIX), "", str(np.asarray(one.asstr()[()]).tolist()))}


# --- what is between a tensor's name and its layer ---


class Inner(nn.Module):
    """Statistics, a tied weight, a buffer that is not stored, and a layer that is given under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4)
        self.last.weight = self.first.weight
        self.register_buffer("shift", torch.full((4,), 3.0), persistent=False)

    def forward(self, x: torch.Tensor) -> Any:
        return self.last(self.norm(self.first(x)).relu() + self.shift)


def renamed() -> tuple[Inner, ByNames, dict[str, torch.Tensor]]:
    """A module, the same under a prefix with a counter beside, and other numbers for it."""
    torch.manual_seed(2)
    module = Inner().eval()
    state = {f"m.{name}": torch.rand(value.shape) for name, value in module.state_dict().items()}
    state["m.norm.num_batches_tracked"] = torch.tensor(7)
    state["m.last.weight"] = state["m.first.weight"]
    found = rename_as_recorded(module, layout_of(module, state))
    assert isinstance(found, ByNames)
    return module, found, state


def layout_of(module: nn.Module, state: dict[str, torch.Tensor]) -> Layout:
    own = {f"m.{entry.name}": entry for entry in Layout.of(module).entries}
    entries = [TensorEntry(name, own[name].shape, own[name].dtype, own[name].kind) for name in state]
    return Layout((*entries, TensorEntry("m.n_averaged", (), "int64", "buffer")))


def test_a_module_is_called_with_other_tensors_by_the_recorded_names() -> None:
    module, found, state = renamed()
    other, x = deepcopy(module), torch.randn(5, 4)
    other.load_state_dict({name.removeprefix("m."): value for name, value in state.items()})
    given = state | {"m.n_averaged": torch.tensor(3)}
    torch.testing.assert_close(call_with(found, given, x), other(x), rtol=0, atol=0)
    torch.testing.assert_close(call_with(module, {n.removeprefix("m."): v for n, v in state.items()}, x), other(x))
    torch.testing.assert_close(found(x), module(x), rtol=0, atol=0)


def test_buffers_have_the_recorded_names() -> None:
    module, found, _ = renamed()
    names = ["m.norm.running_mean", "m.norm.running_var", "m.norm.num_batches_tracked", "inner.shift"]
    assert [name for name, _ in found.named_buffers()] == names
    assert {id(one) for one in found.inner.buffers()} == {id(one) for one in found.buffers()}
    assert {name for name, _ in module.named_buffers()} == {name.partition(".")[2] for name in names}


def test_a_tensor_is_found_in_its_layer_and_the_other_way_round() -> None:
    _, found, state = renamed()
    assert len(state) == 9
    for name in state:
        layer, leaf = place_of_tensor(found, name)
        there = found.state_dict()[name]
        assert getattr(layer, leaf).data_ptr() == there.data_ptr(), name
        assert name_in_layer(found, name.removeprefix("m.").rpartition(".")[0], leaf) == name
    assert found.get_parameter("m.first.bias") is found.inner.first.bias
    layer, leaf = place_of_tensor(copy_module(found), "m.norm.weight")
    assert (type(layer), leaf) == (nn.BatchNorm1d, "weight")


def test_units_are_aligned_with_their_statistics(tmp_path: Path) -> None:
    """Permuted units of a network with BatchNorm come back, counters stay, and the numbers are the plain ones."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(9, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))
    one = {name: torch.rand(value.shape) if value.dim() else value for name, value in net.state_dict().items()}
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    two = {name: value[order] if value.shape[:1] == (6,) else value for name, value in one.items()}
    two["4.weight"] = one["4.weight"][:, order]
    counted = {"2.num_batches_tracked": torch.tensor(5)}
    one, two = one | counted, two | counted
    data = (torch.rand(30, 1, 3, 3).numpy(), np.arange(30) % 3)
    aligned = []
    for prefix in ("", PREFIX):
        clients = [{f"{prefix}{name}": value for name, value in state.items()} for state in (one, two)]
        path = tmp_path / f"run{prefix}"
        with fedscope.Recorder(path) as recorder:
            recorder.round(clients=clients)
        models = [f"{path}@1/client-{k}" for k in range(2)]
        aligned.append(fedscope.align(models, model=net, data=data, split="test").models)
    plain, prefixed = ([*one.values()] for one in aligned)
    for mine, theirs in zip(plain, prefixed, strict=True):
        np.testing.assert_array_equal(mine.parameters, theirs.parameters)
    for name, value in one.items():
        np.testing.assert_array_equal(prefixed[1].arrays()[f"{PREFIX}{name}"], value.numpy(), err_msg=name)
