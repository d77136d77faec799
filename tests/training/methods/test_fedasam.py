"""FedASAM against a loop in plain torch, tensor by tensor, weights and biases told apart by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from local_loops import followed_uphill
from torch.nn import functional

from fedscope.training.methods.clients.fedasam import FedASAM
from fedscope.training.methods.clients.fedsam import FedSAM
from fedscope.training.methods.clients.sgd import SGD
from fedscope.training.methods.shared.sharpness_aware import adaptive_ascent, weight_mask

# The fixture's network: weight [5, 6], bias [5], weight [3, 5], bias [3].
IS_WEIGHT = np.repeat([True, False, True, False], [30, 5, 15, 3])


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

    def epsilon(theta: np.ndarray, g: np.ndarray) -> Any:
        scale = np.where(IS_WEIGHT, np.abs(theta) + method.sam_eta, 1.0)
        return method.sam_rho * scale**2 * g / np.linalg.norm(scale * g)

    close(trained, followed_uphill(task, method, epsilon), 1e-11)
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
