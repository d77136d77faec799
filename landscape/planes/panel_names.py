"""Names of the files of several planes: which run's, of which models and on which samples each is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...training.inputs.data_of import client_data, split_data

_SAMPLES = r"(?P<samples>\.test|\.train|\.all|\.client-\d+)"
_PANEL = re.compile(rf"(?P<run>\..+?)?(?P<panel>\.round-\d+|\.globals){_SAMPLES}?", re.DOTALL)
_ALONE = re.compile(_SAMPLES)


@dataclass(frozen=True)
class PlaneName:
    """What stands behind the base in the names of a plane's files, in its parts.

    Attributes:
        run: its name; "" where there is one run.
        panel: ``round-20`` or ``globals``; "" for a plane that stands alone.
        samples: ``test``, ``train``, ``all`` or ``client-3``; "" for the only set.
        other: all of it, where it is no such name.
    """

    run: str = ""
    panel: str = ""
    samples: str = ""
    other: str = ""

    @classmethod
    def of(cls, end: str) -> PlaneName:
        """Take a name apart.

        >>> PlaneName.of(".ima.round-20.client-3")
        PlaneName(run='ima', panel='round-20', samples='client-3', other='')
        >>> PlaneName.of(".mine").other
        'mine'
        """
        found = _PANEL.fullmatch(end) or _ALONE.fullmatch(end)
        if not found:
            return cls(other=end.removeprefix("."))
        return cls(**{name: (part or "").removeprefix(".") for name, part in found.groupdict().items()})

    @property
    def client(self) -> int | None:
        """Whose own data it is measured on; None for a split."""
        return int(self.samples.removeprefix("client-")) if self.samples.startswith("client-") else None

    @property
    def data(self) -> str:
        """The samples in words; "" for the only set."""
        if self.client is not None:
            return client_data(self.client)
        return split_data(self.samples) if self.samples else ""

    def title(self, addresses: Sequence[str] = ()) -> str:
        """Return the words above its panel; ``addresses`` are those of its models.

        >>> PlaneName.of(".globals").title(["runs/a@18/global", "runs/a@19/global", "runs/a@20/global"])
        'Globals 18-20'
        """
        if self.panel.startswith("round-"):
            return round_title(int(self.panel.removeprefix("round-")))
        rounds = [int(round_) for address in addresses[:3] for round_ in re.findall(r"@(\d+)", address)]
        if self.panel and rounds:
            return globals_title(rounds[0], rounds[-1])
        return self.panel.capitalize() or self.other


def round_title(number: int) -> str:
    """Name a panel of a round's clients."""
    return f"Round {number}"


def globals_title(first: int, last: int) -> str:
    """Name the panel of global models."""
    return f"Globals {first}-{last}"


def figure_end(ends: Iterable[str]) -> str:
    """Return what stands behind the base in the name of the figure of several planes.

    >>> figure_end([".test", ".train"]), figure_end([".client-3", ".client-8"]), figure_end([".round-1", ".globals"])
    ('.both', '.data-of-3-8', '')
    """
    names = [PlaneName.of(end) for end in ends]
    clients = list(dict.fromkeys(name.client for name in names if name.client is not None))
    everyone = ["all"] if any(name.samples == "all" for name in names) else []
    if clients or everyone:
        return f".data-of-{'-'.join([*everyone, *map(str, clients)])}"
    return ".both" if any(name.samples for name in names) else ""
