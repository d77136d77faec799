"""Records a run that another program trains, a round at a time."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial, wraps
from pathlib import Path
from threading import RLock
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from ..io.atomic import WriterLock
from ..io.background import Background
from ..io.code_words import code_words
from ..io.errors import DiskFullError, FedscopeError
from ..io.keywords import speak_keywords
from ..io.shell_words import command_line
from ..io.untrusted import expand_home
from ..io.visible_text import visible
from ..io.warn_user import warn_user
from ..models.adapters import (
    checked_alpha,
    recorded_scale,
    refuse_other_adapters,
    scale_of_module,
    settings_of_adapters,
)
from ..models.unregistered import say_unregistered
from ..models.weights import Layout
from ..rounds.metrics import further
from ..rounds.run_identity import draw_identity
from ..runs.folders import fill_run, lock_for_new_run
from ..runs.run import Run
from ..runs.writer import RunWriter
from .accepted_rounds import AcceptedRounds
from .client_numbers import SAMPLES_OF_PAIRS
from .client_order import is_counted
from .client_replies import unread_numbers
from .coerce_models import (
    architecture,
)
from .given_partition import GivenPartition, labels_of, partition_of
from .identify_server import Rule, ServerIdentifier, ServerStep
from .in_memory_round import in_memory_file
from .inputs import named_base, named_method, refuse_changed
from .own_starts import distances_of, refuse_without_starts
from .resumed_rounds import lost_between
from .retention import ClientRetention
from .round_cohort import Cohort, cohort_of, drift_of, tell_diverged, tell_unsketched, weighs_by_numbers
from .round_metrics import read_metrics, warn_of_columns, warn_of_numbers
from .round_models import GivenModels, ModelReader, RoundModels
from .stored_data import coerce_data, is_own_code

#: rounds in a row that begin as the one before did, until a loop is told; a round may be played again on purpose
_AGAIN = 2

P = ParamSpec("P")
R = TypeVar("R")


def _in_turn(
    method: Callable[Concatenate[Recorder, P], R],
) -> Callable[Concatenate[Recorder, P], R]:
    """Have one thread after the other call a method: two rounds at once would be given one number."""

    @wraps(method)
    def call(self: Recorder, /, *args: P.args, **options: P.kwargs) -> R:
        if os.getpid() != self._process:  # another thread may have held the lock as the process was forked
            return method(self, *args, **options)
        with self._turn:
            return method(self, *args, **options)

    return call


class Recorder:
    """Records the rounds of a loop, which every question can then be asked of.

    What is given to :meth:`round` is copied at once; a second thread writes it. A round counts once it is durable: a
    kill loses at most the last two. Where the disk is full or broken, the loop goes on and a warning says up to which
    round there is a record. Needs numpy, h5py, xxhash and lazy_loader alone.

    Args:
        path: of the new run's folder.
        model: the architecture, so that questions need no ``--model``: a name (``cnn``, ``module:factory``), or a class
            or function without arguments that makes a module, from a file that can be imported. Or a module. The names
            of models that are given as arrays without are those of the module.
        data: what models are measured on, so that questions need no ``--data``: arrays, which the run keeps, ``(x, y)``
            of the test samples, ``((x_train, y_train), (x_test, y_test))`` or a dictionary of the four, each in the
            shape and scale that the network takes; a ``Dataset`` or ``DataLoader`` in place of each pair. Or a name:
            ``npz:PATH``, whose absolute path and checksum the run keeps, a set that fedscope knows (``digits``),
            ``module:factory``.
        standardise: True if the loop standardised its samples by the means and deviations of the training split, and
            ``data`` are given as they were before. By default your own data are taken as they are, and sets that
            fedscope knows by name standardised, as ``fedscope train`` takes them; False takes these as they are, too.
            The first question compares a recorded ``test_error`` with the measured one.
        keep_data: False keeps the sum of arrays alone, and questions are given the same arrays again.
        source: what trains the run, for sentences.
        method, seed, settings: under which name ``table`` and ``ls`` have the run, by default ``source``; which draw of
            it this is; and what else tells it from others, by name, as ``{"lr": 0.1}``. Runs of one method and one
            data set that differ in their seed alone become one row, mean ± deviation.
        partition: which samples of the training split each client has, by its number, or as a list; for questions about
            clients' own data and the training data of all. With ``labels``, or arrays as ``data``, which hold them.
        labels: of the training split's samples, whole numbers from 0, by which ``partition`` counts classes. Also
            beside arrays whose targets are no class a sample: of sequences a topic, or 0 for all.
        lora_alpha: of LoRA adapters the α that scales their products by α/r, where the models do not say it; a
            ``PeftModel`` does. Lengths of updates need it.
        base: of adapters the file or folder of the weights that they adapt, so that questions need no ``--base``. The
            run keeps its absolute path and checksum, and not the weights.
        keep: whose models are kept, the models of ``start`` and ``global_`` apart, which always are: of ``all``
            clients, of ``none``, of all of ``every:N``-th round, or ``sample:m``, of m clients of every round. Who took
            part, and with what weight, is always kept; of rounds with ``starts`` the kept clients' are, the mixing of
            all, and where not all are kept the consensus distances of all.
        drift: True measures each round how far the clients' updates agree, in columns of the run's table, see
            :func:`fedscope.checkpoints.rounds.drift.drift_of`; needs ``start``. Of adapters it is not measured: what
            they do is told by ``fedscope updates``.
        sketch: k: of every client's update k numbers, see :func:`fedscope.checkpoints.rounds.sketches.sketch`; needs
            ``start``. 0 for none.
        resume: go on behind a run that was recorded there before; where there is none, it is a new run.
        force: replace a run that is there; nothing else is ever replaced.

    Raises:
        FedscopeError: something is in the way; another recorder is at work there; a run to go on with that names
            another model, other data, another method, seed or settings, or another partition; ``keep`` or ``sketch``
            that are none; no data, or nothing to standardise them by; labels that are not those of the data; a method,
            a seed or settings that a run cannot keep; an alpha that is not the models'.

    >>> import tempfile, fedscope, numpy as np
    >>> w = {"w": np.zeros(3, np.float32)}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with fedscope.Recorder(folder + "/run") as recorder:
    ...         for t in range(2):
    ...             clients = {k: {"w": w["w"] + k} for k in range(4)}
    ...             w_next = {"w": w["w"] + np.float32(1.5)}
    ...             _ = recorder.round(start=w, clients=clients, samples={k: 10 for k in clients}, global_=w_next)
    ...             w = w_next
    ...     fedscope.Run.open(folder + "/run").rounds
    (1, 2)
    """

    @partial(speak_keywords, called={"out": "path"}, typed=False)
    def __init__(
        self,
        path: Path | str,
        *,
        model: Any = None,
        data: Any = None,
        standardise: bool | None = None,
        keep_data: bool = True,
        source: str = "a loop of its own",
        method: str | None = None,
        seed: int | None = None,
        settings: Mapping[str, Any] | None = None,
        partition: Mapping[int, Any] | Sequence[Any] | None = None,
        labels: Any = None,
        lora_alpha: float | None = None,
        base: Path | str | None = None,
        keep: str = "all",
        sketch: int = 0,
        drift: bool = False,
        resume: bool = False,
        force: bool = False,
    ) -> None:
        # absolute, because the program may change its folder
        self.path = expand_home(path).absolute()
        if not isinstance(source, str) or not source.strip():
            raise FedscopeError(f"source={source!r} is not a name; give a line of text, as source='my loop'")
        self._source = source
        divided = {"rows": partition is not None, "labels": labels is not None}
        self._data = coerce_data(self.path, data, standardise, keep=keep_data, **divided)
        self._keeping = ClientRetention(keep, sketch)
        self._drift = drift
        self._named = named_method(method, seed, settings)
        #: what a recorder of another kind has run.json say besides
        self.about: dict[str, Any] = {}
        self._model_name, self._module = architecture(model)
        self._parts = None if partition is None else partition_of(partition, labels_of(labels, self._data.labels))
        self._lock: WriterLock | None = None
        self._writer: RunWriter | None = None
        self._alpha = None if lora_alpha is None else checked_alpha(lora_alpha)
        self._base = None if base is None else named_base(base)
        self._looks = True  # at how the server came to its models
        told = scale_of_module(model)
        self._known = AcceptedRounds(scale=("model=", told) if told else None)
        self._lost, self._told_lost, self._closed = "", False, False
        self._background = Background()
        self._turn, self._process = RLock(), os.getpid()
        #: whether models are given as tensors that nobody else needs, which are dropped as they are written
        self.owns_models = False
        #: gives a round that is held back until its evaluation is there, before all is written
        self.waiting: Callable[[], None] | None = None
        if resume and (self.path / "run.json").exists():
            self._writer = RunWriter.open(self.path)
            try:
                self._go_on(self._writer)
            except BaseException:
                self._writer.close()
                raise
        else:
            on = "give force=True to replace it, resume=True to go on behind it, or another path"
            self._lock = lock_for_new_run(self.path, force=force, replace=on, elsewhere="give another path")
        self._identity = draw_identity() if self._writer is None else self._writer.run.identity

    @property
    def rounds(self) -> int:
        """The number of durable rounds."""
        return 0 if self._writer is None else self._writer.last

    @property
    def accepted(self) -> int:
        """The number of rounds that were taken, some of which may not be written yet."""
        return self._known.next - 1

    @property
    def is_closed(self) -> bool:
        """Whether no more rounds are taken."""
        return self._closed

    @property
    def has_partition(self) -> bool:
        """Whether it is known which samples each client has."""
        return self._parts is not None

    @property
    def model_name(self) -> str | None:
        """The name of the architecture, where one was given."""
        return self._model_name

    @property
    def run_info(self) -> Mapping[str, Any]:
        """What ``run.json`` says of the run; nothing before its first round."""
        return {} if self._writer is None else self._writer.run.info

    @_in_turn
    def round(
        self,
        *,
        clients: Mapping[int, Any] | Sequence[Any],
        start: Any = None,
        starts: Mapping[int, Any] | Sequence[Any] | None = None,
        global_: Any = None,
        mixing: Any = None,
        staleness: Mapping[int, int] | Sequence[int] | None = None,
        samples: Mapping[int, int] | Sequence[int] | None = None,
        weights: Mapping[int, float] | Sequence[float] | None = None,
        metrics: Mapping[str, float] | None = None,
    ) -> ServerStep | None:
        """Record the next round.

        A model is a module, its ``state_dict()``, arrays by name, or arrays in the order of ``model=``. Modules in
        wrappers (``DataParallel``, ``torch.compile``, ...) and their names go with plain ones.

        Args:
            clients: the models after local training, by the client's number; or a list of them, numbered from 0, or of
                pairs ``(number, model)`` as they have come. Of clients that were drawn a list does not say which.
            start: the model that was sent to them.
            starts: the models that they started from, one each, as ``clients``: of rounds without one start, as those
                of gossip, of personal models or of a server that does not wait. Kept as the clients' are.
            global_: the server's model afterwards.
            mixing: with ``starts``, how the nodes' next starts are made of these clients: an array [C, C] in the order
                of the clients' numbers, row i with the weights of client i's next start, or ``{i: {j: weight}}``.
                Without it the matrix is found from the next round's starts, where it can be.
            staleness: with ``starts``, how many rounds old each start was, by client.
            samples: n_k, by client; a Series of pandas by its index. Without them all clients weigh the same.
            weights: p_k, where they are not n_k / Σ n; they are divided by their sum.
            metrics: ``test_loss``, ``test_error``, ``train_loss``, ``lr`` and so on, as in ``metrics.csv``; numbers of
                other names are columns there, too.

        Returns:
            What explains ``global``; None where ``global_`` is missing. What is wrong there, clients that have diverged
            and models that were not copied come as a :class:`~fedscope.checkpoints.FedscopeWarning` too.

        Raises:
            FedscopeError: no clients, or one twice; models that do not fit together (the client is named) or have other
                shapes than those of ``model=``; a client without samples, a start or a row of ``mixing``, or one of
                these without a client; a client that ``partition`` does not name; in the first round a list of fewer
                clients than have rows there, which does not say who took part; one of them as a list, where clients
                came as others than 0, 1, 2, ..., or as a set, which has no order; rows of ``mixing`` that do not sum
                to 1; in the first round no ``start``, of whose updates sketches are asked for (later that is a
                warning); the recorder is closed, or was made in another process, of which this one is a fork.
        """
        if os.getpid() != self._process:
            raise FedscopeError(
                f"{self.path}: the recorder belongs to process {self._process}, of which this one is a fork, and what "
                "is written here would be lost; record in that process, or make a Recorder with another path here"
            )
        if self._closed:
            raise FedscopeError(f"{self.path}: the recorder is closed; make it again with resume=True")
        if self._ended():
            return None
        known, place = self._known.draft(), f"{self.path}@{self._known.next}"
        refuse_without_starts(place, start=start, starts=starts, mixing=mixing, staleness=staleness)
        counted, weighed = is_counted(clients), samples is not None or weights is not None
        replies = clients if isinstance(clients, Mapping | list | tuple) else ()
        if clause := unread_numbers(replies, place, counted=counted, weighed=weighed):
            known.tell("replies", f"{place}: {clause}")
        is_loop = self.waiting is None
        # a loop that has trained for hours is told of it, and goes on
        refuses = is_loop and (
            known.next == 1 or (known.resumed is not None and not known.resumed.round("last").own_starts)
        )
        models, layout = ModelReader(known, place, self._module, self._layout, is_loop).read(
            GivenModels(clients, start, global_, starts)
        )
        if known.next == 1 and (clause := _unregistered(start, global_, clients)):
            known.tell("unregistered", f"{place}: {clause}")
        beside = {"samples": samples, "weights": weights, "staleness": staleness}
        cohort = cohort_of(models, beside, mixing, place)
        self._check_partition(known, cohort, place, counted=counted)
        given = _numbers_of(known, {} if metrics is None else metrics, place)
        resumed, known.resumed = known.resumed, None
        if resumed is not None and models.start is not None and (clause := lost_between(resumed, models.start)):
            known.tell("resumed", f"{place}: {clause}")
        own = cohort.own
        sketches = None
        if refuses or not tell_unsketched(known, models, self._keeping, place):
            sketches = self._keeping.sketches(layout, models.single, cohort.models, place, own_starts=own is not None)
        tell_diverged(known, cohort, place)
        step = self._look(known, models, cohort, layout, place)
        if step is not None and not (isinstance(clients, Mapping) or counted or weighed):
            _tell_swapped_pairs(known, step, models, cohort, layout, place)
        kept = self._keeping.places(known.next, len(cohort.ids))
        numbers: dict[str, float | int | None] = {
            **given,
            "round": known.next,
            "participants": len(cohort.ids),
            **({} if step is None else step.metrics()),
            **self._distances(known, models, cohort, layout, place, whole=len(kept) == len(cohort.ids)),
        }
        info = self._new_run(known, layout) if self._writer is None else {}
        image = in_memory_file(
            known.next,
            layout,
            cohort.ids,
            cohort.models,
            models.single,
            {"client_samples": cohort.counts, "weights": cohort.p},
            numbers,
            kept=kept,
            sketches=sketches,
            identity=self._identity,
            own=own,
            release=self.owns_models,
        )
        self._accept(known, info, image, numbers)
        return step

    @_in_turn
    def flush(self) -> int:
        """Wait until all rounds are durable, and say how many are; warns where some could not be written.

        In a fork of the process, which has no part in the writing, it waits for nothing.
        """
        if os.getpid() != self._process:
            return self.rounds
        if self.waiting is not None:
            self.waiting()
        self._guard(self._background.wait)
        self._ended()
        return self.rounds

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Write what is waiting and let another recorder of this program have the folder; where that one is refused,
        this one goes on in it."""
        holder = None if self._closed else self._writer or self._lock
        if holder is None:
            yield
            return
        self.flush()
        with (self._writer or holder).lent():
            yield

    @_in_turn
    def close(self) -> None:
        """Write what is waiting and give the folder back; a second time, or in a fork of the process, does nothing."""
        if self._closed or os.getpid() != self._process:
            return
        try:
            self.flush()
        finally:
            self._closed = True
            try:
                self._background.close()  # before the folder is given back: the thread may still write
            finally:
                if self._writer is not None:
                    self._writer.close()
                if self._lock is not None:
                    self._lock.release()
            if self.rounds and (line := self._line()):
                print(visible(line))

    def _line(self) -> str:
        """Return the command that asks of a run that names code of one's own, which no question imports by itself;
        empty where a run names none."""
        info = self._writer.run.info if self._writer is not None else {}
        model, data = info.get("model", ""), info.get("data", {}).get("name", "")
        if not (":" in model or is_own_code(data)):
            return ""
        return (
            f"fedscope: {self.path} names your own code, which questions run only where you name it: "
            f"{self.question('subsets')}"
        )

    def question(self, command: str, *words: object) -> str:
        """Return a command that asks of the run, with the code of one's own that it names."""
        info = self.run_info
        model, data = info.get("model", ""), info.get("data", {}).get("name", "")
        options = [*(["--model", model] if ":" in model else []), *(["--data", data] if is_own_code(data) else [])]
        lacking = "".join(f" --{what} NAME" for what, name in (("model", model), ("data", data)) if not name)
        return f"{command_line(command, self.path, *words, *options)}{lacking}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _guard(self, work: Callable[[], None]) -> None:
        """Do what writes, or waits for the thread that does; a disk that fails ends the recording alone."""
        try:
            work()
        except (DiskFullError, OSError) as error:
            reason = "the disk is full" if isinstance(error, DiskFullError) else str(error)
            upto = f"it is readable up to round {self.rounds}" if self.rounds else "no round of it is recorded"
            self._lost = f"{self.path}: recording has ended, because {reason}; {upto}, and the training goes on"

    def _ended(self) -> bool:
        """Check whether recording has ended before its time; says so once."""
        if self._lost and not self._told_lost:
            self._told_lost = True
            warn_user(self._lost)
        return bool(self._lost)

    # --- of a round ---

    def _check_partition(self, known: AcceptedRounds, cohort: Cohort, place: str, *, counted: bool) -> None:
        """Compare a round's clients with the partition.

        Args:
            counted: whether the models came as a list.

        Raises:
            FedscopeError: one that it does not name; in the first round, a list of fewer than have rows.
        """
        if self._parts is None:
            return
        if counted and (clause := self._parts.fewer(len(cohort.ids))):
            give = "give clients={number: model} with the numbers of partition=, and samples= and weights= alike"
            # a loop that has trained for hours is told of it, and goes on
            if known.next == 1 or known.resumed is not None:
                raise FedscopeError(f"{place}: {clause}; {give}")
            known.tell("counted", f"{place}: {clause}, so that others' rows may be taken for theirs; {give}")
        if self._parts.named is not None:
            self._parts.refuse_others(cohort.ids, place)
        elif clause := self._parts.others(cohort.ids):  # of a run that is gone on with, and cannot have another one
            known.tell("partition", f"{place}: {clause}; what is asked of its own data leaves it out")
        if cohort.counts is not None and (clause := self._parts.other_counts(cohort.ids, cohort.counts)):
            known.tell("counts", f"{place}: {clause}")

    def _look(
        self, known: AcceptedRounds, models: RoundModels, cohort: Cohort, layout: Layout, place: str
    ) -> ServerStep | None:
        """Find out how the server came to its model; None where there is none, or nobody asks."""
        if not self._looks or models.global_ is None:
            return None
        known.server = known.server or ServerIdentifier(layout)
        step, statistics = known.server.look(models.start, cohort.models, cohort.p, models.global_)
        if step.rule is Rule.RATE and step.rate < 0:
            known.tell("sign", f"{place}: {step}")
        if step.rule is Rule.UPDATES:
            known.tell("updates", f"{place}: {step}; give each client's model, start and its update together")
        if step.rule is Rule.LATE_START:
            known.tell("start", f"{place}: {step}; give as start a copy of the model that the clients were sent")
        # a framework hands over both models itself, and its strategies may leave a round out
        if step.rule is Rule.UNCHANGED and self.waiting is None and "memory" not in known.said:
            known.tell(
                "unchanged",
                f"{place}: global is start, bit for bit, though the clients have moved; unless the server has left "
                "this round out, start or global_ was taken at the wrong time: give as start a copy of the model that "
                "the clients were sent, and as global_ the server's model after the round",
            )
        if self.waiting is None and known.server.again == _AGAIN:
            known.tell(
                "again",
                f"{place}: start is the same in the last {_AGAIN + 1} rounds, though global was another model each "
                "time; give as start a copy of the model that the clients of the round were sent, unless all of these "
                "began from one",
            )
        if statistics:
            known.tell("statistics", f"{place}: statistics were not averaged: {'; '.join(statistics)}")
        return step

    def _distances(
        self, known: AcceptedRounds, models: RoundModels, cohort: Cohort, layout: Layout, place: str, *, whole: bool
    ) -> dict[str, float]:
        """Return the columns of how far clients have gone, and of how far starts lie apart where they are not kept.

        Args:
            whole: whether all clients of the round are kept.
        """
        own = cohort.own
        return {
            **(drift_of(known, models, cohort, layout, place) if self._drift else {}),
            **({} if own is None or whole else distances_of(layout, own.models, cohort.models)),
        }

    def _accept(
        self,
        known: AcceptedRounds,
        info: Mapping[str, Any],
        image: Iterable[memoryview],
        numbers: Mapping[str, float | int | None],
    ) -> None:
        """Tell what is to be told of a round, have it written, and keep what is known now.

        Nothing refuses the round any more, but a filter that makes errors of warnings.

        Args:
            info: ``run.json`` of the run that the first round makes.
        """
        for sentence in known.sentences:
            warn_user(sentence)
        if self._writer is None:
            self._guard(partial(self._begin, info))
        number, writer = known.next, self._writer
        if writer is not None:
            self._guard(lambda: self._background.add(lambda: writer.write_image(number, image, numbers)))
        known.next += 1
        self._known = known

    # --- the run ---

    def _go_on(self, writer: RunWriter) -> None:
        """Take over where a run stands.

        Raises:
            FedscopeError: it was trained here; it is of another model, other data or another partition than was given,
                or of adapters of another scale or base.
        """
        run = writer.run
        if not run.is_foreign:
            on = command_line("train", "--resume", run.path, *code_words(run.info))
            raise FedscopeError(f"{run.path} was trained by fedscope; go on with it: {on}")
        had, data = run.info.get("data", {}), self._data.said
        has = {"model": run.info.get("model"), "data": had.get("name")}
        for what, given in (("model", self._model_name), ("data", data.get("name"))):
            if given not in (None, has[what]):
                was = f"with {what} {has[what]}" if has[what] else f"without {what}"
                raise FedscopeError(f"{run.path} was recorded {was}, not {given}; leave {what}= out to go on with it")
        for what, told in self._named.items():
            if told != (recorded := run.info.get(what)):
                was = f"without {what}" if recorded is None else f"with {what} {recorded!r}"
                raise FedscopeError(f"{run.path} was recorded {was}, not {told!r}; leave {what}= out to go on with it")
        refuse_other_adapters(run.path, run.info, self._alpha, self._base)
        alphas, scale = recorded_scale(run.path, run.info, self._known.scale)
        if "name" in data:
            refuse_changed(run.path, had)
        if "sha256" in data and had.get("sha256") not in self._data.sums:
            raise FedscopeError(f"{run.path} was recorded with other arrays; leave data= out to go on with it")
        if data.get("standardise") not in (None, had.get("standardise")):
            said = f"standardise={had['standardise']}" if "standardise" in had else "no standardise="
            raise FedscopeError(f"{run.path} was recorded with {said}; leave standardise= out to go on with it")
        if self._parts is not None and not self._parts.is_same(run.partition):
            raise FedscopeError(
                f"{run.path} was recorded with another partition; leave partition= out to go on with it"
            )
        if self._parts is None and run.partition is not None:
            self._parts = GivenPartition(run.partition)
        server = ServerIdentifier(run.layout)
        if run.rounds:
            server.recall(run.round("last"))
        self._known = AcceptedRounds(
            writer.last + 1, scale=scale, alphas=alphas, server=server, columns=writer.further, resumed=run
        )

    def _new_run(self, known: AcceptedRounds, layout: Layout) -> dict[str, Any]:
        """Return what ``run.json`` says of the run that a first round makes.

        Raises:
            FedscopeError: an alpha or a base that is not the models'; data that have changed since they were given.
        """
        from ... import __version__

        self._data.refuse_changed(self.path)
        info = {
            "created": datetime.now(UTC).isoformat(timespec="microseconds"),
            "versions": {"fedscope": __version__, "python": sys.version.split()[0]},
            "identity": self._identity,
            "source": self._source,
            **self._named,
            "layout": layout.to_json(),
            **({} if self._model_name is None else {"model": self._model_name}),
            **({"data": self._data.said} if self._data.said else {}),
            **self.about,
            **settings_of_adapters(layout.names, known.scale or known.alphas, self._alpha, self._base),
        }
        if self._parts is not None:
            clients, classes = self._parts.partition.label_counts.shape
            info |= {"clients": clients, "classes": classes}
        return info

    def _begin(self, info: Mapping[str, Any]) -> None:
        """Make the run."""
        assert self._lock is not None
        fill_run(self.path, info, None, None if self._parts is None else self._parts.partition, self._data.write)
        self._writer, self._lock = RunWriter(Run.open(self.path), self._lock), None  # the writer's now
        self._data.forget()

    @property
    def _layout(self) -> Layout | None:
        """The layout of the run; None before its first round."""
        return None if self._writer is None else self._writer.run.layout


