"""Several data sets in one pass, previews, normalization statistics, memory that runs out, modules with dice."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from random_models import interrupt_at, random_models, random_samples
from torch import Tensor, nn

from fedscope.checkpoints import FedscopeError, FedscopeWarning, Layout, Model, Weights
from fedscope.evaluation.device import Compute
from fedscope.evaluation.evaluator import Evaluator
from fedscope.evaluation.model_replica import Replica
from fedscope.evaluation.samples import Samples
from fedscope.evaluation.tasks import Plain
from fedscope.landscape import Plane, SoFar, plane, random_directions, survey, through_models


def samples_of(n: int, seed: int, split: str = "test") -> Samples:
    return random_samples(n, (2, 5, 5), seed=seed, split=split, scale=2.0)


def network(normalised: bool = False) -> tuple[nn.Module, list[Model]]:
    torch.manual_seed(0)
    between = [nn.BatchNorm2d(4)] if normalised else []
    module = nn.Sequential(nn.Conv2d(2, 4, 3), *between, nn.ReLU(), nn.Flatten(), nn.Linear(36, 3))
    return module, random_models(module, 3)


def test_several_data_sets_in_one_pass_give_what_each_gives_alone() -> None:
    module, models = network()
    sets = [samples_of(130, 1), samples_of(61, 2, "train"), samples_of(1, 3)]
    together = survey(module, sets, through_models(models), grid=7, shown=[models[0]])
    for part, found in zip(sets, together, strict=True):
        alone = plane(module, part, models, grid=7, shown=[models[0]])
        assert np.array_equal(found.loss, alone.loss)
        assert np.array_equal(found.error, alone.error)
        assert repr(found.models) == repr(alone.models)  # nan is not nan
        assert (found.attrs["data"], found.attrs["samples"]) == (part.name, len(part))


def test_a_preview_is_the_finest_grid_that_is_complete() -> None:
    module, models = network()
    seen: list[Plane] = []

    def preview(so_far: SoFar) -> None:
        plane = so_far()
        if plane is not None:
            seen.append(plane)

    found = survey(
        module, [samples_of(50, 1)], through_models(models), grid=17, preview=preview, compute=Compute(workers=1)
    )[0]
    assert [p.loss.shape for p in (seen[0], seen[-1])] == [(5, 5), (17, 17)]
    assert {p.loss.shape for p in seen} == {(5, 5), (9, 9), (17, 17)}
    assert sum(p.loss.shape == (5, 5) for p in seen) == 9 * 9 - 5 * 5
    for early in seen:
        step = 16 // (len(early.a) - 1)
        assert np.array_equal(early.loss, found.loss[::step, ::step])
        assert np.array_equal(early.a, found.a[::step])
        assert repr(early.models) == repr(found.models)


def test_policies_that_make_no_sense_are_refused() -> None:
    module, models = network(normalised=True)
    data = samples_of(20, 1)
    with pytest.raises(FedscopeError, match="normalization 'mean' is unknown; take one of interpolate, re-estimate"):
        plane(module, data, models, normalization="mean")
    with pytest.raises(FedscopeError, match=r"re-estimated statistics need inputs .* give calibration samples"):
        plane(module, data, models, normalization="re-estimate")
    plain, without = network()
    assert plane(plain, data, without, grid=2, normalization="re-estimate").normalization_policy == "none"


def test_a_gpu_that_runs_out_of_memory_goes_on_with_half_the_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    module, models = network()
    data = samples_of(100, 1)
    expected = Evaluator(module, data, batch=25).models([model.weights for model in models])
    whole, asked = Replica.logits, []

    def small(replica: Replica, x: Tensor) -> Tensor:
        asked.append(len(x))
        if len(x) > 25:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return whole(replica, x)

    monkeypatch.setattr(Replica, "logits", small)
    evaluator = Evaluator(module, data, batch=100, compute=Compute(workers=1))
    with pytest.warns(FedscopeWarning) as said:
        found = evaluator.models([model.weights for model in models])
    assert [str(one.message).rpartition("; ")[2] for one in said] == ["going on with 50", "going on with 25"]
    assert str(said[0].message).startswith("cpu ran out of memory with 100 samples at a time")
    assert np.array_equal(found, expected)
    assert evaluator.batch == 25
    assert sum(size > 25 for size in asked) == 2  # not tried again for the next model

    def none(replica: Replica, x: Tensor) -> Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(Replica, "logits", none)
    with (
        pytest.warns(FedscopeWarning, match="ran out of memory"),
        pytest.raises(FedscopeError, match="cpu has no memory left for even one sample of toy1 test at a time"),
    ):
        evaluator.models(models[0].weights)


class Dice(nn.Module):
    """Functional dropout that nobody told about evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.inner(nn.functional.dropout(x))
        return outputs


