"""Inputs of a recorder, checked, as ``run.json`` has them: the name of its data, the clients' sample counts, and the
method, seed and settings that it was trained with."""

from __future__ import annotations

import csv
import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..io.errors import FedscopeError, list_few
from ..io.untrusted import RESULT, expand_home, read_text, real_path
from ..runs.info import sha256_of

if TYPE_CHECKING:
    from .match_files import RoundFiles

_FILE = "npz:"
#: more than any client has, and less than int64 holds
_MOST = 2**53
#: what is given by an argument of its own, and is no setting
_ELSEWHERE = {"method": "method=", "seed": "seed=", "run.seed": "seed=", "label": "method=", "data.name": "data="}


def spell_data(data: Any) -> Any:
    """Return a file of arrays as ``npz:PATH``, as data are named; anything else as it is.

    >>> spell_data("test.npz"), spell_data(Path("sets/test.npz")), spell_data("digits"), spell_data("folder:a.npz")
    ('npz:test.npz', 'npz:sets/test.npz', 'digits', 'folder:a.npz')
    """
    name = str(data) if isinstance(data, Path) else data
    plain = isinstance(name, str) and name.lower().endswith(".npz") and not re.match(r"\w{2,}:", name)
    return f"{_FILE}{name}" if plain else data


def named_data(name: str) -> dict[str, str]:
    """Return the ``data`` of ``run.json``; of an ``npz:PATH`` that is there the absolute path, and ``file_sha256``.

    >>> named_data("digits"), named_data("nowhere.npz")
    ({'name': 'digits'}, {'name': 'npz:nowhere.npz'})
    """
    name = spell_data(name)
    path = path_of(name)
    if path is None or not path.is_file():
        return {"name": name}
    return {"name": f"{_FILE}{real_path(path)}", "file_sha256": sha256_of(path)}


def refuse_changed(run: Path, data: Mapping[str, Any]) -> None:
    """Make sure that the file that a recorded run names is still the one that was there; where it is gone, reading it
    will say so.

    Raises:
        FedscopeError: it is another.
    """
    recorded, path = data.get("file_sha256"), path_of(data.get("name", ""))
    if recorded is None or path is None or not path.is_file():
        return
    found = sha256_of(path)
    if found != recorded:
        raise FedscopeError(
            f"{run}: {path} has changed since the run was recorded (sha256 {found[:12]}..., the run saw "
            f"{recorded[:12]}...); restore it, or give --data {_FILE}{path} to measure on what it is now"
        )


def named_base(base: Path | str) -> dict[str, str]:
    """Return the ``base`` of ``run.json``: the absolute path of a model's file or folder, and the sha256 of its files.

    Raises:
        FedscopeError: no model there.
    """
    from ..models.files import files_of_model

    path = Path(real_path(expand_home(str(base))))
    said = hashlib.sha256()
    for file in files_of_model(path):
        said.update(f"{file.name} {sha256_of(file)}\n".encode())
    return {"path": str(path), "sha256": said.hexdigest()}


def path_of(name: str) -> Path | None:
    """Return the path in ``npz:PATH``; None for other names."""
    return expand_home(name.removeprefix(_FILE)) if name.startswith(_FILE) else None


def counts_of(given: Any, rounds: Sequence[RoundFiles]) -> list[dict[int, int] | None]:
    """Read n_k of each round's clients; None where none were given.

    Args:
        given: numbers in the order of the clients, as a list or as ``10,20,30``; by the client's number; or a ``.csv``
            with columns ``client`` and ``samples``, and ``round`` where they differ between rounds.

    Raises:
        FedscopeError: another number of them than of clients; a client without; no whole numbers.
    """
    if given is None:
        return [None] * len(rounds)
    everyone = sorted({client for files in rounds for client in files.clients})
    if isinstance(given, Path) or (isinstance(given, str) and not re.fullmatch(r"[-+0-9.\s]*(,[-+0-9.\s]*)*", given)):
        table = _table(Path(given))
    elif isinstance(given, Mapping):
        counts = {_count("--samples: client", k): _count(f"--samples of client {k}", n) for k, n in given.items()}
        table = {(None, k): n for k, n in counts.items()}
    elif not isinstance(given, str | Iterable):
        raise FedscopeError(f"--samples is {given!r}; give one number a client, in their order: 10,20,30")
    else:
        words = given.split(",") if isinstance(given, str) else list(given)
        if len(words) != len(everyone):
            raise FedscopeError(
                f"--samples gives {len(words)} number{'s' if len(words) != 1 else ''}, but there are {len(everyone)} "
                f"clients ({list_few(everyone, 6)}); give one a client, in their order"
            )
        table = {(None, k): _count("--samples", word) for k, word in zip(everyone, words, strict=True)}
    return [_of_round(files, table, given) for files in rounds]


