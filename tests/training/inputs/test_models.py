"""One reader for whatever is given: every wrapper, as a module, a state dict or a file, for every question.

peft, opacus, lightning and a process group for DistributedDataParallel are not there. Stand-ins have the names, the
attributes and the ``state_dict`` of theirs: ``GradSampleModule._module``, ``LightningModule.model``,
``PeftModel.base_model.model``, ``DistributedDataParallel.module``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from copy import deepcopy
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from few import few
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

import fedscope
from fedscope.checkpoints import FedscopeError, FedscopeWarning, Run
from fedscope.checkpoints.recorder.coerce_models import ModelTensors
from fedscope.checkpoints.recorder.match_files import find_files
from fedscope.checkpoints.recorder.read_files import NamedArchitecture
from fedscope.checkpoints.recorder.record_files import record_files


class DistributedDataParallel(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Any:
        return self.module(x)


class OptimizedModule(nn.Module):
    """As ``torch.compile`` returns it; that itself takes seconds to import, and has a slow test."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._orig_mod = module

    def forward(self, x: Tensor) -> Any:
        return self._orig_mod(x)


class GradSampleModule(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._module = module

    def forward(self, x: Tensor) -> Any:
        return self._module(x)


class Lightning(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.model = module

    def forward(self, x: Tensor) -> Any:
        return self.model(x)


class PeftModel(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.base_model = Lightning(module)

    def forward(self, x: Tensor) -> Any:
        return self.base_model(x)


class Renamed(nn.Module):
    """FSDP puts a part into names at any depth; here the first layer is wrapped, then the whole."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._fsdp_wrapped_module = deepcopy(module)
        self._fsdp_wrapped_module[1] = Inside(self._fsdp_wrapped_module[1])

    def forward(self, x: Tensor) -> Any:
        return self._fsdp_wrapped_module(x)


class Inside(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._fsdp_wrapped_module = module

    def forward(self, x: Tensor) -> Any:
        return self._fsdp_wrapped_module(x)


def averaged(module: nn.Module) -> nn.Module:
    """Of two models, so that its numbers are not those of the module that it was made of."""
    swa, other = AveragedModel(module), net(99)
    swa.update_parameters(module)
    swa.update_parameters(other)
    return swa


WRAPPERS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "plain": lambda module: module,
    "DataParallel": nn.DataParallel,
    "DistributedDataParallel": DistributedDataParallel,
    "compile": OptimizedModule,
    "AveragedModel": averaged,
    "Opacus": GradSampleModule,
    "Lightning": Lightning,
    "PEFT": PeftModel,
    "FSDP": Renamed,
    "compiled DataParallel": lambda module: OptimizedModule(nn.DataParallel(module)),
    "DataParallel of Lightning": lambda module: nn.DataParallel(Lightning(module)),
    "average of DataParallel": lambda module: averaged_of(nn.DataParallel(module)),
}


def averaged_of(module: nn.Module) -> nn.Module:
    swa = AveragedModel(module)
    swa.update_parameters(module)
    return swa


def net(seed: int) -> nn.Sequential:
    """BatchNorm has statistics of its own, which differ between the models."""
    torch.manual_seed(seed)
    made = nn.Sequential(nn.Flatten(), nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3))
    made(torch.randn(30, 4) + seed)
    return made.eval()


NAMES = [*net(0).state_dict()]
X, Y = torch.randn(24, 4, generator=torch.Generator().manual_seed(7)), torch.arange(24) % 3
DATA = (X, Y)


def inner_of(wrapped: nn.Module) -> dict[str, Tensor]:
    """The network's own tensors by their plain names, found by hand."""
    return found_in(wrapped.state_dict())


def found_in(state: Mapping[str, Any]) -> dict[str, Any]:
    cleared = {name.replace("_fsdp_wrapped_module.", ""): value for name, value in state.items()}
    return {name: next(v for key, v in cleared.items() if f".{key}".endswith(f".{name}")) for name in NAMES}


def loss(state: dict[str, Tensor]) -> float:
    module = net(0)
    module.load_state_dict(state)
    return float(nn.functional.cross_entropy(module.eval()(X), Y))


def put(wrapped: nn.Module, form: str, folder: Path, name: str = "w") -> Any:
    """A wrapped model as it may be given."""
    state = wrapped.state_dict()
    match form:
        case "module":
            return wrapped
        case "state_dict":
            return dict(state)
        case "arrays":
            return {key: value.numpy() for key, value in state.items()}
        case "checkpoint":
            return {"epoch": 3, "state_dict": dict(state), "optimizer": {"lr": 0.1}}
        case ".pt":
            torch.save(state, folder / f"{name}.pt")
        case ".ckpt":
            torch.save({"epoch": 3, "state_dict": state, "best": np.float64(0.9)}, folder / f"{name}.ckpt")
        case ".safetensors":
            save_file({key: value.clone() for key, value in state.items()}, folder / f"{name}.safetensors")
        case ".npz":
            np.savez(folder / f"{name}.npz", **{key: value.numpy() for key, value in state.items()})
        case "folder":
            (folder / name).mkdir()
            save_file({key: value.clone() for key, value in state.items()}, folder / name / "model.safetensors")
            return str(folder / name)
    return str(folder / f"{name}{form}")


def slowly(form: str) -> Any:
    return pytest.param(form, marks=pytest.mark.slow)


#: one of each kind of name: before all, inside, twice, of an average
KINDS = ("plain", "DataParallel", "AveragedModel", "FSDP", "PEFT")
FORMS = ["module", "state_dict", "arrays", "checkpoint", ".pt", ".ckpt", ".safetensors", ".npz", "folder"]


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FedscopeWarning)
        yield


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=2e-5)  # single precision, in another order of sums


# every wrapper as a module and as a file, every form with each kind of name
@pytest.mark.parametrize(
    ("name", "form"),
    [
        pytest.param(name, form, marks=() if name in KINDS or form in ("module", ".safetensors") else pytest.mark.slow)
        for name, form in product(WRAPPERS, FORMS)
    ],
)
def test_a_wrapped_model_beside_a_plain_one_in_any_order(name: str, form: str, tmp_path: Path) -> None:
    wrapped, plain = WRAPPERS[name](net(1)), net(2)
    given = put(wrapped, form, tmp_path)
    a, b = loss(inner_of(wrapped)), loss(plain.state_dict())
    found = fedscope.line([given, plain], data=DATA, points=3, range=(0, 1))
    close(found.loss[0], [b, found.loss[0][1], a])
    close(fedscope.line([plain, given], data=DATA, points=3, range=(0, 1)).loss[0], found.loss[0][::-1])
    middle = {
        key: (value.double() / 2 + plain.state_dict()[key].double() / 2).to(value.dtype)
        if value.is_floating_point()
        else value
        for key, value in inner_of(wrapped).items()
    }
    close(found.loss[0][1], loss(middle))


@pytest.mark.parametrize("form", ["module", ".safetensors", *map(slowly, ["state_dict", ".pt"])])
@pytest.mark.parametrize("name", few(WRAPPERS, lambda name: name in KINDS))
def test_planes_likeness_and_sharpness_of_wrapped_models(name: str, form: str, tmp_path: Path) -> None:
    wrapped, others = WRAPPERS[name](net(1)), [net(2), net(3)]
    given = put(wrapped, form, tmp_path)
    own = net(0)
    own.load_state_dict(inner_of(wrapped))
    plane = fedscope.plane([given, *others], data=DATA, grid=3)
    close([model.loss for model in plane.models][:3], [loss(one.state_dict()) for one in (own, *others)])
    close(fedscope.cka([others[0], given], data=DATA).cka, fedscope.cka([others[0], own], data=DATA).cka)
    cheap = {"data": DATA, "split": "test", "seed": 1, "hessian": False, "draws": 2}
    sharp = [fedscope.sharpness([model], model=own, **cheap) for model in (given, own)]
    for one, other in zip(*(result.models[0].measures for result in sharp), strict=True):
        assert one == other  # bit for bit


@pytest.mark.parametrize("form", [".pt", ".safetensors", *map(slowly, [".ckpt", ".npz", "folder"])])
@pytest.mark.parametrize("name", few(WRAPPERS, lambda name: name in KINDS))
@pytest.mark.parametrize("known", [True, False])
def test_an_import_of_wrapped_and_plain_files(name: str, form: str, known: bool, tmp_path: Path) -> None:
    """Without an architecture the names are those of the first file, which may be the plain one or the wrapped one."""
    wrapped, plain = WRAPPERS[name](net(1)), net(2)
    files = [put(wrapped, form, tmp_path, "w"), put(plain, form, tmp_path, "p")]
    states = [inner_of(wrapped), plain.state_dict()]
    for i, order in enumerate(([0, 1], [1, 0])):
        run = fedscope.import_models(
            [files[k] for k in order], tmp_path / f"run{i}", model=wrapped if known and i else net(0) if known else None
        )
        recorded = [run.round(1).client(k).arrays() for k in range(2)]
        assert list(recorded[0]) == list(recorded[1])
        for k, arrays in zip(order, recorded, strict=True):
            assert len(arrays) == len(NAMES)
            for key, value in found_in(arrays).items():
                np.testing.assert_array_equal(value, states[k][key].numpy())
        # and the questions on it take the plain network, whatever names it has
        if i:
            found = fedscope.subsets(run, model=net(0), data=DATA, split="test")
            assert found.rounds[0].sizes[0].loss_mean == pytest.approx(np.mean([loss(one) for one in states]), rel=2e-5)
        else:
            line = fedscope.line([f"{run.path}@1/client-0", net(5)], model=net(0), data=DATA, points=3, range=(0, 1))
            close(line.loss[0][-1], loss(states[order[0]]))


@pytest.mark.parametrize("form", ["module", "state_dict", *map(slowly, ["arrays", "checkpoint"])])
@pytest.mark.parametrize("name", few(WRAPPERS, lambda name: name in KINDS))
@pytest.mark.parametrize("known", [True, False])
def test_a_recorder_of_wrapped_and_plain_models(name: str, form: str, known: bool, tmp_path: Path) -> None:
    wrapped, plain, start = WRAPPERS[name](net(1)), net(2), net(4)
    states = [inner_of(wrapped), plain.state_dict()]
    mean = {
        key: sum(state[key].double() for state in states).div(2).to(value.dtype)  # type: ignore[union-attr]
        for key, value in states[0].items()
    }
    for i, order in enumerate(([0, 1], [1, 0])):
        given = [put(wrapped, form, tmp_path), put(plain, form, tmp_path)]
        with fedscope.Recorder(tmp_path / f"run{i}", model=net(0) if known else None) as recorder:
            recorder.round(start=start, clients=[given[k] for k in order], global_=mean)
        run = Run.open(tmp_path / f"run{i}")
        for k, place in enumerate(order):
            arrays = run.round(1).client(k).arrays()
            assert set(arrays) == set(states[0])
            for key, value in states[place].items():
                np.testing.assert_array_equal(arrays[key], value.numpy())
        if i != known:  # one of the two is enough
            continue
        found = fedscope.subsets(run, model=wrapped, data=DATA, split="test")
        assert found.rounds[0].sizes[0].loss_mean == pytest.approx(np.mean([loss(one) for one in states]), rel=2e-5)


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_wrapper_as_the_architecture_of_files_and_runs(name: str, tmp_path: Path) -> None:
    """Whatever the architecture is wrapped in, plain files fit it."""
    a, b = net(1), net(2)
    files = [put(a, ".pt", tmp_path, "a"), put(b, ".safetensors", tmp_path, "b")]
    found = fedscope.line(files, model=WRAPPERS[name](net(3)), data=DATA, points=3, range=(0, 1))
    close(found.loss[0][[0, -1]], [loss(b.state_dict()), loss(a.state_dict())])


def test_a_wrapper_of_ones_own_is_measured_through_itself() -> None:
    """It may do more than to hand on its inputs; one whose class is called like torch's does not."""

    class Halved(nn.Module):
        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self.module = module

        def forward(self, x: Tensor) -> Any:
            return self.module(x) / 2

    a, b = net(1), net(2)
    found = fedscope.line([Halved(a), b], data=DATA, points=3, range=(0, 1))
    with torch.no_grad():
        close(found.loss[0][-1], float(nn.functional.cross_entropy(a(X) / 2, Y)))
        close(found.loss[0][0], float(nn.functional.cross_entropy(b(X) / 2, Y)))


@pytest.mark.parametrize(("one", "other"), list(combinations(["plain", "AveragedModel", "FSDP", "Lightning"], 2)))
def test_two_wrappers_in_one_question(one: str, other: str, tmp_path: Path) -> None:
    models = [WRAPPERS[one](net(1)), WRAPPERS[other](net(2))]
    given = [put(models[0], ".pt", tmp_path, "a"), put(models[1], "module", tmp_path)]
    for turned in (False, True):
        found = fedscope.line(given[::-1] if turned else given, data=DATA, points=3, range=(0, 1)).loss[0]
        close(found[::-1] if turned else found, [loss(inner_of(models[1])), found[1], loss(inner_of(models[0]))])


def test_what_is_no_wrapper_but_another_network_is_refused() -> None:
    """A head beside the network is not left out."""
    more = nn.Sequential(nn.Flatten(), nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3), nn.Linear(3, 3))
    for models in ([more, net(1)], [net(1), more]):
        with pytest.raises(
            FedscopeError, match=r"does not fit the architecture of .*5\.weight, 5\.bias (unexp|missing)"
        ):
            fedscope.line(models, data=DATA, points=3)


