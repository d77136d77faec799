"""A round that is refused leaves a recorder as it was: what is recorded and told afterwards is the same as without."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from torch import nn

from fedscope import Recorder
from fedscope.checkpoints import FedscopeError, FedscopeWarning
from fedscope.checkpoints.io.errors import DiskFullError
from fedscope.checkpoints.recorder import recorder as loop
from fedscope.checkpoints.recorder.framework_rounds import Contribution, NamedRounds
from fedscope.checkpoints.rounds.metrics import MOST_OWN

pytestmark = pytest.mark.same_elsewhere

Given = dict[str, Any]


def model(value: float, prefix: str = "") -> Given:
    """16 numbers, as many as tell momentum, that are moved by ``value``."""
    rng = np.random.default_rng(0)
    weight, bias = rng.normal(size=(4, 3)), rng.normal(size=4)
    return {f"{prefix}a.weight": np.float32(weight + value), f"{prefix}a.bias": np.float32(bias + value)}


def adapter(value: float, alpha: float = 2.0) -> Given:
    """One of kohya, which says its alpha."""
    down, up = np.full((2, 4), 1 + value, np.float32), np.full((4, 2), value, np.float32)
    return {"q.lora_down.weight": down, "q.lora_up.weight": up, "q.alpha": np.float32(alpha)}


class Adapter(nn.Linear):
    """One of PEFT, whose configuration says its alpha."""

    def __init__(self, alpha: float) -> None:
        super().__init__(4, 2)
        self.lora_A = nn.Linear(4, 2, bias=False)
        self.peft_config = {"default": {"r": 2, "lora_alpha": alpha}}


def rounds(make: Callable[[float], Given], count: int = 3, first: float = 0.0) -> list[Given]:
    """Rounds of a server with momentum 1/2, which only two of them one after the other tell; all warn of a number."""
    found, w, d = [], first, 0.0
    for t in range(count):
        d = 1 + t + d / 2
        given = {"start": make(w), "clients": {3: make(w + 2 * (1 + t)), 1: make(w)}, "global_": make(w + d)}
        found.append({**given, "metrics": {"test_error": 4.5, "top5": 0.5}})
        w += d
    return found


def told(work: Callable[[], object]) -> list[tuple[str, bool]]:
    """What was warned of, and whether as said by this file."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        work()
    assert all(issubclass(one.category, FedscopeWarning) for one in caught)
    return [(str(one.message), one.filename == __file__) for one in caught]


def plain() -> list[Given]:
    return rounds(model)


@dataclass(frozen=True)
class Case:
    """A round that is refused.

    Attributes:
        wrong: the round, made anew for each recorder; words: of the refusal.
        before: rounds that are there; as a run that is gone on with where ``resumed``.
        then: rounds that follow.
        about: of the recorder.
    """

    wrong: Callable[[], Given]
    words: str
    then: Callable[[], list[Given]] = plain
    before: Callable[[], list[Given]] = list
    about: Callable[[], Given] = dict
    resumed: bool = False
    error: type[Exception] = FedscopeError
    filter: Literal["always", "error"] = "always"


def lost() -> Given:
    """A round with much to learn from and to tell: wrapped names, one that is not finite, numbers of its own, a scale,
    and a server that has gone elsewhere."""
    start, one, other = (model(value, "module.") for value in (90.0, 91.0, 96.0))
    other["module.a.bias"][0] = np.inf
    return {"start": start, "clients": {1: one, 3: other}, "global_": start, "metrics": {"test_error": 7, "poison": 1}}


def wrong(**what: Any) -> Callable[[], Given]:
    """Such a round that is wrong in one thing."""
    return lambda: {**lost(), **what}


def own_starts(**what: Any) -> Callable[[], Given]:
    def made() -> Given:
        given = {key: value for key, value in lost().items() if key != "start"}
        return {**given, "starts": {1: model(90.0, "module."), 3: model(89.0, "module.")}, **what}

    return made


def tied() -> Given:
    given = rounds(model)[0]
    return {**given, "clients": {1: {**model(1), "a.more": model(1)["a.bias"]}}}


