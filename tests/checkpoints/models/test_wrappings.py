"""What a model's file may be and hold: headers of any length, constants, counters, tied tensors, NumPy's numbers,
several models, folders and parts."""

from __future__ import annotations

import argparse
import io
import json
import pathlib
import pickle
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save, save_file, save_model
from torch import nn
from torch.nn.utils import parametrizations, weight_norm

import fedscope
from fedscope.checkpoints import (
    FedscopeError,
    FedscopeWarning,
    Layout,
    load_model,
    parse_address,
    read_file,
    write_file,
)
from fedscope.checkpoints.models.expected import ExpectedModel
from fedscope.checkpoints.models.files import _kind, file_and_key, read_model
from fedscope.checkpoints.models.match_names import match_names
from fedscope.checkpoints.runs.addresses import distinct_labels
from fedscope.cli.main import run

State = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reader")


def net(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))


STATE, EXPECTED = net().state_dict(), ExpectedModel.of(net())


def same(weights: Any, state: State) -> None:
    assert set(weights.arrays()) == set(state)
    for name, value in weights.arrays().items():
        np.testing.assert_array_equal(value, state[name].numpy())


# --- which kind of file ---


def padded(content: bytes, more: int) -> bytes:
    """A safetensors file whose header has further spaces, as the format allows."""
    length = int.from_bytes(content[:8], "little")
    return (length + more).to_bytes(8, "little") + content[8 : 8 + length] + b" " * more + content[8 + length :]


@pytest.mark.parametrize("ending", [".safetensors", ".pt", ".bin"])
def test_a_header_of_any_length_is_one_of_safetensors(tmp_path: Path, ending: str) -> None:
    """All low bytes, among them 0x80 of pickles and 0x50 of zip files, and second bytes like a pickle's protocol."""
    content, path = save({"w": torch.ones(2)}), tmp_path / f"w{ending}"
    base = int.from_bytes(content[:8], "little")
    lengths = [*range(base, base + 257), *(256 * high + 0x80 for high in (2, 3, 4, 5)), 0x4B50, 2**16 + 0x80, 2**17]
    for length in lengths:
        path.write_bytes(padded(content, length - base))
        assert read_file(path).arrays()["w"].tolist() == [1, 1], length


def test_names_of_all_lengths(tmp_path: Path) -> None:
    seen = set()
    for size in range(1, 301):
        save_file({"w" * size: torch.ones(2), "bias": torch.ones(3)}, tmp_path / "w.safetensors")
        seen.add((tmp_path / "w.safetensors").read_bytes()[0])
        assert set(read_file(tmp_path / "w.safetensors").arrays()) == {"w" * size, "bias"}
    assert 0x80 in seen
    assert len(seen) == 32  # headers end at multiples of eight


@settings(max_examples=60)
@given(st.sampled_from(["zip", "legacy", "pickle2", "pickle4", "pickle5", "npz"]), st.integers(1, 400))
def test_no_other_file_is_taken_for_safetensors(folder: Path, how: str, size: int) -> None:
    state, path = {"w" * size: torch.ones(size)}, folder / "any.bin"
    if how == "npz":
        np.savez(folder / "any.npz", **{name: value.numpy() for name, value in state.items()})
        (folder / "any.npz").rename(path)
    elif how.startswith("pickle"):
        path.write_bytes(pickle.dumps({"w" * size: list(range(size))}, protocol=int(how[-1])))
    else:
        torch.save(state, path, _use_new_zipfile_serialization=how == "zip")
    assert _kind(path) == ("npz" if how == "npz" else "torch")


def test_a_header_that_is_cut_off_is_said_to_be_safetensors(tmp_path: Path) -> None:
    content = padded(save({"w": torch.ones(2)}), 1000)
    for ending in (".pt", ".safetensors"):
        (tmp_path / f"w{ending}").write_bytes(content[:300])
        with pytest.raises(FedscopeError, match=rf"w{ending} is truncated or not a safetensors file"):
            read_file(tmp_path / f"w{ending}")


def test_what_export_writes_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for size in range(8, 264, 8):
        state = {"w" * size: np.ones(2, np.float32), "bias": np.ones(3, np.float32)}
        write_file("own.safetensors", Layout(load_entries(state)).flatten(state))
        assert set(load_model("own.safetensors").weights.arrays()) == set(state)


def load_entries(state: dict[str, np.ndarray]) -> tuple[Any, ...]:
    from fedscope.checkpoints import TensorEntry

    return tuple(TensorEntry(name, value.shape, "float32", "parameter") for name, value in state.items())


# --- counters and constants ---


COUNTERS: dict[str, Any] = {
    "n_averaged": torch.tensor(3),
    "0.total_ops": torch.zeros(1, dtype=torch.float64),
    "total_params": torch.tensor([8.0], dtype=torch.float64),
    "embeddings.position_ids": torch.arange(5)[None],
    "attn.bias": torch.ones(1, 1, 4, 4, dtype=torch.bool).tril(),
    "rotary.inv_freq": torch.ones(4),
    "num_updates": torch.tensor(7),
    "steps": torch.tensor([12.0]),
    "0.activation_post_process.min_val": torch.tensor(-1.5),
    "0.fake_quant_enabled": torch.ones(1, dtype=torch.uint8),
}
WEIGHTS: dict[str, Any] = {
    "2.weight": torch.ones(2, 2),
    "2.bias": torch.ones(2),
    "0.weight_packed": torch.ones(4, dtype=torch.int8),
    "2.weight_int8": torch.ones(2, 2, dtype=torch.int8),
    "logit_scale": torch.tensor(2.6592),
    "act.weight": torch.tensor([0.25]),
    "2.running_mean": torch.ones(2),
    "gamma": torch.ones(1),
}


@pytest.mark.parametrize("ending", [".pt", ".safetensors"])
@pytest.mark.parametrize("name", COUNTERS)
def test_what_is_no_weight_is_left_out_and_said(tmp_path: Path, name: str, ending: str) -> None:
    path = tmp_path / f"net{ending}"
    (torch.save if ending == ".pt" else save_file)({**STATE, name: COUNTERS[name]}, path)
    weights, note = read_model(path, EXPECTED)
    same(weights, STATE)
    assert note == f"{name} is left out, which is no weight"
    # the same behind a prefix that all weights have, whether it has the prefix or not
    for other in (name, f"module.{name}"):
        (torch.save if ending == ".pt" else save_file)(
            {**{f"module.{key}": value for key, value in STATE.items()}, other: COUNTERS[name]}, path
        )
        weights, note = read_model(path, EXPECTED)
        same(weights, STATE)
        assert note == f'the prefix "module." is taken off its names, {other} is left out, which is no weight'


