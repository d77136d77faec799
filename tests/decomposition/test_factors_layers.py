"""Locality by layer: against a plain loop, the whole bit for bit, and closure in every row."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from random_models import random_samples
from torch import nn

from fedscope.checkpoints import FedscopeError, Layout, Weights, stack, weighted_mean
from fedscope.checkpoints.models.layer_selections import Selection, selections_of
from fedscope.decomposition import CohortDraws, RoundLayerFactors, round_factors, round_layer_factors
from fedscope.decomposition.draws.divergence import distances
from fedscope.decomposition.factors.layers import PartlyAveraged
from fedscope.decomposition.factors.rows import FACTORS
from fedscope.evaluation.evaluator import Evaluator
from fedscope.evaluation.samples import Samples

ROUND: Any = SimpleNamespace(models=())
LAYERS = ("0", "1", "3")


def network() -> nn.Module:
    """Three layers, of which the second keeps statistics."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))


def case(
    draws: int = 3, clients: int = 4, *, module: nn.Module | None = None, **how: Any
) -> tuple[nn.Module, Samples, CohortDraws]:
    """A random cohort on random samples."""
    module = module or network()
    layout, rng = Layout.of(module), np.random.default_rng(3)
    p = rng.dirichlet(np.full(clients, 2.0))

    def draw() -> Weights:
        buffers = {
            entry.name: np.abs(1 + rng.normal(size=(clients, *entry.shape))).astype(entry.dtype)
            for entry in layout.buffers
        }
        return Weights(layout, rng.normal(size=(clients, layout.size)).astype(np.float32), buffers)

    known: dict[str, Any] = {"source": f"local:{draws}", "independent": True, **how}
    made = tuple(draw() for _ in range(draws))
    return (
        module,
        random_samples(70, (6,)),
        CohortDraws(7, np.arange(clients), p / p.sum(), made, None, **known),
    )


def selections(module: nn.Module, layers: str) -> tuple[Selection, ...]:
    return selections_of(Layout.of(module), layers, "decompose", statistics=True)


def measure(
    module: nn.Module, samples: Samples, cohort: CohortDraws, layers: str = "each", **how: Any
) -> RoundLayerFactors:
    how = {"population": True, **how}
    return round_layer_factors(module, samples, cohort, ROUND, None, selections(module, layers), **how)


def losses(module: nn.Module, samples: Samples, cohort: CohortDraws, averaged: Callable[[str], bool]) -> np.ndarray:
    """The loss of the ensemble in every draw [R], by torch alone; tensors of whose names ``averaged`` tells are the
    mean's."""
    found = []
    target = nn.functional.one_hot(samples.y, 3).double()
    for draw in cohort.draws:
        mean = weighted_mean(draw, cohort.p).arrays()
        total = torch.zeros(len(samples), 3, dtype=torch.float64)
        for k, p in enumerate(cohort.p):
            own = draw.row(k).arrays()
            state = {name: torch.from_numpy(np.array(mean[name] if averaged(name) else own[name])) for name in own}
            module.load_state_dict(state)
            with torch.no_grad():
                total += p * torch.softmax(module.eval()(samples.x).double(), dim=-1)
        found.append(float((target - total).square().sum(-1).mean()))
    return np.array(found)


def within(layers: Iterable[str]) -> Callable[[str], bool]:
    return lambda name: name.rpartition(".")[0] in layers


def value(result: RoundLayerFactors, layer: str, factor: str, estimate: str | None = None) -> float:
    (cell,) = [cell for cell in result.cells if cell.layer == layer]
    found = cell.row(factor, estimate).value
    assert found is not None
    return found


