"""``run.json``: what a run says of itself, checked once, so that nothing downstream meets another type."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..io.errors import FedscopeError, list_few, nearest
from ..io.hdf5 import check_version
from ..io.shell_words import command_line
from ..io.untrusted import fits_float, read_json, regular

FORMAT, VERSION = "fedscope-run", 1
#: files that are written once, before ``run.json``, which says their sha256
SEALED = ("config.toml", "partition.h5", "recorded-data.npz")
_RESTORE = "restore it from a copy"


def read_info(path: Path) -> dict[str, Any]:
    """``run.json`` of a run's folder, checked.

    Raises:
        FedscopeError: no run there (says which are near), a foreign, damaged or newer file, an entry of another type.
    """
    file = path / "run.json"
    try:
        info = read_json(file, "a run's run.json", _RESTORE)
    except (FileNotFoundError, NotADirectoryError):
        raise FedscopeError(_no_run(path)) from None
    except OSError as error:
        raise FedscopeError(f"{file} cannot be read ({error.strerror})") from None
    if not isinstance(info, dict) or info.get("format") != FORMAT:
        raise FedscopeError(f'{file} is not a run of fedscope: it does not say "format": "{FORMAT}"')
    check_version(file, info.get("version"), VERSION)
    if "layout" not in info:
        raise FedscopeError(f"{file} has no layout; {_RESTORE}")
    _check(file, "", info, _ENTRIES)
    if "data" in info and "source" not in info:
        lacking = [name for name in ("name", "sha256", "shape") if name not in info["data"]]
        lacking += [name for name in ("classes",) if name not in info]
        if lacking:
            raise FedscopeError(f"{file} does not say {list_few(lacking)} of the run's data; {_RESTORE}")
    if (branch := info.get("branch")) and (lacking := [name for name in ("run", "round") if name not in branch]):
        raise FedscopeError(f"{file} does not say {list_few(lacking)} of what the run branches from; {_RESTORE}")
    if info.get("files", {}).get(file.name, "") not in ("", _own(info)):
        raise FedscopeError(
            f"{file} is not as it was written (its own sha256 does not fit what it says); {_RESTORE}, or take "
            f'"{file.name}" out of its "files" if you edited it yourself'
        )
    return info


def seal(path: Path, info: Mapping[str, Any]) -> dict[str, Any]:
    """Add ``files`` to ``run.json``: the sha256 of the files that are written once, by name, of those that are there,
    and of itself, which is that of the rest as JSON with sorted keys and no spaces."""
    files = {name: sha256_of(path / name) for name in SEALED if (path / name).exists()}
    said: dict[str, Any] = json.loads(json.dumps({**info, "files": files}))
    files["run.json"] = _own(said)
    return {**said, "files": files}


def _own(info: Mapping[str, Any]) -> str:
    files = {name: value for name, value in info.get("files", {}).items() if name != "run.json"}
    try:
        text = json.dumps({**info, "files": files}, sort_keys=True, separators=(",", ":"))
    except RecursionError:  # nested deeper than anything that was written
        text = ""
    return hashlib.sha256(text.encode()).hexdigest()


def refuse_broken_seal(path: Path, name: str, info: Mapping[str, Any]) -> None:
    """Make sure that a file of a run is, byte for byte, the one that was written with the run.

    Runs that another program or an earlier fedscope recorded have no seals, and pass.

    Raises:
        FedscopeError: it is not.
    """
    recorded = info.get("files", {}).get(name)
    found = None if recorded is None else sha256_of(path / name)
    if found != recorded:
        instead = "; for other settings train another run: fedscope train CONFIG.toml" if name == "config.toml" else ""
        raise FedscopeError(
            f"{path / name} is not the file that was written with the run (sha256 {found[:12] if found else '-'}..., "
            f"run.json says {recorded[:12]}...); {_RESTORE}{instead}"
        )


def sha256_of(path: Path) -> str:
    """Compute the sha256 of a file, as hexadecimal digits."""
    with regular(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# --- types ---


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _identity(value: Any) -> bool:
    """Read an identity as :func:`~fedscope.checkpoints.rounds.run_identity.read_identity` takes it; "" of a run
    without."""
    return isinstance(value, str) and len(value) <= 64 and (value.isalnum() or not value)


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value < 2**53


def _natural(value: Any) -> bool:
    return value == 0 or _count(value)


def _shape(value: Any) -> bool:
    return isinstance(value, list) and all(map(_count, value)) and len(value) <= 8


def _numbers(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(number, int | float) and fits_float(number) for number in value)


def _history(value: Any) -> bool:
    """Check a list of [last round, configuration]."""
    return isinstance(value, list) and all(
        isinstance(past, list) and len(past) == 2 and _count(past[0]) and isinstance(past[1], dict) for past in value
    )


def _identities(value: Any) -> bool:
    """Check a list of [last round, identity]."""
    return isinstance(value, list) and all(
        isinstance(past, list) and len(past) == 2 and _count(past[0]) and _identity(past[1]) for past in value
    )


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and fits_float(value) and math.isfinite(value)


def _numbers_by_name(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_number, value.values()))


def _texts(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_text, value.values()))


def _settings(value: Any) -> bool:
    def plain(one: Any) -> bool:
        return one is None or isinstance(one, str | int | float)

    return isinstance(value, dict) and all(
        plain(one) or (isinstance(one, list) and all(map(plain, one))) for one in value.values()
    )


def _code(value: Any) -> bool:
    """Check a list of objects of texts, each with a kind and a name; a text's file lies in the run's folder."""
    return isinstance(value, list) and all(
        _texts(one) and {"kind", "name"} <= one.keys() and re.fullmatch(r"[\w@-]*(\.py)?", one.get("text", ""))
        for one in value
    )


def _list_of_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_text, value))


_Rule = tuple[Callable[[Any], bool] | dict[str, Any], str]
_TEXT: _Rule = (_text, "text")
_TEXTS: _Rule = (_texts, "an object of texts")
_COUNT: _Rule = (_count, "a whole number from 1 on")
_NATURAL: _Rule = (_natural, "a whole number from 0 on")
_WHOLE: _Rule = (lambda value: isinstance(value, int) and not isinstance(value, bool), "a whole number")
_NUMBERS: _Rule = (_numbers, "a list of numbers")
_METHOD: dict[str, _Rule] = {
    "method": _TEXT,
    "seed": _NATURAL,
    "settings": (_settings, "an object of texts, numbers and lists of these"),
}
_DATA: dict[str, _Rule] = {
    **dict.fromkeys(("name", "path", "sha256", "file_sha256", "file", "splits"), _TEXT),
    "standardise": (lambda value: isinstance(value, bool), "true or false"),
    **dict.fromkeys(("channel_means", "channel_deviations"), _NUMBERS),
    "shape": (_shape, "a list of whole numbers from 1 on"),
    **dict.fromkeys(("train", "test"), _NATURAL),
    "held_out": (lambda value: isinstance(value, bool), "true or false"),
}
_BRANCH: dict[str, _Rule] = {
    **dict.fromkeys(("run", "created"), _TEXT),
    "round": _NATURAL,
    "history": (_history, "a list of [last round, configuration]"),
    "identities": (_identities, "a list of [last round, identity]"),
}
_WEIGHTS: dict[str, _Rule] = {
    **dict.fromkeys(("path", "sha256"), _TEXT),
    "fresh": (_list_of_texts, "a list of texts"),
}
_ADAPTERS: dict[str, _Rule] = {
    **dict.fromkeys(("r", "lora_alpha", "randlora_alpha"), (_number, "a number")),
    "alpha": (lambda value: _number(value) or _numbers_by_name(value), "a number, or an object of numbers"),
    **dict.fromkeys(("rank_pattern", "alpha_pattern"), (_numbers_by_name, "an object of numbers")),
}
_ENTRIES: dict[str, _Rule] = {
    **dict.fromkeys(("created", "source", "model", "device", "engine", "precision", "capability"), _TEXT),
    "numbered_by": _TEXT,
    **dict.fromkeys(("versions", "files", "imported", "cluster", "client_names"), _TEXTS),
    "identity": (_identity, "letters and digits, 64 at most"),
    "layout": (lambda value: isinstance(value, list), "a list"),
    **dict.fromkeys(("clients", "classes", "threads", "rounds"), _COUNT),
    "data": (_DATA, "an object"),
    "weights": (_WEIGHTS, "an object"),
    "adapters": (_ADAPTERS, "an object"),
    "base": (dict.fromkeys(("path", "sha256"), _TEXT), "an object"),
    "branch": (_BRANCH, "an object"),
    "code": (_code, "a list of objects of texts, each with a kind and a name"),
    **_METHOD,
}


def refuse_no_settings(file: Path, config: Mapping[str, Any]) -> None:
    """Make sure of what is read of a configuration by itself, before all of it is understood.

    Raises:
        FedscopeError: a section that is no table; a name, a number or a switch of another type.
    """
    _check(file, "", config, {**{name: ({}, "a section") for name in config}, **_SETTINGS})
    for section, table in config.items():
        for key, value in table.items():
            if not (_plain(value) or (isinstance(value, list) and all(map(_plain, value)))):
                raise FedscopeError(f"{file} says {section}.{key} = {_short(value)}, which no setting is; {_RESTORE}")


def _plain(value: Any) -> bool:
    return isinstance(value, str | bool | int | float)


def _short(value: Any) -> str:
    said = repr(value)
    return said if len(said) <= 40 else f"{said[:40]}..."


#: of a configuration, what is read without understanding all of it
_SETTINGS: dict[str, Any] = {
    "data": ({"seed": _WHOLE, "partition": _TEXT, "clients": _COUNT}, "a section"),
    "model": (dict.fromkeys(("name", "task"), _TEXT), "a section"),
    **dict.fromkeys(("client", "server", "average"), ({"method": _TEXT}, "a section")),
    "run": ({"seed": _WHOLE, "rounds": _COUNT}, "a section"),
    "record": ({"compression": _TEXT}, "a section"),
}


def _check(file: Path, place: str, found: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    for name, (rule, words) in known.items():
        if name not in found:
            continue
        value = found[name]
        if not (isinstance(value, dict) if isinstance(rule, dict) else rule(value)):
            raise FedscopeError(f"{file} says {place}{name} = {_short(value)}, which should be {words}; {_RESTORE}")
        if isinstance(rule, dict):
            _check(file, f"{name}.", value, rule)


# --- what is near ---

_MAKES_RUN = "makes a run of models"


def _no_run(path: Path) -> str:
    if path.is_file():
        several = command_line("import", path, "FILE", "...", "--out", "RUN")
        made = f"; {several} {_MAKES_RUN}" if _holds_models(path) else ""
        return f"{path} is a file, not a run; a run is a folder with a run.json{made}"
    here = [entry.name for entry in _folders(path.parent) if (entry / "run.json").is_file()]
    there = f"{path} is not a run: it has no run.json" if path.is_dir() else f"{path} does not exist"
    if (path / "sweep.json").is_file():
        own = [entry.name for entry in _folders(path / "runs")]
        return f"{path} is a sweep, not a run" + (f"; {path / 'runs'} holds {list_few(own)}" if own else "")
    if sweeps := [entry.name for entry in _folders(path) if (entry / "sweep.json").is_file()]:
        return f"{there}; it holds the sweeps {list_few(sweeps)}"
    if path.is_dir() and (inside := [entry.name for entry in _folders(path) if (entry / "run.json").is_file()]):
        return f"{there}; it holds the runs {list_few(inside)}"
    if path.is_dir() and _holds_models(path):
        return f"{there}; {command_line('import', path, '--out', 'RUN')} {_MAKES_RUN}"
    hint = nearest(path.name, here, {name: str(path.with_name(name)) for name in here})
    runs = f"; the runs in {path.parent} are {list_few(here)}" if here and not hint else ""
    return there + hint + runs


def _holds_models(path: Path) -> bool:
    """Check whether a path is a model's file, or a folder of models."""
    from ..models.files import SUFFIXES, is_model_folder
    from ..models.folders import is_model_name, model_names

    if path.is_file():
        return is_model_name(path.name, SUFFIXES)
    return bool(model_names(path, SUFFIXES)) or any(is_model_folder(one) for one in (path, *_folders(path)))


def _folders(path: Path) -> list[Path]:
    try:
        return sorted(entry for entry in path.iterdir() if entry.is_dir())
    except OSError:
        return []
