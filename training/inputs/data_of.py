"""On whose data models are measured: a split, or with --data-of clients' own training data or all of theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...analysis.settings import EvaluationConfig
from ...checkpoints import Address, FedscopeError, Model, Run, nearest, parse_address
from ..data.membership import indices_of, refuse_outside
from .models import ModelLike, ResolvedModels, runs_of
from .samples import describe_samples, global_training_data, limit_samples, no_partition

if TYPE_CHECKING:
    from ...evaluation.samples import Samples
    from ..data.dataset import Dataset

#: all clients' training data, D, in names of files and columns
ALL = "all"
#: words of --data-of besides clients' numbers
WORDS = ("own", ALL, "every", "clients")


@dataclass(frozen=True)
class SampleSet:
    """One set of samples, not read yet.

    Attributes:
        name: in names of files, ``test``, ``client-3``, ``all``; "" for the only one.
        title: in words, ``test data``, ``client 3's data``.
        split: of the data.
        client: whose training samples, None for a whole split or all clients'.
    """

    name: str
    title: str
    split: str
    client: int | None = None

    @classmethod
    def of_client(cls, client: int) -> SampleSet:
        """Return a client's own training samples."""
        return cls(f"client-{client}", client_data(client), "train", client)

    def read(self, resolved: ResolvedModels | RunData, source: EvaluationConfig) -> tuple[Samples, dict[str, Any]]:
        """Read the samples, and what a result's provenance says of them.

        Raises:
            FedscopeError: --data that are not the client's; a client without samples.
        """
        seed = source.seed if source.limit else None
        if self.client is None and self.name != ALL:
            samples = limit_samples(resolved.dataset, replace(source, split=self.split))
            return samples, describe_samples(samples, seed)
        run = resolved.runs[0]
        partition = run.partition
        assert partition is not None, "the numbers were checked against it"
        # what a recorded run does not say of its data, --data has said; where it does, they were compared
        if not run.is_foreign and resolved.dataset.sha256 != run.info.get("data", {}).get("sha256"):
            whose = ALL if self.client is None else self.client
            gave = "its clients" if self.client is None else f"its client {self.client}"
            raise FedscopeError(
                f"--data-of {whose} takes what {run.path} gave {gave}, but --data names other data; leave out --data"
            )
        refuse_outside(partition, len(resolved.dataset.y_train), str(run.path), resolved.dataset.name)
        about: dict[str, Any] = {"clients": ALL} if self.client is None else {"client": self.client}
        if self.client is None:
            samples = global_training_data(resolved.dataset, run)
        else:
            rows = indices_of(partition, self.client)
            if not len(rows):
                raise FedscopeError(
                    f"client {self.client} of {run.path} has no training samples; ask for another one's"
                )
            whole = resolved.dataset.samples("train")
            samples = replace(whole, x=whole.x[rows], y=whole.y[rows], indices=rows)
        if source.limit is not None:
            samples = samples.limit(source.limit, source.seed)
        return samples, {**describe_samples(samples, seed), **about, "data_run": run.name}


def client_data(client: int) -> str:
    """Name a client's own samples."""
    return f"client {client}'s data"


def split_data(split: str) -> str:
    """Name a split, or all clients' data."""
    return "all clients' data" if split == ALL else f"{split} data"


def training_split(data_of: str | None, source: EvaluationConfig) -> None:
    """Refuse another split together with --data-of.

    Raises:
        FedscopeError: names both.
    """
    if data_of is not None and source.split != "train":
        raise FedscopeError(
            f"--data-of {data_of} is about training data, so --split {source.split} does not go with it; leave it out"
        )


def sample_sets(models: Sequence[ModelLike], source: EvaluationConfig, data_of: str | None) -> list[SampleSet]:
    """Return the sets that --split and --data-of ask for, for all models together.

    Args:
        models: of one surface.
        data_of: ``clients`` (those among the models), numbers of the first run's, ``client-3`` or ``3,8,11``, ``all``,
            ``every`` (each client of the models' round, and all) or ``own`` (of the one client among the models); None
            for whole splits.

    Raises:
        FedscopeError: data of clients of no run, of two runs, of clients that there are not.
    """
    if data_of is None:
        if source.split == "both":
            return [SampleSet(split, split_data(split), split) for split in ("test", "train")]
        return [SampleSet("", split_data(source.split), source.split)]
    return _Asked(data_of, models).together()


def same_partitions(models: Sequence[ModelLike], data_of: str) -> None:
    """Refuse models of runs that gave their clients other samples, where they are measured on these.

    Raises:
        FedscopeError: names two of the runs.
    """
    _Asked(data_of, models).same_partitions()


