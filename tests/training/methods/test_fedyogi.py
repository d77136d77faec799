"""FedYogi against its formula, in plain numbers."""

from __future__ import annotations

from math import copysign, sqrt
from typing import Any

import numpy as np
import pytest

from fedscope.checkpoints import Weights, stack
from fedscope.training.methods.servers.fedadam import FedAdam
from fedscope.training.methods.servers.fedyogi import FedYogi


@pytest.mark.parametrize("v0", ["zero", "tau2"])
@pytest.mark.parametrize("corrected", [False, True])
def test_rounds_of_changing_size_by_hand(small: Any, v0: Any, corrected: bool) -> None:
    method = FedYogi(beta2=0.9, v0=v0, bias_correction=corrected)
    start = small.start
    w, state = start, method.init(start.parameters)
    by_hand = {j: (start.parameters[j], 0.0, 1e-6 if v0 == "tau2" else 0.0) for j in range(6)}
    falls = 0
    for t, size in enumerate([1.0, 1.0, 0.01, 0.01, 2.0, 0.1], start=1):  # small updates after great ones lower v
        moved = [w.parameters + size * (model.parameters - start.parameters) for model in map(small.model, (t, t + 50))]
        clients = stack([Weights(w.layout, parameters, {}) for parameters in moved])
        served = method.step(state, w, clients, small.cohort((1, 3)))
        for j, (wj, m, v) in by_hand.items():
            update = 0.25 * (moved[0][j] - w.parameters[j]) + 0.75 * (moved[1][j] - w.parameters[j])
            m = 0.9 * m + 0.1 * update
            falls += v > update**2
            v = v - 0.1 * update**2 * copysign(1, v - update**2)
            shown_m, shown_v = (m / (1 - 0.9**t), v / (1 - 0.9**t)) if corrected else (m, v)
            wj = wj + 0.01 * shown_m / (sqrt(shown_v) + 1e-3)
            by_hand[j] = wj, m, v
            assert served.parameters[j] == pytest.approx(wj, abs=1e-13)
            assert served.state["v"][j] == pytest.approx(v, abs=1e-13)
        w, state = Weights(w.layout, served.parameters, {}), served.state
    assert 12 <= falls <= 30  # both signs have been met


def test_it_is_adam_in_the_first_round_and_forgets_great_updates_more_slowly(small: Any) -> None:
    adam, yogi = FedAdam(beta2=0.5), FedYogi(beta2=0.5)
    first = [
        method.step(method.init(small.start.parameters), small.start, small.clients(), small.cohort())
        for method in (adam, yogi)
    ]
    np.testing.assert_allclose(first[0].parameters, first[1].parameters, rtol=0, atol=1e-15)
    still = stack([small.start] * 3)
    later = [method.step(first[0].state, small.start, still, small.cohort()) for method in (adam, yogi)]
    np.testing.assert_allclose(later[0].state["v"], first[0].state["v"] / 2, rtol=1e-12)
    np.testing.assert_array_equal(later[1].state["v"], first[0].state["v"])
