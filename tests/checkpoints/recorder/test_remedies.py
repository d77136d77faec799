"""What the Recorder refuses, and that what its sentence offers instead is taken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedscope
from fedscope import Recorder
from fedscope.checkpoints import FedscopeError, Run, read_file
from fedscope.checkpoints.io.visible_text import visible
from fedscope.checkpoints.models.state_dicts import refuse_valueless
from fedscope.checkpoints.recorder import given_partition

pytestmark = pytest.mark.same_elsewhere

W = np.arange(6, dtype=np.float32).reshape(3, 2)
COMPLEX = W + 1j
HERE = torch.tensor(W)
NEGATIVE = torch.tensor(COMPLEX).conj().imag
TWO = {"Dense_0": {"kernel": W, "bias": W[0]}, "Dense_1": {"kernel": W}}


def refused(path: Path, model: Any) -> str:
    with Recorder(path) as recorder, pytest.raises(FedscopeError) as found:
        recorder.round(clients=[model])
    assert not (path / "rounds").exists()
    return str(found.value).partition("run@1: ")[2].removeprefix("client 0: ")


@pytest.mark.parametrize(
    ("model", "said", "remedy"),
    [
        (
            {"w": COMPLEX},
            "w is complex64, which a run cannot hold; give its real and imaginary parts as two tensors",
            lambda: {"w.real": COMPLEX.real, "w.imag": COMPLEX.imag},
        ),
        (
            {"w": torch.tensor(COMPLEX)},
            "w is complex64, which a run cannot hold; give its real and imaginary parts as two tensors",
            lambda: {"w.real": torch.tensor(COMPLEX).real, "w.imag": torch.tensor(COMPLEX).imag},
        ),
        pytest.param(
            {"w": W.astype(np.longdouble)},
            f"w is {np.dtype(np.longdouble)}, which a run cannot hold; give it as float64",
            lambda: {"w": W.astype(np.longdouble).astype(np.float64)},
            marks=pytest.mark.skipif(np.dtype(np.longdouble).itemsize == 8, reason="a float64 here"),
        ),
        (
            {"w": HERE.to(torch.float8_e4m3fn)},
            "w is float8_e4m3fn, which a run cannot hold; give it as float32",
            lambda: {"w": HERE.to(torch.float8_e4m3fn).float()},
        ),
        (
            {"w": torch.quantize_per_tensor(HERE, 0.1, 0, torch.qint8)},
            "w is qint8, which a run cannot hold; give w.dequantize()",
            lambda: {"w": torch.quantize_per_tensor(HERE, 0.1, 0, torch.qint8).dequantize()},
        ),
        (
            {"w": W, "tag": np.array(["a"])},
            "tag is <U1, which a run cannot hold; give numbers, or leave it out",
            lambda: {"w": W},
        ),
        (
            {"layers": [{"w": W}, {"w": W}]},
            "layers is a list of other things than numbers, which a run cannot hold; give its tensors by n",
            lambda: {"layers.0.w": W, "layers.1.w": W},
        ),
        (
            nn.LazyLinear(3),
            "weight has no shape yet; name its sizes (nn.Linear for nn.LazyLinear), or call the module once first",
            lambda: nn.Linear(2, 3),
        ),
        (
            TWO,
            "the model holds 2 models (Dense_0, Dense_1), and it is unclear which one is meant; give "
            "checkpoint['Dense_0'], or if all are of one model, name its tensors at one level: 'Dense_0.kernel'",
            lambda: {"Dense_0.kernel": W, "Dense_0.bias": W[0], "Dense_1.kernel": W},
        ),
        (TWO, "the model holds 2 models", lambda: TWO["Dense_0"]),
        (
            {"block": {"dense": {"kernel": W}, "scale": W[0]}},
            "a model has scale beside dense, which holds tensors too; give dense alone, or name all at one level, as '",
            lambda: {"dense.kernel": W, "scale": W[0]},
        ),
        (
            {"params": {"embed": {"w": W}, "layers": [{"w": W}, {"w": W}]}},
            "a model has layers beside embed, which holds tensors too; give embed alone, or name all at one level, as",
            lambda: {"embed.w": W, "layers.0.w": W, "layers.1.w": W},
        ),
        (
            {"model": {"block": {"w": W}, "scale": W[0]}},
            "a model has scale beside block, which holds tensors too; give block alone, or name all at one level, as '",
            lambda: {"block.w": W, "scale": W[0]},
        ),
        (
            {"w": np.int64([[1, 2]]), "on": np.array([True])},
            "the models hold no weights, only int64, bool (w, on); give what is trained as floats, as weight.ast",
            lambda: {"w": np.int64([[1, 2]]).astype(np.float32), "on": np.array([True])},
        ),
        (nn.ReLU(), "a model without tensors was given; give one with weights: its mo", lambda: nn.PReLU()),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
def test_what_is_offered_for_a_model_is_taken(model: Any, said: str, remedy: Callable[[], Any], tmp_path: Path) -> None:
    assert refused(tmp_path / "run", model).startswith(said)
    with Recorder(tmp_path / "run") as recorder:
        recorder.round(clients=[remedy()])
    assert len(Run.open(tmp_path / "run").round(1).clients().parameters) == 1


@pytest.mark.parametrize("name", ["", ".", "/x", "x/", "a//b", "x\0y", "x\ud800"])
def test_names_that_a_file_cannot_have_are_refused(name: str, tmp_path: Path) -> None:
    said = refused(tmp_path / "run", {name: W, "w": W})
    shown = visible(repr(name))
    assert said == f"a model has an entry {shown}, which a run cannot store with the others; rename it"
    torch.save({name.replace("\ud800", "\0"): HERE, "w": HERE}, tmp_path / "a.pt")
    with pytest.raises(FedscopeError, match="which a run cannot store with the others; rename it"):
        fedscope.import_models(tmp_path / "a.pt", tmp_path / "imported")
    assert not (tmp_path / "imported").exists()


def test_a_view_that_turns_signs_is_recorded_and_read_with_them(tmp_path: Path) -> None:
    assert NEGATIVE.is_neg(), "and NumPy does not have it"
    beside = torch._neg_view(NEGATIVE)
    with Recorder(tmp_path / "run") as recorder:
        recorder.round(clients=[{"w": NEGATIVE, "v": beside}])
    found = Run.open(tmp_path / "run").round(1).clients().row(0).arrays()
    np.testing.assert_array_equal(found["w"], NEGATIVE.resolve_neg().numpy())
    np.testing.assert_array_equal(found["v"], -found["w"], "of one place, and other numbers")
    torch.save({"w": NEGATIVE}, tmp_path / "a.pt")
    np.testing.assert_array_equal(read_file(tmp_path / "a.pt").arrays()["w"], found["w"])
    imported = fedscope.import_models(tmp_path / "a.pt", tmp_path / "imported")
    np.testing.assert_array_equal(imported.round(1).clients().row(0).arrays()["w"], found["w"])


def test_a_checkpoint_with_one_model_is_still_one(tmp_path: Path) -> None:
    """What lies beside a model that is called so is no weight of it: losses, states of optimisers, other models."""
    for i, model in enumerate(
        [
            {"model": {"w": W}, "ema": {"w": W}, "class_weights": W[0]},
            {"params": {"dense": {"w": W}}, "step": 3, "loss": np.float32(0.5)},
            {"state_dict": {"w": W}, "optimizer": {"state": {0: {"momentum": W}}}},
            {"state_dict": {"w": W}, "grads": [W, W], "losses": [np.float32(0.5)]},
            {"net": {"w": W}, "losses": [np.float32(0.5), np.float32(0.4)]},
        ]
    ):
        with Recorder(tmp_path / f"{i}") as recorder:
            recorder.round(clients=[model])
        assert Run.open(tmp_path / f"{i}").layout.names == ("w",)


def numbered(models: Any) -> dict[int, Any]:
    names = ["b", 2**63, "a"]  # of all clients, not of one round's
    numbers = {name: k for k, name in enumerate(names)}
    return {numbers[name]: model for name, model in models.items()}


@pytest.mark.parametrize(
    ("clients", "said", "remedy"),
    [
        (
            {"a": {"w": W}, "b": {"w": W}},
            "client 'a' is not a whole number from 0 to 2^63 - 1; number all clients once, before the rounds: "
            "numbers = {name: k for k, name in enumerate(names)}, and give "
            "clients={numbers[name]: model for name, model in models.items()}",
            numbered,
        ),
        (
            {2**63: {"w": W}},
            "client 9223372036854775808 is not a whole number from 0 to 2^63 - 1; number all clients once, ",
            numbered,
        ),
        (
            ({"w": W} for _ in range(2)),
            "clients as generator were given; give clients={number: model}, or a list",
            lambda _: [{"w": W} for _ in range(2)],
        ),
    ],
    ids=["names", "large", "generator"],
)
def test_what_is_offered_for_clients_is_taken(
    clients: Any, said: str, remedy: Callable[[Any], Any], tmp_path: Path
) -> None:
    with Recorder(tmp_path / "run") as recorder:
        with pytest.raises(FedscopeError) as found:
            recorder.round(clients=clients)
        assert said in str(found.value)
        recorder.round(clients=remedy(clients))
    assert Run.open(tmp_path / "run").rounds == (1,)


def test_a_size_of_numpy_is_a_size(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run", sketch=np.int64(16)) as recorder:  # type: ignore[arg-type]
        recorder.round(start={"w": W}, clients=[{"w": W + 1}])
    assert Run.open(tmp_path / "run").rounds == (1,)


def test_a_partition_that_is_too_large_is_told_what_makes_it_smaller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other numbers of clients or classes, where numbers are the reason; of so many clients there is no such remedy."""
    monkeypatch.setattr(given_partition, "MOST_NUMBERS", 10)
    monkeypatch.setattr(given_partition, "MOST_COUNTS", 12)
    alone = "leave partition= out, or give that of fewer clients in a run of their own"
    for parts, labels, said in (
        (
            {10: [0]},
            [0, 1],
            "partition= has client 10, and holds a list of all clients from 0 on, of which it takes 10; n",
        ),
        ({10: [0]}, [0, 1], "number the clients from 0 on, in rounds too"),
        ({k: [0] for k in range(11)}, [0, 1], alone),
        (
            {0: [0]},
            [3, 12],
            "labels= go up to 12 and partition= to client 0, and the classes of each are counted from 0 ",
        ),
        ({0: [0]}, [3, 12], "are more than 12 numbers; number the classes from 0 on"),
        ({0: [0], 6: [1]}, [0, 1], "number the clients from 0 on, in rounds too, and the classes"),
        ({k: [0] for k in range(7)}, [0, 1], alone),
    ):
        with pytest.raises(FedscopeError) as found:
            Recorder(tmp_path / "run", partition=parts, labels=labels)
        assert said in str(found.value)
        if alone not in said:
            numbered = dict(enumerate(parts.values()))
            classes = np.unique(labels, return_inverse=True)[1]
            with Recorder(tmp_path / "run", partition=numbered, labels=classes, force=True) as recorder:
                recorder.round(clients={0: {"w": W}})
    assert Run.open(tmp_path / "run").rounds == (1,)


