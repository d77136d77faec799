"""Coercion of one model that a program hands over: a module, a ``state_dict`` or named arrays, read without importing
torch."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from ..io.errors import FedscopeError, list_few
from ..io.hdf5 import is_storable
from ..io.torch_state import without_sign_bit
from ..models.adapters import scale_in
from ..models.expected import ExpectedModel, is_statistic, place_of, tied_names
from ..models.factor_names import alphas_in, other_ranks
from ..models.match_names import COUNTERS, is_constant, match_names
from ..models.quantised import refuse_quantised
from ..models.state_dicts import WRAPPINGS, find_state_dict, is_tensor
from ..models.weights import BFLOAT16, Layout, TensorEntry, is_extra, tensors_of, to_bfloat16
from ..models.wrappers import BEFORE, cleared_name, unwrap

#: a device and an address on it; of a processor the address alone, as arrays have it
MemoryAddress = tuple[str, int] | int
#: in a clause of :func:`difference` between the type of a model's tensor and the run's
IN_PRECISION = ", the run's models in "
_FLOATS = ("float16", "float32", "float64")


@dataclass(frozen=True, eq=False)
class ModelTensors:
    """A model's tensors.

    Attributes:
        arrays: by ``state_dict`` key; views of what was given where that is possible. Of bfloat16 the bits, uint16.
        dtypes: by key, with ``bfloat16`` where it is that.
        parameters: the keys of what is trained; None where that was not said.
        places: by key where a tensor of torch began in memory, of which the array may be a copy: one on a GPU is.
    """

    arrays: dict[str, np.ndarray]
    dtypes: dict[str, str]
    parameters: frozenset[str] | None
    places: Mapping[str, MemoryAddress] = field(default_factory=dict)

    def layout(self, model: Layout | None = None) -> Layout:
        """Make the layout of these tensors.

        What is trained is what the module or ``model`` says; where neither does, all floating tensors but those that
        are called as the statistics of normalization layers, and the ``.alpha`` that scale kohya's adapters.
        """
        kinds = {entry.name: entry.kind for entry in model.entries} if model is not None else {}
        if self.parameters is None:
            alphas = alphas_in({name: array.shape for name, array in self.arrays.items()})
            kinds = {**dict.fromkeys(alphas, "buffer"), **kinds}
        entries = []
        for name, array in self.arrays.items():
            dtype = self.dtypes[name]
            stored = dtype if dtype in (BFLOAT16, "float16") else ""
            kind = kinds.get(name) or self._kind(name, dtype)
            entries.append(TensorEntry(name, tuple(array.shape), "float32" if stored else dtype, kind, stored))
        return Layout(tuple(entries))

    def expected(self, layout: Layout | None = None) -> ExpectedModel:
        """Make the expected model by which others are matched with this one.

        Args:
            layout: of these tensors, where it is known.
        """
        layout = layout or self.layout()
        constants = [entry.name for entry in layout.buffers if is_constant(entry) and entry.name in self.arrays]
        # copied, because what a module holds may change
        return ExpectedModel(layout, tied_names(self.arrays), {name: self.arrays[name].copy() for name in constants})

    def without_wrappers(self) -> tuple[ModelTensors, list[str]]:
        """Take off what wrappers and profilers have put before the names and next to the tensors, where nothing else
        says the names, and return a clause for each change."""
        notes = []
        counters = [name for name in self.arrays if name.rpartition(".")[2] in COUNTERS]
        if counters and len(counters) < len(self.arrays):
            which = "is left out, which is no weight" if len(counters) == 1 else "are left out, which are no weights"
            notes.append(f"{list_few(counters, 3)} {which}")
        names = {name: name for name in self.arrays if not notes or name not in counters}
        found = BEFORE.match(next(iter(names)))
        prefix = found[0] if found and all(name.startswith(found[0]) for name in names) else ""
        names = {name: cleared_name(name.removeprefix(prefix)) for name in names}
        if len(set(names.values())) < len(names):  # two would be one
            names = {name: name for name in names}
        changed = [name for name, other in names.items() if name != other]
        if changed and all(names[name] == name.removeprefix(prefix) for name in names):
            notes.append(f'the prefix "{prefix}" is taken off its names')
        elif changed:
            notes.append(f"its names are read without their wrappers ({changed[0]} is {names[changed[0]]})")
        return self._renamed(names) if notes else self, notes

    def _renamed(self, names: Mapping[str, str]) -> ModelTensors:
        """Rename some of the tensors, and leave the others out."""
        parameters = self.parameters
        if parameters is not None:
            parameters = frozenset(names[name] for name in parameters if name in names)
        return ModelTensors(
            {other: self.arrays[name] for name, other in names.items()},
            {other: self.dtypes[name] for name, other in names.items()},
            parameters,
            {other: self.places[name] for name, other in names.items() if name in self.places},
        )

    def fitted(self, place: object, expected: ExpectedModel) -> tuple[ModelTensors, list[str]]:
        """Rename to the expected names, and return a clause for each thing that was changed; the model itself, where
        its names do not go with them.

        Raises:
            FedscopeError: as :func:`~fedscope.checkpoints.models.match_names.match_names`.
        """
        found = match_names(place, self.arrays, self.dtypes, expected)
        if not found.whole or found.is_same:
            return self, []
        own = {entry.name: entry for entry in expected.layout.entries}
        arrays = {name: self.arrays[given] for name, given in found.names.items()}
        dtypes = {name: self.dtypes[given] for name, given in found.names.items()}
        dtypes |= {name: own[name].stored or own[name].dtype for name in found.supplied}
        parameters = self.parameters
        if parameters is not None:
            parameters = frozenset(name for name, given in found.names.items() if given in parameters)
        places = {name: self.places[given] for name, given in found.names.items() if given in self.places}
        return ModelTensors(arrays | found.supplied, dtypes, parameters, places), found.notes

    def typed_as(self, client: ModelTensors) -> tuple[ModelTensors, list[str]]:
        """Return a server's model in the types that a client loads it in, and the names of its numbers that are rounded
        for that: counters that were averaged are whole again, and means in float64 float32."""
        arrays, dtypes, rounded = dict(self.arrays), dict(self.dtypes), []
        for name, own in self.dtypes.items():
            wanted = client.dtypes.get(name, own)
            counter = np.dtype(wanted).kind in "iu" and own in _FLOATS if wanted != BFLOAT16 else False
            if counter or (own, wanted) == ("float64", "float32"):
                with np.errstate(invalid="ignore", over="ignore"):
                    arrays[name] = arrays[name].astype(wanted)
                dtypes[name] = wanted
                rounded += [] if counter else [name]
        same = dtypes == self.dtypes
        return self if same else ModelTensors(arrays, dtypes, self.parameters, self.places), rounded

    def goes_with(self, module: ModelTensors) -> bool:
        """Check whether these are all tensors of a module, up to what :meth:`fitted` changes."""
        try:
            return match_names("", self.arrays, self.dtypes, module.expected()).whole
        except FedscopeError:  # of two numbers for one tensor, which is said when they are fitted
            return True

    def numbers(self) -> dict[str, np.ndarray]:
        """Return the values by name, those of bfloat16 as float32."""
        return {name: numbers_of(array, self.dtypes[name]) for name, array in self.arrays.items()}

    def with_numbers(self, numbers: Mapping[str, np.ndarray]) -> ModelTensors:
        """Return the model with other values, rounded to its types: those of bfloat16 become its bits again.

        >>> one = ModelTensors({"w": np.uint16([16256, 16384])}, {"w": "bfloat16"}, None)
        >>> one.with_numbers({"w": np.float32([2.0, 1.0])}).arrays["w"].tolist()
        [16384, 16256]
        """
        arrays = {
            name: (
                to_bfloat16(numbers[name].astype(np.float64))
                if self.dtypes[name] == BFLOAT16
                else np.asarray(numbers[name], array.dtype)
            )
            for name, array in self.arrays.items()
        }
        return ModelTensors(arrays, self.dtypes, self.parameters)

    def _kind(self, name: str, dtype: str) -> Literal["parameter", "buffer"]:
        if self.parameters is not None:
            return "parameter" if name in self.parameters else "buffer"
        trained = dtype in (BFLOAT16, *_FLOATS) and not is_statistic(name)
        return "parameter" if trained else "buffer"


def coerce_model(
    value: Any, names: Sequence[str] | None = None, held: list[Any] | None = None, *, codes: bool = False
) -> ModelTensors:
    """Read the tensors of a model in any of the forms in which programs hand it over; nothing is copied that need not
    be.

    Args:
        value: a torch module, one in a wrapper (``DataParallel``, ...) too; a mapping of names to tensors or arrays, or
            a checkpoint with one such mapping in it; a sequence of arrays in the order of ``names``; or what was read
            before.
        held: gets the tensors whose places are said, which are theirs as long as it lives; without it none are.
        codes: whether quantised weights are taken: of an architecture, whose adapters alone are trained.

    Raises:
        FedscopeError: none of these; no tensors; an entry that is none; arrays without names, or not as many; quantised
            weights.

    >>> coerce_model({"w": np.zeros((2, 3), np.float32)}).layout().entries[0].shape
    (2, 3)
    """
    if isinstance(value, ModelTensors):
        return value
    parameters = None
    if callable(getattr(value, "state_dict", None)) and callable(getattr(value, "named_parameters", None)):
        value = unwrap(value)
        parameters = frozenset(name for name, _ in value.named_parameters(remove_duplicate=False))
        value = tensors_of(value)
    if not isinstance(value, Mapping):
        value = _name_in_order(value, names)
    value = {
        name: entry
        for name, entry in value.items()
        if not (isinstance(name, str) and is_extra(name)) or hasattr(entry, "dtype")
    }
    if any(isinstance(entry, Mapping) for entry in value.values()):  # a whole checkpoint
        value = _tensors_in(value)
    if not value:
        raise FedscopeError("a model without tensors was given; give one with weights: its module or its state_dict()")
    if not codes:
        refuse_quantised("", value)
    arrays, dtypes, places = {}, {}, {}
    read: dict[tuple[Any, ...], tuple[np.ndarray, str]] = {}  # one array of tensors that are one, copied or not
    for name, tensor in value.items():
        if not isinstance(name, str):
            raise FedscopeError(f"a model has an entry {name!r}, which is not a name; give its state_dict()")
        parts = name.split("/")
        inside = ["/".join(parts[:i]) for i in range(1, len(parts))]
        if not is_storable(name) or any(place in value for place in inside):
            raise FedscopeError(f"a model has an entry {name!r}, which a run cannot store with the others; rename it")
        if (whole := _place(tensor)) is None:
            arrays[name], dtypes[name] = _array(name, tensor)
            continue
        if whole not in read:
            read[whole] = _array(name, tensor)
        arrays[name], dtypes[name] = read[whole]
        if held is not None:
            device, address = whole[:2]
            places[name] = address if device == "cpu" else (device, address)
            held.append(tensor)
    return ModelTensors(arrays, dtypes, parameters, places)


def architecture(model: Any) -> tuple[str | None, ModelTensors | None]:
    """Return the name of an architecture, where code can be found by it, and its tensors, where it is no name alone.

    Args:
        model: a name, a module, or a class or function without arguments that makes one.

    Raises:
        FedscopeError: what cannot be made without arguments, or is no module.

    >>> architecture("nets:small"), architecture(None)
    (('nets:small', None), (None, None))
    """
    if model is None or isinstance(model, str):
        return model, None
    made = model_made(model)
    if made is model:
        return None, coerce_model(model, codes=True)
    place, name = getattr(model, "__module__", ""), getattr(model, "__qualname__", "")
    found = place != "__main__" and getattr(sys.modules.get(place), name, None) is model
    return f"{place}:{name}" if found else None, coerce_model(made, codes=True)


def model_made(model: Any) -> Any:
    """Make the model of a class or function without arguments; anything else is returned as it is.

    Raises:
        FedscopeError: it needs arguments.

    >>> model_made(dict), model_made("nets:small")
    ({}, 'nets:small')
    """
    if not isinstance(model, type) and (not callable(model) or hasattr(model, "state_dict")):
        return model
    try:
        return model()
    except TypeError as error:
        raise FedscopeError(f"model= cannot be made without arguments ({error}); give a module that is made") from error


def _name_in_order(value: Any, names: Sequence[str] | None) -> Mapping[str, Any]:
    if not isinstance(value, list | tuple):
        raise FedscopeError(
            f"a model was given as {type(value).__name__}; give a module, its state_dict() or arrays by name"
        )
    if value and all(isinstance(one, tuple) and len(one) == 2 and isinstance(one[0], str) for one in value):
        raise FedscopeError("a model was given as pairs of a name and a tensor; give dict(pairs)")
    if names is None:
        raise FedscopeError(
            f"a model was given as {len(value)} arrays without names; name them, or give model=, whose state_dict() "
            "has them in this order"
        )
    if len(names) != len(value):
        raise FedscopeError(f"a model was given as {len(value)} arrays, but model= has {len(names)} tensors")
    return dict(zip(names, value, strict=True))


def _tensors_in(checkpoint: Mapping[Any, Any]) -> Mapping[str, Any]:
    """Return the one mapping of names to tensors in what a program keeps of a model.

    Raises:
        FedscopeError: none, or several, of which one would be a part of a model alone.
    """
    _refuse_tree(checkpoint)
    try:
        return find_state_dict("the model", checkpoint, None)[0]
    except FedscopeError as error:
        if "unclear which" not in str(error):
            raise
        flat = ".".join(_first_tensor(checkpoint))
        level = f"name its tensors at one level{f': {flat!r}' if flat else ''}"
        raise FedscopeError(f"{error}, or if all are of one model, {level}") from None


#: what checkpoints call the model besides
_ALSO = ("net", "network", "params", "weights")


def _refuse_tree(tree: Mapping[Any, Any]) -> None:
    """Refuse tensors beside a mapping of others, as flax's trees may have them: those of the mapping alone would be
    taken for the model.

    Raises:
        FedscopeError: names them.
    """
    inside = {
        str(name): entry
        for name, entry in tree.items()
        if isinstance(entry, Mapping) and _first_tensor(entry) and not is_extra(str(name))
    }
    if wrapped := [inside[name] for name in (*WRAPPINGS, *_ALSO) if name in inside]:
        for entry in wrapped:  # beside which a checkpoint has what is no weight
            _refuse_tree(entry)
        return
    beside = [str(name) for name, entry in tree.items() if _is_weight(entry) or (_is_row(entry) and _in_row(entry))]
    if beside and inside:
        name, entry = next(iter(inside.items()))
        flat = ".".join((name, *_first_tensor(entry)))
        raise FedscopeError(
            f"a model has {list_few(beside, 2)} beside {name}, which holds tensors too; give {name} alone, or name all "
            f"at one level, as {flat!r}"
        )
    for entry in inside.values():
        _refuse_tree(entry)


def _first_tensor(tree: Mapping[Any, Any]) -> tuple[str, ...]:
    """Return the names on the way to the first tensor of a tree; empty where it holds none."""
    for name, entry in tree.items():
        if is_tensor(entry):
            return (str(name),)
        if isinstance(entry, Mapping) and (inside := _first_tensor(entry)):
            return (str(name), *inside)
    return ()


def _is_weight(entry: Any) -> bool:
    return bool(is_tensor(entry) and "float" in str(entry.dtype) and entry.ndim)


def _is_row(entry: Any) -> bool:
    return isinstance(entry, list | tuple)


def _in_row(entry: Sequence[Any]) -> bool:
    """Check whether a list of a tree, as JAX's may have them, holds weights; losses of rounds have no dimensions."""
    return any(
        _is_weight(one) or (isinstance(one, Mapping) and bool(_first_tensor(one))) or (_is_row(one) and _in_row(one))
        for one in entry
    )


