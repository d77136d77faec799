"""The average of a round's clients beside the clients themselves, as results next to a run have them: for a run whose
clients nobody measured while it was trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isfinite, sqrt
from typing import Any

import numpy as np

from ..checkpoints import FedscopeError, Run, parse_address
from ..decomposition.subsets.result import Subsets
from ..landscape import Plane
from ..results import deviation_over
from .discover import Beside


@dataclass(frozen=True)
class AverageAndClients:
    """Numbers of a round's clients and of their average, on test data.

    Attributes:
        round: which; clients: how many; alone: how many of them were measured alone.
        measure: ``error``, a share, or ``loss``, where the task has no error.
        average: of their average; mean, deviation: over those measured alone, the latter divided by their number,
        as ``client_error_std`` is.
        source: what measured them, and on what.
    """

    round: int
    clients: int
    alone: int
    measure: str
    average: float
    mean: float
    deviation: float
    source: str

    @property
    def words(self) -> str:
        """Both, in a clause."""
        whose = "the clients have" if self.alone == self.clients else f"{self.alone} of them have"
        scale, digits, unit = (100, ".1f", " %") if self.measure == "error" else (1, ".3g", "")
        return (
            f"in round {self.round} the average of the {self.clients} clients has a{'n' * (self.measure == 'error')} "
            f"{self.measure} of {scale * self.average:{digits}}{unit}; {whose} {scale * self.mean:{digits}} ± "
            f"{scale * self.deviation:{digits}}{unit} (mean ± deviation; {self.source})"
        )


def find_comparison(run: Run, results: Beside) -> AverageAndClients | None:
    """Find the comparison of the latest round that results of a run have; averages of subsets before planes."""
    found = [*_compare_in_subsets(run, results), *_compare_in_planes(run, results)]
    return max(found, key=lambda one: one.round, default=None)


def _compare_in_subsets(run: Run, results: Beside) -> Iterator[AverageAndClients]:
    """Rounds in which single clients and the average of all were measured."""
    for result in (one.result for one in results.results):
        if not isinstance(result, Subsets) or result.attrs.get("split", "test") != "test":
            continue
        for one in result.rounds:
            single = next((row for row in one.sizes if row.m == 1), None)
            whole = next((row for row in one.sizes if row.m == one.clients), None)
            if one.run != run.name or one.clients < 2 or single is None or whole is None:
                continue
            average, mean = (getattr(row, f"{one.measure}_mean") for row in (whole, single))
            deviation = getattr(single, f"{one.measure}_std")
            if deviation is not None and all(map(isfinite, (average, mean, deviation))):
                source = f"subsets{_name_samples(result.attrs)}"
                counts = one.clients, single.subsets
                deviation *= sqrt((single.subsets - 1) / single.subsets)  # over subsets it is divided by n - 1
                yield AverageAndClients(one.round, *counts, one.measure, average, mean, deviation, source)


def _compare_in_planes(run: Run, results: Beside) -> Iterator[AverageAndClients]:
    """Planes through a round's clients, whose mean is measured, too."""
    for result in (one.result for one in results.results):
        if not isinstance(result, Plane) or result.span != "clients" or result.mean is None:
            continue
        number = _round_of(result.attrs)
        if number is None or result.attrs.get("split", "test") != "test":
            continue
        for measure in ("error", "loss"):
            values = np.array([getattr(model, measure) for model in result.anchors])
            average = float(getattr(result.mean, measure))
            if len(values) > 1 and np.isfinite([average, *values]).all():
                mean, deviation = float(values.mean()), float(deviation_over(values, 0))
                source, count = f"plane{_name_samples(result.attrs)}", len(values)
                yield AverageAndClients(number, count, count, measure, average, mean, deviation, source)
                break


def _round_of(attrs: Mapping[str, Any]) -> int | None:
    addresses = attrs.get("addresses")
    try:
        number = parse_address(str(addresses[0])).round if isinstance(addresses, list) and addresses else None
    except FedscopeError:
        return None
    return number if isinstance(number, int) else None


def _name_samples(attrs: Mapping[str, Any]) -> str:
    count = attrs.get("samples")
    return f", {count:,} test samples" if isinstance(count, int) else ""
