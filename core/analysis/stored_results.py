"""``fedscope.load``: stored results, found and read by what their files say, whichever analysis wrote them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any

from ..checkpoints import FedscopeError, expand_home, nearest
from ..checkpoints.io.errors import list_few
from ..checkpoints.io.hdf5 import attribute, open_hdf5
from ..checkpoints.io.keywords import speak_keywords
from ..checkpoints.models.files import is_file_name, is_model_folder
from ..results import ArrayResult, Result
from ..results.base import class_beside
from ..results.collection import Collection, in_order, parts_together
from .register import result_classes

NETCDF = ".nc"
FIGURES = (".pdf", ".png", ".svg", ".html", ".eps", ".ps", ".pgf", ".jpg", ".jpeg", ".tif", ".tiff", ".webp")
#: files of a run, beside its rounds
OF_RUN = ("run.json", "config.toml", "metrics.csv", "partition.h5")
GIVE = "give a result's file or its base, a path without an extension"


@dataclass(frozen=True)
class Stored:
    """A result that lies somewhere.

    Attributes:
        main: the file that says that it is whole; base: its path without what its class ends it with.
        kind: its class.
    """

    main: Path
    base: Path
    kind: type[Result]


@speak_keywords
def load(path: Path | str) -> Any:
    """Open a stored result, as the class that wrote it.

    Args:
        path: the base that it was saved under, any of its files, or a folder that holds one result. Results that belong
            together, as the planes of several rounds, come as their collection under their common base; each by its
            own file.

    Raises:
        FedscopeError: nothing is there; a file that holds no result, such as a figure or another program's; a run; a
            folder of several results; a result that is damaged.

    >>> import tempfile, fedscope, torch
    >>> nets, x = [torch.nn.Linear(2, 2) for _ in range(2)], torch.randn(40, 2)
    >>> line = fedscope.line(nets, data=(x, (x[:, 0] > 0).long()), points=3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [path.name for path in line.save(f"{folder}/mine")]
    ...     type(fedscope.load(f"{folder}/mine")).__name__
    ['mine.nc']
    'Line'
    """
    path = expand_home(path)
    if path.is_dir() and not _at(path):
        return _read(_only(path, _whole(results_in(path))))
    return _read(_named(path))


def results_in(folder: Path, unreadable: dict[str, str] | None = None) -> list[Stored]:
    """Return the whole results in a folder, by name; another program's file of arrays is none.

    Of a result whose files are part of another's (an explanation's decomposition) there are both.

    Args:
        unreadable: takes files of arrays that cannot be read, by name, and why.
    """
    found = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.is_file() and (kind := _class_of(path, {} if unreadable is None else unreadable)):
            found.append(Stored(path, path.with_name(path.name.removesuffix(kind.suffixes[-1])), kind))
    return found


def _class_of(path: Path, unreadable: dict[str, str]) -> type[Result] | None:
    """Return the class of a result by its main file: tables are told by their names, arrays by what they say."""
    named = [kind for kind in result_classes() if path.name.endswith(kind.suffixes[-1]) and path.name[0] != "."]
    if not named or not issubclass(named[0], ArrayResult):
        return next(iter(named), None)
    try:
        said = format_of(path)
    except FedscopeError as error:
        unreadable[path.name] = str(error)
        return None
    return next((kind for kind in named if issubclass(kind, ArrayResult) and said == f"fedscope-{kind.kind}"), None)


def format_of(path: Path) -> str | None:
    """Return the format that a file of arrays names; None where it names none.

    Raises:
        FedscopeError: it cannot be read as such.
    """
    with open_hdf5(path, None, 1, "a netCDF-4 result of fedscope") as file:
        said = attribute(file, "format")
    return said if isinstance(said, str) else None


@cache
def _endings() -> tuple[tuple[str, type[Result]], ...]:
    """Return the ends of the names of all files of results with their classes, the longest first."""
    found = {(end, kind) for kind in result_classes() for end in _files_of(kind)}
    return tuple(sorted(found, key=lambda one: (-len(one[0]), one[0], one[1].__name__)))


def _files_of(kind: type[Result]) -> tuple[str, ...]:
    """Return the ends of all files of a class, those of its collection and of what it keeps beside them among them."""
    more = class_beside(kind, kind.collected).derived if kind.collected else ()
    return (*kind.suffixes, *kind.derived, *more, *kind.alongside)


def _at(base: Path) -> list[Stored]:
    """Return the results that lie under exactly this base."""
    if not base.parent.is_dir():
        return []
    return _without_parts([one for one in results_in(base.parent) if one.base == base])


def _without_parts(found: Sequence[Stored]) -> list[Stored]:
    """Leave out what is a part of another result under the same base: its files are among the other's."""
    own = defaultdict[Path, set[str]](set)
    for one in found:
        own[one.base].update(one.kind.suffixes[:-1])
    return [one for one in found if one.kind.suffixes[-1] not in own[one.base]]


