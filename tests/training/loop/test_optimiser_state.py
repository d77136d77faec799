"""Runs with local optimisers: recorded, gone on with, replayed, branched from and read again, bit for bit."""

from __future__ import annotations

import json
import re
import shutil
import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from in_memory import contents

from fedscope.checkpoints import FedscopeError, Run, Weights
from fedscope.decomposition.draws.replay import Replayer
from fedscope.training import Config, branch, merge, resume, train
from fedscope.training.build import config_of
from fedscope.training.local.optimisers import _kept
from fedscope.training.loop.verify_run import check_run
from fedscope.training.user_code.kept_source import playing
from fedscope.training.user_code.provided_code import code_of_options
from fedscope.training.user_code.typed import typed_tables

pytestmark = pytest.mark.usefixtures("few_digits")

SMALL: dict[str, Any] = {
    "data": {"clients": 5, "client_test": 0.2},
    "model": {"hidden": [8, 6]},
    "client": {"epochs": 1, "lr": 0.01},
    "run": {"rounds": 5, "participation": 0.6, "evaluate_clients": 0},
}
OWN = "torch.optim:Adam(betas=(0.8, 0.95))"
ADAM = partial(torch.optim.Adam, betas=(0.8, 0.95))


def given(optimiser: str) -> Any:
    """The optimiser as Python takes it."""
    return {"optimiser": ADAM if optimiser == OWN else optimiser}


def code(optimiser: str) -> Any:
    """The code that a resume needs."""
    return {"optimiser": torch.optim.Adam} if optimiser == OWN else None


def rewritten(run: Run, place: Path, pattern: str, by: str) -> Path:
    """A copy of a run with another line in its configuration, unsealed as an earlier fedscope's."""
    shutil.copytree(run.path, place)
    text = (place / "config.toml").read_text()
    (place / "config.toml").write_text(re.sub(pattern, by, text))
    assert (place / "config.toml").read_text() != text
    info = json.loads((place / "run.json").read_text())
    del info["files"]
    (place / "run.json").write_text(json.dumps(info))
    return place


def tables(rule: str = "kept", **sections: Any) -> dict[str, Any]:
    return merge(SMALL, {"client": {"optimiser_state": rule}}, sections)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An uninterrupted run with an optimiser's kept state, made once."""
    folder, made = tmp_path_factory.mktemp("whole"), {}

    def of(optimiser: str) -> Run:
        if optimiser not in made:
            made[optimiser] = train(tables(), folder / str(len(made)), **given(optimiser))
        return made[optimiser]

    return of


@pytest.mark.parametrize("optimiser", ["adamw", "muon", OWN])
@pytest.mark.parametrize("clients", ["all", "none"])
def test_a_run_goes_on_exactly_where_it_was_interrupted(
    stop_after: Any, whole: Any, tmp_path: Path, optimiser: str, clients: str
) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(tables(record={"clients": clients}), tmp_path / "cut", watcher=stop_after(3), **given(optimiser))
    resumed, run = resume(tmp_path / "cut", code=code(optimiser)), whole(optimiser)
    for t in (4, 5):
        one, other = (contents(each.path / f"rounds/{t:05d}.h5") for each in (resumed, run))
        if clients == "all":
            assert one == other, t
    last, expected = resumed.round("last").read("global"), run.round("last").read("global")
    assert last.parameters.tobytes() == expected.parameters.tobytes()
    assert check_run(resumed.path).faults == ()


@pytest.mark.parametrize("optimiser", ["adamw", "muon", OWN])
def test_numbers_do_not_depend_on_the_number_of_workers(whole: Any, tmp_path: Path, optimiser: str) -> None:
    other = train(tables(), tmp_path / "two", workers=2, **given(optimiser))
    run = train(tables(), tmp_path / "one", workers=1, **given(optimiser))
    for t in run.rounds:
        assert contents(run.path / f"rounds/{t:05d}.h5") == contents(other.path / f"rounds/{t:05d}.h5")


