"""Sweeps: what is varied, the plan, the folder that holds it, and what happens to runs that fail."""

from __future__ import annotations

import json
import os
import re
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedscope.checkpoints import FedscopeError, FedscopeWarning, Run, WriterLock
from fedscope.checkpoints.io import atomic
from fedscope.checkpoints.io.shell_words import command_line
from fedscope.command_line import speaking_flags
from fedscope.training import Config, Setup, Sweep, merge, resume, sweep, train_plan
from fedscope.training.config.sources import stored_tables, with_place
from fedscope.training.jobs.progress import Progress
from fedscope.training.jobs.worker import Worker
from fedscope.training.sweeps.axes import read_axes, read_seeds
from fedscope.training.sweeps.plan import FILE, Plan, describe_difference, plan_sweep, read_plan
from fedscope.training.sweeps.printed_commands import resuming
from fedscope.training.sweeps.state import failures_in, keep_failures, rounds_of

SMALL = {
    "data": {"clients": 4},
    "model": {"hidden": [6]},
    "client": {"epochs": 1},
    "run": {"rounds": 2, "participation": 0.5, "evaluate_clients": 0},
}


# --- what is varied, as it is written ---


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("run.participation=0.1,.2", [0.1, 0.2]),
        ("method=fma, FedProx", ["fma", "FedProx"]),
        ("data.partition='shards:2,250',iid", ["shards:2,250", "iid"]),
        ('data.partition="shards:2,250","pathological:2"', ["shards:2,250", "pathological:2"]),
        ("model.hidden=[32],[64, 64]", [[32], [64, 64]]),
        ("data.pool=true,false", [True, False]),
        ("data.name=npz:a=b.npz,digits", ["npz:a=b.npz", "digits"]),
        ("client.lr=1e-3", [0.001]),
        ('run.evaluate_all="1,20,last",none', ["1,20,last", "none"]),
    ],
)
def test_values_are_read_as_in_toml_and_commas_in_quotes_and_brackets_belong_to_them(text: str, values: Any) -> None:
    (axis,) = read_axes([text])
    key = text.partition("=")[0]
    assert [cell[key] for cell in axis] == values
    assert [list(cell) for cell in axis] == [[key]] * len(values)


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        (["method=fma,,ima"], r"^'method=fma,,ima' has an empty value; write method=A,B,C$"),
        (["method=fma,"], r"^'method=fma,' has an empty value; write method=A,B,C$"),
        (["method="], r"^'method=' has an empty value; write method=A,B,C$"),
        (["method= ,fma"], "has an empty value"),
        (["method"], r"^'method' has no values; write them behind it: method=A,B,C$"),
        (["method=fma", "method=ima"], r"^method is given twice; give all of its values in one: method=A,B,C$"),
        (["client.lr=0.1,.1"], r"^client\.lr has the value 0\.1 twice; leave one out$"),
        (["method='fma,ima"], r"opens something that no ' closes; close it$"),
        (["model.hidden=[32,64"], r"opens something that no \] closes; close it$"),
        (["participation=0.1"], r'^\'participation\' is not a setting .*; did you mean "run\.participation"\? write'),
        (["data=digits"], r'^\'data\' is not a setting that can be varied; did you mean "data\.name"\? write section'),
        (["client_test=0.1"], r'did you mean "data\.client_test"\?'),
        (["methd=fma"], r'^\'methd\' is not a setting that can be varied; did you mean "method"\? write section\.key='),
        (["rum.rounds=3"], r'did you mean "run\.rounds"\?'),
        (["run.=3"], "'run.' is not a setting that can be varied"),
        (["xyzzy=3"], r"^'xyzzy' is not a setting that can be varied; write section\.key=value,value as in "),
    ],
)
def test_what_is_no_axis_is_refused(texts: list[str], sentence: str) -> None:
    with pytest.raises(FedscopeError, match=sentence):
        read_axes(texts)


@pytest.mark.parametrize(
    ("text", "seeds"), [("0..4", (0, 1, 2, 3, 4)), ("3", (3,)), ("0,2..3, 7", (0, 2, 3, 7)), ("5..5", (5,))]
)
def test_seeds_have_both_ends(text: str, seeds: tuple[int, ...]) -> None:
    assert read_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "a", "1..", "..3", "4..1", "-1", "0.5", "1,,2", "0...3", "0..4..5"])
