"""What replays cost is said before they are made."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedscope.decomposition.draws.sources as draws_of_rounds
from fedscope.cli.main import run
from fedscope.decomposition.draws.sources import Replays

pytestmark = pytest.mark.same_elsewhere


def test_the_number_and_the_way_out_are_said() -> None:
    def said(draws: int, *, limited: bool = False, cohorts: dict[int, int] | None = None) -> str:
        given = {1: 10, 5: 10} if cohorts is None else cohorts
        lines: list[str] = []
        how = {"limited": limited, "at_once": 2, "instead": "fewer --rounds need fewer"}
        Replays("runs/a", given, draws, **how, tell=lines.append).announce()
        return "".join(lines)

    assert said(4, limited=True) == (
        "fedscope: runs/a needs 60 replays of local training (2 rounds, 10 clients, 3 draws in addition to the "
        "recorded one), "
        "which --limit does not shorten; --draws local:3 needs 40, and fewer --rounds need fewer"
    )
    assert "--limit" not in said(4)
    assert "--draws local:8 needs 140, and" in said(16)
    assert "--draws local:2 needs 20 but has no intervals, and fewer --rounds" in said(3)
    assert said(2).endswith("in addition to the recorded one); fewer --rounds need fewer")
    assert "needs 21 replays of local training (2 rounds, 7 clients in all, 3 draws" in said(4, cohorts={1: 3, 2: 4})
    assert said(4, cohorts={}) == "", "all are done"


def test_after_the_first_replay_the_rest_is_estimated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now, lines = [100.0], list[str]()
    monkeypatch.setattr(draws_of_rounds.time, "monotonic", lambda: now[0])
    replays = Replays("runs/a", {1: 4, 5: 6}, 3, limited=False, at_once=2, instead="", tell=lines.append)
    told: list[tuple[int, int]] = []
    first = replays.watch(1, lambda done, of: told.append((done, of)))
    now[0] += 7.0
    first(1, 8)
    # 20 in all, 19 left, two at a time
    estimate = ["runs/a: the first replay took 7 s; the other 19 with 2 at once take about 66 s"]
    assert lines == estimate
    first(8, 8)
    second = replays.watch(5, lambda done, of: told.append((done, of)))
    second(12, 12)
    assert told == [(1, 8), (8, 8), (12, 12)]
    assert lines == estimate
    quick = Replays("runs/a", {1: 4}, 3, limited=False, at_once=1, instead="", tell=lines.append)
    report = quick.watch(1, lambda done, of: None)
    now[0] += 0.1
    report(1, 8)
    assert lines == estimate, "not worth a word"


def test_commands_say_it_of_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["--clients", "8", "--participation", "0.5", "--rounds", "2", "--set", "model.hidden=[4]"]
    assert run(["train", "--method", "fma", "--out", "runs/a", *words]) == 0
    capsys.readouterr()
    assert run(["decompose", "runs/a", "--draws", "local:3", "--limit", "50", "--out", "d"]) == 0
    assert (
        "runs/a needs 16 replays of local training (2 rounds, 4 clients, 2 draws in addition to the recorded one), "
        "which "
        "--limit does not shorten; --draws local:2 needs 8 but has no intervals"
    ) in capsys.readouterr().err
    assert run(["decompose", "runs/a", "--draws", "local:3", "--limit", "50", "--out", "d"]) == 0
    assert "replays" not in capsys.readouterr().err, "nothing is computed"
    assert run(["decompose", "runs/a", "--draws", "rounds:2", "--out", "r"]) == 2  # other clients
    assert "replays" not in capsys.readouterr().err
    small = ["--kernel-samples", "80", "--dimension", "16", "--limit", "50", "--rounds", "last", "--out", "t"]
    assert run(["theory", "runs/a", "--draws", "local:2", *small]) == 0
    assert "needs 4 replays of local training" in (err := capsys.readouterr().err)
    assert err.rstrip().endswith("--draws none needs 0")
