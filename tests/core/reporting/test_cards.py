"""A report's cards take the results beside a run, and what is missing is computed from Python as by the command."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fedscope import measure
from fedscope.checkpoints import FedscopeError, FedscopeWarning, Run
from fedscope.checkpoints.runs.measured_numbers import MeasuredNumbers, Measurement, read_measured, write_measured
from fedscope.cli.main import run as fedscope
from fedscope.decomposition.explanation.result import Explanation
from fedscope.decomposition.explanation.statements import Statement
from fedscope.decomposition.factors.result import Decomposition, RunFactors
from fedscope.decomposition.factors.rows import FactorRow, RoundFactors
from fedscope.decomposition.subsets.result import RoundSubsets, SizeRow, Subsets
from fedscope.landscape import Plane
from fedscope.landscape.interchange.import_models import import_models
from fedscope.landscape.planes.result import PlaneModel
from fedscope.reporting.compute_missing import keep_answer
from fedscope.reporting.discover import Beside
from fedscope.reporting.report import report
from fedscope.reporting.verdict import composition, judge_average, outcome, servers_beyond_mean
from fedscope.training import Config, Curves, branch, train

pytestmark = [pytest.mark.same_elsewhere, pytest.mark.usefixtures("few_digits")]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tables: dict[str, Any] = {
        "data": {"clients": 6},
        "model": {"hidden": [8]},
        "client": {"epochs": 1},
        "run": {"rounds": 3, "participation": 0.5},
    }
    return train(Config.read(tables), tmp_path_factory.mktemp("trained") / "two").path


# --- cards that take results ---


def beside_of(*results: Any) -> Beside:
    """Results as a report finds them."""
    return Beside(tuple(SimpleNamespace(result=one) for one in results))  # type: ignore[arg-type]


def subsets_of(run: str, number: int, whole: float, single: float, deviation: float, **attrs: Any) -> Subsets:
    def row(m: int, subsets: int, mean: float, std: float | None) -> SizeRow:
        return SizeRow(m, subsets, True, mean, std, None, 2 * mean, std, None, mean, mean)

    rounds = (RoundSubsets(run, number, 8, (row(1, 8, single, deviation), row(8, 1, whole, None))),)
    return Subsets(rounds, "samples", {"split": "test", "samples": 397, **attrs})


def plane_of(errors: Sequence[float], mean: float, number: int, **attrs: Any) -> Plane:
    def model(label: str, error: float, role: str) -> PlaneModel:
        return PlaneModel(label, 0.0, 0.0, 0.0, 2 * error, error, np.nan, np.nan, role)

    models = [model(f"client {k}", error, "anchor") for k, error in enumerate(errors)] + [model("mean", mean, "mean")]
    about = {"kind": "clients", "split": "test", "samples": 360, "addresses": [f"runs/loop@{number}/client-0"], **attrs}
    grid = np.zeros((2, 2))
    return Plane(np.arange(2.0), np.arange(2.0), grid, grid, tuple(models), 0.0, "none", about)


@pytest.fixture
def loop(tmp_path: Path) -> Run:
    """A loop that measured nothing."""
    from fedscope import Recorder

    w = {"w": np.zeros(3, np.float32)}
    with Recorder(tmp_path / "loop") as recorder:
        for _ in range(3):
            recorder.round(start=w, clients=[{"w": w["w"] + 1}, {"w": w["w"] + 2}], global_=w)
    return Run.open(tmp_path / "loop")


@pytest.mark.parametrize(
    ("results", "answer"),
    [
        ([subsets_of("loop", 3, 0.0694, 0.187, 0.05)], "Yes: in round 3 the average of the 8 clients has an error of"),
        ([subsets_of("loop", 3, 0.187, 0.0694, 0.05)], "No: in round 3"),
        ([subsets_of("loop", 3, 0.1, 0.12, 0.05)], "Too close to say: in round 3"),
        (
            [plane_of([0.1, 0.2, 0.3], 0.05, 2)],
            "Yes: in round 2 the average of the 3 clients has an error of 5.0 %; the",
        ),
        ([plane_of([0.1, 0.2], 0.05, 2), subsets_of("loop", 3, 0.2, 0.2, 0.1)], "Too close to say: in round 3"),
        ([subsets_of("loop", 1, 0.2, 0.2, 0.1), plane_of([0.1, 0.2], 0.05, 2)], "Yes: in round 2"),
        ([subsets_of("another", 3, 0.1, 0.2, 0.05)], "Not known"),
        ([subsets_of("loop", 3, 0.1, 0.2, 0.05, split="train")], "Not known"),
        ([plane_of([0.1, 0.2], 0.05, 2, split="train"), plane_of([0.1, 0.2], 0.05, 2, kind="models")], "Not known"),
        ([plane_of([0.1, np.nan], 0.05, 2)], "Not known"),
        ([subsets_of("loop", 3, np.nan, np.nan, 0.1)], "Not known"),
    ],
)
def test_whether_averaging_was_good_is_taken_from_a_result(loop: Run, results: list[Any], answer: str) -> None:
    (said,) = judge_average(loop, beside_of(*results))
    assert said.answer.startswith(answer)
    assert said.tone == {"Yes": "good", "No:": "bad"}.get(answer[:3], "open")


def test_the_numbers_of_the_cards_are_those_of_the_result(loop: Run) -> None:
    results = beside_of(subsets_of("loop", 3, 0.0694, 0.187, 0.05))
    (said,) = judge_average(loop, results)
    assert said.answer == (
        "Yes: in round 3 the average of the 8 clients has an error of 6.9 %; the clients have 18.7 ± 4.7 % (mean ± "
        "deviation; subsets, 397 test samples)."
    )
    (good,) = outcome(loop, results)
    assert good.answer == (
        "Nothing was measured on test data round by round (fedscope measure RUN does it). By subsets, 397 test "
        "samples, in round 3 the average of the 8 clients has an error of 6.9 %."
    )
    (plane,) = judge_average(loop, beside_of(plane_of([0.1, 0.2, 0.3], 0.05, 2)))
    assert f"the clients have 20.0 ± {100 * np.std([0.1, 0.2, 0.3]):.1f} %" in plane.answer
    few = subsets_of("loop", 3, 0.0694, 0.187, 0.05)
    (one,) = few.rounds
    single = replace(one.sizes[0], subsets=5)
    (said,) = judge_average(loop, beside_of(replace(few, rounds=(replace(one, sizes=(single, one.sizes[1])),))))
    assert "6.9 %; 5 of them have 18.7 ± 4.5 %" in said.answer


def test_of_one_client_a_round_no_average_is_judged(tmp_path: Path) -> None:
    alone = Config.read({"data": {"clients": 4}, "model": {"hidden": [4]}, "run": {"rounds": 2, "participation": 0.2}})
    train(alone, tmp_path / "alone")
    run = Run.open(tmp_path / "alone")
    (said,) = judge_average(run, beside_of())
    assert said.answer == "Not known: one client took part in each round, so no clients were averaged."
    assert said.tone == "open"


def factors_of(run: str, values: dict[str, tuple[float, float]]) -> Decomposition:
    rows = [FactorRow(name, "unbiased", value, error, None) for name, (value, error) in values.items()]
    rows += [FactorRow("fma_loss", "measured", 0.25, None, None)]
    about = {"draws": "local:4", "count": 4, "independent": True, "outputs": "probabilities", "samples": 100}
    one = RoundFactors(
        7, classes=10, population=True, split=True, loss="squared", rows=tuple(rows), clients=(), **about
    )  # type: ignore[arg-type]
    return Decomposition((RunFactors(run, "global", (one,)),), split="train", draws="local:4")


@pytest.mark.parametrize(
    ("values", "answer"),
    [
        (
            {"train_bias": (0.001, 1e-4), "heter_bias": (0.238, 0.001), "variance": (0.03, 0.001)},
            "Heterogeneous bias (0.238 ± 0.003) is the greatest part of the loss in round 7; next is variance (0.030 ± "
            "0.003). The average of the clients has a loss of 0.25. ± is half a 95 % interval over draws.",
        ),
        (
            {"heter_bias": (0.2, 0.001), "locality": (-0.5, 0.001)},
            "Locality (-0.500 ± 0.003, which takes it away) is the greatest part of the loss in round 7; next is "
            "heterogeneous bias (0.200 ± 0.003). The average of the clients has a loss of 0.25. ± is half a 95 % "
            "interval over draws.",
        ),
        (
            {"heter_bias": (0.2, 0.05), "variance": (0.18, 0.05)},
            "In round 7 heterogeneous bias (0.20 ± 0.16) and variance (0.18 ± 0.16) are the greatest parts of the "
            "loss, and not apart. The average of the clients has a loss of 0.25. ± is half a 95 % interval over draws.",
        ),
        (
            {"heter_bias": (np.nan, 0.0)},
            "Not known: in round 7 no factor of the loss has a finite value. The average of the clients has a loss of "
            "0.25.",
        ),
    ],
)
def test_what_dominates_the_loss_is_a_sentence(loop: Run, values: dict[str, Any], answer: str) -> None:
    (said,) = composition(loop, beside_of(factors_of("loop", values)))
    assert said.answer == answer
    (other,) = composition(loop, beside_of(factors_of("another", values)))
    assert other.answer == "Not measured: fedscope explain RUN says it."


def test_a_statement_on_the_factors_names_its_errors(loop: Run) -> None:
    def said(sentence: str) -> str:
        one = Statement("greatest-part/late", "loop", "It is", "", "supported", sentence, "", ())
        page = Explanation(factors_of("loop", {"heter_bias": (0.2, 0.01)}), (one,), ())
        return composition(loop, beside_of(page))[0].answer

    below = "(1 statements below: 1 supported.)"
    assert said("Bias is 0.20 ± 0.03.") == f"It is: Bias is 0.20 ± 0.03. ± is half a 95 % interval over draws. {below}"
    for own in ("Bias is 0.2.", "Σ p²V is 0.2 ± 0.1 (± over clients)."):
        assert said(own) == f"It is: {own} {below}"


# --- computed and made in Python ---


@pytest.mark.slow
def test_what_is_missing_is_computed_from_python_as_by_the_command(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "two")
    shutil.copytree(trained, tmp_path / "by-command" / "two")
    assert fedscope(["report", str(tmp_path / "by-command" / "two"), "--compute", "--limit", "30"]) == 0
    told: list[str] = []
    made = report(tmp_path / "two", compute=True, limit=30, progress=lambda what, done, of: told.append(what))
    assert made.results == report(tmp_path / "by-command" / "two").results == 5
    assert {"checking two", "drawing"} < set(told)
    names = {path.name for path in (tmp_path / "two/figures").iterdir()}
    ends = (".pdf", ".png", ".html", ".js", ".md")
    theirs = {path.name for path in (tmp_path / "by-command/two/figures").iterdir() if path.suffix not in ends}
    assert {name for name in names if not name.endswith(ends)} == theirs
    assert not [name for name in names if name.endswith(".partial")]
    sizes = {path: path.stat().st_mtime_ns for path in (tmp_path / "two/figures").iterdir()}
    assert report(tmp_path / "two", compute=True, limit=30).html == made.html
    assert sizes == {path: path.stat().st_mtime_ns for path in (tmp_path / "two/figures").iterdir()}


def test_an_answer_is_kept_as_its_command_keeps_it(trained: Path, tmp_path: Path) -> None:
    from fedscope import subsets

    shutil.copytree(trained, tmp_path / "two")
    asked = subsets.prepare(tmp_path / "two", rounds="last", limit=30)
    told: list[tuple[str, int, int]] = []
    keep_answer(asked, tmp_path / "kept", lambda *one: told.append(one))
    words = ["subsets", str(tmp_path / "two"), "--rounds", "last", "--limit", "30", "--out", str(tmp_path / "theirs")]
    assert fedscope(words) == 0
    for end in (".subsets.csv", ".subsets.json"):
        assert (tmp_path / f"kept{end}").read_bytes() == (tmp_path / f"theirs{end}").read_bytes()
    assert told[-1][1] == told[-1][2] > 0
    assert not list(tmp_path.glob("*.partial"))
    told.clear()
    keep_answer(asked, tmp_path / "kept", lambda *one: told.append(one))
    assert told == []  # it lies there
    other = subsets.prepare(tmp_path / "two", rounds="last", limit=20)
    with pytest.raises(FedscopeError, match=r"kept.subsets.json holds another result of the same name; move it"):
        keep_answer(other, tmp_path / "kept")


def test_results_of_python_are_shown_once_they_are_saved(trained: Path, tmp_path: Path) -> None:
    from fedscope import updates

    run = Path(shutil.copytree(trained, tmp_path / "two"))
    before = report(run).results
    updates(run).save(run / "figures" / "mine")
    assert report(run).results == before + 1


def test_what_cannot_be_computed_is_a_warning(loop: Run) -> None:
    with pytest.warns(FedscopeWarning, match=r"not asked: fedscope explain .*: .*names neither architecture nor data"):
        made = report(loop, compute=True)
    assert made.results == 2  # updates, and updates by layer, need no data


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"limit": 5}, r"^limit= is for what compute=True measures; add compute=True, or leave limit= out$"),
        ({"compute": True, "split": "train"}, r"^split='train': a report's questions have splits of their own; leave "),
    ],
)
def test_settings_without_effect_are_refused(loop: Run, settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(FedscopeError, match=sentence):
        report(loop, **settings)
    with pytest.raises(TypeError, match=r"fedscope.report has no setting 'modl'; did you mean"):
        report(loop, compute=True, modl="mlp")  # type: ignore[call-arg]


def test_another_model_than_the_mean_says_nothing_of_the_average(recorded: Any, tmp_path: Path) -> None:
    """FedAdam's model is not the clients' mean, whose error a result knows; that of FedAvg is."""
    words = "--clients 4 --participation 1 --rounds 3 --set model.hidden=[6]"
    runs = {
        name: Run.open(recorded(tmp_path / name, *f"--method {name} {words}".split())) for name in ("fma", "fedadam")
    }
    (mean,) = judge_average(runs["fma"], beside_of())
    assert re.match(r"[YNT][a-z ]+: in round 3 the average of the clients has an error of", mean.answer)
    (other,) = judge_average(runs["fedadam"], beside_of())
    error = 100 * runs["fedadam"].metrics()["test_error"][-1]
    said = (
        "Not known of the clients' mean, which fedscope subsets RUN measures: in round 3 the server's model (fedadam) "
    )
    assert other.answer.startswith(f"{said}has an error of {error:.1f} %; the clients have ")
    assert other.tone == "open"
    (known,) = judge_average(runs["fedadam"], beside_of(subsets_of("fedadam", 3, 0.1, 0.3, 0.05)))
    assert known.answer.startswith("Yes: in round 3 the average of the 8 clients has an error of 10.0 %; the clients")


def test_the_average_of_a_loop_is_what_its_server_was_found_to_make(tmp_path: Path) -> None:
    from fedscope import Recorder

    draw = np.random.default_rng(0)
    for name, rate in (("mean", 1.0), ("half", 0.5)):
        with Recorder(tmp_path / name) as recorder:
            for _ in range(2):
                start, *clients = (draw.normal(size=90).astype(np.float32) for _ in range(3))
                step = rate * (np.mean(clients, axis=0) - start)
                numbers = {"test_error": 0.1, "client_error_mean": 0.3, "client_error_std": 0.05}
                models = ({"w": one} for one in (start, start + step.astype(np.float32)))
                recorder.round(
                    start=next(models), clients=[{"w": w} for w in clients], global_=next(models), metrics=numbers
                )
    (mean,) = judge_average(Run.open(tmp_path / "mean"), beside_of())
    assert mean.answer.startswith("Yes: in round 2 the average of the clients has an error of 10.0 %")
    (half,) = judge_average(Run.open(tmp_path / "half"), beside_of())
    assert "(global = start + 0.5 Σ p Δ: a server rate of 0.5) has an error of 10.0 %" in half.answer


def test_fewer_samples_of_the_clients_are_said(recorded: Any, tmp_path: Path) -> None:
    words = "--method fma --clients 4 --participation 1 --rounds 1 --set run.evaluate_clients=20"
    run = Run.open(recorded(tmp_path / "fma", *words.split()))
    count = run.info["data"]["test"]
    (said,) = judge_average(run, beside_of())
    assert f"(mean ± deviation; on 20 of {count} test samples)" in said.answer
    (all_of_them,) = judge_average(Run.open(recorded(tmp_path / "all", *words.split()[:-2])), beside_of())
    assert "(mean ± deviation)." in all_of_them.answer


def test_what_was_measured_afterwards_says_its_own_samples(recorded: Any, tmp_path: Path) -> None:
    """Nothing was measured of the clients while it was trained, then 30 samples each."""
    words = "--method fma --clients 4 --participation 1 --rounds 1 --set run.evaluate_clients=0"
    run = Run.open(recorded(tmp_path / "fma", *words.split()))
    count = run.info["data"]["test"]
    measure(run, clients=True)
    (said,) = judge_average(Run.open(run.path), beside_of())
    assert said.answer.partition("(")[2].partition(")")[0] == "mean ± deviation"
    measure(run, clients=True, limit=30, force=True)
    (few,) = judge_average(Run.open(run.path), beside_of())
    assert few.answer.partition("(")[2].partition(")")[0] == "mean ± deviation"  # the average on as many
    numbers = read_measured(run.path, run.identity)
    kept = [one.without({1: ("test_loss", "test_error")}) for one in numbers.measurements]
    write_measured(run.path, MeasuredNumbers(tuple(one for one in kept if one.rows)), run.identity)
    (apart,) = judge_average(Run.open(run.path), beside_of())
    assert f"(mean ± deviation; on 30 of {count} test samples)" in apart.answer


def test_samples_that_are_drawn_apart_are_said_to_be_others(recorded: Any, tmp_path: Path) -> None:
    """The clients' 30 are drawn by the run's seed, and what is measured afterwards by seed 0."""
    words = "--method fma --clients 4 --participation 1 --rounds 1 --seed 1 --set run.evaluate_clients=30"
    run = Run.open(recorded(tmp_path / "fma", *words.split()))
    for limit, on in (
        (30, "on 30 test samples each, not the same"),
        (100, "the clients on 30 test samples, the average"),
    ):
        measure(run, limit=limit, force=True)
        (said,) = judge_average(Run.open(run.path), beside_of())
        assert f"(mean ± deviation; {on}" in said.answer


def test_a_loop_says_on_how_many_samples_its_clients_were_measured(tmp_path: Path) -> None:
    from fedscope import Recorder

    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(1200, 3)).astype(np.float32), draw.integers(0, 2, 1200)
    nets = [torch.nn.Linear(3, 2) for _ in range(2)]
    mean = torch.nn.Linear(3, 2)
    for name, values in mean.state_dict().items():
        values.copy_((nets[0].state_dict()[name] + nets[1].state_dict()[name]) / 2)
    for name, metrics in (("none", {}), ("own", {"test_error": 0.5})):
        with Recorder(tmp_path / name, data=(x, y)) as recorder:
            recorder.round(clients=nets, start=nets[0], global_=mean, metrics=metrics)
    done = measure(tmp_path / "none", model=mean, clients=True)
    assert done.summary().splitlines()[:2] == [
        f"{tmp_path / 'none'}: test_loss and test_error of round 1 are new, measured on 1,200 test samples of arrays",
        "  client_error_mean and client_error_std of round 1 are new, measured on 1,000 test samples of arrays",
    ]
    assert (done.settings["samples"], done.client_settings["samples"]) == (1200, 1000)
    (said,) = judge_average(Run.open(tmp_path / "none"), beside_of())
    assert "(mean ± deviation; on 1,000 of 1,200 test samples)" in said.answer
    clients = {"client_error_mean": 0.5, "client_error_std": 0.1}
    run = Run.open(tmp_path / "own")
    write_measured(run.path, MeasuredNumbers((Measurement({"samples": 1000}, {1: clients}),)), run.identity)
    (own,) = judge_average(Run.open(run.path), beside_of())
    assert "(mean ± deviation; the clients on 1,000 test samples)" in own.answer
    numbers = (Measurement({"samples": 1000}, {1: clients}), Measurement({"samples": 100}, {1: {"test_error": 0.5}}))
    write_measured(run.path, MeasuredNumbers(numbers), run.identity)
    (more,) = judge_average(Run.open(run.path), beside_of())
    assert "(mean ± deviation; the clients on 1,000 test samples, the average on 100)" in more.answer


def test_the_same_errors_have_one_deviation_whatever_measured_them(loop: Run) -> None:
    errors = [0.1, 0.2, 0.3]
    rows = tuple(
        SizeRow(m, n, True, mean, std, None, 1.0, 1.0, None, mean, mean)
        for m, n, mean, std in ((1, 3, 0.2, float(np.std(errors, ddof=1))), (3, 1, 0.11, None))
    )
    subsets = Subsets((RoundSubsets("loop", 3, 3, rows),), "samples", {"split": "test", "samples": 360})
    said = [judge_average(loop, beside_of(one))[0].answer for one in (subsets, plane_of(errors, 0.11, 3))]
    assert said[0] == said[1].replace("plane, 360", "subsets, 360")
    assert said[0] == (
        "Yes: in round 3 the average of the 3 clients has an error of 11.0 %; the clients have 20.0 ± 8.2 % (mean ± "
        "deviation; subsets, 360 test samples)."
    ), "of n - 1 it is 10 %, more than the average is ahead"


def test_a_branch_counts_the_rounds_of_a_mean_alone(recorded: Any, tmp_path: Path) -> None:
    words = "--method fedadam --clients 4 --participation 1 --rounds 3 --set model.hidden=[6]"
    before = Run.open(recorded(tmp_path / "adam", *words.split()))
    run = branch(before, 2, {"server": {"method": "fma"}, "run": {"rounds": 4}}, tmp_path / "branch")
    (said,) = judge_average(run, beside_of())
    assert re.search(r"better than their mean in [012] of 2 measured rounds\.$", said.answer)


def test_an_import_is_asked_whether_its_global_is_the_mean(tmp_path: Path) -> None:
    """One that has made the mean itself has no numbers of a server's step."""
    draw = np.random.default_rng(0)
    files = [tmp_path / f"{k}.npz" for k in range(3)]
    for file in files:
        np.savez(file, w=draw.normal(size=50).astype(np.float32))
    mean = np.mean([np.load(file)["w"] for file in files], axis=0, dtype=np.float64)
    given: dict[str, Any] = {"made": {}}
    for name, far in (("mean", 0.0), ("other", 0.1)):
        np.savez(tmp_path / f"{name}.npz", w=(mean + far).astype(np.float32))
        given[name] = {"global_": tmp_path / f"{name}.npz"}
    for name, more in given.items():
        run = import_models(files, tmp_path / name, **more)
        found = servers_beyond_mean(Run.open(run.path), Curves.of([run]).runs[0], [1])
        assert bool(found[1]) is (name == "other")


def test_a_loop_whose_last_round_is_gone_is_judged_by_its_table(tmp_path: Path) -> None:
    from fedscope import Recorder

    numbers = {"test_error": 0.1, "client_error_mean": 0.3, "client_error_std": 0.05}
    draw = np.random.default_rng(0)
    with Recorder(tmp_path / "loop") as recorder:
        for _ in range(3):
            start, *clients = ({"w": draw.normal(size=90).astype(np.float32)} for _ in range(3))
            mean = {"w": (clients[0]["w"] + clients[1]["w"]) / 2}
            recorder.round(start=start, clients=clients, global_=mean, metrics=numbers)
    (whole,) = judge_average(Run.open(tmp_path / "loop"), beside_of())
    Run.open(tmp_path / "loop").round(3).path.unlink()
    (left,) = judge_average(Run.open(tmp_path / "loop"), beside_of())
    assert whole.answer.startswith("Yes: in round 3 the average of the clients has an error of 10.0 %")
    assert left.answer == whole.answer
