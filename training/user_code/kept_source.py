"""What a run keeps of code that is not fedscope's: its name, SHA-256 and text, as data that nothing executes.

``run.json`` has an entry for each, and ``code/`` in the run the texts. A run that goes on with another source says from
which round on, in ``code/changed.json``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ...checkpoints import FedscopeError, Run, regular, write_durably
from ...checkpoints.io.safe_write import own_folder, refuse_strange
from ...checkpoints.io.untrusted import read_json
from ...checkpoints.io.warn_user import warn_user
from ...checkpoints.runs.folders import CODE
from ..settings.code_kinds import Kind, named_in
from ..settings.code_source import LONGEST, CodeSource, source_of
from ..settings.entry_points import chosen
from ..settings.missing_code import needs_code
from ..settings.own_code import OwnCode
from .provided_code import SHELVES, Given, names_code, refuse_unneeded

CHANGED = "changed.json"


def entries_of(tables: Mapping[str, Any]) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the ``code`` of ``run.json`` for a configuration that is about to be trained, and the texts by file."""
    entries: list[dict[str, Any]] = []
    texts: dict[str, str] = {}
    for kind, value in named_in(tables):
        source = _source_of(kind.name, value)
        if source is None:
            continue
        _warn_of_edited(kind.name, str(value), source)
        entry: dict[str, Any] = {"kind": kind.name, "name": str(value), **source.said()}
        if source.text:
            entry["text"] = f"{kind.name}.py"
            texts[entry["text"]] = source.text
        entries.append(entry)
    return entries, texts


def branched_entries(
    run: Run, tables: Mapping[str, Any]
) -> tuple[list[dict[str, Any]], dict[str, str], list[dict[str, Any]]]:
    """Return the same for a branch: of its own configuration, and of the rounds that it takes over from a run.

    Returns:
        Also the entries, with their texts as ``source``, of code that has another source now than in these rounds.
    """
    entries, texts = entries_of(tables)
    own = {(entry["kind"], entry["name"]): entry for entry in entries}
    others: list[dict[str, Any]] = []
    for entry in entries_in(run):
        now = own.get((entry["kind"], entry["name"]))
        if now is not None and now.get("sha256") == entry.get("sha256"):
            continue
        if now is not None:
            entries.remove(now)
            others.append({**now, "source": texts.pop(now.get("text", ""), "")})
        kept = run.path / CODE / entry.get("text", "")
        name = f"{entry['kind']}-before-{len(texts)}.py"
        # a file of somebody else's may be a link, or of any size
        if entry.get("text") and kept.is_file() and not kept.is_symlink() and kept.stat().st_size <= 4 * LONGEST:
            texts[name] = regular(kept, "a source that a run keeps").read_text(encoding="utf-8", errors="replace")
        entries.append({**entry, "text": name} if name in texts else entry)
    return entries, texts, others


def _source_of(kind: str, value: Any) -> CodeSource | None:
    """Return the source of what a setting names; None of what is fedscope's."""
    if isinstance(value, OwnCode):
        return value.source
    shelf = SHELVES.get(kind)
    if shelf is None or not isinstance(value, str):
        return None
    from ..settings.registry import find, is_known

    first = value.partition(":")[0]
    if is_known(shelf, first) or chosen(shelf, first) is None:  # type: ignore[arg-type]
        return None
    thing = find(shelf, first)  # type: ignore[arg-type]
    return thing.source if isinstance(thing, OwnCode) else source_of(thing)


def _warn_of_edited(kind: str, name: str, source: CodeSource) -> None:
    """Warn where what is trained is not what the file says, of which a run keeps the text."""
    if source.edited:
        warn_user(
            f"{source.file} was edited since {kind} {name} was imported from it: what is trained is the code of then, "
            "and what the run keeps is the text of now; import it in a new session to train what the file says"
        )


