"""Splits of a data set over clients: the interface of the files in ``partitions/``, the split itself, and
``data.pool``, which splits training and test samples together."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from ...checkpoints import FedscopeError, FedscopeWarning, Partition
from ..rng import generator
from ..settings.registry import find, method_name, names
from ..settings.settings import Settings
from ..user_code.code import OwnCode
from ..user_code.entry_points import installed

if TYPE_CHECKING:
    from .dataset import Dataset

#: nothing but the labels is known
NO_GROUPS: Mapping[str, np.ndarray] = MappingProxyType({})


@dataclass(frozen=True)
class Partitioner(Settings):
    """A way to split; its fields are what stands behind the colon in ``name:value``.

    Attributes:
        needs_classes: whether it looks at the samples' classes.
        takes: what may follow behind the colon, where the fields do not say it.
    """

    section: ClassVar[str] = "data.partition"
    needs_classes: ClassVar[bool] = True
    takes: ClassVar[str] = ""

    @property
    def counted_by_client(self) -> bool:
        """True if a client's samples do not depend on how many clients there are, so that fewer have fewer in all."""
        return False

    @property
    def places_every_class(self) -> bool:
        """True if clients hold so many classes each, and every class has a client: fewer may have no room for all."""
        return False

    def resolved(self) -> Self:
        """With values that only another package knows; as it is where there are none.

        Raises:
            FedscopeError: the other package is not installed, or refuses a value.
        """
        return self

    @classmethod
    def form(cls) -> str:
        """Write it with its defaults, and what may follow in brackets.

        >>> find("partitions", "shards").form(), find("partitions", "iid").form()
        ('shards:2[,size]', 'iid')
        """
        return cls().written() + (cls.takes or "".join(f"[,{key.name}]" for key in fields(cls) if key.default is None))

    def written(self) -> str:
        """As it is written in a configuration, with the values that were left out: ``dirichlet:0.1``.

        >>> parse_partition("dirichlet").written(), parse_partition("shards:03").written()
        ('dirichlet:0.1', 'shards:3')
        """
        name = method_name(self)
        values = [getattr(self, key.name) for key in fields(self)]
        words = [repr(value).removesuffix(".0") for value in values if value is not None]
        return f"{name}:{','.join(words)}" if words else name

    @classmethod
    def parse(cls, name: str, rest: str) -> Self:
        """From what stands behind the colon: numbers, in the order of the fields.

        Raises:
            FedscopeError: too many values, or a value that is not a number.
        """
        text, given = f"{name}:{rest}", rest.split(",") if rest else []
        known = [key.name for key in fields(cls)]
        if len(given) > len(known):
            raise FedscopeError(f"data.partition = {text!r} gives {len(given)} values, but {name} takes {len(known)}")
        values: dict[str, float | int] = {}
        for key, word in zip(known, given, strict=False):
            try:
                values[key] = int(word) if word.strip().lstrip("+-").isdigit() else float(word)
            except ValueError:
                raise FedscopeError(f"data.partition = {text!r}: {word!r} is not a number ({name}:{key})") from None
        return cls(**values)

    def split(
        self, labels: np.ndarray, clients: int, random: np.random.Generator, groups: Mapping[str, np.ndarray]
    ) -> list[np.ndarray]:
        """Indices of each client's samples; disjoint, together all samples unless the partition says otherwise.

        Args:
            labels: of the training split, [n] int64.
            clients: N.
            random: the partition's own generator.
            groups: what else is known of the samples, by name: ``user``, ``domain``, ``superclass``, each [n] int64.
        """
        raise NotImplementedError


def parse_partition(text: str) -> Partitioner:
    """``iid``, ``shards:2``, ``dirichlet:0.1`` as a partitioner; of code of the user's own one that may be without it.

    Raises:
        FedscopeError: an unknown name, too many values, or a value that is not a number.

    >>> parse_partition("shards:3")
    Shards(shards=3, size=None)
    """
    from ..import_string import is_call
    from .own_partition import OwnPartition, UngivenPartition

    if isinstance(text, OwnCode):
        return OwnPartition(text)
    name, _, rest = text.partition(":")
    if is_call(text) and name not in names("partitions") and name not in installed("partitions"):
        return UngivenPartition(text)
    made: Partitioner = find("partitions", name).parse(name, rest)
    return made


def group_of(groups: Mapping[str, np.ndarray], kind: str, text: str) -> np.ndarray:
    """Read the ``user``, ``domain`` or ``superclass`` of each sample, [n].

    Raises:
        FedscopeError: the data do not know it.
    """
    if kind not in groups:
        knows = f"; they know the {' and the '.join(groups)} of a sample" if groups else ""
        raise FedscopeError(
            f"data.partition = {text!r} goes by the {kind} of a sample, which these data do not know{knows}; take "
            "another partition, or data that do"
        )
    return groups[kind]


