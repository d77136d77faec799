"""A label that is accepted is shown."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

import fedscope
from fedscope.cli.main import run

pytestmark = pytest.mark.usefixtures("few_digits", "here")


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert run(list(words)) == 0, capsys.readouterr().err
    return capsys.readouterr().out


@pytest.mark.parametrize("label", ["AA", "fma=AA"])
def test_one_label_of_a_rounds_aligned_clients_is_the_runs(capsys: pytest.CaptureFixture[str], label: str) -> None:
    words = ("align", "runs/fma@2", "--limit", "40", "--out", "a")
    assert " units of 8 models of fma move; " in said(capsys, *words)
    assert " units of 8 models of AA move; " in said(capsys, *words, "--label", label)
    with Path("a.moved.csv").open() as file:
        assert {row["model"] for row in csv.DictReader(file)} == {f"2/client-{k}" for k in range(8)}
    stored = fedscope.load("a")
    assert stored.list_names() == tuple(f"fma@2/client-{k}" for k in range(8))
    named = stored.renamed({"fma": "AA", "fma@2/client-3": "third"})
    assert named.list_names()[2:4] == ("AA@2/client-2", "third")
    assert [text.get_text() for text in named.figure().texts if "AA" in text.get_text()] == [
        "8 models of AA matched by weights"
    ]
    named.save("n")
    assert fedscope.load("n").list_names() == named.list_names()


@pytest.mark.parametrize(
    ("words", "plain", "named"),
    [
        ("plane runs/fma --grid 5", "the one of the 8 clients with", "the one of the 8 clients of AA with"),
        ("plane runs/fma --rounds 1,2 --grid 5", "the one of the three with", "the one of the three of AA with"),
        ("line runs/fma@2 --clients --points 3", "28 pairs of clients: loss", "28 pairs of clients of AA: loss"),
        ("data runs/fma", "digits, shards:2: 8 clients", "digits, shards:2 of AA: 8 clients"),
    ],
)
def test_a_label_stands_where_else_no_run_is_named(
    capsys: pytest.CaptureFixture[str], words: str, plain: str, named: str
) -> None:
    made = said(capsys, *words.split(), "--out", "m")
    again = said(capsys, *words.split(), "--out", "m", "--label", "AA")
    assert plain in made
    assert named in again
    assert again.replace(" of AA", "") == made
