"""Simulations of BlazeFL, with the real package; test_blazefl_long.py compares what they recorded.

Runs in an environment with BlazeFL, torch and what recording needs. The loop of rounds is that of BlazeFL's own
examples; it writes what clients send, and the server's model before and after each round, into ``sent/``, as the flat
vectors that BlazeFL makes of them.

    python blazefl_app.py FOLDER CASE...
"""

from __future__ import annotations

import json
import sys
import warnings
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import torch
from blazefl.contrib.fedavg import (
    FedAvgBaseClientTrainer,
    FedAvgBaseServerHandler,
    FedAvgDownlinkPackage,
    FedAvgProcessPoolClientTrainer,
    FedAvgThreadPoolClientTrainer,
)
from blazefl.core import IPCMode, deserialize_model, serialize_model
from torch.utils.data import DataLoader, TensorDataset

import fedscope

CLIENTS, ROUNDS, RATIO, EPOCHS = 7, 3, 0.6, 2
CASES = ("serial", "plain", "threads", "storage", "shared", "momentum", "named", "half", "careless", "late", "logits")


class Name(StrEnum):
    """Of the one network."""

    NET = "net"


class Selector:
    """Makes a network with statistics, the same each time."""

    def select_model(self, model_name: Name) -> torch.nn.Module:
        torch.manual_seed(0)
        first, last = torch.nn.Linear(5, 4), torch.nn.Linear(4, 3)
        return torch.nn.Sequential(first, torch.nn.BatchNorm1d(4), torch.nn.ReLU(), last)


class Data:
    """Client k has 10 (k + 1) samples; the server's test split 40."""

    def get_dataset(self, type_: str, cid: int | None) -> TensorDataset:
        draw = torch.Generator().manual_seed(1000 if cid is None else cid)
        count = 40 if cid is None else 10 * (cid + 1)
        return TensorDataset(torch.randn(count, 5, generator=draw), torch.randint(0, 3, (count,), generator=draw))

    def set_dataset(self, type_: str, cid: int | None, dataset: Any) -> None:
        """Samples do not change."""

    def get_dataloader(self, type_: str, cid: int | None, batch_size: int | None, generator: Any = None) -> DataLoader:
        return DataLoader(self.get_dataset(type_, cid), batch_size, shuffle=cid is not None, generator=generator)


# --- servers of one's own ---


class Momentum(FedAvgBaseServerHandler):
    """A server with momentum over the mean of the parameters, as FedAvgM; statistics are averaged."""

    velocity: Any = None

    def global_update(self, buffer: list[Any]) -> None:
        before = serialize_model(self.model)
        super().global_update(buffer)
        step = serialize_model(self.model) - before
        self.velocity = step if self.velocity is None else 0.5 * self.velocity + step
        statistics = serialize_model(self.model)
        deserialize_model(self.model, before + self.velocity)
        moved = {name: value.clone() for name, value in self.model.named_parameters()}
        deserialize_model(self.model, statistics)
        for name, value in self.model.named_parameters():
            value.data.copy_(moved[name])


@dataclass(slots=True)
class Sent:
    """A package with names, and no number of samples."""

    state: dict[str, torch.Tensor]
    cid: int = -1


class Named(FedAvgBaseServerHandler):
    """Sends and takes a ``state_dict``, and spoils no counter."""

    def downlink_package(self) -> Any:
        return Sent(dict(self.model.state_dict()))  # not copied

    def global_update(self, buffer: list[Any]) -> None:
        mean = {
            name: torch.stack([one.state[name].double() for one in buffer]).mean(0).to(value.dtype)
            for name, value in self.model.state_dict().items()
        }
        self.model.load_state_dict(mean)


class Careless(FedAvgBaseServerHandler):
    """Uses what clients sent as its scratch."""

    def global_update(self, buffer: list[Any]) -> None:
        super().global_update(buffer)
        for one in buffer:
            one.model_parameters.zero_()


class Half(FedAvgBaseServerHandler):
    """Sends half precision."""

    def downlink_package(self) -> Any:
        return FedAvgDownlinkPackage(serialize_model(self.model).half())


@dataclass
class Logits:
    """What distillation sends."""

    cid: int
    soft_labels: torch.Tensor