@pytest.mark.parametrize("layers", ["each", "0,3", "1"])
def test_a_plain_loop_agrees(layers: str) -> None:
    module, samples, cohort = case()
    found = measure(module, samples, cohort, layers)
    apart = losses(module, samples, cohort, within(()))
    for cell in found.cells[:-1]:
        own = losses(module, samples, cohort, within(cell.layer.split(",")))
        for kind in ("plugin", "unbiased"):
            assert value(found, cell.layer, "locality", kind) == pytest.approx((own - apart).mean(), abs=2e-7)
        assert value(found, cell.layer, "fma_loss") == pytest.approx(own.mean(), rel=1e-6)
        assert value(found, cell.layer, "ensemble_loss") == pytest.approx(apart.mean(), rel=1e-6)
        error = (own - apart).std(ddof=1) / np.sqrt(3)
        assert cell.row("locality").stderr_draws == pytest.approx(error, rel=1e-4)
        assert cell.row("locality").stderr_samples is None, "the samples are the population"


def test_the_average_in_a_row_of_all_layers_is_the_ensemble_of_which_nothing_differs() -> None:
    """The definition at its two ends: nothing averaged is WENS, and everything is w_FMA."""
    module, samples, cohort = case()
    found = measure(module, samples, cohort)
    everything = losses(module, samples, cohort, lambda _: True)
    apart = losses(module, samples, cohort, lambda _: False)
    assert value(found, "all layers", "locality") == pytest.approx((everything - apart).mean(), abs=2e-7)


@pytest.mark.parametrize(
    "how", [{"population": True}, {"population": False}, {"outputs": "logits"}, {"draws": 2}, {"draws": 1}]
)
@pytest.mark.parametrize("layers", ["each", "0,3", "*"])
def test_all_layers_are_the_whole_bit_for_bit(layers: str, how: dict[str, Any]) -> None:
    asked = dict(how)
    draws = asked.pop("draws", 3)
    known = {"source": "none", "independent": False} if draws == 1 else {}
    module, samples, cohort = case(draws, **known)
    asked = {"population": True, **asked}
    whole = round_factors(module, samples, cohort, ROUND, None, **asked)
    found = measure(module, samples, cohort, layers, **asked)
    assert found.cells[-1].rows == whole.rows
    assert len(found.cells) == {"each": 4, "0,3": 2, "*": 1}[layers]
    assert found.cells[-1].parameters == 99


@pytest.mark.parametrize("draws", [1, 2, 4])
def test_every_row_closes_and_shares_the_clients_factors(draws: int) -> None:
    known = {"source": "none", "independent": False} if draws == 1 else {}
    module, samples, cohort = case(draws, **known)
    found = measure(module, samples, cohort)
    *parts, whole = found.cells
    for cell in parts:
        assert (cell.row("closure_error").value or 0.0) < 1e-12
        for kind in ("plugin", "unbiased"):
            for factor in FACTORS:
                if factor != "locality":
                    assert cell.row(factor, kind) == whole.row(factor, kind)
        # without draws the bias alone is the loss of the averaged outputs
        factors = [cell.row(name).value or 0.0 for name in ("bias", "variance", "covariance", "locality")]
        assert sum(factors) == pytest.approx(value(found, cell.layer, "fma_loss"), rel=1e-12)


def test_squared_distances_add_up_over_layers() -> None:
    module, samples, cohort = case(draws=2)
    found = measure(module, samples, cohort)
    averages = [weighted_mean(draw, cohort.p) for draw in cohort.draws]
    everywhere = distances(cohort, averages)
    squares = np.zeros_like(everywhere)
    layout = Layout.of(module)
    for layer in LAYERS:
        places = np.concatenate(
            [np.arange(where.start, where.stop) for name, where in layout.slices.items() if within([layer])(name)]
        )
        own = np.stack(
            [
                np.linalg.norm(draw.parameters[:, places].astype(float) - mean.parameters[places], axis=1)
                for draw, mean in zip(cohort.draws, averages, strict=True)
            ],
            axis=1,
        )
        assert value(found, layer, "delta_max") == pytest.approx(own.max(axis=0).mean(), rel=1e-9)
        assert value(found, layer, "delta_mean") == pytest.approx(own.mean(), rel=1e-9)
        squares += own**2
    np.testing.assert_allclose(np.sqrt(squares), everywhere, rtol=1e-9)


