"""The base of all results, of any analysis and in any form of files; and collections of results that belong
together."""

from __future__ import annotations

import math
import platform
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass, replace
from functools import cache, wraps
from glob import escape
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, SupportsIndex, TypeVar, overload

from ..checkpoints.io.errors import FedscopeError, list_few
from ..checkpoints.io.given_values import plain_device, taken
from ..checkpoints.io.keywords import speaking
from ..checkpoints.io.safe_write import explain_unwritten
from ..checkpoints.io.untrusted import expand_home
from ..checkpoints.io.visible_text import visible
from ..checkpoints.io.warn_user import warn_user
from .labels import names_in, rename, runs_named
from .one_screen import describe
from .pictures import picture_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: what a part of a collection says of it: the ends of the names of all parts
PARTS = "parts"


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
        width, title = taken("width", width, "float | None", 3.5), _title(title)
        if not hasattr(draw, "in_style"):  # an analysis of the user's own that is drawn its own way
            for name in {"ax", "into"} & set(drawing):
                raise FedscopeError(
                    f"the figure of {self.command} knows no {name}; have its function draw under @drawing"
                )
            width = 3.5 if width is None else width
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


R = TypeVar("R", bound=Result)


class Collection(Result, Generic[R]):
    """The answers to one question for several runs, rounds, layers or sets of samples; each has files of its own.

    Attributes:
        parts: the results, by what stands behind the base in the names of their files (``.ima``, ``.round-20``).
        part: the class of each, in the folder of this one as ``file:Class``.
        whole: whether one part alone is such a collection, too.

    Raises:
        FedscopeError: no part.
    """

    part: ClassVar[str] = ""
    whole: ClassVar[bool] = False

    def __init__(self, parts: Mapping[str, R]) -> None:
        if not parts:
            raise FedscopeError("there is no result to put together; give at least one")
        self.parts = dict(parts)

    @classmethod
    def of_parts(cls, parts: Mapping[str, R]) -> Self:
        """Build the collection of what :meth:`save` wrote, in its order."""
        return cls(parts)

    @classmethod
    def split_parts(cls, parts: Mapping[str, R]) -> dict[str, dict[str, R]]:
        """Return the collections that parts under one base are, by what stands behind the base in the names of their
        figures: one, of most kinds."""
        return {"": dict(parts)}

    @property
    def attrs(self) -> Mapping[str, Any]:  # type: ignore[override]
        """The provenance of the first part."""
        return next(iter(self.parts.values())).attrs

    def __len__(self) -> int:
        return len(self.parts)

    def __iter__(self) -> Iterator[R]:
        return iter(self.parts.values())

    @overload
    def __getitem__(self, end: str | SupportsIndex) -> R: ...

    @overload
    def __getitem__(self, end: slice) -> list[R]: ...

    def __getitem__(self, end: str | SupportsIndex | slice) -> R | list[R]:
        """Return a part by what stands behind its base, or by its place; of a slice a list."""
        return self.parts[end] if isinstance(end, str) else list(self)[end]

    def save(self, base: Path | str) -> list[Path]:
        """Write every part's files, and what is derived from all."""
        base = expand_home(base)
        written = [
            path
            for place, (end, part) in enumerate(self.parts.items())
            for path in placed(part, place, end, list(self.parts)).save(f"{base}{end}")
        ]
        return list(dict.fromkeys([*written, *self.derive(base)]))

    @classmethod
    def load(cls, base: Path | str) -> Self:
        """Read the parts that :meth:`save` wrote under the base, in their order.

        Raises:
            FedscopeError: there is none; one is damaged; the parts of several collections lie there.
        """
        kind = class_beside(cls, cls.part)
        there = {end: kind.load(f"{base}{end}") for end in ends_at(kind, base)}
        several = cls.split_parts(parts_together(base, there)) if there else {}
        if not several:
            raise FedscopeError(
                f"no result of {kind.command} lies at {base}; its files would be called {base}*{kind.suffixes[-1]}"
            )
        if len(several) > 1:
            raise FedscopeError(f"{base} is the base of several answers; give {_one_of(base, several)}")
        return cls.of_parts(in_order(next(iter(several.values()))))

    def derive(self, base: Path | str, *, again: bool = True) -> list[Path]:
        """Write what every part derives."""
        return [path for end, part in self.parts.items() for path in part.derive(f"{base}{end}", again=again)]

    def summary(self) -> str:
        """Every part's sentence, a line each."""
        return "\n".join(part.summary() for part in self)

    def pages(self, title: str | None = None, **drawing: Any) -> dict[str, str]:
        """Every part's pages."""
        pages = {end: part.pages(title, **drawing) for end, part in self.parts.items()}
        return {f"{end}{more}": page for end, own in pages.items() for more, page in own.items()}

    def to_pandas(self, *given: Any) -> Any:
        """All parts' rows in one frame, behind a column ``part`` that says whose they are; of one part its own.

        Raises:
            FedscopeError: pandas is not installed.
        """
        frames = {end.lstrip("."): part.to_pandas(*given) for end, part in self.parts.items()}
        if len(frames) == 1:
            return next(iter(frames.values()))
        pandas = of_installed("pandas", "frames")
        for end, frame in frames.items():
            frame.insert(0, "part", end)
        return pandas.concat(list(frames.values()), ignore_index=True)

    def to_xarray(self) -> Any:
        """Every part's data set, by what its files are called; of one part its own.

        Raises:
            FedscopeError: xarray is not installed.
        """
        sets = {end.lstrip("."): part.to_xarray() for end, part in self.parts.items()}
        return sets if len(sets) > 1 else next(iter(sets.values()))