@pytest.mark.parametrize(
    ("tensor", "said", "remedy"),
    [
        (
            torch.tensor(COMPLEX),
            "complex, and weights are plain numbers; save its real and imaginary parts as two",
            None,
        ),
        (HERE.to_sparse(), "sparse, and weights are plain numbers; save w.to_dense() in its place", "to_dense"),
        (
            torch.quantize_per_tensor(HERE, 0.1, 0, torch.qint8),
            "quantised, and weights are plain numbers; save w.dequantize() in its place",
            "dequantize",
        ),
        (
            HERE.to("meta"),
            "without values, and weights are plain numbers; save it with its values, of a module on",
            None,
        ),
    ],
    ids=["complex", "sparse", "quantised", "meta"],
)
def test_what_is_offered_for_a_tensor_of_a_file_is_taken(tensor: Any, said: str, remedy: str | None) -> None:
    with pytest.raises(FedscopeError) as found:
        refuse_valueless("a.pt", "w", tensor)
    assert str(found.value).startswith(f"a.pt: w is {said}")
    refuse_valueless("a.pt", "w", getattr(tensor, remedy)() if remedy is not None else HERE)


def test_another_precision_is_told_from_another_architecture(tmp_path: Path) -> None:
    with Recorder(tmp_path / "two") as recorder, pytest.raises(FedscopeError) as found:
        recorder.round(start={"w": W.astype(np.float32)}, clients=[{"w": W.astype(np.float16)}])
    assert str(found.value).endswith(
        "client 0 has w in float16, the run's models in float32; give all in one precision, as weight.float()"
    )
