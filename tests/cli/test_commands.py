"""The commands as a user gives them: what they write, what they say, that they go on where they were stopped."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from fedscope.checkpoints import Run, load_model, write_file
from fedscope.cli.commands import demo
from fedscope.cli.main import WIDEST, help_width, run
from fedscope.landscape import Line, Plane, write_surface
from fedscope.training.local.profile import PARTS, ROUND

pytestmark = pytest.mark.usefixtures("few_digits")

SMALL = [
    "--clients", "8", "--participation", "0.5", "--rounds", "5", "--epochs", "2",
    "--set", "model.hidden=[16]", "--set", "run.evaluate_clients=40",
]  # fmt: skip


SHORT = [*SMALL, "--rounds", "2", "--epochs", "1"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, recorded: Callable[..., Path]) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    for method, extra in (("ima", ["--set", "average.start=3"]), ("fma", [])):
        recorded(folder / "runs" / method, "--method", method, *SMALL, *extra)
    return folder


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run(list(words)) == 0, capsys.readouterr()
    return capsys.readouterr().out


def test_a_branch_says_what_starts_anew_and_is_a_run_of_its_own(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "--from", "runs/fma@3", "--method", "scaffold", "--server", "fedadam", "--rounds", "6"]) == 0
    told = capsys.readouterr()
    assert told.out.startswith("runs/scaffold-from-fma-3: 6 rounds; test error of the global model")
    assert "the client method scaffold keeps c_i by client, c, which the history, made with sgd, does not" in told.err
    assert "the server method fedadam keeps m, v, which the history, made with fma, does not" in told.err
    assert f"{(runs / 'runs/fma').resolve()}@3" in said(capsys, "ls", "runs/scaffold-from-fma-3")
    assert "scaffold-fedadam" in said(capsys, "ls")
    for t in (1, 2, 3):
        one, other = (Path(f"runs/{name}/rounds/0000{t}.h5") for name in ("fma", "scaffold-from-fma-3"))
        assert one.read_bytes() == other.read_bytes()
    # the same files take no room twice, and removing one run leaves the other whole
    assert other.stat().st_ino == one.stat().st_ino
    shutil.rmtree("runs/fma")
    assert said(capsys, "curves", "runs/scaffold-from-fma-3")


def test_names_in_any_case_and_values_left_out_are_resolved_in_the_run_and_what_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["train", "--method", "FedAvg", "--server", "FedAvgM", "--partition", "dirichlet", *SHORT]) == 0
    said = capsys.readouterr().err
    assert "runs/fma: 2 rounds of digits on 8 clients, dirichlet:0.1, with fedavgm, recording up to" in said
    made = Run.open("runs/fma").config
    assert made is not None
    assert (made["data"]["partition"], made["server"]["method"]) == ("dirichlet:0.1", "fedavgm")
    assert run(["train", "--from", "runs/fma@2", "--method", "Scaffold", "--rounds", "3"]) == 0
    assert "runs/scaffold-from-fma-2: 3 rounds of digits on 8 clients, dirichlet:0.1" in capsys.readouterr().err


def test_the_time_of_a_rounds_parts_is_told_and_its_trace_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    first, _, *rows, last = said(capsys, "train", *SHORT, "--profile", "trace.json").splitlines()
    assert first.startswith("runs/ima: 2 rounds; test error of the averaged model")
    assert [row.rsplit(maxsplit=3)[0] for row in rows] == [*PARTS, "all else", ROUND]
    assert last.startswith("mean over 2 rounds, the first of ")
    spans = [event for event in json.loads(Path("trace.json").read_text())["traceEvents"] if event["ph"] == "X"]
    assert sorted(event["name"] for event in spans if event["name"].startswith(ROUND)) == ["round 1", "round 2"]
    found = json.loads(said(capsys, "train", *SHORT, "--force", "--profile", "again.json", "--json"))
    assert (found["profile"]["rounds"], set(found["profile"]["seconds"])) == (2, {*PARTS, ROUND})


def test_a_run_s_own_config_toml_repeats_what_the_run_did_whichever_version_recorded_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["train", "--method", "fedsam", "--set", "client.sam_decay=within", "--out", "old", *SHORT]) == 0
    file = Path("old/config.toml")
    file.write_text("".join(line for line in file.read_text().splitlines(True) if "sam_decay" not in line))
    assert run(["train", "old/config.toml", "--out", "again"]) == 0
    old, again = (Run.open(path).round("last").read("global").parameters for path in ("old", "again"))
    assert old.tobytes() == again.tobytes()
    shutil.copy(file, "mine.toml")  # which is no run's any more: today's default counts
    assert run(["train", "mine.toml", "--out", "mine"]) == 0
    assert Run.open("mine").round("last").read("global").parameters.tobytes() != old.tobytes()


def test_ls_lists_runs_and_what_one_holds(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listing = said(capsys, "ls")
    assert [line.split()[0] for line in listing.splitlines()] == ["run", "runs/fma", "runs/ima"]
    one = said(capsys, "ls", "runs/ima")
    assert "ima" in one
    assert "1-5" in one
    assert "3-5" in one  # averaged from its start on
    rows = json.loads(said(capsys, "ls", "runs", "--json"))
    assert [row["rounds"] for row in rows] == ["5 of 5", "5 of 5"]


def test_ls_lists_runs_without_opening_their_rounds(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 41 runs with 60 rounds each, opening a round costs a thousand times what listing does."""
    from fedscope.checkpoints.rounds import round as rounds

    said(capsys, "curves", "runs/ima")  # figures do not count as the run's
    opened = []
    real = rounds.open_round
    monkeypatch.setattr(rounds, "open_round", lambda path, *rest: opened.append(path.as_posix()) or real(path, *rest))
    Path("link").symlink_to("runs/fma")
    Path("elsewhere").mkdir()
    rows = {row["run"]: row for row in json.loads(said(capsys, "ls", "--json"))}
    assert not opened
    assert list(rows) == ["runs/fma", "runs/ima"]  # and once, though a link leads there too
    with Path("runs/ima/metrics.csv").open() as file:
        last = list(csv.DictReader(file))[-1]
    assert rows["runs/ima"]["test error"] == f"{100 * float(last['averaged_test_error']):.1f} %"
    assert (rows["runs/ima"]["seed"], rows["runs/ima"]["lr"]) == (0, 0.05)
    own = [Path("runs/ima", name) for name in ("run.json", "config.toml", "partition.h5", "metrics.csv")]
    size = sum(file.stat().st_size for file in [*own, *Path("runs/ima/rounds").iterdir()])
    assert rows["runs/ima"]["size"] == f"{size / 1e6:.1f} MB"
    table = said(capsys, "ls").splitlines()
    assert table[0].split()[-5:] == ["lr", "test", "error", "size", "created"]
    assert rows["runs/ima"]["created"][:16].replace("T", " ") == table[2][-16:]
    # a row that a killed writer has left out is in the round's file
    lines = Path("runs/ima/metrics.csv").read_text().splitlines(keepends=True)
    Path("runs/ima/metrics.csv").write_text("".join(lines[:-1]))
    again = {row["run"]: row for row in json.loads(said(capsys, "ls", "--json"))}
    assert again["runs/ima"]["test error"] == rows["runs/ima"]["test error"]
    assert opened == ["runs/ima/rounds/00005.h5"]


