"""A user's own model that draws random numbers by itself is told of, whatever draws them."""

from __future__ import annotations

import json
import random
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedscope
from fedscope.checkpoints import FedscopeWarning
from fedscope.decomposition.reaggregation.server_inputs import recorded_cohort
from fedscope.evaluation.samples import Samples
from fedscope.methods import (
    ClientMethod,
    Cohort,
    LocalTask,
    LocalUpdate,
    Served,
    ServerMethod,
    State,
    Weights,
    local_sgd,
    mean_update,
)
from fedscope.training.local.own_randomness import draws_by_itself
from fedscope.training.loop.run_history import config_at


class Functional(nn.Module):
    """Dropout that is no layer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(self.linear(x), 0.5, self.training)


class Layered(Functional):
    """Dropout as a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.linear(x))


class Recurrent(Functional):
    """Dropout within a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.LSTM(64, 10, num_layers=2, dropout=0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.cells(x[None])[0][0]


SAMPLES = Samples(torch.ones(3, 64), torch.tensor([0, 1, 2]), 10, "toy", "train", np.arange(3))


@pytest.mark.parametrize(("kind", "expected"), [(Functional, True), (Layered, False), (Recurrent, True)])
def test_whatever_draws_is_seen_and_the_stream_stays(kind: type[nn.Module], expected: bool) -> None:
    module = kind()
    before = torch.get_rng_state()
    assert draws_by_itself(module, SAMPLES) == expected
    assert torch.equal(torch.get_rng_state(), before)
    assert draws_by_itself(nn.Linear(5, 2), SAMPLES) is False, "what fails is told where it is trained"


@pytest.mark.parametrize(("kind", "expected"), [(Functional, True), (Layered, False)])
def test_the_user_and_the_run_are_told(kind: type[nn.Module], expected: bool, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    data = draw.normal(size=(40, 64)).astype(np.float32), np.arange(40) % 10
    how = {"model": kind, "data": data, "rounds": 1, "clients": 2, "partition": "iid", "participation": 1.0}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", FedscopeWarning)
        run = fedscope.train(out=tmp_path / "run", **how)
    said = [str(one.message) for one in told if "torch's own stream" in str(one.message)]
    assert len(said) == expected
    if expected:
        assert said[0].endswith(
            "draws random numbers from torch's own stream while it trains, so its numbers differ between devices and "
            "from run to run; use nn.Dropout, whose masks fedscope draws from run.seed"
        )
    info = json.loads((run.path / "run.json").read_text(encoding="utf-8"))
    assert info.get("own_draws", False) is expected


class Noise(ClientMethod):
    """Noise of each gradient."""

    def noise(self, g: Tensor, task: LocalTask) -> Tensor:
        return torch.randn_like(g)

    def train(self, task: LocalTask) -> LocalUpdate:
        return local_sgd(task, self, correct=lambda w, g: g.add_(self.noise(g, task), alpha=0.01))


class SeededNoise(Noise):
    """As the sentence says, of NumPy's."""

    def noise(self, g: Tensor, task: LocalTask) -> Tensor:
        draw = np.random.default_rng((task.seed, task.round, task.client, task.draw))
        return torch.as_tensor(draw.normal(size=tuple(g.shape)), dtype=g.dtype)


class TorchSeededNoise(Noise):
    """A generator of torch's."""

    def noise(self, g: Tensor, task: LocalTask) -> Tensor:
        return torch.randn(g.shape, generator=torch.Generator().manual_seed(task.round), dtype=g.dtype)


class NoisyServer(ServerMethod):
    """Noise of the mean."""

    def drawn(self, size: int, cohort: Cohort) -> np.ndarray:
        return np.random.normal(0, 0.01, size)  # noqa: NPY002

    def step(self, state: State, start: Weights, clients: Weights, cohort: Cohort) -> Served:
        moved = start.parameters + mean_update(start, clients) + self.drawn(start.layout.size, cohort)
        return Served(moved.astype(start.layout.dtype))


class PythonServer(NoisyServer):
    def drawn(self, size: int, cohort: Cohort) -> np.ndarray:
        return np.full(size, 0.01 * random.random())


class SeededServer(NoisyServer):
    def drawn(self, size: int, cohort: Cohort) -> np.ndarray:
        return np.random.default_rng((cohort.seed, cohort.round)).normal(0, 0.01, size)


