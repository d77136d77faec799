"""Inputs of planes: three models, all clients of a round, a run's global models or one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...analysis.rounds import is_range, larger_cohort, parse_rounds, rounds_among
from ...analysis.runs import open_run
from ...checkpoints import FedscopeError, Run, recorded_clients
from ...checkpoints.rounds.round import few_of
from ...training.inputs.models import ModelLike, clients_of, names_of
from .panel_names import globals_title, round_title

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
        spare: further clients of the round, for those of the members that diverged.
        left_out: which clients are, and why, in a clause; "" where none is.
    """

    kind: str
    members: tuple[ModelLike, ...]
    shown: tuple[ModelLike, ...] = ()
    title: str = ""
    end: str = ""
    spare: tuple[str, ...] = ()
    left_out: str = ""


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
    numbers = rounds_among(rounds, run, have) if is_range(rounds) else parse_rounds(rounds, have, path)
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
                f"{path}@{number} has a cohort of {len(ids)}, but a plane needs three clients; {larger_cohort(run, 3)}"
            )
        every = tuple(f"{path}@{number}/client-{k}" for k in ids)
        title = round_title(number)
        panels.append(PlaneModels("models", every[:3], (), title, f"{end}.round-{number}", spare=every[3:]))
    have = [t for t in run.rounds if "global" in run.round(t).models]
    if len(have) >= 3:
        anchors = tuple(f"{path}@{t}/global" for t in have[-3:])
        shown = (f"{path}@{have[-1]}/averaged",) if "averaged" in run.round(have[-1]).models else ()
        panels.append(PlaneModels("models", anchors, shown, globals_title(have[-3], have[-1]), f"{end}.globals"))
    return panels
