"""A run without a server: what every question says of rounds whose clients start from models of their own."""

from __future__ import annotations

import re
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
    "data": "has no config.toml",
    "curves": "fma has no numbers of test_loss or test_error",
    "curves-target": "fma has no numbers of test_error",
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


def test_a_report_leaves_out_what_cannot_be_asked(folder: Path, tmp_path: Path) -> None:
    assert command(["report", str(folder / "runs/fma"), "--out", str(tmp_path / "page")]) == 0