def test_a_module_that_throws_dice_is_refused_and_dropout_layers_are_put_to_evaluation() -> None:
    data = Samples(torch.randn(30, 4), torch.arange(30) % 3, 3, "toy", "test", np.arange(30))
    with pytest.raises(FedscopeError, match=r"different outputs for the same input.*training=self\.training"):
        Evaluator(Dice(), data)
    torch.manual_seed(0)
    layered = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3)).train()
    layout = Layout.of(layered)
    w = Weights(layout, np.random.default_rng(0).standard_normal(layout.size).astype(np.float32), {})
    once, again = (Evaluator(layered, data).models(w)[0] for _ in range(2))
    assert once == again
    assert layered.training
    broken = replace(data, x=torch.full((30, 4), torch.nan))
    assert np.isnan(Evaluator(layered, broken).models(w)[0]).all()  # the same twice, if not a number


def test_an_adaptive_surface_is_measured_where_it_says_and_near_elsewhere(tmp_path: Path) -> None:
    module, models = network()
    sets = [samples_of(130, 1), samples_of(61, 2)]
    whole = survey(module, sets, through_models(models), grid=(41, 37))
    made = survey(module, sets, through_models(models), grid=(41, 37), adaptive=0.15)
    for full, found in zip(whole, made, strict=True):
        assert found.computed is not None
        assert found.computed.sum() == found.attrs["points_computed"] <= 0.15 * full.loss.size
        assert np.array_equal(found.loss[found.computed], full.loss[found.computed])
        assert np.array_equal(found.error[found.computed], full.error[found.computed])
        worst = np.abs(found.loss - full.loss).max() / np.ptp(full.loss)
        # the points held out tell the greatest difference within a factor of 3: see `refine`
        assert 0 < worst <= 3 * found.attrs["held_out_loss_error"] <= 0.03
        # the minimum and the points round it are no interpolation
        row, column = np.unravel_index(int(np.argmin(found.loss)), found.loss.shape)
        assert (row, column) == np.unravel_index(int(np.argmin(full.loss)), full.loss.shape)
        assert found.computed[max(0, row - 1) : row + 2, max(0, column - 1) : column + 2].all()
        assert repr(found.models) == repr(full.models)
    found = made[1]
    found.save(tmp_path / "plane.nc")
    again = Plane.load(tmp_path / "plane.nc")
    assert again.computed is not None
    assert np.array_equal(again.computed, found.computed)
    assert again.attrs == found.attrs


