"""Recorded runs: identities that must hold in the files, whatever method, policy, interruption or number of workers."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import fedscope
from fedscope.checkpoints import FedscopeError, FedscopeWarning, RoundRecord, Run, mean, stack, weighted_mean
from fedscope.decomposition.draws.replay import Replayer
from fedscope.evaluation.device import Compute
from fedscope.training import Config, config_of, merge, preset, resume, train
from fedscope.training.loop.federation import Unwatched
from fedscope.training.loop.train import made_with

pytestmark = pytest.mark.usefixtures("few_digits")

SMALL = {
    "data": {"clients": 8},
    "model": {"hidden": [16]},
    "client": {"epochs": 2},
    "run": {"rounds": 8, "participation": 0.5, "evaluate_clients": 60},
}
IMA = {"average": {"window": 3, "start": 4}}


def config(method: str = "ima", **sections: dict[str, Any]) -> Config:
    extra = IMA if method == "ima" else {}
    return Config.read(merge(preset(method), SMALL, extra, sections))


@pytest.fixture(scope="module")
def ima(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(config(), tmp_path_factory.mktemp("runs") / "ima")


@pytest.fixture(scope="module")
def fma(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(config("fma"), tmp_path_factory.mktemp("runs") / "fma")


def same(a: Run, b: Run) -> None:
    """Every number of two runs is the same, bit for bit, ``seconds`` apart."""
    assert a.rounds == b.rounds
    for t in a.rounds:
        one, other = a.round(t), b.round(t)
        assert one.models == other.models
        assert one.has_clients == other.has_clients
        for which in one.models:
            assert one.read(which).parameters.tobytes() == other.read(which).parameters.tobytes(), (t, which)
        if one.has_clients:
            assert one.clients().parameters.tobytes() == other.clients().parameters.tobytes(), t
        np.testing.assert_array_equal(one.client_loss, other.client_loss)
    for name, values in a.metrics().items():
        if name != "seconds":
            np.testing.assert_array_equal(values, b.metrics()[name])


def test_global_is_the_weighted_sum_of_the_clients_from_the_files_alone(ima: Run, close: Any) -> None:
    for t in ima.rounds:
        round_ = ima.round(t)
        clients, p = round_.clients(), round_.weights
        assert p.sum() == pytest.approx(1, abs=1e-12)
        np.testing.assert_array_equal(p, round_.client_samples / round_.client_samples.sum())
        expected = weighted_mean(clients, p).parameters
        assert round_.read("global").parameters.tobytes() == expected.tobytes()
        in_one = (p @ clients.parameters.astype(np.float64)).astype(np.float32)
        close(expected, in_one, 1e-6)


def test_averaged_is_the_mean_of_the_windows_globals_and_the_next_start(ima: Run, close: Any) -> None:
    for t in ima.rounds:
        round_ = ima.round(t)
        if t < 4:
            assert "averaged" not in round_.models
        else:
            window = [ima.round(s).read("global") for s in range(max(1, t - 2), t + 1)]
            expected = np.stack([w.parameters for w in window]).astype(np.float64).mean(0).astype(np.float32)
            close(round_.read("averaged").parameters, expected, 1e-6)
            assert round_.read("averaged").parameters.tobytes() == mean(stack(window)).parameters.tobytes()
        if t > 1:
            before = ima.round(t - 1)
            sent = before.read("averaged" if t >= 5 else "global").parameters
            assert round_.read("start").parameters.tobytes() == sent.tobytes(), t


def test_ima_before_its_start_is_fma_bit_for_bit(ima: Run, fma: Run) -> None:
    for t in range(1, 5):  # round t_s = 4 itself still starts from `global`
        assert ima.round(t).read("global").parameters.tobytes() == fma.round(t).read("global").parameters.tobytes()
    assert ima.round(5).read("global").parameters.tobytes() != fma.round(5).read("global").parameters.tobytes()


def test_ima_with_a_window_of_one_and_no_exploration_is_fma_bit_for_bit(fma: Run, tmp_path: Path) -> None:
    one = train(config("ima", average={"window": 1, "explore": "none"}), tmp_path / "one")
    for t in fma.rounds:
        assert one.round(t).clients().parameters.tobytes() == fma.round(t).clients().parameters.tobytes()
        assert one.round(t).read("global").parameters.tobytes() == fma.round(t).read("global").parameters.tobytes()


def test_methods_and_seeds_meet_the_same_clients_in_the_same_rounds(ima: Run, tmp_path: Path) -> None:
    other = train(config("fma", run={"seed": 5, "rounds": 3}), tmp_path / "other")
    for t in other.rounds:
        np.testing.assert_array_equal(ima.round(t).client_ids, other.round(t).client_ids)
    assert ima.round(1).read("start").parameters.tobytes() != other.round(1).read("start").parameters.tobytes()


@pytest.mark.parametrize("workers", [1, 3])
def test_the_number_of_workers_changes_nothing(ima: Run, tmp_path: Path, workers: int) -> None:
    same(ima, train(config(), tmp_path / "run", workers=workers))


@pytest.fixture(scope="module", params=["all", "none", "every:3"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    settings = config(record={"globals": request.param, "clients": "every:2"})
    return train(settings, tmp_path_factory.mktemp("whole") / "ima")


@pytest.mark.parametrize("stop", [0, 2, 3, pytest.param(4, marks=pytest.mark.slow), 6])
def test_an_interrupted_and_resumed_run_equals_an_uninterrupted_one(
    stop_after: Any, ima: Run, whole: Run, tmp_path: Path, stop: int
) -> None:
    settings = config_of(whole)
    with pytest.raises(KeyboardInterrupt):
        train(settings, tmp_path / "cut", watcher=stop_after(stop))
    cut = Run.open(tmp_path / "cut")
    assert cut.rounds == tuple(range(1, stop + 1))
    resumed = resume(tmp_path / "cut")
    same(whole, resumed)
    last = resumed.round("last")
    assert last.read("averaged").parameters.tobytes() == ima.round("last").read("averaged").parameters.tobytes()


def test_delta_compression_changes_no_bit(ima: Run, tmp_path: Path) -> None:
    same(ima, train(config(record={"compression": "delta"}), tmp_path / "delta"))


def test_the_run_repeats_from_its_own_configuration(ima: Run, tmp_path: Path) -> None:
    assert ima.config is not None
    same(ima, train(Config.read(ima.config), tmp_path / "again"))


def test_a_replay_of_draw_one_is_the_recorded_round_bit_for_bit_and_other_draws_differ(ima: Run) -> None:
    replayer = Replayer.of(ima)
    for t in (1, 6):
        round_ = ima.round(t)
        assert replayer.replay(round_, 1).parameters.tobytes() == round_.clients().parameters.tobytes()
        second, third = replayer.replay(round_, 2).parameters, replayer.replay(round_, 3).parameters
        assert (second != round_.clients().parameters).any()
        assert (second != third).any()
    draws = replayer.local_draws(6, 3)
    assert draws.count == 3
    assert draws.draws[0].parameters.tobytes() == ima.round(6).clients().parameters.tobytes()
    np.testing.assert_array_equal(draws.p, ima.round(6).weights)


def test_metrics_are_those_of_the_recorded_models(ima: Run) -> None:
    from fedscope.evaluation.evaluator import Evaluator
    from fedscope.training import data_of, module_of

    test = data_of(ima).samples("test")
    evaluator = Evaluator(module_of(ima), test)
    for t in (1, 8):
        round_ = ima.round(t)
        loss, error = evaluator.models([round_.read("global")])
        assert round_.metrics["test_loss"] == pytest.approx(loss[0], rel=1e-12)
        assert round_.metrics["test_error"] == pytest.approx(error[0], rel=1e-12)
    _, errors = Evaluator(module_of(ima), test.limit(60, 0)).models(ima.round(8).clients())
    assert ima.round(8).metrics["client_error_mean"] == pytest.approx(errors.mean())
    assert ima.round(8).metrics["client_error_std"] == pytest.approx(errors.std())


def test_learning_falls_far_below_chance(ima: Run, tmp_path: Path) -> None:
    assert ima.metrics()["averaged_test_error"][-1] < 0.75  # of few digits, ten classes, two a client
    run = train(config(data={"partition": "iid"}, client={"epochs": 10}), tmp_path / "longer")
    assert run.metrics()["averaged_test_error"][-1] < 0.15


def test_a_client_that_diverges_is_named_and_its_round_is_recorded(tmp_path: Path) -> None:
    wild = config("fma", client={"lr": 1e30})
    with pytest.raises(
        FedscopeError, match=r"round 1: the training loss of clients? .* not finite at learning rate 1e"
    ):
        train(wild, tmp_path / "wild")
    run = Run.open(tmp_path / "wild")
    assert run.rounds == (1,)
    assert not np.isfinite(run.round(1).client_loss).all()
    with pytest.raises(FedscopeError, match=r"--keep-going"):
        resume(tmp_path / "wild")
    assert resume(tmp_path / "wild", keep_going=True).rounds == tuple(range(1, 9))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"server": {"method": "fedadam", "lr": 1e38}},
            r"round 1: the global model (is not finite|has parameters above 1e30), although the training losses of "
            r"its clients are finite; all rounds are recorded in .*wild; train again with a smaller server\.lr, or",
        ),
        (
            {"client": {"lr": 1e38, "epochs": 1, "batch": 10_000}},
            r"round 1: the global model .* although .*; train again with a smaller lr=, or",
        ),
        ({"client": {"lr": 1e30}}, r"round 1: the training loss of .* is recorded in .*wild; use a smaller lr=$"),
    ],
)
def test_a_model_that_diverges_in_the_last_round_is_told(
    tmp_path: Path, changes: dict[str, dict[str, Any]], says: str
) -> None:
    wild = config("fma", **merge({"run": {**SMALL["run"], "rounds": 1}}, changes))
    with pytest.raises(FedscopeError, match=says):
        train(wild, tmp_path / "wild")
    assert Run.open(tmp_path / "wild").rounds == (1,)
    # nor does that stop a run of which it is wanted, or of which nothing is measured
    assert train(wild, tmp_path / "going", keep_going=True).rounds == (1,)


def inverse_likelihood(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A loss of one's own, infinite in float32 where the right class is improbable."""
    return -torch.log(torch.softmax(outputs, 1).gather(1, y[:, None])[:, 0])


