"""Nothing that is drawn here moves the generators of the caller, those of a device neither."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from fedscope.evaluation.seeded import forked, seeded
from fedscope.landscape.curvature.hessian import spectral_density
from fedscope.training.build import build_module, without_numbers
from fedscope.training.models.architectures.mlp import MLP

pytestmark = pytest.mark.device


@contextmanager
def streams_untouched(device: str) -> Iterator[None]:
    """Both generators go on where they were."""
    torch.manual_seed(5)
    places = ("cpu", f"{device}:0", f"{device}:1")
    expected = [torch.rand(3, device=place).cpu() for place in places]
    torch.manual_seed(5)
    yield
    for place, numbers in zip(places, expected, strict=True):
        assert torch.equal(torch.rand(3, device=place).cpu(), numbers), place


def density() -> None:
    pytest.importorskip("curvlinops")
    spectrum = np.linspace(-1, 5, 40)
    spectral_density(lambda v: v * spectrum, 40, (-1.0, 5.0), 8)


DRAWING: dict[str, Callable[[], Any]] = {
    "a module": lambda: build_module(MLP(), (1, 8, 8), 10),
    "a module without numbers": lambda: without_numbers(MLP(), (1, 8, 8), 10),
    "a spectral density": density,
}


@pytest.mark.parametrize("what", DRAWING)
def test_the_callers_streams_are_untouched(pretend: str, what: str) -> None:
    with streams_untouched(pretend):
        DRAWING[what]()


def test_a_seeded_block_draws_as_after_torchs_own_seed(pretend: str) -> None:
    torch.manual_seed(9)
    expected = torch.rand(4), torch.rand(4, device=pretend).cpu()
    with streams_untouched(pretend), seeded(9):
        assert torch.equal(torch.rand(4), expected[0])
        assert torch.equal(torch.rand(4, device=pretend).cpu(), expected[1])


def test_streams_are_put_back_after_a_failure(pretend: str) -> None:
    def fail() -> None:
        torch.rand(4, device=pretend)
        raise KeyError("within")

    with streams_untouched(pretend), pytest.raises(KeyError, match="within"), seeded(9):
        fail()


def test_an_accelerator_that_was_not_used_is_left_alone(pretend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = getattr(torch, pretend)

    def refuse(*_: object) -> None:
        pytest.fail("the accelerator was touched")

    monkeypatch.setattr(type(module), "is_initialized", staticmethod(lambda: False))
    for name in ("manual_seed_all", "manual_seed", "get_rng_state", "set_rng_state", "_lazy_init"):
        monkeypatch.setattr(type(module), name, staticmethod(refuse))
    before = torch.get_rng_state()
    with seeded(9):
        torch.rand(2)
    with forked():
        torch.rand(2)
    assert torch.equal(torch.get_rng_state(), before)