def _place(value: Any) -> tuple[Any, ...] | None:
    """Return where the numbers of a tensor of torch lie; None of anything else, and of tensors without."""
    return place_of(value) if callable(getattr(value, "detach", None)) and hasattr(value, "is_meta") else None


def _array(name: str, value: Any) -> tuple[np.ndarray, str]:
    """Return a tensor as an array on the CPU, and its dtype."""
    if callable(getattr(value, "detach", None)):  # a tensor of torch
        if type(value).__name__.startswith("Uninitialized"):
            raise FedscopeError(
                f"{name} has no shape yet; name its sizes (nn.Linear for nn.LazyLinear), or call the module once first"
            )
        if getattr(value, "is_meta", False):
            raise FedscopeError(f"{name} is on the meta device, which keeps no numbers; make the module on the CPU")
        if (form := str(getattr(value, "layout", ""))) not in ("", "torch.strided"):
            raise FedscopeError(
                f"{name} is {form.removeprefix('torch.')}, which a run cannot hold; give {name}.to_dense()"
            )
        value = without_sign_bit(value.detach())
        dtype = str(value.dtype).removeprefix("torch.")
        if dtype == BFLOAT16:
            return value.contiguous().view(sys.modules["torch"].int16).cpu().numpy().view(np.uint16), BFLOAT16
        try:
            value = value.cpu().numpy()
        except (TypeError, RuntimeError) as error:
            remedy = f"{name}.dequantize()" if getattr(value, "is_quantized", False) else "it as float32"
            raise FedscopeError(f"{name} is {dtype}, which a run cannot hold; give {remedy}") from error
    if np.ma.is_masked(value):
        raise FedscopeError(f"{name} is a masked array, whose hidden numbers would count; give {name}.filled(0)")
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:  # arrays of several shapes, or torch's tensors in a list
        raise FedscopeError(
            f"{name} is a {type(value).__name__} of several arrays, and no array; give each array by a name of its own"
        ) from error
    if array.dtype.name == BFLOAT16:  # of ml_dtypes, as jax gives it
        return array.view(np.uint16), BFLOAT16
    if array.dtype.kind not in "fiub" or array.dtype.itemsize > 8:
        raise FedscopeError(f"{name} is {_kind_of(value, array)}")
    return array, array.dtype.name


