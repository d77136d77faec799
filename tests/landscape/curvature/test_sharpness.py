"""The sharpness of several models as a result: its numbers, its files, its figure, and going on after Ctrl-C."""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from torch import nn

import fedscope
from fedscope.checkpoints import FedscopeError, Layout, Model, Weights
from fedscope.cli.main import run
from fedscope.evaluation.device import Compute
from fedscope.evaluation.evaluator import Evaluator
from fedscope.evaluation.samples import Samples
from fedscope.landscape import Curvature, Sharpness, SharpnessSettings, sharpness
from fedscope.landscape.curvature.derivatives import Derivatives
from fedscope.landscape.curvature.flatness import Ball, mean_rise
from fedscope.landscape.curvature.result import CurvatureMeasure, Spectrum
from fedscope.plotting.style import COLOURS, save_figure

NAMES = ["loss", "error", "gradient_norm", "sam", "worst_case", "ball_mean", "filter_mean", "filter_worst_case"]
QUICK = SharpnessSettings(top=2, probes=3, draws=3, steps=6)


@pytest.fixture
def asked(small: Any) -> tuple[nn.Module, Samples, list[Model]]:
    """Two rounds of a run, on 40 samples in float64."""
    samples = Samples(small.x, small.y, 3, "noise", "train", np.arange(40))
    run: Any = SimpleNamespace(name="ima", path=Path("runs/ima"))
    weights = [small.start, small.model(1)]
    models = [Model(f"ima@{t}", f"runs/ima@{t}", w, run, t, "global") for t, w in enumerate(weights, start=4)]
    return small.module, samples, models


def numbers(result: Sharpness) -> list[tuple[str, CurvatureMeasure]]:
    return [(model.label, one) for model, one in result.measures()]


def test_every_measure_of_every_model_is_the_one_that_its_function_gives(asked: Any) -> None:
    module, samples, models = asked
    made = sharpness(module, samples, models, QUICK)
    assert [model.label for model in made.models] == ["ima@4/global", "ima@5/global"]
    for model, addressed in zip(made.models, models, strict=True):
        assert [one.name for one in model.measures] == [
            *NAMES, "eigenvalue_1", "eigenvalue_2", "eigenvalue_min", "trace"
        ]  # fmt: skip
        value = {one.name: one for one in model.measures}
        w = addressed.weights
        derivatives = Derivatives(module, samples)
        dense = derivatives.products(w, np.eye(w.layout.size))
        spectrum = np.linalg.eigvalsh((dense + dense.T) / 2)
        assert value["eigenvalue_1"].value == pytest.approx(spectrum[-1])
        assert value["eigenvalue_2"].value == pytest.approx(spectrum[-2])
        assert value["eigenvalue_min"].value == pytest.approx(spectrum[0])
        assert value["loss"].value == pytest.approx(derivatives.gradient(w)[0])
        assert value["gradient_norm"].value == pytest.approx(np.linalg.norm(derivatives.gradient(w)[1]))
        assert value["error"].value == Evaluator(module, samples).models(w)[1][0]
        mean = mean_rise(Ball(w, 0.05), Evaluator(module, samples), draws=3)
        assert (value["ball_mean"].value, value["ball_mean"].stderr) == mean
        relative = mean_rise(Ball(w, 0.1, relative=True), Evaluator(module, samples), draws=3)
        assert (value["filter_mean"].value, value["filter_mean"].stderr) == relative
        assert value["worst_case"].value >= value["sam"].value > 0
        assert {one.radius for one in model.measures if one.name in ("sam", "worst_case", "ball_mean")} == {0.05}
        assert {one.radius for one in model.measures if one.name.startswith("filter")} == {0.1}
    assert made.attrs["samples"] == 40
    assert made.attrs["rho"] == 0.05
    assert made.attrs["addresses"] == ["runs/ima@4", "runs/ima@5"]
    assert made.attrs["parameters"] == 53


