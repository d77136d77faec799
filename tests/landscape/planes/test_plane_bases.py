"""Planes near many models and in random directions, against scikit-learn, Pythagoras and direct evaluation."""

from __future__ import annotations

import copy
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from random_models import measured_directly, random_models, random_samples
from sklearn.decomposition import PCA
from torch import nn

import fedscope
from fedscope.checkpoints import FedscopeError, Layout, Model, Weights
from fedscope.checkpoints.models.weights import TensorEntry
from fedscope.evaluation.samples import Samples
from fedscope.landscape import along_trajectory, basin_of, near_clients, on_same_axes, random_directions, survey
from fedscope.landscape.planes.basis import orthonormal_axes as axes
from fedscope.landscape.planes.basis.orthonormal_axes import principal_components
from fedscope.landscape.planes.basis.plane_bases import filter_normalised, gaussian_direction
from fedscope.landscape.planes.drawing.fill import has_equal_scales, remarks


def network() -> tuple[nn.Module, Samples]:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3))
    return module, random_samples(60, (1, 4, 4))


def direct(module: nn.Module, w: np.ndarray, samples: Samples) -> float:
    exact = replace(samples, x=samples.x.double())
    loss, *_ = measured_directly(module.double(), Weights(Layout.of(module), w, {}), exact)
    module.float()
    return loss


@given(seed=st.integers(0, 1000), count=st.integers(3, 8), size=st.integers(3, 40))
def test_components_are_scikit_learns(seed: int, count: int, size: int) -> None:
    rows = np.random.default_rng(seed).standard_normal((count, size)) * np.geomspace(3, 0.5, size)
    found = principal_components(list(rows), rows[0])
    reference = PCA(2, svd_solver="full").fit(rows)
    np.testing.assert_allclose(found.explained, reference.explained_variance_ratio_, rtol=1e-8)
    shares = reference.explained_variance_ratio_
    if shares[0] - shares[1] > 0.02:  # else the axes may turn in their plane
        np.testing.assert_allclose(np.abs(reference.components_ @ found.u_hat), [1, 0], atol=1e-6)
        np.testing.assert_allclose(np.abs(reference.components_ @ found.v_hat)[0], 0, atol=1e-6)
        scores = (rows - rows.mean(axis=0)) @ found.u_hat
        assert scores[np.argmax(np.abs(scores))] > 0
    for row in rows:
        a, b, off = found.project(row)
        assert a**2 + b**2 + off**2 == pytest.approx(((row - rows[0]) ** 2).sum(), abs=1e-9)


def test_components_do_not_depend_on_how_many_parameters_are_read_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = list(np.random.default_rng(0).standard_normal((5, 23)))
    whole = principal_components(rows, rows[0])
    monkeypatch.setattr(axes, "CHUNK", 4)
    pieces = principal_components(rows, rows[0])
    np.testing.assert_allclose(pieces.u_hat, whole.u_hat, atol=1e-12)
    np.testing.assert_allclose(pieces.v_hat, whole.v_hat, atol=1e-12)


def test_the_clients_plane_goes_through_their_mean_and_says_what_it_shows() -> None:
    module, samples = network()
    clients = random_models(module, 6)
    (found,) = survey(module, [samples], near_clients(clients), grid=5)
    assert found.span == "clients"
    assert [model.role for model in found.models] == ["anchor"] * 6 + ["mean"]
    rows = np.stack([client.weights.parameters for client in clients]).astype(np.float64)
    middle = rows.mean(axis=0)
    assert found.mean is not None
    assert (found.mean.a, found.mean.b) == pytest.approx((0, 0), abs=1e-6)
    seen = sum(model.a**2 + model.b**2 for model in found.anchors)
    whole = ((rows - middle) ** 2).sum()
    assert sum(found.attrs["explained"]) == pytest.approx(seen / whole, rel=1e-6)
    for model, row in zip(found.anchors, rows, strict=True):
        assert model.loss == pytest.approx(direct(module, row, samples), rel=1e-6)
        assert model.a**2 + model.b**2 + model.off_plane**2 == pytest.approx(((row - middle) ** 2).sum(), rel=1e-6)
    basin = basin_of(found)
    assert basin is not None
    assert len(basin.gaps) == 6
    assert sum(basin.gaps) == pytest.approx(360)
    assert "the 6 clients" in basin.sentence()


