"""What a user may change of the look of figures: font, size of type, width, colours of methods, matplotlib's settings.

``fedscope.style`` is documented in one place (docs/howto/figures.md); figures read it by :func:`current`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextvars import ContextVar, Token
from dataclasses import dataclass, field, replace
from numbers import Real
from pathlib import Path
from typing import Any

from ..checkpoints import FedscopeError, nearest
from ..checkpoints.io.visible_text import visible
from ..results.pictures import in_turn

#: points, of the type that figures are laid out for; the font likewise
SIZE = 8.0
FONT = "DejaVu Sans"
#: the sizes of type, in points, and the widths, in inches, that figures may have
SIZES, WIDTHS = (5.0, 16.0), (2.0, 20.0)

#: families that matplotlib resolves by a list of fonts
_GENERIC = ("serif", "sans-serif", "monospace", "cursive", "fantasy")
#: of about as many narrow and wide letters as captions have
_SAMPLE = "the mean loss of 12 clients, error 0.345 % after 60 rounds"
#: what a setting that no figure here can have is about, and what to do instead
_REFUSED = (
    (r"(axes\.(label|title)|[xy]tick\.label|legend\.(title_)?font|figure\.(title|label))size", "all type has one size; "
     "give font.size, which the others follow"),
    (r"figure\.(subplot\.\w+|autolayout|constrained_layout\.\w+)|savefig\.(bbox|pad_inches)|axes\.(xmargin|ymargin)",
     "everything has its place in inches; leave it out"),
    (r"savefig\.(format|directory)", "formats are given with --format; leave it out"),
    (r"text\.(usetex|latex\.preamble)|pgf\..*", "matplotlib writes all words itself; leave it out"),
    (r"backend(_fallback)?|interactive|toolbar|webagg\..*|tk\..*|svg\.hashsalt|pdf\.fonttype|ps\.fonttype",
     "files must come out the same everywhere; leave it out"),
)  # fmt: skip
#: settings of the user's own matplotlib that are no look, and are left out rather than refused
_NO_LOOK = re.compile(r"(keymap|animation|docstring|date|figure\.(hooks|max_open|raise)|macosx|path\.|timezone)")
#: settings in points, which grow with the size of type when the figure is enlarged
_POINTS = re.compile(r"(linewidth|markersize|markeredgewidth|tick\.(major|minor)\.(size|width|pad)|labelpad|titlepad)$")


@dataclass(frozen=True)
class Style:
    """What a user has changed of the look of figures; nothing by default.

    Attributes:
        colors: of methods, by their names or those of runs.
        size: of the type, in points.
        width: of figures that are asked for without one, in inches.
        font: a family; "" is the package's own, or the one that ``settings`` names.
        settings: matplotlib's, by name.
        wide: how much wider than the package's own font the letters are, at least 1.
    """

    colors: Mapping[str, str] = field(default_factory=dict)
    size: float = SIZE
    width: float | None = None
    font: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    wide: float = 1.0

    @property
    def zoom(self) -> float:
        """By how much letters are larger than those that figures are laid out for."""
        return self.size / SIZE

    @property
    def room(self) -> float:
        """By how much everything else is larger, so that wide letters have room.

        Letters of another size are a little wider than in proportion on a screen, where they are fitted to its dots,
        small ones the more so.
        """
        fitted = 0.0 if self.size == SIZE else 0.02 if self.size > SIZE else 0.13 * (SIZE - self.size)
        return self.zoom * (self.wide + fitted)

    @property
    def palette(self) -> tuple[str, ...]:
        """Colours of lines that ``axes.prop_cycle`` names; none where the package's own count."""
        cycle = self.settings.get("axes.prop_cycle")
        return tuple(cycle.by_key().get("color", ())) if cycle is not None else ()

    @property
    def surface(self) -> str | None:
        """The colours of surfaces that ``image.cmap`` names; None where the package's own count."""
        return self.settings.get("image.cmap")

    @property
    def family(self) -> tuple[str, ...]:
        """Names of fonts, the first that there is counts; none where the package's own does."""
        named = _font_settings(self.font) or self.settings
        return tuple(str(one) for one in named.get("font.family", ()))

    def laid_out(self) -> dict[str, Any]:
        """Matplotlib's settings while a figure is laid out: before it is enlarged."""
        made = {
            name: value / self.room if _POINTS.search(name) and isinstance(value, int | float) else value
            for name, value in self.settings.items()
        }
        return made | _font_settings(self.font)


_OWN = Style()
_INSIDE: ContextVar[Style | None] = ContextVar("style", default=None)
_left_on: list[Style] = [_OWN]  # a notebook's cells each have a context of their own


def current() -> Style:
    """Return the style that figures are drawn in now."""
    return _INSIDE.get() or _left_on[0]