@dataclass(frozen=True)
class Answer:
    """What one question gave: a result, or several that belong together.

    Attributes:
        base: of all; parts: by what stands behind it in the names of their files.
    """

    base: Path
    parts: Mapping[str, Stored]

    @property
    def name(self) -> str:
        """Its base, as a user may give it."""
        return str(self.base)


def _whole(found: Sequence[Stored]) -> list[Answer]:
    """Put together the results of a folder that belong together."""
    alone, several = list[Answer](), defaultdict[type[Result], list[Stored]](list)
    for one in _without_parts(found):
        if one.kind.collected:
            several[one.kind].append(one)
        else:
            alone.append(Answer(one.base, {"": one}))
    for parts in several.values():
        base = _common([one.base.name for one in parts]) if len(parts) > 1 else ""
        if base:
            place = parts[0].base.with_name(base)
            alone.append(Answer(place, {one.base.name.removeprefix(base): one for one in parts}))
        else:
            alone += [Answer(one.base, {"": one}) for one in parts]
    return alone


def _common(names: Sequence[str]) -> str:
    """Return the base that names of parts have in common, up to a dot in each; "" where there is none.

    >>> _common(["p.round-1", "p.round-2", "p.globals"]), _common(["a", "b.x"])
    ('p', '')
    """
    words = [name.split(".") for name in names]
    shared = list(takewhile(lambda own: len(set(own)) == 1, zip(*words, strict=False)))
    return ".".join(own[0] for own in shared)


def _named(path: Path) -> Answer:
    """Return what a path names: a base, or a file.

    Raises:
        FedscopeError: nothing, or no result; says what it is.
    """
    for base, end in _bases(path):
        found = [one for one in _at(base) if end in ("", *_files_of(one.kind))]
        if len(found) > 1:
            raise FedscopeError(
                f"{base} is the base of several results; give the file of one: {list_few(one.main for one in found)}"
            )
        if parts := {"": found[0]} if found else _parts_of(base):
            return Answer(base, parts)
    raise FedscopeError(_strange(path) if path.exists() else _missing(path))


def _bases(path: Path) -> Iterator[tuple[Path, str]]:
    """Yield the bases that a path may mean, the likeliest first, and the ending of the file that it then names, "" for
    none.

    Raises:
        FedscopeError: it is a table of a result whose other files are not there.
    """
    if not path.is_file():
        yield path, ""
        for one in results_in(path.parent):
            if one.main.name.startswith(f"{path.name}.") and _begins(path, one.base):
                yield one.base, one.kind.suffixes[-1]
    for end, kind in _endings():
        if not path.name.endswith(end) or len(path.name) == len(end):
            continue
        base = path.with_name(path.name.removesuffix(end))
        found = _at(base) or list(_parts_of(base).values())
        if any(end in _files_of(one.kind) for one in found):
            yield base, end
        elif path.is_file() and not found and end in kind.suffixes and end != NETCDF:
            kind.load(base)  # says which file is missing


def _begins(path: Path, base: Path) -> bool:
    """Tell whether a path is a base and a part of an ending: ``m.subsets`` of ``m.subsets.json``."""
    return path.name.startswith(f"{base.name}.")


def _parts_of(base: Path) -> dict[str, Stored]:
    """Return the parts under a base, by what stands behind it in the names of their files.

    Raises:
        FedscopeError: results of several kinds.
    """
    if not base.parent.is_dir():
        return {}
    there = [one for one in results_in(base.parent) if one.base.name.startswith(f"{base.name}.") and one.kind.collected]
    if len({one.kind for one in there}) > 1:
        raise FedscopeError(
            f"{base} is the base of results of several kinds; give one's file: {list_few(one.main for one in there)}"
        )
    return {one.base.name.removeprefix(base.name): one for one in there}


