"""Branches of branches, with other settings, from and to every kind of method: what was there goes on, nothing else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from in_memory import contents
from torch import nn

from fedscope.checkpoints import FedscopeError, Layout, Run, Weights
from fedscope.decomposition.draws.replay import Replayer
from fedscope.training import Config, branch, branched_config, merge, preset, resume, train
from fedscope.training.methods.averages.ima import IMA
from fedscope.training.methods.base import History
from fedscope.training.methods.clients.fedbabu import FedBABU
from fedscope.training.models.model_info import ModelInfo
from fedscope.training.settings.registry import find

pytestmark = pytest.mark.usefixtures("few_digits")

SMALL = {
    "data": {"clients": 5},
    "model": {"hidden": [8]},
    "client": {"epochs": 1},
    "run": {"rounds": 6, "participation": 0.6, "evaluate_clients": 0},
}
WIMA = {"average": {"window": 3}}


def config(method: str, **sections: Any) -> Config:
    return Config.read(merge(preset(method), SMALL, sections))


def same(one: Run, other: Run, first: int = 1) -> None:
    """All models, states and losses of two runs from a round on, bit for bit."""
    assert one.rounds == other.rounds
    for t in one.rounds[first - 1 :]:
        name = f"rounds/{t:05d}.h5"
        assert contents(one.path / name) == contents(other.path / name), t


@pytest.fixture(scope="module")
def fma(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(config("fma"), tmp_path_factory.mktemp("runs") / "fma")


@pytest.fixture(scope="module")
def scaffold(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(config("scaffold"), tmp_path_factory.mktemp("runs") / "scaffold")


def test_a_branch_of_a_branch_takes_up_only_what_its_own_methods_left(scaffold: Run, tmp_path: Path) -> None:
    """SCAFFOLD for three rounds, FMA for one, SCAFFOLD again: branched after, at and before the change."""
    plain = branch(scaffold, 3, preset("fma"), tmp_path / "plain")
    twice = branch(plain, 4, preset("scaffold"), tmp_path / "twice")
    same(branch(twice, 5, {}, tmp_path / "after"), twice)
    same(branch(twice, 4, {}, tmp_path / "at"), twice)
    same(branch(twice, 2, {}, tmp_path / "before"), scaffold)
    assert [last for last, _ in twice.info["branch"]["history"]] == [3, 4]


@pytest.mark.parametrize("method", ["wima", "fedadam", "fedcm", "scaffold", "adabest"])
def test_a_branch_from_before_a_methods_own_rounds_starts_it_there(fma: Run, tmp_path: Path, method: str) -> None:
    """fma, then a method from round 4 on; branched from at round 2, that method starts at round 2."""
    changes = merge(preset(method), WIMA if method == "wima" else {})
    late = branch(fma, 4, changes, tmp_path / "late")
    same(branch(late, 2, {}, tmp_path / "early"), branch(fma, 2, changes, tmp_path / "direct"))


def test_replays_of_a_history_are_played_as_it_was(fma: Run, tmp_path: Path) -> None:
    other = branch(fma, 3, merge(preset("scaffold"), {"client": {"lr": 0.5, "epochs": 2}}), tmp_path / "other")
    replayer, original = Replayer.of(other), Replayer.of(fma)
    for t in (1, 2, 3, 4, 5, 6):
        recorded = other.round(t).clients().parameters
        assert replayer.replay(other.round(t), 1).parameters.tobytes() == recorded.tobytes(), t
    again = replayer.replay(other.round(2), 2).parameters
    assert again.tobytes() == original.replay(fma.round(2), 2).parameters.tobytes()


def test_an_average_with_other_settings_is_worked_out_from_the_history_anew(
    fma: Run, tmp_path: Path, close: Any
) -> None:
    three = branch(fma, 1, merge(preset("wima"), WIMA), tmp_path / "three")
    five = branch(three, 4, {"average": {"window": 5}}, tmp_path / "five")
    for t in (5, 6):
        window = [five.round(s).read("global").parameters.astype(np.float64) for s in range(t - 4, t + 1)]
        close(five.round(t).read("averaged").parameters, np.mean(window, axis=0), 1e-6)
    late = branch(fma, 1, merge(preset("ima"), {"average": {"window": 2, "start": 6}}), tmp_path / "late")
    soon = branch(late, 4, {"average": {"start": 3}}, tmp_path / "soon")
    pair = [soon.round(t).read("global").parameters.astype(np.float64) for t in (3, 4)]
    close(soon.round(5).read("start").parameters, np.mean(pair, axis=0), 1e-6)


def test_swa_and_before_server_do_not_mistake_each_others_means(tmp_path: Path, close: Any) -> None:
    swa = train(config("swa", server={"method": "fedavgm"}, average={"start": 2, "cycle": 2}), tmp_path / "swa")
    first = {"average": {"method": "ima", "before_server": True, "start": 2, "window": 2}}
    made = branch(swa, 4, first, tmp_path / "first")
    rows = {t: made.round(t).weights @ made.round(t).clients().parameters.astype(np.float64) for t in (4, 5)}
    start, m = made.round(5).read("start").parameters.astype(np.float64), swa.round(4).state()["m"]
    target = (rows[4] + rows[5]) / 2
    close(made.round(5).read("global").parameters, start + 0.9 * m + (target - start), 1e-6)


def test_adabest_begins_at_the_model_that_is_sent(fma: Run, tmp_path: Path, close: Any) -> None:
    ima = branch(fma, 1, merge(preset("ima"), {"average": {"start": 2, "explore": "none"}}), tmp_path / "ima")
    made = branch(ima, 4, {"server": {"method": "adabest"}}, tmp_path / "adabest")
    fifth = made.round(5)
    start = fifth.read("start").parameters.astype(np.float64)
    assert start.astype(np.float32).tobytes() == made.round(4).read("averaged").parameters.tobytes()
    mean = fifth.clients().parameters.astype(np.float64).mean(0)
    expected = mean - 0.9 * (start - mean)  # w+ = mean - beta (mean_0 - mean), mean_0 the model that was sent
    close(fifth.read("global").parameters, expected, 1e-6)


def test_bias_correction_may_begin_in_a_branch(fma: Run, tmp_path: Path) -> None:
    adam = branch(fma, 2, preset("fedadam"), tmp_path / "adam")
    made = branch(adam, 4, {"server": {"bias_correction": True}}, tmp_path / "corrected")
    assert made.round(5).state()["steps"] == 3, "FedAdam's third step, of rounds 3, 4 and 5"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("fedadam", "fedgma", {"server": {"tau": 0.8, "lr": 1.0}}),
        ("fedadam", "fedavgm", {"server": {"lr": 1.0, "momentum": 0.9}}),
        ("fedprox", "moon", {"client": {"mu": 1.0}}),
        ("fedavgm", "fedacg", {"server": {"momentum": 0.85}}),
        ("fma", "mime", {"client": {"momentum": 0.0}}),
        ("fedgen", "fedprox", {"client": {"clip": 0.0, "mu": 0.01}}),
        ("ima", "wima", {"average": {"window": 100}}),
    ],
)
def test_another_method_takes_its_own_defaults_not_the_replaced_ones(old: str, new: str, expected: Any) -> None:
    """Beneath it, what a run's config.toml holds of the replaced method, resolved, as --from and CONFIG lay it."""
    before = config(old, client={"epochs": 3}, average={"window": 3} if old == "ima" else {}).tables()
    after = Config.read(merge(before, preset(new))).tables()
    for section, table in expected.items():
        assert {key: after[section][key] for key in table} == table
    assert after["client"]["epochs"] == 3, "what was set and is not a method's own stays"
    assert after["client"]["method"] == (new if new in ("moon", "mime", "fedprox", "fedacg") else "sgd")


