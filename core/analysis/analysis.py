"""A question: what is asked, prepared without computing, and answered by one result; and what its files are called."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, cast

from ..checkpoints import FedscopeError, Model, Round, Run, Weights, expand_home, nearest
from ..checkpoints.io.keywords import speak_keywords
from ..checkpoints.io.torch_state import own_torch_state
from ..checkpoints.models.files import file_and_key, is_file_name, is_model_folder
from ..checkpoints.models.state_dicts import is_tensor
from ..checkpoints.runs.addresses import distinct_labels, file_label
from ..results import Result
from ..results.collection import PARTS
from ..results.labels import labels_of, listed_labels, refuse_labels
from ..results.versions import versions
from .execution import Execution
from .named_code import NamedCodeError
from .rounds import spell_ranges
from .settings import EvaluationSettings

P = ParamSpec("P")
R = TypeVar("R", bound=Result)
A = TypeVar("A", bound=Result, covariant=True)

#: of a question with one result: its settings, and what computes it of its provenance
SettingsAndCompute = tuple[dict[str, Any], Callable[[dict[str, Any], Execution], R]]


#: parts of an answer whose models are looked at together
FEW = 2
#: bytes of a file's name that file systems take, and what stands behind it until an analysis is finished
LONGEST, UNFINISHED = 255, len(".partial.99")


@dataclass(frozen=True)
class PreparedStep(Generic[R]):
    """A computation whose models and samples are there.

    Attributes:
        settings: of each result that it gives: all that its numbers depend on.
        compute: given the provenance of each, gives the results.
    """

    settings: Sequence[Mapping[str, Any]]
    compute: Callable[[list[dict[str, Any]], Execution], Sequence[R]]


@dataclass(frozen=True)
class Step(Generic[R]):
    """One computation of a question: results that are computed together, each in files of its own.

    Attributes:
        kind: of the results.
        prepare: opens what is needed, which may take a while and load torch.
        ends: what stands behind the base in the names of each result's files.
        beside: what stands behind that in the names of files that are written with the kind's own, such as models.
        read_back: of a result that is made from those of the parts before it (``Execution.before``), how it is read
            from the files next to theirs, given the base, these results, and whether it is only drawn again; gives None
            where it is to be made anew. Without it, results that lie there are kept where their settings are the same,
            and else refused.
        bring_up: of a result that keeps numbers of its runs which the question does not measure, as test errors: given
            one that is read back, gives it with those of now, or the same object where they are these.
        together: the ends of all results of this kind in the question's answer.
    """

    kind: type[R]
    prepare: Callable[[], PreparedStep[R]]
    ends: tuple[str, ...] = ("",)
    beside: tuple[str, ...] = ()
    read_back: Callable[[Path, Sequence[Any], bool], R | None] | None = None
    bring_up: Callable[[R], R] | None = None
    together: tuple[str, ...] = ()

    def files(self, base: Path | str) -> list[Path]:
        """List all of them: of each result the files written with it, its own, and what is derived from it."""
        files: list[Path] = []
        for end in self.ends:
            files += [Path(f"{base}{end}{more}") for more in self.beside]
            files += self.kind.paths(f"{base}{end}")
            files += [Path(f"{base}{end}{more}") for more in self.kind.derived]
        return files

    @cached_property
    def ready(self) -> PreparedStep[R]:
        """Prepared once."""
        return self.prepare()

    @cached_property
    def settings(self) -> list[dict[str, Any]]:
        """Of each result, as a file gives them back."""
        return [json.loads(json.dumps(settings)) for settings in self.ready.settings]

    def answer(self, work: Execution) -> list[R]:
        """Return the results; of several parts each says which it is, from 0, and of which it is one."""
        said = versions()
        places = [
            {"part": len(work.before) + place, PARTS: list(self.together or self.ends)} if end else {}
            for place, end in enumerate(self.ends)
        ]
        return list(
            self.ready.compute(
                [
                    {**own, **lacking_rounds(own), "versions": said, **place}
                    for own, place in zip(self.settings, places, strict=True)
                ],
                work,
            )
        )

    def release(self) -> None:
        """Forget the models and samples that were opened: they are not needed to draw, or for another part."""
        self.__dict__.pop("ready", None)


def lacking_rounds(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a result says of rounds that were recorded and are gone, ``rounds_missing``: by the run's folder, of
    the runs that are named in its settings; nothing where none is."""
    runs = settings.get("run")
    named = [one["path"] for one in (runs if isinstance(runs, list) else [runs]) if isinstance(one, dict)]
    missing = {path: list(gone) for path in named if (gone := Run.open(path).lacking)}
    return {"rounds_missing": missing} if missing else {}


