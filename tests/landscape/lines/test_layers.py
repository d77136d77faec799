"""Lines of single layers: against a plain loop, against the whole line, and each model measured once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from random_models import interrupt_at, random_models, random_samples
from torch import Tensor, nn

from fedscope.checkpoints import FedscopeError, Layout, Model, Weights
from fedscope.evaluation.criteria import task_of_criterion
from fedscope.evaluation.device import Compute
from fedscope.evaluation.evaluator import Evaluator
from fedscope.evaluation.samples import Samples
from fedscope.landscape import LayerLine, barrier_of, layer_lines, line


def network() -> tuple[nn.Module, Samples, Model, Model]:
    """Three layers, of which the second keeps statistics."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))
    a, b = random_models(module, 2, 1.0)
    return module, random_samples(70, (6,)), a, b


def loop(
    module: nn.Module, samples: Samples, a: Model, b: Model, moving: Sequence[str], others: Model, betas: np.ndarray
) -> list[float]:
    """The losses by torch alone: layers that move are interpolated, and the rest is copied."""
    first, second, rest = (model.weights.arrays() for model in (a, b, others))
    losses = []
    for beta in betas:
        state = {}
        for name, values in rest.items():
            mixed = values
            if name.rpartition(".")[0] in moving and values.dtype.kind == "f":
                mixed = (beta * first[name].astype(np.float64) + (1 - beta) * second[name]).astype(values.dtype)
            state[name] = torch.from_numpy(np.array(mixed))
        module.load_state_dict(state)
        with torch.no_grad():
            outputs = module.eval()(samples.x)
        losses.append(float(nn.functional.cross_entropy(outputs.double(), samples.y)))
    return losses


@pytest.mark.parametrize(
    ("layers", "moving"),
    [
        ("each", {"0": ["0"], "1": ["1"], "3": ["3"], "all layers": ["0", "1", "3"]}),
        ("cumulative", {"to 0": ["0"], "to 1": ["0", "1"], "all layers": ["0", "1", "3"]}),
        ("0,3", {"0,3": ["0", "3"], "all layers": ["0", "1", "3"]}),
        ("/[13]/", {"/[13]/": ["1", "3"], "all layers": ["0", "1", "3"]}),
    ],
)
def test_every_line_is_that_of_a_plain_loop(layers: str, moving: dict[str, list[str]]) -> None:
    module, samples, a, b = network()
    found = layer_lines(module, samples, (a, b), layers=layers, betas=[0.25, 0.5, 0.7])
    assert found.layers == tuple(moving)
    assert found.beta.tolist() == [0.0, 0.25, 0.5, 0.7, 1.0]
    for row, names in enumerate(moving.values()):
        for end, others in enumerate((a, b)):
            right = loop(module, samples, a, b, names, others, found.beta)
            np.testing.assert_allclose(found.loss[end, row], right, rtol=2e-7)
            height, where = barrier_of(found.beta, found.loss[end, row])
            assert (found.barrier[end, row], found.barrier_beta[end, row]) == (height, where)
    sizes = {"0": 56, "1": 16, "3": 27}
    assert found.parameters.tolist() == [sum(sizes[name] for name in names) for names in moving.values()]


def by_sample(module: nn.Module, samples: Samples, state: dict[str, Tensor]) -> np.ndarray:
    module.load_state_dict(state)
    with torch.no_grad():
        outputs = module.eval()(samples.x)
    return nn.functional.cross_entropy(outputs.double(), samples.y, reduction="none").numpy()


def test_the_error_of_a_barrier_is_that_of_paired_differences() -> None:
    module, samples, a, b = network()
    found = layer_lines(module, samples, (a, b), betas=11)
    assert np.isnan(found.barrier_stderr).tolist() == (found.barrier == 0).tolist()
    arrays = [model.weights.arrays() for model in (a, b)]
    seen = 0
    for others, row in np.ndindex(2, 3):
        if found.barrier[others, row] == 0:
            continue
        layer, top = found.layers[row], float(found.barrier_beta[others, row])

        def state(beta: float, others: int = others, layer: str = layer) -> dict[str, Tensor]:
            first, second = arrays
            mixed = {}
            for name, values in arrays[others].items():
                if name.rpartition(".")[0] == layer and values.dtype.kind == "f":
                    values = (beta * first[name].astype(np.float64) + (1 - beta) * second[name]).astype(values.dtype)
                mixed[name] = torch.from_numpy(np.array(values))
            return mixed

        losses = [by_sample(module, samples, state(beta)) for beta in (top, 1.0, 0.0)]
        each = losses[0] - top * losses[1] - (1 - top) * losses[2]
        assert each.mean() == pytest.approx(found.barrier[others, row], rel=1e-4)
        expected = each.std(ddof=1) / np.sqrt(len(each))
        assert found.barrier_stderr[others, row] == pytest.approx(expected, rel=1e-4)
        assert expected < 0.8 * losses[0].std(ddof=1) / np.sqrt(len(each)), "pairs are less uncertain than a mean"
        seen += 1
    assert seen > 1
    assert " ± " in found.summary()


