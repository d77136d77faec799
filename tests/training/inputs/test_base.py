"""The base of adapters lies in memory once, whatever is copied."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

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
