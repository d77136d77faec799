"""Models in other programs' files, in all their endings, wrappings, prefixes and dtypes; none of them runs code."""

from __future__ import annotations

import pickle
import tracemalloc
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

import fedscope
from fedscope.checkpoints import (
    FedscopeError,
    FedscopeWarning,
    Layout,
    Run,
    Weights,
    load_model,
    read_file,
    weighted_mean,
    write_file,
)
from fedscope.checkpoints.models.files import read_model, write_computed
from fedscope.checkpoints.models.weights import from_bfloat16, in_type

pytestmark = pytest.mark.same_elsewhere

State = dict[str, torch.Tensor]


def net() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))


STATE, LAYOUT = net().state_dict(), Layout.of(net())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


def matches(weights: Weights, state: State) -> None:
    assert sorted(weights.arrays()) == sorted(state)  # safetensors keeps no order
    for name, value in weights.arrays().items():
        np.testing.assert_array_equal(value, state[name].numpy())


@pytest.mark.parametrize("ending", [".ckpt", ".bin", ".pt", ".pth", ".CKPT"])
@pytest.mark.parametrize("zipped", [True, False])
def test_torchs_endings_in_both_of_its_formats(tmp_path: Path, ending: str, zipped: bool) -> None:
    path = tmp_path / f"net{ending}"
    torch.save(STATE, path, _use_new_zipfile_serialization=zipped)
    weights, note = read_model(path, LAYOUT)
    matches(weights, STATE)
    assert note == ""
    assert load_model(str(path)).label == "net"


@pytest.mark.parametrize("ending", [".bin", ".pt", ".safetensors", ".npz"])
def test_the_content_says_what_a_file_is(tmp_path: Path, ending: str) -> None:
    save_file(STATE, tmp_path / "a.safetensors")
    torch.save(STATE, tmp_path / "b.pt")
    np.savez(tmp_path / "c.npz", **{name: value.numpy() for name, value in STATE.items()})
    for name in ("a.safetensors", "b.pt", "c.npz"):
        matches(read_file((tmp_path / name).rename(tmp_path / f"{name[0]}{ending}"), LAYOUT), STATE)


LIGHTNING = {
    "epoch": 3,
    "global_step": 120,
    "pytorch-lightning_version": "2.4.0",
    "loops": {"fit_loop": {"state_dict": {}}},
    "callbacks": {"ModelCheckpoint": {"best_model_score": torch.ones(())}},
    "optimizer_states": [{"state": {0: {"momentum_buffer": torch.ones(2, 3)}}, "param_groups": [{"lr": 0.1}]}],
    "hyper_parameters": {"width": 3},
}


def test_a_checkpoint_of_lightning(tmp_path: Path) -> None:
    torch.save({**LIGHTNING, "state_dict": {f"net.{k}": v for k, v in STATE.items()}}, tmp_path / "a.ckpt")
    weights, note = read_model(tmp_path / "a.ckpt", LAYOUT)
    matches(weights, STATE)
    assert note == 'the prefix "net." is taken off its names'


@settings(max_examples=15)
@given(st.lists(st.sampled_from(["state_dict", "model_state_dict", "model", "module"]), max_size=3))
def test_a_state_dict_is_found_below_the_usual_keys(folder: Path, keys: list[str]) -> None:
    loaded: Any = STATE
    for key in reversed(keys):
        loaded = {key: loaded, "epoch": 3, "optimizer": {"state": {"w": torch.ones(2)}}}
    torch.save(loaded, folder / "net.pt")
    for layout in (LAYOUT, None):
        weights, note = read_model(folder / "net.pt", layout)
        matches(weights, STATE)
        assert note == ""
        assert weights.layout == LAYOUT


def test_below_another_key_it_is_taken_where_it_is_alone_and_said(tmp_path: Path) -> None:
    torch.save({"generator": STATE, "optimizer": {"momentum": torch.ones(3)}}, tmp_path / "net.pt")
    weights, note = read_model(tmp_path / "net.pt")
    matches(weights, STATE)
    assert note == "the model is what it holds under 'generator'"
    torch.save({"model": STATE, "ema": {k: v + 1 for k, v in STATE.items()}}, tmp_path / "net.pt")
    weights, note = read_model(tmp_path / "net.pt", LAYOUT)
    matches(weights, STATE)
    assert note == "the model is what it holds under 'model', not ema"


