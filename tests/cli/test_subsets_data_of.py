"""``fedscope subsets --data-of``: on whose data averages of subsets are measured."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedscope
from fedscope.analysis.execution import Execution
from fedscope.checkpoints import FedscopeError, Run, Weights
from fedscope.decomposition.subsets.result import Subsets
from fedscope.evaluation.evaluator import Evaluator
from fedscope.training import data_of, module_of
from fedscope.training.inputs.data_of import SampleSet

COMMAND = "subsets"
pytestmark = pytest.mark.usefixtures("few_digits")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, recorded: Callable[..., Path]) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    words = ["--rounds", "2", "--set", "model.hidden=[8]", "--partition", "dirichlet:1"]
    for name, method, clients, share in (
        ("fma", "fma", "6", "0.5"), ("ima", "ima", "6", "0.5"), ("whole", "fma", "4", "1"),
    ):  # fmt: skip
        recorded(folder / "runs" / name, "--method", method, *words, "--clients", clients, "--participation", share)
    return folder


def own_samples(run: Run, k: int) -> Any:
    assert run.partition is not None
    rows, whole = run.partition.clients[k], data_of(run).samples("train")
    return replace(whole, x=whole.x[rows], y=whole.y[rows], indices=rows)


def averages(run: Run, m: int) -> list[tuple[tuple[int, ...], np.ndarray, Weights]]:
    """Members, their weights, and the average of each subset of a round's clients."""
    round_ = run.round(2)
    n, clients = round_.client_samples, round_.clients()
    found = []
    for members in combinations(range(len(n)), m):
        p = n[list(members)] / n[list(members)].sum()
        w = sum(a * clients.parameters[k].astype(np.float64) for a, k in zip(p, members, strict=True))
        found.append((members, p, Weights(clients.layout, np.asarray(w, np.float32), {})))
    return found


def test_all_are_the_numbers_of_the_training_split(runs: Path) -> None:
    plain = fedscope.subsets("runs/fma", split="train")
    found = fedscope.subsets("runs/fma", data_of="all")
    assert [one.sizes for one in found.rounds] == [one.sizes for one in plain.rounds]
    assert [one.place for one in found.rounds] == ["all", "all"]


def test_own_is_each_average_on_its_members_data_as_a_loop_has_it(runs: Path) -> None:
    run = Run.open("runs/fma")
    ids = run.round(2).client_ids
    evaluators = [Evaluator(module_of(run), own_samples(run, int(k))) for k in ids]
    (found,) = fedscope.subsets("runs/fma@2", data_of="own").rounds
    for row in found.sizes:
        losses, errors = [], []
        for members, p, w in averages(run, row.m):
            own = [evaluators[k].models(w) for k in members]
            losses.append(sum(a * loss[0] for a, (loss, _) in zip(p, own, strict=True)))
            errors.append(sum(a * error[0] for a, (_, error) in zip(p, own, strict=True)))
        assert row.loss_mean == pytest.approx(np.mean(losses), rel=2e-7)
        assert row.error_mean == pytest.approx(np.mean(errors), rel=1e-12)
    # with weights by samples it is the loss on all that the members hold
    (_, _, w), = averages(run, len(ids))  # fmt: skip
    assert run.partition is not None
    rows, whole = np.concatenate([run.partition.clients[int(k)] for k in ids]), data_of(run).samples("train")
    union = replace(whole, x=whole.x[rows], y=whole.y[rows], indices=rows)
    assert found.sizes[-1].loss_mean == pytest.approx(Evaluator(module_of(run), union).models(w)[0][0], rel=1e-6)
    assert found.sizes[-1].loss_mean != pytest.approx(
        fedscope.subsets("runs/fma@2", data_of="all").rounds[0].sizes[-1].loss_mean, rel=1e-3
    )


def test_clients_have_rows_of_their_own(runs: Path, said: Callable[..., str]) -> None:
    words, run = said("runs/fma", "--rounds", "2", "--data-of", "clients", "--out", "s"), Run.open("runs/fma")
    ids = [int(k) for k in run.round(2).client_ids]
    found = Subsets.load("s")
    assert [one.place for one in found.rounds] == [f"client-{k}" for k in ids]
    whole, single = [], []
    for one, k in zip(found.rounds, ids, strict=True):
        evaluator = Evaluator(module_of(run), own_samples(run, k))
        _, errors = evaluator.models(run.round(2).clients())
        assert one.sizes[0].error_mean == pytest.approx(errors.mean(), rel=1e-12)
        alone = fedscope.subsets("runs/fma@2", data_of=k)
        assert alone.rounds[0].sizes == one.sizes
        single.append(one.sizes[0].error_mean), whole.append(one.sizes[-1].error_mean)
    better = sum(b < a for a, b in zip(single, whole, strict=True))
    assert words.startswith("fma, round 2, on the data of each of 3 clients: error of a single client ")
    assert f"of the average of all 3 {100 * np.mean(whole):.3g} ± " in words
    assert f"means ± standard errors over clients; on the data of {better} of them the latter is less\n" in words
    with Path("s.subsets.csv").open() as file:
        assert {row["place"] for row in csv.DictReader(file)} == {f"client-{k}" for k in ids}