def sets_by_model(models: Sequence[ModelLike], data_of: str) -> list[list[SampleSet]]:
    """Return the sets that --data-of asks for, for each model: with ``own`` and ``every`` each has others.

    Raises:
        FedscopeError: as :func:`sample_sets`; ``own`` of a model that is no client's; ``every`` of one of no round;
            runs that gave their clients other samples.
    """
    asked = _Asked(data_of, models)
    asked.same_partitions()
    if asked.word not in ("own", "every"):
        return [asked.together()] * len(models)
    return [asked.for_one(model) for model in models]


@dataclass(frozen=True)
class RunData:
    """Runs, of which the first says whose data are whose, and their data: what whole rounds are measured on."""

    runs: tuple[Run, ...]
    dataset: Dataset


def sets_of_rounds(rounds: Sequence[tuple[Run, int]], data_of: str) -> list[list[SampleSet]]:
    """Return the sets that --data-of asks for, for each round's clients together.

    Args:
        data_of: ``own`` and ``clients`` are each client of the round, ``every`` these and all; the others as in
            :func:`sample_sets`.

    Raises:
        FedscopeError: as :func:`sets_by_model`.
    """
    addresses: list[ModelLike] = [f"{run.path}@{number}" for run, number in rounds]
    asked = _Asked(data_of, addresses)
    asked.same_partitions()
    return [asked.for_cohort(address) for address in addresses]


def read_sets(
    resolved: ResolvedModels | RunData, source: EvaluationConfig, sets: Sequence[SampleSet]
) -> dict[str, tuple[Samples, dict[str, Any]]]:
    """Read each set once, and what a result says of it, by its name."""
    return {one.name: one.read(resolved, source) for one in {one.name: one for one in sets}.values()}


def describe_sets(read: Mapping[str, tuple[Samples, dict[str, Any]]]) -> dict[str, Any]:
    """Describe the samples of places for a result's provenance: of one all of it, of several how many each has."""
    about = [about for _, about in read.values()]
    if len(about) == 1:
        return about[0]
    counts = {name: len(samples) for name, (samples, _) in read.items()}
    shared = {key: value for key, value in about[0].items() if key not in ("client", "clients", "samples")}
    return {**shared, "samples": max(counts.values()), "places": counts}


