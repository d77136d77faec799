"""Models of many tensors: the work grows with their number, not with its square."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from few import few
from safetensors.numpy import save_file

from fedscope import import_models
from fedscope.checkpoints import Layout, Round, Run, TensorEntry, load_model
from fedscope.cli.main import run
from fedscope.training.loop.verify_run import check_run

pytestmark = pytest.mark.same_elsewhere

FEW, MANY = 120, 360
#: of three times as many tensors, in lines of Python; a square would be nine times
MOST = 3.3


class Name(str):
    """A name that counts how often it is compared, which a look through a tuple or a list does."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def comparisons(n: int, work: Callable[[Layout, dict[str, np.ndarray], Layout], object]) -> int:
    layout = Layout(tuple(TensorEntry(Name(f"layer{i}.w"), (1,), "float32", "parameter") for i in range(n)))
    other = Layout(tuple(TensorEntry(Name(f"layer{i}.w"), (1,), "float32", "parameter") for i in reversed(range(n))))
    arrays: dict[str, np.ndarray] = {Name(f"layer{i}.w"): np.zeros(1, np.float32) for i in reversed(range(n))}
    Name.compared = 0
    work(layout, arrays, other)
    return Name.compared


@pytest.mark.parametrize(
    "work",
    [
        lambda layout, arrays, _: layout.flatten(arrays),
        lambda layout, arrays, _: layout.flatten(arrays).arrays(),
        lambda layout, _, __: Layout.from_json([{**entry, "name": Name(entry["name"])} for entry in layout.to_json()]),
        lambda layout, _, other: layout.as_in(other),
        lambda layout, _, other: layout.difference(other),
        lambda layout, arrays, _: [name in layout.names for name in arrays],
        lambda layout, arrays, _: [layout.by_name[name] for name in arrays],
    ],
)
def test_a_layout_is_not_looked_through_for_each_name(work: Any) -> None:
    assert comparisons(MANY, work) <= 12 * MANY
    assert Name.compared < MANY**2 / 4


def lines(work: Callable[[], object]) -> int:
    """How many lines of this package, and turns of its comprehensions, a piece of work runs through."""
    count = 0

    def step(frame: Any, event: str, _: Any) -> Any:
        nonlocal count
        if "fedscope" not in frame.f_code.co_filename:
            return None
        count += 1
        frame.f_trace_opcodes = False
        return step

    before = sys.gettrace()
    sys.settrace(step)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def models(n: int) -> list[str]:
    for k in range(3):
        save_file({f"layer{i}.w": np.float32([i + k, k]) for i in range(n)}, f"{n}-{k}.safetensors")
    return [f"{n}-{k}.safetensors" for k in range(3)]


def layers(round_: Round) -> None:
    for entry in round_.layout.parameters:
        list(round_.rows_of("clients", entry.name))


QUESTIONS: dict[str, Callable[[int], object]] = {
    "import": lambda n: import_models(models(n)[:2], f"new{n}", start=f"{n}-2.safetensors", force=True),
    "open": lambda n: Run.open(f"run{n}"),
    "clients": lambda n: Run.open(f"run{n}").round(1).clients(),
    "layers": lambda n: layers(Run.open(f"run{n}").round(1)),
    "check": lambda n: check_run(f"run{n}"),
    "file": lambda n: load_model(f"{n}-0.safetensors", Run.open(f"run{n}").layout),
    "ls": lambda n: run(["ls", f"run{n}"]),
    "export": lambda n: run(["export", f"run{n}@1", f"out{n}.safetensors", "--force"]),
}


@pytest.mark.programs
@pytest.mark.parametrize("question", few(QUESTIONS, lambda name: name in ("import", "open", "ls", "file")))
def test_three_times_as_many_tensors_take_three_times_as_much(
    question: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ask, took = QUESTIONS[question], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n in (FEW, MANY):
            import_models(models(n)[:2], f"run{n}", start=f"{n}-2.safetensors")
            ask(n)  # what is loaded once
            from fedscope.checkpoints.io import checksums
            from fedscope.checkpoints.rounds import reader as round_reading

            monkeypatch.setattr(round_reading, "VERIFIED", checksums.Verified(files=16, tables=16))
            took.append(lines(lambda n=n: ask(n)))  # type: ignore[misc]
    assert took[1] <= MOST * took[0] + 2000, took
