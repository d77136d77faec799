"""The base of adapters lies in memory once, whatever is copied."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import fedscope
from fedscope.checkpoints import FedscopeError
from fedscope.evaluation.model_replica import Replica
from fedscope.evaluation.module_copy import copy_module
from fedscope.training.inputs.base import with_base

pytestmark = pytest.mark.same_elsewhere


class Adapted(nn.Module):
    """A tied layer, normalization with statistics, and an adapter."""

    def __init__(self) -> None:
        super().__init__()
        self.base, self.norm, self.head = nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Linear(6, 6)
        self.head.weight = self.base.weight
        self.lora_A, self.lora_B = nn.Linear(6, 2, bias=False), nn.Linear(2, 6, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.base(x) + self.lora_B(self.lora_A(x))))


ADAPTERS = ("lora_A.weight", "lora_B.weight")


@pytest.fixture
def given(tmp_path: Path) -> tuple[Adapted, Adapted, Path]:
    """An architecture, the trained model, and the base in a file."""
    torch.manual_seed(3)
    module, trained = Adapted(), Adapted()
    trained.norm.running_mean += 1
    base = {name: value for name, value in trained.state_dict().items() if name not in ADAPTERS}
    torch.save(base, tmp_path / "base.pt")
    return module.eval(), trained.eval(), tmp_path / "base.pt"


def places(module: nn.Module) -> dict[str, int]:
    return {name: value.data_ptr() for name, value in module.named_buffers(remove_duplicate=False)}


def test_copies_share_the_weights_of_a_base_and_have_statistics_of_their_own(
    given: tuple[Adapted, Adapted, Path],
) -> None:
    module, trained, base = given
    held = with_base(module, ADAPTERS, base, "the run")
    copies = [copy_module(held), Replica(held).module, Replica(held).module]
    for copy in copies:
        same = {name for name, at in places(copy).items() if at == places(held)[name]}
        assert same == {"base.weight", "base.bias", "norm.weight", "norm.bias", "head.weight", "head.bias"}
        assert list(copy.state_dict()) == list(ADAPTERS)
        assert not any(hasattr(value, "_fedscope_shared") for value in copy.parameters())
    assert places(held)["base.weight"] == places(held)["head.weight"], "tied as they were"
    x = torch.randn(5, 6)
    for name in ADAPTERS:
        layer = name.partition(".")[0]
        copies[0].get_submodule(layer).load_state_dict({"weight": trained.state_dict()[name]})
    with torch.no_grad():
        torch.testing.assert_close(copies[0].eval()(x), trained(x), rtol=0, atol=0)


def test_the_architecture_is_as_it_was(given: tuple[Adapted, Adapted, Path]) -> None:
    module, _, base = given
    before = {name: value.clone() for name, value in module.state_dict().items()}
    held = with_base(module, ADAPTERS, base, "the run")
    assert list(module.state_dict()) == list(before)
    for name, value in module.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)
    held.train()(torch.randn(4, 6))
    assert torch.equal(module.norm.running_mean, before["norm.running_mean"])


def test_a_copy_without_some_weights_keeps_one_that_has_another_name() -> None:
    module = Adapted()
    copy = copy_module(module, without=["base.weight", "norm.weight"])
    assert torch.equal(copy.head.weight, module.head.weight), "it is called base.weight, too"
    assert copy.norm.weight.isnan().all()
    assert copy.norm.weight.untyped_storage().nbytes() == 4
    assert torch.equal(copy.norm.bias, module.norm.bias)


class Plain(nn.Module):
    """An adapter of a layer, in a module that holds both."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.lora_A, self.lora_B = nn.Linear(6, 6), nn.Linear(6, 2, bias=False), nn.Linear(2, 6, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.q(x) + self.lora_B(self.lora_A(x))


