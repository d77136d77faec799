"""The list of all checks, in the order in which they are asked."""

from __future__ import annotations

from . import arguments, averages, clients, columns, combinations, limits, nan, same_bits, servers, states
from .outcome import Check
from .subject import Subject


def plays(subject: Subject) -> str:
    """Five rounds of the tiny federation."""
    run = subject.run
    first, last = run.round(1).read("start"), run.round(run.rounds[-1]).read("global")
    moved = float(abs(last.parameters - first.parameters).max())
    return (
        f"{len(run.rounds)} rounds of {subject.config().data.clients} clients; a parameter moves by {moved:.2g} at most"
    )


def order(subject: Subject) -> str:
    """The order of a cohort, of its models or of its training."""
    return servers.order(subject) if subject.kind == "server" else clients.order(subject)


CHECKS: tuple[Check, ...] = (
    Check("plays", plays, trained=True),
    Check("arguments", arguments.left_alone, trained=True),
    Check("state", states.constant, trained=True),
    Check("same-seed", same_bits.same_seed, trained=True),
    Check("workers", same_bits.workers, trained=True, repeatable=True),
    Check("resume", same_bits.resumed, trained=True, repeatable=True),
    Check("replay", same_bits.replayed, trained=True, repeatable=True),
    Check("combinations", combinations.composes, trained=True),
    Check("identical-clients", servers.identical_clients, ("server",)),
    Check("order", order, ("client", "server"), repeatable=True),
    Check("draws", clients.draws, ("client",), repeatable=True),
    Check("weight-0", servers.weight_0, ("server",), repeatable=True),
    Check("vectorised", clients.vectorised, ("client",), repeatable=True),
    Check("columns", columns.same_bits, ("server",), repeatable=True),
    Check("memory", columns.memory, ("server",)),
    Check("members", averages.members, ("average",)),
    Check("begins", averages.begins, ("average",), trained=True, repeatable=True),
    Check("looks-back", averages.looks_back, ("average",)),
    Check("limits", limits.hold, trained=True, repeatable=True),
    Check("nan", nan.not_swallowed),
)