def test_other_seeds_are_refused(text: str) -> None:
    with pytest.raises(
        FedscopeError, match=r"--seeds '.*' is not understood; write 0\.\.4 \(both inclusive\) or 0,1,5"
    ):
        read_seeds(text)


def test_a_seed_is_given_once_and_there_are_not_a_million() -> None:
    with pytest.raises(FedscopeError, match="--seeds has 1 twice; leave one out"):
        read_seeds("0..2,1")
    with pytest.raises(FedscopeError, match=r"--seeds '0\.\.9999999999' are more than 10,000 seeds; give fewer"):
        read_seeds("0..9999999999")
    for wrong in (-1, True, 0.5, "0"):
        with pytest.raises(FedscopeError, match="seeds are whole numbers from 0 on"):
            sweep({"method": ["fma"]}, out="nowhere", seeds=[wrong])


# --- the plan ---


def plan_of(*texts: str, seeds: Sequence[int] = (), setup: Setup | None = None, **more: Any) -> Plan:
    settings = merge(SMALL, more.pop("settings", {}))
    return plan_sweep(setup or Setup(), read_axes(texts), seeds, settings, **more)


def test_the_runs_are_all_combinations_named_by_what_they_vary() -> None:
    plan = plan_sweep(
        Setup(), read_axes(["method=fma,FedProx", "run.participation=0.25,0.5"]), (0, 7), {"run": {"rounds": 2}}
    )
    assert [run.name for run in plan.runs] == [
        f"{method}-participation{share}-seed{seed}"
        for method in ("fma", "fedprox")
        for share in ("0.25", "0.5")
        for seed in (0, 7)
    ]
    for run in plan.runs:
        assert run.config.run.seed == run.config.data.seed == run.seed
        assert run.config.run.participation == run.cell["run.participation"]
    assert plan.rounds == 8 * 2


@pytest.mark.parametrize(
    ("texts", "names"),
    [
        (["average.method=none,ima"], ["fma", "ima"]),
        (["method=fma,fedprox", "average.method=none,ima"], ["fma", "fma-ima", "fedprox", "fedprox-ima"]),
        (["data.partition='shards:2,9',iid"], ["shards-2-9", "iid"]),
        (["data.name=npz:a/b.npz,npz:a-b.npz"], ["npz-a-b.npz", "npz-a-b.npz-2"]),
        (["data.name=..,digits"], ["ima", "digits"]),
        (["model.hidden=[8],[8, 8]"], ["hidden-8", "hidden-8-8"]),
        (["client.lr=1e-05,0.1"], ["lr1e-05", "lr0.1"]),
        (["client.lr=1e30,1e-30"], ["lr1e30", "lr1e-30"]),
    ],
)
def test_names_are_folders_and_each_is_anothers(texts: list[str], names: list[str]) -> None:
    settings = {key: value for key, value in SMALL.items() if key != "model" or "model" not in texts[0]}
    plan = plan_sweep(Setup(), read_axes(texts), (), settings)
    assert [run.name for run in plan.runs] == names


def test_a_name_is_never_longer_than_a_file_may_be_called() -> None:
    long = "npz:" + "x" * 300
    plan = plan_of(f"data.name={long}1,{long}2", seeds=(0, 1))
    names = [run.name for run in plan.runs]
    assert len(set(names)) == 4
    assert max(map(len, names)) <= 150


def test_a_setting_of_all_runs_is_one_of_those_whose_method_has_it() -> None:
    settings = SMALL | {"average": {"window": 2}, "client": {"epochs": 1, "mu": 0.5}}
    axes = read_axes(["method=fma,fedprox", "average.method=none,ima"])
    runs = {run.name: run.config.tables() for run in plan_sweep(Setup(), axes, (), settings).runs}
    assert {name: tables["average"].get("window") for name, tables in runs.items()} == {
        "fma": None, "fma-ima": 2, "fedprox": None, "fedprox-ima": 2
    }  # fmt: skip
    assert {name: tables["client"].get("mu") for name, tables in runs.items()} == {
        "fma": None, "fma-ima": None, "fedprox": 0.5, "fedprox-ima": 0.5
    }  # fmt: skip
    for wrong in ({"average": {"cycle": 2}}, {"client": {"muu": 0.5}}):
        with pytest.raises(FedscopeError, match=r"cycle|muu"):
            plan_sweep(Setup(), axes, (), merge(SMALL, wrong))
    # what is a setting of the default average alone is one of no run here
    with pytest.raises(FedscopeError, match=r"average\.window is not a setting of NoAverage"):
        plan_sweep(
            Setup(),
            read_axes(["average.method=none,swa"]),
            (),
            merge(SMALL, {"run": {"rounds": 60}, "average": {"window": 2}}),
        )


