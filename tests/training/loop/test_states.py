"""What methods keep between rounds: recorded, gone on with, replayed and branched from exactly, whatever the method."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import pytest
from in_memory import contents

from fedscope.checkpoints import FedscopeError, Run, Weights
from fedscope.decomposition.draws.replay import Replayer
from fedscope.training import Config, branch, branch_notes, merge, preset, presets, resume, train
from fedscope.training.loop.state import RunMemory
from fedscope.training.loop.verify_run import check_run
from fedscope.training.settings.registry import find, names

pytestmark = pytest.mark.usefixtures("few_digits")

SMALL = {
    "data": {"clients": 5, "client_test": 0.2},
    "model": {"hidden": [8]},
    "client": {"epochs": 1},
    "run": {"rounds": 6, "participation": 0.6, "evaluate_clients": 20, "evaluate_all": "every:2"},
}
#: settings that let a method do something in six rounds, and cheaply
OWN: dict[str, Any] = {
    "ima": {"average": {"window": 3, "start": 3}},
    "wima": {"average": {"window": 3}},
    "swa": {"average": {"start": 2, "cycle": 2}},
    "fedgen": {"client": {"generator_steps": 3, "hidden": 8, "noise": 4}},
    "fedbabu": {"client": {"fine_tune_epochs": 1}},
    "fisher": {"server": {"samples": 20}},
}
STATEFUL = tuple(name for name in names("clients") if find("clients", name).vectors_kept)
#: one method of each kind of state: none, clients' vectors and what is sent, both kept and sums at the server, the
#: server's moments, models of the clients' own, arrays of no model's size, a head at rest, the averages over rounds
KINDS = {"fma", "scaffold", "feddyn", "fedadam", "ditto", "fedgen", "fedbabu", "swa", "ima"}


def of_each_kind(methods: Iterable[str]) -> list[Any]:
    """All of them, of which the fast suite takes one of each kind: every method's own state is gone on with exactly in
    :func:`test_every_method_goes_on_exactly_where_it_was_interrupted`, and nothing else of a method is asked here."""
    return [pytest.param(name, marks=() if name in KINDS else pytest.mark.slow) for name in methods]


def config(method: str, **sections: Any) -> Config:
    return Config.read(merge(preset(method), SMALL, OWN.get(method, {}), sections))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An uninterrupted run of a method, made once."""
    folder, made = tmp_path_factory.mktemp("whole"), {}

    def of(method: str) -> Run:
        if method not in made:
            made[method] = train(config(method), folder / method)
        return made[method]

    return of


@pytest.mark.parametrize("method", presets())
def test_every_method_goes_on_exactly_where_it_was_interrupted(
    stop_after: Any, whole: Any, tmp_path: Path, method: str
) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(config(method), tmp_path / "cut", watcher=stop_after(3))
    resumed = resume(tmp_path / "cut")
    for t in (1, 3, 4, 5, 6):
        expected = contents(whole(method).path / f"rounds/{t:05d}.h5")
        assert contents(resumed.path / f"rounds/{t:05d}.h5") == expected, t


@pytest.mark.parametrize("method", of_each_kind(dict.fromkeys([*STATEFUL, "fedadam", "fedfa", "wima", "swa", "ima"])))
def test_a_thinned_record_goes_on_exactly_too(stop_after: Any, whole: Any, tmp_path: Path, method: str) -> None:
    thin = config(method, record={"clients": "none", "globals": "none"})
    with pytest.raises(KeyboardInterrupt):
        train(thin, tmp_path / "cut", watcher=stop_after(4))
    assert Run.open(tmp_path / "cut").round(4).models == ()
    resumed = resume(tmp_path / "cut")
    last, expected = resumed.round("last"), whole(method).round("last")
    for which in expected.models:
        assert last.read(which).parameters.tobytes() == expected.read(which).parameters.tobytes()
    np.testing.assert_array_equal(last.client_loss, expected.client_loss)
    assert not list((tmp_path / "cut/kept").rglob("*.h5"))


@pytest.mark.parametrize("method", of_each_kind(presets()))
def test_a_branch_to_the_same_method_is_the_run_itself(whole: Any, tmp_path: Path, method: str) -> None:
    run = whole(method)
    again = branch(run, 3, {}, tmp_path / "branch")
    for t in run.rounds:
        assert contents(again.path / f"rounds/{t:05d}.h5") == contents(run.path / f"rounds/{t:05d}.h5"), t
    for name, values in run.metrics().items():
        if name != "seconds":
            np.testing.assert_array_equal(values, again.metrics()[name])
    assert again.info["branch"]["run"] == str(run.path.resolve())
    assert again.info["branch"]["round"] == 3
    assert branch_notes(run, 3, config(method)) == []


