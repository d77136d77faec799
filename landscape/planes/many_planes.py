"""Losses on several planes that are drawn together: the result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ...results import Collection
from .result import Plane

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Panel:
    """A plane among several.

    Attributes:
        end: of its files' names.
        title: what its models are, ``Round 20``; "" where all panels are of the same.
        data: what it was measured on, ``test data``; "" where that is the same for all.
    """

    end: str
    plane: Plane
    title: str
    data: str

    @property
    def about(self) -> str:
        """Both."""
        return ", ".join(words for words in (self.title, self.data) if words)

    @property
    def heading(self) -> str:
        """Above the panel."""
        return self.title or self.data.capitalize()


class Planes(Collection[Plane]):
    """Planes of one question, which are drawn together on one colour scale.

    Attributes:
        rows: of panels, a run and a set of samples each.
        heads: above the rows; none where nothing tells them apart.
        end: what stands behind the base in the name of the figure.
    """

    command = "plane"
    drawn: ClassVar = {"": "draw_planes"}

    def __init__(self, rows: Sequence[Sequence[Panel]], heads: Sequence[str] = (), end: str = "") -> None:
        self.rows, self.heads, self.end = rows, heads if any(heads) else (), end
        super().__init__({panel.end: panel.plane for panel in self.panels()})

    def panels(self) -> Iterator[Panel]:
        """All, row by row."""
        return (panel for row in self.rows for panel in row)

    def figures(self, width: float = 3.5, title: str | None = None, **drawing: Any) -> dict[str, Figure]:
        """Return the figure of all."""
        return {self.end: self.figure(width, title, **drawing)}

    def pages(self, title: str | None = None, *, scale: str = "figure", **colours: Any) -> dict[str, str]:
        """Every plane's page, under its runs and the heading of its panel, on a colour scale of its own."""
        return {panel.end: panel.plane.page(_with_runs(panel), **colours) for panel in self.panels()}

    def summary(self) -> str:
        """Every plane's sentence, a line each."""
        return "\n".join(
            f"{panel.about[:1].upper()}{panel.about[1:]}: {panel.plane.summary()}" for panel in self.panels()
        )

    def findings(self) -> dict[str, Any]:
        """Every plane's models."""
        return {"panels": [{"title": panel.about, **panel.plane.findings()} for panel in self.panels()]}


def _with_runs(panel: Panel) -> str:
    """Return the heading of a panel that stands alone: behind the runs of its models, where they are of runs."""
    labels = [model.label for model in panel.plane.models if model.role in ("anchor", "path") and "@" in model.label]
    runs = list(dict.fromkeys(label.partition("@")[0] for label in labels))
    return f"{', '.join(runs)}: {panel.heading}" if runs else panel.heading
