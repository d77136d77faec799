"""Warnings at the user's line, however many calls of fedscope's and of Python's own lie between."""

from __future__ import annotations

import inspect
import subprocess
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedscope import Recorder, record_blazefl
from fedscope.checkpoints import FedscopeWarning
from fedscope.checkpoints.io.warn_user import warn_user

X, Y = np.zeros((4, 3), np.float32), np.arange(4)


def told(work: Callable[[], Any]) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        work()
    assert all(one.category is FedscopeWarning for one in caught)
    return caught


def ours(code: str, **named: Any) -> Callable[..., Any]:
    """A function as if a file of fedscope's had it."""
    place: dict[str, Any] = {"__name__": "fedscope.checkpoints.odd", "warn_user": warn_user, **named}
    exec(compile(code, "odd.py", "exec"), place)
    made: Callable[..., Any] = place["work"]
    return made


DIRECT = "def work(): warn_user('it is odd')"
LAYERS = """
from contextlib import contextmanager
from functools import reduce
@contextmanager
def inner():
    warn_user("it is odd")
    yield
def work():
    with inner():
        reduce(lambda a, b: warn_user("it is odd, too"), [1, 2])
"""


@pytest.mark.parametrize(("code", "count"), [(DIRECT, 1), (LAYERS, 2)])
def test_the_line_is_the_users(code: str, count: int) -> None:
    work = ours(code)
    line = inspect.getsourcelines(test_the_line_is_the_users)[1] + 4
    caught = told(lambda: work())
    assert [(one.filename, one.lineno) for one in caught] == [(__file__, line)] * count


def test_a_line_warns_once_as_those_of_python_do() -> None:
    work = ours(DIRECT)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            work()
        work()
    assert [one.lineno - caught[0].lineno for one in caught] == [0, 1]


def test_in_a_thread_of_its_own_it_is_told_all_the_same() -> None:
    with ThreadPoolExecutor(1) as threads:
        (one,) = told(lambda: threads.submit(ours(DIRECT)).result())
    assert str(one.message) == "it is odd"
    assert one.filename != __file__


def test_recorders_name_the_line_that_has_called_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same warning comes from one call deeper where a framework's recorder makes the recorder."""
    monkeypatch.setattr("fedscope.checkpoints.recorder.framework_rounds.version", {"blazefl": "1.0.0"}.__getitem__)
    about: dict[str, Any] = {"data": (X, Y), "partition": {0: [0, 1]}}

    class Handler:
        def downlink_package(self) -> None: ...

        load = global_update = downlink_package

    handler = Handler()
    caught = told(lambda: Recorder(tmp_path / "one", **about).close())
    caught += told(lambda: record_blazefl(handler, tmp_path / "two", **about))
    assert ["partition= is taken" in str(one.message) for one in caught] == [True, False, True]
    assert [one.filename for one in caught] == [__file__] * 3


@pytest.mark.parametrize("left", ["", "x = 1\n"], ids=["deleted", "shortened"])
def test_a_program_whose_file_has_changed_since_is_warned_all_the_same(left: str, tmp_path: Path) -> None:
    """Its source is not read again: a training would end by it."""
    program = tmp_path / "program.py"
    program.write_text(
        "import pathlib, sys\n"
        "from fedscope.checkpoints.io.warn_user import warn_user\n"
        "here = pathlib.Path(__file__)\n"
        f"here.write_text({left!r}) if {left!r} else here.unlink()\n"
        "\n\n\nwarn_user('something is odd')\nprint('went on')\n"
    )
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "went on\n"), done.stderr
    assert "something is odd" in done.stderr
