"""What a run keeps of code that is not fedscope's: its name, SHA-256 and text, as data that nothing executes.

``run.json`` has an entry for each, and ``code/`` in the run the texts. A run that goes on with another source says from
which round on, in ``code/changed.json``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from math import inf
from pathlib import Path
from typing import Any

from ...checkpoints import FedscopeError, Run, regular, write_durably
from ...checkpoints.io.errors import spans
from ...checkpoints.io.safe_write import own_folder, refuse_strange
from ...checkpoints.io.untrusted import read_json
from ...checkpoints.io.warn_user import warn_user
from ...checkpoints.runs.folders import CODE
from ..settings.code_kinds import Kind, named_in
from ..settings.code_source import CodeSource, source_of
from ..settings.entry_points import chosen
from ..settings.imported_code import LONGEST
from ..settings.missing_code import needs_code
from ..settings.own_code import OwnCode
from .kept_imports import imported_texts, imports_of, named_texts, other_import, text_name
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
            texts |= {entry["text"]: source.text, **named_texts(entry["text"], imported_texts(source))}
        entries.append(entry)
    return entries, texts


def branched_entries(
    run: Run, round: int, tables: Mapping[str, Any]
) -> tuple[list[dict[str, Any]], dict[str, str], list[dict[str, Any]]]:
    """Return the same for a branch: of its own configuration, and of the rounds that it takes over from a run.

    Args:
        round: the last that it takes over.

    Returns:
        Also the entries, with their texts as ``source`` and ``imported``, of code whose source was changed in these
        rounds, with ``after``, and of code that has another one now than in the last of them.
    """
    entries, texts = entries_of(tables)
    own = {(entry["kind"], entry["name"]): entry for entry in entries}
    others: list[dict[str, Any]] = []
    for key, (first, *later) in sources_in(run, round).items():
        now = own.get(key)
        last = (later or [first])[-1]
        same = now is not None and _is_alike(last, now)
        if same and not later:
            continue
        if now is not None:
            entries.remove(now)
            source, imported = texts.pop(now.get("text", ""), ""), {}
            for module in imports_of(now):
                imported[module] = texts.pop(text_name(now["text"], module), "")
        name, text = f"{first['kind']}-before-{len(texts)}.py", kept_text(run, first)
        if text is not None:
            texts |= {name: text, **named_texts(name, kept_imports(run, first))}
        entry = {said: value for said, value in first.items() if said != "after"}
        entries.append(entry if text is None else {**entry, "text": name})
        others += [
            {**change, "source": kept_text(run, change) or "", "imported": kept_imports(run, change)}
            for change in later
        ]
        if now is not None and not same:
            others.append({**now, "source": source, "imported": imported})
    return entries, texts, others


def kept_text(run: Run, entry: Mapping[str, Any]) -> str | None:
    """Read the text of a source that a run keeps; None where it has none. A file of somebody else's may be a link, or
    of any size."""
    kept = run.path / CODE / entry.get("text", "")
    if not entry.get("text") or kept.is_symlink() or not kept.is_file() or kept.stat().st_size > 4 * LONGEST:
        return None
    return regular(kept, "a source that a run keeps").read_text(encoding="utf-8", errors="replace")


def kept_imports(run: Run, entry: Mapping[str, Any]) -> dict[str, str]:
    """Read the texts of what a source imported, as far as a run keeps them, by module."""
    names = {module: text_name(entry["text"], module) for module in imports_of(entry) if entry.get("text")}
    texts = {module: kept_text(run, {"text": name}) for module, name in names.items()}
    return {module: text for module, text in texts.items() if text is not None}


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


def playing(
    run: Run, given: Given, *, changed: bool = False, all_: bool = True, rounds: Collection[int] | None = None
) -> tuple[Run, list[dict[str, Any]]]:
    """Return a run whose methods can be run: with the code that was given, and that of installed packages.

    This and :func:`code_named` alone import anything for a run: they are called by what trains, replays or aggregates
    anew.

    Args:
        changed: whether another source than the recorded one is taken.
        all_: whether all code that the run names is needed; else what is not given stays a placeholder.
        rounds: whose sources count; None: those that the run goes on with.

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
            if _is_another(run, kind.name, str(value), found, changed=changed, rounds=rounds):
                said = {"kind": kind.name, "name": str(value), **found.source.said()}
                others.append({**said, "source": found.source.text, "imported": imported_texts(found.source)})
    if code:
        run = Run.open(run.path)
        run.code = code
    return run, others


