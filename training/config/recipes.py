"""Recipes: the papers' set-ups by name, ``ima/table1-cifar10-cnn-shards2``; what each shows, and what was published."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from itertools import product
from typing import Any

from ...checkpoints import FedscopeError, nearest
from ...checkpoints.io.errors import list_few
from ...checkpoints.io.keywords import speaking
from ...checkpoints.io.number_words import exact
from ..settings.registry import METHOD_SECTIONS, canonical_method, preset
from .config import SECTIONS, merge, methods_in

#: settings by ``section.key``, and ``method``: one cell along an axis, or one cell of a sweep
Cell = Mapping[str, Any]
Tables = Mapping[str, Mapping[str, Any]]

_LABEL = "label"
#: what papers are also called: FedSA was published as FedPake
_ALSO = {"fedpake": "fedsa"}


@dataclass(frozen=True)
class Published:
    """One number of a paper.

    Attributes:
        row: the method, or the label of the row; column: ``average.method=ima``, or "" where there is one column.
        value: as printed, accuracies in %; deviation: over seeds, None where none is printed.
    """

    row: str
    column: str
    value: float
    deviation: float | None = None


@dataclass(frozen=True)
class Recipe:
    """A paper's set-up: all but the method.

    Attributes:
        name: ``paper/name``; shows: what the figure or the table shows.
        tables: the settings, as a configuration has them.
        by_method: settings that belong to a method, by its name, or to two that meet, as ``fedadam+ima``.
        axes: what the figure or the table varies; a cell has one of each.
        grid: of a method, the values that its paper chose from.
        measure: what was published; published: the numbers that can be read in our copies.
        chosen: what the paper leaves open, and what stands here; then: the commands that draw it.
        ours: settings that are not the paper's, ``client.lr`` or of a method ``fedasam: client.sam_rho``, and why; ""
            of those that another sentence of ``chosen`` tells. All other settings are as published.
    """

    name: str
    shows: str
    tables: Tables
    by_method: Mapping[str, Tables] = field(default_factory=dict)
    axes: tuple[tuple[Cell, ...], ...] = ()
    grid: Mapping[str, Mapping[str, tuple[Any, ...]]] = field(default_factory=dict)
    measure: str = ""
    published: tuple[Published, ...] = ()
    chosen: tuple[str, ...] = ()
    then: tuple[str, ...] = ()
    ours: Mapping[str, str] = field(default_factory=dict)

    @property
    def paper(self) -> str:
        """The name before the slash."""
        return self.name.partition("/")[0]

    def configured(self, method: str | None = None, *changes: Tables) -> dict[str, dict[str, Any]]:
        """Return the tables of a configuration: the recipe's, the method's own, and what is laid over them, later ones
        above.

        Args:
            method: as ``--method``; by default what the recipe says, else FMA. Without an average of its own it leaves
                the recipe's.

        Raises:
            FedscopeError: an unknown method; what :func:`~fedscope.training.config.config.merge` refuses.

        >>> tables = recipe("ima/table1-pacs-alexnet-shards2").configured("fedasam")
        >>> tables["client"]["sam_rho"], tables["data"]["clients"], tables["run"]["rounds"]
        (0.2, 80, 400)
        """
        with speaking({"method": None}):
            own = preset(method) if method else {}
        if own and own["average"]["method"] == "none":
            del own["average"]
        # all methods are chosen before their settings are laid on them: another choice would drop these
        chosen = merge(preset("fma"), self.tables, own, methods_in(*changes))
        names = _names(method, chosen)
        named = [tables for name, tables in self.by_method.items() if set(name.split("+")) <= names]
        return merge(chosen, *named, *changes)

    def cells(self) -> tuple[dict[str, Any], ...]:
        """All cells of the figure or the table: one of each axis, the last axis fastest; one empty cell without axes.

        >>> len(recipe("ima/table1-fmnist-cnn-shards2").cells())
        16
        """
        return cells_of(self.axes)


def cells_of(axes: tuple[tuple[Cell, ...], ...]) -> tuple[dict[str, Any], ...]:
    """One cell of each axis, in all combinations, the last axis fastest; labels are joined."""
    made = []
    for parts in product(*axes):
        cell: dict[str, Any] = {}
        for part in parts:
            cell |= {key: value for key, value in part.items() if key != _LABEL}
        if labels := [part[_LABEL] for part in parts if _LABEL in part]:
            cell[_LABEL] = ", ".join(labels)
        made.append(cell)
    return tuple(made)


def tables_of(cell: Cell) -> tuple[str | None, dict[str, dict[str, Any]]]:
    """A cell's method, and its other settings as tables.

    >>> tables_of({"method": "fedprox", "client.mu": 0.1, "label": "FedProx"})
    ('fedprox', {'client': {'mu': 0.1}})
    """
    tables: dict[str, dict[str, Any]] = {}
    for place, value in cell.items():
        section, dot, key = place.partition(".")
        if dot:
            tables.setdefault(section, {})[key] = value
    return cell.get("method"), tables


@cache
def recipe_names() -> tuple[str, ...]:
    """All recipes, as ``paper/name``, sorted.

    >>> import fedscope
    >>> "ima/fig1" in fedscope.recipe_names() and not any("/_" in name for name in fedscope.recipe_names())
    True
    """
    found = [
        f"{paper.name}/{file.name.removesuffix('.toml')}"
        for paper in files("fedscope.training.recipes").iterdir()
        if paper.is_dir()
        for file in paper.iterdir()
        if file.name.endswith(".toml") and not file.name.startswith("_")
    ]
    return tuple(sorted(found))


def paper_of(name: str) -> str:
    """Return the paper that a name stands for; another name stays as it is.

    >>> paper_of("FedPake"), paper_of("ima"), paper_of("imo")
    ('fedsa', 'ima', 'imo')
    """
    return _ALSO.get(name.lower(), name)


def recipe(name: str) -> Recipe:
    """A recipe by its name.

    Raises:
        FedscopeError: an unknown name; it says the nearest, or what the paper has.

    >>> import fedscope
    >>> fedscope.recipe("fedswa/table2-cifar10-resnet18").published[0]
    Published(row='fma', column='', value=86.0, deviation=None)
    """
    first, slash, last = name.partition("/")
    name = f"{paper_of(first)}{slash}{last}"
    if name not in recipe_names():
        paper, _, rest = name.partition("/")
        papers = sorted({known.partition("/")[0] for known in recipe_names()})
        if paper in papers and not rest:
            hint = f"; {paper} has {', '.join(known for known in recipe_names() if known.startswith(f'{paper}/'))}"
        else:
            hint = _near(name.lower(), papers) or f"; there are those of {', '.join(papers)}"
        raise FedscopeError(f"{name!r} is not a recipe{hint}; fedscope recipes lists all")
    return _make_recipe(name)


def _near(name: str, papers: Sequence[str]) -> str:
    """A clause with the recipes that a name without its paper, or the start of one, may mean; else the nearest."""
    known = recipe_names()
    if "/" not in name:
        few = [one for one in known if one.partition("/")[2] == name]
    else:
        few = [name] if name in known else [one for one in known if one.startswith(name)]
    if len(few) > 1:
        return f"; there are {list_few(few)}"
    return nearest(few[0] if few else name, known if few or "/" in name else papers)


@cache
def _make_recipe(name: str) -> Recipe:
    raw = _read(name)
    tables = _over(*_upwards(name, _settings))
    by_method: dict[str, Tables] = {}
    grid: dict[str, Mapping[str, tuple[Any, ...]]] = {}
    for layer in _upwards(name, lambda raw: raw):
        for method, sections in layer.get("for", {}).items():
            by_method[method] = _over(by_method.get(method, {}), sections)
        for method, keys in layer.get("grid", {}).items():
            grid[method] = {key: tuple(values) for key, values in keys.items()}
    axes = [tuple({key: value} for value in values) for key, values in raw.get("sweep", {}).items()]
    if rows := raw.get("rows"):
        axes.append(tuple(rows))
    said = raw.get("published", {})
    chosen = [text for layer in _upwards(name, lambda raw: raw) for text in layer.get("chosen", ())]
    ours = _ours(_upwards(name, lambda raw: raw))
    return Recipe(
        name=name,
        shows=raw["shows"],
        tables=tables,
        by_method=by_method,
        axes=tuple(axes),
        grid=grid,
        measure=said.get("measure", ""),
        published=tuple(
            Published(row, column, *_number(value))
            for row, values in said.get("cells", {}).items()
            for column, value in zip(said["columns"], values, strict=True)
        ),
        chosen=tuple(dict.fromkeys([*chosen, *_describe_ours(ours, tables, by_method)])),
        then=tuple(raw.get("then", ())),
        ours=ours,
    )


def settings_of(tables: Tables, by_method: Mapping[str, Tables]) -> dict[str, Any]:
    """Every setting by its name in :attr:`Recipe.ours`.

    >>> settings_of({"client": {"lr": 0.1}}, {"moon": {"client": {"mu": 1.0}}})
    {'client.lr': 0.1, 'moon: client.mu': 1.0}
    """
    found = {f"{section}.{key}": value for section, table in tables.items() for key, value in table.items()}
    for method, sections in by_method.items():
        found |= {f"{method}: {place}": value for place, value in settings_of(sections, {}).items()}
    return found


def _ours(layers: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Settings that are not the paper's, of recipes that are like each other, the farthest first: what a nearer one
    sets itself is the paper's, unless it says again that it is not."""
    found: dict[str, str] = {}
    for layer in layers:
        own, set_here = layer.get("ours", {}), settings_of(_settings(layer), layer.get("for", {}))
        if unknown := own.keys() - set_here.keys():
            raise ValueError(f"[ours] names {list_few(sorted(unknown))}, which the file does not set")
        found = {place: why for place, why in found.items() if place not in set_here} | dict(own)
    return found


