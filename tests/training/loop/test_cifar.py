"""Real CIFAR-10 from the command line to factors: set FEDSCOPE_CIFAR10 to an .npz of x_train, y_train, x_test, y_test.

The arrays are those of the data set, uint8 [N, 32, 32, 3] with labels 0..9; everyone's own copy will do.
"""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from fedscope.checkpoints import Run, load_model, weighted_mean
from fedscope.evaluation.evaluator import Evaluator
from fedscope.landscape import Plane
from fedscope.training import data_of, module_of

DATA = os.environ.get("FEDSCOPE_CIFAR10", "")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DATA, reason="FEDSCOPE_CIFAR10 does not name an .npz with the data set"),
]


def fedscope(*words: str | Path) -> str:
    command = [sys.executable, "-P", "-c", "from fedscope.cli.main import main; main()", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    path = tmp_path_factory.mktemp("cifar10") / "ima"
    settings = ("--partition=shards:2", "--clients=100", "--participation=0.1", "--rounds=2", "--epochs=1")
    fedscope("train", f"--data=npz:{DATA}", "--model=cnn", *settings, "--out", path)
    return Run.open(path)


def test_a_run_holds_ten_clients_of_two_shards_each(run: Run) -> None:
    assert run.rounds == (1, 2)
    assert run.info["data"]["shape"] == [3, 32, 32]
    assert run.info["data"]["channel_means"] == pytest.approx([0.491, 0.482, 0.447], abs=5e-3)
    assert run.partition is not None
    counts = run.partition.label_counts
    assert counts.shape == (100, 10)
    assert counts.sum() == 50_000
    assert ((counts > 0).sum(axis=1) <= 4).all()  # a shard may straddle two classes
    for t in run.rounds:
        round_ = run.round(t)
        clients = round_.clients()
        assert len(clients) == 10
        assert round_.read("global").parameters.tobytes() == weighted_mean(clients, round_.weights).parameters.tobytes()
    assert np.isfinite(run.metrics()["test_loss"]).all()


def test_the_anchors_of_a_plane_are_exact(run: Run, tmp_path: Path) -> None:
    ids = run.round("last").client_ids
    models = [f"{run.path}@last/client-{k}" for k in ids[:3]]
    fedscope("plane", *models, f"--show={run.path}@last/global", "--grid=5", "--limit=500", "--out", tmp_path / "plane")
    plane = Plane.load(tmp_path / "plane.nc")
    samples = data_of(run).samples("test").limit(500, 0)
    assert plane.loss.shape == (5, 5)
    assert plane.attrs["samples"] == 500
    loaded = [load_model(address).weights for address in (*models, f"{run.path}@last/global")]
    loss, error = Evaluator(module_of(run), samples).models(loaded)
    drawn = [*plane.anchors, *plane.shown]
    assert [model.loss for model in drawn] == loss.tolist()
    assert [model.error for model in drawn] == error.tolist()
    # The plane's own coordinates lead back to the anchors: their distances are those in float64.
    w = [model.parameters.astype(np.float64) for model in loaded]
    for i, j in ((0, 1), (0, 2), (1, 2)):
        apart = np.hypot(drawn[i].a - drawn[j].a, drawn[i].b - drawn[j].b)
        assert apart == pytest.approx(np.linalg.norm(w[i] - w[j]), rel=1e-9)
    assert abs(plane.cos_uv) < 1e-12
    assert max(model.off_plane for model in plane.anchors) < 1e-6 * np.linalg.norm(w[0] - w[1])
    assert drawn[3].off_plane > 0.01 * np.linalg.norm(w[0] - w[1])  # ten clients' mean does not lie among three
    for suffix in ("pdf", "png", "html"):
        assert (tmp_path / f"plane.{suffix}").stat().st_size > 5_000


def test_the_factors_add_up_to_the_measured_loss(run: Run, tmp_path: Path) -> None:
    fedscope("decompose", run.path, "--limit=500", "--draws=local:2", "--rounds=last", "--out", tmp_path / "factors")
    with (tmp_path / "factors.factors.csv").open(encoding="utf-8", newline="") as file:
        rows = {(row["factor"], row["estimate"]): row for row in csv.DictReader(file)}

    def value(factor: str, estimate: str) -> float:
        return float(rows[factor, estimate]["value"])

    assert value("closure_error", "measured") <= 1e-6
    for estimate in ("plugin", "unbiased"):
        bias = sum(value(name, estimate) for name in ("train_bias", "heter_bias", "bias_cross"))
        spread = value("variance", estimate) + value("covariance", estimate)
        assert bias + spread == pytest.approx(value("ensemble_loss", "measured"), rel=1e-6)
        locality = next(float(row["value"]) for (name, _), row in rows.items() if name == "locality")
        assert bias + spread + locality == pytest.approx(value("fma_loss", "measured"), rel=1e-6)
    for suffix in ("pdf", "png"):
        assert (tmp_path / f"factors.{suffix}").stat().st_size > 5_000


def test_fifty_random_points_are_those_of_direct_evaluation_in_double_precision(run: Run, tmp_path: Path) -> None:
    """To 1e-6 relative: single precision, summed over 500 samples, against a plain loop in float64."""
    ids = run.round("last").client_ids
    addresses = [f"{run.path}@last/client-{k}" for k in ids[:3]]
    fedscope("plane", *addresses, "--grid=15", "--limit=500", "--out", tmp_path / "plane")
    plane = Plane.load(tmp_path / "plane.nc")
    samples = data_of(run).samples("test").limit(500, 0)
    w_1, w_2, w_3 = (load_model(address).weights.parameters.astype(np.float64) for address in addresses)
    axes, _ = np.linalg.qr(np.stack([w_2 - w_1, w_3 - w_1], axis=1))
    u_hat, v_hat = axes[:, 0] * np.sign(axes[:, 0] @ (w_2 - w_1)), axes[:, 1] * np.sign(axes[:, 1] @ (w_3 - w_1))
    module = module_of(run).double().eval()

    def direct(w: np.ndarray) -> tuple[float, float]:
        torch.nn.utils.vector_to_parameters(torch.from_numpy(w), module.parameters())
        with torch.no_grad():
            logits = module(samples.x.double())
        loss = torch.nn.functional.cross_entropy(logits, samples.y)
        return float(loss), float((logits.argmax(1) != samples.y).double().mean())

    draw = np.random.default_rng(0)
    for row, column in zip(draw.integers(0, 15, 50), draw.integers(0, 15, 50), strict=True):
        loss, error = direct(w_1 + plane.a[column] * u_hat + plane.b[row] * v_hat)
        assert plane.loss[row, column] == pytest.approx(loss, rel=1e-6)
        # a sample on the border between two classes may fall to the other side in single precision
        assert abs(plane.error[row, column] - error) <= 1 / len(samples)
    for model, w in zip(plane.anchors, (w_1, w_2, w_3), strict=True):
        assert model.loss == pytest.approx(direct(w)[0], rel=1e-6)
