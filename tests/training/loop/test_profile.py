"""``--profile``: the parts of a round, the workers' share, and the trace."""

from __future__ import annotations

import json
from math import fsum, isnan
from pathlib import Path
from threading import Thread

import pytest

from fedscope.checkpoints import FedscopeError, Run
from fedscope.cli.main import run
from fedscope.training import Config, Profile, resume, train
from fedscope.training.local.profile import PARTS, ROUND, TimeSpan

pytestmark = pytest.mark.usefixtures("few_digits")

CONFIG = Config.read(
    {
        "data": {"clients": 6},
        "model": {"hidden": [8]},
        "client": {"epochs": 1},
        "run": {"rounds": 3, "participation": 0.5, "evaluate_clients": 20},
    }
)


@pytest.fixture(scope="module")
def trained(few_digits: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Profile]:
    profile = Profile()
    return train(CONFIG, tmp_path_factory.mktemp("profiled") / "run", profile=profile), profile


def test_the_parts_of_a_round_lie_in_it_one_after_the_other(trained: tuple[Run, Profile]) -> None:
    done, profile = trained
    assert profile.rounds == done.rounds
    for number in done.rounds:
        (whole,) = (span for span in profile.spans if (span.part, span.round) == (ROUND, number))
        parts = [span for name in PARTS for span in profile.spans if (span.part, span.round) == (name, number)]
        assert [span.part for span in parts] == list(PARTS)
        ends = [whole.begin, *(end for span in parts for end in (span.begin, span.begin + span.seconds))]
        assert ends == sorted(ends), "they follow each other in their order, none inside another"
        assert ends[-1] <= whole.begin + whole.seconds
        training = parts[0]
        clients = [span for span in profile.spans if (span.part, span.round) == ("train", number)]
        assert sorted(span.client or 0 for span in clients) == done.round(number).client_ids.tolist()
        assert all(training.begin <= span.begin < training.begin + training.seconds for span in clients)


def test_the_table_adds_up(trained: tuple[Run, Profile]) -> None:
    _, profile = trained
    lines = profile.summary().splitlines()
    assert [line.rsplit(None, 3)[0].strip() for line in lines[1:7]] == [*PARTS, "all else", "round"]
    seconds = [float(line.split()[-3]) for line in lines[1:7]]
    assert fsum(seconds[:5]) == pytest.approx(seconds[5], abs=5 * 5e-5), "each is rounded to four digits"
    found = profile.findings()
    assert found["rounds"] == 3
    assert found["seconds"][ROUND] == pytest.approx(3 * seconds[5], abs=3 * 5e-5)
    assert lines[-1].startswith("mean over 3 rounds, the first of ")


def test_a_worker_is_busy_while_it_trains() -> None:
    profile = Profile()
    # two workers in a training of 10 s: one works for 8 s of it, one for 4; what a worker does later is none of it
    spans = [("training", None, 0, 1, 10), ("train", 3, 1, 1, 8), ("train", 4, 2, 1, 4), ("train", 3, 1, 12, 5)]
    profile.spans += [TimeSpan(part, 1, client, thread, begin, long) for part, client, thread, begin, long in spans]
    assert isnan(profile.busy), "the round is not over"
    profile.spans.append(TimeSpan(ROUND, 1, None, 0, 0, 20))
    assert profile.busy == pytest.approx(0.6)


def test_workers_are_counted_by_how_many_there_are_at_a_time() -> None:
    profile = Profile()

    def work(client: int, inside: int | None = None) -> None:
        with profile.span("train", 1, client):
            if inside is not None:
                other = Thread(target=work, args=(inside,))
                other.start()
                other.join()

    for first in (0, 10, 20):  # threads of their own each time, as every round has
        thread = Thread(target=work, args=(first, first + 1))
        thread.start()
        thread.join()
    assert {(span.client, span.worker) for span in profile.spans} == {
        (0, 1), (1, 2), (10, 1), (11, 2), (20, 1), (21, 2)
    }  # fmt: skip


