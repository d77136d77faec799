"""Rounds of a single client, which have no pair: of several rounds they are left out, and said to be."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedscope
from fedscope.analysis.rounds import rounds_of_several
from fedscope.checkpoints import FedscopeError, Run
from fedscope.cli.main import run as command

X = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
DATA: dict[str, Any] = {"data": (X, (X[:, 0] > 0).long())}


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def recorded(folder: Path, cohorts: list[int], sent: tuple[int, ...] = ()) -> Run:
    """Rounds of so many clients each; without the model that clients were sent in some."""
    draw = np.random.default_rng(0)
    layout = {name: value.shape for name, value in network().state_dict().items()}

    def model() -> dict[str, np.ndarray]:
        return {name: draw.normal(size=shape).astype(np.float32) for name, shape in layout.items()}

    with warnings.catch_warnings():  # that p are alike
        warnings.simplefilter("ignore")
        with fedscope.Recorder(folder) as recorder:
            for number, count in enumerate(cohorts, 1):
                start = None if number in sent else model()
                recorder.round(start=start, clients=[model() for _ in range(count)])
    return Run.open(folder)


QUESTIONS: dict[str, tuple[Callable[..., Any], str, str]] = {
    "cka": (
        lambda run, **how: fedscope.cka(str(run.path), model=network(), **DATA, **how),
        "is no pair",
        "has a cohort of one, so there is no pair",
    ),
    "disperse": (
        lambda run, **how: fedscope.disperse(run, **how),
        "has no dispersion",
        "has 1 client, so there is no dispersion",
    ),
    "predictors": (
        lambda run, **how: fedscope.predictors(run, model=network(), **DATA, **how),
        "is nothing to average",
        "has a cohort of one, so there is nothing to average",
    ),
}


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return recorded(tmp_path_factory.mktemp("mixed") / "run", [1, 3, 1, 2, 3, 1])


@pytest.mark.parametrize("name", QUESTIONS)
def test_of_several_rounds_those_of_one_client_are_left_out_and_said_to_be(mixed: Run, name: str) -> None:
    ask, why, _ = QUESTIONS[name]
    for rounds, taken, left in [
        ("all", [2, 4, 5], "rounds 1, 3, 6"),
        ("1-4", [2, 4], "rounds 1, 3"),
        ("2,3", [2], "round 3"),
        ("last:2", [5], "round 6"),
    ]:
        found = ask(mixed, rounds=rounds)
        note = f"run: {left} left out, because one client {why}"
        assert [one.round for one in found.rounds] == taken
        assert found.attrs["left_out"] == [note]
        assert found.summary().splitlines()[-1] == note
        figure = found.figure(width=7)
        words = " ".join(text.get_text() for text in [*figure.texts, *(t for axes in figure.axes for t in axes.texts)])
        assert note in " ".join(words.split())
    for rounds in ("4,5", "2"):
        found = ask(mixed, rounds=rounds)
        assert "left_out" not in found.attrs
        assert "left out" not in found.summary()


@pytest.mark.parametrize("name", ["cka", "disperse"])
def test_without_a_word_the_first_and_the_last_with_two_clients_are_taken(mixed: Run, name: str) -> None:
    found = QUESTIONS[name][0](mixed)
    assert [one.round for one in found.rounds] == [2, 5]
    assert "left_out" not in found.attrs


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_round_of_one_client_alone_is_refused_with_the_rounds_that_have_more(
    mixed: Run, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ask, _, message = QUESTIONS[name]
    for rounds in ("3", "last", "1,3"):
        with pytest.raises(FedscopeError, match=rf"run@\d {message}; give one of rounds 2, 4-5, which have 2 clients"):
            ask(mixed, rounds=rounds)
    one = recorded(tmp_path / "one", [1, 3])
    with pytest.raises(FedscopeError, match=rf"one@1 {message}; give round 2, which has 2 clients or more"):
        ask(one, rounds=1)
    none = recorded(tmp_path / "none", [1, 1])
    for how in ({"rounds": "all"}, {"rounds": 2}, {}):
        with pytest.raises(FedscopeError, match=rf"none@\d {message}; record rounds with more clients$"):
            ask(none, **how)
    capsys.readouterr()
    assert command([name, str(mixed.path), "--rounds", "3"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_label_names_the_run_in_the_sentence_too(mixed: Run) -> None:
    found = fedscope.disperse({"FedAvg": mixed}, rounds="all")
    assert found.summary().splitlines()[-1].startswith("FedAvg: rounds 1, 3, 6 left out")


def test_predictors_say_which_rounds_lack_the_model_that_was_sent(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", [3, 3, 1, 3], sent=(2,))
    found = QUESTIONS["predictors"][0](run, rounds="all")
    assert [one.round for one in found.rounds] == [1, 4]
    assert found.attrs["left_out"] == [
        "run: round 3 left out, because one client is nothing to average",
        "run: round 2 left out, because the model that clients were sent (start) was not recorded",
    ]


def test_other_questions_of_one_round_name_the_rounds_that_have_more_clients(mixed: Run) -> None:
    remedy = r"; give one of rounds 2, 4-5, which have 2 clients or more$"
    with pytest.raises(FedscopeError, match=rf"run@3 has a cohort of one, so there is nobody to disagree with{remedy}"):
        fedscope.synergy(mixed, rounds=3)
    with pytest.raises(FedscopeError, match=rf"run@3 has a cohort of one, so there is no pair{remedy}"):
        fedscope.line(f"{mixed.path}@3", clients=True, model=network(), **DATA)
    with pytest.raises(
        FedscopeError, match=r"run@4 has a cohort of 2, but a plane needs three clients; give one of rounds 2, 5, which"
    ):
        fedscope.plane(str(mixed.path), rounds="4", model=network(), **DATA)


def test_rounds_without_a_word_are_those_of_several_clients(mixed: Run) -> None:
    assert rounds_of_several(mixed, None, "is no pair") == ([2, 5], [])
    assert rounds_of_several(mixed, "1,3", "is no pair") == ([1], [])
