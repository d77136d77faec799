"""``fedscope check-method``: a line per check, a sentence, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedscope.cli.main import run

FEDX = '''
from dataclasses import dataclass
from fedscope.methods import Served, ServerMethod, mean_update, setting, weighted_update


@dataclass(frozen=True)
class FedX(ServerMethod):
    """w⁺ = w + η Σ p_i Δ_i."""

    rate: float = setting(0.5, "η: the server's step", above=0)

    def step(self, state, start, clients, cohort):
        moved = start.parameters + self.rate * weighted_update(start, clients, cohort.p)
        return Served(moved.astype(start.layout.dtype))


@dataclass(frozen=True)
class Alike(FedX):
    """Counts clients alike."""

    def step(self, state, start, clients, cohort):
        return Served((start.parameters + mean_update(start, clients)).astype(start.layout.dtype))
'''


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "checked_fedx.py").write_text(FEDX)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


def test_a_line_per_check_and_a_sentence(mine: None, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--only", "order", "--only", "same-seed", "--only", "limits", "--set", "server.rate=0.9"]
    assert run(["check-method", "checked_fedx:FedX", *words]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [["ok", "same-seed"], ["ok", "order"], ["-", "limits"]]
    assert last == "checked_fedx:FedX: all 2 checks passed; 1 do not concern it"


def test_it_ends_with_2_and_names_what_failed(mine: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check-method", "checked_fedx:Alike", "--only", "weight-0", "--only", "order"]) == 2
    told = capsys.readouterr()
    assert told.out.splitlines()[1].startswith("FAILED  weight-0")
    assert told.err == (
        "fedscope: checked_fedx:Alike fails weight-0; the lines above say what was measured, and --only weight-0 asks "
        "again\n"
    )


def test_its_json_has_every_check(mine: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check-method", "fedswa", "--only", "order", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["method"], found["passed"], found["failed"]) == ("fedswa", True, [])
    assert [(one["kind"], one["check"], one["outcome"]) for one in found["checks"]] == [
        ("client", "order", "passed"),
        ("server", "order", "passed"),
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["fedavgn"], "'fedavgn' is not a method that fedscope knows; did you mean \"fedavgm\"?"),
        (["fma", "--only", "ordr"], '--only ordr is not a check; did you mean "order"?'),
        (["fma", "--set", "server.beta=1"], "server.beta is not a setting of FMA"),
        (["checked_fedx:FedY"], "check-method checked_fedx:FedY"),
        (["math:pi"], "check-method math:pi is no method"),
    ],
)
def test_what_is_not_understood(mine: None, capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert run(["check-method", *words]) == 2
    assert said in capsys.readouterr().err