@pytest.mark.parametrize("name", WEIGHTS)
def test_what_may_be_a_weight_is_refused_with_what_takes_it_out(tmp_path: Path, name: str) -> None:
    state = {**STATE, name: WEIGHTS[name]}
    torch.save(state, tmp_path / "net.pt")
    with pytest.raises(FedscopeError, match=rf"{name} unexpected; leave it out, as (.*) does$") as caught:
        read_file(tmp_path / "net.pt", EXPECTED)
    remedy = str(caught.value).partition(", as ")[2].removesuffix(" does")
    torch.save(eval(remedy, {"state": state, "model": net()}), tmp_path / "net.pt")
    same(read_file(tmp_path / "net.pt", EXPECTED), STATE)


def test_what_is_missing_is_to_be_saved() -> None:
    lacking = {name: value for name, value in STATE.items() if name != next(iter(STATE))}
    data = (torch.randn(6, 3), torch.arange(6) % 2)
    with pytest.raises(
        FedscopeError, match=r"missing; give the whole model.state_dict\(\), or the architecture that .*="
    ):
        fedscope.line([STATE, lacking], model=net(), data=data, points=3)


def test_an_import_says_which_tensors_to_leave_out(tmp_path: Path) -> None:
    torch.save(STATE, tmp_path / "a.pt")
    torch.save({**other(1), "criterion.weight": torch.ones(3)}, tmp_path / "b.pt")
    does = r"as \{name: state\[name\] for name in model.state_dict\(\)\} does, or leave one file out$"
    for files, out_of in (("ab", "it"), ("ba", ".*b.pt")):
        with pytest.raises(FedscopeError, match=rf"so leave criterion.weight out of {out_of}, {does}"):
            fedscope.import_models([tmp_path / f"{name}.pt" for name in files], tmp_path / "run")
    with pytest.raises(FedscopeError, match=rf"b.pt has .*, unlike .*, so leave criterion.weight out of it, {does}"):
        fedscope.import_models([tmp_path / "a.pt", tmp_path / "b.pt"], tmp_path / "run", model=net())
    torch.save({name: value for name, value in STATE.items() if name != next(iter(STATE))}, tmp_path / "b.pt")
    with pytest.raises(
        FedscopeError, match=r"b.pt lacks .*, so give the whole model.state_dict\(\), or the archit.*=\)$"
    ):
        fedscope.import_models([tmp_path / "b.pt"], tmp_path / "run", model=net())


# --- weight_norm ---


class Normed(nn.Module):
    """Layers of the old and of the new ``weight_norm``; the old one keeps its names."""

    def __init__(self, norm: Any, kept: bool = False) -> None:
        super().__init__()
        self.fc = norm(nn.Linear(3, 4))
        self.head = norm(nn.Linear(4, 2, bias=False))
        self.last = weight_norm(nn.Linear(2, 2)) if kept else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.head(torch.tanh(self.fc(x))))


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod."])
@pytest.mark.parametrize("kept", [False, True])
def test_files_of_the_old_weight_norm_are_read_as_torch_reads_them(tmp_path: Path, prefix: str, kept: bool) -> None:
    olds = [Normed(weight_norm, kept), Normed(weight_norm, kept)]
    files = [tmp_path / "0.pt", tmp_path / "1.pt"]
    for old, file in zip(olds, files, strict=True):
        torch.save({f"{prefix}{name}": value for name, value in old.state_dict().items()}, file)
    new = Normed(parametrizations.weight_norm, kept)
    new.load_state_dict(olds[0].state_dict())
    weights, note = read_model(files[0], ExpectedModel.of(new))
    same(weights, new.state_dict())
    assert note.startswith("its names of the old weight_norm are read as torch reads them (")
    x, y = torch.randn(12, 3), torch.arange(12) % 2
    line = fedscope.line([files[0], files[1]], model=new, data=(x, y), points=3)
    losses = [nn.functional.cross_entropy(old(x), y).item() for old in olds]
    assert [np.isclose(line.loss, loss, rtol=1e-5).any() for loss in losses] == [True, True]  # float32 against float64


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
def test_names_of_weight_norm_that_torch_does_not_read_are_refused(tmp_path: Path) -> None:
    torch.save(Normed(parametrizations.weight_norm).state_dict(), tmp_path / "new.pt")
    with pytest.raises(FedscopeError, match=r"missing.*unexpected"):
        read_model(tmp_path / "new.pt", ExpectedModel.of(Normed(weight_norm)))
    half = {name: value for name, value in Normed(weight_norm).state_dict().items() if name != "fc.weight_v"}
    torch.save(half, tmp_path / "half.pt")
    with pytest.raises(FedscopeError, match=r"missing"):
        read_model(tmp_path / "half.pt", ExpectedModel.of(Normed(parametrizations.weight_norm)))


