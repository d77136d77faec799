"""A run checked as a whole: its files, their checksums, and what must hold between them and between its models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import isnan
from pathlib import Path

import numpy as np

from ...checkpoints import FedscopeError, Round, Run, Weights, is_without_info, read_columns, weighted_mean
from ...checkpoints.io.errors import list_few
from ...checkpoints.io.hdf5_validation import DamagedError
from ...checkpoints.models.weights import taking_part
from ...checkpoints.recorder.stored_data import KEPT, read_kept
from ...checkpoints.rounds.metrics import MetricRows, read_rows
from ...checkpoints.rounds.sketches import reader, sketch, sketch_whole
from ...checkpoints.rounds.verify import check_round
from ...checkpoints.runs import measured_numbers
from ...checkpoints.runs.folders import LOST
from ...checkpoints.runs.measured_numbers import REMEDY, MeasuredNumbers, is_number
from ...checkpoints.runs.run import KEPT_PARTS, kept_rounds, visible_rounds
from ..config.config import Config
from ..guards.own_calls import ask
from ..guards.returned_arrays import is_own_method
from ..methods.average_formula import members_of
from ..methods.base import AverageMethod, ClientMethod, ServerMethod
from ..settings.missing_code import is_given
from ..settings.registry import method_name
from .run_history import segments
from .state import RunMemory, next_start


@dataclass(frozen=True)
class Soundness:
    """The findings of a check of a run.

    Attributes:
        rounds: how many there are; checksums: how many were compared.
        without: the rounds that have no checksums: recorded by another program, or by a fedscope before it wrote them.
        faults: what is wrong: the file, relative to the run's folder, and a clause.
        torn: a clause on what an import that was interrupted did not come to; "" elsewhere.
    """

    rounds: int
    checksums: int
    without: tuple[int, ...]
    faults: tuple[tuple[str, str], ...]
    torn: str = ""


def check_run(path: Path | str, report: Callable[[int, int], None] | None = None) -> Soundness:
    """Verify every checksum of every round's file, and that the run's files and models do not contradict each other.

    Files are read anew, whatever this process has verified before; nothing is written.

    Args:
        report: called with how many of the rounds are done.

    Raises:
        FedscopeError: no run there.
    """
    path = Path(path)
    if is_without_info(path):
        return Soundness(len(visible_rounds(path)), 0, (), (("run.json", LOST),))
    if not (path / "run.json").exists():
        Run.open(path)  # says what is there instead
    try:
        run = Run.open(path)
    except FedscopeError as error:
        return Soundness(0, 0, (), (("run.json", str(error)),))
    try:
        run.rounds  # noqa: B018 (refused where a file is called as no round's is)
    except FedscopeError as error:
        return Soundness(0, 0, (), (("rounds", str(error)),))
    faults = list(_beside(run))
    parts, broken = _parts(run)
    faults += broken
    sums, without = 0, []
    for done, number in enumerate(run.rounds):
        if report is not None:
            report(done, len(run.rounds))
        sound = True
        for place in run.files_of(number):
            name = str(place.path.relative_to(run.path))
            checked = check_round(place)
            if not place.path.exists():
                continue  # a training run has just ceased to need it
            faults += [(name, what) for what in checked.faults]
            sound &= not checked.faults
            sums += checked.checksums or 0
            if checked.checksums is None and place.is_round and not checked.faults:
                without.append(number)
        if sound:
            name = f"rounds/{number:05d}.h5"
            faults += [(name, what) for what in _about_round(run, number, parts)]
    if report is not None:
        report(len(run.rounds), len(run.rounds))
    return Soundness(len(run.rounds), sums, tuple(without), tuple(faults), torn_words(run))


def torn_words(run: Run) -> str:
    """A clause on the rounds that an interrupted import did not come to; "" where it has all, or is none."""
    last = run.rounds[-1] if run.rounds else 0
    if not run.is_foreign or run.planned is None or last >= run.planned:
        return ""
    lacks = f"rounds {last + 1} to {run.planned} lack" if last + 1 < run.planned else f"round {run.planned} lacks"
    return (
        f"it has {last} of {run.planned} rounds, because its import was interrupted or is at work; {lacks}, and the "
        "same command goes on with it"
    )


def _parts(run: Run) -> tuple[list[tuple[float, Config]], list[tuple[str, str]]]:
    """Return the configurations that made the rounds; none of a run from another program."""
    if run.is_foreign and not (run.path / "config.toml").exists():
        return [], []
    try:
        return segments(run), []
    except FedscopeError as error:
        return [], [("config.toml", str(error))]


def _beside(run: Run) -> Iterator[tuple[str, str]]:
    """Find what is wrong in the files besides the rounds, each file by its own reader."""
    for name in ("config", "partition"):
        file = {"config": "config.toml", "partition": "partition.h5"}[name]
        try:
            if getattr(run, name) is None and not run.is_foreign:
                yield file, "it is missing; restore it from a copy"
        except FedscopeError as error:
            yield file, str(error)
    try:
        read_kept(run.path, run.info)
    except FedscopeError as error:
        yield KEPT, str(error)
    yield from _about_table(run)
    for number in run.lacking:
        yield f"rounds/{number:05d}.h5", "it is missing; restore it from a copy"
    for part in KEPT_PARTS:
        for number in kept_rounds(run.path, part):
            if number not in run.rounds:
                yield f"kept/{part}/{number:05d}.h5", "it belongs to no round; train --resume removes it"


#: the remedy of a table of metrics
_DELETE = "delete it: what it lacks is taken from the rounds"


def _about_table(run: Run) -> Iterator[tuple[str, str]]:
    """Find where ``metrics.csv`` and what was measured afterwards do not say what the rounds' files do."""
    try:
        table = read_rows(run.path / "metrics.csv", run.identity)
    except FedscopeError as error:
        yield "metrics.csv", str(error)
        table = MetricRows({}, {}, 0, False)
    if table.summed and table.strange:
        which = "none of its rows was" if not table.own else f"{table.strange} of its rows were not"
        yield "metrics.csv", f"{which} written for this run; {_DELETE}"
    try:
        measured = run.measured
    except FedscopeError as error:
        yield measured_numbers.NAME, str(error)
        measured = MeasuredNumbers()
    for number in measured.rounds:
        if number not in run.rounds and number not in run.lacking:
            yield measured_numbers.NAME, f"it has numbers of round {number}, and there is none; {REMEDY}"
    rows = table.own if table.summed else {**table.others, **table.own}
    is_told = table.summed and table.strange > 0
    for number in run.rounds:
        try:
            recorded = run.round(number).metrics
        except FedscopeError:
            continue  # its check says why
        later = measured.of(number)
        for name, value in rows.get(number, {}).items():
            if (said := _find_contradiction(value, recorded.get(name), later.get(name))) is not None:
                where = "measured.json" if is_number(later.get(name)) else "the round's file"
                yield (
                    "metrics.csv",
                    f"it says {name} = {value!r} of round {number}, but {where} says {said!r}; {_DELETE}",
                )
                is_told = True
    if not is_told:
        with suppress(FedscopeError):  # said above
            if lost := run.lost_table():
                yield "metrics.csv", f"{lost}; {_DELETE}"


