"""What is learnt: losses, errors, lines, planes and sharpness of any task are those of a plain loop in torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import fedscope
from fedscope.checkpoints import FedscopeError, Layout, Model, Weights
from fedscope.decomposition import CohortDraws, decompose_loss, decompose_round
from fedscope.decomposition.cka.pairs import model_similarity
from fedscope.decomposition.forgetting.accuracy import count_answers
from fedscope.evaluation.criteria import task_of_criterion
from fedscope.evaluation.evaluator import Evaluator
from fedscope.evaluation.resumable import fingerprint
from fedscope.evaluation.samples import Samples
from fedscope.evaluation.standard_tasks import PADDED, Classification, Regression, Sequences
from fedscope.evaluation.tasks import Plain, Task
from fedscope.landscape import Plane, SharpnessSettings, line, plane, sharpness
from fedscope.landscape.curvature.derivatives import Derivatives
from fedscope.landscape.planes.page import draw_page

V, L, N = 4, 5, 23


class Characters(nn.Module):
    """Tokens [n, L] to outputs [n, L, V]."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.rnn, self.head = nn.Embedding(V, 3), nn.GRU(3, 4, batch_first=True), nn.Linear(4, V)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.rnn(self.embedding(x))[0])
        return outputs


def characters(length: int = L) -> Samples:
    """Sequences of 1 to 5 characters, padded to a length."""
    draw = torch.Generator().manual_seed(1)
    x, y = torch.randint(0, V, (2, N, L), generator=draw)
    ends = torch.randint(1, L + 1, (N,), generator=draw)
    padded = torch.full((N, length), PADDED)
    padded[:, :L] = torch.where(torch.arange(L) < ends[:, None], y, PADDED)
    inputs = torch.zeros(N, length, dtype=torch.int64)
    inputs[:, :L] = x
    return Samples(inputs, padded, V, "text", "test", np.arange(N), task=Sequences())


def numbers() -> Samples:
    """Two numbers to be told from three."""
    draw = torch.Generator().manual_seed(2)
    x = torch.randn(N, 3, generator=draw, dtype=torch.float64)
    return Samples(x, torch.sin(x[:, :2] * 2), 2, "waves", "test", np.arange(N), task=Regression())


def model_of(module: nn.Module, seed: int) -> Model:
    draw = np.random.default_rng(seed)
    layout = Layout.of(module)
    return Model(f"m{seed}", f"m{seed}", Weights(layout, draw.normal(size=layout.size) * 0.7, {}))


def loaded(module: nn.Module, w: np.ndarray) -> nn.Module:
    nn.utils.vector_to_parameters(torch.from_numpy(np.asarray(w)), module.parameters())
    return module


def text_loss(module: nn.Module, samples: Samples) -> tuple[Tensor, float]:
    """Position by position."""
    losses, wrong = [], []
    for outputs, y in zip(module(samples.x), samples.y, strict=True):
        for answer, wanted in zip(outputs, y.tolist(), strict=True):
            if wanted != PADDED:
                losses.append(torch.logsumexp(answer, 0) - answer[wanted])
                wrong.append(int(answer.argmax()) != wanted)
    return torch.stack(losses).mean(), float(np.mean(wrong))