@pytest.mark.parametrize("name", ["AveragedModel", "FSDP", "Lightning"])
def test_a_model_that_was_loaded_before_goes_with_the_others(name: str, tmp_path: Path) -> None:
    wrapped, plain = WRAPPERS[name](net(1)), net(2)
    model = fedscope.load_model(put(wrapped, ".pt", tmp_path))
    for given in (model, model.weights):
        found = fedscope.line([given, plain], data=DATA, points=3, range=(0, 1)).loss[0]
        close(found[[0, -1]], [loss(plain.state_dict()), loss(inner_of(wrapped))])


@pytest.mark.parametrize("name", ["PEFT", *map(slowly, ["FSDP", "average of DataParallel"])])
def test_every_question_on_a_run_that_has_a_wrappers_names(name: str, tmp_path: Path) -> None:
    """Recorded by an architecture that is wrapped, and asked with the plain one and with the wrapped one."""
    states = [WRAPPERS[name](net(k)).state_dict() for k in (1, 2, 3)]
    layout = fedscope.Layout.of(WRAPPERS[name](net(0)))  # of runs from before wrappers were taken off
    for k, state in enumerate(states):
        np.savez(tmp_path / f"{k}.npz", **layout.flatten({key: v.numpy() for key, v in state.items()}).arrays())
    kept = NamedArchitecture(
        "as it is", ModelTensors({k: v.numpy() for k, v in states[0].items()}, types(states[0]), None)
    )
    record_files(find_files([str(tmp_path / f"{k}.npz") for k in range(3)]), tmp_path / "run", architecture=kept)
    run = Run.open(tmp_path / "run")
    assert list(run.layout.names) == list(states[0])
    plain = [found_in(state) for state in states]
    plainly = net(0)
    for module in (plainly, WRAPPERS[name](net(0))):
        asked: dict[str, Any] = {"model": module, "data": DATA, "split": "test"}
        assert fedscope.subsets(run, **asked).rounds[0].sizes[0].loss_mean == pytest.approx(
            np.mean([loss(one) for one in plain]), rel=2e-5
        )
        layer = "output" if module is not plainly else "1"  # a layer has the name that the given module has for it
        alike = fedscope.cka(str(run.path), layer=layer, **asked).rounds[0]
        own = [net(0) for _ in plain]
        for one, state in zip(own, plain, strict=True):
            one.load_state_dict(state)
        expected = fedscope.cka(own, layer=layer, data=DATA).cka
        close(alike.cka[:3, :3], expected)
        sharp = fedscope.sharpness([f"{run.path}@1/client-1"], hessian=False, draws=2, **asked)
        assert sharp.models[0].measure("loss").value == pytest.approx(loss(plain[1]), rel=2e-5)
        plane = fedscope.plane([f"{run.path}@1/client-{k}" for k in range(3)], grid=3, **asked)
        close([model.loss for model in plane.models][:3], [loss(one) for one in plain])


def types(state: Mapping[str, Tensor]) -> dict[str, str]:
    return {name: str(value.dtype).removeprefix("torch.") for name, value in state.items()}


@pytest.mark.slow
def test_what_torch_compiles(tmp_path: Path) -> None:
    a, b = net(1), net(2)
    for wrapped in (torch.compile(b), torch.compile(nn.DataParallel(b))):
        for models in ([a, wrapped], [wrapped, a]):
            found = fedscope.line(models, data=DATA, points=3, range=(0, 1)).loss[0]
            close(sorted(found[[0, -1]]), sorted([loss(a.state_dict()), loss(b.state_dict())]))
        with fedscope.Recorder(tmp_path / "run", model=wrapped, force=True) as recorder:
            recorder.round(start=a, clients=[wrapped, a])
        assert (
            fedscope.subsets(tmp_path / "run", model=wrapped, data=DATA, split="test").rounds[0].sizes[0].subsets == 2
        )
