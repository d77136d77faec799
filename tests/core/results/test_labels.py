"""Other names for runs and models: shown wherever a result is, in their order, and no number changes."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedscope
from fedscope.checkpoints import FedscopeError
from fedscope.cli.main import run
from fedscope.plotting.style import literal
from fedscope.results.labels import labels_of, names_in, rename

pytestmark = pytest.mark.same_elsewhere


@dataclass(frozen=True)
class Row:
    """A row of a result."""

    run: str


@pytest.fixture(scope="module")
def nets() -> list[torch.nn.Module]:
    torch.manual_seed(0)
    return [torch.nn.Linear(2, 2) for _ in range(3)]


@pytest.fixture(scope="module")
def data() -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(40, 2, generator=torch.Generator().manual_seed(1))
    return x, (x[:, 0] > 0).long()


def words_of(figure: Any) -> str:
    from matplotlib.text import Text

    return "\n".join(text.get_text() for text in figure.findobj(Text))


ASKED = {
    "plane": {"grid": 3},
    "line": {"points": 3},
    "sharpness": {"hessian": False, "draws": 2},
    "cka": {},
}


@pytest.mark.parametrize("name", ASKED)
def test_models_in_a_dict_are_called_by_its_keys(name: str, nets: Any, data: Any) -> None:
    ask, settings = getattr(fedscope, name), {"data": data, **ASKED[name]}
    many = nets if name == "plane" else nets[:2]
    labels = ("FedAvg", "IMA", "ours $x$")[: len(many)]
    plain = ask(many, **settings)
    for result in (
        ask(dict(zip(labels, many, strict=True)), **settings),
        ask(many, labels=labels, **settings),
        ask(many, labels=dict(zip(plain.list_names(), labels, strict=True)), **settings),
        plain.renamed(dict(zip(plain.list_names(), labels, strict=True))),
    ):
        assert result.list_names() == labels
        shown = words_of(result.figure())
        assert all(literal(label) in shown for label in labels)
        assert not any(f"Linear {i}" in shown for i in (1, 2, 3))
        mine, theirs = result.numbers(), plain.numbers()
        assert str(mine.values()).replace("FedAvg", "Linear 1").replace("IMA", "Linear 2").replace(
            "ours $x$", "Linear 3"
        ) == str(theirs.values())


def test_state_dicts_are_models_and_one_state_dict_is_no_dict_of_them(nets: Any, data: Any) -> None:
    states = {"a": nets[0].state_dict(), "b": nets[1].state_dict()}
    assert fedscope.line(states, data=data, model=nets[0], points=3).pairs == ("a - b",)
    one = fedscope.sharpness(nets[0].state_dict(), data=data, model=nets[0], hessian=False, draws=2)
    assert len(one.list_names()) == 1


def test_labels_change_places_and_files_keep_them(nets: Any, data: Any, tmp_path: Path) -> None:
    line = fedscope.line({"a": nets[0], "b": nets[1]}, data=data, points=3)
    turned = line.renamed({"a": "b", "b": "a"})
    assert turned.pairs == ("b - a",)
    np.testing.assert_array_equal(turned.loss, line.loss)
    turned.save(tmp_path / "x")
    assert fedscope.Line.load(tmp_path / "x").pairs == ("b - a",)
    assert line.renamed({}) is line


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (["x", "x"], "two of the runs or models would be called 'x'; give each a label of its own"),
        ({"Linear 1": "Linear 2"}, "two of the runs or models would be called 'Linear 2'"),
        (["a"], "1 label is given, but the result names 2, Linear 1, Linear 2; give one for each, or OLD=NEW"),
        (["Nett 3=a"], "1 label is given, but the result names 2, Linear 1"),
        (["Linear 1=a", "Q=b"], "'Q' is not in this result; it names Linear 1, Linear 2"),
        (["Linear 1=a", "Linear 1=b"], "'Linear 1' is given two labels; give one"),
        (["a", "b", "c"], "3 labels are given, but the result names 2, Linear 1, Linear 2; give one for each, or OLD="),
        ({"Linear 3": "c"}, "'Linear 3' is not in this result; did you mean"),
        ({"q": "c"}, "'q' is not in this result; it names Linear 1, Linear 2"),
        ([" ", "b"], "the label of 'Linear 1' is empty; give a word that figures can show"),
        ([7], "labels hold 7, which is no text; give a word for each run or model"),
    ],
)
def test_labels_that_do_not_fit_are_refused(labels: Any, said: str, nets: Any, data: Any) -> None:
    with pytest.raises(FedscopeError) as refused:
        fedscope.line(nets[:2], data=data, points=3, labels=labels)
    assert str(refused.value).startswith(said)


def test_a_dict_and_labels_are_two(nets: Any, data: Any) -> None:
    with pytest.raises(FedscopeError, match="labels are given twice, as keys of a dict and as labels; leave one"):
        fedscope.line({"a": nets[0], "b": nets[1]}, data=data, labels=["x", "y"])


def test_a_label_of_a_run_is_that_of_all_its_models(here: Path) -> None:
    models = [f"runs/fma@{which}" for which in ("1/client-0", "1/client-1", "2/client-0")]
    plain = fedscope.plane(models, grid=3)
    assert plain.list_names() == ("fma@1/client-0", "fma@1/client-1", "fma@2/client-0")
    of_run = plain.renamed({"fma": "FedAvg"})
    assert of_run.list_names() == ("FedAvg@1/client-0", "FedAvg@1/client-1", "FedAvg@2/client-0")
    assert plain.renamed({"fma@1/client-1": "the other"}).list_names()[1] == "the other"
    assert labels_of(["fma=FedAvg"], plain.list_names()) == {"fma": "FedAvg"}


def test_the_command_shows_labels_and_its_files_keep_the_names(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["subsets", "runs/fma", "--rounds", "2", "--out", "s"]
    assert run([*words, "--label", "Fed/Avg"]) == 0
    assert capsys.readouterr().out.startswith("Fed/Avg, round 2: test error")
    assert fedscope.Subsets.load("s").list_names() == ("fma",)
    assert run([*words, "--label", "fma=other"]) == 0, "drawn again, not computed"
    assert capsys.readouterr().out.startswith("other, round 2: test error")
    for labels, said in (
        (["a", "b"], "2 labels are given, but the result names 1, fma; give one for each, or OLD=NEW"),
        (["fam=a"], "'fam' is not in this result; did you mean"),
        ([""], "the label of 'fma' is empty; give a word that figures can show"),
    ):
        assert run([*words, *(word for label in labels for word in ("--label", label))]) == 2
        assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (["fma@1=A", "fma@2=A"], "two of the runs or models would be called 'A'; give each a label of its own"),
        (["A", "A"], "two of the runs or models would be called 'A'"),
        (["fma@1=A", "q=B"], "'q' is not in this result; it is of fma"),
        (["fna@1=A"], "'fna@1' is not in this result; did you mean \"fma"),
    ],
)
def test_labels_that_cannot_fit_are_refused_before_anything_is_computed(
    here: Path, labels: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["line", "runs/fma@1", "runs/fma@2", "--points", "3", "--out", "l"]
    assert run([*words, *(word for label in labels for word in ("--label", label))]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert not list(Path().glob("l.*"))
    with pytest.raises(FedscopeError, match=f"^{re.escape(said)}"):
        fedscope.line.prepare(["runs/fma@1", "runs/fma@2"], points=3, labels=labels).answer(REFUSES)


REFUSES: Any = object()  # nothing may be computed with it


def test_a_result_is_said_to_be_drawn_again_once_it_is(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["line", "runs/fma@1", "runs/fma@2", "--points", "3", "--out", "l"]
    for labels in ([], ["lr=0.1", "mu=0.1"], ["fma=FedAvg"], ["fma@2=later"]):  # a label may hold the sign
        assert run([*words, *(word for label in labels for word in ("--label", label))]) == 0
    assert "l.nc already holds this result; drawn again" in capsys.readouterr().err
    assert run([*words, "--label", "a", "--label", "b", "--label", "c"]) == 2
    assert "drawn again" not in capsys.readouterr().err


def test_names_that_are_no_runs_are_left_to_the_answer(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["reaggregate", "runs/fma@2", "--server", "fedadam", "--out", "r"]
    assert run([*words, "--label", "fedadam=Adam"]) == 0
    assert "Adam" in capsys.readouterr().out


def test_bands_and_models_of_a_round_are_called_by_their_own_names(here: Path) -> None:
    """Neither begins with the name of a run."""
    for seed in (1, 2):
        fedscope.train(rounds=1, clients=2, epochs=1, seed=seed, out=f"runs/plain-{seed}")
    both = ["runs/plain-1", "runs/plain-2"]
    found = fedscope.curves(both, bands=True, labels={"plain": "FedAvg"})
    assert "FedAvg" in found.list_names()
    # a label for each line, though the result also names the runs behind it
    assert fedscope.curves(both, bands=True, labels=["FedAvg"]).summary() == found.summary()
    with pytest.raises(FedscopeError, match=r"4 labels are given, but the result names 1, plain; give one for each"):
        fedscope.curves(both, bands=True, labels=["a", "b", "c", "d"])
    aligned = fedscope.align("runs/fma", rounds=1, limit=20, labels={"1/client-1": "Hospital B"})
    assert "Hospital B" in aligned.list_names()


def test_a_folder_that_two_runs_share_is_no_name_that_is_offered(here: Path) -> None:
    for folder in "ab":
        shutil.copytree("runs/fma", f"{folder}/fma")
    with pytest.raises(FedscopeError, match=r'^\'fna\' is not in this result.*"a/fma"|; it is of a/fma, b/fma'):
        fedscope.decompose(["a/fma", "b/fma"], draws="none", labels={"fna": "one"})


def test_runs_in_a_dict_are_called_by_its_keys(here: Path) -> None:
    updates = fedscope.updates({"Fed/Avg": "runs/fma"}, rounds=1)
    assert updates.list_names() == ("Fed/Avg",)
    assert updates.summary().startswith("Fed/Avg: mean cosine")
    assert fedscope.subsets({"FedAvg": "runs/fma"}, rounds=1).summary().startswith("FedAvg, round 1:")


def test_one_label_for_many_models_of_a_run_is_the_runs(here: Path) -> None:
    plain = fedscope.plane("runs/fma@1", clients=True, grid=3)
    assert len(plain.list_names()) > 1
    assert labels_of(["FedAvg"], plain.list_names()) == {"fma": "FedAvg"}
    assert {name.partition("@")[0] for name in plain.renamed({"fma": "FedAvg"}).list_names()} == {"FedAvg"}


def test_runs_that_are_taken_together_are_no_name_of_their_own() -> None:
    rows = tuple(Row(run) for run in ("fma", "ima", "fma, ima"))
    assert names_in(rows) == ("fma", "ima")
    assert [row.run for row in rename(rows, {"fma": "FedAvg", "ima": "ours"})] == ["FedAvg", "ours", "FedAvg, ours"]
    assert names_in((Row("a, b"),)) == ("a, b",), "a run may be called so"
    assert rename((Row("a, b"),), {"a, b": "c"}) == (Row("c"),)


def test_what_is_told_of_a_run_is_told_of_its_label() -> None:
    """As keys of provenance, and where texts of it begin with a run; runs may change places."""

    @dataclass(frozen=True)
    class Result:
        rows: tuple[Row, ...]
        attrs: dict[str, Any]

    told = {
        "averages": {"a": "ima", "b": "none"},
        "measured": {"b": [{"words": "a: b"}]},
        "source": "a@2",
        "left_out": ["b: round 2 left out", "a, b: both", "c: another"],
        "data": "a",
    }
    named = rename(Result((Row("a"), Row("b")), told), {"a": "b", "b": "a"})
    assert named.attrs == {
        "averages": {"b": "ima", "a": "none"},
        "measured": {"a": [{"words": "a: b"}]},
        "source": "b@2",
        "left_out": ["a: round 2 left out", "b, a: both", "c: another"],
        "data": "a",
    }
    assert rename(named, {"a": "b", "b": "a"}).attrs == told


def test_a_matrix_is_called_by_its_run_and_its_clients_keep_their_numbers(here: Path) -> None:
    plain = fedscope.matrix("runs/fma", rounds=1, limit=40)
    assert plain.list_names() == ("fma",)
    named = plain.renamed({"fma": "FedAvg"})
    assert named.summary() == plain.summary().replace("fma", "FedAvg")
    assert named.rounds == plain.rounds
    named.figure()
    with pytest.raises(FedscopeError, match="'client-0' is not in this result"):
        plain.renamed({"client-0": "mine"})


def test_servers_are_called_by_their_labels_and_what_was_recorded_is_none(here: Path) -> None:
    plain = fedscope.reaggregate("runs/fma@1", ["fedavgm"], limit=40)
    assert plain.list_names() == ("fma", "fedavgm")
    named = fedscope.reaggregate("runs/fma@1", ["fedavgm"], limit=40, labels=["FedAvg", "momentum"])
    assert [row.model for row in named.measured] == ["recorded", "FedAvg", "momentum"]
    assert "momentum" in words_of(named.figure())


@pytest.mark.parametrize("label", ["$x_1$", r"$\frac{x$", "50%_<b>"])
def test_labels_of_lines_are_written_as_they_are(label: str, nets: Any, data: Any) -> None:
    """Matplotlib would take dollars for mathematics, and end where they are none."""
    figure = fedscope.line({label: nets[0], "b": nets[1]}, data=data, points=3).figure()
    figure.canvas.draw()
    assert f"1: {literal(label)}" in words_of(figure)


@pytest.mark.parametrize("name", ["forgetting", "matrix", "theory", "predictors", "reaggregate"])
def test_several_runs_where_one_is_asked_for_are_refused(name: str, here: Path) -> None:
    Path("other").symlink_to("runs/fma")
    with pytest.raises(
        FedscopeError, match=r"one (run|round of a run) is asked for, but got 2 runs.*ask for each alone"
    ):
        getattr(fedscope, name)(["runs/fma", "other"], rounds=1)


@pytest.mark.parametrize(
    ("given", "settings", "said"),
    [
        ([], {}, "no models are given; give one or more"),
        ({}, {}, "no models are given; give one or more"),
        ({0: None, 1: None}, {}, "models has the label 0, which is no text; give a word for each run or model"),
        (["a", "b"], {"labels": 3}, "labels are 3; give a list of words, or {old: new}"),
    ],
)
def test_no_models_and_labels_that_are_none_are_refused(given: Any, settings: Any, said: str, data: Any) -> None:
    with pytest.raises(FedscopeError) as refused:
        fedscope.line(given, data=data, **settings)
    assert str(refused.value) == said


@pytest.mark.parametrize("kind", ["array", "index", "series", "generator"])
def test_labels_are_a_column_of_a_table_too(kind: str, nets: Any, data: Any) -> None:
    """They ended in numpy's question about the truth of an array."""
    words = ["mine", "theirs"]
    pandas = pytest.importorskip("pandas") if kind in ("index", "series") else None
    given = {
        "array": lambda: np.array(words),
        "index": lambda: pandas.Index(words),
        "series": lambda: pandas.Series(words, index=[3, 7]),
        "generator": lambda: (word for word in words),
    }[kind]()
    assert fedscope.line(nets[:2], data=data, points=3, labels=given).pairs == ("mine - theirs",)


