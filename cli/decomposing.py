"""What ``fedscope decompose`` does with one run, or with the runs that are draws of one thing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from ..asking.draws import Draws
from ..asking.samples import global_training_data
from ..asking.source import Source
from .factors import error_curves

if TYPE_CHECKING:
    from torch import nn

    from ..asking.replaying import Replays
    from ..checkpoints import Partial, Partition, Round, Run
    from ..decomposition import CohortDraws, Outputs, RoundFactors, RunFactors
    from ..landscape import Samples
    from ..training import Dataset, Replayer


@dataclass(frozen=True)
class Asked:
    """What is to be decomposed.

    Attributes:
        draws: where the draws come from.
        models: ``global``, ``averaged`` or both.
        loss: ``squared``, ``cross-entropy``, ``zero-one``.
        outputs: of which the squared loss is taken.
        on: whose training data are D: of ``all`` clients, or of the ``cohort``.
    """

    draws: Draws
    models: tuple[str, ...] = ("global",)
    loss: Literal["squared", "cross-entropy", "zero-one"] = "squared"
    outputs: Outputs = "probabilities"
    on: str = "all"


@dataclass(frozen=True)
class Ready:
    """A group of runs, opened: what every round of it is measured with; the first run stands for all.

    Attributes:
        replayer: for ``local`` draws, else None; so is ``replays``, which says what they cost.
        cohorts: the draws of the rounds that the last decomposed model was made of; neighbours share most of them.
    """

    runs: Sequence[Run]
    asked: Asked
    source: Source
    device: str
    dataset: Dataset
    module: nn.Module
    replayer: Replayer | None
    replays: Replays | None
    cohorts: dict[int, CohortDraws] = field(default_factory=dict)

    @property
    def run(self) -> Run:
        """The one that stands for all."""
        return self.runs[0]

    @property
    def name(self) -> str:
        """Of the group, in tables and figures."""
        return "+".join(run.name for run in self.runs)

    def key(self, number: int, model: str) -> str:
        """Of a finished round in the store."""
        return key_of(self.runs, number, model)

    def draw(self, number: int) -> CohortDraws:
        """The draws of a round's cohort."""
        from ..decomposition import draws_of_rounds, draws_of_runs
        from .progress import progress

        if number not in self.cohorts:
            match self.asked.draws.kind:
                case "runs":
                    made = draws_of_runs(self.runs, number)
                case "rounds":
                    made = draws_of_rounds(self.run, number, self.asked.draws.count)
                case _:
                    assert self.replayer is not None
                    assert self.replays is not None
                    with progress(f"{self.run.path}@{number} replays") as report:
                        watched = self.replays.watch(number, report)
                        made = self.replayer.local_draws(number, self.asked.draws.count, watched)
            self.cohorts[number] = made
        return self.cohorts[number]


def key_of(runs: Sequence[Run], number: int, model: str) -> str:
    """Of a finished round of a group of runs in the store."""
    return f"{'+'.join(str(run.path) for run in runs)}@{number}/{model}"


def decompose_runs(
    runs: Sequence[Run], rounds: Sequence[int], asked: Asked, source: Source, device: str, store: Partial
) -> Iterator[RunFactors]:
    """The factors of a group's rounds, for each model asked for; finished rounds are kept in ``store``.

    Raises:
        FedscopeError: draws that cannot be had; rounds without recorded clients; no averaged model in any of them.
    """
    from ..asking.replaying import replays_of
    from ..asking.samples import dataset_of, module_for, refuse_without_partition
    from ..checkpoints import FedscopeError
    from ..decomposition import RoundFactors, RunFactors
    from ..training import Replayer

    run = runs[0]
    members = {model: members_of(run, rounds, model) for model in asked.models}
    if not any(members.values()):
        raise FedscopeError(
            f"{run.path} has no plain average over rounds in round {', '.join(map(str, rounds))}; choose later rounds "
            "of a run with --average ima, wima or swa, or leave out --of averaged"
        )
    needed_rounds = {t for found in members.values() for each in found.values() for t in each}
    refuse_unrecorded(runs, needed_rounds, start=asked.draws.kind == "local")
    dataset = dataset_of(runs, source)
    if run.partition is None:
        refuse_without_partition(run, source)
    replayer = Replayer.of(run, dataset, device=device) if asked.draws.kind == "local" else None
    replays = None
    if replayer is not None:
        left = {
            t
            for model, found in members.items()
            for number, each in found.items()
            if key_of(runs, number, model) not in store.done
            for t in each
        }
        replays = replays_of(run, sorted(left), asked.draws.count, device, limited=source.limit is not None)
        replays.announce()
    ready = Ready(runs, asked, source, device, dataset, module_for(run, source, dataset), replayer, replays)
    done: dict[str, list[RoundFactors]] = {model: [] for model in asked.models}
    for number in rounds:
        needed = {t for found in members.values() for t in found.get(number, ())}
        for gone in set(ready.cohorts) - needed:  # R times a round's clients, before the next ones are made
            del ready.cohorts[gone]
        for model in asked.models:
            if number not in members[model]:
                continue
            key = ready.key(number, model)
            if key not in store.done:
                store.add(key, decompose_one(ready, number, model, members[model][number]).to_json())
            done[model].append(RoundFactors.from_json(store.done[key]))
    for model, found in done.items():
        if found:
            yield RunFactors(ready.name, model, tuple(found), error_curves(run))