def _of_round(files: RoundFiles, table: Mapping[tuple[int | None, int], int], given: Any) -> dict[int, int]:
    counts = {}
    for client in files.clients:
        found = table.get((files.number, client), table.get((None, client)))
        if found is None:
            where = given if isinstance(given, str | Path) else "a mapping"
            raise FedscopeError(f"--samples {where} has none of client {client} of round {files.number}; add them")
        counts[client] = found
    if not any(counts.values()):
        raise FedscopeError(f"--samples: no client of round {files.number} has any; give numbers above 0")
    return counts


def _table(path: Path) -> dict[tuple[int | None, int], int]:
    try:
        text = read_text(path, "a table of samples", "give columns client,samples", RESULT)
    except FileNotFoundError:
        raise FedscopeError(f"--samples {path} does not exist; give 10,20,30 or a .csv") from None
    except OSError as error:
        raise FedscopeError(f"--samples {path} cannot be read ({error.strerror}); check its rights") from None
    lines = csv.DictReader(text.removeprefix("\ufeff").splitlines())
    names = [name.strip() for name in lines.fieldnames or []]
    if lacking := [name for name in ("client", "samples") if name not in names]:
        raise FedscopeError(
            f"--samples {path} has columns {list_few(names, 6) or 'of no name'}, and no {lacking[0]}; its first line "
            "is client,samples or round,client,samples"
        )
    lines.fieldnames = names
    table: dict[tuple[int | None, int], int] = {}
    for row in lines:
        place = f"--samples {path}, line {lines.line_num}: "
        number = _count(f"{place}round", row["round"]) if "round" in names else None
        key = number, _count(f"{place}client", row["client"])
        if key in table:
            of = f" of round {number}" if number is not None else ""
            raise FedscopeError(f"{place}client {key[1]}{of} is there twice; keep one of the lines")
        table[key] = _count(f"{place}samples", row["samples"])
    return table


def _count(place: str, value: Any) -> int:
    try:
        number = int(value) if isinstance(value, str) or int(value) == value else -1
    except (TypeError, ValueError, OverflowError):
        number = -1
    if not 0 <= number < _MOST:
        raise FedscopeError(
            f"{place} is {str(value).strip()[:40]!r}, which is not a whole number from 0 on; correct it"
        )
    return number


def named_method(method: str | None, seed: Any, settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the ``method``, ``seed`` and ``settings`` of ``run.json``, as far as they are given.

    Settings that are mappings are laid flat, ``{"client": {"lr": 0.1}}`` as ``{"client.lr": 0.1}``: as
    ``fedscope train`` calls its own, so that a table has one column of both.

    Raises:
        FedscopeError: a method that is not a line of text; a seed that is not a whole number from 0; settings whose
            values are neither texts, numbers nor lists of these, or that an argument of their own says.

    >>> named_method("FedX", np.int64(3), {"lr": 0.1, "client": {"epochs": 5}})
    {'method': 'FedX', 'seed': 3, 'settings': {'lr': 0.1, 'client.epochs': 5}}
    >>> named_method(None, None, None)
    {}
    """
    said: dict[str, Any] = {}
    if method is not None:
        if not isinstance(method, str) or not method.strip() or not method.isprintable():
            raise FedscopeError(f"method={method!r} is not a name; give a line of text, as method='FedX'")
        said["method"] = method.strip()
    if seed is not None:
        whole = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
        if not whole or not 0 <= seed < 2**53:
            raise FedscopeError(f"seed={seed!r} is not a whole number from 0; give the run's seed, as seed=0")
        said["seed"] = int(seed)
    if settings is not None:
        if not isinstance(settings, Mapping):
            raise FedscopeError(
                f"settings= was given as {type(settings).__name__}; give them by name, as settings={{'lr': 0.1}}"
            )
        said["settings"] = {name: _value(name, value) for name, value in _flat(settings)}
    return said


def _flat(settings: Mapping[Any, Any], section: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in settings.items():
        if not isinstance(key, str) or not key.strip() or not key.isprintable():
            raise FedscopeError(f"settings= has the name {key!r}; give lines of text as names, as {{'lr': 0.1}}")
        name = f"{section}{key.strip()}"
        if name in _ELSEWHERE:
            raise FedscopeError(f"settings= has {name!r}, which {_ELSEWHERE[name]} says; leave it out of settings=")
        found += _flat(value, f"{name}.") if isinstance(value, Mapping) else [(name, value)]
    return found


def _value(name: str, value: Any) -> Any:
    """Make a value one that JSON has."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple) and not any(isinstance(one, list | tuple) for one in value):
        return [_value(name, one) for one in value]
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise FedscopeError(
        f"settings= has {name} = {value!r}, which a run cannot keep; give a text, a finite number, or a list of these"
    )
