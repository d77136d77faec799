"""The sections of a configuration that no method fills: what is learnt, how long, and what is kept of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from ...checkpoints import FedscopeError, RetentionPolicy
from ...checkpoints.io.given_values import plain_device
from ...checkpoints.recorder.inputs import spell_data
from ...checkpoints.rounds.sketches import refuse_size
from ...evaluation.device import precision_word
from ..data.split import parse_partition
from ..settings.own_code import OwnCode
from ..settings.settings import Settings, setting


@dataclass(frozen=True)
class DataConfig(Settings):
    """[data]: the data, and how they are split over the clients."""

    section: ClassVar[str] = "data"

    name: str = setting("digits", "digits, a published set such as cifar10, a file.npz, or folder:PATH")
    partition: str = setting(
        "shards:2",
        "iid, shards:c,size, pathological:c, dirichlet:a, dirichlet-clients:a, pachinko, natural, domains:m or "
        "flwr:NAME,key=value",
    )
    clients: int = setting(50, "N, the number of clients", least=1)
    client_test: float = setting(0.0, "share of each client's samples set aside as its test part", least=0, below=1)
    share: float = setting(1.0, "share of the training samples to use, drawn class by class", above=0, most=1)
    pool: bool = setting(
        False,
        "split training and test samples together over the clients; models are tested on the clients' test parts",
    )
    augment: Literal["none", "crop-flip"] = setting("none", "random crops and flips of training images")
    seed: int = setting(0, "seed of the partition and of the sequence of cohorts", least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "name", self.name if isinstance(self.name, OwnCode) else spell_data(self.name))
        object.__setattr__(self, "partition", parse_partition(self.partition).written())

    def resolved(self) -> DataConfig:
        """With what the partition's own package says of parameters that were not given.

        Raises:
            FedscopeError: what :meth:`fedscope.training.data.partitioner.Partitioner.resolved` refuses.
        """
        return replace(self, partition=parse_partition(self.partition).resolved().written())


@dataclass(frozen=True)
class RunConfig(Settings):
    """[run]: length, size of the cohorts, and device."""

    section: ClassVar[str] = "run"

    rounds: int = setting(60, "R, the number of rounds", least=1, most=10**6)
    participation: float = setting(0.2, "share of the clients in a round's cohort", above=0, most=1)
    seed: int = setting(0, "seed of the initial model, batch orders and augmentation", least=0)
    device: str = setting("auto", "cpu, cuda, mps, xpu, or auto (the accelerator if it has float64, else cpu)")
    engine: Literal["auto", "threads", "device", "cohort"] = setting(
        "auto",
        "`threads`: one single-threaded worker per core. `device`: one client at a time on the accelerator. `cohort`: "
        "up to 32 clients per pass, for small models. `auto`: a fixed rule of method, model, cohort and device",
    )
    precision: Literal["float32", "tf32", "bf16"] = setting(
        "float32", "precision of matrix products in training; tf32 matters only on a GPU"
    )
    evaluate_every: int = setting(1, "test the models every this many rounds, and after the last", least=1)
    evaluate_clients: int = setting(
        1000, "number of test samples (seeded, stratified) for the clients' models; 0: none", least=0
    )
    evaluate_all: str | tuple[int, ...] = setting(
        "none",
        "rounds after which all clients are tested on their own test parts (data.client_test): "
        '"1,20,last", "every:N", "last:N", "all", "none" or a list',
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "device", plain_device(self.device, several=True))
        object.__setattr__(self, "precision", precision_word(self.precision))
        super().__post_init__()
        beyond = [number for number in self._all().rounds if number > self.rounds]
        if beyond:
            raise FedscopeError(
                f"run.evaluate_all names round {beyond[0]}, but the run has {self.rounds}; give rounds up to that, "
                '"last" for the last one, or more --rounds'
            )

    def _all(self) -> RetentionPolicy:
        return RetentionPolicy.parse(self.evaluate_all, place="run.evaluate_all")

    def evaluates_all(self, round: int | None = None) -> bool:
        """Check whether all clients are tested after a round; without one, after any."""
        policy = self._all()
        return policy.kind != "none" if round is None else policy.keeps(round, self.rounds)


@dataclass(frozen=True)
class RecordConfig(Settings):
    """[record]: what is kept of each round."""

    section: ClassVar[str] = "record"

    clients: str | tuple[int, ...] = setting(
        "all",
        'rounds whose clients are kept: "all", "none", "every:N", "last:N" or a list; "sample:m": m clients of every '
        "round",
    )
    globals: str | tuple[int, ...] = setting(
        "all", "rounds whose global models are kept, written likewise; the last is always kept"
    )
    compression: Literal["none", "delta"] = setting("none", "delta: clients as bit-exact differences from the start")
    sketch: int = setting(
        0,
        "k: keep k numbers of every client of every round, to estimate lengths, angles and distances; 0: none",
        least=0,
    )

    drift: bool = setting(
        False,
        "measure each round how far clients' updates agree, in columns drift_* of metrics.csv, and show it",
        before=False,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.policies()
        refuse_size(self.sketch, "record.sketch")

    def policies(self) -> tuple[RetentionPolicy, RetentionPolicy]:
        """Parse which rounds' clients and which rounds' globals are kept."""
        return RetentionPolicy.parse(self.clients, place="record.clients"), RetentionPolicy.parse(
            self.globals, place="record.globals"
        )
