"""``--data-of``: whose data models are measured on, and how far flatness on all clients' data is from that on one's."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedscope
from fedscope.analysis.execution import Execution
from fedscope.checkpoints import FedscopeError, Run, load_model, write_file
from fedscope.cli.main import run as command
from fedscope.evaluation.evaluator import Evaluator
from fedscope.landscape import Line, Plane, Planes, Sharpness
from fedscope.landscape.curvature.derivatives import Derivatives
from fedscope.training import data_of, module_of
from fedscope.training.inputs.data_of import SampleSet

pytestmark = pytest.mark.usefixtures("few_digits")

QUICK: dict[str, Any] = {"draws": 2, "probes": 2, "top": 1}
LAST = "runs/ima@last/global"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, recorded: Callable[..., Path]) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    words = ["--method", "ima", "--rounds", "2", "--set", "model.hidden=[8]"]
    for name, clients, share in (("ima", "5", "0.6"), ("whole", "4", "1"), ("six", "6", "0.5")):
        recorded(folder / "runs" / name, *words, "--clients", clients, "--participation", share)
    return folder


@pytest.fixture
def here(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def cohort(name: str = "ima") -> list[int]:
    return [int(k) for k in Run.open(f"runs/{name}").round("last").client_ids]


def values(result: Sharpness, place: str) -> dict[str, tuple[float | None, float | None]]:
    (model,) = [one for one in result.models if one.place == place]
    return {one.name: (one.value, one.stderr) for one in model.measures}


def test_all_clients_data_give_the_numbers_of_the_training_split(here: Path) -> None:
    for limit in (None, 40):
        plain = fedscope.sharpness(LAST, limit=limit, **QUICK)
        assert values(fedscope.sharpness(LAST, data_of="all", limit=limit, **QUICK), "all") == values(plain, "")


def test_all_leaves_out_what_no_client_holds(here: Path) -> None:
    path = Path("runs/ima")
    run = Run.open(path)
    assert run.partition is not None
    kept = tuple(rows[1:] for rows in run.partition.clients)
    run.partition = replace(run.partition, clients=kept)
    resolved: Any = type("Posed", (), {"runs": (run,), "dataset": data_of(run)})
    samples, about = SampleSet("all", "", "train").read(resolved, fedscope.analysis.settings.EvaluationConfig("train"))
    assert samples.indices.tolist() == sorted(np.concatenate(kept).tolist())
    assert about["clients"] == "all"


def test_a_clients_data_are_as_good_as_a_run_on_nothing_else(here: Path) -> None:
    k, run = cohort()[0], Run.open("runs/ima")
    assert run.partition is not None
    module, whole, rows = module_of(run), data_of(run).samples("train"), run.partition.clients[k]
    own = replace(whole, x=whole.x[rows], y=whole.y[rows], indices=rows)
    made = fedscope.sharpness(LAST, data_of=f"client-{k}", **QUICK)
    assert (made.attrs["client"], made.attrs["samples"], made.models[0].samples) == (k, len(rows), len(rows))
    found, w = values(made, f"client-{k}"), run.round("last").read("global")
    loss, gradient = Derivatives(module, own).gradient(w)
    assert found["gradient_norm"][0] == float(np.linalg.norm(gradient))
    assert found["loss"][0] == Evaluator(module, own).models(w)[0][0] == pytest.approx(loss, rel=1e-5)
    alone = fedscope.sharpness(w, data=(own.x.numpy(), own.y.numpy()), model=module, **QUICK)
    assert found == values(alone, "")
    assert fedscope.sharpness(LAST, data_of=k, **QUICK).numbers() == made.numbers()


def test_own_is_each_clients_model_on_its_clients_data(here: Path) -> None:
    ids = cohort()[:2]
    models = [f"runs/ima@last/client-{k}" for k in ids]
    made = fedscope.sharpness(models, data_of="own", hessian=False, draws=2)
    assert [(one.model, one.place) for one in made.models] == [(f"client-{k}", f"client-{k}") for k in ids]
    for model, k in zip(models, ids, strict=True):
        assert values(made, f"client-{k}") == values(
            fedscope.sharpness(model, data_of=k, hessian=False, draws=2), f"client-{k}"
        )
    both = fedscope.sharpness(models, data_of="clients", hessian=False, draws=2)
    assert [one.place for one in both.models] == [f"client-{k}" for k in ids] * 2


def test_the_flatness_distance_is_that_of_the_numbers(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sharpness", LAST, "--data-of", "every", "--draws", "2", "--probes", "2", "--top", "1", "--out", "e"]
    assert command(words) == 0
    said, ids = capsys.readouterr().out, cohort()
    made = Sharpness.load("e")
    assert [one.place for one in made.models] == ["all", *(f"client-{k}" for k in ids)]
    assert len(made.distances) == len(made.models[0].measures)
    for one in made.distances:
        own = np.array([values(made, f"client-{k}")[one.measure][0] for k in ids], float)
        everyone = values(made, "all")[one.measure][0]
        assert everyone is not None
        assert (one.clients, one.everyone, one.mean) == (len(ids), everyone, own.mean())
        assert one.stderr == one.distance_stderr == pytest.approx(np.std(own, ddof=1) / len(ids) ** 0.5, rel=1e-12)
        assert one.distance == pytest.approx(everyone - own.mean(), rel=1e-12)
    top = next(one for one in made.distances if one.measure == "eigenvalue_1")
    assert f"ima@2/global on all clients' data against the data of each of {len(ids)} clients" in said
    assert f"largest eigenvalue {top.everyone:.3g} against {top.mean:.3g} ± {top.stderr:.2g} (distance" in said
    with Path("e.distance.csv").open() as file:
        rows = {row["measure"]: row for row in csv.DictReader(file)}
    assert float(rows["trace"]["distance"]) == next(one.distance for one in made.distances if one.measure == "trace")
    with Path("e.sharpness.csv").open() as file:
        counts = {row["place"]: int(row["samples"]) for row in csv.DictReader(file)}
    partition = Run.open("runs/ima").partition
    assert partition is not None
    everyone = len(np.unique(np.concatenate(partition.clients)))
    assert counts == {"all": everyone, **{f"client-{k}": len(partition.clients[k]) for k in ids}}
    assert Path("e.png").exists()
    # the same without clients' data leaves no table of distances of the earlier one
    assert command([*words[:2], *words[4:], "--force"]) == 0
    assert not Path("e.distance.csv").exists()


def test_where_all_take_part_the_trace_is_the_weighted_mean_and_the_worst_is_below(here: Path) -> None:
    made = fedscope.sharpness("runs/whole@last/global", data_of="every", **QUICK)
    own = [one for one in made.models if one.place != "all"]
    p = np.array([one.samples for one in own], float)
    p /= p.sum()

    def mean(name: str) -> float:
        return float(p @ [values(made, one.place)[name][0] for one in own])

    everyone = {name: value for name, (value, _) in values(made, "all").items()}
    assert len(own) == 4
    # of float32 products with the same vectors; the loss of float32 means
    assert everyone["trace"] == pytest.approx(mean("trace"), rel=1e-4)
    assert everyone["loss"] == pytest.approx(mean("loss"), rel=1e-5)
    assert everyone["eigenvalue_1"] is not None
    assert everyone["eigenvalue_1"] <= mean("eigenvalue_1") * (1 + 1e-6)


def test_each_set_of_samples_is_read_and_measured_once(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedscope.landscape.curvature import many_models

    read: list[str] = []
    whole = SampleSet.read
    monkeypatch.setattr(SampleSet, "read", lambda one, *rest: read.append(one.name) or whole(one, *rest))
    measured: list[tuple[str, str]] = []
    measure = many_models.measure_part
    monkeypatch.setattr(
        many_models,
        "measure_part",
        lambda part, about: measured.append((about.label, part.name)) or measure(part, about),
    )
    models = ["runs/whole@1/global", "runs/whole@2/global"]
    asked = fedscope.sharpness.prepare(models, data_of="every", hessian=False, draws=2)
    first = asked.answer(Execution(keep=Path("x.partial")))
    assert sorted(read) == ["all", *(f"client-{k}" for k in range(4))]
    assert len(measured) == len(set(measured)) == 2 * 5 * 6
    # and what was finished is not measured again, on whose data so ever
    again = fedscope.sharpness.prepare(models, data_of="every", hessian=False, draws=2)
    assert again.answer(Execution(keep=Path("x.partial"))).numbers() == first.numbers()
    assert len(measured) == 2 * 5 * 6
    assert [one.label for one in first.models][:2] == ["whole@1/global on all", "whole@1/global on client-0"]


def test_results_without_places_are_still_read(here: Path) -> None:
    made = fedscope.sharpness(LAST, limit=40, **QUICK)
    made.save("old")
    table, about = Path("old.sharpness.csv"), Path("old.sharpness.json")
    lines = table.read_text().splitlines()
    for version, last in ((2, ",place"), (1, ",stderr")):  # without layers, and without places too
        lines = [line.rpartition(",")[0] for line in lines]
        assert lines[0].endswith(last)
        table.write_text("\n".join(lines) + "\n")
        said = json.loads(about.read_text()) | {"version": version, "table_xxh3": {}}
        about.write_text(json.dumps(said))
        assert Sharpness.load("old").numbers() == made.numbers()
    table.write_text("\n".join(line.rpartition(",")[0] for line in lines) + "\n")
    with pytest.raises(FedscopeError, match=r"old\.sharpness\.csv is not a table of `fedscope sharpness`"):
        Sharpness.load("old")


def test_the_figure_has_a_dot_a_client(here: Path) -> None:
    made = fedscope.sharpness("runs/whole", data_of="every", rounds="all", **QUICK)
    figure = made.figure(3.5)
    assert figure.get_figwidth() == 3.5
    top = figure.axes[0]
    assert [label.get_text() for label in top.get_yticklabels()] == list({one.named: 0 for one in made.models})
    dots = [line for line in top.lines if line.get_marker() == "o"]
    assert [len(np.asarray(line.get_xdata())) for line in dots] == [4, 4]
    said = " ".join(text.get_text() for text in figure.texts)
    assert "standard error over draws" not in said
    assert "mean over clients with its standard error over clients" in said


MISTAKES = [
    ([LAST, "--data-of", "own"], "--data-of own is about clients' models, but runs/ima@last/global is no client's;"),
    ([LAST, "--data-of", "evry"], "--data-of evry names no clients; write own, all, every or clients, or their"),
    ([LAST, "--data-of", "client-9"], "--data-of client-9: runs/ima has no client 9; it has 0 to 4"),
    ([LAST, "--data-of", "clients"], "--data-of clients needs clients among the models, as in runs/ima@20/"),
    ([LAST, "--data-of", "all", "--split", "test"], "--data-of all is about training data, so --split test does"),
    (["best.pt", "--data-of", "1"], "--data-of 1 needs a run, which says whose data are whose; give RUN@ROUND"),
    ([LAST, "best.pt", "--data-of", "every"], "--data-of every is the cohort of a round, but best.pt is of none;"),
    ([LAST, "best.pt", "--data-of", "own"], "--data-of own is about clients' models, but runs/ima@last/global is no"),
    ([LAST, "runs/six", "--data-of", "all"], "runs/ima and runs/six gave their clients different samples, so"),
    ([LAST, "--data-of", "1", "--data", "other.npz"], "--data-of 1 takes what runs/ima gave its client 1, but --data"),
    (
        [LAST, "--data-of", "all", "--data", "other.npz"],
        "--data-of all takes what runs/ima gave its clients, but --data",
    ),
]


@pytest.mark.parametrize(("words", "sentence"), MISTAKES)
def test_what_makes_no_sense_is_told_in_one_sentence(
    here: Path, capsys: pytest.CaptureFixture[str], words: list[str], sentence: str
) -> None:
    write_file("best.pt", load_model(LAST).weights)
    whole = data_of(Run.open("runs/ima"))
    x, y = np.asarray(whole.x_test), np.asarray(whole.y_test)
    np.savez("other.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    assert command(["sharpness", *words, "--no-hessian", "--draws", "1"]) == 2
    told = capsys.readouterr().err
    assert sentence in told
    assert "Traceback" not in told


def test_clients_without_samples_are_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partition = Run.open("runs/ima").partition
    assert partition is not None
    k = cohort()[0]
    clients = tuple(rows[:0] if i == k else rows for i, rows in enumerate(partition.clients))
    monkeypatch.setattr(Run, "partition", replace(partition, clients=clients))
    with pytest.raises(FedscopeError, match=rf"client {k} of runs/ima has no training samples; ask for another one's"):
        fedscope.sharpness(LAST, data_of=k, **QUICK)
    others = ",".join(map(str, cohort()[1:4]))
    said = rf"client {k} of runs/ima has no training samples, so data_of='every' .* have some: data_of='{others}'"
    with pytest.raises(FedscopeError, match=said):
        fedscope.sharpness(LAST, data_of="every", **QUICK)


def test_a_recorded_run_without_a_partition_says_what_gives_the_data(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Run, "partition", None)
    monkeypatch.setattr(Run, "is_foreign", True)
    with pytest.raises(FedscopeError, match=r"\(no partition.h5\), and data_of='all' needs that; give the samples"):
        fedscope.sharpness(LAST, data_of="all", **QUICK)


def test_planes_take_the_same_words(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ids = cohort()
    grid = ["--grid", "3", "--random"]
    assert command(["plane", LAST, *grid, "--data-of", "every", "--out", "p"]) == 0
    assert {path.name for path in here.glob("p.*.nc")} == {"p.all.nc", *(f"p.client-{k}.nc" for k in ids)}
    assert Path("p.data-of-every.png").exists()
    assert command(["plane", LAST, *grid, "--split", "train", "--out", "t"]) == 0
    assert np.array_equal(Plane.load("p.all.nc").loss, Plane.load("t.nc").loss)
    assert command(["plane", LAST, *grid, "--data-of", f"client-{ids[0]}", "--out", "o"]) == 0
    assert np.array_equal(Plane.load(f"o.client-{ids[0]}.nc").loss, Plane.load(f"p.client-{ids[0]}.nc").loss)
    made = fedscope.plane(f"runs/ima@last/client-{ids[0]}", random=True, data_of="own", grid=3)
    assert isinstance(made, Planes)
    assert list(made.parts) == [f".client-{ids[0]}"]


PAIR = ["runs/whole@last/global", "runs/whole@last/start"]


def test_a_line_has_a_curve_on_each_ones_data(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["line", *PAIR, "--data-of", "every", "--points", "5", "--out", "m"]
    assert command(words) == 0
    said = capsys.readouterr().out
    assert "(whole@2/global - whole@2/start on client-3)" in said
    made = fedscope.load("m")
    assert isinstance(made, Line)
    assert made.on == ("all", *(f"client-{k}" for k in range(4)))
    assert made.pairs[1] == "whole@2/global - whole@2/start on client-0"
    assert set(made.ends) == {("whole@2/global", "whole@2/start")}
    run = Run.open("runs/whole")
    assert run.partition is not None
    counts = [len(rows) for rows in run.partition.clients]
    assert made.attrs["places"] == {"all": sum(counts), **{f"client-{k}": n for k, n in enumerate(counts)}}
    whole = data_of(run).samples("train")
    for k, rows in enumerate(run.partition.clients):
        alone = fedscope.line(
            [load_model(name).weights for name in PAIR],
            data=(whole.x[rows].numpy(), whole.y[rows].numpy()),
            model=module_of(run),
            points=5,
        )
        np.testing.assert_allclose(made.loss[k + 1], alone.loss[0], rtol=1e-6)
        np.testing.assert_array_equal(made.error[k + 1], alone.error[0])
        assert made.barrier[k + 1] == pytest.approx(alone.barrier[0], abs=1e-6)
    share = np.array(counts) / sum(counts)
    np.testing.assert_allclose(share @ made.loss[1:], made.loss[0], rtol=1e-6)
    np.testing.assert_allclose(share @ made.error[1:], made.error[0], rtol=1e-12)
    train = fedscope.line(PAIR, split="train", points=5)
    np.testing.assert_allclose(made.loss[0], train.loss[0], rtol=1e-6)
    assert fedscope.line(PAIR, data_of="every", points=5).loss.tobytes() == made.loss.tobytes()


def test_every_set_is_read_and_every_model_of_a_line_is_formed_once(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedscope.landscape.lines.segments import _Segments

    read, formed = list[str](), list[int]()
    whole, form = SampleSet.read, _Segments.form
    monkeypatch.setattr(SampleSet, "read", lambda one, *rest: read.append(one.name) or whole(one, *rest))
    monkeypatch.setattr(_Segments, "form", lambda one, i, replica: formed.append(i) or form(one, i, replica))
    both = [*PAIR, "runs/whole@last/global", "runs/whole@1/start"]
    made = fedscope.line(both, data_of=[3, 1], points=5)
    assert read == ["client-3", "client-1"]
    assert sorted(formed) == list(range(10))
    assert made.on == ("client-3", "client-1") * 2
    for at, pair in enumerate((both[:2], both[2:])):
        one = fedscope.line(pair, data_of=[3, 1], points=5)
        assert one.loss.tobytes() == made.loss[2 * at : 2 * at + 2].tobytes()
    alone = fedscope.line(both[:2], data_of=1, points=5)
    assert (alone.on, alone.attrs["client"]) == ((), 1)
    assert alone.loss[0].tobytes() == made.loss[1].tobytes()


def test_layers_and_pairs_of_clients_are_measured_on_one_set(here: Path) -> None:
    k = cohort("whole")[0]
    layers = fedscope.line(PAIR, layers="each", data_of=k, points=5)
    whole = fedscope.line(PAIR, data_of=k, points=5, range=(0, 1))
    assert layers.loss[0, -1].tobytes() == whole.loss[0].tobytes()
    over = fedscope.line("runs/whole", layers="each", rounds="2", data_of=k, points=5)
    assert over.values()[:, :, 0].tolist() == layers.barrier.tolist()
    assert (over.attrs["client"], over.attrs["samples"]) == (k, layers.attrs["samples"])
    pairs = fedscope.line("runs/whole@2", clients=True, data_of="all", points=3)
    two = [f"runs/whole@2/client-{i}" for i in cohort("whole")[:2]]
    first = fedscope.line(two, data_of="all", points=3, range=(0, 1))
    assert pairs.loss[0].tobytes() == first.loss[0].tobytes()


def test_own_is_the_data_of_the_one_client_on_the_line(here: Path) -> None:
    k = cohort("whole")[1]
    pair = [f"runs/whole@last/client-{k}", "runs/whole@last/global"]
    own, named = (fedscope.line(pair, data_of=word, points=3) for word in ("own", f"client-{k}"))
    assert own.loss.tobytes() == named.loss.tobytes()
    asked = fedscope.line.prepare(pair, data_of="own")
    assert asked.name == f"line-whole@last-client-{k}-whole@last-global.data-of-own"


def test_a_figure_of_one_line_names_whose_data_and_of_several_the_ends_too(here: Path) -> None:
    one = fedscope.line(PAIR, data_of=[0, 2], points=5)
    texts = [text.get_text() for text in one.figure().texts]
    assert [text for text in texts if "'s data" in text] == ["client 0's data", "client 2's data"]
    assert r"$\beta$ = 0: whole@2/start, 1: whole@2/global; digits train" in " ".join(texts).replace("\n", " ")
    two = fedscope.line([*PAIR, PAIR[0], "runs/whole@1/start"], data_of=[0, 2], points=5).figure()
    texts = [text.get_text() for text in two.texts]
    assert [text for text in texts if "'s data" in text] == ["client 0's data", "client 2's data"] * 2
    assert sum("1: whole@2/global" in text for text in texts) == 4
    renamed = one.renamed({"whole@2/global": "after"})
    assert renamed.ends[0] == ("after", "whole@2/start")
    assert renamed.on == one.on


LINE_MISTAKES = [
    ([*PAIR, "--data-of", "own"], "--data-of own is one client's data, but 0 clients are among the models; --data-of"),
    ([*PAIR, "--data-of", "evry"], "--data-of evry names no clients; write own, all, every or clients, or their"),
    ([*PAIR, "--data-of", "client-9"], "--data-of client-9: runs/whole has no client 9; it has 0 to 3"),
    ([*PAIR, "--data-of", "all", "--split", "test"], "--data-of all is about training data, so --split test does not"),
    (
        [*PAIR, "--data-of", "every", "--layers", "each"],
        "--data-of every is 5 sets of samples, and --layers draws a map of one; give one of them, as --data-of all",
    ),
    (
        ["runs/whole", "--data-of", "0,1", "--layers", "each", "--rounds", "1"],
        "--data-of 0,1 is 2 sets of samples, and --layers draws a map of one; give one of them, as --data-of client-0",
    ),
    (["runs/whole@2", "--clients", "--data-of", "every"], "--data-of every is 5 sets of samples, and --clients draws"),
]


@pytest.mark.parametrize(("words", "sentence"), LINE_MISTAKES)
def test_what_makes_no_sense_of_a_line_is_told_in_one_sentence(
    here: Path, capsys: pytest.CaptureFixture[str], words: list[str], sentence: str
) -> None:
    assert command(["line", *words, "--points", "3"]) == 2
    told = capsys.readouterr().err
    assert sentence in told
    assert "Traceback" not in told
