"""Rounds written while the next is played: the same files, however late, and nothing complete is lost."""

from __future__ import annotations

import errno
import os
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from few import few
from in_memory import contents

from fedscope.checkpoints import FedscopeError, RoundRecord, Run
from fedscope.training import Config, resume, train
from fedscope.training.local.profile import Profile
from fedscope.training.loop import background_recorder as module
from fedscope.training.loop.federation import Unwatched
from fedscope.training.settings.registry import names

PATIENCE = 20.0  # seconds; only a test that fails waits so long


def config(client: str = "sgd", server: str = "fma", average: str = "none", /, **run: Any) -> Config:
    averages = {"ima": {"start": 2, "window": 2}, "wima": {"window": 2}, "swa": {"start": 2, "cycle": 2}}
    return Config.read(
        {
            "data": {"clients": 5},
            "model": {"hidden": [4]},
            "client": {"method": client, "epochs": 1, "batch": 40},
            "server": {"method": server, **({"samples": 20} if server == "fisher" else {})},
            "average": {"method": average, **averages.get(average, {})},
            "run": {"rounds": 4, "participation": 0.6, "evaluate_clients": 0, **run},
        }
    )


class Late:
    """As :class:`fedscope.checkpoints.Background`, but a piece is done at the last moment that is allowed."""

    def __init__(self) -> None:
        self.pieces: deque[Callable[[], None]] = deque()

    def add(self, work: Callable[[], None]) -> None:
        self.wait()
        self.pieces.append(work)

    def wait(self) -> None:
        while self.pieces:
            self.pieces.popleft()()

    @property
    def waiting(self) -> int:
        return len(self.pieces)

    def __enter__(self) -> Late:
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()


def files(run: Run) -> dict[str, dict[str, bytes]]:
    return {str(path.relative_to(run.path)): contents(path) for path in sorted(run.path.rglob("*.h5"))}


METHODS = [
    *((client, "fma", "none") for client in names("clients")),
    *(("sgd", server, "none") for server in names("servers")),
    *(("sgd", "fma", average) for average in names("averages")),
]


#: with states of clients, of the server, of an average; without; with models beside
ORDINARY = ("sgd", "scaffold", "feddyn", "moon", "fedbabu", "ditto", "fedmoswa")
SERVING = ("fma", "feddyn", "fedadam", "fedavgm", "fedmoswa", "fedacg", "diloco")


@pytest.mark.parametrize(
    "methods",
    few(METHODS, lambda methods: methods[0] in ORDINARY and methods[1] in SERVING),
    ids=lambda methods: "-".join(methods),
)
def test_what_a_round_wrote_last_is_what_it_was_when_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, methods: tuple[str, str, str]
) -> None:
    # nothing of a record may be overwritten by the next round, whose server and average move states of their own
    at_once = train(config(*methods), tmp_path / "at_once", profile=Profile())
    monkeypatch.setattr(module, "Background", Late)
    late = train(config(*methods), tmp_path / "late")
    assert files(late) == files(at_once)
    assert len(files(late)) >= 4


class Sees(Unwatched):
    """Which rounds were told of, and whether they could be read then; ``then`` is done at each client."""

    def __init__(self, path: Path, then: Callable[[int], None] | None = None) -> None:
        self.path, self.then, self.told, self.readable = path, then, [], []
        self.playing = 0

    def client(self, round: int, done: int, of: int) -> None:
        self.playing = round
        if self.then is not None:
            self.then(round)

    def round(self, record: RoundRecord, of: int) -> None:
        self.told.append(record.round)
        self.readable.append(record.round in Run.open(self.path).rounds)


def test_a_round_is_written_while_the_next_one_is_played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = threading.Event()  # a client of round 2
    real = module.record_round
    written_by = set()

    def waits(writer: Any, record: RoundRecord, *more: Any) -> None:
        if record.round == 1:
            assert trained.wait(PATIENCE), "round 2 waits for round 1 to be written"
        written_by.add(threading.get_ident())
        real(writer, record, *more)

    monkeypatch.setattr(module, "record_round", waits)
    watcher = Sees(tmp_path / "run", lambda round: trained.set() if round == 2 else None)
    assert train(config(), tmp_path / "run", watcher=watcher).rounds == (1, 2, 3, 4)
    assert watcher.told == [1, 2, 3, 4]
    assert all(watcher.readable), "a round was told of before it was durable"
    assert len(written_by) == 1
    assert threading.get_ident() not in written_by


@pytest.mark.parametrize("how", ["large", "profile"])
def test_a_large_round_is_written_before_the_next_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    if how == "large":
        monkeypatch.setattr(module, "BESIDE", 100)
    watcher = Sees(tmp_path / "run")
    real, seen = module.record_round, []

    def looks(*more: Any) -> None:
        seen.append((watcher.playing, threading.get_ident()))
        real(*more)

    monkeypatch.setattr(module, "record_round", looks)
    train(config(), tmp_path / "run", watcher=watcher, profile=Profile() if how == "profile" else None)
    assert seen == [(t, threading.get_ident()) for t in (1, 2, 3, 4)]
    assert watcher.told == [1, 2, 3, 4]


def test_an_interrupt_amid_a_round_loses_no_round_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted, real = threading.Event(), module.record_round

    def waits(writer: Any, record: RoundRecord, *more: Any) -> None:
        if record.round == 2:
            assert interrupted.wait(PATIENCE)
        real(writer, record, *more)

    def interrupt(round: int) -> None:
        if round == 3:
            threading.Timer(0.05, interrupted.set).start()
            raise KeyboardInterrupt

    monkeypatch.setattr(module, "record_round", waits)
    watcher = Sees(tmp_path / "run", interrupt)
    with pytest.raises(KeyboardInterrupt):
        train(config(), tmp_path / "run", watcher=watcher)
    assert Run.open(tmp_path / "run").rounds == (1, 2)
    assert watcher.told == [1, 2]
    assert files(resume(tmp_path / "run")) == files(train(config(), tmp_path / "whole"))


@pytest.mark.parametrize("at", [2, 4])
def test_a_disk_that_fills_ends_the_training_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    real, sync = module.record_round, os.fsync

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def fills(writer: Any, record: RoundRecord, *more: Any) -> None:
        monkeypatch.setattr(os, "fsync", full if record.round == at else sync)
        real(writer, record, *more)

    monkeypatch.setattr(module, "record_round", fills)
    watcher = Sees(tmp_path / "run")
    with pytest.raises(FedscopeError, match=rf"full.*round {at - 1}|round {at - 1}.*full|No space"):
        train(config(), tmp_path / "run", watcher=watcher)
    assert watcher.told == [*range(1, at)], "a round that is not on the disk was told of"
    assert watcher.playing <= at + 1
    monkeypatch.undo()
    assert Run.open(tmp_path / "run").rounds == tuple(range(1, at))
    assert files(resume(tmp_path / "run")) == files(train(config(), tmp_path / "whole"))
