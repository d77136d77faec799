"""Planes along one pair of directions, against a singular value decomposition, single planes and direct evaluation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from random_models import measured_directly, random_models, random_samples
from torch import nn

from fedscope.checkpoints import FedscopeError, Layout, Model, Weights
from fedscope.evaluation.samples import Samples
from fedscope.landscape import Panel, near_clients, on_same_axes, random_directions, survey
from fedscope.landscape.planes.rises import rise_of, rise_words


def network() -> tuple[nn.Module, Samples]:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3))
    return module, random_samples(60, (1, 4, 4))


def groups_of(module: nn.Module, *sizes: int) -> list[list[Model]]:
    """Clients of several rounds, each about another place and spread otherwise."""
    models, layout, draw = iter(random_models(module, sum(sizes))), Layout.of(module), np.random.default_rng(3)
    groups = []
    for number, size in enumerate(sizes, start=1):
        centre, spread = draw.standard_normal(layout.size), np.geomspace(1, 0.1, layout.size) ** number
        groups.append([])
        for k in range(size):
            w = (centre + 0.3 * number * spread * next(models).weights.parameters).astype(np.float32)
            groups[-1].append(Model(f"r{number}@9/client-{k}", f"runs/r{number}@9/client-{k}", Weights(layout, w, {})))
    return groups


def centred(group: list[Model]) -> np.ndarray:
    rows = np.stack([model.weights.parameters for model in group]).astype(np.float64)
    return np.asarray(rows - rows.mean(axis=0))


def test_of_one_group_they_are_todays_planes_bit_for_bit() -> None:
    module, samples = network()
    (clients,) = groups_of(module, 6)
    for kind, group, alone in (
        ("clients", clients, near_clients(clients)),
        ("random", clients[:1], random_directions(clients[0], 4)),
    ):
        (span,) = on_same_axes(kind, [group], 4)
        for one, other in zip(span.bases, alone.bases, strict=True):
            assert one.parameters.tobytes() == other.parameters.tobytes()
        (found,), (expected,) = (survey(module, [samples], one, grid=5) for one in (span, alone))
        assert found.loss.tobytes() == expected.loss.tobytes()
        assert found.a.tobytes() == expected.a.tobytes()
        assert [(m.label, m.a, m.b, m.off_plane, m.loss) for m in found.models] == [
            (m.label, m.a, m.b, m.off_plane, m.loss) for m in expected.models
        ]
        if kind == "clients":
            assert found.attrs["explained"] == pytest.approx(expected.attrs["explained"], rel=1e-9)


def test_the_directions_are_the_components_of_all_clients_each_round_counted_alike() -> None:
    module, _ = network()
    groups = groups_of(module, 5, 7)
    spans = on_same_axes("clients", groups)
    u_hat, v_hat = (base.parameters for base in spans[0].bases[1:])
    for span, group in zip(spans, groups, strict=True):
        assert span.bases[1].parameters is u_hat, "one pair of vectors, held once"
        assert span.bases[2].parameters is v_hat
        middle = np.mean([model.weights.parameters.astype(np.float64) for model in group], axis=0)
        np.testing.assert_allclose(span.bases[0].parameters, middle, atol=1e-6)
    together = np.concatenate([x / np.linalg.norm(x) for x in map(centred, groups)])
    _, _, reference = np.linalg.svd(together, full_matrices=False)
    np.testing.assert_allclose(np.abs(reference[:2] @ np.stack([u_hat, v_hat]).T), np.eye(2), atol=1e-9)
    for axis in (u_hat, v_hat):
        scores = together @ axis
        assert scores[np.argmax(np.abs(scores))] > 0
    for span, x in zip(spans, map(centred, groups), strict=True):
        shares = [((x @ axis) ** 2).sum() / (x**2).sum() for axis in (u_hat, v_hat)]
        np.testing.assert_allclose(span.about["explained"], shares, rtol=1e-9)
    # neither is the first
    turned = on_same_axes("clients", groups[::-1])
    np.testing.assert_allclose(turned[0].bases[1].parameters, u_hat, atol=1e-9)
    np.testing.assert_allclose(turned[0].bases[2].parameters, v_hat, atol=1e-9)


def test_a_round_whose_clients_are_farther_apart_does_not_decide_the_directions() -> None:
    module, _ = network()
    first, second = groups_of(module, 5, 5)
    middle = np.mean([model.weights.parameters.astype(np.float64) for model in second], axis=0)
    wider = [
        replace(m, weights=Weights(m.weights.layout, (middle + 64 * (m.weights.parameters - middle)).astype("f4"), {}))
        for m in second
    ]
    usual, scaled = (on_same_axes("clients", [first, group])[0].bases for group in (second, wider))
    for one, other in zip(usual[1:], scaled[1:], strict=True):
        np.testing.assert_allclose(one.parameters, other.parameters, atol=1e-5)


def test_random_directions_have_filters_as_long_as_the_models_are_on_average() -> None:
    module, _ = network()
    a, b, c = (group[0] for group in groups_of(module, 1, 1, 1))
    spans = on_same_axes("random", [[a], [b], [c]], 7)
    u_hat, v_hat = (base.parameters for base in spans[0].bases[1:])
    assert all(span.bases[1].parameters is u_hat for span in spans)
    assert [span.bases[0].parameters is m.weights.parameters for span, m in zip(spans, (a, b, c), strict=True)] == [
        True
    ] * 3
    length = spans[0].about["direction_lengths"][0]
    for name, rows in (("0.weight", 4), ("3.weight", 3)):
        where = a.weights.layout.slices[name]
        own = [np.linalg.norm(m.weights.parameters[where].reshape(rows, -1), axis=1) for m in (a, b, c)]
        expected = np.sqrt(np.mean(np.square(own), axis=0))
        np.testing.assert_allclose(np.linalg.norm(length * u_hat[where].reshape(rows, -1), axis=1), expected, rtol=1e-6)
    assert abs(u_hat @ v_hat) < 1e-12
    assert {span.reach for span in spans} == {length}
    turned = on_same_axes("random", [[c], [a], [b]], 7)
    np.testing.assert_allclose(turned[0].bases[1].parameters, u_hat, atol=1e-12)


@pytest.mark.parametrize("kind", ["clients", "random"])
def test_a_plain_loop_over_the_points_agrees(kind: str) -> None:
    module, samples = network()
    groups = groups_of(module, 4, 5) if kind == "clients" else groups_of(module, 1, 1)
    exact = replace(samples, x=samples.x.double())
    for span, group in zip(on_same_axes(kind, groups), groups, strict=True):
        (found,) = survey(module, [samples], span, grid=(4, 3), ranges=((-1, 2), (-1.5, 1)))
        origin = np.mean([m.weights.parameters.astype(np.float64) for m in group], axis=0)
        # as stored: a round's mean is rounded once
        np.testing.assert_allclose(span.bases[0].parameters, origin, atol=1e-7)
        u_hat, v_hat = (base.parameters for base in span.bases[1:])
        for row, b in enumerate(np.linspace(-1.5, 1, 3)):
            for column, a in enumerate(np.linspace(-1, 2, 4)):
                w = span.bases[0].parameters.astype(np.float64) + a * u_hat + b * v_hat
                point = Weights(span.bases[0].layout, w.astype(np.float32).astype(np.float64), {})
                loss, *_ = measured_directly(module.double(), point, exact)
                module.float()
                assert found.loss[row, column] == pytest.approx(loss, rel=2e-7)


def test_how_far_the_loss_rises_in_closed_form() -> None:
    module, samples = network()
    planes = []
    for span, steepness in zip(on_same_axes("clients", groups_of(module, 4, 4)), (1.0, 3.0), strict=True):
        (plane,) = survey(module, [samples], span, grid=41, ranges=((-2, 3), (-2, 3)))
        a, b = np.meshgrid(plane.a, plane.b)
        models = tuple(replace(model, loss=0.5) for model in plane.models)
        planes.append(replace(plane, loss=0.5 + steepness * (a**2 + b**2), models=models))
    panels = [Panel("", plane, "", "", name) for plane, name in zip(planes, ("x@1", "y@1"), strict=True)]
    rise = rise_of(panels)
    assert rise is not None
    assert rise.radius == 1
    assert rise.rises[0] == pytest.approx(0.5, rel=0.05)  # the mean of r² over a disc is half of its radius squared
    assert rise.rises[1] == pytest.approx(3 * rise.rises[0])
    assert rise.origins == (0.5, 0.5)
    assert rise_words(panels).startswith(
        "Within 1 of the origin, along the same two directions, the loss rises on average by "
    )
    assert "(x@1) and" in rise_words(panels)
    assert "so x@1 is the flatter one" in rise_words(panels)
    # of a plane with a loss that is not finite nobody knows how flat it is
    hole = planes[1].loss.copy()
    hole[20, 20] = np.nan
    unknown = [panels[1], replace(panels[0], plane=replace(planes[1], loss=hole)), panels[0]]
    assert "nan" in rise_words(unknown)
    assert "flat" not in rise_words(unknown)
    # a small difference is not called one
    close = [*panels[:1], replace(panels[1], plane=replace(planes[0], loss=1.05 * planes[0].loss - 0.025))]
    assert "flatter" not in rise_words(close)
    off = [replace(panel, plane=replace(panel.plane, a=panel.plane.a + 5)) for panel in panels]
    assert rise_of(off) is None
    assert rise_words(off) == ""


def test_rounds_that_give_no_directions_are_named() -> None:
    module, _ = network()
    first, second = groups_of(module, 4, 4)
    with pytest.raises(FedscopeError, match="a plane near clients needs at least three models, but r2@9 has 2"):
        on_same_axes("clients", [first, second[:2]])
    same = [replace(model, weights=second[0].weights) for model in second]
    with pytest.raises(FedscopeError, match="the 4 clients of r2@9 have all the same parameters"):
        on_same_axes("clients", [first, same])
    second[1].weights.parameters[3] = np.nan
    with pytest.raises(FedscopeError, match=r"r2@9/client-1 has 1 of \d+ parameters that are not finite"):
        on_same_axes("clients", [first, second])
    with pytest.raises(FedscopeError, match=r"r2@9/client-1 has 1 of \d+ parameters that are not finite, so no direct"):
        on_same_axes("random", [first[:1], second[1:2]])


def test_another_kind_of_plane_is_refused() -> None:
    module = nn.Linear(2, 2)
    with pytest.raises(FedscopeError, match=r"^planes on the same axes are of clients or random, not of 'trajectory'$"):
        on_same_axes("trajectory", groups_of(module, 3))
