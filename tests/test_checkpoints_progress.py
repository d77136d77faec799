"""What an interrupted analysis had computed, and which software computed it."""

from __future__ import annotations

import math
import platform
import subprocess
import sys

import numpy as np
import pytest

from fedscope.checkpoints import Partial, versions

QUESTION = {"grid": 51, "models": ["a", "b"], "limit": None}


def fill(path, keys):
    with Partial(path, QUESTION) as store:
        for key in keys:
            store.add(key, {"loss": float(key), "nan": math.nan})


def test_the_same_question_goes_on(tmp_path):
    path = tmp_path / "figures/plane.partial"
    fill(path, "12")
    fill(path, "3")
    store = Partial(path, dict(reversed(QUESTION.items())))
    assert list(store.done) == ["1", "2", "3"]
    assert store.done["3"]["loss"] == 3.0
    assert math.isnan(store.done["3"]["nan"])
    store.finish()
    assert not path.exists()


def test_another_question_starts_afresh(tmp_path):
    fill(tmp_path / "p", "12")
    with Partial(tmp_path / "p", {**QUESTION, "grid": 21}) as other:
        assert other.done == {}
        other.add("7", 1)
    assert Partial(tmp_path / "p", QUESTION).done == {}
    assert Partial(tmp_path / "p", {**QUESTION, "grid": 21}).done == {"7": 1}


@pytest.mark.parametrize("torn", [1, 10, 40])
def test_a_torn_last_line_is_left_out_and_written_over(tmp_path, torn):
    fill(tmp_path / "p", "123")
    (tmp_path / "p").write_bytes((tmp_path / "p").read_bytes()[:-torn])
    store = Partial(tmp_path / "p", QUESTION)
    before = set(store.done)
    assert before < {"1", "2", "3"}
    with store:
        store.add("4", 4)
    assert set(Partial(tmp_path / "p", QUESTION).done) == {*before, "4"}


def test_what_was_added_survives_a_kill(tmp_path):
    code = (
        "import os, sys; from fedscope.checkpoints import Partial; s = Partial(sys.argv[1], {'q': 1}); "
        "s.add('1', [0.1, 0.2]); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-P", "-c", code, str(tmp_path / "p")], check=False)
    assert Partial(tmp_path / "p", {"q": 1}).done == {"1": [0.1, 0.2]}


def test_versions_are_said_without_importing_torch():
    said = versions()
    assert list(said) == ["fedscope", "torch", "python", "numpy"]
    assert said["python"] == platform.python_version()
    assert said["numpy"] == np.__version__
    code = "import sys; from fedscope.checkpoints import versions; versions(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-P", "-c", code]).returncode == 0
