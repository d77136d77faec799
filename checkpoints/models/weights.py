"""Models as flat vectors: what stands where, one model ``w`` [P] or the matrix ``clients`` [C, P], and their means."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from ..io.errors import FedscopeError, list_few

if TYPE_CHECKING:
    from torch import nn


#: a type that numpy and HDF5 do not have: its bits are stored as uint16
BFLOAT16 = "bfloat16"


#: under which name torch keeps what a module's ``get_extra_state`` gives beside its tensors: any object, and no weight
EXTRA = "_extra_state"


def is_extra(name: str) -> bool:
    """Check whether an entry of a ``state_dict`` is a module's extra state.

    >>> is_extra("encoder._extra_state"), is_extra("encoder.weight")
    (True, False)
    """
    return name.rpartition(".")[2] == EXTRA


def tensors_of(module: nn.Module) -> dict[str, Any]:
    """Return a torch module's ``state_dict`` without extra states."""
    return {name: value for name, value in module.state_dict().items() if not is_extra(name)}


@dataclass(frozen=True)
class TensorEntry:
    """One tensor of a model.

    Attributes:
        name: its ``state_dict`` key.
        dtype: numpy's name of the type that it has in memory (``float32``).
        stored: the type that a run keeps it in, where that is another one: ``float16`` or ``bfloat16``.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    kind: Literal["parameter", "buffer"]
    stored: str = field(default="", compare=False)


class _Names(tuple[str, ...]):
    """Names in order, of which ``in`` need not look through all: a model may have a hundred thousand."""

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self)

    def __contains__(self, name: object) -> bool:
        return name in self._known


@dataclass(frozen=True)
class Layout:
    """The entries of a model in ``state_dict`` order; its parameters, one after the other, are the flat vector [P].

    >>> import fedscope, torch
    >>> layout = fedscope.Layout.of(torch.nn.Linear(3, 2))
    >>> layout.size, layout.slices["bias"]
    (8, slice(6, 8, None))
    """

    entries: tuple[TensorEntry, ...]

    @classmethod
    def of(cls, module: nn.Module) -> Layout:
        """Make the layout of a torch module's ``state_dict``.

        Raises:
            FedscopeError: a dtype that numpy and HDF5 do not hold (bfloat16).
        """
        parameters = {name for name, _ in module.named_parameters(remove_duplicate=False)}
        entries = []
        for name, value in tensors_of(module).items():
            dtype = str(value.dtype).removeprefix("torch.")
            try:
                np.dtype(dtype)
            except TypeError:
                raise FedscopeError(
                    f"{name} is {dtype}, which a run cannot hold; keep the model in float32 (bf16 is a --precision)"
                ) from None
            kind: Literal["parameter", "buffer"] = "parameter" if name in parameters else "buffer"
            entries.append(TensorEntry(name, tuple(value.shape), dtype, kind))
        return cls(tuple(entries))

    @cached_property
    def parameters(self) -> tuple[TensorEntry, ...]:
        """The entries that are trained."""
        return tuple(entry for entry in self.entries if entry.kind == "parameter")

    @cached_property
    def buffers(self) -> tuple[TensorEntry, ...]:
        """The entries that are kept but not trained (running statistics)."""
        return tuple(entry for entry in self.entries if entry.kind == "buffer")

    @cached_property
    def size(self) -> int:
        """P, the number of parameters."""
        return sum(prod(entry.shape) for entry in self.parameters)

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the flat vector: the parameters' common one (float32 for a model without parameters)."""
        return np.result_type(*(entry.dtype for entry in self.parameters)) if self.parameters else np.dtype("float32")

    @cached_property
    def slices(self) -> dict[str, slice]:
        """The place of each parameter in the flat vector."""
        slices, start = {}, 0
        for entry in self.parameters:
            slices[entry.name] = slice(start, start + prod(entry.shape))
            start = slices[entry.name].stop
        return slices

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of all entries, in order."""
        return _Names(entry.name for entry in self.entries)

    @cached_property
    def by_name(self) -> dict[str, TensorEntry]:
        """All entries, in order."""
        return {entry.name: entry for entry in self.entries}

    def to_json(self) -> list[dict[str, Any]]:
        """Make the entries of ``run.json``."""
        return [
            {"name": entry.name, "shape": list(entry.shape), "dtype": entry.stored or entry.dtype, "kind": entry.kind}
            for entry in self.entries
        ]

    @classmethod
    def from_json(cls, entries: Sequence[Mapping[str, Any]]) -> Layout:
        """Invert :meth:`to_json`.

        Raises:
            FedscopeError: an entry that is none.
        """
        made: dict[str, TensorEntry] = {}
        for i, entry in enumerate(entries):
            try:
                name, dtype, kind, shape = entry["name"], entry["dtype"], entry["kind"], entry["shape"]
            except (KeyError, TypeError, IndexError) as error:
                raise FedscopeError(f"layout entry {i} is not one of name, shape, dtype, kind: {error}") from None
            if not isinstance(name, str) or not name or name in made:
                raise FedscopeError(f"layout entry {i} has name {name!r}, which is none or another entry's")
            if not isinstance(shape, list | tuple) or not all(isinstance(n, int) and 0 <= n < 2**40 for n in shape):
                raise FedscopeError(f"layout entry {i} ({name}) has shape {shape!r}, not a list of whole numbers")
            if kind not in ("parameter", "buffer"):
                raise FedscopeError(f'layout entry {i} ({name}) has kind {kind!r}; "parameter" or "buffer" is known')
            stored = BFLOAT16 if dtype == BFLOAT16 else ""
            made[name] = TensorEntry(
                name, tuple(shape), "float32" if stored else _dtype_name(i, name, dtype), kind, stored
            )
        return cls(tuple(made.values()))

    def widened(self) -> Layout:
        """Make a layout with float32 in memory for what is stored in half of it."""
        return Layout(
            tuple(
                replace(entry, dtype="float32", stored=entry.dtype) if entry.dtype == "float16" else entry
                for entry in self.entries
            )
        )

    def stored_as(self, dtypes: Mapping[str, str]) -> Layout:
        """Make a layout that says of float32 in memory in which half of it it is stored.

        Args:
            dtypes: by name, as a file has them.
        """
        halves = {name: dtype for name, dtype in dtypes.items() if dtype in (BFLOAT16, "float16")}
        return Layout(
            tuple(
                replace(entry, stored=halves[entry.name])
                if entry.name in halves and entry.dtype == "float32"
                else entry
                for entry in self.entries
            )
        )

    def flatten(self, arrays: Mapping[str, np.ndarray]) -> Weights:
        """Copy named arrays into one model, cast to the layout's dtypes.

        Raises:
            FedscopeError: missing, unexpected or wrongly shaped entries, by name.
        """
        missing = [name for name in self.names if name not in arrays]
        unexpected = [name for name in arrays if name not in self.names]
        if missing or unexpected:
            clauses = [f"{list_few(missing, 4)} missing"] if missing else []
            clauses += [f"{list_few(unexpected, 4)} unexpected"] if unexpected else []
            raise FedscopeError(f"these tensors are not the expected model's: {', '.join(clauses)}")
        parameters = np.empty(self.size, self.dtype)
        buffers = {}
        for entry in self.entries:
            array = np.asarray(arrays[entry.name])
            if array.shape != entry.shape:
                raise FedscopeError(f"{entry.name} has shape {array.shape}, but the expected model has {entry.shape}")
            if entry.kind == "parameter":
                parameters[self.slices[entry.name]] = array.reshape(-1)
            else:
                buffers[entry.name] = np.array(array, dtype=entry.dtype)
        return Weights(self, parameters, buffers)

    def views(self, parameters: np.ndarray) -> dict[str, np.ndarray]:
        """Return each parameter of [..., P] by name, as a view [..., \\*shape]."""
        lead = parameters.shape[:-1]
        return {
            entry.name: parameters[..., self.slices[entry.name]].reshape((*lead, *entry.shape))
            for entry in self.parameters
        }

    def as_in(self, other: Layout) -> Layout:
        """Put the entries into another layout's order and give them its kinds, where both have the same names, shapes
        and dtypes; else return the layout itself.

        What a program hands over by name has no order of its own: ``.safetensors`` sort their tensors.

        >>> one, two = TensorEntry("a", (2,), "float32", "parameter"), TensorEntry("b", (3,), "float32", "buffer")
        >>> Layout((one, two)).as_in(Layout((two, one))).names
        ('b', 'a')
        """
        if other.entries == self.entries:
            return self
        own = {entry.name: entry for entry in self.entries}
        told = {entry.name: (entry.shape, entry.dtype) for entry in other.entries}
        if told != {name: (entry.shape, entry.dtype) for name, entry in own.items()}:
            return self
        return Layout(tuple(replace(entry, stored=own[entry.name].stored) for entry in other.entries))

    def difference(self, other: Layout) -> str | None:
        """Name the first difference from another layout in one clause; None where there is none."""
        for mine, theirs in zip(self.entries, other.entries, strict=False):
            if mine.name != theirs.name:
                return f"{mine.name} stands where the other has {theirs.name}"
            for what in ("shape", "dtype", "kind"):
                if getattr(mine, what) != getattr(theirs, what):
                    return f"{mine.name} has {what} {getattr(mine, what)}, the other's {getattr(theirs, what)}"
        longer, shorter = (self, other) if len(self.entries) > len(other.entries) else (other, self)
        if len(longer.entries) > len(shorter.entries):
            whose = "the other lacks" if longer is self else "the other also has"
            return f"{whose} {longer.names[len(shorter.entries)]}"
        return None


@dataclass(frozen=True, eq=False, repr=False)
class Weights:
    """One model, or the models of C clients.

    Attributes:
        layout: what stands where.
        parameters: [P], or [C, P], in the layout's dtype; where these would take too much memory they are
            :class:`~fedscope.checkpoints.DiskMatrix`, which answer to ``[k]``, ``[:, a:b]``, a loop over rows, their
            length, shape and dtype.
        buffers: by name, [\\*shape] or [C, \\*shape], each in its own dtype.
    """

    layout: Layout
    parameters: np.ndarray
    buffers: dict[str, np.ndarray]

    def __repr__(self) -> str:
        """Its size; the numbers of a model fill a notebook."""
        count = f"{len(self)} models" if self.parameters.ndim == 2 else "one model"
        return f"Weights({count}, {self.layout.size:,} parameters, {len(self.buffers)} buffers; .arrays() by name)"

    def __len__(self) -> int:
        """C; 1 for one model."""
        return len(self.parameters) if self.parameters.ndim == 2 else 1

    def arrays(self) -> dict[str, np.ndarray]:
        """Return all entries by name in layout order (``state_dict`` order); parameters are views."""
        views = self.layout.views(self.parameters)
        return {name: views[name] if name in views else self.buffers[name] for name in self.layout.names}

    def row(self, i: int) -> Weights:
        """Return the model of the i-th client, a view."""
        return Weights(self.layout, self.parameters[i], {name: value[i] for name, value in self.buffers.items()})

    def rows(self, places: np.ndarray) -> Weights:
        """Return the models of some clients, [m, P], copied."""
        return Weights(
            self.layout, self.parameters[places], {name: value[places] for name, value in self.buffers.items()}
        )


def from_bfloat16(bits: np.ndarray) -> np.ndarray:
    """Return the numbers, float32, of the bits of bfloat16, uint16: the upper half of float32's.

    >>> from_bfloat16(np.array([0x3F80, 0xC000], np.uint16))
    array([ 1., -2.], dtype=float32)
    """
    return np.asarray(bits.astype(np.uint32) << 16).view(np.float32)  # of one number, too, an array


def to_bfloat16(values: np.ndarray) -> np.ndarray:
    """Return the bits, uint16, of the nearest bfloat16 to numbers in float64, to even; by way of float32 they would be
    rounded twice.

    >>> to_bfloat16(np.array([1.0, -2.0])).tolist() == [0x3F80, 0xC000]
    True
    """
    bits = values.view(np.uint64)
    cut = np.uint64(45)  # of float64's 52 digits bfloat16 has 7
    half = np.uint64(2**44 - 1) + ((bits >> cut) & np.uint64(1))
    nearest = ((bits + half) >> cut << cut).view(np.float64)
    # below the least normal number it has fewer digits: all are multiples of 2^-133
    nearest = np.where(np.abs(values) < 2.0**-126, np.ldexp(np.rint(np.ldexp(values, 133)), -133), nearest)
    found = np.where(np.isfinite(values), nearest, values).astype(np.float32)
    # of one number without dimensions the operators give a scalar, which is no array
    return np.asarray(found.view(np.uint32) >> np.uint32(16), np.uint16)


def in_type(values: np.ndarray, dtype: str) -> np.ndarray | None:
    """Return numbers in another type, of bfloat16 their bits; None where it does not have all of them.

    >>> in_type(np.array([1.0, -2.0], np.float32), "bfloat16").tolist() == [0x3F80, 0xC000]
    True
    >>> in_type(np.array([1.0, 1.001], np.float32), "bfloat16") is None
    True
    >>> in_type(np.array([1 + 2j]), "complex64")
    array([1.+2.j], dtype=complex64)
    """
    if values.dtype.name == dtype or values.dtype.kind not in "biufc":
        return values
    flat = np.ascontiguousarray(values).reshape(-1)
    made = np.empty(len(flat), np.uint16 if dtype == BFLOAT16 else dtype)
    for start in range(0, len(flat), _BLOCK):  # so that what is computed on the way takes little memory
        block = _in_type(flat[start : start + _BLOCK], dtype)
        if block is None:
            return None
        made[start : start + _BLOCK] = block
    return made.reshape(values.shape)


#: numbers that are turned into another type at once
_BLOCK = 2**18


def _in_type(values: np.ndarray, dtype: str) -> np.ndarray | None:
    with np.errstate(over="ignore", invalid="ignore"):
        kept = np.dtype("float32" if dtype == BFLOAT16 else dtype)
        made = (values if kept.kind == "c" else values.real).astype(kept, copy=False)
    if made.dtype != values.dtype and not np.array_equal(made, values, equal_nan=True):
        return None
    return _upper_half(made) if dtype == BFLOAT16 else made


def _upper_half(values: np.ndarray) -> np.ndarray | None:
    """Return the bits of bfloat16 of numbers in float32; None where one has more than bfloat16, of which it is half."""
    bits = values.view(np.uint32)
    upper = (bits >> 16).astype(np.uint16)
    more = np.flatnonzero(bits & 0xFFFF)
    if len(more):
        if not np.isnan(values[more]).all():
            return None
        upper[more] |= 0x40  # NaN, whose bits may all be in the other half
    return upper


def stack(models: Sequence[Weights]) -> Weights:
    """C models [P] as one matrix [C, P].

    Raises:
        FedscopeError: no model; models of different layouts.
    """
    if not models:
        raise FedscopeError("there is no model to stack; give at least one")
    layout = models[0].layout
    for i, model in enumerate(models):
        if model.layout is not layout and (difference := layout.difference(model.layout)):
            raise FedscopeError(f"models 0 and {i} have different layouts: {difference}")
    return Weights(
        layout,
        np.stack([model.parameters for model in models]),
        {entry.name: np.stack([model.buffers[entry.name] for model in models]) for entry in layout.buffers},
    )


def taking_part(p: npt.NDArray[np.float64]) -> slice | npt.NDArray[np.intp]:
    """The clients that have a part in a mean: one of weight 0 has none, even where it diverged, as 0 · ∞ would have.

    >>> taking_part(np.array([0.5, 0.5])), taking_part(np.array([0.5, 0.0, 0.5])).tolist()
    (slice(None, None, None), [0, 2])
    """
    return slice(None) if np.all(p) else np.flatnonzero(p)


def weighted_mean(clients: Weights, p: np.ndarray | Sequence[float], integer_from: int = 0) -> Weights:
    """Σ_k p_k w_k, row by row in float64 and rounded once, so that anyone can repeat it bit for bit.

    ``acc = zeros(P); for k in order: acc += p[k] * clients[k]``, then cast to the layout's dtype. Buffers alike;
    integer buffers are those of row ``integer_from``. A row of weight 0 has no part, even where it is not finite.

    Args:
        clients: [C, P].
        p: [C], the weights of the rows; not normalised here.

    Raises:
        FedscopeError: another number of weights than of clients.
    """
    p = np.asarray(p, dtype=np.float64)
    if p.shape != (len(clients),):
        raise FedscopeError(f"p has shape {p.shape}, but there are {len(clients)} clients; give one weight a client")

    def combine(rows: np.ndarray) -> np.ndarray:
        total = np.zeros(rows.shape[1:], np.float64)
        term = np.empty_like(total)
        for k in np.flatnonzero(p):
            np.multiply(rows[k], p[k], out=term, dtype=np.float64)
            total += term
        return total.astype(rows.dtype)

    return _by_rows(clients, combine, integer_from)


def mean(clients: Weights, integer_from: int = 0) -> Weights:
    """(1/C) Σ_k w_k: summed in order in float64, then divided by C; of one row it is that row bit for bit.

    Integer buffers are those of row ``integer_from``.
    """

    def combine(rows: np.ndarray) -> np.ndarray:
        total = np.array(rows[0], dtype=np.float64)  # not from zeros: 0 + (-0) is 0
        for row in rows[1:]:
            total += row
        total /= len(rows)
        return total.astype(rows.dtype)

    return _by_rows(clients, combine, integer_from)


def _dtype_name(i: int, name: str, dtype: object) -> str:
    """NumPy's name of a dtype of numbers."""
    try:
        found = np.dtype(dtype) if isinstance(dtype, str) else None
    except (TypeError, ValueError, SyntaxError):
        found = None
    if found is None or found.kind not in "fiubc":
        raise FedscopeError(f"layout entry {i} ({name}) has dtype {dtype!r}, which is not a type of numbers")
    return found.name


def _by_rows(clients: Weights, combine: Callable[[np.ndarray], np.ndarray], integer_from: int) -> Weights:
    if clients.parameters.ndim != 2:
        raise FedscopeError(f"a mean is over rows [C, P], but the parameters have shape {clients.parameters.shape}")
    buffers = {}
    for name, rows in clients.buffers.items():
        floating = np.issubdtype(rows.dtype, np.floating)
        buffers[name] = combine(rows) if floating else rows[integer_from].copy()
    return Weights(clients.layout, combine(clients.parameters), buffers)
