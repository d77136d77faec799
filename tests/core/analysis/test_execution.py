"""What all questions share: settings, runs and rounds as they are given, and the one loop over rounds."""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fedscope
from fedscope import Recorder
from fedscope.analysis.analysis import fit_file_name, slug, slug_rounds
from fedscope.analysis.execution import Execution, Report, WorkUnit
from fedscope.analysis.rounds import client_rounds, is_range, parse_rounds, rounds_text
from fedscope.analysis.run_identity import identity
from fedscope.analysis.runs import one_round, open_run, resolve_runs
from fedscope.analysis.settings import EvaluationConfig
from fedscope.checkpoints import FedscopeError, Run
from fedscope.decomposition.forgetting.analysis import forgetting
from fedscope.decomposition.subsets.analysis import subsets
from fedscope.results import Serializable
from fedscope.training.inputs.models import resolve_models

pytestmark = pytest.mark.usefixtures("few_digits")


@pytest.fixture
def runs(two_rounds: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(two_rounds)
    return two_rounds


# --- settings ---


def test_a_setting_that_does_not_exist_is_a_type_error_that_names_the_nearest(runs: Path) -> None:
    with pytest.raises(TypeError, match=r'fedscope\.subsets has no setting \'size\'; did you mean "sizes"\?'):
        subsets("runs/fma", size=[1])  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r'fedscope\.forgetting has no setting \'splits\'; did you mean "split"\?'):
        forgetting.prepare("runs/fma", splits="test")  # type: ignore[call-arg]
    with pytest.raises(
        TypeError, match=r"has no setting 'xyz'; there are accept_data, base, code, code_changed, data, "
    ):
        forgetting("runs/fma", xyz=1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"split": "tests"}, r'--split tests is none of test, train; did you mean "test"\?'),
        ({"precision": "fp16"}, r"--precision fp16 is none of float32, tf32, bf16"),
        ({"limit": 0}, r"--limit 0 is not a whole number from 1 on"),
        ({"seed": -1}, r"--seed -1 is not a whole number from 0 on"),
        ({"seed": True}, r"--seed True is not a whole number from 0 on"),
        ({"limit": 2.5}, r"--limit 2\.5 is not a whole number from 1 on"),
    ],
)
def test_values_that_there_are_not_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(FedscopeError, match=message):
        EvaluationConfig.of("test", settings)


def test_a_question_keeps_the_signature_and_the_page_of_its_function() -> None:
    assert list(inspect.signature(subsets).parameters) == [  # type: ignore[arg-type]
        *("runs", "rounds", "sizes", "subsets", "weights", "data_of", "align", "normalization", "measured")
    ]
    assert inspect.getdoc(subsets).startswith("Measure how many models an average needs")  # type: ignore[union-attr]


# --- runs and rounds ---


def test_rounds_are_numbers_words_or_both() -> None:
    assert [rounds_text(rounds) for rounds in (None, 3, "1,last", [1, "last"])] == [None, "3", "1,last", "1,last"]
    assert parse_rounds("last,1,-2", (1, 2, 5), "r") == [1, 2, 5]
    assert [parse_rounds(one, (1, 2, 5, 6), "r") for one in ("all", "every:3,1", "last:9", "-4")] == [
        *([1, 2, 5, 6], [1, 6], [1, 2, 5, 6], [1])
    ]


@given(st.sets(st.integers(1, 40), min_size=1), st.data())
def test_a_range_is_what_was_recorded_between_its_ends(have: set[int], data: st.DataObject) -> None:
    rounds = tuple(sorted(have))
    low = data.draw(st.integers(rounds[0], rounds[-1]))
    high = data.draw(st.integers(low, rounds[-1]))
    inside = [number for number in rounds if low <= number <= high]
    if inside:
        assert parse_rounds(f"{low}-{high}", rounds, "a") == inside
        assert parse_rounds(f" {low} - {high} ,last", rounds, "a") == sorted({*inside, rounds[-1]})
    if any(number >= low for number in rounds):
        assert parse_rounds(f"{low}-last", rounds, "a") == [number for number in rounds if number >= low]


