"""Rounds of another framework on their way into a run: what all of its recorders share.

Whatever recording stumbles over is a warning, and the training goes on.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

from ..io.errors import FedscopeError, list_few, spans
from ..io.untrusted import expand_home
from ..io.warn_user import warn_user
from .client_names import ClientNames
from .coerce_models import coerce_model
from .framework_evaluation import Evaluation, NoShareError, joined, without
from .held_rounds import HELD
from .recorder import Recorder

T = TypeVar("T")
#: a model: arrays, or tensors, by name
Tensors = Mapping[str, Any]


def check_version(package: str, tested: str) -> None:
    """Make sure that a package is installed, and warn where it is another version than recording was tested with.

    Args:
        tested: that version; those with the same first two numbers go with it.

    Raises:
        FedscopeError: it is not installed.
    """
    try:
        found = version(package)
    except PackageNotFoundError:
        raise FedscopeError(f"{package} is not installed; pip install {package}=={tested}") from None
    if found.split(".")[:2] != tested.split(".")[:2]:
        warn_user(
            f"{package} {found} is installed, and recording was tested with {tested}; look at the run with fedscope "
            f"ls, or pip install {package}=={tested}"
        )


def copied(model: Tensors) -> dict[str, Any]:
    """Copy a model, whose tensors others may change: as arrays, but for bfloat16, which these do not have.

    Raises:
        FedscopeError: an entry that is neither an array nor a tensor.
    """
    return {str(name): _copied(str(name), value) for name, value in model.items()}


def _copied(name: str, value: Any) -> Any:
    if callable(getattr(value, "materialize", None)):  # left on the disk until it is wanted
        value = value.materialize()
    if callable(getattr(value, "detach", None)):  # a tensor of torch
        tensor = value.detach().cpu().clone()
        return tensor if str(tensor.dtype) == "torch.bfloat16" else tensor.numpy()
    array = np.array(value)
    if array.dtype.kind not in "fiubV":
        raise FedscopeError(
            f"{name} is of type {type(value).__name__}, not an array of numbers; encrypted models cannot be recorded"
        )
    return array


class WatchedCalls:
    """Calls of one object, put under watch and given back."""

    def __init__(self, watched: Any) -> None:
        self._watched = watched
        self._own: dict[str, Any] = {}

    def replace(self, **calls: Callable[..., Any]) -> None:
        """Put these in the place of the object's own."""
        for name, call in calls.items():
            self._own[name] = vars(self._watched).get(name)
            setattr(self._watched, name, call)

    def restore(self) -> None:
        """Give the object its own calls back; a second time does nothing."""
        while self._own:
            name, own = self._own.popitem()
            if own is None:
                delattr(self._watched, name)
            else:
                setattr(self._watched, name, own)


def open_in_place_of(former: FrameworkRounds | None, path: Path | str, open_: Callable[[], Recorder]) -> Recorder:
    """Open a recorder for what another one records so far, which ends then; where the new one is refused, the training
    goes on and is recorded as before.

    Args:
        path: of the new run's folder, which may be that of the other.
    """
    if former is None:
        return open_()
    shared = os.path.realpath(expand_home(path)) == os.path.realpath(former.recorder.path)
    with former.recorder.lent() if shared else nullcontext():
        recorder = open_()
    former.give_back()
    return recorder