def test_of_several_models_the_one_that_fits_is_meant_or_none(tmp_path: Path) -> None:
    other = torch.nn.Linear(4, 4).state_dict()
    torch.save({"state_dict": other, "model": STATE}, tmp_path / "net.pt")
    matches(read_file(tmp_path / "net.pt", LAYOUT), STATE)
    sentence = r"net.pt holds 2 models \({}\), and it is unclear which one is meant; name one of them, .*net.pt:{}$"
    with pytest.raises(FedscopeError, match=sentence.format("state_dict, model", "state_dict")):
        read_file(tmp_path / "net.pt")
    torch.save({"nets": {"student": STATE, "teacher": STATE}}, tmp_path / "net.pt")
    with pytest.raises(FedscopeError, match=sentence.format(r"nets.student, nets.teacher", "nets.student")):
        read_file(tmp_path / "net.pt", LAYOUT)


@settings(max_examples=15)
@given(st.lists(st.sampled_from(["model", "module", "_orig_mod", "net", "0"]), min_size=1, max_size=4))
def test_one_prefix_of_all_names_is_taken_off_and_said(folder: Path, words: list[str]) -> None:
    prefix = "".join(f"{word}." for word in words)
    torch.save({f"{prefix}{name}": value for name, value in STATE.items()}, folder / "net.pt")
    with pytest.warns(FedscopeWarning, match=r"net.pt: the prefix ") as said:
        matches(read_file(folder / "net.pt", LAYOUT), STATE)
    assert f'"{prefix}" is taken off its names' in str(said[0].message)
    # without an expected model the names are the file's own
    assert list(read_file(folder / "net.pt").arrays()) == [f"{prefix}{name}" for name in STATE]


def test_names_that_begin_with_a_prefix_by_themselves_stay(tmp_path: Path) -> None:
    module = torch.nn.ModuleDict({"module": net()})
    torch.save(module.state_dict(), tmp_path / "net.pt")
    weights, note = read_model(tmp_path / "net.pt", Layout.of(module))
    assert (list(weights.arrays()), note) == (list(module.state_dict()), "")


@pytest.mark.parametrize(
    ("prefix", "more", "layout", "sentence"),
    [
        (
            "model.",
            {"criterion.weight": torch.ones(3)},
            LAYOUT,
            r'; all of them are there behind the prefix "model.", beside criterion.weight: name them, .*net.pt:model$',
        ),
        ("model.", {"model.2.weight": torch.ones(3)}, LAYOUT, r"all of them are there .*, beside model.2.weight"),
        (
            "model.",
            {},
            Layout.of(torch.nn.ModuleDict({"fc": torch.nn.Linear(3, 2)})),
            r'fc.weight, fc.bias missing, .*; all names of the file begin with "model.", and without it they',
        ),
        (
            "",
            {},
            Layout.of(torch.nn.ModuleDict({"fc": torch.nn.Linear(3, 2)})),
            r"1.bias, ... unexpected; give the arc",
        ),
    ],
)
def test_a_prefix_that_is_not_all_of_it_is_hinted_at(
    tmp_path: Path, prefix: str, more: State, layout: Layout, sentence: str
) -> None:
    torch.save({**{f"{prefix}{name}": value for name, value in STATE.items()}, **more}, tmp_path / "net.pt")
    with pytest.raises(FedscopeError, match=sentence):
        read_file(tmp_path / "net.pt", layout)


DTYPES = [torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float32, torch.float64]