class Distils(FedAvgBaseServerHandler):
    """Makes nothing of what it is sent."""

    def global_update(self, buffer: list[Any]) -> None:
        assert all(isinstance(one, Logits) for one in buffer)


HANDLERS = {"momentum": Momentum, "named": Named, "careless": Careless, "half": Half, "logits": Distils}


# --- clients ---


class Serial(FedAvgBaseClientTrainer):
    """Speaks each server's own packages."""

    def __init__(self, case: str, *given: Any) -> None:
        super().__init__(*given)
        self.case = case

    def local_process(self, payload: Any, cid_list: list[int]) -> None:
        if self.case == "named":
            deserialize_model(self.model, torch.cat([one.reshape(-1) for one in payload.state.values()]))
            payload = FedAvgDownlinkPackage(serialize_model(self.model))
        if self.case == "half":
            payload = FedAvgDownlinkPackage(payload.model_parameters.float())
        super().local_process(payload, cid_list)
        if self.case == "named":
            self.cache = [Sent(self._state(one.model_parameters), one.cid) for one in self.cache]
        if self.case == "logits":
            self.cache = [Logits(one.cid, torch.zeros(40, 3)) for one in self.cache]

    def _state(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        deserialize_model(self.model, flat)
        return {name: value.clone() for name, value in self.model.state_dict().items()}


def trainer_of(case: str, folder: Path) -> Any:
    """The clients of a case."""
    about = (Selector(), Name.NET)
    if case in ("storage", "shared"):
        mode = IPCMode.STORAGE if case == "storage" else IPCMode.SHARED_MEMORY
        places = (folder / "share", folder / "state")
        return FedAvgProcessPoolClientTrainer(*about, *places, Data(), "cpu", CLIENTS, EPOCHS, 5, 0.1, 0, 2, mode)
    if case == "threads":
        return FedAvgThreadPoolClientTrainer(*about, Data(), "cpu", CLIENTS, EPOCHS, 5, 0.1, 0, 2)
    return Serial(case, *about, Data(), "cpu", CLIENTS, EPOCHS, 5, 0.1, 0)


def flat(package: Any) -> np.ndarray:
    """What a client sent, as one vector."""
    if isinstance(package, Sent):
        return torch.cat([value.reshape(-1) for value in package.state.values()]).numpy().copy()
    if isinstance(package, Logits):
        return np.zeros(0)
    return package.model_parameters.numpy().copy()


def play(folder: Path, case: str) -> list[Any]:
    """One case, recorded but for "plain"; gives what the server says of its model after each round."""
    here = folder / case
    (here / "sent").mkdir(parents=True)
    kind = HANDLERS.get(case, FedAvgBaseServerHandler)
    words: dict[str, Any] = {"global_round": ROUNDS, "num_clients": CLIENTS, "sample_ratio": RATIO, "seed": 0}
    handler = kind(Selector(), Name.NET, Data(), device="cpu", batch_size=10, **words)
    if case != "plain":
        fedscope.record_blazefl(handler, here / "run")
    trainer, said, lost = trainer_of(case, here), [], case == "late"
    while not handler.if_stop():
        cohort = handler.sample_clients()
        number, package = handler.round, handler.downlink_package()
        np.save(here / "sent" / f"start-{number}.npy", serialize_model(handler.model).numpy())
        trainer.local_process(package, cohort)
        sent = trainer.uplink_package()
        if lost:  # one client is never heard of again, so that the handler waits for one of the next cohort
            sent, lost = sent[1:], False
        for one in sent:
            np.save(here / "sent" / f"{handler.round}-{one.cid}.npy", flat(one))
            if handler.load(one):
                np.save(here / "sent" / f"global-{number}.npy", serialize_model(handler.model).numpy())
                said.append([handler.round - 1, handler.get_summary()])
    return said


def main(folder: Path, cases: list[str]) -> None:
    """Play them."""
    found = {}
    for case in cases:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            said = play(folder, case)
        warned = [str(one.message) for one in told if one.category.__name__ == "FedscopeWarning"]
        found[case] = {"warned": warned, "said": said}
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or list(CASES))