@pytest.mark.parametrize("method", of_each_kind(presets()))
def test_a_run_of_every_method_is_found_sound(whole: Any, method: str) -> None:
    found = check_run(whole(method).path)
    assert found.faults == ()
    assert found.without == ()
    assert found.checksums > 100


@pytest.mark.parametrize(("method", "what"), [("scaffold", "client"), ("fedadam", "server")])
def test_a_state_that_is_gone_with_the_last_round_is_missed(
    stop_after: Any, tmp_path: Path, method: str, what: str
) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(config(method, record={"clients": "none"}), tmp_path / "cut", watcher=stop_after(3))
    for file in (tmp_path / "cut").rglob("00003.h5"):
        file.unlink()
    for place in [tmp_path / "cut/rounds/00002.h5", *(tmp_path / "cut/kept").rglob("00002.h5")]:
        with h5py.File(place, "r+") as file:
            for name in ("state", "checksums"):
                if name in file:
                    del file[name]
            file.attrs.pop("checksums", None)
    with pytest.raises(
        FedscopeError, match=rf"after round 2: what the {what} method keeps \(.*\) is in none of its files"
    ):
        resume(tmp_path / "cut")


def test_every_method_that_is_accepted_is_also_played(whole: Any) -> None:
    """Only averages that nobody starts from, Ditto, whose own models stand beside, and the mean of adapters where there
    are none leave FMA's globals alone."""
    plain = whole("fma").round("last").read("global").parameters
    same = {name for name in presets() if np.array_equal(whole(name).round("last").read("global").parameters, plain)}
    assert same == {"fma", "wima", "ditto", "lora"}
    deployed = whole("wima").round("last").read("averaged").parameters
    assert not np.array_equal(deployed, plain)


@pytest.mark.parametrize("method", names("clients"))
def test_a_replay_of_draw_one_is_the_recorded_round_of_every_client_method(
    whole: Any, tmp_path: Path, method: str
) -> None:
    run = whole("fma" if method == "sgd" else method)
    replayer = Replayer.of(run)
    for t in (1, 6):
        recorded = run.round(t).clients().parameters
        assert replayer.replay(run.round(t), 1).parameters.tobytes() == recorded.tobytes(), t
        assert (replayer.replay(run.round(t), 2).parameters != recorded).any()


@pytest.mark.parametrize("method", names("clients"))
def test_what_clients_keep_is_what_the_method_says(whole: Any, method: str) -> None:
    run = whole("fma" if method == "sgd" else method)
    round_, P = run.round("last"), run.layout.size
    vectors = 0
    for name in round_.client_states:
        rows = round_.client_state(name)
        values = rows.parameters if isinstance(rows, Weights) else rows
        assert len(values) == len(round_.client_ids)
        vectors += values.size == len(values) * P
        assert values.dtype == run.layout.dtype or values.size < P, name
    assert vectors == find("clients", method).vectors_kept
    for name, values in RunMemory(run).kept(6).sent.items():
        assert values.dtype == run.layout.dtype or values.size < P, name


def test_states_follow_clients_not_places_in_the_cohort(whole: Any, close: Any) -> None:
    """SCAFFOLD's c is always the mean over all clients of what each has kept last."""
    run = whole("scaffold")
    kept: dict[int, np.ndarray] = {}
    for t in run.rounds:
        round_ = run.round(t)
        kept |= dict(zip(round_.client_ids.tolist(), np.asarray(round_.client_state("control")), strict=True))
        c = sum(kept.values()) / 5
        close(round_.state()["sent"]["control"], c, 1e-5)
    assert len(kept) > 3, "more clients than a cohort have kept something"