ADAPTERS = partial(rounds, adapter)
WRAPPED = partial(rounds, partial(model, prefix="module."))
CASES = {
    "no clients": Case(wrong(clients={}), "no clients were given"),
    "clients of another kind": Case(wrong(clients=iter([model(1)])), "clients as list_iterator were given"),
    "a client twice": Case(wrong(clients=[(1, model(1)), (1, model(2))]), "client 1 is there twice"),
    "a name for a number": Case(wrong(clients={"a": model(1)}), "client 'a' is not a whole number"),
    "no model": Case(wrong(clients={1: None}), "client 1 has no model"),
    "no tensors": Case(wrong(clients={1: {}}), "a model without tensors"),
    "one of many": Case(wrong(clients={1: model(1), 3: 5}), "a model was given as int"),
    "no weights": Case(
        lambda: {"clients": {1: {"a.weight": np.arange(4)}}, "metrics": {"poison": 1}}, "the models hold no weights"
    ),
    "other names": Case(lambda: {**rounds(model)[0], "global_": adapter(1)}, "global_ lacks a.weight"),
    "names of the refused": Case(wrong(samples={1: 1, 3: 2, 2: 3}), "client 2 has samples, but no model", then=WRAPPED),
    "other shapes": Case(wrong(start={**model(1), "a.bias": np.zeros(5, np.float32)}), "global_ has a.bias of shape"),
    "other precision": Case(
        wrong(start={**model(1), "a.bias": np.zeros(4, np.float16)}), "global_ has a.bias in float32"
    ),
    "one tensor in the first": Case(tied, "client 1 has a.more"),
    "another module": Case(
        lambda: {"clients": [{"weight": np.ones((2, 5), np.float32), "bias": np.ones(2, np.float32)}]},
        "give the architecture of these models as model=",
        about=lambda: {"model": nn.Linear(4, 2)},
        then=lambda: [{"clients": [nn.Linear(4, 2).requires_grad_(False).apply(fill)]} for _ in range(2)],
    ),
    "alphas of tensors": Case(
        lambda: {"start": adapter(0, 1), "clients": {0: adapter(0, 1), 1: adapter(0, 2)}}, "with alpha", then=ADAPTERS
    ),
    "alphas of tensors later": Case(
        lambda: {"clients": {0: adapter(0, 1)}}, "with alpha", before=ADAPTERS, then=partial(rounds, adapter, 2, 7.0)
    ),
    "alphas of modules": Case(
        lambda: {"clients": {0: Adapter(1), 1: Adapter(2)}},
        "with lora_alpha",
        then=lambda: [{"clients": {0: Adapter(2).apply(fill), 1: Adapter(2).apply(fill)}} for _ in range(2)],
    ),
    "alphas of modules that were starts": Case(
        lambda: {"clients": {0: Adapter(2)}, "starts": {0: Adapter(1)}},
        "the start of client 0 one with 1",
        then=lambda: [{"clients": {0: Adapter(1).apply(fill)}, "starts": {0: Adapter(1).apply(fill)}}] * 2,
    ),
    "an alpha of no adapter": Case(
        wrong(), "but the models hold no factors of adapters", about=lambda: {"lora_alpha": 2.0}, then=ADAPTERS
    ),
    "another alpha than was given": Case(
        lambda: {**rounds(partial(adapter, alpha=1))[2], "metrics": {"test_error": 7, "poison": 1}},
        "but .*run@1: client 3 says alpha by layer",
        about=lambda: {"lora_alpha": 2.0},
        then=ADAPTERS,
    ),
    "start and starts": Case(own_starts(start=model(1)), "give one of the two"),
    "mixing without starts": Case(wrong(mixing=np.eye(2)), "mixing= is of clients that start from models of their own"),
    "no start of a client": Case(own_starts(starts={1: model(1)}), "client 3 has a model, but no start"),
    "starts in no order": Case(own_starts(starts=[model(1), model(2)]), "starts= is a list"),
    "starts that are the clients": Case(
        lambda: {"starts": (same := {0: model(1), 1: model(2)}), "clients": same, "staleness": {0: 1, 1: 0.5}},
        "staleness is 1.0, 0.5",
        then=lambda: [{"starts": (same := {0: model(1), 1: model(2)}), "clients": same}, *rounds(model)],
    ),
    "a mixing that does not sum to 1": Case(own_starts(mixing=np.ones((2, 2))), "sum to 2, not 1"),
    "samples in no order": Case(wrong(clients={3: model(1), 1: model(2)}, samples=[1, 2]), "samples= is a list"),
    "parts of samples": Case(wrong(samples={1: 0.5, 3: 1}), "give whole numbers from 0 on"),
    "one number for all": Case(wrong(samples=4), "samples= is 4; give one of each client"),
    "no samples of a client": Case(wrong(samples={1: 5}), "client 3 has a model, but no samples"),
    "weights below 0": Case(wrong(weights={1: -1.0, 3: 2.0}), "the clients' weights are -1.0, 2.0"),
    "numbers without names": Case(wrong(metrics=[0.5]), "metrics= is list"),
    "a number that is none": Case(wrong(metrics={"poison": 1, "lr": "low"}), "the metric lr is 'low'"),
    "a number that the run makes": Case(wrong(metrics={"poison": 1, "crc32": 1}), "like a column that the run makes"),
    "a client without a part": Case(
        wrong(clients={1: model(1), 5: model(9)}),
        "client 5 has a model, but no rows",
        about=lambda: {"partition": {1: [0, 1], 3: [2]}, "labels": np.array([0, 1, 1])},
    ),
    "counts that are not the partition's": Case(
        wrong(samples={1: 9, 3: 9}, metrics={"lr": "low"}),
        "the metric lr",
        about=lambda: {"partition": {1: [0, 1], 3: [2]}, "labels": np.array([0, 1, 1])},
        then=lambda: [{**one, "samples": {1: 7, 3: 1}} for one in rounds(model)],
    ),
    "sketches without a start": Case(wrong(start=None), "sketch = 16 is of updates from", about=lambda: {"sketch": 16}),
    "many numbers of its own": Case(
        wrong(start=None, metrics={f"poison{i}": 1 for i in range(MOST_OWN)}),
        "sketch = 16 is of updates from",
        about=lambda: {"sketch": 16},
    ),
    "sketches behind a gap": Case(
        wrong(start=None),
        "sketch = 16 is of updates from",
        about=lambda: {"sketch": 16},
        before=lambda: rounds(model, 4),
        resumed=True,
        then=lambda: rounds(model, 2, 40.0),
    ),
    "numbers behind a gap": Case(
        lambda: {**rounds(model, 1, 40.0)[0], "metrics": {"lr": "low"}},
        "the metric lr",
        before=lambda: rounds(model, 4),
        resumed=True,
        then=lambda: rounds(model, 2, 40.0),
    ),
    "drift of adapters": Case(
        lambda: {**rounds(adapter)[0], "metrics": {"lr": "low"}},
        "the metric lr",
        about=lambda: {"drift": True},
        then=ADAPTERS,
    ),
    "a warning that is an error": Case(
        lambda: {**rounds(model, 6)[5], "metrics": {"poison": 1, "test_error": 7}},
        "test_error is 7",
        before=lambda: [{**one, "metrics": {}} for one in rounds(model, 2)],
        then=lambda: [{**one, "metrics": {"test_error": 4.5}} for one in rounds(model, 5)[2:]],
        error=FedscopeWarning,
        filter="error",
    ),
    "a warning that is an error at first": Case(
        lost, "prefix", error=FedscopeWarning, filter="error", about=lambda: {"drift": True}
    ),
}


