"""Records a run that another program trains, a round at a time."""

from __future__ import annotations

import math
import shlex
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np

from ..io.atomic import WriterLock
from ..io.background import Background
from ..io.errors import DiskFullError, FedscopeError, FedscopeWarning, list_few
from ..io.keywords import speak_keywords
from ..io.visible_text import visible
from ..models.adapters import (
    about_adapters,
    checked_alpha,
    factors_in,
    refuse_other_adapters,
    refuse_other_scale,
    scale_of_module,
    settings_of_adapters,
)
from ..models.expected import ExpectedModel
from ..models.weights import Layout
from ..rounds.drift import NUMBERS, Block, drift_in
from ..rounds.metrics import COLUMNS, COUNTED, MADE, MOST_OWN, further, is_column, is_own
from ..rounds.run_identity import draw_identity
from ..runs.folders import fill_run, lock_for_new_run
from ..runs.run import Run
from ..runs.writer import RunWriter
from .client_order import is_counted, refuse_uncounted
from .coerce_models import (
    ModelTensors,
    architecture,
    coerce_model,
    difference,
    numbers_of,
    other_shape,
    scale_of_tensors,
)
from .given_partition import GivenPartition, labels_of, partition_of
from .identify_server import Rule, ServerIdentifier, ServerStep
from .in_memory_round import in_memory_file
from .inputs import named_base, named_method, refuse_changed
from .labelled import by_index
from .own_starts import OwnStarts, distances_of, read_mixing, read_staleness, refuse_unmatched, refuse_without_starts
from .resumed_rounds import lost_between
from .retention import ClientRetention
from .shared_memory import one_memory
from .stored_data import coerce_data, is_own_code

