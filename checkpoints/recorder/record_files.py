"""A run made of model files, a round at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..io.errors import FedscopeError, list_few, spans
from ..io.warn_user import warn_user
from ..models.adapters import alphas_of, checked_alpha, settings_of_adapters, settings_of_run
from ..models.weights import BFLOAT16, Weights, to_bfloat16
from ..rounds.round import Round
from ..runs.folders import refuse_occupied
from ..runs.run import Run
from .coerce_models import ModelTensors, numbers_of
from .file_copies import FoundCopies
from .file_samples import SampleCounts, counts_of
from .inputs import named_base, named_data
from .match_files import CheckpointFiles, RoundFiles
from .read_files import FileReader, NamedArchitecture
from .recorder import Recorder

#: what ``run.json`` calls the program that recorded such a run
SOURCE = "fedscope import"
#: files that ``run.json`` names, at most
NAMED = 1000


def record_files(
    files: CheckpointFiles,
    out: Path,
    *,
    architecture: NamedArchitecture | None = None,
    samples: Any = None,
    model: str | None = None,
    data: Any = None,
    standardise: bool | None = None,
    named: Mapping[str, Any] | None = None,
    lora_alpha: float | None = None,
    base: Path | str | None = None,
    aligned: AligningClients | None = None,
    served: MakingGlobal | None = None,
    force: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> list[str]:
    """Record files as the rounds of a new run; two rounds of models are in memory at most.

    What an import with the same files and names left when it was interrupted is gone on with: its rounds stay, and
    their files are read again, to compare them.

    A round without a start begins at the global model of the round before, if the files have that; one without a global
    model gets what ``served`` makes of its clients, by default their mean Σ p_k w_k, summed in float64 and rounded to
    the models' precision; whole numbers are those of the client with the largest p.

    Args:
        architecture: what the models should look like.
        samples: as :func:`~fedscope.checkpoints.recorder.file_samples.counts_of` takes them.
        model: the name that ``run.json`` says; data, standardise: as of :class:`~.recorder.Recorder`.
        named: its method, seed and settings, lora_alpha, base: as of :class:`~fedscope.Recorder`.
        aligned: changes the clients of a round before anything is made of them.
        served: makes the global models.
        progress: told how many files are read, of how many.

    Returns:
        What was changed or supplied on the way, a sentence each.

    Raises:
        FedscopeError: something is in the way; files that are no models, or do not go together. Rounds before the one
            that fails are kept.
    """
    by = None if aligned is None else aligned.by
    server = None if served is None else served.provenance
    asked = {
        "--model": model,
        "--data": data,
        "--standardise": standardise,
        "--align": by,
        "--server": server,
        **(named or {}),
    }
    asked |= {"--lora-alpha": None if lora_alpha is None else checked_alpha(lora_alpha)}
    of_base = None if base is None else named_base(base)
    asked |= {"--base": None if of_base is None else of_base["sha256"]}
    torn, counts = _check_import(files, out, samples, asked, force=force)
    given: dict[str, Any] = {
        "model": model,
        "data": data,
        "standardise": standardise,
        "lora_alpha": lora_alpha,
        "base": base,
    }
    rounds = _RoundReader(files, architecture, aligned, served, progress, (lora_alpha, of_base))
    about = {"imported": provenance_of_files(files), "rounds": len(files.rounds), **(named or {})}
    about |= {} if by is None else {"aligned": {"by": by, "to": _reference(files)}}
    about |= {} if server is None else {"served": server}
    open_recorder = partial(_FileRecorder, out, architecture, given, about=about, force=force, resume=torn is not None)
    there = _record_rounds(rounds, counts.rounds, out, torn, open_recorder, lora_alpha)
    if lora_alpha is None and (taken := rounds.reader.taken_scales()):
        warn_user(taken)
    made = [number for number, own in enumerate(files.rounds, start=1) if own.global_ is None]
    gone_on = [f"{out} held rounds 1 to {there} of this import, which was interrupted; they stay"] if there else []
    return [
        *gone_on,
        *files.notes,
        *counts.notes,
        *_about_rounds(files, out),
        *rounds.reader.sentences(),
        *rounds.copies.sentences(),
        *_about_starts(files, None if served is None else served.name),
        *([] if by is None else [f"the clients' units are in the order of {_reference(files)}, matched by {by}"]),
        *_about_means(made, len(files.rounds), None if served is None else served.name, weighted=samples is not None),
        *([] if served is None else _about_members(served)),
        *([rounds.reader.adapters] if rounds.reader.adapters else []),
    ]


def _check_import(
    files: CheckpointFiles,
    out: Path,
    samples: Any,
    asked: Mapping[str, Any],
    *,
    force: bool,
) -> tuple[Run | None, SampleCounts]:
    """Check what an import is given; returns the run of it that was interrupted at ``out``, None where there is none,
    and n_k of each round.

    Raises:
        FedscopeError: something else is in the way; samples that do not go with the clients.
    """
    torn = None if force else torn_import(out)
    if torn is None:
        refuse_occupied(out, force)
    counts = counts_of(samples, files)
    if torn is not None:
        _refuse_another_import(torn, files, counts.rounds, asked)
    return torn, counts


@dataclass(frozen=True, eq=False)
class _RoundModels:
    """Models of a round, as its files have them.

    Attributes:
        clients: by the client's number.
        start, global_: None where there is no file, nor for the start a round before that it could begin at.
    """

    start: ModelTensors | None
    clients: dict[int, ModelTensors]
    global_: ModelTensors | None


class AligningClients(Protocol):
    """Brings the units of a round's clients into the order of the model that they were sent, or without it into that of
    the first of them.

    Attributes:
        by: what units are matched by.
    """

    by: str

    def __call__(
        self, start: ModelTensors | None, clients: Mapping[int, ModelTensors], /
    ) -> dict[int, ModelTensors]: ...


class MakingGlobal(Protocol):
    """Makes the global model of round after round, from the model that was sent, the clients, their n_k and what is
    said of their adapters; and what is sent in place of it in the next round.

    Attributes:
        name: of the server; provenance: what ``run.json`` says of it.
        starts: whether it steps from the model that was sent.
        members: of rounds, the clients that it has chosen among them.
    """

    @property
    def name(self) -> str: ...

    @property
    def starts(self) -> bool: ...

    @property
    def provenance(self) -> Mapping[str, Any]: ...

    @property
    def members(self) -> Mapping[int, Sequence[int]]: ...

    def sent(self, global_: ModelTensors, /) -> ModelTensors: ...

    def __call__(
        self,
        number: int,
        start: ModelTensors | None,
        clients: Mapping[int, ModelTensors],
        samples: Mapping[int, int] | None,
        place: str,
        adapters: Mapping[str, Any],
        /,
    ) -> ModelTensors: ...


class _RoundReader:
    """Reads the files of round after round, and counts them.

    Args:
        given: of adapters their α and their base, as of
            :func:`~fedscope.checkpoints.models.adapters.settings_of_adapters`.

    Attributes:
        files, reader: what is read, and by what.
        copies: what is remarkable of the files.
    """

    def __init__(
        self,
        files: CheckpointFiles,
        architecture: NamedArchitecture | None,
        aligned: AligningClients | None,
        served: MakingGlobal | None,
        progress: Callable[[int, int], None] | None,
        given: tuple[float | None, Mapping[str, str] | None],
    ) -> None:
        self._given = given
        self.files, self.reader, self._aligned, self._served = files, FileReader(architecture), aligned, served
        self.copies = FoundCopies(files)
        self._done, self._total, self._progress = 0, sum(one.count for one in files.rounds), progress

    def read(self, number: int, before: ModelTensors | None, out: Path, there: int) -> _RoundModels:
        """Read a round.

        Args:
            before: the global model of the round before, at which this one begins where no file says another start.
            there: rounds that ``out`` holds.

        Raises:
            FedscopeError: files that are no models, or do not go together; says which rounds stay.
        """
        own = self.files.rounds[number - 1]
        with _told_what_stays(number, out, there):
            # the start first: what is wrapped or differs is more likely what was trained from it
            follows = number > 1 and own.number == self.files.rounds[number - 2].number + 1
            start = self._read(own.start) if own.start is not None else before if follows else None
            if own.start is None and start is not None and self._served is not None:
                start = self._served.sent(start)
            clients = {k: self._read(path) for k, path in own.clients.items()}
            if self._aligned is not None:
                clients = self._aligned(start, clients)
            return _RoundModels(start, clients, None if own.global_ is None else self._read(own.global_))

    def end(
        self, number: int, models: _RoundModels, samples: Mapping[int, int] | None, out: Path, there: int
    ) -> ModelTensors:
        """Return the global model of a round: the file's, or what is made of its clients. Raises as :meth:`read`."""
        if models.global_ is not None:
            return models.global_
        if self._served is None:
            mean = mean_of(models.clients, samples)
            self.copies.averaged(models.clients, mean)
            return mean
        order = self.reader.in_order
        sent = None if models.start is None else order(models.start)
        own = {k: order(one) for k, one in models.clients.items()}
        with _told_what_stays(number, out, there):
            return self._served(number, sent, own, samples, f"{out}@{number}", self._adapters(own))

    def _adapters(self, models: Mapping[int, ModelTensors]) -> dict[str, Any]:
        """What the run will say of its adapters, which servers see when it is aggregated again."""
        names = next(iter(models.values())).arrays
        return settings_of_run(settings_of_adapters(names, self.reader.scale, *self._given))

    def _read(self, path: Path) -> ModelTensors:
        found = self.reader.read(path)
        self.copies.read(path, found)
        self._done += 1
        if self._progress is not None:
            self._progress(self._done, self._total)
        return found