def test_seeds_alone_are_a_sweep_of_what_is_given() -> None:
    assert [run.name for run in plan_of(seeds=(0, 1)).runs] == ["seed0", "seed1"]
    assert [run.name for run in plan_sweep(Setup("ima/fig1"), (), (4,)).runs] == ["seed4"]
    for setup in (Setup(), Setup("ima/fig1")):
        with speaking_flags(), pytest.raises(FedscopeError, match=r"to vary; give keys, as in .*, or --seeds 0\.\.2$"):
            plan_sweep(setup, ())


def test_keys_take_the_place_of_what_a_recipe_varies() -> None:
    setup = Setup("ima/table1-cifar10-cnn-dir0.1")
    assert len(plan_sweep(setup, ()).runs) == 16
    own = plan_sweep(setup, read_axes(["method=scaffold,fedadam", "average.method=ima"]))
    assert [run.name for run in own.runs] == ["scaffold-ima", "fedadam-ima"]
    assert [getattr(run.config.average, "before_server", None) for run in own.runs] == [False, True]


@pytest.mark.parametrize(
    ("texts", "more", "sentence"),
    [
        (["run.particpation=0.1"], {}, r'run\.particpation is not a setting; did you mean "participation"\?'),
        (["run.rounds=3,many"], {}, r"run\.rounds = 'many' has the wrong type: it takes a whole number"),
        (["run.participation=0.1,2"], {}, r"run\.participation = 2 is out of range: it must be at most 1"),
        (["method=fma,fedproxx"], {}, r"--method 'fedproxx' is not a method .*; did you mean \"fedprox\"\?"),
        (["client.mu=0.1", "method=fma"], {}, r"client\.mu is not a setting of SGD"),
        (
            ["method=fma,fedprox", "client.mu=0.1,1"],
            {},
            r"^client\.mu is varied, which method=fedprox has and method=fma does not; make two sweeps, one of the "
            r"methods that have it and one of the others, and compare them: fedscope table SWEEP SWEEP$",
        ),
        (["method=fma,fedavg"], {}, r"^method=fma and method=fedavg are the same run, setting by setting; leave one"),
        (["run.seed=1,2"], {"seeds": (0, 1)}, r"^run\.seed is given twice, by itself and by --seeds; leave one out$"),
        (
            ["method=fma,ima"],
            {"seeds": (0,), "settings": {"data": {"seed": 3}}},
            r"^data\.seed is given twice, by itself and by --seeds; leave one out$",
        ),
        (
            ["run.rounds=2,3"],
            {},
            r"^--set run\.rounds sets what the sweep varies; leave one out$",
        ),
        (
            [f"run.rounds={','.join(map(str, range(1, 102)))}"],
            {"seeds": range(100)},
            r"these are 10,100 runs, more than",
        ),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused_before_anything_is_made(
    texts: list[str], more: dict[str, Any], sentence: str
) -> None:
    settings = more.pop("settings", {})
    base = {} if "sets what" not in sentence else SMALL
    with pytest.raises(FedscopeError, match=sentence):
        plan_sweep(Setup(), read_axes(texts), more.get("seeds", ()), merge(base, settings))


def test_a_setting_of_all_runs_is_none_that_the_recipe_varies() -> None:
    said = r"run\.participation sets what ima/fig6b varies; give what is to be varied yourself, as in "
    with pytest.raises(FedscopeError, match=rf'^{said}\{{"run\.participation": \[A, B, C\]\}}$'):
        sweep(recipe="ima/fig6b", settings={"run.participation": 0.5}, out="nowhere")
    with speaking_flags(), pytest.raises(FedscopeError, match=rf"^--set {said}run\.participation=A,B,C$"):
        plan_sweep(Setup("ima/fig6b"), (), (), {"run": {"participation": 0.5}})
    assert plan_sweep(Setup("ima/fig6b"), (), (), {"run": {"rounds": 5}}).runs[0].config.run.rounds == 5


FORM = r'give settings with their values, as \{"method": \["fma", "ima"\]\}'


def test_from_python_axes_are_mappings_or_cells() -> None:
    for axes, sentence in (
        ({"method": "fma"}, r"method has 'fma', which is not a list of values; give one, as in \['fma'\]"),
        (
            "method=fma,ima",
            r"axes are 'method=fma,ima', a text; give settings with their values, as \{.method.: \[.fma., .ima.\]\}$",
        ),
        ({"method": "fma,ima"}, r"; give one, as in \['fma', 'ima'\]$"),
        ({"client.lr": "0.1,0.2"}, r"; give one, as in \[0\.1, 0\.2\]$"),
        ({"data.partition": "iid,shards:2,250"}, r"; give one, as in \['iid', 'shards:2,250'\]$"),
        ({"model.hidden": "[32,64],[16,8]"}, r"; give one, as in \[\[32, 64\], \[16, 8\]\]$"),
        ({"model.hidden": "32"}, r"; give one, as in \[\[32\]\]$"),
        ({"server.method": "m:F(a=1,b=2),fma"}, r"; give one, as in \['m:F\(a=1,b=2\)', 'fma'\]$"),
        ({"client.lr": ""}, r"^client\.lr has '', which is not a list of values; give one, as in \[A, B\]$"),
        (
            {"client.lr": np.array(0.1)},
            r"^client\.lr has 0\.1, which is not a list of values; give one, as in \[0\.1\]$",
        ),
        ({"run": {"rounds": range(1, 3)}}, r"; give \{'run\.rounds': \[1, 2\]\}$"),
        ({"client": {"lr": np.array([0.1, 0.2])}}, r"; give \{'client\.lr': \[0\.1, 0\.2\]\}$"),
        ({"model": {"hidden": [32]}}, r"; give \{'model\.hidden': \[\[32\]\]\}$"),
        (
            {"model": {"name": "lstm", "hidden": [32]}},
            r"; give \{'model\.name': \['lstm'\], 'model\.hidden': \[32\]\}$",
        ),
        ({"data": {"partition": "iid,shards:2"}}, r"; give \{'data\.partition': \['iid', 'shards:2'\]\}$"),
        (
            {"client": {"lr": [0.1, 0.2]}},
            r"^client has a table of settings, and each setting is varied by its whole name; give \{'client\.lr': "
            r"\[0\.1, 0\.2\]\}$",
        ),
        (
            {"lr": [0.1, 0.2]},
            r"^'lr' is not a setting that can be varied; did you mean \"client\.lr\"\? give it as in "
            r'\{"run\.participation": \[0\.1, 0\.2\]\}, or methods as in \{"method": \["fma", "ima"\]\}$',
        ),
        ({"method": []}, r"^method has no values; give some, or leave it out$"),
        ({"method": ["fma", Fraction]}, r"a sweep writes its values into files; .* as 'fractions:Fraction'"),
        ([[{"method": "fma"}, {"method": Fraction(1)}]], r"a sweep writes its values into files; give the name of"),
        ({"server": [Fraction]}, r"'server' is not a setting that can be varied; did you mean \"server.method\"\?"),
        ({"server": ["fractions:Fraction"]}, r"'server' is not a setting that can be varied; did you mean \"server.m"),
        ({"run.rounds": [2, 2]}, "run.rounds has the value 2 twice"),
        (
            {"method": {"fma", "ima"}},
            r"^method has a set of values, which has no order; give a list, as in \['fma', 'ima",
        ),
        ({"method": {"fma": 1}}, r"^method has \{'fma': 1\}, which is not a list of values"),
        (["method=fma,ima"], rf"^axes have 'method=fma,ima', which is no list of cells; {FORM}$"),
        ([["fma", "ima"]], rf"^axes have the cell 'fma', which is no mapping of settings; {FORM}$"),
        ([("method", ["fma", "ima"])], rf"^axes have the cell 'method', which is no mapping of settings; {FORM}$"),
        ([{"method": ["fma"]}], rf"^axes have \{{'method': \['fma'\]\}}, which is no list of cells; {FORM}$"),
        (3, rf"^axes are 3, no mapping; {FORM}$"),
        ({"rounds": [2, 3]}, r"'rounds' is not a setting .*; did you mean \"run\.rounds\""),
        ([[{"run.rounds": 2}], [{"run.rounds": 3}]], "run.rounds is varied twice; give all of its values in one axis"),
    ):
        with pytest.raises(FedscopeError, match=sentence):
            sweep(axes, out="nowhere")
    assert not Path("nowhere").exists()
    for none in ({"method": ["fma"]}, {"method": {"fma": 1}.keys()}, {"method": iter(["fma"])}):
        with pytest.raises(FedscopeError, match=r"^None is no path; give text or a pathlib\.Path$"):
            sweep(none, out=None)  # type: ignore[arg-type]


def test_at_a_scale_cells_that_became_one_run_are_left_out_and_it_is_said() -> None:
    plan = plan_sweep(Setup("ima/fig7b", scale=0.01), ())
    assert [(run.config.average.start, run.config.average.window) for run in plan.runs] == [(2, 2), (3, 2)]
    assert plan.notes[0].startswith("scale 0.01: 4 of 400 rounds, 20 of 100 clients (two a round at least), 1 % of")
    assert plan.notes[0].count("4 of 400 rounds") == 1
    assert plan.notes[1:] == ("2 of 8 runs differ at this scale; the others are left out",)
    # what the user varies is not made smaller
    typed = plan_sweep(Setup("ima/fig7b", scale=0.1), read_axes(["average.start=7,9", "average.method=ima"]))
    assert [run.config.average.start for run in typed.runs] == [7, 9]
    assert typed.runs[0].config.run.rounds == 40


# --- the folder ---


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    given = {"run": {"rounds": 9}, "model": {"hidden": [6, 6]}}
    for plan in (
        plan_sweep(Setup("ima/table2", scale=0.1), (), (0, 1)),
        plan_sweep(Setup("", given), read_axes(["method=fma,ima"]), ()),
    ):
        folder = tmp_path / str(len(plan.runs))
        folder.mkdir()
        plan.write(folder)
        plan.write_given(folder)
        again = read_plan(folder)
        assert again.runs == plan.runs
        assert again.about == json.loads(json.dumps(plan.about))
        assert again.stored == plan.stored
        assert again.notes == plan.notes
        assert (folder / "config.toml").exists() == bool(plan.stored)
        assert describe_difference(again, plan) == ""
    assert stored_tables(folder / "config.toml") == given


def damaged(change: Callable[[dict[str, Any]], None], folder: Path) -> None:
    raw = json.loads((folder / FILE).read_text())
    change(raw)
    (folder / FILE).write_text(json.dumps(raw))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda raw: raw.update(format="other"), "is not the plan of a sweep; give the --out of fedscope sweep"),
        (lambda raw: raw.update(version=99), "is of version 99, this fedscope knows 1; update fedscope"),
        (lambda raw: raw.pop("runs"), "is truncated or not the plan of a sweep"),
        (
            lambda raw: raw["runs"][0].update(config={"run": {"rounds": "many"}}),
            "run.rounds = 'many' has the wrong type",
        ),
        (
            lambda raw: raw["runs"][0].update(name="../../elsewhere"),
            "its run '../../elsewhere' does not belong to a sweep",
        ),
        (lambda raw: raw["runs"][0].update(name="ima"), "its run 'ima' does not belong to a sweep"),
        (
            lambda raw: raw["runs"][0].update(arguments=["--task", "evil:main"]),
            "its run 'fma' does not belong to a sweep",
        ),
        (lambda raw: raw["runs"][0].update(arguments=["--resume"]), "its run 'fma' does not belong to a sweep"),
        (lambda raw: raw["runs"][0].update(after=["nobody", 1]), "its run 'fma' does not belong to a sweep"),
    ],
)
def test_a_plan_that_no_sweep_has_written_is_refused(
    change: Callable[[dict[str, Any]], None], sentence: str, tmp_path: Path
) -> None:
    plan_of("method=fma,ima").write(tmp_path)
    damaged(change, tmp_path)
    with pytest.raises(FedscopeError, match=sentence.replace(".", r"\.")):
        read_plan(tmp_path)
    with pytest.raises(FedscopeError):
        train_plan(plan_of("method=fma,ima"), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [FILE], "nothing was made"


@pytest.mark.parametrize("text", ["", "[]", "{", "\x00" * 30])
def test_a_file_that_is_no_plan_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(FedscopeError, match=f"{FILE} is"):
        read_plan(tmp_path)


def test_what_is_no_sweep_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FedscopeError, match=r"is not a sweep: it has no sweep\.json; give the --out of fedscope sweep"):
        Sweep.open(tmp_path)
    with pytest.raises(FedscopeError, match=r"is not a sweep: it has no sweep\.json"):
        Sweep.open(tmp_path / "nowhere")


