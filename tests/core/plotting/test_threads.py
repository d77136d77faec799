"""Figures that several threads draw at once: the settings of the process are afterwards what they were, and so are the
figures."""

from __future__ import annotations

import logging
import multiprocessing
import os
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import matplotlib
import pytest
from drawable import surface, two_pairs

from fedscope.plotting.style import paper_style
from fedscope.plotting.user_style import style
from fedscope.results.pictures import in_turn, picture_of

pytestmark = pytest.mark.same_elsewhere


def settings() -> dict[str, str]:
    return {name: str(value) for name, value in matplotlib.rcParams.items()}


def test_two_threads_that_take_turns_within_a_style_leave_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first would end between the second one's beginning and end, and what it put back would be taken away."""
    monkeypatch.setitem(matplotlib.rcParams, "lines.linewidth", 7.5)
    before, filters, level = settings(), list(warnings.filters), logging.getLogger("matplotlib.mathtext").level
    within, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def first() -> None:
        with paper_style():
            within.set()
            go_on.wait(10)
        ended.set()

    def second() -> None:
        within.wait(10)
        with paper_style():
            go_on.set()
            ended.wait(10)

    threads = [threading.Thread(target=one) for one in (first, second)]
    for one in threads:
        one.start()
    within.wait(10)
    threads[1].join(0.5)  # which waits for the first, as it should
    go_on.set()
    for one in threads:
        one.join(20)
    assert not any(one.is_alive() for one in threads)
    assert settings() == before
    assert warnings.filters == filters
    assert logging.getLogger("matplotlib.mathtext").level == level


def test_figures_of_threads_are_those_of_one() -> None:
    def picture(seed: int) -> bytes:
        with style(rc={"lines.linewidth": 1.0 + seed % 2}):
            result: Any = two_pairs() if seed % 2 else surface(seed)
            return picture_of(result.figure(), dpi=60)

    before = settings()
    alone = [picture(seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(picture, range(4))) == alone
    assert settings() == before


def test_the_users_settings_are_read_when_nobody_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(matplotlib.rcParams, "lines.linewidth", 7.5)
    found: list[Any] = []
    reader = threading.Thread(target=lambda: found.append(style(rc="user")._changes["settings"]))
    with paper_style():
        reader.start()
        reader.join(0.5)
    reader.join(20)
    assert found[0]["lines.linewidth"] == 7.5


def test_a_figure_is_drawn_within_another() -> None:
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(paper_style())
        assert picture_of(surface().figure(), dpi=40).startswith(b"\x89PNG")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_process_that_is_forked_while_a_thread_draws_can_draw() -> None:
    within, go_on = threading.Event(), threading.Event()

    def draw() -> None:
        with in_turn():
            within.set()
            go_on.wait(60)

    def child() -> None:
        with in_turn():
            os._exit(7)

    drawing = threading.Thread(target=draw)
    drawing.start()
    within.wait(10)
    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(30)
    code = process.exitcode
    if code is None:
        process.kill()
    go_on.set()
    drawing.join(20)
    assert code == 7