#: client numbers are stored as int64
LARGEST_ID = 2**63 - 1


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
        labels: of the training split's samples, whole numbers from 0.
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
        self.path = Path(path).absolute()
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
        self._layout: Layout | None = None
        self._expected: ExpectedModel | None = None  # what the models of all rounds should look like
        self._scale: tuple[object, dict[str, Any]] | None = None
        self._alphas: tuple[object, dict[str, Any]] | None = None
        self._alpha = None if lora_alpha is None else checked_alpha(lora_alpha)
        self._base = None if base is None else named_base(base)
        self._check: ServerIdentifier | None = None
        self._looks = True  # at how the server came to its models
        self._said: set[str] = set()
        self._columns: tuple[str, ...] = ()  # of the run's table, that only some runs have
        self._resumed: Run | None = None  # until its first round is there
        self._lost, self._closed = "", False
        self._background = Background()
        #: whether models are given as tensors that nobody else needs, which are dropped as they are written
        self.owns_models = False
        #: gives a round that is held back until its evaluation is there, before all is written
        self.waiting: Callable[[], None] | None = None
        if resume and (self.path / "run.json").exists():
            self._writer = RunWriter.open(self.path)
            try:
                self._go_on(self._writer.run)
                self._columns = self._writer.further
            except BaseException:
                self._writer.close()
                raise
        else:
            on = "give force=True to replace it, resume=True to go on behind it, or another path"
            self._lock = lock_for_new_run(self.path, force=force, replace=on, elsewhere="give another path")
        self._next = self._writer.last + 1 if self._writer is not None else 1
        self._identity = draw_identity() if self._writer is None else self._writer.run.identity

    @property
    def rounds(self) -> int:
        """The number of durable rounds."""
        return 0 if self._writer is None else self._writer.last

    @property
    def run_info(self) -> Mapping[str, Any]:
        """What ``run.json`` says of the run; nothing before its first round."""
        return {} if self._writer is None else self._writer.run.info

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
                pairs ``(number, model)`` as they have come.
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
                these without a client; a client that ``partition`` does not name; one of them as a list, where clients
                came as others than 0, 1, 2, ..., or as a set, which has no order; rows of ``mixing`` that do not sum
                to 1; no ``start``, of whose updates sketches are asked for; the recorder is closed.
        """
        if self._closed:
            raise FedscopeError(f"{self.path}: the recorder is closed; make it again with resume=True")
        if self._ended():
            return None
        number, place = self._next, f"{self.path}@{self._next}"
        refuse_without_starts(place, start=start, starts=starts, mixing=mixing, staleness=staleness)
        models = self._models(number, clients, start, global_, starts)
        ids = sorted(models.clients)
        samples, weights, staleness = (
            _by_client(given, models.clients, place, what)
            for what, given in (("samples", samples), ("weights", weights), ("staleness", staleness))
        )
        own = self._own_starts(models, ids, mixing, staleness, place)
        counts = _samples(samples, ids, place)
        p = _weights(weights, counts, ids, place)
        if self._parts is not None:
            if self._parts.named is not None:
                self._parts.refuse_others(ids, place)
            elif clause := self._parts.others(ids):  # of a run that is gone on with, and cannot have another one
                self._tell("partition", f"{place}: {clause}; what is asked of its own data leaves it out")
            if counts is not None and (clause := self._parts.other_counts(ids, counts)):
                self._tell("counts", f"{place}: {clause}")
        given_numbers = _numbers({} if metrics is None else metrics, place)
        self._columns = further([self._columns, given_numbers])
        lacking = _in_no_table(given_numbers, self._columns)
        for told, clause in (("metrics", _other_numbers(given_numbers)), ("columns", lacking)):
            if clause:
                self._tell(told, f"{place}: {clause}")
        resumed, self._resumed = self._resumed, None
        if resumed is not None and models.start is not None and (clause := lost_between(resumed, models.start)):
            self._tell("resumed", f"{place}: {clause}")
        cohort = [models.clients[k] for k in ids]
        single = {"start": models.start, "global": models.global_}
        sketches = self._keeping.sketches(models.layout, single, cohort, place, own_starts=own is not None)
        for k, model in zip(ids, () if own is None else own.models, strict=own is not None):
            if diverged := _not_finite(model):
                self._tell(
                    f"start {k}",
                    f"{place}: the start of client {k} has diverged ({diverged} is not finite); it is recorded as is",
                )
        for k, model in zip(ids, cohort, strict=True):
            if diverged := _not_finite(model):
                self._tell(
                    f"client {k}",
                    f"{self.path}@{number}: client {k} has diverged ({diverged} is not finite); it is recorded as is",
                )
        step = None
        if self._looks and models.global_ is not None:
            self._check = self._check or ServerIdentifier(models.layout)
            step, statistics = self._check.look(models.start, cohort, p, models.global_)
            if step.rule is Rule.RATE and step.rate < 0:
                self._tell("sign", f"{self.path}@{number}: {step}")
            if statistics:
                self._tell("statistics", f"{self.path}@{number}: statistics were not averaged: {'; '.join(statistics)}")
        kept = self._keeping.places(number, len(ids))
        apart = {} if own is None or len(kept) == len(ids) else distances_of(models.layout, own.models, cohort)
        numbers: dict[str, float | int | None] = {
            **given_numbers,
            "round": number,
            "participants": len(ids),
            **({} if step is None else step.metrics()),
            **(self._drift_of(models, cohort, p, place) if self._drift else {}),
            **apart,
        }
        columns = {"client_samples": counts, "weights": p}
        also: dict[str, Any] = {"kept": kept, "sketches": sketches, "identity": self._identity, "own": own}
        also["release"] = self.owns_models
        image = in_memory_file(number, models.layout, ids, cohort, single, columns, numbers, **also)
        if self._writer is None:  # last, so that a first round that is refused leaves what was there
            self._begin(models.layout)
        writer = self._writer
        assert writer is not None
        self._give(lambda: writer.write_image(number, image, numbers))
        self._next += 1
        return step

    def flush(self) -> int:
        """Wait until all rounds are durable, and say how many are; warns where some could not be written."""
        if self.waiting is not None:
            self.waiting()
        self._give(None)
        self._ended()
        return self.rounds

    def close(self) -> None:
        """Write what is waiting and give the folder back; a second time does nothing."""
        if self._closed:
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
        options = [*(["--model", model] if ":" in model else []), *(["--data", data] if is_own_code(data) else [])]
        lacking = "".join(f" --{what} NAME" for what, name in (("model", model), ("data", data)) if not name)
        return (
            f"fedscope: {self.path} names your own code, which questions run only where you name it: "
            f"{shlex.join(['fedscope', 'subsets', str(self.path), *options])}{lacking}"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _give(self, work: Callable[[], None] | None) -> None:
        """Hand work to the writing thread, or with None wait for it; what fails there ends the recording alone."""
        try:
            if work is None:
                self._background.wait()
            else:
                self._background.add(work)
        except (DiskFullError, OSError) as error:
            reason = "the disk is full" if isinstance(error, DiskFullError) else str(error)
            upto = f"it is readable up to round {self.rounds}" if self.rounds else "no round of it is recorded"
            self._lost = f"{self.path}: recording has ended, because {reason}; {upto}, and the training goes on"

    def _ended(self) -> bool:
        """Check whether recording has ended before its time; says so once."""
        if self._lost:
            self._tell("lost", self._lost)
        return bool(self._lost)

    def _tell(self, what: str, sentence: str) -> None:
        if what not in self._said:
            self._said.add(what)
            warnings.warn(sentence, FedscopeWarning, stacklevel=3)

    # --- what is given ---

    def _models(self, number: int, clients: Any, start: Any, global_: Any, starts: Any) -> _Models:
        """Coerce a round's models to the run's layout; the first round makes the run."""
        place = f"{self.path}@{number}"
        by_id, began = _numbered(clients, place, "clients"), {}
        names = None if self._module is None else tuple(self._module.arrays)
        held: list[Any] = []  # or another tensor would be where one of them was, which a state_dict() has made
        read = {k: self._read(place, f"client {k}", model, names, held) for k, model in by_id.items()}
        if starts is not None:
            if is_counted(starts):
                refuse_uncounted(starts, by_id, place, "starts")
            given_starts = _numbered(starts, place, "starts")
            refuse_unmatched(place, given_starts, by_id)
            if all(given_starts[k] is by_id[k] for k in by_id):
                self._tell(
                    "same",
                    f"{place}: starts= are the very models of clients=, so that nobody has moved; copy them before "
                    "they train: starts = [copy.deepcopy(net) for net in nets]",
                )
            began = {
                k: self._read(place, f"the start of client {k}", model, names, held)
                for k, model in given_starts.items()
            }
        sent = None if start is None else self._read(place, "start", start, names, held)
        end = None if global_ is None else self._read(place, "global_", global_, names, held)
        self._refuse_other_scales(place, {"start": start, "global_": global_, **_by_number(by_id)})
        if self._expected is None:
            first = self._module or _first_of(sent, end, read, began)
            own = _first_of(sent, end, read, began)
            # adapters lack what they adapt, so that not all names of the architecture are theirs
            part = self._module is not None and not own.goes_with(self._module)
            if (self._module is None or part) and self._layout is None:
                first, notes = own.without_wrappers()
                for note in notes:
                    self._tell(note, f"{place}: {note}")
            self._expected = first.expected(self._layout)
            if part:  # that two tensors of the first model are one is nobody's word
                self._expected = replace(self._expected, tied={})
        read = {k: self._fitted(place, f"client {k}", model) for k, model in read.items()}
        began = {k: self._fitted(place, f"the start of client {k}", model) for k, model in began.items()}
        sent = None if sent is None else self._fitted(place, "start", sent)
        end = None if end is None else self._fitted(place, "global_", end)
        layout = self._layout
        if layout is None:
            first = sent or end or next(iter(read.values()))
            # the order is the first one's, and what is trained a module's, wherever in the round it is
            layout = first.layout((self._module or _first_of(sent, end, read, began)).layout())
            if not layout.parameters:
                kinds = list_few(dict.fromkeys(entry.dtype for entry in layout.entries), 3)
                raise FedscopeError(
                    f"{place}: the models hold no weights, only {kinds} ({list_few(layout.names, 3)}); give what is "
                    "trained as floats, as weight.astype(np.float32)"
                )
        if adapters := about_adapters(layout.names):
            self._tell("adapters", f"{place}: {adapters}")
        all_ = {f"client {k}": one for k, one in read.items()}
        all_ |= {f"the start of client {k}": one for k, one in began.items()}
        if adapters:
            self._refuse_other_alphas(place, {**all_, "start": sent, "global_": end})
        for what, given in (("start", sent), ("global_", end), *all_.items()):
            if given is not None and (clause := difference(given, layout)):
                raise FedscopeError(f"{place}: {what} {clause}; give models of one architecture")
        if self._module is not None and (clause := other_shape(layout, self._module)):
            raise FedscopeError(f"{place}: {clause}; give the architecture of these models as model=")
        # recorders of frameworks give what they have copied, and importers what they have read
        loop = self.waiting is None and not any(isinstance(one, ModelTensors) for one in (start, *by_id.values()))
        if loop and "same" not in self._said and (clause := one_memory(sent, end, read, began)):
            self._tell("memory", f"{place}: {clause}")
        return _Models(layout, read, sent, end, None if starts is None else began)

    def _own_starts(
        self, models: _Models, ids: Sequence[int], mixing: Any, staleness: Any, place: str
    ) -> OwnStarts | None:
        """Put what is said of clients' own starts in the order of the clients; None where they have one start."""
        if models.starts is None:
            return None
        ages = read_staleness(_column(staleness, ids, place, "staleness"), place)
        return OwnStarts([models.starts[k] for k in ids], read_mixing(mixing, ids, place), ages)

    def _read(self, place: str, what: str, model: Any, names: Sequence[str] | None, held: list[Any]) -> ModelTensors:
        if model is None:
            raise FedscopeError(f"{place}: {what} has no model; leave it out")
        try:
            return coerce_model(model, names, held)
        except FedscopeError as error:
            raise FedscopeError(f"{place}: {what}: {error}") from None

    def _fitted(self, place: str, what: str, model: ModelTensors) -> ModelTensors:
        """Rename a model's tensors as those of the others; says once what was changed for that."""
        expected = self._expected
        assert expected is not None, "the first model has said it"
        # of two tensors that were one in the first model, and nobody says that they are one
        if self._module is None and all(name in model.arrays for name in expected.tied):
            expected = replace(expected, tied={})
        fitted, notes = model.fitted(f"{place}: {what}", expected)
        for note in notes:
            self._tell(note, f"{place}: {what}: {note}")
        return fitted

    def _refuse_other_scales(self, place: str, given: Mapping[str, Any]) -> None:
        """Refuse adapters whose products are scaled differently, as far as their modules say it."""
        for what, model in given.items():
            if scale := scale_of_module(model):
                self._scale = self._scale or (f"{place}: {what}", scale)
                refuse_other_scale(*self._scale, f"{place}: {what}", scale)

    def _refuse_other_alphas(self, place: str, given: Mapping[str, ModelTensors | None]) -> None:
        """Refuse the same as far as tensors say it, as kohya's adapters have them."""
        for what, model in given.items():
            if model is not None and (scale := scale_of_tensors(model)):
                self._alphas = self._alphas or (f"{place}: {what}", scale)
                if not _is_mean(scale["alpha"], self._alphas[1]["alpha"]):
                    refuse_other_scale(*self._alphas, f"{place}: {what}", scale)

    def _drift_of(self, models: _Models, cohort: Sequence[ModelTensors], p: np.ndarray, place: str) -> dict[str, float]:
        """How far the clients' updates agree; nothing where there are none, or of adapters."""
        if models.start is None or not cohort:
            which = "start= and clients=" if models.starts is None else "one start for all clients"
            self._tell("drift", f"{place}: no drift is measured without {which}, which updates are made of")
            return {}
        if factors_in(models.layout.names):
            self._tell("drift", f"{place}: of adapters no drift is measured; fedscope updates compares their products")
            return {}
        start, end = models.start, models.global_

        def blocks() -> Iterator[Block]:
            for entry in models.layout.parameters:
                *rows, sent, made = (
                    None if one is None else numbers_of(one.arrays[entry.name], one.dtypes[entry.name]).reshape(-1)
                    for one in (*cohort, start, end)
                )
                assert sent is not None
                step = max(1, NUMBERS // len(rows))
                for at in range(0, len(sent), step):
                    where = slice(at, at + step)
                    values = np.stack([row[where] for row in rows if row is not None])
                    yield sent[where], values, None if made is None else made[where]

        return drift_in(blocks(), np.asarray(p, np.float64))

    def _go_on(self, run: Run) -> None:
        """Take over where a run stands.

        Raises:
            FedscopeError: it was trained here; it is of another model, other data or another partition than was given,
                or of adapters of another scale or base.
        """
        if not run.is_foreign:
            raise FedscopeError(
                f"{run.path} was trained by fedscope; go on with it: fedscope train --resume {run.path}"
            )
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
        if "name" in data:
            refuse_changed(run.path, had)
        if data.get("sha256") not in (None, had.get("sha256")):
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
        self._layout, self._resumed = run.layout, run
        self._check = ServerIdentifier(run.layout)
        if run.rounds:
            self._check.recall(run.round("last"))

    def _begin(self, layout: Layout) -> None:
        """Make the run."""
        from ... import __version__

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
            **settings_of_adapters(layout.names, self._scale or self._alphas, self._alpha, self._base),
        }
        partition = None if self._parts is None else self._parts.partition
        if partition is not None:
            clients, classes = partition.label_counts.shape
            info |= {"clients": clients, "classes": classes}
        assert self._lock is not None
        try:
            fill_run(self.path, info, None, partition, self._data.write)
            self._writer = RunWriter(Run.open(self.path), self._lock)
        except BaseException:
            self._lock.release()
            raise
        self._lock = None  # the writer's now
        self._layout = self._writer.run.layout