def test_names_of_files_tell_a_range_from_its_ends() -> None:
    words = ["1-5", "1,5", "-1", "1,2-last", "last:3", "every:2,1-5"]
    names = [slug_rounds(word) for word in words]
    assert names == ["1to5", "1-5", "1", "1-2tolast", "last-3", "every-2-1to5"]
    assert [slug_rounds(word) for word in words if not is_range(word)] == [
        slug(word) for word in words if not is_range(word)
    ], "those of other rounds are as they were"


def test_of_a_range_those_with_their_clients_are_taken(tmp_path: Path) -> None:
    """As of last:5 and every:2; a round that is named by itself is refused without them."""
    recorder = Recorder(tmp_path / "r", keep="every:2")
    with recorder:
        for _ in range(6):
            w = {"w": np.zeros(2, np.float32)}
            recorder.round(start=w, clients=[w, w, w], global_=w)
    run = Run.open(tmp_path / "r")
    assert client_rounds(run, "all") == client_rounds(run, "1-6") == [2, 4, 6]
    assert client_rounds(run, "1-3,6") == [2, 6]
    for words in ("3", "1-4,5", "3-3"):
        with pytest.raises(FedscopeError, match=r"round|clients"):
            client_rounds(run, words)


def test_each_word_of_rounds_counts_among_those_with_their_clients(tmp_path: Path) -> None:
    """Also beside a range, and a round that lacks them says so whatever stands beside it."""
    with Recorder(tmp_path / "r", keep="every:2") as recorder:
        for _ in range(10):
            w = {"w": np.zeros(2, np.float32)}
            recorder.round(start=w, clients=[w, w], global_=w)
    run = Run.open(tmp_path / "r")
    expected = {"last:2": [8, 10], "every:4": [4, 8], "last:2,last": [8, 10], "last:9": [2, 4, 6, 8, 10]}
    for words, numbers in expected.items():
        assert client_rounds(run, words) == numbers
        assert client_rounds(run, f"1-3,{words}") == client_rounds(run, f"{words},2") == sorted({2, *numbers})
    for words in ("1,last:2", "last:2,1", "1-3,last:2,1", "1,every:4"):
        with pytest.raises(FedscopeError, match="the clients of round 1 were not recorded; rounds 2, 4, 6, 8, 10 have"):
            client_rounds(run, words)


#: the end of a sentence on rounds
WRITE = "write whole numbers, last, a range as 1-5, last:10 or all"


@pytest.mark.parametrize(
    ("asked", "available", "sentence"),
    [
        ("9", (), "a has no rounds yet; where it is trained here, go on with it: fedscope train --resume a"),
        ("9", (2,), "--rounds 9: a has no round 9; it has round 2 only"),
        ("1,9", (2, 3), "--rounds 1,9: a has no round 1; it has 2 to 3"),
        ("-4", (2, 3, 7), "--rounds -4: a has no round -4; it has 2 to 7 (3 of them)"),
        ("1,x", (1,), f"--rounds 1,x: 'x' is not a round; {WRITE}"),
        ("last:0", (1,), f"--rounds last:0: 'last:0' is not a round; {WRITE}"),
        ("5-1", (1, 5), "--rounds 5-1: 5-1 is upside down; write 1-5"),
        ("9-last", (1, 5), "--rounds 9-last: 9-last is upside down; it has 1 to 5 (2 of them)"),
        ("1,3-90", (1, 2, 3), "--rounds 1,3-90: a has no round 90; it has 1 to 3"),
        ("0-2", (1, 2, 3), "--rounds 0-2: a has no round 0; it has 1 to 3"),
        ("3-4", (2, 7), "--rounds 3-4: a has no round from 3 to 4; it has 2 to 7 (2 of them)"),
        ("1-2-3", (1, 2, 3), f"--rounds 1-2-3: '1-2-3' is not a round; {WRITE}"),
    ],
)
def test_rounds_that_a_run_does_not_have_are_refused_with_those_it_has(
    asked: str, available: tuple[int, ...], sentence: str
) -> None:
    with pytest.raises(FedscopeError, match=f"^{re.escape(sentence)}$"):
        parse_rounds(asked, available, "a")


