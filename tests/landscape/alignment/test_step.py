"""Alignment as a step of other questions: of clients whose units were shuffled the answer is that of the others."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedscope

CLIENTS, UNITS = 4, 24
State = dict[str, torch.Tensor]


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(6, UNITS), nn.ReLU(), nn.Linear(UNITS, UNITS), nn.ReLU(), nn.Linear(UNITS, 3))


def shuffled(state: State, seed: int) -> State:
    """The same function, its units in another order."""
    one, two = (torch.randperm(UNITS, generator=torch.Generator().manual_seed(2 * seed + i)) for i in range(2))
    return {
        "0.weight": state["0.weight"][one],
        "0.bias": state["0.bias"][one],
        "2.weight": state["2.weight"][two][:, one],
        "2.bias": state["2.bias"][two],
        "4.weight": state["4.weight"][:, two],
        "4.bias": state["4.bias"],
    }


def mean(states: Sequence[State]) -> State:
    return {name: sum(one[name] for one in states) / len(states) for name in states[0]}


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Two rounds of clients near their start: as they are, and with the units of all but the first client shuffled."""
    torch.manual_seed(0)
    x, y = torch.randn(240, 6), torch.arange(240) % 3
    x += 1.5 * nn.functional.one_hot(y, 6)
    folder = tmp_path_factory.mktemp("step")
    np.savez(folder / "data.npz", x_train=x[:160], y_train=y[:160], x_test=x[160:], y_test=y[160:])
    base = net()
    steps = torch.optim.SGD(base.parameters(), lr=0.2)
    for _ in range(50):
        steps.zero_grad()
        nn.functional.cross_entropy(base(x[:160]), y[:160]).backward()
        steps.step()
    start: State = copy.deepcopy(base.state_dict())
    runs = [fedscope.Recorder(folder / name, model=net(), data=f"npz:{folder}/data.npz") for name in ("plain", "mixed")]
    for number in (1, 2):
        clients = [
            {name: values + 0.03 * torch.randn(values.shape) for name, values in start.items()} for _ in range(CLIENTS)
        ]
        mixed = [clients[0], *(shuffled(one, 10 * number + k) for k, one in enumerate(clients[1:]))]
        after = mean(clients)
        moved = shuffled(after, 100 + number)
        for run, sent, own, made in zip(runs, (start, start), (clients, mixed), (after, moved), strict=True):
            run.round(start=sent, clients=own, global_=made)
        start = after
    for run in runs:
        run.close()
    return SimpleNamespace(plain=folder / "plain", mixed=folder / "mixed", data=f"npz:{folder}/data.npz")


def asked(there: SimpleNamespace, **more: Any) -> dict[str, Any]:
    return {"model": net(), "data": there.data, **more}


#: of the same sums in another order
CLOSE = 1e-5


def test_subsets_of_shuffled_clients(there: SimpleNamespace) -> None:
    how = asked(there, rounds=1)
    plain, mixed, aligned = (
        fedscope.subsets(run, **how, **more)
        for run, more in ((there.plain, {}), (there.mixed, {}), (there.mixed, {"align": "weights"}))
    )
    losses = [[row.loss_mean for row in found.rounds[0].sizes] for found in (plain, mixed, aligned)]
    assert losses[2] == pytest.approx(losses[0], rel=CLOSE)
    assert losses[1][-1] > losses[0][-1] + 0.05


