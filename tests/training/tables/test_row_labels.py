"""Rows with other names: in every form, in notes, differences and the figure; and the labels that do not fit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fedscope.checkpoints import FedscopeError
from fedscope.training import Comparison
from fedscope.training.tables.comparison import Cell
from fedscope.training.tables.notes import notes_on_numbers
from fedscope.training.tables.row_labels import labels_of_rows, without_labels

pytestmark = pytest.mark.same_elsewhere

LABELS = {"fma": "FedAvg", "ima": "ours $x$"}


def compared(**more: Any) -> Comparison:
    """Two rows and two columns over seeds of which one row lacks some; notes as ``table`` makes them."""
    cells = tuple(
        Cell(
            row,
            column,
            "test_accuracy",
            {str(seed): 0.1 * i + 0.01 * seed + gain for seed in seeds},
            {str(s): 3 for s in seeds},
        )
        for row, seeds, gain in (("fma", (0, 1, 2), 0.0), ("ima", (0, 1), 0.05))
        for i, column in enumerate(("lr 1", "lr 2"))
    )
    attrs = {"rows": ["method"], "axis": "client.lr", "places": {"lr 1": [1, ""], "lr 2": [2, ""]}}
    commands = {"fma": ("a",), "ima": ("b",)}
    made = Comparison(cells, 10, target=0.5, baseline="fma", commands=commands, attrs=attrs, **more)
    runs_note = "ima: measured afterwards: on 10 samples"
    chosen = "ima, lr 1: mu 1, chosen by these numbers before mu 2"
    return Comparison(**{**vars_of(made), "notes": (chosen, *notes_on_numbers(made.cells, made.baseline), runs_note)})


def vars_of(table: Comparison) -> dict[str, Any]:
    names = ("cells", "last", "target", "baseline", "notes", "commands", "attrs")
    return {name: getattr(table, name) for name in names}


def test_every_form_calls_rows_by_their_labels() -> None:
    plain, named = compared(), compared().renamed(LABELS)
    assert named.rows_named == named.list_names() == ("FedAvg", "ours $x$")
    assert named.baseline == "FedAvg"
    assert named.commands == {"FedAvg": ("a",), "ours $x$": ("b",)}
    assert named.notes == (
        "ours $x$, lr 1: mu 1, chosen by these numbers before mu 2",
        "ours $x$, lr 1: 2 of 3 seeds",
        "ours $x$, lr 2: 2 of 3 seeds",
        "ima: measured afterwards: on 10 samples",  # a run's folder
    )
    text = named.text()
    assert "FMA" not in text
    assert "FedAvg's over these" in text
    assert "against FedAvg, paired over seeds" in text
    assert "\n  ours $x$, lr 1: +5.00" in text
    for form, (one, other) in {
        "markdown": ("| FedAvg |", r"| ours $x$ |"),
        "latex": ("FedAvg & ", r"ours \$x\$ & "),
        "typst": ("[FedAvg]", r"[ours \$x\$]"),
        "csv": ("\nFedAvg,lr 1", "\nours $x$,lr 1"),
    }.items():
        said = named.text(form)
        assert one in said, form
        assert other in said, form
        assert "FMA" not in said
    assert [cell.values for cell in named.cells] == [cell.values for cell in plain.cells]


def test_the_figure_has_labels_and_a_row_keeps_its_look() -> None:
    plain, named = compared(), compared().renamed({"fma": "SCAFFOLD", "ima": "scaffold"})
    looks = []
    for table in (plain, named):
        figure = table.figure()
        lines = [line for line in figure.axes[0].lines if not str(line.get_label()).startswith("_")]
        looks.append([(line.get_color(), str(line.get_linestyle()), line.get_marker()) for line in lines])
        if table is named:
            words = [text.get_text() for text in figure.legends[0].get_texts()]
            assert words[:2] == ["SCAFFOLD", "scaffold"], "as it was typed, though it is a method's name"
    assert looks[0] == looks[1]


def test_labels_are_kept_and_taken_back(tmp_path: Path) -> None:
    plain, named = compared(), compared().renamed(LABELS)
    named.save(tmp_path / "x")
    read = Comparison.load(tmp_path / "x")
    assert read.text() == named.text()
    assert vars_of(without_labels(read)) == vars_of(without_labels(named)) == vars_of(plain)
    assert named.renamed({"FedAvg": "McMahan"}).called == {"McMahan": "fma", "ours $x$": "ima"}
    turned = plain.renamed({"fma": "ima", "ima": "fma"})
    assert turned.baseline == "ima"
    assert vars_of(without_labels(turned)) == vars_of(plain)
    assert plain.renamed({}) is plain


@pytest.mark.parametrize(
    ("given", "labels"),
    [
        (None, {}),
        (["FedAvg", "ours"], {"fma": "FedAvg", "ima": "ours"}),
        (["ima=ours"], {"ima": "ours"}),
        ("fma=FedAvg", {"fma": "FedAvg"}),
        (["FMA (FedAvg)=baseline", "IMA=ours"], {"fma": "baseline", "ima": "ours"}),
        (["fedavg=baseline"], {"fma": "baseline"}),
        (["lr=0.1", "lr=0.01"], {"fma": "lr=0.1", "ima": "lr=0.01"}),
        ({"FedAvg": "baseline"}, {"fma": "baseline"}),
    ],
)
def test_a_row_is_named_as_it_is_or_as_it_is_printed(given: Any, labels: Mapping[str, str]) -> None:
    assert labels_of_rows(given, ("fma", "ima")) == labels


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["a"], "1 label is given, but the table has 2 rows, fma, ima/x; give one for each, or OLD=NEW"),
        (["a", "b", "c"], "3 labels are given, but the table has 2 rows, fma, ima/x; give one for each, or OLD=NEW"),
        (["fna=a"], "'fna' is not in this result; did you mean \"fma\"?"),
        (["fma=a", "swa=b"], "'swa' is not in this result; it names fma, ima/x"),
        (["fma=a", "fma=b"], "'fma' is given two labels; give one"),
        (["a", "fma=b"], "the label 'a' says no OLD=, and others do; give all as OLD=NEW, or all in order"),
        (["ima/x=a", "b"], "the label 'b' says no OLD=, and others do; give all as OLD=NEW, or all in order"),
        (["fma=ima/x"], "two of the rows would be called 'ima/x'; give each a label of its own"),
        (["a", "a"], "two of the rows would be called 'a'; give each a label of its own"),
        (["fma="], "the label of 'fma' is empty; give a word that figures can show"),
        ({"fma": 3}, "labels hold 3, which is no text; give a word for each row"),
        ([3, "a"], "labels hold 3, which is no text; give a word for each row"),
        (3, "labels are 3; give a list of words, or {old: new}"),
        ({"a", "b"}, "labels are a set, which has no order; give a list"),
        ({"fma": "a", "FedAvg": "b"}, "'fma' is given two labels; give one"),
        ({"swa": "b"}, "'swa' is not in this result; it names fma, ima/x"),
    ],
)
def test_labels_that_do_not_fit_are_refused(given: Any, said: str) -> None:
    with pytest.raises(FedscopeError) as refused:
        labels_of_rows(given, ("fma", "ima/x"))
    assert str(refused.value) == said


@pytest.mark.parametrize("asked", ["fedsam-ima", "fedsam+ima", "FedSAM + IMA"])
def test_a_row_is_named_as_ls_calls_its_runs_too(asked: str) -> None:
    assert labels_of_rows([f"{asked}=ours"], ("fma", "fedsam+ima")) == {"fedsam+ima": "ours"}
    assert labels_of_rows({asked: "ours"}, ("fma", "fedsam+ima")) == {"fedsam+ima": "ours"}


@pytest.mark.parametrize("labels", [{"fma": "IMA"}, {"ima": "FMA (FedAvg)"}, {"fma": "x", "ima": "x"}])
def test_two_rows_of_one_printed_name_are_refused(labels: Mapping[str, str]) -> None:
    with pytest.raises(FedscopeError, match=r"^two of the .* would be called '.*'; give each a label of its own$"):
        compared().renamed(labels)
