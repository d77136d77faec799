"""Torch's criteria as tasks: the measured mean is the number that the criterion itself gives for all samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import fedscope
from fedscope.checkpoints import FedscopeError, Layout, Weights
from fedscope.cli.main import run
from fedscope.evaluation.criteria import task_of_criterion
from fedscope.evaluation.evaluator import Evaluator
from fedscope.evaluation.samples import Samples
from fedscope.evaluation.standard_tasks import CLASSIFICATION, PADDED, TASKS
from fedscope.evaluation.tasks import Task
from fedscope.landscape.curvature.derivatives import Derivatives
from fedscope.training import load_data
from fedscope.training.data.custom import taken_data

N, C = 60, 5
DRAW = torch.Generator().manual_seed(4)
X = torch.randn(N, 6, generator=DRAW)
LABELS = torch.randint(0, C, (N,), generator=DRAW)
NUMBERS = torch.randn(N, C, generator=DRAW)
WEIGHT = torch.rand(C, generator=DRAW) + 0.1
IMAGES = torch.randn(8, 2, 4, 4, generator=DRAW)
MASKS = torch.randint(0, C, (8, 4, 4), generator=DRAW)
MASKS[:, 0] = 255
PIECES = torch.randn(8, 7, 3, generator=DRAW)  # 7 positions of 3 numbers
WORDS = torch.randint(0, C, (8, 7), generator=DRAW)
WORDS[::2, 4:] = PADDED


def classifier() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, C))


def log_probabilities() -> nn.Module:
    return nn.Sequential(nn.Linear(6, C), nn.LogSoftmax(dim=1))


def segments() -> nn.Module:
    return nn.Conv2d(2, C, 3, padding=1)


CE = nn.CrossEntropyLoss
CASES: dict[str, tuple[Callable[[], nn.Module], Any, Tensor, Tensor]] = {
    "plain": (classifier, CE(), X, LABELS),
    "function": (classifier, functional.cross_entropy, X, LABELS),
    "weights": (classifier, CE(weight=WEIGHT), X, LABELS),
    "smoothing": (classifier, CE(label_smoothing=0.1), X, LABELS),
    "both": (classifier, CE(weight=WEIGHT, label_smoothing=0.2), X, LABELS),
    "partial": (classifier, partial(functional.cross_entropy, weight=WEIGHT, label_smoothing=0.2), X, LABELS),
    "a class of weight 0": (classifier, CE(weight=torch.tensor([0.0, 1, 2, 3, 4])), X, LABELS),
    "log-likelihood": (log_probabilities, nn.NLLLoss(weight=WEIGHT), X, LABELS),
    "margins": (classifier, nn.MultiMarginLoss(weight=WEIGHT), X, LABELS),
    "probabilities": (classifier, CE(weight=WEIGHT, label_smoothing=0.1), X, NUMBERS.softmax(1)),
    "squares": (classifier, nn.MSELoss(), X, NUMBERS),
    "huber": (classifier, nn.HuberLoss(delta=0.3), X, NUMBERS),
    "absolute": (classifier, functional.l1_loss, X, NUMBERS),
    "several labels": (classifier, nn.BCEWithLogitsLoss(pos_weight=WEIGHT), X, (NUMBERS > 0).float()),
    "divergence": (log_probabilities, nn.KLDivLoss(reduction="batchmean"), X, NUMBERS.softmax(1)),
    "masks": (segments, CE(weight=WEIGHT, ignore_index=255), IMAGES, MASKS),
    "smoothed masks": (segments, CE(ignore_index=255, label_smoothing=0.1), IMAGES, MASKS),
}


def measured(net: nn.Module, data: Any, criterion: Any) -> float | None:
    """The loss that a question gives."""
    found = fedscope.sharpness(net, data=data, task=criterion, hessian=False, draws=1)
    return found.models[0].measures[0].value


@pytest.mark.parametrize("batch", [None, 7])
@pytest.mark.parametrize("case", CASES)
def test_the_mean_is_torchs_number_and_its_gradient(case: str, batch: int | None) -> None:
    make, criterion, x, y = CASES[case]
    torch.manual_seed(0)
    module = make()
    task = task_of_criterion(criterion)
    assert task is not None
    task, targets = task.taken(y.numpy())
    samples = Samples(
        x, task.check(torch.from_numpy(targets), C, "toy"), C, "toy", "test", np.arange(len(x)), task=task
    )
    layout = Layout.of(module)
    w = layout.flatten({name: value.detach().numpy() for name, value in module.state_dict().items()})
    whole = criterion(module(x), y)
    scalar = float(whole.detach())
    (loss,), (error,) = Evaluator(module, samples, batch=batch).models(w)
    # single precision in torch's sum, double in ours
    assert loss == pytest.approx(scalar, rel=2e-6)
    measured, gradient = Derivatives(module, samples).gradient(w)
    assert measured == pytest.approx(scalar, rel=2e-6)
    parts = torch.autograd.grad(whole, list(module.parameters()))
    expected = torch.cat([part.flatten() for part in parts]).numpy()
    np.testing.assert_allclose(gradient, expected, atol=1e-5 * float(np.linalg.norm(expected)))
    if y.is_floating_point() or case == "margins":
        assert np.isnan(error)
    else:  # not weighted: a share of what counts
        there = y != 255
        assert error == pytest.approx(float((module(x).argmax(1) != y)[there].double().mean()))


@pytest.mark.parametrize("flat", [False, True], ids=["as torch takes them", "as language models give them"])
def test_sequences_may_have_their_classes_in_either_axis(flat: bool) -> None:
    torch.manual_seed(1)
    head = nn.Linear(3, C)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = head

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.head(x)
            return out if flat else out.transpose(1, 2)

    criterion = CE(weight=WEIGHT, label_smoothing=0.1)
    expected = criterion(head(PIECES).flatten(0, 1), WORDS.flatten())
    assert measured(Net(), (PIECES, WORDS), criterion) == pytest.approx(float(expected.detach()), rel=2e-6)


def test_a_criterion_that_a_task_has_is_that_task() -> None:
    for plain in (nn.CrossEntropyLoss(reduction="none"), partial(functional.cross_entropy, reduction="sum")):
        task = task_of_criterion(plain)
        assert task is not None
        assert task.taken(LABELS.numpy())[0] is CLASSIFICATION
    assert task_of_criterion(nn.MSELoss()) is TASKS["regression"]
    for other in (lambda outputs, y: outputs[:, 0], nn.Linear(2, 2), CLASSIFICATION, nn.CrossEntropyLoss, torch.sum):
        assert task_of_criterion(other) is None


IGNORED = torch.where(torch.arange(len(LABELS)) % 4 == 0, -100, LABELS)


@pytest.mark.parametrize(
    ("make", "criterion", "x", "y"),
    [
        (classifier, CE(), X, IGNORED),
        (classifier, CE(weight=WEIGHT, label_smoothing=0.1), X, IGNORED),
        (classifier, CE(ignore_index=-1), X, torch.where(IGNORED < 0, -1, IGNORED)),
        (classifier, CE(ignore_index=255), X, torch.where(IGNORED < 0, 255, IGNORED)),
        (classifier, CE(ignore_index=C - 1), X, LABELS),
        (log_probabilities, nn.NLLLoss(weight=WEIGHT, ignore_index=2), X, LABELS),
        (classifier, CE(), X, NUMBERS.softmax(1)),
        (segments, CE(), IMAGES, torch.where(MASKS == 255, -100, MASKS)),
        (classifier, nn.MultiLabelMarginLoss(), X, torch.stack([LABELS, *[torch.full_like(LABELS, -1)] * (C - 1)], 1)),
    ],
)
def test_a_question_takes_what_a_criterion_takes(make: Any, criterion: nn.Module, x: Tensor, y: Tensor) -> None:
    """Ignored labels of samples, probabilities and maps, as they are given; a part of them, too."""
    torch.manual_seed(0)
    module = make()
    expected = float(criterion(module(x), y).detach())
    assert measured(module, (x, y), criterion) == pytest.approx(expected, rel=2e-6)
    part = fedscope.sharpness(module, data=(x, y), task=criterion, hessian=False, draws=1, limit=len(y) // 2)
    assert np.isfinite(part.models[0].measures[0].value or np.nan)


@pytest.mark.parametrize("form", ["arrays", "npz", "dataset"])
def test_labels_are_ignored_where_one_split_alone_has_some(form: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = classifier()
    train, test = (X.numpy(), IGNORED.numpy()), (X.numpy(), LABELS.numpy())
    data: Any = (train, test)
    if form == "npz":
        np.savez(tmp_path / "d.npz", x_train=train[0], y_train=train[1], x_test=test[0], y_test=test[1])
        data = f"npz:{tmp_path / 'd.npz'}"
    elif form == "dataset":
        data = replace(taken_data((test, test)), y_train=IGNORED.numpy())
    for split, y in (("train", IGNORED), ("test", LABELS)):
        found = fedscope.sharpness(module, data=data, task=CE(), split=split, hessian=False, draws=1, standardise=False)
        expected = float(CE()(module(X), y).detach())
        assert found.models[0].measures[0].value == pytest.approx(expected, rel=2e-6)


def test_an_ignored_class_of_a_known_data_set_keeps_its_output() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    dataset = load_data("digits")
    criterion = CE(ignore_index=9)
    x, y = dataset.samples("train").x, dataset.samples("train").y  # what sharpness is asked of
    expected = float(criterion(net(x), y).detach())
    assert measured(net, "digits", criterion) == pytest.approx(expected, rel=2e-6)
    assert measured(net, dataset, criterion) == pytest.approx(expected, rel=2e-6)


def test_weights_below_0_are_refused() -> None:
    with pytest.raises(FedscopeError, match="has weights below 0"):
        task_of_criterion(CE(weight=-WEIGHT))


def test_labels_may_be_truth_values(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net, truths = classifier(), LABELS > 1
    expected = float(functional.cross_entropy(net(X), truths.long()).detach())
    assert measured(net, (X, truths), None) == pytest.approx(expected, rel=2e-6)
    np.savez(tmp_path / "truths.npz", x_test=X, y_test=truths)
    assert measured(net, f"npz:{tmp_path / 'truths.npz'}", None) == pytest.approx(expected, rel=2e-6)
    alone = nn.Linear(6, 1)
    expected = float(functional.binary_cross_entropy_with_logits(alone(X)[:, 0], truths.float()).detach())
    assert measured(alone, (X, truths), nn.BCEWithLogitsLoss()) == pytest.approx(expected, rel=2e-6)


def test_targets_of_n_are_not_spread_over_outputs_of_n_by_1() -> None:
    """torch's own mean squared error of [n, 1] and [n] is over [n, n] numbers, and warns."""
    torch.manual_seed(0)
    net, y = nn.Linear(6, 1), NUMBERS[:, 0].clone()
    expected = float(functional.smooth_l1_loss(net(X)[:, 0], y).detach())
    assert measured(net, (X, y), nn.SmoothL1Loss()) == pytest.approx(expected, rel=2e-6)


