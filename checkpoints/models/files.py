"""Single models in other programs' files: torch's ``.pt``, ``.pth``, ``.ckpt`` and ``.bin``, ``.safetensors``, and
Flower's ``.npz``."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..io.archives import read_npz, read_torch
from ..io.atomic import write_durably
from ..io.errors import FedscopeError, list_few, nearest
from ..io.untrusted import expand_home, explain_read_errors, lost_link, regular
from ..io.warn_user import warn_user
from .distributed import METADATA, DistributedFolder
from .expected import ExpectedModel, is_statistic
from .factor_names import alphas_in, other_ranks
from .folders import INDEX, PART, has_ending, model_in, model_names, parts_of
from .match_names import match_names
from .peft_names import names_to_write
from .safetensors_files import open_safetensors
from .state_dicts import as_arrays, find_state_dict, fit, fits_names, hint, what_to_save
from .weights import BFLOAT16, Layout, TensorEntry, Weights, in_type

SUFFIXES = (".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".npz")
WRITTEN = (".pt", ".pth", ".safetensors")


def read_file(path: Path | str, layout: Layout | ExpectedModel | None = None) -> Weights:
    """Read one model from a file, as :func:`read_model`; what was changed on the way is a warning."""
    weights, note = read_model(path, layout)
    if note:
        warn_user(f"{path}: {note}")
    return weights


def read_model(path: Path | str, layout: Layout | ExpectedModel | None = None) -> tuple[Weights, str]:
    """Read one model from a file or a folder, and in words what was changed on the way; no code in it is ever run.

    The file's content says what it is, and its ending only where that says nothing. A checkpoint that holds more than
    tensors (``{"state_dict": ..., "epoch": ...}``, as Lightning's ``.ckpt``) is searched for the one ``state_dict`` in
    it; ``FILE:KEY`` names another. Names, tied tensors, constants and counters are those of
    :func:`~fedscope.checkpoints.models.match_names.match_names`. Values are cast to the layout's dtypes; float16 and
    bfloat16 become float32 without one.

    Args:
        path: of a file; of the folder of one model, or of the ``.index.json`` of its parts; and ``FILE:KEY``.
        layout: of the expected model, or what its architecture says besides. Needed for an ``.npz`` without names,
            whose arrays (``arr_0``, ...) stand in ``state_dict`` order as Flower saves them. Without one, the tensors'
            own names, shapes and dtypes make it: running statistics and whole numbers are buffers.

    Returns:
        The weights, and a sentence about names, dtypes and where the ``state_dict`` lay; "" where nothing was changed.

    Raises:
        FedscopeError: missing, no regular file, foreign, damaged; sizes that are not stored; a pickle of code; no
            tensors or several models in it; parts that are missing; not the expected model.
    """
    expected = ExpectedModel.as_given(layout)
    arrays, stored, notes = _read_stored(path, expected)
    weights = flatten_arrays(path, arrays, expected)
    if expected is None:
        weights = replace(weights, layout=weights.layout.stored_as(stored))
    return weights, ", ".join(notes)


def flatten_arrays(place: object, arrays: Mapping[str, np.ndarray], expected: ExpectedModel | None) -> Weights:
    """Make named arrays one model of the expected layout, or of their own.

    Args:
        place: for sentences: the file, or what a model in memory is called.

    Raises:
        FedscopeError: not the expected model; says what is missing, unexpected or of another shape.
    """
    alphas = alphas_in({name: array.shape for name, array in arrays.items()})
    entries = (_entry(name, array, name in alphas) for name, array in arrays.items())
    known = expected.layout if expected is not None else Layout(tuple(entries))
    try:
        with np.errstate(over="ignore"):  # a diverged model in double precision
            return known.flatten(arrays)
    except FedscopeError as error:
        other = expected is not None and set(arrays) != set(known.names)
        if other and expected is not None:
            clause = hint(place, arrays, expected) or what_to_save(known.names, arrays)
        else:
            clause = other_ranks(arrays, known)
        raise FedscopeError(f"{place}: {error}{clause}") from None


def read_arrays(path: Path | str, expected: ExpectedModel | None) -> tuple[dict[str, np.ndarray], list[str]]:
    """Read a model's file by name, before it is held against a layout, and a clause for each thing changed.

    Args:
        expected: as for :func:`read_model`, whose names, where the file has all of them behind a prefix, are taken.

    Raises:
        FedscopeError: as :func:`read_model`, but for names and shapes.
    """
    arrays, _, notes = _read_stored(path, expected)
    return arrays, notes


def _read_stored(
    path: Path | str, expected: ExpectedModel | None
) -> tuple[dict[str, np.ndarray], dict[str, str], list[str]]:
    """Read the same, and between them the types that the file has its tensors in."""
    _, tensors, notes = read_tensors(path, expected)
    arrays, stored = as_arrays(path, tensors)
    arrays, changes = fit(path, arrays, stored, expected)
    return arrays, stored, [*notes, *changes]


def read_tensors(path: Path | str, expected: ExpectedModel | None) -> tuple[str, Mapping[str, Any], list[str]]:
    """Read a model's file or folder by name, as it is stored.

    Args:
        expected: as for :func:`read_model`, where a file holds arrays without names, or several models.

    Returns:
        ``torch``, ``safetensors`` or ``npz``; arrays of an ``.npz``, of the others torch's tensors; a clause that says
        where the ``state_dict`` lay, if that had to be chosen.

    Raises:
        FedscopeError: as :func:`read_model`, but for names, shapes and dtypes.
    """
    file, key = file_and_key(str(path))
    place = model_path(Path(file))
    if place.name == METADATA:
        folder = DistributedFolder(place.parent)
        chosen, note = find_state_dict(Path(file), folder.nested, expected, key)
        return "torch", folder.read(chosen), [note] if note else []
    parts = parts_of(place, SUFFIXES)
    kind, loaded = _read(place, expected) if parts is None else _read_parts(place, parts)
    tensors, note = find_state_dict(Path(file), loaded, expected, key)
    if not key and (made := _converted(Path(file), place, tensors, expected)) is not None:
        return "torch", *made
    part = PART.fullmatch(place.name) if parts is None else None
    alone = f"it is one of a model's {int(part[3])} parts" if part and int(part[3]) > 1 else ""
    return kind, tensors, [*filter(None, (alone, note))]


def _converted(
    file: Path, place: Path, tensors: Mapping[str, Any], expected: ExpectedModel | None
) -> tuple[Mapping[str, Any], list[str]] | None:
    """Return the tensors of a folder as the library reads them that wrote it, and a clause that says so, where only
    these have the expected names; None else.

    Args:
        file: as it was given; place: the file or index of the model.
    """
    folder = file if file.is_dir() else file.parent
    if expected is None or expected.converted is None or not (folder / "config.json").is_file():
        return None
    try:
        if _has_names(place, tensors, expected):
            return None
        if file != folder and model_in(folder, SUFFIXES) != place:  # another file of it
            return None
        made = expected.converted(folder)
        if made is None or not _has_names(folder, made, expected):
            return None
    except FedscopeError:  # nobody reads it otherwise, and by name it is said what does not fit
        return None
    other = next((name for name in made if name not in tensors), next(iter(made)))
    return made, [f"it is read as transformers reads it, which calls its tensors otherwise than the file ({other})"]


def _has_names(place: Path, tensors: Mapping[str, Any], expected: ExpectedModel) -> bool:
    """Check whether tensors have the expected names, by all the rules that they are read by.

    Raises:
        FedscopeError: tensors that are not read by any name.
    """
    if fits_names(tensors, expected):
        return True
    arrays, stored = as_arrays(place, tensors)
    return match_names(place, arrays, stored, expected).whole


def file_and_key(address: str) -> tuple[str, str]:
    """``ckpt.pt:teacher`` as the file and the key in it; a file that has such a name is the file.

    >>> file_and_key("ckpt.pt:models.teacher"), file_and_key("C:/ckpt.pt"), file_and_key("a.safetensors")
    (('ckpt.pt', 'models.teacher'), ('C:/ckpt.pt', ''), ('a.safetensors', ''))
    """
    if ":" not in address or Path(address).exists():
        return address, ""
    ends = [i for i, sign in enumerate(address) if sign == ":" and 0 < i < len(address) - 1]
    there = [i for i in ends if Path(address[:i]).exists() and not address[i + 1 :].startswith(("/", "\\"))]
    named = [i for i in ends if is_file_name(address[:i])]
    for i in [*there[::-1], *named]:
        return address[:i], address[i + 1 :]
    return address, ""


def is_file_name(text: str) -> bool:
    """Check whether a path ends as those of models do, or of the index of a model's parts."""
    return has_ending(text, SUFFIXES) or text.endswith(INDEX)


def is_model_folder(path: Path | str) -> bool:
    """Check whether a path is the folder of one model, and not a run's."""
    folder = Path(path)
    return folder.is_dir() and not (folder / "run.json").exists() and model_in(folder, SUFFIXES) is not None


def model_path(path: Path) -> Path:
    """Return a model's file itself; of a folder the file, the index or the folder of parts that its model is.

    Raises:
        FedscopeError: it does not exist; no regular file; a folder without one model, with what it has.
    """
    if path.is_dir():
        found = model_in(path, SUFFIXES)
        if found is None:
            names = model_names(path, SUFFIXES)
            if not names:
                regular(path, "a model's file")  # says that it is a folder
            raise FedscopeError(f"{path} is a folder of {len(names)} models ({list_few(names, 4)}); give one of them")
        return found
    regular(path, "a model's file")
    if not path.is_file():
        if lost := lost_link(path):
            raise FedscopeError(f"{path} {lost}; give a model's file")
        there = sorted(beside for beside in path.parent.glob("*") if beside.suffix in SUFFIXES)
        names_of = {beside.stem: str(beside) for beside in there}
        near = nearest(path.stem, names_of, names_of)
        if not near and there:
            near = f"; {path.parent} has {list_few(beside.name for beside in there)}; give one of them"
        raise FedscopeError(
            f"{path} does not exist" + (near or "; give a model's file, or a model of a run, as in runs/ima@last")
        )
    return path


def files_of_model(path: Path) -> list[Path]:
    """Return the files that a model lies in: one, or its parts, by name.

    Raises:
        FedscopeError: as :func:`model_path`; parts that are not there.
    """
    place = model_path(path)
    parts = parts_of(place, SUFFIXES)
    return [place] if parts is None else sorted(parts)


def _read(path: Path, expected: ExpectedModel | None) -> tuple[str, Any]:
    """Read one file, and name its kind."""
    regular(path, "a model's file")
    kind = _kind(path)
    if kind == "npz":
        return kind, _name_in_order(path, read_npz(path), None if expected is None else expected.layout)
    return kind, read_torch(path) if kind == "torch" else _read_safetensors(path)


def _read_parts(place: Path, parts: Mapping[Path, list[str] | None]) -> tuple[str, Any]:
    """Read the parts of a model.

    Raises:
        FedscopeError: what the index names and a part lacks; a tensor in two parts.
    """
    kinds: set[str] = set()
    tensors: dict[str, Any] = {}
    for path, names in parts.items():
        kind, loaded = _read(path, None)
        held, _ = find_state_dict(path, loaded, None)
        kinds.add(kind)
        lacks = [name for name in names or () if name not in held]
        if lacks:
            raise FedscopeError(f"{path} lacks {list_few(lacks, 4)}, which {place.name} says it holds; copy it again")
        taken = held if names is None else {name: held[name] for name in names}
        twice = [name for name in taken if name in tensors]
        if twice:
            raise FedscopeError(
                f"{path} holds {list_few(twice, 4)}, which another part of {place} holds too; save it again"
            )
        tensors |= taken
    return kinds.pop() if len(kinds) == 1 else "torch", tensors


def write_model(path: Path | str, weights: Weights) -> None:
    """Write one model [P] as ``.safetensors``, ``.pt`` or ``.pth``, durably.

    Each tensor is written in the type that it was recorded or read in, where that has all of its values: a mean of
    models in bfloat16 has others, and a warning says that it is written in the type that it was computed in.

    The file is made in memory first, so that a disk that cannot take it answers with the system's own reason.

    Raises:
        FedscopeError: another kind of file; several models; nothing could be written, with the reason.
    """
    _write(path, weights, _in_own_types)


def write_computed(path: Path | str, weights: Weights) -> None:
    """Write the same in the types that it was computed in, as a result's models are. Raises as :func:`write_model`."""
    _write(path, weights, lambda _, computed: (computed.arrays(), ()))


def _write(
    path: Path | str,
    weights: Weights,
    arrays_of: Callable[[Path, Weights], tuple[Mapping[str, np.ndarray], Collection[str]]],
) -> None:
    from safetensors import SafetensorError

    path = expand_home(path)
    if path.suffix.lower() not in WRITTEN:
        raise FedscopeError(f"{path}: a model is written as .safetensors, .pt or .pth; give one of these endings")
    if weights.parameters.ndim != 1:
        raise FedscopeError(f"{path} holds one model, but {len(weights)} were given; write them one by one")
    found, bits = arrays_of(path, weights)
    names = names_to_write(tuple(found))
    arrays = {names[name]: np.ascontiguousarray(array).reshape(array.shape) for name, array in found.items()}
    bits = {names[name] for name in bits}
    try:
        content = _bytes_of(arrays, bits, is_safe=path.suffix.lower() == ".safetensors")
        with write_durably(path) as temporary:
            temporary.write_bytes(content)
    except OSError as error:
        raise FedscopeError(f"{path} cannot be written ({error.strerror or error}); give another place") from error
    except (SafetensorError, RuntimeError, TypeError, KeyError) as error:  # a dtype that the format does not have
        raise FedscopeError(f"{path} cannot be written ({error}); give another ending") from error


def _in_own_types(path: Path, weights: Weights) -> tuple[dict[str, np.ndarray], set[str]]:
    """Return a model's tensors in the types of its layout, and of which of them there are the bits of bfloat16.

    Those of one type stay together: where one of them has values that it does not have, all are as they are.
    """
    types = {entry.name: entry.stored or entry.dtype for entry in weights.layout.entries}
    arrays = weights.arrays()
    own = {name: in_type(array, types[name]) for name, array in arrays.items()}
    without = [name for name, array in own.items() if array is None]
    for dtype in dict.fromkeys(types[name] for name in without):
        lost = [name for name in without if types[name] == dtype]
        warn_user(
            f"{path}: {dtype} does not have all values of {list_few(lost, 3)}, so what was of that type is written in "
            f"{arrays[lost[0]].dtype.name}"
        )
    wider = {types[name] for name in without}
    made = {name: arrays[name] if array is None or types[name] in wider else array for name, array in own.items()}
    return made, {name for name, dtype in types.items() if dtype == BFLOAT16 and dtype not in wider}


def _bytes_of(arrays: Mapping[str, np.ndarray], bits: Collection[str], *, is_safe: bool) -> bytes:
    """Return a file's content.

    Args:
        bits: the names of what is bfloat16, which numpy does not have.
    """
    if is_safe and not bits:
        from safetensors.numpy import save

        return save(dict(arrays))
    import io

    import torch

    tensors = {
        name: torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)  # made just now, so nobody else's
        if name in bits
        else torch.from_numpy(array.copy())
        for name, array in arrays.items()
    }
    if is_safe:
        from safetensors.torch import save as save_tensors

        return save_tensors(tensors)
    buffer = io.BytesIO()
    torch.save(tensors, buffer)
    return buffer.getvalue()


