"""Runs: created, written, gone on with, read; metrics and what a resume needs."""

from __future__ import annotations

import json
import os
import warnings
import zlib
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from fedscope.analysis.rounds import parse_rounds
from fedscope.checkpoints import (
    COLUMNS,
    FedscopeError,
    Layout,
    Partition,
    RoundRecord,
    Run,
    RunWriter,
    TensorEntry,
    Weights,
    WriterLock,
    find_runs,
    size_of,
)
from fedscope.checkpoints.io.atomic import LOCK_NAME
from fedscope.checkpoints.io.locks import hold, sign
from fedscope.checkpoints.io.processes import Process
from fedscope.checkpoints.runs import folders
from fedscope.checkpoints.runs.run import lacking_words, rounds_agreed, same_rounds, warn_of_gaps

pytestmark = pytest.mark.same_elsewhere

LAYOUT = Layout((TensorEntry("w", (3,), "float32", "parameter"), TensorEntry("n", (), "int64", "buffer")))
INFO = {"created": "2026-01-01T00:00:00+00:00", "layout": LAYOUT.to_json(), "clients": 3, "classes": 2}
CONFIG = {"run": {"rounds": 9}, "average": {"start": None}, "record": {"compression": "none"}}
PARTITION = Partition(
    (np.array([0, 2]), np.array([], np.int64), np.array([1])), None, np.array([[1, 1], [0, 0], [0, 1]])
)


def one(value: float) -> Weights:
    return Weights(LAYOUT, np.full(3, value, np.float32), {"n": np.array(int(value))})


def record(t: int, **metrics: float | None) -> RoundRecord:
    ids = np.array([1, 2])
    clients = Weights(LAYOUT, np.full((2, 3), t, np.float32), {"n": np.array([t, t])})
    numbers = {"lr": 0.1 / t, "participants": 2, "test_loss": 1 / t, "test_error": float("nan"), **metrics}
    return RoundRecord(
        t, one(t - 1), clients, one(t), None, ids, ids, ids, ids / 1, np.array([0.5, 0.5]), metrics=numbers
    )


def create(path: Path, rounds: int = 0, **kwargs: object) -> Run:
    with RunWriter.create(path, INFO, CONFIG, PARTITION, **kwargs) as writer:
        for t in range(1, rounds + 1):
            writer.write(record(t))
    return Run.open(path)


def test_a_run_comes_back(tmp_path):
    run = create(tmp_path / "ima", 3)
    assert run.name == "ima"
    assert run.rounds == (1, 2, 3)
    assert run.info["format"] == "fedscope-run"
    assert run.info["version"] == 1
    assert run.layout == LAYOUT
    assert run.config == {"run": {"rounds": 9}, "average": {}, "record": {"compression": "none"}}
    assert [part.tolist() for part in run.partition.clients] == [[0, 2], [], [1]]
    assert run.partition.test is None
    np.testing.assert_array_equal(run.partition.label_counts, PARTITION.label_counts)
    assert run.round("last").number == run.round(-1).number == run.round(3).number == 3
    assert run.round(-3).number == 1
    assert run.round(2).read("global").parameters.tolist() == [2, 2, 2]


def test_partition_with_test_parts_comes_back(tmp_path):
    made = replace(PARTITION, test=(np.array([5]), np.array([6, 7]), np.array([], np.int64)))
    made.save(tmp_path / "partition.h5")
    again = Partition.load(tmp_path / "partition.h5")
    assert [part.tolist() for part in again.test] == [[5], [6, 7], []]
    assert all(part.dtype == np.int64 for part in (*again.clients, *again.test))


def test_the_delta_of_the_configuration_is_what_is_written(tmp_path):
    config = {"record": {"compression": "delta"}}
    with RunWriter.create(tmp_path / "ima", INFO, config, PARTITION) as writer:
        writer.write(record(1))
    import h5py

    with h5py.File(tmp_path / "ima/rounds/00001.h5") as file:
        assert file["clients/w"].attrs["encoding"] == "delta"
    assert Run.open(tmp_path / "ima").round(1).client(2).parameters.tolist() == [1, 1, 1]
    with pytest.raises(FedscopeError, match=r"record.compression = 'zip' is unknown; give"):
        RunWriter.create(tmp_path / "zip", INFO, {"record": {"compression": "zip"}}, None)
    assert not (tmp_path / "zip").exists()