def write_texts(folder: Path, texts: Mapping[str, str]) -> None:
    """Write sources into a run's folder.

    Raises:
        FedscopeError: something else lies there.
    """
    if not texts:
        return
    own_folder(folder / CODE)
    for name, text in texts.items():
        refuse_strange(folder / CODE / name, "a source that a run keeps")
        with write_durably(folder / CODE / name) as temporary:
            temporary.write_text(text, encoding="utf-8", errors="surrogatepass", newline="")


def playing(run: Run, given: Given, *, changed: bool = False, all_: bool = True) -> tuple[Run, list[dict[str, Any]]]:
    """Return a run whose methods can be run: with the code that was given, and that of installed packages.

    This and :func:`code_named` alone import anything for a run: they are called by what trains, replays or aggregates
    anew.

    Args:
        changed: whether another source than the recorded one is taken.
        all_: whether all code that the run names is needed; else what is not given stays a placeholder.

    Returns:
        The run, and entries of the sources that are others now, as :func:`say_changed` writes them.

    Raises:
        FedscopeError: code that was not given (says how it is); code that nothing asks for; another source than the
            run has recorded.
    """
    if all_:
        refuse_unnamed(run, given)
    code: dict[str, OwnCode] = {}
    others: list[dict[str, Any]] = []
    for tables in _configs_of(run):
        for kind, value in named_in(tables):
            if f"{kind.name}={value}" in code or not names_code(kind, value):
                continue
            found = _found(kind.name, value, given)
            if found is None:
                if not all_ or kind.name in ("data", "partition"):  # said where samples are read; that is recorded
                    continue
                other = kind.name if kind.name == "optimiser" else ""
                raise FedscopeError(f"{run.path}: {needs_code(kind.section, str(value), other)}")
            code[f"{kind.name}={value}"] = found
            if _is_another(run, kind.name, str(value), found, changed=changed):
                said = {"kind": kind.name, "name": str(value), **found.source.said()}
                others.append({**said, "source": found.source.text})
    if code:
        run = Run.open(run.path)
        run.code = code
    return run, others


def code_named(run: Run, kind: Kind, name: str, given: Given, *, changed: bool = False) -> OwnCode | None:
    """Return the code of one setting of a run, of those given and of installed packages; None of what is fedscope's.

    Args:
        name: as the run's configuration has it; changed: as for :func:`playing`.

    Raises:
        FedscopeError: code that was not given (says how it is); another source than the run has recorded.
    """
    if not names_code(kind, name):
        return None
    found = _found(kind.name, name, given)
    if found is None:
        raise FedscopeError(f"{run.path}: {needs_code(kind.section, name)}")
    _is_another(run, kind.name, name, found, changed=changed)
    return found


def _is_another(run: Run, kind: str, name: str, found: OwnCode, *, changed: bool) -> bool:
    """Check whether code has another source than a run was trained with, as far as the run says.

    Raises:
        FedscopeError: it has, and nobody said that this is meant.
    """
    entry = {(one["kind"], one["name"]): one for one in entries_in(run)}.get((kind, name), {})
    _warn_of_edited(kind, name, found.source)
    recorded = entry.get("sha256", "")
    if not recorded or found.source.sha256 == recorded:
        return False
    if not changed:
        raise FedscopeError(_another_source(run, kind, name, entry, found))
    return True


def other_sources(run: Run, given: Given, *, changed: bool = False) -> dict[str, str]:
    """Return the SHA-256 of the code of clients and all that they train with that is not what a run was trained with,
    by kind and name; of a run that does not say its code's, of all of it. A server has no part in replays.

    Args:
        changed: as for :func:`playing`; only with it packages are imported, which another source is taken of.
    """
    known = {(entry["kind"], entry["name"]): entry.get("sha256", "") for entry in entries_in(run)}
    others: dict[str, str] = {}
    for tables in _configs_of(run):
        for kind, value in named_in(tables):
            if kind.name == "server" or not names_code(kind, value):
                continue
            key, name = f"{kind.name}={value}", str(value)
            found = _found(kind.name, value, given) if changed else given.get(key, given.get(kind.name))
            if found is not None and found.source.sha256 != known.get((kind.name, name), ""):
                others[key] = found.source.sha256
    return others


