"""Scales and bases of adapters are compared wherever models come from, and with the architecture that they are measured
in."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import fedscope
from fedscope.checkpoints import FedscopeError, FedscopeWarning

pytestmark = [
    pytest.mark.same_elsewhere,
    pytest.mark.filterwarnings("ignore:.*factors of a product.*"),
    pytest.mark.filterwarnings("ignore:.*are the same tensors.*"),
]
X, Y = torch.randn(30, 4, generator=torch.Generator().manual_seed(1)), torch.arange(30) % 2
DATA: dict[str, Any] = {"data": (X, Y), "split": "test"}


class Adapted(nn.Module):
    """Two classes of four numbers, of which the base is no weight."""

    def __init__(self, seed: int, alpha: float | None = None, **config: Any) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.lora_A, self.lora_B = nn.Linear(4, 2, bias=False), nn.Linear(2, 2, bias=False)
        if alpha is not None:
            self.peft_config = {"default": SimpleNamespace(r=2, lora_alpha=alpha, **config)}

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.lora_B(self.lora_A(x))
        return made


def record(path: Path, alpha: float | None, first: int = 0, **how: Any) -> Path:
    start, one, two, end = (Adapted(first + k, alpha) for k in range(4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with fedscope.Recorder(path, **how) as recorder:
            recorder.round(start=start, clients=[one, two], global_=end)
    return path


def put(folder: Path, seed: int, **config: Any) -> str:
    folder.mkdir(parents=True)
    save_file(dict(Adapted(seed).state_dict()), folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 2, **config}))
    return str(folder)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Models of alpha 8 and 32, of every kind: recorded by PEFT's word and by hand, in files, loaded."""
    folder = tmp_path_factory.mktemp("scales")
    found: dict[str, Any] = {}
    for alpha in (8, 32):
        run = record(folder / f"said-{alpha}" / "run", alpha)
        typed = record(folder / f"typed-{alpha}" / "run", None, 40, lora_alpha=alpha)
        file, loaded = (
            put(folder / f"{name}-{alpha}", alpha + k, lora_alpha=alpha) for k, name in ((1, "a"), (2, "b"))
        )
        found |= {
            f"run {alpha}": f"{run}@1/client-0",
            f"typed {alpha}": f"{typed}@1/client-0",
            f"file {alpha}": file,
            f"loaded file {alpha}": fedscope.load_model(loaded),
            f"loaded run {alpha}": fedscope.load_model(f"{run}@1/global"),
            f"module {alpha}": Adapted(alpha, alpha),
        }
    return found


KINDS = ("run", "typed", "file", "loaded file", "loaded run", "module")


@pytest.mark.parametrize("one", KINDS)
@pytest.mark.parametrize("other", KINDS)
def test_models_of_two_scales_are_refused_wherever_they_come_from(places: dict[str, Any], one: str, other: str) -> None:
    with pytest.raises(FedscopeError, match=r"is an adapter with lora_alpha 8, .* one with 32: their products are sc"):
        fedscope.line([places[f"{one} 8"], places[f"{other} 32"]], model=Adapted(0), **DATA, points=3)


@pytest.mark.parametrize("one", KINDS)
def test_models_of_one_scale_go_together(places: dict[str, Any], one: str) -> None:
    for other in KINDS:
        if other != one:
            fedscope.line([places[f"{one} 8"], places[f"{other} 8"]], model=Adapted(0), **DATA, points=3)


QUESTIONS: dict[str, Callable[[str, nn.Module], Any]] = {
    "line": lambda run, net: fedscope.line([f"{run}@1/client-0", f"{run}@1/client-1"], model=net, **DATA, points=3),
    "subsets": lambda run, net: fedscope.subsets(run, model=net, **DATA),
    "adapters": lambda run, net: fedscope.adapters(run, model=net, **DATA),
    "decompose": lambda run, net: fedscope.decompose(run, model=net, **DATA, draws="none"),
    "reaggregate": lambda run, net: fedscope.reaggregate(f"{run}@1", servers=["fma"], model=net, **DATA),
}


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("kind", ["run", "typed"])
def test_an_architecture_of_another_scale_is_refused(places: dict[str, Any], question: str, kind: str) -> None:
    run = places[f"{kind} 32"].partition("@")[0]
    with pytest.raises(FedscopeError, match=r"is an adapter with lora_alpha 32, the module one with 8, and an archit"):
        QUESTIONS[question](run, Adapted(0, 8))
    QUESTIONS[question](run, Adapted(0, 32))
    QUESTIONS[question](run, Adapted(0))


