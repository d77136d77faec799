"""Rounds and settings as they were typed, compared with what a stored result says of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import Any

import click

from ..analysis.settings import is_same_setting
from ..checkpoints.io.untrusted import at_home

#: a result's provenance
Attrs = Mapping[str, Any]

#: arguments and options that name runs and models
NAMED = ("models", "runs", "run", "federation")
#: options that are called otherwise than the settings that results keep
_KEYS = {"embed": "method", "names": "parameters", "samples": "of_each"}
#: settings that a result says only where they are not the usual ones
_UNSAID = ("align", "normalization")
#: settings of results that draw something besides the samples of --limit, and so always have a seed
_SEEDED = ("subsets", "estimator", "kernel_samples", "rho", "directions_seed")
#: some rounds in a row, and a model of a run: the folder, the round and which
RANGE = re.compile(r"(\d+)\s*[-\u2013]\s*(\d+|last)", re.ASCII)
ADDRESS = re.compile(r"(.+)@([^/@]+)(?:/(.+))?")


def words_of(given: Mapping[str, Any]) -> list[str]:
    """The runs and models that were typed."""
    value = next((given[name] for name in NAMED if name in given), None)
    return [at_home(str(one)) for one in (value if isinstance(value, tuple | list) else [value]) if one is not None]


def addresses_of(attrs: Attrs) -> list[str]:
    """The models that a result is of; none where it is of runs."""
    said = attrs.get("addresses")
    return [str(one) for one in said] if isinstance(said, list | tuple) else []


def mistyped_rounds(given: Mapping[str, Any], kept: Attrs, place: int, count: int) -> list[int]:
    """The rounds of a result, where others were typed; else none.

    Args:
        place, count: which part of the answer it is, of how many. Where each is of one round its file says which.
    """
    asked = given.get("rounds") or given.get("number")
    if asked is not None:
        of_models = "rounds" not in kept and "round" not in kept
        if of_models and (count > 1 or given.get("show")):
            return []
        said = kept.get("rounds", kept.get("round", _rounds_of_models(kept)))
        is_same = all(_has_rounds(str(asked), have, kept) for have in _by_run(said))
        return [] if is_same else _numbers(said)
    words, said = words_of(given), kept.get("rounds", kept.get("round"))
    if addresses_of(kept) or (count > 1 and len(words) != count):
        return []
    words = words if count == 1 else words[place : place + 1]
    for place, word in enumerate(words):
        head, at, rest = word.rpartition("@")
        if at and head and not Path(word).exists() and "/" not in rest:
            have = _numbers(_of_run(said, place, len(words)))
            if not _has_rounds(rest, have, kept):
                return have
    return []


def _of_run(said: Any, place: int, count: int) -> Any:
    """What is said of the rounds of one run among several: ``[[1, 2], [1]]``, or each beside its run's name."""
    if not isinstance(said, list) or count == 1 or not all(isinstance(one, list) for one in said):
        return said
    names = list(dict.fromkeys(one[0] for one in said if one and isinstance(one[0], str)))
    if names:
        return [one for one in said if one[0] == names[place]] if len(names) == count else said
    return said[place] if len(said) == count else said


def _rounds_of_models(kept: Attrs) -> list[list[str]]:
    """Each round with its run."""
    return [[found[1], found[2]] for one in addresses_of(kept) if (found := ADDRESS.fullmatch(one))]


def _by_run(said: Any) -> list[list[int]]:
    """The rounds of each run: words such as ``last`` are others in a run that is longer."""
    if not isinstance(said, list) or not all(isinstance(one, list) for one in said):
        return [_numbers(said)]
    found: dict[object, list[Any]] = {}
    for place, one in enumerate(said):
        found.setdefault(one[0] if one and isinstance(one[0], str) else place, []).append(one)
    return [_numbers(own) for own in found.values()]


