"""Where a figure is drawn: on a sheet of its own, in a part of somebody's figure, or into somebody's axes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from ..checkpoints import FedscopeError, nearest
from ..checkpoints.io.warn_user import warn_user
from .style import COLUMN, paper_style
from .user_style import WIDTHS, checked_number, current
from .zoom import enlarge, pad_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

F = TypeVar("F", bound=Callable[..., Any])

#: inches that a panel's numbers and labels take beside it, before it is known; the narrowest panel
BESIDE, NARROWEST = 0.6, 0.7


class NarrowError(FedscopeError):
    """A figure that is too narrow for its runs.

    Attributes:
        needed: the width in inches that has room for them; None where no figure has, or where it is a part of one.
        why: that, without its remedy.
    """

    def __init__(self, why: str, remedy: str, needed: float | None) -> None:
        super().__init__(f"{why}; {remedy}")
        self.why, self.needed = why, needed


@dataclass
class Target:
    """What is drawn on.

    Attributes:
        axes: of the user's own, a panel each; nothing else is drawn then but a legend and a colour bar.
        into: a part of the user's figure, which gets the whole layout.
        room: its width and height, in the inches in which figures are laid out.
        counting: whether panels are only counted, on a sheet of their own.
        panels: width and height of those that were laid out, in inches.
        sizes: of the user's axes and their colour bars, likewise, by their identity.
    """

    axes: tuple[Axes, ...] = ()
    into: Any = None
    room: tuple[float, float] = (0.0, 0.0)
    counting: bool = False
    panels: list[tuple[float, float]] = field(default_factory=list)
    sizes: dict[int, tuple[float, float]] = field(default_factory=dict)
    used: bool = False

    @property
    def is_axes(self) -> bool:
        """Whether the user's axes are drawn into now."""
        return bool(self.axes) and not self.counting

    def take(self, width: float, height: float) -> Axes:
        """Return the next of the user's axes, in the look of figures; its panel would be so many inches large."""
        axes = self.axes[len(self.panels)]
        self.panels.append((width, height))
        _dress(axes)
        room = current().room
        self.sizes[id(axes)] = tuple(one / room for one in _inches(axes))  # type: ignore[assignment]
        return axes

    def beside(self, gap: float, width: float) -> Axes:
        """Return axes for a colour bar so many inches right of the last panel."""
        axes = self.axes[len(self.panels) - 1]
        wide, _ = size = self.sizes[id(axes)]
        bar = axes.inset_axes((1 + gap / wide, 0.0, width / wide, 1.0))
        self.sizes[id(bar)] = size
        return bar


_SHEET = Target()
_TARGET: ContextVar[Target | None] = ContextVar("target", default=None)


def target() -> Target:
    """Return what is drawn on now: without one a sheet of its own."""
    return _TARGET.get() or _SHEET


def axes_given() -> int:
    """Count the axes that the user gave; 0 where a figure is drawn."""
    return len(target().axes)


def size_of(axes: Axes, width: float, height: float) -> tuple[float, float]:
    """Width and height of a panel, in inches: those that are given, or of a user's axes their own."""
    return target().sizes.get(id(axes), (width, height))