def _only(folder: Path, answers: Sequence[Answer]) -> Answer:
    """Return the one answer in a folder.

    Raises:
        FedscopeError: none, or several; says which, or what the folder is.
    """
    own = folder / "figures"
    inside = f"; its results are in {own}: give one of them" if own.is_dir() else ""
    if (folder / "run.json").exists():
        raise FedscopeError(
            f"{folder} is a run, not a result of one; open it with fedscope.Run.open({str(folder)!r}){inside}"
        )
    if (folder / "sweep.json").exists():
        raise FedscopeError(f"{folder} is a sweep, not a result; open it with fedscope.Sweep.open({str(folder)!r})")
    if not answers and is_model_folder(folder):
        raise FedscopeError(f"{folder} is a folder of a model, not a result; read it with fedscope.load_model")
    if not answers:
        raise FedscopeError(f"{folder} is a folder without a result of fedscope in it; {GIVE}")
    if len(answers) > 1:
        names = list_few([answer.base.name for answer in answers], 8)
        raise FedscopeError(f"{folder} holds {len(answers)} results; give one of them: {names}")
    return answers[0]


def _read(answer: Answer) -> Any:
    """Read what was found.

    Raises:
        FedscopeError: it is damaged.
    """
    first = next(iter(answer.parts.values()))
    collection: type[Collection[Any]] | None = None
    if first.kind.collected:
        collection = class_beside(first.kind, first.kind.collected)
    try:
        if collection is None or (list(answer.parts) == [""] and not collection.whole):
            return first.kind.load(first.base)
        parts = {end: one.kind.load(one.base) for end, one in answer.parts.items()}
        several = collection.split_parts(in_order(parts_together(answer.base, parts)))
        if len(several) > 1:
            raise FedscopeError(
                f"{answer.base} is the base of several answers; give the file of one of their parts: "
                f"{list_few(one.main for one in answer.parts.values())}"
            )
        return collection.of_parts(next(iter(several.values())))
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        said = (str(error).splitlines() or [""])[0] or type(error).__name__
        raise FedscopeError(
            f"{first.main}, or another file of this result, is damaged ({said}); compute it again with --force"
        ) from error


def _strange(path: Path) -> str:
    """Say what a file is that is no result, and what to do."""
    if path.suffix in FIGURES:
        base = path.with_suffix("")
        drawn = [one for one in results_in(path.parent) if str(base.name).startswith(one.base.name)]
        numbers = f"its numbers: {drawn[-1].main}" if drawn else "the file of numbers that was saved beside it"
        return f"{path} is a figure, from which no numbers can be read; load {numbers}"
    for folder in (path.parent, path.parent.parent, path.parent.parent.parent):
        if (folder / "run.json").exists() and (path.name in OF_RUN or path.suffix == ".h5"):
            return f"{path} is a file of a run, not a result; open the run with fedscope.Run.open({str(folder)!r})"
    if path.name.endswith(".partial"):
        return (
            f"{path} is what an interrupted command has left, not a whole result; give the same command again, and it "
            "goes on"
        )
    if path.suffix == NETCDF:
        try:
            said = format_of(path)
        except FedscopeError as error:
            return str(error)
        says = "it names no format" if said is None else f"its format is {said[:40]!r}"
        return f"{path} is another program's netCDF file, not a result of fedscope ({says}); open it with xarray"
    if path.suffix == ".csv":
        return f"{path} is a CSV file, and no table of a result of fedscope; read it with pandas.read_csv, or {GIVE}"
    if is_file_name(path.name):
        return f"{path} is a file of models, not a result; read it with fedscope.load_model"
    return f"{path} is no file of a result of fedscope; {GIVE}"


def _missing(path: Path) -> str:
    """Say that nothing is there, with what is near."""
    if not path.parent.is_dir():
        return f"{path} does not exist, nor does the folder {path.parent}; {GIVE}"
    if (arrays := path.with_name(path.name + NETCDF)).is_file():  # a base, of a file that is no result or is damaged
        return _strange(arrays)
    there = list(dict.fromkeys(answer.base.name for answer in _whole(results_in(path.parent))))
    near = nearest(path.name, there, {name: str(path.with_name(name)) for name in there})
    if not near and there:
        near = f"; {path.parent} has {list_few(there, 6)}"
    return f"{path} does not exist, and is not the base of a result{near or f'; {GIVE}'}"