def test_a_source_that_was_replaced_does_not_complete_a_branch(tmp_path: Path) -> None:
    source = train(config("fma"), tmp_path / "source")
    made = branch(source, 4, {}, tmp_path / "made")
    for t in (3, 4, 5, 6):
        (made.path / f"rounds/{t:05d}.h5").unlink()
    other = {**source.info, "created": "2001-01-01T00:00:00+00:00", "files": {}}
    (source.path / "run.json").write_text(json.dumps(other))
    with pytest.raises(FedscopeError, match=r"source, which it branches from, has been replaced since; train again"):
        resume(made.path)


@pytest.mark.parametrize(
    ("method", "what"), [("scaffold", r"what client \d kept of round"), ("wima", "global model of")]
)
def test_a_thinned_history_that_lacks_what_a_branch_needs_is_refused_before_anything_is_made(
    tmp_path: Path, method: str, what: str
) -> None:
    thin = config(
        method, record={"clients": "none", "globals": "none"}, average=WIMA["average"] if method == "wima" else {}
    )
    run = train(thin, tmp_path / "thin")
    with pytest.raises(FedscopeError, match=what):
        branch(run, 6, {"run": {"rounds": 8}}, tmp_path / "longer")
    assert not (tmp_path / "longer").exists()
    plain = train(config("fma", record={"clients": "none", "globals": "none"}), tmp_path / "plain")
    longer = branch(plain, 6, {"run": {"rounds": 8}}, tmp_path / "plain-longer")
    assert longer.rounds == tuple(range(1, 9))


