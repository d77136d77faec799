"""BlazeFL as it is, recorded: its own server and clients, servers of one's own, and the page, in an environment that
has it, with a Python that it runs on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from framework_environments import commands_of_page, runner_in

from fedscope.checkpoints import Run
from fedscope.checkpoints.recorder.identify_server import Rule
from fedscope.checkpoints.rounds.verify import check_round

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
APP = Path(__file__).with_name("blazefl_app.py")
PAGE = ROOT / "docs" / "howto" / "record-blazefl.md"
ROUNDS, COHORT, EPOCHS = 3, 4, 2
#: of contrib, each kind of its clients; then servers of one's own
OWN = {"momentum": "Momentum", "named": "Named", "half": "Half", "careless": "Careless"}
CASES = ("serial", "threads", "storage", "shared", *OWN)


@pytest.fixture(scope="module")
def blazefl(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Runs a script in BlazeFL's environment, and gives what it prints."""
    return runner_in("BLAZEFL", tmp_path_factory.mktemp("home"), {"OMP_NUM_THREADS": "1"})


@pytest.fixture(scope="module")
def played(blazefl: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """All cases, within one process."""
    folder = tmp_path_factory.mktemp("here")
    cases = (*CASES, "plain", "late", "logits")
    return folder, json.loads(blazefl(APP, folder, *cases, cwd=folder).splitlines()[-1])


def flat(model: Any) -> np.ndarray:
    """One vector of a model's arrays, as BlazeFL makes it."""
    return np.concatenate([np.asarray(array).reshape(-1) for array in model.arrays().values()]).astype(np.float32)


def same(model: Any, sent: np.ndarray) -> bool:
    """Whether a model in a run is a vector that was sent, bit for bit."""
    return flat(model).tobytes() == sent.tobytes()


@pytest.mark.parametrize("case", CASES)
def test_what_clients_send_is_what_is_recorded(case: str, played: tuple[Path, dict[str, Any]]) -> None:
    folder, told = played
    run, sent = Run.open(folder / case / "run"), folder / case / "sent"
    assert told[case]["warned"] == []
    assert run.rounds == tuple(range(1, ROUNDS + 1))
    assert run.info["source"] == f"BlazeFL ({OWN.get(case, 'FedAvgBaseServerHandler')})"
    names = [entry.name for entry in run.layout.entries]
    assert names[:4] == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert {e.name: e.stored or e.dtype for e in run.layout.entries}["1.num_batches_tracked"] == "int64"
    for t in run.rounds:
        round_ = run.round(t)
        assert check_round(round_).faults == ()
        there = {int(path.stem.partition("-")[2]): np.load(path) for path in sent.glob(f"{t - 1}-*.npy")}
        assert len(there) == COHORT
        assert round_.client_ids.tolist() == sorted(there)
        for k, vector in there.items():
            assert same(round_.client(k), vector), (t, k)
        assert same(round_.read("global"), np.load(sent / f"global-{t - 1}.npy"))
        start = np.load(sent / f"start-{t - 1}.npy")
        assert same(round_.read("start"), start.astype(np.float16).astype(np.float32) if case == "half" else start)
        if case == "named":
            np.testing.assert_allclose(round_.weights, 1 / COHORT)
        else:
            assert round_.client_samples.tolist() == [EPOCHS * 10 * (k + 1) for k in sorted(there)]
    metrics, said = run.metrics(), [summary for _, summary in told[case]["said"]]
    np.testing.assert_array_equal(metrics["test_loss"], [one["server_loss"] for one in said])
    np.testing.assert_allclose(metrics["test_error"], [1 - one["server_acc"] for one in said])
    rules = [Rule.MEAN, Rule.MOMENTUM, Rule.MOMENTUM] if case == "momentum" else [Rule.MEAN] * ROUNDS
    assert [Rule(int(rule)) for rule in metrics["server_rule"]] == rules


def test_recording_does_not_change_the_training(played: tuple[Path, dict[str, Any]]) -> None:
    folder, told = played
    assert not (folder / "plain" / "run").exists()
    assert told["plain"]["said"] == told["serial"]["said"]
    files = {path.name: path.read_bytes() for path in (folder / "plain" / "sent").iterdir()}
    assert len(files) == ROUNDS * (COHORT + 2)
    assert files == {path.name: path.read_bytes() for path in (folder / "serial" / "sent").iterdir()}


def test_a_client_that_is_silent_and_those_that_come_too_late(played: tuple[Path, dict[str, Any]]) -> None:
    folder, told = played
    where = f"{folder}/late/run"
    assert [one for one in told["late"]["warned"] if "statistics" not in one] == [
        f"{where}: sample_clients drew client 0 for round 0 of BlazeFL, and no model of it was averaged; the run has "
        "the round without it",
        f"{where}: client 3 answers an earlier round in round 1 of BlazeFL, and its model is averaged all the same; "
        "the run leaves it out, since it began from another model",
    ]
    run = Run.open(folder / "late" / "run")
    assert run.rounds == tuple(range(1, ROUNDS + 1))
    # 0, 3, 5 and 6 were drawn, and 0 lost; so the first one of 2, 3, 4, 5 filled the round, and the others came late
    assert run.round(1).client_ids.tolist() == [2, 3, 5, 6]
    for t in (2, 3):
        (k,) = run.round(t).client_ids.tolist()
        assert same(run.round(t).client(k), np.load(folder / "late" / "sent" / f"{t - 1}-{k}.npy"))
    assert Rule(int(run.metrics()["server_rule"][1])) is not Rule.MEAN


def test_packages_without_models_are_told_and_the_training_goes_on(played: tuple[Path, dict[str, Any]]) -> None:
    folder, told = played
    assert told["logits"]["warned"] == [
        f"{folder}/logits/run: round 0 of BlazeFL is not recorded, so later ones have lower numbers in the run: Logits "
        "has no model: none of its parts (cid, soft_labels) has the 56 numbers of the handler's model; send one as "
        "model_parameters, as only packages with models can be recorded"
    ]
    assert len(told["logits"]["said"]) == ROUNDS
    assert not (folder / "logits" / "run" / "run.json").exists()


def test_the_page_runs_and_prints_what_it_shows(blazefl: Callable[..., str], tmp_path: Path) -> None:
    seen = commands_of_page(PAGE, blazefl, tmp_path, "app.py")
    assert seen[0] == "ls"
    assert len(seen) == 6