class StyleInUse:
    """A style for a ``with`` block, or with :meth:`use` for all that follows."""

    def __init__(self, changes: Mapping[str, Any]) -> None:
        self._changes = dict(changes)
        self._tokens: list[Token[Style | None]] = []

    def __enter__(self) -> Style:
        self._tokens.append(_INSIDE.set(_changed(current(), self._changes)))
        return current()

    def __exit__(self, *_: object) -> None:
        _INSIDE.reset(self._tokens.pop())

    def use(self) -> None:
        """Leave the style on, in a notebook for all cells below; ``fedscope.style().use()`` is the package's own again.

        A block within it changes what it names and keeps the rest.
        """
        _left_on[0] = _changed(_OWN, self._changes)


def style(
    *,
    font: str | None = None,
    size: float | None = None,
    width: float | None = None,
    rc: Mapping[str, Any] | str | None = None,
    colors: Mapping[str, str] | None = None,
    file: Path | str | None = None,
) -> StyleInUse:
    """Draw figures in a style of one's own: within a ``with`` block, or with ``.use()`` from here on.

    Figures are laid out for the size of type, so that nothing overlaps at another one. Numbers do not change.

    Args:
        font: a font of this machine, as ``"DejaVu Serif"``; letters that it lacks are taken from DejaVu Sans.
        size: of the type, 5 to 16 points; small type follows it.
        width: inches of figures that are asked for without a width, 2 to 20.
        rc: settings of matplotlib by name, as ``{"axes.grid": True}``; or ``"user"`` for all that you have changed in
            your own ``matplotlib.rcParams``.
        colors: of methods, as ``{"ima": "#0072B2", "my rule": "black"}``.
        file: an ``.mplstyle`` file. Of one setting, ``rc`` counts more than it, and the arguments above more than both.

    Raises:
        FedscopeError: a file that is missing; a font that is not installed; a setting that matplotlib does not know or
            that figures cannot have; a size, a width or a colour that is none.

    >>> import fedscope
    >>> with fedscope.style(size=10, colors={"ima": "black"}) as chosen:
    ...     chosen.size, chosen.colors["ima"]
    (10.0, 'black')
    """
    changes: dict[str, Any] = {}
    settings = {**(_of_file(Path(file).expanduser()) if file is not None else {}), **_of_rc(rc)}
    if "font.size" in settings:
        changes["size"] = checked_number("font.size", settings.pop("font.size"), SIZES, "points")
    if "figure.figsize" in settings:
        changes["width"] = checked_number(
            "the width of figure.figsize", settings.pop("figure.figsize")[0], WIDTHS, "inches"
        )
    if size is not None:
        changes["size"] = checked_number("size", size, SIZES, "points")
    if width is not None:
        changes["width"] = checked_number("width", width, WIDTHS, "inches")
    if font is not None:
        changes["font"] = _known_font(font)
    if colors is not None:
        changes["colors"] = _known_colours(colors)
    return StyleInUse({**changes, "settings": settings})


def _changed(one: Style, changes: Mapping[str, Any]) -> Style:
    settings = {**one.settings, **changes.get("settings", {})}
    if "font.family" in changes.get("settings", {}) and "font" not in changes:
        changes = {**changes, "font": ""}
    made = replace(one, **{**changes, "settings": settings, "colors": {**one.colors, **changes.get("colors", {})}})
    return replace(made, wide=_wideness({**settings, **_font_settings(made.font)}))


def checked_number(name: str, value: Any, limits: tuple[float, float], unit: str) -> float:
    """Return a number within limits.

    Raises:
        FedscopeError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, Real) or not limits[0] <= float(value) <= limits[1]:
        low, high = limits
        raise FedscopeError(
            f"{name} = {visible(str(value))} is none that figures have; give {low:g} to {high:g} {unit}"
        )
    return float(value)


def _known_font(font: str) -> str:
    from matplotlib import font_manager

    names = font_manager.fontManager.get_font_names()
    if font not in names and font not in _GENERIC:
        hint = nearest(str(font), names) or "; matplotlib.font_manager.get_font_names() lists those that are"
        raise FedscopeError(f"font {visible(str(font))!r} is not installed here{hint}")
    return font


def _known_colours(colors: Any) -> dict[str, str]:
    from matplotlib.colors import is_color_like, to_hex

    if not isinstance(colors, Mapping):
        raise FedscopeError(f"colors = {visible(str(colors))} names no methods; give them as {{'ima': '#0072B2'}}")
    for name, colour in colors.items():
        if not is_color_like(colour):
            raise FedscopeError(
                f"the colour {visible(str(colour))!r} of {visible(str(name))!r} is none that matplotlib knows; give a "
                "name as black, or #0072B2"
            )
    return {str(name): colour if isinstance(colour, str) else to_hex(colour) for name, colour in colors.items()}


def _font_settings(font: str) -> dict[str, Any]:
    """The font of words, with the package's own for letters that it lacks, and mathematics that go with it."""
    if not font:
        return {}
    family = [font] if font in _GENERIC else [font, FONT]
    return {"font.family": family, "mathtext.fontset": _mathematics(font.lower())}


def _mathematics(font: str) -> str:
    """Return matplotlib's set of mathematical letters that is most like a font.

    >>> _mathematics("times new roman"), _mathematics("noto sans"), _mathematics("cmr10")
    ('stix', 'dejavusans', 'cm')
    """
    if font in ("serif", "dejavu serif"):
        return "dejavuserif"
    if font.startswith(("cm", "computer modern", "latin modern")):
        return "cm"
    serifs = ("serif", "times", "roman", "stix", "garamond", "palatino", "georgia", "libertin", "cambria", "century")
    return "stix" if "sans" not in font and any(word in font for word in serifs) else "dejavusans"


