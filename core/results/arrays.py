"""Arrays with named dimensions as netCDF-4 files, written with h5py, and results that are kept as such; xarray opens
them with h5netcdf and netCDF4."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, ClassVar, Self

import h5py
import numpy as np

from ..checkpoints.io.errors import FedscopeError, nearest
from ..checkpoints.io.hdf5 import RESULT_AGAIN, UnreadableAttribute, attribute, check_seal, open_hdf5, write_hdf5
from ..checkpoints.io.hdf5_validation import refuse_links, refuse_unstored
from ..checkpoints.io.visible_text import visible
from .base import Result
from .versions import of_installed

VERSION = 1
#: dimensions, values, and attributes such as ``units`` and ``long_name``
Variable = tuple[tuple[str, ...], np.ndarray, Mapping[str, str]]

_RESERVED = ("CLASS", "NAME", "REFERENCE_LIST", "DIMENSION_LIST", "_Netcdf4Dimid", "_Netcdf4Coordinates")


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
        needed: the arrays that a file must have; ``optional``: that it may have. Both by name with their dimensions, as
            ``round client``; of "" dimensions are not checked.
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
        """Build the result of what :meth:`arrays` gave; ``attrs`` has what :meth:`head` said, too."""

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
        """Read what :meth:`save` wrote.

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

    def to_pandas(self, of: str | None = None) -> Any:
        """Return its arrays as one long frame: a row a value, the coordinates first; what lies along fewer dimensions
        is repeated.

        Args:
            of: the array, or the dimension, whose rows these are; by default the one with the most dimensions, the
                first of these. What lies along others is left out: ``plane.to_pandas("model")`` has the models.

        Raises:
            FedscopeError: pandas is not installed; no such array.

        >>> import numpy as np
        >>> from fedscope.landscape import Line
        >>> ends, loss, one = (("a", "b"),), np.array([[1.0, 0.5, 2.0]]), np.zeros(1)
        >>> made = Line(("a - b",), ends, np.array([0.0, 0.5, 1.0]), loss, loss, one, one, {}, loss[:, :2], loss[:, :2])
        >>> made.to_pandas()[["pair", "beta", "loss"]].values.tolist()
        [['a - b', 0.0, 1.0], ['a - b', 0.5, 0.5], ['a - b', 1.0, 2.0]]
        """
        pandas = of_installed("pandas", "frames")
        coords, variables = self.arrays()
        dims = _rows_along(variables, of, self.command)
        sizes = {
            dim: size for own, values, _ in variables.values() for dim, size in zip(own, values.shape, strict=True)
        }
        shape = [sizes[dim] for dim in dims]
        columns: dict[str, np.ndarray] = {}
        for axis, dim in enumerate(dims):
            values = coords[dim][1] if dim in coords else np.arange(sizes[dim])
            columns[dim] = np.expand_dims(np.asarray(values), [i for i in range(len(dims)) if i != axis])
        for name, (own, values, _) in variables.items():
            if own and set(own) <= set(dims) and len(set(own)) == len(own):
                order = sorted(range(len(own)), key=lambda axis, own=own: dims.index(own[axis]))  # type: ignore[misc]
                lacking = [i for i, dim in enumerate(dims) if dim not in own]
                columns[name] = np.expand_dims(np.asarray(values).transpose(order), lacking)
        return pandas.DataFrame({name: np.broadcast_to(values, shape).ravel() for name, values in columns.items()})

    def to_xarray(self) -> Any:
        """Its arrays as a data set, which shares no memory with the result.

        Raises:
            FedscopeError: xarray is not installed.
        """
        xarray = of_installed("xarray", "frames")
        coords, variables = map(_copied, self.arrays())
        return xarray.Dataset(variables, coords=coords, attrs=deepcopy({**self.attrs, **self.head()}))


def _copied(named: Mapping[str, Variable]) -> dict[str, Variable]:
    return {name: (dims, np.array(values), about) for name, (dims, values, about) in named.items()}


def _rows_along(variables: Mapping[str, Variable], of: str | None, command: str) -> tuple[str, ...]:
    """Return the dimensions of a long frame.

    Raises:
        FedscopeError: there is neither an array nor a dimension of this name.
    """
    if of is None:
        return max((dims for dims, _, _ in variables.values()), key=len)
    if of in variables:
        return variables[of][0]
    if any(of in dims for dims, _, _ in variables.values()):
        return (of,)
    known = [*variables, *dict.fromkeys(dim for dims, _, _ in variables.values() for dim in dims)]
    raise FedscopeError(
        f"{of!r} is neither an array nor a dimension of a result of {command}{nearest(of, known)}; there are "
        f"{', '.join(known)}"
    )


def pad_cohorts(cohorts: list[np.ndarray], most: int, fill: Any = np.nan, axes: int | None = None) -> np.ndarray:
    """Arrays [C] or [C, C] of rounds with different cohorts as one, [rounds, most] or [rounds, most, most].

    ``axes``: how many of the first axes are over clients, all by default; the others are as long in every round.

    >>> pad_cohorts([np.ones((1, 3), int), np.ones((2, 3), int)], 2, 0, axes=1)[0].tolist()
    [[1, 1, 1], [0, 0, 0]]
    """
    first = cohorts[0]
    shape = (*(most,) * first.ndim,) if axes is None else (*(most,) * axes, *first.shape[axes:])
    whole = np.full((len(cohorts), *shape), fill, first.dtype if fill is not np.nan else np.float64)
    for own, values in zip(whole, cohorts, strict=True):
        own[tuple(slice(size) for size in values.shape)] = values
    return whole


