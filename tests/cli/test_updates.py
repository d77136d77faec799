"""``fedscope updates`` as a user gives it."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedscope.checkpoints import FedscopeError, Run
from fedscope.decomposition.updates.result import ClientUpdates

pytestmark = pytest.mark.usefixtures("few_digits")
COMMAND = "updates"

TINY = "--method fma --clients 8 --participation 0.5 --rounds 4 --epochs 1 --set model.hidden=[8]"
RUNS = {
    "fma": f"{TINY} --partition dirichlet:1",
    "ima": f"{TINY} --method ima --set average.start=3",
    "few": f"{TINY} --set record.clients=every:2",
    "none": f"{TINY} --set record.clients=none",
    "sketch": f"{TINY} --rounds 2 --set record.clients=none --set record.sketch=64",
    "mixed": f"{TINY} --set record.clients=every:2 --set record.sketch=64",
    "one": f"{TINY} --participation 0.125 --rounds 1",
}


def test_all_rounds_of_a_run_and_their_numbers(runs: Path, said: Any) -> None:
    words = said("runs/fma")
    base = "runs/fma/figures/updates-all"
    assert words.startswith("fma: mean cosine between updates ")
    assert words.splitlines()[1:] == [f"  {base}.{end}" for end in ("updates.csv", "nc", "pdf", "png")]
    made = ClientUpdates.load(f"{base}.nc")
    assert [one.round for one in made.rounds] == [1, 2, 3, 4]
    with Path(f"{base}.updates.csv").open() as file:
        rows = list(csv.DictReader(file))
    for one, row in zip(made.rounds, rows, strict=True):
        round_ = Run.open("runs/fma").round(one.round)
        moved = round_.clients().parameters.astype(np.float64) - round_.read("start").parameters
        assert len(set(round_.weights)) > 1
        lengths = np.linalg.norm(moved, axis=1)
        expected = moved @ moved.T / np.outer(lengths, lengths)
        np.testing.assert_allclose(one.cosine, expected, rtol=1e-9)
        kept = np.linalg.norm(round_.weights @ moved) / (round_.weights @ lengths)
        assert float(row["cancellation"]) == pytest.approx(kept, rel=1e-10)
        assert float(row["cosine_mean"]) == pytest.approx(expected[np.triu_indices(4, 1)].mean(), rel=1e-9)
        np.testing.assert_array_equal(one.client_ids, round_.client_ids)
    # of FMA the mean update is the step itself
    last = Run.open("runs/fma").round(4)
    step = last.read("global").parameters.astype(np.float64) - last.read("start").parameters
    assert float(rows[3]["norm_of_mean"]) == pytest.approx(float(np.linalg.norm(step)), rel=1e-5)


def test_several_runs_share_a_table_and_a_figure(runs: Path, said: Any) -> None:
    out = json.loads(said("runs/fma", "runs/few", "--json", "--out", "u"))
    assert out["files"] == ["u.updates.csv", "u.fma.nc", "u.few.nc", "u.pdf", "u.png"]
    # all: those that were recorded
    assert [(row["run"], row["round"]) for row in out["rounds"]] == [
        ("fma", 1), ("fma", 2), ("fma", 3), ("fma", 4), ("few", 2), ("few", 4)
    ]  # fmt: skip
    assert out["rounds"][0]["clients"] == 4
    assert out["rounds"][0]["unmoved"] == []
    png, table = Path("u.png").read_bytes(), Path("u.updates.csv").read_bytes()
    Path("u.updates.csv").unlink()
    said("runs/fma", "runs/few", "--out", "u", "--redraw")
    assert (Path("u.png").read_bytes(), Path("u.updates.csv").read_bytes()) == (png, table)
    with pytest.raises(FedscopeError, match=r"u\.fma\.nc holds another result, of --rounds .* \(not 2\);"):
        said("runs/fma", "runs/few", "--rounds", "2", "--out", "u")


def test_drawing_again_leaves_the_table_as_it_lies_there(runs: Path, said: Any) -> None:
    said("runs/fma", "--out", "u")
    table = Path("u.updates.csv")
    whole = table.read_bytes()
    table.write_bytes(whole + b"mine\n")
    Path("u.pdf").unlink()
    for again in ((), ("--redraw",)):
        said("runs/fma", "--out", "u", *again)
        assert table.read_bytes() == whole + b"mine\n"
    assert Path("u.pdf").exists()
    table.unlink()
    said("runs/fma", "--out", "u", "--redraw")
    assert table.read_bytes() == whole


def test_a_client_that_has_not_moved_is_said(runs: Path, said: Any, rewrite: Any) -> None:
    def stay(models: Any) -> None:
        models["clients"].parameters[1] = models["start"].parameters

    who = rewrite("runs/fma", 2, stay)[1]
    words = said("runs/fma", "--rounds", "2,4", "--out", "s")
    assert f"; client {who} of round 2 did not move and has no direction" in words
    with Path("s.updates.csv").open() as file:
        assert [row["unmoved"] for row in csv.DictReader(file)] == ["1", "0"]


def test_a_client_that_diverged_is_said_and_what_it_makes_infinite_is_empty(
    runs: Path, said: Any, rewrite: Any
) -> None:
    who = rewrite("runs/fma", 2, lambda models: models["clients"].parameters.__setitem__((3, 5), np.inf))[3]
    words = said("runs/fma", "--out", "d")
    assert words.splitlines()[0].endswith(f"; client {who} of round 2 diverged: no mean exists there")
    with Path("d.updates.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0])[-1] == "diverged"
    assert [row["diverged"] for row in rows] == ["0", "1", "0", "0"]
    assert {rows[1][name] for name in list(rows[1])[3:-2]} == {""}
    out = json.loads(said("runs/fma", "--out", "d", "--json"))
    assert [row["diverged"] for row in out["rounds"]] == [[], [who], [], []]
    assert out["notes"] == []


def test_of_all_rounds_those_of_one_client_are_left_out_and_that_is_said(runs: Path, said: Any, rewrite: Any) -> None:
    rewrite("runs/fma", 2, keep=1)
    words = said("runs/fma", "runs/few", "--out", "a")
    assert words.splitlines()[2] == "fma: round 2 left out, because one client is not a pair of updates"
    assert [one.round for one in ClientUpdates.load("a.fma.nc").rounds] == [1, 3, 4]
    # rounds without clients are no news
    assert [one.round for one in ClientUpdates.load("a.few.nc").rounds] == [2, 4]
    assert words.count("left out") == 1
    out = json.loads(said("runs/fma", "runs/few", "--out", "a", "--json"))
    assert out["notes"] == words.splitlines()[2:3]
    assert "left out" not in said("runs/fma", "--rounds", "1,3", "--out", "b")
    for asked in ("1-3", "1,2,3"):
        words = said("runs/fma", "--rounds", asked, "--out", f"c{asked}")
        assert words.splitlines()[1] == "fma: round 2 left out, because one client is not a pair of updates"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["runs/few", "--rounds", "1"], r"runs/few@1: the clients of round 1 were not recorded; rounds 2, 4 have them"),
        (["runs/none"], r"no round of this run has them: train with record\.clients = 'all'"),
        (["runs/one"], r"runs/one: every recorded round has a cohort of one, so there is no pair of updates; train"),
        (["runs/one", "--rounds", "1"], r"runs/one: every recorded round has .* a round \(--clients, --part"),
        (
            ["runs/fma", "--rounds", "4"],
            r"runs/fma@4 has a cohort of one, so .*; give one of rounds 1-3, which have 2 cl",
        ),
        (["runs/fma", "--layers", "hed"], r"^layers 'hed' match none; did you mean \"head\"\?$"),
        (["runs/fma", "runs/few", "--layers", "each"], r"^--layers takes one run, but got 2 runs; ask for each alone$"),
        (["runs/sketch", "--layers", "each"], r"^runs/sketch@2 keeps only sketches .*; record them \(record\.clients"),
        (["runs/few", "--layers", "each", "--rounds", "1"], r"runs/few@1: the clients of round 1 were not recorded"),
        (["runs/ima", "--rounds", "3"], r"runs/ima@3 recorded its clients, but not the model they were sent \(start\)"),
    ],
)
def test_mistakes_end_in_one_sentence(runs: Path, said: Any, rewrite: Any, words: list[str], message: str) -> None:
    rewrite("runs/ima", 3, without=["start"])
    rewrite("runs/fma", 4, keep=1)
    with pytest.raises(FedscopeError, match=message) as caught:
        said(*words)
    assert "\n" not in str(caught.value)


def test_by_layer_the_last_row_is_the_whole_and_a_question_goes_on(runs: Path, said: Any) -> None:
    words = said("runs/fma", "--layers", "each")
    base = "runs/fma/figures/updates-all-layers-each"
    assert words.startswith("fma, round 4: updates agree least ")
    assert words.splitlines()[1:] == [
        f"  {base}.{end}" for end in ("updates-layers.csv", "updates-layers.json", "pdf", "png")
    ]
    said("runs/fma", "--out", "whole")
    with Path("whole.updates.csv").open() as file:
        whole = list(csv.DictReader(file))
    for layers in ("each", "*", "head"):
        out = json.loads(said("runs/fma", "--layers", layers, "--out", f"cut-{layers[0]}", "--json"))
        with Path(f"cut-{layers[0]}.updates-layers.csv").open() as file:
            rows = [row for row in csv.DictReader(file) if row["layer"] == "all layers"]
        assert [{name: row[name] for name in whole[0]} for row in rows] == whole
        assert (
            out["layers"]
            == {"each": ["fc1", "head", "all layers"], "*": ["all layers"], "head": ["head", "all layers"]}[layers]
        )
    with pytest.raises(FedscopeError, match=r"cut-e\.updates-layers\.\w+ holds another result, of --layers each"):
        said("runs/fma", "--layers", "head", "--out", "cut-e")
    png = Path("cut-e.png").read_bytes()
    said("runs/fma", "--layers", "each", "--out", "cut-e", "--redraw")
    assert Path("cut-e.png").read_bytes() == png


def test_of_all_rounds_by_layer_those_of_which_only_sketches_are_kept_are_left_out(runs: Path, said: Any) -> None:
    run = Run.open("runs/mixed")
    assert [run.round(t).has_sketch for t in run.rounds] == [True] * 4
    words = said("runs/mixed", "--layers", "each", "--out", "m")
    assert words.splitlines()[1] == "mixed: rounds 1, 3 left out, because sketches do not tell layers from each other"
    message = r"^runs/mixed@1 keeps only sketches .* models; give one of rounds 2, 4, or record them \(record\.clients"
    with pytest.raises(FedscopeError, match=message):
        said("runs/mixed", "--layers", "each", "--rounds", "1,2")