@dataclass(frozen=True)
class PreparedAnalysis(Generic[A]):
    """An analysis and its arguments, checked as far as that needs no models and no samples.

    Attributes:
        folder: where results lie by default; name: what they are called there, cut where no file can be called so.
        parts: the computations.
        join: the answer, of all their results in order.
        drawn, paged: what stands behind the base in the names of the answer's figures and pages.
        derived: the same of files that are derived from all results together.
        note: what was chosen where nothing was asked for, and how to ask otherwise; a command says it.
        labels: what the answer will call runs and models otherwise.
    """

    folder: Path
    name: str
    parts: tuple[Step[Any], ...]
    join: Callable[[list[Any]], A]
    drawn: tuple[str, ...] = ("",)
    paged: tuple[str, ...] = ()
    derived: tuple[str, ...] = ()
    note: str = ""
    labels: Sequence[str] | Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        together: dict[Any, tuple[str, ...]] = {}
        for part in self.parts:
            together[part.kind] = (*together.get(part.kind, ()), *part.ends)
        for part in self.parts:
            object.__setattr__(part, "together", together[part.kind])
        ends = [f"{end}{picture}" for end in self.drawn for picture in (".pdf", ".png")]
        ends += [*(f"{end}.html" for end in self.paged), *self.derived]
        ends += [file.name.removeprefix("x") for part in self.parts for file in part.files(Path("x"))]
        if len(self.name.encode()) + max(len(end.encode()) for end in ends) + UNFINISHED > LONGEST:
            object.__setattr__(self, "name", _cut_name(self.name))

    @property
    def ends(self) -> tuple[str, ...]:
        """Of all results, in order."""
        return tuple(end for part in self.parts for end in part.ends)

    def with_labels(self, labels: Sequence[str] | Mapping[str, str]) -> PreparedAnalysis[A]:
        """Return the same, whose answer calls runs and models otherwise: see :meth:`.Result.renamed`.

        Args:
            labels: by the names that the answer gives them, or one for each in its order.
        """

        def join(results: list[Any]) -> A:
            result = self.join(results)
            if isinstance(labels, Mapping):
                return result.renamed(labels)
            return result.renamed(labels_of(labels, result.list_names(), result.list_drawn()))

        return replace(self, join=join, labels=labels)

    def refuse_labels(self, labels: Sequence[str] | Mapping[str, str]) -> None:
        """Refuse labels that cannot fit, before anything is computed.

        Raises:
            FedscopeError: two of a word; one for what is no run of this question.
        """
        refuse_labels(labels, ())
        if len(self.parts) <= FEW:  # the models of each part are read, and many would be in memory at once
            runs = [part.kind.runs_named(settings) for part in self.parts for settings in part.settings]
            refuse_labels(labels, frozenset[str]().union(*runs) if all(runs) else ())

    @own_torch_state()
    def answer(self, work: Execution | Path | str | None = None) -> A:
        """Compute it. With ``Execution(keep=PATH)``, or the path alone, the same question goes on from what an
        interrupted one had finished; of several computations each keeps its own, ``PATH.1``, ...

        Raises:
            FedscopeError: whatever the question refuses; something else than an execution or a path.
        """
        if self.labels:
            self.refuse_labels(self.labels)
        if work is not None and not isinstance(work, Execution):
            work = Execution(keep=expand_home(work))
        work = work or Execution()
        results: list[Any] = []
        for i, part in enumerate(self.parts):
            keep = work.keep if work.keep is None or not i else Path(f"{work.keep}.{i}")
            results += part.answer(replace(work, keep=keep, before=tuple(results)))
            part.release()
        return self.join(results)