def _numbers(said: Any) -> list[int]:
    """Rounds as results say them: a number, several, several a run, or each with its run's name."""
    found: set[int] = set()
    for one in said if isinstance(said, list) else [said]:
        for part in one[isinstance(one[0], str) :] if isinstance(one, list) and one else [one]:
            if isinstance(part, int) or (isinstance(part, str) and part.isdecimal()):
                found.add(int(part))
    return sorted(found)


def _has_rounds(text: str, have: Sequence[int], kept: Attrs) -> bool:
    """Check whether a result can be of rounds as they were typed: words such as ``last`` meant others when its run was
    shorter."""
    left, growing = set(have), 0
    if not have:
        return True
    for word in (word.strip() for word in text.split(",")):
        if span := RANGE.fullmatch(word):
            last = max(have) if span[2] == "last" else int(span[2])
            left = {number for number in left if not int(span[1]) <= number <= last}
        elif word.isdecimal():
            if int(word) not in have and not kept.get("left_out"):
                return False
            left.discard(int(word))
        else:
            count = word.removeprefix("last:")
            growing += int(count) if count.isdecimal() else 1 if word == "last" or word.startswith("-") else len(have)
    return len(left) <= growing


# --- settings ---

#: the stored value and the typed one, where they are not the same
Differ = tuple[Any, Any] | None


def other_setting(name: str, value: Any, kept: Attrs, param: click.Parameter) -> Differ:
    """A setting that was typed and is another one in a stored result; None where it is the same, or where the result
    does not say it."""
    if name in _OWN:
        return _OWN[name](value, kept)
    key = _KEYS.get(name, name)
    if key not in kept:
        return (None, value) if name in _UNSAID and value != param.default else None
    return None if _agree(key, value, kept[key]) else (kept[key], value)


def _agree(key: str, typed: Any, kept: Any) -> bool:
    """Whether a typed value is a stored one; of what is stored in another form nobody knows."""
    if isinstance(kept, bool) or isinstance(typed, bool):
        return bool(kept) == bool(typed)
    if isinstance(kept, Mapping):
        return True
    if kept is None:
        return typed is None or _text(typed) == "none"
    if isinstance(kept, list | tuple):
        flat = [_text(part) for part in kept if not isinstance(part, list)]
        flat += dict.fromkeys(_text(part) for one in kept if isinstance(one, list) for part in one)  # of each round
        if isinstance(typed, str):  # as numbers of clients, which are stored in their order, each once
            return typed.strip() == "all" or {*map(_text, typed.split(","))} == {*flat}
        return not isinstance(typed, tuple | list) or list(map(_text, typed)) == flat
    return _text(typed) == _text(kept) or is_same_setting(key, kept, typed)


def _text(value: Any) -> str:
    """A value as a text that is the same however it was typed."""
    try:
        return f"{float(value):.12g}"
    except (TypeError, ValueError):
        return str(value).strip()


def _limit(value: Any, kept: Attrs) -> Differ:
    """Of a result that says only how many samples it has, these may be all that there were."""
    if "limit" in kept:
        return None if kept["limit"] == value else (kept["limit"], value)
    samples = kept.get("samples")
    all_of_them = kept.get("seed") is None or any(key in kept for key in _SEEDED)
    if not isinstance(samples, int) or samples == value or (samples < value and all_of_them):
        return None
    return (None if kept.get("seed") is None else samples), value


def _seed(value: Any, kept: Attrs) -> Differ:
    """Where nothing was drawn, every seed gives the same."""
    drawn = [kept[key] for key in ("directions_seed", "seed") if isinstance(kept.get(key), int)]
    return None if not drawn or value in drawn else (drawn[0], value)


def _device(value: Any, kept: Attrs) -> Differ:
    there, here = (str(one).partition(":")[0] for one in (kept.get("device") or "auto", value))
    return None if "auto" in (there, here) or there == here else (there, here)


def _split(value: Any, kept: Attrs) -> Differ:
    there = kept.get("split")
    return None if value == "both" or there is None or there == value else (there, value)