def partition(
    text: str,
    labels: np.ndarray,
    classes: int,
    clients: int,
    *,
    seed: int,
    client_test: float = 0.0,
    share: float = 1.0,
    groups: Mapping[str, np.ndarray] = NO_GROUPS,
) -> Partition:
    """Split the training samples over N clients; the same seed gives the same split, whatever the method or run seed.

    Args:
        client_test: the share of each client's own samples set aside as its test part.
        share: of the samples, see :func:`used_samples`; the others are nobody's.
        groups: what else is known of the samples; see :meth:`Partitioner.split`.

    A client with too few samples to set one aside has no test part, and a warning says so.

    Raises:
        FedscopeError: no clients, or more than samples; labels that are none of the classes; groups of another number
            of samples; a split that leaves a client without samples.
    """
    labels = np.asarray(labels)
    if clients < 1:
        raise FedscopeError(f"data.clients = {clients} is out of range: it must be at least 1")
    if strange := set(np.unique(labels).tolist()) - set(range(classes)):
        raise FedscopeError(
            f"the training samples have the label {min(strange)}, but there are {classes} classes, counted from 0; "
            "correct the labels, or the number of classes"
        )
    for kind, of in groups.items():
        if len(of) != len(labels):
            raise FedscopeError(
                f"there are {len(labels)} labels of training samples, but the {kind} of {len(of)}; give both of the "
                "same samples"
            )
    used = used_samples(labels, share, seed, groups)
    if clients > len(used):
        of_all, remedy = (f" that data.share = {share:g} uses", " or a larger share") if share < 1 else ("", "")
        raise FedscopeError(
            f"data.clients = {clients} is more than the {len(used)} training samples{of_all}; use fewer clients{remedy}"
        )
    parts = parse_partition(text).split(
        labels[used], clients, generator(seed, "partition"), {kind: of[used] for kind, of in groups.items()}
    )
    parts = [used[part] for part in parts]
    empty = [k for k, part in enumerate(parts) if not len(part)]
    if empty:
        raise FedscopeError(
            f"data.partition = {text!r} leaves client {empty[0]} without samples; use fewer clients or another seed"
        )
    test: tuple[np.ndarray, ...] | None = None
    if client_test:
        kept, aside = [], []
        for k, part in enumerate(parts):
            mixed = generator(seed, "client-test", client=k).permutation(part)
            held = min(round(client_test * len(part)), len(part) - 1)
            aside.append(np.sort(mixed[:held]))
            kept.append(mixed[held:])
        parts, test = kept, tuple(aside)
        if poor := [str(k) for k, part in enumerate(test) if not len(part)]:
            few, more = ", ".join(poor[:3]), ", ..." if len(poor) > 3 else ""
            warnings.warn(
                f"data.client_test = {client_test:g} sets nothing aside for {len(poor)} of {clients} clients, which "
                f"have too few samples ({few}{more}); they have no test part, take fewer clients or a larger share",
                FedscopeWarning,
                stacklevel=2,
            )
    sorted_parts = tuple(np.sort(part).astype(np.int64) for part in parts)
    counts = np.stack([np.bincount(labels[part], minlength=classes) for part in sorted_parts])
    return Partition(clients=sorted_parts, test=test, label_counts=counts)


def used_samples(labels: np.ndarray, share: float, seed: int, groups: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the indices of a share of the samples, ascending: of every class (of every domain) that share, at least
    one.

    Args:
        labels: [n]; share: 0 < share <= 1.

    >>> used_samples(np.repeat([0, 1], [90, 10]), 0.1, 0, {}).size
    10
    """
    if share >= 1:
        return np.arange(len(labels))
    strata = labels
    if "domain" in groups:
        strata = groups["domain"] * (int(labels.max(initial=0)) + 1) + labels
    mixed = generator(seed, "share").permutation(len(labels))
    mixed = mixed[np.argsort(strata[mixed], kind="stable")]
    kinds, begins, counts = np.unique(strata[mixed], return_index=True, return_counts=True)
    taken = np.maximum(1, np.round(share * counts)).astype(int)
    return np.sort(np.concatenate([mixed[begins[k] : begins[k] + taken[k]] for k in range(len(kinds))]))


def pool_splits(data: Dataset) -> Dataset:
    """Return the training samples and behind them the test samples as one training split; the test split is as it was.

    They stay standardised by what the training samples alone gave. Users, domains or superclasses that are not known of
    every test sample are none of the whole's.

    >>> from fedscope.training import load_data
    >>> digits = load_data("digits")
    >>> len(digits.y_train), len(digits.y_test), len(pool_splits(digits).y_train)
    (1437, 360, 1797)
    """
    import torch

    from ...evaluation.uint8_images import Uint8Images
    from .dataset import Groups

    x: np.ndarray | Uint8Images
    if isinstance(data.x_train, Uint8Images) and isinstance(data.x_test, Uint8Images):
        stored = torch.cat([data.x_train.stored, data.x_test.stored])
        x = Uint8Images(stored, data.x_train.means, data.x_train.deviations, data.x_train.dtype)
    else:
        x = np.concatenate([np.asarray(data.x_train), np.asarray(data.x_test)])
    groups = {
        kind: Groups(of.names, np.concatenate([of.train, of.test]), of.test)
        for kind, of in data.groups.items()
        if (of.test >= 0).all()
    }
    return replace(data, x_train=x, y_train=np.concatenate([data.y_train, data.y_test]), groups=groups)


def with_client_test_parts(data: Dataset, split: Partition) -> Dataset:
    """Return the same training split, and as test split the samples that the clients set aside, ascending: none is
    trained on.

    Args:
        split: with a test part of some client.
    """
    rows = np.sort(np.concatenate(split.test or [np.array([], np.int64)]))
    import torch

    from ...evaluation.uint8_images import Uint8Images
    from .dataset import Groups

    x: np.ndarray | Uint8Images
    if isinstance(data.x_train, Uint8Images):
        stored = data.x_train.stored[torch.from_numpy(rows)]
        x = Uint8Images(stored, data.x_train.means, data.x_train.deviations, data.x_train.dtype)
    else:
        x = data.x_train[rows]
    groups = {kind: Groups(of.names, of.train, of.train[rows]) for kind, of in data.groups.items()}
    return replace(data, x_test=x, y_test=data.y_train[rows], groups=groups)