class Constants(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = net()
        self.register_buffer("position_ids", torch.arange(5)[None])
        self.register_buffer("mask", torch.ones(3, 3, dtype=torch.bool).tril())
        self.register_buffer("center", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> Any:
        return self.net(x)


def test_a_constant_that_is_missing_is_the_architectures_own(tmp_path: Path) -> None:
    module = Constants()
    state = dict(module.state_dict())
    for name in ("position_ids", "mask", "net.1.num_batches_tracked"):
        less = {key: value for key, value in state.items() if key != name}
        torch.save(less, tmp_path / "net.pt")
        weights, note = read_model(tmp_path / "net.pt", ExpectedModel.of(module))
        same(weights, state)
        assert note == f"it lacks {name}, which is the architecture's own constant"
    for name in ("net.1.running_mean", "net.1.running_var", "center", "net.0.bias"):
        less = {key: value for key, value in state.items() if key != name}
        torch.save(less, tmp_path / "net.pt")
        with pytest.raises(FedscopeError, match=rf"{name} missing"):
            read_model(tmp_path / "net.pt", ExpectedModel.of(module))
    # of a layout alone the value is not known
    torch.save({key: value for key, value in state.items() if key != "mask"}, tmp_path / "net.pt")
    with pytest.raises(FedscopeError, match=r"mask missing"):
        read_model(tmp_path / "net.pt", Layout.of(module))


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("name", ["embeddings.position_ids", "n_averaged", "0.total_ops"])
def test_an_import_of_files_of_which_one_has_a_constant(tmp_path: Path, name: str, first: bool) -> None:
    more, plain = tmp_path / "more.pt", tmp_path / "plain.pt"
    torch.save({**STATE, name: COUNTERS[name]}, more)
    torch.save(net(1).state_dict(), plain)
    files = [more, plain] if first else [plain, more]
    with pytest.warns(FedscopeWarning) as said:
        made = fedscope.import_models(files, tmp_path / "run")
    kept = first and name == "embeddings.position_ids"
    assert (name in made.layout.names) == kept
    assert sum(name in str(one.message) for one in said) == 1
    for k, path in enumerate(files):
        own = {key: value for key, value in torch.load(path).items() if key in STATE}
        arrays = made.round(1).client(k).arrays()
        for key, value in own.items():
            np.testing.assert_array_equal(arrays[key], value.numpy())
        if kept:
            np.testing.assert_array_equal(arrays[name], COUNTERS[name].numpy())


# --- tied tensors ---


class Tied(nn.Module):
    def __init__(self, *, tied: bool = True) -> None:
        super().__init__()
        self.embed = nn.Embedding(12, 8)
        self.left, self.right = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)
        self.head = nn.Linear(8, 12, bias=False)
        self.register_buffer("scale", torch.rand(12))
        self.register_buffer("again", self.scale if tied else torch.rand(12))
        if tied:
            self.head.weight = self.embed.weight
            self.right.weight = self.left.weight

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(self.right(torch.tanh(self.left(self.embed(x))))) * self.scale * self.again


TIES = [("embed.weight", "head.weight"), ("left.weight", "right.weight"), ("scale", "again")]


def tied(seed: int) -> Tied:
    torch.manual_seed(seed)
    return Tied()


@settings(max_examples=20, deadline=None)
@given(st.tuples(*(st.sampled_from([(0,), (1,), (0, 1)]) for _ in TIES)), st.sampled_from([".pt", ".safetensors"]))
def test_either_name_of_a_tied_tensor_is_enough(folder: Path, kept: tuple[tuple[int, ...], ...], ending: str) -> None:
    state = tied(0).state_dict()
    less = {pair[i]: state[pair[i]].clone() for pair, which in zip(TIES, kept, strict=True) for i in which}
    (torch.save if ending == ".pt" else save_file)(less, folder / f"tied{ending}")
    weights, note = read_model(folder / f"tied{ending}", ExpectedModel.of(tied(1)))
    same(weights, state)
    lacks = [pair for pair, which in zip(TIES, kept, strict=True) if len(which) == 1]
    assert note.count("which it is tied to") == len(lacks)
    if lacks:  # two tensors in another architecture
        with pytest.raises(FedscopeError, match=r"missing"):
            read_model(folder / f"tied{ending}", ExpectedModel.of(Tied(tied=False)))


DATA = (torch.arange(24).reshape(4, 6) % 12, torch.arange(24).reshape(4, 6) % 12)


def loss(model: nn.Module) -> float:
    with torch.no_grad():
        return float(nn.functional.cross_entropy(model(DATA[0]).flatten(0, 1), DATA[1].flatten()))


@pytest.mark.parametrize("form", ["file", "state_dict", "recorder", "import"])
def test_questions_on_tied_models_have_torchs_losses(tmp_path: Path, form: str) -> None:
    models = [tied(1), tied(2)]
    for k, model in enumerate(models):
        save_model(model, str(tmp_path / f"{k}.safetensors"))
    files = [tmp_path / f"{k}.safetensors" for k in range(2)]
    less = [{name: value for name, value in model.state_dict().items() if name != "head.weight"} for model in models]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FedscopeWarning)
        asked: list[Any] = files if form == "file" else less
        if form == "recorder":
            with fedscope.Recorder(tmp_path / "run", model=tied(0)) as recorder:
                recorder.round(start=tied(3), clients=less)
        elif form == "import":
            fedscope.import_models(files, tmp_path / "run")
        if form in ("recorder", "import"):
            asked = [f"{tmp_path}/run@1/client-{k}" for k in range(2)]
        found = fedscope.line(asked, model=tied(0), data=DATA, task="sequences", points=3, range=(0, 1)).loss[0]
        np.testing.assert_allclose(found[[0, 2]], [loss(models[1]), loss(models[0])], rtol=1e-5)
        if form in ("recorder", "import"):
            run = tmp_path / "run"
            subsets = fedscope.subsets(run, model=tied(0), data=DATA, task="sequences", split="test")
            assert subsets.rounds[0].sizes[0].loss_mean == pytest.approx(np.mean([*map(loss, models)]), rel=1e-5)


@pytest.mark.parametrize("where", ["file", "memory", "recorder", "import", "run"])
@pytest.mark.parametrize("pair", TIES)
def test_two_values_of_one_tensor_are_refused(tmp_path: Path, where: str, pair: tuple[str, str]) -> None:
    """torch's load_state_dict would take the last one without a word."""
    state = {name: value.clone() for name, value in tied(0).state_dict().items()}
    state[pair[1]] += 1
    torch.save(state, tmp_path / "a.pt")
    named: dict[str, Any] = {"model": tied(0), "data": DATA, "task": "sequences", "points": 3}

    def given_as(where: str) -> None:
        if where == "recorder":
            with fedscope.Recorder(tmp_path / "run", model=tied(0)) as recorder:
                recorder.round(clients=[state, tied(1)])
        elif where == "import":
            fedscope.import_models([tmp_path / "a.pt"], tmp_path / "run", model=tied(0))
        elif where == "run":
            with fedscope.Recorder(tmp_path / "run") as recorder:
                recorder.round(clients=[state, state])
            fedscope.line([f"{tmp_path}/run@1/client-0", tied(1)], **named)
        else:
            fedscope.line([tmp_path / "a.pt" if where == "file" else state, tied(1)], **named)

    both = "|".join(f"{one} and {other}" for one, other in (pair, pair[::-1]))
    with pytest.raises(
        FedscopeError, match=rf"({both}) hold different numbers, but are one tensor in the architecture"
    ):
        given_as(where)


# --- prefixes ---


NAMES = st.lists(st.sampled_from(["a", "b", "module", "model", "net", "0", "_orig_mod"]), min_size=1, max_size=4)