def _numbered(given: Any, place: str, what: str) -> dict[int, Any]:
    """Models by the clients' numbers, given by number, as a list, or as pairs.

    Args:
        what: ``clients`` or ``starts``.

    Raises:
        FedscopeError: none; in another form; a client twice, or with another number than a whole one from 0.
    """
    if isinstance(given, Mapping):
        pairs = list(given.items())
    else:
        pairs = list(given) if isinstance(given, list | tuple) else []
        if is_counted(pairs):
            pairs = list(enumerate(pairs))
    if not pairs:
        none = given is None or (isinstance(given, Sized) and not len(given))
        how = f"no {what}" if none else f"{what} as {type(given).__name__}"
        raise FedscopeError(f"{place}: {how} were given; give {what}={{number: model}}, or a list")
    found: dict[int, Any] = {}
    for k, model in pairs:
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 0 <= k <= LARGEST_ID:
            models = "models.values()" if isinstance(given, Mapping) else "models"
            raise FedscopeError(
                f"{place}: client {k!r} is not a whole number from 0 to 2^63 - 1; number the clients: "
                f"{what}=dict(enumerate({models})), alike in each round"
            )
        if int(k) in found:
            raise FedscopeError(
                f"{place}: client {k} is there twice in {what}=; give one model of it, and what came later in the next "
                "round"
            )
        found[int(k)] = model
    return found