def _kind_of(value: Any, array: np.ndarray) -> str:
    """Say what an array without plain numbers is, and what to give instead.

    >>> _kind_of([{}], np.array([{}]))
    'a list of other things than numbers, which a run cannot hold; give its tensors by name, or leave it out'
    >>> _kind_of(1j, np.array(1j))
    'complex128, which a run cannot hold; give its real and imaginary parts as two tensors'
    """
    if array.dtype.kind == "c":
        return f"{array.dtype}, which a run cannot hold; give its real and imaginary parts as two tensors"
    if array.dtype.kind == "f":  # of more than 8 bytes
        return f"{array.dtype}, which a run cannot hold; give it as float64"
    if array.dtype.kind == "O" and callable(getattr(value, "toarray", None)):  # scipy's
        return f"a {type(value).__name__}, which a run cannot hold; give its toarray()"
    if array.dtype.kind == "O" and not isinstance(value, np.ndarray):
        things = f"a {type(value).__name__} of other things than numbers"
        return f"{things}, which a run cannot hold; give its tensors by name, or leave it out"
    return f"{array.dtype}, which a run cannot hold; give numbers, or leave it out"


def numbers_of(array: np.ndarray, dtype: str) -> np.ndarray:
    """Return the values of an array that may be bits of bfloat16."""
    from ..models.weights import from_bfloat16

    return from_bfloat16(array) if dtype == BFLOAT16 else array


