"""Imports that were interrupted: what is said of them, and that the same command goes on to the same run."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from fedscope import import_models
from fedscope.checkpoints import FedscopeError, FedscopeWarning, Run
from fedscope.checkpoints.recorder import record_files
from fedscope.checkpoints.recorder.read_files import FileReader
from fedscope.checkpoints.runs.run import warn_of_gaps
from fedscope.cli.main import run

pytestmark = [pytest.mark.programs, pytest.mark.same_elsewhere]

ROUNDS = "ck/round-{round}/client-{client}.npz"
LAST, CLIENTS = 7, (0, 3)


def put(path: str, round: int, client: int) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng([round, client])
    np.savez(path, **{"fc.weight": draw.normal(size=(3, 2)).astype(np.float32), "n": np.int64([round])})


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for t in range(1, LAST + 1):
        for k in CLIENTS:
            put(f"ck/round-{t}/client-{k}.npz", t, k)
        put(f"ck/round-{t}/global.npz", t, 9)
    return tmp_path


def stopped(after: int, out: str, pattern: str = ROUNDS, **given: Any) -> None:
    """An import that is interrupted where it reads the files behind ``after`` rounds."""
    read, seen = FileReader.read, 0

    def last(reader: FileReader, path: Path) -> Any:
        nonlocal seen
        seen += 1
        if seen > after * (len(CLIENTS) + ("global_" in given)) + ("start" in given):
            raise KeyboardInterrupt
        return read(reader, path)

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(), suppress(KeyboardInterrupt):
        warnings.simplefilter("ignore")
        patch.setattr(FileReader, "read", last)
        import_models(pattern, out, **given)
    assert Run.open(out).rounds == tuple(range(1, after + 1))


def stopped_in_round(number: int, out: str, **given: Any) -> None:
    """An import that is interrupted where it reads the first file of a round."""
    read = FileReader.read

    def last(reader: FileReader, path: Path) -> Any:
        if f"round-{number}/" in str(path):
            raise KeyboardInterrupt
        return read(reader, path)

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(), suppress(KeyboardInterrupt):
        warnings.simplefilter("ignore")
        patch.setattr(FileReader, "read", last)
        import_models(ROUNDS, out, **given)
    assert Run.open(out).rounds == tuple(range(1, number))


def killed(after: int, out: str, **given: Any) -> None:
    """An import of which ``after`` rounds are durable, ended as a power cut ends it."""
    code = f"""
        import os, signal, warnings
        from fedscope import import_models
        from fedscope.checkpoints.runs.writer import RunWriter
        warnings.simplefilter("ignore")
        write = RunWriter.write_image
        def last(writer, number, *rest):
            if number > {after}:
                os.kill(os.getpid(), signal.SIGKILL)
            write(writer, number, *rest)
        RunWriter.write_image = last
        import_models({ROUNDS!r}, {out!r}, **{given!r})
    """
    ended = subprocess.run([sys.executable, "-P", "-c", textwrap.dedent(code)], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert Run.open(out).rounds == tuple(range(1, after + 1))


def contents(run: str) -> list[dict[str, bytes]]:
    """Every dataset and the metrics of every round."""
    found = []
    for path in sorted(Path(run, "rounds").iterdir()):
        own: dict[str, bytes] = {}

        def look(name: str, item: Any, own: dict[str, bytes] = own) -> None:
            if isinstance(item, h5py.Dataset) and name != "checksums":
                own[name] = np.asarray(item[()]).tobytes()

        with h5py.File(path, "r") as file:
            file.visititems(look)
            own["metrics"] = file.attrs["metrics"].encode()
        found.append(own)
    return found


def quietly(out: str, **given: Any) -> list[str]:
    """Import, and what was said."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        import_models(ROUNDS, out, **given)
    return [str(one.message) for one in said]


GIVEN: tuple[dict[str, Any], ...] = (
    {},
    {"global_": "ck/round-{round}/global.npz"},
    {"global_": "ck/round-{round}/global.npz", "samples": [10, 20], "data": "digits"},
    # whose state goes from round to round
    {"start": "ck/round-1/global.npz", "server": "fedavgm"},
)


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize(
    ("end", "after"), [(stopped, 1), (stopped, 4), (stopped, LAST - 1), pytest.param(killed, 3, marks=pytest.mark.slow)]
)
def test_the_same_command_goes_on_to_the_same_run(
    files: Path, given: dict[str, Any], end: Callable[..., None], after: int
) -> None:
    end(after, "torn", **given)
    said = quietly("torn", **given)
    rounds = f"rounds 1 to {after}"
    assert f"torn held {rounds} of this import, which was interrupted; they stay" in said
    whole = quietly("whole", **given)
    assert [line for line in said if "global is the mean" in line] == [
        line for line in whole if "global is the mean" in line
    ]
    assert contents("torn") == contents("whole")
    assert len(contents("torn")) == LAST
    one, other = ((Path(run) / "metrics.csv").read_text().splitlines() for run in ("torn", "whole"))
    assert [row.rpartition(",")[0] for row in one] == [row.rpartition(",")[0] for row in other]