def test_a_test_loss_that_is_infinite_on_a_sample_refuses_no_run(tmp_path: Path) -> None:
    g = np.random.default_rng(0)
    x, y = g.normal(size=(60, 8)).astype(np.float32), g.integers(0, 10, 60)
    x_test = np.concatenate([x[:10], x[:10] * np.float32(1e5)])
    given: dict[str, Any] = {"task": inverse_likelihood, "data": ((x, y), (x_test, np.resize(y[:10], 20)))}
    given |= {"model": "mlp", "clients": 2, "participation": 1.0, "rounds": 1, "partition": "iid"}
    with pytest.warns(
        FedscopeWarning, match=r"round 1: the test loss is inf, although the global model is finite; loo"
    ):
        run = fedscope.train(out=tmp_path / "run", **given)
    assert run.rounds == (1,)
    assert run.round(1).metrics["test_loss"] == np.inf


class FillDisk(Unwatched):
    """The disk is full when round ``at`` is synced."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
        self.monkeypatch, self.at = monkeypatch, at

    def round(self, record: RoundRecord, of: int) -> None:
        if record.round == self.at - 1:

            def full(_: int) -> None:
                raise OSError(errno.ENOSPC, "No space left on device")

            self.monkeypatch.setattr(os, "fsync", full)


def test_a_full_disk_leaves_the_whole_rounds_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ima: Run
) -> None:
    with pytest.raises(FedscopeError, match=r"full.*round 3|round 3.*full|No space"):
        train(config(), tmp_path / "full", watcher=FillDisk(monkeypatch, 4))
    monkeypatch.undo()
    assert Run.open(tmp_path / "full").rounds == (1, 2, 3)
    same(ima, resume(tmp_path / "full"))


def test_more_than_the_disk_holds_is_refused_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(FedscopeError, match=r"recording would take \d+ kB, but .* has 1 kB free.*force=True"):
        train(config(), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_existing_runs_are_not_overwritten_and_complete_ones_not_resumed(ima: Run) -> None:
    before = ima.round(1).read("global").parameters
    with pytest.raises(FedscopeError, match=r"force=True"):
        train(config(), ima.path)
    with pytest.raises(FedscopeError, match=r"is complete: all of its 8 rounds are recorded"):
        resume(ima.path)
    assert Run.open(ima.path).round(1).read("global").parameters.tobytes() == before.tobytes()


def test_vectors_are_not_cropped_and_images_are_trained_augmented(tmp_path: Path, fma: Run) -> None:
    x, y = np.zeros((40, 6), np.float32), np.arange(40) % 4
    np.savez(tmp_path / "v.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    with pytest.raises(FedscopeError, match=r"crops and flips images, but a sample of .* has shape \[6\]"):
        train(config(data={"name": f"npz:{tmp_path}/v.npz", "augment": "crop-flip", "clients": 4}), tmp_path / "v")
    augmented = train(config("fma", data={"augment": "crop-flip"}, run={"rounds": 1}), tmp_path / "a")
    assert (augmented.round(1).client_loss != fma.round(1).client_loss).all()
    again = train(config("fma", data={"augment": "crop-flip"}, run={"rounds": 1}), tmp_path / "b", workers=1)
    same(augmented, again)


def test_rounds_without_recorded_clients_are_refused_with_those_that_have_them(tmp_path: Path) -> None:
    run = train(config(record={"clients": [2, 5]}), tmp_path / "run")
    with pytest.raises(FedscopeError, match=r"clients of round 3 were not recorded; rounds 2, 5 have them"):
        Replayer.of(run).local_draws(3, 2)
    with pytest.raises(FedscopeError, match=r"one draw gives no variance"):
        Replayer.of(run).local_draws(2, 1)


def test_changed_data_are_noticed(stop_after: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)

    def write(scale: float) -> None:
        x = rng.normal(size=(90, 6)).astype(np.float32) * scale
        y = np.arange(90) % 3
        np.savez(tmp_path / "d.npz", x_train=x[:60], y_train=y[:60], x_test=x[60:], y_test=y[60:])

    write(1)
    settings = config("fma", data={"name": f"npz:{tmp_path}/d.npz", "clients": 4}, run={"rounds": 2})
    with pytest.raises(KeyboardInterrupt):
        train(settings, tmp_path / "run", watcher=stop_after(1))
    write(2)
    with pytest.raises(FedscopeError, match=r"has changed since the run was trained"):
        resume(tmp_path / "run")


def test_two_runs_of_one_second_are_told_apart() -> None:
    # `created` is what tells an analysis that its run was trained again
    made = [made_with(config(), Compute())["created"] for _ in range(20)]
    assert len(set(made)) == len(made)
