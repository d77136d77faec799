"""Results as arrays with named dimensions, in netCDF-4 files that xarray opens."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from ..errors import FedscopeError
from ..netcdf import Variable, read_netcdf, write_netcdf
from .result import Result, of_installed

VERSION = 1


def along(dims: str, values: Any, about: str = "", units: str | None = None) -> Variable:
    """An array with the names of its dimensions, what it is, and its unit.

    >>> along("pair beta", np.zeros((1, 2)), "mean cross-entropy", "nat")[0]
    ('pair', 'beta')
    """
    said = {**({"long_name": about} if about else {}), **({"units": units} if units is not None else {})}
    array = np.asarray(values, dtype=object) if _are_texts(values) else np.asarray(values)
    return tuple(dims.split()), array, said


class ArrayResult(Result):
    """A result that is kept as arrays in ``BASE.nc``; names of variables are fixed, because other programs rely on
    them.

    Attributes:
        kind: the file's ``format`` is ``fedscope-KIND``.
        needed: the arrays that a file must have; ``optional``: that it may have, for results from before they existed
            lack them. Both by name with their dimensions, as ``round client``; of "" dimensions are not checked.
    """

    suffixes: ClassVar[tuple[str, ...]] = (".nc",)
    kind: ClassVar[str]
    needed: ClassVar[Mapping[str, str]]
    optional: ClassVar[Mapping[str, str]] = {}

    @abstractmethod
    def arrays(self) -> tuple[dict[str, Variable], dict[str, Variable]]:
        """Coordinates and variables by name."""

    def head(self) -> dict[str, Any]:
        """Attributes of the file besides ``attrs``."""
        return {}

    @classmethod
    @abstractmethod
    def of_arrays(cls, values: dict[str, Any], attrs: dict[str, Any]) -> Self:
        """The result of what :meth:`arrays` gave; ``attrs`` has what :meth:`head` said, too."""

    @classmethod
    def refuse_damaged(cls, path: Path, values: Mapping[str, np.ndarray], attrs: Mapping[str, Any]) -> None:
        """Refuse what a file of this kind cannot hold, where more is asked of it than dimensions.

        Raises:
            FedscopeError: says what it is.
        """
        return

    def save(self, base: Path | str) -> list[Path]:
        """Write ``BASE.nc``, and what is derived from it; returns the paths."""
        (path,) = self.paths(base)
        path.parent.mkdir(parents=True, exist_ok=True)
        coords, variables = self.arrays()
        head = {"format": f"fedscope-{self.kind}", "version": VERSION}
        write_netcdf(path, coords, variables, {**head, **self.attrs, **self.head()})
        return [path, *self.derive(path.with_name(path.name.removesuffix(".nc")))]

    @classmethod
    def load(cls, base: Path | str) -> Self:
        """The inverse of :meth:`save`.

        Raises:
            FedscopeError: no such file, a result of another kind or of a newer version, an array that is missing or
                lies along other dimensions.
        """
        (path,) = cls.paths(base)
        variables, attrs = read_netcdf(path)
        found, version = attrs.pop("format", None), attrs.pop("version", 0)
        kind = cls.kind
        if found != f"fedscope-{kind}":
            raise FedscopeError(
                f"{path} holds {found or 'no result of fedscope'}, not a {kind}; give a {kind}'s .nc file"
            )
        if not isinstance(version, int) or version > VERSION:
            raise FedscopeError(
                f"{path} was written in version {version} of its format, and this fedscope reads up to {VERSION}; "
                "update fedscope"
            )
        missing = [name for name in cls.needed if name not in variables]
        if missing:
            raise FedscopeError(f"{path} lacks {', '.join(missing)}; compute the {kind} again with --force")
        known = {name: dims for name, dims in {**cls.needed, **cls.optional}.items() if name in variables}
        for name, dims in known.items():
            told, values, _ = variables[name]
            if dims and (told != tuple(dims.split()) or values.dtype.kind not in "fiu"):
                raise FedscopeError(
                    f"{path} is damaged: {name} is {values.dtype} along {', '.join(told)}, not numbers along "
                    f"{', '.join(dims.split())}; compute the {kind} again with --force"
                )
        arrays = {name: variables[name][1] for name in known}
        cls.refuse_damaged(path, arrays, attrs)
        try:
            return cls.of_arrays(arrays, attrs)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            said = (str(error).splitlines() or [""])[0] or type(error).__name__
            raise FedscopeError(f"{path} is damaged ({said}); compute the {kind} again with --force") from error

    def to_xarray(self) -> Any:
        """Its arrays as a data set.

        Raises:
            FedscopeError: xarray is not installed.
        """
        xarray = of_installed("xarray", "frames")
        coords, variables = self.arrays()
        return xarray.Dataset(dict(variables), coords=dict(coords), attrs={**self.attrs, **self.head()})


def padded(cohorts: list[np.ndarray], most: int, fill: Any = np.nan) -> np.ndarray:
    """Arrays [C] or [C, C] of rounds with different cohorts as one, [rounds, most] or [rounds, most, most]."""
    first = cohorts[0]
    whole = np.full((len(cohorts), *(most,) * first.ndim), fill, first.dtype if fill is not np.nan else np.float64)
    for own, values in zip(whole, cohorts, strict=True):
        own[tuple(slice(size) for size in values.shape)] = values
    return whole


def _are_texts(values: Any) -> bool:
    return not isinstance(values, np.ndarray) and len(values) > 0 and all(isinstance(value, str) for value in values)
