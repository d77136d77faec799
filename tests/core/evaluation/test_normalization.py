"""BatchNorm statistics: models, mean, surface, lines and what is said of them are of one policy.

The reference is a loop in plain torch, in float64: its own forward pass, its own statistics.
"""

from __future__ import annotations

import copy
import csv
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from random_models import random_samples
from torch import Tensor, nn

from fedscope.analysis.settings import EvaluationConfig
from fedscope.checkpoints import (
    FedscopeError,
    Layout,
    Model,
    RoundRecord,
    RunWriter,
    Weights,
    load_model,
    mean,
    stack,
)
from fedscope.cli.main import run
from fedscope.evaluation.device import Compute
from fedscope.evaluation.normalization import Normalization, re_estimate
from fedscope.evaluation.resumable import statistics_identity
from fedscope.evaluation.samples import Samples
from fedscope.landscape import (
    Line,
    Plane,
    PlaneBasis,
    Planes,
    along_trajectory,
    barrier_of,
    basin_of,
    draw_connectivity,
    draw_panels,
    line,
    near_clients,
    random_directions,
    survey,
    through_models,
)
from fedscope.training import load_data
from fedscope.training.inputs.statistics import statistics_settings

POLICIES = ("interpolate", "re-estimate", "keep")
Statistics = dict[str, Tensor]


def samples_of(n: int, seed: int, split: str = "test") -> Samples:
    return random_samples(n, (6,), seed=seed, split=split, scale=2.0)


def network(inputs: int = 6, classes: int = 3) -> nn.Module:
    return nn.Sequential(
        *(nn.Flatten(), nn.Linear(inputs, 7), nn.BatchNorm1d(7), nn.Tanh()),
        *(nn.Linear(7, 5), nn.BatchNorm1d(5), nn.Linear(5, classes)),
    )


DATA, CALIBRATION = samples_of(90, 1), samples_of(1201, 2, "train")


def state_of(w: Weights) -> Statistics:
    return {name: torch.from_numpy(np.array(value)).double() for name, value in w.arrays().items()}


def forward(state: Statistics, x: Tensor, measured: Statistics | None = None) -> Tensor:
    """Outputs; with ``measured``, normalised by the batch's own statistics, which are put there."""
    x = x.flatten(1).double()
    for linear, norm in (("1", "2"), ("4", "5"), ("6", None)):
        x = x @ state[f"{linear}.weight"].T + state[f"{linear}.bias"]
        if norm is None:
            return x
        centre, spread = state[f"{norm}.running_mean"], state[f"{norm}.running_var"]
        if measured is not None:
            centre, spread = x.mean(0), ((x - x.mean(0)) ** 2).mean(0)
            measured[f"{norm}.running_mean"] = centre
            measured[f"{norm}.running_var"] = spread * len(x) / (len(x) - 1)
        x = (x - centre) / torch.sqrt(spread + 1e-5) * state[f"{norm}.weight"] + state[f"{norm}.bias"]
        x = torch.tanh(x) if norm == "2" else x
    return x


