"""Retention: which rounds and which of a round's clients are recorded, and how much room they take."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal

import numpy as np

from ..io.errors import FedscopeError, nearest
from ..models.weights import Layout, TensorEntry

KNOWN = '"all", "none", "every:N", "last:N" or a list of rounds, as "1,20,last"'
#: what ``record.clients`` takes besides
SAMPLE = '"sample:m" (m clients of every round), '
#: in :attr:`RetentionPolicy.rounds`, the last round of the run
LAST = 0
#: the bit that no key of a sketch has, nor any other stream of this package
_OWN = 1 << 63


@dataclass(frozen=True)
class RetentionPolicy:
    """A choice of rounds: whose models are recorded, ``record.clients`` and ``record.globals``, or measured,
    ``run.evaluate_all``.

    >>> [t for t in range(1, 11) if RetentionPolicy.parse("every:4").keeps(t, 10)]
    [4, 8]
    >>> [t for t in range(1, 11) if RetentionPolicy.parse("last:2").keeps(t, 10)]
    [9, 10]
    >>> [t for t in range(1, 11) if RetentionPolicy.parse("1,4,last").keeps(t, 10)]
    [1, 4, 10]
    >>> RetentionPolicy.parse("sample:8").sampled, RetentionPolicy.parse("every:4").sampled
    (8, 0)
    """

    kind: Literal["all", "none", "every", "last", "rounds", "sample"]
    count: int = 0
    rounds: tuple[int, ...] = ()

    @classmethod
    def parse(cls, value: object, place: str = "record.clients") -> RetentionPolicy:
        """Read ``"all"``, ``"none"``, ``"every:N"``, ``"last:N"``, or rounds, as a list or as ``"1,20,last"``; of
        ``record.clients`` also ``"sample:m"``.

        Raises:
            FedscopeError: anything else; names the value, ``place`` and what is known.
        """
        if isinstance(value, list | tuple):
            for round in value:
                if not isinstance(round, int) or isinstance(round, bool) or round < 1:
                    raise FedscopeError(f"{place} names round {round!r}; rounds are whole numbers from 1 on")
            return cls("rounds", rounds=tuple(sorted(set(value))))
        what = "recording policy" if place.startswith("record.") or place == "keep" else "choice of rounds"
        some = place in ("record.clients", "keep")
        known = (SAMPLE if some else "") + (
            KNOWN if place != "keep" else KNOWN.replace('"last:N" ', "").replace("1,20,last", "1,20")
        )
        if not isinstance(value, str):
            raise FedscopeError(f"{place} = {value!r} is not a {what}; give {known}")
        numbers = [part.strip() for part in value.split(",")]
        if all(part == "last" or (part.isascii() and part.isdecimal() and int(part) > 0) for part in numbers):
            return cls("rounds", rounds=tuple(sorted({LAST if part == "last" else int(part) for part in numbers})))
        word, colon, number = value.partition(":")
        if word in ("all", "none") and not colon:
            return cls("all" if word == "all" else "none")
        if word in ("every", "last") or (some and word == "sample"):
            if not (number.isascii() and number.isdigit() and int(number) > 0):
                raise FedscopeError(f'{place} = "{value}" needs a whole number from 1 on, as in "{word}:10"')
            return cls("every" if word == "every" else "last" if word == "last" else "sample", int(number))
        hint = nearest(word, ("all", "none", "every", "last", *(["sample"] if some else [])))
        raise FedscopeError(f'{place} = "{value}" is not a {what}{hint or ";"} give {known}')

    @property
    def sampled(self) -> int:
        """The number m of clients of every round that are recorded; 0 where the policy chooses rounds."""
        return self.count if self.kind == "sample" else 0

    def keeps(self, round: int, rounds_total: int) -> bool:
        """Check whether the policy records all of this round of a run of so many."""
        match self.kind:
            case "all":
                return True
            case "none" | "sample":
                return False
            case "every":
                return round % self.count == 0
            case "last":
                return round > rounds_total - self.count
            case "rounds":
                return round in self.rounds or (LAST in self.rounds and round == rounds_total)


def draw_kept_clients(clients: int, count: int, *, seed: int, round: int) -> np.ndarray:
    """Draw the clients of a round that are recorded: their places, ascending, [m], or all of [C] where m is not less.

    Every client gets a number of 64 bits, drawn from (seed, round), and the m least ones are kept, so that every subset
    of m is equally likely. The stream is its own: whether and how many are kept changes no number of the training, and
    a resumed run draws as it would have. Keeping more in another run keeps these too.

    Args:
        clients: C, of the round.
        count: m.
        seed: ``data.seed``, which draws cohorts too, so that runs of other methods keep the same clients.

    >>> [draw_kept_clients(clients, count, seed=0, round=1).tolist() for clients, count in ((10, 3), (10, 4), (2, 3))]
    [[0, 2, 7], [0, 2, 5, 7], [0, 1]]
    """
    draws = np.random.Philox(key=np.array([seed % 2**64, _OWN | round], np.uint64)).random_raw(clients)
    return np.sort(np.argsort(draws, kind="stable")[:count])


@dataclass(frozen=True)
class StateSize:
    """The size of what methods keep between rounds.

    Attributes:
        client_vectors: how many vectors [P] each client keeps: recorded with the clients, else kept aside for every
            client that has taken part.
        bytes, models: of all else, in bytes and in models, recorded with the globals.
        window: how many rounds' globals an average over rounds needs, kept aside where they are not recorded.
    """

    client_vectors: int = 0
    bytes: int = 0
    models: int = 0
    window: int = 0


def size_on_disk(
    layout: Layout,
    cohort: int,
    rounds: int,
    clients: RetentionPolicy,
    globals_: RetentionPolicy,
    *,
    after: int = 0,
    kept: StateSize = StateSize(),
    population: int = 0,
    sketch: int = 0,
) -> int:
    """Estimate the bytes that a run takes, uncompressed: per recorded round C clients (or a sample of m), and start,
    global and averaged.

    20 ResNet-18 clients over 1,000 rounds are 0.9 TB, and their globals 0.13 TB more.

    Args:
        cohort: C, the clients of a round.
        clients, globals_: the recording policies; the last round's globals are always kept.
        after: the last round that takes no room, because it is there already.
        kept: by methods between rounds.
        population: N, all clients.
        sketch: numbers of 4 bytes that every client of every round keeps of its update, and of 8 bytes that single
            models keep.
    """
    model = sum(_bytes(entry) for entry in layout.entries)
    # measured: what HDF5 adds a file, a dataset, a chunked dataset and a chunk
    file, dataset, chunked, chunk = 10_400, 460, 2_700, 55
    total, state = 0, kept.bytes + kept.models * model
    for round in range(after + 1, rounds + 1):
        whole = clients.keeps(round, rounds) or clients.sampled >= cohort
        own = cohort if whole else clients.sampled
        with_globals = globals_.keeps(round, rounds) or round == rounds
        models = 3 * with_globals + bool(own and not with_globals)
        total += cohort * sketch * 4 + 3 * sketch * 8 + (4 * dataset if sketch else 0)
        total += file + models * (model + dataset * len(layout.entries))
        if with_globals:
            total += state
        if own:
            vectors = kept.client_vectors if whole else 0
            total += (1 + vectors) * (own * model + (chunked + chunk * own) * len(layout.entries))
    if not all(globals_.keeps(round, rounds) for round in range(after + 1, rounds)):
        total += (2 + kept.window) * model + state
    if kept.client_vectors and not (
        clients.sampled >= cohort or all(clients.keeps(round, rounds) for round in range(after + 1, rounds))
    ):
        # a cohort's states stay together until all of its clients have taken part again
        total += kept.client_vectors * model * min(3 * population, cohort * rounds)
    return total


def _bytes(entry: TensorEntry) -> int:
    return prod(entry.shape) * np.dtype(entry.dtype).itemsize