@pytest.mark.parametrize("optimiser", ["adamw", "muon", OWN])
def test_a_replay_of_draw_one_is_the_recorded_round(whole: Any, optimiser: str) -> None:
    run, _ = playing(whole(optimiser), code_of_options(["optimiser=torch.optim:Adam"] if optimiser == OWN else []))
    replayer = Replayer.of(run)
    for t in (1, 5):
        recorded = run.round(t).clients().parameters
        assert replayer.replay(run.round(t), 1).parameters.tobytes() == recorded.tobytes(), t
        assert (replayer.replay(run.round(t), 2).parameters != recorded).any()


@pytest.mark.parametrize(("optimiser", "vectors"), [("adamw", 2), ("muon", 2), (OWN, 2)])
def test_what_clients_keep_is_recorded_and_counted(whole: Any, optimiser: str, vectors: int) -> None:
    run = whole(optimiser)
    last = run.round("last")
    kept = {name: last.client_state(name) for name in last.client_states}
    arrays = {name: value for name, value in kept.items() if not isinstance(value, Weights)}
    assert len(arrays) == len(kept) == 3
    assert all(name.startswith("optimiser.") for name in arrays)
    assert sum(value.shape == (len(last.client_ids), run.layout.size) for value in arrays.values()) == vectors
    counts = next(value for name, value in arrays.items() if name.endswith(("steps", "step")))
    # a client has stepped as often as in all of its rounds
    times = [sum(int(run.round(t).client_steps[list(run.round(t).client_ids).index(k)])
                 for t in run.rounds if k in run.round(t).client_ids) for k in last.client_ids]  # fmt: skip
    np.testing.assert_array_equal(np.asarray(counts).reshape(len(times), -1).max(axis=1), times)


def test_a_fresh_state_is_nowhere(tmp_path: Path) -> None:
    run = train({**SMALL, "client.optimiser": "adamw"}, tmp_path / "run")
    assert run.round("last").client_states == ()
    assert run.config["client"]["optimiser_state"] == "fresh"


def test_arguments_are_in_the_name_that_a_run_keeps(whole: Any) -> None:
    run = whole(OWN)
    assert run.config["client"]["optimiser"] == "torch.optim.adam:Adam(betas=(0.8, 0.95))"
    assert [(entry["kind"], entry["name"]) for entry in run.info["code"]] == [
        ("optimiser", "torch.optim.adam:Adam(betas=(0.8, 0.95))")
    ]
    assert "class Adam" in (run.path / "code/optimiser.py").read_text()


