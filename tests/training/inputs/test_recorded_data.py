"""Data of a recorded loop: whatever the options of the recorder, the answer is the loop's own error, or is refused."""

from __future__ import annotations

import inspect
import itertools
import json
import math
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from few import few
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import fedscope
from fedscope import Recorder
from fedscope.checkpoints import FedscopeError, FedscopeWarning, Run
from fedscope.checkpoints.recorder import stored_data
from fedscope.checkpoints.runs.recorded_error import NAME, ErrorCheck, stored_checks
from fedscope.cli.main import run as fedscope_command
from fedscope.training.inputs import recorded_error as asking

CLASSES, FEATURES, CLIENTS = 3, 6, 3
ROWS = {k: np.arange(150)[np.arange(150) % CLIENTS == k] for k in range(CLIENTS)}
Pair = tuple[np.ndarray, np.ndarray]


def drawn(seed: int = 0) -> tuple[Pair, Pair]:
    """Training and test samples whose scale matters: means far from 0, and features of no use that are larger than the
    others. Those of another seed have other labels, too: what one model calls right is wrong there."""
    draw = np.random.default_rng(seed)
    y = draw.integers(0, CLASSES, 250)
    x = draw.normal(size=(250, FEATURES)) + 1.5 * np.eye(CLASSES, FEATURES)[y]
    x = (x * np.geomspace(1, 40, FEATURES) + np.linspace(2, 60, FEATURES)).astype(np.float32)
    y = (y + seed) % CLASSES
    return (x[:150], y[:150]), (x[150:], y[150:])


def scaled(train: Pair, test: Pair, standardise: bool) -> tuple[Pair, Pair]:
    """As a loop that does or does not standardise has them."""
    if not standardise:
        return train, test
    mean, deviation = train[0].mean(0), train[0].std(0)
    return ((train[0] - mean) / deviation, train[1]), ((test[0] - mean) / deviation, test[1])


def net() -> nn.Module:
    """A classifier by the nearest centre: outputs c_k x - |c_k|² / 2."""
    return nn.Sequential(nn.Flatten(), nn.Linear(FEATURES, CLASSES))


def centres(x: np.ndarray, y: np.ndarray, shift: float = 0.0) -> dict[str, np.ndarray]:
    """Its parameters, of samples."""
    c = np.stack([x[y == k].mean(0) for k in range(CLASSES)]) + shift
    return {"1.weight": c.astype(np.float32), "1.bias": (-(c**2).sum(1) / 2).astype(np.float32)}