def test_a_run_with_its_rounds_is_the_run_with_these_rounds(runs: Path) -> None:
    opened, asked = resolve_runs(["runs/fma@2"], None)
    assert [run.name for run in opened] == ["fma"]
    assert asked == ["2"]
    assert resolve_runs(Run.open("runs/fma"), [1, "last"])[1] == ["1,last"]
    assert subsets("runs/fma@2").numbers() == subsets(open_run("runs/fma"), rounds=2).numbers()
    with pytest.raises(FedscopeError, match=r"runs/fma@2 names its rounds, and so does --rounds 1; leave one out"):
        resolve_runs("runs/fma@2", 1)
    with pytest.raises(FedscopeError, match=r"runs/fma@2/global names a model, but a whole run is asked for; give"):
        resolve_runs("runs/fma@2/global", None)
    with pytest.raises(FedscopeError, match=r"2 of the runs are called 'fma'; rename a folder, and give a run only"):
        resolve_runs(["runs/fma", "runs/fma"], None)


def test_one_round_is_a_run_with_one_round(runs: Path) -> None:
    for address, rounds in (("runs/fma@2", None), ("runs/fma", 2), ("runs/fma", "last"), (open_run("runs/fma"), 2)):
        run, round_ = one_round(address, rounds)
        assert (run.name, round_.number) == ("fma", 2)
    for address, rounds, message in (
        ("runs/fma", None, r"runs/fma names no round; give RUN@ROUND, as in runs/fma@last"),
        ("nowhere", None, r"nowhere names no round; give RUN@ROUND, as in runs/ima@40"),
        ("runs/fma@2/global", None, r"names a model, but all clients of a round are asked for; give runs/fma@2$"),
        ("runs/fma", "1,2", r"runs/fma: one round is asked for, but 1,2 are 2; give one of them"),
    ):
        with pytest.raises(FedscopeError, match=message):
            one_round(address, rounds)


def test_a_folder_of_models_is_told_how_it_becomes_a_run(tmp_path: Path) -> None:
    """It was told to name a round, which it has not."""
    for k in range(2):
        torch.save(torch.nn.Linear(2, 2).state_dict(), tmp_path / f"client_{k}.pt")
    with pytest.raises(FedscopeError, match=r"is not a run: it has no run.json; fedscope import .* makes a run"):
        one_round(tmp_path)


def test_a_run_is_told_from_another_in_its_folder_by_when_it_was_made_or_else_by_its_files(
    two_rounds: Path, tmp_path: Path
) -> None:
    """Unfinished work of the run that stood there before would be gone on with."""
    place = shutil.copytree(two_rounds / "runs" / "fma", tmp_path / "fma")
    first = min((place / "rounds").glob("*.h5"))

    def touched() -> tuple[dict[str, Any], dict[str, Any]]:
        before = identity(Run.open(place))
        os.utime(first, ns=(0, first.stat().st_mtime_ns + 1))
        return before, identity(Run.open(place))

    before, after = touched()
    assert before == after
    assert before["created"] is not None
    info = json.loads((place / "run.json").read_text())
    info = {key: value for key, value in info.items() if key not in ("created", "files")}
    (place / "run.json").write_text(json.dumps(info))
    before, after = touched()
    assert before == {**before, "path": str(place), "created": None}
    assert before == {**after, "files": before["files"]} != after
    (place / "run.json").write_text(json.dumps(info | {"source": "mine"}))
    assert identity(Run.open(place))["files"] not in (before["files"], after["files"])
    assert identity(Run.open(place)) == identity(Run.open(place))


def test_names_of_files_are_short_and_clean() -> None:
    assert slug("1,last") == "1-last"
    assert len(fit_file_name("x" * 300)) == 89


# --- models ---