def test_metrics_are_columns_with_nan_where_empty(tmp_path):
    run = create(tmp_path / "ima", 3)
    lines = (tmp_path / "ima/metrics.csv").read_text().splitlines()
    assert lines[0] == (
        "round,lr,participants,train_loss,test_loss,test_error,averaged_test_loss,averaged_test_error,"
        "client_error_mean,client_error_std,seconds,client_test_error_mean,client_test_error_std,"
        "parameters_down,parameters_up,crc32"
    )
    assert lines[2] == f"2,0.05,2,,0.5,,,,,,,,,,,{zlib.crc32(b'2,0.05,2,,0.5,,,,,,,,,,'):08x}"
    metrics = run.metrics()
    assert tuple(metrics) == COLUMNS
    assert metrics["round"].tolist() == [1, 2, 3]
    assert metrics["test_loss"].tolist() == [1, 1 / 2, 1 / 3]
    assert np.isnan(metrics["test_error"]).all()
    assert all(values.dtype == np.float64 for values in metrics.values())


def test_infinite_losses_stay_infinite(tmp_path):
    with RunWriter.create(tmp_path / "ima", INFO, CONFIG, PARTITION) as writer:
        writer.write(record(1, train_loss=float("inf")))
    run = Run.open(tmp_path / "ima")
    assert run.metrics()["train_loss"].tolist() == [float("inf")]
    (tmp_path / "ima/metrics.csv").unlink()
    assert run.metrics()["train_loss"].tolist() == [float("inf")]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda table: table.unlink(),
        lambda table: table.write_text(""),
        lambda table: table.write_text(table.read_text()[:-9]),  # a torn last row
        lambda table: table.write_text(table.read_text() + "4,0.1,2,,0.25,,,,,,\n"),  # a round that is not there
        lambda table: table.write_text("".join(table.read_text().splitlines(keepends=True)[:-1])),
        lambda table: table.write_text(table.read_text().replace("2,0.05,2,,0.5,", "2,0.05,2,,0.7,")),
        lambda table: table.write_text(table.read_text() + table.read_text().splitlines(keepends=True)[-1]),
    ],
)
def test_metrics_are_rebuilt_from_the_rounds(tmp_path, spoil):
    create(tmp_path / "ima", 3)
    table = tmp_path / "ima/metrics.csv"
    whole = table.read_bytes()
    spoil(table)
    RunWriter.open(tmp_path / "ima").close()
    assert table.read_bytes() == whole


def test_a_reader_fills_in_what_the_table_lacks_and_writes_nothing(tmp_path):
    run = create(tmp_path / "ima", 3)
    table = tmp_path / "ima/metrics.csv"
    torn = table.read_text()[:-9] + "\n9,1,1,1,1,1,1,1,1,1,1\n1,0.05"
    table.write_text(torn)
    assert run.metrics()["test_loss"].tolist() == [1, 1 / 2, 1 / 3]
    assert table.read_text() == torn


def test_rounds_are_written_in_order_and_of_the_run(tmp_path):
    with RunWriter.create(tmp_path / "ima", INFO, CONFIG, PARTITION) as writer:
        writer.write(record(1))
        with pytest.raises(FedscopeError, match=r"round 3 cannot follow round 1"):
            writer.write(record(3))
        with pytest.raises(FedscopeError, match=r"round 1 cannot follow round 1"):
            writer.write(record(1))
        other = Layout((TensorEntry("v", (3,), "float32", "parameter"),))
        misfit = replace(record(2), global_=Weights(other, np.zeros(3, np.float32), {}))
        with pytest.raises(FedscopeError, match=r"global of round 2 misfits: w stands where the other has v"):
            writer.write(misfit)


def test_going_on_sweeps_and_appends(tmp_path):
    create(tmp_path / "ima", 2)
    (tmp_path / "ima/rounds/.00003.h5.tmp").write_bytes(b"half")
    (tmp_path / "ima/kept/states").mkdir(parents=True)
    (tmp_path / "ima/kept/states/.00003.h5.tmp").write_bytes(b"half")
    with RunWriter.open(tmp_path / "ima") as writer:
        assert writer.last == 2
        writer.write(record(3))
    assert sorted(p.name for p in (tmp_path / "ima/rounds").iterdir()) == ["00001.h5", "00002.h5", "00003.h5"]
    assert not list((tmp_path / "ima/kept/states").iterdir())
    assert (tmp_path / "ima/metrics.csv").read_text().splitlines()[-1].startswith("3,")