def write_netcdf(
    path: Path | str,
    coords: Mapping[str, Variable],
    variables: Mapping[str, Variable],
    attrs: Mapping[str, Any] | None = None,
) -> None:
    """Write named arrays durably.

    Args:
        coords: one variable a dimension, named like it, [n]: numbers or strings. A dimension of ``variables`` that has
            none gets 0..n-1.
        variables: name -> (dimensions, values, attributes such as ``units`` and ``long_name``).
        attrs: of the whole file; what is neither text nor a number is written as JSON.

    Raises:
        FedscopeError: values that do not fit their dimensions.
    """
    sizes = {name: len(values) for name, (_, values, _) in coords.items()}
    coords = dict(coords)
    for name, (dims, values, _) in variables.items():
        shape = np.shape(values)
        if len(shape) != len(dims) or name in coords:
            raise FedscopeError(f"{name} of shape {shape} does not fit the dimensions ({', '.join(dims)}), one an axis")
        for dim, size in zip(dims, shape, strict=True):
            if sizes.setdefault(dim, size) != size:
                raise FedscopeError(f"{name} has {size} along {dim}, but {dim} has {sizes[dim]} values")
            if dim not in coords:
                coords[dim] = ((dim,), np.arange(size), {})
    with write_hdf5(path, track_order=True, sealed=True) as file:
        file.attrs["Conventions"] = "CF-1.8"
        for key, value in (attrs or {}).items():
            # netCDF attributes are text and numbers; text that could be taken for JSON is written as JSON, too
            plain = isinstance(value, str | int | float) and not isinstance(value, bool)
            file.attrs[key] = value if plain and _undone(value) is value else json.dumps(value)
        for i, (name, (_, values, about)) in enumerate(coords.items()):
            scale = _write(file, name, values, about)
            scale.make_scale(name)
            scale.attrs["_Netcdf4Dimid"] = np.int32(i)
        for name, (dims, values, about) in variables.items():
            dataset = _write(file, name, values, about)
            for axis, dim in enumerate(dims):
                dataset.dims[axis].attach_scale(file[dim])


def read_netcdf(path: Path | str) -> tuple[dict[str, Variable], dict[str, Any]]:
    """All variables by name, coordinates among them, and the attributes, JSON undone; the inverse of ``write_netcdf``.

    Raises:
        FedscopeError: missing, truncated or no netCDF-4 file; values that do not fit their dimensions; less data than
            it declares.
    """
    path = Path(path)
    variables: dict[str, Variable] = {}
    check_seal(path, "a netCDF-4 result of fedscope")
    with open_hdf5(path, None, 1, "a netCDF-4 result of fedscope") as file:
        refuse_links(path, file)
        for name, dataset in file.items():
            variables[name] = _read(path, name, dataset)
        attrs = {key: _attribute(path, file, key) for key in file.attrs if key != "Conventions"}
    sizes = {name: len(values) for name, (dims, values, _) in variables.items() if dims == (name,)}
    for name, (dims, values, _) in variables.items():
        for dim, size in zip(dims, values.shape, strict=True):
            if sizes.get(dim) != size:
                raise _damage_error(path, f"{name} has {size} along {dim}, but {dim} has {sizes.get(dim, 'no')} values")
    return variables, attrs


def _are_texts(values: Any) -> bool:
    return not isinstance(values, np.ndarray) and len(values) > 0 and all(isinstance(value, str) for value in values)


def _read(path: Path, name: str, dataset: Any) -> Variable:
    """A variable that is numbers or text, all of which the file holds."""
    if not isinstance(dataset, h5py.Dataset) or dataset.shape is None:
        raise _damage_error(path, f"{name} holds no values")
    text = h5py.check_string_dtype(dataset.dtype) is not None
    if not text and dataset.dtype.kind not in "fiu":
        raise _damage_error(path, f"{name} is {dataset.dtype}, neither numbers nor text")
    refuse_unstored(path, dataset)
    try:
        dims = tuple(dimension[0].name.lstrip("/") if len(dimension) else name for dimension in dataset.dims)
        values = _make_visible(dataset.asstr()[()]) if text else dataset[()]
    except (AttributeError, TypeError, UnicodeDecodeError) as error:
        raise _damage_error(path, f"{name} cannot be read ({error})") from None
    about = {key: str(attribute(dataset, key)) for key in dataset.attrs if key not in _RESERVED}
    return dims, np.asarray(values), about


def _make_visible(texts: Any) -> np.ndarray:
    """Texts of a file, which end in sentences, pages and figures."""
    return np.array([visible(text) for text in np.ravel(texts)], dtype=object).reshape(np.shape(texts))


def _attribute(path: Path, file: Any, key: str) -> Any:
    value = attribute(file, key)
    if isinstance(value, UnreadableAttribute):
        raise _damage_error(path, f"its attribute {key} is {value}")
    return _undone(value)


def _damage_error(path: Path, what: str) -> FedscopeError:
    return FedscopeError(f"{path} is damaged: {what}; {RESULT_AGAIN}")


def _write(file: Any, name: str, values: np.ndarray, about: Mapping[str, str]) -> Any:
    values = np.asarray(values)
    if values.dtype.kind in "OU":
        dataset = file.create_dataset(name, data=values.astype(object), dtype=h5py.string_dtype("utf-8"))
    else:
        # netCDF has no truth values
        dataset = file.create_dataset(name, data=values.astype(np.int8) if values.dtype == bool else values)
    for key, value in about.items():
        dataset.attrs[key] = value
    return dataset


def _undone(value: Any) -> Any:
    if isinstance(value, str) and (value[:1] in ("{", "[", '"') or value in ("true", "false", "null")):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value.item() if isinstance(value, np.generic) else value