class OfPeft(nn.Module):
    """The same with the names that PEFT gives; its files leave out the adapter's name."""

    def __init__(self, seed: int, **config: Any) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.lora_A = nn.ModuleDict({"default": nn.Linear(4, 2, bias=False)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(2, 2, bias=False)})
        if config:
            self.peft_config = {"default": SimpleNamespace(r=2, **config)}

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.lora_B["default"](self.lora_A["default"](x))
        return made

    def in_files(self) -> dict[str, Tensor]:
        return {name.replace(".default", ""): value for name, value in self.state_dict().items()}


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("names", ["a file's", "a module's"])
def test_an_architecture_is_compared_whatever_its_tensors_are_called(tmp_path: Path, question: str, names: str) -> None:
    start, one, two, end = (
        net.in_files() if names == "a file's" else net.state_dict() for net in (OfPeft(seed) for seed in range(4))
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with fedscope.Recorder(tmp_path / "run", lora_alpha=8) as recorder:
            recorder.round(start=start, clients=[one, two], global_=end)
        with fedscope.Recorder(tmp_path / "rs", model=OfPeft(0, lora_alpha=8, use_rslora=True)) as recorder:
            recorder.round(start=start, clients=[one, two], global_=end)
    ask, run, stabilised = QUESTIONS[question], str(tmp_path / "run"), str(tmp_path / "rs")
    with pytest.raises(FedscopeError, match=r"is an adapter with lora_alpha 8, the module one with 16, and an archit"):
        ask(run, OfPeft(0, lora_alpha=16))
    with pytest.raises(FedscopeError, match=r"rs\S* is an adapter .*, the module one .*, and an architecture computes"):
        ask(stabilised, OfPeft(0, lora_alpha=8))
    for where, net in ((run, OfPeft(0, lora_alpha=8)), (run, OfPeft(0)), (stabilised, OfPeft(0))):
        ask(where, net)


def test_what_an_earlier_version_did_not_keep_is_not_compared() -> None:
    from fedscope.checkpoints.models.adapters import refuse_other_scale, settings_of_run

    now = {"r": 2, "lora_alpha": 8, "base_model_name_or_path": "org/net", "init_lora_weights": "pissa"}
    then = settings_of_run({"adapters": {"r": 2, "lora_alpha": 8}})
    refuse_other_scale("one", then, "other", {**now, "trainable_token_indices": [1]})
    plain = {name: value for name, value in now.items() if name != "init_lora_weights"}
    with pytest.raises(FedscopeError, match=r"one adapts the base as it is, other the base as pissa leaves it"):
        refuse_other_scale("one", settings_of_run({"adapters": plain}), "other", now)


def test_runs_of_two_scales_are_not_measured_in_one_architecture(places: dict[str, Any], tmp_path: Path) -> None:
    runs = [record(tmp_path / f"of-{alpha}", alpha) for alpha in (8, 32)]
    with pytest.raises(FedscopeError, match=r"of-8 is an adapter with lora_alpha 8, .*of-32 one with 32"):
        fedscope.subsets(runs, model=Adapted(0), **DATA)
    fedscope.updates(runs)  # each with its own


def test_further_models_are_compared_with_the_first_ones(places: dict[str, Any]) -> None:
    run = places["run 8"].partition("@")[0]
    with pytest.raises(FedscopeError, match=r"lora_alpha 8, .* one with 32"):
        fedscope.plane(
            [f"{run}@1/client-0", f"{run}@1/client-1", f"{run}@1/start"],
            show=[places["file 32"]],
            model=Adapted(0),
            **DATA,
            grid=3,
        )


def test_what_somebody_typed_is_compared_by_the_factor_that_it_comes_to(places: dict[str, Any], tmp_path: Path) -> None:
    stabilised = put(tmp_path / "rs", 4, lora_alpha=8, use_rslora=True)
    with pytest.raises(FedscopeError, match=r"scales B·A by 4 at lora, .*rs one by 5.65685: their products differ"):
        fedscope.line([places["typed 8"], stabilised], model=Adapted(0), **DATA, points=3)
    typed = record(tmp_path / "typed" / "run", None, lora_alpha=8 * 2**0.5)
    fedscope.line([f"{typed}@1/client-0", stabilised], model=Adapted(0), **DATA, points=3)


# --- bases ---


class Based(Adapted):
    """The same, beside a base."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.base = nn.Linear(4, 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = super().forward(x) + self.base(x)
        return made


def based(folder: Path, name: str, value: float) -> Path:
    (folder / name).mkdir()
    save_file({"base.weight": torch.full((2, 4), value)}, folder / name / "model.safetensors")
    return folder / name


def test_adapters_of_two_bases_are_refused_wherever_they_come_from(tmp_path: Path) -> None:
    bases = {name: based(tmp_path, name, value) for name, value in (("one", 1.0), ("copy", 1.0), ("two", 2.0))}
    runs, files = {}, {}
    for k, (name, path) in enumerate(bases.items()):
        files[name] = put(tmp_path / f"of-{name}", 50 + k, base_model_name_or_path=name, lora_alpha=8)
        runs[name] = f"{record(tmp_path / f'run-{name}', None, 10 * k, lora_alpha=8, base=path)}@1/client-0"
    words = r"is an adapter of .*one, .* one of .*two, which hold other weights"
    for here, there in ((runs, runs), (runs, files), (files, runs)):
        fedscope.line([here["one"], there["copy"]], model=Based(0), **DATA, points=3)
        with pytest.raises(FedscopeError, match=words):
            fedscope.line([here["one"], there["two"]], model=Based(0), **DATA, points=3)
    both = [files["one"], files["two"]]
    with pytest.warns(FedscopeWarning, match=rf"{words}; both are measured beside .*copy"):
        fedscope.line(both, model=Based(0), base=bases["copy"], **DATA, points=3)


def test_factors_begun_with_a_part_of_the_base_say_what_the_base_must_be(tmp_path: Path) -> None:
    from fedscope.training.inputs.adapter_settings import refuse_misfit_adapters

    net = Adapted(0)
    layout = fedscope.Layout.of(net)
    with pytest.warns(FedscopeWarning, match=r"one was begun with init_lora_weights = 'pissa', which changes the weig"):
        refuse_misfit_adapters([("one", {"init_lora_weights": "pissa"})], net, net, layout, "base.pt", is_given=True)


@pytest.mark.parametrize("how", ["pissa", "pissa_niter_16", "olora", "corda", "lora_ga", "loftq"])
def test_a_folder_whose_base_peft_changes_is_no_architecture(tmp_path: Path, how: str) -> None:
    folders = [put(tmp_path / f"{k}", k, lora_alpha=8, init_lora_weights=how) for k in range(2)]
    with pytest.raises(FedscopeError, match=rf"0/adapter_config.json says init_lora_weights '{how}': the adapter adds"):
        fedscope.line(folders, base=tmp_path, data=(X.long().abs(), Y), points=3)


# --- recorders ---


def recording(path: Path, **models: Any) -> fedscope.Run:
    with fedscope.Recorder(path, **models.pop("how", {})) as recorder:
        recorder.round(**models)
    return fedscope.Run.open(path)


WRAPPERS: dict[str, Callable[[nn.Module], Any]] = {
    "DataParallel": nn.DataParallel,
    "compiled": torch.compile,
    "averaged": torch.optim.swa_utils.AveragedModel,
}


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_recorder_sees_the_scale_in_wrappers(tmp_path: Path, wrapper: str) -> None:
    wrap = WRAPPERS[wrapper]
    one, two, other = wrap(Adapted(1, 8)), wrap(Adapted(2, 8)), wrap(Adapted(2, 32))
    run = recording(tmp_path / "run", start=Adapted(0, 8), clients=[one, two])
    assert run.info["adapters"] == {"r": 2, "lora_alpha": 8}
    assert (
        recording(tmp_path / "alone", start=wrap(Adapted(0, 8)), clients=[one]).info["adapters"] == run.info["adapters"]
    )
    with pytest.raises(FedscopeError, match=r"lora_alpha 8, .*client 1 one with 32"):
        recording(tmp_path / "other", start=Adapted(0, 8), clients=[one, other])


def test_a_recorder_compares_starts_and_its_own_model(tmp_path: Path) -> None:
    nets = [Adapted(1, 8), Adapted(2, 8)]
    with pytest.raises(FedscopeError, match=r"client 0 is .* with lora_alpha 8, .*the start of client 1 one with 32"):
        recording(tmp_path / "starts", clients=nets, starts=[Adapted(3, 8), Adapted(4, 32)])
    states = [dict(net.state_dict()) for net in nets]
    run = recording(tmp_path / "model", clients=states, how={"model": Adapted(0, 8)})
    assert run.info["adapters"] == {"r": 2, "lora_alpha": 8}
    with pytest.raises(FedscopeError, match=r"model= is an adapter with lora_alpha 8, .*client 0 one with 32"):
        recording(tmp_path / "mixed", clients=[Adapted(1, 32)], how={"model": Adapted(0, 8)})


@pytest.mark.parametrize("typed", [{}, {"lora_alpha": 8}], ids=["said", "typed"])
def test_a_run_is_not_gone_on_with_in_another_scale(tmp_path: Path, typed: dict[str, float]) -> None:
    path = record(tmp_path / "run", None if typed else 8, **typed)
    with pytest.raises(
        FedscopeError, match=r"what .*run holds is an adapter with lora_alpha 8, .*@2: client 0 one with"
    ):
        recording(path, clients=[Adapted(1, 32), Adapted(2, 32)], how={"resume": True})
    with pytest.raises(FedscopeError, match=r"what .*run holds is an adapter with lora_alpha 8, model= one with 32"):
        recording(path, clients=[Adapted(1)], how={"resume": True, "model": Adapted(0, 32)})
    assert recording(path, clients=[Adapted(1, 8), Adapted(2, 8)], how={"resume": True}).rounds == (1, 2)


def test_adapters_of_kohya_are_gone_on_with_in_their_scale(tmp_path: Path) -> None:
    def model(seed: int, alpha: float) -> dict[str, Tensor]:
        torch.manual_seed(seed)
        return {
            "q.lora_down.weight": torch.randn(2, 4),
            "q.lora_up.weight": torch.randn(3, 2),
            "q.alpha": torch.tensor(alpha),
        }

    recording(tmp_path / "run", clients=[model(0, 4.0), model(1, 4.0)])
    with pytest.raises(FedscopeError, match=r"holds is an adapter with alpha 4.0 at q, .*client 0 one with 16.0"):
        recording(tmp_path / "run", clients=[model(0, 16.0), model(1, 16.0)], how={"resume": True})
    assert recording(tmp_path / "run", clients=[model(0, 4.0)], how={"resume": True}).rounds == (1, 2)


def test_a_table_says_which_runs_are_of_other_adapters(tmp_path: Path) -> None:
    bases = [based(tmp_path, "one", 1.0), based(tmp_path, "two", 2.0)]
    runs = []
    for k, base in enumerate(bases):
        with fedscope.Recorder(tmp_path / f"r{k}", lora_alpha=8, base=base, method="fedx", seed=k) as recorder:
            recorder.round(clients=[Adapted(1), Adapted(2)], metrics={"test_error": 0.5})
        runs.append(tmp_path / f"r{k}")
    notes = fedscope.table(runs).notes
    assert any("r0 is an adapter of" in note and "two, which hold other weights" in note for note in notes), notes
    assert not any("adapter" in note for note in fedscope.table([runs[0]]).notes)