def ends_at(kind: type[Result], base: Path | str) -> list[str]:
    """Return what stands behind a base in the names of the whole results of a class that lie there: "", ``.ima``."""
    base, last = expand_home(base), kind.suffixes[-1]
    names = (path.name for path in base.parent.glob(f"{escape(base.name)}*{last}"))
    ends = (name.removeprefix(base.name).removesuffix(last) for name in names)
    return sorted(end for end in ends if not end or end.startswith("."))


def in_order(parts: Mapping[str, R]) -> dict[str, R]:
    """Sort parts by the place that each says it had; those of older versions, which say none, by their names."""

    def place(end: str) -> tuple[int, list[tuple[int, str]]]:
        said = parts[end].attrs.get("part")
        numbered = [(int(word), "") if word.isdecimal() else (-1, word) for word in re.split(r"(\d+)", end)]
        return (said if isinstance(said, int) else -1), numbered

    return {end: parts[end] for end in sorted(parts, key=place)}


def placed(part: R, place: int, end: str, ends: Sequence[str]) -> R:
    """Return a part that says which it is, and of which it is one; a part that is all of it says nothing."""
    own = {"part": place, PARTS: list(ends)}
    if not (end and part.collected and is_dataclass(part)) or own.items() <= dict(part.attrs).items():
        return part
    return replace(part, attrs={**part.attrs, **own})


def says_others(part: Result, end: str, ends: Sequence[str]) -> bool:
    """Check whether a part says that it is one of others than these."""
    return bool(end) and part.attrs.get(PARTS, list(ends)) != list(ends)


def parts_together(base: Path | str, parts: Mapping[str, R]) -> dict[str, R]:
    """Return those of the parts under a base that are one answer, and warn of others: an earlier command may have left
    some. Parts of older versions, which do not say of which they are one, are an answer if nothing speaks against it.

    Args:
        parts: by what stands behind the base in the names of their files.

    Raises:
        FedscopeError: parts of several answers; names their files.
    """
    groups: dict[tuple[str, ...], dict[str, R]] = {}
    for end, part in parts.items():
        said = tuple(part.attrs.get(PARTS, ()))
        if end in said:  # else its own base is another, or it was renamed
            groups.setdefault(said, {})[end] = part
    whole = [own for said, own in groups.items() if set(said) == set(own)]
    if len(whole) == 1 and (own := whole[0]):
        left = [end for end in others_in(base, parts) if end not in own]
        if left:
            warn_user(
                f"{list_few(_mains(parts, base, left))} {'are' if len(left) > 1 else 'is'} of another command than "
                f"{list_few(_mains(parts, base, in_order(own)))}, and left out"
            )
        return own
    if not whole and len(groups) < 2 and not (doubled := _doubled(parts)):
        return dict(parts)
    raise FedscopeError(
        f"{base} is the base of parts of several answers; give the file of one, or compute one anew with --force: "
        f"{list_few(_mains(parts, base, parts if whole or len(groups) > 1 else doubled), 6)}"
    )


def others_in(base: Path | str, parts: Mapping[str, Result]) -> list[str]:
    """Return the ends of the parts that are of this base, as far as they say it: not of ``BASE.more``."""
    return [end for end, part in parts.items() if "part" in part.attrs and end in part.attrs.get(PARTS, [end])]


def _doubled(parts: Mapping[str, Result]) -> list[str]:
    """Return the parts of older versions that cannot be one answer: in one place, or of a run that was replaced."""
    seen: dict[Any, str] = {}
    found: list[str] = []
    for end, part in parts.items():
        if "part" in part.attrs and (other := seen.setdefault(part.attrs["part"], end)) != end:
            found += [other, end]
    return list(dict.fromkeys([*found, *of_replaced(parts)]))


def of_replaced(parts: Mapping[str, Result]) -> list[str]:
    """Return the ends of parts that are of two runs in one folder, of which the one has replaced the other."""
    seen: dict[str, tuple[str, Any]] = {}
    found: list[str] = []
    for end, part in parts.items():
        runs = part.attrs.get("run")
        for run in runs if isinstance(runs, list) else [runs]:
            if isinstance(run, dict) and {"path", "created"} <= run.keys():
                other, created = seen.setdefault(run["path"], (end, run["created"]))
                found += [] if created == run["created"] else [other, end]
    return list(dict.fromkeys(found))


def _mains(parts: Mapping[str, Result], base: Path | str, ends: Iterable[str]) -> list[str]:
    return [str(parts[end].paths(f"{base}{end}")[-1]) for end in ends]


def _one_of(base: Path | str, ends: Iterable[str]) -> str:
    return " or ".join(f"{base}{end}" for end in ends)


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


def of_installed(package: str, extra: str) -> Any:
    """A package that fedscope does without.

    Raises:
        FedscopeError: it is not installed.
    """
    try:
        return import_module(package)
    except ImportError:
        raise FedscopeError(f"{package} is not installed; pip install 'fedscope[{extra}]'") from None


def versions() -> dict[str, str]:
    """Versions of fedscope, torch, python and numpy, without importing them."""
    return {
        "fedscope": _version("fedscope"),
        "torch": _version("torch"),
        "python": platform.python_version(),
        "numpy": _version("numpy"),
    }


@cache  # read from the disk, and the same as long as the process lives
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # a checkout on the path that was never installed
        return "not installed"