def test_ls_of_nothing_says_how_to_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "train one: fedscope train" in said(capsys, "ls")


def test_curves_keep_the_measured_numbers(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = said(capsys, "curves", "runs/fma", "runs/ima", "--out", "c", "--smooth", "5")
    assert "last measured round: fma" in words, "a tenth of five rounds is one, which has no deviation"
    assert "±" not in words
    words = said(capsys, "curves", "runs/fma", "runs/ima", "--out", "c", "--smooth", "5", "--last", "10")
    assert "(5 rounds, all that were measured)" in words
    with Path("c.curves.csv").open() as file:
        rows = list(csv.DictReader(file))
    with Path("runs/ima/metrics.csv").open() as file:
        metrics = list(csv.DictReader(file))
    mine = [row for row in rows if row["run"] == "ima"]
    for name in ("test_error", "averaged_test_error", "train_loss"):
        assert [row[name] for row in mine] == [row[name] for row in metrics]
    assert Path("c.pdf").read_bytes().startswith(b"%PDF")
    assert Path("c.png").exists()
    told = json.loads(said(capsys, "curves", "runs/fma", "--measure", "train_loss", "--last", "3", "--json"))
    assert told["files"][0] == "runs/fma/figures/curves-fma-train_loss.curves.csv"
    last = [float(row["train_loss"]) for row in rows if row["run"] == "fma"][-3:]
    expected = {"mean": np.mean(last), "deviation": np.std(last, ddof=1), "rounds": 3}
    assert told["train_loss"]["fma"] == pytest.approx(expected)
    assert "(3 rounds)" in said(capsys, "curves", "runs/fma", "--last", "3")
    assert "training loss, mean" in said(capsys, "curves", "runs/fma", "--measure", "train_loss", "--last", "3")


def test_a_line_says_its_barrier_and_keeps_its_provenance(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = json.loads(said(capsys, "line", "runs/fma@last", "runs/ima@last", "--limit", "50", "--json", "--points", "9"))
    line = Line.load(next(path for path in out["files"] if path.endswith(".nc")))
    assert out["barrier"] == line.barrier.tolist()
    assert Path(out["files"][0]).parent == Path("runs/fma/figures")
    assert line.attrs["samples"] == 50
    assert line.attrs["addresses"] == ["runs/fma@last", "runs/ima@last"]
    assert line.attrs["versions"]["fedscope"]
    assert 0.0 in line.beta
    assert 1.0 in line.beta


def test_a_figure_is_drawn_only_where_a_test_asks_for_it(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Drawing is most of what commands cost, and took minutes of the suite unseen when these tests moved folders."""
    said(capsys, "curves", "runs/fma", "--out", "here")
    assert Path("here.pdf").read_bytes().startswith(b"%PDF sketch ")


@pytest.mark.drawn
@pytest.mark.parametrize("suffix", [pytest.param("pt", marks=pytest.mark.slow), "safetensors"])
def test_a_plane_through_plain_files_is_the_one_through_the_run(
    runs: Path, capsys: pytest.CaptureFixture[str], suffix: str
) -> None:
    addresses = [f"runs/ima@{t}/global" for t in (3, 4, 5)]
    files = [f"m{t}.{suffix}" for t in (3, 4, 5)]
    for address, file in zip(addresses, files, strict=True):
        write_file(file, load_model(address).weights)
    said(capsys, "plane", *addresses, "--grid", "4", "--out", "a")
    # One address says the architecture and the data for all.
    said(capsys, "plane", *files[:2], addresses[2], "--grid", "4", "--out", "b")
    a, b = Plane.load("a.nc"), Plane.load("b.nc")
    np.testing.assert_array_equal(a.loss, b.loss)
    assert [m.loss for m in a.models[:3]] == [m.loss for m in b.models[:3]]
    # The run measured the same test split while it trained.
    for model in a.models[:3]:
        assert model.loss == pytest.approx(model.stored_loss, rel=1e-9)
        assert model.error == pytest.approx(model.stored_error, rel=1e-9)
    for extension in ("pdf", "png", "html"):
        assert Path(f"a.{extension}").stat().st_size > 1000


@pytest.mark.drawn
def test_a_rounds_clients_pair_by_pair(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = said(capsys, "line", "runs/ima@4", "--clients", "--points", "4", "--out", "pairs")
    assert out.startswith("6 pairs of clients: loss of the mean of two less their mean loss ")
    stored = Line.load("pairs.nc")
    assert len(stored.pairs) == 6
    np.testing.assert_allclose(stored.beta, [0, 1 / 3, 0.5, 2 / 3, 1])
    for extension in ("pdf", "png"):
        assert Path(f"pairs.{extension}").stat().st_size > 1000
    again = Path("pairs.png").read_bytes()
    said(capsys, "line", "runs/ima@4", "--clients", "--points", "4", "--out", "pairs", "--redraw")
    assert Path("pairs.png").read_bytes() == again


def test_models_and_surfaces_are_exported(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for file in ("ima.safetensors", "ima.pt"):
        out = said(capsys, "export", "runs/ima@4", file)
        assert out.startswith(f"{file}: ima@4")
        stored, original = load_model(file).weights.arrays(), load_model("runs/ima@4").weights.arrays()
        assert set(stored) == set(original)
        assert all(stored[name].tobytes() == original[name].tobytes() for name in original)
    said(capsys, "plane", *(f"runs/ima@{t}/global" for t in (3, 4, 5)), "--grid", "4", "--out", "p")
    assert said(capsys, "export", "p.nc", "p.h5") == "p.h5: 4 x 4 points of loss and accuracy\n"


def test_a_surface_is_as_their_scripts_number_its_points(tmp_path: Path) -> None:
    """loss-landscape takes point ind at (xmesh.ravel()[ind], ymesh.ravel()[ind]) of numpy.meshgrid(x, y)."""
    a, b = np.array([0.0, 1.0, 2.0]), np.array([-1.0, 5.0])
    loss = 10 * a[None, :] + b[:, None]
    plane = Plane(a, b, loss, loss / 100, (), 0.0, "none", {"split": "train"})
    write_surface(tmp_path / "s.h5", plane)
    with h5py.File(tmp_path / "s.h5") as file:
        x, y = file["xcoordinates"][:], file["ycoordinates"][:]
        assert sorted(file) == ["train_acc", "train_loss", "xcoordinates", "ycoordinates"]
        assert file["train_loss"].shape == (len(x), len(y))
        xs, ys = (mesh.ravel() for mesh in np.meshgrid(x, y))
        np.testing.assert_array_equal(file["train_loss"][:].ravel(), 10 * xs + ys)
        np.testing.assert_allclose(file["train_acc"][:].ravel(), 100 - (10 * xs + ys))


def test_panels_over_rounds_and_runs(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = said(capsys, "plane", "runs/ima", "--rounds", "1,last", "--grid", "4", "--out", "p")
    assert "Round 1: the mean has loss" in out
    assert "ima@5/averaged" in out
    assert sorted(path.name for path in Path().glob("p.*")) == [
        "p.globals.basin.csv", "p.globals.html", "p.globals.nc", "p.pdf", "p.png",
        "p.round-1.basin.csv", "p.round-1.html", "p.round-1.nc",
        "p.round-5.basin.csv", "p.round-5.html", "p.round-5.nc",
    ]  # fmt: skip
    assert out.count("from the minimum of the plane") == 3
    (library,) = Path().glob("plotly-*.min.js")
    for page in Path().glob("p.*.html"):
        text = page.read_text(encoding="utf-8")
        assert re.search(rf'<script nonce="[\w+/=]+" src="{re.escape(library.name)}"></script>', text)
        assert page.stat().st_size < 200_000
    assert "Plotly" in library.read_text(encoding="utf-8")
    with Path("p.round-1.basin.csv").open() as file:
        rows = {row["model"]: row for row in csv.DictReader(file)}
    stored = Plane.load("p.round-1.nc")
    assert [model.label for model in stored.models] == list(rows)[1:]
    assert float(rows["mean"]["excess_loss"]) == stored.mean.loss - float(rows["minimum"]["loss"])
    said(capsys, "plane", "runs/ima", "runs/fma", "--rounds", "last", "--grid", "3", "--out", "q", "--width", "7in")
    assert Path("q.fma.round-5.nc").exists()
    assert Path("q.ima.globals.nc").exists()


def test_decompose_adds_up_and_asks_for_more_rounds_without_repeating(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import fedscope.decomposition as decomposition

    out = json.loads(said(capsys, "decompose", "runs/ima", "--rounds", "1,3,5", "--json", "--out", "whole"))
    for one in out["rounds"]:
        factors = ("train_bias", "heter_bias", "bias_cross", "variance", "covariance", "locality")
        assert sum(one[name] for name in factors) == pytest.approx(one["fma_loss"], rel=1e-6)
        assert one["closure_error"] < 1e-6
        assert one["global_loss"] == pytest.approx(one["fma_loss"], abs=0.05)
    # Stopped in the second round; the same command goes on, and says the same.
    real, calls = decomposition.round_factors, []

    def stopping(*args: object, **kwargs: object) -> object:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(decomposition, "round_factors", stopping)
    assert run(["decompose", "runs/ima", "--rounds", "1,3,5", "--out", "cut"]) == 130
    assert not Path("cut.factors.csv").exists()
    assert run(["decompose", "runs/ima", "--rounds", "1,3,5", "--out", "cut"]) == 0
    assert len(calls) == 4  # round 1, the interrupted one, then 3 and 5: round 1 was not repeated
    for kind in ("factors", "clients"):
        assert Path(f"cut.{kind}.csv").read_bytes() == Path(f"whole.{kind}.csv").read_bytes()


def test_decompose_on_test_data_splits_by_labels_and_gives_errors_over_samples(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said(capsys, "decompose", "runs/ima", "--rounds", "5", "--split", "test", "--draws", "local:3", "--out", "t")
    with Path("t.factors.csv").open() as file:
        rows = {(row["factor"], row["estimate"]): row for row in csv.DictReader(file)}
    assert float(rows["heter_bias", "unbiased"]["value"]) > 0
    assert float(rows["heter_bias", "unbiased"]["stderr_samples"]) > 0
    assert float(rows["variance", "unbiased"]["stderr_draws"]) > 0
    assert {row["split"] for row in rows.values()} == {"test"}
    assert {row["draws"] for row in rows.values()} == {"local:3"}


def test_a_federation_without_heterogeneity_has_no_split_on_test_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["train", "--out", "iid", "--partition", "iid", *SMALL, "--rounds", "2", "--epochs", "1"]) == 0
    capsys.readouterr()
    assert ": bias " in said(capsys, "decompose", "iid", "--rounds", "2", "--split", "test", "--out", "t")
    with Path("t.factors.csv").open() as file:
        rows = {(row["factor"], row["estimate"]): row["value"] for row in csv.DictReader(file)}
    assert rows["heter_bias", "plugin"] == ""
    assert float(rows["bias", "plugin"]) > 0


@pytest.mark.parametrize("columns", [None, "", "0", "-5", "x", "40", "60", "101", "200"])
def test_help_is_as_wide_as_the_terminal(columns: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    assert help_width(WIDEST) == max(min(shutil.get_terminal_size().columns, WIDEST) - 2, 50)


def test_help_loads_nothing_heavy() -> None:
    """Not even shutil, which click imports to ask the terminal's width: a tenth of the time."""
    heavy = "[name for name in ('shutil', 'dataclasses', 'inspect', 'numpy', 'torch') if name in sys.modules]"
    code = f"import sys; before = {heavy}; from fedscope.cli.main import fedscope\n"
    code += f"fedscope(['--help'], standalone_mode=False); print(sorted(set({heavy}) - set(before)))"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "['inspect']", "which click imports"


def test_help_of_every_command_ends_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    from fedscope.cli.main import commands

    for name in commands():
        text = " ".join(said(capsys, name, "--help").split())
        assert f"Example: fedscope {name}" in text, name
    assert "Example:" in said(capsys, "--help")


def test_the_demo_trains_what_is_not_there_and_goes_on_with_what_is_unfinished(
    two_rounds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(two_rounds / "runs" / "fma", "demo/fma")
    asked: list[list[str]] = []
    monkeypatch.setattr(demo, "_do", asked.append)
    monkeypatch.setattr(demo, "_identity", lambda config: "")  # the demo's own would take a minute

    def begun(*words: str) -> tuple[str, list[str]]:
        """What is said, and the commands that train, but for the other seeds."""
        asked.clear()
        told = said(capsys, "demo", *words)
        return told, [" ".join(step) for step in asked if step[0] == "train" and "--seed" not in step]

    whole = "demo/fma is trained already (--force trains it again)\n"
    assert begun() == (whole, ["train --method ima --out demo/ima"])
    assert [step[0] for step in asked] == [step[0] for step in demo.STEPS[1:]]
    assert "{out}" not in " ".join(word for step in asked for word in step)
    max(Path("demo/fma/rounds").glob("*.h5")).unlink()
    assert begun() == ("", ["train --resume demo/fma", "train --method ima --out demo/ima"])
    assert begun("--force")[1] == [f"train --method {method} --out demo/{method} --force" for method in ("fma", "ima")]
    assert all(step[-1] == "--force" for step in asked)
    with pytest.raises(AssertionError, match="is a run itself; give the demo a folder of its own"):
        said(capsys, "demo", "--out", "demo/fma")


def test_the_demo_leaves_runs_of_the_users_alone(
    two_rounds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "_do", lambda words: pytest.fail(str(words)))
    for name in ("fma", "lora"):  # trained otherwise, and recorded
        shutil.copytree(two_rounds / "runs" / name, f"{name}/fma")
        for how in ((), ("--force",)):
            with pytest.raises(
                AssertionError, match=f"{name}/fma is not the demo's run; give the demo a folder of its"
            ):
                said(capsys, "demo", "--out", name, *how)


@pytest.mark.slow
@pytest.mark.drawn
def test_the_demo_draws_everything_and_goes_on_when_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    out = said(capsys, "demo")
    figures = [line.strip() for line in out.splitlines() if line.startswith("  demo/")]
    assert len([name for name in figures if name.endswith(".pdf")]) == 7
    assert all(Path(name).stat().st_size > 500 for name in figures)
    before = Path("demo/plane.nc").read_bytes()
    again = said(capsys, "demo")
    assert "demo/ima is trained already" in again
    assert Path("demo/plane.nc").read_bytes() == before


def test_an_exported_surface_comes_back(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "plane", *(f"runs/ima@{t}/global" for t in (3, 4, 5)), "--grid", "5", "--out", "p")
    said(capsys, "export", "p.nc", "p.h5")
    out = said(capsys, "import", "p.h5", "--out", "q")
    assert out.startswith("p.h5, fedscope: test loss on 5 x 5 points, ")
    assert "coordinates are L2 distances" in out
    ours, back = Plane.load("p.nc"), Plane.load("q.nc")
    assert back.loss.tobytes() == ours.loss.tobytes()
    np.testing.assert_allclose(back.error, ours.error, atol=1e-15)
    assert [back.a.tolist(), back.b.tolist()] == [ours.a.tolist(), ours.b.tolist()]
    for extension in ("pdf", "png", "html"):
        assert Path(f"q.{extension}").exists()
    # without --out, beside where one stands; the same again is drawn again
    told = json.loads(said(capsys, "import", "p.h5", "--json"))
    assert told["files"][0] == "figures/import-p.nc"
    assert {key: told[key] for key in ("grid", "program", "split", "holes")} == {
        "grid": [5, 5], "program": "fedscope", "split": "test", "holes": 0,
    }  # fmt: skip
    assert run(["import", "p.h5"]) == 0
    assert "already holds this result" in capsys.readouterr().err
    with h5py.File("p.h5", "r+") as file:
        file["test_loss"][0, 0] = 5.0
    assert run(["import", "p.h5"]) == 2
    assert "figures/import-p.nc holds another result, of a file that has changed since;" in capsys.readouterr().err
    Path("p.h5").unlink()
    Path("q.pdf").unlink()
    said(capsys, "import", "p.h5", "--out", "q", "--redraw", "--width", "7in")
    assert Path("q.pdf").exists()
    assert "log above minimum" in Path("q.html").read_text(encoding="utf-8")
    said(capsys, "import", "p.h5", "--out", "q", "--redraw", "--colour-scale", "linear")
    assert "log above minimum" not in Path("q.html").read_text(encoding="utf-8")


def test_models_of_own_code_from_every_kind_of_file(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flower saves the values of a state_dict in order, normalization's statistics and counters among them."""
    import sys

    import torch

    blocks = "nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3)"
    layers = f"{blocks}, nn.ReLU(), nn.Flatten(), nn.Linear(48, 10)"
    Path("own_nets_of_a_user.py").write_text(
        f"from torch import nn\n\ndef small():\n    return nn.Sequential({layers})\n"
    )
    monkeypatch.syspath_prepend(str(runs))
    from own_nets_of_a_user import small

    nets = [small() for _ in range(2)]
    for i, net in enumerate(nets):
        net(torch.randn(30, 1, 8, 8) * (i + 1))  # statistics that differ
        state = net.state_dict()
        torch.save(state, f"{i}.pt")
        np.savez(f"{i}.npz", *[value.cpu().numpy() for _, value in state.items()])
    words = ["--model", "own_nets_of_a_user:small", "--data", "digits", "--points", "5"]
    monkeypatch.undo()
    monkeypatch.chdir(runs)
    del sys.modules["own_nets_of_a_user"]
    for ending in ("pt", "npz"):
        said(capsys, "line", f"0.{ending}", f"1.{ending}", *words, "--out", ending)
    plain, flower = Line.load("pt.nc"), Line.load("npz.nc")
    np.testing.assert_array_equal(plain.loss, flower.loss)
    assert np.ptp(plain.loss) > 0
    del sys.modules["own_nets_of_a_user"]