def test_data_of_a_file_are_the_same_however_they_are_named(files: Path) -> None:
    np.savez("data.npz", x_train=np.ones((2, 3)), y_train=[0, 1], x_test=np.ones((2, 3)), y_test=[0, 1])
    stopped(2, "torn", data="npz:data.npz")  # of which the run keeps the absolute path
    quietly("torn", data="data.npz")
    assert len(Run.open("torn").rounds) == LAST
    stopped(2, "other", data="npz:data.npz")
    Path("data.npz").rename("moved.npz")
    with pytest.raises(FedscopeError, match="interrupted, with other data="):
        quietly("other", data="npz:moved.npz")


def test_one_that_was_killed_before_its_first_round_goes_on(files: Path) -> None:
    stopped(1, "torn")
    Path("torn/rounds/00001.h5").unlink()
    Path("torn/metrics.csv").write_text(Path("torn/metrics.csv").read_text().splitlines(keepends=True)[0])
    assert Run.open("torn").rounds == ()
    quietly("torn")
    quietly("whole")
    assert contents("torn") == contents("whole")


def test_what_lacks_is_said_until_it_is_there(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stopped(2, "torn")
    assert run(["ls", "torn", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rounds"] == "2 of 7"
    assert run(["ls", "--check", "torn"]) == 0
    told = capsys.readouterr().out
    clause = "it has 2 of 7 rounds, because its import was interrupted or is at work; rounds 3 to 7 lack, and the same"
    assert f"; but {clause}" in told
    assert run(["ls", "--check", "torn", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["torn"].startswith(clause)
    assert run(["report", "torn"]) == 0
    assert f"torn is not sound: {clause}" in capsys.readouterr().out

    quietly("torn")
    assert run(["ls", "--check", "torn"]) == 0
    assert "lack" not in capsys.readouterr().out
    assert run(["ls", "torn", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rounds"] == "7"


def test_a_torn_import_that_does_not_say_its_rounds_is_told_by_its_files(files: Path) -> None:
    """As an earlier fedscope left it."""
    stopped(2, "torn")
    info = json.loads(Path("torn/run.json").read_text())
    del info["rounds"], info["files"]
    Path("torn/run.json").write_text(json.dumps(info))
    assert Run.open("torn").planned == LAST
    info["imported"]["..."] = "and 3 more"
    Path("torn/run.json").write_text(json.dumps(info))
    assert Run.open("torn").planned is None


def other_files() -> None:
    put("ck/round-8/client-0.npz", 8, 0)


@pytest.mark.parametrize(
    ("change", "given", "differs"),
    [
        (other_files, {}, "files"),
        (None, {"samples": [1, 2]}, "samples="),
        (None, {"data": "digits"}, "data="),
        (None, {"global_": "ck/round-{round}/global.npz"}, "files"),
        (None, {"method": "mine"}, "method="),
        (None, {"seed": 3}, "seed="),
        (None, {"settings": {"lr": 0.1}}, "settings"),
    ],
)
def test_another_import_does_not_go_on_with_it(
    files: Path, change: Callable[[], None] | None, given: dict[str, Any], differs: str
) -> None:
    stopped(2, "torn")
    if change is not None:
        change()
    words = f"torn holds 2 of 7 rounds of an import that was interrupted, with other {differs}"
    with pytest.raises(FedscopeError, match=words):
        import_models(ROUNDS, "torn", **given)
    assert Run.open("torn").rounds == (1, 2)
    quietly("torn", force=True, **given)
    assert len(Run.open("torn").rounds) == (8 if change else LAST)


@pytest.mark.parametrize("round", [1, 2, 3])
@pytest.mark.parametrize(
    ("what", "given"),
    [
        ("client-3", {}),
        ("client-0", {"global_": "ck/round-{round}/global.npz"}),
        ("global", {"global_": "ck/round-{round}/global.npz"}),
        ("start", {"start": "ck/round-{round}/start.npz"}),
        ("client-0", {"server": "fedavgm", "start": "ck/round-{round}/start.npz"}),
    ],
)
def test_files_that_have_changed_since_are_refused(files: Path, round: int, what: str, given: dict[str, Any]) -> None:
    """Of all rounds: earlier ones were gone on with, and the run held clients that no file has."""
    for t in range(1, LAST + 1):
        put(f"ck/round-{t}/start.npz", t, 5)
    stopped_in_round(4, "torn", **given)
    put(file := f"ck/round-{round}/{what}.npz", round, 77)
    with pytest.raises(FedscopeError) as caught:
        import_models(ROUNDS, "torn", **given)
    assert str(caught.value) == (
        f"torn@{round}/{what} is not what {file} holds now, so the files have changed since the import was "
        "interrupted; give force=True to import them anew, or another out="
    )
    assert Run.open("torn").rounds == (1, 2, 3)


def test_whole_numbers_that_have_changed_since_are_refused(files: Path) -> None:
    stopped(3, "torn")
    with np.load("ck/round-2/client-0.npz") as held:
        np.savez("ck/round-2/client-0.npz", **{**held, "n": np.int64([5])})
    with pytest.raises(FedscopeError, match=r"torn@2/client-0 is not what ck/round-2/client-0\.npz holds now"):
        import_models(ROUNDS, "torn")


def test_another_global_of_the_same_clients_is_refused(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a mean that another fedscope has rounded otherwise."""
    stopped(3, "torn")
    monkeypatch.setattr(record_files, "mean_of", lambda clients, samples=None: clients[0])
    with pytest.raises(FedscopeError) as caught:
        import_models(ROUNDS, "torn")
    assert str(caught.value).startswith(
        "torn@1 is not what its files hold now, so they have changed since the import was interrupted; give force=True"
    )


def test_files_behind_those_that_are_named_are_the_same(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``run.json`` names a thousand files."""
    monkeypatch.setattr(record_files, "NAMED", 2)
    stopped(3, "torn")
    Path("ck/round-3/client-3.npz").rename("ck/round-3/client-4.npz")
    with pytest.raises(FedscopeError, match=r"torn holds 3 of 7 rounds of an import .*, with other files; give"):
        import_models(ROUNDS, "torn")


def test_a_whole_import_is_not_gone_on_with(files: Path) -> None:
    quietly("whole")
    with pytest.raises(
        FedscopeError, match="whole exists and holds a run with 7 rounds; give force=True to replace it"
    ):
        import_models(ROUNDS, "whole")


def test_a_round_that_has_gone_is_no_end_of_an_import(files: Path) -> None:
    """With a gap it is not gone on with, for what is there is not the beginning."""
    stopped(3, "torn")
    Path("torn/rounds/00002.h5").unlink()
    with pytest.raises(FedscopeError, match="torn exists and holds a run with 2 rounds; give force=True"):
        import_models(ROUNDS, "torn")
    with pytest.warns(FedscopeWarning, match="torn lacks round 2, which was recorded"):
        warn_of_gaps(Run.open("torn"))


@pytest.mark.parametrize(("given", "differs"), [({"lora_alpha": 8}, "lora_alpha="), ({"base": "b.npz"}, "base=")])
def test_adapters_of_another_scale_or_base_do_not_go_on_with_it(
    files: Path, given: dict[str, Any], differs: str
) -> None:
    stopped(2, "torn")
    np.savez("b.npz", w=np.zeros(2, np.float32))
    with pytest.raises(FedscopeError, match=f"interrupted, with other {differs}"):
        import_models(ROUNDS, "torn", **given)


def adapters() -> str:
    """Adapters whose files say no alpha, and the base that they adapt."""
    for t in range(1, LAST + 1):
        for k in CLIENTS:
            draw = np.random.default_rng([t, k])
            factors = {f"q.lora_{name}.weight": draw.normal(size=(2, 2)).astype(np.float32) for name in "AB"}
            np.savez(f"ck/round-{t}/client-{k}.npz", **factors)  # type: ignore[arg-type]
    np.savez("b.npz", **{"q.weight": np.zeros((2, 2), np.float32)})  # type: ignore[arg-type]
    return "b.npz"


@pytest.mark.parametrize(
    ("begun", "differs"),
    [
        ({"lora_alpha": 8}, r"lora_alpha= \(8\); give what it was begun with to go on with it"),
        ({"base": "b.npz"}, "base=; give"),
        ({"data": "digits", "standardise": False}, "standardisation; give"),
    ],
)
def test_what_was_typed_at_its_beginning_is_asked_for_again(files: Path, begun: dict[str, Any], differs: str) -> None:
    """Without a word the import went on, with rounds of both sides in one run."""
    adapters()
    stopped(2, "torn", **begun)
    left = dict(list(begun.items())[:-1])
    with pytest.raises(
        FedscopeError, match=f"torn holds 2 of 7 rounds of an import that was interrupted, with other {differs}"
    ):
        import_models(ROUNDS, "torn", **left)
    assert Run.open("torn").rounds == (1, 2)
    quietly("torn", **begun)
    quietly("whole", **begun)
    assert contents("torn") == contents("whole")


def test_an_alpha_that_files_say_need_not_be_given_again(files: Path) -> None:
    adapters()
    for t in range(1, LAST + 1):
        for k in CLIENTS:
            folder = Path(f"ck/round-{t}/client-{k}")
            folder.mkdir()
            with np.load(f"{folder}.npz") as held:
                tensors = {name: torch.tensor(held[name]) for name in held.files}
            torch.save(tensors, folder / "adapter_model.bin")
            (folder / "adapter_config.json").write_text(json.dumps({"r": 2, "lora_alpha": 8}))
    stopped(2, "torn", pattern := "ck/round-{round}/client-{client}", lora_alpha=8.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import_models(pattern, "torn")
    assert Run.open("torn").rounds == tuple(range(1, LAST + 1))