def test_a_branch_to_another_method_starts_its_state_anew_and_says_so(whole: Any, tmp_path: Path, close: Any) -> None:
    run = whole("fma")
    changes = merge(preset("scaffold"), {"server": {"method": "fedadam"}})
    other = branch(run, 3, changes, tmp_path / "branch")
    for t in (1, 2, 3):
        assert contents(other.path / f"rounds/{t:05d}.h5") == contents(run.path / f"rounds/{t:05d}.h5")
    # the same cohorts and batch orders; c = c_i = 0 in its first round, so the clients are those of FMA
    fourth = other.round(4)
    assert fourth.clients().parameters.tobytes() == run.round(4).clients().parameters.tobytes()
    # m = v = 0 before it: the first step of FedAdam from the recorded start
    assert run.config is not None
    delta = run.round(4).weights @ (fourth.clients().parameters - fourth.read("start").parameters.astype(np.float64))
    m, v = 0.1 * delta, 0.01 * delta**2
    expected = fourth.read("start").parameters + 0.01 * m / (np.sqrt(v) + 1e-3)
    close(fourth.read("global").parameters, expected, 1e-6)
    notes = branch_notes(run, 3, Config.read(merge(run.config, changes)))
    assert len(notes) == 2
    assert "client method scaffold keeps" in notes[0]
    assert notes[0].endswith(
        "which the history, made with sgd, does not have: it starts with an empty state after round 3"
    )
    assert "server method fedadam keeps" in notes[1]


@pytest.mark.parametrize(
    ("section", "method", "key", "old", "new"),
    [
        ("average", "ima", "start", 6, 9),
        ("average", "swa", "start", 6, 9),
        ("client", "fedfa", "calibrate_from", 2, 3),
    ],
)
def test_what_goes_with_the_number_of_rounds_is_told_where_a_branch_keeps_it(
    section: str, method: str, key: str, old: int, new: int, tmp_path: Path
) -> None:
    small = {"run": {"rounds": 8}, "average": {"cycle": 2} if method == "swa" else {}}
    before = Config.read(merge(small, {section: {"method": method}}))
    run = history_of(before, tmp_path)
    longer = {"run": {"rounds": 12}}
    name = f"{section}.{key}"
    said = (
        f"{name} = {old} stays as in the history, where 8 rounds have it by default; 12 rounds have {new}: give --set "
        f"{name}={new} if that is meant"
    )
    kept = Config.read(merge(before.tables(), longer))
    assert getattr(getattr(kept, section), key) == old
    assert branch_notes(run, 4, kept, longer) == [said]
    assert branch_notes(run, 4, before) == [], "as many rounds"
    given: dict[str, Any] = {**longer, section: {key: new}}
    # an average of other settings has a note of its own
    assert said not in branch_notes(run, 4, Config.read(merge(before.tables(), given)), given)
    again: dict[str, Any] = {**longer, section: {key: old}}
    assert branch_notes(run, 4, Config.read(merge(before.tables(), again)), again) == []


def history_of(config: Config, tmp_path: Path) -> Any:
    """What is read of a run with such a configuration."""
    return SimpleNamespace(path=tmp_path, info={}, code={}, config=config.tables(), require=lambda name: None)


def test_a_branch_back_does_not_take_up_states_from_before_another_method(
    stop_after: Any, whole: Any, tmp_path: Path
) -> None:
    """SCAFFOLD for two rounds, SGD for one, SCAFFOLD again: the old control variates are not its."""
    first = whole("scaffold")
    sgd = branch(first, 2, preset("fma"), tmp_path / "sgd")
    again = branch(sgd, 3, preset("scaffold"), tmp_path / "again")
    plain = branch(first, 2, preset("fma"), tmp_path / "plain")
    assert again.round(4).clients().parameters.tobytes() == plain.round(4).clients().parameters.tobytes()
    with pytest.raises(KeyboardInterrupt):
        branch(sgd, 3, preset("scaffold"), tmp_path / "cut", watcher=stop_after(4))
    resumed = resume(tmp_path / "cut")
    assert contents(resumed.path / "rounds/00006.h5") == contents(again.path / "rounds/00006.h5")


