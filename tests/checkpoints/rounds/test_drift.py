"""Drift of a round's clients in a run's table: what `updates` gives later, whoever recorded the run."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedscope
from fedscope.checkpoints import FedscopeWarning, Run, TemporaryMatrix
from fedscope.checkpoints.rounds import drift as module
from fedscope.checkpoints.rounds.drift import DRIFT, drift_in
from fedscope.cli.main import run as command
from fedscope.cli.progress import TrainingWatcher
from fedscope.training import Config, train
from fedscope.training.local import cohort_storage

TABLES: dict[str, Any] = {
    "data": {"clients": 8},
    "model": {"hidden": [6]},
    "client": {"epochs": 1},
    "server": {"method": "fedavgm", "lr": 0.5},
    "run": {"rounds": 3, "participation": 0.5, "evaluate_clients": 0},
    "record": {"drift": True},
}


@settings(max_examples=40, deadline=None)
@given(clients=st.integers(1, 5), size=st.integers(1, 40), step=st.integers(1, 17), seed=st.integers(0, 99))
def test_drift_is_that_of_the_whole_updates_in_any_blocks(clients: int, size: int, step: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    start, end = draw.normal(size=(2, size)).astype(np.float32)
    rows = (start + draw.choice([0.0, -1.0, 1.0], size=(clients, size))).astype(np.float32)
    p = draw.dirichlet(np.ones(clients))
    blocks = [(start[at : at + step], rows[:, at : at + step], end[at : at + step]) for at in range(0, size, step)]
    found = drift_in(blocks, p)
    delta = rows.astype(float) - start
    mean, norms = p @ delta, np.linalg.norm(delta, axis=1)
    assert list(found) == list(DRIFT)
    want = {"drift_norm": p @ norms, "drift_mean_norm": np.linalg.norm(mean)}
    want["drift_distance"] = np.linalg.norm(end.astype(float) - start)
    moved = [row / norm for row, norm in zip(delta, norms, strict=True) if norm]
    pairs = [a @ b for k, a in enumerate(moved) for b in moved[k + 1 :]]
    want["drift_cosine"] = np.mean(pairs) if pairs else math.nan
    length = want["drift_mean_norm"]
    want["drift_to_mean"] = np.mean([row @ mean / length for row in moved]) if moved and length else math.nan
    torn = [(column < 0).any() and (column > 0).any() for column in delta.T if column.any()]
    want["drift_conflict"] = np.mean(torn) if torn else math.nan
    want["drift_kept"] = length / want["drift_norm"] if want["drift_norm"] else math.nan
    want["drift_step"] = want["drift_distance"] / length if length else math.nan
    assert found == pytest.approx(want, rel=1e-9, abs=1e-12, nan_ok=True)


@settings(max_examples=30, deadline=None)
@given(value=st.sampled_from([math.nan, math.inf]), place=st.integers(0, 3), seed=st.integers(0, 99))
def test_a_client_of_weight_0_that_diverged_has_no_part_in_sums_with_p(value: float, place: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    start, end = draw.normal(size=(2, 7)).astype(np.float32)
    rows, p = draw.normal(size=(3, 7)).astype(np.float32), draw.dirichlet(np.ones(3))
    sound = drift_in([(start, rows, end)], p)
    lost = np.insert(rows, place, value, axis=0)
    found = drift_in([(start, lost, end)], np.insert(p, place, 0.0))
    for name in ("norm", "mean_norm", "kept", "distance", "step"):
        assert found[f"drift_{name}"] == pytest.approx(sound[f"drift_{name}"], rel=1e-12)
    assert math.isnan(found["drift_cosine"])
    signs = np.where(np.isfinite(lost), np.sign(lost.astype(float) - start), 0)  # of what is not finite there is none
    torn = [(column < 0).any() and (column > 0).any() for column in signs.T]
    assert found["drift_conflict"] == pytest.approx(np.mean(torn))
    heavy = drift_in([(start, lost, end)], np.full(4, 0.25))
    assert not math.isfinite(heavy["drift_norm"])
    assert math.isnan(heavy["drift_conflict"])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(Config.read(TABLES), tmp_path_factory.mktemp("drift") / "run")


def test_a_trained_run_has_the_numbers_of_updates(run: Run) -> None:
    (found,) = fedscope.updates(run)
    for one in found.rounds:
        row = run.round(one.round).metrics
        wanted = (one.mean_norm, one.norm_of_mean, one.cancellation, one.cosine_mean)
        told = [row[f"drift_{name}"] for name in ("norm", "mean_norm", "kept", "cosine")]
        assert told == pytest.approx(wanted, rel=1e-6)
        start, end = (run.round(one.round).read(which).parameters.astype(float) for which in ("start", "global"))
        assert row["drift_distance"] == pytest.approx(np.linalg.norm(end - start), rel=1e-6)
        assert row["drift_step"] == pytest.approx(np.linalg.norm(end - start) / one.norm_of_mean, rel=1e-6)
    assert run.round(1).metrics["drift_step"] == pytest.approx(0.5, rel=1e-4)  # FedAvgM's rate in its first round
    header = (run.path / "metrics.csv").read_text().partition("\n")[0].split(",")
    assert header[-1 - len(DRIFT) : -1] == list(DRIFT)


def test_models_are_the_same_with_drift_and_clients_on_the_disk_have_it_too(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = train(Config.read({**TABLES, "record": {}}), tmp_path / "plain")
    assert "drift_kept" not in plain.round(1).metrics
    for number in run.rounds:
        ends = [one.round(number).read("global").parameters.tobytes() for one in (run, plain)]
        assert ends[0] == ends[1]
    made: list[Any] = []
    real = TemporaryMatrix.__init__

    def watched(self: TemporaryMatrix, *arguments: Any) -> None:
        made.append(self)
        real(self, *arguments)

    monkeypatch.setattr(cohort_storage, "HELD", 0)
    monkeypatch.setattr(TemporaryMatrix, "__init__", watched)
    monkeypatch.setattr(module, "NUMBERS", 700)
    again = train(Config.read(TABLES), tmp_path / "again")
    assert made, "clients lay on the disk"
    for name in DRIFT:
        assert again.round(3).metrics[name] == pytest.approx(run.round(3).metrics[name], rel=1e-9)


def test_a_recorded_run_has_them_and_says_why_it_has_none(run: Run, tmp_path: Path) -> None:
    first = run.round(1)
    start, end = (first.read(which).arrays() for which in ("start", "global"))
    clients = {int(k): first.client(int(k)).arrays() for k in first.client_ids}
    samples = dict(zip(clients, map(int, first.client_samples), strict=True))
    with fedscope.Recorder(tmp_path / "loop", drift=True) as recorder:
        recorder.round(start=start, clients=clients, samples=samples, global_=end)
        with pytest.warns(FedscopeWarning, match=r"loop@2: no drift is measured without start= and clients="):
            recorder.round(clients=clients, samples=samples)
    told = Run.open(tmp_path / "loop").round(1).metrics
    assert [told[name] for name in DRIFT] == pytest.approx([first.metrics[name] for name in DRIFT], rel=1e-6)
    half = {name: value.astype(np.float16) for name, value in start.items()}
    factors = {"q.lora_A.weight": np.ones((2, 3), np.float32), "q.lora_B.weight": np.ones((3, 2), np.float32)}
    said = pytest.warns(FedscopeWarning, match=r"of adapters no drift is measured; fedscope updates compares")
    with fedscope.Recorder(tmp_path / "lora", drift=True, lora_alpha=4) as recorder, said:
        recorder.round(start=factors, clients=[factors, factors])
    with fedscope.Recorder(tmp_path / "half", drift=True) as recorder:
        recorder.round(start=half, clients=[{k: v + np.float16(1) for k, v in half.items()}] * 2)
    kept = Run.open(tmp_path / "half").round(1).metrics
    assert kept["drift_kept"] == pytest.approx(1.0)
    assert math.isnan(kept["drift_distance"])  # type: ignore[arg-type]


def test_drift_is_drawn_and_asked_for(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    curves = fedscope.curves(run, measures=["drift_kept", "drift_cosine"])
    named = [axes.get_ylabel().replace("\n", " ") for axes in curves.figure().axes]
    assert named == ["length kept by the mean update", "mean cosine between updates"]
    words = "train --method fma --clients 4 --rounds 1 --set model.hidden=[4] --set record.drift=true --out"
    assert command([*words.split(), str(tmp_path / "r")]) == 0
    assert "drift_kept" in (tmp_path / "r" / "metrics.csv").read_text()
    capsys.readouterr()
    assert command(["train", "--method", "fma", "--set", "record.drift=maybe", "--out", str(tmp_path / "s")]) == 2
    assert "record.drift = 'maybe'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kept", "said"),
    [(0.426, ", kept 43 % of the updates"), (math.nan, ""), (None, "")],
    ids=["drift", "no mean", "off"],
)
def test_a_line_of_progress_tells_the_drift_where_it_was_measured(
    kept: float | None, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a terminal and in a log: a job's log is all that some ever see."""
    monkeypatch.setattr("fedscope.cli.progress._EVERY", 0.0)
    metrics = {"test_error": 0.25, **({} if kept is None else {"drift_kept": kept})}
    record = SimpleNamespace(round=2, metrics=metrics)
    with TrainingWatcher("runs/ima") as watcher:
        watcher.round(record, 4)  # type: ignore[arg-type]
    assert capsys.readouterr().err == f"runs/ima: 50 % (2 of 4){said}\n"
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with TrainingWatcher("runs/ima") as watcher:
        assert watcher._bars is not None
        watcher.round(record, 4)  # type: ignore[arg-type]
        (shown, *_) = [task.description for task in watcher._bars.tasks]
    assert shown == f"runs/ima  test error 25.0 %{said.replace(', ', '  ')}"
