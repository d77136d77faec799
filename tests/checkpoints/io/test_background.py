"""Work done beside the caller's: all of it, in order, never more ahead than asked for, and no error is lost."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import threading
import weakref

import pytest

from fedscope.checkpoints import Background

PATIENCE = 20.0  # seconds; only a test that fails waits so long


def test_pieces_are_done_in_order_by_one_other_thread() -> None:
    done: list[tuple[int, int]] = []

    def piece(k: int) -> None:
        done.append((k, threading.get_ident()))

    with Background(limit=3) as background:
        for k in range(20):
            background.add(lambda k=k: piece(k))
    assert [k for k, _ in done] == [*range(20)]
    assert len({who for _, who in done} - {threading.get_ident()}) == 1


@pytest.mark.parametrize("limit", [1, 3])
def test_the_caller_goes_on_until_the_queue_is_full(limit: int) -> None:
    gate, added, done = threading.Event(), threading.Event(), threading.Event()

    def piece() -> None:
        assert gate.wait(PATIENCE)

    with Background(limit) as background:
        for _ in range(limit):
            background.add(piece)  # does not wait, or it would wait for ever
        assert background.waiting == limit

        def one_more() -> None:
            added.set()
            background.add(piece)
            done.set()

        caller = threading.Thread(target=one_more)
        caller.start()
        assert added.wait(PATIENCE)
        assert not done.wait(0.05), "it was added beyond the limit"
        gate.set()
        assert done.wait(PATIENCE)
        caller.join()
        background.wait()
        assert background.waiting == 0


def test_an_error_is_raised_once_and_nothing_behind_it_is_done() -> None:
    gate, done = threading.Event(), []

    def fails() -> None:
        assert gate.wait(PATIENCE)
        raise OSError("the disk is full")

    with Background(limit=3) as background:
        background.add(fails)
        background.add(lambda: done.append("behind"))
        gate.set()
        with pytest.raises(OSError, match="the disk is full"):
            background.wait()
        background.wait()
        with pytest.raises(RuntimeError, match="nothing more is done"):
            background.add(lambda: done.append("later"))
    assert done == []


def test_an_error_of_the_last_piece_is_raised_where_the_work_ends() -> None:
    def fails() -> None:
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"), Background() as background:
        background.add(fails)


def test_what_was_added_is_done_although_the_caller_is_interrupted() -> None:
    gate, done = threading.Event(), []

    def piece() -> None:
        assert gate.wait(PATIENCE)
        done.append(1)

    def interrupted() -> None:
        with Background() as background:
            background.add(piece)
            threading.Timer(0.05, gate.set).start()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert done == [1]


def test_what_is_done_is_not_kept_in_memory() -> None:
    class Large:
        pass

    large = Large()
    there = weakref.ref(large)
    with Background() as background:
        background.add(lambda large=large: None)
        background.wait()
        del large
        gc.collect()
        assert there() is None


def test_a_piece_for_which_no_thread_starts_is_done_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stayed in the queue, and the thread that could be started for the next piece did it again."""
    own, refused, done = threading.Thread.start, [1, 2], []

    def start(thread: threading.Thread) -> None:
        if refused:
            refused.pop()
            raise RuntimeError("can't start new thread")
        own(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    with Background() as background:
        for k in range(5):
            background.add(lambda k=k: done.append((k, threading.get_ident())))
    assert [k for k, _ in done] == [*range(5)]
    assert [who == threading.get_ident() for _, who in done] == [True, True, False, False, False]


def test_a_queue_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match=r"limit 0 is not a number of pieces; give 1 or more"):
        Background(0)


def test_what_is_added_as_the_program_ends_is_done_at_once() -> None:
    code = """
        import atexit
        from fedscope.checkpoints import Background

        background = Background()
        background.add(lambda: print("first"))
        atexit.register(lambda: background.add(lambda: print("last")))
    """
    done = subprocess.run([sys.executable, "-P", "-c", textwrap.dedent(code)], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("first\nlast\n", "")
    background = Background()
    background.close()
    with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
        background.add(list)