@pytest.mark.parametrize("kind", [set, frozenset])
def test_labels_without_an_order_are_refused(kind: type, nets: Any, data: Any) -> None:
    """Each session gave them to the models in another order."""
    with pytest.raises(FedscopeError) as refused:
        fedscope.line(nets[:2], data=data, points=3, labels=kind(["mine", "theirs"]))
    assert str(refused.value) == f"labels are a {kind.__name__}, which has no order; give a list"


def test_renamed_takes_a_mapping_of_words(nets: Any, data: Any) -> None:
    line = fedscope.line(nets[:2], data=data, points=3)
    with pytest.raises(FedscopeError, match=r"labels are a list; give them by name, as \{'fma': 'FedAvg'\}"):
        line.renamed(["a", "b"])
    with pytest.raises(FedscopeError, match="labels hold 3, which is no text"):
        line.renamed({"Linear 1": 3})
    with pytest.raises(TypeError, match="has no setting 'label'; did you mean \"labels\""):
        fedscope.line(nets[:2], data=data, label=["a", "b"])


def test_what_takes_one_run_or_no_labels_says_so(here: Path) -> None:
    with pytest.raises(FedscopeError, match=r"one run is asked for, but got a list; give its folder"):
        fedscope.measure(["runs/fma"])  # type: ignore[arg-type]
    with pytest.raises(
        FedscopeError, match=r"a table calls its rows by methods and settings, and not by runs; give a li"
    ):
        fedscope.table({"FedAvg": "runs/fma"})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["updates", "forgetting", "curves", "cka", "reaggregate"])