def _is_mean(alphas: Mapping[str, float], of: Mapping[str, float]) -> bool:
    """Check whether alphas are the others but for the rounding of a mean of equal numbers, in bfloat16 at worst."""
    return alphas.keys() == of.keys() and all(abs(alphas[name] - of[name]) <= 0.01 * abs(of[name]) for name in of)


def _by_number(clients: Mapping[Any, Any]) -> dict[str, Any]:
    return {f"client {k}": model for k, model in clients.items()}


def _first_of(sent: ModelTensors | None, end: ModelTensors | None, *read: Mapping[int, ModelTensors]) -> ModelTensors:
    """Choose the model that says how the others should look, where no architecture does: a module without a wrapper's
    names if any is one."""
    there = [model for model in (sent, end, *(one for some in read for one in some.values())) if model is not None]
    return next((model for model in there if model.parameters is not None), there[0])


@dataclass(frozen=True)
class _Models:
    """A round's models, read, and the layout that all of them have."""

    layout: Layout
    clients: dict[int, ModelTensors]
    start: ModelTensors | None
    global_: ModelTensors | None
    starts: dict[int, ModelTensors] | None = None


def _samples(given: Any, ids: Sequence[int], place: str) -> np.ndarray | None:
    """n_k in the order of the clients.

    Raises:
        FedscopeError: no whole numbers from 0; of other clients.
    """
    counts = _column(given, ids, place, "samples")
    if counts is not None and not ((counts >= 0) & (counts < 2**53) & (counts % 1 == 0)).all():
        raise FedscopeError(
            f"{place}: samples are {list_few(counts.tolist(), 4)}; give whole numbers from 0 on, and others as weights="
        )
    return counts


