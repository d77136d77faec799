"""Matching model files with rounds and clients: of a list, of a folder, or of a pattern with rounds and clients in
it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..io.errors import FedscopeError, list_few, spans
from ..io.shell_words import quoted
from ..io.untrusted import real_path
from ..models.files import SUFFIXES, file_and_key, is_model_folder
from ..models.folders import model_in, model_names
from .file_order import OtherOrder, name_apart, other_order
from .offer_pattern import offer_pattern

#: what stands for a whole number in a pattern
PLACEHOLDERS = ("round", "client")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_EXAMPLE = "ckpt/round-{round}/client-{client}.pt"


@dataclass(frozen=True)
class RoundFiles:
    """The files of a round.

    Attributes:
        number: of the round, as the files count.
        clients: by the client's number, ascending.
        start, global_: None where there is no file.
    """

    number: int
    clients: dict[int, Path]
    start: Path | None
    global_: Path | None

    @property
    def count(self) -> int:
        """The number of files."""
        return len(self.clients) + (self.start is not None) + (self.global_ is not None)


@dataclass(frozen=True)
class CheckpointFiles:
    """The files of a run.

    Attributes:
        rounds: ascending; rounds that there are not are left out.
        given: the patterns and folders that were given, by what they are for.
        notes: what was left out, a sentence each.
        numbered: whether clients have the numbers of their files' names, and not those of their order.
        order: of files in a list, where the numbers in their names say another than that in which they were given.
    """

    rounds: tuple[RoundFiles, ...]
    given: dict[str, str]
    notes: list[str]
    numbered: bool = False
    order: OtherOrder | None = None


def find_files(files: Sequence[str], start: str | None = None, global_: str | None = None) -> CheckpointFiles:
    """Find the files of every round.

    Args:
        files: the clients' models, numbered from 0 in this order; one folder, whose model files are taken in natural
            order; or one pattern, in which ``{round}`` and ``{client}`` stand for whole numbers.
        start: the file of the model that the first round's clients were sent, or a pattern with ``{round}``.
        global_: the server's model afterwards, alike.

    Raises:
        FedscopeError: no files; a pattern that says something else, or that nothing matches; one client twice; a file
            of a round without clients.
    """
    notes: list[str] = []
    given = {"clients": files[0]} if len(files) == 1 and not Path(files[0]).is_file() else {}
    given |= {name: text for name, text in (("start", start), ("global", global_)) if text and is_pattern(text)}
    if not files or not all(files):
        raise FedscopeError(f"no files were given; give model files, a folder of them, or a pattern: '{_EXAMPLE}'")
    patterns = [text for text in files if is_pattern(text)]
    if patterns and len(files) > 1:
        raise FedscopeError(f"{patterns[0]} is a pattern, which stands for all files; give it alone, in quotes")
    clients = _by_round(patterns[0]) if patterns else {1: dict(enumerate(_in_order(files, start, global_, notes)))}
    starts, ends = _of_rounds("--start", start, clients, files[0]), _of_rounds("--global", global_, clients, files[0])
    for option, found in (("--start", starts), ("--global", ends)):
        for number in [number for number in found if number not in clients]:
            if option == "--start" and number > max(clients):  # the model that the last round has made
                notes.append(f"{found.pop(number)} is left out: no client's file is of round {number}")
                continue
            raise FedscopeError(
                f"{option} {found[number]} is of round {number}, of which there is no client's file ({files[0]} has "
                f"rounds {spans(sorted(clients))}); add them, or move it away"
            )
    rounds = (RoundFiles(t, dict(sorted(clients[t].items())), starts.get(t), ends.get(t)) for t in sorted(clients))
    order = None if patterns else _other_order(files, list(clients[1].values()))
    if order is not None and order.as_text:
        k = next(k for k, path in clients[1].items() if path == order.greater)
        notes.append(
            f"{order.greater} is client {k}, before {order.less}, because files are clients in the order in which they "
            f"were given; give {order.mended}"
        )
    return CheckpointFiles(tuple(rounds), given, notes, bool(patterns), order)


def is_pattern(text: str) -> bool:
    """Check whether a path has ``{...}`` in it, and is not the name of a file.

    >>> is_pattern("client-{client}.pt"), is_pattern("client-3.pt")
    (True, False)
    """
    return _PLACEHOLDER.search(text) is not None and not Path(text).exists()


def natural(name: str) -> list[str | int]:
    """Return a key by which ``client-2`` comes before ``client-10``.

    >>> sorted(["client-10.pt", "client-2.pt"], key=natural)
    ['client-2.pt', 'client-10.pt']
    """
    return [int(part) if i % 2 else part for i, part in enumerate(re.split(r"([0-9]+)", name))]


def numbers_in_names(paths: Sequence[Path]) -> tuple[list[int], str] | None:
    """Return the number by which the names of files differ, of each, and the pattern of all; None where they differ in
    something else too.

    >>> numbers_in_names([Path("c/7/round-2.pt"), Path("c/10/round-2.pt")])
    ([7, 10], 'c/{client}/round-2.pt')
    >>> numbers_in_names([Path("a-1.pt"), Path("b-2.pt")]), numbers_in_names([Path("1-1.pt"), Path("2-4.pt")])
    (None, None)
    """
    parts = [re.split(r"([0-9]+)", str(path)) for path in paths]
    if len({tuple(one[::2]) for one in parts}) != 1:
        return None
    columns = {i: [one[i] for one in parts] for i in range(1, len(parts[0]), 2)}
    differing = {i: list(map(int, texts)) for i, texts in columns.items() if len(set(texts)) > 1}
    numbers = next(iter(differing.values()), None)
    if numbers is None or any(one != numbers for one in differing.values()) or len(set(numbers)) < len(numbers):
        return None
    return numbers, "".join("{client}" if i in differing else part for i, part in enumerate(parts[0]))


# --- a list, a folder ---


def _in_order(files: Sequence[str], start: str | None, global_: str | None, notes: list[str]) -> list[Path]:
    """Return the clients' files, without those that are the start or the global model too."""
    paths = [path for text in files for path in _expand(text)]
    known: dict[Path, Path] = {}
    for path in paths:
        if known.setdefault(real_path(path), path) is not path:
            raise FedscopeError(f"{path} is given twice, so it would be two clients; give each file once")
    for what, text in (("start", start), ("global model", global_)):
        if text is not None and (place := real_path(Path(text))) in known:
            notes.append(f"{known.pop(place)} is the {what}, and so no client")
    if not known:
        raise FedscopeError(
            f"{list_few(files, 3)}: no client's model is left; give more files than --start and --global"
        )
    return list(known.values())


