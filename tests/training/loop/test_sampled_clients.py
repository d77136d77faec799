"""Runs that keep the models of a few clients of every round: the same models as in a run that keeps all, and nothing
takes the few for the cohort."""

from __future__ import annotations

import re
import shutil
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import pytest
from asked import ASKED
from hypothesis import given
from hypothesis import strategies as st
from in_memory import contents

from fedscope.checkpoints import FedscopeError, RetentionPolicy, Run, load_model, mean
from fedscope.checkpoints.rounds.retention import draw_kept_clients, size_on_disk
from fedscope.checkpoints.rounds.verify import check_round
from fedscope.cli.main import run as command
from fedscope.training import Config, branch, merge, preset, resume, train
from fedscope.training.loop.verify_run import check_run, sketch_contradictions

pytestmark = pytest.mark.usefixtures("few_digits")

SMALL: dict[str, Any] = {
    "data": {"clients": 10, "partition": "iid"},
    "model": {"hidden": [8]},
    "client": {"epochs": 1},
    "run": {"rounds": 4, "participation": 0.6, "evaluate_clients": 0},
}
SAMPLED: dict[str, Any] = {"clients": "sample:3", "sketch": 64}


def config(method: str = "fma", **record: Any) -> Config:
    return Config.read(merge(preset(method), SMALL, {"record": record}))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    """One that keeps all, and one that keeps three clients a round."""
    folder = tmp_path_factory.mktemp("runs")
    return train(config(), folder / "all"), train(config(**SAMPLED), folder / "fma")


# --- the draw ---


@given(
    clients=st.integers(1, 200),
    count=st.integers(1, 200),
    seed=st.integers(0, 2**70),
    round=st.integers(1, 10**6),
)
def test_a_draw_is_of_so_many_places_and_keeps_those_of_a_smaller_one(
    clients: int, count: int, seed: int, round: int
) -> None:
    places = draw_kept_clients(clients, count, seed=seed, round=round)
    assert len(places) == min(count, clients)
    assert (np.diff(places) > 0).all()
    assert not len(places) or 0 <= places[0] <= places[-1] < clients
    assert set(draw_kept_clients(clients, count - 1, seed=seed, round=round)) < set(places) or count > clients


def test_every_subset_is_drawn_as_often_over_rounds_and_seeds_differ() -> None:
    """χ² over the 10 pairs of 5, 2,000 rounds: 9 degrees of freedom, 27.9 is its 99.9 % quantile."""
    pairs = [tuple(draw_kept_clients(5, 2, seed=0, round=t).tolist()) for t in range(1, 2001)]
    expected = len(pairs) / 10
    assert sum((pairs.count(pair) - expected) ** 2 / expected for pair in combinations(range(5), 2)) < 27.9
    assert [draw_kept_clients(100, 5, seed=1, round=t).tolist() for t in (1, 2)] != [
        draw_kept_clients(100, 5, seed=0, round=t).tolist() for t in (1, 2)
    ]


# --- what is recorded ---