def test_a_result_says_the_criterion_with_its_settings() -> None:
    torch.manual_seed(0)
    found = fedscope.line(
        [classifier(), classifier()], data=(X, LABELS), task=CE(weight=WEIGHT, label_smoothing=0.1), points=3
    )
    assert found.attrs["task"].startswith("torch.nn:CrossEntropyLoss(weight=[")
    assert found.attrs["task"].endswith("], label_smoothing=0.1)")
    many = task_of_criterion(CE(weight=torch.linspace(1, 2, 100)))
    other = task_of_criterion(CE(weight=torch.linspace(1, 3, 100)))
    assert many is not None
    assert other is not None
    assert many.name != other.name
    assert len(many.name) < 100


def test_weights_of_fractions_are_summed_as_fractions() -> None:
    """Σ c is no number of samples: cut to a whole one, the mean were too large."""

    class Fractions(Task):
        def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
            return outputs[:, 0].square()

        def weights(self, y: Tensor) -> Tensor:
            return torch.full((len(y),), 0.3)

    module, task = nn.Linear(6, 1), Fractions()
    samples = Samples(X[:5], torch.zeros(5), 1, "toy", "test", np.arange(5), task=task)
    w = Weights(Layout.of(module), np.random.default_rng(0).normal(size=7).astype(np.float32), {})
    expected = float(((X[:5].double() @ torch.from_numpy(w.parameters[:6]).double() + w.parameters[6]) ** 2).mean())
    (loss,), _ = Evaluator(module, samples).models(w)
    assert loss == pytest.approx(expected, rel=1e-5)
    assert Derivatives(module, samples).gradient(w)[0] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("criterion", "sentence"),
    [
        (
            CE(weight=torch.tensor([0.0, 1, 1, 1, 1]), label_smoothing=0.1),
            r"the label 0, whose class weighs 0 in .*lea",
        ),
        (CE(weight=torch.ones(3)), r"the label 4, but torch.nn:CrossEntropyLoss\(weight=\[1, 1, 1\]\) has 3 weights"),
        (CE(weight=torch.ones(C + 1)), r"has 6 weights, but the module has 5 outputs; give a weight a class"),
    ],
)
def test_weights_that_do_not_fit_are_refused(criterion: nn.Module, sentence: str) -> None:
    with pytest.raises(FedscopeError, match=sentence):
        measured(classifier(), (X, LABELS), criterion)