def test_models_are_modules_state_dicts_and_addresses_alike(runs: Path) -> None:
    source = EvaluationConfig("test", device="cpu")
    by_address = resolve_models(["runs/fma@2/global", "runs/fma@1/global"], source)
    net = by_address.module
    weights = by_address.models[0].weights
    arrays = {name: torch.from_numpy(array.copy()) for name, array in weights.arrays().items()}
    net.load_state_dict(arrays)
    resolved = resolve_models([net, arrays, "runs/fma@1/global", by_address.models[1]], source)
    assert [model.address for model in resolved.models] == [
        *(f"{type(net).__name__} 1", "model 2", "runs/fma@1/global", "runs/fma@1/global")
    ]
    for model in resolved.models[:2]:
        assert model.weights.parameters.tobytes() == weights.parameters.tobytes()
    x, y = resolved.samples.x, resolved.samples.y
    own = resolve_models([net, arrays], EvaluationConfig("test", device="cpu", data=(x.numpy(), y.numpy())))
    assert own.samples.x.numpy().tobytes() == x.numpy().tobytes()
    assert own.settings["standardised"] is False
    assert own.settings["behaviour"] is not None


@pytest.mark.parametrize(
    ("models", "source", "message"),
    [
        (["net"], {}, r"Linear 1 is a model, which does not say its data; give --data"),
        (["state"], {"data": "digits"}, r"model 1 is a state dict, which does not say its architecture; give model="),
        (
            [3],
            {"data": "digits", "model": "mlp"},
            r"model 1 is int, which is not a model; give RUN@ROUND, a file, an nn\.",
        ),
        (["net"], {"data": [1, 2, 3]}, r"data: list gave a list, which are not data; return"),
        (["net", "other"], {"data": "pair"}, r"Linear 2 does not fit the architecture of Linear 1: .*shape"),
        (["net", {"a": 1}], {"data": "pair"}, r"model 2 holds other things than tensors; give model\.state_dict\(\)"),
    ],
)
def test_what_is_no_model_and_no_data_is_one_sentence(models: list[object], source: dict[str, object], message: str):
    known = {"net": torch.nn.Linear(2, 2), "other": torch.nn.Linear(2, 3), "state": torch.nn.Linear(2, 2).state_dict()}
    pair = (np.zeros((4, 2), np.float32), np.array([0, 1, 0, 1]))
    given = [known.get(model, model) if isinstance(model, str) else model for model in models]
    source = {key: pair if value == "pair" else value for key, value in source.items()}
    with pytest.raises(FedscopeError, match=message):
        resolve_models(given, EvaluationConfig("test", device="cpu", **source))  # type: ignore[arg-type]


class Net(torch.nn.Linear):
    """A class of the user's own."""


def test_a_class_is_no_module_yet() -> None:
    with pytest.raises(FedscopeError) as refusal:
        fedscope.line([Net, Net], data=(np.zeros((4, 2), np.float32), np.array([0, 1, 0, 1])))
    assert str(refusal.value) == (
        "model 1 is the class Net, which has no weights yet; make a module of it, Net(...), and give that"
    )


def test_a_rounds_clients_are_several_models(runs: Path) -> None:
    round_ = Run.open("runs/fma").round(2)
    clients = round_.clients()
    few: dict[str, Any] = {"device": "cpu", "limit": 20}
    asked = [
        (1, lambda given, **how: fedscope.cka([given, given], layer="0", **how)),
        (1, lambda given, **how: fedscope.sharpness(given, hessian=False, draws=1, **how)),
        (2, lambda given, **how: fedscope.line(["runs/fma@1", given], points=3, **how)),
        (1, lambda given, **how: fedscope.plane([given, "runs/fma@1", "runs/fma@2"], grid=3, **how)),
    ]
    for place, ask in asked:
        with pytest.raises(FedscopeError) as refusal:
            ask(clients, **few)
        assert str(refusal.value) == (
            f"model {place} is a matrix of {len(clients)} models, and one is asked for; give a row of it, as .row(0), "
            "or the address of one, as runs/ima@20/client-0"
        )
    # the remedy, to the letter
    first = round_.client_ids[0]
    line = fedscope.line(["runs/fma@1", clients.row(0)], points=3, **few)
    same = fedscope.line(["runs/fma@1", f"runs/fma@2/client-{first}"], points=3, **few)
    assert np.array_equal(line.loss, same.loss)