def test_seeds_decide_and_workers_do_not(asked: Any) -> None:
    one, again, other = (
        sharpness(*asked, replace(QUICK, seed=s), compute=Compute(workers=n)) for s, n in ((0, 1), (0, 3), (1, 3))
    )
    assert numbers(one) == numbers(again)
    for name in ("ball_mean", "filter_mean", "trace"):
        assert one.models[0].measure(name) != other.models[0].measure(name)


def test_one_draw_has_no_standard_error(asked: Any) -> None:
    made = sharpness(*asked, replace(QUICK, probes=1, draws=1))
    for name in ("ball_mean", "filter_mean", "trace"):
        one = made.models[0].measure(name)
        assert one is not None
        assert one.value is not None
        assert one.stderr is None


def test_without_the_hessian_there_is_none(asked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Derivatives, "products", None)
    made = sharpness(*asked, replace(QUICK, hessian=False))
    assert [one.name for one in made.models[0].measures] == NAMES


def test_an_interrupted_analysis_goes_on_and_computes_nothing_twice(
    asked: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedscope.landscape.curvature import many_models as asking

    told: list[tuple[int, int]] = []
    whole = sharpness(*asked, QUICK, progress=lambda done, of: told.append((done, of)))
    # also within long parts: four products at a time, and an ascent that ends before its last step
    assert np.diff([done for done, _ in told]).max() < 50
    told.clear()

    def stop(done: int, of: int) -> None:
        told.append((done, of))
        if len(told) == 40:
            raise KeyboardInterrupt

    partial = tmp_path / "x.partial"
    with pytest.raises(KeyboardInterrupt):
        sharpness(*asked, QUICK, progress=stop, partial=partial)
    kept = len(partial.read_text().splitlines()) - 1
    assert 2 <= kept < 18
    computed: list[str] = []
    inner = asking.measure_part
    monkeypatch.setattr(asking, "measure_part", lambda part, about: computed.append(part.name) or inner(part, about))
    told.clear()
    again = sharpness(*asked, QUICK, progress=lambda done, of: told.append((done, of)), partial=partial)
    assert numbers(again) == numbers(whole)
    assert len(computed) == 18 - kept
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert len({of for _, of in told}) == 1
    assert told[-1][0] == told[-1][1]
    # more models go on with those that are done; another radius does not
    third = replace(asked[2][0], round=9)
    computed.clear()
    sharpness(asked[0], asked[1], [*asked[2], third], QUICK, partial=partial)
    assert computed == []
    sharpness(*asked, replace(QUICK, rho=0.1), partial=partial)
    assert len(computed) == 18


def test_a_model_that_is_not_finite_is_no_number_and_the_others_are(
    asked: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, samples, models = asked
    broken = replace(models[0].weights, parameters=np.full(53, np.nan))
    made = sharpness(module, samples, [replace(models[0], weights=broken), models[1]], QUICK)
    values = {one.name: one.value for one in made.models[0].measures}
    assert values.pop("error") == 1.0
    assert all(value is not None and np.isnan(value) for value in values.values())
    assert all(one.value is not None and np.isfinite(one.value) for one in made.models[1].measures)
    made.save(tmp_path / "x")
    back = Sharpness.load(tmp_path / "x")
    assert np.isnan(back.models[0].measure("trace").value)  # type: ignore[union-attr, arg-type]
    # nor is anything asked of it but its loss
    monkeypatch.setattr(Derivatives, "gradient", None)
    monkeypatch.setattr(Derivatives, "products", None)
    again = sharpness(module, samples, [replace(models[0], weights=broken)], QUICK)
    assert repr(again.models[0].measures) == repr(made.models[0].measures)  # NaN is not NaN
    figure = back.figure()
    assert "numbers not finite (crosses)" in " ".join(text.get_text() for text in figure.texts)
    plt.close(figure)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rho": 0.0}, r"--rho 0 is not a radius about a model; give a positive number"),
        ({"rho": -1.0}, r"--rho -1 is not a radius"),
        ({"relative": float("nan")}, r"--relative nan is not a radius"),
        ({"top": 54}, r"--top 54 eigenvalues of a model of 53 parameters do not exist; give 1 to 53"),
        ({"top": 0}, r"--top 0 is too small; give 1 or more"),
        ({"probes": 0}, r"--probes 0 is too small; give 1 or more"),
        ({"draws": 0}, r"--draws 0 is too small; give 1 or more"),
        ({"density": 2}, r"--density 2 steps resolve nothing; give 3 or more"),
    ],
)
def test_settings_that_make_no_sense_are_refused(asked: Any, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(FedscopeError, match=message):
        sharpness(*asked, replace(QUICK, **wrong))


def test_models_that_cannot_be_measured_are_refused(asked: Any) -> None:
    module, samples, models = asked
    with pytest.raises(FedscopeError, match=r"no model to measure; give at least one"):
        sharpness(module, samples, [], QUICK)
    with pytest.raises(FedscopeError, match=r"ima@4/global stands for 2 of the models.*name each once"):
        sharpness(module, samples, [models[0], models[0]], QUICK)
    other = nn.Linear(6, 3)
    strange = Model("odd", "odd.pt", Weights(Layout.of(other), np.zeros(21, np.float32), {}))
    with pytest.raises(FedscopeError, match=r"odd does not fit the module: "):
        sharpness(module, samples, [strange], QUICK)


def test_a_density_needs_the_extra_before_anything_is_computed(asked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "curvlinops", None)
    told: list[int] = []
    with pytest.raises(FedscopeError, match=r"needs curvlinops; pip install 'fedscope\[hessian\]'"):
        sharpness(*asked, replace(QUICK, density=8), progress=lambda done, of: told.append(done))
    assert told == []
    sharpness(*asked, QUICK)  # the rest does without


def test_files_say_everything_and_read_back_the_same(asked: Any, tmp_path: Path) -> None:
    pytest.importorskip("curvlinops")
    made = sharpness(*asked, replace(QUICK, density=12))
    paths = made.save(tmp_path / "figures" / "run.v2")
    assert [path.name for path in paths] == ["run.v2.sharpness.csv", "run.v2.spectrum.csv", "run.v2.sharpness.json"]
    back = Sharpness.load(tmp_path / "figures" / "run.v2")
    assert numbers(back) == numbers(made)
    assert back.attrs == json.loads(json.dumps(made.attrs))
    for one, other in zip(back.models, made.models, strict=True):
        assert one.spectrum is not None
        assert other.spectrum is not None
        np.testing.assert_array_equal(one.spectrum.density, other.spectrum.density)
        np.testing.assert_array_equal(one.spectrum.eigenvalue, other.spectrum.eigenvalue)
    with paths[0].open() as file:
        rows = list(csv.DictReader(file))
    columns = ["run", "round", "model", "split", "samples", "measure", "radius", "value", "stderr", "place", "layer"]
    assert list(rows[0]) == columns
    assert (rows[0]["run"], rows[0]["round"], rows[0]["model"]) == ("ima", "4", "global")
    assert (rows[0]["split"], rows[0]["samples"], rows[0]["measure"]) == ("train", "40", "loss")
    assert (rows[0]["radius"], rows[0]["stderr"]) == ("", "")
    # a result without a density leaves none of an earlier one
    replace(made, models=tuple(replace(model, spectrum=None) for model in made.models)).save(
        tmp_path / "figures" / "run.v2"
    )
    assert not paths[1].exists()
    assert Sharpness.load(tmp_path / "figures" / "run.v2").models[0].spectrum is None


def test_what_does_not_exist_is_empty_and_never_0(tmp_path: Path) -> None:
    made = Sharpness(
        (Curvature("", None, "best", (CurvatureMeasure("eigenvalue_min", None), CurvatureMeasure("sam", 0.0, 0.05))),),
        {},
    )
    made.save(tmp_path / "x")
    assert (tmp_path / "x.sharpness.csv").read_text().splitlines()[1:] == [
        ",,best,,,eigenvalue_min,,,,,",
        ",,best,,,sam,0.05,0.0,,,",
    ]
    assert Sharpness.load(tmp_path / "x").models == made.models or numbers(Sharpness.load(tmp_path / "x")) == numbers(
        made
    )


# --- the figure ---


def curvature(
    run: str, round_: int | None, model: str = "global", spectrum: bool = False, **values: float
) -> Curvature:
    grid = np.linspace(-1, 4, 50)
    return Curvature(
        run,
        round_,
        model,
        tuple(CurvatureMeasure(name, value, 0.05, abs(value) / 10) for name, value in values.items()),
        Spectrum(grid, np.exp(-8 * grid**2)) if spectrum else None,
    )


ATTRS: dict[str, Any] = {"data": "digits", "split": "train", "samples": 1437, "density": 20, "parameters": 1000}


def test_several_rounds_are_lines_a_colour_a_run(tmp_path: Path) -> None:
    models = [
        curvature(
            run, t, "averaged" if run == "ima" else "global", eigenvalue_1=t * scale, trace=10.0 * t, ball_mean=1e-6 * t
        )
        for run, scale in (("fma", 1.0), ("ima", 0.5))
        for t in (3, 1, 2)
    ]
    made = Sharpness(tuple(models), ATTRS)
    figure = made.figure(3.5)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["largest eigenvalue", "trace", "mean rise"]
    (line, *_) = figure.axes[0].lines
    assert line.get_xdata().tolist() == [1, 2, 3]  # type: ignore[union-attr]
    assert line.get_ydata().tolist() == [1, 2, 3]  # type: ignore[union-attr]
    assert [axes.get_ylabel() for axes in figure.axes] == ["nats/$w^2$", "nats/$w^2$", "$10^{-6}$ nats"]
    assert figure.axes[2].lines[0].get_ydata().tolist() == [1, 2, 3]  # type: ignore[union-attr]
    # bars where they are standard errors, and not on eigenvalues
    assert len(figure.axes[0].collections[0].get_paths()[0].vertices) == 2  # type: ignore[attr-defined]
    assert np.isnan(figure.axes[0].collections[0].get_paths()[0].vertices).any()  # type: ignore[attr-defined]
    assert not np.isnan(figure.axes[1].collections[0].get_paths()[0].vertices).any()  # type: ignore[attr-defined]
    assert figure.axes[0].get_ylim()[0] == 0
    assert figure.axes[0].get_ylim()[1] >= 1.08 * 3, "the highest marker is whole"
    bar = figure.axes[2].collections[0].get_paths()[0].vertices  # type: ignore[attr-defined]
    assert bar[:, 1].tolist() == pytest.approx([0.9, 1.1])
    said = " ".join(text.get_text() for text in figure.texts)
    assert "fma ima" in said
    assert "1,437 samples" in said
    assert "$w$: unit of weight; " in said
    assert "squares: averaged models" in said
    marks = {
        line.get_marker() for line in figure.axes[0].lines if line.get_color() == COLOURS[1] and line.get_xdata().size
    }  # type: ignore[union-attr]
    assert marks == {"None", "s"}
    one, other = (save_figure(made.figure(3.5), tmp_path / name)[1].read_bytes() for name in "ab")
    assert one == other
    plt.close(figure)


def test_single_models_are_rows_and_a_density_is_logarithmic() -> None:
    models = (
        curvature("fma", 60, eigenvalue_1=3.0, trace=18.0, ball_mean=3e-6, spectrum=True),
        curvature("", None, "best", eigenvalue_1=2.0, trace=float("nan")),
    )
    figure = Sharpness(models, ATTRS).figure(3.5, "a title")
    first, second, rise, density = figure.axes
    assert [axes.get_xlabel() for axes in figure.axes] == [
        *("nats/$w^2$", "nats/$w^2$", "$10^{-6}$ nats", "eigenvalue of the Hessian (nats/$w^2$)")
    ]
    (point, *_) = rise.containers[0]
    assert (point.get_xdata(), point.get_ydata()) == (pytest.approx([3]), [0]), "in that unit"
    assert [label.get_text() for label in first.get_yticklabels()] == ["fma@60/global", "best"]
    assert [label.get_text() for label in second.get_yticklabels()] == ["", ""]
    assert density.get_yscale() == "log"
    assert density.get_title(loc="left") == "spectral density ($w^2$/nat), log scale"
    assert len(density.lines) == 1
    assert figure.get_figwidth() == 3.5
    plt.close(figure)


def test_a_measure_of_nothing_is_no_figure() -> None:
    with pytest.raises(FedscopeError, match=r"no measure to draw; compute it again with --force"):
        Sharpness((Curvature("a", 1, "global", ()),), {}).figure()


class Headed(nn.Module):
    """A body, a head, and a layer that nothing uses."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head, self.unused = nn.Linear(6, 3), nn.Linear(3, 4), nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(torch.tanh(self.body(x)))
        return out


def block(net: nn.Module, x: torch.Tensor, y: torch.Tensor, names: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Hessian and gradient in the named parameters alone, by autograd in float64."""
    fixed = {name: value.detach().double() for name, value in net.named_parameters()}
    flat = torch.cat([fixed[name].flatten() for name in names])

    def loss(v: torch.Tensor) -> torch.Tensor:
        parts = zip(names, v.split([fixed[name].numel() for name in names]), strict=True)
        moved = {name: part.view_as(fixed[name]) for name, part in parts}
        out = torch.func.functional_call(net, {**fixed, **moved}, (x.double(),))
        return nn.functional.cross_entropy(out, y)

    hessian = torch.autograd.functional.hessian(loss, flat).numpy()
    return hessian, torch.autograd.functional.jacobian(loss, flat).numpy()


@pytest.mark.parametrize("frozen", [[], ["body"], ["head", "unused"], ["body", "head", "unused"]], ids=str)
@pytest.mark.parametrize("counted", [False, True])
def test_measures_are_over_the_trained_parameters_or_on_request_over_all(frozen: list[str], counted: bool) -> None:
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(50, 6, generator=draw), torch.randint(0, 4, (50,), generator=draw)
    torch.manual_seed(0)
    net = Headed()
    for name in frozen:
        net.get_submodule(name).requires_grad_(False)
    every = [name for name, _ in net.named_parameters()]
    trained = [name for name, value in net.named_parameters() if value.requires_grad]
    names = every if counted or not trained else trained  # a module that marks none says nothing
    hessian, gradient = block(net, x, y, names)
    spectrum = np.linalg.eigvalsh(hessian)
    made = fedscope.sharpness(net, data=(x, y), frozen=counted, top=2, probes=100, draws=60)
    value = {one.name: one for one in made.models[0].measures}
    # of a small matrix the dense eigenvalues, from products in single precision
    assert value["eigenvalue_1"].value == pytest.approx(spectrum[-1], rel=1e-4)
    assert value["eigenvalue_min"].value == pytest.approx(spectrum[0], abs=1e-5 * spectrum[-1])
    assert value["gradient_norm"].value == pytest.approx(np.linalg.norm(gradient), rel=1e-5)
    trace = value["trace"]
    assert trace.value is not None
    assert trace.stderr is not None
    assert abs(trace.value - np.trace(hessian)) < 5 * trace.stderr + 1e-5
    mean = value["ball_mean"]
    assert mean.value is not None
    assert mean.stderr is not None
    # a ball of radius 0.05 in as many dimensions as are moved; a few per cent of it are of higher orders
    expected = 0.05**2 * np.trace(hessian) / (2 * (len(hessian) + 2))
    assert abs(mean.value - expected) < 5 * mean.stderr + 0.03 * expected
    assert made.attrs["parameters"] == len(hessian)
    words = made.summary()
    if 0 < len(frozen) < 3:
        assert ("frozen ones too" if counted else "without the") in words
        assert made.attrs["frozen"] == ("counted" if counted else "left out")
    elif frozen:
        assert "marks none as trained" in words
    else:
        assert "frozen" not in words
        assert "frozen" not in made.attrs


def test_frozen_filters_do_not_move_in_the_relative_ball() -> None:
    layout = Layout.of(Headed())
    w = Weights(layout, np.random.default_rng(0).normal(size=layout.size), {})
    moved = np.zeros(layout.size, dtype=bool)
    moved[layout.slices["head.weight"]] = True
    ball = Ball(w, 0.1, relative=True, moved=moved)
    assert ball.scale[moved].all()
    assert not ball.scale[~moved].any()
    assert not (ball.at(np.ones(layout.size)) != w.parameters)[~moved].any()


def test_a_result_over_other_parameters_is_another_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("half_frozen.py").write_text(
        "from torch import nn\n"
        "def net():\n"
        "    made = nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.Linear(4, 10))\n"
        "    made[1].requires_grad_(False)\n"
        "    return made\n"
    )
    torch.save(nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.Linear(4, 10)).state_dict(), "a.pt")
    words = ["sharpness", "a.pt", "--model", "half_frozen:net", "--data", "digits", "--limit", "40", "--no-hessian"]
    words += ["--draws", "2", "--out", "sharp"]
    assert run([*words]) == 0
    said = capsys.readouterr().out
    assert "all over the 50 parameters that are trained, without the 260 frozen ones (--frozen counts them)" in said
    assert run([*words, "--frozen"]) == 2
    assert "frozen parameters counted otherwise (--frozen)" in capsys.readouterr().err
    assert run([*words, "--frozen", "--force"]) == 0
    assert "all over every parameter, the 260 frozen ones too" in capsys.readouterr().out