def test_weights_of_samples_count_in_the_error() -> None:
    module, samples, a, b = network()
    weights = torch.tensor([1.0, 3.0, 0.5])
    weighted = replace(samples, task=task_of_criterion(nn.CrossEntropyLoss(weight=weights)))
    found = layer_lines(module, weighted, (a, b), layers="0", betas=11)
    row = int(np.argmax(found.barrier[:, 0]))
    others = (a, b)[row]
    top = float(found.barrier_beta[row, 0])
    c = weights[samples.y].double().numpy()

    def losses(beta: float) -> np.ndarray:
        first, second, rest = (model.weights.arrays() for model in (a, b, others))
        state = {
            name: torch.from_numpy(np.array(values))
            for name, values in {
                **rest,
                **{
                    name: (beta * first[name].astype(np.float64) + (1 - beta) * second[name]).astype(np.float32)
                    for name in ("0.weight", "0.bias")
                },
            }.items()
        }
        return by_sample(module, samples, state)

    each = losses(top) - top * losses(1.0) - (1 - top) * losses(0.0)
    mean = (c @ each) / c.sum()
    assert mean == pytest.approx(found.barrier[row, 0], rel=1e-4)
    n = len(c)
    expected = np.sqrt(n / (n - 1) * (c**2 @ (each - mean) ** 2)) / c.sum()
    assert found.barrier_stderr[row, 0] == pytest.approx(expected, rel=1e-4)


def test_losses_that_were_not_kept_are_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    module, samples, a, b = network()
    kept = layer_lines(module, samples, (a, b), betas=11)
    monkeypatch.setattr("fedscope.evaluation.sample_losses.KEPT", 10)
    formed = counted(monkeypatch)
    again = layer_lines(module, samples, (a, b), betas=11)
    assert again.barrier_stderr.tobytes() == kept.barrier_stderr.tobytes()
    assert len(formed) > len(set(formed)) == 2 + 3 * 2 * 10 + 9


@pytest.mark.parametrize("layers", ["*", "each", "cumulative", "1"])
@pytest.mark.parametrize("policy", ["interpolate", "keep", "re-estimate"])
def test_all_layers_are_the_whole_line_bit_for_bit(layers: str, policy: str) -> None:
    module, samples, a, b = network()
    how = {"betas": np.linspace(-0.5, 1.5, 9), "normalization": policy, "calibration": random_samples(50, (6,), seed=3)}
    whole = line(module, samples, [(a, b)], **how)
    found = layer_lines(module, samples, (a, b), layers=layers, **how)
    assert found.layers[-1] == "all layers"
    for end in (0, 1):
        assert found.loss[end, -1].tobytes() == whole.loss[0].tobytes()
        assert found.error[end, -1].tobytes() == whole.error[0].tobytes()
        assert (found.barrier[end, -1], found.barrier_beta[end, -1]) == (whole.barrier[0], whole.barrier_beta[0])
    assert found.attrs["normalization_policy"] == whole.attrs["normalization_policy"] == policy
    if layers == "*":
        assert found.loss.shape == (2, 1, 9)


def test_the_ends_are_the_models_themselves() -> None:
    module, samples, a, b = network()
    found = layer_lines(module, samples, (a, b), betas=3)
    losses, _ = Evaluator(module, samples).models([a.weights, b.weights])
    assert (found.loss[0, :, -1] == losses[0]).all(), "others at A: β = 1 is A, whatever moves"
    assert (found.loss[1, :, 0] == losses[1]).all(), "others at B: β = 0 is B"
    assert (found.loss[0, :-1, 0] != losses[1]).all()


