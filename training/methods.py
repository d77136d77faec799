"""What a client, server or average method supplies. Any client x any server x any average composes.

A method is a frozen dataclass of hyper-parameters with functions over explicit state; the round loop
(:mod:`fedscope.training.federation`) is written once and calls them. A file on a shelf (``clients/``, ``servers/``,
``averages/``) names its class ``PROVIDES``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

import numpy as np

from ..checkpoints import Weights
from .settings import Settings, setting

if TYPE_CHECKING:
    from .local import LocalTask, LocalUpdate

State = Mapping[str, np.ndarray]


class Pace(NamedTuple):
    """How fast a round's clients move: learning rate eta_t and number of local epochs."""

    lr: float
    epochs: int


@dataclass(frozen=True)
class ClientMethod(Settings):
    """What a client minimises and how it steps. These seven settings are common to all client methods.

    Momentum and weight decay are those of the authors' code of Zhou et al. (IEEE TMC 2024). Their batch is 50; here it
    is 20, because a client of the embedded digits has 29 samples, and with one full batch an epoch nothing is left to
    shuffle, so that replays would show no variance.
    """

    section: ClassVar[str] = "client"

    epochs: int = setting(5, "local epochs a round", least=1)
    batch: int = setting(20, "mini-batch size; a client with fewer samples takes them all in one", least=1)
    lr: float = setting(0.05, "learning rate of round 1 (eta_0)", above=0)
    lr_decay: float = setting(0.0, "decay a round: eta_t = eta_0 (1 - d)^(t-1)", least=0, below=1)
    momentum: float = setting(0.9, "momentum of the local steps, fresh each round", least=0, below=1)
    weight_decay: float = setting(1e-3, "L2 penalty added to the gradient", least=0)
    clip: float = setting(0.0, "greatest norm of the mini-batch gradient; 0 clips nothing", least=0)

    def pace(self, round: int) -> Pace:
        """eta_t = eta_0 (1 - d)^(t-1) and the number of epochs of round t."""
        return Pace(self.lr * (1 - self.lr_decay) ** (round - 1), self.epochs)

    def train(self, task: LocalTask) -> LocalUpdate:
        """Train one client from the model it was sent."""
        raise NotImplementedError


@dataclass(frozen=True)
class Cohort:
    """What a server sees of a round besides the models: who took part, with how much, and the weights p."""

    round: int
    client_ids: np.ndarray
    samples: np.ndarray
    steps: np.ndarray
    p: np.ndarray
    clients: int = 0
    lr: float = 0.0


@dataclass(frozen=True)
class Served:
    """A server step's outcome: the next global parameters [P] and the state to keep."""

    parameters: np.ndarray
    state: State = field(default_factory=dict)


@dataclass(frozen=True)
class ServerMethod(Settings):
    """How client rows [C, P] become the next row."""

    section: ClassVar[str] = "server"

    weighting: Literal["samples", "uniform"] = setting("samples", "p: proportional to n_i, or equal")

    def init(self, w: np.ndarray) -> State:
        """The state before the first round; ``w`` [P] is the initial model."""
        return {}

    def weights(self, samples: np.ndarray) -> np.ndarray:
        """p [C]: n_i / sum n, or 1/C."""
        if self.weighting == "uniform":
            return np.full(len(samples), 1 / len(samples))
        return np.asarray(samples / samples.sum(), dtype=np.float64)

    def step(self, state: State, start: Weights, clients: Weights, cohort: Cohort) -> Served:
        """One server step from the clients' models after local training."""
        raise NotImplementedError


@dataclass(frozen=True)
class AverageMethod(Settings):
    """What is averaged over rounds, and whether the next round starts from it."""

    section: ClassVar[str] = "average"

    def resolve(self, rounds: int) -> AverageMethod:
        """Fill in what depends on the number of rounds, once, when a run is created."""
        return self

    def explore_pace(self, round: int, pace: Pace, client: ClientMethod) -> Pace:
        """The pace of round t; by default the client's own."""
        return pace

    def average(self, round: int, globals_: Sequence[Weights]) -> Weights | None:
        """``averaged`` of round t from the last globals (oldest first, round t's last), or None before it exists."""
        return None

    def restarts(self, round: int) -> bool:
        """Whether round t starts from the previous round's ``averaged``."""
        return False

    def window_size(self) -> int:
        """How many of the last globals :meth:`average` needs."""
        return 0
