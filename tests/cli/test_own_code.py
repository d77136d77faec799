"""Code of one's own on the command line: trained, resumed, swept; and no file ever says what is imported."""

from __future__ import annotations

import errno
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from few import few
from own_code import ALL_OWN, GIVEN, MODULE, forget, own_module
from torch.nn import functional

import fedscope
from fedscope import Run
from fedscope.analysis.settings import EvaluationConfig
from fedscope.checkpoints import FedscopeError, Weights
from fedscope.cli.main import commands, run
from fedscope.decomposition import Decomposition
from fedscope.decomposition.draws.replay import Replayer
from fedscope.decomposition.matrix.result import Matrix
from fedscope.decomposition.reaggregation.result import Reaggregation
from fedscope.training.config.sources import Setup
from fedscope.training.inputs.samples import dataset_of
from fedscope.training.methods.servers.fedgma import FedGMA
from fedscope.training.sweeps.plan import plan_sweep


def words(text: str) -> list[str]:
    return text.split()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a module of one's own."""
    monkeypatch.chdir(tmp_path)
    with own_module(tmp_path):
        yield tmp_path


def models(path: str | Path) -> list[np.ndarray]:
    """Everything that a run's rounds hold, in order."""
    found: list[np.ndarray] = []
    for number in (opened := Run.open(path)).rounds:
        place = opened.round(number)
        found += [place.read(which).parameters for which in sorted(place.models)]
        found += [place.clients().parameters, place.client_loss]
    return found


