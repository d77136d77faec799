"""FedASAM against a loop in plain torch, tensor by tensor, weights and biases told apart by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from fedscope.checkpoints import FedscopeError
from fedscope.training.clients.fedasam import FedASAM
from fedscope.training.clients.fedsam import FedSAM
from fedscope.training.clients.sgd import SGD
from fedscope.training.local import LocalTask, batches
from fedscope.training.shared.sharpness import adaptive_ascent, weight_mask

# The fixture's network: weight, bias, weight, bias.
IS_WEIGHT = (True, False, True, False)


def by_tensors(small: Any, task: LocalTask, method: FedASAM) -> np.ndarray:
    """ASAM on the fixture's four tensors, with weight decay, momentum and clipping."""
    theta = [p.detach().clone().requires_grad_() for p in small.module.parameters()]
    velocity = [torch.zeros_like(p) for p in theta]

    def gradient(at: list[torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a, b, c, d = at
        squares = torch.stack([p.square().sum() for p in at]).sum()
        inside = method.weight_decay if method.sam_decay == "within" else 0.0
        loss = functional.cross_entropy(torch.tanh(x @ a.T + b) @ c.T + d, y) + inside / 2 * squares
        return torch.autograd.grad(loss, at)

    for x, y in batches(task, method):
        g = gradient(theta, x, y)
        scale = [
            p.detach().abs() + method.sam_eta if weight else torch.ones_like(p)
            for p, weight in zip(theta, IS_WEIGHT, strict=True)
        ]
        length = torch.cat([(t * part).reshape(-1) for t, part in zip(scale, g, strict=True)]).norm()
        uphill = [
            (p.detach() + method.sam_rho * t * t * part / length).requires_grad_()
            for p, t, part in zip(theta, scale, g, strict=True)
        ]
        g = gradient(uphill, x, y)
        length = torch.cat([part.reshape(-1) for part in g]).norm()
        shrink = min(1.0, method.clip / float(length)) if method.clip else 1.0
        outside = method.weight_decay if method.sam_decay == "apart" else 0.0
        g = tuple(shrink * part + outside * p.detach() for part, p in zip(g, theta, strict=True))
        velocity = [method.momentum * v + part for v, part in zip(velocity, g, strict=True)]
        theta = [(p.detach() - task.pace.lr * v).requires_grad_() for p, v in zip(theta, velocity, strict=True)]
    return np.concatenate([p.detach().numpy().ravel() for p in theta])


@pytest.mark.parametrize(
    "settings",
    [
        {"momentum": 0.0, "weight_decay": 0.0},
        {"momentum": 0.9, "weight_decay": 0.05, "clip": 0.2},
        {"momentum": 0.9, "weight_decay": 0.05, "sam_rho": 0.2, "sam_eta": 0.05},
        {"momentum": 0.9, "weight_decay": 0.05, "clip": 0.2, "sam_decay": "within"},
        {"momentum": 0.0, "weight_decay": 0.0, "sam_eta": 0.0},
    ],
)
def test_steps_follow_the_gradient_adaptively_uphill(small: Any, settings: dict[str, Any], close: Any) -> None:
    method = FedASAM(batch=4, **settings)
    task = small.task()
    trained = method.train(task).weights.parameters
    close(trained, by_tensors(small, task, method), 1e-11)
    common = {name: value for name, value in settings.items() if not name.startswith("sam")}
    for other in (SGD(batch=4, **common), FedSAM(batch=4, sam_rho=method.sam_rho, **common)):
        assert np.abs(trained - other.train(task).weights.parameters).max() > 1e-3


def test_as_rho_goes_to_0_it_is_sgd(small: Any, close: Any) -> None:
    tiny, plain = (method.train(small.task()).weights.parameters for method in (FedASAM(sam_rho=1e-10), SGD()))
    close(tiny, plain, 1e-9)


def test_as_eta_grows_it_is_sam_of_a_radius_eta_rho_on_weights(small: Any, close: Any) -> None:
    # T is then η everywhere but on the biases, which hardly count: ε → η ρ g/‖g‖ on weights, and 0 on biases.
    bench = small.task().bench
    bench.load(small.start.parameters, {})
    bench.decayed(lambda module, x, y: functional.cross_entropy(module(x), y), small.x, small.y, 0.0)
    weights = torch.from_numpy(weight_mask(small.facts.layout))
    assert weights.tolist() == [True] * 30 + [False] * 5 + [True] * 15 + [False] * 3
    eta, rho = 1e9, 1e-9
    epsilon = adaptive_ascent(rho, eta, weights)(bench.w, bench.g)
    only_weights = torch.where(weights, bench.g, 0.0)
    close(epsilon, eta * rho * only_weights / only_weights.norm(), 1e-8)


@pytest.mark.parametrize("indices", [[7], [7, 8, 9]])
def test_small_clients_train(small: Any, indices: list[int]) -> None:
    update = FedASAM().train(small.task(indices=np.array(indices)))
    assert update.steps == 2
    assert np.isfinite(update.weights.parameters).all()


def test_settings_that_are_none_are_refused() -> None:
    with pytest.raises(FedscopeError, match=r"client\.sam_rho = 0 would switch the method off.*--client sgd"):
        FedASAM(sam_rho=0.0)
    with pytest.raises(FedscopeError, match=r"client\.sam_eta = -0\.1 is out of range: it must be at least 0"):
        FedASAM(sam_eta=-0.1)
