"""Planes: a closed form, direct evaluation, exact anchors, interruptions, and files that xarray opens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from random_models import interrupt_at, measured_directly, random_models
from torch import Tensor, nn

from fedscope.checkpoints import FedscopeError, Layout, Model, Weights, mean, stack
from fedscope.evaluation.device import Compute
from fedscope.evaluation.evaluator import Evaluator
from fedscope.evaluation.resumable import coarse_to_fine
from fedscope.evaluation.samples import Samples
from fedscope.landscape import Plane, plane


class Bowl(nn.Module):
    """Loss 0.3 + ‖w − c‖²/2 whatever the sample, in float64."""

    def __init__(self, centre: np.ndarray) -> None:
        super().__init__()
        self.centre = torch.from_numpy(centre)
        self.w = nn.Parameter(torch.zeros(len(centre), dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        loss = 0.3 + ((self.w - self.centre.to(self.w)) ** 2).sum() / 2
        z = torch.log(torch.expm1(loss)) + 0 * x[:, 0]  # −log softmax(0, z)[0] = log(1 + e^z)
        return torch.stack([torch.zeros_like(z), z], dim=1)


def ones(n: int = 3) -> Samples:
    return Samples(torch.ones(n, 1), torch.zeros(n, dtype=torch.int64), 2, "toy", "test", np.arange(n))


def network(normalised: bool = False) -> tuple[nn.Module, Samples, list[Model]]:
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Linear(6, 16), nn.BatchNorm1d(16)] if normalised else [nn.Linear(6, 16)]
    module = nn.Sequential(*layers, nn.Tanh(), nn.Linear(16, 3))
    samples = Samples(torch.randn(90, 6), torch.arange(90) % 3, 3, "toy", "test", np.arange(90), "abc")
    return module, samples, random_models(module, 5)


def test_a_quadratic_is_a_circular_bowl() -> None:
    draw = np.random.default_rng(0)
    anchors = draw.standard_normal((3, 40))
    centre = anchors.mean(axis=0) + 0.1 * draw.standard_normal(40)
    module = Bowl(centre)
    layout = Layout.of(module)
    made = [Model(f"m{i}", f"m{i}", Weights(layout, w, {})) for i, w in enumerate(anchors)]
    shown = Model("centre", "centre", Weights(layout, centre, {}))
    found = plane(module, ones(), made, shown=[shown], grid=(9, 7))
    assert found.loss.shape == found.error.shape == (7, 9)
    middle = found.models[4]
    assert middle.label == "centre"
    assert middle.loss == pytest.approx(0.3, rel=1e-12)
    # in the plane's L2 coordinates: squared distance to the centre's foot point, and its height above the plane
    a, b = np.meshgrid(found.a, found.b)
    expected = 0.3 + ((a - middle.a) ** 2 + (b - middle.b) ** 2 + middle.off_plane**2) / 2
    np.testing.assert_allclose(found.loss, expected, rtol=1e-12)
    for i, model in enumerate(found.anchors):
        assert model.loss == pytest.approx(0.3 + ((anchors[i] - centre) ** 2).sum() / 2, rel=1e-12)
    average = anchors.mean(axis=0)
    assert found.mean.loss == pytest.approx(0.3 + ((average - centre) ** 2).sum() / 2, rel=1e-12)
    np.testing.assert_allclose(
        [found.mean.a, found.mean.b], np.mean([(m.a, m.b) for m in found.anchors], axis=0), rtol=1e-12
    )


@pytest.mark.parametrize("normalised", [False, True])
def test_values_are_those_of_the_models_on_the_plane(normalised: bool) -> None:
    module, samples, (a, b, c, d, _) = network(normalised)
    found = plane(module, samples, [a, b, c], shown=[d], grid=11)
    w = [m.weights.parameters.astype(np.float64) for m in (a, b, c)]
    # the axes again, by QR
    q, r = np.linalg.qr(np.stack([w[1] - w[0], w[2] - w[0]]).T)
    q = q * np.sign(np.diag(r))
    draw = np.random.default_rng(5)
    for row, column in draw.integers(0, 11, (12, 2)):
        point = w[0] + q @ np.array([found.a[column], found.b[row]])
        # affine coordinates of the point in the anchors, by least squares: buffers are combined with them
        system = np.vstack([np.stack(w, axis=1), 1e3 * np.ones(3)])
        share = np.linalg.lstsq(system, np.append(point, 1e3), rcond=None)[0]
        buffers = dict(a.weights.buffers)
        for name in ("1.running_mean", "1.running_var") if normalised else ():
            value = sum(s * m.weights.buffers[name].astype(float) for s, m in zip(share, (a, b, c), strict=True))
            buffers[name] = np.maximum(value, 0 if name.endswith("var") else -np.inf).astype(np.float32)
        there = Weights(a.weights.layout, point.astype(np.float32), buffers)
        loss, error, _ = measured_directly(module, there, samples)
        assert found.loss[row, column] == pytest.approx(loss, rel=1e-6)
        assert found.error[row, column] == error
    assert found.normalization_policy == ("interpolate" if normalised else "none")


def test_anchors_mean_and_shown_models_are_evaluated_themselves() -> None:
    module, samples, models = network(normalised=True)
    a, b, c, d, e = models
    found = plane(module, samples, [a, b, c], shown=[d, e], grid=3)
    average = mean(stack([m.weights for m in (a, b, c)]))
    loss, error = Evaluator(module, samples).models([a.weights, b.weights, c.weights, average, d.weights, e.weights])
    assert [m.loss for m in found.models] == loss.tolist()
    assert [m.error for m in found.models] == error.tolist()
    assert [m.label for m in found.models] == ["a", "b", "c", "mean", "d", "e"]
    assert [m.stored_loss for m in found.models[:3]] == [1.5] * 3
    assert np.isnan(found.mean.stored_loss)
    assert max(m.off_plane for m in found.models[:4]) < 1e-6
    offset = d.weights.parameters.astype(float) - a.weights.parameters
    here = found.models[4]
    assert np.sqrt(here.a**2 + here.b**2 + here.off_plane**2) == pytest.approx(np.linalg.norm(offset), rel=1e-12)
    assert here.off_plane > 1
    assert abs(found.cos_uv) < 1e-14


def test_the_default_range_is_a_square_with_room_round_all_models() -> None:
    module, samples, (a, b, c, d, _) = network()
    found = plane(module, samples, [a, b, c], shown=[d], grid=2, margin=0.25)
    places = np.array([(m.a, m.b) for m in found.models])
    extent = np.ptp(places, axis=0).max()
    assert found.a[-1] - found.a[0] == pytest.approx(1.5 * extent)
    assert found.b[-1] - found.b[0] == pytest.approx(1.5 * extent)
    assert (places.min(axis=0) - (found.a[0], found.b[0]) >= 0.24 * extent).all()
    given = plane(module, samples, [a, b, c], grid=(3, 2), ranges=((-1, 1), (0, 5)))
    assert (given.a.tolist(), given.b.tolist()) == ([-1, 0, 1], [0, 5])


@pytest.mark.parametrize("workers", [1, 3])
def test_an_interrupted_plane_goes_on_bit_for_bit(tmp_path: Path, workers: int) -> None:
    module, samples, (a, b, c, d, _) = network(normalised=True)
    whole = plane(module, samples, [a, b, c], shown=[d], grid=9)
    store = tmp_path / "plane.nc.partial"

    def again(**more: object) -> Plane:
        return plane(
            module, samples, [a, b, c], shown=[d], grid=9, compute=Compute(workers=workers), partial=store, **more
        )  # type: ignore[arg-type]

    with pytest.raises(KeyboardInterrupt):
        again(progress=interrupt_at(40))
    with store.open("a") as file:  # killed while writing
        file.write('{"key": "7", "val')
    told: list[tuple[int, int]] = []
    found = again(progress=lambda *t: told.append(t))
    assert (told[0], told[-1]) == ((40, 86), (86, 86))
    assert found.loss.tobytes() == whole.loss.tobytes()
    assert found.error.tobytes() == whole.error.tobytes()
    assert repr(found.models) == repr(whole.models)
    assert store.exists(), "the result is not saved yet"


def test_points_come_coarse_to_fine() -> None:
    order = coarse_to_fine((5, 9))
    assert sorted(order) == list(range(45))
    rows, columns = np.divmod(order, 9)
    assert set(zip(rows[:6].tolist(), columns[:6].tolist(), strict=True)) == {(i, j) for i in (0, 4) for j in (0, 4, 8)}
    assert all(i % 2 == 0 and j % 2 == 0 for i, j in zip(rows[:15], columns[:15], strict=True))


def test_what_is_not_finite_stays() -> None:
    module, samples, (a, b, c, d, _) = network()
    d.weights.parameters[3] = np.nan
    huge = [Model("huge", "huge", Weights(a.weights.layout, m.weights.parameters * 1e38, {})) for m in (b, c)]
    found = plane(module, samples, [a, b, c], shown=[d], grid=3)
    assert np.isfinite(found.loss).all()
    assert np.isnan([found.shown[0].loss, found.shown[0].a]).all()
    assert np.isfinite(found.a).all()
    found = plane(module, samples, [a, *huge], grid=3)
    assert not np.isfinite(found.loss).all()


@pytest.mark.parametrize("engine", ["h5netcdf", "netcdf4"])
def test_the_file_opens_in_xarray(tmp_path: Path, engine: str) -> None:
    xarray = pytest.importorskip("xarray")
    module, samples, (a, b, c, d, _) = network()
    found = plane(module, samples, [a, b, c], shown=[d], grid=(5, 4), provenance={"run": ["ä"], "seed": 3})
    found.save(tmp_path / "plane.nc")
    with xarray.open_dataset(tmp_path / "plane.nc", engine=engine) as data:
        assert data["loss"].dims == data["error"].dims == ("b", "a")
        assert data.sizes == {"b": 4, "a": 5, "model": 5}
        np.testing.assert_array_equal(data["loss"], found.loss)
        np.testing.assert_array_equal(data["loss"].sel(a=found.a[2]), found.loss[:, 2])
        assert data["model_label"].values.tolist() == ["a", "b", "c", "mean", "d"]
        for name in ("a", "b", "off_plane", "loss", "error", "stored_loss", "stored_error"):
            np.testing.assert_array_equal(data[f"model_{name}"], [getattr(m, name) for m in found.models])
        assert data.attrs["normalization_policy"] == "none"
        assert data.attrs["cos_uv"] == found.cos_uv
        assert (data.attrs["data"], data.attrs["split"], data.attrs["samples"]) == ("toy", "test", 90)
        assert data.attrs["seed"] == 3
        assert data["a"].attrs["units"] == "L2 distance"


def test_saved_and_loaded_it_is_the_same(tmp_path: Path) -> None:
    module, samples, (a, b, c, d, _) = network()
    found = plane(module, samples, [a, b, c], shown=[d], grid=3, provenance={"run": [], "limit": None})
    found.loss[0, 0], found.loss[0, 1] = np.nan, np.inf
    found.save(tmp_path / "p.nc")
    again = Plane.load(tmp_path / "p.nc")
    for name in ("a", "b", "loss", "error"):
        assert getattr(again, name).tobytes() == getattr(found, name).tobytes()
    assert repr(again.models) == repr(found.models)
    assert again.attrs == found.attrs
    assert again.attrs["addresses"] == ["runs/x@a", "runs/x@b", "runs/x@c", "runs/x@d"]
    assert (again.cos_uv, again.normalization_policy) == (found.cos_uv, "none")


def test_other_files_are_refused(tmp_path: Path) -> None:
    from fedscope.landscape import Line, line

    module, samples, (a, b, *_) = network()
    line(module, samples, [(a, b)], betas=3).save(tmp_path / "line.nc")
    with pytest.raises(FedscopeError, match=r"line.nc holds fedscope-line, not a plane"):
        Plane.load(tmp_path / "line.nc")
    with pytest.raises(FedscopeError, match=r"nothing\.nc"):
        Line.load(tmp_path / "nothing.nc")


def test_planes_that_do_not_exist_are_refused() -> None:
    module, samples, (a, b, c, *_) = network()
    half = Model("half", "half", mean(stack([a.weights, b.weights])))
    with pytest.raises(FedscopeError, match=r"a, b and half lie on one line \(angle [\d.e-]+ degrees at a\)"):
        plane(module, samples, [a, b, half])
    with pytest.raises(FedscopeError, match="three models, but 2 were given"):
        plane(module, samples, [a, b])
    with pytest.raises(FedscopeError, match="a grid of 1 x 1 points"):
        plane(module, samples, [a, b, c], grid=1)
    with pytest.raises(FedscopeError, match="a margin of -1 is no room round the models"):
        plane(module, samples, [a, b, c], margin=-1)
    with pytest.raises(FedscopeError, match="the range 2 to 1 of b is empty"):
        plane(module, samples, [a, b, c], ranges=((0, 1), (2, 1)))
    other = network(normalised=True)[2][0]
    with pytest.raises(FedscopeError, match="a and a are models of different architectures: "):
        plane(module, samples, [a, b, c], shown=[other])