def test_statistics_move_with_their_layer_alone() -> None:
    module, samples, a, b = network()
    other = {name: values + 1 if values.dtype.kind == "f" else values for name, values in b.weights.buffers.items()}
    changed = replace(b, weights=Weights(b.weights.layout, b.weights.parameters, other))
    lines = [layer_lines(module, samples, (a, end), betas=5).loss for end in (b, changed)]
    same = [[bool((one == two).all()) for one, two in zip(*rows, strict=True)] for rows in zip(*lines, strict=True)]
    assert same[0] == [True, False, True, False], "others at A"
    assert same[1] == [False, False, False, False], "others at B, whose statistics are others now"
    kept = [layer_lines(module, samples, (a, end), betas=5, normalization="keep").loss for end in (b, changed)]
    assert np.array_equal(*kept), "those of A for all"


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Which points are formed, from now on."""
    from fedscope.landscape.lines.layers import _LayerLines

    formed, real = list[int](), _LayerLines.form

    def form(self: _LayerLines, i: int, replica: object) -> None:
        formed.append(i)
        real(self, i, replica)  # type: ignore[arg-type]

    monkeypatch.setattr(_LayerLines, "form", form)
    return formed


@pytest.mark.parametrize(
    ("layers", "models"),
    [
        ("each", 2 + 3 * 2 * 4 + 3),  # A and B; of each layer four more points of five a line; three of the whole line
        ("cumulative", 2 + 2 * 2 * 4 + 3),
        ("*", 5),
        ("0", 2 + 2 * 4 + 3),
    ],
)
def test_a_model_is_formed_and_measured_once(layers: str, models: int, monkeypatch: pytest.MonkeyPatch) -> None:
    module, samples, a, b = network()
    formed = counted(monkeypatch)
    told: list[tuple[int, int]] = []
    layer_lines(module, samples, (a, b), layers=layers, betas=5, progress=lambda *t: told.append(t))
    assert sorted(formed) == list(range(models))
    assert told[-1] == (models, models)


def frozen(model: Model, like: Model, layer: str) -> Model:
    """A model with a layer of another."""
    own, other = model.weights.arrays(), like.weights.arrays()
    mixed = {name: other[name] if name.rpartition(".")[0] == layer else own[name] for name in own}
    return replace(model, weights=model.weights.layout.flatten(mixed))


def test_a_layer_that_is_the_same_in_both_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    module, samples, a, b = network()
    b = frozen(b, a, "1")
    formed = counted(monkeypatch)
    each = layer_lines(module, samples, (a, b), betas=5)
    assert len(formed) == 2 + 2 * 2 * 4 - 2 + 3, "of two layers each is the rest of the other"
    assert (each.loss[0, 1] == each.loss[0, 0, -1]).all()
    assert (each.loss[1, 1] == each.loss[1, 0, 0]).all()
    assert each.barrier[:, 1].tolist() == [0.0, 0.0]
    cumulative = layer_lines(module, samples, (a, b), layers="cumulative", betas=5)
    assert np.array_equal(cumulative.loss[:, 0], cumulative.loss[:, 1])
    with pytest.raises(FedscopeError, match=r"^layers '1' are the same in a and b, so nothing moves; choose others$"):
        layer_lines(module, samples, (a, b), layers="1")


class Tied(nn.Module):
    """An output layer whose weights are those of the first."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3, bias=False)
        self.middle = nn.Linear(3, 3)
        self.last = nn.Linear(3, 3, bias=False)
        self.last.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.middle(torch.tanh(self.first(x)))))  # type: ignore[no-any-return]


def test_tied_weights_move_together() -> None:
    module, samples = Tied(), random_samples(40, (3,))
    models = []
    for one in random_models(module, 2, 1.0):
        arrays = one.weights.arrays()
        models.append(
            replace(one, weights=one.weights.layout.flatten({**arrays, "last.weight": arrays["first.weight"]}))
        )
    a, b = models
    found = layer_lines(module, samples, (a, b), betas=5)
    assert found.layers == ("first", "middle", "last", "all layers")
    assert np.array_equal(found.loss[:, 0], found.loss[:, 2])
    right = loop(module, samples, a, b, ["first", "last"], a, found.beta)
    np.testing.assert_allclose(found.loss[0, 0], right, rtol=2e-7)