@pytest.mark.parametrize(
    ("given", "stream"),
    [
        ({"client": Noise}, "torch"),
        ({"server": NoisyServer}, "NumPy"),
        ({"server": PythonServer}, "Python"),
        ({"client": SeededNoise, "server": SeededServer}, ""),
        ({"client": TorchSeededNoise}, ""),
        ({"client": "scaffold", "server": "dare", "average": "ima", "model": Layered}, ""),
        ({"client": Noise, "model": Functional}, ""),  # of which it is said already
    ],
)
def test_methods_that_draw_from_a_shared_stream_are_told_of(given: Any, stream: str, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    data = draw.normal(size=(40, 64)).astype(np.float32), np.arange(40) % 10
    how: dict[str, Any] = {"data": data, "rounds": 2, "clients": 4, "partition": "iid", "participation": 1.0}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", FedscopeWarning)
        fedscope.train(out=tmp_path / "run", **how, **given)
    said = {str(one.message) for one in told if "'s own stream, which no seed" in str(one.message)}
    assert len(said) == bool(stream)
    sentence = (
        rf"a round of \S+:\w+ drew random numbers from {stream}'s own stream, which no seed of the run sets: where its "
        "numbers depend on them, they differ from run to run; draw them from a generator with a seed of its own in "
        r"each round: of a client np\.random\.default_rng\(\(task\.seed, task\.round, task\.client, task\.draw\)\), of "
        r"a server np\.random\.default_rng\(\(cohort\.seed, cohort\.round\)\), or "
        r"torch\.Generator\(\)\.manual_seed\(\.\.\.\) with a number drawn from it"
    )
    assert all(re.fullmatch(sentence, one) for one in said), said


def test_a_server_that_draws_as_advised_differs_between_seeds_and_is_made_again(tmp_path: Path) -> None:
    """A run that is trained again or resumed has its noise; a round that is aggregated again has it, too."""
    draw = np.random.default_rng(0)
    data = draw.normal(size=(40, 64)).astype(np.float32), np.arange(40) % 10
    how: dict[str, Any] = {"data": data, "rounds": 2, "clients": 4, "partition": "iid", "participation": 1.0}
    how |= {"server": SeededServer, "lr": 1e-9}
    runs = [fedscope.train(out=tmp_path / str(i), seed=s, **how) for i, s in enumerate((3, 3, 4))]
    models = [run.round(2).read("global").parameters - run.round(1).read("global").parameters for run in runs]
    np.testing.assert_array_equal(models[0], models[1])
    for run, seed, moved in zip(runs[1:], (3, 4), models[1:], strict=True):
        expected = np.random.default_rng((seed, 2)).normal(0, 0.01, moved.size)
        np.testing.assert_allclose(moved, expected, rtol=0, atol=1e-6)
        assert recorded_cohort(run, run.round(2), config_at(run, 2)).seed == seed


@pytest.mark.parametrize(
    "line", ["np.random.se ed(7)", "torch.random.manual_se ed(7)", "from own_se eds import se ed_all; se ed_all()"]
)
def test_a_file_that_seeds_the_shared_streams_is_not_told_about(line: str, tmp_path: Path, monkeypatch: Any) -> None:
    """Of the class, of its file, or of what it imports."""
    line = line.replace("se ed", "se" + "ed")  # in parts: this file seeds nothing
    name = f"seeds_itself_{abs(hash(line))}"
    (tmp_path / "own_seeds.py").write_text(
        "import numpy as np\n\n\ndef se ed_all():\n    np.random.se ed(3)\n".replace("se ed", "se" + "ed")
    )
    (tmp_path / f"{name}.py").write_text(
        "import numpy as np\n"
        "import torch\n"
        "from fedscope.methods import Served, ServerMethod, mean_update\n\n\n"
        "class Own(ServerMethod):\n"
        "    def step(self, state, start, clients, cohort):\n"
        f"        {line}\n"
        "        noise = np.random.normal(0, 0.01, start.layout.size) + torch.rand(1).numpy()\n"
        "        moved = start.parameters + mean_update(start, clients) + noise\n"
        "        return Served(moved.astype(start.layout.dtype))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    from importlib import import_module

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", FedscopeWarning)
        fedscope.train(out=tmp_path / "run", rounds=2, clients=2, server=import_module(name).Own, epochs=1)
    assert not [one for one in told if "own stream" in str(one.message)]