@settings(max_examples=200)
@given(
    st.lists(NAMES.map(".".join), min_size=1, max_size=5, unique=True),
    st.lists(st.sampled_from(["module", "_orig_mod", "model", "_module", "base_model.model"]), max_size=3),
    st.booleans(),
)
def test_a_prefix_never_mixes_tensors_up(names: list[str], prefix: list[str], before: bool) -> None:
    """Each tensor has a shape of its own, so that a fit which exchanges two is seen; one that finds none is refused."""
    from fedscope.checkpoints import TensorEntry

    shapes = {name: (i + 1,) for i, name in enumerate(names)}
    put = "".join(f"{part}." for part in prefix)
    given = {f"{put}{name}" if before else name: np.ones(shape) for name, shape in shapes.items()}
    wanted = {name if before else f"{put}{name}": shape for name, shape in shapes.items()}
    layout = Layout(tuple(TensorEntry(name, shape, "float64", "parameter") for name, shape in wanted.items()))
    found = match_names("x", given, dict.fromkeys(given, "float64"), ExpectedModel(layout))
    assert found.whole
    right = dict(zip(wanted, given, strict=True))
    if found.names != right:  # names that say two things: all wanted ones are there as they are
        assert found.names == {name: name for name in wanted}
        assert set(wanted) == set(given)


# --- numbers of NumPy beside the tensors ---


NUMBERS: dict[str, Any] = {
    "float64": np.float64(0.91),
    "float32": np.float32(0.91),
    "int": np.int64(-3),
    "bool": np.bool_(True),
    "array": np.arange(3.0),
    "matrix": np.asfortranarray(np.arange(6, dtype=np.int32).reshape(2, 3)),
    "big-endian": np.arange(3, dtype=">f4"),
    "empty": np.zeros((0, 3)),
    "random state": np.random.get_state(),  # noqa: NPY002 (what programs keep)
    "text": np.array(["a", "bc"]),
    "objects": np.array([1, "a", None], dtype=object),
    "date": np.datetime64("2026-01-01"),
    "type": np.dtype("float32"),
    "nested": {"best": [np.float64(1.0), (np.float32(2.0), {"x": np.arange(2)})]},
}


def as_numpy_1(path: Path) -> None:
    """The pickle with the names of NumPy 1, ``numpy.core``."""
    made = io.BytesIO()
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(made, "w") as other:
        for name in archive.namelist():
            content = archive.read(name)
            if name.endswith("data.pkl"):
                assert b"numpy._core" in content
                content = content.replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")
            other.writestr(name, content)
    path.write_bytes(made.getvalue())


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_of_numpy_beside_the_tensors_are_admitted(tmp_path: Path, name: str, old: bool) -> None:
    path = tmp_path / "c.pt"
    torch.save({"state_dict": STATE, "more": NUMBERS[name]}, path)
    if old and name != "type":
        as_numpy_1(path)
    before = set(torch.serialization.get_safe_globals())
    same(read_file(path, EXPECTED), STATE)
    assert set(torch.serialization.get_safe_globals()) == before


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", ">f4", "int64"])
def test_a_state_dict_of_arrays_is_read(tmp_path: Path, dtype: str) -> None:
    rng = np.random.default_rng(0)
    arrays = {"w": rng.normal(size=(3, 4)).astype(dtype), "f": np.asfortranarray(rng.normal(size=(2, 3))).astype(dtype)}
    torch.save({"model": arrays, "epoch": np.int64(3)}, tmp_path / "c.pt")
    found = read_file(tmp_path / "c.pt").arrays()
    for name, value in arrays.items():
        np.testing.assert_array_equal(found[name], value)


class Trap:
    def __reduce__(self) -> Any:
        return (open, ("trapped", "w"))


