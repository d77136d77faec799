"""The worker's bench: addressed dropout, batches that BatchNorm can take, frozen companions, heads."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from fedscope.checkpoints import FedscopeError, Layout
from fedscope.evaluation.device import Compute
from fedscope.training import Config
from fedscope.training.build import initial_model, model_info
from fedscope.training.local.engine import Engine
from fedscope.training.local.local_training import batches, full_gradient, local_sgd, refuse_single_samples
from fedscope.training.local.worker_model import TrainableModel, features_and_logits
from fedscope.training.methods.clients.sgd import SGD
from fedscope.training.models.model_info import ModelInfo, find_head


def on(small: Any, module: nn.Module, **changes: Any) -> Any:
    """The small task with another module."""
    facts = ModelInfo(Layout.of(module), classes=3, head=find_head(module))
    task = small.task(start=initial_model(module), bench=TrainableModel(module), facts=facts, x=small.x.float())
    return replace(task, **changes)


DROPOUT = nn.Sequential(nn.Linear(6, 40), nn.Dropout(0.5), nn.Linear(40, 3))


@pytest.mark.parametrize("workers", [1, 2])
def test_dropout_masks_depend_on_the_address_alone(small: Any, workers: int) -> None:
    torch.manual_seed(workers)  # the global stream must not matter
    tasks = [on(small, DROPOUT, client=k, bench=None) for k in (1, 2, 3, 1)]
    trained = Engine(DROPOUT, Compute(workers=workers)).train(SGD(batch=4), tasks, np.full(4, 0.25))
    rows = trained.clients.parameters
    assert rows[0].tobytes() == rows[3].tobytes()
    assert rows[0].tobytes() != rows[1].tobytes()
    again = SGD(batch=4).train(on(small, DROPOUT, client=1)).weights.parameters
    assert rows[0].tobytes() == again.tobytes()
    redrawn = SGD(batch=4).train(on(small, DROPOUT, client=1, draw=2)).weights.parameters
    assert rows[0].tobytes() != redrawn.tobytes()


@pytest.mark.parametrize(("layer", "shape"), [(nn.Dropout(0.3), (64, 500)), (nn.Dropout2d(0.3), (64, 50, 4, 4))])
def test_addressed_dropout_drops_its_share_and_keeps_the_mean(
    small: Any, layer: nn.Module, shape: tuple[int, ...]
) -> None:
    bench = TrainableModel(nn.Sequential(layer, nn.Linear(4, 1)))
    bench._draws.generator = torch.Generator().manual_seed(0)
    out = bench.module[0](torch.ones(shape))  # type: ignore[index]
    dropped = (out == 0).float()
    # 32,000 and 3,200 independent draws of probability 0.3: four standard errors
    assert dropped.mean().item() == pytest.approx(0.3, abs=4 * (0.21 / (shape[0] * shape[1])) ** 0.5)
    assert set(out.unique().tolist()) <= {0.0, torch.tensor(1 / 0.7).item()}
    if len(shape) == 4:
        assert ((dropped.mean((2, 3)) == 0) | (dropped.mean((2, 3)) == 1)).all(), "whole channels"
    bench.module.eval()
    assert torch.equal(bench.module[0](torch.ones(shape)), torch.ones(shape))  # type: ignore[index]


class Spatial(nn.Dropout2d):
    """Keras' SpatialDropout1D: one mask a feature of [N, T, D]."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.permute(0, 2, 1).unsqueeze(3)).squeeze(3).permute(0, 2, 1)


class More(nn.Dropout):
    """Drops more than it says, by torch's function."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(x, 0.9, self.training)


class Named(nn.Dropout):
    """Calls torch's layer by its name, and asks for its own class."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert type(self) is Named
        return nn.Dropout.forward(self, x)


class Registered(nn.Dropout):
    """Classes derived from this give a name, each its own."""

    known: ClassVar[set[str]] = set()

    def __init_subclass__(cls, *, name: str) -> None:
        assert name not in Registered.known
        Registered.known.add(name)


class OfName(Registered, name="one"):
    """Without a forward of its own."""


def with_its_own() -> nn.Module:
    """A layer of torch's that was given another forward."""
    layer = nn.Dropout(0.5)
    layer.forward = lambda x: nn.functional.dropout(x, 0.5) + 1  # type: ignore[method-assign,misc,assignment]
    return layer


def drawing(layer: nn.Module) -> Any:
    """The layer as clients have it, its masks at a beginning."""
    bench = TrainableModel(nn.Sequential(layer, nn.Linear(4, 1)))
    bench.draw_masks(torch.Generator().manual_seed(0))
    return bench.module[0]  # type: ignore[index]