def fill(module: nn.Module) -> None:
    for parameter in module.parameters():
        nn.init.constant_(parameter, 0.5)


@pytest.fixture(autouse=True)
def alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are told apart by random letters."""
    monkeypatch.setattr(loop, "draw_identity", lambda: "alike")


def files_of(run: Path) -> dict[str, Any]:
    """A run's files, but for when it was made."""
    found: dict[str, Any] = {}
    for file in sorted(one for one in run.rglob("*") if one.is_file() and one.name != ".writer"):
        found[str(file.relative_to(run))] = file.read_bytes()
    info = json.loads(found["run.json"])
    del info["created"], info["files"]["run.json"]
    return {**found, "run.json": info}


def recorded(path: Path, case: Case, *, refused: bool) -> tuple[list[tuple[str, bool]], dict[str, Any]]:
    """What a recorder tells after a round that it refuses, and what it writes."""
    shutil.rmtree(path, ignore_errors=True)
    about, resumed = case.about(), {"resume": True} if case.resumed else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        recorder = Recorder(path, **({} if case.resumed else about))
        for given in case.before():
            recorder.round(**given)
        if case.resumed:
            recorder.close()
            recorder = Recorder(path, **about, **resumed)
        recorder.flush()
    if refused:
        with warnings.catch_warnings(action=case.filter), pytest.raises(case.error, match=case.words):
            recorder.round(**case.wrong())

    def go_on() -> None:
        for given in case.then():
            recorder.round(**given)
        recorder.close()

    return told(go_on), files_of(path)


