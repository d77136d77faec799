"""Runs checked as a whole: sound ones are said to be, and what contradicts itself is found without checksums too."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from fedscope import Recorder
from fedscope.checkpoints import FedscopeError, FedscopeWarning, Run, Weights
from fedscope.cli.main import run as command
from fedscope.decomposition.reaggregation.server_inputs import recorded_cohort
from fedscope.methods import ClientMethod, LocalTask, LocalUpdate, Served, ServerMethod, local_sgd
from fedscope.training import Config, branch, resume, train
from fedscope.training.build import config_of
from fedscope.training.loop.verify_run import check_run

SETTINGS: dict[str, dict[str, Any]] = {
    "fma": {},
    "ima": {"average": {"method": "ima", "start": 2, "window": 2}},
    "scaffold": {"client": {"method": "scaffold"}},
    "fedacg": {"client": {"method": "fedacg"}, "server": {"method": "fedacg"}},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four short runs, and a branch of one."""
    folder = tmp_path_factory.mktemp("runs")
    for name, methods in SETTINGS.items():
        tables = {**methods, "client": {"epochs": 1, **methods.get("client", {})}}
        rest = {"data": {"clients": 6}, "run": {"rounds": 4, "participation": 0.5, "evaluate_clients": 0}}
        train(Config.read({**tables, **rest}), folder / name)
    branch(Run.open(folder / "fma"), 2, {"client": {"method": "scaffold"}}, folder / "branch")
    return folder


@pytest.fixture
def copy(runs: Path, tmp_path: Path) -> Callable[[str], Path]:
    def made(name: str) -> Path:
        shutil.copytree(runs / name, tmp_path / name)
        return tmp_path / name

    return made


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("", "it is empty"),
        ("round,test_error", "its only line has no end"),
        ("hello world\n", "its first line names no columns"),
        ("<html>\n</html>\n", "its first line names no columns"),
        ("1,0.05,3\n2,0.05,3\n", "its first line names no columns"),
        ("epoch,loss\n1,0.5\n2,0.4\n", "its first line names no columns"),
        ("round,top5\n1,0.5\n2,0.4\n", "none of its 2 rows was written for this run"),
    ],
)
def test_a_table_that_no_question_believes_is_not_called_sound(
    copy: Callable[[str], Path], written: str, said: str
) -> None:
    path = copy("fma")
    expected = Run.open(path).metrics()
    (path / "metrics.csv").write_text(written)
    what = f"{said}; delete it: what it lacks is taken from the rounds"
    assert check_run(path).faults == (("metrics.csv", what),)
    with pytest.warns(FedscopeWarning) as warned:
        found = Run.open(path).metrics()
    assert [str(one.message) for one in warned] == [
        f"{path}/metrics.csv is another run's table, or damaged: {said}, so the numbers are those of the rounds' "
        "files; delete it, or restore it from a copy"
    ]
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)
    (path / "metrics.csv").unlink()
    assert check_run(path).faults == (), "the remedy is one"


def test_names_with_slashes_and_at_signs_are_compared_whole(tmp_path: Path) -> None:
    """They begin parts and attributes elsewhere in a file."""
    first, last = np.float32([1, 2]), np.float32([3, 4])
    for other in ("user@x.weight", "mlp/~/linear_1.w"):
        path = tmp_path / other.replace("/", "_")
        with Recorder(path) as recorder:
            recorder.round(clients={0: {"mlp/~/linear_0.w": first, other: last}})
        assert Run.open(path).round(1).clients().row(0).parameters.size == 4
        assert check_run(path).faults == ()
        info = json.loads((path / "run.json").read_text())
        info["layout"] = [entry for entry in info["layout"] if entry["name"] != other]
        info.get("files", {}).pop("run.json", None)
        (path / "run.json").write_text(json.dumps(info))
        assert check_run(path).faults == (
            ("rounds/00001.h5", f"it holds clients/{other}, which the layout in run.json lacks"),
        )


