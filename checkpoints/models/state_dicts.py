"""From what a checkpoint holds to one model's arrays by the expected names, and in words what was done to them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..io.errors import FedscopeError, list_few, nearest
from ..io.torch_state import without_sign_bit
from .expected import ExpectedModel
from .match_names import is_constant, match_names, prefixes
from .weights import TensorEntry, is_extra
from .wrappers import plain_names

if TYPE_CHECKING:
    from torch import Tensor

Expected = ExpectedModel | None

#: keys that programs keep a model's tensors under; what lies under others is taken only where it is alone
WRAPPINGS = ("state_dict", "model_state_dict", "model", "module")
# Not models, though they hold tensors by name.
_OTHERS = ("optim", "scheduler", "scaler", "callbacks", "loops", "rng")
_DEPTH = 4
# of the state of a parameter, in torch's optimisers
_STATE = ("step", "exp_avg", "momentum_buffer")
# tensors in all, after which no more models are looked for: a small file may name one model without end
_MANY = 100_000
_NOT_IN_NUMPY = ("bfloat", "float8", "float4")
_HALVES = (*_NOT_IN_NUMPY, "float16")
_SHARD = re.compile(r"-\d{5}-of-\d{5}\.")


def find_state_dict(place: object, loaded: Any, expected: Expected, key: str = "") -> tuple[dict[str, Any], str]:
    """Find the one mapping of names to tensors in what was loaded.

    Below the keys of :data:`WRAPPINGS` first, then below any other key but those of optimisers, then in lists and below
    whole numbers, as models of clients are kept; beside tensors these are parts of a model, and are not looked into.
    Where several lie there, it is the one whose names are the expected model's, up to a prefix.

    Args:
        place: for sentences: the file, or what a model in memory is called.
        key: where the model lies, ``teacher``, ``models.teacher`` or ``clients.0``; a prefix of the tensors' names is
            one, too. "" to look for it.

    Returns:
        The tensors by name; a clause that says where they lay if that had to be chosen, "" where nothing else was
        there.

    Raises:
        FedscopeError: none, with what is there instead; several, with their places; none under the key.
    """
    if key:
        return _under(place, loaded, expected, key), ""
    candidates = _find(loaded)
    if not candidates:
        _refuse(place, loaded)
    chosen, known = _choose(place, loaded, candidates, expected)
    tensors = candidates[chosen].tensors
    extra = _extra_states(_at(loaded, chosen), chosen)
    # what is numbered is no other model where it has other names: results, samples, states of an optimiser
    others = [
        one
        for one, found in candidates.items()
        if one != chosen and (not found.is_numbered or found.tensors.keys() == tensors.keys())
    ]
    if known and not others:
        return tensors, extra
    beside = f", not {list_few(others, 4)}" if others else ""
    said = f"the model is what it holds under {chosen!r}{beside}"
    return tensors, ", ".join(filter(None, (said, extra)))


@dataclass(frozen=True)
class _Found:
    """A mapping of names to tensors, and whether a list or a whole number is on the way to it."""

    tensors: dict[str, Any]
    is_numbered: bool


def _choose(
    place: object, loaded: Any, candidates: Mapping[str, _Found], expected: Expected, key: str = ""
) -> tuple[str, bool]:
    """Return where the model lies that is meant among those below a key, and whether only :data:`WRAPPINGS` are on the
    way.

    Raises:
        FedscopeError: several; names them.
    """
    below = {one: one[len(key) :].removeprefix(".") if key else one for one in candidates}
    known = [one for one in candidates if all(part in WRAPPINGS for part in below[one].split(".") if part)]
    places = known or [one for one in candidates if not candidates[one].is_numbered] or list(candidates)
    if len(places) > 1 and expected is not None:
        places = [one for one in places if fits_names(candidates[one].tensors, expected)] or places
    if len(places) > 1:
        name = (
            f"name one of them, {place}:{places[0]}"
            if isinstance(place, Path)
            else f"give {_index_expression(loaded, places[0])}"
        )
        if isinstance(place, Path) and not _are_models([candidates[one] for one in places]):
            name += ", or if these are layers of one model, save its state_dict()"
        there = list_few([below[one] for one in places], 6)
        raise FedscopeError(
            f"{place} holds {len(places)} models ({there}), and it is unclear which one is meant; {name}"
        )
    return places[0], bool(known)


def _are_models(found: Sequence[_Found]) -> bool:
    """Check whether several may be models, each of a client or a round: what is numbered has one shape."""
    shapes = [{name: tuple(value.shape) for name, value in one.tensors.items()} for one in found if one.is_numbered]
    return all(one == shapes[0] for one in shapes)


def _extra_states(state: Mapping[str, Any], place: str) -> str:
    """Return a clause for what is there besides the tensors; "" where there is nothing."""
    left = [name for name, value in state.items() if not is_tensor(value) and _is_left_out(name, value, place)]
    are = "is left out, which is no tensor" if len(left) == 1 else "are left out, which are no tensors"
    return f"{list_few(left, 3)} {are}" if left else ""


def fits_names(tensors: Mapping[str, Any], expected: ExpectedModel) -> bool:
    """Check whether the names are the expected model's, up to a prefix and what is no weight; numbers are not looked
    at."""
    tied = {name for name, others in expected.tied.items() if others}
    wanted = [entry.name for entry in expected.layout.entries if not is_constant(entry) and entry.name not in tied]
    names = {plain: name for name, plain in plain_names(tensors).items()}
    plain = [*plain_names(wanted).values()]
    return all(name in names for name in plain) or any(
        all(f"{prefix}{name}" in names for name in plain) for prefix in prefixes(names, plain)
    )


def _under(place: object, loaded: Any, expected: Expected, key: str) -> dict[str, Any]:
    """Return the model that lies under a key."""
    if inside := _find(_at(loaded, key), key):
        return inside[key if key in inside else _choose(place, loaded, inside, expected, key)[0]].tensors
    candidates = _find(loaded)
    if not candidates:
        _refuse(place, loaded)
    behind = []  # as a prefix of names: of a whole module that holds several
    for one, found in candidates.items():
        prefix = key.removeprefix(f"{one}.") if one else key
        named = {
            name.removeprefix(f"{prefix}."): value
            for name, value in found.tensors.items()
            if name.startswith(f"{prefix}.")
        }
        behind += [named] if named else []
    if len(behind) == 1:
        return behind[0]
    there = [one for one in candidates if one]
    there = there or list(dict.fromkeys(name.split(".")[0] for name in candidates[""].tensors))
    hint = nearest(key, there)
    raise FedscopeError(
        f"{place} holds no model under {key!r}{hint}{',' if hint else ';'} it has {list_few(there, 8)}"
        if not behind
        else f"{place} holds {len(behind)} models under {key!r}; give the whole key, one of {list_few(candidates, 6)}"
    )


def _entries(value: Any) -> Iterator[tuple[str, Any, Any]]:
    """What a mapping or a list holds: how a key says it, the key or the number itself, and the value."""
    if isinstance(value, list | tuple):
        yield from ((str(number), number, one) for number, one in enumerate(value))
    elif isinstance(value, Mapping):
        for key, one in value.items():
            if isinstance(key, str):
                yield key, key, one
            elif isinstance(key, int | np.integer) and not isinstance(key, bool) and str(key) not in value:
                yield str(int(key)), key, one


def _way(loaded: Any, place: str) -> tuple[list[Any], Any] | None:
    """Return the keys and numbers on the way to a place, and what lies there; keys may have dots of their own."""
    if not place:
        return [], loaded
    for word, key, value in _entries(loaded):
        if place == word:
            return [key], value
        if place.startswith(f"{word}.") and (on := _way(value, place[len(word) + 1 :])):
            return [key, *on[0]], on[1]
    return None


def _at(loaded: Any, place: str) -> Any:
    """Find the value at a place; an empty mapping where there is none."""
    way = _way(loaded, place)
    return {} if way is None else way[1]


def _index_expression(loaded: Any, place: str) -> str:
    way = _way(loaded, place)
    return "checkpoint" + "".join(f"[{key!r}]" for key in (way[0] if way else place.split(".")))


def _find(loaded: Any, place: str = "") -> dict[str, _Found]:
    """Return the mappings of names to tensors by their places; the first of those that are too many."""
    found: dict[str, _Found] = {}
    count = 0
    for one, candidate in _candidates(loaded, place, set()):
        found[one] = candidate
        count += len(candidate.tensors)
        if count > _MANY:
            break
    return found


def _candidates(
    loaded: Any, place: str, barren: set[tuple[int, int, bool]], *, is_numbered: bool = False, is_part: bool = False
) -> Iterator[tuple[str, _Found]]:
    """Yield what may be models.

    Args:
        barren: what holds none, by its identity and depth: a file may name one list a thousand times, at every level.
        is_part: whether tensors lie beside this, as beside the layers of a model: then lists, and what is numbered,
            are no models.
    """
    seen = (id(loaded), place.count("."), is_part)
    if not isinstance(loaded, Mapping | list | tuple) or not loaded or seen[1] >= _DEPTH or seen in barren:
        return
    if isinstance(loaded, Mapping):
        if "param_groups" in loaded and "state" in loaded:  # an optimiser, whatever it is called
            return
        tensors = {
            key: value for key, value in loaded.items() if is_tensor(value) or not _is_left_out(key, value, place)
        }
        if tensors and all(isinstance(key, str) and is_tensor(value) for key, value in tensors.items()):
            if not is_numbered or _is_model(tensors):
                yield place, _Found(tensors, is_numbered)
            return
        is_part = is_part or any(map(is_tensor, loaded.values()))
    holds = False
    for word, key, value in _entries(loaded):
        if not isinstance(value, Mapping | list | tuple) or (is_part and not isinstance(key, str)):
            continue
        if isinstance(key, str) and any(other in key.lower() for other in _OTHERS):
            continue
        below = _candidates(
            value,
            f"{place}.{word}" if place else word,
            barren,
            is_numbered=is_numbered or not isinstance(key, str),
            is_part=is_part,
        )
        for one in below:
            holds = True
            yield one
    if not holds:
        barren.add(seen)


def _is_model(tensors: Mapping[str, Any]) -> bool:
    """Check whether tensors below a number are more than a parameter's state in an optimiser, or a round's results."""
    return not any(name in tensors for name in _STATE) and any(getattr(one, "ndim", 0) for one in tensors.values())


def _is_left_out(key: Any, value: Any, place: str) -> bool:
    """Check whether a value that is no tensor is none of the model: a module's extra state; of a whole file a number,
    or a text."""
    if not isinstance(key, str):
        return False
    return is_extra(key) or (not place and isinstance(value, int | float | complex | str | bytes | None))


def is_tensor(value: Any) -> bool:
    """Check whether a value is a tensor of torch, or an array; torch is not imported for that."""
    return isinstance(value, np.ndarray) or (callable(getattr(value, "detach", None)) and hasattr(value, "dtype"))


def _refuse(place: object, loaded: Any) -> None:
    if not isinstance(loaded, Mapping) or not loaded:
        raise FedscopeError(f"{place} holds {type(loaded).__name__}, not a state_dict; save model.state_dict()")
    if unnamed := [repr(name) for name in loaded if not isinstance(name, str)]:
        raise FedscopeError(f"{place} has keys that are no text ({list_few(unnamed, 4)}); save model.state_dict()")
    strange = [str(name) for name, value in loaded.items() if not is_tensor(value)]
    raise FedscopeError(f"{place} holds other things than tensors ({list_few(strange, 4)}); save model.state_dict()")


def as_arrays(place: object, tensors: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Tensors as arrays, and the dtypes they are stored in; what NumPy has not (bfloat16, float8) becomes float32.

    Raises:
        FedscopeError: a tensor without plain values (sparse, quantised, meta, of a packed dtype); one that declares
            more bytes than are stored for it, with both numbers.
    """
    arrays, stored = {}, {}
    for name, value in tensors.items():
        if isinstance(value, np.ndarray):
            arrays[name], stored[name] = value, value.dtype.name
            continue
        dtype = stored[name] = str(value.dtype).removeprefix("torch.")
        refuse_valueless(place, name, value)
        try:
            plain = without_sign_bit(value.detach().cpu())
            arrays[name] = (plain.float() if dtype.startswith(_NOT_IN_NUMPY) else plain).numpy()
        except (TypeError, RuntimeError) as error:
            raise FedscopeError(f"{place}: {name} is {dtype}, which NumPy does not hold; save it as float32") from error
    return arrays, stored


