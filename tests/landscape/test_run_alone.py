"""What a run alone is asked: its plane and its line, by what it has recorded, and what is said of a name that is not
there."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedscope
from fedscope import Recorder
from fedscope.checkpoints import FedscopeError
from fedscope.cli.main import run
from fedscope.landscape.lines.analysis import line
from fedscope.landscape.planes.analysis import plane
from fedscope.landscape.run_alone import choose_line, choose_lines, choose_plane

pytestmark = pytest.mark.usefixtures("few_digits")


def recorded(path: Path, cohorts: list[int], *, start: bool = True, globals_: bool = True, **how: Any) -> str:
    """A run whose rounds have so many clients each, of a network of ten outputs on the digits."""
    draw = np.random.default_rng(0)

    def model() -> dict[str, np.ndarray]:
        return {"1.weight": draw.normal(size=(10, 64)).astype(np.float32), "1.bias": np.zeros(10, np.float32)}

    with Recorder(path, data="digits", **how) as recorder:
        for count in cohorts:
            models = {"start": model()} if start else {}
            models |= {"global_": model()} if globals_ else {}
            recorder.round(clients=[model() for _ in range(count)], **models)
    return str(path)


@pytest.mark.parametrize(
    ("cohorts", "how", "models", "kind"),
    [
        ([3, 4], {}, ["r@2"], "clients"),
        ([3, 2], {}, ["r@1"], "clients"),  # the last round has too few
        ([3, 4, 3], {"keep": "every:2"}, ["r@2"], "clients"),  # the last rounds' clients were not kept
        ([2, 2, 2], {}, ["r"], "trajectory"),
        ([1, 1, 1, 1], {}, ["r"], "trajectory"),
    ],
)
def test_the_plane_is_near_the_last_recorded_clients_or_the_globals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cohorts: list[int], how: Any, models: list[str], kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    chosen = choose_plane(recorded(Path("r"), cohorts, **how))
    assert (list(chosen.models), chosen.kind) == (models, kind)
    number = int(models[0].partition("@")[2] or 0)
    if number:
        count = cohorts[number - 1]
        assert f"r: the plane near the {count} clients of its last recorded round (r@{number} --clients)" in chosen.said
    else:
        assert f"near its {len(cohorts)} global models (--trajectory)" in chosen.said


def test_the_line_is_the_servers_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert choose_line(recorded(Path("a"), [2, 2])).models == ("a@2/global", "a@2/start")
    assert choose_line(recorded(Path("b"), [2, 2, 2], start=False)).models == ("b@3/global", "b@1/global")
    assert choose_line(recorded(Path("c"), [2], start=False)).models == ("c@1/client-0", "c@1/client-1")
    with pytest.raises(FedscopeError, match=r"^d has recorded no round with both its start and .*; give others, A B$"):
        choose_line(recorded(Path("d"), [1], start=False))


def test_a_line_in_every_round_is_the_servers_step_or_between_two_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    step = choose_lines(recorded(Path("a"), [2, 2]), "all")
    assert step.pairs == {1: ("a@1/global", "a@1/start"), 2: ("a@2/global", "a@2/start")}
    assert (step.ends, step.left_out) == (("global", "start"), "")
    pair = choose_lines(recorded(Path("c"), [2, 1, 3], start=False), "all")
    assert pair.pairs == {1: ("c@1/client-0", "c@1/client-1"), 3: ("c@3/client-0", "c@3/client-1")}
    assert pair.ends == ("first client", "second client")
    assert pair.left_out == "c: round 2 left out, because two clients were not recorded"
    with pytest.raises(FedscopeError, match=r"^--rounds 2: round 2 of c has not recorded two clients, .*1, 3 have$"):
        choose_lines("c", "2")
    with pytest.raises(FedscopeError, match=r"^d has recorded no round with both its start .* two models, A B$"):
        choose_lines(recorded(Path("d"), [1], start=False), "all")


def test_a_run_of_too_few_is_refused_with_what_can_be_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    few = recorded(Path("few"), [2, 2])
    with pytest.raises(FedscopeError, match=r"neither three clients .* others, A B C, or few@last and random=True$"):
        fedscope.plane(few)


def test_a_run_alone_is_the_same_as_what_it_says(
    two_rounds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same models, settings and files as the words in its note."""
    monkeypatch.chdir(two_rounds)
    alone, asked = plane.prepare("runs/fma", grid=3), plane.prepare("runs/fma@2", clients=True, grid=3)
    assert (alone.folder, alone.name) == (asked.folder, asked.name)
    assert [part.settings for part in alone.parts] == [part.settings for part in asked.parts]
    assert "(runs/fma@2 --clients)" in alone.note
    assert asked.note == ""
    one, other = line.prepare("runs/fma", points=3), line.prepare(["runs/fma@2/global", "runs/fma@2/start"], points=3)
    assert (one.name, [part.settings for part in one.parts]) == (other.name, [part.settings for part in other.parts])
    assert run(["line", "runs/fma", "--points", "3", "--json", "--out", str(tmp_path / "l")]) == 0
    said = capsys.readouterr()
    assert said.err.startswith(f"fedscope: {one.note}\n")
    assert one.note not in said.out


@pytest.mark.parametrize("command", ["plane", "line"])
@pytest.mark.parametrize(
    ("named", "sentence"),
    [
        ("runs/fna", 'runs/fna does not exist; did you mean "runs/fma"?'),
        ("runs/fna@last", 'runs/fna does not exist; did you mean "runs/fma"?'),
        ("runs", "runs is not an address of a model; give RUN@ROUND[/WHICH], .*; runs holds the runs fma"),
        ("nets/bets.pt", 'nets/bets.pt does not exist; did you mean "nets/best.pt"?'),
        ("nets/bets", 'nets/bets does not exist; did you mean "nets/best.pt"?'),
        ("runs/fma@9", "runs/fma@9: the run has rounds 1-2"),
    ],
)
def test_a_name_that_is_not_there_is_said_and_not_the_number_of_models(
    two_rounds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, named: str, sentence: str
) -> None:
    shutil.copytree(two_rounds / "runs/fma", tmp_path / "runs/fma")
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets/best.pt").touch()
    monkeypatch.chdir(tmp_path)
    pattern = sentence if ".*" in sentence else f"^{re.escape(sentence)}$"
    if ".*" in sentence:
        before, _, after = sentence.partition(".*")
        pattern = f"{re.escape(before)}.*{re.escape(after)}"
    with pytest.raises(FedscopeError, match=pattern):
        getattr(fedscope, command)(named)


def test_models_that_are_there_are_counted(two_rounds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(two_rounds)
    with pytest.raises(FedscopeError, match=r"^a plane goes through three models, but got 1; give A B C, or a run and"):
        fedscope.plane("runs/fma@1")
    with pytest.raises(FedscopeError, match=r"^a line needs pairs of models, but got 1; give A B .*, a run alone"):
        fedscope.line("runs/fma@1")
    with pytest.raises(FedscopeError, match=r"^runs/fma is a run; name one of its models, as in runs/fma@last$"):
        fedscope.plane(["runs/fma", "runs/fma"])