@pytest.mark.parametrize("method", ["mime", "mimelite"])
def test_what_only_the_settings_of_a_branch_keep_begins_there(
    stop_after: Any, whole: Any, tmp_path: Path, close: Any, method: str
) -> None:
    """From momentum to Adam: m goes on, v begins at 0, beside which denominators are 1."""
    momentum = whole(method)
    adam = branch(momentum, 2, {"client": {"optimiser": "adam", "lr": 0.002}}, tmp_path / "adam")
    slow = branch(momentum, 2, {"client": {"lr": 0.002}}, tmp_path / "slow")
    assert adam.round(3).clients().parameters.tobytes() == slow.round(3).clients().parameters.tobytes()
    before, after = (RunMemory(adam).kept(t).sent for t in (2, 3))
    assert sorted(before) == ["momentum"]
    c = (after["momentum"].astype(np.float64) - 0.9 * before["momentum"]) / 0.1
    close(after["variance"], 0.01 * c**2, 1e-4)
    assert adam.round(4).clients().parameters.tobytes() != slow.round(4).clients().parameters.tobytes()
    with pytest.raises(KeyboardInterrupt):
        branch(momentum, 2, {"client": {"optimiser": "adam", "lr": 0.002}}, tmp_path / "cut", watcher=stop_after(3))
    (tmp_path / "cut/rounds/00003.h5").unlink()  # as killed before its first round of its own
    resumed = resume(tmp_path / "cut")
    for t in (3, 6):
        assert contents(resumed.path / f"rounds/{t:05d}.h5") == contents(adam.path / f"rounds/{t:05d}.h5")
    again = Replayer.of(adam).replay(adam.round(3), 1)
    assert again.parameters.tobytes() == adam.round(3).clients().parameters.tobytes()
    # and back: v is dropped
    back = branch(adam, 4, {"client": {"optimiser": "momentum"}}, tmp_path / "back")
    assert sorted(RunMemory(back).kept(5).sent) == ["momentum"]


def test_a_branch_whose_making_was_interrupted_goes_on_with_its_whole_history(whole: Any, tmp_path: Path) -> None:
    source = shutil.copytree(whole("fma").path, tmp_path / "source")
    made = branch(Run.open(source), 4, preset("scaffold"), tmp_path / "made")
    cut = shutil.copytree(made.path, tmp_path / "cut")
    for t in (3, 4, 5, 6):  # as a kill leaves it while the history is brought in
        (cut / f"rounds/{t:05d}.h5").unlink()
    gone = shutil.copytree(cut, tmp_path / "gone")
    resumed = resume(cut)
    for t in made.rounds:
        assert contents(resumed.path / f"rounds/{t:05d}.h5") == contents(made.path / f"rounds/{t:05d}.h5"), t
    shutil.rmtree(source)
    with pytest.raises(FedscopeError, match=r"has 2 of the 4 rounds of its history, and .*source, which it branches"):
        resume(gone)
    assert Run.open(tmp_path / "made").round(2).read("global").parameters.size, "a branch needs its source no more"


