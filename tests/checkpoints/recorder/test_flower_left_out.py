"""Rounds of Flower that would be lost or cannot be recorded: told, and the training goes on."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flower_stand_ins import (
    NODES,
    Array,
    Arrays,
    Averaging,
    Emptying,
    Evaluating,
    Message,
    Net,
    arrays,
    cohort,
    model,
    parameters,
    play,
    reply,
    result,
    same,
)
from recorder_warnings import told

import fedscope
from fedscope.checkpoints import Run
from fedscope.checkpoints.rounds.verify import check_round

# --- what would be lost ---


def test_a_second_start_is_told_that_the_first_has_closed_the_run(tmp_path: Path) -> None:
    """Its first round was lost without a word, and the others with another one."""
    strategy = fedscope.record(Emptying(), tmp_path / "run")
    play(strategy, cohort, 2)
    closed = (
        f"{tmp_path}/run: the run is closed, which strategy.start does, so no further round of Flower is recorded; "
        "before the next one call fedscope.record again, with resume=True to go on with this run, or with another path"
    )
    assert told(lambda: play(strategy, cohort, 1)) == [closed]
    assert told(lambda: play(strategy, cohort, 1)) == []
    play(fedscope.record(strategy, tmp_path / "run", resume=True), cohort, 1)
    assert Run.open(tmp_path / "run").rounds == (1, 2, 3)


def test_a_run_that_a_program_closes_itself_is_told_as_that(tmp_path: Path) -> None:
    """It was said that strategy.start had, which nobody had called."""
    strategy = fedscope.record(Emptying(), tmp_path / "run")

    def play_round(t: int) -> None:
        strategy.configure_train(t, arrays(model(0)), "config", None)
        strategy.aggregate_train(t, cohort(t))

    play_round(1)
    strategy.recorder.close()
    assert told(lambda: play_round(2)) == [
        f"{tmp_path}/run: the run is closed, which recorder.close() does, so no further round of Flower is recorded; "
        "before the next one call fedscope.record again, with resume=True to go on with this run, or with another path"
    ]


def test_a_round_that_waits_as_the_program_ends_is_recorded(tmp_path: Path) -> None:
    code = f"""
        import sys
        sys.path[:0] = {[str(Path(__file__).parents[2])]!r}
        import flower_stand_ins as here
        import fedscope

        strategy = fedscope.record(here.Evaluating(), sys.argv[1])
        for number in range(1, int(sys.argv[2]) + 1):
            strategy.configure_train(number, here.arrays(here.model(0)), "config", None)
            strategy.aggregate_train(number, here.cohort(number))
    """
    for rounds in (1, 3):
        path = tmp_path / f"run{rounds}"
        words = [sys.executable, "-P", "-c", textwrap.dedent(code), str(path), str(rounds)]
        done = subprocess.run(words, check=True, capture_output=True, text=True)
        assert done.stderr == ""
        assert Run.open(path).rounds == tuple(range(1, rounds + 1))
        assert check_round(Run.open(path).round(rounds)).faults == ()


def test_a_round_that_waits_as_its_strategy_is_dropped_is_told_and_the_folder_is_free(tmp_path: Path) -> None:
    """As by a cell of a notebook that runs again."""
    strategy = fedscope.record(Evaluating(), tmp_path / "run")
    for number in (1, 2):
        strategy.configure_train(number, arrays(model(0)), "config", None)
        strategy.aggregate_train(number, cohort(number))

    def drop() -> None:
        nonlocal strategy
        strategy = None
        gc.collect()

    assert told(drop) == [
        f"{tmp_path}/run: round 2 of Flower waited for its evaluation when its recorder was dropped, so it is not "
        "recorded; end a loop with recorder.close()"
    ]
    again = fedscope.record(Evaluating(), tmp_path / "run", resume=True)
    assert told(lambda: play(again, cohort, 1)) == []
    assert Run.open(tmp_path / "run").rounds == (1, 2)


# --- what cannot be recorded is a warning, and the training goes on ---


def lacking(arrays_: Arrays) -> Arrays:
    return {name: value for name, value in arrays_.items() if name != "a.scale"}


def replies_with(change: Callable[[list[Message]], Any]) -> Callable[[int], list[Message]]:
    """Cohorts of which the second round's is changed."""

    def made(number: int) -> list[Message]:
        found = list(cohort(number))
        return (change(found) or found) if number == 2 else found

    return made


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda found: [*found[:2], reply(5, model(1), partition=2), found[2]], "client 2 replied twice; give every"),
        (lambda found: [Message(1), Message(2)], "no client sent a model"),
        (
            lambda found: [*found[:2], reply(5, model(1))],
            "node 5 does not say its partition, as clients did in the first round; give every ClientApp(mods=[",
        ),
        (
            lambda found: [reply(1, lacking(model(1)), partition=1)],
            "run@2: client 1 lacks a.scale; give models of one architecture",
        ),
        (
            lambda found: found[0].content.update(other=found[0].content.pop("arrays"), more=arrays(model(1))),
            'a reply has 2 ArrayRecords, none of them called "arrays"',
        ),
        (lambda found: found[0].content.pop("arrays") and None, 'a reply has 0 ArrayRecords, none of them called "ar'),
        (
            lambda found: setattr(found[0].content["arrays"]["a.scale"], "data", b"\x93NUMPY\x01\x00nonsense"),
            "ValueError: ",
        ),
        (
            lambda found: [reply(1, {**model(1), "a.scale": np.array(["x"] * 4)}, partition=1)],
            "run@2: client 1: a.scale is <U1, which a run cannot hold",
        ),
        (lambda found: [reply(1, model(1), -3, 1)], "run@2: samples are -3.0; give whole numbers from 0 on"),
    ],
)
def test_a_round_that_cannot_be_recorded_is_told_and_left_out(
    change: Callable[[list[Message]], Any], reason: str, tmp_path: Path
) -> None:
    class Careless(Emptying):
        def aggregate_train(self, server_round: int, replies: Any) -> tuple[Any, Any]:
            return (None, None) if server_round == 2 else super().aggregate_train(server_round, replies)

    strategy = fedscope.record(Careless(), tmp_path / "run")
    found = told(lambda: play(strategy, replies_with(change), 4))
    assert len(found) == 1
    start = f"{tmp_path}/run: round 2 of Flower is not recorded, so later ones have lower numbers in the run: "
    assert found[0].startswith(start)
    assert reason in found[0]
    run = Run.open(tmp_path / "run")
    assert run.rounds == (1, 2, 3)
    same(run.round(2).client(0).arrays(), model(30))