@pytest.mark.slow
def test_two_levels_measure_fewer_points_on_all_samples_and_are_as_near() -> None:
    """From 2,000 samples on: the surface of a tenth of them, and on few points how far all samples are from it."""
    module, models = network()
    sets = [samples_of(2400, 1), samples_of(2100, 2)]
    whole = survey(module, sets, through_models(models), grid=(41, 45))
    made = survey(module, sets, through_models(models), grid=(41, 45), adaptive=0.15)
    for full, found in zip(whole, made, strict=True):
        about = found.attrs
        assert (about["levels"], about["samples_of_part"]) == (2, about["samples"] // 10)
        assert found.computed is not None
        assert found.computed.sum() == about["points_computed"] <= 0.075 * full.loss.size + 27
        assert 49 <= about["points_of_part"] <= 0.15 * full.loss.size
        assert np.array_equal(found.loss[found.computed], full.loss[found.computed])
        assert np.array_equal(found.error[found.computed], full.error[found.computed])
        worst = np.abs(found.loss - full.loss).max() / np.ptp(full.loss)
        assert 0 < worst <= 3 * about["held_out_loss_error"] <= 0.03
        low = full.loss <= np.quantile(full.loss, 0.1)
        assert np.abs(found.loss / full.loss - 1)[low].max() <= 0.04
        assert repr(found.models) == repr(full.models)
        assert f"after {about['points_of_part']:,} on {about['samples_of_part']:,} of the samples" in found.summary()


@pytest.mark.parametrize("share", [pytest.param(0.15, marks=pytest.mark.slow), 1.0])
def test_two_levels_fall_back_where_a_tenth_tells_another_surface(
    monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    module, models = network()
    data = samples_of(2400, 1)
    found = plane(module, data, models, grid=31, adaptive=0.15)
    assert found.attrs["levels"] == 2

    def misleading(self: Samples, count: int, seed: int = 0) -> Samples:
        """A tenth with waves on its surface that all samples do not have."""
        return replace(self._rows(np.arange(count)), task=Plain("waves", waves))

    def waves(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return 2 + torch.sin(40 * outputs[:, 0]) + torch.cos(55 * outputs[:, 1])

    monkeypatch.setattr(Samples, "limit", misleading)
    told: list[tuple[int, int]] = []
    made = plane(module, data, models, grid=31, adaptive=share, progress=lambda done, of: told.append((done, of)))
    assert made.attrs["levels"] == 1
    assert made.attrs["points_of_part"] > 0
    one = plane(module, samples_of(2400, 1), models, grid=31)
    assert np.abs(made.loss - one.loss).max() <= 0.03 * np.ptp(one.loss)
    # what the second level had measured is not lost, and counts
    assert made.computed is not None
    assert made.computed.sum() == made.attrs["points_computed"]
    # a budget holds; without one as many points as the second level had come on top of the usual ones at least
    assert made.computed.sum() <= 0.15 * made.loss.size if share < 1 else made.attrs["held_out_beyond"] <= 1
    assert np.array_equal(made.loss[made.computed], one.loss[made.computed])
    seen = [(done, of) for done, of in told if done]
    assert all(done <= of for done, of in seen)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_two_levels_and_one_share_a_store(tmp_path: Path) -> None:
    """The same question without ``adaptive`` goes on from what was measured on all samples."""
    module, models = network()
    partial = tmp_path / "plane.partial"
    with pytest.raises(KeyboardInterrupt):
        plane(module, samples_of(2000, 1), models, grid=21, adaptive=0.15, partial=partial, progress=interrupt_at(40))
    found = plane(module, samples_of(2000, 1), models, grid=21, partial=partial)
    assert np.array_equal(found.loss, plane(module, samples_of(2000, 1), models, grid=21).loss)


@pytest.mark.parametrize("grid", [(78, 7), (26, 21), (12, 45)])
def test_a_budget_that_the_first_points_spend_is_enough(grid: tuple[int, int]) -> None:
    module, models = network()
    assert plane(module, samples_of(2000, 1), models, grid=grid, adaptive=0.15).computed is not None


# on a part of the samples, and on all of them
@pytest.mark.parametrize(("count", "at"), [(60, 90), (2000, 12), (2000, 40)])
def test_an_interrupted_adaptive_surface_chooses_the_same_points(count: int, at: int, tmp_path: Path) -> None:
    module, models = network()
    options = {"grid": 31, "adaptive": 0.15}
    whole = plane(module, samples_of(count, 1), models, **options)
    partial = tmp_path / "plane.partial"

    with pytest.raises(KeyboardInterrupt):
        plane(module, samples_of(count, 1), models, **options, partial=partial, progress=interrupt_at(at))
    pieces = plane(module, samples_of(count, 1), models, **options, partial=partial)
    assert pieces.loss.tobytes() == whole.loss.tobytes()
    assert pieces.attrs == whole.attrs


def test_a_grid_with_too_few_points_is_measured_whole() -> None:
    module, models = network()
    found = plane(module, samples_of(60, 1), models, grid=6, adaptive=0.15)
    assert found.computed is not None
    assert found.computed.all()
    assert np.array_equal(found.loss, plane(module, samples_of(60, 1), models, grid=6).loss)


def test_a_store_of_another_question_is_not_gone_on_from(tmp_path: Path) -> None:
    """Other calibration data, other second data set, other seed of directions, other policy, other module."""
    module, models = network(normalised=True)
    data, other = samples_of(60, 1), samples_of(60, 2)
    calibration = samples_of(300, 3)
    span = through_models(models)
    other_module = nn.Sequential(*[nn.Tanh() if isinstance(layer, nn.ReLU) else layer for layer in module])

    class Hidden(nn.Sequential):
        """Layers with the names of the first module, and another function."""

        def forward(self, x: Tensor) -> Tensor:
            outputs: Tensor = super().forward(x.relu())
            return outputs

    Hidden.__name__ = "Sequential"
    questions = {
        "first": (module, [data, other], span, {"normalization": "re-estimate", "calibration": calibration}),
        "calibration": (module, [data, other], span, {"normalization": "re-estimate", "calibration": data}),
        "second set": (module, [data, calibration], span, {"normalization": "re-estimate", "calibration": calibration}),
        "policy": (module, [data, other], span, {"normalization": "keep"}),
        "layers": (other_module, [data, other], span, {"normalization": "keep"}),
        "function": (Hidden(*module), [data, other], span, {"normalization": "keep"}),
        "seed": (module, [data, other], random_directions(models[0], 1), {"ranges": ((-1.0, 1.0), (-1.0, 1.0))}),
        "other seed": (module, [data, other], random_directions(models[0], 2), {"ranges": ((-1.0, 1.0), (-1.0, 1.0))}),
    }
    partial = tmp_path / "plane.partial"
    for name, (net, sets, plane_, options) in questions.items():
        alone = survey(net, sets, plane_, grid=3, **options)
        after = survey(net, sets, plane_, grid=3, partial=partial, **options)
        for one, again in zip(alone, after, strict=True):
            assert one.loss.tobytes() == again.loss.tobytes(), name
    assert alone[0].attrs["directions_seed"] == 2
    first = survey(module, [data], span, grid=3, normalization="re-estimate", calibration=calibration)[0]
    assert first.attrs["calibration_samples"] == 300


def test_each_data_set_has_its_own_effects() -> None:
    module, models = network(normalised=True)
    sets = [samples_of(60, 1), samples_of(60, 2)]
    options = {"grid": 2, "normalization": "keep", "compute": Compute(precision="bf16")}
    together = survey(module, sets, through_models(models), **options)
    for part, found in zip(sets, together, strict=True):
        alone = survey(module, [part], through_models(models), **options)[0]
        assert found.attrs["normalization_effect"] == alone.attrs["normalization_effect"]
        assert found.attrs["precision_error"] == alone.attrs["precision_error"]
    assert together[0].attrs["normalization_effect"] != together[1].attrs["normalization_effect"]
    assert together[0].attrs["precision_error"] != together[1].attrs["precision_error"]


@pytest.mark.parametrize("width", [8, 192])  # computed, and combined in the first layer
def test_a_plane_leaves_nothing_in_memory(width: int) -> None:
    """Panels are measured one by one: what one needed must be gone, and not wait for a collection of cycles."""
    module = nn.Sequential(nn.Linear(width, 4), nn.ReLU(), nn.Linear(4, 3))
    layout, draw = Layout.of(module), np.random.default_rng(0)
    vectors = [draw.standard_normal(layout.size).astype(np.float32) for _ in range(3)]
    models = [Model(str(k), f"{k}.pt", Weights(layout, w, {})) for k, w in enumerate(vectors)]
    data = Samples(torch.randn(50, width), torch.arange(50) % 3, 3, "toy", "test", np.arange(50))
    watched = [weakref.ref(model.weights) for model in models]
    gc.collect()
    gc.disable()
    try:
        plane(module, data, models, grid=4, preview=lambda so_far: so_far() and None)
        del models
        assert [known() for known in watched] == [None, None, None]
    finally:
        gc.enable()