@pytest.mark.parametrize("linked", [True, False])
def test_a_history_is_linked_or_copied(
    whole: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linked: bool
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError("this file system has no links")

    if not linked:
        monkeypatch.setattr("os.link", refuse)
    run = whole("fma")
    made = branch(run, 3, {}, tmp_path / "branch")
    for t in (1, 2, 3):
        one, other = (path / f"rounds/{t:05d}.h5" for path in (run.path, made.path))
        assert one.read_bytes() == other.read_bytes()
        assert (one.stat().st_ino == other.stat().st_ino) == linked


@pytest.mark.parametrize("method", ["wima", "swa", "ima"])
def test_a_branch_to_an_average_is_as_if_it_had_averaged_the_history(
    whole: Any, tmp_path: Path, method: str, close: Any
) -> None:
    changes = merge(preset(method), OWN[method], {"average": {"start": 4}} if method == "ima" else {})
    made = branch(whole("fma"), 4, changes, tmp_path / "branch")
    fifth = made.round(5)
    globals_ = {t: made.round(t).read("global").parameters.astype(np.float64) for t in range(1, 6)}
    used = {"wima": (3, 4, 5), "ima": (3, 4, 5), "swa": (1, 3, 5)}[method]
    expected = np.mean([globals_[t] for t in used], axis=0)
    close(fifth.read("averaged").parameters, expected, 1e-7)
    # IMA from round 4 on: round 5 starts from the average of the history's last globals
    start = np.mean([globals_[t] for t in (2, 3, 4)], axis=0) if method == "ima" else globals_[4]
    close(fifth.read("start").parameters, start, 1e-7)


@pytest.mark.parametrize(
    ("changes", "round", "message"),
    [
        ({"data": {"clients": 6}}, 3, r"data\.clients = 6 differs from 5 of .*keeps its history's data and model"),
        ({"model": {"hidden": [9]}}, 3, r"model\.hidden = \[9\] differs from \[8\]"),
        ({"run": {"rounds": 3}}, 3, r"run\.rounds = 3 leaves nothing to play after round 3; give more"),
        ({}, 9, r"@9: the run has rounds 1-6"),
    ],
)
def test_branches_that_make_no_sense_are_refused(
    whole: Any, tmp_path: Path, changes: Any, round: int, message: str
) -> None:
    with pytest.raises(FedscopeError, match=message):
        branch(whole("fma"), round, changes, tmp_path / "branch")
    assert not (tmp_path / "branch").exists()
    with pytest.raises(FedscopeError, match=r"exists and holds a run with 6 rounds"):
        branch(whole("fma"), 3, {}, whole("fma").path)
    with pytest.raises(FedscopeError, match=r"is the run that is branched from"):
        branch(whole("fma"), 3, {}, whole("fma").path, force=True)


def test_states_that_were_thinned_away_are_missed_in_words(tmp_path: Path) -> None:
    run = train(config("scaffold", record={"clients": [5, 6]}), tmp_path / "run")
    with pytest.raises(FedscopeError, match=r"what client \d kept of round \d is in none of its files any more"):
        Replayer.of(run).local_draws(6, 2)
    run = train(config("fedcm", record={"globals": "none"}), tmp_path / "globals")
    with pytest.raises(FedscopeError, match=r"what was sent with the model in round 5 is not recorded"):
        Replayer.of(run).replay(run.round(5), 2)


def test_parameters_that_travel_are_counted(whole: Any) -> None:
    P = whole("fma").layout.size
    assert whole("fma").metrics()["parameters_down"].tolist() == [3 * P] * 6
    assert whole("scaffold").metrics()["parameters_up"].tolist() == [3 * 2 * P] * 6
    head = 8 * 10 + 10
    assert whole("fedbabu").metrics()["parameters_down"].tolist() == [3 * (P - head)] * 6


def test_errors_on_the_clients_own_test_parts(whole: Any) -> None:
    """One model for all in FMA; Ditto's clients are measured with models of their own."""
    import torch

    from fedscope.training import data_of, module_of

    for method in ("fma", "ditto"):
        run = whole(method)
        module, train_split, last = module_of(run), data_of(run).samples("train"), run.round("last")
        assert run.partition is not None
        assert run.partition.test is not None
        errors = []
        for i, k in enumerate(last.client_ids.tolist()):
            weights = last.read("global") if method == "fma" else last.client_state("personal").row(i)
            module.load_state_dict({name: torch.from_numpy(a.copy()) for name, a in weights.arrays().items()})
            rows = run.partition.test[k]
            with torch.no_grad():
                errors.append((module(train_split.x[rows]).argmax(1) != train_split.y[rows]).double().mean().item())
        assert last.metrics["client_test_error_mean"] == pytest.approx(np.mean(errors))
        assert last.metrics["client_test_error_std"] == pytest.approx(np.std(errors))


@pytest.mark.parametrize("method", names("clients"))
def test_the_feature_table_says_what_travels(whole: Any, method: str) -> None:
    """``MethodInfo.down`` and ``.up`` against the numbers that the clients of a round received and sent."""
    run = whole("fma" if method == "sgd" else method)
    kind, config_ = find("clients", method), run.config
    assert config_ is not None
    P, hidden, classes = run.layout.size, 8, 10
    model = Config.read(config_).client.model_size(facts(run))
    named = {"": 0, "P": P, "2P": 2 * P, "anchors (classes × features)": classes * hidden}
    for text, column in ((kind.about.down, "parameters_down"), (kind.about.up, "parameters_up")):
        beside = run.metrics()[column][-1] / 3 - model
        count = re.search(r"\((\d) numbers?\)", text)
        if count:
            assert beside == int(count[1])
        elif text.startswith("G "):
            sent = run.round(5).state()["sent"]
            assert beside == sum(np.size(array) for array in sent.values()) > 0
        else:
            assert beside == named[text], text


@pytest.mark.parametrize("method", ["scaffold", "fedadam", "fedgen"])
def test_the_room_that_a_run_is_said_to_need_counts_what_methods_keep(whole: Any, method: str) -> None:
    from fedscope.training.loop.train import disk_needed

    run = whole(method)
    assert run.config is not None
    taken = sum(file.stat().st_size for file in (run.path / "rounds").iterdir())
    assert disk_needed(Config.read(run.config), facts(run)) == pytest.approx(taken, rel=0.15)


def facts(run: Run) -> Any:
    """What a run's methods know of its model."""
    from fedscope.training.models.model_info import ModelInfo

    return ModelInfo(run.layout, classes=10, clients=5, head="head")
