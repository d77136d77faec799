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


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many samples each call of a model has had."""
    counts: list[int] = []
    logits = Evaluator.logits

    def counted(self: Evaluator, models: Any, rows: slice) -> torch.Tensor:
        found = logits(self, models, rows)
        counts.append(found.shape[1])
        return found

    monkeypatch.setattr(Evaluator, "logits", counted)
    return counts


def test_few_samples_are_asked_of_two_models(here: Path, monkeypatch: pytest.MonkeyPatch, asked: list[int]) -> None:
    raw = drawn()
    np.savez("d.npz", **raw)
    monkeypatch.setattr(fitting_scale, "BATCH", 7)
    monkeypatch.setattr(fitting_scale, "OUTPUTS", 9 * CLASSES)
    fedscope.line(saved(raw, raw=False)[:2], model=net, data="npz:d.npz", points=3, limit=40)
    assert sum(asked) == 2 * 2 * 40, "two models, two scales"
    assert max(asked) == 9


@pytest.mark.parametrize("clear", [True, False])
def test_a_hundred_samples_do_where_they_are_clear(here: Path, asked: list[int], clear: bool) -> None:
    raw = drawn()
    if clear:  # classes that are far apart
        for part in ("train", "test"):
            raw[f"x_{part}"] += np.float32([9, 9, 9, 0, 0, 0]) * np.eye(CLASSES, FEATURES)[raw[f"y_{part}"]].astype("f")
    np.savez("d.npz", **raw)
    fedscope.line(saved(raw, raw=False)[:2], model=net, data="npz:d.npz", points=3)
    assert sum(asked) >= 2 * 2 * 300 or clear
    assert sum(asked) == 2 * 2 * 100 or not clear


def test_untrained_models_are_measured_as_they_are(here: Path) -> None:
    # one class for all samples may well be better than another one
    np.savez("d.npz", **drawn())
    for seed in range(40):
        torch.manual_seed(seed)
        fedscope.line([net(), net()], data="npz:d.npz", points=3)


def test_a_scale_in_which_the_module_fails_is_none(here: Path) -> None:
    # a table's places are numbers of samples, and standardised ones are below 0
    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.table(x.long()).sum(1)

    draw = np.random.default_rng(0)
    x, y = draw.integers(0, 4, (300, 5)).astype(np.float32), draw.integers(0, 3, 300)
    modules = [Table(), Table()]
    found = fedscope.line(modules, data=((x[:200], y[:200]), (x[200:], y[200:])), points=3)
    with torch.no_grad():
        loss = nn.functional.cross_entropy(modules[0](torch.tensor(x[200:])), torch.tensor(y[200:]))
    assert np.isclose(found.loss, float(loss), rtol=1e-5).any()


def linear(weight: list[float]) -> nn.Module:
    module = nn.Linear(len(weight), 1)
    module.load_state_dict({"weight": torch.tensor([weight]), "bias": torch.zeros(1)})
    return module


def test_of_a_regression_on_one_number_a_sample_losses_are_compared(here: Path) -> None:
    draw = np.random.default_rng(0)
    x = (5 + 3 * draw.normal(size=(300, 2))).astype(np.float32)
    y = (x @ [1.0, 2.0]).astype(np.float32)  # [n], and outputs are [n, 1]
    np.savez("d.npz", x_train=x[:200], y_train=y[:200], x_test=x[200:], y_test=y[200:])
    modules = [linear([1.0, 2.0]), linear([1.0, 2.1])]
    with pytest.raises(FedscopeError, match=r"has a loss of [\d.e-]+ on 100 samples of .* as they are, and of \d"):
        fedscope.line(modules, data="npz:d.npz", task="regression", points=3)


@pytest.mark.parametrize("uneven", [False, True])
def test_of_maps_shares_of_positions_are_compared(here: Path, uneven: bool) -> None:
    x = np.random.default_rng(0).random((60, 1, 5, 5)).astype(np.float32)
    y = (x[:, 0] > 0.7).astype(np.int64)
    y[:, 0] = -100
    if uneven:  # one position in every sixth map, which is wrong, and 20 in the others
        y[::6, 1, 0] = 1 - y[::6, 1, 0]
        y[::6, 1, 1:], y[::6, 2:] = -100, -100
    share = 100 * 6 / (6 + 34 * 20) if uneven else 0
    np.savez("d.npz", x_train=x[:20], y_train=y[:20], x_test=x[20:], y_test=y[20:])
    modules = [nn.Conv2d(1, 2, 1) for _ in range(2)]
    for k, module in enumerate(modules):
        weight = torch.tensor([0.0, 10.0 + k])[:, None, None, None]
        module.load_state_dict({"weight": weight, "bias": torch.tensor([0.0, -0.7 * (10.0 + k)])})
    with pytest.raises(
        FedscopeError, match=rf"has an error of {share:.3g} % on 40 samples of .* as they are, and of \d"
    ):
        fedscope.line(modules, data="npz:d.npz", task="sequences", points=3)


def test_what_a_criterion_ignores_is_no_error(here: Path) -> None:
    raw = drawn()
    raw["y_test"][::2] = -100
    np.savez("d.npz", **raw)
    own = error(fitted(raw, slice(0, None, 3)), {name: values[1::2] for name, values in raw.items()})
    with pytest.raises(FedscopeError, match=f"has an error of {100 * own:.3g} % on 150 samples"):
        fedscope.line(saved(raw)[:2], model=net, data="npz:d.npz", task=nn.CrossEntropyLoss(), points=3)


def pixels(seed: int = 0) -> Arrays:
    """Images of bytes: a bright square on a dark ground, whose place is the class."""
    draw = np.random.default_rng(seed)
    y = draw.integers(0, 4, 400)
    x = draw.integers(0, 120, (400, 1, 6, 6))
    for k, (row, column) in enumerate(((0, 0), (0, 3), (3, 0), (3, 3))):
        x[y == k, 0, row : row + 3, column : column + 3] += draw.integers(0, 120, (int((y == k).sum()), 3, 3))
    return {"x_train": x[:200], "y_train": y[:200], "x_test": x[200:], "y_test": y[200:]}


def in_unit(x: np.ndarray) -> np.ndarray:
    return (x / 255).astype(np.float32)


SCALES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "unit": in_unit,
    "signed": lambda x: 2 * in_unit(x) - 1,
    "own": lambda x: (in_unit(x) - in_unit(x).mean()) / in_unit(x).std(),
    "wide": lambda x: x.astype(np.float32),
}


def of_scale(arrays: Arrays, name: str, seed: int = 0) -> nn.Module:
    """A convolution without padding and a linear layer, trained on samples of a scale."""
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Conv2d(1, 6, 3), nn.Tanh(), nn.Flatten(), nn.Linear(96, 4))
    x, y = torch.tensor(SCALES[name](arrays["x_train"])), torch.tensor(arrays["y_train"])
    optimiser = torch.optim.Adam(module.parameters(), 1e-2)
    for _ in range(40):
        optimiser.zero_grad()
        nn.functional.cross_entropy(module(x), y).backward()
        optimiser.step()
    return module.eval()


@pytest.mark.parametrize(
    ("trained", "given", "words"),
    [
        ("unit", "wide", "divided by 255"),
        ("signed", "wide", "from -1 to 1"),
        ("own", "unit", "standardised by themselves"),
    ],
)
def test_usual_scales_of_pixels_are_tried_where_nothing_can_standardise(
    here: Path, trained: str, given: str, words: str
) -> None:
    raw = pixels()
    modules = [of_scale(raw, trained, seed) for seed in range(2)]
    few = {"x_test": SCALES[trained](raw["x_test"]), "y_test": raw["y_test"]}
    assert error(modules[0], few) < 0.1
    with pytest.warns(FedscopeWarning, match="on the same .*; give them so") as said:
        found = fedscope.line(modules, data=(SCALES[given](raw["x_test"]), raw["y_test"]), points=3)
    assert len(said) == 1
    assert f"on the same {words}" in str(said[0].message)
    with torch.no_grad():
        outputs = modules[0](torch.tensor(SCALES[given](raw["x_test"])))
    loss = nn.functional.cross_entropy(outputs, torch.tensor(raw["y_test"]))
    assert np.isclose(found.loss, float(loss), rtol=1e-4).any()


@pytest.mark.parametrize("name", SCALES)
@pytest.mark.parametrize("splits", [1, 2])
def test_pixels_in_the_scale_of_training_are_measured_without_a_word(here: Path, name: str, splits: int) -> None:
    raw = pixels()
    modules = [of_scale(raw, name, seed) for seed in range(2)]
    test = SCALES[name](raw["x_test"]), raw["y_test"]
    fedscope.line(
        modules, data=test if splits == 1 else ((SCALES[name](raw["x_train"]), raw["y_train"]), test), points=3
    )


def test_untrained_models_are_measured_on_pixels_as_they_are(here: Path) -> None:
    raw = pixels()
    for seed in range(20):
        torch.manual_seed(seed)
        modules = [nn.Sequential(nn.Flatten(), nn.Linear(36, 16), nn.ReLU(), nn.Linear(16, 4)) for _ in range(2)]
        for name in ("unit", "wide", "signed"):
            fedscope.line(modules, data=(SCALES[name](raw["x_test"]), raw["y_test"]), points=3)


def test_labels_that_are_numbered_otherwise_are_warned_of(here: Path) -> None:
    y = np.arange(90) % 6
    x = (np.eye(6)[y] + 0.4 * np.random.default_rng(0).normal(size=(90, 6))).astype(np.float32)
    modules = [nn.Linear(6, 7) for _ in range(2)]
    for k, module in enumerate(modules):
        module.load_state_dict({"weight": (9.0 + k) * torch.eye(7, 6), "bias": torch.zeros(7)})
    own, other = (100 * error(modules[0], {"x_test": x, "y_test": labels}) for labels in (y + 1, y))
    assert own > 80 > 40 > other
    words = (
        f"error of {own:.3g} % on 90 samples of arrays, and would have {other:.3g} % if .* answers 0 where y is 1, 1 w"
    )
    with pytest.warns(FedscopeWarning, match=words) as said:
        found = fedscope.line(modules, data=(x, y + 1), points=3)
    assert len(said) == 1
    assert np.isclose(found.error, own / 100).any()
    fedscope.line(modules, data=(x, y), points=3)
    fedscope.line(modules, data=(x, y + 1), points=3, accept_data=True)
    # not trained, and sure of nothing: by chance it answers so
    for module in modules:
        with torch.no_grad():
            module.weight.mul_(0.05)
    fedscope.line(modules, data=(x, y + 1), points=3)


@pytest.mark.parametrize("words", ["with the channels last where", "with rows and columns exchanged"])
def test_images_with_other_axes_are_warned_of(here: Path, words: str) -> None:
    # the class is one of four pixels that is lit, in the first of three channels
    draw, y = np.random.default_rng(0), np.arange(120) % 4
    x = draw.normal(size=(120, 3, 6, 6)).astype(np.float32) / 3
    for k, (row, column) in enumerate(((0, 5), (4, 1), (2, 3), (5, 2))):
        x[y == k, 0, row, column] += 3

    def turned(images: np.ndarray) -> np.ndarray:
        if "channels" in words:
            return np.ascontiguousarray(np.moveaxis(images, 1, 3)).reshape(images.shape)
        return np.swapaxes(images, 2, 3).copy()

    centres = torch.tensor(np.stack([turned(x)[y == k].mean(0).ravel() for k in range(4)]))
    modules = [nn.Sequential(nn.Flatten(), nn.Linear(108, 4)) for _ in range(2)]
    for k, module in enumerate(modules):
        weight = (1.0 + k) * centres
        module.load_state_dict({"1.weight": weight, "1.bias": -(1.0 + k) * (centres**2).sum(1) / 2})
    own, other = (100 * error(modules[0], {"x_test": images, "y_test": y}) for images in (x, turned(x)))
    assert own > 50 > 5 > other
    # of 120 samples 100 are asked
    with pytest.warns(FedscopeWarning, match=f"as they are measured, and of [0-4] % on the same {words}") as said:
        found = fedscope.line(modules, data=(x, y), points=3)
    assert len(said) == 1
    assert np.isclose(found.error, own / 100).any()
    fedscope.line(modules, data=(turned(x), y), points=3)
    fedscope.line(modules, data=(x, y), points=3, accept_data=True)


def test_models_that_were_hardly_trained_are_measured_without_a_word(here: Path) -> None:
    # some of them have half as many errors on standardised samples, and are not sure of them
    raw = pixels()
    x, y = torch.tensor(in_unit(raw["x_train"])), torch.tensor(raw["y_train"])
    data = (x, y), (torch.tensor(in_unit(raw["x_test"])), torch.tensor(raw["y_test"]))
    for seed in range(12):
        torch.manual_seed(seed)
        modules = [nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(96, 4)) for _ in range(2)]
        for module in modules:
            optimiser = torch.optim.Adam(module.parameters(), 1e-2)
            for _ in range(2):
                optimiser.zero_grad()
                nn.functional.cross_entropy(module(x), y).backward()
                optimiser.step()
        fedscope.line(modules, data=data, points=3)