def test_a_label_leaves_the_folder_in_the_provenance(name: str, here: Path) -> None:
    """Runs may change names: what is saved says of each where it lies, and reads back under its label."""
    settings: dict[str, Any] = {"reaggregate": {"servers": ["fedavgm"], "limit": 40}, "curves": {}}.get(name, {})
    settings |= {} if name == "curves" else {"rounds": 1}
    path = "runs/fma@1" if settings.pop("rounds", 0) and name == "reaggregate" else "runs/fma"
    plain = getattr(fedscope, name)(path, **settings)
    named = plain.renamed({"fma": "other"})
    named.save("x")
    read = fedscope.load("x")
    assert read.list_names() == named.list_names()
    assert "other" in read.list_names()
    said, before = ([run] if isinstance(run := one.attrs["run"], dict) else run for one in (read, plain))
    assert said == [{**before[0], "label": "other"}]
    assert "runs/other" not in repr(read)
    assert read.renamed({"other": "fma"}).attrs["run"] == plain.attrs["run"]


def test_runs_that_change_names_keep_their_folders(here: Path) -> None:
    shutil.copytree("runs/fma", "runs/ima")
    fedscope.curves({"ima": "runs/fma", "fma": "runs/ima"}).save("turned")
    said = fedscope.load("turned").attrs["run"]
    assert [(Path(run["path"]).name, run["label"]) for run in said] == [("fma", "ima"), ("ima", "fma")]


def test_a_command_does_not_take_labels_of_a_stored_result_for_its_own(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fedscope.updates({"FedAvg": "runs/fma"}, rounds=1).save("named")
    assert run(["updates", "runs/fma", "--rounds", "1", "--out", "named"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "runs/fma as 'FedAvg'" in line


def test_methods_in_the_place_of_runs_are_refused_and_labels_with_a_sign_are_not() -> None:
    names = ["fma-iid-seed0", "ima-iid-seed0"]
    with pytest.raises(FedscopeError, match=r"^'fma' is not in this result; it names fma-iid-seed0, ima-iid-seed0"):
        labels_of(["fma=FedAvg", "ima=ours"], names)
    assert labels_of(["lr=0.1", "lr=0.01"], names) == {"fma-iid-seed0": "lr=0.1", "ima-iid-seed0": "lr=0.01"}
    assert labels_of(["a=0.1", "b=2"], names)["fma-iid-seed0"] == "a=0.1"
    assert labels_of(["lr=0.1"], ["lr-0.1"]) == {"lr-0.1": "lr=0.1"}
