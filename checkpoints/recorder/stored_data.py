"""The data that a recorded run was trained with: a name, or arrays that the run stores.

What is said of them is the ``data`` of ``run.json``: of arrays ``name = "arrays"``, the ``sha256`` of the arrays, and
``file`` where they lie in the run's folder; ``standardise`` where it was said how the loop had them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..io.archives import npz_names, read_npz
from ..io.array_digest import ARRAYS, digest, splits_in
from ..io.atomic import write_durably
from ..io.errors import FedscopeError, format_size
from ..io.warn_user import warn_user
from ..runs.info import refuse_broken_seal
from .coerce_arrays import coerce_arrays
from .coerce_tokens import PADDING
from .inputs import named_data, path_of
from .loaders import has_places, is_out_of_order
from .unmeasurable_data import known_names, say_unmeasurable, say_unmeasurable_name

#: what a run calls arrays that it was given, and where it keeps them
NAME, KEPT = "arrays", "recorded-data.npz"
#: bytes of arrays from which on a run says how large they are
LARGE = 5e8


@dataclass
class RecordedData:
    """The data of a recorder.

    Attributes:
        said: the ``data`` of ``run.json``.
        arrays: that the run keeps, by name; None where it keeps their name, or their sum alone.
        labels: of the samples that a partition divides, where the data hold them.
        sums: of the arrays; of masked ones also that of an earlier fedscope, which left the mask out.
    """

    said: dict[str, Any]
    arrays: Mapping[str, np.ndarray] | None = None
    labels: np.ndarray | None = None
    sums: tuple[str, ...] = ()

    def refuse_changed(self, folder: Path) -> None:
        """Make sure that the arrays that a run keeps are still those that were given.

        Raises:
            FedscopeError: the program has changed them since.
        """
        if self.arrays is not None and digest(self.arrays, splits_in(self.arrays)) != self.said["sha256"]:
            raise FedscopeError(
                f"{folder}: the arrays of data= were changed after the recorder was made; give it a copy of them"
            )

    def write(self, folder: Path) -> None:
        """Keep the arrays in a run's folder.

        Raises:
            FedscopeError: the disk is full.
        """
        if self.arrays is None:
            return
        with write_durably(folder / KEPT) as temporary, temporary.open("wb") as file:
            np.savez(file, **self.arrays)  # type: ignore[arg-type]

    def forget(self) -> None:
        """Drop the arrays, once the run is there, from which they are read."""
        self.arrays = None


def coerce_data(
    run: Path, data: Any, standardise: bool | None, *, keep: bool, rows: bool = False, labels: bool = False
) -> RecordedData:
    """Coerce a recorder's ``data=`` to what a run records.

    Args:
        data: a name; ``(x, y)`` or another form of :func:`~.coerce_arrays.coerce_arrays`; a
            :class:`fedscope.training.Dataset`, as networks take its samples.
        standardise: whether the loop standardised them by their training split; None where that was not said.
        keep: whether arrays are kept, or their sum alone.
        rows: whether a partition names samples by their places; labels: whether their labels are given besides.

    Raises:
        FedscopeError: no data; nothing to standardise them by; samples that are shuffled where rows are counted.
    """
    if standardise is not None and not isinstance(standardise, bool):
        raise FedscopeError(f"standardise={standardise!r} is neither True nor False; leave it out for data as they are")
    how: dict[str, Any] = {} if standardise is None else {"standardise": standardise}
    if data is None:
        return RecordedData(how)
    if isinstance(data, str):
        _refuse_unstandardised(data, standardise)
        said = named_data(data)
        say_unmeasurable_name(run, said["name"], own_code=is_own_code(said["name"]))
        return RecordedData({**said, **how})
    place = f"data was given as {type(data).__name__}, and"
    if rows and (loader := next(filter(is_out_of_order, _parts(data)), None)) is not None:
        remedy = "its dataset: loader.dataset" if has_places(loader) else "arrays (x, y) in the order that it counts"
        raise FedscopeError(
            f"{place} its {type(loader).__name__} draws samples in another order each time, so that partition= would "
            f"name other samples; give {remedy}"
        )
    arrays = _of_data_set(data) if _is_data_set(data) else coerce_arrays(f"{place} gave", data)
    needed = splits_in(arrays)
    if missing := [name for name in needed if name not in arrays]:
        raise FedscopeError(
            f"{place} lacks {', '.join(missing)}; give x_test and y_test, and both or none of x_train and y_train"
        )
    for split in ("train", "test"):
        if f"x_{split}" in arrays and arrays[f"x_{split}"].ndim < 2:
            shape = list(arrays[f"x_{split}"].shape)
            raise FedscopeError(f"{place} has x_{split} of shape {shape}; give a row, or an image, a sample")
        if f"x_{split}" in arrays and len(arrays[f"x_{split}"]) != len(arrays[f"y_{split}"]):
            x, y = len(arrays[f"x_{split}"]), len(arrays[f"y_{split}"])
            raise FedscopeError(f"{place} has {x:,} samples of {split}, but {y:,} labels; give one of each a sample")
    one = rows and not labels and needed != ARRAYS
    if standardise and needed != ARRAYS and not one:
        raise FedscopeError(
            f"{place} has no training samples to standardise by; give ((x_train, y_train), (x_test, y_test)), or the "
            "samples as your network takes them, without standardise=True"
        )
    if one:
        warn_user(
            f"{run}: partition= is taken to divide the samples of data=, on which models will be measured, too; give "
            "data=((x_train, y_train), (x_test, y_test)) if your clients had others"
        )
    size = sum(array.nbytes for array in arrays.values())
    if keep and size >= LARGE:
        warn_user(
            f"{run} keeps the arrays of data= in {KEPT}, {format_size(size)}; keep_data=False keeps their sum alone, "
            "and questions are then given them again"
        )
    say_unmeasurable(f"{run}: in data=", arrays)
    said = {"name": NAME, "sha256": digest(arrays, needed), **how}
    said |= {"file": KEPT} if keep else {}
    said |= {"splits": "one"} if one else {}
    held = arrays["y_train"] if needed == ARRAYS else arrays["y_test"] if one else None
    plain = digest({name: arrays[name] for name in needed}, needed) if PADDING in arrays else said["sha256"]
    return RecordedData(said, arrays if keep else None, held, (said["sha256"], plain))


def read_kept(run: Path, info: Mapping[str, Any]) -> dict[str, np.ndarray] | None:
    """Read the arrays that a run keeps; None where it keeps none.

    Raises:
        FedscopeError: they are gone, damaged or others than were recorded.
    """
    data = info.get("data", {})
    if data.get("name") != NAME or data.get("file") != KEPT:
        return None
    path = run / KEPT
    if not path.exists():
        raise FedscopeError(f"{path} is missing, in which the run keeps its data; restore it, or give --data")
    refuse_broken_seal(run, KEPT, info)
    arrays = read_npz(path, only=(*ARRAYS, "classes", PADDING))
    if (missing := [name for name in splits_in(arrays) if name not in arrays]) or data.get("sha256") != digest(
        arrays, splits_in(arrays)
    ):
        what = f"lacks {', '.join(missing)}" if missing else "holds other arrays than the run was recorded with"
        raise FedscopeError(f"{path} {what}; restore it from a copy, or give --data")
    return arrays


def is_own_code(name: str) -> bool:
    """Check whether a recorded name of data is code of the user's own, ``module:function``, which no question imports.

    >>> is_own_code("mydata:load(2)"), is_own_code("npz:mine"), is_own_code("digits")
    (True, False, False)
    """
    module, colon, rest = name.partition(":")
    named = re.fullmatch(r"[^\W\d]\w*(\(.*\))?", rest, re.DOTALL) is not None
    return bool(colon) and named and module not in known_names()


def _refuse_unstandardised(name: str, standardise: bool | None) -> None:
    """Refuse to standardise a file that has nothing to do it by.

    Raises:
        FedscopeError: an ``npz`` with test samples alone.
    """
    path = path_of(name)
    if standardise and path is not None and path.is_file() and "x_train" not in npz_names(path):
        raise FedscopeError(
            f"data={name!r} has no x_train to standardise by; add x_train and y_train to the file, or keep its samples "
            "as your network takes them, without standardise=True"
        )


def _parts(data: Any) -> Iterator[Any]:
    """List the parts that may be loaders: the data themselves, and what they are made of."""
    yield data
    if isinstance(data, tuple | list):
        yield from data
    elif isinstance(data, Mapping):
        yield from data.values()


def _is_data_set(data: Any) -> bool:
    """Check whether the data are a :class:`fedscope.training.Dataset`, which is not imported for that."""
    return all(hasattr(data, name) for name in (*ARRAYS, "means", "deviations", "classes"))


def _of_data_set(data: Any) -> dict[str, np.ndarray]:
    """Take the arrays of a data set as networks take them, and what a mask has said is padding."""
    names = ARRAYS if len(data.y_train) else ARRAYS[2:]
    arrays = {name: np.asarray(getattr(data, name)) for name in names}
    said = getattr(data, PADDING, None)
    padding = {} if said is None else {PADDING: np.asarray(said, np.int64)}
    return {**arrays, "classes": np.asarray(int(data.classes)), **padding}