def test_a_folder_with_something_else_is_left_alone(tmp_path: Path) -> None:
    plan = plan_of("method=fma,ima")
    (tmp_path / "thesis.tex").write_text("mine")
    (tmp_path / "config.toml").write_text("mine")
    with pytest.raises(FedscopeError, match=r"exists and is not a sweep: it holds config\.toml; give another --out"):
        train_plan(plan, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.toml", "thesis.tex"]
    with pytest.raises(FedscopeError, match="exists and is a file; give another --out"):
        train_plan(plan, tmp_path / "thesis.tex")
    with pytest.raises(FedscopeError, match=r"cannot be made \(.*\); give another --out"):
        train_plan(plan, tmp_path / "thesis.tex" / "sweep")


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        (
            ["method=fma,fedprox"],
            "holds another sweep, without fedprox; give another --out, or fedscope sweep",
        ),
        (["method=fma"], "holds another sweep, with ima; give another --out"),
        (["method=fma,ima", "run.rounds=2"], None),
    ],
)
def test_a_folder_with_another_sweep_says_what_differs(texts: list[str], sentence: str | None, tmp_path: Path) -> None:
    plan_of("method=fma,ima").write(tmp_path)
    settings = {**SMALL, "run": {"participation": 0.5, "evaluate_clients": 0}} if sentence is None else SMALL
    asked = plan_sweep(Setup(), read_axes(texts), (), settings)
    with pytest.raises(FedscopeError, match=sentence or "holds another sweep, without fma-rounds2"):
        train_plan(asked, tmp_path)
    other = plan_of("method=fma,ima", settings={"client": {"lr": 0.3}})
    with pytest.raises(FedscopeError, match=r"holds another sweep, with client\.lr = 0\.05 in fma, not 0\.3; give"):
        train_plan(other, tmp_path)
    assert describe_difference(read_plan(tmp_path), plan_of("method=fma,ima", share=False)) == "", (
        "the runs are the same"
    )


