"""Switches of the whole process that several threads throw: what was there before the first is there after the last."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from torch import nn

from fedscope.checkpoints import FedscopeWarning
from fedscope.checkpoints.io.quiet import without_warnings
from fedscope.decomposition.theory.tangent import _plain_attention
from fedscope.evaluation.process_switches import float32_by_default
from fedscope.landscape.alignment.tracing import computed_plainly
from fedscope.landscape.curvature.derivatives import differentiable, differentiable_twice
from fedscope.training.loop.layer_inputs import LayerInputs

pytestmark = pytest.mark.same_elsewhere


def switches() -> list[Any]:
    """All that the contexts below throw."""
    cuda = torch.backends.cuda
    return [
        cuda.flash_sdp_enabled(),
        cuda.mem_efficient_sdp_enabled(),
        cuda.cudnn_sdp_enabled(),
        cuda.math_sdp_enabled(),
        torch.backends.mha.get_fastpath_enabled(),
        torch._C._get_mkldnn_enabled(),
        torch.backends.cudnn.enabled,
        torch.get_default_dtype(),
        list(warnings.filters),
    ]


@pytest.fixture
def double() -> Iterator[None]:
    """A program that computes in float64."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


CONTEXTS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "a Hessian": lambda: differentiable_twice(nn.Linear(2, 2)),
    "a gradient of a recurrent layer": lambda: differentiable(nn.GRU(2, 2)),
    "an alignment": lambda: computed_plainly(nn.Linear(2, 2)),
    "a kernel on a GPU": _plain_attention,
    "inputs of layers": lambda: LayerInputs(nn.Linear(2, 2), {}).watching(),
    "an architecture of fedscope's": float32_by_default,
    "warnings": without_warnings,
    "some warnings": lambda: without_warnings(FedscopeWarning),
}
PAIRS = [(name, name) for name in CONTEXTS] + [("a Hessian", "an alignment"), ("warnings", "some warnings")]


@pytest.mark.parametrize(("one", "other"), PAIRS)
@pytest.mark.usefixtures("double")
def test_a_second_thread_puts_back_what_was_there_before_the_first(one: str, other: str) -> None:
    before = switches()
    entered, left = threading.Event(), threading.Event()
    meanwhile: list[list[Any]] = []

    def second() -> None:
        with CONTEXTS[other]():
            entered.set()
            assert left.wait(30)
            meanwhile.append(switches())

    thread = threading.Thread(target=second)
    with CONTEXTS[one]():
        within = switches()
        thread.start()
        assert entered.wait(30)
    left.set()
    thread.join()
    assert within != before
    if one == other:
        assert meanwhile[0][:-1] == within[:-1], "whoever leaves first must not put the switches back"
    assert switches() == before


def test_a_failure_puts_the_switches_back() -> None:
    before = switches()
    with pytest.raises(ValueError, match="no"), differentiable_twice(nn.GRU(2, 2)), computed_plainly(nn.GRU(2, 2)):
        raise ValueError("no")
    assert switches() == before