@given(st.sampled_from(DTYPES), st.sampled_from([".pt", ".safetensors", ".npz"]), st.booleans())
def test_every_floating_dtype_is_read_as_the_models_and_said(
    folder: Path, dtype: torch.dtype, ending: str, known: bool
) -> None:
    state = {name: value.to(dtype) if value.is_floating_point() else value for name, value in STATE.items()}
    path, name = folder / f"net{ending}", str(dtype).removeprefix("torch.")
    if ending == ".npz" and dtype not in (torch.float16, torch.float32, torch.float64):
        return
    if ending == ".npz":
        np.savez(path, **{key: value.numpy() for key, value in state.items()})
    else:
        (torch.save if ending == ".pt" else save_file)(state, path)
    weights, note = read_model(path, LAYOUT if known else None)
    kept = dtype is torch.float32 or (dtype is torch.float64 and not known)
    matches(weights, state if kept else {k: v.float() if v.is_floating_point() else v for k, v in state.items()})
    assert note == ("" if kept else f"6 tensors of {name} are read as float32")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda v: v.to(torch.int8), r"0.weight is int8, but the model's is float32; if its weights are quantised"),
        (lambda v: torch.quantize_per_tensor(v, 0.1, 0, torch.qint8), r"0.weight is quantised, and weights are plain"),
        (lambda v: v.to_sparse(), r"0.weight is sparse, and weights are plain numbers; save 0.weight.to_dense\(\) in"),
        (
            lambda v: v.to(torch.complex64),
            r"0.weight is complex, and weights are plain numbers; save its real and imaginary parts",
        ),
        (lambda v: torch.ones(1).expand(2, 3), r"0.weight declares 24 bytes, but 4 are stored; save a copy"),
        (lambda v: v.to("meta"), r"0.weight is without values"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*quantize_per_tensor", "ignore:Sparse", "ignore:.*beta state")
def test_what_are_no_plain_numbers_is_refused(tmp_path: Path, change: Any, sentence: str) -> None:
    torch.save({**STATE, "0.weight": change(STATE["0.weight"])}, tmp_path / "net.pt")
    with pytest.raises(FedscopeError, match=sentence):
        read_file(tmp_path / "net.pt", LAYOUT)


def test_types_of_an_npz_that_are_no_weights(tmp_path: Path) -> None:
    arrays = {name: value.numpy() for name, value in STATE.items()}
    np.savez(tmp_path / "net.npz", **{**arrays, "0.weight": np.zeros((2, 3), "V2")})
    with pytest.raises(FedscopeError, match=r"0.weight has type void16, which is not a tensor's; save it as float32"):
        read_file(tmp_path / "net.npz", LAYOUT)
    np.savez(tmp_path / "net.npz", **{**arrays, "1.num_batches_tracked": np.array(np.nan)})
    with pytest.raises(FedscopeError, match=r"1.num_batches_tracked is not finite, but the model's is int64"):
        read_file(tmp_path / "net.npz", LAYOUT)
    # Flower averages the counts, too
    np.savez(tmp_path / "net.npz", **{**arrays, "1.num_batches_tracked": np.array(7.0)})
    assert read_file(tmp_path / "net.npz", LAYOUT).buffers["1.num_batches_tracked"] == 7


@pytest.mark.parametrize("ending", [".pt", ".pth", ".safetensors"])
def test_what_is_written_is_read(tmp_path, ending):
    weights = LAYOUT.flatten({name: v.numpy() for name, v in STATE.items()})
    write_file(tmp_path / f"net{ending}", weights)
    matches(read_file(tmp_path / f"net{ending}", LAYOUT), STATE)
    loaded = net()
    if ending != ".safetensors":
        loaded.load_state_dict(torch.load(tmp_path / f"net{ending}", weights_only=True))
    with pytest.raises(FedscopeError, match=r"is written as .safetensors, .pt or .pth"):
        write_file(tmp_path / "net.npz", weights)
    with pytest.raises(FedscopeError, match=r"holds one model, but 2 were given"):
        write_file(tmp_path / "two.pt", Weights(LAYOUT, np.zeros((2, LAYOUT.size), np.float32), {}))


MIXED = {
    "half.weight": torch.tensor([[0.1, -2.5]]).half(),
    "brain.weight": torch.tensor([0.1, float("nan"), -0.0, 3e38]).bfloat16(),
    "single.weight": torch.tensor([0.1, 1 / 3]),
    "double.weight": torch.tensor(1 / 3, dtype=torch.float64),
    "brain.running_mean": torch.tensor([0.1, 0.2]).bfloat16(),
    "count": torch.tensor([2**40 + 1]),
    "mask": torch.tensor([True, False]),
}


@pytest.mark.parametrize("ending", [".pt", ".safetensors"])
@pytest.mark.parametrize("made", ["imported", "recorded", "file"])
def test_each_tensor_is_written_in_the_type_that_it_came_in(tmp_path: Path, ending: str, made: str) -> None:
    torch.save(MIXED, tmp_path / "a.pt")
    model = str(tmp_path / "a.pt")
    if made == "imported":
        model = f"{fedscope.import_models(tmp_path / 'a.pt', tmp_path / 'run').path}@1/client-0"
    if made == "recorded":
        with fedscope.Recorder(tmp_path / "run") as recorder:
            recorder.round(clients=[MIXED])
        model = f"{tmp_path / 'run'}@1/client-0"
    with warnings.catch_warnings():
        warnings.simplefilter("error" if made != "file" else "ignore")
        write_file(tmp_path / f"b{ending}", load_model(model).weights)
    out = str(tmp_path / f"b{ending}")
    found = torch.load(out) if ending == ".pt" else safetensors.torch.load_file(out)
    assert {name: value.dtype for name, value in found.items()} == {name: one.dtype for name, one in MIXED.items()}
    for name, value in MIXED.items():
        np.testing.assert_array_equal(found[name].double().numpy(), value.double().numpy(), err_msg=name)
        assert torch.equal(torch.signbit(found[name]), torch.signbit(value)), name


@pytest.mark.parametrize("ending", [".pt", ".safetensors"])
def test_a_mean_of_halves_is_written_as_it_was_computed_and_that_is_said(tmp_path: Path, ending: str) -> None:
    models = [{"w": torch.tensor([1.0, 1 + 2**-7]).bfloat16(), "b": torch.tensor([4.0]).bfloat16()} for _ in range(2)]
    models[0]["w"][0] += 2**-7
    with fedscope.Recorder(tmp_path / "run") as recorder:
        recorder.round(clients=models)
    clients = Run.open(tmp_path / "run").round(1).clients()
    out = str(tmp_path / f"b{ending}")
    with pytest.warns(FedscopeWarning) as warned:
        write_file(out, weighted_mean(clients, [0.5, 0.5]))
    assert [str(one.message) for one in warned] == [
        f"{out}: bfloat16 does not have all values of w, so what was of that type is written in float32"
    ]
    found = torch.load(out) if ending == ".pt" else safetensors.torch.load_file(out)
    assert {name: value.dtype for name, value in found.items()} == {"w": torch.float32, "b": torch.float32}
    assert found["w"].tolist() == [1 + 2**-8, 1 + 2**-7]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write_computed(out, weighted_mean(clients, [0.5, 0.5]))


def test_a_runs_own_files_are_refused_with_a_name_that_is_taken(tmp_path: Path) -> None:
    with fedscope.Recorder(tmp_path / "own") as recorder:
        recorder.round(clients=[{"w": torch.zeros(3)}])
    model = load_model(f"{tmp_path / 'own'}@1/client-0").weights
    said = {
        "own/metrics.csv": "{}: a model is written as .safetensors, .pt or .pth; give one of these endings",
        "own/rounds/a.safetensors": "{} is a place of the run's own files, which nothing else is written over; give "
        "another one, as own-exported.safetensors",
    }
    for place, sentence in said.items():
        with pytest.raises(FedscopeError) as refused:
            write_file(tmp_path / place, model)
        assert str(refused.value) == sentence.format(tmp_path / place)
    write_file(tmp_path / "own-exported.safetensors", model)
    (tmp_path / "own/run.json").write_text("{")
    with pytest.raises(FedscopeError, match="is a place of the run's own files"):
        write_file(tmp_path / "own/rounds/a.pt", model)


def test_a_folder_of_another_program_is_no_run(tmp_path: Path) -> None:
    torch.save({"w": torch.zeros(3)}, tmp_path / "a.pt")
    model = read_file(tmp_path / "a.pt")
    (tmp_path / "rounds").mkdir()
    (tmp_path / "run.json").write_text('{"format": "another"}')
    write_file(tmp_path / "rounds/a.pt", model)
    assert read_file(tmp_path / "rounds/a.pt").arrays()["w"].tolist() == [0, 0, 0]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_halves_take_little_memory_on_the_way(dtype: str) -> None:
    values = np.resize(np.array([1, -2.5, 0.0, -0.0, np.inf, np.nan], np.float32), 2**21)
    tracemalloc.start()
    made = in_type(values, dtype)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert made is not None
    assert peak < 2 * made.nbytes
    back = from_bfloat16(made) if dtype == "bfloat16" else made.astype(np.float32)
    np.testing.assert_array_equal(back, values)
    np.testing.assert_array_equal(np.signbit(back), np.signbit(values))
    values[-1] = 1 + 2**-12
    assert in_type(values, dtype) is None


def test_bfloat16_has_what_it_had() -> None:
    bits = np.arange(2**16, dtype=np.uint16)
    values = from_bfloat16(bits)
    with np.errstate(invalid="ignore"):  # of a NaN that signals
        both = values, values.astype(np.float64)
    for numbers in both:
        found = in_type(numbers, "bfloat16")
        assert found is not None
        is_number = ~np.isnan(values)
        np.testing.assert_array_equal(found[is_number], bits[is_number])
        assert np.isnan(from_bfloat16(found)[~is_number]).all()
    low = np.array([0x7F800001], np.uint32).view(np.float32)
    found = in_type(low, "bfloat16")
    assert found is not None
    assert np.isnan(from_bfloat16(found)).all(), "and not infinite"


def test_flower_npz_stands_in_state_dict_order(tmp_path):
    module = torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(6)))
    state = module.state_dict()
    np.savez(tmp_path / "round-3-weights.npz", *(value.numpy() for value in state.values()))
    matches(read_file(tmp_path / "round-3-weights.npz", Layout.of(module)), state)
    np.savez(tmp_path / "named.npz", **{name: value.numpy() for name, value in state.items()})
    matches(read_file(tmp_path / "named.npz"), state)
    with pytest.raises(FedscopeError, match=r"holds arrays without names, so the architecture is needed; give --model"):
        read_file(tmp_path / "round-3-weights.npz")
    with pytest.raises(FedscopeError, match=r"holds 12 arrays, but the expected model has 7"):
        read_file(tmp_path / "round-3-weights.npz", LAYOUT)


