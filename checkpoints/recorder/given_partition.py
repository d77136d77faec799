"""The partition that a loop gives: read, checked, and compared with the clients of its rounds."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..io.errors import FedscopeError, list_few
from ..io.warn_user import warn_user
from ..runs.partition import Partition
from .label_forms import NUMBERED, are_names, is_one_hot, of_column
from .labelled import by_index

#: how many clients a partition lists, and how many counts of classes it holds: 2 GiB of them
MOST_NUMBERS, MOST_COUNTS = 1_000_000, 2**28


@dataclass(frozen=True, eq=False)
class GivenPartition:
    """A partition beside a loop's rounds.

    Attributes:
        partition: with a part for every number up to the largest.
        named: the clients that it was given for; None where a file alone says it, in which parts may be empty.
    """

    partition: Partition
    named: frozenset[int] | None = None

    def is_same(self, other: Partition | None) -> bool:
        """Check whether a run has this partition."""
        mine = self.partition.clients
        return other is not None and len(mine) == len(other.clients) and all(map(np.array_equal, mine, other.clients))

    def refuse_others(self, ids: Sequence[int], place: str) -> None:
        """Make sure that all clients of a round have a part: what is asked of their own data would be of nobody's.

        Raises:
            FedscopeError: a client without.
        """
        if clause := self.others(ids):
            raise FedscopeError(
                f"{place}: {clause}; number both alike, and give partition= of all clients, [] of one without rows"
            )

    def others(self, ids: Sequence[int]) -> str:
        """Say in a clause which clients have no part; empty where all have."""
        has = range(len(self.partition.clients)) if self.named is None else self.named
        other = [k for k in ids if k not in has]
        there = f"partition= (clients {list_few(sorted(has), 6)} have)"
        return f"client {other[0]} has a model, but no rows in {there}" if other else ""

    def fewer(self, count: int) -> str:
        """Say in a clause that so many clients, numbered from 0, leave others out that have rows; empty where they do
        not: a list of clients that were drawn does not say which they are."""
        behind = [k for k, rows in enumerate(self.partition.clients) if k >= count and len(rows)]
        others = f"client{'s' if len(behind) > 1 else ''} {list_few(behind, 6)}"
        clause = (
            f"clients= is a list of {count}, which is numbered from 0, and partition= has rows of others ({others}), "
            "so that the list does not say who took part"
        )
        return clause if behind else ""

    def other_counts(self, ids: Sequence[int], samples: np.ndarray) -> str:
        """Say in a clause which n_k are not what the partition counts; empty where all are.

        Args:
            samples: [C], in the order of ``ids``.
        """
        rows = [len(self.partition.clients[k]) for k in ids]
        differing = [i for i, (own, n) in enumerate(zip(rows, samples, strict=True)) if own != n]
        # fewer of each client, as without those it validates on, are still of one numbering
        if all(n <= own for own, n in zip(rows, samples, strict=True)):
            return ""
        i = differing[0]
        more = f" (so {len(differing)} of {len(ids)} clients)" if len(differing) > 1 else ""
        return (
            f"client {ids[i]} has {samples[i]:g} samples, and {rows[i]} rows in partition={more}; its weight is of the "
            "samples, and what is asked of its own data of the rows, so check that both are of one numbering"
        )


def partition_of(given: Mapping[int, Any] | Sequence[Any], labels: Any) -> GivenPartition:
    """Make a partition, with the clients' counts of each class.

    Raises:
        FedscopeError: no labels; clients that are no numbers; samples that are no rows, that there are not, or that
            look like labels.
    """
    if labels is None:
        raise FedscopeError("partition= needs labels=, the training split's labels, by which classes are counted")
    y = of_column(np.asarray(labels))
    if y.ndim != 1 or y.dtype.kind not in "iu" or not y.size or y.min() < 0:
        remedy = NUMBERED if are_names(y) else "labels.argmax(1) of one-hot rows" if is_one_hot(y) else ""
        raise FedscopeError(
            f"labels= has shape {list(y.shape)} of {y.dtype}; give one whole number from 0 a sample"
            f"{remedy and f' ({remedy})'}"
        )
    by_id = by_index(given, "partition=", "partition={number: rows}")
    if isinstance(by_id, list | tuple | np.ndarray):  # as clients= are numbered
        by_id = dict(enumerate(by_id))
    try:
        rows = {operator.index(k): _rows(k, part) for k, part in by_id.items()}
    except (AttributeError, TypeError, ValueError):
        raise FedscopeError(
            "partition= is not a mapping of client numbers to whole numbers of samples; give {number: rows}, as "
            "{0: [0, 1], 1: [2, 3]}"
        ) from None
    for k, part in rows.items():
        if k < 0 or (part.size and not 0 <= part.min() <= part.max() < len(y)):
            raise FedscopeError(f"partition= gives client {k} samples that are not among the {len(y)} of labels=")
    _look_for_labels(rows, int(y.max()) + 1)
    if not rows:
        raise FedscopeError("partition= names no client; give {number: rows}, or leave it out")
    if max(rows) >= MOST_NUMBERS:
        remedy = _smaller(len(rows) < MOST_NUMBERS, "number the clients from 0 on, in rounds too")
        raise FedscopeError(
            f"partition= has client {max(rows)}, and holds a list of all clients from 0 on, of which it takes "
            f"{MOST_NUMBERS:,}; {remedy}"
        )
    parts = tuple(rows.get(k, np.zeros(0, np.int64)) for k in range(max(rows) + 1))
    classes = int(y.max()) + 1
    if len(parts) * classes > MOST_COUNTS:
        there = len(np.unique(y))
        sparse = there * len(parts) <= MOST_COUNTS
        what = "classes from 0 on" if sparse else "clients from 0 on, in rounds too, and the classes"
        remedy = _smaller(there * len(rows) <= MOST_COUNTS, f"number the {what}")
        raise FedscopeError(
            f"labels= go up to {classes - 1} and partition= to client {max(rows)}, and the classes of each are counted "
            f"from 0 on, which are more than {MOST_COUNTS:,} numbers; {remedy}"
        )
    partition = Partition(parts, None, np.array([np.bincount(y[part], minlength=classes) for part in parts]))
    return GivenPartition(partition, frozenset(rows))


def _look_for_labels(rows: Mapping[int, np.ndarray], classes: int) -> None:
    """Look whether a client has a row twice: where all rows are numbers of classes, they are their samples' labels;
    else clients may be meant that draw rows with replacement.

    Raises:
        FedscopeError: labels.
    """
    for k, part in rows.items():
        found, times = np.unique(part, return_counts=True)
        if not (times > 1).any():
            continue
        twice = f"partition= gives client {k} the sample {found[times > 1][0]} more than once"
        if all((other < classes).all() for other in rows.values()):
            raise FedscopeError(f"{twice}; give the numbers of its samples, each once, and not their labels")
        warn_user(f"{twice}; counts take it as often as it stands there, and what is measured takes it once")
        return


def _smaller(helps: bool, remedy: str) -> str:
    """What makes a partition smaller: other numbers, where these are the reason."""
    return remedy if helps else "leave partition= out, or give that of fewer clients in a run of their own"


def _rows(client: Any, given: Any) -> np.ndarray:
    """Return a client's rows of the training split.

    Raises:
        FedscopeError: one number, a mask, fractions or a part of a data set, which would be taken for rows that they
            are not.
        ValueError: no numbers.
    """
    if hasattr(given, "indices") and hasattr(given, "dataset"):  # torch's Subset, whose items are samples
        row, below, whole = "i", "part.dataset", given.dataset
        while hasattr(whole, "indices") and hasattr(whole, "dataset"):  # a part of a part
            row, below, whole = f"{below}.indices[{row}]", f"{below}.dataset", whole.dataset
        rows_of = "part.indices" if row == "i" else f"[{row} for i in part.indices]"
        of = f"a {type(given).__name__}" if row == "i" else "a part of a part"
        raise FedscopeError(
            f"partition= gives client {client} {of}; give its rows of x_train, as {{{client}: {rows_of}}}"
        )
    part = np.asarray(given)
    if not part.ndim and part.dtype.kind in "iuf":  # of a list of the samples' clients
        raise FedscopeError(
            f"partition= gives client {client} the number {part}, and no list of rows; give {{{client}: rows}}, of the "
            f"samples' clients np.flatnonzero(owner == {client})"
        )
    part = part.reshape(-1)
    if part.dtype.kind == "b":
        raise FedscopeError(
            f"partition= gives client {client} a mask of true and false; give the rows' numbers: np.flatnonzero(mask)"
        )
    with np.errstate(invalid="ignore"):  # nan
        rows: np.ndarray = part.astype(np.int64)
    if part.size and part.dtype.kind == "f" and not (rows == part).all():
        raise FedscopeError(
            f"partition= gives client {client} the sample {part[part != rows][0]:g}; give whole numbers of rows"
        )
    return rows


def labels_of(given: Any, held: np.ndarray | None) -> Any:
    """Return the labels by which a partition counts classes: those of the data, or the ones given beside data that have
    no class a sample, as sequences, maps and numbers have none.

    Args:
        given: ``labels=``; held: the targets of the samples that the partition divides, where the data hold them.

    Raises:
        FedscopeError: others than those of the data, or of another number of samples; none for data without classes.
    """
    if held is None:
        return given
    held = of_column(held) if given is None else held
    classes = held.ndim == 1 and held.dtype.kind in "iu"
    if given is None and classes and (not len(held) or held.min() >= 0):
        return held
    if given is None and held.ndim == 1 and held.dtype.kind == "f" and len(held) and _are_whole(held):
        raise FedscopeError(
            f"y_train of data= has whole numbers as {held.dtype}, and partition= counts the classes of each client; "
            "give them as y_train.astype(np.int64), or, where they are no classes, with "
            f"labels=np.zeros({len(held)}, int)"
        )
    if given is None:
        if is_one_hot(held):
            raise FedscopeError(
                f"y_train of data= has one-hot rows, {list(held.shape)}, and partition= counts the classes of each "
                "client; give labels=y_train.argmax(1)"
            )
        what = "has labels below 0" if classes else f"has shape {list(held.shape)} of {held.dtype}"
        raise FedscopeError(
            f"y_train of data= {what}, which is no class a sample, and partition= counts the classes of each client; "
            "give data=((x_train, y_train), (x_test, y_test)) with labels=, one whole number from 0 a sample, as "
            f"np.zeros({len(held)}, int) where there are no classes"
        )
    own = of_column(np.asarray(given)) if classes else np.asarray(given)
    if own.ndim and len(own) != len(held):
        raise FedscopeError(
            f"labels= has {len(own):,} entries, and data= {len(held):,} training samples, which partition= divides; "
            "give one a sample, in their order"
        )
    # a label below 0 is one that a criterion ignores, whose class only labels= can say
    if classes and (own.shape != held.shape or not np.array_equal(own[held >= 0], held[held >= 0])):
        raise FedscopeError(
            "labels= are not y_train of data=, in the same order, so that partition= would name other samples; leave "
            "labels= out, or give the training samples that partition= counts"
        )
    return given


def _are_whole(numbers: np.ndarray) -> bool:
    return bool(np.isfinite(numbers).all() and (numbers >= 0).all() and (numbers == np.floor(numbers)).all())
