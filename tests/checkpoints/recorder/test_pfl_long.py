"""pfl as it is, recorded: its own algorithms, its simulation, and the page, in an environment that has it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from framework_environments import bits, commands_of_page, read, runner_in

from fedscope.checkpoints import Run
from fedscope.checkpoints.rounds.verify import check_round

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
APP = Path(__file__).with_name("pfl_app.py")
PAGE = ROOT / "docs" / "howto" / "record-pfl.md"
ROUNDS, COHORT = 3, 4
KINDS = {"fedprox": "FedProx", "scaffold": "SCAFFOLD", "reptile": "Reptile"}
MEANS = ("plain", "weighted", "fedprox", "scaffold", "evaluated", "anonymous", "reptile")
CASES = (*MEANS, "adam", "private", "replaced")


@pytest.fixture(scope="module")
def pfl(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Runs a script in pfl's environment, and gives what it prints."""
    return runner_in("PFL", tmp_path_factory.mktemp("home"), {"OMP_NUM_THREADS": "1"})


@pytest.fixture(scope="module")
def played(pfl: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """All cases, within one process."""
    folder = tmp_path_factory.mktemp("here")
    return folder, json.loads(pfl(APP, folder, *CASES, cwd=folder).splitlines()[-1])


@pytest.mark.parametrize("case", CASES)
def test_every_algorithm_of_pfl(case: str, played: tuple[Path, dict[str, Any]]) -> None:
    folder, told = played
    run, sent = Run.open(folder / case / "run"), folder / case / "sent"
    assert run.rounds == tuple(range(1, ROUNDS + 1))
    assert run.info["source"] == f"pfl ({KINDS.get(case, 'FederatedAveraging')})"
    warned = [one for one in told[case] if "statistics were not averaged" not in one]
    expected = {
        "private": "NormClippingOnly clips what users send or adds noise to it: the run holds users' models as they",
        "anonymous": f"{folder}/anonymous/run: data sets have no user_id, so users are numbered by their place",
        "replaced": f"{folder}/replaced/run: client user-",
    }
    assert [one[: len(expected[case])] for one in warned] == ([expected[case]] if case in expected else [])
    start: Any = None
    for t in run.rounds:
        round_ = run.round(t)
        assert check_round(round_).faults == ()
        drawn = sorted(sent.glob(f"{t - 1}-*.npz"), key=lambda path: int(path.stem.split("-")[1]))
        assert len(drawn) == COHORT
        models: dict[int, dict[str, np.ndarray]] = {}
        for place, path in enumerate(drawn):
            k = place if case == "anonymous" else int(path.stem.rpartition("-")[2])
            models.setdefault(k, read(path))
        types = {name: array.dtype for name, array in next(iter(models.values())).items()}
        assert round_.client_ids.tolist() == sorted(models)
        for k, model in models.items():
            assert bits(round_.client(k).arrays(), types) == bits(model, types), (t, k)
        end = bits(round_.read("global").arrays(), types)
        assert end == bits(read(sent / f"global-{t - 1}.npz"), types)
        begun = bits(round_.read("start").arrays(), types)
        if case == "reptile":  # whose validation users train, too, and leave their statistics in the module
            begun, end = ({name: one for name, one in all_.items() if "norm." not in name} for all_ in (begun, end))
        assert start is None or begun == start
        start = end
        if case == "weighted":
            assert round_.client_samples.tolist() == [10 * (k + 1) for k in sorted(models)]
        elif case == "plain":
            np.testing.assert_allclose(round_.weights, 1 / COHORT)
        if case in MEANS:  # the mean that pfl makes of users' changes, to its rounding
            here = {name: np.stack([models[k][name] for k in sorted(models)]) for name in types if "norm." not in name}
            for name, stacked in here.items():
                mean = np.average(stacked.astype(float), axis=0, weights=round_.weights)
                np.testing.assert_allclose(round_.read("global").arrays()[name], mean, rtol=1e-5, atol=1e-6)


def test_what_pfl_evaluates_is_in_the_run(played: tuple[Path, dict[str, Any]]) -> None:
    metrics = Run.open(played[0] / "evaluated" / "run").metrics()
    assert np.isfinite(metrics["test_loss"]).tolist() == [False, True, True]  # pfl leaves the first one out
    assert np.isfinite(metrics["test_error"]).tolist() == [False, True, True]
    assert 0 <= metrics["test_error"][-1] <= 1


def test_several_processes_are_refused(pfl: Callable[..., str], tmp_path: Path) -> None:
    code = (
        "import os; os.environ['WORLD_SIZE'] = '2'\n"
        "import fedscope\n"
        "from pfl.algorithm.federated_averaging import FederatedAveraging\n"
        "try:\n    fedscope.record_pfl(FederatedAveraging(), 'run')\n"
        "except fedscope.FedscopeError as error:\n    print(error)\n"
    )
    assert "pfl simulates in 2 processes, each of which sees some of the users" in pfl("-c", code, cwd=tmp_path)
    assert not (tmp_path / "run").exists()


def test_the_page_runs_and_prints_what_it_shows(pfl: Callable[..., str], tmp_path: Path) -> None:
    seen = commands_of_page(PAGE, pfl, tmp_path, "app.py")
    assert seen[0] == "ls"
    assert len(seen) == 6