class Trap:
    def __reduce__(self):
        return (open, ("trapped", "w"))


def test_a_pickle_of_code_is_refused_and_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sentence = (
        r"is a pickle that would run code \(\S+\), and a checkpoint must never run code; .* torch.save\(model.state_"
    )
    torch.save({"model": Trap()}, "zip.pt")
    (tmp_path / "plain.pt").write_bytes(pickle.dumps(Trap(), protocol=2))
    torch.save(net(), "module.pt")
    for name in ("zip.pt", "plain.pt"):
        with pytest.raises(FedscopeError, match=sentence):
            read_file(name)
    # what an object would do is not known, so it is not said to run code
    sentence = (
        r"module.pt holds an object of torch.nn.modules.container.Sequential, .* run code; .*\(model.state_dict\("
    )
    with pytest.raises(FedscopeError, match=sentence):
        read_file("module.pt")
    np.savez("objects.npz", np.array([Trap()], dtype=object))
    with pytest.raises(FedscopeError, match=r"holds Python objects \(arr_0\), which could run code"):
        read_file("objects.npz")
    assert not (tmp_path / "trapped").exists()


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_a_torchscript_program_is_refused(tmp_path):
    torch.jit.script(net()).save(str(tmp_path / "script.pt"))
    with pytest.raises(FedscopeError, match=r"is a TorchScript program, which is code; save its tensors"):
        read_file(tmp_path / "script.pt")