@contextmanager
def _told_what_stays(number: int, out: Path, there: int) -> Iterator[None]:
    """Say of a mistake in a round which rounds before it are kept."""
    try:
        yield
    except FedscopeError as error:
        if number == 1:
            raise
        held = max(number - 1, there)
        upto = f"rounds 1 to {held}" if held > 1 else "round 1"
        raise FedscopeError(f"{error}; {out} holds {upto}, and --force replaces it") from None


def _record_rounds(
    rounds: _RoundReader,
    counts: Sequence[Mapping[int, int] | None],
    out: Path,
    torn: Run | None,
    open_recorder: Callable[[], _FileRecorder],
    alpha: float | None,
) -> int:
    """Record the rounds that are not there yet; how many were.

    Args:
        open_recorder: called once the first of them is known to be whole: then what --force replaces may go.
        alpha: of adapters, as it was given.

    Raises:
        FedscopeError: as :func:`record_files`.
    """
    there = 0 if torn is None else len(torn.rounds)
    before: ModelTensors | None = None
    with ExitStack() as stack:
        recorder: _FileRecorder | None = None
        for number, n in enumerate(counts, start=1):
            models = rounds.read(number, before, out, there)
            if torn is not None and number == 1:
                _refuse_unsaid_scale(torn, rounds.reader.scale, alpha)
            end = rounds.end(number, models, n, out, there)
            if number > there:
                recorder = recorder or stack.enter_context(open_recorder())
                recorder._known.scale = rounds.reader.scale
                _record_round(recorder, rounds.reader, models, end, n)
            elif torn is not None:
                _refuse_changed(torn.round(number), rounds.files.rounds[number - 1], models, end)
            before = end
            del models, end
    return there


