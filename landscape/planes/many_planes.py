"""Losses on several planes that are drawn together: the result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from ...results import Collection
from ...results.collection import PARTS
from .panel_names import PlaneName, figure_end
from .result import Plane
from .rises import rise_of, rise_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: in a plane's provenance what stands above its panel, where its name does not say it
PANEL = "panel"


@dataclass(frozen=True, eq=False)
class Panel:
    """A plane among several.

    Attributes:
        end: of its files' names.
        title: what its models are, ``Round 20``; "" where all panels are of the same.
        data: what it was measured on, ``test data``; "" where that is the same for all.
        label: of planes on the same axes the round or the model that it goes through, in place of a title.
    """

    end: str
    plane: Plane
    title: str
    data: str
    label: str = ""

    @property
    def about(self) -> str:
        """All of it."""
        return ", ".join(words for words in (self.label, self.title, self.data) if words)

    @property
    def heading(self) -> str:
        """Above the panel."""
        return self.label or self.title or self.data.capitalize()


class Planes(Collection[Plane]):
    """Planes of one question, which are drawn together on one colour scale.

    Those on the same axes (``fedscope plane A B --same-axes``) have one page for each row, and are compared.

    Attributes:
        rows: of panels, a run and a set of samples each.
        heads: above the rows; none where nothing tells them apart.
        end: what stands behind the base in the name of the figure.
    """

    command = "plane"
    part = "result:Plane"
    drawn: ClassVar = {"": "draw_planes"}

    def __init__(self, rows: Sequence[Sequence[Panel]], heads: Sequence[str] = (), end: str = "") -> None:
        #: what they are called, which comes first among the names of the result
        self.labels = tuple(dict.fromkeys(panel.label for row in rows for panel in row if panel.label))
        self.rows, self.heads, self.end = rows, heads if any(heads) else (), end
        super().__init__({panel.end: panel.plane for panel in self.panels()})

    @classmethod
    def of_parts(cls, parts: Mapping[str, Plane]) -> Self:
        """Build the planes of what the names of their files say, or of what each says of its panel."""
        rows: dict[Any, list[Panel]] = {}
        heads: dict[Any, str] = {}
        names = {end: PlaneName.of(end) for end in parts}
        several = len({name.run for name in names.values()}) > 1
        for end, plane in parts.items():
            name, said = names[end], plane.attrs.get(PANEL)
            if said:
                title, data, label = said["title"], said["data"], said.get("label", "")
                row, head, panel = said["row"], said["head"], Panel(end, plane, title, data, label)
            else:
                row = name.run, name.samples if name.panel else ""
                about = name.data if name.panel else ""
                head = ", ".join(words for words in (name.run if several else "", about) if words)
                panel = Panel(end, plane, name.title(plane.attrs.get("addresses", ())), name.data)
            rows.setdefault(row, []).append(panel)
            heads[row] = head
        figure = next((plane.attrs[PANEL]["figure"] for plane in parts.values() if PANEL in plane.attrs), None)
        return cls(list(rows.values()), list(heads.values()), figure_end(parts) if figure is None else figure)

    @classmethod
    def split_parts(cls, parts: Mapping[str, Plane]) -> dict[str, dict[str, Plane]]:
        """Return planes on both splits, on clients' data and on the usual one apart, and those of rounds."""
        several: dict[tuple[bool, str], dict[str, Plane]] = {}
        for end, plane in parts.items():
            name = PlaneName.of(end)
            kind = "client" if name.client is not None else "split" if name.samples else name.other
            several.setdefault((bool(name.panel), kind if PANEL not in plane.attrs else ""), {})[end] = plane
        return {_said_end(own) or figure_end(own): own for own in several.values()}

    def save(self, base: Path | str) -> list[Path]:
        """Write every plane's files; each says what stands above its panel where its name does not."""
        if _layout(type(self).of_parts(self.parts)) == _layout(self):
            return super().save(base)
        heads = self.heads or ("",) * len(self.rows)
        told = {
            panel.end: {
                **{"row": number, "head": head, "title": panel.title, "data": panel.data, "figure": self.end},
                **({"label": panel.label} if panel.label else {}),
            }
            for number, (row, head) in enumerate(zip(self.rows, heads, strict=True))
            for panel in row
        }
        ends = list(self.parts)
        return [
            path
            for place, (end, plane) in enumerate(self.parts.items())
            for path in replace(plane, attrs={**plane.attrs, "part": place, PARTS: ends, PANEL: told[end]}).save(
                f"{base}{end}"
            )
        ]

    def panels(self) -> Iterator[Panel]:
        """All, row by row."""
        return (panel for row in self.rows for panel in row)

    def figures(self, width: float | None = None, title: str | None = None, **drawing: Any) -> dict[str, Figure]:
        """Return the figure of all."""
        return {self.end: self.figure(width, title, **drawing)}

    @property
    def same_axes(self) -> bool:
        """Whether all lie along the same two directions."""
        return len(self) > 1 and all("same_axes" in plane.attrs for plane in self)

    def pages(self, title: str | None = None, *, scale: str = "figure", **colours: Any) -> dict[str, str]:
        """Every plane's page, under its runs and the heading of its panel, on a colour scale of its own; of planes on
        the same axes one for each row.

        Args:
            scale: which panels of the figure share a colour scale, which is drawn with the same settings; a page is one
                surface, and has no others to share with.
        """
        if self.same_axes:
            from .same_axes_page import page

            ends = [_data_end(row[0]) for row in self.rows]
            rows = [type(self)([row]) for row in self.rows]
            return {end: page(row, title, **colours) for end, row in zip(ends, rows, strict=True)}
        return {panel.end: panel.plane.page(_with_runs(panel), **colours) for panel in self.panels()}

    def summary(self) -> str:
        """Every plane's sentence, a line each; of those on the same axes how steep they are, too."""
        if self.same_axes:
            lines = [f"{panel.about}: {panel.plane.summary()}" for panel in self.panels()]
            return "\n".join([*lines, *(words for row in self.rows if (words := rise_words(row)))])
        return "\n".join(
            f"{panel.about[:1].upper()}{panel.about[1:]}: {panel.plane.summary()}" for panel in self.panels()
        )

    def findings(self) -> dict[str, Any]:
        """Every plane's models; of planes on the same axes how far the loss rises on each."""
        found: dict[str, Any] = {
            "panels": [{"title": panel.about, **panel.plane.findings()} for panel in self.panels()]
        }
        if self.same_axes:
            found["same_axes"] = [
                {"data": row[0].data, **rise.findings()} for row in self.rows if (rise := rise_of(row)) is not None
            ]
        return found


def _layout(planes: Planes) -> Any:
    """Return all that is said of planes besides themselves."""
    rows = [[(panel.end, panel.title, panel.data, panel.label) for panel in row] for row in planes.rows]
    return rows, tuple(planes.heads), planes.end


def _with_runs(panel: Panel) -> str:
    """Return the heading of a panel that stands alone: behind the runs of its models, where they are of runs."""
    labels = [model.label for model in panel.plane.models if model.role in ("anchor", "path") and "@" in model.label]
    runs = list(dict.fromkeys(label.partition("@")[0] for label in labels))
    return f"{', '.join(runs)}: {panel.heading}" if runs else panel.heading


def _said_end(parts: Mapping[str, Plane]) -> str:
    """Return the end of the figure's name that planes on the same axes say; "" where they say none."""
    said = [plane.attrs[PANEL] for plane in parts.values() if "same_axes" in plane.attrs and PANEL in plane.attrs]
    return str(said[0]["figure"]) if said else ""


def _data_end(panel: Panel) -> str:
    """Return the last part of the name of a plane's files, which says the samples; "" where nothing does."""
    return f".{panel.end.rpartition('.')[2]}" if panel.data else ""
