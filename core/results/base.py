"""The base of all results, of any analysis and in any form of files; and collections of results that belong
together."""

from __future__ import annotations

import math
import platform
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from ..checkpoints.io.errors import FedscopeError
from ..checkpoints.io.visible_text import visible
from .labels import names_in, rename
from .pictures import picture_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Result(ABC):
    """The answer to a question: numbers, and what they were made from.

    A result is kept under a base, a path without an extension. A subclass says how (:class:`TableResult`,
    :class:`ArrayResult`) and gives :meth:`summary` and :meth:`findings`.

    Attributes:
        attrs: provenance: runs, data, split, samples, seed, device, precision, versions.
        command: of the command line that asks the same, for sentences.
        suffixes: of its files; the last one is written last, so that a result that has it is whole.
        derived: what stands behind the base in the names of files that :meth:`derive` writes.
        drawn: the same of its figures, and who draws each: a function of the file ``figure.py`` in the folder of the
            class, or ``file:function``; it takes the result, a width in inches and a title, and gives None where it has
            nothing.
        paged: the same of its web pages, from ``page.py``; it takes the result and a title.
        grows: settings that say how far it was computed: where another value is asked for, :meth:`is_enough` tells
            whether it is the answer, and else what is computed goes on from it.
    """

    command: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]]
    derived: ClassVar[tuple[str, ...]] = ()
    drawn: ClassVar[Mapping[str, str]] = MappingProxyType({"": "draw"})
    paged: ClassVar[Mapping[str, str]] = MappingProxyType({})
    grows: ClassVar[tuple[str, ...]] = ()
    attrs: Mapping[str, Any]

    def __init_subclass__(cls, **given: Any) -> None:
        """Have every kind's summary say of accepted data that they were, so that none leaves it out."""
        super().__init_subclass__(**given)
        if "summary" in cls.__dict__ and not getattr(cls.summary, "__isabstractmethod__", False):
            cls.summary = _with_accepted(cls.summary)  # type: ignore[method-assign, assignment]

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
        base = Path(base)
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

    def figure(self, width: float = 3.5, title: str | None = None, *more: Any, **drawing: Any) -> Figure:
        """Return the figure for a paper; ``width`` in inches.

        Args:
            more, drawing: what this figure can be asked, in its order or by name.

        Raises:
            FedscopeError: there is nothing to draw.
        """
        figure: Figure = self.drawing(next(iter(self.drawn)))(self, width, title, *more, **drawing)
        return figure

    def figures(self, width: float = 3.5, title: str | None = None, **drawing: Any) -> dict[str, Figure]:
        """All figures by what stands behind the base in their names; ``drawing`` is what the first can be asked."""
        first, *others = self.drawn
        made = {first: self.figure(width, title, **drawing)}
        made |= {end: self.drawing(end)(self, width, title) for end in others}
        return {end: figure for end, figure in made.items() if figure is not None}

    def pages(self, title: str | None = None, **drawing: Any) -> dict[str, str]:
        """Web pages by what stands behind the base in their names; most results have none. ``drawing`` is as of
        :meth:`figures`."""
        return {end: self.paging(end)(self, title, **drawing) for end in self.paged}

    @abstractmethod
    def summary(self) -> str:
        """Describe what was found, in one sentence a part, with its numbers and their errors."""

    def numbers(self) -> dict[str, Any]:
        """Return what was found as plain JSON types: what ``--json`` prints, less its ``files``."""
        return {name: plain(value) for name, value in self.findings().items()}

    @abstractmethod
    def findings(self) -> dict[str, Any]:
        """Return the same with NaN, tuples and arrays as they are."""

    def list_names(self) -> tuple[str, ...]:
        """List the runs and models that it is about, each once, in its order."""
        return names_in(self)

    def renamed(self, labels: Mapping[str, str]) -> Self:
        """Return the same result with other names for its runs and models, in figures, pages, tables and sentences.

        Args:
            labels: by the names of :meth:`list_names`, or by a run: ``ima`` for all of ``ima@40/client-3`` and others.

        Raises:
            FedscopeError: a name that is not in it; an empty label, or one for two.
        """
        return rename(self, labels)

    def to_pandas(self) -> Any:
        """Its tables as data frames.

        Raises:
            FedscopeError: it is kept as arrays; pandas is not installed.
        """
        raise FedscopeError(f"a result of {self.command} is kept as arrays; take to_xarray() instead")

    def to_xarray(self) -> Any:
        """Its arrays, with their dimensions and attributes.

        Raises:
            FedscopeError: it is kept as tables; xarray is not installed.
        """
        raise FedscopeError(f"a result of {self.command} is kept as tables; take to_pandas() instead")

    def _repr_html_(self) -> str:
        """Return the sentence and the figure, for a notebook."""
        from base64 import b64encode
        from html import escape

        said = "".join(f"<p>{escape(visible(line))}</p>" for line in self.summary().splitlines())
        drawn = ""
        for figure in self.figures().values():
            picture = picture_of(figure, dpi=150)
            drawn += f'<img src="data:image/png;base64,{b64encode(picture).decode()}">'
        return said + drawn


def _beside(cls: type[Result], name: str, file: str) -> Callable[..., Any]:
    """Return a function of a file in the folder of a class."""
    other, colon, function = name.rpartition(":")
    package = cls.__module__.rpartition(".")[0]
    found: Callable[..., Any] = getattr(import_module(f"{package}.{other if colon else file}"), function)
    return found


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

    Raises:
        FedscopeError: no part.
    """

    def __init__(self, parts: Mapping[str, R]) -> None:
        if not parts:
            raise FedscopeError("there is no result to put together; give at least one")
        self.parts = dict(parts)

    @property
    def attrs(self) -> Mapping[str, Any]:  # type: ignore[override]
        """The provenance of the first part."""
        return next(iter(self.parts.values())).attrs

    def __len__(self) -> int:
        return len(self.parts)

    def __iter__(self) -> Iterator[R]:
        return iter(self.parts.values())

    def __getitem__(self, end: str | int) -> R:
        return list(self)[end] if isinstance(end, int) else self.parts[end]

    def save(self, base: Path | str) -> list[Path]:
        """Write every part's files, and what is derived from all."""
        return [*(path for end, part in self.parts.items() for path in part.save(f"{base}{end}")), *self.derive(base)]

    @classmethod
    def load(cls, base: Path | str) -> Self:
        """Parts are loaded one by one, by the class of their own."""
        raise FedscopeError(f"{base} names several results; load each by its own file")

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


def plain(value: Any) -> Any:
    """Turn a value into what strict readers of JSON take: NaN and infinities become None, arrays lists, tuples lists.

    >>> plain({"loss": (1.5, float("nan"))})
    {'loss': [1.5, None]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if hasattr(value, "tolist"):  # NumPy's arrays and numbers
        return plain(value.tolist())
    if isinstance(value, Path):
        return str(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


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


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # a checkout on the path that was never installed
        return "not installed"
