"""How many classes there are is said by a network's outputs; labels say no more than which occur."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import fedscope
from fedscope.checkpoints import FedscopeError, FedscopeWarning, Layout, Partition, Weights
from fedscope.decomposition.draws.cohort_draws import CohortDraws
from fedscope.decomposition.factors.decompose_round import decompose_round
from fedscope.decomposition.forgetting.accuracy import round_answers
from fedscope.evaluation.evaluator import Evaluator
from fedscope.evaluation.samples import Samples
from fedscope.evaluation.tasks import Task
from fedscope.evaluation.validation import with_outputs
from fedscope.training import build_module, load_data, model_settings
from fedscope.training.data.membership import members_of, of_classes

CLASSES = 10
X = torch.randn(40, 1, 4, 4, generator=torch.Generator().manual_seed(1))


def net() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, CLASSES))


def two(make: Callable[[], nn.Module] = net) -> list[nn.Module]:
    torch.manual_seed(0)
    return [make() for _ in range(2)]


class Pairs(torch.utils.data.Dataset[Any]):
    """Samples as torch hands them over."""

    def __init__(self, y: torch.Tensor) -> None:
        self.y = y

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        return X[i], int(self.y[i])


def saved(y: torch.Tensor, **more: Any) -> str:
    np.savez("few.npz", x_test=X[:, 0].numpy(), y_test=y.numpy(), **more)
    return "npz:few.npz"


FORMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "arrays": lambda y: (X, y),
    "bytes": lambda y: (X, y.to(torch.uint8)),
    "both splits": lambda y: ((X, y), (X, y)),
    "dictionary": lambda y: {"x_test": X, "y_test": y},
    "declared": lambda y: {"x_test": X, "y_test": y, "classes": CLASSES},
    "dataset": Pairs,
    "loader": lambda y: torch.utils.data.DataLoader(Pairs(y), batch_size=7),
    "file": saved,
    "file that says them": lambda y: saved(y, classes=CLASSES),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("classes", [(1, 3, 6), (0, 1), (0,), (7,), (9,)])
@pytest.mark.filterwarnings("ignore:.*has no training samples to standardise by")
def test_losses_are_torchs_whatever_classes_occur(
    form: str, classes: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    y, models = torch.tensor(classes)[torch.arange(40) % len(classes)], two()
    line = fedscope.line(models, data=FORMS[form](y), points=3)
    for module in models:
        outputs = module(X)
        assert np.isclose(np.ravel(line.loss), functional.cross_entropy(outputs, y).item(), rtol=2e-6).any()
        assert np.isclose(np.ravel(line.error), (outputs.argmax(1) != y).double().mean().item()).any()


@pytest.mark.parametrize("name", ["mlp", "resnet20-gn"])
def test_an_architecture_has_the_outputs_of_the_model_that_is_measured(name: str, tmp_path: Path) -> None:
    shape, y = (3, 32, 32), torch.tensor([0, 2, 2, 1])
    x = torch.randn(4, *shape, generator=torch.Generator().manual_seed(2))
    models = [build_module(model_settings(name), shape, CLASSES, seed=seed) for seed in range(2)]
    paths = [str(tmp_path / f"{i}.pt") for i in range(2)]
    for path, module in zip(paths, models, strict=True):
        torch.save({f"model.{key}": value for key, value in module.state_dict().items()}, path)
    with pytest.warns(FedscopeWarning, match="prefix"):
        loss = np.ravel(fedscope.line(paths, model=name, data=(x, y), points=3).loss)
    for module in models:
        # float32, whose sums a channels-last layout orders otherwise
        assert np.isclose(loss, functional.cross_entropy(module.eval()(x), y).item(), rtol=1e-5).any()


@pytest.mark.parametrize(
    ("label", "make", "task", "sentence"),
    [
        (
            10,
            net,
            None,
            r"has the label 10 \(1 time\), but the module has 10 outputs for a sample, 0 to 9; if 10",
        ),
        (255, net, None, r"if 255 marks samples that do not count, leave them out, else give a module with an output"),
        (-100, net, None, r"contains the label -100; labels count from 0; leave out samples that do not count"),
        (-1, net, None, r"contains the label -1; labels count from 0; leave out samples that do not count"),
        (0, lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 1)), None, r"a single output \(regression, binary"),
    ],
)
def test_labels_that_are_no_classes_are_named(
    label: int, make: Callable[[], nn.Module], task: Task | None, sentence: str
) -> None:
    y = torch.arange(40) % CLASSES
    y[3] = label
    with pytest.raises(FedscopeError, match=sentence) as refusal:
        fedscope.line(two(make), data=(X, y), task=task, points=3)
    assert "\n" not in str(refusal.value)


def test_a_declared_number_of_classes_is_the_modules() -> None:
    y = torch.arange(40) % 3
    with pytest.raises(FedscopeError, match=r"has 3 classes, so \[1, 3\] is needed"):
        fedscope.line(two(), data={"x_test": X, "y_test": y, "classes": 3}, points=3)
    with pytest.raises(FedscopeError, match=r"classes is 2, but the labels go up to 2.*if 2 marks what does not count"):
        fedscope.line(two(), data={"x_test": X, "y_test": y, "classes": 2}, points=3)


def positions(dims: int) -> tuple[Callable[[], nn.Module], torch.Tensor, torch.Tensor]:
    """A network with four classes at each position of a text, an image or a volume."""
    draw = torch.Generator().manual_seed(dims)
    if dims == 1:
        ids = torch.randint(0, 4, (6, 5), generator=draw)
        return lambda: nn.Sequential(nn.Embedding(4, 8), nn.Linear(8, 4)), ids, ids.roll(-1, 1)
    layer = {2: nn.Conv2d, 3: nn.Conv3d}[dims]
    x = torch.randn(6, 2, *[5] * dims, generator=draw)
    return lambda: layer(2, 4, 3, padding=1), x, torch.randint(0, 4, (6, *[5] * dims), generator=draw)


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("marked", [255, 250, 4])
def test_what_marks_positions_that_do_not_count_is_named_with_the_remedy(dims: int, marked: int) -> None:
    make, x, y = positions(dims)
    models = two(make)
    y[:, 0] = marked
    sentence = rf"has the label {marked} \(.* times\), but the module has 4 outputs at a position, 0 to 3; if {marked}"
    with pytest.raises(FedscopeError, match=sentence + r" marks positions .* write -100 there, torch's ignore_index"):
        fedscope.line(models, data=(x, y.to(torch.uint8)), task="sequences", points=3)
    ignored = torch.where(y == marked, -100, y)
    loss = np.ravel(fedscope.line(models, data=(x, ignored), task="sequences", points=3).loss)
    for module in models:
        outputs = module(x).transpose(1, 2) if dims == 1 else module(x)
        assert np.isclose(loss, functional.cross_entropy(outputs, ignored).item(), rtol=1e-5).any()
    ignored[2] = -100
    with pytest.raises(FedscopeError, match=r"1 sample without a position that counts \(the first is 2\); leave them"):
        fedscope.line(models, data=(x, ignored), task="sequences", points=3)


class OnTokens(fedscope.Classification):
    """Classes of texts."""

    tokens = True


def test_token_ids_are_no_classes_of_a_classification() -> None:
    class Mean(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.fc = nn.Embedding(50, 8), nn.Linear(8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.fc(self.embedding(x).mean(1))  # type: ignore[no-any-return]

    ids, y = torch.randint(0, 50, (20, 6), generator=torch.Generator().manual_seed(3)), torch.arange(20) % 3
    ids[0, 0] = 49
    models = two(Mean)
    loss = np.ravel(fedscope.line(models, data=(ids, y), task=OnTokens(), points=3).loss)
    for module in models:
        assert np.isclose(loss, functional.cross_entropy(module(ids), y).item(), rtol=2e-6).any()


# --- questions that count classes ---


def samples(*, seen: bool) -> Samples:
    y = torch.tensor([1, 3, 6])[torch.arange(40) % 3]
    return Samples(X, y, 7 if seen else CLASSES, "toy", "test", np.arange(40), classes_seen=seen)


def cohort() -> CohortDraws:
    layout, rng = Layout.of(net()), np.random.default_rng(0)
    draws = [Weights(layout, rng.normal(size=(2, layout.size)).astype(np.float32), {}) for _ in range(2)]
    return CohortDraws(1, np.arange(2), np.array([0.5, 0.5]), draws, np.array([20, 20]), "rounds:2", independent=False)


def test_samples_have_the_classes_of_the_outputs() -> None:
    assert with_outputs(net(), samples(seen=True)).classes == CLASSES
    declared = samples(seen=False)
    assert with_outputs(net(), declared) is declared
    loss, _ = Evaluator(net(), samples(seen=True)).models(cohort().draws[0])
    assert np.array_equal(loss, Evaluator(net(), declared).models(cohort().draws[0])[0])


@pytest.mark.parametrize("loss", ["squared", "cross-entropy", "zero-one"])
def test_a_decomposition_is_that_of_all_classes(loss: str) -> None:
    from fedscope.decomposition.factors.cross_entropy import decompose_loss

    def asked(part: Samples) -> Any:
        how: dict[str, Any] = {"globals_": None, "averaged": None, "population": False}
        if loss == "squared":
            return decompose_round(net(), part, cohort(), None, **how)
        return decompose_loss(net(), part, cohort(), loss=loss, **how)  # type: ignore[arg-type]

    few, all_ = asked(samples(seen=True)), asked(samples(seen=False))
    assert (few.classes, all_.classes) == (CLASSES, CLASSES)
    assert [row.value for row in few.rows] == [row.value for row in all_.rows]


@pytest.mark.parametrize("columns", [4, 7, 10, 12])
def test_forgetting_counts_the_classes_of_the_outputs(columns: int) -> None:
    """Whoever recorded the run counted labels up to the greatest that clients have, or with room for more."""
    labels = np.zeros((2, columns), np.int64)
    labels[0, 1], labels[1, 3] = 5, 7
    start, clients = cohort().draws[0].row(0), cohort().draws[1]
    round_: Any = SimpleNamespace(client_ids=np.arange(2), number=1, read=lambda which: start, clients=lambda: clients)
    partition = Partition((np.arange(5), np.arange(7)), None, labels)
    few = round_answers(net(), samples(seen=True), round_, partition)
    all_ = round_answers(net(), samples(seen=False), round_, partition)
    assert few.labels.shape == (2, CLASSES)
    assert np.array_equal(few.after_others, all_.after_others)
    assert few.own.sum(axis=1).tolist() == [14, 13], "a client's own are those of its class"


def test_a_class_that_nobody_trained_on_is_no_clients_own() -> None:
    counts = np.array([[0, 5], [3, 0]])
    part = replace(samples(seen=True), y=torch.tensor([0, 1, 6, 3] * 10))
    found = members_of(Partition((np.arange(5), np.arange(3)), None, counts), np.arange(2), part)
    assert found is not None
    assert found[:, :4].tolist() == [[False, True, False, False], [True, False, False, False]]
    assert of_classes(np.array([[1, 2, 3]]), 2).tolist() == [[1, 2, 3]], "nothing that was counted is lost"


# --- labels of what is trained ---


@pytest.mark.parametrize(
    ("train", "test", "note"),
    [
        ([0, 1, 2], [0, 1, 2], None),
        ([0, 1, 2], [0, 1, 9], r"no training sample has the label 9, which 33.3 % of the test samples have"),
        ([0, 1, 2, 3], [0, 1], r"no test sample has the labels 2, 3"),
        ([0, 1000, 2000], [0, 1000, 2000], r"a model has 2,001 outputs for the 3 classes that occur"),
    ],
)
def test_labels_that_are_odd_are_said_when_a_model_is_trained(
    train: list[int], test: list[int], note: str | None, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    from fedscope.training.build import data_to_train_on

    arrays = {
        f"{name}_{split}": values
        for split, labels in (("train", train), ("test", test))
        for name, values in (
            ("x", np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)),
            ("y", np.array(labels)[np.arange(12) % len(labels)]),
        )
    }
    np.savez(tmp_path / "few.npz", **arrays)
    data = data_to_train_on(f"npz:{tmp_path}/few.npz")
    assert data.classes == max(*train, *test) + 1
    said = " ".join(str(one.message) for one in recwarn)
    if note is None:
        assert not said
    else:
        assert re.search(note, said), said


def test_classes_that_are_said_are_no_gaps(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    from fedscope.training.build import data_to_train_on

    x, y = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32), np.arange(12) % 2
    np.savez(tmp_path / "few.npz", x_train=x, y_train=y, x_test=x, y_test=y, classes=5)
    assert data_to_train_on(f"npz:{tmp_path}/few.npz").classes == 5
    assert not list(recwarn)
    assert not load_data("digits").classes_seen