@pytest.mark.parametrize("ending", [".pt", ".safetensors", ".npz"])
@pytest.mark.parametrize("left", [0, 7, 200])
def test_truncated_files(tmp_path, ending, left):
    path = tmp_path / f"net{ending}"
    state = STATE
    if ending == ".npz":
        np.savez(path, **{name: value.numpy() for name, value in state.items()})
    elif ending == ".pt":
        torch.save(state, path)
    else:
        save_file(state, path)
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(
        FedscopeError, match=rf"net{ending} is (empty|(truncated or )?not an? (checkpoint|\.?safetensors|.npz))"
    ):
        read_file(path)


def test_foreign_files(tmp_path):
    for ending in (".pt", ".safetensors", ".npz"):
        (tmp_path / f"a{ending}").write_text("round,loss\n1,0.5\n" * 20)
        with pytest.raises(FedscopeError, match=rf"a{ending} is (truncated or )?not an? "):
            read_file(tmp_path / f"a{ending}")
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(FedscopeError, match=r"holds list, not a state_dict; save model.state_dict"):
        read_file(tmp_path / "list.pt")
    torch.save({"optimizer": {"lr": 0.1}, "epoch": 3}, tmp_path / "other.pt")
    with pytest.raises(FedscopeError, match=r"holds other things than tensors \(optimizer, epoch\)"):
        read_file(tmp_path / "other.pt")
    with pytest.raises(
        FedscopeError, match=r"b.pt does not exist; .* has a.npz, a.pt, a.safetensors, list.pt, other.pt; give one of"
    ):
        read_file(tmp_path / "b.pt")
    with pytest.raises(FedscopeError, match=r'otehr.pth does not exist; did you mean ".*other.pt"\?$'):
        read_file(tmp_path / "otehr.pth")
    with pytest.raises(FedscopeError, match=r"b.pt does not exist; give a model's file, or a model of a run, as in ru"):
        read_file(tmp_path / "nowhere" / "b.pt")


def test_another_architecture_is_refused_by_name(tmp_path):
    torch.save(STATE, tmp_path / "net.pt")
    with pytest.raises(FedscopeError, match=r"net.pt: these tensors are not the expected model's: .* unexpected"):
        read_file(tmp_path / "net.pt", Layout.of(torch.nn.Linear(3, 2)))
    wider = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.BatchNorm1d(2))
    with pytest.raises(
        FedscopeError, match=r"net.pt: 0.weight has shape \(2, 3\), but the expected model has \(2, 4\)"
    ):
        read_file(tmp_path / "net.pt", Layout.of(wider))