def _find_contradiction(value: float, recorded: float | None, later: float | None) -> float | None:
    """Return what a number of a table contradicts; None where it is the recorded one, or the one that was measured
    later, or nothing is said of it.

    >>> nan = float("nan")
    >>> [_find_contradiction(0.2, 0.2, None), _find_contradiction(0.2, nan, 0.2), _find_contradiction(nan, nan, 0.2)]
    [None, None, None]
    >>> [_find_contradiction(0.2, 0.3, None), _find_contradiction(0.2, None, 0.3), _find_contradiction(nan, 0.3, 0.2)]
    [0.3, 0.3, 0.3]
    """
    said = [one for one in (recorded, later) if one is not None]
    if not said or any(value == one or (isnan(value) and isnan(one)) for one in said):
        return None
    if isnan(value) and recorded is None:  # the table was written anew from the rounds' files alone
        return None
    return recorded if isnan(value) or not is_number(later) else later


def _about_round(run: Run, number: int, parts: list[tuple[float, Config]]) -> Iterator[str]:
    """Find what does not hold between a sound round and the rest of the run."""
    try:
        place, partition = run.round(number), run.partition
        # another program need not say what it counts, and may hold samples back: its recorder has looked at that
        counts = not run.is_foreign and not (parts and _counts_itself(_at(parts, number).client))
        if partition is not None and counts:
            for client, samples in zip(place.client_ids.tolist(), place.client_samples.tolist(), strict=True):
                if samples != (has := len(partition.clients[client])):
                    yield f"client {client} trained on {samples} samples, but partition.h5 gives it {has}"
        if parts:
            yield from contradictions(run, number, parts)
    except DamagedError:
        return  # of another file, which its own check has named
    except FedscopeError as error:
        yield str(error)


def _counts_itself(client: ClientMethod) -> bool:
    """Check whether a client method is not fedscope's, and may say how many of its samples it has used."""
    return is_own_method(client) or not is_given(client)


