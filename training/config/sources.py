"""Sources of a configuration: a method, a recipe or a file, what is laid over it, and a scale."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ...checkpoints import FedscopeError
from ...checkpoints.io.untrusted import is_there
from ..settings.registry import METHOD_SECTIONS, canonical, preset
from .config import Config, merge, methods_in, read_toml, recorded_tables
from .data_meant import refuse_data
from .recipes import Tables, recipe
from .scale import scale_notes, scale_tables

#: no settings
NOTHING: Tables = MappingProxyType({})
#: methods of which nobody said anything: on the command line, and in Python, where a configuration's defaults hold
COMMAND_DEFAULT, PYTHON_DEFAULT = "ima", "fma"


@dataclass(frozen=True)
class Setup:
    """A recipe, or the tables of a file, or neither: the package's defaults; made smaller by a scale.

    Attributes:
        recipe: ``paper/name``, "" for none; stored: a file's tables.
        scale: see :func:`~fedscope.training.config.scale.scale_tables`; None for the full size.
        default: the method, as ``--method``, whose choices stand where nothing else names one; a recipe has its own.

    Raises:
        FedscopeError: both a recipe and a file; a scale of nothing.
    """

    recipe: str = ""
    stored: Tables = field(default_factory=dict)
    scale: float | None = None
    default: str = COMMAND_DEFAULT

    def __post_init__(self) -> None:
        if self.recipe and self.stored:
            raise FedscopeError(
                f"a configuration and --recipe {self.recipe} are both whole set-ups; give one, and the rest by --set"
            )
        if self.scale is not None and not (self.recipe or self.stored):
            raise FedscopeError(
                f"--scale {self.scale:g} makes a set-up smaller; give it with --recipe or a configuration"
            )

    def config(self, method: str | None, *above: Tables, cell: Tables = NOTHING) -> Config:
        """Return the configuration of a method, with what is laid over it; that counts more than the scale.

        Args:
            method: as ``--method``; by default what the recipe or the file says, else FMA for a recipe and ``default``.
            cell: what a recipe varies, which belongs to it: it is laid below ``above``, and made smaller, too.

        Raises:
            FedscopeError: what :meth:`Config.read` refuses.

        >>> small = Setup("ima/table2", scale=0.1).config("ima", {"run": {"rounds": 50}})
        >>> small.run.rounds, small.average.start, small.data.clients
        (50, 38, 20)
        """
        if self.scale is None:
            return Config.read(self._laid(method, cell, *above))
        return Config.read(merge(scale_tables(self._full(method, cell, *above), self.scale), *above))

    def methods(self, method: str | None, *above: Tables) -> dict[str, str]:
        """Return the names of the methods and of the model that :meth:`config` would choose, by section.

        >>> Setup().methods("fedprox", {"average": {"method": "ima"}})
        {'model': 'mlp', 'client': 'fedprox', 'server': 'fma', 'average': 'ima'}
        """
        laid = self._laid(method, *above)
        return {
            section: canonical(shelf, laid.get(section, {}).get(selector, default))
            for section, (shelf, selector, default) in METHOD_SECTIONS.items()
        }

    def notes(self, config: Config, method: str | None, *above: Tables, cell: Tables = NOTHING) -> tuple[str, ...]:
        """Describe what the scale has done, in parts of a sentence; () without one.

        Args:
            config: what :meth:`config` makes of the others.
        """
        if self.scale is None:
            return ()
        return tuple(scale_notes(Config.read(self._full(method, cell, *above)), config, self.scale))

    def note(self, notes: Iterable[str]) -> str:
        """Such parts as a sentence, each once; "" of none."""
        parts = ", ".join(dict.fromkeys(notes))
        return f"scale {self.scale:g}: {parts}" if parts else ""

    def unsaid(self, method: str | None, *above: Tables) -> dict[str, dict[str, Any]]:
        """Return the choices that nothing names and that the command line would make in another way.

        >>> Setup().unsaid(None), Setup(default="fma").unsaid(None), Setup(default="fma").unsaid("ima")
        ({}, {'average': {'method': 'none'}}, {})
        """
        if self.recipe or method:
            return {}
        theirs, given = preset(COMMAND_DEFAULT), methods_in(merge(self.stored, *above))
        return {
            section: table
            for section, table in preset(self.default).items()
            if section not in given and table != theirs[section]
        }

    def _full(self, method: str | None, cell: Tables, *above: Tables) -> dict[str, dict[str, Any]]:
        """Return what the scale makes smaller, with that of what is laid over it that decides about minima."""
        given = merge(*above)
        kept = {
            section: {key: given[section][key]}
            for section, key in (("run", "participation"), ("data", "partition"))
            if key in given.get(section, {})
        }
        return self._laid(method, cell, methods_in(given), kept)

    def _laid(self, method: str | None, *above: Tables) -> dict[str, dict[str, Any]]:
        if self.recipe:
            return recipe(self.recipe).configured(method, *above)
        own: Mapping[str, Mapping[str, Any]] = preset(method) if method else {}
        return merge(preset(method or self.default), self.stored, own, *above)


def stored_tables(path: Path, flag: str = "--data ") -> dict[str, Any]:
    """Return the tables of a configuration file; of a run's own with what it meant when it was recorded.

    Args:
        flag: what data go behind, where such were given instead.

    Raises:
        FedscopeError: data; what :func:`~fedscope.training.config.config.read_toml` refuses.
    """
    refuse_data(path, "not a configuration", flag)
    if is_there(path / "run.json"):
        own = path / "config.toml"
        way = f"give its settings, {own}" if is_there(own) else "it has none of its own, so give a .toml file"
        raise FedscopeError(f"{path} is a run, not a configuration; {way}")
    stored = read_toml(path)
    return recorded_tables(stored) if is_there(path.parent / "run.json") else stored


def with_place(error: FedscopeError, path: Path, stored: Tables) -> FedscopeError:
    """Return the error, with the file's name where the file alone is refused with it."""
    try:
        Config.read(merge(preset(COMMAND_DEFAULT), stored))
    except FedscopeError as alone:
        if str(alone) == str(error):
            return FedscopeError(f"{path}: {error}")
    return error