def _other_order(files: Sequence[str], clients: Sequence[Path]) -> OtherOrder | None:
    """Return in which order clients' files were given, where the numbers in their names say another.

    What stands for all of them is offered where it takes them in the order of these numbers: it reads digits behind a
    point as a number of their own.
    """
    order = other_order(clients) if len(files) > 1 else None
    if order is None:
        return None
    paths = [path for text in files for path in _expand(text)]
    return replace(order, instead=next((text for text in _in_one(paths) if _is_in_order(text, paths)), ""))


def _in_one(paths: Sequence[Path]) -> Iterator[str]:
    """Yield what may stand for all files: a pattern of a shell, and their folder."""
    parts = {name_apart(path) for path in paths}
    if len({words for words, _ in parts}) == 1:
        words, first = next(iter(parts))
        signs = [first[i] if len({own[i] for _, own in parts}) == 1 else "*" for i in range(len(first))]
        yield "".join(word + sign for word, sign in zip(words, [*signs, ""], strict=True))
    if len({path.parent for path in paths}) == 1:
        yield str(paths[0].parent)


def _is_in_order(text: str, paths: Sequence[Path]) -> bool:
    """Tell whether an argument stands for these files, in the order of the numbers in their names."""
    try:
        found = _expand(text)
        return sorted(found) == sorted(paths) and other_order(found) is None
    except (FedscopeError, OSError, ValueError):
        return False


def _expand(text: str) -> list[Path]:
    file, key = file_and_key(text)
    return [with_key(path, key) for path in _all_of(file)]


def _all_of(text: str) -> list[Path]:
    """Return the one model of a folder, all model files of another, the files that signs stand for, or the file
    itself."""
    path = Path(text)
    if path.is_dir():
        one = model_in(path, SUFFIXES)
        if one is not None:
            return [one]
        found = [path / name for name in sorted(model_names(path, SUFFIXES), key=natural)]
        if not found:
            names = sorted((entry.name for entry in path.iterdir() if not entry.name.startswith(".")), key=natural)
            holds = f"; it holds {list_few(names, 6)}" if names else ""
            offered = offer_pattern(path)
            give = f"give the pattern {quoted(offered)} alone" if offered else "give another folder"
            raise FedscopeError(f"{text} holds no model's file ({', '.join(SUFFIXES)}){holds}; {give}")
        return found
    if not path.exists() and any(sign in text for sign in "*?["):  # no shell has done it
        folder, pattern = _apart(path)
        there = (one for one in folder.glob(str(pattern)) if _is_model(one) and not one.name.startswith("."))
        found = sorted(there, key=lambda one: natural(str(one)))
        if not found:
            raise FedscopeError(f"{text} matches no file{_there(path.parts)}")
        return found
    return [path]


