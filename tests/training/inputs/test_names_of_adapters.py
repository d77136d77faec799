"""Adapters whose files call tensors otherwise than the module that they are measured in: by PEFT's rules, in wrappers,
under prefixes. No PEFT is needed: modules here name their tensors as its do."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, embedding, linear

import fedscope
from fedscope.checkpoints import FedscopeError
from fedscope.cli.main import run as command
from fedscope.training.inputs.base import with_base

pytestmark = [
    pytest.mark.same_elsewhere,
    pytest.mark.filterwarnings("ignore::fedscope.checkpoints.FedscopeWarning"),
]

TOKENS, WIDTH, CLASSES, RANK = 11, 6, 3, 2


class Low(nn.Module):
    """PEFT's linear layer, of DoRA with ``magnitude``: its adapters lie under their names."""

    def __init__(self, base: nn.Linear, adapter: str, magnitude: bool) -> None:
        super().__init__()
        self.base_layer, self.adapter = base, adapter
        self.lora_A = nn.ModuleDict({adapter: nn.Linear(base.in_features, RANK, bias=False)})
        self.lora_B = nn.ModuleDict({adapter: nn.Linear(RANK, base.out_features, bias=False)})
        if magnitude:
            self.lora_magnitude_vector = nn.ModuleDict({adapter: Magnitude(base.out_features)})

    def forward(self, x: Tensor) -> Tensor:
        delta = 2.0 * self.lora_B[self.adapter].weight @ self.lora_A[self.adapter].weight
        weight = self.base_layer.weight + delta
        if hasattr(self, "lora_magnitude_vector"):
            weight = weight * (self.lora_magnitude_vector[self.adapter].weight / weight.norm(dim=1))[:, None]
        return linear(x, weight, self.base_layer.bias)


class Magnitude(nn.Module):
    def __init__(self, n: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))


class Saved(nn.Module):
    """A layer that is trained whole, beside the base's, which nothing computes with."""

    def __init__(self, base: nn.Module, adapter: str) -> None:
        super().__init__()
        self.original_module, self.adapter = base, adapter
        self.modules_to_save = nn.ModuleDict({adapter: deepcopy(base)})

    def forward(self, x: Tensor) -> Tensor:
        return self.modules_to_save[self.adapter](x)


class Tokens(nn.Module):
    """Some rows of a table."""

    def __init__(self, base: nn.Embedding, adapter: str) -> None:
        super().__init__()
        self.base_layer, self.adapter = base, adapter
        self.trainable_tokens_delta = nn.ParameterDict({adapter: torch.zeros(2, WIDTH)})

    def forward(self, x: Tensor) -> Tensor:
        rows = torch.tensor([1, 4])
        return embedding(x, self.base_layer.weight.index_copy(0, rows, self.trainable_tokens_delta[self.adapter]))