def decompose_one(ready: Ready, number: int, model: str, members: Sequence[int]) -> RoundFactors:
    """One round's factors: of its own average, or of the average over the rounds ``members``."""
    from ..decomposition import decompose_round, join, membership_labels, membership_train
    from .progress import progress

    run, asked, source = ready.run, ready.asked, ready.source
    cohorts = [ready.draw(t) for t in members]
    cohort = cohorts[0] if model == "global" else join(cohorts, [1 / len(cohorts)] * len(cohorts), number)
    partition = run.partition
    samples, population = samples_of(ready, cohort)
    round_ = run.round(number)
    common: dict[str, Any] = {
        "globals_": read_model(round_, "global") if model == "global" else None,
        "averaged": read_model(round_, "averaged"),
        "population": population,
        "device": ready.device,
        "precision": source.precision,
    }
    with progress(f"{run.path}@{number} {'' if model == 'global' else model + ' '}samples") as report:
        if asked.loss != "squared":
            from ..decomposition import decompose_loss

            factors = decompose_loss(ready.module, samples, cohort, loss=asked.loss, progress=report, **common)
        else:
            owned = None  # without a partition nothing splits the bias
            if partition is not None and source.split == "train":
                owned = membership_train(partition, cohort.client_ids, samples.indices)
            elif partition is not None:
                owned = membership_labels(partition.label_counts, cohort.client_ids, samples.y.numpy())
            factors = decompose_round(
                ready.module,
                samples,
                cohort,
                owned,
                outputs=asked.outputs,
                corollaries=asked.draws.kind == "runs",
                progress=report,
                **common,
            )
    return factors if partition is None else replace(factors, rows=(*factors.rows, missing_share(partition, cohort)))


def samples_of(ready: Ready, cohort: CohortDraws) -> tuple[Samples, bool]:
    """The samples of every mean, and whether they are all of D."""
    import numpy as np

    source, partition = ready.source, ready.run.partition
    if source.split == "train":
        assert partition is not None, "refused where there is none"
        samples = global_training_data(ready.dataset, partition)
        if ready.asked.on == "cohort":
            held = np.unique(np.concatenate([partition.clients[k] for k in set(cohort.client_ids.tolist())]))
            rows = np.flatnonzero(np.isin(samples.indices, held))
            samples = replace(samples, x=samples.x[rows], y=samples.y[rows], indices=samples.indices[rows])
    else:
        samples = ready.dataset.samples("test")
    population = source.split == "train" and (source.limit is None or source.limit >= len(samples))
    return (samples if source.limit is None else samples.limit(source.limit, source.seed)), population


def missing_share(partition: Partition, cohort: CohortDraws) -> Any:
    """Which data were missing: the share of all clients' training data that none of the averaged clients holds.

    Source: Zhou et al., Section 6.1: averaging over rounds helps where rounds have different clients.
    """
    import numpy as np

    from ..decomposition import FactorRow

    clients = partition.clients
    held = np.unique(np.concatenate([clients[k] for k in set(cohort.client_ids.tolist())]))
    whole = np.unique(np.concatenate(clients))
    return FactorRow("missing_share", "measured", 1.0 - len(held) / len(whole))


def members_of(run: Run, rounds: Sequence[int], model: str) -> dict[int, tuple[int, ...]]:
    """Which rounds' averages each decomposed model is the mean of: for ``averaged`` those of its window."""
    if model == "global":
        return {number: (number,) for number in rounds}
    from ..training import config_at

    found = {}
    for number in rounds:
        average = config_at(run, number).average
        if "averaged" in run.round(number).models and (members := average.members(number)):
            found[number] = members
    return found


def refuse_unrecorded(runs: Sequence[Run], rounds: set[int], *, start: bool) -> None:
    """Before anything is computed: every round that is needed has its clients."""
    from ..checkpoints import recorded_clients

    for run in runs:
        for number in sorted(rounds):
            recorded_clients(run, number, start=start)


def read_model(round_: Round, name: str) -> Any:
    """A model of the round, or None where there is none."""
    return round_.read(name) if name in round_.models else None
