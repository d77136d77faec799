"""Settings every test shares: figures without a display, no clock in property tests, and a federation small enough to
work out by hand."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings

os.environ.setdefault("MPLBACKEND", "Agg")

# A busy machine is no failure, and a failure must come back on the next run.
settings.register_profile("fedscope", deadline=None, derandomize=True)
settings.load_profile("fedscope")


@dataclass(frozen=True)
class Small:
    """Three classes in six dimensions, and a network of one hidden layer, all in float64, so that a reference in plain
    torch agrees to rounding.

    Attributes:
        module: ``Sequential(Linear(6, 5), Tanh, Linear(5, 3))``; its head is ``"2"``.
        x, y: 40 samples.
        start: the module's parameters, at rest.
        facts: of a federation of 4 clients.
    """

    module: Any
    x: Any
    y: Any
    start: Any
    facts: Any

    def task(self, **changes: Any) -> Any:
        """Local training of client 2 in round 3 from ``start``: 11 samples, 2 epochs at rate 0.1, its own bench."""
        import numpy as np

        from fedscope.training.bench import Workbench
        from fedscope.training.local import LocalTask
        from fedscope.training.methods import Pace

        known = {
            "round": 3,
            "client": 2,
            "x": self.x,
            "y": self.y,
            "indices": np.arange(5, 16),
            "start": self.start,
            "pace": Pace(0.1, 2),
            "seed": 0,
            "facts": self.facts,
            "bench": Workbench(self.module),
        }
        return LocalTask(**{**known, **changes})

    def model(self, seed: int) -> Any:
        """Another model of the same layout, at rest."""
        import numpy as np

        from fedscope.checkpoints import Weights

        noise = np.random.default_rng(seed).normal(size=self.facts.layout.size)
        return Weights(self.facts.layout, self.start.parameters + 0.3 * noise, {})

    def clients(self, count: int = 3, seed: int = 0) -> Any:
        """Client rows [C, P] about ``start``."""
        from fedscope.checkpoints import stack

        return stack([self.model(seed + 100 + k) for k in range(count)])

    def cohort(self, samples: Sequence[int] = (10, 30, 60), **changes: Any) -> Any:
        """Clients 0, 1, ... of 4 in round 3, each of them 4 steps at rate 0.1, weighted by their samples."""
        import numpy as np

        from fedscope.training.methods import Cohort

        n = np.asarray(samples)
        known = {
            "round": 3,
            "client_ids": np.arange(len(n)),
            "samples": n,
            "steps": np.full(len(n), 4),
            "p": n / n.sum(),
            "clients": 4,
            "lr": 0.1,
            "reach": np.full(len(n), 0.4),
            "label_counts": np.arange(3 * len(n)).reshape(len(n), 3) + 1,
        }
        return Cohort(**{**known, **changes})


@pytest.fixture
def small() -> Small:
    """See :class:`Small`."""
    import torch

    from fedscope.checkpoints import Layout
    from fedscope.training.anatomy import Facts
    from fedscope.training.building import initial_model

    draw = torch.Generator().manual_seed(7)
    layers = torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3)
    module = torch.nn.Sequential(*layers).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw, dtype=torch.float64) / 2)
    x = torch.randn(40, 6, generator=draw, dtype=torch.float64)
    y = torch.randint(0, 3, (40,), generator=draw)
    layout = Layout.of(module)
    facts = Facts(layout=layout, classes=3, clients=4, seed=0, head="2")
    return Small(module, x, y, initial_model(module), facts)


@pytest.fixture(scope="session")
def close() -> Callable[[Any, Any, float], None]:
    """``close(actual, expected, relative)``: |actual − expected|₂ ≤ relative · |expected|₂.

    For trained numbers. Their last bits depend on the processor, whose vector units add up in different orders, and
    training carries that on into every entry alike: an entry that happens to lie near 0 is as far off as the others. So
    a bound is a share of the vector's norm, never of each entry.
    """
    import numpy as np

    def check(actual: Any, expected: Any, relative: float) -> None:
        one, other = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
        if other.ndim == 0:
            other = np.broadcast_to(other, one.shape)
        assert one.shape == other.shape, f"shapes {one.shape} and {other.shape} differ"
        apart, norm = float(np.linalg.norm(one - other)), float(np.linalg.norm(other))
        assert apart <= relative * norm, (
            f"|actual - expected| / |expected| = {apart / norm if norm else np.inf:.3g}, more than {relative:g}; "
            f"the norms of both are {np.linalg.norm(one):.6g} and {norm:.6g}"
        )

    return check


@pytest.fixture
def by_hand() -> Callable[..., Any]:
    """``by_hand(task, method, step)``: the final parameters [P] when every batch calls ``step(module, x, y) -> loss``
    and plain SGD follows; written with autograd and a loop over parameters, apart from the code it checks.

    ``step`` returns the scalar whose gradient is followed; weight decay, momentum and clipping are left at 0.
    """
    from copy import deepcopy

    import numpy as np
    import torch

    from fedscope.training.local import batches

    def run(task: Any, method: Any, step: Callable[..., Any]) -> np.ndarray:
        module = deepcopy(task.bench.module)
        module.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in task.start.arrays().items()})
        for x, y in batches(task, method):
            gradients = torch.autograd.grad(step(module, x, y), list(module.parameters()))
            with torch.no_grad():
                for parameter, gradient in zip(module.parameters(), gradients, strict=True):
                    parameter -= task.pace.lr * gradient
        return np.concatenate([parameter.detach().numpy().ravel() for parameter in module.parameters()])

    return run


@pytest.fixture
def stop_after() -> Callable[[int], Any]:
    """``stop_after(n)``: a watcher that presses Ctrl-C in the middle of the round after n."""
    from fedscope.training.watching import Unwatched

    class StopAfter(Unwatched):
        def __init__(self, rounds: int) -> None:
            self.rounds = rounds

        def client(self, round: int, done: int, of: int) -> None:
            if round > self.rounds and done == min(2, of):
                raise KeyboardInterrupt

    return StopAfter