def drawing(draw: F) -> F:
    """Have a function that draws a figure of a width and a title draw in the user's style, and where the user wants it.

    It takes ``ax`` and ``into`` as well, and no width as that of the style, or where that has no room for its runs, as
    the one that has. What it draws is laid out for 8 pt type: at
    another size it is laid out for as much less width, and enlarged.
    """

    @wraps(draw)
    def drawn(result: Any, width: float | None = None, title: str | None = None, *more: Any, **how: Any) -> Any:
        if _TARGET.get() is not None:  # a part of another figure
            return draw(result, COLUMN if width is None else width, title, *more, **how)
        with _known_settings(how):
            return placed(result, width, title, *more, **how)

    def placed(result: Any, width: float | None, title: str | None, *more: Any, **how: Any) -> Any:
        ax, into = how.pop("ax", None), how.pop("into", None)
        if ax is None and into is None:
            if width is not None:
                checked_number("width", width, WIDTHS, "inches")
            return _wide_enough(lambda wide: draw(result, wide, title, *more, **how), width)
        if ax is not None and into is not None:
            raise FedscopeError("a figure is drawn into axes or into a part of a figure; give ax or into, not both")
        if width is not None:
            place = "ax" if into is None else "into"
            raise FedscopeError(f"{place} has a width of its own; leave width = {width} out")
        if into is not None:
            return _in_a_part(lambda wide: draw(result, wide, title, *more, **how), into)
        return _in_axes(lambda wide: draw(result, wide, None, *more, **how), ax, title)

    drawn.in_style = True  # type: ignore[attr-defined]
    return drawn  # type: ignore[return-value]


def _wide_enough(draw: Callable[[float], Any], width: float | None) -> Any:
    """A figure on a sheet, wider than the style's where nobody gave a width and its runs have no room."""
    try:
        return _on_a_sheet(draw, width)
    except NarrowError as error:
        if width is not None or error.needed is None:
            raise
        warn_user(f"{error.why}, so it is drawn {error.needed:g} wide; give --width for another one")
        return _on_a_sheet(draw, error.needed)


@contextmanager
def _known_settings(given: Mapping[str, Any]) -> Iterator[None]:
    """Say of a setting that no figure of the kind has what it may be.

    Raises:
        TypeError: names it.
    """
    try:
        yield
    except TypeError as error:
        found = re.search(r"unexpected keyword argument '(\w+)'", str(error))
        if found is None or found[1] not in given:
            raise
        hint = nearest(found[1], ("ax", "into", "width", "title", "colour_scale"))
        hint = '; did you mean "ax"?' if found[1] in ("axes", "axs") else hint
        raise TypeError(f"this figure has no setting {found[1]!r}{hint}") from None


def _on_a_sheet(draw: Callable[[float], Any], width: float | None) -> Figure | None:
    style = current()
    wide = style.width or COLUMN if width is None else width
    with _on(Target()):
        figure: Any = draw(_laid_out(wide))
    if figure is None or style.room == 1:
        settled(figure)
        return figure  # type: ignore[no-any-return]
    height = figure.get_figheight()
    with paper_style(wide):
        enlarge([figure], style.room, style.zoom)
    figure.set_size_inches(wide, style.room * height)
    settled(figure)
    return figure  # type: ignore[no-any-return]


def settled(figure: Any) -> None:
    """Have a figure remember what stands on it when it is made."""
    if hasattr(figure, "settle"):
        figure.settle()


def _laid_out(width: float) -> float:
    """Return the width for which a figure is laid out.

    Raises:
        FedscopeError: one in which nothing fits.
    """
    style = current()
    if style.room == 1:
        return width
    if width / style.room < WIDTHS[0]:
        needed = WIDTHS[0] * style.room
        raise FedscopeError(
            f"a figure of {width:g} inches is too narrow for type of {style.size:g} pt; make it {needed:.1f} inches, "
            "or the type smaller"
        )
    return width / style.room


def _in_a_part(draw: Callable[[float], Any], into: Any) -> Any:
    """Draw the whole layout into a part of a figure, from its top on."""
    from matplotlib.figure import FigureBase

    if not isinstance(into, FigureBase):
        raise FedscopeError(f"into is a {type(into).__name__}; give a part of a figure, as figure.subfigures() makes")
    style = current()
    wide, high = _inches(into)
    on = Target(into=into, room=(_laid_out(wide), high / style.room))
    before = {id(one) for one in into.get_children()}
    with _on(on):
        drawn = draw(on.room[0])
    if drawn is None or not on.used:
        raise FedscopeError("this figure cannot be drawn into a part of another; draw it alone")
    with paper_style(wide):
        enlarge([one for one in into.get_children() if id(one) not in before], style.room, style.zoom)
    return into