def _task(value: Any, kept: Attrs) -> Differ:
    """A result of samples that names no task is of a classification."""
    from ..training.curves.run_names import USUAL_TASK

    return _named("task")(value, {"task": USUAL_TASK, **kept}) if "samples" in kept else None


def _standardise(value: Any, kept: Attrs) -> Differ:
    return (False, True) if value and kept.get("standardised") is False else None


def _named(key: str) -> Callable[[Any, Attrs], Differ]:
    """Data and architectures are told by their names, and files by these wherever they lie."""

    def compare(value: Any, kept: Attrs) -> Differ:
        there, here = kept.get(key), str(value)
        if not isinstance(there, str) or there == here:
            return None
        return (
            None if PurePath(there.rpartition(":")[2]).name == PurePath(here.rpartition(":")[2]).name else (there, here)
        )

    return compare


def _layers(value: Any, kept: Attrs) -> Differ:
    """Layers as they were asked for; where each has a result of its own, a pattern may stand for it."""
    words = [value] if isinstance(value, str) else list(value)
    if "layer" in kept:
        known = any(_names(word, kept["layer"]) for word in words)
        return None if known else (kept["layer"], value)
    there = next((kept[key] for key in ("layers", "asked_layers") if key in kept), None)
    if isinstance(there, list):
        of_servers = any(isinstance(one, list) for one in there)
        held = ["=".join(map(str, one)) if isinstance(one, list) else str(one) for one in there]
        said = list(kept.get("words", held))
        typed = ["=".join(part.strip() for part in word.rpartition("=")[::2]) if of_servers else word for word in words]
        is_same = typed == said or (not of_servers and _are_all(words, held))
        return None if is_same else (said or None, words)
    return None if there == value else (there, value)


def _names(word: str, layer: str) -> bool:
    """Check whether a name or a pattern stands for a layer."""
    if word == layer:
        return True
    if len(word) > 1 and word.startswith("/") and word.endswith("/"):
        try:
            return re.search(word[1:-1], layer) is not None
        except (re.error, OverflowError, RecursionError):
            return False
    return any(fnmatchcase(layer, part.strip()) for part in word.split(","))


def _are_all(words: Sequence[str], parameters: Sequence[str]) -> bool:
    """Check whether names are those of these parameters, or of layers that have a weight and a bias among them. What a
    pattern stands for these do not say: it might be more."""
    found: set[str] = set()
    for word in words:
        own = {word} if word in parameters else {f"{word}.weight", f"{word}.bias"}
        if not own <= {*parameters}:
            return False
        found |= own
    return found == {*parameters}


def _windows(value: Any, kept: Attrs) -> Differ:
    """Lengths of windows, of which ``all`` is the number of checkpoints."""
    if not isinstance(kept.get("windows"), list):
        return None
    words = [word.strip() for word in str(value).split(",")]
    lengths = [str(kept.get("checkpoints", word)) if word == "all" else word for word in words]
    return None if _agree("windows", ",".join(lengths), kept["windows"]) else (kept["windows"], value)


def _weights(value: Any, kept: Attrs) -> Differ:
    """How clients weigh, or checkpoints by their age: a word may say what is usual, as ``ema:0.9``."""
    there = kept.get("weights")
    if "weights" not in kept:
        return None
    if isinstance(there, list):
        from ..decomposition.windows.weightings import weightings_of

        return None if {*map(str, weightings_of(str(value)))} == {*there} else (there, value)
    return None if _agree("weights", value, there) else (there, value)


def _data_of(value: Any, kept: Attrs) -> Differ:
    """Clients by their numbers; words for several of them stand for those that there were."""
    clients = {word.strip().removeprefix("client-") for word in str(value).split(",")}
    if isinstance(kept.get("data_of"), str):
        return None if _agree("data_of", str(value), kept["data_of"].split(",")) else (kept["data_of"], value)
    if isinstance(kept.get("places"), Mapping):
        there = {str(place).removeprefix("client-") for place in kept["places"]}
        return None if clients == there or not all(map(str.isdecimal, clients)) else (sorted(there), value)
    if "client" in kept or "data_run" in kept:
        return None
    return None, value


