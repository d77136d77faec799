"""Inputs of planes: three models, all clients of a round, a run's global models or one; and the sets of samples
that one surface is measured on, a split, both, or single clients' own data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...analysis.runs import is_range, open_run, parse_rounds
from ...analysis.settings import EvaluationConfig
from ...checkpoints import FedscopeError, Model, Run, parse_address, recorded_clients
from ...checkpoints.rounds.round import few_of
from ...training.inputs.models import ModelLike, ResolvedModels, clients_of, names_of, runs_of
from ...training.inputs.samples import describe_samples, limit_samples
from .panel_names import client_data, globals_title, round_title, split_data

if TYPE_CHECKING:
    from ...evaluation.samples import Samples

#: what each kind of plane takes
TAKES = {"clients": "one round, RUN@ROUND", "trajectory": "one run, RUN", "random": "one model"}


@dataclass(frozen=True)
class PlaneModels:
    """The models of one plane.

    Attributes:
        kind: ``models``, ``clients``, ``trajectory`` or ``random``.
        members: that it is made from; shown: further ones.
        title: above its panel; "" for a plane that stands alone.
        end: what stands behind the base in the names of its files.
    """

    kind: str
    members: tuple[ModelLike, ...]
    shown: tuple[ModelLike, ...] = ()
    title: str = ""
    end: str = ""


def plane_models(models: Sequence[ModelLike], kind: str, rounds: str | None, shown: Sequence[ModelLike]) -> PlaneModels:
    """Return the models of the one plane that is asked for.

    Args:
        kind: see :class:`PlaneModels`.
        rounds: of a trajectory.

    Raises:
        FedscopeError: another number of models; rounds without their models.
    """
    if kind in TAKES and len(models) != 1:
        raise FedscopeError(f"--{kind} takes {TAKES[kind]}, but got {len(models)}: {' '.join(names_of(models))}")
    if kind == "models" and len(models) != 3:
        raise FedscopeError(
            f"a plane goes through three models, but got {len(models)}; give A B C, or a run and --rounds, "
            "RUN@ROUND and --clients, RUN and --trajectory, or a model and --random"
        )
    members = list(models)
    if kind == "clients":
        members = clients_of(models)
    if kind == "trajectory":
        members = _trajectory(names_of(models)[0], rounds or "all")
    return PlaneModels(kind, tuple(members), tuple(shown))


def _trajectory(path: str, rounds: str) -> list[ModelLike]:
    """Return the global models of a run's rounds."""
    run = open_run(path)
    have = tuple(t for t in run.rounds if "global" in run.round(t).models)
    numbers = parse_rounds(rounds, run.rounds if is_range(rounds) else have, path)
    numbers = [t for t in numbers if t in have]
    if len(numbers) < 3:
        raise FedscopeError(
            f"a trajectory's plane needs at least three rounds, but --rounds {rounds} of {path} are "
            f"{len(numbers)}, and the global models of {len(have)} rounds are recorded; ask for more"
            if len(have) >= 3
            else f"a trajectory's plane needs three rounds' global models, but {path} has recorded {len(have)}; train "
            "with record.globals = all"
        )
    return [f"{path}@{t}/global" for t in numbers]


def panels_of(run: Run, path: str, rounds: str, end: str) -> list[PlaneModels]:
    """A run's panels: three clients of each round, then the last three global models with the deployed one shown.

    Args:
        path: of the run as it was given.
        end: begins every panel's.

    Raises:
        FedscopeError: rounds that the run does not have, or with fewer than three clients.
    """
    panels = []
    for number in parse_rounds(rounds, run.rounds, path):
        round_ = run.round(number)
        # a plane through three says nothing of the others, so that three of a sample do
        few = round_.has_sample
        kept = round_.sampled_ids if few else recorded_clients(run, number, start=False).client_ids
        ids = [int(k) for k in kept]
        if few and len(ids) < 3 <= len(round_.client_ids):
            raise FedscopeError(
                f"{path}@{number}: {few_of(round_)}, but a plane needs three; keep more of every round, sample:3, or "
                "all of some rounds"
            )
        if len(ids) < 3:
            raise FedscopeError(
                f"{path}@{number} has a cohort of {len(ids)}, but a plane needs three clients; {run.larger_cohorts}"
            )
        anchors = tuple(f"{path}@{number}/client-{k}" for k in ids[:3])
        panels.append(PlaneModels("models", anchors, (), round_title(number), f"{end}.round-{number}"))
    have = [t for t in run.rounds if "global" in run.round(t).models]
    if len(have) >= 3:
        anchors = tuple(f"{path}@{t}/global" for t in have[-3:])
        shown = (f"{path}@{have[-1]}/averaged",) if "averaged" in run.round(have[-1]).models else ()
        panels.append(PlaneModels("models", anchors, shown, globals_title(have[-3], have[-1]), f"{end}.globals"))
    return panels