def squared_loss(module: nn.Module, samples: Samples) -> tuple[Tensor, float]:
    """Number by number."""
    pairs = zip(module(samples.x).flatten(), samples.y.flatten(), strict=True)
    return torch.stack([(f - y) ** 2 for f, y in pairs]).mean(), float("nan")


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], Samples], Any]] = {
    "sequences": (Characters, characters, text_loss),
    "regression": (network, numbers, squared_loss),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Any:
    make, samples, loss = CASES[request.param]
    return make().double(), samples(), loss


@pytest.mark.parametrize("batch", [N, 7, 1])
def test_losses_and_errors_are_those_of_a_plain_loop(case: Any, batch: int) -> None:
    module, samples, plain = case
    models = [model_of(module, seed) for seed in range(3)]
    loss, error = Evaluator(module, samples, batch=batch).models([model.weights for model in models])
    for i, model in enumerate(models):
        expected, wrong = plain(loaded(module, model.weights.parameters), samples)
        assert loss[i] == pytest.approx(expected.item(), rel=1e-12)
        assert error[i] == pytest.approx(wrong, rel=1e-12, nan_ok=True)


def test_gradients_and_hessian_products_are_those_of_a_plain_loop(case: Any) -> None:
    module, samples, plain = case
    model = model_of(module, 0).weights
    derivatives = Derivatives(module, samples)
    loaded(module, model.parameters)
    parameters = list(module.parameters())
    loss, _ = plain(module, samples)
    slope = torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters, create_graph=True)])
    v = np.random.default_rng(9).normal(size=model.layout.size)
    product = torch.autograd.grad(slope @ torch.from_numpy(v), parameters)
    value, gradient = derivatives.gradient(model)
    assert value == pytest.approx(float(loss.detach()), rel=1e-12)
    np.testing.assert_allclose(gradient, slope.detach().numpy(), atol=1e-13)
    expected = torch.cat([g.flatten() for g in product]).numpy()
    np.testing.assert_allclose(derivatives.products(model, v[None])[0], expected, atol=1e-12)