def test_subsets_on_data_of_others(there: SimpleNamespace) -> None:
    """Places and alignment go together."""
    rows = {"plain": there.plain, "mixed": there.mixed}
    parts = {0: range(0, 40), 1: range(40, 80), 2: range(80, 120), 3: range(120, 160)}
    labels = np.load(there.data.removeprefix("npz:"))["y_train"]
    found = {}
    for name, path in rows.items():
        round_ = fedscope.Run.open(path).round(1)
        run = there.plain.parent / f"held-{name}"
        if not run.exists():
            recorder = fedscope.Recorder(
                run,
                model=net(),
                data=there.data,
                partition={k: np.array(own) for k, own in parts.items()},
                labels=labels,
            )
            with recorder:
                clients = [round_.client(k).arrays() for k in range(CLIENTS)]
                recorder.round(start=round_.read("start").arrays(), clients=clients, samples=[40] * CLIENTS)
        more = {"align": "activations"} if name == "mixed" else {}
        found[name] = fedscope.subsets(run, data_of="own", sizes="2,4", **asked(there), **more)
    plain, mixed = ([row.loss_mean for row in found[name].rounds[0].sizes] for name in rows)
    assert mixed == pytest.approx(plain, rel=CLOSE)


@pytest.mark.parametrize("server", ["fma", "fedgma", "ties"])
def test_reaggregation_of_shuffled_clients(there: SimpleNamespace, server: str) -> None:
    """Servers step from the start, in whose order the clients are brought."""
    plain, mixed, aligned = (
        fedscope.reaggregate(run, server, rounds=1, **asked(there, **more))
        for run, more in ((there.plain, {}), (there.mixed, {}), (there.mixed, {"align": "weights"}))
    )
    own = [next(row for row in found.measured if row.server == server) for found in (plain, mixed, aligned)]
    assert own[2].loss == pytest.approx(own[0].loss, rel=CLOSE)
    assert own[1].loss > own[0].loss + 0.05
    assert any("one order before, matched by weights" in note for note in aligned.notes())
    of_recorded = "lowered by others, in the clients' own order of units"
    assert [of_recorded in found.summary() for found in (mixed, aligned)] == [False, True]


def test_lines_over_rounds_by_layer(there: SimpleNamespace) -> None:
    """Each round's end is brought into the order of its start."""
    how = asked(there, rounds="all", layers="each", points=5)
    plain, mixed, aligned = (
        fedscope.line(run, **how, **more)
        for run, more in ((there.plain, {}), (there.mixed, {}), (there.mixed, {"align": "weights"}))
    )
    barriers = [[cell.barrier for cell in found.cells] for found in (plain, mixed, aligned)]
    # of losses near 0.2, whose sums differ in their order
    assert barriers[2] == pytest.approx(barriers[0], abs=1e-6)
    assert max(barriers[1]) > max(barriers[0]) + 0.05


def test_planes_on_the_same_axes(there: SimpleNamespace) -> None:
    """All models of all planes are brought into one order, before the directions are made of them."""
    names = [f"{there.plain}@1", f"{there.mixed}@1"]
    both = fedscope.plane(names, same_axes=True, align="weights", grid=5, **asked(there))
    plain, mixed = (panel.plane for panel in both.panels())
    np.testing.assert_allclose(mixed.loss, plain.loss, rtol=1e-4)
    apart = fedscope.plane(names, same_axes=True, grid=5, **asked(there))
    assert not np.allclose(*(panel.plane.loss for panel in apart.panels()), rtol=0.05)


def test_the_plane_of_a_round(there: SimpleNamespace) -> None:
    plain = fedscope.plane(f"{there.plain}@1", clients=True, grid=5, **asked(there))
    aligned = fedscope.plane(f"{there.mixed}@1", clients=True, grid=5, align="activations", **asked(there))
    np.testing.assert_allclose(aligned.loss, plain.loss, rtol=1e-4)


def remark(figure: Any) -> str:
    return " ".join(text.get_text() for text in figure.texts).replace("\n", " ")