class FrameworkRounds:
    """Rounds of a framework, which are recorded.

    Args:
        framework: its name, for sentences.
    """

    #: attributes that say clients' numbers, of which a round that is not recorded leaves nothing
    _numbering: ClassVar[tuple[str, ...]] = ()
    #: what records again
    _records = "Recorder"

    def __init__(self, recorder: Recorder, framework: str) -> None:
        self.recorder, self.framework = recorder, framework
        self._types: dict[str, np.dtype[Any]] = {}  # of a client's arrays in the first round that is recorded
        self._learnt: dict[str, np.dtype[Any]] = {}  # the same of a round that may become it
        self._said: set[str] = set()
        #: a round that waits for its evaluation, and the numbering before it
        self._held: tuple[int | None, dict[str, Any], dict[str, Any]] | None = None
        self._evaluated = Evaluation()
        #: by column, the rounds of the run whose numbers are right only if they are shares
        self._as_shares: dict[str, list[int]] = {}
        self._percent: set[str] = set()  # columns that are known to be given on another scale
        self._closed_by = "recorder.close()"
        recorder.waiting = self.settle

    def give_back(self) -> None:
        """Give what is watched its own calls back, and end the recording; a second time does nothing."""
        raise NotImplementedError

    def close(self) -> None:
        """Write what is waiting."""
        self.guarded("its last rounds may be missing", self.recorder.close)

    def closed_by(self, call: str) -> None:
        """Write what is waiting, as a call of the framework's ends the run."""
        if not self.recorder.is_closed:
            self._closed_by = call
        self.close()

    def learn_types(self, model: Tensors) -> None:
        """Take the dtypes of the first client's arrays as those of the run, once its round is recorded."""
        if not self._known_types:
            self._learnt = {name: array.dtype for name, array in model.items()}

    @property
    def _known_types(self) -> dict[str, np.dtype[Any]]:
        return self._types or self._learnt

    def typed(self, name: str, array: Any) -> Any:
        """Numbers in the type that the first clients have, as clients load them.

        A server's means of whole numbers are floats, and some servers give float64.
        """
        if isinstance(array, np.generic):  # what numpy makes of an array without axes
            array = np.asarray(array)
        wanted = self._known_types.get(name, getattr(array, "dtype", None))
        if not isinstance(array, np.ndarray) or not isinstance(wanted, np.dtype):
            return array
        if array.dtype == wanted or not {array.dtype.kind, wanted.kind} <= set("fiub"):
            return array
        with np.errstate(invalid="ignore"):
            return array.astype(wanted)

    def tell_other_types(self, client: int, model: Tensors) -> None:
        """Tell of a client whose arrays are not in the types of the first one."""
        if other := [name for name, array in model.items() if self.typed(name, array).dtype != array.dtype]:
            self.tell(
                f"{self.recorder.path}: client {client} sends {other[0]} in {model[other[0]].dtype}, clients of "
                f"the first round in {self._known_types[other[0]]}, as which it is recorded"
            )

    # --- a round that waits for its evaluation, so that its numbers are in its file ---

    def is_over(self) -> bool:
        """Check whether the run is closed, so that no more rounds are recorded; says so once."""
        if self.recorder.is_closed:
            self.tell(
                f"{self.recorder.path}: the run is closed, which {self._closed_by} does, so no further round "
                f"of {self.framework} is recorded; before the next one call {self._records} again, with resume=True "
                "to go on with this run, or with another path"
            )
        return self.recorder.is_closed

    def hold(self, number: int | None, read: Callable[[], dict[str, Any]]) -> None:
        """Hold a round until its evaluation is there; :meth:`settle` records it.

        Args:
            read: gives the round as :meth:`~fedscope.Recorder.round` takes it, with ``metrics``.
        """
        self.settle()
        if self.is_over():
            return
        before = deepcopy({name: getattr(self, name) for name in self._numbering})
        given = self.of_round(number, read)
        if given is None:
            self._forget(before)
        else:
            self._held = (number, given, before)
            HELD.add(
                self,
                f"{self.recorder.path}: round {number} of {self.framework} waited for its evaluation when its recorder "
                "was dropped, so it is not recorded; end a loop with recorder.close()",
            )

    def evaluated(self, number: int | None, read: Callable[[], Evaluation]) -> None:
        """Take numbers of the round that waits; those of another one, as of the model before all rounds, tell at most
        that no shares are given."""
        found = self.read_evaluation(lambda: self._shares_of(read))
        if found is not None and self._held is not None and self._held[0] == number:
            self._join(found)

    def _join(self, found: Evaluation) -> None:
        both = joined(self._evaluated, without(found, self._percent))
        for choice in both.choices:
            self.tell(f"{self.recorder.path}: in {self.framework}'s evaluation {choice}; give one number for each")
        self._evaluated = both

    def read_evaluation(self, read: Callable[[], T]) -> T | None:
        """Read a part of an evaluation; None where it is something else than is known, which is told."""
        try:
            return read()
        except Exception as error:  # whatever a program's own metrics are
            self.tell(
                f"{self.recorder.path}: {self.framework}'s evaluation is not recorded: {type(error).__name__}: {error}"
            )
        return None

    def _shares_of(self, read: Callable[[], Evaluation]) -> Evaluation:
        """Read an evaluation without what is no share, which is told."""
        try:
            return read()
        except NoShareError as error:
            if error.column not in self._percent:
                wrong = self._withdraw(error.column) if error.percent else ""
                self.tell(f"{self.recorder.path}: {self.framework}'s evaluation gives {error}; give a share{wrong}")
            return error.others

    def _withdraw(self, column: str) -> str:
        """Take back a column that was read as shares, now that it is known to be none; a clause on the rounds that are
        recorded with it."""
        columns = {column, f"{column.removesuffix('_mean')}_std"}
        self._percent |= columns
        self._evaluated = without(self._evaluated, columns)
        rounds = sorted({t for name in columns for t in self._as_shares.pop(name, ())})
        if not rounds:
            return ""
        wrong = f" and record again, since {column} of round{'s' if len(rounds) > 1 else ''} {spans(rounds)} was read "
        wrong += "as a share before, and is wrong"
        if column != "test_error":  # which alone can be measured afterwards
            return wrong
        these = f"{rounds[0]}-{rounds[-1]}" if len(rounds) > 1 else str(rounds[0])
        command = self.recorder.question("measure", "--rounds", these, "--force", "--accept-data")
        return f"{wrong}, or measure it once the run is closed: {command}"

    def settle(self) -> None:
        """Record the round that waits, with what its evaluation said."""
        held, self._held = self._held, None
        evaluated, self._evaluated = self._evaluated, Evaluation()
        HELD.forget(self)
        if held is not None:
            number, given, before = held
            metrics = {**given.pop("metrics"), **evaluated.numbers}
            if self.succeeds(number, lambda: self.recorder.round(**given, metrics=metrics)):
                self._types = self._known_types
                for column in evaluated.shares:
                    self._as_shares.setdefault(column, []).append(self.recorder.accepted)
            else:
                self._forget(before)

    def _forget(self, before: Mapping[str, Any]) -> None:
        """Leave nothing of a round that is not recorded."""
        self._learnt = {}
        for name, value in before.items():
            setattr(self, name, value)

    # --- what goes wrong ---

    def of_round(self, number: int | None, work: Callable[[], T]) -> T | None:
        """Do a part of a round; None where it fails, which is told."""
        what = f"round {number} of {self.framework} is not recorded, so later ones have lower numbers in the run"
        return self.guarded(what, work)

    def succeeds(self, number: int | None, work: Callable[[], object]) -> bool:
        """Do a part of a round; False where it fails, which is told."""
        return self.of_round(number, lambda: (work(),)) is not None

    def guarded(self, otherwise: str, work: Callable[[], T]) -> T | None:
        """Do something that must not disturb the training; None where it fails, which is told."""
        try:
            return work()
        except Exception as error:
            reason = str(error) if isinstance(error, FedscopeError) else f"{type(error).__name__}: {error}"
            self.tell(f"{self.recorder.path}: {otherwise}: {reason}")
            return None

    def tell(self, sentence: str) -> None:
        """Warn of each kind of thing once, whatever the round and the client."""
        kind = re.sub(r"\d+", "", sentence)
        if kind not in self._said:
            self._said.add(kind)
            warn_user(sentence)


