"""Numbers of a loop under names of its own: columns of the run's table, of ``curves``, of ``table`` and of exports."""

from __future__ import annotations

import csv
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedscope
from fedscope import Recorder
from fedscope.checkpoints import FedscopeError, FedscopeWarning, Run
from fedscope.checkpoints.recorder import round_metrics
from fedscope.checkpoints.rounds import metrics
from fedscope.checkpoints.rounds.metrics import COLUMNS, MADE, further, is_column, read_rows
from fedscope.checkpoints.rounds.round import Round
from fedscope.checkpoints.runs import writer
from fedscope.training.curves.measures import measure_of
from fedscope.training.trackers.export import export_metrics

pytestmark = pytest.mark.same_elsewhere

CLIENTS = [{"w": np.zeros(3, np.float32)}, {"w": np.ones(3, np.float32)}]


def recorded(path: Path, rounds: list[dict[str, Any]], **about: Any) -> Run:
    with Recorder(path, **about) as recorder:
        for numbers in rounds:
            recorder.round(clients=CLIENTS, metrics=numbers)
    return Run.open(path)


def test_numbers_of_other_names_are_columns(tmp_path: Path) -> None:
    """They stayed in the rounds' files, and no table had them."""
    rounds = [{"test_error": 0.5, "f1": 0.25}, {"test_error": 0.4, "val/top-5": 0.75, "f1": None}, {}]
    run = recorded(tmp_path / "run", rounds)
    run = recorded(tmp_path / "run", [{"f1": 0.125, "auroc": 1.5}], resume=True)
    with (tmp_path / "run" / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == [*COLUMNS, "f1", "val/top-5", "auroc", "crc32"]
    assert [row["f1"] for row in rows] == ["0.25", "", "", "0.125"]
    assert [row["val/top-5"] for row in rows] == ["", "0.75", "", ""]
    found = read_rows(tmp_path / "run" / "metrics.csv", run.identity)
    assert (len(found.own), found.strange) == (4, 0)
    for numbers in (run.metrics(), run.all_metrics()):
        np.testing.assert_array_equal(numbers["f1"], [0.25, np.nan, np.nan, 0.125])
        np.testing.assert_array_equal(numbers["auroc"], [np.nan, np.nan, np.nan, 1.5])


def test_they_are_drawn_compared_and_exported(tmp_path: Path) -> None:
    runs = [
        recorded(tmp_path / name, [{"test_error": 0.5, "my_error": 40 + k, "val_accuracy": 0.5}], data="digits")
        for k, name in enumerate(("one", "two"))
    ]
    curves = fedscope.curves(runs, measures=["my_error", "val_accuracy"])
    assert [curve.values["my_error"].tolist() for curve in curves.runs] == [[40.0], [41.0]]
    assert curves.findings()["val_accuracy"]["one"]["mean"] == 0.5
    curves.save(tmp_path / "out")
    assert fedscope.Curves.load(tmp_path / "out").runs[1].values["my_error"].tolist() == [41.0]
    table = fedscope.table(runs, measures="my_error")
    assert sorted(cell.mean for cell in table.cells) == [40.0, 41.0]
    assert not measure_of("my_error").is_share, "nobody says that it is one"
    for ask in (fedscope.curves, fedscope.table):
        with pytest.raises(FedscopeError) as refused:
            ask(runs, measures="my_eror")
        assert "measures='my_eror' is not a column of metrics.csv; did you mean \"my_error\"? there are" in str(
            refused.value
        )
    export_metrics(runs[0], "csv", file=tmp_path / "own.csv")
    with (tmp_path / "own.csv").open() as file:
        assert [row["training/my_error"] for row in csv.DictReader(file)] == ["40.0"]


def test_a_number_is_not_taken_for_the_averaged_model(tmp_path: Path) -> None:
    """``averaged_test_error`` goes before ``test_error``; of numbers of one's own it is another number."""
    run = recorded(tmp_path / "run", [{"f1": 0.25, "averaged_f1": 0.75}])
    assert fedscope.curves(run, measures="f1").findings()["f1"]["run"]["mean"] == 0.25


@pytest.mark.parametrize("name", ["server_rate", "server_rule", "drift_kept", "consensus_start", "crc32", "run"])
def test_names_of_what_the_run_makes_itself_are_refused(name: str, tmp_path: Path) -> None:
    """They were replaced without a word."""
    with Recorder(tmp_path / "run") as recorder:
        with pytest.raises(FedscopeError) as refused:
            recorder.round(clients=CLIENTS, metrics={name: 1})
        said = f"run@1: the metric {name} is called like a column that the run makes itself; give it another name, as"
        assert said in str(refused.value)
        recorder.round(clients=CLIENTS, metrics={f"my_{name}": 7})  # the remedy
    assert Run.open(tmp_path / "run").all_metrics()[f"my_{name}"].tolist() == [7]


def test_a_name_that_is_no_columns_is_told_once(tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = recorded(tmp_path / "run", [{"top 5": 1, "a,b": 2, "é": 3}, {"top 5": 1}])
    (said,) = [str(one.message) for one in caught if one.category is FedscopeWarning]
    assert "run@1: the metric 'top 5' stays in the rounds' files, and is in no table; for a column give it a" in said
    assert run.round(1).metrics["a,b"] == 2
    assert set(run.all_metrics()) == set(COLUMNS)


def test_columns_are_told_from_what_is_none() -> None:
    assert [name for name in (*COLUMNS, "drift_kept", "server_left") if not is_column(name)] == []
    assert [name for name in ("", "a b", "1st", "a,b", 'a"', "a\n", "x" * 81, "crc32", "run") if is_column(name)] == []
    assert further([["x" * 80, "A.b/c@d-1", "run", "lr"]]) == ("x" * 80, "A.b/c@d-1")
    assert MADE.fullmatch("server_lr") is None


def test_a_table_has_so_many_columns_of_a_loops_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a name a client each round would write the whole table anew."""
    monkeypatch.setattr(metrics, "MOST_OWN", 3)
    monkeypatch.setattr(round_metrics, "MOST_OWN", 3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        recorded(tmp_path / "run", [{f"client_{t}_loss": t, "test_error": 0.5} for t in range(3)])
        assert [one for one in caught if one.category is FedscopeWarning] == []
        mended: list[Path] = []
        mend = writer.mend_table

        def counted(path: Path, *rest: Any) -> tuple[str, ...]:
            mended.append(path)
            return mend(path, *rest)

        monkeypatch.setattr(writer, "mend_table", counted)
        run = recorded(tmp_path / "run", [{f"client_{t}_loss": t, "drift_own": t} for t in range(1, 6)], resume=True)
    (said,) = [str(one.message) for one in caught if one.category is FedscopeWarning]
    assert "run@4: the metric 'drift_own' stays in the rounds' files, and is in no table, which has 3 columns" in said
    assert len(mended) == 1, "as the run is opened"
    assert set(run.all_metrics()) == {*COLUMNS, *(f"client_{t}_loss" for t in range(3))}
    np.testing.assert_array_equal(run.all_metrics()["client_2_loss"][2:6], [2, np.nan, 2, np.nan])
    assert run.round(8).metrics["client_5_loss"] == 5


def test_each_rounds_numbers_are_read_once_for_new_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    own = Round.metrics.fget  # type: ignore[attr-defined]

    def counted(one: Round) -> Any:
        read.append(one.number)
        return own(one)

    monkeypatch.setattr(Round, "metrics", property(counted))
    run = recorded(tmp_path / "run", [{f"own_{t}": t} for t in range(6)])
    assert sorted(read) == list(range(1, 7))
    for t in range(6):
        np.testing.assert_array_equal(run.all_metrics()[f"own_{t}"], [t if t == s else np.nan for s in range(6)])
