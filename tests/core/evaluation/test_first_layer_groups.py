"""Points taken together, their first layer combined: the values of the plain way, whatever is grouped with what."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from random_models import interrupt_at, random_models, random_samples
from torch import nn

from fedscope.checkpoints import Layout, Model, Weights
from fedscope.evaluation import first_layer_groups as spanning
from fedscope.evaluation.device import Compute
from fedscope.evaluation.evaluator import Evaluator
from fedscope.evaluation.first_layer_groups import Spanning, replaceable_layer
from fedscope.evaluation.samples import Samples
from fedscope.landscape import Plane, near_clients, plane, survey, through_models
from fedscope.landscape.planes.surface import evaluate as surveying


def perceptron() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 12), nn.ReLU(), nn.Linear(12, 3))


def convolutional() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 5, 3), nn.ReLU(), nn.MaxPool2d(2), nn.BatchNorm2d(5), nn.Flatten(), nn.Linear(45, 3)
    )


def samples_of(n: int, seed: int) -> Samples:
    return random_samples(n, (3, 8, 8), seed=seed)


def models_of(module: nn.Module, count: int = 3) -> list[Model]:
    return random_models(module, count, 0.3)


@pytest.fixture(params=[perceptron, convolutional])
def module(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> nn.Module:
    make: Callable[[], nn.Module] = request.param
    return make()


def plain(monkeypatch: pytest.MonkeyPatch, ask: Callable[[], Plane]) -> Plane:
    with monkeypatch.context() as patch:
        patch.setattr(surveying, "replaceable_layer", lambda *_: None)
        return ask()


@pytest.mark.parametrize("normalization", ["interpolate", "re-estimate"])
def test_values_are_those_of_the_plain_way(
    module: nn.Module, monkeypatch: pytest.MonkeyPatch, normalization: str
) -> None:
    data, models = samples_of(130, 1), models_of(module)
    assert replaceable_layer(Evaluator(module, data), module, [m.weights for m in models]) is not None
    made: list[Spanning] = []
    whole = Spanning.logits

    def logits(self: Spanning, group: list[int], *rest: object) -> object:
        made.append(self)
        assert 1 <= len(group) <= 8
        return whole(self, group, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Spanning, "logits", logits)

    def ask() -> Plane:
        return plane(module, data, models, grid=(9, 7), normalization=normalization, calibration=samples_of(300, 2))

    together = ask()
    assert made
    expected = plain(monkeypatch, ask)
    np.testing.assert_allclose(together.loss, expected.loss, rtol=1e-6)
    assert np.abs(together.error - expected.error).max() <= 1 / 130
    assert repr(together.models) == repr(expected.models)


def test_directions_span_points_too(module: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    data, models = samples_of(60, 1), models_of(module, 5)

    def ask() -> Plane:
        return survey(module, [data], near_clients(models), grid=6)[0]

    np.testing.assert_allclose(ask().loss, plain(monkeypatch, ask).loss, rtol=1e-6)


def test_numbers_hang_neither_on_groups_nor_on_workers_nor_on_other_data(module: nn.Module, tmp_path: Path) -> None:
    sets, models = [samples_of(130, 1), samples_of(61, 2)], models_of(module)
    whole = survey(module, sets, through_models(models), grid=7, compute=Compute(workers=1))
    for part, found in zip(sets, whole, strict=True):
        assert np.array_equal(plane(module, part, models, grid=7, compute=Compute(workers=3)).loss, found.loss)
    partial = tmp_path / "plane.partial"

    for count in (7, 15, 38):  # so that other points are grouped
        with pytest.raises(KeyboardInterrupt):
            survey(module, sets, through_models(models), grid=7, partial=partial, progress=interrupt_at(count))
    for one, other in zip(whole, survey(module, sets, through_models(models), grid=7, partial=partial), strict=True):
        assert one.loss.tobytes() == other.loss.tobytes()
        assert one.error.tobytes() == other.error.tobytes()


def test_a_grid_point_that_is_a_model_is_that_model_bit_for_bit(module: nn.Module) -> None:
    data, models = samples_of(60, 1), models_of(module)
    length = float(plane(module, data, models, grid=2).attrs["u_length"])
    found = plane(module, data, models, grid=3, ranges=((-length, length), (-1.0, 1.0)))
    assert (found.a[1], found.b[1], found.a[2]) == (0, 0, length)
    assert found.loss[1, 1] == found.anchors[0].loss
    assert found.loss[1, 2] == pytest.approx(found.anchors[1].loss, rel=1e-6)


def test_what_there_is_no_room_for_is_computed(module: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    data, models = samples_of(1300, 1), models_of(module)
    expected = plane(module, data, models, grid=5)
    one = replaceable_layer(Evaluator(module, data), module, [m.weights for m in models])
    assert one is not None
    batches = list(Evaluator(module, data).batches(0))
    each = spanning.Spanned(module, one, [m.weights for m in models]).nbytes(batches[0])
    monkeypatch.setattr(spanning, "OUTPUTS", int(1.1 * each))
    kept: list[int] = []
    computed = Spanning._computed

    def counted(self: Spanning, *given: object) -> object:
        outputs = computed(self, *given)  # type: ignore[arg-type]
        kept.append(len(outputs))
        return outputs

    monkeypatch.setattr(Spanning, "_computed", counted)
    found = plane(module, data, models, grid=5)
    assert kept == [1]
    assert len(batches) > 1
    np.testing.assert_allclose(found.loss, expected.loss, rtol=1e-6)


def test_where_it_would_not_be_the_same_the_plain_way_is_taken(module: nn.Module) -> None:
    data, models = samples_of(60, 1), models_of(module)
    weights = [m.weights for m in models]
    assert replaceable_layer(Evaluator(module, data, compute=Compute(precision="bf16")), module, weights) is None
    broken = Weights(weights[0].layout, np.full_like(weights[0].parameters, np.nan), weights[0].buffers)
    assert replaceable_layer(Evaluator(module, data), module, [*weights[:2], broken]) is None
    doubled = module.double()
    layout = Layout.of(doubled)
    exact = [Weights(layout, w.parameters.astype(np.float64), {}) for w in weights]
    assert replaceable_layer(Evaluator(doubled, data), doubled, exact) is None
    few = nn.Sequential(nn.Flatten(), nn.Linear(192, 3))
    assert replaceable_layer(Evaluator(few, data), few, [m.weights for m in models_of(few)]) is not None
    narrow = nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(12, 3))
    assert replaceable_layer(Evaluator(narrow, data), narrow, [m.weights for m in models_of(narrow)]) is None