def test_a_beginning_that_was_killed_is_no_obstacle(tmp_path: Path) -> None:
    """What a kill leaves before the plan is there, and between the plan and the configuration."""
    from fedscope.training.sweeps.sweep import rounds_there

    plan = plan_of("method=fma", setup=Setup("", {"run": {"seed": 3}}))
    (tmp_path / ".writer").write_text("1\n")
    (tmp_path / f".{FILE}.0a1b2c3d.tmp").write_text("{")
    assert rounds_there(plan, tmp_path) == {"fma": None}
    plan.write(tmp_path)
    assert rounds_there(plan, tmp_path) == {"fma": None}
    plan.write_given(tmp_path)
    assert stored_tables(tmp_path / "config.toml") == {"run": {"seed": 3}}


def test_two_processes_do_not_train_one_sweep(tmp_path: Path) -> None:
    with WriterLock(tmp_path), pytest.raises(FedscopeError, match="is being written by this program itself"):
        train_plan(plan_of("method=fma"), tmp_path)


def test_who_goes_on_is_not_told_to_give_another_out(
    tmp_path: Path, recorded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep, or a run, that another process writes; --resume takes no --out."""
    plan = plan_of("method=fma")
    plan.write(tmp_path)
    run = recorded(tmp_path / "begun", "--method", "fma", "--clients", "4", "--rounds", "2", "--until", "1")
    own = f"is being written by process {os.getpid()}; wait until it ends"
    with WriterLock(tmp_path), WriterLock(run):
        monkeypatch.setattr(atomic, "_HELD", frozenset())  # as of another process
        for path, go_on in ((tmp_path, lambda: train_plan(plan, tmp_path)), (run, lambda: resume(run))):
            with pytest.raises(FedscopeError, match=f"^{re.escape(f'{path} {own}, or stop it')}$"):
                go_on()
        monkeypatch.undo()


def test_a_run_of_other_settings_is_not_taken_for_the_plans(tmp_path: Path, recorded: Any) -> None:
    plan = plan_of("method=fma,ima")
    words = "--clients 4 --participation 0.5 --rounds 2 --epochs 1 --set model.hidden=[6] --set run.evaluate_clients=0"
    recorded(tmp_path / "runs" / "fma", "--method", "fma", *words.split())
    assert rounds_of(tmp_path, plan.of("fma")) == 2
    assert rounds_of(tmp_path, plan.of("ima")) is None
    shutil.copytree(tmp_path / "runs" / "fma", tmp_path / "runs" / "ima")
    with pytest.raises(
        FedscopeError, match=r"runs/ima is not the run .*: its average\.method is none, not ima; move it"
    ):
        rounds_of(tmp_path, plan.of("ima"))


def test_failures_are_kept_until_the_run_is_complete(tmp_path: Path) -> None:
    plan = plan_of("method=fma,ima")
    assert failures_in(tmp_path, plan) == {}
    keep_failures(tmp_path, {"fma": "it diverged", "gone": "of another plan"})
    assert failures_in(tmp_path, plan) == {"fma": "it diverged"}
    keep_failures(tmp_path, {})
    assert not (tmp_path / "failures.json").exists()
    for text in ("[1]", "null", "3"):
        (tmp_path / "failures.json").write_text(text)
        with pytest.raises(FedscopeError) as refused:
            failures_in(tmp_path, plan)
        again = command_line(*resuming(plan, tmp_path))
        assert str(refused.value) == (
            f"{tmp_path}/failures.json is damaged: it is no JSON object; remove it, and train again: {again}"
        )
    (tmp_path / "failures.json").write_text("{")
    with pytest.raises(FedscopeError, match=r"is not JSON .*; remove it, and train again: fedscope sweep --resume"):
        failures_in(tmp_path, plan)


def test_a_mistake_of_a_file_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text("[run]\nround = 3\n")
    stored = stored_tables(path)
    with pytest.raises(FedscopeError) as found:
        Config.read(stored)
    assert str(with_place(found.value, path, stored)).startswith(f"{path}: run.round is not a setting")
    assert str(with_place(FedscopeError("another"), path, stored)) == "another"


# --- training, in a process of its own ---


class Watched(Progress):
    """Who has ended, how; and whether rounds were counted."""

    def __init__(self) -> None:
        self.over: dict[str, str | None] = {}
        self.first: list[str] = []
        self.most = 0

    def begin(self, complete: Sequence[str]) -> None:
        self.first = list(complete)

    def advance(self, done: int, of: int) -> None:
        assert 0 <= done <= of
        self.most = max(self.most, done)

    def ended(self, name: str, failure: str | None) -> None:
        self.over[name] = failure


@pytest.mark.slow  # in the fast suite through the command
def test_a_run_that_fails_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    """A diverging rate; a run in whose place another one lies."""
    axes = {"client.lr": [1e6, 0.05, 0.1]}
    out, watched = tmp_path / "sweep", Watched()
    (out / "runs").mkdir(parents=True)
    plan = plan_sweep(Setup(), [[{key: value} for value in values] for key, values in axes.items()], (), SMALL)
    plan.write(out)
    from fedscope.training import train

    train(Config.read(merge(SMALL, {"client": {"lr": 0.7}})), out / "runs" / "lr0.1")
    made = sweep(axes, settings=SMALL, out=out, watcher=watched)
    assert [run.name for run in made.runs] == ["lr0.05"]
    assert made.missing == ("lr1000000.0", "lr0.1")
    assert dict(made.failures).keys() == {"lr1000000.0", "lr0.1"}
    assert made.failures["lr1000000.0"].startswith("round 1: the training loss of client")
    assert "its client.lr is 0.7, not 0.1; move it elsewhere" in made.failures["lr0.1"]
    assert watched.over == {**made.failures, "lr0.05": None}
    assert watched.first == []
    assert dict(Sweep.open(out).failures) == dict(made.failures), "they are kept"
    assert "fedscope train" in (out / "logs" / "lr1000000.0.log").read_text()


@pytest.mark.slow
def test_the_same_call_goes_on_with_what_is_lacking(tmp_path: Path) -> None:
    axes, out, again = {"client.lr": [1e6, 0.05, 0.1]}, tmp_path / "sweep", Watched()
    sweep(axes, settings=SMALL, out=out)
    shutil.rmtree(out / "runs" / "lr0.1")
    again, before = Watched(), Run.open(out / "runs" / "lr0.05").info["created"]
    made = sweep(axes, settings=SMALL, out=out, watcher=again)
    assert [run.name for run in made.runs] == ["lr0.05", "lr0.1"]
    assert list(made.failures) == ["lr1000000.0"]
    assert again.first == ["lr0.05"]
    assert again.over.keys() == {"lr1000000.0", "lr0.1"}
    assert Run.open(out / "runs" / "lr0.05").info["created"] == before, "what is complete is left alone"


@pytest.mark.slow
def test_a_worker_that_is_killed_is_replaced(tmp_path: Path) -> None:
    settings = [
        "--clients",
        "4",
        "--participation",
        "0.5",
        "--rounds",
        "1",
        "--epochs",
        "1",
        "--set",
        "model.hidden=[6]",
    ]
    words = ["train", "--method", "fma", *settings]
    with Worker() as worker:
        for number in range(2):
            worker.begin([*words, "--out", str(tmp_path / f"run{number}")], tmp_path / f"{number}.log")
            while (status := worker.status(0.2)) is None:
                pass
            assert status == 0, (tmp_path / f"{number}.log").read_text()
            process = worker._process
            assert process is not None
            if number == 0:
                process.kill()
                process.wait()
    assert process.poll() is not None, "it ends with the block"
    assert Run.open(tmp_path / "run1").rounds == (1,)


@pytest.mark.slow
def test_relative_paths_begin_where_the_sweep_was_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few_digits: None
) -> None:
    from fedscope.training import load_data

    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    monkeypatch.chdir(tmp_path / "first")
    data = load_data("digits")
    arrays: Mapping[str, Any] = {name: getattr(data, name) for name in ("x_train", "y_train", "x_test", "y_test")}
    np.savez("own.npz", **arrays)
    settings = merge(SMALL, {"data": {"name": "npz:own.npz"}})
    plan = plan_sweep(Setup(), read_axes(["method=fma"]), (), settings)
    monkeypatch.chdir(tmp_path / "second")
    made = train_plan(plan, Path("out"))
    assert dict(made.failures) == {}
    assert made.runs[0].config is not None
    assert made.runs[0].config["data"]["name"] == f"npz:{tmp_path / 'first' / 'own.npz'}"


def test_a_data_set_that_changed_between_two_stops_is_said_and_makes_no_mean(tmp_path: Path, few_digits: None) -> None:
    from fedscope import curves
    from fedscope.training import load_data, table

    data = load_data("digits")
    arrays: Mapping[str, Any] = {name: getattr(data, name) for name in ("x_train", "y_train", "x_test", "y_test")}
    for name in "ab":
        np.savez(tmp_path / f"{name}.npz", **{**arrays, "x_test": arrays["x_test"] * (1 if name == "a" else 2)})
    names = [f"npz:{tmp_path / name}.npz" for name in "ab"]
    plan = plan_sweep(Setup(), [[{"data.name": name} for name in names]], (0, 1), SMALL)
    out = tmp_path / "out"
    with warnings.catch_warnings():
        warnings.simplefilter("error", FedscopeWarning)
        made = train_plan(plan, out)
        assert [len(cell.values) for cell in table(made).cells] == [2, 2]
        curves(made)
    with pytest.raises(FedscopeError, match=r"on different data .* do not compare"):
        table(made, best_of=["data.name"])  # a choice compares them
    shutil.rmtree(out / "runs" / plan.runs[1].name)
    np.savez(tmp_path / "a.npz", **{**arrays, "x_train": arrays["x_train"] + 1})
    one, other = (out / "runs" / plan.runs[i].name for i in (0, 1))
    with pytest.warns(FedscopeWarning, match="on other data") as told:
        made = train_plan(plan, out)
    assert [str(one.message) for one in told] == [
        f"{other} was trained on other data than {one}, though both have data.name = {names[0]}: it has changed in "
        f"between; move the runs on one of the two elsewhere, and fedscope sweep --resume {out} trains them again"
    ]
    with pytest.warns(FedscopeWarning, match="on other data"):
        train_plan(plan, out)  # which trains nothing
    with pytest.raises(FedscopeError, match=rf"{one.name} and {other.name} were trained .* both called {names[0]} "):
        table(made)
    both = f"{one.name} and {other.name} are on different data that are both called {names[0]}, so"
    with pytest.warns(FedscopeWarning, match=both):
        curves(made)


def test_a_path_is_a_value() -> None:
    from fedscope.training.sweeps.axes import refuse_code

    for value in (Path("w.npz"), "w.npz", 0.1, [8, 4], None, True):
        refuse_code("model.weights", value)
    with pytest.raises(FedscopeError, match="a sweep writes its values into files"):
        refuse_code("model.weights", object())