def test_positions_of_padding_change_nothing() -> None:
    module = Characters().double()
    models = [model_of(module, seed) for seed in range(3)]
    weights = [model.weights for model in models]
    short, long = characters(), characters(L + 6)
    for one, other in zip(
        Evaluator(module, short).models(weights), Evaluator(module, long).models(weights), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    np.testing.assert_allclose(
        Derivatives(module, short).gradient(weights[0])[1],
        Derivatives(module, long).gradient(weights[0])[1],
        atol=1e-13,
    )
    # nor does what the inputs are there
    noisy = replace(long, x=torch.where(long.y == PADDED, 3, long.x))
    assert Evaluator(module, noisy).models(weights)[0] == pytest.approx(Evaluator(module, long).models(weights)[0])


def test_every_position_counts_alike_in_the_mean() -> None:
    """One sample of a single position and one of three: the mean is over four."""
    outputs = torch.tensor([[[2.0, 0.0]] * 3, [[0.0, 1.0]] * 3])
    y = torch.tensor([[0, PADDED, PADDED], [0, 0, 1]])
    task = Sequences()
    each = torch.logsumexp(outputs, 2) - outputs.gather(2, y.clamp(min=0)[..., None])[..., 0]
    assert task.loss(outputs, y).tolist() == pytest.approx([float(each[0, 0]), float(each[1].mean())])
    assert task.error(outputs, y).tolist() == pytest.approx([0, 2 / 3])
    assert task.weights(y).tolist() == [1, 3]
    mean = (each[0, 0] + each[1].sum()) / 4
    assert float(task.reduced(outputs, y, "mean")) == pytest.approx(float(mean))
    assert float(task.reduced(outputs, y, "sum")) == pytest.approx(float(4 * mean))


def test_maps_have_their_classes_on_the_second_axis() -> None:
    module = nn.Conv2d(2, 3, 1).double()
    draw = torch.Generator().manual_seed(3)
    x = torch.randn(6, 2, 4, 5, generator=draw, dtype=torch.float64)
    y = torch.randint(0, 3, (6, 4, 5), generator=draw)
    y[0, :2] = PADDED
    samples = Samples(x, y, 3, "maps", "test", np.arange(6), task=Sequences())
    model = model_of(module, 4).weights
    loss, error = Evaluator(module, samples).models(model)
    outputs = loaded(module, model.parameters)(x)
    assert loss[0] == pytest.approx(functional.cross_entropy(outputs, y, ignore_index=PADDED).item(), rel=1e-12)
    there = y != PADDED
    assert error[0] == pytest.approx(float((outputs.argmax(1) != y)[there].double().mean()))
    rows, targets, of = samples.task.positions(outputs.detach()[None], y)
    assert rows.shape == (1, int(there.sum()), 3)
    assert torch.equal(rows[0, -1], outputs.detach()[5, :, 3, 4])
    assert (int(targets[-1]), int(of[-1]), int(of[0])) == (int(y[5, 3, 4]), 5, 0)


class Squeezed(nn.Module):
    """A regression that returns [n]."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.layer(x).squeeze(-1)
        return outputs


@pytest.mark.parametrize("task", ["regression", nn.MSELoss(), nn.L1Loss()], ids=["name", "mse", "l1"])
def test_outputs_may_have_the_shape_of_targets_of_one_number(task: Any) -> None:
    x = torch.randn(N, 3, generator=torch.Generator().manual_seed(3))
    y, nets = x[:, 0] * 2, [Squeezed(), Squeezed()]
    found = fedscope.line(nets, data=(x, y), task=task, points=3, standardise=False)
    each = functional.l1_loss if isinstance(task, nn.L1Loss) else functional.mse_loss
    with torch.no_grad():
        expected = [float(each(net(x), y)) for net in nets]
    # of float32 outputs
    assert [found.loss[0, np.flatnonzero(found.beta == end)[0]] for end in (1, 0)] == pytest.approx(expected, rel=1e-5)


def test_nan_rows_are_wrong_answers() -> None:
    nan = torch.tensor([[float("nan"), 0.0], [1.0, 0.0]])
    assert Classification().error(nan, torch.tensor([0, 0])).tolist() == [True, False]
    assert Sequences().error(nan[None], torch.tensor([[0, 0]])).tolist() == [0.5]


def test_a_plane_and_a_line_hold_what_a_loop_measures(case: Any) -> None:
    module, samples, plain = case
    models = [model_of(module, seed) for seed in range(3)]
    drawn = line(module, samples, [(models[0], models[1])], betas=[0.25])
    w = [model.weights.parameters for model in models]
    expected, wrong = plain(loaded(module, 0.25 * w[0] + 0.75 * w[1]), samples)
    assert drawn.loss[0, 1] == pytest.approx(expected.item(), rel=1e-12)
    assert drawn.error[0, 1] == pytest.approx(wrong, nan_ok=True)
    surface = plane(module, samples, models, grid=3)
    for model, weights in zip(surface.anchors, w, strict=True):
        assert model.loss == pytest.approx(plain(loaded(module, weights), samples)[0].item(), rel=1e-6)
    assert np.isfinite(surface.loss).all()
    assert np.isnan(surface.error).all() == (samples.task.name == "regression")


def test_what_has_no_error_is_drawn_without_one(tmp_path: Any) -> None:
    module, samples = nn.Linear(3, 2).double(), numbers()
    models = [model_of(module, seed) for seed in range(3)]
    drawn = line(module, samples, [(models[0], models[1])], betas=5)
    (axes,) = drawn.figure(7).axes
    assert axes.get_ylabel() == "test loss"
    assert (drawn.attrs["task"], drawn.attrs["loss_units"]) == ("regression", "1")
    surface = plane(module, samples, models, grid=3)
    surface.save(tmp_path / "plane.nc")
    figure = Plane.load(tmp_path / "plane.nc").figure(7)
    texts = [text.get_text() for text in figure.texts] + [axes.get_ylabel() for axes in figure.axes]
    assert not any("error" in text or "nan" in text or "nats" in text for text in texts)
    assert "nan %" not in draw_page(surface)
    measured = sharpness(module, samples, models[:1], SharpnessSettings(top=1, probes=1, draws=1, steps=2))
    assert measured.models[0].measure("error") is None
    assert measured.models[0].measure("loss") is not None
    texts = [axes.get_xlabel() for axes in measured.figure().axes]
    assert not any("nats" in text for text in texts)


def test_provenance_of_a_classification_says_nothing_of_tasks(small: Any) -> None:
    samples = Samples(small.x, small.y, 3, "small", "test", np.arange(40))
    models = [Model(f"m{seed}", f"m{seed}", small.model(seed)) for seed in range(2)]
    attrs = line(small.module, samples, [(models[0], models[1])], betas=3).attrs
    assert "task" not in attrs
    assert "loss_units" not in attrs


# --- one's own ---


class Hinge(Task):
    """A loss with an error, of labels in no classes."""

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        return (1 - outputs[:, 0] * y).clamp(min=0)

    def error(self, outputs: Tensor, y: Tensor) -> Tensor:
        return outputs[:, 0].sign() != y


def test_a_task_of_ones_own_and_a_function() -> None:
    draw = torch.Generator().manual_seed(5)
    x = torch.randn(N, 3, generator=draw, dtype=torch.float64)
    y = x[:, 0].sign().long()
    module = nn.Linear(3, 1).double()
    model = model_of(module, 6).weights
    samples = Samples(x, y, 1, "signs", "test", np.arange(N), task=Hinge())
    loss, error = Evaluator(module, samples, batch=5).models(model)
    outputs = loaded(module, model.parameters)(x)[:, 0].detach()
    assert loss[0] == pytest.approx(float((1 - outputs * y).clamp(min=0).mean()), rel=1e-12)
    assert error[0] == float((outputs * y < 0).double().mean())
    assert samples.task.name == "Hinge"
    alone = replace(samples, task=Plain("hinge", Hinge().loss))
    assert Evaluator(module, alone, batch=5).models(model)[0][0] == loss[0]
    assert np.isnan(Evaluator(module, alone).models(model)[1][0])


def test_a_class_of_ones_own_minimises_its_own_loss() -> None:
    """The fused sums of the built-in tasks are not taken for a class that overrides the loss."""

    class Twice(Classification):
        def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
            return 2 * super().loss(outputs, y)

    outputs, y = torch.tensor([[1.0, 0.0], [0.0, 3.0]]), torch.tensor([1, 1])
    plain = Classification().reduced(outputs, y, "mean")
    assert float(Twice().reduced(outputs, y, "mean")) == pytest.approx(2 * float(plain))
    assert Twice().name == "Twice"


def test_a_subset_without_classes_is_seeded() -> None:
    samples = numbers()
    part = samples.limit(9, 4)
    assert len(part) == 9
    assert torch.equal(part.y, samples.y[torch.from_numpy(part.indices)])
    assert np.array_equal(part.indices, samples.limit(9, 4).indices)
    assert not np.array_equal(part.indices, samples.limit(9, 5).indices)
    assert part.task is samples.task


# --- what is refused ---


def samples_of(task: Task, y: Tensor, classes: int = 2) -> Samples:
    return Samples(torch.zeros(len(y), 3), y, classes, "d", "test", np.arange(len(y)), task=task)


@pytest.mark.parametrize(
    ("task", "y", "sentence"),
    [
        (Regression(), torch.tensor([1.0, float("inf")]), "d test has 1 targets that are not finite"),
        (Regression(), torch.ones(2, dtype=torch.complex64), "complex targets"),
        (Sequences(), torch.ones(2), "float32 targets of shape \\[2\\], but a sequence has a class at each position"),
        (Sequences(), torch.ones(2, 3), "float32 targets of shape \\[2, 3\\]"),
        (Sequences(), torch.tensor([[0, 2]]), "targets from 0 to 2, but its 2 classes count from 0"),
        (Sequences(), torch.tensor([[0, -1]]), "targets from -1 to 0"),
        (Sequences(), torch.tensor([[0, 1], [PADDED, PADDED]]), "1 sample without a position .*the first is 1"),
        (Classification(), torch.tensor([0.5, 1.0]), "needs one class a sample.*or another --task"),
    ],
)
def test_targets_that_a_task_does_not_take(task: Task, y: Tensor, sentence: str) -> None:
    with pytest.raises(FedscopeError, match=sentence):
        samples_of(task, y)


class Broken(Task):
    def __init__(self, values: Callable[[Tensor], Any], error: Callable[[Tensor], Any] = lambda outputs: None) -> None:
        self.values, self.wrong = values, error

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        made: Tensor = self.values(outputs)
        return made

    def error(self, outputs: Tensor, y: Tensor) -> Tensor | None:
        made: Tensor | None = self.wrong(outputs)
        return made


@pytest.mark.parametrize(
    ("task", "y", "outputs", "sentence"),
    [
        (Regression(), torch.ones(4), 2, "a target of d test has 1 number, so \\[1, 1\\] is needed"),
        (Regression(), torch.ones(4, 3), 1, "has 3 numbers, so \\[1, 3\\] is needed"),
        (Sequences(), torch.zeros(4, 5, dtype=torch.int64), 2, "2 classes at 5 positions, so \\[1, 5, 2\\] is needed"),
        (Broken(lambda f: f.mean()), torch.ones(4), 1, "the loss of task Broken is a tensor of shape \\[\\] for 2 sam"),
        (Broken(lambda f: 3.0), torch.ones(4), 1, "the loss of task Broken is float .*one number a sample, \\[2\\]"),
        (Broken(lambda f: f @ f), torch.ones(4), 3, "the loss of task Broken fails on outputs of shape \\[2, 3\\]"),
        (Broken(lambda f: f[:, 0], lambda f: 7 + 0 * f[:, 0]), torch.ones(4), 1, "an error is a share, 0 to 1"),
    ],
)
def test_modules_and_tasks_that_do_not_fit(task: Task, y: Tensor, outputs: int, sentence: str) -> None:
    with pytest.raises(FedscopeError, match=sentence):
        Evaluator(nn.Linear(3, outputs), samples_of(task, y))


def test_what_needs_classes_says_so() -> None:
    module, samples = nn.Linear(3, 2).double(), numbers()
    clients = [model_of(module, seed).weights for seed in range(2)]
    rows = Weights(clients[0].layout, np.stack([w.parameters for w in clients]), {})
    with pytest.raises(
        FedscopeError, match="forgetting needs a class a sample, and waves test is measured with the tas"
    ):
        count_answers(
            module, samples, clients[0], rows, None, number=1, client_ids=np.arange(2), labels=np.ones((2, 2))
        )
    cohort = CohortDraws(
        1, np.arange(2), np.ones(2) / 2, [rows, rows], np.ones(2, np.int64), "rounds:2", independent=False
    )
    with pytest.raises(FedscopeError, match="the decomposition of the zero-one loss needs a class a sample"):
        decompose_loss(module, samples, cohort, loss="zero-one", globals_=None, averaged=None, population=True)
    own = replace(samples, task=Plain("mine", Regression().loss))
    with pytest.raises(FedscopeError, match="needs classes or numbers, and waves test is measured with the task mine"):
        decompose_round(module, own, cohort, None, globals_=None, averaged=None, population=True)


# --- positions as samples ---


def cohort_of(module: nn.Module) -> CohortDraws:
    draws = [
        Weights(Layout.of(module), np.stack([model_of(module, 10 * r + k).weights.parameters for k in range(3)]), {})
        for r in range(3)
    ]
    p = np.array([0.5, 0.3, 0.2])
    return CohortDraws(1, np.arange(3), p, draws, np.array([5, 3, 2]), "local:3", independent=True)


def flattened(module: nn.Module) -> tuple[nn.Module, Samples]:
    """The same as a classification of positions: a module that looks its inputs' outputs up."""
    samples = characters()
    there = samples.y != PADDED
    where = torch.arange(N * L, dtype=torch.float64).reshape(N, L)[there]

    class Looked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside = module

        def forward(self, at: Tensor) -> Tensor:
            outputs: Tensor = self.inside(samples.x).flatten(0, 1)
            return outputs[at[:, 0].long()]

    y = samples.y[there]
    return Looked(), Samples(where[:, None], y, V, "text", "test", np.arange(len(y)))


def test_a_decomposition_of_sequences_is_one_of_their_positions() -> None:
    module = Characters().double()
    other, flat = flattened(module)
    expected = decompose_round(other, flat, renamed(cohort_of(module), other), None, **NOTHING)
    found = decompose_round(module, characters(), cohort_of(module), None, chunk=6, **NOTHING)
    assert found.samples == expected.samples == len(flat)
    assert_same_rows(found, expected)
    for loss in ("cross-entropy", "zero-one"):
        expected = decompose_loss(other, flat, renamed(cohort_of(module), other), loss=loss, **NOTHING)
        assert_same_rows(decompose_loss(module, characters(), cohort_of(module), loss=loss, **NOTHING), expected)


NOTHING: dict[str, Any] = {"globals_": None, "averaged": None, "population": False}


def renamed(cohort: CohortDraws, module: nn.Module) -> CohortDraws:
    layout = Layout.of(module)
    return replace(cohort, draws=[Weights(layout, draw.parameters, {}) for draw in cohort.draws])


def assert_same_rows(found: Any, expected: Any) -> None:
    for one, other in zip(found.rows, expected.rows, strict=True):
        assert (one.factor, one.estimate) == (other.factor, other.estimate)
        for name in ("value", "stderr_draws", "stderr_samples"):
            value, wanted = getattr(one, name), getattr(other, name)
            assert (value is None) == (wanted is None)
            assert value is None or value == pytest.approx(wanted, rel=1e-5, abs=1e-7, nan_ok=True), one.factor


def test_a_decomposition_of_a_regression_adds_up_to_its_loss() -> None:
    module, samples = network().double(), numbers()
    cohort = cohort_of(module)
    found = decompose_round(module, samples, cohort, None, **NOTHING)
    assert found.outputs == "outputs"
    assert found.row("closure_error").value < 1e-12
    means = [np.tensordot(cohort.p, draw.parameters, axes=1) for draw in cohort.draws]
    losses = [float(squared_loss(loaded(module, w), samples)[0]) for w in means]
    assert found.row("fma_loss").value == pytest.approx(np.mean(losses), rel=1e-5)


def test_cka_takes_positions_as_samples() -> None:
    module = Characters().double()
    models = [model_of(module, seed) for seed in range(2)]
    (found,) = model_similarity(module, characters(), models, estimator="biased", batch=1000)
    there = (characters().y != PADDED).flatten()
    features = []
    for model in models:
        outputs = loaded(module, model.weights.parameters)(characters().x).detach().flatten(0, 1)[there]
        features.append((outputs - outputs.mean(0)).numpy())
    x, y = features
    expected = np.linalg.norm(x.T @ y) ** 2 / (np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y))
    assert found.cka[0, 1] == pytest.approx(expected, rel=1e-9)
    (longer,) = model_similarity(module, characters(L + 4), models, estimator="biased", batch=1000)
    assert longer.cka[0, 1] == pytest.approx(expected, rel=1e-9)
    (few,) = model_similarity(module, characters(), models, batch=12)
    assert np.isfinite(few.cka).all()
    (of_tuple,) = model_similarity(module, characters(), models, layers=["rnn"], estimator="biased", batch=1000)
    features = []
    for model in models:
        made = loaded(module, model.weights.parameters)
        outputs = made.rnn(made.embedding(characters().x))[0].detach().flatten(0, 1)[there]
        features.append((outputs - outputs.mean(0)).numpy())
    x, y = features
    expected = np.linalg.norm(x.T @ y) ** 2 / (np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y))
    assert of_tuple.cka[0, 1] == pytest.approx(expected, rel=1e-9)


