"""What options take: widths, numbers, text, paths and one's own code, each checked as it is typed."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..checkpoints import expand_home
from ..checkpoints.io.visible_text import visible
from ..evaluation.device import precision_word

# Generic to the type checker, and in older releases of click not to Python.
if TYPE_CHECKING:
    _Type = click.ParamType[Any]
    _Choice = click.Choice[str]
else:
    _Type = click.ParamType
    _Choice = click.Choice


class Inches(_Type):
    """``3.5``, ``3.5in`` or ``89mm``."""

    name = "width"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """A width in inches."""
        text = str(value).strip().lower()
        unit = next((unit for unit in ("in", "mm", "cm") if text.endswith(unit)), "")
        try:
            width = float(text.removesuffix(unit)) / {"": 1, "in": 1, "mm": 25.4, "cm": 2.54}[unit]
        except ValueError:
            self.fail(f"{value!r} is not a width; write 3.5in, 7in or 89mm", param, ctx)
        if not 2 <= width <= 20:
            self.fail(f"{value} is {width:g} inches; figures are 2 to 20 inches wide", param, ctx)
        return width


class Words(_Type):
    """Text of figures, as it was typed also where Python took its bytes for ASCII's."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return text that can be drawn and written; bytes of another encoding as escapes."""
        try:
            return os.fsencode(str(value)).decode("utf-8")
        except UnicodeError:  # bytes of Latin-1, or letters that an ASCII system cannot have given
            return visible(value)


class Count(_Type):
    """A whole number that is at least ``least``."""

    def __init__(self, least: int) -> None:
        self.least = least
        self.name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number."""
        try:
            number = int(value)
        except (TypeError, ValueError):
            self.fail(f"{value!r} is not a whole number", param, ctx)
        if number < self.least:
            self.fail(f"{number} is too small; give {self.least} or more", param, ctx)
        if number >= 2**63:
            self.fail(f"{number} is too large; give less than 2^63", param, ctx)
        return number


class OwnCodeType(_Type):
    """A name, or code of the user's own: ``module:factory``, or ``arch.py:Net``, which only a command line may say."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the text, which gives leave to run a file where it names one."""
        from ..training.import_string import CodeFile

        assert param is not None, "click says which option it is"
        return CodeFile.typed(max(param.opts, key=len), str(value))


class Precision(_Choice):
    """One of the words for an arithmetic, or what else it is called: ``fp32``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the word."""
        return str(super().convert(precision_word(value), param, ctx))


class Formats(_Type):
    """``pdf,png,svg``: one or several formats of figures."""

    name = "formats"
    KNOWN = ("pdf", "png", "svg")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """Return the formats, each once."""
        if isinstance(value, tuple):
            return value
        words = [word.strip().lower().removeprefix(".") for word in str(value).split(",")]
        for word in words:
            if word not in self.KNOWN:
                self.fail(f"{word!r} is no format of figures; give pdf, png or svg, or several as pdf,svg", param, ctx)
        return tuple(dict.fromkeys(words))


class Number(_Type):
    """A number; of one in another spelling it says how that is written."""

    name = "float"
    #: what a number in per cent is divided by, and what is to be written of what is no number at all
    whole, example = 1, "one, as in 0.5"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number; its range is the command's."""
        text = str(value).strip()
        try:
            return float(text)
        except ValueError:
            pass
        several = 1 if param is None else param.nargs
        flag = max(param.opts, key=len) if isinstance(param, click.Option) else ""
        words = re.split(r"[,;\s]+", text.strip("()[]"))
        point = re.sub(r"^([-+]?\d*),(\d+)(?=\D*$)", r"\1.\2", re.sub("^[\u2010-\u2015\u2212]", "-", text))
        if several > 1 and len(words) == several and all(map(_is_number, words)):
            one = f", or {point} for one number" if _is_number(point) else ""
            self.fail(f"{value!r} is one word; write {flag} {' '.join(words)}{one}", param, ctx)
        if re.match(r"-+[A-Za-z]", text):
            count = "a number" if several == 1 else f"{several} numbers"
            self.fail(f"{text} stands in the place of a number; give {flag} {count}, then {text}", param, ctx)
        if thousands := _thousands(text):
            self.fail(f"{value!r} is not a number; write {thousands}", param, ctx)
        point = point.strip("()[],; ")
        if _is_number(point):
            self.fail(f"{value!r} is not a number; write {point}", param, ctx)
        top, _, bottom = point.rstrip("% ").partition("/")
        try:
            number = float(top) / float(bottom or 1) / (self.whole if text.endswith("%") else 1)
        except (ValueError, ZeroDivisionError):
            self.fail(f"{value!r} is not a number; write {self.example}", param, ctx)
        self.fail(f"{value!r} is not a number; write {number:.15g}", param, ctx)


class Share(Number):
    """A number of which ``60%`` is 0.6."""

    whole, example = 100, "0.6 for 60 %"


def _thousands(text: str) -> str:
    """Write a number whose commas may stand between thousands; "" of another.

    >>> _thousands("1,000"), _thousands("1,000,000"), _thousands("0,125")
    ('1000, or 1.000 if its comma is a decimal one', '1000000', '')
    """
    if not re.fullmatch(r"[-+]?[1-9]\d{0,2}(,\d{3})+", text):
        return ""
    whole = text.replace(",", "")
    return whole if text.count(",") > 1 else f"{whole}, or {text.replace(',', '.')} if its comma is a decimal one"


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


class TypedShare(float):
    """A share, which reads in sentences as it was typed."""

    typed = ""

    def __str__(self) -> str:
        """As it was typed."""
        return self.typed


class PointShare(_Type):
    """``15%`` or ``0.15``."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the share; its range is the analysis's."""
        text = str(value).strip()
        try:
            share = TypedShare(float(text.removesuffix("%")) / (100 if text.endswith("%") else 1))
        except ValueError:
            self.fail(f"{value!r} is no share of the points; write 15% or 0.15", param, ctx)
        share.typed = text
        return share


class HomePath(click.Path):
    """A path; of ``--out=~/x`` no shell has made that in the home folder."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        return expand_home(str(super().convert(value, param, ctx)))


@dataclass(frozen=True)
class InFolder:
    """A folder that was typed for a result, which has its default name there."""

    path: Path


class ResultPath(HomePath):
    """A path for a result, without an extension; one of a figure or a table that was typed is left off.

    ``DIR/``, ``~``, ``.`` and ``..`` can only be folders, so these are :class:`InFolder`.
    """

    ENDS = (".pdf", ".png", ".svg", ".html", ".nc", ".csv", ".json", ".safetensors")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        if isinstance(value, InFolder):
            return value
        path: Path = super().convert(value, param, ctx)
        typed = str(value)
        if typed.endswith(("/", os.sep, "/.", f"{os.sep}.")) or typed == "~" or path.name in ("", ".."):
            return InFolder(path)
        return path.with_suffix("") if path.suffix in self.ENDS else path