def code_named(
    run: Run, kind: Kind, name: str, given: Given, *, changed: bool = False, rounds: Collection[int] | None = None
) -> OwnCode | None:
    """Return the code of one setting of a run, of those given and of installed packages; None of what is fedscope's.

    Args:
        name: as the run's configuration has it; changed, rounds: as for :func:`playing`.

    Raises:
        FedscopeError: code that was not given (says how it is); another source than the run has recorded.
    """
    if not names_code(kind, name):
        return None
    found = _found(kind.name, name, given)
    if found is None:
        raise FedscopeError(f"{run.path}: {needs_code(kind.section, name)}")
    _is_another(run, kind.name, name, found, changed=changed, rounds=rounds)
    return found


def _is_another(
    run: Run, kind: str, name: str, found: OwnCode, *, changed: bool, rounds: Collection[int] | None
) -> bool:
    """Check whether code has another source than a run was trained with, as far as the run says.

    Raises:
        FedscopeError: it has, and nobody said that this is meant.
    """
    _warn_of_edited(kind, name, found.source)
    return _is_other(run, kind, name, found, changed=changed, rounds=rounds)


def refuse_other_source(run: Run, round: int) -> None:
    """Refuse to replay a round by code that has another source than it was made with: of a run whose source was changed
    on its way, one source is not that of all rounds.

    Args:
        run: with its code, as :func:`playing` returns it.

    Raises:
        FedscopeError: names the code, and the rounds that it has made.
    """
    for key, found in run.code.items():
        kind, _, name = key.partition("=")
        _is_other(run, kind, name, found, changed=False, rounds=[round])


def _is_other(run: Run, kind: str, name: str, found: OwnCode, *, changed: bool, rounds: Collection[int] | None) -> bool:
    numbers: list[float] = [inf] if rounds is None else [*sorted(rounds)]
    kept = {number: _source_at(run, kind, name, number) for number in numbers}
    others = {number: entry for number, entry in kept.items() if _differs(entry, found.source)}
    if others and not changed:
        raise FedscopeError(_another_source(run, kind, name, found, others, replayed=rounds is not None))
    return bool(others)


def _differs(entry: Mapping[str, Any], source: CodeSource) -> bool:
    """Check whether a source is another than an entry says, as far as it says it, or one that is imported is."""
    known = entry.get("sha256") or source.sha256
    return known != source.sha256 or bool(other_import(entry, source.sums))


def other_sources(
    run: Run, given: Given, *, changed: bool = False, rounds: Collection[int] | None = None
) -> dict[str, str]:
    """Return the SHA-256 of the code of clients and all that they train with that is not what a run was trained with,
    by kind and name; of a run that does not say its code's, of all of it. A server has no part in replays.

    Args:
        changed: as for :func:`playing`; only with it packages are imported, which another source is taken of.
        rounds: as for :func:`playing`.
    """
    numbers: list[float] = [inf] if rounds is None else [*sorted(rounds)]
    others: dict[str, str] = {}
    for tables in _configs_of(run):
        for kind, value in named_in(tables):
            if kind.name == "server" or not names_code(kind, value):
                continue
            key, name = f"{kind.name}={value}", str(value)
            found = _found(kind.name, value, given) if changed else given.get(key, given.get(kind.name))
            if found is None:
                continue
            made_by = [_source_at(run, kind.name, name, t) for t in numbers]
            own = found.source
            if any(own.sha256 != e.get("sha256", "") or other_import(e, own.sums) for e in made_by):
                others[key] = own.digest
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