def _record_round(
    recorder: _FileRecorder,
    reader: FileReader,
    models: _RoundModels,
    end: ModelTensors,
    samples: Mapping[int, int] | None,
) -> None:
    # of a mean that was just made there is nothing to find out
    recorder._looks = models.global_ is not None
    recorder.flush()  # or three rounds were in memory: one that is written, one that waits, and this
    recorder.round(
        start=None if models.start is None else reader.in_order(models.start),
        clients={k: reader.in_order(one) for k, one in models.clients.items()},
        global_=reader.in_order(end),
        samples=samples,
    )


def torn_import(out: Path) -> Run | None:
    """Open the run of an import that was interrupted at ``out``; None where there is none."""
    try:
        run = Run.open(out)
    except FedscopeError:
        return None
    is_torn = run.info.get("source") == SOURCE and len(run.rounds) < (run.planned or 0)
    return run if is_torn and run.rounds == tuple(range(1, len(run.rounds) + 1)) else None


def _server_as(asked: Mapping[str, Any] | None, has: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return what a server says of itself, without the sum of its source where an earlier fedscope kept none."""
    if not asked or not has or "sha256" in has:
        return asked
    return {name: value for name, value in asked.items() if name != "sha256"}


def _refuse_another_import(
    torn: Run,
    files: CheckpointFiles,
    counts: Sequence[Mapping[int, int] | None],
    asked: Mapping[str, Any],
) -> None:
    """Refuse to go on with an interrupted import of other files, samples or names, or of adapters of another base, or
    of another scale: of this a run may know more than was given, see :func:`_refuse_unsaid_scale`.

    Raises:
        FedscopeError: says what is there, and what differs.
    """
    info, differs = torn.info, ""
    data, alpha, base = asked["--data"], asked["--lora-alpha"], asked["--base"]
    for what, given, has in (
        ("files", provenance_of_files(files), info.get("imported")),
        ("--model", asked["--model"], info.get("model")),
        ("--data", None if data is None else named_data(data)["name"], info.get("data", {}).get("name")),
        ("standardisation", asked["--standardise"], info.get("data", {}).get("standardise")),
        ("--align", asked["--align"], info.get("aligned", {}).get("by")),
        ("--server", _server_as(asked["--server"], info.get("served")), info.get("served")),
        ("--method", asked.get("method"), info.get("method")),
        ("--seed", asked.get("seed"), info.get("seed")),
        ("settings", asked.get("settings"), info.get("settings")),
        ("--lora-alpha", {alpha}, {alpha} if alpha is None else alphas_of(info)),
        ("--base", base, info.get("base", {}).get("sha256")),
    ):
        if given != has:
            differs = differs or what
    for number, n, given_files in zip(torn.rounds, counts, files.rounds, strict=False):
        round_ = torn.round(number)
        if sorted(given_files.clients) != round_.client_ids.tolist():  # run.json names the first files alone
            differs = differs or "files"
        own = None if n is None else [n[k] for k in sorted(n)]
        recorded = round_.client_samples.tolist() if round_.has("client_samples") else None
        if own != recorded:
            differs = differs or "--samples"
    if differs:
        raise _another(torn, differs)


def _refuse_unsaid_scale(torn: Run, told: object, alpha: float | None) -> None:
    """Refuse to go on without the alpha that an interrupted import was begun with, where no file says it.

    Args:
        told: what the files say of the scale of their adapters, if anything.

    Raises:
        FedscopeError: says what to give.
    """
    if alpha is None and not told and (typed := alphas_of(torn.info)) != {None}:
        raise _another(torn, f"--lora-alpha ({', '.join(f'{one:g}' for one in sorted(typed))})")


def _another(torn: Run, differs: str) -> FedscopeError:
    return FedscopeError(
        f"{torn.path} holds {len(torn.rounds)} of {torn.planned} rounds of an import that was interrupted, with other "
        f"{differs}; give what it was begun with to go on with it, --force to replace it, or another --out"
    )


def _refuse_changed(recorded: Round, own: RoundFiles, models: _RoundModels, end: ModelTensors) -> None:
    """Refuse to go on where the files of a round that is there are not those that were read. The recorded models are
    read one by one.

    Args:
        end: its global model, which is made where no file has it.

    Raises:
        FedscopeError: a file holds another model; or from the same clients another global model is made.
    """
    remedy = "since the import was interrupted; give --force to import them anew, or another --out"
    compared: list[tuple[str, Path | None, ModelTensors | None, Callable[[], Weights]]] = [
        ("start", own.start, models.start, partial(recorded.read, "start")),
        *((f"client-{k}", path, models.clients[k], partial(recorded.client, k)) for k, path in own.clients.items()),
        ("global", own.global_, models.global_, partial(recorded.read, "global")),
    ]
    for what, path, model, read in compared:
        if path is not None and model is not None and not _is_same(model, read()):
            raise FedscopeError(
                f"{recorded.label}/{what} is not what {path} holds now, so the files have changed {remedy}"
            )
    if own.global_ is None and not _is_same(end, recorded.read("global")):
        raise FedscopeError(f"{recorded.label} is not what its files hold now, so they have changed {remedy}")


def _is_same(model: ModelTensors, recorded: Weights) -> bool:
    made = model.numbers()
    return all(np.array_equal(made[name], values, equal_nan=True) for name, values in recorded.arrays().items())


class _FileRecorder(Recorder):
    """A recorder of what has been trained, so that what cannot be recorded ends it."""

    def __init__(
        self,
        path: Path,
        architecture: NamedArchitecture | None,
        named: Mapping[str, Any],
        *,
        about: Mapping[str, Any],
        force: bool,
        resume: bool,
    ) -> None:
        super().__init__(path, **named, source=SOURCE, force=force, resume=resume)
        self._module = None if architecture is None else architecture.module
        self.about |= about
        self._known.resumed = None  # that its files go on is looked at before
        self._known.said.add("adapters")  # the reader of the files has it among its notes

    def _line(self) -> str:
        return ""  # the command says what can be asked next

    def _ended(self) -> bool:
        if self._lost and not self._told_lost:
            self._told_lost = True
            raise FedscopeError(
                f"{self._lost.removesuffix(', and the training goes on')}; give another --out, or --force"
            )
        return bool(self._lost)


def mean_of(clients: Mapping[int, ModelTensors], samples: Mapping[int, int] | None = None) -> ModelTensors:
    """Compute Σ_k p_k w_k, in the order of the clients, summed in float64 and rounded once; whole numbers are those of
    the client with the largest p.

    Args:
        samples: n_k; without them all weigh the same.

    >>> from fedscope.checkpoints.recorder.coerce_models import coerce_model
    >>> clients = {k: coerce_model({"w": np.float16([k, 1])}) for k in (0, 1, 5)}
    >>> mean_of(clients).arrays["w"], mean_of(clients, {0: 0, 1: 3, 5: 1}).arrays["w"]
    (array([2., 1.], dtype=float16), array([2., 1.], dtype=float16))
    """
    n = np.array([1.0 if samples is None else samples[k] for k in sorted(clients)])
    p = n / n.sum()
    models = [clients[k] for k in sorted(clients)]
    largest = models[int(p.argmax())]
    arrays = {}
    for name, dtype in largest.dtypes.items():
        if "float" not in dtype:
            arrays[name] = largest.arrays[name]
            continue
        total = np.zeros(largest.arrays[name].shape, np.float64)
        for weight, model in zip(p, models, strict=True):
            if weight == 0:  # and may have diverged
                continue
            total += np.multiply(numbers_of(model.arrays[name], dtype), weight, dtype=np.float64)
        with np.errstate(over="ignore"):  # of models that have diverged
            arrays[name] = to_bfloat16(total) if dtype == BFLOAT16 else total.astype(dtype)
    return ModelTensors(arrays, dict(largest.dtypes), largest.parameters)


def provenance_of_files(files: CheckpointFiles) -> dict[str, str]:
    """Say in ``run.json`` where the models come from: by ``1/client-0``, ``1/start``, ``1/global`` the file.

    The first :data:`NAMED` files, and how many more there are; patterns and folders as they were given.
    """
    named = (
        (f"{number}/{what}", str(path))
        for number, own in enumerate(files.rounds, start=1)
        for what, path in (
            ("start", own.start),
            *((f"client-{k}", path) for k, path in own.clients.items()),
            ("global", own.global_),
        )
        if path is not None
    )
    more = sum(own.count for own in files.rounds) - NAMED
    return {**files.given, **dict(islice(named, NAMED)), **({"...": f"and {more} more"} if more > 0 else {})}


def _reference(files: CheckpointFiles) -> str:
    """Say which model's units keep their order where those of clients are aligned."""
    starts = [own.start is not None for own in files.rounds]
    if all(starts):
        return "the model that they were sent"
    alone = "the first client"
    return alone if len(starts) == 1 else f"the model that they were sent, or without it of {alone}"


def _about_rounds(files: CheckpointFiles, out: Path) -> list[str]:
    numbers = [own.number for own in files.rounds]
    if numbers == list(range(1, len(numbers) + 1)):
        return []
    theirs = f"rounds {spans(numbers)} of the files are rounds 1 to {len(numbers)}"
    return [f"{theirs if len(numbers) > 1 else f'round {numbers[0]} of the files is round 1'} of {out}"]


def _about_starts(files: CheckpointFiles, server: str | None) -> list[str]:
    followed: list[int] = []
    made: list[int] = []  # of which no file has the model that was sent
    alone: list[int] = []
    for number, (last, own) in enumerate(pairwise(files.rounds), start=2):
        if own.start is None and own.number == last.number + 1:
            (followed if last.global_ is not None else made).append(number)
        elif own.start is None:
            alone.append(number)
    said = []
    for numbers, by in ((followed, ""), (made, f", as {server} makes it" if server else ", the mean of its clients")):
        if numbers:
            other = "; if another model was sent, give --start" if by else ""
            plural = "s" if len(numbers) > 1 else ""
            said.append(f"start of round{plural} {spans(numbers)} is global of the round before{by}{other}")
    if alone:
        have, before = ("s", "the rounds before them are") if len(alone) > 1 else ("", "the round before it is")
        said.append(f"round{have} {spans(alone)} of the run without a start, because {before} not among the files")
    return said


def _about_means(made: list[int], rounds: int, server: str | None, *, weighted: bool) -> list[str]:
    if not made:
        return []
    which = "" if len(made) == rounds else f" of round{'s' if len(made) > 1 else ''} {spans(made)}"
    if server is not None:
        return [f"global{which} is what the server {server} makes of the clients"]
    p = "weighted with their samples" if weighted else "which all weigh the same"
    return [f"global{which} is the mean of the clients, {p}"]


def _about_members(served: MakingGlobal) -> list[str]:
    said = [
        f"of round {number} {served.name} has chosen client{'s' if len(members) > 1 else ''} {list_few(members)}"
        for number, members in islice(served.members.items(), 3)
    ]
    more = len(served.members) - len(said)
    return [*said, f"so it has of {more} more round{'s' if more > 1 else ''}"] if more else said