@dataclass(frozen=True)
class Contribution:
    """What a client gave to a round.

    Attributes:
        client: its name.
        model: after local training; nothing changes it any more.
        weight: what it weighs in the mean, as the framework has it; need not sum to 1.
        samples: how many it has, where that is known.
    """

    client: str
    model: Tensors
    weight: float
    samples: int | None = None


class NamedRounds(FrameworkRounds):
    """Rounds of a framework whose clients have names, one after another.

    Args:
        clients: their names in the order of their numbers, where somebody says it.
    """

    _numbering = ("_names",)

    def __init__(self, recorder: Recorder, framework: str, clients: Collection[str] | None = None) -> None:
        super().__init__(recorder, framework)
        self._names = ClientNames(clients)
        self._names.learn(recorder.run_info.get("client_names", {}))
        recorder.owns_models = True  # they are copies, which are held here alone
        self._start: Tensors | None = None
        self._here: dict[str, Contribution] = {}
        self._half = 0  # of the last round's clients
        #: whether any round has ended, recorded or not
        self.ended = False

    def begin(self, start: Tensors | None) -> None:
        """Begin a round from the model that clients are sent; what was left of another one is dropped."""
        self._start, self._here = start, {}
        if start is not None:
            self._learnt = {}

    def add(self, one: Contribution) -> None:
        """Take a client's model.

        Of a second one in the same round a run has no place: where it is the same, bit for bit, its weight is added,
        else it is left out, which is told.
        """
        self.learn_types(one.model)
        if self._half and len(self._here) == self._half:
            self.recorder.flush()  # so that a slow disk does not make it a third round that is held
        before = self._here.get(one.client)
        if before is None:
            self._here[one.client] = one
        elif same_models(before.model, one.model):
            self._here[one.client] = replace(before, weight=before.weight + one.weight)
        else:
            self.tell(
                f"{self.recorder.path}: client {one.client} is in one round twice, with two models; the run holds the "
                f"first, so that global is not the mean of the clients there; have {self.framework} take each once"
            )

    def end(
        self,
        number: int | None,
        global_: Tensors,
        weights: Mapping[str, float] | None = None,
        metrics: Mapping[str, float] | None = None,
    ) -> None:
        """Hold the round, which :meth:`settle` records.

        Args:
            number: the framework's, for sentences.
            weights: by client, where the server says them.
        """
        start, here, self.ended = self._start, self._here, True
        self._half = len(here) // 2
        self.begin(None)
        self.hold(number, lambda: self._round(start, here, global_, weights or {}, metrics or {}))

    def _round(
        self,
        start: Tensors | None,
        here: Mapping[str, Contribution],
        global_: Tensors,
        weights: Mapping[str, float],
        metrics: Mapping[str, float],
    ) -> dict[str, Any]:
        """A round as the recorder takes it."""
        if not here:
            raise FedscopeError("no client sent a model")
        if start is None:
            raise FedscopeError("it is not known which model was sent")
        for name in sorted(here, key=by_number):  # so that numbers do not depend on who answers first
            self._names.number(name)
        if (new := self._names.unsaid()) and self.recorder.run_info:
            self.tell(
                f"{self.recorder.path}: {list_few(new)} came after the first round, so run.json does not say which "
                "number it has; give all names in the order of their numbers, as clients=[...]"
            )
        if self.recorder.has_partition and (counted := self._names.counted()):
            self.tell(
                f"{self.recorder.path}: {list_few(counted)} do{'es' if len(counted) == 1 else ''} not say a number, so "
                "which rows of partition= are whose is taken from the order of the names; give all names in the order "
                "of partition=, as clients=[...]"
            )
        self.recorder.about["client_names"] = self._names.by_number()
        numbers = {name: self._names.number(name) for name in here}
        clients, p = {}, {}
        for name, one in here.items():
            self.tell_other_types(numbers[name], one.model)
            clients[numbers[name]] = coerce_model(self._given(one.model))
            p[numbers[name]] = float(weights.get(name, one.weight))
        counts = {numbers[name]: one.samples for name, one in here.items()}
        return {
            "start": coerce_model(self._given(start)),
            "clients": clients,
            "global_": coerce_model(self._given(global_)),
            "metrics": metrics,
            **({"samples": counts} if p == counts else {"weights": p}),
        }

    def _given(self, model: Tensors) -> dict[str, Any]:
        return {name: self.typed(name, array) for name, array in model.items()}


def by_number(name: str) -> list[tuple[int, str]]:
    """Sort names as people do: site-2 before site-10.

    >>> sorted(["site-10", "site-2", "b"], key=by_number)
    ['b', 'site-2', 'site-10']
    """
    parts = re.split(r"(\d+)", name)
    return [(int(part) if part.isdigit() else -1, part) for part in parts]


def same_models(one: Tensors, other: Tensors) -> bool:
    """Whether two models are the same, bit for bit."""
    return one.keys() == other.keys() and all(
        type(array) is type(other[name]) and array.dtype == other[name].dtype and _bytes(array) == _bytes(other[name])
        for name, array in one.items()
    )


def _bytes(array: Any) -> bytes:
    return bytes(array.tobytes() if isinstance(array, np.ndarray) else array.float().numpy().tobytes())  # bfloat16
