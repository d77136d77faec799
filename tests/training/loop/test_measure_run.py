"""Numbers of recorded models, measured afterwards: what training would have measured, kept apart from it, and sound."""

from __future__ import annotations

import csv
import errno
import json
import os
import shutil
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedscope
from fedscope.checkpoints import FedscopeError, Run
from fedscope.checkpoints.rounds.metrics import mend_table, read_rows
from fedscope.checkpoints.runs.measured_numbers import NAME, REPLACES, MeasuredNumbers, write_measured
from fedscope.cli.main import run as command
from fedscope.training import Config, Curves, merge, preset, resume, train
from fedscope.training.inputs.explain_error import recorded_numbers
from fedscope.training.loop.verify_run import check_run

pytestmark = pytest.mark.usefixtures("few_digits")
GLOBAL, AVERAGED = ("test_loss", "test_error"), ("averaged_test_loss", "averaged_test_error")
CLIENTS = ("client_error_mean", "client_error_std")
DRAW = np.random.default_rng(3)
X, Y = DRAW.normal(size=(30, 6)).astype(np.float32), DRAW.integers(0, 3, 30)


def config(**sections: Any) -> Config:
    small = {
        "data": {"clients": 6},
        "model": {"hidden": [8]},
        "client": {"epochs": 1},
        "average": {"window": 2, "start": 2},
        "run": {"rounds": 4, "participation": 0.5, "evaluate_clients": 40, "seed": 3},
    }
    return Config.read(merge(preset("ima"), small, sections))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same training, measured in every round and in every third."""
    folder = tmp_path_factory.mktemp("trained")
    train(config(), folder / "every")
    train(config(run={"evaluate_every": 3}), folder / "third")
    return folder


def net(t: int, k: int = 0) -> nn.Linear:
    made = nn.Linear(6, 3)
    draw = torch.Generator().manual_seed(100 * t + k)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw))
    return made


def record(path: Path | str, rounds: Iterator[int] | range, **more: Any) -> None:
    """A loop that measures nothing."""
    with fedscope.Recorder(path, data=(X, Y), **more) as recorder:
        for t in rounds:
            recorder.round(start=net(t), clients={k: net(t, k) for k in (1, 2, 3)}, global_=net(t, 9))


def by_hand(model: nn.Linear) -> tuple[float, float]:
    with torch.no_grad():
        outputs = model(torch.from_numpy(X)).double()
    loss = float(nn.functional.cross_entropy(outputs, torch.from_numpy(Y)))
    return loss, float((outputs.argmax(1).numpy() != Y).mean())


def rows(path: Path | str) -> list[dict[str, str]]:
    with (Path(path) / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


# --- numbers ---


def test_they_are_those_that_training_measures(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "third", tmp_path / "third")
    before = Run.open(tmp_path / "third").all_metrics()
    assert np.isnan(before["test_loss"]).tolist() == [True, True, False, False]
    done = fedscope.measure(tmp_path / "third", clients=True)
    assert done.new == dict.fromkeys((*GLOBAL, *CLIENTS), (1, 2)) | dict.fromkeys(AVERAGED, (2,))
    assert done.there == dict.fromkeys((*GLOBAL, *CLIENTS, *AVERAGED), (3, 4))
    found, expected = (Run.open(path).all_metrics() for path in (tmp_path / "third", trained / "every"))
    for name in (*GLOBAL, *AVERAGED, *CLIENTS):
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
    assert check_run(tmp_path / "third").faults == ()
    for t in (1, 2):  # a round's file never changes
        one, other = (path / f"third/rounds/{t:05d}.h5" for path in (trained, tmp_path))
        assert one.read_bytes() == other.read_bytes()


def test_what_training_wrote_is_replaced_only_on_request_and_that_is_said(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "every", tmp_path / "run")
    table = (tmp_path / "run/metrics.csv").read_bytes()
    nothing = fedscope.measure(tmp_path / "run")
    assert (nothing.new, nothing.replaced) == ({}, {})
    assert nothing.summary().splitlines()[0] == f"{tmp_path / 'run'}: nothing is new"
    assert not (tmp_path / "run" / NAME).exists()
    assert (tmp_path / "run/metrics.csv").read_bytes() == table
    done = fedscope.measure(tmp_path / "run", force=True, limit=20, rounds=[2, 3])
    assert done.replaced == dict.fromkeys((*GLOBAL, *AVERAGED), (2, 3))
    kept = "replace what the training wrote, which its files keep, measured on 20 test samples of digits"
    assert kept in done.summary()
    run = Run.open(tmp_path / "run")
    assert [one.settings.get(REPLACES) for one in run.measured.measurements] == [True]
    now, before = run.all_metrics()["test_loss"], Run.open(trained / "every").all_metrics()["test_loss"]
    assert (now != before).tolist() == [False, True, True, False]
    assert run.round(2).metrics["test_loss"] == before[1]
    assert float(rows(run.path)[1]["test_loss"]) == now[1]
    assert check_run(run.path).faults == ()
    again = fedscope.measure(run.path, force=True, limit=20, rounds=[2, 3])
    assert (again.replaced, again.again) == (done.replaced, {})
    assert Run.open(run.path).measured == run.measured


def test_a_recorded_loop_gets_a_curve_and_says_on_what(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    record("run", range(1, 5))
    with pytest.raises(FedscopeError, match=r"or measure its models now: fedscope measure RUN, with --model"):
        Curves.of([Run.open("run")]).figure()
    done = fedscope.measure("run", model=net(0), clients=True)
    assert done.new == dict.fromkeys((*GLOBAL, *CLIENTS), (1, 2, 3, 4))
    run = Run.open("run")
    found = run.metrics()
    for i, t in enumerate(run.rounds):
        assert (found["test_loss"][i], found["test_error"][i]) == pytest.approx(by_hand(net(t, 9)), rel=1e-5)
        errors = [by_hand(net(t, k))[1] for k in (1, 2, 3)]
        # mean and deviation over the cohort, divided by their number
        assert (found["client_error_mean"][i], found["client_error_std"][i]) == pytest.approx(
            (np.mean(errors), np.std(errors)), rel=1e-12
        )
        assert float(rows("run")[i]["test_loss"]) == found["test_loss"][i]
    (one,) = run.measured.measurements
    assert one.settings["data_sha256"] == run.info["data"]["sha256"]
    assert (one.settings["samples"], one.settings["split"]) == (30, "test")
    assert one.settings["versions"]["fedscope"] == fedscope.__version__
    assert check_run("run").faults == ()
    curves = Curves.of([run])
    assert curves.attrs["measured"]["run"][0]["data_sha256"] == one.settings["data_sha256"]
    assert (
        "measured afterwards: run: test_loss, test_error, client_error_mean and client_error_std of" in curves.summary()
    )
    assert command(["ls", "run"]) == 0
    assert "of rounds 1-4, on 30 test samples of arrays" in capsys.readouterr().out
    words = "run: measured afterwards: test_loss, test_error, client_error_mean and client_error_std of rounds 1-4"
    assert [note for note in fedscope.table(["run"]).notes if words in note]
    assert not [note for note in fedscope.table(["run"], measures=["participants"]).notes if "afterwards" in note]
    assert repr(done).splitlines()[:2] == [
        "MeasuredRun, what `fedscope measure` made of run",
        "  test_loss, test_error, client_error_mean and client_error_std of rounds 1-4 are new, measured on",
    ]
    assert max(map(len, repr(done).splitlines())) <= 100


def test_a_loops_own_number_is_not_said_of_a_model_that_it_has_not_recorded(tmp_path: Path) -> None:
    with fedscope.Recorder(tmp_path / "run", data=(X, Y)) as recorder:
        recorder.round(start=net(1), clients={k: net(1, k) for k in (1, 2)}, metrics={"test_error": 0.05})
    said = fedscope.measure(tmp_path / "run", model=net(0), clients=True).summary()
    assert "client_error_mean and client_error_std of round 1 are new" in said
    assert "global in round 1" not in said
    assert "5.0 %" not in said


def test_a_second_time_nothing_is_measured(tmp_path: Path) -> None:
    record(tmp_path / "run", range(1, 4))
    fedscope.measure(tmp_path / "run", model=net(0))
    kept = {name: (tmp_path / "run" / name).read_bytes() for name in (NAME, "metrics.csv")}
    calls: list[tuple[int, int]] = []
    again = fedscope.measure(tmp_path / "run", model=net(0), progress=lambda *told: calls.append(told))
    assert (again.new, again.there, calls) == ({}, dict.fromkeys(GLOBAL, (1, 2, 3)), [])
    assert kept == {name: (tmp_path / "run" / name).read_bytes() for name in kept}


@pytest.mark.parametrize("recorded", [{}, {"test_loss": 3.0}], ids=["nothing", "loss"])
def test_a_task_without_an_error_gets_none_and_that_is_said(tmp_path: Path, recorded: dict[str, float]) -> None:
    x, y = torch.from_numpy(X), torch.from_numpy(X[:, :2])
    nets = [nn.Linear(X.shape[1], 2) for _ in range(3)]
    with fedscope.Recorder(tmp_path / "run", data=(x, y)) as recorder:
        for _ in range(2):
            recorder.round(start=nets[0], clients=nets[1:], global_=nets[2], metrics=recorded)
    new = {} if recorded else {"test_loss": (1, 2)}
    for expected in (new, {}):
        done = fedscope.measure(tmp_path / "run", model=nets[0], task="regression", clients=True)
        assert done.new == expected
        assert list(done.there) == ([] if expected else ["test_loss"])
        assert done.left_out == {"their task has no error, only a loss": (1, 2)}
    for measure in ("test_error", "test_accuracy"):
        with pytest.raises(FedscopeError) as told:
            fedscope.curves(tmp_path / "run", measures=measure).summary()
        what = "if their task has an error" if recorded else r"what was learnt (regression) has a loss and no error"
        assert what in str(told.value)


class CountsNone(fedscope.Task):
    def loss(self, outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (outputs[:, 0] - y).abs()

    def error(self, outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return ((outputs[:, 0] - y).abs() > 1).float()

    def error_weights(self, y: torch.Tensor) -> torch.Tensor:
        return (y > 100).float()


def test_a_task_with_an_error_that_is_no_number_is_not_said_to_have_none(tmp_path: Path) -> None:
    nets = [nn.Linear(X.shape[1], 1) for _ in range(3)]
    with fedscope.Recorder(tmp_path / "run", data=(torch.from_numpy(X), torch.from_numpy(X[:, 0]))) as recorder:
        recorder.round(start=nets[0], clients=nets[1:], global_=nets[2])
    for expected in ({"test_loss": (1,)}, {}):
        done = fedscope.measure(tmp_path / "run", model=nets[0], task=CountsNone())
        assert done.new == expected
        assert done.left_out == {"their task gives no error that is a number": (1,)}


def test_rounds_that_were_done_before_ctrl_c_are_kept(tmp_path: Path) -> None:
    record(tmp_path / "run", range(1, 6))
    whole = tmp_path / "whole"
    shutil.copytree(tmp_path / "run", whole)
    fedscope.measure(whole, model=net(0), clients=True)

    def stop_at(number: int) -> Any:
        def told(done: int, of: int) -> None:
            if done == number:
                raise KeyboardInterrupt

        return told

    for number, expected in ((2, (1, 2)), (1, (1, 2, 3))):
        with pytest.raises(KeyboardInterrupt):
            fedscope.measure(tmp_path / "run", model=net(0), clients=True, progress=stop_at(number))
        run = Run.open(tmp_path / "run")
        assert run.measured.rounds == expected
        assert np.isfinite(run.metrics()["test_loss"]).sum() == len(expected)
        assert [bool(row["test_loss"]) for row in rows(run.path)].count(True) == len(expected)
        assert check_run(run.path).faults == ()
    rest = fedscope.measure(tmp_path / "run", model=net(0), clients=True)
    assert rest.new["test_loss"] == (4, 5)
    np.testing.assert_equal(Run.open(tmp_path / "run").metrics(), Run.open(whole).metrics())


def test_the_command_ends_with_130_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from fedscope.training.loop import measure_run

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "measured_nets.py").write_text("from torch import nn\ndef small():\n    return nn.Linear(6, 3)\n")
    record("run", range(1, 4))
    words, real = ["measure", "run", "--model", "measured_nets:small"], measure_run._measure_models

    def stopped(*given: Any) -> Any:
        yield next(iter(real(*given)))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(measure_run, "_measure_models", stopped)
        assert command(words) == 130
    assert "stopped; what was complete is kept" in capsys.readouterr().err
    assert command([*words, "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert (told["new"]["test_loss"], told["there"]["test_loss"]) == ([2, 3], [1])
    assert told["files"] == ["run/measured.json", "run/metrics.csv"]


def test_diverged_models_have_an_infinite_loss_or_none(tmp_path: Path) -> None:
    wild, lost = net(1), net(2)
    with torch.no_grad():
        wild.weight.fill_(1e38)
        wild.bias.copy_(torch.tensor([0.0, np.inf, 0.0]))
        lost.weight.fill_(np.nan)
    with fedscope.Recorder(tmp_path / "run", data=(X, Y)) as recorder:
        for model in (wild, lost):
            recorder.round(clients=[net(1)], global_=model)
    fedscope.measure(tmp_path / "run", model=net(0))
    found = Run.open(tmp_path / "run").metrics()
    assert not np.isfinite(found["test_loss"]).any()
    assert found["test_error"][1] == 1
    assert fedscope.measure(tmp_path / "run", model=net(0)).new == {}  # that there is none is known
    assert check_run(tmp_path / "run").faults == ()


def test_a_table_of_another_program_stays_and_keeps_its_numbers(tmp_path: Path) -> None:
    import h5py

    record(tmp_path / "run", range(1, 4))
    info = json.loads((tmp_path / "run/run.json").read_text())
    del info["identity"]
    (tmp_path / "run/run.json").write_text(json.dumps({**info, "files": {}}))
    for file in (tmp_path / "run/rounds").iterdir():
        with h5py.File(file, "r+") as round_:
            del round_["checksums"], round_.attrs["checksums"], round_.attrs["identity"]
    table = "round,test_error,f1\n1,0.25,0.5\n2,,0.5\n"
    (tmp_path / "run/metrics.csv").write_text(table)
    done = fedscope.measure(tmp_path / "run", model=net(0), accept_data=True)
    assert (done.new["test_error"], done.there["test_error"]) == ((2, 3), (1,))
    found = Run.open(tmp_path / "run").metrics()
    assert found["test_error"] == pytest.approx([0.25, *(by_hand(net(t, 9))[1] for t in (2, 3))])
    assert (tmp_path / "run/metrics.csv").read_text() == table
    assert check_run(tmp_path / "run").faults == ()


# --- beside a recording ---


def test_a_run_that_goes_on_keeps_them(tmp_path: Path) -> None:
    record(tmp_path / "run", range(1, 4))
    fedscope.measure(tmp_path / "run", model=net(0))
    before = Run.open(tmp_path / "run").metrics()["test_loss"]
    record(tmp_path / "run", range(4, 6), resume=True)
    run = Run.open(tmp_path / "run")
    np.testing.assert_array_equal(run.metrics()["test_loss"], [*before, np.nan, np.nan])
    assert [row["test_loss"] for row in rows(run.path)][:3] == [repr(float(value)) for value in before]
    assert check_run(run.path).faults == ()
    assert fedscope.measure(run.path, model=net(0)).new == dict.fromkeys(GLOBAL, (4, 5))


def test_a_training_that_goes_on_keeps_them(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "third", tmp_path / "run")
    for name in ("00003.h5", "00004.h5"):
        (tmp_path / "run/rounds" / name).unlink()
    shutil.rmtree(tmp_path / "run/kept", ignore_errors=True)
    fedscope.measure(tmp_path / "run", rounds="1,2")
    resume(tmp_path / "run")
    found, expected = (Run.open(path).all_metrics() for path in (tmp_path / "run", trained / "every"))
    np.testing.assert_array_equal(found["test_loss"], expected["test_loss"])
    assert check_run(tmp_path / "run").faults == ()


def test_rounds_that_are_recorded_anew_lose_them(tmp_path: Path) -> None:
    record(tmp_path / "run", range(1, 5))
    fedscope.measure(tmp_path / "run", model=net(0))
    for name in ("00003.h5", "00004.h5"):
        (tmp_path / "run/rounds" / name).unlink()
    record(tmp_path / "run", range(53, 55), resume=True)  # other models
    run = Run.open(tmp_path / "run")
    assert np.isnan(run.metrics()["test_loss"]).tolist() == [False, False, True, True]
    fedscope.measure(run.path, model=net(0))
    assert Run.open(run.path).metrics()["test_loss"][2:] == pytest.approx(
        [by_hand(net(t, 9))[0] for t in (53, 54)], rel=1e-5
    )


def test_a_run_in_its_place_has_none_of_them(tmp_path: Path) -> None:
    record(tmp_path / "run", range(1, 3))
    fedscope.measure(tmp_path / "run", model=net(0))
    record(tmp_path / "run", range(5, 7), force=True)
    assert not (tmp_path / "run" / NAME).exists()
    assert np.isnan(Run.open(tmp_path / "run").metrics()["test_loss"]).all()


def test_a_fedscope_without_them_reads_the_table_and_what_it_writes_anew_loses_nothing(tmp_path: Path) -> None:
    record(tmp_path / "run", range(1, 4))
    fedscope.measure(tmp_path / "run", model=net(0))
    run = Run.open(tmp_path / "run")
    expected = run.metrics()["test_loss"]
    table = read_rows(run.path / "metrics.csv", run.identity)
    assert ([row["test_loss"] for row in table.own.values()], table.strange) == (expected.tolist(), 0)
    # as an earlier one mends it, from the rounds' files alone
    mend_table(run.path / "metrics.csv", run.rounds, lambda t: run.round(t).metrics, run.identity)
    assert not any(row["test_loss"] for row in rows(run.path))
    np.testing.assert_array_equal(Run.open(run.path).metrics()["test_loss"], expected)
    assert check_run(run.path).faults == ()
    # nor is it lost where a command was killed between both files
    assert fedscope.measure(run.path, model=net(0)).new == {}
    assert [float(row["test_loss"]) for row in rows(run.path)] == expected.tolist()


def test_a_run_without_an_identity(tmp_path: Path) -> None:
    """Its table is compared with its rounds, and may have what was measured."""
    import h5py

    record(tmp_path / "run", range(1, 3))
    info = json.loads((tmp_path / "run/run.json").read_text())
    del info["identity"]
    (tmp_path / "run/run.json").write_text(json.dumps({**info, "files": {}}))
    (tmp_path / "run/metrics.csv").unlink()
    for file in (tmp_path / "run/rounds").iterdir():
        with h5py.File(file, "r+") as round_:
            del round_["checksums"], round_.attrs["checksums"], round_.attrs["identity"]
    assert fedscope.measure(tmp_path / "run", model=net(0)).new["test_error"] == (1, 2)
    run = Run.open(tmp_path / "run")
    assert np.isfinite(run.metrics()["test_error"]).all()
    assert len(run.table_rows()) == 2
    assert check_run(run.path).faults == ()


# --- what others make of them ---


def test_the_comparison_with_a_loops_own_numbers_takes_its_own_alone(tmp_path: Path) -> None:
    with fedscope.Recorder(tmp_path / "run", data=(X, Y)) as recorder:
        for t in (1, 2):
            metrics = {"test_error": by_hand(net(t, 9))[1]} if t == 1 else {}
            recorder.round(clients=[net(t)], global_=net(t, 9), metrics=metrics)
    done = fedscope.measure(tmp_path / "run", model=net(0), limit=7)
    assert done.new == {"test_loss": (1, 2), "test_error": (2,)}
    found = list(recorded_numbers(Run.open(tmp_path / "run")))
    assert [(one.round, one.error) for one in found] == [(1, by_hand(net(1, 9))[1])]
    fedscope.measure(tmp_path / "run", model=net(0), force=True, limit=7)
    found = list(recorded_numbers(Run.open(tmp_path / "run")))
    assert [(one.round, one.error) for one in found] == [(1, by_hand(net(1, 9))[1])]


def test_a_loop_that_measured_something_else_is_not_filled(tmp_path: Path) -> None:
    with fedscope.Recorder(tmp_path / "run", data=(X, Y)) as recorder:
        for t in (1, 2):
            recorder.round(clients=[net(t)], global_=net(t, 9), metrics={"test_error": 0.01} if t == 1 else {})
    with pytest.raises(FedscopeError, match=r"test_error of round 1 was recorded as 1 %, but global has"):
        fedscope.measure(tmp_path / "run", model=net(0))
    assert not (tmp_path / "run" / NAME).exists()
    fedscope.measure(tmp_path / "run", model=net(0), accept_data=True)
    (one,) = Run.open(tmp_path / "run").measured.measurements
    assert "was recorded as 1 %" in one.settings["data_accepted"]


def test_curves_of_before_are_not_taken_for_those_of_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    record("run", range(1, 4))
    assert command(["curves", "run", "--measure", "participants", "--out", "curves"]) == 0
    fedscope.measure("run", model=net(0))
    assert command(["curves", "run", "--measure", "participants", "--out", "curves"]) == 2
    assert (
        "curves.curves.json holds another result, of numbers that were measured afterwards" in capsys.readouterr().err
    )
    assert command(["curves", "run", "--out", "new"]) == 0
    assert command(["curves", "run", "--out", "new"]) == 0
    assert "already holds this result" in capsys.readouterr().err


# --- bad input ---


def bare(path: Path) -> Path:
    """A run that names neither data nor a model."""
    with fedscope.Recorder(path) as recorder:
        recorder.round(clients=[net(1)], global_=net(1))
    return path


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["bare"], "bare was recorded by a loop of its own and names neither architecture nor data; give --model and"),
        (["run"], "run was recorded by a loop of its own and names no architecture; give --model"),
        (["run", "--model", "mlp"], "run does not fit the architecture of --model mlp"),
        (
            ["bare", "--model", "measured_nets:small", "--data", "digits"],
            "the module fails on 1 of digits test, each of shape [1, 8, 8]",
        ),
        (["bare", "--model", "measured_nets:small", "--data", "no.npz"], "no.npz"),
        (["run", "--model", "measured_nets:small", "--split", "train"], "are of the test split; leave --split out"),
        (["run", "--model", "measured_nets:small", "--rounds", "7"], "run has no round 7; it has 1 to 2"),
        (["run@1"], "run@1 names a model, but a whole run is asked for; give run (and --rounds 1)"),
        (["folder"], "folder is not a run: it has no run.json"),
        (["runn"], 'runn does not exist; did you mean "run"?'),
        (["alone", "--model", "measured_nets:small"], "alone: of all its 1 rounds no model was recorded that could be"),
    ],
)
def test_mistakes_have_a_sentence(
    words: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "measured_nets.py").write_text("from torch import nn\ndef small():\n    return nn.Linear(6, 3)\n")
    bare(tmp_path / "bare")
    record("run", range(1, 3))
    (tmp_path / "folder").mkdir()
    with fedscope.Recorder("alone", data=(X, Y)) as recorder:
        recorder.round(clients=[net(1)])
    capsys.readouterr()
    assert command(["measure", *words]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert len(said.splitlines()) == 1
    for name in ("bare", "run", "alone"):
        assert not (tmp_path / name / NAME).exists()


def test_a_run_that_is_being_written_is_left_alone(tmp_path: Path) -> None:
    with fedscope.Recorder(tmp_path / "run", data=(X, Y)) as recorder:
        recorder.round(clients=[net(1)], global_=net(1, 9))
        recorder.flush()
        with pytest.raises(FedscopeError, match=r"is being written by this program itself: close the recorder"):
            fedscope.measure(tmp_path / "run", model=net(0))
        recorder.round(clients=[net(2)], global_=net(2, 9))
    assert fedscope.measure(tmp_path / "run", model=net(0)).new["test_loss"] == (1, 2)


def test_the_rest_of_a_column_is_not_measured_on_something_else(tmp_path: Path) -> None:
    record(tmp_path / "run", range(1, 4))
    fedscope.measure(tmp_path / "run", model=net(0), rounds=1)
    for more, sentence in (
        (
            {"limit": 9},
            r"measured.json has test_loss and test_error of round 1, on 30 test samples of arrays: samples 30",
        ),
        ({"data": (X + 1, Y), "accept_data": True}, r"round 1, on 30 test samples of arrays: data sha256"),
    ):
        with pytest.raises(FedscopeError, match=sentence + r".*or force=True to measure all of it anew$"):
            fedscope.measure(tmp_path / "run", model=net(0), **more)
    done = fedscope.measure(tmp_path / "run", model=net(0), limit=9, force=True)
    assert (done.new["test_loss"], done.again["test_loss"]) == ((2, 3), (1,))
    (one,) = Run.open(tmp_path / "run").measured.measurements
    assert one.settings["samples"] == 9


class Scaled(nn.Linear):
    """Code of one's own that is edited: its name and its tensors stay."""

    factor = 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.factor * super().forward(x)


