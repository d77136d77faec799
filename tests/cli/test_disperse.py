"""``fedscope disperse`` as a user gives it."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import fedscope
from fedscope.checkpoints import FedscopeError, Run
from fedscope.cli.main import run
from fedscope.decomposition.dispersion.result import Dispersion

pytestmark = pytest.mark.usefixtures("few_digits")
COMMAND = "disperse"

TINY = "--partition dirichlet:1 --epochs 2 --set run.evaluate_clients=0 --set model.hidden=[16] --participation 0.5"
RUNS = {
    "ima": f"{TINY} --method ima --clients 16 --rounds 4 --set average.start=3",
    "fma": f"{TINY} --method fma --clients 16 --rounds 4 --set record.clients=[1,3]",
    "few": f"{TINY} --method fma --clients 8 --rounds 1",
    "pair": f"{TINY} --method fma --clients 2 --participation 1 --rounds 1",
    "one": f"{TINY} --method fma --clients 8 --participation 0.125 --rounds 1",
    "wide": f"{TINY} --method fma --clients 16 --rounds 1 --set model.hidden=[12]",
}
KINDS = ("dispersion.csv", "layers.skewness.csv", "layers.map.csv", "dispersion.json")
PICTURES = ("pdf", "png", "layers.pdf", "layers.png")


def rows_of(path: str) -> list[dict[str, str]]:
    with Path(path).open() as file:
        return list(csv.DictReader(file))


def test_every_round_and_layer_has_its_row(runs: Path, said: Any) -> None:
    words = said("runs/ima", "runs/fma", "--rounds", "1,3", "--out", "d")
    rows = rows_of("d.dispersion.csv")
    layers = ["fc1.weight", "fc1.bias", "head.weight", "head.bias", "all"]
    assert [(row["run"], row["round"], row["layer"]) for row in rows] == [
        (name, number, layer) for name in ("ima", "fma") for number in ("1", "3") for layer in layers
    ]
    values = Run.open("runs/ima").round(3).clients().parameters
    head = values[:, Run.open("runs/ima").layout.slices["head.weight"]].astype(np.float64)
    p = stats.skewtest(head).pvalue
    row = rows[7]
    assert float(row["median_cv"]) == pytest.approx(np.median(np.abs(stats.variation(head))), rel=1e-9)
    assert float(row["skew_mean_abs"]) == pytest.approx(np.abs(stats.skew(head)).mean(), rel=1e-9)
    assert float(row["skew_rejected_share"]) == pytest.approx((stats.false_discovery_control(p) <= 0.05).mean())
    lines = words.splitlines()
    made = Dispersion.load("d")
    assert lines[:4] == [one.summary(0.05) for one in made.rounds]
    assert lines[4:] == [f"  d.{kind}" for kind in (*KINDS, *PICTURES)]
    # single layers: the most skewed of the first run's last round, in both runs
    assert {(one.run, one.round, one.layer) for one in made.maps} == {
        (name, 3, made.maps[0].layer) for name in ("ima", "fma")
    }


def test_layers_are_chosen_and_the_rate_is_kept(runs: Path, said: Any) -> None:
    more = ["--layer", "head.weight", "--layer", "fc1.bias", "--layer", "head.weight", "--fdr", "0.2", "--json"]
    out = json.loads(said("runs/fma", "--rounds", "1,3", *more))
    base = "runs/fma/figures/disperse-1-3-head.weight-fc1.bias-head.weight-fdr0.2"
    assert out["files"] == [f"{base}.{kind}" for kind in (*KINDS, *PICTURES)]
    assert all(Path(path).exists() for path in out["files"])
    made = Dispersion.load(base)
    assert [one.layer for one in made.maps] == ["head.weight", "fc1.bias"]
    assert [one.round for one in made.maps] == [3, 3]
    assert (made.fdr, made.attrs["layers"][0]) == (0.2, "head.weight")
    assert out["rounds"][1]["clients"] == 8
    assert out["rounds"][1]["all"]["parameters"] == Run.open("runs/fma").layout.size
    assert out["rounds"][1]["layers"][0]["skew_rejected_share"] == made.rounds[1].layers[0].skew_rejected_share


def test_a_layer_stands_for_its_parameters(runs: Path, said: Any) -> None:
    out = json.loads(said("runs/fma", "--rounds", "3", "--layer", "head", "--layer", "/^fc1/", "--json"))
    base = "runs/fma/figures/disperse-3-head-fc1"
    assert out["files"][0].startswith(base)
    made = Dispersion.load(base)
    assert [one.layer for one in made.maps] == ["head.weight", "head.bias", "fc1.weight", "fc1.bias"]
    whole = fedscope.embed("runs/fma", "pca", rounds="3", layers=["head.weight", "head.bias"])
    assert fedscope.embed("runs/fma", "pca", rounds="3", layers="hea*").spreads == whole.spreads


def test_few_clients_leave_columns_empty_and_say_so(runs: Path, said: Any) -> None:
    words = said("runs/few", "--rounds", "1", "--out", "few")
    assert "over 4 clients" in words
    assert "; no test of skewness, which needs 8 clients\n" in words
    assert {row["skew_rejected_share"] for row in rows_of("few.dispersion.csv")} == {""}
    assert all(float(row["skew_mean_abs"]) > 0 for row in rows_of("few.dispersion.csv"))
    assert Path("few.layers.png").exists()
    words = said("runs/pair", "--rounds", "1", "--out", "pair")
    assert "no skewness, which needs 3 clients, and no test of it, which needs 8\n" in words
    assert {row[name] for row in rows_of("pair.dispersion.csv") for name in ("skew_mean_abs", "kurtosis_mean")} == {""}
    assert all(float(row["median_cv"]) > 0 for row in rows_of("pair.dispersion.csv"))
    assert Path("pair.png").exists()
    assert not Path("pair.layers.png").exists()
    assert "layers.png" not in words
    with pytest.raises(FedscopeError, match=r"--layer fc1\.bias: runs/pair@1 has 2 clients, and skewness begins"):
        said("runs/pair", "--rounds", "1", "--layer", "fc1.bias", "--out", "other")
    said("runs/pair", "--rounds", "1", "--out", "few", "--force")
    assert not list(Path().glob("few.layers.p*")), "the figure of the result that was replaced"


def test_options_of_the_other_question_are_refused(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, message in (
        (
            ["--embed", "pca", "--fdr", "0.1"],
            "--fdr 0.1 belongs to the test of skewness; leave it out with",
        ),
        (["--seed", "7"], "--seed 7 belongs to a map of models; give --embed tsne with it"),
        (["--perplexity", "7"], "--perplexity 7.0 belongs to a map of models; give --embed tsne with it"),
        (["--device", "nonsense"], "nonsense"),
        (["--rounds", ""], "'' is not a round"),
    ):
        capsys.readouterr()
        assert run(["disperse", "runs/ima", *words, "--out", "x"]) == 2
        assert message in capsys.readouterr().err
    assert not list(Path().glob("x.*"))


@pytest.mark.slow
@pytest.mark.drawn
def test_names_are_no_mathematics_and_never_too_long(runs: Path, said: Any) -> None:
    Path("runs/fma").rename(r"runs/lr$\oops$")
    many = [word for layer in ("fc1.weight", "fc1.bias") * 20 for word in ("--layer", layer)]
    words = said(r"runs/lr$\oops$", *many)
    assert Path(words.splitlines()[-1].strip()).exists()
    asked = "disperse --embed pca; updates; parameters --round 3; synergy; curves; decompose --draws local:2 --rounds 3"
    for name, *options in (words.split() for words in asked.split("; ")):
        at = "@3" if name == "synergy" else ""
        assert run([name, rf"runs/lr$\oops${at}", *options, "--out", name]) == 0


def test_another_rate_is_another_question(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose finished rounds an interrupted one does not take over."""
    import fedscope.decomposition.dispersion.skew_maps as package

    def stopping(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    words = ["disperse", "runs/ima", "--rounds", "1,3", "--out", "cut"]
    with monkeypatch.context() as patch:
        patch.setattr(package, "map_layer", stopping)
        assert run(words) == 130  # both rounds are done
    assert run([*words, "--fdr", "0.9"]) == 0
    shares = [float(row["skew_rejected_share"]) for row in rows_of("cut.dispersion.csv")]
    assert run([*words[:-1], "plain"]) == 0
    assert shares > [float(row["skew_rejected_share"]) for row in rows_of("plain.dispersion.csv")]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["runs/fma", "--rounds", "2"], r"runs/fma@2: the clients of round 2 were not recorded; rounds 1, 3 have them"),
        (["runs/ima@4/global"], r"runs/ima@4/global names a model, but a whole run is asked for; give runs/ima \("),
        (
            ["runs/one", "--rounds", "1"],
            r"runs/one@1 has 1 client, so there is no dispersion; train with more clients a",
        ),
        (
            ["runs/ima", "runs/wide", "--rounds", "1"],
            r"runs/ima and runs/wide trained different models, whose layers have no common rows \(.*fc1.weight.*\); a",
        ),
        (
            ["runs/ima", "--layer", "fc1.wieght"],
            r"--layer fc1\.wieght: runs/ima has no .*did you mean \"fc1\.weight\"\?",
        ),
        (
            ["runs/ima", "--layer", "zzz"],
            r"--layer zzz: runs/ima has no such parameter; it has fc1\.weight, fc1\.bias, ",
        ),
        (["runs/ima", "--fdr", "5"], r"^--fdr 5 is out of range: give one between 0 and 1, such as 0\.05$"),
        (["runs/ima", "--fdr", "0"], r"^--fdr 0 is out of range: give one between"),
    ],
)
def test_mistakes_end_in_one_sentence(runs: Path, said: Any, words: list[str], message: str) -> None:
    with pytest.raises(FedscopeError, match=message):
        said(*words)
    assert not list(Path().rglob("*.partial"))