class Around(nn.Module):
    def __init__(self, name: str, inner: nn.Module) -> None:
        super().__init__()
        self.add_module(name, inner)

    def forward(self, x: Tensor) -> Any:
        return next(self.children())(x)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.q, self.score = nn.Embedding(TOKENS, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.pooler = Around("dense", nn.Linear(WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.score(torch.tanh(self.pooler(self.q(self.embed(x).mean(1)))))
        return outputs


KINDS = ("lora", "dora", "head", "layers", "tokens")


def peft(kind: str, adapter: str = "default", seed: int = 0) -> nn.Module:
    """A network with an adapter in it, called as a ``PeftModel``."""
    torch.manual_seed(seed)
    net: Any = Net()
    net.q = Low(net.q, adapter, kind == "dora")
    if kind == "head":
        net.score = Saved(net.score, adapter)
    if kind == "layers":  # of which one lies in a layer that is trained whole
        net.pooler = Saved(net.pooler, adapter)
    if kind == "tokens":
        net.embed = Around("token_adapter", Tokens(net.embed, adapter))
    made = Around("base_model", Around("model", net))
    with torch.no_grad():
        for name, value in made.named_parameters():
            if f".{adapter}" in name:
                value.copy_(torch.rand(value.shape, generator=torch.Generator().manual_seed(seed + 1)) + 0.2)
    return made


def file_of(module: nn.Module, adapter: str = "default") -> dict[str, Tensor]:
    """What ``save_pretrained`` writes, written out by hand."""
    found = {}
    for name, value in module.state_dict().items():
        if f".{adapter}" not in name:
            continue
        plain = name.replace(f".{adapter}", "").replace("modules_to_save.", "")
        found[plain.replace("lora_magnitude_vector.weight", "lora_magnitude_vector")] = value.clone()
    return found


DRAW = np.random.default_rng(3)
X, Y = DRAW.integers(0, TOKENS, (20, 5)), DRAW.integers(0, CLASSES, 20)


def loss_of(module: nn.Module) -> float:
    with torch.no_grad():
        return float(cross_entropy(module(torch.from_numpy(X)), torch.from_numpy(Y)))


def base_state(seed: int = 9) -> dict[str, Tensor]:
    torch.manual_seed(seed)
    return Net().state_dict()


def whole(kind: str, seed: int, base: dict[str, Tensor]) -> nn.Module:
    """The network of adapter and base, for a loss by hand."""
    made = peft(kind, seed=seed)
    inner: Any = made.get_submodule("base_model.model")
    with torch.no_grad():
        for name, value in base.items():
            layer, _, leaf = name.rpartition(".")
            for place in (layer, f"{layer}.base_layer", f"{layer}.token_adapter.base_layer"):
                try:
                    getattr(inner.get_submodule(place), leaf).copy_(value)
                except AttributeError:
                    continue
    return made


def lines(models: list[Any], module: nn.Module, base: Path | str) -> list[float]:
    found = fedscope.line(
        models, model=module, base=base, data=(X, Y), task="sequence-classification", points=3, range=(0, 1)
    )
    return sorted(np.ravel(found.loss)[[0, -1]].tolist())


@pytest.fixture
def base(tmp_path: Path) -> Path:
    torch.save(base_state(), tmp_path / "base.pt")
    return tmp_path / "base.pt"


def saved(tmp_path: Path, kind: str, change: Callable[[str], str] = str) -> list[str]:
    for seed in (1, 2):
        tensors = {change(name): value for name, value in file_of(peft(kind, seed=seed)).items()}
        save_file(tensors, tmp_path / f"{kind}{seed}.safetensors")
    return [str(tmp_path / f"{kind}{seed}.safetensors") for seed in (1, 2)]


@pytest.mark.parametrize("adapter", ["default", "mine"])
@pytest.mark.parametrize("kind", KINDS)
def test_files_of_peft_are_measured_in_a_module_with_any_adapter_s_name(
    tmp_path: Path, base: Path, kind: str, adapter: str
) -> None:
    want = sorted(loss_of(whole(kind, seed, base_state())) for seed in (1, 2))
    assert lines(saved(tmp_path, kind), peft(kind, adapter), base) == pytest.approx(want, rel=1e-5)
    states = [file_of(peft(kind, seed=seed)) for seed in (1, 2)]
    assert lines(states, peft(kind, adapter), base) == pytest.approx(want, rel=1e-5)


def test_two_adapters_in_one_module_are_not_mixed_up(tmp_path: Path, base: Path) -> None:
    module: Any = peft("lora")
    for factor in ("lora_A", "lora_B"):
        place = module.get_submodule(f"base_model.model.q.{factor}")
        place["second"] = nn.Linear(place["default"].in_features, place["default"].out_features, bias=False)
    with pytest.raises(FedscopeError, match=r"has no base_model\.model\.q\.lora_A\.second\.weight"):
        lines(saved(tmp_path, "lora"), module, base)


@pytest.mark.parametrize("before", ["module.", "_orig_mod.", "model.", "module._orig_mod."])
@pytest.mark.parametrize("kind", KINDS)
def test_a_prefix_on_adapters_is_taken_off(tmp_path: Path, base: Path, kind: str, before: str) -> None:
    want = sorted(loss_of(whole(kind, seed, base_state())) for seed in (1, 2))
    files = saved(tmp_path, kind, lambda name: f"{before}{name}")
    assert lines(files, peft(kind), base) == pytest.approx(want, rel=1e-5)
    states = [{f"{before}{name}": value for name, value in file_of(peft(kind, seed=s)).items()} for s in (1, 2)]
    assert lines(states, peft(kind), base) == pytest.approx(want, rel=1e-5)


@pytest.mark.parametrize("before", ["module.", "model.", "base_model.model."])
def test_a_prefix_on_a_base_is_taken_off(tmp_path: Path, before: str) -> None:
    state = base_state()
    torch.save({f"{before}{name}": value for name, value in state.items()}, tmp_path / "base.pt")
    for kind in KINDS:
        want = sorted(loss_of(whole(kind, seed, state)) for seed in (1, 2))
        assert lines(saved(tmp_path, kind), peft(kind), tmp_path / "base.pt") == pytest.approx(want, rel=1e-5), kind


def test_a_base_may_lack_a_layer_that_is_trained_whole_and_no_other(tmp_path: Path) -> None:
    state = base_state()
    without = {name: value for name, value in state.items() if not name.startswith("score")}
    torch.save(without, tmp_path / "base.pt")
    want = sorted(loss_of(whole("head", seed, state)) for seed in (1, 2))
    assert lines(saved(tmp_path, "head"), peft("head"), tmp_path / "base.pt") == pytest.approx(want, rel=1e-5)
    with pytest.raises(FedscopeError, match=r"base\.pt has no base_model\.model\.score\.weight, which"):
        lines(saved(tmp_path, "lora"), peft("lora"), tmp_path / "base.pt")


def test_of_a_whole_model_nothing_is_fixed(base: Path) -> None:
    module = peft("head")
    assert with_base(module, list(module.state_dict()), None, "a") is module
    with pytest.raises(FedscopeError, match="has no place: a holds all tensors of the architecture"):
        with_base(module, [f"module.{name}" for name in module.state_dict()], base, "a")


def test_quantised_bases_are_refused(tmp_path: Path) -> None:
    state = base_state()
    torch.save({**state, "q.weight": state["q.weight"].to(torch.int8), "q.SCB": torch.ones(WIDTH)}, tmp_path / "b.pt")
    with pytest.raises(FedscopeError, match=r"b\.pt: q\.weight is int8, so the weights are quantised"):
        lines(saved(tmp_path, "lora"), peft("lora"), tmp_path / "b.pt")


# --- imports and recorders ---


@pytest.mark.parametrize("before", ["", "module.", "model."])
@pytest.mark.parametrize("kind", KINDS)
def test_adapters_are_imported_with_their_architecture(tmp_path: Path, base: Path, kind: str, before: str) -> None:
    files = saved(tmp_path, kind, lambda name: f"{before}{name}")
    made = fedscope.import_models(files, tmp_path / "run", model=peft(kind), base=base, lora_alpha=4)
    assert {one.kind for one in made.layout.entries} == {"parameter"}
    assert set(made.layout.names) == {name for name in peft(kind).state_dict() if ".default" in name}
    models = [f"{tmp_path}/run@1/client-{k}" for k in range(2)]
    want = sorted(loss_of(whole(kind, seed, base_state())) for seed in (1, 2))
    assert lines(models, peft(kind), base) == pytest.approx(want, rel=1e-5)


def test_adapters_without_their_base_are_refused_with_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(FedscopeError, match=r"lora1\.safetensors holds adapters alone, .* \(base=FILE\)"):
        fedscope.import_models(saved(tmp_path, "lora"), tmp_path / "run", model=peft("lora"))
    assert not (tmp_path / "run").exists()


CODE = """
from torch import nn

class Low(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base
        self.lora_A = nn.Linear(base.in_features, 2, bias=False)
        self.lora_B = nn.Linear(2, base.out_features, bias=False)

    def forward(self, x):
        return self.base(x) + 2 * self.lora_B(self.lora_A(x))

def adapted():
    return nn.Sequential(Low(nn.Linear(6, 5)), nn.ReLU(), Low(nn.Linear(5, 3)))
"""


@pytest.mark.parametrize(
    "how", [["--server", "regmean"], ["--server", "fisher"], ["--server", "greedy"], ["--align", "weights"]]
)
def test_servers_that_look_at_models_make_one_of_imported_adapters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: list[str]
) -> None:
    """What ``reaggregate`` makes of the same round, where a server does; aligned models answer as they did."""
    monkeypatch.chdir(tmp_path)
    Path("adapted_nets.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "adapted_nets", raising=False)
    draw = torch.Generator().manual_seed(0)
    shapes = {"0.lora_A": (2, 6), "0.lora_B": (5, 2), "2.lora_A": (2, 5), "2.lora_B": (3, 2)}
    state = {"0.weight": (5, 6), "0.bias": (5,), "2.weight": (3, 5), "2.bias": (3,)}
    torch.save({name: torch.randn(shape, generator=draw) for name, shape in state.items()}, "base.pt")
    for name in ("s", "a", "b"):
        save_file({f"{n}.weight": torch.randn(one, generator=draw) for n, one in shapes.items()}, f"{name}.safetensors")
    x, y = torch.randn(40, 6, generator=draw).numpy(), np.arange(40) % 3
    np.savez("data.npz", x_train=x[:20], y_train=y[:20], x_test=x[20:], y_test=y[20:])
    words = ["import", "a.safetensors", "b.safetensors", "--start", "s.safetensors", "--model", "adapted_nets:adapted"]
    words += ["--base", "base.pt", "--data", "npz:data.npz", "--no-standardise", "--lora-alpha", "4"]
    assert command([*words, *how, "--out", "made"]) == 0
    made = fedscope.Run.open("made").round(1)
    assert command([*words, "--out", "plain"]) == 0
    if how[0] == "--server":
        again = fedscope.reaggregate("plain@1", [how[1]], model="adapted_nets:adapted", base="base.pt")
        np.testing.assert_allclose(
            made.read("global").parameters, again.models[how[1]].parameters, rtol=1e-6, atol=1e-7
        )
        return
    plain = fedscope.Run.open("plain").round(1)
    for k in range(2):
        assert not np.array_equal(made.client(k).parameters, plain.client(k).parameters), "units have moved"
        ask = {"model": "adapted_nets:adapted", "points": 3, "range": (0, 1)}
        found = [fedscope.line([f"{name}@1/client-{k}", f"{name}@1/start"], **ask) for name in ("made", "plain")]
        mine, theirs = (np.ravel(one.loss)[[0, -1]] for one in found)
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)


@pytest.mark.parametrize(
    ("first", "others"), [("module.", "module."), ("", "module."), ("_orig_mod.", ""), ("", "model.")]
)
@pytest.mark.parametrize("kind", ["head", "layers"])
def test_a_recorder_with_an_architecture_takes_wrappers_off_adapters(
    tmp_path: Path, base: Path, first: str, others: str, kind: str
) -> None:
    def state(seed: int, before: str) -> dict[str, Tensor]:
        return {f"{before}{name}": value for name, value in file_of(peft(kind, seed=seed)).items()}

    with fedscope.Recorder(tmp_path / "run", model=peft(kind), base=base, lora_alpha=4) as recorder:
        for _ in range(2):
            recorder.round(start=state(0, first), clients=[state(1, others), state(2, others)], global_=state(3, first))
    names = fedscope.Run.open(tmp_path / "run").layout.names
    assert names == tuple(file_of(peft(kind)))
    models = [f"{tmp_path}/run@2/client-{k}" for k in range(2)]
    want = sorted(loss_of(whole(kind, seed, base_state())) for seed in (1, 2))
    assert lines(models, peft(kind), base) == pytest.approx(want, rel=1e-5)
    shutil.rmtree(tmp_path / "run")


def test_two_tensors_of_the_first_adapters_that_are_one_need_not_be_in_others(tmp_path: Path, base: Path) -> None:
    """Nobody but the architecture says so, and it does not."""
    start = file_of(peft("head", seed=0))
    names = [name for name in start if "lora_A" in name or "lora_B" in name]
    square = {name: torch.zeros(RANK, WIDTH) for name in names if "lora_A" in name}
    start |= square
    with fedscope.Recorder(tmp_path / "run", model=peft("head"), base=base) as recorder:
        recorder.round(start=start, clients=[file_of(peft("head", seed=s)) for s in (1, 2)])
    assert len(fedscope.Run.open(tmp_path / "run").layout.names) == len(start)
