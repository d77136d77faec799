"""Workers: as many as there are cores, results in order, one thread each, and everybody stops when one fails or the
caller leaves."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from fedscope.distributed.cores import cores
from fedscope.evaluation.device import run_in_workers


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_results_come_in_the_order_of_the_items(workers: int) -> None:
    def task(item: int, context: Any, stop: threading.Event) -> int:
        time.sleep(0.002 * (item % 3 == 0))  # the first of three is overtaken
        return item * item

    assert list(run_in_workers(task, range(30), workers=workers)) == [i * i for i in range(30)]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("count", [0, 1, 2, 40])
def test_an_item_is_taken_only_when_a_worker_is_free(count: int, workers: int) -> None:
    taken, finished, most = 0, 0, 0

    def items() -> Iterator[int]:
        nonlocal taken, most
        for item in range(count):
            taken += 1
            most = max(most, taken - finished)
            yield item

    def task(item: int, context: Any, stop: threading.Event) -> int:
        nonlocal finished
        time.sleep(0.002 * (item == count - 2))  # the last but one ends last
        finished += 1
        return item

    assert list(run_in_workers(task, items(), workers=workers)) == list(range(count))
    assert most <= workers


def test_every_worker_makes_one_context_in_its_own_thread() -> None:
    made: list[int] = []

    def make() -> int:
        made.append(threading.get_ident())
        return threading.get_ident()

    def task(item: int, context: int, stop: threading.Event) -> bool:
        time.sleep(0.001)
        return context == threading.get_ident() and torch.get_num_threads() == 1

    assert all(run_in_workers(task, range(40), make=make, workers=3))
    assert len(made) == len(set(made)) == 3
    assert threading.get_ident() not in made


def test_contexts_of_an_earlier_call_are_used_again() -> None:
    idle: list[object] = [object()]
    first = idle[0]
    for workers in (1, 2, 1):
        assert len(list(run_in_workers(lambda item, context, stop: time.sleep(0.002), range(9), make=object,
                                       workers=workers, idle=idle))) == 9  # fmt: skip
    assert first in idle
    assert len(idle) == 2


def test_the_callers_thread_setting_is_left_alone() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        seen = [torch.get_num_threads() for _ in run_in_workers(lambda item, context, stop: item, range(4), workers=2)]
        assert seen == [2, 2, 2, 2]
        assert torch.get_num_threads() == 2
        later: list[int] = []
        thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
        thread.start()
        thread.join()
        assert later == [2], "threads that start afterwards are not left with one"
    finally:
        torch.set_num_threads(before)


def test_an_exception_stops_the_others_and_is_the_one_raised() -> None:
    done: list[int] = []

    def task(item: int, context: Any, stop: threading.Event) -> int:
        if item == 3:
            raise ValueError("item 3")
        if item > 3 and stop.wait(5):
            raise RuntimeError("told to stop, a consequence")
        done.append(item)
        return item

    with pytest.raises(ValueError, match="item 3"):
        list(run_in_workers(task, range(1000), workers=2))
    assert len(done) < 10
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("fedscope-")]


def test_an_exception_in_make_is_raised() -> None:
    def make() -> None:
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        list(run_in_workers(lambda item, context, stop: item, range(3), make=make, workers=2))


@pytest.mark.parametrize("leave", [KeyboardInterrupt, GeneratorExit])
def test_leaving_the_loop_stops_the_workers(leave: type[BaseException]) -> None:
    started: list[int] = []

    def task(item: int, context: Any, stop: threading.Event) -> int:
        started.append(item)
        return item

    results = run_in_workers(task, itertools.count(), workers=2)
    assert next(results) == 0
    with pytest.raises(leave):
        results.throw(leave)  # type: ignore[attr-defined]
    count = len(started)
    time.sleep(0.02)
    assert len(started) == count
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("fedscope-")]


@pytest.mark.parametrize(("ahead", "most"), [({}, 40), ({"ahead": 2}, 6)])
def test_workers_do_not_run_far_ahead_of_a_slow_caller(ahead: dict[str, int], most: int) -> None:
    started: list[int] = []

    def task(item: int, context: Any, stop: threading.Event) -> int:
        started.append(item)
        return item

    results = run_in_workers(task, itertools.count(), workers=2, **ahead)
    next(results)
    time.sleep(0.1)
    assert len(started) <= most
    results.close()  # type: ignore[attr-defined]


def test_cores_are_those_that_this_process_may_use_or_where_nobody_says_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDSCOPE_CORES", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {1, 4}, raising=False)
    assert cores() == 2
    for most, count in (("1", 1), ("9", 2), ("0", 2), ("", 2), ("x", 2)):  # as a job of this machine is told
        monkeypatch.setenv("FEDSCOPE_CORES", most)
        assert cores() == count
    monkeypatch.delenv("FEDSCOPE_CORES")
    monkeypatch.delattr(os, "sched_getaffinity")
    assert cores() == 6
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert cores() == 1
