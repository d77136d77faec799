"""Planes that take a round's clients by themselves, some of whom diverged."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedscope
from fedscope import Plane, Recorder
from fedscope.checkpoints import FedscopeError, Run
from fedscope.checkpoints.io.warn_user import FedscopeWarning
from fedscope.landscape.planes.drawing.fill import remarks
from fedscope.landscape.planes.inputs import panels_of
from fedscope.landscape.run_alone import Chosen
from fedscope.training.data.published import digits

pytestmark = pytest.mark.usefixtures("few_digits")


def net() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


ASKED: dict[str, Any] = {"grid": 3, "limit": 20, "model": net}


def recorded(path: Path, broken: Sequence[Sequence[int]], clients: int = 5, **how: Any) -> str:
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
        assert f"; {words}; " in remarks([plane])
    assert "left out" not in remarks([finite])
    assert "; clients that are not finite are left out in 1 of 2 panels" in remarks([finite, plane])
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


def test_a_mask_of_infinities_in_a_buffer_is_no_divergence(tmp_path: Path) -> None:
    mask = np.triu(np.full((2, 2), -np.inf, np.float32), 1)
    draw = np.random.default_rng(0)

    class Masked(nn.Linear):
        def __init__(self) -> None:
            super().__init__(64, 10)
            self.register_buffer("mask", torch.from_numpy(mask))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x.flatten(1))

    def model() -> dict[str, np.ndarray]:
        weight = draw.normal(size=(10, 64)).astype(np.float32)
        return {"weight": weight, "bias": np.zeros(10, np.float32), "mask": mask}

    with warnings.catch_warnings(), Recorder(tmp_path / "run", data="digits") as recorder:
        warnings.simplefilter("ignore")
        recorder.round(start=model(), clients=[model() for _ in range(4)], global_=model())
    plane = fedscope.plane(f"{tmp_path / 'run'}@1", clients=True, **{**ASKED, "model": Masked})
    assert addresses(plane) == [f"1/client-{k}" for k in range(4)]
    assert "left_out" not in plane.attrs


def test_planes_are_on_data_of_the_clients_that_they_are_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is left out has no panel, and one that takes its place has its own."""
    labels = digits.PROVIDES("").y_train
    rows = np.array_split(np.arange(len(labels)), 5)
    run = recorded(tmp_path / "run", [[], [0, 1]], partition=rows, labels=labels)
    named = [f"{run}@2/client-{k}" for k in range(5)]
    chosen = Chosen(tuple(named[:3]), "models", "three of the clients", tuple(named[3:]))
    monkeypatch.setattr("fedscope.landscape.planes.analysis.choose_plane", lambda path: chosen)
    for asked in ({"models": run}, {"models": f"{run}@2", "clients": True}):
        with pytest.warns(FedscopeWarning) as heard:
            planes = fedscope.plane(asked.pop("models"), **asked, data_of="clients", **ASKED)
        said = f"{run}@2: the models of clients 0, 1 are not finite, so they are left out"
        assert [str(one.message) for one in heard if "finite" in str(one.message)] == [said]
        panels = list(planes.panels())
        assert [panel.plane.attrs["client"] for panel in panels] == [2, 3, 4]
        assert [addresses(panel.plane) for panel in panels] == [["2/client-2", "2/client-3", "2/client-4"]] * 3
        assert said.partition(": ")[2] in panels[0].plane.summary()
    with pytest.warns(FedscopeWarning, match="clients 0, 1 are not finite"):
        both = fedscope.plane([f"{run}@1", f"{run}@2"], same_axes=True, data_of="clients", **ASKED)
    assert {panel.plane.attrs["client"] for panel in both.panels()} == {0, 1, 2, 3, 4}  # round 1 has all of them


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