@pytest.mark.filterwarnings("ignore::fedscope.checkpoints.FedscopeWarning")
def test_the_base_of_an_architectures_folder_goes_unused_beside_whole_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only one that was given must have a place."""
    from fedscope.training.models import pretrained

    adapter, base = tmp_path / "adapter", tmp_path / "base"
    adapter.mkdir(), base.mkdir()
    settings = {"r": 2, "lora_alpha": 4, "task_type": "SEQ_CLS", "base_model_name_or_path": str(base)}
    (adapter / "adapter_config.json").write_text(json.dumps(settings))
    (base / "config.json").write_text(json.dumps({"model_type": "x"}))
    save_file({"q.weight": torch.ones(6, 6), "q.bias": torch.zeros(6)}, base / "model.safetensors")
    monkeypatch.setattr(pretrained.PretrainedFolder, "build", lambda *_: Plain())
    whole, parts = [], []
    for k in range(2):
        torch.manual_seed(k)
        state = Plain().state_dict()
        whole.append(tmp_path / f"whole-{k}.safetensors")
        parts.append(tmp_path / f"part-{k}.safetensors")
        save_file(state, whole[-1])
        save_file({name: value for name, value in state.items() if name in ADAPTERS}, parts[-1])
    named = f"hf:{adapter}"
    run = fedscope.import_models(whole, tmp_path / "whole", model=named)
    assert {"q.weight", *ADAPTERS} <= set(run.layout.names)
    assert set(fedscope.import_models(parts, tmp_path / "parts", model=named).layout.names) == set(ADAPTERS)
    with pytest.raises(FedscopeError, match=r"has no place: .*whole-0\.safetensors holds all tensors of the architect"):
        fedscope.import_models(whole, tmp_path / "given", model=named, base=base)

    data: dict[str, Any] = {"data": (np.ones((30, 6), np.float32), np.arange(30) % 6), "split": "test"}
    of_files = fedscope.line([str(path) for path in whole], model=named, points=3, **data)
    of_module = fedscope.line([str(path) for path in whole], model=Plain(), points=3, **data)
    assert np.array_equal(of_files.loss, of_module.loss)
    fedscope.subsets(str(tmp_path / "whole"), model=named, **data)


class Words(nn.Module):
    """An adapter, and an embedding that is the head, too."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.fc, self.head = nn.Embedding(9, 4), nn.Linear(4, 4), nn.Linear(4, 9, bias=False)
        self.lora_A, self.lora_B = nn.Linear(4, 2, bias=False), nn.Linear(2, 4, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.embed(x)
        return self.head(torch.tanh(self.fc(h) + self.lora_B(self.lora_A(h))))


@pytest.mark.filterwarnings("ignore::fedscope.checkpoints.FedscopeWarning")
@pytest.mark.parametrize("left_out", [(), ("head.weight",), ("embed.weight",)])
def test_a_tied_tensor_that_is_trained_is_not_held_under_its_other_name(
    tmp_path: Path, left_out: tuple[str, ...]
) -> None:
    """Files of clients hold one name of the tie, and so may the base's."""
    torch.manual_seed(1)
    module = Words()
    base = {name: value.clone() for name, value in module.state_dict().items() if name not in left_out}
    save_file(base, tmp_path / "base.safetensors")
    own = {name: value.detach() for name, value in module.named_parameters() if "fc" not in name}
    trained = {name: value + torch.randn_like(value) for name, value in own.items()}
    other = {name: value + torch.randn_like(value) for name, value in trained.items()}
    x, y = torch.randint(0, 9, (12, 5)), torch.randint(0, 9, (12, 5))
    given = {"model": module, "base": tmp_path / "base.safetensors", "data": (x, y), "task": "sequences"}
    found = fedscope.line([trained, other], points=3, **given)  # type: ignore[arg-type]
    with fedscope.Recorder(tmp_path / "run", data=(x, y), base=tmp_path / "base.safetensors") as recorder:
        recorder.round(clients=[trained, other], start=trained, global_=other)
    measured = fedscope.measure(tmp_path / "run", model=module, task="sequences").last["test_loss"]
    losses = []
    for own in (trained, other):
        whole = deepcopy(module)
        whole.load_state_dict(own, strict=False)
        with torch.no_grad():
            losses.append(float(nn.functional.cross_entropy(whole(x).transpose(1, 2), y)))
    assert all(np.isclose(found.loss, loss, rtol=1e-5).any() for loss in losses)
    assert measured == pytest.approx(losses[1], rel=1e-5)