def refuse_unnamed(run: Run, given: Given) -> None:
    """Refuse code that no configuration of a run names.

    Raises:
        FedscopeError: as :func:`~.provided_code.refuse_unneeded`.
    """
    refuse_unneeded(given, _merged(_configs_of(run)), str(run.path))


def _configs_of(run: Run) -> list[Mapping[str, Any]]:
    """Return the configuration of a run, and those that made a branch's history."""
    return [run.config or {}, *(tables for _, tables in run.info.get("branch", {}).get("history", []))]


def _merged(configs: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return of each kind what names code, wherever it stands."""
    merged: dict[str, Any] = {}
    for tables in configs:
        for kind, value in named_in(tables):
            table = merged.setdefault(kind.section, {})
            if kind.key not in table or names_code(kind, value):
                table[kind.key] = value
    return merged


def _found(kind: str, value: Any, given: Given) -> OwnCode | None:
    named = given.get(f"{kind}={value}", given.get(kind))
    if named is not None:
        return named
    shelf = SHELVES.get(kind)
    if shelf is None or ":" in str(value):
        return None
    packaged = chosen(shelf, str(value))
    if packaged is None:
        return None
    from ..settings.registry import find

    thing = find(shelf, str(value))  # type: ignore[arg-type]
    return thing if isinstance(thing, OwnCode) else OwnCode.of(str(value), thing)


def _another_source(run: Run, kind: str, name: str, entry: Mapping[str, str], found: OwnCode) -> str:
    kept = run.path / CODE / entry.get("text", f"{kind}.py")
    package = f"{entry['distribution']} {entry.get('version', '')} then; " if entry.get("distribution") else ""
    return (
        f"{run.path}: {kind} {name} has another source than the run was trained with ({package}sha256 "
        f"{found.source.sha256[:12] or 'unknown'}..., the run has {entry['sha256'][:12]}..., see {kept}); restore it, "
        "or give --code-changed, and the run says from which round on"
    )


def entries_in(run: Run) -> list[dict[str, str]]:
    """Return what a run keeps of code; where its source was changed later, what it went on with."""
    entries: list[dict[str, str]] = [dict(entry) for entry in run.info.get("code", [])]
    for change in changes_of(run):
        for entry in entries:
            if (entry["kind"], entry["name"]) == (change["kind"], change["name"]):
                entry.update({"sha256": change.get("sha256", ""), "text": change.get("text", "")})
    return entries


def changes_of(run: Run) -> list[dict[str, Any]]:
    """Return from which rounds on a run went on with other sources: entries with ``after``, the last round before.

    Raises:
        FedscopeError: a damaged file.
    """
    path = run.path / CODE / CHANGED
    if not path.is_file():
        return []
    said = read_json(path, "what a run says of changed code", "restore it from a copy")
    ours = isinstance(said, list) and all(
        isinstance(one, dict)
        and isinstance(one.get("after"), int)
        and all(isinstance(one.get(key, ""), str) for key in ("kind", "name", "sha256", "text"))
        and re.fullmatch(r"[\w@-]*(\.py)?", one.get("text", ""))
        and {"kind", "name"} <= one.keys()
        for one in said
    )
    if not ours:
        raise FedscopeError(f"{path} is not what fedscope writes of changed code; restore it from a copy")
    return list(said)


def say_changed(run: Run, others: Iterable[Mapping[str, Any]]) -> None:
    """Write down that a run goes on with other sources, after its last round.

    Raises:
        FedscopeError: something else lies there.
    """
    after = run.rounds[-1] if run.rounds else 0
    texts: dict[str, str] = {}
    said = changes_of(run)
    for other in others:
        text = f"{other['kind']}@{after + 1}.py"
        texts[text] = other["source"]
        said.append({"after": after, **{key: other[key] for key in other if key != "source"}, "text": text})
    if not texts:
        return
    write_texts(run.path, texts)
    path = run.path / CODE / CHANGED
    refuse_strange(path, "what a run says of changed code")
    with write_durably(path) as temporary:
        temporary.write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