def test_rounds_that_hold_more_than_the_layout_are_not_called_sound(copy: Callable[[str], Path]) -> None:
    """A layout that lost a tensor, in a ``run.json`` whose own seal was taken out as its refusal advises: all numbers
    would be those of the rest of the model."""
    path = copy("fma")
    info = json.loads((path / "run.json").read_text())
    lost = info["layout"].pop()["name"]
    del info["files"]["run.json"]
    whole = (path / "run.json").read_bytes()
    (path / "run.json").write_text(json.dumps(info))
    lacks = "which the layout in run.json lacks"
    assert check_run(path).faults == tuple(
        (f"rounds/{number:05d}.h5", f"it holds {group}/{lost}, {lacks}")
        for number in range(1, 5)
        for group in ("start", "global", "clients")
    )
    place = Run.open(path).round(2)
    for read, group in ((place.clients, "clients"), (lambda: place.read("global"), "global")):
        with pytest.raises(FedscopeError) as refused:
            read()
        assert str(refused.value) == (
            f"{place.path} does not fit its run: it holds {group}/{lost}, {lacks}; restore run.json from a copy"
        )
    (path / "run.json").write_bytes(whole)
    assert check_run(path).faults == (), "the remedy is one"


@pytest.fixture
def looped(tmp_path: Path) -> Path:
    with Recorder(tmp_path / "looped", source="flower") as recorder:
        for t in range(3):
            models = [{"w": np.full(3, k + t, np.float32)} for k in range(2)]
            recorder.round(clients=models, metrics={"test_error": 0.5})
    return tmp_path / "looped"


def test_a_recorded_run_has_its_numbers_without_its_table(looped: Path) -> None:
    expected = Run.open(looped).metrics()
    (looped / "metrics.csv").write_text("epoch,loss\n1,0.5\n")
    what = "its first line names no columns; delete it: what it lacks is taken from the rounds"
    assert check_run(looped).faults == (("metrics.csv", what),)
    (looped / "metrics.csv").unlink()
    assert check_run(looped).faults == ()
    found = Run.open(looped).metrics()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)


@pytest.mark.parametrize(
    "written",
    [
        "",
        "\n",
        "epoch,loss\n1,0.5\n",
        "Round,Test Error\n1,0.5\n",
        "round;test_error\n1;0.5\n",
        "# flower\nround,test_error\n1,0.5\n",
        "round,test_error",
    ],
)
def test_a_table_of_another_program_is_left_as_it_is(looped: Path, written: str) -> None:
    info = json.loads((looped / "run.json").read_text())
    info = {key: value for key, value in info.items() if key not in ("identity", "files", "sha256", "crc32")}
    (looped / "run.json").write_text(json.dumps(info))
    for path in (looped / "rounds").iterdir():
        with h5py.File(path, "r+") as file:
            del file["checksums"], file.attrs["checksums"], file.attrs["identity"]
    (looped / "metrics.csv").write_text(written)
    assert not Run.open(looped).identity
    assert "metrics.csv" not in [name for name, _ in check_run(looped).faults]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Run.open(looped).metrics()["test_error"].tolist() == [0.5, 0.5, 0.5]


def altered(path: Path, number: int, change: Callable[[Any], object]) -> None:
    """Change a round as a program that writes no checksums would."""
    with h5py.File(path / f"rounds/{number:05d}.h5", "r+") as file:
        del file["checksums"], file.attrs["checksums"]
        change(file)


def shift(name: str) -> Callable[[Any], object]:
    def change(file: Any) -> None:
        layer = next(iter(file[name]))
        file[name][layer][0] += 0.25

    return change


@pytest.mark.parametrize("name", [*SETTINGS, "branch"])
def test_runs_are_sound(runs: Path, name: str) -> None:
    found = check_run(runs / name)
    assert (found.rounds, found.faults, found.without) == (4, (), ())
    expected = sum(len(h5py.File(path)["checksums"]) for path in (runs / name).rglob("0*.h5"))
    assert found.checksums == expected > 100