def test_hostile_arrays_run_nothing_and_take_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A type that says its elements are no objects, while its name says that they are; sizes that are not stored."""
    monkeypatch.chdir(tmp_path)

    class Array:
        def __init__(self, state: Any) -> None:
            self.state = state

        def __reduce__(self) -> Any:
            return np._core.multiarray._reconstruct, (np.ndarray, (0,), b"b"), self.state

    class Type:
        def __reduce__(self) -> Any:
            return np.dtype, ("O8", False, True), (3, "|", None, None, None, -1, -1, 0)

    states = [
        (1, (1,), Type(), False, b"\x41" * 8),
        (1, (2**62,), np.dtype("f8"), False, b""),
        (1, (2**31, 2**31), np.dtype("f8"), False, b"\0" * 8),
        (1, (-1,), np.dtype("f8"), False, b""),
        (1, (3,), np.dtype("f8"), False, "abc"),
        (1, "x", None, False, b""),
        (),
    ]
    for state in states:
        torch.save({"state_dict": STATE, "more": Array(state)}, "c.pt")
        same(read_file("c.pt", EXPECTED), STATE)
    torch.save({"state_dict": STATE, "more": np.array([Trap()], dtype=object)}, "c.pt")
    with pytest.raises(FedscopeError, match=r"c.pt is a pickle that would run code \((_?io\.)?open\)"):
        read_file("c.pt", EXPECTED)
    assert not Path("trapped").exists()


@pytest.mark.parametrize(
    ("more", "what"),
    [
        (argparse.Namespace(lr=0.1), "argparse.Namespace"),
        (pathlib.PurePosixPath("x"), "pathlib.*PurePosixPath"),
        (slice(1, 2), "slice"),
    ],
)
def test_other_objects_are_refused_with_what_works_where_the_user_is(tmp_path: Path, more: Any, what: str) -> None:
    for key, tensors in (("state_dict", r'checkpoint\["state_dict"\]'), ("net", r"model.state_dict\(\)")):
        torch.save({key: STATE, "more": more}, tmp_path / "c.pt")
        with pytest.raises(
            FedscopeError, match=rf"c.pt .*{what}.*must never run code; .*torch.save\({tensors}, ...\)$"
        ):
            read_file(tmp_path / "c.pt", EXPECTED)


def test_what_its_user_has_told_torch_to_be_safe_is_taken(tmp_path: Path) -> None:
    torch.save({"state_dict": STATE, "more": argparse.Namespace(lr=0.1), "best": np.float64(1)}, tmp_path / "c.pt")
    known = [argparse.Namespace, np.ndarray, np.dtype, np._core.multiarray.scalar]
    with torch.serialization.safe_globals(known):
        same(read_file(tmp_path / "c.pt", EXPECTED), STATE)
        assert set(known) <= set(torch.serialization.get_safe_globals())


# --- several models in a file ---


def other(seed: int) -> State:
    return net(seed).state_dict()


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    torch.save({"models": {"student": other(1), "teacher": other(2)}, "ema": {"state_dict": other(3)}}, "ckpt.pt")
    whole = {f"student.{k}": v for k, v in other(4).items()} | {f"teacher.{k}": v for k, v in other(5).items()}
    torch.save({"state_dict": whole, "epoch": 1}, "lit.ckpt")
    save_file({key: value.clone() for key, value in whole.items()}, "flat.safetensors")
    torch.save({"state_dict": other(6), "state_dict_ema": other(7)}, "timm.pth")
    torch.save(other(8), "odd:name.pt")
    return tmp_path


@pytest.mark.parametrize(
    ("address", "seed"),
    [
        ("ckpt.pt:models.student", 1),
        ("ckpt.pt:models.teacher", 2),
        ("ckpt.pt:ema", 3),
        ("ckpt.pt:ema.state_dict", 3),
        ("lit.ckpt:student", 4),
        ("lit.ckpt:state_dict.teacher", 5),
        ("flat.safetensors:student", 4),
        ("flat.safetensors:teacher", 5),
        ("timm.pth", 6),
        ("timm.pth:state_dict", 6),
        ("timm.pth:state_dict_ema", 7),
        ("odd:name.pt", 8),
    ],
)
def test_a_key_names_one_of_several_models(two: Path, address: str, seed: int) -> None:
    for layout in (EXPECTED, None):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FedscopeWarning)
            same(load_model(address, layout).weights, other(seed))
            same(load_model(f"{two}/{address}", layout).weights, other(seed))


def test_keys_in_imports_lines_and_trainings(two: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["import", "ckpt.pt:models.student", "ckpt.pt:models.teacher", "--start", "ckpt.pt:ema", "--out", "run"]
    assert run(words) == 0, capsys.readouterr()
    made = fedscope.Run.open("run")
    for k, seed in enumerate((1, 2)):
        same(made.round(1).client(k), other(seed))
    same(made.round(1).read("start"), other(3))
    assert made.info["imported"]["1/client-1"] == "ckpt.pt:models.teacher"
    for k in range(3):
        torch.save({"student": other(10 + k), "teacher": other(20 + k)}, f"client-{k}.pt")
    for files, seeds in (("client-{client}.pt:teacher", (20, 21, 22)), ("client-*.pt:student", (10, 11, 12))):
        assert run(["import", files, "--out", "run", "--force"]) == 0, capsys.readouterr()
        for k, seed in enumerate(seeds):
            same(fedscope.Run.open("run").round(1).client(k), other(seed))
    x, y = torch.randn(12, 3), torch.arange(12) % 2
    line = fedscope.line(["client-0.pt:teacher", "client-0.pt:student"], model=net(), data=(x, y), points=3)
    assert line.pairs == ("client-0:teacher - client-0:student",)


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        (
            "ckpt.pt:models.techer",
            r"ckpt.pt holds no model under 'models.techer'; did you mean \"models.teacher\"\?, it has",
        ),
        ("ckpt.pt:nets", r"holds no model under 'nets'; it has models.student, models.teacher, ema.state_dict"),
        ("ckpt.pt:models", r"ckpt.pt holds 2 models \(student, teacher\), and it is unclear which one is meant"),
        ("ckpt.pt", r"holds 3 models .*; name one of them, ckpt.pt:models.student$"),
        ("lit.ckpt:x", r"lit.ckpt holds no model under 'x'; it has state_dict"),
        ("flat.safetensors:x", r"flat.safetensors holds no model under 'x'; it has student, teacher"),
        (
            "flat.safetensors",
            r"; all of them are there behind each of \"student.\" and \"teacher.\": name one, as in flat.saf",
        ),
        ("gone.pt:teacher", r"gone.pt does not exist"),
    ],
)
def test_a_key_that_is_not_there_is_refused_with_those_that_are(two: Path, address: str, sentence: str) -> None:
    with pytest.raises(FedscopeError, match=sentence):
        load_model(address, EXPECTED)


@pytest.mark.parametrize(
    ("checkpoint", "key"),
    [
        (lambda models: dict(enumerate(models)), "1"),
        (lambda models: {"clients": dict(enumerate(models)), "global": models[0]}, "clients.1"),
        (lambda models: list(models), "1"),
        (lambda models: {"round": 3, "clients": [{"model": model} for model in models]}, "clients.1"),
        (lambda models: {np.int64(k): model for k, model in enumerate(models)}, "1"),
    ],
)
def test_models_by_number_and_in_lists_have_a_key(tmp_path: Path, checkpoint: Any, key: str) -> None:
    torch.save(checkpoint([other(k) for k in range(3)]), tmp_path / "r.pt")
    for expected in (EXPECTED, None):
        same(load_model(f"{tmp_path / 'r.pt'}:{key}", expected).weights, other(1))
    with pytest.raises(FedscopeError, match=rf"holds no model under '7'.* it has .*{key}"):
        load_model(f"{tmp_path / 'r.pt'}:7")


def test_several_by_number_are_listed_and_offered_by_their_whole_key(tmp_path: Path) -> None:
    models = [other(k) for k in range(2)]
    torch.save(models, tmp_path / "list.pt")
    torch.save({"clients": dict(enumerate(models))}, tmp_path / "nest.pt")
    for address, first in (("list.pt", "list.pt:0"), ("nest.pt:clients", "nest.pt:clients.0")):
        with pytest.raises(FedscopeError, match=rf"holds 2 models \(0, 1\).*; name one of them, .*{first}$"):
            load_model(str(tmp_path / address))
        same(load_model(str(tmp_path / first)).weights, models[0])


def test_what_is_numbered_is_not_in_the_way_of_a_model(tmp_path: Path) -> None:
    """States of optimisers, logs and samples are lists and numbers, too."""
    module = net()
    optimiser = torch.optim.Adam(module.parameters())
    module(torch.randn(4, 3)).sum().backward()
    optimiser.step()
    state = module.state_dict()
    beside = {
        "opt": optimiser.state_dict(),
        "moments": optimiser.state_dict()["state"],
        "log": [{"acc": torch.tensor(0.5)}] * 3,
        "samples": [{"x": torch.ones(3), "y": torch.ones(1)}] * 3,
    }
    torch.save({"net": state, **beside}, tmp_path / "c.pt")
    found = load_model(str(tmp_path / "c.pt"))
    same(found.weights, state)
    assert found.note == "the model is what it holds under 'net'"
    torch.save({"model": state, **beside}, tmp_path / "d.pt")
    assert load_model(str(tmp_path / "d.pt")).note == ""


def test_keys_that_are_no_text_are_named(tmp_path: Path) -> None:
    torch.save({0: torch.ones(2), (1, 2): torch.ones(2)}, tmp_path / "k.pt")
    with pytest.raises(FedscopeError) as refused:
        load_model(str(tmp_path / "k.pt"))
    assert str(refused.value) == f"{tmp_path}/k.pt has keys that are no text (0, (1, 2)); save model.state_dict()"


def test_layers_are_no_models(tmp_path: Path) -> None:
    """The one layer of a list was taken for the model, without the tensors beside the list."""
    layer = {"w": torch.ones(3, 4), "b": torch.ones(3)}
    for k, beside in enumerate(([layer], {0: layer}, {"0": [layer]})):
        torch.save({"scale": torch.ones(3), "layers": beside}, tmp_path / f"{k}.pt")
        with pytest.raises(FedscopeError, match=r"holds other things than tensors \(layers\); save model\.state_dict"):
            load_model(str(tmp_path / f"{k}.pt"))
    assert load_model(f"{tmp_path / '0.pt'}:layers.0").weights.layout.names == ("w", "b")
    torch.save({"layers": [layer, {"w": torch.ones(2, 3), "b": torch.ones(2)}]}, tmp_path / "n.pt")
    with pytest.raises(FedscopeError, match=r"n.pt:layers.0, or if these are layers of one model, save its state_dict"):
        load_model(str(tmp_path / "n.pt"))


@pytest.mark.parametrize("last", [{"w": torch.ones(2, 2)}, 1], ids=["a model", "none"])
@pytest.mark.parametrize("level", [lambda one: [one] * 1000, lambda one: {f"k{i}": one for i in range(1000)}])
def test_a_small_file_that_names_one_thing_without_end_is_read_in_a_moment(
    tmp_path: Path, last: Any, level: Any
) -> None:
    for _ in range(4):  # 10^12 places
        last = level(last)
    torch.save(last, tmp_path / "bomb.pt")
    with pytest.raises(FedscopeError, match=r"holds 100001 models|holds other things|holds list"):
        load_model(str(tmp_path / "bomb.pt"))


def test_colons_that_are_no_keys() -> None:
    assert file_and_key("C:\\nets\\ckpt.pt") == ("C:\\nets\\ckpt.pt", "")
    assert file_and_key("C:\\nets\\ckpt.pt:teacher") == ("C:\\nets\\ckpt.pt", "teacher")
    assert parse_address("gone.pt:models.teacher").key == "models.teacher"
    assert parse_address("runs/a@3").key == ""


# --- folders and parts ---


def pretrained(folder: Path, state: State, parts: int = 1, kind: str = "safetensors", index: bool = True) -> Path:
    """As save_pretrained writes a model, with what a trainer leaves beside it."""
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    torch.save({"lr": 0.1}, folder / "training_args.bin")
    torch.save({"state": {}}, folder / "optimizer.pt")
    stem = "model" if kind == "safetensors" else "pytorch_model"
    write = save_file if kind == "safetensors" else torch.save
    if parts == 1:
        write(dict(state), folder / f"{stem}.{kind}")
        return folder
    names, held = [*state], {}
    for i in range(parts):
        file = f"{stem}-{i + 1:05d}-of-{parts:05d}.{kind}"
        write({name: state[name].clone() for name in names[i::parts]}, folder / file)
        held |= dict.fromkeys(names[i::parts], file)
    if index:
        (folder / f"{stem}.{kind}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": held}))
    return folder


@pytest.mark.parametrize("kind", ["safetensors", "bin"])
@pytest.mark.parametrize(("parts", "index"), [(1, True), (2, True), (3, True), (3, False)])
def test_a_folder_of_one_model_is_that_model(tmp_path: Path, kind: str, parts: int, index: bool) -> None:
    path = pretrained(tmp_path / "hf", other(1), parts, kind, index)
    stem = "model.safetensors" if kind == "safetensors" else "pytorch_model.bin"
    given = [path, f"{path}/"]
    given += [path / f"{stem}.index.json"] if parts > 1 and index else [path / stem] if parts == 1 else []
    for address in given:
        same(load_model(str(address), EXPECTED).weights, other(1))
    assert load_model(str(path)).label == "hf"
    plain = pretrained(tmp_path / "plain", other(2))
    made = fedscope.import_models([path, plain], tmp_path / "run")
    for k, seed in enumerate((1, 2)):
        same(made.round(1).client(k), other(seed))
    x, y = torch.randn(12, 3), torch.arange(12) % 2
    line = fedscope.line([path, plain], model=net(), data=(x, y), points=3)
    assert line.pairs == ("hf - plain",)
    similar = fedscope.cka([path, plain], model=net(), data=(x, y))
    assert similar.cka.shape == (2, 2)


BESIDE = {
    "accelerate": ("optimizer.bin", "scheduler.bin", "sampler.bin", "random_states_0.pkl", "custom_checkpoint_0.pkl"),
    "accelerate, several": ("optimizer.bin", "optimizer_1.bin", "scheduler_1.bin", "sampler_1.bin", "scaler.pt"),
    "accelerate, stateful loaders": ("optimizer.bin", "dl_state_dict.bin", "dl_state_dict_1.bin"),
    "transformers": ("optimizer.pt", "scheduler.pt", "rng_state_0.pth", "training_args.bin"),
    "deepspeed": ("zero_pp_rank_0_mp_rank_00_optim_states.pt", "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"),
}


@pytest.mark.parametrize("names", BESIDE.values(), ids=BESIDE)
def test_what_a_trainer_saves_beside_a_model_is_none(tmp_path: Path, names: tuple[str, ...]) -> None:
    folders = [tmp_path / "ck0", tmp_path / "ck1"]
    for k, folder in enumerate(folders):
        folder.mkdir()
        for name in names:
            torch.save({"state": {0: {"step": torch.ones(()), "exp_avg": torch.ones(3)}}}, folder / name)
        with pytest.raises(FedscopeError, match=r"ck. holds no model's file \(.*\); it holds .*; give another folder"):
            fedscope.import_models([folder], tmp_path / "none")
        with pytest.raises(FedscopeError, match=r"ck. is a folder"):
            read_model(folder)
        save_file(dict(other(k)), folder / "model.safetensors")
    made = fedscope.import_models(folders, tmp_path / "run")
    for k in range(2):
        same(made.round(1).client(k), other(k))
    x, y = torch.randn(12, 3), torch.arange(12) % 2
    assert fedscope.line(folders, model=net(), data=(x, y), points=3).pairs == ("ck0 - ck1",)
    torch.save(other(3), folders[0] / "ema.pt")
    with pytest.raises(FedscopeError, match=r"ck0 is a folder of 2 models \(ema.pt, model.safetensors\); give one"):
        read_model(folders[0])


def test_folders_in_patterns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for k in range(3):
        pretrained(Path(f"client-{k}"), other(k), parts=2)
    for files in ("client-{client}", "client-*"):
        made = fedscope.import_models(files, "run", force=True)
        for k in range(3):
            same(made.round(1).client(k), other(k))


def test_what_is_missing_of_parts_is_named(tmp_path: Path) -> None:
    path = pretrained(tmp_path / "hf", other(1), 3)
    index = path / "model.safetensors.index.json"
    held = json.loads(index.read_text())
    part = path / "model-00002-of-00003.safetensors"
    alone = read_error(path / "model-00001-of-00003.safetensors")
    assert alone.endswith("; the file is one of several parts: give their folder, or its .index.json")
    content = part.read_bytes()
    part.unlink()
    for address in (path, index):
        assert "of a model's 3 parts model-00002-of-00003.safetensors is not there; copy it again" in read_error(
            address
        )
    save_file({"other": torch.ones(1)}, part)
    assert "model-00002-of-00003.safetensors lacks 0.bias, " in read_error(path)
    part.write_bytes(content)
    for file in ("../hf/x.safetensors", "/etc/passwd", ".."):
        index.write_text(json.dumps({"weight_map": {**held["weight_map"], "0.weight": file}}))
        assert f"names {file!r}, which is not a file beside it" in read_error(path)
    for text in ("[]", '{"weight_map": {}}', '{"weight_map": {"a": 3}}', "{"):
        index.write_text(text)
        assert "model.safetensors.index.json" in read_error(path)
    index.unlink()
    part.unlink()
    assert "of a model's 3 parts model-00002-of-00003.safetensors is not there" in read_error(path)


def read_error(path: Path) -> str:
    with pytest.raises(FedscopeError) as caught:
        load_model(str(path), EXPECTED)
    return str(caught.value)


def test_a_folder_of_several_models_or_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "ckpt").mkdir()
    sentence = r"ckpt is not an address of a model; .*; .*ckpt is a folder without one$"
    with pytest.raises(FedscopeError, match=sentence):
        load_model(str(tmp_path / "ckpt"))
    for name in ("a.pt", "model.safetensors"):  # no configuration says that the second is the model
        (save_file if name.endswith("s") else torch.save)(dict(STATE), tmp_path / "ckpt" / name)
    with pytest.raises(FedscopeError, match=r"ckpt holds a.pt, model.safetensors$"):
        load_model(str(tmp_path / "ckpt"))
    assert len(fedscope.import_models(tmp_path / "ckpt", tmp_path / "run").round(1).client_ids) == 2


def test_files_of_one_name_are_called_as_their_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for k in range(3):
        pretrained(Path(f"hf{k}"), other(k))
    files = [f"hf{k}/model.safetensors" for k in range(3)]
    x, y = torch.randn(12, 3), torch.arange(12) % 2
    plane = fedscope.plane(files, model=net(), data=(x, y), grid=3)
    assert [model.label for model in plane.models][:3] == ["hf0", "hf1", "hf2"]
    assert fedscope.plane.prepare(files, model=net(), data=(x, y), grid=3).name == "plane-hf0-hf1-hf2"
    assert distinct_labels(["m", "m", "x"], ["a/b/m.pt", "c/b/m.pt", "x.pt"]) == ["a", "c", "x"]
    assert distinct_labels(["m"] * 3, ["a/x/c/m.pt", "a/y/c/m.pt", "b/x/c/m.pt"]) == ["a/x/c", "a/y/c", "b/x/c"]
    assert distinct_labels(["m", "m"], ["m.pt", "b/m.pt"])[1] == "b"
    assert distinct_labels(["m", "n", "m", "n"], ["a/c/m.pt", "a/c/n.pt", "b/c/m.pt", "b/c/n.pt"]) == [
        "a/m",
        "a/n",
        "b/m",
        "b/n",
    ]
    assert distinct_labels(["m", "m"], ["a/m.pt", "a/m.pt"]) == ["a", "a"]
    assert distinct_labels(["a", "m", "m"], ["a.pt", "a/m.pt", "b/m.pt"]) == ["a", "a/m", "b/m"]


@pytest.mark.parametrize("kind", ["safetensors", "bin"])
@pytest.mark.parametrize("index", [True, False], ids=["index", "no index"])
def test_one_part_of_several_is_no_model(tmp_path: Path, kind: str, index: bool) -> None:
    """A folder in which all parts but one are missing was read as if that one were the whole."""
    folders = [pretrained(tmp_path / f"hf{k}", other(k), 2, kind, index) for k in range(2)]
    for folder in folders:
        next(folder.glob(f"*-00002-of-00002.{kind}")).unlink()
    for ask in (lambda: load_model(str(folders[0])), lambda: fedscope.import_models(folders, tmp_path / "run")):
        with pytest.raises(FedscopeError, match=r"of a model's 2 parts .*-00002-of-00002\.\w+ is not there; copy it"):
            ask()


def test_one_part_that_is_named_itself_is_said_to_be_one(tmp_path: Path) -> None:
    parts = [next(pretrained(tmp_path / f"hf{k}", other(k), 2).glob("*-00001-*")) for k in range(2)]
    with pytest.warns(FedscopeWarning, match="it is one of a model's 2 parts"):
        fedscope.import_models(parts, tmp_path / "run")


@pytest.mark.parametrize("name", ["model_best.pth.tar", "checkpoint", "weights.th", "net.pkl"])
def test_a_file_is_what_its_content_says_whatever_its_name(tmp_path: Path, name: str) -> None:
    torch.save({"net": other(1), "epoch": 3}, tmp_path / name)
    with pytest.warns(FedscopeWarning, match="under 'net'"):
        same(load_model(str(tmp_path / name), EXPECTED).weights, other(1))


class Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.fc(x + torch.randn_like(x))
        return found


def test_two_models_with_noise_are_refused_for_the_noise() -> None:
    """And not for being other functions of their tensors."""
    x, y = torch.randn(12, 3), torch.arange(12) % 2
    with pytest.raises(FedscopeError, match="different outputs for the same input"):
        fedscope.line([Noisy(), Noisy()], data=(x, y), points=3)


class Stateful(nn.Module):
    """A network with something beside its tensors, as TransformerEngine's layers have."""

    def __init__(self, extra: Any) -> None:
        super().__init__()
        self.fc, self.extra = nn.Linear(3, 2), extra

    def get_extra_state(self) -> Any:
        return self.extra

    def set_extra_state(self, state: Any) -> None:
        self.extra = state

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.fc(x)
        return found