@pytest.mark.parametrize("name", CASES)
def test_what_follows_a_refused_round_is_as_without_it(name: str, tmp_path: Path) -> None:
    """A scale, an architecture, columns, the server's last step and what was told stayed of it; and a gap untold."""
    case = CASES[name]
    said, files = recorded(tmp_path / "run", case, refused=False)
    assert len([one for one in files if one.endswith(".h5")]) >= 2
    found, others = recorded(tmp_path / "run", case, refused=True)
    assert found == said
    assert all(here for _, here in found), "they name the line that has called"
    assert others == files


@pytest.mark.parametrize("change", ["numbers", "data"])
def test_a_refused_first_round_leaves_what_was_there(change: str, tmp_path: Path) -> None:
    """Data that had changed were found out once the run that they should replace was gone, and the lock given back."""
    path, x = tmp_path / "run", np.zeros((4, 3))
    with Recorder(path) as recorder:
        recorder.round(clients=[model(5)])
    there = files_of(path)
    recorder = Recorder(path, data=(x, np.arange(4)), force=True)
    if change == "data":
        x += 1
    with pytest.raises(FedscopeError):
        recorder.round(clients=[model(1)], metrics={} if change == "data" else {"lr": "low"})
    assert files_of(path) == there
    with pytest.raises(FedscopeError, match="is being written by this program itself"):
        Recorder(path, force=True)
    x[:] = 0
    recorder.round(clients=[model(1)])
    recorder.close()
    assert (path / "recorded-data.npz").exists()
    assert files_of(path) != there


def test_a_disk_that_is_full_at_the_first_round_does_not_end_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It did where ``run.json`` or the data did not fit, and not where the round's own file did not."""
    path = tmp_path / "run"

    def full(*_: object) -> None:
        raise DiskFullError(f"{path}: the disk is full")

    monkeypatch.setattr(loop, "fill_run", full)
    recorder = Recorder(path)

    def train() -> None:
        for given in rounds(lambda value: {"w": np.full(16, value, np.float32)}):
            recorder.round(**{**given, "metrics": {}})
        recorder.close()

    assert told(train) == [
        (f"{path}: recording has ended, because the disk is full; no round of it is recorded, and the training goes on",
         True)
    ]  # fmt: skip
    monkeypatch.undo()
    Recorder(path).close()  # the folder was given back


def named_rounds(path: Path, *, refused: bool) -> tuple[list[tuple[str, bool]], dict[str, Any]]:
    """Rounds of a framework whose clients have names, behind one of a name, a type and a model of its own."""
    shutil.rmtree(path, ignore_errors=True)
    found = NamedRounds(Recorder(path), "Frame")

    def play(number: int, names: list[str], made: Callable[[float], Given], end: Given | None = None) -> None:
        found.begin(made(0.0))
        for k, name in enumerate(names):
            found.add(Contribution(name, made(float(k)), 1.0))
        found.end(number, end or made(0.5))
        found.settle()

    if refused:
        wide = {name: array.astype(np.float64) for name, array in model(0.0).items()}
        (said,) = told(lambda: play(0, ["hospital"], lambda value: dict(wide), {"w": np.zeros(3)}))
        assert "round 0 of Frame is not recorded" in said[0]

    def go_on() -> None:
        play(1, ["clinic", "practice"], model)
        play(2, ["clinic", "practice"], model)
        found.close()

    return told(go_on), files_of(path)


def test_a_round_of_a_framework_that_is_not_recorded_leaves_no_name_and_no_type(tmp_path: Path) -> None:
    """Its first client's types were the run's, its names had numbers, and others "came after the first round"."""
    said, files = named_rounds(tmp_path / "run", refused=False)
    assert (said, files["run.json"]["client_names"]) == ([], {"0": "clinic", "1": "practice"})
    assert named_rounds(tmp_path / "run", refused=True) == (said, files)