def test_a_round_is_its_address(runs: Path) -> None:
    run = Run.open("runs/fma")
    few: dict[str, Any] = {"points": 3, "device": "cpu", "limit": 20}
    given = fedscope.line([run.round(1), run.round(2)], **few)
    assert np.array_equal(given.loss, fedscope.line(["runs/fma@1", "runs/fma@2"], **few).loss)


# --- the loop over rounds ---


@dataclass(frozen=True)
class Square(Serializable):
    value: float


class Watched:
    """A computation of squares that can be stopped, and what was reported of it."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.computed: list[int] = []
        self.told: list[tuple[int, int]] = []
        self.stop_at = stop_at

    @contextmanager
    def progress(self, label: str) -> Iterator[Report]:
        assert label == "squares"
        yield lambda done, of: self.told.append((done, of))

    def run(self, keep: Path | None, numbers: list[int], settings: dict[str, object]) -> list[float]:
        def task(number: int) -> WorkUnit[Square]:
            def compute(report: Report) -> Square:
                if number == self.stop_at:
                    raise KeyboardInterrupt
                self.computed.append(number)
                report(1, 2)
                return Square(number**2 / 3)

            return WorkUnit(f"round {number}", Square, compute, 2)

        work = Execution(keep, self.progress)
        with work.store(settings, "rounds") as store:
            return [square.value for square in work.each("squares", map(task, numbers), store)]


def test_finished_rounds_are_kept_and_more_rounds_go_on_from_them(tmp_path: Path) -> None:
    keep = tmp_path / "x.partial"
    first = Watched(stop_at=3)
    with pytest.raises(KeyboardInterrupt):
        first.run(keep, [1, 2, 3], {"rounds": [1, 2, 3], "seed": 0})
    second = Watched()
    assert second.run(keep, [1, 3, 4, 2], {"rounds": [1, 3, 4, 2], "seed": 0}) == [t**2 / 3 for t in (1, 3, 4, 2)]
    assert (first.computed, second.computed) == ([1, 2], [3, 4])
    assert second.told == [(2, 8), (3, 8), (4, 8), (5, 8), (6, 8), (8, 8)]


def test_other_settings_begin_anew_and_say_so(tmp_path: Path) -> None:
    keep = tmp_path / "x.partial"
    Watched().run(keep, [1], {"seed": 0})
    again = Watched()
    with pytest.warns(match=r"x\.partial was left by an analysis with other settings"):
        again.run(keep, [1], {"seed": 1})
    assert again.computed == [1]


def test_without_a_place_nothing_is_kept_and_the_numbers_are_the_same(tmp_path: Path) -> None:
    assert Watched().run(None, [1, 2], {}) == Watched().run(tmp_path / "x.partial", [1, 2], {})
    assert [path.name for path in tmp_path.iterdir()] == ["x.partial"]


def test_a_question_goes_on_from_where_it_was_kept(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fedscope.decomposition.subsets.averages as package

    whole = subsets("runs/fma", rounds="all", subsets=2)
    real, calls = package.round_subsets, []

    def stopping(*args: object, **kwargs: object) -> object:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(package, "round_subsets", stopping)
    question = subsets.prepare("runs/fma", rounds="all", subsets=2)
    with pytest.raises(KeyboardInterrupt):
        question.answer(Execution(tmp_path / "kept"))
    assert len(json.loads((tmp_path / "kept").read_text().splitlines()[2])["value"]["sizes"]) == 8
    # the path alone is as good
    assert question.answer(str(tmp_path / "kept")).numbers() == whole.numbers()
    assert len(calls) == 3
    with pytest.raises(FedscopeError, match=r"^3 is no path; give text or a pathlib\.Path$"):
        question.answer(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r'^fedscope\.embed has no setting .embed.; did you mean "method"\?$'):
        fedscope.embed("runs/fma", embed="pca")  # type: ignore[call-arg]
