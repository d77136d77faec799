"""The geometry of updates by layer and round: the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import Any, ClassVar

from ...plotting.style import describe_errors
from ...results import Table, columns_of
from ...results.layer_cells import LayerTable
from .layers import LayerRow
from .result import of_adapters


@dataclass(frozen=True)
class LayerUpdates(LayerTable):
    """Whether the clients' updates agree or cancel, by layer and round.

    Attributes:
        cells: a row a round and layer, rounds ascending as they were asked for; of each round the last row is of all
            layers together, with the numbers of :class:`~fedscope.Updates`.
        attrs: provenance; ``layers`` is what was asked for.

    Raises:
        FedscopeError: no row, or rounds of different layers.
    """

    command = "updates"
    suffixes = (".updates-layers.csv", ".updates-layers.json")
    format = "fedscope-updates-layers"
    tables = (Table(".updates-layers.csv", {"run": str, **columns_of(LayerRow)}),)
    row = LayerRow
    lacking = "updates by layer need a row for every round and layer; give at least one round"
    drawn: ClassVar = {"": "layer_figure:draw_layers"}

    cells: tuple[LayerRow, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def summary(self) -> str:
        """Say in which layer the updates of the last round agree least and cancel most, and what was left out."""
        *parts, whole = self.cells[-len(self.layers) :]
        together = f"all layers together {_cosine(whole)}, {_kept(whole)}"
        sentence = f"{self.run}, round {whole.round}: {self._least(parts)}{together}"
        sentence += describe_errors(sentence, "clients")
        lost = [cell for cell in parts or [whole] if cell.diverged]
        for some, cost in (
            ([cell for cell in lost if not _has_mean(cell)], "no mean exists there"),
            (
                [cell for cell in lost if _has_mean(cell)],
                "with weight 0, and only cosines over pairs are missing there",
            ),
        ):
            if some:
                shown = ", ".join(f"{cell.diverged} in {cell.layer}" for cell in some[:3])
                sentence += f"; clients diverged ({shown}{', ...' if len(some) > 3 else ''}): {cost}"
        if about := of_adapters(self.attrs):
            sentence += f"; {about}"
        return "\n".join([sentence, *self.attrs.get("left_out", ())])

    @staticmethod
    def _least(parts: list[LayerRow]) -> str:
        """The layers of the least cosine and of the least length kept; "" where there are no parts."""
        if not parts:
            return ""
        if len(parts) == 1:
            (only,) = parts
            return f"{only.layer} {_cosine(only)}, {_kept(only)}; "
        apart = min((cell for cell in parts if cell.cosine_mean is not None), key=_by("cosine_mean"), default=None)
        cancel = min((cell for cell in parts if cell.cancellation is not None), key=_by("cancellation"), default=None)
        if apart is None or cancel is None:
            return "no layer has updates to compare; "
        if apart is cancel:
            return f"updates agree least and cancel most in {apart.layer}, {_cosine(apart)}, {_kept(apart)}; "
        return (
            f"updates agree least in {apart.layer}, {_cosine(apart)}, and cancel most in {cancel.layer}, "
            f"{_kept(cancel)}; "
        )

    def findings(self) -> dict[str, Any]:
        """Every row, and what was left out."""
        rows = [{"run": self.run, **asdict(cell)} for cell in self.cells]
        return {"layers": list(self.layers), "rounds": rows, "notes": list(self.attrs.get("left_out", ()))}


def _by(name: str) -> Any:
    return lambda cell: getattr(cell, name)


def _has_mean(cell: LayerRow) -> bool:
    """Tell whether the clients that diverged, if any, have no part in the mean."""
    return cell.norm_of_mean is not None and isfinite(cell.norm_of_mean)


def _cosine(cell: LayerRow) -> str:
    if cell.cosine_mean is None:
        return "mean cosine not defined"
    error = "" if cell.cosine_stderr is None else f" ± {cell.cosine_stderr:.1g}"
    return f"mean cosine {cell.cosine_mean:.3g}{error}"


def _kept(cell: LayerRow) -> str:
    if cell.cancellation is None:
        return "the length kept not defined"
    across = "" if cell.orthogonal is None else f" (orthogonal ones: {cell.orthogonal:.3g})"
    return f"the mean keeps {cell.cancellation:.3g} of the length{across}"