def test_what_is_unknown_is_said_in_words() -> None:
    """Without empty radii, and without nan."""
    names = ("worst_case", "ball_mean", "filter_mean", "filter_worst_case", "eigenvalue_1", "eigenvalue_min", "trace")
    broken = Curvature("a", 1, "global", tuple(CurvatureMeasure(name, np.nan) for name in ("loss", *names)))
    assert broken.sentence() == "a@1/global: its loss is not finite, so nothing is known about it"
    some = (CurvatureMeasure("loss", 0.5), *(CurvatureMeasure(name, np.nan) for name in names))
    assert Curvature("a", 1, "global", some).sentence() == (
        "a@1/global: loss 0.5; eigenvalues unknown to unknown, trace unknown; how it rises about the model is unknown"
    )
    known = (
        *(CurvatureMeasure("loss", 0.5), CurvatureMeasure("worst_case", np.nan)),
        *(CurvatureMeasure("ball_mean", 0.25, 0.05, 0.01), CurvatureMeasure("filter_worst_case", None)),
    )
    made = Curvature("a", 1, "global", known)
    assert made.sentence() == (
        "a@1/global: loss 0.5; within 0.05 it rises by unknown at worst and 0.25 ± 0.01 on average, and relative to "
        "the filters that is unknown"
    )
    about = "± one standard error over the random directions drawn"
    assert Sharpness((made,)).summary() == f"{made.sentence()}\n{about}"
    assert Sharpness((broken,)).summary() == broken.sentence()
    # means over clients say that theirs is over clients
    places = (replace(made, place="all"), *(replace(made, place=f"client-{k}") for k in (1, 2)))
    told = Sharpness(places).summary()
    assert "the data of each of 2 clients (mean ± standard error over clients): " in told
    assert "mean rise 0.25 against 0.25 ± 0 (distance" in told
    assert told.endswith(f"\nother {about}")
    layers = [replace(made, layer=name, parameters=5, measures=some) for name in ("u", "v", "all layers")]
    assert "nan" not in Sharpness(tuple(layers)).summary()