def scale_of_tensors(model: ModelTensors) -> dict[str, Any]:
    """Read what kohya's adapters say of their scale, see :func:`~fedscope.checkpoints.models.adapters.scale_in`.

    >>> alpha = coerce_model({"q.lora_down.weight": np.ones((2, 3)), "q.alpha": np.array(4.0)})
    >>> scale_of_tensors(alpha)
    {'alpha': {'q': 4.0}}
    """
    numbers = {name: numbers_of(array, model.dtypes[name]) for name, array in model.arrays.items() if array.size == 1}
    return scale_in({**model.arrays, **numbers})


def difference(model: ModelTensors, layout: Layout) -> str:
    """Name in one clause what of a model does not fit the run's, whatever the order; empty where all does."""
    known = {entry.name: entry for entry in layout.entries}
    missing = [name for name in known if name not in model.arrays]
    other = [name for name in model.arrays if name not in known]
    if missing or other:
        clauses = [f"lacks {list_few(missing, 3)}"] if missing else []
        clauses += [f"has {list_few(other, 3)}, which the run's models do not have"] if other else []
        return " and ".join(clauses)
    for name, entry in known.items():
        if model.arrays[name].shape != entry.shape:
            ranks = other_ranks(model.arrays, layout)
            return (
                f"has {name} of shape {list(model.arrays[name].shape)}, the run's models of {list(entry.shape)}{ranks}"
            )
        if model.dtypes[name] != (entry.stored or entry.dtype):
            return f"has {name} in {model.dtypes[name]}{IN_PRECISION}{entry.stored or entry.dtype}"
    return ""