def test_a_branch_begins_anew_where_the_history_kept_nothing(tmp_path: Path, stop_after: Any) -> None:
    """Whether the history was SGD's or a fresh optimiser's, and interrupted or not."""
    plain = train(SMALL, tmp_path / "plain")
    changes = {"client": {"optimiser": "adamw", "optimiser_state": "kept", "momentum": 0.0}}
    whole = branch(plain, 2, changes, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        branch(plain, 2, changes, tmp_path / "cut", watcher=stop_after(3))
    resumed = resume(tmp_path / "cut")
    for t in (3, 4, 5):
        one = contents(whole.path / f"rounds/{t:05d}.h5")
        assert one == contents(resumed.path / f"rounds/{t:05d}.h5"), t
    third = whole.round(3).client_state("optimiser.adamw.steps")
    np.testing.assert_array_equal(third, whole.round(3).client_steps)
    replayer = Replayer.of(whole)
    assert replayer.replay(whole.round(5), 1).parameters.tobytes() == whole.round(5).clients().parameters.tobytes()


def test_a_branch_goes_on_with_what_clients_kept(whole: Any, tmp_path: Path) -> None:
    run = whole("adamw")
    again = branch(run, 3, {}, tmp_path / "branch")
    for t in run.rounds:
        assert contents(again.path / f"rounds/{t:05d}.h5") == contents(run.path / f"rounds/{t:05d}.h5"), t


def two_of_one_name() -> tuple[Any, Any]:
    """``Adam`` of two modules, as a user's own copy of torch's beside it."""
    other = type("Adam", (torch.optim.Adam,), {"__module__": "theirs"})
    return torch.optim.Adam, other


def test_a_branch_takes_nothing_of_another_optimiser_of_one_name(tmp_path: Path, monkeypatch: Any) -> None:
    one, other = two_of_one_name()
    monkeypatch.setitem(sys.modules, "theirs", ModuleType("theirs"))
    monkeypatch.setattr(sys.modules["theirs"], "Adam", other, raising=False)
    full = tables(run={"rounds": 3, "participation": 1.0})
    run = train(full, tmp_path / "one", optimiser=one)
    again = branch(run, 2, {}, tmp_path / "again", code={"optimiser": "torch.optim:Adam"})  # as it is also called
    theirs = branch(run, 2, {"client": {"optimiser": other}}, tmp_path / "other")
    steps = {
        path.name: path.round(3).client_state(f"optimiser.{module}:Adam.step")
        for path, module in ((again, "torch.optim.adam"), (theirs, "theirs"))
    }
    each = run.round(3).client_steps
    np.testing.assert_array_equal(steps["again"].T, np.broadcast_to(3 * each, steps["again"].T.shape))
    np.testing.assert_array_equal(steps["other"].T, np.broadcast_to(each, steps["other"].T.shape))


def test_an_optimiser_has_one_name_however_it_is_spelled(tmp_path: Path) -> None:
    """``torch.optim:Adam`` and ``torch.optim.adam:Adam`` are one class, whose moments a branch goes on with."""
    full = tables(run={"rounds": 3, "participation": 1.0})
    other = typed_tables({"client": {"optimiser": "torch.optim:Adam"}})  # as --set has it
    run = train(full, tmp_path / "one", optimiser=torch.optim.Adam)
    again = branch(run, 2, other, tmp_path / "again")
    (name,) = (name for name in run.round(3).client_states if name.endswith(".step"))
    assert name == "optimiser.torch.optim.adam:Adam.step"
    np.testing.assert_array_equal(run.round(3).client_state(name), again.round(3).client_state(name))


def test_a_scripts_own_optimiser_is_known_once_it_is_imported() -> None:
    kept = {"optimiser.__main__:Mine.step": np.ones(3)}
    assert list(_kept(kept, "mine:Mine")) == ["step"]
    assert list(_kept({"optimiser.mine:Mine.step": np.ones(3)}, "__main__:Mine")) == ["step"]
    assert _kept({"optimiser.theirs:Mine.step": np.ones(3)}, "mine:Mine") == {}


def test_what_an_earlier_fedscope_kept_is_gone_on_with() -> None:
    values = {"exp_avg": np.ones(3), "step": np.array(4.0)}
    state: dict[str, Any] = {f"optimiser.Adam.{name}": value for name, value in values.items()}
    assert _kept(state, "torch.optim:Adam(amsgrad=True)") == values
    assert _kept(state, "theirs:Adam") == values, "whose it is was not said"
    newer = {f"optimiser.theirs:Adam.{name}": value + 1 for name, value in values.items()}
    assert list(_kept(state | newer, "theirs:Adam")["exp_avg"]) == [2, 2, 2]
    assert _kept(newer, "torch.optim:Adam") == {}
    assert _kept({"optimiser.adamw.first": np.ones(3)}, "theirs:adamw") == {}, "which is fedscope's own"
    assert _kept({"optimiser.theirs:Outer.Adam.step": np.ones(3)}, "theirs:Outer") == {}


def test_a_branch_back_to_sgd_keeps_nothing(whole: Any, tmp_path: Path) -> None:
    changes = merge({"client": {"optimiser": "sgd", "optimiser_state": "fresh"}})
    back = branch(whole("adamw"), 3, changes, tmp_path / "back")
    assert back.round(5).client_states == ()
    assert back.config["client"]["momentum"] == 0.9


def test_a_run_from_before_the_setting_is_plain_sgd(tmp_path: Path) -> None:
    run = train(SMALL, tmp_path / "run")
    assert run.config["client"]["optimiser"] == "sgd"
    assert run.config["client"]["optimiser_state"] == "fresh"
    old = rewritten(run, tmp_path / "old", r"optimiser.* = .*\n", "")
    assert config_of(Run.open(old)) == config_of(run)
    replayed = Replayer.of(Run.open(old)).replay(Run.open(old).round(2), 1)
    assert replayed.parameters.tobytes() == run.round(2).clients().parameters.tobytes()


def test_no_text_of_a_file_is_imported(whole: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that names a module says how to give it, and can be read; the module is never run."""
    trap = tmp_path / "trap.py"
    trap.write_text("raise SystemExit('imported')\n")
    monkeypatch.chdir(tmp_path)
    run = Run.open(rewritten(whole(OWN), tmp_path / "run", r'optimiser = ".*"', 'optimiser = "trap:Adam"'))
    assert config_of(run).client.optimiser == "trap:Adam"
    given = r"(--code optimiser=trap:Adam|code=\{'optimiser': 'trap:Adam'\})"
    sentence = rf"client\.optimiser = 'trap:Adam' is code of your own, .* give {given}"
    for doing in (
        lambda: resume(run.path),
        lambda: Replayer.of(run).replay(run.round(2), 1),
        lambda: branch(run, 2, {}, tmp_path / "branch"),
        lambda: Config.read(run.config),
        lambda: train({"client.optimiser": "trap:Adam"}, tmp_path / "other"),
    ):
        with pytest.raises(FedscopeError, match=sentence):
            doing()


def test_other_arguments_than_the_files_are_refused(whole: Any, tmp_path: Path, stop_after: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(tables(), tmp_path / "cut", watcher=stop_after(2), **given(OWN))
    wrong = partial(torch.optim.Adam, betas=(0.9, 0.95))
    with pytest.raises(
        FedscopeError, match=r"has other arguments than client\.optimiser = 'torch\.optim\.adam:Adam\(be"
    ):
        resume(tmp_path / "cut", code={"optimiser": wrong})
    assert resume(tmp_path / "cut", code={"optimiser": ADAM}).rounds == (1, 2, 3, 4, 5)


@pytest.mark.parametrize(
    ("thing", "sentence"),
    [
        (3, r"optimiser= is a int; name a class or a function that makes a torch\.optim\.Optimizer"),
        (partial(torch.optim.Adam, 3), r"functools\.partial with arguments that have no name; give them by name"),
        (partial(torch.optim.Adam, lr=torch.ones(1)), r"among its arguments, which a run cannot keep"),
        (lambda parameters: None, r"gives nothing; it is to give a torch\.optim\.Optimizer"),
    ],
)
def test_other_things_are_no_optimiser(tmp_path: Path, thing: Any, sentence: str) -> None:
    with pytest.raises(FedscopeError, match=sentence):
        train(SMALL, tmp_path / "run", optimiser=thing)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("rule", ["fresh", "kept"])
def test_the_cohort_engine_takes_adamw(tmp_path: Path, rule: str, close: Any) -> None:
    runs = [
        train(tables(rule, data={"partition": "dirichlet:0.3", "clients": 8}, run={"engine": engine}),
              tmp_path / engine, optimiser="adamw")
        for engine in ("cohort", "threads")
    ]  # fmt: skip
    assert [run.info["engine"] for run in runs] == ["cohort", "threads"]
    for t in runs[0].rounds:
        ours, theirs = (run.round(t) for run in runs)
        close(ours.clients().parameters, theirs.clients().parameters, 1e-5)
        for name in theirs.client_states:
            close(ours.client_state(name), theirs.client_state(name), 1e-3)


@pytest.mark.parametrize("optimiser", ["muon", OWN])
def test_the_cohort_engine_refuses_others_and_auto_goes_one_by_one(tmp_path: Path, optimiser: str) -> None:
    wide = tables("fresh", data={"clients": 10}, run={"participation": 1.0, "rounds": 1})
    with pytest.raises(FedscopeError, match=r"'cohort' trains several clients in one pass, which client\.optimiser = "):
        train(merge(wide, {"run": {"engine": "cohort"}}), tmp_path / "cohort", **given(optimiser))
    assert train(wide, tmp_path / "auto", **given(optimiser)).info["engine"] == "threads"
    assert train(wide, tmp_path / "several", optimiser="adamw").info["engine"] == "cohort"