def test_layers_derived_from_dropout_keep_their_forward_and_are_addressed() -> None:
    x = torch.ones(20, 7, 30)
    outputs = []
    for seed in (1, 2):  # the global stream must not matter
        torch.manual_seed(seed)
        outputs.append(drawing(Spatial(0.5))(x))
    assert torch.equal(outputs[0], outputs[1])
    dropped = outputs[0] == 0
    assert torch.equal(dropped.any(1), dropped.all(1)), "whole features"
    assert 0.4 < dropped.float().mean().item() < 0.6
    assert (drawing(More(0.1))(torch.ones(5000)) == 0).float().mean().item() == pytest.approx(0.9, abs=0.03)
    assert torch.equal(drawing(More(0.5))(x), drawing(nn.Dropout(0.9))(x))
    for layer in (Named(0.5), OfName(0.5)):
        assert torch.equal(drawing(layer)(x), drawing(nn.Dropout(0.5))(x))
    assert torch.equal(drawing(with_its_own())(x), drawing(nn.Dropout(0.5))(x) + 1)


def test_layers_derived_from_dropout_stay_of_their_class_in_copies_too() -> None:
    own = drawing(OfName(0.5))
    assert type(own) is OfName
    bench = TrainableModel(nn.Sequential(own, nn.Linear(4, 1)))  # of a module that is addressed already
    bench.draw_masks(torch.Generator().manual_seed(0))
    x = torch.ones(50)
    assert torch.equal(bench.module[0](x), drawing(OfName(0.5))(x))  # type: ignore[index]
    assert bench.module[0].forward.layer is bench.module[0]  # type: ignore[index,union-attr]
    assert type(pickle.loads(pickle.dumps(bench.module))[0]) is OfName


def test_what_dropout_functions_refuse_is_refused(small: Any) -> None:
    class Wrong(nn.Dropout):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.dropout(x, 1.5)

    with pytest.raises(ValueError, match=r"^dropout probability has to be between 0 and 1, but got 1\.5$"):
        drawing(Wrong(0.5))(torch.ones(4))


def test_dropout_layers_keep_hooks_class_and_settings() -> None:
    layer, calls = nn.Dropout(0.5), list[bool]()
    layer.register_forward_hook(lambda module, given, output: calls.append(module.training))
    own = drawing(layer)
    own(torch.ones(4))
    assert calls == [True]
    assert isinstance(own, nn.Dropout)
    assert (own.p, own.inplace) == (0.5, False)
    assert type(layer) is nn.Dropout, "the module itself stays"


def test_dropout_in_place_writes_to_what_it_is_given() -> None:
    x = torch.ones(200)
    returned = drawing(nn.Dropout(0.5, inplace=True))(x)
    assert returned is x
    assert torch.equal(x, drawing(nn.Dropout(0.5))(torch.ones(200)))
    assert set(x.tolist()) == {0.0, 2.0}


