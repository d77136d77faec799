"""What figures call the models of a plane: legends of panels, the owner of the data, captions, titles; how a panel is
shaped; and what is said of an adaptive surface."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from legible import assert_inside
from random_models import random_samples
from torch import nn

from fedscope import FedscopeError
from fedscope.evaluation.normalization import Normalization
from fedscope.landscape import Plane, PlaneModel, draw_panels
from fedscope.landscape.planes.drawing.fill import remarks
from fedscope.landscape.planes.drawing.markers import ANCHOR, OWNER, is_owner, keys_of, rows_of
from fedscope.landscape.planes.page import _groups


def own_data(client: int, clients: tuple[int, ...] = (3, 8, 13, 11), **attrs: Any) -> Plane:
    """A round's clients and their mean, a global model beside them, measured on one client's data."""
    a = np.linspace(-1, 1, 9)
    loss = 0.1 * client + a[None, :] ** 2 + a[:, None] ** 2
    turns = np.linspace(0, 5, len(clients))
    models = [
        PlaneModel(f"ima@20/client-{k}", np.cos(t), np.sin(t), 0.4, 0.5, 0.1, np.nan, np.nan, "anchor")
        for k, t in zip(clients, turns, strict=True)
    ]
    models.append(PlaneModel("mean", 0.0, 0.0, 0.0, 0.1 * client, 0.1, np.nan, np.nan, "mean"))
    models.append(PlaneModel("ima@60", 0.2, 0.0, 0.3, 0.3 + client, 0.1, np.nan, np.nan))
    about = {"kind": "clients", "data": "digits", "split": "train", "samples": 29, "client": client, **attrs}
    return Plane(a, a, loss, loss / 10, tuple(models), 0.0, "none", about)


def words_of(planes: list[Plane]) -> list[str]:
    return [words for _, words in keys_of(planes)]


def test_a_model_with_another_loss_on_every_panel_is_named_once_without() -> None:
    words = words_of([own_data(3), own_data(8), own_data(13)])
    assert [phrase for phrase in words if phrase.startswith("ima@60")] == ["ima@60"]


def test_a_model_with_one_loss_keeps_it_and_its_distance() -> None:
    one = own_data(3)
    without = replace(one, models=one.models[:-1])
    for planes in ([one], [one, without], [one, one]):
        assert "ima@60: loss 3.30, 0.3 off the plane" in words_of(planes)


@pytest.mark.parametrize(("width", "told"), [(3.5, True), (3.0, False), (2.5, False), (7.0, True)])
def test_a_long_name_is_cut_and_never_its_numbers(width: float, told: bool) -> None:
    """Half a number is a wrong one: `ima-seed0@60/averaged:…3.30` may have been 13.30."""
    plane, name, numbers = own_data(3), "ima-seed0@60/averaged", ": loss 3.30, 0.3 off the plane"
    named = replace(plane, models=(*plane.models[:-1], replace(plane.models[-1], label=name)))
    figure = draw_panels([named, named], ["one", "two"], width)
    (shown,) = [
        text.get_text() for text in figure.texts if "ima-" in text.get_text() and "whose" not in text.get_text()
    ]
    assert shown.endswith(numbers) == told
    kept = shown.removesuffix(numbers)
    assert kept == name if width != 3.5 else "…" in kept and kept.startswith("ima-s") and kept.endswith("averaged")
    assert_inside(figure, width)


def owners(plane: Plane) -> list[str]:
    return [model.label for model in plane.models if is_owner(plane, model)]


def test_the_owner_is_the_client_of_that_whole_number() -> None:
    assert owners(own_data(3)) == ["ima@20/client-3"]
    assert owners(own_data(13)) == ["ima@20/client-13"]
    assert owners(own_data(1)) == [], "neither 11 nor 13"
    nobody = own_data(3)
    del nobody.attrs["client"]
    assert owners(nobody) == []


def test_the_owner_is_a_client_of_the_run_that_the_data_are_of() -> None:
    plane = own_data(3, data_run="ima")
    other = PlaneModel("fma@20/client-3", 0.1, 0.1, 0.2, 0.5, 0.1, np.nan, np.nan)
    longer = replace(other, label="ima2@20/client-3")
    plane = replace(plane, models=(*plane.models, other, longer))
    assert owners(plane) == ["ima@20/client-3"]
    assert owners(replace(plane, attrs={**plane.attrs, "data_run": "fma"})) == ["fma@20/client-3"]


@pytest.mark.parametrize("client", [3, 13])  # the first and a later one
def test_the_owner_has_an_entry_of_its_own_on_the_page(client: int) -> None:
    groups = [(look, name, [m.label for m in models]) for models, look, name, _ in _groups(own_data(client))]
    (others,) = [group for group in groups if group[1] == "3 other clients"]
    (owner,) = [group for group in groups if group[1].startswith("the client whose data they are")]
    assert (others[0]["color"], owner[0]["color"]) == (ANCHOR["color"], OWNER["color"])
    assert owner[2] == [f"ima@20/client-{client}"]
    assert sorted([*others[2], *owner[2]]) == sorted(m.label for m in own_data(client).anchors)


def test_a_page_whose_data_are_nobodys_has_one_entry_for_all_clients() -> None:
    names = [name for _, _, name, _ in _groups(own_data(1))]
    assert names[0] == "4 clients"
    assert not any("whose data" in name for name in names)


@pytest.mark.parametrize("client", [3, 13])
def test_the_tables_row_for_all_clients_is_black_and_the_owners_is_not(client: int) -> None:
    rows = rows_of(own_data(client))
    assert [(row.label, row.look["color"]) for row in rows[:2]] == [
        ("4 clients, each alone", ANCHOR["color"]),
        (f"ima@20/client-{client}", OWNER["color"]),
    ]


def test_the_caption_says_that_it_is_the_loss_that_was_checked() -> None:
    plane = own_data(3, held_out_loss_error=0.00181)
    computed = np.ones(plane.loss.shape, dtype=bool)
    computed[0] = False
    said = remarks([replace(plane, computed=computed)])
    assert "9 of 81 points interpolated, loss checked to 0.18 % of its range" in said


@pytest.mark.parametrize(
    "width", [2.0, *(pytest.param(width, marks=pytest.mark.slow) for width in (2.5, 3.0, 4.1)), 3.25, 7.0]
)
def test_titles_of_panels_differ_and_nothing_leaves_the_sheet(width: float) -> None:
    clients = (3, 8, 13, 11, 108)
    planes = [own_data(k, clients) for k in clients]
    figure = draw_panels(planes, [f"Client {k}'s data" for k in clients], width)
    assert len({axes.get_title() for axes in figure.axes} - {""}) == len(clients)
    assert_inside(figure, width)


def test_titles_that_are_too_long_are_cut_where_they_stay_distinct() -> None:
    planes = [own_data(3), own_data(8)]
    for titles in (["Clients 15 of one round", "Clients 16 of one round"], ["a" * 40, "a" * 39 + "b"]):
        figure = draw_panels(planes, titles, 3.5)
        told = [axes.get_title() for axes in figure.axes if axes.get_title()]
        assert len(set(told)) == 2
        assert all("…" in title and len(title) < 25 for title in told)


def test_statistics_of_one_sample_are_refused() -> None:
    module = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    buffers = {name: values.numpy() for name, values in module.named_buffers()}
    one, two = (random_samples(n, (2,)) for n in (1, 2))
    with pytest.raises(FedscopeError, match=r"need at least 2 samples, but got 1; give --limit 2 or more"):
        Normalization.of(module, buffers, "re-estimate", one, torch.clone)
    assert Normalization.of(module, buffers, "re-estimate", two, torch.clone).policy == "re-estimate"
    assert Normalization.of(module, buffers, "keep", one, torch.clone).policy == "keep"


# --- what a plane says of an adaptive surface ---

HELD_OUT = {
    "points_computed": 300, "points_held_out": 60, "points_unknown": 0,
    "held_out_loss_error": 0.004, "held_out_error_rms": 0.01,
    "held_out_loss_low": 0.013, "held_out_loss_bands": 0.2, "adaptive": 0.12,
}  # fmt: skip
MET = "(the aim, 0.5 %, 0.25 and 2 %, is met)"
MISSED = (
    "(more than the aim, 0.5 %, 0.25 and 2 %, which a budget of 12 % did not reach: ask again with a larger --budget, "
    "or none, to go on from these points)"
)


@pytest.mark.parametrize(
    ("beyond", "said", "missed"),
    [
        (1.0, "at most 0.4 % of its range, 0.2 bands of the colour scale, over the lowest", False),
        (1.01, "over the lowest tenth 1.3 % of itself", True),
    ],
)
def test_an_aim_that_is_missed_is_said(beyond: float, said: str, missed: bool) -> None:
    axis, loss = np.arange(50.0), np.ones((50, 50))
    some = np.arange(2500).reshape(50, 50) < 300
    model = PlaneModel("m", 0.0, 0.0, 0.0, 1.0, 0.1, np.nan, np.nan, "origin")
    plane = Plane(axis, axis, loss, loss, (model,), 0.0, "none", {**HELD_OUT, "held_out_beyond": beyond}, some)
    words = plane.summary()
    assert "300 of 2,500 points measured (12 %), the others interpolated: at 60 points held out the loss" in words
    assert said in words
    assert (MISSED in words) == missed
    assert (MET in words) != missed
    assert f"of itself, {'more than' if missed else 'within'} the aim" in remarks([plane])
    unknown = replace(plane, attrs={**plane.attrs, "points_unknown": 3, "points_taken_over": 120}).summary()
    assert "300 of 2,500 points measured (12 %), 120 of them before, the others interpolated" in unknown
    assert "3 points next to losses that are not finite are unknown" in unknown
    assert missed or "is met where points are known, and a budget of 12 % left some unknown: ask again" in unknown
    whole = replace(plane, computed=loss > 0, attrs={**plane.attrs, "points_computed": 2500, "held_out_beyond": 0.0})
    assert "all points measured: fewer do not tell this surface" in whole.summary()
    few = replace(whole, a=axis[:5], b=axis[:5], loss=loss[:5, :5], error=loss[:5, :5], computed=loss[:5, :5] > 0)
    few.attrs["points_computed"] = 25
    assert "all points measured: too few to interpolate" in few.summary()


@pytest.mark.parametrize("shape", [0.3, 1.0, 1.3, 2.0])
def test_distances_are_equally_long_along_both_axes_and_the_panel_fills_its_place(shape: float) -> None:
    """Lengths of another program's directions may be stretched, so that a panel is never a strip."""
    plane = own_data(3)
    plane = replace(plane, b=shape * plane.b)
    other = replace(plane, attrs={**plane.attrs, "units": "model units"})
    for one, wanted in ((plane, shape), (other, min(max(shape, 0.6), 1.3))):
        figure = one.figure(3.5)
        panel = figure.axes[0]
        room = panel.get_position(original=True)
        panel.apply_aspect()
        drawn = panel.get_position(original=False)
        assert (drawn.width, drawn.height) == pytest.approx((room.width, room.height), rel=1e-3)
        assert room.height * figure.get_figheight() / (room.width * 3.5) == pytest.approx(wanted)