def _weights(given: Any, counts: np.ndarray | None, ids: Sequence[int], place: str) -> np.ndarray:
    """p in the order of the clients, sum 1.

    Raises:
        FedscopeError: negative or not finite, or all of them 0; of other clients.
    """
    p = _column(given, ids, place, "weights")
    p = p if p is not None else counts if counts is not None else np.ones(len(ids))
    if not (np.isfinite(p).all() and (p >= 0).all() and p.max() > 0):
        raise FedscopeError(
            f"{place}: the clients' weights are {list_few(p.tolist(), 4)}; give numbers from 0 on, at least one above 0"
        )
    p = p / p.max()  # so that no sum is infinite
    shares: np.ndarray = p / p.sum()
    return shares


def _by_client(given: Any, clients: Mapping[int, Any], place: str, what: str) -> Any:
    """Numbers beside the clients by what names them: a mapping, or a list that is counted as the clients came.

    Raises:
        FedscopeError: numbers in no order; a list beside clients that came in another.
    """
    found = by_index(given, f"{place}: {what}=", f"{what}={{number: ...}}")
    refuse_uncounted(found, clients, place, what)
    return found


def _column(given: Any, ids: Sequence[int], place: str, what: str) -> np.ndarray | None:
    """Numbers in the order of the clients.

    Raises:
        FedscopeError: of other clients; no numbers.
    """
    if given is None:
        return None
    try:
        by_id = dict(enumerate(given)) if not isinstance(given, Mapping) else dict(given)
    except TypeError:  # one number
        raise FedscopeError(f"{place}: {what}= is {given!r}; give one of each client: {what}={{number: ...}}") from None
    known = set(ids)
    if other := [k for k in by_id if k not in known and not isinstance(k, int | np.integer)]:
        raise FedscopeError(
            f"{place}: {what}= has {other[0]!r}, which is no client's number; number them as clients= does "
            f"({list_few(ids, 6)})"
        )
    if lacking := [k for k in ids if k not in by_id]:
        raise FedscopeError(f"{place}: client {lacking[0]} has a model, but no {what}; give {what} of all clients")
    if other := [k for k in by_id if k not in known]:
        raise FedscopeError(
            f"{place}: client {other[0]} has {what}, but no model (clients {list_few(ids, 6)} have); give both or "
            "neither"
        )
    try:
        return np.array([float(by_id[k]) for k in ids])
    except (TypeError, ValueError, OverflowError):
        raise FedscopeError(
            f"{place}: {what} are {list_few([by_id[k] for k in ids], 4)}, not numbers; give one number a client"
        ) from None


