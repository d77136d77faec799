"""Other names for the runs and models of a result: what is drawn and said is called by them, and no number changes."""

from __future__ import annotations

import copy
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, TypeVar

from ..checkpoints import FedscopeError, nearest
from ..checkpoints.io.errors import count_of, list_few
from ..checkpoints.io.visible_text import visible

T = TypeVar("T")

#: fields that hold a name of a run or a model, or several
_NAMED = frozenset({"run", "label", "model", "labels", "pairs", "ends"})
#: labels of these fields that are kinds of models and no names
_KINDS = frozenset({"mean", "mean of aligned", "mean repaired", "recorded", "global", "averaged", "start", "all"})
#: fields of rows that are no classes: tuples that begin with a run's name
_ROWS = frozenset({"spreads"})
#: provenance that is told: by a run's name; a text, or several, that begin with one
_BY_RUN, _BEGUN = (
    frozenset({"averages", "measured", "paces"}),
    frozenset({"source", "left_out", "notes", "adapter_runs"}),
)
#: in provenance what a run is called, where that is not its folder's name
LABEL = "label"
#: what stands between the two names of a pair, and between those of runs that are taken together
_BETWEEN, _TOGETHER = " - ", ", "


def names_in(result: Any) -> tuple[str, ...]:
    """List the runs and models that a result names, each once, in its order.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Row:
    ...     run: str
    ...     model: str
    >>> names_in((Row("ima", "global"), Row("fma", "global")))
    ('ima', 'fma')
    """
    found = dict.fromkeys(_find_names(result, ""))
    return tuple(name for name in found if not _is_of_several(name, found))


def _is_of_several(name: str, names: Container[str]) -> bool:
    """Whether a name is that of runs that are taken together, and that have names of their own."""
    parts = name.split(_TOGETHER)
    return len(parts) > 1 and all(part in names for part in parts)


def rename(result: T, labels: Mapping[str, str]) -> T:
    """Return a result whose runs and models are called otherwise.

    Args:
        labels: by the names that :func:`names_in` gives, or by a run: ``ima`` for all of ``ima@40/client-3``.

    Raises:
        FedscopeError: a name that the result does not have; a label that is empty or that two names share.
    """
    refuse_misfits(labels, names := names_in(result), tuple(dict.fromkeys(map(run_of, names))))
    return _rename(result, labels, "") if labels else result


def listed_labels(given: Any) -> list[Any]:
    """List labels as they were given: one word, or several in their order, as a list, an array or a column of a table.

    Raises:
        FedscopeError: a set, whose order is another one in each session; something else.

    >>> listed_labels("ours"), listed_labels(("FedAvg", "ours"))
    (['ours'], ['FedAvg', 'ours'])
    """
    if isinstance(given, set | frozenset):
        raise FedscopeError(f"labels are a {type(given).__name__}, which has no order; give a list")
    if isinstance(given, Mapping) or not isinstance(given, Iterable):
        raise FedscopeError(f"labels are {given!r}; give a list of words, or {{old: new}}")
    return [given] if isinstance(given, str) else list(given)


def refuse_misfits(labels: Mapping[str, str], names: Sequence[str], runs: Sequence[str] = ()) -> None:
    """Raises as :func:`rename`, of a result of these names, and of their runs."""
    if not isinstance(labels, Mapping):
        raise FedscopeError(f"labels are a {type(labels).__name__}; give them by name, as {{'fma': 'FedAvg'}}")
    what = "runs or models" if runs else "rows"
    for name, label in labels.items():
        if name not in names and name not in runs:
            known = ", ".join(names) or "none"
            raise FedscopeError(f"{name!r} is not in this result{nearest(name, names) or f'; it names {known}'}")
        if not isinstance(label, str):
            raise FedscopeError(
                f"labels hold {label!r}, which is no text; give a word for each {'run or model' if runs else 'row'}"
            )
        if not visible(label).strip():
            raise FedscopeError(f"the label of {name!r} is empty; give a word that figures can show")
    # a label may be one that another name gives up: a and b may change places
    left = [label for name, label in labels.items() if name in names]
    left += [name for name in names if name not in labels and not (runs and run_of(name) in labels)]
    for label in [*left, *labels.values()]:
        if left.count(label) > 1 or list(labels.values()).count(label) > 1:
            raise FedscopeError(f"two of the {what} would be called {label!r}; give each a label of its own")