class Well(nn.Module):
    """Two layers u and v, loss 1.2 + h (1 − u²)² + 0.3 (u² + v²) + c u v whatever the sample."""

    def __init__(self, height: float = 0.7, coupled: float = 0.0) -> None:
        super().__init__()
        self.height, self.coupled = height, coupled
        self.u = nn.Parameter(torch.zeros(1, dtype=torch.float64))
        self.v = nn.Parameter(torch.zeros(1, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        u, v = self.u[0], self.v[0]
        loss = 1.2 + self.height * (1 - u**2) ** 2 + 0.3 * (u**2 + v**2) + self.coupled * u * v
        z = torch.log(torch.expm1(loss)) + 0 * x[:, 0]
        return torch.stack([torch.zeros_like(z), z], dim=1)


def well(
    a: tuple[float, float], b: tuple[float, float], layers: str = "each", **how: float
) -> tuple[LayerLine, Callable[[], str]]:
    module = Well(**how)
    layout = Layout.of(module)
    samples = Samples(torch.ones(7, 1), torch.zeros(7, dtype=torch.int64), 2, "toy", "test", np.arange(7))
    pair = [Model(name, f"runs/x@{name}", Weights(layout, np.array(w), {})) for name, w in (("a", a), ("b", b))]
    found = layer_lines(module, samples, (pair[0], pair[1]), layers=layers, betas=21)
    return found, found.summary


def test_the_sentence_names_the_layer_that_carries_the_barrier() -> None:
    found, said = well((1.0, 0.5), (-1.0, -0.5))
    np.testing.assert_allclose(found.barrier[:, 0], 0.4, rtol=1e-12)
    assert found.barrier[:, 1].tolist() == [0.0, 0.0], "convex"
    assert said() == (
        "loss barrier between a and b: greatest in u, 0.4 at beta = 0.50 with the others at a, 0.4 at beta = 0.50 with "
        "them at b; all layers together 0.325 at beta = 0.50"
    )
    assert found.numbers()["layers"] == ["u", "v", "all layers"]


def test_the_sentence_says_that_no_layer_has_one_alone() -> None:
    found, said = well((1.0, 1.0), (-1.0, -1.0), height=0.0, coupled=-1.0)  # a saddle: along the diagonal a hill
    assert found.carrier is None
    assert said() == ("loss barrier between a and b: no layer has one alone, all layers together 0.4 at beta = 0.50")
    _, said = well((1.0, 1.0), (-1.0, -1.0), "v", height=0.0, coupled=-1.0)
    assert said() == "loss barrier between a and b: v have none, all layers together 0.4 at beta = 0.50"
    _, said = well((1.0, 1.0), (-1.0, -1.0), "*", height=0.0, coupled=-1.0)
    assert said() == "loss barrier between a and b: all layers together 0.4 at beta = 0.50"


def test_the_sentence_names_the_layer_with_which_the_barrier_grows() -> None:
    _, said = well((1.0, 1.0), (-1.0, -1.0), "cumulative", height=0.0, coupled=-1.0)
    assert said() == (
        "loss barrier between a and b: grows most with the last layer, by 0.4, all layers together 0.4 at beta = 0.50"
    )
    _, said = well((1.0, 0.5), (-1.0, -0.5), "cumulative")
    assert said() == (
        "loss barrier between a and b: grows most with u, by 0.4, all layers together 0.325 at beta = 0.50"
    )


@pytest.mark.parametrize("workers", [1, 3])
def test_an_interrupted_measurement_goes_on_bit_for_bit(tmp_path: Path, workers: int) -> None:
    module, samples, a, b = network()
    whole = layer_lines(module, samples, (a, b), betas=9)
    store, told = tmp_path / "m.nc.partial", list[tuple[int, int]]()
    how = {"betas": 9, "compute": Compute(workers=workers), "partial": store}
    with pytest.raises(KeyboardInterrupt):
        layer_lines(module, samples, (a, b), progress=interrupt_at(11), **how)
    again = layer_lines(module, samples, (a, b), progress=lambda *t: told.append(t), **how)
    assert told[0][0] == 11, "what was done is not done again"
    assert again.loss.tobytes() == whole.loss.tobytes()
    assert again.barrier_stderr.tobytes() == whole.barrier_stderr.tobytes()
    layer_lines(module, samples, (a, b), layers="0", progress=lambda *t: told.append(t), **how)
    assert (0, 2 + 2 * 8 + 7) in told, "another question starts anew"


def test_what_is_kept_comes_back(tmp_path: Path) -> None:
    module, samples, a, b = network()
    found = layer_lines(module, samples, (a, b), betas=3)
    found.save(tmp_path / "m")
    back = LayerLine.load(tmp_path / "m")
    assert back.summary() == found.summary()
    assert (back.layers, back.ends) == (found.layers, found.ends)
    for name in ("loss", "error", "barrier", "barrier_beta", "barrier_stderr", "parameters", "beta"):
        assert getattr(back, name).tobytes() == getattr(found, name).tobytes(), name
    renamed = found.renamed({"a": "FedAvg"})
    assert "loss barrier between FedAvg and b" in renamed.summary()


def test_the_figure_has_a_row_a_layer_and_the_barriers_beside_it() -> None:
    found, _ = well((1.0, 0.5), (-1.0, -0.5))
    figure = found.figure()
    first, bars, second, more, _ = figure.axes
    assert [tick.get_text() for tick in first.get_yticklabels()] == ["u", "v", "all layers"]
    for axes, losses in ((first, found.loss[0]), (second, found.loss[1])):
        assert np.array_equal(axes.images[0].get_array(), losses)
    assert first.images[0].norm is second.images[0].norm, "one scale"
    assert not bars.collections, "the loss of all samples is the same: no error"
    for axes, barriers in ((bars, found.barrier[0]), (more, found.barrier[1])):
        assert [bar.get_width() for bar in axes.patches] == barriers.tolist()
    assert bars.get_xlim() == more.get_xlim()
    assert figure.get_figwidth() == 3.5


def test_losses_that_are_not_finite_are_said_and_hatched() -> None:
    module, samples, a, b = network()
    broken = a.weights.parameters.copy()
    broken[0] = np.nan
    bad = replace(a, weights=Weights(a.weights.layout, broken, a.weights.buffers))
    found = layer_lines(module, samples, (bad, b), betas=3)
    count = int(np.count_nonzero(~np.isfinite(found.loss)))
    assert 0 < count < found.loss.size
    assert f"; {count} of {found.loss.size} losses are not finite" in found.summary()
    words = " ".join(text.get_text() for text in found.figure().texts)
    assert f"{count} of {found.loss.size} points not finite" in words.replace("\n", " ")
    assert found.numbers()


def test_a_barrier_that_is_unknown_is_not_said_to_be_none_and_an_infinite_one_is_one() -> None:
    beta = np.linspace(0, 1, 5)
    low, high, broken = [1.0, 1.0, 1.5, 1.0, 1.0], [1.0, 1.0, np.inf, 1.0, 1.0], [np.nan, 1.0, 1.0, 1.0, 1.0]

    def made(*curves: list[float], layers: str = "each") -> LayerLine:
        loss = np.array([curves, curves], float)
        found = np.array([[barrier_of(beta, curve) for curve in own] for own in loss])
        names = ("u", "v", "all layers") if layers == "each" else ("to u", "to v", "all layers")
        height, where = found[..., 0], found[..., 1]
        errors = np.full_like(height, np.nan)
        return LayerLine(("a", "b"), names, np.ones(3), beta, loss, loss, height, where, {"layers": layers}, errors)

    said = made(low, high, broken).summary()
    assert ": greatest in v, infinite at beta = 0.50 with the others at a, " in said
    assert "; all layers together unknown; 4 of 30 losses are not finite" in said
    assert ": unknown of every layer alone, all layers together 0.5 at" in made(broken, broken, low).summary()
    flat = [1.0] * 5
    assert ": no layer has one alone where it is known, all layers" in made(flat, broken, flat).summary()
    assert ": unknown; 6 of 30 losses" in made(broken, broken, broken).summary()
    assert ": grows most with u, by 0.5, of what is known, all" in made(low, broken, low, layers="cumulative").summary()
    figure = made(low, high, broken).figure()
    bars = [patch for patch in figure.axes[1].patches if patch.get_hatch()]
    assert [round(bar.get_y() + bar.get_height() / 2) for bar in bars] == [1, 2]
    assert "hatched where it is no number" in " ".join(text.get_text() for text in figure.texts).replace("\n", " ")