def test_cka_refuses_layers_without_a_row_a_position() -> None:
    class Squeezed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(L, 3), nn.Linear(3, L * V)

        def forward(self, x: Tensor) -> Tensor:
            outputs: Tensor = self.second(self.first(x.double()))
            return outputs.unflatten(1, (L, V))

    module = Squeezed().double()
    models = [model_of(module, seed) for seed in range(2)]
    with pytest.raises(FedscopeError, match=r"layer first returns shape .*of sequences features are a row a position"):
        model_similarity(module, characters(), models, layers=["first"])


@pytest.mark.parametrize(("unit", "said"), [("nats", None), ("nat", None), (" Nats", None), ("m2", "m2"), ("1", "1")])
def test_nats_are_nat_and_other_units_are_kept(unit: str, said: str | None) -> None:
    class Own(fedscope.Classification):
        name = "classification"

    Own.unit = unit
    x = torch.randn(12, 2)
    line = fedscope.line([torch.nn.Linear(2, 2) for _ in range(2)], data=(x, x[:, 0] > 0), task=Own(), points=3)
    assert line.attrs.get("loss_units") == said
    assert ("(nats)" in line.figure().axes[0].get_ylabel()) == (said is None)


@pytest.mark.parametrize("unit", [None, 3, "", "a\nb"])
def test_what_is_no_unit_is_refused(unit: object) -> None:
    class Own(fedscope.Classification):
        pass

    Own.unit = unit  # type: ignore[assignment]
    x = torch.randn(12, 2)
    with pytest.raises(FedscopeError, match=r"the task .*Own has the unit .*; give a text as netCDF has it"):
        fedscope.line([torch.nn.Linear(2, 2) for _ in range(2)], data=(x, x[:, 0] > 0), task=Own(), points=3)


