"""Runs that another program recorded: --model and --data say what they do not, and the numbers are the same."""

from __future__ import annotations

import csv
import json
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedscope.cli.main import run

pytestmark = pytest.mark.usefixtures("few_digits")

NET = """
from torch import nn

def small():
    import dataclasses
    from fedscope.training import model_settings
    return dataclasses.replace(model_settings("mlp"), hidden=(8,)).build((64,), 10)
"""
GIVEN = ["--model", "nets_elsewhere:small", "--data", "digits"]
#: what would give intervals, of a run that can be replayed and of one that cannot
REPLAYED = "; --draws local:8 has."
CANNOT_REPLAY = ", and the run's training cannot be replayed for independent ones."
SPLIT = ["--draws", "rounds:3", "--rounds", "last"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run under full participation, and what another program would have recorded of it; all are called r."""
    folder = tmp_path_factory.mktemp("elsewhere")
    words = ["--clients", "3", "--participation", "1", "--rounds", "4", "--epochs", "1", "--set", "model.hidden=[8]"]
    assert run(["train", "--method", "fma", "--out", str(folder / "own/r"), *words]) == 0
    gone = {"elsewhere": ("config.toml", "metrics.csv"), "bare": ("config.toml", "metrics.csv", "partition.h5")}
    for place, files in gone.items():
        shutil.copytree(folder / "own/r", folder / place / "r")
        info = json.loads((folder / place / "r/run.json").read_text())
        del info["data"]
        (folder / place / "r/run.json").write_text(json.dumps({**info, "files": {}, "source": "flower 1.0"}))
        for file in files:
            (folder / place / "r" / file).unlink()
    (folder / "nets_elsewhere.py").write_text(NET)
    return folder


@pytest.fixture
def here(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fedscope.plotting.style.save_figure", undrawn)
    yield tmp_path
    sys.modules.pop("nets_elsewhere", None)


def undrawn(base: Path, *_: object) -> list[Path]:
    """Figures are not what is looked at here."""
    path = Path(f"{base}.png")
    path.touch()
    return [path]


def told(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    capsys.readouterr()
    assert run([*words, "--json"]) == 0, capsys.readouterr()
    answer = json.loads(capsys.readouterr().out)
    answer.pop("files")
    return answer


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert run(list(words)) == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (["subsets", "--rounds", "last"], "bare"),
        (["subsets", "--rounds", "last", "--split", "train"], "elsewhere"),
        (["forgetting", "--rounds", "last"], "elsewhere"),
        (["decompose", *SPLIT], "elsewhere"),
        (["decompose", *SPLIT, "--split", "test", "--limit", "60"], "elsewhere"),
        (["explain", *SPLIT, "--limit", "60"], "elsewhere"),
        (
            ["theory", "--rounds", "last", "--draws", "none", "--limit", "50", "--kernel", "none", "--split", "test"],
            "bare",
        ),
        (["cka", "--rounds", "last", "--limit", "60"], "bare"),
        (["sharpness", "--no-hessian", "--draws", "2", "--limit", "60"], "bare"),
    ],
    ids=lambda value: "-".join(value[:1]) if isinstance(value, list) else value,
)
def test_a_run_from_elsewhere_is_measured_like_ones_own(
    here: Path, capsys: pytest.CaptureFixture[str], words: list[str], place: str
) -> None:
    command, *options = words
    own = json.dumps(told(capsys, command, "own/r", *options, "--out", "a"))
    own = own.replace(REPLAYED, CANNOT_REPLAY)
    assert json.dumps(told(capsys, command, f"{place}/r", *options, *GIVEN, "--out", "b")) == own
    assert "elsewhere" not in own


def test_without_a_partition_the_bias_is_whole(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (own,) = told(capsys, "decompose", "own/r", *SPLIT, "--split", "test", "--out", "a")["rounds"]
    (bare,) = told(capsys, "decompose", "bare/r", *SPLIT, "--split", "test", *GIVEN, "--out", "b")["rounds"]
    assert bare["heter_bias"] is None
    for name in ("bias", "variance", "covariance", "locality"):  # summed in another order
        assert bare[name] == pytest.approx(own[name], rel=1e-12, abs=1e-15)
    assert "missing_share" not in bare


def test_what_would_decide_a_claim_can_be_had_of_a_recorded_run(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Round 1 was recorded, but no round before it; nothing can be replayed, and draws from rounds are dependent."""
    statements = told(capsys, "explain", "elsewhere/r", *GIVEN, "--draws", "rounds:2", "--out", "a")["statements"]
    decide = {one["claim"]: one["decide"] for one in statements}
    assert decide["greatest-part/early"] == (
        "Round 1 has too few rounds of the cohort before it: --draws rounds:2 needs 1."
    )
    assert decide["variance-and-clients"] == (f"Dependent draws have no intervals{CANNOT_REPLAY}")
    assert not any("local:" in said for said in decide.values())
    statements = told(capsys, "explain", "own/r", "--draws", "rounds:2", "--out", "b")["statements"]
    (said,) = (one["decide"] for one in statements if one["claim"] == "variance-and-clients")
    assert said == f"Dependent draws have no intervals{REPLAYED}"


@pytest.mark.parametrize("command", ["decompose", "explain"])
@pytest.mark.parametrize("place", ["elsewhere", "bare"])
def test_what_cannot_be_replayed_or_split_is_not_by_default(
    here: Path, capsys: pytest.CaptureFixture[str], command: str, place: str
) -> None:
    """The same result as with the options that the note names, under the same name; a trained run's stay."""
    asked = [command, f"{place}/r", *GIVEN, "--rounds", "last"]
    assert run(asked) == 0
    first = capsys.readouterr()
    without = f"{place}/r was recorded by flower 1.0, whose training cannot be replayed, so --draws none is taken"
    assert without in first.err
    assert ("does not say which client holds which samples, so --split test" in first.err) == (place == "bare")
    options = ["--draws", "none", *(["--split", "test"] if place == "bare" else [])]
    assert run([*asked, *options]) == 0
    again = capsys.readouterr()
    assert "already holds this result" in again.err
    assert "is taken" not in again.err
    assert again.out.splitlines()[0] == first.out.splitlines()[0]


def test_a_trained_run_is_replayed_by_default(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["decompose", "own/r", "--rounds", "last", "--limit", "60", "--out", "d"]) == 0
    assert "is taken" not in capsys.readouterr().err
    assert json.loads(Path("d.factors.json").read_text())["draws"] == "local:4"
    assert run(["theory", "own/r", "--rounds", "last", "--limit", "60", "--draws", "none", "--out", "t"]) == 0
    assert "is taken" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["decompose", *SPLIT], ["decompose", "--draws", "none"], ["forgetting", "--rounds", "last"]]
)
def test_test_samples_alone_are_enough_beside_a_partition(
    here: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    from fedscope.training import load_data

    samples = load_data("digits").samples("test")
    np.savez("test.npz", x_test=samples.x, y_test=samples.y)
    command, *options = [*words, "--split", "test"]
    whole = told(capsys, command, "elsewhere/r", *options, *GIVEN, "--out", "a")
    alone = [*GIVEN[:3], "npz:test.npz"]
    assert told(capsys, command, "elsewhere/r", *options, *alone, "--out", "b") == whole


def test_a_recorded_file_that_has_changed_is_refused_unless_it_is_given(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from fedscope import Recorder, Run

    draw = np.random.default_rng(0)
    x, y = draw.random((30, 1, 8, 8), dtype=np.float32), np.arange(30) % 10
    np.savez("mine.npz", x_test=x, y_test=y)
    recorded = Run.open("bare/r").round("last")
    clients = [recorded.clients().row(k).arrays() for k in range(3)]
    with Recorder("loop", data="npz:mine.npz") as recorder:
        recorder.round(clients=clients)
    name = Run.open("loop").info["data"]["name"]
    assert name == f"npz:{here.resolve() / 'mine.npz'}"
    asked = ["subsets", "loop", "--model", "nets_elsewhere:small", "--limit", "9"]
    before = told(capsys, *asked, "--out", "a")
    np.savez("mine.npz", x_test=x[::-1], y_test=y)
    for words in (asked, ["plane", "loop@1", "--clients", "--grid", "3", "--model", "nets_elsewhere:small"]):
        said = refused(capsys, *words)
        assert "mine.npz has changed since the run was recorded" in said
        assert f"or give --data {name} to measure" in said
    assert told(capsys, *asked, "--data", name, "--out", "b") != before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        *(
            (f"{command} bare/r", "bare/r was recorded by flower 1.0 and names neither architecture nor data; give --m")
            for command in ("subsets", "forgetting", "decompose", "explain", "cka")
        ),
        ("subsets bare/r --data digits", "bare/r was recorded by flower 1.0 and names no architecture; give --model\n"),
        ("subsets bare/r --model mlp", "bare/r was recorded by flower 1.0 and names no data; give --data\n"),
        ("subsets own/r bare/r --data digits", "2 of the runs are called 'r'"),
        ("subsets bare/r --model mlp --data digits", "bare/r does not fit the architecture of --model mlp: fc1.weight"),
        ("subsets bare/r GIVEN --split train", "(no partition.h5), and --split train is all clients' data; give"),
        ("decompose bare/r GIVEN --draws rounds:3 --split train", "(no partition.h5), and --split train is all"),
        ("decompose elsewhere/r GIVEN --draws local:4", "training cannot be replayed; give --draws none, the recorded"),
        (
            "decompose bare/r GIVEN --draws local:4 --split train",
            "give --draws none --split test, the recorded models alone, or --draws rounds:4 ",
        ),
        ("explain elsewhere/r GIVEN --draws local:4", "training cannot be replayed; give --draws none, the recorded"),
        ("decompose elsewhere/r GIVEN --draws rounds:9", "a later round, fewer draws, or --draws none"),
        ("decompose elsewhere/r GIVEN --draws runs", "keeps no config.toml, so it is not known to differ only in its"),
        ("forgetting bare/r GIVEN", "so no data are a client's own; record it by a Recorder with partition="),
        ("matrix bare/r GIVEN", "so no data are a client's own; record it by a Recorder with partition="),
        ("subsets own/r --data npz:other.npz", "--data npz:other.npz is not the data that own/r was trained on; leave"),
        ("forgetting elsewhere/r --model nets_elsewhere:small --data npz:other.npz", "but the train split of npz:othe"),
        (
            "theory elsewhere/r --model nets_elsewhere:small --data npz:test.npz --draws none --split test",
            "has no training samples, and Theorem 2 needs the clients'; give --kernel none for Lemma 1 alone",
        ),
    ],
)  # fmt: skip
def test_what_a_run_from_elsewhere_lacks_is_said_with_the_remedy(
    here: Path, capsys: pytest.CaptureFixture[str], words: str, message: str
) -> None:
    draw = np.random.default_rng(0)
    x, y = draw.random((30, 1, 8, 8), dtype=np.float32), np.arange(30) % 10
    np.savez("other.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    np.savez("test.npz", x_test=x, y_test=y)
    said = refused(capsys, *words.replace("GIVEN", " ".join(GIVEN)).split())
    assert message in said
    assert "Traceback" not in said
    assert not list(here.rglob("figures"))


def test_another_code_of_the_same_layers_is_another_result(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["decompose", "elsewhere/r", *SPLIT, *GIVEN, "--limit", "60", "--out", "x"]
    told(capsys, *words)
    sys.modules.pop("nets_elsewhere")
    Path("nets_elsewhere.py").write_text(
        NET.replace("    return dataclasses", "    made = dataclasses")
        + (
            "    from torch import nn\n    for name, layer in made.named_children():\n"
            "        if isinstance(layer, nn.ReLU):\n            setattr(made, name, nn.Tanh())\n    return made\n"
        )
    )
    said = refused(capsys, *words)
    assert "x.factors.json holds another result, of the model's code as it was before; give another --out" in said


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("model", "os:abort"),
        ("model", "nets_elsewhere:small(3)"),
        ("model", "named.r.evil:make"),
        ("model", "pip:main"),
        ("model", "nets_elsewhere:small"),
        ("data", "subprocess:getoutput('touch harm')"),
        ("data", "os.path:join"),
    ],
)
def test_code_that_a_runs_file_names_is_never_called(
    here: Path, capsys: pytest.CaptureFixture[str], key: str, name: str
) -> None:
    shutil.copytree("bare/r", "named/r")
    info = json.loads(Path("named/r/run.json").read_text())
    info |= {"model": name} if key == "model" else {"data": {"name": name}}
    Path("named/r/run.json").write_text(json.dumps({key: value for key, value in info.items() if key != "files"}))
    other = {"model": ["--data", "digits"], "data": ["--model", "nets_elsewhere:small"]}[key]
    for words in (["subsets", "named/r"], ["line", "named/r@1", "--clients"], ["decompose", "named/r", *SPLIT]):
        said = refused(capsys, *words, *other, "--split", "test")
        assert f"named/r names {key} {name}, and no code is called as a run's file says it; if you know it" in said
        assert f"give --{key} {shlex.quote(name)}" in said
    assert not Path("harm").exists()


def test_subsets_of_a_recorded_run_weigh_clients_as_it_did(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from fedscope import Recorder
    from fedscope.checkpoints import Run
    from fedscope.evaluation.evaluator import Evaluator
    from fedscope.training import data_of, module_of

    own, p = Run.open("own/r"), np.array([0.8, 0.1, 0.1])
    round_ = own.round(1)
    clients = round_.clients()
    with Recorder("weighed/r") as recorder:
        recorder.round(clients=[clients.row(k).arrays() for k in range(3)], samples=[10, 10, 10], weights=p.tolist())
    told(capsys, "subsets", "weighed/r", *GIVEN, "--sizes", "3", "--out", "w")
    with Path("w.subsets.csv").open() as file:
        (row,) = csv.DictReader(file)
    mean = clients.layout.flatten({n: np.tensordot(p, v, 1) for n, v in clients.arrays().items()})
    (loss,), (error,) = Evaluator(module_of(own), data_of(own).samples("test")).models([mean])
    assert float(row["loss_mean"]) == pytest.approx(loss, rel=1e-5)
    assert float(row["error_mean"]) == pytest.approx(error)