def re_estimated(state: Statistics, calibration: Samples) -> Statistics:
    """The state with the mean over random batches of 500 or a little fewer of what each batch has."""
    count = -(-len(calibration) // 500)
    order = np.random.default_rng(0).permutation(len(calibration)) if count > 1 else np.arange(len(calibration))
    every: list[Statistics] = []
    for batch in np.array_split(order, count):
        every.append({})
        forward(state, calibration.x[torch.from_numpy(batch)], every[-1])
    return {**state, **{name: sum(one[name] for one in every) / count for name in every[0]}}  # type: ignore[dict-item]


def directly(
    w: Weights, policy: str, kept: Weights, data: Samples = DATA, calibration: Samples = CALIBRATION
) -> tuple[float, float]:
    """Loss and error of a model whose statistics are its own, re-estimated, or those of ``kept``."""
    state = state_of(w)
    if policy == "re-estimate":
        state = re_estimated(state, calibration)
    if policy == "keep":
        state |= {name: value for name, value in state_of(kept).items() if "running" in name}
    outputs = forward(state, data.x)
    wrong = float((outputs.argmax(1) != data.y).double().mean())
    return float(nn.functional.cross_entropy(outputs, data.y)), wrong


def model(name: str, vector: np.ndarray, layout: Layout, seed: int) -> Model:
    draw = np.random.default_rng(seed)
    buffers = {e.name: np.abs(1 + draw.standard_normal(e.shape)).astype(e.dtype) for e in layout.buffers}
    return Model(name, f"{name}.pt", Weights(layout, vector.astype(np.float32), buffers))


@pytest.fixture(scope="module")
def models() -> list[Model]:
    """Three models whose mean lies on a grid of 3 x 4 points with them, and two more."""
    layout = Layout.of(network())
    w = 0.7 * np.random.default_rng(1).standard_normal((5, layout.size))
    w[2] -= (w[2] - w[0]) @ (w[1] - w[0]) / ((w[1] - w[0]) @ (w[1] - w[0])) * (w[1] - w[0])
    w[2] += (w[1] - w[0]) / 2
    return [model(name, vector, layout, seed) for seed, (name, vector) in enumerate(zip("abcde", w, strict=True))]


@pytest.mark.parametrize("policy", POLICIES)
def test_models_mean_and_surface_of_a_plane_are_of_one_policy(policy: str, models: list[Model], tmp_path: Path) -> None:
    """The wrong lines: models with their own statistics under re-estimate or keep, the mean with the anchors' mean
    ones, shown models forgotten, two columns exchanged."""
    anchors, shown = models[:3], models[3:4]
    span = through_models(anchors)
    places = [place[:2] for place in span.places(anchors)]
    wide, high = places[1][0], places[2][1]
    options = {"ranges": ((0.0, wide), (0.0, high)), "grid": (3, 4), "normalization": policy}
    made = survey(network(), [DATA], span, shown=shown, calibration=CALIBRATION, **options)[0]  # type: ignore[arg-type]
    weights = [one.weights for one in anchors]
    weights += [mean(stack(weights)), shown[0].weights]
    for found, w in zip(made.models, weights, strict=True):
        loss, error = directly(w, policy, weights[0])
        assert (found.loss, found.error) == (pytest.approx(loss, rel=1e-5), error)
        own_loss, own_error = directly(w, "interpolate", weights[0])
        assert (found.own_loss, found.own_error) == (pytest.approx(own_loss, rel=1e-5), own_error)
    # the grid has a point where each of the three and their mean lies; mid-way of a side for the third
    for found, (row, column) in zip(made.models, [(0, 0), (0, 2), (3, 1), (1, 1)], strict=False):
        assert (made.a[column], made.b[row]) == pytest.approx((found.a, found.b), abs=1e-5 * wide)
        assert made.loss[row, column] == pytest.approx(found.loss, rel=1e-4)
        assert made.error[row, column] == pytest.approx(found.error, abs=1.01 / len(DATA))
    basin = basin_of(made)
    assert basin is not None
    assert basin.loss <= min(one.loss for one in made.models[:4])  # like is compared with like
    assert [one.excess_loss for one in basin.models] == [one.loss - basin.loss for one in made.models]
    differs = any(one.loss != one.own_loss for one in made.models)
    assert differs == (policy != "interpolate")
    effects = made.attrs.get("normalization_effect")
    assert effects == ([one.loss - one.own_loss for one in made.models[:4]] if differs else None)
    made.save(tmp_path / "plane.nc")
    again = Plane.load(tmp_path / "plane.nc")
    assert repr(again.models) == repr(made.models)
    assert again.attrs == made.attrs
    basin.save(tmp_path / "basin.csv")
    with (tmp_path / "basin.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["loss"]) for row in rows] == [basin.loss, *(one.loss for one in made.models)]
    assert [row["own_loss"] for row in rows] == ["", *(repr(one.own_loss) for one in made.models)]
    said_of_one_policy(made)


def along(kind: str, models: Sequence[Model]) -> tuple[PlaneBasis, Weights]:
    """A plane along directions, and the model whose statistics ``keep`` takes: its origin."""
    if kind == "clients":
        return near_clients(models), mean(stack([one.weights for one in models]))
    if kind == "trajectory":
        return along_trajectory(models), models[-1].weights
    return random_directions(models[0]), models[0].weights


@pytest.mark.parametrize("kind", ["clients", "trajectory", "random"])
@pytest.mark.parametrize("policy", POLICIES)
def test_planes_along_directions_are_of_one_policy(kind: str, policy: str, models: list[Model]) -> None:
    span, origin = along(kind, models[:4])
    made = survey(
        *(network(), [DATA], span),
        **{"shown": models[4:], "grid": 3, "normalization": policy, "calibration": CALIBRATION},
        ranges=((-1.0, 1.0), (-1.0, 1.0)),
    )[0]
    # directions have no statistics that could be combined
    of = "keep" if policy == "interpolate" else policy
    assert made.normalization_policy == of
    weights = [one.weights for one, _ in span.members] + [models[4].weights]
    for found, w in zip(made.models, weights, strict=True):
        assert (found.loss, found.error) == (pytest.approx(directly(w, of, origin)[0], rel=1e-5), found.error)
        assert found.own_loss == pytest.approx(directly(w, "interpolate", origin)[0], rel=1e-5)
    # the origin is the middle of the grid
    at = len(span.members) - 1
    assert made.loss[1, 1] == pytest.approx(made.models[at].loss, rel=1e-5)
    assert made.attrs["normalization_effect"] == [made.models[at].loss - made.models[at].own_loss]
    said_of_one_policy(made)


@pytest.mark.parametrize("policy", POLICIES)
def test_curves_ends_and_barriers_of_lines_are_of_one_policy(policy: str, models: list[Model], tmp_path: Path) -> None:
    a, b, c = models[:3]
    made = line(network(), DATA, [(a, b), (c, a)], betas=5, normalization=policy, calibration=CALIBRATION)
    for i, (one, other) in enumerate([(a, b), (c, a)]):
        for beta, loss, error in zip(made.beta, made.loss[i], made.error[i], strict=True):
            points = [(share, m.weights) for share, m in ((beta, one), (1 - beta, other))]
            vector = sum(share * w.parameters.astype(np.float64) for share, w in points)
            buffers = {
                name: np.asarray(sum(share * w.buffers[name].astype(np.float64) for share, w in points))
                for name in one.weights.buffers
            }
            buffers = {key: v.clip(min=0) if key.endswith("running_var") else v for key, v in buffers.items()}
            w = Weights(a.weights.layout, vector.astype(np.float32), buffers)
            assert loss == pytest.approx(directly(w, policy, one.weights)[0], rel=1e-5)
            assert error == pytest.approx(directly(w, policy, one.weights)[1], abs=1.01 / len(DATA))
        own = [directly(m.weights, "interpolate", one.weights) for m in (one, other)]
        np.testing.assert_allclose(made.own_loss[i], [loss for loss, _ in own], rtol=1e-5)
        np.testing.assert_array_equal(made.own_error[i], [error for _, error in own])
        assert (made.barrier[i], made.barrier_beta[i]) == barrier_of(made.beta, made.loss[i])
    made.save(tmp_path / "line.nc")
    again = Line.load(tmp_path / "line.nc")
    for name in ("own_loss", "own_error", "loss"):
        np.testing.assert_array_equal(getattr(again, name), getattr(made, name))


def test_lower_precision_is_compared_under_the_policy(models: list[Model]) -> None:
    options = {"grid": 2, "normalization": "re-estimate", "calibration": CALIBRATION}
    exact, rough = (
        survey(network(), [DATA], through_models(models[:3]), compute=Compute(precision=precision), **options)[0]
        for precision in ("float32", "bf16")
    )
    gap = max(abs(x.loss - y.loss) for x, y in zip(exact.models, rough.models, strict=True))
    assert rough.attrs["precision_error"] == gap > 0
    assert "precision_error" not in exact.attrs


def test_a_file_of_two_policies_is_refused(models: list[Model], tmp_path: Path) -> None:
    """As fedscope wrote them before: models with their own statistics on a surface with others."""
    import h5py

    made = survey(network(), [DATA], through_models(models[:3]), grid=2, normalization="keep")[0]
    made.save(tmp_path / "plane.nc")
    drawn = line(network(), DATA, [(models[0], models[1])], betas=3, normalization="keep")
    drawn.save(tmp_path / "line.nc")
    for name, kind in (("plane", Plane), ("line", Line)):
        with h5py.File(tmp_path / f"{name}.nc", "a") as file:
            for key in [key for key in file if "own_" in key]:
                del file[key]
        with pytest.raises(
            FedscopeError, match=rf"{name}\.nc lacks .*own_loss, .*own_error; compute the {name} again with --force"
        ):
            kind.load(tmp_path / f"{name}.nc")


def said_of_one_policy(plane: Plane) -> None:
    """The sentence has the policy's numbers, then the models' own beside them where they are others."""
    words, *own = re.split(r"; normalization statistics (?:re-estimated on|of|interpolated)", plane.summary())
    assert len(own) == 1, "said once"
    least = basin_of(plane)
    assert least is None or f"from the minimum of the plane (loss {least.loss:.3g}" in words
    for text, loss in ((words, "loss"), (own[0], "own_loss")):
        values = {id(one): getattr(one, loss) for one in plane.models}
        if text == own[0] and all(one.loss == one.own_loss for one in plane.models):
            assert "the models' own" not in text
        elif plane.mean is not None:
            best = min(values[id(one)] for one in plane.anchors)
            assert f"the mean has loss {values[id(plane.mean)]:.3g} and" in text
            assert re.search(
                rf"the one of the (three|4 clients) with the lowest loss {re.escape(f'{best:.3g}')} and", text
            )
        elif plane.path:
            assert f"from {plane.path[0].label} (loss {values[id(plane.path[0])]:.3g}," in text
            assert f"to {plane.path[-1].label} ({values[id(plane.path[-1])]:.3g}," in text
        else:
            assert f"has loss {values[id(plane.models[0])]:.3g} and" in text


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A round of another program: three clients near one another whose statistics differ; nothing is drawn."""
    monkeypatch.setattr("fedscope.plotting.style.save_figure", lambda *given: ())
    monkeypatch.setattr(Planes, "figure", lambda *given, **drawing: None)
    monkeypatch.setattr(Line, "figure", lambda *given: None)
    monkeypatch.setattr(Planes, "pages", lambda *given, **drawing: {})
    (tmp_path / "normalised_nets.py").write_text(
        "from torch import nn\n\n\ndef net():\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 7), "
        "nn.BatchNorm1d(7), nn.Tanh(), nn.Linear(7, 5), nn.BatchNorm1d(5), nn.Linear(5, 10))\n"
    )
    layout = Layout.of(network(64, 10))
    draw = np.random.default_rng(0)
    start, ids = 0.3 * draw.standard_normal(layout.size), np.arange(3)
    own = [model("", start + 0.2 * draw.standard_normal(layout.size), layout, k).weights for k in range(3)]
    clients = stack(own)
    with RunWriter.create(tmp_path / "run", {"source": "us", "layout": layout.to_json()}, None, None) as writer:
        writer.write(
            RoundRecord(1, None, clients, mean(clients), None, ids, ids + 5, ids + 1, ids / 1.0, np.full(3, 1 / 3))
        )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_commands_print_and_write_one_policy(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A panel of --rounds and a line, measured on 200 samples, the statistics on other 200."""
    words = ["--model", "normalised_nets:net", "--data", "digits", "--limit", "200", "--normalization", "re-estimate"]
    clients = [f"run@1/client-{k}" for k in range(3)]
    models = [load_model(address).weights for address in clients]
    digits = load_data("digits")
    data = [digits.samples(split).limit(200) for split in ("test", "train")]
    expected, own = (
        [directly(w, policy, models[0], *data) for w in (*models, mean(stack(models)))]
        for policy in ("re-estimate", "interpolate")
    )
    assert run(["plane", "run", "--rounds", "1", *words, "--grid", "3", "--out", "x", "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)["panels"]
    assert (told["normalization_policy"], told["calibration_samples"]) == ("re-estimate", 200)
    for found, (loss, error), (own_loss, own_error) in zip(told["models"], expected, own, strict=True):
        assert (found["loss"], found["own_loss"]) == pytest.approx((loss, own_loss), rel=1e-5)
        assert (found["error"], found["own_error"]) == (error, own_error)
    assert run(["line", *clients[:2], *words, "--points", "3", "--out", "line"]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    change = sorted(loss - mine for (loss, _), (mine, _) in zip(expected[:2], own[:2], strict=True))
    assert first.endswith(
        "; normalization statistics re-estimated on 200 train samples, which change the loss of the ends by "
        f"{change[0]:+.2g} to {change[1]:+.2g}"
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_figures_say_whose_statistics_they_show(policy: str, models: list[Model]) -> None:
    options = {"normalization": policy, "calibration": CALIBRATION}
    planes = [
        survey(network(), [DATA], through_models(three), grid=2, **options)[0] for three in (models[:3], models[1:4])
    ]
    pairs = [(models[0], models[1]), (models[1], models[2]), (models[0], models[2])]
    drawn = line(network(), DATA, pairs, betas=3, **options)
    told = {
        "re-estimate": ["re-estimated on 1,201 train samples"] * 4,
        "keep": ["of a", "of one model a plane", *["of the model at beta = 1"] * 2],
        "interpolate": ["interpolated"] * 4,
    }[policy]
    figures = planes[0].figure(), draw_panels(planes, ["one", "other"]), drawn.figure(), draw_connectivity(drawn)
    for figure, words in zip(figures, told, strict=True):
        said = " ".join(text.get_text() for text in figure.texts)
        assert f"normalization statistics {words}" in said
    assert f"normalization statistics {told[0]}" in planes[0].page()


@pytest.mark.parametrize("images", [False, True])
def test_re_estimated_statistics_are_of_all_classes_whatever_the_order_of_samples(images: bool) -> None:
    """Of data in the order of classes, as folders have them, each batch had the variance within a class."""
    draw, classes = np.random.default_rng(0), 10
    labels = np.sort(draw.integers(0, classes, 4000))
    shape = (classes, 2, 2) if images else (classes,)
    noise = draw.standard_normal((4000, *shape))
    x = torch.tensor(noise + 6 * np.eye(classes)[labels].reshape(4000, classes, *[1] * (len(shape) - 1))).float()
    x = x.contiguous(memory_format=torch.channels_last) if images else x
    kind = nn.BatchNorm2d if images else nn.BatchNorm1d
    layers = nn.Sequential(kind(classes), nn.Tanh(), kind(classes)).eval()
    found = []
    for given in (x, x[torch.randperm(4000, generator=torch.Generator().manual_seed(1))]):
        net = copy.deepcopy(layers)
        re_estimate(net, given)
        found.append(net)
    over = (0, 2, 3) if images else 0
    for net in found:  # the first layer's inputs do not depend on statistics: they are those of all samples
        torch.testing.assert_close(net[0].running_mean, x.mean(over), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(net[0].running_var, x.var(over), rtol=0.02, atol=0.0)
        assert net[0].momentum == layers[0].momentum
        assert not net[0].training
    torch.testing.assert_close(found[0][2].running_var, found[1][2].running_var, rtol=0.03, atol=0.0)


def test_one_batch_is_taken_as_it_is_and_several_are_another_question() -> None:
    """Stored results of several batches in the order of the file are not mixed with these."""
    x = torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
    net = nn.Sequential(nn.BatchNorm1d(3)).eval()
    re_estimate(net, x)
    expected = nn.BatchNorm1d(3, momentum=None)
    expected(x)
    for name, values in net[0].state_dict().items():
        assert torch.equal(values, expected.state_dict()[name])
    for samples, several in ((CALIBRATION.limit(500), False), (CALIBRATION, True)):
        policy = Normalization("re-estimate", samples.x, samples)
        assert ("calibration_batches" in statistics_identity(policy)) == several
        source = EvaluationConfig.of("test", {"limit": len(samples)})
        data = load_data("digits")
        assert ("calibration_batches" in statistics_settings(source, "re-estimate", net, data)) == several
        assert "calibration_batches" not in statistics_settings(source, "re-estimate", nn.Linear(3, 2), data)
        few = replace(data, x_train=data.x_train[:300], y_train=data.y_train[:300])
        assert "calibration_batches" not in statistics_settings(source, "re-estimate", net, few)
    assert statistics_settings(source, "averaged", net, data) == {}