@pytest.mark.parametrize("extra", [{"step": 3}, None, torch.tensor([3.0])], ids=["object", "nothing", "tensor"])
def test_extra_states_are_no_weights(tmp_path: Path, extra: Any) -> None:
    models = [Stateful(extra), Stateful(extra)]
    x, y = torch.randn(12, 3), torch.arange(12) % 2
    expected = [float(nn.functional.cross_entropy(model(x), y).detach()) for model in models]
    files = [tmp_path / f"{k}.pt" for k in range(2)]
    for file, model in zip(files, models, strict=True):
        torch.save({"model": model.state_dict()}, file)
    with pytest.warns(FedscopeWarning, match="_extra_state is left out, which is no"):
        fedscope.import_models(files, tmp_path / "imported")
    with fedscope.Recorder(tmp_path / "recorded") as recorder:
        recorder.round(start=models[0], clients=models, global_=models[1])
    clients = [f"{tmp_path / 'recorded'}@1/client-{k}" for k in range(2)]
    for asked in (models, files, clients, [f"{tmp_path / 'imported'}@1/client-{k}" for k in range(2)]):
        line = fedscope.line(asked, model=Stateful(extra), data=(x, y), points=3)
        for loss in expected:
            assert np.isclose(np.ravel(line.loss), loss, rtol=1e-5).any()