def outputs(model: Mapping[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    """Of a model, in NumPy."""
    return x.reshape(len(x), -1) @ model["1.weight"].T.astype(float) + model["1.bias"]


def error(model: Mapping[str, np.ndarray], test: Pair) -> float:
    """Of a model, in NumPy."""
    return float((outputs(model, test[0]).argmax(1) != test[1]).mean())


def mean(models: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """All weigh the same."""
    return {name: np.mean([one[name] for one in models], 0).astype(np.float32) for name in models[0]}


@dataclass
class Loop:
    """A loop of two rounds, on samples as it has them."""

    train: Pair
    test: Pair

    def rounds(self) -> Iterator[dict[str, Any]]:
        """What a recorder is given."""
        start = centres(*self.train, shift=0.5)
        for t in range(2):
            clients = [centres(self.train[0][rows], self.train[1][rows], shift=0.1 * t) for rows in ROWS.values()]
            yield {"start": start, "clients": clients, "global_": mean(clients)}
            start = mean(clients)

    def record(self, path: Path | str, metrics: Callable[[dict[str, Any]], Any] | None = None, **about: Any) -> Path:
        """The run; by default with the loop's own error."""
        with Recorder(path, **about) as recorder:
            for one in self.rounds():
                said = metrics(one) if metrics else {"test_error": error(one["global_"], self.test)}
                recorder.round(**one, samples=[50] * CLIENTS, metrics=said)
        return Path(path)

    @property
    def error(self) -> float:
        """Of the last global model."""
        return error(list(self.rounds())[-1]["global_"], self.test)


def measured(path: Path | str, **about: Any) -> float:
    """The error of the average of all clients, as a question measures it."""
    return float(
        fedscope.subsets(path, rounds="last", sizes=[CLIENTS], **{"model": net(), **about})
        .rounds[0]
        .sizes[0]
        .error_mean
    )


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    asking._SEEN.clear()
    yield tmp_path
    for name in ("data_of_mine", "code_here"):
        sys.modules.pop(name, None)


# --- every combination of the recorder's options ---

TWO_SPLITS = ("npz", "splits", "dict", "tensors", "datasets", "loaders", "own")


def form(kind: str, train: Pair, test: Pair) -> Any:
    """Data as a recorder may be given them."""
    arrays = dict(zip(("x_train", "y_train", "x_test", "y_test"), (*train, *test), strict=True))
    tensors = [tuple(map(torch.from_numpy, pair)) for pair in (train, test)]
    match kind:
        case "npz":
            np.savez("mine.npz", **arrays)
            return "npz:mine.npz"
        case "npz of test samples":
            np.savez("mine.npz", x_test=test[0], y_test=test[1])
            return "npz:mine.npz"
        case "own":
            np.savez("own.npz", **arrays)
            Path("data_of_mine.py").write_text(
                "import numpy as np\n\ndef load():\n    found = np.load('own.npz')\n    return dict(found)\n"
            )
            return "data_of_mine:load"
        case "pair":
            return test
        case "splits":
            return train, test
        case "dict":
            return arrays
        case "tensors":
            return tuple(tensors)
        case "datasets":
            return tuple(TensorDataset(*pair) for pair in tensors)
        case "loaders":
            return tuple(DataLoader(TensorDataset(*pair), batch_size=32) for pair in tensors)
    raise AssertionError(kind)


@pytest.mark.parametrize("divided", [False, True], ids=["no partition", "partition"])
@pytest.mark.parametrize(
    "kind",
    few(
        ["npz of test samples", "pair", *TWO_SPLITS], lambda kind: kind in ("npz of test samples", "npz", "dict", "own")
    ),
)
def test_a_recorded_loop_is_measured_rightly_or_refused(here: Path, kind: str, divided: bool) -> None:
    """Raw and standardised loops, data as they were before, as the loop had them, and others; the option as well."""
    raw, other = drawn(), drawn(seed=1)
    whole = kind in ("npz", "splits", "npz of test samples", "pair")  # others are read into the same arrays
    cases = list(itertools.product((False, True), ("raw", "standardised", "other"), (None, True, False)))
    outcomes = set()
    for standardises, given, option in cases if whole else cases[9:14]:
        loop = Loop(*scaled(*raw, standardises))
        data = form(kind, *(other if given == "other" else scaled(*raw, given == "standardised")))
        about: dict[str, Any] = {"data": data, "standardise": option, "force": True}
        if divided:
            about |= {"partition": ROWS, "labels": (other if given == "other" else raw)[0][1]}
        # to standardise once more what is standardised changes nothing
        scale = given == "standardised" or (option is True and kind in TWO_SPLITS)
        right = given != "other" and scale == standardises and (option is not True or kind in TWO_SPLITS)
        found, refusal = answered(loop, about, {"data": data} if kind == "own" else {})
        assert right == (refusal == ""), (standardises, given, option, refusal)
        if right:
            assert found == pytest.approx(loop.error, abs=1e-9)
        else:
            assert "test_error of round 2 was recorded as" in refusal or "to standardise" in refusal
        outcomes.add(right)
        sys.modules.pop("data_of_mine", None)
    assert outcomes == {True, False}


def answered(loop: Loop, about: dict[str, Any], given: dict[str, Any]) -> tuple[float, str]:
    """The error that a question on the recorded loop finds, or why there is none."""
    try:
        return measured(loop.record("run", **about), **given), ""
    except FedscopeError as refusal:
        return math.nan, str(refusal)


@pytest.mark.parametrize("kind", ["npz", "splits", "pair"])
def test_bytes_are_taken_over_255_and_no_more(here: Path, kind: str) -> None:
    draw = np.random.default_rng(0)
    y = draw.integers(0, CLASSES, 250)
    x = np.clip(draw.normal(90, 40, (250, FEATURES)) + 60 * np.eye(CLASSES, FEATURES)[y], 0, 255).astype(np.uint8)
    bytes_ = (x[:150], y[:150]), (x[150:], y[150:])
    raw = tuple((part[0] / np.float32(255), part[1]) for part in bytes_)
    loop = Loop(*raw)
    assert measured(loop.record("run", data=form(kind, *bytes_))) == pytest.approx(loop.error, abs=1e-9)
    floats = tuple((part[0].astype(np.float32), part[1]) for part in bytes_)
    with pytest.raises(FedscopeError, match=r"test_error of round 2 was recorded as"):
        measured(loop.record("floats", data=form(kind, *floats)))


@pytest.mark.parametrize("option", [None, True, False])
def test_a_set_that_fedscope_knows_is_taken_as_it_trains_on_it_or_as_it_is(here: Path, option: bool | None) -> None:
    from fedscope.training import load_data
    from fedscope.training.data.published.digits import split_digits

    data, raw = load_data("digits"), split_digits()
    x = raw["x_test"] if option is False else np.asarray(data.x_test)
    draw = np.random.default_rng(0)
    model = {"1.weight": draw.normal(size=(10, 64)).astype(np.float32), "1.bias": np.zeros(10, np.float32)}
    with Recorder("run", data="digits", standardise=option) as recorder:
        recorder.round(clients=[model, model], global_=model)
    answers = outputs(model, x)
    loss = np.log(np.exp(answers).sum(1)) - answers[np.arange(360), raw["y_test"]]
    small = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    (size,) = fedscope.subsets("run", rounds="last", sizes=[2], model=small).rounds[0].sizes
    assert size.loss_mean == pytest.approx(loss.mean(), rel=1e-5)


def test_a_data_set_that_is_standardised_stays_so(here: Path) -> None:
    from fedscope.training.data.custom import taken_data
    from fedscope.training.inputs.given_scale import standardised_as_given

    raw = drawn()
    loop, data = Loop(*scaled(*raw, True)), standardised_as_given(taken_data(raw))
    Path("data_of_mine.py").write_text(
        "from fedscope.training.inputs.given_scale import standardised_as_given\n"
        "from fedscope.training.data.custom import taken_data\n"
        "import numpy as np\n\n"
        "def load():\n    return standardised_as_given(taken_data(dict(np.load('own.npz'))))\n"
    )
    np.savez("own.npz", x_train=raw[0][0], y_train=raw[0][1], x_test=raw[1][0], y_test=raw[1][1])
    loop.record("run", data="data_of_mine:load")
    loop.record("kept", data=data)
    for path, given in (("run", "data_of_mine:load"), ("run", data), ("kept", None)):
        assert measured(path, data=given) == pytest.approx(loop.error, abs=1e-9)
    with pytest.raises(FedscopeError, match=r"taken as they are; standardised by the training split it has"):
        measured("run", data=data, standardise=False)


def test_an_old_run_that_says_nothing_of_its_scale_is_compared_likewise(here: Path) -> None:
    raw = drawn()
    for standardises in (False, True):
        loop = Loop(*scaled(*raw, standardises))
        loop.record("run", data=form("npz", *raw), partition=ROWS, labels=raw[0][1], force=True)
        info = json.loads(Path("run/run.json").read_text())
        assert "standardise" not in info["data"]
        if not standardises:
            assert measured("run") == pytest.approx(loop.error, abs=1e-9)
            continue
        with pytest.raises(FedscopeError, match=r"standardised by the training split it has .* give standardise=True"):
            measured("run")
        assert measured("run", standardise=True) == pytest.approx(loop.error, abs=1e-9)


def test_labels_of_other_samples_are_caught(here: Path) -> None:
    raw = drawn()
    turned = (raw[0][0][::-1].copy(), raw[0][1][::-1].copy())  # the same samples, in another order
    with pytest.raises(FedscopeError, match="labels= are not y_train of data="):
        Recorder("run", data=(turned, raw[1]), partition=ROWS, labels=raw[0][1])
    Loop(*raw).record("run", data=form("npz", turned, raw[1]), partition=ROWS, labels=raw[0][1])
    with pytest.raises(FedscopeError, match=r"client 0 of run holds \[.*\] samples by class, but at the same places"):
        measured("run")
    said = fedscope.subsets("run", rounds="last", sizes=[3], model=net(), accept_data=True)
    assert "at the same places the training samples" in said.summary()


FEWER: dict[str, Any] = {
    "matrix": lambda **how: fedscope.matrix("run", **how),
    "forgetting": lambda **how: fedscope.forgetting("run", **how),
    "subsets": lambda **how: fedscope.subsets("run", split="train", **how),
    "subsets of clients": lambda **how: fedscope.subsets("run", data_of="own", **how),
    "decompose": lambda **how: fedscope.decompose("run", draws="none", **how),
    "reaggregate": lambda **how: fedscope.reaggregate("run", "greedy", settings={"split": "train"}, **how),
}


@pytest.mark.parametrize("question", FEWER)
def test_accepted_data_have_the_samples_that_clients_hold_or_are_refused(here: Path, question: str) -> None:
    """They ended in an IndexError; on test samples nothing is lacking."""
    train, test = drawn()
    Loop(train, test).record("run", data=(train, test), partition=ROWS)
    fewer = ((train[0][:80], train[1][:80]), test)
    how: dict[str, Any] = {"model": net(), "data": fewer, "accept_data": True}
    why = (
        "client 0 of run holds sample 147, but the train split of arrays has 80 samples; give with data= what the run "
        "was trained on"
    )
    with pytest.raises(FedscopeError, match=f"^{why}$"):
        FEWER[question](rounds="last", **how)
    assert fedscope.subsets("run", rounds="last", split="test", **how).attrs["data_accepted"]
    FEWER[question](rounds="last", model=net())


def test_a_sample_that_a_client_has_drawn_twice_is_measured_once_wherever_it_is_asked(here: Path) -> None:
    """``--data-of`` took it as often, and a matrix of the same client's data once."""
    train, test = drawn()
    draw = np.random.default_rng(3)
    parts = {k: draw.choice(150, 60) for k in range(CLIENTS)}  # in no order
    with pytest.warns(FedscopeWarning, match="counts take it as often .*, and what is measured takes it once"):
        Loop(train, test).record("run", data=(train, test), partition=parts)
    partition = Run.open("run").partition
    assert partition is not None
    assert [part.tolist() for part in partition.clients] == [part.tolist() for part in parts.values()]
    cells = {(one.model, one.place): one for one in fedscope.matrix("run", model=net()).rounds[0].cells}
    for k, part in parts.items():
        own = cells[f"client-{k}", f"client-{k}"]
        assert own.samples == len(np.unique(part)) < len(part)
        line = fedscope.line([f"run@2/client-{k}", "run@2/global"], model=net(), points=3, data_of=str(k), range=(0, 1))
        assert line.attrs["samples"] == own.samples
        for loss, cell in zip(line.loss[0, [-1, 0]], (own, cells["global", f"client-{k}"]), strict=True):
            assert loss == pytest.approx(cell.loss, rel=1e-5), "both add up losses in float32, in another order"


class Tokens(nn.Module):
    """What token follows, told from the token alone."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.table(x)
        return outputs


def sequences() -> tuple[Pair, Pair]:
    """Of tokens, whose targets are the tokens after them."""
    x = np.random.default_rng(0).integers(0, 8, (120, 6))
    y = np.roll(x, -1, axis=1)
    return (x[:80], y[:80]), (x[80:], y[80:])


def test_sequences_as_arrays_have_a_partition_by_labels_given_beside_them(here: Path) -> None:
    """Numbers are those of a file of these samples with these labels; a topic a sequence, or none."""
    train, test = sequences()
    rows = {k: np.arange(80)[np.arange(80) % CLIENTS == k] for k in range(CLIENTS)}
    draw = np.random.default_rng(1)
    start, *states = ({"table.weight": draw.normal(size=(8, 8)).astype(np.float32)} for _ in range(CLIENTS + 1))
    for topics in (np.arange(80) % 4, np.zeros(80, int)):
        told = []
        for data in (form("npz", train, test), (train, test)):
            with Recorder("run", model=Tokens, data=data, partition=rows, labels=topics, force=True) as recorder:
                recorder.round(start=start, clients=states, global_=states[0])
            counted = Run.open("run").partition
            assert counted is not None
            np.testing.assert_array_equal(
                counted.label_counts, [np.bincount(topics[own], minlength=topics.max() + 1) for own in rows.values()]
            )
            asked: dict[str, Any] = {"rounds": 1, "model": Tokens, "task": "sequences"}
            split = fedscope.decompose("run", draws="none", split="train", **asked)
            gains = fedscope.matrix("run", **asked)
            told.append((split.numbers(), gains.numbers()))
        assert told[0] == told[1]
        assert told[0][0]["rounds"][0]["train_bias"] is not None


def test_targets_without_classes_need_labels_and_as_many(here: Path) -> None:
    train, test = sequences()
    numbers = train[0].astype(np.float32), np.linspace(0, 1, 80, dtype=np.float32)
    rows: dict[str, Any] = {"partition": {0: range(40), 1: range(40, 80)}}
    for data in (((train), (test)), (numbers, numbers)):
        with pytest.raises(
            FedscopeError, match=r"y_train of data= has shape \[80.* with labels=, .* np\.zeros\(80, int\)"
        ):
            Recorder("run", data=data, **rows)
        with pytest.raises(FedscopeError, match=r"labels= has 70 entries, and data= 80 training samples"):
            Recorder("run", data=data, labels=np.zeros(70, int), **rows)
        with pytest.raises(FedscopeError, match=r"labels= has shape \[80, 6\] of int64; give one whole number"):
            Recorder("run", data=data, labels=train[1], **rows)
        Recorder("run", data=data, labels=np.zeros(80, int), force=True, **rows).close()
    ignored = train[0], np.where(np.arange(80) < 5, -100, np.arange(80) % 3)
    with pytest.raises(FedscopeError, match="y_train of data= has labels below 0, which is no class"):
        Recorder("run", data=(ignored, ignored), force=True, **rows)
    Recorder("run", data=(ignored, ignored), labels=np.arange(80) % 3, force=True, **rows).close()
    with pytest.raises(FedscopeError, match="labels= are not y_train of data="):
        Recorder("run", data=(ignored, ignored), labels=np.arange(1, 81) % 3, force=True, **rows)


def test_labels_that_a_criterion_ignores_are_not_those_of_other_samples(here: Path) -> None:
    """They ended in numpy's own words."""
    train, test = drawn()
    Loop(train, test).record("run", lambda one: {}, partition=ROWS, labels=train[1])
    criterion, some = nn.CrossEntropyLoss(), train[1].copy()
    some[::50] = -100
    pair = train[0], some
    asked: dict[str, Any] = {"split": "train", "task": criterion, "standardise": False}
    (found,) = fedscope.subsets("run", rounds="last", sizes=[3], model=net(), data=(pair, pair), **asked).rounds
    own = net()
    last = Run.open("run").round("last").read("global").arrays()
    own.load_state_dict({name: torch.tensor(value) for name, value in last.items()})
    with torch.no_grad():
        expected = float(criterion(own(torch.from_numpy(train[0])), torch.from_numpy(some)))
    assert found.sizes[-1].loss_mean == pytest.approx(expected, rel=1e-5)
    other = train[0], np.where(some < 0, some, (some + 1) % CLASSES)
    with pytest.raises(FedscopeError, match=r"client 0 of run holds \[.*\] samples by class, but at the same places"):
        fedscope.subsets("run", rounds="last", sizes=[3], model=net(), data=(other, other), **asked)


def test_a_pair_that_a_partition_divides_is_both_splits(here: Path) -> None:
    train, _ = drawn()
    loop = Loop(train, train)
    with pytest.warns(FedscopeWarning, match="partition= is taken to divide the samples of data="):
        recorder = Recorder("run", data=train, partition=ROWS)
    recorder.close()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loop.record("run", data=train, partition=ROWS, force=True)
    assert measured("run") == measured("run", split="train") == pytest.approx(loop.error, abs=1e-9)
    assert len(np.load("run/recorded-data.npz").files) == 2  # they are held once
    with (
        pytest.warns(FedscopeWarning, match="partition= is taken"),
        pytest.raises(FedscopeError, match="gives client 0 samples that are not among the 150 of labels="),
    ):
        Recorder("other", data=train, partition={0: [150]})


# --- what the run keeps ---


def test_arrays_are_kept_as_they_were_given(here: Path) -> None:
    train, test = drawn()
    for data in ((train, test), {"x_test": test[0], "y_test": test[1], "classes": 5}):
        Loop(train, test).record("run", data=data, force=True)
        info, kept = Run.open("run").info, np.load("run/recorded-data.npz")
        names = (
            {"x_test", "y_test", "classes"} if isinstance(data, dict) else {"x_train", "y_train", "x_test", "y_test"}
        )
        assert set(kept.files) == names
        np.testing.assert_array_equal(kept["x_test"], test[0])
        assert kept["y_test"].dtype == test[1].dtype
        assert info["data"]["name"] == "arrays"
        assert info["files"]["recorded-data.npz"]
    Path("run/recorded-data.npz").write_bytes(Path("run/recorded-data.npz").read_bytes()[:-1] + b"x")
    with pytest.raises(FedscopeError, match=r"recorded-data.npz is not the file that was written with the run"):
        measured("run")
    assert fedscope_command(["ls", "--check", "run"]) == 2
    Path("run/recorded-data.npz").unlink()
    with pytest.raises(FedscopeError, match=r"recorded-data.npz is missing, in which the run keeps its data"):
        measured("run")
    Loop(train, test).record("run", force=True)  # another run, which keeps nothing
    assert not Path("run/recorded-data.npz").exists()


def test_only_a_sum_can_be_kept_and_others_are_refused(here: Path) -> None:
    train, test = drawn()
    loop = Loop(train, test)
    loop.record("run", data=(train, test), keep_data=False)
    assert not Path("run/recorded-data.npz").exists()
    with pytest.raises(FedscopeError, match=r"keeps the sum of its data alone \(keep_data=False\), so give data="):
        measured("run")
    assert measured("run", data=(train, test)) == pytest.approx(loop.error, abs=1e-9)
    assert measured("run", data=form("npz", train, test)) == pytest.approx(loop.error, abs=1e-9)
    for ask in (measured, lambda path, **how: fedscope.line(f"{path}@2", clients=True, points=3, model=net(), **how)):
        with pytest.raises(FedscopeError, match=r"arrays is not the data that run was recorded with .*; give those"):
            ask("run", data=(train, (test[0][::-1].copy(), test[1][::-1].copy())))


def test_arrays_that_change_before_the_first_round_are_not_kept(here: Path) -> None:
    train, test = drawn()
    recorder = Recorder("run", data=(train, test))
    test[0][0] = 7
    with pytest.raises(FedscopeError, match="the arrays of data= were changed after the recorder was made"):
        recorder.round(clients=[centres(*train)])
    recorder.close()
    assert not Path("run/run.json").exists()


def test_a_run_is_gone_on_with_on_its_own_arrays(here: Path) -> None:
    train, test = drawn()
    Loop(train, test).record("run", data=(train, test), standardise=False)
    with Recorder("run", data=(train, test), standardise=False, resume=True) as recorder:
        recorder.round(clients=[centres(*train)])
    for other, said in (
        ({"data": (test, train)}, "was recorded with other arrays; leave data= out to go on with it"),
        ({"standardise": True}, "was recorded with standardise=False; leave standardise= out to go on with it"),
        ({"data": "digits"}, "was recorded with data arrays, not digits; leave data= out"),
    ):
        with pytest.raises(FedscopeError, match=said):
            Recorder("run", resume=True, **other)


def test_a_loader_that_shuffles_names_no_rows(here: Path) -> None:
    train, test = (TensorDataset(*map(torch.from_numpy, pair)) for pair in drawn())
    shuffled = DataLoader(train, batch_size=32, shuffle=True)
    with pytest.raises(FedscopeError, match="its DataLoader draws samples in another order each time, so that partit"):
        Recorder("run", data=(shuffled, DataLoader(test)), partition=ROWS)
    raw = drawn()
    loop = Loop(*raw)
    loop.record("run", data=(shuffled.dataset, DataLoader(test, batch_size=7)), partition=ROWS)
    np.testing.assert_array_equal(np.load("run/recorded-data.npz")["x_train"], raw[0][0])
    assert measured("run") == pytest.approx(loop.error, abs=1e-9)
    loop.record("other", data=DataLoader(test, batch_size=32, shuffle=True))  # of test samples no order is asked
    assert measured("other") == pytest.approx(loop.error, abs=1e-9)


def test_a_data_set_of_fedscope_is_kept_as_networks_take_it(here: Path) -> None:
    from fedscope.training import load_data

    data = load_data("digits")
    with Recorder("run", data=data, partition={0: [0, 1], 1: [2]}) as recorder:
        recorder.round(clients=[{"w": np.zeros(3, np.float32)}] * 2)
    kept = np.load("run/recorded-data.npz")
    np.testing.assert_array_equal(kept["x_test"], np.asarray(data.x_test))
    assert int(kept["classes"]) == 10
    counts = Run.open("run").partition
    assert counts is not None
    assert counts.label_counts.sum(1).tolist() == [2, 1]


def test_large_arrays_are_said(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train, test = drawn()
    monkeypatch.setattr(stored_data, "LARGE", 1000)
    with pytest.warns(FedscopeWarning, match=r"keeps the arrays of data= in recorded-data.npz, 8 kB; keep_data=False"):
        Recorder("run", data=(train, test)).close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Recorder("other", data=(train, test), keep_data=False).close()


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({"data": 3}, "data was given as int, and gave a int, which are not data"),
        ({"data": {"x": [1]}}, "data was given as dict, and gave x; name them x_train"),
        ({"data": ([[1.0]], [1, 2])}, "has 1 samples of test, but 2 labels; give one of each a sample"),
        ({"data": {"x_train": [[1.0]], "x_test": [[1.0]], "y_test": [0]}}, "lacks y_train; give x_test and y_test"),
        ({"data": ([[1.0]], [1]), "standardise": True}, "has no training samples to standardise by"),
        ({"data": "npz:test.npz", "standardise": True}, "has no x_train to standardise by; add x_train and y_train"),
        ({"standardise": "yes"}, "standardise='yes' is neither True nor False"),
    ],
)
def test_what_a_recorder_cannot_keep_is_one_sentence(here: Path, about: dict[str, Any], said: str) -> None:
    np.savez("test.npz", x_test=np.zeros((2, 3)), y_test=[0, 1])
    with pytest.raises(FedscopeError, match=said):
        Recorder("run", **about)
    assert not Path("run").exists()


# --- every question compares, once ---

ON = {"model": net, "limit": 60}
QUESTIONS: dict[str, Callable[..., Any]] = {
    "plane": lambda **how: fedscope.plane("run@2", clients=True, grid=3, **how),
    "align": lambda **how: fedscope.align(["run@1/global", "run@2/global"], **how),
    "line": lambda **how: fedscope.line(["run@1/global", "run@2/global"], points=3, **how),
    "sharpness": lambda **how: fedscope.sharpness("run@2", hessian=False, draws=2, **how),
    "cka": lambda **how: fedscope.cka("run", rounds="last", **how),
    "subsets": lambda **how: fedscope.subsets("run", rounds="last", **how),
    "consensus": lambda **how: fedscope.consensus("run", rounds="last", **how),
    "decompose": lambda **how: fedscope.decompose("run", rounds="last", draws="none", **how),
    "explain": lambda **how: fedscope.explain("run", rounds="1,2", draws="none", **how),
    "forgetting": lambda **how: fedscope.forgetting("run", rounds="last", **how),
    "matrix": lambda **how: fedscope.matrix("run", **how),
    "predictors": lambda **how: fedscope.predictors("run", rounds="1,2", **how),
    "theory": lambda **how: fedscope.theory("run", kernel="none", draws="none", **how),
    "wima": lambda **how: fedscope.wima("run", windows=[2], rounds="2", **how),
    "reaggregate": lambda **how: fedscope.reaggregate("run@2", "fedavgm", **how),
}


def test_these_are_all_questions_that_measure() -> None:
    """A question that takes data is one of those that are asked here."""
    public = {name: getattr(fedscope, name) for name in fedscope.__all__ if not name.startswith("_")}
    takes = {
        name
        for name, one in public.items()
        if inspect.isfunction(one)
        and any(key.kind is key.VAR_KEYWORD for key in inspect.signature(one).parameters.values())
        and hasattr(one, "prepare")
    }
    assert takes == {*QUESTIONS, "adapters"}  # of LoRA alone, see tests/decomposition/test_adapters.py


@pytest.fixture
def mismatched(here: Path) -> Path:
    """A standardised loop that named the samples as they were before; and the module by which questions ask."""
    raw = drawn()
    loop = Loop(*scaled(*raw, True))
    loop.record("run", data=form("npz", *raw), partition=ROWS, labels=raw[0][1])
    return here


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_question_refuses_wrong_data_and_says_that_they_were_accepted(mismatched: Path, name: str) -> None:
    how = {"model": net(), "limit": 60}
    with pytest.raises(FedscopeError, match=r"test_error of round 2 was recorded as .* but global has .*accept_data="):
        QUESTIONS[name](**how)
    if name == "align":  # the nearest centre has no units in another order, which is said of the right data alone
        with pytest.raises(FedscopeError, match="no units of Sequential can be permuted"):
            QUESTIONS[name](**how, standardise=True)
        return
    right = QUESTIONS[name](**how, standardise=True)
    assert "accepted" not in right.summary()
    found = QUESTIONS[name](**how, accept_data=True)
    assert "test_error of round 2 was recorded as" in found.attrs["data_accepted"]
    assert "test_error of round 2 was recorded as" in " ".join(found.summary().split())
    if name != "reaggregate":  # a table
        texts = [words for figure in found.figures().values() for words in words_of(figure)]
        assert "ccepted" in " ".join([*texts, *found.pages().values()])


def test_a_result_in_another_scale_is_another_result(
    mismatched: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("code_here.py").write_text(
        "from torch import nn\n\ndef net():\n    return nn.Sequential(nn.Flatten(), nn.Linear(6, 3))\n"
    )
    monkeypatch.syspath_prepend(str(mismatched))
    words = ["subsets", "run", "--rounds", "last", "--model", "code_here:net", "--out", "kept"]
    assert fedscope_command(words) == 2
    assert fedscope_command([*words, "--standardise"]) == 0
    assert fedscope_command([*words, "--standardise"]) == 0
    capsys.readouterr()
    assert fedscope_command([*words, "--accept-data"]) == 2
    assert "kept.subsets.json holds another result, of samples in another scale (--sta" in capsys.readouterr().err
    assert fedscope_command([*words, "--accept-data", "--force", "--json"]) == 0
    capsys.readouterr()
    assert fedscope_command([*words, "--standardise"]) == 2
    assert "kept.subsets.json holds another result, of samples in another scale (--sta" in capsys.readouterr().err


def words_of(figure: Any) -> list[str]:
    """All of a figure's texts."""
    import matplotlib.text

    return [text.get_text() for text in figure.findobj(matplotlib.text.Text)]


def test_it_is_measured_once_a_run_and_anew_for_other_data(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = []
    monkeypatch.setattr(
        asking, "_measure_model", lambda *given, once=asking._measure_model: counted.append(1) or once(*given)
    )
    raw = drawn()
    loop = Loop(*raw)
    loop.record("run", data=form("npz", *raw))
    for name in ("subsets", "line", "cka", "plane"):
        asking._SEEN.clear()  # as in another process
        QUESTIONS[name](model=net())
    assert len(counted) == 1
    (outcome,) = stored_checks(Path("run")).values()
    assert (outcome.round, outcome.model, outcome.samples) == (2, "global", 100)
    assert outcome.error == outcome.recorded_error == pytest.approx(loop.error, abs=1e-12)
    with pytest.raises(FedscopeError, match="test_error of round 2 was recorded as"):
        measured("run", data=drawn(seed=1)[1])
    assert len(counted) == 2
    with pytest.raises(FedscopeError, match="test_error of round 2 was recorded as"):
        measured("run", data=drawn(seed=1)[1])
    assert len(counted) == 2
    rows = Path("run/metrics.csv").read_text().splitlines()
    Path("run/metrics.csv").unlink()  # whoever takes the numbers away has nothing to compare with
    assert math.isfinite(measured("run", data=drawn(seed=1)[1]))
    assert len(rows) == 3


def test_a_folder_that_cannot_be_written_is_measured_once_a_process(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> Any:
        raise OSError(30, os.strerror(30), str(path))

    monkeypatch.setattr("fedscope.checkpoints.runs.recorded_error.write_durably", refuse)
    raw = drawn()
    loop = Loop(*raw)
    loop.record("run", data=form("npz", *raw))
    assert measured("run") == pytest.approx(loop.error, abs=1e-9)
    assert not Path("run", NAME).exists()
    assert len(asking._SEEN) == 1


@pytest.mark.parametrize(
    "held", ["", "[]", '{"format": "fedscope-recorded-error", "version": 1, "outcomes": {"a": 3}}']
)
def test_an_outcome_that_is_damaged_is_measured_again(here: Path, held: str) -> None:
    raw = drawn()
    loop = Loop(*raw)
    loop.record("run", data=form("npz", *raw))
    Path("run", NAME).write_text(held)
    assert measured("run") == pytest.approx(loop.error, abs=1e-9)
    assert len(stored_checks(Path("run"))) == 1


@pytest.mark.parametrize("key", ["data", "explained", "hint", "model", "samples", "error", "standardised"])
def test_nothing_of_an_outcome_steers_a_terminal(here: Path, capsys: pytest.CaptureFixture[str], key: str) -> None:
    raw = drawn()
    Loop(*raw).record("run", data=form("npz", *raw))
    measured("run")
    held = json.loads(Path("run", NAME).read_text())
    for outcome in held["outcomes"].values():
        outcome[key] = "\x1b[2J\n"
    Path("run", NAME).write_text(json.dumps(held))
    assert stored_checks(Path("run")) == {}
    assert fedscope_command(["ls", "--check", "run"]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_check_tells_what_was_compared(mismatched: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(FedscopeError):
        measured("run")
    capsys.readouterr()
    assert fedscope_command(["ls", "--check", "run"]) == 0
    assert "recorded-error.json: test_error of round 2 was recorded as" in capsys.readouterr().out
    assert fedscope_command(["ls", "--check", "run", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert [one["differs"] for one in row["recorded errors"]] == [True]


# --- what explains another number, and what does not ---


def batches(model: dict[str, np.ndarray], test: Pair, size: int) -> float:
    """The mean of the batches' errors."""
    wrong = outputs(model, test[0]).argmax(1) != test[1]
    return float(np.mean([wrong[i : i + size].mean() for i in range(0, len(wrong), size)]))


def signs(test: Pair) -> dict[str, tuple[Callable[[dict[str, Any]], float], str]]:
    """How a loop may come to another number, and what is said of it."""
    own = lambda one: error(one["global_"], test)  # noqa: E731
    return {
        "accuracy": (lambda one: 1 - own(one), "it is the accuracy"),
        "per cent": (lambda one: 100 * own(one), "it was recorded in per cent"),
        "accuracy in per cent": (lambda one: 100 - 100 * own(one), "it is the accuracy in per cent"),
        "batches": (lambda one: batches(one["global_"], test, 90), "the mean of the errors of batches of 90"),
        "start": (lambda one: error(one["start"], test), "it is the error of the round's start"),
        "clients": (
            lambda one: float(np.mean([error(client, test) for client in one["clients"]])),
            "mean of the clients' errors",
        ),
    }


@pytest.mark.parametrize("sign", signs(drawn()[1]))
def test_a_number_of_another_kind_is_a_note(here: Path, sign: str) -> None:
    raw = drawn()
    loop = Unlike(*raw)
    made, words = signs(loop.test)[sign]
    loop.record("run", lambda one: {"test_error": made(one)}, data=raw)
    with pytest.warns(FedscopeWarning, match=words):
        assert measured("run") == pytest.approx(loop.error, abs=1e-9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it is said once
        found = fedscope.subsets("run", rounds="last", sizes=[3], model=net())
    assert words in found.attrs["recorded_numbers"]
    assert "data_accepted" not in found.attrs


class Unlike(Loop):
    """A loop whose clients, starts and means differ in their errors."""

    def rounds(self) -> Iterator[dict[str, Any]]:
        draw = np.random.default_rng(5)
        for t in range(2):
            around = centres(*self.train)

            def moved(by: float, around: dict[str, np.ndarray] = around) -> dict[str, np.ndarray]:
                return {
                    name: (value + by * draw.normal(size=value.shape) * np.abs(value)).astype(np.float32)
                    for name, value in around.items()
                }

            clients = [moved(0.02 + 0.01 * t) for _ in range(CLIENTS)]
            yield {"start": moved(0.05), "clients": clients, "global_": mean(clients)}


#: how a loop may round an error, and what is said of it where that is more than a rounding
ROUNDINGS: dict[str, tuple[Callable[[float], float], str]] = {
    "accuracy": (lambda error: round(1 - error, 2), "it is the accuracy"),
    "accuracy in per cent": (lambda error: round(100 - 100 * error, 1), "it is the accuracy in per cent"),
    "accuracy in whole per cent": (lambda error: round(100 - 100 * error), "it is the accuracy in per cent"),
    "share": (lambda error: round(error, 2), "it was rounded to two decimals"),
    "whole per cent": (lambda error: round(100 * error), "it was recorded in per cent, without decimals"),
    "per cent below 1": (lambda error: 100 * error, "it was recorded in per cent; give a share"),
}


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_a_number_that_was_rounded_is_a_note(here: Path, rounding: str) -> None:
    """On 1,100 samples a number with two decimals is up to five samples from the error."""
    made, words = ROUNDINGS[rounding]
    below = rounding == "per cent below 1"
    model = {"1.weight": np.eye(CLASSES, FEATURES, dtype=np.float32), "1.bias": np.zeros(CLASSES, np.float32)}
    y = np.arange(1100) % CLASSES
    wrong = [300, 9] if below else [300, 159]  # an error of 0.82 %, or of 14.45 %
    models = [{**model, "1.bias": np.float32([b, 0, 0])} for b in (0.5, 0)]
    x = np.eye(CLASSES, FEATURES, dtype=np.float32)[y]
    x[: wrong[1]] = np.eye(CLASSES, FEATURES, dtype=np.float32)[(y[: wrong[1]] + 1) % CLASSES]
    left = [i for i in range(wrong[1], 1100) if y[i] == 1][: wrong[0] - wrong[1]]
    x[left] *= 0.25  # wrong for the first of the two models alone
    errors = [error(one, (x, y)) for one in models]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the recorder says it, too
        with Recorder("run", data=(x, y)) as recorder:
            for one, value in zip(models, errors, strict=True):
                recorder.round(clients=[one] * CLIENTS, global_=one, metrics={"test_error": made(value)})
    with pytest.warns(FedscopeWarning, match=words):
        assert measured("run") == pytest.approx(errors[1], abs=1e-9)


def test_a_partition_may_be_a_list_as_clients_may(here: Path) -> None:
    raw = drawn()
    for name, partition in (("mapping", ROWS), ("list", list(ROWS.values()))):
        with Recorder(name, data=raw, partition=partition) as recorder:
            recorder.round(clients=[{"w": np.zeros(3, np.float32)}] * CLIENTS)
    one, other = (Run.open(name).partition for name in ("mapping", "list"))
    assert all(np.array_equal(a, b) for a, b in zip(one.clients, other.clients, strict=True))
    with pytest.raises(FedscopeError, match="partition= gives client 0 the number 0, and no list of rows"):
        Recorder("none", data=raw, partition=np.arange(150))  # type: ignore[arg-type]


def test_a_rounded_number_does_not_hide_other_data(here: Path) -> None:
    raw = drawn()
    loop = Unlike(*raw)
    loop.record("run", lambda one: {"test_error": round(error(one["global_"], loop.test), 2) + 0.03}, data=raw)
    with pytest.raises(FedscopeError, match="test_error of round 2 was recorded as"):
        measured("run")


@pytest.mark.parametrize("given", ["function", "class"])
def test_a_question_takes_what_the_recorder_takes_as_a_model(here: Path, given: str) -> None:
    raw = drawn()
    loop = Loop(*raw)
    loop.record("run", lambda one: {"test_error": error(one["global_"], loop.test)}, data=raw, model=net)

    class Own(nn.Sequential):
        def __init__(self) -> None:
            super().__init__(*net())

    model = net if given == "function" else Own
    asked = fedscope.subsets("run", rounds="last", sizes=[3], model=model)
    assert asked.numbers() == fedscope.subsets("run", rounds="last", sizes=[3], model=net()).numbers()
    assert loop.error == pytest.approx(measured("run"), abs=1e-9)
    torch.save(net().state_dict(), "a.pt")
    with pytest.warns(FedscopeWarning, match="global is the mean"):
        assert fedscope.import_models(["a.pt"], "imported", model=model).rounds == (1,)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (net().state_dict(), "model= was given as OrderedDict, which does not say how a network computes"),
        (3, "model= was given as int"),
        (nn.Linear, "model= cannot be made without arguments"),
    ],
)
def test_a_model_that_is_none_is_one_sentence(here: Path, model: Any, said: str) -> None:
    raw = drawn()
    Loop(*raw).record("run", lambda one: {}, data=raw)
    with pytest.raises(FedscopeError, match=re.escape(said)):
        fedscope.subsets("run", rounds="last", sizes=[3], model=model)


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ({"test_error": 4.7}, "test_error is 4.7, and an error is a share from 0 to 1"),
        ({"test_accuracy": 0.9}, "no question takes 'test_accuracy'"),
        ({"test_error": 0.1, "test_accuracy": 0.9, "test_loss": 4.0}, ""),
    ],
)
def test_numbers_that_are_taken_for_others_are_said_once(here: Path, numbers: dict[str, float], said: str) -> None:
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        with Recorder("run", data="digits") as recorder:
            for _ in range(3):
                recorder.round(clients=[{"w": np.zeros(3, np.float32)}], metrics=numbers)
    assert [said in str(one.message) for one in heard] == ([True] if said else [])
    if numbers.get("test_error", 0) > 1:
        with pytest.warns(FedscopeWarning, match="test_error of run is no share from 0 to 1"):
            fedscope.curves("run", measures="test_error")
        assert any("test_error is no share from 0 to 1" in note for note in fedscope.table(["run"]).notes)


@pytest.mark.parametrize("rounds", [1, 2])
def test_one_round_alone_shows_no_sign(here: Path, rounds: int) -> None:
    """An error of 0.1 on wrong data of which all answers are wrong but a tenth is no accuracy."""
    raw = drawn()
    loop = Unlike(*raw)
    numbers = [1 - error(one["global_"], loop.test) for one in loop.rounds()]
    with Recorder("run", data=raw) as recorder:
        for t, one in enumerate(list(loop.rounds())[-rounds:]):
            recorder.round(**one, metrics={"test_error": numbers[t - rounds]})
    if rounds == 2:
        with pytest.warns(FedscopeWarning, match="it is the accuracy"):
            measured("run")
        return
    with pytest.raises(FedscopeError, match=r"\(or it is the accuracy.*, which one round alone does not show\)"):
        measured("run")


def test_a_loss_alone_is_a_note_with_both_numbers(here: Path) -> None:
    raw = drawn()
    loop = Loop(*raw)
    loop.record("run", lambda one: {"test_error": error(one["global_"], loop.test), "test_loss": 77.0}, data=raw)
    with pytest.warns(FedscopeWarning, match=r"test_loss of round 2 was recorded as 77, and global has .* on all 100"):
        assert measured("run") == pytest.approx(loop.error, abs=1e-9)


def test_a_loss_that_fits_in_the_other_scale_says_so(here: Path) -> None:
    """Models whose answers are right in either scale, far from every border."""
    y = np.arange(250) // 3 % CLASSES
    x = 5 * (np.eye(CLASSES, FEATURES)[y] - 1 / 3) + 0.3 * np.random.default_rng(0).normal(size=(250, FEATURES))
    raw = (x[:150].astype(np.float32), y[:150]), (x[150:].astype(np.float32), y[150:])
    loop = Loop(*scaled(*raw, True))

    def own(one: dict[str, Any]) -> dict[str, float]:
        answers = outputs(one["global_"], loop.test[0])
        losses = np.log(np.exp(answers).sum(1)) - answers[np.arange(100), loop.test[1]]
        return {"test_error": error(one["global_"], loop.test), "test_loss": losses.mean()}

    loop.record("run", own, data=raw)
    with pytest.warns(
        FedscopeWarning, match=r"\(standardised by the training split it has a loss of .*: give standard"
    ):
        assert measured("run") == loop.error == 0


@pytest.mark.parametrize("numbers", [{}, {"test_error": math.nan}, {"train_loss": 0.3}])
def test_nothing_is_compared_where_nothing_was_recorded(here: Path, numbers: dict[str, float]) -> None:
    raw = drawn()
    Loop(*raw).record("run", lambda one: numbers, data=drawn(seed=1))
    assert math.isfinite(measured("run"))
    assert not Path("run", NAME).exists()


def test_the_last_round_that_has_both_is_compared(here: Path) -> None:
    raw = drawn()
    with Recorder("run", data=raw) as recorder:
        for t, one in enumerate(itertools.chain(Loop(*raw).rounds(), Loop(*raw).rounds())):
            known = {"test_error": error(one["global_"], raw[1])}
            if t == 2:
                del one["global_"]
            recorder.round(**one, metrics=known if t < 3 else {})
    measured("run")
    (outcome,) = stored_checks(Path("run")).values()
    assert outcome.round == 2


@pytest.mark.parametrize(
    ("recorded", "found", "samples", "differs"),
    [
        (0.10, 0.12, 100, False),  # two samples
        (0.10, 0.13, 100, True),
        (0.10, 0.1019, 10_000, False),  # 0.19 points
        (0.10, 0.1021, 10_000, True),
        (math.nan, 0.5, 100, False),
        (0.5, math.nan, 100, False),
    ],
)
def test_a_difference_is_above_two_samples_and_two_tenths_of_a_point(
    recorded: float, found: float, samples: int, differs: bool
) -> None:
    one = ErrorCheck(1, "global", recorded, math.nan, found, 1.0, samples, "digits", False)
    assert one.differs is differs
    assert not ErrorCheck(**{**vars(one), "explained": "it is the accuracy"}).differs


# --- models in files, and the scale that is asked for ---


def test_the_scale_is_asked_for_wherever_data_are_named(here: Path) -> None:
    """Of files there is no loop: what the name means, or what is asked for."""
    train, test = drawn()
    model = centres(*train)
    torch.save({name: torch.from_numpy(value) for name, value in model.items()}, "a.pt")
    torch.save({name: torch.from_numpy(value + 1) for name, value in model.items()}, "b.pt")

    def first(**how: Any) -> float:
        line = fedscope.line(["a.pt", "b.pt"], points=3, range=(0, 1), model=net(), **how)
        assert ("standardised" in line.attrs) == (found is raw)
        return float(line.error[0, -1])

    raw, standardised = (error(model, scaled(train, test, how)[1]) for how in (False, True))
    npz = form("npz", train, test)
    for how, found in ((None, standardised), (True, standardised), (False, raw)):
        assert first(data=npz, standardise=how) == pytest.approx(found, abs=1e-9)
    for how, found in ((None, raw), (True, standardised), (False, raw)):
        assert first(data=(train, test), standardise=how) == pytest.approx(found, abs=1e-9)
    for data in (test, form("npz of test samples", train, test)):
        with pytest.raises(FedscopeError, match="has no training samples to standardise by; "):
            first(data=data, standardise=True)


def test_models_are_imported_with_the_scale_of_their_data(here: Path) -> None:
    raw = drawn()
    for k, rows in ROWS.items():
        train = scaled(*raw, True)[0]
        np.savez(f"{k}.npz", **centres(train[0][rows], train[1][rows]))
    npz = form("npz", *raw)
    for how in (None, True, False):
        run = fedscope.import_models([f"{k}.npz" for k in ROWS], "run", data=npz, standardise=how, force=True)
        assert run.info["data"].get("standardise") is how
        global_ = run.round(1).read("global").arrays()
        assert measured("run") == pytest.approx(error(global_, scaled(*raw, how is True)[1]), abs=1e-9)
    words = ["import", *(f"{k}.npz" for k in ROWS), "--data", npz, "--standardise", "--out", "again"]
    assert fedscope_command(words) == 0
    assert Run.open("again").info["data"]["standardise"] is True


# --- runs together ---


def test_runs_of_other_data_or_scales_are_told_apart(here: Path) -> None:
    raw = drawn()
    Loop(*raw).record("a", data=form("npz", *raw))
    Path("mine.npz").rename("first.npz")
    Loop(*drawn(seed=1)).record("b", data=form("npz", *drawn(seed=1)))
    Path("first.npz").rename("mine.npz")
    for ask in (
        lambda: fedscope.subsets(["a", "b"], rounds="last", model=net()),
        lambda: fedscope.line(["a@2/global", "b@2/global"], points=3, model=net()),
    ):
        with pytest.raises(FedscopeError, match=r"a and b were trained on different data .*; say with data="):
            ask()
    Loop(*scaled(*raw, True)).record("c", data=form("npz", *raw), standardise=True)
    Loop(*raw).record("d", data=form("npz", *raw), standardise=False)
    with pytest.raises(FedscopeError, match="c was recorded with standardise=True, and d without; ask for one of them"):
        fedscope.subsets(["d", "c"], rounds="last", model=net())


def test_a_trained_run_is_not_measured_on_samples_of_another_scale(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "trained")
    small = ["--method", "fma", "--clients", "4", "--rounds", "1", "--epochs", "1"]
    assert fedscope_command(["train", *small, "--out", out]) == 0
    capsys.readouterr()
    assert fedscope_command(["subsets", out, "--no-standardise", "--out", str(tmp_path / "s")]) == 2
    assert f"{out} was trained on standardised samples, and --no-standardise takes others; leave it out" in (
        capsys.readouterr().err
    )