def refuse_labels(labels: Sequence[str] | Mapping[str, str], runs: Collection[str]) -> None:
    """Refuse, before anything is computed, labels that fit no answer; :func:`rename` sees the others.

    Args:
        labels: as :func:`rename` or :func:`labels_of` takes them.
        runs: the runs with whose names those of the answer begin; none where that is not known.

    Raises:
        FedscopeError: a label that two names share; one of what is no such run.

    >>> refuse_labels(["fma=FedAvg", "ima@4/global=IMA"], ["fma", "ima"])
    >>> refuse_labels(["fma=a", "ima=a"], ["fma", "ima"])
    Traceback (most recent call last):
    fedscope.checkpoints.io.errors.FedscopeError: two of the runs or models would be called 'a'; give each a label ...
    """
    if isinstance(labels, Mapping):
        told, of_names = list(labels.items()), True
    else:
        # a label alone may hold a sign, as "lr=0.1": such words name something only where one of them does
        parts = [label.partition("=") for label in labels]
        of_names = any(sign and _begins(old, runs) for old, sign, _ in parts)
        told = [(old, new) for old, _, new in parts] if of_names else [("", label) for label in labels]
    news = [new for _, new in told]
    if twice := next((new for new in news if news.count(new) > 1), None):
        raise FedscopeError(f"two of the runs or models would be called {twice!r}; give each a label of its own")
    for old, new in told:
        if not of_names and (part := new.partition("="))[1] and nearest(run_of(part[0]), sorted(runs)):
            old = part[0]
        if runs and old and not _begins(old, runs):
            names = sorted(name for name in runs if "/" not in name) or sorted(runs)
            near = nearest(run_of(old), names) or f"; it is of {list_few(names)}"
            raise FedscopeError(f"{old!r} is not in this result{near}")


def _begins(name: str, runs: Collection[str]) -> bool:
    """Whether a name may be one of these runs, of one of its models, or of several of them."""
    return any(name.startswith(run) for run in runs)


def with_called_runs(result: T, labels: Mapping[str, str]) -> T:
    """Return a result whose runs are called otherwise where its provenance names them, and nothing else."""
    return replace(result, attrs=_attrs(result.attrs, labels))  # type: ignore[type-var, attr-defined]


def labels_of(
    given: Sequence[str], names: Sequence[str], drawn: Sequence[str] = (), *, rows: bool = False
) -> dict[str, str]:
    """Take labels as they are typed: ``OLD=NEW``, or new ones in the order of the names, or of their runs.

    Args:
        drawn: those of the names that the figure has, where it has not all: new ones are in their order.
        rows: whether they are rows of a table, and no runs or models.

    >>> labels_of(["FedAvg", "IMA"], ["fma", "ima"]), labels_of(["ima=IMA"], ["fma", "ima"])
    ({'fma': 'FedAvg', 'ima': 'IMA'}, {'ima': 'IMA'})
    >>> labels_of(["FedAvg"], ["fma@6/client-3", "fma@6/client-4"])
    {'fma': 'FedAvg'}
    >>> labels_of(["FedAvg"], ["fma@6", "fma@6/client-4"])
    {'fma@6': 'FedAvg'}
    >>> labels_of(["FedAvg"], ["fma-seed0", "fma-seed1", "fma"], drawn=["fma"])
    {'fma': 'FedAvg'}

    Raises:
        FedscopeError: another number of them than there are names; a name that is not there, or one twice.
    """
    runs = [] if rows else list(dict.fromkeys(map(run_of, names)))
    known = {*names, *runs}
    told = [_told(label, known) for label in given]
    strange = [old for old, sign, _ in told if not sign or old not in known]
    if given and not strange:
        olds = [old for old, _, _ in told]
        if twice := next((old for old in olds if olds.count(old) > 1), None):
            raise FedscopeError(f"{twice!r} is given two labels; give one")
        return {old: new for old, _, new in told}
    parts = _are_parts([old if sign else "" for old, sign, _ in told], known)
    for old, sign, _ in told:
        if sign and old not in known and (len(strange) < len(told) or parts or (hint := nearest(old, known))):
            hint = nearest(old, known) or f"; it names {', '.join(names)}"
            raise FedscopeError(f"{old!r} is not in this result{hint}")
    if 0 < len(strange) < len(told):
        plain = next(label for label, (old, sign, _) in zip(given, told, strict=True) if not sign or old not in known)
        raise FedscopeError(f"the label {plain!r} says no OLD=, and others do; give all as OLD=NEW, or all in order")
    # of several planes, not of the models on them
    whole = [] if rows else [name for name in names if "/" not in name]
    for those in (drawn, names, whole, runs):
        if those and len(given) == len(those):
            return dict(zip(those, given, strict=True))
    shown = drawn or names
    about = f"result names {len(shown)}, {list_few(shown, 6)}" if shown else "result names no run and no model"
    if rows:
        about = f"table has {count_of(len(names), 'row')}, {list_few(names)}"
    many = f"{len(given)} labels are" if len(given) != 1 else "1 label is"
    raise FedscopeError(f"{many} given, but the {about}; give one for each, or OLD=NEW")