def _in_axes(draw: Callable[[float], Any], ax: Any, title: str | None) -> Any:
    """Draw the panels into axes of the user's own, in their order."""
    from matplotlib.axes import Axes

    given = tuple(ax.flat) if hasattr(ax, "flat") else tuple(ax) if isinstance(ax, Sequence) else (ax,)
    wrong = next((one for one in given if not isinstance(one, Axes)), None)
    if wrong is not None or not given:
        raise FedscopeError(f"ax is a {type(wrong).__name__}; give axes, as plt.subplots() makes, or several")
    if odd := next((one.name for one in given if one.name != "rectilinear"), ""):
        raise FedscopeError(f"figures are drawn into axes of x and y, and not into {odd} ones; leave out projection=")
    style = current()
    wide = _inches(given[0])[0] / style.room
    if wide < NARROWEST:
        raise FedscopeError(
            f"the axes are {wide * style.room:.2f} inches wide; give {NARROWEST * style.room:.1f} or more"
        )
    counted = Target(given, counting=True)
    with _on(counted):
        draw(wide + BESIDE)
    count = len(counted.panels)
    if not count:
        raise FedscopeError("this figure cannot be drawn into axes; draw it into a part of a figure, with into=")
    if count != len(given):
        raise FedscopeError(
            f"the figure has {count} panel{'s' if count > 1 else ''}, but ax has {len(given)}; give as many, or a part "
            "of a figure with into="
        )
    before = {id(one) for axes in given for one in axes.get_children()}
    with _on(Target(given)):
        draw(2 * wide + BESIDE - counted.panels[0][0])
    with paper_style(wide):
        for axes in given:
            new = [one for one in axes.get_children() if id(one) not in before]
            enlarge([axes.xaxis, axes.yaxis, *axes.spines.values(), *_titles(axes), *new], style.room, style.zoom)
            pad_title(axes, style.room * _rc("axes.titlepad"))
    if title:
        given[0].title.set_text(title)
    return given[0].figure


def _titles(axes: Any) -> tuple[Any, ...]:
    return axes.title, axes._left_title, axes._right_title


def _inches(part: Any) -> tuple[float, float]:
    dpi = part.get_figure(root=True).dpi if hasattr(part, "get_figure") else part.dpi
    return part.bbox.width / dpi, part.bbox.height / dpi


def _dress(axes: Any) -> None:
    """Give a user's axes the look that those of figures have: ticks, spines, type."""
    import matplotlib

    axes.set_frame_on(True)
    for name, spine in axes.spines.items():
        if name in ("left", "right", "top", "bottom"):
            spine.set(visible=_rc(f"axes.spines.{name}"), linewidth=_rc("axes.linewidth"))
    family = matplotlib.rcParams["font.family"]
    for axis in (axes.xaxis, axes.yaxis):
        name = f"{axis.axis_name}tick"
        for which in ("major", "minor"):
            axis.set_tick_params(
                which=which,
                length=_rc(f"{name}.{which}.size"),
                width=_rc(f"{name}.{which}.width"),
                pad=_rc(f"{name}.{which}.pad"),
                labelsize=_rc(f"{name}.labelsize"),
                labelfontfamily=family,
            )
        axis.label.set(fontsize=_rc("axes.labelsize"), fontfamily=family)
        axis.offsetText.set(fontsize=_rc(f"{name}.labelsize"), fontfamily=family)
        axis.labelpad = _rc("axes.labelpad")
    for title in _titles(axes):
        title.set(fontsize=_rc("axes.titlesize"), fontfamily=family)
    pad_title(axes, _rc("axes.titlepad"))


def _rc(name: str) -> Any:
    import matplotlib

    settings: Any = matplotlib.rcParams
    return settings[name]


@contextmanager
def _on(where: Target) -> Iterator[None]:
    token = _TARGET.set(where)
    try:
        yield
    finally:
        _TARGET.reset(token)