# Of an average over rounds, against a sum in another order, as a share of its length: float32 rounds at 6e-8.
_TOLERANCE = 1e-6


def contradictions(run: Run, round: int, parts: Sequence[tuple[float, Config]]) -> Iterator[str]:
    """Find what does not hold of a round, a clause each:

    - ``global`` = Σ_k p_k w_k, bit for bit, where the server is FMA and the clients were recorded (parameters only);
    - ``start`` is what the round before left, bit for bit: its ``averaged`` where rounds restart from it, else its
      ``global``, looked ahead by the server; not where a branch changed the method, and not in round 1;
    - sketches are those of the recorded models, see
      :func:`sketch_contradictions`;
    - ``averaged`` is the mean of its window's ``global``s, up to rounding, where it is the mean of the last few.

    What was not recorded is not compared. One model, or a block of the clients, is in memory at a time, besides two.

    Args:
        parts: :func:`~fedscope.training.loop.run_history.segments` of the run.
    """
    config = _at(parts, round)
    place = run.round(round)
    if method_name(config.server) == "fma" and place.has_clients and "global" in place.models:
        other = _others_than_mean(place)
        if other:
            yield f"global is not the mean of its clients with the weights p ({other:,} parameters differ)"
    yield from sketch_contradictions(place, is_mean=method_name(config.server) == "fma")
    if round > 1 and "start" in place.models and config is _at(parts, round - 1):
        left = _model_left(run, round - 1, config)
        if left is not None and not _same(place.read("start"), left):
            yield f"start is not the model that round {round - 1} left"
    if not is_own_method(config.average) and (what := _no_mean(run, place, config.average)):
        yield what


def refuse_contradictions(run: Run, round: int) -> None:
    """Refuse to go on from a round whose models contradict each other.

    Raises:
        FedscopeError: names the first of :func:`contradictions`; an average of the user's own that is not the mean that
            its ``members`` says.
    """
    parts = segments(run)
    for what in contradictions(run, round, parts):
        raise DamagedError(run.round(round).path, what)
    average = _at(parts, round).average
    if is_own_method(average) and (what := _no_mean(run, run.round(round), average)):
        raise FedscopeError(
            f"{run.path}: {what} in round {round}, but {method_name(average)}.members says that it is; return () from "
            "it where it is no plain mean, or restore the round's file from a copy"
        )


def _no_mean(run: Run, place: Round, average: AverageMethod) -> str:
    """Say that ``averaged`` is not the mean of the last few ``global``s that it is said to be; "" where it is."""
    if "averaged" not in place.models:
        return ""
    members = members_of(average, place.number)
    away = _distance_to_mean(run, place, members) if 0 < len(members) <= average.window_size() + 1 else 0.0
    if away <= _TOLERANCE:
        return ""
    return f"averaged is not the mean of global of rounds {members[0]} to {members[-1]} (off by {away:.1e})"


def refuse_damaged(run: Run, rounds: Sequence[int]) -> None:
    """Refuse rounds that another run is to hold and are not what was written: each file's checksums, shapes and
    identity, and of files that tell less than that, what must hold between their models, and between them and the next
    round's.

    Raises:
        FedscopeError: names the first file, and what is wrong with it.
    """
    before = True
    for number in rounds:
        told = True
        for place in run.files_of(number):
            _ = place.models  # of another round or run, in its own words
            checked = check_round(place)
            if checked.faults and place.path.exists():  # or a training run has just ceased to need it
                raise DamagedError(place.path, checked.faults[0])
            told &= checked.checksums is not None and bool(checked.identity)
        if not (told and before):
            refuse_contradictions(run, number)
        before = told


def _at(parts: Sequence[tuple[float, Config]], round: int) -> Config:
    return next(config for last, config in parts if round <= last)


def _others_than_mean(round_: Round) -> int:
    recorded, other = round_.read("global").parameters, 0
    for block in read_columns(round_):
        made = weighted_mean(Weights(round_.layout, block.values, {}), round_.weights).parameters
        other += int((_bits(made) != _bits(recorded[block.where])).sum())
    return other