class OneLayerTwice(nn.Module):
    """One dropout layer under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.one = self.other = nn.Dropout(0.5)
        self.head = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(self.other(x))


def test_a_dropout_layer_with_two_names_is_addressed_under_both() -> None:
    outputs = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        bench = TrainableModel(OneLayerTwice())
        bench.w.fill_(1.0)
        bench.draw_masks(torch.Generator().manual_seed(0))
        outputs.append(bench.module(torch.arange(1.0, 5.0).repeat(9, 1)))
    assert torch.equal(outputs[0], outputs[1])


NORMALISED = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))


def test_a_last_batch_of_one_joins_the_one_before_only_where_the_model_needs_it(small: Any) -> None:
    plain, normalised = small.task(), on(small, NORMALISED)  # 11 samples in batches of 5
    assert [len(y) for _, y in batches(plain, SGD(batch=5))] == [5, 5, 1] * 2
    assert [len(y) for _, y in batches(normalised, SGD(batch=5))] == [5, 6] * 2
    update = SGD(batch=5).train(normalised)
    assert update.steps == 4
    assert np.isfinite(update.weights.parameters).all()
    with pytest.raises(
        FedscopeError, match=r"client 2 has batches of one sample, which BatchNorm cannot normalise; give"
    ):
        SGD(batch=5).train(on(small, NORMALISED, indices=np.array([3])))


class Frozen(nn.Sequential):
    """A network that keeps its BatchNorm in evaluation mode."""

    def train(self, mode: bool = True) -> Frozen:
        super().train(mode)
        self[1].eval()
        return self


def test_frozen_batch_norm_is_not_refused(small: Any) -> None:
    frozen = Frozen(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
    assert [len(y) for _, y in batches(on(small, frozen), SGD(batch=5))] == [5, 6] * 2, "as in runs of before"
    assert SGD(batch=1).train(on(small, frozen)).steps == 22
    assert SGD(batch=5).train(on(small, frozen, indices=np.array([3]))).steps == 2
    refuse_single_samples(frozen, [1, 2], 1, small.x.float())


def test_batch_norm_over_the_pixels_of_one_image_is_not_refused(small: Any) -> None:
    images = nn.Sequential(nn.Unflatten(1, (1, 2, 3)), nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(6, 3))
    assert [len(y) for _, y in batches(on(small, images), SGD(batch=5))] == [5, 6] * 2, "as in runs of before"
    assert [len(y) for _, y in batches(on(small, images), SGD(batch=1))] == [1] * 22
    update = SGD(batch=5).train(on(small, images, indices=np.array([3])))
    assert update.steps == 2
    assert np.isfinite(update.weights.parameters).all()
    refuse_single_samples(images, [7, 1], 5, small.x.float())


def test_clients_that_batch_norm_cannot_normalise_are_refused_before_they_train(small: Any) -> None:
    said = (
        "client 1 has batches of one sample, which BatchNorm cannot normalise; give the client more samples (fewer "
        "clients), a larger --batch, or use a model with GroupNorm"
    )
    with pytest.raises(FedscopeError, match=f"^{re.escape(said)}$"):
        refuse_single_samples(NORMALISED, [7, 1], 5, small.x.float())
    refuse_single_samples(NORMALISED, [7, 6], 5, small.x.float())


def test_the_full_gradient_is_that_of_the_mean_loss_whatever_the_blocks(small: Any) -> None:
    method = SGD(batch=4, weight_decay=0.1)
    found = full_gradient(small.task(), method)
    module = small.module
    rows = torch.arange(5, 16)
    loss = nn.functional.cross_entropy(module(small.x[rows]), small.y[rows])
    expected = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(module.parameters()))])
    torch.testing.assert_close(found, expected + 0.1 * torch.from_numpy(small.start.parameters), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_reach_is_how_far_a_constant_gradient_carries(small: Any, momentum: float) -> None:
    """With the gradient replaced by ones, every parameter has moved by -reach; also with a rate that changes."""

    def ones(_: Any, g: torch.Tensor) -> None:
        g.fill_(1.0)

    method = SGD(batch=4, momentum=momentum)
    for rate in (None, lambda k, K: 0.1 * (1 - k / K)):
        update = local_sgd(small.task(), method, correct=ones, rate=rate)
        np.testing.assert_allclose(small.start.parameters - update.weights.parameters, update.reach, rtol=1e-10)
    assert update.reach > 0


def test_companions_are_frozen_copies_that_hold_what_they_are_given(small: Any) -> None:
    bench = TrainableModel(small.module)
    other = small.model(1)
    first = bench.companion(other, "global")
    assert bench.companion(small.start, "previous") is not first
    bench.load(small.start.parameters, {})
    x = small.x[:4]
    with torch.no_grad():
        mine, theirs = bench.module(x), first(x)
    assert not torch.allclose(mine, theirs)
    assert not any(parameter.requires_grad for parameter in first.parameters())
    assert not first.training
    assert bench.companion(small.start, "global") is first
    with torch.no_grad():
        torch.testing.assert_close(first(x), mine)


class Inside(nn.Module):
    """Its head is called in the middle of its code, by no standard name."""

    def __init__(self) -> None:
        super().__init__()
        self.answers, self.body = nn.Linear(4, 3), nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.answers(self.body(x).tanh())
        return out


def test_heads_are_the_last_linear_layer_or_the_one_that_is_named() -> None:
    assert find_head(Inside()) == "body"  # in the order of the attributes, so it has to be named here
    assert find_head(Inside(), "answers") == "answers"
    assert find_head(nn.Sequential(nn.Flatten(), nn.Conv2d(1, 1, 1))) is None
    with pytest.raises(
        FedscopeError, match=r"model\.head = 'fc' is not a linear layer of the model; it has answers, body"
    ):
        find_head(Inside(), "fc")
    module, x = Inside(), torch.randn(2, 6)
    f, logits = features_and_logits(module, "answers", x)
    torch.testing.assert_close(f, module.body(x).tanh())
    torch.testing.assert_close(logits, module(x))


def test_a_method_that_needs_the_head_says_how_to_name_it() -> None:
    config = Config.read({"client": {"method": "fedbabu"}})
    headless = nn.Sequential(nn.Conv2d(1, 10, 8), nn.Flatten())
    with pytest.raises(
        FedscopeError,
        match=r"client\.method = 'fedbabu' needs to know which layer of the model is its head, and mlp has no linear "
        r"layer; name the layer: --set model\.head=NAME",
    ):
        model_info(config, headless, 10)
    assert model_info(Config.read({}), headless, 10).head is None
    named = Config.read({"client": {"method": "fedbabu"}, "model": {"head": "answers"}})
    facts = model_info(named, Inside(), 3)
    assert facts.head_parameters == ("answers.weight", "answers.bias")
    assert facts.width == 4
    assert facts.head_mask().sum() == 15
