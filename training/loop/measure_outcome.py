"""The outcome of measuring a run's recorded models: which numbers of which rounds are new, and what became of the
others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...checkpoints.io.errors import spans
from ...checkpoints.io.repr_screen import screen

#: the columns of each model, of its loss and its error
COLUMNS = {
    "global": ("test_loss", "test_error"),
    "averaged": ("averaged_test_loss", "averaged_test_error"),
}
#: those of the clients' models, mean and deviation of their errors
CLIENTS = ("client_error_mean", "client_error_std")


@dataclass(frozen=True, repr=False)
class MeasuredRun:
    """What was measured of a run.

    Attributes:
        run: its folder.
        new: by column the rounds in which it had no number before.
        replaced: the same, where the training had written one, which the round's file keeps.
        again: the same, where one was measured before.
        there: the same, where there was a number, which stays.
        left_out: by reason the rounds of which something could not be measured.
        settings: on what the global models were measured, and how; where these were not, as ``client_settings``.
        client_settings: the same of the clients' models; empty where none was measured.
        last: the numbers of the last of the rounds that were asked for.
    """

    run: Path
    new: Mapping[str, tuple[int, ...]]
    replaced: Mapping[str, tuple[int, ...]]
    again: Mapping[str, tuple[int, ...]]
    there: Mapping[str, tuple[int, ...]]
    left_out: Mapping[str, tuple[int, ...]]
    settings: Mapping[str, Any] = field(default_factory=dict)
    last: Mapping[str, float] = field(default_factory=dict)
    client_settings: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        told = [line.strip() for line in self.summary().removeprefix(f"{self.run}: ").splitlines()]
        return screen(f"MeasuredRun, what `fedscope measure` made of {self.run}", told, ["fedscope.curves(RUN)"])

    def summary(self) -> str:
        """Say which columns of which rounds are new, and what became of the others."""
        told = [
            *(f"{name_columns(part, 'is', 'are')} new{on}" for part, on in self._on_samples(self.new)),
            *(f"{name_columns(part, 'was', 'were')} measured again{on}" for part, on in self._on_samples(self.again)),
            *(
                f"{name_columns(part, 'replaces', 'replace')} what the training wrote, which its files keep{on}"
                for part, on in self._on_samples(self.replaced)
            ),
            *([f"{name_columns(self.there, 'was', 'were')} there already"] if self.there else []),
        ]
        if not (self.new or self.again or self.replaced):
            told.insert(0, "nothing is new")
        lines = [f"{self.run}: {told[0]}", *(f"  {clause}" for clause in told[1:])]
        lines += [f"  left out: {name_rounds(rounds)}: {why}" for why, rounds in self.left_out.items()]
        for model, (loss, error) in COLUMNS.items():
            said = [
                *([f"error {100 * self.last[error]:.1f} %"] if error in self.last else []),
                *([f"loss {self.last[loss]:.3g}"] if loss in self.last else []),
            ]
            if said:
                lines.append(f"  {model} in round {self.last['round']:.0f}: {', '.join(said)}")
        return "\n".join(lines)

    def _on_samples(self, columns: Mapping[str, tuple[int, ...]]) -> list[tuple[Mapping[str, tuple[int, ...]], str]]:
        """Return columns with what to say of their samples; the clients' apart where they have fewer."""
        clients = {name: rounds for name, rounds in columns.items() if name in CLIENTS}
        others = {name: rounds for name, rounds in columns.items() if name not in CLIENTS}
        on, on_clients = (_words_on(about) for about in (self.settings, self.client_settings))
        parts = [(columns, on)] if on == on_clients else [(others, on), (clients, on_clients)]
        return [(part, words) for part, words in parts if part]


def _words_on(settings: Mapping[str, Any]) -> str:
    """Return on what numbers were measured; nothing where none was."""
    return ", measured on {samples:,} {split} samples of {data}".format(**settings) if settings else ""


def group_by_column(columns: Mapping[int, Sequence[str]]) -> dict[str, tuple[int, ...]]:
    """Turn columns by round into rounds by column.

    >>> group_by_column({1: ["test_loss", "test_error"], 2: ["test_loss"]})
    {'test_loss': (1, 2), 'test_error': (1,)}
    """
    found: dict[str, list[int]] = {}
    for t, names in sorted(columns.items()):
        for name in names:
            found.setdefault(name, []).append(t)
    return {name: tuple(own) for name, own in found.items()}


def name_columns(columns: Mapping[str, tuple[int, ...]], one: str, several: str) -> str:
    """Name columns and their rounds, with a verb: ``test_loss and test_error of rounds 1-5 are``.

    >>> name_columns({"test_loss": (1, 2), "test_error": (1, 2)}, "is", "are")
    'test_loss and test_error of rounds 1-2 are'
    >>> name_columns({"test_loss": (3,)}, "is", "are")
    'test_loss of round 3 is'
    """
    groups: dict[tuple[int, ...], list[str]] = {}
    for name, rounds in columns.items():
        groups.setdefault(rounds, []).append(name)
    parts = []
    for rounds, names in groups.items():
        whose = ", ".join(names[:-1]) + (" and " if len(names) > 1 else "") + names[-1]
        parts.append(f"{whose} of {name_rounds(rounds)}")
    return f"{'; '.join(parts)} {one if len(columns) == 1 else several}"


def name_rounds(numbers: Sequence[int]) -> str:
    """Name rounds: ``rounds 1-5``."""
    return f"round{'s' if len(numbers) > 1 else ''} {spans(numbers)}"