def test_grid_points_along_components_are_the_models_there() -> None:
    module, samples = network()
    path = random_models(module, 5)
    span = along_trajectory(path)
    (found,) = survey(module, [samples], span, grid=(6, 4))
    rows = [model.weights.parameters.astype(np.float64) for model in path]
    axes = principal_components(rows, rows[-1])
    assert found.loss.shape == (4, 6)
    for row in range(4):
        for column in range(6):
            w = rows[-1] + found.a[column] * axes.u_hat + found.b[row] * axes.v_hat
            assert found.loss[row, column] == pytest.approx(direct(module, w, samples), rel=1e-6)
    last = found.path[-1]
    assert (last.a, last.b, last.off_plane) == (0, 0, 0)
    assert basin_of(found) is None


def test_random_directions_are_filter_normalised_and_orthogonal() -> None:
    module, samples = network()
    (model,) = random_models(module, 1)
    w = model.weights
    made = filter_normalised(gaussian_direction(w.layout, 3), w)
    parts, own = w.layout.views(made), w.layout.views(w.parameters)
    for name in ("0.weight", "3.weight"):
        rows, filters = (values[name].reshape(len(values[name]), -1) for values in (parts, own))
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), np.linalg.norm(filters, axis=1), rtol=1e-6)
    for name in ("0.bias", "3.bias"):
        assert not parts[name].any()
    span = random_directions(model, 3)
    u_hat, v_hat = (base.parameters for base in span.bases[1:])
    np.testing.assert_allclose(u_hat, made / np.linalg.norm(made), rtol=1e-12)
    second = filter_normalised(gaussian_direction(w.layout, 3, 1), w)
    assert np.linalg.norm(v_hat) == pytest.approx(1)
    assert abs(u_hat @ v_hat) < 1e-12
    # v lies in each filter's plane of the two directions, on the second one's side
    assert v_hat @ second > 0
    v = v_hat * np.linalg.norm(made)
    for where, rows in ((w.layout.slices["0.weight"], 4), (w.layout.slices["3.weight"], 3)):
        for u_f, v_f, second_f in zip(*(values[where].reshape(rows, -1) for values in (made, v, second)), strict=True):
            assert np.linalg.matrix_rank(np.stack([u_f, v_f, second_f]), tol=1e-9 * np.linalg.norm(u_f)) == 2
    (found,) = survey(module, [samples], span, grid=5)
    assert found.a[-1] == found.b[-1] == -found.a[0] == pytest.approx(np.linalg.norm(made))
    assert found.loss[2, 2] == found.models[0].loss
    point = w.parameters.astype(np.float64) + found.a[4] * u_hat + found.b[1] * v_hat
    assert found.loss[1, 4] == pytest.approx(direct(module, point, samples), rel=1e-6)
    assert not np.array_equal(random_directions(model, 4).bases[1].parameters, u_hat)


@given(
    shapes=st.lists(st.tuples(st.integers(1, 4), st.integers(2, 5)), min_size=1, max_size=4),
    seed=st.integers(0, 2**31),
    scale=st.floats(1e-3, 1e3),
)
def test_both_random_directions_have_the_models_filters_and_are_orthogonal_in_each(
    shapes: list[tuple[int, int]], seed: int, scale: float
) -> None:
    layout = Layout(tuple(TensorEntry(f"{i}.weight", shape, "float64", "parameter") for i, shape in enumerate(shapes)))
    w = Weights(layout, np.random.default_rng(seed).normal(size=layout.size) * scale, {})
    span = random_directions(Model("m", "m.pt", w), seed)
    reach = span.reach
    assert reach is not None
    u, v = (base.parameters * reach for base in span.bases[1:])
    assert abs(u @ v) < 1e-12 * (u @ u)
    for own, first, second in zip(*(layout.views(x).values() for x in (w.parameters, u, v)), strict=True):
        for w_f, u_f, v_f in zip(own, first, second, strict=True):
            np.testing.assert_allclose([np.linalg.norm(u_f), np.linalg.norm(v_f)], np.linalg.norm(w_f), rtol=1e-6)
            assert abs(u_f @ v_f) < 1e-12 * (w_f @ w_f)


