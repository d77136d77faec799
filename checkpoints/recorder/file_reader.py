"""Model files read as they are stored, made to go with each other: wrappers' prefixes, tied tensors, one order."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import FedscopeError, listed
from ..model_files import read_tensors
from ..state_dicts import refuse_valueless
from ..weights import Layout
from .checkpoint_files import natural
from .given_models import STATISTICS, GivenModel, given_model

#: what DataParallel and torch.compile put before every name, and no architecture has by itself
_WRAPPERS = re.compile(r"((module|_orig_mod)\.)+")
#: types that a run cannot keep
_NARROW = ("float8", "float4")
_LAST = ("weight", "bias", *STATISTICS)


@dataclass(frozen=True, eq=False)
class Architecture:
    """What models should look like.

    Attributes:
        name: for sentences.
        module: names, shapes and which of them are trained; numbers and dtypes are the files' own.
    """

    name: str
    module: GivenModel

    @cached_property
    def layout(self) -> Layout:
        """What stands where."""
        return self.module.layout()


class FileReader:
    """Reads the files of one run.

    What stands in them is kept in its precision. Without an architecture the first file that is read says what the
    others must look like, and of its names the prefixes of DataParallel and torch.compile are taken off; ``model.``
    stays, which is part of many architectures' own names. With one, its names count.

    Attributes:
        notes: what was changed, and in which files.
    """

    def __init__(self, architecture: Architecture | None = None) -> None:
        self.architecture = architecture
        self.notes: dict[str, list[Path]] = {}
        self._first: tuple[Path, Layout] | None = None
        self._names = None if architecture is None else architecture.layout.names
        self._tied = {} if architecture is None else tied_names(architecture.module.arrays)
        self._ordered = architecture is not None

    def read(self, path: Path) -> GivenModel:
        """One model.

        Raises:
            FedscopeError: as :func:`~fedscope.checkpoints.model_files.read_model`; what does not go with the
                architecture or the first file is named.
        """
        kind, tensors, notes = read_tensors(path, self._expected())
        for note in notes:
            self._note(path, note)
        model = self._unwrapped(path, self._given(path, tensors))
        if self._names is None:
            self._names, self._tied = tuple(model.arrays), tied_names(model.arrays)
        model = self._completed(path, model)
        if not self._ordered and kind != "safetensors" and set(model.arrays) == set(self._names):
            self._names, self._ordered = tuple(model.arrays), True
        self._refuse_other(path, model)
        if self._first is None:
            self._first = path, model.layout()
        return model

    def in_order(self, model: GivenModel) -> GivenModel:
        """The same with its tensors in the architecture's order, as far as the files that were read say it."""
        names = self._names or tuple(model.arrays)
        if not self._ordered:
            names = tuple(sorted(names, key=_by_name))
        return GivenModel({name: model.arrays[name] for name in names}, model.dtypes, model.parameters)

    def sentences(self) -> list[str]:
        """What was changed, a sentence each, with the first of the files."""
        return [f"{listed(paths, 3)}: {note}" for note, paths in self.notes.items()]

    def _note(self, path: Path, note: str) -> None:
        paths = self.notes.setdefault(note, [])
        if path not in paths[-1:]:  # once a file, however many of its tensors
            paths.append(path)

    def _expected(self) -> Layout | None:
        if self.architecture is not None:
            return self.architecture.layout
        return None if self._first is None else self._first[1]

    def _given(self, path: Path, tensors: Mapping[str, Any]) -> GivenModel:
        """Tensors or arrays as they are; what a run cannot keep (float8) as float32."""
        kept = dict(tensors)
        for name, value in tensors.items():
            if isinstance(value, np.ndarray):
                continue
            refuse_valueless(path, name, value)
            dtype = str(value.dtype).removeprefix("torch.")
            if dtype.startswith(_NARROW):
                kept[name] = value.float()
                self._note(path, f"tensors of {dtype} are kept as float32")
        try:
            return given_model(kept)
        except FedscopeError as error:
            raise FedscopeError(f"{path}: {error}") from None

    def _unwrapped(self, path: Path, model: GivenModel) -> GivenModel:
        """Without a prefix that all names have and the others' do not."""
        if self._names is not None:
            prefix = _prefix(list(model.arrays), frozenset(self._names))
        else:
            found = _WRAPPERS.match(next(iter(model.arrays)))
            prefix = found[0] if found and all(name.startswith(found[0]) for name in model.arrays) else ""
        if not prefix:
            return model
        self._note(path, f'the prefix "{prefix}" is taken off its names')
        return GivenModel(
            {name.removeprefix(prefix): array for name, array in model.arrays.items()},
            {name.removeprefix(prefix): dtype for name, dtype in model.dtypes.items()},
            model.parameters,
        )

    def _completed(self, path: Path, model: GivenModel) -> GivenModel:
        """With all names of tensors that are tied: .safetensors keep one of them."""
        assert self._names is not None
        arrays, dtypes = dict(model.arrays), dict(model.dtypes)
        for name in self._names:
            same = next((other for other in self._tied.get(name, ()) if other in arrays), None)
            if name not in arrays and same is not None:
                arrays[name], dtypes[name] = arrays[same], dtypes[same]
                self._note(path, f"{name} is taken from {same}, which it is tied to")
        known = frozenset(self._names)
        own = tied_names(arrays) if arrays.keys() - known else {}
        for name in [name for name in arrays if name not in known and known & set(own.get(name, ()))]:
            del arrays[name], dtypes[name]
            self._note(path, f"{name} is left out, which is tied to {own[name][0]}")
        return GivenModel(arrays, dtypes, model.parameters)

    def _refuse_other(self, path: Path, model: GivenModel) -> None:
        """Refuse a model that does not go with the architecture, or with the first file."""
        if self.architecture is not None:
            _refuse(path, model, self.architecture.name, self.architecture.layout)
            for name in (entry.name for entry in self.architecture.layout.parameters):
                if not model.dtypes[name].startswith(("float", "bfloat")):
                    raise FedscopeError(
                        f"{path}: {name} is {model.dtypes[name]}, but the model trains it; if its weights are "
                        "quantised, save them as float32"
                    )
        if self._first is not None:
            other, first = self._first
            _refuse(path, model, str(other), first, types=True)