def single_result(
    kind: type[R],
    folder: Path,
    name: str,
    prepare: Callable[[], SettingsAndCompute[R]],
    beside: tuple[str, ...] = (),
    note: str = "",
    bring_up: Callable[[R], R] | None = None,
) -> PreparedAnalysis[R]:
    """A question with one result."""

    def ready() -> PreparedStep[R]:
        settings, compute = prepare()
        return PreparedStep([settings], lambda attrs, work: [compute(attrs[0], work)])

    parts = (Step(kind, ready, beside=beside, bring_up=bring_up),)
    return PreparedAnalysis(
        folder, name, parts, lambda results: cast(R, results[0]), tuple(kind.drawn), tuple(kind.paged), note=note
    )


#: options of commands that have another name in Python
CALLED = {"embed": "method"}


class Asks(Protocol[P, A]):
    """A public function, and the same as a question that is not answered yet."""

    def __call__(self, *args: P.args, **settings: P.kwargs) -> A:
        """Return the answer. Runs and models may be a dict, by the labels that they get; or see ``labels``."""
        ...

    def prepare(self, *args: P.args, **settings: P.kwargs) -> PreparedAnalysis[A]:
        """Prepare the question: ``prepare(...).answer(Execution(keep=PATH))`` survives interruptions."""
        ...


def analysis(prepare: Callable[P, PreparedAnalysis[A]]) -> Asks[P, A]:
    """A function that prepares a question, as one that answers it.

    Raises (what it makes):
        TypeError: a setting that does not exist; names the nearest.
    """
    parameters = inspect.signature(prepare).parameters.values()
    known = {one.name: one.annotation for one in parameters if one.kind is not one.VAR_KEYWORD}
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        known |= EvaluationSettings.__annotations__

    first = next(iter(inspect.signature(prepare).parameters), "")

    @wraps(prepare)
    @own_torch_state()
    def checked(*args: P.args, **settings: P.kwargs) -> PreparedAnalysis[A]:
        values, given, labels = take_labels(first, args, settings)
        what = values[0] if values else given.get(first)
        if isinstance(what, list | tuple | dict) and not what:
            raise FedscopeError(f"no {first} are given; give one or more")
        for name in given:
            if name not in known:
                called = CALLED.get(name, "")
                hint = f'; did you mean "{called}"?' if called in known else nearest(name, {*known, "labels"})
                hint = hint or f"; there are {', '.join(sorted(known))}"
                raise TypeError(f"fedscope.{prepare.__name__} has no setting {name!r}{hint}")
        prepared = prepare(*values, **given)
        return prepared if labels is None else prepared.with_labels(labels)

    @wraps(prepare)
    def ask(*args: P.args, **settings: P.kwargs) -> A:
        try:
            return checked(*args, **settings).answer()
        except NamedCodeError as error:
            raise FedscopeError(error.as_call(prepare.__name__, args, settings)) from None

    spoken = speak_keywords(ask, known)
    spoken.prepare = speak_keywords(checked, known)  # type: ignore[attr-defined]
    return cast(Asks[P, A], spoken)