class _Asked:
    """What --data-of asks for, checked against the first run of the models.

    Attributes:
        word: of :data:`WORDS`; "" where clients are named, which ``numbers`` has.
    """

    def __init__(self, data_of: str, models: Sequence[ModelLike]) -> None:
        self.said, self.models = data_of, models
        self.runs = runs_of(models)
        if not self.runs:
            raise FedscopeError(f"--data-of {data_of} needs a run, which says whose data are whose; give RUN@ROUND")
        self.run = self.runs[0]
        if self.run.partition is None and self.run.is_foreign:
            raise no_partition(
                self.run,
                f"and --data-of {data_of} needs that; give the samples themselves with --data, and leave out --data-of",
            )
        self.run.require("partition.h5")
        assert self.run.partition is not None, "just required"
        self.count = len(self.run.partition.clients)
        self.word = data_of.strip() if data_of.strip() in WORDS else ""
        self.numbers = [] if self.word else self._numbers()

    def _numbers(self) -> list[int]:
        words = [word.strip() for word in self.said.split(",")]
        try:
            numbers = list(dict.fromkeys(int(word.removeprefix("client-")) for word in words))
        except ValueError:
            raise FedscopeError(
                f"--data-of {self.said} names no clients; write own, all, every or clients, or their numbers as in "
                f"client-7 or 3,8,11{nearest(self.said.strip(), WORDS)}"
            ) from None
        there = f"0 to {self.count - 1}" if self.count > 1 else "client 0 only"
        for k in numbers:
            if not 0 <= k < self.count:
                raise FedscopeError(f"--data-of {self.said}: {self.run.path} has no client {k}; it has {there}")
        return numbers

    def same_partitions(self) -> None:
        """Refuse runs that gave their clients other samples: their numbers would not be of the same data.

        Raises:
            FedscopeError: names two of them.
        """
        import numpy as np

        own = self.run.partition
        assert own is not None, "just required"
        for run in self.runs[1:]:
            run.require("partition.h5")
            other = run.partition
            assert other is not None, "just required"
            same = len(own.clients) == len(other.clients)
            if not same or not all(map(np.array_equal, own.clients, other.clients)):
                raise FedscopeError(
                    f"{self.run.path} and {run.path} gave their clients different samples, so --data-of {self.said} "
                    "names different data of each; ask for one of them at a time"
                )

    def together(self) -> list[SampleSet]:
        """Return the sets on which all models are measured."""
        if self.word == "clients":
            numbers = self._clients_among()
            if not numbers:
                raise FedscopeError(
                    "--data-of clients needs clients among the models, as in runs/ima@20/client-3; "
                    f"name the clients instead: {self._named()}"
                )
            return list(map(SampleSet.of_client, numbers))
        if self.word == "own":
            numbers = self._clients_among()
            if len(numbers) != 1:
                raise FedscopeError(
                    f"--data-of own is one client's data, but {len(numbers)} clients are among the models; "
                    f"--data-of clients gives one for each, and {self._named()} names them"
                )
            return list(map(SampleSet.of_client, numbers))
        if self.word == "every":
            cohorts = {tuple(self._cohort(model)) for model in self.models if _address(model).round is not None}
            if len(cohorts) > 1:
                raise FedscopeError(
                    "--data-of every is the cohort of one round, but the models are of rounds with different cohorts; "
                    f"name the clients: {self._named()}"
                )
            return self._every(next(iter(cohorts)))
        return [self._all()] if self.word == ALL else list(map(SampleSet.of_client, self.numbers))

    def for_one(self, model: ModelLike) -> list[SampleSet]:
        """Return the sets on which one model is measured."""
        address = _address(model)
        if self.word == "own":
            if address.which != "client" or len(address.clients) != 1:
                raise FedscopeError(
                    f"--data-of own is about clients' models, but {_name(model)} is no client's; give "
                    "RUN@ROUND/client-3, or --data-of every for a model on each client's data"
                )
            return [SampleSet.of_client(address.clients[0])]
        if address.round is None:
            raise FedscopeError(
                f"--data-of every is the cohort of a round, but {_name(model)} is of none; give RUN@ROUND, or name the "
                f"clients: {self._named()}"
            )
        return self._every(self._cohort(model))

    def for_cohort(self, model: ModelLike) -> list[SampleSet]:
        """Return the sets on which averages of a round's clients are measured."""
        if self.word in ("own", "clients"):
            return list(map(SampleSet.of_client, self._cohort(model)))
        return self._every(self._cohort(model)) if self.word == "every" else self.together()

    def _cohort(self, model: ModelLike) -> list[int]:
        """Return the clients of a model's round, which all have training samples."""
        address = _address(model)
        assert address.round is not None, "asked before"
        run = next((run for run in self.runs if run.path == Path(address.path)), self.run)
        ids = [int(k) for k in run.round(address.round).client_ids]
        assert run.partition is not None, "just required"
        for k in ids:
            if not len(run.partition.clients[k]):
                raise FedscopeError(
                    f"client {k} of {run.path} has no training samples, so --data-of {self.said} has none for it; give "
                    f"another round, or name clients that have some: {self._named(ids)}"
                )
        return ids

    def _named(self, among: Sequence[int] | None = None) -> str:
        """Name up to three clients that have samples, as the option takes them."""
        assert self.run.partition is not None, "just required"
        parts = self.run.partition.clients
        having = [k for k in (range(len(parts)) if among is None else among) if len(parts[k])]
        return f"--data-of {','.join(map(str, having[:3])) or ALL}"

    def _all(self) -> SampleSet:
        return SampleSet(ALL, split_data(ALL), "train")

    def _every(self, clients: Sequence[int]) -> list[SampleSet]:
        return [self._all(), *map(SampleSet.of_client, clients)]

    def _clients_among(self) -> list[int]:
        """Return the clients among the models, each once, all of one run."""
        clients = [address for address in map(_address, self.models) if address.which == "client"]
        paths = list(dict.fromkeys(Path(address.path) for address in clients))
        if len(paths) > 1 or (paths and paths[0] != self.run.path):
            raise FedscopeError(
                f"--data-of {self.word} is about one run's clients, but the models are of {self.run.path} and "
                f"{paths[-1]}; give the first run's numbers instead, as in {self._named()}"
            )
        return list(dict.fromkeys(k for address in clients for k in address.clients))


def _address(model: ModelLike) -> Address:
    """Take a model's address apart; one without a round for what is in memory."""
    name = _name(model)
    if isinstance(model, Model) and model.run is not None:
        return replace(parse_address(name), path=str(model.run.path), round=model.round)
    return parse_address(name) if isinstance(model, str | Path) else Address(name)


def _name(model: ModelLike) -> str:
    if isinstance(model, Model):
        return model.address
    return str(model) if isinstance(model, str | Path) else f"a {type(model).__name__}"