def _describe_ours(ours: Mapping[str, str], tables: Tables, by_method: Mapping[str, Tables]) -> list[str]:
    """A sentence for the settings that are ours for one reason, with their values."""
    values = settings_of(tables, by_method)
    reasons: dict[str, list[str]] = {}
    for place, why in ours.items():
        method, colon, key = place.rpartition(": ")
        whose = f" ({method})" if colon else ""
        reasons.setdefault(why, []).append(f"{key} = {_toml(values[place])}{whose}")
    return [f"{', '.join(said)}: {why}" for why, said in reasons.items() if why]


def _toml(value: Any) -> str:
    """A value as it is written in a recipe: ``true``, ``0.001``."""
    return str(value).lower() if isinstance(value, bool) else exact(value) if isinstance(value, float) else str(value)


def _over(*layers: Tables) -> dict[str, dict[str, Any]]:
    """Tables laid over each other, key by key. Not :func:`merge`, which looks at the methods and so loads torch."""
    made: dict[str, dict[str, Any]] = {}
    for layer in layers:
        for section, table in layer.items():
            made[section] = {**made.get(section, {}), **table}
    return made


def _settings(raw: Mapping[str, Any]) -> Tables:
    return {section: raw[section] for section in SECTIONS if section in raw}


def _upwards(name: str, take: Any) -> list[Any]:
    """List what is taken of the recipe that this one is like, of the one that that one is like, ..., and of its own;
    the farthest first."""
    raw = _read(name)
    return [*(_upwards(raw["like"], take) if "like" in raw else ()), take(raw)]


@cache
def _read(name: str) -> dict[str, Any]:
    paper, _, file = name.partition("/")
    return tomllib.loads((files("fedscope.training.recipes") / paper / f"{file}.toml").read_text(encoding="utf-8"))


def _number(printed: float | str) -> tuple[float, float | None]:
    """``62.34``, or ``"50.19 ± 0.31"``."""
    if isinstance(printed, str):
        value, _, deviation = printed.partition(" ± ")
        return float(value), float(deviation)
    return float(printed), None


def _names(method: str | None, tables: Tables) -> set[str]:
    """Return the names by which the methods of a configuration are known: the preset's, the client's, the server's,
    ..."""
    found = {canonical_method(method)} if method else set()
    for section, (_, selector, default) in METHOD_SECTIONS.items():
        if section != "model":
            found.add(str(tables.get(section, {}).get(selector, default)))
    return found
