"""Planes that take a round's clients by themselves, some of whom diverged."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

import fedscope
from fedscope import Plane, Recorder
from fedscope.checkpoints import FedscopeError, Run
from fedscope.checkpoints.io.warn_user import FedscopeWarning
from fedscope.landscape.planes.inputs import panels_of

pytestmark = pytest.mark.usefixtures("few_digits")


def net() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


ASKED: dict[str, Any] = {"grid": 3, "limit": 20, "model": net}


def recorded(path: Path, broken: Sequence[Sequence[int]], clients: int = 5, **how: str) -> str:
    """Rounds of the same clients, in each of which some have a NaN."""
    draw = np.random.default_rng(0)

    def model(*, is_broken: bool = False) -> dict[str, np.ndarray]:
        weight = draw.normal(size=(10, 64)).astype(np.float32)
        weight[0, 0] = np.nan if is_broken else weight[0, 0]
        return {"1.weight": weight, "1.bias": np.zeros(10, np.float32)}

    with warnings.catch_warnings(), Recorder(path, data="digits", **how) as recorder:
        warnings.simplefilter("ignore")
        for own in broken:
            recorder.round(start=model(), clients=[model(is_broken=k in own) for k in range(clients)], global_=model())
    return str(path)


def addresses(plane: Plane) -> list[str]:
    return [str(one).rpartition("@")[2] for one in plane.attrs["addresses"]]


def test_a_rounds_clients_that_diverged_are_left_out_and_named(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", [[], [1], [0, 1]])
    said = {2: "the model of client 1 is not finite, so it is left out"}
    said[3] = "the models of clients 0, 1 are not finite, so they are left out"
    for number, words in said.items():
        with pytest.warns(FedscopeWarning) as heard:
            plane = fedscope.plane(f"{run}@{number}", clients=True, **ASKED)
        assert [str(one.message) for one in heard] == [f"{run}@{number}: {words}"]
        kept = [k for k in range(5) if k not in ({2: [1], 3: [0, 1]})[number]]
        assert addresses(plane) == [f"{number}/client-{k}" for k in kept]
        assert f"; {words}" in plane.summary()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            same = fedscope.plane([f"{run}@{number}/client-{k}" for k in kept[:3]], **ASKED)
            if number == 2:
                finite = fedscope.plane(f"{run}@1", clients=True, **ASKED)
        assert addresses(same) == [f"{number}/client-{k}" for k in kept[:3]]
    assert len(finite.anchors) == 5
    assert "left_out" not in finite.attrs
    with pytest.warns(FedscopeWarning, match="clients 0, 1 are not finite"):  # of a run alone its last round
        assert np.array_equal(fedscope.plane(run, **ASKED).loss, plane.loss)


def test_planes_on_the_same_axes_are_of_finite_clients(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", [[], [1]])
    with pytest.warns(FedscopeWarning) as heard:
        planes = fedscope.plane([f"{run}@1", f"{run}@2"], same_axes=True, show=f"{run}@2/global", **ASKED)
    words = "the model of client 1 is not finite, so it is left out"
    assert [str(one.message) for one in heard] == [f"{run}@2: {words}"]
    first, second = (panel.plane for panel in planes.panels())
    assert addresses(first) == [f"1/client-{k}" for k in range(5)]
    assert addresses(second) == ["2/client-0", "2/client-2", "2/client-3", "2/client-4", "2/global"]
    assert [len(first.anchors), len(second.anchors), len(second.shown)] == [5, 4, 1]
    assert words in second.summary()
    assert words not in first.summary()


def test_panels_over_rounds_go_through_the_first_finite_clients(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", [[], [0, 2], [1]])
    with pytest.warns(FedscopeWarning) as heard:
        planes = fedscope.plane(run, rounds="1-3", **ASKED)
    assert [str(one.message).partition(": ")[2] for one in heard] == [
        "the models of clients 0, 2 are not finite, so they are left out",
        "the model of client 1 is not finite, so it is left out",
    ]
    assert [addresses(plane) for plane in [panel.plane for panel in planes.panels()][:3]] == [
        ["1/client-0", "1/client-1", "1/client-2"],
        ["2/client-1", "2/client-3", "2/client-4"],
        ["3/client-0", "3/client-2", "3/client-3"],
    ]
    panel = panels_of(Run.open(run), run, "2", "")[0]
    assert (panel.members[2], panel.spare) == (f"{run}@2/client-2", (f"{run}@2/client-3", f"{run}@2/client-4"))


def test_where_too_few_clients_are_finite_that_is_said(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", [[], [0, 1, 3]])
    said = (
        f"{run}@2: the models of clients 0, 1, 3 are not finite, so 2 of 5 clients are left, but a plane needs three; "
        "ask for a round from before they broke"
    )
    for asked in ({"models": f"{run}@2", "clients": True}, {"models": run, "rounds": 2}, {"models": run}):
        with pytest.raises(FedscopeError) as refused:
            fedscope.plane(asked.pop("models"), **asked, **ASKED)
        assert str(refused.value) == said
    with pytest.raises(FedscopeError) as refused:
        fedscope.plane([f"{run}@2/client-{k}" for k in (0, 2, 4)], **ASKED)
    assert str(refused.value) == (
        "run@2/client-0 has 1 of 650 parameters that are not finite, so no plane goes through it; name three models "
        "that are finite, A B C"
    )