def _unregistered(start: Any, global_: Any, clients: Any) -> str:
    """Say what the first module of a round lacks in its ``state_dict()``, as a clause; "" without modules."""
    given = clients.values() if isinstance(clients, Mapping) else clients if isinstance(clients, list | tuple) else ()
    models = (one[1] if isinstance(one, tuple) and len(one) == 2 else one for one in (start, global_, *given))
    module = next((one for one in models if callable(getattr(one, "named_modules", None))), None)
    return "" if module is None else say_unregistered(module)


def _tell_swapped_pairs(
    known: AcceptedRounds, step: ServerStep, models: RoundModels, cohort: Cohort, layout: Layout, place: str
) -> None:
    """Say once of pairs that what was taken for the clients' numbers is what their models were weighed with."""
    if "pairs" not in known.said and weighs_by_numbers(step, models, cohort, layout):
        known.tell(
            "pairs",
            f"{place}: the first parts of clients= were taken for the clients' numbers, but as numbers of samples "
            f"they make global the weighted mean; {SAMPLES_OF_PAIRS}",
        )


def _numbers_of(known: AcceptedRounds, metrics: Mapping[str, Any], place: str) -> dict[str, float | None]:
    """Read a round's numbers, which may have columns of their own; tells which questions misread, or no table has."""
    given = read_metrics(metrics, place)
    known.columns = further([known.columns, given])
    for told, clause in (("metrics", warn_of_numbers(given)), ("columns", warn_of_columns(given, known.columns))):
        if clause:
            known.tell(told, f"{place}: {clause}")
    return given