@pytest.mark.parametrize("more", [{"epoch": 3}, {"epoch": 3, "best": 0.91, "note": "x", "none": None}])
def test_numbers_and_texts_beside_the_tensors_are_left_out_and_said(tmp_path: Path, more: dict[str, Any]) -> None:
    state = {"weight": torch.randn(2, 3), "bias": torch.zeros(2)}
    torch.save({**state, **more}, tmp_path / "flat.pt")
    with pytest.warns(FedscopeWarning, match=r"epoch.* left out, which (is no tensor|are no tensors)"):
        read = read_file(tmp_path / "flat.pt")
    assert list(read.arrays()) == ["weight", "bias"]
    np.testing.assert_array_equal(read.arrays()["weight"], state["weight"].numpy())
    # of a part of a file they are none of the model, so no second one comes of them
    torch.save({"state_dict": state, "meter": {"loss": torch.ones(()), "count": 3}}, tmp_path / "two.pt")
    assert list(read_file(tmp_path / "two.pt").arrays()) == ["weight", "bias"]


def test_an_empty_file_is_said_to_be_empty(tmp_path: Path) -> None:
    for name in ("a.pt", "b.safetensors", "c.npz"):
        (tmp_path / name).touch()
        with pytest.raises(FedscopeError, match=rf"{name} is empty \(0 bytes\); copy or save it again"):
            read_file(tmp_path / name)


