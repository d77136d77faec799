"""The check that a method composes with every client, server and average that it does not refuse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...checkpoints import FedscopeError
from ...checkpoints.io.errors import list_few
from ..config.config import Config
from ..settings.registry import METHOD_SECTIONS, find, names
from .in_memory import RoundsInMemory, assembled
from .outcome import CheckFailed
from .resolve import SECTIONS
from .subject import Subject, check_settings

#: rounds of each, two of which every average over rounds comes after
ROUNDS = 3


def composes(subject: Subject) -> str:
    """Play some rounds with every method of the two other kinds."""
    played, refused = 0, dict[str, str]()
    for label, partners in _partners(subject):
        try:
            config = _config(subject, partners)
        except FedscopeError as error:
            refused[label] = str(error)
            continue
        try:
            record = RoundsInMemory.of(assembled(config, subject.data)).play(ROUNDS)
        except Exception as error:
            raise CheckFailed(
                f"with {label} it fails with {type(error).__name__}: {error}; refuse in resolve(config), with the "
                "reason, what it does not go with"
            ) from error
        assert record.global_ is not None
        if not np.isfinite(record.global_.parameters).all():
            raise CheckFailed(f"with {label} the global model is not finite after {ROUNDS} rounds")
        played += 1
    if not played:
        raise CheckFailed(f"it refuses everything: {next(iter(refused.values()))}")
    said = f"plays with {played} combinations of the other kinds"
    return said + (f", refuses {len(refused)} ({list_few(sorted(refused), 4)})" if refused else ", refuses none")


def _config(subject: Subject, partners: dict[str, str]) -> Config:
    """Return a configuration with partners, whose own settings let them do something in a few rounds."""
    changes: dict[str, dict[str, Any]] = {
        section: {"method": name, **check_settings(find(METHOD_SECTIONS[section][0], name))}
        for section, name in partners.items()
    }
    return subject.config(**changes, run={"rounds": ROUNDS})


def _partners(subject: Subject) -> Iterator[tuple[str, dict[str, str]]]:
    """All methods of both other kinds at least once, in pairs: those of the shorter list come in turn."""
    others = [section for section in SECTIONS if section != subject.kind]
    lists = [names(METHOD_SECTIONS[section][0]) for section in others]
    for k in range(max(map(len, lists))):
        pair = {section: known[k % len(known)] for section, known in zip(others, lists, strict=True)}
        yield " and ".join(f"--{section} {name}" for section, name in pair.items()), pair