def test_outputs_whose_classes_may_be_either_axis_are_refused() -> None:
    with pytest.raises(FedscopeError, match=r"of which either axis may be the 7 classes; give task='sequences'"):
        measured(nn.Linear(3, 7), (PIECES, WORDS), CE(label_smoothing=0.1))


def test_a_command_takes_a_criterion_with_its_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    nets = [nn.Sequential(nn.Flatten(), nn.Linear(64, 10)) for _ in range(2)]
    for k, net in enumerate(nets):
        torch.save(net.state_dict(), f"{k}.pt")
    Path("weighted_nets.py").write_text(
        "from torch import nn\ndef net(): return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))\n"
    )
    weights = [1.0, 2, 3, 1, 1, 1, 1, 1, 1, 0.5]
    task = f"torch.nn:CrossEntropyLoss(weight={weights})"
    words = ["--model", "weighted_nets:net", "--data", "digits", "--task", task, "--points", "3", "--out", "line"]
    assert run(["line", "0.pt", "1.pt", *words]) == 0
    data = load_data("digits")
    x, y = torch.from_numpy(np.asarray(data.x_test)), torch.from_numpy(data.y_test)
    expected = float(CE(weight=torch.tensor(weights))(nets[0](x), y).detach())
    assert np.isclose(fedscope.Line.load("line").loss, expected, rtol=2e-6).any()


