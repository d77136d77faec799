"""Runs that keep sketches of their clients' updates in place of their models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedscope
from fedscope.checkpoints import FedscopeError, Run
from fedscope.checkpoints.rounds.verify import check_round
from fedscope.cli.main import run as command
from fedscope.training import Config, merge, train

SMALL: dict[str, Any] = {
    "data": {"clients": 12, "partition": "shards:2"},
    "client": {"epochs": 1},
    "run": {"rounds": 3, "participation": 0.5, "evaluate_clients": 0, "evaluate_every": 3},
}


def trained(path: Path, **record: Any) -> Run:
    return train(Config.read(merge(SMALL, {"record": record})), path)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    folder = tmp_path_factory.mktemp("sketched")
    return trained(folder / "exact"), trained(folder / "sketched", sketch=4096, clients="none", globals="none")


def test_nothing_else_changes_and_the_file_holds_the_sketches(runs: tuple[Run, Run], tmp_path: Path) -> None:
    exact, sketched = runs
    for t in exact.rounds:
        one, other = exact.round(t), sketched.round(t)
        assert (other.has_clients, other.has_sketch, one.has_sketch) == (False, True, False)
        np.testing.assert_array_equal(one.client_ids, other.client_ids)
        assert other.sketch().shape == (6, 4096)
        assert check_round(other).faults == ()
    same = exact.round(3).read("global").parameters
    np.testing.assert_array_equal(sketched.round(3).read("global").parameters, same)
    assert sketched.round(2).models == ()
    assert sketched.round(2).path.stat().st_size < exact.round(2).path.stat().st_size / 2
    # another way to train it, and to keep it, gives the same bits
    both = trained(tmp_path / "both", sketch=4096)
    for t in both.rounds:
        assert both.round(t).sketch().tobytes() == sketched.round(t).sketch().tobytes()


def test_updates_are_told_from_sketches_within_their_error(runs: tuple[Run, Run]) -> None:
    exact, sketched = (fedscope.updates(run) for run in runs)
    for one, other in zip(exact.findings()["rounds"], sketched.findings()["rounds"], strict=True):
        assert (one.get("sketch"), other["sketch"]) == (None, 4096)
        # lengths are off by 1.1 %, one deviation; of means over six clients less
        for name in ("mean_norm", "norm_of_mean"):
            assert other[name] == pytest.approx(one[name], rel=5 * np.sqrt(1 / 2 / 4096))
        assert other["cosine_mean"] == pytest.approx(one["cosine_mean"], abs=5 / np.sqrt(4096))
        assert other["cosine_mean"] != one["cosine_mean"]
    said = sketched.summary()
    assert said.endswith(
        "; rounds 1-3 from sketches of 4,096 numbers a client: a length is off by 1.1 %, the cosine ρ of a pair by "
        "(1 − ρ²) 0.016 (one standard deviation)"
    )
    assert "sketch" not in exact.summary()
    drawn, plain = (" ".join(text.get_text() for text in one.figure().texts) for one in (sketched, exact))
    told = "rounds 1-3 from sketches of 4,096 numbers a client, cosines off by up to 0.016, one standard deviation"
    assert told in " ".join(drawn.split())
    assert "sketch" not in plain


def test_the_command_keeps_and_reads_back_what_it_was_told_from(
    runs: tuple[Run, Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, sketched = runs
    words = ["updates", str(sketched.path), "--out", str(tmp_path / "u")]
    assert command(words) == 0
    printed = capsys.readouterr().out
    assert "from sketches of 4,096 numbers a client" in printed
    assert command([*words, "--redraw", "--json"]) == 0
    assert [row["sketch"] for row in json.loads(capsys.readouterr().out)["rounds"]] == [4096] * 3
    assert command(["ls", "--check", str(sketched.path)]) == 0
    capsys.readouterr()
    assert command(["ls", str(sketched.path)]) == 0
    assert "with sketches 1-3" in " ".join(capsys.readouterr().out.split())


def test_models_are_taken_where_there_are_some(tmp_path: Path) -> None:
    run = trained(tmp_path / "mixed", sketch=64, clients=[2])
    rows = fedscope.updates(run).findings()["rounds"]
    assert [row.get("sketch", 0) for row in rows] == [64, 0, 64]


def test_a_run_with_sketches_is_resumed_and_branched(tmp_path: Path) -> None:
    from fedscope.training import branch

    whole = trained(tmp_path / "whole", sketch=64)
    other = branch(whole, 2, {"server": {"method": "fedswa"}}, tmp_path / "branch")
    assert other.round(2).sketch().tobytes() == whole.round(2).sketch().tobytes()
    assert other.round(3).has_sketch


@pytest.mark.parametrize("size", [1, 15, 1_000_001])
def test_sizes_that_say_nothing_are_refused(size: int) -> None:
    said = (
        rf"record\.sketch = {size} is not a size for a sketch, .* give 16 to 1,000,000 numbers a client, or 0 for none"
    )
    with pytest.raises(FedscopeError, match=said):
        Config.read({"record": {"sketch": size}})
