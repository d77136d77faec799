"""How far means of adapters are from the mean of what the adapters do, by layer and round: the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import Any, ClassVar

import numpy as np

from ...checkpoints.io.errors import list_few
from ...results import Table, columns_of
from ...results.layer_cells import LayerTable
from .means import MEANS, LayerMeans

#: of a norm: what is smaller is the rounding of float64, in which all is computed
ROUNDED = 1e-12
#: the kinds of mean in words
WORDS = {"factors": "the mean of factors", "products": "the mean of products", "frozen_a": "the mean of B with A kept"}


@dataclass(frozen=True)
class AdapterMeans(LayerTable):
    """Errors of the means of a run's adapters, by layer and round.

    Attributes:
        cells: a row a round and layer, rounds ascending; of each round the last row is of all layers together.
        attrs: provenance; ``adapter_scales`` are the s that products are multiplied with, ``diverged`` the clients by
            round that are not finite, where there are some.

    Raises:
        FedscopeError: no row, or rounds of different layers.
    """

    command = "adapters"
    suffixes = (".adapters.csv", ".adapters.json")
    format = "fedscope-adapters"
    tables = (Table(".adapters.csv", {"run": str, **columns_of(LayerMeans)}),)
    row = LayerMeans
    lacking = "means of adapters need a row for every round and layer; give at least one round"
    drawn: ClassVar = {"": "figure:draw_means"}

    cells: tuple[LayerMeans, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def summary(self) -> str:
        """Say of the last round how far each mean is from the mean of products, in which layer most, which of them was
        recorded, and what the mean of factors costs where that was measured."""
        *parts, whole = self.cells[-len(self.layers) :]
        if not isfinite(whole.norm):
            who = self.attrs.get("diverged", {}).get(str(whole.round), [])
            clients = f"client{'' if len(who) == 1 else 's'} {list_few(map(str, who), 4)}" if who else "a client"
            return f"{self.run}, round {whole.round}: {clients} diverged, so no mean exists; give other --rounds"
        errors = [f"{WORDS[name]} {_percent(error)}" for name in MEANS if (error := getattr(whole, name)) is not None]
        sentence = (
            f"{self.run}, round {whole.round}: off the mean of products B·A are {', '.join(errors)}{_kept(parts)}"
        )
        if whole.factors > ROUNDED:
            if of_change := _of_change(whole):
                sentence += f"; the mean of factors is off by {of_change} of what the round has changed"
            if len(parts) > 1:
                most = max(parts, key=lambda cell: -1.0 if np.isnan(cell.factors) else cell.factors)
                there = f" ({of_change} of what it has changed there)" if (of_change := _of_change(most)) else ""
                sentence += f"; it is off most in {most.layer}, {_percent(most.factors)}{there}"
        lines = [sentence]
        if whole.recorded is not None:
            known = WORDS.get(whole.recorded_is)
            is_ = f"is {known}" if known else "is none of these means"
            if isfinite(whole.recorded):
                lines.append(f"the recorded global {is_}, {_percent(whole.recorded)} off the mean of products")
            else:
                lines.append("the recorded global is not finite")
        if whole.cost is not None and whole.cost_stderr is not None:
            lines.append(_cost(whole, self.attrs))
        return "\n".join(lines)

    def findings(self) -> dict[str, Any]:
        """Every row."""
        return {"layers": list(self.layers), "rounds": [{"run": self.run, **asdict(cell)} for cell in self.cells]}


def _kept(parts: Sequence[LayerMeans]) -> str:
    """Say of which rank the means of products are: the adapter's, of every layer its own."""
    ranks = sorted({cell.rank for cell in parts if cell.rank})
    if not ranks:
        return ""
    said = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks, {ranks[0]} to {ranks[-1]}"
    return f" (products at the adapter's {said})"


def _of_change(cell: LayerMeans) -> str:
    """The error of the mean of factors in shares of what has changed; "" where that is not known or nothing."""
    share = cell.factors_of_moved
    return _percent(share) if share is not None and isfinite(share) else ""


def _cost(whole: LayerMeans, attrs: Mapping[str, Any]) -> str:
    assert whole.cost is not None
    assert whole.cost_stderr is not None
    split = attrs.get("split", "test")
    said = f"on {split} data the mean of factors has a loss {whole.cost:+.3g} ± {1.96 * whole.cost_stderr:.2g}"
    if whole.error_cost is not None and whole.error_cost_stderr is not None:
        said += f" and an error {100 * whole.error_cost:+.3g} ± {196 * whole.error_cost_stderr:.2g} points"
    return f"{said} against the mean of products at the adapter's rank (95 % over samples)"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %" if not share <= ROUNDED else "0 %"