def _model_left(run: Run, round: int, config: Config) -> Weights | None:
    """Read the model that a round left for the next; None where that was not recorded, or takes a server's state that
    was not, or code that is not here."""
    memory = RunMemory(run)
    if not (is_given(config.server) and is_given(config.average)):
        return None  # nobody has given the code that says it
    global_, averaged = memory.read(round, "global"), memory.read(round, "averaged")
    if global_ is None:
        return None
    if averaged is None and config.average.restarts(round + 1) and not config.average.averages_first:
        return None
    if type(config.server).look_ahead is ServerMethod.look_ahead:
        return next_start(config, round, global_, averaged, {})
    server = memory.kept(round).server
    # of a round that record.globals leaves out, the state is forgotten before the global model
    if not server and not any(place.is_round and "global" in place.models for place in run.files_of(round)):
        return None
    if set(ask(config.server, config.server.init, global_.parameters)) - set(server):
        return None
    return next_start(config, round, global_, averaged, server)


def _same(one: Weights, other: Weights) -> bool:
    mine, theirs = one.arrays(), other.arrays()
    return all(np.array_equal(_bits(mine[name]), _bits(theirs[name])) for name in mine)


def _bits(values: np.ndarray) -> np.ndarray:
    """Numbers to compare bit for bit, in which every NaN is one: processors choose its bits."""
    if values.dtype.kind != "f":
        return values
    return np.where(np.isnan(values), np.array(np.nan, values.dtype), values).view(f"u{values.dtype.itemsize}")


def _distance_to_mean(run: Run, place: Round, members: Sequence[int]) -> float:
    """‖averaged − mean‖ / ‖averaged‖ over the parameters; 0 where a member was not recorded or is not finite."""
    if not all(t in run.rounds and "global" in run.round(t).models for t in members):
        return 0.0
    averaged = place.read("averaged").parameters.astype(np.float64)
    total = np.zeros_like(averaged)
    for t in members:
        total += run.round(t).read("global").parameters
    length = float(np.linalg.norm(averaged))
    away = float(np.linalg.norm(averaged - total / len(members)))
    return away / length if np.isfinite(away) and length else 0.0


# Of the models' lengths: a float32 parameter is off by 2^-24 of itself at most, global is rounded once, and a sketch
# adds what it is given, so that four times that is beyond any rounding.
_SKETCH_TOLERANCE = 2.0**-22


def sketch_contradictions(round_: Round, *, is_mean: bool) -> Iterator[str]:
    """Find what does not hold between a round's sketches S_k, [C, k], and its models, a clause each:

    - S_k is the sketch of w_k − start, bit for bit, of every client whose model was recorded, where start was;
    - the sketches of ``start``, ``global`` and ``averaged`` are those of these models, bit for bit, where recorded;
    - the sketch of ``global`` less that of ``start`` is Σ_k p_k S_k, up to rounding, where ``is_mean`` says that the
      server took the weighted mean. That needs no model, and so holds for rounds that recorded none.

    Without sketches nothing is compared. One client is in memory at a time.
    """
    if not round_.has_sketch:
        return
    rows = round_.sketch()
    other = _other_sketches(round_, rows)
    if other:
        yield f"the sketch of client {list_few(other, 6)} is not that of its recorded model"
    whole = {name: round_.whole_sketch(name) for name in round_.whole_sketches}
    for name in whole:
        if name in round_.models:
            own = reader(round_.layout, round_.read(name).parameters)
            if not _same_bits(sketch_whole(round_.layout, [own], rows.shape[1])[0], whole[name]):
                yield f"the sketch of {name} is not that of the recorded model"
    if is_mean and {"start", "global"} <= whole.keys():
        with np.errstate(over="ignore", invalid="ignore"):  # of clients that diverged
            step, updates = whole["global"] - whole["start"], rows.astype(np.float64)
            part = taking_part(round_.weights)
            away = float(np.linalg.norm(step - round_.weights[part] @ updates[part]))
            size = sum(float(np.linalg.norm(one)) for one in whole.values())
            size += float(round_.weights[part] @ np.linalg.norm(updates[part], axis=1))
        if away > _SKETCH_TOLERANCE * size:
            share = away / max(float(np.linalg.norm(step)), np.finfo(np.float64).tiny)
            yield (
                "global is not the mean of its clients with the weights p, as their sketches have it "
                f"(off by {share:.1e} of the server's step)"
            )


def _other_sketches(round_: Round, rows: np.ndarray) -> list[int]:
    """Return the clients whose sketch is not that of their model."""
    if "start" not in round_.models:
        return []
    ids = round_.client_ids if round_.has_clients else round_.sampled_ids
    start, k = round_.read("start").parameters, rows.shape[1]
    places = np.searchsorted(round_.client_ids, ids).tolist()
    return [
        client
        for client, place in zip(ids.tolist(), places, strict=True)
        if not _same_bits(sketch(round_.layout, start, round_.client(client).parameters[None], k)[0], rows[place])
    ]


def _same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    return bool(np.array_equal(one, other, equal_nan=True))
