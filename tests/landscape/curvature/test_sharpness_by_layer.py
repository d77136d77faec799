"""Sharpness of some layers alone: blocks of the Hessian, and all of them together as ever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedscope
from fedscope import Sharpness
from fedscope.checkpoints import FedscopeError
from fedscope.cli.main import run as command
from fedscope.landscape.curvature import one_model

X, Y = torch.randn(40, 4, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 3
RISES: dict[str, Any] = {"data": (X, Y), "draws": 2}
HOW: dict[str, Any] = {**RISES, "top": 2, "probes": 3}


def network() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.LayerNorm(5), nn.Linear(5, 3))


def block(net: nn.Module, names: list[str]) -> np.ndarray:
    """The Hessian of the mean loss in some parameters, in float64, by torch's own double differentiation."""
    net = net.double()
    own = dict(net.named_parameters())
    sizes = [own[name].numel() for name in names]

    def loss(flat: torch.Tensor) -> torch.Tensor:
        parts = {name: part.view_as(own[name]) for name, part in zip(names, flat.split(sizes), strict=True)}
        outputs = torch.func.functional_call(net, {**own, **parts}, (X.double(),))
        return nn.functional.cross_entropy(outputs, Y)

    flat = torch.cat([own[name].detach().reshape(-1) for name in names])
    made: np.ndarray = torch.autograd.functional.hessian(loss, flat).numpy()
    return made


LAYERS = {"0": ["0.weight", "0.bias"], "2": ["2.weight", "2.bias"], "3": ["3.weight", "3.bias"]}
EVERY = [name for names in LAYERS.values() for name in names]


def value(result: Sharpness, layer: str, name: str) -> float:
    (one,) = [model for model in result.models if model.layer == layer]
    measure = one.measure(name)
    assert measure is not None
    assert measure.value is not None
    return measure.value


def test_eigenvalues_are_those_of_the_blocks_of_the_dense_hessian() -> None:
    found = fedscope.sharpness(network(), layers="each", **HOW)
    assert [model.layer for model in found.models] == [*LAYERS, "all layers"]
    assert [model.parameters for model in found.models] == [25, 10, 18, 53]
    for layer, names in {**LAYERS, "all layers": EVERY}.items():
        spectrum = np.linalg.eigvalsh(block(network(), names))
        told = [value(found, layer, name) for name in ("eigenvalue_1", "eigenvalue_2", "eigenvalue_min")]
        assert told == pytest.approx([*spectrum[:-3:-1], spectrum[0]], abs=1e-5 * spectrum[-1])


def test_traces_of_blocks_are_the_dense_ones_and_add_up() -> None:
    found = fedscope.sharpness(network(), layers="each", **{**HOW, "probes": 400})
    total = 0.0
    for layer, names in LAYERS.items():
        (one,) = [model for model in found.models if model.layer == layer]
        measure = one.measure("trace")
        assert measure is not None
        assert measure.value is not None
        assert measure.stderr is not None
        exact = float(np.trace(block(network(), names)))
        # seeded; of 400 probes five standard errors are a chance of one in a million
        assert abs(measure.value - exact) <= 5 * measure.stderr
        total += exact
    assert total == pytest.approx(float(np.trace(block(network(), EVERY))), rel=1e-9)


def test_all_layers_are_todays_numbers_bit_for_bit_and_the_loss_is_measured_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = fedscope.sharpness(network(), **HOW)
    measured = []
    real = one_model._loss
    monkeypatch.setattr(one_model, "_loss", lambda about: measured.append(about.label) or real(about))
    found = fedscope.sharpness(network(), layers="each", **HOW)
    assert len(measured) == 1
    assert found.models[-1].measures == plain.models[0].measures
    assert {value(found, layer, "loss") for layer in LAYERS} == {value(found, "all layers", "loss")}
    # only what moves is in a gradient
    lengths = [value(found, layer, "gradient_norm") ** 2 for layer in LAYERS]
    assert sum(lengths) == pytest.approx(value(found, "all layers", "gradient_norm") ** 2, rel=1e-6)
    assert max(value(found, layer, "worst_case") for layer in LAYERS) < value(found, "all layers", "worst_case")


def test_a_pattern_takes_layers_together_and_a_small_layer_has_few_eigenvalues() -> None:
    found = fedscope.sharpness(network(), layers="0,2", hessian=False, **RISES)
    assert [(model.layer, model.parameters) for model in found.models] == [("0,2", 35), ("all layers", 53)]
    few = fedscope.sharpness(network(), layers="2", **{**HOW, "top": 12})
    names = [one.name for one in few.models[0].measures if one.name.startswith("eigenvalue_")]
    assert names == [*(f"eigenvalue_{i}" for i in range(1, 11)), "eigenvalue_min"]