def _wideness(settings: Mapping[str, Any]) -> float:
    """How much wider than the package's own font the letters of another are, at least 1."""
    if not any(name.startswith("font.") for name in settings):
        return 1.0
    import matplotlib
    from matplotlib.font_manager import FontProperties

    with in_turn(), matplotlib.rc_context():
        own = _length(FontProperties(family=FONT))
        own_rc: Any = matplotlib.rcParams
        own_rc.update({name: value for name, value in settings.items() if name.startswith("font.")})
        return max(1.0, round(_length(FontProperties()) / own, 3))


def _length(font: Any) -> float:
    from matplotlib.textpath import TextToPath

    return float(TextToPath().get_text_width_height_descent(_SAMPLE, font, ismath=False)[0])


def _of_rc(rc: Mapping[str, Any] | str | None) -> dict[str, Any]:
    """Return settings that were given, or those that the user has changed of matplotlib's own."""
    if rc is None:
        return {}
    if rc == "user":
        import matplotlib

        own: Any = matplotlib.rcParams
        usual: Any = matplotlib.rcParamsDefault
        with in_turn():  # not while a figure has its own
            different = {name: own[name] for name in own if not name.startswith("backend") and own[name] != usual[name]}
        return {
            name: value
            for name, value in different.items()
            if not _NO_LOOK.match(name) and not any(re.fullmatch(pattern, name) for pattern, _ in _REFUSED)
        }
    if not isinstance(rc, Mapping):
        raise FedscopeError(
            f"rc = {visible(str(rc))!r} is no settings; give a dictionary as {{'axes.grid': True}}, or 'user'"
        )
    return {name: _checked(str(name), value, "rc") for name, value in rc.items()}


def _of_file(path: Path) -> dict[str, Any]:
    """Return what an ``.mplstyle`` file sets."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        what = "does not exist" if isinstance(error, FileNotFoundError) else "is no file of text that can be read"
        raise FedscopeError(f"the style {visible(str(path))} {what}; give an .mplstyle file") from None
    found: dict[str, Any] = {}
    for number, line in enumerate(lines, start=1):
        words = _without_comment(line).strip()
        if not words:
            continue
        name, colon, value = words.partition(":")
        place = f"{visible(str(path))}, line {number},"
        if not colon:
            raise FedscopeError(
                f"{place} is no setting of matplotlib: {visible(words)[:60]!r}; write it as font.size: 9"
            )
        value = value.strip()
        quoted = len(value) > 1 and value[0] == value[-1] == '"'
        found[name.strip()] = _checked(name.strip(), value[1:-1] if quoted else value, place)
    return {name: value for name, value in found.items() if not _NO_LOOK.match(name)}


def _without_comment(line: str) -> str:
    """A line up to its first # that is not between double quotes, as matplotlib reads it.

    >>> _without_comment('lines.color: "#0072B2"  # blue').strip()
    'lines.color: "#0072B2"'
    """
    at = next((i for i, sign in enumerate(line) if sign == "#" and line[:i].count('"') % 2 == 0), len(line))
    return line[:at]


def _checked(name: str, value: Any, place: str) -> Any:
    """Return a setting as matplotlib understands it.

    Raises:
        FedscopeError: it does not know it, or a figure of this package cannot have it.
    """
    import matplotlib

    shown = f"{place} sets {visible(name)}"
    for pattern, instead in _REFUSED:
        if re.fullmatch(pattern, name):
            raise FedscopeError(f"{shown}, which figures of fedscope cannot have: {instead}")
    known: Any = matplotlib.rcParams
    if name not in known:
        raise FedscopeError(f"{shown}, which is no setting of matplotlib{nearest(name, list(known)) or ''}")
    try:
        tried: Any = matplotlib.RcParams()
        tried[name] = value
        return _there(name, tried[name])
    except (ValueError, TypeError) as error:
        raise FedscopeError(
            f"{shown} to {visible(str(value))[:60]!r}, which it cannot be ({visible(str(error))[:120]})"
        ) from None


def _there(name: str, value: Any) -> Any:
    """Return a setting that names what matplotlib has; it would look only when it draws. Of fonts those that are there.

    Raises:
        ValueError: it has nothing of the name.
    """
    if name == "image.cmap":
        import matplotlib

        if value not in matplotlib.colormaps:
            raise ValueError(f"no colours of surfaces are called so{nearest(str(value), list(matplotlib.colormaps))}")
    if name in ("lines.marker", "scatter.marker"):
        from matplotlib.markers import MarkerStyle

        MarkerStyle(value)
    if name == "font.family":
        from matplotlib import font_manager

        names = {*font_manager.fontManager.get_font_names(), *_GENERIC}
        if not (found := [one for one in value if one in names]):
            raise ValueError(f"no such font is installed here{nearest(str(value[0]), names)}")
        return found
    return value