@pytest.mark.parametrize(
    ("name", "number", "what", "says"),
    [
        ("fma", 2, "global", r"rounds/00002\.h5: global is not the mean of its clients with the weights p \(\d"),
        ("fma", 4, "clients", r"rounds/00004\.h5: global is not the mean of its clients"),
        ("fma", 3, "start", r"rounds/00003\.h5: start is not the model that round 2 left"),
        ("ima", 3, "start", r"rounds/00003\.h5: start is not the model that round 2 left"),
        ("ima", 4, "averaged", r"rounds/00004\.h5: averaged is not the mean of global of rounds 3 to 4 \(off by"),
        ("fedacg", 3, "start", r"rounds/00003\.h5: start is not the model that round 2 left"),
        ("branch", 4, "start", r"rounds/00004\.h5: start is not the model that round 3 left"),
    ],
)
def test_models_that_contradict_each_other_are_found_without_checksums(
    copy: Any, name: str, number: int, what: str, says: str
) -> None:
    import re

    path = copy(name)
    altered(path, number, shift(what))
    found = check_run(path)
    assert any(re.match(says, f"{file}: {clause}") for file, clause in found.faults), found.faults
    assert found.without == (number,)


def test_without_checksums_a_run_is_read_and_said_to_have_none(copy: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = copy("ima")
    for number in range(1, 5):
        altered(path, number, lambda file: None)
    assert command(["ls", "--check", str(path)]) == 0
    assert (
        capsys.readouterr()
        .out.strip()
        .endswith("sound: 4 rounds, no checksums (recorded without them: only sizes, types and sums were looked at)")
    )
    assert Run.open(path).round(4).read("averaged").parameters.size


def test_files_that_disagree_are_found(copy: Any) -> None:
    path = copy("fma")
    text = (path / "metrics.csv").read_text().splitlines()
    rows = [line.split(",") for line in text]
    rows[2][rows[0].index("test_loss")] = "0.5"
    head = [name for name in rows[0] if name != "crc32"]  # as a table without checksums
    (path / "metrics.csv").write_text("\n".join(",".join(row[: len(head)]) for row in rows) + "\n")
    altered(path, 3, lambda file: file["client_samples"].__setitem__(0, 1))
    (path / "rounds/00001.h5").unlink()
    found = [f"{file}: {clause}" for file, clause in check_run(path).faults]
    assert any(
        line.startswith("metrics.csv: it says test_loss = 0.5 of round 2, but the round's file") for line in found
    )
    assert any("trained on 1 samples, but partition.h5 gives it" in line for line in found), found
    assert any(line.startswith("rounds/00001.h5: it is missing") for line in found)


def test_the_command_says_all_that_is_wrong_and_ends_with_2(
    copy: Any, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = copy("ima")
    with h5py.File(path / "rounds/00002.h5", "r+") as file:
        layer = next(iter(file["clients"]))
        client = file["client_ids"][1]
        file["clients"][layer][1] = 0
        file["weights"][:2] += np.array([1e-9, -1e-9])
    assert command(["ls", "--check", str(runs / "fma"), str(path)]) == 2
    said = capsys.readouterr()
    one, other, *faults = said.out.splitlines()
    assert one.startswith(f"{runs / 'fma'}  sound: 4 rounds, ")
    assert other.startswith(f"{path}  damaged: 4 rounds, ")
    assert other.endswith(", 2 faults")
    assert sorted(faults) == [
        f"  rounds/00002.h5: client {client}'s {layer} is not what was written (its checksum is another)",
        "  rounds/00002.h5: weights is not what was written (its checksum is another)",
    ]
    assert "1 of 2 runs is damaged" in said.err.replace("runs are", "runs is")
    assert command(["ls", "--check", str(path.parent), "--json"]) == 2
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["sound"], row["rounds"], len(row["faults"])) == (False, 4, 2)


def test_a_run_without_its_run_json_is_listed_and_damaged(
    copy: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both were left out, one with all of its rounds, and the remedy was refused."""
    monkeypatch.chdir(tmp_path)
    for name in ("fma", "ima", "scaffold"):
        copy(name)
    Path("fma/run.json").unlink()
    Path("scaffold/run.json").write_text("")
    Path("other/rounds").mkdir(parents=True)
    Path("other/rounds/00001.h5").write_text("nobody's")
    lost = "is not there, and the rounds are no run without it; restore it from a copy"
    empty = "scaffold/run.json is not JSON (Expecting value: line 1 column 1 (char 0)); restore it from a copy"

    assert command(["ls", "--json"]) == 0
    rows = {row["run"]: row["method"] for row in json.loads(capsys.readouterr().out)}
    assert rows == {"fma": f"damaged: fma/run.json {lost}", "ima": "ima", "scaffold": f"damaged: {empty}"}
    assert command(["ls"]) == 0
    assert f"damaged: fma/run.json {lost}" in capsys.readouterr().out
    assert command(["ls", "fma"]) == 0
    assert f"damaged: fma/run.json {lost}" in capsys.readouterr().out

    assert command(["ls", "--check", "."]) == 2
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert lines[:2] == ["fma  damaged: 4 rounds, 0 checksums, 1 fault", f"  run.json: {lost}"]
    assert lines[3:] == ["scaffold  damaged: 0 rounds, 0 checksums, 1 fault", f"  run.json: {empty}"]
    assert said.err == "fedscope: 2 of 3 runs are damaged; restore what is named from a copy, or train again\n"
    Path("ima/rounds/00004.h5").write_bytes(Path("ima/rounds/00004.h5").read_bytes()[:900])
    assert command(["ls", "--check", "."]) == 2
    assert capsys.readouterr().err == (
        "fedscope: 3 of 3 runs are damaged; restore what is named from a copy, or train again from the last sound "
        "round: fedscope train --from ima@ROUND\n"
    )
    assert command(["ls", "--check", "fma"]) == 2
    assert capsys.readouterr().err == ("fedscope: fma is damaged; restore what is named from a copy, or train again\n")


def test_a_broken_run_json_is_a_fault_and_nothing_there_a_mistake(
    copy: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = copy("fma")
    (path / "run.json").write_text("{")
    assert command(["ls", "--check", str(tmp_path)]) == 2
    assert "run.json is not JSON" in capsys.readouterr().out
    assert command(["ls", "--check", str(tmp_path / "nowhere")]) == 2
    assert "nowhere is neither a run nor a folder" in capsys.readouterr().err


def test_the_runs_below_a_folder_are_those_of_ls_and_damaged_ones(
    copy: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (copy("ima") / "run.json").write_text("{")
    elsewhere = tmp_path.parent / f"{tmp_path.name}-elsewhere"
    copy("fma").rename(elsewhere)
    (tmp_path / "linked").symlink_to(elsewhere)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/run.json").write_text('{"of": "another program"}')
    assert command(["ls", "--check", "--json", str(tmp_path)]) == 2
    rows = json.loads(capsys.readouterr().out)
    assert [(Path(row["run"]).name, row["sound"]) for row in rows] == [("ima", False), ("linked", True)]


@pytest.mark.parametrize("checksums", [True, False])
def test_a_resume_does_not_go_on_from_altered_weights(runs: Path, tmp_path: Path, checksums: bool) -> None:
    config = Config.read({"data": {"clients": 6}, "client": {"epochs": 1}, "run": {"rounds": 4, "participation": 0.5}})
    path = tmp_path / "fma"
    train(config, path)
    (path / "rounds/00004.h5").unlink()
    if checksums:
        with h5py.File(path / "rounds/00003.h5", "r+") as file:
            shift("global")(file)
        sentence = r"00003\.h5 is damaged: global/.* is not what was written .* --from .*fma@2; or move that file"
    else:
        altered(path, 3, shift("global"))
        sentence = r"00003\.h5 is damaged: global is not the mean of its clients with the weights p .*fma@2$"
    with pytest.raises(FedscopeError, match=sentence):
        resume(path)
    assert Run.open(path).rounds == (1, 2, 3)
    again = branch(Run.open(path), 2, {}, tmp_path / "again")  # what the sentence advises
    np.testing.assert_array_equal(again.round(3).clients().parameters, Run.open(path).round(3).clients().parameters)
    assert not check_run(again.path).faults


def test_what_is_kept_beside_rounds_is_checked_too(tmp_path: Path, stop_after: Any) -> None:
    tables = {
        "data": {"clients": 6},
        "client": {"method": "scaffold", "epochs": 1},
        "run": {"rounds": 4, "participation": 0.5},
        "record": {"clients": "none", "globals": "none"},
    }
    with pytest.raises(KeyboardInterrupt):
        train(Config.read(tables), tmp_path / "thin", watcher=stop_after(2))
    path = tmp_path / "thin"
    assert not check_run(path).faults
    kept = next((path / "kept" / "clients").iterdir())
    with h5py.File(kept, "r+") as file:
        name = next(iter(file["client_state"]))
        values = file["client_state"][name]
        values = values[next(iter(values))]
        values[...] = values[...] + 1
    found = check_run(path).faults
    assert len(found) == 3  # a client each
    assert {file for file, what in found if "is not what was written" in what} == {f"kept/clients/{kept.name}"}
    (place,) = (place for place in Run.open(path).files_of(int(kept.stem)) if place.path == kept)
    with pytest.raises(FedscopeError, match=rf"{kept.name} is damaged: client .* is not .*; restore it from a copy$"):
        place.client_state(name)


class Glides(ServerMethod):
    """FedACG's server, which keeps nothing before its first step."""

    def look_ahead(self, state: Any, w: np.ndarray) -> np.ndarray:
        return w + np.float32(0.5) * state["m"] if state else w

    def step(self, state: Any, start: Weights, clients: Weights, cohort: Any) -> Served:
        mean = (cohort.p @ clients.parameters).astype(np.float32)
        return Served(mean, {"m": mean - start.parameters})


@pytest.mark.parametrize("globals_", ["last:1", "every:2", "none"])
@pytest.mark.parametrize("server", ["fedacg", Glides])
def test_a_server_that_looks_ahead_goes_on_where_its_state_was_not_recorded(
    tmp_path: Path, server: Any, globals_: str
) -> None:
    tables = {
        "data": {"clients": 6},
        "client": {"epochs": 1},
        "server": server if isinstance(server, type) else {"method": server},
        "run": {"rounds": 5, "participation": 0.5, "evaluate_clients": 0},
        "record": {"globals": globals_},
    }
    own = {"server": server} if isinstance(server, type) else None
    whole = train(tables, tmp_path / "whole")
    for until in (2, 3):
        path = tmp_path / f"cut-{until}"
        train(tables, path, until=until)
        assert check_run(path).faults == ()
        resumed = resume(path, code=own)
        assert check_run(path).faults == ()
        for t in whole.rounds:
            one, other = (run.round(t) for run in (resumed, whole))
            assert one.models == other.models
            for which in one.models:
                np.testing.assert_array_equal(one.read(which).parameters, other.read(which).parameters)
            np.testing.assert_array_equal(one.clients().parameters, other.clients().parameters)


@dataclass(frozen=True)
class UsesSome(ClientMethod):
    """Says that it has used a sample alone."""

    def train(self, task: LocalTask) -> LocalUpdate:
        return replace(local_sgd(task, self), samples=1)


def test_a_client_of_ones_own_says_how_many_samples_it_has_used(tmp_path: Path) -> None:
    """The weights are those of the partition, in the run and afterwards."""
    tables = {"data": {"clients": 4}, "client": {"epochs": 1}, "run": {"rounds": 1, "participation": 1.0}}
    run = train(tables, tmp_path / "run", client=UsesSome)
    round_, partition = run.round(1), run.partition
    assert partition is not None
    held = np.array([len(own) for own in partition.clients])
    assert round_.client_samples.tolist() == [1] * 4
    np.testing.assert_array_equal(round_.weights, held / held.sum())
    cohort = recorded_cohort(run, round_, config_of(run))
    assert (cohort.samples.tolist(), cohort.p.tolist()) == ([1] * 4, round_.weights.tolist())
    assert check_run(run.path).faults == ()


@pytest.mark.parametrize(
    "weighed", [{}, {"weights": [0.5, 0.5]}, {"samples": [10, 15]}, {"samples": [15, 15]}, {"samples": [20, 15]}]
)
@pytest.mark.filterwarnings("ignore::fedscope.checkpoints.FedscopeWarning")
def test_a_recorded_run_need_not_count_the_samples_of_its_partition(tmp_path: Path, weighed: dict[str, Any]) -> None:
    """Its recorder has warned of more than there are; fewer may be held back, and who weighs otherwise says none."""
    with Recorder(tmp_path / "run", partition=[range(15), range(15, 30)], labels=np.arange(30) % 3) as recorder:
        for _ in range(2):
            clients = [{"w": np.full(3, k, np.float32)} for k in (1, 2)]
            recorder.round(start={"w": np.zeros(3, np.float32)}, clients=clients, **weighed)
    found = check_run(tmp_path / "run")
    assert (found.rounds, found.faults) == (2, ())