@pytest.mark.parametrize("compression", ["none", "delta"])
def test_the_models_kept_are_those_of_the_run_that_keeps_all(
    runs: tuple[Run, Run], tmp_path: Path, compression: str
) -> None:
    whole = runs[0]
    few = runs[1] if compression == "none" else train(config(compression=compression, **SAMPLED), tmp_path / "few")
    for t in whole.rounds:
        one, other = whole.round(t), few.round(t)
        ids = one.client_ids[draw_kept_clients(6, 3, seed=0, round=t)]
        assert (other.has_clients, other.has_sample, one.has_sample) == (False, True, False)
        assert other.sampled_ids.tolist() == ids.tolist()
        assert other.sampled().parameters.tobytes() == one.clients(ids).parameters.tobytes()
        assert other.clients(ids[::-1]).parameters.tobytes() == one.clients(ids[::-1]).parameters.tobytes()
        for name in ("client_ids", "client_samples", "client_steps", "client_loss", "weights"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        for which in ("start", "global"):
            assert one.read(which).parameters.tobytes() == other.read(which).parameters.tobytes()
        assert other.sketch().shape == (6, 64)
        assert other.is_packed == (compression == "delta")
        assert check_round(other).faults == ()
    assert check_run(few.path).faults == ()


def test_the_start_is_kept_with_the_few_and_all_runs_of_one_data_seed_keep_the_same(
    runs: tuple[Run, Run], tmp_path: Path
) -> None:
    tables = merge(SMALL, {"run": {"seed": 5}, "record": {"clients": "sample:3", "globals": "none"}})
    other = train(Config.read(merge(tables, {"record": {"compression": "delta"}})), tmp_path / "other")
    for t in other.rounds:
        assert other.round(t).sampled_ids.tolist() == runs[1].round(t).sampled_ids.tolist()
        assert other.round(t).models == (("start",) if t < 4 else ("start", "global"))
        assert other.round(t).is_packed
    elsewhere = train(Config.read(merge(tables, {"data": {"seed": 1}})), tmp_path / "elsewhere")
    places = [np.searchsorted(elsewhere.round(t).client_ids, elsewhere.round(t).sampled_ids).tolist() for t in (1, 2)]
    assert places == [draw_kept_clients(6, 3, seed=1, round=t).tolist() for t in (1, 2)]


def test_the_file_has_no_clients_under_their_old_name(runs: tuple[Run, Run]) -> None:
    """A reader that does not know of samples meets a round without clients, and never three rows for six."""
    ids = runs[1].round(2).sampled_ids.tolist()
    expected = runs[0].round(2).clients(ids).arrays()["fc1.weight"]
    with h5py.File(runs[1].round(2).path, locking=False) as file:
        assert "clients" not in file
        assert file["sampled_client_ids"][:].tolist() == ids
        np.testing.assert_array_equal(file["sampled_clients/fc1.weight"][:], expected)


def test_all_are_kept_as_ever_where_there_are_no_more(runs: tuple[Run, Run], tmp_path: Path) -> None:
    few = train(config(clients="sample:6"), tmp_path / "six")
    for t in few.rounds:
        expected = contents(runs[0].path / f"rounds/{t:05d}.h5")
        assert contents(few.path / f"rounds/{t:05d}.h5") == expected


def test_what_clients_keep_is_not_among_the_models(tmp_path: Path) -> None:
    """As in a round without clients, it lies beside the rounds until nothing needs it."""
    small = merge(preset("scaffold"), SMALL)
    whole = train(Config.read(small), tmp_path / "whole")
    few = train(Config.read(merge(small, {"record": {"clients": "sample:2"}})), tmp_path / "few")
    last = few.round("last")
    assert last.client_states == ()
    np.testing.assert_array_equal(last.read("global").parameters, whole.round("last").read("global").parameters)
    assert not list((few.path / "kept").rglob("*.h5"))


@pytest.mark.parametrize("method", ["fma", "scaffold", "ima"])
def test_an_interrupted_run_goes_on_exactly(stop_after: Any, tmp_path: Path, method: str) -> None:
    own: dict[str, Any] = {"average": {"start": 2, "window": 2}} if method == "ima" else {}
    settings = Config.read(merge(preset(method), SMALL, own, {"record": {**SAMPLED, "compression": "delta"}}))
    whole = train(settings, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(settings, tmp_path / "cut", watcher=stop_after(2))
    assert Run.open(tmp_path / "cut").rounds == (1, 2)
    resumed = resume(tmp_path / "cut")
    for t in whole.rounds:
        assert contents(resumed.path / f"rounds/{t:05d}.h5") == contents(whole.path / f"rounds/{t:05d}.h5"), t
    assert not list((resumed.path / "kept").rglob("*.h5"))


def test_a_branch_to_the_same_method_is_the_run_itself(runs: tuple[Run, Run], tmp_path: Path) -> None:
    again = branch(runs[1], 2, {}, tmp_path / "branch")
    for t in again.rounds:
        assert contents(again.path / f"rounds/{t:05d}.h5") == contents(runs[1].path / f"rounds/{t:05d}.h5"), t
    other = branch(runs[0], 2, {"record": {"clients": "sample:1"}}, tmp_path / "other")
    assert [(one.has_clients, one.has_sample) for one in map(other.round, other.rounds)] == [
        (True, False),
        (True, False),
        (False, True),
        (False, True),
    ]
    assert fine(other) == ()


def fine(run: Run) -> tuple[tuple[str, str], ...]:
    return check_run(run.path).faults


# --- what is asked of it ---

#: questions that need no clients, or name the models they need
ANSWERED = {
    "curves",
    "curves-target",
    "data",
    "align",
    "line",
    "line-layers",
    "line-rounds",
    "planes",
    "sharpness",
    "sharpness-layers",
    "cka-models",
    "wima",
    "updates",
    "embed",
}
OTHER = {"plane", "plane-both", "adapters"}  # two name a client by its number, see below; and these are no adapters


@pytest.mark.same_elsewhere
@pytest.mark.parametrize("name", [name for name in ASKED if name not in OTHER])
def test_no_question_takes_the_few_for_the_cohort(
    runs: tuple[Run, Run], name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.chdir(runs[1].path.parent.parent)
    words = ASKED[name][0].replace("runs/fma", str(runs[1].path)).split()
    status = command([*words, "--out", str(tmp_path / "m")])
    said = capsys.readouterr().err
    assert status == (0 if name in ANSWERED else 2), said
    if name not in ANSWERED:
        assert re.search(r"round [124] kept the models of 3 of its 6 clients \(clients [\d, ]+; sample:3\)", said), said
        assert said.count("\n") == 1
        assert list(tmp_path.iterdir()) == []


def test_a_refusal_says_what_can_be_asked_and_whom_to_ask(runs: tuple[Run, Run], tmp_path: Path) -> None:
    from fedscope.checkpoints import recorded_clients

    round_ = runs[1].round(2)
    ids = round_.sampled_ids.tolist()
    said = (
        rf"fma@2: round 2 kept the models of 3 of its 6 clients \(clients {', '.join(map(str, ids))}; sample:3\), and "
        rf"this needs those of all; no round of this run has all: train with record\.clients = 'all', or ask about "
        rf"single models as .*fma@2/client-{ids[0]}; its sketches tell lengths, angles and distances alone"
    )
    with pytest.raises(FedscopeError, match=said):
        recorded_clients(runs[1], 2)
    mixed = branch(runs[0], 2, {"record": {"clients": "sample:1"}}, tmp_path / "mixed")
    with pytest.raises(
        FedscopeError, match=r"kept the models of 1 of its 6 clients \(client \d; .*rounds 1, 2 have all"
    ):
        recorded_clients(mixed, 3)
    with pytest.raises(FedscopeError, match=r"and those of all are asked for$"):
        round_.clients()
    other = next(int(k) for k in round_.client_ids if k not in ids)
    whose = rf"@2/client-{other}: round 2 recorded the models of clients {', '.join(map(str, ids))} of its 6$"
    with pytest.raises(FedscopeError, match=whose):
        round_.client(other)
    with pytest.raises(FedscopeError, match="round 2 recorded all of its clients, not a sample of them"):
        runs[0].round(2).sampled()
    with pytest.raises(FedscopeError, match=r"round 2 recorded start, global, a sample of the clients, not averaged"):
        load_model(f"{runs[1].path}@2/averaged")


def test_single_models_are_addressed(runs: tuple[Run, Run]) -> None:
    ids = runs[1].round(3).sampled_ids.tolist()
    one = load_model(f"{runs[1].path}@3/client-{ids[1]}").weights.parameters
    np.testing.assert_array_equal(one, runs[0].round(3).client(ids[1]).parameters)
    among = load_model(f"{runs[1].path}@3/mean({ids[0]},{ids[2]})").weights.parameters
    np.testing.assert_array_equal(among, mean(runs[0].round(3).clients([ids[0], ids[2]])).parameters)


def test_a_plane_of_a_round_goes_through_three_of_the_few(runs: tuple[Run, Run]) -> None:
    import fedscope

    drawn_plane = fedscope.plane(runs[1], rounds=2, grid=3, split="test")
    anchors = [model.label for model in next(iter(drawn_plane)).anchors]
    assert [label.rpartition("-")[2] for label in anchors] == [str(k) for k in runs[1].round(2).sampled_ids]


def test_a_plane_of_fewer_than_three_is_refused(runs: tuple[Run, Run], tmp_path: Path) -> None:
    import fedscope

    two = branch(runs[0], 2, {"record": {"clients": "sample:2"}}, tmp_path / "two")
    said = r"two@3: round 3 kept the models of 2 of its 6 clients \(.*; sample:2\), but a plane needs three; keep more"
    with pytest.raises(FedscopeError, match=said):
        fedscope.plane(two, rounds=3, grid=3, split="test")


def test_ls_says_which_rounds_are_sampled(runs: tuple[Run, Run], capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["ls", str(runs[1].path)]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "with clients none sampled 1-4 (the models of 3 of 6 clients) with sketches 1-4" in words
    assert command(["ls", str(runs[0].path)]) == 0
    assert "sampled" not in capsys.readouterr().out
    assert command(["ls", "--check", str(runs[1].path)]) == 0


# --- damage ---


def altered(path: Path, number: int, change: Any) -> None:
    """Change a round as a program that writes no checksums would."""
    with h5py.File(path / f"rounds/{number:05d}.h5", "r+") as file:
        del file["checksums"], file.attrs["checksums"]
        change(file)


def set_(name: str, value: Any) -> Any:
    def change(file: Any) -> None:
        del file[name]
        file[name] = value

    return change


def moved(name: str) -> Any:
    def change(file: Any) -> None:
        layer = next(iter(file[name]))
        file[name][layer][0] += 0.25

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (set_("start_sketch", np.zeros(64)), "the sketch of start is not that of the recorded model"),
        (set_("start_sketch", np.zeros(63)), r"start_sketch has shape \(63,\), not \(64,\) as the clients' sketches"),
        (moved("sampled_clients"), r"the sketch of client \d is not that of its recorded model"),
        (moved("global"), "the sketch of global is not that of the recorded model"),
        (
            set_("sketch", np.ones((6, 64), np.float32)),
            r"global is not the mean of its clients with the weights p, as their sketches have it \(off by",
        ),
        (set_("sampled_client_ids", [3, 2, 1]), r"sampled_client_ids are not ascending numbers of clients that took"),
        (set_("sampled_client_ids", [0, 1, 77]), "sampled_client_ids are not ascending numbers of clients that took"),
        (lambda file: file.__delitem__("sampled_client_ids"), "sampled_client_ids"),
        (lambda file: file.__delitem__("sampled_clients"), ""),
    ],
)
def test_what_contradicts_itself_is_found_without_checksums(
    runs: tuple[Run, Run], tmp_path: Path, change: Any, said: str
) -> None:
    copy = Path(shutil.copytree(runs[1].path, tmp_path / "copy"))
    altered(copy, 2, change)
    faults = [f"{file}: {what}" for file, what in check_run(copy).faults]
    if said:
        assert any(re.match(rf"rounds/00002\.h5: .*{said}", fault) for fault in faults), faults


def test_a_mean_is_looked_at_where_a_client_of_weight_0_diverged() -> None:
    def contradictions(end: list[float]) -> list[str]:
        sketches = np.array([[1, 2], [3, 4], [np.nan, 0]], np.float32)
        whole = {"start": np.zeros(2), "global": np.array(end)}
        known = {"models": (), "has_sketch": True, "has_clients": False, "whole_sketches": tuple(whole)}
        round_: Any = SimpleNamespace(
            **known,
            sketch=lambda: sketches,
            whole_sketch=whole.__getitem__,
            weights=np.array([0.5, 0.5, 0.0]),
        )
        return list(sketch_contradictions(round_, is_mean=True))

    assert contradictions([2.0, 3.0]) == []
    (said,) = contradictions([2.0, 4.0])
    assert said.startswith("global is not the mean of its clients with the weights p, as their sketches have it")


def test_a_row_that_changed_is_found_by_its_checksum(runs: tuple[Run, Run], tmp_path: Path) -> None:
    copy = Run.open(shutil.copytree(runs[1].path, tmp_path / "copy"))
    with h5py.File(copy.round(2).path, "r+") as file:
        file["sampled_clients/fc1.weight"][1, 0, 0] += 1
    client = copy.round(2).sampled_ids[1]
    with pytest.raises(FedscopeError, match=rf"client {client}'s sampled_clients/fc1\.weight is not what was written"):
        copy.round(2).client(int(client))


# --- the setting ---


@pytest.mark.parametrize("value", ["sample:0", "sample:", "sample:x", "sample:1.5", "sample"])
def test_samples_of_no_size_are_refused(value: str) -> None:
    with pytest.raises(
        FedscopeError, match=rf'record\.clients = "{value}" needs a whole number from 1 on, as in "samp'
    ):
        Config.read({"record": {"clients": value}})


def test_only_clients_are_sampled() -> None:
    for section, key in (("record", "globals"), ("run", "evaluate_all")):
        with pytest.raises(FedscopeError, match=rf'{section}\.{key} = "sample:3" is not a .*; give "all", "none"'):
            Config.read({section: {key: "sample:3"}, "data": {"client_test": 0.2}})
    with pytest.raises(
        FedscopeError, match=r'did you mean "?sample"?.* give "sample:m" \(m clients of every round\), "'
    ):
        Config.read({"record": {"clients": "smple:3"}})


def test_the_room_that_is_said_to_be_needed_is_about_what_is_taken(runs: tuple[Run, Run]) -> None:
    every = RetentionPolicy.parse("all")
    for run, policy in zip(runs, ("all", "sample:3"), strict=True):
        sketch = 64 if policy != "all" else 0
        said = size_on_disk(run.layout, 6, 4, RetentionPolicy.parse(policy), every, sketch=sketch)
        taken = sum(path.stat().st_size for path in (run.path / "rounds").iterdir())
        assert said == pytest.approx(taken, rel=0.2)