class Counts(Task):
    """Counts from 1, in place."""

    def __init__(self, where: str) -> None:
        self.where = where

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        if self.where == "loss":
            y -= 1
        return functional.cross_entropy(outputs, y, reduction="none")

    def error(self, outputs: Tensor, y: Tensor) -> Tensor:
        if self.where == "error":
            outputs.relu_()
        return (outputs.argmax(dim=1) != y).double()

    def weights(self, y: Tensor) -> None:
        if self.where == "weights":
            y.clamp_(max=2)


@pytest.mark.parametrize(("where", "what"), [("loss", "y"), ("error", "outputs"), ("weights", "y")])
def test_a_task_that_changes_what_it_is_given_is_refused(where: str, what: str) -> None:
    y = torch.tensor([1, 2, 3] * 4)
    samples = Samples(torch.randn(12, 2), y, 4, "toy", "test", np.arange(12), task=Counts(where))
    said = rf"{where} of task Counts changes {what} of toy test in place, .* \({what} = {what}\.clone\(\)\)$"
    with pytest.raises(FedscopeError, match=said):
        Evaluator(nn.Linear(2, 4), samples)
    assert y.tolist() == [1, 2, 3] * 4


def test_a_module_that_changes_its_input_is_refused() -> None:
    """Once its first layer has done so, doing so again changes nothing: its own numbers would not tell."""
    x = torch.randn(12, 2, generator=torch.Generator().manual_seed(0))
    before = x.clone()
    samples = Samples(x, torch.arange(12) % 3, 3, "toy", "test", np.arange(12))
    with pytest.raises(FedscopeError, match=r"changes its input in place, .* \(x = x\.clone\(\)\), or leave inplace="):
        Evaluator(nn.Sequential(nn.ReLU(inplace=True), nn.Linear(2, 3)), samples)
    assert torch.equal(x, before)
    Evaluator(nn.Sequential(nn.Linear(2, 3), nn.ReLU(inplace=True)), samples)