def _are_parts(olds: Sequence[str], known: Collection[str]) -> bool:
    """Check whether several words before a sign each begin a name, as methods begin those of a sweep's runs; labels of
    one setting, ``lr=0.1`` and ``lr=0.01``, begin alike.

    >>> _are_parts(["fma", "ima"], ["fma-seed0", "ima-seed0"]), _are_parts(["lr", "lr"], ["lr-0.1", "lr-0.01"])
    (True, False)
    """
    begun = [any(name.startswith(f"{old}{end}") for name in known for end in "-_@/ ") for old in olds if old]
    return len(begun) > 1 and len(set(olds)) == len(olds) == sum(begun)


def _told(label: str, known: Collection[str]) -> tuple[str, str, str]:
    """Split a label at the sign behind a name that is known, which may hold such signs itself; else at the first.

    >>> _told("greedy (split=test)=ours", ["greedy (split=test)"])
    ('greedy (split=test)', '=', 'ours')
    """
    old = max((name for name in known if label.startswith(f"{name}=")), key=len, default="")
    return (old, "=", label.removeprefix(f"{old}=")) if old else label.partition("=")


def _find_names(value: Any, field: str) -> Iterator[str]:
    """Every name below a value. Only what has no names of its own is named by the runs of its provenance."""
    if isinstance(value, str):
        if field in _NAMED:
            yield from (part for part in _parts(value, field) if part and part not in _KINDS)
    elif is_dataclass(value) and not isinstance(value, type):
        own = [one.name for one in fields(value)]
        if _is_model_of_run(value):
            own.remove("model")
        found = [part for name in own if name != "attrs" for part in _find_names(getattr(value, name), name)]
        yield from found or (_runs_of(getattr(value, "attrs", {})))
    elif isinstance(value, dict | MappingProxyType):
        for part in value.values():
            yield from _find_names(part, field)
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _find_names(part, field)
    elif _is_collection(value):
        for name, part in vars(value).items():
            yield from _find_names(part, name)


def _rename(value: Any, labels: Mapping[str, str], field: str) -> Any:
    if isinstance(value, str):
        return _with_labels(value, labels, field) if field in _NAMED else value
    if field in _ROWS and isinstance(value, tuple):
        return tuple((_with_labels(row[0], labels, "run"), *row[1:]) for row in value)
    if field in _BEGUN and isinstance(value, tuple | list):
        return type(value)(begun_with(text, labels) for text in value)
    if field == "attrs":
        return _attrs(value, labels)
    if is_dataclass(value) and not isinstance(value, type):
        own = [one.name for one in fields(value) if one.init]
        if _is_model_of_run(value):
            own.remove("model")
        made = {name: _rename(getattr(value, name), labels, name) for name in own}
        changed = {name: part for name, part in made.items() if part is not getattr(value, name)}
        return replace(value, **changed) if changed else value
    if isinstance(value, dict | MappingProxyType):
        made = {key: _rename(part, labels, field) for key, part in value.items()}
        return made if any(made[key] is not part for key, part in value.items()) else value
    if isinstance(value, tuple | list):
        parts = [_rename(part, labels, field) for part in value]
        return type(value)(parts) if any(one is not other for one, other in zip(parts, value, strict=True)) else value
    if _is_collection(value):
        other = copy.copy(value)
        for name, part in vars(value).items():
            setattr(other, name, _rename(part, labels, name))
        return other
    return value


def _with_labels(text: str, labels: Mapping[str, str], field: str) -> str:
    between = _TOGETHER if field == "run" and text not in labels else _BETWEEN
    parts = text.split(between) if field in ("pairs", "run") and text not in labels else [text]
    swapped = [labels.get(part) or _of_run(part, labels) for part in parts]
    return text if swapped == parts else between.join(swapped)


def _of_run(whole: str, labels: Mapping[str, str]) -> str:
    run = run_of(whole)
    return f"{labels[run]}{whole[len(run) :]}" if run in labels else whole


def _parts(text: str, field: str) -> list[str]:
    return text.split(_BETWEEN) if field == "pairs" else [text]


def run_of(label: str) -> str:
    """``ima`` of ``ima@40/client-3``; a label that is no address as it is."""
    run, at, rest = label.rpartition("@")
    return run if at and (rest[:1].isdigit() or rest.startswith("last")) else label


