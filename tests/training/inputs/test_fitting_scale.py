"""Models on samples in another scale than they were trained in, where nobody said the scale: refused, or warned of."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedscope
from fedscope.checkpoints import FedscopeError, FedscopeWarning
from fedscope.evaluation.evaluator import Evaluator
from fedscope.training.inputs import fitting_scale

CLASSES, FEATURES = 3, 6
Arrays = dict[str, np.ndarray]


def drawn(seed: int = 0) -> Arrays:
    """Samples whose scale matters: means far from 0, and features of no use that are larger than the others."""
    draw = np.random.default_rng(seed)
    y = draw.integers(0, CLASSES, 500)
    x = draw.normal(size=(500, FEATURES)) + 1.5 * np.eye(CLASSES, FEATURES)[y]
    x = (x * np.geomspace(1, 40, FEATURES) + np.linspace(2, 60, FEATURES)).astype(np.float32)
    return {"x_train": x[:200], "y_train": y[:200], "x_test": x[200:], "y_test": y[200:]}


def standardised(arrays: Arrays) -> Arrays:
    mean, deviation = arrays["x_train"].mean(0), arrays["x_train"].std(0)
    return {**arrays, **{name: (arrays[name] - mean) / deviation for name in ("x_train", "x_test")}}


def net() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(FEATURES, 2 * CLASSES), nn.ReLU(), nn.Linear(2 * CLASSES, CLASSES))


def fitted(arrays: Arrays, rows: slice = slice(None), *, raw: bool = True) -> nn.Module:
    """A classifier by the nearest centre of some standardised training samples, z_k = c_k x - |c_k|² / 2, as
    relu(z) - relu(-z); ``raw``: the same, of samples as they are."""
    x, y = standardised(arrays)["x_train"][rows], arrays["y_train"][rows]
    c = np.stack([x[y == k].mean(0) for k in range(CLASSES)])
    b = -(c**2).sum(1) / 2
    if raw:
        c = c / arrays["x_train"].std(0)
        b = b - c @ arrays["x_train"].mean(0)
    out = np.concatenate([np.eye(CLASSES), -np.eye(CLASSES)], axis=1)
    made = {"1.weight": np.r_[c, -c], "1.bias": np.r_[b, -b], "3.weight": out, "3.bias": np.zeros(CLASSES)}
    module = net()
    module.load_state_dict({name: torch.tensor(values, dtype=torch.float32) for name, values in made.items()})
    return module


def error(module: nn.Module, arrays: Arrays) -> float:
    with torch.no_grad():
        found = module(torch.tensor(arrays["x_test"])).argmax(1).numpy()
    return float((found != arrays["y_test"]).mean())


#: each takes files, and data by name
QUESTIONS: dict[str, Callable[..., Any]] = {
    "line": lambda files, **how: fedscope.line(files[:2], points=3, **how),
    "plane": lambda files, **how: fedscope.plane(files, grid=3, **how),
    "sharpness": lambda files, **how: fedscope.sharpness(files, draws=1, top=1, probes=1, **how),
    "cka": lambda files, **how: fedscope.cka(files, **how),
    "align": lambda files, **how: fedscope.align(files, **how),
    "wima": lambda files, **how: fedscope.wima(files[0].parent, **how),
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FedscopeWarning)
        yield tmp_path


def saved(arrays: Arrays, *, raw: bool = True) -> list[Path]:
    """Three models, each of other training samples."""
    Path("models").mkdir(exist_ok=True)
    files = [Path("models", f"m{k}.pt").absolute() for k in range(3)]
    for k, file in enumerate(files):
        torch.save(fitted(arrays, slice(k, None, 3), raw=raw).state_dict(), file)
    return files


@pytest.mark.parametrize("name", QUESTIONS)
def test_models_of_samples_as_they_are_are_not_measured_on_standardised_ones(here: Path, name: str) -> None:
    raw = drawn()
    np.savez("d.npz", **raw)
    files, how = saved(raw), {"model": net, "data": "npz:d.npz"}
    with pytest.raises(FedscopeError, match=r"as they are, and of .* give standardise=False, or"):
        QUESTIONS[name](files, **how)
    for said in (True, False):
        QUESTIONS[name](files, standardise=said, **how)


def test_the_sentence_has_both_errors(here: Path) -> None:
    raw = drawn()
    np.savez("d.npz", **raw)
    files = saved(raw)
    module = fitted(raw, slice(0, None, 3))
    own, other = (100 * error(module, one) for one in (raw, standardised(raw)))
    with pytest.raises(FedscopeError) as caught:
        fedscope.line(files[:2], model=net, data="npz:d.npz", points=3)
    assert f"m0.pt has an error of {own:.3g} % on 300 samples of npz:" in str(caught.value)
    assert f"and of {other:.3g} % on the same standardised" in str(caught.value)


@pytest.mark.parametrize("name", QUESTIONS)
def test_models_of_standardised_samples_are_measured_without_a_word(here: Path, name: str) -> None:
    raw = drawn()
    np.savez("d.npz", **raw)
    QUESTIONS[name](saved(raw, raw=False), model=net, data="npz:d.npz")


def test_the_last_model_is_asked_too(here: Path) -> None:
    raw = drawn()
    np.savez("d.npz", **raw)
    torch.manual_seed(0)
    untrained, module = net(), fitted(raw)
    with pytest.raises(FedscopeError, match="Sequential 2 has an error of"):
        fedscope.line([untrained, module], data="npz:d.npz", points=3)


def test_of_samples_as_they_are_it_is_a_warning(here: Path) -> None:
    raw = drawn()
    data = ((raw["x_train"], raw["y_train"]), (raw["x_test"], raw["y_test"]))
    of_others = [fitted(raw, slice(k, None, 2), raw=False) for k in range(2)]
    own, other = (100 * error(of_others[0], one) for one in (raw, standardised(raw)))
    assert other < own - 30
    words = f"an error of {own:.3g} % on 300 samples of arrays as they are, .* and of {other:.3g} % on the same"
    with pytest.warns(FedscopeWarning, match=words) as caught:
        found = fedscope.line(of_others, data=data, points=3)
    assert len(caught) == 1
    assert np.isclose(found.error, own / 100).any()
    for how in ({"standardise": True}, {"standardise": False}, {"accept_data": True}):
        fedscope.line(of_others, data=data, points=3, **how)
    fedscope.line([fitted(raw, slice(k, None, 2)) for k in range(2)], data=data, points=3)
    # nothing to standardise by
    fedscope.line(of_others, data=data[1], points=3)


@pytest.mark.parametrize("bad", [False, True])
def test_an_imported_run_that_says_no_error_is_asked_once(here: Path, bad: bool) -> None:
    raw = drawn()
    np.savez("d.npz", **raw)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FedscopeWarning)
        fedscope.import_models(saved(raw, raw=not bad), "run", data="npz:d.npz", model=net)
        for _ in range(2):
            fedscope.subsets("run", model=net)
    said = [str(one.message) for one in caught if "standardise=True" in str(one.message)]
    assert len(said) == bad
    assert all(re.match(r"run@1/(global|client-0) has an error of", sentence) for sentence in said)


def test_a_run_that_says_its_scale_is_believed(here: Path) -> None:
    raw = drawn()
    np.savez("d.npz", **raw)
    warnings.filterwarnings("ignore", "global is the mean", FedscopeWarning)
    for how in (True, False):
        fedscope.import_models(saved(raw, raw=how), f"run-{how}", data="npz:d.npz", standardise=how)
        fedscope.subsets(f"run-{how}", model=net)


def test_of_a_regression_losses_are_compared(here: Path) -> None:
    draw = np.random.default_rng(0)
    x = (5 + 3 * draw.normal(size=(300, 4))).astype(np.float32)
    y = (x @ [1.0, -1.0, 0.5, 2.0]).astype(np.float32)[:, None]
    np.savez("d.npz", x_train=x[:200], y_train=y[:200], x_test=x[200:], y_test=y[200:])
    modules = [nn.Linear(4, 1) for _ in range(2)]
    for module in modules:
        module.load_state_dict({"weight": torch.tensor([[1.0, -1.0, 0.5, 2.0]]), "bias": torch.zeros(1)})
    with pytest.raises(FedscopeError, match=r"has a loss of [\d.e-]+ on 100 samples of .* as they are, and of \d"):
        fedscope.line(modules, data="npz:d.npz", task="regression", points=3)


def test_bytes_are_taken_over_255_and_as_they_are(here: Path) -> None:
    draw = np.random.default_rng(0)
    y = (draw.random(300) < 0.8).astype(np.int64)
    # a light and a lighter class, which is the larger one: half a deviation above the mean, and 0.94 of 255
    x = (190 + 45 * y[:, None, None] + draw.integers(0, 12, (300, 3, 3))).astype(np.uint8)
    np.savez("d.npz", x_train=x[:200], y_train=y[:200], x_test=x[200:], y_test=y[200:])
    modules = [nn.Sequential(nn.Flatten(), nn.Linear(9, 2)) for _ in range(2)]
    for k, module in enumerate(modules):
        weight = torch.stack([torch.zeros(9), torch.full((9,), 1.0 + k)])
        bias = torch.tensor([(1 + k) * 218 * 9 / 255, 0.0])  # right where a mean of 218 / 255 divides them
        module.load_state_dict({"1.weight": weight, "1.bias": bias})
    with pytest.raises(FedscopeError, match="an error of 0 % on 100 samples"):
        fedscope.line(modules, data="npz:d.npz", points=3)
    found = fedscope.line(modules, data="npz:d.npz", points=3, standardise=False)
    assert not np.ravel(found.error).any()


def test_few_samples_are_asked_of_two_models(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = drawn()
    np.savez("d.npz", **raw)
    asked: list[int] = []
    logits = Evaluator.logits

    def counted(self: Evaluator, models: Any, rows: slice) -> torch.Tensor:
        found = logits(self, models, rows)
        asked.append(found.shape[1])
        return found

    monkeypatch.setattr(fitting_scale, "BATCH", 7)
    monkeypatch.setattr(Evaluator, "logits", counted)
    fedscope.line(saved(raw, raw=False)[:2], model=net, data="npz:d.npz", points=3, limit=40)
    assert sum(asked) == 2 * 2 * 40, "two models, two scales"
    assert max(asked) == 7


def test_untrained_models_are_measured_as_they_are(here: Path) -> None:
    # one class for all samples may well be better than another one
    np.savez("d.npz", **drawn())
    for seed in range(40):
        torch.manual_seed(seed)
        fedscope.line([net(), net()], data="npz:d.npz", points=3)