class _Deeper(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.unsqueeze_(1)).flatten(1)


class _Column(fedscope.Task):
    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        return (outputs - y.unsqueeze_(1))[:, 0].square()


def test_a_new_shape_in_place_is_no_change_of_the_samples() -> None:
    x, module = torch.randn(12, 2, generator=torch.Generator().manual_seed(0)), _Deeper()
    samples = Samples(x, torch.arange(12) % 3, 3, "toy", "test", np.arange(12))
    w = Layout.of(module).flatten({name: value.detach().numpy() for name, value in module.state_dict().items()})
    loss, _ = Evaluator(module, samples).models([w])
    own = functional.cross_entropy(module.layer(x), samples.y)
    assert loss[0] == pytest.approx(float(own), rel=1e-6)
    assert x.shape == (12, 2)
    y = torch.randn(12, generator=torch.Generator().manual_seed(1))
    Evaluator(nn.Linear(2, 1), Samples(x, y, 1, "toy", "test", np.arange(12), task=_Column()))
    assert y.shape == (12,)


def test_what_is_made_in_inference_mode_is_tried_out_too() -> None:
    """There torch does not count how often a tensor was changed."""
    with torch.inference_mode():
        samples = Samples(torch.ones(4, 2), torch.arange(4) % 3, 3, "toy", "test", np.arange(4), task=Counts(""))
        assert Evaluator(nn.Linear(2, 3), samples).samples is samples


