"""A stored round and the models, numbers and states in its file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..io.errors import FedscopeError, list_few
from ..io.given_values import as_index
from ..models.weights import Layout, Weights
from .metadata import RoundMetadata, read_metadata, read_names, read_sketch, read_whole_sketch
from .models import is_packed, read_client_state, read_layer, read_models, read_state
from .reader import RoundFile, open_round
from .writer import CLIENTS, MODELS, SAMPLED, SAMPLED_STARTS, STALENESS, STARTS


class Round:
    """A recorded round. Cheap to make: the file is opened, without locks, when something is read, and closed again.

    Args:
        path: of its file.
        layout: of the run's models.
        run_label: how to call the run in sentences, ``runs/ima``.
        population: N, the run's clients, where it says so: a round has no others.
        identity: of the run that wrote it, "" for one that has none; None where that is not known.
    """

    def __init__(
        self,
        path: Path | str,
        layout: Layout,
        run_label: str,
        population: int | None = None,
        identity: str | None = None,
    ) -> None:
        self.path, self.layout, self.run_label, self.population = Path(path), layout, run_label, population
        self.identity = identity

    def __repr__(self) -> str:
        from .round_repr import describe_round

        return describe_round(self)

    @property
    def seal(self) -> str:
        """The checksum of the file's table of checksums, 16 hexadecimal digits: another content has another one, and a
        copy the same. "" of a file that has none; nothing else is read, and nothing is verified."""
        with open_round(self.path, self.layout) as file:
            found = file.own_checksum
        return "" if found is None else f"{found:016x}"

    @property
    def number(self) -> int:
        """The round, counted from 1."""
        return int(self.path.stem)

    @property
    def label(self) -> str:
        """Its address, ``runs/ima@40``."""
        return f"{self.run_label}@{self.number}"

    @cached_property
    def _names(self) -> frozenset[str]:
        """The names in the file: all that a list of many rounds asks for."""
        with open_round(self.path, self.layout) as file:
            return read_names(file, self.number, self.identity)

    @cached_property
    def _metadata(self) -> RoundMetadata:
        """All that is small: a round's file never changes."""
        with open_round(self.path, self.layout) as file:
            return read_metadata(file, self.number, self.population, self.identity)

    @contextmanager
    def open(self, *, stacked: bool = False, group: str = CLIENTS) -> Iterator[RoundFile]:
        """Open its file, for those who read rows by themselves.

        Args:
            stacked: whether what is read has a row a client.
            group: whose rows these are, of all clients or of the sampled ones.

        Raises:
            FedscopeError: it cannot be read; it does not say who took part.
        """
        self._metadata  # noqa: B018 (nothing is believed of a file whose metadata contradict each other)
        ids = () if not stacked else self.sampled_ids if group in (SAMPLED, SAMPLED_STARTS) else self.client_ids
        with open_round(self.path, self.layout) as file:
            file.ids = ids
            yield file

    def has(self, name: str) -> bool:
        """Check whether the file holds a column of numbers: ``client_steps`` and ``client_loss`` may be missing."""
        return self._metadata.columns[name] is not None

    def _need(self, name: str) -> np.ndarray:
        value = _copy(self._metadata.columns[name])
        if value is None:
            raise FedscopeError(f"{self.label} has no {name}: the program that recorded it left them out")
        return value

    @property
    def client_ids(self) -> np.ndarray:
        """The ids of the clients that took part, [C] int64, ascending."""
        return self._need("client_ids")

    @property
    def client_samples(self) -> np.ndarray:
        """The number of samples of each client, [C] int64."""
        return self._need("client_samples")

    @property
    def client_steps(self) -> np.ndarray:
        """The number of local steps of each client, [C] int64; a foreign run may lack them."""
        return self._need("client_steps")

    @property
    def client_loss(self) -> np.ndarray:
        """Each one's mean training loss over its local steps, [C]; a foreign run may lack them."""
        return self._need("client_loss")

    @property
    def weights(self) -> np.ndarray:
        """p, [C] float64."""
        return self._need("weights")

    @property
    def client_staleness(self) -> np.ndarray | None:
        """How many rounds old the model was that each client started from, [C] int64; None where that was not said."""
        return _copy(self._metadata.columns[STALENESS])

    @property
    def metrics(self) -> dict[str, float | int | None]:
        """The round's numbers by name; NaN where there is none."""
        return dict(self._metadata.metrics)

    @property
    def all_client_test_error(self) -> np.ndarray | None:
        """The error of every client of the run on its own test part, [N], NaN of one without; None where not measured.

        Measured in the rounds that ``run.evaluate_all`` asks for.
        """
        return _copy(self._metadata.all_client_test_error)

    @property
    def models(self) -> tuple[str, ...]:
        """The names of the recorded models among ``start``, ``global`` and ``averaged``."""
        return tuple(name for name in MODELS if name in self._names)

    @property
    def own_starts(self) -> bool:
        """True if its clients started from models of their own (``Recorder.round(starts=...)``), not from one."""
        return "start" not in self._names and self._metadata.own_starts

    @property
    def has_starts(self) -> bool:
        """True if the models that all of its clients started from, one each, were recorded."""
        return STARTS in self._names

    @property
    def has_sampled_starts(self) -> bool:
        """True if the models that some clients started from, those of ``sampled_ids``, were recorded, and not of
        all."""
        return SAMPLED_STARTS in self._names and self.has_sample and not self.has_starts

    def starts(self, ids: Sequence[int] | np.ndarray | None = None) -> Weights:
        """Return the models that the clients started from, [C, P]: all in the order of ``client_ids``, or those asked
        for.

        Raises:
            FedscopeError: they were not recorded, or not those of all that are asked for, or all clients started from
                one (says so); a client that did not take part (says who did).
        """
        if self.has_sampled_starts and ids is not None:
            return self._read_clients(SAMPLED_STARTS, self._places(ids, self.sampled_ids))
        self.refuse_missing_starts()
        return self._read_clients(STARTS, self._places(ids))

    def refuse_missing_starts(self) -> None:
        """Make sure that the models that its clients started from were recorded; raises as :meth:`starts`."""
        if self.has_sampled_starts:
            raise FedscopeError(
                f"{self.label}: {few_of(self)} and what these started from, and the starts of all are asked for"
            )
        if not self.has_starts:
            why = (
                "did not record the models that its clients started from (keep leaves them out)"
                if self.own_starts
                else "has one start for all of its clients"
                if "start" in self._names
                else "did not record what its clients started from"
            )
            raise FedscopeError(f"{self.label}: round {self.number} {why}")

    @property
    def mixing(self) -> np.ndarray | None:
        """The matrix [C, C] that makes the nodes' next starts of this round's clients, as it was given: row i has the
        weights of client i's next start, sum 1. None where none was given; see
        :func:`fedscope.checkpoints.rounds.mixing.identify_mixing`."""
        return _copy(self._metadata.mixing)

    @property
    def has_sketch(self) -> bool:
        """True if sketches of the clients' updates were recorded (``record.sketch``)."""
        return "sketch" in self._names

    def sketch(self) -> np.ndarray:
        """Return the sketches of the clients' updates, [C, k] float32, in the order of ``client_ids``; see
        :func:`fedscope.checkpoints.rounds.sketches.sketch`.

        Raises:
            FedscopeError: there are none.
        """
        if not self.has_sketch:
            none = "record.sketch was 0" if "start" in self.models else "record.sketch was 0, or it has no start"
            why = "its clients had no one start" if self.own_starts else none
            raise FedscopeError(f"{self.label}: round {self.number} has no sketches ({why})")
        with self.open() as file:
            return read_sketch(file, len(self.client_ids))

    @property
    def whole_sketches(self) -> tuple[str, ...]:
        """The names among ``start``, ``global`` and ``averaged`` of which there are sketches, whether or not the models
        were recorded."""
        return tuple(name for name in MODELS if f"{name}_sketch" in self._names)

    def whole_sketch(self, which: str) -> np.ndarray:
        """Return the sketch of ``start``, ``global`` or ``averaged`` itself, [k] float64; see
        :func:`fedscope.checkpoints.rounds.sketches.sketch_whole`.

        Raises:
            FedscopeError: there is none.
        """
        if which not in self.whole_sketches:
            raise FedscopeError(f"{self.label}: round {self.number} has no sketch of {which} (record.sketch was 0)")
        with self.open() as file:
            return read_whole_sketch(file, which)

    @property
    def has_clients(self) -> bool:
        """True if the models of all clients were recorded."""
        return CLIENTS in self._names

    @property
    def has_sample(self) -> bool:
        """True if the models of some clients were recorded, and not those of all (``record.clients = sample:m``)."""
        return SAMPLED in self._names and not self.has_clients

    @property
    def sampled_ids(self) -> np.ndarray:
        """The ids of the clients whose models were recorded where not all were, [m] int64, ascending; [0] elsewhere."""
        ids = self._metadata.sampled_ids if self.has_sample else None
        return np.zeros(0, np.int64) if ids is None else ids.copy()

    @property
    def is_packed(self) -> bool:
        """True if its clients are stored in another form than they have in memory (``record.compression``)."""
        with self.open() as file:
            entries = self.layout.entries
            group = SAMPLED if self.has_sample else CLIENTS
            return any(entry.stored or is_packed(file, f"{group}/{entry.name}") for entry in entries)

    def read(self, which: str) -> Weights:
        """Return one model [P]: ``start``, ``global`` or ``averaged``.

        Raises:
            FedscopeError: it was not recorded; says which were.
        """
        self.refuse_missing(which)
        with self.open() as file:
            return read_models(file, which, None)

    def refuse_missing(self, which: str) -> None:
        """Make sure that ``start``, ``global`` or ``averaged`` was recorded; raises as :meth:`read`."""
        if which not in self.models:
            kept = ["clients"] if self.has_clients else ["a sample of the clients"] if self.has_sample else []
            have = list_few([*self.models, *kept]) or "no model"
            raise FedscopeError(f"{self.label}/{which}: round {self.number} recorded {have}")

    def clients(self, ids: Sequence[int] | np.ndarray | None = None) -> Weights:
        """Return the clients' models after local training, [C, P]: all in the order of ``client_ids``, or those asked
        for.

        Raises:
            FedscopeError: they were not recorded, or not those of all that are asked for (says whose were); a client
                that did not take part (says who did).
        """
        if self.has_sample and ids is not None:
            return self._read_clients(SAMPLED, self._places(ids, self.sampled_ids))
        self.refuse_missing_clients()
        return self._read_clients(CLIENTS, self._places(ids))

    def refuse_missing_clients(self) -> None:
        """Make sure that the models of all clients were recorded; raises as :meth:`clients`."""
        if not self.has_clients:
            if self.has_sample:
                raise FedscopeError(f"{self.label}: {few_of(self)}, and those of all are asked for")
            raise FedscopeError(
                f"{self.label}: round {self.number} did not record its clients (record.clients leaves it out); "
                "`fedscope ls` says which rounds have them"
            )

    def sampled(self) -> Weights:
        """Return the models of the clients that were recorded where not all were, [m, P], in the order of
        ``sampled_ids``.

        Raises:
            FedscopeError: there is no sample; all clients were recorded, or none.
        """
        if not self.has_sample:
            kept = "all of its clients" if self.has_clients else "no clients"
            raise FedscopeError(f"{self.label}: round {self.number} recorded {kept}, not a sample of them")
        return self._read_clients(SAMPLED, range(len(self.sampled_ids)))

    def _read_clients(self, group: str, places: Sequence[int]) -> Weights:
        with self.open(stacked=True, group=group) as file:
            return read_models(file, group, places)

    def _places(self, ids: Sequence[int] | np.ndarray | None, kept: np.ndarray | None = None) -> Sequence[int]:
        """Return the places of clients among those that took part, or among those that were kept."""
        if ids is None:
            return range(len(self.client_ids))
        among = self.client_ids if kept is None else kept
        place = {int(k): i for i, k in enumerate(among)}
        for k in ids:
            if _whole(k, self.label) not in place:
                whose = f"the models of clients {list_few(place)} of its {len(self.client_ids)}"
                what = f"clients {list_few(place)}" if kept is None else whose
                raise FedscopeError(f"{self.label}/client-{int(k)}: round {self.number} recorded {what}")
        return [place[int(k)] for k in ids]

    def client(self, id: int) -> Weights:
        """Return one client's model [P]; only its row is read. Raises as :meth:`clients`."""
        return self.clients([id]).row(0)

    def rows_of(self, which: str, layer: str) -> Iterator[np.ndarray]:
        """Yield a parameter of every client, flat and one after the other, or of their ``starts``; or of ``start``,
        ``global`` or ``averaged``."""
        with self.open(stacked=which in (CLIENTS, STARTS)) as file:
            yield from read_layer(file, which, layer)

    def state(self) -> dict[str, Any]:
        """Return the server's state after the round: arrays (vectors are [P]), models, or mappings of them, by name."""
        with self.open() as file:
            return read_state(file)

    @property
    def has_mean(self) -> bool:
        """True if the state of the average over rounds holds the clients' mean of the round."""
        return self._metadata.has_mean

    @property
    def is_round(self) -> bool:
        """True if it is the round's own file, not one of those kept next to it for a resume."""
        return self.path.parent.name == "rounds"

    @property
    def client_states(self) -> tuple[str, ...]:
        """The names of what this round's clients keep for their next participation."""
        return self._metadata.client_states

    def client_state(self, name: str, ids: Sequence[int] | np.ndarray | None = None) -> Weights | np.ndarray:
        """Read a state that this round's clients keep: models or vectors [C, P], or arrays [C, ...], in the order asked
        for.

        Raises:
            FedscopeError: the method keeps none of that name; says which it keeps. A client that did not take part.
        """
        if name not in self.client_states:
            kept = list_few(list(self.client_states)) or "none"
            raise FedscopeError(f"{self.label} has no client state {name!r}; it keeps {kept}")
        places = self._places(ids)
        with self.open(stacked=True) as file:
            return read_client_state(file, name, places)


def _copy(numbers: np.ndarray | None) -> np.ndarray | None:
    """What is kept is read once, and whoever asks may write to it."""
    return None if numbers is None else numbers.copy()


def _whole(client: Any, label: str) -> int:
    try:
        # a table's column with gaps has floats
        whole = isinstance(client, float | np.floating) and float(client).is_integer()
        return as_index(int(client) if whole else client)
    except TypeError:
        raise FedscopeError(
            f"{label}/client-{client}: {client!r} is not a client's number; give a whole number, as client(0)"
        ) from None


def few_of(round_: Round) -> str:
    """Return a clause for refusals: whose models a round kept, of how many."""
    ids = round_.sampled_ids
    which = f"client {ids[0]}" if len(ids) == 1 else f"clients {list_few(ids, 6)}"
    return (
        f"round {round_.number} kept the models of {len(ids)} of its {len(round_.client_ids)} clients "
        f"({which}; sample:{len(ids)})"
    )
