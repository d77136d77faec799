"""Methods, models, data and partitions of installed packages, by their entry points: names like fedscope's own.

Listing reads metadata alone. Neither that nor an import looks into the current folder, in which anything may lie.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, EntryPoint, distributions
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from ...checkpoints import FedscopeError, real_path
from ..import_string import describe_error

PREFIX = "fedscope."
#: the option that takes a name of each shelf
_FLAGS = {
    "clients": "--client",
    "servers": "--server",
    "averages": "--average",
    "models": "--model",
    "data": "--data",
    "partitions": "--partition",
}


@dataclass(frozen=True)
class Installed:
    """A thing of an installed package.

    Attributes:
        name: that its package gives it; value: ``module:Name``, where it is; distribution, version: of the package.
        editable: the folder of a package that is installed as its own checkout; "" of any other.
    """

    name: str
    value: str
    distribution: str
    version: str
    editable: str = ""

    def load(self) -> Any:
        """Import it.

        Raises:
            FedscopeError: what it names is gone, or cannot be imported.
        """
        with _without_current_folder(self.editable):
            try:
                return EntryPoint(self.name, self.value, "").load()
            except SystemExit as error:
                raise FedscopeError(f"{self._place} ends the program ({describe_error(error)}); update it") from error
            except Exception as error:
                raise FedscopeError(
                    f"{self._place} cannot be imported: {describe_error(error)}; update or remove it"
                ) from error

    @property
    def _place(self) -> str:
        return f"{self.name!r} of the package {self.distribution} {self.version} ({self.value})"


def installed(shelf: str) -> Mapping[str, tuple[Installed, ...]]:
    """Return what packages give to a shelf, by name; several of one name are refused where one is chosen.

    Args:
        shelf: ``clients``, ``servers``, ``averages``, ``models``, ``data`` or ``partitions``.
    """
    return _scanned().get(PREFIX + shelf, {})


@cache
def _scanned() -> Mapping[str, Mapping[str, tuple[Installed, ...]]]:
    """Read the metadata of all packages, once a process."""
    found: dict[str, dict[str, dict[tuple[str, str], Installed]]] = {}
    for distribution in distributions(path=_trusted_path()):
        for entry in distribution.entry_points:
            if not entry.group.startswith(PREFIX):
                continue
            root = _editable_root(distribution)
            one = Installed(entry.name, entry.value, distribution.name, distribution.version, root)
            # a distribution may be found twice on the path; the first one counts, as for an import
            found.setdefault(entry.group, {}).setdefault(entry.name, {}).setdefault((one.distribution, one.value), one)
    return {
        group: {name: tuple(ones.values()) for name, ones in sorted(named.items())} for group, named in found.items()
    }


def describe_installed() -> list[tuple[str, str]]:
    """List what packages give, by the option that takes it: ``--server fedx`` and the package with its version."""
    return [
        (f"{flag} {name}", " and ".join(f"{one.distribution} {one.version}" for one in ones))
        for shelf, flag in _FLAGS.items()
        for name, ones in installed(shelf).items()
    ]


def chosen(shelf: str, name: str) -> Installed | None:
    """Return the thing of an installed package by its name; None where none gives it.

    Raises:
        FedscopeError: two packages give it.
    """
    ones = installed(shelf).get(name, ())
    if len(ones) > 1:
        packages = " and ".join(f"{one.distribution} ({one.value})" for one in ones)
        raise FedscopeError(f"{name!r} is given by two packages, {packages}; name the code itself, as module:Name")
    return ones[0] if ones else None


def importable_elsewhere(module: str) -> str:
    """Return where Python finds a module that is not in the current folder; "" where it finds none."""
    from ..import_string import find_spec_of

    with _without_current_folder(""):
        return find_spec_of(module) or ""


def _trusted_path() -> list[str]:
    """Return where packages are looked for: everywhere that Python looks, but for the current folder."""
    here = real_path(Path.cwd())
    return [place for place in sys.path if place not in ("", ".") and real_path(Path(place)) != here]


def _editable_root(distribution: Distribution) -> str:
    """Return the folder of a package that is installed as its own checkout; "" of any other."""
    with suppress(Exception):  # of somebody else's metadata: one without is no editable one
        said = json.loads(distribution.read_text("direct_url.json") or "{}")
        if said.get("dir_info", {}).get("editable"):
            return str(real_path(Path(unquote(urlparse(said["url"]).path))))
    return ""


@contextmanager
def _without_current_folder(editable: str) -> Iterator[None]:
    """Imports do not look into the current folder, unless the package itself is installed from there."""
    before = sys.path
    own = real_path(Path.cwd())
    if not editable or not own.is_relative_to(editable):
        sys.path = _trusted_path()
    try:
        yield
    finally:
        sys.path = before
