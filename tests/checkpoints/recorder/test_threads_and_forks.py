"""Recorders that several threads use, and those of a process that was forked."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from fedscope import Recorder
from fedscope.checkpoints import FedscopeError, Run


def test_rounds_of_several_threads_are_all_kept(tmp_path: Path) -> None:
    def model(value: float) -> dict[str, np.ndarray]:
        return {"w": np.full(20_000, value, np.float32)}

    with Recorder(tmp_path / "run") as recorder:
        with ThreadPoolExecutor(4) as threads:
            rounds = [
                threads.submit(recorder.round, start=model(k), clients={k % 5: model(k + 1.0)}) for k in range(20)
            ]
        for one in rounds:
            one.result()
        assert recorder.accepted == recorder.flush() == 20
    starts = sorted(float(Run.open(tmp_path / "run").round(t).read("start").parameters[0]) for t in range(1, 21))
    assert starts == list(range(20))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system starts processes in another way")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_of_the_process_is_refused_and_waits_for_nothing(tmp_path: Path) -> None:
    """The thread that writes is not in it."""
    with Recorder(tmp_path / "run") as recorder:
        recorder.round(clients={0: {"w": np.zeros(3)}})
        child = os.fork()
        if not child:  # which must not go on with the tests
            said = "nothing"
            try:
                recorder.round(clients={0: {"w": np.ones(3)}})
            except FedscopeError as error:
                said = str(error)
            recorder.flush()
            recorder.close()
            (tmp_path / "said").write_text(said)
            os._exit(0)
        os.waitpid(child, 0)
        recorder.round(clients={0: {"w": np.ones(3)}})
        assert recorder.flush() == 2
    assert (tmp_path / "said").read_text() == (
        f"{tmp_path / 'run'}: the recorder belongs to process {os.getpid()}, of which this one is a fork, and what is "
        "written here would be lost; record in that process, or make a Recorder with another path here"
    )