def _kind(path: Path) -> str:
    """``torch``, ``safetensors`` or ``npz``: what the first bytes say, then the ending.

    safetensors first: a file of it begins with the length of its header, whose first byte may be any, that of a pickle
    too; but no pickle and no zip file begins with a length that lies within the file and then a brace.

    Raises:
        FedscopeError: neither says it.
    """
    with explain_read_errors(path, "a model's file"), path.open("rb") as file:
        head = file.read(9)
        size = path.stat().st_size
        if not head:
            raise FedscopeError(f"{path} is empty (0 bytes); copy or save it again")
        length = int.from_bytes(head[:8], "little")
        if head[8:] == b"{" and length <= size - 8:
            return "safetensors"
        if head[:4] == b"PK\x03\x04" and zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                arrays = [name.endswith(".npy") for name in archive.namelist()]
            return "npz" if arrays and all(arrays) else "torch"
    ending = path.suffix.lower()
    # a header that is cut off: no other file has a length of less than 2^48 and a brace there
    if head[8:] == b"{" and (length < 2**48 or ending == ".safetensors"):
        return "safetensors"
    if head[:1] == b"\x80" and head[1:2] <= b"\x05" and len(head) > 1:
        return "torch"
    match ending:
        case ".pt" | ".pth" | ".ckpt" | ".bin":
            return "torch"
        case ".safetensors" | ".npz":
            return ending[1:]
    raise FedscopeError(f"{path} is not a file that a model can be read from: {', '.join(SUFFIXES)}")


