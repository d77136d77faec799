"""What own networks and methods keep in plain attributes is told of, where numbers may depend on it."""

from __future__ import annotations

import threading
import warnings
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedscope
from fedscope.checkpoints import FedscopeWarning
from fedscope.methods import (
    ClientMethod,
    Cohort,
    LocalTask,
    LocalUpdate,
    Served,
    ServerMethod,
    State,
    Weights,
    local_sgd,
    mean_update,
)
from fedscope.training.local.unrecorded_state import BYTES, snapshot

X = np.random.default_rng(0).normal(size=(40, 64)).astype(np.float32)
FEW: dict[str, Any] = {"clients": 4, "participation": 1.0, "partition": "iid", "epochs": 1}


def told(out: Path, words: str, **given: Any) -> list[str]:
    """The warnings of a small training that have some words."""
    data = X, np.arange(40) % 10
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", FedscopeWarning)
        fedscope.train(out=out, data=data, **{**FEW, "rounds": 3, **given})
    return [str(one.message) for one in found if words in str(one.message)]


class Net(nn.Module):
    """A layer, with what the kinds below count beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.n, self.seen = nn.Linear(64, 10), 0, torch.zeros(())

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.count(x)
        return self.linear(x) * self.factor()

    def count(self, x: Tensor) -> None:
        self.n += 1
        self.last = x

    def factor(self) -> Any:
        return 1


class Annealed(Net):
    def factor(self) -> Any:
        return 1 + 0.02 * self.n


class Running(Net):
    def count(self, x: Tensor) -> None:
        self.seen = 0.9 * self.seen + 0.1 * x.abs().mean()

    def factor(self) -> Any:
        return 1 + self.seen


class Both(Running):
    def count(self, x: Tensor) -> None:
        super().count(x)
        self.n += 1

    def factor(self) -> Any:
        return 1 + self.seen + self.n


class Held(Net):
    """As the sentence advises."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("m", torch.tensor(0.0))

    def count(self, x: Tensor) -> None:
        self.m.add_(1)

    def factor(self) -> Any:
        return 1 + 0.02 * self.m


class Noisy(Net):
    """Two passes differ, and not by what it stores."""

    def __init__(self) -> None:
        super().__init__()
        self.draw = np.random.default_rng(0)

    def factor(self) -> Any:
        return 1 + 0.1 * self.draw.normal() if self.training else 1


@pytest.mark.parametrize(
    ("kind", "names"),
    [(Net, []), (Held, []), (Noisy, []), (Annealed, ["n"]), (Running, ["seen"]), (Both, ["n", "seen"])],
)
def test_a_network_whose_outputs_depend_on_plain_attributes(kind: Any, names: list[str], tmp_path: Path) -> None:
    """A counter, or an activation that is stored, upon which nothing depends is right as it is."""
    said = told(tmp_path / "run", "while it trains, and its", model=kind, rounds=1)
    it, each = ("it", "it") if len(names) == 1 else ("them", "each")
    where = ", ".join(f"self.{name}" for name in names)
    assert said == [
        f"the forward of a {kind.__name__} changes {where} while it trains, and "
        f"its outputs depend on {it}; no model holds {it}, so clients that one worker trains share {it}, and numbers "
        f"depend on how many workers there are; register {each} as a buffer, self.register_buffer('{name}', "
        f"torch.tensor(0.0)) in __init__, and change {it} in place"
        for name in names[:1]
    ]


class Mean(ServerMethod):
    """The mean, with what those below keep."""

    bank: ClassVar[dict[str, Any]] = {}

    def keep(self, round: int) -> None: ...

    def step(self, state: State, start: Weights, clients: Weights, cohort: Cohort) -> Served:
        self.keep(cohort.round)
        return Served((start.parameters + mean_update(start, clients)).astype(start.layout.dtype))


class Once(Mean):
    def keep(self, round: int) -> None:
        self.bank["table"] = np.arange(3)


class ByClass(Mean):
    bank: ClassVar[dict[str, Any]] = {}

    def keep(self, round: int) -> None:
        self.bank["v"] = np.full(3, round)


class ByItself(Mean):
    def keep(self, round: int) -> None:
        object.__setattr__(self, "v", round)


class Odd(Mean):
    """What cannot be read, or would take long, is not looked at."""

    bank: ClassVar[dict[str, Any]] = {
        "dates": np.array(["2020-01-01"], "datetime64[s]"),
        "conjugate": torch.tensor([1j]).conj(),
        "narrow": torch.zeros(2).to(torch.float8_e4m3fn),
        "large": [np.zeros(1 << 22) for _ in range(3)],
        "lock": threading.Lock(),
    }


class Banked(ClientMethod):
    bank: ClassVar[dict[int, Any]] = {}

    def train(self, task: LocalTask) -> LocalUpdate:
        update = local_sgd(task, self)
        self.bank[task.client] = update.weights.parameters.copy()
        return update


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({"server": Mean}, ""),
        ({"server": Once}, ""),
        ({"server": Odd}, ""),
        ({"server": ByClass}, "ByClass.bank"),
        ({"server": ByItself}, "ByItself.v"),
        ({"client": Banked}, "Banked.bank"),
        ({"client": "scaffold", "server": "fedavgm"}, ""),
    ],
)
def test_a_method_that_keeps_what_no_run_records(given: Any, place: str, tmp_path: Path) -> None:
    said = told(tmp_path / "run", "changes from round to round", **given)
    assert [one.partition(":")[2] for one in said] == (
        [
            f"{place} changes from round to round, and the run does not record it: a resumed run begins without it, "
            "and workers on other machines have one each; if the method reads it, keep it in the state that step or "
            "train returns"
        ]
        if place
        else []
    )


def test_what_cannot_be_compared_is_none_and_the_room_is_shared() -> None:
    assert snapshot(torch.tensor([1j]).conj()) != snapshot(torch.tensor([1j]))
    assert snapshot(np.array(["2020-01-01"], "datetime64[s]")) != snapshot(np.array(["2020-01-02"], "datetime64[s]"))
    _, parts = snapshot([np.zeros(BYTES // 8), np.zeros(1)])
    assert [part is None for part in parts] == [False, True]


def test_it_is_told_where_warnings_are_errors(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", FedscopeWarning)
        with pytest.raises(FedscopeWarning, match=r"changes self\.n while it trains"):
            fedscope.train(out=tmp_path / "run", model=Annealed, **{**FEW, "rounds": 1}, data=(X, np.arange(40) % 10))
