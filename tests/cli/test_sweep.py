"""``fedscope sweep``: what it prints, where the folder lies, and mistakes."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

from fedscope.checkpoints import Run
from fedscope.cli.main import run
from fedscope.training import Sweep

pytestmark = [pytest.mark.programs, pytest.mark.same_elsewhere, pytest.mark.usefixtures("few_digits")]

SMALL = ["--set", "data.clients=4", "--set", "model.hidden=[4]", "--set", "run.rounds=2", "--set", "client.epochs=1"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_sweep_is_dry_then_trained_then_there(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", "method=fma,fedavgm", *SMALL]
    assert run([*words, "--dry-run"]) == 0
    *commands, guess = capsys.readouterr().out.splitlines()
    assert [shlex.split(line)[:2] for line in commands] == [["fedscope", "train"]] * 2
    assert re.fullmatch(
        r"2 runs, 4 rounds: about .* on this machine, from a few steps of each kind, and up to .* on the disk", guess
    )
    assert not Path("sweeps").exists(), "a dry run makes nothing"
    assert run(words) == 0
    found = capsys.readouterr()
    assert found.out == "sweeps/method: 2 of 2 runs complete; fedscope table sweeps/method\n"
    assert re.findall(r"^\[\d/2\] (.*)$", found.err, re.M) == ["fma: complete", "fedavgm: complete"]
    made = Sweep.open("sweeps/method")
    assert [one.round("last").number for one in made.runs] == [2, 2]
    before = {one.name: (one.path / "metrics.csv").read_bytes() for one in made.runs}
    assert run([*words, "--dry-run"]) == 0
    assert capsys.readouterr().out == "nothing is left to train: 2 runs complete\n"
    assert run([*words, "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "commands": [], "runs": 2, "rounds": 4, "runs_left": 0, "rounds_left": 0, "seconds": 0.0, "bytes": 0
    }  # fmt: skip
    capsys.readouterr()
    assert run(["sweep", "--resume", "sweeps/method", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "sweep": "sweeps/method", "complete": ["fma", "fedavgm"], "failed": {}, "missing": []
    }  # fmt: skip
    assert before == {one.name: (one.path / "metrics.csv").read_bytes() for one in Sweep.open("sweeps/method").runs}


def test_a_dry_run_counts_what_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", "client.lr=0.1,0.2,0.3", *SMALL, "--out", "s"]
    assert run(words) == 0
    shutil.rmtree("s/runs/lr0.2")
    capsys.readouterr()
    assert run([*words, "--dry-run"]) == 0
    command, guess = capsys.readouterr().out.splitlines()
    assert command.endswith("--out s/runs/lr0.2")
    assert guess.startswith("1 of 3 runs, 2 rounds are left: about ")


def test_what_is_printed_elsewhere_works_there(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data, a configuration and a sweep of relative names, asked for from another folder."""
    from fedscope.training import load_data

    data = load_data("digits")
    (folder / "bob's").mkdir()
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir("bob's")
    np.savez("own.npz", **{name: getattr(data, name) for name in ("x_train", "y_train", "x_test", "y_test")})
    Path("own.toml").write_text('[data]\nname = "npz:own.npz"\n')
    assert run(["sweep", "own.toml", "client.lr=0.1,0.2", *SMALL, "--out", "s"]) == 0
    monkeypatch.chdir(folder / "elsewhere")
    shutil.rmtree("../bob's/s/runs/lr0.2")
    capsys.readouterr()
    assert run(["sweep", "--resume", "../bob's/s", "--dry-run"]) == 0, capsys.readouterr().err
    left = capsys.readouterr().out.splitlines()
    assert len(left) == 2
    assert run(["table", "../bob's/s", "--commands"]) == 0
    made = capsys.readouterr().out.splitlines()[1]
    for line, name in ((left[0], "lr0.2"), (made, "lr0.1")):
        assert (line[0], line[-1]) == ("(", ")")
        words = shlex.split(line.removeprefix("(").removesuffix(")"))
        assert words[:4] == ["cd", f"{folder}/bob's", "&&", "fedscope"]
        shutil.rmtree(f"../bob's/s/runs/{name}", ignore_errors=True)
        with monkeypatch.context() as there:
            there.chdir(words[1])
            assert run(words[4:]) == 0, capsys.readouterr().err
    assert [one.round("last").number for one in Sweep.open("../bob's/s").runs] == [2, 2]
    # what needs no folder is printed as it is
    assert run(["sweep", "client.lr=0.1", *SMALL, "--out", "../bob's/t"]) == 0
    monkeypatch.chdir(folder)
    capsys.readouterr()
    assert run(["table", "bob's/t", "--commands"]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("fedscope train --set ")


def test_an_edited_configuration_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("own.toml").write_text('[data]\npartition = "iid"\n')
    assert run(["sweep", "own.toml", "method=fma,fedavgm", *SMALL, "--out", "s"]) == 0
    shutil.rmtree("s/runs/fedavgm")
    text = Path("s/config.toml").read_text()
    Path("s/config.toml").write_text(text.replace("iid", "shards:2"))
    said = (
        "fedscope: s/config.toml was edited since the sweep was planned with it: its data.partition is shards:2, and "
        "was iid; restore it, or remove it, and it is written again; for another configuration begin another sweep\n"
    )
    for more in ([], ["--dry-run"]):
        capsys.readouterr()
        assert run(["sweep", "--resume", "s", *more]) == 2
        assert capsys.readouterr().err.endswith(said)
        assert not Path("s/runs/fedavgm").exists()
    Path("s/config.toml").unlink()
    assert run(["sweep", "--resume", "s"]) == 0
    assert Path("s/config.toml").read_text() == text


def test_a_run_that_fails_is_said_and_the_exit_code_is_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sweep", "client.lr=0.1,1e30", *SMALL, "--out", "s"]) == 2
    found = capsys.readouterr()
    assert "[2/2] lr1e30: failed: " in found.err
    assert found.out == "s: 1 of 2 runs complete; fedscope table s\n"
    assert found.err.endswith("fedscope: 1 of 2 runs failed: lr1e30; see s/logs\n")
    assert Run.open("s/runs/lr0.1").round("last").number == 2
    # curves of a sweep are those of its complete runs
    assert run(["curves", "s"]) == 0
    found = capsys.readouterr()
    assert "s: 1 of 2 runs are not complete and are left out" in found.err
    assert [row.split(",")[:2] for row in Path("s/figures/curves-s.curves.csv").read_text().splitlines()[1:]] == [
        ["lr0.1", "1"],
        ["lr0.1", "2"],
    ]
    assert run(["table", "s"]) == 0
    assert "1 run of the sweep is not complete: lr1e30" in capsys.readouterr().out
    assert run(["curves", "s/runs/lr0.1", "--out", "one"]) == 0
    assert Path("one.curves.csv").read_bytes() == Path("s/figures/curves-s.curves.csv").read_bytes()
    shutil.rmtree("s/runs/lr0.1")
    capsys.readouterr()
    assert run(["curves", "s"]) == 2
    remedy = "s is a sweep of which no run is complete; go on with it: fedscope sweep --resume s"
    assert remedy in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--resume", "s", "method=fma,ima"], "--resume s goes on with the sweep's own plan; give it alone, or"),
        (["--resume", "none"], "none"),
        (["run.participation"], "run.participation has no values; write what is varied as run.participation=A,B,C"),
        (["a.toml", "b.toml"], "b.toml is a second configuration after a.toml; write keys as KEY=A,B,C"),
        (["none.toml", "method=fma"], "none.toml cannot be read as a configuration: it does not exist; give a .toml"),
        (
            ["method=fma", "ima"],
            "ima is neither a configuration nor KEY=A,B,C; separate values with commas",
        ),
        (
            ["data.partition=shards:2,250,iid"],
            "data.partition has the value 250, which is not a partition; put a value with a comma in quotes, as in "
            """data.partition='"shards:2,250",iid'""",
        ),
        (["--recipe", "ima/tabel2"], "'ima/tabel2' is not a recipe; did you mean \"ima/table2\"?"),
        (["run.participaton=0.1,0.2"], "run.participaton"),
        (["run.participation=0.1,0.1"], "0.1"),
        (["run.participation=0.1,x"], "run.participation"),
        (["method=fma,imaa"], 'did you mean "ima"?'),
        (["method=fma,ima", "method=fedavgm"], "method"),
        (["method=fma,ima", "--seeds", "3..1"], "3..1"),
        (["method=fma,ima", "--scale", "0.1"], "--scale 0.1 makes a set-up smaller; give it with --recipe or"),
    ],
)
def test_mistakes_are_one_sentence(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sweep", *words]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert said.startswith("fedscope: ")
    assert not Path("sweeps").exists()


def test_a_flag_of_train_is_answered_with_its_setting(capsys: pytest.CaptureFixture[str]) -> None:
    for words, remedy in (
        (["--data", "digits"], "'--data'; write --set data.name=VALUE, or data.name=A,B,C to vary it\n"),
        (["--lr", "0.1"], "'--lr'; write --set client.lr=VALUE, or client.lr=A,B,C to vary it\n"),
        (["--method", "fma"], "'--method'; methods are varied: method=A,B,C\n"),
    ):
        assert run(["sweep", "--seeds", "0..1", *words]) == 2
        assert capsys.readouterr().err.endswith(f"No such option {remedy}")


def test_a_single_seed_is_not_taken_for_a_number_of_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    said = {}
    for seeds in ("3", "0..2", "3,4"):
        assert run(["sweep", "--seeds", seeds, *SMALL, "--dry-run"]) == 0
        said[seeds] = capsys.readouterr().err
    assert "fedscope: --seeds 3 is one seed; 3 of them are 0..2\n" in said["3"]
    assert "one seed" not in said["0..2"] + said["3,4"]