def test_what_is_kept_beside_a_round_is_found_until_it_is_forgotten(tmp_path):
    vectors = np.arange(12, dtype=np.float32).reshape(-1, 3)[:2]
    nothing = {"clients": None, "start": None, "global_": None}
    with RunWriter.create(tmp_path / "ima", INFO, CONFIG, PARTITION) as writer:
        for t in (1, 2, 3):
            writer.keep(replace(record(t), **nothing, client_state={"h": vectors + t, "n": np.arange(2)}), "clients")
            writer.keep(replace(record(t), **{**nothing, "global_": one(t)}), "globals")
            writer.keep(replace(record(t), **nothing, state={"m": np.ones(3)}), "states")
            writer.write(replace(record(t), global_=None))
        writer.forget("clients", {1, 2, 3})
        writer.forget("globals", {2, 3})
        writer.forget("states", {3})
        run = Run.open(tmp_path / "ima")
        assert [len(run.files_of(t)) for t in (1, 2, 3, 4)] == [2, 3, 4, 0]
        own, globals_, clients = run.files_of(2)
        assert own.is_round
        assert not clients.is_round
        assert "global" not in own.models
        assert globals_.read("global").parameters.tolist() == [2, 2, 2]
        assert clients.client_state("h", own.client_ids[1:]).tolist() == (vectors[1:] + 2).tolist()
        assert clients.client_state("n").tolist() == [0, 1]
        assert run.files_of(3)[1].state()["m"].tolist() == [1, 1, 1]
        # a kill between keeping a round and writing it
        writer.keep(record(4), "globals")
    RunWriter.open(tmp_path / "ima").close()
    kept = {path.relative_to(tmp_path / "ima/kept").as_posix() for path in (tmp_path / "ima/kept").rglob("*.h5")}
    assert kept == {
        *(f"clients/0000{t}.h5" for t in (1, 2, 3)),
        "globals/00002.h5",
        "globals/00003.h5",
        "states/00003.h5",
    }
    create(tmp_path / "ima", 1, force=True)
    assert not list((tmp_path / "ima/kept").rglob("*.h5"))


def test_an_existing_run_is_replaced_by_force_only(tmp_path):
    create(tmp_path / "ima", 2)
    (tmp_path / "ima/figures").mkdir()
    (tmp_path / "ima/notes.txt").write_text("mine")
    with pytest.raises(
        FedscopeError, match=r"exists and holds a run with 2 rounds; give --force to replace it, or another --out"
    ):
        create(tmp_path / "ima")
    assert Run.open(tmp_path / "ima").rounds == (1, 2)
    assert create(tmp_path / "ima", 1, force=True).rounds == (1,)
    assert (tmp_path / "ima/notes.txt").read_text() == "mine"
    assert (tmp_path / "ima/figures").is_dir()


@pytest.mark.parametrize("force", [False, True])
def test_nothing_else_is_ever_replaced(tmp_path, force):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/config.toml").write_text("mine")
    with pytest.raises(
        FedscopeError, match=r"exists and holds something else than a run of fedscope; give another --out"
    ):
        create(tmp_path / "thesis", force=force)
    (tmp_path / "thesis/run.json").write_text('{"format": "marathon"}')
    with pytest.raises(FedscopeError, match=r"holds something else"):
        create(tmp_path / "thesis", force=force)
    assert sorted(p.name for p in (tmp_path / "thesis").iterdir()) == ["config.toml", "run.json"]
    (tmp_path / "file").write_text("mine")
    with pytest.raises(FedscopeError, match=r"exists and is a file; give another --out"):
        create(tmp_path / "file", force=force)


@pytest.mark.parametrize("text", ["", '{"format": "fedsc', "\x00\x00", "[" * 100_000])
def test_a_run_with_a_damaged_file_can_be_replaced(tmp_path, text):
    """It was "something else than a run of fedscope", with --force too, and its name was lost for good."""
    create(tmp_path / "ima", 2)
    (tmp_path / "ima/notes.txt").write_text("mine")
    (tmp_path / "ima/run.json").write_text(text)
    with pytest.raises(FedscopeError) as caught:
        create(tmp_path / "ima")
    assert str(caught.value) == (
        f"{tmp_path}/ima exists and holds 2 rounds of a run whose run.json is damaged; give --force to replace it, or "
        "another --out"
    )
    assert create(tmp_path / "ima", 1, force=True).rounds == (1,)
    assert (tmp_path / "ima/notes.txt").read_text() == "mine"