def _is_model_of_run(value: Any) -> bool:
    """Whether a row's ``model`` is one of a run's round, such as ``global``, and no name: its run stands in the row, or
    its class says ``of_run``."""
    return bool(getattr(value, "run", "") or getattr(value, "of_run", False)) and hasattr(value, "model")


def _is_collection(value: Any) -> bool:
    """Whether a value is several results; :class:`.collection.Collection` imports this file."""
    return isinstance(getattr(value, "parts", None), Mapping) and hasattr(value, "summary")


def _runs_of(attrs: Mapping[str, Any]) -> Iterator[str]:
    yield from map(name_of_run, _about_runs(attrs))


def name_of_run(said: Any) -> str:
    """Return what a run is called in a result: its label, or the name of its folder.

    Args:
        said: what provenance says of it.

    >>> name_of_run({"path": "runs/fma"}), name_of_run({"path": "runs/fma", "label": "FedAvg"}), name_of_run(None)
    ('fma', 'FedAvg', '')
    """
    if not isinstance(said, Mapping) or "path" not in said:
        return ""
    return str(said.get(LABEL) or PurePath(str(said["path"])).name)


def of_labelled(attrs: Mapping[str, Any]) -> str:
    """Name the runs of a provenance that were given a label, for sentences that name no run else; "" where none was.

    >>> of_labelled({"run": [{"path": "runs/fma", "label": "FedAvg"}]}), of_labelled({"run": [{"path": "runs/fma"}]})
    (' of FedAvg', '')
    """
    labels = [name_of_run(one) for one in _about_runs(attrs) if LABEL in one]
    return f" of {list_few(labels)}" if labels else ""


def runs_named(attrs: Mapping[str, Any]) -> frozenset[str]:
    """What the runs of a provenance may be called: each by its path, its label or a folder that no other one has; none
    where models of files or of memory are in it, too, which have names of their own.

    >>> sorted(runs_named({"run": [{"path": "runs/fma"}]}))
    ['fma', 'runs/fma']
    >>> sorted(runs_named({"run": [{"path": "a/fma"}, {"path": "b/fma"}]}))
    ['a/fma', 'b/fma']
    """
    runs = _about_runs(attrs)
    paths = {str(one["path"]) for one in runs}
    if any(str(address).rpartition("@")[0] not in paths for address in attrs.get("addresses") or ()):
        return frozenset()
    folders = [PurePath(path).name for path in paths]
    shared = {"", *(name for name in folders if folders.count(name) > 1)}
    return frozenset({*({*map(name_of_run, runs), *folders} - shared), *map(visible, paths)} - {""})


def _about_runs(attrs: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What provenance says of each run."""
    run = attrs.get("run")
    return [one for one in (run if isinstance(run, list) else [run]) if isinstance(one, Mapping) and "path" in one]


def _attrs(attrs: Mapping[str, Any], labels: Mapping[str, str]) -> Mapping[str, Any]:
    """Provenance in which a run has its label beside its folder, which stays, and in which what is told of a run is
    told of its label."""
    made = [_labelled(one, labels) for one in _about_runs(attrs)]
    told: dict[str, Any] = {}
    for name in _BY_RUN & attrs.keys():
        if isinstance(attrs[name], Mapping):
            told[name] = {labels.get(run, run): said for run, said in attrs[name].items()}
    for name in _BEGUN & attrs.keys():
        if isinstance(said := attrs[name], str):
            told[name] = begun_with(said, labels)
        elif isinstance(said, list | tuple):
            told[name] = [begun_with(str(one), labels) for one in said]
    if made != _about_runs(attrs):
        told["run"] = made if isinstance(attrs["run"], list) else made[0]
    return attrs if all(attrs[name] == value for name, value in told.items()) else {**attrs, **told}


def _labelled(said: Mapping[str, Any], labels: Mapping[str, str]) -> Mapping[str, Any]:
    """What is said of a run that has another label; without one where it is the folder's name again."""
    name = name_of_run(said)
    plain = {key: value for key, value in said.items() if key != LABEL}
    # of two runs of one name each is called by its path
    label = labels.get(name, labels.get(visible(str(said.get("path", ""))), name))
    return plain if label == name_of_run(plain) else {**plain, LABEL: label}


def begun_with(text: str, labels: Mapping[str, str]) -> str:
    """Return a text that begins with a run, or with a model of one, beginning with its label.

    >>> begun_with("fma: round 2 left out", {"fma": "FedAvg"}), begun_with("fma@2", {"fma": "FedAvg"})
    ('FedAvg: round 2 left out', 'FedAvg@2')
    """
    whole, colon, rest = text.partition(": ")
    return f"{_with_labels(whole, labels, 'run')}{colon}{rest}"