def test_an_import_names_the_prefix_behind_which_an_architecture_lies(tmp_path: Path) -> None:
    """Leaving one out cannot help where all files are alike; what the sentence names is followed to the letter."""
    for k in range(2):
        state = {f"model.{name}": value for name, value in other(k).items()} | {"criterion.weight": torch.ones(3)}
        torch.save({"state_dict": state}, tmp_path / f"{k}.ckpt")
    files = [tmp_path / f"{k}.ckpt" for k in range(2)]
    with pytest.raises(FedscopeError, match=r'behind the prefix "model\.", beside criterion.weight: name them, ') as no:
        fedscope.import_models(files, tmp_path / "run", model=net())
    assert str(no.value).endswith(f"{files[0]}:model")
    fedscope.import_models([f"{file}:model" for file in files], tmp_path / "run", model=net())
    assert set(fedscope.Run.open(tmp_path / "run").layout.names) == set(net().state_dict())


def test_factors_that_one_adapter_lacks_are_not_to_be_left_out_of_the_other(tmp_path: Path) -> None:
    """What a layer's factors add would be gone; factors of 0 add nothing."""
    names = [f"base_model.model.{layer}.lora_{part}.weight" for layer in (1, 3) for part in "AB"]
    whole = {name: torch.randn(2, 4) if ".lora_A." in name else torch.randn(4, 2) for name in names}
    part = {name: value for name, value in whole.items() if ".1." in name}
    torch.save(whole, tmp_path / "whole.pt")
    torch.save(part, tmp_path / "part.pt")
    for files in (("whole", "part"), ("part", "whole")):
        with pytest.raises(FedscopeError) as refused:
            fedscope.import_models([tmp_path / f"{name}.pt" for name in files], tmp_path / "run")
        assert str(refused.value).endswith(
            "so give the adapter that lacks base_model.model.3.lora_A.weight, base_model.model.3.lora_B.weight factors "
            "of 0 of these shapes, which add nothing, or merge each into its base first"
        )
    torch.save({**{name: torch.zeros_like(value) for name, value in whole.items()}, **part}, tmp_path / "part.pt")
    fedscope.import_models([tmp_path / "whole.pt", tmp_path / "part.pt"], tmp_path / "run")


def test_files_of_two_precisions_are_to_be_saved_in_one(tmp_path: Path) -> None:
    torch.save(STATE, tmp_path / "a.pt")
    torch.save(
        {name: value.half() if value.is_floating_point() else value for name, value in STATE.items()}, tmp_path / "b.pt"
    )
    said = r"so save both in one precision, as model.float\(\).state_dict\(\) does, or leave one out$"
    with pytest.raises(FedscopeError, match=said):
        fedscope.import_models([tmp_path / "a.pt", tmp_path / "b.pt"], tmp_path / "run")
