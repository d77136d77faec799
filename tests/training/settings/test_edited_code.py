"""A file that was edited after the import is not what is trained: a run that keeps its text says so."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from own_code import MODULE, forget

import fedscope
from fedscope.checkpoints import FedscopeWarning
from fedscope.training.settings.code_source import source_of

NETS = '''
"""Networks."""

import functools

import torch
from torch import nn

HIDDEN = 16
TABLE = {}


def decorated(function):
    @functools.wraps(function)
    def inner(*args):
        return function(*args)

    return inner


def act(x):
    return torch.relu(x)


class Base(nn.Module):
    scale = 1.0

    def scaled(self, x):
        return self.scale * x


class Net(Base):
    def __init__(self, bias=True):
        super().__init__()
        self.a, self.b = nn.Linear(64, HIDDEN, bias=bias), nn.Linear(HIDDEN, 10)

    @decorated
    def forward(self, x):
        TABLE["seen"] = 1
        return self.scaled(self.b(act(self.a(x.flatten(1)))))

    @property
    def width(self):
        return 64


def make(bias=True):
    return Net(bias)


class Other(nn.Linear):
    def __init__(self):
        super().__init__(64, 10)
'''


MADE = """
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import NamedTuple

from torch import nn


class Act(Enum):
    RELU = 1


class Size(IntEnum):
    WIDE = 16


class Pair(NamedTuple):
    width: int = 16


@dataclass(slots=True)
class Slots:
    width: int = 16


_CACHE = None
_COUNT = 0
SIZE = 16
for SIZE in (8, 10):
    pass
if SIZE:
    WIDTH = 8
WIDTH = 64


def cached():
    global _CACHE, _COUNT
    _CACHE = {"width": 64}
    _COUNT += 1
    return _CACHE


class Net(nn.Module):
    calls = 0
    kept = 1

    def __init__(self):
        super().__init__()
        Act.RELU, Size.WIDE, Pair(), Slots()
        self.layer = nn.Linear(cached()["width"], SIZE)

    def forward(self, x):
        type(self).calls += 1
        return self.layer(x.reshape(len(x), WIDTH))
"""


@pytest.fixture
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module, imported as a notebook does it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "editednets.py").write_text(NETS)
    importlib.invalidate_caches()
    yield importlib.import_module("editednets")
    forget("editednets")


def edit(before: str, after: str) -> None:
    text = Path("editednets.py").read_text()
    assert before in text
    Path("editednets.py").write_text(text.replace(before, after))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("torch.relu(x)", "torch.tanh(x)"),  # a function that the network names
        ("self.a(x.flatten(1))", "self.a(x.flatten(2))"),  # its own, under a decorator
        ("return self.scale * x", "return x"),  # of a base
        ("scale = 1.0", "scale = 2.0"),
        ("HIDDEN = 16", "HIDDEN = 32"),
        ("def __init__(self, bias=True)", "def __init__(self, bias=False)"),
        ("return 64", "return 65"),
        ("act(self.a", "self.a.forward(self.a"),
        ("class Net(Base)", "class Net(Base"),  # not Python any more
    ],
)
def test_what_a_class_is_made_of_is_compared(nets: Any, before: str, after: str) -> None:
    assert not source_of(nets.Net).edited
    assert not source_of(nets.make).edited
    edit(before, after)
    assert source_of(nets.Net).edited
    assert source_of(nets.Net()).edited
    assert source_of(nets.make).edited


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("class Net", "# a comment\n\n\nclass Net"),
        ("super().__init__(64, 10)", "super().__init__(64, 11)"),  # nothing that the network names
        ("class Other", "def more():\n    return 3\n\n\nclass Other"),
    ],
)
def test_what_it_does_not_use_is_not(nets: Any, before: str, after: str) -> None:
    nets.TABLE["seen"] = 2  # what a program fills is no edit
    edit(before, after)
    assert not source_of(nets.Net).edited
    assert not source_of(nets.make).edited


def test_a_run_that_keeps_another_text_says_so(nets: Any, tmp_path: Path) -> None:
    few: dict[str, Any] = {"clients": 4, "participation": 1, "rounds": 1, "epochs": 1, "method": "fma"}
    with warnings.catch_warnings():
        warnings.simplefilter("error", FedscopeWarning)
        fedscope.train(model=nets.Net, out=tmp_path / "fresh", **few)
    edit("torch.relu", "torch.sigmoid")  # of another length: Python tells a file from its cache by second and size
    with pytest.warns(
        FedscopeWarning, match="editednets.py was edited since model editednets:Net was imported"
    ) as said:
        fedscope.train(model=nets.Net, out=tmp_path / "stale", **few)
    assert len(said) == 1
    importlib.reload(nets)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FedscopeWarning)
        fedscope.train(model=nets.Net, out=tmp_path / "reloaded", **few)


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("Heavy", "self.beta * state", "self.beta * 2 * state"),
        ("Heavy", "setting(0.5,", "setting(0.25,"),
        ("Pull", ".sign()", ".neg()"),
    ],
)
def test_methods_are_compared_too(
    name: str, before: str, after: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "editedmethods.py").write_text(MODULE)
    module = importlib.import_module("editedmethods")
    try:
        assert not source_of(getattr(module, name)).edited
        assert before in MODULE
        (tmp_path / "editedmethods.py").write_text(MODULE.replace(before, after))
        assert source_of(getattr(module, name)).edited
    finally:
        sys.modules.pop("editedmethods")


def test_what_a_program_rebinds_or_makes_is_no_edit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "madenets.py").write_text(MADE)
    importlib.invalidate_caches()
    module = importlib.import_module("madenets")
    try:
        assert not source_of(module.Net).edited
        module.Net()(torch.zeros(1, 1, 8, 8))
        assert (module._COUNT, module.Net.calls) == (1, 1)
        assert not source_of(module.Net).edited
        (tmp_path / "madenets.py").write_text(MADE.replace("kept = 1", "kept = 2"))  # what nothing rebinds
        assert source_of(module.Net).edited
    finally:
        forget("madenets")
