"""``table``, ``ls`` and bands with runs that another program recorded: their own names, seeds and data."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedscope
from fedscope.checkpoints import FedscopeError, Run
from fedscope.checkpoints.io.visible_text import in_markdown
from fedscope.cli.commands.ls import row_of
from fedscope.training import Config, table, train
from fedscope.training.curves.result import Curves
from fedscope.training.curves.run_names import title_of
from fedscope.training.data.same_data import same_data
from fedscope.training.tables.forms import in_latex, in_typst

pytestmark = [pytest.mark.same_elsewhere, pytest.mark.usefixtures("few_digits")]

ROUNDS = 2


def recorded(path: Path, error: float, **named: Any) -> Run:
    """A run of three parameters whose accuracy is 1 - ``error`` in every round."""
    with fedscope.Recorder(path, **named) as recorder:
        for _ in range(ROUNDS):
            models = [{"w": np.full(3, k + error, np.float32)} for k in range(2)]
            recorder.round(clients=models, metrics={"test_error": error})
    return Run.open(path)


def settings(seed: int, **more: Mapping[str, Any]) -> Config:
    tables: dict[str, dict[str, Any]] = {
        "data": {"clients": 2, "seed": seed},
        "model": {"hidden": [2]},
        "client": {"epochs": 1},
        "run": {"rounds": ROUNDS, "seed": seed, "evaluate_clients": 0},
    }
    for section, keys in more.items():
        tables.setdefault(section, {}).update(keys)
    return Config.read(tables)


@pytest.fixture(scope="module")
def trained(few_digits: None, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Run]:
    """FMA with two seeds."""
    folder = tmp_path_factory.mktemp("trained")
    return {seed: train(settings(seed), folder / f"fma-{seed}") for seed in (0, 1)}


def values(found: Any, row: str) -> list[float]:
    cell = found.cell(row, "", "test_accuracy")
    assert cell is not None, found.rows_named
    return [round(value, 9) for value in cell.values.values()]


METHODS = ({"method": "My_Method"}, {"source": "my trimmed mean"}, {})
CASES = list(product(METHODS, (True, False), ("digits", "mnist", None), (True, False)))


@pytest.mark.parametrize(("named", "seeded", "data", "beside"), CASES)
def test_recorded_runs_stand_under_their_own_names(
    trained: dict[int, Run], tmp_path: Path, named: dict[str, Any], seeded: bool, data: str | None, beside: bool
) -> None:
    own = str(next(iter(named.values()), "a loop of its own"))
    runs = [
        recorded(tmp_path / f"mine-{k}", error, data=data, **named, **({"seed": k} if seeded else {}))
        for k, error in enumerate((0.25, 0.5))
    ]
    others = list(trained.values()) if beside else []
    if beside and data == "mnist":
        with pytest.raises(FedscopeError, match=r"different data \(digits and mnist\)"):
            table([*others, *runs], last=1)
        return
    found = table([*others, *runs], last=1)
    mine = [own] if seeded else [f"{own} (mine-0)", f"{own} (mine-1)"]
    assert list(found.rows_named) == [*(["fma"] if beside else []), *mine], "each name, and no other's"
    assert [value for row in mine for value in values(found, row)] == [0.75, 0.5]
    assert found.columns_named == (("", "test_accuracy"),), "what is not said is no column"
    notes = " ".join(found.notes)
    assert ("mine-0, mine-1 say no seed, so each has a row of its own" in notes) is not seeded
    assert ("mine-0, mine-1 do not say on which data" in notes) is (data is None)
    assert ("keep no settings" in notes) is beside
    assert "rows differ in" not in notes, "what is not said is no difference"
    if seeded:
        cell = found.cell(own, "", "test_accuracy")
        assert cell is not None
        assert cell.deviation == pytest.approx(np.std([0.75, 0.5], ddof=1))
    if beside:
        assert found.baseline == "fma"
        cell = found.cell("fma", "", "test_accuracy")
        assert cell is not None
        assert list(cell.values) == ["0", "1"], "of the trained runs alone"
        mine_cell = found.cell(mine[0], "", "test_accuracy")
        assert mine_cell is not None
        paired = found.difference(mine_cell)
        assert (paired is not None) is seeded, "a run without a seed has no pair"


def test_two_sources_are_two_rows(tmp_path: Path) -> None:
    runs = [recorded(tmp_path / name, 0.5, source=name) for name in ("my FedX", "my trimmed mean")]
    assert table(runs, last=1).rows_named == ("my FedX", "my trimmed mean")
    assert [row_of(run)["method"] for run in runs] == ["my FedX", "my trimmed mean"]


def test_settings_set_runs_of_one_method_and_seed_apart(tmp_path: Path) -> None:
    rates = (0.1, 0.5)
    runs = [
        recorded(tmp_path / f"{lr}-{seed}", lr, method="MyMethod", seed=seed, settings={"client": {"lr": lr}})
        for lr in rates
        for seed in (0, 1)
    ]
    assert table(runs, last=1).rows_named == ("lr 0.1", "lr 0.5"), "as of trained runs of one method"
    found = table(runs, rows=["method"], last=1)
    assert found.columns_named == (("lr 0.1", "test_accuracy"), ("lr 0.5", "test_accuracy"))
    for lr in rates:
        cell = found.cell("MyMethod", f"lr {lr:g}", "test_accuracy")
        assert cell is not None
        assert cell.values == pytest.approx({"0": 1 - lr, "1": 1 - lr})
    assert row_of(runs[2])["lr"] == 0.5
    assert row_of(runs[1])["seed"] == 1


@pytest.mark.parametrize(
    ("values", "rows"),
    [
        ((0.1, 0.10000004), ("lr 0.1", "lr 0.10000004")),
        ((1234567.0, 1234568.0), ("lr 1234567", "lr 1234568")),
        ((0.1, 0.123456789), ("lr 0.1", "lr 0.123457")),
        ((0.3, 0.30000004, 0.6), ("lr 0.3", "lr 0.30000004", "lr 0.6")),
    ],
)
def test_settings_that_agree_in_six_digits_are_apart(
    tmp_path: Path, values: tuple[float, float], rows: tuple[str, ...]
) -> None:
    runs = [
        recorded(tmp_path / str(seed), 0.5 + 0.1 * seed, method="My", seed=seed, settings={"client": {"lr": lr}})
        for seed, lr in enumerate(values)
    ]
    assert table(runs, last=1).rows_named == rows, "in words that tell them apart"
    best = table(runs, rows=["method"], best_of=["client.lr"], last=1)
    note = f"My: {rows[0]}, chosen by these numbers before {'; '.join(rows[1:])}; they have no seed in common, so that "
    assert f"{note}each was judged by seeds of its own" in best.notes


def test_settings_that_differ_in_a_last_bit_are_one(tmp_path: Path) -> None:
    values = (0.3, 0.1 * 3, float(np.float32(0.3)), 0.6, 0.6)
    runs = [
        recorded(tmp_path / str(i), 0.5 + 0.1 * i, method="My", seed=i % 3, settings={"client": {"lr": lr}})
        for i, lr in enumerate(values)
    ]
    found = table(runs, baseline="lr 0.3", last=1)
    assert found.rows_named == ("lr 0.3", "lr 0.6")
    cell = found.cell("lr 0.3", "", "test_accuracy")
    assert cell is not None
    assert cell.values == pytest.approx({"0": 0.5, "1": 0.4, "2": 0.3}), "three seeds of one setting"
    assert table(runs[:3], last=1).rows_named == ("My",), "and they do not differ in it"


def test_an_infinite_loss_is_said_and_has_no_difference(tmp_path: Path) -> None:
    losses = {"a0": ("A", 0, 0.5), "a1": ("A", 1, 0.6), "b0": ("B", 0, np.inf), "b1": ("B", 1, 0.2)}
    runs = []
    for name, (method, seed, loss) in losses.items():
        with fedscope.Recorder(tmp_path / name, method=method, seed=seed) as recorder:
            for last in (1.0, loss):
                models = [{"w": np.full(3, k + seed, np.float32)} for k in range(2)]
                recorder.round(clients=models, metrics={"test_loss": last, "test_error": 0.5})
        runs.append(Run.open(tmp_path / name))
    found = table(runs, measures=["test_loss"], baseline="A", last=1)
    assert found.notes[1:] == (
        "test_loss is infinite in b0 (round 2), so a mean with that is, too, and its difference to another one has no "
        "interval",
    )
    assert "against A" not in found.text(), "nothing is alike"
    assert found.text("csv").splitlines()[2] == "B,,test_loss,inf,,2,,inf,,,,2"
    labelled = found.renamed({"B": "ours"})
    assert labelled.notes == found.notes
    assert table(runs, measures=["test_accuracy"], last=1).notes == found.notes[:1]


def test_settings_called_as_fedscopes_share_a_column_with_trained_runs(trained: dict[int, Run], tmp_path: Path) -> None:
    config = trained[0].config
    assert config is not None
    mine = recorded(tmp_path / "mine", 0.5, method="My", seed=0, data="digits", settings={"client": config["client"]})
    found = table([trained[0], mine], rows=["method"], columns=["client.epochs"], last=1)
    assert found.columns_named == (("epochs 1", "test_accuracy"),)
    assert not any("not known" in note for note in found.notes)


def test_a_recorded_fma_is_not_taken_for_fedscopes(trained: dict[int, Run], tmp_path: Path) -> None:
    mine = recorded(tmp_path / "mine", 0.5, method="fma", seed=0, data="digits")
    found = table([*trained.values(), mine], last=1)
    assert found.rows_named == ("fma", "fma (recorded)")
    assert values(found, "fma (recorded)") == [0.5]


def test_copies_are_one_run_and_others_of_one_seed_are_not(trained: dict[int, Run], tmp_path: Path) -> None:
    for seed in (0, None):
        mine = recorded(tmp_path / f"mine-{seed}", 0.5, method="My", seed=seed)
        copy = tmp_path / f"copy-{seed}"
        shutil.copytree(mine.path, copy)
        with pytest.raises(FedscopeError, match=rf"mine-{seed} and copy-{seed} are the same run in two places"):
            table([mine, copy], last=1)
        with fedscope.Recorder(copy, resume=True, method="My") as recorder:  # a copy that has gone on is none the less
            recorder.round(clients=[{"w": np.ones(3, np.float32)}])
        with pytest.raises(FedscopeError, match=rf"mine-{seed} and copy-{seed} are the same run in two places"):
            table([mine, copy], last=1)
    other = recorded(tmp_path / "other", 0.25, method="My", seed=0)
    found = table([tmp_path / "mine-0", other], last=1)
    assert found.rows_named == ("My (mine-0)", "My (other)"), "of one seed, and other models"
    assert "mine-0, other have the seed of another run in their cell, but other models" in " ".join(found.notes)
    again = train(settings(0), tmp_path / "again")
    with pytest.raises(
        FedscopeError, match=r"fma-0 and again were trained with the same settings and seeds \(seed 0\)"
    ):
        table([trained[0], again], last=1)


def test_data_are_the_same_by_what_is_known_of_them(tmp_path: Path) -> None:
    array, file = {"sha256": "a"}, {"file_sha256": "f"}
    assert same_data({"name": "digits", **array}, {"name": "digits"}) is True
    assert same_data({"name": "npz:x.npz", **array}, {"name": "npz:y.npz", **array}) is True
    assert same_data({"name": "npz:x.npz", **array}, {"name": "npz:x.npz", "sha256": "b"}) is False
    assert same_data({"name": "npz:x.npz", **file}, {"name": "npz:y.npz", **file}) is True
    assert same_data({"name": "npz:x.npz", **array}, {"name": f"npz:{Path('x.npz').absolute()}", **file}) is True
    assert same_data({"name": "npz:x.npz", **array}, {"name": "npz:y.npz", **file}) is False
    assert same_data({"name": "mine:load"}, {"name": "mine:load_more"}) is False
    for known in ({}, {"name": "digits", **array}):
        assert same_data({}, known) is same_data(known, {}) is None


@pytest.mark.parametrize("asked", [{"columns": ["data.name"]}, {"rows": ["data.name"]}])
def test_data_of_one_name_are_compared_in_every_table(tmp_path: Path, asked: dict[str, Any]) -> None:
    """Arrays of a loop all have one name, and a cell of that name is of one data set."""

    def loop(name: str, value: float, **named: Any) -> Run:
        data = np.full((4, 2), value, np.float32), np.array([0, 1, 0, 1])
        return recorded(tmp_path / name, 0.5, method="My", data=data, **named)

    same = [loop("a", 0.0, seed=0), loop("b", 0.0, seed=1)]
    digits = recorded(tmp_path / "d", 0.25, method="My", data="digits", seed=0)
    found = table([*same, digits], last=1, **asked)
    assert sorted(len(cell.values) for cell in found.cells) == [1, 2]
    other = loop("c", 1.0, seed=2)
    sums = [run.info["data"]["sha256"][:12] for run in (same[0], other)]
    why = (
        rf"a and c were recorded .*both called arrays \(sha256 {sums[0]}\.\.\. and {sums[1]}\.\.\.\), so their numbers"
    )
    for given in ([*same, other], [*same, digits, other]):
        with pytest.raises(FedscopeError, match=why):
            table(given, last=1, **asked)
    unknown = recorded(tmp_path / "u", 0.5, method="My", seed=2)
    notes = table([*same, unknown], last=1, **asked).notes
    assert "u does not say on which data; whether all are of the same is not known" in notes


def test_a_run_without_settings_is_not_called_fma(trained: dict[int, Run], tmp_path: Path) -> None:
    shutil.copytree(trained[0].path, tmp_path / "bare")
    info = json.loads((tmp_path / "bare" / "run.json").read_text(encoding="utf-8"))
    info.pop("files")
    (tmp_path / "bare" / "run.json").write_text(json.dumps(info), encoding="utf-8")
    (tmp_path / "bare" / "config.toml").unlink()
    assert title_of(Run.open(tmp_path / "bare")) == "method not known"
    assert row_of(Run.open(tmp_path / "bare"))["method"] == "method not known"
    assert table([tmp_path / "bare"], last=1).rows_named == ("method not known",)


def test_seeds_of_one_recorded_method_make_a_band(tmp_path: Path) -> None:
    named: dict[str, Any] = {"method": "My", "data": "digits"}
    runs = [recorded(tmp_path / f"my-{seed}", 0.25 * (seed + 1), seed=seed, **named) for seed in (0, 1)]
    (band,) = Curves.of(runs, bands=True).bands
    assert (band.label, band.seeds) == ("my", 2)
    assert band.tail("test_error", 1)[0] == pytest.approx(0.375)
    other = recorded(tmp_path / "lr-1", 0.5, seed=1, settings={"lr": 1}, **named)
    assert len(Curves.of([*runs, other], bands=True).bands) == 2
    twin = recorded(tmp_path / "twin", 0.75, seed=1, **named)
    with pytest.raises(FedscopeError, match=r"were recorded as My with one seed, 1, but hold other models"):
        Curves.of([*runs, twin], bands=True)
    silent = recorded(tmp_path / "silent", 0.5, **named)
    with pytest.raises(FedscopeError, match=r"silent was recorded by .* and says no seed.*Recorder\(method=, seed=\)"):
        Curves.of([*runs, silent], bands=True)


def test_what_a_recorder_was_told_is_kept_and_compared_on_resume(tmp_path: Path) -> None:
    told: dict[str, Any] = {"method": "My", "seed": 3, "settings": {"lr": np.float32(0.5), "a": {"b": [1, "x"]}}}
    recorded(tmp_path / "run", 0.5, **told)
    info = Run.open(tmp_path / "run").info
    assert (info["method"], info["seed"], info["settings"]) == ("My", 3, {"lr": 0.5, "a.b": [1, "x"]})
    fedscope.Recorder(tmp_path / "run", resume=True, **told).close()
    fedscope.Recorder(tmp_path / "run", resume=True).close()
    with pytest.raises(FedscopeError, match=r"was recorded with seed 3, not 4; leave seed= out to go on with it"):
        fedscope.Recorder(tmp_path / "run", resume=True, seed=4)
    recorded(tmp_path / "bare", 0.5)
    with pytest.raises(FedscopeError, match=r"was recorded without method, not 'My'; leave method= out"):
        fedscope.Recorder(tmp_path / "bare", resume=True, method="My")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"method": "a\nb"}, r"method='a\\nb' is not a name; give a line of text"),
        ({"method": " "}, r"method=' ' is not a name"),
        ({"method": 3}, r"method=3 is not a name"),
        ({"seed": -1}, r"seed=-1 is not a whole number from 0"),
        ({"seed": True}, r"seed=True is not a whole number"),
        ({"seed": "0"}, r"seed='0' is not a whole number"),
        ({"settings": ["lr"]}, r"settings= was given as list; give them by name"),
        ({"settings": {3: 1}}, r"settings= has the name 3; give lines of text"),
        ({"settings": {"lr": float("nan")}}, r"settings= has lr = nan, which a run cannot keep"),
        ({"settings": {"net": object}}, r"settings= has net = <class 'object'>, which a run cannot keep"),
        ({"settings": {"run": {"seed": 1}}}, r"settings= has 'run\.seed', which seed= says"),
    ],
)
def test_what_a_run_cannot_keep_is_refused(tmp_path: Path, given: dict[str, Any], said: str) -> None:
    with pytest.raises(FedscopeError, match=said):
        fedscope.Recorder(tmp_path / "run", **given)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("form", ["text", "markdown", "csv", "latex", "typst"])
def test_names_with_signs_keep_to_their_cell(tmp_path: Path, form: str) -> None:
    signs = r"|*_$%&#{}~^\<b>[x]`@"
    run = recorded(tmp_path / "run", 0.25, method=signs, seed=0)
    lines = table([run], last=1).text(form).splitlines()
    (row,) = [line for line in lines if "75.00" in line or "0.75," in line]
    bare = {"text": signs, "csv": signs, "markdown": in_markdown(signs), "latex": in_latex(signs)}
    bare["typst"] = in_typst(signs)
    assert bare[form] in row