def test_points_are_not_gone_on_with_by_a_task_whose_error_or_weights_have_changed() -> None:
    class Weighed(Task):
        share, power = 0.5, 0.0

        def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
            return (outputs - y).abs().mean(dim=1)

        def error(self, outputs: Tensor, y: Tensor) -> Tensor:
            return self.share * (outputs[:, 0] > y[:, 0])

        def error_weights(self, y: Tensor) -> Tensor:
            return y[:, 0].abs() ** self.power

    task = Weighed()
    module = nn.Linear(3, 2).double()
    samples = replace(numbers(), task=task)

    def asked() -> dict[str, Any]:
        return fingerprint("line", module, Evaluator(module, samples), [model_of(module, 0).weights])

    before = asked()
    assert asked() == before
    for name, value in (("share", 0.4), ("power", 1.0)):
        setattr(task, name, value)
        assert {key for key, said in asked().items() if said != before[key]} == {"answers"}
        delattr(task, name)


def test_points_are_not_gone_on_with_where_a_loss_has_changed_for_the_last_samples_alone() -> None:
    """As of the last class of sorted labels."""

    class Edited(Task):
        share = 1.0

        def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
            return (outputs - y).abs().mean(dim=1) * torch.where(y[:, 0] >= late, self.share, 1.0)

    task, module, samples = Edited(), nn.Linear(3, 2).double(), numbers()
    samples = replace(samples, y=samples.y[samples.y[:, 0].argsort()], task=task)
    late = samples.y[-2, 0]
    before = fingerprint("line", module, Evaluator(module, samples), [model_of(module, 0).weights])
    task.share = 0.5
    after = fingerprint("line", module, Evaluator(module, samples), [model_of(module, 0).weights])
    assert {key for key, said in after.items() if said != before[key]} == {"answers"}