def test_profiling_changes_no_number(trained: tuple[Run, Profile], tmp_path: Path) -> None:
    plain = train(CONFIG, tmp_path / "run")
    for number in plain.rounds:
        one, other = (own.round(number) for own in (plain, trained[0]))
        assert one.read("global").parameters.tobytes() == other.read("global").parameters.tobytes()


def test_the_trace_is_nested_row_by_row(trained: tuple[Run, Profile]) -> None:
    events = trained[1].trace()["traceEvents"]
    rows = {event["tid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    assert rows[0] == "rounds"
    spans = [event for event in events if event["ph"] == "X"]
    assert len(spans) == len(trained[1].spans)
    assert min(span["ts"] for span in spans) == 0
    for row in rows:
        open_until: list[float] = []
        for span in sorted((one for one in spans if one["tid"] == row), key=lambda one: (one["ts"], -one["dur"])):
            while open_until and open_until[-1] <= span["ts"] + 0.2:  # rounded to a tenth of a microsecond
                open_until.pop()
            end = span["ts"] + span["dur"]
            assert not open_until or end <= open_until[-1] + 0.2, "it ends before what it began in"
            open_until.append(end)


def test_nothing_finished_is_said(tmp_path: Path) -> None:
    assert Profile().summary() == "no round was finished, so there is nothing to say of its parts"
    (tmp_path / "blocked").write_text("", encoding="utf-8")
    with pytest.raises(FedscopeError, match=r"blocked/t\.json cannot be written: .*; give another --profile"):
        Profile().save(tmp_path / "blocked" / "t.json")


def test_a_round_that_failed_is_in_the_trace_and_not_in_the_table() -> None:
    profile = Profile()
    with profile.span(ROUND, 1), profile.span("training", 1):
        pass
    with pytest.raises(KeyboardInterrupt), profile.span(ROUND, 2), profile.span("training", 2):
        raise KeyboardInterrupt
    assert profile.rounds == (1,)
    assert "\none round; " in profile.summary()
    rounds = [event["args"]["round"] for event in profile.trace()["traceEvents"] if event["ph"] == "X"]
    assert sorted(rounds) == [1, 1, 2, 2]


def test_the_command_says_the_table_and_writes_the_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = "train --method fma --clients 4 --rounds 3 --epochs 1 --set model.hidden=[4] --out r"
    assert run([*words.split(), "--until", "1", "--profile", "new/one.json"]) == 0
    out = capsys.readouterr().out
    assert "\nrecording " in out
    assert "\none round; while clients train" in out
    assert run(["train", "--resume", "r", "--profile", "new/one.json"]) == 2
    said = "--profile new/one.json is there already; give another name, or delete it"
    assert said in capsys.readouterr().err
    assert run(["train", "--resume", "r", "--profile", "two.json", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["profile"]["rounds"] == 2
    assert run(["train", "--from", "r@1", "--method", "fedavgm", "--profile", "three.json"]) == 0
    for name, rounds in (("new/one.json", {1}), ("two.json", {2, 3}), ("three.json", {2, 3})):
        events = json.loads(Path(name).read_text(encoding="utf-8"))["traceEvents"]
        assert {event["args"]["round"] for event in events if event["ph"] == "X"} == rounds
    # what fails is profiled up to there
    assert run([*words.split()[:-1], "lost", "--lr", "1e30", "--profile", "lost.json"]) == 2
    assert Path("lost.json").exists()
    # what is refused leaves nothing, so that the corrected command is not refused for its trace
    assert run([*words.split()[:-1], "r", "--profile", "refused.json"]) == 2
    assert not Path("refused.json").exists()


def test_resume_takes_a_profile(tmp_path: Path) -> None:
    train(CONFIG, tmp_path / "run", until=1)
    profile = Profile()
    resume(tmp_path / "run", profile=profile)
    assert profile.rounds == (2, 3)
