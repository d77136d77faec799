"""The base of all results, of any analysis and in any form of files."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Self

from ..checkpoints.io.errors import FedscopeError
from ..checkpoints.io.given_values import plain_device, taken
from ..checkpoints.io.keywords import speaking
from ..checkpoints.io.safe_write import explain_unwritten
from ..checkpoints.io.untrusted import expand_home
from ..checkpoints.io.visible_text import visible
from .labels import names_in, rename, runs_named
from .pictures import picture_of
from .result_repr import describe

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Result(ABC):
    """The answer to a question: numbers, and what they were made from.

    A result is kept under a base, a path without an extension. A subclass says how
    (:class:`~fedscope.results.tables.TableResult`, :class:`~fedscope.results.arrays.ArrayResult`) and gives
    :meth:`summary` and :meth:`findings`.

    Attributes:
        attrs: provenance: runs, data, split, samples, seed, device, precision, versions.
        command: of the command line that asks the same, for sentences.
        suffixes: of its files; the last one is written last, so that a result that has it is whole.
        derived: what stands behind the base in the names of files that :meth:`derive` writes.
        drawn: the same of its figures, and who draws each: a function of the file ``figure.py`` in the folder of the
            class, or ``file:function``; it takes the result, a width in inches and a title, and gives None where it has
            nothing.
        paged: the same of its web pages, from ``page.py``; it takes the result and a title.
        alongside: the same of files that :meth:`save` writes beside them, such as a model.
        collected: the collection of several, in the folder of the class as ``file:Class``; "" where there is none.
        grows: settings that say how far it was computed: where another value is asked for, :meth:`is_enough` tells
            whether it is the answer, and else what is computed goes on from it.
    """

    command: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]]
    derived: ClassVar[tuple[str, ...]] = ()
    drawn: ClassVar[Mapping[str, str]] = MappingProxyType({"": "draw"})
    paged: ClassVar[Mapping[str, str]] = MappingProxyType({})
    grows: ClassVar[tuple[str, ...]] = ()
    alongside: ClassVar[tuple[str, ...]] = ()
    collected: ClassVar[str] = ""
    attrs: Mapping[str, Any]

    def __init_subclass__(cls, **given: Any) -> None:
        """Have every kind's summary say of accepted data that they were, so that none leaves it out, and every
        kind's save why a file cannot be written; and keep dataclasses from giving it a repr of all its numbers."""
        super().__init_subclass__(**given)
        cls.__repr__ = Result.__repr__  # type: ignore[method-assign]
        if "summary" in cls.__dict__ and not getattr(cls.summary, "__isabstractmethod__", False):
            cls.summary = _with_accepted(cls.summary)  # type: ignore[method-assign, assignment]
        if "save" in cls.__dict__ and not getattr(cls.save, "__isabstractmethod__", False):
            cls.save = explain_unwritten()(cls.save)  # type: ignore[method-assign]

    @abstractmethod
    def save(self, base: Path | str) -> list[Path]:
        """Write its files durably, and return their paths. Floats survive exactly.

        Raises:
            FedscopeError: they cannot be written; the disk is full.
        """

    @classmethod
    @abstractmethod
    def load(cls, base: Path | str) -> Self:
        """Read what :meth:`save` wrote.

        Raises:
            FedscopeError: a file is missing, damaged, or of another kind or version.
        """

    @classmethod
    def paths(cls, base: Path | str) -> list[Path]:
        """Return the paths of its files, the one that says that it is complete last; ``base`` may have that one's
        suffix."""
        base = expand_home(base)
        stem = base.name.removesuffix(cls.suffixes[-1])
        return [base.with_name(stem + suffix) for suffix in cls.suffixes]

    def is_enough(self, asked: Mapping[str, Any]) -> bool:
        """Whether it is the answer to these settings, which differ in :attr:`grows` at most."""
        return True

    def derive(self, base: Path | str, *, again: bool = True) -> list[Path]:
        """Write files that hold only another form of the numbers, and return their paths; most results have none.

        Args:
            again: False leaves what is there as it is.
        """
        return []

    @classmethod
    def drawing(cls, end: str) -> Callable[..., Any]:
        """Return the function that draws the figure of an ending of :attr:`drawn`."""
        return _beside(cls, cls.drawn[end], "figure")

    @classmethod
    def paging(cls, end: str) -> Callable[..., str]:
        """Return the function that makes the page of an ending of :attr:`paged`."""
        return _beside(cls, cls.paged[end], "page")

    def figure(self, width: float | None = None, title: str | None = None, *more: Any, **drawing: Any) -> Figure:
        """Return the figure for a paper, in the style in use (:func:`fedscope.style`).

        Args:
            width: in inches; by default the style's, a column of 3.5.
            more, drawing: what this figure can be asked, in its order or by name. Any can be asked for ``ax=``, axes
                of matplotlib to draw into, or several in the order of the figure's panels: nothing is drawn but the
                panel, its legend and its colour bar. Or for ``into=``, a part of a figure of your own, as
                ``figure.subfigures(1, 2)`` makes, which the whole figure is drawn into.

        Raises:
            FedscopeError: there is nothing to draw; other axes than panels; a part that is too small.
        """
        with speaking({"width": width, "title": title, **drawing}):
            figure: Figure = self._drawn(next(iter(self.drawn)), width, title, *more, **drawing)
        return figure

    def _drawn(self, end: str, width: float | None, title: str | None, *more: Any, **drawing: Any) -> Any:
        draw = self.drawing(end)
        title = _title(title)
        if not hasattr(draw, "in_style"):  # an analysis of the user's own that is drawn its own way
            for name in {"ax", "into"} & set(drawing):
                raise FedscopeError(
                    f"the figure of {self.command} knows no {name}; have its function draw under @drawing"
                )
            width = 3.5 if width is None else taken("width", width, "float", 3.5)
        return draw(self, width, title, *more, **drawing)

    def figures(self, width: float | None = None, title: str | None = None, **drawing: Any) -> dict[str, Figure]:
        """All figures by what stands behind the base in their names; ``drawing`` is what the first can be asked."""
        first, *others = self.drawn
        made = {first: self.figure(width, title, **drawing)}
        made |= {end: self._drawn(end, width, title) for end in others}
        return {end: figure for end, figure in made.items() if figure is not None}

    def pages(self, title: str | None = None, **drawing: Any) -> dict[str, str]:
        """Web pages by what stands behind the base in their names; most results have none. ``drawing`` is as of
        :meth:`figures`."""
        return {end: self.paging(end)(self, _title(title), **drawing) for end in self.paged}

    @classmethod
    def runs_named(cls, settings: Mapping[str, Any]) -> frozenset[str]:
        """Return the runs with whose names all names of such a result will begin, given its settings; none where that
        is not known before it is there."""
        return runs_named(settings)

    @abstractmethod
    def summary(self) -> str:
        """Describe what was found, in one sentence a part, with its numbers and their errors."""

    def told(self, width: int) -> str:
        """Return the same for a screen of so many characters; a page that is written in lines takes it into account."""
        return self.summary()

    def numbers(self) -> dict[str, Any]:
        """Return what was found as plain JSON types: what ``--json`` prints, less its ``files``."""
        return {name: plain(value) for name, value in self.findings().items()}

    @abstractmethod
    def findings(self) -> dict[str, Any]:
        """Return the same with NaN, tuples and arrays as they are."""

    def list_names(self) -> tuple[str, ...]:
        """List the runs and models that it is about, each once, in its order."""
        return names_in(self)

    def list_drawn(self) -> tuple[str, ...]:
        """List those of :meth:`list_names` that stand in its figure, in its order, where others do not; else none."""
        return ()

    def renamed(self, labels: Mapping[str, str]) -> Self:
        """Return the same result with other names for its runs and models, in figures, pages, tables and sentences.

        Args:
            labels: by the names of :meth:`list_names`, or by a run: ``ima`` for all of ``ima@40/client-3`` and others.

        Raises:
            FedscopeError: a name that is not in it; an empty label, or one for two.
        """
        return rename(self, labels)

    @abstractmethod
    def to_pandas(self) -> Any:
        """Return its numbers as a data frame: a row a row of its table, or a value of its arrays; of several tables or
        parts a dictionary of them by what their files are called.

        Raises:
            FedscopeError: pandas is not installed.
        """

    @abstractmethod
    def to_xarray(self) -> Any:
        """Return its arrays with their dimensions and attributes, or its tables as such, as one data set; of several
        parts a dictionary of them by what their files are called.

        Raises:
            FedscopeError: xarray is not installed.
        """

    def __repr__(self) -> str:
        return describe(self)

    def _repr_html_(self) -> str:
        """Return the sentence and the figure, for a notebook; where nothing can be drawn the text as a terminal has
        it."""
        from base64 import b64encode
        from html import escape

        lines = [escape(visible(line)) for line in self.summary().splitlines()]
        try:
            pictures = [picture_of(figure, dpi=150) for figure in self.figures().values()]
        except FedscopeError:  # as of a table of methods alone, whose numbers stand in columns
            return "<pre>{}</pre>".format("\n".join(lines))
        said = "".join(f"<p>{line}</p>" for line in lines)
        drawn = (f'<img src="data:image/png;base64,{b64encode(one).decode()}">' for one in pictures)
        return said + "".join(drawn)