def test_it_is_told_kept_and_drawn(tmp_path: Path) -> None:
    found = fedscope.sharpness([network(), nn.Sequential(*network())], layers="each", **HOW)
    assert len(found.models) == 8
    one = fedscope.sharpness(network(), layers="each", **HOW)
    told = one.summary().splitlines()[1]
    best = max(LAYERS, key=lambda layer: value(one, layer, "eigenvalue_1"))
    assert f"the largest eigenvalue is {value(one, best, 'eigenvalue_1'):.3g} in {best} alone" in told
    most = max(LAYERS, key=lambda layer: value(one, layer, "trace"))
    of_all = f"{value(one, most, 'trace'):.3g} of {value(one, 'all layers', 'trace'):.3g} with"
    assert f"the largest trace is {most}'s, {of_all}" in told
    one.save(tmp_path / "s")
    again = Sharpness.load(tmp_path / "s")
    assert again.findings() == one.findings()
    assert [model.parameters for model in again.models] == [model.parameters for model in one.models]
    rows = [text.get_text() for text in one.figure().axes[0].get_yticklabels()]
    assert rows == [*LAYERS, "all layers"]


def test_several_models_are_heat_maps_of_layers(tmp_path: Path) -> None:
    """Rows are layers, columns models; each cell is the number of the table."""
    nets = [network(), nn.Sequential(*network()), nn.Sequential(*network())]
    with torch.no_grad():
        for k, net in enumerate(nets):
            net[3].weight.mul_(1 + k)
    found = fedscope.sharpness(nets, layers="each", labels=["a", "b", "c"], **HOW)
    maps = [axes for axes in found.figure().axes if axes.images and axes.get_yticklabels()]
    maps = [axes for axes in maps if [one.get_text() for one in axes.get_yticklabels()][-1:] == ["all layers"]]
    assert [np.shape(axes.images[0].get_array()) for axes in maps] == [(4, 3)] * 3
    for axes, name in zip(maps, ("eigenvalue_1", "trace", "worst_case"), strict=True):
        shown = np.asarray(axes.images[0].get_array())
        for column, label in enumerate("abc"):
            own = [model for model in found.models if model.model == label]
            assert shown[:, column].tolist() == pytest.approx([one.measure(name).value for one in own])  # type: ignore[union-attr]
    assert [one.get_text() for one in maps[-1].get_xticklabels()] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ("conv", r"^layers 'conv' match none; the model has 0, 2, 3$"),
        ("cumulative", r"^layers='cumulative' is a cut of lines; for sharpness give each|cumulative is a cut of lines"),
        ("/(/", r"are no regular expression"),
    ],
)
def test_layers_that_there_are_not_are_refused(layers: str, message: str) -> None:
    with pytest.raises(FedscopeError, match=message):
        fedscope.sharpness(network(), layers=layers, **HOW)


def test_frozen_layers_do_not_move(tmp_path: Path) -> None:
    net = network()
    net[0].requires_grad_(False)
    found = fedscope.sharpness(net, layers="each", hessian=False, **RISES)
    assert [model.layer for model in found.models] == ["2", "3", "all layers"]
    with pytest.raises(FedscopeError, match=r"^layers '0' are frozen in the module, so nothing of them moves"):
        fedscope.sharpness(net, layers="0", hessian=False, **RISES)
    counted = fedscope.sharpness(net, layers="0", hessian=False, frozen=True, **RISES)
    assert counted.models[0].parameters == 25


def test_layers_and_data_of_are_two_questions(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["sharpness", "runs/fma@1/client-0", "--layers", "each", "--data-of", "own"]) == 2
    said = "--layers each is of one set of samples, and --data-of own of several; leave one out"
    assert said in capsys.readouterr().err


def test_a_layer_without_filters_has_nothing_relative_to_them() -> None:
    found = fedscope.sharpness(network(), layers="each", hessian=False, **RISES)
    for model in found.models:
        told = [model.measure(name) for name in ("filter_mean", "filter_worst_case", "worst_case")]
        assert [one is not None and one.value is None for one in told] == [model.layer == "2"] * 2 + [False]


def test_an_interrupted_measurement_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedscope.checkpoints import Layout, Model, Weights
    from fedscope.checkpoints.models.layer_selections import selections_of
    from fedscope.evaluation.samples import Samples
    from fedscope.landscape.curvature.many_models import by_layer, sharpness_at
    from fedscope.landscape.curvature.one_model import SharpnessSettings

    net = network()
    layout = Layout.of(net)
    w = np.concatenate([value.detach().numpy().ravel() for value in net.parameters()])
    models = [Model("net", "net", Weights(layout, w, {}))]
    samples = Samples(X, Y, 3, "toy", "test", np.arange(len(Y)))
    settings = SharpnessSettings(draws=2, top=2, probes=2)
    places = by_layer(samples, models, selections_of(layout, "each", "sharpness"))
    whole = sharpness_at(net, places, settings)
    seen: list[str] = []
    real = one_model._trace

    def stops(about: one_model.CurvatureContext) -> Any:
        seen.append(about.label)
        if len(seen) == 3:
            raise KeyboardInterrupt
        return real(about)

    monkeypatch.setattr(one_model, "_trace", stops)
    with pytest.raises(KeyboardInterrupt):
        sharpness_at(net, places, settings, partial=tmp_path / "kept")
    again = sharpness_at(net, places, settings, partial=tmp_path / "kept")
    assert len(seen) == 5, "two were kept, one was torn and measured again, one was left"
    assert again.findings() == whole.findings()