@pytest.mark.parametrize("task", [Regression(), task_of_criterion(nn.BCEWithLogitsLoss())])
def test_flat_targets_go_with_outputs_that_have_axes(task: Task) -> None:
    """As an autoencoder's."""
    nets = [nn.Sequential(nn.Unflatten(1, (1, 3, 4)), nn.Conv2d(1, 1, 3, padding=1)) for _ in range(2)]
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(6, 12, generator=draw), torch.rand(6, 12, generator=draw)
    made = [
        fedscope.line(nets, data=(x, targets), task=task, points=3).loss
        for targets in (y, y.reshape(6, 1, 3, 4), y.reshape(6, 1, 12))
    ]
    np.testing.assert_array_equal(made[0], made[1])
    np.testing.assert_array_equal(made[0], made[2])


@pytest.mark.parametrize("task", [Regression(), task_of_criterion(nn.BCEWithLogitsLoss())])
def test_outputs_along_other_axes_than_the_targets_are_refused(task: Task) -> None:
    class Shaped(nn.Module):
        def __init__(self, *shape: int) -> None:
            super().__init__()
            self.fc, self.shape = nn.Linear(3, 12), shape

        def forward(self, x: Tensor) -> Tensor:
            outputs: Tensor = self.fc(x)
            return outputs.reshape(len(x), *self.shape)

    x, y = torch.randn(N, 3), torch.rand(N, 4, 3)
    found = []
    for shape in ((4, 3), (4, 1, 3), (12,)):
        torch.manual_seed(0)
        module = Shaped(*shape)
        found.append(fedscope.line([module, Shaped(*shape)], data=(x, y), task=task, points=3).loss[0].min())
    np.testing.assert_allclose(found, found[0])
    for shape, needed in (((3, 4), "[n, 3, 4]"), ((2, 6), "[n, 2, 6]")):
        with pytest.raises(FedscopeError) as caught:
            fedscope.line([Shaped(*shape), Shaped(*shape)], data=(x, y), task=task, points=3)
        assert str(caught.value) == (
            f"the module returns outputs of shape {[1, *shape]} for one sample, but a target of arrays test has shape "
            f"[4, 3], so numbers would be compared with others than their own; give targets {needed}, or a module "
            "whose outputs have the targets' axes"
        )


class Turned(nn.Module):
    """Outputs as torch's losses take them, [n, V, L]."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Characters()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x).transpose(1, 2)


def test_cka_of_outputs_in_torchs_order_is_that_of_the_other_order() -> None:
    samples = replace(characters(), task=task_of_criterion(nn.CrossEntropyLoss()).taken(characters().y.numpy())[0])
    found = []
    for module in (Characters(), Turned()):
        models = [model_of(module, seed) for seed in range(2)]
        (one,) = model_similarity(module, samples, models, estimator="biased", batch=1000)
        found.append(one.cka)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)