def unlike(layout: Layout, module: ModelTensors) -> str:
    """Say in one clause why an architecture cannot measure the models of a run, and what to give instead: it has other
    names, or weights of another type; empty where it can.

    >>> module = ModelTensors({"w": np.zeros(2, np.float32)}, {"w": "float32"}, None)
    >>> unlike(ModelTensors({"v": np.zeros(2)}, {"v": "float32"}, None).layout(), module)
    'the models have v, and the architecture that model= gives has w instead, so that questions refuse ...
    """
    own = {entry.name: entry for entry in module.layout().entries}
    end = "so that questions refuse them"
    if other := [name for name in layout.names if name not in own]:
        lacking = [name for name in own if name not in layout.names]
        has = f"has {list_few(lacking, 2)} instead" if lacking else "does not"
        return (
            f"the models have {list_few(other, 2)}, and the architecture that model= gives {has}, {end}; give the "
            "architecture of these models as model=, or name their tensors as it does"
        )
    several = len({entry.dtype for entry in layout.parameters}) > 1  # else questions take the architecture in that one
    for entry in layout.parameters:
        theirs = own[entry.name].dtype
        if several and entry.dtype != theirs:
            return (
                f"the models have {entry.name} in {entry.dtype}, and the architecture that model= gives in {theirs}, "
                f"{end}; give them in {theirs}"
            )
    return ""


def other_shape(layout: Layout, module: ModelTensors) -> str:
    """Name in one clause a tensor whose shape is not that of the architecture; empty where there is none. What only one
    of the two has is left to questions: adapters lack the weights of what they adapt.

    >>> module = ModelTensors({"w": np.zeros((2, 3))}, {"w": "float64"}, None)
    >>> other_shape(ModelTensors({"w": np.zeros((2, 9))}, {"w": "float64"}, None).layout(), module)
    'the models have w of shape [2, 9], and the architecture that model= gives of [2, 3]'
    """
    for entry in layout.entries:
        own = module.arrays.get(entry.name)
        if own is not None and own.shape != entry.shape:
            return (
                f"the models have {entry.name} of shape {list(entry.shape)}, and the architecture that model= gives of "
                f"{list(own.shape)}"
            )
    return ""
