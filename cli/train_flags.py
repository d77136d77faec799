"""The flags of ``fedscope train`` that are settings of a run, and the key of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: flags that are another name for a key of the configuration
FLAGS = (
    ("--data", "data.name", "NAME", "digits, npz:PATH, folder:PATH, a set such as cifar10, or module:function."),
    ("--model", "model.name", "NAME", "mlp, cnn, resnet18-gn, ... (docs/methods.md lists all), or module:factory."),
    (
        "--task",
        "model.task",
        "NAME",
        "classification (default), regression, sequences (default for shakespeare), sequence-classification, or your "
        "own module:factory.",
    ),
    (
        "--partition",
        "data.partition",
        "SPLIT",
        "iid, shards:2, shards:2,250 (shards of 250 samples), pathological:2, dirichlet:0.1, dirichlet-clients:0.1, or "
        "your own module:function.",
    ),
    ("--clients", "data.clients", "N", "Number of clients."),
    ("--participation", "run.participation", "SHARE", "Share of the clients in a round's cohort."),
    ("--rounds", "run.rounds", "R", "Number of rounds."),
    ("--epochs", "client.epochs", "E", "Local epochs per round."),
    ("--batch", "client.batch", "B", "Mini-batch size."),
    ("--lr", "client.lr", "ETA", "Learning rate of round 1."),
    ("--seed", "run.seed", "SEED", "Seed of everything except the partition and the cohorts (data.seed)."),
    ("--device", "run.device", "DEVICE", "cpu, cuda, mps, xpu, or auto."),
    ("--client", "client.method", "NAME", "What a client minimises and how it steps; your own as module:Class."),
    ("--server", "server.method", "NAME", "How client models become the next model; your own as module:Class."),
    (
        "--average",
        "average.method",
        "NAME",
        "Average over rounds, or none; your own as module:Class. Without --method and --recipe, ima if nothing names "
        "another.",
    ),
)
#: the key of each
PLACES = {flag: place for flag, place, *_ in FLAGS}


def warn_of_overridden(flags: Mapping[str, Mapping[str, Any]], assigned: Mapping[str, Mapping[str, Any]]) -> None:
    """Warn of flags that count for nothing, because ``--set`` says the same setting otherwise, in whichever order.

    Args:
        flags: tables of what flags gave; assigned: tables of what ``--set`` gave.
    """
    from ..training.config.config import differ, warn_of_two

    named = {place: flag for flag, place in PLACES.items()} | {"run.engine": "--engine"}
    for section, table in assigned.items():
        below = flags.get(section, {})
        for key, value in table.items():
            if key in below and differ(section, key, below[key], value):
                place = f"{section}.{key}"
                warn_of_two(f"{named[place]} {below[key]}", f"--set {place}={value}", "--set", value)