def _apart(path: Path) -> tuple[Path, Path]:
    """Split a pattern of a shell: the folder of its first parts that are there as they are written, whatever signs they
    have, and the rest."""
    parts = path.parts[bool(path.anchor) :]
    folder = Path(path.anchor)
    for i, part in enumerate(parts[:-1]):
        if not (folder / part).is_dir():
            return folder, Path(*parts[i:])
        folder /= part
    return folder, Path(parts[-1])


def with_key(path: Path, key: str) -> Path:
    """``FILE:KEY``, which names one of several models in a file."""
    return path.with_name(f"{path.name}:{key}") if key else path


def _is_model(path: Path) -> bool:
    return path.is_file() or is_model_folder(path)


# --- patterns ---


def _by_round(pattern: str) -> dict[int, dict[int, Path]]:
    """Return the clients' files by round and client; without ``{round}`` they are round 1's."""
    if "client" not in _placeholders(pattern):
        raise FedscopeError(
            f"{pattern} does not say which client a model belongs to; write {{client}} for the client's number, as in "
            f"'{_EXAMPLE}'"
        )
    clients: dict[int, dict[int, Path]] = {}
    for values, path in _matches(pattern):
        number, client = values.get("round", 1), values["client"]
        other = clients.setdefault(number, {}).setdefault(client, path)
        if other is not path:
            raise FedscopeError(f"{other} and {path} are both client {client} of round {number}; keep one of them")
    return clients


def _of_rounds(option: str, text: str | None, clients: Mapping[int, Mapping[int, Path]], files: str) -> dict[int, Path]:
    """Return one model a round: the files of a pattern, or a single file, which is of the first or only round."""
    if text is None:
        return {}
    if not is_pattern(text):
        if option == "--global" and len(clients) > 1:
            raise FedscopeError(
                f"{option} {text} is one file, but {files} has {len(clients)} rounds; write {{round}} for the "
                "round's number"
            )
        return {min(clients): Path(text)}
    used = _placeholders(text)
    if "client" in used or "round" not in _placeholders(files):
        has = "{client}, but all clients of a round have one" if "client" in used else f"{{round}}, but {files} has not"
        raise FedscopeError(f"{option} {text} has {has}; give a file, or {{round}} in both patterns alone")
    found: dict[int, Path] = {}
    for values, path in _matches(text):
        other = found.setdefault(values["round"], path)
        if other is not path:
            raise FedscopeError(f"{other} and {path} are both {option} of round {values['round']}; keep one of them")
    return dict(sorted(found.items()))


def _placeholders(pattern: str) -> set[str]:
    used = set(_PLACEHOLDER.findall(pattern))
    if other := sorted(used - set(PLACEHOLDERS)):
        raise FedscopeError(f"{pattern}: {{{other[0]}}} is not a placeholder; {{round}} and {{client}} are")
    return used


def _matches(pattern: str) -> list[tuple[dict[str, int], Path]]:
    file, key = file_and_key(pattern)
    parts = Path(file).parts
    found = sorted(_walk(Path(), parts, {}), key=lambda match: natural(str(match[1])))
    if not found:
        raise FedscopeError(f"{pattern} matches no file{_there(parts)}")
    return [(values, with_key(path, key)) for values, path in found]


def _walk(folder: Path, parts: Sequence[str], values: dict[str, int]) -> Iterator[tuple[dict[str, int], Path]]:
    """Yield every file that the parts of a path match, and the numbers that its placeholders stand for."""
    head, *rest = parts
    if not _PLACEHOLDER.search(head):
        inside = [(folder / head, values)]
    else:
        names = _PLACEHOLDER.split(head)[1::2]
        # one group a place: a placeholder may stand in a path more than once
        literal = [re.escape(text) for text in _PLACEHOLDER.split(head)[::2]]
        expression = re.compile("([0-9]{1,18})".join(literal))
        inside = []
        for entry in folder.iterdir() if folder.is_dir() else ():
            if (match := expression.fullmatch(entry.name)) is None:
                continue
            here = [*values.items(), *zip(names, map(int, match.groups()), strict=True)]
            if len(set(here)) == len(dict(here)):
                inside.append((entry, dict(here)))
    for path, known in inside:
        if rest:
            yield from _walk(path, rest, known)
        elif _is_model(path):
            yield known, path


def _there(parts: Sequence[str]) -> str:
    """Return a clause that says what lies where the first part of a path that is no plain name was looked for."""
    folder = Path()
    for part in parts:
        if any(sign in part for sign in "{*?[") and not (folder / part).is_dir():
            break
        if not (folder / part).exists():
            return f": there is no {folder / part}; check the path"
        folder /= part
    names = sorted((entry.name for entry in folder.iterdir() if not entry.name.startswith(".")), key=natural)
    return f"; {folder} holds {list_few(names, 6) or 'nothing'}"