@pytest.mark.parametrize(
    ("targets", "sentence"),
    [
        (lambda y: y[:, None], r"has targets of shape \[20, 1, 4, 4\]; give y\[:, 0\], a class at each position"),
        (
            lambda y: functional.one_hot(y, 3).movedim(3, 1),
            r"has one-hot targets of shape \[20, 3, 4, 4\]; give y.argm",
        ),
        (lambda y: functional.one_hot(y[:, 0, 0], 3), r"has one-hot targets of shape \[20, 3\]; give y.argmax\(1\), a"),
    ],
)
def test_targets_with_an_axis_too_many_are_told_how_to_lose_it(targets: Any, sentence: str) -> None:
    x, y = torch.randn(20, 2, 4, 4), torch.arange(320).reshape(20, 4, 4) % 3
    maps = targets(y).dim() > 2
    nets = [nn.Conv2d(2, 3, 3, padding=1) if maps else nn.Sequential(nn.Flatten(), nn.Linear(32, 3)) for _ in range(2)]
    with pytest.raises(FedscopeError, match=sentence):
        fedscope.line(nets, data=(x, targets(y)), points=3, task=nn.CrossEntropyLoss())
    mended = y if maps else y[:, 0, 0]
    assert np.isfinite(fedscope.line(nets, data=(x, mended), points=3, task=nn.CrossEntropyLoss()).loss).all()


TOKENS = torch.randint(0, 9, (N, 6), generator=DRAW)


class Texts(nn.Module):
    """Tokens [n, L] to outputs [n, C]."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(9, 4), nn.Linear(4, C)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.embed(x).mean(dim=1))
        return outputs


@pytest.mark.filterwarnings("ignore::fedscope.checkpoints.FedscopeWarning")
@pytest.mark.parametrize("criterion", [CE(), CE(weight=WEIGHT), CE(label_smoothing=0.1)])
@pytest.mark.parametrize("form", ["arrays", "batches", "npz", "both"])
def test_a_criterion_of_labels_takes_texts(criterion: nn.Module, form: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    modules = [Texts(), Texts()]
    x, y = TOKENS.numpy(), LABELS.numpy()
    np.savez(tmp_path / "npz.npz", x_test=x, y_test=y)
    np.savez(tmp_path / "both.npz", x_test=x, y_test=y, x_train=x, y_train=y)
    data: Any = {"arrays": (TOKENS, LABELS), "batches": {"input_ids": TOKENS, "labels": LABELS}}.get(form)
    data = f"npz:{tmp_path}/{form}.npz" if data is None else data
    how = {"standardise": False} if form == "both" else {}
    found = fedscope.line(modules, data=data, task=criterion, points=3, **how)  # type: ignore[arg-type]
    with torch.no_grad():
        assert np.isclose(found.loss, float(criterion(modules[0](TOKENS), LABELS)), rtol=1e-5).any()


def test_measurements_that_are_whole_numbers_are_told_to_be_floats() -> None:
    modules = [nn.Linear(6, C) for _ in range(2)]
    for task, y in (("regression", NUMBERS), (CE(weight=WEIGHT), LABELS)):
        with pytest.raises(FedscopeError) as caught:
            fedscope.line(modules, data=(TOKENS - 3, y), task=task, points=3)
        assert str(caught.value) == (
            "arrays: x_test contains the token -3; tokens count from 0 (padding is marked in y, by -100), and whole "
            "numbers are tokens here, so give measurements as floats"
        )
        with pytest.raises(FedscopeError) as caught:
            fedscope.line(modules, data=(TOKENS, y), task=task, points=3)
        assert str(caught.value) == (
            "the module fails on 1 of arrays test, whole numbers of shape [6] a sample, which are taken as tokens "
            "(RuntimeError: mat1 and mat2 must have the same dtype, but got Long and Float); give measurements as "
            "floats, or a module that takes tokens, as nn.Embedding does"
        )
        assert np.isfinite(fedscope.line(modules, data=(TOKENS.float() - 3, y), task=task, points=3).loss).all()
