"""Model files read as they are stored, made to go with each other: wrappers' prefixes, tied tensors, one order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..io.errors import FedscopeError, list_few
from ..models.adapters import about_adapters, other_ranks, refuse_other_scale, scale_beside, taken_scale
from ..models.expected import STATISTICS, ExpectedModel
from ..models.factor_names import factors_in
from ..models.files import file_and_key, read_tensors
from ..models.quantised import refuse_quantised
from ..models.state_dicts import OWN_ALONE, behind_prefix, refuse_valueless
from ..models.weights import Layout
from .coerce_models import ModelTensors, coerce_model, scale_of_tensors
from .match_files import natural

#: types that a run cannot keep
_NARROW = ("float8", "float4")
_LAST = ("weight", "bias", *STATISTICS)


@dataclass(frozen=True, eq=False)
class NamedArchitecture:
    """The model that files are expected to hold, with a name for sentences.

    Attributes:
        name: for sentences.
        module: names, shapes and which of them are trained; numbers and dtypes are the files' own.
        converted: as of :class:`~fedscope.checkpoints.models.expected.ExpectedModel`.
    """

    name: str
    module: ModelTensors
    converted: Callable[[Path], Mapping[str, Any] | None] | None = None

    @cached_property
    def layout(self) -> Layout:
        """The layout of the module."""
        return self.module.layout()

    @cached_property
    def expected(self) -> ExpectedModel:
        """The expected model: layout, tied tensors and constants."""
        return replace(self.module.expected(self.layout), converted=self.converted)


class FileReader:
    """Reads the files of one run.

    What stands in them is kept in its precision. Without an architecture the first file that is read says what the
    others must look like, and of its names the prefixes of DataParallel and torch.compile are taken off; ``model.``
    stays, which is part of many architectures' own names. With one, its names count. Tied tensors, constants and
    counters are those of :func:`~fedscope.checkpoints.models.match_names.match_names`.

    Attributes:
        notes: what was changed, and in which files.
        adapters: what to know of the models' mean, where they are adapters; "" otherwise.
    """

    def __init__(self, architecture: NamedArchitecture | None = None) -> None:
        self.architecture = architecture
        self.notes: dict[str, list[Path]] = {}
        self._first: tuple[Path, Layout] | None = None
        self._expected = None if architecture is None else architecture.expected
        self._names = None if architecture is None else architecture.layout.names
        self._ordered = architecture is not None
        self._scales: dict[str, tuple[Path, dict[str, Any]]] = {}
        self._unsaid: list[Path] = []
        self.adapters = ""

    def read(self, path: Path) -> ModelTensors:
        """Read one model.

        Raises:
            FedscopeError: as :func:`~fedscope.checkpoints.models.files.read_model`; what does not go with the
                architecture or the first file is named; adapters of another rank or scale than the first.
        """
        file, _ = file_and_key(str(path))
        beside = scale_beside(Path(file))
        self._refuse_other_scale("beside", path, beside)
        kind, tensors, notes = read_tensors(path, self._expected)
        refuse_quantised(path, tensors)  # before float8 becomes float32
        for note in notes:
            self._note(path, note)
        model = self._given(path, tensors)
        if self._expected is None:
            model, notes = model.without_wrappers()
            for note in notes:
                self._note(path, note)
            self._expected, self._names = model.expected(), tuple(model.arrays)
        else:
            model = self._fitted(path, model, self._expected)
        if not self.adapters:
            self.adapters = about_adapters(model.arrays)
        if self.adapters:
            inside = scale_of_tensors(model)
            self._refuse_other_scale("in", path, inside)
            if not beside and not inside and path not in self._unsaid:
                self._unsaid.append(path)
        if not self._ordered and kind != "safetensors" and set(model.arrays) == set(self._names or ()):
            self._names, self._ordered = tuple(model.arrays), True
        self._refuse_other(path, model)
        if self._first is None:
            self._first = path, model.layout()
        return model

    @property
    def scale(self) -> tuple[Path, dict[str, Any]] | None:
        """What the files say of the scale of their adapters, and the first that does."""
        return self._scales.get("beside", self._scales.get("in"))

    def in_order(self, model: ModelTensors) -> ModelTensors:
        """Put a model's tensors into the architecture's order, as far as the files that were read say it."""
        names = self._names or tuple(model.arrays)
        if not self._ordered:
            names = tuple(sorted(names, key=_by_name))
        return ModelTensors({name: model.arrays[name] for name in names}, model.dtypes, model.parameters)

    def sentences(self) -> list[str]:
        """List the changes, a sentence each, with the first of the files."""
        return [f"{list_few(paths, 3)}: {note}" for note, paths in self.notes.items()]

    def taken_scales(self) -> str:
        """Return the sentence on adapters whose scale no file says, and which are taken to have another's; "" without.

        Nothing is taken where no file says a scale: then the run says none, or what was typed for all of them.
        """
        return taken_scale(self._unsaid, self.scale[0]) if self._unsaid and self.scale is not None else ""

    def _note(self, path: Path, note: str) -> None:
        paths = self.notes.setdefault(note, [])
        if path not in paths[-1:]:  # once a file, however many of its tensors
            paths.append(path)

    def _given(self, path: Path, tensors: Mapping[str, Any]) -> ModelTensors:
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
            return coerce_model(kept)
        except FedscopeError as error:
            raise FedscopeError(f"{path}: {error}") from None

    def _fitted(self, path: Path, model: ModelTensors, expected: ExpectedModel) -> ModelTensors:
        """Rename to the expected names. That two tensors of the first file are one there need not hold for the
        others."""
        if self.architecture is None and all(name in model.arrays for name in expected.tied):
            expected = replace(expected, tied={})
        fitted, notes = model.fitted(path, expected)
        for note in notes:
            self._note(path, note)
        return fitted

    def _refuse_other_scale(self, where: str, path: Path, scale: dict[str, Any]) -> None:
        """Refuse an adapter of another rank or scale than the first."""
        if scale:
            first, known = self._scales.setdefault(where, (path, scale))
            refuse_other_scale(first, known, path, scale)

    def _refuse_other(self, path: Path, model: ModelTensors) -> None:
        """Refuse a model that does not go with the architecture, or with the first file."""
        if self.architecture is not None:
            names = self.architecture.layout.names
            lacks = any(name not in model.arrays for name in names)
            if lacks and (clause := behind_prefix(path, model.arrays, names)):
                raise FedscopeError(f"{path} does not hold {self.architecture.name} under its own names{clause}")
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


def _refuse(path: Path, model: ModelTensors, other: str, layout: Layout, *, types: bool = False) -> None:
    """Refuse a model of other names or shapes, or with ``types`` of other dtypes, than a layout has."""
    names = dict.fromkeys(layout.names)
    lacks = [name for name in names if name not in model.arrays]
    has = [name for name in model.arrays if name not in names]
    clauses = ([f"lacks {list_few(lacks, 3)}"] if lacks else []) + ([f"has {list_few(has, 3)}"] if has else [])
    what = f"{' and '.join(clauses)}, unlike {other}" if clauses else ""
    remedy = "leave one out"
    odd = [*lacks, *has]
    if odd and types and all(factors_in([name]) for name in odd):
        # without factors a layer's product is 0, and leaving them out of the other adapter would drop what they add
        remedy = (
            f"give the adapter that lacks {list_few(odd, 2)} factors of 0 of these shapes, which add nothing, or merge "
            "each into its base first"
        )
    elif len(clauses) == 1 and (has or types):
        place = "it" if has else other
        remedy = f"leave {list_few(has or lacks, 3)} out of {place}, as {OWN_ALONE} does, or leave one file out"
    elif len(clauses) == 1:
        remedy = "give the whole model.state_dict(), or the architecture that it is of (--model)"
    for entry in layout.entries if not what else ():
        shape, dtype = model.arrays[entry.name].shape, model.dtypes[entry.name]
        if shape != entry.shape:
            ranks = other_ranks(model.arrays, layout)
            what = f"has {entry.name} of shape {list(shape)}, {other} of {list(entry.shape)}{ranks}"
            break
        if types and dtype != (entry.stored or entry.dtype):
            what = f"has {entry.name} in {dtype}, {other} in {entry.stored or entry.dtype}"
            remedy = "save both in one precision, as model.float().state_dict() does, or leave one out"
            break
    if what:
        raise FedscopeError(f"{path} {what}; a run holds models of one architecture and precision, so {remedy}")


def _by_name(name: str) -> tuple[Any, ...]:
    """Return a key for the order that most architectures have: by module, weights before biases."""
    module, _, last = name.rpartition(".")
    return natural(module), _LAST.index(last) if last in _LAST else len(_LAST), natural(last)