def test_a_first_round_that_is_not_recorded_numbers_nobody(tmp_path: Path) -> None:
    """Its clients had said no partition, so that none was asked for any more; its arrays were in another type."""
    strategy = fedscope.record(Emptying(), tmp_path / "run")

    def replies(number: int) -> Iterator[Message]:
        if number > 1:
            return cohort(number)
        wide = {name: array.astype(np.float64) for name, array in model(1).items()}
        return iter([reply(7, wide), reply(9, wide, float("nan"))])

    said = told(lambda: play(strategy, replies))
    assert [one.partition(": ")[2].partition(" ")[0] for one in said] == ["clients", "round"]
    assert "round 1 of Flower is not recorded" in said[1]
    assert "the clients' weights are 10.0, nan" in said[1]
    run = Run.open(tmp_path / "run")
    assert run.rounds == (1, 2)
    assert run.round(1).client_ids.tolist() == [0, 1, 2]
    for k in range(3):
        same(run.round(1).client(k).arrays(), model(20 + k))


def test_each_kind_of_fault_is_told_once(tmp_path: Path) -> None:
    def twice(number: int) -> list[Message]:
        return [reply(1, model(1), partition=number), reply(2, model(1), partition=number)]

    strategy = fedscope.record(Emptying(), tmp_path / "run")
    found = told(lambda: play(strategy, twice, 5))
    assert [sentence.partition(": ")[2][:42] for sentence in found] == ["round 1 of Flower is not recorded, so late"]


