"""Simulations of pfl, with the real package; test_pfl_long.py compares what they recorded.

Runs in an environment with pfl, torch and what recording needs. What local training ends with is written into
``sent/`` by the algorithm itself, before pfl puts the server's model back.

    python pfl_app.py FOLDER CASE...
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

USERS, COHORT, ROUNDS = 7, 4, 3
CASES = ("plain", "weighted", "fedprox", "scaffold", "adam", "private", "evaluated", "anonymous", "replaced", "reptile")


def module() -> Any:
    """A network with statistics, as pfl asks for one."""

    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Linear(5, 4)
            self.norm = torch.nn.BatchNorm1d(4)
            self.last = torch.nn.Linear(4, 3)

        def forward(self, x: Any) -> Any:
            return self.last(torch.relu(self.norm(self.first(x))))

        def loss(self, x: Any, y: Any, eval: bool = False) -> Any:
            return torch.nn.functional.cross_entropy(self(x), y)

        @torch.no_grad()
        def metrics(self, x: Any, y: Any, eval: bool = False) -> Any:
            from pfl.metrics import Weighted

            self.eval()
            answers = self(x)
            self.train()
            right = float((answers.argmax(1) == y).float().sum())
            loss = float(torch.nn.functional.cross_entropy(answers, y)) * len(y)
            return {"loss": Weighted(loss, len(y)), "accuracy": Weighted(right, len(y))}

    torch.manual_seed(0)
    return Module()


def algorithm_of(case: str, folder: Path) -> tuple[Any, Any]:
    """An algorithm and its parameters; what its local training ends with is written."""
    from pfl.algorithm.base import NNAlgorithmParams, PersonalizedNNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.algorithm.fedprox import FedProx, FedProxParams
    from pfl.algorithm.reptile import Reptile
    from pfl.algorithm.scaffold import SCAFFOLD, SCAFFOLDParams

    words: dict[str, Any] = {
        "central_num_iterations": ROUNDS,
        "evaluation_frequency": 1,
        "train_cohort_size": COHORT,
        "val_cohort_size": 2,
    }
    if case == "fedprox":
        kind, params = FedProx, FedProxParams(mu=0.1, **words)
    elif case == "scaffold":
        from pfl.data.user_state import InMemoryUserStateStorage

        storage = InMemoryUserStateStorage()
        options = {"population": USERS, "use_gradient_as_control_variate": False, "user_state_storage": storage}
        kind, params = SCAFFOLD, SCAFFOLDParams(**options, **words)
    elif case == "reptile":
        split = {"val_split_fraction": 0.8, "min_train_size": 1, "min_val_size": 1}
        kind, params = Reptile, PersonalizedNNAlgorithmParams(**split, **words)
    else:
        kind, params = FederatedAveraging, NNAlgorithmParams(**words)

    class Writing(kind):  # type: ignore[misc, valid-type]
        def train_one_user(self, initial: Any, model: Any, user_dataset: Any, central_context: Any) -> Any:
            made = super().train_one_user(initial, model, user_dataset, central_context)
            if central_context.population.value == "train":
                t, k = central_context.current_central_iteration, user_dataset.user_id
                draws = len(list(folder.glob(f"{t}-*.npz")))
                state = {name: value.numpy() for name, value in model.pytorch_model.state_dict().items()}
                np.savez(folder / f"{t}-{draws}-{k}.npz", **state)
            return made

    Writing.__name__ = kind.__name__
    return Writing(), params


def play(folder: Path, case: str) -> None:
    """One case, recorded."""
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.aggregate.weighting import WeightByDatapoints
    from pfl.callback.base import TrainingProcessCallback
    from pfl.callback.central_evaluation import CentralEvaluationCallback
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.pytorch import PyTorchTensorDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel
    from pfl.privacy.privacy_mechanism import NormClippingOnly

    import fedscope

    here = folder / case
    (here / "sent").mkdir(parents=True)
    draw = torch.Generator().manual_seed(1)

    def samples(count: int) -> list[Any]:
        return [torch.randn(count, 5, generator=draw), torch.randint(0, 3, (count,), generator=draw)]

    def user(k: int) -> Any:
        name = None if case == "anonymous" else f"user-{k}"
        return PyTorchTensorDataset(samples(10 * (k + 1)), user_id=name)

    class Global(TrainingProcessCallback):  # type: ignore[misc]
        def after_central_iteration(self, aggregate_metrics: Any, model: Any, *, central_iteration: int) -> Any:
            state = {name: value.numpy() for name, value in model.pytorch_model.state_dict().items()}
            np.savez(here / "sent" / f"global-{central_iteration}.npz", **state)
            return False, Metrics()

    users = [user(k) for k in range(USERS)]
    kind = "random" if case == "replaced" else "minimize_reuse"
    np.random.seed(2 if case == "replaced" else 0)  # noqa: NPY002, whose numbers pfl draws
    data = FederatedDataset(lambda k: users[k], get_user_sampler(kind, list(range(USERS if kind != "random" else 2))))
    postprocessors: list[Any] = [] if case == "plain" else [WeightByDatapoints()]
    if case == "private":
        postprocessors.append(NormClippingOnly(2.0, 0.01))
    backend = SimulatedBackend(data, data, postprocessors=postprocessors)
    net = module()
    central: Any = torch.optim.Adam(net.parameters(), 0.1) if case == "adam" else torch.optim.SGD(net.parameters(), 1.0)
    model = PyTorchModel(net, torch.optim.SGD, central)
    train = NNTrainHyperParams(local_batch_size=4, local_num_epochs=2, local_learning_rate=0.1)
    callbacks: list[Any] = [Global()]
    if case == "evaluated":
        held_out = Dataset(raw_data=samples(20), eval_kwargs={"eval": True})
        callbacks.insert(0, CentralEvaluationCallback(held_out, NNEvalHyperParams(local_batch_size=None)))
    algorithm, params = algorithm_of(case, here / "sent")
    fedscope.record_pfl(algorithm, here / "run")
    options: Callable[..., Any] = algorithm.run
    options(
        params,
        backend,
        model,
        train,
        NNEvalHyperParams(local_batch_size=None),
        callbacks=callbacks,
        send_metrics_to_platform=False,
    )


def main(folder: Path, cases: list[str]) -> None:
    """Play them."""
    found = {}
    for case in cases:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            play(folder, case)
        found[case] = [str(one.message) for one in told if one.category.__name__ == "FedscopeWarning"]
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or list(CASES))