def twice(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return 2 * nn.functional.cross_entropy(outputs, y, reduction="none")


def test_the_rest_of_a_column_is_not_measured_by_edited_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run"
    record(path, range(1, 4))
    fedscope.measure(path, model=Scaled(6, 3), rounds=1)
    (one,) = Run.open(path).measured.measurements
    with torch.no_grad():  # the first round's global model, on the first samples
        expected = net(1, 9)(torch.from_numpy(X[:4])).flatten()
    np.testing.assert_allclose(one.settings["behaviour"], expected[:16], rtol=1e-5)
    before = (path / NAME).read_bytes()
    monkeypatch.setattr(Scaled, "factor", 1.1)
    said = (
        "measured.json has test_loss and test_error of round 1, on 30 test samples of arrays, by the model's code as "
        "it was before; give the code of then, or force=True to measure all of it anew"
    )
    for how in ({}, {"rounds": 1}, {"clients": True, "rounds": 2}):  # with nothing left to measure, too
        with pytest.raises(FedscopeError) as caught:
            fedscope.measure(path, model=Scaled(6, 3), **how)
        assert str(caught.value) == f"{path}/{said}"
    assert (path / NAME).read_bytes() == before
    done = fedscope.measure(path, model=Scaled(6, 3), force=True)
    assert (done.new["test_loss"], done.again["test_loss"]) == ((2, 3), (1,))
    assert "behaviour" not in done.settings
    for t in (1, 2, 3):
        with torch.no_grad():
            loss = nn.functional.cross_entropy(1.1 * net(t, 9)(torch.from_numpy(X)), torch.from_numpy(Y))
        assert Run.open(path).numbers(t)["test_loss"] == pytest.approx(float(loss), rel=1e-5)


def test_nor_by_an_edited_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run"
    record(path, range(1, 4))
    fedscope.measure(path, model=net(0), task=twice, rounds=1)
    edited = {"twice": lambda outputs, y: 3 * nn.functional.cross_entropy(outputs, y, reduction="none")}["twice"]
    edited.__qualname__, edited.__module__ = twice.__qualname__, twice.__module__
    with pytest.raises(
        FedscopeError, match="by the task's code as it was before; give the code of then, or force=True"
    ):
        fedscope.measure(path, model=net(0), task=edited)
    assert fedscope.measure(path, model=net(0), task=twice).new["test_loss"] == (2, 3)


class Half(fedscope.Task):
    has_classes = True
    share, power = 0.5, 0.0

    def loss(self, outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(outputs, y, reduction="none")

    def error(self, outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.share * (outputs.argmax(dim=1) != y).float()

    def weights(self, y: torch.Tensor) -> torch.Tensor:
        return (1.0 + y) ** self.power


@pytest.mark.parametrize("edit", [("share", 0.4), ("power", 1.0)])
def test_nor_by_an_edited_error_or_weights_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edit: tuple[str, float]
) -> None:
    path = tmp_path / "run"
    record(path, range(1, 4))
    fedscope.measure(path, model=net(0), task=Half(), rounds=1)
    monkeypatch.setattr(Half, *edit)
    with pytest.raises(FedscopeError) as caught:
        fedscope.measure(path, model=net(0), task=Half())
    assert str(caught.value) == (
        f"{path}/measured.json has test_loss and test_error of round 1, on 30 test samples of arrays, by the task's "
        "code as it was before; give the code of then, or force=True to measure all of it anew"
    )
    monkeypatch.undo()
    assert fedscope.measure(path, model=net(0), task=Half()).new["test_error"] == (2, 3)


def test_a_recorded_error_is_compared_anew_with_that_of_an_edited_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with torch.no_grad():
        error = float(Half().error(net(1)(torch.from_numpy(X)), torch.from_numpy(Y)).mean())
    with fedscope.Recorder(tmp_path / "run", data=(X, Y)) as recorder:
        recorder.round(clients=[net(1), net(2)], global_=net(1), metrics={"test_error": error})
    asked = partial(fedscope.subsets, tmp_path / "run", model=net(0), data=(X, Y), task=Half())
    asked()
    monkeypatch.setattr(Half, "share", 0.1)
    with pytest.raises(FedscopeError, match="test_error of round 1 was recorded as"):
        asked()


def test_the_same_code_goes_on_while_the_run_grows(tmp_path: Path) -> None:
    path = tmp_path / "run"
    record(path, range(1, 3))
    fedscope.measure(path, model=Scaled(6, 3))
    record(path, range(3, 5), resume=True)
    assert fedscope.measure(path, model=Scaled(6, 3)).new["test_loss"] == (3, 4)
    (one,) = Run.open(path).measured.measurements
    assert sorted(one.rows) == [1, 2, 3, 4]


@pytest.mark.parametrize("writes", ["measured.json", "metrics.csv"])
def test_a_full_disk_is_gone_on_from_by_the_same_command(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: str
) -> None:
    """``train --resume``, which it named, is refused for a run that is complete."""
    shutil.copytree(trained / "third", path := tmp_path / "third")
    replace_file = Path.replace

    def full(file: Path, target: Path) -> Path:
        if target.name == (NAME if writes == "measured.json" else writes):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return replace_file(file, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        with pytest.raises(FedscopeError) as caught:
            fedscope.measure(path)
    assert str(caught.value) == (
        f"{path}: the disk is full; it is readable up to round 4; make room, and give the same command again"
    )
    fedscope.measure(path)
    assert not np.isnan(Run.open(path).all_metrics()["test_loss"]).any()


def test_numbers_of_an_earlier_fedscope_are_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "run"
    record(path, range(1, 4))
    fedscope.measure(path, model=Scaled(6, 3), rounds=1)
    run = Run.open(path)
    (one,) = run.measured.measurements
    old = replace(one, settings={key: value for key, value in one.settings.items() if key != "behaviour"})
    write_measured(path, MeasuredNumbers((old,)), run.identity)
    assert fedscope.measure(path, model=Scaled(6, 3)).new["test_loss"] == (2, 3)
    assert [sorted(part.rows) for part in Run.open(path).measured.measurements] == [[1], [2, 3]]


def test_answers_that_are_no_numbers_are_not_compared(tmp_path: Path) -> None:
    with fedscope.Recorder(tmp_path / "run", data=(X, Y)) as recorder:
        for t in (1, 2):
            broken = net(t)
            with torch.no_grad():
                broken.bias.fill_(float("nan"))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                recorder.round(clients=[broken], global_=broken)
    for rounds in (1, 2):
        fedscope.measure(tmp_path / "run", model=net(0), rounds=rounds)
    assert "behaviour" not in Run.open(tmp_path / "run").measured.measurements[0].settings


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda text: text.replace('"test_loss": ', '"test_loss": 1', 1), "is not as it was written"),
        (lambda text: "{}", 'it does not say "format": "fedscope-measured"'),
        (lambda text: text[: len(text) // 2], "is not JSON"),
        (lambda text: text.replace('"version": 1', '"version": 9'), "reads versions up to 1"),
        (lambda text: "[" * 10**5, "nested too deep|is not JSON"),
    ],
)
def test_a_damaged_file_is_said_and_can_go(tmp_path: Path, spoil: Any, sentence: str) -> None:
    record(tmp_path / "run", range(1, 3))
    fedscope.measure(tmp_path / "run", model=net(0))
    file = tmp_path / "run" / NAME
    file.write_text(spoil(file.read_text()))
    with pytest.raises(FedscopeError, match=sentence):
        Run.open(tmp_path / "run").metrics()
    faults = check_run(tmp_path / "run").faults
    assert [name for name, _ in faults] == [NAME]
    file.unlink()
    assert fedscope.measure(tmp_path / "run", model=net(0)).new["test_loss"] == (1, 2)
    assert check_run(tmp_path / "run").faults == ()


def test_another_runs_file_is_refused(tmp_path: Path) -> None:
    for name in ("one", "other"):
        record(tmp_path / name, range(1, 3))
        fedscope.measure(tmp_path / name, model=net(0))
    shutil.copy(tmp_path / "one" / NAME, tmp_path / "other" / NAME)
    with pytest.raises(FedscopeError, match=r"other/measured.json is of another run .* delete it, and measure again"):
        Run.open(tmp_path / "other").metrics()


def test_a_table_that_contradicts_them_is_a_fault(tmp_path: Path) -> None:
    record(tmp_path / "run", range(1, 3))
    fedscope.measure(tmp_path / "run", model=net(0))
    run = Run.open(tmp_path / "run")
    mend_table(run.path / "metrics.csv", run.rounds, lambda t: {**run.numbers(t), "test_error": 0.125}, run.identity)
    said = [what for name, what in check_run(run.path).faults if name == "metrics.csv"]
    assert len(said) == 2
    assert said[0].startswith("it says test_error = 0.125 of round 1, but measured.json says ")
