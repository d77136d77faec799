"""``flwr:NAME,key=value,...``: any partitioner of the package flwr-datasets (``pip install 'fedscope[flwr]'``)."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, replace
from importlib import import_module
from inspect import Parameter, signature
from io import StringIO
from typing import Any, ClassVar, Self

import numpy as np

from ....checkpoints import FedscopeError, nearest
from ....checkpoints.io.warn_user import warn_user
from ...settings.settings import setting
from ...settings.values import format_value, parse_value
from ..partitioner import Partitioner
from ..split import group_of

#: what the adapter fills in by itself, where the partitioner takes it
_CLIENTS, _BY, _SEED = "num_partitions", "partition_by", "seed"
_SUFFIX = "Partitioner"
#: partitioners that go by a sample's user unless they are told otherwise; the others go by its label
_NATURAL = ("NaturalIdPartitioner", "GroupedNaturalIdPartitioner")


@dataclass(frozen=True)
class Flwr(Partitioner):
    """A partitioner of flwr-datasets: the name of its class, then its own parameters.

    It is given a table with the columns ``index``, ``label`` and what else is known of the samples (``user``,
    ``domain``, ``superclass``), its rows in random order, as flwr-datasets' own FederatedDataset shuffles them, and
    asked for one part a client. ``num_partitions`` is the number of clients,
    ``partition_by`` the label (of the partitioners by natural id: the user) unless it is given, ``seed`` is drawn from
    ``data.seed`` unless it is given. Its other parameters are written into the run, those that were not given, too;
    reading or resuming a run needs no flwr-datasets.

    Samples that it gives to nobody stay nobody's. A partitioner that splits columns, or gives a sample to two clients,
    is refused.
    """

    partitioner: str = setting("IidPartitioner", "a class of flwr_datasets.partitioner")
    given: tuple[str, ...] = setting((), "its parameters, each as key=value")

    takes: ClassVar[str] = "[,key=value,...]"

    @classmethod
    def parse(cls, name: str, rest: str) -> Self:
        """``PathologicalPartitioner,num_classes_per_partition=2``; lists in brackets."""
        kind, *given = _words(rest) if rest else [cls.partitioner]
        keys = [word.partition("=")[0].strip() for word in given]
        for word, key in zip(given, keys, strict=True):
            if not key.isidentifier() or not word.partition("=")[2].strip():
                raise FedscopeError(
                    f"data.partition = '{name}:{rest}': {word!r} is not a parameter; write key=value, as in "
                    f"{name}:PathologicalPartitioner,num_classes_per_partition=2"
                )
            if keys.count(key) > 1:
                raise FedscopeError(f"data.partition = '{name}:{rest}' gives {key} twice; leave one out")
        return cls(
            kind, tuple(f"{key}={word.partition('=')[2].strip()}" for word, key in zip(given, keys, strict=True))
        )

    def written(self) -> str:
        """``flwr:PathologicalPartitioner,num_classes_per_partition=2``."""
        return ",".join([f"flwr:{self.partitioner}", *self.given])

    def parameters(self) -> dict[str, Any]:
        """Read the parameters that were given, by name.

        >>> Flwr.parse("flwr", "SizePartitioner,partition_sizes=[10, 20],shuffle=true").parameters()
        {'partition_sizes': [10, 20], 'shuffle': True}
        """
        return {key: parse_value(word) for key, _, word in (text.partition("=") for text in self.given)}

    def is_settled_as(self, other: Partitioner) -> bool:
        """Check whether another one has the parameters that were given, and perhaps more.

        >>> given = Flwr.parse("flwr", "DirichletPartitioner,alpha=0.50")
        >>> given.is_settled_as(Flwr.parse("flwr", "DirichletPartitioner,alpha=0.5,self_balancing=true"))
        True
        >>> given.is_settled_as(Flwr.parse("flwr", "DirichletPartitioner,alpha=0.1,self_balancing=true"))
        False
        """
        if not isinstance(other, Flwr) or self.partitioner != other.partitioner:
            return False
        theirs = other.parameters()
        return all(key in theirs and theirs[key] == value for key, value in self.parameters().items())

    def resolved(self) -> Self:
        """With the defaults of the parameters that were not given.

        Raises:
            FedscopeError: flwr-datasets is not installed; a name or a parameter that it does not have, or that the
                adapter fills in; one that it needs and that is missing, or that is a function.
        """
        takes, given = signature(self._class()).parameters, self.parameters()
        for key in given:
            if key not in takes:
                raise FedscopeError(
                    f"data.partition = {self.written()!r}: {key} is not a parameter of {self.partitioner}"
                    f"{nearest(key, takes)}; it takes {', '.join(key for key in takes if key != _CLIENTS) or 'none'}"
                )
        if _CLIENTS in given:
            raise FedscopeError(
                f"data.partition = {self.written()!r}: {_CLIENTS} is the number of clients; leave it out, and give "
                f"--clients {given[_CLIENTS]}"
            )
        by = {_BY: "user" if self.partitioner in _NATURAL else "label"}
        values = {key: given.get(key, by.get(key, parameter.default)) for key, parameter in takes.items()}
        for key, value in values.items():
            if "Callable" in str(takes[key].annotation):
                raise FedscopeError(
                    f"data.partition = {self.written()!r}: {key} of {self.partitioner} is a function, which no "
                    "configuration can hold; take another partitioner"
                )
            if value is Parameter.empty and key != _CLIENTS:
                raise FedscopeError(
                    f"data.partition = {self.written()!r}: {self.partitioner} needs {key}; write "
                    f"flwr:{self.partitioner},{key}=..."
                )
        own = [key for key in takes if key in given or key not in (_CLIENTS, _SEED)]
        return replace(
            self, given=tuple(f"{key}={format_value(values[key])}" for key in own if values[key] is not None)
        )

    def split(
        self, labels: np.ndarray, clients: int, random: np.random.Generator, groups: Mapping[str, np.ndarray]
    ) -> list[np.ndarray]:
        """See :class:`fedscope.training.data.partitioner.Partitioner`.

        Raises:
            FedscopeError: what :meth:`resolved` and flwr-datasets refuse; another number of parts than clients; a
                sample in two of them; no samples, but columns.
        """
        values, takes = self.resolved().parameters(), signature(self._class()).parameters
        order = random.permutation(len(labels))
        if _CLIENTS in takes:
            values[_CLIENTS] = clients
        if _SEED in takes and _SEED not in values:
            values[_SEED] = int(random.integers(2**31))
        if (by := values.get(_BY)) not in (None, "index", "label"):
            group_of(groups, str(by), self.written())
        columns = {"index": order, **{name: of[order] for name, of in {"label": labels, **groups}.items()}}
        with self._asking():
            made = self._class()(**{key: _fitting(value, takes[key]) for key, value in values.items()})
            made.dataset = import_module("datasets").Dataset.from_dict(columns)
            if (parts := int(made.num_partitions)) == clients:
                tables = [made.load_partition(k) for k in range(clients)]
        if parts != clients:
            raise FedscopeError(
                f"data.partition = {self.written()!r} makes {parts} parts for {clients} clients; give --clients {parts}"
            )
        if any("index" not in table.column_names for table in tables):
            raise FedscopeError(
                f"data.partition = {self.written()!r} splits columns, not samples; take another partitioner"
            )
        shares = [np.asarray(table["index"][:], dtype=np.int64) for table in tables]
        times = np.bincount(np.concatenate(shares), minlength=len(labels))
        if times.max() > 1:
            raise FedscopeError(
                f"data.partition = {self.written()!r} gives sample {times.argmax()} to {times.max()} clients; a sample "
                "is one client's, take another partitioner"
            )
        return shares

    def _class(self) -> Any:
        try:
            package = import_module("flwr_datasets.partitioner")
        except ImportError as error:
            raise FedscopeError(
                f"data.partition = {self.written()!r} needs flwr-datasets, which cannot be imported ({error}); "
                "pip install 'fedscope[flwr]', or take another partition"
            ) from None
        kinds = [name for name, kind in vars(package).items() if isinstance(kind, type)]
        known = [name for name in kinds if name.endswith(_SUFFIX) and name != _SUFFIX]
        if self.partitioner not in known:
            raise FedscopeError(
                f"data.partition = {self.written()!r}: flwr-datasets has no {self.partitioner}"
                f"{nearest(self.partitioner.removesuffix(_SUFFIX) + _SUFFIX, known)}; it has {', '.join(sorted(known))}"
            )
        return getattr(package, self.partitioner)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """The foreign code's progress bars are swallowed, its warnings and errors are sentences of ours."""
        try:
            with warnings.catch_warnings(record=True) as said, redirect_stderr(StringIO()):
                warnings.simplefilter("always")
                yield
        except Exception as error:  # whatever a foreign package raises
            reason = " ".join(str(error).split()) or type(error).__name__
            raise FedscopeError(
                f"data.partition = {self.written()!r}: flwr-datasets refuses it ({reason}); change its parameters, or "
                "the number of clients"
            ) from error
        # those for its user, not those for its programmers
        own = [" ".join(str(each.message).split()) for each in said if each.category is UserWarning]
        for text in dict.fromkeys(own):
            warn_user(f"data.partition = {self.written()!r}: {text}")


def _words(text: str) -> list[str]:
    """The words between commas that are not inside brackets.

    >>> _words("A, b=[[1, 2], [3]], c=4")
    ['A', 'b=[[1, 2], [3]]', 'c=4']
    """
    words, depth = [""], 0
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth <= 0:
            words.append("")
        else:
            words[-1] += letter
    return [word.strip() for word in words]


def _fitting(value: Any, parameter: Parameter) -> Any:
    """A list as an array where nothing else is taken."""
    takes = str(parameter.annotation)
    only_arrays = ("NDArray" in takes or "ndarray" in takes) and "list" not in takes and "Sequence" not in takes
    return np.asarray(value) if isinstance(value, list) and only_arrays else value


PROVIDES = Flwr