def _kind(kind: str) -> Callable[[Any, Attrs], Differ]:
    def compare(value: Any, kept: Attrs) -> Differ:
        return (False, True) if value is True and kept.get("kind", kind) != kind else None

    return compare


def _clients(value: Any, kept: Attrs) -> Differ:
    """A number of them, or those of a round."""
    if value is True:
        return _kind("clients")(value, kept)
    return None if kept.get("clients", value) == value else (kept["clients"], value)


def _adaptive(value: Any, kept: Attrs) -> Differ:
    return (False, True) if value and "adaptive" in kept and kept["adaptive"] is None else None


def _same_axes(value: Any, kept: Attrs) -> Differ:
    return (False, True) if value and "same_axes" not in kept else None


def _no_hessian(value: Any, kept: Attrs) -> Differ:
    return (False, True) if value and kept.get("hessian") is True else None


def _perplexity(value: Any, kept: Attrs) -> Differ:
    there = kept.get("asked_perplexity", kept.get("perplexity"))
    return None if there is None or _text(there) == _text(value) else (there, value)


def _rounds_under(name: str) -> Callable[[Any, Attrs], Differ]:
    def compare(value: Any, kept: Attrs) -> Differ:
        have, is_none = _numbers(kept.get(name) or []), str(value).strip() == "none"
        is_same = (is_none or name not in kept) if not have else not is_none and _has_rounds(str(value), have, kept)
        return None if is_same else (have or None, value)

    return compare


def _in_asked(name: str) -> Callable[[Any, Attrs], Differ]:
    """Settings that a result keeps together."""

    def compare(value: Any, kept: Attrs) -> Differ:
        asked = kept.get("asked")
        known = not isinstance(asked, Mapping) or name not in asked or _agree(name, value, asked[name])
        return None if known or not isinstance(asked, Mapping) else (asked[name], value)

    return compare


def _assignments(value: Any, kept: Attrs) -> Differ:
    """``server.momentum=0.5``, of whichever server has one."""
    servers = [one for one in kept.get("settings") or [] if isinstance(one, Mapping)]
    for key, _, given in (str(one).partition("=") for one in value):
        name = key.rpartition(".")[2].strip()
        there = [one[name] for one in servers if name in one]
        if there and not any(_text(one).lower() == _text(given).lower() for one in there):
            return f"{key}={there[0]}", f"{key}={given.strip()}"
    return None


def _surface(value: Any, kept: Attrs) -> Differ:
    """A surface's file by what is in it, where it still lies there."""
    from hashlib import sha256

    file, there = Path(value[0]), kept.get("file_sha256")
    if there is None or not file.is_file() or sha256(file.read_bytes()).hexdigest() == there:
        return None
    return "", ""


def _passed(value: Any, kept: Attrs) -> Differ:
    """Compared elsewhere, or no part of a result."""
    return None


#: by option, how it is compared where the result keeps it in another form
_OWN: Mapping[str, Callable[[Any, Attrs], Differ]] = {
    **dict.fromkeys((*NAMED, "rounds", "number", "code"), _passed),
    **{"files": _surface, "limit": _limit, "seed": _seed, "device": _device, "split": _split},
    **{"data": _named("data"), "name": _named("data"), "model": _named("architecture"), "standardise": _standardise},
    **{"task": _task, "windows": _windows, "weights": _weights},
    **{"layers": _layers, "data_of": _data_of, "assignments": _assignments, "perplexity": _perplexity},
    **{"adaptive": _adaptive, "same_axes": _same_axes, "no_hessian": _no_hessian, "clients": _clients},
    **{kind: _kind(kind) for kind in ("trajectory", "random")},
    **{name: _rounds_under(name) for name in ("shrink", "kernel")},
    **{
        name: _in_asked(name)
        for name in ("classes", "clusters", "cv_threshold", "sim_threshold", "similarity", "quantile")
    },
}
