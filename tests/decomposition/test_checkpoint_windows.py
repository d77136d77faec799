"""Means of checkpoints by window and weighting: plain averages of numpy, from bytes that are read once."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedscope
from fedscope.checkpoints import FedscopeError, Layout, RoundRecord, Run, RunWriter, Weights, recorded_matrix, stack
from fedscope.checkpoints.models.weights import TensorEntry
from fedscope.checkpoints.rounds.columns import ColumnChunk
from fedscope.cli.main import run as command
from fedscope.decomposition.windows import checkpoint_means
from fedscope.decomposition.windows.checkpoint_means import ColumnMeans, averages_of, mean_models
from fedscope.decomposition.windows.checkpoint_result import CheckpointMean, CheckpointWindows
from fedscope.decomposition.windows.weightings import Weighting, weightings_of, windows_over
from fedscope.training.methods.shared.checkpoint_weights import SHAPES
from fedscope.training.methods.shared.checkpoint_weights import checkpoint_weights as weights_by_age

LAYOUT = Layout(
    (
        TensorEntry("body.weight", (30, 7), "float32", "parameter"),
        TensorEntry("norm.running_mean", (7,), "float32", "buffer"),
        TensorEntry("norm.num_batches_tracked", (), "int64", "buffer"),
        TensorEntry("head.weight", (2, 30), "float32", "parameter"),
    )
)
EVERY = [Weighting(shape) for shape in SHAPES] + [Weighting("ema", 0.5)]


def recorded(path: Path, models: list[Weights], p: np.ndarray, ids: np.ndarray | None = None) -> Run:
    ids = np.arange(len(models)) if ids is None else ids
    with RunWriter.create(path, {"layout": models[0].layout.to_json(), "source": "mine"}, None, None) as writer:
        writer.write(RoundRecord(1, None, stack(models), None, None, ids, ids + 1, ids, p, p))
    return Run.open(path)


def drawn(k: int, layout: Layout = LAYOUT) -> Weights:
    random = np.random.default_rng(k)
    buffers = {"norm.running_mean": random.normal(size=7).astype(np.float32), "norm.num_batches_tracked": np.array(k)}
    return Weights(layout, random.normal(size=layout.size).astype(np.float32), buffers)


@pytest.mark.parametrize("aside", [False, True], ids=["in memory", "on the disk"])
def test_every_mean_is_numpys_average(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, aside: bool) -> None:
    monkeypatch.setattr(checkpoint_means, "put_aside", lambda *size: aside)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    models = [drawn(k) for k in range(6)]
    p = np.array([0.1, 0.3, 0.0, 0.2, 0.25, 0.15])
    ids = np.array([0, 2, 3, 5, 8, 9])  # the newest has the greatest id, and 3 weighs nothing
    run = recorded(tmp_path / "run", models, p, ids)
    averages = averages_of(run.round(1).weights, [2, 3, 5], EVERY)
    made = mean_models(recorded_matrix(run.round(1)), averages)
    assert len(made) == len(averages) == 1 + 3 * len(EVERY)
    assert made[0].parameters.tobytes() == models[5].parameters.tobytes()
    oldest_first = [0, 1, 3, 4, 5]
    expected = [(window, weighting) for weighting in EVERY for window in (2, 3, 5)]
    for mean, (window, weighting) in zip(list(made)[1:], expected, strict=True):
        members = oldest_first[-window:]
        weights = weights_by_age(weighting.shape, window, weighting.beta) * p[members]
        for name in ("body.weight", "head.weight", "norm.running_mean"):
            rows = [models[k].arrays()[name] for k in members]
            plain = np.average(np.asarray(rows, np.float64), axis=0, weights=weights)
            np.testing.assert_allclose(mean.arrays()[name], plain, rtol=2e-7, atol=1e-9)
        greatest = members[int(weights.argmax())]
        assert mean.arrays()["norm.num_batches_tracked"] == models[greatest].buffers["norm.num_batches_tracked"]


def test_the_bytes_are_read_once_whatever_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = recorded(tmp_path / "run", [drawn(k) for k in range(8)], np.full(8, 1 / 8))
    seen: list[int] = []
    read = ColumnChunk.read

    def counted(self: ColumnChunk, buffer: np.ndarray | None = None) -> np.ndarray:
        seen.append(self.rows * self.count)
        return read(self, buffer)

    monkeypatch.setattr(ColumnChunk, "read", counted)
    monkeypatch.setattr(checkpoint_means, "NUMBERS", 64)
    monkeypatch.setattr(checkpoint_means, "BLOCK", 128)
    mean_models(recorded_matrix(run.round(1)), averages_of(np.full(8, 1 / 8), [2, 4, 8], EVERY))
    assert sum(seen) == 8 * LAYOUT.size


@pytest.mark.parametrize("step", [3, 1000], ids=["in steps", "at once"])
def test_means_are_those_of_exact_sums(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    monkeypatch.setattr(checkpoint_means, "NUMBERS", 40 * step)
    random = np.random.default_rng(0)
    values = random.normal(size=(40, 50)).astype(np.float32)
    p = random.uniform(size=40) * (np.arange(40) != 33)
    averages = averages_of(p / p.sum(), [2, 3, 8, 20, 39], EVERY)
    means = ColumnMeans(np.stack([one.shares for one in averages]))
    found = np.empty((len(averages), 50), np.float32)
    means.form(values, found)
    assert sorted(means.order) == list(range(len(averages)))
    for row, k in enumerate(means.order):
        shares = [Fraction(one) for one in averages[k].shares]
        columns = [[Fraction(float(x)) for x in own] for own in values.T]
        exact = [float(sum(s * x for s, x in zip(shares, own, strict=True))) for own in columns]
        # half a unit in the last place of float32, of the rounding alone, and what cancels in float64
        np.testing.assert_allclose(found[row], exact, rtol=2.0**-24 * (1 + 1e-6), atol=1e-15)


def test_a_checkpoint_that_diverged_is_in_the_windows_with_it_alone(tmp_path: Path) -> None:
    models = [drawn(k) for k in range(4)]
    models[0].parameters[3] = np.inf
    run = recorded(tmp_path / "run", models, np.full(4, 1 / 4))
    three, four = list(mean_models(recorded_matrix(run.round(1)), averages_of(np.full(4, 0.25), [3, 4], EVERY[:1])))[1:]
    assert np.isfinite(three.parameters).all()
    np.testing.assert_allclose(
        three.parameters, np.mean([model.parameters for model in models[1:]], axis=0), rtol=1e-6, atol=1e-7
    )
    assert np.flatnonzero(~np.isfinite(four.parameters)).tolist() == [3]


def test_no_room_for_the_means_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_means, "put_aside", lambda *size: True)
    monkeypatch.setattr("shutil.disk_usage", lambda folder: type("Usage", (), {"free": 100}))
    run = recorded(tmp_path / "run", [drawn(k) for k in range(3)], np.full(3, 1 / 3))
    with pytest.raises(FedscopeError, match=r"^2 means of checkpoints take .* in .*, which has 100 B left"):
        mean_models(recorded_matrix(run.round(1)), averages_of(np.full(3, 1 / 3), [3], EVERY[:1]))


# --- measured ---


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Six checkpoints of a linear model in a folder, imported; and data."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    x = random.normal(size=(90, 5)).astype(np.float32)
    y = (x @ random.normal(size=(5, 3))).argmax(axis=1)
    np.savez("data.npz", x_train=x[:50], y_train=y[:50], x_test=x[50:], y_test=y[50:])
    torch.manual_seed(0)
    net = torch.nn.Linear(5, 3)
    Path("ckpt").mkdir()
    for k in range(6):
        with torch.no_grad():
            net.weight += 0.5 * torch.randn(3, 5)
        torch.save(net.state_dict(), f"ckpt/step-{k}.pt")
    run = fedscope.import_models("ckpt", "run", data="npz:data.npz")
    return run, net, x[50:], y[50:]


def loss_of(net: torch.nn.Linear, flat: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float]:
    weight, bias = flat[:15].reshape(3, 5), flat[15:]
    out = torch.tensor(x.astype(np.float64) @ weight.T + bias)
    each = torch.nn.functional.cross_entropy(out, torch.tensor(y), reduction="none").numpy()
    return each, float(np.mean(out.numpy().argmax(axis=1) != y))


def test_losses_gained_are_paired_differences_to_the_newest(path: Any, tmp_path: Path) -> None:
    run, net, x, y = path
    found = fedscope.wima("run@1", checkpoints=True, windows=[2, "all"], weights=["uniform", "ema:0.5"], model=net)
    assert [(one.window, one.weights) for one in found.means] == [
        (1, "newest"),
        *[(2, "uniform"), (6, "uniform"), (2, "ema:0.5"), (6, "ema:0.5")],
    ]
    rows = np.asarray(recorded_matrix(run.round(1)).parameters).astype(np.float64)
    newest, _ = loss_of(net, rows[-1], x, y)
    for one in found.means[1:]:
        shape = "uniform" if one.weights == "uniform" else "ema"
        mean = weights_by_age(shape, one.window, 0.5) @ rows[-one.window :]
        each, error = loss_of(net, mean, x, y)
        gained = newest - each
        assert one.loss == pytest.approx(each.mean(), rel=1e-5)
        assert one.error == pytest.approx(error)
        assert one.gained == pytest.approx(gained.mean(), rel=1e-4, abs=1e-7)
        assert one.gained_stderr == pytest.approx(gained.std(ddof=1) / math.sqrt(len(y)), rel=1e-4)
    assert (found.newest.gained, found.newest.gained_stderr) == (0.0, 0.0)
    assert found.newest.loss == pytest.approx(newest.mean(), rel=1e-5)
    found.save(tmp_path / "w")
    assert CheckpointWindows.load(tmp_path / "w") == found
    assert fedscope.load(tmp_path / "w.checkpoints.json") == found
    table = list(csv.DictReader((tmp_path / "w.checkpoints.csv").read_text(encoding="utf-8").splitlines()))
    assert [row["window"] for row in table] == ["1", "2", "6", "2", "6"]
    assert {(row["run"], row["round"]) for row in table} == {("run", "1")}
    # the same as the server's on the same samples
    server = fedscope.reaggregate("run@1", "checkpoints", settings={"last": 2, "shape": "uniform"}, model=net)
    assert server.measured[-1].loss == pytest.approx(found.means[1].loss, rel=1e-6)


def test_samples_of_training_are_those_of_the_split(path: Any) -> None:
    found = fedscope.wima("run", checkpoints=True, windows=2, weights="uniform", model=path[1], split="train")
    assert found.attrs["samples"] == 50
    few = fedscope.wima("run", checkpoints=True, windows=2, weights="uniform", model=path[1], split="train", limit=20)
    assert few.attrs["samples"] == 20


def test_the_command_prints_a_table_and_draws(path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    Path("of_windows.py").write_text("import torch\n\ndef net():\n    return torch.nn.Linear(5, 3)\n")
    words = "wima run@1 --checkpoints --model of_windows:net --windows 2,3,all --weights uniform,minus_sqrt --out w"
    assert command(words.split()) == 0
    said = capsys.readouterr().out
    assert "the newest of 6 checkpoints has a loss of" in said
    assert [line.split()[0] for line in said.splitlines()[2:6]] == ["W", "2", "3", "6"]
    for suffix in (".checkpoints.csv", ".checkpoints.json", ".pdf", ".png"):
        assert Path(f"w{suffix}").exists()
    assert not Path("w.wima.csv").exists()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"windows": "7"}, r"^windows=7: run@1 has 6 checkpoints; give numbers up to 6, or all$"),
        ({"windows": "1"}, r"^windows=1: that is no number of checkpoints from 2 on \(the newest"),
        ({"windows": "x"}, r"^windows='x': that is no number of checkpoints"),
        ({"weights": "lineal"}, r'^weights=\'lineal\' is none of uniform, .* as ema:0.99; did you mean "linear"'),
        ({"weights": "linear:0.5"}, r"^weights='linear:0.5' is none of uniform, linear"),
        ({"weights": "ema:1"}, r"^weights='ema:1': β is a number between 0 and 1, as in ema:0.99$"),
        ({"parts": "features"}, r"^parts='features' is of a run's global models, but checkpoints=True was given"),
        ({"checkpoints": False, "weights": "linear"}, r"^weights='linear' are of checkpoints, but WIMA weighs all"),
    ],
)
def test_what_is_refused(path: Any, given: dict[str, Any], said: str) -> None:
    with pytest.raises(FedscopeError, match=said):
        fedscope.wima("run@1", **{"checkpoints": True, "model": path[1], **given})


def test_runs_that_are_no_checkpoints(path: Any, tmp_path: Path) -> None:
    with pytest.raises(FedscopeError, match=r"^checkpoints=True takes one run, but got 2 runs; ask for each alone"):
        fedscope.wima(["run", "run"], checkpoints=True)
    one = recorded(tmp_path / "one", [drawn(0)], np.ones(1))
    with pytest.raises(FedscopeError, match=r"one@1 has one checkpoint, so there is nothing to average"):
        fedscope.wima(one, checkpoints=True)
    with RunWriter.create(tmp_path / "two", {"layout": LAYOUT.to_json(), "source": "mine"}, None, None) as writer:
        for t in (1, 2):
            ids, p = np.arange(2), np.full(2, 0.5)
            writer.write(RoundRecord(t, None, stack([drawn(0), drawn(1)]), None, None, ids, ids + 1, ids, p, p))
    with pytest.raises(FedscopeError, match=r"two has 2 rounds, and checkpoints=True averages the clients of one"):
        fedscope.wima(tmp_path / "two", checkpoints=True)


@pytest.mark.same_elsewhere
def test_windows_and_weightings_by_default() -> None:
    assert windows_over(None, 2, "x") == (2,)
    assert windows_over(None, 40, "x") == (2, 4, 8, 16, 32, 40)
    assert [str(one) for one in weightings_of(None)] == list(SHAPES)


# --- the result ---

MEANS = (
    CheckpointMean(1, "newest", 0.5, 0.1, 0.0, 0.0, 0.0, 0.0),
    CheckpointMean(2, "uniform", 0.45, 0.1, 0.05, 0.01, 0.0, 0.004),
    CheckpointMean(4, "uniform", math.inf, 0.9, None, None, -0.8, 0.01),
)
ATTRS = {"data": "digits", "split": "test", "samples": 360, "checkpoints": 5}


@pytest.mark.same_elsewhere
def test_the_sentences_say_what_gains_most() -> None:
    found = CheckpointWindows(MEANS, ATTRS)
    assert found.summary().splitlines() == [
        "test data, 360 samples: the newest of 5 checkpoints has a loss of 0.5, error 10 %",
        "loss that the mean of the last W gains on it, on the same samples (± 1.96 standard errors):",
        "  W       uniform",
        "  2  +0.05 ± 0.02",
        "  4             -",
        "most gained: +0.05 ± 0.02 by the last 2, uniform, and +0 ± 0.78 points of error (± 1.96 standard errors over "
        "samples)",
        "it is the best of 2 on these samples, where it looks better than it is: measure it on others",
    ]
    unsure = CheckpointWindows((MEANS[0], replace(MEANS[1], gained_stderr=0.03)), ATTRS)
    assert unsure.notes()[0].endswith("; the interval includes 0")
    for nothing in (None, 0.0):
        without = CheckpointWindows((MEANS[0], replace(MEANS[1], gained_stderr=nothing)), ATTRS)
        assert without.notes()[0].endswith("; samples say nothing of how sure that is")
    worse = CheckpointWindows((MEANS[0], replace(MEANS[1], gained=-0.05)), ATTRS)
    assert worse.notes() == ["no mean gains on the newest checkpoint"]


@pytest.mark.same_elsewhere
def test_the_figure_has_a_line_a_weighting_and_its_band() -> None:
    more = (*MEANS, *(replace(one, weights="linear") for one in MEANS[1:]))
    (axes,) = CheckpointWindows(more, ATTRS).figure().axes
    lines = [line for line in axes.lines if not str(line.get_label()).startswith("_")]
    assert [line.get_label() for line in lines] == ["uniform", "linear"]
    assert lines[0].get_xydata()[0].tolist() == [2, 0.05]
    assert np.isnan(lines[0].get_ydata()[1])
    low = min(vertex[1] for vertex in axes.collections[0].get_paths()[0].vertices)
    assert low == pytest.approx(0.05 - 1.96 * 0.01)


def test_files_of_models_are_refused_with_their_folder(tmp_path: Path) -> None:
    files = [tmp_path / f"ck-{k}.pt" for k in (0, 1)]
    for file in files:
        file.write_bytes(b"")
    said = f"{files[0]} is a file, but wima reads runs, or a folder of checkpoints; give their folder, {tmp_path}"
    asked: list[dict[str, Any]] = [{"weights": "linear"}, {"checkpoints": True}]
    for more in asked:
        with pytest.raises(FedscopeError) as caught:
            fedscope.wima(files, **more)
        assert str(caught.value) == said