def _read_safetensors(path: Path) -> Any:
    from safetensors import SafetensorError

    with explain_read_errors(path, "a safetensors file"):
        try:
            with open_safetensors(path) as file:
                return {name: file.tensor(name) for name in file.names()}
        except SafetensorError as error:
            raise FedscopeError(
                f"{path} is truncated or not a safetensors file ({error}); copy or save it again"
            ) from error


def safetensors_shapes(path: Path | str) -> dict[str, tuple[int, ...]] | None:
    """Return the shapes of the tensors of a model in ``.safetensors``, in one file or in parts, without reading their
    numbers; None of any other file.

    Raises:
        FedscopeError: as :func:`read_model`, as far as it is seen.
    """
    from safetensors import SafetensorError

    file, key = file_and_key(str(path))
    place = model_path(Path(file))
    files = [place] if (parts := None if place.name == METADATA else parts_of(place, SUFFIXES)) is None else list(parts)
    if key or place.name == METADATA or any(_kind(regular(one, "a model's file")) != "safetensors" for one in files):
        return None
    shapes: dict[str, tuple[int, ...]] = {}
    for one in files:
        try:
            with open_safetensors(one) as opened:
                shapes |= {name: opened.shape(name) for name in opened.names()}
        except (SafetensorError, OSError):  # said when it is read
            return None
    return shapes


def _name_in_order(path: Path, arrays: dict[str, np.ndarray], layout: Layout | None) -> dict[str, np.ndarray]:
    """Flower's arrays by the layout's names."""
    if not arrays:
        raise FedscopeError(f"{path} holds no arrays")
    if not all(re.fullmatch(r"arr_[0-9]+", name) for name in arrays):
        return arrays
    if layout is None:
        raise FedscopeError(f"{path} holds arrays without names, so the architecture is needed; give --model")
    if len(arrays) != len(layout.entries):
        raise FedscopeError(f"{path} holds {len(arrays)} arrays, but the expected model has {len(layout.entries)}")
    ordered = sorted(arrays, key=lambda name: int(name[4:]))
    return {entry.name: arrays[name] for entry, name in zip(layout.entries, ordered, strict=True)}


def _entry(name: str, array: np.ndarray, scales: bool) -> TensorEntry:
    buffer = scales or is_statistic(name) or not np.issubdtype(array.dtype, np.floating)
    return TensorEntry(name, array.shape, array.dtype.name, "buffer" if buffer else "parameter")
