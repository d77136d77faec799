"""The result: how many samples of which class and domain each client holds, and a few of them to look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from ...checkpoints import FedscopeError
from ...results import ArrayResult, along
from ...results.arrays import Variable
from ...results.labels import of_labelled
from ...results.tables import write_csv

COLUMNS = ("client", "domain", "class", "samples", "test_samples")


@dataclass(frozen=True, eq=False)
class ClientData(ArrayResult):
    """Samples of C classes at N clients.

    Attributes:
        counts, test: int64 [N, C], the samples that a client trains on, and those of its own test part
            (``client_test``; zeros without one).
        client_domains: int64 [N], which domain all of a client's samples are of; -1 where there are several, and empty
            [0] where the data have none.
        domains: their names.
        shown: ids of the clients of which a few samples are kept.
        images: float32 [K, M, c, h, w], the first M samples of each of these, scaled to 0..1; empty where samples
            are no images.
        texts: of samples that are tokens of a text, what the first M of each of these read; empty where they are not.
        attrs: provenance: data, partition, seed, classes, clients, samples, versions. Clients may be fewer than N, as
            in recorded runs, whose numbers have gaps: then those that hold nothing are none. ``distinct`` is how many
            samples clients hold, each counted once, where some are held several times.

    Raises:
        FedscopeError: no client.
    """

    command = "data"
    kind = "clients-data"
    needed = {"counts": "client class", "test": "client class"}
    optional = {"domain": "client", "shown": "shown_client", "images": ""}
    derived = (".counts.csv",)
    drawn: ClassVar = {"": "draw", ".samples": "draw_any_samples"}

    counts: np.ndarray
    test: np.ndarray
    client_domains: np.ndarray
    domains: tuple[str, ...] = ()
    shown: tuple[int, ...] = ()
    images: np.ndarray = field(default_factory=lambda: np.empty((0, 0, 0, 0, 0), np.float32))
    texts: tuple[tuple[str, ...], ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not len(self.counts):
            raise FedscopeError("the federation has no clients; give at least one")

    @property
    def sizes(self) -> np.ndarray:
        """The number of samples that each client trains on, [N]."""
        sizes: np.ndarray = self.counts.sum(axis=1)
        return sizes

    @property
    def clients(self) -> np.ndarray:
        """The clients' numbers: 0 to N - 1 without those that are nobody's, as in recorded runs."""
        everyone = np.arange(len(self.counts))
        if self.attrs.get("clients", len(everyone)) >= len(everyone):
            return everyone
        return np.flatnonzero(self.counts.any(axis=1) | self.test.any(axis=1))

    @property
    def title(self) -> str:
        """The data's name, not where they lay, and the partition; of a run that was given a label this, too."""
        kind, colon, place = str(self.attrs.get("data", "data")).partition(":")
        name = Path(place).stem if colon else kind
        made = f"{name}, {self.attrs['partition']}" if "partition" in self.attrs else name
        return f"{made}{of_labelled(self.attrs)}"

    def arrays(self) -> tuple[dict[str, Variable], dict[str, Variable]]:
        """Dimensions ``client``, ``class``; of the samples ``shown_client``, ``sample``, ``channel``, ``y``, ``x``."""
        clients, classes = self.counts.shape
        coords = {"client": along("client", np.arange(clients)), "class": along("class", np.arange(classes))}
        variables = {
            "counts": along("client class", self.counts, "samples that the client trains on", "1"),
            "test": along("client class", self.test, "samples of the client's own test part", "1"),
        }
        if len(self.client_domains):
            variables["domain"] = along("client", self.client_domains, "domain of the client, -1 for several")
        if self.images.size or self.texts:
            variables["shown"] = along("shown_client", np.array(self.shown, np.int64), "client")
        if self.images.size:
            variables["images"] = along("shown_client sample channel y x", self.images, "samples, 0 to 1", "1")
        return coords, variables

    def head(self) -> dict[str, Any]:
        """Return the domains' names, and texts."""
        texts = {"texts": [list(own) for own in self.texts]} if self.texts else {}
        return {"domains": list(self.domains), **texts}

    @classmethod
    def of_arrays(cls, values: dict[str, Any], attrs: dict[str, Any]) -> Self:
        """Build the result from what :meth:`arrays` and :meth:`head` gave."""
        domains = tuple(attrs.pop("domains", ()))
        texts = tuple(tuple(map(str, own)) for own in attrs.pop("texts", ()))
        shown = tuple(int(client) for client in values.get("shown", ()))
        images = values.get("images", np.empty((0, 0, 0, 0, 0), np.float32))
        of = values.get("domain", np.empty(0, np.int64))
        return cls(values["counts"], values["test"], of, domains, shown, images, texts, attrs)

    def derive(self, base: Path | str, *, again: bool = True) -> list[Path]:
        """``BASE.counts.csv``: a row a client and class of which it has a sample."""
        path = Path(f"{base}.counts.csv")
        if again or not path.exists():
            write_csv(path, COLUMNS, self._rows())
        return [path]

    def _rows(self) -> list[Sequence[Any]]:
        held = np.argwhere((self.counts > 0) | (self.test > 0))
        named = self.counts.shape[1] > 1  # not of a task without classes
        return [
            (int(k), self.domain_of(int(k)), int(c) if named else "", int(self.counts[k, c]), int(self.test[k, c]))
            for k, c in held
        ]

    def domain_of(self, client: int) -> str:
        """Return the name of a client's domain; "" where it has several or the data have none."""
        known = len(self.client_domains) and self.client_domains[client] >= 0
        return self.domains[self.client_domains[client]] if known else ""

    def summary(self) -> str:
        """Describe the clients' sizes, how many classes each has, and what is nobody's."""
        clients, classes = len(self.clients), self.counts.shape[1]
        sizes, held = self.sizes[self.clients], (self.counts[self.clients] > 0).sum(axis=1)
        begin = f"{self.title}: "
        ignored = int(self.attrs.get("ignored", 0))
        shared, there = self.attrs.get("distinct"), self.attrs.get("samples")
        owned = int(sizes.sum() + self.test.sum()) + ignored if shared is None else int(shared)
        nobody = f"; {there - owned:,} of {there:,} samples are nobody's" if there is not None and there > owned else ""
        own = f", {int(self.test.sum()):,} more in the clients' own test parts" if self.test.any() else ""
        own += f", {ignored:,} more whose label is ignored" if ignored else ""
        own += f", {owned:,} different ones, as some are held several times" if shared is not None else ""
        domains = f" in {len(self.domains)} domains" if self.domains else ""
        kinds = f" of {_range_words(held, 'class', 'classes')}, of {classes}" if classes > 1 else ""
        return (
            f"{begin}{clients} client{'s' if clients > 1 else ''}{domains}, each with {_range_words(sizes, 'sample')}"
            f"{kinds}; {int(sizes.sum()):,} samples in all{own}{nobody}"
        )

    def findings(self) -> dict[str, Any]:
        """Every client's sizes and counts."""
        clients = [
            {
                **{"client": k, "samples": int(self.sizes[k]), "test_samples": int(self.test[k].sum())},
                **{"domain": self.domain_of(k) or None, "counts": self.counts[k], "test_counts": self.test[k]},
            }
            for k in self.clients.tolist()
        ]
        return {"clients": clients}


def _range_words(values: np.ndarray, one: str, many: str = "") -> str:
    """``24 to 1,203 samples (median 400)``, or the one number that they all are."""
    least, most = int(values.min()), int(values.max())
    if least == most:
        return f"{least:,} {one if least == 1 else many or one + 's'}"
    return f"{least:,} to {most:,} {many or one + 's'} (median {np.median(values):,.4g})"