def _numbers(metrics: Mapping[str, Any], place: str) -> dict[str, float | None]:
    """Make a round's numbers plain floats, whatever they were given as.

    Raises:
        FedscopeError: they have no names, or those of what is recorded besides; what is no number.
    """
    if not isinstance(metrics, Mapping):
        raise FedscopeError(
            f"{place}: metrics= is {type(metrics).__name__}; give numbers by name, as metrics={{'test_error': 0.1}}"
        )
    found: dict[str, float | None] = {}
    for name, value in metrics.items():
        if not isinstance(name, str):
            raise FedscopeError(f"{place}: the metric {name!r} is not a name; give a word, as 'test_error'")
        if name in COUNTED:
            continue  # as the run counts them itself
        if MADE.fullmatch(name):
            raise FedscopeError(
                f"{place}: the metric {name} is called like a column that the run makes itself; give it another name, "
                f"as 'my_{name}'"
            )
        try:
            found[name] = None if value is None else float(value)
        except (TypeError, ValueError, OverflowError):
            raise FedscopeError(f"{place}: the metric {name} is {value!r}, not a number; give float(...)") from None
    return found


def _other_numbers(numbers: Mapping[str, float | None]) -> str:
    """Warn of numbers that questions would misread or leave out: an error that is no share, an accuracy without the
    error; empty where there is nothing of the kind.

    >>> _other_numbers({"test_error": 4.7}).partition(",")[0], _other_numbers({"acc": 0.9}).partition(",")[0]
    ('test_error is 4.7', "no question takes 'acc'")
    >>> _other_numbers({"test_error": 0.047, "train_error": None, "acc": 0.953, "test_loss": 3})
    ''
    """
    for name, value in numbers.items():
        share = "error" in name and is_column(name) and not is_own(name)
        if share and value is not None and not math.isnan(value) and not 0 <= value <= 1:
            return (
                f"{name} is {value:g}, and an error is a share from 0 to 1; it is recorded so, and curves and table "
                "take it for a share"
            )
    taken = ("test_error", "averaged_test_error")
    accuracy = next((name for name in numbers if "acc" in name.lower().split("_") or "accuracy" in name.lower()), None)
    if accuracy is None or any(one in numbers for one in taken):
        return ""
    return (
        f"no question takes {accuracy!r}, which is a column of metrics.csv; give test_error, 1 less the accuracy, "
        "for curves, table and the comparison with the data"
    )


