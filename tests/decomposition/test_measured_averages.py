"""Running statistics that are measured on averages, in every question that averages a round's clients.

Oracle: ``torch.optim.swa_utils.update_bn`` on the average, and losses computed here."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.text import Text
from torch import nn
from torch.optim.swa_utils import update_bn

import fedscope
from fedscope import FedscopeError, Samples
from fedscope.analysis.settings import EvaluationConfig
from fedscope.checkpoints import Layout, Run, Weights, weighted_mean
from fedscope.decomposition.explanation.context_measures import measure_round
from fedscope.decomposition.factors.notes import notes
from fedscope.decomposition.theory.outputs import locality_gaps
from fedscope.evaluation.measured_statistics import MeasuredStatistics
from fedscope.training.inputs.samples import dataset_of

CLIENTS, TRAIN, TEST = 4, 300, 200
#: float32 sums of some hundred numbers, in another order
CLOSE = 2e-5


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


@pytest.fixture(scope="module")
def there(tmp_path_factory) -> SimpleNamespace:
    """A recorded round of networks with BatchNorm that were trained apart on shifted inputs."""
    torch.manual_seed(3)
    x, y = torch.randn(TRAIN + TEST, 5), torch.arange(TRAIN + TEST) % 3
    x += 2 * nn.functional.one_hot(y, 5)
    path = tmp_path_factory.mktemp("measured")
    data = path / "data.npz"
    np.savez(data, x_train=x[:TRAIN], y_train=y[:TRAIN], x_test=x[TRAIN:], y_test=y[TRAIN:])
    start, clients = net().state_dict(), []
    for k in range(CLIENTS):
        torch.manual_seed(10 + k)
        own = net().train()
        steps = torch.optim.SGD(own.parameters(), lr=0.1)
        for _ in range(60):
            rows = torch.randint(TRAIN, (40,))
            steps.zero_grad()
            nn.functional.cross_entropy(own(x[rows] * (1 + k / 2)), y[rows]).backward()
            steps.step()
        clients.append({name: values.clone() for name, values in own.state_dict().items()})
    with fedscope.Recorder(path / "run", model=net(), data=f"npz:{data}") as recorder:
        p = [0.1, 0.2, 0.3, 0.4]
        mean = {name: sum(a * one[name] for a, one in zip(p, clients, strict=True)) for name in start}
        counter = "1.num_batches_tracked"
        recorder.round(
            start=start, clients=clients, samples=[30, 60, 90, 120], global_={**mean, counter: clients[0][counter]}
        )
    # as the questions read it
    dataset = dataset_of([Run.open(path / "run")], EvaluationConfig.of("test", {"model": net(), "data": f"npz:{data}"}))
    train, test = dataset.samples("train"), dataset.samples("test")
    return SimpleNamespace(path=path, run=path / "run", data=f"npz:{data}", train=train, test=test)


def given(there: SimpleNamespace, **more: Any) -> dict[str, Any]:
    return {"model": net(), "data": there.data, "split": "test", **more}


def answer(module: nn.Module, samples: Samples) -> torch.Tensor:
    with torch.no_grad():
        return module.eval()(samples.x[:])


def with_torch(there: SimpleNamespace, weights: Weights) -> nn.Module:
    """The network with the statistics that torch measures, on one batch, as fedscope takes up to 500 samples."""
    module = net()
    module.load_state_dict({name: torch.from_numpy(np.array(v)) for name, v in weights.arrays().items()})
    update_bn([there.train.x[:]], module)
    return module


def loss_and_error(module: nn.Module, samples: Samples) -> tuple[float, float]:
    f = answer(module, samples)
    return float(nn.functional.cross_entropy(f, samples.y)), float((f.argmax(1) != samples.y).double().mean())


def average(there: SimpleNamespace, members: list[int] | None = None) -> Weights:
    round_ = Run.open(there.run).round(1)
    clients, p = round_.clients(), round_.weights.copy()
    if members is not None:
        p[[k for k in range(CLIENTS) if k not in members]] = 0
    return weighted_mean(clients, p / p.sum())


def test_statistics_are_those_that_torch_measures(there):
    mean = average(there)
    found = MeasuredStatistics(net(), there.train)(mean)
    expected = with_torch(there, mean).state_dict()
    for name, values in found.buffers.items():
        np.testing.assert_allclose(values, expected[name].numpy(), rtol=CLOSE, atol=CLOSE)
    assert np.array_equal(found.parameters, mean.parameters)
    assert not np.allclose(found.buffers["1.running_var"], mean.buffers["1.running_var"], rtol=0.05)


def test_subsets_measure_averages_and_leave_single_clients_theirs(there):
    plain = fedscope.subsets(there.run, sizes="1,3,4", weights="samples", **given(there))
    found = fedscope.subsets(there.run, sizes="1,3,4", weights="samples", normalization="re-estimate", **given(there))
    one, three, four = found.rounds[0].sizes
    assert one == plain.rounds[0].sizes[0]
    triples = [[i for i in range(CLIENTS) if i != k] for k in range(CLIENTS)]
    expected = np.mean([loss_and_error(with_torch(there, average(there, own)), there.test) for own in triples], axis=0)
    assert (three.loss_mean, three.error_mean) == pytest.approx(tuple(expected), rel=CLOSE)
    assert four.loss_mean == pytest.approx(loss_and_error(with_torch(there, average(there)), there.test)[0], rel=CLOSE)
    assert abs(four.loss_mean - plain.rounds[0].sizes[2].loss_mean) > 0.01
    assert found.attrs["normalization_policy"] == "re-estimate"
    assert found.attrs["calibration_samples"] == TRAIN
    assert plain.attrs["normalization_policy"] == "averaged"
    shown = " ".join(text.get_text() for text in found.figure().findobj(Text)).replace("\n", " ")
    assert "estimated on 300 train samples" in shown


def test_reaggregated_models_are_measured_and_the_recorded_one_is_not(there, tmp_path):
    found = fedscope.reaggregate(there.run, ["fma", "fedgma"], rounds=1, normalization="re-estimate", **given(there))
    plain = fedscope.reaggregate(there.run, ["fma", "fedgma"], rounds=1, **given(there))
    rows, before = ({row.model: row for row in one.measured} for one in (found, plain))
    assert rows["recorded"].loss == pytest.approx(before["recorded"].loss, rel=1e-12)
    expected = with_torch(there, average(there))
    assert (rows["fma"].loss, rows["fma"].error) == pytest.approx(loss_and_error(expected, there.test), rel=CLOSE)
    assert abs(rows["fedgma"].loss - before["fedgma"].loss) > 1e-3
    # what is written is what was measured
    np.testing.assert_allclose(
        found.models["fma"].buffers["1.running_mean"], expected.state_dict()["1.running_mean"], rtol=CLOSE, atol=CLOSE
    )
    assert rows["fma"].identical is False
    assert any("re-estimated on 300 train samples, for every server" in note for note in found.notes())


@pytest.mark.parametrize("loss", ["squared", "cross-entropy"])
def test_factors_are_of_the_average_with_measured_statistics(there, loss):
    how = given(there, draws="none", loss=loss, rounds=1)
    plain, found = (
        fedscope.decompose(there.run, **how),
        fedscope.decompose(there.run, normalization="re-estimate", **how),
    )
    (before,), (after,) = plain.runs[0].rounds, found.runs[0].rounds
    f = answer(with_torch(there, average(there)), there.test).double()
    if loss == "squared":
        expected = float((f.softmax(1) - nn.functional.one_hot(there.test.y, 3)).square().sum(1).mean())
    else:
        expected = float(nn.functional.cross_entropy(f, there.test.y))
    assert after.row("fma_loss").value == pytest.approx(expected, rel=CLOSE)
    assert after.row("bias").value == pytest.approx(before.row("bias").value, rel=1e-12)  # of clients alone
    assert abs(after.row("fma_loss").value - before.row("fma_loss").value) > 1e-3
    assert "re-estimated on 300 train samples" in notes(found)


def test_explain_compares_the_average_with_measured_statistics(there):
    run = Run.open(there.run)
    measured = MeasuredStatistics(net(), there.train)
    found = measure_round(net(), there.test, there.test, run.round(1), measured=measured)
    (compared,) = found.comparisons
    expected = loss_and_error(with_torch(there, average(there)), there.test)
    assert (compared.loss, compared.error) == pytest.approx(expected, rel=CLOSE)
    # and the page is of such averages
    how = given(there, draws="none")
    plain, page = fedscope.explain(there.run, **how), fedscope.explain(there.run, normalization="re-estimate", **how)
    said = [one.of("better-than-clients") for one in (plain, page)]
    assert said[0] != said[1]
    assert any("re-estimated on 300 train samples" in note for note in page.notes)


def test_gaps_of_lemma_1_depend_on_the_weights_alone(there, tmp_path):
    """Other recorded statistics of the clients change nothing; averaged ones they do change."""
    round_ = Run.open(there.run).round(1)
    clients, generator = round_.clients(), np.random.default_rng(0)
    noise = {
        name: values * generator.uniform(0.5, 2, values.shape).astype(values.dtype)
        if values.dtype.kind == "f"
        else values
        for name, values in clients.buffers.items()
    }
    other = Weights(clients.layout, clients.parameters, noise)
    how: dict[str, Any] = {"round": 1, "shrink": (1.0, 0.5)}
    for calibration, same in ((there.train, True), (None, False)):
        own, others = (
            locality_gaps(net(), there.test, one, round_.weights, calibration=calibration, **how)
            for one in (clients, other)
        )
        for a, b in zip(own, others, strict=True):
            assert (a.gap == pytest.approx(b.gap, rel=1e-9)) is same
    found = fedscope.theory(there.run, kernel="none", draws="none", normalization="re-estimate", **given(there))
    first = locality_gaps(net(), there.test, clients, round_.weights, calibration=there.train, **how)[0]
    assert found.gaps[0].gap == pytest.approx(first.gap, rel=1e-9)
    # by hand, in float64
    w = clients.parameters.astype(np.float64)
    every = [*w, round_.weights @ w]
    f = [in_float64(there, clients.layout, one) for one in every]
    gap = sum(p * one for p, one in zip(round_.weights.tolist(), f[:-1], strict=True)) - f[-1]
    assert first.gap == pytest.approx(float(gap.square().sum(1).mean().sqrt()), rel=1e-9)


def in_float64(there: SimpleNamespace, layout: Layout, parameters: np.ndarray) -> torch.Tensor:
    """The probabilities of a network in float64, with the statistics that torch measures."""
    module = net().double()
    with torch.no_grad():
        for name, own in module.named_parameters():
            own.copy_(torch.from_numpy(parameters[layout.slices[name]]).reshape(own.shape))
        update_bn([there.train.x[:].double()], module)
        return module.eval()(there.test.x[:].double()).softmax(1)


@pytest.mark.parametrize(
    ("question", "more"),
    [
        (fedscope.subsets, {}),
        (fedscope.decompose, {"draws": "none"}),
        (fedscope.explain, {"draws": "none"}),
        (fedscope.theory, {"kernel": "none"}),
        (partial(fedscope.reaggregate, servers="fma"), {"rounds": 1}),
    ],
)
def test_an_unknown_source_of_statistics_and_one_without_samples_are_named(there, question, more, tmp_path):
    with pytest.raises(FedscopeError, match="normalization"):
        question(there.run, normalization="interpolate", **given(there, **more))
    data = np.load(there.data.removeprefix("npz:"))
    np.savez(tmp_path / "tests.npz", x_test=data["x_test"], y_test=data["y_test"])
    with pytest.raises(FedscopeError, match="no training samples"):
        question(there.run, normalization="re-estimate", **given(there, **more, data=f"npz:{tmp_path}/tests.npz"))


def test_layers_do_not_go_with_measured_averages(there):
    with pytest.raises(FedscopeError, match="normalization='re-estimate' measures whole averages"):
        fedscope.decompose(there.run, layers="each", normalization="re-estimate", **given(there, draws="none"))


def test_a_network_without_statistics_is_measured_as_it_is(two_rounds):
    runs = two_rounds / "runs" / "fma"
    plain = fedscope.subsets(runs, sizes="2")
    found = fedscope.subsets(runs, sizes="2", normalization="re-estimate")
    assert found.rounds == plain.rounds
    assert "normalization_policy" not in found.attrs
