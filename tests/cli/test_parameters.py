"""``fedscope parameters`` as a user gives it."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import h5py
import numpy as np
import pytest

import fedscope
from fedscope.checkpoints import FedscopeError, Run, weighted_mean
from fedscope.cli.main import run
from fedscope.decomposition.parameters.parameter_names import parse_place
from fedscope.decomposition.parameters.result import ParameterMap, Parameters
from fedscope.decomposition.parameters.selection import most_skewed

pytestmark = pytest.mark.usefixtures("few_digits")
COMMAND = "parameters"

SMALL = ["--clients", "8", "--rounds", "4", "--set", "model.hidden=[16]"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, recorded: Callable[..., Path]) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    runs = folder / "runs"
    for name, extra in (
        ("fma", ["--method", "fma", "--participation", "1.0"]),
        ("ima", ["--method", "ima", "--participation", "0.5", "--set", "average.start=3"]),
        ("one", ["--method", "fma", "--participation", "0.125", "--rounds", "1"]),
        ("wide", ["--method", "fma", "--set", "model.hidden=[12]", "--rounds", "4"]),
        ("few", ["--method", "fma", "--set", "record.clients=[1,3]"]),
    ):
        recorded(runs / name, *SMALL, *extra)
    branch = ["--from", f"{runs / 'fma'}@3", "--method", "fedsa", "--rounds", "4", "--out", str(runs / "fedsa")]
    assert run(["train", *branch]) == 0
    return folder


def test_the_most_skewed_of_a_round_in_a_table_and_a_figure(runs: Path, said: Any) -> None:
    words = said("runs/ima")
    base = "runs/ima/figures/parameters-4"
    ends = ("parameters.csv", "parameters.json", "pdf", "png")
    assert words.splitlines()[-4:] == [f"  {base}.{end}" for end in ends]
    round_ = Run.open("runs/ima").round(4)
    names = [place.name for place in most_skewed(round_, 4)]
    made = Parameters.load(base)
    assert list(made.names) == names
    assert len({name.partition("[")[0] for name in names}) == 4
    with Path(f"{base}.parameters.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["run"] for row in rows} == {"ima"}
    assert {row["round"] for row in rows} == {"4"}
    whole = round_.clients()
    fma = weighted_mean(whole, round_.weights).parameters
    for name in names:
        column = parse_place(name, round_.layout).column
        own = {row["which"]: float(row["value"]) for row in rows if row["parameter"] == name}
        expected = {f"client-{k}": whole.parameters[i, column] for i, k in enumerate(round_.client_ids)}
        expected |= {which: round_.read(which).parameters[column] for which in ("start", "global", "averaged")}
        assert own == {"fma": fma[column], **expected}
    assert words.startswith("ima, round 4: the plain average misses the mode of the 4 most skewed of 1,210 parameters")
    assert "sampled parameters by " in words
    assert made.attrs["run"][0]["path"] == "runs/ima"
    assert made.attrs["top"] == 4
    assert made.reference is not None
    stored = json.loads(Path(f"{base}.parameters.json").read_text())["parameters"]
    assert [one["fma_to_mode"] for one in stored] == [one.fma_to_mode for one in made.summaries]
    assert all(one["p_value"] is None for one in stored)  # four clients
    # the same again is read back, another is not overwritten
    png = Path(f"{base}.png").read_bytes()
    said("runs/ima", "--redraw")
    assert Path(f"{base}.png").read_bytes() == png
    with pytest.raises(FedscopeError, match=r"-4\.parameters\.json holds another result, of --top 4 \(not 2\)"):
        said("runs/ima", "--top", "2")
    said("runs/ima", "--top", "2", "--force")
    assert list(Parameters.load(base).names) == names[:2]


def test_named_parameters(runs: Path, said: Any) -> None:
    asked = ["--parameter", "fc1.weight[3,17]", "--parameter", "head.bias[0]", "--parameter", "fc1.weight[3, 17]"]
    out = json.loads(said("runs/fma", "--round", "2", *asked, "--json"))
    assert [one["parameter"] for one in out["parameters"]] == ["fc1.weight[3,17]", "head.bias[0]"]
    assert out["files"][0] == "runs/fma/figures/parameters-2-fc1.weight-3-17-head.bias-0.parameters.csv"
    one = out["parameters"][1]
    round_ = Run.open("runs/fma").round(2)
    values = round_.clients().arrays()["head.bias"][:, 0].astype(float)
    assert one["clients"] == len(values) == 8
    assert one["cv"] == pytest.approx(values.std() / abs(values.mean()))
    assert one["p_value"] is not None
    assert one["fma_to_mode"] == one["to_mode"]["fma"]
    assert out["reference"]["sampled"] > 0
    # another choice has another name
    said("runs/fma", "--round", "2", "--parameter", "head.bias[1]")
    assert Path("runs/fma/figures/parameters-2-head.bias-1.png").exists()


def test_branches_are_compared_on_the_same_clients(runs: Path, said: Any) -> None:
    words = said("runs/fma", "runs/fedsa", "--out", "both")
    assert ", fedsa's global by " in words
    assert "different models" not in words
    first, branch = Parameters.load("both").runs
    np.testing.assert_array_equal(first.clients, branch.clients)
    np.testing.assert_array_equal(first.models["fma"], branch.models["fma"])
    np.testing.assert_array_equal(first.models["fma"], first.models["global"])
    there = Run.open("runs/fedsa").round(4).read("global").parameters
    places = [parse_place(name, Run.open("runs/fma").layout) for name in Parameters.load("both").names]
    np.testing.assert_array_equal(branch.models["global"], there[[place.column for place in places]])
    words = said("runs/fma", "runs/ima", "--out", "unlike")
    assert "these runs' rounds began from different models" in words


def test_a_map_of_many_parameters(runs: Path, said: Any) -> None:
    words = said("runs/fma", "--tsne", "--sample", "120", "--perplexity", "10")
    base = "runs/fma/figures/parameters-tsne-4"
    made = ParameterMap.load(base)
    assert len(made.layers) == 120
    assert [made.layers.count(name) for name in ("fc1.bias", "head.bias")] == [16, 10]  # all of the small layers
    assert words.splitlines() == [
        "fma, round 4: 120 of 1,210 parameters as points by the updates of 8 clients, "
        f"{made.high.sum()} of them of high dispersion in their layer",
        *[f"  {base}.{end}" for end in ("parameters-tsne.csv", "parameters-tsne.json", "pdf", "png")],
    ]
    assert (made.attrs["backend"], made.attrs["device"], made.attrs["perplexity"]) == ("sklearn", "cpu", 10)
    table, png = (Path(f"{base}.{end}").read_bytes() for end in ("parameters-tsne.csv", "png"))
    said("runs/fma", "--tsne", "--sample", "120", "--perplexity", "10", "--force")
    assert Path(f"{base}.parameters-tsne.csv").read_bytes() == table
    # colours are drawn, not computed
    said("runs/fma", "--tsne", "--sample", "120", "--perplexity", "10", "--colour", "skewness")
    assert Path(f"{base}.parameters-tsne.csv").read_bytes() == table
    assert Path(f"{base}.png").read_bytes() != png


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["runs/fma", "--parameter", "fc2.weight[0,0]"], r"no layer 'fc2\.weight' .*; did you mean \"fc1\.weight\"\?"),
        (["runs/fma", "--parameter", "fc1.weight[16,0]"], r"is outside of fc1\.weight, whose shape is \[16, 64\]"),
        (["runs/fma", "--parameter", "fc1.weight[3]"], r"has 1 index, but fc1\.weight has the shape \[16, 64\]"),
        (["runs/fma", "runs/wide"], r"runs/wide@4 holds other models than runs/fma@4, .* fc1\.weight has shape"),
        (["runs/few", "--round", "2"], r"runs/few@2: the clients of round 2 were not recorded; rounds 1, 3 have them"),
        (["runs/one"], r"runs/one@1 has 1 client, but skewness exists from three on; take a round with more clients$"),
        (["runs/one", "--parameter", "head.bias[0]"], r"round 1 of one has 1 client, and a density .* two or more"),
        (["runs/one", "--tsne"], r"runs/one@1 has 1 client, so a parameter is one number and no vector"),
        (["runs/fma", "--round", "1,2"], r"--round 1,2 names 2 rounds; give one, as in --round 2"),
        (["runs/fma@3", "--round", "2"], r"runs/fma@3 names its rounds, and so does --round 2; leave one out"),
        (["runs/fma@3", "runs/ima@2"], r"these runs name different rounds, but one is asked for; give --round 3"),
        (["runs/fma", "runs/one"], r"runs/one@4: the run has round 1"),
        (["runs/fma", "--top", "101"], r"--top 101 asks for a panel each; take 100 at most"),
        (
            ["runs/fma", "--tsne", "--sample", "20001"],
            r"a sample of 20,001 parameters is out of range for sklearn: take 4 to 20,000",
        ),
        (["runs/fma", "--tsne", "--sample", "3"], r"a sample of 3 parameters is out of range"),
        (["runs/fma", "--tsne", "--sample", "30"], r"perplexity 30 does not fit 30 points"),
        (["runs/fma", "runs/ima", "--tsne"], r"--tsne maps a sample of one run's parameters, but 2 runs were given"),
        (["runs/fma", "--tsne", "--parameter", "x[0]"], r"but --parameter was given; leave it out"),
    ],
)
def test_mistakes_end_in_one_sentence(runs: Path, said: Any, words: list[str], message: str) -> None:
    with pytest.raises(FedscopeError, match=message):
        said(*words)


def test_none_of_the_most_skewed_is_refused(runs: Path, said: Any) -> None:
    with pytest.raises(click.UsageError, match=r"0 is too small; give 1 or more"):
        said("runs/fma", "--top", "0")


def test_a_run_without_its_global_model_is_refused(runs: Path, said: Any) -> None:
    with h5py.File("runs/fedsa/rounds/00004.h5", "r+") as file:
        del file["checksums"], file.attrs["checksums"]
        del file["global"]
    with pytest.raises(FedscopeError, match=r"runs/fedsa@4 did not record its global model; give another --round"):
        said("runs/fma", "runs/fedsa")


def test_options_of_the_other_question_are_refused(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, message in (
        (["--sample", "50"], "--sample 50 belongs to --tsne; give both, or neither"),
        (["--colour", "skewness"], "--colour skewness belongs to --tsne; give both, or neither"),
        (["--tsne", "--top", "2"], "--top 2 belongs to densities"),
        (
            ["--parameter", "fc1.bias[0]", "--top", "4"],
            "--top 4 chooses the most skewed parameters where --parameter names none; leave one of the two out",
        ),
    ):
        capsys.readouterr()
        assert run(["parameters", "runs/fma", *words, "--out", "x"]) == 2
        assert message in capsys.readouterr().err
    with pytest.raises(
        FedscopeError, match=r"^top=3 chooses the most skewed parameters where parameters names none; l"
    ):
        fedscope.parameters("runs/fma", parameters="fc1.bias[0]", top=3)
    with pytest.raises(
        FedscopeError, match=r"^parameters=.*, of which \('fc1\.bias', 0\) is not a text; give a list of"
    ):
        fedscope.parameters("runs/fma", parameters=[("fc1.bias", 0)])  # type: ignore[list-item]
    assert run(["parameters", "runs/fma@3/global"]) == 2
    assert "give runs/fma (and --round 3)" in capsys.readouterr().err


def test_a_round_in_which_no_client_moved_has_no_map(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with h5py.File("runs/fma/rounds/00004.h5", "r+") as file:
        del file["checksums"], file.attrs["checksums"]
        for name, rows in file["clients"].items():
            rows[...] = np.broadcast_to(file["start"][name][()], rows.shape)
    assert run(["parameters", "runs/fma", "--tsne", "--sample", "60", "--perplexity", "5", "--out", "x"]) == 2
    assert "the 60 points are all the same" in capsys.readouterr().err


def test_a_global_model_that_is_not_finite_is_said(runs: Path, said: Any) -> None:
    with h5py.File("runs/fedsa/rounds/00004.h5", "r+") as file:
        del file["checksums"], file.attrs["checksums"]
        for values in file["global"].values():
            values[...] = np.nan
    words = said("runs/fma", "runs/fedsa", "--top", "2", "--out", "x", "--json")
    assert all(set(one["to_mode"]) == {"start", "fma", "global", "fedsa/start", "fedsa/fma"}
               for one in json.loads(words, parse_constant=str)["parameters"])  # fmt: skip
    words = said("runs/fma", "runs/fedsa", "--top", "2", "--out", "x")
    assert "fedsa's global by no finite number" in words
    assert "  not finite: fedsa/global\n" in words


def test_runs_with_other_clients_are_not_compared_in_silence(runs: Path, said: Any) -> None:
    words = ["--clients", "8", "--rounds", "1", "--set", "model.hidden=[16]", "--participation", "1.0"]
    for name, partition in (("iid", "iid"), ("shards", "shards:2")):
        assert run(["train", "--method", "fma", "--partition", partition, "--out", f"runs/{name}", *words]) == 0
    assert "or had other clients or data" in said("runs/iid", "runs/shards", "--round", "1", "--out", "x")


def test_one_round_is_that_of_all_runs(runs: Path, said: Any) -> None:
    said("runs/fma@3", "runs/ima@3", "--out", "both")
    said("runs/fma@3", "runs/ima", "--out", "first")
    said("runs/fma", "runs/ima", "--round", "3", "--out", "given")
    kept = {Path(f"{name}.parameters.csv").read_bytes() for name in ("both", "first", "given")}
    assert len(kept) == 1
