"""Splits of a data set over clients: a partition by its name, the split itself, and ``data.pool``, which splits
training and test samples together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from ...checkpoints import FedscopeError, Partition
from ...checkpoints.io.warn_user import warn_user
from ..import_string import is_call
from ..rng import generator
from ..settings.entry_points import installed
from ..settings.own_code import OwnCode
from ..settings.registry import find, names
from .own_partition import OwnPartition, UngivenPartition
from .partitioner import Partitioner, counted_split

if TYPE_CHECKING:
    from .dataset import Dataset

#: share of the samples beyond which it is said that they were moved to clients with too few
MOVED = 0.05
#: nothing but the labels is known
NO_GROUPS: Mapping[str, np.ndarray] = MappingProxyType({})


def parse_partition(text: str) -> Partitioner:
    """``iid``, ``shards:2``, ``dirichlet:0.1`` as a partitioner; of code of the user's own one that may be without it.

    Raises:
        FedscopeError: an unknown name, too many values, or a value that is not a number.

    >>> parse_partition("shards:3")
    Shards(shards=3, size=None)
    """
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

    A client with too few samples to set one aside has no test part, and a warning says so, as of a Dirichlet split that
    moves many samples to clients with too few. Samples whose label a
    criterion ignores (-100) are dealt out as a class of their own, behind the others, and are not among
    ``label_counts``.

    Raises:
        FedscopeError: no clients, or more than samples; labels that are none of the classes; groups of another number
            of samples; a split that leaves a client without samples.
    """
    from ...evaluation.standard_tasks import PADDED

    labels = np.asarray(labels)
    ignored = labels == PADDED
    labels = np.where(ignored, classes, labels)
    if clients < 1:
        raise FedscopeError(f"data.clients = {clients} is out of range: it must be at least 1")
    if strange := set(np.unique(labels[~ignored]).tolist()) - set(range(classes)):
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
    within = {kind: of[used] for kind, of in groups.items()}
    parts, moved = counted_split(parse_partition(text), labels[used], clients, generator(seed, "partition"), within)
    if moved > MOVED * len(used):
        warn_user(
            f"data.partition = {text!r} moves {100 * moved / len(used):.1f} % of the samples, so that each of "
            f"{clients} clients has at least {min(map(len, parts))}: that is no more the split that was drawn; take "
            "fewer clients, a greater alpha, or a partition of your own"
        )
    parts = [used[part] for part in parts]
    empty = [k for k, part in enumerate(parts) if not len(part)]
    if empty:
        own = isinstance(text, OwnCode) or is_call(text)
        remedy = "give it some" if own else "use fewer clients or another seed"
        raise FedscopeError(f"data.partition = {text!r} leaves client {empty[0]} without samples; {remedy}")
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
            warn_user(
                f"data.client_test = {client_test:g} sets nothing aside for {len(poor)} of {clients} clients, which "
                f"have too few samples ({few}{more}); they have no test part, take fewer clients or a larger share"
            )
    sorted_parts = tuple(np.sort(part).astype(np.int64) for part in parts)
    counts = np.stack([np.bincount(labels[part], minlength=classes + 1)[:classes] for part in sorted_parts])
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
    import torch

    from ...evaluation.uint8_images import Uint8Images
    from .dataset import Groups
    from .membership import indices_set_aside

    rows = indices_set_aside(split)

    x: np.ndarray | Uint8Images
    if isinstance(data.x_train, Uint8Images):
        stored = data.x_train.stored[torch.from_numpy(rows)]
        x = Uint8Images(stored, data.x_train.means, data.x_train.deviations, data.x_train.dtype)
    else:
        x = data.x_train[rows]
    groups = {kind: Groups(of.names, of.train, of.train[rows]) for kind, of in data.groups.items()}
    return replace(data, x_test=x, y_test=data.y_train[rows], groups=groups)