@dataclass(frozen=True)
class SampleSet:
    """One set of samples, not read yet.

    Attributes:
        name: in names of files, ``test``, ``client-3``; "" for the only one.
        title: in words, ``test data``, ``client 3's data``.
        split: of the data.
        client: whose training samples, None for a whole split.
    """

    name: str
    title: str
    split: str
    client: int | None = None

    def read(self, posed: ResolvedModels, source: EvaluationConfig) -> tuple[Samples, dict[str, Any]]:
        """Read the samples, and what a result's provenance says of them.

        Raises:
            FedscopeError: --data that are not the client's; a client without samples.
        """
        seed = source.seed if source.limit else None
        if self.client is None:
            samples = limit_samples(posed.dataset, replace(source, split=self.split))
            return samples, describe_samples(samples, seed)
        run, k = posed.runs[0], self.client
        if posed.dataset.sha256 != run.info.get("data", {}).get("sha256"):
            raise FedscopeError(
                f"--data-of {k} takes what {run.path} gave its client {k}, but --data names other data; leave out "
                "--data"
            )
        assert run.partition is not None, "the numbers were checked against it"
        rows = run.partition.clients[k]
        if not len(rows):
            raise FedscopeError(f"client {k} of {run.path} has no training samples; ask for another one's")
        whole = posed.dataset.samples("train")
        samples = replace(whole, x=whole.x[rows], y=whole.y[rows], indices=rows)
        if source.limit is not None:
            samples = samples.limit(source.limit, source.seed)
        return samples, {**describe_samples(samples, seed), "client": k, "data_run": run.name}


def sample_sets(models: Sequence[ModelLike], source: EvaluationConfig, data_of: str | None) -> list[SampleSet]:
    """Return the sets that --split and --data-of ask for.

    Args:
        models: of the surface.
        data_of: ``clients`` (those among the models) or numbers of the first run's, ``3,8,11``; None for whole splits.

    Raises:
        FedscopeError: data of clients of no run, of two runs, of clients that there are not.
    """
    if data_of is not None:
        runs = runs_of(models)
        if not runs:
            raise FedscopeError(f"--data-of {data_of} needs a run, which says whose data are whose; give RUN@ROUND")
        clients = _numbers(data_of, models, runs[0])
        return [SampleSet(f"client-{k}", client_data(k), "train", k) for k in clients]
    if source.split == "both":
        return [SampleSet(split, split_data(split), split) for split in ("test", "train")]
    return [SampleSet("", split_data(source.split), source.split)]


def _numbers(data_of: str, models: Sequence[ModelLike], run: Run) -> list[int]:
    run.require("partition.h5")
    assert run.partition is not None, "just required"
    count = len(run.partition.clients)
    if data_of.strip() == "clients":
        cohort = _cohort(models, run)
        if not cohort:
            raise FedscopeError(
                "--data-of clients needs clients among the models, as in runs/ima@20/client-3; "
                "name the clients instead: --data-of 3,8,11"
            )
        return cohort
    try:
        numbers = list(dict.fromkeys(int(word) for word in data_of.split(",")))
    except ValueError:
        raise FedscopeError(
            f"--data-of {data_of} names no clients; write clients, or their numbers as in 3,8,11"
        ) from None
    there = f"0 to {count - 1}" if count > 1 else "client 0 only"
    for k in numbers:
        if not 0 <= k < count:
            raise FedscopeError(f"--data-of {data_of}: {run.path} has no client {k}; it has {there}")
    return numbers


def _cohort(models: Sequence[ModelLike], run: Run) -> list[int]:
    """Return the clients among the models, each once, all of one run."""
    named = [model.address if isinstance(model, Model) and model.run is not None else model for model in models]
    addresses = [parse_address(name) for name in named if isinstance(name, str)]
    clients = [address for address in addresses if address.which == "client"]
    paths = list(dict.fromkeys(Path(address.path) for address in clients))
    if len(paths) > 1 or (paths and paths[0] != run.path):
        raise FedscopeError(
            f"--data-of clients is about one run's clients, but the models are of {run.path} and {paths[-1]}; give the "
            "first run's numbers instead, as in --data-of 3,8,11"
        )
    return list(dict.fromkeys(k for address in clients for k in address.clients))