def _in_no_table(numbers: Iterable[str], columns: Sequence[str]) -> str:
    """Warn of a name that no column has; empty where all are columns.

    Args:
        columns: further ones of the table.

    >>> _in_no_table(["lr", "top 5"], []).partition(",")[0], _in_no_table(["lr", "val/top-5"], ["val/top-5"])
    ("the metric 'top 5' stays in the rounds' files", '')
    """
    odd = next((name for name in numbers if name not in COLUMNS and name not in columns), None)
    if odd is None:
        return ""
    if is_own(odd):
        return (
            f"the metric {odd!r} stays in the rounds' files, and is in no table, which has {MOST_OWN} columns of a "
            "loop's own; give fewer names, as the mean over clients in place of one each"
        )
    return (
        f"the metric {odd!r} stays in the rounds' files, and is in no table; for a column give it a name of letters "
        "a-z, digits and _ . / @ -, 80 at most"
    )


def _not_finite(model: ModelTensors) -> str:
    """Find the first floating tensor with a NaN or an infinity; empty where there is none."""
    for name, array in model.arrays.items():
        values = numbers_of(array, model.dtypes[name])
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            return name
    return ""


def describe_server(rows: Mapping[int, Mapping[str, float]]) -> str:
    """Describe for ``ls`` how a recorded run's server came to its models; empty where that was not looked at.

    Args:
        rows: the numbers of rounds.
    """
    steps = {number: step for number, row in sorted(rows.items()) if (step := ServerStep.of_metrics(row)) is not None}
    if not steps:
        return ""
    last = max(steps)
    same = last
    for number in sorted(steps, reverse=True):
        if not steps[number].is_like(steps[last]):
            break
        same = number
    if same == min(steps):
        which = "all" if len(steps) == len(rows) else "the"
        known = "" if len(steps) == len(rows) else " that were looked at"
        when = f"in {which} {len(steps)} rounds{known}" if len(steps) > 1 else f"in round {last}"
    else:
        when = f"from round {same} on" if same < last else f"in round {last}, unlike before"
    return f"{steps[last]} ({when})"
