"""Products of factors that lie otherwise than as A [r, in] and B [out, r]: those of experts, and transposed ones; and
what kohya's adapters keep beside them, which is no weight.

peft is not there; names, shapes and orders are those that it, MLX and kohya write.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

import fedscope
from fedscope.checkpoints import FedscopeError, Layout, Run, TensorEntry, load_model
from fedscope.checkpoints.models.factor_names import factors_in, rank_of
from fedscope.checkpoints.models.products import adapters_of, unclear_factors
from fedscope.decomposition.adapters.cost import mean_models
from fedscope.decomposition.adapters.recorded_adapters import adapters_of_run
from fedscope.decomposition.embedding.adapter_gram import adapter_gram
from fedscope.decomposition.embedding.gram import distances
from fedscope.training.methods.base import Cohort
from fedscope.training.settings.registry import find

pytestmark = [
    pytest.mark.same_elsewhere,
    pytest.mark.filterwarnings("ignore:.*factors of a product.*"),
    pytest.mark.filterwarnings("ignore:.*begin where the round has ended.*"),
]
State = dict[str, np.ndarray]
E, R, IN, OUT, ALPHA = 4, 2, 7, 6, 8.0
EXPERTS = ("layers.0.mlp.experts.base_layer", "layers.0.mlp.experts")
CONFIG = {"peft_type": "LORA", "r": R, "lora_alpha": ALPHA, "target_modules": ["q_proj"]}
TARGETS = {"target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]}


def of_experts(seed: int) -> State:
    """As PEFT writes target_parameters of two parameters of one module, beside a plain layer."""
    draw = np.random.default_rng(seed)
    shapes = {"layers.0.q_proj": ((R, IN), (OUT, R)), EXPERTS[0]: ((E * R, IN), (OUT, R * E))}
    shapes[EXPERTS[1]] = ((E * R, OUT), (IN, R * E))
    return {
        f"{name}.lora_{side}.weight": draw.normal(size=shape).astype(np.float32)
        for name, pair in shapes.items()
        for side, shape in zip("AB", pair, strict=True)
    }


def products_of_experts(state: State, scale: float = ALPHA / R) -> dict[str, np.ndarray]:
    """ΔW as PEFT's ParamWrapper.get_delta_weight forms it: einsum("o r e, e r i -> e o i") of A [E, r, in] and
    B [out, r, E]."""
    made = {}
    for name in ("layers.0.q_proj", *EXPERTS):
        a, b = (state[f"{name}.lora_{side}.weight"].astype(float) for side in "AB")
        if name in EXPERTS:
            every = np.einsum("ore,eri->eoi", b.reshape(len(b), R, E), a.reshape(E, R, -1))
            made |= {f"{name}[{e}]": scale * one for e, one in enumerate(every)}
        else:
            made[name] = scale * b @ a
    return made


def flat(products: dict[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([products[name].ravel() for name in sorted(products)])


def mean_of(*models: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: sum(one[name] for one in models) / len(models) for name in models[0]}


def imported(folder: Path, states: list[State], start: State, config: dict[str, Any] | None) -> Run:
    """Models in folders of their own, with what stands beside them."""
    for k, state in enumerate([start, *states]):
        (folder / f"{k}").mkdir(parents=True)
        save_file(state, folder / f"{k}" / "adapter_model.safetensors")
        if config is not None:
            (folder / f"{k}" / "adapter_config.json").write_text(json.dumps(config))
    files = [folder / f"{k}" for k in range(1, len(states) + 1)]
    return fedscope.import_models(files, folder / "run", start=folder / "0")


def best(product: np.ndarray, rank: int) -> np.ndarray:
    u, s, v = np.linalg.svd(product)
    return (u[:, :rank] * s[:rank]) @ v[:rank]


@pytest.mark.parametrize("config", [{**CONFIG, **TARGETS}, CONFIG], ids=["said", "of an earlier version"])
def test_experts_have_a_product_each(tmp_path: Path, config: dict[str, Any]) -> None:
    states = [of_experts(1), of_experts(2)]
    run = imported(tmp_path, states, of_experts(0), config)
    own = [products_of_experts(state) for state in states]
    mean = mean_of(*own)
    found = {cell.layer: cell for cell in fedscope.adapters(run).cells}
    assert set(found) == {*mean, "all layers"}
    factors = products_of_experts({name: (states[0][name] + states[1][name]) / 2 for name in states[0]})
    for name, product in mean.items():
        assert found[name].rank == R
        assert found[name].norm == pytest.approx(np.linalg.norm(product), rel=1e-6)
        assert found[name].factors == pytest.approx(
            np.linalg.norm(factors[name] - product) / np.linalg.norm(product), rel=1e-5
        )
        assert found[name].products == pytest.approx(
            np.linalg.norm(best(product, R) - product) / np.linalg.norm(product), rel=1e-5
        )
    apart = distances(adapter_gram([(run, 1)]))
    assert apart[0, 1] == pytest.approx(np.linalg.norm(flat(own[0]) - flat(own[1])), rel=1e-6)
    (updates,) = next(iter(fedscope.updates(run))).rounds
    start = flat(products_of_experts(of_experts(0)))
    assert np.allclose(updates.norm, [np.linalg.norm(flat(one) - start) for one in own], rtol=1e-6)


def test_means_of_experts_are_written_as_they_are_read(tmp_path: Path) -> None:
    states = [of_experts(1), of_experts(2)]
    run = imported(tmp_path, states, of_experts(0), {**CONFIG, **TARGETS})
    mean = mean_of(*(products_of_experts(state) for state in states))
    want = {name: best(product, R) for name, product in mean.items()}
    adapters = adapters_of_run(run)
    assert adapters is not None
    made = mean_models(run.round(1), adapters)["products"].arrays()
    assert np.allclose(flat(products_of_experts(made)), flat(want), atol=1e-5)
    served = fedscope.reaggregate(run, rounds=1, servers=["lora"], **_measured(run))
    assert np.allclose(flat(products_of_experts(served.models["lora"].arrays())), flat(want), atol=1e-5)


class Net(torch.nn.Module):
    """Has the tensors of a state, and answers with their sum."""

    def __init__(self, state: State) -> None:
        super().__init__()
        for name, value in state.items():
            place = self
            *path, last = name.split(".")
            for part in path:
                if part not in dict(place.named_children()):
                    place.add_module(part, torch.nn.Module())
                place = place.get_submodule(part)  # type: ignore[assignment]
            place.register_parameter(last, torch.nn.Parameter(torch.tensor(value)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = torch.stack([value.sum() for value in self.parameters()]).sum()
        return x[:, :2] * total


def _measured(run: Run) -> dict[str, Any]:
    data = (torch.randn(20, 4, generator=torch.Generator().manual_seed(1)), torch.arange(20) % 2)
    return {"model": Net(run.round(1).read("start").arrays()), "data": data}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (None, r"experts.base_layer.lora_A.weight has the rows of all experts, and their rank is not known"),
        ({**CONFIG, "r": 3}, r"lora_A.weight has 8 rows, and the rank is said to be 3"),
        ({**CONFIG, **TARGETS, "rank_pattern": {"down_proj": 4}}, r"has 8 rows, and the rank is said to be 2"),
        ({**CONFIG, "use_qalora": True}, r"of a kind that adds no plain B·A \(use_qalora\)"),
        ({**CONFIG, "use_bdlora": {"nblocks": 2}}, r"of a kind that adds no plain B·A \(use_bdlora\)"),
    ],
)
def test_factors_of_which_it_is_not_said_how_they_multiply_are_refused(
    tmp_path: Path, config: dict[str, Any] | None, words: str
) -> None:
    run = imported(tmp_path, [of_experts(1), of_experts(2)], of_experts(0), config)
    with pytest.raises(FedscopeError, match=words):
        fedscope.adapters(run)
    with pytest.raises(FedscopeError, match=words):
        fedscope.reaggregate(run, rounds=1, servers=["lora"], **_measured(run))


def test_ranks_that_a_pattern_explains_are_those_of_plain_layers() -> None:
    layout = _layout({"q.lora_A.weight": (4, 9), "q.lora_B.weight": (6, 4)})
    for pattern in ({"q": 4}, {"^model.q": 4}):
        found = adapters_of(layout, {"r": 2, "lora_alpha": 8, "rank_pattern": pattern})
        assert found is not None
        assert [(one.name, one.rank, one.scale) for one in found.products] == [("q", 4, 2.0)]


# --- transposed factors ---


def _layout(shapes: dict[str, tuple[int, ...]]) -> Layout:
    return Layout(tuple(TensorEntry(name, shape, "float32", "parameter") for name, shape in shapes.items()))


def across(seed: int, wide: int, names: tuple[str, str] = ("lora_a", "lora_b")) -> State:
    """As MLX keeps them: A [in, r], B [r, out]."""
    draw = np.random.default_rng(seed)
    return {
        f"{layer}.{name}": draw.normal(size=shape).astype(np.float32)
        for layer in ("q_proj", "v_proj")
        for name, shape in zip(names, ((16, R), (R, wide)), strict=True)
    }


@pytest.mark.parametrize(
    "names",
    [("lora_a", "lora_b"), ("lora_A", "lora_B"), ("lora.A", "lora.B"), ("lora_right_weight", "lora_left_weight")],
)
@pytest.mark.parametrize("wide", [16, 9])
def test_factors_that_are_kept_transposed_are_read_so(tmp_path: Path, wide: int, names: tuple[str, str]) -> None:
    states = [across(k, wide, names) for k in (1, 2)]
    with fedscope.Recorder(tmp_path / "run", lora_alpha=ALPHA) as recorder:
        recorder.round(start=across(0, wide, names), clients=states, global_=across(3, wide, names))
    run = Run.open(tmp_path / "run")
    found = {cell.layer: cell for cell in fedscope.adapters(run).cells}
    served = (
        find("servers", "lora")().step({}, run.round(1).read("start"), run.round(1).clients(), _cohort(2)).parameters
    )
    of_server = {name: served[where].astype(float) for name, where in run.layout.slices.items()}
    for layer in ("q_proj", "v_proj"):
        a, b = (f"{layer}.{name}" for name in names)
        mean = ALPHA / R * sum(state[a].astype(float) @ state[b] for state in states) / 2
        factors = ALPHA / R * (states[0][a] + states[1][a]).astype(float) / 2 @ (states[0][b] + states[1][b]) / 2
        assert found[layer].rank == R
        assert found[layer].norm == pytest.approx(np.linalg.norm(mean), rel=1e-6)
        assert found[layer].factors == pytest.approx(np.linalg.norm(factors - mean) / np.linalg.norm(mean), rel=1e-5)
        made = ALPHA / R * of_server[a].reshape(16, R) @ of_server[b].reshape(R, wide)
        assert np.allclose(made, best(mean, R), atol=1e-4)


def _cohort(clients: int) -> Cohort:
    ones = np.ones(clients, np.int64)
    return Cohort(1, np.arange(clients), ones, ones, np.full(clients, 1 / clients))


def ways(shapes: dict[str, tuple[int, ...]], **settings: Any) -> list[bool] | str:
    layout = _layout(shapes)
    found = adapters_of(layout, settings)
    return unclear_factors(layout, settings) if found is None else [one.transposed for one in found.products]


def test_which_way_the_factors_of_square_layers_lie() -> None:
    bare = {"q.lora_a": (4, 4), "q.lora_b": (4, 4)}
    tall = {"q.lora_a": (16, 2), "q.lora_b": (2, 16)}
    assert ways(tall) == [True]
    assert ways(tall, r=16) == [False]  # it is said
    assert ways(bare) == "q.lora_a [4, 4] may be A or A transposed, and their rank is not known"
    assert ways({**bare, "v.lora_a": (9, 4), "v.lora_b": (4, 5)}) == [True, True]  # the others are kept alike
    assert ways({**bare, "v.lora_a": (4, 9), "v.lora_b": (5, 4)}) == [False, False]
    # a layer of torch has A [r, in], however great the rank
    assert ways({"q.lora_A.weight": (16, 2), "q.lora_B.weight": (2, 16)}) == [False]
    assert ways({"q.lora_a.weight": (4, 4), "q.lora_b.weight": (4, 4)}) == [False]
    assert ways({"q.lora_A": (4, 4), "q.lora_B": (4, 4)}) == [False]  # loralib's


@pytest.mark.parametrize(
    ("a", "b"), [("lora.A", "lora.B"), ("lora.a", "lora.b"), ("lora_right", "lora_left"), ("lora_A", "lora_B")]
)
def test_which_way_the_factors_of_tutorials_lie(a: str, b: str) -> None:
    assert ways({f"q.{a}": (16, 2), f"q.{b}": (2, 16)}) == [True]
    assert ways({f"q.{a}": (2, 16), f"q.{b}": (16, 2)}) == [False]
    assert ways({f"q.{a}": (4, 4), f"q.{b}": (4, 9)}) == [True]  # the rank is a side
    assert ways({f"q.{a}": (9, 4), f"q.{b}": (4, 4)}) == [True]
    assert ways({f"q.{a}.weight": (16, 2), f"q.{b}.weight": (2, 16)}) == [False]  # a layer of torch
    if a != "lora_A":  # which is loralib's
        assert "A or A transposed" in ways({f"q.{a}": (4, 4), f"q.{b}": (4, 4)})


def test_factors_of_one_product_are_one_update_whatever_they_are_called(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    start = {"fc.lora.A": draw.normal(size=(8, R)), "fc.lora.B": draw.normal(size=(R, 8))}
    turns = [np.linalg.qr(draw.normal(size=(R, R)))[0] for _ in range(3)]
    states = [
        {"fc.lora.A": (start["fc.lora.A"] + 0.1) @ turn, "fc.lora.B": turn.T @ start["fc.lora.B"]} for turn in turns
    ]
    with fedscope.Recorder(tmp_path / "run", lora_alpha=R) as recorder:
        recorder.round(start=start, clients=states, global_=states[0])
    # a product of float64 factors, rounded
    assert fedscope.updates(tmp_path / "run").findings()["rounds"][0]["cosine_mean"] == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("other", ["lora.0.weight", "lora_head.A", "explorer.A", "lora.alpha_A", "flora_net.left"])
def test_what_is_no_factor_of_lora_is_none(other: str) -> None:
    assert factors_in([other]) == []


@pytest.mark.parametrize("suffix", ["", ".weight"])
def test_tutorials_adapters_of_other_ranks_are_named_so(suffix: str) -> None:
    of = {"": (16, 4), ".weight": (4, 16)}[suffix]
    assert rank_of(f"q.lora.A{suffix}", of) == rank_of(f"q.lora.B{suffix}", of[::-1]) == 4


# --- kohya's alpha ---


def kohya(seed: int, alpha: float = 4.0) -> State:
    draw = np.random.default_rng(seed)
    return {
        "u.lora_down.weight": draw.normal(size=(R, IN)).astype(np.float32),
        "u.lora_up.weight": draw.normal(size=(OUT, R)).astype(np.float32),
        "u.alpha": np.array(alpha, np.float32),
    }


def kohya_product(state: State) -> np.ndarray:
    made: np.ndarray = state["u.alpha"] / R * state["u.lora_up.weight"].astype(float) @ state["u.lora_down.weight"]
    return made


def recorded(path: Path, alpha: float) -> Run:
    with fedscope.Recorder(path) as recorder:
        recorder.round(start=kohya(0, alpha), clients=[kohya(1, alpha), kohya(2, alpha)], global_=kohya(3, alpha))
    return Run.open(path)


def as_earlier(run: Run) -> Run:
    """What an earlier version wrote: alphas are parameters."""
    info = json.loads((run.path / "run.json").read_text())
    for entry in info["layout"]:
        entry["kind"] = "parameter"
    del info["files"]["run.json"]
    (run.path / "run.json").write_text(json.dumps(info))
    return Run.open(run.path)


@pytest.mark.parametrize("version", [lambda run: run, as_earlier], ids=["now", "earlier"])
def test_what_scales_adapters_of_kohya_is_no_weight(tmp_path: Path, version: Callable[[Run], Run]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runs = [version(recorded(tmp_path / f"{alpha:g}", alpha)) for alpha in (4.0, 16.0)]
    for run, alpha in zip(runs, (4.0, 16.0), strict=True):
        assert run.layout.size == R * IN + OUT * R
        assert [entry.name for entry in run.layout.buffers] == ["u.alpha"]
        assert run.round(1).read("global").arrays()["u.alpha"] == alpha
        assert run.round(1).clients().buffers["u.alpha"].tolist() == [alpha, alpha]
    apart = distances(adapter_gram([(run, 1) for run in runs]))
    one, other = (kohya_product(kohya(1, alpha)) for alpha in (4.0, 16.0))
    assert apart[0, 2] == pytest.approx(np.linalg.norm(one - other), rel=1e-6)


def test_files_of_kohya_have_the_parameters_of_their_factors(tmp_path: Path) -> None:
    save_file(kohya(1), tmp_path / "one.safetensors")
    weights = load_model(str(tmp_path / "one.safetensors")).weights
    assert weights.layout.size == R * IN + OUT * R
    assert weights.buffers["u.alpha"] == 4.0


def test_factors_that_do_not_say_how_they_multiply_are_not_sent_to_the_question_they_come_from(tmp_path: Path) -> None:
    """A plain adapter of a module called ``experts``, of which the alpha alone is known."""

    def one(seed: int) -> State:
        draw = np.random.default_rng(seed)
        shapes = {"mlp.experts.lora_A.weight": (R, 5), "mlp.experts.lora_B.weight": (6, R)}
        return {name: draw.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}

    def said_of(run: Run | Path) -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fedscope.updates(run)
        return [str(said.message) for said in caught]

    with fedscope.Recorder(tmp_path / "alpha", lora_alpha=ALPHA) as recorder:
        recorder.round(start=one(0), clients=[one(1), one(2)], global_=one(3))
    (said,) = said_of(tmp_path / "alpha")
    why = "mlp.experts.lora_A.weight has the rows of all experts, and their rank is not known"
    assert f"do not say how their factors multiply: {why}; distances and angles are between factors" in said
    assert "fedscope updates" not in said
    assert said_of(imported(tmp_path, [one(1), one(2)], one(0), CONFIG)) == []