def test_an_aggregation_without_its_beginning_is_told(tmp_path: Path) -> None:
    strategy = fedscope.record(Emptying(), tmp_path / "run")
    strategy.configure_train(1, arrays(model(0)), "config", None)
    assert told(lambda: strategy.aggregate_train(1, cohort(1))) == []
    (sentence,) = told(lambda: strategy.aggregate_train(2, cohort(2)))
    assert sentence.endswith("it is not known which model was sent")
    strategy.recorder.close()
    assert Run.open(tmp_path / "run").rounds == (1,)


def test_tensors_in_other_types_than_at_first_are_told(tmp_path: Path) -> None:
    def widened(number: int) -> list[Message]:
        name = "norm.num_batches_tracked"
        return [
            reply(n, {**model(k), name: model(k)[name].astype(float) + 0.5} if number > 1 else model(k), partition=k)
            for n, k in NODES.items()
        ]

    strategy = fedscope.record(Emptying(), tmp_path / "run")
    assert told(lambda: play(strategy, widened)) == [
        f"{tmp_path}/run: client 2 sends norm.num_batches_tracked in float64, clients of the first round in int64, as "
        "which it is recorded"
    ]
    same(Run.open(tmp_path / "run").round(3).client(1).arrays(), model(1))


def test_replies_without_numbers_of_samples_are_told(tmp_path: Path) -> None:
    def silent(number: int) -> list[Message]:
        return [reply(n, model(k), [1, 2] if k else 7, k) for n, k in NODES.items()]

    strategy = fedscope.record(Emptying(), tmp_path / "run")
    (sentence,) = told(lambda: play(strategy, silent))
    assert sentence.startswith(f"{tmp_path}/run: replies do not say how many samples clients have, so all weigh the s")
    assert Run.open(tmp_path / "run").round(1).weights.tolist() == [1 / 3] * 3


def test_a_disk_that_fails_does_not_stop_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedscope.checkpoints.runs import writer as run_writer

    def full(*_: Any) -> None:
        raise OSError(5, "the disk is broken")

    strategy = fedscope.record(Emptying(), tmp_path / "run")
    monkeypatch.setattr(run_writer.RunWriter, "write_image", full)
    ends: list[Any] = []
    found = told(lambda: ends.append(play(strategy, cohort)))
    assert {k: v.data for k, v in ends[0].items()} == {k: v.data for k, v in play(Emptying(), cohort).items()}
    assert len(found) == 1
    assert "recording has ended, because [Errno 5] the disk is broken; no round of it is recorded" in found[0]


def test_strategies_that_hide_what_clients_sent_are_told(tmp_path: Path) -> None:
    class DifferentialPrivacyServerSideFixedClipping(Emptying):
        pass

    class Mine(DifferentialPrivacyServerSideFixedClipping):
        pass

    assert told(lambda: fedscope.record(Mine(), tmp_path / "private")) == [
        "Mine clips models or adds noise to their mean: the run holds clients' models as they reach the server, and "
        "global is not their mean"
    ]
    strategy = fedscope.record(Averaging(), tmp_path / "secure", model=Net())
    mean = list(model(0).values())
    results = [result(node, mean, partition=k) for node, k in NODES.items()]
    for _, fit in results:
        fit.parameters = results[0][1].parameters
    strategy.configure_fit(1, parameters(mean), None)
    assert told(lambda: strategy.aggregate_fit(1, results, [])) == [
        f"{tmp_path}/secure: all clients' models are one and the same, as secure aggregation gives their mean alone; "
        "questions about clients have no answer in this run"
    ]
    strategy.recorder.close()
    assert Run.open(tmp_path / "secure").rounds == (1,)


def test_bfloat16_needs_what_knows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def brain(number: int) -> list[Message]:
        found = [reply(n, model(k), partition=k) for n, k in NODES.items()]
        for message in found:
            message.content["arrays"]["a.scale"] = Array(np.zeros(4, "V2"), "bfloat16")  # type: ignore[index]
        return found

    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    strategy = fedscope.record(Emptying(), tmp_path / "run")
    strategy.gives_nothing_in = (1,)
    (sentence,) = told(lambda: play(strategy, brain, 1))
    assert sentence.endswith("a.scale is bfloat16, which needs ml_dtypes; pip install ml_dtypes")