def _title(given: Any) -> str | None:
    """Return a title as text.

    Raises:
        FedscopeError: a number, a list, ...
    """
    return None if given is None else str(taken("title", given, "str"))


def _beside(cls: type[Result], name: str, file: str) -> Callable[..., Any]:
    """Return a function of a file in the folder of a class."""
    other, colon, function = name.rpartition(":")
    package = cls.__module__.rpartition(".")[0]
    found: Callable[..., Any] = getattr(import_module(f"{package}.{other if colon else file}"), function)
    return found


def class_beside(cls: type[Result], name: str) -> Any:
    """Return a class of a file in the folder of another, ``file:Class``, or of the same file, ``Class``."""
    return _beside(cls, name, cls.__module__.rpartition(".")[2])


def _with_accepted(summary: Callable[[Any], str]) -> Callable[[Any], str]:
    """A summary that ends with what was accepted of the data, where it does not say it."""

    @wraps(summary)
    def said(result: Any) -> str:
        words, accepted = summary(result), visible(str(dict(result.attrs).get("data_accepted") or ""))
        if not accepted or accepted in words:
            return words
        return f"{words.rstrip()}\ndata accepted (--accept-data): {accepted}" + ("\n" if words.endswith("\n") else "")

    return said


def plain(value: Any, *, finite: bool = True) -> Any:
    """Turn a value into what strict readers of JSON take: NaN and infinities become None, arrays lists, tuples lists.

    Args:
        finite: False leaves NaN and infinities as they are, for whoever refuses them by their names.

    >>> plain({"loss": (1.5, float("nan"))})
    {'loss': [1.5, None]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(part, finite=finite) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part, finite=finite) for part in value]
    if hasattr(value, "tolist"):  # NumPy's arrays and numbers
        return plain(value.tolist(), finite=finite)
    if isinstance(value, Path):
        return str(value)
    value = plain_device(value)
    return None if finite and isinstance(value, float) and not math.isfinite(value) else value