def _another_source(
    run: Run, kind: str, name: str, found: OwnCode, others: Mapping[float, Mapping[str, Any]], *, replayed: bool
) -> str:
    """Describe that code is not what made some rounds: of a run whose source was changed, which these are.

    Args:
        others: their entries; replayed: whether the run itself does not go on.
    """
    entry, own = next(iter(others.values())), found.source.sha256
    text = entry.get("text") or f"{kind}.py"
    what, then, now = "", entry.get("sha256") or own, own or "unknown"
    if then == own:
        module = other_import(entry, found.source.sums)
        what, text = f" of {module}, which it imports,", text_name(text, module)
        then, now = imports_of(entry)[module], found.source.sums[module]
    package = f"{entry['distribution']} {entry.get('version', '')} then; " if entry.get("distribution") else ""
    who, instead = "the run was", ""
    if replayed and len(sources_in(run).get((kind, name), [])) > 1:
        alike = [t for t, one in others.items() if one is entry or _is_alike(one, entry)]
        who = f"round{'s' if len(alike) > 1 else ''} {spans(map(int, alike))} {'were' if len(alike) > 1 else 'was'}"
        made_by = {t: _source_at(run, kind, name, t) for t in run.rounds}
        its = [t for t, one in made_by.items() if one.get("sha256") and not _differs(one, found.source)]
        instead = f", take the rounds that it has made ({spans(its)})" if its else ""
    says = "what is made says so" if replayed else "the run says from which round on"
    return (
        f"{run.path}: {kind} {name} has another source{what} than {who} trained with ({package}sha256 {now[:12]}..., "
        f"the run has {then[:12]}..., see {run.path / CODE / text}); restore it{instead}, or give --code-changed, and "
        f"{says}"
    )


def _is_alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Check whether two entries say the same source."""
    return one.get("sha256") == other.get("sha256") and not other_import(one, imports_of(other))


def _source_at(run: Run, kind: str, name: str, round: float) -> Mapping[str, Any]:
    """Return what a run keeps of the code that made a round; nothing where it does not say."""
    return sources_in(run, round).get((kind, name), [{}])[-1]


def sources_in(run: Run, upto: float = inf) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Return what a run keeps of the code that made its rounds, by kind and name: an entry for each source, the oldest
    first, with ``after``, the last round before it.

    Args:
        upto: the last round that counts; by default also what the run goes on with counts.
    """
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for entry in (*({"after": 0, **one} for one in run.info.get("code", [])), *changes_of(run)):
        own = found.setdefault((entry["kind"], entry["name"]), [])
        if own and entry["after"] >= upto:
            continue
        while own and own[-1]["after"] >= entry["after"]:
            own.pop()  # it has made no round
        own.append(entry)
    return found


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
        and all(isinstance(one.get(key, ""), str) for key in ("kind", "name", "sha256", "text", "imports"))
        and re.fullmatch(r"[\w@-]*(\.py)?", one.get("text", ""))
        and {"kind", "name"} <= one.keys()
        for one in said
    )
    if not ours:
        raise FedscopeError(f"{path} is not what fedscope writes of changed code; restore it from a copy")
    return list(said)


def say_changed(run: Run, others: Iterable[Mapping[str, Any]]) -> None:
    """Write down that a run goes on with other sources, after its last round; of those that say ``after``, which they
    did in its history, after that.

    Raises:
        FedscopeError: something else lies there.
    """
    after = run.rounds[-1] if run.rounds else 0
    texts: dict[str, str] = {}
    said = changes_of(run)
    for other in others:
        begins = other.get("after", after) + 1
        text = f"{other['kind']}@{begins}.py"
        if text in texts:  # two of one kind
            text = f"{other['kind']}@{begins}-{len(texts)}.py"
        texts |= {text: other["source"], **named_texts(text, other.get("imported", {}))}
        entry = {key: value for key, value in other.items() if key not in ("source", "imported")}
        said.append({"after": after, **entry, "text": text})
    if not texts:
        return
    write_texts(run.path, texts)
    path = run.path / CODE / CHANGED
    refuse_strange(path, "what a run says of changed code")
    with write_durably(path) as temporary:
        temporary.write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
