"""A run whose last round's file was cut: where it can be made again, it is said, and gives the same run."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from fedscope.checkpoints import FedscopeError, Run
from fedscope.training import Config, merge, preset, resume, train

pytestmark = pytest.mark.usefixtures("few_digits")

SMALL = {
    "data": {"clients": 4},
    "model": {"hidden": [6]},
    "client": {"epochs": 1},
    "run": {"rounds": 5, "participation": 0.5},
}
AVERAGED = {"average": {"start": 2, "window": 2}}
#: method, settings, and whether the round before the last has all that a resume needs
KINDS: dict[str, tuple[str, dict[str, Any], bool]] = {
    "fma": ("fma", {}, True),
    "ima": ("ima", AVERAGED, True),
    "scaffold": ("scaffold", {}, True),
    "fedadam": ("fedadam", {}, True),
    "every other global": ("ima", {**AVERAGED, "record": {"globals": "every:2", "clients": "none"}}, True),
    "few globals": ("ima", {**AVERAGED, "record": {"globals": "every:3", "clients": "none"}}, False),
    "last clients": ("scaffold", {"record": {"clients": "last"}}, False),
}


def cut(path: Path, bytes: int) -> None:
    path.write_bytes(path.read_bytes()[:bytes])


@pytest.mark.parametrize("bytes", [0, 900])
@pytest.mark.parametrize("until", [3, None])
@pytest.mark.parametrize("kind", KINDS)
def test_the_remedy_is_named_where_it_gives_the_same_run(
    tmp_path: Path, kind: str, until: int | None, bytes: int
) -> None:
    """A complete run was "complete", and one that had stopped was to be copied again only."""
    method, sections, can = KINDS[kind]
    can |= kind == "last clients" and until is not None  # both rounds' are kept, of clients who were not in the other
    whole = train(Config.read(merge(preset(method), SMALL, sections)), tmp_path / "whole", until=until)
    shutil.copytree(whole.path, path := tmp_path / "run")
    last = whole.rounds[-1]
    cut(file := path / f"rounds/{last:05d}.h5", bytes)
    with pytest.raises(FedscopeError) as caught:
        resume(path)
    says = f"{file} is truncated ({bytes} bytes are left of it); it should be a round of a fedscope run: copy it again"
    more = "; or move that file elsewhere and give the same command again, which trains round "
    assert str(caught.value) == says + (f"{more}{last} anew, to the same numbers" if can else "")
    if can:
        file.rename(tmp_path / "elsewhere.h5")
        expected = whole if until is None else resume(whole.path)
        same(resume(path), expected)


def test_a_damaged_last_round_of_a_complete_run_is_not_called_complete(tmp_path: Path) -> None:
    run = train(Config.read(merge(preset("fma"), SMALL)), tmp_path / "run")
    file = run.path / "rounds/00005.h5"
    with h5py.File(file, "r+") as held:
        held["global/fc1.bias"][0] += 1
    with pytest.raises(FedscopeError) as caught:
        resume(run.path)
    assert str(caught.value).startswith(f"{file} is damaged: ")
    assert str(caught.value).endswith(
        f"; restore it from a copy, or train again from the round before: fedscope train --from {run.path}@4; or move "
        "that file elsewhere and give the same command again, which trains round 5 anew, to the same numbers"
    )


def same(one: Run, other: Run) -> None:
    assert one.rounds == other.rounds
    for t in one.rounds:
        for which in one.round(t).models:
            a, b = (run.round(t).read(which).parameters for run in (one, other))
            assert a.tobytes() == b.tobytes(), (t, which)
    for name, values in one.metrics().items():
        if name != "seconds":
            np.testing.assert_array_equal(values, other.metrics()[name])
