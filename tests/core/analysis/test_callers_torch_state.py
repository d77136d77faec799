"""What a caller's program has set torch up with changes no answer and no run, and is there afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedscope
from fedscope.checkpoints.io.torch_state import own_torch_state

pytestmark = pytest.mark.same_elsewhere


@contextmanager
def in_float64() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextmanager
def elsewhere() -> Iterator[None]:
    torch.set_default_device("meta")
    try:
        yield
    finally:
        torch.set_default_device(None)


#: what tutorials have at their top, or round their loops
STATES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "default device": elsewhere,
    "with a device": lambda: torch.device("meta"),
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "default dtype": in_float64,
}


def told() -> tuple[Any, ...]:
    return torch.get_default_device(), torch.get_default_dtype(), torch.is_autocast_enabled("cpu")


def numbers_of(result: Any) -> list[Any]:
    return [(column, value) for column, value in result.numbers().items() if column != "seconds"]


@pytest.fixture(scope="module")
def nets() -> list[nn.Module]:
    torch.manual_seed(0)
    return [nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)) for _ in range(2)]


@pytest.fixture(scope="module")
def data() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    x, y = torch.randn(60, 4, generator=torch.Generator().manual_seed(1)), torch.arange(60) % 3
    return (x[:40], y[:40]), (x[40:], y[40:])


@pytest.mark.parametrize("state", STATES)
def test_questions_answer_the_same(state: str, nets: Any, data: Any, here: Path) -> None:
    asked: dict[str, Callable[[], Any]] = {
        "line": lambda: fedscope.line(nets, data=data, points=3),
        "align": lambda: fedscope.align(nets, data=data),
        "sharpness": lambda: fedscope.sharpness(nets[0], data=data, draws=2, hessian=False),
        "subsets": lambda: fedscope.subsets("runs/fma", limit=50, rounds=1),
        "decompose": lambda: fedscope.decompose("runs/fma", draws="local:2", rounds=2, limit=50),
        "prepared": lambda: fedscope.subsets.prepare("runs/fma", limit=50, rounds=2).answer(),
    }
    for name, ask in asked.items():
        plain = ask()
        with STATES[state]():
            before = told()
            answer = ask()
            assert told() == before
        assert numbers_of(answer) == numbers_of(plain), name


@pytest.mark.parametrize("state", STATES)
def test_runs_are_trained_the_same(state: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"clients": 4, "rounds": 2, "epochs": 1, "participation": 1.0}
    plain = fedscope.train(out=tmp_path / "plain", **settings)
    with STATES[state]():
        fedscope.train(out=tmp_path / "run", until=1, **settings)
        run = fedscope.resume(tmp_path / "run")
        fedscope.measure(run, force=True)
    assert run.layout == plain.layout
    np.testing.assert_array_equal(*(one.round(2).read("global").parameters for one in (run, plain)))
    # in another program, whose torch is plain
    assert fedscope.subsets(tmp_path / "run", limit=50, rounds=1).summary()


def test_a_network_of_ones_own_has_the_type_of_the_program(data: Any, tmp_path: Path) -> None:
    """It is what that program would train; the documentation says so."""
    settings: dict[str, Any] = {"clients": 4, "rounds": 1, "epochs": 1, "participation": 1.0, "data": data}
    with in_float64():
        run = fedscope.train(model=lambda: nn.Linear(4, 3), out=tmp_path / "run", **settings)
    assert run.layout.dtype == np.float64


def test_samples_of_ones_own_are_read_as_the_program_reads_them(nets: Any) -> None:
    """As a loader whose generator lies on the device that tensors are made on, for else torch refuses it."""
    where: list[str] = []

    class Items:
        def __len__(self) -> int:
            return 4

        def __getitem__(self, i: int) -> tuple[Any, int]:
            where.append(torch.get_default_device().type)
            return np.full(4, i, np.float32), i % 3

    with elsewhere():
        fedscope.line(nets, data=Items(), points=3)
    assert set(where) == {"meta"}


def test_the_guard_costs_nothing_where_the_state_is_plain() -> None:
    """A mode of torch's is a step more in every call of it."""
    with own_torch_state():
        assert not torch.overrides._get_current_function_mode_stack()