def refuse_valueless(path: object, name: str, value: Tensor) -> None:
    """Refuse a tensor that is no plain numbers, or that declares more of them than are stored.

    Raises:
        FedscopeError: says which.
    """
    import torch

    if value.layout is not torch.strided or value.is_quantized or value.is_meta or value.is_complex():
        kind, remedy = (
            ("quantised", f"{name}.dequantize() in its place")
            if value.is_quantized
            else ("without values", "it with its values, of a module on the CPU")
            if value.is_meta
            else ("complex", "its real and imaginary parts as two tensors")
            if value.is_complex()
            else ("sparse", f"{name}.to_dense() in its place")
        )
        raise FedscopeError(f"{path}: {name} is {kind}, and weights are plain numbers; save {remedy}")
    declared, there = value.numel() * value.element_size(), value.untyped_storage().nbytes()
    if declared > there:  # strides of 0, which a copy would spread out
        raise FedscopeError(f"{path}: {name} declares {declared:,} bytes, but {there:,} are stored; save a copy")


def fit(
    place: object, arrays: Mapping[str, np.ndarray], stored: Mapping[str, str], expected: Expected
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Arrays by the expected model's names and as single precision where they were stored in half of it or less.

    Args:
        stored: dtypes by name, as the file has them.
        expected: model, whose names :func:`~fedscope.checkpoints.models.match_names.match_names` finds; None leaves the
            names as they are.

    Returns:
        The arrays, and a clause for each thing that was changed.

    Raises:
        FedscopeError: whole numbers where the model has parameters (quantised weights); a count that is not finite;
            no numbers at all; two different values of what is one tensor.
    """
    for name, array in arrays.items():
        if array.dtype.kind not in "biuf":
            raise FedscopeError(f"{place}: {name} has type {stored[name]}, which is not a tensor's; save it as float32")
    found = None if expected is None else match_names(place, arrays, stored, expected)
    notes = [] if found is None else list(found.notes)
    names = {name: name for name in arrays} if found is None else found.names
    wanted = {} if expected is None else {entry.name: entry for entry in expected.layout.entries}
    fitting: dict[str, np.ndarray] = {}
    changed: dict[tuple[str, str], set[str]] = {}
    for name, full in names.items():
        array, dtype, entry = arrays[full], stored[full], wanted.get(name)
        if entry is None:
            array = array.astype(np.float32) if dtype.startswith(_HALVES) else array
        else:
            _refuse_other_numbers(f"{place}: {full}", array, dtype, entry)
        target = array.dtype.name if entry is None else entry.dtype
        if array.dtype.kind == "f" and target != dtype and target.startswith("float"):
            changed.setdefault((dtype, target), set()).add(full)
        fitting[name] = array
    notes += [
        f"{len(which)} {'tensor' if len(which) == 1 else 'tensors'} of {dtype} {'is' if len(which) == 1 else 'are'} "
        f"read as {target}"
        for (dtype, target), which in changed.items()
    ]
    return fitting | ({} if found is None else found.supplied), notes


def _refuse_other_numbers(place: str, array: np.ndarray, dtype: str, entry: TensorEntry) -> None:
    floats = entry.dtype.startswith("float")
    if entry.kind == "parameter" and floats and array.dtype.kind != "f":
        raise FedscopeError(
            f"{place} is {dtype}, but the model's is {entry.dtype}; if its weights are quantised, save them as float32"
        )
    if not floats and array.dtype.kind == "f" and not np.isfinite(array).all():
        raise FedscopeError(f"{place} is not finite, but the model's is {entry.dtype}; save it again")


def hint(place: object, arrays: Mapping[str, Any], expected: ExpectedModel) -> str:
    """Return a clause for names that do not fit: what a prefix has to do with it, or nothing."""
    wanted = dict.fromkeys(expected.layout.names)
    if not arrays or not wanted:
        return ""
    if clause := behind_prefix(place, arrays, [*wanted]):
        return clause
    if _SHARD.search(str(place)):
        return "; the file is one of several parts: give their folder, or its .index.json"
    first = next(iter(arrays)).partition(".")[0] + "."
    if all(name.startswith(first) for name in arrays) and not any(name.startswith(first) for name in wanted):
        return f'; all names of the file begin with "{first}", and without it they do not fit either'
    return ""


def behind_prefix(place: object, arrays: Mapping[str, Any], wanted: Sequence[str]) -> str:
    """Return a clause on names that are all there behind a prefix, beside others, and how to name them; or nothing.

    >>> behind_prefix("a.ckpt", {"model.w": 0, "criterion.weight": 0}, ["w"])
    '; all of them are there behind the prefix "model.", beside criterion.weight: name them, a.ckpt:model'
    """
    names = dict.fromkeys(wanted)
    whole = [prefix for prefix in prefixes(arrays, [*names]) if all(f"{prefix}{name}" in arrays for name in names)]
    if whole:
        first = whole[0]
        others = [name for name in arrays if name.removeprefix(first) not in names or name in names]
        named = [f"{place}:{prefix.removesuffix('.')}" for prefix in whole]
        if len(whole) > 1:
            several = " and ".join(f'"{prefix}"' for prefix in whole[:3])
            return f"; all of them are there behind each of {several}: name one, as in {list_few(named, 2)}"
        return (
            f'; all of them are there behind the prefix "{first}", beside {list_few(others, 2)}: name them, {named[0]}'
        )
    return ""


#: takes the tensors of a network alone out of what holds more
OWN_ALONE = "{name: state[name] for name in model.state_dict()}"


def what_to_save(wanted: Collection[str], given: Collection[str]) -> str:
    """Return a clause on what to do about tensors that are missing or too many.

    >>> what_to_save(["w"], ["w", "criterion.weight"])
    '; leave it out, as {name: state[name] for name in model.state_dict()} does'
    """
    more = [name for name in given if name not in wanted]
    lacks = any(name not in given for name in wanted)
    if lacks and more:
        return "; give the architecture that they are of (--model)"
    if lacks:
        return "; give the whole model.state_dict(), or the architecture that these are of (--model)"
    return f"; leave {'it' if len(more) == 1 else 'them'} out, as {OWN_ALONE} does"
