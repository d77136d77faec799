"""``fedscope reaggregate`` as a user gives it."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedscope import Recorder
from fedscope.checkpoints import FedscopeError, RoundRecord, Run, load_model, write_round
from fedscope.cli.main import fedscope, run
from fedscope.decomposition.reaggregation.analysis import reaggregate
from fedscope.evaluation.evaluator import Evaluator
from fedscope.training import data_of, module_of


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, recorded: Callable[..., Path]) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    words = ["--clients", "8", "--rounds", "3", "--epochs", "1", "--set", "model.hidden=[8]"]
    for name, extra in (
        ("fma", ["--method", "fma", "--partition", "dirichlet:1"]),
        ("adam", ["--method", "fedadam", "--set", "server.lr=0.1"]),
        ("first", ["--method", "ima", "--server", "fedavgm", "--set", "average.before_server=true"]),
        ("lean", ["--method", "fma", "--set", "record.globals=none"]),
        ("one", ["--method", "fma", "--participation", "0.125"]),
        ("few", ["--method", "fma", "--set", "record.clients=[2]"]),
    ):
        recorded(folder / "runs" / name, "--participation", "0.5", *words, *extra)
    return folder


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    fedscope.main(["reaggregate", *words], standalone_mode=False)
    return capsys.readouterr().out


def rows_of(path: str) -> list[dict[str, str]]:
    with Path(path).open() as file:
        return list(csv.DictReader(file))


def test_a_round_as_recorded_as_fma_and_as_asked(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = said(capsys, "runs/adam@2", "--server", "fedswa", "--set", "server.alpha=1.25")
    base = "runs/adam/figures/reaggregate-2-fedswa-alpha-1.25"
    lines = words.splitlines()
    assert lines[0] == "adam@2, test data, 360 samples"
    assert lines[1].split() == ["model", "loss", "error", "L2", "from", "recorded"]
    ends = ("safetensors", "reaggregate.csv", "reaggregate.json", "pdf", "png")
    assert lines[-5:] == [f"  {base}.{end}" for end in ends]
    rows = rows_of(f"{base}.reaggregate.csv")
    assert [(row["model"], row["server"], row["state"]) for row in rows] == [
        ("recorded", "", ""), ("fma", "fma", "none"), ("fedswa (alpha=1.25)", "fedswa", "none")
    ]  # fmt: skip
    stored = Run.open("runs/adam")
    round_ = stored.round(2)
    start, p = round_.read("start").parameters.astype(np.float64), round_.weights
    step = p @ (round_.clients().parameters - start)
    made = load_model(f"{base}.safetensors", stored.layout).weights
    np.testing.assert_allclose(made.parameters, start + 1.25 * step, rtol=1e-5, atol=1e-8)
    loss, error = Evaluator(module_of(stored), data_of(stored).samples("test")).models([made])
    assert float(rows[2]["loss"]) == pytest.approx(loss[0], rel=1e-9)
    assert float(rows[2]["error"]) == error[0]
    # the run measured its own model on the same samples
    assert float(rows[0]["loss"]) == pytest.approx(float(round_.metrics["test_loss"] or 0), rel=1e-9)
    away = np.linalg.norm(start + step - round_.read("global").parameters)
    assert float(rows[1]["distance"]) == pytest.approx(float(away), rel=1e-5)
    assert [row["identical"] for row in rows] == ["True", "False", "False"]
    assert lines[3].endswith(f"{float(rows[1]['distance']):.3g}")
    # the same again is read back; other settings are another result
    assert said(capsys, "runs/adam@2", "--server", "fedswa", "--set", "server.alpha=1.25") == words
    with pytest.raises(FedscopeError, match=r"holds another result, of another --set;"):
        said(capsys, "runs/adam@2", "--server", "fedswa", "--out", base)


@pytest.mark.parametrize(
    ("typed", "word"),
    [("--align weights", "--align weights"), ("--layers head=personal", "--layers")],
)
def test_what_is_asked_by_silence_is_another_result(
    runs: Path, capsys: pytest.CaptureFixture[str], typed: str, word: str
) -> None:
    said(capsys, "runs/fma@2", "--server", "fma", *typed.split(), "--out", "other")
    with pytest.raises(FedscopeError, match=rf"holds another result, of .*{word}"):
        said(capsys, "runs/fma@2", "--server", "fma", "--out", "other")


def test_fma_of_an_fma_run_is_the_recorded_model(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = said(capsys, "runs/fma@3", "--server", "fma", "--out", "f")
    assert words.splitlines()[3].endswith("  0, bit for bit")
    assert [row["model"] for row in rows_of("f.reaggregate.csv")] == ["recorded", "fma"]
    stored, made = (load_model(name).weights.arrays() for name in ("runs/fma@3/global", "f.safetensors"))
    assert all(made[name].tobytes() == stored[name].tobytes() for name in stored)
    # with other weights it stands beside plain FMA
    words = said(capsys, "runs/fma@3", "--server", "fma", "--set", "server.weighting=uniform")
    assert [line.split("  ")[1] for line in words.splitlines()[2:5]] == ["recorded", "fma", "fma (weighting=uniform)"]
    stored_run = Run.open("runs/fma")
    file = "runs/fma/figures/reaggregate-3-fma-weighting-uniform.safetensors"
    even = load_model(file, stored_run.layout).weights.parameters
    clients = stored_run.round(3).clients().parameters
    np.testing.assert_allclose(even, clients.mean(axis=0, dtype=np.float64), rtol=1e-6, atol=1e-8)


def test_several_servers_are_rows_and_a_setting_goes_to_those_that_have_it(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--server", "fedadam", "--server", "fedsa", "--server", "fedavgm", "--set", "server.lr=0.5"]
    out = json.loads(said(capsys, "runs/fma@2", *given, "--json", "--out", "s"))
    assert [row["model"] for row in out["rows"]] == [
        "recorded", "fma", "fedadam (lr=0.5)", "fedsa", "fedavgm (lr=0.5)"
    ]  # fmt: skip
    assert out["files"] == [
        "s.fedadam.safetensors", "s.fedsa.safetensors", "s.fedavgm.safetensors", "s.reaggregate.csv",
        "s.reaggregate.json",
        "s.pdf",
        "s.png",
    ]  # fmt: skip
    # each its own file: half of FMA's way, for momentum that starts with an empty state
    start, global_ = (load_model(f"runs/fma@2/{name}").weights.parameters for name in ("start", "global"))
    made = load_model("s.fedavgm.safetensors", Run.open("runs/fma").layout).weights.parameters
    np.testing.assert_allclose(made, (start + global_) / 2, atol=1e-6)
    about = json.loads(Path("s.reaggregate.json").read_text())["attrs"]
    assert [own["method"] for own in about["settings"]] == ["fedadam", "fedsa", "fedavgm"]


def test_a_server_by_layer_as_a_user_gives_it(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--layers", "head=personal", "--layers", "/fc/=FedAdam", "--set", "server.lr=0.5"]
    words = said(capsys, "runs/fma@2", *given)
    base = "runs/fma/figures/reaggregate-2-fma-layers-head-personal-layers-fc-fedadam-lr-0.5"
    lines = words.splitlines()
    assert lines[-6:] == [
        f"  {base}.{end}"
        for end in ("safetensors", "reaggregate.csv", "clients.csv", "reaggregate.json", "pdf", "png")
    ]  # fmt: skip
    (*_, row), label = rows_of(f"{base}.reaggregate.csv"), "head=personal, /fc/=fedadam (lr=0.5)"
    own = rows_of(f"{base}.clients.csv")
    assert (row["model"], row["server"], row["distance"], row["clients"]) == (label, "", "", "4")
    assert [int(one["client"]) for one in own] == Run.open("runs/fma").round(2).client_ids.tolist()
    assert float(row["loss"]) == pytest.approx(np.mean([float(one["loss"]) for one in own]), rel=1e-12)
    assert (
        f"{label}: the mean over 4 clients, 1/4 each, of the loss of each one's model, which has its own head, on the "
        "test data (loss ± "
    ) in words
    assert ", one standard error over clients); in the file head has the clients' mean" in words
    assert "fedadam keeps m, v and starts here with an empty state" in words
    # the others are the run's own server's, or --server's; without layers of their own there are no clients
    words = said(capsys, "runs/adam@3", "--layers", "head=fma", "--from-state", "--out", "own")
    assert "\n  fedadam, head=fma  " in words
    assert "fedadam goes on with m, v as recorded after round 2" in words
    assert not Path("own.clients.csv").exists()
    made = load_model("own.safetensors", Run.open("runs/adam").layout).weights.arrays()
    recorded = load_model("runs/adam@3/global").weights.arrays()
    assert [name for name in made if made[name].tobytes() == recorded[name].tobytes()] == ["fc1.weight", "fc1.bias"]


def test_servers_are_taken_in_any_case_and_shown_as_their_files_are(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--server", "FedSWA", "--server", "FedAvg", "--server", "FMA", "--server", "fedswa"]
    out = json.loads(said(capsys, "runs/fma@2", *given, "--json", "--out", "s"))
    assert [row["model"] for row in out["rows"]] == ["recorded", "fedswa", "fma"]
    assert out["files"][:2] == ["s.fedswa.safetensors", "s.fma.safetensors"]


def test_states_are_said(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    anew = said(capsys, "runs/adam@3", "--server", "fedadam")
    assert "\nfedadam keeps m, v and starts here with an empty state, as in its first round\n" in anew
    assert "bit for bit" not in anew
    own = said(capsys, "runs/adam@3", "--server", "fedadam", "--from-state")
    assert "\nfedadam goes on with m, v as recorded after round 2\n" in own
    assert "  runs/adam/figures/reaggregate-3-fedadam-from-state.safetensors" in own
    assert own.splitlines()[4].endswith("  0, bit for bit")
    words = said(capsys, "runs/first@3", "--server", "fedavgm", "--from-state")
    assert "\nthe run averaged over rounds before its server stepped, which is left out here\n" in words


def test_without_a_recorded_global_there_is_no_distance(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = said(capsys, "runs/lean@2", "--server", "fedsa", "--out", "l")
    assert [row["model"] for row in rows_of("l.reaggregate.csv")] == ["fma", "fedsa"]
    assert {(row["distance"], row["identical"]) for row in rows_of("l.reaggregate.csv")} == {("", "")}
    assert words.splitlines()[2].endswith("  -")


def test_the_samples_are_those_asked_for(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["runs/fma@2", "--server", "fedsa"]
    found = []
    for i, words in enumerate(([], ["--split", "train"], ["--limit", "50"], ["--limit", "50", "--seed", "1"])):
        out = json.loads(said(capsys, *given, *words, "--json", "--out", str(i)))
        found.append(out["rows"][0]["loss"])
        assert len({row["distance"] for row in out["rows"][1:]}) == 2
    assert len(set(found)) == 4
    assert "fma@2, test data, 50 samples" in said(capsys, *given, "--limit", "50", "--out", "2")


@pytest.mark.filterwarnings("error")
def test_clients_that_diverged_are_named(
    runs: Path, capsys: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    round_ = Run.open("runs/fma").round(2)
    clients = round_.clients()
    clients.parameters[1, 3], clients.parameters[2, 4] = np.nan, np.inf
    who = round_.client_ids[1:3]
    start, global_ = round_.read("start"), round_.read("global")
    numbers = (round_.client_ids, round_.client_samples, round_.client_steps, round_.client_loss, round_.weights)
    round_.path.unlink()
    record = RoundRecord(2, start, clients, global_, None, *numbers)
    write_round(round_.path, record, identity=round_.identity)
    servers = [word for name in ("fedadam", "fedsa", "fedgma") for word in ("--server", name)]
    words = said(capsys, "runs/fma@2", *servers, "--out", "d")
    line = f"clients {who[0]}, {who[1]} diverged: recorded with values that are not finite, which enter every mean"
    state = "fedadam keeps m, v and starts here with an empty state, as in its first round"
    assert words.splitlines()[7:9] == [line, state]
    # read back too, and for programs
    assert json.loads(said(capsys, "runs/fma@2", *servers, "--out", "d", "--json"))["notes"] == [line, state]
    assert json.loads(said(capsys, "runs/fma@3", *servers, "--out", "e", "--json"))["notes"] == [state]


def test_a_run_of_another_program_is_aggregated_again_and_a_soup_names_its_clients(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_, number = Run.open("runs/fma"), 2
    round_ = run_.round(number)
    with Recorder("runs/own", model="nets:small", data="digits", source="my loop") as recorder:
        recorder.round(
            start=round_.read("start").arrays(),
            clients={int(k): round_.client(int(k)).arrays() for k in round_.client_ids},
            samples=dict(zip(round_.client_ids.tolist(), round_.client_samples.tolist(), strict=True)),
            global_=round_.read("global").arrays(),
        )
    Path("nets.py").write_text(
        "from fedscope.training import build_module\n"
        "from fedscope.training.models.architectures.mlp import MLP\n\n\n"
        "def small():\n    return build_module(MLP(hidden=(8,)), (1, 8, 8), 10)\n"
    )
    words = ["--server", "fedswa", "--server", "greedy", "--set", "server.split=test", "--json"]
    theirs = json.loads(said(capsys, "runs/own@1", *words, "--model", "nets:small", "--out", "theirs"))
    ours = json.loads(said(capsys, "runs/fma@2", *words, "--out", "ours"))
    assert theirs["rows"] == ours["rows"]
    assert [row["model"] for row in ours["rows"]][:2] == ["recorded", "fma"]
    taken, flattered = ours["notes"][:2]
    assert taken.startswith("greedy is the mean of client")
    assert taken.endswith(", chosen on test data")
    assert flattered == "greedy was chosen on the test data that it is measured on, where it looks better than it is"
    rows = {row["server"]: row for row in ours["rows"]}
    assert rows["greedy"]["error"] <= rows["fma"]["error"]


def test_a_run_that_was_trained_again_is_another_one(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "runs/fma@2", "--server", "fedsa", "--out", "s")
    words = "--method fma --clients 8 --rounds 2 --epochs 1 --set model.hidden=[8] --seed 1 --force"
    assert run(["train", "--out", "runs/fma", *words.split()]) == 0
    with pytest.raises(FedscopeError, match=r"another result, of .*runs/fma before it was made again"):
        said(capsys, "runs/fma@2", "--server", "fedsa", "--out", "s")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["runs/fma@2", "--server", "fedsaa"], r"'fedsaa' is not a server method .*; did you mean \"fedsa\"\?"),
        (
            ["runs/fma@2", "--server", "ima"],
            r"--server ima: that is what is averaged over rounds, and only",
        ),
        (
            ["runs/fma@2", "--server", "scaffold"],
            r"--server scaffold: that is what clients do.* --from runs/fma@2",
        ),
        (["runs/fma@2", "--server", "fedsa", "--set", "server.clases=5"], r"server\.clases is not a setting of FedSA"),
        (["runs/fma@2", "--server", "scaffold"], r", or train a branch: fedscope train --from runs/fma@2$"),
        (
            ["runs/foreign@2", "--server", "scaffold"],
            r"only servers can .*; runs/foreign was recorded by Flower, and only its own loop trains its clients ",
        ),
        (
            ["runs/foreign@2", "--server", "fedsa", "--set", "client.lr=5"],
            r"nothing is trained here.*; runs/foreign was recorded by Flower, and only its own loop",
        ),
        (
            ["runs/fma@2", "--server", "fma", "--server", "fedsa", "--set", "server.lr=5"],
            r"server\.lr is not a setting of FMA",
        ),
        (["runs/fma@2", "--server", "fedsa", "--set", "client.lr=5"], r"--set client\.lr=5: nothing is trained here"),
        (["runs/fma@2", "--server", "fedsa", "--set", "server.method=fma"], r"give --server fma instead"),
        (["runs/fma@2", "--server", "fedsa", "--set", "classes=5"], r"write section\.key=value"),
        (["runs/fma@2", "--server", "fedadam", "--from-state"], r"--from-state: round 2 of runs/fma was made with --s"),
        (["runs/few@1", "--server", "fedsa"], r"runs/few@1: the clients of round 1 were not recorded; round 2 has"),
        (["runs/one@1", "--server", "fedsa"], r"runs/one@1 has a cohort of one, so there .*\(--clients, --pa"),
        (["runs/fma", "--server", "fedsa"], r"runs/fma names no round; give RUN@ROUND, as in runs/fma@last"),
        (["runs/fma@2"], r"there is no server to aggregate by; give --server fedavgm, or --layers head=personal"),
        (["runs/foreign@2", "--layers", "head=fedsa"], r"recorded by Flower and does not say its server, which agg"),
        (["runs/fma@2", "--layers", "hed=fedsa"], r"layers 'hed' match none; did you mean \"head\"\?"),
        (["runs/fma@2/global", "--server", "fedsa"], r"names a model, .*; give runs/fma@2$"),
        (
            ["runs/foreign@2", "--server", "fedsa"],
            r"foreign was recorded by Flower and names no architecture; give --model",
        ),
        (
            ["runs/foreign@2", "--server", "fednova"],
            r"--server fednova counts local steps, and runs/foreign, which",
        ),
    ],
)
def test_mistakes_end_in_one_sentence(
    runs: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    shutil.copytree("runs/fma", "runs/foreign")
    Path("runs/foreign/config.toml").unlink()
    info: dict[str, Any] = json.loads(Path("runs/foreign/run.json").read_text())
    Path("runs/foreign/run.json").write_text(json.dumps({**info, "files": {}, "source": "Flower"}))
    with pytest.raises(FedscopeError, match=message) as caught:
        said(capsys, *words)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("settings", [{"lr": 0.5}, ["server.lr=0.5"]])
def test_the_function_says_what_the_command_says(runs: Path, capsys: pytest.CaptureFixture[str], settings: Any) -> None:
    given = ["--server", "fedsa", "--server", "FedAdam", "--set", "server.lr=0.5", "--limit", "60", "--seed", "2"]
    told = json.loads(said(capsys, "runs/first", "--rounds", "2", *given, "--json", "--out", "r"))
    result = reaggregate("runs/first@2", ["fedsa", "fedadam"], settings=settings, limit=60, seed=2)
    assert result.numbers() == {name: value for name, value in told.items() if name != "files"}
    assert result.notes()[-1].startswith("the run averaged over rounds")
    kept = type(result).load("r")
    assert kept.summary() == result.summary()
    stored = load_model("r.fedadam.safetensors", Run.open("runs/first").layout).weights.parameters
    np.testing.assert_array_equal(result.models["fedadam"].parameters, stored)
    with pytest.raises(FedscopeError, match=r"give servers='fma' instead"):
        reaggregate("runs/first@2", "fedsa", settings={"method": "fma"})
