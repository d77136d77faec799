"""Switches of the whole process that several threads throw: what was there before the first is there after the last."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fedscope.checkpoints import FedscopeError, FedscopeWarning
from fedscope.checkpoints.io.quiet import without_warnings
from fedscope.checkpoints.io.untrusted import explain_read_errors
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


def heard(category: type[Warning] = UserWarning) -> str:
    """What becomes of a warning."""
    with warnings.catch_warnings(record=True) as told:
        try:
            warnings.warn("a drop", category, stacklevel=1)
        except category:
            return "raised"
    return "said" if told else "ignored"


def test_nested_blocks_are_as_nested_catch_warnings() -> None:
    warnings.simplefilter("always")
    before, filters = list(warnings.filters), warnings.filters
    with without_warnings(FedscopeWarning):
        within = list(warnings.filters)
        for raised, word in ((False, "ignored"), (True, "raised")):
            with without_warnings(message="a d", raised=raised):
                assert heard() == word
                warnings.simplefilter("error")  # of a library that is loaded
            assert list(warnings.filters) == within
            assert (heard(), heard(FedscopeWarning)) == ("said", "ignored")
        with without_warnings(FedscopeWarning), without_warnings(FedscopeWarning):  # equal ones are told apart
            assert heard(FedscopeWarning) == "ignored"
        assert heard(FedscopeWarning) == "ignored"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with without_warnings():
                assert heard() == "ignored"
            assert heard() == "raised", "the program's own filters stay"
        assert (heard(), heard(FedscopeWarning)) == ("said", "ignored")
    assert list(warnings.filters) == before
    assert warnings.filters is filters
    assert heard(FedscopeWarning) == "said"


def test_a_warning_that_was_said_once_is_raised_all_the_same() -> None:
    """Python keeps what it has found for a line until it is told that filters have changed."""
    found = []
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        for block in (nullcontext(), nullcontext(), without_warnings(raised=True), nullcontext()):
            with block:
                try:
                    warnings.warn("of one line", UserWarning, stacklevel=1)
                    found.append(len(told))
                except UserWarning:
                    found.append(-1)
    assert found == [1, 1, -1, 2]


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_whoever_leaves_takes_its_filter_along_in_any_order(order: tuple[int, ...]) -> None:
    """As several threads leave; one has entered within the program's own catch_warnings."""
    kinds = [FedscopeWarning, RuntimeWarning, FutureWarning]
    warnings.simplefilter("always")
    before = list(warnings.filters)
    blocks = [without_warnings(kind) for kind in kinds]
    for block in blocks[:2]:
        block.__enter__()
    with warnings.catch_warnings():
        warnings.filterwarnings("always", "of the program's own")
        blocks[2].__enter__()
        inside = set(range(3))
        for left in order:
            blocks[left].__exit__(None, None, None)
            inside.remove(left)
            assert [heard(kind) for kind in kinds] == ["ignored" if k in inside else "said" for k in range(3)]
    assert list(warnings.filters) == before


def test_a_method_that_is_checked_says_its_own_warnings() -> None:
    """What is read within, quietly, takes no filter along that stays."""
    warnings.simplefilter("always")
    with without_warnings(FedscopeWarning), without_warnings(RuntimeWarning):
        with pytest.raises(FedscopeError), explain_read_errors(Path("a.json"), "a file"):
            raise ValueError("no")
        assert [heard(kind) for kind in (UserWarning, RuntimeWarning)] == ["said", "ignored"]
