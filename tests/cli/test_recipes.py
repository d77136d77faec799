"""``fedscope recipes``: what it prints is what the files hold."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from fedscope.checkpoints import FedscopeError
from fedscope.cli.main import run
from fedscope.training import recipe, recipe_names

pytestmark = pytest.mark.same_elsewhere

COMMAND = "recipes"


def test_all_of_them_a_line_each_with_the_first_published_row(said: Callable[..., str]) -> None:
    lines = said().splitlines()
    assert [line.split()[0] for line in lines] == list(recipe_names())
    by_name = {line.split()[0]: line for line in lines}
    assert by_name["ima/table1-cifar10-cnn-shards2"].endswith("(fma: 62.34 / 67.37)")
    assert "(" not in by_name["ima/fig2"].partition(recipe("ima/fig2").shows)[2], "nothing is published of a curve"


def test_a_paper_has_its_own(said: Callable[..., str]) -> None:
    names = [line.split()[0] for line in said("wima").splitlines()]
    assert names == [name for name in recipe_names() if name.startswith("wima/")]
    listed = json.loads(said("wima", "--json"))
    assert [one["name"] for one in listed] == names
    published = {one["name"]: one["published"] for one in listed}["wima/table3-gldv2"]
    assert [cell["value"] for cell in published if cell["row"] == "FedAvg"] == [58.17, 63.05]


def test_one_whole_says_settings_grid_numbers_and_what_is_open(said: Callable[..., str]) -> None:
    text = said("ima/table1-cifar10-cnn-dir0.1")
    for part in (
        "  run      rounds = 400, participation = 0.1",
        "  with fedasam: ",
        "the paper takes the best of: fedscope sweep --recipe ima/table1-cifar10-cnn-dir0.1 method=fedprox "
        "client.mu=0.1,0.01,0.001\n    then: fedscope table SWEEP --best-of client.mu",
        "    fedprox  average.method=none 61.31 · average.method=ima 64.8",
        "chosen here: three seeds: --seeds 0..2",
        "  train it: fedscope train --recipe ima/table1-cifar10-cnn-dir0.1",
        "  all of it: fedscope sweep --recipe ima/table1-cifar10-cnn-dir0.1",
    ):
        assert part in text, text
    whole = json.loads(said("ima/table1-cifar10-cnn-dir0.1", "--json"))
    assert whole["settings"] == recipe("ima/table1-cifar10-cnn-dir0.1").configured()
    assert whole["grid"] == {"fedprox": {"client.mu": [0.1, 0.01, 0.001]},
                             "fedfa": {"client.anchor_weight": [0.1, 0.01, 0.001]}}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ima/fig11", "'ima/fig11' is not a recipe; did you mean \"ima/fig1\"?; fedscope recipes lists all"),
        ("imaa", "'imaa' is not a recipe; did you mean \"ima\"?; fedscope recipes lists all"),
        ("none", "'none' is not a recipe; there are those of fedsa, fedswa, ima, wima; fedscope recipes lists all"),
        ("IMA", "'IMA' is not a recipe; did you mean \"ima\"?; fedscope recipes lists all"),
        ("IMA/Fig1", "'IMA/Fig1' is not a recipe; did you mean \"ima/fig1\"?; fedscope recipes lists all"),
        ("fig1", "'fig1' is not a recipe; there are fedsa/fig1, ima/fig1, wima/fig1; fedscope recipes lists all"),
        ("fig10", "'fig10' is not a recipe; did you mean \"ima/fig10\"?; fedscope recipes lists all"),
        ("wima/table4", "'wima/table4' is not a recipe; there are wima/table4-cifar10, wima/table4-cifar100; fedscope"),
        ("ima/", "'ima/' is not a recipe; ima has ima/fig1, ima/fig10"),
    ],
)
def test_another_name_is_one_sentence(name: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["recipes", name]) == 2
    assert message in capsys.readouterr().err
    with pytest.raises(FedscopeError, match=f"'{name}' is not a recipe"):
        recipe(name)