def same(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    return len(one) == len(other) and all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


# --- a run of one's own code ---


def test_everything_of_ones_own_is_trained_kept_and_gone_on_with(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words(f"{ALL_OWN} --out whole")) == 0
    config = Run.open("whole").config or {}
    assert [config[section]["method"] for section in ("client", "server", "average")] == [
        "mine:Pull",
        "mine:Heavy",
        "mine:Fading",
    ]
    assert (config["model"]["name"], config["data"]["name"], config["data"]["partition"]) == (
        "mine:net(5)",
        "mine:load",
        "mine:split",
    )
    assert config["server"]["beta"] == 0.25
    entries = {entry["kind"]: entry for entry in Run.open("whole").info["code"]}
    assert set(entries) == {"client", "server", "average", "model", "data", "partition"}
    for entry in entries.values():
        assert (Path("whole/code") / entry["text"]).read_text() == MODULE
        assert len(entry["sha256"]) == 64

    assert run(words(f"{ALL_OWN} --out part --until 1")) == 0
    forget()
    capsys.readouterr()
    assert run(words("train --resume part")) == 2
    said = capsys.readouterr().err
    assert "client.method = 'mine:Pull' is code of your own, which is never loaded from a file" in said
    assert "give --code client=mine:Pull" in said
    assert "mine" not in sys.modules
    assert run(words(f"train --resume part {GIVEN}")) == 0
    assert same(models("part"), models("whole"))


def test_a_command_that_goes_on_with_a_run_names_its_code(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words(f"{ALL_OWN} --out part --until 1")) == 0
    capsys.readouterr()
    assert run(words(f"{ALL_OWN} --out part")) == 2
    on = capsys.readouterr().err.partition("(`fedscope ")[2].partition("` goes on with it)")[0]
    forget()
    assert run(shlex.split(on)) == 0
    capsys.readouterr()
    assert run(shlex.split(on)) == 2
    longer = capsys.readouterr().err.strip().partition("to train longer, branch: fedscope ")[2]
    forget()
    assert run(shlex.split(longer)) == 0
    assert Run.open("part-longer").rounds[-1] == Run.open("part").rounds[-1] + 2
    assert run(words("train --resume part --rounds 9")) == 2
    assert "--rounds 9 --code client=mine:Pull --code server=mine:Heavy" in capsys.readouterr().err


def test_a_command_that_branches_names_the_code_that_is_still_used(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """That of the rounds before is refused there."""
    assert run(words(f"{ALL_OWN} --out own")) == 0
    assert (
        run(words(f"train --from own@1 {GIVEN.replace('--code server=mine:Heavy', '')} --server fma --out other")) == 0
    )
    forget()
    capsys.readouterr()
    assert run(words(f"train --resume other {GIVEN}")) == 2
    longer = capsys.readouterr().err.strip().partition("to train longer, branch: fedscope ")[2]
    assert "server=" not in longer
    forget()
    assert run(shlex.split(longer)) == 0


@pytest.mark.slow
def test_it_resumes_after_a_kill_bit_for_bit(here: Path) -> None:
    assert run(words(f"{ALL_OWN} --out whole")) == 0
    deadly = """    def step(self, *all):
        import os

        if Path("kill").exists() and Path("part/rounds/00001.h5").exists():
            os.kill(os.getpid(), 9)
        return self.stepped(*all)

    def stepped("""
    Path("mine.py").write_text(MODULE.replace("    def step(", deadly))
    Path("kill").touch()
    command = [sys.executable, "-P", "-m", "fedscope.cli", *words(f"{ALL_OWN} --out part")]
    killed = subprocess.run(command, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert Run.open("part").rounds == (1,)
    Path("kill").unlink()
    resumed = [sys.executable, "-P", "-m", "fedscope.cli", *words(f"train --resume part {GIVEN}")]
    ended = subprocess.run(resumed, capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert same(models("part"), models("whole"))


def test_another_source_is_refused_unless_it_is_said(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words("train --server mine:Heavy --average none --clients 4 --rounds 3 --until 1 --out part")) == 0
    forget()
    Path("mine.py").write_text(MODULE + "\n# another\n")
    capsys.readouterr()
    resume = "train --resume part --code server=mine:Heavy"
    assert run(words(resume)) == 2
    said = capsys.readouterr().err
    assert "server mine:Heavy has another source than the run was trained with" in said
    assert "see part/code/server.py" in said
    assert "give --code-changed" in said
    assert Run.open("part").rounds == (1,)
    assert run(words(f"{resume} --code-changed --until 2")) == 0
    (change,) = json.loads(Path("part/code/changed.json").read_text())
    assert (change["after"], change["kind"], change["name"]) == (1, "server", "mine:Heavy")
    assert Path("part/code", change["text"]).read_text().endswith("# another\n")
    assert run(words(resume)) == 0, "the source that it went on with is the run's by now"


def test_a_branch_keeps_what_made_its_history(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words("train --server mine:Heavy --average none --clients 4 --rounds 2 --out own")) == 0
    forget()
    assert run(words("train --from own@1 --rounds 3 --out no")) == 2
    assert "give --code server=mine:Heavy" in capsys.readouterr().err
    assert run(words("train --from own@1 --server fma --rounds 3 --out branch")) == 0
    assert "mine" not in sys.modules, "the method that it had is not needed"
    (entry,) = Run.open("branch").info["code"]
    assert entry["name"] == "mine:Heavy"
    assert (Path("branch/code") / entry["text"]).read_text() == MODULE
    assert run(words("train --from branch@2 --server mine:Heavy --rounds 3 --out again")) == 0
    assert Run.open("again").config["server"]["method"] == "mine:Heavy"  # type: ignore[index]


def test_a_branch_with_another_source_says_from_which_round_on(here: Path) -> None:
    assert run(words("train --server mine:Heavy --average none --clients 4 --rounds 2 --out own")) == 0
    forget()
    Path("mine.py").write_text(MODULE + "\n# another\n")
    branch = "train --from own@2 --rounds 3 --out branch --code server=mine:Heavy"
    assert run(words(branch)) == 2
    assert run(words(f"{branch} --code-changed")) == 0
    (entry,), (change,) = Run.open("branch").info["code"], json.loads(Path("branch/code/changed.json").read_text())
    assert Path("branch/code", entry["text"]).read_text() == MODULE, "of the rounds that it takes over"
    assert (change["after"], Path("branch/code", change["text"]).read_text()) == (2, MODULE + "\n# another\n")


def test_a_file_that_names_code_needs_it_given(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("own.toml").write_text(
        '[server]\nmethod = "mine:Heavy"\nbeta = 0.25\n[data]\nclients = 4\n[run]\nrounds = 1\n'
        '[average]\nmethod = "none"\n'
    )
    assert run(words("train own.toml --out no")) == 2
    assert "own.toml: server.method = 'mine:Heavy' is code of your own" in capsys.readouterr().err
    assert "mine" not in sys.modules
    assert run(words("train own.toml --out own --code server=mine:Heavy")) == 0
    assert Run.open("own").config["server"]["beta"] == 0.25  # type: ignore[index]


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("train --code server", "--code server is not understood; write it as server=mypkg.fedx:FedX"),
        ("train --code sever=mine:Heavy", "'sever' is no kind of code; did you mean \"server\"?"),
        ("train --code server=mine:Heavi", 'has no Heavi; did you mean "Heavy"?'),
        ("train --code server=mine:Heavy --clients 4", "the run needs no code for it, its server.method is fma"),
        ("train --server mine:Pull", "Pull is not a server method; it is a client method: give it as --client"),
        ("train --server mine:net", "mine:net is"),
        ("train --server mine:Heavy(0.5)", "settings are given by name"),
        ("train --server mine:Heavy(gamma=1)", "server.gamma is not a setting of Heavy"),
        ("train --server mine:Heavy(beta=2)", "server.beta = 2 is out of range"),
        ("train --server nowhere:X", "there is no module nowhere in"),
        ("train --method mine:net", "--method mine:net is no method"),
        ("train --code-changed", "--code-changed is for a run that goes on"),
        ("train --model mine:load", "--model mine:load: load() returned a tuple, not a torch.nn.Module"),
        ("train --partition mine:net", "failed with TypeError"),
    ],
)
def test_slips_are_said_in_a_sentence(here: Path, capsys: pytest.CaptureFixture[str], typed: str, said: str) -> None:
    assert run([*words(typed), "--out", "no"]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") <= 2, err
    assert not Path("no").exists()


def test_a_module_that_raises_is_named_with_its_own_error(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("broken.py").write_text("import os\n\nraise ValueError('not today')\n")
    assert run(words("train --server broken:X --out no")) == 2
    said = "--server broken:X: broken cannot be imported: ValueError: not today (line 3 of broken.py)"
    assert said in capsys.readouterr().err
    Path("torn.py").write_text("x = 1\n\ndef f(:\n")
    assert run(words("train --server torn.py:f --out no")) == 2
    assert "(line 3 of torn.py)" in capsys.readouterr().err


# --- no file says what is imported ---

#: commands on a run of one's own code, none of which is given any
COMMANDS = (
    "ls run",
    "ls --check run",
    "ls",
    "curves run",
    "table run",
    "measure run",
    "report run --out page",
    "report run --compute --out page2",
    "plane run --grid 3",
    "plane run --rounds 1,2 --grid 3",
    "line run --points 3",
    "layers run",
    "align run@2",
    "align run@1 run@2",
    "sharpness run@2 --no-hessian --draws 2 --split test",
    "cka run --rounds last",
    "subsets run --rounds last",
    "consensus run --rounds last",
    "wima run --windows 2 --rounds 2",
    "wima run@2 --checkpoints --weights uniform",
    "decompose run --rounds last --draws none --split test",
    "decompose run --rounds last --draws local:2",
    "explain run --rounds last --draws none --split test",
    "explain run --rounds last",
    "forgetting run --rounds last --split test",
    "matrix run --split test",
    "predictors run --rounds 2",
    "adapters run",
    "theory run --draws none --kernel none --split test",
    "theory run --draws local:2 --kernel last --kernel-samples 9",
    "reaggregate run@2 --server fedavgm",
    "reaggregate run@2 --server fma --from-state",
    "reaggregate run@2 --layers 1=personal",
    "reaggregate run@2 --layers 1=fedadam",
    "updates run",
    "disperse run --rounds 2",
    "parameters run --round 2",
    "synergy run@2",
    "export run@2 out.pt",
    "export run --to csv out.csv",
    "data run",
    "train --resume run",
    "train --from run@2 --out branch",
    "train --from run@1 --server fma --out branch2",
    "train run/config.toml --out copy",
    "sweep run/config.toml run.seed=0,1 --out swept",
    "sweep --resume sweep",
)


#: those that train, replay, aggregate or judge, and one that measures: in every run of the tests
OFTEN = ("ls --check", "report run --out page", "plane run --grid", "local:2", "reaggregate", "data", "train", "sweep")
#: commands that open no run; and one that does not end, see below
WITHOUT_RUNS = {"bench", "check-method", "demo", "import", "new", "recipes", "watch"}


def test_every_command_is_tried() -> None:
    assert {command.split()[0] for command in COMMANDS} == set(commands()) - WITHOUT_RUNS


@pytest.mark.parametrize("command", few(COMMANDS, lambda command: any(word in command for word in OFTEN)))
def test_nothing_that_a_run_names_is_imported(
    trap: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    run(words(command))
    assert not Path("mark").exists(), capsys.readouterr()
    assert "mine" not in sys.modules


def test_the_page_of_a_run_imports_nothing_that_it_names(trap: Path) -> None:
    from fedscope.reporting.live.page import LivePage

    assert "run</h1>" in LivePage(Path("run")).whole()
    assert not Path("mark").exists()
    assert "mine" not in sys.modules


def test_the_trap_works(trap: Path) -> None:
    run(words(f"train --resume run {GIVEN}"))
    assert Path("mark").exists()


@pytest.fixture(scope="module")
def trapped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one's own code and a sweep with it, neither of which is complete."""
    folder = tmp_path_factory.mktemp("trapped")
    with pytest.MonkeyPatch.context() as patch, own_module(folder):
        patch.chdir(folder)
        assert run(words(f"{ALL_OWN} --out run --until 2")) == 0
        # the sweep's run ends before it is complete
        Path("sweep/runs").mkdir(parents=True)
        assert run(words("sweep server.method=mine:Heavy --set data.clients=4 --set run.rounds=1 --out sweep2")) == 0
        Path("sweep2/sweep.json").replace("sweep/sweep.json")
    return folder


@pytest.fixture
def trap(trapped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of it, in which an import of the code leaves a mark."""
    import shutil

    for name in ("run", "sweep"):
        shutil.copytree(trapped / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))  # as in a notebook
    with own_module(tmp_path):
        Path("armed").touch()
        forget()
        yield tmp_path


# --- sweeps ---


@pytest.mark.slow
def test_a_sweep_compares_ones_own_with_the_others(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    typed = "sweep method=fma,mine:Heavy,mine:Fading --set data.clients=4 --set run.rounds=2 --set client.epochs=1"
    assert run(words(f"{typed} --out s")) == 0, capsys.readouterr().err
    capsys.readouterr()
    assert run(words("table s")) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in ("FMA (FedAvg)", "mine:Heavy", "mine:Fading"))
    forget()
    for file in Path("s/runs/heavy/rounds").iterdir():
        file.unlink()
    assert run(words("sweep --resume s")) == 2
    assert "is trained with server mine:Heavy, your own code" in capsys.readouterr().err
    assert run(words("sweep --resume s --code server=mine:Heavy --code average=mine:Fading")) == 0
    assert Run.open("s/runs/heavy").rounds == (1, 2)


def test_a_sweep_goes_on_with_the_source_that_it_began_with(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    typed = "sweep server.method=mine:Heavy --set data.clients=4 --set run.rounds=1 --out s"
    assert run(words(typed)) == 0
    for file in Path("s/runs/heavy/rounds").iterdir():
        file.unlink()
    forget()
    Path("mine.py").write_text(MODULE + "\n# another\n")
    capsys.readouterr()
    assert run(words(typed)) == 2
    assert "server mine:Heavy has another source than the sweep began with" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words_of",
    [
        "server.method=mine:Heavy",
        "server.method=mine:Heavy(beta=0.1)",
        "server.method=./mine.py:Heavy",
        "model.name=mine:net",
        "model.name=mine.py:net",
        "data.name=mine:load",
        "data.name=./mine.py:load",
        "data.partition=mine:split",
        "data.partition=./mine.py:split",
        "client.method=mine:Pull",
        "average.method=mine:Fading",
    ],
)
def test_a_plan_whose_words_were_changed_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str], words_of: str
) -> None:
    Path("s").mkdir()
    plan_sweep(Setup(), [[{"server.method": "fma"}, {"server.method": "fedavgm"}]]).write(Path("s"))
    Path("armed").touch()
    path = Path("s/sweep.json")
    path.write_text(path.read_text().replace("server.method=fedavgm", words_of))
    assert run(words("sweep --resume s")) == 2
    assert "your own code, which is never loaded from a file; if you know it, give --code " in capsys.readouterr().err
    assert not Path("mark").exists()


@pytest.mark.slow
def test_jobs_train_ones_own_too(here: Path) -> None:
    pytest.importorskip("submitit")
    typed = "sweep server.method=fma,mine:Heavy --set data.clients=4 --set run.rounds=1"
    assert run(words(f"{typed} --launcher processes --out jobs")) == 0
    assert run(words(f"{typed} --out here")) == 0
    assert same(models("jobs/runs/heavy"), models("here/runs/heavy"))


# --- other servers on recorded rounds ---


def test_ones_own_server_on_a_recorded_round(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words("train --method fma --clients 4 --participation 0.5 --rounds 2 --out plain")) == 0
    assert run(words("reaggregate plain@2 --server mine:Heavy(beta=0.0) --server fma")) == 0
    said = capsys.readouterr().out
    rows = {line.split()[0]: line.split()[1:] for line in said.splitlines() if line.startswith("  ")}
    assert rows["mine:Heavy"][0] == "(beta=0.0)"
    assert rows["mine:Heavy"][1:3] == rows["fma"][:2], "without momentum it is FMA"
    forget()
    assert run(words("report plain --out page")) == 0
    assert "mine" not in sys.modules, "the result says what the server keeps"


IN_PLACE = """
from dataclasses import dataclass
from fedscope.methods import Served, ServerMethod


@dataclass(frozen=True)
class InPlace(ServerMethod):
    reads = "columns"
    def step(self, state, start, clients, cohort):
        d = clients.parameters
        d -= start.parameters
        return Served((start.parameters + cohort.p @ d).astype(start.layout.dtype))
"""


def test_a_server_that_changes_the_clients_in_place_is_refused_in_a_sentence(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("in_place.py").write_text(IN_PLACE)
    said = (
        "fedscope: in_place:InPlace.step changes clients.parameters in place (line 11 of in_place.py); copy it before "
        "you change it"
    )
    train = "--average none --clients 4 --participation 0.5 --rounds 1"
    assert run(words(f"train --server in_place:InPlace {train} --out own")) == 2
    assert capsys.readouterr().err.splitlines()[-1] == said
    assert run(words(f"train --server fma {train} --out plain")) == 0
    assert run(words("reaggregate plain@1 --server in_place:InPlace --server fedadam")) == 2
    assert capsys.readouterr().err.splitlines()[-1] == said
    assert run(words("reaggregate plain@1 --server fma --layers fc2=in_place:InPlace")) == 2
    assert capsys.readouterr().err.splitlines()[-1] == said
    assert run(words("check-method in_place:InPlace --only plays --only arguments --only order")) == 2
    told = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in told[:-1]] == [["-", "plays"], ["FAILED", "arguments"], ["-", "order"]]
    assert said.removeprefix("fedscope: ") in told[1]


@pytest.mark.parametrize("typed", ["--server mine:Heavy", "--server fma --layers fc2=mine:Heavy"])
def test_a_servers_code_that_was_edited_makes_another_result(
    here: Path, capsys: pytest.CaptureFixture[str], typed: str
) -> None:
    assert run(words("train --method fma --clients 4 --participation 0.5 --rounds 2 --out plain")) == 0
    asked = f"reaggregate plain@2 {typed} --out r --json"
    assert run(words(asked)) == 0
    assert run(words(asked)) == 0
    out = capsys.readouterr()
    before, again = (json.loads(line)["rows"][-1]["loss"] for line in out.out.splitlines()[-2:])
    assert before == again
    assert "already holds this result" in out.err
    forget()
    Path("mine.py").write_text(
        MODULE.replace("w + v⁺", "w + 7 v⁺").replace("start.parameters + v)", "start.parameters + 7 * v)")
    )
    assert run(words(asked)) == 2
    assert "holds another result, of your own code with another source" in capsys.readouterr().err
    assert run(words(f"{asked} --force")) == 0
    assert json.loads(capsys.readouterr().out)["rows"][-1]["loss"] != before
    assert run(words("reaggregate plain@2 --server fma --out r")) == 2
    assert "holds another result, of " in (said := capsys.readouterr().err)
    assert ("--layers" if "--layers" in typed else "--server") in said
    if "--layers" not in typed:
        assert "your own code" not in said, "another server has other code"


def test_a_server_is_given_once_and_two_of_one_class_name_have_files_of_their_own(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words("train --method fma --clients 4 --participation 0.5 --rounds 2 --out plain")) == 0
    twice = "reaggregate plain@2 --server mine:Heavy(beta=0.25) --server"
    capsys.readouterr()
    assert run(words(f"{twice} mine:Heavy(beta=0.5)")) == 2
    assert "--server mine:Heavy is given twice, with beta=0.25 and with beta=0.5" in capsys.readouterr().err
    assert run(words(f"{twice} mine:Heavy(beta=0.25) --out one")) == 0
    assert "mine:Heavy (beta=0.25)" in capsys.readouterr().out
    longer = MODULE.replace("start.parameters + v)", "start.parameters + 7 * v)")
    with own_module(here, longer, name="mine_other"):
        two = "--server mine:Heavy --server mine_other:Heavy --out two --json"
        assert run(words(f"reaggregate plain@2 {two}")) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["files"][:2] == ["two.mine.Heavy.safetensors", "two.mine_other.Heavy.safetensors"]
    loaded = Reaggregation.load("two").models
    start = Run.open("plain").round(2).read("start").arrays()
    one, other = (loaded[name].arrays() for name in ("mine:Heavy", "mine_other:Heavy"))
    for name, w in start.items():
        np.testing.assert_allclose(other[name] - w, 7 * (one[name] - w), rtol=1e-3, atol=1e-5)


def test_objects_of_one_server_with_other_settings_are_refused(here: Path) -> None:
    assert run(words("train --method fma --clients 4 --participation 0.5 --rounds 2 --out plain")) == 0
    low, high = FedGMA(tau=0.1), FedGMA(tau=0.9)
    for servers, layers in (([low, high], None), (low, {"fc2": high}), ("fma", {"fc1": low, "fc2": high})):
        with pytest.raises(FedscopeError, match=r"FedGMA' is given twice, with tau=0.1 and with tau=0.9"):
            fedscope.reaggregate("plain@2", servers, layers=layers)
    made = fedscope.reaggregate("plain@2", FedGMA(tau=0.9), layers={"fc2": "personal"})
    assert made.measured[-1].model.endswith("FedGMA (tau=0.9), fc2=personal")


def test_a_models_code_that_was_edited_makes_another_reaggregation(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = "reaggregate own@2 --server fedavgm --model mine:net --out r"
    own = "train --method fma --model mine:net --data mine:load --clients 4 --participation 0.5 --rounds 2 --out own"
    assert run(words(own)) == 0
    asked = f"{asked} --data mine:load"
    assert run(words(asked)) == 0
    assert run(words(asked)) == 0
    assert "already holds this result" in capsys.readouterr().err
    forget()
    # of another length: of one length, and written in the same second, Python takes its compiled file for the same
    Path("mine.py").write_text(MODULE.replace("nn.ReLU()", "nn.LeakyReLU()"))
    assert run(words(asked)) == 2
    assert "holds another result, of the model's code as it was before" in capsys.readouterr().err


def test_a_runs_own_server_aggregates_the_other_layers_where_its_code_is_given(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained = "train --server mine:Heavy --average none --clients 4 --participation 0.5 --rounds 2 --out own"
    assert run(words(f"{trained} --set server.beta=0.25")) == 0
    forget()
    capsys.readouterr()
    asked = "reaggregate own@2 --layers fc2=personal --json"
    assert run(words(asked)) == 2
    assert "server.method = 'mine:Heavy' is code of your own, which is never loaded from a file" in (
        capsys.readouterr().err
    )
    assert "mine" not in sys.modules
    assert run(words(f"{asked} --code server=mine:Heavy")) == 0
    files = json.loads(capsys.readouterr().out)["files"]
    assert Path("own/figures/reaggregate-2-Heavy-layers-fc2-personal.reaggregate.json") in map(Path, files)
    kept = json.loads(next(Path(file) for file in files if file.endswith(".json")).read_text())["attrs"]
    assert kept["settings"][0]["beta"] == 0.25, "the run's own settings"
    # another source is refused, unless it is said
    forget()
    Path("mine.py").write_text(MODULE + "\n# another\n")
    assert run(words(f"{asked} --out other --code server=mine:Heavy")) == 2
    assert "server mine:Heavy has another source than the run was trained with" in capsys.readouterr().err
    assert run(words(f"{asked} --out other --code server=mine:Heavy --code-changed")) == 0


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("--server fedavgm --code server=mine:Heavy", "is for the server that own names, and --server names others"),
        ("--server fedavgm --code-changed", "--code-changed is for code of your own that the run's server is"),
        ("--layers fc2=personal --code client=mine:Pull", "own needs no code for it, its client.method is sgd"),
    ],
)
def test_reaggregate_refuses_code_that_nothing_asks_for(
    here: Path, capsys: pytest.CaptureFixture[str], typed: str, said: str
) -> None:
    trained = "train --server mine:Heavy --average none --clients 4 --participation 0.5 --rounds 2 --out own"
    assert run(words(trained)) == 0
    capsys.readouterr()
    given = "" if "--server" in typed else " --code server=mine:Heavy"
    assert run(words(f"reaggregate own@2 {typed}{given}")) == 2
    assert said in capsys.readouterr().err


def test_replays_take_ones_own_client(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words("train --client mine:Pull --average none --clients 4 --rounds 2 --out own")) == 0
    forget()
    capsys.readouterr()
    assert run(words("decompose own --rounds last --draws local:2")) == 2
    assert "give --code client=mine:Pull; --draws none needs none of it" in capsys.readouterr().err
    assert run(words("decompose own --rounds last --draws local:2 --code client=mine:Pull")) == 0


@pytest.mark.parametrize(
    "command",
    [
        "decompose own --rounds last --draws local:2",
        "explain own --rounds last --draws local:2",
        "theory own --rounds last --shrink none --kernel-samples 40 --draws local:2",
    ],
)
def test_replays_by_another_source_are_another_result(
    here: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    trained = "train --client mine:Pull --average none --clients 4 --participation 0.5 --epochs 1 --rounds 2 --out own"
    assert run(words(f"{trained} --set model.hidden=[4]")) == 0
    asked = f"{command} --out r --code client=mine:Pull"
    assert run(words(asked)) == 0
    kept = [path.read_bytes() for path in sorted(Path().glob("r.*.csv"))]
    assert run(words(asked)) == 0
    assert "already holds this result" in capsys.readouterr().err
    forget()
    Path("mine.py").write_text(MODULE.replace("alpha=self.mu", "alpha=90 * self.mu"))
    for words_ in (asked, f"{asked} --code-changed"):
        assert run(words(words_)) == 2
        assert "holds another result, of your own code with another source" in capsys.readouterr().err
    assert run(words(f"{asked} --force")) == 2
    assert "another source than the run was trained with" in capsys.readouterr().err
    assert run(words(f"{asked} --code-changed --force")) == 0
    assert kept != [path.read_bytes() for path in sorted(Path().glob("r.*.csv"))]
    capsys.readouterr()
    assert run(words(f"{asked} --code-changed")) == 0
    assert "already holds this result" in capsys.readouterr().err
    # the run's own code again, and none
    forget()
    Path("mine.py").write_text(MODULE)
    for words_ in (asked, f"{command} --out r"):
        assert run(words(words_)) == 2
        assert "holds another result, of your own code with another source" in capsys.readouterr().err
    assert run(words(f"{asked} --force")) == 0
    assert kept == [path.read_bytes() for path in sorted(Path().glob("r.*.csv"))]
    forget()
    assert run(words(f"{command} --out r")) == 0
    assert "mine" not in sys.modules, "a result that is there needs no code"


STRONGER = MODULE.replace("alpha=self.mu", "alpha=90 * self.mu")


def test_each_round_is_replayed_by_the_source_that_made_it(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trained = "train --client mine:Pull --average none --clients 4 --participation 0.5 --epochs 1 --rounds 3 --out own"
    assert run(words(f"{trained} --set model.hidden=[4] --until 1")) == 0
    forget()
    Path("mine.py").write_text(STRONGER)
    capsys.readouterr()
    assert run(words("ls own")) == 0
    assert "code changed" not in capsys.readouterr().out
    assert run(words("train --resume own --code client=mine:Pull --code-changed")) == 0
    assert run(words("ls own")) == 0
    assert "code changed client mine:Pull after round 1" in " ".join(capsys.readouterr().out.split())
    asked = "decompose own --draws local:2 --limit 50 --code client=mine:Pull"
    for rounds in ("1", "1,2"):
        capsys.readouterr()
        assert run(words(f"{asked} --rounds {rounds} --out no")) == 2
        said = capsys.readouterr().err.splitlines()[-1]
        assert "own: client mine:Pull has another source than round 1 was trained with (sha256 " in said
        assert "see own/code/client.py); restore it, take the rounds that it has made (2-3), " in said
        assert said.endswith("or give --code-changed, and what is made says so")
    assert run(words(f"{asked} --rounds 2-3 --out later")) == 0
    assert "code" not in Decomposition.load("later").attrs
    assert run(words(f"{asked} --rounds 1 --code-changed --out other")) == 0
    assert list(Decomposition.load("other").attrs["code"]) == ["client=mine:Pull"]
    with pytest.raises(FedscopeError, match="another source than round 1 was trained with"):
        replayed("own", 1)
    assert replayed("own", 3).tobytes() == recorded_clients("own", 3)
    forget()
    Path("mine.py").write_text(MODULE)
    assert replayed("own", 1).tobytes() == recorded_clients("own", 1)
    assert run(words(f"{asked} --rounds 1 --out first")) == 0
    assert "code" not in Decomposition.load("first").attrs
    assert run(words(f"{asked} --rounds 2 --out no")) == 2
    assert "another source than round 2 was trained with" in capsys.readouterr().err


def replayed(path: str, number: int) -> np.ndarray:
    replayer = Replayer.of(Run.open(path), code={"client": "mine:Pull"})
    return replayer.replay(replayer.run.round(number), 1).parameters


def recorded_clients(path: str, number: int) -> bytes:
    return Run.open(path).round(number).clients().parameters.tobytes()


def test_a_branch_of_a_run_with_two_sources_goes_on_with_that_of_its_round(here: Path) -> None:
    train = "train --server mine:Heavy --average none --clients 4 --participation 0.5 --epochs 1 --rounds 3 --out own"
    assert run(words(f"{train} --until 1")) == 0
    forget()
    other = MODULE.replace("start.parameters + v)", "start.parameters + v / 2)")
    Path("mine.py").write_text(other)
    assert run(words("train --resume own --code server=mine:Heavy --code-changed")) == 0
    branch = "train --code server=mine:Heavy --rounds 4"
    assert run(words(f"{branch} --from own@1 --out no")) == 2
    assert run(words(f"{branch} --from own@2 --out later")) == 0
    (entry,), (change,) = Run.open("later").info["code"], json.loads(Path("later/code/changed.json").read_text())
    assert Path("later/code", entry["text"]).read_text() == MODULE
    assert (change["after"], Path("later/code", change["text"]).read_text()) == (1, other)
    assert run(words("reaggregate later@3 --limit 50 --layers fc1=fma --code server=mine:Heavy --out again")) == 0
    forget()
    Path("mine.py").write_text(MODULE)
    assert run(words(f"{branch} --from own@1 --out first")) == 0
    assert not Path("first/code/changed.json").exists(), "one source has made all of its rounds"
    assert run(words(f"{branch} --from own@2 --out back --code-changed")) == 0
    changes = json.loads(Path("back/code/changed.json").read_text())
    assert [(one["after"], Path("back/code", one["text"]).read_text()) for one in changes] == [(1, other), (2, MODULE)]


def test_a_partitions_code_that_was_edited_makes_another_federation(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = "data --data mine:load --partition mine:split --set data.clients=4 --out d"
    assert run(words(asked)) == 0
    assert run(words(asked)) == 0
    assert "already holds this result" in capsys.readouterr().err
    # a comment moves nobody's samples
    forget()
    Path("mine.py").write_text(MODULE + "\n# another\n")
    assert run(words(asked)) == 0
    forget()
    Path("mine.py").write_text(MODULE.replace("random.permutation(len(labels))", "np.argsort(labels)"))
    assert run(words(asked)) == 2
    assert "holds another result, of other samples of the clients, by the partition's code" in capsys.readouterr().err
    assert run(words(asked.replace("clients=4", "clients=5"))) == 2
    assert "holds another result, of --clients 4 (not 5);" in capsys.readouterr().err
    built_in = fedscope.data({"data": {"name": "digits", "partition": "shards:2", "clients": 20}})
    assert "partition_sha256" not in built_in.attrs, "results of earlier versions are found"


PERSONAL = (
    MODULE
    + """

from fedscope.training.methods.clients.ditto import Ditto

class Mine(Ditto):
    own_model = "personal"
"""
)
PERS = "--model mine:net --data mine:load --set data.client_test=0.25 --clients 4 --participation 0.5 --rounds 2"


def losses_at_home(path: str) -> list[float]:
    """Of the models that the clients of the last round of a run keep, each on what it trained on, by PyTorch alone."""
    from mine import net  # type: ignore[import-not-found]

    run_ = Run.open(path)
    round_ = run_.round("last")
    kept, partition = round_.client_state("personal"), run_.partition
    assert isinstance(kept, Weights)
    assert partition is not None
    samples = dataset_of([run_], EvaluationConfig("train", model="mine:net", data="mine:load")).samples("train")
    losses = []
    for i, client in enumerate(round_.client_ids):
        module, rows = net(), partition.clients[client]
        module.load_state_dict({name: torch.tensor(value) for name, value in kept.row(i).arrays().items()})
        losses.append(float(functional.cross_entropy(module(torch.as_tensor(samples.x[rows])), samples.y[rows])))
    return losses


def at_home(answer: Matrix) -> list[float]:
    (one,) = answer.rounds
    cells = {(cell.model, cell.place): cell.loss for cell in one.cells}
    return [cells[f"client-{client}", f"client-{client}"] for client in Run.open(answer.run).round("last").client_ids]


def test_the_matrix_of_a_personal_method_takes_a_model_of_ones_own(here: Path) -> None:
    assert run(words(f"train --method ditto {PERS} --out pers")) == 0
    forget()
    # the run says its data with a sum, and its model by a name that only --model gives leave to import
    assert run(words("matrix pers --model mine:net --data mine:load --out m")) == 0
    made = Matrix.load("m")
    assert at_home(made) == pytest.approx(losses_at_home("pers"), rel=1e-5)
    from mine import net

    in_python = fedscope.matrix("pers", model=net(), data="mine:load")
    assert at_home(in_python) == at_home(made)


def test_the_matrix_of_a_personal_method_of_ones_own_takes_its_code(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine.py").write_text(PERSONAL)
    assert run(words(f"train --client mine:Mine {PERS} --out pers")) == 0
    asked = "matrix pers --model mine:net --data mine:load"
    assert run(words(f"{asked} --out sent")) == 0
    assert Matrix.load("sent").attrs["models"] == "sent"
    assert run(words(f"{asked} --code client=mine:Mine --out own")) == 0
    made = Matrix.load("own")
    assert made.attrs["models"] == "personal"
    assert at_home(made) == pytest.approx(losses_at_home("pers"), rel=1e-5)
    assert at_home(made) != pytest.approx(at_home(Matrix.load("sent")), rel=1e-5)
    capsys.readouterr()
    assert run(words(f"{asked} --code server=mine:Heavy --out no")) == 2
    assert "pers needs no code for it, its server.method is fma" in capsys.readouterr().err
    # another source
    forget()
    Path("mine.py").write_text(PERSONAL + "\n# another\n")
    assert run(words(f"{asked} --code client=mine:Mine --out no")) == 2
    assert "client mine:Mine has another source than the run was trained with" in capsys.readouterr().err
    assert run(words(f"{asked} --code client=mine:Mine --code-changed --out other")) == 0
    assert list(Matrix.load("other").attrs["code"]) == ["client=mine:Mine"]


# --- something to begin with ---


def test_new_leaves_nothing_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        assert run(["new", "server", "fedz"]) == 2
    said = "fedscope: fedz.py cannot be written: the disk is full; make room, or write elsewhere\n"
    assert capsys.readouterr().err == said
    assert list(tmp_path.iterdir()) == []
    assert run(["new", "server", "fedz"]) == 0, "the remedy is one"


@pytest.mark.parametrize("kind", ["client", "server", "average", "model", "data", "partition"])
def test_new_writes_what_can_be_trained_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    name = f"my_{kind}"
    try:
        assert run(["new", kind, name]) == 0
        told = capsys.readouterr().out
        train = told.partition("train it: fedscope ")[2].strip()
        assert run([*words(train), "--rounds", "2", "--clients", "4", "--epochs", "1", "--out", "run"]) == 0
        assert len(Path(f"{name}.py").read_text().splitlines()) < 35
        assert run(["new", kind, name]) == 2
        assert f"{name}.py is there already, and nothing is written over it" in capsys.readouterr().err
    finally:
        forget(name)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("my-server", "'my-server' is no name of a module; give letters, digits and _, as in my_server"),
        ("json", "'json' is a module already ("),
        ("1st", "is no name of a module"),
        ("a/b", "is no name of a module; give letters, digits and _, as in b"),
    ],
)
def test_new_refuses_a_name_that_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["new", "server", name]) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