def test_every_is_all_and_each_client_in_one_pass(runs: Path) -> None:
    every, clients = (fedscope.subsets("runs/fma@2", data_of=word) for word in ("every", "clients"))
    assert every.rounds[0] == fedscope.subsets("runs/fma@2", data_of="all").rounds[0]
    assert every.rounds[1:] == clients.rounds
    # where all take part, all their data are the weighted mean of each one's
    whole = fedscope.subsets("runs/whole@2", data_of="every")
    n = np.array([whole.attrs["places"][one.place] for one in whole.rounds[1:]], float)
    for i, row in enumerate(whole.rounds[0].sizes):
        own = [one.sizes[i].loss_mean for one in whole.rounds[1:]]
        assert row.loss_mean == pytest.approx(n @ own / n.sum(), rel=1e-6)


def test_data_are_read_and_averages_measured_once(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedscope.checkpoints.rounds.round import Round

    read: list[str] = []
    whole = SampleSet.read
    monkeypatch.setattr(SampleSet, "read", lambda one, *rest: read.append(one.name) or whole(one, *rest))
    rounds: list[int] = []
    clients = Round.clients
    monkeypatch.setattr(Round, "clients", lambda one, *rest: rounds.append(one.number) or clients(one, *rest))
    counted: list[tuple[int, int]] = []
    evaluate = Evaluator.evaluate
    monkeypatch.setattr(
        Evaluator,
        "evaluate",
        lambda one, count, *rest, **more: (
            counted.append((count, len(one.parts))) or evaluate(one, count, *rest, **more)
        ),
    )
    asked = fedscope.subsets.prepare("runs/whole", rounds="all", data_of="every")
    first = asked.answer(Execution(keep=Path("x.partial")))
    assert sorted(read) == ["all", *(f"client-{k}" for k in range(4))]
    # 4 + 6 + 4 + 1 averages of a round, each on five sets of samples in one pass
    assert (rounds, counted) == ([1, 2], [(15, 5), (15, 5)])
    again = fedscope.subsets.prepare("runs/whole", rounds="all", data_of="every")
    assert again.answer(Execution(keep=Path("x.partial"))).numbers() == first.numbers()
    assert (rounds, counted) == ([1, 2], [(15, 5), (15, 5)])


def test_several_runs_and_results_without_places(runs: Path) -> None:
    found = fedscope.subsets(["runs/fma", "runs/ima"], rounds="2", data_of="every")
    assert {(one.run, one.place) for one in found.rounds} >= {("fma", "all"), ("ima", "all")}
    figure = found.figure(3.5)
    assert figure.get_figwidth() == 3.5
    thin = [line for line in figure.axes[0].lines if line.get_linewidth() == 0.5]
    assert len(thin) == sum(one.of_client is not None for one in found.rounds)
    for line in thin:
        assert any(
            np.allclose(line.get_ydata(), [100 * row.error_mean for row in one.sizes]) for one in found.rounds[1:]
        )
    told = " ".join(text.get_text() for text in figure.texts)
    assert "thin: on the data of each of 3 clients" in " ".join(told.split())
    # a file of an earlier version has no places
    plain = fedscope.subsets("runs/fma@2", limit=40)
    plain.save("old")
    table, about = Path("old.subsets.csv"), Path("old.subsets.json")
    table.write_text("\n".join(line.rpartition(",")[0] for line in table.read_text().splitlines()) + "\n")
    about.write_text(json.dumps({**json.loads(about.read_text()), "version": 1, "table_xxh3": {}}))
    assert Subsets.load("old").rounds == plain.rounds


MISTAKES = [
    (["--data-of", "evry"], r"--data-of evry names no clients; write own, all, every or clients, .*mean \"every\"\?"),
    (["--data-of", "9"], r"--data-of 9: runs/fma has no client 9; it has 0 to 5"),
    (["--data-of", "own", "--split", "test"], r"--data-of own is about training data, so --split test does not go"),
    (["runs/whole", "--data-of", "all"], r"runs/fma and runs/whole gave their clients different samples, so --data-of"),
]


@pytest.mark.parametrize(("words", "message"), MISTAKES)
def test_mistakes_end_in_one_sentence(runs: Path, said: Callable[..., str], words: list[str], message: str) -> None:
    with pytest.raises(FedscopeError, match=message) as caught:
        said("runs/fma", *words)
    assert "\n" not in str(caught.value)


def test_a_client_without_samples_is_named(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run.open("runs/fma")
    assert run.partition is not None
    k = int(run.round(2).client_ids[0])
    clients = tuple(rows[:0] if i == k else rows for i, rows in enumerate(run.partition.clients))
    monkeypatch.setattr(Run, "partition", replace(run.partition, clients=clients))
    with pytest.raises(FedscopeError, match=rf"client {k} of runs/fma has no training samples, so data_of='own' has"):
        fedscope.subsets("runs/fma@2", data_of="own")


def test_a_recorded_run_without_a_partition_says_what_gives_the_data(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree("runs/ima")
    monkeypatch.setattr(Run, "partition", None)
    monkeypatch.setattr(Run, "is_foreign", True)
    with pytest.raises(FedscopeError, match=r"\(no partition.h5\), and data_of='own' needs that; give the samples"):
        fedscope.subsets("runs/fma@2", data_of="own")