def test_force_replaces_nothing_before_the_new_run_is_known_to_start(fma: Run, tmp_path: Path) -> None:
    old = shutil.copytree(fma.path, tmp_path / "old")
    with pytest.raises(FedscopeError, match=r"client\.layers = 9, but the model has 2 layers"):
        train(config("fedala", client={"layers": 9}), old, force=True)
    with pytest.raises(FedscopeError, match=r"client\.layers = 9, but the model has 2 layers"):
        branch(fma, 3, {"client": {"method": "fedala", "layers": 9}}, old, force=True)
    assert Run.open(old).rounds == fma.rounds


def test_a_branch_may_change_the_device_and_keeps_what_it_resolved_to(fma: Run, tmp_path: Path) -> None:
    made = branch(fma, 3, {"run": {"device": "auto", "precision": "bf16"}}, tmp_path / "made")
    assert made.config is not None
    resolved = "cuda" if torch.cuda.is_available() else "cpu"
    assert (made.config["run"]["device"], made.info["device"], made.info["precision"]) == (resolved, resolved, "bf16")
    assert branched_config(fma, 3, {"run": {"device": "cuda"}}).run.engine == "auto"


def test_counts_of_batches_are_the_newest_models_in_an_average(tmp_path: Path) -> None:
    layout = Layout.of(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))

    def row(t: int) -> Weights:
        buffers = {entry.name: np.full(entry.shape, t, entry.dtype) for entry in layout.buffers}
        return Weights(layout, np.full(layout.size, t, np.float32), buffers)

    averaged = IMA(start=1, window=3).average({}, 5, row(5), History(row, ModelInfo(layout))).weights
    assert averaged is not None
    assert averaged.buffers["1.num_batches_tracked"] == 5
    assert averaged.buffers["1.running_mean"].tolist() == [4, 4]


@pytest.mark.parametrize(("client_test", "tuned"), [(0.0, 0), (0.2, 3)])
def test_clients_fine_tune_only_to_be_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client_test: float, tuned: int
) -> None:
    calls = []
    own = FedBABU.personalise
    monkeypatch.setattr(FedBABU, "personalise", lambda *given: calls.append(1) or own(*given))
    train(config("fedbabu", data={"client_test": client_test}, run={"rounds": 1}), tmp_path / "run")
    assert len(calls) == tuned
    assert find("clients", "fedbabu") is FedBABU