def take_labels(
    first: str, args: Sequence[Any], settings: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any], Sequence[str] | Mapping[str, str] | None]:
    """Take labels out of the arguments of an analysis: ``labels=``, or the keys of a dict of runs or models.

    >>> take_labels("runs", [{"FedAvg": "runs/fma", "IMA": "runs/ima"}], {"rounds": 2})
    ((['runs/fma', 'runs/ima'],), {'rounds': 2}, ['FedAvg', 'IMA'])

    Args:
        first: the name of the first argument.

    Raises:
        FedscopeError: labels given twice; one that is no text.
    """
    given = dict(settings)
    labels = given.pop("labels", None)
    what = args[0] if args else given.get(first)
    if isinstance(what, Mapping) and (odd := next((key for key in what if not isinstance(key, str)), None)) is not None:
        raise FedscopeError(f"{first} has the label {odd!r}, which is no text; give a word for each run or model")
    if isinstance(what, Mapping) and is_labelled(what):
        if labels is not None:
            raise FedscopeError("labels are given twice, as keys of a dict and as labels; leave one of them out")
        labels, values = list(what), list(what.values())
        args = (values, *args[1:]) if args else args
        given |= {} if args else {first: values}
    if labels is not None:
        labels = labels if isinstance(labels, Mapping) else listed_labels(labels)
        for label in labels.values() if isinstance(labels, Mapping) else labels:
            if not isinstance(label, str):
                raise FedscopeError(f"labels hold {label!r}, which is no text; give a word for each run or model")
    return tuple(args), given, labels


def is_labelled(models: Any) -> bool:
    """Check whether a dict holds runs or models by their labels, and is no state dict and no checkpoint."""
    if not isinstance(models, Mapping) or not models or not all(isinstance(key, str) for key in models):
        return False
    return all(
        isinstance(value, str | Path | Run | Round | Model | Weights)
        or callable(getattr(value, "state_dict", None))
        or (isinstance(value, Mapping) and bool(value) and all(map(is_tensor, value.values())))
        for value in models.values()
    )


def slug(text: str) -> str:
    """``runs/ima@40/client-3`` as a part of a file name.

    >>> slug("runs/ima@40/client-3"), slug("runs/fma@last"), slug("models/best.pt"), slug("ckpt.pt:teacher")
    ('ima@40-client-3', 'fma@last', 'best', 'ckpt-teacher')
    """
    path, at, rest = text.rpartition("@")
    name = Path(path).name + at + rest.replace("/", "-") if at else file_label(text)
    return _clear_name(name)


def slug_rounds(rounds: str) -> str:
    """``1-5,20,last`` as a part of a file name, another one than that of ``1,5,20,last``.

    >>> slug_rounds("1-5,20,last"), slug_rounds("1,5,last:3")
    ('1to5-20-last', '1-5-last-3')
    """
    return slug(spell_ranges(rounds))


def _clear_name(name: str) -> str:
    return re.sub(r"[^\w@.-]+", "-", name).strip("-")


def place_of(command: str, models: Sequence[str]) -> tuple[Path, str]:
    """Return the default folder of a result on models, ``figures`` in the first one's run or in the current folder, and
    its name.

    >>> place_of("line", ["runs/fma@last", "runs/ima@last"])[1], place_of("plane", ["a.pt"])[0].name
    ('line-fma@last-ima@last', 'figures')
    """
    path, at, _ = models[0].rpartition("@")
    files = [model if is_file_name(file := file_and_key(model)[0]) or is_model_folder(file) else "" for model in models]
    what = fit_file_name("-".join(map(_clear_name, distinct_labels([*map(slug, models)], files))))
    return Path(path) / "figures" if at else Path("figures"), f"{command}-{what}"


def fit_file_name(name: str) -> str:
    """A name that file systems take, which end at 255 bytes: a long one is cut, with a sum of what was cut off.

    >>> fit_file_name("ima-1-last"), len(fit_file_name("layer1.0.conv1.weight-" * 9))
    ('ima-1-last', 89)
    """
    return name if len(name) <= 100 else _cut_name(name)


def _cut_name(name: str) -> str:
    """The first 80 bytes of a name, no letter in pieces, with a sum of the whole."""
    return f"{name.encode()[:80].decode(errors='ignore')}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