def test_every_answer_says_that_units_were_brought_into_one_order(there: SimpleNamespace) -> None:
    """Its sentence, its figure, its page and its findings; without alignment none does."""
    clients = [f"{there.mixed}@1/client-{k}" for k in range(3)]
    first = "mixed@1/client-0"
    questions: list[tuple[Any, Any, dict[str, Any], str]] = [
        (fedscope.line, clients[:2], {"points": 3}, first),
        (fedscope.line, f"{there.mixed}@1", {"clients": True, "points": 3}, first),
        (fedscope.line, clients[:2], {"layers": "each", "points": 3}, first),
        (fedscope.line, there.mixed, {"rounds": "all", "layers": "each", "points": 3}, "global"),
        (fedscope.plane, clients, {"grid": 4}, first),
        (fedscope.plane, f"{there.mixed}@1", {"clients": True, "grid": 4}, first),
        (fedscope.subsets, there.mixed, {"rounds": 1, "sizes": "1,4"}, "the first client"),
    ]
    for question, models, more, whose in questions:
        found = question(models, **asked(there, **more), align="weights")
        said = f"units in the order of {whose}'s, matched by weights"
        assert said in found.summary(), more
        assert said in remark(found.figure()), more
        assert found.findings()["align"] == "weights", more
        plain = question(models, **asked(there, **more))
        assert "units in the order" not in plain.summary() + remark(plain.figure()), more
        assert "align" not in plain.findings(), more
        if question is fedscope.plane:
            assert "matched by weights" in found.page().replace("<br>", " ")
            assert "matched by weights" not in plain.page().replace("<br>", " ")
    found = fedscope.reaggregate(there.mixed, ["fma", "fedgma"], rounds=1, align="weights", **asked(there))
    assert "units brought into one order before, matched by weights" in remark(found.figure())


def test_panels_of_several_planes_say_whose_order_their_units_have(there: SimpleNamespace) -> None:
    rounds = fedscope.plane(there.mixed, rounds="1,2", align="weights", grid=4, **asked(there))
    assert "units in the order of each panel's first model's, matched by weights" in remark(rounds.figure())
    names = [f"{there.plain}@1", f"{there.mixed}@1"]
    both = fedscope.plane(names, same_axes=True, align="weights", grid=4, **asked(there))
    assert "units in the order of the first model's, matched by weights" in remark(both.figure())


@pytest.mark.parametrize("question", [fedscope.line, fedscope.plane, fedscope.subsets, fedscope.reaggregate])
def test_an_unknown_word_names_the_nearest(there: SimpleNamespace, question: Any) -> None:
    given = {"servers": "fma", "rounds": 1} if question is fedscope.reaggregate else {}
    with pytest.raises(fedscope.FedscopeError, match=r"weight.*weights"):
        question(there.plain, align="weight", **given, **asked(there))


def test_the_share_of_a_rounds_units_that_would_move(tmp_path: Path) -> None:
    """Of client 1 three units of the first layer change their places, of client 2 two of the second, none else."""
    torch.manual_seed(4)
    start: State = net().state_dict()
    near = [{name: values + 0.01 * torch.randn(values.shape) for name, values in start.items()} for _ in range(3)]
    first, second = torch.arange(UNITS), torch.arange(UNITS)
    first[[2, 5, 9]], second[[0, 7]] = torch.tensor([5, 9, 2]), torch.tensor([7, 0])
    near[1] |= {
        "0.weight": near[1]["0.weight"][first],
        "0.bias": near[1]["0.bias"][first],
        "2.weight": near[1]["2.weight"][:, first],
    }
    near[2] |= {
        "2.weight": near[2]["2.weight"][second],
        "2.bias": near[2]["2.bias"][second],
        "4.weight": near[2]["4.weight"][:, second],
    }
    x, y = torch.randn(60, 6), torch.arange(60) % 3
    np.savez(tmp_path / "data.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    with fedscope.Recorder(tmp_path / "run", model=net(), data=f"npz:{tmp_path}/data.npz") as recorder:
        recorder.round(start=start, clients=near)
    for by in ("weights", "activations"):
        found = fedscope.align(f"{tmp_path}/run@1", by=by, model=net(), data=f"npz:{tmp_path}/data.npz")
        moved = {(row.model, row.layer): row.moved for row in found.moved}
        layers = sorted({layer for _, layer in moved})
        assert len(layers) == 2
        assert [[moved[f"run@1/client-{k}", layer] for layer in layers] for k in range(3)] == [[0, 0], [3, 0], [0, 2]]
        assert found.averages == ()
