"""A run without a server: what every question says of rounds whose clients start from models of their own."""

from __future__ import annotations

import re
import shutil
from html import unescape
from pathlib import Path

import numpy as np
import pytest
import torch
from asked import ASKED

import fedscope
from fedscope.checkpoints import mean
from fedscope.cli.main import run as command
from fedscope.decomposition.matrix.result import Matrix

pytestmark = pytest.mark.same_elsewhere

NODES = 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``runs/fma``, three rounds of a ring of four nodes, which no server has seen."""
    from fedscope.training.models.architectures.mlp import MLP

    at = tmp_path_factory.mktemp("ring")
    torch.manual_seed(0)
    x = np.random.default_rng(0).normal(size=(120, 8)).astype(np.float32)
    y = (x[:, 0] > 0).astype(int) + (x[:, 1] > 0)
    first = {name: value.numpy() for name, value in MLP().build((8,), 3).state_dict().items()}
    draw = np.random.default_rng(1)
    starts = [dict(first) for _ in range(NODES)]
    divided = [np.arange(k, 120, NODES) for k in range(NODES)]
    about = {"model": "mlp", "data": ((x, y), (x, y)), "partition": divided}
    with fedscope.Recorder(at / "runs/fma", **about) as recorder:
        for _ in range(3):
            clients = [
                {name: value + draw.normal(size=value.shape).astype(np.float32) / 20 for name, value in start.items()}
                for start in starts
            ]
            recorder.round(starts=starts, clients=clients, samples=[30] * NODES)
            starts = [
                {name: (clients[k][name] + clients[k - 1][name]) / np.float32(2) for name in first}
                for k in range(NODES)
            ]
    return at


#: in place of what another test asks, which is about a global model
WORDS = {
    "line": "line runs/fma@2/client-0 runs/fma@2/client-1 --points 3 --split test",
    "line-layers": "line runs/fma@2/client-0 runs/fma@2/client-1 --layers each --points 3 --split test",
    "plane": "plane runs/fma@2/client-0 runs/fma@2/client-1 runs/fma@2/client-2 --grid 5 --split test",
    "plane-both": "plane runs/fma@2 --clients --grid 5 --split both",
    "plane-alone": "plane runs/fma --grid 5 --split test",
    "sharpness": "sharpness runs/fma@2/mean(0,1,2,3) --no-hessian --split test",
    "sharpness-layers": "sharpness runs/fma@2/client-1 --layers each --no-hessian --split test",
    "cka-models": "cka runs/fma@1/client-0 runs/fma@2/client-0 --split test",
    "explain": "explain runs/fma",
    "decompose-none": "decompose runs/fma --draws none --split test",
    "theory-lemma": "theory runs/fma --rounds 2 --kernel none --split test",
    "reaggregate-mean": "reaggregate runs/fma@2 --server fma --split test",
    "align": "align runs/fma@2/client-0 runs/fma@2/client-1 --split test",
    "align-round": "align runs/fma@2 --split test",
    "ls": "ls runs/fma",
    "ls-check": "ls --check runs/fma",
}
#: what each refusal says, by question
NEEDS = "needs the one model that all clients start from, and in round {} each starts from a model of its own"
REFUSED = {
    "explain": r"@3: explain " + NEEDS,
    "decompose": r"@2: decompose " + NEEDS,
    "decompose-layers": r"@2: decompose " + NEEDS,
    "decompose-none": r"@3: decompose " + NEEDS,
    "updates": r"@[23]: updates " + NEEDS,
    "forgetting": r"@2: forgetting " + NEEDS,
    "predictors": r"@\d: predictors " + NEEDS,
    "align-round": r"@2: align runs/fma@2 " + NEEDS + r" \(starts=\); give two of its clients' models, or ask",
    "theory": r"@2: theory's kernel " + NEEDS + r" \(starts=\); give --kernel none for Lemma 1 alone, or ask",
    "reaggregate": r"@2: reaggregate with fedavgm " + NEEDS + r" \(starts=\); give a server that needs none \(.*fma",
    "wima": r"@1: wima needs a server's model of each round, and in round {} each starts from a model of its own",
    "parameters-tsne": r"@2: parameters --tsne " + NEEDS + r" \(starts=\); leave --tsne out",
}
#: that ask for something else which no recorded run without a server has
ELSEWHERE = {
    "curves": "fma has no numbers of test_loss or test_error, only of participants; ask for one of these with "
    "--measure; without a server there is no model that they would be of, but fedscope measure RUN --clients gives",
    "curves-target": "fma has no numbers of test_error, only of participants; ask for one of these with --measure; "
    "without a server",
    "adapters": "runs/lora does not exist",
}


@pytest.mark.parametrize("name", sorted({*ASKED, *WORDS}))
def test_every_question_answers_or_says_that_it_needs_one_start(
    folder: Path, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    words = (WORDS.get(name) or ASKED[name][0]).split()
    out = [] if words[0] == "ls" else ["--out", str(tmp_path / "m")]
    status = command([*words, *out])
    said = capsys.readouterr().err
    sentence = REFUSED.get(name) or ELSEWHERE.get(name)
    assert status == (0 if sentence is None else 2), said
    if name in REFUSED:
        assert re.search(REFUSED[name].replace("{}", r"\d"), said), said
        assert said.count("\n") == 1
        assert list(tmp_path.iterdir()) == []
    elif sentence:
        assert sentence in said


def test_what_cannot_be_asked_is_said_before_a_model_and_data_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with fedscope.Recorder(tmp_path / "bare") as recorder:
        one, two = {"w": np.zeros(3, np.float32)}, {"w": np.ones(3, np.float32)}
        recorder.round(starts=[one, two], clients=[two, one])
    for name in ("forgetting", "decompose", "explain", "updates", "predictors"):
        assert command([name, str(tmp_path / "bare")]) == 2
        assert f"@1: {name} {NEEDS.format(1)}" in capsys.readouterr().err


def test_ls_says_that_there_is_no_server(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["ls", str(folder / "runs/fma")]) == 0
    assert "none that all start from: each client starts from a model of its own" in capsys.readouterr().out


def test_matrix_compares_nodes_with_their_mean(folder: Path) -> None:
    result = fedscope.matrix(folder / "runs/fma", rounds=2, split="test")
    assert isinstance(result, Matrix)
    (one,) = result.rounds
    assert one.models == (*(f"client-{k}" for k in one.clients), "merged")
    assert one.deployed == "merged"
    assert "the merged model" in result.summary()
    row = fedscope.consensus(folder / "runs/fma", rounds=2, split="test").rounds[0].row
    cells = {(cell.model, cell.place): cell for cell in one.cells}
    assert cells["merged", "test"].loss == pytest.approx(row.merged_loss, rel=1e-6)
    nodes = np.mean([cells[f"client-{k}", "test"].loss for k in one.clients])
    assert nodes == pytest.approx(row.nodes_loss, rel=1e-6)


def test_the_merged_model_is_the_mean_by_its_address(folder: Path) -> None:
    found = fedscope.load_model(f"{folder}/runs/fma@2/mean(0,1,2,3)").weights
    np.testing.assert_array_equal(
        found.parameters, mean(fedscope.Run.open(folder / "runs/fma").round(2).clients()).parameters
    )


#: what commands that ask for a server's model say of a run that has none, and what they can be given
MODELS = {
    "sharpness runs/fma@2": r"runs/fma@2/global: round 2 recorded clients, not global; no round of this run has it, "
    r"for its clients start from models of their own; name a client, as runs/fma@2/client-0, or the mean of all: "
    r"runs/fma@2/mean\(0,1,2,3\)$",
    "export runs/fma@2 there.pt": r"name a client, as runs/fma@2/client-0, or the mean of all: runs/fma@2/mean",
    "table runs/fma": r"no run has measured test_loss; of runs without a server give --measure client_error_mean, "
    r"which fedscope measure RUN --clients gives them, or ask fedscope consensus$",
    "measure runs/fma": r"runs/fma: of all its 3 rounds no model was recorded that could be measured, for the run has "
    r"no server; give --clients for the clients' mean error, or ask fedscope consensus runs/fma, which measures their",
    "measure runs/none": r"the run has no server, and the models of all clients were not kept; record them with keep",
    "measure runs/none --clients": r"has no server, and the models of all clients were not kept; record them with keep",
    "plane runs/none": r"has recorded neither three clients of a round .* needs three models; give others, A B C$",
    "adapters runs/fma": r"are no LoRA adapters: .*; for other models fedscope consensus says how far clients agree$",
}


@pytest.fixture(scope="module")
def beside(folder: Path) -> Path:
    """The folder with a second run, ``runs/none``, which has kept no client."""
    start = dict(fedscope.load_model(f"{folder}/runs/fma@1/client-0").weights.arrays())
    with fedscope.Recorder(folder / "runs/none", model="mlp", keep="none") as recorder:
        recorder.round(starts=[start] * 3, clients=[dict(start) for _ in range(3)])
    return folder


@pytest.mark.parametrize("words", MODELS)
def test_no_server_is_suggested_to_a_run_without_one(
    beside: Path, words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(beside)
    assert command(words.split()) == 2
    said = capsys.readouterr().err.strip()
    assert re.search(MODELS[words], said), said
    assert "global_" not in said
    assert "--random" not in said


def test_clients_of_a_run_without_a_server_are_measured(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(folder / "runs/fma", tmp_path / "ring")
    monkeypatch.chdir(tmp_path)
    assert command(["measure", "ring", "--clients"]) == 0
    said = capsys.readouterr().out
    assert "client_error_mean and client_error_std of rounds 1-3 are new" in said
    assert "left out" not in said  # nobody misses a model that there cannot be
    assert command(["curves", "ring", "--measure", "client_error_mean", "--out", "c"]) == 0


def test_a_start_that_nobody_gave_is_what_is_missing(tmp_path: Path) -> None:
    from fedscope.checkpoints import FedscopeError, Run
    from fedscope.checkpoints.runs.run import recorded_clients

    w = {"w": np.zeros(3, np.float32)}
    with fedscope.Recorder(tmp_path / "run") as recorder:
        recorder.round(clients=[w, w])
        recorder.round(clients=[w, w])
    run = Run.open(tmp_path / "run")
    lacks = r"run@1: round 1 has its clients, but not the model that they were sent \(start\), which this needs; "
    with pytest.raises(FedscopeError, match=lacks + "no round of this run has both: give start= to the recorder"):
        recorded_clients(run, 1)
    with fedscope.Recorder(tmp_path / "run", resume=True) as recorder:
        recorder.round(clients=[w, w], start=w)
    run = Run.open(tmp_path / "run")
    with pytest.raises(FedscopeError, match=lacks + "round 3 has both"):
        recorded_clients(run, 1)
    assert recorded_clients(run, 1, start=False).number == 1
    assert recorded_clients(run, 3).number == 3


def test_a_report_asks_how_far_nodes_are_apart(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(folder / "runs/fma", tmp_path / "ring")
    assert command(["report", str(tmp_path / "ring"), "--compute", "--out", str(tmp_path / "page")]) == 0
    assert f"$ fedscope consensus {tmp_path / 'ring'}\n" in capsys.readouterr().err
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    factors = html.partition("<h2 id=factors>")[2].partition("<h2 ")[0]
    assert "How far are the nodes apart, and would one mean do?" in factors
    summary = fedscope.consensus(tmp_path / "ring").summary()
    words = re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", html)))
    told = summary.removeprefix("ring, r")
    assert f"How far are the nodes apart? R{told}." in words
    assert "There is no server whose model one would deploy." in words
    assert "fedscope updates RUN" not in words
    assert "fedscope explain RUN" not in words
    assert command(["report", str(tmp_path / "ring"), "--compute", "--out", str(tmp_path / "page")]) == 0
    assert "consensus" not in capsys.readouterr().err.replace("ask consensus", "")  # it is there


def test_a_report_of_many_rounds_asks_of_some(tmp_path: Path) -> None:
    from fedscope.reporting.discover import find_results
    from fedscope.reporting.missing_results import find_missing

    start = dict(torch.nn.Linear(2, 2).state_dict())
    x, y = np.zeros((4, 2), np.float32), np.array([0, 1, 0, 1])
    with fedscope.Recorder(tmp_path / "ring", model=torch.nn.Linear(2, 2), data=(x, y)) as recorder:
        for _ in range(30):
            recorder.round(starts=[start] * 2, clients=[dict(start) for _ in range(2)])
    run = fedscope.Run.open(tmp_path / "ring")
    given = {"model": torch.nn.Linear(2, 2)}
    (asked,) = [one for one in find_missing(run, find_results(run), None, given)[0] if one.kind == "Consensus"]
    rounds = [int(number) for number in asked.words.split()[3].split(",")]
    assert (rounds[0], rounds[-1]) == (1, 30)
    assert len(rounds) <= 12
    assert asked.evaluations == 3 * len(rounds)


def test_a_page_without_answers_suggests_what_a_run_without_a_server_can_be_asked(beside: Path) -> None:
    html = fedscope.report(beside / "runs/none").html
    words = re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", html)))
    assert "How far are the nodes apart? Not measured: fedscope consensus RUN says it." in words
    assert "Not known: the mean of the nodes was not measured (fedscope subsets RUN does it)." in words
    assert "fedscope disperse RUN says where the nodes differ." in words
    assert "fedscope reaggregate RUN@last --server fma" in words


def test_a_report_leaves_out_what_cannot_be_asked(folder: Path, tmp_path: Path) -> None:
    assert command(["report", str(folder / "runs/fma"), "--out", str(tmp_path / "page")]) == 0
