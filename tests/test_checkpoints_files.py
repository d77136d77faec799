"""Models in other programs' files; none of them ever runs code."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from fedscope.checkpoints import FedscopeError, Layout, Weights, read_file, write_file


def net() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))


def matches(weights: Weights, state: dict[str, torch.Tensor]) -> None:
    assert list(weights.arrays()) == list(state)
    for name, value in weights.arrays().items():
        np.testing.assert_array_equal(value, state[name].numpy())


@pytest.mark.parametrize("wrap", [lambda s: s, lambda s: {"state_dict": s, "epoch": 3}, lambda s: {"model": s}])
@pytest.mark.parametrize("known", [True, False])
def test_pt(tmp_path, wrap, known):
    state = net().state_dict()
    torch.save(wrap(state), tmp_path / "net.pt")
    weights = read_file(tmp_path / "net.pt", Layout.of(net()) if known else None)
    matches(weights, state)
    assert weights.layout == Layout.of(net())


def test_data_parallel_names_are_taken_for_what_they_are(tmp_path):
    state = net().state_dict()
    torch.save({f"module.{name}": value for name, value in state.items()}, tmp_path / "net.pth")
    matches(read_file(tmp_path / "net.pth", Layout.of(net())), state)


def test_safetensors_of_other_programs_in_bfloat16(tmp_path):
    state = {name: v.bfloat16() if v.is_floating_point() else v for name, v in net().state_dict().items()}
    save_file(state, tmp_path / "net.safetensors")
    weights = read_file(tmp_path / "net.safetensors", Layout.of(net()))
    matches(weights, {name: v.float() if v.is_floating_point() else v for name, v in state.items()})


@pytest.mark.parametrize("ending", [".pt", ".pth", ".safetensors"])
def test_what_is_written_is_read(tmp_path, ending):
    layout = Layout.of(net())
    weights = layout.flatten({name: v.numpy() for name, v in net().state_dict().items()})
    write_file(tmp_path / f"net{ending}", weights)
    matches(read_file(tmp_path / f"net{ending}", layout), net().state_dict())
    loaded = net()
    if ending != ".safetensors":
        loaded.load_state_dict(torch.load(tmp_path / f"net{ending}", weights_only=True))
    with pytest.raises(FedscopeError, match=r"is written as .safetensors, .pt or .pth"):
        write_file(tmp_path / "net.npz", weights)
    with pytest.raises(FedscopeError, match=r"holds one model, but 2 were given"):
        write_file(tmp_path / "two.pt", Weights(layout, np.zeros((2, layout.size), np.float32), {}))


def test_flower_npz_stands_in_state_dict_order(tmp_path):
    module = torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(6)))
    state = module.state_dict()
    np.savez(tmp_path / "round-3-weights.npz", *(value.numpy() for value in state.values()))
    matches(read_file(tmp_path / "round-3-weights.npz", Layout.of(module)), state)
    np.savez(tmp_path / "named.npz", **{name: value.numpy() for name, value in state.items()})
    matches(read_file(tmp_path / "named.npz"), state)
    with pytest.raises(
        FedscopeError, match=r"holds arrays without names, so the architecture must be said; give --model"
    ):
        read_file(tmp_path / "round-3-weights.npz")
    with pytest.raises(FedscopeError, match=r"holds 12 arrays, but the expected model has 7"):
        read_file(tmp_path / "round-3-weights.npz", Layout.of(net()))


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
    for name in ("zip.pt", "plain.pt", "module.pt"):
        with pytest.raises(FedscopeError, match=sentence):
            read_file(name)
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
    state = net().state_dict()
    if ending == ".npz":
        np.savez(path, **{name: value.numpy() for name, value in state.items()})
    elif ending == ".pt":
        torch.save(state, path)
    else:
        save_file(state, path)
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(
        FedscopeError, match=rf"net{ending} is (truncated or )?not an? (checkpoint|\.?safetensors|.npz)"
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
    with pytest.raises(FedscopeError, match=r'otehr.pth does not exist; did you mean "other.pt"\?$'):
        read_file(tmp_path / "otehr.pth")
    with pytest.raises(FedscopeError, match=r"b.pt does not exist; give a model's file, or a model of a run, as in ru"):
        read_file(tmp_path / "nowhere" / "b.pt")


def test_another_architecture_is_refused_by_name(tmp_path):
    torch.save(net().state_dict(), tmp_path / "net.pt")
    with pytest.raises(FedscopeError, match=r"net.pt: these tensors are not the expected model's: .* unexpected"):
        read_file(tmp_path / "net.pt", Layout.of(torch.nn.Linear(3, 2)))
    wider = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.BatchNorm1d(2))
    with pytest.raises(
        FedscopeError, match=r"net.pt: 0.weight has shape \(2, 3\), but the expected model has \(2, 4\)"
    ):
        read_file(tmp_path / "net.pt", Layout.of(wider))