def test_a_folder_without_rounds_is_no_damaged_run(tmp_path):
    (tmp_path / "thesis/rounds").mkdir(parents=True)
    (tmp_path / "thesis/run.json").write_text("{")
    with pytest.raises(FedscopeError, match=r"exists and holds something else than a run of fedscope; give another"):
        create(tmp_path / "thesis", force=True)
    assert (tmp_path / "thesis/run.json").read_text() == "{"


def test_a_replacement_that_was_killed_can_be_repeated(tmp_path, monkeypatch):
    """Figures of the run that was replaced lay there, and were "something else than a run of fedscope"."""
    create(tmp_path / "ima", 2)
    (tmp_path / "ima/figures").mkdir()
    (tmp_path / "ima/notes.txt").write_text("mine")
    for at in (None, "save"):
        with monkeypatch.context() as patch:
            if at is None:  # where the first file of the old run was removed
                patch.setattr(folders, "sync", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            else:
                patch.setattr(Partition, at, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                create(tmp_path / "ima", force=True)
        assert not (tmp_path / "ima/run.json").exists()
    with pytest.raises(FedscopeError) as caught:
        create(tmp_path / "ima")
    assert str(caught.value) == (
        f"{tmp_path}/ima exists and holds figures, notes.txt beside what is left of a run that was being replaced; "
        "give --force to replace it, or another --out"
    )
    assert create(tmp_path / "ima", 1, force=True).rounds == (1,)
    assert (tmp_path / "ima/notes.txt").read_text() == "mine"
    assert (tmp_path / "ima/figures").is_dir()
    assert not list((tmp_path / "ima").glob(".*.tmp"))


@pytest.mark.parametrize("force", [False, True])
def test_what_lies_beside_a_run_that_lost_its_file_is_named(tmp_path, force):
    create(tmp_path / "ima", 2)
    (tmp_path / "ima/notes.txt").write_text("mine")
    (tmp_path / "ima/run.json").unlink()
    with pytest.raises(FedscopeError) as caught:
        create(tmp_path / "ima", force=force)
    assert str(caught.value) == (
        f"{tmp_path}/ima exists and holds notes.txt beside what is left of a run without run.json; move that "
        "elsewhere, or give another --out"
    )
    (tmp_path / "ima/notes.txt").rename(tmp_path / "notes.txt")  # as it says
    if force:
        assert create(tmp_path / "ima", 1, force=True).rounds == (1,)


def test_an_empty_folder_and_an_interrupted_creation_are_free(tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    assert create(tmp_path / "empty", 1).rounds == (1,)
    with monkeypatch.context() as patch:
        patch.setattr(Partition, "save", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            create(tmp_path / "broken")
    assert not (tmp_path / "broken/run.json").exists()
    assert find_runs(tmp_path / "broken") == []
    assert create(tmp_path / "broken", 1).rounds == (1,)
    # rounds without a run.json are somebody's work: not without force
    (tmp_path / "broken/run.json").unlink()
    with pytest.raises(FedscopeError, match=r"holds 1 round of a run that has lost its run.json; give --force"):
        create(tmp_path / "broken")
    assert create(tmp_path / "broken", force=True).rounds == ()


def test_run_json_comes_last(tmp_path, monkeypatch):
    from fedscope.checkpoints.runs import folders as run_folders

    seen = []
    write = run_folders.write_durably

    def watch(path):
        if path.name == "run.json":
            seen.extend(sorted(p.name for p in path.parent.iterdir()))
        return write(path)

    monkeypatch.setattr(run_folders, "write_durably", watch)
    create(tmp_path / "ima")
    assert seen == [".writer", "config.toml", "metrics.csv", "partition.h5", "rounds"]


def test_a_round_that_is_not_there_says_which_are(tmp_path):
    run = create(tmp_path / "ima", 3)
    with pytest.raises(FedscopeError, match=r"ima@9: the run has rounds 1-3$"):
        run.round(9)
    with pytest.raises(FedscopeError, match=r"ima@-4: the run has rounds 1-3$"):
        run.round(-4)
    (run.path / "rounds/00002.h5").unlink()
    with pytest.raises(FedscopeError, match=r"ima@2: the run has rounds 1, 3$"):
        Run.open(run.path).round(2)


def test_a_run_without_rounds_says_how_to_go_on(tmp_path):
    run = create(tmp_path / "ima")
    with pytest.raises(FedscopeError, match=r"ima has no rounds yet; go on with it: fedscope train --resume .*ima$"):
        run.round("last")
    assert len(run.metrics()["round"]) == 0


def test_a_run_whose_first_round_is_being_made_is_waited_for(tmp_path):
    run = create(tmp_path / "ima")
    beside = tmp_path / "ima/.writer.lock"

    def said() -> str:
        found = []
        for ask in (lambda: run.round("last"), lambda: parse_rounds("last", (), str(run.path))):
            with pytest.raises(FedscopeError) as raised:
                ask()
            found.append(str(raised.value))
        assert found[0] == found[1]
        return found[0]

    with WriterLock(run.path):
        assert said() == (
            f"{run.path} has no rounds yet: it is being written by this program itself: close the recorder that is "
            "still open there, as recorder.close(), or wait for the thread that writes it"
        )
    held = hold(run.path / LOCK_NAME, "a lock")
    sign(held)  # as another process does
    assert said() == f"{run.path} has no rounds yet: it is being written by process {os.getpid()}; wait for its first"
    held.release()
    beside.write_text(json.dumps({"host": "other", "pid": 7, "began": 0, "system": ""}))
    assert said() == (
        f"{run.path} has no rounds yet: it is being written by process 7 of other (the file system has no locks, and "
        f"{beside} says so); wait until it ends or stop it, or, if it does not run any more, remove {beside}"
    )
    beside.write_text(json.dumps({**asdict(Process.here()), "began": 1}))  # it has ended
    with pytest.raises(FedscopeError, match=r"ima has no rounds yet; go on with it: "):
        run.round("last")


def test_what_is_no_run_says_what_is_near(tmp_path):
    create(tmp_path / "runs/ima")
    create(tmp_path / "runs/fedswa")
    with pytest.raises(FedscopeError, match=r'does not exist; did you mean ".*fedswa"'):
        Run.open(tmp_path / "runs/fedsw")
    with pytest.raises(FedscopeError, match=r"does not exist; the runs in .*runs are fedswa, ima"):
        Run.open(tmp_path / "runs/zzz")
    with pytest.raises(FedscopeError, match=r"runs is not a run: it has no run.json; it holds the runs fedswa, ima"):
        Run.open(tmp_path / "runs")
    (tmp_path / "ckpt").mkdir()
    (tmp_path / "ckpt" / "step-1.pt").write_bytes(b"")
    with pytest.raises(
        FedscopeError, match=r"ckpt is not a run: .*; fedscope import \S+ckpt --out RUN makes a run of m"
    ):
        Run.open(tmp_path / "ckpt")
    with pytest.raises(
        FedscopeError, match=r"step-1.pt is a file, .*; fedscope import \S+step-1.pt FILE ... --out RUN"
    ):
        Run.open(tmp_path / "ckpt" / "step-1.pt")
    with pytest.raises(FedscopeError, match=r"is a file, not a run"):
        Run.open(tmp_path / "runs/ima/metrics.csv")
    create(tmp_path / "sweeps/first/runs/fma-seed0")
    (tmp_path / "sweeps/first/sweep.json").write_text("{}")
    with pytest.raises(FedscopeError, match=r"first is a sweep, not a run; .*sweeps/first/runs holds fma-seed0$"):
        Run.open(tmp_path / "sweeps/first")
    with pytest.raises(FedscopeError, match=r"sweeps is not a run: it has no run.json; it holds the sweeps first$"):
        Run.open(tmp_path / "sweeps")
    with pytest.raises(FedscopeError, match=r"does not exist"):
        RunWriter.open(tmp_path / "runs/zzz")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"format": "fedscope-run", "ver', r"run.json is not JSON \(.*\); restore it from a copy"),
        ("[1]", r'is not a run of fedscope: it does not say "format": "fedscope-run"'),
        ('{"format": "fedscope-run", "version": 2}', "has version 2 of its format, but .* up to 1; upgrade it: pip"),
        ('{"format": "fedscope-run", "version": 1}', "run.json has no layout"),
        ('{"format": "fedscope-run", "version": 1, "layout": [{"name": "w"}]}', "run.json: layout entry 0 is not one"),
    ],
)
def test_foreign_and_newer_runs_are_refused(tmp_path, text, sentence):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(FedscopeError, match=sentence):
        Run.open(tmp_path)
    assert find_runs(tmp_path) == []


def test_a_newer_run_may_be_replaced_by_force(tmp_path):
    run = create(tmp_path / "ima")
    (run.path / "run.json").write_text(json.dumps({**run.info, "version": 7}))
    with pytest.raises(FedscopeError, match=r"give --force"):
        create(tmp_path / "ima")
    assert create(tmp_path / "ima", force=True).info["version"] == 1


def test_what_a_foreign_run_lacks_is_said(tmp_path):
    import h5py

    run = create(tmp_path / "ima", 1)
    (run.path / "run.json").write_text(json.dumps({**run.info, "files": {}, "source": "flower 1.20"}))
    for part in ("config.toml", "partition.h5", "metrics.csv"):
        (run.path / part).unlink()
    with h5py.File(run.path / "rounds/00001.h5", "a") as file:
        del file["checksums"], file.attrs["checksums"]
        del file["client_steps"]
    run = Run.open(run.path)
    assert run.config is None
    assert run.partition is None
    assert run.round(1).client(1).parameters.tolist() == [1, 1, 1]
    for part in ("config.toml", "partition.h5", "metrics.csv", "client_steps"):
        with pytest.raises(
            FedscopeError, match=f"ima has no {part}, which this needs: the run was recorded by flower 1.20"
        ):
            run.require(part)
    run.require("client_loss")
    assert run.metrics()["round"].tolist() == [1], "from its round"
    with h5py.File(run.path / "rounds/00001.h5", "a") as file:
        del file.attrs["metrics"]
    with pytest.raises(FedscopeError, match=r"has no metrics.csv"):
        Run.open(run.path).metrics()


def test_a_part_that_is_lost_is_not_blamed_on_another_program(tmp_path):
    run = create(tmp_path / "ima", 1)
    (run.path / "partition.h5").unlink()
    with pytest.raises(FedscopeError, match=r"has no partition.h5, which this needs; restore it from a copy"):
        run.require("partition.h5")
    (run.path / "metrics.csv").unlink()
    run.require("metrics.csv")  # it can be made from the rounds


@pytest.mark.parametrize(
    ("gone", "words"),
    [
        ((), ""),
        ((2,), "lacks round 2, which was recorded"),
        ((1, 4), "lacks rounds 1, 4, which were recorded"),
        ((2, 3, 4), "lacks rounds 2-4, which were recorded"),
        ((5,), "lacks round 5, which was recorded"),  # of the last one there is still a row of the table
    ],
)
def test_rounds_that_are_gone_are_said(tmp_path, gone, words):
    path = create(tmp_path / "ima", 5).path
    for t in gone:
        (path / "rounds" / f"{t:05d}.h5").unlink()
    run = Run.open(path)
    assert run.lacking == gone
    assert lacking_words(run) == words
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        warn_of_gaps(run)
    assert [str(one.message).partition("; ")[0] for one in said] == ([f"{path} {words}"] if gone else [])


def test_find_runs_goes_down_but_not_into_runs_or_hidden_folders(tmp_path):
    for place in ("b", "a/deep", "b/figures/inner", ".hidden/run"):
        create(tmp_path / place) if "inner" not in place else None
    (tmp_path / "b/figures/inner").mkdir(parents=True)
    (tmp_path / "b/figures/inner/run.json").write_text((tmp_path / "b/run.json").read_text())
    assert found(tmp_path) == ["a/deep", "b"]
    (tmp_path / "a/run.json").write_text("{}")  # of something else
    assert found(tmp_path) == ["a/deep", "b"]


def found(folder):
    return [run.path.relative_to(folder).as_posix() for run in find_runs(folder)]


def test_find_runs_follows_links_once(tmp_path):
    here = tmp_path / "here"
    for place in (here / "real", tmp_path / "else/one", tmp_path / "else/deep/two", tmp_path / "else/a/b/three"):
        create(place)
    (here / "a-link").symlink_to(here / "real")  # found by its own path, though the link sorts first
    (here / "loop").symlink_to(here)
    (here / "broken").symlink_to(tmp_path / "nothing")
    assert found(here) == ["real"]
    (here / "runs").symlink_to(tmp_path / "else")
    (tmp_path / "else/back").symlink_to(here)
    assert found(here) == ["real", "runs/deep/two", "runs/one"]  # a link may lead to a whole disk: two folders deep
    (here / "runs").unlink()
    (here / "linked").symlink_to(tmp_path / "else/one")
    assert found(here) == ["linked", "real"]


def test_a_runs_size_is_that_of_what_was_recorded(tmp_path):
    run = create(tmp_path / "ima", 2)
    own = [file for file in run.path.rglob("*") if file.is_file() and file.name != LOCK_NAME]
    assert size_of(run) == sum(file.stat().st_size for file in own) > 0
    (run.path / "figures").mkdir()
    for file in ("figures/line.nc", "mine.pdf"):
        (run.path / file).write_bytes(bytes(10_000))
    assert size_of(run) == sum(file.stat().st_size for file in own)
    (run.path / "kept/states").mkdir(parents=True, exist_ok=True)
    (run.path / "kept/states/00002.h5").write_bytes(bytes(77))
    assert size_of(run) == sum(file.stat().st_size for file in own) + 77


def test_a_reader_sees_a_run_as_it_stood(tmp_path):
    with RunWriter.create(tmp_path / "ima", INFO, CONFIG, PARTITION) as writer:
        writer.write(record(1))
        before = Run.open(tmp_path / "ima")
        writer.write(record(2))
        assert before.rounds == (1,)
        assert before.metrics()["round"].tolist() == [1]
        assert before.lacking == ()
        assert before.all_metrics()["round"].tolist() == [1]
        assert Run.open(tmp_path / "ima").rounds == (1, 2)
        writer.write(record(3))
        (tmp_path / "ima/rounds/00002.h5").unlink()
        assert Run.open(tmp_path / "ima").lacking == (2,)


def test_all_that_open_a_run_within_same_rounds_see_the_same(tmp_path):
    with RunWriter.create(tmp_path / "ima", INFO, CONFIG, PARTITION) as writer:
        for t in (1, 2):
            writer.write(record(t))
        with same_rounds({}):
            assert rounds_agreed() == {}
            assert Run.open(tmp_path / "ima").rounds == (1, 2)
            writer.write(record(3))
            late = Run.open(tmp_path / "ima")
            assert (late.rounds, late.lacking) == ((1, 2), ())
            assert late.round("last").number == 2
            assert rounds_agreed() == {tmp_path / "ima": 2}
        assert rounds_agreed() == {}
        with same_rounds({tmp_path / "ima": 1}):
            assert Run.open(tmp_path / "ima").rounds == (1,)
        assert Run.open(tmp_path / "ima").rounds == (1, 2, 3)


@pytest.mark.parametrize("content", ["", "\n", "\n\n", "\x00", "round"])
def test_nothing_left_of_a_table_is_no_row(tmp_path, content):
    from fedscope.checkpoints.rounds.metrics import read_table

    (tmp_path / "metrics.csv").write_text(content)
    assert read_table(tmp_path / "metrics.csv") == {}


def test_what_a_run_keeps_of_its_partition_cannot_be_written_to(tmp_path: Path) -> None:
    """It is read once, and all who ask are handed the same."""
    partition = create(tmp_path / "run").partition
    assert partition is not None
    for kept in (partition.label_counts, *partition.clients):
        with pytest.raises(ValueError, match="read-only"):
            kept[...] = 0
    own = partition.label_counts.copy()
    own[own < 50] = 0  # as one looks for clients with many samples
    assert partition.counts_of(np.array([0, 2])).tolist() == [[1, 1], [0, 1]]


def test_the_columns_of_a_round_are_the_askers_own(tmp_path: Path) -> None:
    round_ = create(tmp_path / "run", 1).round(1)
    for name in ("client_ids", "client_samples", "client_steps", "client_loss", "weights"):
        before = getattr(round_, name).tolist()
        changed = getattr(round_, name)
        changed *= 3
        assert getattr(round_, name).tolist() == before, name