def test_a_filter_of_one_entry_moves_along_the_first_axis_alone() -> None:
    layout = Layout.of(nn.Sequential(nn.Linear(1, 3), nn.Linear(3, 2)))
    w = Weights(layout, np.random.default_rng(0).normal(size=layout.size), {})
    u_hat, v_hat = (base.parameters for base in random_directions(Model("m", "m.pt", w), 0).bases[1:])
    single = layout.slices["0.weight"]
    assert u_hat[single].all()
    assert not v_hat[single].any()
    assert v_hat[layout.slices["1.weight"]].all()
    only = Layout.of(nn.Linear(1, 3))
    with pytest.raises(
        FedscopeError, match=r"m has no filter of two entries that is not zero, so .* draw `fedscope li"
    ):
        random_directions(Model("m", "m.pt", Weights(only, np.ones(6), {})), 0)


@pytest.mark.parametrize("range_of", ["first", "second", "both"])
def test_a_surface_in_random_directions_does_not_change_with_the_scale_between_layers(range_of: str) -> None:
    """A ReLU network's function stays when one layer is doubled and the next one halved; its biases here are 0."""
    module, samples = network()
    (model,) = random_models(module, 1)
    layout = model.weights.layout
    surfaces = []
    for factor in (1.0, 4.0):
        w = model.weights.parameters.copy()
        for name, scale in (("0.weight", factor), ("3.weight", 1 / factor), ("0.bias", 0.0), ("3.bias", 0.0)):
            w[layout.slices[name]] *= scale
        span = random_directions(Model("m", "m.pt", Weights(layout, w, {})), 0)
        # in units of the first direction, as in the paper; the axes' L2 lengths do change
        reach = span.reach
        assert reach is not None
        wide, flat = (-0.1 * reach, 0.1 * reach), (-1e-9, 1e-9)
        ranges = (flat if range_of == "second" else wide, flat if range_of == "first" else wide)
        (found,) = survey(module, [samples], span, grid=5, ranges=ranges)
        surfaces.append(found.loss)
    np.testing.assert_allclose(surfaces[0], surfaces[1], rtol=1e-6)


