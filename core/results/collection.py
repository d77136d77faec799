"""Collections of results that belong together, and the parts under one base that make one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass, replace
from glob import escape
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, SupportsIndex, TypeVar, overload

from ..checkpoints.io.errors import FedscopeError, list_few
from ..checkpoints.io.untrusted import expand_home
from ..checkpoints.io.warn_user import warn_user
from .base import Result, class_beside
from .versions import of_installed

#: what a part of a collection says of it: the ends of the names of all parts
PARTS = "parts"

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
