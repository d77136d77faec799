"""What a run alone is asked, without a round or a model: the plane or the line that shows its last recorded round."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..analysis.rounds import parse_rounds
from ..checkpoints import FedscopeError, Run, has_no_server, parse_address, rounds_with_clients
from ..checkpoints.io.errors import spans
from ..checkpoints.models.files import model_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..training.inputs.models import ModelLike


@dataclass(frozen=True)
class Chosen:
    """Models in the place of a run.

    Attributes:
        models: their addresses; kind: of the plane through or near them.
        said: which they are and how to ask otherwise, in a sentence.
        spare: further clients of the round, for those that diverged.
    """

    models: tuple[str, ...]
    kind: str
    said: str
    spare: tuple[str, ...] = ()


def run_alone(models: Sequence[ModelLike]) -> str | None:
    """Return the folder of the run, where nothing else is given; else None, once all that is named is there.

    Raises:
        FedscopeError: no such run or file, with the nearest name.
    """
    for model in models:
        if not isinstance(model, str) or (is_run(model) and len(models) == 1):
            continue
        address = parse_address(model)
        if address.round is None:
            model_path(Path(address.path))
        else:
            Run.open(address.path).round(address.round)
    return models[0] if len(models) == 1 and isinstance(models[0], str) and is_run(models[0]) else None


def is_run(model: str) -> bool:
    """Tell whether a run is named and none of its models."""
    return (Path(model) / "run.json").is_file()


def choose_plane(path: str) -> Chosen:
    """Choose a run's plane: near the clients of the last round that has recorded three; else along its global models.

    Raises:
        FedscopeError: neither is there.
    """
    run = Run.open(path)
    run.round("last")  # says that there is none
    ask = "--rounds 1,20,last draws panels over rounds"
    for number in reversed(rounds_with_clients(run)):
        count = len(run.round(number).client_ids)
        if count >= 3:
            said = f"the plane near the {count} clients of its last recorded round ({path}@{number} --clients); {ask}"
            return Chosen((f"{path}@{number}",), "clients", f"{path}: {said}")
    for number in reversed(run.rounds):
        ids = run.round(number).sampled_ids if run.round(number).has_sample else ()
        if len(ids) >= 3:
            said = f"the plane through three of the clients that round {number} has kept; {ask}"
            every = tuple(f"{path}@{number}/client-{k}" for k in ids)
            return Chosen(every[:3], "models", f"{path}: {said}", every[3:])
    have = [number for number in run.rounds if "global" in run.round(number).models]
    if len(have) >= 3:
        said = (
            f"no round's clients are recorded, so this is the plane near its {len(have)} global models (--trajectory)"
        )
        return Chosen((path,), "trajectory", f"{path}: {said}")
    raise FedscopeError(
        f"{path} has recorded neither three clients of a round nor the global models of three rounds, and a plane "
        "needs three models; give others, A B C" + ("" if has_no_server(run) else f", or {path}@last and --random")
    )


def choose_line(path: str) -> Chosen:
    """Choose a run's line: from what the last recorded round's clients were sent to what the server made of them.

    Beta is then the length of the server's step: 0 is none, 1 is the one that was made, and a minimum elsewhere says
    that a shorter or a longer one had been better. Without such a round, from the first global model to the last, else
    between two clients.

    Raises:
        FedscopeError: fewer than two models are there.
    """
    run = Run.open(path)
    run.round("last")
    pairs = "--clients with RUN@ROUND measures all pairs of a round's clients"
    for number in reversed(run.rounds):
        if {"start", "global"} <= set(run.round(number).models):
            said = (
                f"from the start of its last recorded round, {number}, at beta 0 to the server's model at beta 1, so "
                f"that beta is the length of the server's step; {pairs}"
            )
            return Chosen((f"{path}@{number}/global", f"{path}@{number}/start"), "models", f"{path}: {said}")
    have = [number for number in run.rounds if "global" in run.round(number).models]
    if len(have) >= 2:
        said = f"from the global model of round {have[0]} at beta 0 to that of round {have[-1]} at beta 1; {pairs}"
        return Chosen((f"{path}@{have[-1]}/global", f"{path}@{have[0]}/global"), "models", f"{path}: {said}")
    for number in reversed(rounds_with_clients(run)):
        if len(ids := run.round(number).client_ids) >= 2:
            said = f"from client {ids[1]} of its last recorded round, {number}, at beta 0 to client {ids[0]} at beta 1"
            named = tuple(f"{path}@{number}/client-{k}" for k in ids[:2])
            return Chosen(named, "models", f"{path}: {said}; {pairs}")
    raise FedscopeError(
        f"{path} has recorded no round with both its start and its global model, no two global models and no two "
        "clients of a round, and a line needs two models; give others, A B"
    )


@dataclass(frozen=True)
class ChosenRounds:
    """A pair of models in each of a run's rounds.

    Attributes:
        pairs: the addresses of A and B (β = 1 and 0) by round.
        ends: what A and B are in every round.
        left_out: what was asked for and is not there, in a sentence; "" where nothing is.
    """

    pairs: dict[int, tuple[str, str]]
    ends: tuple[str, str]
    left_out: str = ""


def choose_lines(path: str, rounds: str) -> ChosenRounds:
    """Choose a line in each round: that of :func:`choose_line`, which all rounds must have recorded.

    ``all`` are the rounds that have.

    Raises:
        FedscopeError: a round without both of its models; a run of which no round has two.
    """
    run = Run.open(path)
    run.round("last")
    ends, have = ("global", "start"), [t for t in run.rounds if {"start", "global"} <= set(run.round(t).models)]
    if not have:
        ends = ("first client", "second client")
        have = [t for t in rounds_with_clients(run) if len(run.round(t).client_ids) > 1]
    if not have:
        raise FedscopeError(
            f"{path} has recorded no round with both its start and its global model, and none with two clients, so "
            "there is no line in a round; give two models, A B"
        )
    asked = parse_rounds(rounds, run.rounds, path)
    lacking = [t for t in asked if t not in have]
    what = "a start and a global model" if ends[0] == "global" else "two clients"
    if lacking and rounds.strip() != "all":
        raise FedscopeError(
            f"--rounds {rounds}: round {lacking[0]} of {path} has not recorded {what}, the two ends of its line; "
            f"{_rounds(have)} {'has' if len(have) == 1 else 'have'}"
        )
    pairs = {}
    for number in (t for t in asked if t in have):
        which = ends if ends[0] == "global" else [f"client-{k}" for k in run.round(number).client_ids[:2]]
        pairs[number] = (f"{path}@{number}/{which[0]}", f"{path}@{number}/{which[1]}")
    said = f"{run.name}: {_rounds(lacking)} left out, because {what} were not recorded" if lacking else ""
    return ChosenRounds(pairs, ends, said)


def _rounds(numbers: Sequence[int]) -> str:
    return f"round{'' if len(numbers) == 1 else 's'} {spans(numbers)}"
