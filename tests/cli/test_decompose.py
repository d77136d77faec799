"""`fedscope decompose`: sources of draws, averages over rounds, other losses, whose data."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedscope import Recorder
from fedscope.checkpoints import FedscopeError, Run
from fedscope.cli.main import run
from fedscope.decomposition import Decomposition
from fedscope.decomposition.factors.analysis import decompose
from fedscope.training import Config, merge, preset, train
from fedscope.training.data.published import digits

pytestmark = pytest.mark.usefixtures("few_digits")

SMALL: dict[str, Any] = {
    "data": {"clients": 4},
    "model": {"hidden": [8]},
    "client": {"epochs": 1},
    "run": {"rounds": 4, "participation": 1.0, "evaluate_clients": 0},
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods of two seeds each, all clients in every round, and IMA with half of them."""
    folder = tmp_path_factory.mktemp("whole")
    for seed in (0, 1):
        for method, more in (("fma", {}), ("ima", {"average": {"start": 3, "window": 2}})):
            config = Config.read(merge(preset(method), SMALL, more, {"run": {"seed": seed}}))
            train(config, folder / f"runs/{method}-{seed}")
    half = merge(preset("ima"), SMALL, {"average": {"start": 2, "window": 3}, "run": {"participation": 0.5}})
    train(Config.read(half), folder / "runs/half")
    return folder