def one_input_networks() -> tuple[nn.Sequential, nn.Sequential, tuple[torch.Tensor, torch.Tensor]]:
    """A ReLU network of one input, whose first filters have a single entry, and the same function with its first layer
    ten times as large and the second a tenth."""
    torch.manual_seed(0)
    x = torch.rand(60, 1) * 6 - 3
    net = nn.Sequential(nn.Linear(1, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    large = copy.deepcopy(net)
    with torch.no_grad():
        large[0].weight.mul_(10)
        large[0].bias.mul_(10)
        large[2].weight.div_(10)
    return net, large, (x, torch.sin(x[:, 0]))


@pytest.mark.parametrize("together", [False, True])
def test_a_random_plane_is_the_same_picture_where_filters_of_one_entry_move_along_one_axis_alone(
    together: bool,
) -> None:
    """Both directions have other lengths then, whose ratio changes with the scale: each axis has its own."""
    net, large, data = one_input_networks()
    how: dict[str, Any] = {"random": True, "data": data, "task": "regression", "grid": 5, "seed": 1}
    found = []
    for one in (net, large):
        if together:  # twice the same network, whose typical filters are its own
            found.append(fedscope.plane([one, copy.deepcopy(one)], same_axes=True, **how).rows[0][0].plane)
        else:
            found.append(fedscope.plane(one, **how))
    for plane in found:
        u, v = plane.attrs["direction_lengths"]
        assert (plane.a[0], plane.a[-1], plane.b[0], plane.b[-1]) == (-u, u, -v, v)
        assert plane.attrs["directions"] == "orthogonal in every filter, each axis to the length of its own"
    ratios = [plane.attrs["direction_lengths"][1] / plane.attrs["direction_lengths"][0] for plane in found]
    assert ratios[0] > 2 * ratios[1]
    # in single precision; with one reach for both axes they differ by a factor
    np.testing.assert_allclose(found[0].loss, found[1].loss, rtol=1e-4)


def test_the_axes_of_a_random_plane_are_of_one_length_to_the_last_bit_where_no_filter_has_one_entry() -> None:
    module, samples = network()
    (model,) = random_models(module, 1)
    span = random_directions(model, 3)
    u, v = span.about["direction_lengths"]
    assert u == pytest.approx(v, rel=1e-12)
    assert span.reaches == (u, u), "and not (u, v), which differ in a last bit"
    (found,) = survey(module, [samples], span, grid=5)
    assert found.a.tolist() == found.b.tolist() == np.linspace(-u, u, 5).tolist()
    assert has_equal_scales(found)
    asked = fedscope.plane(module, random=True, data=(samples.x, samples.y), grid=2)
    assert asked.attrs["directions"] == "orthogonal in every filter"


#: of a page whose axes have one scale
ANCHORED = re.compile(r'"scaleanchor":\s*"x"')


def test_a_random_plane_with_two_lengths_is_drawn_as_a_square(tmp_path: Path) -> None:
    """Distances would make it a strip of a twentieth of its width, and another picture of each scale."""
    _, large, data = one_input_networks()
    how: dict[str, Any] = {"random": True, "data": data, "task": "regression", "grid": 5}
    plane = fedscope.plane(large, **how)
    assert plane.b[-1] < plane.a[-1] / 2
    plane.save(tmp_path / "p")
    for one in (plane, fedscope.load(tmp_path / "p.nc")):  # also as read back
        assert not has_equal_scales(one)
        assert "each axis to the length of its direction" in remarks([one])
        box = one.figure().axes[0].get_window_extent()
        assert box.width == pytest.approx(box.height, rel=1e-6)
        assert not re.search(ANCHORED, next(iter(one.pages().values())))
    u = plane.attrs["direction_lengths"][0]
    ranged = fedscope.plane(large, range=(-u, u, -u, u), **how)
    assert has_equal_scales(ranged)
    assert re.search(ANCHORED, next(iter(ranged.pages().values())))
    assert ranged.attrs["directions"] == "orthogonal in every filter", "as of an earlier version, whose result it is"


def test_planes_that_do_not_exist_are_refused() -> None:
    module, _ = network()
    a, b, *_ = models = random_models(module, 4)
    with pytest.raises(FedscopeError, match="a plane near clients needs at least three models, but 2 were given"):
        near_clients([a, b])
    with pytest.raises(FedscopeError, match="the 3 models of the trajectory have all the same parameters"):
        along_trajectory([a, a, a])
    one, other = a.weights.parameters, b.weights.parameters
    between = Model("c", "c.pt", Weights(a.weights.layout, ((one + other) / 2).astype(np.float32), {}))
    with pytest.raises(FedscopeError, match=r"the 3 clients lie on one line .* draw the line with `fedscope line`"):
        near_clients([a, b, between])
    broken = Weights(a.weights.layout, np.where(np.arange(len(one)) < 2, np.nan, one), {})
    with pytest.raises(FedscopeError, match=r"bad has 2 of .* parameters that are not finite, so it says nothing"):
        near_clients([*models, Model("bad", "bad.pt", broken)])
    with pytest.raises(FedscopeError, match=r"bad has 2 of .* so no direction starts there"):
        random_directions(Model("bad", "bad.pt", broken))
    zeros = Weights(a.weights.layout, np.zeros_like(one), {})
    with pytest.raises(FedscopeError, match="zeros has no filter that is not zero"):
        random_directions(Model("zeros", "zeros.pt", zeros))


class Tied(nn.Module):
    """One tensor under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False)
        self.decode.weight = self.encode.weight
        self.answer = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.answer(torch.tanh(self.decode(torch.tanh(self.encode(x)))))  # type: ignore[no-any-return]


@pytest.mark.parametrize("same_axes", [False, True])
def test_all_names_of_a_tied_tensor_have_one_direction(same_axes: bool) -> None:
    """Each had its own, of which that of the last name acted alone: a model on the surface was drawn off the plane, and
    a place on it was that of another model."""
    module, samples = Tied(), random_samples(50, (6,), seed=3)
    start = Model("m", "m.pt", Layout.of(module).flatten({n: v.numpy() for n, v in module.state_dict().items()}))
    (span,) = on_same_axes("random", [[start]], 2, module) if same_axes else [random_directions(start, 2, module)]
    layout, (_, *directions) = start.weights.layout, span.bases
    for axis in directions:
        parts = layout.views(axis.parameters)
        np.testing.assert_array_equal(parts["encode.weight"], parts["decode.weight"])
        assert parts["decode.weight"].any()
    assert abs(span.cos_uv) < 1e-12
    a, b = 0.7, -0.4
    moved = copy.deepcopy(module)
    with torch.no_grad():
        for name, p in moved.named_parameters():  # each tensor once
            step = sum(c * layout.views(axis.parameters)[name] for c, axis in zip((a, b), directions, strict=True))
            p.add_(torch.from_numpy(np.asarray(step)))
    shown = Model("s", "s.pt", layout.flatten({n: v.numpy() for n, v in moved.state_dict().items()}))
    (found,) = survey(module, [samples], span, shown=[shown], grid=2, ranges=((0.0, a), (b, 0.0)))
    there = found.models[-1]
    assert (there.a, there.b, there.off_plane) == pytest.approx((a, b, 0), abs=1e-5)
    assert there.loss == pytest.approx(found.loss[0, 1], rel=1e-5)
    assert there.loss != found.models[0].loss
    # without the module nothing is known of ties, and of other modules nothing changes
    (_, axis, _) = random_directions(start, 2).bases
    parts = layout.views(axis.parameters)
    assert not np.array_equal(parts["encode.weight"], parts["decode.weight"])
    same = layout.views(directions[0].parameters)["decode.weight"]
    np.testing.assert_allclose(parts["decode.weight"], same, rtol=1e-12)


def test_planes_of_modules_ask_the_module_what_is_tied() -> None:
    """A module on the plane is drawn on it; on the same axes the directions are those of tied tensors, too."""
    nets = [Tied(), Tied()]
    x = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
    layout = Layout.of(nets[0])
    starts = [Model("m", "", layout.flatten({n: v.numpy() for n, v in net.state_dict().items()})) for net in nets]
    span = random_directions(starts[0], 0, nets[0])
    moved = copy.deepcopy(nets[0])
    with torch.no_grad():
        for name, p in moved.named_parameters():
            p.add_(torch.from_numpy(np.asarray(0.4 * layout.views(span.bases[1].parameters)[name])))
    how = {"random": True, "data": (x, (x[:, 0] > 0).long()), "grid": 2, "range": (0.0, 0.5, 0.0, 0.5)}
    alone = fedscope.plane(nets[0], show=[moved], **how)
    (shown,) = [one for one in alone.models if one.role == "shown"]
    assert (shown.a, shown.b, shown.off_plane) == pytest.approx((0.4, 0.0, 0.0), abs=1e-5)
    (first, *_) = fedscope.plane(nets, same_axes=True, **how).panels()
    ties, none = (on_same_axes("random", [[one] for one in starts], 0, net)[0] for net in (nets[0], None))
    assert first.plane.attrs["directions_cosine"] == ties.about["directions_cosine"] != none.about["directions_cosine"]
    for plane in (alone, first.plane):
        assert plane.attrs["directions"] == "orthogonal in every filter, one of tied tensors"