def _refuse(path: Path, model: GivenModel, other: str, layout: Layout, *, types: bool = False) -> None:
    """Refuse a model of other names or shapes, or with ``types`` of other dtypes, than a layout has."""
    lacks = [name for name in layout.names if name not in model.arrays]
    has = [name for name in model.arrays if name not in layout.names]
    clauses = ([f"lacks {listed(lacks, 3)}"] if lacks else []) + ([f"has {listed(has, 3)}"] if has else [])
    what = f"{' and '.join(clauses)}, unlike {other}" if clauses else ""
    for entry in layout.entries if not what else ():
        shape, dtype = model.arrays[entry.name].shape, model.dtypes[entry.name]
        if shape != entry.shape:
            what = f"has {entry.name} of shape {list(shape)}, {other} of {list(entry.shape)}"
            break
        if types and dtype != (entry.stored or entry.dtype):
            what = f"has {entry.name} in {dtype}, {other} in {entry.stored or entry.dtype}"
            break
    if what:
        raise FedscopeError(f"{path} {what}; a run holds models of one architecture and precision, so leave one out")


def tied_names(arrays: Mapping[str, np.ndarray]) -> dict[str, tuple[str, ...]]:
    """Of each name whose numbers lie where another's do, the others.

    >>> w = np.ones((3, 2))
    >>> tied_names({"embed": w, "head": w, "other": w.copy()})
    {'embed': ('head',), 'head': ('embed',)}
    """
    places: dict[tuple[Any, ...], list[str]] = {}
    for name, array in arrays.items():
        if array.size:
            place = (array.__array_interface__["data"][0], array.shape, array.strides, array.dtype.str)
            places.setdefault(place, []).append(name)
    return {
        name: tuple(other for other in names if other != name)
        for names in places.values()
        if len(names) > 1
        for name in names
    }


def _prefix(names: list[str], wanted: frozenset[str]) -> str:
    """What stands before all names, and leaves the most of those that are wanted; the shortest of such.

    >>> _prefix(["module.fc.weight", "module.fc.bias"], frozenset({"fc.weight", "fc.bias"}))
    'module.'
    """
    parts = names[0].split(".")
    starts = ["".join(f"{part}." for part in parts[:i]) for i in range(len(parts))]
    common = [start for start in starts if all(name.startswith(start) for name in names)]
    return max(common, key=lambda start: sum(name.removeprefix(start) in wanted for name in names))


def _by_name(name: str) -> tuple[Any, ...]:
    """A key for the order that most architectures have: by module, weights before biases."""
    module, _, last = name.rpartition(".")
    return natural(module), _LAST.index(last) if last in _LAST else len(_LAST), natural(last)