def decomposed(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    assert run(["decompose", *words, "--json"]) == 0, capsys.readouterr()
    rounds: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["rounds"]
    return rounds


FIVE = ("train_bias", "heter_bias", "bias_cross", "variance", "covariance")


def test_the_recorded_models_alone_of_a_run_that_another_program_recorded(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = Run.open("runs/fma-0")
    with Recorder("runs/soup", source="a soup") as recorder:
        clients = own.round(4).clients()
        recorder.round(
            clients=[clients.row(k).arrays() for k in range(4)], global_=own.round(4).read("global").arrays()
        )
    Path("nets.py").write_text(
        "from fedscope.training import build_module\n"
        "from fedscope.training.models.architectures.mlp import MLP\n\n\n"
        "def small():\n    return build_module(MLP(hidden=(8,)), (1, 8, 8), 10)\n"
    )
    told = ["--model", "nets:small", "--data", "digits", "--split", "test"]
    with pytest.raises(FedscopeError, match=r"cannot be replayed; give draws='none', the recorded models alone$"):
        decompose("runs/soup", model="nets:small", data="digits", split="test", draws="local:4")
    assert run(["decompose", "runs/soup", *told, "--draws", "none", "--out", "soup"]) == 0
    words = capsys.readouterr().out
    (one,) = decomposed(capsys, "runs/soup", *told, "--draws", "none", "--out", "again")
    assert words.startswith(f"soup, round 1: bias {one['bias']:.3g}, locality {one['locality']:.3g} = loss ")
    assert (one["variance"], one["covariance"]) == (None, None)
    assert one["bias"] == pytest.approx(one["ensemble_loss"], rel=1e-9)
    assert one["bias"] + one["locality"] == pytest.approx(one["fma_loss"], rel=1e-9)
    # clients weigh the same, as nothing else was said; so do those of the digits' run, nearly
    ours = decomposed(capsys, "runs/fma-0", "--draws", "rounds:2", "--rounds", "4", "--split", "test", "--out", "ours")[
        0
    ]
    assert one["global_loss"] == pytest.approx(ours["global_loss"], rel=1e-6)
    with Path("soup.clients.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["samples"] for row in rows] == [""] * 4
    again = Decomposition.load("soup")
    assert [row.samples for row in again.runs[0].rounds[0].clients] == [None] * 4
    with pytest.raises(FedscopeError, match=r"draws='none:2': none are the recorded models alone; write draws='none'"):
        decompose("runs/fma-0", draws="none:2")


def test_of_the_recorded_models_of_a_trained_run_the_bias_is_split(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (one,) = decomposed(capsys, "runs/fma-0", "--draws", "none", "--rounds", "4", "--out", "alone")
    three = ("train_bias", "heter_bias", "bias_cross")
    assert sum(one[name] for name in three) == pytest.approx(one["bias"], rel=1e-9)
    assert min(one["train_bias"], one["heter_bias"]) > 0
    assert one["bias"] + one["locality"] == pytest.approx(one["fma_loss"], rel=1e-9)


def test_every_source_closes_and_says_what_it_is(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for draws, given in (("rounds:3", ["runs/fma-0"]), ("runs", ["runs/fma-0", "runs/fma-1"])):
        (one,) = decomposed(capsys, *given, "--rounds", "4", "--draws", draws, "--out", draws.replace(":", ""))
        assert sum(one[name] for name in FIVE) == pytest.approx(one["ensemble_loss"], rel=1e-6)
        assert sum(one[name] for name in FIVE) + one["locality"] == pytest.approx(one["fma_loss"], rel=1e-6)
        assert one["closure_error"] < 1e-6
    with Path("rounds3.factors.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["draws"] for row in rows} == {"rounds:3"}
    assert {row["value"] for row in rows if row["estimate"] == "unbiased"} == {""}
    assert {row["stderr_draws"] for row in rows} == {""}
    assert one["run"] == "fma-0+fma-1"
    assert one["corollary_1"] < one["covariance"] + 1e-9
    with Path("runs.factors.csv").open() as file:
        runs_rows = {(row["factor"], row["estimate"]): row["value"] for row in csv.DictReader(file)}
    assert float(runs_rows["variance", "unbiased"]) > 0
    # all clients have equally many samples but for the remainder, so the ensemble is nearly the unweighted one
    assert float(runs_rows["corollary_2", "measured"]) == pytest.approx(float(one["ensemble_loss"]), rel=0.05)


def test_a_panel_is_a_part_of_the_drawing_and_not_of_the_result(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        Decomposition, "figures", lambda self, width, title, **drawing: asked.append(drawing["panels"]) or {}
    )
    given = ["runs/fma-0", "--rounds", "4", "--draws", "rounds:3", "--out", "p"]
    whole = decomposed(capsys, *given)
    assert decomposed(capsys, *given, "--panel", "distance", "--panel", "error") == whole
    assert decomposed(capsys, *given, "--redraw", "--panel", "factors") == whole
    assert asked == [(), ("distance", "error"), ("factors",)]


def test_runs_of_two_methods_are_two_columns(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["runs/fma-0", "runs/ima-0", "runs/fma-1", "runs/ima-1"]
    found = decomposed(capsys, *given, "--rounds", "2,4", "--draws", "runs", "--out", "both")
    both = [(run, number) for run in ("fma-0+fma-1", "ima-0+ima-1") for number in (2, 4)]
    assert [(one["run"], one["round"]) for one in found] == both
    assert found[0]["fma_loss"] == found[2]["fma_loss"]  # before its start IMA is FMA, bit for bit
    assert found[1]["fma_loss"] != found[3]["fma_loss"]


def test_the_averaged_model_is_decomposed_beside_the_global_one(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = decomposed(capsys, "runs/half", "--rounds", "1,3,4", "--of", "both", "--draws", "local:2", "--out", "two")
    models = [*(("global", number) for number in (1, 3, 4)), *(("averaged", number) for number in (3, 4))]
    assert [(one["model"], one["round"]) for one in found] == models
    for one in found:
        assert one["closure_error"] < 1e-6
    loaded = Decomposition.load("two")
    assert [(part.run, part.model) for part in loaded.runs] == [("half", "global"), ("half", "averaged")]
    averaged = loaded.runs[1].rounds[-1]
    assert len(averaged.clients) == 3 * 2  # two clients in each of three rounds
    assert sum(row.weight for row in averaged.clients) == pytest.approx(1.0)
    opened = Run.open("runs/half")
    assert [row.client for row in averaged.clients] == [
        k for t in (2, 3, 4) for k in opened.round(t).client_ids.tolist()
    ]
    with Path("two.clients.csv").open() as file:
        assert {row["model"] for row in csv.DictReader(file)} == {"global", "averaged"}


def test_rounds_without_an_average_over_rounds_are_said(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quick = ["--draws", "none", "--split", "test", "--limit", "20"]
    have = [
        number for number in Run.open("runs/half").rounds if "averaged" in Run.open("runs/half").round(number).models
    ]
    asked = ["decompose", "runs/half", *quick, "--json"]
    for rounds in ("1,3,last", "1,3-4"):
        assert run([*asked, "--of", "averaged", "--rounds", rounds, "--out", "r"]) == 2
        said = capsys.readouterr().err
        assert "runs/half has no plain average over rounds in round 1, so --of averaged cannot decompose it" in said
        assert f"give --rounds among {have[0]}-4, or --of both" in said
    for i, (rounds, of, left, note) in enumerate(
        (
            ("all", "averaged", have, "rounds in round 1, which is left out"),
            ("1-4", "averaged", have, "rounds in round 1, which is left out"),
            (f"{have[0]},last", "averaged", [have[0], 4], ""),
            ("1,4", "both", [4], "in round 1, of which the global model alone is decomposed"),
        )
    ):
        assert run([*asked, "--of", of, "--rounds", rounds, "--out", f"r{i}"]) == 0
        out = capsys.readouterr()
        found = [one["round"] for one in json.loads(out.out)["rounds"] if one["model"] == "averaged"]
        assert found == left
        assert note in out.err
        assert ("no plain average" in out.err) == bool(note)


def test_missing_data_are_those_of_no_averaged_client(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = decomposed(capsys, "runs/half", "--rounds", "4", "--of", "both", "--draws", "local:2", "--out", "missing")
    opened = Run.open("runs/half")
    assert opened.partition is not None
    parts = [set(part.tolist()) for part in opened.partition.clients]
    whole = set().union(*parts)
    for one, rounds in zip(found, ((4,), (2, 3, 4)), strict=True):
        seen = set().union(*(parts[k] for t in rounds for k in opened.round(t).client_ids.tolist()))
        assert one["missing_share"] == pytest.approx(1 - len(seen) / len(whole), abs=1e-12)
    assert found[0]["missing_share"] > 0.4 > found[1]["missing_share"]


def test_a_client_of_weight_0_is_not_averaged_so_its_data_are_missing(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in the distances, which leave it out. With --on cohort D is the data of those that are averaged."""
    own = Run.open("runs/fma-0")
    assert own.partition is not None
    parts = own.partition.clients
    labels = digits.PROVIDES("").y_train
    with Recorder("runs/left-out", partition=dict(enumerate(parts)), labels=labels) as recorder:
        for number in own.rounds:
            clients = own.round(number).clients()
            models = {k: clients.row(k).arrays() for k in range(4)}
            recorder.round(clients=models, weights={0: 0.5, 1: 0.0, 2: 0.3, 3: 0.2})
    told = ["--model", "nets:small", "--data", "digits", "--draws", "none", "--rounds", "2"]
    Path("nets.py").write_text(
        "from fedscope.training import build_module\n"
        "from fedscope.training.models.architectures.mlp import MLP\n\n\n"
        "def small():\n    return build_module(MLP(hidden=(8,)), (1, 8, 8), 10)\n"
    )
    of_one, of_all = len(parts[1]), sum(map(len, parts))
    for on, missing, size in (("all", of_one / of_all, of_all), ("cohort", 0.0, of_all - of_one)):
        (one,) = decomposed(capsys, "runs/left-out", *told, "--on", on, "--out", f"left-{on}")
        assert one["missing_share"] == pytest.approx(missing, abs=1e-12)
        assert Decomposition.load(f"left-{on}").runs[0].rounds[0].samples == size


def test_d_is_all_of_the_cohorts_data_so_none_are_missing(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    everyone, own = (
        decomposed(capsys, "runs/half", "--rounds", "4", "--draws", "none", "--on", on, "--out", on)[0]
        for on in ("all", "cohort")
    )
    assert everyone["missing_share"] > 0.3
    assert own["missing_share"] == 0


def test_d_can_be_the_cohorts_own(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    everyone, own = (
        decomposed(capsys, "runs/half", "--rounds", "4", "--draws", "local:2", "--on", on, "--out", on)[0]
        for on in ("all", "cohort")
    )
    counts = [Decomposition.load(on).runs[0].rounds[0].samples for on in ("all", "cohort")]
    opened = Run.open("runs/half")
    assert opened.partition is not None
    assert counts[1] == sum(len(opened.partition.clients[k]) for k in opened.round(4).client_ids)
    assert counts[1] < counts[0]
    assert own["heter_bias"] != everyone["heter_bias"]
    assert own["closure_error"] < 1e-6


@pytest.mark.parametrize("loss", ["cross-entropy", "zero-one"])
def test_other_losses_close_too(runs: Path, capsys: pytest.CaptureFixture[str], loss: str) -> None:
    (one,) = decomposed(capsys, "runs/ima-0", "--rounds", "4", "--draws", "local:3", "--loss", loss, "--out", "x")
    assert one["bias"] + one["variance"] == pytest.approx(one["client_loss"], rel=1e-6)
    assert one["client_loss"] + one["remainder"] == pytest.approx(one["fma_loss"], rel=1e-6)
    loaded = Decomposition.load("x")
    assert loaded.loss == loss
    assert loaded.runs[0].rounds[0].loss == loss
    assert Path("x.pdf").exists()
    capsys.readouterr()
    assert run(["decompose", "runs/ima-0", "--rounds", "4", "--draws", "local:3", "--out", "x"]) == 2
    assert f"x.factors.json holds another result, of --loss {loss} (not squared);" in capsys.readouterr().err


def test_models_are_also_given_one_by_one(runs: Path) -> None:
    one, both = (decompose.prepare("runs/half", of=of) for of in (["averaged"], ("averaged", "global")))
    assert one.name == "decompose-train-averaged-1-last"
    assert both.name == "decompose-train-global-averaged-1-last"
    for of in ("mean", [], ["global", "mean"]):
        with pytest.raises(FedscopeError, match=r"is none of global, averaged, both"):
            decompose.prepare("runs/half", of=of)


def test_names_of_files_tell_questions_apart(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["runs/fma-0", "--rounds", "4"]
    decomposed(capsys, *common)
    decomposed(capsys, *common, "--draws", "rounds:2")
    decomposed(capsys, *common, "--draws", "local:2", "--loss", "zero-one")
    names = {path.name for path in Path("runs/fma-0/figures").glob("*.factors.csv")}
    assert names == {
        "decompose-train-4.factors.csv",
        "decompose-train-rounds2-4.factors.csv",
        "decompose-train-local2-zero-one-4.factors.csv",
    }


def test_clients_without_samples_are_named(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["decompose", "runs/fma-0", "--rounds", "4", "--limit", "2", "--draws", "local:2", "--out", "few"]) == 0
    said = capsys.readouterr().out
    rows = Decomposition.load("few").runs[0].rounds[0].clients
    empty = [row.client for row in rows if row.train_bias is None]
    assert len(empty) >= 2
    named = ", ".join(map(str, empty))
    assert f"no sample among the 2 is of client {named}, so their own bias is empty" in said


def test_runs_need_the_same_rounds(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (runs / "runs/fma-1/rounds/00004.h5").unlink()
    assert run(["decompose", "runs/fma-0", "runs/fma-1", "--draws", "runs"]) == 2
    assert "means other rounds in other runs, but --draws runs needs the same" in capsys.readouterr().err


def test_what_servers_add_to_an_average_over_rounds_is_said(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With FedAvgM the recorded average is not that of the clients; with FMA it is, to rounding."""
    changes = merge(preset("ima"), SMALL, {"server": {"method": "fedavgm"}, "average": {"start": 2, "window": 2}})
    train(Config.read(changes), runs / "runs/avgm")
    words = ["--rounds", "4", "--of", "averaged", "--draws", "local:2"]
    (one,) = decomposed(capsys, "runs/avgm", *words, "--out", "m")
    assert one["server_step"] == pytest.approx(one["averaged_loss"] - one["fma_loss"], abs=0.05)
    assert abs(one["server_step"]) > 1e-3
    assert run(["decompose", "runs/avgm", *words, "--out", "m"]) == 0
    said = capsys.readouterr().out
    assert f"the servers' steps add {one['server_step']:.3g} to it: the recorded averaged model has loss" in said
    assert run(["decompose", "runs/ima-0", *words, "--out", "plain"]) == 0
    assert "servers' steps" not in capsys.readouterr().out
    (other,) = decomposed(capsys, "runs/avgm", *words, "--loss", "cross-entropy", "--out", "x")
    assert other["server_step"] == pytest.approx(other["averaged_loss"] - other["fma_loss"], abs=0.3)
    assert abs(other["server_step"]) > 1e-3


def test_thinned_recordings_are_asked_for_the_rounds_they_have(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(Config.read(merge(preset("fma"), SMALL, {"record": {"clients": [2, 3]}})), runs / "runs/thin")
    words = ["runs/thin", "--draws", "local:2"]
    assert [one["round"] for one in decomposed(capsys, *words)] == [2, 3]
    assert [one["round"] for one in decomposed(capsys, *words, "--rounds", "all", "--out", "all")] == [2, 3]
    for command in ("cka", "subsets", "forgetting"):
        assert run([command, "runs/thin"]) == 0, capsys.readouterr()
    capsys.readouterr()
    assert run(["cka", "runs/thin", "--rounds", "1"]) == 2
    assert "clients of round 1 were not recorded; rounds 2, 3 have them" in capsys.readouterr().err


def test_runs_on_other_data_are_not_laid_side_by_side(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 64)).astype(np.float32), np.arange(60) % 10
    np.savez(runs / "other.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    changes = merge(preset("fma"), SMALL, {"data": {"name": f"npz:{runs}/other.npz", "partition": "iid"}})
    train(Config.read(changes), runs / "runs/other")
    assert run(["decompose", "runs/fma-0", "runs/other", "--rounds", "4"]) == 2
    assert "were trained on different data; ask for one of them at a time" in capsys.readouterr().err