def test_errors_over_samples_are_those_of_the_differences() -> None:
    module, samples, cohort = case()
    found = measure(module, samples, cohort, population=False)
    singles = []
    for j in range(len(samples)):
        one = replace(samples, x=samples.x[j : j + 1], y=samples.y[j : j + 1], indices=samples.indices[j : j + 1])
        apart, own = (losses(module, one, cohort, within(layers)).mean() for layers in ((), ("3",)))
        singles.append(own - apart)
    expected = np.std(singles) / np.sqrt(len(singles))
    assert found.cells[2].row("locality").stderr_samples == pytest.approx(expected, rel=1e-5)


def test_a_layer_in_which_all_clients_agree_has_no_locality() -> None:
    module, samples, cohort = case()
    where = Layout.of(module).slices["3.weight"].start
    for draw in cohort.draws:
        draw.parameters[:, where:] = draw.parameters[0, where:]
    found = measure(module, samples, cohort)
    assert value(found, "3", "locality") == pytest.approx(0.0, abs=1e-9)
    assert value(found, "3", "delta_max") == pytest.approx(0.0, abs=1e-6)
    assert abs(value(found, "0", "locality")) > 1e-3


def test_tied_weights_are_averaged_together() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.Linear(6, 3))
    module[2].weight = module[0].weight
    module, samples, cohort = case(2, module=module)
    slices = Layout.of(module).slices
    for draw in cohort.draws:
        draw.parameters[:, slices["0.weight"]] = draw.parameters[:, slices["2.weight"]]
    found = measure(module, samples, cohort)
    own = losses(module, samples, cohort, lambda name: name in ("0.weight", "2.weight", "0.bias"))
    assert value(found, "0", "fma_loss") == pytest.approx(own.mean(), rel=1e-6)


def test_each_model_is_measured_once_and_few_are_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every client's and average's outputs once, and of each layer those of the clients with it averaged: the clients'
    own are not computed again for each layer."""
    module, samples, cohort = case()
    asked: list[int] = []
    formed: list[int] = []
    inner, form = Evaluator.logits, PartlyAveraged.__getitem__

    def logits(self: Evaluator, models: Any, rows: slice) -> Any:
        asked.append(len(models))
        return inner(self, models, rows)

    monkeypatch.setattr(Evaluator, "logits", logits)
    monkeypatch.setattr(
        PartlyAveraged,
        "__getitem__",
        lambda self, i: formed.append(i) or form(self, i),  # type: ignore[func-returns-value]
    )
    told: list[tuple[int, int]] = []
    measure(module, samples, cohort, progress=lambda *t: told.append(t))
    assert asked == [12 + 3, 12, 12, 12]
    assert sorted(i for i in formed if i < 12) == sorted([*range(12)] * 3)
    assert told == [(70 * i, 280) for i in range(1, 5)]


def test_a_client_that_diverged_leaves_no_number() -> None:
    module, samples, cohort = case()
    cohort.draws[1].parameters[2, 5] = np.nan
    with np.errstate(invalid="ignore"):
        found = measure(module, samples, cohort)
    assert np.isnan(found.cells[0].row("locality").value or 0.0)
    assert found.to_json()


def test_a_client_of_weight_0_that_diverged_has_no_part() -> None:
    module, samples, cohort = case()
    p, there = np.array([0.5, 0.3, 0.0, 0.2]), [0, 1, 3]
    for draw in cohort.draws:
        draw.parameters[2, 5] = np.nan
    rest = replace(
        cohort, p=p[there], client_ids=np.array(there), draws=[stack([d.row(k) for k in there]) for d in cohort.draws]
    )
    found, wanted = (measure(module, samples, one) for one in (replace(cohort, p=p), rest))
    for ours, theirs in zip(found.cells, wanted.cells, strict=True):
        for one, other in zip(ours.rows, theirs.rows, strict=True):
            assert one.value == (None if other.value is None else pytest.approx(other.value, rel=1e-7, abs=1e-10)), one


def test_what_is_kept_of_a_round_comes_back() -> None:
    found = measure(*case())
    assert RoundLayerFactors.from_json(found.to_json()) == found
    with pytest.raises(FedscopeError, match=r"^the decomposition has no row loss of 0, so its table was changed; "):
        found.cells[0].row("loss")
